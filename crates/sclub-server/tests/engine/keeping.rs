//! Retention of the journal and of the log, and of the settings that a folder was made with.

use sclub::ItemSet;
use sclub_server::engine::{CandidateSet, Engine, RecommendQuery, Rules};
use sclub_server::env::Env;
use sclub_server::settings::{KeepLog, Settings};
use sclub_server::state::Scratch;

use crate::bench::{Bench, DIM, of, quiet, verified};
use crate::common::clock::{DAY, Moved};
use crate::common::{files, files_containing};

/// The users in an export.
fn users(bench: &Bench) -> Vec<String> {
    let lines = bench.export();
    let user = |line: &serde_json::Value| line["user"].as_str().unwrap().to_owned();
    lines.iter().map(user).collect()
}

#[test]
fn with_zero_journal_days_there_is_no_journal() {
    let without = Settings {
        journal_days: 0,
        ..quiet()
    };
    let bench = Bench::with_items(Env::real(), &quiet());
    bench.serve("philomena", 2);
    assert_eq!(users(&bench).len(), 2);
    let journal =
        |bench: &Bench| files_containing(&bench.folder.path().join("journal"), b"philomena");
    assert_eq!(journal(&bench), 1);
    // An existing journal is removed when it is disabled.
    let bench = Bench::at(bench.killed(), Env::real(), &without);
    assert_eq!((users(&bench).len(), journal(&bench)), (0, 0));
    bench.serve("philomena", 2);
    bench.decide("philomena");
    assert_eq!((users(&bench).len(), journal(&bench)), (0, 0));
    // No log is kept for it.
    for _ in 0..3 {
        bench.serve("v", 1);
        bench.snapshot();
    }
    assert_eq!(
        files_containing(&bench.folder.path().join("log"), b"philomena"),
        0
    );
    // Enabled again, it starts empty.
    let bench = Bench::at(bench.killed(), Env::real(), &quiet());
    bench.serve("w", 1);
    assert!(users(&bench).ends_with(&["w".to_owned()]));
    assert_eq!(journal(&bench), 0);
    assert_eq!(verified(bench.killed().path()), bench.hash());
}

#[test]
fn the_journal_is_kept_for_a_number_of_days_of_service() {
    let brief = Settings {
        journal_days: 3,
        ..quiet()
    };
    let (clock, env) = Moved::new(Env::real());
    let bench = Bench::with_items(env, &brief);
    for day in 0..10_u64 {
        bench.serve(&format!("day-{day}"), 1);
        let users = users(&bench);
        // A file is dropped once all of it is too old.
        for kept in day.saturating_sub(2)..=day {
            let name = format!("day-{kept}");
            assert!(users.contains(&name), "{name} on day {day}: {users:?}");
        }
        assert!(users.len() <= 6, "day {day}: {users:?}");
        clock.pass(DAY);
    }
    // The wall clock has no effect.
    let before = users(&bench).len();
    clock.jump(1000 * DAY as i64);
    bench.serve("u", 1);
    assert_eq!(users(&bench).len(), before + 1);
    assert_eq!(verified(bench.killed().path()), bench.hash());
}

/// Also if nothing new is written to the journal.
#[test]
fn old_files_of_the_journal_are_dropped_without_new_ones() {
    let brief = Settings {
        journal_days: 3,
        ..quiet()
    };
    let (clock, env) = Moved::new(Env::real());
    let bench = Bench::with_items(env, &brief);
    bench.serve("u", 1);
    bench.decide("v");
    assert_eq!(users(&bench), ["u", "v"]);
    for _ in 0..2 {
        clock.pass(DAY);
        assert_eq!(users(&bench), ["u", "v"]);
    }
    for _ in 0..2 {
        clock.pass(DAY + 1);
        users(&bench);
    }
    assert_eq!(users(&bench), Vec::<String>::new());
    assert_eq!(verified(bench.killed().path()), bench.hash());
}

/// The batch after which the log begins. Each batch is one event here.
fn log_start(bench: &Bench) -> u64 {
    assert_eq!(verified(bench.killed().path()), bench.hash());
    bench.engine.folder().log.first().unwrap() - 1
}

#[test]
fn the_log_is_kept_as_far_as_recovery_needs_it() {
    let bench = Bench::with_items(Env::real(), &quiet());
    let mut snapshots = Vec::new();
    for _ in 0..5 {
        bench.serve("u", 3);
        // The part that the journal has not read is kept as well.
        bench.export();
        snapshots.push(bench.snapshot());
        let older = snapshots.len().checked_sub(2);
        let expected = older.map_or(0, |older| snapshots[older]);
        assert_eq!(log_start(&bench), expected);
    }
    assert_eq!(files(&bench.folder.path().join("snapshots")).len(), 2);
}

#[test]
fn the_log_can_be_kept_by_size() {
    for (bytes, expected) in [(1 << 40, 0), (1, 12)] {
        let keep = Settings {
            keep_log: KeepLog::Bytes(bytes),
            ..quiet()
        };
        let bench = Bench::with_items(Env::real(), &keep);
        for _ in 0..4 {
            bench.serve("u", 3);
            bench.export();
            bench.snapshot();
        }
        assert_eq!(log_start(&bench), expected, "{bytes}");
        // A compaction drops it all the same.
        bench.compact();
        assert_eq!(log_start(&bench), bench.engine.state().events());
    }
}

#[test]
fn the_log_can_be_kept_for_days() {
    let keep = Settings {
        keep_log: KeepLog::Days(3),
        lifetime: 100 * 24 * 3600,
        ..quiet()
    };
    let (clock, env) = Moved::new(Env::real());
    let bench = Bench::with_items(env, &keep);
    let mut ends = vec![0];
    for day in 0..8_usize {
        bench.serve("u", 3);
        bench.export();
        ends.push(bench.snapshot());
        let kept = log_start(&bench);
        // The whole of the last three days can be applied again, and not much more.
        assert!(
            kept <= ends[day.saturating_sub(3)],
            "day {day}: {kept} of {ends:?}"
        );
        assert!(
            kept >= ends[day.saturating_sub(4)],
            "day {day}: {kept} of {ends:?}"
        );
        clock.pass(DAY);
    }
    assert!(log_start(&bench) > 0);
}

#[test]
fn a_folder_takes_other_settings_until_its_first_event() {
    let others = Settings {
        context: vec!["hour".to_owned()],
        ..of("lints")
    };
    let folder = Bench::with(Env::real(), &of("linucb-one")).close();
    let bench = Bench::at(folder, Env::real(), &others);
    let made = bench.engine.state().identity().clone();
    assert_eq!(made.policy.name, "lints");
    assert_eq!(made.context.declarations(), ["hour"]);
    // The same settings, and settings that are not given, are those of the folder.
    let bench = Bench::at(bench.close(), Env::real(), &Settings::default());
    assert_eq!(*bench.engine.state().identity(), made);
    bench.put("a", [1.0, 0.0, 0.0]).unwrap();
    let folder = bench.close();
    for asked in [of("linucb-one"), of("sclub-soft")] {
        let refused = Engine::open(Env::real(), folder.path(), &asked).unwrap_err();
        let text = refused.to_string();
        assert!(text.contains("the folder was made with lints"), "{text}");
    }
}

/// The settings of a folder do not change any more then: its decisions are sealed with its key.
#[test]
fn a_folder_with_a_decision_keeps_its_settings() {
    let settings = Settings {
        journal_days: 0,
        ..of("linucb-one")
    };
    let items = ItemSet::from_rows(DIM, &[1.0, 0.0, 0.0]).unwrap();
    let bench = Bench::with(Env::real(), &settings);
    let asked = RecommendQuery {
        user: "u",
        among: CandidateSet::Inline(vec!["a"], &items),
        rules: Rules::default(),
        k: 1,
        context: None,
    };
    let shown = bench.engine.recommend(&asked, &mut Scratch::default());
    let decision = shown.unwrap().decision;
    for folder in [bench.killed(), bench.close()] {
        let refused = Engine::open(Env::real(), folder.path(), &of("lints"));
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("the folder was made with"), "{text}");
        let again = Bench::at(folder, Env::real(), &settings);
        assert_eq!(again.feedback(&decision, 1.0), Ok(true));
    }
}
