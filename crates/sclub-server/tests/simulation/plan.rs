//! What a seed decides beforehand: settings, sizes, and how bad everything is.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use rand::RngExt;
use sclub_server::settings::Settings;

use crate::disk::Faults;
use crate::seed::{Rng, chance, pick, stream};

/// Something that can be left out of a run, to find the smallest one that still fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Crash,
    Kill,
    Close,
    StopAtCall,
    Eio,
    Enospc,
    FullDisk,
    ShortWrites,
    FailedSync,
    SlowDisk,
    ClockJumps,
    BadNetwork,
    GivingUp,
    Forgetting,
    Removing,
    Snapshots,
    Compacting,
    Copies,
    Exports,
}

impl Kind {
    pub const ALL: [Kind; 19] = [
        Kind::Crash,
        Kind::Kill,
        Kind::Close,
        Kind::StopAtCall,
        Kind::Eio,
        Kind::Enospc,
        Kind::FullDisk,
        Kind::ShortWrites,
        Kind::FailedSync,
        Kind::SlowDisk,
        Kind::ClockJumps,
        Kind::BadNetwork,
        Kind::GivingUp,
        Kind::Forgetting,
        Kind::Removing,
        Kind::Snapshots,
        Kind::Compacting,
        Kind::Copies,
        Kind::Exports,
    ];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let mut all = Kind::ALL.into_iter();
        all.find(|kind| kind.to_string() == name)
            .ok_or_else(|| format!("'{name}' is none of {:?}", Kind::ALL))
    }
}

/// Everything about a run that is known before it.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    /// Operations after which the run ends.
    pub ops: u64,
    pub without: BTreeSet<Kind>,
    pub settings: Settings,
    /// Bytes of a file of the log.
    pub segment_bytes: u64,
    pub dim: usize,
    pub clients: usize,
    pub users: usize,
    pub items: usize,
    /// Whether users who were forgotten come back under the same id.
    pub users_return: bool,
    pub network: Network,
    /// Of the disk, while there is a storm.
    pub faults: Faults,
    /// Whether the disk says that it has written and has not. Then promises must be broken.
    pub disk_lies: bool,
    /// Milliseconds between two operations of a client, at most.
    pub pause: u64,
    /// Milliseconds between two disasters, at most.
    pub peace: u64,
}

/// Probabilities for each message.
#[derive(Debug, Clone, Copy)]
pub struct Network {
    pub lost: f64,
    pub doubled: f64,
    /// Who asked goes away while the server works.
    pub gives_up: f64,
    /// Milliseconds, at most.
    pub delay: u64,
}

impl Plan {
    /// What a seed says.
    pub fn new(seed: u64, ops: u64) -> Self {
        let rng = &mut stream(seed, "plan");
        let dim = rng.random_range(2..=4);
        let network = match chance(rng, 0.3) {
            true => Network::PERFECT,
            false => Network {
                lost: rng.random_range(0.0..0.2),
                doubled: rng.random_range(0.0..0.2),
                gives_up: rng.random_range(0.0..0.1),
                delay: *pick(rng, &[5, 50, 500]),
            },
        };
        let clients = rng.random_range(1..=6);
        let pause = *pick(rng, &[1, 10, 50, 300]);
        // So many operations of clients for each disaster, more or less.
        let quiet = *pick(rng, &[10, 40, 150]);
        Plan {
            seed,
            ops,
            without: BTreeSet::new(),
            settings: settings(rng, dim),
            segment_bytes: *pick(rng, &[500, 4_000, 50_000, 64 << 20]),
            dim,
            clients,
            users: rng.random_range(2..=12),
            items: rng.random_range(2..=20),
            users_return: chance(rng, 0.5),
            network,
            faults: faults(rng),
            disk_lies: false,
            pause,
            peace: quiet * (pause + 2 * network.delay) / clients as u64,
        }
    }

    /// Nothing goes wrong by itself, and nothing is drawn.
    pub fn plain(seed: u64, policy: &str) -> Self {
        Plan {
            settings: Settings {
                policy: Some(policy.to_owned()),
                snapshot_every: 1_000,
                fit_threads: 1,
                ..Settings::default()
            },
            dim: 2,
            network: Network::PERFECT,
            faults: Faults::default(),
            ..Plan::new(seed, 0)
        }
    }

    /// Leaves kinds out.
    pub fn leave_out(mut self, without: &BTreeSet<Kind>) -> Self {
        self.without.clone_from(without);
        let is_off = |kind| without.contains(&kind);
        for (kind, probability) in [
            (Kind::Eio, &mut self.faults.eio),
            (Kind::Enospc, &mut self.faults.enospc),
            (Kind::ShortWrites, &mut self.faults.short),
            (Kind::FailedSync, &mut self.faults.failed_sync),
            (Kind::SlowDisk, &mut self.faults.slow),
            (Kind::GivingUp, &mut self.network.gives_up),
        ] {
            if is_off(kind) {
                *probability = 0.0;
            }
        }
        if is_off(Kind::BadNetwork) {
            let gives_up = self.network.gives_up;
            self.network = Network {
                gives_up,
                ..Network::PERFECT
            };
        }
        self
    }

    pub fn has(&self, kind: Kind) -> bool {
        !self.without.contains(&kind)
    }
}

impl Network {
    pub const PERFECT: Network = Network {
        lost: 0.0,
        doubled: 0.0,
        gives_up: 0.0,
        delay: 1,
    };
}

/// Small numbers everywhere, so that a short run sees snapshots, expiry and fits.
fn settings(rng: &mut Rng, dim: usize) -> Settings {
    let policy = *pick(rng, &["sclub", "sclub-soft", "linucb-ind", "linucb-one"]);
    let (reward_min, reward_max) = *pick(rng, &[(0.0, 1.0), (-1.0, 1.0), (0.0, 5.0)]);
    Settings {
        policy: Some(policy.to_owned()),
        dim: chance(rng, 0.5).then_some(dim),
        reward_min,
        reward_max,
        lifetime: *pick(rng, &[1, 30, 600, 3600]),
        journal_days: if chance(rng, 0.8) { 90 } else { 0 },
        snapshot_every: rng.random_range(5..=200),
        fit_threads: 1,
        ..Settings::default()
    }
}

/// Of a storm: each kind is there in some seeds.
fn faults(rng: &mut Rng) -> Faults {
    let mut some = |most: f64| match chance(rng, 0.5) {
        true => rng.random_range(0.0..most),
        false => 0.0,
    };
    Faults {
        eio: some(0.2),
        enospc: some(0.2),
        short: some(0.5),
        failed_sync: some(0.3),
        slow: some(0.3),
        slow_most: *pick(rng, &[5, 100, 2_000]),
        lying_sync: 0.0,
    }
}
