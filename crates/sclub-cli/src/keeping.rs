//! `sclub verify`, `backup`, `restore` and `export`: commands on the data of a server.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use sclub_server::api::MISSING_NODES;
use sclub_server::client::ClientError;
use sclub_server::engine::{self, FoldError};
use sclub_server::env::Env;
use sclub_server::store::StoreError;

use crate::drill::{DrillArgs, drill};
use crate::export_items;
use crate::files::{create_private, part_of, prepare_file, print_line};
use crate::left_out;
use crate::progress;
use crate::remote::{Refusal, Remote, TrustArgs, block_on};

/// The flags of `sclub verify`.
#[derive(Debug, clap::Parser)]
pub struct VerifyArgs {
    /// Folder of a server that is not running
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The source of a backup or an export: a folder or a running server.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub struct SourceArgs {
    /// Folder of a server that is not running
    #[arg(long, value_name = "DIR", help_heading = "Server")]
    pub data: Option<PathBuf>,

    /// Address of a running server, such as http://127.0.0.1:8080
    #[arg(long, value_name = "URL", help_heading = "Server")]
    pub url: Option<String>,
}

/// The source of a backup or of a drill.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub struct BackupSourceArgs {
    /// Folder of a server that is not running
    #[arg(long, value_name = "DIR", help_heading = "Server")]
    pub data: Option<PathBuf>,

    /// Address of a running server, such as http://127.0.0.1:8080
    #[arg(long, value_name = "URL", help_heading = "Server")]
    pub url: Option<String>,

    /// Backup that a drill tries, in place of a new one: a file, or the folder of `sclub cluster backup`
    #[arg(long, value_name = "PATH", requires = "drill", help_heading = "Drill")]
    pub from: Option<PathBuf>,
}

/// The flags of `sclub backup`.
#[derive(Debug, clap::Parser)]
pub struct BackupArgs {
    #[command(flatten)]
    pub source: BackupSourceArgs,

    #[command(flatten)]
    pub trust: TrustArgs,

    #[command(flatten)]
    pub drill: DrillArgs,

    /// File to write, complete or not at all
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present = "drill",
        conflicts_with = "from",
        help_heading = "Output"
    )]
    pub out: Option<PathBuf>,

    /// Show no progress
    #[arg(long, short, help_heading = "Output")]
    pub quiet: bool,
}

/// The flags of `sclub restore`.
#[derive(Debug, clap::Parser)]
pub struct RestoreArgs {
    /// File that `sclub backup` wrote
    #[arg(long, value_name = "FILE")]
    pub from: PathBuf,

    /// Folder to create; it must be missing or empty
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
}

/// The flags of `sclub export`.
#[derive(Debug, clap::Parser)]
pub struct ExportArgs {
    #[command(flatten)]
    source: SourceArgs,

    #[command(flatten)]
    trust: TrustArgs,

    /// File to write, complete or not at all [default: the standard output]
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    out: Option<PathBuf>,

    /// Also write the catalogue to this file, as `sclub evaluate --items` reads it
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    items: Option<PathBuf>,

    /// Show no progress
    #[arg(long, short, help_heading = "Output")]
    quiet: bool,
}

/// Checks a folder and prints the state that its events lead to.
pub fn verify(args: &VerifyArgs) -> Result<ExitCode> {
    let code = verify_folder(&args.data, args.json)?;
    left_out::tell_of_folder(&args.data, "was checked", "sclub verify");
    Ok(code)
}

/// Writes a backup.
pub fn backup(args: &BackupArgs) -> Result<ExitCode> {
    let out = match &args.out {
        Some(out) if !args.drill.drill => out,
        _ => return drill(args),
    };
    prepare_file(out)?;
    let bytes = match (&args.source.data, &args.source.url) {
        (Some(data), _) => {
            let bytes = backup_folder(data, out)?;
            left_out::tell_of_folder(data, "is in the backup", "sclub backup");
            bytes
        }
        (None, url) => {
            let remote = Remote::new(url.as_deref().unwrap_or_default(), &args.trust)?;
            let bytes = download(&remote, "/v1/admin/backup", out, args.quiet)?;
            left_out::tell_of_server(&remote, "is in the backup", "sclub backup");
            bytes
        }
    };
    print_line(&format!("{}: {bytes} bytes", out.display()));
    Ok(ExitCode::SUCCESS)
}

/// Makes a folder of a backup.
pub fn restore(args: &RestoreArgs) -> Result<ExitCode> {
    restore_folder(&args.from, &args.data)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes decisions and rewards as JSON lines.
pub fn export(args: &ExportArgs) -> Result<ExitCode> {
    for file in [&args.out, &args.items].into_iter().flatten() {
        prepare_file(file)?;
    }
    if args.out.is_some() && args.out == args.items {
        bail!("--out and --items are the same file; name two");
    }
    match (&args.source.data, &args.source.url) {
        (Some(data), _) => {
            check_folder(data)?;
            write_items(args, |file| export_items::of_folder(data, file))?;
            export_folder(data, args.out.as_deref())?;
        }
        (None, url) => {
            let remote = Remote::new(url.as_deref().unwrap_or_default(), &args.trust)?;
            write_items(args, |file| {
                export_items::of_server(&remote, file, args.quiet)
            })?;
            let path = "/v1/admin/export";
            match &args.out {
                Some(out) => download(&remote, path, out, args.quiet).map(|_| ())?,
                None => print(&remote, path)?,
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Checks that there is a folder with something in it.
fn check_folder(data: &Path) -> Result<()> {
    if !data.is_dir() {
        bail!("there is no folder {}", data.display());
    }
    let is_empty = std::fs::read_dir(data)
        .with_context(|| format!("cannot read {}", data.display()))?
        .next()
        .is_none();
    if is_empty {
        bail!("there is nothing in {}", data.display());
    }
    Ok(())
}

/// An error with a hint how to fix it.
pub fn explained(error: FoldError) -> anyhow::Error {
    match error {
        FoldError::Store(StoreError::InUse(folder)) => anyhow!(
            "{} is in use by a server; stop it first (a copy or an export can also be had with --url)",
            folder.display()
        ),
        other => other.into(),
    }
}

fn verify_folder(data: &Path, json: bool) -> Result<ExitCode> {
    check_folder(data)?;
    let bar = progress::bar(json, None, "{spinner} {human_pos} batches of events");
    let verified = engine::verify(&Env::reading(data), data, &mut |number| {
        bar.set_position(number)
    });
    bar.finish_and_clear();
    let verified = verified.map_err(explained)?;
    if json {
        print_line(&serde_json::to_string(&verified)?);
        return Ok(ExitCode::SUCCESS);
    }
    let origin = match verified.from {
        0 => "the first event".to_owned(),
        from => format!("the snapshot at event {from}"),
    };
    print_line(&format!(
        "{}: all {} bytes in {} files are as they were written\n\
         events    {}, applied again from {origin} on\n\
         rounds    {}\n\
         users     {}\n\
         clusters  {}\n\
         hash      {}{}",
        data.display(),
        verified.bytes,
        verified.files,
        verified.events,
        verified.rounds,
        verified.users,
        verified.clusters,
        verified.hash,
        match verified.snapshots {
            0 => "",
            _ => ", and so says the newest snapshot with the log after it",
        },
    ));
    Ok(ExitCode::SUCCESS)
}

/// Writes a backup of a folder. Returns its length.
pub fn backup_folder(data: &Path, out: &Path) -> Result<u64> {
    check_folder(data)?;
    write_whole(out, |file| {
        engine::backup_folder(&Env::reading(data), data, file).map_err(explained)
    })
}

fn restore_folder(from: &Path, data: &Path) -> Result<()> {
    let file = File::open(from).with_context(|| format!("cannot read {}", from.display()))?;
    let mut file = io::BufReader::with_capacity(1 << 20, file);
    engine::restore(&Env::real(), &mut file, data)?;
    print_line(&format!("{}: restored", data.display()));
    Ok(())
}

/// Writes the file of the catalogue, if one is asked for.
fn write_items(args: &ExportArgs, write: impl FnOnce(&mut dyn Write) -> Result<u64>) -> Result<()> {
    let Some(out) = &args.items else {
        return Ok(());
    };
    let mut count = 0;
    write_whole(out, |file| {
        count = write(file)?;
        Ok(())
    })?;
    // The standard output may be the log.
    if !args.quiet {
        eprintln!("{}: {count} items", out.display());
    }
    Ok(())
}

fn export_folder(data: &Path, out: Option<&Path>) -> Result<()> {
    let env = Env::reading(data);
    match out {
        Some(out) => {
            let mut lines = 0;
            write_whole(out, |file| {
                lines = engine::export_folder(&env, data, file).map_err(explained)?;
                Ok(())
            })?;
            print_line(&format!("{}: {lines} lines", out.display()));
        }
        None => {
            let mut pipe = Pipe(BufWriter::new(io::stdout().lock()));
            engine::export_folder(&env, data, &mut pipe).map_err(explained)?;
            pipe.flush()?;
        }
    }
    Ok(())
}

/// Standard output that ignores `BrokenPipe`: the reader (such as `head`) may have exited.
struct Pipe<W>(W);

impl<W: Write> Write for Pipe<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(bytes.len()),
            other => other,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.0.flush() {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other,
        }
    }
}

/// Writes a file that is there whole or not at all. Returns its length.
fn write_whole(out: &Path, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<u64> {
    // A backup has the key that seals decisions, an export the data of users.
    let part = part_of(out);
    let cannot = || format!("cannot write {}", out.display());
    let written = || -> Result<u64> {
        let mut file =
            BufWriter::with_capacity(1 << 20, create_private(&part).with_context(cannot)?);
        write(&mut file)?;
        let file = file.into_inner().map_err(|error| error.into_error());
        let file = file.with_context(cannot)?;
        file.sync_all().with_context(cannot)?;
        let bytes = file.metadata().with_context(cannot)?.len();
        std::fs::rename(&part, out).with_context(cannot)?;
        Ok(bytes)
    };
    let outcome = written();
    if outcome.is_err() {
        // It may not exist, and the error is reported already.
        let _ = std::fs::remove_file(&part);
    }
    outcome
}

/// Fetches a path into a file, which is there whole or not at all. Returns its length.
pub fn download(remote: &Remote, path: &str, out: &Path, quiet: bool) -> Result<u64> {
    let part = part_of(out);
    let outcome = fetch_file(remote, path, &part, quiet).and_then(|bytes| {
        std::fs::rename(&part, out).with_context(|| format!("cannot write {}", out.display()))?;
        Ok(bytes)
    });
    if outcome.is_err() {
        // It may not exist, and the error is reported already.
        let _ = std::fs::remove_file(&part);
    }
    outcome
}

fn fetch_file(remote: &Remote, path: &str, part: &Path, quiet: bool) -> Result<u64> {
    let cannot = || format!("cannot write {}", part.display());
    let mut file = BufWriter::new(create_private(part).with_context(cannot)?);
    let bar = progress::bar(quiet, None, "{spinner} {bytes}, {bytes_per_sec}");
    let mut bytes = 0;
    block_on(fetch(remote, path, |some| {
        file.write_all(some)?;
        bytes += some.len() as u64;
        bar.inc(some.len() as u64);
        Ok(())
    }))
    .map_err(|error| match error.downcast_ref() {
        Some(ClientError::Sink(_)) => error.context(cannot()),
        _ => error,
    })?;
    bar.finish_and_clear();
    let file = file.into_inner().map_err(|error| error.into_error());
    file.with_context(cannot)?.sync_all().with_context(cannot)?;
    Ok(bytes)
}

/// Fetches a path and writes it to standard output. It is not an error if the reader (such as `head`) exits
/// early.
fn print(remote: &Remote, path: &str) -> Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    let outcome = block_on(fetch(remote, path, |some| out.write_all(some)));
    let flushed = out.flush();
    match outcome {
        Err(error) => match error.downcast_ref() {
            Some(ClientError::Sink(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            _ => Err(error),
        },
        Ok(()) => match flushed {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok(()),
        },
    }
}

/// Fetches a path and passes its body to `sink`.
pub async fn fetch(
    remote: &Remote,
    path: &str,
    sink: impl FnMut(&[u8]) -> io::Result<()>,
) -> Result<()> {
    let mut connection = remote.open().await?;
    let response = connection.download(path, sink).await?;
    if response.is_success() {
        if let Some(warning) = response.header("x-sclub-warning") {
            eprintln!("sclub: {warning}");
        }
        if let Some(nodes) = response.header(MISSING_NODES) {
            eprintln!(
                "sclub: the export is not complete: {nodes} did not take part, and may have decisions that no other node \
                 has. Repeat it when all nodes are running"
            );
        }
        Ok(())
    } else {
        Err(Refusal::of(&response).into())
    }
}
