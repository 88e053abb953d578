//! LinUCB without clusters to find: one estimate for all ([`LinUcbShared::one`]), one for each of
//! some known clusters ([`LinUcbShared::known`]), one for each user ([`LinUcbInd`]).

use std::io::{self, Read, Write};

use crate::bytes::{self, Reader, Save, Writer, bad};
use crate::digest::Digest;
use crate::error::{Error, LoadError, check_dim};
use crate::items::ItemSet;
use crate::keep::{ClusterView, Keep};
use crate::ledger::Ledger;
use crate::params::Params;
use crate::policy::{
    Change, Clock, ClusterId, Decision, Observation, Policy, Score, UserId, check_items,
    check_round,
};
use crate::statistics::{Aggregate, Scratch, Shape, View};
use crate::ucb::Ranking;

/// LinUCB with an estimate for each of some groups of users that are told in advance.
#[derive(Debug, Clone)]
pub struct LinUcbShared {
    params: Params,
    ranking: Ranking,
    scratch: Scratch,
    clock: Clock,
    group_of: Vec<u32>,
    groups: Vec<Aggregate>,
    /// What each user alone has brought, where users can be forgotten.
    ledger: Option<Ledger>,
}

impl LinUcbShared {
    /// A single group of all users: the paper's LinUCB-One.
    ///
    /// # Errors
    /// [`Error::Dimension`], [`Error::BadParameter`].
    pub fn one(dim: usize, params: &Params) -> Result<Self, Error> {
        Self::new(dim, Vec::new(), 1, params)
    }

    /// As [`LinUcbShared::one`], to the bit, and keeps beside it what each user alone has brought, so
    /// that she can be forgotten ([`Keep::forget`]).
    ///
    /// # Errors
    /// [`Error::Dimension`], [`Error::BadParameter`].
    pub fn one_keeping_users(dim: usize, params: &Params) -> Result<Self, Error> {
        let mut one = Self::one(dim, params)?;
        one.ledger = Some(Ledger::new(one.scratch.shape()));
        Ok(one)
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

    /// As [`LinUcbShared::known`], to the bit, and keeps beside it what each user alone has brought.
    ///
    /// # Errors
    /// As [`LinUcbShared::known`].
    pub fn known_keeping_users(
        dim: usize,
        group_of: Vec<u32>,
        params: &Params,
    ) -> Result<Self, Error> {
        let mut known = Self::known(dim, group_of, params)?;
        known.ledger = Some(Ledger::new(known.scratch.shape()));
        Ok(known)
    }

    fn new(dim: usize, group_of: Vec<u32>, groups: usize, params: &Params) -> Result<Self, Error> {
        params.check()?;
        let shape = Shape {
            dim: check_dim(dim)?,
        };
        Ok(Self {
            params: *params,
            ranking: Ranking::new(dim, params),
            scratch: Scratch::new(shape),
            clock: Clock::new(),
            group_of,
            groups: vec![Aggregate::new(shape); groups],
            ledger: None,
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

    /// Number of groups of users who were told.
    fn told(&self) -> usize {
        self.group_of
            .iter()
            .max()
            .map_or(1, |&last| last as usize + 1)
    }

    /// Groups that there are: those of users who were told, and that of the others once one has come.
    fn existing(&self) -> usize {
        let others = &self.groups[self.groups.len() - 1];
        let has_others = !self.group_of.is_empty() && others.count() > 0;
        self.told() + usize::from(has_others)
    }

    /// The users kept of a group.
    fn kept(&self, group: usize) -> impl Iterator<Item = UserId> + '_ {
        let users = self.ledger.as_ref().map_or(&[][..], Ledger::users);
        let users = users.iter().copied();
        users.filter(move |&user| self.group(user) == group)
    }

    fn group_view(&self, group: usize) -> ClusterView<'_> {
        let users = match &self.ledger {
            Some(ledger) if self.groups.len() == 1 => ledger.len(),
            _ => self.kept(group).count(),
        };
        let sums = &self.groups[group];
        ClusterView {
            label: group as ClusterId + 1,
            users: users as u64,
            count: sums.count(),
            estimate: sums.view().estimate,
        }
    }

    /// Reads the state that [`Keep::save_to`] wrote, by small pieces, and not a byte more.
    ///
    /// # Errors
    /// [`LoadError::Io`] where the input fails; [`LoadError::State`] where what comes is no state.
    pub fn load_from(input: &mut dyn Read) -> Result<Self, LoadError> {
        let reader = Reader::new(input)?;
        reader.expect(Self::MAGIC)?;
        Self::load_words(reader)
    }

    /// What follows the header.
    pub(crate) fn load_words(mut reader: Reader<'_>) -> Result<Self, LoadError> {
        let dim = reader.half()? as usize;
        let params = Params::load(&mut reader)?;
        let mut state = Self::new(dim, Vec::new(), 1, &params)?;
        let shape = state.scratch.shape();
        state.clock = Clock::at(reader.word()?);
        for _ in 0..reader.count()? {
            state.group_of.push(reader.half()?);
        }
        state.groups.clear();
        for _ in 0..reader.count()? {
            state.groups.push(Aggregate::load(shape, &mut reader)?);
        }
        if reader.at_most(1)? == 1 {
            state.ledger = Some(Ledger::load(shape, &mut reader)?);
        }
        reader.end()?;
        // Who was not told has a group behind the others, if anybody was told.
        let groups = state.told() + usize::from(!state.group_of.is_empty());
        if state.groups.len() != groups {
            return Err(bad("it has not the groups it should have").into());
        }
        Ok(state)
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

    fn best(
        &self,
        user: UserId,
        items: &ItemSet,
        k: usize,
        exclude: &dyn Fn(usize) -> bool,
        best: &mut Vec<Decision>,
    ) -> Result<(), Error> {
        check_items(items, self.dim())?;
        let (view, beta) = self.basis(user);
        self.ranking.best(view, beta, items, k, exclude, best);
        Ok(())
    }

    fn learn_round(
        &mut self,
        round: &[Observation<'_>],
        _changes: &mut Vec<Change>,
    ) -> Result<(), Error> {
        check_round(round, self.dim())?;
        if let Some(ledger) = &self.ledger {
            ledger.check_room(round)?;
        }
        self.clock.tick();
        for observation in round {
            let group = self.group(observation.user);
            self.groups[group].observe(&mut self.scratch, observation.item, observation.reward);
            if let Some(ledger) = &mut self.ledger {
                ledger.observe(observation);
            }
        }
        Ok(())
    }

    fn cluster_of(&self, user: UserId) -> ClusterId {
        self.group(user) as ClusterId + 1
    }

    fn clusters(&self) -> usize {
        self.existing()
    }

    fn estimate(&self, user: UserId) -> Vec<f64> {
        self.groups[self.group(user)].view().estimate.to_vec()
    }

    fn digest(&self) -> u64 {
        let digest = Digest::new().word(self.clock.rounds());
        let digest = self.groups.iter().fold(digest, |d, group| {
            d.word(group.count())
                .numbers(group.gram())
                .numbers(group.block())
        });
        match &self.ledger {
            Some(ledger) => ledger.digest(digest).finish(),
            None => digest.finish(),
        }
    }
}

impl Save for LinUcbShared {
    const MAGIC: u64 = u64::from_le_bytes(*b"sclub sh");

    fn save_words(&self, writer: &mut Writer<'_>) -> io::Result<()> {
        writer.word(self.dim() as u64)?;
        self.params.save(writer)?;
        writer.word(self.clock.rounds())?;
        writer.words(self.group_of.iter().map(|&group| u64::from(group)))?;
        writer.word(self.groups.len() as u64)?;
        for group in &self.groups {
            group.save(writer)?;
        }
        writer.word(u64::from(self.ledger.is_some()))?;
        match &self.ledger {
            Some(ledger) => ledger.save(writer),
            None => Ok(()),
        }
    }
}

/// Without [`LinUcbShared::one_keeping_users`] no user is kept: none can be looked at or forgotten.
impl Keep for LinUcbShared {
    /// The time it takes grows with the users there are.
    fn forget(&mut self, user: UserId) -> bool {
        let group = self.group(user);
        let Some(mut ledger) = self.ledger.take() else {
            return false;
        };
        let known = ledger.forget(user);
        if known {
            let mut sums = Aggregate::new(self.scratch.shape());
            for (slot, &other) in ledger.users().iter().enumerate() {
                if self.group(other) == group {
                    sums.add_block(&mut self.scratch, ledger.block(slot), ledger.count(slot));
                }
            }
            sums.factorise(&mut self.scratch);
            self.groups[group] = sums;
        }
        self.ledger = Some(ledger);
        known
    }

    fn users(&self) -> u64 {
        self.ledger.as_ref().map_or(0, Ledger::len) as u64
    }

    fn singletons(&self) -> u64 {
        let groups = 0..self.existing();
        groups.filter(|&g| self.group_view(g).users == 1).count() as u64
    }

    fn count(&self, user: UserId) -> Option<u64> {
        let ledger = self.ledger.as_ref()?;
        Some(ledger.count(ledger.slot(user)?))
    }

    fn own_estimate(&self, user: UserId) -> Option<Vec<f64>> {
        let ledger = self.ledger.as_ref()?;
        Some(ledger.view(ledger.slot(user)?).estimate.to_vec())
    }

    fn cluster_users(&self, user: UserId) -> u64 {
        self.group_view(self.group(user)).users
    }

    fn each_cluster(&self, visit: &mut dyn FnMut(ClusterView<'_>)) {
        (0..self.existing()).for_each(|group| visit(self.group_view(group)));
    }

    fn cluster(&self, id: ClusterId) -> Option<ClusterView<'_>> {
        let group = index_of(id).filter(|&group| group < self.existing())?;
        Some(self.group_view(group))
    }

    fn members(&self, id: ClusterId, limit: usize) -> Option<Vec<UserId>> {
        let group = index_of(id).filter(|&group| group < self.existing())?;
        Some(self.kept(group).take(limit).collect())
    }

    fn save_to(&self, out: &mut dyn Write) -> io::Result<()> {
        bytes::save(self, out)
    }
}

/// The place of what is numbered from 1.
fn index_of(id: ClusterId) -> Option<usize> {
    usize::try_from(id.checked_sub(1)?).ok()
}

/// LinUCB with an estimate for each user alone (the paper's LinUCB-Ind).
#[derive(Debug, Clone)]
pub struct LinUcbInd {
    params: Params,
    shape: Shape,
    ranking: Ranking,
    clock: Clock,
    ledger: Ledger,
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
            params: *params,
            shape,
            ranking: Ranking::new(dim, params),
            clock: Clock::new(),
            ledger: Ledger::new(shape),
        })
    }

    #[inline]
    fn basis(&self, user: UserId) -> (View<'_>, f64) {
        let (view, count) = self.ledger.basis(user);
        (view, self.ranking.beta(count, self.clock.log_rounds()))
    }

    fn slot_view(&self, slot: usize) -> ClusterView<'_> {
        ClusterView {
            label: slot as ClusterId + 1,
            users: 1,
            count: self.ledger.count(slot),
            estimate: self.ledger.view(slot).estimate,
        }
    }

    /// Reads the state that [`Keep::save_to`] wrote, by small pieces, and not a byte more.
    ///
    /// # Errors
    /// [`LoadError::Io`] where the input fails; [`LoadError::State`] where what comes is no state.
    pub fn load_from(input: &mut dyn Read) -> Result<Self, LoadError> {
        let reader = Reader::new(input)?;
        reader.expect(Self::MAGIC)?;
        Self::load_words(reader)
    }

    /// What follows the header.
    pub(crate) fn load_words(mut reader: Reader<'_>) -> Result<Self, LoadError> {
        let dim = reader.half()? as usize;
        let params = Params::load(&mut reader)?;
        let mut state = Self::new(dim, &params)?;
        state.clock = Clock::at(reader.word()?);
        state.ledger = Ledger::load(state.shape, &mut reader)?;
        reader.end()?;
        Ok(state)
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

    fn best(
        &self,
        user: UserId,
        items: &ItemSet,
        k: usize,
        exclude: &dyn Fn(usize) -> bool,
        best: &mut Vec<Decision>,
    ) -> Result<(), Error> {
        check_items(items, self.shape.dim)?;
        let (view, beta) = self.basis(user);
        self.ranking.best(view, beta, items, k, exclude, best);
        Ok(())
    }

    fn learn_round(
        &mut self,
        round: &[Observation<'_>],
        _changes: &mut Vec<Change>,
    ) -> Result<(), Error> {
        check_round(round, self.shape.dim)?;
        self.ledger.check_room(round)?;
        self.clock.tick();
        for observation in round {
            self.ledger.observe(observation);
        }
        Ok(())
    }

    /// Each user is a cluster of her own, numbered by appearance; who has not appeared is 0. Where
    /// somebody is forgotten, the one with the last number takes hers.
    fn cluster_of(&self, user: UserId) -> ClusterId {
        self.ledger
            .slot(user)
            .map_or(0, |slot| slot as ClusterId + 1)
    }

    fn clusters(&self) -> usize {
        self.ledger.len()
    }

    fn estimate(&self, user: UserId) -> Vec<f64> {
        self.basis(user).0.estimate.to_vec()
    }

    fn digest(&self) -> u64 {
        let digest = Digest::new().word(self.clock.rounds());
        self.ledger.digest(digest).finish()
    }
}

impl Save for LinUcbInd {
    const MAGIC: u64 = u64::from_le_bytes(*b"sclub in");

    fn save_words(&self, writer: &mut Writer<'_>) -> io::Result<()> {
        writer.word(self.shape.dim as u64)?;
        self.params.save(writer)?;
        writer.word(self.clock.rounds())?;
        self.ledger.save(writer)
    }
}

impl Keep for LinUcbInd {
    fn forget(&mut self, user: UserId) -> bool {
        self.ledger.forget(user)
    }

    fn users(&self) -> u64 {
        self.ledger.len() as u64
    }

    fn singletons(&self) -> u64 {
        self.users()
    }

    fn count(&self, user: UserId) -> Option<u64> {
        Some(self.ledger.count(self.ledger.slot(user)?))
    }

    fn own_estimate(&self, user: UserId) -> Option<Vec<f64>> {
        let slot = self.ledger.slot(user)?;
        Some(self.ledger.view(slot).estimate.to_vec())
    }

    /// Nobody where she has not appeared.
    fn cluster_users(&self, user: UserId) -> u64 {
        u64::from(self.ledger.slot(user).is_some())
    }

    fn each_cluster(&self, visit: &mut dyn FnMut(ClusterView<'_>)) {
        (0..self.ledger.len()).for_each(|slot| visit(self.slot_view(slot)));
    }

    fn cluster(&self, id: ClusterId) -> Option<ClusterView<'_>> {
        let slot = index_of(id).filter(|&slot| slot < self.ledger.len())?;
        Some(self.slot_view(slot))
    }

    fn members(&self, id: ClusterId, limit: usize) -> Option<Vec<UserId>> {
        let user = *self.ledger.users().get(index_of(id)?)?;
        Some([user].into_iter().take(limit).collect())
    }

    fn save_to(&self, out: &mut dyn Write) -> io::Result<()> {
        bytes::save(self, out)
    }
}
