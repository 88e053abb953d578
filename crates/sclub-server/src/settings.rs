//! What can be set, with its defaults.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Everything that can be set. Each is a flag of `sclub serve`, an environment variable `SCLUB_…`, and a
/// line of a TOML file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Settings {
    /// Folder for everything that is kept.
    pub data: PathBuf,
    /// Address to listen on.
    pub addr: SocketAddr,
    /// `sclub-soft`, `sclub`, `linucb-one` or `linucb-ind`; as the folder has it if not given.
    pub policy: Option<String>,
    /// `tuned` or `released`; `sclub-soft` has none.
    pub preset: Option<String>,
    /// α_θ in place of the preset's.
    pub alpha_theta: Option<f64>,
    /// α_p in place of the preset's.
    pub alpha_p: Option<f64>,
    /// A fixed β in place of the preset's.
    pub beta: Option<f64>,
    /// Share of the released code's growing β in place of the preset's.
    pub beta_scale: Option<f64>,
    /// A user's observation counts half after so many later ones of hers; for `sclub-soft`. All count
    /// alike if not given.
    pub half_life: Option<f64>,
    /// Features per item; as the first item has it if not given.
    pub dim: Option<usize>,
    /// Smallest reward.
    pub reward_min: f64,
    /// Largest reward.
    pub reward_max: f64,
    /// How long a decision can be answered, in seconds.
    pub lifetime: u64,
    /// Days of service for which decisions and rewards are kept for `sclub export`; 0 keeps none.
    pub journal_days: u64,
    /// How much of the log is kept beyond what recovery needs.
    pub keep_log: KeepLog,
    /// Events between two snapshots.
    pub snapshot_every: u64,
    /// File with keys, one `role name secret` a line.
    pub keys: Option<PathBuf>,
    /// Serve any address without keys.
    pub insecure: bool,
    /// File with the certificate chain, PEM.
    pub tls_cert: Option<PathBuf>,
    /// File with the private key, PEM.
    pub tls_key: Option<PathBuf>,
    /// Host names that browsers may call the server by, beside IP addresses and `localhost`. With keys, any
    /// if none is given.
    pub host: Vec<String>,
    /// File for the audit log, JSON lines; the ordinary log if not given.
    pub audit: Option<PathBuf>,
    /// Most bytes in the body of a request; a stream of items may be longer, each line may not.
    pub max_body: usize,
    /// Most candidates, or items, in a request.
    pub max_candidates: usize,
    /// Most items to show in one decision.
    pub max_k: usize,
    /// Most features.
    pub max_dim: usize,
    /// Most bytes in the id of a user or an item.
    pub max_id: usize,
    /// Most requests in a batch.
    pub max_batch: usize,
    /// Requests a second for each key (or address without keys); 0 is no limit.
    pub rate: u32,
    /// Most connections at once.
    pub max_connections: usize,
    /// Most connections at once from one address, or one IPv6 network of 64 bits; 0 is no limit.
    pub max_connections_per_address: usize,
    /// Seconds that a request may take to arrive, and its answer to be taken. A long one has a second more
    /// for each 16 KiB.
    pub timeout: u64,
    /// Threads that answer; 0 is one for each core.
    pub threads: usize,
    /// Threads that compute fits beside serving; 0 is one less than there are cores.
    pub fit_threads: usize,
    /// `text` or `json`.
    pub log_format: String,
    /// What is logged: `error`, `warn`, `info`, `debug`, or a filter.
    pub log: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            data: PathBuf::from("sclub-data"),
            addr: SocketAddr::from(([127, 0, 0, 1], 8080)),
            policy: None,
            preset: None,
            alpha_theta: None,
            alpha_p: None,
            beta: None,
            beta_scale: None,
            half_life: None,
            dim: None,
            reward_min: 0.0,
            reward_max: 1.0,
            lifetime: 7 * 24 * 3600,
            journal_days: 90,
            keep_log: KeepLog::Bytes(0),
            snapshot_every: 500_000,
            keys: None,
            insecure: false,
            tls_cert: None,
            tls_key: None,
            host: Vec::new(),
            audit: None,
            max_body: 8 << 20,
            max_candidates: 10_000,
            max_k: 1_000,
            max_dim: 512,
            max_id: 256,
            max_batch: 1_000,
            rate: 0,
            max_connections: 4_096,
            max_connections_per_address: 1_024,
            timeout: 30,
            threads: 0,
            fit_threads: 0,
            log_format: "text".to_owned(),
            log: "info".to_owned(),
        }
    }
}

/// How much of the log is kept: an amount (`512MB`, `2GB`) or a time (`7d`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum KeepLog {
    /// So many bytes.
    Bytes(u64),
    /// Days of service.
    Days(u64),
}

impl std::str::FromStr for KeepLog {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
        let number = digits.parse::<u64>().ok();
        let unit = text[digits.len()..].to_ascii_lowercase();
        let bytes = |scale: u64| {
            number
                .and_then(|n| n.checked_mul(scale))
                .map(KeepLog::Bytes)
        };
        let parsed = match &*unit {
            "" | "b" => bytes(1),
            "kb" => bytes(1_000),
            "mb" => bytes(1_000_000),
            "gb" => bytes(1_000_000_000),
            "tb" => bytes(1_000_000_000_000),
            "d" => number.map(KeepLog::Days),
            _ => None,
        };
        parsed.ok_or_else(|| {
            format!("'{text}' is neither an amount such as 512MB or 2GB nor a time such as 7d")
        })
    }
}

impl TryFrom<String> for KeepLog {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<KeepLog> for String {
    fn from(keep: KeepLog) -> Self {
        match keep {
            KeepLog::Bytes(bytes) => format!("{bytes}B"),
            KeepLog::Days(days) => format!("{days}d"),
        }
    }
}
