//! The engine against a naive transcription of the pseudo-code, in random worlds.

mod naive;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use naive::published::NaivePublished;
use naive::{CLOSE, Info, NaiveClub, NaiveSclub, distance};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sclub::{
    Club, Deviations, Exploration, Graph, Groups, Index, ItemSet, LinUcbInd, LinUcbShared,
    Observation, Params, Policy, PublishedSclub, Sclub, Users,
};

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 64,
        max_shrink_iters: 60,
        failure_persistence: None,
        ..Default::default()
    }
}

/// A world to run both in. Everything else is drawn from the seed.
#[derive(Debug, Clone)]
struct World {
    dim: usize,
    users: u64,
    rounds: usize,
    declared: bool,
    many_a_round: bool,
    skew: f64,
    noise: f64,
    params: Params,
    seed: u64,
}

prop_compose! {
    fn params()(
        alpha_theta in -3.0f64..2.2, alpha_p in -5.0f64..1.5, beta in 0.0f64..1.5,
        squared: bool, growing: bool,
    ) -> Params {
        Params {
            alpha_theta: alpha_theta.exp(),
            alpha_p: alpha_p.exp(),
            index: if squared { Index::SquaredNorm } else { Index::Norm },
            exploration: if growing {
                Exploration::Growing { scale: beta }
            } else {
                Exploration::Fixed(beta)
            },
        }
    }
}

prop_compose! {
    fn world()(
        dim in 1usize..=40, users in 1u64..=60, length in 0.1f64..1.0, declared: bool,
        many_a_round in prop::bool::weighted(0.3), skew in 0.0f64..4.0, noise in 0.0f64..0.6,
        params in params(), seed: u64,
    ) -> World {
        // Thousands of rounds; fewer where the naive inverses are large.
        let most = if dim <= 12 { 4000.0 } else if dim <= 24 { 1500.0 } else { 500.0 };
        let rounds = (most * length) as usize;
        World { dim, users, rounds, declared, many_a_round, skew, noise, params, seed }
    }
}

/// The events of a world: users, their candidates and the rewards of items.
struct Events {
    world: World,
    rng: Xoshiro256PlusPlus,
    tastes: Vec<Vec<f64>>,
}

impl Events {
    fn new(world: &World) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(world.seed);
        let kinds = 1 + (world.seed % 5) as usize;
        let mut vector = || -> Vec<f64> {
            (0..world.dim)
                .map(|_| rng.random_range(-1.0..1.0))
                .collect()
        };
        let tastes = (0..kinds).map(|_| vector()).collect();
        Self {
            world: world.clone(),
            rng,
            tastes,
        }
    }

    fn user(&mut self) -> u64 {
        let draw: f64 = self.rng.random_range(0.0..1.0);
        let place = (draw.powf(1.0 + self.world.skew) * self.world.users as f64) as u64;
        // Where users simply appear, their names mean nothing.
        if self.world.declared {
            place
        } else {
            place * 1_000_003 + 17
        }
    }

    fn users(&mut self) -> Vec<u64> {
        let count = if self.world.many_a_round {
            self.rng.random_range(0..7)
        } else {
            1
        };
        (0..count).map(|_| self.user()).collect()
    }

    fn items(&mut self) -> Vec<Vec<f64>> {
        let count = self.rng.random_range(1..6);
        let reach = 1.0 / (self.world.dim as f64).sqrt();
        (0..count)
            .map(|_| {
                (0..self.world.dim)
                    .map(|_| self.rng.random_range(-reach..reach))
                    .collect()
            })
            .collect()
    }

    fn reward(&mut self, user: u64, item: &[f64]) -> f64 {
        let taste = &self.tastes[user as usize % self.tastes.len()];
        naive::inner(taste, item) + self.world.noise * self.rng.random_range(-1.0..1.0)
    }
}

fn declared(world: &World) -> u64 {
    if world.declared { world.users } else { 0 }
}

fn users(world: &World) -> Users {
    if world.declared {
        Users::Declared(world.users)
    } else {
        Users::Appear
    }
}

/// Serves and learns one round with `policy`, checking each choice against the naive scores.
fn one_round(
    policy: &mut dyn Policy,
    events: &mut Events,
    mut naive_scores: impl FnMut(u64, &[Vec<f64>]) -> Vec<f64>,
) -> Result<Vec<(u64, Vec<f64>, f64)>, TestCaseError> {
    let mut round = Vec::new();
    for user in events.users() {
        let items = events.items();
        let set = ItemSet::from_rows(policy.dim(), &items.concat()).unwrap();
        let choice = policy.recommend(user, &set).unwrap();
        let scores = naive_scores(user, &items);
        let best = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        // The same choice; where two items tie to within rounding, either.
        prop_assert!(
            scores[choice.index] >= best - CLOSE,
            "{choice:?} of {scores:?}"
        );
        prop_assert!((choice.score.score - scores[choice.index]).abs() < 1e-8);
        let item = items[choice.index].clone();
        let reward = events.reward(user, &item);
        round.push((user, item, reward));
    }
    let observations: Vec<_> = round
        .iter()
        .map(|(user, item, reward)| Observation::new(*user, item, *reward))
        .collect();
    policy.learn_round(&observations, &mut Vec::new()).unwrap();
    Ok(round)
}

fn assert_close(a: &[f64], b: &[f64], what: &str) -> Result<(), TestCaseError> {
    prop_assert_eq!(a.len(), b.len());
    let apart = distance(a, b);
    prop_assert!(apart < 1e-8, "{}: {:e} apart", what, apart);
    Ok(())
}

/// S^j = I + Σ(S_i − I), b^j = Σ b_i, T^j = Σ T_i, every user in one cluster; `thorough` also
/// compares the matrices.
fn assert_invariants(engine: &Sclub, thorough: bool) -> Result<(), TestCaseError> {
    let d = engine.dim();
    let mut seen = BTreeSet::new();
    let mut observations = 0;
    for (label, members) in engine.partition() {
        let Some(&someone) = members.first() else {
            continue;
        };
        let mut sums = Info::new(d);
        for &user in &members {
            prop_assert!(seen.insert(user), "user {} is in two clusters", user);
            prop_assert_eq!(engine.cluster_of(user), Some(label));
            if !thorough {
                continue;
            }
            let own = engine.user_statistics(user).unwrap();
            let s = own.gram.chunks(d).map(<[f64]>::to_vec).collect();
            sums.combine(
                &Info {
                    s,
                    b: own.moment,
                    t: own.count,
                },
                1.0,
            );
        }
        if !thorough {
            continue;
        }
        let cluster = engine.cluster_statistics(someone);
        assert_close(&cluster.gram, &sums.s.concat(), "S")?;
        assert_close(&cluster.moment, &sums.b, "b")?;
        prop_assert_eq!(cluster.count, sums.t);
        assert_close(&cluster.estimate, &sums.theta(), "estimate")?;
        observations += cluster.count;
    }
    let expected: BTreeSet<u64> = engine.users().iter().copied().collect();
    prop_assert_eq!(seen, expected);
    if !thorough {
        return Ok(());
    }
    let counted: u64 = engine
        .users()
        .iter()
        .map(|&user| engine.user_statistics(user).unwrap().count)
        .sum();
    prop_assert_eq!(observations, counted);
    Ok(())
}

/// Counts of the cases that the random worlds have covered.
#[derive(Debug, Default)]
struct Coverage {
    worlds: Cell<u64>,
    doubtful: Cell<u64>,
    rounds: Cell<u64>,
    splits: Cell<u64>,
    merges: Cell<u64>,
}

fn add(counter: &Cell<u64>, more: u64) {
    counter.set(counter.get() + more);
}

fn compare_sclub(world: &World, coverage: &Coverage) -> Result<(), TestCaseError> {
    let mut engine = Sclub::new(world.dim, users(world), &world.params).unwrap();
    let mut naive = NaiveSclub::new(world.dim, declared(world), world.params);
    let mut events = Events::new(world);
    add(&coverage.worlds, 1);
    for n in 0..world.rounds {
        let round = one_round(&mut engine, &mut events, |user, items| {
            naive.scores(user, items)
        })?;
        naive.learn(&round);
        if naive.doubtful {
            add(&coverage.doubtful, 1);
            return Ok(());
        }
        add(&coverage.rounds, 1);
        let seen: BTreeSet<u64> = engine.users().iter().copied().collect();
        let expected: BTreeMap<u64, Vec<u64>> = naive
            .sets
            .iter()
            .map(|(&label, set)| (label, set.users.intersection(&seen).copied().collect()))
            .collect();
        let found: BTreeMap<u64, Vec<u64>> = engine.partition().into_iter().collect();
        prop_assert_eq!(&found, &expected, "round {}", n + 1);
        prop_assert_eq!(engine.clusters(), expected.len());
        for (user, ..) in &round {
            let cluster = &naive.sets[&naive.label_of(*user)];
            prop_assert_eq!(engine.cluster_size(*user), cluster.users.len() as u64);
            assert_close(
                &engine.estimate(*user).unwrap(),
                &cluster.info.theta(),
                "cluster",
            )?;
            let own = engine.user_statistics(*user).unwrap();
            assert_close(&own.estimate, &naive.users[user].theta(), "user")?;
        }
        assert_invariants(&engine, n % 16 == 0 || n + 1 == world.rounds)?;
    }
    let splits = naive.last_label - 1;
    add(&coverage.splits, splits);
    add(&coverage.merges, splits + 1 - naive.sets.len() as u64);
    Ok(())
}

#[test]
fn sclub_is_the_pseudo_code() {
    let coverage = Coverage::default();
    let mut runner = TestRunner::new(config());
    runner
        .run(&world(), |world| compare_sclub(&world, &coverage))
        .unwrap();
    // The comparison is worth something only if the worlds made the engine work.
    assert!(
        coverage.doubtful.get() * 10 <= coverage.worlds.get(),
        "{coverage:?}"
    );
    assert!(coverage.rounds.get() > 10_000, "{coverage:?}");
    assert!(
        coverage.splits.get() > 500 && coverage.merges.get() > 200,
        "{coverage:?}"
    );
}

prop_compose! {
    fn deviations()(
        shared_arrays: bool, marks_cleared in prop::bool::weighted(0.3), stale_estimates: bool,
        stale_marks: bool, running_estimate: bool, average_frequency: bool,
    ) -> Deviations {
        Deviations {
            shared_arrays, marks_cleared, stale_estimates, stale_marks, running_estimate,
            average_frequency,
        }
    }
}

/// Runs the published code with some deviations beside its naive transcription.
fn compare_published(
    world: &World,
    deviations: Deviations,
    coverage: &Coverage,
) -> Result<(), TestCaseError> {
    let mut engine =
        PublishedSclub::new(world.dim, users(world), &world.params, deviations).unwrap();
    let mut naive = NaivePublished::new(world.dim, declared(world), world.params, deviations);
    let mut events = Events::new(world);
    add(&coverage.worlds, 1);
    for n in 0..world.rounds {
        let round = one_round(&mut engine, &mut events, |user, items| {
            naive.scores(user, items)
        })?;
        naive.learn(&round);
        if naive.doubtful {
            add(&coverage.doubtful, 1);
            break;
        }
        add(&coverage.rounds, 1);
        for user in naive.users.keys() {
            let (found, expected) = (engine.cluster_of(*user), naive.label_of(*user));
            prop_assert_eq!(found, Some(expected), "user {} after round {}", user, n + 1);
        }
        prop_assert_eq!(engine.clusters(), naive.clusters.len());
        for (user, ..) in &round {
            let cluster = &naive.clusters[&naive.label_of(*user)];
            assert_close(&engine.estimate(*user).unwrap(), &cluster.theta, "cluster")?;
        }
    }
    let splits = naive.last_label - 1;
    add(&coverage.splits, splits);
    add(&coverage.merges, splits + 1 - naive.clusters.len() as u64);
    Ok(())
}

#[test]
fn every_deviation_of_the_published_code_is_what_it_says() {
    let coverage = Coverage::default();
    let mut runner = TestRunner::new(config());
    let small = |(mut world, deviations): (World, Deviations)| {
        world.dim = 1 + world.dim % 12;
        world.rounds = world.rounds.min(700);
        compare_published(&world, deviations, &coverage)
    };
    runner.run(&(world(), deviations()), small).unwrap();
    assert!(
        coverage.doubtful.get() * 5 <= coverage.worlds.get(),
        "{coverage:?}"
    );
    assert!(
        coverage.rounds.get() > 10_000
            && coverage.splits.get() > 500
            && coverage.merges.get() > 150,
        "{coverage:?}"
    );
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn without_deviations_the_published_code_is_the_pseudo_code(world in world()) {
        let mut published =
            PublishedSclub::new(world.dim, users(&world), &world.params, Deviations::NONE).unwrap();
        let mut naive = NaiveSclub::new(world.dim, declared(&world), world.params);
        let mut events = Events::new(&world);
        for n in 0..world.rounds.min(400) {
            let round = one_round(&mut published, &mut events, |user, items| {
                naive.scores(user, items)
            })?;
            naive.learn(&round);
            if naive.doubtful {
                return Ok(());
            }
            for user in naive.users.keys() {
                let (found, expected) = (published.cluster_of(*user), naive.label_of(*user));
                prop_assert_eq!(found, Some(expected), "user {} after round {}", user, n + 1);
            }
        }
    }

    #[test]
    fn club_is_what_it_says(mut world in world(), complete: bool) {
        world.users = world.users.min(25);
        world.rounds = world.rounds.min(600);
        // Where users simply appear, only the complete graph can be told without looking.
        let complete = complete || !world.declared;
        let kind = if complete { Graph::Complete } else { Graph::Random { seed: world.seed } };
        let mut engine = Club::new(world.dim, users(&world), kind, &world.params).unwrap();
        let edges = (0..world.users)
            .flat_map(|a| engine.neighbours(a).into_iter().map(move |b| (a.min(b), a.max(b))))
            .collect();
        let mut naive = NaiveClub {
            d: world.dim, params: world.params, users: BTreeMap::new(), edges, tau: 0, doubtful: false,
        };
        let mut known: BTreeSet<u64> = (0..declared(&world)).collect();
        let mut events = Events::new(&world);
        for _ in 0..world.rounds {
            let round = one_round(&mut engine, &mut events, |user, items| naive.scores(user, items))?;
            for (user, ..) in &round {
                if known.insert(*user) {
                    naive.edges.extend(known.iter().filter(|&k| k != user).map(|&k| (k.min(*user), k.max(*user))));
                }
            }
            naive.learn(&round);
            if naive.doubtful {
                return Ok(());
            }
            prop_assert_eq!(engine.edges(), naive.edges.len());
            for &user in &known {
                let component = naive.component(user);
                for &other in &known {
                    let together = engine.cluster_of(user) == engine.cluster_of(other);
                    prop_assert_eq!(together, component.contains(&other));
                }
            }
            for (user, ..) in &round {
                assert_close(&engine.estimate(*user).unwrap(), &naive.sums(*user).theta(), "component")?;
            }
        }
    }

    #[test]
    fn invariants_hold_after_every_step(mut world in world()) {
        world.dim = 1 + world.dim % 10;
        world.users = 1 + world.users % 20;
        world.rounds = world.rounds.min(400);
        let mut engine = Sclub::new(world.dim, users(&world), &world.params).unwrap();
        let mut events = Events::new(&world);
        for _ in 0..world.rounds {
            let mut round = Vec::new();
            for user in events.users() {
                let item = events.items().swap_remove(0);
                let reward = events.reward(user, &item);
                round.push((user, item, reward));
            }
            let observations: Vec<_> = round
                .iter()
                .map(|(user, item, reward)| Observation::new(*user, item, *reward))
                .collect();
            engine.learn_round(&observations, &mut Vec::new()).unwrap();
            assert_invariants(&engine, true)?;
        }
    }

    #[test]
    fn linucb_is_ridge_regression(mut world in world(), one: bool) {
        world.rounds = world.rounds.min(800);
        let mut engine: Box<dyn Policy> = if one {
            Box::new(LinUcbShared::new(world.dim, Groups::One, &world.params).unwrap())
        } else {
            Box::new(LinUcbInd::new(world.dim, &world.params).unwrap())
        };
        let mut infos: BTreeMap<u64, Info> = BTreeMap::new();
        let mut events = Events::new(&world);
        let key = |user: u64| if one { 0 } else { user };
        let empty = Info::new(world.dim);
        for tau in 0..world.rounds as u64 {
            let round = one_round(engine.as_mut(), &mut events, |user, items| {
                infos.get(&key(user)).unwrap_or(&empty).scores(&world.params, tau, items)
            })?;
            for (user, item, reward) in &round {
                let info = infos.entry(key(*user)).or_insert_with(|| Info::new(world.dim));
                info.observe(item, *reward);
            }
            for (user, ..) in &round {
                assert_close(&engine.estimate(*user).unwrap(), &infos[&key(*user)].theta(), "estimate")?;
            }
        }
    }
}
