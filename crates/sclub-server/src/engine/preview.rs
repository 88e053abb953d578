//! The recommendation that a user would get now, without a decision: nothing is recorded, no number of a decision is used up, and
//! no reward can be given. It is drawn with the number of the next decision, so it is what that one will be if nothing
//! else comes first. A list that explores (`--explore-share`) is not previewed: it has no reason.

use sclub::UserId;

use super::recommend::Purpose;
use super::{Engine, RecommendQuery, Refusal};
use crate::state::Scratch;

/// A recommendation that is not made.
#[derive(Debug, Clone, PartialEq)]
pub struct Preview {
    /// The items, best first.
    pub items: Vec<PreviewItem>,
    /// The policy that serves the user: that of an experiment's arm, if one is running.
    pub policy: String,
    /// The experiment under way, and the user's arm.
    pub arm: Option<(String, String)>,
    /// The cluster that the user is served from.
    pub cluster: u64,
    /// The number of users in it.
    pub cluster_users: u64,
    /// True if the policy draws at random, so that another recommendation may differ on the same rewards.
    pub is_random: bool,
    /// The share of recommendations that explore: those are drawn uniformly from the catalogue.
    pub explore_share: f64,
}

/// An item of a preview.
#[derive(Debug, Clone, PartialEq)]
pub struct PreviewItem {
    /// Its id.
    pub id: String,
    /// Its title.
    pub title: Option<String>,
    /// The score it is ranked by.
    pub score: f64,
    /// Its expected reward.
    pub mean: f64,
    /// The exploration bonus for the uncertainty of `mean`.
    pub width: f64,
    /// Its expected reward by the user's own estimate; `None` if no reward of the user has been learned, or requests have context features.
    pub own_mean: Option<f64>,
    /// Its expected reward by the estimate of the user's cluster.
    pub cluster_mean: Option<f64>,
}

impl Engine {
    /// Previews a recommendation of `k` items of the catalogue.
    ///
    /// # Errors
    /// If there are no candidates.
    pub fn preview(&self, user: &str, k: usize) -> Result<Preview, Refusal> {
        let asked = RecommendQuery::new(user, k);
        let is_long = self.is_long(std::slice::from_ref(&asked));
        self.with_state(is_long, |state, catalogue| {
            let scratch = &mut Scratch::default();
            let chosen = self.choose(state, catalogue, &asked, Purpose::Preview, scratch)?;
            let serving = state.serving(user);
            let policy = serving.policy.map(|policy| policy.inspect());
            let whom = state.users().number(user).map(UserId::from);
            let estimates = policy.zip(whom).map(|(policy, whom)| {
                let own = policy.own_estimate(whom).unwrap_or_default();
                (own, policy.estimate(whom).unwrap_or_default())
            });
            let items = chosen.contents.shown.iter().zip(&chosen.scores);
            let items = items.map(|(shown, score)| {
                let slot = catalogue.and_then(|known| Some((known, known.slot(&shown.item)?)));
                let features = slot.map(|(known, slot)| known.features(slot));
                let mean = |estimate: &Vec<f64>| {
                    let features = features.as_ref()?;
                    let pairs = features.iter().zip(estimate);
                    (features.len() == estimate.len()).then(|| pairs.map(|(x, w)| x * w).sum())
                };
                PreviewItem {
                    id: shown.item.to_string(),
                    title: slot.and_then(|(known, slot)| known.description(slot).title.clone()),
                    score: score.score,
                    mean: score.mean,
                    width: score.width,
                    own_mean: estimates.as_ref().and_then(|(own, _)| mean(own)),
                    cluster_mean: estimates.as_ref().and_then(|(_, shared)| mean(shared)),
                }
            });
            Ok(Preview {
                items: items.collect(),
                policy: serving.identity.policy.name.to_owned(),
                arm: state.experiments().plan().map(|plan| {
                    let arm = &plan.arms[plan.arm_of(user)];
                    (plan.name.clone(), arm.name.clone())
                }),
                cluster: chosen.contents.cluster,
                cluster_users: chosen.cluster_users,
                is_random: serving.draws,
                explore_share: self.settings().explore_share,
            })
        })
    }
}
