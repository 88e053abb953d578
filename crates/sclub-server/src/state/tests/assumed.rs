//! Assumed rewards, and those in their place.

use super::*;

fn assume(round: Vec<Reward>, corrected: Vec<Reward>) -> Event {
    let assumed = vec![true; round.len()];
    Event::LearnAssumed {
        round,
        assumed,
        corrected,
    }
}

fn rewarded(number: u64, user: &str, reward: f64) -> Reward {
    let angle = number as f64;
    Reward {
        reward,
        features: vec![angle.cos(), angle.sin()],
        ..super::reward(number, user)
    }
}

/// The estimates of two states agree for a user.
fn check_equal(late: &State, at_once: &State, user: &str) {
    let number = |state: &State| UserId::from(state.users.number(user).unwrap());
    let estimate = |state: &State| state.policy().unwrap().estimate(number(state)).unwrap();
    for (a, b) in estimate(late).iter().zip(estimate(at_once)) {
        assert!((a - b).abs() < 1e-12, "{user}: {a} and {b}");
    }
}

#[test]
fn a_reward_in_place_of_an_assumed_one_is_as_if_it_had_come_at_once() {
    for policy in [
        "linucb-one",
        "linucb-ind",
        "lints",
        "sclub-soft",
        "gaussian",
        "sclub",
    ] {
        let (mut late, mut at_once) = (state(policy), state(policy));
        for number in 0..9 {
            let user = ["u", "v"][number as usize % 2];
            follow(
                &mut late,
                1,
                vec![assume(vec![rewarded(number, user, 0.0)], vec![])],
            )
            .unwrap();
            let reward = if number % 3 == 0 { 1.0 } else { 0.0 };
            follow(
                &mut at_once,
                1,
                vec![learn(vec![rewarded(number, user, reward)])],
            )
            .unwrap();
        }
        for number in [6, 0, 3] {
            let user = ["u", "v"][number as usize % 2];
            let click = rewarded(number, user, 1.0);
            // With a round of its own, or without.
            let round = match number {
                0 => vec![rewarded(20, "u", 0.0)],
                _ => Vec::new(),
            };
            let correct = assume(round.clone(), vec![click.clone()]);
            follow(&mut late, 2, vec![correct.clone()]).unwrap();
            if !round.is_empty() {
                follow(&mut at_once, 2, vec![learn(round)]).unwrap();
            }
            // Each counts once.
            assert_eq!(
                refusal(&late, &assume(vec![], vec![click.clone()])),
                Refusal::Answered
            );
            assert_eq!(refusal(&late, &learn(vec![click])), Refusal::Answered);
        }
        assert_eq!(late.rewards(), at_once.rewards(), "{policy}");
        assert_eq!(late.rounds(), at_once.rounds(), "{policy}");
        check_equal(&late, &at_once, "u");
        check_equal(&late, &at_once, "v");
        assert_eq!(reloaded(&late).hash(), late.hash());
    }
}

#[test]
fn a_correction_adds_the_difference_to_the_sum_and_no_reward() {
    let mut state = state("linucb-ind");
    let events = [
        assume(vec![rewarded(1, "u", 0.25), rewarded(2, "u", 0.25)], vec![]),
        assume(vec![rewarded(3, "u", 0.5)], vec![rewarded(2, "u", 1.0)]),
    ];
    for (event, (rewards, sum)) in events.into_iter().zip([(2, 0.5), (1, 1.25)]) {
        let (before, mut effect) = (state.rewards(), Effect::default());
        let stamp = Stamp { at: 0, clock: 1 };
        let events = vec![event];
        let batch = Batch { stamp, events };
        state
            .replay(state.position() + 1, &batch, &mut effect)
            .unwrap();
        assert_eq!((effect.rewards, effect.reward_sum), (rewards, sum));
        let after = state.rewards();
        assert_eq!((after.0 - before.0, after.1 - before.1), (rewards, sum));
    }
}

#[test]
fn only_assumed_rewards_of_known_users_are_replaced() {
    let mut state = state("linucb-ind");
    let first = assume(vec![rewarded(1, "u", 0.0)], vec![]);
    follow(
        &mut state,
        1,
        vec![first, learn(vec![rewarded(2, "v", 0.0)])],
    )
    .unwrap();
    let correct = |number, user: &str| assume(vec![], vec![rewarded(number, user, 1.0)]);
    assert_eq!(refusal(&state, &correct(2, "v")), Refusal::Answered);
    assert_eq!(refusal(&state, &correct(3, "u")), Refusal::Answered);
    assert_eq!(refusal(&state, &correct(1, "w")), Refusal::Forgotten);
    // Twice in an event, or in two events of a batch.
    let twice = assume(vec![], vec![rewarded(1, "u", 1.0), rewarded(1, "u", 0.5)]);
    assert_eq!(refusal(&state, &twice), Refusal::Answered);
    let mut ahead = Ahead::default();
    assert_eq!(state.admit(&correct(1, "u"), &mut ahead), Ok(()));
    let again = state.admit(&correct(1, "u"), &mut ahead);
    assert_eq!(again.unwrap_err().reason, Refusal::Answered);
    // The user is forgotten in the same batch.
    let mut ahead = Ahead::default();
    assert_eq!(state.admit(&forget("u"), &mut ahead), Ok(()));
    let late = Reward {
        event: 1 << 20,
        ..rewarded(1, "u", 1.0)
    };
    let late = state.admit(&assume(vec![], vec![late]), &mut ahead);
    assert_eq!(late.unwrap_err().reason, Refusal::Forgotten);
    // Expired decisions keep nothing.
    follow(&mut state, 9, vec![Event::Expire { before: 20 }]).unwrap();
    assert_eq!(state.assumed, Assumed::default());
}

#[test]
fn a_policy_that_cannot_correct_assumes_nothing() {
    let mut identity = identity("sclub-soft", None);
    let text = String::from_utf8(identity.encode()).unwrap();
    let text = text.replace("\"half_life\":null", "\"half_life\":50.0");
    identity = Identity::decode(text.as_bytes()).unwrap();
    let state = State::new(identity.clone()).unwrap();
    let refused = refusal(&state, &assume(vec![rewarded(1, "u", 0.0)], vec![]));
    assert!(matches!(refused, Refusal::Invalid { .. }), "{refused}");
    let settings = Settings {
        unanswered: Some(0.0),
        ..Settings::default()
    };
    let refused = identity.check_run(&settings).unwrap_err().0;
    assert!(
        refused.contains("sclub-soft with a half-life cannot; use one of sclub, "),
        "{refused}"
    );
}
