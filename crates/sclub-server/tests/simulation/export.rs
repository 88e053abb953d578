//! Checks of exports: they have every reward that counts, once.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::model::ExportLine;

/// The fields of a line that are checked.
#[derive(Deserialize)]
struct Line {
    decision: u64,
    user: String,
    item: String,
    reward: Option<f64>,
    #[serde(default)]
    assumed: bool,
}

/// Checks an export that was taken between two states of the model. Rewards are identified by their values: no
/// two are the same. Returns user and item of each line, by the number of the item shown.
///
/// # Errors
/// The line that is missing, duplicated or wrong.
pub fn check(
    bytes: &[u8],
    count: u64,
    before: &BTreeMap<u64, ExportLine>,
    after: &BTreeMap<u64, ExportLine>,
) -> Result<BTreeMap<u64, (String, String)>, String> {
    let mut seen = BTreeSet::new();
    let mut all = BTreeMap::new();
    let mut lines = 0;
    for text in bytes.split(|&byte| byte == b'\n') {
        if text.is_empty() {
            continue;
        }
        lines += 1;
        let line: Line = serde_json::from_slice(text)
            .map_err(|error| format!("a line of the export cannot be read: {error}"))?;
        let shown = (line.user.clone(), line.item.clone());
        if all.insert(line.decision, shown).is_some() {
            return Err(format!("the export has {} twice", line.decision));
        }
        let Some(reward) = line.reward.filter(|_| !line.assumed) else {
            continue;
        };
        let bits = reward.to_bits();
        let Some(known) = after.get(&bits).or_else(|| before.get(&bits)) else {
            return Err(format!(
                "the export has reward {reward}, which was never sent"
            ));
        };
        if (&known.user, &known.item) != (&line.user, &line.item) {
            return Err(format!("the export has reward {reward} of someone else"));
        }
        if !seen.insert(bits) {
            return Err(format!("the export has reward {reward} twice"));
        }
    }
    if lines != count {
        return Err(format!("the export has {lines} lines and reports {count}"));
    }
    let is_certain = |lines: &BTreeMap<u64, ExportLine>, bits: &u64| {
        let line = lines.get(bits);
        line.is_some_and(|line| line.is_certain)
    };
    let mut certain = before.keys().filter(|bits| is_certain(before, bits));
    match certain.find(|bits| is_certain(after, bits) && !seen.contains(bits)) {
        Some(&bits) => {
            let (reward, line) = (f64::from_bits(bits), &before[&bits]);
            Err(format!("the export lacks reward {reward}: {line:?}"))
        }
        None => Ok(all),
    }
}
