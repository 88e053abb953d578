//! LinUCB over several partitions of the users: one question for the sums of each partition. A partition recommends
//! from its own sums and those of the others as of the last fit.

use std::io::{self, Read};

use crate::bytes::{self, Reader, Save, Writer, bad};
use crate::error::{Error, LoadError, MAX_MAGNITUDE, check_dim};
use crate::kernels;
use crate::policy::MAX_ROUNDS;
use crate::refit::{Answering, Gathering, Progress, Workers};
use crate::spec::{Setup, Values};
use crate::statistics::{Aggregate, Scratch, Shape};

/// The number of new rounds in all partitions at which a fit is due, and their share of all rounds.
const MIN_NEW_ROUNDS: u64 = 32;
const GROWTH: f64 = 1.02;

/// The number of forgotten users of a partition that a fit has no sums of.
const LEFT_OUT: u64 = u64::MAX;

/// G, b and T of a group, without factors.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct GroupSums {
    gram: Vec<f64>,
    moment: Vec<f64>,
    pub count: u64,
    pub users: u64,
}

impl GroupSums {
    fn new(shape: Shape) -> Self {
        Self {
            gram: vec![0.0; shape.gram()],
            moment: vec![0.0; shape.dim],
            count: 0,
            users: 0,
        }
    }

    pub fn of(sums: &Aggregate, users: u64) -> Self {
        Self {
            gram: sums.gram().to_vec(),
            moment: sums.view().moment.to_vec(),
            count: sums.count(),
            users,
        }
    }

    pub fn observe(&mut self, item: &[f64], reward: f64) {
        kernels::add_outer(item.len(), &mut self.gram, item);
        kernels::add_scaled(&mut self.moment, reward, item);
        self.count += 1;
    }

    /// Adds `change` to the reward of an observation of an item.
    pub fn correct(&mut self, item: &[f64], change: f64) {
        kernels::add_scaled(&mut self.moment, change, item);
    }

    fn add(&mut self, other: &Self) {
        kernels::add_scaled(&mut self.gram, 1.0, &other.gram);
        kernels::add_scaled(&mut self.moment, 1.0, &other.moment);
        self.count = self.count.saturating_add(other.count).min(MAX_ROUNDS / 2);
        self.users = self.users.saturating_add(other.users).min(MAX_ROUNDS / 2);
    }

    pub fn add_to(&self, sums: &mut Aggregate) {
        sums.add_sums(&self.gram, &self.moment, self.count);
    }

    fn save(&self, writer: &mut Writer<'_>) -> io::Result<()> {
        writer.word(self.count)?;
        writer.word(self.users)?;
        writer.numbers(&self.gram)?;
        writer.numbers(&self.moment)
    }

    fn load(shape: Shape, reader: &mut Reader<'_>) -> Result<Self, LoadError> {
        let mut sums = Self::new(shape);
        sums.count = reader.at_most(MAX_ROUNDS / 2)?;
        sums.users = reader.at_most(MAX_ROUNDS / 2)?;
        reader.fill(&mut sums.gram)?;
        reader.fill(&mut sums.moment)?;
        // No sum of observations can be larger.
        let most = (sums.count as f64 * MAX_MAGNITUDE * MAX_MAGNITUDE) * (1.0 + 1e-6);
        let mut numbers = sums.gram.iter().chain(&sums.moment);
        match numbers.all(|number| number.abs() <= most) {
            true => Ok(sums),
            false => Err(bad("a sum is not valid").into()),
        }
    }
}

fn save_groups(groups: &[GroupSums], writer: &mut Writer<'_>) -> io::Result<()> {
    writer.word(groups.len() as u64)?;
    groups.iter().try_for_each(|group| group.save(writer))
}

fn load_groups(
    shape: Shape,
    groups: usize,
    reader: &mut Reader<'_>,
) -> Result<Vec<GroupSums>, LoadError> {
    if reader.word()? != groups as u64 {
        return Err(bad("it has another number of groups").into());
    }
    (0..groups)
        .map(|_| GroupSums::load(shape, reader))
        .collect()
}

/// The sums of the other partitions of the users, and those of this one.
#[derive(Debug, Clone)]
pub(super) struct Elsewhere {
    fit: Fit,
    /// The sums of this partition's own users, by group.
    pub own: Vec<GroupSums>,
    /// ln of the rounds of all partitions, those of the others as of the fit.
    pub log_rounds: f64,
}

impl Elsewhere {
    pub fn new(fit: Fit, own: Vec<GroupSums>, rounds: u64) -> Self {
        let mut elsewhere = Self {
            fit,
            own,
            log_rounds: 0.0,
        };
        elsewhere.set_rounds(rounds);
        elsewhere
    }

    /// Sets the number of rounds of this partition.
    pub fn set_rounds(&mut self, own: u64) {
        let all = own.saturating_add(self.fit.rounds).max(1);
        self.log_rounds = libm::log(all as f64);
    }

    /// The sums of the users of the other partitions, by group.
    pub fn others(&self) -> &[GroupSums] {
        &self.fit.others
    }

    /// The sums of a group over all partitions.
    pub fn combined(&self, group: usize, scratch: &mut Scratch) -> Aggregate {
        let mut sums = Aggregate::new(scratch.shape());
        self.own[group].add_to(&mut sums);
        self.others()[group].add_to(&mut sums);
        sums.factorise(scratch);
        sums
    }

    /// True if the fit contains a user who has been forgotten since.
    fn must_refit(&self, forgotten: u64) -> bool {
        self.fit.forgotten != forgotten && self.fit.forgotten != LEFT_OUT
    }

    pub fn save(&self, writer: &mut Writer<'_>) -> io::Result<()> {
        self.fit.save_words(writer)?;
        save_groups(&self.own, writer)
    }

    pub fn load(
        shape: Shape,
        groups: usize,
        rounds: u64,
        reader: &mut Reader<'_>,
    ) -> Result<Self, LoadError> {
        let fit = Fit::load(shape, groups, reader)?;
        let own = load_groups(shape, groups, reader)?;
        Ok(Self::new(fit, own, rounds))
    }
}

/// The state of a partition in short.
pub(super) fn progress(
    counts: &Counts,
    observations: u64,
    elsewhere: Option<&Elsewhere>,
) -> Progress {
    let fit = elsewhere.map(|elsewhere| &elsewhere.fit);
    Progress {
        rounds: counts.rounds,
        users: counts.users,
        observations,
        forgotten: counts.forgotten,
        fit: fit.map_or(0, |fit| fit.number),
        fitted_rounds: fit.map_or(0, |fit| fit.fitted_rounds),
        must_refit: elsewhere.is_some_and(|elsewhere| elsewhere.must_refit(counts.forgotten)),
        gain: 0.0,
    }
}

/// The fit for one partition.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Fit {
    dim: usize,
    /// Fits so far, this one counted.
    number: u64,
    /// Rounds of all partitions that it was computed from.
    fitted_rounds: u64,
    /// Rounds of the other partitions.
    rounds: u64,
    /// Users that the partition had forgotten before.
    forgotten: u64,
    /// The sums of the other partitions, by group.
    others: Vec<GroupSums>,
}

impl Fit {
    fn load(shape: Shape, groups: usize, reader: &mut Reader<'_>) -> Result<Self, LoadError> {
        check_same_dim(shape.dim, reader)?;
        Ok(Self {
            dim: shape.dim,
            number: reader.at_most(MAX_ROUNDS)?,
            fitted_rounds: reader.at_most(MAX_ROUNDS)?,
            rounds: reader.at_most(MAX_ROUNDS)?,
            forgotten: reader.word()?,
            others: load_groups(shape, groups, reader)?,
        })
    }

    pub fn from_bytes(bytes: &[u8], shape: Shape, groups: usize) -> Result<Self, Error> {
        bytes::load_slice(bytes, |input: &mut dyn Read| {
            let mut reader = Reader::new(input)?;
            reader.expect(Self::MAGIC)?;
            let fit = Self::load(shape, groups, &mut reader)?;
            reader.end()?;
            Ok(fit)
        })
    }
}

impl Save for Fit {
    const MAGIC: u64 = u64::from_le_bytes(*b"sclub fo");

    fn save_words(&self, writer: &mut Writer<'_>) -> io::Result<()> {
        writer.word(self.dim as u64)?;
        writer.word(self.number)?;
        writer.word(self.fitted_rounds)?;
        writer.word(self.rounds)?;
        writer.word(self.forgotten)?;
        save_groups(&self.others, writer)
    }
}

fn check_same_dim(dim: usize, reader: &mut Reader<'_>) -> Result<(), LoadError> {
    match reader.u32()? as usize == dim {
        true => Ok(()),
        false => Err(bad("it is of another dimension").into()),
    }
}

/// Asks for the sums.
struct Question {
    dim: usize,
}

impl Save for Question {
    const MAGIC: u64 = u64::from_le_bytes(*b"sclub qo");

    fn save_words(&self, writer: &mut Writer<'_>) -> io::Result<()> {
        writer.word(self.dim as u64)
    }
}

/// Checks a question.
pub(super) fn check_question(bytes: &[u8], dim: usize) -> Result<(), Error> {
    bytes::load_slice(bytes, |input: &mut dyn Read| {
        let mut reader = Reader::new(input)?;
        reader.expect(Question::MAGIC)?;
        check_same_dim(dim, &mut reader)?;
        reader.end()
    })
}

/// The counts of one partition.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counts {
    pub rounds: u64,
    pub users: u64,
    pub forgotten: u64,
}

/// The answer of one partition.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub dim: usize,
    pub rounds: u64,
    pub forgotten: u64,
    /// The sums of its own users, by group.
    pub own: Vec<GroupSums>,
}

impl Answer {
    fn load(bytes: &[u8], shape: Shape) -> Result<Self, Error> {
        bytes::load_slice(bytes, |input: &mut dyn Read| {
            let mut reader = Reader::new(input)?;
            reader.expect(Self::MAGIC)?;
            check_same_dim(shape.dim, &mut reader)?;
            let answer = Self {
                dim: shape.dim,
                rounds: reader.at_most(MAX_ROUNDS)?,
                forgotten: reader.at_most(MAX_ROUNDS)?,
                // Policies with several groups are not made by name, so they are not split.
                own: load_groups(shape, 1, &mut reader)?,
            };
            reader.end()?;
            Ok(answer)
        })
    }
}

impl Answering for Answer {
    fn compute(self: Box<Self>, _workers: &dyn Workers) -> Vec<u8> {
        bytes::save_to_vec(&*self)
    }
}

impl Save for Answer {
    const MAGIC: u64 = u64::from_le_bytes(*b"sclub ao");

    fn save_words(&self, writer: &mut Writer<'_>) -> io::Result<()> {
        writer.word(self.dim as u64)?;
        writer.word(self.rounds)?;
        writer.word(self.forgotten)?;
        save_groups(&self.own, writer)
    }
}

/// Begins a fit over all partitions, if one is due.
pub(super) fn begin(
    setup: &Setup<'_>,
    _values: &Values,
    progress: &[Option<Progress>],
) -> Result<Option<Box<dyn Gathering>>, Error> {
    let shape = Shape {
        dim: check_dim(setup.dim)?,
    };
    let total = Progress::total(progress);
    let grown = (total.fitted_rounds as f64 * GROWTH).ceil() as u64;
    let due = grown.max(total.fitted_rounds.saturating_add(MIN_NEW_ROUNDS));
    let is_due = total.must_refit || total.rounds >= due;
    Ok(is_due.then(|| {
        Box::new(OneGathering {
            shape,
            number: total.fit.saturating_add(1).min(MAX_ROUNDS),
            partitions: progress.len(),
            answers: None,
        }) as Box<dyn Gathering>
    }))
}

/// A fit over partitions.
struct OneGathering {
    shape: Shape,
    /// The number of this fit.
    number: u64,
    partitions: usize,
    answers: Option<Vec<Option<Answer>>>,
}

impl Gathering for OneGathering {
    fn question(&self) -> Option<Vec<u8>> {
        let dim = self.shape.dim;
        let is_open = self.answers.is_none();
        is_open.then(|| bytes::save_to_vec(&Question { dim }))
    }

    fn take(&mut self, answers: &[Option<Vec<u8>>], _workers: &dyn Workers) -> Result<(), Error> {
        if answers.len() != self.partitions {
            return Err(Error::WrongCount {
                what: "answers",
                expected: self.partitions,
                got: answers.len(),
            });
        }
        if self.answers.is_some() {
            return Ok(());
        }
        let load = |answer: &Option<Vec<u8>>| {
            let bytes = answer.as_ref();
            bytes
                .map(|bytes| Answer::load(bytes, self.shape))
                .transpose()
        };
        let answers = answers.iter().map(load).collect::<Result<Vec<_>, _>>()?;
        if answers.iter().all(Option::is_none) {
            return Err(Error::Unsupported {
                reason: "a fit that no partition has answered",
            });
        }
        self.answers = Some(answers);
        Ok(())
    }

    fn fit(&self, partition: usize) -> Vec<u8> {
        let answers = self.answers.as_ref().expect("the fit is complete");
        let own = &answers[partition];
        let mut fit = Fit {
            dim: self.shape.dim,
            number: self.number,
            fitted_rounds: own.as_ref().map_or(0, |own| own.rounds),
            rounds: 0,
            forgotten: own.as_ref().map_or(LEFT_OUT, |own| own.forgotten),
            others: vec![GroupSums::new(self.shape)],
        };
        for (place, answer) in answers.iter().enumerate() {
            if let Some(answer) = answer
                && place != partition
            {
                fit.rounds = fit.rounds.saturating_add(answer.rounds).min(MAX_ROUNDS);
                for (sum, own) in fit.others.iter_mut().zip(&answer.own) {
                    sum.add(own);
                }
            }
        }
        fit.fitted_rounds = fit.fitted_rounds.saturating_add(fit.rounds).min(MAX_ROUNDS);
        bytes::save_to_vec(&fit)
    }
}
