//! The items and users of a measurement, drawn from fixed seeds.

use std::io::Write;

use anyhow::{Result, bail};
use sclub_server::client::Connection;

use super::Plan;
use crate::remote::{body_of, call};
use crate::simulate::wire::{self, Decision, Decisions, read, write_feedback};

/// Items that the candidates of `--load recommend` are drawn from.
pub const CATALOGUE: usize = 1000;

/// Lists of candidates that are made beforehand.
pub const LISTS: usize = 1024;

/// Requests in a batch where nothing is measured.
const BATCH: usize = 500;

/// Rounds that users learn from before a catalogue is searched for them.
const TEACHING_ROUNDS: usize = 5000;

/// Pseudo-random numbers, the same each time.
pub struct Draws(pub u64);

impl Draws {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Between −1 and 1.
    fn signed(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

/// The filter of `--load filter`. All items pass, so that as many are scored as without it.
const FILTER: &str = ",\"filter\":{\"tags\":{\"any\":[\"even\",\"odd\"],\"none\":[\"sold\"]},\"price\":{\"max\":99}}";

/// Lists of different candidates, with or without a filter.
pub fn lists(candidates: usize, has_filter: bool) -> Vec<String> {
    let filter = if has_filter { FILTER } else { "" };
    let mut draws = Draws(1);
    let list = |_| {
        let mut ids: Vec<usize> = (0..CATALOGUE).collect();
        let some = (0..candidates).map(|at| {
            let other = at + draws.below(CATALOGUE - at);
            ids.swap(at, other);
            format!("\"load-{}\"", ids[at])
        });
        let some: Vec<String> = some.collect();
        format!("\"candidates\":[{}]{filter}}}", some.join(","))
    };
    (0..LISTS).map(list).collect()
}

/// Features as those of the lab: a direction and a constant, of length 1 together.
///
/// Returns the first of them.
fn write_features(line: &mut Vec<u8>, dim: usize, draws: &mut Draws) -> Result<f64> {
    let direction: Vec<f64> = (1..dim).map(|_| draws.signed()).collect();
    let length = direction.iter().map(|x| x * x).sum::<f64>().sqrt();
    let scale = std::f64::consts::FRAC_1_SQRT_2;
    let features = direction.iter().map(|x| x / length * scale);
    let features: Vec<f64> = features.chain([scale]).collect();
    serde_json::to_writer(line, &features)?;
    Ok(features[0])
}

/// Puts items into the catalogue, with or without descriptions. Returns the first feature of each.
pub async fn put_items(
    connection: &mut Connection,
    items: usize,
    dim: usize,
    has_descriptions: bool,
) -> Result<Vec<f64>> {
    let mut draws = Draws(2);
    let mut firsts = Vec::with_capacity(items);
    let write = |body: &mut Vec<u8>, item| {
        write!(body, "{{\"id\":\"load-{item}\",\"features\":")?;
        firsts.push(write_features(body, dim, &mut draws)?);
        if has_descriptions {
            let (tag, price) = (["even", "odd"][item % 2], item % 100);
            write!(body, ",\"tags\":[\"{tag}\"],\"data\":{{\"price\":{price}}}")?;
        }
        body.push(b'}');
        Ok(())
    };
    wire::put_items(connection, items, write).await?;
    Ok(firsts)
}

/// Sends rewards that are the more frequent the larger an item's first feature is, so that there is a
/// taste to learn.
pub async fn teach(plan: &Plan, connection: &mut Connection, liked: &[f64]) -> Result<()> {
    let mut draws = Draws(3);
    let decisions = decisions(plan, connection, TEACHING_ROUNDS, &mut draws).await?;
    let mut body = Vec::new();
    for some in decisions.chunks(BATCH) {
        body.clear();
        body.extend_from_slice(b"{\"feedback\":[");
        for (at, (decision, item)) in some.iter().enumerate() {
            if at > 0 {
                body.push(b',');
            }
            let likes = liked
                .get(*item)
                .is_some_and(|liked| draws.signed() < *liked);
            write_feedback(&mut body, decision, f64::from(u8::from(likes)))?;
        }
        body.extend_from_slice(b"]}");
        call(connection, "POST", "/v1/feedback/batch", &body).await?;
    }
    Ok(())
}

/// Fetches `count` decisions, each with the number of the item to show.
pub async fn decisions(
    plan: &Plan,
    connection: &mut Connection,
    count: usize,
    draws: &mut Draws,
) -> Result<Vec<(String, usize)>> {
    let mut all = Vec::with_capacity(count);
    let mut body = Vec::new();
    while all.len() < count {
        body.clear();
        body.extend_from_slice(b"{\"requests\":[");
        for at in 0..BATCH.min(count - all.len()) {
            if at > 0 {
                body.push(b',');
            }
            plan.write_recommend(&mut body, draws, false);
        }
        body.extend_from_slice(b"]}");
        let response = connection
            .request("POST", "/v1/recommend/batch", &body)
            .await?;
        let fetched: Decisions<'_> = read(body_of(&response)?)?;
        if fetched.decisions.is_empty() {
            bail!("the server returned no decisions");
        }
        let number = |decision: &Decision<'_>| -> Option<usize> {
            let shown = decision.items.first()?;
            shown.id.strip_prefix("load-")?.parse().ok()
        };
        let decided = fetched.decisions.into_iter();
        all.extend(decided.map(|decision| {
            let item = number(&decision).unwrap_or(usize::MAX);
            (decision.decision.into_owned(), item)
        }));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn candidates_are_different_items_of_the_catalogue() {
        let lists = [lists(20, false), lists(20, true)].concat();
        assert_eq!(lists.len(), 2 * LISTS);
        for list in lists {
            let list: Value = serde_json::from_str(&format!("{{{list}")).unwrap();
            let ids = list["candidates"].as_array().unwrap().iter();
            let mut ids: Vec<&str> = ids.map(|id| id.as_str().unwrap()).collect();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), 20);
            for id in ids {
                let number: usize = id.strip_prefix("load-").unwrap().parse().unwrap();
                assert!(number < CATALOGUE);
            }
        }
    }

    #[test]
    fn features_have_length_one() {
        for dim in [1, 2, 32] {
            let mut line = Vec::new();
            write_features(&mut line, dim, &mut Draws(5)).unwrap();
            let features: Vec<f64> = serde_json::from_slice(&line).unwrap();
            assert_eq!(features.len(), dim);
            let length: f64 = features.iter().map(|x| x * x).sum();
            let expected = if dim == 1 { 0.5 } else { 1.0 };
            assert!((length - expected).abs() < 1e-12, "{length}");
        }
    }
}
