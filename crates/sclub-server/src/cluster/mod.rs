//! Several servers as one, over NATS JetStream.
//!
//! | | |
//! |---|---|
//! | [`bus`] | what a cluster needs of its messaging system; [`nats`] has it on NATS |
//! | `log`, `snapshots` | the log of a partition is a stream, its snapshots are objects |
//! | [`members`] | the nodes, and the order in which they are to own a partition |
//! | [`node`] | leases: which partitions a node follows and writes |
//! | [`call`], `forward`, `serve` | requests between nodes |
//! | `fitter` | fits over all partitions |

mod backup;
pub mod bus;
pub mod call;
mod export;
mod fitter;
mod forward;
mod log;
pub mod members;
pub mod nats;
pub mod node;
mod serve;
mod snapshots;
mod wait;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

pub use backup::{backup_group, checksum, hash_of_group};
pub use export::{Export, export_all};
pub(crate) use export::{ask_node, ask_node_within, sweep_exports};
pub(crate) use forward::Unanswered;
pub use log::StreamLog;
pub use node::{Node, NodeParts, Tasks, TokioTasks};
pub(crate) use serve::{counts, execute_on_node, recent};
pub use snapshots::ObjectSnapshots;

use crate::env::Env;
use crate::identity::Identity;
use crate::settings::Settings;
use bus::{Bucket, Bus, BusError};

/// The milliseconds after which an entry of a node, or a lease, expires if it is not renewed.
pub const TTL: u64 = 3_000;

/// The default number of partitions.
pub const DEFAULT_PARTITIONS: usize = 16;

/// The maximum number of partitions.
pub const MAX_PARTITIONS: usize = 256;

/// The key of the [`Cluster`], and that of its [`Identity`].
const CLUSTER_KEY: &str = "cluster";
const IDENTITY_KEY: &str = "identity";

/// The facts of a cluster that are fixed when it is made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cluster {
    /// The number of partitions.
    pub partitions: usize,
    /// The number of copies of each stream.
    pub replicas: usize,
    /// The time when it was made, in milliseconds since 1970.
    pub created: u64,
    /// A random number. A cluster that was restored has another one than before: data folders from before have another
    /// history.
    pub life: u64,
    /// The settings that all nodes have in common.
    pub rules: Rules,
}

/// Settings that must be the same on all nodes, because every node validates requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rules {
    /// The minimum reward.
    pub reward_min: f64,
    /// The maximum reward.
    pub reward_max: f64,
    /// The number of seconds for which a decision can be answered.
    pub lifetime: u64,
}

impl Rules {
    fn of(settings: &Settings) -> Self {
        Self {
            reward_min: settings.reward_min,
            reward_max: settings.reward_max,
            lifetime: settings.lifetime,
        }
    }

    /// Applies the rules to the settings of a node. A setting that has its default value counts as not given.
    fn apply(&self, settings: &mut Settings) -> Result<(), String> {
        let default = Settings::default();
        let differs = |name: &str, asked: &dyn std::fmt::Display, has: &dyn std::fmt::Display| {
            format!("{name} is {asked}, and the cluster was made with {has}; omit {name}")
        };
        for (name, asked, default, has) in [
            (
                "reward-min",
                &mut settings.reward_min,
                default.reward_min,
                self.reward_min,
            ),
            (
                "reward-max",
                &mut settings.reward_max,
                default.reward_max,
                self.reward_max,
            ),
        ] {
            if *asked != default && *asked != has {
                return Err(differs(name, asked, &has));
            }
            *asked = has;
        }
        if ![default.lifetime, self.lifetime].contains(&settings.lifetime) {
            return Err(differs("lifetime", &settings.lifetime, &self.lifetime));
        }
        settings.lifetime = self.lifetime;
        Ok(())
    }
}

/// A random number.
fn random(env: &Env) -> Result<u64, String> {
    let mut bytes = [0; 8];
    let filled = env.random.fill(&mut bytes);
    filled.map_err(|error| format!("no random numbers: {error}"))?;
    Ok(u64::from_le_bytes(bytes))
}

impl Cluster {
    /// The names of the streams: one for each partition, and one for the catalogue.
    pub fn streams(partitions: usize) -> Vec<String> {
        let names = (0..partitions).map(|number| format!("p{number}"));
        names.chain(["catalogue".to_owned()]).collect()
    }

    /// Checks that a policy can run on a number of partitions.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub fn check(identity: &Identity, partitions: usize) -> Result<(), String> {
        if !(1..=MAX_PARTITIONS).contains(&partitions) {
            return Err(format!(
                "partitions is {partitions}; it must be from 1 to {MAX_PARTITIONS}"
            ));
        }
        let policy = identity.policy;
        let spread = policy.can.partitions;
        if partitions > 1 && spread == sclub::Partitions::One {
            return Err(format!(
                "policy {} compares users of all partitions with each other, so it runs on one partition \
                 (--partitions 1): replicated, but not spread. Policies that can be spread: {}",
                policy.name,
                spreadable().join(", ")
            ));
        }
        Ok(())
    }

    /// Makes a cluster: its facts, its policy and the key that seals its decisions. The streams and buckets exist.
    ///
    /// # Errors
    /// If it exists already, or the settings are invalid.
    pub async fn init(
        bus: &dyn Bus,
        env: &Env,
        settings: &Settings,
        partitions: usize,
        replicas: usize,
    ) -> Result<Self, String> {
        let identity =
            Identity::new(settings, &*env.random).map_err(|misfit| misfit.to_string())?;
        Self::check(&identity, partitions)?;
        let cluster = Self {
            partitions,
            replicas,
            created: env.clock.wall(),
            life: random(env)?,
            rules: Rules::of(settings),
        };
        cluster.write(bus, identity.encode().into()).await?;
        Ok(cluster)
    }

    /// Writes the facts, then the identity: a cluster without one is unfinished, and can be made again.
    async fn write(&self, bus: &dyn Bus, identity: Bytes) -> Result<(), String> {
        let facts = serde_json::to_vec(self).expect("plain data");
        Self::check_absent(bus).await?;
        let failed = cannot_make;
        let written = bus.put(Bucket::Config, CLUSTER_KEY, facts.into());
        written.await.map_err(failed)?;
        let created = bus.create(Bucket::Config, IDENTITY_KEY, identity);
        created.await.map(drop).map_err(failed)
    }

    /// Checks that there is no cluster yet.
    ///
    /// # Errors
    /// If there is one, or it cannot be found out.
    pub async fn check_absent(bus: &dyn Bus) -> Result<(), String> {
        match bus.get(Bucket::Config, IDENTITY_KEY).await {
            Ok(None) | Err(BusError::Missing(_)) => Ok(()),
            Ok(Some(_)) => Err(cannot_make(BusError::Conflict)),
            Err(error) => Err(cannot_make(error)),
        }
    }

    /// Reads the facts and the identity of a cluster.
    ///
    /// # Errors
    /// If there is none, or this program does not support it.
    pub async fn read(bus: &dyn Bus) -> Result<(Self, Identity), String> {
        let missing = || "there is no such cluster; make it with 'sclub cluster init'".to_owned();
        let facts = match bus.get(Bucket::Config, CLUSTER_KEY).await {
            Err(BusError::Missing(_)) => None,
            other => other.map_err(unreadable)?,
        };
        let facts = facts.ok_or_else(missing)?;
        let identity = bus
            .get(Bucket::Config, IDENTITY_KEY)
            .await
            .map_err(unreadable)?;
        let identity = identity.ok_or_else(missing)?;
        let facts: Self = serde_json::from_slice(&facts.value)
            .map_err(|error| format!("the key {CLUSTER_KEY} is damaged: {error}"))?;
        let identity = Identity::decode(&identity.value).map_err(|misfit| misfit.to_string())?;
        Self::check(&identity, facts.partitions)?;
        Ok((facts, identity))
    }
}

/// The reason why a cluster cannot be read, for the operator.
fn unreadable(error: BusError) -> String {
    match error {
        BusError::NoResponders => "JetStream does not answer: it is off, or the NATS servers have just been started. \
            Every NATS server needs `jetstream { store_dir: \"/var/lib/nats\", sync_interval: always }` in its \
            configuration"
            .to_owned(),
        BusError::Timeout => "JetStream does not answer in time: a majority of the NATS servers must be running, and \
            connected with each other"
            .to_owned(),
        error => format!("the cluster cannot be read: {error}"),
    }
}

fn cannot_make(error: BusError) -> String {
    match error {
        BusError::Conflict => "the cluster exists already".to_owned(),
        error => format!("the cluster cannot be made: {error}"),
    }
}

/// The names of the policies that can run on several partitions.
fn spreadable() -> Vec<&'static str> {
    let all = crate::identity::servable().into_iter();
    all.filter(|spec| spec.can.partitions != sclub::Partitions::One)
        .map(|spec| spec.name)
        .collect()
}
