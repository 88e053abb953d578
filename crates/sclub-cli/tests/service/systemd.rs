//! The protocol between systemd and a service. `./release --check` tries the unit with systemd itself.

use std::fs::{self, File};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::time::Duration;

use super::server::{Server, sclub};

/// Starts a server that logs into a file, with these variables. Returns the log of its whole life.
fn log_of(folder: &Path, variables: &[(&str, &str)], more: &[&str]) -> String {
    let path = folder.join("log");
    let log = File::options().append(true).open(&path).unwrap();
    let mut command = sclub();
    command.args(["serve", "--addr", "127.0.0.1:0", "--data"]);
    command.arg(folder.join("data")).args(more);
    command.envs(variables.iter().copied()).stderr(log);
    assert!(Server::from_logged(command).stop().success());
    fs::read_to_string(path).unwrap()
}

#[test]
fn systemd_is_told_when_requests_are_answered() {
    let folder = tempfile::tempdir().unwrap();
    File::create(folder.path().join("log")).unwrap();
    let path = folder.path().join("notify");
    let name = format!("sclub-test-{}", std::process::id());
    let abstract_name = SocketAddr::from_abstract_name(&name).unwrap();
    for (socket, variable) in [
        (
            UnixDatagram::bind(&path).unwrap(),
            path.to_str().unwrap().to_owned(),
        ),
        (
            UnixDatagram::bind_addr(&abstract_name).unwrap(),
            format!("@{name}"),
        ),
    ] {
        log_of(folder.path(), &[("NOTIFY_SOCKET", &variable)], &[]);
        let mut message = [0; 100];
        socket
            .set_read_timeout(Some(Duration::from_secs(1)))
            .unwrap();
        let size = socket.recv(&mut message).unwrap();
        assert_eq!(&message[..size], b"READY=1", "{variable}");
    }
}

#[test]
fn lines_for_the_journal_have_a_priority() {
    let folder = tempfile::tempdir().unwrap();
    let about = File::create(folder.path().join("log")).unwrap();
    let about = about.metadata().unwrap();
    let stream = format!("{}:{}", about.dev(), about.ino());
    let other = format!("{}:{}", about.dev(), about.ino() + 1);
    // Another program's stream.
    let log = log_of(folder.path(), &[("JOURNAL_STREAM", &other)], &[]);
    assert!(log.contains(" INFO ready "), "{log}");
    assert!(!log.contains('<'), "{log}");
    File::create(folder.path().join("log")).unwrap();
    let more = ["--insecure"];
    let log = log_of(folder.path(), &[("JOURNAL_STREAM", &stream)], &more);
    for line in log.lines() {
        let priority = if line.contains(" WARN ") {
            "<4>"
        } else {
            "<6>"
        };
        assert!(line.starts_with(priority), "{line}");
    }
    assert!(log.contains(" WARN insecure"), "{log}");
}

#[test]
fn a_failed_start_is_an_error_in_the_journal() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let log = File::create(&path).unwrap();
    let about = log.metadata().unwrap();
    let status = sclub()
        .args(["serve", "--config", "there-is-no-such-file"])
        .env("JOURNAL_STREAM", format!("{}:{}", about.dev(), about.ino()))
        .stderr(log)
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(2));
    let log = fs::read_to_string(path).unwrap();
    assert!(log.starts_with("<3>sclub: cannot read"), "{log}");
}

#[test]
fn keys_may_be_readable_by_the_service_group_only() {
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys");
    fs::write(&keys, "admin me 0123456789abcdef\n").unwrap();
    for (mode, is_warned) in [(0o600, false), (0o640, false), (0o660, true), (0o644, true)] {
        fs::set_permissions(&keys, fs::Permissions::from_mode(mode)).unwrap();
        File::create(folder.path().join("log")).unwrap();
        let log = log_of(folder.path(), &[], &["--keys", keys.to_str().unwrap()]);
        assert_eq!(log.contains("chmod 600"), is_warned, "{mode:o}: {log}");
    }
}
