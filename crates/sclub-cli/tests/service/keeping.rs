//! The data folder: forgetting, copies, damage, full disks, and who may use it.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::{Value, json};

use crate::crash::verify;
use crate::server::{Client, Dice, Server, items, sclub};

/// Serves some rounds; returns what was sent: user, item, reward.
pub fn serve_rounds(server: &Server, rounds: u64, users: &[&str]) -> Vec<(String, String, f64)> {
    let mut client = Client::connect(&server.address).unwrap();
    let mut dice = Dice(rounds);
    let sent = (0..rounds)
        .map(|_| {
            let user = users[dice.below(users.len() as u64) as usize];
            let body = json!({"user": user}).to_string();
            let (status, shown) = client.call("POST", "/v1/recommend", &body).unwrap();
            assert_eq!(status, 200, "{shown}");
            let reward = dice.unit();
            let body = json!({"decision": shown["decision"], "reward": reward}).to_string();
            let (status, answer) = client.call("POST", "/v1/feedback", &body).unwrap();
            assert_eq!(
                (status, &answer["applied"]),
                (200, &json!(true)),
                "{answer}"
            );
            let item = shown["items"][0]["id"].as_str().unwrap().to_owned();
            (user.to_owned(), item, reward)
        })
        .collect();
    server.settle();
    sent
}

pub fn run(arguments: &[&str]) -> Output {
    sclub().args(arguments).output().unwrap()
}

pub fn fails_with(output: &Output, needle: &str) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "it went well");
    assert!(errors.contains(needle), "'{needle}' is not in: {errors}");
    assert!(!errors.contains("panicked"), "{errors}");
}

pub fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Files that hold a word.
pub fn holding(folder: &Path, word: &str) -> Vec<PathBuf> {
    let holds = |path: &PathBuf| {
        let bytes = fs::read(path).unwrap();
        bytes
            .windows(word.len())
            .any(|part| part == word.as_bytes())
    };
    files(folder).into_iter().filter(holds).collect()
}

#[test]
fn nothing_of_a_forgotten_user_is_left_in_the_folder() {
    forget_with("sclub");
    forget_with("sclub-soft");
}

fn forget_with(policy: &str) {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Server::start(&data, &["--snapshot-every", "20", "--policy", policy]);
    server.ok("PUT", "/v1/items", &items(12, 3));
    let users = ["anna", "Philomena-7731", "carla"];
    serve_rounds(&server, 90, &users);
    // A decision without an answer is forgotten too.
    let open = server.ok("POST", "/v1/recommend", r#"{"user": "Philomena-7731"}"#);
    server.ok("POST", "/v1/admin/snapshot", "");
    assert!(
        !holding(&data, "Philomena-7731").is_empty(),
        "the test looks in vain"
    );

    let before = server.ok("GET", "/v1/users/Philomena-7731", "");
    assert!(before["count"].as_u64().unwrap() > 5);
    let fits = server.state()["clustering"]["fits"].clone();
    let gone = server.ok("DELETE", "/v1/users/Philomena-7731", "");
    assert_eq!(gone, json!({"forgotten": true, "known": true}));
    assert_eq!(server.call("GET", "/v1/users/Philomena-7731", "").0, 404);
    let (status, answer) = server.call(
        "POST",
        "/v1/feedback",
        &json!({"decision": open["decision"], "reward": 1.0}).to_string(),
    );
    assert_eq!(
        (status, &answer["error"]["code"]),
        (410, &json!("forgotten"))
    );
    let others = ["anna", "carla"].map(|user| server.ok("GET", &format!("/v1/users/{user}"), ""));
    let counts = others.map(|card| card["count"].as_u64().unwrap());
    assert_eq!(server.state()["rewards"], counts.iter().sum::<u64>());
    // The fit is made again without the user.
    server.settle();
    let anew = &server.state()["clustering"]["fits"];
    assert_eq!(anew.as_u64(), fits.as_u64().map(|fits| fits + 1));
    let hash = server.hash();
    let done = server.ok("POST", "/v1/admin/compact", "");
    assert!(done["dropped"].as_u64().unwrap() > 5, "{done}");
    assert_eq!(holding(&data, "Philomena-7731"), Vec::<PathBuf>::new());
    assert_eq!(server.hash(), hash);
    let users = server.ok("GET", "/v1/history?limit=1000", "");
    assert!(!users.to_string().contains("Philomena-7731"));

    // The sums of those who stay are those of their own statistics.
    serve_rounds(&server, 30, &["anna", "carla", "dora"]);
    let hash = server.hash();
    assert!(server.stop().success());
    assert_eq!(holding(&data, "Philomena-7731"), Vec::<PathBuf>::new());
    assert_eq!(verify(&data)["hash"], hash.as_str());
    let server = Server::start(&data, &[]);
    assert_eq!(server.hash(), hash);
}

#[test]
fn a_copy_is_taken_while_it_serves_and_is_as_good() {
    let folder = tempfile::tempdir().unwrap();
    let (data, copy) = (folder.path().join("data"), folder.path().join("copy"));
    let (file, lines) = (folder.path().join("backup"), folder.path().join("lines"));
    let server = Server::start(&data, &["--snapshot-every", "25"]);
    server.ok("PUT", "/v1/items", &items(9, 4));
    let sent = serve_rounds(&server, 60, &["a", "b", "c"]);
    let open = server.ok("POST", "/v1/recommend", r#"{"user": "d", "k": 2}"#);
    let hash = server.hash();
    let taken = run(&["backup", "--url", &server.url, "--out", text(&file)]);
    assert!(taken.status.success(), "{taken:?}");
    serve_rounds(&server, 10, &["a"]);
    assert_ne!(server.hash(), hash);

    let restored = run(&["restore", "--from", text(&file), "--data", text(&copy)]);
    assert!(restored.status.success(), "{restored:?}");
    assert_eq!(verify(&copy)["hash"], hash.as_str());
    let again = run(&["restore", "--from", text(&file), "--data", text(&copy)]);
    fails_with(&again, "copy");
    let second = Server::start(&copy, &[]);
    assert_eq!(second.hash(), hash);
    // What the first handed out before the copy was taken, the second knows.
    let answer = json!({"decision": open["decision"], "reward": 0.5}).to_string();
    assert_eq!(
        second.ok("POST", "/v1/feedback", &answer),
        json!({"applied": true})
    );

    // What either hands out from then on is its own.
    let [of_first, of_second] =
        [&server, &second].map(|one| one.ok("POST", "/v1/recommend", r#"{"user": "e"}"#));
    for (one, other) in [(&server, &of_second), (&second, &of_first)] {
        let body = json!({"decision": other["decision"], "reward": 0.5}).to_string();
        let (status, answer) = one.call("POST", "/v1/feedback", &body);
        let said = (status, &answer["error"]["code"]);
        assert_eq!(said, (409, &json!("other_copy")), "{answer}");
    }

    let exported = run(&["export", "--url", &second.url, "--out", text(&lines)]);
    assert!(exported.status.success(), "{exported:?}");
    let exported = fs::read_to_string(&lines).unwrap();
    let exported: Vec<Value> = exported
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    // With the second one's decision that was not answered.
    assert_eq!(exported.len(), 63);
    for (line, (user, item, reward)) in exported.iter().zip(&sent) {
        assert_eq!(line["user"], user.as_str());
        assert_eq!(line["item"], item.as_str());
        assert_eq!(line["reward"], *reward);
        let stored = second.ok("GET", &format!("/v1/items/{item}"), "");
        assert_eq!(line["features"], stored["features"]);
        assert!(line["rewarded"].as_u64() >= line["decided"].as_u64());
    }
    let (answered, unanswered) = (&exported[60], &exported[61]);
    assert_eq!(
        (&answered["user"], &answered["reward"]),
        (&json!("d"), &json!(0.5))
    );
    assert_eq!(
        (&unanswered["user"], &unanswered["reward"]),
        (&json!("d"), &Value::Null)
    );
    assert_eq!(unanswered["item"], open["items"][1]["id"]);
    assert!(unanswered["features"].is_array());
    assert!(second.stop().success());
    let offline = run(&["export", "--data", text(&copy)]);
    assert_eq!(
        String::from_utf8(offline.stdout).unwrap().lines().count(),
        63
    );
}

#[test]
fn spaces_that_a_command_leaves_out_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let (data, file) = (folder.path().join("data"), folder.path().join("backup"));
    let server = Server::start(&data, &[]);
    let said = |arguments: &[&str]| {
        let output = run(arguments);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let backup = |source: &[&str]| said(&[&["backup", "--out", text(&file)], source].concat());
    assert_eq!(backup(&["--url", &server.url]), "");
    for space in ["shop", "news"] {
        let path = format!("/v1/spaces/{space}");
        assert_eq!(server.call("PUT", &path, r#"{"dim": 2}"#).0, 201);
    }
    let url = server.url.trim_end_matches('/');
    let of_url = format!("`sclub backup --url {url}/v1/spaces/NAME`");
    let told = backup(&["--quiet", "--url", &server.url]);
    assert!(
        told.contains("not news, shop;") && told.contains(&of_url),
        "{told}"
    );
    assert_eq!(backup(&["--url", &format!("{url}/v1/spaces/news")]), "");
    assert!(server.stop().success());
    let of_data = data.join("spaces").join("NAME");
    for (command, told) in [
        ("sclub backup", backup(&["--data", text(&data)])),
        (
            "sclub verify",
            said(&["verify", "--json", "--data", text(&data)]),
        ),
        (
            "sclub backup --drill",
            said(&["backup", "--drill", "--data", text(&data)]),
        ),
    ] {
        let how = format!("`{command} --data {}`", of_data.display());
        assert!(
            told.contains("not news, shop;") && told.contains(&how),
            "{told}"
        );
    }
    let news = data.join("spaces/news");
    assert_eq!(backup(&["--data", text(&news)]), "");
    assert_eq!(said(&["verify", "--json", "--data", text(&news)]), "");
}

#[test]
fn a_folder_is_used_by_one_server_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Server::start(&data, &[]);
    let second = run(&["serve", "--addr", "127.0.0.1:0", "--data", text(&data)]);
    fails_with(&second, "in use");
    fails_with(&run(&["verify", "--data", text(&data)]), "in use");
    server.ok("PUT", "/v1/items", &items(3, 2));
    assert!(server.stop().success());
    let third = Server::start(&data, &[]);
    assert_eq!(third.state()["items"], 3);
}

#[test]
fn settings_that_do_not_fit_the_folder_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Server::start(&data, &["--policy", "linucb-ind", "--dim", "3"]);
    server.ok("PUT", "/v1/items", &items(3, 3));
    assert!(server.stop().success());
    let start = |more: &[&str]| {
        let mut arguments = vec!["serve", "--addr", "127.0.0.1:0", "--data", text(&data)];
        arguments.extend(more);
        run(&arguments)
    };
    fails_with(&start(&["--policy", "sclub"]), "linucb-ind");
    fails_with(&start(&["--dim", "4"]), "dim is 4");
    fails_with(&start(&["--preset", "released"]), "tuned");
    fails_with(&start(&["--beta-scale", "0.5"]), "beta-scale is 0.5");
    fails_with(
        &start(&["--half-life", "50"]),
        "half-life is not a setting of policy linucb-ind",
    );
    let server = Server::start(&data, &[]);
    assert_eq!(server.state()["policy"], "linucb-ind");
    let foreign = folder.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("thesis.txt"), "years of work").unwrap();
    let refused = run(&["serve", "--addr", "127.0.0.1:0", "--data", text(&foreign)]);
    fails_with(&refused, "foreign");
    assert_eq!(files(&foreign), [foreign.join("thesis.txt")]);
}

#[test]
fn a_new_folder_is_for_sclub_soft_and_keeps_its_half_life() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let start = |more: &[&str]| {
        let mut arguments = vec!["serve", "--addr", "127.0.0.1:0", "--data", text(&data)];
        arguments.extend(more);
        run(&arguments)
    };
    // Settings of other policies are refused, and no folder is made.
    let others = "or use one of the policies that have it: sclub, linucb-ind, linucb-one";
    for flag in ["alpha-theta", "alpha-p"] {
        let refused = start(&[&format!("--{flag}"), "1"]);
        let expected = format!(
            "{flag} is not a setting of policy sclub-soft; omit {flag}, or use one of the policies that have it: sclub"
        );
        fails_with(&refused, &expected);
    }
    for flag in ["beta", "beta-scale"] {
        let refused = start(&[&format!("--{flag}"), "1"]);
        fails_with(
            &refused,
            &format!("{flag} is not a setting of policy sclub-soft; omit {flag}, {others}"),
        );
    }
    fails_with(
        &start(&["--preset", "released"]),
        &format!("omit preset, {others}"),
    );
    fails_with(
        &start(&["--policy", "sclub", "--half-life", "50"]),
        "half-life is not a setting of policy sclub",
    );
    let server = Server::start(&data, &["--half-life", "50"]);
    server.ok("PUT", "/v1/items", &items(4, 3));
    serve_rounds(&server, 70, &["a", "b"]);
    let state = server.hashed();
    assert_eq!(state["policy"], "sclub-soft");
    assert_eq!(state["constants"], json!({"half-life": 50.0}));
    assert!(state["clustering"]["fits"].as_u64() > Some(0), "{state}");
    assert!(server.stop().success());
    fails_with(&start(&["--half-life", "60"]), "made with 50");
    fails_with(
        &start(&["--beta", "1"]),
        "beta is not a setting of policy sclub-soft",
    );
    let server = Server::start(&data, &[]);
    assert_eq!(server.hash(), state["hash"].as_str().unwrap());
    let identity = holding(&data, r#"{"format":5,"policy":"sclub-soft""#);
    assert_eq!(identity, [data.join("identity")]);
}

/// A limit on the size of files stands in for a full disk: it needs no rights, and a write fails the
/// same way.
#[test]
fn a_full_disk_is_said_and_nothing_acknowledged_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let script = format!(
        "trap '' XFSZ; ulimit -f 8192; exec '{}' serve --addr 127.0.0.1:0 --log error --data '{}'",
        env!("CARGO_BIN_EXE_sclub"),
        data.display()
    );
    let mut command = std::process::Command::new("bash");
    command.args(["-c", &script]);
    let server = Server::from(command);
    // 512 features a line: the log grows fast.
    let mut taken = 0;
    let (status, answer) = loop {
        let line = json!({"id": format!("i{taken}"), "features": vec![0.25; 512]}).to_string();
        let (status, answer) = server.call("PUT", "/v1/items", &line);
        if status != 200 {
            break (status, answer);
        }
        taken += 1;
        assert!(taken < 20_000, "the disk did not fill");
    };
    assert_eq!(
        (status, &answer["error"]["code"]),
        (503, &json!("read_only")),
        "{answer}"
    );
    assert!(
        !answer["error"]["message"]
            .as_str()
            .unwrap()
            .contains("data"),
        "{answer}"
    );
    // It may be writable again by now: the log goes on in another file.
    let state = server.hashed();
    assert_eq!(state["items"], taken);
    assert_ne!(state["writable"], state["read_only_reason"].is_string());
    let shown = server.ok("POST", "/v1/recommend", r#"{"user": "u"}"#);
    assert!(shown["items"][0]["id"].is_string(), "{shown}");
    let hash = state["hash"].clone();
    server.kill();
    assert_eq!(verify(&data)["hash"], hash);
    let server = Server::start(&data, &[]);
    assert_eq!(server.state()["items"], taken);
    server.ok(
        "PUT",
        "/v1/items",
        &json!({"id": "more", "features": vec![0.5; 512]}).to_string(),
    );
}

#[test]
fn a_flipped_byte_is_found_and_its_file_named() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Server::start(&data, &["--snapshot-every", "20"]);
    server.ok("PUT", "/v1/items", &items(5, 3));
    serve_rounds(&server, 50, &["a", "b"]);
    assert!(server.stop().success());
    verify(&data);
    let mut dice = Dice(3);
    // The figures of the page are not data: a start without them goes on.
    let kept = |file: &PathBuf| !file.ends_with("figures") && !file.ends_with("counts");
    for file in files(&data).into_iter().filter(kept) {
        let good = fs::read(&file).unwrap();
        // Behind the log there is room that was reserved for more of it, and nothing in it.
        let kept: Vec<usize> = (0..good.len()).filter(|at| good[*at] != 0).collect();
        if kept.is_empty() {
            continue;
        }
        for _ in 0..3 {
            let mut bad = good.clone();
            bad[kept[dice.below(kept.len() as u64) as usize]] ^= 1 << dice.below(8);
            fs::write(&file, &bad).unwrap();
            let copy = run(&["verify", "--data", text(&data)]);
            fails_with(&copy, file.file_name().unwrap().to_str().unwrap());
            fs::write(&file, &good).unwrap();
        }
    }
    verify(&data);
}

#[test]
fn keys_decide_who_may_do_what() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let keys = folder.path().join("keys");
    let mut file = fs::File::create(&keys).unwrap();
    for (role, secret) in [
        ("read", "read-0123456789abcdef"),
        ("write", "write-0123456789abcdef"),
        ("admin", "admin-0123456789abcdef"),
    ] {
        writeln!(file, "{role} {role}er {secret}").unwrap();
    }
    drop(file);
    let server = Server::start(&data, &["--keys", text(&keys), "--context", "age_group"]);
    let answer = |key: Option<&str>, method: &str, path: &str, body: &str| {
        let mut client = Client::connect(&server.address).unwrap();
        if let Some(key) = key {
            client.headers = format!("authorization: Bearer {key}-0123456789abcdef\r\n");
        }
        client.call(method, path, body).unwrap()
    };
    let call = |key, method: &str, path: &str, body: &str| answer(key, method, path, body).0;
    let item = r#"{"id": "a", "features": [1, 0]}"#;
    for (method, path, body, least) in [
        ("GET", "/v1/state", "", 0),
        ("GET", "/metrics", "", 0),
        ("PUT", "/v1/items", item, 1),
        ("POST", "/v1/recommend", r#"{"user": "u"}"#, 1),
        ("DELETE", "/v1/users/u", "", 2),
        ("POST", "/v1/admin/compact", "", 2),
    ] {
        assert_eq!(call(None, method, path, body), 401, "{path} without a key");
        assert_eq!(
            call(Some("other"), method, path, body),
            401,
            "{path} with a wrong key"
        );
        for (rank, role) in ["read", "write", "admin"].into_iter().enumerate() {
            let expected = if rank >= least { 200 } else { 403 };
            assert_eq!(
                call(Some(role), method, path, body),
                expected,
                "{path} as {role}"
            );
        }
    }
    for open in ["/healthz", "/readyz", "/", "/docs", "/v1/openapi.json"] {
        assert_eq!(call(None, "GET", open, ""), 200, "{open}");
    }
    // What the description tells of the catalogue needs a key.
    for (key, is_told) in [(None, false), (Some("other"), false), (Some("read"), true)] {
        let (status, description) = answer(key, "GET", "/v1/openapi.json", "");
        assert_eq!(status, 200);
        let description = description.to_string();
        assert_eq!(description.contains("age_group"), is_told, "{key:?}");
    }
    let elsewhere = folder.path().join("elsewhere");
    let refused = run(&["serve", "--addr", "0.0.0.0:0", "--data", text(&elsewhere)]);
    fails_with(&refused, "--insecure");
    assert!(!elsewhere.exists());
}
