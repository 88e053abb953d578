//! The users: their clusters, their own tastes, their frequencies.

use std::collections::HashMap;
use std::f64::consts::FRAC_1_SQRT_2;

use rand::RngExt;
use rand::seq::SliceRandom;
use rand_distr::{Distribution, Exp1};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::items::{draw_within, features_of};
use super::recipe::{Frequencies, Recipe};
use super::twists::Sizes;
use crate::normals::Normals;
use crate::streams::{Purpose, stream};

/// The cluster of each user. However large the clusters, those of the users who come first are mixed.
pub(super) fn clusters(recipe: &Recipe, seed: u64) -> Vec<u32> {
    let Recipe {
        users, clusters, ..
    } = *recipe;
    if recipe.twists.sizes == Sizes::Equal {
        return (0..users).map(|user| (user % clusters) as u32).collect();
    }
    let weights = (1..=clusters).map(|k| 1.0 / (k as f64 * (k as f64).sqrt()));
    let mut ends: Vec<f64> = weights
        .scan(0.0, |end, weight| {
            *end += weight;
            Some(*end)
        })
        .collect();
    let whole = ends[clusters - 1];
    ends.iter_mut().for_each(|end| *end /= whole);
    let others = users - clusters;
    let mut cluster_of: Vec<u32> = (0..clusters as u32).collect();
    cluster_of.extend((0..others).map(|place| {
        let share = (place as f64 + 0.5) / others as f64;
        ends.partition_point(|&end| end <= share).min(clusters - 1) as u32
    }));
    cluster_of.shuffle(&mut stream(seed, Purpose::Sizes, 0));
    cluster_of
}

/// Another cluster for each user, any of the others alike.
pub(super) fn other_clusters(recipe: &Recipe, seed: u64, cluster_of: &[u32]) -> Vec<u32> {
    let mut draws = stream(seed, Purpose::Change, 0);
    let clusters = recipe.clusters as u32;
    cluster_of
        .iter()
        .map(|&cluster| {
            let other = draws.random_range(0..clusters - 1);
            other + u32::from(other >= cluster)
        })
        .collect()
}

/// The users' own weight vectors, one after the other: spread around those of their clusters. How a
/// user differs from the cluster is the same in every cluster.
pub(super) fn own_weights(
    recipe: &Recipe,
    seed: u64,
    cluster_of: &[u32],
    weights: &[Vec<f64>],
) -> Vec<f64> {
    let mut own = Vec::with_capacity(cluster_of.len() * recipe.dim);
    let directions = recipe.dim - 1;
    // A cluster's direction has length √½ and not 1, as its weight vector has.
    let scale = recipe.twists.spread * FRAC_1_SQRT_2 / (directions as f64).sqrt();
    for (user, &cluster) in cluster_of.iter().enumerate() {
        let mut normals = Normals::new(seed, Purpose::Spread, user as u64);
        let numbers = std::iter::from_fn(|| Some(normals.batch())).flatten();
        let weights = &weights[cluster as usize];
        let mut taste: Vec<f64> = weights[..directions]
            .iter()
            .zip(numbers)
            .map(|(weight, number)| weight + scale * number)
            .collect();
        let length = taste.iter().map(|v| v * v).sum::<f64>().sqrt();
        taste
            .iter_mut()
            .for_each(|value| *value *= FRAC_1_SQRT_2 / length);
        own.extend_from_slice(&taste);
        own.push(weights[directions]);
    }
    own
}

/// The users' own weight vectors, one after the other: between those of their clusters and of another one, drawn
/// for each user. The draws of a user are the same in every cluster.
pub(super) fn between_clusters(
    recipe: &Recipe,
    seed: u64,
    cluster_of: &[u32],
    weights: &[Vec<f64>],
) -> Vec<f64> {
    let mut own = Vec::with_capacity(cluster_of.len() * recipe.dim);
    for (user, &cluster) in cluster_of.iter().enumerate() {
        let mut draws = stream(seed, Purpose::Overlap, user as u64);
        let other = draws.random_range(0..recipe.clusters as u32 - 1);
        let other = &weights[(other + u32::from(other >= cluster)) as usize];
        let home = &weights[cluster as usize];
        let apart = home.iter().zip(other).map(|(a, b)| (a - b) * (a - b));
        let apart = apart.sum::<f64>().sqrt();
        let moved = draws.random::<f64>() * recipe.twists.overlap / 2.0;
        let share = (moved / apart).min(0.5);
        own.extend(home.iter().zip(other).map(|(a, b)| a + share * (b - a)));
    }
    own
}

/// The users of a world with clusters of items: on those of the first cluster they have the groups `first`, on those
/// of each other one the same groups shuffled. A group has a direction in the features of that cluster of items.
/// Returns the number of each user's combination of groups, and the weight vector of each combination.
pub(super) fn grouped(
    recipe: &Recipe,
    item_clusters: usize,
    seed: u64,
    first: Vec<u32>,
) -> (Vec<u32>, Vec<Vec<f64>>) {
    let mut groups = vec![first];
    for place in 1..item_clusters {
        let mut other = groups[0].clone();
        other.shuffle(&mut stream(seed, Purpose::Groups, place as u64));
        groups.push(other);
    }
    let mut draws = stream(seed, Purpose::Tastes, 0);
    let directions: Vec<Vec<Vec<f64>>> = (0..item_clusters)
        .map(|place| {
            let features = features_of(place, item_clusters, recipe.dim);
            let direction = |_| draw_within(features.clone(), &mut draws);
            (0..recipe.clusters).map(direction).collect()
        })
        .collect();
    let mut number_of: HashMap<Vec<u32>, u32> = HashMap::new();
    let mut weights = Vec::new();
    let numbers = (0..recipe.users).map(|user| {
        let own: Vec<u32> = groups.iter().map(|groups| groups[user]).collect();
        let next = number_of.len() as u32;
        *number_of.entry(own).or_insert_with_key(|own| {
            let parts = directions.iter().zip(own);
            let parts = parts.flat_map(|(directions, &group)| &directions[group as usize]);
            let mut whole: Vec<f64> = parts.copied().collect();
            whole.push(FRAC_1_SQRT_2);
            weights.push(whole);
            next
        })
    });
    let numbers = numbers.collect();
    (numbers, weights)
}

/// A flat Dirichlet draw: exponential shares of one whole.
fn dirichlet(rng: &mut Xoshiro256PlusPlus, count: usize) -> Vec<f64> {
    let mut shares: Vec<f64> = (0..count).map(|_| Exp1.sample(rng)).collect();
    let whole: f64 = shares.iter().sum();
    shares.iter_mut().for_each(|share| *share /= whole);
    shares
}

/// The end of each user's share of the arrivals.
pub(super) fn arrivals(recipe: &Recipe, seed: u64, cluster_of: &[u32]) -> Vec<f64> {
    let mut rng = stream(seed, Purpose::Frequencies, 0);
    let share: Vec<f64> = match recipe.frequencies {
        Frequencies::Uniform => vec![1.0 / recipe.users as f64; recipe.users],
        Frequencies::Users => dirichlet(&mut rng, recipe.users),
        Frequencies::Clusters => {
            let shares = dirichlet(&mut rng, recipe.clusters);
            let mut sizes = vec![0.0; recipe.clusters];
            cluster_of
                .iter()
                .for_each(|&cluster| sizes[cluster as usize] += 1.0);
            cluster_of
                .iter()
                .map(|&c| shares[c as usize] / sizes[c as usize])
                .collect()
        }
    };
    let mut end = 0.0;
    share
        .iter()
        .map(|share| {
            end += share;
            end
        })
        .collect()
}
