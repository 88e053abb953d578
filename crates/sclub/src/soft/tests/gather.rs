//! Fits over partitions of the users against fits of one policy with all users.

use super::super::SclubSoft;
use super::super::fit::{Fit, MAX_SEARCHED_USERS};
use super::super::gather::load_fit;
use super::super::params::SoftParams;
use super::fits::Crowd;
use super::*;
use crate::abilities::{BackgroundFit, Forget, Inspect, PartitionedFit};
use crate::error::Error;
use crate::policy::Policy;
use crate::refit::{Gathering, Progress, Sequential, Workers};
use crate::spec::{Preset, Setup, Value};

fn policy(dim: usize) -> SclubSoft {
    let params = SoftParams {
        inline: false,
        ..SoftParams::default()
    };
    SclubSoft::new(dim, &params).unwrap()
}

fn progress(partitions: &[SclubSoft]) -> Vec<Option<Progress>> {
    partitions.iter().map(|p| Some(p.progress())).collect()
}

fn begin(dim: usize, progress: &[Option<Progress>]) -> Option<Box<dyn Gathering>> {
    let setup = Setup::new(dim);
    let spec = &super::super::SPEC;
    let given: [(&str, Value); 0] = [];
    let values = spec.values(Preset::Default, &given, &setup).unwrap();
    (spec.gather.unwrap())(&setup, &values, progress).unwrap()
}

/// Asks the partitions that are `up` until the fit is complete. Returns the number of questions.
fn ask(
    gathering: &mut dyn Gathering,
    partitions: &[SclubSoft],
    up: impl Fn(usize, usize) -> bool,
    workers: &dyn Workers,
) -> usize {
    let mut questions = 0;
    while let Some(question) = gathering.question() {
        let answers: Vec<Option<Vec<u8>>> = partitions
            .iter()
            .enumerate()
            .map(|(place, p)| up(questions, place).then(|| p.answer(&question, workers).unwrap()))
            .collect();
        gathering.take(&answers, workers).unwrap();
        questions += 1;
    }
    questions
}

/// A fit over all partitions, which all of them take.
fn fit_all(partitions: &mut [SclubSoft]) -> Vec<Fit> {
    let dim = partitions[0].dim();
    let mut gathering = begin(dim, &progress(partitions)).expect("a fit is due");
    ask(&mut *gathering, partitions, |_, _| true, &Sequential);
    let mut fits = Vec::new();
    for (place, policy) in partitions.iter_mut().enumerate() {
        let bytes = gathering.fit(place);
        policy.take_fit(&bytes).unwrap();
        fits.extend(load_fit(&bytes, dim).unwrap());
    }
    fits
}

/// The partitions of the users, and one policy with all of them. All users say something in turn.
fn split(world: &World, count: usize, from: usize, to: usize) -> (Vec<SclubSoft>, SclubSoft) {
    let mut partitions = vec![policy(world.dim); count];
    let mut one = policy(world.dim);
    learn(world, &mut partitions, &mut one, from, to);
    (partitions, one)
}

fn learn(world: &World, partitions: &mut [SclubSoft], one: &mut SclubSoft, from: usize, to: usize) {
    for at in from..to {
        for (user, said) in world.said.iter().enumerate() {
            let Some((item, reward)) = said.get(at) else {
                continue;
            };
            let place = user % partitions.len();
            partitions[place].learn(user as u64, item, *reward).unwrap();
            one.learn(user as u64, item, *reward).unwrap();
        }
    }
}

/// 60 users at six centres.
fn small_world(seed: u64) -> World {
    let centres = separated(seed, 6, 4);
    World::new(seed, clustered_tastes(&centres, 60), 1.0, 0.05, |_| 40)
}

/// Two fits are the same up to rounding: background and noise up to `tolerance`, centres up to `centres`.
fn assert_same(fit: &Fit, one: &Fit, tolerance: f64, centres: f64) {
    assert!(close(fit.noise, one.noise, tolerance));
    let (a, b) = (&fit.background, &one.background);
    assert!(all_close(&a.mean, &b.mean, tolerance), "{a:?} {b:?}");
    assert!(all_close(&a.covariance, &b.covariance, tolerance));
    assert!(all_close(&fit.information, &one.information, tolerance));
    assert_eq!(fit.mixture.centres.len(), one.mixture.centres.len());
    for centre in &fit.mixture.centres {
        let mut all = one.mixture.centres.iter();
        assert!(
            all.any(|other| all_close(&centre.mean, &other.mean, centres)
                && close(centre.share, other.share, centres)),
            "{centre:?} {:?}",
            one.mixture
        );
    }
    let counts = |fit: &Fit| (fit.rounds, fit.users, fit.observations, fit.number);
    assert_eq!(counts(fit), counts(one));
}

#[test]
fn partitions_of_few_users_have_the_fit_of_one_policy() {
    for seed in 1..4 {
        let world = small_world(seed);
        let (mut partitions, mut one) = split(&world, 7, 0, 15);
        // Users in the order of their partitions. Searches draw users by their places, so in another order EM
        // starts from other users, and its few steps end a little apart.
        let mut sorted = policy(world.dim);
        let learn_sorted = |sorted: &mut SclubSoft, from: usize, to: usize| {
            for place in 0..7 {
                for at in from..to {
                    for user in (place..world.said.len()).step_by(7) {
                        let (item, reward) = &world.said[user][at];
                        sorted.learn(user as u64, item, *reward).unwrap();
                    }
                }
            }
        };
        learn_sorted(&mut sorted, 0, 15);
        for (from, to) in [(15, 25), (25, 40), (40, 40)] {
            let fits = fit_all(&mut partitions);
            let (own, other) = (sorted.job().run(&Sequential), one.job().run(&Sequential));
            for fit in &fits {
                assert_same(fit, &own, 1e-9, 1e-9);
                assert_same(fit, &other, 1e-9, 1e-3);
            }
            for (fit, policy) in fits.iter().zip(&partitions) {
                assert_eq!(fit.elsewhere.rounds, one.rounds() - policy.rounds());
                assert_eq!(fit.elsewhere.users, one.users() - policy.users());
            }
            // Both go on from the same fit.
            one.install(own.clone());
            sorted.install(own);
            learn(&world, &mut partitions, &mut one, from, to);
            learn_sorted(&mut sorted, from, to);
        }
    }
}

#[test]
fn one_partition_has_the_bits_of_its_own_fit() {
    let world = small_world(9);
    let (mut partitions, mut one) = split(&world, 1, 0, 10);
    for end in [10, 20, 30] {
        let own = one.refit().expect("it is due").compute(&Crowd);
        let mut gathering = begin(world.dim, &progress(&partitions)).expect("it is due");
        let questions = ask(&mut *gathering, &partitions, |_, _| true, &Sequential);
        assert_eq!(questions, 1);
        assert_eq!(gathering.fit(0), own);
        one.take_fit(&own).unwrap();
        partitions[0].take_fit(&own).unwrap();
        assert!(begin(world.dim, &progress(&partitions)).is_none());
        learn(&world, &mut partitions, &mut one, end, end + 10);
        one.forget(end as u64);
        partitions[0].forget(end as u64);
    }
    assert_eq!(one.digest(), partitions[0].digest());
}

/// More users than a search looks at, at three centres.
fn large_world() -> World {
    let centres = separated(4, 3, 2);
    let users = MAX_SEARCHED_USERS + 1000;
    World::new(4, clustered_tastes(&centres, users), 1.0, 0.05, |user| {
        6 + user % 3
    })
}

fn large_partitions(world: &World, count: usize) -> Vec<SclubSoft> {
    let mut partitions = vec![policy(world.dim); count];
    for (user, said) in world.said.iter().enumerate() {
        let policy = &mut partitions[user % count];
        // In one round, because there is no fit yet: each round would sum over all users.
        let round: Vec<crate::Observation<'_>> = said
            .iter()
            .map(|(item, reward)| crate::Observation::new(user as u64, item, *reward))
            .collect();
        policy.rounds += 1;
        for observation in &round {
            policy.observe(observation);
        }
    }
    partitions
}

#[test]
fn many_users_are_refined_by_three_more_questions() {
    let world = large_world();
    let one = &large_partitions(&world, 1)[..];
    let own = one[0].job().run(&Sequential);
    let mut gathering = begin(2, &progress(one)).expect("it is due");
    assert_eq!(ask(&mut *gathering, one, |_, _| true, &Crowd), 4);
    assert_eq!(gathering.fit(0), own.to_bytes());

    let parts = &large_partitions(&world, 5)[..];
    let mut gathering = begin(2, &progress(parts)).expect("it is due");
    assert_eq!(ask(&mut *gathering, parts, |_, _| true, &Sequential), 4);
    let fit = load_fit(&gathering.fit(0), 2).unwrap().unwrap();
    // The sample is another one, so the background and the noise differ a little.
    assert_eq!(fit.mixture.centres.len(), 3);
    assert!(close(fit.noise, own.noise, 0.02));
    for centre in &fit.mixture.centres {
        let mut others = own.mixture.centres.iter();
        assert!(others.any(|other| all_close(&centre.mean, &other.mean, 1e-3)));
    }
    let users: f64 = fit.sizes.iter().map(|(users, _)| users).sum();
    assert!(users > 0.99 * world.said.len() as f64, "{users}");

    // One partition is gone before the second question, and all of them before the third.
    let mut gathering = begin(2, &progress(parts)).expect("it is due");
    let up = |question, place| question < 1 || (question < 2 && place != 3);
    assert_eq!(ask(&mut *gathering, parts, up, &Sequential), 3);
    let fit = load_fit(&gathering.fit(3), 2).unwrap().unwrap();
    assert_eq!(fit.mixture.centres.len(), 3);
    assert_eq!(fit.forgotten, 0);
}

#[test]
fn a_partition_that_does_not_answer_is_left_out() {
    let world = small_world(5);
    let (mut partitions, _) = split(&world, 4, 0, 15);
    let mut states = progress(&partitions);
    states[2] = None;
    let mut gathering = begin(world.dim, &states).expect("it is due");
    assert!(matches!(
        gathering.take(&[None, None, None, None], &Sequential),
        Err(Error::Unsupported { .. })
    ));
    assert!(matches!(
        gathering.take(&[None], &Sequential),
        Err(Error::WrongCount { .. })
    ));
    ask(
        &mut *gathering,
        &partitions,
        |_, place| place != 2,
        &Sequential,
    );
    let mut rest = partitions.clone();
    rest.remove(2);
    let mut expected = begin(world.dim, &progress(&rest)).expect("it is due");
    ask(&mut *expected, &rest, |_, _| true, &Sequential);
    assert_eq!(gathering.fit(3), expected.fit(2));

    // It takes the fit too. It has no users in it, so forgetting one does not concern the fit.
    partitions[2].take_fit(&gathering.fit(2)).unwrap();
    assert!(partitions[2].clusters() > 0);
    assert!(partitions[2].forget(2));
    assert!(!partitions[2].progress().must_refit);
    let fit = load_fit(&gathering.fit(2), world.dim).unwrap().unwrap();
    assert_eq!(fit.elsewhere.users, 45);
    // With it there are more rounds than the fit has, so that the next fit is due.
    for place in [0, 1, 3] {
        partitions[place].take_fit(&gathering.fit(place)).unwrap();
    }
    assert!(begin(world.dim, &progress(&partitions)).is_some());
    states[0] = Some(partitions[0].progress());
    assert!(begin(world.dim, &states).is_none());
}

#[test]
fn trust_counts_the_gain_of_all_partitions() {
    let world = small_world(6);
    let (mut partitions, mut one) = split(&world, 3, 0, 15);
    for (policy, gain) in partitions.iter_mut().zip([8.0, 40.0, -2.0]) {
        policy.gain = gain;
    }
    one.gain = 46.0;
    fit_all(&mut partitions);
    one.install(one.job().run(&Sequential));
    for policy in &partitions {
        assert!(close(policy.trust(), one.trust(), 1e-12));
        assert!(close(policy.outlook().unwrap().gain, 23.0, 1e-12));
    }
    // A fit that took no part of it counts as before.
    assert_eq!(one.whole_gain(), 23.0);
    assert_eq!(partitions[1].gain, 20.0);
}

#[test]
fn a_forgotten_user_makes_a_fit_due_and_is_in_none_after_it() {
    let world = small_world(7);
    let (mut partitions, _) = split(&world, 3, 0, 15);
    fit_all(&mut partitions);
    assert!(begin(world.dim, &progress(&partitions)).is_none());
    assert!(partitions[1].forget(4));
    let fits = fit_all(&mut partitions);
    assert!(begin(world.dim, &progress(&partitions)).is_none());
    assert_eq!(fits[1].forgotten, 1);
    assert_eq!(fits[0].users, 59);

    // A partition without users keeps the fit of the others.
    for user in (2..60).step_by(3) {
        assert!(partitions[2].forget(user));
    }
    assert_eq!(partitions[2].clusters(), 6);
    assert!(partitions[2].progress().must_refit);
    assert_eq!(fit_all(&mut partitions)[2].users, 39);

    // Without any users there is no fit.
    for user in 0..60 {
        partitions[user as usize % 3].forget(user);
    }
    assert!(fit_all(&mut partitions).is_empty());
    for policy in &partitions {
        assert!(policy.served.is_none() && policy.history.is_empty());
        assert_eq!(policy.progress().fit, 0);
    }
    assert!(begin(world.dim, &progress(&partitions)).is_none());
}

#[test]
fn a_partition_makes_no_fit_of_its_own_once_it_has_one_of_all() {
    let world = small_world(8);
    let (mut partitions, mut one) = split(&world, 2, 0, 15);
    fit_all(&mut partitions);
    learn(&world, &mut partitions, &mut one, 15, 40);
    partitions[0].forget(0);
    assert!(partitions[0].refit().is_none());
    assert!(begin(world.dim, &progress(&partitions)).is_some());
}
