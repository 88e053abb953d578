//! Mean rewards that are not linear, and rewards that do not follow their means.

use rand::seq::SliceRandom;
use sclub::ItemId;

use super::recipe::Recipe;
use crate::streams::{Purpose, mix, mix_one_more, stream};
use crate::world::Rewards;

/// The differences between mean rewards and linear ones, [`super::Twists::misspecified`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Misspecified {
    seed: u64,
    bound: f64,
    /// True to keep means between 0 and 1. The linear ones lie there, so it makes no difference larger.
    is_bounded: bool,
}

impl Misspecified {
    /// None if means are linear.
    pub fn new(recipe: &Recipe, seed: u64) -> Option<Self> {
        let bound = recipe.twists.misspecified;
        (bound != 0.0).then_some(Self {
            seed: mix(&[seed, Purpose::Misspecified as u64]),
            bound,
            is_bounded: recipe.rewards == Rewards::Bernoulli,
        })
    }

    /// Adds a user's differences to the means of some items, whose features come feature by feature. An item without
    /// an id is known by the bits of its features.
    pub fn add(&self, user: usize, ids: &[ItemId], features: &[f64], means: &mut [f64]) {
        let of_user = mix_one_more(self.seed, &(user as u64));
        let count = means.len();
        for (item, mean) in means.iter_mut().enumerate() {
            let word = match ids.get(item) {
                Some(id) => mix_one_more(of_user, id),
                None => {
                    let own = features[item..].iter().step_by(count);
                    own.fold(of_user, |state, value| {
                        mix_one_more(state, &value.to_bits())
                    })
                }
            };
            *mean += self.bound * centred(word);
            if self.is_bounded {
                *mean = mean.clamp(0.0, 1.0);
            }
        }
    }
}

/// A number in [−1, 1) from the upper 53 bits of a word.
fn centred(word: u64) -> f64 {
    (word >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

/// True for the corrupted users; empty if there are none.
pub(super) fn corrupted_users(recipe: &Recipe, seed: u64) -> Vec<bool> {
    let count = (recipe.twists.corrupted * recipe.users as f64).round() as usize;
    if count == 0 {
        return Vec::new();
    }
    let mut is_corrupted = vec![false; recipe.users];
    is_corrupted[..count].fill(true);
    is_corrupted.shuffle(&mut stream(seed, Purpose::Corrupted, 0));
    is_corrupted
}
