//! A log in the files of a folder.

use std::fs;
use std::path::{Path, PathBuf};

use sclub_server::env::Env;
use sclub_server::store::{AppendError, Segments, StoreError};

use crate::common::disk::Faults;
use crate::common::{copy_of, files, files_containing, flip, new_folder};

/// A length with which all batches are in one file.
pub const LARGE: u64 = 1 << 30;

pub fn open(dir: &Path, limit: u64) -> Segments {
    Segments::open(&Env::real(), dir, limit).unwrap()
}

/// The batches of a log after a number.
pub fn batches(log: &Segments, after: u64) -> Vec<(u64, Vec<u8>)> {
    let batches: Result<Vec<_>, _> = log.read(after).unwrap().collect();
    batches.unwrap()
}

fn texts(log: &Segments) -> Vec<String> {
    let text = |(_, bytes)| String::from_utf8(bytes).unwrap();
    let first = log.first().unwrap();
    batches(log, first - 1).into_iter().map(text).collect()
}

/// A log with the batches `1` to `count`.
fn counted(dir: &Path, limit: u64, count: u64) -> Segments {
    let log = open(dir, limit);
    for number in 1..=count {
        log.append(number - 1, number.to_string().as_bytes())
            .unwrap();
    }
    log
}

fn file_of(error: &StoreError) -> PathBuf {
    match error {
        StoreError::Damaged { file, .. } => file.clone(),
        other => panic!("{other}"),
    }
}

#[test]
fn batches_are_read_in_order_with_their_numbers() {
    let dir = new_folder();
    let log = open(dir.path(), LARGE);
    assert_eq!((log.last(), log.first().unwrap()), (0, 1));
    assert!(batches(&log, 0).is_empty());
    let given: Vec<Vec<u8>> = [1, 7, 8, 9, 5_000, 3_000_000]
        .into_iter()
        .map(|length| (0..length).map(|i: u32| (i ^ (i >> 8)) as u8).collect())
        .collect();
    for (last, batch) in (0..).zip(&given) {
        log.append(last, batch).unwrap();
        assert_eq!(log.last(), last + 1);
    }
    let expected: Vec<_> = (1..).zip(given).collect();
    assert!(batches(&log, 0) == expected);
    assert!(batches(&log, 4) == expected[4..]);
    assert!(batches(&log, 6).is_empty());
    log.check().unwrap();
    drop(log);
    let log = open(dir.path(), LARGE);
    assert_eq!(log.last(), 6);
    assert!(batches(&log, 0) == expected);
}

#[test]
fn an_append_that_expects_another_last_batch_is_a_conflict() {
    let dir = new_folder();
    let log = counted(dir.path(), LARGE, 2);
    for expected in [0, 1, 3, u64::MAX] {
        for batch in [&b"no"[..], b""] {
            let error = log.append(expected, batch).unwrap_err();
            assert!(
                matches!(error, AppendError::Conflict { last: 2 }),
                "{error}"
            );
        }
    }
    assert_eq!(texts(&log), ["1", "2"]);
    log.append(2, b"3").unwrap();
    assert_eq!(texts(&log), ["1", "2", "3"]);
}

#[test]
fn a_batch_that_is_too_long_is_refused_and_leaves_the_log_as_it_was() {
    let dir = new_folder();
    let log = counted(dir.path(), LARGE, 1);
    let long = vec![0; (1 << 28) + 1];
    let error = log.append(1, &long).unwrap_err();
    assert!(matches!(error, AppendError::NotWritten(_)), "{error}");
    log.append(1, b"2").unwrap();
    assert_eq!(texts(&log), ["1", "2"]);
}

#[test]
fn many_small_files_are_one_log() {
    let dir = new_folder();
    let log = counted(dir.path(), 1, 50);
    assert_eq!(files(dir.path()).len(), 50);
    let expected: Vec<String> = (1..=50).map(|number| number.to_string()).collect();
    assert_eq!(texts(&log), expected);
    assert_eq!(batches(&log, 31)[0].0, 32);
    assert_eq!(log.check().unwrap().0, 50);
    let left = copy_of(dir.path());
    let again = open(left.path(), 1);
    assert_eq!((again.last(), texts(&again)), (50, expected));
}

#[test]
fn an_empty_append_begins_a_new_file() {
    let dir = new_folder();
    let log = counted(dir.path(), LARGE, 3);
    log.drop_before(4).unwrap();
    assert_eq!(
        texts(&log),
        ["1", "2", "3"],
        "they share the file that is written to"
    );
    log.append(3, b"").unwrap();
    assert_eq!(log.last(), 3);
    let count = files(dir.path()).len();
    // A second one changes nothing.
    log.append(3, b"").unwrap();
    assert_eq!(files(dir.path()).len(), count);
    log.append(3, b"4").unwrap();
    log.drop_before(3).unwrap();
    assert_eq!(log.first().unwrap(), 1, "batch 3 is still wanted");
    let reading = log.read(0).unwrap();
    log.drop_before(4).unwrap();
    assert_eq!(
        (log.first().unwrap(), texts(&log)),
        (4, vec!["4".to_owned()])
    );
    // A reader that has begun goes on.
    assert_eq!(reading.map(Result::unwrap).count(), 4);
    let Err(error) = log.read(2) else {
        panic!("batch 3 is not there")
    };
    assert!(
        error.to_string().starts_with("batch 3 is no longer in"),
        "{error}"
    );
    // Dropping more than there is keeps the numbers going.
    log.append(4, b"").unwrap();
    log.drop_before(u64::MAX).unwrap();
    assert_eq!((log.last(), log.first().unwrap()), (4, 5));
    drop(log);
    let log = open(dir.path(), LARGE);
    assert_eq!(log.last(), 4);
    log.append(4, b"5").unwrap();
    assert_eq!(texts(&log), ["5"]);
}

/// The batch that was being written when the machine stopped is dropped; all batches before it are there.
#[test]
fn an_unfinished_last_batch_is_dropped() {
    let dir = new_folder();
    let log = counted(dir.path(), LARGE, 4);
    drop(log);
    let file = files(dir.path()).pop().unwrap();
    let whole = fs::read(&file).unwrap();
    let used = 1 + whole.iter().rposition(|byte| *byte != 0).unwrap();
    let last_frame = used - 1 - 32;
    for cut in last_frame..used {
        for zeros in [false, true] {
            let mut torn = whole[..cut].to_vec();
            if zeros {
                torn.resize(whole.len(), 0);
            }
            let copy = new_folder();
            fs::write(copy.path().join(file.file_name().unwrap()), &torn).unwrap();
            let log = open(copy.path(), LARGE);
            assert_eq!(
                (log.last(), texts(&log)),
                (3, vec!["1".into(), "2".into(), "3".into()])
            );
            // The log continues after it, and the dropped batch does not reappear.
            log.append(3, b"four").unwrap();
            log.append(4, b"five").unwrap();
            let left = copy_of(copy.path());
            let again = open(left.path(), LARGE);
            assert_eq!(texts(&again), ["1", "2", "3", "four", "five"]);
            again.check().unwrap();
        }
    }
}

/// A flipped bit in the last frame looks like an unfinished frame: the frame is dropped. In any other frame it
/// is damage, and the error has the file.
#[test]
fn a_flipped_bit_is_damage_unless_it_is_in_the_last_frame() {
    let dir = new_folder();
    drop(counted(dir.path(), LARGE, 4));
    let file = files(dir.path()).pop().unwrap();
    let whole = fs::read(&file).unwrap();
    let used = 1 + whole.iter().rposition(|byte| *byte != 0).unwrap();
    let frame = 40;
    assert_eq!(
        used,
        64 + 3 * frame + 33,
        "the layout is as in the documentation"
    );
    for at in 0..used {
        flip(&file, at, at);
        let opened = Segments::open(&Env::real(), dir.path(), LARGE);
        let in_frame = at.checked_sub(64).map(|at| (at / frame, at % frame));
        match in_frame {
            Some((_, 33..)) => assert_eq!(texts(&opened.unwrap()), ["1", "2", "3", "4"]),
            Some((3, _)) => assert_eq!(texts(&opened.unwrap()), ["1", "2", "3"]),
            _ => assert_eq!(file_of(&opened.unwrap_err()), file, "{at}"),
        }
        fs::write(&file, &whole).unwrap();
    }
    // If another file follows, a flipped bit in the last frame is damage too.
    open(dir.path(), LARGE).append(4, b"").unwrap();
    for at in 0..used {
        flip(&file, at, at);
        let is_padding = at >= 64 && (at - 64) % frame >= 33;
        let log = Segments::open(&Env::real(), dir.path(), LARGE);
        let checked = log.and_then(|log| log.check());
        match checked {
            Ok(_) => assert!(is_padding, "{at}"),
            Err(error) => assert_eq!(file_of(&error), file, "{at}"),
        }
        fs::write(&file, &whole).unwrap();
    }
}

#[test]
fn a_missing_file_is_noticed() {
    let dir = new_folder();
    drop(counted(dir.path(), 1, 4));
    for missing in files(dir.path()).into_iter().take(3).skip(1) {
        let copy = copy_of(dir.path());
        fs::remove_file(copy.path().join(missing.file_name().unwrap())).unwrap();
        let error = open(copy.path(), 1).check().unwrap_err();
        assert!(error.to_string().contains("damaged or missing"), "{error}");
    }
}

/// A failed append never reappears, whatever part of it is on the disk.
#[test]
fn a_failed_append_is_void() {
    let (faults, env) = Faults::new(Env::real());
    for late in [false, true] {
        for failures in 1..4 {
            let dir = new_folder();
            let dir = dir.path().join("log");
            let log = Segments::open(&env, &dir, LARGE).unwrap();
            log.append(0, b"1").unwrap();
            match late {
                true => faults.fail_after_syncs("log", failures),
                false => faults.fail_syncs("log", failures),
            }
            let error = log.append(1, b"void").unwrap_err();
            assert!(matches!(error, AppendError::Unknown(_)), "{error}");
            // Before the log continues in a new file, the batch may be there or not.
            let left = copy_of(&dir);
            assert!(open(left.path(), LARGE).last() >= 1);
            assert_eq!(log.last(), 1);
            // The next ones fail because no file can be made.
            for _ in 1..failures {
                let error = log.append(1, b"void").unwrap_err();
                assert!(matches!(error, AppendError::NotWritten(_)), "{error}");
            }
            log.append(1, b"2").unwrap();
            log.append(2, b"3").unwrap();
            let left = copy_of(&dir);
            for log in [&log, &open(left.path(), LARGE)] {
                assert_eq!(texts(log), ["1", "2", "3"]);
                log.check().unwrap();
            }
        }
    }
}

/// The same if nothing is appended after it, but a new file is begun.
#[test]
fn an_empty_append_makes_a_failed_one_void() {
    let (faults, env) = Faults::new(Env::real());
    let dir = new_folder();
    let dir = dir.path().join("log");
    let log = Segments::open(&env, &dir, LARGE).unwrap();
    log.append(0, b"1").unwrap();
    faults.fail_after_syncs("log", 1);
    log.append(1, b"void").unwrap_err();
    let left = copy_of(&dir);
    let before = open(left.path(), LARGE);
    assert_eq!(
        texts(&before),
        ["1", "void"],
        "every byte had reached the disk"
    );
    log.append(1, b"").unwrap();
    let left = copy_of(&dir);
    let after = open(left.path(), LARGE);
    assert_eq!((after.last(), texts(&after)), (1, vec!["1".to_owned()]));
}

#[test]
fn a_full_disk_is_not_damage() {
    let (faults, env) = Faults::new(Env::real());
    let dir = new_folder();
    let log = Segments::open(&env, dir.path(), 1).unwrap();
    log.append(0, b"1").unwrap();
    faults.set_full(true);
    for batch in [&b"no"[..], b""] {
        let error = log.append(1, batch).unwrap_err();
        assert!(matches!(error, AppendError::NotWritten(_)), "{error}");
    }
    assert_eq!(texts(&log), ["1"]);
    faults.set_full(false);
    log.append(1, b"2").unwrap();
    let left = copy_of(dir.path());
    assert_eq!(texts(&open(left.path(), 1)), ["1", "2"]);
}

#[test]
fn a_rewrite_leaves_no_byte_of_a_replaced_batch() {
    const SECRET: &[u8] = b"the-secret-of-someone";
    for limit in [1, 2_000, LARGE] {
        let (faults, env) = Faults::new(Env::real());
        let dir = new_folder();
        let dir = dir.path().join("log");
        let log = Segments::open(&env, &dir, limit).unwrap();
        for number in 1..=40_u64 {
            let mut batch = format!("batch {number} ").into_bytes();
            if number % 3 == 0 {
                batch.extend_from_slice(SECRET);
            }
            log.append(number - 1, &batch).unwrap();
        }
        // The secret is also in the remains of a failed append, in a file without other copies of it.
        log.append(40, b"").unwrap();
        log.append(40, b"batch 41 ").unwrap();
        faults.fail_after_syncs("log", 1);
        log.append(41, SECRET).unwrap_err();
        assert!(files_containing(&dir, SECRET) > 0);
        let mut seen = 0;
        log.rewrite(&mut |batch| {
            seen += 1;
            let has_it = batch.ends_with(SECRET);
            Ok(has_it.then(|| batch[..batch.len() - SECRET.len()].to_vec()))
        })
        .unwrap();
        assert_eq!((seen, files_containing(&dir, SECRET)), (41, 0));
        let expected: Vec<String> = (1..=41).map(|number| format!("batch {number} ")).collect();
        assert_eq!(texts(&log), expected);
        log.append(41, b"more").unwrap();
        let left = copy_of(&dir);
        let again = open(left.path(), limit);
        again.check().unwrap();
        assert_eq!(texts(&again)[..41], expected);
        assert_eq!(again.last(), 42);
    }
}

/// As if the machine had stopped in the middle: each batch has its old or its new bytes.
#[test]
fn an_interrupted_rewrite_can_be_repeated() {
    let dir = new_folder();
    let log = counted(dir.path(), 100, 30);
    let mut left = Vec::new();
    let mut change = |batch: &[u8]| Ok(batch[0].is_multiple_of(2).then(|| b"changed".to_vec()));
    log.rewrite(&mut |batch| {
        left.push(copy_of(dir.path()));
        change(batch)
    })
    .unwrap();
    let expected = texts(&log);
    for copy in left {
        let log = open(copy.path(), 100);
        log.check().unwrap();
        for (number, (now, after)) in (1..=30_u64).zip(texts(&log).iter().zip(&expected)) {
            assert!(now == after || *now == number.to_string(), "{now}");
        }
        log.rewrite(&mut change).unwrap();
        assert_eq!(texts(&log), expected);
    }
    // After a rewrite that failed, every batch can be read.
    let stopped = log.rewrite(&mut |_| Err(StoreError::Refused("enough".into())));
    assert_eq!(stopped.unwrap_err().to_string(), "enough");
    assert_eq!(texts(&log), expected);
    log.append(30, b"31").unwrap();
}

#[test]
fn a_log_can_be_filled_from_any_number() {
    for limit in [1, LARGE] {
        let dir = new_folder();
        let log = open(dir.path(), limit);
        log.fill(6, b"7").unwrap();
        log.fill(7, b"8").unwrap();
        let error = log.fill(9, b"10").unwrap_err();
        assert!(error.to_string().contains("does not follow"), "{error}");
        log.finish(8).unwrap();
        assert_eq!((log.first().unwrap(), log.last()), (7, 8));
        drop(log);
        let log = open(dir.path(), limit);
        assert_eq!(texts(&log), ["7", "8"]);
        log.append(8, b"9").unwrap();
        assert_eq!(texts(&log), ["7", "8", "9"]);
    }
    let dir = new_folder();
    open(dir.path(), LARGE).finish(12).unwrap();
    let log = open(dir.path(), LARGE);
    assert_eq!((log.first().unwrap(), log.last()), (13, 12));
}

/// Serial numbers are not reused, even that of an unfinished file.
#[test]
fn unfinished_files_are_removed() {
    let dir = new_folder();
    drop(counted(dir.path(), LARGE, 1));
    fs::write(dir.path().join("000000000007.tmp"), b"half a header").unwrap();
    fs::write(dir.path().join("notes.txt"), b"of another program").unwrap();
    let log = open(dir.path(), LARGE);
    log.append(1, b"2").unwrap();
    let names: Vec<_> = files(dir.path());
    let names: Vec<_> = names
        .iter()
        .map(|f| f.file_name().unwrap().to_str().unwrap())
        .collect();
    assert_eq!(names, ["000000000000.log", "000000000008.log", "notes.txt"]);
    assert_eq!(texts(&log), ["1", "2"]);
}
