//! A fit of the whole model to all users, and its result.

use super::background::{self, Background, Pass, Scale};
use super::mixture::{Expectation, Mixture, UNLABELLED};
use super::panel::Panel;
use super::params::SoftParams;
use super::plain::Plain;
use super::search::{Draws, Found, Search, WARM_STEPS};
use super::sums::{Layout, Sums};
use crate::digest::mix;
use crate::policy::ClusterId;
use crate::refit::Workers;

/// The maximum number of users that a search for clusters looks at. Its result is then refined
/// on all users.
pub(super) const MAX_SEARCHED_USERS: usize = 8192;
/// Steps of EM over all users, if there are more than [`MAX_SEARCHED_USERS`].
pub(super) const LAST_STEPS: usize = 2;
/// The noise is at least this share of the variance that one estimate for all users leaves.
const MIN_NOISE: f64 = 1e-3;
/// The rounds per user up to which the noise is at least half of that variance.
const NOISE_ROUNDS: f64 = 5.0;
/// The number of first fits that also search for the scale of the background.
const SCALE_FITS: u64 = 12;
/// Growth of the number of rounds between a search that found clusters and the next.
const SEARCH_GROWTH: f64 = 1.4;
/// The minimum weight, relative to the largest, of a mixture that recommendations use.
const MIN_PLAYED_WEIGHT: f64 = 1e-3;
/// Two mixtures with equally many clusters and scores closer than this count as one.
const SAME_SCORE: f64 = 0.05;

/// The result of a fit.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Fit {
    /// Rounds learned in the state it was computed from.
    pub rounds: u64,
    /// Users in that state.
    pub users: u64,
    /// Observations of these users.
    pub observations: u64,
    /// The number of rounds at which the next search for more clusters may run.
    pub searched: u64,
    /// The number of users forgotten before it was computed; [`Fit::LEFT_OUT`] if it has no user of this partition.
    pub forgotten: u64,
    /// Fits before it.
    pub number: u64,
    /// v
    pub noise: f64,
    pub background: Background,
    /// The plain prior, if it is used.
    pub plain: Option<Plain>,
    /// V⁻¹ of the population's mean μ0.
    pub information: Vec<f64>,
    /// The best mixture found.
    pub mixture: Mixture,
    /// Users of each of its clusters and their observations, by weight.
    pub sizes: Vec<(f64, f64)>,
    /// Other mixtures that explain the data well; the next fit goes on from them too.
    pub others: Vec<Mixture>,
    /// The mixture that recommendations use: the clusters of the best mixture, then those of the others, by
    /// weight.
    pub played: Mixture,
    /// V_k = (C⁻¹ + A_k)⁻¹ of each cluster of `played`: the posterior covariance of its centre.
    pub spreads: Vec<Vec<f64>>,
    pub next_label: ClusterId,
    /// The share of users without a cluster of probability ½ or more.
    pub unplaced: f64,
    /// The number of parameters that the data determine.
    pub effective: f64,
    /// The share of the other partitions of the users.
    pub elsewhere: Elsewhere,
}

/// The share of a fit that comes from other partitions of the users; all 0 if there are none.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Elsewhere {
    /// Rounds learned there.
    pub rounds: u64,
    /// Users there.
    pub users: u64,
    /// The gain of the clusters there, halved as each fit halves it.
    pub gain: f64,
}

/// A fit to be made.
pub(crate) struct Job {
    pub sums: Sums,
    pub params: SoftParams,
    pub rounds: u64,
    pub observations: u64,
    pub forgotten: u64,
    pub before: Option<Fit>,
}

impl Job {
    pub fn run(&self, workers: &dyn Workers) -> Fit {
        let all: Vec<u32> = (0..self.sums.len() as u32).collect();
        let some = sample(&all, MAX_SEARCHED_USERS);
        let mut fit = self.search(&Panel::new(&self.sums, &some), all.len() as u64, workers);
        if self.params.clusters && some.len() < all.len() {
            fit.refine_on_all(&Panel::new(&self.sums, &all), workers);
        }
        fit
    }

    /// The fit to a sample of `users` users.
    pub fn search(&self, panel: &Panel<'_>, users: u64, workers: &dyn Workers) -> Fit {
        let params = &self.params;
        let number = self
            .before
            .as_ref()
            .map_or(0, |fit| fit.number.saturating_add(1));

        let (scale, start) = self.scale(panel, workers);
        let wide = number < SCALE_FITS;
        let (background, pass) = background::fit(panel, &start, scale, params.steps, wide, workers);
        let share = users as f64 / panel.len() as f64;
        let effective = pass.effective(&background) * share;
        let mut fit = Fit {
            rounds: self.rounds,
            users,
            observations: self.observations,
            searched: 0,
            forgotten: self.forgotten,
            number,
            noise: scale.noise,
            information: scale.information(&background, &pass),
            plain: Plain::of(
                panel,
                &background,
                &pass,
                scale.noise,
                params.plain,
                workers,
            ),
            background,
            mixture: Mixture::none(),
            sizes: Vec::new(),
            others: Vec::new(),
            played: Mixture::none(),
            spreads: Vec::new(),
            next_label: 1,
            unplaced: 1.0,
            effective,
            elsewhere: Elsewhere::default(),
        };
        if params.clusters {
            self.find(panel, &pass, &mut fit, workers);
        }
        fit
    }

    /// The noise, and the background to start from.
    fn scale(&self, panel: &Panel<'_>, workers: &dyn Workers) -> (Scale, Background) {
        let layout = panel.layout();
        let pooled = background::pooled(panel, layout);
        let Some(before) = &self.before else {
            return (pooled, pooled.start(layout.dim));
        };
        // v = Σ_i E‖y_i − X_i θ_i‖² / Σ_i n_i under the background. Clusters are not used: where most
        // rewards are 0, a cluster of the users without any other reward would explain them without noise.
        let pass = background::pass(panel, &before.background, before.noise, true, workers);
        let squares: f64 = pass.residual.iter().sum();
        let slots = panel.slots().iter();
        let count: f64 = slots.map(|&slot| panel.row(slot)[layout.count()]).sum();
        // While users have few observations each, C could explain all of the noise.
        let age = count / panel.len() as f64;
        let least = (NOISE_ROUNDS / (NOISE_ROUNDS + age)).max(MIN_NOISE);
        let scale = Scale {
            noise: (squares / count).max(pooled.noise * least),
            ..pooled
        };
        (scale, before.background.clone())
    }

    /// Searches for clusters from the last fit's, and from scratch while users have few observations.
    fn find(&self, panel: &Panel<'_>, pass: &Pass, fit: &mut Fit, workers: &dyn Workers) {
        let params = &self.params;
        let background = fit.background.clone();
        let mut search = Search {
            panel: *panel,
            background: &background,
            evidence: &pass.evidence,
            noise: fit.noise,
            params,
            workers,
            draws: Draws(mix(fit.number)),
        };
        let nothing = Mixture::none();
        let (main, others, searched) = match &self.before {
            Some(before) => (&before.mixture, &before.others[..], before.searched),
            None => (&nothing, &[][..], 0),
        };
        let may_search = self.rounds >= searched;
        let (best, grew) = search.warm(main, may_search);
        // After a search without success the next one waits longer.
        fit.searched = if may_search {
            (self.rounds as f64 * if grew { SEARCH_GROWTH } else { params.patience }) as u64
        } else {
            searched
        };
        let mut found = vec![best];
        for other in others {
            found.push(search.refine(other.clone(), WARM_STEPS));
        }
        let age = self.rounds as f64 / fit.users as f64;
        if (params.cold_from..params.cold_to).contains(&age) {
            for _ in 0..params.colds {
                found.extend(search.cold());
            }
        }
        fit.next_label = self.before.as_ref().map_or(1, |before| before.next_label);
        let dim = panel.layout().dim as f64;
        let alone = pass.total - dim * (dim + 3.0) / 2.0;
        fit.choose(panel, found, alone, params);
    }
}

/// The users that clusters are searched among: all, or a sample of `most`.
pub(super) fn sample(all: &[u32], most: usize) -> Vec<u32> {
    if all.len() <= most {
        return all.to_vec();
    }
    let mut order: Vec<(u64, u32)> = all.iter().map(|&s| (mix(u64::from(s)), s)).collect();
    order.select_nth_unstable(most);
    let mut some: Vec<u32> = order[..most].iter().map(|&(_, slot)| slot).collect();
    some.sort_unstable();
    some
}

impl Fit {
    /// The number of forgotten users of a partition that a fit has no users of.
    pub const LEFT_OUT: u64 = u64::MAX;

    /// Sets `mixture` to the best candidate and `played`, which recommendations use, to the average of all kept
    /// candidates and the background-only model, weighted by e^{temper · score}.
    fn choose(
        &mut self,
        panel: &Panel<'_>,
        mut found: Vec<Found>,
        alone: f64,
        params: &SoftParams,
    ) {
        found.sort_by(|a, b| b.score.total_cmp(&a.score));
        found.dedup_by(|b, a| {
            a.score - b.score < SAME_SCORE && a.mixture.centres.len() == b.mixture.centres.len()
        });
        found.truncate(params.members);
        let top = found[0].score.max(alone);
        let weight = |score: f64| libm::exp(params.temper * (score - top));
        found.retain(|one| {
            !one.mixture.centres.is_empty() && weight(one.score) >= MIN_PLAYED_WEIGHT
        });
        for centre in found.iter_mut().flat_map(|one| &mut one.mixture.centres) {
            if centre.label == UNLABELLED {
                centre.label = self.next_label;
                self.next_label += 1;
            }
        }
        let mut played = Mixture {
            centres: Vec::new(),
            none: weight(alone),
        };
        let mut whole = played.none;
        for one in &found {
            let weight = weight(one.score);
            whole += weight;
            played.none += weight * one.mixture.none;
            for centre in &one.mixture.centres {
                let mut centre = centre.clone();
                centre.share *= weight;
                played.centres.push(centre);
            }
            let layout = panel.layout();
            let spreads = one.expected.spreads(layout, &self.background, self.noise);
            self.spreads.extend(spreads);
        }
        played.none /= whole;
        played.centres.iter_mut().for_each(|c| c.share /= whole);
        self.played = played;
        let mut found = found.into_iter();
        if let Some(best) = found.next() {
            self.unplaced = 1.0 - best.expected.placed as f64 / panel.len() as f64;
            self.sizes = best.expected.sizes(panel.layout());
            self.mixture = best.mixture;
        }
        self.others = found.map(|one| one.mixture).collect();
    }

    /// Refines the clusters that were found among some users on all users.
    fn refine_on_all(&mut self, panel: &Panel<'_>, workers: &dyn Workers) {
        if self.mixture.centres.is_empty() {
            return;
        }
        let pass = background::pass(panel, &self.background, self.noise, false, workers);
        let mut mixture = self.mixture.clone();
        for _ in 0..LAST_STEPS {
            let expected = mixture.expect(panel, &pass.evidence, self.noise, false, workers);
            mixture = mixture.maximise(panel.layout(), &self.background, self.noise, &expected);
        }
        let expected = mixture.expect(panel, &pass.evidence, self.noise, false, workers);
        self.refined(panel.layout(), mixture, &expected);
    }

    /// Puts the best mixture after EM on all users in place of the one that was found among some.
    pub(super) fn refined(&mut self, layout: Layout, mixture: Mixture, expected: &Expectation) {
        let old = std::mem::replace(&mut self.mixture, mixture);
        self.unplaced = 1.0 - expected.placed as f64 / expected.users as f64;
        self.sizes = expected.sizes(layout);
        let spreads = expected.spreads(layout, &self.background, self.noise);
        for (old, new) in self.spreads.iter_mut().zip(spreads) {
            *old = new;
        }
        for ((played, old), new) in self
            .played
            .centres
            .iter_mut()
            .zip(&old.centres)
            .zip(&self.mixture.centres)
        {
            played.mean.clone_from(&new.mean);
            played.share *= new.share / old.share;
        }
        let whole: f64 =
            self.played.none + self.played.centres.iter().map(|c| c.share).sum::<f64>();
        self.played.none /= whole;
        self.played
            .centres
            .iter_mut()
            .for_each(|c| c.share /= whole);
    }
}
