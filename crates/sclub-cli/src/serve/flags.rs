//! The flags of `sclub serve`: one row for each setting. Everything else that lists settings on this
//! side is derived from the rows: environment variables, lines of the file, defaults in the help, and
//! validation.

use clap::builder::{BoolishValueParser, PossibleValuesParser, TypedValueParser, ValueParser};
use clap::error::Error;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use sclub::{ContextMode, Preset};
use sclub_server::identity::{DEFAULT, servable};
use sclub_server::settings::{KeepLog, Settings, Span, constant_name, parse_address};
use toml::{Table, Value};

use crate::args::whole;
use crate::choices::ServedConstantArgs;

/// The type of a setting's value, with its name in the help.
pub enum Kind {
    Text(&'static str),
    Address,
    Whole(&'static str),
    /// A whole number that must not be 0.
    Positive(&'static str),
    Number,
    Bool,
    OneOf(&'static str, Vec<&'static str>),
    /// Several texts.
    List(&'static str),
    /// [`KeepLog`]
    LogSize,
    /// [`Span`]
    Time,
}

/// A flag for one of [`Settings`].
pub struct Flag {
    /// The name of the setting, with `-` between words.
    pub name: &'static str,
    pub kind: Kind,
    heading: &'static str,
    help: &'static str,
    /// An explanation of the default; the default itself if [`Settings`] has none.
    note: String,
}

/// The settings without the constants of policies, in the order of the help: name, type, help, note.
#[rustfmt::skip] // one row a line
pub fn flags() -> Vec<Flag> {
    use Kind::{Address, Bool, List, LogSize, Number, OneOf, Positive, Text, Time, Whole};
    let policy = format!("as in the folder, or {DEFAULT} in a new one");
    let sections = [
        ("Service", vec![
            ("data", Text("DIR"), "Folder for all data; created if missing", ""),
            ("addr", Address, "Address to listen on", ""),
            ("threads", Whole("N"), "Threads that answer", "one for each core"),
            ("fit-threads", Whole("N"), "Threads that compute fits in the background", "one less than there are cores"),
        ]),
        ("Learning", vec![
            ("policy", OneOf("NAME", policies()), "Policy of the data folder", &*policy),
            ("preset", OneOf("NAME", presets()), "Set of constants, for a policy that has several", "as in the folder, or tuned in a new one"),
            ("dim", Whole("N"), "Number of features of an item", "that of the first item"),
            ("features", Text("FILE"), "File of a transform that `sclub features --items` fitted: items can be sent with their raw fields", "as in the folder"),
            ("context", List("NAME[=A|B]"), "Context feature of requests: NAME for a number, NAME=A|B|C for a category; can be given several times", "or as in the folder"),
            ("context-mode", OneOf("MODE", context_modes()), "Way in which context features are joined with those of an item", "as in the folder, or cross in a new one"),
            ("reward-min", Number, "Smallest reward", ""),
            ("reward-max", Number, "Largest reward", ""),
            ("lifetime", Positive("SECONDS"), "Seconds for which a decision can be answered", "a week"),
            ("propensities", Whole("N"), "Further draws for each decision, at most 10000, to estimate the probability of each item shown, which evaluation from logs needs; each request costs N further choices if the policy draws at random, none otherwise", "off; up to 100 with a share of explored decisions"),
            ("explore-share", Number, "Share of the decisions, from 0 to 1, that show a list drawn uniformly from the candidates, so that the log can tell what other policies would earn", "none"),
            ("unanswered", Number, "Reward of items that were shown and got none in time, such as 0; a reward that comes later replaces it", "none"),
            ("after", Time, "Time after which an item shown gets the reward of --unanswered, such as 90s, 30m or 12h", ""),
        ]),
        ("Storage", vec![
            ("journal-days", Whole("DAYS"), "Days of service for which decisions and rewards are kept for `sclub export`; 0 keeps none", ""),
            ("keep-log", LogSize, "Part of the log to keep beyond what recovery needs: a size such as 2GB, or a time such as 7d", ""),
            ("snapshot-every", Positive("N"), "Events between two snapshots; with more of them a start takes longer", ""),
        ]),
        ("Safety", vec![
            ("keys", Text("FILE"), "File with keys, one `role name secret` a line; a role is read, write or admin", ""),
            ("insecure", Bool, "Serve any address without keys", ""),
            ("tls-cert", Text("FILE"), "File with the certificate chain, PEM", ""),
            ("tls-key", Text("FILE"), "File with the private key, PEM", ""),
            ("host", List("NAME"), "Host name that browsers may call the server by, beside IP addresses and localhost; can be given several times", "or any with keys"),
            ("audit", Text("FILE"), "File for the audit log, a JSON object for each call of an administrator", "the ordinary log"),
        ]),
        ("Limits", vec![
            ("max-body", Positive("BYTES"), "Maximum size of a request's body, in bytes", ""),
            ("max-candidates", Positive("N"), "Maximum number of candidates in a request", ""),
            ("max-k", Positive("N"), "Maximum number of items in one decision", ""),
            ("max-seen", Whole("N"), "Maximum of `seen` in a request: decisions of each user that are remembered for it; 0 remembers none", ""),
            ("max-dim", Positive("N"), "Maximum number of features", ""),
            ("max-id", Positive("N"), "Maximum length of the id of a user or an item, in characters", ""),
            ("max-batch", Positive("N"), "Maximum number of requests in a batch", ""),
            ("rate", Whole("N"), "Maximum number of requests a second for each key, or for each address without keys", "no limit"),
            ("max-connections", Positive("N"), "Maximum number of connections at once", ""),
            ("max-connections-per-address", Whole("N"), "Maximum number of connections at once from one address (with IPv6: from one /64 network); 0 is no limit, as for a server behind a proxy", ""),
            ("timeout", Positive("SECONDS"), "Maximum seconds to receive a request and for the client to read the answer, plus one for each 16 KiB", ""),
        ]),
        ("Cluster", vec![
            ("cluster", Text("URL"), "NATS servers of the cluster that this server is a node of, such as nats://a:4222,nats://b:4222; see `sclub cluster`", "a single server"),
            ("cluster-name", Text("NAME"), "Name of the cluster", ""),
            ("node", Text("NAME"), "Name of this node, unique in the cluster", "name of the machine and port"),
            ("standby", Whole("N"), "Other nodes that follow each partition, to take it over at once", ""),
            ("nats-creds", Text("FILE"), "File with credentials for NATS", ""),
            ("nats-ca", Text("FILE"), "File with the certificate authorities of the NATS servers, PEM", ""),
        ]),
        ("Log", vec![
            ("log-format", OneOf("FORMAT", vec!["text", "json"]), "Format of the log", ""),
            ("log", Text("LEVEL"), "Level of the log: error, warn, info, debug, or a filter", ""),
        ]),
        ("Traces", vec![
            ("otel-endpoint", Text("URL"), "OpenTelemetry collector that traces are exported to, by OTLP over HTTP, such as http://localhost:4318", "OTEL_EXPORTER_OTLP_ENDPOINT, or no traces"),
            ("otel-sample-ratio", Number, "Share of the requests that are traced, from 0 to 1, unless their header traceparent has decided it", ""),
        ]),
    ];
    let mut all = Vec::new();
    for (heading, rows) in sections {
        for (name, kind, help, note) in rows {
            all.push(Flag { name, kind, heading, help, note: note.to_owned() });
        }
    }
    all
}

/// The policies that can be served.
fn policies() -> Vec<&'static str> {
    servable().into_iter().map(|spec| spec.name).collect()
}

/// The presets of policies that can be served. `theory` is not among them: a server does not know its
/// assumptions about the users.
fn presets() -> Vec<&'static str> {
    let served = servable();
    let all = Preset::ALL.into_iter().filter(|preset| {
        let is_one_of_several = !matches!(preset, Preset::Default | Preset::Theory);
        is_one_of_several && served.iter().any(|spec| spec.presets.contains(preset))
    });
    all.map(Preset::as_str).collect()
}

/// The ways in which context features are joined with those of an item.
fn context_modes() -> Vec<&'static str> {
    ContextMode::ALL.map(ContextMode::as_str).to_vec()
}

/// The environment variable of a setting.
pub fn variable(name: &str) -> String {
    format!("SCLUB_{}", constant_name(name).to_uppercase())
}

impl Flag {
    /// The default in words, if there is one. `defaults` are those of [`Settings`].
    pub fn default_text(&self, defaults: &Table) -> Option<String> {
        let value = defaults.get(self.name).map(|value| match value {
            Value::String(text) => text.clone(),
            Value::Float(number) => number.to_string(),
            Value::Array(names) if names.is_empty() => "none".to_owned(),
            other => other.to_string(),
        });
        match (value, &*self.note) {
            (None, "") => None,
            (None, note) => Some(note.to_owned()),
            (Some(value), "") => Some(value),
            (Some(value), note) => Some(format!("{value}, {note}")),
        }
    }

    fn arg(&self, defaults: &Table) -> Arg {
        let help = match self.default_text(defaults) {
            Some(default) => format!("{} [default: {default}]", self.help),
            None => self.help.to_owned(),
        };
        let arg = Arg::new(constant_name(self.name))
            .long(self.name)
            .env(variable(self.name))
            .help(help)
            .help_heading(self.heading);
        match &self.kind {
            Kind::Text(name) => arg.value_name(*name).value_parser(ValueParser::new(text)),
            Kind::Address => arg
                .value_name("HOST:PORT")
                .value_parser(ValueParser::new(address)),
            Kind::Whole(name) | Kind::Positive(name) => arg
                .value_name(*name)
                .allow_negative_numbers(true)
                .value_parser(ValueParser::new(whole_value)),
            Kind::Number => arg
                .value_name("X")
                .allow_negative_numbers(true)
                .value_parser(ValueParser::new(number)),
            Kind::Bool => arg
                .value_name("BOOL")
                .num_args(0..=1)
                .default_missing_value("true")
                .value_parser(BoolishValueParser::new().map(Value::Boolean)),
            Kind::OneOf(name, known) => arg
                .value_name(*name)
                .value_parser(PossibleValuesParser::new(known).map(Value::String)),
            Kind::List(name) => arg
                .value_name(*name)
                .value_delimiter(',')
                .action(ArgAction::Append)
                .value_parser(ValueParser::new(text)),
            Kind::LogSize => arg
                .value_name("SIZE|DAYS")
                .value_parser(ValueParser::new(log_size)),
            Kind::Time => arg.value_name("TIME").value_parser(ValueParser::new(span)),
        }
    }

    fn value(&self, matches: &ArgMatches) -> Option<Value> {
        let id = constant_name(self.name);
        match self.kind {
            Kind::List(_) => {
                let values = matches.get_many::<Value>(&id)?;
                Some(Value::Array(values.cloned().collect()))
            }
            _ => matches.get_one::<Value>(&id).cloned(),
        }
    }
}

fn text(text: &str) -> Result<Value, String> {
    if text.is_empty() {
        return Err("it must not be empty".to_owned());
    }
    Ok(Value::String(text.to_owned()))
}

fn address(text: &str) -> Result<Value, String> {
    Ok(Value::String(parse_address(text)?.to_string()))
}

fn whole_value(text: &str) -> Result<Value, String> {
    let number = i64::try_from(whole(text)?);
    number
        .map(Value::Integer)
        .map_err(|_| format!("'{text}' is too large; it must be at most {}", i64::MAX))
}

fn number(text: &str) -> Result<Value, String> {
    let number = text.parse::<f64>();
    number.map(Value::Float).map_err(|error| error.to_string())
}

fn log_size(text: &str) -> Result<Value, String> {
    Ok(Value::String(String::from(text.parse::<KeepLog>()?)))
}

fn span(text: &str) -> Result<Value, String> {
    Ok(Value::String(String::from(text.parse::<Span>()?)))
}

/// The settings that were given as flags or in the environment.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SettingArgs {
    /// Values by the name of the setting, without the constants.
    pub given: Table,
    pub constants: ServedConstantArgs,
}

/// Adds some of the flags to a command.
fn augment(mut command: Command, is_wanted: impl Fn(&Flag) -> bool) -> Command {
    let defaults = Table::try_from(Settings::default()).unwrap_or_default();
    for flag in flags().iter().filter(|flag| is_wanted(flag)) {
        command = command.arg(flag.arg(&defaults));
        if flag.name == "preset" {
            command = ServedConstantArgs::augment_args(command);
        }
    }
    command
}

/// The settings that are given among some of the flags.
fn given(matches: &ArgMatches, is_wanted: impl Fn(&Flag) -> bool) -> Result<SettingArgs, Error> {
    let flags = flags().into_iter().filter(|flag| is_wanted(flag));
    let given = flags.filter_map(|flag| {
        let value = flag.value(matches)?;
        Some((flag.name.to_owned(), value))
    });
    Ok(SettingArgs {
        given: given.collect(),
        constants: ServedConstantArgs::from_arg_matches(matches)?,
    })
}

impl Args for SettingArgs {
    fn augment_args(command: Command) -> Command {
        augment(command, |_| true)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SettingArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        given(matches, |_| true)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The settings of a folder that is taught: those that are fixed when it is made, and those of learning.
#[derive(Debug, Clone, Default)]
pub struct TeachSettingArgs(pub SettingArgs);

impl TeachSettingArgs {
    const NAMES: [&str; 9] = [
        "data",
        "policy",
        "preset",
        "dim",
        "features",
        "reward-min",
        "reward-max",
        "journal-days",
        "fit-threads",
    ];

    fn has(flag: &Flag) -> bool {
        Self::NAMES.contains(&flag.name)
    }
}

impl Args for TeachSettingArgs {
    fn augment_args(command: Command) -> Command {
        augment(command, Self::has).mut_args(|arg| match arg.get_id().as_str() {
            "data" => arg.help(
                "Folder to teach; it must be missing, empty, or have a catalogue and no rewards",
            ),
            "policy" => arg.help(format!("Policy of the new folder [default: {DEFAULT}]")),
            _ => arg,
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for TeachSettingArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        given(matches, Self::has).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The settings that a cluster is made with: its NATS servers, and those that are fixed from then on.
#[derive(Debug, Clone, Default)]
pub struct ClusterSettingArgs(pub SettingArgs);

impl ClusterSettingArgs {
    const NAMES: [&str; 12] = [
        "policy",
        "preset",
        "dim",
        "context",
        "context-mode",
        "reward-min",
        "reward-max",
        "lifetime",
        "cluster",
        "cluster-name",
        "nats-creds",
        "nats-ca",
    ];

    fn has(flag: &Flag) -> bool {
        Self::NAMES.contains(&flag.name)
    }
}

impl Args for ClusterSettingArgs {
    fn augment_args(command: Command) -> Command {
        augment(command, Self::has).mut_args(|arg| match arg.get_id().as_str() {
            "cluster" => arg.required_unless_present("config").help(
                "NATS servers of the cluster, such as nats://a:4222,nats://b:4222",
            ),
            "policy" => arg.help(format!("Policy [default: {DEFAULT}]")),
            "preset" => arg.help("Set of constants, for a policy that has several [default: tuned]"),
            "context" => arg.help(
                "Context feature of requests: NAME for a number, NAME=A|B|C for a category; can be given several times",
            ),
            "context_mode" => arg.help(
                "Way in which context features are joined with those of an item [default: cross]",
            ),
            _ => arg,
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ClusterSettingArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        given(matches, Self::has).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
