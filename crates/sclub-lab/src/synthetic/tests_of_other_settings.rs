//! Tests of the settings of other papers, against means and frequencies computed in another way.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use sclub::{Change, Decision, Error, ItemSet, List, Observation, Policy, Preset, Score};

use super::*;
use crate::run::{Player, Run, play_all};
use crate::world::{Rewards, Tally};

fn recipe(twists: Twists) -> Recipe {
    Recipe {
        users: 30,
        clusters: 5,
        dim: 8,
        candidates: 10,
        frequencies: Frequencies::Uniform,
        rewards: Rewards::Gaussian(0.1),
        users_a_round: None,
        twists,
    }
}

fn bernoulli(twists: Twists) -> Recipe {
    Recipe {
        rewards: Rewards::Bernoulli,
        ..recipe(twists)
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    let squares = a.iter().zip(b).map(|(x, y)| (x - y) * (x - y));
    squares.sum::<f64>().sqrt()
}

/// A candidate of a round.
struct Seen {
    round: u64,
    user: usize,
    id: Option<u64>,
    features: Vec<f64>,
    mean: f64,
}

/// All candidates of the first blocks.
fn seen(world: &Synthetic, blocks: u64) -> Vec<Seen> {
    let mut all = Vec::new();
    let mut block = world.new_block();
    for index in 0..blocks {
        world.draw(index, world.block_rounds(), &mut block);
        for at in 0..block.len() {
            let items = &block.items[at];
            all.extend((0..items.len()).map(|item| Seen {
                round: index * BLOCK as u64 + at as u64,
                user: block.users[at] as usize,
                id: items.id(item),
                features: items.item(item).collect(),
                mean: block.mean(at, item),
            }));
        }
    }
    all
}

/// True if a count of hits is within five standard deviations of a sum of probabilities.
fn agrees(hits: f64, probabilities: &[f64]) -> bool {
    let expected: f64 = probabilities.iter().sum();
    let variance: f64 = probabilities.iter().map(|p| p * (1.0 - p)).sum();
    (hits - expected).abs() <= 5.0 * variance.sqrt()
}

#[test]
fn misspecified_means_differ_from_linear_ones_by_a_fixed_number_within_the_bound() {
    let bound = 0.2;
    for items_fixed in [None, Some(15)] {
        let twists = Twists {
            misspecified: bound,
            items_fixed,
            ..Twists::default()
        };
        let world = Synthetic::new(recipe(twists), 7).unwrap();
        let mut of_pair: HashMap<(usize, u64), f64> = HashMap::new();
        let mut differences = Vec::new();
        for one in seen(&world, 12) {
            let cluster = world.truth.cluster_of[one.user] as usize;
            let difference = one.mean - dot(&one.features, &world.truth.weights[cluster]);
            assert!(difference.abs() <= bound + 1e-12, "{difference}");
            if let Some(id) = one.id {
                let first = *of_pair.entry((one.user, id)).or_insert(difference);
                assert!((first - difference).abs() < 1e-12);
            }
            differences.push(difference);
        }
        let distinct: Vec<f64> = match items_fixed {
            Some(items) => {
                assert_eq!(of_pair.len(), 30 * items, "all pairs have been seen");
                of_pair.into_values().collect()
            }
            None => differences,
        };
        // A uniform number has the mean 0 and the mean square bound²/3.
        let count = distinct.len() as f64;
        let mean = distinct.iter().sum::<f64>() / count;
        let square = dot(&distinct, &distinct) / count / (bound * bound);
        assert!(mean.abs() < 4.0 * bound / (3.0 * count).sqrt(), "{mean}");
        let deviation = (4.0 / 45.0 / count).sqrt();
        assert!((square - 1.0 / 3.0).abs() < 4.0 * deviation, "{square}");
    }
}

#[test]
fn an_item_without_an_id_is_its_features() {
    let twists = Twists {
        misspecified: 0.3,
        ..Twists::default()
    };
    let misspecified = Misspecified::new(&recipe(twists), 1).unwrap();
    // Items (1, 2), (3, 4), and then the same in the other order.
    let (mut there, mut back) = ([0.0; 2], [0.0; 2]);
    misspecified.add(3, &[], &[1.0, 3.0, 2.0, 4.0], &mut there);
    misspecified.add(3, &[], &[3.0, 1.0, 4.0, 2.0], &mut back);
    assert_eq!(there, [back[1], back[0]]);
    assert_ne!(there[0], there[1]);
    misspecified.add(4, &[], &[3.0, 1.0, 4.0, 2.0], &mut back);
    assert_ne!(back[1], 2.0 * there[0], "another user, another number");
}

#[test]
fn misspecified_probabilities_stay_probabilities_and_the_best_is_the_best_true_mean() {
    let twists = Twists {
        misspecified: 0.9,
        ..Twists::default()
    };
    let world = Synthetic::new(bernoulli(twists), 7).unwrap();
    let mut block = world.new_block();
    world.draw(0, BLOCK, &mut block);
    assert!(block.means.iter().all(|mean| (0.0..=1.0).contains(mean)));
    assert!(block.means.contains(&0.0) && block.means.contains(&1.0));
    for (at, means) in block.means.chunks_exact(block.candidates).enumerate() {
        let mut sorted = means.to_vec();
        sorted.sort_by(f64::total_cmp);
        assert_eq!(block.best[at], sorted[means.len() - 1]);
    }
}

#[test]
fn fixed_items_keep_their_features_and_are_offered_equally_often() {
    let twists = Twists {
        items_fixed: Some(25),
        ..Twists::default()
    };
    let world = Synthetic::new(recipe(twists), 3).unwrap();
    let blocks = 20;
    let all = seen(&world, blocks);
    let mut features: HashMap<u64, Vec<f64>> = HashMap::new();
    let mut counts = [0u32; 25];
    for one in &all {
        let id = one.id.unwrap();
        counts[id as usize] += 1;
        let known = features.entry(id).or_insert_with(|| one.features.clone());
        assert_eq!(*known, one.features);
        assert!((dot(known, known) - 1.0).abs() < 1e-12);
        let cluster = world.truth.cluster_of[one.user] as usize;
        let mean = dot(&one.features, &world.truth.weights[cluster]);
        assert!((one.mean - mean).abs() < 1e-12);
    }
    for round in all.chunks(10) {
        let ids: BTreeSet<u64> = round.iter().map(|one| one.id.unwrap()).collect();
        assert_eq!(
            ids.len(),
            10,
            "the candidates of a round are different items"
        );
    }
    let rounds = (blocks * BLOCK as u64) as usize;
    for count in counts {
        assert!(
            agrees(f64::from(count), &vec![10.0 / 25.0; rounds]),
            "{count}"
        );
    }
}

#[test]
fn a_smaller_part_of_a_block_of_fixed_items_is_its_beginning() {
    let twists = Twists {
        items_fixed: Some(25),
        misspecified: 0.1,
        ..Twists::default()
    };
    let world = Synthetic::new(recipe(twists), 3).unwrap();
    let (mut whole, mut part) = (world.new_block(), world.new_block());
    world.draw(4, BLOCK, &mut whole);
    world.draw(4, 17, &mut part);
    assert_eq!(part.means, whole.means[..170]);
    assert_eq!(part.items[16].ids(), whole.items[16].ids());
}

#[test]
fn users_are_grouped_anew_for_each_cluster_of_items() {
    let (users, groups, item_clusters) = (60, 4, 3);
    let twists = Twists {
        items_fixed: Some(30),
        item_clusters: Some(item_clusters),
        ..Twists::default()
    };
    let recipe = Recipe {
        users,
        clusters: groups,
        dim: 13,
        ..recipe(twists)
    };
    let world = Synthetic::new(recipe, 5).unwrap();
    // The mean of each item for each user, to as many digits as two ways of adding up agree in.
    let mut means: BTreeMap<u64, BTreeMap<usize, i64>> = BTreeMap::new();
    for one in seen(&world, 60) {
        assert!((-1e-12..=1.0 + 1e-12).contains(&one.mean));
        let rounded = (one.mean * 1e9).round() as i64;
        let of_item = means.entry(one.id.unwrap()).or_default();
        assert_eq!(*of_item.entry(one.user).or_insert(rounded), rounded);
    }
    assert_eq!(means.len(), 30);
    let mut partition_of_cluster: BTreeMap<u64, BTreeSet<Vec<usize>>> = BTreeMap::new();
    for (id, of_item) in &means {
        assert_eq!(of_item.len(), users, "every user has been offered it");
        let mut together: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
        for (&user, &mean) in of_item {
            together.entry(mean).or_default().push(user);
        }
        assert_eq!(together.len(), groups);
        assert!(together.values().all(|users| users.len() == 15));
        let partition: BTreeSet<Vec<usize>> = together.into_values().collect();
        let cluster = id % item_clusters as u64;
        let known = partition_of_cluster
            .entry(cluster)
            .or_insert_with(|| partition.clone());
        assert_eq!(*known, partition, "items of a cluster agree");
    }
    let different: BTreeSet<_> = partition_of_cluster.values().collect();
    assert_eq!(different.len(), item_clusters, "clusters of items do not");
    // The clusters of the truth are the users who are together in all groups.
    for a in 0..users {
        for b in 0..a {
            let mut partitions = partition_of_cluster.values();
            let are_together = partitions.all(|groups| {
                let mut groups = groups.iter();
                groups.any(|group| group.contains(&a) && group.contains(&b))
            });
            let cluster_of = &world.truth.cluster_of;
            assert_eq!(cluster_of[a] == cluster_of[b], are_together);
        }
    }
}

fn cascade(k: usize) -> Twists {
    Twists {
        cascade: Some(k),
        reward_scale: 0.4,
        ..Twists::default()
    }
}

#[test]
fn lists_are_clicked_as_often_as_the_formula_says_and_at_the_places_it_says() {
    let world = Synthetic::new(bernoulli(cascade(3)), 2).unwrap();
    let mut block = world.new_block();
    let list = [7, 0, 4];
    let mut at_place: [(f64, Vec<f64>); 3] = Default::default();
    let mut tally = Tally::default();
    let mut values = Vec::new();
    for index in 0..40 {
        world.draw(index, BLOCK, &mut block);
        for at in 0..block.len() {
            if let Some(place) = tally.count_cascade(&block, at, &list) {
                at_place[place].0 += 1.0;
            }
            let w = list.map(|choice| {
                let features: Vec<f64> = block.items[at].item(choice).collect();
                let cluster = world.truth.cluster_of[block.users[at] as usize];
                dot(&features, &world.truth.weights[cluster as usize])
            });
            at_place[0].1.push(w[0]);
            at_place[1].1.push((1.0 - w[0]) * w[1]);
            at_place[2].1.push((1.0 - w[0]) * (1.0 - w[1]) * w[2]);
            values.push(1.0 - (1.0 - w[0]) * (1.0 - w[1]) * (1.0 - w[2]));
        }
    }
    assert_eq!(tally.served, 40 * BLOCK as u64);
    assert!(agrees(tally.reward, &values), "{}", tally.reward);
    for (clicks, probabilities) in &at_place {
        assert!(agrees(*clicks, probabilities), "{clicks}");
    }
    // A list that does not depend on the users is as good as a random one.
    let difference = (tally.regret - tally.random_regret).abs();
    assert!(difference < 0.05 * tally.regret, "{difference}");
}

/// Shows the best list, or lists with the items of a plain order, and checks what it is given to learn.
struct Reader {
    weights: Option<Vec<Vec<f64>>>,
    rounds: u64,
    clicks: u64,
}

impl Policy for Reader {
    fn dim(&self) -> usize {
        8
    }

    fn rounds(&self) -> u64 {
        self.rounds
    }

    fn explain(&self, user: u64, items: &ItemSet, scores: &mut Vec<Score>) -> Result<(), Error> {
        scores.clear();
        scores.extend((0..items.len()).map(|item| {
            let features: Vec<f64> = items.item(item).collect();
            Score::certain(match &self.weights {
                Some(weights) => dot(&features, &weights[user as usize]),
                None => -(item as f64),
            })
        }));
        Ok(())
    }

    fn recommend_list(
        &self,
        user: u64,
        items: &ItemSet,
        k: usize,
        exclude: &dyn Fn(usize) -> bool,
        list: &mut Vec<Decision>,
    ) -> Result<(), Error> {
        assert_eq!(k, 3);
        self.best(user, items, k, exclude, list)
    }

    fn learn_round(&mut self, _: &[Observation<'_>], _: &mut Vec<Change>) -> Result<(), Error> {
        panic!("lists are learned as lists");
    }

    fn learn_lists(&mut self, round: &[List<'_>], _: &mut Vec<Change>) -> Result<(), Error> {
        self.rounds += 1;
        let [list] = round else {
            panic!("a round has one list");
        };
        assert_eq!(list.items.len(), 3);
        let looked_at = list.looked_at.unwrap();
        let rewards: Vec<Option<f64>> = list.items.iter().map(|shown| shown.reward).collect();
        let is_clicked = rewards.contains(&Some(1.0));
        self.clicks += u64::from(is_clicked);
        let last = if is_clicked { 1.0 } else { 0.0 };
        assert!((1..=3).contains(&looked_at));
        assert!(is_clicked || looked_at == 3);
        let known = &rewards[..looked_at];
        assert_eq!(known[looked_at - 1], Some(last));
        assert!(
            known[..looked_at - 1]
                .iter()
                .all(|&reward| reward == Some(0.0))
        );
        assert!(rewards[looked_at..].iter().all(Option::is_none));
        Ok(())
    }

    fn digest(&self) -> u64 {
        self.clicks
    }
}

fn run_reader(world: &Synthetic, weights: Option<Vec<Vec<f64>>>) -> Run<&'static str> {
    let reader = Reader {
        weights,
        rounds: 0,
        clicks: 0,
    };
    let player = Player::new("reader", Preset::Default, Box::new(reader));
    let runs = play_all(world, 1, vec![player], 2000, &()).unwrap();
    runs.unwrap().remove(0)
}

#[test]
fn the_best_lists_have_no_regret_and_the_prefix_up_to_the_click_is_learned() {
    let world = Synthetic::new(bernoulli(cascade(3)), 2).unwrap();
    let of_user = |&cluster: &u32| world.truth.weights[cluster as usize].clone();
    let weights = world.truth.cluster_of.iter().map(of_user).collect();
    let best = run_reader(&world, Some(weights));
    assert!(best.regret.abs() < 1e-9, "{}", best.regret);
    assert_eq!(best.digest as f64, best.reward, "a click is a reward of 1");
    assert_eq!((best.rounds, best.served), (2000, 2000));
    let other = run_reader(&world, None);
    assert!(other.regret > 100.0, "{}", other.regret);
    assert!(best.reward > other.reward);
}

#[test]
fn corrupted_users_reward_the_opposite_in_the_first_rounds_and_regret_knows_it() {
    let twists = Twists {
        corrupted: 0.3,
        corrupted_rounds: 3000,
        reward_scale: 0.8,
        ..Twists::default()
    };
    let world = Synthetic::new(bernoulli(twists), 11).unwrap();
    let plain = Twists {
        corrupted: 0.0,
        ..twists
    };
    let plain = Synthetic::new(bernoulli(plain), 11).unwrap();
    assert_eq!(world.is_corrupted.iter().filter(|&&is| is).count(), 9);
    assert!(world.is_corrupted[..9].contains(&false), "they are drawn");
    // Clicks and probabilities: of corrupted users in the first rounds, and of the others.
    let mut sums: [(f64, Vec<f64>, Vec<f64>); 2] = Default::default();
    let (mut block, mut other) = (world.new_block(), plain.new_block());
    for index in 0..40 {
        world.draw(index, BLOCK, &mut block);
        plain.draw(index, BLOCK, &mut other);
        assert_eq!(block.means, other.means, "means are the true ones");
        assert_eq!((&block.best, &block.average), (&other.best, &other.average));
        for at in 0..block.len() {
            let round = index * BLOCK as u64 + at as u64;
            let is_corrupted = world.is_corrupted[block.users[at] as usize] && round < 3000;
            let (clicks, opposite, means) = &mut sums[usize::from(is_corrupted)];
            // The best item: corruption makes most of a difference there.
            let means_of_round = &block.means[at * 10..][..10];
            let best = (0..10).max_by(|&a, &b| means_of_round[a].total_cmp(&means_of_round[b]));
            let best = best.unwrap();
            *clicks += block.reward(at, best);
            means.push(block.mean(at, best));
            opposite.push(0.8 - block.mean(at, best));
            if !is_corrupted {
                assert_eq!(block.reward(at, best), other.reward(at, best));
            }
        }
    }
    let [
        (fair, _, fair_means),
        (corrupted, opposite, corrupted_means),
    ] = &sums;
    assert!(agrees(*fair, fair_means));
    assert!(agrees(*corrupted, opposite));
    assert!(!agrees(*corrupted, corrupted_means));
}

#[test]
fn corrupted_users_click_lists_as_if_their_taste_were_the_opposite() {
    let twists = Twists {
        corrupted: 1.0,
        ..cascade(2)
    };
    let world = Synthetic::new(bernoulli(twists), 2).unwrap();
    let mut block = world.new_block();
    let (mut tally, mut opposite) = (Tally::default(), Vec::new());
    for index in 0..20 {
        world.draw(index, BLOCK, &mut block);
        for at in 0..block.len() {
            tally.count_cascade(&block, at, &[1, 2]);
            let missed = [1, 2].map(|item| 1.0 - (0.4 - block.mean(at, item)));
            opposite.push(1.0 - missed[0] * missed[1]);
        }
    }
    assert!(agrees(tally.reward, &opposite));
}

#[test]
fn overlapping_clusters_are_within_gamma_and_between_two_clusters() {
    for (overlap, change_at) in [(0.1, None), (0.9, None), (0.9, Some(0))] {
        let twists = Twists {
            overlap,
            change_at,
            ..Twists::default()
        };
        let recipe = Recipe {
            users: 200,
            ..recipe(twists)
        };
        let world = Synthetic::new(recipe, 4).unwrap();
        let clusters = world.truth.clusters_in(0).to_vec();
        let weights: Vec<&[f64]> = (0..200).map(|user| world.weights(user, 0)).collect();
        let (mut moved, mut expected, mut near_others) = (0.0, 0.0, 0);
        for (user, &own) in weights.iter().enumerate() {
            let home = &world.truth.weights[clusters[user] as usize];
            moved += distance(own, home) / 200.0;
            // On the way to another cluster: the parts add up to the whole, and home is nearer.
            let others = (0..5).filter(|&c| c != clusters[user] as usize);
            let is_between = others.clone().any(|c| {
                let other = &world.truth.weights[c];
                let (there, back) = (distance(own, home), distance(own, other));
                there <= back + 1e-12 && there + back - distance(home, other) < 1e-9
            });
            assert!(is_between);
            // The mean of a uniform step below gamma/2, cut at half of the way.
            for c in others {
                let (step, half) = (overlap / 2.0, distance(home, &world.truth.weights[c]) / 2.0);
                let mean = match half < step {
                    true => half - half * half / (2.0 * step),
                    false => step / 2.0,
                };
                expected += mean / 4.0 / 200.0;
            }
            for (peer, &weights) in weights.iter().enumerate() {
                if clusters[peer] == clusters[user] {
                    assert!(distance(own, weights) < overlap);
                } else {
                    near_others += u32::from(distance(own, weights) < overlap);
                }
            }
        }
        assert!((moved / expected - 1.0).abs() < 0.2, "{moved} {expected}");
        // Two clusters can overlap if they are less than twice gamma apart: each user moves by less than half of it.
        let pairs = (0..5).flat_map(|a| (0..a).map(move |b| (a, b)));
        let apart = pairs.map(|(a, b)| distance(&world.truth.weights[a], &world.truth.weights[b]));
        let can_overlap = apart.fold(f64::INFINITY, f64::min) < 2.0 * overlap;
        assert_eq!(near_others > 0, can_overlap, "clusters overlap");
        assert_eq!(can_overlap, overlap > 0.5);
    }
    // The means are those of these vectors.
    let twists = Twists {
        overlap: 0.9,
        ..Twists::default()
    };
    let world = Synthetic::new(recipe(twists), 4).unwrap();
    for one in seen(&world, 2) {
        let mean = dot(&one.features, world.weights(one.user, one.round));
        assert!((one.mean - mean).abs() < 1e-12);
    }
}

/// The squared lengths of some vectors outside of the plane that the first two span, on average.
fn outside_of_plane(vectors: &[Vec<f64>]) -> f64 {
    let mut axes: Vec<Vec<f64>> = Vec::new();
    for vector in &vectors[..2] {
        let mut rest = without(vector, &axes);
        let length = dot(&rest, &rest).sqrt();
        rest.iter_mut().for_each(|value| *value /= length);
        axes.push(rest);
    }
    let outside = vectors[2..].iter().map(|vector| {
        let rest = without(vector, &axes);
        dot(&rest, &rest)
    });
    outside.sum::<f64>() / (vectors.len() - 2) as f64
}

fn without(vector: &[f64], axes: &[Vec<f64>]) -> Vec<f64> {
    let mut rest = vector.to_vec();
    for axis in axes {
        let part = dot(&rest, axis);
        let both = rest.iter_mut().zip(axis);
        both.for_each(|(value, axis)| *value -= part * axis);
    }
    rest
}

#[test]
fn smoothed_items_are_near_a_plane_and_their_noise_is_as_large_as_it_says() {
    for items_fixed in [None, Some(400)] {
        let directions = |sigma| -> Vec<Vec<f64>> {
            let twists = Twists {
                smoothed: Some(sigma),
                items_fixed,
                ..Twists::default()
            };
            let world = Synthetic::new(recipe(twists), 9).unwrap();
            let all = seen(&world, 4).into_iter().map(|one| {
                assert!((dot(&one.features, &one.features) - 1.0).abs() < 1e-12);
                let cluster = world.truth.cluster_of[one.user] as usize;
                let mean = dot(&one.features, &world.truth.weights[cluster]);
                assert!((one.mean - mean).abs() < 1e-12);
                let direction = &one.features[..7];
                direction.iter().map(|v| v * 2f64.sqrt()).collect()
            });
            all.collect()
        };
        let flat = directions(0.0);
        assert!(outside_of_plane(&flat) < 1e-20);
        let mean_of_first: f64 = flat.iter().map(|v| dot(v, &flat[0])).sum();
        assert!(
            mean_of_first.abs() / (flat.len() as f64) < 0.1,
            "in all directions of it"
        );
        // Five of seven directions are outside. A normal number cut off at 2 has the variance 0.7737, and the length
        // of an item is hardly changed by so little noise.
        let sigma = 0.02;
        let mut noisy = flat[..2].to_vec();
        noisy.extend(directions(sigma));
        let expected = 5.0 * 0.7737 * sigma * sigma;
        let outside = outside_of_plane(&noisy);
        assert!(
            (outside / expected - 1.0).abs() < 0.1,
            "{outside} {expected}"
        );
        // None of them is farther out than the cut allows.
        let most = 2.0 * sigma * 5f64.sqrt() * 1.2;
        for vector in &noisy[2..] {
            let alone = [noisy[0].clone(), noisy[1].clone(), vector.clone()];
            assert!(outside_of_plane(&alone).sqrt() < most);
        }
    }
}

#[test]
fn settings_that_cannot_be_combined_are_refused_with_the_reason() {
    let fixed = Twists {
        items_fixed: Some(100),
        ..Twists::default()
    };
    let clustered = Twists {
        item_clusters: Some(2),
        ..fixed
    };
    let overlapping = Twists {
        overlap: 0.5,
        ..Twists::default()
    };
    let with = |twists: Twists, text: &str| {
        let error = Synthetic::new(bernoulli(twists), 1).unwrap_err();
        assert_eq!(error.to_string(), text);
    };
    with(
        Twists {
            item_clusters: Some(2),
            ..Twists::default()
        },
        "item-clusters needs items-fixed: clusters are of a fixed set of items",
    );
    with(
        Twists {
            overlap: 0.1,
            ..clustered
        },
        "item-clusters and overlap cannot be combined: users have a group for each cluster of items",
    );
    for twists in [
        Twists {
            spread: 0.1,
            ..clustered
        },
        Twists {
            change_at: Some(9),
            ..clustered
        },
        Twists {
            smoothed: Some(0.1),
            ..clustered
        },
        Twists {
            spread: 0.1,
            ..overlapping
        },
    ] {
        let error = Synthetic::new(bernoulli(twists), 1).unwrap_err();
        assert!(matches!(error, RecipeError::Unsupported { .. }), "{error}");
    }
    with(
        Twists {
            misspecified: 1.5,
            ..fixed
        },
        "misspecified is 1.5; it must be between 0 and 1",
    );
    with(
        Twists {
            corrupted: -0.1,
            ..fixed
        },
        "corrupted is -0.1; it must be between 0 and 1",
    );
    with(
        Twists {
            items_fixed: Some(9),
            ..fixed
        },
        "items-fixed is 9; it must be between the number of items of a round, 10, and 1000000",
    );
    with(
        Twists {
            item_clusters: Some(8),
            ..fixed
        },
        "item-clusters is 8; it must be at least 1 and below the number of features, 8",
    );
    with(
        cascade(11),
        "cascade is 11; it must be between 1 and the number of items of a round, 10",
    );
    with(
        Twists {
            overlap: f64::NAN,
            ..fixed
        },
        "overlap is NaN; it must be between 0 and 2",
    );
    with(
        Twists {
            smoothed: Some(-1.0),
            ..fixed
        },
        "smoothed is -1; it must be between 0 and 1000",
    );
    with(
        Twists {
            servers: Some(0),
            ..fixed
        },
        "servers is 0; it must be between 1 and 1000000",
    );
    let together = Recipe {
        users_a_round: Some(2.0),
        ..bernoulli(cascade(2))
    };
    let error = Synthetic::new(together, 1).unwrap_err().to_string();
    assert!(
        error.starts_with("cascade and users-a-round cannot be combined"),
        "{error}"
    );
    let error = Synthetic::new(recipe(cascade(2)), 1)
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("cascade and rewards gaussian cannot"),
        "{error}"
    );
    let one = Recipe {
        clusters: 1,
        ..bernoulli(overlapping)
    };
    let error = Synthetic::new(one, 1).unwrap_err().to_string();
    assert_eq!(
        error,
        "clusters is 1; it must be at least 2 where clusters overlap"
    );
    let given = Synthetic::with_weights(bernoulli(clustered), vec![vec![0.1; 8]; 30], 1);
    let error = given.unwrap_err().to_string();
    assert_eq!(
        error,
        "item-clusters is 2; it must be 0 if tastes are given"
    );
}
