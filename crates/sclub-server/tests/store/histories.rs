//! Random histories of a log, compared with a list.

use proptest::prelude::*;
use sclub_server::env::Env;
use sclub_server::store::{AppendError, Segments};

use crate::common::disk::Faults;
use crate::common::{copy_of, new_folder};
use crate::segments::{batches, open};

#[derive(Debug, Clone)]
enum Step {
    Append(Vec<u8>),
    /// Make the next syncs fail, before or after everything is durable.
    Fail(u32, bool),
    Roll,
    DropBefore(u8),
    Rewrite(u8),
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    let batch = prop::collection::vec(any::<u8>(), 1..60);
    prop_oneof![
        10 => batch.prop_map(Step::Append),
        2 => (1..4_u32, any::<bool>()).prop_map(|(count, late)| Step::Fail(count, late)),
        2 => Just(Step::Roll),
        1 => any::<u8>().prop_map(Step::DropBefore),
        1 => any::<u8>().prop_map(Step::Rewrite),
        2 => Just(Step::Crash),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Appended batches are in the log, failed ones are not, and numbers have no gaps.
    #[test]
    fn a_log_is_a_list(
        limit in prop::sample::select(vec![1, 150, 1 << 20]),
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let mut folder = new_folder();
        let (mut faults, env) = Faults::new(Env::real());
        let mut log = Segments::open(&env, &folder.path().join("log"), limit).unwrap();
        let mut list: Vec<Vec<u8>> = Vec::new();
        // The batch of the last append, while its outcome is unknown.
        let mut open_end: Option<Vec<u8>> = None;
        for step in steps {
            let last = list.len() as u64;
            let is_to_be_read = !matches!(step, Step::Append(_) | Step::Fail(..));
            match step {
                Step::Append(batch) => match log.append(last, &batch) {
                    Ok(()) => {
                        list.push(batch);
                        open_end = None;
                    }
                    Err(AppendError::Unknown(_)) => open_end = Some(batch),
                    Err(AppendError::NotWritten(_)) => {}
                    Err(error) => return Err(TestCaseError::fail(error.to_string())),
                },
                Step::Fail(count, false) => faults.fail_syncs("log", count),
                Step::Fail(count, true) => faults.fail_after_syncs("log", count),
                Step::Roll => {
                    if log.append(last, &[]).is_ok() {
                        open_end = None;
                    }
                }
                Step::DropBefore(number) => {
                    let number = u64::from(number).min(last + 1);
                    let before = log.first().unwrap();
                    log.drop_before(number).unwrap();
                    prop_assert!(log.first().unwrap() <= number.max(before));
                }
                Step::Rewrite(byte) => {
                    faults.fail_syncs("log", 0);
                    faults.fail_after_syncs("log", 0);
                    let first = log.first().unwrap() as usize;
                    log.rewrite(&mut |batch| Ok((batch[0] == byte).then(|| vec![byte; 3])))
                        .unwrap();
                    for batch in list.iter_mut().skip(first - 1) {
                        if batch[0] == byte {
                            *batch = vec![byte; 3];
                        }
                    }
                    open_end = None;
                }
                Step::Crash => {
                    folder = copy_of(folder.path());
                    let (switches, env) = Faults::new(Env::real());
                    faults = switches;
                    log = Segments::open(&env, &folder.path().join("log"), limit).unwrap();
                    // The batch of an append with an unknown outcome may have become durable.
                    if log.last() > last {
                        list.extend(open_end.take());
                    }
                    open_end = None;
                }
            }
            prop_assert_eq!(log.last(), list.len() as u64);
            if !is_to_be_read {
                continue;
            }
            let first = log.first().unwrap();
            let kept = batches(&log, first - 1);
            let kept = kept.into_iter().filter(|(number, _)| *number <= list.len() as u64);
            let expected = (first..).zip(list.iter().skip(first as usize - 1).cloned());
            prop_assert!(kept.eq(expected));
        }
        log.check().unwrap();
        let left = copy_of(folder.path());
        let again = open(&left.path().join("log"), limit);
        let first = again.first().unwrap();
        let kept = batches(&again, first - 1).into_iter();
        let expected = list.into_iter().chain(open_end).skip(first as usize - 1);
        // The last batch may be in the log although its append failed.
        let is_same = kept.zip((first..).zip(expected)).all(|(kept, expected)| kept == expected);
        prop_assert!(is_same && again.last() >= log.last());
    }
}
