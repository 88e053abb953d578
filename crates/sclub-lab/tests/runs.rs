//! The guarantees of a run: the same world for all, the same bits on any number of threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sclub::{Abilities, Constant, ItemSet, Observation, Policy, Preset, Range, Spec, Value};
use sclub_lab::document::world_json;
use sclub_lab::policies::{Knowledge, Name, choose};
use sclub_lab::run::{Experiment, Observer, Run};
use sclub_lab::setting::Setting;
use sclub_lab::synthetic::{Frequencies, Recipe, Synthetic, Twists};
use sclub_lab::world::{BLOCK, Rewards, Truth, World};
use sclub_lab::yardsticks::{Informed, Oracle, Random};

fn recipe(frequencies: Frequencies) -> Recipe {
    Recipe {
        users: 40,
        clusters: 4,
        dim: 6,
        candidates: 10,
        frequencies,
        rewards: Rewards::Bernoulli,
        users_a_round: None,
        twists: Twists::default(),
    }
}

/// The policies that can play a world of clusters.
fn everyone() -> Vec<Name> {
    choose(None, Knowledge::Clusters).unwrap()
}

fn experiment(threads: usize) -> Experiment {
    Experiment {
        world: Setting::Synthetic(recipe(Frequencies::Users)),
        policies: everyone(),
        rounds: 3000,
        seeds: vec![1, 2, 3],
        preset: Preset::Tuned,
        given: Vec::new(),
        threads,
    }
}

/// A run without the time it took: numbers by their bits.
#[derive(Debug, PartialEq)]
struct Bits {
    policy: Name,
    seed: u64,
    digest: u64,
    sums: [u64; 3],
    curve: Vec<(u64, u64)>,
}

fn bits(runs: &[Run]) -> Vec<Bits> {
    runs.iter()
        .map(|run| Bits {
            policy: run.policy,
            seed: run.seed,
            digest: run.digest,
            sums: [run.regret, run.reward, run.random_regret].map(f64::to_bits),
            curve: run.curve.iter().map(|&(t, r)| (t, r.to_bits())).collect(),
        })
        .collect()
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let one = experiment(1).run(&()).unwrap();
    assert_eq!(one.len(), 3 * everyone().len());
    for threads in [2, 5] {
        assert_eq!(bits(&experiment(threads).run(&()).unwrap()), bits(&one));
    }
}

#[test]
fn worlds_of_other_papers_are_the_same_on_any_number_of_threads() {
    let none = Twists::default();
    let fixed = Twists {
        items_fixed: Some(30),
        ..none
    };
    for twists in [
        Twists {
            misspecified: 0.2,
            corrupted: 0.2,
            corrupted_rounds: 300,
            overlap: 0.8,
            ..none
        },
        Twists {
            item_clusters: Some(2),
            misspecified: 0.2,
            cascade: Some(3),
            reward_scale: 0.2,
            ..fixed
        },
        Twists {
            smoothed: Some(0.1),
            ..fixed
        },
        Twists {
            smoothed: Some(0.1),
            cascade: Some(4),
            corrupted: 0.5,
            ..none
        },
    ] {
        let of = |threads| {
            let experiment = Experiment {
                world: Setting::Synthetic(Recipe {
                    twists,
                    ..recipe(Frequencies::Users)
                }),
                rounds: 700,
                ..experiment(threads)
            };
            experiment.run(&()).unwrap()
        };
        let one = of(1);
        assert_eq!(one.len(), 3 * everyone().len());
        assert_eq!(bits(&one), bits(&of(3)), "{twists:?}");
        let runs = one.iter().filter(|run| run.policy == Name::RANDOM);
        for run in runs {
            assert!(
                (run.regret / run.random_regret - 1.0).abs() < 0.2,
                "{run:?}"
            );
        }
    }
}

/// A policy with a number of servers.
static SERVED: Spec = Spec {
    name: "served",
    title: "Served",
    summary: "A policy with several servers",
    citation: "none",
    colors: ["#A0522D", "#DEB887"],
    revision: 1,
    presets: &[Preset::Default],
    constants: &[Constant::new(
        "servers",
        "Number of servers",
        Range::POSITIVE,
        |_, _| Ok(Value::Number(1.0)),
    )],
    can: Abilities::NONE,
    new: |_, _| Err(sclub::Error::NoUsers),
    load: None,
    gather: None,
};

#[test]
fn policies_with_several_servers_are_told_their_number_and_others_are_not() {
    let of = |servers, given: &[(&str, &str)]| {
        let given = given
            .iter()
            .map(|(name, text)| (name.to_string(), text.to_string()));
        let experiment = Experiment {
            world: Setting::Synthetic(Recipe {
                twists: Twists {
                    servers,
                    ..Twists::default()
                },
                ..recipe(Frequencies::Users)
            }),
            policies: vec![Name::from(&SERVED), Name::SCLUB],
            given: given.collect(),
            ..experiment(1)
        };
        let entries = experiment.entries().unwrap();
        assert_eq!(entries[1].values.number("servers"), None);
        entries[0].values.number("servers")
    };
    assert_eq!(of(None, &[]), Some(1.0), "its default");
    assert_eq!(of(Some(5), &[]), Some(5.0));
    assert_eq!(of(Some(5), &[("servers", "7")]), Some(7.0));
}

#[test]
fn a_policy_does_the_same_whatever_plays_beside_it() {
    let all = experiment(2).run(&()).unwrap();
    for name in everyone() {
        let alone = Experiment {
            policies: vec![name],
            ..experiment(1)
        }
        .run(&())
        .unwrap();
        let beside: Vec<Run> = all
            .iter()
            .filter(|run| run.policy == name)
            .cloned()
            .collect();
        assert_eq!(bits(&alone), bits(&beside), "{name}");
    }
}

#[test]
fn a_longer_run_begins_like_a_shorter_one() {
    let short = Experiment {
        rounds: 1024,
        ..experiment(1)
    }
    .run(&())
    .unwrap();
    let long = Experiment {
        rounds: 1500,
        ..experiment(1)
    }
    .run(&())
    .unwrap();
    for (short, long) in short.iter().zip(&long) {
        assert_eq!(
            short.curve[..],
            long.curve[..short.curve.len()],
            "{}",
            short.policy
        );
    }
}

#[test]
fn the_curve_is_at_powers_of_two_and_at_the_end() {
    let runs = Experiment {
        rounds: 20,
        seeds: vec![4],
        ..experiment(1)
    }
    .run(&())
    .unwrap();
    for run in runs {
        let rounds: Vec<u64> = run.curve.iter().map(|&(round, _)| round).collect();
        assert_eq!(rounds, [1, 2, 4, 8, 16, 20]);
        assert_eq!(run.curve[5].1, run.regret);
        assert_eq!(run.even_curve.last(), Some(&(20, run.regret)));
    }
}

struct StopsAfter {
    played: AtomicU64,
    limit: u64,
}

impl Observer for StopsAfter {
    fn played(&self, rounds: u64) {
        self.played.fetch_add(rounds, Ordering::Relaxed);
    }

    fn is_cancelled(&self) -> bool {
        self.played.load(Ordering::Relaxed) >= self.limit
    }
}

#[test]
fn a_stopped_run_keeps_the_seeds_that_are_complete() {
    let experiment = Experiment {
        policies: vec![Name::SCLUB],
        ..experiment(1)
    };
    let whole = experiment.run(&()).unwrap();
    let observer = StopsAfter {
        played: AtomicU64::new(0),
        limit: 4000,
    };
    let kept = experiment.run(&observer).unwrap();
    assert_eq!(bits(&kept), bits(&whole[..1]));
}

#[test]
fn an_invalid_experiment_does_not_run() {
    let good = experiment(1);
    let bad = [
        (
            "rounds",
            Experiment {
                rounds: 0,
                ..good.clone()
            },
        ),
        (
            "seeds",
            Experiment {
                seeds: vec![],
                ..good.clone()
            },
        ),
        (
            "policy",
            Experiment {
                policies: vec![],
                ..good.clone()
            },
        ),
        (
            "clusters",
            Experiment {
                world: Setting::Synthetic(Recipe {
                    clusters: 41,
                    ..recipe(Frequencies::Users)
                }),
                ..good.clone()
            },
        ),
        (
            "users",
            Experiment {
                world: Setting::Synthetic(Recipe {
                    users: 0,
                    ..recipe(Frequencies::Users)
                }),
                ..good.clone()
            },
        ),
        (
            "dim",
            Experiment {
                world: Setting::Synthetic(Recipe {
                    dim: 513,
                    ..recipe(Frequencies::Users)
                }),
                ..good.clone()
            },
        ),
        (
            "items",
            Experiment {
                world: Setting::Synthetic(Recipe {
                    candidates: 0,
                    ..recipe(Frequencies::Users)
                }),
                ..good.clone()
            },
        ),
        (
            "alpha_theta",
            Experiment {
                given: vec![("alpha_theta".into(), "-1".into())],
                ..good.clone()
            },
        ),
    ];
    for (name, experiment) in bad {
        let error = experiment.run(&()).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn items_are_what_section_5_1_says() {
    let world = Synthetic::new(recipe(Frequencies::Uniform), 9).unwrap();
    let truth = world.truth().unwrap();
    let mut block = world.new_block();
    let mut second_moment = [0.0; 6];
    let mut count = 0.0;
    for index in 0..40 {
        world.draw(index, BLOCK, &mut block);
        for round in 0..block.len() {
            let user = block.users[round] as usize;
            let weights = &truth.weights[truth.cluster_of[user] as usize];
            let mut best = f64::NEG_INFINITY;
            for item in 0..10 {
                let x: Vec<f64> = block.items[round].item(item).collect();
                let mean: f64 = x.iter().zip(weights).map(|(x, w)| x * w).sum();
                assert!((mean - block.mean(round, item)).abs() < 1e-14);
                assert!((0.0..=1.0).contains(&mean));
                let norm: f64 = x[..5].iter().map(|v| v * v).sum();
                assert!((norm - 0.5).abs() < 1e-14);
                assert_eq!(x[5], std::f64::consts::FRAC_1_SQRT_2);
                best = best.max(block.mean(round, item));
                for (sum, v) in second_moment.iter_mut().zip(&x) {
                    *sum += v * v;
                }
                count += 1.0;
            }
            assert_eq!(best, block.best[round]);
        }
    }
    // E[x xᵀ] has 1/(2(d−1)) on the diagonal but for the constant.
    for sum in &second_moment[..5] {
        assert!((sum / count - 0.1).abs() < 0.002, "{}", sum / count);
    }
    // Weights are drawn the same way.
    for weights in &truth.weights {
        assert!((weights.iter().map(|v| v * v).sum::<f64>() - 1.0).abs() < 1e-14);
    }
}

#[test]
fn users_appear_as_often_as_they_should() {
    for kind in [
        Frequencies::Uniform,
        Frequencies::Clusters,
        Frequencies::Users,
    ] {
        let world = Synthetic::new(recipe(kind), 5).unwrap();
        let shares = world.frequencies();
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        let same = |a: usize, b: usize| (shares[a] - shares[b]).abs() < 1e-12;
        let truth = &world.truth().unwrap().cluster_of;
        match kind {
            Frequencies::Uniform => assert!((0..40).all(|user| same(user, 0))),
            Frequencies::Clusters => {
                assert!((0..40).all(|a| (0..40).all(|b| truth[a] != truth[b] || same(a, b))));
                assert!(!same(0, 1) && truth[0] != truth[1]);
            }
            Frequencies::Users => assert!(!same(0, 4) && truth[0] == truth[4]),
        }
        let mut block = world.new_block();
        let mut seen = vec![0.0; 40];
        let rounds = 200 * BLOCK;
        for index in 0..200 {
            world.draw(index, BLOCK, &mut block);
            block
                .users
                .iter()
                .for_each(|&user| seen[user as usize] += 1.0);
        }
        for (seen, share) in seen.iter().zip(&shares) {
            let deviation = (share * (1.0 - share) * rounds as f64).sqrt();
            assert!(
                (seen - share * rounds as f64).abs() < 5.0 * deviation,
                "{kind:?}"
            );
        }
    }
}

#[test]
fn rewards_have_the_mean_and_the_noise_they_should() {
    for rewards in [Rewards::Bernoulli, Rewards::Gaussian(0.3)] {
        let recipe = Recipe {
            rewards,
            ..recipe(Frequencies::Uniform)
        };
        let world = Synthetic::new(recipe, 3).unwrap();
        let mut block = world.new_block();
        let (mut off, mut square, mut spread) = (0.0, 0.0, 0.0);
        let rounds = 400 * BLOCK;
        for index in 0..400 {
            world.draw(index, BLOCK, &mut block);
            for round in 0..BLOCK {
                let (mean, reward) = (block.mean(round, 3), block.reward(round, 3));
                off += reward - mean;
                square += (reward - mean).powi(2);
                spread += match rewards {
                    Rewards::Bernoulli => mean * (1.0 - mean),
                    Rewards::Gaussian(scale) => scale * scale,
                };
            }
        }
        let n = rounds as f64;
        assert!(
            (off / n).abs() < 5.0 * (spread / n / n).sqrt(),
            "{rewards:?}"
        );
        assert!((square / spread - 1.0).abs() < 0.02, "{rewards:?}");
    }
}

#[test]
fn informed_keeps_the_exact_posterior() {
    let weights = vec![vec![0.9, 0.1], vec![0.2, 0.7], vec![0.4, 0.4]];
    let truth = Truth {
        cluster_of: vec![0, 0, 1, 2],
        weights: weights.clone(),
        rewards: Rewards::Bernoulli,
        changed: None,
        stock: None,
    };
    let mut informed = Informed::new(&truth);
    let seen = [([1.0, 0.0], 1.0), ([0.0, 1.0], 0.0), ([0.5, 0.5], 1.0)];
    let mut posterior = [2.0, 1.0, 1.0];
    for (item, reward) in seen {
        informed.learn(2, &item, reward).unwrap();
        for (belief, weights) in posterior.iter_mut().zip(&weights) {
            let mean = item[0] * weights[0] + item[1] * weights[1];
            *belief *= if reward == 1.0 { mean } else { 1.0 - mean };
        }
    }
    let whole: f64 = posterior.iter().sum();
    let estimate = informed.estimate(2).unwrap();
    for k in 0..2 {
        let expected: f64 = posterior
            .iter()
            .zip(&weights)
            .map(|(p, w)| p / whole * w[k])
            .sum();
        assert!((estimate[k] - expected).abs() < 1e-12);
    }
    let items = ItemSet::from_rows(2, &[0.1, 0.1, 1.0, 0.0, 0.0, 1.0]).unwrap();
    let best = if estimate[0] > estimate[1] { 1 } else { 2 };
    assert_eq!(informed.recommend(2, &items).unwrap().index, best);
    assert_eq!(informed.cluster_of(2), Some(1));
}

#[test]
fn yardsticks_know_that_users_change() {
    let twists = Twists {
        change_at: Some(1500),
        ..Twists::default()
    };
    let changing = Recipe {
        twists,
        ..recipe(Frequencies::Uniform)
    };
    let runs = Experiment {
        world: Setting::Synthetic(changing),
        policies: vec![Name::ORACLE, Name::INFORMED, Name::LINUCB_IND],
        seeds: vec![4],
        ..experiment(1)
    }
    .run(&())
    .unwrap();
    assert_eq!(
        runs[0].adjusted_rand,
        Some(1.0),
        "of the clusters at the end"
    );
    assert!(runs[1].adjusted_rand > Some(0.5));
    // The second half costs the oracle less than the first: its clusters stay.
    let halves = |run: &Run| {
        let at = |round| run.even_curve.iter().find(|&&(t, _)| t >= round).unwrap().1;
        (at(1500), run.regret - at(1500))
    };
    let (first, second) = halves(&runs[0]);
    assert!(second < first, "{first} {second}");
    let (first, second) = halves(&runs[2]);
    assert!(second > 1.2 * first, "{first} {second}");

    let truth = Synthetic::new(changing, 4)
        .unwrap()
        .truth()
        .unwrap()
        .clone();
    let mut informed = Informed::new(&truth);
    let mut oracle = Oracle::new(6, &truth, &sclub::Params::tuned()).unwrap();
    for round in 0..1500u64 {
        let before = u64::from(truth.cluster_of[7]) + 1;
        assert_eq!(oracle.cluster_of(7), Some(before));
        for policy in [&mut informed as &mut dyn Policy, &mut oracle] {
            policy.learn(round % 40, &[0.3; 6], 1.0).unwrap();
        }
    }
    let later = &truth.changed.as_ref().unwrap().cluster_of;
    assert_eq!(oracle.cluster_of(7), Some(u64::from(later[7]) + 1));
    let fresh = Informed::new(&Truth {
        cluster_of: later.clone(),
        ..truth.clone()
    });
    assert_eq!(informed.estimate(7), fresh.estimate(7));
    // A user who is not in the ground truth belongs to none of its clusters, before and after.
    let unknown = Oracle::new(6, &truth, &sclub::Params::tuned()).unwrap();
    assert_eq!(oracle.cluster_of(40), unknown.cluster_of(40));
    assert!(unknown.cluster_of(40) > Some(4));
}

#[test]
fn a_half_life_pays_where_users_change() {
    const ROUNDS: u64 = 1 << 14;
    let changing = Recipe {
        twists: Twists {
            change_at: Some(ROUNDS / 2),
            ..Twists::default()
        },
        ..recipe(Frequencies::Uniform)
    };
    // Regret after the change, over all seeds.
    let later = |half_life: Option<(String, String)>| {
        let runs = Experiment {
            world: Setting::Synthetic(changing),
            policies: vec![Name::SCLUB_SOFT],
            rounds: ROUNDS,
            given: half_life.into_iter().collect(),
            ..experiment(2)
        };
        let runs = runs.run(&()).unwrap();
        let before = |run: &Run| run.curve[run.curve.len() - 2];
        assert!(runs.iter().all(|run| before(run).0 == ROUNDS / 2));
        runs.iter()
            .map(|run| run.regret - before(run).1)
            .sum::<f64>()
    };
    let (with, without) = (later(Some(("half_life".into(), "50".into()))), later(None));
    assert!(with < 0.8 * without, "{with} {without}");
}

#[test]
fn random_chooses_every_item_equally_often() {
    let mut random = Random::new(2, 8);
    let items = ItemSet::from_rows(2, &[0.5; 10]).unwrap();
    let mut chosen = [0.0; 5];
    for round in 0..20_000u64 {
        chosen[random.recommend(round % 3, &items).unwrap().index] += 1.0;
        random.learn(round % 3, &[0.5, 0.5], 0.0).unwrap();
    }
    assert!(
        chosen
            .iter()
            .all(|count: &f64| (count - 4000.0).abs() < 5.0 * 3200f64.sqrt())
    );
}

#[test]
fn several_users_a_round_are_served_on_the_same_history() {
    let recipe = Recipe {
        users_a_round: Some(7.5),
        ..recipe(Frequencies::Users)
    };
    let world = Synthetic::new(recipe, 4).unwrap();
    // How often each appears in a round, and how many in all.
    let mut block = world.new_block();
    let (mut rounds, mut seen) = (0.0, vec![0.0; 40]);
    for index in 0..200 {
        world.draw(index, world.block_rounds(), &mut block);
        let mut first = 0;
        for &end in &block.ends {
            let together = &block.users[first..end];
            assert!(together.windows(2).all(|pair| pair[0] < pair[1]));
            first = end;
            rounds += 1.0;
        }
        assert_eq!(first, block.len());
        block
            .users
            .iter()
            .for_each(|&user| seen[user as usize] += 1.0);
    }
    for (seen, share) in seen.iter().zip(world.frequencies()) {
        let often = (7.5 * share).min(1.0);
        let deviation = (often * (1.0 - often) * rounds).sqrt();
        assert!((seen - often * rounds).abs() < 5.0 * deviation.max(1.0));
    }
    // Played by hand, serving all of a round before learning from any: the same state, the same regret.
    let run = |seed| {
        Experiment {
            world: Setting::Synthetic(recipe),
            policies: vec![Name::SCLUB, Name::LINUCB_IND],
            seeds: vec![seed],
            rounds: 500,
            ..experiment(2)
        }
        .run(&())
        .unwrap()
    };
    let runs = run(4);
    assert_eq!(bits(&runs), bits(&run(4)));
    let mut policy = sclub::LinUcbInd::new(6, &sclub::Params::tuned()).unwrap();
    let (mut regret, mut served, mut played, mut index) = (0.0, 0, 0, 0);
    while played < 500 {
        world.draw(index, world.block_rounds().min(500 - played), &mut block);
        index += 1;
        let mut first = 0;
        for &end in &block.ends {
            let mut learned = Vec::new();
            for at in first..end {
                let choice = policy.recommend(block.users[at], &block.items[at]).unwrap();
                let item: Vec<f64> = block.items[at].item(choice.index).collect();
                regret += block.best[at] - block.mean(at, choice.index);
                served += 1;
                learned.push((block.users[at], item, block.reward(at, choice.index)));
            }
            let round: Vec<Observation<'_>> = learned
                .iter()
                .map(|(user, item, reward)| Observation::new(*user, item, *reward))
                .collect();
            policy.learn_round(&round, &mut Vec::new()).unwrap();
            first = end;
            played += 1;
        }
    }
    assert_eq!(runs[1].digest, policy.digest());
    assert_eq!((runs[1].rounds, runs[1].served), (500, served));
    assert!((runs[1].regret - regret).abs() < 1e-9);
}

#[test]
fn given_tastes_are_the_users_tastes() {
    let tastes: Vec<Vec<f64>> = (0..5)
        .map(|user| vec![0.1 * f64::from(user), 0.5])
        .collect();
    let recipe = Recipe {
        dim: 2,
        ..recipe(Frequencies::Uniform)
    };
    let world = Synthetic::with_weights(recipe, tastes.clone(), 1).unwrap();
    assert!(world.truth().is_none());
    assert_eq!(world.users(), 5);
    let mut block = world.new_block();
    world.draw(3, 50, &mut block);
    for round in 0..50 {
        let taste = &tastes[block.users[round] as usize];
        for item in 0..10 {
            let x: Vec<f64> = block.items[round].item(item).collect();
            let mean = x[0] * taste[0] + x[1] * taste[1];
            assert!((mean - block.mean(round, item)).abs() < 1e-14);
        }
    }
    let wrong = Synthetic::with_weights(recipe, vec![vec![1.0]], 1).unwrap_err();
    assert!(wrong.to_string().contains("dim"), "{wrong}");
}

#[test]
fn given_tastes_must_give_probabilities_where_rewards_are_bernoulli() {
    let bernoulli = Recipe {
        dim: 2,
        ..recipe(Frequencies::Uniform)
    };
    let refused = |recipe, taste: [f64; 2]| {
        let setting = Setting::Vectors(recipe, Arc::new(vec![vec![0.1, 0.5], taste.to_vec()]));
        setting.check().err().map(|error| error.to_string())
    };
    // The two possible items are (1, 1)/√2 and (−1, 1)/√2.
    for taste in [
        [0.5, 0.5],
        [-0.7, 0.7],
        [0.3, 1.1],
        [0.0, 1.4],
        [0.5, 0.51],
        [0.51, 0.5],
    ] {
        let means = [taste[1] + taste[0], taste[1] - taste[0]].map(|sum| sum / 2f64.sqrt());
        let is_good = means.iter().all(|mean| (0.0..=1.0).contains(mean));
        assert_eq!(refused(bernoulli, taste).is_none(), is_good, "{taste:?}");
    }
    let says = refused(bernoulli, [2.0, 0.5]).unwrap();
    let wanted = "the taste of user 1 gives mean rewards from -1.0607 to 1.7678; the mean of a Bernoulli reward is between \
                  0 and 1";
    assert!(says.starts_with(wanted), "{says}");
    let gaussian = Recipe {
        rewards: Rewards::Gaussian(0.5),
        ..bernoulli
    };
    assert_eq!(refused(gaussian, [2.0, 0.5]), None);
    let mut scaled = bernoulli;
    scaled.twists.reward_scale = 0.25;
    assert_eq!(refused(scaled, [1.0, 2.0]), None);
}

#[test]
fn the_configuration_tells_given_tastes_apart() {
    let data = |tastes: &[[f64; 2]]| {
        let tastes = tastes.iter().map(|taste| taste.to_vec()).collect();
        let recipe = Recipe {
            dim: 2,
            ..recipe(Frequencies::Uniform)
        };
        world_json(&Setting::Vectors(recipe, Arc::new(tastes)))["data"].to_string()
    };
    let some = data(&[[0.1, 0.5], [0.2, 0.5]]);
    assert_eq!(some, data(&[[0.1, 0.5], [0.2, 0.5]]));
    assert_ne!(some, data(&[[0.2, 0.5], [0.1, 0.5]]));
    assert_ne!(some, data(&[[0.1, 0.5], [0.2, 0.6]]));
}
