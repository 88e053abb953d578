//! A saved state is restored to the bit, and a forgotten user leaves nothing behind.

use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sclub::{
    Change, Club, ClusterView, Error, Exploration, Forget, ForgettableLinUcb, Graph, Groups, Index,
    Inspect, ItemSet, LinUcbInd, LinUcbShared, LoadError, Observation, Params, Persist, Policy,
    Sclub, Users, load_policy,
};
use std::io::{self, Read};

/// The abilities that a service needs.
trait Kept: Inspect + Persist + Forget {}
impl<T: Inspect + Persist + Forget> Kept for T {}

/// Rounds of users with one of three tastes.
struct Life {
    rng: Xoshiro256PlusPlus,
    dim: usize,
    users: u64,
    many_a_round: bool,
}

impl Life {
    fn round(&mut self, policy: &mut (impl Policy + ?Sized)) {
        learn(policy, &self.observations());
    }

    fn observations(&mut self) -> Vec<(u64, Vec<f64>, f64)> {
        let count = if self.many_a_round {
            self.rng.random_range(0..5)
        } else {
            1
        };
        (0..count)
            .map(|_| {
                let draw: f64 = self.rng.random();
                let user = (draw * draw * self.users as f64) as u64;
                let item: Vec<f64> = (0..self.dim)
                    .map(|_| self.rng.random_range(-1.0..1.0))
                    .collect();
                let reward = item[user as usize % 3 % self.dim] + self.rng.random_range(-0.2..0.2);
                (user, item, reward)
            })
            .collect()
    }

    fn items(&mut self) -> ItemSet {
        let rows: Vec<f64> = (0..self.dim * 9)
            .map(|_| self.rng.random_range(-1.0..1.0))
            .collect();
        ItemSet::from_rows(self.dim, &rows).unwrap()
    }
}

fn learn(policy: &mut (impl Policy + ?Sized), observed: &[(u64, Vec<f64>, f64)]) -> Vec<Change> {
    let round: Vec<Observation<'_>> = observed
        .iter()
        .map(|(user, item, reward)| Observation::new(*user, item, *reward))
        .collect();
    let mut changes = Vec::new();
    policy.learn_round(&round, &mut changes).unwrap();
    changes
}

/// One of each kind that can be kept.
fn kinds(dim: usize, params: &Params) -> [Box<dyn Kept>; 3] {
    [
        Box::new(Sclub::new(dim, Users::Appear, params).unwrap()),
        Box::new(LinUcbInd::new(dim, params).unwrap()),
        Box::new(ForgettableLinUcb::new(dim, Groups::One, params).unwrap()),
    ]
}

fn saved(policy: &dyn Kept) -> Vec<u8> {
    let mut bytes = Vec::new();
    policy.save_to(&mut bytes).unwrap();
    bytes
}

fn saved_club(policy: &Club) -> Vec<u8> {
    let mut bytes = Vec::new();
    policy.save_to(&mut bytes).unwrap();
    bytes
}

fn close(a: &[f64], b: &[f64]) -> bool {
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .all(|(a, b)| (a - b).abs() < 1e-8 * (1.0 + b.abs()))
}

prop_compose! {
    fn life()(
        dim in 1usize..12, users in 1u64..40, declared: bool, many_a_round: bool, seed: u64,
        alpha in -2.0f64..1.0, alpha_p in -3.0f64..1.0, squared: bool, fixed: bool,
    ) -> (Life, Sclub) {
        let params = Params {
            alpha_theta: alpha.exp(),
            alpha_p: alpha_p.exp(),
            index: if squared { Index::SquaredNorm } else { Index::Norm },
            exploration: if fixed { Exploration::Fixed(0.3) } else { Exploration::Growing { scale: 0.2 } },
        };
        let who = if declared { Users::Declared(users) } else { Users::Appear };
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        (Life { rng, dim, users, many_a_round }, Sclub::new(dim, who, &params).unwrap())
    }
}

fn graph() -> impl Strategy<Value = Graph> {
    prop_oneof![
        Just(Graph::Complete),
        any::<u64>().prop_map(|seed| Graph::Random { seed })
    ]
}

impl std::fmt::Debug for Life {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Life of {} users in {} dimensions", self.users, self.dim)
    }
}

/// S^j = I + Σ(S_i − I), b^j = Σ b_i, T^j = Σ T_i, and every user is in exactly one cluster.
fn assert_sums(policy: &Sclub) -> Result<(), TestCaseError> {
    let d = policy.dim();
    let mut seen = 0;
    for (label, members) in policy.partition() {
        seen += members.len();
        let Some(&someone) = members.first() else {
            continue;
        };
        let mut gram = vec![0.0; d * d];
        let mut moment = vec![0.0; d];
        let mut count = 0;
        (0..d).for_each(|i| gram[i * d + i] = 1.0);
        for &user in &members {
            prop_assert_eq!(policy.cluster_of(user), Some(label));
            let own = policy.user_statistics(user).unwrap();
            for (at, value) in own.gram.iter().enumerate() {
                gram[at] += value - f64::from(u8::from(at % (d + 1) == 0));
            }
            moment
                .iter_mut()
                .zip(&own.moment)
                .for_each(|(a, b)| *a += b);
            count += own.count;
        }
        let cluster = policy.cluster_statistics(someone);
        prop_assert_eq!(cluster.count, count);
        for (a, b) in cluster
            .gram
            .iter()
            .chain(&cluster.moment)
            .zip(gram.iter().chain(&moment))
        {
            prop_assert!((a - b).abs() < 1e-8 * (1.0 + b.abs()), "{} {}", a, b);
        }
    }
    prop_assert_eq!(seen, policy.users().len());
    Ok(())
}

/// Checks that the views of users and clusters agree. `users` are all who may have appeared.
fn assert_views(policy: &dyn Kept, users: u64) -> Result<(), TestCaseError> {
    let appeared: Vec<u64> = (0..users)
        .filter(|&user| policy.count(user).is_some())
        .collect();
    prop_assert_eq!(policy.users(), appeared.len() as u64);
    let (mut labels, mut ones) = (Vec::new(), 0);
    let mut problem = None;
    policy.each_cluster(&mut |view: ClusterView<'_>| {
        labels.push(view.label);
        ones += u64::from(view.users == 1);
        let members = policy.members(view.label, usize::MAX).unwrap();
        let counts: u64 = members.iter().filter_map(|&user| policy.count(user)).sum();
        let agree = policy.cluster(view.label) == Some(view)
            && members.len() as u64 == view.users
            && counts == view.count
            && members.iter().all(|&user| {
                policy.cluster_of(user) == Some(view.label)
                    && policy.cluster_users(user) == view.users
                    && policy.estimate(user).unwrap() == view.estimate
            })
            && policy.members(view.label, 1).unwrap().len() == members.len().min(1);
        if !agree {
            problem = Some(view.label);
        }
    });
    prop_assert_eq!(problem, None);
    prop_assert_eq!(labels.len(), policy.clusters());
    prop_assert_eq!(ones, policy.singletons());
    labels.sort_unstable();
    labels.dedup();
    prop_assert_eq!(labels.len(), policy.clusters());
    for &user in &appeared {
        prop_assert!(labels.contains(&policy.cluster_of(user).unwrap()));
    }
    let unused = labels.last().map_or(1, |last| last + 1);
    prop_assert_eq!(policy.cluster(unused), None);
    prop_assert_eq!(policy.cluster(0), None);
    prop_assert_eq!(policy.members(unused, 3), None);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..Default::default() })]

    #[test]
    fn one_estimate_for_all_is_the_same_with_users_kept((mut life, _) in life(), rounds in 1usize..200) {
        let mut plain = LinUcbShared::new(life.dim, Groups::One, &Params::tuned()).unwrap();
        let mut keeping = ForgettableLinUcb::new(life.dim, Groups::One, &Params::tuned()).unwrap();
        for _ in 0..rounds {
            let (observed, items) = (life.observations(), life.items());
            learn(&mut plain, &observed);
            learn(&mut keeping, &observed);
            prop_assert_eq!(keeping.recommend(1, &items), plain.recommend(1, &items));
            prop_assert_eq!(keeping.estimate(1).unwrap(), plain.estimate(1).unwrap());
        }
        if keeping.users() > 0 {
            prop_assert_ne!(keeping.digest(), plain.digest());
        }
        prop_assert!(plain.as_forget().is_none() && plain.as_inspect().is_none());
    }

    #[test]
    fn known_groups_are_the_same_with_users_kept_who_can_be_forgotten((mut life, _) in life(), rounds in 1usize..200) {
        let groups = vec![0, 1, 0, 2, 1];
        let mut plain = LinUcbShared::new(life.dim, Groups::Known(groups.clone()), &Params::tuned()).unwrap();
        let mut keeping = ForgettableLinUcb::new(life.dim, Groups::Known(groups.clone()), &Params::tuned()).unwrap();
        let mut without = ForgettableLinUcb::new(life.dim, Groups::Known(groups), &Params::tuned()).unwrap();
        for _ in 0..rounds {
            let mut observed = life.observations();
            learn(&mut plain, &observed);
            learn(&mut keeping, &observed);
            observed.retain(|&(user, ..)| user != 0);
            learn(&mut without, &observed);
        }
        for user in 0..8 {
            prop_assert_eq!(keeping.estimate(user).unwrap(), plain.estimate(user).unwrap());
        }
        let twin = load_policy(&mut saved(&keeping).as_slice()).unwrap();
        prop_assert_eq!(twin.digest(), keeping.digest());
        assert_views(&keeping, life.users)?;
        let known = keeping.users() > without.users();
        prop_assert_eq!(keeping.forget(0), known);
        for user in 0..8 {
            prop_assert!(close(&keeping.estimate(user).unwrap(), &without.estimate(user).unwrap()));
            prop_assert_eq!(keeping.count(user), without.count(user));
        }
    }

    #[test]
    fn after_forgetting_it_is_as_if_only_the_others_had_been((mut life, _) in life(), rounds in 1usize..150, gone in prop::collection::vec(any::<prop::sample::Index>(), 1..6)) {
        let gone: Vec<u64> = gone.iter().map(|who| who.index(life.users as usize) as u64).collect();
        for (kind, mut policy) in kinds(life.dim, &Params::tuned()).into_iter().enumerate() {
            let mut others = kinds(life.dim, &Params::tuned()).into_iter().nth(kind).unwrap();
            for _ in 0..rounds {
                let mut observed = life.observations();
                learn(&mut *policy, &observed);
                observed.retain(|(user, ..)| !gone.contains(user));
                learn(&mut *others, &observed);
            }
            for &user in &gone {
                let known = policy.count(user).is_some();
                prop_assert_eq!(policy.forget(user), known);
                prop_assert_eq!(policy.count(user), None);
                prop_assert_eq!(policy.own_estimate(user), None);
            }
            assert_views(&*policy, life.users)?;
            prop_assert_eq!(policy.users(), others.users());
            for user in 0..life.users {
                prop_assert_eq!(policy.count(user), others.count(user));
                prop_assert_eq!(policy.own_estimate(user), others.own_estimate(user));
                // SCLUB's clusters may depend on the forgotten users; those of the others are fixed.
                if kind > 0 {
                    prop_assert!(close(&policy.estimate(user).unwrap(), &others.estimate(user).unwrap()));
                }
            }
            prop_assert_eq!(load_policy(&mut saved(&*policy).as_slice()).unwrap().digest(), policy.digest());
        }
    }

    #[test]
    fn what_is_saved_lives_on_to_the_bit((mut life, mut policy) in life(), before in 0usize..400, after in 1usize..200) {
        for _ in 0..before {
            life.round(&mut policy);
        }
        let mut twin = Sclub::load(&policy.save()).unwrap();
        prop_assert_eq!(twin.digest(), policy.digest());
        prop_assert_eq!(twin.partition(), policy.partition());
        let mut other = Life { rng: life.rng.clone(), ..life };
        for _ in 0..after {
            life.round(&mut policy);
            other.round(&mut twin);
            prop_assert_eq!(twin.digest(), policy.digest());
        }
        prop_assert_eq!(twin.save(), policy.save());
    }

    /// Some of the users are declared, the others come as newcomers.
    #[test]
    fn club_lives_on_to_the_bit((mut life, _) in life(), declared in 0u64..30, graph in graph(), alpha in -1.5f64..1.0, before in 0usize..300, after in 1usize..150) {
        let params = Params { alpha_theta: alpha.exp(), ..Params::tuned() };
        let users = if declared == 0 { Users::Appear } else { Users::Declared(declared) };
        let mut policy = Club::new(life.dim, users, graph, &params).unwrap();
        let mut appeared = std::collections::BTreeMap::new();
        for _ in 0..before {
            let observed = life.observations();
            learn(&mut policy, &observed);
            observed.iter().for_each(|(user, ..)| *appeared.entry(*user).or_insert(0u64) += 1);
        }
        prop_assert_eq!(policy.users(), appeared.len() as u64);
        for user in 0..life.users.max(declared) {
            prop_assert_eq!(policy.count(user), appeared.get(&user).copied());
            prop_assert_eq!(policy.own_estimate(user).is_some(), appeared.contains_key(&user));
        }
        let mut bytes = saved_club(&policy);
        let length = bytes.len();
        bytes.extend([7; 5]);
        let mut input = bytes.as_slice();
        let mut twin = Club::load_from(&mut input).unwrap();
        prop_assert_eq!(input, &[7; 5][..], "more was read than was written");
        prop_assert_eq!(twin.digest(), policy.digest());
        prop_assert_eq!(&saved_club(&twin), &bytes[..length]);
        // Some who come now have not been seen before the state was saved.
        life.users += 10;
        for _ in 0..after {
            let (observed, items) = (life.observations(), life.items());
            prop_assert_eq!(learn(&mut twin, &observed), learn(&mut policy, &observed));
            let user = life.rng.random_range(0..life.users);
            prop_assert_eq!(twin.recommend(user, &items), policy.recommend(user, &items));
            prop_assert_eq!(twin.own_estimate(user), policy.own_estimate(user));
            prop_assert_eq!(twin.neighbours(user), policy.neighbours(user));
            prop_assert_eq!(twin.clusters(), policy.clusters());
            prop_assert_eq!(twin.digest(), policy.digest());
        }
        prop_assert_eq!(saved_club(&twin), saved_club(&policy));
    }

    #[test]
    fn who_is_forgotten_is_gone_and_the_rest_goes_on((mut life, mut policy) in life(), steps in prop::collection::vec((1usize..40, any::<prop::sample::Index>()), 1..12)) {
        for (rounds, who) in steps {
            for _ in 0..rounds {
                life.round(&mut policy);
            }
            if policy.users().is_empty() {
                continue;
            }
            let gone = policy.users()[who.index(policy.users().len())];
            let before: Vec<_> = policy.users().iter().filter(|&&user| user != gone)
                .map(|&user| (user, policy.user_statistics(user))).collect();
            let theirs = policy.user_statistics(gone).unwrap();
            prop_assert!(policy.forget(gone));
            prop_assert!(!policy.forget(gone), "twice");
            prop_assert_eq!(policy.user_statistics(gone), None);
            for (user, statistics) in before {
                prop_assert_eq!(policy.user_statistics(user), statistics, "user {}", user);
            }
            assert_sums(&policy)?;
            // No number that was the user's alone is in the state any more.
            if theirs.count > 0 {
                let bytes = policy.save();
                for number in &theirs.moment {
                    let word = number.to_le_bytes();
                    prop_assert!(*number == 0.0 || !bytes.chunks(8).any(|chunk| chunk == word));
                }
            }
            prop_assert_eq!(Sclub::load(&policy.save()).unwrap().digest(), policy.digest());
        }
        for _ in 0..30 {
            life.round(&mut policy);
            assert_sums(&policy)?;
        }
    }

    #[test]
    fn when_all_are_forgotten_only_time_has_passed((mut life, mut policy) in life(), rounds in 1usize..100) {
        for _ in 0..rounds {
            life.round(&mut policy);
        }
        for user in policy.users().to_vec() {
            prop_assert!(policy.forget(user));
        }
        prop_assert!(policy.users().is_empty());
        prop_assert_eq!(policy.clusters(), 1);
        prop_assert_eq!(policy.rounds(), rounds as u64);
        prop_assert!(policy.estimate(0).unwrap().iter().all(|&value| value == 0.0));
        life.round(&mut policy);
        assert_sums(&policy)?;
    }
}

#[test]
fn a_damaged_snapshot_is_refused() {
    let mut policy = Sclub::new(2, Users::Appear, &Params::tuned()).unwrap();
    for round in 0..40u64 {
        policy
            .learn(round % 5, &[0.3, 0.1 * round as f64], 0.5)
            .unwrap();
    }
    let bytes = policy.save();
    for at in 0..bytes.len() {
        for bit in [0, 3, 7] {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            let refused = Sclub::load(&damaged);
            assert!(
                matches!(refused, Err(Error::BadSnapshot { .. })),
                "byte {at}, bit {bit}"
            );
        }
        assert!(Sclub::load(&bytes[..at]).is_err(), "cut at {at}");
    }
    assert!(Sclub::load(&[bytes.as_slice(), &[0; 8]].concat()).is_err());
}

/// A policy of each kind that has lived a little.
fn lived() -> [Box<dyn Kept>; 3] {
    let mut policies = kinds(2, &Params::tuned());
    for policy in &mut policies {
        for round in 0..40u64 {
            policy
                .learn(round % 5, &[0.3, 0.1 * round as f64], 0.5)
                .unwrap();
        }
    }
    policies
}

/// CLUB after a little, with users who were declared and users who were not.
fn lived_club(graph: Graph) -> Club {
    let mut policy = Club::new(2, Users::Declared(4), graph, &Params::tuned()).unwrap();
    for round in 0..40u64 {
        let reward = if round % 2 == 0 { 1.0 } else { -1.0 };
        policy
            .learn(round % 6, &[0.3, 0.1 * round as f64], reward)
            .unwrap();
    }
    policy
}

#[test]
fn a_state_is_read_by_its_own_kind_only() {
    let states = lived().map(|policy| saved(&*policy));
    for (kind, bytes) in states.iter().enumerate() {
        let loaded = [
            Sclub::load_from(&mut bytes.as_slice()).is_ok(),
            LinUcbInd::load_from(&mut bytes.as_slice()).is_ok(),
            ForgettableLinUcb::load_from(&mut bytes.as_slice()).is_ok(),
        ];
        let expected: [bool; 3] = std::array::from_fn(|other| other == kind);
        assert_eq!(loaded, expected);
    }
    let club = saved_club(&lived_club(Graph::Complete));
    assert!(Sclub::load_from(&mut club.as_slice()).is_err());
    assert!(Club::load_from(&mut states[0].as_slice()).is_err());
    assert!(load_policy(&mut club.as_slice()).is_ok());
    let groups = Groups::Known(vec![0, 2, 2]);
    let mut known = LinUcbShared::new(2, groups, &Params::tuned()).unwrap();
    known.learn(1, &[0.6, 0.8], 1.0).unwrap();
    let mut bytes = Vec::new();
    known.save_to(&mut bytes).unwrap();
    assert!(ForgettableLinUcb::load_from(&mut bytes.as_slice()).is_err());
    let again = load_policy(&mut bytes.as_slice()).unwrap();
    assert_eq!(again.digest(), known.digest());
    assert_eq!(again.estimate(2), known.estimate(1));
    assert_eq!(again.estimate(9).unwrap(), [0.0, 0.0]);
}

/// Gives some bytes, then fails as a disk does.
struct Failing<'a>(&'a [u8]);

impl Read for Failing<'_> {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        match self.0.read(target)? {
            0 => Err(io::Error::new(io::ErrorKind::PermissionDenied, "no more")),
            some => Ok(some),
        }
    }
}

#[test]
fn what_fails_is_told_from_what_is_no_state() {
    for policy in lived() {
        let bytes = saved(&*policy);
        for at in [0, 8, 30, bytes.len() / 2, bytes.len() - 1] {
            match load_policy(&mut Failing(&bytes[..at])) {
                Err(LoadError::Io(error)) => {
                    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
                }
                other => panic!("cut at {at}: {:?}", other.map(|_| ())),
            }
        }
        let mut short = [0; 100];
        assert!(policy.save_to(&mut &mut short[..]).is_err());
    }
}
