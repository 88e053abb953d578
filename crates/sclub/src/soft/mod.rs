//! `sclub-soft`: users belong to clusters by probability, and clusters are used as far as they
//! predict better than none.
//!
//! All is computed from the sums of each user ([`sums`]). A *fit* ([`fit`]) finds the
//! prior of all users ([`background`]) and clusters of them ([`mixture`], [`search`]); between
//! fits only the user who is seen changes ([`belief`]). [`decide`] ranks items. The model, with an
//! equation and a test for each step, is in docs/sclub-soft.md.

mod abilities;
mod background;
mod belief;
mod beliefs;
mod decide;
mod fit;
mod gather;
mod look;
mod mixture;
mod panel;
mod params;
mod plain;
mod population;
mod saved;
mod search;
mod sums;
mod symmetric;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use params::CONSTANTS;
pub use params::{Explore, SoftParams};

use crate::abilities::Correct;
use crate::bytes::{self, Save as _};
use crate::digest::mix;
use crate::error::{Error, check_dim};
use crate::items::ItemSet;
use crate::kernels;
use crate::policy::{
    Change, ClusterId, Decision, Observation, Policy, Propensity, Score, UserId, check_items,
    check_round, estimate_propensities, offers,
};
use crate::refit::Sequential;
use crate::roster::Roster;
use crate::spec::{Abilities, Load, Partitions, Preset, Spec};
use crate::statistics::Shape;
use belief::{Belief, Model};
use beliefs::Beliefs;
use fit::{Elsewhere, Fit, Job};
use population::Population;
use sums::{Layout, Sums};

/// Rounds before the first, rough fit; the next come whenever the rounds have doubled, until
/// [`SoftParams::first`].
const FIRST_ROUGH_FIT: u64 = 32;
/// How much more gain clusters need where every observation is another user's. Users who are seen once cannot
/// confirm a cluster.
const COLD_CAUTION: f64 = 4.0;
/// The maximum length of the history of fits; then every other entry of the older half is dropped.
const MAX_HISTORY: usize = 256;

/// Recommends from clusters that users belong to by probability, with one Gaussian prior for those
/// who are in none. See docs/sclub-soft.md.
///
/// ```
/// use sclub::{ItemSet, Policy, SclubSoft, SoftParams};
///
/// let mut policy = SclubSoft::new(2, &SoftParams::default())?;
/// let items = ItemSet::from_rows(2, &[1.0, 0.0, 0.0, 1.0])?;
/// for round in 0..200 {
///     let user = round % 5;
///     let shown = policy.recommend(user, &items)?.index;
///     let reward = if shown == 1 { 1.0 } else { 0.0 };
///     policy.learn(user, &items.item(shown).collect::<Vec<_>>(), reward)?;
/// }
/// assert_eq!(policy.recommend(9, &items)?.index, 1);
/// # Ok::<(), sclub::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct SclubSoft {
    params: SoftParams,
    layout: Layout,
    roster: Roster,
    /// T_i by slot.
    counts: Vec<u64>,
    sums: Sums,
    beliefs: Beliefs,
    served: Option<Served>,
    /// The posterior of the population's mean.
    population: Population,
    rounds: u64,
    /// The number of rounds at which the next fit is due.
    due: u64,
    /// Users forgotten so far. A fit with a lower number still contains observations of a
    /// forgotten user.
    forgotten: u64,
    /// The log-likelihood of recent rewards with clusters less that without, in nats; halved at each
    /// fit.
    gain: f64,
    /// (rounds, clusters) of fits.
    history: Vec<(u64, usize)>,
    /// Memory for an item.
    scaled: Vec<f64>,
}

/// The fit in force.
#[derive(Debug, Clone)]
struct Served {
    /// Fits taken so far, this one counted. Beliefs that belong to another are out of date.
    number: u64,
    fit: Fit,
    model: Model,
}

/// The basis of a recommendation.
struct Basis<'a> {
    served: &'a Served,
    /// The user's block.
    block: Cow<'a, [f64]>,
    belief: Cow<'a, Belief>,
    /// The weight of the plain prior, and the user's block under it.
    plain: Option<(f64, Vec<f64>)>,
}

impl SclubSoft {
    /// A policy that has learned nothing.
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
            counts: Vec::new(),
            sums: Sums::new(layout),
            beliefs: Beliefs::new(Shape { dim }),
            served: None,
            population: Population::new(dim),
            rounds: 0,
            due: FIRST_ROUGH_FIT.min(params.first),
            forgotten: 0,
            gain: 0.0,
            history: Vec::new(),
            scaled: vec![0.0; dim],
        })
    }

    /// The constants it was made with.
    pub fn params(&self) -> &SoftParams {
        &self.params
    }

    fn is_due(&self) -> bool {
        let is_shared = self.elsewhere().users > 0;
        // Fits over several partitions are not made here.
        let may_fit = self.sums.len() > 0 && !is_shared;
        may_fit && (self.must_refit() || self.rounds >= self.due)
    }

    /// True if the fit contains a user who has been forgotten since.
    fn must_refit(&self) -> bool {
        let fit = self.served.as_ref().map(|served| &served.fit);
        fit.is_some_and(|fit| fit.forgotten != self.forgotten && fit.forgotten != Fit::LEFT_OUT)
    }

    /// The part of the fit that comes from the other partitions of the users.
    fn elsewhere(&self) -> Elsewhere {
        let fit = self.served.as_ref().map(|served| &served.fit);
        fit.map_or_else(Elsewhere::default, |fit| fit.elsewhere)
    }

    /// The log-likelihood of recent rewards of all partitions with clusters less that without. That of the
    /// others is as of the fit.
    fn whole_gain(&self) -> f64 {
        self.gain + self.elsewhere().gain
    }

    fn job(&self) -> Job {
        Job {
            sums: self.sums.clone(),
            params: self.params,
            rounds: self.rounds,
            observations: self.counts.iter().sum(),
            forgotten: self.forgotten,
            before: self.served.as_ref().map(|served| served.fit.clone()),
        }
    }

    /// Uses this fit for recommendations from now on. Beliefs are computed again when their user is
    /// next seen.
    fn install(&mut self, fit: Fit) {
        let number = self
            .served
            .as_ref()
            .map_or(1, |served| served.number.saturating_add(1));
        let model = Model::new(self.layout, &fit, number);
        let due = self.params.due_after(fit.rounds);
        self.due = due.max(self.rounds.saturating_add(1));
        self.gain *= 0.5;
        if self.history.len() == MAX_HISTORY {
            let mut place = 0;
            self.history.retain(|_| {
                place += 1;
                place > MAX_HISTORY / 2 || place % 2 == 1
            });
        }
        let rounds = self.rounds.saturating_add(fit.elsewhere.rounds);
        self.history.push((rounds, fit.mixture.centres.len()));
        self.population = Population::from_fit(&fit);
        self.served = Some(Served { number, fit, model });
    }

    /// Goes back to the state before the first fit.
    fn drop_fit(&mut self) {
        self.served = None;
        self.history.clear();
        self.gain = 0.0;
        self.due = self.rounds.saturating_add(FIRST_ROUGH_FIT);
    }

    /// Computes the fit that is due, and the beliefs of all users.
    fn refit_inline(&mut self) {
        let job = self.job();
        let fit = job.run(&Sequential);
        drop(job);
        self.install(fit);
        for slot in 0..self.sums.len().min(self.beliefs.room()) {
            self.refresh(slot);
        }
    }

    fn fresh(&self, served: &Served, slot: usize) -> (Vec<f64>, Belief) {
        let mut block = vec![0.0; served.model.shape.block()];
        let belief = served
            .model
            .believe(served.number, self.sums.row(slot), &mut block);
        (block, belief)
    }

    /// The belief about any user; `None` before the first fit.
    fn basis(&self, user: UserId) -> Option<Basis<'_>> {
        let served = self.served.as_ref()?;
        let slot = self.roster.slot(user);
        let (block, belief) = match slot {
            Some(slot) => match self.beliefs.get(slot, served.number) {
                Some((block, belief)) => (Cow::Borrowed(block), Cow::Borrowed(belief)),
                None => {
                    let (block, belief) = self.fresh(served, slot);
                    (Cow::Owned(block), Cow::Owned(belief))
                }
            },
            None => (
                Cow::Borrowed(served.model.block.as_slice()),
                Cow::Borrowed(&served.model.newcomer),
            ),
        };
        let plain = served.model.plain(slot.map(|slot| self.sums.row(slot)));
        Some(Basis {
            served,
            block,
            belief,
            plain,
        })
    }

    /// The weight of the clusters, between 0 and 1, by their gain over the background: 1/(1 + e^{1−g}),
    /// g the gain in units of [`SclubSoft::caution`].
    fn trust(&self) -> f64 {
        1.0 / (1.0 + libm::exp(1.0 - self.whole_gain() / self.caution()))
    }

    /// The gain at which clusters get half of the weight: [`SoftParams::caution`], and more where users have few
    /// rounds each.
    fn caution(&self) -> f64 {
        let fit = self.served.as_ref().map(|served| &served.fit);
        let per_observation = |fit: &Fit| fit.users as f64 / fit.observations.max(1) as f64;
        self.params.caution * (1.0 + COLD_CAUTION * fit.map_or(0.0, per_observation))
    }

    /// The random number of a decision that has none of its own.
    fn default_draw(&self, user: UserId) -> u64 {
        let slot = self.roster.slot(user).map_or(u64::MAX, |slot| slot as u64);
        mix(self.rounds) ^ slot
    }

    fn admit(&mut self, user: UserId) -> usize {
        self.sums.push();
        self.counts.push(0);
        self.roster.admit(user)
    }

    fn observe(&mut self, observation: &Observation<'_>) {
        let Observation {
            user, item, reward, ..
        } = *observation;
        let slot = match self.roster.slot(user) {
            Some(slot) => slot,
            None => self.admit(user),
        };
        self.counts[slot] += 1;
        let number = self.served.as_ref().map_or(0, |served| served.number);
        if self.beliefs.get(slot, number).is_none() {
            self.refresh(slot);
        }
        if let Some(served) = &mut self.served
            && let Some((block, belief)) = self.beliefs.get_mut(slot, number)
        {
            let model = &mut served.model;
            let user = model.shape.view(block);
            let alone = self.population.observe(model, user, item, reward);
            self.gain += model.observe(block, belief, item, &mut self.scaled, reward, alone);
        }
        self.sums.observe(slot, item, reward, self.params.keep());
        if self.params.half_life.is_some() {
            // All earlier observations have lost weight: a rank-1 update is not enough.
            self.refresh(slot);
        }
    }

    /// Computes the population's mean from the sums of all users, as long as there is no fit.
    fn pool(&mut self) {
        let mut all = vec![0.0; self.layout.row()];
        for slot in 0..self.sums.len() {
            kernels::add_scaled(&mut all, 1.0, self.sums.row(slot));
        }
        self.population = Population::from_sums(self.layout, &all);
    }

    /// Computes the belief about a user again.
    #[cold]
    fn refresh(&mut self, slot: usize) {
        if let Some(served) = &self.served {
            let (block, belief) = self.fresh(served, slot);
            self.beliefs.put(slot, &block, belief);
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
        self.recommend_drawn(self.default_draw(user), user, items)
    }

    fn explain(&self, user: UserId, items: &ItemSet, scores: &mut Vec<Score>) -> Result<(), Error> {
        self.explain_drawn(self.default_draw(user), user, items, scores)
    }

    fn recommend_drawn(&self, draw: u64, user: UserId, items: &ItemSet) -> Result<Decision, Error> {
        check_items(items, self.layout.dim)?;
        let basis = self.basis(user);
        Ok(self.ranking(draw, basis.as_ref()).choose(items))
    }

    fn explain_drawn(
        &self,
        draw: u64,
        user: UserId,
        items: &ItemSet,
        scores: &mut Vec<Score>,
    ) -> Result<(), Error> {
        check_items(items, self.layout.dim)?;
        let basis = self.basis(user);
        self.ranking(draw, basis.as_ref()).explain(items, scores);
        Ok(())
    }

    fn recommend_list_drawn(
        &self,
        draw: u64,
        user: UserId,
        items: &ItemSet,
        k: usize,
        exclude: &dyn Fn(usize) -> bool,
        list: &mut Vec<Decision>,
    ) -> Result<(), Error> {
        check_items(items, self.layout.dim)?;
        let basis = self.basis(user);
        self.ranking(draw, basis.as_ref())
            .best(items, k, exclude, list);
        Ok(())
    }

    /// The belief about the user is made ready once for all draws.
    fn propensities(
        &self,
        draw: u64,
        user: UserId,
        items: &ItemSet,
        k: usize,
        exclude: &dyn Fn(usize) -> bool,
        shown: &[usize],
        draws: u32,
        out: &mut Vec<Propensity>,
    ) -> Result<(), Error> {
        check_items(items, self.layout.dim)?;
        let basis = self.basis(user);
        let draws = match self.params.explore {
            Explore::Draw => draws,
            Explore::Bonus => 0,
        };
        estimate_propensities(draw, shown, draws, out, |other, list| {
            self.ranking(other, basis.as_ref())
                .best(items, k, exclude, list);
            Ok(())
        })
    }

    fn best(
        &self,
        user: UserId,
        items: &ItemSet,
        k: usize,
        exclude: &dyn Fn(usize) -> bool,
        best: &mut Vec<Decision>,
    ) -> Result<(), Error> {
        self.recommend_list_drawn(self.default_draw(user), user, items, k, exclude, best)
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
            self.observe(observation);
        }
        if self.served.is_none() {
            self.pool();
        }
        if self.params.inline && self.is_due() {
            self.refit_inline();
        }
        Ok(())
    }

    /// The user's most probable cluster; `None` if the background is more probable.
    fn cluster_of(&self, user: UserId) -> Option<ClusterId> {
        let Basis { served, belief, .. } = self.basis(user)?;
        Some(served.most_probable(&belief)).filter(|&id| id != 0)
    }

    /// Clusters of the best mixture that the last fit found.
    fn clusters(&self) -> usize {
        let served = self.served.as_ref();
        served.map_or(0, |served| served.fit.mixture.centres.len())
    }

    /// The posterior mean.
    fn estimate(&self, user: UserId) -> Option<Vec<f64>> {
        let basis = self.basis(user);
        Some(self.ranking(0, basis.as_ref()).estimate())
    }

    fn digest(&self) -> u64 {
        bytes::digest(self)
    }

    fn state_bytes(&self) -> Option<u64> {
        Some(bytes::length(self))
    }

    /// With a half-life an earlier observation has lost weight, and its share in the sums is not known.
    fn as_correct(&mut self) -> Option<&mut dyn Correct> {
        match self.params.half_life {
            None => Some(self),
            Some(_) => None,
        }
    }

    offers!(inspect, persist, forget, fit, partitioned);
}

/// `sclub-soft`
pub static SPEC: Spec = SOFT;

const SOFT: Spec = Spec {
    name: "sclub-soft",
    title: "SCLUB-soft",
    summary: "Clusters that users belong to by probability, used as far as they predict better than none",
    citation: "this project, docs/sclub-soft.md",
    colors: ["#8B2FC9", "#A86CF5"],
    revision: 4,
    presets: &[Preset::Default],
    constants: &CONSTANTS,
    can: Abilities {
        correct: true,
        fit: true,
        draws: true,
        partitions: Partitions::Gathered,
        ..Abilities::SERVED
    },
    new: |setup, values| {
        let params = SoftParams::from_values(values, setup.fits_inline);
        Ok(Box::new(SclubSoft::new(setup.dim, &params)?))
    },
    load: Some(Load {
        magic: SclubSoft::MAGIC,
        load: |reader| Ok(Box::new(SclubSoft::load_words(reader)?)),
    }),
    gather: Some(gather::begin),
};

/// `gaussian`: [`SPEC`] without clusters.
pub static GAUSSIAN: Spec = Spec {
    name: "gaussian",
    title: "One Gaussian prior",
    summary: "sclub-soft without clusters: one Gaussian prior for all users",
    colors: ["#56B4E9", "#A6DDF7"],
    // All but the switch.
    constants: CONSTANTS.split_at(1).1,
    ..SOFT
};
