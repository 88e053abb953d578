//! `sclub cluster`: make a cluster, look at it, move partitions, and try one out.

mod drill;
mod keep;
mod up;

pub use self::drill::{Source, cluster_drill};
pub use self::up::Stop;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{CellAlignment, Table};
use sclub_server::cluster::bus::{Bucket, Bus};
use sclub_server::cluster::members::{
    Lease, Member, Members, drain_key, forget_key, node_key, pin_key,
};
use sclub_server::cluster::nats::{NatsBus, NatsOptions};
use sclub_server::cluster::{Cluster, DEFAULT_PARTITIONS};
use sclub_server::env::Env;
use sclub_server::identity::Identity;
use sclub_server::settings::Settings;
use serde::Serialize;

use crate::files::{count_of, print_line};
use crate::serve::{ClusterSettingArgs, EffectiveSettings, ServeArgs};

/// The commands of `sclub cluster`.
#[derive(Debug, clap::Subcommand)]
pub enum ClusterCommand {
    /// Make a cluster: its streams, its policy and the number of its partitions
    #[command(override_usage = "sclub cluster init --cluster <URL> [OPTIONS]")]
    Init(InitArgs),
    /// Show the nodes, and the owner of each partition
    Status(StatusArgs),
    /// Choose the node that owns a partition
    Move(MoveArgs),
    /// Hand the partitions of a node to others, and keep them away from it
    Drain(DrainArgs),
    /// Forget a node that will not come back, with its journal
    Remove(RemoveArgs),
    /// Write a backup of all partitions, a file for each, or try one
    Backup(keep::BackupArgs),
    /// Make a cluster from a backup
    Restore(keep::RestoreArgs),
    /// Start NATS servers and nodes on this machine, to try a cluster
    Up(up::UpArgs),
}

/// The NATS servers of a cluster.
#[derive(Debug, Clone, clap::Args)]
pub struct LinkArgs {
    /// NATS servers of the cluster, such as nats://a:4222,nats://b:4222
    #[arg(
        long,
        value_name = "URL",
        env = "SCLUB_CLUSTER",
        hide_env_values = true
    )]
    cluster: String,

    /// Name of the cluster
    #[arg(
        long,
        value_name = "NAME",
        env = "SCLUB_CLUSTER_NAME",
        default_value = "sclub"
    )]
    cluster_name: String,

    /// File with credentials for NATS
    #[arg(long, value_name = "FILE", env = "SCLUB_NATS_CREDS")]
    nats_creds: Option<PathBuf>,

    /// File with the certificate authorities of the NATS servers, PEM
    #[arg(long, value_name = "FILE", env = "SCLUB_NATS_CA")]
    nats_ca: Option<PathBuf>,
}

/// The flags of `sclub cluster init`.
#[derive(Debug, clap::Args)]
pub struct InitArgs {
    /// Number of partitions that users are spread over; it cannot be changed later
    #[arg(
        long,
        value_name = "N",
        default_value_t = DEFAULT_PARTITIONS,
        help_heading = "Cluster"
    )]
    partitions: usize,

    /// Number of copies of each stream, at most the number of NATS servers, and at most 5
    #[arg(
        long,
        value_name = "N",
        default_value = "3",
        value_parser = replicas,
        help_heading = "Cluster"
    )]
    replicas: usize,

    #[command(flatten)]
    settings: ClusterSettingArgs,

    /// TOML file with settings of `sclub serve`, of which those above are used
    #[arg(
        long,
        value_name = "FILE",
        env = "SCLUB_CONFIG",
        help_heading = "Configuration"
    )]
    config: Option<PathBuf>,

    /// The arguments that were typed, by name.
    #[arg(skip)]
    given: Vec<String>,
}

/// The number of copies of each stream.
fn replicas(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number @ 1..=5) => Ok(number),
        _ => Err("it must be from 1 to 5".to_owned()),
    }
}

impl ClusterCommand {
    /// Sets the arguments that were typed, by name.
    pub fn set_given(&mut self, given: Vec<String>) {
        if let ClusterCommand::Init(args) = self {
            args.given = given;
        }
    }
}

/// The flags of `sclub cluster status`.
#[derive(Debug, clap::Args)]
pub struct StatusArgs {
    #[command(flatten)]
    link: LinkArgs,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The flags of `sclub cluster move`.
#[derive(Debug, clap::Args)]
pub struct MoveArgs {
    /// Partition, such as p3, or catalogue
    partition: String,

    /// Node that is to own it; without one, the partition goes where the hash puts it
    node: Option<String>,

    #[command(flatten)]
    link: LinkArgs,
}

/// The flags of `sclub cluster drain`.
#[derive(Debug, clap::Args)]
pub struct DrainArgs {
    /// Name of the node
    node: String,

    /// Let the node own partitions again
    #[arg(long)]
    undo: bool,

    #[command(flatten)]
    link: LinkArgs,
}

/// The flags of `sclub cluster remove`.
#[derive(Debug, clap::Args)]
pub struct RemoveArgs {
    /// Name of the node
    node: String,

    #[command(flatten)]
    link: LinkArgs,
}

/// The runtime of a command. It goes on while the command does something else.
fn runtime() -> Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    Ok(builder.worker_threads(2).enable_all().build()?)
}

/// Runs a command of `sclub cluster`.
pub fn cluster(command: ClusterCommand) -> Result<ExitCode> {
    if let ClusterCommand::Backup(args) = &command
        && args.drill.drill
    {
        let source = Source::Cluster(&args.link, args.out.as_deref());
        return cluster_drill(source, &args.drill);
    }
    runtime()?.block_on(async {
        match command {
            ClusterCommand::Init(args) => init(args).await,
            ClusterCommand::Status(args) => status(&args).await,
            ClusterCommand::Move(args) => move_partition(&args).await,
            ClusterCommand::Drain(args) => drain(&args).await,
            ClusterCommand::Remove(args) => remove(&args).await,
            ClusterCommand::Backup(args) => {
                keep::backup(&args.link, &args.out.unwrap_or_default()).await
            }
            ClusterCommand::Restore(args) => keep::restore(&args).await,
            ClusterCommand::Up(args) => up::up(&args).await,
        }
    })
}

impl LinkArgs {
    /// Servers that need nothing but their URL.
    fn of(url: String) -> Self {
        Self {
            cluster: url,
            cluster_name: Settings::default().cluster_name,
            nats_creds: None,
            nats_ca: None,
        }
    }

    async fn connect(&self) -> Result<Arc<NatsBus>> {
        let options = NatsOptions {
            url: self.cluster.clone(),
            cluster: self.cluster_name.clone(),
            creds: self.nats_creds.clone(),
            ca: self.nats_ca.clone(),
        };
        NatsBus::connect(options)
            .await
            .map_err(|error| anyhow!("{error}"))
    }

    /// Connects to a cluster that exists.
    async fn join(&self) -> Result<(Arc<NatsBus>, Cluster)> {
        let bus = self.connect().await?;
        let (cluster, _) = Cluster::read(&*bus).await.map_err(|error| anyhow!(error))?;
        Ok((bus, cluster))
    }
}

async fn init(args: InitArgs) -> Result<ExitCode> {
    let serve = ServeArgs::of_cluster(args.settings, args.config, args.given);
    let settings = EffectiveSettings::new(&serve)?.settings()?;
    let Some(url) = settings.cluster.clone() else {
        bail!("give the NATS servers with --cluster, such as --cluster nats://127.0.0.1:4222");
    };
    let link = LinkArgs {
        cluster: url,
        cluster_name: settings.cluster_name.clone(),
        nats_creds: settings.nats_creds.clone(),
        nats_ca: settings.nats_ca.clone(),
    };
    check(&settings, args.partitions)?;
    let cluster = make(&link, &settings, args.partitions, args.replicas).await?;
    print_line(&format!(
        "cluster {} is made: {}, {} of each. Start nodes with sclub serve --cluster URL",
        link.cluster_name,
        count_of(cluster.partitions, "partition"),
        count_of(cluster.replicas, "copy"),
    ));
    Ok(ExitCode::SUCCESS)
}

/// Checks that a cluster can be made, before anything is made.
fn check(settings: &Settings, partitions: usize) -> Result<()> {
    let identity = Identity::new(settings, &*Env::real().random)?;
    Cluster::check(&identity, partitions).map_err(|error| anyhow!(error))
}

/// Makes a cluster: its streams, then its facts.
async fn make(
    link: &LinkArgs,
    settings: &Settings,
    partitions: usize,
    replicas: usize,
) -> Result<Cluster> {
    let bus = link.connect().await?;
    bus.init(&Cluster::streams(partitions), replicas)
        .await
        .map_err(|error| anyhow!("{error}"))?;
    let made = Cluster::init(&*bus, &Env::real(), settings, partitions, replicas).await;
    made.map_err(|error| anyhow!(error))
}

/// The state of a cluster.
#[derive(Debug, Serialize)]
struct Status {
    name: String,
    partitions: usize,
    replicas: usize,
    nodes: Vec<Member>,
    /// The names of nodes that are not running.
    missing: Vec<String>,
    groups: Vec<GroupStatus>,
}

/// A partition, or the catalogue.
#[derive(Debug, Serialize)]
struct GroupStatus {
    group: String,
    owner: Option<String>,
    /// The last batch of the stream.
    last: Option<u64>,
    users: u64,
    /// The other nodes that follow it, with the batches that they are behind.
    standby: Vec<(String, u64)>,
}

async fn status(args: &StatusArgs) -> Result<ExitCode> {
    let (bus, cluster) = args.link.join().await?;
    let members = Members::read(&*bus);
    let drained = members.drained.clone();
    let leases = bus.entries(Bucket::Leases);
    let mut groups = Vec::new();
    for group in Cluster::streams(cluster.partitions) {
        let last = bus.bounds(&group).await.ok().map(|(_, last)| last);
        let lease = leases.iter().find(|(key, _)| *key == group);
        let owner = lease.and_then(|(_, entry)| serde_json::from_slice::<Lease>(&entry.value).ok());
        let owner = owner.map(|lease| lease.node);
        let parts = members.members.iter();
        let parts: Vec<_> = parts
            .filter_map(|member| Some((&member.name, member.groups.get(&group)?)))
            .collect();
        let standby = parts
            .iter()
            .filter(|(name, _)| Some(*name) != owner.as_ref());
        let standby = standby.map(|(name, part)| {
            let lag = last.unwrap_or(0).saturating_sub(part.position);
            ((*name).clone(), lag)
        });
        groups.push(GroupStatus {
            users: parts.iter().map(|(_, part)| part.users).max().unwrap_or(0),
            standby: standby.collect(),
            owner,
            last,
            group,
        });
    }
    let has_all = groups.iter().all(|group| group.owner.is_some());
    let status = Status {
        name: args.link.cluster_name.clone(),
        partitions: cluster.partitions,
        replicas: cluster.replicas,
        missing: members.missing(),
        nodes: members.members,
        groups,
    };
    if args.json {
        print_line(&serde_json::to_string_pretty(&status)?);
    } else {
        print_line(&text(&status, &drained));
    }
    Ok(match has_all {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(1),
    })
}

fn table(titles: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY).set_header(titles);
    table
}

fn text(status: &Status, drained: &[String]) -> String {
    let mut nodes = table(&["node", "address", "version", "owns", "follows", ""]);
    for node in &status.nodes {
        let owns = status.groups.iter();
        let owns = owns
            .filter(|group| group.owner.as_ref() == Some(&node.name))
            .count();
        let note = match (node.is_draining, drained.contains(&node.name)) {
            (true, _) => "shutting down",
            (_, true) => "drained",
            _ => "",
        };
        nodes.add_row([
            node.name.clone(),
            node.addr.clone(),
            node.version.clone(),
            owns.to_string(),
            (node.groups.len().saturating_sub(owns)).to_string(),
            note.to_owned(),
        ]);
    }
    for name in &status.missing {
        nodes.add_row([name, "", "", "", "", "not running"]);
    }
    let mut groups = table(&[
        "group",
        "owner",
        "last batch",
        "users",
        "standby (batches behind)",
    ]);
    for group in &status.groups {
        let standby: Vec<String> = group
            .standby
            .iter()
            .map(|(name, lag)| format!("{name} ({lag})"))
            .collect();
        groups.add_row([
            group.group.clone(),
            group.owner.clone().unwrap_or_else(|| "NONE".to_owned()),
            group
                .last
                .map_or_else(|| "?".to_owned(), |last| last.to_string()),
            group.users.to_string(),
            standby.join(", "),
        ]);
    }
    for place in [2, 3] {
        if let Some(column) = groups.column_mut(place) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    format!(
        "cluster {}: {}, {} of each stream\n\n{nodes}\n\n{groups}",
        status.name,
        count_of(status.partitions, "partition"),
        count_of(status.replicas, "copy"),
    )
}

async fn move_partition(args: &MoveArgs) -> Result<ExitCode> {
    let (bus, cluster) = args.link.join().await?;
    let group = &args.partition;
    if !Cluster::streams(cluster.partitions).contains(group) {
        bail!(
            "there is no partition '{group}'; use p0 to p{}, or catalogue",
            cluster.partitions - 1
        );
    }
    let key = pin_key(group);
    let Some(node) = &args.node else {
        bus.delete(Bucket::Config, &key, None).await?;
        print_line(&format!("{group} goes where the hash puts it"));
        return Ok(ExitCode::SUCCESS);
    };
    let members = Members::read(&*bus);
    match members.get(node) {
        None => bail!(
            "no node '{node}' is running; those that are: {}",
            names(&members)
        ),
        Some(_) if members.drained.contains(node) => bail!(
            "{node} is drained, so it cannot own {group}; first let it own partitions again: sclub cluster drain {node} \
             --undo"
        ),
        Some(member) if member.is_draining => {
            bail!("{node} is shutting down, so it cannot own {group}")
        }
        Some(_) => {}
    }
    bus.put(Bucket::Config, &key, node.clone().into()).await?;
    let owns = |lease: &Lease| lease.node == *node;
    wait_until(&*bus, group, owns).await?;
    print_line(&format!("{node} owns {group}"));
    Ok(ExitCode::SUCCESS)
}

/// The names of the nodes that are running.
fn names(members: &Members) -> String {
    let names: Vec<&str> = members.members.iter().map(|m| m.name.as_str()).collect();
    match names.is_empty() {
        true => "none".to_owned(),
        false => names.join(", "),
    }
}

/// Waits until the owner of a group satisfies a condition.
async fn wait_until(bus: &dyn Bus, group: &str, is_done: impl Fn(&Lease) -> bool) -> Result<()> {
    const MAX_WAIT: Duration = Duration::from_secs(30);
    let waited = tokio::time::timeout(MAX_WAIT, async {
        loop {
            let leases = bus.entries(Bucket::Leases);
            let lease = leases.iter().find(|(key, _)| key == group);
            let lease = lease.and_then(|(_, entry)| serde_json::from_slice(&entry.value).ok());
            if lease.is_some_and(|lease| is_done(&lease)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    waited
        .await
        .map_err(|_| anyhow!("{group} has not moved within 30 s; see sclub cluster status"))
}

async fn drain(args: &DrainArgs) -> Result<ExitCode> {
    let (bus, cluster) = args.link.join().await?;
    let node = &args.node;
    let key = drain_key(node);
    let members = Members::read(&*bus);
    if members.get(node).is_none()
        && !members.registered.contains(node)
        && !members.drained.contains(node)
    {
        bail!(
            "no node '{node}' has been part of this cluster; running now: {}",
            names(&members)
        );
    }
    if args.undo {
        bus.delete(Bucket::Config, &key, None).await?;
        print_line(&format!("{node} may own partitions again"));
        return Ok(ExitCode::SUCCESS);
    }
    let others = members.members.iter().filter(|member| {
        member.name != *node && !member.is_draining && !members.drained.contains(&member.name)
    });
    if others.count() == 0 {
        bail!("no other node could take the partitions of '{node}'");
    }
    bus.put(Bucket::Config, &key, "".into()).await?;
    for group in Cluster::streams(cluster.partitions) {
        wait_until(&*bus, &group, |lease| lease.node != *node).await?;
    }
    print_line(&format!(
        "{node} owns nothing. To let it own partitions again: sclub cluster drain {node} --undo"
    ));
    Ok(ExitCode::SUCCESS)
}

async fn remove(args: &RemoveArgs) -> Result<ExitCode> {
    let (bus, _) = args.link.join().await?;
    let node = &args.node;
    let members = Members::read(&*bus);
    if members.get(node).is_some() {
        bail!("{node} is running; stop it first");
    }
    if !members.registered.contains(node) {
        bail!("no node '{node}' has been part of this cluster");
    }
    bus.delete(Bucket::Config, &node_key(node), None).await?;
    bus.delete(Bucket::Config, &drain_key(node), None).await?;
    for (key, _) in bus.entries(Bucket::Config) {
        let group = key.rsplit_once('.').map_or("", |(_, group)| group);
        if key == forget_key(node, group) {
            bus.delete(Bucket::Config, &key, None).await?;
        }
    }
    print_line(&format!(
        "{node} is removed. Its data folder may have data of users: delete it"
    ));
    Ok(ExitCode::SUCCESS)
}
