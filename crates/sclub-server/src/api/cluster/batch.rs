//! Batches over several groups: each group gets its share, at the same time.

use std::sync::Arc;

use axum::body::Bytes;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Manner, ask, ask_as, group_of, whole};
use crate::api::calls::check_batch;
use crate::api::model::FeedbackBatchResponse;
use crate::api::{Answer, json, parse};
use crate::cluster::Node;
use crate::cluster::call::{HttpAnswer, Route};
use crate::cluster::node::Group;
use crate::edge::ApiError;
use crate::edge::error::{ERROR_CODES, ErrorBody};
use crate::meters::Call;

/// The entries of a batch that go to one group.
pub(super) struct Share<'a> {
    pub group: &'a Arc<Group>,
    /// The places of the entries in the batch.
    pub places: Vec<usize>,
    pub entries: Vec<&'a RawValue>,
}

/// Divides the entries of a batch by group.
fn shares<'a>(
    groups: impl Iterator<Item = Result<&'a Arc<Group>, ApiError>>,
    entries: &[&'a RawValue],
    list: &str,
) -> Result<Vec<Share<'a>>, ApiError> {
    let mut shares: Vec<Share<'a>> = Vec::new();
    for (place, (group, entry)) in groups.zip(entries).enumerate() {
        let group = group.map_err(|error| within(error, list, place))?;
        let share = shares.iter().position(|s| s.group.index == group.index);
        let share = share.unwrap_or_else(|| {
            shares.push(Share {
                group,
                places: Vec::new(),
                entries: Vec::new(),
            });
            shares.len() - 1
        });
        shares[share].places.push(place);
        shares[share].entries.push(entry);
    }
    Ok(shares)
}

fn within(error: ApiError, list: &str, place: usize) -> ApiError {
    let field = match &error.field {
        Some(field) => format!("{list}[{place}].{field}"),
        None => format!("{list}[{place}]"),
    };
    error.field(field)
}

#[derive(Deserialize)]
struct RawRequests<'a> {
    #[serde(borrow)]
    requests: Vec<&'a RawValue>,
}

#[derive(Serialize, Deserialize)]
struct RawDecisions {
    decisions: Vec<Box<RawValue>>,
}

pub(super) async fn recommend_batch(node: &Arc<Node>, bytes: Bytes) -> Result<Answer, ApiError> {
    let RawRequests { requests } = parse(&bytes)?;
    check_batch(&node.settings, "requests", requests.len())?;
    let groups = requests
        .iter()
        .map(|entry| group_of(node, Call::Recommend, entry.get().as_bytes()));
    let shares = shares(groups, &requests, "requests")?;
    if shares.len() <= 1 {
        let group = shares.first().map_or(&node.partitions()[0], |s| s.group);
        return ask(node, group, Route::RecommendBatch, bytes.clone()).await;
    }
    let answers = ask_shares(node, &shares, "requests", Route::RecommendBatch).await?;
    let mut all: Vec<Option<Box<RawValue>>> = requests.iter().map(|_| None).collect();
    for (share, answer) in shares.iter().zip(answers) {
        let RawDecisions { decisions } =
            serde_json::from_slice(&answer).map_err(|_| ApiError::internal())?;
        for (&place, decision) in share.places.iter().zip(decisions) {
            all[place] = Some(decision);
        }
    }
    let decisions: Option<Vec<Box<RawValue>>> = all.into_iter().collect();
    let decisions = decisions.ok_or_else(ApiError::internal)?;
    Ok(json(&RawDecisions { decisions }))
}

#[derive(Deserialize)]
struct RawFeedback<'a> {
    #[serde(borrow)]
    feedback: Vec<&'a RawValue>,
}

/// The number of rewards of an entry.
fn rewards_of(entry: &RawValue) -> usize {
    #[derive(Deserialize)]
    struct OfList {
        rewards: Vec<IgnoredAny>,
    }
    let list = serde_json::from_str(entry.get());
    list.map_or(1, |OfList { rewards }| rewards.len())
}

/// Returns true for a round without rewards.
pub(super) fn is_idle_round(route: &Route, body: &[u8]) -> bool {
    let is_empty = |RawFeedback { feedback }| feedback.is_empty();
    *route == Route::FeedbackBatch && parse(body).is_ok_and(is_empty)
}

/// A batch over several partitions is one round in each. If one of them refuses its part, the others may have
/// learned theirs; the batch can be repeated.
pub(super) async fn feedback_batch(node: &Arc<Node>, bytes: Bytes) -> Result<Answer, ApiError> {
    let RawFeedback { feedback } = parse(&bytes)?;
    if feedback.is_empty() {
        // A round without rewards. It has no decision by which a repetition could be known.
        let (group, route) = (&node.partitions()[0], Route::FeedbackBatch);
        return ask_as(node, group, route, bytes.clone(), Manner::Once).await;
    }
    let rewards = feedback.iter().map(|entry| rewards_of(entry)).sum();
    check_batch(&node.settings, "feedback", feedback.len().max(rewards))?;
    let groups = feedback
        .iter()
        .map(|entry| group_of(node, Call::Feedback, entry.get().as_bytes()));
    let shares = shares(groups, &feedback, "feedback")?;
    if shares.len() <= 1 {
        let group = shares.first().map_or(&node.partitions()[0], |s| s.group);
        return ask(node, group, Route::FeedbackBatch, bytes.clone()).await;
    }
    let answers = ask_shares(node, &shares, "feedback", Route::FeedbackBatch).await?;
    let mut applied = vec![false; feedback.len()];
    for (share, answer) in shares.iter().zip(answers) {
        #[derive(Deserialize)]
        struct Applied {
            applied: Vec<bool>,
        }
        let part: Applied = serde_json::from_slice(&answer).map_err(|_| ApiError::internal())?;
        for (&place, is_new) in share.places.iter().zip(part.applied) {
            applied[place] = is_new;
        }
    }
    Ok(json(&FeedbackBatchResponse { applied }))
}

/// Asks the groups of a batch at the same time. Returns the bodies of their answers, or the first error.
async fn ask_shares(
    node: &Arc<Node>,
    shares: &[Share<'_>],
    list: &str,
    route: Route,
) -> Result<Vec<Bytes>, ApiError> {
    let asked = shares.iter().map(|share| {
        let entries: Vec<&str> = share.entries.iter().map(|entry| entry.get()).collect();
        let part = format!("{{\"{list}\":[{}]}}", entries.join(","));
        ask(node, share.group, route.clone(), part.into())
    });
    let answers = futures_util::future::join_all(asked).await;
    let mut bodies = Vec::with_capacity(answers.len());
    for (share, answer) in shares.iter().zip(answers) {
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => error.into_response(),
        };
        let answer = whole(answer).await;
        if answer.status >= 400 {
            return Err(of_whole_batch(&answer, share, list));
        }
        bodies.push(answer.body.into());
    }
    Ok(bodies)
}

/// The error of a share, with the places that its entries have in the batch.
pub(super) fn of_whole_batch(answer: &HttpAnswer, share: &Share<'_>, list: &str) -> ApiError {
    let Some(mut own) = error_of(answer) else {
        return ApiError::internal();
    };
    let field = own.field.take();
    own.field = field.map(|field| moved_field(&field, share, list).into());
    own
}

/// The error in an answer; `None` if there is none.
pub(super) fn error_of(answer: &HttpAnswer) -> Option<ApiError> {
    if answer.status < 400 {
        return None;
    }
    let status = StatusCode::from_u16(answer.status).ok()?;
    let ErrorBody { error } = serde_json::from_slice(&answer.body).ok()?;
    // The other node may have another version, and codes that this one does not know.
    let known = ERROR_CODES.iter().find(|(_, code)| *code == error.code);
    Some(ApiError {
        status,
        code: known.map_or("internal", |(_, code)| code),
        message: error.message,
        field: error.field,
        retry_after: answer.retry_after,
    })
}

/// `feedback[1].reward` of a share is, say, `feedback[7].reward` of the batch.
fn moved_field(field: &str, share: &Share<'_>, list: &str) -> String {
    let rest = field
        .strip_prefix(list)
        .and_then(|rest| rest.strip_prefix('['));
    let parsed = rest.and_then(|rest| {
        let (place, rest) = rest.split_once(']')?;
        Some((place.parse::<usize>().ok()?, rest))
    });
    match parsed {
        Some((place, rest)) => {
            let place = share.places.get(place).copied().unwrap_or(place);
            format!("{list}[{place}]{rest}")
        }
        None => field.to_owned(),
    }
}
