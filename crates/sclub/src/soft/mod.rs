//! `sclub-soft`: users belong to clusters by probability, and only where that predicts better.

mod background;
mod belief;
mod fit;
mod mixture;
mod panel;
mod params;
mod search;
mod sums;
mod symmetric;

pub use params::SoftParams;

use crate::digest::Digest;
use crate::error::{Error, check_dim};
use crate::items::{GROUP, Group, ItemSet};
use crate::kernels::{self, Batch, LANES, Scoring};
use crate::policy::{
    Change, ClusterId, Decision, Observation, Policy, Score, UserId, check_items, check_round,
};
use crate::refit::Alone;
use crate::roster::Roster;
use crate::statistics::{Blocks, Shape};
use belief::{Belief, Model};
use fit::{Fit, Job};
use sums::{Layout, Sums};

/// Least weight of a hypothesis that is asked about an item.
const HEARD: f64 = 1e-5;

/// Recommends from a mixture of clusters and a background.
pub struct SclubSoft {
    params: SoftParams,
    layout: Layout,
    roster: Roster,
    sums: Sums,
    blocks: Blocks,
    beliefs: Vec<Belief>,
    model: Option<Model>,
    fit: Option<Fit>,
    rounds: u64,
    due: u64,
    /// By how many nats clusters predict better.
    gain: f64,
    /// Probability that clusters are worth playing.
    trust: f64,
    scaled: Vec<f64>,
}

impl SclubSoft {
    /// Nobody is known, nothing is learned.
    ///
    /// # Errors
    /// [`Error::Dimension`], [`Error::BadParameter`].
    pub fn new(dim: usize, params: &SoftParams) -> Result<Self, Error> {
        params.check()?;
        let layout = Layout {
            dim: check_dim(dim)?,
        };
        Ok(Self {
            params: *params,
            layout,
            roster: Roster::default(),
            sums: Sums::new(layout),
            blocks: Blocks::new(Shape { dim }),
            beliefs: Vec::new(),
            model: None,
            fit: None,
            rounds: 0,
            due: 32.min(params.first),
            gain: 0.0,
            trust: 0.0,
            scaled: vec![0.0; dim],
        })
    }

    fn refit_now(&mut self) {
        let job = Job {
            sums: self.sums.clone(),
            params: self.params,
            rounds: self.rounds,
            before: self.fit.take(),
        };
        let fit = job.run(&Alone);
        drop(job);
        self.install(fit);
    }

    fn install(&mut self, fit: Fit) {
        let model = Model::new(self.layout, &fit, self.params.v_scale);
        if self.params.gate > 0.0 {
            self.trust = 1.0 / (1.0 + libm::exp(-self.gain / self.params.gate));
            if self.gain <= 0.0 {
                self.trust = 0.0;
            }
            self.gain *= 0.5;
        } else {
            self.trust = 1.0;
        }
        let mut batch = Batch::new(self.layout.dim);
        let slots: Vec<usize> = (0..self.sums.len()).collect();
        for eight in slots.chunks(LANES) {
            let rows: Vec<&[f64]> = eight.iter().map(|&slot| self.sums.row(slot)).collect();
            let (blocks, beliefs) = (&mut self.blocks, &mut self.beliefs);
            model.believe(fit.number, &rows, &mut batch, &mut |lane, block, belief| {
                blocks.get_mut(eight[lane]).copy_from_slice(block);
                beliefs[eight[lane]] = belief;
            });
        }
        let next = (self.rounds as f64 * self.params.growth).ceil() as u64;
        self.due = next.max(if self.rounds < self.params.first {
            (2 * self.rounds).min(self.params.first)
        } else {
            self.rounds + 1
        });
        if std::env::var("SOFT_LOG").is_ok() {
            eprintln!(
                "tau {} v {:.4} K {} played {} none {:.3} gain {:.1} trust {:.2} trC {:.4}",
                self.rounds,
                fit.noise,
                fit.mixture.centres.len(),
                fit.played.centres.len(),
                fit.played.none,
                self.gain * 2.0,
                self.trust,
                symmetric::trace(self.layout.dim, &fit.background.covariance)
            );
        }
        self.model = Some(model);
        self.fit = Some(fit);
    }

    fn scores(&self, block: &[f64], belief: &Belief, group: Group<'_>, out: &mut Scores) {
        let Some(model) = &self.model else {
            out.score[..group.width].fill(0.0);
            return;
        };
        let width = group.width;
        let view = model.shape.view(block);
        let trust = self.trust;
        let none = 1.0 - trust * (1.0 - belief.weights[0]);
        let mut second = [0.0; GROUP];
        let mut one = [0.0; GROUP];
        out.mean[..width].fill(0.0);
        out.width[..width].fill(0.0);
        if none > HEARD {
            kernels::score(Scoring {
                factor: view.factor,
                scale: view.scale,
                estimate: view.estimate,
                items: group.features,
                mean: &mut one[..width],
                norm: &mut out.width[..width],
            });
            for l in 0..width {
                out.mean[l] = none * one[l];
                second[l] = none * one[l] * one[l];
                out.width[l] *= none;
            }
        }
        if trust > 0.0 {
            let means = model.means.chunks_exact(self.layout.dim);
            for (&weight, mean) in belief.weights[1..].iter().zip(means) {
                let weight = trust * weight;
                if weight > HEARD {
                    kernels::means(mean, group.features, &mut one[..width]);
                    for l in 0..width {
                        out.mean[l] += weight * one[l];
                        second[l] += weight * one[l] * one[l];
                    }
                }
            }
        }
        let p = &self.params;
        let rest = trust * p.within + (1.0 - trust) * p.alone;
        for l in 0..width {
            let between = (second[l] - out.mean[l] * out.mean[l]).max(0.0);
            out.width[l] = p.between * between.sqrt() + rest * out.width[l].max(0.0).sqrt();
            out.score[l] = out.mean[l] + out.width[l];
        }
    }

    fn basis(&self, user: UserId) -> (&[f64], &Belief) {
        match (self.roster.slot(user), &self.model) {
            (Some(slot), _) => (self.blocks.get(slot), &self.beliefs[slot]),
            (None, Some(model)) => (&model.block, &model.newcomer),
            (None, None) => (self.blocks.empty(), EMPTY),
        }
    }
}

static EMPTY: &Belief = &Belief {
    fit: 0,
    logs: Vec::new(),
    weights: Vec::new(),
    log_sum: 0.0,
};

struct Scores {
    score: [f64; GROUP],
    mean: [f64; GROUP],
    width: [f64; GROUP],
}

impl Scores {
    fn new() -> Self {
        Self {
            score: [0.0; GROUP],
            mean: [0.0; GROUP],
            width: [0.0; GROUP],
        }
    }

    fn of(&self, lane: usize) -> Score {
        Score {
            score: self.score[lane],
            mean: self.mean[lane],
            width: self.width[lane],
        }
    }
}

impl Policy for SclubSoft {
    fn dim(&self) -> usize {
        self.layout.dim
    }

    fn rounds(&self) -> u64 {
        self.rounds
    }

    fn recommend(&self, user: UserId, items: &ItemSet) -> Result<Decision, Error> {
        check_items(items, self.layout.dim)?;
        let (block, belief) = self.basis(user);
        let mut scores = Scores::new();
        let mut best = Decision {
            index: 0,
            score: Score {
                score: f64::NEG_INFINITY,
                mean: 0.0,
                width: 0.0,
            },
        };
        for group in items.groups() {
            self.scores(block, belief, group, &mut scores);
            for lane in 0..group.len {
                if scores.score[lane] > best.score.score {
                    best = Decision {
                        index: group.first + lane,
                        score: scores.of(lane),
                    };
                }
            }
        }
        Ok(best)
    }

    fn explain(&self, user: UserId, items: &ItemSet, out: &mut Vec<Score>) -> Result<(), Error> {
        check_items(items, self.layout.dim)?;
        let (block, belief) = self.basis(user);
        out.clear();
        let mut scores = Scores::new();
        for group in items.groups() {
            self.scores(block, belief, group, &mut scores);
            out.extend((0..group.len).map(|lane| scores.of(lane)));
        }
        Ok(())
    }

    fn learn_round(
        &mut self,
        round: &[Observation<'_>],
        _changes: &mut Vec<Change>,
    ) -> Result<(), Error> {
        check_round(round, self.layout.dim)?;
        self.roster.check_room(round)?;
        self.rounds += 1;
        for observation in round {
            let slot = match self.roster.slot(observation.user) {
                Some(slot) => slot,
                None => {
                    self.sums.push();
                    self.blocks.push();
                    let slot = self.roster.admit(observation.user);
                    match &self.model {
                        Some(model) => {
                            self.blocks.get_mut(slot).copy_from_slice(&model.block);
                            self.beliefs.push(model.newcomer.clone());
                        }
                        None => self.beliefs.push(Belief::default()),
                    }
                    slot
                }
            };
            self.sums
                .observe(slot, observation.item, observation.reward, 1.0);
            if let Some(model) = &self.model {
                self.gain += model.observe(
                    self.blocks.get_mut(slot),
                    &mut self.beliefs[slot],
                    observation.item,
                    &mut self.scaled,
                    observation.reward,
                );
            }
        }
        if self.params.inline && self.rounds >= self.due && self.sums.len() > 0 {
            self.refit_now();
        }
        Ok(())
    }

    fn cluster_of(&self, user: UserId) -> ClusterId {
        let Some(model) = &self.model else {
            return 0;
        };
        let (_, belief) = self.basis(user);
        let best = (1..belief.weights.len())
            .max_by(|&a, &b| belief.weights[a].total_cmp(&belief.weights[b]));
        best.map_or(0, |k| model.labels[k - 1])
    }

    fn clusters(&self) -> usize {
        self.fit.as_ref().map_or(0, |fit| fit.mixture.centres.len())
    }

    fn estimate(&self, user: UserId) -> Vec<f64> {
        let (block, _) = self.basis(user);
        self.blocks_shape().view(block).estimate.to_vec()
    }

    fn digest(&self) -> u64 {
        Digest::new().word(self.rounds).finish()
    }
}

impl SclubSoft {
    fn blocks_shape(&self) -> Shape {
        Shape {
            dim: self.layout.dim,
        }
    }
}
