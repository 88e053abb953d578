//! Figures for the page: over time, of items, and of what a user sees.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::calls::check_id;
use super::items::parsed_query;
use super::{Answer, App, Id, Shared, Work, json, run_blocking};
use crate::edge::ApiError;
use crate::edge::error::ErrorBody;
use crate::engine::{COUNTS_FILE, Engine, ItemCounts, Refusal, SavedCounts, SeenDecision};
use crate::env::Env;
use crate::locks::lock;
use crate::state::Catalogue;
use crate::store::SmallFile;
use crate::timeline::{Figures, Point, Range, Timeline};

/// The number of seconds between two writes of the figures.
pub(super) const SECONDS_PER_WRITE: u64 = 60;

/// The number of items in a preview, by default.
pub(super) const DEFAULT_K: usize = 5;

/// The file of the figures over time in a data folder.
const FILE: &str = "figures";

/// The number of counts of items that are written with every write of the figures. More are written less often: twice as many
/// every second time.
const COUNTS_PER_WRITE: u64 = 100_000;

/// The time span to return.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct TimelineQuery {
    /// The time span: `10m` by the second, `24h` by the minute, or `60d` by the hour.
    #[param(value_type = Option<String>)]
    range: Option<Range>,
}

/// The size of a preview.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct PreviewQuery {
    /// The number of items.
    k: Option<usize>,
}

/// Figures over time.
#[derive(Debug, Serialize, ToSchema)]
pub struct TimelineCard {
    /// The time span.
    #[schema(value_type = String)]
    pub range: Range,
    /// The length of a step.
    pub step_seconds: u64,
    /// The time of the answer, in milliseconds since 1970.
    pub now: u64,
    /// The steps, oldest first. There are none for the time in which the server did not run. The last one is not over.
    pub steps: Vec<TimelineStep>,
}

/// The figures of a step. Recommendations, feedbacks and rewards of batches are counted each by itself.
#[derive(Debug, Serialize, ToSchema)]
pub struct TimelineStep {
    /// Its start, in milliseconds since 1970.
    pub at: u64,
    /// The number of its seconds that were counted: fewer than it has if the server did not run all the time, or if it is not over.
    pub seconds: u32,
    /// The number of recommendations.
    pub recommends: u64,
    /// The number of feedbacks.
    pub feedbacks: u64,
    /// The number of rewards learned, with assumed ones.
    pub rewards: u64,
    /// The mean of these rewards; null if there are none.
    pub reward_rate: Option<f64>,
    /// The median latency of a call that recommends.
    pub recommend_p50_ms: Option<f64>,
    /// The 99th percentile of the latency of a call that recommends.
    pub recommend_p99_ms: Option<f64>,
    /// The 99th percentile of the latency of a call with feedback.
    pub feedback_p99_ms: Option<f64>,
    /// The number of users who have given a reward, at the end of the step.
    pub users: u64,
    /// The number of clusters at the end of the step.
    pub clusters: u64,
}

impl From<Point> for TimelineStep {
    fn from(point: Point) -> Self {
        // Three digits are as exact as the buckets are.
        let milliseconds =
            |seconds: Option<f32>| seconds.map(|seconds| (f64::from(seconds) * 1e6).round() / 1e3);
        Self {
            at: point.at,
            seconds: point.seconds,
            recommends: point.recommends,
            feedbacks: point.feedbacks,
            rewards: point.rewards,
            reward_rate: (point.rewards > 0).then(|| point.reward_sum / point.rewards as f64),
            recommend_p50_ms: milliseconds(point.recommend_p50),
            recommend_p99_ms: milliseconds(point.recommend_p99),
            feedback_p99_ms: milliseconds(point.feedback_p99),
            users: point.users,
            clusters: point.clusters,
        }
    }
}

/// Returns figures over time: requests, rewards and latencies. They are kept over restarts; up to a minute of them may be
/// missing after a crash. A node of a cluster has those of the requests that it answered.
#[utoipa::path(get, path = "/v1/timeline", tag = "look", params(TimelineQuery), responses(
    (status = 200, body = TimelineCard, description = "The figures")))]
pub(super) async fn timeline(
    State(app): State<Shared>,
    query: Result<Query<TimelineQuery>, QueryRejection>,
) -> Result<Answer, ApiError> {
    let range = parsed_query(query)?.range.unwrap_or_default();
    let now = match (app.engine(), app.node()) {
        (Some(engine), _) => engine.now(),
        (None, Some(node)) => node.now(),
        (None, None) => app.ready()?.now(),
    };
    let steps = lock(&app.timeline).points(range, now);
    Ok(json(&TimelineCard {
        range,
        step_seconds: range.step() / 1000,
        now,
        steps: steps.into_iter().map(TimelineStep::from).collect(),
    }))
}

/// A recommendation that is not made.
#[derive(Debug, Serialize, ToSchema)]
pub struct PreviewCard {
    /// The items, best first.
    pub items: Vec<PreviewItem>,
    /// The policy that serves the user: that of an experiment's arm, if one is running.
    pub policy: String,
    /// The experiment under way. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experiment: Option<String>,
    /// The user's arm in it. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arm: Option<String>,
    /// The cluster that the user is served from; with `sclub-soft` their most probable one, or 0 if they most
    /// probably are in none.
    pub cluster: u64,
    /// The number of users in that cluster.
    pub cluster_users: u64,
    /// True if the policy draws at random, so that another recommendation may differ on the same rewards.
    pub random: bool,
    /// The share of recommendations that are drawn uniformly from the catalogue instead (`--explore-share`).
    pub explore_share: f64,
}

/// An item of a recommendation that is not made.
#[derive(Debug, Serialize, ToSchema)]
pub struct PreviewItem {
    /// Its id.
    pub id: String,
    /// Its title. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The score it is ranked by: `mean + width`.
    pub score: f64,
    /// Its expected reward.
    pub mean: f64,
    /// The exploration bonus for the uncertainty of `mean`.
    pub width: f64,
    /// Its expected reward by the user's own estimate; null if no reward of the user has been learned, or the server has
    /// context features.
    pub own_mean: Option<f64>,
    /// Its expected reward by the estimate of the user's cluster; with `sclub-soft` by that of all clusters, weighted by their
    /// probability.
    pub cluster_mean: Option<f64>,
}

/// Returns the items that the user would be recommended now, and their scores. It is no decision: nothing is recorded, later
/// recommendations are not changed, and context features are 0. Items of equal score come in random order, as they do in a
/// recommendation.
#[utoipa::path(get, path = "/v1/users/{id}/preview", tag = "look", params(("id" = String, Path, description = "The user's id"), PreviewQuery), responses(
    (status = 200, body = PreviewCard, description = "The items"),
    (status = 404, body = ErrorBody, description = "`no_candidates`: the catalogue has no item that is available")))]
pub(super) async fn preview(
    State(app): State<Shared>,
    Id(id): Id,
    query: Result<Query<PreviewQuery>, QueryRejection>,
) -> Result<Answer, ApiError> {
    let asked = parsed_query(query)?.k;
    check_id(&app.settings, &id, || "id".to_owned())?;
    let max = app.settings.max_k;
    let k = match asked {
        None => DEFAULT_K.min(max),
        Some(k) if (1..=max).contains(&k) => k,
        Some(k) => {
            let message = format!("k is {k}; it must be from 1 to {max}");
            return Err(Refusal::invalid("k", message).into());
        }
    };
    run_blocking(&app, Work::Recommend, move |_, engine| {
        let preview = engine.preview(&id, k)?;
        let items = preview.items.into_iter().map(|item| PreviewItem {
            id: item.id,
            title: item.title,
            score: item.score,
            mean: item.mean,
            width: item.width,
            own_mean: item.own_mean,
            cluster_mean: item.cluster_mean,
        });
        let (experiment, arm) = preview.arm.unzip();
        Ok(json(&PreviewCard {
            items: items.collect(),
            policy: preview.policy,
            experiment,
            arm,
            cluster: preview.cluster,
            cluster_users: preview.cluster_users,
            random: preview.is_random,
            explore_share: preview.explore_share,
        }))
    })
    .await?
}

/// The last decisions of a user.
#[derive(Debug, Serialize, ToSchema)]
pub struct RecentCard {
    /// The decisions, newest first.
    pub decisions: Vec<RecentDecision>,
    /// The nodes of a cluster that did not answer: decisions that they made are missing. Absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing_nodes: Vec<String>,
}

/// A decision of a user.
#[derive(Debug, Serialize, ToSchema)]
pub struct RecentDecision {
    /// The time of the decision, in milliseconds since 1970.
    pub at: u64,
    /// The items shown, best first.
    pub items: Vec<RecentItem>,
}

/// An item that a user was shown.
#[derive(Debug, Serialize, ToSchema)]
pub struct RecentItem {
    /// Its id.
    pub id: String,
    /// Its title, if it is in the catalogue and has one. Absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Its reward, sent or assumed; null if there is none so far.
    pub reward: Option<f64>,
}

/// Returns the last decisions of a user, with the rewards of their items. As many are kept as `--max-seen` says, of users
/// of the last time; after a restart they are read from the journal of the last hours. In a cluster they are those of the nodes that
/// follow the user's partition.
#[utoipa::path(get, path = "/v1/users/{id}/recent", tag = "look", params(("id" = String, Path, description = "The user's id")), responses(
    (status = 200, body = RecentCard, description = "The decisions; none if the user is not known")))]
pub(super) async fn recent(State(app): State<Shared>, Id(id): Id) -> Result<Answer, ApiError> {
    check_id(&app.settings, &id, || "id".to_owned())?;
    let engine = app.ready()?;
    let decisions = engine.seen(&id);
    Ok(json(&recent_card(
        decisions,
        engine.state().catalogue(),
        Vec::new(),
    )))
}

/// The answer with the last decisions of a user, newest first.
pub(super) fn recent_card(
    decisions: Vec<SeenDecision>,
    catalogue: Option<&Catalogue>,
    missing_nodes: Vec<String>,
) -> RecentCard {
    let title = |id: &str| {
        let catalogue = catalogue?;
        let slot = catalogue.slot(id)?;
        catalogue.description(slot).title.clone()
    };
    let decisions = decisions.into_iter().map(|decision| RecentDecision {
        at: decision.at,
        items: decision
            .items
            .into_iter()
            .map(|(id, reward)| RecentItem {
                title: title(&id),
                id,
                reward,
            })
            .collect(),
    });
    RecentCard {
        decisions: decisions.collect(),
        missing_nodes,
    }
}

impl App {
    /// A file with figures.
    fn figures_file(&self, name: &str) -> SmallFile {
        match self.engine() {
            Some(engine) => engine.folder().small_file(name),
            // A node of a cluster.
            None => SmallFile::new(&Env::real(), &self.settings.data.join(name)),
        }
    }

    /// The counts of items of the engine, or of the node.
    fn item_counts(&self) -> Option<&ItemCounts> {
        let engine = self.engine().map(Engine::item_counts);
        engine.unwrap_or_else(|| self.node().map(|node| &*node.item_counts))
    }

    /// Reads the figures of an earlier run. If they cannot be read, they begin anew.
    pub(super) fn load_figures(&self) {
        if let Some(timeline) = Timeline::read(&self.figures_file(FILE)) {
            *lock(&self.timeline) = timeline;
        }
        // An engine reads its own.
        if let (None, Some(node)) = (self.engine(), self.node())
            && let Some(saved) = SavedCounts::read(&self.figures_file(COUNTS_FILE))
        {
            node.item_counts.join(ItemCounts::load(saved));
        }
    }

    /// Writes the figures. Blocks.
    pub fn save_figures(&self) {
        // One at a time, or two would write the same file.
        let _saving = lock(&self.saving_figures);
        let timeline = lock(&self.timeline).clone();
        timeline.write(&self.figures_file(FILE));
        if let Some(counts) = self.item_counts() {
            counts.write(&self.figures_file(COUNTS_FILE));
        }
    }

    /// Writes the figures once a minute: counts of many items less often. Blocks.
    pub(super) fn save_figures_at(&self, minute: u64) {
        let counts = self.item_counts().map_or(0, ItemCounts::len);
        if minute.is_multiple_of(1 + counts as u64 / COUNTS_PER_WRITE) {
            return self.save_figures();
        }
        let _saving = lock(&self.saving_figures);
        let timeline = lock(&self.timeline).clone();
        timeline.write(&self.figures_file(FILE));
    }
}
