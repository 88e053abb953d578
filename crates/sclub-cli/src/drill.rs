//! `sclub backup --drill`: restores a backup into a throwaway folder, serves it, and compares it with its source.
//! `crate::cluster::drill` does the same for a cluster.

use std::fs::File;
use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sclub_server::engine::{self, Verified};
use sclub_server::env::Env;
use serde::Serialize;
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::oneshot;

use crate::cluster::{Source, Stop, cluster_drill};
use crate::files::{part_of, prepare_file, print_line};
use crate::keeping::{BackupArgs, backup_folder, download, explained, fetch};
use crate::left_out;
use crate::remote::{Remote, TrustArgs, block_on, call};
use crate::serve::KEYS;

/// The maximum number of starts of the copy. A fit that was due at the backup takes effect after a start, and changes the hash.
const MAX_STARTS: usize = 5;

/// The number of backups of a running server, or of a group of a cluster, that are taken until none of its events came in between.
pub const MAX_BACKUPS: usize = 3;

/// The time to remove the throwaway folder of a drill that is interrupted.
const MAX_REMOVAL: Duration = Duration::from_secs(5);
/// The time to wait for the thread of a drill that is interrupted. It may be in the middle of a long download.
const MAX_END: Duration = Duration::from_secs(1);

/// The files of a backup that is not complete. They have the data of users, so they are removed if the drill fails or is interrupted.
#[derive(Debug, Default)]
pub struct Unfinished(Mutex<Vec<PathBuf>>);

impl Unfinished {
    /// Adds a file, before it is made.
    pub fn add(&self, file: PathBuf) {
        lock(&self.0).push(file);
    }

    /// The backup is complete: its files stay.
    pub fn complete(&self) {
        lock(&self.0).clear();
    }

    /// Removes the files. No other one can be added while the guard lives.
    fn remove(&self) -> MutexGuard<'_, Vec<PathBuf>> {
        let mut files = lock(&self.0);
        for file in files.drain(..) {
            // There is none if it was not begun, or has its final name.
            let _ = std::fs::remove_file(file);
        }
        files
    }
}

/// The result of a drill.
#[derive(Debug, Serialize)]
struct Drill {
    ok: bool,
    /// The size of the backup.
    bytes: u64,
    events: u64,
    rounds: u64,
    users: u64,
    clusters: u64,
    items: u64,
    /// The number of lines of the copy's export.
    export_lines: u64,
    /// The hash of the state, of the files of the copy and of the copy that was served.
    hash: String,
    /// The hash of the source; `None` if there is no source, or it has learned meanwhile.
    source_hash: Option<String>,
    seconds: Seconds,
}

/// The time that each step took.
#[derive(Debug, Default, Serialize)]
struct Seconds {
    backup: f64,
    restore: f64,
    verify: f64,
    serve: f64,
}

/// A state, by what two copies of it have in common.
#[derive(Debug, PartialEq)]
struct Known {
    events: u64,
    hash: String,
}

/// The flags of a drill.
#[derive(Debug, clap::Args)]
pub struct DrillArgs {
    /// Try the backup: restore it into a throwaway folder, serve that, and compare hashes of the state. Without --out the backup
    /// is removed afterwards
    #[arg(long, help_heading = "Drill")]
    pub drill: bool,

    /// Folder in which the throwaway folder is made; it must have room for the backup twice [default: that of the system]
    #[arg(long, value_name = "DIR", requires = "drill", help_heading = "Drill")]
    scratch: Option<PathBuf>,

    /// Print the result of the drill as JSON
    #[arg(long, requires = "drill", help_heading = "Drill")]
    pub json: bool,

    /// The program nats-server, for the backup of a cluster [default: SCLUB_NATS_SERVER, or the one on the path]
    #[arg(
        long,
        value_name = "FILE",
        env = "SCLUB_NATS_SERVER",
        hide_env = true,
        help_heading = "Drill"
    )]
    pub nats_server: Option<PathBuf>,
}

impl DrillArgs {
    /// Runs a drill in a throwaway folder, and prints its result. If this process is told to end, the processes of the drill end,
    /// and the folder and the files of an unfinished backup are removed.
    pub fn run<T: Serialize + Send>(
        &self,
        unfinished: &Unfinished,
        drill: impl FnOnce(&Path) -> Result<T> + Send,
        text: fn(&T) -> String,
    ) -> Result<ExitCode> {
        let done = thread::scope(|threads| {
            block_on(async {
                let mut stop = Stop::listen()?;
                let scratch = self.scratch()?;
                let folder = scratch.path().to_owned();
                let (send, mut done) = oneshot::channel();
                threads.spawn(move || send.send(drill(&folder)).is_ok());
                tokio::select! {
                    done = &mut done => {
                        let done = done.context("a bug in the drill: its thread has panicked")?;
                        if done.is_err() {
                            drop(unfinished.remove());
                        }
                        let removed = scratch.close().context("cannot remove the throwaway folder");
                        done.and_then(|done| removed.map(|()| done))
                    }
                    () = stop.requested() => {
                        let stopped = stop_drill(scratch.path());
                        // All that it does fails now, so its thread ends and makes no file anew.
                        let _ = tokio::time::timeout(MAX_END, done).await;
                        let _guard = unfinished.remove();
                        let removed = stopped.and_then(|aside| remove(scratch.path(), &aside));
                        let interrupted = removed.and_then(|()| bail!("the drill was interrupted"));
                        match self.print(interrupted, text) {
                            Ok(_) => {}
                            Err(error) => eprintln!("sclub: {error:#}"),
                        }
                        std::process::exit(1);
                    }
                }
            })
        });
        self.print(done, text)
    }

    /// Makes the throwaway folder. It is removed when it is dropped.
    fn scratch(&self) -> Result<TempDir> {
        let mut maker = tempfile::Builder::new();
        maker.prefix("sclub-drill-");
        #[cfg(unix)]
        maker.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700));
        let scratch = match &self.scratch {
            Some(folder) => maker.tempdir_in(folder),
            None => maker.tempdir(),
        };
        scratch.context("cannot make a throwaway folder; --scratch names another place")
    }

    /// Prints the result of a drill.
    fn print<T: Serialize>(&self, done: Result<T>, text: fn(&T) -> String) -> Result<ExitCode> {
        if !self.json {
            print_line(&text(&done?));
            return Ok(ExitCode::SUCCESS);
        }
        let (line, code) = match &done {
            Ok(drill) => (serde_json::to_string(drill)?, ExitCode::SUCCESS),
            Err(error) => {
                let error = format!("{error:#}");
                let line = serde_json::json!({"ok": false, "error": error});
                (line.to_string(), ExitCode::FAILURE)
            }
        };
        print_line(&line);
        Ok(code)
    }
}

/// Ends the processes of a drill that is still running, and puts an empty file into the place of its folder, so that the drill
/// can make nothing there. Returns the new path of the folder.
fn stop_drill(scratch: &Path) -> Result<PathBuf> {
    let all = lock(&PROCESSES);
    all.iter().for_each(|process| end(process));
    // No other process is started from here on.
    std::mem::forget(all);
    let mut aside = scratch.as_os_str().to_owned();
    aside.push("-removed");
    let aside = PathBuf::from(aside);
    let begun = Instant::now();
    loop {
        let _ = std::fs::rename(scratch, &aside);
        match File::create_new(scratch) {
            Ok(_) => return Ok(aside),
            // The drill has made the folder anew in this moment.
            Err(_) if begun.elapsed() < MAX_REMOVAL => {
                let _ = std::fs::remove_dir_all(&aside);
            }
            Err(error) => {
                let folder = scratch.display();
                return Err(error).with_context(|| {
                    format!("the drill was interrupted; {folder} cannot be removed")
                });
            }
        }
    }
}

/// Removes the files of a drill that was stopped: the folder `aside`, and the file in its place.
fn remove(scratch: &Path, aside: &Path) -> Result<()> {
    let removed = std::fs::remove_dir_all(aside).and_then(|()| std::fs::remove_file(scratch));
    let folder = aside.display();
    removed.with_context(|| format!("the drill was interrupted; {folder} cannot be removed"))
}

/// Runs a drill and prints its result.
pub fn drill(args: &BackupArgs) -> Result<ExitCode> {
    match &args.source.from {
        Some(from) if from.is_dir() => cluster_drill(Source::Folder(from), &args.drill),
        _ => {
            let unfinished = Unfinished::default();
            if let Some(out) = &args.out {
                unfinished.add(part_of(out));
            }
            args.drill
                .run(&unfinished, |scratch| run(args, scratch), text)
        }
    }
}

fn text(drill: &Drill) -> String {
    let Seconds {
        backup,
        restore,
        verify,
        serve,
    } = drill.seconds;
    let source = match drill.source_hash {
        Some(_) => "the same in the source, in the files of the copy, and in the copy as served",
        None => {
            "the same in the files of the copy and in the copy as served; not compared with a source"
        }
    };
    format!(
        "the backup can be restored\n\
         backup    {} bytes, {backup:.1} s\n\
         restore   every checksum is right, {restore:.1} s\n\
         verify    {} events, {} rounds, {} users, {} clusters, {verify:.1} s\n\
         serve     {} items, {} lines of export, {serve:.1} s\n\
         hash      {}, {source}",
        drill.bytes,
        drill.events,
        drill.rounds,
        drill.users,
        drill.clusters,
        drill.items,
        drill.export_lines,
        drill.hash,
    )
}

fn run(args: &BackupArgs, scratch: &Path) -> Result<Drill> {
    let mut seconds = Seconds::default();
    let begun = Instant::now();
    let (file, source) = backup(args, scratch)?;
    seconds.backup = begun.elapsed().as_secs_f64();
    let cannot_read = || format!("cannot read {}", file.display());
    let bytes = std::fs::metadata(&file).with_context(cannot_read)?.len();

    let begun = Instant::now();
    let copy = scratch.join("copy");
    let opened = File::open(&file).with_context(cannot_read)?;
    let mut opened = io::BufReader::with_capacity(1 << 20, opened);
    engine::restore(&Env::real(), &mut opened, &copy).context("the backup cannot be restored")?;
    seconds.restore = begun.elapsed().as_secs_f64();

    let begun = Instant::now();
    let first = verify(&copy)?;
    seconds.verify = begun.elapsed().as_secs_f64();
    let source_hash = match source {
        Some(source) => compare("", (source.events, source.hash), first.events, &first.hash)?,
        None => None,
    };

    let begun = Instant::now();
    let mut verified = first.clone();
    let mut starts = 0;
    let served = loop {
        let served = serve(&copy)?;
        starts += 1;
        if served.known.events == verified.events {
            same(
                "the files",
                &verified.hash,
                "the copy as served",
                &served.known.hash,
            )?;
            break served;
        }
        if served.known.events < verified.events || starts == MAX_STARTS {
            bail!(
                "the copy as served has {} events, and its files have {}",
                served.known.events,
                verified.events
            );
        }
        verified = verify(&copy)?;
    };
    seconds.serve = begun.elapsed().as_secs_f64();
    Ok(Drill {
        ok: true,
        bytes,
        events: first.events,
        rounds: first.rounds,
        users: first.users,
        clusters: first.clusters,
        items: served.items,
        export_lines: served.export_lines,
        hash: first.hash,
        source_hash,
        seconds,
    })
}

/// Compares a source, by its number of events and its hash, with its backup. Returns the hash, or `None` if the backup has an event
/// more: one was written to the log, and was not yet part of the state.
pub fn compare(
    group: &str,
    source: (u64, String),
    events: u64,
    hash: &str,
) -> Result<Option<String>> {
    let (at, of_source) = source;
    if at > events {
        bail!("{group}the source has {at} events, and the backup has {events}");
    }
    if at < events {
        return Ok(None);
    }
    same(
        &format!("{group}the source"),
        &of_source,
        "the backup",
        hash,
    )?;
    Ok(Some(of_source))
}

/// Compares two hashes.
pub fn same(one: &str, hash: &str, other: &str, other_hash: &str) -> Result<()> {
    if hash != other_hash {
        bail!("{one} and {other} differ: their hashes are {hash} and {other_hash}");
    }
    Ok(())
}

fn verify(data: &Path) -> Result<Verified> {
    engine::verify(&Env::reading(data), data, &mut |_| {})
        .map_err(explained)
        .context("the restored folder is damaged")
}

/// The file of the backup, which is taken first unless it is given, and the state of its source.
fn backup(args: &BackupArgs, scratch: &Path) -> Result<(PathBuf, Option<Known>)> {
    if let Some(from) = &args.source.from {
        return Ok((from.clone(), None));
    }
    let file = match &args.out {
        Some(out) => {
            prepare_file(out)?;
            out.clone()
        }
        None => scratch.join("backup"),
    };
    if let Some(data) = &args.source.data {
        let verified = engine::verify(&Env::reading(data), data, &mut |_| {}).map_err(explained)?;
        backup_folder(data, &file)?;
        left_out::tell_of_folder(data, "was tried", "sclub backup --drill");
        let Verified { events, hash, .. } = verified;
        return Ok((file, Some(Known { events, hash })));
    }
    let remote = Remote::new(args.source.url.as_deref().unwrap_or_default(), &args.trust)?;
    left_out::tell_of_server(&remote, "is tried", "sclub backup --drill");
    for _ in 0..MAX_BACKUPS {
        let before = known(&remote)?;
        download(&remote, "/v1/admin/backup", &file, args.quiet)?;
        if known(&remote)? == before {
            return Ok((file, Some(before)));
        }
    }
    Ok((file, None))
}

/// The state of a running server.
fn known(remote: &Remote) -> Result<Known> {
    let state = get(remote, "/v1/state?hash=true")?;
    let known = (state["events"].as_u64(), state["hash"].as_str());
    let (Some(events), Some(hash)) = known else {
        if state["node"].is_string() {
            let url = remote.url();
            bail!("{url} is a node of a cluster; use 'sclub cluster backup --drill'");
        }
        bail!("the answer to /v1/state?hash=true has no events or no hash");
    };
    let hash = hash.to_owned();
    Ok(Known { events, hash })
}

/// The answer of a server, as JSON.
pub fn get(remote: &Remote, path: &str) -> Result<Value> {
    block_on(async {
        let mut connection = remote.open().await?;
        call(&mut connection, "GET", path, b"").await
    })
}

/// The copy, as its server describes it.
struct Served {
    known: Known,
    items: u64,
    export_lines: u64,
}

/// The processes of the drill. All of them end with it.
static PROCESSES: Mutex<Vec<Arc<Mutex<Child>>>> = Mutex::new(Vec::new());

/// A process of a drill. It is killed at the end: all that it has acknowledged is durable.
pub struct Process(Arc<Mutex<Child>>);

impl Process {
    /// Starts a process.
    pub fn start(command: &mut Command) -> Result<Self> {
        let program = command.get_program().to_string_lossy().into_owned();
        let mut all = lock(&PROCESSES);
        let spawned = command.spawn();
        let process = spawned.with_context(|| format!("cannot start {program}"))?;
        let process = Arc::new(Mutex::new(process));
        all.push(Arc::clone(&process));
        Ok(Self(process))
    }

    /// Returns true if the process has ended by itself.
    pub fn has_ended(&self) -> bool {
        !matches!(lock(&self.0).try_wait(), Ok(None))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        end(&self.0);
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn end(process: &Mutex<Child>) {
    let mut process = lock(process);
    // It may have ended by itself.
    let _ = process.kill();
    let _ = process.wait();
}

/// A password that nobody else has.
pub fn secret() -> Result<String> {
    let mut secret = [0; 16];
    let random = &Env::real().random;
    random.fill(&mut secret).context("no random numbers")?;
    Ok(secret.map(|byte| format!("{byte:02x}")).concat())
}

/// Serves a copy at a free port of this machine: its process and its address. It needs a key that nobody else has: other users
/// of the machine must not read the copy. `more` are settings by their environment variables, which only this user can read.
pub fn serve_copy(data: &Path, more: &[(&str, &str)]) -> Result<(Process, Remote)> {
    let secret = secret()?;
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        // It must not tell systemd that the service which runs the drill is ready.
        if text.starts_with("SCLUB_") || text.starts_with("OTEL_") || text == "NOTIFY_SOCKET" {
            command.env_remove(&name);
        }
    }
    command
        .args(["serve", "--addr", "127.0.0.1:0", "--log", "error", "--data"])
        .arg(data)
        .envs(more.iter().copied())
        .env(KEYS, format!("admin:drill:{secret}"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let server = Process::start(&mut command)?;
    // Not locked while it is read.
    let out = lock(&server.0).stdout.take();
    let mut line = String::new();
    if let Some(out) = out {
        io::BufReader::new(out).read_line(&mut line)?;
    }
    let Some((_, url)) = line.split_once("listens on ") else {
        let mut said = String::new();
        let errors = lock(&server.0).stderr.take();
        if let Some(mut errors) = errors {
            errors.read_to_string(&mut said)?;
        }
        bail!("the copy cannot be served: {}", said.trim());
    };
    let trust = TrustArgs {
        key: Some(secret),
        ca: None,
    };
    Ok((server, Remote::new(url.trim(), &trust)?))
}

/// Serves a folder, asks the server, and stops it.
fn serve(data: &Path) -> Result<Served> {
    let (_server, remote) = serve_copy(data, &[])?;
    ask(&remote)
}

fn ask(remote: &Remote) -> Result<Served> {
    let known = known(remote)?;
    let items = get(remote, "/v1/state")?["items"].as_u64();
    let mut export_lines = 0;
    let count = |some: &[u8]| {
        export_lines += some.iter().filter(|&&byte| byte == b'\n').count() as u64;
        Ok(())
    };
    block_on(fetch(remote, "/v1/admin/export", count)).context("the copy cannot be exported")?;
    Ok(Served {
        known,
        items: items.unwrap_or_default(),
        export_lines,
    })
}
