//! `sclub cluster backup --drill`: a good backup passes, a damaged one does not, and nothing is left behind.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::nats::binary;
use crate::nodes::{TestCluster, sclub};

/// The result of a drill, and whether it passed.
fn drill(arguments: &[&str], scratch: &Path) -> (bool, Value) {
    let mut command = sclub();
    command
        .args(arguments)
        .args(["--drill", "--json", "--scratch"]);
    command.arg(scratch).arg("--nats-server");
    let output = command.arg(binary().unwrap()).output().unwrap();
    let line = String::from_utf8(output.stdout).unwrap();
    let line = line.lines().next_back().unwrap_or_default();
    let result: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
    assert_eq!(result["ok"], output.status.success(), "{result}");
    let left = fs::read_dir(scratch).unwrap().count();
    assert_eq!(left, 0, "the throwaway folder is still there");
    (output.status.success(), result)
}

/// Rounds of several users through both nodes.
fn learn(cluster: &TestCluster, rounds: usize) {
    for round in 0..rounds {
        let mut client = cluster.client(round % 2);
        let request = json!({"user": format!("u{}", round % 17)}).to_string();
        let shown = client.call("POST", "/v1/recommend", &request).unwrap();
        let decision = &shown.body["decision"];
        let feedback = json!({"decision": decision, "reward": round % 3 / 2}).to_string();
        let taken = client.call("POST", "/v1/feedback", &feedback).unwrap();
        assert_eq!(taken.status, 200, "{taken:?}");
    }
}

#[test]
fn a_backup_of_a_cluster_is_restored_served_and_compared() {
    let Some(cluster) = TestCluster::start(2, 3, &["--snapshot-every", "40"]) else {
        return;
    };
    learn(&cluster, 150);
    let folder = tempfile::tempdir().unwrap();
    let (out, scratch) = (folder.path().join("backup"), folder.path().join("scratch"));
    fs::create_dir(&scratch).unwrap();
    let (url, text) = (cluster.nats.url(), out.to_str().unwrap());

    // Of a running cluster; the backup is kept.
    let taken = ["cluster", "backup", "--cluster", &url, "--out", text];
    // Fits that are due are made in the meantime, and a busy machine takes long for them.
    let is_the_source = |result: &Value| {
        let hashes = cluster.hashes(0);
        cluster.groups().iter().all(|group| {
            let (tried, served) = (&result["groups"][group], &hashes[group]);
            tried["hash"] == tried["source_hash"]
                && (served["is_leading"] != true || tried["hash"] == served["hash"])
        })
    };
    let result = (0..10)
        .map(|_| {
            let _ = fs::remove_dir_all(&out);
            let (passed, result) = drill(&taken, &scratch);
            assert!(passed, "{result}");
            result
        })
        .find(is_the_source)
        .expect("the hashes of a backup are those of the cluster");
    assert_eq!([&result["partitions"], &result["users"]], [3, 17]);
    assert_eq!(result["items"], 20, "{result}");

    // Of its folder.
    let from = ["backup", "--from", text];
    let (passed, again) = drill(&from, &scratch);
    assert!(passed, "{again}");
    assert_eq!(
        again["groups"]["p0"]["hash"],
        result["groups"]["p0"]["hash"]
    );
    assert!(again["groups"]["p0"]["source_hash"].is_null(), "{again}");

    // Damaged in one place.
    let fails = |file: &str, damage: &dyn Fn(&Path), expected: &str| {
        let path = out.join(file);
        let good = fs::read(&path).unwrap();
        damage(&path);
        let (passed, result) = drill(&from, &scratch);
        let error = result["error"].as_str().unwrap_or_default();
        assert!(!passed && error.contains(expected), "{file}: {result}");
        fs::write(&path, good).unwrap();
    };
    for part in [5, 2] {
        let flip = |path: &Path| {
            let mut bytes = fs::read(path).unwrap();
            let place = bytes.len() / part;
            bytes[place] ^= 4;
            fs::write(path, bytes).unwrap();
        };
        fails("p1.backup", &flip, "p1.backup");
    }
    fails(
        "p2.backup",
        &|path| fs::remove_file(path).unwrap(),
        "p2.backup",
    );
    let replaced = |from: &'static str, to: &'static str| {
        move |path: &Path| {
            let text = fs::read_to_string(path).unwrap();
            assert!(text.contains(from), "{text}");
            fs::write(path, text.replace(from, to)).unwrap();
        }
    };
    let fewer = replaced("\"partitions\": 3", "\"partitions\": 2");
    fails("cluster.json", &fewer, "cluster.json is damaged");
    let other = replaced("\"reward_max\": 1.0", "\"reward_max\": 9.0");
    fails("cluster.json", &other, "its checksum");
    let swapped = |path: &Path| {
        fs::copy(out.join("p1.backup"), path).unwrap();
    };
    fails("p0.backup", &swapped, "p0.backup");
    assert!(drill(&from, &scratch).0);

    // Interrupted when it has made some files: the backup is complete, or no file is there.
    let files_of = |folder: &Path| fs::read_dir(folder).map_or(0, Iterator::count);
    for files in 0..=3 {
        let unfinished = folder.path().join(format!("unfinished{files}"));
        let mut command = sclub();
        command.args(["cluster", "backup", "--drill", "--cluster", &url, "--out"]);
        command.arg(&unfinished).arg("--scratch").arg(&scratch);
        command.arg("--nats-server").arg(binary().unwrap());
        let mut running = command.stdout(Stdio::null()).spawn().unwrap();
        while files_of(&unfinished) < files {
            assert!(running.try_wait().unwrap().is_none());
            thread::sleep(Duration::from_millis(1));
        }
        let id = running.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &id]).status();
        assert!(sent.unwrap().success());
        assert!(!running.wait().unwrap().success());
        assert_eq!(files_of(&scratch), 0);
        match unfinished.join("cluster.json").exists() {
            true => assert_eq!(files_of(&unfinished), 5),
            false => assert_eq!(files_of(&unfinished), 0, "{files}"),
        }
    }
}
