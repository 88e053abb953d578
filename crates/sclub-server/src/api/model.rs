//! What goes over the wire.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::explain::{ClusteringCard, PlacementCard};
use crate::settings::Literal;

/// Borrowed from the request where nothing in it is escaped.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[schema(value_type = String)]
pub struct Text<'a>(#[serde(borrow)] pub Cow<'a, str>);

impl std::ops::Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// Who is to be shown what. At most one of `candidates` and `items` may be given; with neither, the
/// whole catalogue is looked at.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct RecommendRequest<'a> {
    /// To whom. Users need no registration.
    #[serde(borrow)]
    #[schema(example = "u1", value_type = String)]
    pub user: Text<'a>,
    /// Items of the catalogue to choose from.
    #[serde(borrow, default)]
    #[schema(example = json!(["i1", "i2"]), value_type = Option<Vec<String>>)]
    pub candidates: Option<Vec<Text<'a>>>,
    /// Items to choose from, with their features.
    #[serde(borrow, default)]
    pub items: Option<Vec<InlineItem<'a>>>,
    /// Items of the catalogue to leave out, where neither `candidates` nor `items` is given.
    #[serde(borrow, default)]
    #[schema(value_type = Option<Vec<String>>)]
    pub exclude: Option<Vec<Text<'a>>>,
    /// How many to show.
    #[serde(default)]
    #[schema(default = 1, minimum = 1)]
    pub k: Option<u64>,
}

/// An item that comes along.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct InlineItem<'a> {
    /// Its id.
    #[serde(borrow)]
    #[schema(value_type = String)]
    pub id: Text<'a>,
    /// Its features.
    #[schema(example = json!([0.6, 0.8]))]
    pub features: Vec<f64>,
}

/// What to show.
#[derive(Debug, Serialize, ToSchema)]
pub struct RecommendResponse {
    /// To be sent back with the reward.
    pub decision: String,
    /// Best first.
    pub items: Vec<ScoredItem>,
    /// The cluster that the user is served from; with `sclub-soft` her most probable one, 0 where that is
    /// none.
    pub cluster: u64,
    /// Users in that cluster.
    pub cluster_users: u64,
}

/// An item to show.
#[derive(Debug, Serialize, ToSchema)]
pub struct ScoredItem {
    /// Its id.
    pub id: String,
    /// What it was ranked by: `mean + width`.
    pub score: f64,
    /// The reward that is expected of it.
    pub mean: f64,
    /// What the uncertainty about that adds.
    pub width: f64,
}

/// What an item that was shown has brought.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct FeedbackRequest<'a> {
    /// From the recommendation.
    #[serde(borrow)]
    #[schema(value_type = String)]
    pub decision: Text<'a>,
    /// Within the range that the server was started with, 0 to 1 if nothing was said.
    #[schema(example = 1.0)]
    pub reward: f64,
    /// Which of the items shown; the first if left out. Each takes one reward.
    #[serde(borrow, default)]
    #[schema(value_type = Option<String>)]
    pub item: Option<Text<'a>>,
}

/// Whether it was learned.
#[derive(Debug, Serialize, ToSchema)]
pub struct FeedbackResponse {
    /// False if the item had its reward already; nothing is changed then.
    pub applied: bool,
}

/// Several users who are served on the same history.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct RecommendBatchRequest<'a> {
    /// Each as for a single recommendation.
    #[serde(borrow)]
    pub requests: Vec<RecommendRequest<'a>>,
}

/// The answers, in the order of the requests.
#[derive(Debug, Serialize, ToSchema)]
pub struct RecommendBatchResponse {
    /// Each as for a single recommendation.
    pub decisions: Vec<RecommendResponse>,
}

/// What several users gave in one time slot.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct FeedbackBatchRequest<'a> {
    /// Each as for a single reward. All are learned as one round, or none is. With none in it, time
    /// passes.
    #[serde(borrow)]
    pub feedback: Vec<FeedbackRequest<'a>>,
}

/// Whether each was learned, in the order given.
#[derive(Debug, Serialize, ToSchema)]
pub struct FeedbackBatchResponse {
    /// False if the item had its reward already.
    pub applied: Vec<bool>,
}

/// An item of the catalogue.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct CatalogueItem {
    /// Its id.
    #[schema(example = "i1")]
    pub id: String,
    /// Its features.
    #[schema(example = json!([0.6, 0.8]))]
    pub features: Vec<f64>,
}

/// What became of a list of items.
#[derive(Debug, Serialize, ToSchema)]
pub struct ItemsPut {
    /// Items read.
    pub items: u64,
    /// Items that were not in the catalogue just so.
    pub changed: u64,
}

/// Part of the catalogue.
#[derive(Debug, Serialize, ToSchema)]
pub struct ItemsPage {
    /// The items.
    pub items: Vec<CatalogueItem>,
    /// To be given as `after` for the next part.
    pub next: Option<String>,
    /// Items in the catalogue.
    pub total: u64,
}

/// Whether an item was taken out.
#[derive(Debug, Serialize, ToSchema)]
pub struct Removed {
    /// False if it was not there.
    pub removed: bool,
}

/// Whether a user was forgotten.
#[derive(Debug, Serialize, ToSchema)]
pub struct Forgotten {
    /// Decisions made for her before can no longer be answered.
    pub forgotten: bool,
    /// Whether she had given any reward.
    pub known: bool,
}

/// What is known of a user.
#[derive(Debug, Serialize, ToSchema)]
pub struct UserCard {
    /// Her id.
    pub user: String,
    /// Rewards learned from her.
    pub count: u64,
    /// Share of the rounds in which she was served.
    pub frequency: f64,
    /// When her first reward came, in milliseconds since 1970.
    pub first_seen: u64,
    /// When her last reward came.
    pub last_seen: u64,
    /// The cluster that she is served from; with `sclub-soft` her most probable one, 0 where that is none.
    pub cluster: u64,
    /// Users in it.
    pub cluster_users: u64,
    /// Her own estimate; with `sclub-soft` from her rewards and what all users have in common.
    pub estimate: Vec<f64>,
    /// Her cluster's estimate; with `sclub-soft` that of all clusters by their probability.
    pub cluster_estimate: Vec<f64>,
    /// How she last came to be where she is.
    pub last_change: Option<HistoryEntry>,
    /// How probable each cluster is; not there where the policy knows no probabilities.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<PlacementCard>,
}

/// A cluster in a list.
#[derive(Debug, Serialize, ToSchema)]
pub struct ClusterLine {
    /// Its label.
    pub cluster: u64,
    /// Users in it.
    pub users: u64,
    /// Rewards learned from them.
    pub count: u64,
    /// Their estimate.
    pub estimate: Vec<f64>,
}

/// Part of the clusters, largest first.
#[derive(Debug, Serialize, ToSchema)]
pub struct ClustersPage {
    /// The clusters.
    pub clusters: Vec<ClusterLine>,
    /// To be given as `after` for the next part.
    pub next: Option<u64>,
    /// Clusters there are.
    pub total: u64,
}

/// What is known of a cluster.
#[derive(Debug, Serialize, ToSchema)]
pub struct ClusterCard {
    /// Its label.
    pub cluster: u64,
    /// Users in it.
    pub users: u64,
    /// Rewards learned from them.
    pub count: u64,
    /// Rewards learned from them for each round.
    pub frequency: f64,
    /// Their estimate.
    pub estimate: Vec<f64>,
    /// The items of the catalogue that are expected to bring the most.
    pub favourites: Vec<Favourite>,
    /// Some of the users in it.
    pub members: Vec<String>,
    /// The last merge that made it what it is.
    pub last_change: Option<HistoryEntry>,
}

/// An item that a cluster likes.
#[derive(Debug, Serialize, ToSchema)]
pub struct Favourite {
    /// Its id.
    pub id: String,
    /// The reward that is expected of it.
    pub mean: f64,
}

/// A split or a merge.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct HistoryEntry {
    /// Its place among all changes, from 1.
    pub change: u64,
    /// When, in milliseconds since 1970.
    pub at: u64,
    /// In which round.
    pub round: u64,
    /// `split` or `merge`.
    pub kind: &'static str,
    /// Split: the cluster that was left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    /// Split: the new cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub into: Option<u64>,
    /// Split: how many left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub users: Option<u64>,
    /// Merge: the cluster that goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<u64>,
    /// Merge: the cluster that is no more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gone: Option<u64>,
    /// Who was being served; null if she was forgotten.
    pub user: Option<String>,
    /// What made it happen.
    pub why: WhyEntry,
}

/// The inequalities that made a change happen.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
pub struct WhyEntry {
    /// `estimates` or `frequencies` (a split: too far apart), `both` (a merge: both close enough),
    /// `connected`, or `forgotten`: whose doing it was is no longer known.
    pub reason: &'static str,
    /// The two sides for the estimates.
    pub estimates: Option<SidesEntry>,
    /// The two sides for the frequencies.
    pub frequencies: Option<SidesEntry>,
}

/// The two sides of an inequality.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
pub struct SidesEntry {
    /// How far apart they are.
    pub distance: f64,
    /// How far apart they may be.
    pub threshold: f64,
}

/// Part of the history, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub struct HistoryPage {
    /// The changes.
    pub changes: Vec<HistoryEntry>,
    /// To be given as `before` for the next part.
    pub next: Option<u64>,
    /// Changes there have been.
    pub total: u64,
}

/// How things stand.
#[derive(Debug, Serialize, ToSchema)]
pub struct StateCard {
    /// Events in the log.
    pub events: u64,
    /// Rounds learned.
    pub rounds: u64,
    /// Users who have given a reward.
    pub users: u64,
    /// Clusters.
    pub clusters: u64,
    /// Hash of everything learned; not there unless it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// The policy.
    pub policy: &'static str,
    /// Its name in prose.
    pub policy_title: &'static str,
    /// One line: what it does.
    pub policy_summary: &'static str,
    /// Where its constants come from: `tuned`, `released`, or `default` where the policy has one set only.
    pub preset: &'static str,
    /// The constants that are not the preset's.
    pub constants: BTreeMap<String, Literal>,
    /// Features per item, once that is known.
    pub dim: Option<u64>,
    /// Items in the catalogue.
    pub items: u64,
    /// Clusters of one user.
    pub singletons: u64,
    /// What the policy says of its clusters as a whole; not there where it fits nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clustering: Option<ClusteringCard>,
    /// Rewards learned.
    pub rewards: u64,
    /// Their sum.
    pub reward_sum: f64,
    /// Decisions handed out since the start.
    pub decisions: u64,
    /// Users who were said to exist before the first round.
    pub expected_users: u64,
    /// Seconds since the start.
    pub uptime_seconds: u64,
    /// Whether writes work.
    pub writable: bool,
    /// Why not.
    pub read_only_reason: Option<String>,
    /// Version of the server.
    pub version: &'static str,
}

/// What `/v1/stream` sends once a second.
#[derive(Debug, Serialize, ToSchema)]
pub struct SecondCard {
    /// When, in milliseconds since 1970.
    pub at: u64,
    /// Events in the log.
    pub events: u64,
    /// Rounds learned.
    pub rounds: u64,
    /// Users who have given a reward.
    pub users: u64,
    /// Clusters.
    pub clusters: u64,
    /// Clusters of one user.
    pub singletons: u64,
    /// Items in the catalogue.
    pub items: u64,
    /// Recommendations in the last second.
    pub recommends_per_second: f64,
    /// Rewards sent in the last second.
    pub feedbacks_per_second: f64,
    /// Mean of the rewards learned in the last second.
    pub reward_rate: Option<f64>,
    /// Median time of a recommendation.
    pub recommend_p50_ms: Option<f64>,
    /// 99th percentile of it.
    pub recommend_p99_ms: Option<f64>,
    /// 99th percentile of the time that a reward takes.
    pub feedback_p99_ms: Option<f64>,
    /// Whether a fit is being computed.
    pub fitting: bool,
    /// Fits taken so far.
    pub fits: u64,
    /// Whether writes work.
    pub writable: bool,
}

/// How many users exist before the first round.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct ExpectRequest {
    /// So many.
    #[schema(example = 1000)]
    pub users: u64,
}

/// How many users exist before the first round.
#[derive(Debug, Serialize, ToSchema)]
pub struct ExpectResponse {
    /// So many.
    pub expected_users: u64,
}

/// What a compaction did.
#[derive(Debug, Serialize, ToSchema)]
pub struct CompactResponse {
    /// The last event that was looked at.
    pub events: u64,
    /// Rewards, decisions and requests to forget that are no longer in the folder.
    pub dropped: u64,
    /// Size of the folder before.
    pub bytes_before: u64,
    /// And after.
    pub bytes_after: u64,
}

/// Where a snapshot is.
#[derive(Debug, Serialize, ToSchema)]
pub struct SnapshotResponse {
    /// The last event in it.
    pub at: u64,
}

/// Whether requests can be answered.
#[derive(Debug, Serialize, ToSchema)]
pub struct Ready {
    /// Whether they can.
    pub ready: bool,
    /// Whether writes work too.
    pub writable: bool,
    /// What is the matter.
    pub reason: Option<String>,
}

/// Part of a list of items.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct ItemsQuery {
    /// `next` of the part before.
    pub after: Option<String>,
    /// At most so many.
    #[param(default = 100, maximum = 1000)]
    pub limit: Option<usize>,
}

/// Part of a list of clusters.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct ClustersQuery {
    /// `next` of the part before.
    pub after: Option<u64>,
    /// At most so many.
    #[param(default = 100, maximum = 1000)]
    pub limit: Option<usize>,
}

/// What to tell of a cluster.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct ClusterQuery {
    /// At most so many favourites.
    #[param(default = 10, maximum = 1000)]
    pub items: Option<usize>,
    /// At most so many members.
    #[param(default = 20, maximum = 1000)]
    pub members: Option<usize>,
}

/// Part of the history.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct HistoryQuery {
    /// `next` of the part before.
    pub before: Option<u64>,
    /// At most so many.
    #[param(default = 100, maximum = 1000)]
    pub limit: Option<usize>,
}

/// What to tell of the state.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct StateQuery {
    /// True for a hash of everything learned, which costs time at many users.
    #[param(default = false)]
    pub hash: Option<bool>,
}
