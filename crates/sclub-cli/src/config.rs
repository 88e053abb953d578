//! What was run, written out for the JSON file.

use anyhow::Result;
use sclub_lab::paper::Switch;
use sclub_lab::policies::usual_deviations;
use sclub_lab::run::Experiment;
use sclub_lab::setting::Setting;
use sclub_lab::world::Rewards;
use serde_json::{Value, json};

/// What was run, for the JSON file.
pub fn config(experiment: &Experiment) -> Result<Value> {
    let params = experiment.params()?;
    let mut config = world_json(&experiment.world);
    let deviations: Vec<&str> = {
        let usual = usual_deviations(experiment.preset);
        let on = experiment.deviations.unwrap_or(usual);
        let names = Switch::ALL.into_iter();
        names
            .filter(|switch| switch.with(on, true) == on)
            .map(|switch| switch.name)
            .collect()
    };
    let rest = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "policies": experiment.policies,
        "rounds": experiment.rounds,
        "seeds": experiment.seeds.len(),
        "first_seed": experiment.seeds.first(),
        "preset": experiment.preset,
        "overrides": experiment.overrides,
        "deviations": deviations,
        "graph": experiment.graph,
        "params": params_json(&params),
        "threads": experiment.threads,
    });
    if let (Some(config), Value::Object(rest)) = (config.as_object_mut(), rest) {
        config.extend(rest);
    }
    Ok(config)
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
fn params_json(params: &sclub_lab::Params) -> Value {
    use sclub_lab::{Exploration, Index};
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
