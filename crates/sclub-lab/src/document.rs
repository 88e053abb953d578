//! What was run, written out for the JSON file.

use sclub::{Deviations, Exploration, Index, Params};
use serde::Serialize;
use serde_json::{Value, json};

use crate::paper::Switch;
use crate::policies::{InitialGraph, Overrides, Preset, usual_deviations};
use crate::run::Experiment;
use crate::setting::Setting;
use crate::world::Rewards;

/// What was run: in which world, who played, and with which constants.
#[derive(Debug, Clone, PartialEq)]
pub struct Config<'a, N> {
    /// The world, as an object: [`world_json`].
    pub world: Value,
    /// Who played.
    pub policies: &'a [N],
    /// T
    pub rounds: u64,
    /// The worlds' seeds.
    pub seeds: &'a [u64],
    /// Where the constants come from.
    pub preset: Preset,
    /// Constants in place of the preset's.
    pub overrides: Overrides,
    /// The constants in force.
    pub params: Params,
    /// What SCLUB does otherwise than the pseudo-code.
    pub deviations: Deviations,
    /// The graph that CLUB starts from.
    pub graph: InitialGraph,
    /// Threads used.
    pub threads: usize,
}

impl<N: Serialize> Config<'_, N> {
    /// One object of all of it.
    pub fn json(&self) -> Value {
        let deviations: Vec<&str> = Switch::ALL
            .into_iter()
            .filter(|switch| switch.with(self.deviations, true) == self.deviations)
            .map(|switch| switch.name)
            .collect();
        let mut config = self.world.clone();
        let rest = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "policies": self.policies,
            "rounds": self.rounds,
            "seeds": self.seeds.len(),
            "first_seed": self.seeds.first(),
            "preset": self.preset,
            "overrides": self.overrides,
            "deviations": deviations,
            "graph": self.graph,
            "params": params_json(&self.params),
            "threads": self.threads,
        });
        if let (Some(config), Value::Object(rest)) = (config.as_object_mut(), rest) {
            config.extend(rest);
        }
        config
    }
}

/// What was run, for the JSON file.
///
/// # Errors
/// As [`Experiment::params`].
pub fn config(experiment: &Experiment) -> Result<Value, sclub::Error> {
    let config = Config {
        world: world_json(&experiment.world),
        policies: &experiment.policies,
        rounds: experiment.rounds,
        seeds: &experiment.seeds,
        preset: experiment.preset,
        overrides: experiment.overrides,
        params: experiment.params()?,
        deviations: experiment
            .deviations
            .unwrap_or_else(|| usual_deviations(experiment.preset)),
        graph: experiment.graph,
        threads: experiment.threads,
    };
    Ok(config.json())
}

/// What a world is made from, for the JSON file.
pub fn world_json(world: &Setting) -> Value {
    let (name, recipe, users) = match world {
        Setting::Synthetic(recipe) => ("synthetic", recipe, recipe.users),
        Setting::Vectors(recipe, weights) => ("vectors", recipe, weights.len()),
        Setting::Ratings(ratings) => {
            return json!({
                "world": "ratings",
                "dim": ratings.protocol.dim,
                "items": ratings.protocol.candidates,
                "others": ratings.others,
                "feature_scale": ratings.scale,
                "placebo": ratings.placebo,
                "data": format!("{:016x}", ratings.digest),
            });
        }
    };
    let (rewards, noise) = match recipe.rewards {
        Rewards::Bernoulli => ("bernoulli", None),
        Rewards::Gaussian(scale) => ("gaussian", Some(scale)),
    };
    let clusters = matches!(world, Setting::Synthetic(_)).then_some(recipe.clusters);
    json!({
        "world": name,
        "frequencies": recipe.frequencies,
        "users": users,
        "clusters": clusters,
        "dim": recipe.dim,
        "items": recipe.candidates,
        "users_a_round": recipe.users_a_round,
        "rewards": rewards,
        "noise": noise,
        "sizes": recipe.twists.sizes,
        "spread": recipe.twists.spread,
        "reward_scale": recipe.twists.reward_scale,
        "newcomers_every": recipe.twists.newcomers_every,
        "change_at": recipe.twists.change_at,
    })
}

/// The constants in force, whether from the preset or from an override.
fn params_json(params: &Params) -> Value {
    let (beta, beta_scale) = match params.exploration {
        Exploration::Fixed(beta) => (Some(beta), None),
        Exploration::Growing { scale } => (None, Some(scale)),
    };
    let index = match params.index {
        Index::Norm => "norm",
        Index::SquaredNorm => "squared",
    };
    json!({
        "alpha_theta": params.alpha_theta,
        "alpha_p": params.alpha_p,
        "beta": beta,
        "beta_scale": beta_scale,
        "index": index,
    })
}
