//! The state and a fit as bytes.

use std::io::{self, Read};

use super::background::Background;
use super::belief::Model;
use super::fit::{Elsewhere, Fit};
use super::mixture::{Centre, Mixture};
use super::params::SoftParams;
use super::plain::Plain;
use super::population::Population;
use super::symmetric::row_start;
use super::{SclubSoft, Served};
use crate::bytes::{self, Reader, Save, Writer, bad};
use crate::error::{Error, LoadError};
use crate::ledger::load_roster;
use crate::policy::MAX_ROUNDS;

/// The maximum number of clusters of a fit.
const MAX_CLUSTERS: u64 = 1 << 20;

/// The first word of a fit of version 0.1.
const FIT_0_1: u64 = u64::from_le_bytes(*b"sclub ft");

impl Mixture {
    pub(super) fn save(&self, writer: &mut Writer<'_>) -> io::Result<()> {
        writer.number(self.none)?;
        writer.word(self.centres.len() as u64)?;
        for centre in &self.centres {
            writer.word(centre.label)?;
            writer.number(centre.share)?;
            writer.numbers(&centre.mean)?;
        }
        Ok(())
    }

    pub(super) fn load(dim: usize, reader: &mut Reader<'_>) -> Result<Self, LoadError> {
        let none = share(reader)?;
        let count = reader.at_most(MAX_CLUSTERS)?;
        let mut centres = Vec::new();
        for _ in 0..count {
            let label = reader.word()?;
            let share = share(reader)?;
            let mean = finite(dim, reader)?;
            centres.push(Centre { label, mean, share });
        }
        Ok(Self { centres, none })
    }
}

/// A number of (0, 1].
fn share(reader: &mut Reader<'_>) -> Result<f64, LoadError> {
    let share = reader.number()?;
    if share > 0.0 && share <= 1.0 + 1e-9 {
        Ok(share)
    } else {
        Err(bad("a share is not above 0 and at most 1").into())
    }
}

pub(super) fn positive(reader: &mut Reader<'_>) -> Result<f64, LoadError> {
    let number = reader.number()?;
    if number > 0.0 && number.is_finite() {
        Ok(number)
    } else {
        Err(bad("a number is not positive and finite").into())
    }
}

pub(super) fn finite(count: usize, reader: &mut Reader<'_>) -> Result<Vec<f64>, LoadError> {
    let mut numbers = vec![0.0; count];
    reader.fill(&mut numbers)?;
    if numbers.iter().all(|number| number.is_finite()) {
        Ok(numbers)
    } else {
        Err(bad("a number is not finite").into())
    }
}

impl Fit {
    fn save(&self, writer: &mut Writer<'_>) -> io::Result<()> {
        writer.word(self.background.mean.len() as u64)?;
        writer.word(self.rounds)?;
        writer.word(self.searched)?;
        writer.word(self.forgotten)?;
        writer.word(self.number)?;
        writer.number(self.noise)?;
        writer.numbers(&self.background.mean)?;
        writer.numbers(&self.background.covariance)?;
        writer.word(self.users)?;
        writer.word(self.observations)?;
        writer.numbers(&self.information)?;
        self.mixture.save(writer)?;
        for &(users, count) in &self.sizes {
            writer.number(users)?;
            writer.number(count)?;
        }
        writer.word(self.others.len() as u64)?;
        for other in &self.others {
            other.save(writer)?;
        }
        self.played.save(writer)?;
        for spread in &self.spreads {
            writer.numbers(spread)?;
        }
        writer.word(self.next_label)?;
        writer.number(self.unplaced)?;
        writer.number(self.effective)?;
        writer.number(self.plain.as_ref().map_or(0.0, |plain| plain.weight))?;
        if let Some(plain) = &self.plain {
            writer.numbers(&plain.prior.covariance)?;
        }
        writer.word(self.elsewhere.rounds)?;
        writer.word(self.elsewhere.users)?;
        writer.number(self.elsewhere.gain)
    }

    /// Loads the words that [`Fit::save`] wrote. A fit of version 0.1 does not say how well the population's
    /// mean is known: then it counts as known from one user.
    fn load(expected: usize, is_0_1: bool, reader: &mut Reader<'_>) -> Result<Self, LoadError> {
        let dim = reader.u32()? as usize;
        if dim != expected {
            return Err(bad("it is a fit of another dimension").into());
        }
        let (rounds, searched) = (reader.word()?, reader.word()?);
        let (forgotten, number) = (reader.word()?, reader.word()?);
        let noise = positive(reader)?;
        let mean = finite(dim, reader)?;
        let covariance = finite(dim * (dim + 1) / 2, reader)?;
        let background = Background::new(mean, covariance)
            .filter(Background::is_usable)
            .ok_or_else(|| bad("its covariance is not positive definite"))?;
        let (users, observations, information) = match is_0_1 {
            true => (0, 0, background.precision.clone()),
            false => {
                let (users, observations) = (reader.at_most(MAX_ROUNDS)?, reader.word()?);
                (users, observations, finite(dim * (dim + 1) / 2, reader)?)
            }
        };
        let mixture = Mixture::load(dim, reader)?;
        let mut sizes = Vec::new();
        for _ in &mixture.centres {
            let size = finite(2, reader)?;
            sizes.push((size[0], size[1]));
        }
        let mut others = Vec::new();
        for _ in 0..reader.count()? {
            others.push(Mixture::load(dim, reader)?);
        }
        let played = Mixture::load(dim, reader)?;
        let same = |(a, b): (&Centre, &Centre)| a.label == b.label;
        if played.centres.len() < mixture.centres.len()
            || !mixture.centres.iter().zip(&played.centres).all(same)
        {
            return Err(bad("the averaged mixture does not begin with the best mixture").into());
        }
        let mut spreads = Vec::new();
        for _ in &played.centres {
            spreads.push(finite(dim * (dim + 1) / 2, reader)?);
        }
        let next_label = reader.at_most(MAX_ROUNDS)?;
        let rest = finite(2, reader)?;
        let weight = if is_0_1 { 0.0 } else { finite(1, reader)?[0] };
        let plain = if weight == 0.0 {
            None
        } else {
            let covariance = finite(dim * (dim + 1) / 2, reader)?;
            let prior = Background::new(vec![0.0; dim], covariance)
                .filter(|prior| prior.is_usable() && (0.0..=1.0).contains(&weight))
                .ok_or_else(|| bad("its plain prior is not valid"))?;
            Some(Plain { weight, prior })
        };
        let elsewhere = match is_0_1 {
            true => Elsewhere::default(),
            false => Elsewhere {
                rounds: reader.at_most(MAX_ROUNDS)?,
                users: reader.at_most(MAX_ROUNDS)?,
                gain: finite(1, reader)?[0],
            },
        };
        Ok(Self {
            rounds,
            users,
            observations,
            searched,
            forgotten,
            number,
            noise,
            background,
            plain,
            information,
            mixture,
            sizes,
            others,
            played,
            spreads,
            next_label,
            unplaced: rest[0],
            effective: rest[1],
            elsewhere,
        })
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        bytes::save_to_vec(self)
    }

    pub fn from_bytes(bytes: &[u8], dim: usize) -> Result<Self, Error> {
        bytes::load_slice(bytes, |input: &mut dyn Read| {
            let mut reader = Reader::new(input)?;
            let is_0_1 = reader.expect(FIT_0_1).is_ok();
            if !is_0_1 {
                reader.expect(Self::MAGIC)?;
            }
            let fit = Self::load(dim, is_0_1, &mut reader)?;
            reader.end()?;
            Ok(fit)
        })
    }
}

impl Save for Fit {
    const MAGIC: u64 = u64::from_le_bytes(*b"sclub f5");

    fn save_words(&self, writer: &mut Writer<'_>) -> io::Result<()> {
        self.save(writer)
    }
}

impl Save for SclubSoft {
    const MAGIC: u64 = u64::from_le_bytes(*b"sclub s5");

    fn save_words(&self, writer: &mut Writer<'_>) -> io::Result<()> {
        writer.word(self.layout.dim as u64)?;
        self.params.save(writer)?;
        writer.word(self.rounds)?;
        writer.word(self.due)?;
        writer.word(self.forgotten)?;
        writer.number(self.gain)?;
        writer.word(self.history.len() as u64)?;
        for &(rounds, clusters) in &self.history {
            writer.word(rounds)?;
            writer.word(clusters as u64)?;
        }
        let number = self.served.as_ref().map_or(0, |served| served.number);
        writer.word(number)?;
        if let Some(served) = &self.served {
            served.fit.save(writer)?;
            writer.numbers(&served.model.means)?;
        }
        self.population.save(writer)?;
        writer.words(self.roster.users().iter().copied())?;
        for slot in 0..self.sums.len() {
            writer.word(self.counts[slot])?;
            writer.numbers(&self.sums.row(slot)[..self.layout.used()])?;
        }
        self.beliefs.save(number, writer)?;
        Ok(())
    }
}

impl SclubSoft {
    /// Reads the state that [`crate::Persist::save_to`] wrote, in small pieces, and not a byte more.
    ///
    /// # Errors
    /// [`LoadError::Io`] if the input fails; [`LoadError::State`] if it is not a valid state.
    pub fn load_from(input: &mut dyn Read) -> Result<Self, LoadError> {
        let reader = Reader::new(input)?;
        reader.expect(Self::MAGIC)?;
        Self::load_words(reader)
    }

    /// Loads the words after the header.
    pub(crate) fn load_words(mut reader: Reader<'_>) -> Result<Self, LoadError> {
        let dim = reader.u32()? as usize;
        let params = SoftParams::load(&mut reader)?;
        let mut state = Self::new(dim, &params)?;
        state.rounds = reader.at_most(MAX_ROUNDS)?;
        state.due = reader.word()?;
        state.forgotten = reader.at_most(MAX_ROUNDS)?;
        state.gain = finite(1, &mut reader)?[0];
        for _ in 0..reader.count()? {
            let rounds = reader.word()?;
            state.history.push((rounds, reader.u32()? as usize));
        }
        let number = reader.word()?;
        if number > 0 {
            let fit = Fit::load(dim, false, &mut reader)?;
            let mut model = Model::new(state.layout, &fit, number);
            for k in 0..fit.played.centres.len() {
                model.set_centre(k, &finite(dim, &mut reader)?);
            }
            state.served = Some(Served { number, fit, model });
        }
        state.population = Population::load(dim, &mut reader)?;
        let hypotheses = state
            .served
            .as_ref()
            .map_or(0, |served| served.fit.played.centres.len() + 1);
        state.roster = load_roster(&mut reader)?;
        for slot in 0..state.roster.len() {
            state.counts.push(reader.at_most(MAX_ROUNDS)?);
            state.sums.push();
            let used = state.layout.used();
            let row = &mut state.sums.row_mut(slot)[..used];
            reader.fill(row)?;
            let squares = (0..dim).map(|i| row[row_start(i) + i]);
            let is_valid = squares
                .chain([row[used - 2], row[used - 1]])
                .all(|sum| sum >= 0.0);
            if !is_valid || !row.iter().all(|sum| sum.is_finite()) {
                return Err(bad("the sums of a user are not valid").into());
            }
        }
        let users = state.roster.len();
        state
            .beliefs
            .load(users, (number, hypotheses), &mut reader)?;
        reader.end()?;
        Ok(state)
    }
}
