//! The processes of `sclub cluster up`.

use std::convert::Infallible;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::files::print_line;

/// The time after which a process that has ended is started again: long enough to see others take over.
pub const RESTART: Duration = Duration::from_secs(10);

/// The time for processes to end when they are asked to.
const MAX_STOP: Duration = Duration::from_secs(15);

/// The time between two looks at the processes.
const LOOK: Duration = Duration::from_millis(100);

/// Locks a folder. The first line of the file has the ids of the processes that use the folder.
pub fn lock(data: &Path) -> Result<File> {
    let path = data.join("lock");
    let cannot = || format!("cannot lock {}", path.display());
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    let mut file = options.open(&path).with_context(cannot)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => {
            let mut ids = String::new();
            // The ids are a hint only.
            let _ = file.read_to_string(&mut ids);
            bail!(
                "{} is in use by another `sclub cluster up`, or by processes that it has left; their ids: {}",
                data.display(),
                ids.lines().next().unwrap_or_default()
            )
        }
        Err(std::fs::TryLockError::Error(error)) => Err(error).with_context(cannot),
    }
}

/// Ctrl-C, SIGTERM and SIGHUP, from when this is made.
pub struct Stop {
    #[cfg(unix)]
    signals: [tokio::signal::unix::Signal; 3],
}

impl Stop {
    #[cfg(unix)]
    pub fn listen() -> Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let signals = [
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
        ];
        Ok(Self { signals })
    }

    #[cfg(not(unix))]
    pub fn listen() -> Result<Self> {
        Ok(Self {})
    }

    /// Waits for a signal.
    #[cfg(unix)]
    pub async fn requested(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.signals;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }

    /// Waits for Ctrl-C.
    #[cfg(not(unix))]
    pub async fn requested(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending().await
        }
    }
}

/// A process that is started again when it ends.
struct Process {
    name: String,
    log: PathBuf,
    command: Command,
    child: Option<Child>,
    /// The time when it ended.
    ended: Option<Instant>,
}

impl Process {
    /// Returns the status of the process if it has just ended.
    fn reap(&mut self) -> Option<ExitStatus> {
        let status = self.child.as_mut()?.try_wait().ok()??;
        self.child = None;
        self.ended = Some(Instant::now());
        Some(status)
    }

    fn is_running(&mut self) -> bool {
        self.reap();
        self.child.is_some()
    }

    /// Asks the process to end.
    fn terminate(&self) {
        if let Some(child) = &self.child {
            let _ = Command::new("kill").arg(child.id().to_string()).status();
        }
    }
}

/// The processes. They are killed when this is dropped.
pub struct Processes {
    nodes: Vec<Process>,
    nats: Vec<Process>,
    lock: File,
}

impl Processes {
    pub fn new(lock: File) -> Self {
        Self {
            nodes: Vec::new(),
            nats: Vec::new(),
            lock,
        }
    }

    /// Starts a NATS server.
    pub fn start_nats(&mut self, name: String, command: Command, data: &Path) -> Result<()> {
        let process = self.prepare(name, command, data)?;
        self.nats.push(process);
        self.start()
    }

    /// Starts a node.
    pub fn start_node(&mut self, name: String, command: Command, data: &Path) -> Result<()> {
        let process = self.prepare(name, command, data)?;
        self.nodes.push(process);
        self.start()
    }

    fn prepare(&self, name: String, mut command: Command, data: &Path) -> Result<Process> {
        let (file, log) = super::new_log(data, &name)?;
        // The lock is held for as long as one of the processes lives, even if this one is killed.
        command
            .stdin(Stdio::from(self.lock.try_clone()?))
            .stdout(file.try_clone()?)
            .stderr(file);
        // Ctrl-C is for this process, which stops the others in order.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        Ok(Process {
            name,
            log,
            command,
            child: None,
            ended: None,
        })
    }

    /// Starts the processes that are not running, and have not ended just now.
    fn start(&mut self) -> Result<()> {
        let all = self.nats.iter_mut().chain(&mut self.nodes);
        let is_due = |process: &&mut Process| {
            process.child.is_none() && process.ended.is_none_or(|at| at.elapsed() >= RESTART)
        };
        let (mut has_started, mut again) = (false, Vec::new());
        for process in all.filter(is_due) {
            let program = process.command.get_program().to_owned();
            let child = process.command.spawn();
            let child = child.with_context(|| format!("cannot start {}", program.display()))?;
            process.child = Some(child);
            has_started = true;
            if process.ended.take().is_some() {
                again.push(process.name.clone());
            }
        }
        if has_started {
            self.write_ids()?;
        }
        for name in again {
            print_line(&format!("{name} is started again"));
        }
        Ok(())
    }

    fn write_ids(&mut self) -> Result<()> {
        let all = self.nats.iter().chain(&self.nodes);
        let children = all.filter_map(|process| Some(process.child.as_ref()?.id()));
        let ids = [std::process::id()].into_iter().chain(children);
        let ids: Vec<String> = ids.map(|id| id.to_string()).collect();
        let line = ids.join(" ") + "\n";
        // Not truncated first: whoever reads the first line finds the ids at any time.
        self.lock.rewind()?;
        self.lock.write_all(line.as_bytes())?;
        self.lock.set_len(line.len() as u64)?;
        Ok(())
    }

    /// Returns an error if a process has ended.
    pub fn check_running(&mut self) -> Result<()> {
        for process in self.nats.iter_mut().chain(&mut self.nodes) {
            if let Some(status) = process.reap() {
                let text = std::fs::read_to_string(&process.log).unwrap_or_default();
                let last = text.lines().rev().find(|line| !line.trim().is_empty());
                bail!(
                    "{} ended with {status}: {}; its log is {}",
                    process.name,
                    last.unwrap_or_default(),
                    process.log.display()
                );
            }
        }
        Ok(())
    }

    /// Starts processes again that have ended.
    pub async fn watch(&mut self) -> Result<Infallible> {
        loop {
            for process in self.nats.iter_mut().chain(&mut self.nodes) {
                if let Some(status) = process.reap() {
                    print_line(&format!(
                        "{} has ended ({status}); it is started again in {} seconds. Its log is {}",
                        process.name,
                        RESTART.as_secs(),
                        process.log.display()
                    ));
                }
            }
            self.start()?;
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Stops the nodes, then the NATS servers that they need to shut down.
    pub async fn stop(&mut self) {
        for group in [&mut self.nodes, &mut self.nats] {
            for process in &*group {
                process.terminate();
            }
            let begun = Instant::now();
            while group.iter_mut().any(Process::is_running) && begun.elapsed() < MAX_STOP {
                tokio::time::sleep(LOOK / 5).await;
            }
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for process in self.nodes.iter_mut().chain(&mut self.nats) {
            if let Some(child) = &mut process.child {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}
