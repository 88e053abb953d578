//! World `catalogue`: a shop whose items are all candidates in every round.
//!
//! An item has a category and a price band, as 0 or 1 for each, and some normal numbers. Users have one
//! of a few tastes, and a deviation of their own from it. The probability of a click is a [`Link`] of θᵀx.
//! Users are seen a few times each, rewards may be late, and several items may be shown at once.

mod shop;
mod stock;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use rand::RngExt;
use rand_distr::{Distribution, StandardNormal};
use rayon::prelude::*;
use sclub::{ItemId, ItemSet, UserId};

use crate::streams::{Purpose, stream};
use crate::synthetic::RecipeError;
use crate::world::{BLOCK, Block, Rewards, Truth, World};

pub use shop::{Link, LinkKind, Shop, Visits};
pub use stock::Stock;

/// The default number of rounds: six for each user of the default shop.
pub const DEFAULT_ROUNDS: u64 = 12_000;

/// The shop of a recipe and a seed.
#[derive(Debug, Clone)]
pub struct Catalogue {
    shop: Shop,
    seed: u64,
    stock: Arc<Stock>,
    truth: Truth,
    /// The end of each user's share of the visits.
    arrivals: Vec<f64>,
}

impl Catalogue {
    /// The shop of a recipe and a seed.
    ///
    /// # Errors
    /// As [`Shop::check`].
    pub fn new(shop: Shop, seed: u64) -> Result<Self, RecipeError> {
        shop.check()?;
        let tastes = draw_tastes(&shop, seed);
        let cluster_of: Vec<u32> = (0..shop.users).map(|u| (u % shop.tastes) as u32).collect();
        let weights = own_weights(&shop, seed, &cluster_of, &tastes);
        let shares = visit_shares(&shop, seed);
        let arrivals = shares
            .iter()
            .scan(0.0, |end, share| {
                *end += share;
                Some(*end)
            })
            .collect();
        let items = draw_items(&shop, seed);
        let stock = Arc::new(Stock::new(items, weights, shares, shop.link, shop.slots));
        let truth = Truth {
            cluster_of,
            weights: tastes,
            rewards: Rewards::Bernoulli,
            changed: None,
            stock: Some(Arc::clone(&stock)),
        };
        Ok(Self {
            shop,
            seed,
            stock,
            truth,
            arrivals,
        })
    }

    /// The items and the users' weight vectors.
    pub fn stock(&self) -> &Arc<Stock> {
        &self.stock
    }
}

/// The items: one category, one price band, and the numbers.
fn draw_items(shop: &Shop, seed: u64) -> ItemSet {
    let mut kinds = stream(seed, Purpose::Items, 0);
    let mut numbers = stream(seed, Purpose::Items, 1);
    let mut rows = Vec::with_capacity(shop.items * shop.dim());
    for _ in 0..shop.items {
        for count in [shop.categories, shop.price_bands] {
            let own = (count > 0).then(|| kinds.random_range(0..count));
            rows.extend((0..count).map(|kind| f64::from(u8::from(Some(kind) == own))));
        }
        rows.extend((0..shop.numbers).map(|_| {
            let normal: f64 = StandardNormal.sample(&mut numbers);
            shop.number_scale * normal
        }));
    }
    let mut items = ItemSet::from_rows(shop.dim(), &rows).expect("a drawn item has good features");
    let ids: Vec<ItemId> = (0..shop.items as ItemId).collect();
    items.set_ids(&ids).expect("each item has an id");
    items
}

fn draw_tastes(shop: &Shop, seed: u64) -> Vec<Vec<f64>> {
    let mut draws = stream(seed, Purpose::Tastes, 0);
    let mut taste = || {
        let weights = (0..shop.dim()).map(|_| {
            let normal: f64 = StandardNormal.sample(&mut draws);
            shop.taste_scale * normal
        });
        weights.collect()
    };
    (0..shop.tastes).map(|_| taste()).collect()
}

/// The users' own weight vectors, one after the other.
fn own_weights(shop: &Shop, seed: u64, cluster_of: &[u32], tastes: &[Vec<f64>]) -> Vec<f64> {
    let mut draws = stream(seed, Purpose::Spread, 0);
    let tastes = cluster_of.iter().flat_map(|&taste| &tastes[taste as usize]);
    let mut weight = |&weight: &f64| {
        let normal: f64 = StandardNormal.sample(&mut draws);
        weight + shop.deviation * normal
    };
    tastes.map(&mut weight).collect()
}

/// The share of each user in all visits, once all have come.
fn visit_shares(shop: &Shop, seed: u64) -> Vec<f64> {
    let users = shop.users;
    let Visits::Zipf = shop.visits else {
        return vec![1.0 / users as f64; users];
    };
    let weight = |rank: usize| libm::pow(rank as f64, -shop.zipf_exponent);
    let mut shares: Vec<f64> = (1..=users).map(weight).collect();
    let whole: f64 = shares.iter().sum();
    shares.iter_mut().for_each(|share| *share /= whole);
    // Neither a taste nor the first newcomers are seen most.
    rand::seq::SliceRandom::shuffle(&mut *shares, &mut stream(seed, Purpose::Frequencies, 0));
    shares
}

impl World for Catalogue {
    fn dim(&self) -> usize {
        self.shop.dim()
    }

    fn users(&self) -> u64 {
        self.shop.users as u64
    }

    fn truth(&self) -> Option<&Truth> {
        Some(&self.truth)
    }

    fn told(&self) -> Vec<(&'static str, f64)> {
        self.shop.told()
    }

    fn new_block(&self) -> Block {
        Block::of_stock(Arc::clone(&self.stock), self.shop.slots, self.shop.delay)
    }

    fn draw(&self, index: u64, rounds: usize, block: &mut Block) {
        let mut arrivals = stream(self.seed, Purpose::Arrivals, index);
        let mut noise = stream(self.seed, Purpose::Noise, index);
        block.clear(rounds);
        for at in 0..rounds {
            let present = self.shop.present(index * BLOCK as u64 + at as u64);
            let there = &self.arrivals[..present];
            let draw = arrivals.random::<f64>() * there[present - 1];
            let user = there.partition_point(|&end| end <= draw).min(present - 1);
            block.users.push(user as UserId);
            let draws = (0..self.shop.slots).map(|_| noise.random::<f64>());
            block.noise.extend(draws);
        }
        // The first time that a user is seen all items are looked at, which takes long if there are many.
        if block.users.iter().any(|&user| !self.stock.knows(user)) {
            let users = block.users.par_iter();
            users.for_each(|&user| _ = self.stock.best(user));
        }
        for &user in &block.users {
            let best = self.stock.best(user);
            block.best.extend_from_slice(&best.top);
            block.average.push(best.average);
        }
    }
}
