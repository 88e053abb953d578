//! LinUCB without clusters to find: one estimate for all ([`LinUcbShared::one`]), one for each of
//! some known clusters ([`LinUcbShared::known`]), one for each user ([`LinUcbInd`]).

use crate::digest::Digest;
use crate::error::{Error, check_dim};
use crate::items::ItemSet;
use crate::kernels;
use crate::params::Params;
use crate::policy::{
    Change, Clock, ClusterId, Decision, Observation, Policy, Score, UserId, check_items,
    check_round,
};
use crate::roster::Roster;
use crate::statistics::{Aggregate, Blocks, Scratch, Shape, View};
use crate::ucb::Ranking;

/// LinUCB with an estimate for each of some groups of users that are told in advance.
#[derive(Debug, Clone)]
pub struct LinUcbShared {
    ranking: Ranking,
    scratch: Scratch,
    clock: Clock,
    group_of: Vec<u32>,
    groups: Vec<Aggregate>,
}

impl LinUcbShared {
    /// A single group of all users: the paper's LinUCB-One.
    ///
    /// # Errors
    /// [`Error::Dimension`], [`Error::BadParameter`].
    pub fn one(dim: usize, params: &Params) -> Result<Self, Error> {
        Self::new(dim, Vec::new(), 1, params)
    }

    /// `group_of[user]` is the group of each user, numbered from 0. Users outside the list share one
    /// more group.
    ///
    /// # Errors
    /// [`Error::Dimension`], [`Error::BadParameter`], [`Error::NoUsers`] where the list is empty.
    pub fn known(dim: usize, group_of: Vec<u32>, params: &Params) -> Result<Self, Error> {
        let last = *group_of.iter().max().ok_or(Error::NoUsers)?;
        Self::new(dim, group_of, last as usize + 2, params)
    }

    fn new(dim: usize, group_of: Vec<u32>, groups: usize, params: &Params) -> Result<Self, Error> {
        params.check()?;
        let shape = Shape {
            dim: check_dim(dim)?,
        };
        Ok(Self {
            ranking: Ranking::new(dim, params),
            scratch: Scratch::new(shape),
            clock: Clock::new(),
            group_of,
            groups: vec![Aggregate::new(shape); groups],
        })
    }

    /// What to recommend from for a user, with its β.
    #[inline]
    fn basis(&self, user: UserId) -> (View<'_>, f64) {
        let group = &self.groups[self.group(user)];
        (
            group.view(),
            self.ranking.beta(group.count(), self.clock.log_rounds()),
        )
    }

    #[inline]
    fn group(&self, user: UserId) -> usize {
        let others = self.groups.len() - 1;
        usize::try_from(user)
            .ok()
            .and_then(|user| self.group_of.get(user))
            .map_or(others, |&group| group as usize)
    }
}

impl Policy for LinUcbShared {
    fn dim(&self) -> usize {
        self.groups[0].view().estimate.len()
    }

    fn rounds(&self) -> u64 {
        self.clock.rounds()
    }

    fn recommend(&self, user: UserId, items: &ItemSet) -> Result<Decision, Error> {
        check_items(items, self.dim())?;
        let (view, beta) = self.basis(user);
        Ok(self.ranking.choose(view, beta, items))
    }

    fn explain(&self, user: UserId, items: &ItemSet, scores: &mut Vec<Score>) -> Result<(), Error> {
        check_items(items, self.dim())?;
        let (view, beta) = self.basis(user);
        self.ranking.explain(view, beta, items, scores);
        Ok(())
    }

    fn learn_round(
        &mut self,
        round: &[Observation<'_>],
        _changes: &mut Vec<Change>,
    ) -> Result<(), Error> {
        check_round(round, self.dim())?;
        self.clock.tick();
        for observation in round {
            let group = self.group(observation.user);
            self.groups[group].observe(&mut self.scratch, observation.item, observation.reward);
        }
        Ok(())
    }

    fn cluster_of(&self, user: UserId) -> ClusterId {
        self.group(user) as ClusterId + 1
    }

    fn clusters(&self) -> usize {
        self.group_of
            .iter()
            .max()
            .map_or(1, |&last| last as usize + 1)
    }

    fn estimate(&self, user: UserId) -> Vec<f64> {
        self.groups[self.group(user)].view().estimate.to_vec()
    }

    fn digest(&self) -> u64 {
        let digest = Digest::new().word(self.clock.rounds());
        self.groups
            .iter()
            .fold(digest, |d, group| {
                d.word(group.count())
                    .numbers(group.gram())
                    .numbers(group.block())
            })
            .finish()
    }
}

/// LinUCB with an estimate for each user alone (the paper's LinUCB-Ind).
#[derive(Debug, Clone)]
pub struct LinUcbInd {
    shape: Shape,
    ranking: Ranking,
    clock: Clock,
    roster: Roster,
    blocks: Blocks,
    counts: Vec<u64>,
}

impl LinUcbInd {
    /// An estimate for each user who appears.
    ///
    /// # Errors
    /// [`Error::Dimension`], [`Error::BadParameter`].
    pub fn new(dim: usize, params: &Params) -> Result<Self, Error> {
        params.check()?;
        let shape = Shape {
            dim: check_dim(dim)?,
        };
        Ok(Self {
            shape,
            ranking: Ranking::new(dim, params),
            clock: Clock::new(),
            roster: Roster::default(),
            blocks: Blocks::new(shape),
            counts: Vec::new(),
        })
    }

    #[inline]
    fn basis(&self, user: UserId) -> (View<'_>, f64) {
        let (view, count) = match self.roster.slot(user) {
            Some(slot) => (self.blocks.view(slot), self.counts[slot]),
            None => (self.shape.view(self.blocks.empty()), 0),
        };
        (view, self.ranking.beta(count, self.clock.log_rounds()))
    }
}

impl Policy for LinUcbInd {
    fn dim(&self) -> usize {
        self.shape.dim
    }

    fn rounds(&self) -> u64 {
        self.clock.rounds()
    }

    fn recommend(&self, user: UserId, items: &ItemSet) -> Result<Decision, Error> {
        check_items(items, self.shape.dim)?;
        let (view, beta) = self.basis(user);
        Ok(self.ranking.choose(view, beta, items))
    }

    fn explain(&self, user: UserId, items: &ItemSet, scores: &mut Vec<Score>) -> Result<(), Error> {
        check_items(items, self.shape.dim)?;
        let (view, beta) = self.basis(user);
        self.ranking.explain(view, beta, items, scores);
        Ok(())
    }

    fn learn_round(
        &mut self,
        round: &[Observation<'_>],
        _changes: &mut Vec<Change>,
    ) -> Result<(), Error> {
        check_round(round, self.shape.dim)?;
        self.roster.check_room(round)?;
        self.clock.tick();
        for observation in round {
            let slot = self.roster.slot(observation.user).unwrap_or_else(|| {
                self.blocks.push();
                self.counts.push(0);
                self.roster.admit(observation.user)
            });
            let block = self.blocks.get_mut(slot);
            kernels::observe(self.shape.dim, block, observation.item, observation.reward);
            self.counts[slot] += 1;
        }
        Ok(())
    }

    /// Each user is a cluster of her own, numbered by appearance; who has not appeared is 0.
    fn cluster_of(&self, user: UserId) -> ClusterId {
        self.roster
            .slot(user)
            .map_or(0, |slot| slot as ClusterId + 1)
    }

    fn clusters(&self) -> usize {
        self.roster.len()
    }

    fn estimate(&self, user: UserId) -> Vec<f64> {
        self.basis(user).0.estimate.to_vec()
    }

    fn digest(&self) -> u64 {
        let digest = Digest::new().word(self.clock.rounds());
        (0..self.blocks.len())
            .fold(digest, |d, slot| {
                d.word(self.roster.users()[slot])
                    .word(self.counts[slot])
                    .numbers(self.blocks.get(slot))
            })
            .finish()
    }
}
