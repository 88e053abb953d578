//! `sclub cluster up`, and commands that are refused.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use sclub_server::ports::free_ports;

use crate::nats::{self, new_folder};
use crate::nodes::{one_cluster, sclub};

/// The time within which a line must be printed, or a process must end.
const SOON: Duration = Duration::from_secs(60);

fn run(args: &[&str]) -> Output {
    sclub().args(args).output().unwrap()
}

/// Runs a command that must be refused with exit code 2. Returns its error, one line.
fn refused(args: &[&str]) -> String {
    let begun = Instant::now();
    let output = run(args);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
    assert!(begun.elapsed() < Duration::from_secs(30), "{args:?}");
    text
}

#[test]
fn wrong_flags_of_up_are_refused_before_anything_is_started() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("new");
    let data = data.to_str().unwrap();
    for (flags, expected) in [
        (
            &["--partitions", "0"][..],
            "partitions is 0; it must be from 1 to 256",
        ),
        (&["--nats", "2"], "nats is 2; it must be an odd number"),
        (&["--nats", "0"], "nats is 0; it must be an odd number"),
        (&["--nodes", "0"], "nodes is 0; it must be at least 1"),
        (&["--port", "65535"], "use a smaller --port"),
        (
            &["--", "--polcy", "x"],
            "unexpected argument '--polcy' found; tip: a similar argument exists: '--policy'",
        ),
        (
            &["--", "--addr", "1.2.3.4:5"],
            "'--addr <HOST:PORT>' cannot be used multiple times",
        ),
        (&["--", "--policy", "sclub"], "so it runs on one partition"),
        (&["--", "--dim", "0"], "flag --dim: dim is 0"),
        (
            &["--nats-server", "/bin/sh", "--port", "28080"],
            "/bin/sh is not nats-server",
        ),
    ] {
        let error = refused(&[&["cluster", "up", "--data", data], flags].concat());
        assert!(error.contains(expected), "{error}");
        assert_eq!(error.matches("sclub:").count(), 1, "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(!Path::new(data).exists(), "{flags:?}");
    }
}

#[test]
fn wrong_flags_of_init_are_refused() {
    let url = ["--cluster", "nats://127.0.0.1:1"];
    let error = refused(&[&["cluster", "init", "--replicas", "0"], &url[..]].concat());
    assert!(error.contains("it must be from 1 to 5"), "{error}");
    let error = refused(&[&["cluster", "init", "--partitions", "0"], &url[..]].concat());
    assert!(error.contains("partitions is 0"), "{error}");
    let error = refused(&["cluster", "init"]);
    assert!(error.contains("--cluster <URL>"), "{error}");
    let help = String::from_utf8(run(&["cluster", "init", "--help"]).stdout).unwrap();
    assert!(help.contains("--policy") && help.contains("--cluster <URL>"));
    for other in ["--addr", "--tls-cert", "--node ", "--standby"] {
        assert!(!help.contains(other), "{other}");
    }
}

#[test]
fn an_error_of_the_connection_names_the_address_once() {
    let url = "nats://user:secret@127.0.0.1:1";
    let error = refused(&["cluster", "status", "--cluster", url]);
    let expected = "sclub: no connection to NATS at 127.0.0.1:1: Connection refused (os error 111)";
    assert_eq!(error.trim(), expected);
}

/// `sclub cluster up`. It is killed when this is dropped, and so are its processes.
struct Up {
    process: Child,
    lines: Receiver<String>,
    data: PathBuf,
}

impl Up {
    /// Two nodes with one NATS server and one partition.
    fn start(data: &Path, port: u16, server: &Path) -> Self {
        let mut process = sclub()
            .args([
                "cluster",
                "up",
                "--nodes",
                "2",
                "--nats",
                "1",
                "--partitions",
                "1",
            ])
            .args(["--port", &port.to_string(), "--nats-server"])
            .arg(server)
            .arg("--data")
            .arg(data)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(process.stdout.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let data = data.to_owned();
        Self {
            process,
            lines,
            data,
        }
    }

    /// The next line with a text.
    fn line(&self, text: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(SOON);
            let line = line.unwrap_or_else(|_| panic!("'{text}' was not printed"));
            if line.contains(text) {
                return line;
            }
        }
    }

    /// The ids of the processes: `up`, the NATS server, then the nodes.
    fn ids(&self) -> Vec<String> {
        let text = fs::read_to_string(self.data.join("lock")).unwrap();
        let line = text.lines().next().unwrap_or_default();
        line.split(' ').map(str::to_owned).collect()
    }

    fn signal(&self, signal: &str, id: &str) {
        let status = Command::new("kill").args([signal, id]).status();
        assert!(status.unwrap().success());
    }

    /// Asks it to end, and waits for it.
    fn stop(&mut self, signal: &str) {
        let ids = self.ids();
        self.signal(signal, &self.process.id().to_string());
        let begun = Instant::now();
        while self.process.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < SOON, "it does not end");
            thread::sleep(Duration::from_millis(10));
        }
        assert!(ids.len() > 1);
        for id in ids {
            assert!(!is_running(&id), "{id} still runs");
        }
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let ids = fs::read_to_string(self.data.join("lock")).unwrap_or_default();
        for id in ids.split_whitespace().filter(|id| is_running(id)) {
            let _ = Command::new("kill").args(["-KILL", id]).status();
        }
    }
}

fn is_running(id: &str) -> bool {
    Path::new("/proc").join(id).exists()
}

#[test]
fn up_ends_with_all_its_processes_also_while_they_start() {
    let Some(server) = nats::binary() else { return };
    let _one = one_cluster();
    let folder = new_folder();
    for signal in ["-TERM", "-INT", "-HUP"] {
        let data = folder.path().join(signal);
        let mut up = Up::start(&data, free_ports(2).unwrap()[0], &server);
        up.line("1 NATS server: nats://");
        up.stop(signal);
    }
}

#[test]
fn up_has_the_folder_for_itself_restarts_processes_and_refuses_wrong_commands() {
    let Some(server) = nats::binary() else { return };
    let _one = one_cluster();
    let folder = new_folder();
    let data = folder.path().join("c");
    let port = free_ports(2).unwrap()[0];
    let mut up = Up::start(&data, port, &server);
    let url = up.line("cluster status --cluster");
    let url = url.split_whitespace().last().unwrap().to_owned();
    let at = |name: &str| data.join(name).to_str().unwrap().to_owned();
    let cluster = |args: &[&str]| refused(&[&["cluster"], args, &["--cluster", &url]].concat());

    // One `up` a folder.
    let program = server.to_str().unwrap();
    let other = free_ports(1).unwrap()[0].to_string();
    let again = [
        "cluster",
        "up",
        "--nats-server",
        program,
        "--port",
        &other,
        "--data",
    ];
    let again = [&again[..], &[data.to_str().unwrap()]].concat();
    let error = refused(&[&again[..], &["--nats", "1"]].concat());
    assert!(
        error.contains("is in use by another `sclub cluster up`"),
        "{error}"
    );
    assert!(error.contains(&up.ids()[1]), "{error}");

    let addr = format!("127.0.0.1:{other}");

    // Wrong names and nodes.
    let error = cluster(&["drain", "nosuch"]);
    assert!(
        error.contains("no node 'nosuch' has been part of this cluster; running now: node1, node2"),
        "{error}"
    );
    let drained = run(&["cluster", "drain", "node1", "--cluster", &url]);
    assert!(drained.status.success(), "{drained:?}");
    let error = cluster(&["move", "p0", "node1"]);
    assert!(error.contains("node1 is drained"), "{error}");
    let undone = run(&["cluster", "drain", "node1", "--undo", "--cluster", &url]);
    assert!(undone.status.success(), "{undone:?}");
    let http = format!("127.0.0.1:{port}");
    let error = refused(&["cluster", "status", "--cluster", &http]);
    assert!(
        error.contains(&http) && error.contains("HTTP port of a node"),
        "{error}"
    );
    let joining = [
        "serve",
        "--cluster",
        &url,
        "--policy",
        "linucb-ind",
        "--addr",
        &addr,
        "--data",
    ];
    let error = refused(&[&joining, &[&*at("node3")][..]].concat());
    assert!(
        error.contains("the cluster was made with sclub-soft; use another cluster"),
        "{error}"
    );

    // The files of a backup are private.
    let out = folder.path().join("bk");
    let made = run(&[
        "cluster",
        "backup",
        "--cluster",
        &url,
        "--out",
        out.to_str().unwrap(),
    ]);
    assert!(made.status.success(), "{made:?}");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&out), 0o700);
        for file in ["p0.backup", "catalogue.backup", "cluster.json"] {
            assert_eq!(mode(&out.join(file)), 0o600, "{file}");
        }
    }

    // A node that ends is started again.
    let node = up.ids()[2].clone();
    up.signal("-KILL", &node);
    up.line("node1 has ended (signal: 9");
    assert!(!is_running(&node));
    up.line("node1 is started again");
    up.stop("-TERM");

    // The folder of a node is for clusters only, and so is that of a partition.
    let (node, partition, out) = (at("node1"), at("node1/p0"), at("x"));
    for args in [
        &["serve", "--data", &node, "--addr", &addr][..],
        &["serve", "--data", &partition, "--addr", &addr],
        &["verify", "--data", &node],
        &["export", "--data", &node],
        &["backup", "--data", &node, "--out", &out],
    ] {
        let error = refused(args);
        let expected = "is the data folder of a node of a cluster";
        assert!(error.contains(expected), "{error}");
    }

    // The number of partitions and of NATS servers stays.
    let error = refused(&again);
    assert!(error.contains("has 1; use --nats 1"), "{error}");
    let error = refused(&[&again[..], &["--nats", "1", "--partitions", "4"]].concat());
    let expected = "has 1; omit --partitions";
    assert!(
        error.contains("partitions is 4") && error.contains(expected),
        "{error}"
    );
}
