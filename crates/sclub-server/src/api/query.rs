//! Parameters of queries.

use serde::Deserialize;
use utoipa::IntoParams;

/// The page of the catalogue to return.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct ItemsQuery {
    /// The `next` of the previous page.
    pub after: Option<String>,
    /// The maximum number of entries.
    #[param(default = 100, maximum = 1000)]
    pub limit: Option<usize>,
    /// Only items that have all words of this text, in any order, each as a part of the id, the title, a tag or a text of `data`. Upper and lower case are the same, and so are Latin letters with and without accents.
    #[param(max_length = 200)]
    pub search: Option<String>,
    /// True to include how often each item was shown, and its rewards.
    #[param(default = false)]
    pub counts: Option<bool>,
    /// The count to sort by, largest first. Items that have none, such as the mean of no reward, are last.
    #[param(value_type = Option<String>)]
    pub sort: Option<SortBy>,
    /// True to sort with the smallest first.
    #[param(default = false)]
    pub ascending: Option<bool>,
}

/// A count that items are sorted by, by its name in their counts.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SortBy {
    /// The number of times that it was shown.
    Shown,
    /// The number of rewards.
    Rewards,
    /// The mean reward.
    RewardRate,
}

/// The page of the clusters to return.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct ClustersQuery {
    /// The `next` of the previous page.
    pub after: Option<u64>,
    /// The maximum number of entries.
    #[param(default = 100, maximum = 1000)]
    pub limit: Option<usize>,
}

/// The amount of detail about a cluster.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct ClusterQuery {
    /// The maximum number of favourites.
    #[param(default = 10, maximum = 1000)]
    pub items: Option<usize>,
    /// The maximum number of members.
    #[param(default = 20, maximum = 1000)]
    pub members: Option<usize>,
}

/// The page of the history to return.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct HistoryQuery {
    /// The `next` of the previous page.
    pub before: Option<u64>,
    /// The maximum number of entries.
    #[param(default = 100, maximum = 1000)]
    pub limit: Option<usize>,
}

/// The optional parts of the state.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct StateQuery {
    /// True to include a hash of everything learned. It takes time with many users.
    #[param(default = false)]
    pub hash: Option<bool>,
}

/// The confirmation of a deletion.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct DeleteSpaceQuery {
    /// The name of the space, again.
    pub confirm: Option<String>,
}
