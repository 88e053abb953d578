//! Backups of a cluster: a file for each partition and for the catalogue, which `sclub restore` reads too.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use sclub_server::cluster::{Cluster, backup_group};
use sclub_server::engine::{Restored, read_backup};
use sclub_server::env::Env;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::LinkArgs;
use crate::files::{create_private, create_private_folder, print_line};

/// The name of the file that describes a backup. It is written last.
const INDEX: &str = "cluster.json";

/// The description of a backup.
#[derive(Debug, Serialize, Deserialize)]
struct Index {
    #[serde(flatten)]
    cluster: Cluster,
    /// The last batch of each group.
    last: std::collections::BTreeMap<String, u64>,
}

/// The flags of `sclub cluster backup`.
#[derive(Debug, clap::Args)]
pub struct BackupArgs {
    /// Folder for the files; it must be empty or not exist. They contain the key that seals decisions
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    #[command(flatten)]
    link: LinkArgs,
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
pub async fn backup(args: &BackupArgs) -> Result<ExitCode> {
    let (bus, cluster) = args.link.join().await?;
    let cannot = || format!("cannot write {}", args.out.display());
    create_private_folder(&args.out).with_context(cannot)?;
    if fs::read_dir(&args.out)?.next().is_some() {
        bail!("{} is not empty", args.out.display());
    }
    let mut last = std::collections::BTreeMap::new();
    for group in Cluster::streams(cluster.partitions) {
        let path = file_of(&args.out, &group);
        let mut make =
            || Ok(Box::new(BufWriter::new(create_private(&path)?)) as Box<dyn Write + Send>);
        let at = backup_group(&*bus, &group, &mut make)
            .await
            .map_err(|error| anyhow!(error))?;
        let bytes = fs::metadata(&path)?.len();
        print_line(&format!("{group}: up to batch {at}, {bytes} bytes"));
        last.insert(group, at);
    }
    let index = Index { cluster, last };
    let mut file = create_private(&args.out.join(INDEX)).with_context(cannot)?;
    file.write_all(&serde_json::to_vec_pretty(&index)?)
        .with_context(cannot)?;
    print_line(&format!("the backup is in {}", args.out.display()));
    Ok(ExitCode::SUCCESS)
}

fn file_of(folder: &Path, group: &str) -> PathBuf {
    folder.join(format!("{group}.backup"))
}

/// Makes a cluster from a backup.
pub async fn restore(args: &RestoreArgs) -> Result<ExitCode> {
    let index = args.from.join(INDEX);
    let index = fs::read(&index).with_context(|| format!("cannot read {}", index.display()))?;
    let index: Index = serde_json::from_slice(&index).context("cluster.json is damaged")?;
    let mut cluster = index.cluster;
    cluster.replicas = args.replicas.unwrap_or(cluster.replicas);
    let bus = args.link.connect().await?;
    Cluster::check_absent(&*bus)
        .await
        .map_err(|error| anyhow!(error))?;
    let groups = Cluster::streams(cluster.partitions);
    // Everything is read and checked before anything is made.
    let mut states = Vec::new();
    for group in &groups {
        let path = file_of(&args.from, group);
        let mut file =
            File::open(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let scratch = tempfile::tempdir()?;
        let read = read_backup(&Env::real(), &mut file, &scratch.path().join("data"));
        let restored = read.with_context(|| format!("{}", path.display()))?;
        let expected = index.last.get(group).copied().unwrap_or(0);
        if restored.position() != expected {
            bail!(
                "{} ends at batch {}, not {expected}",
                path.display(),
                restored.position()
            );
        }
        states.push(restored);
    }
    let streams: Vec<(String, u64)> = groups
        .iter()
        .zip(&states)
        .map(|(group, restored)| (group.clone(), restored.position() + 1))
        .collect();
    bus.init_from(&streams, cluster.replicas).await?;
    for (group, restored) in groups.iter().zip(&states) {
        put(&*bus, group, restored).await?;
        print_line(&format!("{group}: up to batch {}", restored.position()));
    }
    let Some(identity) = states.first().map(|restored| restored.identity.encode()) else {
        bail!("the backup is empty");
    };
    let env = Env::real();
    let made = cluster.restore(&*bus, &env, identity.into());
    made.await.map_err(|error| anyhow!(error))?;
    print_line("the cluster is made; start nodes with new data folders");
    Ok(ExitCode::SUCCESS)
}

/// Stores the state of a group as a snapshot.
async fn put(
    bus: &dyn sclub_server::cluster::bus::Bus,
    group: &str,
    restored: &Restored,
) -> Result<()> {
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
