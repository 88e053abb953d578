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

/// The number of backups of a running server, or of a group of a cluster, that are taken until one has no snapshot that is newer than the
/// hash of the source.
pub const MAX_BACKUPS: usize = 3;

/// The reason for no comparison if it is so every time.
pub const NEWER_SNAPSHOT: &str = "it wrote a snapshot during each backup";

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
    #[serde(flatten)]
    compared: Compared,
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
pub struct Known {
    pub events: u64,
    pub hash: String,
}

/// The comparison of a backup with its source. The source may go on learning: its state before the backup is compared with that of
/// the backup after the same event.
#[derive(Debug, Serialize)]
pub struct Compared {
    source_events: Option<u64>,
    source_hash: Option<String>,
    /// The reason why there is no hash.
    not_compared: Option<&'static str>,
}

impl Compared {
    /// No comparison, for a reason.
    pub fn not(reason: &'static str) -> Self {
        Self {
            source_events: None,
            source_hash: None,
            not_compared: Some(reason),
        }
    }

    /// Compares a source with a data folder that its backup was restored into; `None` if the backup has a newer snapshot.
    pub fn with(group: &str, source: Known, data: &Path, events: u64) -> Result<Option<Self>> {
        if source.events > events {
            bail!(
                "{group}the source has {} events, and the backup has {events}",
                source.events
            );
        }
        let hash = engine::hash_at(&Env::reading(data), data, source.events).map_err(explained)?;
        let Some(hash) = hash else {
            return Ok(None);
        };
        same(
            &format!("{group}the source"),
            &source.hash,
            "the backup",
            &hash,
        )?;
        Ok(Some(Self {
            source_events: Some(source.events),
            source_hash: Some(source.hash),
            not_compared: None,
        }))
    }

    /// Says of what the hash of a backup is, which has some events and these copies.
    pub fn text(&self, events: u64, copies: &str) -> String {
        match (self.source_events, self.not_compared) {
            (Some(at), _) if at == events => format!("the same in the source, {copies}"),
            (Some(at), _) => {
                format!("the same {copies}; after event {at} the same in the source")
            }
            (None, reason) => format!(
                "the same {copies}; not compared with the source: {}",
                reason.unwrap_or_default()
            ),
        }
    }
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
    let copies = "in the files of the copy, and in the copy as served";
    let compared = drill.compared.text(drill.events, copies);
    format!(
        "the backup can be restored\n\
         backup    {} bytes, {backup:.1} s\n\
         restore   every checksum is right, {restore:.1} s\n\
         verify    {} events, {} rounds, {} users, {} clusters, {verify:.1} s\n\
         serve     {} items, {} lines of export, {serve:.1} s\n\
         hash      {}, {compared}",
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
    if let Some(url) = &args.source.url {
        let remote = Remote::new(url, &args.trust)?;
        left_out::tell_of_server(&remote, "is tried", "sclub backup --drill");
    }
    let mut seconds = Seconds::default();
    let copy = scratch.join("copy");
    let mut tries = 0;
    let (bytes, first, compared) = loop {
        tries += 1;
        let begun = Instant::now();
        let (file, source) = backup(args, scratch)?;
        seconds.backup = begun.elapsed().as_secs_f64();
        let cannot_read = || format!("cannot read {}", file.display());
        let bytes = std::fs::metadata(&file).with_context(cannot_read)?.len();

        let begun = Instant::now();
        let opened = File::open(&file).with_context(cannot_read)?;
        let mut opened = io::BufReader::with_capacity(1 << 20, opened);
        engine::restore(&Env::real(), &mut opened, &copy)
            .context("the backup cannot be restored")?;
        seconds.restore = begun.elapsed().as_secs_f64();

        let begun = Instant::now();
        let first = verify(&copy)?;
        let compared = match source {
            Some(source) => Compared::with("", source, &copy, first.events)?,
            None => Some(Compared::not("a file was given")),
        };
        seconds.verify = begun.elapsed().as_secs_f64();
        match compared {
            Some(compared) => break (bytes, first, compared),
            None if tries == MAX_BACKUPS => {
                break (bytes, first, Compared::not(NEWER_SNAPSHOT));
            }
            None => std::fs::remove_dir_all(&copy).context("cannot remove a copy")?,
        }
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
        compared,
        seconds,
    })
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

/// The file of the backup, which is taken first unless it is given, and the state of its source before.
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
    let source = known(&remote)?;
    download(&remote, "/v1/admin/backup", &file, args.quiet)?;
    Ok((file, Some(source)))
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
