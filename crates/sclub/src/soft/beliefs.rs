//! The beliefs about users, kept for as many users as there is room for.
//!
//! A belief can be computed from the user's sums and the fit. A kept one also knows how the population's mean and the
//! centres moved since the fit. It takes as much memory as the sums, so only some are
//! kept: the user in slot s has place s mod `room`, and the last to be observed stays. Beliefs enter
//! when users are observed, never when they are recommended to, so the contents depend on the rounds alone.

use std::io;

use super::belief::Belief;
use super::mixture::normalise;
use crate::bytes::{Reader, Writer, bad};
use crate::error::LoadError;
use crate::statistics::{Blocks, Shape};

/// The number of beliefs that are kept.
const ROOM: usize = 1 << 14;

#[derive(Debug, Clone)]
pub(crate) struct Beliefs {
    room: usize,
    /// For each place, the slot of its user plus 1; 0 if it is empty.
    owners: Vec<u32>,
    blocks: Blocks,
    beliefs: Vec<Belief>,
}

impl Beliefs {
    pub fn new(shape: Shape) -> Self {
        Self::with_room(shape, ROOM)
    }

    pub fn with_room(shape: Shape, room: usize) -> Self {
        Self {
            room,
            owners: Vec::new(),
            blocks: Blocks::new(shape),
            beliefs: Vec::new(),
        }
    }

    pub fn room(&self) -> usize {
        self.room
    }

    /// The place of a user, if the user's belief is there.
    fn place(&self, slot: usize) -> Option<usize> {
        let place = slot % self.room;
        let owner = *self.owners.get(place)?;
        (owner as usize == slot + 1).then_some(place)
    }

    /// The block and the belief of a user that belong to a fit, if they are kept.
    pub fn get(&self, slot: usize, fit: u64) -> Option<(&[f64], &Belief)> {
        let place = self.place(slot)?;
        let belief = &self.beliefs[place];
        (belief.fit == fit).then(|| (self.blocks.get(place), belief))
    }

    /// As [`Beliefs::get`], to change them.
    pub fn get_mut(&mut self, slot: usize, fit: u64) -> Option<(&mut [f64], &mut Belief)> {
        let place = self.place(slot)?;
        let belief = &mut self.beliefs[place];
        (belief.fit == fit).then(|| (self.blocks.get_mut(place), belief))
    }

    /// Keeps the belief about a user, in place of the one that was there.
    pub fn put(&mut self, slot: usize, block: &[f64], belief: Belief) {
        let place = slot % self.room;
        while self.owners.len() <= place {
            self.owners.push(0);
            self.blocks.push();
            self.beliefs.push(Belief::default());
        }
        self.owners[place] = slot as u32 + 1;
        self.blocks.get_mut(place).copy_from_slice(block);
        self.beliefs[place] = belief;
    }

    /// Removes the belief about a user.
    fn clear(&mut self, slot: usize) -> Option<(Vec<f64>, Belief)> {
        let place = self.place(slot)?;
        self.owners[place] = 0;
        let block = self.blocks.get(place).to_vec();
        self.blocks.get_mut(place).fill(0.0);
        Some((block, std::mem::take(&mut self.beliefs[place])))
    }

    /// The user of a slot is forgotten, and the user of the last slot moves there.
    pub fn swap_remove(&mut self, slot: usize, last: usize) {
        self.clear(slot);
        if let Some((block, belief)) = self.clear(last) {
            self.put(slot, &block, belief);
        }
        if last == 0 {
            *self = Self::with_room(self.blocks.shape(), self.room);
        }
    }

    pub fn save(&self, fit: u64, writer: &mut Writer<'_>) -> io::Result<()> {
        let current = |&place: &usize| self.owners[place] > 0 && self.beliefs[place].fit == fit;
        let mut places: Vec<usize> = (0..self.owners.len()).filter(current).collect();
        places.sort_unstable_by_key(|&place| self.owners[place]);
        writer.word(places.len() as u64)?;
        for place in places {
            writer.word(u64::from(self.owners[place] - 1))?;
            writer.numbers(self.blocks.get(place))?;
            writer.numbers(&self.beliefs[place].logs)?;
        }
        Ok(())
    }

    /// Loads the words that [`Beliefs::save`] wrote, for a fit with so many hypotheses.
    pub fn load(
        &mut self,
        users: usize,
        (fit, hypotheses): (u64, usize),
        reader: &mut Reader<'_>,
    ) -> Result<(), LoadError> {
        let most = if fit == 0 { 0 } else { users.min(self.room) };
        for _ in 0..reader.at_most(most as u64)? {
            let slot = reader.u32()? as usize;
            if slot >= users || self.owners.get(slot % self.room).is_some_and(|&o| o > 0) {
                return Err(bad("a belief is out of place").into());
            }
            let mut block = vec![0.0; self.blocks.shape().block()];
            reader.fill(&mut block)?;
            self.blocks.shape().check(&block)?;
            let mut logs = vec![0.0; hypotheses];
            reader.fill(&mut logs)?;
            if !logs.iter().all(|log| log.is_finite()) {
                return Err(bad("a number is not finite").into());
            }
            let mut weights = logs.clone();
            let log_sum = normalise(&mut weights);
            let belief = Belief {
                fit,
                logs,
                weights,
                log_sum,
                expected: Vec::new(),
            };
            self.put(slot, &block, belief);
        }
        Ok(())
    }
}
