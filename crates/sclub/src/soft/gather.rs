//! Fits over several partitions of the users: questions, answers, and what is computed from them.
//!
//! | question | answer of each partition | computed from the answers |
//! |---|---|---|
//! | sample | its counts and its gain, the sums of some or all of its users, the start of the next fit | the fit to these users |
//! | refine | the expected sums of each cluster over all of its users | one step of EM |
//!
//! The second question is asked only if there are more users than the first asks for, and then
//! [`LAST_STEPS`] + 1 times. Sums are added in the order of the partitions.

use std::io::{self, Read};

use super::background::{self, Background};
use super::fit::{Elsewhere, Fit, Job, LAST_STEPS, MAX_SEARCHED_USERS, sample};
use super::mixture::{Expectation, Mixture};
use super::panel::Panel;
use super::params::SoftParams;
use super::saved::{finite, positive};
use super::sums::{Layout, Sums};
use super::symmetric::row_start;
use super::{FIRST_ROUGH_FIT, SclubSoft};
use crate::abilities::PartitionedFit;
use crate::bytes::{self, Reader, Save, Writer, bad};
use crate::error::{Error, LoadError, MAX_MAGNITUDE, check_dim};
use crate::policy::MAX_ROUNDS;
use crate::refit::{Answering, Gathering, Progress, Workers};
use crate::spec::{Setup, Values};

/// Begins a fit over all partitions, if one is due.
pub(super) fn begin(
    setup: &Setup<'_>,
    values: &Values,
    progress: &[Option<Progress>],
) -> Result<Option<Box<dyn Gathering>>, Error> {
    let params = SoftParams::from_values(values, false);
    params.check()?;
    let layout = Layout {
        dim: check_dim(setup.dim)?,
    };
    let total = Progress::total(progress);
    let due = match total.fit {
        0 => FIRST_ROUGH_FIT.min(params.first),
        _ => params.due_after(total.fitted_rounds),
    };
    let is_due = total.must_refit || (total.users > 0 && total.rounds >= due);
    Ok(is_due.then(|| {
        Box::new(SoftGathering {
            layout,
            params,
            question: SampleQuestion {
                dim: layout.dim,
                fit: (total.fit, total.fitted_rounds),
                users: total.users,
            },
            partitions: vec![None; progress.len()],
            stage: Stage::Sample,
        }) as Box<dyn Gathering>
    }))
}

/// Asks for counts, the sums of some users and the last fit.
struct SampleQuestion {
    dim: usize,
    /// The number of the newest fit and its rounds. The partitions that have it send what the next one starts from.
    fit: (u64, u64),
    /// Users of all partitions.
    users: u64,
}

impl SampleQuestion {
    /// The number of users that a partition sends: its share of [`MAX_SEARCHED_USERS`].
    fn quota(&self, own: usize) -> usize {
        let most = MAX_SEARCHED_USERS as u128;
        if u128::from(self.users) <= most {
            return MAX_SEARCHED_USERS;
        }
        let share = (own as u128 * most).div_ceil(u128::from(self.users));
        share.min(most) as usize
    }
}

impl Save for SampleQuestion {
    const MAGIC: u64 = u64::from_le_bytes(*b"sclub q1");

    fn save_words(&self, writer: &mut Writer<'_>) -> io::Result<()> {
        writer.word(self.dim as u64)?;
        writer.word(self.fit.0)?;
        writer.word(self.fit.1)?;
        writer.word(self.users)
    }
}

/// Asks for the expected sums of a mixture over all users.
struct RefineQuestion<'a> {
    fit: &'a Fit,
    mixture: &'a Mixture,
}

impl Save for RefineQuestion<'_> {
    const MAGIC: u64 = u64::from_le_bytes(*b"sclub q2");

    fn save_words(&self, writer: &mut Writer<'_>) -> io::Result<()> {
        save_start(self.fit, self.mixture, &[], writer)
    }
}

/// A question as a partition reads it.
enum Question {
    Sample(SampleQuestion),
    Refine(Box<Fit>),
}

impl Question {
    fn load(bytes: &[u8], dim: usize) -> Result<Self, Error> {
        bytes::load_slice(bytes, |input: &mut dyn Read| {
            let mut reader = Reader::new(input)?;
            let question = if reader.expect(RefineQuestion::MAGIC).is_ok() {
                Self::Refine(Box::new(load_start(dim, &mut reader)?))
            } else {
                reader.expect(SampleQuestion::MAGIC)?;
                check_same_dim(dim, &mut reader)?;
                Self::Sample(SampleQuestion {
                    dim,
                    fit: (reader.word()?, reader.word()?),
                    users: reader.word()?,
                })
            };
            reader.end()?;
            Ok(question)
        })
    }
}

fn check_same_dim(dim: usize, reader: &mut Reader<'_>) -> Result<(), LoadError> {
    match reader.u32()? as usize == dim {
        true => Ok(()),
        false => Err(bad("it is of another dimension").into()),
    }
}

/// Writes the parts of a fit that another fit starts from, with these mixtures.
fn save_start(
    fit: &Fit,
    mixture: &Mixture,
    others: &[Mixture],
    writer: &mut Writer<'_>,
) -> io::Result<()> {
    writer.word(fit.background.mean.len() as u64)?;
    writer.word(fit.number)?;
    writer.word(fit.searched)?;
    writer.word(fit.next_label)?;
    writer.number(fit.noise)?;
    writer.numbers(&fit.background.mean)?;
    writer.numbers(&fit.background.covariance)?;
    mixture.save(writer)?;
    writer.word(others.len() as u64)?;
    others.iter().try_for_each(|other| other.save(writer))
}

/// Loads the words that [`save_start`] wrote. The rest of the fit is empty.
fn load_start(dim: usize, reader: &mut Reader<'_>) -> Result<Fit, LoadError> {
    check_same_dim(dim, reader)?;
    let (number, searched) = (reader.at_most(MAX_ROUNDS)?, reader.word()?);
    let next_label = reader.at_most(MAX_ROUNDS)?;
    let noise = positive(reader)?;
    let mean = finite(dim, reader)?;
    let background = Background::new(mean, finite(row_start(dim), reader)?)
        .ok_or_else(|| bad("its covariance is not positive definite"))?;
    let mixture = Mixture::load(dim, reader)?;
    let mut others = Vec::new();
    for _ in 0..reader.count()? {
        others.push(Mixture::load(dim, reader)?);
    }
    Ok(Fit {
        rounds: 0,
        users: 0,
        observations: 0,
        searched,
        forgotten: 0,
        number,
        noise,
        information: background.precision.clone(),
        background,
        plain: None,
        mixture,
        sizes: Vec::new(),
        others,
        played: Mixture::none(),
        spreads: Vec::new(),
        next_label,
        unplaced: 1.0,
        effective: 0.0,
        elsewhere: Elsewhere::default(),
    })
}

/// The counts of one partition.
#[derive(Debug, Clone, Copy)]
struct Counts {
    rounds: u64,
    users: u64,
    observations: u64,
    forgotten: u64,
    gain: f64,
}

/// The answer to a [`SampleQuestion`], as it is written.
struct SampleAnswer {
    counts: Counts,
    start: Option<Fit>,
    sums: Sums,
    /// The maximum number of users whose sums are sent.
    quota: usize,
    slots: Vec<u32>,
}

impl Answering for SampleAnswer {
    fn compute(mut self: Box<Self>, _workers: &dyn Workers) -> Vec<u8> {
        self.slots = sample(&slots(&self.sums), self.quota);
        bytes::save_to_vec(&*self)
    }
}

impl Save for SampleAnswer {
    const MAGIC: u64 = u64::from_le_bytes(*b"sclub a1");

    fn save_words(&self, writer: &mut Writer<'_>) -> io::Result<()> {
        let layout = self.sums.layout();
        writer.word(layout.dim as u64)?;
        writer.word(self.counts.rounds)?;
        writer.word(self.counts.users)?;
        writer.word(self.counts.observations)?;
        writer.word(self.counts.forgotten)?;
        writer.number(self.counts.gain)?;
        writer.word(u64::from(self.start.is_some()))?;
        if let Some(fit) = &self.start {
            save_start(fit, &fit.mixture, &fit.others, writer)?;
        }
        writer.word(self.slots.len() as u64)?;
        let mut rows = self.slots.iter().map(|&s| self.sums.row(s as usize));
        rows.try_for_each(|row| writer.numbers(&row[..layout.used()]))
    }
}

/// All slots.
fn slots(sums: &Sums) -> Vec<u32> {
    (0..sums.len() as u32).collect()
}

/// The answer to a [`SampleQuestion`], as it is read.
struct Sample {
    counts: Counts,
    start: Option<Fit>,
    /// The rows of some users, one after another.
    rows: Vec<f64>,
}

impl Sample {
    fn load(bytes: &[u8], layout: Layout) -> Result<Self, Error> {
        bytes::load_slice(bytes, |input: &mut dyn Read| {
            let mut reader = Reader::new(input)?;
            reader.expect(SampleAnswer::MAGIC)?;
            check_same_dim(layout.dim, &mut reader)?;
            let counts = Counts {
                rounds: reader.at_most(MAX_ROUNDS)?,
                users: reader.at_most(u64::from(u32::MAX))?,
                observations: reader.at_most(MAX_ROUNDS)?,
                forgotten: reader.at_most(MAX_ROUNDS)?,
                gain: finite(1, &mut reader)?[0],
            };
            let start = match reader.at_most(1)? {
                1 => Some(load_start(layout.dim, &mut reader)?),
                _ => None,
            };
            let count = reader.at_most(counts.users.min(MAX_SEARCHED_USERS as u64))?;
            if count == 0 && counts.users > 0 {
                return Err(bad("it has no sums of its users").into());
            }
            let (mut rows, mut row) = (Vec::new(), vec![0.0; layout.used()]);
            for _ in 0..count {
                reader.fill(&mut row)?;
                check_row(layout, &row)?;
                rows.extend_from_slice(&row);
            }
            reader.end()?;
            Ok(Self {
                counts,
                start,
                rows,
            })
        })
    }
}

/// Checks that a row can be the sums of a user.
fn check_row(layout: Layout, row: &[f64]) -> Result<(), LoadError> {
    let count = row[layout.count()];
    let most = count * MAX_MAGNITUDE * MAX_MAGNITUDE * (1.0 + 1e-9);
    let mut squares = (0..layout.dim).map(|i| row[row_start(i) + i]);
    let is_valid = count > 0.0
        && count <= MAX_ROUNDS as f64
        && row.iter().all(|sum| sum.abs() <= most.max(count))
        && squares.all(|sum| sum >= 0.0)
        && row[layout.squares()] >= 0.0;
    match is_valid {
        true => Ok(()),
        false => Err(bad("the sums of a user are not valid").into()),
    }
}

/// The answer to a [`RefineQuestion`], to be computed.
struct Refining {
    fit: Box<Fit>,
    sums: Sums,
}

impl Answering for Refining {
    fn compute(self: Box<Self>, workers: &dyn Workers) -> Vec<u8> {
        let Self { fit, sums } = *self;
        let all = slots(&sums);
        let panel = Panel::new(&sums, &all);
        let pass = background::pass(&panel, &fit.background, fit.noise, false, workers);
        let mixture = &fit.mixture;
        let expected = mixture.expect(&panel, &pass.evidence, fit.noise, false, workers);
        let layout = sums.layout();
        bytes::save_to_vec(&RefineAnswer { layout, expected })
    }
}

/// The answer to a [`RefineQuestion`], as it is written.
struct RefineAnswer {
    layout: Layout,
    expected: Expectation,
}

impl Save for RefineAnswer {
    const MAGIC: u64 = u64::from_le_bytes(*b"sclub a2");

    fn save_words(&self, writer: &mut Writer<'_>) -> io::Result<()> {
        writer.word(self.layout.dim as u64)?;
        writer.word(self.expected.weights.len() as u64)?;
        self.expected.save(self.layout, writer)
    }
}

impl RefineAnswer {
    fn load(bytes: &[u8], layout: Layout, clusters: usize) -> Result<Expectation, Error> {
        bytes::load_slice(bytes, |input: &mut dyn Read| {
            let mut reader = Reader::new(input)?;
            reader.expect(Self::MAGIC)?;
            check_same_dim(layout.dim, &mut reader)?;
            if reader.word()? != clusters as u64 {
                return Err(bad("it has another number of clusters").into());
            }
            let expected = Expectation::load(layout, clusters, &mut reader)?;
            reader.end()?;
            Ok(expected)
        })
    }
}

impl PartitionedFit for SclubSoft {
    fn progress(&self) -> Progress {
        let fit = self.served.as_ref().map(|served| &served.fit);
        Progress {
            rounds: self.rounds,
            users: self.sums.len() as u64,
            observations: self.counts.iter().sum(),
            forgotten: self.forgotten,
            fit: fit.map_or(0, |fit| fit.number.saturating_add(1)),
            fitted_rounds: fit.map_or(0, |fit| fit.rounds),
            must_refit: self.must_refit(),
            gain: self.gain,
        }
    }

    fn prepare(&self, question: &[u8]) -> Result<Box<dyn Answering>, Error> {
        let sums = self.sums.clone();
        Ok(match Question::load(question, self.layout.dim)? {
            Question::Sample(question) => {
                let progress = self.progress();
                let is_newest = (progress.fit, progress.fitted_rounds) == question.fit;
                let served = self.served.as_ref().filter(|_| is_newest);
                Box::new(SampleAnswer {
                    counts: Counts {
                        rounds: progress.rounds,
                        users: progress.users,
                        observations: progress.observations,
                        forgotten: progress.forgotten,
                        gain: progress.gain,
                    },
                    start: served.map(|served| served.fit.clone()),
                    quota: question.quota(sums.len()),
                    slots: Vec::new(),
                    sums,
                })
            }
            Question::Refine(fit) => Box::new(Refining { fit, sums }),
        })
    }
}

/// How far a fit over partitions has come.
enum Stage {
    Sample,
    /// The fit to a sample, and its best mixture after so many steps of EM on all users.
    Refine(Box<Fit>, Mixture, usize),
    /// The fit; `None` if there are no users.
    Done(Option<Box<Fit>>),
}

/// A fit over partitions.
struct SoftGathering {
    layout: Layout,
    params: SoftParams,
    question: SampleQuestion,
    /// The counts of each partition that answered the first question.
    partitions: Vec<Option<Counts>>,
    stage: Stage,
}

impl SoftGathering {
    /// The fit to the users of all samples.
    fn search(&mut self, samples: Vec<Option<Sample>>, workers: &dyn Workers) {
        let layout = self.layout;
        let mut sums = Sums::new(layout);
        let (mut rounds, mut users, mut observations) = (0u64, 0u64, 0u64);
        let mut before = None;
        for sample in samples.iter().flatten() {
            rounds = rounds.saturating_add(sample.counts.rounds);
            users = users.saturating_add(sample.counts.users);
            observations = observations.saturating_add(sample.counts.observations);
            before = before.or_else(|| sample.start.clone());
            for row in sample.rows.chunks_exact(layout.used()) {
                sums.push();
                sums.row_mut(sums.len() - 1)[..row.len()].copy_from_slice(row);
            }
        }
        self.partitions = samples
            .into_iter()
            .map(|sample| sample.map(|sample| sample.counts))
            .collect();
        if sums.len() == 0 {
            self.stage = Stage::Done(None);
            return;
        }
        let job = Job {
            sums,
            params: self.params,
            rounds,
            observations,
            forgotten: 0,
            before,
        };
        let slots = slots(&job.sums);
        let mut fit = Box::new(job.search(&Panel::new(&job.sums, &slots), users, workers));
        // Numbers go on even if no partition that has the last fit has answered.
        fit.number = fit.number.max(self.question.fit.0);
        let is_sample = (slots.len() as u64) < users;
        self.stage = match is_sample && !fit.mixture.centres.is_empty() {
            true => {
                let mixture = fit.mixture.clone();
                Stage::Refine(fit, mixture, 0)
            }
            false => Stage::Done(Some(fit)),
        };
    }
}

impl Gathering for SoftGathering {
    fn question(&self) -> Option<Vec<u8>> {
        match &self.stage {
            Stage::Sample => Some(bytes::save_to_vec(&self.question)),
            Stage::Refine(fit, mixture, _) => {
                Some(bytes::save_to_vec(&RefineQuestion { fit, mixture }))
            }
            Stage::Done(_) => None,
        }
    }

    fn take(&mut self, answers: &[Option<Vec<u8>>], workers: &dyn Workers) -> Result<(), Error> {
        if answers.len() != self.partitions.len() {
            return Err(Error::WrongCount {
                what: "answers",
                expected: self.partitions.len(),
                got: answers.len(),
            });
        }
        let layout = self.layout;
        match &mut self.stage {
            Stage::Sample => {
                let load = |answer: &Option<Vec<u8>>| {
                    let bytes = answer.as_ref();
                    bytes.map(|bytes| Sample::load(bytes, layout)).transpose()
                };
                let samples = answers.iter().map(load).collect::<Result<Vec<_>, _>>()?;
                if samples.iter().all(Option::is_none) {
                    return Err(Error::Unsupported {
                        reason: "a fit that no partition has answered",
                    });
                }
                self.search(samples, workers);
            }
            Stage::Refine(fit, mixture, step) => {
                let mut sum: Option<Expectation> = None;
                // The fit must not have users of a partition that was left out.
                let both = answers.iter().zip(&self.partitions);
                for (answer, counts) in both {
                    let (Some(answer), Some(_)) = (answer, counts) else {
                        continue;
                    };
                    let part = RefineAnswer::load(answer, layout, mixture.centres.len())?;
                    match &mut sum {
                        Some(sum) => sum.add_partition(&part),
                        None => sum = Some(part),
                    }
                }
                let sum = sum.filter(|sum| sum.users > 0);
                let is_last = *step == LAST_STEPS;
                match &sum {
                    Some(sum) if !is_last => {
                        *mixture = mixture.maximise(layout, &fit.background, fit.noise, sum);
                        *step += 1;
                    }
                    Some(sum) => fit.refined(layout, mixture.clone(), sum),
                    None => {}
                }
                if is_last || sum.is_none() {
                    self.stage = Stage::Done(Some(fit.clone()));
                }
            }
            Stage::Done(_) => {}
        }
        Ok(())
    }

    fn fit(&self, partition: usize) -> Vec<u8> {
        let Stage::Done(fit) = &self.stage else {
            panic!("the fit is not complete");
        };
        let own = self.partitions[partition];
        let Some(fit) = fit else {
            return bytes::save_to_vec(&NoFit);
        };
        let mut fit = Fit::clone(fit);
        fit.forgotten = own.map_or(Fit::LEFT_OUT, |counts| counts.forgotten);
        for (place, counts) in self.partitions.iter().enumerate() {
            if let Some(counts) = counts
                && place != partition
            {
                let elsewhere = &mut fit.elsewhere;
                elsewhere.rounds = elsewhere
                    .rounds
                    .saturating_add(counts.rounds)
                    .min(MAX_ROUNDS);
                elsewhere.users = elsewhere.users.saturating_add(counts.users);
                elsewhere.gain += 0.5 * counts.gain;
            }
        }
        fit.to_bytes()
    }
}

/// The fit if there are no users: the state before the first fit.
struct NoFit;

impl Save for NoFit {
    const MAGIC: u64 = u64::from_le_bytes(*b"sclub f-");

    fn save_words(&self, _writer: &mut Writer<'_>) -> io::Result<()> {
        Ok(())
    }
}

/// Loads a fit; `None` if it is that of no users.
pub(super) fn load_fit(bytes: &[u8], dim: usize) -> Result<Option<Fit>, Error> {
    match bytes == bytes::save_to_vec(&NoFit) {
        true => Ok(None),
        false => Fit::from_bytes(bytes, dim).map(Some),
    }
}
