//! The search for clusters: births, merges, prunes.

use super::background::Background;
use super::mixture::{Centre, Expectation, Mixture, UNLABELLED};
use super::panel::Panel;
use super::params::SoftParams;
use super::sums::Layout;
use crate::digest::mix;
use crate::kernels::batch::Posteriors;
use crate::kernels::{self, Batch};
use crate::refit::Workers;

/// The log evidence of an impossible hypothesis.
const IMPOSSIBLE: f64 = -1e100;
/// Steps of EM: after a fit before (warm), after births, from scratch (cold).
pub(super) const WARM_STEPS: usize = 3;
const BORN_STEPS: usize = 8;
const COLD_STEPS: usize = 10;
/// Steps of EM after merges and prunes.
const LAST_STEPS: usize = 2;
/// Steps of EM after one cluster was split in two.
const SPLIT_STEPS: usize = 10;
/// The minimum weight, in users, that the background must hold for new clusters to be tried.
const MIN_BACKGROUND_WEIGHT: f64 = 3.0;
/// A cluster of fewer users is not split.
const MIN_USERS_TO_SPLIT: usize = 6;

/// A mixture with the expectations of its users.
pub(crate) struct Found {
    pub mixture: Mixture,
    pub expected: Expectation,
    /// J less the price of the background's parameters.
    pub score: f64,
}

/// The inputs of a search for clusters.
#[derive(Clone, Copy)]
pub(crate) struct Search<'a> {
    pub panel: Panel<'a>,
    pub background: &'a Background,
    /// L_0 of each user of the panel.
    pub evidence: &'a [f64],
    pub noise: f64,
    pub params: &'a SoftParams,
    pub workers: &'a dyn Workers,
    pub draws: Draws,
}

/// A generator of random numbers, fixed by a seed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Draws(pub u64);

impl Draws {
    /// An index drawn in proportion to its weight; `None` if all weights are 0.
    fn among(&mut self, weights: &[f64]) -> Option<usize> {
        let whole: f64 = weights.iter().sum();
        let at = self.next() * whole;
        let mut end = 0.0;
        let place = weights.iter().position(|weight| {
            end += weight;
            end > at
        });
        (whole > 0.0).then(|| place.unwrap_or(weights.len() - 1))
    }

    /// A random number in [0, 1).
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

    /// Merges and prunes until neither raises the score.
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

    /// Improves a mixture by EM, merges and prunes.
    pub fn refine(&self, mixture: Mixture, steps: usize) -> Found {
        let found = self.tidy(self.steps(mixture, steps));
        self.tidy(self.steps(found.mixture, LAST_STEPS))
    }

    /// A mixture with clusters at the posterior means of users drawn by weight.
    pub fn born(&mut self, mixture: &Mixture, weight: impl Fn(usize) -> f64) -> Option<Mixture> {
        let slots = self.panel.slots();
        let weights: Vec<f64> = (0..slots.len()).map(weight).collect();
        let mut places = (0..self.params.seeds)
            .map(|_| self.draws.among(&weights))
            .collect::<Option<Vec<usize>>>()?;
        places.sort_unstable();
        places.dedup();
        let share = mixture.none / (places.len() + 1) as f64;
        let mut next = mixture.clone();
        next.none = share;
        for place in places {
            next.centres.push(Centre {
                label: UNLABELLED,
                mean: self.posterior_mean(slots[place]),
                share,
            });
        }
        Some(next)
    }

    /// n of a user of the panel.
    fn count(&self, place: usize) -> f64 {
        let slot = self.panel.slots()[place];
        self.panel.row(slot)[self.layout().count()]
    }

    /// A few EM steps of some clusters on some users: the clusters after them, and their J.
    fn local(&self, slots: &[u32], centres: Vec<Centre>, steps: usize) -> (Vec<Centre>, f64) {
        // The background is ruled out.
        let evidence = vec![IMPOSSIBLE; slots.len()];
        let here = Search {
            panel: self.panel.of(slots),
            evidence: &evidence,
            ..*self
        };
        let mut mixture = Mixture {
            centres,
            none: f64::MIN_POSITIVE,
        };
        let whole: f64 = mixture.centres.iter().map(|centre| centre.share).sum();
        mixture.centres.iter_mut().for_each(|c| c.share /= whole);
        mixture = here.steps(mixture, steps);
        let expected = here.expect(&mixture, true);
        let prices = mixture.prices(here.layout(), self.background, self.noise, &expected);
        let score = expected.total - prices.iter().sum::<f64>();
        (mixture.centres, score)
    }

    /// Two clusters in place of one, if that raises the score of the users in it by more than 1.
    fn split(&mut self, centre: &Centre, slots: &[u32]) -> Option<(Centre, Centre)> {
        let (_, whole) = self.local(slots, vec![centre.clone()], 1);
        // Not in proportion to observations: users with many are close to the centre already.
        let seed = self.draws.among(&vec![1.0; slots.len()])?;
        let other = Centre {
            label: UNLABELLED,
            mean: self.posterior_mean(slots[seed]),
            share: centre.share,
        };
        let (parts, score) = self.local(slots, vec![centre.clone(), other], SPLIT_STEPS);
        let [mut a, mut b] = <[Centre; 2]>::try_from(parts).ok()?;
        (score > whole + 1.0).then(|| {
            a.share *= centre.share;
            b.share *= centre.share;
            (a, b)
        })
    }

    /// One cluster in place of two, if that does not lower the score of the users in them.
    fn join(&self, a: &Centre, b: &Centre, slots: &[u32]) -> Option<Centre> {
        let (_, apart) = self.local(slots, vec![a.clone(), b.clone()], 1);
        let mut both = if a.share >= b.share {
            a.clone()
        } else {
            b.clone()
        };
        both.share = a.share + b.share;
        let share = both.share;
        let (mut one, together) = self.local(slots, vec![both], 2);
        let mut one = one.pop()?;
        one.share = share;
        (together >= apart).then_some(one)
    }

    /// Splits and joins clusters as long as that raises the score.
    fn rearrange(&mut self, mut best: Found) -> Found {
        for _ in 0..3 {
            let mut members = vec![Vec::new(); best.mixture.centres.len() + 1];
            for (&slot, &most) in self.panel.slots().iter().zip(&best.expected.most) {
                members[most as usize].push(slot);
            }
            let mut next = best.mixture.clone();
            let mut fresh = Vec::new();
            for k in 0..best.mixture.centres.len() {
                if members[k + 1].len() < MIN_USERS_TO_SPLIT {
                    continue;
                }
                let centre = next.centres[k].clone();
                if let Some((a, b)) = self.split(&centre, &members[k + 1]) {
                    next.centres[k] = a;
                    fresh.push(b);
                }
            }
            let count = next.centres.len();
            let mut gone = vec![false; count];
            let dim = self.layout().dim;
            if fresh.is_empty() {
                for (a, b) in next.pairs(dim, self.background, count) {
                    if gone[a] || gone[b] {
                        continue;
                    }
                    let slots = [&members[a + 1][..], &members[b + 1][..]].concat();
                    if slots.is_empty() {
                        continue;
                    }
                    if let Some(one) = self.join(&next.centres[a], &next.centres[b], &slots) {
                        next.centres[a] = one;
                        gone[b] = true;
                    }
                }
            }
            if fresh.is_empty() && !gone.contains(&true) {
                break;
            }
            let mut gone = gone.into_iter();
            next.centres.retain(|_| !gone.next().unwrap_or(false));
            next.centres.extend(fresh);
            let tried = self.refine(next, WARM_STEPS);
            if tried.score <= best.score {
                break;
            }
            best = tried;
        }
        best
    }

    /// The posterior mean of a user's tastes under the background.
    fn posterior_mean(&self, slot: u32) -> Vec<f64> {
        let dim = self.layout().dim;
        let mut batch = Batch::new(dim);
        kernels::posteriors(Posteriors {
            dim,
            prior: self.background.prior(self.noise),
            rows: &[self.panel.row(slot)],
            batch: &mut batch,
        });
        batch.mean.iter().map(|lanes| lanes[0]).collect()
    }

    /// The best mixture found near a given one; with `more`, also with clusters born among
    /// those who are in none. The flag is true if any of those stayed.
    pub fn warm(&mut self, before: &Mixture, more: bool) -> (Found, bool) {
        let mut best = self.refine(before.clone(), WARM_STEPS);
        let mut grew = false;
        let free: f64 = best.expected.none.iter().sum();
        if more && free >= MIN_BACKGROUND_WEIGHT {
            let weights: Vec<f64> = (best.expected.none.iter().enumerate())
                .map(|(place, w)| w * self.count(place))
                .collect();
            if let Some(born) = self.born(&best.mixture, |place| weights[place]) {
                let tried = self.refine(born, BORN_STEPS);
                if tried.score > best.score {
                    best = tried;
                    grew = true;
                }
            }
        }
        if !best.mixture.centres.is_empty() {
            best = self.rearrange(best);
        }
        (best, grew)
    }

    /// A search from scratch.
    pub fn cold(&mut self) -> Option<Found> {
        let counts: Vec<f64> = (0..self.panel.len())
            .map(|place| self.count(place))
            .collect();
        let born = self.born(&Mixture::none(), |place| counts[place])?;
        Some(self.refine(born, COLD_STEPS))
    }
}
