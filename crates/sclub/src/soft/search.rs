//! The search for clusters: births, merges, prunes.

use super::background::Background;
use super::mixture::{Centre, Expectation, Mixture};
use super::panel::Panel;
use super::params::SoftParams;
use super::sums::Layout;
use crate::digest::mix;
use crate::kernels::batch::Posteriors;
use crate::kernels::{self, Batch};
use crate::policy::ClusterId;
use crate::refit::Workers;

/// A mixture with what users say about it.
pub(crate) struct Found {
    pub mixture: Mixture,
    pub expected: Expectation,
    /// J less what the background's parameters cost where it is used.
    pub score: f64,
}

/// What a search works with.
pub(crate) struct Search<'a> {
    pub panel: Panel<'a>,
    pub background: &'a Background,
    /// L_0 of each user of the panel.
    pub evidence: &'a [f64],
    pub noise: f64,
    pub params: &'a SoftParams,
    pub workers: &'a dyn Workers,
    pub next_label: ClusterId,
    pub draws: Draws,
}

/// Numbers that look random and are fixed by a seed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Draws(pub u64);

impl Draws {
    /// In [0, 1).
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(1);
        (mix(mix(self.0)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

impl Search<'_> {
    fn layout(&self) -> Layout {
        self.panel.layout()
    }

    fn expect(&self, mixture: &Mixture, detail: bool) -> Expectation {
        mixture.expect(&self.panel, self.evidence, self.noise, detail, self.workers)
    }

    fn steps(&self, mut mixture: Mixture, steps: usize) -> Mixture {
        for _ in 0..steps {
            let expected = self.expect(&mixture, false);
            mixture = mixture.maximise(self.layout(), self.background, self.noise, &expected);
        }
        mixture
    }

    /// J = Σ_i ln Σ_k π_k e^{L_ik} − Σ_k Occam_k, less d(d+3)/2 · π_0.
    fn score(&self, mixture: &Mixture, expected: &Expectation, prices: &[f64]) -> f64 {
        let dim = self.layout().dim as f64;
        expected.total - prices.iter().sum::<f64>() - dim * (dim + 3.0) / 2.0 * mixture.none
    }

    /// Merges and prunes until neither pays.
    fn tidy(&self, mut mixture: Mixture) -> Found {
        loop {
            let expected = self.expect(&mixture, true);
            let (layout, background, noise) = (self.layout(), self.background, self.noise);
            let prices = mixture.prices(layout, background, noise, &expected);
            let users = expected.none.len() as f64;
            let mut useless: Vec<(f64, usize)> = (0..mixture.centres.len())
                .map(|k| {
                    let share = mixture.centres[k].share;
                    let gain = prices[k] - expected.explains[k] - users * libm::log1p(-share);
                    (gain, k)
                })
                .filter(|&(gain, _)| gain > 0.0)
                .collect();
            useless.sort_by(|a, b| b.0.total_cmp(&a.0));
            useless.truncate(useless.len().div_ceil(3));
            let merges = mixture.merges(layout, background, noise, &expected, &prices);
            let mut next = mixture.clone();
            let mut gone: Vec<usize> = Vec::new();
            for (a, b, mean) in merges {
                let (kept, lost) = if mixture.centres[a].share >= mixture.centres[b].share {
                    (a, b)
                } else {
                    (b, a)
                };
                next.centres[kept].mean = mean;
                next.centres[kept].share += next.centres[lost].share;
                gone.push(lost);
            }
            if gone.is_empty() {
                if useless.is_empty() {
                    let score = self.score(&mixture, &expected, &prices);
                    return Found {
                        mixture,
                        expected,
                        score,
                    };
                }
                let mut gone: Vec<usize> = useless.into_iter().map(|(_, k)| k).collect();
                gone.sort_unstable();
                gone.iter().rev().for_each(|&k| next = next.without(k));
            } else {
                gone.sort_unstable();
                gone.iter().rev().for_each(|&k| {
                    next.centres.remove(k);
                });
            }
            mixture = self.steps(next, 1);
        }
    }

    /// As good as EM, merges and prunes make it.
    pub fn refine(&self, mixture: Mixture, steps: usize) -> Found {
        let found = self.tidy(self.steps(mixture, steps));
        self.tidy(self.steps(found.mixture, 4))
    }

    /// A mixture with clusters at the posterior means of users drawn by weight.
    pub fn born(&mut self, mixture: &Mixture, weight: impl Fn(usize) -> f64) -> Option<Mixture> {
        let slots = self.panel.slots();
        let mut ends = Vec::with_capacity(slots.len());
        let mut whole = 0.0;
        for place in 0..slots.len() {
            whole += weight(place);
            ends.push(whole);
        }
        if whole <= 0.0 {
            return None;
        }
        let mut places: Vec<usize> = (0..self.params.seeds)
            .map(|_| {
                let at = self.draws.next() * whole;
                ends.partition_point(|&end| end <= at).min(slots.len() - 1)
            })
            .collect();
        places.sort_unstable();
        places.dedup();
        let dim = self.layout().dim;
        let share = mixture.none / (places.len() + 1) as f64;
        let mut next = mixture.clone();
        next.none = share;
        let mut batch = Batch::new(dim);
        for place in places {
            let row = self.panel.row(slots[place]);
            kernels::posteriors(Posteriors {
                dim,
                prior: self.background.prior(self.noise),
                rows: &[row],
                batch: &mut batch,
            });
            next.centres.push(Centre {
                label: self.next_label,
                mean: batch.mean.iter().map(|lanes| lanes[0]).collect(),
                share,
            });
            self.next_label += 1;
        }
        Some(next)
    }

    /// n of a user of the panel.
    fn count(&self, place: usize) -> f64 {
        let slot = self.panel.slots()[place];
        self.panel.row(slot)[self.layout().count()]
    }

    /// From a mixture that was, to the best found near it; with `more`, also with clusters born among
    /// those who are in none. Says whether any of those stayed.
    pub fn warm(&mut self, before: &Mixture, more: bool) -> (Found, bool) {
        let mut best = self.refine(before.clone(), 6);
        let mut grew = false;
        for _ in 0..if more { 2 } else { 0 } {
            let free: f64 = best.expected.none.iter().sum();
            if free < 3.0 {
                break;
            }
            let weights: Vec<f64> = (best.expected.none.iter().enumerate())
                .map(|(place, w)| w * self.count(place))
                .collect();
            let Some(born) = self.born(&best.mixture, |place| weights[place]) else {
                break;
            };
            let tried = self.refine(born, 15);
            if tried.score <= best.score {
                break;
            }
            best = tried;
            grew = true;
        }
        (best, grew)
    }

    /// From nothing.
    pub fn cold(&mut self) -> Option<Found> {
        let counts: Vec<f64> = (0..self.panel.len())
            .map(|place| self.count(place))
            .collect();
        let born = self.born(&Mixture::none(), |place| counts[place])?;
        Some(self.refine(born, 20))
    }
}
