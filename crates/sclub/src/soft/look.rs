//! Reports for inspection: the clusters that a user may belong to, and the state of the clustering.

use super::belief::Belief;
use super::{Basis, SclubSoft, Served};
use crate::policy::{ClusterId, UserId};
use crate::refit::{Outlook, Place, Placement};

/// The minimum trust for clusters to count as used.
const MIN_TRUST: f64 = 0.5;

impl Served {
    /// The cluster of the best mixture with the largest weight; 0 if the background has more.
    pub(super) fn most_probable(&self, belief: &Belief) -> ClusterId {
        let count = self.fit.mixture.centres.len();
        let weights = &belief.weights;
        let best = (0..=count).fold(
            0,
            |best, k| {
                if weights[k] > weights[best] { k } else { best }
            },
        );
        if best == 0 {
            0
        } else {
            self.model.labels[best - 1]
        }
    }
}

impl SclubSoft {
    /// True if clusters have at least half of the weight.
    fn uses_clusters(&self) -> bool {
        self.clusters_found() > 0 && self.trust() >= MIN_TRUST
    }

    fn clusters_found(&self) -> usize {
        let served = self.served.as_ref();
        served.map_or(0, |served| served.fit.mixture.centres.len())
    }

    /// Probabilities within the best mixture. The other mixtures that recommendations use are left out.
    pub(super) fn place(&self, user: UserId) -> Option<Placement> {
        let Basis { served, belief, .. } = self.basis(user)?;
        let mixture = &served.fit.mixture;
        let evidence = |k: usize| belief.logs[k] - served.model.log_shares[k];
        let shares = std::iter::once(mixture.none).chain(mixture.centres.iter().map(|c| c.share));
        let mut weights: Vec<f64> = shares
            .enumerate()
            .map(|(k, share)| libm::log(share) + evidence(k))
            .collect();
        super::mixture::normalise(&mut weights);
        let mut places: Vec<Place> = mixture
            .centres
            .iter()
            .zip(&weights[1..])
            .enumerate()
            .map(|(k, (centre, &probability))| Place {
                label: centre.label,
                share: centre.share,
                evidence: evidence(k + 1) - evidence(0),
                probability,
            })
            .collect();
        places.sort_by(|a, b| b.probability.total_cmp(&a.probability));
        Some(Placement {
            places,
            none: weights[0],
            used: self.uses_clusters(),
        })
    }

    pub(super) fn look(&self) -> Option<Outlook> {
        let served = self.served.as_ref()?;
        let fit = &served.fit;
        let found = fit.mixture.centres.len();
        Some(Outlook {
            fits: served.number,
            fitted_at: fit.rounds,
            clusters: found,
            history: self.history.clone(),
            unplaced: fit.unplaced,
            effective_parameters: fit.effective,
            noise: fit.noise,
            gain: self.whole_gain(),
            used: self.uses_clusters(),
            warning: self.warning(found),
        })
    }

    fn warning(&self, found: usize) -> Option<String> {
        if !self.params.clusters {
            return None;
        }
        if found == 0 {
            return Some(
                "no clusters found: recommendations use what all users have in common and each \
                 user's own observations"
                    .into(),
            );
        }
        if self.uses_clusters() {
            return None;
        }
        let (gain, caution) = (self.whole_gain(), self.caution());
        Some(if gain < 0.0 {
            format!(
                "clustering buys nothing: recent rewards were {:.1} nats less likely with clusters \
                 than without, so they have little weight in recommendations",
                -gain
            )
        } else {
            format!(
                "clustering buys little: recent rewards were {gain:.1} nats more likely with \
                 clusters than without; they get half of the weight at {caution:.1} nats"
            )
        })
    }
}
