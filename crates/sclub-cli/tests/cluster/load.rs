//! Clients that recommend and give rewards, and take note of every answer.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{Answer, Client};
use crate::nodes::{SOON, TestCluster};

const USERS: u64 = 300;
/// The number of users in a batch.
const BATCH: usize = 6;

/// Numbers that look random and are always the same.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// A reward that was sent.
#[derive(Debug, Clone)]
pub struct SentReward {
    pub decision: String,
    pub reward: f64,
}

/// The load on a cluster, and what became of it.
#[derive(Default)]
pub struct Load {
    /// Answers 503 and 504 are noted as refusals. As all clients do, these send the request again.
    pub is_strict: bool,
    /// The time for which a client waits for an answer before it asks another node.
    pub patience: Duration,
    pub stop: AtomicBool,
    /// Rewards that were acknowledged.
    pub acknowledged: Mutex<Vec<SentReward>>,
    /// Rewards that were sent and never acknowledged.
    pub unanswered: Mutex<Vec<SentReward>>,
    /// Answers that must not come.
    pub failures: Mutex<Vec<String>>,
    /// Answers 503 and 504 to a strict load.
    pub refusals: Mutex<Vec<String>>,
    /// The numbers of answers 200, of answers 503 or 504, and of requests without an answer.
    pub answered: AtomicU64,
    pub refused: AtomicU64,
    pub lost: AtomicU64,
    /// The longest time from the first attempt of a request to its success, in milliseconds.
    pub slowest: AtomicU64,
    /// Makes every reward another number.
    pub rewards: AtomicU64,
}

impl Load {
    /// Runs clients while `work` runs, and ends them after it.
    pub fn run<T>(&self, cluster: &TestCluster, clients: u64, work: impl FnOnce() -> T) -> T {
        thread::scope(|scope| {
            for client in 0..clients {
                scope.spawn(move || self.drive(cluster, client + 1));
            }
            // The clients end also if the work panics.
            let stop = StopOnDrop(self);
            let result = work();
            drop(stop);
            result
        })
    }

    /// Waits until so many rewards are acknowledged.
    pub fn wait_for_rewards(&self, count: usize) {
        let begun = Instant::now();
        while self.acknowledged.lock().unwrap().len() < count {
            assert!(
                begun.elapsed() < SOON,
                "there was hardly any load: {}",
                self.summary()
            );
            thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn check_failures(&self) {
        let failures = self.failures.lock().unwrap();
        assert!(failures.is_empty(), "{failures:#?}");
    }

    /// The counts, for people.
    pub fn summary(&self) -> String {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        format!(
            "{} answered, {} refused, {} without an answer; {} rewards acknowledged, {} not; the slowest request took {} ms",
            count(&self.answered),
            count(&self.refused),
            count(&self.lost),
            self.acknowledged.lock().unwrap().len(),
            self.unanswered.lock().unwrap().len(),
            count(&self.slowest),
        )
    }

    /// Recommends and gives rewards until the load ends.
    fn drive(&self, cluster: &TestCluster, seed: u64) {
        let nodes = 0..cluster.count();
        let mut driver = Driver {
            load: self,
            dice: Dice(seed),
            clients: nodes
                .map(|i| cluster.client_within(i, self.patience))
                .collect(),
        };
        while !self.stop.load(Ordering::Relaxed) {
            match driver.dice.below(20) {
                0..=2 => driver.batch(),
                3 => driver.put_item(),
                _ => driver.single(),
            }
            thread::sleep(Duration::from_millis(driver.dice.below(8)));
        }
    }
}

struct StopOnDrop<'a>(&'a Load);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

struct Driver<'a> {
    load: &'a Load,
    dice: Dice,
    clients: Vec<Client>,
}

impl Driver<'_> {
    /// Sends a request to random nodes until it is answered. None if the load ended before, or the answer is an error.
    fn call(&mut self, method: &str, path: &str, body: &str) -> Option<Value> {
        let load = self.load;
        let begun = Instant::now();
        // What is begun is to be finished, but not for ever.
        let is_over = |begun: Instant| {
            load.stop.load(Ordering::Relaxed) && begun.elapsed() > Duration::from_secs(30)
        };
        while !is_over(begun) {
            let node = self.dice.below(self.clients.len() as u64) as usize;
            let Some(answer) = self.clients[node].call(method, path, body) else {
                load.lost.fetch_add(1, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(20));
                continue;
            };
            let Answer { status, body, .. } = answer;
            if status == 200 {
                load.answered.fetch_add(1, Ordering::Relaxed);
                let took = begun.elapsed().as_millis() as u64;
                load.slowest.fetch_max(took, Ordering::Relaxed);
                return Some(body);
            }
            let took = begun.elapsed();
            let told = || format!("{path} on node {node} after {took:?}: {status} {body}");
            if !matches!(status, 503 | 504) {
                load.failures.lock().unwrap().push(told());
                return None;
            }
            if load.is_strict {
                load.refusals.lock().unwrap().push(told());
            }
            load.refused.fetch_add(1, Ordering::Relaxed);
            thread::sleep(Duration::from_millis(50));
        }
        if load.is_strict {
            let failure = format!("{path} was never answered");
            load.failures.lock().unwrap().push(failure);
        }
        None
    }

    fn question(&mut self) -> Value {
        let user = format!("u{}", self.dice.below(USERS));
        let candidates = (0..5).map(|i| format!("i{}", i * 4 + self.dice.below(4)));
        let candidates: Vec<String> = candidates.collect();
        json!({"user": user, "candidates": candidates})
    }

    /// A reward that no other decision has.
    fn reward(&self, shown: &Value) -> SentReward {
        let number = self.load.rewards.fetch_add(1, Ordering::Relaxed);
        SentReward {
            decision: shown["decision"].as_str().unwrap().to_owned(),
            reward: number as f64 / (1u64 << 40) as f64 + (number % 2) as f64 / 2.0,
        }
    }

    fn single(&mut self) {
        let question = self.question().to_string();
        let Some(shown) = self.call("POST", "/v1/recommend", &question) else {
            return;
        };
        // Some users never answer.
        if self.dice.below(10) == 0 {
            return;
        }
        let sent = self.reward(&shown);
        let decision = sent.decision.clone();
        let body = json!({"decision": decision, "reward": sent.reward}).to_string();
        let answer = self.call("POST", "/v1/feedback", &body);
        let is_answered = answer.is_some();
        self.note(vec![sent], is_answered);
        if is_answered && self.dice.below(10) == 0 {
            // Another reward for the same decision must not count.
            let again = json!({"decision": decision, "reward": 0.9}).to_string();
            if let Some(answer) = self.call("POST", "/v1/feedback", &again)
                && answer["applied"] != false
            {
                let failure = format!("a repeated reward was applied: {answer}");
                self.load.failures.lock().unwrap().push(failure);
            }
        }
    }

    fn batch(&mut self) {
        let requests: Vec<Value> = (0..BATCH).map(|_| self.question()).collect();
        let body = json!({"requests": requests}).to_string();
        let Some(shown) = self.call("POST", "/v1/recommend/batch", &body) else {
            return;
        };
        let shown = shown["decisions"].as_array().unwrap();
        let sent: Vec<SentReward> = shown.iter().map(|shown| self.reward(shown)).collect();
        let feedback = sent
            .iter()
            .map(|sent| json!({"decision": sent.decision, "reward": sent.reward}));
        let feedback: Vec<Value> = feedback.collect();
        let body = json!({"feedback": feedback}).to_string();
        let answer = self.call("POST", "/v1/feedback/batch", &body);
        self.note(sent, answer.is_some());
    }

    /// Gives an item other features.
    fn put_item(&mut self) {
        let features: Vec<f64> = (0..4)
            .map(|_| self.dice.below(1000) as f64 / 1000.0 - 0.5)
            .collect();
        let id = format!("i{}", self.dice.below(20));
        let body = json!({"id": id, "features": features}).to_string();
        self.call("PUT", "/v1/items", &body);
    }

    fn note(&self, sent: Vec<SentReward>, is_answered: bool) {
        let list = match is_answered {
            true => &self.load.acknowledged,
            false => &self.load.unanswered,
        };
        list.lock().unwrap().extend(sent);
    }
}
