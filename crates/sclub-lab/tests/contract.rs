//! The lab's part of the contract of every policy: its place between `random` and `oracle`. The rest is
//! in the library's `tests/contract`.

use sclub::Preset;
use sclub_lab::policies::{Knowledge, Name, choose};
use sclub_lab::run::{Experiment, Run};
use sclub_lab::setting::Setting;
use sclub_lab::synthetic::{Frequencies, Recipe, Twists};
use sclub_lab::world::Rewards;

/// A small world of setting (1a) of the paper: all users appear equally often. Its size gives every
/// policy enough rounds to learn something, and none enough to learn everything.
fn small() -> Recipe {
    Recipe {
        users: 20,
        clusters: 4,
        dim: 5,
        candidates: 10,
        frequencies: Frequencies::Uniform,
        rewards: Rewards::Bernoulli,
        users_a_round: None,
        twists: Twists::default(),
    }
}

/// The policies that can play a world of clusters.
fn everyone() -> Vec<Name> {
    choose(None, Knowledge::Clusters).unwrap()
}

/// Every policy with the constants of a preset; with its default ones where it does not have the preset.
fn run_all(preset: Preset) -> Vec<Run> {
    let experiment = Experiment {
        world: Setting::Synthetic(small()),
        policies: everyone(),
        rounds: 4000,
        seeds: vec![1, 2, 3],
        preset,
        given: Vec::new(),
        threads: 2,
    };
    experiment.run(&()).unwrap()
}

/// `theory` is among the presets: the assumptions of Theorem 1 follow from the recipe.
#[test]
fn regret_is_between_the_oracles_and_randoms() {
    for preset in Preset::ALL {
        let runs = run_all(preset);
        assert_eq!(runs.len(), 3 * everyone().len());
        for of_seed in runs.chunks(everyone().len()) {
            let regret = |name| {
                of_seed
                    .iter()
                    .find(|run| run.policy == name)
                    .unwrap()
                    .regret
            };
            let (oracle, random) = (regret(Name::ORACLE), regret(Name::RANDOM));
            for run in of_seed {
                let who = format!("{} ({}), seed {}", run.policy, run.preset, run.seed);
                let regret = run.regret;
                assert!(regret <= random, "{who}: {regret}, random: {random}");
                // `informed` knows the clusters' weight vectors, so it may do better than the oracle,
                // which knows the clusters and must learn their vectors.
                let knows_more = run.policy.can.needs_truth;
                assert!(
                    knows_more || regret >= oracle,
                    "{who}: {regret}, oracle: {oracle}"
                );
            }
        }
    }
}
