//! What can be set, with its defaults.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use sclub::{Constant, Range, Value, ValueError};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::identity::servable;

/// Everything that can be set. Each is a flag of `sclub serve`, an environment variable `SCLUB_…`, and a
/// line of a TOML file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct Settings {
    /// Folder for everything that is kept.
    pub data: PathBuf,
    /// Address to listen on.
    pub addr: SocketAddr,
    /// A policy that can be served ([`servable`]); as the folder has it if not given.
    pub policy: Option<String>,
    /// `tuned` or `released`, where the policy has several.
    pub preset: Option<String>,
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
    /// Constants in place of the preset's, each a setting of its own by its [`setting_name`]. The policies
    /// that can be served say which there are.
    #[serde(flatten, deserialize_with = "known_constants")]
    pub constants: BTreeMap<String, Literal>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            data: PathBuf::from("sclub-data"),
            addr: SocketAddr::from(([127, 0, 0, 1], 8080)),
            policy: None,
            preset: None,
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
            constants: BTreeMap::new(),
        }
    }
}

impl Settings {
    /// The name of every setting but the constants.
    pub fn names() -> Vec<String> {
        match serde_json::to_value(Self::default()) {
            Ok(serde_json::Value::Object(all)) => all.into_iter().map(|(name, _)| name).collect(),
            _ => Vec::new(),
        }
    }
}

/// Every constant that can be set: those of the policies that can be served, each name once.
pub fn constants() -> Vec<&'static Constant> {
    let mut all: Vec<&Constant> = Vec::new();
    for constant in servable().into_iter().flat_map(|spec| spec.constants) {
        if all.iter().all(|known| known.name != constant.name) {
            all.push(constant);
        }
    }
    all
}

/// The name of the setting for a constant: words are joined by `-`.
pub fn setting_name(constant: &str) -> String {
    constant.replace('_', "-")
}

/// The name of the constant that a setting is for.
pub fn constant_name(setting: &str) -> String {
    setting.replace('-', "_")
}

/// The settings that are no others: constants, each with a value that some policy accepts.
fn known_constants<'a, D: Deserializer<'a>>(
    from: D,
) -> Result<BTreeMap<String, Literal>, D::Error> {
    let given = BTreeMap::<String, Literal>::deserialize(from)?;
    for (name, literal) in &given {
        let policies = servable().into_iter();
        let named = policies.filter_map(|spec| spec.constant(&constant_name(name)));
        let mut checked = named.map(|constant| literal.value(constant));
        match checked.next() {
            Some(Err(error)) if checked.all(|other| other.is_err()) => {
                return Err(D::Error::custom(error.why));
            }
            Some(_) => {}
            None => {
                let mut known = Settings::names();
                known.extend(constants().iter().map(|known| setting_name(known.name)));
                let known = known.join("`, `");
                return Err(D::Error::custom(format!(
                    "unknown field `{name}`, expected one of `{known}`"
                )));
            }
        }
    }
    Ok(given)
}

/// The value of a constant as it is written: in a file or in JSON by its type, on a command line as text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(untagged)]
pub enum Literal {
    /// True or false.
    Flag(bool),
    /// A number.
    Number(f64),
    /// A name, or any value as [`Constant::parse`] takes it.
    Text(String),
    /// Some names.
    Names(Vec<String>),
}

impl Literal {
    /// A value as it is written; `None` where it is unset.
    pub fn new(constant: &Constant, value: Value) -> Option<Self> {
        Some(match (value, constant.range) {
            (Value::Unset, _) => return None,
            (Value::Flag(flag), _) => Literal::Flag(flag),
            (Value::Number(number), _) => Literal::Number(number),
            (Value::Set(set), Range::AnyOf(known)) => {
                let names = known.iter().enumerate();
                let names = names.filter(|(place, _)| set >> place & 1 == 1);
                Literal::Names(names.map(|(_, &name)| name.to_owned()).collect())
            }
            (other, _) => Literal::Text(constant.format(other)),
        })
    }

    /// The value that it stands for.
    ///
    /// # Errors
    /// Says what would be accepted.
    pub fn value(&self, constant: &Constant) -> Result<Value, ValueError> {
        let value = match self {
            Literal::Flag(flag) => Value::Flag(*flag),
            Literal::Number(number) => Value::Number(*number),
            Literal::Text(text) => constant.parse(text)?,
            Literal::Names(names) if names.is_empty() => Value::Set(0),
            Literal::Names(names) => constant.parse(&names.join(","))?,
        };
        constant.check_value(value)?;
        Ok(value)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Settings, String> {
        toml::from_str(text).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn constants_are_settings_beside_the_others() {
        let text = "policy = \"sclub\"\nalpha-theta = 2\nindex = \"squared\"\nclusters = false\n";
        let settings = read(text).unwrap();
        let given = [
            ("alpha-theta", Literal::Number(2.0)),
            ("clusters", Literal::Flag(false)),
            ("index", Literal::Text("squared".to_owned())),
        ];
        let given = given.map(|(name, literal)| (name.to_owned(), literal));
        assert_eq!(settings.constants, BTreeMap::from(given));
        let again = toml::to_string(&settings).unwrap();
        assert_eq!(read(&again), Ok(settings));
        let flag = read("half-life = \"50\"").unwrap();
        assert_eq!(flag.constants["half-life"], Literal::Text("50".to_owned()));
    }

    #[test]
    fn what_no_policy_has_is_refused() {
        let error = read("strange = 1").unwrap_err();
        assert!(error.starts_with("unknown field `strange`"), "{error}");
        for known in ["`data`", "`max-k`", "`half-life`", "`alpha-theta`"] {
            assert!(error.contains(known), "{error}");
        }
        // Club cannot be served.
        assert!(read("graph = \"random\"").is_err());
        for bad in [
            "beta = -1",
            "beta = true",
            "index = \"cubed\"",
            "half-life = \"x\"",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
