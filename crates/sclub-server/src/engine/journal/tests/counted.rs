//! Counts of items against the journal that they are made from.

use std::path::Path;

use super::bench::{Bench, items, settings};
use crate::engine::common::clock::{DAY, Moved};
use crate::engine::common::disk::Faults;
use crate::engine::common::{copy_of, files_containing, new_folder};
use crate::engine::{Feedback, Import, ImportRow};
use crate::env::Env;
use crate::settings::Settings;

#[test]
fn no_crash_in_a_compaction_leaves_numbers_of_a_forgotten_user() {
    let base = {
        let folder = new_folder();
        let bench = Bench::open(Env::real(), folder.path(), &settings());
        bench.put_items();
        for user in ["stays", "philomena", "philomena"] {
            bench.serve(user);
        }
        bench.export();
        bench.write_counts();
        copy_of(folder.path())
    };
    let expected = [(1, 1, 1.0), (1, 1, 0.0)];
    let mut recounted = 0;
    for changes in 0.. {
        let folder = copy_of(base.path());
        let (faults, env) = Faults::new(Env::real());
        let bench = Bench::open(env, folder.path(), &settings());
        assert_eq!(bench.counts(), [(3, 3, 3.0), (3, 3, 0.0)]);
        bench.forget("philomena");
        bench.export();
        faults.stop_after(changes);
        let is_done = bench.compact().is_ok();
        // What is in memory is written meanwhile.
        faults.stop_after(u32::MAX);
        bench.write_counts();
        let killed = copy_of(folder.path());
        let again = Bench::open(Env::real(), killed.path(), &settings());
        // As long as the journal mentions the user, the next compaction counts anew.
        if files_containing(&killed.path().join("journal"), b"philomena") == 0 {
            assert_eq!(again.counts(), expected, "after {changes} changes");
            recounted += 1;
        }
        again.compact().unwrap();
        assert_eq!(again.counts(), expected, "after {changes} changes");
        if is_done {
            assert_eq!(bench.counts(), expected);
            break;
        }
        // Also without a crash, once the disk works again.
        bench.compact().unwrap();
        assert_eq!(bench.counts(), expected, "after {changes} changes");
    }
    assert!(
        recounted > 1,
        "no crash came after the journal was rewritten"
    );
}

#[test]
fn a_server_that_is_killed_right_after_a_compaction_counts_what_is_in_the_journal() {
    let folder = new_folder();
    let bench = Bench::open(Env::real(), folder.path(), &settings());
    bench.put_items();
    for user in ["stays", "philomena"] {
        bench.serve(user);
    }
    bench.export();
    bench.write_counts();
    bench.forget("philomena");
    assert_eq!(bench.compact().unwrap(), 3);
    let killed = copy_of(folder.path());
    let again = Bench::open(Env::real(), killed.path(), &settings());
    assert_eq!(again.counts(), [(1, 1, 1.0), (1, 1, 0.0)]);
}

/// Imports rewards for both items into a folder.
fn import(data: &Path) {
    let mut import = Import::begin(&Env::real(), data, &settings()).unwrap();
    import
        .upsert(items().into_iter().map(Into::into).collect())
        .unwrap();
    for n in 0..500_u64 {
        let row = ImportRow {
            user: ["u", "v", "w"][n as usize % 3],
            item: ["a", "b"][n as usize % 2],
            features: None,
            reward: (n % 2) as f64,
            at: Some(1_577_836_800_000 + n),
        };
        assert_eq!(import.add(&row).unwrap(), Ok(()));
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    assert_eq!(runtime.block_on(import.finish()).unwrap().rows, 500);
}

/// However often the folder was started before, after a crash, and when items are counted anew.
#[test]
fn imported_rewards_are_not_counted() {
    let none = [(0, 0, 0.0); 2];
    for starts in 0..4 {
        let mut folder = new_folder();
        for start in 0..starts {
            let bench = Bench::open(Env::real(), folder.path(), &settings());
            if start == 0 {
                bench.put_items();
            }
            // The old journal has more batches than the new one.
            for n in 0..10 {
                bench.put(&format!("{start}-{n}"));
                bench.export();
            }
            bench.write_counts();
            folder = copy_of(folder.path());
        }
        import(folder.path());
        let bench = Bench::open(Env::real(), folder.path(), &settings());
        assert_eq!(bench.counts(), none, "{starts} starts");
        assert_eq!(bench.engine.state().rewards().0, 500);
        let since = |bench: &Bench| {
            let counts = bench.engine.item_counts().unwrap();
            counts.get(std::iter::empty()).since
        };
        assert_eq!(since(&bench), None);
        bench.serve("u");
        bench.serve("gone");
        bench.export();
        let expected = [(2, 2, 2.0), (2, 2, 0.0)];
        assert_eq!(bench.counts(), expected, "{starts} starts");
        let killed = copy_of(folder.path());
        let again = Bench::open(Env::real(), killed.path(), &settings());
        assert_eq!(again.counts(), expected, "{starts} starts");
        again.forget("gone");
        again.compact().unwrap();
        assert_eq!(again.counts(), [(1, 1, 1.0), (1, 1, 0.0)]);
        let day = 24 * 3600 * 1000;
        assert!(since(&again).unwrap() > again.engine.now() - day);
    }
}

#[test]
fn a_reward_whose_assumed_one_was_dropped_is_counted_as_one() {
    let (clock, env) = Moved::new(Env::real());
    let brief = Settings {
        journal_days: 3,
        lifetime: 100 * 24 * 3600,
        ..settings()
    };
    let folder = new_folder();
    let bench = Bench::open(env.clone(), folder.path(), &brief);
    bench.put_items();
    let [first, second] = ["u", "v"].map(|user| bench.show(user));
    for shown in [&first, &second] {
        let click = Feedback::of_item(&shown.decision, Some("a"), 1.0).with_others(0.5);
        bench.send(click);
    }
    bench.export();
    clock.pass(2 * DAY);
    bench.export();
    bench.send(Feedback::of_item(&first.decision, Some("b"), 1.0));
    // This one stays, with the assumed one that it replaces.
    let third = bench.show("w");
    bench.send(Feedback::of_item(&third.decision, Some("a"), 1.0).with_others(0.5));
    bench.send(Feedback::of_item(&third.decision, Some("b"), 0.75));
    bench.serve("gone");
    bench.export();
    assert_eq!(bench.counts(), [(4, 4, 4.0), (4, 4, 2.25)]);
    clock.pass(3 * DAY + 1000);
    assert!(!bench.export().contains("\"v\""), "it is still kept");
    // Running counts are of everything since the start.
    assert_eq!(bench.counts(), [(4, 4, 4.0), (4, 4, 2.25)]);
    bench.forget("gone");
    bench.compact().unwrap();
    let expected = [(1, 1, 1.0), (1, 2, 1.75)];
    assert_eq!(bench.counts(), expected);
    // A start that counts everything does the same.
    let killed = copy_of(folder.path());
    let again = Bench::open(env, killed.path(), &brief);
    assert_eq!(again.counts(), expected);
}
