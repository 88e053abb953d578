//! LinUCB for all users together, or for each of some known groups.

use std::io::{self, Read, Write};

use super::gather::{self, Answer, Counts, Elsewhere, GroupSums};
use super::index_of;
use crate::abilities::{
    BackgroundFit, ClusterView, Correct, Forget, Inspect, PartitionedFit, Persist,
};
use crate::bytes::{self, Reader, Save, Writer, bad};
use crate::error::{Error, LoadError, check_dim};
use crate::items::ItemSet;
use crate::ledger::Ledger;
use crate::params::{self, Params};
use crate::policy::{
    Change, Clock, ClusterId, Decision, MAX_ROUNDS, Observation, Policy, Score, UserId,
    check_correction, check_items, check_round, offers, rank_by_basis,
};
use crate::refit::{Answering, Progress, Refit};
use crate::spec::{Abilities, Load, Partitions, Spec};
use crate::statistics::{Aggregate, Scratch, Shape, View};
use crate::ucb::Ranking;

/// The users who share an estimate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Groups {
    /// All users together: the paper's LinUCB-One.
    One,
    /// The group of each user, numbered from 0. Users outside the list share one more group.
    Known(Vec<u32>),
}

/// LinUCB with an estimate for each of some groups of users.
///
/// It keeps the sums of groups only, so it cannot forget a user; [`ForgettableLinUcb`] can.
#[derive(Debug, Clone)]
pub struct LinUcbShared {
    params: Params,
    ranking: Ranking,
    scratch: Scratch,
    clock: Clock,
    group_of: Vec<u32>,
    /// The sums that recommendations are made from, those of other partitions included.
    groups: Vec<Aggregate>,
    /// Users forgotten so far.
    forgotten: u64,
    /// The part of `groups` from other partitions of the users, since the first fit over partitions.
    elsewhere: Option<Elsewhere>,
}

impl LinUcbShared {
    /// An estimate for each group.
    ///
    /// # Errors
    /// [`Error::Dimension`], [`Error::BadParameter`], [`Error::NoUsers`] if a list of groups is
    /// empty, [`Error::TooMany`] if a group number is not less than the number of listed users.
    pub fn new(dim: usize, groups: Groups, params: &Params) -> Result<Self, Error> {
        params.check()?;
        let shape = Shape {
            dim: check_dim(dim)?,
        };
        let (group_of, groups) = match groups {
            Groups::One => (Vec::new(), 1),
            Groups::Known(group_of) => {
                let last = *group_of.iter().max().ok_or(Error::NoUsers)? as usize;
                if last >= group_of.len() {
                    return Err(Error::TooMany {
                        what: "the number of groups",
                        limit: group_of.len() as u64,
                    });
                }
                (group_of, last + 2)
            }
        };
        Ok(Self {
            params: *params,
            ranking: Ranking::new(dim, params),
            scratch: Scratch::new(shape),
            clock: Clock::new(),
            group_of,
            groups: vec![Aggregate::new(shape); groups],
            forgotten: 0,
            elsewhere: None,
        })
    }

    /// The statistics that a recommendation to a user is made from, and β.
    #[inline]
    fn basis(&self, user: UserId) -> (View<'_>, f64) {
        let group = &self.groups[self.group(user)];
        let elsewhere = self.elsewhere.as_ref();
        let log_rounds = elsewhere.map_or(self.clock.log_rounds(), |e| e.log_rounds);
        (group.view(), self.ranking.beta(group.count(), log_rounds))
    }

    /// Number of groups of listed users.
    fn listed(&self) -> usize {
        let last = self.group_of.iter().max();
        last.map_or(1, |&last| last as usize + 1)
    }

    /// Number of groups: those of listed users, and that of the others once one has appeared.
    fn nonempty(&self) -> usize {
        let others = &self.groups[self.groups.len() - 1];
        let has_others = !self.group_of.is_empty() && others.count() > 0;
        self.listed() + usize::from(has_others)
    }

    #[inline]
    fn group(&self, user: UserId) -> usize {
        let others = self.groups.len() - 1;
        usize::try_from(user)
            .ok()
            .and_then(|user| self.group_of.get(user))
            .map_or(others, |&group| group as usize)
    }

    /// The sums of a group's own users, without other partitions.
    fn own_sums(&self, group: usize, users: u64) -> GroupSums {
        let own = self.elsewhere.as_ref().map(|e| e.own[group].clone());
        let mut own = own.unwrap_or_else(|| GroupSums::of(&self.groups[group], 0));
        own.users = users;
        own
    }

    /// The answer to a question of a fit over partitions.
    fn answer_for(&self, users: &[u64], question: &[u8]) -> Result<Box<dyn Answering>, Error> {
        gather::check_question(question, self.dim())?;
        let groups = users.iter().enumerate();
        Ok(Box::new(Answer {
            dim: self.dim(),
            rounds: self.clock.rounds(),
            forgotten: self.forgotten,
            own: groups.map(|(g, &users)| self.own_sums(g, users)).collect(),
        }))
    }

    fn progress_for(&self, users: u64) -> Progress {
        let counts = Counts {
            rounds: self.clock.rounds(),
            users,
            forgotten: self.forgotten,
        };
        let groups = 0..self.groups.len();
        let observations = groups.map(|g| self.own_sums(g, 0).count).sum();
        gather::progress(&counts, observations, self.elsewhere.as_ref())
    }

    /// Writes everything but the ledger.
    fn save_groups(&self, has_ledger: bool, writer: &mut Writer<'_>) -> io::Result<()> {
        writer.word(self.dim() as u64)?;
        self.params.save(writer)?;
        writer.word(self.clock.rounds())?;
        writer.words(self.group_of.iter().map(|&group| u64::from(group)))?;
        writer.word(self.groups.len() as u64)?;
        self.groups
            .iter()
            .try_for_each(|group| group.save(writer))?;
        let has_partitions = self.elsewhere.is_some() || self.forgotten > 0;
        writer.word(u64::from(has_ledger) + 2 * u64::from(has_partitions))?;
        if has_partitions {
            writer.word(self.forgotten)?;
            writer.word(u64::from(self.elsewhere.is_some()))?;
            if let Some(elsewhere) = &self.elsewhere {
                elsewhere.save(writer)?;
            }
        }
        Ok(())
    }

    /// Loads the words after the header: the groups, and the ledger if there is one.
    fn load_words(mut reader: Reader<'_>) -> Result<(Self, Option<Ledger>), LoadError> {
        let dim = reader.u32()? as usize;
        let params = Params::load(&mut reader)?;
        let mut state = Self::new(dim, Groups::One, &params)?;
        let shape = state.scratch.shape();
        state.clock = Clock::at(reader.word()?)?;
        for _ in 0..reader.count()? {
            state.group_of.push(reader.u32()?);
        }
        state.groups.clear();
        for _ in 0..reader.count()? {
            state.groups.push(Aggregate::load(shape, &mut reader)?);
        }
        // Users who are not listed have a group behind the others, if any are listed.
        let groups = state.listed() + usize::from(!state.group_of.is_empty());
        if state.groups.len() != groups {
            return Err(bad("its number of groups does not match the groups of its users").into());
        }
        let parts = reader.at_most(3)?;
        if parts & 2 != 0 {
            state.forgotten = reader.at_most(MAX_ROUNDS)?;
            if reader.at_most(1)? == 1 {
                let rounds = state.clock.rounds();
                let elsewhere = Elsewhere::load(shape, groups, rounds, &mut reader)?;
                state.elsewhere = Some(elsewhere);
            }
        }
        let ledger = match parts & 1 {
            1 => Some(Ledger::load(shape, &mut reader)?),
            _ => None,
        };
        reader.end()?;
        Ok((state, ledger))
    }
}

impl Policy for LinUcbShared {
    fn dim(&self) -> usize {
        self.scratch.shape().dim
    }

    fn rounds(&self) -> u64 {
        self.clock.rounds()
    }

    rank_by_basis!();

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
            if let Some(elsewhere) = &mut self.elsewhere {
                elsewhere.own[group].observe(observation.item, observation.reward);
            }
        }
        if let Some(elsewhere) = &mut self.elsewhere {
            elsewhere.set_rounds(self.clock.rounds());
        }
        Ok(())
    }

    fn cluster_of(&self, user: UserId) -> Option<ClusterId> {
        Some(self.group(user) as ClusterId + 1)
    }

    fn clusters(&self) -> usize {
        self.nonempty()
    }

    fn digest(&self) -> u64 {
        bytes::digest(self)
    }

    fn state_bytes(&self) -> Option<u64> {
        Some(bytes::length(self))
    }

    offers!(persist, fit, partitioned);
}

impl Save for LinUcbShared {
    const MAGIC: u64 = u64::from_le_bytes(*b"sclub sh");

    fn save_words(&self, writer: &mut Writer<'_>) -> io::Result<()> {
        self.save_groups(false, writer)
    }
}

impl Persist for LinUcbShared {
    fn save_to(&self, out: &mut dyn Write) -> io::Result<()> {
        bytes::save(self, out)
    }
}

/// It makes no fits of its own. It takes those over several partitions.
impl BackgroundFit for LinUcbShared {
    fn refit(&self) -> Option<Box<dyn Refit>> {
        None
    }

    fn take_fit(&mut self, fit: &[u8]) -> Result<(), Error> {
        let groups = self.groups.len();
        let fit = gather::Fit::from_bytes(fit, self.scratch.shape(), groups)?;
        let own = (0..groups).map(|group| self.own_sums(group, 0)).collect();
        let elsewhere = Elsewhere::new(fit, own, self.clock.rounds());
        for (group, sums) in self.groups.iter_mut().enumerate() {
            *sums = elsewhere.combined(group, &mut self.scratch);
        }
        self.elsewhere = Some(elsewhere);
        Ok(())
    }
}

/// Users are not counted.
impl PartitionedFit for LinUcbShared {
    fn progress(&self) -> Progress {
        self.progress_for(0)
    }

    fn prepare(&self, question: &[u8]) -> Result<Box<dyn Answering>, Error> {
        self.answer_for(&vec![0; self.groups.len()], question)
    }
}

/// [`LinUcbShared`], with the same decisions to the bit, that also keeps the statistics of
/// each user: it can be inspected, and users can be forgotten.
#[derive(Debug, Clone)]
pub struct ForgettableLinUcb {
    shared: LinUcbShared,
    ledger: Ledger,
}

impl ForgettableLinUcb {
    /// An estimate for each group.
    ///
    /// # Errors
    /// As [`LinUcbShared::new`].
    pub fn new(dim: usize, groups: Groups, params: &Params) -> Result<Self, Error> {
        let shared = LinUcbShared::new(dim, groups, params)?;
        let ledger = Ledger::new(shared.scratch.shape());
        Ok(Self { shared, ledger })
    }

    /// Loads the state that [`Persist::save_to`] wrote, in small pieces, and reads not a byte more.
    ///
    /// # Errors
    /// [`LoadError::Io`] if the input fails; [`LoadError::State`] if it is not such a state.
    pub fn load_from(input: &mut dyn Read) -> Result<Self, LoadError> {
        let reader = Reader::new(input)?;
        reader.expect(Self::MAGIC)?;
        match LinUcbShared::load_words(reader)? {
            (shared, Some(ledger)) => Ok(Self { shared, ledger }),
            (_, None) => Err(bad("it has no statistics of single users").into()),
        }
    }

    /// The users of a group who have appeared.
    fn users_of(&self, group: usize) -> impl Iterator<Item = UserId> + '_ {
        let users = self.ledger.users().iter().copied();
        users.filter(move |&user| self.shared.group(user) == group)
    }

    fn group_view(&self, group: usize) -> ClusterView<'_> {
        let users = match self.shared.groups.len() {
            1 => self.ledger.len(),
            _ => self.users_of(group).count(),
        };
        let sums = &self.shared.groups[group];
        let elsewhere = self.shared.elsewhere.as_ref();
        let others = elsewhere.map_or(0, |e| e.others()[group].users);
        ClusterView {
            label: group as ClusterId + 1,
            users: users as u64 + others,
            count: sums.count(),
            estimate: sums.view().estimate,
        }
    }

    fn group_with(&self, id: ClusterId) -> Option<usize> {
        index_of(id).filter(|&group| group < self.shared.nonempty())
    }
}

impl Policy for ForgettableLinUcb {
    fn dim(&self) -> usize {
        self.shared.dim()
    }

    fn rounds(&self) -> u64 {
        self.shared.rounds()
    }

    fn recommend(&self, user: UserId, items: &ItemSet) -> Result<Decision, Error> {
        self.shared.recommend(user, items)
    }

    fn explain(&self, user: UserId, items: &ItemSet, scores: &mut Vec<Score>) -> Result<(), Error> {
        self.shared.explain(user, items, scores)
    }

    fn best(
        &self,
        user: UserId,
        items: &ItemSet,
        k: usize,
        exclude: &dyn Fn(usize) -> bool,
        best: &mut Vec<Decision>,
    ) -> Result<(), Error> {
        self.shared.best(user, items, k, exclude, best)
    }

    fn learn_round(
        &mut self,
        round: &[Observation<'_>],
        changes: &mut Vec<Change>,
    ) -> Result<(), Error> {
        self.ledger.check_room(round)?;
        self.shared.learn_round(round, changes)?;
        for observation in round {
            self.ledger.observe(observation);
        }
        Ok(())
    }

    fn cluster_of(&self, user: UserId) -> Option<ClusterId> {
        self.shared.cluster_of(user)
    }

    fn clusters(&self) -> usize {
        self.shared.clusters()
    }

    fn estimate(&self, user: UserId) -> Option<Vec<f64>> {
        self.shared.estimate(user)
    }

    fn digest(&self) -> u64 {
        bytes::digest(self)
    }

    fn state_bytes(&self) -> Option<u64> {
        Some(bytes::length(self))
    }

    offers!(inspect, persist, forget, correct, fit, partitioned);
}

impl BackgroundFit for ForgettableLinUcb {
    fn refit(&self) -> Option<Box<dyn Refit>> {
        None
    }

    fn take_fit(&mut self, fit: &[u8]) -> Result<(), Error> {
        self.shared.take_fit(fit)
    }
}

impl PartitionedFit for ForgettableLinUcb {
    fn progress(&self) -> Progress {
        self.shared.progress_for(self.ledger.len() as u64)
    }

    fn prepare(&self, question: &[u8]) -> Result<Box<dyn Answering>, Error> {
        let mut users = vec![0; self.shared.groups.len()];
        for &user in self.ledger.users() {
            users[self.shared.group(user)] += 1;
        }
        self.shared.answer_for(&users, question)
    }
}

impl Correct for ForgettableLinUcb {
    fn correct(&mut self, user: UserId, item: &[f64], from: f64, to: f64) -> Result<bool, Error> {
        check_correction(item, from, to, self.dim())?;
        let change = to - from;
        if !self.ledger.correct(user, item, change) {
            return Ok(false);
        }
        let group = self.shared.group(user);
        self.shared.groups[group].correct(item, change);
        if let Some(elsewhere) = &mut self.shared.elsewhere {
            elsewhere.own[group].correct(item, change);
        }
        Ok(true)
    }
}

impl Save for ForgettableLinUcb {
    const MAGIC: u64 = LinUcbShared::MAGIC;

    fn save_words(&self, writer: &mut Writer<'_>) -> io::Result<()> {
        self.shared.save_groups(true, writer)?;
        self.ledger.save(writer)
    }
}

impl Persist for ForgettableLinUcb {
    fn save_to(&self, out: &mut dyn Write) -> io::Result<()> {
        bytes::save(self, out)
    }
}

impl Forget for ForgettableLinUcb {
    /// The time it takes grows with the number of users.
    fn forget(&mut self, user: UserId) -> bool {
        if !self.ledger.forget(user) {
            return false;
        }
        let (shared, ledger) = (&mut self.shared, &self.ledger);
        let group = shared.group(user);
        let mut sums = Aggregate::new(shared.scratch.shape());
        for (slot, &other) in ledger.users().iter().enumerate() {
            if shared.group(other) == group {
                sums.add_block(&mut shared.scratch, ledger.block(slot), ledger.count(slot));
            }
        }
        if let Some(elsewhere) = &mut shared.elsewhere {
            elsewhere.own[group] = GroupSums::of(&sums, 0);
            elsewhere.others()[group].add_to(&mut sums);
        }
        sums.factorise(&mut shared.scratch);
        shared.groups[group] = sums;
        shared.forgotten += 1;
        true
    }
}

impl Inspect for ForgettableLinUcb {
    fn users(&self) -> u64 {
        self.ledger.len() as u64
    }

    fn singletons(&self) -> u64 {
        let groups = 0..self.shared.nonempty();
        groups.filter(|&g| self.group_view(g).users == 1).count() as u64
    }

    fn count(&self, user: UserId) -> Option<u64> {
        Some(self.ledger.count(self.ledger.slot(user)?))
    }

    fn own_estimate(&self, user: UserId) -> Option<Vec<f64>> {
        let slot = self.ledger.slot(user)?;
        Some(self.ledger.view(slot).estimate.to_vec())
    }

    fn cluster_users(&self, user: UserId) -> u64 {
        self.group_view(self.shared.group(user)).users
    }

    fn each_cluster(&self, visit: &mut dyn FnMut(ClusterView<'_>)) {
        (0..self.shared.nonempty()).for_each(|group| visit(self.group_view(group)));
    }

    fn cluster(&self, id: ClusterId) -> Option<ClusterView<'_>> {
        Some(self.group_view(self.group_with(id)?))
    }

    fn members(&self, id: ClusterId, limit: usize) -> Option<Vec<UserId>> {
        let group = self.group_with(id)?;
        Some(self.users_of(group).take(limit).collect())
    }
}

/// `linucb-one`
pub static SPEC: Spec = Spec {
    name: "linucb-one",
    title: "LinUCB-One",
    summary: "LinUCB with one estimate for all users together",
    citation: "Li, Chu, Langford and Schapire, WWW 2010",
    colors: ["#009E73", "#2FCB9B"],
    revision: 1,
    presets: params::PRESETS,
    constants: params::INDEX_CONSTANTS,
    can: Abilities {
        correct: true,
        partitions: Partitions::Gathered,
        ..Abilities::SERVED
    },
    new: |setup, values| {
        let params = Params::from_values(values);
        Ok(match setup.can_forget {
            true => Box::new(ForgettableLinUcb::new(setup.dim, Groups::One, &params)?),
            false => Box::new(LinUcbShared::new(setup.dim, Groups::One, &params)?),
        })
    },
    load: Some(Load {
        magic: LinUcbShared::MAGIC,
        load: |reader| {
            Ok(match LinUcbShared::load_words(reader)? {
                (shared, Some(ledger)) => Box::new(ForgettableLinUcb { shared, ledger }),
                (shared, None) => Box::new(shared),
            })
        },
    }),
    gather: Some(gather::begin),
};
