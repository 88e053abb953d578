//! The trait of all policies: recommend, learn, and report changes of clusters.

use std::cmp::Ordering;

use crate::abilities::{BackgroundFit, Correct, Forget, Inspect, PartitionedFit, Persist};
use crate::digest::mix;
use crate::error::Error;
use crate::items::ItemSet;

pub use crate::change::{Change, Comparison, Why};
pub use crate::observation::{List, Observation, Shown};

/// The id of a user: any number. Users who have not appeared take no memory.
pub type UserId = u64;

/// The id of a cluster. The first cluster is 1, as in the paper, and later ones count up. Policies that
/// split and merge clusters never use a number again; those with a cluster for each user give the
/// number of a forgotten user to another.
pub type ClusterId = u64;

/// The id of an item, the same in every round.
pub type ItemId = u64;

/// The score of one candidate: `score = mean + width`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Score {
    /// The number that candidates are ranked by.
    pub score: f64,
    /// The expected reward.
    pub mean: f64,
    /// The bonus for the uncertainty about the reward.
    pub width: f64,
}

impl Score {
    /// The score of a policy that does not explore: the expected reward.
    pub fn certain(mean: f64) -> Self {
        Self {
            score: mean,
            mean,
            width: 0.0,
        }
    }
}

/// The candidate to show.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Decision {
    /// Its position among the candidates.
    pub index: usize,
    /// Its score.
    pub score: Score,
}

/// The probability of an item of a list, over the random number of a decision ([`Policy::propensities`]).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Propensity {
    /// That the item is in the list.
    pub list: f64,
    /// That the item is in the list at this place.
    pub slot: f64,
}

impl Propensity {
    /// The item is always at its place.
    pub const CERTAIN: Self = Self {
        list: 1.0,
        slot: 1.0,
    };
}

/// The messages that the parts of a distributed policy have sent to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Messages {
    /// The number of messages.
    pub sent: u64,
    /// The numbers in all of them.
    pub numbers: u64,
}

impl Messages {
    /// Counts some messages of equal length.
    pub(crate) fn count(&mut self, messages: usize, numbers_each: usize) {
        self.sent += messages as u64;
        self.numbers += (messages * numbers_each) as u64;
    }
}

/// The users known before the first round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Users {
    /// Users 0 to n − 1 exist from the start, as in the paper: until they appear they belong to the
    /// first cluster with frequency 0. Others may still appear.
    Declared(u64),
    /// Users become known when they appear.
    Appear,
}

impl Users {
    /// The maximum number of declared users.
    pub const LIMIT: u64 = u32::MAX as u64;

    /// The number of declared users.
    pub(crate) fn declared(self) -> Result<u64, Error> {
        match self {
            Users::Appear => Ok(0),
            Users::Declared(0) => Err(Error::NoUsers),
            Users::Declared(n) if n > Self::LIMIT => Err(Error::TooMany {
                what: "the number of users",
                limit: Self::LIMIT,
            }),
            Users::Declared(n) => Ok(n),
        }
    }
}

/// A policy recommends items to users and learns from their rewards.
///
/// State is a fold over the rounds learned: the same rounds give the same bits, whatever was
/// recommended in between and on however many threads. A call that returns an error has changed
/// nothing.
///
/// ```
/// use sclub::{ItemSet, Params, Policy, Sclub, Users};
///
/// let mut policy = Sclub::new(2, Users::Appear, &Params::tuned())?;
/// let items = ItemSet::from_rows(2, &[1.0, 0.0, 0.0, 1.0])?;
/// for _ in 0..20 {
///     let shown = policy.recommend(7, &items)?.index;
///     let reward = if shown == 1 { 1.0 } else { 0.0 };
///     policy.learn(7, &items.item(shown).collect::<Vec<_>>(), reward)?;
/// }
/// assert_eq!(policy.recommend(7, &items)?.index, 1);
/// # Ok::<(), sclub::Error>(())
/// ```
pub trait Policy: Send + Sync {
    /// Features per item.
    fn dim(&self) -> usize;

    /// Rounds learned so far.
    fn rounds(&self) -> u64;

    /// Chooses among `items` for `user`. Any number of users can be served between two rounds.
    ///
    /// # Errors
    /// [`Error::DimensionMismatch`], [`Error::NoCandidates`].
    fn recommend(&self, user: UserId, items: &ItemSet) -> Result<Decision, Error> {
        let mut best = Vec::new();
        self.best(user, items, 1, &|_| false, &mut best)?;
        best.first().copied().ok_or(Error::NoCandidates)
    }

    /// Score, mean and width of every item, in the order of `items`; replaces the contents of `scores`.
    ///
    /// # Errors
    /// As [`Policy::recommend`].
    fn explain(&self, user: UserId, items: &ItemSet, scores: &mut Vec<Score>) -> Result<(), Error>;

    /// The `k` items with the largest scores, the largest first and the first of equal ones before
    /// the others, without those that `exclude` names by position; replaces the contents of `best`. Fewer
    /// if there are fewer. `exclude` may be asked about any item or none, in any order.
    ///
    /// Policies that can rule most of a large set out by a bound on the score do so: the answer is
    /// the same.
    ///
    /// # Errors
    /// As [`Policy::recommend`].
    fn best(
        &self,
        user: UserId,
        items: &ItemSet,
        k: usize,
        exclude: &dyn Fn(usize) -> bool,
        best: &mut Vec<Decision>,
    ) -> Result<(), Error> {
        let mut scores = Vec::new();
        self.explain(user, items, &mut scores)?;
        largest(&scores, k, exclude, best);
        Ok(())
    }

    /// The `k` items to show together, in order; replaces the contents of `list`. Fewer if there are
    /// fewer. By default the `k` items with the largest scores ([`Policy::best`]).
    ///
    /// # Errors
    /// As [`Policy::recommend`].
    fn recommend_list(
        &self,
        user: UserId,
        items: &ItemSet,
        k: usize,
        exclude: &dyn Fn(usize) -> bool,
        list: &mut Vec<Decision>,
    ) -> Result<(), Error> {
        self.best(user, items, k, exclude, list)
    }

    /// As [`Policy::recommend`], for a decision with a random number of its own. Policies that draw at
    /// random ([`Abilities::draws`](crate::Abilities::draws)) take their draws from `draw` alone: decisions
    /// with different numbers are independent, and the same number gives the same decision again. Without
    /// it, such a policy draws once for each user and round.
    ///
    /// # Errors
    /// As [`Policy::recommend`].
    fn recommend_drawn(
        &self,
        _draw: u64,
        user: UserId,
        items: &ItemSet,
    ) -> Result<Decision, Error> {
        self.recommend(user, items)
    }

    /// As [`Policy::explain`], for a decision with a random number of its own
    /// ([`Policy::recommend_drawn`]).
    ///
    /// # Errors
    /// As [`Policy::recommend`].
    fn explain_drawn(
        &self,
        _draw: u64,
        user: UserId,
        items: &ItemSet,
        scores: &mut Vec<Score>,
    ) -> Result<(), Error> {
        self.explain(user, items, scores)
    }

    /// As [`Policy::recommend_list`], for a decision with a random number of its own
    /// ([`Policy::recommend_drawn`]).
    ///
    /// # Errors
    /// As [`Policy::recommend`].
    fn recommend_list_drawn(
        &self,
        _draw: u64,
        user: UserId,
        items: &ItemSet,
        k: usize,
        exclude: &dyn Fn(usize) -> bool,
        list: &mut Vec<Decision>,
    ) -> Result<(), Error> {
        self.recommend_list(user, items, k, exclude, list)
    }

    /// The probability p of each item of `shown`, the list of the decision with the number `draw`, to be in the
    /// list of a decision, and to be in it at the same place: over the random number, on this state. Replaces the
    /// contents of `out`.
    ///
    /// Both are estimated by p̂ = (1 + hits)/(1 + draws), hits being the lists with the item (at this place) among those
    /// of `draws` further random numbers. The standard error is √(p(1 − p)/draws), and p̂ is never 0. As a weight, 1/p̂ is nearly
    /// unbiased: its mean over decisions that show the item is (1 − (1 − p)^(draws + 1))/p. For a policy
    /// that does not draw every p̂ is 1.
    ///
    /// # Errors
    /// As [`Policy::recommend`].
    #[expect(clippy::too_many_arguments, reason = "a list has that many parts")]
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
        estimate_propensities(draw, shown, draws, out, |other, list| {
            self.recommend_list_drawn(other, user, items, k, exclude, list)
        })
    }

    /// Learns one round: the observations of all users who were served on the same history, in the
    /// order given (the paper's Theorem 3). A round may be empty: it counts as a round all the same.
    /// Changes of the clusters are appended to `changes`.
    ///
    /// # Errors
    /// [`Error::DimensionMismatch`], [`Error::BadFeature`], [`Error::BadReward`],
    /// [`Error::TooMany`]; then no observation of the round has been learned.
    fn learn_round(
        &mut self,
        round: &[Observation<'_>],
        changes: &mut Vec<Change>,
    ) -> Result<(), Error>;

    /// Learns a round of a single observation and returns the changes of the clusters.
    ///
    /// # Errors
    /// As [`Policy::learn_round`].
    fn learn(&mut self, user: UserId, item: &[f64], reward: f64) -> Result<Vec<Change>, Error> {
        let mut changes = Vec::new();
        self.learn_round(&[Observation::new(user, item, reward)], &mut changes)?;
        Ok(changes)
    }

    /// Learns one round of lists that were shown on the same history. By default each item that was
    /// looked at is learned by itself ([`List::observations`]).
    ///
    /// # Errors
    /// As [`Policy::learn_round`].
    fn learn_lists(&mut self, round: &[List<'_>], changes: &mut Vec<Change>) -> Result<(), Error> {
        let observations: Vec<Observation<'_>> =
            round.iter().flat_map(List::observations).collect();
        self.learn_round(&observations, changes)
    }

    /// The cluster that a recommendation to `user` would be made from. `None` if the policy has no
    /// clusters, or none for the user.
    fn cluster_of(&self, _user: UserId) -> Option<ClusterId> {
        None
    }

    /// Number of clusters; 0 if the policy has none.
    fn clusters(&self) -> usize {
        0
    }

    /// The weight vector that a recommendation to `user` would be made from, if there is one.
    fn estimate(&self, _user: UserId) -> Option<Vec<f64>> {
        None
    }

    /// The messages sent so far, if the policy is one of several servers or peers. `None` for a policy in one
    /// place, which sends none.
    fn messages(&self) -> Option<Messages> {
        None
    }

    /// A digest of every bit of the state: equal for equal histories.
    fn digest(&self) -> u64;

    /// The size of the state in bytes, as it is or would be saved. `None` if the policy does not tell.
    fn state_bytes(&self) -> Option<u64> {
        None
    }

    /// The policy as one that can be inspected.
    fn as_inspect(&self) -> Option<&dyn Inspect> {
        None
    }

    /// The policy as one that can be saved.
    fn as_persist(&self) -> Option<&dyn Persist> {
        None
    }

    /// The policy as one that can forget users.
    fn as_forget(&mut self) -> Option<&mut dyn Forget> {
        None
    }

    /// The policy as one that can replace the reward of an observation.
    fn as_correct(&mut self) -> Option<&mut dyn Correct> {
        None
    }

    /// The policy as one that makes fits, or takes those over several partitions.
    fn as_fit(&self) -> Option<&dyn BackgroundFit> {
        None
    }

    /// As [`Policy::as_fit`], to change it.
    fn as_fit_mut(&mut self) -> Option<&mut dyn BackgroundFit> {
        None
    }

    /// The policy as one that takes part in fits over several partitions of the users.
    fn as_partitioned_fit(&self) -> Option<&dyn PartitionedFit> {
        None
    }
}

/// [`Policy::propensities`], for a caller that chooses lists in its own way; `choose` makes the list of a random number.
///
/// # Errors
/// Those of `choose`.
pub fn estimate_propensities(
    draw: u64,
    shown: &[usize],
    draws: u32,
    out: &mut Vec<Propensity>,
    mut choose: impl FnMut(u64, &mut Vec<Decision>) -> Result<(), Error>,
) -> Result<(), Error> {
    let (mut hits, mut list) = (vec![(1u32, 1u32); shown.len()], Vec::new());
    for number in 1..=u64::from(draws) {
        choose(mix(draw ^ number.rotate_right(16)), &mut list)?;
        for (slot, (hits, &index)) in hits.iter_mut().zip(shown).enumerate() {
            let is_item = |decision: &Decision| decision.index == index;
            hits.0 += u32::from(list.iter().any(is_item));
            hits.1 += u32::from(list.get(slot).is_some_and(is_item));
        }
    }
    let share = |hits: u32| f64::from(hits) / (f64::from(draws) + 1.0);
    out.clear();
    out.extend(hits.iter().map(|&(list, slot)| Propensity {
        list: share(list),
        slot: share(slot),
    }));
    Ok(())
}

/// `recommend`, `explain` and `best` of a policy that ranks items by one weight vector: it has
/// `shape`, `ranking` and `basis(user)`.
macro_rules! rank_by_basis {
    () => {
        fn recommend(&self, user: UserId, items: &ItemSet) -> Result<Decision, Error> {
            check_items(items, self.dim())?;
            let (view, beta) = self.basis(user);
            Ok(self.ranking.choose(view, beta, items))
        }

        fn explain(
            &self,
            user: UserId,
            items: &ItemSet,
            scores: &mut Vec<Score>,
        ) -> Result<(), Error> {
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

        fn estimate(&self, user: UserId) -> Option<Vec<f64>> {
            Some(self.basis(user).0.estimate.to_vec())
        }
    };
}
pub(crate) use rank_by_basis;

/// `recommend` and `explain` of a policy that has `scorer(user)`, which scores groups of items.
macro_rules! rank_by_scorer {
    () => {
        fn recommend(
            &self,
            user: crate::policy::UserId,
            items: &crate::items::ItemSet,
        ) -> Result<crate::policy::Decision, crate::error::Error> {
            crate::policy::check_items(items, self.dim())?;
            Ok(crate::ucb::choose(items, self.scorer(user)))
        }

        fn explain(
            &self,
            user: crate::policy::UserId,
            items: &crate::items::ItemSet,
            scores: &mut Vec<crate::policy::Score>,
        ) -> Result<(), crate::error::Error> {
            crate::policy::check_items(items, self.dim())?;
            crate::ucb::explain(items, scores, self.scorer(user));
            Ok(())
        }
    };
}
pub(crate) use rank_by_scorer;

/// `as_inspect` and its siblings of a policy that implements the traits of these abilities.
macro_rules! offers {
    (@ inspect) => {
        fn as_inspect(&self) -> Option<&dyn crate::abilities::Inspect> {
            Some(self)
        }
    };
    (@ persist) => {
        fn as_persist(&self) -> Option<&dyn crate::abilities::Persist> {
            Some(self)
        }
    };
    (@ forget) => {
        fn as_forget(&mut self) -> Option<&mut dyn crate::abilities::Forget> {
            Some(self)
        }
    };
    (@ correct) => {
        fn as_correct(&mut self) -> Option<&mut dyn crate::abilities::Correct> {
            Some(self)
        }
    };
    (@ fit) => {
        fn as_fit(&self) -> Option<&dyn crate::abilities::BackgroundFit> {
            Some(self)
        }

        fn as_fit_mut(&mut self) -> Option<&mut dyn crate::abilities::BackgroundFit> {
            Some(self)
        }
    };
    (@ partitioned) => {
        fn as_partitioned_fit(&self) -> Option<&dyn crate::abilities::PartitionedFit> {
            Some(self)
        }
    };
    ($($ability:ident),+) => {
        $(crate::policy::offers!(@ $ability);)+
    };
}
pub(crate) use offers;

/// The order of candidates: by score, then by position. NaN comes last.
#[inline]
pub(crate) fn better_first(a: &Decision, b: &Decision) -> Ordering {
    let (x, y) = (a.score.score, b.score.score);
    y.partial_cmp(&x)
        .unwrap_or_else(|| x.is_nan().cmp(&y.is_nan()))
        .then(a.index.cmp(&b.index))
}

/// The `k` best of some scores.
pub(crate) fn largest(
    scores: &[Score],
    k: usize,
    exclude: &dyn Fn(usize) -> bool,
    best: &mut Vec<Decision>,
) {
    let all = scores.iter().enumerate();
    let all = all.map(|(index, &score)| Decision { index, score });
    best.clear();
    best.extend(all.filter(|decision| !exclude(decision.index)));
    if k == 0 {
        best.clear();
    } else if k < best.len() {
        best.select_nth_unstable_by(k - 1, better_first);
        best.truncate(k);
    }
    best.sort_unstable_by(better_first);
}

/// Checks the items passed to [`Policy::recommend`] and [`Policy::explain`].
///
/// # Errors
/// [`Error::DimensionMismatch`], [`Error::NoCandidates`].
#[inline]
pub fn check_items(items: &ItemSet, dim: usize) -> Result<(), Error> {
    if items.dim() != dim {
        return Err(Error::DimensionMismatch {
            expected: dim,
            got: items.dim(),
        });
    }
    if items.is_empty() {
        Err(Error::NoCandidates)
    } else {
        Ok(())
    }
}

/// Checks a round as [`Policy::learn_round`] does before it learns anything.
///
/// # Errors
/// [`Error::DimensionMismatch`], [`Error::BadFeature`], [`Error::BadReward`].
#[inline]
pub fn check_round(round: &[Observation<'_>], dim: usize) -> Result<(), Error> {
    for (position, observation) in round.iter().enumerate() {
        crate::error::check_features(position, observation.item, dim)?;
        crate::error::check_reward(position, observation.reward)?;
    }
    Ok(())
}

/// Checks the item and the rewards of a correction, as [`check_round`] does.
pub(crate) fn check_correction(item: &[f64], from: f64, to: f64, dim: usize) -> Result<(), Error> {
    crate::error::check_features(0, item, dim)?;
    crate::error::check_reward(0, from)?;
    crate::error::check_reward(0, to)
}

/// The maximum number of rounds of a loaded state: counting on from here cannot overflow.
pub(crate) const MAX_ROUNDS: u64 = u64::MAX / 2;

/// The rounds so far, with the logarithm that β needs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Clock {
    rounds: u64,
    log_rounds: f64,
}

impl Clock {
    pub fn new() -> Self {
        Self {
            rounds: 0,
            log_rounds: 0.0,
        }
    }

    /// The clock after `rounds` rounds.
    ///
    /// # Errors
    /// [`Error::BadSnapshot`] if `rounds` is above [`MAX_ROUNDS`].
    pub fn at(rounds: u64) -> Result<Self, Error> {
        if rounds > MAX_ROUNDS {
            return Err(crate::bytes::bad("the number of rounds is above 2^63 - 1"));
        }
        let mut clock = Self::new();
        if rounds > 0 {
            clock.rounds = rounds - 1;
            clock.tick();
        }
        Ok(clock)
    }

    /// τ after the round that begins.
    pub fn tick(&mut self) -> u64 {
        self.rounds += 1;
        self.log_rounds = libm::log(self.rounds as f64);
        self.rounds
    }

    pub fn rounds(&self) -> u64 {
        self.rounds
    }

    /// ln t, with t counted from 0 and ln 0 taken as ln 1.
    #[inline]
    pub fn log_rounds(&self) -> f64 {
        self.log_rounds
    }
}
