//! COFIBA.

use proptest::prelude::*;
use sclub::{
    Club, Exploration, Graph, Index, ItemId, ItemSet, Observation, Params, Policy, Users, Value,
};

use crate::common::*;
use crate::naive::{Sums, assert_close, dot};

const BETA: (&str, Value) = ("beta", Value::Number(0.4));
const NORM: (&str, Value) = ("index", Value::Choice("norm"));

/// Items with ids.
const ITEMS: usize = 9;

/// Rounds on a fixed set of items; `id_of` names them.
fn with_ids(seed: u64, count: usize, id_of: impl Fn(usize) -> ItemId) -> Vec<Round> {
    let mut rounds = rounds(seed, 3, count);
    let all: Vec<Vec<f64>> = rounds
        .iter()
        .take(ITEMS)
        .map(|round| round.features(0))
        .collect();
    let all_items = ItemSet::from_rows(DIM, &all.concat()).unwrap();
    for (number, round) in rounds.iter_mut().enumerate() {
        let first = (number * 5 + round.user as usize) % ITEMS;
        let shown: Vec<usize> = (0..CANDIDATES).map(|k| (first + k * 2) % ITEMS).collect();
        round.items.select(&all_items, &shown).unwrap();
        let ids: Vec<ItemId> = shown.iter().map(|&item| id_of(item)).collect();
        round.items.set_ids(&ids).unwrap();
        let side = if round.user % 3 == 0 { 1.0 } else { -1.0 };
        round.means = shown
            .iter()
            .map(|&item| side * all[item][0] + 0.5 * all[item][1])
            .collect();
    }
    rounds
}

/// As [`Round::play`], with the id of the item.
fn play(round: &Round, policy: &mut dyn Policy) -> usize {
    let shown = policy.recommend(round.user, &round.items).unwrap().index;
    let (item, reward) = (round.features(shown), round.reward(shown));
    let id = round.items.id(shown);
    let observation = Observation {
        user: round.user,
        item: &item,
        id,
        reward,
    };
    policy.learn_round(&[observation], &mut Vec::new()).unwrap();
    shown
}

/// Connected components of `nodes`, each with its nodes in order, by the lowest.
fn components(nodes: &[usize], is_edge: &dyn Fn(usize, usize) -> bool) -> Vec<Vec<usize>> {
    let mut all: Vec<Vec<usize>> = Vec::new();
    for &node in nodes {
        let (linked, mut apart): (Vec<_>, Vec<_>) = all
            .into_iter()
            .partition(|part| part.iter().any(|&other| is_edge(node, other)));
        let mut part = linked.concat();
        part.push(node);
        part.sort_unstable();
        apart.push(part);
        all = apart;
    }
    all.sort();
    all
}

/// The steps one by one; sums, components and tests are made anew each time.
struct Naive {
    history: Vec<(usize, Vec<f64>, f64)>,
    sums: Vec<Sums>,
    /// Known items in order of their first reward, with their features.
    items: Vec<(ItemId, Vec<f64>)>,
    item_cut: Vec<(usize, usize)>,
    item_cluster: Vec<usize>,
    /// The edges cut in the graph of each cluster of items.
    user_cut: Vec<Vec<(usize, usize)>>,
}

impl Naive {
    fn new(users: u64) -> Self {
        Self {
            history: Vec::new(),
            sums: vec![Sums::new(DIM); users as usize],
            items: Vec::new(),
            item_cut: Vec::new(),
            item_cluster: Vec::new(),
            user_cut: vec![Vec::new()],
        }
    }

    fn label(&self, id: ItemId) -> usize {
        let known = self.items.iter().position(|(other, _)| *other == id);
        known.map_or(0, |item| self.item_cluster[item])
    }

    fn component(&self, user: usize, label: usize) -> Vec<usize> {
        let users: Vec<usize> = (0..self.sums.len()).collect();
        let cut = &self.user_cut[label];
        let parts = components(&users, &|a, b| {
            !cut.contains(&(a, b)) && !cut.contains(&(b, a))
        });
        parts.into_iter().find(|part| part.contains(&user)).unwrap()
    }

    fn score(&self, user: usize, id: ItemId, item: &[f64], beta: f64) -> f64 {
        let component = self.component(user, self.label(id));
        let some = self
            .history
            .iter()
            .filter(|(other, ..)| component.contains(other));
        let sums = Sums::of(
            DIM,
            some.map(|(_, item, reward)| (item.as_slice(), *reward)),
        );
        dot(&sums.estimate(), item) + beta * sums.norm(item)
    }

    fn strangers(&self, user: usize, item: &[f64], weight: f64) -> Vec<usize> {
        let judge = |user: usize| {
            let sums = &self.sums[user];
            (dot(&sums.estimate(), item), weight * sums.norm(item))
        };
        let (mean, width) = judge(user);
        let apart = |&other: &usize| {
            let (their_mean, their_width) = judge(other);
            other != user && (mean - their_mean).abs() > width + their_width
        };
        (0..self.sums.len()).filter(apart).collect()
    }

    fn learn(&mut self, user: usize, id: ItemId, item: &[f64], reward: f64, weight: f64) {
        self.history.push((user, item.to_vec(), reward));
        self.sums[user].observe(item, reward);
        let shown = self
            .items
            .iter()
            .position(|(other, _)| *other == id)
            .unwrap_or_else(|| {
                let new = self.items.len();
                // Edges only to items of the first cluster.
                let elsewhere = (0..new).filter(|&item| self.item_cluster[item] != 0);
                self.item_cut.extend(elsewhere.map(|other| (other, new)));
                self.items.push((id, item.to_vec()));
                self.item_cluster.push(0);
                new
            });
        self.items[shown].1 = item.to_vec();
        let label = self.item_cluster[shown];
        let strangers = self.strangers(user, item, weight);
        self.user_cut[label].extend(strangers.iter().map(|&other| (user, other)));
        let is_edge =
            |cut: &[(usize, usize)], a, b| !cut.contains(&(a, b)) && !cut.contains(&(b, a));
        let members: Vec<usize> = (0..self.items.len())
            .filter(|&item| self.item_cluster[item] == label)
            .collect();
        for &other in members.iter().filter(|&&other| other != shown) {
            if is_edge(&self.item_cut, shown, other)
                && self.strangers(user, &self.items[other].1, weight) != strangers
            {
                self.item_cut.push((shown, other));
            }
        }
        let cut = &self.item_cut;
        let (own, rest): (Vec<_>, Vec<_>) = components(&members, &|a, b| is_edge(cut, a, b))
            .into_iter()
            .partition(|part| part.contains(&shown));
        // The first other part stays; the part of the item shown is the last to get a number.
        for part in rest
            .iter()
            .skip(1)
            .chain(own.iter().filter(|_| !rest.is_empty()))
        {
            for &item in part {
                self.item_cluster[item] = self.user_cut.len();
            }
            self.user_cut.push(Vec::new());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..Default::default() })]

    #[test]
    fn users_who_always_agree_are_linucb_one(seed: u64, has_ids: bool) {
        let mut policy = make("cofiba", &[BETA, NORM, ("alpha_edges", number(1e9))]);
        let mut one = make("linucb-one", &[BETA, NORM]);
        let rounds = if has_ids { with_ids(seed, 200, |item| item as ItemId) } else { rounds(seed, 3, 200) };
        for round in rounds {
            prop_assert_eq!(policy.recommend(round.user, &round.items), one.recommend(round.user, &round.items));
            let shown = play(&round, &mut *policy);
            one.learn(round.user, &round.features(shown), round.reward(shown)).unwrap();
        }
    }

    #[test]
    fn a_test_by_norm_is_club(seed: u64, alpha in 0.3f64..1.2, has_ids: bool) {
        let given = [BETA, NORM, ("alpha_edges", number(alpha)), ("test", Value::Choice("norm"))];
        let mut policy = make("cofiba", &given);
        let params = Params { alpha_theta: alpha, index: Index::Norm, exploration: Exploration::Fixed(0.4), ..Params::tuned() };
        let mut club = Club::new(DIM, Users::Declared(USERS), Graph::Complete, &params).unwrap();
        let rounds = if has_ids { with_ids(seed, 200, |item| item as ItemId) } else { rounds(seed, 3, 200) };
        for round in rounds {
            let (shown, expected) = (play(&round, &mut *policy), play(&round, &mut club));
            prop_assert_eq!(shown, expected);
            prop_assert_eq!(policy.clusters(), club.clusters());
            for user in 0..USERS {
                assert_close(&policy.estimate(user).unwrap(), &club.estimate(user).unwrap());
            }
        }
    }

    #[test]
    fn scores_are_those_of_a_naive_transcription(seed: u64, alpha in 0.02f64..0.4) {
        let mut policy = make("cofiba", &[BETA, NORM, ("alpha_edges", number(alpha))]);
        let mut naive = Naive::new(USERS);
        for (number, round) in with_ids(seed, 80, |item| item as ItemId * 7).iter().enumerate() {
            let user = round.user as usize;
            let expected: Vec<f64> = (0..CANDIDATES)
                .map(|index| naive.score(user, round.items.id(index).unwrap(), &round.features(index), 0.4))
                .collect();
            let mut scores = Vec::new();
            policy.explain(round.user, &round.items, &mut scores).unwrap();
            let scores: Vec<f64> = scores.iter().map(|score| score.score).collect();
            assert_close(&scores, &expected);
            let shown = play(round, &mut *policy);
            let weight = alpha * (number as f64 + 2.0).ln().sqrt();
            let before = naive.item_cluster.clone();
            naive.learn(user, round.items.id(shown).unwrap(), &round.features(shown), round.reward(shown), weight);
            // Clusters of items only get finer.
            for a in 0..before.len() {
                for b in 0..a {
                    prop_assert!(before[a] == before[b] || naive.item_cluster[a] != naive.item_cluster[b]);
                }
            }
        }
        prop_assert!(naive.user_cut.len() > 1 || alpha > 0.1, "items were never parted");
    }

    #[test]
    fn names_of_items_and_users_do_not_matter(seed: u64) {
        let given = [("alpha_edges", number(0.2))];
        let (mut one, mut other) = (make("cofiba", &given), make("cofiba", &given));
        let renamed = with_ids(seed, 150, |item| (ITEMS - item) as ItemId * 1_000);
        for (round, mut again) in with_ids(seed, 150, |item| item as ItemId).into_iter().zip(renamed) {
            again.user = USERS - 1 - again.user;
            prop_assert_eq!(play(&round, &mut *one), play(&again, &mut *other));
        }
    }

    #[test]
    fn the_same_history_gives_the_same_state(seed: u64) {
        let given = [("alpha_edges", number(0.2))];
        let (mut one, mut other) = (make("cofiba", &given), make("cofiba", &given));
        for round in with_ids(seed, 100, |item| item as ItemId) {
            let before = one.digest();
            prop_assert_eq!(play(&round, &mut *one), play(&round, &mut *other));
            prop_assert_eq!(one.digest(), other.digest());
            prop_assert_ne!(one.digest(), before);
        }
    }

    #[test]
    fn users_can_appear(seed: u64) {
        let mut policy = make_for("cofiba", DIM, Users::Appear, &[("alpha_edges", number(0.1))]);
        for round in with_ids(seed, 100, |item| item as ItemId) {
            play(&round, &mut *policy);
            prop_assert!(policy.cluster_of(round.user).is_some());
        }
    }
}

#[test]
fn it_learns() {
    let (regret, random) = regrets(&mut *make("cofiba", &[]), &rounds(1, 3, 2000));
    assert!((0.0..random).contains(&regret), "{regret} of {random}");
}

/// The policy keeps means and widths of all users; the transcription makes them anew. There are more users than fit into a
/// word of bits, and the features of an item change.
#[test]
fn choices_are_those_of_a_plain_version() {
    const MANY: u64 = 70;
    for (seed, alpha) in [(1, 0.03), (2, 0.1), (3, 0.3)] {
        let alpha_edges = ("alpha_edges", number(alpha));
        let make = || {
            make_for(
                "cofiba",
                DIM,
                Users::Declared(MANY),
                &[BETA, NORM, alpha_edges],
            )
        };
        let (mut policy, mut follower) = (make(), make());
        let mut naive = Naive::new(MANY);
        let mut parted = 0;
        for (number, mut round) in with_ids(seed, 150, |item| item as ItemId)
            .into_iter()
            .enumerate()
        {
            round.user = (round.user * 6 + number as u64 % 6) % MANY;
            let (user, ids) = (round.user as usize, round.items.ids().to_vec());
            if number % 5 == 0 {
                let scale = 1.0 + 0.1 * (number % 3) as f64;
                let rows = (0..CANDIDATES).flat_map(|index| round.features(index));
                let rows: Vec<f64> = rows.map(|x| scale * x).collect();
                round.items = ItemSet::from_rows(DIM, &rows).unwrap();
                round.items.set_ids(&ids).unwrap();
                let scores: Vec<f64> = (0..CANDIDATES)
                    .map(|index| naive.score(user, ids[index], &round.features(index), 0.4))
                    .collect();
                let shown = policy.recommend(round.user, &round.items).unwrap();
                let best = scores.iter().copied().fold(f64::MIN, f64::max);
                assert!((best - scores[shown.index]).abs() < 1e-9, "round {number}");
                assert!((best - shown.score.score).abs() < 1e-9, "round {number}");
            }
            let shown = play(&round, &mut *policy);
            play(&round, &mut *follower);
            let weight = alpha * (number as f64 + 2.0).ln().sqrt();
            let (item, reward) = (round.features(shown), round.reward(shown));
            naive.learn(user, ids[shown], &item, reward, weight);
            parted = parted.max(naive.user_cut.len());
        }
        assert_eq!(policy.digest(), follower.digest());
        assert!(parted > 1 || alpha > 0.2, "items were never parted");
    }
}
