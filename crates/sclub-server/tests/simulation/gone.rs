//! Bytes that were replaced or dropped are gone from the disk, also after an attempt that failed half way.

use std::path::Path;
use std::sync::Arc;

use sclub_server::env::Env;
use sclub_server::store::Segments;

use crate::clock::{SimClock, SimRandom};
use crate::disk::{Faults, SimDisk, View};
use crate::executor::Executor;

const DIR: &str = "/journal";
const SECRET: &[u8] = b"user-to-be-forgotten";

fn holds_secret(disk: &SimDisk, view: View) -> bool {
    let files = disk.files(Path::new(DIR), view);
    let mut windows = files
        .iter()
        .flat_map(|(_, bytes)| bytes.windows(SECRET.len()));
    windows.any(|window| window == SECRET)
}

/// Tries an operation on a failing disk, then on a healthy one. Returns the number of failures.
fn try_until_done(seed: u64, attempt: impl Fn(&Segments) -> bool) -> usize {
    let clock = SimClock::default();
    let disk = SimDisk::new(seed, clock.clone());
    let env = Env {
        disk: Arc::new(disk.process()),
        clock: Arc::new(clock.clone()),
        random: Arc::new(SimRandom::new(seed)),
        spawner: Executor::new(seed, clock).spawner(1),
    };
    env.disk.make_dir(Path::new(DIR)).unwrap();
    env.disk.sync_dir(Path::new("/")).unwrap();
    // Small files, so that there are many.
    let log = Segments::open(&env, Path::new(DIR), 300).unwrap();
    for number in 0..12 {
        log.append(number, &[b"before ", SECRET, b" behind"].concat())
            .unwrap();
    }
    assert!(holds_secret(&disk, View::Durable));
    let faults = Faults {
        eio: 0.1,
        ..Faults::default()
    };
    disk.set_faults(faults);
    let failed = (0..6).filter(|_| !attempt(&log)).count();
    disk.set_faults(Faults::default());
    assert!(attempt(&log), "seed {seed}: it fails on a healthy disk");
    for view in [View::Visible, View::Durable] {
        assert!(!holds_secret(&disk, view), "seed {seed}: {view:?}");
    }
    failed
}

#[test]
fn a_failed_rewrite_is_completed_by_the_next() {
    let rewrite = |log: &Segments| {
        let change = &mut |batch: &[u8]| {
            let holds = batch.windows(SECRET.len()).any(|window| window == SECRET);
            Ok(holds.then(|| b"nothing".to_vec()))
        };
        log.rewrite(change).is_ok()
    };
    let failed: usize = (0..300).map(|seed| try_until_done(seed, rewrite)).sum();
    assert!(failed > 300, "{failed}");
}

#[test]
fn a_failed_drop_is_completed_by_the_next() {
    let drop_all = |log: &Segments| {
        let last = log.last();
        log.append(last, &[]).is_ok() && log.drop_before(last + 1).is_ok()
    };
    let failed: usize = (0..300).map(|seed| try_until_done(seed, drop_all)).sum();
    assert!(failed > 300, "{failed}");
}
