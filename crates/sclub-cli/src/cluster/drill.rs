//! `sclub cluster backup --drill`: restores a backup into a NATS server of its own, starts a node on it, and compares it with its
//! source.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sclub_server::cluster::nats::NatsBus;
use sclub_server::cluster::{Cluster, hash_of_group};
use sclub_server::ports::free_ports;
use serde::Serialize;
use tokio::runtime::Runtime;

use super::keep::{self, Contents};
use super::up::{MAX_START, find_server, quoted};
use super::{LinkArgs, runtime};
use crate::drill::{
    Compared, DrillArgs, Known, MAX_BACKUPS, NEWER_SNAPSHOT, Process, Unfinished, get, same,
    secret, serve_copy,
};
use crate::files::create_private;

/// The number of looks at a node whose state changes: a fit that was due at the backup takes effect after a start.
const MAX_LOOKS: usize = 20;

/// The time between two looks.
const LOOK: Duration = Duration::from_millis(500);

/// The backup that a drill tries.
#[derive(Debug, Clone, Copy)]
pub enum Source<'a> {
    /// One that there is.
    Folder(&'a Path),
    /// A new one, of a cluster that is running. It is kept in a folder, if there is one.
    Cluster(&'a LinkArgs, Option<&'a Path>),
}

/// The result of a drill.
#[derive(Debug, Serialize)]
struct Drill {
    ok: bool,
    /// The size of the backup.
    bytes: u64,
    partitions: usize,
    events: u64,
    users: u64,
    items: u64,
    /// The state of each partition and of the catalogue.
    groups: BTreeMap<String, Tried>,
    seconds: Seconds,
}

/// The state of a group.
#[derive(Debug, Serialize)]
struct Tried {
    events: u64,
    /// The hash of the state, of the backup and of the copy that was served.
    hash: String,
    #[serde(flatten)]
    compared: Compared,
}

/// The time that each step took.
#[derive(Debug, Default, Serialize)]
struct Seconds {
    backup: f64,
    restore: f64,
    serve: f64,
}

/// Runs a drill and prints its result.
pub fn cluster_drill(source: Source<'_>, args: &DrillArgs) -> Result<ExitCode> {
    let unfinished = Unfinished::default();
    args.run(
        &unfinished,
        |scratch| run(source, args, scratch, &unfinished),
        text,
    )
}

fn text(drill: &Drill) -> String {
    let Seconds {
        backup,
        restore,
        serve,
    } = drill.seconds;
    let groups = drill.groups.iter().map(|(group, tried)| {
        let copies = "in the backup, and in the copy as served";
        let compared = tried.compared.text(tried.events, copies);
        format!("\n{group:<9} {}, {compared}", tried.hash)
    });
    format!(
        "the backup can be restored\n\
         backup    {} bytes, {backup:.1} s\n\
         restore   every checksum is right, {restore:.1} s\n\
         serve     {} partitions, {} events, {} users, {} items, {serve:.1} s{}",
        drill.bytes,
        drill.partitions,
        drill.events,
        drill.users,
        drill.items,
        groups.collect::<String>(),
    )
}

fn run(
    source: Source<'_>,
    args: &DrillArgs,
    scratch: &Path,
    unfinished: &Unfinished,
) -> Result<Drill> {
    if let Source::Folder(folder) = source {
        keep::index(folder)?;
    }
    // Before the backup, which may take long.
    let program = find_server(args.nats_server.as_deref())?;
    let runtime = runtime()?;
    let mut seconds = Seconds::default();

    let begun = Instant::now();
    let (folder, mut compared) = match source {
        Source::Folder(folder) => (folder.to_owned(), BTreeMap::new()),
        Source::Cluster(link, out) => {
            let own = scratch.join("backup");
            let out = out.map_or(own, Path::to_owned);
            let compared = runtime.block_on(take(link, &out, scratch, unfinished))?;
            (out, compared)
        }
    };
    seconds.backup = begun.elapsed().as_secs_f64();

    let begun = Instant::now();
    let mut contents = keep::read(&folder, scratch).context("the backup cannot be restored")?;
    contents.cluster.replicas = 1;
    let groups = contents.states.iter();
    let files = groups.map(|(group, _)| fs::metadata(keep::file_of(&folder, group)));
    let bytes = files
        .map(|file| Ok(file?.len()))
        .sum::<std::io::Result<u64>>()?;
    let nats = Nats::start(&program, &scratch.join("nats"), &runtime)?;
    runtime
        .block_on(keep::make(&nats.bus, &contents))
        .context("the backup cannot be restored")?;
    seconds.restore = begun.elapsed().as_secs_f64();

    let begun = Instant::now();
    let mut groups = BTreeMap::new();
    for (group, restored) in &contents.states {
        let none = || Compared::not("a folder was given");
        let tried = Tried {
            events: restored.state.events(),
            hash: restored.state.hash(),
            compared: compared.remove(group).unwrap_or_else(none),
        };
        groups.insert(group.clone(), tried);
    }
    let items = serve(&nats, &contents, &runtime, scratch)?;
    seconds.serve = begun.elapsed().as_secs_f64();
    drop(nats);
    let partitions = contents.states.iter().map(|(_, restored)| &restored.state);
    let users = partitions.map(|state| state.users().len() as u64).sum();
    Ok(Drill {
        ok: true,
        bytes,
        partitions: contents.cluster.partitions,
        events: groups.values().map(|tried| tried.events).sum(),
        users,
        items,
        groups,
        seconds,
    })
}

/// Takes a backup, and compares each group with its owner. Returns the comparisons.
async fn take(
    link: &LinkArgs,
    out: &Path,
    scratch: &Path,
    unfinished: &Unfinished,
) -> Result<BTreeMap<String, Compared>> {
    let (bus, cluster) = link.join().await?;
    keep::prepare(out)?;
    let (mut last, mut compared) = (BTreeMap::new(), BTreeMap::new());
    for (index, group) in Cluster::streams(cluster.partitions).into_iter().enumerate() {
        let file = keep::file_of(out, &group);
        unfinished.add(file.clone());
        let mut result = None;
        for _ in 0..MAX_BACKUPS {
            let source = hash_of_group(&*bus, index, &group).await;
            last.insert(group.clone(), keep::write(&*bus, &group, out).await?);
            let Some((events, hash)) = source else {
                result = Some(Compared::not("its node did not answer in time"));
                break;
            };
            let source = Known { events, hash };
            result = keep::restore_group(&file, scratch, |data, restored| {
                Compared::with(&format!("{group}: "), source, data, restored.state.events())
            })?;
            if result.is_some() {
                break;
            }
        }
        compared.insert(
            group,
            result.unwrap_or_else(|| Compared::not(NEWER_SNAPSHOT)),
        );
    }
    unfinished.add(out.join(keep::INDEX));
    keep::finish(cluster, last, out)?;
    unfinished.complete();
    Ok(compared)
}

/// A NATS server for the copy, with a password that nobody else has. It is killed at the end.
struct Nats {
    url: String,
    bus: Arc<NatsBus>,
    _process: Process,
}

impl Nats {
    /// Starts a server, and waits until JetStream answers.
    fn start(program: &Path, folder: &Path, runtime: &Runtime) -> Result<Self> {
        let (secret, port) = (secret()?, free_ports(1)?[0]);
        fs::create_dir(folder)?;
        let (config, log): (PathBuf, PathBuf) = (folder.join("nats.conf"), folder.join("log"));
        // Durability is of no use in a throwaway folder.
        let text = format!(
            "server_name: drill\nlisten: 127.0.0.1:{port}\nmax_payload: 8MB\njetstream {{ store_dir: {} }}\n\
             authorization {{ user: drill, password: {secret:?} }}\n",
            quoted(folder),
        );
        std::io::Write::write_all(&mut create_private(&config)?, text.as_bytes())?;
        let mut command = Command::new(program);
        command.arg("-c").arg(&config).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(create_private(&log)?);
        let process = Process::start(&mut command)?;
        let url = format!("nats://drill:{secret}@127.0.0.1:{port}");
        let link = LinkArgs::of(url.clone());
        let begun = Instant::now();
        let bus = loop {
            let failed = match runtime.block_on(link.connect()) {
                Ok(bus) => match runtime.block_on(Cluster::check_absent(&*bus)) {
                    Ok(()) => break bus,
                    Err(error) => error,
                },
                Err(error) => error.to_string(),
            };
            if process.has_ended() || begun.elapsed() > MAX_START {
                let said = fs::read_to_string(&log).unwrap_or_default();
                let last = said.lines().next_back().unwrap_or_default();
                bail!(
                    "the NATS server of the drill does not answer: {failed}; its log ends with: {last}"
                );
            }
            std::thread::sleep(LOOK / 10);
        };
        Ok(Self {
            url,
            bus,
            _process: process,
        })
    }
}

/// Serves the copy by one node, and compares each group with the backup. Returns the number of items.
fn serve(nats: &Nats, contents: &Contents, runtime: &Runtime, scratch: &Path) -> Result<u64> {
    let link = [("SCLUB_CLUSTER", &*nats.url), ("SCLUB_NODE", "drill")];
    let (_node, remote) = serve_copy(&scratch.join("node"), &link)?;
    let mut left: BTreeMap<&str, (u64, String)> = contents
        .states
        .iter()
        .map(|(group, restored)| {
            let known = (restored.position(), restored.state.hash());
            (group.as_str(), known)
        })
        .collect();
    for look in 0.. {
        let served = get(&remote, "/v1/nodes?hash=true")?;
        let mut changed = BTreeMap::new();
        for (group, (position, hash)) in left {
            let served = &served["hashes"][group];
            let at = served["position"].as_u64().unwrap_or_default();
            if at == position {
                let other = served["hash"].as_str().unwrap_or_default();
                let one = format!("{group} of the backup");
                same(&one, &hash, "of the copy as served", other)?;
                continue;
            }
            if at < position || look == MAX_LOOKS {
                bail!(
                    "{group} of the copy as served is at batch {at}, and in the backup at {position}"
                );
            }
            // The node has written a fit: what the files say now is read again.
            let again = scratch.join(format!("again{look}"));
            fs::create_dir_all(&again)?;
            runtime.block_on(keep::write(&*nats.bus, group, &again))?;
            let restored = keep::read_group(&keep::file_of(&again, group), scratch)?;
            changed.insert(group, (restored.position(), restored.state.hash()));
        }
        if changed.is_empty() {
            break;
        }
        left = changed;
        std::thread::sleep(LOOK);
    }
    Ok(get(&remote, "/v1/state")?["items"]
        .as_u64()
        .unwrap_or_default())
}
