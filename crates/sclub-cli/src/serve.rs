//! `sclub serve`: flags, environment and a file to settings, and the settings to a server.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use clap::builder::{BoolishValueParser, PossibleValuesParser};
use sclub::{ContextMode, Preset};
use sclub_server::edge::Site;
use sclub_server::identity::{DEFAULT, servable};
use sclub_server::settings::{KeepLog, Literal, Settings, constant_name, constants, setting_name};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::Sender;
use toml::{Table, Value};

use crate::args::whole;
use crate::choices::{self, ServedConstantArgs};
use crate::files::print_line;

/// The environment variable with keys themselves, in place of a file of them.
pub const KEYS: &str = "SCLUB_API_KEYS";

/// The policies that a server can have.
fn policies() -> Vec<&'static str> {
    servable().into_iter().map(|spec| spec.name).collect()
}

/// The default policy, in words.
fn usual_policy() -> String {
    format!("as the folder has it, {DEFAULT} in a new one")
}

/// The presets of policies that can be served. `theory` is not among them: its assumptions about the
/// users are not known to a server.
fn presets() -> Vec<&'static str> {
    let served = servable();
    let all = Preset::ALL.into_iter().filter(|preset| {
        let is_one_of_several = !matches!(preset, Preset::Default | Preset::Theory);
        is_one_of_several && served.iter().any(|spec| spec.presets.contains(preset))
    });
    all.map(Preset::as_str).collect()
}

/// The formats of the log.
const LOG_FORMATS: [&str; 2] = ["text", "json"];

/// The flags of `sclub serve`.
#[derive(Debug, clap::Parser)]
#[command(after_long_help = EXAMPLES)]
pub struct ServeArgs {
    #[command(flatten)]
    settings: SettingArgs,

    /// TOML file with a line for each setting that is not the default, such as `max-k = 100`
    #[arg(
        long,
        value_name = "FILE",
        env = "SCLUB_CONFIG",
        help_heading = "Configuration"
    )]
    config: Option<PathBuf>,

    /// Print what is in force and where it comes from, as a file for --config, and start nothing
    #[arg(long, help_heading = "Configuration")]
    print_config: bool,

    /// The arguments that were typed, by name.
    #[arg(skip)]
    pub given: Vec<String>,
}

const EXAMPLES: &str = "\
Each flag is also an environment variable (--max-k is SCLUB_MAX_K) and a line of the file (max-k).
A flag beats the environment, the environment the file, the file the default.

Keys come from a file, --keys, or from SCLUB_API_KEYS itself. Without any the server is for this
machine alone.

Examples:
  sclub serve
      on 127.0.0.1:8080, everything kept in the folder sclub-data
  sclub simulate
      in another terminal: simulated users for it; see http://127.0.0.1:8080
  sclub serve --addr 0.0.0.0:8443 --keys keys.txt --tls-cert chain.pem --tls-key key.pem
      for other machines
  sclub serve --reward-min -1 --lifetime 86400 --print-config > sclub.toml
      settings to keep; use them with --config sclub.toml
";

/// A flag for each of [`Settings`].
#[derive(Debug, Clone, PartialEq, Default, Serialize, clap::Args)]
#[serde(rename_all = "kebab-case")]
pub struct SettingArgs {
    /// Folder for everything that is kept; made if it is not there [default: sclub-data]
    #[arg(long, value_name = "DIR", env = "SCLUB_DATA", help_heading = "Service")]
    data: Option<PathBuf>,

    /// Address to listen on [default: 127.0.0.1:8080]
    #[arg(
        long,
        value_name = "HOST:PORT",
        env = "SCLUB_ADDR",
        help_heading = "Service"
    )]
    addr: Option<std::net::SocketAddr>,

    /// Threads that answer [default: 0, one for each core]
    #[arg(long, value_name = "N", env = "SCLUB_THREADS", value_parser = whole, help_heading = "Service")]
    threads: Option<u64>,

    /// Threads that compute fits beside serving [default: 0, one less than there are cores]
    #[arg(long, value_name = "N", env = "SCLUB_FIT_THREADS", value_parser = whole, help_heading = "Service")]
    fit_threads: Option<u64>,

    #[arg(long, value_name = "NAME", env = "SCLUB_POLICY", value_parser = PossibleValuesParser::new(policies()),
        help = format!("Who learns [default: {}]", usual_policy()), help_heading = "Learning")]
    policy: Option<String>,

    /// Set of constants, for a policy that has several [default: as in the folder; tuned in a new
    /// one]
    #[arg(long, value_name = "NAME", env = "SCLUB_PRESET", value_parser = PossibleValuesParser::new(presets()), help_heading = "Learning")]
    preset: Option<String>,

    #[command(flatten)]
    #[serde(skip)]
    constants: ServedConstantArgs,

    /// Features of an item [default: as many as the first has]
    #[arg(long, value_name = "N", env = "SCLUB_DIM", value_parser = whole, help_heading = "Learning")]
    dim: Option<u64>,

    /// Context feature of requests: NAME for a number, NAME=A|B|C for a category; can be given several times
    /// [default: as the folder has it, none in a new one]
    #[arg(
        long,
        value_name = "NAME[=A|B]",
        env = "SCLUB_CONTEXT",
        value_delimiter = ',',
        help_heading = "Learning"
    )]
    context: Option<Vec<String>>,

    /// How context features are joined with those of an item: append or cross [default: as the folder has
    /// it, cross in a new one]
    #[arg(long, value_name = "MODE", env = "SCLUB_CONTEXT_MODE", value_parser = PossibleValuesParser::new(ContextMode::ALL.map(ContextMode::as_str)), help_heading = "Learning")]
    context_mode: Option<String>,

    /// Smallest reward [default: 0]
    #[arg(
        long,
        value_name = "X",
        env = "SCLUB_REWARD_MIN",
        allow_negative_numbers = true,
        help_heading = "Learning"
    )]
    reward_min: Option<f64>,

    /// Largest reward [default: 1]
    #[arg(
        long,
        value_name = "X",
        env = "SCLUB_REWARD_MAX",
        allow_negative_numbers = true,
        help_heading = "Learning"
    )]
    reward_max: Option<f64>,

    /// Seconds for which a decision can be answered [default: 604800, a week]
    #[arg(long, value_name = "SECONDS", env = "SCLUB_LIFETIME", value_parser = whole, help_heading = "Learning")]
    lifetime: Option<u64>,

    /// Days of service for which decisions and rewards are kept for `sclub export`; 0 keeps none
    /// [default: 90]
    #[arg(long, value_name = "DAYS", env = "SCLUB_JOURNAL_DAYS", value_parser = whole, help_heading = "Storage")]
    journal_days: Option<u64>,

    /// Part of the log to keep beyond what recovery needs: a size such as 2GB, or a time such as 7d
    /// [default: 0B]
    #[arg(
        long,
        value_name = "SIZE|DAYS",
        env = "SCLUB_KEEP_LOG",
        help_heading = "Storage"
    )]
    keep_log: Option<KeepLog>,

    /// Events between two snapshots: more of them, and a start takes longer [default: 500000]
    #[arg(long, value_name = "N", env = "SCLUB_SNAPSHOT_EVERY", value_parser = whole, help_heading = "Storage")]
    snapshot_every: Option<u64>,

    /// File with keys, one `role name secret` a line; a role is read, write or admin
    #[arg(long, value_name = "FILE", env = "SCLUB_KEYS", help_heading = "Safety")]
    keys: Option<PathBuf>,

    /// Serve any address without keys [default: false]
    #[arg(long, value_name = "BOOL", env = "SCLUB_INSECURE", num_args = 0..=1, default_missing_value = "true",
        value_parser = BoolishValueParser::new(), help_heading = "Safety")]
    insecure: Option<bool>,

    /// File with the certificate chain, PEM
    #[arg(
        long,
        value_name = "FILE",
        env = "SCLUB_TLS_CERT",
        help_heading = "Safety"
    )]
    tls_cert: Option<PathBuf>,

    /// File with the private key, PEM
    #[arg(
        long,
        value_name = "FILE",
        env = "SCLUB_TLS_KEY",
        help_heading = "Safety"
    )]
    tls_key: Option<PathBuf>,

    /// Host name that browsers may call the server by, beside IP addresses and localhost; can be given
    /// several times [default: none; any with keys]
    #[arg(
        long,
        value_name = "NAME",
        env = "SCLUB_HOST",
        value_delimiter = ',',
        help_heading = "Safety"
    )]
    host: Option<Vec<String>>,

    /// File for the audit log, a JSON object for each call of an administrator [default: the log]
    #[arg(
        long,
        value_name = "FILE",
        env = "SCLUB_AUDIT",
        help_heading = "Safety"
    )]
    audit: Option<PathBuf>,

    /// Maximum size of a request's body, in bytes [default: 8388608]
    #[arg(long, value_name = "BYTES", env = "SCLUB_MAX_BODY", value_parser = whole, help_heading = "Limits")]
    max_body: Option<u64>,

    /// Maximum number of candidates in a request [default: 10000]
    #[arg(long, value_name = "N", env = "SCLUB_MAX_CANDIDATES", value_parser = whole, help_heading = "Limits")]
    max_candidates: Option<u64>,

    /// Maximum number of items in one decision [default: 1000]
    #[arg(long, value_name = "N", env = "SCLUB_MAX_K", value_parser = whole, help_heading = "Limits")]
    max_k: Option<u64>,

    /// Maximum number of features [default: 512]
    #[arg(long, value_name = "N", env = "SCLUB_MAX_DIM", value_parser = whole, help_heading = "Limits")]
    max_dim: Option<u64>,

    /// Maximum length of the id of a user or an item, in bytes [default: 256]
    #[arg(long, value_name = "BYTES", env = "SCLUB_MAX_ID", value_parser = whole, help_heading = "Limits")]
    max_id: Option<u64>,

    /// Maximum number of requests in a batch [default: 1000]
    #[arg(long, value_name = "N", env = "SCLUB_MAX_BATCH", value_parser = whole, help_heading = "Limits")]
    max_batch: Option<u64>,

    /// Requests a second for each key, or for each address without keys [default: 0, any number]
    #[arg(long, value_name = "N", env = "SCLUB_RATE", value_parser = whole, help_heading = "Limits")]
    rate: Option<u64>,

    /// Maximum number of connections at once [default: 4096]
    #[arg(long, value_name = "N", env = "SCLUB_MAX_CONNECTIONS", value_parser = whole, help_heading = "Limits")]
    max_connections: Option<u64>,

    /// Maximum number of connections at once from one address (with IPv6: from one /64 network); 0 is no limit,
    /// as for a server behind a proxy [default: 1024]
    #[arg(long, value_name = "N", env = "SCLUB_MAX_CONNECTIONS_PER_ADDRESS", value_parser = whole, help_heading = "Limits")]
    max_connections_per_address: Option<u64>,

    /// Seconds that a request may take to arrive, and its answer to be taken; one more for each 16 KiB
    /// [default: 30]
    #[arg(long, value_name = "SECONDS", env = "SCLUB_TIMEOUT", value_parser = whole, help_heading = "Limits")]
    timeout: Option<u64>,

    /// Format of the log [default: text]
    #[arg(long, value_name = "FORMAT", env = "SCLUB_LOG_FORMAT", value_parser = LOG_FORMATS, help_heading = "Log")]
    log_format: Option<String>,

    /// Level of the log: error, warn, info, debug, or a filter [default: info]
    #[arg(long, value_name = "LEVEL", env = "SCLUB_LOG", help_heading = "Log")]
    log: Option<String>,
}

/// The source of a setting's value.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Origin {
    Default,
    File(PathBuf),
    Environment,
    Flag,
}

impl Origin {
    /// In words, for a setting of this name.
    fn of(&self, key: &str) -> String {
        match self {
            Origin::Default => "default".into(),
            Origin::File(path) => format!("file {}", path.display()),
            Origin::Environment => format!("environment {}", variable(key)),
            Origin::Flag => format!("flag --{key}"),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.of(""))
    }
}

/// The environment variable of a setting.
fn variable(key: &str) -> String {
    format!("SCLUB_{}", key.replace('-', "_").to_uppercase())
}

/// Settings, and where each comes from.
struct InForce {
    values: Table,
    origins: Vec<(String, Origin)>,
}

impl InForce {
    /// Puts flags over environment over file over defaults.
    fn new(args: &ServeArgs) -> Result<Self> {
        let mut in_force = Self {
            values: Table::try_from(Settings::default()).context("the defaults make no sense")?,
            origins: Vec::new(),
        };
        if let Some(path) = &args.config {
            for (key, value) in read_file(path)? {
                in_force.put(key, value, Origin::File(path.clone()))?;
            }
        }
        let mut typed = Table::try_from(&args.settings).context("a flag makes no sense")?;
        for (name, text) in &args.settings.constants.given {
            typed.insert(setting_name(name), constant_value(name, text)?);
        }
        for (key, value) in typed {
            let name = constant_name(&key);
            let id = match args.settings.constants.has(&name) {
                true => choices::id(&name),
                false => name,
            };
            let origin = if args.given.contains(&id) {
                Origin::Flag
            } else {
                Origin::Environment
            };
            in_force.put(key, value, origin)?;
        }
        Ok(in_force)
    }

    /// Sets a value, if it is a good one.
    fn put(&mut self, key: String, value: Value, origin: Origin) -> Result<()> {
        if !keys().contains(&key) {
            bail!("{origin}: there is no setting '{key}'{}", hint(&key));
        }
        let alone = Table::from_iter([(key.clone(), value.clone())]);
        if let Err(error) = Settings::deserialize(alone) {
            let why = error.message().trim_end_matches(['\n', '.']);
            bail!("{}: {key} cannot be {value}: {why}", origin.of(&key));
        }
        self.values.insert(key.clone(), value);
        self.origins.retain(|(other, _)| *other != key);
        self.origins.push((key, origin));
        Ok(())
    }

    fn origin(&self, key: &str) -> &Origin {
        let known = self.origins.iter().find(|(other, _)| other == key);
        known.map_or(&Origin::Default, |(_, origin)| origin)
    }

    /// The settings, checked.
    fn settings(&self) -> Result<Settings> {
        let settings: Settings = Settings::deserialize(self.values.clone())
            .map_err(|error| anyhow!("{}", error.message()))?;
        self.check(&settings)?;
        Ok(settings)
    }

    /// Refuses what cannot be, and says whose fault it is.
    fn check(&self, settings: &Settings) -> Result<()> {
        let refuse = |key: &str, must: &str| -> Result<()> {
            let value = self.values.get(key).map(Value::to_string);
            let value = value.unwrap_or_else(|| "not set".into());
            bail!(
                "{}: {key} is {value}; it must {must}",
                self.origin(key).of(key)
            )
        };
        let one_of = |key: &str, value: Option<&str>, known: &[&str]| match value {
            Some(value) if !known.contains(&value) => {
                refuse(key, &format!("be one of {}", known.join(", ")))
            }
            _ => Ok(()),
        };
        one_of("policy", settings.policy.as_deref(), &policies())?;
        one_of("preset", settings.preset.as_deref(), &presets())?;
        one_of("log-format", Some(&settings.log_format), &LOG_FORMATS)?;
        for constant in constants().into_iter().rev() {
            let key = setting_name(constant.name);
            let other = constant.instead_of.map(setting_name);
            if let Some(other) = other
                && settings.constants.contains_key(&key)
                && settings.constants.contains_key(&other)
            {
                refuse(&key, &format!("be left out where there is a {other}"))?;
            }
        }
        for (key, value) in [
            ("reward-min", settings.reward_min),
            ("reward-max", settings.reward_max),
        ] {
            if !value.is_finite() {
                refuse(key, "be a number")?;
            }
        }
        if settings.reward_min >= settings.reward_max {
            let max = settings.reward_max;
            refuse("reward-min", &format!("be less than reward-max, {max:?}"))?;
        }
        for (key, value) in [
            ("lifetime", settings.lifetime),
            ("snapshot-every", settings.snapshot_every),
            ("max-body", settings.max_body as u64),
            ("max-candidates", settings.max_candidates as u64),
            ("max-k", settings.max_k as u64),
            ("max-dim", settings.max_dim as u64),
            ("max-id", settings.max_id as u64),
            ("max-batch", settings.max_batch as u64),
            ("max-connections", settings.max_connections as u64),
            ("timeout", settings.timeout),
        ] {
            if value == 0 {
                refuse(key, "be at least 1")?;
            }
        }
        let most = settings.max_dim;
        if settings.dim.is_some_and(|dim| dim == 0 || dim > most) {
            refuse("dim", &format!("be between 1 and max-dim, {most}"))?;
        }
        if let Err(error) = Site::new(&settings.host, false) {
            bail!("{}: {error}", self.origin("host").of("host"));
        }
        if settings
            .audit
            .as_ref()
            .is_some_and(|file| file.as_os_str().is_empty())
        {
            refuse("audit", "be the name of a file")?;
        }
        match (&settings.tls_cert, &settings.tls_key) {
            (Some(_), None) => refuse("tls-key", "be given where tls-cert is"),
            (None, Some(_)) => refuse("tls-cert", "be given where tls-key is"),
            _ => Ok(()),
        }
    }

    /// A file for `--config` that says the same.
    fn to_toml(&self, has_keys: bool) -> String {
        let mut lines = vec!["# What is in force, and where it comes from.".to_owned()];
        for key in keys() {
            let origin = self.origin(&key).of(&key);
            lines.push(match self.values.get(&key) {
                Some(value) => format!("{:<36} # {origin}", format!("{key} = {value}")),
                None => format!(
                    "{:<36} # {origin}, {}",
                    format!("# {key} ="),
                    when_left_out(&key)
                ),
            });
        }
        if has_keys {
            lines.push(format!("# There are keys in {KEYS}, which are not shown."));
        }
        lines.join("\n")
    }
}

/// The name of every setting, in the order of the help.
fn keys() -> Vec<String> {
    let flags = SettingArgs::augment_args(clap::Command::new("serve"));
    let names = flags.get_arguments().filter_map(|flag| flag.get_long());
    names.map(str::to_owned).collect()
}

/// A constant as a file has it, from a text.
fn constant_value(name: &str, text: &str) -> Result<Value> {
    let known = constants().into_iter().find(|known| known.name == name);
    let literal = known.and_then(|constant| {
        let value = constant.parse(text).ok()?;
        Literal::new(constant, value)
    });
    // A text that is none is refused with the others, by whoever says where it comes from.
    let literal = literal.unwrap_or_else(|| Literal::Text(text.to_owned()));
    Value::try_from(literal).context("a flag makes no sense")
}

/// The value of a setting that is not given, in words.
fn when_left_out(key: &str) -> String {
    match key {
        "policy" => usual_policy(),
        "preset" => "as the folder has it, tuned in a new one that has presets".into(),
        "dim" => "as many as the first item has".into(),
        "context-mode" => "as the folder has it, cross in a new one".into(),
        "audit" => "the ordinary log".into(),
        key if is_constant(key) => "the preset's".into(),
        _ => "none".into(),
    }
}

fn is_constant(key: &str) -> bool {
    let name = constant_name(key);
    constants().iter().any(|constant| constant.name == name)
}

/// The setting that was perhaps meant.
fn hint(key: &str) -> String {
    let plain = |text: &str| text.to_lowercase().replace(['-', '_'], "");
    let meant = keys().into_iter().find(|known| plain(known) == plain(key));
    meant.map_or_else(String::new, |known| {
        format!("; '{known}' was perhaps meant")
    })
}

fn read_file(path: &Path) -> Result<Table> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the configuration {}", path.display()))?;
    text.parse()
        .map_err(|error: toml::de::Error| anyhow!("file {}: {error}", path.display()))
}

/// Serves, or shows what would be served.
pub fn serve(args: &ServeArgs) -> Result<ExitCode> {
    let in_force = InForce::new(args)?;
    let settings = in_force.settings()?;
    let keys = std::env::var(KEYS).ok().filter(|keys| !keys.is_empty());
    if args.print_config {
        print_line(&in_force.to_toml(keys.is_some()));
        return Ok(ExitCode::SUCCESS);
    }
    start(&settings)
}

/// Serves until Ctrl-C or SIGTERM. SIGHUP has it read its files again.
fn start(settings: &Settings) -> Result<ExitCode> {
    start_log(settings)?;
    let scheme = if settings.tls_cert.is_some() {
        "https"
    } else {
        "http"
    };
    let listening = move |addr: std::net::SocketAddr| {
        print_line(&format!("sclub listens on {scheme}://{addr}"));
    };
    let (reload, reloads) = tokio::sync::mpsc::channel(1);
    let stopped = async {
        asked_to_stop(Some(reload)).await;
        // Asked twice: whoever asks does not want to wait.
        tokio::spawn(async {
            asked_to_stop(None).await;
            std::process::exit(130);
        });
    };
    sclub_server::serve(settings, listening, stopped, reloads)?;
    Ok(ExitCode::SUCCESS)
}

/// Waits for Ctrl-C or SIGTERM, and passes each SIGHUP on.
#[cfg(unix)]
async fn asked_to_stop(reload: Option<Sender<()>>) {
    use tokio::signal::unix::{SignalKind, signal};
    let signals = [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
    ]
    .map(signal);
    let [Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)] = signals else {
        // The system ends the server then, without waiting for what is in flight.
        eprintln!("sclub: cannot listen for signals");
        return std::future::pending().await;
    };
    loop {
        tokio::select! {
            _ = interrupt.recv() => return,
            _ = terminate.recv() => return,
            _ = hangup.recv() => if let Some(reload) = &reload {
                // If it is full, the files are about to be read anyway.
                let _ = reload.try_send(());
            },
        }
    }
}

/// Waits for Ctrl-C.
#[cfg(not(unix))]
async fn asked_to_stop(_: Option<Sender<()>>) {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending().await
    }
}

/// Has the log written to the standard error.
fn start_log(settings: &Settings) -> Result<()> {
    // A word that is no level would be taken for the name of a part, and silence the rest.
    let levels = ["off", "error", "warn", "info", "debug", "trace"];
    let is_known = |part: &str| part.contains('=') || levels.contains(&part.trim());
    if !settings.log.split(',').all(is_known) {
        bail!(
            "log cannot be '{}'; it is one of {}, or a filter such as sclub_server=debug",
            settings.log,
            levels.join(", ")
        );
    }
    let filter = tracing_subscriber::EnvFilter::try_new(&settings.log)
        .with_context(|| format!("log cannot be '{}'", settings.log))?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()));
    if settings.log_format == "json" {
        log.json().flatten_event(true).init();
    } else {
        log.with_target(false).init();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_known_here() {
        let strange = Table::from_iter([("strange".to_owned(), Value::Boolean(true))]);
        let error = Settings::deserialize(strange).unwrap_err().to_string();
        let (_, expected) = error.split_once("expected one of").unwrap();
        let mut expected: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
        let mut known = keys();
        expected.sort_unstable();
        known.sort_unstable();
        assert_eq!(known, expected);
    }
}
