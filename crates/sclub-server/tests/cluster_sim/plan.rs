//! The plan of a run, drawn from its seed.

use std::collections::BTreeSet;

use rand::RngExt;
use sclub_server::settings::Settings;

use crate::nats::{Broken, Network};
use crate::seed::{chance, pick, stream};
use crate::seeds::Planned;

/// A kind of trouble that can be left out of a run, to find the smallest run that still fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Lost,
    Unanswered,
    Late,
    Doubled,
    BrokenChannels,
    Slow,
    Cuts,
    Pauses,
    Kills,
    PowerLosses,
    Closes,
    Renames,
    NoMajority,
    Moves,
    Drains,
    Forgetting,
    Compacting,
    Items,
    Batches,
}

impl Kind {
    pub const ALL: [Kind; 19] = [
        Kind::Lost,
        Kind::Unanswered,
        Kind::Late,
        Kind::Doubled,
        Kind::BrokenChannels,
        Kind::Slow,
        Kind::Cuts,
        Kind::Pauses,
        Kind::Kills,
        Kind::PowerLosses,
        Kind::Closes,
        Kind::Renames,
        Kind::NoMajority,
        Kind::Moves,
        Kind::Drains,
        Kind::Forgetting,
        Kind::Compacting,
        Kind::Items,
        Kind::Batches,
    ];
}

/// The plan of a run.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    /// The number of operations of clients after which the run ends.
    pub ops: u64,
    pub without: BTreeSet<Kind>,
    pub settings: Settings,
    pub nodes: usize,
    pub partitions: usize,
    pub standby: usize,
    pub dim: usize,
    pub clients: usize,
    pub users: usize,
    pub items: usize,
    pub network: Network,
    pub broken: Broken,
    /// The maximum number of milliseconds between two operations of a client.
    pub pause: u64,
    /// The maximum number of milliseconds between two faults.
    pub peace: u64,
}

impl Planned for Plan {
    type Kind = Kind;
    const KINDS: &'static [Kind] = &Kind::ALL;
    const BINARY: &'static str = "cluster_sim";

    fn seed(&self) -> u64 {
        self.seed
    }

    fn ops(&self) -> u64 {
        self.ops
    }

    fn without(&self) -> &BTreeSet<Kind> {
        &self.without
    }

    fn changed(&self, ops: u64, without: &BTreeSet<Kind>) -> Self {
        let mut plan = Plan::new(self.seed, ops).leave_out(without);
        plan.broken = self.broken;
        plan
    }
}

impl Plan {
    /// The plan of a seed.
    pub fn new(seed: u64, ops: u64) -> Self {
        let rng = &mut stream(seed, "plan");
        let mut some = |most: f64| match chance(rng, 0.6) {
            true => rng.random_range(0.0..most),
            false => 0.0,
        };
        let network = Network {
            lost: some(0.05),
            unanswered: some(0.05),
            late: some(0.02),
            doubled: some(0.05),
            broken: some(0.02),
            slow: some(0.3),
            delay: 0,
        };
        let network = Network {
            delay: *pick(rng, &[20, 100, 300]),
            ..network
        };
        let dim = rng.random_range(2..=3);
        let partitions = rng.random_range(1..=4);
        let policies: &[&str] = match partitions {
            1 => &["sclub", "sclub-soft", "linucb-ind", "linucb-one"],
            _ => &["sclub-soft", "linucb-ind", "linucb-one"],
        };
        let settings = Settings {
            policy: Some((*pick(rng, policies)).to_owned()),
            lifetime: *pick(rng, &[30, 600, 3600]),
            journal_days: if chance(rng, 0.9) { 90 } else { 0 },
            snapshot_every: rng.random_range(5..=100),
            fit_threads: 1,
            ..Settings::default()
        };
        Plan {
            seed,
            ops,
            without: BTreeSet::new(),
            settings,
            nodes: rng.random_range(3..=4),
            partitions,
            standby: *pick(rng, &[0, 1, 1, 1, 2]),
            dim,
            clients: rng.random_range(2..=5),
            users: rng.random_range(4..=16),
            items: rng.random_range(2..=8),
            network,
            broken: Broken::Nothing,
            pause: *pick(rng, &[100, 400, 1_000]),
            peace: *pick(rng, &[2_000, 6_000, 15_000]),
        }
    }

    /// Leaves kinds out.
    pub fn leave_out(mut self, without: &BTreeSet<Kind>) -> Self {
        self.without.clone_from(without);
        for (kind, probability) in [
            (Kind::Lost, &mut self.network.lost),
            (Kind::Unanswered, &mut self.network.unanswered),
            (Kind::Late, &mut self.network.late),
            (Kind::Doubled, &mut self.network.doubled),
            (Kind::BrokenChannels, &mut self.network.broken),
            (Kind::Slow, &mut self.network.slow),
        ] {
            if without.contains(&kind) {
                *probability = 0.0;
            }
        }
        self
    }

    pub fn has(&self, kind: Kind) -> bool {
        !self.without.contains(&kind)
    }
}
