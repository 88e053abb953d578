//! CLUB-cascade: CLUB for lists that a user reads from the top until the first click.
//!
//! After Li and Zhang, "Online Clustering of Contextual Cascading Bandits", AAAI 2018 (arXiv 1711.08594).
//!
//! Clusters are the connected components of a graph of users. In each round:
//! 1. The list has the K items with the largest U(x) = θ̂ᵀx + β ‖x‖ in falling order, with the estimate of the user's
//!    cluster and the norm of M⁻¹, M = λI + Σ x xᵀ.
//! 2. The user looks at the items from the first to the first one clicked. All of these are learned, with reward 0
//!    for those that were not clicked. T_i counts the items that the user looked at.
//! 3. An edge (i, j) of the user is cut if ‖θ̂_i − θ̂_j‖ > α (F(T_i) + F(T_j)).
//!
//! **Decisions**
//! - The paper ranks by min(1, U). That only makes ties, so items are ranked by U itself. With lists of one item and
//!   λ = 1 it is CLUB.
//! - λ is the constant `ridge`: the paper wants at least K, which a policy does not know when it is made.
//!   Items are learned as x/√λ with the radius α √λ, which gives the same clusters and scores as λI in place of I.
//! - A click is a reward above 0. If it is not known how many items the user looked at, they are those up to the first
//!   click, or all if there is none. Among them an item without a reward was not clicked. Items after the first click are not
//!   learned. A list of which nothing is known teaches nothing.
//! - `released` has α = 8√d, λ = 4 and the complete graph of the public code
//!   (Lowpassfilter/clastering_cascade_bandit), with SCLUB's published β. That code's errors are left out: it multiplies the
//!   bonus with a random number, takes √(1 + ln(1 + T))/(1 + T) for the radius, and counts one item too few. `--bonus
//!   random` brings the first of them back; the numbers are drawn by user, T_i and place among the candidates.
//!
//! **Cost**: CLUB's memory and time; O(K d²) more to learn a list of K items.

use crate::base::Base;
use crate::club::{Club, GRAPH};
use crate::digest::{Digest, mix};
use crate::error::Error;
use crate::items::Group;
use crate::observation::List;
use crate::params::{self, Index, Params};
use crate::policy::{
    Change, ClusterId, Observation, Policy, UserId, Why, check_round, rank_by_scorer,
};
use crate::spec::{Abilities, Constant, Preset, Range, Spec, Value};
use crate::ucb::{Ranking, Scores};

/// λ of the preset `tuned`.
const TUNED_RIDGE: f64 = 1.0;

struct Cascade {
    /// It learns x/√λ, so its estimates and distances are √λ times those of the policy.
    base: Club,
    ranking: Ranking,
    /// √λ
    root: f64,
    /// The factor of widths of items that are not scaled.
    width_scale: f64,
    /// The seed of the random factors of the bonus, if it has them.
    random_bonus: Option<u64>,
}

impl Cascade {
    /// The scorer of groups of items for a user.
    fn scorer(&self, user: UserId) -> impl FnMut(Group<'_>, &mut Scores) {
        let (view, count) = self.base.sums(user);
        let beta = self.base.beta(count);
        let (place, seen) = self.base.appearance(user);
        let draws = self
            .random_bonus
            .map(|seed| mix(mix(mix(seed) ^ place) ^ seen));
        move |group, scores| {
            self.ranking.fill(view, beta, group, scores);
            for lane in 0..group.width {
                scores.mean[lane] /= self.root;
                scores.width[lane] /= self.width_scale;
                if let Some(draws) = draws {
                    let word = mix(draws ^ (group.first + lane) as u64);
                    scores.width[lane] *= (word >> 11) as f64 / (1u64 << 53) as f64;
                }
                scores.score[lane] = scores.mean[lane] + scores.width[lane];
            }
        }
    }
}

/// The items of a list that the user looked at, with reward 0 for those not clicked.
fn looked_at<'a>(list: &List<'a>) -> impl Iterator<Item = Observation<'a>> + use<'a> {
    let is_click = |reward: Option<f64>| reward.is_some_and(|reward| reward > 0.0);
    let click = list.items.iter().position(|shown| is_click(shown.reward));
    let is_known = list.looked_at.is_some() || list.items.iter().any(|s| s.reward.is_some());
    let count = match is_known {
        true => list.looked_at.unwrap_or(list.items.len()),
        false => 0,
    };
    let count = click.map_or(count, |click| count.min(click + 1));
    let user = list.user;
    list.items.iter().take(count).map(move |shown| Observation {
        user,
        item: shown.item,
        id: shown.id,
        reward: shown.reward.unwrap_or(0.0),
    })
}

impl Policy for Cascade {
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
        check_round(round, self.dim())?;
        let features = round.iter().flat_map(|observation| observation.item);
        let scaled: Vec<f64> = features.map(|x| x / self.root).collect();
        let items = scaled.chunks_exact(self.dim());
        let round: Vec<Observation<'_>> = round
            .iter()
            .zip(items)
            .map(|(observation, item)| Observation {
                item,
                ..*observation
            })
            .collect();
        let before = changes.len();
        self.base.learn_round(&round, changes)?;
        for change in &mut changes[before..] {
            if let Change::Split { why, .. } | Change::Merge { why, .. } = change
                && let Why::Estimates(comparison) = why
            {
                comparison.distance /= self.root;
                comparison.threshold /= self.root;
            }
        }
        Ok(())
    }

    fn learn_lists(&mut self, round: &[List<'_>], changes: &mut Vec<Change>) -> Result<(), Error> {
        let observations: Vec<Observation<'_>> = round.iter().flat_map(looked_at).collect();
        self.learn_round(&observations, changes)
    }

    fn cluster_of(&self, user: UserId) -> Option<ClusterId> {
        self.base.cluster_of(user)
    }

    fn clusters(&self) -> usize {
        self.base.clusters()
    }

    fn estimate(&self, user: UserId) -> Option<Vec<f64>> {
        let estimate = self.base.sums(user).0.estimate;
        Some(estimate.iter().map(|value| value / self.root).collect())
    }

    fn state_bytes(&self) -> Option<u64> {
        self.base.state_bytes()
    }

    fn digest(&self) -> u64 {
        let base = Digest::new().word(self.base.digest());
        base.numbers(&[self.root]).finish()
    }
}

/// `club-cascade`
pub static SPEC: Spec = Spec {
    name: "club-cascade",
    title: "CLUB-cascade",
    summary: "CLUB for lists that users read up to the first click",
    citation: "after Li and Zhang, AAAI 2018",
    colors: ["#2E7D6B", "#7FC8B6"],
    revision: 1,
    presets: &[Preset::Tuned, Preset::Released],
    constants: &[
        Constant {
            default: |preset, setup| match preset {
                Preset::Released => Ok(Value::Number(8.0 * (setup.dim as f64).sqrt())),
                _ => (params::ALPHA_THETA.default)(preset, setup),
            },
            range: Range::between(f64::MIN_POSITIVE, 1e100, "above 0 and at most 10^100"),
            ..params::ALPHA_THETA
        },
        Constant::new(
            "ridge",
            "The weight of the prior in the estimates: lambda in M = lambda I + sum x x'. At least the length of the lists in theory",
            Range::between(1.0, 1e6, "from 1 to 10^6"),
            |preset, _| {
                Ok(Value::Number(match preset {
                    Preset::Released => 4.0,
                    _ => TUNED_RIDGE,
                }))
            },
        ),
        params::BETA,
        params::BETA_SCALE,
        Constant {
            // The paper and its code have the norm.
            default: |_, _| Ok(Value::Choice("norm")),
            ..params::INDEX
        },
        GRAPH,
        Constant {
            advanced: true,
            ..Constant::new(
                "bonus",
                "The bonus of an item for its uncertainty: in full, or times a random number from 0 to 1 for each item, as \
                 in the public code",
                Range::OneOf(&["full", "random"]),
                |_, _| Ok(Value::Choice("full")),
            )
        },
    ],
    can: Abilities {
        lists: true,
        regroups: true,
        ..Abilities::NONE
    },
    new: |setup, values| {
        let root = values.number("ridge").unwrap_or(1.0).sqrt();
        let own = Params::from_values(values);
        let params = Params {
            alpha_theta: own.alpha_theta * root,
            ..own
        };
        Ok(Box::new(Cascade {
            base: Club::with_params(setup, values, &params)?,
            ranking: Ranking::new(setup.dim, &params),
            root,
            width_scale: match params.index {
                Index::Norm => root,
                Index::SquaredNorm => root * root,
            },
            random_bonus: (values.choice("bonus") == "random").then_some(setup.seed),
        }))
    },
    load: None,
    gather: None,
};
