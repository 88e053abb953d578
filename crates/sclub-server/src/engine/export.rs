//! Decisions and rewards as JSON lines.

use std::io::Write;

use serde::Serialize;

use super::fold::{FoldError, name};
use crate::decision::{Features, Handed};
use crate::event::{Event, Stamped};
use crate::state::{Answered, Catalogue};
use crate::store::{Store, StoreError};

/// A line: an item that was shown, and what it brought.
#[derive(Debug, Serialize)]
struct Line<'a> {
    decision: u64,
    user: &'a str,
    item: &'a str,
    features: Option<&'a [f64]>,
    score: f64,
    cluster: u64,
    reward: Option<f64>,
    decided: u64,
    rewarded: Option<u64>,
}

/// Writes every reward in the order in which it was learned, then every decision that has none.
/// Returns the number of lines.
///
/// # Errors
/// Where the store is damaged, or `out` cannot be written.
pub fn export(store: &dyn Store, out: &mut dyn Write) -> Result<u64, FoldError> {
    let mut lines = 0;
    let mut answered = Answered::default();
    let mut catalogue: Option<Catalogue> = None;
    let broken = |number: u64, reason: String| {
        StoreError::Refused(format!("event {number} of {}: {reason}", name(store)))
    };
    store.events(0, &mut |number, bytes| {
        if bytes.is_empty() {
            return Ok(());
        }
        let stamped = Stamped::decode(bytes).map_err(|error| broken(number, error.to_string()))?;
        match &stamped.event {
            Event::Learn { round } => {
                for reward in round {
                    answered.insert(reward.number, reward.decided);
                    let line = Line {
                        decision: reward.number,
                        user: &reward.user,
                        item: &reward.item,
                        features: Some(&reward.features),
                        score: reward.score,
                        cluster: reward.cluster,
                        reward: Some(reward.reward),
                        decided: reward.decided,
                        rewarded: Some(stamped.at),
                    };
                    put(out, &line)?;
                    lines += 1;
                }
            }
            Event::Upsert { items } => {
                for item in items {
                    let refused = |error: sclub::Error| broken(number, error.to_string());
                    let catalogue = match &mut catalogue {
                        Some(catalogue) => catalogue,
                        none => none.insert(Catalogue::new(item.features.len()).map_err(refused)?),
                    };
                    let upserted = catalogue.upsert(&item.id, &item.features, stamped.at);
                    upserted.map_err(refused)?;
                }
            }
            Event::Remove { item } => {
                if let Some(catalogue) = &mut catalogue {
                    catalogue.remove(item, stamped.at);
                }
            }
            Event::Expect { .. } | Event::Forget { .. } | Event::Fit { .. } => {}
        }
        Ok(())
    })?;
    store.notes(&mut |_, bytes| {
        let Some(handed) = Handed::decode(bytes) else {
            return Ok(());
        };
        for (number, shown) in (handed.number..).zip(&handed.shown) {
            if answered.contains(number) {
                continue;
            }
            let found;
            let features = match &shown.features {
                Features::Inline(features) => Some(features.as_slice()),
                Features::Catalogue(revision) => {
                    found = catalogue
                        .as_ref()
                        .and_then(|catalogue| catalogue.features_of(&shown.item, *revision));
                    found.as_deref()
                }
            };
            let line = Line {
                decision: number,
                user: &handed.user,
                item: &shown.item,
                features,
                score: shown.score,
                cluster: handed.cluster,
                reward: None,
                decided: handed.at,
                rewarded: None,
            };
            put(out, &line)?;
            lines += 1;
        }
        Ok(())
    })?;
    Ok(lines)
}

fn put(out: &mut dyn Write, line: &Line<'_>) -> Result<(), StoreError> {
    let mut bytes = serde_json::to_vec(line).expect("plain data");
    bytes.push(b'\n');
    out.write_all(&bytes)
        .map_err(|error| StoreError::Refused(format!("cannot write: {error}")))
}
