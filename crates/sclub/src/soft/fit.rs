//! A fit of the whole model to all users, and what is kept of it.

use super::background::{self, Background, Scale};
use super::mixture::Mixture;
use super::panel::Panel;
use super::params::SoftParams;
use super::search::{Draws, Found, Search};
use super::sums::Sums;
use crate::digest::mix;
use crate::policy::ClusterId;
use crate::refit::Workers;

/// What a fit found.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Fit {
    /// Rounds learned in the state it was computed from.
    pub rounds: u64,
    /// Fits before it.
    pub number: u64,
    /// v
    pub noise: f64,
    /// Mean squared length of an item's features.
    pub square: f64,
    pub background: Background,
    /// The best mixture found.
    pub mixture: Mixture,
    /// What is played: that mixture and others that explain the data nearly as well.
    pub played: Mixture,
    pub next_label: ClusterId,
    /// Share of the users that no cluster has with ½ or more.
    pub unplaced: f64,
    /// How many numbers the data have settled.
    pub effective: f64,
}

/// A fit to be made.
pub(crate) struct Job {
    pub sums: Sums,
    pub params: SoftParams,
    pub rounds: u64,
    pub before: Option<Fit>,
}

impl Job {
    pub fn run(&self, workers: &dyn Workers) -> Fit {
        let layout = self.sums.layout();
        let slots: Vec<u32> = (0..self.sums.len() as u32).collect();
        let panel = Panel::new(&self.sums, &slots);
        let number = self.before.as_ref().map_or(0, |fit| fit.number + 1);
        let params = &self.params;

        let pooled = background::pooled(&panel, layout, params.x);
        let (mut scale, start, before) = match &self.before {
            None => (pooled, pooled.start(layout.dim), Mixture::none()),
            Some(fit) => {
                let noise = fit.noise;
                let pass = background::pass(&panel, &fit.background, noise, true, workers);
                let expected = fit
                    .mixture
                    .expect(&panel, &pass.evidence, noise, false, workers);
                let (mut squares, _) = fit.mixture.residuals(layout, &expected);
                for (w, r) in expected.none.iter().zip(&pass.residual) {
                    squares += w * r;
                }
                let count: f64 = slots.iter().map(|&s| panel.row(s)[layout.count()]).sum();
                let scale = Scale {
                    noise: (squares / count).max(1e-3 * pooled.noise),
                    square: pooled.square,
                    x: params.x,
                    pseudo: 0.0,
                };
                (scale, fit.background.clone(), fit.mixture.clone())
            }
        };
        scale.noise *= params.v_scale;
        let (background, pass) = background::fit(&panel, &start, scale, params.steps, number < 12, workers);
        let mut search = Search {
            panel,
            background: &background,
            evidence: &pass.evidence,
            noise: scale.noise,
            params,
            workers,
            next_label: self.before.as_ref().map_or(1, |fit| fit.next_label),
            draws: Draws(mix(number)),
        };
        let effective = pass.effective(&background);
        let mut fit = Fit {
            rounds: self.rounds,
            number,
            noise: scale.noise / params.v_scale,
            square: scale.square,
            mixture: Mixture::none(),
            played: Mixture::none(),
            next_label: 1,
            unplaced: 1.0,
            effective,
            background: background.clone(),
        };
        if params.clusters {
            let mut found = vec![search.warm(&before)];
            let age = self.rounds as f64 / slots.len() as f64;
            if (params.cold_from..params.cold_to).contains(&age) {
                for _ in 0..params.colds {
                    found.extend(search.cold());
                }
            }
            fit.next_label = search.next_label;
            let dim = layout.dim as f64;
            let alone = pass.total - dim * (dim + 3.0) / 2.0;
            fit.choose(found, alone, params.temper);
        }
        fit
    }
}

impl Fit {
    /// Takes the best mixture, and plays it with the others.
    fn choose(&mut self, found: Vec<Found>, alone: f64, temper: f64) {
        let mut found = found;
        found.sort_by(|a, b| b.score.total_cmp(&a.score));
        let top = found[0].score.max(alone);
        let mut played = Mixture {
            centres: Vec::new(),
            none: libm::exp(temper * (alone - top)),
        };
        let mut whole = played.none;
        for one in &found {
            let weight = libm::exp(temper * (one.score - top));
            if weight < 1e-3 {
                continue;
            }
            whole += weight;
            played.none += weight * one.mixture.none;
            for centre in &one.mixture.centres {
                let mut centre = centre.clone();
                centre.share *= weight;
                played.centres.push(centre);
            }
        }
        played.none /= whole;
        played.centres.iter_mut().for_each(|c| c.share /= whole);
        self.played = played;
        let best = found.swap_remove(0);
        let users = best.expected.none.len() as f64;
        self.unplaced = 1.0 - best.expected.placed as f64 / users;
        self.mixture = best.mixture;
    }
}
