//! JSON types of requests and answers.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::explain::{ClusteringCard, PlacementCard};
use super::scalars::{GivenId, Whole, owned_id};
use crate::context::{ContextValue, GivenContext};
use crate::edge::error::{ErrorBody, ErrorDetail};
use crate::settings::Literal;
use crate::state::Ties;

/// A string that is borrowed from the request unless it has escapes.
#[derive(Debug, Clone, Deserialize)]
pub struct Text<'a>(#[serde(borrow)] pub Cow<'a, str>);

impl std::ops::Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// A request for a recommendation. At most one of `candidates` and `items` may be given; with neither, the
/// candidates are the whole catalogue.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct RecommendRequest<'a> {
    /// The user's id. Users need no registration.
    #[serde(borrow)]
    #[schema(example = "u1")]
    pub user: GivenId<'a>,
    /// The candidates, as ids of items in the catalogue.
    #[serde(borrow, default)]
    #[schema(example = json!(["i1", "i2"]), min_items = 1)]
    pub candidates: Option<Vec<GivenId<'a>>>,
    /// The candidates, with their features.
    #[serde(borrow, default)]
    #[schema(min_items = 1)]
    pub items: Option<Vec<InlineItem<'a>>>,
    /// Items that are not shown.
    #[serde(borrow, default)]
    pub exclude: Option<Vec<GivenId<'a>>>,
    /// Conditions that items of the catalogue must fulfil, on `id`, `tags` and the fields of `data`. Together they have at
    /// most 64 parts and 10,000 values.
    #[serde(default)]
    #[schema(
        example = json!({"tags": {"any": ["tea", "coffee"], "none": ["decaf"]}, "price": {"max": 20}}),
        value_type = Option<BTreeMap<String, serde_json::Value>>
    )]
    pub filter: Option<serde_json::Map<String, serde_json::Value>>,
    /// True if a candidate that is not in the catalogue is an error. By default it is skipped, and named in `missing`.
    #[serde(default)]
    #[schema(default = false)]
    pub strict: bool,
    /// The number of the user's last decisions whose items are not shown again, at most `--max-seen`.
    #[serde(default)]
    #[schema(value_type = u64, default = 0)]
    pub seen: Whole,
    /// The order of items of equal score: `draw` by the decision's random number, `order` as the candidates are given, with
    /// scores compared to the last bit.
    #[serde(default)]
    #[schema(value_type = String, default = "draw")]
    pub ties: Ties,
    /// The number of items to show.
    #[serde(default)]
    #[schema(value_type = Option<u64>, default = 1, minimum = 1)]
    pub k: Option<Whole>,
    /// Values of the context features that the server was started with. Those that are left out are 0.
    #[serde(default)]
    #[schema(
        example = json!({"hour": 0.75, "device": "phone"}),
        value_type = Option<BTreeMap<String, ContextValue>>
    )]
    pub context: Option<GivenContext>,
}

/// An item with its features.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct InlineItem<'a> {
    /// Its id.
    #[serde(borrow)]
    pub id: GivenId<'a>,
    /// Its features. All items of a request have as many.
    #[schema(example = json!([0.6, 0.8]), min_items = 1)]
    pub features: Vec<f64>,
}

/// A recommendation.
#[derive(Debug, Serialize, ToSchema)]
pub struct RecommendResponse {
    /// The decision, to be sent back with the reward.
    pub decision: String,
    /// The items to show, best first.
    pub items: Vec<ScoredItem>,
    /// The cluster that the user is served from; with `sclub-soft` their most probable one, or 0 if they most
    /// probably are in none.
    pub cluster: u64,
    /// The number of users in that cluster.
    pub cluster_users: u64,
    /// The candidates that are not in the catalogue. Absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// In a batch, the reason why there is no item to choose from: `decision` and `items` are empty then. Else absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorDetail>,
}

/// An item to show.
#[derive(Debug, Serialize, ToSchema)]
pub struct ScoredItem {
    /// Its id.
    pub id: String,
    /// The score it was ranked by: `mean + width`.
    pub score: f64,
    /// Its expected reward.
    pub mean: f64,
    /// The exploration bonus for the uncertainty of `mean`, and with a policy that draws at random, such as `sclub-soft`, the draw, which may
    /// be negative.
    pub width: f64,
    /// The probability of the item to be in the list: exact if the policy does not draw at random, else an estimate.
    /// Absent unless the server was started with `--propensities` or `--explore-share`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub propensity: Option<f64>,
    /// The probability of the item to be at this position of the list. As `propensity` if the list has one item.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot_propensity: Option<f64>,
}

/// The reward of an item that was shown (`reward`), or of a whole list (`rewards`).
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct FeedbackRequest<'a> {
    /// The decision of the recommendation.
    #[serde(borrow)]
    #[schema(value_type = String, min_length = 1)]
    pub decision: Text<'a>,
    /// The reward, within the range that the server was started with, by default 0 to 1.
    #[serde(default)]
    #[schema(example = 1.0)]
    pub reward: Option<f64>,
    /// In place of `reward` and `item`: the rewards of the items shown, in order from the first, as far as
    /// the user looked. They are learned as one round.
    #[serde(default)]
    #[schema(example = json!([0.0, 1.0]))]
    pub rewards: Option<Vec<f64>>,
    /// The id of the item, by default the first item shown. Each item takes one reward.
    #[serde(borrow, default)]
    pub item: Option<GivenId<'a>>,
    /// The reward of all items shown that this call gives no other one, such as 0 for items that were not clicked. It
    /// can be given alone: nothing was clicked.
    #[serde(default)]
    #[schema(example = 0.0)]
    pub others: Option<f64>,
}

/// The result of feedback.
#[derive(Debug, Serialize, ToSchema)]
pub struct FeedbackResponse {
    /// False if the item, or each item of the list, has its reward already. Nothing is changed then.
    pub applied: bool,
}

/// Recommendations to several users on the same history.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct RecommendBatchRequest<'a> {
    /// The requests, each as for a single recommendation.
    #[serde(borrow)]
    #[schema(min_items = 1)]
    pub requests: Vec<RecommendRequest<'a>>,
}

/// The recommendations, in the order of the requests.
#[derive(Debug, Serialize, ToSchema)]
pub struct RecommendBatchResponse {
    /// The answers, each as for a single recommendation.
    pub decisions: Vec<RecommendResponse>,
}

/// The rewards of several users in one time slot.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct FeedbackBatchRequest<'a> {
    /// The rewards, each as for a single one. All are learned as one round, or none is. An empty list is a
    /// round without rewards.
    #[serde(borrow)]
    pub feedback: Vec<FeedbackRequest<'a>>,
}

/// The result of feedback, in the order of the rewards.
#[derive(Debug, Serialize, ToSchema)]
pub struct FeedbackBatchResponse {
    /// False for an item that has its reward already.
    pub applied: Vec<bool>,
}

/// An item that is put into the catalogue.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct ItemLine {
    /// Its id.
    #[serde(deserialize_with = "owned_id")]
    #[schema(value_type = GivenId<'static>, example = "i1")]
    pub id: String,
    /// Its features, as many as other items have.
    #[schema(example = json!([0.6, 0.8]), min_items = 1)]
    pub features: Vec<f64>,
    /// Its title, for people.
    #[schema(example = "Green tea")]
    pub title: Option<String>,
    /// Its tags, for filters.
    #[serde(default)]
    #[schema(example = json!(["tea"]))]
    pub tags: Vec<String>,
    /// False if it must not be shown.
    #[serde(default = "yes")]
    #[schema(default = true)]
    pub available: bool,
    /// Any JSON object of up to 16 kB, without the fields `id` and `tags`. Strings, numbers, booleans and lists of them can
    /// be used in filters.
    #[schema(example = json!({"price": 4.5}), value_type = Option<BTreeMap<String, serde_json::Value>>)]
    pub data: Option<serde_json::Map<String, serde_json::Value>>,
}

fn yes() -> bool {
    true
}

/// An item of the catalogue.
#[derive(Debug, Serialize, ToSchema)]
pub struct CatalogueItem {
    /// Its id.
    #[schema(example = "i1")]
    pub id: String,
    /// Its features.
    #[schema(example = json!([0.6, 0.8]))]
    pub features: Vec<f64>,
    /// Its title, for people. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "Green tea")]
    pub title: Option<String>,
    /// Its tags, for filters. Absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(example = json!(["tea"]))]
    pub tags: Vec<String>,
    /// False if it must not be shown. Absent otherwise.
    #[serde(skip_serializing_if = "Clone::clone")]
    #[schema(default = true)]
    pub available: bool,
    /// Its JSON object. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = json!({"price": 4.5}), value_type = Option<BTreeMap<String, serde_json::Value>>)]
    pub data: Option<serde_json::Map<String, serde_json::Value>>,
}

/// The result of an upload of items.
#[derive(Debug, Default, Serialize, ToSchema)]
pub struct ItemsPut {
    /// The number of items read.
    pub items: u64,
    /// The number of items that were new or changed.
    pub changed: u64,
    /// Raw fields that the server's transform does not know, perhaps misspelt ones. They are in the items' `data`, and no
    /// feature is made from them. Absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown_fields: Vec<String>,
}

/// Changes of an item. A field that is absent stays as it is. A server with a transform also takes the raw fields that it makes
/// features from, such as `price`. Other fields of the item's `data` are changed by `data`.
#[derive(ToSchema)]
pub struct ItemPatch {
    /// Its features, as many as before.
    #[schema(nullable = false, example = json!([0.6, 0.8]))]
    pub features: Option<Vec<f64>>,
    /// Its title; null removes it.
    #[schema(example = "Green tea")]
    pub title: Option<String>,
    /// All its tags; null removes them.
    #[schema(example = json!(["tea"]))]
    pub tags: Option<Vec<String>>,
    /// False if it must not be shown.
    pub available: Option<bool>,
    /// Changes of its data: objects are merged, and null removes a field. Null removes everything.
    #[schema(example = json!({"price": 4.5}), value_type = Option<BTreeMap<String, serde_json::Value>>)]
    pub data: Option<serde_json::Map<String, serde_json::Value>>,
}

/// A page of the catalogue.
#[derive(Debug, Default, Serialize, ToSchema)]
pub struct ItemsPage {
    /// The items.
    pub items: Vec<CatalogueItem>,
    /// The value of `after` for the next page; null on the last one.
    pub next: Option<String>,
    /// The number of items in the catalogue, or of those that match.
    pub total: u64,
    /// A number that grows when an item is removed, which moves the last item to its place. Pages with the same number have
    /// all items; if it differs, read the pages again from the first one.
    pub order_revision: u64,
    /// With `counts=true`: the counts of each item of the page, in the same order; in a cluster, sums over its nodes. Absent otherwise,
    /// and if nothing is counted because there is no journal (`--journal-days 0`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counts: Option<Vec<ItemFigures>>,
    /// With `counts=true`: the time since when items are counted, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counted_since: Option<u64>,
    /// The nodes of a cluster that did not answer: what they counted is missing. Absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing_nodes: Vec<String>,
}

/// How often an item was shown, and the rewards that it got.
#[derive(Debug, Serialize, ToSchema)]
pub struct ItemFigures {
    /// The number of times that it was shown.
    pub shown: u64,
    /// The number of rewards that it got, with assumed ones.
    pub rewards: u64,
    /// The mean of these rewards; null if there are none.
    pub reward_rate: Option<f64>,
}

/// The result of removing an item.
#[derive(Debug, Serialize, ToSchema)]
pub struct Removed {
    /// False if the item was not in the catalogue.
    pub removed: bool,
}

/// The result of forgetting a user.
#[derive(Debug, Serialize, ToSchema)]
pub struct Forgotten {
    /// Always true. Earlier decisions for the user no longer accept a reward.
    pub forgotten: bool,
    /// True if the user had given a reward.
    pub known: bool,
}

/// A user's statistics.
#[derive(Debug, Serialize, ToSchema)]
pub struct UserCard {
    /// The user's id.
    pub user: String,
    /// The number of rewards of the user that `policy` has learned. A policy that began with an experiment has not learned those
    /// before it: 0 if there was none since.
    pub count: u64,
    /// `count` per round that `policy` has learned.
    pub frequency: f64,
    /// The time of the first reward, in milliseconds since 1970.
    pub first_seen: u64,
    /// The time of the last reward, in milliseconds since 1970.
    pub last_seen: u64,
    /// The cluster that the user is served from; with `sclub-soft` their most probable one, or 0 if they most
    /// probably are in none.
    pub cluster: u64,
    /// The number of users in that cluster.
    pub cluster_users: u64,
    /// The user's own estimate; with `sclub-soft` from their rewards and what all users have in common.
    pub estimate: Vec<f64>,
    /// The cluster's estimate; with `sclub-soft` the mean of all clusters, weighted by their probability.
    pub cluster_estimate: Vec<f64>,
    /// The last split or merge that put the user into this cluster.
    pub last_change: Option<HistoryEntry>,
    /// The probability of each cluster; absent if the policy has no probabilities.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<PlacementCard>,
    /// The name of the policy that serves the user, whose cluster and estimates these are: that of an experiment's arm, if one is running.
    pub policy: &'static str,
    /// True if that is the policy in force, whose clusters the other calls show. False in an arm with another one.
    pub in_force: bool,
    /// As in the state of the server, of the policy that serves the user.
    pub fits: bool,
    /// As in the state of the server, of the policy that serves the user.
    pub regroups: bool,
    /// As in the state of the server, of the policy that serves the user.
    pub has_clusters: bool,
}

/// A cluster in a list.
#[derive(Debug, Serialize, ToSchema)]
pub struct ClusterLine {
    /// Its label.
    pub cluster: u64,
    /// The number of users in it; with `sclub-soft` as of the last fit, each counted with the probability of being in it.
    pub users: u64,
    /// The number of rewards learned from them; with `sclub-soft` as of the last fit, too.
    pub count: u64,
    /// Its estimate.
    pub estimate: Vec<f64>,
}

/// A page of the clusters, largest first.
#[derive(Debug, Serialize, ToSchema)]
pub struct ClustersPage {
    /// The clusters.
    pub clusters: Vec<ClusterLine>,
    /// The value of `after` for the next page; null on the last one.
    pub next: Option<u64>,
    /// The number of clusters.
    pub total: u64,
}

/// A cluster's statistics.
#[derive(Debug, Serialize, ToSchema)]
pub struct ClusterCard {
    /// Its label.
    pub cluster: u64,
    /// The number of users in it; with `sclub-soft` as of the last fit, each counted with the probability of being in it.
    pub users: u64,
    /// The number of rewards learned from them; with `sclub-soft` as of the last fit, too.
    pub count: u64,
    /// `count` per round learned until now.
    pub frequency: f64,
    /// Its estimate.
    pub estimate: Vec<f64>,
    /// The items of the catalogue with the highest expected reward.
    pub favourites: Vec<Favourite>,
    /// Some of the users in it.
    pub members: Vec<String>,
    /// The last merge into this cluster.
    pub last_change: Option<HistoryEntry>,
}

/// An item with a high expected reward in a cluster.
#[derive(Debug, Serialize, ToSchema)]
pub struct Favourite {
    /// Its id.
    pub id: String,
    /// Its title. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Its expected reward.
    pub mean: f64,
}

/// A split or a merge.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct HistoryEntry {
    /// Its number among all changes, from 1.
    pub change: u64,
    /// The time of the change, in milliseconds since 1970.
    pub at: u64,
    /// The round in which it happened.
    pub round: u64,
    /// The kind of change, `split` or `merge`.
    pub kind: &'static str,
    /// Split: the old cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    /// Split: the new cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub into: Option<u64>,
    /// Split: the number of users who moved to the new cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub users: Option<u64>,
    /// Merge: the cluster that stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<u64>,
    /// Merge: the cluster that was merged into it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gone: Option<u64>,
    /// The user who was being served; null if they were forgotten.
    pub user: Option<String>,
    /// The reason for the change.
    pub why: WhyEntry,
}

/// The inequalities that caused a change.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
pub struct WhyEntry {
    /// `estimates` or `frequencies` (a split: too far apart), `both` (a merge: both close enough),
    /// `connected`, or `forgotten`: the user who caused it was forgotten.
    pub reason: &'static str,
    /// The two sides for the estimates.
    pub estimates: Option<SidesEntry>,
    /// The two sides for the frequencies.
    pub frequencies: Option<SidesEntry>,
}

/// The two sides of an inequality.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
pub struct SidesEntry {
    /// The distance between them.
    pub distance: f64,
    /// The maximum distance that is allowed.
    pub threshold: f64,
}

/// A page of the history, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub struct HistoryPage {
    /// The changes.
    pub changes: Vec<HistoryEntry>,
    /// The value of `before` for the next page; null on the last one.
    pub next: Option<u64>,
    /// The number of changes so far.
    pub total: u64,
}

/// The state of the server.
#[derive(Debug, Serialize, ToSchema)]
pub struct StateCard {
    /// The number of events in the log.
    pub events: u64,
    /// The number of rounds learned.
    pub rounds: u64,
    /// The number of users who have given a reward.
    pub users: u64,
    /// The number of clusters.
    pub clusters: u64,
    /// A hash of everything learned; absent unless the request has `hash=true`, and on a node of a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// On a node of a cluster, the hash of each partition in place of `hash`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hashes: Option<BTreeMap<String, String>>,
    /// The number of partitions; absent unless the server is a node of a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partitions: Option<u64>,
    /// The name of the node; absent unless the server is one of a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The policy's name.
    pub policy: &'static str,
    /// The policy's display name.
    pub policy_title: &'static str,
    /// A one-line description of the policy.
    pub policy_summary: &'static str,
    /// The preset of its constants: `tuned`, `released`, or `default` for policies with one set only.
    pub preset: &'static str,
    /// The constants that differ from the preset.
    pub constants: BTreeMap<String, Literal>,
    /// The number of features per item, once it is known.
    pub dim: Option<u64>,
    /// The raw fields of items that features are made from, and the kind of each: `text`, `tags` or `number`. Absent on a server
    /// without a transform.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub raw_fields: BTreeMap<String, &'static str>,
    /// The context features of requests, as they were declared.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub context: Vec<String>,
    /// The mode in which context features are joined with those of an item: `append` or `cross`. Absent if there
    /// are no context features.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_mode: Option<&'static str>,
    /// The number of items in the catalogue.
    pub items: u64,
    /// The maximum number of items in one recommendation.
    pub max_k: u64,
    /// The smallest reward that is accepted.
    pub reward_min: f64,
    /// The largest reward that is accepted.
    pub reward_max: f64,
    /// The number of clusters of one user.
    pub singletons: u64,
    /// True if the policy computes fits in the background: users belong to clusters by probability.
    pub fits: bool,
    /// True if the policy splits and merges clusters of users while it learns.
    pub regroups: bool,
    /// False if the policy never looks for clusters, as one with fits and without its constant `clusters`.
    pub has_clusters: bool,
    /// A summary of the clustering; absent if the policy has no fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clustering: Option<ClusteringCard>,
    /// The number of rewards learned.
    pub rewards: u64,
    /// Their sum.
    pub reward_sum: f64,
    /// A warning if all rewards are equal: then nothing can be learned from them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reward_warning: Option<String>,
    /// What can be estimated from the log of this server about other policies.
    pub off_policy: &'static str,
    /// The number of decisions made since the server started.
    pub decisions: u64,
    /// The number of users that were declared before the first round.
    pub expected_users: u64,
    /// The number of seconds since the server started.
    pub uptime_seconds: u64,
    /// False if the server is read-only.
    pub writable: bool,
    /// The reason why the server is read-only.
    pub read_only_reason: Option<String>,
    /// Version of the server.
    pub version: &'static str,
}

/// The message that `/v1/stream` sends once a second.
#[derive(Debug, Serialize, ToSchema)]
pub struct SecondCard {
    /// The time of the message, in milliseconds since 1970.
    pub at: u64,
    /// The number of events in the log.
    pub events: u64,
    /// The number of rounds learned.
    pub rounds: u64,
    /// The number of users who have given a reward.
    pub users: u64,
    /// The number of clusters.
    pub clusters: u64,
    /// The number of clusters of one user.
    pub singletons: u64,
    /// The number of items in the catalogue.
    pub items: u64,
    /// The number of recommendations in the last second, those of batches counted each.
    pub recommends_per_second: f64,
    /// The number of feedbacks in the last second, those of batches counted each.
    pub feedbacks_per_second: f64,
    /// The number of rewards learned in the last second, with assumed ones.
    pub rewards_per_second: f64,
    /// The mean of the rewards learned in the last second.
    pub reward_rate: Option<f64>,
    /// The median latency of a call that recommends.
    pub recommend_p50_ms: Option<f64>,
    /// The 99th percentile of the latency of a call that recommends.
    pub recommend_p99_ms: Option<f64>,
    /// The 99th percentile of the latency of a call with feedback.
    pub feedback_p99_ms: Option<f64>,
    /// True if a fit is being computed.
    pub fitting: bool,
    /// The number of fits so far.
    pub fits: u64,
    /// False if the server is read-only.
    pub writable: bool,
}

/// A declaration of the users who exist before the first round.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct ExpectRequest {
    /// The number of users who exist before the first round.
    #[schema(value_type = u64, example = 1000)]
    pub users: Whole,
}

/// The result of declaring users.
#[derive(Debug, Serialize, ToSchema)]
pub struct ExpectResponse {
    /// The number of users who exist before the first round.
    pub expected_users: u64,
}

/// The result of a compaction.
#[derive(Debug, Serialize, ToSchema)]
pub struct CompactResponse {
    /// The number of the last event that was compacted.
    pub events: u64,
    /// The number of rewards, decisions and requests to forget that were removed from the folder.
    pub dropped: u64,
    /// The size of the folder before.
    pub bytes_before: u64,
    /// The size of the folder after.
    pub bytes_after: u64,
    /// The nodes of a cluster that have not confirmed: their journals may still have data of forgotten users. Repeat the
    /// compaction when they are back. Absent on a single server.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unconfirmed: Vec<String>,
}

/// A snapshot.
#[derive(Debug, Serialize, ToSchema)]
pub struct SnapshotResponse {
    /// The number of the last event in it.
    pub at: u64,
}

/// The answer of a server that is not ready, or that has too many connections.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum NotReady {
    /// Not ready, and why.
    Ready(Ready),
    /// Too many connections.
    Error(ErrorBody),
}

/// The readiness of the server.
#[derive(Debug, Serialize, ToSchema)]
pub struct Ready {
    /// True if the server answers requests.
    pub ready: bool,
    /// False if the server is read-only.
    pub writable: bool,
    /// The reason why the server is not ready or not writable.
    pub reason: Option<String>,
}
