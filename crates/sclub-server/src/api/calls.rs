//! The two calls of an application, recommend and feedback, and their batches.

use std::cell::RefCell;
use std::collections::HashSet;
use std::time::Instant;

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue};
use sclub::{ItemId, ItemSet};

use super::model::{
    FeedbackBatchRequest, FeedbackBatchResponse, FeedbackRequest, FeedbackResponse, InlineItem,
    RecommendBatchRequest, RecommendBatchResponse, RecommendRequest, RecommendResponse, ScoredItem,
};
use super::scalars::GivenId;
use super::{Answer, App, Shared, Work, body, json, parse, run_blocking};
use crate::edge::ApiError;
use crate::edge::error::{ErrorBody, ErrorDetail};
use crate::engine::{
    CandidateSet, Engine, Feedback, RecommendQuery, Recommended, Refusal, Rewards, Rules,
};
use crate::filter::Filter;
use crate::meters::{Call, Meters};
use crate::settings::Settings;
use crate::state::{Scratch, item_id};

/// The header of an answer to feedback with a warning about the rewards.
pub(super) const WARNING: HeaderName = HeaderName::from_static("x-sclub-warning");

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Recommends items to a user.
#[utoipa::path(post, path = "/v1/recommend", tag = "recommend", request_body(content = RecommendRequest<'static>, example = json!({"user": "u1", "k": 2})), responses(
    (status = 200, body = RecommendResponse, description = "The items to show"),
    (status = 404, body = ErrorBody, description = "`no_candidates`: the request leaves no item to choose from; the message says why. `unknown_item`: a candidate is not in the catalogue, and `strict` is set")))]
pub(super) async fn recommend(
    State(app): State<Shared>,
    request: Request,
) -> Result<Answer, ApiError> {
    answer(&app, Call::Recommend, request).await
}

/// Answers a call of an application.
async fn answer(app: &Shared, call: Call, request: Request) -> Result<Answer, ApiError> {
    let begun = Instant::now();
    let Some(meters) = app.meters() else {
        return app.ready().and(Err(ApiError::internal()));
    };
    let outcome = async {
        let bytes = body(app, request).await?;
        match app.node() {
            Some(node) => super::cluster::call(node, call, bytes).await,
            None => answer_bytes(app, call, bytes).await,
        }
    };
    timed(meters, call, begun, outcome.await)
}

/// Answers a call of an application whose body is known.
pub(super) async fn answer_bytes(
    app: &Shared,
    call: Call,
    bytes: Bytes,
) -> Result<Answer, ApiError> {
    let engine = app.ready()?;
    match call {
        Call::Recommend => {
            if let Some(answer) = recommend_one(app, engine, &bytes, true)? {
                return Ok(answer);
            }
            let answer = run_blocking(app, Work::Recommend, move |app, engine| {
                recommend_one(app, engine, &bytes, false)
            });
            answer.await??.ok_or_else(ApiError::internal)
        }
        Call::RecommendBatch => {
            let answer = run_blocking(app, Work::Recommend, move |app, engine| {
                recommend_many(app, engine, &bytes)
            });
            answer.await?
        }
        Call::Feedback => {
            let request: FeedbackRequest<'_> = parse(&bytes)?;
            let applied = engine.feedback(&given(&request)?).await?;
            Ok(with_warning(json(&FeedbackResponse { applied }), engine))
        }
        Call::FeedbackBatch => learn_batch(app, engine, &bytes).await,
        Call::Other => Err(ApiError::internal()),
    }
}

/// Answers a request; `None` if `quick` is set and the answer would take long.
fn recommend_one(
    app: &App,
    engine: &Engine,
    bytes: &[u8],
    quick: bool,
) -> Result<Option<Answer>, ApiError> {
    let request: RecommendRequest<'_> = parse(bytes)?;
    let inline = inline(&app.settings, &request, engine.has_item_ids())?;
    let filter = filter(&request)?;
    let asked = asked(&app.settings, &request, inline.as_ref(), filter.as_ref())?;
    if quick && engine.is_slow(&asked) {
        return Ok(None);
    }
    let recommended = SCRATCH.with_borrow_mut(|scratch| engine.recommend(&asked, scratch))?;
    let is_complete = recommended.missing.is_empty();
    Ok(Some(marked(json(&response(recommended)), is_complete)))
}

/// The mark of an answer that names missing candidates: a node of a cluster may not have read the end of the catalogue.
#[derive(Debug, Clone, Copy)]
pub(super) struct NamesMissing;

fn marked(mut answer: Answer, is_complete: bool) -> Answer {
    if !is_complete {
        answer.extensions_mut().insert(NamesMissing);
    }
    answer
}

/// Recommends items to several users on the same history.
#[utoipa::path(post, path = "/v1/recommend/batch", tag = "recommend", request_body(content = RecommendBatchRequest<'static>, example = json!({"requests": [{"user": "u1"}, {"user": "u2", "k": 2}]})), responses(
    (status = 200, body = RecommendBatchResponse, description = "The items to show, in the order of the requests. A request that leaves no item to choose from has an empty `decision`, no `items`, and an `error` with the code `no_candidates`"),
    (status = 404, body = ErrorBody, description = "`unknown_item`: a candidate is not in the catalogue, and `strict` is set; no request was answered")))]
pub(super) async fn recommend_batch(
    State(app): State<Shared>,
    request: Request,
) -> Result<Answer, ApiError> {
    answer(&app, Call::RecommendBatch, request).await
}

fn recommend_many(app: &App, engine: &Engine, bytes: &[u8]) -> Result<Answer, ApiError> {
    let request: RecommendBatchRequest<'_> = parse(bytes)?;
    check_batch(&app.settings, "requests", request.requests.len())?;
    let within = |index: usize| move |refusal: Refusal| refusal.within("requests", index);
    let requests = &request.requests;
    let inline = requests
        .iter()
        .enumerate()
        .map(|(index, request)| {
            inline(&app.settings, request, engine.has_item_ids()).map_err(within(index))
        })
        .collect::<Result<Vec<_>, _>>()?;
    let filters = requests
        .iter()
        .enumerate()
        .map(|(index, request)| filter(request).map_err(within(index)))
        .collect::<Result<Vec<_>, _>>()?;
    let all = requests
        .iter()
        .zip(inline.iter().zip(&filters))
        .enumerate()
        .map(|(index, (request, (inline, filter)))| {
            asked(&app.settings, request, inline.as_ref(), filter.as_ref()).map_err(within(index))
        })
        .collect::<Result<Vec<_>, _>>()?;
    let recommended = engine.recommend_all(&all)?;
    let decided = recommended.iter().filter(|one| one.refused.is_none());
    engine.meters().decided(decided.count() as u64);
    let is_complete = |one: &Recommended| one.missing.is_empty() && one.refused.is_none();
    let is_complete = recommended.iter().all(is_complete);
    let answer = json(&RecommendBatchResponse {
        decisions: recommended.into_iter().map(response).collect(),
    });
    Ok(marked(answer, is_complete))
}

/// Learns the reward for an item that was shown. `decision` is that of an answer of `POST /v1/recommend`: put one in the place
/// of the text of the example, or the answer is 404. The reward is durable when the call returns.
#[utoipa::path(post, path = "/v1/feedback", tag = "recommend", request_body(content = FeedbackRequest<'static>, example = json!({"decision": "paste the decision of a recommendation", "reward": 1.0, "others": 0.0})), responses(
    (status = 200, body = FeedbackResponse, headers(("x-sclub-warning" = String, description = "A warning about the rewards. Absent if there is none")), description = "`applied` is true if the reward was new, or replaced an assumed one. If all rewards are equal, the header `x-sclub-warning` says so"),
    (status = 404, body = ErrorBody, description = "`unknown_decision`: the decision was not made by this server. `unknown_item`: it did not show the item"),
    (status = 409, body = ErrorBody, description = "`other_copy`: the decision was made by another copy of the data folder. `answered`: the item got its reward at the same moment; usually `applied` is false then"),
    (status = 410, body = ErrorBody, description = "`expired` or `forgotten`: the decision has expired, or its user was forgotten")))]
pub(super) async fn feedback(
    State(app): State<Shared>,
    request: Request,
) -> Result<Answer, ApiError> {
    answer(&app, Call::Feedback, request).await
}

/// Learns the rewards of several users in one time slot. They are durable when the call returns.
#[utoipa::path(post, path = "/v1/feedback/batch", tag = "recommend", request_body(content = FeedbackBatchRequest<'static>, example = json!({"feedback": [{"decision": "the decision of a recommendation", "reward": 1.0}]})), responses(
    (status = 200, body = FeedbackBatchResponse, headers(("x-sclub-warning" = String, description = "A warning about the rewards. Absent if there is none")), description = "`applied` is true for each reward that was new, or replaced an assumed one. On a node of a cluster, the rewards of each partition are a batch of their own"),
    (status = 404, body = ErrorBody, description = "As for a single reward; nothing was learned, except by other partitions of a cluster"),
    (status = 409, body = ErrorBody, description = "As for a single reward; nothing was learned, except by other partitions of a cluster"),
    (status = 410, body = ErrorBody, description = "As for a single reward; nothing was learned, except by other partitions of a cluster")))]
pub(super) async fn feedback_batch(
    State(app): State<Shared>,
    request: Request,
) -> Result<Answer, ApiError> {
    answer(&app, Call::FeedbackBatch, request).await
}

async fn learn_batch(app: &App, engine: &Engine, bytes: &[u8]) -> Result<Answer, ApiError> {
    let request: FeedbackBatchRequest<'_> = parse(bytes)?;
    // A time slot without rewards is a round as well.
    if !request.feedback.is_empty() {
        check_batch(&app.settings, "feedback", request.feedback.len())?;
    }
    let entries = request.feedback.iter().enumerate();
    let round = entries
        .map(|(index, entry)| given(entry).map_err(|refusal| refusal.within("feedback", index)))
        .collect::<Result<Vec<_>, _>>()?;
    let rewards = round.iter().map(|given| given.rewards.len()).sum();
    if rewards > round.len() {
        check_batch(&app.settings, "feedback", rewards)?;
    }
    let applied = engine.feedback_batch(&round).await?;
    engine.meters().fed_back(round.len() as u64);
    Ok(with_warning(
        json(&FeedbackBatchResponse { applied }),
        engine,
    ))
}

/// Adds the header for a warning, if all rewards are equal.
fn with_warning(mut answer: Answer, engine: &Engine) -> Answer {
    let warning = engine.reward_warning();
    if let Some(value) = warning.and_then(|text| HeaderValue::try_from(text).ok()) {
        answer.headers_mut().insert(WARNING, value);
    }
    answer
}

/// Parses bytes as each kind of request, and answers those that need no write. For fuzzing.
pub(super) fn probe(app: &App, engine: &Engine, bytes: &[u8]) {
    let _ = recommend_one(app, engine, bytes, false);
    let _ = recommend_many(app, engine, bytes);
    if let Ok(request) = parse::<FeedbackRequest<'_>>(bytes) {
        let _ = given(&request).and_then(|given| engine.check(&given));
    }
    if let Ok(request) = parse::<FeedbackBatchRequest<'_>>(bytes) {
        for one in &request.feedback {
            let _ = given(one).and_then(|given| engine.check(&given));
        }
    }
}

/// Records the count and the time of an answer in the metrics.
pub(super) fn timed(
    meters: &Meters,
    call: Call,
    begun: Instant,
    outcome: Result<Answer, ApiError>,
) -> Result<Answer, ApiError> {
    let status = match &outcome {
        Ok(answer) => answer.status(),
        Err(error) => error.status,
    };
    let took = begun.elapsed();
    meters.answered(call, took, status.as_u16());
    tracing::debug!(?call, status = status.as_u16(), ?took, "answered");
    outcome
}

fn given<'a>(request: &'a FeedbackRequest<'_>) -> Result<Feedback<'a>, Refusal> {
    let item = request.item.as_deref();
    let rewards = match (request.reward, request.rewards.as_deref()) {
        (Some(reward), None) => Rewards::Item { item, reward },
        (None, Some(rewards)) if item.is_none() => Rewards::List(rewards),
        (None, Some(_)) => {
            let message =
                "item cannot be given with rewards, which begin with the first item shown";
            return Err(Refusal::invalid("item", message));
        }
        (Some(_), Some(_)) => {
            let message = "reward and rewards cannot both be given";
            return Err(Refusal::invalid("rewards", message));
        }
        (None, None) if request.others.is_some() && item.is_none() => Rewards::List(&[]),
        (None, None) => {
            let message = "missing; give reward for one item, rewards for a list, or others for a list of which \
                           nothing was taken";
            return Err(Refusal::invalid("reward", message));
        }
    };
    Ok(Feedback {
        decision: &request.decision,
        rewards,
        others: request.others,
    })
}

fn response(recommended: Recommended) -> RecommendResponse {
    let propensities = recommended.propensities.into_iter().map(Some);
    let propensities = propensities.chain(std::iter::repeat(None));
    let slots = recommended.slot_propensities.into_iter().map(Some);
    let slots = slots.chain(std::iter::repeat(None));
    let items = recommended.items.into_iter().zip(propensities).zip(slots);
    let items = items.map(|(((id, score), propensity), slot_propensity)| ScoredItem {
        id,
        score: score.score,
        mean: score.mean,
        width: score.width,
        propensity,
        slot_propensity,
    });
    RecommendResponse {
        decision: recommended.decision,
        items: items.collect(),
        cluster: recommended.cluster,
        cluster_users: recommended.cluster_users,
        missing: recommended.missing,
        error: recommended
            .refused
            .map(|refusal| ErrorDetail::from(ApiError::from(refusal))),
    }
}

/// The item set of the items that came with the request, validated.
fn inline(
    settings: &Settings,
    request: &RecommendRequest<'_>,
    has_ids: bool,
) -> Result<Option<ItemSet>, Refusal> {
    let Some(items) = &request.items else {
        return Ok(None);
    };
    check_count("items", items.len(), settings.max_candidates)?;
    let dim = items.first().map_or(0, |item| item.features.len());
    check_dim(settings, "items[0].features", dim)?;
    let mut rows = Vec::with_capacity(dim * items.len());
    for (index, item) in items.iter().enumerate() {
        check_id(settings, &item.id, || format!("items[{index}].id"))?;
        if item.features.len() != dim {
            let message = format!(
                "the item has {} features, and the first has {dim}; all must have as many",
                item.features.len()
            );
            return Err(Refusal::invalid(
                format!("items[{index}].features"),
                message,
            ));
        }
        rows.extend_from_slice(&item.features);
    }
    check_unique(items)?;
    let refuse = |error: sclub::Error| Refusal::invalid("items", error.to_string());
    let mut set = ItemSet::from_rows(dim, &rows).map_err(refuse)?;
    if has_ids {
        let ids: Vec<ItemId> = items.iter().map(|item| item_id(&item.id)).collect();
        set.set_ids(&ids).map_err(refuse)?;
    }
    Ok(Some(set))
}

/// The filter of a request.
fn filter(request: &RecommendRequest<'_>) -> Result<Option<Filter>, Refusal> {
    let parsed = request.filter.as_ref().map(Filter::parse).transpose();
    parsed.map_err(|error| Refusal::invalid(error.field, error.message))
}

fn check_unique(items: &[InlineItem<'_>]) -> Result<(), Refusal> {
    let mut seen = HashSet::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        if !seen.insert(&*item.id) {
            let message = format!("item '{}' is given twice", &*item.id);
            return Err(Refusal::invalid(format!("items[{index}].id"), message));
        }
    }
    Ok(())
}

fn asked<'a>(
    settings: &Settings,
    request: &'a RecommendRequest<'_>,
    inline: Option<&'a ItemSet>,
    filter: Option<&'a Filter>,
) -> Result<RecommendQuery<'a>, Refusal> {
    check_id(settings, &request.user, || "user".to_owned())?;
    let k = match request.k {
        Some(k) => k.within("k", 1, settings.max_k as u64)? as usize,
        None => 1,
    };
    let among = match (&request.candidates, &request.items, inline) {
        (Some(_), Some(_), _) => {
            let message = "candidates and items are both given; omit one of them";
            return Err(Refusal::invalid("candidates", message));
        }
        (Some(candidates), ..) => {
            check_count("candidates", candidates.len(), settings.max_candidates)?;
            check_ids(settings, "candidates", candidates)?;
            CandidateSet::Candidates(candidates.iter().map(|id| &**id).collect())
        }
        (None, Some(items), Some(inline)) => {
            CandidateSet::Inline(items.iter().map(|item| &*item.id).collect(), inline)
        }
        _ => CandidateSet::All,
    };
    let exclude = request.exclude.as_deref().unwrap_or_default();
    if exclude.len() > settings.max_candidates {
        let max = settings.max_candidates;
        let message = format!(
            "exclude has {} ids; at most {max} are allowed",
            exclude.len()
        );
        return Err(Refusal::invalid("exclude", message));
    }
    check_ids(settings, "exclude", exclude)?;
    Ok(RecommendQuery {
        user: &request.user,
        among,
        rules: Rules {
            exclude: exclude.iter().map(|id| &**id).collect(),
            filter,
            strict: request.strict,
            seen: request.seen.within("seen", 0, settings.max_seen as u64)? as usize,
            ties: request.ties,
        },
        k,
        context: match &request.context {
            Some(given) => Some(given.values()?),
            None => None,
        },
    })
}

fn check_count(field: &str, count: usize, max: usize) -> Result<(), Refusal> {
    if (1..=max).contains(&count) {
        return Ok(());
    }
    let message = format!("{field} has {count} entries; it must have from 1 to {max}");
    Err(Refusal::invalid(field, message))
}

pub(super) fn check_batch(settings: &Settings, field: &str, count: usize) -> Result<(), Refusal> {
    check_count(field, count, settings.max_batch)
}

/// Checks the number of features of an item.
pub(super) fn check_dim(settings: &Settings, field: &str, dim: usize) -> Result<(), Refusal> {
    if (1..=settings.max_dim).contains(&dim) {
        return Ok(());
    }
    let max = settings.max_dim;
    let message = format!("the item has {dim} features; it must have from 1 to {max}");
    Err(Refusal::invalid(field, message))
}

/// Checks the id of a user or an item.
pub(super) fn check_id(
    settings: &Settings,
    id: &str,
    field: impl FnOnce() -> String,
) -> Result<(), Refusal> {
    let Err(length) = settings.check_id_length(id) else {
        return Ok(());
    };
    let max = settings.max_id;
    let message = format!("the id has {length} characters; it must have from 1 to {max}");
    Err(Refusal::invalid(field(), message))
}

fn check_ids(settings: &Settings, field: &str, ids: &[GivenId<'_>]) -> Result<(), Refusal> {
    let mut ids = ids.iter().enumerate();
    ids.try_for_each(|(index, id)| check_id(settings, id, || format!("{field}[{index}]")))
}
