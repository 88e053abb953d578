//! A newcomer's shop: 3,000 items, lists of five, and an application that knows clicks only.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sclub_server::engine::Feedback;
use sclub_server::env::Env;
use sclub_server::event::Item;
use sclub_server::settings::{Settings, Span};

use crate::bench::{Bench, of};

const ITEMS: usize = 3000;
const USERS: usize = 2000;
const ROUNDS: usize = 4000;
const SLOTS: usize = 5;
const DIM: usize = 8;

/// The rewards that the application sends.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Sent {
    Clicks,
    ClicksWithOthers,
}

/// Numbers of (−1, 1), of length 1 together.
fn direction(random: &mut Xoshiro256PlusPlus) -> Vec<f64> {
    let row: Vec<f64> = (0..DIM).map(|_| random.random_range(-1.0..1.0)).collect();
    let length = row.iter().map(|x| x * x).sum::<f64>().sqrt();
    row.iter().map(|x| x / length).collect()
}

/// The probability of a click.
fn chance_of(taste: &[f64], item: &[f64]) -> f64 {
    let liking: f64 = taste.iter().zip(item).map(|(a, b)| a * b).sum();
    (0.11 + liking).clamp(0.0, 1.0)
}

/// Plays the shop. Returns the click rate of the last quarter, and that of random items.
fn play(settings: &Settings, sent: Sent, seed: u64) -> (f64, f64) {
    let random = &mut Xoshiro256PlusPlus::seed_from_u64(seed);
    let bench = Bench::with(Env::real(), settings);
    let items: Vec<Vec<f64>> = (0..ITEMS).map(|_| direction(random)).collect();
    let put = items.iter().enumerate().map(|(number, features)| Item {
        id: number.to_string(),
        features: features.clone(),
    });
    let put = bench.engine.upsert(put.collect());
    assert_eq!(bench.runtime.block_on(put), Ok(ITEMS));
    // Most of a taste is common to all users.
    let common = direction(random);
    let tastes: Vec<Vec<f64>> = (0..USERS)
        .map(|_| {
            let own = direction(random);
            common
                .iter()
                .zip(own)
                .map(|(a, b)| 0.2 * a + 0.1 * b)
                .collect()
        })
        .collect();
    let (mut clicks, mut by_chance) = (0.0, 0.0);
    for round in 0..ROUNDS {
        if settings.unanswered.is_some() && round % 250 == 249 {
            // Time passes, until what was not clicked has its reward.
            while bench.engine.state().rewards().0 < (round * SLOTS) as u64 {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        }
        // Fits are in time, however busy the machine is.
        if round % 25 == 24 {
            bench.settle();
        }
        let user = random.random_range(0..USERS);
        let shown = bench.recommend(&format!("user-{user}"), SLOTS).unwrap();
        assert_eq!(shown.items.len(), SLOTS);
        let mut batch = Vec::new();
        for (id, _) in &shown.items {
            let item: usize = id.parse().unwrap();
            let chance = chance_of(&tastes[user], &items[item]);
            if round >= ROUNDS * 3 / 4 {
                clicks += chance;
                by_chance += chance_of(&tastes[user], &items[random.random_range(0..ITEMS)]);
            }
            if random.random_range(0.0..1.0) < chance {
                batch.push(Feedback::of_item(&shown.decision, Some(id), 1.0));
            }
        }
        if sent == Sent::ClicksWithOthers {
            match batch.first_mut() {
                Some(first) => *first = first.with_others(0.0),
                None => batch.push(Feedback::of_list(&shown.decision, &[]).with_others(0.0)),
            }
        }
        if !batch.is_empty() {
            let learned = bench.runtime.block_on(bench.engine.feedback_batch(&batch));
            assert_eq!(learned, Ok(vec![true; batch.len()]));
        }
    }
    if sent == Sent::Clicks && settings.unanswered.is_none() {
        assert!(bench.engine.reward_warning().is_some());
    } else {
        assert_eq!(bench.engine.reward_warning(), None);
    }
    let shown = (ROUNDS / 4 * SLOTS) as f64;
    (clicks / shown, by_chance / shown)
}

#[test]
fn clicks_are_enough_if_the_others_count_as_zero() {
    let policy = of(sclub_server::identity::DEFAULT);
    let (others, random) = play(&policy, Sent::ClicksWithOthers, 5);
    println!("others: {others:.3}, random: {random:.3}");
    assert!(others > 2.0 * random, "{others} against {random}");
    // Rewards that are assumed come a second late.
    let unanswered = &Settings {
        unanswered: Some(0.0),
        after: Span::seconds(1),
        ..policy.clone()
    };
    // How late depends on the machine, so a single play can be an unlucky one.
    let plays: Vec<(f64, f64)> = std::thread::scope(|scope| {
        let play = |seed| scope.spawn(move || play(unanswered, Sent::Clicks, seed));
        let plays = [5, 6, 7].map(play);
        plays.map(|play| play.join().unwrap()).to_vec()
    });
    let mean = |of: fn(&(f64, f64)) -> f64| plays.iter().map(of).sum::<f64>() / 3.0;
    let (assumed, random) = (mean(|play| play.0), mean(|play| play.1));
    println!("unanswered: {assumed:.3} {plays:.3?}, random: {random:.3}");
    assert!(assumed > 2.0 * random, "{assumed} against {random}");
    // Without either there is nothing to learn, and the server warns.
    let (clicks, random) = play(&policy, Sent::Clicks, 5);
    println!("clicks only: {clicks:.3}, random: {random:.3}");
}
