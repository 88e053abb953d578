//! JSON types for a policy's explanations of its clusters.

use sclub::{Outlook, Placement};
use serde::Serialize;
use utoipa::ToSchema;

use crate::engine::Engine;

/// The posterior over a user's cluster.
#[derive(Debug, Serialize, ToSchema)]
pub struct PlacementCard {
    /// The clusters, the most probable first.
    pub clusters: Vec<PlaceCard>,
    /// The probability that the user is in none of them.
    pub none: f64,
    /// True if the clusters have at least half of the weight in recommendations. The rest has what all users
    /// have in common with the user's own rewards.
    pub used: bool,
}

/// The posterior probability of one cluster for a user, and what it is computed from.
#[derive(Debug, Serialize, ToSchema)]
pub struct PlaceCard {
    /// The cluster's label.
    pub cluster: u64,
    /// The prior probability: the cluster's share of all users.
    pub share: f64,
    /// The log-likelihood ratio of the user's rewards: in this cluster against in none.
    pub evidence: f64,
    /// The posterior probability.
    pub probability: f64,
}

/// The clustering as a whole, as of its last fit unless a field says otherwise.
#[derive(Debug, Serialize, ToSchema)]
pub struct ClusteringCard {
    /// The number of fits so far.
    pub fits: u64,
    /// The number of rounds learned when the last fit was begun.
    pub fitted_at: u64,
    /// True if a fit is being computed now.
    pub fitting: bool,
    /// The time that the last fit took to compute; null if there was none since the server started.
    pub fit_seconds: Option<f64>,
    /// The number of clusters.
    pub clusters: u64,
    /// The number of clusters, fit by fit. Old fits are thinned out.
    pub history: Vec<FitEntry>,
    /// The share of the users for whom no cluster has a probability of one half or more.
    pub unplaced: f64,
    /// The effective number of parameters that the rewards have determined: between 0 and users times
    /// features.
    pub effective_parameters: f64,
    /// The estimated variance of a reward around its mean.
    pub noise: f64,
    /// The gain in log-likelihood, in nats, of predicting rewards with clusters over without, older rewards
    /// discounted; as of now.
    pub gain: f64,
    /// True if the clusters have at least half of the weight in recommendations; as of now.
    pub used: bool,
    /// A warning for operators, such as that clustering does not improve predictions.
    pub warning: Option<String>,
}

/// An earlier fit.
#[derive(Debug, Serialize, ToSchema)]
pub struct FitEntry {
    /// The number of rounds learned when it was begun.
    pub rounds: u64,
    /// The number of clusters that it found.
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
    /// Combines the policy's summary with the engine's record of its fits.
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
