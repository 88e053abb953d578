//! Environment variables that begin like settings and are none.

use std::ffi::OsString;

use anyhow::{Result, bail};

use super::KEYS;
use super::effective::keys;
use super::flags::variable;

/// Variables of the tests and of the notebooks.
const OTHERS: [&str; 7] = [
    "SCLUB_BIN",
    "SCLUB_COMPILER",
    "SCLUB_KEEP",
    "SCLUB_KILLS",
    "SCLUB_NAME",
    "SCLUB_QUICK",
    "SCLUB_RATINGS",
];

/// The beginnings of more of them.
const OTHER_BEGINNINGS: [&str; 3] = ["SCLUB_ENV_", "SCLUB_SEED", "SCLUB_SIM_"];

/// Refuses variables whose names begin with `SCLUB_`, in upper or lower case, and are not known: a mistyped one would be
/// ignored.
///
/// # Errors
/// Names the variable and the setting with the nearest name.
pub fn check() -> Result<()> {
    let text = |text: OsString| text.to_string_lossy().into_owned();
    check_all(std::env::vars_os().map(|(name, value)| (text(name), text(value))))
}

fn check_all(variables: impl Iterator<Item = (String, String)>) -> Result<()> {
    let mut known: Vec<String> = keys().iter().map(|key| variable(key)).collect();
    let others = [
        "SCLUB_CONFIG",
        "SCLUB_KEY",
        "SCLUB_NATS_SERVER",
        "SCLUB_URL",
        KEYS,
    ];
    known.extend(others.map(str::to_owned));
    let is_other = |name: &str, value: &str| {
        OTHERS.contains(&name)
            || OTHER_BEGINNINGS.iter().any(|other| name.starts_with(other))
            || is_of_a_service(name, value)
    };
    let is_known = |(name, value): &(String, String)| known.contains(name) || is_other(name, value);
    let mut ours = variables.filter(|(name, _)| name.to_ascii_uppercase().starts_with("SCLUB_"));
    let Some((unknown, _)) = ours.find(|variable| !is_known(variable)) else {
        return Ok(());
    };
    if unknown == "SCLUB_PORT" {
        bail!(
            "environment SCLUB_PORT: there is no such variable; the port is in SCLUB_ADDR, such as SCLUB_ADDR=127.0.0.1:8080"
        );
    }
    let nearest = nearest(&unknown, known.iter()).map_or("", |name| name);
    bail!(
        "environment {unknown}: there is no such variable; the nearest is {nearest}, and `sclub serve --help` lists the settings; \
         unset {unknown} if it is not for sclub"
    );
}

/// Returns true for variables with the address of a service called `sclub` or `sclub-…`, which Kubernetes and Docker make, such as
/// `SCLUB_NATS_SERVICE_PORT_CLIENT`, `SCLUB_NATS_PORT_4222_TCP_ADDR` and `SCLUB_NATS_PORT=tcp://10.0.0.1:4222`.
fn is_of_a_service(name: &str, value: &str) -> bool {
    let Some(rest) = name.strip_prefix("SCLUB") else {
        return false;
    };
    let is_address = |value: &str| {
        let protocols = ["tcp://", "udp://", "sctp://"];
        protocols.iter().any(|start| value.starts_with(start))
    };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    ["_SERVICE_HOST", "_SERVICE_PORT"]
        .iter()
        .any(|part| rest.ends_with(part) || rest.contains("_SERVICE_PORT_"))
        || rest.ends_with("_PORT") && is_address(value)
        || rest.rsplit_once("_PORT_").is_some_and(|(_, address)| {
            let mut parts = address.split('_');
            parts.next().is_some_and(is_number)
                && matches!(parts.next(), Some("TCP" | "UDP" | "SCTP"))
                && matches!(parts.next(), None | Some("PROTO" | "PORT" | "ADDR"))
                && parts.next().is_none()
        })
}

/// The name that is nearest to another. Upper and lower case are the same.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a String>) -> Option<&'a String> {
    let name = name.to_ascii_uppercase();
    known.min_by_key(|known| distance(&known.to_ascii_uppercase(), &name))
}

/// The number of bytes to insert, delete or replace to make one name of the other.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in other.bytes().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_services_are_not_settings() {
        let is_refused = |variable: &str| {
            let (name, value) = variable.split_once('=').unwrap_or((variable, ""));
            check_all([(name.to_owned(), value.to_owned())].into_iter()).is_err()
        };
        for variable in [
            "SCLUB_SERVICE_HOST=10.0.0.1",
            "SCLUB_SERVICE_PORT=8080",
            "SCLUB_SERVICE_PORT_HTTP=8080",
            "SCLUB_PORT=tcp://10.0.0.1:8080",
            "SCLUB_PORT_8080_TCP=tcp://10.0.0.1:8080",
            "SCLUB_PORT_8080_TCP_PROTO=tcp",
            "SCLUB_PORT_8080_TCP_PORT=8080",
            "SCLUB_NATS_SERVICE_HOST=10.0.0.1",
            "SCLUB_NATS_SERVICE_PORT_CLIENT=4222",
            "SCLUB_NATS_PORT=tcp://10.0.0.1:4222",
            "SCLUB_NATS_PORT_4222_TCP_ADDR=10.0.0.1",
            "SCLUB_DNS_PORT=udp://10.0.0.1:53",
            "SCLUB_DNS_PORT=sctp://10.0.0.1:53",
            "SCLUB_DNS_PORT_53_UDP=udp://10.0.0.1:53",
        ] {
            assert!(!is_refused(variable), "{variable}");
        }
        for variable in [
            "SCLUB_POLCY",
            "SCLUB_PORT",
            "SCLUB_PORT=8080",
            "SCLUB_METRICS_PORT=9",
            "SCLUB_PORT=http://10.0.0.1:8080",
            "SCLUB_PORT_8080",
            "SCLUB_PORT_X_TCP",
            "SCLUB_PORT_8080_TCP_NAME",
            "SCLUB_SERVICES_HOST",
            "sclub_policy",
        ] {
            assert!(is_refused(variable), "{variable}");
        }
    }

    #[test]
    fn the_variable_for_the_port_is_named() {
        let mistyped = [("SCLUB_PORT".to_owned(), "8080".to_owned())];
        let error = check_all(mistyped.into_iter()).unwrap_err().to_string();
        assert!(error.contains("SCLUB_ADDR"), "{error}");
    }

    #[test]
    fn a_distance_is_the_number_of_edits() {
        for (one, other, edits) in [
            ("", "", 0),
            ("abc", "abc", 0),
            ("", "abc", 3),
            ("policy", "polcy", 1),
            ("kitten", "sitting", 3),
            ("sunday", "saturday", 3),
        ] {
            assert_eq!(distance(one, other), edits, "{one} {other}");
            assert_eq!(distance(other, one), edits, "{one} {other}");
        }
    }
}
