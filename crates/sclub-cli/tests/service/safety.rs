//! Access to a server, its audit log, and the effect of SIGHUP.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::server::{Client, Server, items, sclub, signal};

/// A server whose log goes to a file.
fn start_logged(folder: &Path, more: &[&str]) -> (Server, PathBuf) {
    let log = folder.join("log.txt");
    let mut command: Command = sclub();
    command
        .args(["serve", "--addr", "127.0.0.1:0", "--data"])
        .arg(folder.join("data"))
        .args(more)
        .stderr(Stdio::from(fs::File::create(&log).unwrap()));
    (Server::from_logged(command), log)
}

/// Waits until a file has some text so many times.
fn wait_for(file: &Path, text: &str, times: usize) -> String {
    let begun = Instant::now();
    loop {
        let all = fs::read_to_string(file).unwrap();
        if all.matches(text).count() >= times {
            return all;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "no '{text}' in:\n{all}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Status and code of an error.
fn ask(server: &Server, headers: &str, method: &str, path: &str) -> (u16, Value) {
    let mut client = Client::connect(&server.address).unwrap();
    client.headers = headers.to_owned();
    let (status, body) = client.call(method, path, "").unwrap();
    (status, body["error"]["code"].clone())
}

#[test]
fn other_web_sites_can_neither_read_nor_change_anything() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &["--host", "sclub.example"]);
    server.ok("PUT", "/v1/items", &items(3, 2));
    let paths = [
        ("GET", "/v1/state"),
        ("GET", "/v1/clusters"),
        ("GET", "/v1/admin/export"),
        ("POST", "/v1/admin/compact"),
        ("POST", "/v1/admin/snapshot"),
        ("DELETE", "/v1/users/u"),
        ("GET", "/metrics"),
    ];
    let call = |host: &str, headers: &str, method: &str, path: &str| {
        let mut client = Client::connect(&server.address).unwrap();
        client.host = host.to_owned();
        client.headers = headers.to_owned();
        let (status, body) = client.call(method, path, "").unwrap();
        (status, body["error"]["code"].clone())
    };
    let cross = "sec-fetch-site: cross-site\r\nsec-fetch-mode: no-cors\r\n";
    for (method, path) in paths {
        let rebound = call("evil.example:8080", "", method, path);
        assert_eq!(rebound, (421, json!("wrong_host")), "{path}");
        for headers in [cross, "origin: http://evil.example\r\n"] {
            let refused = call("localhost", headers, method, path);
            assert_eq!(refused, (403, json!("cross_site")), "{path}");
        }
    }
    for (host, headers, path) in [
        ("sclub.example", "", "/v1/state"),
        ("SCLUB.example:80", "", "/v1/state"),
        (
            "localhost:8080",
            "sec-fetch-site: same-origin\r\n",
            "/v1/state",
        ),
        (
            "localhost",
            "sec-fetch-site: cross-site\r\nsec-fetch-mode: navigate\r\n",
            "/",
        ),
        (
            "localhost",
            "sec-fetch-site: cross-site\r\nsec-fetch-mode: navigate\r\n",
            "/docs",
        ),
    ] {
        assert_eq!(call(host, headers, "GET", path).0, 200, "{host} {path}");
    }
    assert_eq!(call("evil.example", "", "GET", "/").0, 421);
    // Who asks for keys need not ask for a name.
    let keys = folder.path().join("keys");
    fs::write(&keys, "read eye eye-0123456789abcdef\n").unwrap();
    let data = folder.path().join("keyed");
    let keyed = Server::start(&data, &["--keys", text(&keys)]);
    let mut client = Client::connect(&keyed.address).unwrap();
    client.host = "any.example".to_owned();
    client.headers = "x-api-key: eye-0123456789abcdef\r\n".to_owned();
    assert_eq!(client.call("GET", "/v1/state", "").unwrap().0, 200);
}

#[test]
fn connections_that_are_refused_are_logged_once() {
    let folder = tempfile::tempdir().unwrap();
    let (server, log) = start_logged(folder.path(), &["--max-connections", "1"]);
    let begun = Instant::now();
    let mut one = loop {
        let mut one = Client::connect(&server.address).unwrap();
        // The connection that asked whether the server is ready may still be there.
        match one.call("GET", "/healthz", "") {
            Some((200, _)) => break one,
            _ => assert!(begun.elapsed() < Duration::from_secs(60)),
        }
    };
    for _ in 0..20 {
        assert_eq!(server.call("GET", "/healthz", "").0, 503);
    }
    let (_, metrics) = one.bytes("GET", "/metrics", b"").unwrap();
    let metrics = String::from_utf8(metrics).unwrap();
    let value = |name: &str| -> f64 {
        let mut lines = metrics.lines().filter_map(|line| line.strip_prefix(name));
        lines.next().unwrap().trim().parse().unwrap()
    };
    assert!(value("sclub_errors_total{status=\"503\",code=\"overloaded\"}") >= 20.0);
    assert_eq!(value("sclub_connections "), 1.0);
    assert_eq!(value("sclub_max_connections "), 1.0);
    let said = "connections are refused: the server has reached its maximum";
    let log = wait_for(&log, said, 1);
    assert_eq!(log.matches(said).count(), 1, "{log}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_server_without_files_still_tells_its_figures() {
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "ulimit -n 64; exec '{}' serve --addr 127.0.0.1:0 --log error --data '{}'",
        env!("CARGO_BIN_EXE_sclub"),
        folder.path().join("data").display()
    );
    let mut command = Command::new("bash");
    command.args(["-c", &script]);
    let server = Server::from(command);
    let mut client = Client::connect(&server.address).unwrap();
    assert_eq!(client.call("GET", "/healthz", "").unwrap().0, 200);
    let many: Vec<_> = (0..80)
        .map(|_| std::net::TcpStream::connect(&server.address).unwrap())
        .collect();
    let begun = Instant::now();
    loop {
        let (_, metrics) = client.bytes("GET", "/metrics", b"").unwrap();
        let metrics = String::from_utf8(metrics).unwrap();
        let value = |name: &str| -> f64 {
            let mut lines = metrics.lines().filter_map(|line| line.strip_prefix(name));
            let value = lines.next().unwrap_or_else(|| panic!("no {name}"));
            value.trim().parse().unwrap()
        };
        assert!(value("process_resident_memory_bytes ") > 1e6);
        assert!(value("process_cpu_seconds_total ") >= 0.0);
        assert_eq!(value("process_max_fds "), 64.0);
        // A file that the test has left open may have a larger number than the limit.
        if value("process_open_fds ") >= 64.0 {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{metrics}");
    }
    drop(many);
}

#[test]
fn the_state_is_hashed_when_asked() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &[]);
    for path in ["/v1/state", "/v1/state?hash=false"] {
        let state = server.ok("GET", path, "");
        assert!(state.get("hash").is_none(), "{state}");
    }
    assert!(server.ok("GET", "/v1/state?hash=true", "")["hash"].is_string());
}

/// Every route that needs the role admin, refused before it is routed and answered.
#[test]
fn every_route_of_administrators_is_audited() {
    let folder = tempfile::tempdir().unwrap();
    let (server, log) = start_logged(folder.path(), &[]);
    let document = server.ok("GET", "/v1/openapi.json", "");
    let mut routes = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, about) in methods.as_object().unwrap() {
            if about["tags"] == json!(["admin"]) {
                routes.push((method.to_uppercase(), path.clone()));
            }
        }
    }
    assert_eq!(routes.len(), 8, "{routes:?}");
    for (number, (method, route)) in routes.iter().enumerate() {
        let path = route.replace("{id}", "anna").replace("{name}", "x");
        let id = format!("x-request-id: refused-{number}\r\nsec-fetch-site: cross-site\r\n");
        assert_eq!(ask(&server, &id, method, &path).0, 403);
        let id = format!("x-request-id: answered-{number}\r\n");
        assert_ne!(ask(&server, &id, method, &path).0, 403);
    }
    let all = wait_for(&log, " audit ", 2 * routes.len());
    for (number, (method, route)) in routes.iter().enumerate() {
        for kind in ["refused", "answered"] {
            let line = all
                .lines()
                .find(|line| line.contains(&format!("{kind}-{number}")))
                .unwrap_or_else(|| panic!("{kind} {route} is missing:\n{all}"));
            for part in [
                "INFO",
                "key=\"-\"",
                &format!("method=\"{method}\""),
                &format!("route=\"{route}\""),
            ] {
                assert!(line.contains(part), "{part} not in {line}");
            }
        }
    }
    assert!(!all.contains("anna"), "{all}");
}

#[test]
fn a_hangup_reads_keys_again_and_bad_ones_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys");
    let audit = folder.path().join("audit.jsonl");
    // printf %s dddddddddddddddd | sha256sum
    let hash = "90bb1cc25ca4a28318912d0e1954b30110e873d03a5ae275d45c43d4eb74a388";
    fs::write(&keys, format!("admin one sha256:{hash}\n")).unwrap();
    let flags = [
        "--keys",
        text(&keys),
        "--audit",
        text(&audit),
        "--log",
        "info",
    ];
    let (server, log) = start_logged(folder.path(), &flags);
    let status = |secret: &str| {
        let header = format!("authorization: Bearer {secret}\r\n");
        ask(&server, &header, "POST", "/v1/admin/snapshot").0
    };
    let (first, second) = ("dddddddddddddddd", "eeeeeeeeeeeeeeee");
    assert_eq!((status(first), status(second)), (200, 401));
    // A connection that is there goes on.
    let mut kept = Client::connect(&server.address).unwrap();
    kept.headers = format!("authorization: Bearer {second}\r\n");
    assert_eq!(kept.call("GET", "/v1/state", "").unwrap().0, 401);

    fs::write(&keys, format!("admin two {second}\n")).unwrap();
    assert_eq!((status(first), status(second)), (200, 401));
    let lines = fs::read_to_string(&audit).unwrap().lines().count();
    fs::rename(&audit, folder.path().join("audit.1")).unwrap();
    signal(server.id(), "HUP");
    wait_for(&log, "reloaded", 2);
    assert_eq!((status(first), status(second)), (401, 200));
    assert_eq!(kept.call("GET", "/v1/state", "").unwrap().0, 200);

    fs::write(&keys, "admin three short\n").unwrap();
    signal(server.id(), "HUP");
    let said = wait_for(&log, "ERROR", 1);
    assert!(
        said.contains("line 1") && said.contains("stay in use"),
        "{said}"
    );
    assert!(
        !said.contains("short\n") && !said.contains(second),
        "{said}"
    );
    assert_eq!((status(first), status(second)), (401, 200));

    // The audit log was opened again, and the ordinary one has none of it.
    let moved = fs::read_to_string(folder.path().join("audit.1")).unwrap();
    assert_eq!((lines, moved.lines().count()), (4, 4));
    let entries: Vec<Value> = fs::read_to_string(&audit)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let seen: Vec<_> = entries
        .iter()
        .map(|entry| (entry["key"].as_str().unwrap(), entry["status"].clone()))
        .collect();
    let expected = [
        ("-", json!(401)),
        ("two", json!(200)),
        ("-", json!(401)),
        ("two", json!(200)),
    ];
    assert_eq!(seen, expected);
    assert_eq!(entries[0]["route"], "/v1/admin/snapshot");
    let said = fs::read_to_string(&log).unwrap();
    assert!(!said.contains("/v1/admin/snapshot"), "{said}");
    assert!(server.stop().success());
}

#[test]
fn a_hangup_reads_the_certificate_again() {
    let folder = tempfile::tempdir().unwrap();
    let (cert, key) = (
        folder.path().join("cert.pem"),
        folder.path().join("key.pem"),
    );
    let renew = |name: &str| {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        fs::write(&cert, made.cert.pem()).unwrap();
        fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        let copy = folder.path().join(name);
        fs::write(&copy, made.cert.pem()).unwrap();
        copy
    };
    let old = renew("old.pem");
    let flags = ["--tls-cert", text(&cert), "--tls-key", text(&key)];
    let (server, log) = start_logged(folder.path(), &flags);
    let port = server.address.rsplit(':').next().unwrap();
    let url = format!("https://localhost:{port}");
    let trusts = |ca: &Path| {
        let output = sclub()
            .args(["explain", "--url", &url, "--ca", text(ca)])
            .output()
            .unwrap();
        output.status.success()
    };
    assert!(trusts(&old));
    let new = renew("new.pem");
    assert!(trusts(&old) && !trusts(&new));
    signal(server.id(), "HUP");
    wait_for(&log, "reloaded", 1);
    assert!(!trusts(&old) && trusts(&new));

    fs::write(&key, "torn").unwrap();
    signal(server.id(), "HUP");
    wait_for(&log, "ERROR", 1);
    assert!(trusts(&new));
    assert!(server.stop().success());
}

#[test]
fn the_machine_s_authorities_are_trusted_unless_a_file_is_given() {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        path
    };
    let authority = |name: &str| {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let root = params.self_signed(&key).unwrap();
        (file(name, &root.pem()), Issuer::new(params, key))
    };
    let (trusted, issuer) = authority("trusted.pem");
    let (other, _) = authority("other.pem");
    let leaf = KeyPair::generate().unwrap();
    let signed = CertificateParams::new(["localhost".to_owned()])
        .and_then(|params| params.signed_by(&leaf, &issuer))
        .unwrap();
    let cert = file("cert.pem", &signed.pem());
    let key = file("key.pem", &leaf.serialize_pem());
    let flags = ["--tls-cert", text(&cert), "--tls-key", text(&key)];
    let (server, _) = start_logged(folder.path(), &flags);
    let port = server.address.rsplit(':').next().unwrap();
    let url = format!("https://localhost:{port}");

    // What goes wrong where the machine trusts one file and the command is given another.
    let explain = |machine: &Path, given: Option<&Path>| {
        let mut command = sclub();
        command.args(["explain", "--url", &url]);
        command.env("SSL_CERT_FILE", machine);
        command.env_remove("SSL_CERT_DIR");
        if let Some(given) = given {
            command.args(["--ca", text(given)]);
        }
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.success(), said.is_empty(), "{said}");
        said
    };
    assert_eq!(explain(&trusted, None), "");
    assert_eq!(explain(&other, Some(&trusted)), "");
    let said = explain(&trusted, Some(&other));
    assert!(said.contains("no secure connection"), "{said}");
    let said = explain(&other, None);
    assert!(
        said.contains("no secure connection") && said.contains("--ca FILE"),
        "{said}"
    );
    let said = explain(&file("none.pem", ""), None);
    assert!(
        said.contains("has no certificate authorities") && said.contains("--ca FILE"),
        "{said}"
    );
    assert!(server.stop().success());
}

#[test]
fn a_hangup_without_files_is_harmless() {
    let folder = tempfile::tempdir().unwrap();
    let (server, log) = start_logged(folder.path(), &[]);
    signal(server.id(), "HUP");
    wait_for(&log, "nothing to reload", 1);
    assert_eq!(ask(&server, "", "GET", "/healthz").0, 200);
    assert!(server.stop().success());
}
