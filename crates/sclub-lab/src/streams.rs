//! Random streams: one for each purpose, so that nothing drawn for one thing shifts another.

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

/// The purpose of a stream of random numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The users' weight vectors.
    Tastes = 1,
    /// The frequency of each user.
    Frequencies = 2,
    /// The users of each round.
    Arrivals = 3,
    /// The candidate items of each round.
    Items = 4,
    /// The noise in the rewards.
    Noise = 5,
    /// CLUB's initial graph.
    Graph = 6,
    /// The choices of the policy `random`.
    Choices = 7,
    /// The split into feature users and served users.
    Halves = 8,
    /// The order of the rounds of a split.
    Order = 9,
    /// The shuffled users that policies get in a placebo run ([`crate::held_out::HeldOut::with_users_shuffled`]).
    Placebo = 10,
    /// The assignment of users to unequal clusters.
    Sizes = 11,
    /// The differences between users and their clusters.
    Spread = 12,
    /// The clusters that users change to.
    Change = 13,
    /// The random number of each decision ([`sclub::Policy::recommend_drawn`]).
    Decisions = 14,
    /// The items that a served user did not take, in the order in which they are offered.
    Others = 15,
    /// The items of a world with a fixed set of them.
    FixedItems = 16,
    /// The groups of users on each cluster of items.
    Groups = 17,
    /// The differences between mean rewards and linear ones.
    Misspecified = 18,
    /// The corrupted users.
    Corrupted = 19,
    /// The clusters that users lie between.
    Overlap = 20,
    /// The plane that smoothed items are near.
    Plane = 21,
    /// The items that no feature user is seen to take.
    ColdItems = 22,
    /// The seeds of policies that the caller makes ([`crate::policies::Guest`]).
    Guests = 23,
}

/// Mixes words into one so that any change of any of them changes everything.
pub fn mix(words: &[u64]) -> u64 {
    words.iter().fold(0x6a09_e667_f3bc_c908, mix_one_more)
}

/// The [`mix`] of some words and one more, from the mix of the former.
#[inline]
pub fn mix_one_more(state: u64, word: &u64) -> u64 {
    let mut z = (state ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The stream of a seed for a purpose; `part` is the number of an independent part, such as a block
/// of rounds.
pub fn stream(seed: u64, purpose: Purpose, part: u64) -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(mix(&[seed, purpose as u64, part]))
}
