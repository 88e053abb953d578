//! Fits over partitions, for every policy that makes them: answers are functions of the state, bad bytes are
//! refused, and partitions together decide as one policy does where that is exact.

use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sclub::{
    BackgroundFit, Forget, ForgettableLinUcb, Gathering, Groups, Inspect, ItemSet, LinUcbShared,
    Params, PartitionedFit, Partitions, Policy, Preset, Progress, Sequential, Setup, Spec, Values,
    Workers, load_policy, registry,
};

const DIM: usize = 3;

type Random = Xoshiro256PlusPlus;

fn setup() -> Setup<'static> {
    Setup {
        fits_inline: false,
        ..Setup::new(DIM)
    }
}

/// The policies that make fits over partitions, with their default constants.
fn gathered() -> Vec<(&'static Spec, Values)> {
    let all = registry().into_iter();
    let all = all.filter(|spec| spec.can.partitions == Partitions::Gathered);
    all.map(|spec| (spec, spec.values(Preset::Default, &[], &setup()).unwrap()))
        .collect()
}

fn item(random: &mut Random) -> [f64; DIM] {
    std::array::from_fn(|_| random.random_range(-1.0..1.0))
}

/// User u likes feature u mod 3.
fn live(partitions: &mut [Box<dyn Policy>], random: &mut Random, rounds: usize) {
    for _ in 0..rounds {
        let user = random.random_range(0..40u64);
        let item = item(random);
        let reward = item[user as usize % DIM] + random.random_range(-0.1..0.1);
        let place = (user / DIM as u64) as usize % partitions.len();
        partitions[place].learn(user, &item, reward).unwrap();
    }
}

fn partitioned(policy: &dyn Policy) -> &dyn PartitionedFit {
    policy.as_partitioned_fit().expect("its spec says so")
}

fn begin(
    (spec, values): &(&'static Spec, Values),
    partitions: &[Box<dyn Policy>],
) -> Option<Box<dyn Gathering>> {
    let progress: Vec<_> = partitions
        .iter()
        .map(|policy| Some(partitioned(&**policy).progress()))
        .collect();
    (spec.gather.unwrap())(&setup(), values, &progress).unwrap()
}

fn answers(
    question: &[u8],
    partitions: &[Box<dyn Policy>],
    workers: &dyn Workers,
) -> Vec<Option<Vec<u8>>> {
    let all = partitions.iter();
    let all = all.map(|policy| partitioned(&**policy).answer(question, workers));
    all.map(|answer| Some(answer.unwrap())).collect()
}

/// A fit that all partitions take; false if none is due.
fn fit(made: &(&'static Spec, Values), partitions: &mut [Box<dyn Policy>]) -> bool {
    let Some(mut gathering) = begin(made, partitions) else {
        return false;
    };
    while let Some(question) = gathering.question() {
        let answers = answers(&question, partitions, &Sequential);
        gathering.take(&answers, &Sequential).unwrap();
    }
    for (place, policy) in partitions.iter_mut().enumerate() {
        let policy = policy.as_fit_mut().unwrap();
        policy.take_fit(&gathering.fit(place)).unwrap();
    }
    true
}

fn made(values: &Values, partitions: usize) -> Vec<Box<dyn Policy>> {
    (0..partitions)
        .map(|_| values.make(&setup()).unwrap())
        .collect()
}

/// Does the last piece first.
struct Backwards;

impl Workers for Backwards {
    fn each(&self, pieces: usize, work: &(dyn Fn(usize) + Sync)) {
        (0..pieces).rev().for_each(work);
    }
}

fn reloaded(policy: &dyn Policy) -> Box<dyn Policy> {
    let mut bytes = Vec::new();
    policy.as_persist().unwrap().save_to(&mut bytes).unwrap();
    load_policy(&mut bytes.as_slice()).unwrap()
}

/// Bytes with one fault: cut, a changed byte, noise, or a changed number under a right checksum.
fn spoiled(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    const NASTY: [u64; 12] = [
        0,
        1,
        2,
        u64::MAX,
        u64::MAX / 2,
        u32::MAX as u64,
        f64::NAN.to_bits(),
        f64::INFINITY.to_bits(),
        f64::MAX.to_bits(),
        (-1e300f64).to_bits(),
        1e-300f64.to_bits(),
        1e20f64.to_bits(),
    ];
    let mut bytes = bytes.to_vec();
    match random.random_range(0..5) {
        0 => bytes.truncate(random.random_range(0..bytes.len())),
        1 => {
            let at = random.random_range(0..bytes.len());
            bytes[at] ^= 1 << random.random_range(0..8);
        }
        2 => {
            bytes = (0..random.random_range(0..200))
                .map(|_| random.random())
                .collect()
        }
        _ => {
            let all: Vec<u64> = bytes
                .as_chunks::<8>()
                .0
                .iter()
                .map(|word| u64::from_le_bytes(*word))
                .collect();
            let mut words = all[3..all.len() - 1].to_vec();
            if !words.is_empty() {
                let at = random.random_range(0..words.len());
                words[at] = match random.random_range(0..3) {
                    0 => random.random(),
                    _ => NASTY[random.random_range(0..NASTY.len())],
                };
            }
            bytes.clear();
            sclub::bytes::seal(all[0], &words, &mut bytes).unwrap();
        }
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whenever and in whatever order it is asked, a partition answers the same and stays as it is.
    #[test]
    fn an_answer_is_a_function_of_the_state(seed: u64, count in 1usize..6) {
        for made_of in gathered() {
            let mut random = Random::seed_from_u64(seed);
            let mut partitions = made(&made_of.1, count);
            for _ in 0..3 {
                live(&mut partitions, &mut random, 60);
                let digests: Vec<u64> = partitions.iter().map(|p| p.digest()).collect();
                let Some(mut gathering) = begin(&made_of, &partitions) else { continue };
                while let Some(question) = gathering.question() {
                    let first = answers(&question, &partitions, &Sequential);
                    partitions.reverse();
                    let mut later = answers(&question, &partitions, &Backwards);
                    later.reverse();
                    partitions.reverse();
                    prop_assert_eq!(&first, &later);
                    let loaded: Vec<_> = partitions.iter().map(|p| reloaded(&**p)).collect();
                    prop_assert_eq!(&first, &answers(&question, &loaded, &Sequential));
                    gathering.take(&first, &Backwards).unwrap();
                }
                prop_assert_eq!(&digests, &partitions.iter().map(|p| p.digest()).collect::<Vec<_>>());
                fit(&made_of, &mut partitions);
                for policy in &partitions {
                    let loaded = reloaded(&**policy);
                    prop_assert_eq!(loaded.digest(), policy.digest());
                    let (a, b) = (partitioned(&**policy).progress(), partitioned(&*loaded).progress());
                    prop_assert_eq!(Progress::from_bytes(&a.to_bytes()).unwrap(), b);
                }
            }
        }
    }

    /// Bad bytes are an error or harmless, and after an error everything is as before.
    #[test]
    fn bad_bytes_are_refused(seed: u64, count in 1usize..4) {
        for made_of in gathered() {
            let mut random = Random::seed_from_u64(seed);
            let mut partitions = made(&made_of.1, count);
            live(&mut partitions, &mut random, 80);
            fit(&made_of, &mut partitions);
            live(&mut partitions, &mut random, 80);
            let progress = partitioned(&*partitions[0]).progress().to_bytes();
            for _ in 0..20 {
                let _ = Progress::from_bytes(&spoiled(&progress, &mut random));
            }
            let mut gathering = begin(&made_of, &partitions).expect("rounds have doubled");
            while let Some(question) = gathering.question() {
                for _ in 0..20 {
                    let bad = spoiled(&question, &mut random);
                    let _ = partitioned(&*partitions[0]).answer(&bad, &Sequential);
                }
                let good = answers(&question, &partitions, &Sequential);
                for _ in 0..20 {
                    let mut all = good.clone();
                    let at = random.random_range(0..count);
                    all[at] = Some(spoiled(all[at].as_ref().unwrap(), &mut random));
                    let mut other = begin(&made_of, &partitions).unwrap();
                    if other.take(&all, &Sequential).is_err() {
                        prop_assert_eq!(other.question(), Some(question.clone()));
                        other.take(&good, &Sequential).unwrap();
                    }
                    if other.question().is_none() {
                        let bytes = other.fit(0);
                        let mut policy = reloaded(&*partitions[0]);
                        if policy.as_fit_mut().unwrap().take_fit(&bytes).is_ok() {
                            live(std::slice::from_mut(&mut policy), &mut random, 5);
                            let items = ItemSet::from_rows(DIM, &item(&mut random)).unwrap();
                            policy.recommend(1, &items).unwrap();
                        }
                    }
                }
                gathering.take(&good, &Sequential).unwrap();
            }
            let bytes = gathering.fit(0);
            for _ in 0..20 {
                let bad = spoiled(&bytes, &mut random);
                let mut policy = reloaded(&*partitions[0]);
                let before = policy.digest();
                if policy.as_fit_mut().unwrap().take_fit(&bad).is_err() {
                    prop_assert_eq!(policy.digest(), before);
                }
            }
        }
    }

    /// LinUCB has one sum: right after a fit, each partition decides as one policy with all users would, and after
    /// that with the others' sums of the fit.
    #[test]
    fn linucb_over_partitions_decides_as_one(seed: u64, count in 1usize..6) {
        let mut random = Random::seed_from_u64(seed);
        let spec = find("linucb-one");
        let values = spec.values(Preset::Default, &[], &setup()).unwrap();
        let mut partitions = made(&values, count);
        let mut one = ForgettableLinUcb::new(DIM, Groups::One, &Params::tuned()).unwrap();
        let both = (spec, values);
        for _ in 0..4 {
            for _ in 0..60 {
                let user = random.random_range(0..40u64);
                let item = item(&mut random);
                let reward = item[0] - item[1] + random.random_range(-0.1..0.1);
                partitions[user as usize % count].learn(user, &item, reward).unwrap();
                one.learn(user, &item, reward).unwrap();
            }
            let gone = random.random_range(0..40u64);
            let place = gone as usize % count;
            prop_assert_eq!(partitions[place].as_forget().unwrap().forget(gone), one.forget(gone));
            prop_assert!(fit(&both, &mut partitions));
            prop_assert!(begin(&both, &partitions).is_none());
            let items: Vec<f64> = (0..9).flat_map(|_| item(&mut random)).collect();
            let items = ItemSet::from_rows(DIM, &items).unwrap();
            let (mut expected, mut scores) = (Vec::new(), Vec::new());
            one.explain(1, &items, &mut expected).unwrap();
            for policy in &partitions {
                policy.explain(1, &items, &mut scores).unwrap();
                for (a, b) in scores.iter().zip(&expected) {
                    prop_assert!((a.score - b.score).abs() < 1e-9, "{:?} {:?}", a, b);
                }
                prop_assert_eq!(policy.as_inspect().unwrap().cluster_users(1), one.users());
                let mut counts = Vec::new();
                policy.as_inspect().unwrap().each_cluster(&mut |view| counts.push(view.count));
                let mut all = Vec::new();
                one.each_cluster(&mut |view| all.push(view.count));
                prop_assert_eq!(counts, all);
            }
        }
        // A user who is forgotten after the fit leaves at once from where they were, and makes a fit due.
        let at = (0..count).find(|&p| partitions[p].as_inspect().unwrap().users() > 1);
        if let Some(at) = at {
            let user = (0..40).find(|&u| partitions[at].as_inspect().unwrap().count(u).is_some());
            let user = user.unwrap();
            one.forget(user);
            partitions[at].as_forget().unwrap().forget(user);
            let (a, b) = (partitions[at].estimate(1).unwrap(), one.estimate(1).unwrap());
            prop_assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-9));
            prop_assert!(partitioned(&*partitions[at]).progress().must_refit);
            prop_assert!(fit(&both, &mut partitions));
            let (a, b) = (partitions[0].estimate(1).unwrap(), one.estimate(1).unwrap());
            prop_assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-9));
        }
    }
}

fn find(name: &str) -> &'static Spec {
    sclub::find_policy(name).unwrap()
}

#[test]
fn without_a_ledger_linucb_takes_the_same_fits() {
    let values = find("linucb-one")
        .values(Preset::Default, &[], &setup())
        .unwrap();
    let both = (find("linucb-one"), values);
    let mut random = Random::seed_from_u64(3);
    let mut with = made(&both.1, 2);
    let without = || LinUcbShared::new(DIM, Groups::One, &Params::tuned()).unwrap();
    let mut without: Vec<Box<dyn Policy>> = vec![Box::new(without()), Box::new(without())];
    for _ in 0..3 {
        let mut same = random.clone();
        live(&mut with, &mut random, 50);
        live(&mut without, &mut same, 50);
        assert!(fit(&both, &mut with) && fit(&both, &mut without));
        for (a, b) in with.iter().zip(&without) {
            assert_eq!(a.estimate(0), b.estimate(0));
            assert_eq!(reloaded(&**b).digest(), b.digest());
        }
    }
}

#[test]
fn a_left_out_partition_still_has_its_own_sums() {
    let values = find("linucb-one")
        .values(Preset::Default, &[], &setup())
        .unwrap();
    let both = (find("linucb-one"), values);
    let mut random = Random::seed_from_u64(4);
    let mut partitions = made(&both.1, 3);
    live(&mut partitions, &mut random, 90);
    let mut gathering = begin(&both, &partitions).unwrap();
    assert!(gathering.take(&[None, None, None], &Sequential).is_err());
    let mut all = answers(&gathering.question().unwrap(), &partitions, &Sequential);
    all[1] = None;
    gathering.take(&all, &Sequential).unwrap();
    let mut policy = ForgettableLinUcb::load_from(&mut saved(&*partitions[1]).as_slice()).unwrap();
    policy.take_fit(&gathering.fit(1)).unwrap();
    let total: u64 = partitions.iter().map(|p| p.rounds()).sum();
    let mut count = 0;
    policy.each_cluster(&mut |view| count = view.count);
    assert_eq!(count, total);
    policy.forget(3);
    assert!(!policy.progress().must_refit);
}

fn saved(policy: &dyn Policy) -> Vec<u8> {
    let mut bytes = Vec::new();
    policy.as_persist().unwrap().save_to(&mut bytes).unwrap();
    bytes
}

#[test]
fn policies_say_whether_their_users_can_be_split() {
    for (partitions, names) in [
        (Partitions::One, ["sclub", "club", "ts:linucb-one"]),
        (Partitions::Any, ["linucb-ind", "lints", "ts:linucb-ind"]),
        (
            Partitions::Gathered,
            ["sclub-soft", "gaussian", "linucb-one"],
        ),
    ] {
        for name in names {
            assert_eq!(find(name).can.partitions, partitions, "{name}");
        }
    }
}
