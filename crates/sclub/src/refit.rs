//! Fits in the background: a new fit of a policy's model to all users, computed while it serves.
//!
//! A fit is computed from the state after one round and takes effect after a later one. Its
//! result is a few kilobytes. A service logs them as an event of their own, so that a replay takes
//! the same fit at the same place and need not compute it.

use std::io;

use crate::bytes::{self, Reader, Save, Writer, bad};
use crate::error::Error;
use crate::policy::{ClusterId, MAX_ROUNDS};

/// A fit to be computed, with a copy of the state that it needs. Making one is cheap; the policy goes on
/// serving and learning while another thread computes.
pub trait Refit: Send {
    /// Rounds learned when it was made.
    fn rounds(&self) -> u64;

    /// Computes the fit, for [`crate::BackgroundFit::take_fit`]. The same state gives the same bytes on any
    /// number of threads.
    fn compute(self: Box<Self>, workers: &dyn Workers) -> Vec<u8>;
}

/// A fit over several partitions of the users, as the node that computes it sees it.
///
/// ```text
/// while let Some(question) = gathering.question() {
///     let answers = ...;                        // the answer of each partition to the question
///     gathering.take(&answers, workers)?;
/// }
/// for partition in 0..partitions { ... gathering.fit(partition) ... }
/// ```
pub trait Gathering: Send {
    /// The next question for every partition; `None` when the fit is complete.
    fn question(&self) -> Option<Vec<u8>>;

    /// Takes the answers to the question, by partition. `None` is for a partition that did not answer. A partition
    /// that did not answer the first question is left out of this fit.
    ///
    /// # Errors
    /// [`Error::BadSnapshot`] if an answer is not valid, [`Error::WrongCount`] if the number of partitions is another
    /// than before, [`Error::Unsupported`] if no partition answered the first question. Nothing has changed then.
    fn take(&mut self, answers: &[Option<Vec<u8>>], workers: &dyn Workers) -> Result<(), Error>;

    /// The fit for one partition, for [`crate::BackgroundFit::take_fit`], when the fit is complete. Partitions that
    /// were left out can take theirs too.
    ///
    /// # Panics
    /// If the fit is not complete, or there is no such partition.
    fn fit(&self, partition: usize) -> Vec<u8>;
}

/// An answer to a question of a [`Gathering`], with a copy of the state that it needs. Making one is cheap; the
/// policy goes on serving and learning while another thread computes.
pub trait Answering: Send {
    /// Computes the answer. The same state gives the same bytes on any number of threads.
    fn compute(self: Box<Self>, workers: &dyn Workers) -> Vec<u8>;
}

/// The state of one partition in short, for deciding whether a fit over all partitions is due.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// Rounds learned.
    pub rounds: u64,
    /// Users known.
    pub users: u64,
    /// Observations of these users.
    pub observations: u64,
    /// Users forgotten so far.
    pub forgotten: u64,
    /// The number of the last fit taken; 0 before the first. The fits of all partitions are numbered together.
    pub fit: u64,
    /// Rounds of all partitions in the state that the last fit was computed from.
    pub fitted_rounds: u64,
    /// True if the last fit contains a user whom this partition has forgotten since. Then a fit is due.
    pub must_refit: bool,
    /// The log-likelihood of recent rewards with clusters less that without, in nats; 0 for a policy without
    /// clusters.
    pub gain: f64,
}

impl Progress {
    /// The summary as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        bytes::save_to_vec(self)
    }

    /// Reads the bytes of [`Progress::to_bytes`].
    ///
    /// # Errors
    /// [`Error::BadSnapshot`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        bytes::load_slice(bytes, |input| {
            let mut reader = Reader::new(input)?;
            reader.expect(Self::MAGIC)?;
            let mut number = || reader.at_most(MAX_ROUNDS);
            let progress = Self {
                rounds: number()?,
                users: number()?,
                observations: number()?,
                forgotten: number()?,
                fit: number()?,
                fitted_rounds: number()?,
                must_refit: reader.at_most(1)? == 1,
                gain: reader.number()?,
            };
            if !progress.gain.is_finite() {
                return Err(bad("a number is not finite").into());
            }
            reader.end()?;
            Ok(progress)
        })
    }

    /// The partitions together: sums of rounds, users, observations, forgotten users and gains; the newest fit; and
    /// whether a partition that has the newest fit must have another one.
    pub fn total(partitions: &[Option<Self>]) -> Self {
        let mut total = Self {
            rounds: 0,
            users: 0,
            observations: 0,
            forgotten: 0,
            fit: 0,
            fitted_rounds: 0,
            must_refit: false,
            gain: 0.0,
        };
        for part in partitions.iter().flatten() {
            total.rounds = total.rounds.saturating_add(part.rounds);
            total.users = total.users.saturating_add(part.users);
            total.observations = total.observations.saturating_add(part.observations);
            total.forgotten = total.forgotten.saturating_add(part.forgotten);
            total.gain += part.gain;
            let newest = (total.fit, total.fitted_rounds).max((part.fit, part.fitted_rounds));
            (total.fit, total.fitted_rounds) = newest;
        }
        let newest =
            |part: &&Self| (part.fit, part.fitted_rounds) == (total.fit, total.fitted_rounds);
        let mut parts = partitions.iter().flatten().filter(newest);
        total.must_refit = parts.any(|part| part.must_refit);
        total
    }
}

impl Save for Progress {
    const MAGIC: u64 = u64::from_le_bytes(*b"sclub pr");

    fn save_words(&self, writer: &mut Writer<'_>) -> io::Result<()> {
        writer.word(self.rounds)?;
        writer.word(self.users)?;
        writer.word(self.observations)?;
        writer.word(self.forgotten)?;
        writer.word(self.fit)?;
        writer.word(self.fitted_rounds)?;
        writer.word(u64::from(self.must_refit))?;
        writer.number(self.gain)
    }
}

/// Runs pieces of work that do not depend on one another.
pub trait Workers: Sync {
    /// Calls `work` with every number below `pieces`, once each, in any order and from any number of
    /// threads, and returns when all calls have.
    fn each(&self, pieces: usize, work: &(dyn Fn(usize) + Sync));
}

/// Does one piece after another on the caller's thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sequential;

impl Workers for Sequential {
    fn each(&self, pieces: usize, work: &(dyn Fn(usize) + Sync)) {
        (0..pieces).for_each(work);
    }
}

/// The probability that a user belongs to one cluster, and its parts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Place {
    /// The cluster's number.
    pub label: ClusterId,
    /// The prior probability: the cluster's share of all users.
    pub share: f64,
    /// The log-likelihood of the user's observations in this cluster less that in none.
    pub evidence: f64,
    /// The posterior probability.
    pub probability: f64,
}

/// The clusters that a user may belong to.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    /// The clusters, the most probable first.
    pub places: Vec<Place>,
    /// The probability that the user is in none of them.
    pub none: f64,
    /// True if the clusters have at least half of the weight in recommendations. The rest has the prior of
    /// all users with the user's own observations.
    pub used: bool,
}

/// The state of a clustering as a whole, as of its last fit unless stated otherwise.
#[derive(Debug, Clone, PartialEq)]
pub struct Outlook {
    /// Fits taken so far.
    pub fits: u64,
    /// Rounds learned in the state that the last fit was computed from.
    pub fitted_at: u64,
    /// Clusters found.
    pub clusters: usize,
    /// (rounds, clusters) of fits so far, the oldest thinned out.
    pub history: Vec<(u64, usize)>,
    /// The share of the known users without a cluster of probability ½ or more.
    pub unplaced: f64,
    /// The number of parameters of all users that the data determine: between 0 and users × dim.
    pub effective_parameters: f64,
    /// The variance of a reward around its mean, as estimated.
    pub noise: f64,
    /// The log-likelihood of recent rewards with clusters less that without, in nats, older ones
    /// discounted; as of now.
    pub gain: f64,
    /// True if the clusters have at least half of the weight in recommendations.
    pub used: bool,
    /// A warning for the operator, such as that clusters do not predict better than none.
    pub warning: Option<String>,
}
