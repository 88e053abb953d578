//! Backups, and decisions of other copies.

use sclub_server::engine::{Refusal, backup_folder, export_folder, restore};
use sclub_server::env::Env;
use sclub_server::settings::Settings;

use crate::bench::{Bench, lines, quiet, settings, verified};
use crate::common::new_folder;

#[test]
fn a_copy_is_as_good_as_the_original() {
    let bench = Bench::with_items(Env::real(), &settings());
    bench.serve("u", 20);
    let open = bench.recommend("v", 2).unwrap();
    let (hash, lines_then, backup) = (bench.hash(), bench.export(), bench.backup());
    bench.serve("u", 5);
    let copy = bench.restored(&backup);
    assert_eq!(copy.hash(), hash);
    assert_eq!(verified(copy.killed().path()), hash);
    assert_eq!(copy.export(), lines_then);
    assert_eq!(copy.feedback(&open.decision, 1.0), Ok(true));
    copy.serve("u", 5);
    assert_eq!(verified(copy.killed().path()), copy.hash());
    // A copy of the copy, and of a folder that no server uses.
    let (hash, lines_then) = (copy.hash(), copy.export());
    let second = copy.restored(&copy.backup());
    assert_eq!(
        (second.hash(), second.export()),
        (hash.clone(), lines_then.clone())
    );
    let folder = copy.close();
    let mut backup = Vec::new();
    backup_folder(&Env::real(), folder.path(), &mut backup).unwrap();
    let third = bench.restored(&backup);
    assert_eq!((third.hash(), third.export()), (hash, lines_then.clone()));
    let mut out = Vec::new();
    export_folder(&Env::real(), folder.path(), &mut out).unwrap();
    assert_eq!(lines(&out), lines_then);
}

#[test]
fn a_folder_without_a_journal_is_copied_as_a_whole() {
    let settings = Settings {
        journal_days: 0,
        ..quiet()
    };
    let bench = Bench::with_items(Env::real(), &settings);
    // The log is dropped behind the older of two snapshots.
    for _ in 0..3 {
        bench.serve("u", 5);
        bench.snapshot();
    }
    let hash = bench.hash();
    let online = bench.restored(&bench.backup());
    assert_eq!(online.hash(), hash);
    let folder = bench.close();
    for folder in [folder, online.close()] {
        let mut backup = Vec::new();
        backup_folder(&Env::real(), folder.path(), &mut backup).unwrap();
        let copy = new_folder();
        restore(&Env::real(), &mut &*backup, copy.path()).unwrap();
        assert_eq!(verified(copy.path()), hash);
        let copy = Bench::at(copy, Env::real(), &quiet());
        copy.serve("u", 1);
        assert_eq!(copy.export().len(), 1);
    }
}

/// Copies during learning: each copy is a state that the server had.
#[test]
fn a_copy_of_a_busy_server_is_complete() {
    let bench = Bench::with_items(Env::real(), &settings());
    std::thread::scope(|scope| {
        let learning = scope.spawn(|| {
            for round in 0..150 {
                bench.serve(&format!("u{}", round % 5), 1);
                if round % 40 == 39 {
                    bench.forget("u3").unwrap();
                    bench.compact();
                }
            }
        });
        while !learning.is_finished() {
            let before = bench.engine.state().events();
            let copy = new_folder();
            let backup = bench.backup();
            let after = bench.engine.state().events();
            restore(&Env::real(), &mut &*backup, copy.path()).unwrap();
            let verified =
                sclub_server::engine::verify(&Env::real(), copy.path(), &mut |_| {}).unwrap();
            assert!((before..=after).contains(&verified.events));
            let mut out = Vec::new();
            export_folder(&Env::real(), copy.path(), &mut out).unwrap();
        }
    });
}

/// The original goes on after the copy was taken. The copy refuses its later decisions, and the other way
/// round.
#[test]
fn decisions_of_another_copy_are_refused() {
    let bench = Bench::with_items(Env::real(), &quiet());
    let shared = bench.decide("u");
    let backup = bench.backup();
    // The original learns more.
    bench.serve("u", 1);
    let learned_on = bench.decide("u");
    // Or it is restarted.
    let restarted = bench.crash();
    let after_restart = restarted.decide("u");
    let copy = bench.restored(&backup);
    for other in [&learned_on, &after_restart] {
        assert_eq!(copy.feedback(other, 1.0), Err(Refusal::OtherCopy));
    }
    let own = copy.decide("u");
    for original in [&bench, &restarted] {
        assert_eq!(original.feedback(&own, 1.0), Err(Refusal::OtherCopy));
    }
    // In a batch the error has the index.
    let given = [&own, &learned_on]
        .map(|decision| sclub_server::engine::Feedback::of_item(decision, None, 1.0));
    let refused = copy.runtime.block_on(copy.engine.feedback_batch(&given));
    let expected = Refusal::OtherCopy.within("feedback", 1);
    assert_eq!(refused, Err(expected));
    // Each accepts its own decisions, and those made before the copy was taken.
    assert_eq!(copy.rounds(), 0);
    assert_eq!(copy.feedback(&own, 1.0), Ok(true));
    assert_eq!(copy.feedback(&shared, 1.0), Ok(true));
    assert_eq!(restarted.feedback(&shared, 1.0), Ok(true));
    assert_eq!(restarted.feedback(&learned_on, 1.0), Ok(true));
    assert_eq!(restarted.feedback(&after_restart, 1.0), Ok(true));
    assert_eq!(bench.feedback(&learned_on, 1.0), Ok(true));
    // Also after restarts of all of them.
    assert_eq!(
        copy.crash().feedback(&learned_on, 1.0),
        Err(Refusal::OtherCopy)
    );
    assert_eq!(
        restarted.crash().feedback(&own, 1.0),
        Err(Refusal::OtherCopy)
    );
}

/// A copy without a journal can learn.
#[test]
fn a_copy_without_a_journal_learns() {
    let without = sclub_server::settings::Settings {
        journal_days: 0,
        ..settings()
    };
    let bench = Bench::with_items(Env::real(), &without);
    bench.serve("u", 20);
    let copy = bench.restored(&bench.backup());
    assert_eq!(copy.hash(), bench.hash());
    copy.serve("u", 10);
    assert_eq!(verified(copy.killed().path()), copy.hash());
    assert_eq!(copy.export().len(), 0);
}
