//! The title and the subtitle of an experiment: the world and the constants in a few words.

use sclub_lab::catalogue::{Link, Shop, Visits};
use sclub_lab::held_out::Others;
use sclub_lab::named::Named;
use sclub_lab::run::{Experiment, Run};
use sclub_lab::setting::Setting;
use sclub_lab::summary::{summarise, thousands};
use sclub_lab::synthetic::{Frequencies, Recipe, Sizes, Twists};

use crate::args::RunArgs;
use crate::choices::dashed;

/// The title of the figure, and its subtitle.
pub fn title(args: &RunArgs, experiment: &Experiment, runs: &[Run]) -> (String, String) {
    let seeds = summarise(runs)[0].seeds;
    let many = if seeds == 1 { "" } else { "s" };
    let rounds = thousands(runs[0].rounds as f64);
    let plural = if runs[0].rounds == 1 { "" } else { "s" };
    let constants = constants(args, experiment);
    let file = args.ratings.as_ref().and_then(|path| path.file_name());
    let file = file.map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    match &experiment.world {
        Setting::Synthetic(recipe) => {
            let title = match recipe.frequencies {
                Frequencies::Uniform => "(1a) Users equally often",
                Frequencies::Clusters => "(1b) Clusters at unequal rates",
                Frequencies::Users => "(1c) Users at unequal rates",
            };
            let subtitle = format!(
                "{} users, {} clusters, d = {}, {}{rounds} round{plural}, {seeds} seed{many}, {constants}",
                recipe.users,
                recipe.clusters,
                recipe.dim,
                twists(recipe),
            );
            (title.into(), subtitle)
        }
        Setting::Vectors(recipe, weights) => {
            let rates = match recipe.frequencies {
                Frequencies::Users => "unequal rates",
                _ => "equal rates",
            };
            let subtitle = format!(
                "{} users, d = {}, {}{rounds} round{plural}, {seeds} seed{many}, {constants}",
                weights.len(),
                recipe.dim,
                twists(recipe),
            );
            (format!("Tastes from {file}, users at {rates}"), subtitle)
        }
        Setting::Ratings(ratings) => {
            let others = match ratings.others {
                Others::Uniform => "others drawn uniformly",
                Others::Popular => "others drawn by popularity",
            };
            let placebo = if ratings.placebo { "PLACEBO, " } else { "" };
            let leaky = match ratings.protocol.others_once {
                true => "",
                false => "others offered again (leaky), ",
            };
            let subtitle = format!(
                "{placebo}{leaky}{} candidates, d = {}, {rounds} round{plural}, {seeds} split{many}, {constants}",
                ratings.protocol.candidates, ratings.protocol.dim,
            );
            (format!("Held-out choices from {file}, {others}"), subtitle)
        }
        Setting::Catalogue(shop) => {
            let subtitle = format!(
                "{} users of {} tastes, d = {}, {}{rounds} round{plural}, {seeds} shop{many}, {constants}",
                thousands(shop.users as f64),
                shop.tastes,
                shop.dim(),
                shop_twists(shop),
            );
            let items = thousands(shop.items as f64);
            (format!("A catalogue of {items} items"), subtitle)
        }
    }
}

/// The differences between a world and the paper's, in a few words.
fn twists(recipe: &Recipe) -> String {
    let Twists {
        sizes,
        spread,
        reward_scale,
        newcomers_every,
        change_at,
        ..
    } = recipe.twists;
    let later = recipe.twists.later_settings().into_iter();
    let later: String = later
        .map(|(name, value)| format!("{name} {value}, "))
        .collect();
    let number = |name: &str, value: f64, default: f64| {
        (value != default).then(|| format!("{name} {value}, "))
    };
    [
        (sizes == Sizes::Unequal).then(|| "sizes unequal, ".into()),
        number("spread", spread, 0.0),
        number("reward-scale", reward_scale, 1.0),
        newcomers_every.map(|gap| format!("newcomers-every {gap}, ")),
        change_at.map(|round| format!("change-at {round}, ")),
        Some(later),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The differences between a shop and the default one, in a few words.
fn shop_twists(shop: &Shop) -> String {
    let default = Shop::default();
    let number = |name: &str, value: f64, default: f64| {
        (value != default).then(|| format!("{name} {value}, "))
    };
    let kinds = |shop: &Shop| (shop.categories, shop.price_bands, shop.numbers);
    [
        (kinds(shop) != kinds(&default)).then(|| {
            let (categories, bands, numbers) = kinds(shop);
            format!("{categories} categories, {bands} price bands, {numbers} numbers, ")
        }),
        number("number-scale", shop.number_scale, default.number_scale),
        number("taste-scale", shop.taste_scale, default.taste_scale),
        number("deviation", shop.deviation, default.deviation),
        (shop.link != default.link).then(|| {
            let Link { kind, scale, bias } = shop.link;
            let sign = if bias < 0.0 { '−' } else { '+' };
            format!("{} link of {scale}θᵀx {sign} {}, ", kind.name(), bias.abs())
        }),
        (shop.visits == Visits::Zipf).then(|| format!("visits zipf {}, ", shop.zipf_exponent)),
        (shop.delay > 0).then(|| format!("rewards {} rounds late, ", thousands(shop.delay as f64))),
        (shop.slots > 1).then(|| format!("{} items shown, ", shop.slots)),
        (shop.newcomers_every).map(|gap| format!("newcomers-every {gap}, ")),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The constants in force, in a few words.
fn constants(args: &RunArgs, experiment: &Experiment) -> String {
    let given = experiment.given.iter();
    let given = given.map(|(name, text)| format!("{} {text}", dashed(name)));
    let mut others: Vec<String> = given.collect();
    if args.feature_scale != 1.0 {
        others.push(format!("feature-scale {}", args.feature_scale));
    }
    let mut policies = experiment.policies.iter();
    let preset = if policies.all(|name| name.has_own_constants()) {
        "constants of their own".into()
    } else {
        format!("constants {}", experiment.preset)
    };
    if others.is_empty() {
        preset
    } else {
        format!("{preset} but {}", others.join(", "))
    }
}
