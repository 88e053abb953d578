//! RSCLUMB: SCLUB for users whose tastes are linear up to an error of at most ε* for each item.
//!
//! After Wang, Xie, Liu, Li and Lui, "Online Clustering of Bandits with Misspecified User Models", NeurIPS 2023
//! (arXiv 2310.02717). The constants of `released` are those of the authors' public code
//! (XJ34/Clustering-of-bandits-with-misspecified-user-models).
//!
//! It is SCLUB with three changes:
//! 1. Frequencies of users are not compared.
//! 2. A user leaves a cluster if ‖θ̂_i − θ̃‖ > α₁ (F(T_i) + F(T̃)) + α₂ ε*. Clusters merge below half of that.
//! 3. The score of an item x has a second bonus, ε* Σ_s |xᵀS⁻¹x_s| over the past items x_s of the cluster.
//!
//! **Decisions**
//! - The second bonus is not the sum itself, which needs all past items, but its upper bound by Cauchy and Schwarz:
//!   ε* √(N xᵀS⁻¹(S − I)S⁻¹x), with N observations in the cluster. It is at most ε* √N ‖x‖ in the norm of S⁻¹.
//! - The public code loses the history, and with it the second bonus, when a cluster splits or merges, and keeps the
//!   double counting of SCLUB's code. Here the sums of a cluster are always those of its users; `--history none` is without
//!   the second bonus.
//! - β of `released` is the public code's 2, with the squared norm. `tuned` has SCLUB's growing β.
//!
//! **Cost**: SCLUB's memory and time, and twice SCLUB's time to score an item: O(L d²) for L candidates.

use super::past_items;
use crate::base::Base;
use crate::digest::Digest;
use crate::error::Error;
use crate::items::{GROUP, Group};
use crate::params::{self, Params};
use crate::policy::{Change, ClusterId, Observation, Policy, UserId, rank_by_scorer};
use crate::sclub::Sclub;
use crate::spec::{Abilities, Constant, Preset, Range, Spec, Value};
use crate::ucb::{Ranking, Scores};

/// ε* of the preset `tuned`.
const TUNED_ERROR: f64 = 0.01;
/// α₂ of the preset `tuned`.
const TUNED_ALPHA_ERROR: f64 = 1.5;

struct Rsclumb {
    base: Sclub,
    ranking: Ranking,
    /// ε* in the bonus.
    error: f64,
    /// α₂ ε*
    slack: f64,
}

impl Rsclumb {
    /// The scorer of groups of items for a user.
    fn scorer(&self, user: UserId) -> impl FnMut(Group<'_>, &mut Scores) {
        let (view, count) = self.base.sums(user);
        let beta = self.base.beta(count);
        let scale = self.error * (count as f64).sqrt();
        let mut solved = vec![0.0; self.dim() * GROUP];
        move |group, scores| {
            self.ranking.fill(view, beta, group, scores);
            if scale > 0.0 {
                let spread = past_items::spread(view, &group, &mut solved);
                past_items::add_bonus(scores, scale, &spread[..group.width]);
            }
        }
    }
}

impl Policy for Rsclumb {
    fn dim(&self) -> usize {
        self.base.dim()
    }

    fn rounds(&self) -> u64 {
        self.base.rounds()
    }

    rank_by_scorer!();

    fn learn_round(
        &mut self,
        round: &[Observation<'_>],
        changes: &mut Vec<Change>,
    ) -> Result<(), Error> {
        self.base.learn_round(round, changes)
    }

    fn cluster_of(&self, user: UserId) -> Option<ClusterId> {
        self.base.cluster_of(user)
    }

    fn clusters(&self) -> usize {
        self.base.clusters()
    }

    fn estimate(&self, user: UserId) -> Option<Vec<f64>> {
        self.base.estimate(user)
    }

    fn state_bytes(&self) -> Option<u64> {
        self.base.state_bytes()
    }

    fn digest(&self) -> u64 {
        let base = Digest::new().word(self.base.digest());
        base.numbers(&[self.error, self.slack]).finish()
    }
}

/// `rsclumb`
pub static SPEC: Spec = Spec {
    name: "rsclumb",
    title: "RSCLUMB",
    summary: "SCLUB without frequencies, robust to tastes that are not quite linear",
    citation: "after Wang, Xie, Liu, Li and Lui, NeurIPS 2023",
    colors: ["#8F3B76", "#D88BC2"],
    revision: 1,
    presets: &[Preset::Tuned, Preset::Released],
    constants: &[
        params::ALPHA_THETA,
        Constant::new(
            "alpha_error",
            "The share of the error that two estimates may differ by beyond their radii",
            Range::NOT_NEGATIVE,
            |preset, _| {
                Ok(Value::Number(match preset {
                    Preset::Released => 1.5,
                    _ => TUNED_ALPHA_ERROR,
                }))
            },
        ),
        Constant::new(
            "error",
            "The largest difference between a user's mean reward of an item and a linear one (epsilon*)",
            Range::NOT_NEGATIVE,
            |preset, _| {
                Ok(Value::Number(match preset {
                    Preset::Released => 0.2,
                    _ => TUNED_ERROR,
                }))
            },
        ),
        Constant {
            default: |preset, setup| match preset {
                Preset::Released => Ok(Value::Number(2.0)),
                _ => (params::BETA.default)(preset, setup),
            },
            ..params::BETA
        },
        Constant {
            default: |preset, setup| match preset {
                Preset::Released => Ok(Value::Unset),
                _ => (params::BETA_SCALE.default)(preset, setup),
            },
            ..params::BETA_SCALE
        },
        params::INDEX,
        Constant {
            range: Range::OneOf(&["bound", "none"]),
            default: |_, _| Ok(Value::Choice("bound")),
            ..past_items::HISTORY
        },
    ],
    can: Abilities {
        regroups: true,
        ..Abilities::NONE
    },
    new: |setup, values| {
        let params = Params {
            // No two frequencies disagree.
            alpha_p: f64::MAX,
            ..Params::from_values(values)
        };
        let error = values.number("error").unwrap_or(0.0);
        let slack = values.number("alpha_error").unwrap_or(0.0) * error;
        let has_bonus = values.choice(past_items::HISTORY.name) != "none";
        Ok(Box::new(Rsclumb {
            base: Sclub::with_slack(setup.dim, setup.users, &params, slack)?,
            ranking: Ranking::new(setup.dim, &params),
            error: if has_bonus { error } else { 0.0 },
            slack,
        }))
    },
    load: None,
    gather: None,
};
