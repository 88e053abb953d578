//! The requests and answers of the service, as far as they matter to a simulation.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Write;

use anyhow::{Context, Result, anyhow, bail};
use sclub::ItemSet;
use sclub_lab::world::Block;
use sclub_server::client::Connection;
use sclub_server::settings::Literal;
use serde::Deserialize;

use crate::remote::call;

/// Items in one request that puts items into the catalogue.
const ITEMS_PER_REQUEST: usize = 2000;

/// The answer of `/v1/state`, as far as it matters here.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct State {
    /// Number of rounds.
    pub rounds: u64,
    /// Number of clusters.
    pub clusters: u64,
    /// The policy that learns.
    #[serde(default)]
    pub policy: String,
    /// The preset of its constants.
    #[serde(default)]
    pub preset: String,
    /// The constants that differ from the preset's.
    #[serde(default)]
    pub constants: BTreeMap<String, Literal>,
    /// Number of features, once it is known.
    pub dim: Option<usize>,
    /// Number of items in the catalogue.
    #[serde(default)]
    pub items: u64,
    /// The context features of requests.
    #[serde(default)]
    pub context: Vec<String>,
    /// The maximum number of items in one recommendation.
    pub max_k: Option<usize>,
    /// The smallest reward that is accepted.
    pub reward_min: Option<f64>,
    /// The largest reward that is accepted.
    pub reward_max: Option<f64>,
    /// The version of the server.
    #[serde(default)]
    pub version: String,
}

/// Fetches the state of a server.
pub async fn state(connection: &mut Connection) -> Result<State> {
    let state = call(connection, "GET", "/v1/state", b"").await?;
    serde_json::from_value(state)
        .with_context(|| format!("the server at {} is not an sclub server", connection.url()))
}

/// A recommendation, as far as it matters here.
#[derive(Debug, Deserialize)]
pub struct Decision<'r> {
    /// The id of the decision, which the reward names.
    #[serde(borrow)]
    pub decision: Cow<'r, str>,
    /// The items to show, the best first.
    #[serde(borrow)]
    pub items: Vec<Shown<'r>>,
}

/// An item to show.
#[derive(Debug, Deserialize)]
pub struct Shown<'r> {
    /// Its id.
    #[serde(borrow)]
    pub id: Cow<'r, str>,
}

/// The answer to a batch of requests.
#[derive(Debug, Deserialize)]
pub struct Decisions<'r> {
    /// One for each request, in their order.
    #[serde(borrow)]
    pub decisions: Vec<Decision<'r>>,
}

impl Decision<'_> {
    /// The candidates to be shown, one for each slot.
    pub fn choices(&self, slots: usize, candidates: usize) -> Result<Vec<usize>> {
        if self.items.len() != slots {
            bail!("the server shows {} items of {slots}", self.items.len());
        }
        let choice = |Shown { id }: &Shown<'_>| {
            let choice = id.parse().ok().filter(|&choice| choice < candidates);
            choice.ok_or_else(|| {
                anyhow!("the server shows item '{id}', which is not among the candidates")
            })
        };
        self.items.iter().map(choice).collect()
    }
}

/// Parses an answer of a server.
pub fn read<'r, T: Deserialize<'r>>(body: &'r [u8]) -> Result<T> {
    serde_json::from_slice(body).context("cannot parse the answer of the server")
}

/// Writes a comma, except before the first element.
pub fn separate(body: &mut Vec<u8>) {
    if body.last() != Some(&b'[') {
        body.push(b',');
    }
}

/// Writes an item.
fn write_item(body: &mut Vec<u8>, id: usize, features: impl Iterator<Item = f64>) -> Result<()> {
    write!(body, "{{\"id\":\"{id}\",\"features\":[")?;
    for feature in features {
        separate(body);
        serde_json::to_writer(&mut *body, &feature)?;
    }
    body.extend_from_slice(b"]}");
    Ok(())
}

/// Puts items into the catalogue, in batches. `write` writes the item of an index.
pub async fn put_items(
    connection: &mut Connection,
    items: usize,
    mut write: impl FnMut(&mut Vec<u8>, usize) -> Result<()>,
) -> Result<()> {
    let mut body = Vec::new();
    for first in (0..items).step_by(ITEMS_PER_REQUEST) {
        body.clear();
        for item in first..items.min(first + ITEMS_PER_REQUEST) {
            write(&mut body, item)?;
            body.push(b'\n');
        }
        call(connection, "PUT", "/v1/items", &body).await?;
    }
    Ok(())
}

/// Puts a set of items into the catalogue. Their ids are their indices.
pub async fn put_item_set(connection: &mut Connection, items: &ItemSet) -> Result<()> {
    let write = |body: &mut Vec<u8>, index| write_item(body, index, items.item(index));
    put_items(connection, items.len(), write).await
}

/// Writes the request of a user. The ids of the candidates are their indices. If all rounds have the same candidates,
/// these are the items of the server's catalogue. Items of equal score are ordered as in the lab.
pub fn write_request(body: &mut Vec<u8>, prefix: &str, block: &Block, at: usize) -> Result<()> {
    let user = format_args!("{prefix}{}", block.users[at]).to_string();
    body.extend_from_slice(b"{\"user\":");
    serde_json::to_writer(&mut *body, &user)?;
    body.extend_from_slice(b",\"ties\":\"order\"");
    if block.stock.is_some() {
        write!(body, ",\"k\":{}}}", block.slots)?;
        return Ok(());
    }
    body.extend_from_slice(b",\"items\":[");
    let items = block.items_of(at);
    for index in 0..items.len() {
        separate(body);
        write_item(body, index, items.item(index))?;
    }
    body.extend_from_slice(b"]}");
    Ok(())
}

/// Writes the feedback for a decision.
pub fn write_feedback(body: &mut Vec<u8>, decision: &str, reward: f64) -> Result<()> {
    body.extend_from_slice(b"{\"decision\":");
    serde_json::to_writer(&mut *body, decision)?;
    body.extend_from_slice(b",\"reward\":");
    serde_json::to_writer(&mut *body, &reward)?;
    body.push(b'}');
    Ok(())
}

/// Writes the feedback of a list, as entries of a batch: the items with rewards that are not 0, and with `others` 0 for
/// all others. Without `others` there may be no entry.
pub fn write_clicks(
    body: &mut Vec<u8>,
    decision: &str,
    items: &[usize],
    rewards: &[f64],
    mut others: bool,
) -> Result<()> {
    let clicked = items
        .iter()
        .zip(rewards)
        .filter(|(_, reward)| **reward != 0.0);
    for (item, reward) in clicked {
        separate(body);
        body.extend_from_slice(b"{\"decision\":");
        serde_json::to_writer(&mut *body, decision)?;
        write!(body, ",\"item\":\"{item}\",\"reward\":")?;
        serde_json::to_writer(&mut *body, reward)?;
        if std::mem::take(&mut others) {
            body.extend_from_slice(b",\"others\":0");
        }
        body.push(b'}');
    }
    if others {
        separate(body);
        body.extend_from_slice(b"{\"decision\":");
        serde_json::to_writer(&mut *body, decision)?;
        body.extend_from_slice(b",\"others\":0}");
    }
    Ok(())
}

/// Writes the feedback for the first items of a decision: a reward, or a list of them.
pub fn write_rewards(body: &mut Vec<u8>, decision: &str, rewards: &[f64]) -> Result<()> {
    if let [reward] = rewards {
        return write_feedback(body, decision, *reward);
    }
    body.extend_from_slice(b"{\"decision\":");
    serde_json::to_writer(&mut *body, decision)?;
    body.extend_from_slice(b",\"rewards\":");
    serde_json::to_writer(&mut *body, rewards)?;
    body.push(b'}');
    Ok(())
}
