//! Backups of a cluster: a file for each partition and for the catalogue, which `sclub restore` reads too.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use sclub_server::cluster::bus::Bus;
use sclub_server::cluster::nats::NatsBus;
use sclub_server::cluster::{Cluster, backup_group, checksum};
use sclub_server::engine::{Restored, read_backup};
use sclub_server::env::Env;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::LinkArgs;
use crate::drill::DrillArgs;
use crate::files::{create_private, create_private_folder, print_line};

/// The name of the file that describes a backup. It is written last.
pub const INDEX: &str = "cluster.json";

/// The description of a backup.
#[derive(Debug, Serialize, Deserialize)]
pub struct Index {
    #[serde(flatten)]
    cluster: Cluster,
    /// The last batch of each group.
    last: BTreeMap<String, u64>,
    /// A checksum of the rest; backups of earlier versions have none.
    #[serde(default)]
    checksum: Option<String>,
}

impl Index {
    fn sum(&self) -> Result<String> {
        Ok(checksum(&serde_json::to_vec(&(&self.cluster, &self.last))?))
    }
}

/// What a backup has: the cluster, and the state of each group.
pub struct Contents {
    pub cluster: Cluster,
    pub states: Vec<(String, Restored)>,
}

/// The flags of `sclub cluster backup`.
#[derive(Debug, clap::Args)]
pub struct BackupArgs {
    /// Folder for the files; it must be empty or not exist. They contain the key that seals decisions
    #[arg(long, value_name = "DIR", required_unless_present = "drill")]
    pub out: Option<PathBuf>,

    #[command(flatten)]
    pub drill: DrillArgs,

    #[command(flatten)]
    pub link: LinkArgs,
}

/// The flags of `sclub cluster restore`.
#[derive(Debug, clap::Args)]
pub struct RestoreArgs {
    /// Folder of the backup
    #[arg(long, value_name = "DIR")]
    from: PathBuf,

    /// Number of copies of each stream [default: as in the backup]
    #[arg(long, value_name = "N", value_parser = super::replicas)]
    replicas: Option<usize>,

    #[command(flatten)]
    link: LinkArgs,
}

/// Writes a backup.
pub async fn backup(link: &LinkArgs, out: &Path) -> Result<ExitCode> {
    let (bus, cluster) = link.join().await?;
    prepare(out)?;
    let mut last = BTreeMap::new();
    for group in Cluster::streams(cluster.partitions) {
        let at = write(&*bus, &group, out).await?;
        let bytes = fs::metadata(file_of(out, &group))?.len();
        print_line(&format!("{group}: up to batch {at}, {bytes} bytes"));
        last.insert(group, at);
    }
    finish(cluster, last, out)?;
    print_line(&format!("the backup is in {}", out.display()));
    Ok(ExitCode::SUCCESS)
}

/// Makes the folder of a backup.
pub fn prepare(out: &Path) -> Result<()> {
    let cannot = || format!("cannot write {}", out.display());
    create_private_folder(out).with_context(cannot)?;
    if fs::read_dir(out).with_context(cannot)?.next().is_some() {
        bail!("{} is not empty", out.display());
    }
    Ok(())
}

/// Writes the file of a group. Returns its last batch.
pub async fn write(bus: &dyn Bus, group: &str, out: &Path) -> Result<u64> {
    let path = file_of(out, group);
    let mut make = || Ok(Box::new(BufWriter::new(create_private(&path)?)) as Box<dyn Write + Send>);
    let written = backup_group(bus, group, &mut make).await;
    let at = written.map_err(|error| anyhow!(error))?;
    // The index, which says that the backup is whole, must not be durable before the files are.
    let file = File::options().write(true).open(&path);
    let file = file.and_then(|file| file.sync_all());
    file.with_context(|| format!("cannot write {}", path.display()))?;
    Ok(at)
}

/// Writes the description of a backup, which makes it whole.
pub fn finish(cluster: Cluster, last: BTreeMap<String, u64>, out: &Path) -> Result<()> {
    let mut index = Index {
        cluster,
        last,
        checksum: None,
    };
    index.checksum = Some(index.sum()?);
    let path = out.join(INDEX);
    let cannot = || format!("cannot write {}", path.display());
    let mut file = create_private(&path).with_context(cannot)?;
    file.write_all(&serde_json::to_vec_pretty(&index)?)
        .and_then(|()| file.sync_all())
        .with_context(cannot)
}

/// The file of a group.
pub fn file_of(folder: &Path, group: &str) -> PathBuf {
    folder.join(format!("{group}.backup"))
}

/// Makes a cluster from a backup.
pub async fn restore(args: &RestoreArgs) -> Result<ExitCode> {
    // Everything is read and checked before anything is made.
    let mut contents = read(&args.from, &std::env::temp_dir())?;
    let cluster = &mut contents.cluster;
    cluster.replicas = args.replicas.unwrap_or(cluster.replicas);
    let bus = args.link.connect().await?;
    make(&bus, &contents).await?;
    for (group, restored) in &contents.states {
        print_line(&format!("{group}: up to batch {}", restored.position()));
    }
    print_line("the cluster is made; start nodes with new data folders");
    Ok(ExitCode::SUCCESS)
}

/// Reads the description of a backup.
pub fn index(from: &Path) -> Result<Index> {
    let path = from.join(INDEX);
    let index = fs::read(&path).with_context(|| {
        format!(
            "cannot read {}, which the folder of a whole cluster backup has",
            path.display()
        )
    })?;
    let index: Index = serde_json::from_slice(&index).context("cluster.json is damaged")?;
    let groups = Cluster::streams(index.cluster.partitions);
    let is_known = |group: &String| index.last.contains_key(group);
    if groups.len() != index.last.len() || !groups.iter().all(is_known) {
        bail!(
            "cluster.json is damaged: it names {} partitions and the groups {:?}",
            index.cluster.partitions,
            index.last.keys()
        );
    }
    if let Some(sum) = &index.checksum
        && *sum != index.sum()?
    {
        bail!(
            "cluster.json is damaged: its checksum is {sum}, and that of its contents {}",
            index.sum()?
        );
    }
    Ok(index)
}

/// Reads a backup, by way of a throwaway folder in `scratch`, and checks that its files belong together.
pub fn read(from: &Path, scratch: &Path) -> Result<Contents> {
    let index = index(from)?;
    let mut states: Vec<(String, Restored)> = Vec::new();
    for group in Cluster::streams(index.cluster.partitions) {
        let path = file_of(from, &group);
        let restored = read_group(&path, scratch)?;
        let expected = index.last[&group];
        if restored.position() != expected {
            bail!(
                "{} ends at batch {}, not {expected}",
                path.display(),
                restored.position()
            );
        }
        if let Some((first, other)) = states.first()
            && other.identity != restored.identity
        {
            bail!(
                "{} is of another cluster than {}",
                path.display(),
                file_of(from, first).display()
            );
        }
        states.push((group, restored));
    }
    Ok(Contents {
        cluster: index.cluster,
        states,
    })
}

/// Reads the file of a group.
pub fn read_group(path: &Path, scratch: &Path) -> Result<Restored> {
    restore_group(path, scratch, |_, restored| Ok(restored))
}

/// Reads the file of a group by way of a data folder, and uses both.
pub fn restore_group<T>(
    path: &Path,
    scratch: &Path,
    take: impl FnOnce(&Path, Restored) -> Result<T>,
) -> Result<T> {
    let mut file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let scratch = tempfile::tempdir_in(scratch).context("cannot make a throwaway folder")?;
    let data = scratch.path().join("data");
    let read = read_backup(&Env::real(), &mut file, &data);
    take(&data, read.with_context(|| format!("{}", path.display()))?)
}

/// Makes a cluster.
pub async fn make(bus: &NatsBus, contents: &Contents) -> Result<()> {
    let absent = Cluster::check_absent(bus).await;
    absent.map_err(|error| anyhow!(error))?;
    let Contents { cluster, states } = contents;
    let streams: Vec<(String, u64)> = states
        .iter()
        .map(|(group, restored)| (group.clone(), restored.position() + 1))
        .collect();
    bus.init_from(&streams, cluster.replicas).await?;
    for (group, restored) in states {
        put(bus, group, restored).await?;
    }
    let Some((_, first)) = states.first() else {
        bail!("the backup is empty");
    };
    let (env, identity) = (Env::real(), first.identity.encode());
    let made = cluster.clone().restore(bus, &env, identity.into());
    made.await.map_err(|error| anyhow!(error))?;
    Ok(())
}

/// Stores the state of a group as a snapshot.
async fn put(bus: &dyn Bus, group: &str, restored: &Restored) -> Result<()> {
    const PIECE: usize = 1 << 20;
    let mut bytes = Vec::new();
    restored.state.save(&mut bytes)?;
    let (sender, pieces) = mpsc::channel(2);
    let send = async move {
        for piece in bytes.chunks(PIECE) {
            if sender.send(Ok(piece.to_vec().into())).await.is_err() {
                return;
            }
        }
    };
    let position = restored.position();
    let stored = Cluster::restore_group(bus, group, position, &restored.epochs, pieces);
    let (stored, ()) = tokio::join!(stored, send);
    stored.map_err(|error| anyhow!(error))
}
