//! Environment variables that begin like settings and are none.

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
    check_names(std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned()))
}

fn check_names(names: impl Iterator<Item = String>) -> Result<()> {
    let mut known: Vec<String> = keys().iter().map(|key| variable(key)).collect();
    let others = [
        "SCLUB_CONFIG",
        "SCLUB_KEY",
        "SCLUB_NATS_SERVER",
        "SCLUB_URL",
        KEYS,
    ];
    known.extend(others.map(str::to_owned));
    let is_other = |name: &str| {
        OTHERS.contains(&name)
            || OTHER_BEGINNINGS.iter().any(|other| name.starts_with(other))
            || is_of_a_service(name)
    };
    let mut ours = names.filter(|name| name.to_ascii_uppercase().starts_with("SCLUB_"));
    let Some(unknown) = ours.find(|name| !known.contains(name) && !is_other(name)) else {
        return Ok(());
    };
    let nearest = nearest(&unknown, known.iter()).map_or("", |name| name);
    bail!(
        "environment {unknown}: there is no such variable; the nearest is {nearest}, and `sclub serve --help` lists the settings; \
         unset {unknown} if it is not for sclub"
    );
}

/// Returns true for names that Kubernetes and Docker give to the address of a service called `sclub` or `sclub-…`, such as
/// `SCLUB_NATS_SERVICE_PORT_CLIENT` and `SCLUB_NATS_PORT_4222_TCP_ADDR`.
fn is_of_a_service(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("SCLUB") else {
        return false;
    };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    ["_SERVICE_HOST", "_SERVICE_PORT"]
        .iter()
        .any(|part| rest.ends_with(part) || rest.contains("_SERVICE_PORT_"))
        || rest.ends_with("_PORT")
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
        let is_refused = |name: &str| check_names([name.to_owned()].into_iter()).is_err();
        for name in [
            "SCLUB_SERVICE_HOST",
            "SCLUB_SERVICE_PORT",
            "SCLUB_SERVICE_PORT_HTTP",
            "SCLUB_PORT",
            "SCLUB_PORT_8080_TCP",
            "SCLUB_PORT_8080_TCP_PROTO",
            "SCLUB_NATS_SERVICE_HOST",
            "SCLUB_NATS_SERVICE_PORT_CLIENT",
            "SCLUB_NATS_PORT",
            "SCLUB_NATS_PORT_4222_TCP_ADDR",
            "SCLUB_DNS_PORT_53_UDP",
        ] {
            assert!(!is_refused(name), "{name}");
        }
        for name in [
            "SCLUB_POLCY",
            "SCLUB_PORT_8080",
            "SCLUB_PORT_X_TCP",
            "SCLUB_PORT_8080_TCP_NAME",
            "SCLUB_SERVICES_HOST",
            "sclub_policy",
        ] {
            assert!(is_refused(name), "{name}");
        }
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
