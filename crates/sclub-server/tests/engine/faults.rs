//! Full disks, failing devices and damaged files.

use std::fs;

use sclub_server::engine::{Engine, FoldError, OpenError, Refusal, verify};
use sclub_server::env::Env;
use sclub_server::settings::Settings;
use sclub_server::store::StoreError;

use crate::bench::{Bench, quiet, settings, verified, wait_until};
use crate::common::clock::Moved;
use crate::common::disk::Faults;
use crate::common::{files, flip};

fn is_read_only<T>(outcome: &Result<T, Refusal>) -> bool {
    matches!(outcome, Err(Refusal::ReadOnly(_)))
}

/// An item that is larger than the space reserved for the log.
fn large() -> String {
    "x".repeat(300_000)
}

#[test]
fn a_full_disk_refuses_writes_and_goes_on_reading() {
    let (faults, env) = Faults::new(Env::real());
    let bench = Bench::with_items(env, &settings());
    let shown = bench.decide("u");
    let hash = bench.hash();
    faults.set_full(true);
    let refused = bench.put(&large(), [0.5; 3]);
    assert!(is_read_only(&refused), "{refused:?}");
    assert!(bench.engine.read_only().is_some());
    // As soon as a new file is due, small writes are refused as well.
    assert!(bench.runtime.block_on(bench.engine.snapshot()).is_err());
    let refused = bench.feedback(&shown, 1.0);
    assert!(is_read_only(&refused), "{refused:?}");
    assert_eq!(bench.hash(), hash);
    assert!(bench.recommend("u", 1).is_ok());
    assert!(bench.runtime.block_on(bench.engine.compact()).is_err());
    assert_eq!(verified(bench.killed().path()), hash);
    faults.set_full(false);
    assert_eq!(bench.feedback(&shown, 1.0), Ok(true));
    assert_eq!(bench.engine.read_only(), None);
    assert_eq!(bench.put(&large(), [0.5; 3]), Ok(1));
    assert_eq!(verified(bench.killed().path()), bench.hash());
    bench.snapshot();
    assert_eq!(verified(bench.killed().path()), bench.hash());
}

/// No request is needed for it.
#[test]
fn a_server_notices_by_itself_that_the_disk_has_space_again() {
    let (faults, env) = Faults::new(Env::real());
    let bench = Bench::with_items(env, &settings());
    faults.set_full(true);
    assert!(is_read_only(&bench.put(&large(), [0.5; 3])));
    // It keeps retrying; space for a small write alone does not count.
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(bench.engine.read_only().is_some());
    faults.set_full(false);
    wait_until(|| bench.engine.read_only().is_none());
}

/// If even reserved space cannot be written, part of the append may be on the disk. Its caller is answered
/// once the append is void.
#[test]
fn refused_writes_leave_nothing_on_a_disk_that_takes_no_byte() {
    let (faults, env) = Faults::new(Env::real());
    let bench = Bench::with_items(env, &quiet());
    let shown = bench.decide("u");
    faults.refuse_writes("log");
    let refused = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| bench.feedback(&shown, 1.0));
        wait_until(|| bench.engine.read_only().is_some());
        assert!(
            is_read_only(&bench.put("d", [0.5; 3])),
            "others are told at once"
        );
        assert!(bench.recommend("u", 1).is_ok());
        faults.accept_writes();
        waiting.join().unwrap()
    });
    assert!(is_read_only(&refused), "{refused:?}");
    assert_eq!((bench.rounds(), bench.crash().rounds()), (0, 0));
    assert_eq!(bench.feedback(&shown, 1.0), Ok(true));
    assert_eq!(verified(bench.killed().path()), bench.hash());
}

/// The device returned an error. The append is void, whether its bytes were written or not, and its caller is
/// answered so.
#[test]
fn an_append_whose_sync_failed_does_not_count_unless_it_is_repeated() {
    for after in [false, true] {
        let (faults, env) = Faults::new(Env::real());
        let bench = Bench::with_items(env, &quiet());
        let shown = bench.decide("u");
        let hash = bench.hash();
        match after {
            // Every byte is on the disk. It must not count, because it was not acknowledged.
            true => faults.fail_after_syncs("log", 1),
            false => faults.fail_syncs("log", 1),
        }
        let refused = bench.feedback(&shown, 1.0);
        assert!(is_read_only(&refused), "{refused:?}");
        assert_eq!((bench.rounds(), bench.hash()), (0, hash.clone()));
        let again = bench.crash();
        assert_eq!((again.rounds(), again.hash()), (0, hash));
        assert_eq!(again.feedback(&shown, 1.0), Ok(true));
        assert_eq!(again.feedback(&shown, 1.0), Ok(false));
        // The same holds without a restart.
        assert_eq!(bench.feedback(&shown, 1.0), Ok(true));
        assert_eq!(bench.rounds(), 1);
        assert_eq!(verified(bench.killed().path()), bench.hash());
        assert_eq!(verified(again.killed().path()), again.hash());
    }
}

/// Neither the append nor the first file after it can be written; the second can.
#[test]
fn writing_goes_on_by_itself_after_a_device_failed_for_a_moment() {
    for creates in [false, true] {
        let (faults, env) = Faults::new(Env::real());
        let bench = Bench::with_items(env, &quiet());
        let shown = bench.decide("u");
        match creates {
            true => {
                faults.fail_creates("log", 1);
                faults.fail_syncs("log", 1);
            }
            false => faults.fail_syncs("log", 2),
        }
        // The answer comes once the append is void.
        let refused = bench.feedback(&shown, 1.0);
        assert!(is_read_only(&refused), "{refused:?}");
        wait_until(|| bench.engine.read_only().is_none());
        assert_eq!(bench.crash().rounds(), 0);
        assert_eq!(bench.feedback(&shown, 1.0), Ok(true));
        bench.serve("v", 3);
        assert_eq!(verified(bench.killed().path()), bench.hash());
    }
}

/// For ten seconds nothing can be written: then the answer is that the outcome is unknown. Sending it again
/// settles it.
#[test]
fn an_outcome_that_cannot_be_settled_in_time_is_answered_as_unknown() {
    let (faults, env) = Faults::new(Env::real());
    let (clock, env) = Moved::new(env);
    let bench = Bench::with_items(env, &quiet());
    let shown = bench.decide("u");
    faults.fail_after_syncs("log", u32::MAX);
    let unknown = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| bench.feedback(&shown, 1.0));
        wait_until(|| bench.engine.read_only().is_some());
        // Later writes are refused at once: they were never written.
        assert!(is_read_only(&bench.put("d", [0.5; 3])));
        assert!(!waiting.is_finished());
        clock.pass(10_001);
        waiting.join().unwrap()
    });
    assert!(matches!(unknown, Err(Refusal::Unknown(_))), "{unknown:?}");
    // It had reached the disk before the error, and no file after it could be begun.
    let again = bench.crash();
    assert_eq!(again.rounds(), 1);
    assert_eq!(again.feedback(&shown, 1.0), Ok(false));
    assert_eq!(verified(again.killed().path()), again.hash());
    // In the server that went on it is void, and is learned when it is sent again.
    faults.fail_after_syncs("log", 0);
    assert_eq!(bench.feedback(&shown, 1.0), Ok(true));
    assert_eq!(bench.rounds(), 1);
    assert_eq!(verified(bench.killed().path()), bench.hash());
}

/// While it is open whether an item is in the log, nobody is told that there is no such item.
#[test]
fn nothing_to_change_is_no_answer_while_an_append_is_in_doubt() {
    let (faults, env) = Faults::new(Env::real());
    let bench = Bench::with_items(env, &quiet());
    let shown = bench.decide("u");
    bench.feedback(&shown, 1.0).unwrap();
    let remove = |bench: &Bench| bench.runtime.block_on(bench.engine.remove("d"));
    faults.fail_after_syncs("log", u32::MAX);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| bench.put("d", [0.5; 3]));
        wait_until(|| bench.engine.read_only().is_some());
        assert!(is_read_only(&remove(&bench)));
        assert!(is_read_only(&bench.put("a", [1.0, 0.0, 0.0])));
        // A reward that was learned before stays learned.
        assert_eq!(bench.feedback(&shown, 1.0), Ok(false));
        assert!(
            bench
                .crash()
                .engine
                .state()
                .catalogue()
                .unwrap()
                .slot("d")
                .is_some()
        );
        faults.fail_after_syncs("log", 0);
        assert!(is_read_only(&waiting.join().unwrap()));
    });
    assert_eq!(remove(&bench), Ok(false));
    assert_eq!(bench.put("a", [1.0, 0.0, 0.0]), Ok(0));
}

/// At a shutdown, the caller of a failed append is answered that the outcome is unknown.
#[test]
fn a_failed_append_at_a_shutdown_is_answered_as_unknown() {
    let (faults, env) = Faults::new(Env::real());
    let bench = Bench::with_items(env, &quiet());
    let shown = bench.decide("u");
    faults.fail_syncs("log", u32::MAX);
    let answer = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| bench.feedback(&shown, 1.0));
        wait_until(|| bench.engine.read_only().is_some());
        bench.runtime.block_on(bench.engine.close());
        waiting.join().unwrap()
    });
    assert!(matches!(answer, Err(Refusal::Unknown(_))), "{answer:?}");
}

#[test]
fn an_export_has_decisions_made_while_the_disk_was_full() {
    let (faults, env) = Faults::new(Env::real());
    let bench = Bench::with_items(env, &quiet());
    bench.serve("early", 2);
    assert_eq!(bench.export().len(), 2);
    faults.refuse_writes("");
    let shown = bench.decide("u");
    bench.decide("v");
    // Long enough for the journal to have tried to write.
    assert!(
        bench
            .runtime
            .block_on(bench.engine.export(&mut Vec::new()))
            .is_err()
    );
    bench.decide("w");
    faults.accept_writes();
    assert_eq!(bench.feedback(&shown, 0.5), Ok(true));
    let lines = bench.export();
    let users: Vec<&str> = lines
        .iter()
        .filter_map(|line| line["user"].as_str())
        .collect();
    assert_eq!(users, ["early", "early", "u", "v", "w"]);
    assert_eq!(lines[2]["reward"], 0.5);
    assert!(lines.iter().all(|line| line["features"].is_array()));
    let again = bench.crash();
    assert_eq!(again.export(), lines);
}

/// If the journal's device fails, learning goes on, and the journal catches up.
#[test]
fn a_journal_that_cannot_be_written_does_not_stop_learning_and_catches_up() {
    let (faults, env) = Faults::new(Env::real());
    let bench = Bench::with_items(env, &quiet());
    bench.serve("early", 1);
    assert_eq!(bench.export().len(), 1);
    faults.refuse_writes("journal");
    bench.serve("u", 3);
    bench.decide("v");
    assert!(
        bench
            .runtime
            .block_on(bench.engine.export(&mut Vec::new()))
            .is_err()
    );
    // Snapshots must not drop the log that the journal has not read.
    for _ in 0..3 {
        bench.serve("u", 1);
        bench.snapshot();
    }
    assert_eq!(bench.engine.read_only(), None);
    let crashed = bench.crash();
    let rewards = |bench: &Bench| {
        let lines = bench.export();
        lines
            .iter()
            .filter(|line| line["reward"].is_number())
            .count()
    };
    assert_eq!(rewards(&crashed), 7);
    // A backup is taken from what is on the disk, says so, and has all rewards.
    let mut out = Vec::new();
    let taken = bench.runtime.block_on(bench.engine.backup(&mut out));
    assert!(matches!(taken, Ok(false)));
    let copy = bench.restored(&bench.backup());
    assert_eq!((rewards(&copy), copy.hash()), (7, bench.hash()));
    faults.accept_writes();
    assert_eq!(rewards(&bench), 7);
    assert_eq!(bench.export().len(), 8);
    // One page was interrupted, and none is there twice.
    faults.fail_after_syncs("journal", 1);
    bench.serve("w", 1);
    wait_until(|| rewards_of(&bench, "w").is_some_and(|count| count == 1));
    assert_eq!(rewards(&bench), 8);
    assert_eq!(rewards(&bench.crash()), 8);
}

fn rewards_of(bench: &Bench, user: &str) -> Option<usize> {
    let mut out = Vec::new();
    let exported = bench.runtime.block_on(bench.engine.export(&mut out));
    exported.ok()?;
    let lines = crate::bench::lines(&out);
    Some(lines.iter().filter(|line| line["user"] == user).count())
}

#[test]
fn two_engines_do_not_share_a_folder() {
    let bench = Bench::with_items(Env::real(), &settings());
    let second = Engine::open(Env::real(), bench.folder.path(), &settings());
    let error = second.unwrap_err();
    assert!(
        matches!(&error, OpenError::Fold(FoldError::Store(StoreError::InUse(path))) if path == bench.folder.path()),
        "{error:?}"
    );
    assert!(verify(&Env::real(), bench.folder.path(), &mut |_| {}).is_err());
    // The first engine is unharmed, and once it has ended another may open the folder.
    bench.serve("u", 1);
    let (hash, settings) = (bench.hash(), bench.settings.clone());
    let again = Bench::at(bench.close(), Env::real(), &settings);
    assert_eq!(again.hash(), hash);
}

#[test]
fn a_damaged_newest_snapshot_is_skipped() {
    let bench = Bench::with_items(Env::real(), &quiet());
    bench.serve("u", 4);
    bench.snapshot();
    bench.serve("v", 4);
    let (hash, shown) = (bench.hash(), bench.decide("w"));
    let folder = bench.close();
    let snapshots = files(&folder.path().join("snapshots"));
    assert_eq!(snapshots.len(), 2);
    let newest = &snapshots[1];
    flip(newest, 100, 3);
    let error = verify(&Env::real(), folder.path(), &mut |_| {}).unwrap_err();
    assert!(
        error.to_string().contains(&newest.display().to_string()),
        "{error}"
    );

    let bench = Bench::at(folder, Env::real(), &quiet());
    assert_eq!(bench.hash(), hash);
    // Later snapshots do not rely on the damaged one, although it is of the same batch.
    bench.compact();
    assert_eq!(verified(bench.killed().path()), hash);
    assert_eq!(bench.crash().hash(), hash);
    assert_eq!(bench.feedback(&shown, 1.0), Ok(true));
    let hash = bench.hash();
    let folder = bench.close();
    assert_eq!(verified(folder.path()), hash);
}

/// A compaction drops everything but its snapshot, so it reads it first.
#[test]
fn a_compaction_whose_snapshot_cannot_be_read_drops_nothing() {
    let bench = Bench::with_items(Env::real(), &quiet());
    bench.serve("u", 4);
    bench.snapshot();
    bench.serve("v", 4);
    bench.snapshot();
    let snapshots = files(&bench.folder.path().join("snapshots"));
    flip(&snapshots[1], 100, 3);
    let failed = bench.runtime.block_on(bench.engine.compact());
    let error = failed.unwrap_err().to_string();
    assert!(
        error.contains(&snapshots[1].display().to_string()),
        "{error}"
    );
    assert_eq!(files(&bench.folder.path().join("snapshots")), snapshots);
    assert_eq!(bench.crash().hash(), bench.hash());
    // With the next event there is another snapshot.
    bench.serve("w", 1);
    bench.compact();
    assert_eq!(verified(bench.killed().path()), bench.hash());
}

/// After a compaction there is one snapshot, and the log before it is gone. An error of the device that goes
/// away must not make the server give up this snapshot.
#[test]
fn the_only_snapshot_is_used_again_after_it_could_not_be_read_for_a_moment() {
    let (faults, env) = Faults::new(Env::real());
    let bench = Bench::with_items(env, &quiet());
    bench.serve("u", 4);
    bench.compact();
    let only = files(&bench.folder.path().join("snapshots"));
    assert_eq!(only.len(), 1);
    bench.serve("v", 4);
    faults.fail_reads("snapshots", 1);
    let failed = bench.runtime.block_on(bench.engine.snapshot());
    let error = failed.unwrap_err().to_string();
    assert!(error.contains(&only[0].display().to_string()), "{error}");
    assert_eq!(files(&bench.folder.path().join("snapshots")), only);
    bench.snapshot();
    assert_eq!(files(&bench.folder.path().join("snapshots")).len(), 2);
    assert_eq!(verified(bench.killed().path()), bench.hash());
}

/// One after another: each is a different file that a copy does not need.
#[test]
fn a_snapshot_that_cannot_be_written_leaves_the_old_ones() {
    let (faults, env) = Faults::new(Env::real());
    let bench = Bench::with_items(env, &quiet());
    bench.serve("u", 2);
    bench.snapshot();
    bench.serve("u", 2);
    bench.snapshot();
    let before = files(&bench.folder.path().join("snapshots"));
    assert_eq!(before.len(), 2);
    for round in 0..2 {
        bench.serve("u", 2);
        match round {
            0 => faults.refuse_writes("snapshots"),
            _ => faults.fail_syncs("snapshots", 1),
        }
        assert!(bench.runtime.block_on(bench.engine.snapshot()).is_err());
        assert_eq!(files(&bench.folder.path().join("snapshots")), before);
        assert_eq!(verified(bench.killed().path()), bench.hash());
        // Only the snapshot failed.
        assert_eq!(bench.engine.read_only(), None);
        faults.accept_writes();
    }
    bench.snapshot();
    assert_ne!(files(&bench.folder.path().join("snapshots")), before);
    assert_eq!(verified(bench.killed().path()), bench.hash());
}

/// `verify` compares the snapshot with a state that comes from the log alone.
#[test]
fn a_snapshot_that_differs_from_the_log_is_found() {
    let bench = Bench::with_items(Env::real(), &quiet());
    bench.serve("u", 2);
    let folder = bench.killed();
    bench.serve("u", 1);
    bench.snapshot();
    // The same batch with other contents.
    let other = Bench::at(folder, Env::real(), &Settings { ..quiet() });
    other.serve("x", 1);
    let other = other.close();
    let name = |folder: &std::path::Path| files(&folder.join("snapshots")).pop().unwrap();
    fs::copy(name(bench.folder.path()), name(other.path())).unwrap();
    let error = verify(&Env::real(), other.path(), &mut |_| {}).unwrap_err();
    let expected = "the log gives a different state";
    assert!(error.to_string().contains(expected), "{error}");
}

/// The newest file has no end that a later file would tell.
#[test]
fn a_damaged_journal_is_an_error_while_the_server_runs_too() {
    let bench = Bench::with_items(Env::real(), &settings());
    let export = || {
        let mut out = Vec::new();
        let done = bench.runtime.block_on(bench.engine.export(&mut out));
        done.map(|_| out.split(|byte| *byte == b'\n').count())
    };
    for user in ["u", "v", "w"] {
        bench.serve(user, 4);
        assert!(export().unwrap() > 4);
    }
    let newest = files(&bench.folder.path().join("journal")).pop().unwrap();
    flip(&newest, 100, 3);
    let error = export().unwrap_err().to_string();
    assert!(error.contains(&newest.display().to_string()), "{error}");
    bench.serve("x", 4);
    assert!(export().is_err());
}

#[test]
fn a_damaged_journal_is_removed_by_a_start_without_one() {
    for at in [10, 100, 1000] {
        let bench = Bench::with_items(Env::real(), &settings());
        for user in 0..20 {
            bench.serve(&user.to_string(), 4);
        }
        let (hash, shown) = (bench.hash(), bench.decide("w"));
        let folder = bench.close();
        let newest = files(&folder.path().join("journal")).pop().unwrap();
        flip(&newest, at, 3);
        let refused = Engine::open(Env::real(), folder.path(), &settings());
        let error = refused.err().unwrap().to_string();
        assert!(error.contains(&newest.display().to_string()), "{error}");

        let without = Settings {
            journal_days: 0,
            ..settings()
        };
        let bench = Bench::at(folder, Env::real(), &without);
        assert_eq!(bench.hash(), hash);
        let folder = bench.close();
        let bench = Bench::at(folder, Env::real(), &settings());
        assert_eq!(bench.feedback(&shown, 1.0), Ok(true));
        let mut out = Vec::new();
        bench
            .runtime
            .block_on(bench.engine.export(&mut out))
            .unwrap();
        let hash = bench.hash();
        assert_eq!(verified(bench.close().path()), hash);
    }
}
