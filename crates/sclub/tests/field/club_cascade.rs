//! CLUB-cascade against CLUB, pooled LinUCB, and sums that are solved directly.

use proptest::prelude::*;
use sclub::{Change, List, Observation, Policy, Shown, Users, Value, Why, radius};

use crate::common::*;

const COMPLETE: (&str, Value) = ("graph", Value::Choice("complete"));

/// The rows of a round as a list, with rewards.
fn shown<'a>(items: &'a [Vec<f64>], rewards: &[Option<f64>]) -> Vec<Shown<'a>> {
    let both = items.iter().zip(rewards);
    both.map(|(item, &reward)| Shown {
        item,
        id: None,
        reward,
    })
    .collect()
}

fn learn_list(
    policy: &mut dyn Policy,
    user: u64,
    items: &[Shown<'_>],
    looked_at: Option<usize>,
) -> Vec<Change> {
    let mut changes = Vec::new();
    policy
        .learn_lists(
            &[List {
                user,
                items,
                looked_at,
            }],
            &mut changes,
        )
        .unwrap();
    changes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..Default::default() })]

    #[test]
    fn with_lists_of_one_item_it_is_club(seed: u64, clusters in 1u64..4, is_declared: bool, squared: bool) {
        let users = if is_declared { Users::Declared(USERS) } else { Users::Appear };
        let index = ("index", Value::Choice(if squared { "squared" } else { "norm" }));
        let mut one = make_for("club-cascade", DIM, users, &[index]);
        let mut club = make_for("club", DIM, users, &[index]);
        for round in rounds(seed, clusters, 300) {
            let expected = round.play(&mut *club);
            let mut list = Vec::new();
            one.recommend_list(round.user, &round.items, 1, &|_| false, &mut list).unwrap();
            prop_assert_eq!(list[0], expected);
            let items = [round.features(expected.index)];
            let rewards = [Some(round.reward(expected.index))];
            learn_list(&mut *one, round.user, &shown(&items, &rewards), Some(1));
            prop_assert_eq!(one.cluster_of(round.user), club.cluster_of(round.user));
            prop_assert_eq!(one.estimate(round.user), club.estimate(round.user));
        }
    }

    /// Lists of four items, of which the user looks at those up to the first click. The same items one by one in CLUB, or
    /// in pooled LinUCB if no edge is ever cut, give the same scores.
    #[test]
    fn it_learns_what_the_user_looked_at(seed: u64, is_pooled: bool, is_told: bool) {
        let alpha = ("alpha_theta", number(if is_pooled { 1e9 } else { 2.5 }));
        let mut one = make("club-cascade", &[alpha, COMPLETE]);
        let mut other = if is_pooled { make("linucb-one", &[]) } else { make("club", &[alpha, COMPLETE]) };
        let mut swapped = make("club-cascade", &[alpha, COMPLETE]);
        for (at, round) in rounds(seed, 3, 150).iter().enumerate() {
            let (mut list, mut scores) = (Vec::new(), Vec::new());
            one.recommend_list(round.user, &round.items, 4, &|_| false, &mut list).unwrap();
            other.explain(round.user, &round.items, &mut scores).unwrap();
            prop_assert!(list.is_sorted_by(|a, b| a.score.score >= b.score.score));
            for decision in &list {
                let difference = decision.score.score - scores[decision.index].score;
                prop_assert!(difference.abs() < 1e-9, "round {} {:?}", at, decision);
            }
            let mut items: Vec<Vec<f64>> = list.iter().map(|d| round.features(d.index)).collect();
            // Attractive if the mean reward is above a threshold that changes.
            let threshold = [0.2, 0.6, 2.0][at % 3];
            let clicks: Vec<f64> = list.iter().map(|d| f64::from(u8::from(round.means[d.index] > threshold))).collect();
            let examined = clicks.iter().position(|&click| click > 0.0).map_or(4, |click| click + 1);
            let learned: Vec<Observation<'_>> = items[..examined]
                .iter()
                .zip(&clicks)
                .map(|(item, &click)| Observation::new(round.user, item, click))
                .collect();
            other.learn_round(&learned, &mut Vec::new()).unwrap();
            let looked_at = is_told.then_some(examined);
            let rewards: Vec<Option<f64>> = clicks.iter().map(|&click| Some(click)).collect();
            learn_list(&mut *one, round.user, &shown(&items, &rewards), looked_at);
            // Items that the user did not look at, and zeros that are not told, change nothing.
            items[examined..].iter_mut().flatten().for_each(|x| *x = 0.3);
            let rewards: Vec<Option<f64>> = clicks
                .iter()
                .enumerate()
                .map(|(at, &click)| if at < examined { (click > 0.0 || examined == 4).then_some(click) } else { Some(0.7) })
                .collect();
            learn_list(&mut *swapped, round.user, &shown(&items, &rewards), looked_at);
            prop_assert_eq!(one.digest(), swapped.digest());
        }
    }

    /// Estimates, widths and radii for M = λI + Σ x xᵀ.
    #[test]
    fn the_ridge_is_that_of_the_sums(seed: u64, ridge in 1.0f64..20.0, squared: bool) {
        let index = ("index", Value::Choice(if squared { "squared" } else { "norm" }));
        let given = [("ridge", number(ridge)), ("beta", number(0.7)), ("alpha_theta", number(0.3)), COMPLETE, index];
        let mut policy = make_for("club-cascade", DIM, Users::Declared(2), &given);
        let (mut history, mut moments) = ([Vec::new(), Vec::new()], [[0.0; DIM]; 2]);
        for round in rounds_of(seed, 2, DIM, 2, 120) {
            let (user, item) = (round.user as usize, round.features(0));
            for (moment, x) in moments[user].iter_mut().zip(&item) {
                *moment += x * round.reward(0);
            }
            let changes = policy.learn(round.user, &item, round.reward(0)).unwrap();
            history[user].push(item);
            let own = [0, 1].map(|user: usize| solve(ridge, &history[user], &moments[user]));
            let apart = own[0].iter().zip(&own[1]).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt();
            let threshold = 0.3 * (radius(history[0].len() as u64) + radius(history[1].len() as u64));
            if let [Change::Split { why: Why::Estimates(why), .. }] = changes[..] {
                prop_assert!((why.distance - apart).abs() < 1e-9);
                prop_assert!((why.threshold - threshold).abs() < 1e-9);
            }
            if policy.clusters() == 1 {
                prop_assert!(apart <= threshold + 1e-9);
                continue;
            }
            let estimate = policy.estimate(round.user).unwrap();
            prop_assert!(estimate.iter().zip(&own[user]).all(|(a, b)| (a - b).abs() < 1e-9));
            let score = policy.recommend(round.user, &round.items).unwrap();
            let x = round.features(score.index);
            let square = dot(&x, &solve(ridge, &history[user], &x));
            let width = 0.7 * if squared { square } else { square.sqrt() };
            prop_assert!((score.score.width - width).abs() < 1e-9);
            prop_assert!((score.score.mean - dot(&x, &own[user])).abs() < 1e-9);
        }
    }
}

#[test]
fn a_list_of_which_nothing_is_known_teaches_nothing() {
    let mut policy = make("club-cascade", &[]);
    let before = policy.estimate(1);
    let items = [vec![0.5; DIM], vec![0.1; DIM]];
    learn_list(&mut *policy, 1, &shown(&items, &[None, None]), None);
    assert_eq!((policy.rounds(), policy.estimate(1)), (1, before.clone()));
    // A click on the second: the first was not clicked.
    learn_list(&mut *policy, 1, &shown(&items, &[None, Some(1.0)]), None);
    let moment: Vec<f64> = items[1].clone();
    let expected = solve(1.0, &items, &moment);
    let estimate = policy.estimate(1).unwrap();
    assert!(
        estimate
            .iter()
            .zip(&expected)
            .all(|(a, b)| (a - b).abs() < 1e-12)
    );
}

#[test]
fn it_is_sound() {
    assert_sound("club-cascade", &[]);
    assert_sound("club-cascade", &[("ridge", number(4.0))]);
}

/// The public code's random factor: widths between 0 and those in full, drawn anew in each round, uniform over rounds.
#[test]
fn a_random_bonus_is_a_share_of_the_full_one() {
    let random = ("bonus", Value::Choice("random"));
    let (mut full, mut part) = (make("club-cascade", &[]), make("club-cascade", &[random]));
    let mut shares = Vec::new();
    for round in rounds(4, 2, 400) {
        let (mut all, mut drawn) = (Vec::new(), Vec::new());
        full.explain(round.user, &round.items, &mut all).unwrap();
        part.explain(round.user, &round.items, &mut drawn).unwrap();
        for (all, drawn) in all.iter().zip(&drawn) {
            assert_eq!(all.mean, drawn.mean);
            assert_eq!(drawn.score, drawn.mean + drawn.width);
            shares.push(drawn.width / all.width);
        }
        let chosen = round.features(0);
        for policy in [&mut full, &mut part] {
            policy.learn(round.user, &chosen, round.reward(0)).unwrap();
        }
    }
    shares.sort_by(f64::total_cmp);
    // The Kolmogorov-Smirnov distance from the uniform distribution, with its 0.1% bound.
    let count = shares.len() as f64;
    let off = |(place, share): (usize, &f64)| (share - (place as f64 + 0.5) / count).abs();
    let distance = shares.iter().enumerate().map(off).fold(0.0, f64::max);
    assert!(distance < 1.95 / count.sqrt(), "{distance}");
}
