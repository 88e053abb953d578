use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use sclub::{Change, Decision, Error, List, Observation, Policy, Preset, Score};

use super::*;
use crate::policies::{self, Entry, Name};
use crate::run::{Experiment, Player, Run, play_all};
use crate::setting::Setting;

fn small() -> Shop {
    Shop {
        items: 70,
        users: 40,
        tastes: 3,
        ..Shop::default()
    }
}

fn block(shop: Shop, seed: u64, index: u64) -> (Catalogue, Block) {
    let world = Catalogue::new(shop, seed).unwrap();
    let mut block = world.new_block();
    world.draw(index, BLOCK, &mut block);
    (world, block)
}

#[test]
fn means_and_best_are_those_of_a_direct_computation() {
    for kind in [LinkKind::Logistic, LinkKind::Linear] {
        let shop = Shop {
            slots: 4,
            link: Link::default_of(kind),
            ..small()
        };
        let (world, block) = block(shop, 5, 2);
        assert_eq!(block.len(), BLOCK);
        for at in 0..block.len() {
            let weights = world.stock().weights(block.users[at]);
            let items = block.items_of(at);
            let mut means: Vec<f64> = (0..items.len())
                .map(|item| {
                    let z: f64 = items.item(item).zip(weights).map(|(x, w)| x * w).sum();
                    match kind {
                        LinkKind::Logistic => 1.0 / (1.0 + (3.2 - z).exp()),
                        LinkKind::Linear => (0.08 * z + 0.3).clamp(0.0, 1.0),
                    }
                })
                .collect();
            for (item, mean) in means.iter().enumerate() {
                assert!((block.mean(at, item) - mean).abs() < 1e-12);
                assert!((0.0..=1.0).contains(mean));
            }
            let average = means.iter().sum::<f64>() / means.len() as f64;
            assert!((block.average[at] - average).abs() < 1e-12);
            means.sort_by(|a, b| b.total_cmp(a));
            for (slot, mean) in means[..4].iter().enumerate() {
                assert!((block.best[4 * at + slot] - mean).abs() < 1e-12);
                let draw = block.noise[4 * at + slot];
                let reward = f64::from(u8::from(draw < block.mean(at, 7)));
                assert_eq!(block.reward_in_slot(at, slot, 7), reward);
            }
        }
    }
}

#[test]
fn the_average_visit_is_the_sum_over_all_users() {
    let shop = Shop {
        visits: Visits::Zipf,
        users: 200,
        ..small()
    };
    let (world, _) = block(shop, 3, 0);
    let shares = visit_shares(&shop, 3);
    assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    let most = shares.iter().copied().fold(0.0, f64::max);
    let least = shares.iter().copied().fold(1.0, f64::min);
    assert!((most / least - 200.0).abs() < 1e-9);
    for item in 0..shop.items {
        let direct: f64 = (0..200)
            .map(|user| shares[user] * world.stock().mean(user as UserId, item))
            .sum();
        assert!((world.stock().average_user()[item] - direct).abs() < 1e-12);
    }
}

#[test]
fn items_have_one_category_one_price_and_numbers() {
    let (world, _) = block(small(), 1, 0);
    let items = world.stock().items();
    let mut kinds = BTreeSet::new();
    for item in 0..items.len() {
        assert_eq!(items.id(item), Some(item as ItemId));
        let features: Vec<f64> = items.item(item).collect();
        for range in [0..6, 6..9] {
            let ones = range.clone().filter(|&k| features[k] == 1.0);
            let zeros = range.clone().filter(|&k| features[k] == 0.0);
            assert_eq!((ones.clone().count(), zeros.count()), (1, range.len() - 1));
            kinds.extend(ones);
        }
        assert_eq!(features.len(), 16);
    }
    assert_eq!(kinds.len(), 9);
}

#[test]
fn any_block_can_be_drawn_at_any_time_and_newcomers_come_in_order() {
    let shop = Shop {
        newcomers_every: Some(20.0),
        visits: Visits::Zipf,
        ..small()
    };
    let world = Catalogue::new(shop, 9).unwrap();
    let (mut first, mut second) = (world.new_block(), world.new_block());
    world.draw(2, BLOCK, &mut first);
    world.draw(0, BLOCK, &mut second);
    let largest = second.users.iter().enumerate();
    assert!(
        largest
            .clone()
            .all(|(round, &user)| user <= round as u64 / 20)
    );
    let again = block(shop, 9, 2).1;
    assert_eq!(first.users, again.users);
    assert_eq!(first.noise, again.noise);
}

/// A learned round: the number of decisions before it, the user, and (id, reward) of each item.
type Round = (u64, u64, Vec<(u64, f64)>);
type Learned = Arc<Mutex<Vec<Round>>>;

/// Shows the items that come next, and records what it learns.
struct Recorder {
    next: Mutex<u64>,
    learned: Learned,
    rounds: u64,
}

impl Policy for Recorder {
    fn dim(&self) -> usize {
        16
    }

    fn rounds(&self) -> u64 {
        self.rounds
    }

    fn explain(&self, _: UserId, items: &ItemSet, scores: &mut Vec<Score>) -> Result<(), Error> {
        let mut next = self.next.lock().unwrap();
        let place = *next as usize % items.len();
        *next += 1;
        scores.clear();
        let score = |item| Score::certain(-(((item + items.len() - place) % items.len()) as f64));
        scores.extend((0..items.len()).map(score));
        Ok(())
    }

    fn learn_round(&mut self, round: &[Observation<'_>], _: &mut Vec<Change>) -> Result<(), Error> {
        self.rounds += 1;
        let rewards = round.iter().map(|one| (one.id.unwrap(), one.reward));
        let decisions = *self.next.lock().unwrap();
        let mut learned = self.learned.lock().unwrap();
        learned.push((decisions, round[0].user, rewards.collect()));
        Ok(())
    }

    fn learn_lists(&mut self, round: &[List<'_>], changes: &mut Vec<Change>) -> Result<(), Error> {
        assert_eq!(round.len(), 1);
        let all: Vec<_> = round[0].observations().collect();
        assert_eq!(all.len(), round[0].items.len());
        self.learn_round(&all, changes)
    }

    fn digest(&self) -> u64 {
        self.rounds
    }
}

fn record(shop: Shop, rounds: u64) -> (Run<&'static str>, Vec<Round>) {
    let world = Catalogue::new(shop, 4).unwrap();
    let learned = Learned::default();
    let recorder = Recorder {
        next: Mutex::new(0),
        learned: Arc::clone(&learned),
        rounds: 0,
    };
    let player = Player::new("recorder", Preset::Default, Box::new(recorder));
    let mut runs = play_all(&world, 4, vec![player], rounds, &())
        .unwrap()
        .unwrap();
    let learned = learned.lock().unwrap().clone();
    (runs.remove(0), learned)
}

#[test]
fn rewards_are_learned_so_many_rounds_later_in_order() {
    for (delay, slots) in [(0, 1), (0, 3), (1, 1), (300, 1), (300, 3), (900, 1)] {
        let shop = Shop {
            delay,
            slots,
            ..small()
        };
        let (run, learned) = record(shop, 700);
        assert_eq!(run.rounds, 700);
        assert_eq!(run.served, 700 * slots as u64);
        // The rewards of the last rounds have not come.
        assert_eq!(learned.len() as u64, 700u64.saturating_sub(delay));
        let world = Catalogue::new(shop, 4).unwrap();
        let mut drawn = world.new_block();
        for (round, (decisions, user, rewards)) in learned.iter().enumerate() {
            assert_eq!(*decisions, round as u64 + delay + 1);
            world.draw((round / BLOCK) as u64, BLOCK, &mut drawn);
            let at = round % BLOCK;
            assert_eq!(*user, drawn.users[at]);
            let shown = (0..slots).map(|slot| {
                let item = (round + slot) % shop.items;
                (item as u64, drawn.reward_in_slot(at, slot, item))
            });
            assert_eq!(*rewards, shown.collect::<Vec<_>>());
        }
    }
}

#[test]
fn stages_and_ages_add_up_to_the_run() {
    let shop = Shop {
        slots: 2,
        ..small()
    };
    let (run, learned) = record(shop, 13_000);
    let ends: Vec<(u64, u64)> = run.stages.iter().map(|s| (s.from, s.to)).collect();
    assert_eq!(
        ends,
        [(0, 2000), (2000, 5000), (5000, 12_000), (12_000, 13_000)]
    );
    let shown: u64 = run.stages.iter().map(|stage| stage.shown).sum();
    let clicks: f64 = run.stages.iter().map(|stage| stage.clicks).sum();
    assert_eq!((shown, clicks), (run.served, run.reward));
    for stage in &run.stages {
        assert_eq!(stage.shown, 2 * (stage.to - stage.from));
        let rounds = &learned[stage.from as usize..stage.to as usize];
        let direct: f64 = rounds
            .iter()
            .flat_map(|r| &r.2)
            .map(|&(_, reward)| reward)
            .sum();
        assert_eq!(stage.clicks, direct);
        assert!((stage.clicks - stage.expected_clicks).abs() < 5.0 * stage.clicks.sqrt());
    }
    assert_eq!(run.distinct_items, Some(70));
    // The first five rounds of each of 40 users.
    assert_eq!(run.by_age[0].0, 2 * 5 * 40);
    let by_age: (u64, f64) = run
        .by_age
        .iter()
        .fold((0, 0.0), |(n, sum), &(rounds, reward)| {
            (n + rounds, sum + reward)
        });
    assert_eq!(by_age, (run.served, run.reward));
    // All means of the best items, less those shown.
    let best: f64 = run.regret + run.stages.iter().map(|s| s.expected_clicks).sum::<f64>();
    let world = Catalogue::new(shop, 4).unwrap();
    let users = learned.iter().map(|(_, user, _)| user);
    let direct: f64 = users
        .map(|&user| world.stock().best(user).top.iter().sum::<f64>())
        .sum();
    assert!((best - direct).abs() < 1e-6);
}

#[test]
fn later_stages_double() {
    let (run, _) = record(small(), 100_000);
    let ends: Vec<u64> = run.stages.iter().map(|stage| stage.to).collect();
    assert_eq!(ends, [2000, 5000, 12_000, 25_000, 40_000, 80_000, 100_000]);
}

fn experiment(shop: Shop, policies: &[Name], threads: usize) -> Experiment {
    Experiment {
        world: Setting::Catalogue(shop),
        policies: policies.to_vec(),
        rounds: 1500,
        seeds: vec![1, 2],
        preset: Preset::Tuned,
        given: Vec::new(),
        threads,
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let policies = [
        Name::SCLUB_SOFT,
        Name::LINUCB_ONE,
        Name::INFORMED,
        Name::BEST_ITEM,
        Name::RANDOM,
    ];
    let shop = Shop {
        slots: 2,
        delay: 50,
        users: 300,
        ..small()
    };
    let bits = |threads| -> Vec<(Name, u64, [u64; 3], Vec<u64>)> {
        let runs = experiment(shop, &policies, threads).run(&()).unwrap();
        assert_eq!(runs.len(), 2 * policies.len());
        let bits = runs.iter().map(|run| {
            let sums = [run.regret, run.reward, run.random_regret].map(f64::to_bits);
            let stages = run.stages.iter().map(|s| s.expected_clicks.to_bits());
            (run.policy, run.digest, sums, stages.collect())
        });
        bits.collect()
    };
    assert_eq!(bits(1), bits(2));
}

#[test]
fn informed_beats_the_best_item_which_beats_random() {
    let policies = [Name::INFORMED, Name::BEST_ITEM, Name::RANDOM];
    for (slots, delay, kind) in [
        (1, 0, LinkKind::Logistic),
        (1, 0, LinkKind::Linear),
        (3, 100, LinkKind::Logistic),
    ] {
        let shop = Shop {
            slots,
            delay,
            link: Link::default_of(kind),
            ..small()
        };
        let runs = experiment(shop, &policies, 2).run(&()).unwrap();
        for runs in runs.chunks_exact(3) {
            let rate = |run: &Run| {
                let expected: f64 = run.stages.iter().map(|s| s.expected_clicks).sum();
                expected / run.served as f64
            };
            let [informed, best, random] = [0, 1, 2].map(|at| rate(&runs[at]));
            assert!(informed > best, "{informed} {best}");
            assert!(best > 1.2 * random, "{best} {random}");
            let expected = (runs[2].regret / runs[2].random_regret - 1.0).abs();
            assert!(expected < 0.05, "random is random: {expected}");
            assert_eq!(runs[1].distinct_items, Some(slots as u64));
            assert_eq!(runs[2].distinct_items, Some(70));
        }
    }
}

/// The posterior over tastes, computed from the rewards alone.
#[test]
fn informed_knows_the_link() {
    let world = Catalogue::new(small(), 6).unwrap();
    let setup = policies::setup(16, 40);
    let entry = Entry::new(Name::INFORMED, Preset::Tuned, &[], &setup).unwrap();
    let mut informed = policies::make(&entry, &world, 6, 100).unwrap().unwrap();
    let truth = world.truth().unwrap();
    let items = world.stock().items();
    let mut belief = [0.0; 3];
    for (user, &cluster) in truth.cluster_of.iter().enumerate() {
        assert_eq!(cluster as usize, user % 3);
        belief[cluster as usize] += 1.0;
    }
    for (item, reward) in [(3, 1.0), (9, 0.0), (41, 1.0), (3, 0.0)] {
        let features: Vec<f64> = items.item(item).collect();
        informed.learn(5, &features, reward).unwrap();
        for (belief, weights) in belief.iter_mut().zip(&truth.weights) {
            let z: f64 = features.iter().zip(weights).map(|(x, w)| x * w).sum();
            let p = 1.0 / (1.0 + (3.2 - z).exp());
            *belief *= if reward == 1.0 { p } else { 1.0 - p };
        }
    }
    let whole: f64 = belief.iter().sum();
    let mut scores = Vec::new();
    informed.explain(5, items, &mut scores).unwrap();
    // The same items elsewhere are looked at one by one.
    let mut elsewhere = Vec::new();
    informed.explain(5, &items.clone(), &mut elsewhere).unwrap();
    for item in 0..items.len() {
        let mean = truth.weights.iter().zip(belief).map(|(weights, belief)| {
            let z: f64 = items.item(item).zip(weights).map(|(x, w)| x * w).sum();
            belief / whole / (1.0 + (3.2 - z).exp())
        });
        let mean: f64 = mean.sum();
        assert!((scores[item].mean - mean).abs() < 1e-9);
        assert!((elsewhere[item].mean - mean).abs() < 1e-9);
    }
    let mut best: Vec<Decision> = Vec::new();
    informed.best(5, items, 1, &|_| false, &mut best).unwrap();
    assert_eq!(best[0].index, informed.recommend(5, items).unwrap().index);
}

#[test]
fn numbers_out_of_range_are_named() {
    for (shop, message) in [
        (
            Shop {
                items: 0,
                ..small()
            },
            "items is 0; it must be between 1 and 1000000",
        ),
        (
            Shop {
                slots: 71,
                ..small()
            },
            "slots is 71; it must be between 1 and the number of items, 70",
        ),
        (
            Shop {
                tastes: 41,
                ..small()
            },
            "tastes is 41; it must be between 1 and the number of users, 40",
        ),
        (
            Shop {
                numbers: 600,
                ..small()
            },
            "categories + price-bands + numbers is 609",
        ),
        (
            Shop {
                deviation: f64::NAN,
                ..small()
            },
            "deviation is NaN",
        ),
        (
            Shop {
                newcomers_every: Some(0.0),
                ..small()
            },
            "newcomers-every is 0",
        ),
    ] {
        let error = Catalogue::new(shop, 1).unwrap_err().to_string();
        assert!(error.starts_with(message), "{error}");
    }
}
