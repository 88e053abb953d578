//! The statistics of each user alone: (S_i, b_i, T_i) by order of appearance.

use crate::bytes::{Reader, Writer, bad};
use crate::error::{Error, LoadError};
use crate::kernels;
use crate::policy::{MAX_ROUNDS, Observation, UserId};
use crate::roster::Roster;
use crate::statistics::{Blocks, Shape, View};

/// The users who have appeared, each with their own statistics.
#[derive(Debug, Clone)]
pub(crate) struct Ledger {
    shape: Shape,
    roster: Roster,
    blocks: Blocks,
    counts: Vec<u64>,
}

impl Ledger {
    pub fn new(shape: Shape) -> Self {
        Self {
            shape,
            roster: Roster::default(),
            blocks: Blocks::new(shape),
            counts: Vec::new(),
        }
    }

    pub fn len(&self) -> usize {
        self.roster.len()
    }

    #[inline]
    pub fn slot(&self, user: UserId) -> Option<usize> {
        self.roster.slot(user)
    }

    /// The users, by slot.
    pub fn users(&self) -> &[UserId] {
        self.roster.users()
    }

    pub fn count(&self, slot: usize) -> u64 {
        self.counts[slot]
    }

    pub fn block(&self, slot: usize) -> &[f64] {
        self.blocks.get(slot)
    }

    pub fn view(&self, slot: usize) -> View<'_> {
        self.blocks.view(slot)
    }

    /// (S, b) and T of a user, who need not have appeared.
    #[inline]
    pub fn basis(&self, user: UserId) -> (View<'_>, u64) {
        self.at(self.roster.slot(user).unwrap_or(usize::MAX))
    }

    /// (S, b) and T of a slot; those of no observation if it is free.
    #[inline]
    pub fn at(&self, slot: usize) -> (View<'_>, u64) {
        match self.counts.get(slot) {
            Some(&count) => (self.blocks.view(slot), count),
            None => (self.shape.view(self.blocks.empty()), 0),
        }
    }

    pub fn check_room(&self, round: &[Observation<'_>]) -> Result<(), Error> {
        self.roster.check_room(round)
    }

    /// One observation; its user may be new.
    #[inline]
    pub fn observe(&mut self, observation: &Observation<'_>) {
        let slot = self.roster.slot(observation.user).unwrap_or_else(|| {
            self.blocks.push();
            self.counts.push(0);
            self.roster.admit(observation.user)
        });
        let block = self.blocks.get_mut(slot);
        kernels::observe(self.shape.dim, block, observation.item, observation.reward);
        self.counts[slot] += 1;
    }

    /// Adds `change` to the reward of an observation of a user. Returns false if the user is unknown.
    pub fn correct(&mut self, user: UserId, item: &[f64], change: f64) -> bool {
        let Some(slot) = self.roster.slot(user) else {
            return false;
        };
        let block = self.blocks.get_mut(slot);
        self.shape.correct(block, item, change);
        true
    }

    /// Removes a user; the user in the last slot moves into theirs. Returns true if the user was known.
    pub fn forget(&mut self, user: UserId) -> bool {
        let Some(slot) = self.roster.slot(user) else {
            return false;
        };
        self.roster.dismiss(slot);
        self.blocks.swap_remove(slot);
        self.counts.swap_remove(slot);
        true
    }

    /// Writes the users, then T and the block of each.
    pub fn save(&self, writer: &mut Writer<'_>) -> std::io::Result<()> {
        writer.words(self.users().iter().copied())?;
        for (slot, &count) in self.counts.iter().enumerate() {
            writer.word(count)?;
            writer.numbers(self.blocks.get(slot))?;
        }
        Ok(())
    }

    /// Loads the words that [`Ledger::save`] wrote.
    pub fn load(shape: Shape, reader: &mut Reader<'_>) -> Result<Self, LoadError> {
        let mut ledger = Self::new(shape);
        ledger.roster = load_roster(reader)?;
        ledger.counts.reserve_exact(ledger.roster.len());
        for slot in 0..ledger.roster.len() {
            ledger.counts.push(reader.at_most(MAX_ROUNDS)?);
            ledger.blocks.push();
            reader.fill(ledger.blocks.get_mut(slot))?;
        }
        Ok(ledger)
    }
}

/// Loads the users that [`Writer::words`] wrote.
pub(crate) fn load_roster(reader: &mut Reader<'_>) -> Result<Roster, LoadError> {
    let users = reader.words()?;
    Roster::from_users(users).ok_or_else(|| bad("a user is listed twice").into())
}
