//! The settings of a server, with their defaults.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use sclub::{Constant, Range, Spec, Value, ValueError};
use sclub_features::Transform;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::identity::servable;

/// The maximum of [`Settings::propensities`].
pub const MAX_PROPENSITIES: u32 = 10_000;

/// The maximum of [`Settings::threads`] and [`Settings::fit_threads`].
pub const MAX_THREADS: usize = 256;

/// The settings of a server. Each is a flag of `sclub serve`, an environment variable `SCLUB_…`, and a line
/// of a TOML file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct Settings {
    /// The data folder.
    pub data: PathBuf,
    /// The address to listen on.
    #[serde(deserialize_with = "deserialize_address")]
    pub addr: SocketAddr,
    /// A policy that can be served ([`servable`]); by default the folder's.
    pub policy: Option<String>,
    /// The preset of the constants, `tuned` or `released`, for policies with several.
    pub preset: Option<String>,
    /// The number of features per item; by default that of the first item.
    pub dim: Option<usize>,
    /// The file of a fitted transform, by which items may be sent with their raw fields; by default the folder's.
    pub features: Option<PathBuf>,
    /// The contents of that file.
    #[serde(skip)]
    pub transform: Option<Arc<Transform>>,
    /// Context features of requests: `hour` for a number, `device=phone|tablet` for a category.
    pub context: Vec<String>,
    /// The mode in which context features are joined with those of an item: `cross` (the default) or `append`.
    pub context_mode: Option<String>,
    /// The minimum reward.
    pub reward_min: f64,
    /// The maximum reward.
    pub reward_max: f64,
    /// The number of seconds for which a decision accepts a reward.
    pub lifetime: u64,
    /// The number of further draws from which the propensities of each decision are estimated, at most
    /// [`MAX_PROPENSITIES`]; 0 computes none, unless there is an [`Settings::explore_share`]: then up to 100, fewer with many
    /// candidates.
    pub propensities: u32,
    /// The probability with which a decision shows a list that is drawn uniformly from its candidates, from 0 to 1.
    pub explore_share: f64,
    /// The reward of items that were shown and got none within [`Settings::after`]; `None` gives them none.
    pub unanswered: Option<f64>,
    /// The time after which an item shown gets the reward [`Settings::unanswered`].
    pub after: Span,
    /// The number of days of service for which decisions and rewards are kept for `sclub export`; 0 keeps
    /// none.
    pub journal_days: u64,
    /// The amount of log that is kept in addition to the part that recovery needs.
    pub keep_log: KeepLog,
    /// The number of events between two snapshots.
    pub snapshot_every: u64,
    /// The file with the API keys, one `role name secret` a line.
    pub keys: Option<PathBuf>,
    /// Serve any address without keys.
    pub insecure: bool,
    /// The file with the certificate chain, PEM.
    pub tls_cert: Option<PathBuf>,
    /// The file with the private key, PEM.
    pub tls_key: Option<PathBuf>,
    /// The host names that browsers may use for the server, beside IP addresses and `localhost`. By default
    /// any with keys, none without.
    pub host: Vec<String>,
    /// The file for the audit log, JSON lines; by default the ordinary log.
    pub audit: Option<PathBuf>,
    /// The maximum length of a request body in bytes. A stream of items may be longer, but none of its
    /// lines.
    pub max_body: usize,
    /// The maximum number of candidates, or items, in a request.
    pub max_candidates: usize,
    /// The maximum number of items in a decision.
    pub max_k: usize,
    /// The maximum of `seen` in a request: the number of each user's decisions that are remembered for it; 0 remembers
    /// none.
    pub max_seen: usize,
    /// The maximum number of features of an item.
    pub max_dim: usize,
    /// The maximum length of the id of a user or an item, in characters.
    pub max_id: usize,
    /// The maximum number of requests in a batch.
    pub max_batch: usize,
    /// The maximum number of requests a second for each key (or address without keys); 0 is no limit.
    pub rate: u32,
    /// The maximum number of connections.
    pub max_connections: usize,
    /// The maximum number of connections from one address, or one IPv6 network of 64 bits; 0 is no limit.
    pub max_connections_per_address: usize,
    /// The timeout in seconds for receiving a request and for sending its answer. Long ones get a second more
    /// for each 16 KiB.
    pub timeout: u64,
    /// The number of threads that answer requests; 0 is one for each core.
    pub threads: usize,
    /// The number of threads that compute fits in the background; 0 is one less than there are cores.
    pub fit_threads: usize,
    /// The NATS servers of the cluster that this server is a node of; `None` for a single server.
    pub cluster: Option<String>,
    /// The name of the cluster.
    pub cluster_name: String,
    /// The name of this node; by default that of the machine, with the port.
    pub node: Option<String>,
    /// The number of other nodes that follow each partition, to take it over at once.
    pub standby: usize,
    /// The file with the credentials for NATS.
    pub nats_creds: Option<PathBuf>,
    /// The file with the certificate authorities of the NATS servers, PEM.
    pub nats_ca: Option<PathBuf>,
    /// The format of the log, `text` or `json`.
    pub log_format: String,
    /// The log level, `error`, `warn`, `info` or `debug`, or a filter.
    pub log: String,
    /// The URL of an OpenTelemetry collector (OTLP over HTTP) that traces are exported to; `None` makes none.
    pub otel_endpoint: Option<String>,
    /// The share of the requests that are traced, from 0 to 1, unless the caller has decided it.
    pub otel_sample_ratio: f64,
    /// Constants that override the preset's, by their [`setting_name`]. [`constants`] lists all.
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
            features: None,
            transform: None,
            context: Vec::new(),
            context_mode: None,
            reward_min: 0.0,
            reward_max: 1.0,
            lifetime: 7 * 24 * 3600,
            propensities: 0,
            explore_share: 0.0,
            unanswered: None,
            after: Span::minutes(30),
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
            max_seen: 20,
            max_dim: 512,
            max_id: 256,
            max_batch: 1_000,
            rate: 0,
            max_connections: 4_096,
            max_connections_per_address: 1_024,
            timeout: 30,
            threads: 0,
            fit_threads: 0,
            cluster: None,
            cluster_name: "sclub".to_owned(),
            node: None,
            standby: 1,
            nats_creds: None,
            nats_ca: None,
            log_format: "text".to_owned(),
            log: "info".to_owned(),
            otel_endpoint: None,
            otel_sample_ratio: 0.01,
            constants: BTreeMap::new(),
        }
    }
}

impl Settings {
    /// Checks the length of the id of a user or an item.
    ///
    /// # Errors
    /// The number of its characters.
    pub fn check_id_length(&self, id: &str) -> Result<(), usize> {
        // A character has at least one byte.
        if (1..=self.max_id).contains(&id.len()) {
            return Ok(());
        }
        match id.chars().count() {
            length if (1..=self.max_id).contains(&length) => Ok(()),
            length => Err(length),
        }
    }

    /// The names of all settings except the constants.
    pub fn names() -> Vec<String> {
        match serde_json::to_value(Self::default()) {
            Ok(serde_json::Value::Object(all)) => all.into_iter().map(|(name, _)| name).collect(),
            _ => Vec::new(),
        }
    }
}

/// Parses an address to listen on: an IP address with a port, or `localhost:PORT`, which is 127.0.0.1.
///
/// # Errors
/// If it is neither.
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let numeric = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => text.to_owned(),
    };
    numeric.parse().map_err(|_| {
        format!(
            "{text:?} is not an IP address with a port; write it as 127.0.0.1:8080, localhost:8080 or [::]:8080"
        )
    })
}

fn deserialize_address<'a, D: Deserializer<'a>>(from: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(from)?;
    parse_address(&text).map_err(D::Error::custom)
}

/// The constants of all policies that can be served, each name once.
pub fn constants() -> Vec<&'static Constant> {
    let mut all: Vec<&Constant> = Vec::new();
    for constant in servable().into_iter().flat_map(|spec| spec.constants) {
        if all.iter().all(|known| known.name != constant.name) {
            all.push(constant);
        }
    }
    all
}

/// Checks that no constant of some policies has the name of another setting or flag of `sclub serve`.
///
/// # Errors
/// Names the policy and the constant.
pub fn check_constant_names(policies: &[&Spec]) -> Result<(), String> {
    let mut taken = Settings::names();
    taken.extend(["help", "version", "config", "print-config"].map(str::to_owned));
    for policy in policies {
        for constant in policy.constants {
            let name = setting_name(constant.name);
            if taken.contains(&name) {
                return Err(format!(
                    "policy '{}' has a constant '{}', which is a setting of sclub serve; rename the constant",
                    policy.name, constant.name
                ));
            }
        }
    }
    Ok(())
}

/// The name of the setting for a constant: words are joined by `-`.
pub fn setting_name(constant: &str) -> String {
    constant.replace('_', "-")
}

/// The name of the constant that a setting sets.
pub fn constant_name(setting: &str) -> String {
    setting.replace('-', "_")
}

/// Deserializes the constants and validates them: each must be the constant of a policy that can be served,
/// with a value that at least one of these policies accepts.
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

/// The value of a constant as the user wrote it: by its type in a file or in JSON, as text on a command line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(untagged)]
pub enum Literal {
    /// True or false.
    Flag(bool),
    /// A number.
    Number(f64),
    /// A name, or any value in the syntax of [`Constant::parse`].
    Text(String),
    /// A list of names.
    Names(Vec<String>),
}

impl Literal {
    /// The literal for a value; `None` if it is unset.
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

    /// The value of the literal.
    ///
    /// # Errors
    /// If the constant does not accept it. The error says what is allowed.
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

/// The amount of log that is kept: a size (`512MB`, `2GB`) or a time (`7d`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum KeepLog {
    /// A number of bytes.
    Bytes(u64),
    /// A number of days of service.
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
            format!("'{text}' is neither a size such as 512MB or 2GB nor a time such as 7d")
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

/// A time of service: `90s`, `30m`, `12h` or `7d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Span {
    seconds: u64,
}

impl Span {
    /// So many seconds.
    pub const fn seconds(seconds: u64) -> Self {
        Self { seconds }
    }

    /// So many minutes.
    pub const fn minutes(minutes: u64) -> Self {
        Self::seconds(minutes * 60)
    }

    /// The time in milliseconds.
    pub fn as_millis(self) -> u64 {
        self.seconds.saturating_mul(1000)
    }
}

impl std::str::FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
        let scale = match &text[digits.len()..] {
            "s" => Some(1),
            "m" => Some(60),
            "h" => Some(3600),
            "d" => Some(24 * 3600),
            _ => None,
        };
        let number = digits.parse::<u64>().ok().filter(|&number| number > 0);
        let seconds = number
            .zip(scale)
            .and_then(|(n, scale)| n.checked_mul(scale));
        seconds
            .map(Self::seconds)
            .ok_or_else(|| format!("'{text}' is not a time such as 90s, 30m, 12h or 7d"))
    }
}

impl TryFrom<String> for Span {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Span> for String {
    fn from(span: Span) -> Self {
        let units = [("d", 24 * 3600), ("h", 3600), ("m", 60)];
        let whole =
            |(_, scale): &&(&str, u64)| span.seconds.is_multiple_of(*scale) && span.seconds > 0;
        match units.iter().find(whole) {
            Some((unit, scale)) => format!("{}{unit}", span.seconds / scale),
            None => format!("{}s", span.seconds),
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
    fn a_constant_cannot_have_the_name_of_a_setting() {
        assert_eq!(check_constant_names(&servable()), Ok(()));
        static RATE: Spec = Spec {
            name: "rated",
            title: "Rated",
            summary: "For a test",
            citation: "none",
            colors: ["#000000", "#FFFFFF"],
            revision: 1,
            presets: &[sclub::Preset::Default],
            constants: &[Constant::new(
                "max_k",
                "A number",
                Range::POSITIVE,
                |_, _| Ok(Value::Number(1.0)),
            )],
            can: sclub::Abilities::NONE,
            new: |_, _| Err(sclub::Error::NoUsers),
            load: None,
            gather: None,
        };
        let error = check_constant_names(&[&RATE]).unwrap_err();
        assert!(error.contains("'rated' has a constant 'max_k'"), "{error}");
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
    fn unknown_and_invalid_settings_are_refused() {
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
