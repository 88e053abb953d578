//! The standard variables of OpenTelemetry. Settings of sclub are more specific than what all programs of a machine share, so
//! these have the lowest priority. Values that this server cannot do are refused, if there are traces at all.

use anyhow::{Result, bail};
use toml::Value;

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
const PROTOCOLS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
    "OTEL_EXPORTER_OTLP_PROTOCOL",
];
const EXPORTER: &str = "OTEL_TRACES_EXPORTER";
const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
const SAMPLER_ARG: &str = "OTEL_TRACES_SAMPLER_ARG";

/// A variable, unless it is empty.
fn variable(name: &str) -> Option<String> {
    let value = std::env::var(name).ok();
    value.filter(|value| !value.is_empty())
}

/// Returns true if the variables disable traces. A setting of sclub enables them nevertheless.
fn is_off() -> bool {
    let is_true = |value: String| value.eq_ignore_ascii_case("true");
    variable("OTEL_SDK_DISABLED").is_some_and(is_true)
        || variable(EXPORTER).is_some_and(|exporter| exporter == "none")
}

/// A setting that a variable gives: the variable, the name and the value.
pub type Setting = (&'static str, &'static str, Value);

/// The settings that the variables give.
pub fn settings() -> Vec<Setting> {
    if is_off() {
        return Vec::new();
    }
    let mut names = [TRACES_ENDPOINT, ENDPOINT].into_iter();
    let endpoint = names.find_map(|name| Some((name, variable(name)?)));
    let endpoint = endpoint.map(|(name, url)| (name, "otel-endpoint", Value::String(url)));
    let ratio = ratio().ok().flatten();
    let ratio = ratio.map(|ratio| (SAMPLER, "otel-sample-ratio", Value::Float(ratio)));
    endpoint.into_iter().chain(ratio).collect()
}

/// The share of the requests that the variables sample, if they say so.
fn ratio() -> Result<Option<f64>> {
    let Some(sampler) = variable(SAMPLER) else {
        return Ok(None);
    };
    match sampler.as_str() {
        "parentbased_always_on" => Ok(Some(1.0)),
        "parentbased_always_off" => Ok(Some(0.0)),
        "parentbased_traceidratio" => {
            let text = variable(SAMPLER_ARG).unwrap_or_else(|| "1".to_owned());
            match text.parse() {
                Ok(ratio) if (0.0..=1.0).contains(&ratio) => Ok(Some(ratio)),
                _ => bail!("environment {SAMPLER_ARG} is '{text}'; it must be from 0 to 1"),
            }
        }
        _ => bail!(
            "environment {SAMPLER} is '{sampler}'; the sampled requests of a caller are always sampled, so it must be \
             parentbased_always_on, parentbased_always_off or parentbased_traceidratio; or set otel-sample-ratio"
        ),
    }
}

/// Checks the variables that an export of traces uses. `endpoint` is the URL if it is from them, and `has_ratio` is true if the
/// sampled share is.
///
/// # Errors
/// If this server cannot do what a variable says.
pub fn check(endpoint: Option<&str>, has_ratio: bool) -> Result<()> {
    if has_ratio && !is_off() {
        ratio()?;
    }
    let Some(endpoint) = endpoint else {
        return Ok(());
    };
    if variable(TRACES_ENDPOINT).is_some() && !endpoint.ends_with("/v1/traces") {
        bail!(
            "environment {TRACES_ENDPOINT} is '{endpoint}'; its path must end with /v1/traces; {ENDPOINT} is without that path"
        );
    }
    let protocol = PROTOCOLS
        .iter()
        .find_map(|name| Some((name, variable(name)?)));
    if let Some((name, protocol)) = protocol
        && protocol != "http/protobuf"
    {
        bail!(
            "environment {name} is '{protocol}'; traces are sent by http/protobuf only: set {} to it, and the endpoint to the \
             HTTP port of the collector, usually 4318",
            PROTOCOLS[0]
        );
    }
    if let Some(exporter) = variable(EXPORTER)
        && !exporter.split(',').any(|name| name.trim() == "otlp")
    {
        bail!("environment {EXPORTER} is '{exporter}'; it must be otlp or none");
    }
    Ok(())
}
