//! The settings, one a row.

use crate::catalogue::{self, Shop, Visits};
use crate::paper::synthetic;
use crate::setting::Setting;
use crate::synthetic::{Frequencies, Recipe, Sizes, Twists};
use crate::world::Rewards;

/// A setting without data.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    /// The name of the setting.
    pub name: String,
    /// The flags with which `sclub run` makes the same world.
    pub flags: String,
    pub setting: Setting,
    /// T
    pub rounds: u64,
}

/// The share of a run by whose end all newcomers have come.
const NEWCOMERS_UNTIL: f64 = 0.75;

/// Every synthetic setting, for runs of `rounds` rounds.
pub(super) fn rows(rounds: u64) -> Vec<Row> {
    let default = synthetic(Frequencies::Uniform);
    let mut rows = Vec::new();
    let mut add = |name: String, flags: String, recipe: Recipe| {
        rows.push(Row {
            name,
            flags,
            setting: Setting::Synthetic(recipe),
            rounds,
        });
    };
    for (name, word, frequencies) in [
        ("(1a) users equally often", "uniform", Frequencies::Uniform),
        (
            "(1b) clusters at unequal rates",
            "clusters",
            Frequencies::Clusters,
        ),
        ("(1c) users at unequal rates", "users", Frequencies::Users),
    ] {
        let recipe = synthetic(frequencies);
        add(name.into(), format!("--frequencies {word}"), recipe);
    }
    for clusters in [1, 3, 30, 100] {
        let recipe = Recipe {
            clusters,
            ..default
        };
        add(
            format!("m = {clusters}"),
            format!("--clusters {clusters}"),
            recipe,
        );
    }
    for users in [50, 200, 5000, 20_000] {
        let recipe = Recipe { users, ..default };
        add(format!("n_u = {users}"), format!("--users {users}"), recipe);
    }
    for dim in [5, 10, 40, 64] {
        let recipe = Recipe { dim, ..default };
        add(format!("d = {dim}"), format!("--dim {dim}"), recipe);
    }
    let none = Twists::default();
    let twisted = |twists| Recipe { twists, ..default };
    add(
        "clusters of unequal sizes".into(),
        "--sizes unequal".into(),
        twisted(Twists {
            sizes: Sizes::Unequal,
            ..none
        }),
    );
    for spread in [0.2, 0.4] {
        add(
            format!("spread {spread} inside clusters"),
            format!("--spread {spread}"),
            twisted(Twists { spread, ..none }),
        );
    }
    for noise in [0.1, 0.5, 1.0] {
        let recipe = Recipe {
            rewards: Rewards::Gaussian(noise),
            ..default
        };
        add(
            format!("Gaussian noise {noise}"),
            format!("--rewards gaussian --noise {noise}"),
            recipe,
        );
    }
    add(
        "rare rewards, mean 0.02".into(),
        "--reward-scale 0.04".into(),
        twisted(Twists {
            reward_scale: 0.04,
            ..none
        }),
    );
    let gap = NEWCOMERS_UNTIL * rounds as f64 / default.users as f64;
    add(
        "users come one after the other".into(),
        format!("--newcomers-every {gap}"),
        twisted(Twists {
            newcomers_every: Some(gap),
            ..none
        }),
    );
    rows.extend(shops(rounds));
    rows
}

/// The shops: every item is a candidate, and users are seen a few times each. Runs are no longer than those of
/// `sclub run`: where users come back often, the other rows tell more.
fn shops(rounds: u64) -> impl Iterator<Item = Row> {
    let default = Shop::default();
    let row = move |(name, flags, shop): (&str, &str, Shop)| Row {
        name: name.into(),
        flags: format!("--world catalogue{flags}"),
        setting: Setting::Catalogue(shop),
        rounds: rounds.min(catalogue::DEFAULT_ROUNDS),
    };
    let late = Shop {
        delay: 500,
        ..default
    };
    let zipf = Shop {
        visits: Visits::Zipf,
        ..default
    };
    let lists = Shop {
        slots: 10,
        ..default
    };
    let all = [
        ("catalogue of 3,000 items, cold", "", default),
        ("catalogue, rewards 500 rounds late", " --delay 500", late),
        ("catalogue, Zipf visits", " --visits zipf", zipf),
        ("catalogue, 10 items shown", " --slots 10", lists),
    ];
    all.into_iter().map(row)
}
