//! The configuration of a run, for the JSON file.

use sclub::{Constant, Preset, Range, Value as ConstantValue, Values};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use crate::catalogue::{Shop, Visits};
use crate::named::Named;
use crate::policies::Entry;
use crate::run::{Experiment, RunError};
use crate::setting::Setting;
use crate::streams::{mix, mix_one_more};
use crate::world::Rewards;

/// The configuration of a run: world, policies and constants.
#[derive(Debug, Clone, PartialEq)]
pub struct Config<'a, N> {
    /// The world, as an object: [`world_json`].
    pub world: Value,
    /// The policies.
    pub policies: &'a [N],
    /// T
    pub rounds: u64,
    /// The worlds' seeds.
    pub seeds: &'a [u64],
    /// The preset that the constants come from.
    pub preset: Preset,
    /// Constants in place of the preset's, as [`Experiment::given`].
    pub given: &'a [(String, String)],
    /// The constants in force.
    pub entries: &'a [Entry],
    /// Threads used.
    pub threads: usize,
}

impl<N: Serialize> Config<'_, N> {
    /// One object of all of it.
    pub fn json(&self) -> Value {
        let given = self.given.iter().map(|(name, text)| {
            let mut values = self.entries.iter().map(|entry| &entry.values);
            let value = values.find_map(|values| {
                let constant = values.spec().constant(name)?;
                Some(constant_json(constant, values.get(name)))
            });
            (name.clone(), value.unwrap_or_else(|| json!(text)))
        });
        let constants = self.entries.iter().map(|entry| {
            let name = entry.name.as_str().to_owned();
            (name, constants_json(&entry.values))
        });
        let mut config = self.world.clone();
        let rest = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "policies": self.policies,
            "rounds": self.rounds,
            "seeds": self.seeds.len(),
            "first_seed": self.seeds.first(),
            "preset": self.preset.as_str(),
            "overrides": given.collect::<Map<_, _>>(),
            "constants": constants.collect::<Map<_, _>>(),
            "threads": self.threads,
        });
        if let (Some(config), Value::Object(rest)) = (config.as_object_mut(), rest) {
            config.extend(rest);
        }
        config
    }
}

/// The configuration of an experiment, for the JSON file.
///
/// # Errors
/// As [`Experiment::entries`].
pub fn config(experiment: &Experiment) -> Result<Value, RunError> {
    let config = Config {
        world: world_json(&experiment.world),
        policies: &experiment.policies,
        rounds: experiment.rounds,
        seeds: &experiment.seeds,
        preset: experiment.preset,
        given: &experiment.given,
        entries: &experiment.entries()?,
        threads: experiment.threads,
    };
    Ok(config.json())
}

/// The recipe of a world, for the JSON file.
pub fn world_json(world: &Setting) -> Value {
    let (name, recipe, users) = match world {
        Setting::Synthetic(recipe) => ("synthetic", recipe, recipe.users),
        Setting::Vectors(recipe, weights) => ("vectors", recipe, weights.len()),
        Setting::Ratings(ratings) => {
            let mut world = json!({
                "world": world.kind().name(),
                "dim": ratings.protocol.dim,
                "items": ratings.protocol.candidates,
                "others": ratings.others,
                "feature_scale": ratings.scale,
                "placebo": ratings.placebo,
                "data": format!("{:016x}", ratings.digest),
            });
            if ratings.interactions.has_values() {
                world["rating_values"] = json!(true);
            }
            if let Some(content) = &ratings.content {
                world["item_features"] = json!(content.mode);
            }
            if ratings.protocol.cold_items > 0.0 {
                world["cold_items"] = json!(ratings.protocol.cold_items);
            }
            return world;
        }
        Setting::Catalogue(shop) => return shop_json(shop),
    };
    let (rewards, noise) = match recipe.rewards {
        Rewards::Bernoulli => ("bernoulli", None),
        Rewards::Gaussian(scale) => ("gaussian", Some(scale)),
    };
    let clusters = matches!(world, Setting::Synthetic(_)).then_some(recipe.clusters);
    let mut document = json!({
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
    });
    if let Setting::Vectors(_, weights) = world {
        document["data"] = json!(format!("{:016x}", digest_of(weights)));
    }
    for (name, value) in recipe.twists.later_settings() {
        // Whole numbers are written as such.
        document[name.replace('-', "_")] = match value.fract() == 0.0 {
            true => json!(value as u64),
            false => json!(value),
        };
    }
    document
}

/// A number that tells given tastes apart.
fn digest_of(weights: &[Vec<f64>]) -> u64 {
    let words = weights.iter().flatten().map(|weight| weight.to_bits());
    words.fold(mix(&[weights.len() as u64]), |state, word| {
        mix_one_more(state, &word)
    })
}

fn shop_json(shop: &Shop) -> Value {
    json!({
        "world": "catalogue",
        "items": shop.items,
        "dim": shop.dim(),
        "categories": shop.categories,
        "price_bands": shop.price_bands,
        "numbers": shop.numbers,
        "number_scale": shop.number_scale,
        "users": shop.users,
        "tastes": shop.tastes,
        "taste_scale": shop.taste_scale,
        "deviation": shop.deviation,
        "link": shop.link.kind,
        "link_scale": shop.link.scale,
        "bias": shop.link.bias,
        "visits": shop.visits,
        "zipf_exponent": (shop.visits == Visits::Zipf).then_some(shop.zipf_exponent),
        "delay": shop.delay,
        "slots": shop.slots,
        "newcomers_every": shop.newcomers_every,
    })
}

/// A policy's constants by name.
pub fn constants_json(values: &Values) -> Value {
    let constants = values.iter();
    let constants = constants
        .map(|(constant, value)| (constant.name.to_owned(), constant_json(constant, value)));
    Value::Object(constants.collect())
}

fn constant_json(constant: &Constant, value: ConstantValue) -> Value {
    match (value, constant.range) {
        (ConstantValue::Unset, _) => Value::Null,
        (ConstantValue::Number(number), _) => json!(number),
        (ConstantValue::Flag(flag), _) => json!(flag),
        (ConstantValue::Choice(choice), _) => json!(choice),
        (ConstantValue::Set(set), Range::AnyOf(known)) => {
            let some = known.iter().enumerate();
            let some = some.filter(|(place, _)| set >> place & 1 == 1);
            some.map(|(_, &name)| json!(name)).collect()
        }
        (ConstantValue::Set(set), _) => json!(set),
    }
}

/// Writes a preset by name.
pub(crate) fn preset_text<S: Serializer>(
    preset: &Preset,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(preset.as_str())
}
