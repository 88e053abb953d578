//! A cluster of real processes.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use sclub_server::ports::free_ports;
use serde_json::Value;
use tempfile::TempDir;

use crate::client::Client;
use crate::nats::{NatsServers, new_folder};

/// The time within which everything that is waited for must happen.
pub const SOON: Duration = Duration::from_secs(60);

/// One cluster at a time: what is measured depends on the load of the machine.
static ONE: Mutex<()> = Mutex::new(());

/// Waits until no other test has a cluster.
pub fn one_cluster() -> MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// NATS servers and nodes. They are killed when this is dropped.
pub struct TestCluster {
    pub nats: NatsServers,
    pub partitions: usize,
    nodes: Vec<TestNode>,
    flags: Vec<String>,
    folder: Option<TempDir>,
    _one: MutexGuard<'static, ()>,
}

struct TestNode {
    name: String,
    port: u16,
    process: Mutex<Option<Child>>,
}

/// The command, without settings of the environment.
pub fn sclub() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sclub"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SCLUB_")) {
        command.env_remove(name);
    }
    command
}

impl TestCluster {
    /// Three NATS servers and some nodes with a catalogue of 20 items. None if there is no nats-server.
    pub fn start(nodes: usize, partitions: usize, flags: &[&str]) -> Option<Self> {
        let one = one_cluster();
        let nats = NatsServers::start(3)?;
        let nodes = free_ports(nodes).unwrap().into_iter().enumerate();
        let nodes = nodes.map(|(i, port)| TestNode {
            name: format!("node{i}"),
            port,
            process: Mutex::new(None),
        });
        let cluster = Self {
            nats,
            partitions,
            nodes: nodes.collect(),
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            folder: Some(new_folder()),
            _one: one,
        };
        let partitions = partitions.to_string();
        let made = cluster.command(&["init", "--partitions", &partitions]);
        assert!(made.status.success(), "{made:?}");
        for i in 0..cluster.count() {
            cluster.spawn(i);
        }
        cluster.wait_until_ready();
        let put = cluster.client(0).call("PUT", "/v1/items", &items());
        assert_eq!(put.unwrap().status, 200);
        Some(cluster)
    }

    /// The number of nodes.
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    pub fn name(&self, i: usize) -> &str {
        &self.nodes[i].name
    }

    /// The number of the node with a name.
    pub fn number(&self, name: &str) -> usize {
        let found = self.nodes.iter().position(|node| node.name == name);
        found.unwrap_or_else(|| panic!("no node '{name}'"))
    }

    pub fn client(&self, i: usize) -> Client {
        self.client_within(i, SOON)
    }

    pub fn client_within(&self, i: usize, timeout: Duration) -> Client {
        Client::new(self.nodes[i].port, timeout)
    }

    /// Runs `sclub cluster`.
    pub fn command(&self, args: &[&str]) -> Output {
        let url = self.nats.url();
        let output = sclub()
            .arg("cluster")
            .args(args)
            .args(["--cluster", &url])
            .output();
        output.unwrap()
    }

    /// Starts a node.
    pub fn spawn(&self, i: usize) {
        let node = &self.nodes[i];
        let log = fs::File::options()
            .append(true)
            .create(true)
            .open(self.log(i));
        let log = log.unwrap();
        let process = sclub()
            .args(["serve", "--cluster", &self.nats.url()])
            .args(["--addr", &format!("127.0.0.1:{}", node.port)])
            .args(["--node", &node.name, "--log", "info,sclub_server=debug"])
            .arg("--data")
            .arg(self.path().join(&node.name))
            .args(&self.flags)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        *self.process(i) = Some(process.unwrap());
    }

    /// Kills a node (SIGKILL).
    pub fn kill(&self, i: usize) {
        if let Some(mut process) = self.process(i).take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Sends a signal to a node.
    pub fn signal(&self, i: usize, signal: &str) {
        if let Some(process) = &*self.process(i) {
            let id = process.id().to_string();
            // It fails if the process has ended, which is noticed elsewhere.
            let _ = Command::new("kill")
                .args([signal, &id])
                .stderr(Stdio::null())
                .status();
        }
    }

    /// Asks a node to shut down, and waits for its end.
    pub fn stop(&self, i: usize) -> ExitStatus {
        self.signal(i, "-TERM");
        let mut process = self.process(i).take().unwrap();
        let begun = Instant::now();
        loop {
            if let Some(status) = process.try_wait().unwrap() {
                return status;
            }
            if begun.elapsed() > SOON {
                process.kill().unwrap();
                panic!("{} does not end", self.name(i));
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until every node owns what it should, and every partition has an owner.
    pub fn wait_until_ready(&self) {
        let begun = Instant::now();
        while !self.is_ready() {
            for i in 0..self.count() {
                if let Some(process) = &mut *self.process(i)
                    && let Some(status) = process.try_wait().unwrap()
                {
                    panic!("{} ended with {status}: {}", self.name(i), self.tail(i));
                }
            }
            assert!(begun.elapsed() < SOON, "the cluster does not get ready");
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn is_ready(&self) -> bool {
        (0..self.count()).all(|i| {
            let mut client = self.client_within(i, Duration::from_secs(2));
            let answer = client.call("GET", "/readyz", "");
            answer.is_some_and(|answer| answer.status == 200)
                && client.call("GET", "/v1/nodes", "").is_some_and(|answer| {
                    let owners = answer.body["owners"].as_object();
                    let nodes = answer.body["nodes"].as_array().map_or(0, Vec::len);
                    let is_owned =
                        |group: &String| owners.is_some_and(|owners| owners.contains_key(group));
                    nodes == self.count() && self.groups().iter().all(is_owned)
                })
        })
    }

    /// The names of the partitions, and the catalogue.
    pub fn groups(&self) -> Vec<String> {
        let partitions = (0..self.partitions).map(|number| format!("p{number}"));
        partitions.chain(["catalogue".to_owned()]).collect()
    }

    /// The owner of a group, as a node sees it.
    pub fn owner(&self, seen_by: usize, group: &str) -> Option<usize> {
        let answer = self.client(seen_by).call("GET", "/v1/nodes", "")?;
        let owner = answer.body["owners"][group].as_str()?;
        Some(self.number(owner))
    }

    /// The nodes, their parts and the hashes of their states, as a node knows them.
    pub fn hashes(&self, i: usize) -> Value {
        let answer = self.client(i).call("GET", "/v1/nodes?hash=true", "");
        answer.unwrap().body["hashes"].take()
    }

    fn process(&self, i: usize) -> MutexGuard<'_, Option<Child>> {
        let process = self.nodes[i].process.lock();
        process.unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self) -> PathBuf {
        self.folder.as_ref().unwrap().path().to_owned()
    }

    fn log(&self, i: usize) -> PathBuf {
        self.path().join(format!("{}.log", self.name(i)))
    }

    /// The number of lines of a node's log that have a text.
    pub fn lines_of_log(&self, i: usize, text: &str) -> usize {
        let log = fs::read_to_string(self.log(i)).unwrap_or_default();
        log.lines().filter(|line| line.contains(text)).count()
    }

    /// The lines of the nodes' logs that tell of leases that were not renewed: a process or a disk has stalled.
    pub fn stalls(&self) -> Vec<String> {
        let logs = (0..self.count()).map(|i| fs::read_to_string(self.log(i)).unwrap_or_default());
        let logs: Vec<String> = logs.collect();
        let lines = logs.iter().flat_map(|log| log.lines());
        let told = ["the lease was not renewed", "the lease is not renewed"];
        lines
            .filter(|line| told.iter().any(|told| line.contains(told)))
            .map(str::to_owned)
            .collect()
    }

    /// The end of a node's log.
    fn tail(&self, i: usize) -> String {
        let log = fs::read_to_string(self.log(i)).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        for i in 0..self.count() {
            self.signal(i, "-CONT");
            self.kill(i);
        }
        if thread::panicking() || std::env::var_os("SCLUB_KEEP").is_some() {
            let path = self.folder.take().unwrap().keep();
            eprintln!("the nodes' logs are in {}", path.display());
        }
    }
}

/// Items `i0` to `i19` with four features, one JSON object a line.
fn items() -> String {
    let lines = (0..20).map(|item| {
        let features: Vec<f64> = (0..4)
            .map(|place| f64::from((item * 7 + place * 5) % 11) / 11.0 - 0.5)
            .collect();
        let item = serde_json::json!({"id": format!("i{item}"), "features": features});
        format!("{item}\n")
    });
    lines.collect()
}
