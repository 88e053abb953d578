//! The settings in force: flags over environment over file over defaults, validated.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use sclub::ContextMode;
use sclub_server::api::plain;
use sclub_server::client::Url;
use sclub_server::context::Context as RequestContext;
use sclub_server::edge::Site;
use sclub_server::settings::{
    Literal, MAX_PROPENSITIES, MAX_THREADS, Settings, constant_name, constants, setting_name,
};
use serde::Deserialize;
use toml::{Table, Value};

use super::flags::{Flag, Kind, SettingArgs, flags, variable};
use super::variables::nearest;
use super::{KEYS, ServeArgs, otel};
use crate::choices;

/// The source of a setting's value.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Origin {
    Default,
    /// A variable of OpenTelemetry.
    Standard(&'static str),
    File(PathBuf),
    Environment,
    Flag,
}

impl Origin {
    /// In words, for a setting of this name.
    fn of(&self, key: &str) -> String {
        match self {
            Origin::Default => "default".into(),
            Origin::Standard(variable) => format!("environment {variable}"),
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

/// The settings in force, and the source of each.
pub struct EffectiveSettings {
    values: Table,
    origins: Vec<(String, Origin)>,
}

impl EffectiveSettings {
    /// Puts flags over environment over file over defaults.
    pub fn new(args: &ServeArgs) -> Result<Self> {
        Self::over(Vec::new(), args)
    }

    /// The same for a server, which exports traces: above the defaults are variables of OpenTelemetry.
    pub fn of_server(args: &ServeArgs) -> Result<Self> {
        Self::over(otel::settings(), args)
    }

    fn over(standard: Vec<otel::Setting>, args: &ServeArgs) -> Result<Self> {
        let mut effective = Self {
            values: Table::try_from(Settings::default())
                .context("the defaults cannot be written as TOML")?,
            origins: Vec::new(),
        };
        for (variable, key, value) in standard {
            effective.put(key.to_owned(), value, Origin::Standard(variable))?;
        }
        if let Some(path) = &args.config {
            for (key, value) in read_file(path)? {
                effective.put(key, value, Origin::File(path.clone()))?;
            }
        }
        let mut given = args.settings.given.clone();
        for (name, text) in &args.settings.constants.given {
            given.insert(setting_name(name), constant_value(name, text)?);
        }
        for (key, value) in given {
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
            effective.put(key, value, origin)?;
        }
        Ok(effective)
    }

    /// Sets a value after checking its type.
    fn put(&mut self, key: String, value: Value, origin: Origin) -> Result<()> {
        if !keys().contains(&key) {
            if value.is_table() {
                bail!("{origin}: unknown section '{key}'; the settings are in no section");
            }
            bail!("{origin}: unknown setting '{key}'{}", hint(&key));
        }
        let alone = Table::from_iter([(key.clone(), value.clone())]);
        if let Err(error) = Settings::deserialize(alone) {
            let why = plain(error.message().trim_end_matches(['\n', '.']));
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
    pub fn settings(&self) -> Result<Settings> {
        let settings: Settings = Settings::deserialize(self.values.clone())
            .map_err(|error| anyhow!("{}", error.message()))?;
        self.check(&settings)?;
        Ok(settings)
    }

    /// Validates the settings. An error names the source of the value.
    fn check(&self, settings: &Settings) -> Result<()> {
        let refuse = |key: &str, must: &str| -> Result<()> {
            let value = self.values.get(key).map(Value::to_string);
            let value = value.unwrap_or_else(|| "not set".into());
            bail!(
                "{}: {key} is {value}; it must {must}",
                self.origin(key).of(key)
            )
        };
        for Flag { name, kind, .. } in flags() {
            match (kind, self.values.get(name)) {
                (Kind::OneOf(_, known), Some(Value::String(value)))
                    if !known.contains(&&**value) =>
                {
                    refuse(name, &format!("be one of {}", known.join(", ")))?;
                }
                (Kind::Positive(_), Some(Value::Integer(0))) => refuse(name, "be at least 1")?,
                _ => {}
            }
        }
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
        let max = settings.max_dim;
        if settings.dim.is_some_and(|dim| dim == 0 || dim > max) {
            refuse("dim", &format!("be between 1 and max-dim, {max}"))?;
        }
        if !(0.0..=1.0).contains(&settings.explore_share) {
            refuse("explore-share", "be from 0 to 1")?;
        }
        for (key, threads) in [
            ("threads", settings.threads),
            ("fit-threads", settings.fit_threads),
        ] {
            if threads > MAX_THREADS {
                refuse(key, &format!("be at most {MAX_THREADS}"))?;
            }
        }
        if let Err(error) = RequestContext::new(&settings.context, ContextMode::Cross) {
            bail!("{}: {error}", self.origin("context").of("context"));
        }
        if settings.propensities > MAX_PROPENSITIES {
            refuse("propensities", &format!("be at most {MAX_PROPENSITIES}"))?;
        }
        let is_meant = match self.origin("after") {
            Origin::Default | Origin::Standard(_) => false,
            // `--print-config` writes the default too.
            Origin::File(_) => settings.after != Settings::default().after,
            Origin::Environment | Origin::Flag => true,
        };
        if is_meant && settings.unanswered.is_none() {
            let must = "be left out, or given with the reward of items that got none in time, such as --unanswered 0";
            refuse("after", must)?;
        }
        if !(0.0..=1.0).contains(&settings.otel_sample_ratio) {
            refuse("otel-sample-ratio", "be from 0 to 1")?;
        }
        if let Some(Err(error)) = settings
            .otel_endpoint
            .as_ref()
            .map(|url| url.parse::<Url>())
        {
            bail!(
                "{}: {error}",
                self.origin("otel-endpoint").of("otel-endpoint")
            );
        }
        if let Some(endpoint) = &settings.otel_endpoint {
            let is_standard = |key| matches!(self.origin(key), Origin::Standard(_));
            let has_ratio = matches!(
                self.origin("otel-sample-ratio"),
                Origin::Standard(_) | Origin::Default
            );
            let endpoint = is_standard("otel-endpoint").then_some(endpoint.as_str());
            otel::check(endpoint, has_ratio)?;
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
            (Some(_), None) => bail!("tls-cert needs tls-key; give both or neither"),
            (None, Some(_)) => bail!("tls-key needs tls-cert; give both or neither"),
            _ => sclub_server::check_settings(settings).map_err(|error| anyhow!(error)),
        }
    }

    /// A file for `--config` with the same settings.
    pub fn to_toml(&self, has_keys: bool) -> String {
        let mut lines = vec!["# The settings in force, and the source of each.".to_owned()];
        for key in keys() {
            let origin = self.origin(&key).of(&key);
            lines.push(match self.values.get(&key) {
                Some(value) => format!("{:<36} # {origin}", format!("{key} = {value}")),
                None => format!(
                    "{:<36} # {origin}, {}",
                    format!("# {key} ="),
                    unset_text(&key)
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
pub(super) fn keys() -> Vec<String> {
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
    // A text that is not valid is refused later, with the source of the value.
    let literal = literal.unwrap_or_else(|| Literal::Text(text.to_owned()));
    Value::try_from(literal).context("a constant cannot be written as TOML")
}

/// The value of a setting that is not given, in words.
fn unset_text(key: &str) -> String {
    if is_constant(key) {
        return "that of the folder or the preset".to_owned();
    }
    let flag = flags().into_iter().find(|flag| flag.name == key);
    let text = flag.and_then(|flag| flag.default_text(&Table::new()));
    text.unwrap_or_else(|| "none".to_owned())
}

fn is_constant(key: &str) -> bool {
    let name = constant_name(key);
    constants().iter().any(|constant| constant.name == name)
}

/// A suggestion: the setting with the nearest name.
fn hint(key: &str) -> String {
    let keys = keys();
    let meant = nearest(&key.replace('_', "-"), keys.iter());
    meant.map_or_else(String::new, |known| {
        format!("; did you mean '{known}'? `sclub serve --help` lists all")
    })
}

fn read_file(path: &Path) -> Result<Table> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the configuration {}", path.display()))?;
    text.parse()
        .map_err(|error: toml::de::Error| anyhow!("file {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_has_a_flag() {
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
