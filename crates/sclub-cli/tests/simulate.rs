//! `sclub simulate`, `backup` and `export` against a small server that learns as the lab does.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use sclub::{ItemSet, Observation, Params, Policy, Sclub, Users};
use serde_json::{Value, json};

/// A decision that waits for its reward: the user and the features of the shown item.
type Waiting = HashMap<String, (u64, Vec<f64>)>;

/// The state of the mock server.
#[derive(Default)]
struct Mock {
    policy: Option<Sclub>,
    expected: Option<u64>,
    rounds: u64,
    decided: u64,
    waiting: Waiting,
    /// Calls by their path.
    calls: HashMap<String, u64>,
    keys: Vec<String>,
    /// The number of items in the catalogue, and of their features.
    items: u64,
    dim: Option<u64>,
    /// The maximum number of items shown at once, and the largest reward.
    limits: (Option<u64>, Option<f64>),
    /// The code of the error with which feedback is refused.
    refusal: Option<&'static str>,
}

impl Mock {
    fn policy(&mut self, dim: usize) -> &mut Sclub {
        let users = self.expected.map_or(Users::Appear, Users::Declared);
        self.policy.get_or_insert_with(|| {
            let mut policy = Sclub::new(dim, users, &Params::tuned()).unwrap();
            // A time slot without users.
            for _ in 0..self.rounds {
                policy.learn_round(&[], &mut Vec::new()).unwrap();
            }
            policy
        })
    }

    fn recommend(&mut self, request: &Value) -> Value {
        self.decided += 1;
        let decision = format!("d\"{}", self.decided);
        let user = request["user"].as_str().unwrap();
        let Some(items) = request["items"].as_array() else {
            let id = request["candidates"][0].as_str().unwrap_or("any");
            self.waiting.insert(decision.clone(), (0, Vec::new()));
            return json!({ "decision": decision, "items": [{ "id": id }] });
        };
        let user: u64 = user.strip_prefix('u').unwrap().parse().unwrap();
        let features = items.iter().map(|item| {
            let features = item["features"].as_array().unwrap().iter();
            features.map(|x| x.as_f64().unwrap()).collect()
        });
        let features: Vec<Vec<f64>> = features.collect();
        let set = ItemSet::from_rows(features[0].len(), &features.concat()).unwrap();
        let policy = self.policy(features[0].len());
        let choice = policy.recommend(user, &set).unwrap().index;
        let shown = (user, features[choice].clone());
        self.waiting.insert(decision.clone(), shown);
        json!({ "decision": decision, "items": [{ "id": items[choice]["id"], "score": 0.5 }] })
    }

    fn feedback(&mut self, all: &[Value]) -> Vec<bool> {
        self.rounds += 1;
        let mut given = Vec::new();
        let mut applied = Vec::new();
        for one in all {
            let shown = self.waiting.remove(one["decision"].as_str().unwrap());
            applied.push(shown.is_some());
            given.extend(shown.map(|(user, item)| (user, item, one["reward"].as_f64().unwrap())));
        }
        given.retain(|(_, item, _)| !item.is_empty());
        let round: Vec<Observation<'_>> = given
            .iter()
            .map(|(user, item, reward)| Observation::new(*user, item, *reward))
            .collect();
        if let Some(policy) = &mut self.policy {
            policy.learn_round(&round, &mut Vec::new()).unwrap();
        }
        applied
    }

    fn answer(&mut self, method: &str, path: &str, body: &[u8]) -> (u16, Value) {
        *self.calls.entry(format!("{method} {path}")).or_default() += 1;
        let json = || serde_json::from_slice::<Value>(body).unwrap();
        match path {
            "/healthz" => (200, json!("ok")),
            "/v1/state" => {
                let clusters = self.policy.as_ref().map_or(1, Policy::clusters);
                let state = json!({
                    "rounds": self.rounds, "clusters": clusters, "dim": self.dim, "policy": "sclub",
                    "items": self.items, "preset": "tuned", "version": "0", "more": [],
                    "max_k": self.limits.0, "reward_max": self.limits.1,
                });
                (200, state)
            }
            "/v1/admin/expect" => {
                self.expected = json()["users"].as_u64();
                (200, json!({}))
            }
            "/v1/items" => {
                let lines = body.split(|&byte| byte == b'\n');
                let lines = lines.filter(|line| !line.is_empty());
                let items = lines.map(|line| serde_json::from_slice::<Value>(line).unwrap());
                (200, json!({ "items": items.count() }))
            }
            "/v1/recommend" => (200, self.recommend(&json())),
            "/v1/recommend/batch" => {
                let requests = json();
                let requests = requests["requests"].as_array().unwrap().iter();
                let decisions: Vec<Value> = requests.map(|one| self.recommend(one)).collect();
                (200, json!({ "decisions": decisions }))
            }
            "/v1/feedback" | "/v1/feedback/batch" if self.refusal.is_some() => {
                let error = json!({ "code": "read_only", "message": self.refusal });
                (503, json!({ "error": error }))
            }
            "/v1/feedback" => (200, json!({ "applied": self.feedback(&[json()])[0] })),
            "/v1/feedback/batch" => {
                let applied = self.feedback(json()["feedback"].as_array().unwrap());
                (200, json!({ "applied": applied }))
            }
            "/v1/admin/export" => (200, json!({ "user": "u1" })),
            "/v1/admin/backup" => {
                let error = json!({ "code": "forbidden", "message": "not with this key" });
                (403, json!({ "error": error }))
            }
            other => panic!("{method} {other}"),
        }
    }
}

/// Reads requests and answers them until the client hangs up.
fn talk(stream: TcpStream, mock: &Mutex<Mock>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut out = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut first = String::new();
        if reader.read_line(&mut first)? == 0 {
            return Ok(());
        }
        let mut length = 0;
        loop {
            let mut header = String::new();
            reader.read_line(&mut header)?;
            if header == "\r\n" {
                break;
            }
            let (name, value) = header.trim_end().split_once(": ").unwrap();
            match name {
                "content-length" => length = value.parse().unwrap(),
                "authorization" => mock.lock().unwrap().keys.push(value.to_owned()),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let mut words = first.split(' ');
        let (method, path) = (words.next().unwrap(), words.next().unwrap());
        let (status, answer) = mock.lock().unwrap().answer(method, path, &body);
        let answer = answer.to_string();
        let (head, tail) = answer.split_at(answer.len() / 2);
        if path == "/v1/admin/export" {
            write!(
                out,
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{head}\r\n{:x}\r\n{tail}\r\n0\r\n\r\n",
                head.len(),
                tail.len()
            )?;
        } else {
            let length = answer.len();
            let text = format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n{answer}");
            out.write_all(text.as_bytes())?;
        }
    }
}

/// Starts the small server.
fn serve(mock: Mock) -> (String, Arc<Mutex<Mock>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mock = Arc::new(Mutex::new(mock));
    let shared = Arc::clone(&mock);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mock = Arc::clone(&shared);
            std::thread::spawn(move || talk(stream.unwrap(), &mock));
        }
    });
    (url, mock)
}

fn sclub(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sclub"));
    command.env_remove("SCLUB_KEY").env_remove("SCLUB_URL");
    command.current_dir(folder).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

const WORLD: [&str; 14] = [
    "--users",
    "30",
    "--clusters",
    "3",
    "--dim",
    "5",
    "--items",
    "8",
    "--rounds",
    "700",
    "--first-seed",
    "4",
    "--frequencies",
    "users",
];

/// Plays both, and compares what the lab says with what came over HTTP.
fn compare(more: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let (url, mock) = serve(Mock::default());
    let world = [&WORLD[..], more].concat();
    let args = [
        &["simulate", "--url", &url, "--json", "out/played.json"],
        &world[..],
    ]
    .concat();
    let output = sclub(folder.path(), &args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let run = [
        "run",
        "--policies",
        "sclub",
        "--seeds",
        "1",
        "--no-figure",
        "--json",
        "run.json",
    ];
    let ran = sclub(folder.path(), &[&run, &world[..]].concat());
    assert!(ran.status.success(), "{}", text(&ran.stderr));

    let played = read(&folder.path().join("out/played.json"));
    let ran = &read(&folder.path().join("run.json"))["runs"][0];
    for key in [
        "regret",
        "random_regret",
        "reward",
        "served",
        "rounds",
        "clusters",
    ] {
        assert_eq!(played[key], ran[key], "{key}");
    }
    assert_eq!(played["fresh"], true);
    assert_eq!(played["complete"], true);
    assert_eq!(mock.lock().unwrap().expected, Some(30));
    let shown = text(&output.stdout);
    let command = "sclub run --policies sclub --preset tuned --seeds 1 --first-seed 4 --rounds 700 \
                   --frequencies users --users 30 --clusters 3 --dim 5 --items 8";
    assert!(shown.contains(command), "{shown}");
}

#[test]
fn the_regret_is_that_of_the_lab_to_the_last_digit() {
    compare(&[]);
}

#[test]
fn several_users_a_round_are_one_time_slot() {
    compare(&["--users-a-round", "2.5"]);
}

#[test]
fn more_connections_play_all_rounds_too() {
    let folder = tempfile::tempdir().unwrap();
    let (url, mock) = serve(Mock::default());
    let args = [
        "simulate",
        "--url",
        &url,
        "--json",
        "played.json",
        "--connections",
        "5",
    ];
    let output = sclub(folder.path(), &[&args, &WORLD[..]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("no fixed order"));
    assert!(!text(&output.stdout).contains("sclub run"));
    let played = read(&folder.path().join("played.json"));
    assert_eq!(played["served"], 700);
    assert_eq!(mock.lock().unwrap().rounds, 700);
    // What random choice misses does not depend on who plays when, but for the order of the sum.
    let (url, _mock) = serve(Mock::default());
    let args = ["simulate", "--url", &url, "--json", "one.json"];
    sclub(folder.path(), &[&args, &WORLD[..]].concat());
    let one = read(&folder.path().join("one.json"))["random_regret"]
        .as_f64()
        .unwrap();
    let many = played["random_regret"].as_f64().unwrap();
    assert!((one - many).abs() < 1e-9 * one, "{one} {many}");
}

#[test]
fn a_server_with_a_past_is_played_with_a_word_of_warning() {
    let folder = tempfile::tempdir().unwrap();
    let past = Mock {
        rounds: 12,
        ..Mock::default()
    };
    let (url, mock) = serve(past);
    let output = sclub(
        folder.path(),
        &[&["simulate", "--url", &url], &WORLD[..]].concat(),
    );
    assert!(output.status.success());
    assert!(
        text(&output.stderr).contains("12 rounds before"),
        "{}",
        text(&output.stderr)
    );
    assert!(!text(&output.stdout).contains("sclub run"));
    assert_eq!(mock.lock().unwrap().expected, None);
}

#[test]
fn what_goes_wrong_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let gone = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", gone.local_addr().unwrap());
    drop(gone);
    let output = sclub(folder.path(), &["simulate", "--url", &url]);
    assert_eq!(output.status.code(), Some(2));
    let expected = format!("sclub: no server answers at {url}: start one with `sclub serve`\n");
    assert_eq!(text(&output.stderr), expected);

    let (url, _mock) = serve(Mock {
        refusal: Some("the disk is full"),
        ..Mock::default()
    });
    let output = sclub(
        folder.path(),
        &["simulate", "--url", &url, "--json", "x.json"],
    );
    assert_eq!(output.status.code(), Some(2));
    let error = text(&output.stderr);
    assert!(error.contains("answered 503: the disk is full"), "{error}");
    assert_eq!(read(&folder.path().join("x.json"))["complete"], false);

    for (args, word) in [
        (&["--rounds", "0"][..], "rounds is 0"),
        (&["--clusters", "9", "--users", "3"], "clusters"),
        (&["--connections", "0"], "connections is 0"),
        (&["--seconds", "3"], "--seconds goes with --load"),
        (
            &["--load", "--rounds", "3"],
            "--rounds does not apply to --load",
        ),
        (&["--url", "localhost:80"], "http://"),
        (&["--load", "--seconds", "0"], "seconds is 0"),
        (
            &["--delay", "3"],
            "--delay does not apply to --world synthetic",
        ),
        (
            &["--world", "catalogue", "--dim", "3"],
            "--dim does not apply to --world catalogue",
        ),
        (
            &["--load", "--slots", "3"],
            "--slots does not apply to --load",
        ),
        (
            &["--world", "ratings"],
            "[possible values: synthetic, catalogue]",
        ),
        (
            &["--world", "catalogue", "--slots", "9", "--items", "8"],
            "slots is 9",
        ),
    ] {
        let output = sclub(folder.path(), &[&["simulate"], args].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(
            text(&output.stderr).contains(word),
            "{}",
            text(&output.stderr)
        );
    }
}

#[test]
fn a_shop_is_put_in_batches_on_a_server_without_items() {
    let shop = [
        "--world",
        "catalogue",
        "--items",
        "4500",
        "--users",
        "12",
        "--slots",
        "3",
    ];
    let play = |mock| {
        let folder = tempfile::tempdir().unwrap();
        let (url, mock) = serve(mock);
        let output = sclub(
            folder.path(),
            &[&["simulate", "--url", &url], &shop[..]].concat(),
        );
        assert_eq!(output.status.code(), Some(2));
        (text(&output.stderr), mock)
    };
    let (error, mock) = play(Mock::default());
    let mock = mock.lock().unwrap();
    assert_eq!(mock.calls["PUT /v1/items"], 3);
    assert_eq!(mock.expected, Some(12));
    // The mock server has no catalogue.
    let shown = "the server shows 1 items of 3";
    assert!(error.contains(shown), "{error}");

    for (mock, word) in [
        (
            Mock {
                items: 7,
                dim: Some(16),
                ..Mock::default()
            },
            "the server's catalogue has items already (7)",
        ),
        (
            Mock {
                dim: Some(5),
                ..Mock::default()
            },
            "the server's items have 5 features, and those of the shop 16",
        ),
        (
            Mock {
                limits: (Some(2), None),
                ..Mock::default()
            },
            "the server shows at most 2 items at once, and the shop has 3 slots",
        ),
        (
            Mock {
                limits: (None, Some(0.5)),
                ..Mock::default()
            },
            "clicks are rewards of 0 and 1",
        ),
    ] {
        let (error, mock) = play(mock);
        assert!(error.contains(word), "{error}");
        let mock = mock.lock().unwrap();
        assert!(!mock.calls.contains_key("PUT /v1/items"));
        assert_eq!(mock.expected, None);
    }
}

#[test]
fn load_sends_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let (url, mock) = serve(Mock::default());
    let args = [
        "simulate",
        "--url",
        &url,
        "--load",
        "--seconds",
        "0.1",
        "--repeat",
        "2",
        "--connections",
        "3",
        "--threads",
        "2",
        "--json",
        "load.json",
        "--key",
        "open-sesame",
    ];
    let output = sclub(folder.path(), &args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let results = read(&folder.path().join("load.json"));
    let results = results["results"].as_array().unwrap();
    let names: Vec<&str> = results
        .iter()
        .map(|line| line["what"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        ["healthz", "recommend", "feedback", "recommend at half load"]
    );
    for line in results {
        assert!(
            line["requests_per_second"].as_f64().unwrap() > 0.0,
            "{line}"
        );
        assert_eq!(line["errors"], 0);
        assert_eq!(line["turns"].as_array().unwrap().len(), 2);
    }
    assert_eq!(results[0]["share_of_healthz"], 1.0);
    let mock = mock.lock().unwrap();
    for call in [
        "PUT /v1/items",
        "GET /healthz",
        "POST /v1/recommend",
        "POST /v1/feedback",
    ] {
        assert!(mock.calls[call] > 0, "{call}");
    }
    assert!(mock.keys.iter().all(|key| key == "Bearer open-sesame"));
    assert!(!mock.keys.is_empty());
}

#[test]
fn load_searches_a_catalogue() {
    let folder = tempfile::tempdir().unwrap();
    let (url, mock) = serve(Mock::default());
    let args = [
        "simulate",
        "--url",
        &url,
        "--load",
        "catalogue",
        "--catalogue",
        "4500",
        "--seconds",
        "0.1",
        "--repeat",
        "1",
        "--dim",
        "4",
    ];
    let output = sclub(folder.path(), &args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let mock = mock.lock().unwrap();
    assert_eq!(mock.calls["PUT /v1/items"], 3);
    assert!(mock.calls["POST /v1/recommend"] > 0);
    assert!(text(&output.stdout).contains("catalogue"));
}

#[test]
fn exports_and_backups_are_fetched_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let (url, _mock) = serve(Mock::default());
    let output = sclub(folder.path(), &["export", "--url", &url]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "{\"user\":\"u1\"}");
    let output = sclub(
        folder.path(),
        &["export", "--url", &url, "--out", "all.jsonl"],
    );
    assert!(output.status.success());
    let written = fs::read(folder.path().join("all.jsonl")).unwrap();
    assert_eq!(text(&written), "{\"user\":\"u1\"}");
    let output = sclub(folder.path(), &["backup", "--url", &url, "--out", "b"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("answered 403: not with this key"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    let output = sclub(folder.path(), &["backup", "--out", "b"]);
    assert_eq!(output.status.code(), Some(2));
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_with_what_came_so_far() {
    let folder = tempfile::tempdir().unwrap();
    let (url, mock) = serve(Mock::default());
    let played = folder.path().join("played.json");
    let child = Command::new(env!("CARGO_BIN_EXE_sclub"))
        .args(["simulate", "--url", &url, "--rounds", "10^9", "--json"])
        .arg(&played)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    while mock.lock().unwrap().rounds < 50 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let id = child.id().to_string();
    let killed = Command::new("kill").args(["-INT", &id]).status().unwrap();
    assert!(killed.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("of random choice"));
    let played = read(&played);
    assert_eq!(played["complete"], false);
    assert_eq!(played["rounds"], mock.lock().unwrap().rounds);
}
