//! The requests and answers of the service, as far as they matter to a simulation.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Write;

use anyhow::{Context, Result, anyhow};
use sclub_lab::world::Block;
use sclub_server::client::Connection;
use sclub_server::settings::Literal;
use serde::Deserialize;

use crate::remote::call;

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
    /// The candidate to be shown.
    pub fn choice(&self, candidates: usize) -> Result<usize> {
        let id = self.items.first().map(|item| &*item.id).unwrap_or_default();
        id.parse()
            .ok()
            .filter(|&choice| choice < candidates)
            .ok_or_else(|| {
                anyhow!("the server shows item '{id}', which is not among the candidates")
            })
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

/// Writes the request of a user. The ids of the candidates are their indices.
pub fn write_request(body: &mut Vec<u8>, prefix: &str, block: &Block, at: usize) -> Result<()> {
    let user = format_args!("{prefix}{}", block.users[at]).to_string();
    body.extend_from_slice(b"{\"user\":");
    serde_json::to_writer(&mut *body, &user)?;
    body.extend_from_slice(b",\"items\":[");
    let items = block.items_of(at);
    for index in 0..items.len() {
        separate(body);
        write!(body, "{{\"id\":\"{index}\",\"features\":[")?;
        for feature in items.item(index) {
            separate(body);
            serde_json::to_writer(&mut *body, &feature)?;
        }
        body.extend_from_slice(b"]}");
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
