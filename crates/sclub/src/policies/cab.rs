//! CAB: neighbours of a user anew for each item.
//!
//! Each user has an estimate and a confidence width for each item. For an item, the neighbours of a user are the users
//! whose means lie within the sum of the two widths of the user's own. The item is scored by the average mean plus the
//! average width of the neighbours. A reward of an item about which the user is sure is learned by all neighbours who
//! are sure about it too. There are no clusters to keep: users may agree about one item and not about another.
//!
//! After Gentile, Li, Kar, Karatzoglou, Zappella and Etrue: "On Context-Dependent Clustering of Bandits", ICML 2017.
//! The steps were recalled, not read in the authors' code, which was not found; an independent port agrees.
//!
//! # Decisions
//! - The width is CB_j(x) = α √ln(t + 1) ‖x‖_j (`log_index.rs`).
//! - A user is sure about an item if their width is below γ/4. Widths and neighbours are those before the reward.
//! - Where γ/4 is above the widths of the first round, all declared users are sure from the start. They all learn the
//!   first reward, stay alike for ever, and CAB is LinUCB with one estimate for all.
//! - Declared users exist from the start, with the estimate 0, and can be neighbours before they appear. Other users
//!   exist from their first reward. A user who does not exist yet is their own neighbour.
//! - Observations of one round are learned one after another.
//! - Users are not sampled: the published port looks at a fifth of them, and at those who have been seen often.
//! - `estimate` reports the user's own estimate. There is no `cluster_of`.
//! - An observation enters the sums of several users, so that a user cannot be forgotten.
//!
//! # Cost
//! Memory d(d + 5)/2 numbers a user, declared ones included. A recommendation takes O(n L d²) for n users and L items,
//! since the average width needs the width of every neighbour. A reward takes O(d²) while the user is not sure about
//! the item; else O(n d) to rule out users by their means, and O(d²) for each other.

use std::io;

use super::crowd::Crowd;
use super::log_index::{self, Factor};
use crate::bytes::{self, Save, Writer};
use crate::error::{Error, check_dim};
use crate::items::{GROUP, Group};
use crate::kernels::{self, Poll, Scoring};
use crate::params::Index;
use crate::policy::{Change, Observation, Policy, UserId, check_round, rank_by_scorer};
use crate::spec::{Abilities, Constant, Preset, Range, Setup, Spec, Value, Values};
use crate::statistics::{Shape, View};
use crate::ucb::Scores;

struct Cab {
    shape: Shape,
    factor: Factor,
    index: Index,
    gamma: f64,
    rounds: u64,
    crowd: Crowd,
}

impl Cab {
    fn new(setup: &Setup<'_>, values: &Values) -> Result<Self, Error> {
        let shape = Shape {
            dim: check_dim(setup.dim)?,
        };
        Ok(Self {
            shape,
            factor: Factor::from_values(values),
            index: log_index::index(values),
            gamma: values.number(GAMMA.name).unwrap_or(0.0),
            rounds: 0,
            crowd: Crowd::new(shape, setup.users)?,
        })
    }

    /// The averages over the neighbours of a user, for each item of a group.
    fn fill(&self, slot: Option<usize>, weight: f64, group: Group<'_>, scores: &mut Scores) {
        let width = group.width;
        scores.fill(self.index, self.crowd.view(slot), weight, group);
        let (own_mean, own_width) = (scores.mean, scores.width);
        let (mut mean, mut norm) = ([0.0; GROUP], [0.0; GROUP]);
        // The user is their own neighbour.
        let mut users = [1.0; GROUP];
        for other in (0..self.crowd.len()).filter(|&other| Some(other) != slot) {
            let View {
                factor,
                scale,
                estimate,
                ..
            } = self.crowd.view(Some(other));
            kernels::poll(Poll {
                scoring: Scoring {
                    factor,
                    scale,
                    estimate,
                    items: group.features,
                    mean: &mut mean[..width],
                    norm: &mut norm[..width],
                },
                weight,
                is_squared: self.index == Index::SquaredNorm,
                own_mean: &own_mean[..width],
                own_width: &own_width[..width],
                users: &mut users[..width],
                means: &mut scores.mean[..width],
                widths: &mut scores.width[..width],
            });
        }
        for (lane, users) in users[..width].iter().enumerate() {
            scores.mean[lane] /= users;
            scores.width[lane] /= users;
            scores.score[lane] = scores.mean[lane] + scores.width[lane];
        }
    }

    fn update(&mut self, observation: &Observation<'_>, weight: f64) {
        let Observation {
            user, item, reward, ..
        } = *observation;
        let slot = match self.crowd.slot(user) {
            Some(slot) => slot,
            None => self.crowd.admit(user),
        };
        let sure = self.gamma / 4.0;
        let own_mean = self.crowd.mean(slot, item);
        let own_width = self.crowd.width(slot, item, self.index, weight);
        if own_width < sure {
            for other in (0..self.crowd.len()).filter(|&other| other != slot) {
                // Of those who are sure, none farther off can be a neighbour.
                let gap = (self.crowd.mean(other, item) - own_mean).abs();
                if gap > own_width + sure {
                    continue;
                }
                let width = self.crowd.width(other, item, self.index, weight);
                if width < sure && gap <= own_width + width {
                    self.crowd.observe(other, item, reward);
                }
            }
        }
        self.crowd.observe(slot, item, reward);
    }
}

impl Cab {
    /// The scorer of groups of items for a user.
    fn scorer(&self, user: UserId) -> impl FnMut(Group<'_>, &mut Scores) {
        let (slot, weight) = (self.crowd.slot(user), self.factor.after(self.rounds));
        move |group, scores| self.fill(slot, weight, group, scores)
    }
}

impl Policy for Cab {
    fn dim(&self) -> usize {
        self.shape.dim
    }

    fn rounds(&self) -> u64 {
        self.rounds
    }

    rank_by_scorer!();

    fn learn_round(
        &mut self,
        round: &[Observation<'_>],
        _changes: &mut Vec<Change>,
    ) -> Result<(), Error> {
        check_round(round, self.shape.dim)?;
        self.crowd.check_room(round)?;
        let weight = self.factor.after(self.rounds);
        self.rounds += 1;
        for observation in round {
            self.update(observation, weight);
        }
        Ok(())
    }

    fn estimate(&self, user: UserId) -> Option<Vec<f64>> {
        Some(self.crowd.view(self.crowd.slot(user)).estimate.to_vec())
    }

    fn digest(&self) -> u64 {
        bytes::digest(self)
    }

    fn state_bytes(&self) -> Option<u64> {
        Some(bytes::length(self))
    }
}

impl Save for Cab {
    const MAGIC: u64 = u64::from_le_bytes(*b"sclub ca");

    fn save_words(&self, writer: &mut Writer<'_>) -> io::Result<()> {
        writer.word(self.rounds)?;
        self.crowd.save(writer)
    }
}

/// α and γ.
const TUNED: [f64; 2] = [0.2, 0.2];
const RELEASED: [f64; 2] = [1.0, 0.2];

const fn of(preset: Preset) -> [f64; 2] {
    match preset {
        Preset::Released => RELEASED,
        _ => TUNED,
    }
}

const ALPHA: Constant = Constant {
    default: |preset, _| Ok(Value::Number(of(preset)[0])),
    ..log_index::ALPHA
};

const GAMMA: Constant = Constant::new(
    "gamma",
    "Distance between the mean rewards of users who differ about an item. A user is sure about an item if its width \
     is below X/4; neighbours who are sure learn from each other's rewards",
    Range::NOT_NEGATIVE,
    |preset, _| Ok(Value::Number(of(preset)[1])),
);

/// `cab`
pub static SPEC: Spec = Spec {
    name: "cab",
    title: "CAB",
    summary: "For each item, the average over users who agree about it",
    citation: "after Gentile et al., ICML 2017",
    colors: ["#00796B", "#4DB6AC"],
    revision: 1,
    presets: &[Preset::Tuned, Preset::Released],
    constants: &[ALPHA, log_index::BETA, log_index::INDEX, GAMMA],
    can: Abilities::NONE,
    new: |setup, values| Ok(Box::new(Cab::new(setup, values)?)),
    load: None,
    gather: None,
};
