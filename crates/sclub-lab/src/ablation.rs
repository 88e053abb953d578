//! `sclub ablate`: `sclub-soft` as it is and with one part off or changed at a time, in a few worlds.
//!
//! All variants play the same worlds, so a difference between two rows of the [`Table`] is due to the part.

mod table;
#[cfg(test)]
mod tests;

use serde::Serialize;

use crate::catalogue::{self, Shop};
use crate::paper::synthetic;
use crate::policies::{self, Entry, Name, Preset};
use crate::robust::Row;
use crate::run::{Observer, Player, RunError, over_seeds, play_all};
use crate::setting::Setting;
use crate::synthetic::{Frequencies, Recipe};

pub use table::{Cell, Column, Table, TableRow};

/// The policy that is taken apart.
pub const POLICY: Name = Name::SCLUB_SOFT;

/// T of the synthetic worlds.
const ROUNDS: u64 = 1 << 17;

/// The policy with one part off or changed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Variant {
    /// The name.
    #[serde(rename = "variant")]
    pub name: &'static str,
    /// The change in a line.
    pub meaning: &'static str,
    /// The flags with which `sclub run` makes the same policy: the constants that differ.
    pub flags: &'static str,
}

const fn variant(name: &'static str, flags: &'static str, meaning: &'static str) -> Variant {
    Variant {
        name,
        meaning,
        flags,
    }
}

/// All variants. The first is the unchanged policy, which the others are compared with.
pub const VARIANTS: [Variant; 12] = [
    variant("as it is", "", "the default constants"),
    variant(
        "no clusters",
        "--constant-clusters false",
        "one Gaussian prior for all users",
    ),
    variant(
        "no draws of the population's mean",
        "--population 0",
        "uncertainty about the population's mean is not explored",
    ),
    variant(
        "a bonus in place of draws",
        "--explore bonus",
        "uncertainty about the population's mean is a bonus",
    ),
    variant(
        "no user-level bonus",
        "--alone 0 --within 0",
        "uncertainty under each hypothesis about a user is not explored",
    ),
    variant(
        "no bonus for disagreement",
        "--between 0 --between-alone 0",
        "disagreement among hypotheses about a user is not explored",
    ),
    variant(
        "clusters trusted at once",
        "--caution 0.001",
        "any gain of the clusters gives them all of the weight",
    ),
    variant(
        "no mixtures from scratch",
        "--colds 0",
        "mixtures are only improved, not searched for again",
    ),
    variant(
        "one mixture",
        "--members 1",
        "only the best mixture is kept",
    ),
    variant(
        "no plain prior",
        "--plain 0",
        "the learned prior alone, however little it is worth",
    ),
    variant(
        "fits half as often",
        "--growth 1.44",
        "a fit is due when the rounds have grown by 1.44 = 1.2²",
    ),
    variant(
        "one EM step",
        "--steps 1",
        "the background is improved by one EM step in a fit",
    ),
];

impl Variant {
    /// The constants of the flags, as [`crate::run::Experiment::given`].
    pub fn given(&self) -> Vec<(String, String)> {
        let words: Vec<&str> = self.flags.split_whitespace().collect();
        let pairs = words.chunks_exact(2);
        let constant = |pair: &[&str]| {
            let name = pair[0].trim_start_matches("--");
            // The flag of a constant that has the name of another flag of `sclub run`.
            let name = name.strip_prefix("constant-").unwrap_or(name);
            (name.replace('-', "_"), pair[1].to_owned())
        };
        pairs.map(constant).collect()
    }

    fn entry(&self, world: &Row) -> Result<Entry, RunError> {
        let assumptions = world.setting.assumptions(world.rounds);
        let setup = world.setting.setup(&assumptions);
        let entries = policies::entries(&[POLICY], Preset::Tuned, &self.given(), &setup)?;
        Ok(entries.into_iter().next().expect("one policy, one entry"))
    }
}

/// The worlds, one a column.
fn worlds(divisor: u64) -> Vec<Row> {
    let synthetic = |name, flags, clusters| {
        let recipe = Recipe {
            clusters,
            ..synthetic(Frequencies::Uniform)
        };
        (name, flags, Setting::Synthetic(recipe), ROUNDS)
    };
    let catalogue = |name, flags, delay| {
        let shop = Shop {
            delay,
            ..Shop::default()
        };
        let setting = Setting::Catalogue(shop);
        (name, flags, setting, catalogue::DEFAULT_ROUNDS)
    };
    let all = [
        synthetic("(1a)", "--frequencies uniform", 10),
        synthetic("every user different", "--clusters 1000", 1000),
        catalogue("catalogue", "--world catalogue", 0),
        catalogue("catalogue, 500 late", "--world catalogue --delay 500", 500),
    ];
    let row = |(name, flags, setting, rounds): (&str, &str, Setting, u64)| {
        let rounds = rounds / divisor;
        Row {
            name: name.into(),
            flags: format!("{flags} --rounds {rounds}"),
            setting,
            rounds,
        }
    };
    all.map(row).into()
}

/// A plan of the runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The worlds' seeds.
    pub seeds: Vec<u64>,
    /// Threads to use.
    pub threads: usize,
    /// The rounds of every world are divided by this.
    pub divisor: u64,
    /// Only the variants, or only the worlds, whose names contain this. The unchanged policy always plays.
    pub only: Option<String>,
}

impl Plan {
    fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|part| name.contains(part))
    }

    /// True if the text of `only` is in the name of a variant or a world.
    pub fn has_match(&self) -> bool {
        VARIANTS.iter().any(|variant| self.wants(variant.name))
            || worlds(1).iter().any(|world| self.wants(&world.name))
    }

    /// The variants to play. If `only` is in none of their names, it is about worlds.
    fn variants(&self) -> Vec<Variant> {
        let [unchanged, changed @ ..] = VARIANTS;
        let is_about_worlds = !VARIANTS.iter().any(|variant| self.wants(variant.name));
        let wanted = changed
            .into_iter()
            .filter(|variant| is_about_worlds || self.wants(variant.name));
        [unchanged].into_iter().chain(wanted).collect()
    }

    /// The worlds to play. If `only` is in none of their names, it is about variants.
    fn worlds(&self) -> Vec<Row> {
        let mut all = worlds(self.divisor);
        if all.iter().any(|world| self.wants(&world.name)) {
            all.retain(|world| self.wants(&world.name));
        }
        all
    }

    /// Rounds to play, over all variants.
    pub fn rounds_to_play(&self) -> u64 {
        let rounds: u64 = self.worlds().iter().map(|world| world.rounds).sum();
        rounds * (self.variants().len() * self.seeds.len()) as u64
    }

    /// Runs every variant in every world. If the observer stops it, only complete seeds are in the table.
    ///
    /// # Errors
    /// [`RunError`].
    pub fn run(&self, observer: &dyn Observer) -> Result<Table, RunError> {
        let (variants, worlds) = (self.variants(), self.worlds());
        let mut entries: Vec<Vec<Entry>> = Vec::new();
        for world in &worlds {
            let of_world = variants.iter().map(|variant| variant.entry(world));
            entries.push(of_world.collect::<Result<_, _>>()?);
        }
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(self.threads)
            .build()?;
        // A job is all variants in one world. The first seed comes first in all worlds, so that an interrupted
        // run has every column.
        let jobs: Vec<u64> = (0..(self.seeds.len() * worlds.len()) as u64).collect();
        let runs = over_seeds(&pool, &jobs, |job| {
            let at = job as usize % worlds.len();
            let seed = self.seeds[job as usize / worlds.len()];
            let world = worlds[at].setting.world(seed)?;
            let mut players = Vec::new();
            for (variant, entry) in entries[at].iter().enumerate() {
                if let Some(policy) = policies::make(entry, &*world, seed, worlds[at].rounds)? {
                    let preset = entry.values.preset();
                    players.push(Player::new((at, variant), preset, policy));
                }
            }
            play_all(&*world, seed, players, worlds[at].rounds, observer)
        })?;
        Ok(Table::new(&self.seeds, &worlds, &variants, &runs))
    }
}
