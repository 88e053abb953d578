//! Figures of the page that are spread over the nodes: each node has its part of them.

use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::{ATTEMPT_MS, starting};
use crate::api::calls::check_id;
use crate::api::figures::recent_card;
use crate::api::items;
use crate::api::query::ItemsQuery;
use crate::api::{Answer, json};
use crate::cluster::call::NodeCall;
use crate::cluster::members::Members;
use crate::cluster::{Node, ask_node_within, counts, recent};
use crate::edge::ApiError;
use crate::engine::SeenDecision;

/// Asks all other nodes. Returns their answers, and the names of the nodes that did not answer or do not run.
async fn ask_others<T: DeserializeOwned>(
    node: &Arc<Node>,
    call: &NodeCall,
) -> (Vec<T>, Vec<String>) {
    let members = Members::read(&*node.bus);
    let others = members.members.iter().map(|member| &member.name);
    let others = others.filter(|name| **name != node.name);
    let asked = others.map(|name| async move {
        let answer = ask_node_within(node, name, call, ATTEMPT_MS).await;
        answer.map_err(|reason| {
            tracing::debug!(node = name, reason, "no figures");
            name.clone()
        })
    });
    let mut missing = node.missing();
    let mut answers = Vec::new();
    for answer in futures_util::future::join_all(asked).await {
        match answer {
            Ok(answer) => answers.push(answer),
            Err(name) => missing.push(name),
        }
    }
    missing.sort_unstable();
    missing.dedup();
    (answers, missing)
}

/// The last decisions of a user, from all nodes that made some.
pub(super) async fn recent_of_all(node: &Arc<Node>, user: String) -> Result<Answer, ApiError> {
    check_id(&node.settings, &user, || "id".to_owned())?;
    let call = NodeCall::Recent { user: user.clone() };
    let (others, missing) = ask_others::<Vec<SeenDecision>>(node, &call).await;
    let mut decisions = recent(node, &user);
    decisions.extend(others.into_iter().flatten());
    decisions.sort_by_key(|decision| std::cmp::Reverse(decision.at));
    decisions.truncate(node.settings.max_seen);
    let app = node.catalogue().app().ok_or_else(starting)?;
    let engine = app.engine().ok_or_else(starting)?;
    let state = engine.state();
    Ok(json(&recent_card(decisions, state.catalogue(), missing)))
}

/// A page of the catalogue, with counts that are sums over all nodes.
pub(super) async fn items_page(node: &Arc<Node>, query: ItemsQuery) -> Result<Answer, ApiError> {
    if query.sort.is_some() {
        let message = "items cannot be sorted in a cluster: each node has its part of the counts";
        return Err(ApiError::invalid("sort", message));
    }
    let app = node.catalogue().app().ok_or_else(starting)?;
    let has_counts = query.counts == Some(true) && node.settings.journal_days > 0;
    let mut page = items::page(&app, query).await?;
    page.set_counts(None);
    if has_counts {
        let items: Vec<String> = page.items.iter().map(|item| item.id.clone()).collect();
        let mut sums = counts(node, &items);
        let (others, missing) = ask_others(node, &NodeCall::Counts { items }).await;
        for other in &others {
            sums.join(other);
        }
        page.set_counts(Some(sums));
        page.missing_nodes = missing;
    }
    Ok(json(&page))
}
