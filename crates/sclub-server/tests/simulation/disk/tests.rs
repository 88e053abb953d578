//! The simulated disk keeps what it must keep, and sometimes loses what it may lose.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use sclub_server::env::{Access, Clock, Disk, DiskFile};

use super::*;

fn disk(seed: u64) -> (SimDisk, SimDisk) {
    let disk = SimDisk::new(seed, SimClock::default());
    let process = disk.process();
    process.make_dir(Path::new("/d")).unwrap();
    process.sync_dir(Path::new("/")).unwrap();
    (disk, process)
}

fn path(name: &str) -> PathBuf {
    Path::new("/d").join(name)
}

/// Writes a file; it has a durable name.
fn durable(process: &SimDisk, name: &str, bytes: &[u8]) -> Arc<dyn DiskFile> {
    let file = process.open(&path(name), Access::Create).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    file.sync().unwrap();
    process.sync_dir(Path::new("/d")).unwrap();
    file
}

fn read(process: &SimDisk, name: &str) -> Vec<u8> {
    let file = process.open(&path(name), Access::Read).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    let count = file.read_full_at(&mut bytes, 0).unwrap();
    assert_eq!(count, bytes.len());
    bytes
}

fn kind<T>(result: io::Result<T>) -> io::ErrorKind {
    result.err().expect("an error").kind()
}

#[test]
fn synced_files_with_synced_names_survive_any_power_loss() {
    for seed in 0..50 {
        let (disk, process) = disk(seed);
        let file = durable(&process, "a", b"kept");
        file.write_all_at(b"kept more", 0).unwrap();
        file.sync().unwrap();
        file.write_all_at(b"!", 100).unwrap();
        disk.crash();
        assert_eq!(read(&disk.process(), "a")[..9], *b"kept more");
    }
}

#[test]
fn reads_see_everything_written_and_an_open_file_survives_its_name() {
    let (disk, process) = disk(1);
    let old = durable(&process, "a", b"old");
    old.write_all_at(b"OLD", 0).unwrap();
    let new = process.open(&path("b"), Access::Create).unwrap();
    new.write_all_at(b"new", 0).unwrap();
    process.rename(&path("b"), &path("a")).unwrap();
    assert_eq!(read(&process, "a"), b"new");
    process.remove(&path("a")).unwrap();
    let names = process.names(Path::new("/d")).unwrap();
    assert!(names.is_empty());
    process.sync_dir(Path::new("/d")).unwrap();
    let mut bytes = [0; 3];
    assert_eq!(old.read_full_at(&mut bytes, 0).unwrap(), 3);
    assert_eq!(&bytes, b"OLD");
    assert_eq!(new.read_full_at(&mut bytes, 1).unwrap(), 2);
    assert_eq!(new.read_at(&mut bytes, 17).unwrap(), 0);
    assert!(disk.files(Path::new("/"), View::Visible).is_empty());
}

#[test]
fn an_unsynced_name_is_sometimes_lost_and_names_are_lost_from_the_last() {
    let mut seen = BTreeSet::new();
    for seed in 0..200 {
        let (disk, process) = disk(seed);
        for name in ["a", "b", "c"] {
            let file = process.open(&path(name), Access::Create).unwrap();
            file.write_all_at(b"x", 0).unwrap();
            file.sync().unwrap();
        }
        process.rename(&path("a"), &path("d")).unwrap();
        disk.crash();
        seen.insert(disk.process().names(Path::new("/d")).unwrap().join(""));
    }
    let expected = ["", "a", "ab", "abc", "bcd"].map(str::to_owned);
    assert_eq!(seen, BTreeSet::from(expected));
}

#[test]
fn a_folder_whose_name_is_lost_takes_everything_with_it() {
    let mut lost = 0;
    for seed in 0..100 {
        let disk = SimDisk::new(seed, SimClock::default());
        let process = disk.process();
        process.make_dir(Path::new("/e/f")).unwrap();
        let file = Path::new("/e/f/g");
        process.open(file, Access::Create).unwrap().sync().unwrap();
        process.sync_dir(Path::new("/e/f")).unwrap();
        process.sync_dir(Path::new("/e")).unwrap();
        disk.crash();
        lost += u64::from(disk.process().len(file).is_err());
    }
    assert!((20..80).contains(&lost), "{lost}");
}

#[test]
fn a_file_that_moves_between_folders_is_never_in_both_or_in_none() {
    let mut moved = 0;
    for seed in 0..200 {
        let (disk, process) = disk(seed);
        process.make_dir(Path::new("/e")).unwrap();
        process.sync_dir(Path::new("/")).unwrap();
        durable(&process, "a", b"x");
        durable(&process, "z", b"y");
        process.remove(&path("z")).unwrap();
        process.rename(&path("a"), Path::new("/e/a")).unwrap();
        process.open(Path::new("/e/b"), Access::Create).unwrap();
        disk.crash();
        let process = disk.process();
        let before = process.names(Path::new("/d")).unwrap();
        let after = process.names(Path::new("/e")).unwrap();
        match (before.join("").as_str(), after.join("").as_str()) {
            ("az" | "a", "") => {}
            ("", "a" | "ab") => moved += 1,
            other => panic!("seed {seed}: {other:?}"),
        }
    }
    assert!((20..180).contains(&moved), "{moved}");
}

#[test]
fn an_unsynced_write_is_kept_torn_at_sectors_or_lost() {
    let (mut kept, mut torn, mut lost, mut zeros) = (0, 0, 0, 0);
    for seed in 0..300 {
        let (disk, process) = disk(seed);
        let file = durable(&process, "a", &[1; 100]);
        file.write_all_at(&[2; 2000], 50).unwrap();
        disk.crash();
        let bytes = read(&disk.process(), "a");
        assert_eq!(bytes[..50], [1; 50]);
        // Each sector is whole: of the write, or as it was before.
        let before = |place: usize| u8::from(place < 100);
        for start in (0..bytes.len()).step_by(512) {
            let places = start.max(50)..(start + 512).min(bytes.len());
            let is_new = places.clone().all(|place| bytes[place] == 2);
            let is_old = places.clone().all(|place| bytes[place] == before(place));
            assert!(is_new || is_old, "seed {seed}, sector at {start}");
        }
        let written = bytes.iter().filter(|&&byte| byte == 2).count();
        kept += u64::from(written == 2000);
        lost += u64::from(written == 0);
        torn += u64::from(written > 0 && written < 2000);
        zeros += u64::from(bytes.ends_with(&[0]));
    }
    for (count, what) in [
        (kept, "kept"),
        (torn, "torn"),
        (lost, "lost"),
        (zeros, "0s"),
    ] {
        assert!(count >= 10, "{count} {what}");
    }
}

#[test]
fn after_a_failed_sync_a_later_one_succeeds_without_writing() {
    let (mut lost, mut durable_after_all) = (0, 0);
    for seed in 0..100 {
        let (disk, process) = disk(seed);
        let file = durable(&process, "a", b"one");
        file.write_all_at(b"two", 3).unwrap();
        disk.set_faults(Faults {
            failed_sync: 1.0,
            ..Faults::default()
        });
        assert!(file.sync().is_err());
        disk.set_faults(Faults::default());
        file.write_all_at(b"three", 6).unwrap();
        file.sync().unwrap();
        assert_eq!(read(&process, "a"), b"onetwothree");
        process.kill();
        // A new process still reads it, and a sync of its own helps nothing.
        let process = disk.process();
        assert_eq!(read(&process, "a"), b"onetwothree");
        let file = process.open(&path("a"), Access::Write).unwrap();
        file.sync().unwrap();
        disk.crash();
        match read(&disk.process(), "a").as_slice() {
            b"onetwothree" => durable_after_all += 1,
            b"one\0\0\0three" => lost += 1,
            other => panic!("seed {seed}: {other:?}"),
        }
    }
    assert!(lost >= 10 && durable_after_all >= 10);
}

#[test]
fn a_killed_process_leaves_its_writes_and_loses_its_handles_and_locks() {
    let (disk, process) = disk(1);
    let file = process.open(&path("a"), Access::Create).unwrap();
    file.write_all_at(b"written", 0).unwrap();
    let guard = process.lock(&path("lock")).unwrap();
    let second = disk.process();
    assert_eq!(kind(second.lock(&path("lock"))), io::ErrorKind::WouldBlock);
    process.kill();
    assert!(file.write_all_at(b"late", 0).is_err());
    assert!(file.sync().is_err() && file.len().is_err());
    assert!(process.names(Path::new("/d")).is_err());
    assert_eq!(read(&second, "a"), b"written");
    let _held = second.lock(&path("lock")).unwrap();
    // The dead process's guard frees nothing of the other's.
    drop(guard);
    assert!(disk.process().lock(&path("lock")).is_err());
}

#[test]
fn a_lock_is_free_once_its_guard_is_gone() {
    let (disk, process) = disk(1);
    drop(process.lock(&path("lock")).unwrap());
    assert!(disk.process().lock(&path("lock")).is_ok());
}

#[test]
fn a_full_disk_takes_what_fits_and_overwrites_what_is_there() {
    let (disk, process) = disk(1);
    let file = durable(&process, "a", &[1; 1000]);
    disk.set_capacity(disk.used() + 10);
    assert_eq!(file.write_at(&[2; 50], 990).unwrap(), 20);
    assert_eq!(file.write_at(&[3; 1000], 0).unwrap(), 1000);
    let error = file.write_at(&[4; 1], 1010).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert!(file.allocate(1011).is_err());
    assert!(process.open(&path("b"), Access::Create).is_err());
    process.remove(&path("a")).unwrap();
    // Still open, so its bytes are still there.
    let other = process.open(&path("b"), Access::Create).unwrap();
    assert!(other.write_at(&[5; 1000], 0).is_err());
    drop(file);
    assert_eq!(other.write_at(&[5; 1000], 0).unwrap(), 1000);
    disk.set_capacity(u64::MAX);
    let file = process.open(&path("c"), Access::Create).unwrap();
    file.allocate(1 << 20).unwrap();
    assert_eq!(process.len(&path("c")).unwrap(), 1 << 20);
}

#[test]
fn faults_come_as_often_as_asked_for_and_not_when_switched_off() {
    let clock = SimClock::default();
    let disk = SimDisk::new(3, clock.clone());
    let process = disk.process();
    process.make_dir(Path::new("/d")).unwrap();
    let file = process.open(&path("a"), Access::Create).unwrap();
    disk.set_faults(Faults {
        eio: 0.1,
        enospc: 0.1,
        short: 0.3,
        slow: 0.1,
        max_delay: 100,
        ..Faults::default()
    });
    let (mut failed, mut full, mut short, mut interrupted) = (0, 0, 0, 0);
    for round in 0..500_u64 {
        match file.write_at(&[7; 64], round * 64) {
            Ok(64) => {}
            Ok(_) => short += 1,
            Err(error) => match error.kind() {
                io::ErrorKind::StorageFull => full += 1,
                io::ErrorKind::Interrupted => interrupted += 1,
                _ => failed += 1,
            },
        }
    }
    for count in [failed, full, short, interrupted] {
        assert!(
            (15..200).contains(&count),
            "{failed} {full} {short} {interrupted}"
        );
    }
    assert!((1_000..6_000).contains(&clock.monotonic()), "{clock:?}");
    disk.set_faults(Faults::default());
    let before = clock.monotonic();
    for round in 0..500 {
        assert_eq!(file.write_at(&[7; 64], round * 64).unwrap(), 64);
        file.sync().unwrap();
    }
    assert_eq!(clock.monotonic(), before);
}

#[test]
fn everything_stops_at_the_call_asked_for_which_happened_or_not_or_in_part() {
    let mut seen = BTreeSet::new();
    for seed in 0..60 {
        let (disk, process) = disk(seed);
        let file = durable(&process, "a", b"");
        disk.stop_at(Some(disk.calls() + 2));
        file.write_all_at(b"first", 0).unwrap();
        assert!(!disk.is_down());
        assert!(file.write_at(b"second", 5).is_err());
        assert!(disk.is_down());
        assert!(file.sync().is_err());
        assert!(process.open(&path("b"), Access::Create).is_err());
        assert!(disk.process().names(Path::new("/d")).is_err());
        process.kill();
        let process = disk.process();
        assert_eq!(process.names(Path::new("/d")).unwrap(), ["a"]);
        seen.insert(read(&process, "a").len());
    }
    assert!(seen.contains(&5) && seen.contains(&11));
    assert!(seen.iter().any(|&length| length > 5 && length < 11));
}

#[test]
fn a_folder_is_removed_with_all_that_is_in_it() {
    let (disk, process) = disk(1);
    process.make_dir(Path::new("/d/e/f")).unwrap();
    durable(&process, "e/f/a", b"x");
    durable(&process, "e/b", b"y");
    durable(&process, "c", b"z");
    assert_eq!(
        kind(process.rename(&path("c"), &path("e"))),
        io::ErrorKind::IsADirectory
    );
    process.remove_dir_all(&path("e")).unwrap();
    assert_eq!(process.names(Path::new("/d")).unwrap(), ["c"]);
    assert_eq!(kind(process.names(&path("e"))), io::ErrorKind::NotFound);
    process.sync_dir(Path::new("/d")).unwrap();
    disk.crash();
    assert_eq!(disk.process().names(Path::new("/d")).unwrap(), ["c"]);
}

#[test]
fn a_folder_that_is_renamed_keeps_its_files() {
    let (disk, process) = disk(1);
    process.make_dir(&path("new")).unwrap();
    durable(&process, "new/a", b"x");
    process.sync_dir(&path("new")).unwrap();
    process.rename(&path("new"), Path::new("/final")).unwrap();
    process.sync_dir(Path::new("/")).unwrap();
    disk.crash();
    let files = disk.files(Path::new("/final"), View::Visible);
    assert_eq!(files, [(PathBuf::from("/final/a"), b"x".to_vec())]);
    assert!(disk.process().names(&path("new")).is_err());
}

#[test]
fn visible_and_durable_files_can_be_listed() {
    let (disk, process) = disk(1);
    let file = durable(&process, "a", b"secret");
    file.write_all_at(b"public", 0).unwrap();
    process.rename(&path("a"), &path("b")).unwrap();
    let visible = disk.files(Path::new("/d"), View::Visible);
    assert_eq!(visible, [(path("b"), b"public".to_vec())]);
    let durable = disk.files(Path::new("/d"), View::Durable);
    assert_eq!(durable, [(path("a"), b"secret".to_vec())]);
    file.sync().unwrap();
    process.sync_dir(Path::new("/d")).unwrap();
    assert_eq!(disk.files(Path::new("/d"), View::Durable), visible);
    assert!(disk.files(Path::new("/e"), View::Visible).is_empty());
}

#[test]
fn missing_files_and_folders_are_not_found() {
    let (_, process) = disk(1);
    for access in [Access::Read, Access::Write] {
        assert_eq!(
            kind(process.open(&path("a"), access)),
            io::ErrorKind::NotFound
        );
    }
    assert_eq!(kind(process.remove(&path("a"))), io::ErrorKind::NotFound);
    assert_eq!(kind(process.len(&path("a"))), io::ErrorKind::NotFound);
    let missing = Path::new("/no/a");
    assert_eq!(
        kind(process.open(missing, Access::Create)),
        io::ErrorKind::NotFound
    );
    let file = durable(&process, "a", b"x");
    let reader = process.open(&path("a"), Access::Read).unwrap();
    assert!(reader.write_at(b"y", 0).is_err());
    assert!(!file.is_empty().unwrap());
}

#[test]
fn the_same_seed_loses_the_same() {
    let run = |seed| {
        let (disk, process) = disk(seed);
        disk.set_faults(Faults {
            eio: 0.05,
            enospc: 0.05,
            short: 0.2,
            failed_sync: 0.2,
            slow: 0.1,
            max_delay: 9,
            ..Faults::default()
        });
        for round in 0..40_u64 {
            let name = path(&format!("f{}", round % 7));
            if let Ok(file) = process.open(&name, Access::Create) {
                let _ = file.write_at(&[round as u8; 1500], round * 10);
                let _ = file.sync();
            }
            let _ = process.rename(&name, &path(&format!("g{}", round % 3)));
        }
        disk.crash();
        disk.files(Path::new("/"), View::Visible)
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}
