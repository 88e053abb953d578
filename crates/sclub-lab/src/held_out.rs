//! World `ratings`: real users, real items, and the choices of the users.
//!
//! 1. Users are split in halves by the seed. One half only makes the items' features, the other is
//!    served; no user is in both. Items with at least [`MIN_INTERACTIONS`] feature users are kept, and served
//!    users with at least [`MIN_INTERACTIONS`] of these.
//! 2. An item's features are from a truncated SVD of the feature users' 0/1 matrix
//!    ([`features::item_vectors`]).
//! 3. Each interaction of a served user is one round, used once, in random order: the item that the
//!    user took among others that the user never took. The reward is 1 if the item taken is shown.
//!    If ratings are values, it is the value instead, and the matrix of step 2 has values in place of ones.
//!    Instead, or beside them, items can have features of another origin ([`Content`]), such as titles and tags.
//! 4. No other is offered to a user twice. A user has no more rounds when the others run out.
//!
//! So nothing that a policy is served with has been made from the users it serves, and no candidate has been
//! offered to the same user before.
//!
//! With [`Protocol::cold_items`] a share of the items is cold: what feature users did with them is left out of step 2, and
//! all rounds are among cold items. Then an SVD of who took what has nothing to say about any candidate.
//!
//! World `ratings-leaky` is without step 4 ([`Protocol::others_once`]). There an item that was offered to
//! the same user before is never the one taken, so a policy that remembers items is paid for that.

use std::sync::Arc;

use rand::RngExt;
use rand::seq::SliceRandom;
use rand_distr::{Distribution, Exp1};
use rand_xoshiro::Xoshiro256PlusPlus;
use sclub::{ItemId, UserId};
use serde::Serialize;

use crate::data::features::{self, FeatureError};
use crate::data::matrix::{Matrix, Sparse};
use crate::data::{Interactions, Vectors};
use crate::named::named;
use crate::streams::{Purpose, mix, stream};
use crate::world::{BLOCK, Block, Rewards, Truth, World, age_class};

/// Feature users that an item needs, and kept items that a served user needs.
pub const MIN_INTERACTIONS: usize = 10;

/// The way in which the candidates that the user did not take are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Others {
    /// All items alike.
    Uniform,
    /// As often as served users took them, so that being popular gives nothing away.
    Popular,
}

named!(
    Others,
    "kind of other candidates",
    [
        ("uniform", "All items alike", Others::Uniform),
        (
            "popular",
            "By popularity, so that being popular gives nothing away",
            Others::Popular
        ),
    ]
);

/// Numbers that a split is made with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Protocol {
    /// d, the constant feature counted.
    pub dim: usize,
    /// L, the item taken counted.
    pub candidates: usize,
    /// Rounds at the most; users are served whole until they would be exceeded.
    pub max_rounds: usize,
    /// Feature users at the most; the rest of their half is left out.
    pub max_feature_users: usize,
    /// True if no other is offered to a user twice; false in `ratings-leaky`.
    pub others_once: bool,
    /// The share of items that are cold: features are made as if no feature user took them, and all candidates are
    /// such items. 0 for a world of all items.
    pub cold_items: f64,
}

/// Features of items that are not made from the interactions.
#[derive(Debug, Clone, PartialEq)]
pub struct Content {
    /// A row for each item of the interactions, in their order.
    pub vectors: Matrix,
    /// The use of these features.
    pub mode: ContentMode,
    /// The number of items that the file does not have. Their rows are 0 but for the last feature, which is that of
    /// the first row.
    pub missing: usize,
}

/// The use of [`Content`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ContentMode {
    /// They are the features.
    Alone,
    /// Items that feature users took have features made from that, and the others those that their content predicts
    /// ([`sclub_features::blend`]).
    Both,
}

impl Content {
    /// Matches vectors with the items of some interactions by their ids.
    pub fn new(given: &Vectors, all: &Interactions, mode: ContentMode) -> Self {
        let places = given.places();
        let columns = given.vectors.columns();
        let mut vectors = Matrix::zeros(all.items(), columns);
        let mut missing = 0;
        for item in 0..all.items() {
            match places.get(&*all.item_name(item).to_string()) {
                Some(&at) => vectors.row_mut(item).copy_from_slice(given.vectors.row(at)),
                None => {
                    vectors.row_mut(item)[columns - 1] = given.vectors.get(0, columns - 1);
                    missing += 1;
                }
            }
        }
        Self {
            vectors,
            mode,
            missing,
        }
    }

    /// A hash of the vectors and their use.
    pub fn digest(&self) -> u64 {
        let numbers = self.vectors.values().iter().map(|value| value.to_bits());
        let start = mix(&[self.mode as u64, self.vectors.rows() as u64]);
        numbers.fold(start, |state, word| mix(&[state, word]))
    }
}

impl Protocol {
    /// The number of rounds of a user who took so many of the items.
    fn rounds_of_user(&self, taken: usize, items: usize) -> usize {
        match self.others_once {
            true => taken.min((items - taken) / (self.candidates - 1)),
            false => taken,
        }
    }
}

impl Default for Protocol {
    fn default() -> Self {
        Self {
            dim: 20,
            candidates: 20,
            max_rounds: 1 << 20,
            max_feature_users: 10_000,
            others_once: true,
            cold_items: 0.0,
        }
    }
}

/// The reason why a split cannot be made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum HeldOutError {
    /// The features cannot be made.
    #[error("no features can be made from half of the users")]
    Features(#[from] FeatureError),
    /// No user has enough interactions to be served.
    #[error(
        "no user can be served: none of {users} took at least {MIN_INTERACTIONS} of the {items} items that \
         {MIN_INTERACTIONS} feature users took, or none leaves enough for {candidates} candidates"
    )]
    NoUserToServe {
        /// Users of the half that would be served.
        users: usize,
        /// Items kept.
        items: usize,
        /// Candidates in a round.
        candidates: usize,
    },
    /// The features of the content and of the interactions cannot be brought together.
    #[error("no features can be made from the content and half of the users: {0}")]
    Content(#[from] sclub_features::FitError),
    /// A share that is not possible.
    #[error("cold-items is {0}; it must be at least 0 and at most 1")]
    ColdItems(f64),
    /// Too few candidates to choose among.
    #[error("items is {0}; there must be at least 2 to choose among")]
    Candidates(usize),
}

/// One split of the users: features from one half, rounds from the other.
#[derive(Debug, Clone, PartialEq)]
pub struct Split {
    seed: u64,
    protocol: Protocol,
    feature_users: usize,
    /// The feature vectors of the kept items.
    vectors: Matrix,
    /// The kept items that each served user took, ascending.
    taken: Vec<Vec<u32>>,
    /// The values of these, if interactions have values.
    values: Option<Vec<Vec<f64>>>,
    /// (served user, item taken, the index of the user's age in [`crate::world::AGES`])
    rounds: Vec<(u32, u32, u8)>,
}

impl Split {
    /// The split of a seed.
    ///
    /// # Errors
    /// [`HeldOutError`] if the data are too few.
    pub fn new(all: &Interactions, seed: u64, protocol: Protocol) -> Result<Self, HeldOutError> {
        Self::with_content(all, seed, protocol, None)
    }

    /// The split of a seed, with features of items from elsewhere.
    ///
    /// # Errors
    /// [`HeldOutError`] if the data are too few.
    pub fn with_content(
        all: &Interactions,
        seed: u64,
        protocol: Protocol,
        content: Option<&Content>,
    ) -> Result<Self, HeldOutError> {
        if !(0.0..=1.0).contains(&protocol.cold_items) {
            return Err(HeldOutError::ColdItems(protocol.cold_items));
        }
        if protocol.candidates < 2 {
            return Err(HeldOutError::Candidates(protocol.candidates));
        }
        let mut order: Vec<usize> = (0..all.users()).collect();
        order.shuffle(&mut stream(seed, Purpose::Halves, 0));
        let (feature_users, served) = order.split_at(all.users() / 2);
        let feature_users = &feature_users[..feature_users.len().min(protocol.max_feature_users)];

        let mut takers = vec![0usize; all.items()];
        for &user in feature_users {
            for &item in all.of_user(user) {
                takers[item as usize] += 1;
            }
        }
        let mut kept = vec![None; all.items()];
        let mut items = 0;
        for (place, &takers) in kept.iter_mut().zip(&takers) {
            if takers >= MIN_INTERACTIONS {
                *place = Some(items);
                items += 1;
            }
        }
        // A draw for each kept item: which of them are cold.
        let mut draws = stream(seed, Purpose::ColdItems, 0);
        let is_cold: Vec<bool> = (0..items)
            .map(|_| protocol.cold_items > 0.0 && draws.random::<f64>() < protocol.cold_items)
            .collect();
        let rows: Vec<Vec<(u32, f64)>> = feature_users
            .iter()
            .map(|&user| {
                let mut row = kept_items(all, user, &kept);
                row.retain(|&(item, _)| !is_cold[item as usize]);
                row
            })
            .collect();
        let matrix = match all.has_values() {
            false => {
                let rows: Vec<Vec<u32>> = rows
                    .iter()
                    .map(|row| row.iter().map(|entry| entry.0).collect())
                    .collect();
                Sparse::pattern(items as usize, rows.iter().map(Vec::as_slice))
            }
            true => Sparse::with_values(items as usize, &rows),
        };
        let mut vectors = match content {
            None => features::item_vectors(&features::factorise(&matrix, protocol.dim)?.0),
            Some(content) => {
                let mut own = Matrix::zeros(items as usize, content.vectors.columns());
                for (item, place) in kept.iter().enumerate() {
                    if let Some(at) = place {
                        let at = *at as usize;
                        own.row_mut(at).copy_from_slice(content.vectors.row(item));
                    }
                }
                match content.mode {
                    ContentMode::Alone => own,
                    ContentMode::Both => sclub_features::blend(&own, &matrix, protocol.dim)?,
                }
            }
        };
        if protocol.cold_items > 0.0 {
            // Only cold items are candidates.
            let cold: Vec<u32> = (0..items).filter(|&item| is_cold[item as usize]).collect();
            let mut place_of = vec![None; items as usize];
            let mut of_cold = Matrix::zeros(cold.len(), vectors.columns());
            for (at, &item) in cold.iter().enumerate() {
                place_of[item as usize] = Some(at as u32);
                of_cold
                    .row_mut(at)
                    .copy_from_slice(vectors.row(item as usize));
            }
            for place in &mut kept {
                *place = place.and_then(|item| place_of[item as usize]);
            }
            (vectors, items) = (of_cold, cold.len() as u32);
        }

        let mut taken: Vec<Vec<u32>> = Vec::new();
        let mut values: Vec<Vec<f64>> = Vec::new();
        let (mut interactions, mut too_few) = (0, 0);
        for &user in served {
            let (row, values_of_row): (Vec<u32>, Vec<f64>) =
                kept_items(all, user, &kept).into_iter().unzip();
            let left = items as usize - row.len();
            if row.len() < MIN_INTERACTIONS || left < protocol.candidates - 1 {
                too_few += 1;
                continue;
            }
            let rounds = protocol.rounds_of_user(row.len(), items as usize);
            if interactions + rounds > protocol.max_rounds {
                break;
            }
            interactions += rounds;
            taken.push(row);
            if all.has_values() {
                values.push(values_of_row);
            }
        }
        if taken.is_empty() {
            return Err(HeldOutError::NoUserToServe {
                users: too_few,
                items: items as usize,
                candidates: protocol.candidates,
            });
        }
        let limit = |user: u32| {
            let taken = taken[user as usize].len();
            protocol.rounds_of_user(taken, items as usize)
        };
        let rounds = in_random_order(&taken, seed, limit);
        Ok(Self {
            seed,
            protocol,
            feature_users: feature_users.len(),
            vectors,
            taken,
            values: all.has_values().then_some(values),
            rounds,
        })
    }

    /// The reward of the item taken in a round.
    fn reward(&self, round: usize) -> f64 {
        let (user, item, _) = self.rounds[round];
        let Some(values) = &self.values else {
            return 1.0;
        };
        let taken = &self.taken[user as usize];
        let at = taken.binary_search(&item);
        values[user as usize][at.expect("the user took the item")]
    }

    /// Users who made the features.
    pub fn feature_users(&self) -> usize {
        self.feature_users
    }

    /// Users who are served.
    pub fn served_users(&self) -> usize {
        self.taken.len()
    }

    /// Items to choose from.
    pub fn items(&self) -> usize {
        self.vectors.rows()
    }

    /// Rounds there are.
    pub fn rounds(&self) -> usize {
        self.rounds.len()
    }
}

impl Split {
    /// The others of each round, one round after the other, none twice for a user.
    fn offers(&self, others: Others) -> Vec<u32> {
        let count = self.protocol.candidates - 1;
        let mut popularity = vec![0.0; self.items()];
        for &item in self.taken.iter().flatten() {
            popularity[item as usize] += 1.0;
        }
        let mut left: Vec<Vec<u32>> = (0..self.taken.len())
            .map(|user| self.others_of(user, others, &popularity))
            .collect();
        let mut offers = Vec::with_capacity(self.rounds.len() * count);
        for &(user, ..) in &self.rounds {
            let left = &mut left[user as usize];
            offers.extend(left.drain(left.len() - count..));
        }
        offers
    }

    /// As many items that a user never took as the user's rounds need, in random order.
    fn others_of(&self, user: usize, others: Others, popularity: &[f64]) -> Vec<u32> {
        let taken = &self.taken[user];
        let rounds = self.protocol.rounds_of_user(taken.len(), self.items());
        let mut rng = stream(self.seed, Purpose::Others, user as u64);
        let never_taken =
            (0..self.items() as u32).filter(|item| taken.binary_search(item).is_err());
        // The smallest of exponential times with the items' rates: a draw without replacement in which each
        // next item comes in proportion to its rate. Items that no one took come last.
        let mut times: Vec<(f64, u32)> = never_taken
            .map(|item| {
                let time: f64 = Exp1.sample(&mut rng);
                match others {
                    Others::Uniform => (time, item),
                    Others::Popular => (time / popularity[item as usize].max(1e-9), item),
                }
            })
            .collect();
        let wanted = rounds * (self.protocol.candidates - 1);
        times.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let mut chosen: Vec<u32> = times[..wanted].iter().map(|&(_, item)| item).collect();
        // A user's last others are as popular as the first.
        chosen.shuffle(&mut rng);
        chosen
    }
}

/// The kept items that a user took, ascending, and their values, which are 1 if interactions have none.
fn kept_items(all: &Interactions, user: usize, kept: &[Option<u32>]) -> Vec<(u32, f64)> {
    let taken = all.of_user(user).iter();
    let values = all.values_of_user(user);
    let value = |at: usize| values.map_or(1.0, |values| values[at]);
    taken
        .enumerate()
        .filter_map(|(at, &item)| Some((kept[item as usize]?, value(at))))
        .collect()
}

/// Every interaction once, with its user's age; of each user the first ones up to a limit.
fn in_random_order(
    taken: &[Vec<u32>],
    seed: u64,
    limit: impl Fn(u32) -> usize,
) -> Vec<(u32, u32, u8)> {
    let mut rounds: Vec<(u32, u32, u8)> = taken
        .iter()
        .enumerate()
        .flat_map(|(user, items)| items.iter().map(move |&item| (user as u32, item, 0)))
        .collect();
    rounds.shuffle(&mut stream(seed, Purpose::Order, 0));
    let mut ages = vec![0u32; taken.len()];
    rounds.retain_mut(|(user, _, age)| {
        let rounds_so_far = &mut ages[*user as usize];
        *rounds_so_far += 1;
        *age = age_class(*rounds_so_far) as u8;
        *rounds_so_far as usize <= limit(*user)
    });
    rounds
}

/// A split as a world.
#[derive(Debug, Clone)]
pub struct HeldOut {
    split: Arc<Split>,
    others: Others,
    /// The items' features as policies see them.
    vectors: Matrix,
    /// The others of each round, one round after the other; empty if they are drawn anew in each round.
    offers: Arc<Vec<u32>>,
    /// The user that policies are given in each round, if it is not the one who is served.
    placebo_users: Option<Vec<u32>>,
}

impl HeldOut {
    /// The world of a split. Features are multiplied by `scale`: to a policy with S = I + Σ x xᵀ that
    /// is a ridge of 1/scale².
    pub fn new(split: Arc<Split>, others: Others, scale: f64) -> Self {
        let mut vectors = split.vectors.clone();
        for row in 0..vectors.rows() {
            vectors
                .row_mut(row)
                .iter_mut()
                .for_each(|value| *value *= scale);
        }
        let offers = match split.protocol.others_once {
            true => split.offers(others),
            false => Vec::new(),
        };
        Self {
            split,
            others,
            vectors,
            offers: Arc::new(offers),
            placebo_users: None,
        }
    }

    /// The same world, in which policies are given the user of some other round: a placebo. Learning
    /// about a user then has no value.
    #[must_use]
    pub fn with_users_shuffled(mut self) -> Self {
        let mut users: Vec<u32> = self.split.rounds.iter().map(|&(user, ..)| user).collect();
        users.shuffle(&mut stream(self.split.seed, Purpose::Placebo, 0));
        self.placebo_users = Some(users);
        self
    }

    /// Draws the candidates of a round: the item taken at a random place among others.
    fn candidates(
        &self,
        round: usize,
        rng: &mut Xoshiro256PlusPlus,
        shown: &mut Vec<u32>,
    ) -> usize {
        let split = &self.split;
        let (user, item, _) = split.rounds[round];
        let taken = &split.taken[user as usize];
        let count = split.protocol.candidates;
        shown.clear();
        if split.protocol.others_once {
            shown.extend_from_slice(&self.offers[round * (count - 1)..][..count - 1]);
        }
        let mut draws = 0;
        while shown.len() < count - 1 {
            draws += 1;
            // Where the popular ones are nearly all taken, any other will do.
            let popular = self.others == Others::Popular && draws < 100 * count;
            let other = if popular {
                split.rounds[rng.random_range(0..split.rounds.len())].1
            } else {
                rng.random_range(0..split.items() as u32)
            };
            if taken.binary_search(&other).is_err() && !shown.contains(&other) {
                shown.push(other);
            }
        }
        let place = rng.random_range(0..count);
        shown.insert(place, item);
        place
    }
}

impl World for HeldOut {
    fn dim(&self) -> usize {
        self.split.protocol.dim
    }

    fn users(&self) -> u64 {
        self.split.taken.len() as u64
    }

    fn truth(&self) -> Option<&Truth> {
        None
    }

    fn new_block(&self) -> Block {
        let Protocol {
            dim, candidates, ..
        } = self.split.protocol;
        Block::new(dim, candidates, Rewards::Bernoulli).expect("features were made")
    }

    fn length(&self) -> Option<u64> {
        Some(self.split.rounds.len() as u64)
    }

    fn draw(&self, index: u64, rounds: usize, block: &mut Block) {
        let candidates = self.split.protocol.candidates;
        let first = index as usize * BLOCK;
        let mut rng = stream(self.split.seed, Purpose::Items, index);
        let mut shown = Vec::with_capacity(candidates);
        let mut rows = Vec::with_capacity(candidates * self.dim());
        let mut ids: Vec<ItemId> = Vec::with_capacity(candidates);
        block.clear(rounds);
        for at in 0..rounds {
            let (user, _, age) = self.split.rounds[first + at];
            let place = self.candidates(first + at, &mut rng, &mut shown);
            rows.clear();
            for &candidate in &shown {
                rows.extend_from_slice(self.vectors.row(candidate as usize));
            }
            let items = &mut block.items[at];
            items.refill(&rows).expect("an item has good features");
            ids.clear();
            ids.extend(shown.iter().map(|&candidate| ItemId::from(candidate)));
            items.set_ids(&ids).expect("each item has an id");
            let given = self
                .placebo_users
                .as_ref()
                .map_or(user, |users| users[first + at]);
            block.users.push(UserId::from(given));
            block.ages.push(age);
            let reward = self.split.reward(first + at);
            block.means[at * candidates + place] = reward;
            block.best.push(reward);
            block.average.push(reward / candidates as f64);
            block.noise.push(0.5);
        }
        // A value is the reward itself, not the probability of one.
        if self.split.values.is_some() {
            block.given.extend_from_slice(&block.means);
        }
    }
}
