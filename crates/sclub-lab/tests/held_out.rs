//! World `ratings`: nothing leaks, nothing is used twice, and a placebo does not work.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sclub::{Change, Decision, Error, ItemSet, Observation, Policy, Preset, Score, Value};
use sclub_lab::data::matrix::Matrix;
use sclub_lab::data::{Interactions, Options, RatingUse, Table, Vectors, read, read_table};
use sclub_lab::held_out::{
    Content, ContentMode, HeldOut, HeldOutError, MIN_INTERACTIONS, Others, Protocol, Split,
};
use sclub_lab::policies::{Entry, Name, make, setup};
use sclub_lab::run::{Player, play, play_all};
use sclub_lab::streams::{Purpose, stream};
use sclub_lab::summary::{rate_curves, summarise};
use sclub_lab::world::{AGES, BLOCK, World};

const KINDS: u64 = 6;

fn protocol() -> Protocol {
    Protocol {
        dim: 8,
        candidates: 10,
        ..Protocol::default()
    }
}

/// Users of some kinds, who take mostly what their kind likes, and popular things. The first takes
/// everything, so that items are numbered alike whatever the others take.
fn people(users: u64, items: u64, seed: u64) -> Interactions {
    people_but(users, items, seed, &|_| false)
}

/// The same users, some with very different tastes.
fn people_but(users: u64, items: u64, seed: u64, is_other: &dyn Fn(u64) -> bool) -> Interactions {
    let mut text = String::from("user,item\n");
    for user in 0..users {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed * 1_000_003 + user);
        for item in 0..items {
            let liked = item % KINDS == user % KINDS;
            let popular = item < items / 10;
            let chance = match (liked, popular) {
                _ if user == 0 => 1.0,
                _ if is_other(user) => 0.3,
                (true, _) => 0.5,
                (false, true) => 0.25,
                (false, false) => 0.03,
            };
            if rng.random::<f64>() < chance {
                writeln!(text, "u{user},i{item}").unwrap();
            }
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ratings.txt");
    std::fs::write(&path, text).unwrap();
    let read = read(&path, &Options::default(), &|_, _| ()).unwrap();
    read.interactions
}

/// Every round of a world: (user, features of each candidate, place of the one taken, age).
fn rounds(world: &dyn World) -> Vec<(u64, Vec<Vec<u64>>, usize, u8)> {
    let mut block = world.new_block();
    let length = world.length().unwrap() as usize;
    let mut all = Vec::new();
    for index in 0..length.div_ceil(BLOCK) {
        world.draw(
            index as u64,
            (length - index * BLOCK).min(BLOCK),
            &mut block,
        );
        for at in 0..block.len() {
            let items: Vec<Vec<u64>> = (0..block.candidates)
                .map(|item| block.items[at].item(item).map(f64::to_bits).collect())
                .collect();
            let hits: Vec<usize> = (0..block.candidates)
                .filter(|&item| block.reward(at, item) == 1.0)
                .collect();
            assert_eq!(hits.len(), 1, "one candidate is the one taken");
            all.push((block.users[at], items, hits[0], block.ages[at]));
        }
    }
    all
}

/// The protocol of `ratings-leaky`.
fn leaky() -> Protocol {
    Protocol {
        others_once: false,
        ..protocol()
    }
}

#[test]
fn each_choice_is_used_once_among_things_never_touched() {
    let all = people(300, 120, 1);
    let both = [Others::Uniform, Others::Popular];
    let worlds = both.map(|others| [(others, protocol()), (others, leaky())]);
    for (others, protocol) in worlds.into_iter().flatten() {
        let split = Arc::new(Split::new(&all, 3, protocol).unwrap());
        assert_eq!(split.feature_users(), 150);
        let world = HeldOut::new(Arc::clone(&split), others, 1.0);
        let rounds = rounds(&world);
        assert_eq!(rounds.len(), split.rounds());
        let mut taken: BTreeMap<u64, BTreeSet<&Vec<u64>>> = BTreeMap::new();
        let mut ages: BTreeMap<u64, u32> = BTreeMap::new();
        for (user, items, place, age) in &rounds {
            let new = taken.entry(*user).or_default().insert(&items[*place]);
            assert!(new, "an interaction came twice");
            let rounds_of_hers = ages.entry(*user).or_default();
            *rounds_of_hers += 1;
            let (first, last) = AGES[usize::from(*age)];
            assert!((first..=last).contains(rounds_of_hers));
        }
        for (user, items, place, _) in &rounds {
            let different: BTreeSet<_> = items.iter().collect();
            assert_eq!(different.len(), items.len(), "a candidate came twice");
            for (at, item) in items.iter().enumerate() {
                assert_eq!(at == *place, taken[user].contains(item));
            }
        }
        // The one taken may stand anywhere.
        let places: BTreeSet<usize> = rounds.iter().map(|round| round.2).collect();
        assert_eq!(places.len(), protocol.candidates);
        if !protocol.others_once {
            assert!(taken.values().all(|items| items.len() >= MIN_INTERACTIONS));
        }
    }
}

#[test]
fn no_other_is_offered_to_a_user_twice() {
    let all = people(300, 120, 1);
    for others in [Others::Uniform, Others::Popular] {
        let offered_again = |protocol: Protocol| -> (usize, usize) {
            let split = Arc::new(Split::new(&all, 3, protocol).unwrap());
            let world = HeldOut::new(Arc::clone(&split), others, 1.0);
            let mut seen: BTreeMap<u64, BTreeSet<Vec<u64>>> = BTreeMap::new();
            let mut again = 0;
            for (user, items, ..) in rounds(&world) {
                let seen = seen.entry(user).or_default();
                again += items
                    .into_iter()
                    .filter(|item| !seen.insert(item.clone()))
                    .count();
            }
            let items = split.items();
            // A user ends only when fewer items are left than a round needs.
            if protocol.others_once {
                let few = protocol.candidates - 1;
                assert!(seen.values().any(|seen| seen.len() + 2 * few > items));
            }
            (again, split.rounds())
        };
        let (again, fewer) = offered_again(protocol());
        assert_eq!(again, 0);
        let (again, more) = offered_again(leaky());
        assert!(again > more, "{again} times in {more} rounds");
        assert!(fewer < more);
    }
}

#[test]
fn popular_others_are_as_popular_late_as_early() {
    // With more candidates all others would be offered to most users.
    let few = Protocol {
        candidates: 4,
        ..protocol()
    };
    let split = Arc::new(Split::new(&people(400, 240, 7), 1, few).unwrap());
    let popularity = |others: Others| -> [f64; 2] {
        let world = HeldOut::new(Arc::clone(&split), others, 1.0);
        let all = rounds(&world);
        let mut taken: BTreeMap<&Vec<u64>, f64> = BTreeMap::new();
        for (_, items, place, _) in &all {
            *taken.entry(&items[*place]).or_default() += 1.0;
        }
        // The first five rounds of users, and the sixth to the twentieth.
        [0, 1].map(|class| {
            let of_class = all.iter().filter(|round| usize::from(round.3) == class);
            let others = of_class.flat_map(|(_, items, place, _)| {
                let others = items.iter().enumerate().filter(move |(at, _)| at != place);
                others.map(|(_, item)| taken.get(item).copied().unwrap_or(0.0))
            });
            let others: Vec<f64> = others.collect();
            others.iter().sum::<f64>() / others.len() as f64
        })
    };
    let [early, late] = popularity(Others::Popular);
    assert!((late / early - 1.0).abs() < 0.05, "{early} {late}");
    let [uniform, _] = popularity(Others::Uniform);
    assert!(early > 1.05 * uniform, "{early} {uniform}");
}

/// LinUCB for each user, which remembers the items that failed for the user and avoids them, or does not.
struct Memory {
    inner: Box<dyn Policy>,
    remembers: bool,
    failed: BTreeSet<(u64, u64)>,
}

impl Policy for Memory {
    fn dim(&self) -> usize {
        self.inner.dim()
    }

    fn rounds(&self) -> u64 {
        self.inner.rounds()
    }

    fn recommend(&self, user: u64, items: &ItemSet) -> Result<Decision, Error> {
        let failed = |item: usize| self.failed.contains(&(user, items.id(item).unwrap()));
        let mut best = Vec::new();
        self.inner.best(user, items, 1, &failed, &mut best)?;
        match best.first() {
            Some(&decision) => Ok(decision),
            None => self.inner.recommend(user, items),
        }
    }

    fn explain(&self, user: u64, items: &ItemSet, scores: &mut Vec<Score>) -> Result<(), Error> {
        self.inner.explain(user, items, scores)
    }

    fn learn_round(
        &mut self,
        round: &[Observation<'_>],
        changes: &mut Vec<Change>,
    ) -> Result<(), Error> {
        for observation in round {
            if self.remembers && observation.reward == 0.0 {
                let failed = (observation.user, observation.id.unwrap());
                self.failed.insert(failed);
            }
        }
        self.inner.learn_round(round, changes)
    }

    fn digest(&self) -> u64 {
        self.inner.digest()
    }
}

#[test]
fn a_memory_of_items_gains_in_the_leaky_world_alone() {
    let all = people(400, 240, 7);
    let rates = |protocol: Protocol| -> [f64; 2] {
        let split = Arc::new(Split::new(&all, 1, protocol).unwrap());
        let world = HeldOut::new(split, Others::Uniform, 2.0);
        let players = [false, true].map(|remembers| {
            let inner = make(&entry(Name::LINUCB_IND), &world, 1, 100)
                .unwrap()
                .unwrap();
            let memory = Memory {
                inner,
                remembers,
                failed: BTreeSet::new(),
            };
            Player::new(remembers, Preset::Tuned, Box::new(memory))
        });
        let runs = play_all(&world, 1, players.into(), u64::MAX, &());
        let runs = runs.unwrap().unwrap();
        [0, 1].map(|at| runs[at].reward / runs[at].served as f64)
    };
    let [without, with] = rates(protocol());
    assert_eq!(with, without);
    let [without, with] = rates(leaky());
    assert!(with > 1.1 * without, "{with} {without}");
}

#[test]
fn an_item_has_the_same_id_in_every_round() {
    let split = Split::new(&people(300, 120, 1), 3, protocol()).unwrap();
    let items = split.items();
    let world = HeldOut::new(Arc::new(split), Others::Uniform, 1.0);
    let mut block = world.new_block();
    let mut known: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for index in 0..world.length().unwrap() / BLOCK as u64 {
        world.draw(index, BLOCK, &mut block);
        for set in &block.items[..block.len()] {
            for item in 0..set.len() {
                let features: Vec<u64> = set.item(item).map(f64::to_bits).collect();
                let id = set.id(item).unwrap();
                let first = known.entry(id).or_insert_with(|| features.clone());
                assert_eq!(*first, features);
            }
        }
    }
    assert_eq!(known.len(), items);
}

#[test]
fn features_come_from_the_other_half_alone() {
    let mut order: Vec<usize> = (0..300).collect();
    order.shuffle(&mut stream(3, Purpose::Halves, 0));
    let served: BTreeSet<usize> = order[150..].iter().copied().collect();
    let vectors = |all: &Interactions| -> BTreeSet<Vec<u64>> {
        let split = Arc::new(Split::new(all, 3, protocol()).unwrap());
        let world = HeldOut::new(Arc::clone(&split), Others::Uniform, 1.0);
        let shown: BTreeSet<Vec<u64>> = rounds(&world).into_iter().flat_map(|r| r.1).collect();
        assert_eq!(shown.len(), split.items(), "every item is shown some time");
        shown
    };
    let features = vectors(&people(300, 120, 1));
    let all_served_changed = people_but(300, 120, 1, &|user| served.contains(&(user as usize)));
    assert_eq!(vectors(&all_served_changed), features);
    // One feature user less of the same taste is another matter.
    let one = *order[..150].iter().find(|&&user| user > 0).unwrap() as u64;
    let one_changed = people_but(300, 120, 1, &|user| user == one);
    assert_ne!(vectors(&one_changed), features);
}

/// Users who rate items by a rule, from 1 to 5; with ratings as values or without.
fn raters(ratings: RatingUse, rating: &dyn Fn(u64, u64) -> u64) -> Interactions {
    let mut text = String::from("user,item,rating\n");
    for user in 0..200 {
        for item in 0..100 {
            if (user * 37 + item * 101 + 7) * (user * 53 + item * 29 + 3) % 97 % 4 == 0 {
                writeln!(text, "{user},{item},{}", rating(user, item)).unwrap();
            }
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ratings.csv");
    std::fs::write(&path, text).unwrap();
    let options = Options {
        ratings,
        ..Options::default()
    };
    read(&path, &options, &|_, _| ()).unwrap().interactions
}

#[test]
fn values_are_rewards_and_ratings_that_are_all_equal_change_nothing() {
    let world = |all: &Interactions| {
        let split = Split::new(all, 1, protocol()).unwrap();
        HeldOut::new(Arc::new(split), Others::Uniform, 1.0)
    };
    let plain = world(&raters(RatingUse::Ignored, &|_, _| 5));
    let equal = world(&raters(RatingUse::Values, &|_, _| 5));
    assert_eq!(rounds(&plain), rounds(&equal));

    // The rating is known from the item alone, so it can be recomputed from the item's id: items are numbered in the
    // order of the file, and all of them are kept.
    let all = raters(RatingUse::Values, &|_, item| 1 + item % 5);
    let rated = world(&all);
    let mut block = rated.new_block();
    let count = (rated.length().unwrap() as usize).min(BLOCK);
    rated.draw(0, count, &mut block);
    let mut seen = BTreeSet::new();
    for at in 0..count {
        let best: Vec<usize> = (0..block.candidates)
            .filter(|&item| block.mean(at, item) > 0.0)
            .collect();
        let &[taken] = &best[..] else {
            panic!("one item was taken")
        };
        let number = block.items[at].ids()[taken] as usize;
        let name: u64 = all.item_name(number).to_string().parse().unwrap();
        let value = (1 + name % 5) as f64 / 5.0;
        seen.insert(name % 5);
        assert_eq!(block.mean(at, taken), value);
        assert_eq!(block.reward(at, taken), value);
        assert_eq!(block.best[at], value);
        let other = (taken + 1) % block.candidates;
        assert_eq!(block.reward(at, other), 0.0);
    }
    assert_eq!(seen.len(), 5);
}

fn entry(name: Name) -> Entry {
    let given = [("beta_scale", Value::Number(0.05))];
    let given = if name.constants.is_empty() {
        &[][..]
    } else {
        &given
    };
    Entry::new(name, Preset::Tuned, given, &setup(8, 1)).unwrap()
}

fn rates(world: &HeldOut) -> [f64; 3] {
    let entries = [Name::RANDOM, Name::LINUCB_ONE, Name::LINUCB_IND].map(entry);
    let runs = play(world, 1, &entries, u64::MAX, &()).unwrap().unwrap();
    [0, 1, 2].map(|at| {
        let run = &runs[at];
        assert_eq!(run.served, world.length().unwrap());
        let by_age: f64 = run.by_age.iter().map(|&(_, reward)| reward).sum();
        assert!((by_age - run.reward).abs() < 1e-6);
        run.reward / run.served as f64
    })
}

#[test]
fn a_placebo_is_worse_than_no_treatment() {
    let all = people(400, 240, 7);
    let split = Arc::new(Split::new(&all, 1, protocol()).unwrap());
    let world = HeldOut::new(Arc::clone(&split), Others::Uniform, 2.0);
    let [random, one, ind] = rates(&world);
    assert!((random - 0.1).abs() < 0.01, "random {random}");
    assert!(one > 1.5 * random, "one {one}");
    assert!(ind > 1.1 * one, "there is something to learn: {ind} {one}");
    let [_, same, placebo] = rates(&world.with_users_shuffled());
    assert_eq!(same, one, "who does not look at users is not fooled");
    assert!(placebo < one, "placebo {placebo}, LinUCB-One {one}");
    // Where popularity gives nothing away, one taste for all is worth next to nothing.
    // (The items are so few that others can be popular only if they are offered again.)
    let split = Arc::new(Split::new(&all, 1, leaky()).unwrap());
    let popular = HeldOut::new(split, Others::Popular, 2.0);
    let [_, one_popular, ind_popular] = rates(&popular);
    assert!(one_popular < 0.7 * one, "{one_popular} {one}");
    assert!(ind_popular > 1.3 * one_popular);
}

#[test]
fn too_little_data_is_an_error_that_says_so() {
    let few = people(12, 40, 1);
    let error = Split::new(&few, 1, protocol()).unwrap_err();
    assert!(matches!(error, HeldOutError::Features(_)), "{error}");
    let error = Split::new(
        &people(300, 120, 1),
        1,
        Protocol {
            candidates: 120,
            ..protocol()
        },
    )
    .unwrap_err();
    assert!(
        error.to_string().contains("no user can be served"),
        "{error}"
    );
    let capped = Split::new(
        &people(300, 120, 1),
        1,
        Protocol {
            max_rounds: 100,
            ..protocol()
        },
    )
    .unwrap();
    assert!((50..=100).contains(&capped.rounds()), "{}", capped.rounds());
}

#[test]
fn splits_of_different_lengths_are_put_together_by_their_rates() {
    let all = people(400, 240, 7);
    let mut runs = Vec::new();
    for seed in [1, 2, 3] {
        let split = Arc::new(Split::new(&all, seed, protocol()).unwrap());
        let world = HeldOut::new(split, Others::Uniform, 1.0);
        // The last is cut short: it has other points than the first two.
        let most = if seed == 3 { 333 } else { u64::MAX };
        let entries = [Name::RANDOM, Name::LINUCB_ONE].map(entry);
        runs.extend(play(&world, seed, &entries, most, &()).unwrap().unwrap());
    }
    for (policy, curve) in rate_curves(&runs) {
        let of = || runs.iter().filter(|run| run.policy == policy);
        assert!(curve.len() > 30);
        for (_, rate) in &curve {
            assert!((0.0..=1.0).contains(&rate.mean));
        }
        let tenth = of().map(|run| 1.0 - run.even_curve[10].1 / run.even_curve[10].0 as f64);
        let expected = tenth.sum::<f64>() / 3.0;
        assert!((curve[9].1.mean - expected).abs() < 1e-12);
        if policy == Name::RANDOM {
            let last = curve.last().unwrap().1;
            assert!((last.mean - 0.1).abs() < 0.03, "{last:?}");
        }
    }
    // No point is missing, and none is out of reach.
    assert_eq!(
        summarise(&runs)[0].curve.len(),
        rate_curves(&runs)[0].1.len() + 1
    );
}

/// The vectors of a made-up catalogue, which tells the kind of each item.
fn kinds(all: &Interactions) -> Vectors {
    let ids: Vec<String> = (0..all.items())
        .map(|item| all.item_name(item).to_string())
        .collect();
    let mut vectors = Matrix::zeros(ids.len(), 5);
    for (at, id) in ids.iter().enumerate() {
        let number: usize = id.parse().unwrap();
        vectors.row_mut(at)[number % 4] = 0.5;
        vectors.row_mut(at)[4] = 0.5;
    }
    Vectors {
        ids,
        vectors,
        others: Vec::new(),
    }
}

/// Users of four tastes, who take items of one kind: item n is of kind n modulo 4.
fn tastes() -> Interactions {
    let mut rows = Vec::new();
    for user in 0..300_u32 {
        let own = (0..240_u32).filter(|item| item % 4 == user % 4);
        rows.extend(
            own.filter(|item| (item * 7 + user * 11) % 5 < 2)
                .map(|item| (user, item)),
        );
    }
    let names = |count: u32| -> Vec<String> { (0..count).map(|name| name.to_string()).collect() };
    let (users, items) = (names(300), names(240));
    let table = Table {
        name: "tastes",
        users: &users,
        items: &items,
        rows: &rows,
        ratings: &[],
    };
    read_table(&table, &Options::default())
        .unwrap()
        .interactions
}

fn rate(split: &Arc<Split>) -> f64 {
    let world = HeldOut::new(Arc::clone(split), Others::Uniform, 1.0);
    rates(&world)[2]
}

/// Nothing is known about cold items but their content.
#[test]
fn cold_items_are_recommended_by_their_content_and_not_by_who_took_them() {
    let all = tastes();
    let cold = Protocol {
        dim: 5,
        candidates: 8,
        cold_items: 0.4,
        ..Protocol::default()
    };
    let given = kinds(&all);
    let with = |mode| {
        let content = Content::new(&given, &all, mode);
        assert_eq!(content.missing, 0);
        Arc::new(Split::with_content(&all, 1, cold, Some(&content)).unwrap())
    };
    let svd = Arc::new(Split::new(&all, 1, cold).unwrap());
    assert!((60..140).contains(&svd.items()), "{}", svd.items());
    let chance = 1.0 / 8.0;
    assert!((rate(&svd) - chance).abs() < 0.02, "{}", rate(&svd));
    let (alone, both) = (
        rate(&with(ContentMode::Alone)),
        rate(&with(ContentMode::Both)),
    );
    assert!(
        alone > 2.0 * chance && both > 2.0 * chance,
        "{alone} {both}"
    );
    // Warm items have the vectors of who took them, whatever the content.
    let warm = Protocol {
        cold_items: 0.0,
        ..cold
    };
    let content = Content::new(&given, &all, ContentMode::Both);
    let both = Arc::new(Split::with_content(&all, 1, warm, Some(&content)).unwrap());
    let svd = Arc::new(Split::new(&all, 1, warm).unwrap());
    assert!((rate(&both) - rate(&svd)).abs() < 1e-9);
}

#[test]
fn shares_of_cold_items_are_validated() {
    for cold_items in [-0.1, 1.1, f64::NAN] {
        let bad = Protocol {
            cold_items,
            ..protocol()
        };
        let error = Split::new(&people(300, 120, 1), 3, bad)
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("cold-items is"), "{error}");
    }
}
