//! The plan of a run, drawn from its seed: settings, sizes and fault rates.

use std::collections::BTreeSet;

use rand::RngExt;
use sclub_server::settings::{Settings, Span};

use crate::disk::Faults;
use crate::seed::{Rng, chance, pick, stream};
use crate::seeds::Planned;

/// A kind of request or fault that can be left out of a run, to find the smallest run that still fails.
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
    Experiments,
}

impl Kind {
    pub const ALL: [Kind; 20] = [
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
        Kind::Experiments,
    ];
}

/// The plan of a run.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    /// The number of operations after which the run ends.
    pub ops: u64,
    pub without: BTreeSet<Kind>,
    pub settings: Settings,
    /// The length of a file of the log, in bytes.
    pub segment_bytes: u64,
    pub dim: usize,
    pub clients: usize,
    pub users: usize,
    pub items: usize,
    /// True if forgotten users come back under the same id.
    pub users_return: bool,
    pub network: Network,
    /// The faults of the disk, while they are on.
    pub faults: Faults,
    /// True if syncs report success without writing. Then the run must fail.
    pub disk_lies: bool,
    /// The maximum number of milliseconds between two operations of a client.
    pub pause: u64,
    /// The maximum number of milliseconds between two faults.
    pub peace: u64,
}

/// Probabilities for each message.
#[derive(Debug, Clone, Copy)]
pub struct Network {
    pub lost: f64,
    pub doubled: f64,
    /// The client disconnects before the answer.
    pub gives_up: f64,
    /// The maximum delay in milliseconds.
    pub delay: u64,
}

impl Planned for Plan {
    type Kind = Kind;
    const KINDS: &'static [Kind] = &Kind::ALL;
    const BINARY: &'static str = "simulation";

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
        Plan::new(self.seed, ops).leave_out(without)
    }
}

impl Plan {
    /// The plan of a seed.
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
        // The approximate number of operations of clients for each fault.
        let quiet = *pick(rng, &[10, 40, 150]);
        let mut settings = settings(rng, dim);
        let context = &mut stream(seed, "context");
        if chance(context, 0.3) {
            settings.context = ["hour", "device=phone|tv"].map(str::to_owned).to_vec();
            settings.context_mode = Some((*pick(context, &["append", "cross"])).to_owned());
        }
        let unanswered = &mut stream(seed, "unanswered");
        let is_possible = settings.journal_days > 0 && settings.lifetime >= 30;
        if is_possible && chance(unanswered, 0.5) {
            settings.unanswered = Some(0.0);
            settings.after = Span::seconds(*pick(unanswered, &[1, 5, 20]));
        }
        // Larger than any policy accepts: a server refuses such settings, an engine refuses such rewards.
        let most = match chance(&mut stream(seed, "huge rewards"), 0.1) {
            true => 10.0 * sclub::MAX_MAGNITUDE,
            false => settings.reward_max,
        };
        Plan {
            seed,
            ops,
            without: BTreeSet::new(),
            settings: Settings {
                reward_max: most,
                ..settings
            },
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

    /// A plan without faults and without random choices.
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

/// Settings with small limits, so that a short run has snapshots, expiry and fits.
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

/// Fault rates: each kind occurs in some seeds.
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
        max_delay: *pick(rng, &[5, 100, 2_000]),
        lying_sync: 0.0,
    }
}
