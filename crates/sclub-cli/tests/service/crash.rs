//! `kill -9` under load: nothing acknowledged is lost, nothing is learned twice.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::server::{Client, Dice, SOON, Server, items, sclub, signal};

const USERS: u64 = 40;
const CLIENTS: u64 = 4;

/// The requests that clients have sent so far.
#[derive(Default)]
struct Sent {
    /// Rewards that were acknowledged: decision and user.
    acknowledged: Vec<(String, String)>,
    /// Rewards without an answer: they may have been learned or not.
    unanswered: Vec<(String, String)>,
    /// Decisions that were handed out and not yet answered.
    open: Vec<(String, String)>,
}

/// Recommends and answers until the server is gone.
fn drive(address: &str, seed: u64, sent: &Mutex<Sent>) {
    let mut dice = Dice(seed);
    let Some(mut client) = Client::connect(address) else {
        return;
    };
    loop {
        let user = format!("u{}", dice.below(USERS));
        let candidates: Vec<String> = (0..5)
            .map(|i| format!("i{}", i * 4 + dice.below(4)))
            .collect();
        let body = json!({"user": user, "candidates": candidates}).to_string();
        let Some((200, shown)) = client.call("POST", "/v1/recommend", &body) else {
            return;
        };
        let decision = shown["decision"].as_str().unwrap().to_owned();
        if dice.below(10) == 0 {
            sent.lock().unwrap().open.push((decision, user));
            continue;
        }
        let reward = f64::from(dice.below(2) as u32);
        let body = json!({"decision": decision, "reward": reward}).to_string();
        let answer = client.call("POST", "/v1/feedback", &body);
        let mut sent = sent.lock().unwrap();
        match answer {
            Some((200, answer)) => {
                assert_eq!(answer["applied"], true);
                sent.acknowledged.push((decision, user));
            }
            Some(other) => panic!("{other:?}"),
            None => {
                sent.unanswered.push((decision, user));
                return;
            }
        }
    }
}

pub fn verify(data: &Path) -> Value {
    let output = sclub()
        .args(["verify", "--json", "--data"])
        .arg(data)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn answer(client: &mut Client, decision: &str) -> bool {
    let body = json!({"decision": decision, "reward": 1.0}).to_string();
    let (status, answer) = client.call("POST", "/v1/feedback", &body).unwrap();
    assert_eq!(status, 200, "{answer}");
    answer["applied"].as_bool().unwrap()
}

/// A server whose state is that of an offline fold.
fn start_as_verified(data: &Path, flags: &[&str], round: u64) -> Server {
    // A fit that was due may be made between the two requests. Then none is due, so the second try is final.
    for _ in 0..2 {
        let offline = verify(data);
        let server = Server::start(data, flags);
        let state = server.hashed();
        if state["events"] == offline["events"] {
            for figure in ["hash", "rounds", "users", "clusters"] {
                assert_eq!(state[figure], offline[figure], "{figure} in round {round}");
            }
            return server;
        }
        assert!(!state["clustering"].is_null(), "events from nowhere");
        server.kill();
    }
    panic!("events from nowhere");
}

fn kill_under_load(policy: &str, rounds: u64) {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    // Often enough that a kill hits one.
    let flags = ["--snapshot-every", "300", "--policy", policy];
    let server = Server::start(&data, &flags);
    server.ok("PUT", "/v1/items", &items(20, 4));
    server.kill();
    let mut learned: HashMap<String, u64> = HashMap::new();
    let mut dice = Dice(99);
    for round in 0..rounds {
        let server = Server::start(&data, &flags);
        let sent = Mutex::new(Sent::default());
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                let (address, sent) = (&server.address, &sent);
                scope.spawn(move || drive(address, round * CLIENTS + client + 1, sent));
            }
            // Some load, even where each reward waits long for the disk.
            let begun = Instant::now();
            while sent.lock().unwrap().acknowledged.len() < 12 && begun.elapsed() < SOON {
                std::thread::sleep(Duration::from_millis(5));
            }
            std::thread::sleep(Duration::from_millis(dice.below(200)));
            signal(server.id(), "KILL");
        });
        drop(server);
        let sent = sent.into_inner().unwrap();

        let server = start_as_verified(&data, &flags, round);
        let mut client = Client::connect(&server.address).unwrap();
        for (decision, user) in &sent.acknowledged {
            assert!(
                !answer(&mut client, decision),
                "a reward was lost in round {round}"
            );
            *learned.entry(user.clone()).or_default() += 1;
        }
        for (decision, user) in &sent.unanswered {
            // Whether it had been learned or not, it has been now.
            answer(&mut client, decision);
            assert!(!answer(&mut client, decision));
            *learned.entry(user.clone()).or_default() += 1;
        }
        for (decision, user) in &sent.open {
            assert!(
                answer(&mut client, decision),
                "a decision was lost in round {round}"
            );
            *learned.entry(user.clone()).or_default() += 1;
        }
        let total: u64 = learned.values().sum();
        assert_eq!(server.state()["rewards"], total, "round {round}");
        for (user, count) in &learned {
            let card = server.ok("GET", &format!("/v1/users/{user}"), "");
            assert_eq!(card["count"], *count, "{user} in round {round}");
        }
        server.kill();
    }
    let state = Server::start(&data, &flags).state();
    assert_eq!(
        policy == "sclub-soft",
        state["clustering"]["fits"].as_u64() > Some(1)
    );
    assert!(
        learned.values().sum::<u64>() > rounds * 10,
        "there was hardly any load"
    );
}

#[test]
fn nothing_is_lost_or_doubled_by_kill_9() {
    kill_under_load("sclub", 20);
}

#[test]
fn nothing_is_lost_or_doubled_by_kill_9_while_fits_are_made() {
    kill_under_load("sclub-soft", 10);
}

/// The long form: `cargo test --release -p sclub-cli --test service -- --ignored kill_9`.
#[test]
#[ignore = "takes several minutes"]
fn nothing_is_lost_or_doubled_by_200_times_kill_9() {
    kill_under_load("sclub", 100);
    kill_under_load("sclub-soft", 100);
}
