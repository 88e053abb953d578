//! `sclub backup --drill`: a good backup passes, a damaged one does not, and nothing is left behind.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
#[cfg(target_os = "linux")]
use std::os::unix::net::UnixDatagram;
use std::path::Path;
#[cfg(target_os = "linux")]
use std::process::{Child, Stdio};
#[cfg(target_os = "linux")]
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::crash::verify;
use crate::keeping::{fails_with, run, serve_rounds, text};
#[cfg(target_os = "linux")]
use crate::server::signal;
use crate::server::{Server, items, sclub};

/// The result of a drill, and whether it passed.
fn drill(arguments: &[&str], scratch: &Path) -> (bool, Value) {
    let mut all = vec!["backup", "--drill", "--json", "--scratch", text(scratch)];
    all.extend(arguments);
    // Settings of the server are not settings of the copy.
    let mut command = sclub();
    command.args(&all).env("SCLUB_POLICY", "linucb-one");
    command.env("SCLUB_API_KEYS", "admin:other:0123456789abcdef");
    let output = command.output().unwrap();
    let line = String::from_utf8(output.stdout).unwrap();
    let result: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
    assert_eq!(result["ok"], output.status.success(), "{result}");
    let left = fs::read_dir(scratch).unwrap().count();
    assert_eq!(left, 0, "the throwaway folder is still there");
    (output.status.success(), result)
}

#[test]
fn a_good_backup_passes_and_a_damaged_one_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let (data, file) = (folder.path().join("data"), folder.path().join("backup"));
    let scratch = folder.path().join("scratch");
    fs::create_dir(&scratch).unwrap();
    let server = Server::start(&data, &["--snapshot-every", "25"]);
    server.ok("PUT", "/v1/items", &items(9, 4));
    serve_rounds(&server, 60, &["a", "b", "c"]);
    let hash = server.hash();

    // Of a running server; the backup is kept.
    let (_, result) = drill(&["--url", &server.url, "--out", text(&file)], &scratch);
    assert_eq!(result["hash"], hash.as_str(), "{result}");
    assert_eq!(result["source_hash"], hash.as_str());
    let counted = ["items", "users", "rounds", "export_lines"].map(|name| &result[name]);
    assert_eq!(counted, [9, 3, 60, 60]);
    assert_eq!(result["bytes"], fs::metadata(&file).unwrap().len());
    assert_eq!(server.hash(), hash);

    // Of a folder, and in words.
    assert!(server.stop().success());
    let (_, result) = drill(&["--data", text(&data)], &scratch);
    assert_eq!(result["source_hash"], hash.as_str(), "{result}");
    assert_eq!(verify(&data)["hash"], hash.as_str());
    let words = run(&["backup", "--drill", "--from", text(&file)]);
    assert!(words.status.success(), "{words:?}");
    let words = String::from_utf8(words.stdout).unwrap();
    assert!(
        words.contains("can be restored") && words.contains(&hash),
        "{words}"
    );

    // Of a file: good, with a flipped byte, and cut off.
    let (passed, result) = drill(&["--from", text(&file)], &scratch);
    assert!(passed && result["source_hash"].is_null(), "{result}");
    assert_eq!(result["not_compared"], "a file was given");
    let good = fs::read(&file).unwrap();
    let fails = |bytes: &[u8], what: &str| {
        fs::write(&file, bytes).unwrap();
        let (passed, result) = drill(&["--from", text(&file)], &scratch);
        let error = result["error"].as_str().unwrap_or_default();
        assert!(!passed && !error.is_empty(), "{what} passed: {result}");
    };
    for place in (0..good.len()).step_by(good.len() / 12) {
        let mut bytes = good.clone();
        bytes[place] ^= 4;
        fails(&bytes, &format!("a flipped bit of byte {place}"));
    }
    for length in [0, 1, good.len() / 3, good.len() / 2, good.len() - 1] {
        fails(&good[..length], &format!("the first {length} bytes"));
    }
}

/// Answers as a server with this backup and this state; returns its URL. It ends with the test.
fn pretend(backup: Vec<u8>, state: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let mut asked = String::new();
            stream.read_line(&mut asked).unwrap();
            let mut line = String::new();
            while line != "\r\n" {
                line.clear();
                stream.read_line(&mut line).unwrap();
            }
            let body = match asked.contains("/v1/admin/backup") {
                true => &backup,
                false => state.as_bytes(),
            };
            let length = body.len();
            let head =
                format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
            let stream = stream.get_mut();
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(body).unwrap();
        }
    });
    url
}

#[test]
fn a_copy_that_differs_from_its_source_does_not_pass() {
    let folder = tempfile::tempdir().unwrap();
    let (data, file) = (folder.path().join("data"), folder.path().join("backup"));
    let scratch = folder.path().join("scratch");
    fs::create_dir(&scratch).unwrap();
    let server = Server::start(&data, &[]);
    server.ok("PUT", "/v1/items", &items(9, 4));
    serve_rounds(&server, 20, &["a", "b"]);
    let mut state = server.hashed();
    let taken = run(&["backup", "--url", &server.url, "--out", text(&file)]);
    assert!(taken.status.success(), "{taken:?}");
    let backup = fs::read(&file).unwrap();

    let url = pretend(backup.clone(), state.to_string());
    assert!(drill(&["--url", &url], &scratch).0);
    let fails = |state: &Value, why: &str| {
        let url = pretend(backup.clone(), state.to_string());
        let (passed, result) = drill(&["--url", &url], &scratch);
        let error = result["error"].as_str().unwrap_or_default();
        assert!(!passed && error.contains(why), "{result}");
    };
    let events = state["events"].as_u64().unwrap();
    // The backup lacks an event, perhaps because it is an old one.
    state["events"] = (events + 1).into();
    let lost = format!(
        "the source has {} events, and the backup has {events}",
        events + 1
    );
    fails(&state, &lost);
    state["events"] = Value::Null;
    fails(&state, "no events");
    state["events"] = events.into();
    let hash = state["hash"].take();
    state["hash"] = "0123456789abcdef".into();
    fails(&state, "the source and the backup differ");

    // The source learned between its hash and the backup.
    serve_rounds(&server, 7, &["b", "c"]);
    let taken = run(&["backup", "--url", &server.url, "--out", text(&file)]);
    assert!(taken.status.success(), "{taken:?}");
    let later = fs::read(&file).unwrap();
    let url = pretend(later.clone(), state.to_string());
    let (passed, result) = drill(&["--url", &url], &scratch);
    assert!(!passed, "{result}");
    state["hash"] = hash.clone();
    let url = pretend(later, state.to_string());
    let (passed, result) = drill(&["--url", &url], &scratch);
    assert!(passed, "{result}");
    assert_eq!(result["events"], events + 7);
    assert_eq!(
        [&result["source_events"], &result["source_hash"]],
        [&json!(events), &hash]
    );

    // It also wrote a snapshot, so the backup does not have that state.
    server.ok("POST", "/v1/admin/snapshot", "");
    let taken = run(&["backup", "--url", &server.url, "--out", text(&file)]);
    assert!(taken.status.success(), "{taken:?}");
    let url = pretend(fs::read(&file).unwrap(), state.to_string());
    let (passed, result) = drill(&["--url", &url], &scratch);
    assert!(passed && result["source_hash"].is_null(), "{result}");
    assert_eq!(
        result["not_compared"],
        "it wrote a snapshot during each backup"
    );
}

#[test]
fn a_drill_of_a_node_names_the_command_for_clusters() {
    let folder = tempfile::tempdir().unwrap();
    let state =
        r#"{"events": 7, "hashes": {"0": "0123456789abcdef"}, "partitions": 1, "node": "n1"}"#;
    let url = pretend(Vec::new(), state.to_owned());
    let (passed, result) = drill(&["--url", &url], folder.path());
    let error = result["error"].as_str().unwrap_or_default();
    assert!(
        !passed && error.contains("use 'sclub cluster backup --drill'"),
        "{result}"
    );
    assert!(!error.contains("partitions"), "{result}");
}

/// The processes whose command line has a text.
#[cfg(target_os = "linux")]
fn processes_with(text: &str) -> usize {
    let lines = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let line = fs::read(entry.ok()?.path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&line).into_owned())
    });
    lines.filter(|line| line.contains(text)).count()
}

#[cfg(target_os = "linux")]
#[test]
fn a_drill_that_is_interrupted_leaves_no_server_and_no_data() {
    let folder = tempfile::tempdir().unwrap();
    let (data, scratch) = (folder.path().join("data"), folder.path().join("scratch"));
    fs::create_dir(&scratch).unwrap();
    let server = Server::start(&data, &[]);
    server.ok("PUT", "/v1/items", &items(9, 4));
    serve_rounds(&server, 300, &["a"]);
    assert!(server.stop().success());
    let notified = folder.path().join("notify");
    let systemd = UnixDatagram::bind(&notified).unwrap();
    systemd.set_nonblocking(true).unwrap();
    let start = |more: &[&str]| {
        let mut command = sclub();
        command.env("NOTIFY_SOCKET", &notified);
        command.args(["backup", "--drill", "--data", text(&data)]);
        command.args(["--scratch", text(&scratch)]).args(more);
        command.stderr(Stdio::piped()).stdout(Stdio::piped());
        command.spawn().unwrap()
    };
    let nothing_is_left = |drill: Child| {
        let output = drill.wait_with_output().unwrap();
        assert_eq!(processes_with(text(&scratch)), 0);
        assert_eq!(fs::read_dir(&scratch).unwrap().count(), 0, "{output:?}");
        output
    };
    // The server of the copy is running.
    let serves = format!(
        "serve\0--addr\0127.0.0.1:0\0--log\0error\0--data\0{}",
        text(&scratch)
    );
    let begun = Instant::now();
    let output = loop {
        let mut drill = start(&[]);
        let mut has_ended = false;
        while processes_with(&serves) == 0 && !has_ended {
            assert!(begun.elapsed() < Duration::from_secs(60));
            has_ended = drill.try_wait().unwrap().is_some();
        }
        if !has_ended {
            signal(drill.id(), "TERM");
        }
        let output = nothing_is_left(drill);
        // It may have passed before this process, which others delay, has seen the server.
        if !output.status.success() {
            break output;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "the drills were too fast"
        );
    };
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(output.stderr, b"sclub: the drill was interrupted\n");

    // At any other moment.
    let out = folder.path().join("backup");
    for wait in (0..60).step_by(3) {
        let drill = start(&["--json", "--out", text(&out)]);
        std::thread::sleep(Duration::from_millis(wait));
        signal(drill.id(), "INT");
        let output = nothing_is_left(drill);
        let has_ended = output.status.success();
        if !has_ended && !output.stdout.is_empty() {
            let result: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(result["error"], "the drill was interrupted");
        }
        assert!(
            !folder.path().join("backup.part").exists(),
            "{wait} ms, {output:?}"
        );
    }
    // The server of a copy is not the service that runs the drill.
    let whole = start(&[]).wait().unwrap();
    assert!(whole.success());
    assert!(systemd.recv(&mut [0; 9]).is_err(), "systemd was told");
}

#[test]
fn a_drill_needs_a_source_and_a_backup_a_file() {
    fails_with(&run(&["backup", "--drill"]), "--url");
    fails_with(&run(&["backup", "--data", "x"]), "--out");
    fails_with(&run(&["backup", "--from", "x"]), "--drill");
    let missing = run(&["backup", "--drill", "--from", "there-is-no-such-file"]);
    fails_with(&missing, "there-is-no-such-file");
}
