//! Environment variables that begin like settings and are none.

use anyhow::{Result, bail};

use super::KEYS;
use super::effective::keys;
use super::flags::variable;

/// Variables of other commands, of the tests and of the notebooks.
const OTHERS: [&str; 11] = [
    "SCLUB_BIN",
    "SCLUB_COMPILER",
    "SCLUB_KEEP",
    "SCLUB_KEY",
    "SCLUB_KILLS",
    "SCLUB_NAME",
    "SCLUB_NATS_SERVER",
    "SCLUB_PORT",
    "SCLUB_QUICK",
    "SCLUB_RATINGS",
    "SCLUB_URL",
];

/// The beginnings of more of them. Kubernetes and Docker set `SCLUB_SERVICE_…` and `SCLUB_PORT…` if a service is called sclub.
const OTHER_BEGINNINGS: [&str; 5] = [
    "SCLUB_ENV_",
    "SCLUB_PORT_",
    "SCLUB_SEED",
    "SCLUB_SERVICE_",
    "SCLUB_SIM_",
];

/// Refuses variables whose names begin with `SCLUB_`, in upper or lower case, and are not known: a mistyped one would be
/// ignored.
///
/// # Errors
/// Names the variable and the setting with the nearest name.
pub fn check(names: impl Iterator<Item = String>) -> Result<()> {
    let mut known: Vec<String> = keys().iter().map(|key| variable(key)).collect();
    known.extend(["SCLUB_CONFIG".to_owned(), KEYS.to_owned()]);
    let is_other = |name: &str| {
        OTHERS.contains(&name) || OTHER_BEGINNINGS.iter().any(|other| name.starts_with(other))
    };
    let mut ours = names.filter(|name| name.to_ascii_uppercase().starts_with("SCLUB_"));
    let Some(unknown) = ours.find(|name| !known.contains(name) && !is_other(name)) else {
        return Ok(());
    };
    let nearest = nearest(&unknown, known.iter()).map_or("", |name| name);
    bail!(
        "environment {unknown}: there is no such setting; the nearest is {nearest}, and `sclub serve --help` lists all; \
         unset {unknown} if it is not for sclub"
    );
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
