//! Searches and whole fits against the truth behind the data.

use std::sync::Mutex;

use super::super::SclubSoft;
use super::super::background;
use super::super::beliefs::Beliefs;
use super::super::fit::Job;
use super::super::mixture::Mixture;
use super::super::panel::Panel;
use super::super::params::SoftParams;
use super::super::search::{Draws, Found, Search};
use super::decide::live;
use super::plain::plain_prior;
use super::*;
use crate::abilities::{BackgroundFit, Forget, Inspect, Persist};
use crate::items::ItemSet;
use crate::policy::Policy;
use crate::refit::{Sequential, Workers};
use crate::statistics::Shape;

const NOISE: f64 = 0.2;

/// Seven threads that begin with the last piece.
pub(super) struct Crowd;

impl Workers for Crowd {
    fn each(&self, pieces: usize, work: &(dyn Fn(usize) + Sync)) {
        let left = Mutex::new((0..pieces).collect::<Vec<usize>>());
        std::thread::scope(|scope| {
            for _ in 0..7 {
                scope.spawn(|| {
                    loop {
                        let next = left.lock().unwrap().pop();
                        let Some(piece) = next else { return };
                        work(piece);
                    }
                });
            }
        });
    }
}

/// The result of `look` among the users of a world, once the background has been learned.
fn search(world: &World, noise: f64, look: impl FnOnce(&mut Search<'_>) -> Found) -> Found {
    let (sums, slots) = (world.sums(), world.slots());
    let panel = Panel::new(&sums, &slots);
    let mut scale = background::pooled(&panel, world.layout());
    scale.noise = noise;
    let start = scale.start(world.dim);
    let (background, pass) = background::fit(&panel, &start, scale, 20, true, &Sequential);
    let params = SoftParams::default();
    let mut search = Search {
        panel,
        background: &background,
        evidence: &pass.evidence,
        noise,
        params: &params,
        workers: &Sequential,
        draws: Draws(5),
    };
    look(&mut search)
}

/// Each true centre has been found, once, close by; users of one are together and those of others are
/// apart.
fn assert_recovered(found: &Mixture, world: &World, centres: &[Vec<f64>], tolerance: f64) {
    // Of those who said little a few may seem to be others.
    let allowed = if world.said.len() < 1000 {
        0
    } else {
        world.said.len() / 100
    };
    let mut wrong = 0;
    assert_eq!(found.centres.len(), centres.len());
    let mut label_of = Vec::new();
    for truth in centres {
        let at = |k: usize| distance(&found.centres[k].mean, truth);
        let nearest = (0..centres.len())
            .min_by(|&a, &b| at(a).total_cmp(&at(b)))
            .unwrap();
        assert!(at(nearest) < tolerance, "{} from the truth", at(nearest));
        assert!(!label_of.contains(&nearest), "two of the truth in one");
        label_of.push(nearest);
    }
    for (user, said) in world.said.iter().enumerate() {
        let likely = |k: usize| log_likelihood(said, &found.centres[k].mean, NOISE);
        let best = (0..centres.len())
            .max_by(|&a, &b| likely(a).total_cmp(&likely(b)))
            .unwrap();
        wrong += usize::from(best != label_of[user % centres.len()]);
    }
    assert!(wrong <= allowed, "{wrong} in other clusters");
    assert!(found.none < 0.1, "{}", found.none);
}

#[test]
fn with_the_number_known_em_recovers_tight_clusters() {
    for (seed, count, dim) in [(1, 2, 1), (2, 4, 3), (3, 8, 6)] {
        let centres = separated(seed, count, dim);
        let world = World::new(
            seed,
            clustered_tastes(&centres, 30 * count),
            1.0,
            0.2,
            |_| 12,
        );
        // Started from one user of each.
        let found = search(&world, NOISE, |search| {
            let mut starts = Vec::new();
            for user in 0..count {
                let (_, mean) = posterior(&world.said[user], search.background, NOISE);
                starts.push(mean);
            }
            let start = mixture(&starts, &vec![0.9 / count as f64; count]);
            search.refine(start, 20)
        });
        assert_recovered(&found.mixture, &world, &centres, 0.25);
    }
}

#[test]
fn with_the_number_unknown_births_merges_and_prunes_find_it() {
    for (seed, count, dim) in [(1, 1, 2), (2, 3, 3), (3, 6, 4), (4, 9, 6)] {
        let centres = separated(seed, count, dim);
        let tastes = clustered_tastes(&centres, 30 * count);
        let world = World::new(seed, tastes, 1.0, NOISE, |i| 30 + i % 9);
        let found = search(&world, NOISE, |search| {
            let (found, grew) = search.warm(&Mixture::none(), true);
            assert!(grew);
            // The users drawn may have missed a cluster; the next fit draws others.
            search.warm(&found.mixture, true).0
        });
        assert_recovered(&found.mixture, &world, &centres, 0.15);
        assert_eq!(found.expected.placed, world.said.len() as u64);
        // From scratch some may be missed where no user of theirs is drawn, but none is invented.
        let cold = search(&world, NOISE, |search| search.cold().unwrap());
        assert!(cold.mixture.centres.len() <= count);
        assert!(cold.score < found.score + 0.5);
    }
}

#[test]
fn two_halves_of_one_cluster_are_merged_where_the_score_rises() {
    for seed in 0..20 {
        let centres = separated(seed, 3, 3);
        let world = World::new(seed, clustered_tastes(&centres, 90), 1.0, NOISE, |i| {
            8 + i % 9
        });
        let found = search(&world, NOISE, |search| {
            search.warm(&Mixture::none(), true).0
        });
        let truth = search(&world, NOISE, |search| {
            search.refine(mixture(&centres, &[0.3; 3]), 20)
        });
        assert!(
            found.score > truth.score - 0.5,
            "{} {}",
            found.score,
            truth.score
        );
    }
}

/// Tastes from one Gaussian that is as wide as clusters would be apart.
fn one_gaussian(seed: u64, dim: usize, users: usize, count: usize) -> World {
    gaussian_around(1.0, seed, dim, users, count)
}

/// As [`one_gaussian`], with a mean that is farther from 0 by a factor.
pub(super) fn gaussian_around(
    size: f64,
    seed: u64,
    dim: usize,
    users: usize,
    count: usize,
) -> World {
    let factor = Mat::from_fn(dim, dim, |i, j| f64::from(u8::from(i == j)));
    let mean = normals(&mut rng(seed), dim);
    let mean: Vec<f64> = mean.iter().map(|m| size * m).collect();
    let tastes = gaussian_tastes(seed, users, &mean, &factor);
    World::new(seed ^ 9, tastes, 1.0, NOISE, |_| count)
}

#[test]
fn where_there_are_no_clusters_none_is_found() {
    for (seed, dim) in [(1, 3), (2, 5), (3, 8)] {
        let world = one_gaussian(seed, dim, 150, 30);
        let found = search(&world, NOISE, |search| {
            search.warm(&Mixture::none(), true).0
        });
        assert_eq!(found.mixture, Mixture::none(), "d = {dim}");
    }
}

/// Learns all that a world's users said, by turns.
pub(super) fn teach(policy: &mut SclubSoft, world: &World) {
    let longest = world.said.iter().map(Vec::len).max().unwrap();
    for turn in 0..longest {
        for (user, said) in world.said.iter().enumerate() {
            if let Some((item, reward)) = said.get(turn) {
                policy.learn(user as u64, item, *reward).unwrap();
            }
        }
    }
}

#[test]
fn without_clusters_the_policy_is_the_gaussian_one() {
    let world = one_gaussian(4, 5, 120, 25);
    let mut soft = SclubSoft::new(5, &SoftParams::default()).unwrap();
    let mut gaussian = SclubSoft::new(5, &SoftParams::gaussian()).unwrap();
    teach(&mut soft, &world);
    teach(&mut gaussian, &world);
    assert_eq!(soft.clusters(), 0);
    assert_eq!(soft.outlook().unwrap().unplaced, 1.0);
    assert!(
        soft.outlook()
            .unwrap()
            .warning
            .unwrap()
            .starts_with("no clusters")
    );
    assert_eq!(gaussian.outlook().unwrap().warning, None);
    let mut rng = rng(1);
    for user in 0..130 {
        let items = ItemSet::from_rows(5, &random_items(&mut rng, 5, 11)).unwrap();
        let (one, other) = (
            soft.recommend(user, &items),
            gaussian.recommend(user, &items),
        );
        assert_eq!(one, other);
        assert_eq!(
            soft.estimate(user).unwrap(),
            gaussian.estimate(user).unwrap()
        );
    }
}

#[test]
fn a_fit_among_more_users_than_are_searched_asks_all_and_does_not_depend_on_who_works() {
    let dim = 2;
    let centres = separated(8, 3, dim);
    let users = 9000;
    let world = World::new(9, clustered_tastes(&centres, users), 1.0, NOISE, |_| 6);
    let job = |before| Job {
        observations: 0,
        sums: world.sums(),
        params: SoftParams {
            seeds: 12,
            colds: 0,
            ..SoftParams::default()
        },
        rounds: 6 * users as u64,
        forgotten: 0,
        before,
    };
    let first = job(None).run(&Sequential);
    assert_eq!(first.mixture.centres.len(), 3);
    assert_eq!(job(None).run(&Crowd).to_bytes(), first.to_bytes());
    // All users are counted, not only those of the search.
    let counted: f64 = first.sizes.iter().map(|size| size.0).sum();
    assert!(counted > 0.97 * users as f64, "{counted}");
    let said: f64 = first.sizes.iter().map(|size| size.1).sum();
    assert!(said > 0.97 * 6.0 * users as f64, "{said}");
    let shares: f64 = first.played.centres.iter().map(|c| c.share).sum();
    assert!(close(shares + first.played.none, 1.0, 1e-9));
    let (sums, slots) = (world.sums(), world.slots());
    let panel = Panel::new(&sums, &slots);
    let whole = background::pass(&panel, &first.background, first.noise, true, &Sequential);
    let effective = whole.effective(&first.background);
    assert!((first.effective / effective - 1.0).abs() < 0.01);
    let second = job(Some(first.clone())).run(&Crowd);
    assert_recovered(&second.mixture, &world, &centres, 0.1);
    assert_eq!(
        job(Some(first)).run(&Sequential).to_bytes(),
        second.to_bytes()
    );
}

#[test]
fn with_a_half_life_sums_are_discounted_and_beliefs_follow() {
    let (dim, half_life) = (3, 5.0);
    let world = one_gaussian(12, dim, 4, 23);
    let keep = 0.5f64.powf(1.0 / half_life);
    let params = SoftParams {
        half_life: Some(half_life),
        ..SoftParams::gaussian()
    };
    let mut policy = SclubSoft::new(dim, &params).unwrap();
    teach(&mut policy, &world);
    let fit = policy.served.as_ref().unwrap().fit.clone();
    for (user, said) in world.said.iter().enumerate() {
        // An observation of weight w is one of √w times the features and the reward.
        let count = said.len() as i32;
        let weight = |t: usize| keep.powi(count - 1 - t as i32);
        let lighter: Vec<(Vec<f64>, f64)> = said
            .iter()
            .enumerate()
            .map(|(t, (x, y))| {
                let root = weight(t).sqrt();
                (x.iter().map(|x| root * x).collect(), root * y)
            })
            .collect();
        let light = World {
            dim,
            said: vec![lighter],
        };
        let (direct, row) = (light.sums(), policy.sums.row(user));
        let layout = light.layout();
        assert!(all_close(
            &row[..layout.count()],
            &direct.row(0)[..layout.count()],
            1e-12
        ));
        let numbers: f64 = (0..said.len()).map(weight).sum();
        assert!(close(row[layout.count()], numbers, 1e-12));
        assert!(close(
            row[layout.squares()],
            direct.row(0)[layout.squares()],
            1e-12
        ));
        let (_, mean) = posterior(&light.said[0], &live(&policy), fit.noise);
        assert!(all_close(
            &policy.estimate(user as u64).unwrap(),
            &mean,
            1e-8
        ));
        assert_eq!(policy.count(user as u64), Some(23));
    }
}

#[test]
fn a_fit_that_makes_no_sense_is_refused() {
    let dim = 2;
    let background = random_background(1, dim, 1.0);
    let mut good = fit_of(
        &background,
        0.3,
        &mixture(&vectors(2, 3, dim, 1.0), &[0.2; 3]),
    );
    good.plain = Some(plain_prior(dim));
    let read = |fit: &Fit| Fit::from_bytes(&fit.to_bytes(), dim);
    assert_eq!(read(&good), Ok(good.clone()));
    assert!(Fit::from_bytes(&good.to_bytes(), dim + 1).is_err());
    type Harm = fn(&mut Fit);
    let harms: [Harm; 19] = [
        |fit| fit.noise = 0.0,
        |fit| fit.noise = f64::NAN,
        |fit| fit.noise = f64::INFINITY,
        |fit| fit.background.mean[1] = f64::NAN,
        |fit| fit.background.covariance[0] = -1.0,
        |fit| fit.background.covariance[1] = 1e9,
        |fit| fit.mixture.centres[0].share = 0.0,
        |fit| fit.played.centres[2].share = -0.1,
        |fit| fit.played.none = f64::NAN,
        |fit| fit.played.centres[1].mean[0] = f64::INFINITY,
        |fit| fit.played.centres[0].label = 9,
        |fit| {
            fit.played.centres.pop();
            fit.spreads.pop();
        },
        |fit| fit.spreads[1][0] = f64::NAN,
        |fit| fit.information[0] = f64::NAN,
        |fit| fit.background.covariance[2] = 1e-310,
        |fit| fit.plain.as_mut().unwrap().weight = 1.5,
        |fit| fit.plain.as_mut().unwrap().weight = f64::NAN,
        |fit| fit.plain.as_mut().unwrap().prior.covariance[0] = -1.0,
        |fit| fit.plain.as_mut().unwrap().prior.covariance[2] = 1e-310,
    ];
    let mut policy = SclubSoft::new(dim, &SoftParams::default()).unwrap();
    policy.take_fit(&good.to_bytes()).unwrap();
    let digest = policy.digest();
    for (at, harm) in harms.iter().enumerate() {
        let mut fit = good.clone();
        harm(&mut fit);
        assert!(read(&fit).is_err(), "harm {at}");
        assert!(policy.take_fit(&fit.to_bytes()).is_err());
        assert_eq!(policy.digest(), digest);
    }
}

#[test]
fn a_fit_of_an_impossible_round_does_no_harm() {
    let background = random_background(1, 2, 1.0);
    let mut fit = fit_of(&background, 0.3, &Mixture::none());
    fit.rounds = u64::MAX - 3;
    fit.number = u64::MAX;
    let mut policy = SclubSoft::new(2, &SoftParams::default()).unwrap();
    policy.learn(1, &[0.1, 0.2], 1.0).unwrap();
    if policy.take_fit(&fit.to_bytes()).is_ok() {
        policy.forget(1);
        policy.learn(2, &[0.1, 0.2], 1.0).unwrap();
    }
}

#[test]
fn the_history_of_fits_is_thinned_and_stays_in_order() {
    let background = random_background(1, 1, 1.0);
    let params = SoftParams {
        inline: false,
        ..SoftParams::gaussian()
    };
    let mut policy = SclubSoft::new(1, &params).unwrap();
    for round in 1..=1000u64 {
        policy.learn(1, &[0.5], 1.0).unwrap();
        policy.install(fit_of(&background, 0.3, &Mixture::none()));
        let history = policy.outlook().unwrap().history;
        assert!(history.len() <= 256);
        assert_eq!(history[0].0, 1);
        assert_eq!(history.last().unwrap().0, round);
        assert!(history.windows(2).all(|two| two[0].0 < two[1].0));
    }
    assert_eq!(policy.outlook().unwrap().fits, 1000);
}

/// Where there is room for the beliefs of three users only, others are computed from their sums. They are nearly
/// the same: evidence is then counted at the centres of the fit, not at those that moved since.
#[test]
fn users_whose_beliefs_are_not_kept_are_served_the_same() {
    let dim = 4;
    let centres = separated(8, 3, dim);
    let world = World::new(9, clustered_tastes(&centres, 20), 1.0, NOISE, |_| 30);
    let params = SoftParams {
        first: 100,
        ..SoftParams::default()
    };
    let mut roomy = SclubSoft::new(dim, &params).unwrap();
    let mut narrow = roomy.clone();
    narrow.beliefs = Beliefs::with_room(Shape { dim }, 3);
    teach(&mut roomy, &world);
    teach(&mut narrow, &world);
    let same = |roomy: &SclubSoft, narrow: &SclubSoft, user: u64| {
        let both = [roomy, narrow].map(|policy| policy.estimate(user).unwrap());
        assert!(all_close(&both[0], &both[1], 1e-4), "{user}: {both:?}");
        assert_eq!(roomy.count(user), narrow.count(user));
        assert_eq!(roomy.cluster_of(user), narrow.cluster_of(user));
    };
    (0..22).for_each(|user| same(&roomy, &narrow, user));
    let mut saved = Vec::new();
    narrow.save_to(&mut saved).unwrap();
    let again = SclubSoft::load_from(&mut saved.as_slice()).unwrap();
    assert_eq!(again.digest(), narrow.digest());
    for user in [4, 19, 0, 18, 7] {
        roomy.forget(user);
        narrow.forget(user);
        (0..22).for_each(|user| same(&roomy, &narrow, user));
    }
}
