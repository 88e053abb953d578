//! How long what is kept.

use sclub_server::env::Env;
use sclub_server::settings::{KeepLog, Settings};

use crate::bench::{Bench, quiet, verified};
use crate::common::clock::{DAY, Moved};
use crate::common::{files, holding};

/// The users in an export.
fn users(bench: &Bench) -> Vec<String> {
    let lines = bench.export();
    let user = |line: &serde_json::Value| line["user"].as_str().unwrap().to_owned();
    lines.iter().map(user).collect()
}

#[test]
fn without_days_for_the_journal_there_is_none() {
    let without = Settings {
        journal_days: 0,
        ..quiet()
    };
    let bench = Bench::stocked(Env::real(), &quiet());
    bench.serve("philomena", 2);
    assert_eq!(users(&bench).len(), 2);
    let journal = |bench: &Bench| holding(&bench.folder.path().join("journal"), b"philomena");
    assert_eq!(journal(&bench), 1);
    // What there is goes when it is switched off.
    let bench = Bench::at(bench.left(), Env::real(), &without);
    assert_eq!((users(&bench).len(), journal(&bench)), (0, 0));
    bench.serve("philomena", 2);
    bench.decide("philomena");
    assert_eq!((users(&bench).len(), journal(&bench)), (0, 0));
    // And nothing of the log is kept for its sake.
    for _ in 0..3 {
        bench.serve("v", 1);
        bench.snapshot();
    }
    assert_eq!(holding(&bench.folder.path().join("log"), b"philomena"), 0);
    // Switched on again it begins anew.
    let bench = Bench::at(bench.left(), Env::real(), &quiet());
    bench.serve("w", 1);
    assert!(users(&bench).ends_with(&["w".to_owned()]));
    assert_eq!(journal(&bench), 0);
    assert_eq!(verified(bench.left().path()), bench.hash());
}

#[test]
fn the_journal_is_kept_for_so_many_days_of_service() {
    let brief = Settings {
        journal_days: 3,
        ..quiet()
    };
    let (clock, env) = Moved::new(Env::real());
    let bench = Bench::stocked(env, &brief);
    for day in 0..10_u64 {
        bench.serve(&format!("day-{day}"), 1);
        let users = users(&bench);
        // A file is dropped as a whole, once all of it is too old.
        for kept in day.saturating_sub(2)..=day {
            let name = format!("day-{kept}");
            assert!(users.contains(&name), "{name} on day {day}: {users:?}");
        }
        assert!(users.len() <= 6, "day {day}: {users:?}");
        clock.pass(DAY);
    }
    // The time of day has no say.
    let before = users(&bench).len();
    clock.jump(1000 * DAY as i64);
    bench.serve("u", 1);
    assert_eq!(users(&bench).len(), before + 1);
    assert_eq!(verified(bench.left().path()), bench.hash());
}

/// Also where nothing happens that would be written behind it.
#[test]
fn what_is_too_old_for_the_journal_goes_although_nothing_new_comes() {
    let brief = Settings {
        journal_days: 3,
        ..quiet()
    };
    let (clock, env) = Moved::new(Env::real());
    let bench = Bench::stocked(env, &brief);
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
    assert_eq!(verified(bench.left().path()), bench.hash());
}

/// The batch after which the log begins. Each is one event here.
fn reaches_back_to(bench: &Bench) -> u64 {
    assert_eq!(verified(bench.left().path()), bench.hash());
    bench.engine.folder().log.first().unwrap() - 1
}

#[test]
fn the_log_is_kept_as_far_as_recovery_needs_it() {
    let bench = Bench::stocked(Env::real(), &quiet());
    let mut snapshots = Vec::new();
    for _ in 0..5 {
        bench.serve("u", 3);
        // Whatever the journal has not read is kept as well.
        bench.export();
        snapshots.push(bench.snapshot());
        let older = snapshots.len().checked_sub(2);
        let expected = older.map_or(0, |older| snapshots[older]);
        assert_eq!(reaches_back_to(&bench), expected);
    }
    assert_eq!(files(&bench.folder.path().join("snapshots")).len(), 2);
}

#[test]
fn the_log_is_kept_by_size_where_that_is_asked_for() {
    for (bytes, expected) in [(1 << 40, 0), (1, 12)] {
        let keep = Settings {
            keep_log: KeepLog::Bytes(bytes),
            ..quiet()
        };
        let bench = Bench::stocked(Env::real(), &keep);
        for _ in 0..4 {
            bench.serve("u", 3);
            bench.export();
            bench.snapshot();
        }
        assert_eq!(reaches_back_to(&bench), expected, "{bytes}");
        // Compacting keeps nothing: that is what it is for.
        bench.compact();
        assert_eq!(reaches_back_to(&bench), bench.engine.state().events());
    }
}

#[test]
fn the_log_is_kept_for_days_where_that_is_asked_for() {
    let keep = Settings {
        keep_log: KeepLog::Days(3),
        lifetime: 100 * 24 * 3600,
        ..quiet()
    };
    let (clock, env) = Moved::new(Env::real());
    let bench = Bench::stocked(env, &keep);
    let mut ends = vec![0];
    for day in 0..8_usize {
        bench.serve("u", 3);
        bench.export();
        ends.push(bench.snapshot());
        let kept = reaches_back_to(&bench);
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
    assert!(reaches_back_to(&bench) > 0);
}
