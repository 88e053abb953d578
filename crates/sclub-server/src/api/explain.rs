//! What a policy says about itself, as it goes over the wire.

use sclub::{Outlook, Placement};
use serde::Serialize;
use utoipa::ToSchema;

use crate::engine::Engine;

/// Where a user seems to belong, and what says so.
#[derive(Debug, Serialize, ToSchema)]
pub struct PlacementCard {
    /// The clusters, the most probable first.
    pub clusters: Vec<PlaceCard>,
    /// How probable it is that she is in none of them.
    pub none: f64,
    /// Whether recommendations use the clusters. If not, they come from what all users have in common
    /// and from her own rewards.
    pub used: bool,
}

/// How much a user seems to belong to one cluster.
#[derive(Debug, Serialize, ToSchema)]
pub struct PlaceCard {
    /// Its label.
    pub cluster: u64,
    /// How probable it is before any of her rewards: the cluster's share of all users.
    pub share: f64,
    /// What her rewards say: the logarithm of how many times likelier they are in this cluster than
    /// in none.
    pub evidence: f64,
    /// How probable it is given both.
    pub probability: f64,
}

/// The state of the clustering as a whole, as of its last fit unless said.
#[derive(Debug, Serialize, ToSchema)]
pub struct ClusteringCard {
    /// Fits taken so far.
    pub fits: u64,
    /// Rounds learned when the last one was begun.
    pub fitted_at: u64,
    /// Whether one is being computed now.
    pub fitting: bool,
    /// How long the last one was computed; null if there was none since the start.
    pub fit_seconds: Option<f64>,
    /// Clusters found.
    pub clusters: u64,
    /// How many there were, fit by fit, the oldest thinned out.
    pub history: Vec<FitEntry>,
    /// Share of the users who no cluster has with a probability of one half or more.
    pub unplaced: f64,
    /// How many numbers the rewards have settled, in all: between 0 and users times features.
    pub effective_parameters: f64,
    /// Variance of a reward around its mean, as estimated.
    pub noise: f64,
    /// By how many nats the rewards since were better predicted with clusters than without, older
    /// ones discounted; as of now.
    pub gain: f64,
    /// Whether recommendations use the clusters; as of now.
    pub used: bool,
    /// What somebody should know, such as that clustering is buying nothing.
    pub warning: Option<String>,
}

/// A fit of the past.
#[derive(Debug, Serialize, ToSchema)]
pub struct FitEntry {
    /// Rounds learned when it was begun.
    pub rounds: u64,
    /// Clusters that it found.
    pub clusters: u64,
}

impl From<Placement> for PlacementCard {
    fn from(placement: Placement) -> Self {
        let places = placement.places.into_iter().map(|place| PlaceCard {
            cluster: place.label,
            share: place.share,
            evidence: place.evidence,
            probability: place.probability,
        });
        Self {
            clusters: places.collect(),
            none: placement.none,
            used: placement.used,
        }
    }
}

impl ClusteringCard {
    /// What the policy says, and what the engine knows of its fits.
    pub(super) fn new(outlook: Outlook, engine: &Engine) -> Self {
        let history = outlook.history.into_iter();
        Self {
            fits: outlook.fits,
            fitted_at: outlook.fitted_at,
            fitting: engine.is_fitting(),
            fit_seconds: engine.fit_took().map(|took| took.as_secs_f64()),
            clusters: outlook.clusters as u64,
            history: history
                .map(|(rounds, clusters)| FitEntry {
                    rounds,
                    clusters: clusters as u64,
                })
                .collect(),
            unplaced: outlook.unplaced,
            effective_parameters: outlook.effective_parameters,
            noise: outlook.noise,
            gain: outlook.gain,
            used: outlook.used,
            warning: outlook.warning,
        }
    }
}
