//! The worlds of the table, one a row.

use crate::catalogue::{self, Shop};
use crate::paper::synthetic;
use crate::setting::Setting;
use crate::synthetic::{CASCADE_SCALE, Frequencies, Recipe, Twists};
use crate::world::Rewards;

/// A family of worlds. `sclub tune` can choose constants for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// The SCLUB paper's world, and variations of it.
    Synthetic,
    /// Lists with the cascade click model.
    Lists,
    /// A shop whose items are all candidates.
    Catalogue,
}

impl Family {
    /// All families.
    pub const ALL: [Family; 3] = [Family::Synthetic, Family::Lists, Family::Catalogue];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Family::Synthetic => "synthetic",
            Family::Lists => "lists",
            Family::Catalogue => "catalogue",
        }
    }
}

/// A world.
#[derive(Debug, Clone, PartialEq)]
pub struct World {
    /// A name without spaces.
    pub name: &'static str,
    /// A description of one line.
    pub title: &'static str,
    /// The policies whose paper or public code has this setting.
    pub own_of: &'static [&'static str],
    /// The flags with which `sclub run` makes the same world.
    pub flags: String,
    /// The family.
    pub family: Family,
    /// The worlds.
    pub setting: Setting,
    /// T
    pub rounds: u64,
}

impl World {
    /// The command that makes the same worlds.
    pub fn command(&self, seeds: &[u64]) -> String {
        let flags = match self.flags.is_empty() {
            true => String::new(),
            false => format!(" {}", self.flags),
        };
        let first = seeds.first().copied().unwrap_or_default();
        format!(
            "sclub run{flags} --rounds {} --first-seed {first} --seeds {}",
            self.rounds,
            seeds.len()
        )
    }
}

/// The share of a run after which users change.
const CHANGE_AT: f64 = 0.5;

/// All worlds, for runs of at most `rounds` rounds.
pub fn worlds(rounds: u64) -> Vec<World> {
    let default = synthetic(Frequencies::Uniform);
    let none = Twists::default();
    let twisted = |twists| Recipe { twists, ..default };
    let low_noise = Rewards::Gaussian(0.1);
    let small = Recipe {
        users: 100,
        clusters: 5,
        dim: 5,
        ..default
    };
    let change_at = (CHANGE_AT * rounds as f64) as u64;
    let half = (0.5 * rounds as f64) as u64;
    let all: Vec<(&str, &str, &[&str], String, Recipe)> = vec![
        (
            "uniform",
            "users equally often: the SCLUB paper's (1a)",
            &["sclub", "club", "dynucb", "bass"],
            String::new(),
            default,
        ),
        (
            "unequal",
            "users at unequal rates: the SCLUB paper's (1c)",
            &["sclub"],
            "--frequencies users".into(),
            synthetic(Frequencies::Users),
        ),
        (
            "spread",
            "users of a cluster differ",
            &[],
            "--spread 0.4".into(),
            twisted(Twists {
                spread: 0.4,
                ..none
            }),
        ),
        (
            "overlap",
            "clusters that overlap, few users and features",
            &["locb"],
            "--users 100 --clusters 5 --dim 5 --overlap 0.6".into(),
            Recipe {
                twists: Twists {
                    overlap: 0.6,
                    ..none
                },
                ..small
            },
        ),
        (
            "misspecified",
            "rewards that are linear up to an error of 0.2; 1,000 fixed items",
            &["rclumb", "rsclumb"],
            "--items-fixed 1000 --misspecified 0.2 --rewards gaussian --noise 0.1".into(),
            Recipe {
                rewards: low_noise,
                twists: Twists {
                    misspecified: 0.2,
                    items_fixed: Some(1000),
                    ..none
                },
                ..default
            },
        ),
        (
            "corrupted",
            "a tenth of the users gives wrong rewards in the first half",
            &[],
            format!("--corrupted 0.1 --corrupted-rounds {half}"),
            twisted(Twists {
                corrupted: 0.1,
                corrupted_rounds: half,
                ..none
            }),
        ),
        (
            "item-clusters",
            "200 fixed items in 4 clusters, users are grouped anew for each",
            &["cab", "cofiba"],
            "--items-fixed 200 --item-clusters 4 --clusters 3".into(),
            Recipe {
                clusters: 3,
                twists: Twists {
                    items_fixed: Some(200),
                    item_clusters: Some(4),
                    ..none
                },
                ..default
            },
        ),
        (
            "change",
            "every user changes to another cluster half way",
            &["dyclu"],
            format!("--change-at {change_at}"),
            twisted(Twists {
                change_at: Some(change_at),
                ..none
            }),
        ),
        (
            "smoothed",
            "items near one plane, with noise of 0.2",
            &["uniclub", "unisclub"],
            "--smoothed 0.2".into(),
            twisted(Twists {
                smoothed: Some(0.2),
                ..none
            }),
        ),
        (
            "servers",
            "40 users at home on 5 servers",
            &["fclub", "dccb"],
            "--users 40 --clusters 4 --dim 10 --items 10 --servers 5".into(),
            Recipe {
                users: 40,
                clusters: 4,
                dim: 10,
                candidates: 10,
                twists: Twists {
                    servers: Some(5),
                    ..none
                },
                ..default
            },
        ),
        (
            "cascade",
            "lists of 4 of 100 items, read up to the first click",
            &["club-cascade"],
            "--items 100 --items-fixed 1000 --cascade 4".into(),
            Recipe {
                candidates: 100,
                twists: Twists {
                    items_fixed: Some(1000),
                    cascade: Some(4),
                    reward_scale: CASCADE_SCALE,
                    ..none
                },
                ..default
            },
        ),
    ];
    let mut worlds: Vec<World> = all
        .into_iter()
        .map(|(name, title, own_of, flags, recipe)| World {
            name,
            title,
            own_of,
            flags,
            family: match recipe.twists.cascade {
                Some(_) => Family::Lists,
                None => Family::Synthetic,
            },
            setting: Setting::Synthetic(recipe),
            rounds,
        })
        .collect();
    let shop = Shop::default();
    let late = Shop { delay: 500, ..shop };
    let lists = Shop { slots: 10, ..shop };
    let shops = [
        (
            "shop",
            "a shop of 3,000 items, cold: users are seen six times",
            "",
            shop,
        ),
        (
            "shop-late",
            "the shop, rewards 500 rounds late",
            " --delay 500",
            late,
        ),
        (
            "shop-lists",
            "the shop, 10 items shown at once",
            " --slots 10",
            lists,
        ),
    ];
    worlds.extend(shops.map(|(name, title, flags, shop)| World {
        name,
        title,
        own_of: &[],
        flags: format!("--world catalogue{flags}"),
        family: Family::Catalogue,
        setting: Setting::Catalogue(shop),
        rounds: rounds.min(catalogue::DEFAULT_ROUNDS),
    }));
    worlds
}

/// Settings of papers and of their public code that are not worlds of the table: larger, longer or easier. Only the policies
/// whose own they are play there, and those that papers compare with. A run has at most four times the rounds of the table's worlds.
pub fn own_settings(rounds: u64) -> Vec<World> {
    let default = synthetic(Frequencies::Uniform);
    let none = Twists::default();
    let changes = Twists {
        change_at: Some(1 << 12),
        ..none
    };
    let world = |name, title, own_of, flags: &str, published: u64, recipe: Recipe| World {
        name,
        title,
        own_of,
        flags: flags.to_owned(),
        family: match recipe.twists.cascade {
            Some(_) => Family::Lists,
            None => Family::Synthetic,
        },
        setting: Setting::Synthetic(recipe),
        rounds: published.min(4 * rounds),
    };
    vec![
        world(
            "uniform-long",
            "the SCLUB paper's (1a), four times as long; the paper has 2^20 rounds",
            &["sclub", "club", "dynucb", "bass"],
            "",
            1 << 20,
            default,
        ),
        world(
            "locb-own",
            "LOCB's public code: 100 users of 5 clusters, 5 features, 2^15 - 1 rounds",
            &["locb"],
            "--users 100 --clusters 5 --dim 5",
            (1 << 15) - 1,
            Recipe {
                users: 100,
                clusters: 5,
                dim: 5,
                ..default
            },
        ),
        world(
            "rclumb-own",
            "RCLUMB's public code: 50 features, error 0.2, 1,000 fixed items",
            &["rclumb", "rsclumb"],
            "--dim 50 --items-fixed 1000 --misspecified 0.2 --rewards gaussian --noise 0.1",
            1 << 16,
            Recipe {
                dim: 50,
                rewards: Rewards::Gaussian(0.1),
                twists: Twists {
                    misspecified: 0.2,
                    items_fixed: Some(1000),
                    ..none
                },
                ..default
            },
        ),
        world(
            "dyclu-own",
            "few users who change: 50 users, 6 features, little noise, a change at round 4,096",
            &["dyclu"],
            "--users 50 --clusters 5 --dim 6 --rewards gaussian --noise 0.1 --change-at 4096",
            1 << 13,
            Recipe {
                users: 50,
                clusters: 5,
                dim: 6,
                rewards: Rewards::Gaussian(0.1),
                twists: changes,
                ..default
            },
        ),
        world(
            "fclub-own",
            "FCLUB's public code: 40 users on 5 servers, 100,000 rounds",
            &["fclub"],
            "--users 40 --clusters 4 --dim 10 --items 10 --servers 5",
            100_000,
            Recipe {
                users: 40,
                clusters: 4,
                dim: 10,
                candidates: 10,
                twists: Twists {
                    servers: Some(5),
                    ..none
                },
                ..default
            },
        ),
        world(
            "cascade-own",
            "CLUB-cascade's public code: 900 users, lists of 4 of 1,000 items, half of all items attractive; it has 10^6 rounds",
            &["club-cascade"],
            "--users 900 --items 1000 --items-fixed 1000 --cascade 4 --reward-scale 1",
            1 << 15,
            Recipe {
                users: 900,
                candidates: 1000,
                twists: Twists {
                    items_fixed: Some(1000),
                    cascade: Some(4),
                    ..none
                },
                ..default
            },
        ),
    ]
}
