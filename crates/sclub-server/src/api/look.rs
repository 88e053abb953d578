//! The calls that read users, clusters, history and the state of the server.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Weak};

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::http::{Response, StatusCode};
use sclub::{ClusterId, UserId};

use super::explain::{ClusteringCard, PlacementCard};
use super::items::{limit, parsed_query};
use super::model::{
    ClusterCard, ClusterLine, ClustersPage, Favourite, HistoryEntry, HistoryPage, NotReady, Ready,
    SidesEntry, StateCard, UserCard, WhyEntry,
};
use super::query::{ClusterQuery, ClustersQuery, HistoryQuery, StateQuery};
use super::{Answer, App, Id, Shared, Work, json, run_blocking};
use crate::edge::error::ErrorBody;
use crate::edge::keys::DEFAULT_SPACE;
use crate::edge::{ApiError, Caller, Scope};
use crate::engine::{Engine, Refusal};
use crate::identity::Identity;
use crate::meters::{joined, labelled, ready_metric};
use crate::state::{Catalogue, NO_USER, Record, Served, Sides, State as Known, What};

/// Returns a user's statistics.
#[utoipa::path(get, path = "/v1/users/{id}", tag = "look", params(("id" = String, Path, description = "The user's id")), responses(
    (status = 200, body = UserCard, description = "The user's statistics"),
    (status = 404, body = ErrorBody, description = "`unknown_user`: no reward of this user has been learned")))]
pub(super) async fn user(State(app): State<Shared>, Id(id): Id) -> Result<Answer, ApiError> {
    run_blocking(&app, Work::Look, |_, engine| {
        let card = user_card(&engine.state(), &id).ok_or(Refusal::UnknownUser(id))?;
        Ok(json(&card))
    })
    .await?
}

fn user_card(state: &Known, id: &str) -> Option<UserCard> {
    let number = state.users().number(id)?;
    let user = state.users().get(number)?;
    let serving = state.serving(id);
    let policy = serving.policy?.inspect();
    let spec = serving.identity.policy;
    let whom = UserId::from(number);
    // The winner of an experiment may not know a user from before.
    let count = policy.count(whom).unwrap_or(0);
    Some(UserCard {
        user: id.to_owned(),
        count,
        frequency: count as f64 / policy.rounds().max(1) as f64,
        first_seen: user.first,
        last_seen: user.last,
        cluster: policy.cluster_of(whom).unwrap_or(0),
        cluster_users: policy.cluster_users(whom),
        estimate: policy.own_estimate(whom).unwrap_or_default(),
        cluster_estimate: policy.estimate(whom).unwrap_or_default(),
        last_change: state
            .last_change(number)
            .map(|record| entry(state, &record)),
        placement: policy.placement(whom).map(PlacementCard::from),
        policy: spec.name,
        in_force: std::ptr::eq(serving.identity, state.identity()),
        fits: spec.can.fit,
        regroups: spec.can.regroups,
        has_clusters: has_clusters(serving.identity),
    })
}

/// Returns false if a policy never looks for clusters. One with fits does so if its constant `clusters` is set.
fn has_clusters(identity: &Identity) -> bool {
    !identity.policy.can.fit || identity.constants.flag("clusters")
}

/// Returns a page of the clusters, largest first.
#[utoipa::path(get, path = "/v1/clusters", tag = "look", params(ClustersQuery), responses(
    (status = 200, body = ClustersPage, description = "Some clusters"),
    (status = 404, body = ErrorBody, description = "`unknown_cluster`: the cluster given as `after` does not exist")))]
pub(super) async fn clusters(
    State(app): State<Shared>,
    query: Result<Query<ClustersQuery>, QueryRejection>,
) -> Result<Answer, ApiError> {
    let query = parsed_query(query)?;
    let limit = limit(query.limit, 100)?;
    run_blocking(&app, Work::Look, move |_, engine| {
        let page = engine.read_long(|state| clusters_page(state, query.after, limit))?;
        Ok(json(&page))
    })
    .await?
}

/// The sort key of a cluster: larger ones first, then by label.
fn rank(users: u64, cluster: ClusterId) -> (Reverse<u64>, ClusterId) {
    (Reverse(users), cluster)
}

fn clusters_page(
    state: &Known,
    after: Option<ClusterId>,
    limit: usize,
) -> Result<ClustersPage, Refusal> {
    let Some(policy) = state.policy().map(Served::inspect) else {
        return Ok(ClustersPage {
            clusters: Vec::new(),
            next: None,
            total: 0,
        });
    };
    let after = match after {
        None => None,
        Some(label) => {
            let found = policy.cluster(label);
            let found = found.ok_or(Refusal::UnknownCluster(label))?;
            Some(rank(found.users, found.label))
        }
    };
    // The first `limit` + 1 in rank, by a heap whose top is the last of them.
    let mut first = BinaryHeap::new();
    policy.each_cluster(&mut |cluster| {
        let rank = rank(cluster.users, cluster.label);
        if after.is_none_or(|after| rank > after) {
            first.push(rank);
            if first.len() > limit + 1 {
                first.pop();
            }
        }
    });
    let labels: Vec<ClusterId> = first
        .into_sorted_vec()
        .into_iter()
        .map(|(_, label)| label)
        .collect();
    let shown = &labels[..labels.len().min(limit)];
    let wanted: std::collections::HashSet<ClusterId> = shown.iter().copied().collect();
    let mut clusters = Vec::with_capacity(shown.len());
    policy.each_cluster(&mut |cluster| {
        if wanted.contains(&cluster.label) {
            clusters.push(ClusterLine {
                cluster: cluster.label,
                users: cluster.users,
                count: cluster.count,
                estimate: cluster.estimate.to_vec(),
            });
        }
    });
    clusters.sort_unstable_by_key(|line| rank(line.users, line.cluster));
    let has_more = labels.len() > limit;
    Ok(ClustersPage {
        next: has_more.then(|| shown.last().copied()).flatten(),
        clusters,
        total: state.clusters(),
    })
}

/// Returns a cluster's statistics.
#[utoipa::path(get, path = "/v1/clusters/{id}", tag = "look", params(("id" = u64, Path, description = "Its label"), ClusterQuery), responses(
    (status = 200, body = ClusterCard, description = "The cluster's statistics"),
    (status = 404, body = ErrorBody, description = "`unknown_cluster`: there is no cluster of that label, or no longer")))]
pub(super) async fn cluster(
    State(app): State<Shared>,
    Id(id): Id,
    query: Result<Query<ClusterQuery>, QueryRejection>,
) -> Result<Answer, ApiError> {
    let query = parsed_query(query)?;
    let items = limit(query.items, 10)?;
    let members = limit(query.members, 20)?;
    let label: ClusterId = id
        .parse()
        .map_err(|_| Refusal::invalid("id", "the id of a cluster must be a number"))?;
    run_blocking(&app, Work::Look, move |_, engine| {
        let card = engine.read_long(|state| {
            engine.with_catalogue(state, |catalogue| {
                cluster_card(state, catalogue, label, items, members)
            })
        });
        Ok(json(&card.ok_or(Refusal::UnknownCluster(label))?))
    })
    .await?
}

fn cluster_card(
    state: &Known,
    catalogue: Option<&Catalogue>,
    label: ClusterId,
    items: usize,
    members: usize,
) -> Option<ClusterCard> {
    let policy = state.policy()?.inspect();
    let cluster = policy.cluster(label)?;
    let names = policy.members(label, members)?;
    Some(ClusterCard {
        cluster: label,
        users: cluster.users,
        count: cluster.count,
        frequency: cluster.count as f64 / policy.rounds().max(1) as f64,
        favourites: catalogue.map_or_else(Vec::new, |catalogue| {
            favourites(catalogue, cluster.estimate, items)
        }),
        estimate: cluster.estimate.to_vec(),
        members: names
            .into_iter()
            .filter_map(|user| state.users().id(user).map(str::to_owned))
            .collect(),
        last_change: state
            .history()
            .merged(label)
            .map(|record| entry(state, record)),
    })
}

/// The items with the highest expected reward for an estimate.
fn favourites(catalogue: &Catalogue, estimate: &[f64], max: usize) -> Vec<Favourite> {
    let mut means: Vec<(f64, usize)> = (0..catalogue.len())
        .map(|slot| {
            let features = catalogue.items().item(slot);
            let mean: f64 = features.zip(estimate).map(|(x, w)| x * w).sum();
            (mean, slot)
        })
        .collect();
    let better = |a: &(f64, usize), b: &(f64, usize)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
    if max < means.len() {
        means.select_nth_unstable_by(max, better);
        means.truncate(max);
    }
    means.sort_unstable_by(better);
    means
        .into_iter()
        .map(|(mean, slot)| Favourite {
            id: catalogue.entry(slot).id.to_string(),
            title: catalogue.description(slot).title.clone(),
            mean,
        })
        .collect()
}

/// Returns a page of the splits and merges, newest first, with the two sides of the inequality that caused
/// each. The latest 524,288 are kept.
#[utoipa::path(get, path = "/v1/history", tag = "look", params(HistoryQuery), responses(
    (status = 200, body = HistoryPage, description = "Some changes")))]
pub(super) async fn history(
    State(app): State<Shared>,
    query: Result<Query<HistoryQuery>, QueryRejection>,
) -> Result<Answer, ApiError> {
    let query = parsed_query(query)?;
    let limit = limit(query.limit, 100)?;
    let state = app.ready()?.state();
    let history = state.history();
    let before = query.before.unwrap_or(u64::MAX);
    let mut records = history.before(before, limit + 1);
    let changes: Vec<HistoryEntry> = records
        .by_ref()
        .take(limit)
        .map(|record| entry(&state, record))
        .collect();
    let next = records
        .next()
        .and_then(|_| changes.last())
        .map(|last| last.change);
    Ok(json(&HistoryPage {
        changes,
        next,
        total: history.total(),
    }))
}

/// The JSON form of a change.
pub(super) fn entry(state: &Known, record: &Record) -> HistoryEntry {
    let sides = |sides: Sides| SidesEntry {
        distance: sides.distance,
        threshold: sides.threshold,
    };
    let (estimates, frequencies) = (record.estimates.map(sides), record.frequencies.map(sides));
    let reason = match (&estimates, &frequencies) {
        (Some(_), Some(_)) => "both",
        (Some(_), None) => "estimates",
        (None, Some(_)) => "frequencies",
        (None, None) if record.user == NO_USER => "forgotten",
        (None, None) => "connected",
    };
    let mut told = HistoryEntry {
        change: record.change,
        at: record.at,
        round: record.round,
        kind: "split",
        from: None,
        into: None,
        users: None,
        kept: None,
        gone: None,
        user: state
            .users()
            .id(UserId::from(record.user))
            .map(str::to_owned),
        why: WhyEntry {
            reason,
            estimates,
            frequencies,
        },
    };
    match record.what {
        What::Split { from, into, users } => {
            told.from = Some(from);
            told.into = Some(into);
            told.users = Some(users);
        }
        What::Merge { kept, gone } => {
            told.kind = "merge";
            told.kept = Some(kept);
            told.gone = Some(gone);
        }
    }
    told
}

/// Returns the state of the server; with `hash=true` also a hash of everything learned, which takes time with
/// many users.
#[utoipa::path(get, path = "/v1/state", tag = "look", params(StateQuery), responses(
    (status = 200, body = StateCard, description = "The state of the server")))]
pub(super) async fn state(
    State(app): State<Shared>,
    query: Result<Query<StateQuery>, QueryRejection>,
) -> Result<Answer, ApiError> {
    let query = parsed_query(query)?;
    if query.hash == Some(true) {
        return run_blocking(&app, Work::Look, |app, engine| {
            let (state, hash) = engine.hashed();
            json(&state_card(app, engine, &state, hash))
        })
        .await;
    }
    let engine = app.ready()?;
    Ok(json(&state_card(&app, engine, &engine.state(), None)))
}

fn state_card(app: &App, engine: &Engine, state: &Known, hash: Option<String>) -> StateCard {
    let (rewards, reward_sum) = state.rewards();
    let context = &state.identity().context;
    let transform = state.identity().features.iter();
    let raw_fields = transform.flat_map(|transform| transform.columns());
    let raw_fields = raw_fields.map(|(name, kind)| (name.to_owned(), kind));
    let read_only_reason = engine.read_only();
    StateCard {
        events: state.events(),
        rounds: state.rounds(),
        users: state.users().len() as u64,
        clusters: state.clusters(),
        hash,
        // The node adds these when it joins the cards of its partitions.
        hashes: None,
        partitions: None,
        node: None,
        policy: state.identity().policy.name,
        policy_title: state.identity().policy.title,
        policy_summary: state.identity().policy.summary,
        preset: state.identity().preset().as_str(),
        constants: state.identity().overrides(),
        dim: state.dim().map(|dim| dim as u64),
        raw_fields: raw_fields.collect(),
        context: context.declarations(),
        context_mode: (!context.is_empty()).then(|| context.mode().as_str()),
        items: state.catalogue().map_or(0, |catalogue| catalogue.len()) as u64,
        max_k: engine.settings().max_k as u64,
        reward_min: engine.settings().reward_min,
        reward_max: engine.settings().reward_max,
        singletons: state
            .policy()
            .map_or(0, |policy| policy.inspect().singletons()),
        fits: state.identity().policy.can.fit,
        regroups: state.identity().policy.can.regroups,
        has_clusters: has_clusters(state.identity()),
        clustering: state
            .policy()
            .and_then(|policy| policy.inspect().outlook())
            .map(|outlook| ClusteringCard::new(outlook, engine)),
        rewards,
        reward_sum,
        reward_warning: engine.reward_warning(),
        off_policy: engine.off_policy(state),
        decisions: engine.meters().decisions(),
        expected_users: state.expected(),
        uptime_seconds: app.started.elapsed().as_secs(),
        writable: read_only_reason.is_none(),
        read_only_reason,
        version: env!("CARGO_PKG_VERSION"),
    }
}

/// Returns metrics for Prometheus. Those of spaces have the label `space`; the default space has none. A key of one space
/// gets those of its space, a key of all spaces gets all.
#[utoipa::path(get, path = "/metrics", tag = "look", responses(
    (status = 200, body = String, content_type = "text/plain", description = "Prometheus's text format")))]
pub(super) async fn metrics(State(app): State<Shared>, caller: Caller) -> Result<Answer, ApiError> {
    let mut text = metrics_of(&app, app.engine());
    if caller.scope == Scope::All
        && let Some(spaces) = app.spaces.get().and_then(Weak::upgrade)
    {
        let others = spaces.list().into_iter();
        let others = others.filter(|space| !Arc::ptr_eq(&space.app, &app));
        let others = others.map(|space| metrics_of(&space.app, space.app.engine()));
        text = joined(std::iter::once(text).chain(others));
    }
    let mut answer = Response::new(Body::from(text));
    let name = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, name);
    Ok(answer)
}

/// The metrics of a space; of one that is being opened or cannot be, only that it is not ready.
fn metrics_of(app: &App, engine: Option<&Engine>) -> String {
    let text =
        engine.map(Engine::render_metrics).unwrap_or_default() + &ready_metric(engine.is_some());
    match &app.space {
        Some(space) => labelled(&text, space),
        None => labelled(&text, DEFAULT_SPACE) + &app.server_metrics(),
    }
}

/// Answers 200 if the process is alive.
#[utoipa::path(get, path = "/healthz", tag = "look", security(()), responses(
    (status = 200, body = String, content_type = "text/plain", description = "The process is alive")))]
pub(super) async fn healthz() -> &'static str {
    "ok"
}

/// Answers 200 if the server answers requests.
#[utoipa::path(get, path = "/readyz", tag = "look", security(()), responses(
    (status = 200, body = Ready, description = "Requests are answered"),
    (status = 503, body = NotReady, description = "Not yet, or there are too many connections")))]
pub(super) async fn readyz(State(app): State<Shared>) -> Answer {
    if let Some(node) = app.node() {
        let (is_ready, is_writable) = (node.is_ready(), node.is_ready() && node.is_writable());
        let reason = match is_ready {
            true => "NATS does not answer",
            false => "the node does not own all partitions that it should, or shuts down",
        };
        let mut answer = json(&Ready {
            ready: is_ready,
            writable: is_writable,
            reason: (!is_writable).then(|| reason.to_owned()),
        });
        if !is_ready {
            *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        }
        return answer;
    }
    match app.engine() {
        Some(engine) => {
            let reason = engine.read_only();
            json(&Ready {
                ready: true,
                writable: reason.is_none(),
                reason,
            })
        }
        None => {
            let mut answer = json(&Ready {
                ready: false,
                writable: false,
                reason: Some(
                    app.failure()
                        .unwrap_or("the server is reading its log")
                        .to_owned(),
                ),
            });
            *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            answer
        }
    }
}
