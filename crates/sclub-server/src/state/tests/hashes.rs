//! The hash covers every field of the state.

use super::*;
use crate::description::Description;

/// A name and a change of one field.
type Difference = (&'static str, fn(&mut State));

/// A state in which every field has a value.
fn grown() -> State {
    let mut state = restless();
    follow(&mut state, 1, vec![upsert("a", vec![1.0, 0.0])]).unwrap();
    follow(&mut state, 2, vec![upsert("a", vec![0.0, 1.0])]).unwrap();
    for number in 0..60 {
        let mut reward = reward(number, ["u", "v"][number as usize % 2]);
        reward.reward = (number % 2) as f64;
        follow(&mut state, 3, vec![learn(vec![reward])]).unwrap();
    }
    follow(&mut state, 4, vec![forget("w")]).unwrap();
    assert!(state.history.total() > 0);
    state
}

#[test]
fn the_hash_covers_every_field() {
    let differences: &[Difference] = &[
        ("an answered bit", |state| state.answered.insert(70, 10)),
        ("when it was handed out", |state| {
            state.answered.insert(5, 11);
        }),
        ("an assumed reward", |state| {
            state.assumed.insert(70, 10, 0.0)
        }),
        ("the value of an assumed reward", |state| {
            state.assumed.insert(70, 10, 0.5);
        }),
        (
            "an assumed reward that the policy has not learned",
            |state| {
                state.unlearned.insert(70, 10);
            },
        ),
        ("the rounds", |state| state.rounds += 1),
        ("that an experiment put the policy in force", |state| {
            state.is_winner = true;
        }),
        ("a description", |state| {
            let catalogue = &mut state.learned.as_mut().unwrap().catalogue;
            let description = Description {
                tags: vec!["red".to_owned()],
                ..Description::default()
            };
            catalogue
                .upsert("a", &[0.0, 1.0], Some(description))
                .unwrap();
        }),
        ("a forgotten fingerprint", |state| {
            let forgotten = *state.forgotten.values().next().unwrap();
            state.forgotten.clear();
            state.forgotten.insert(77, forgotten);
        }),
        ("when it was forgotten", |state| {
            state.forgotten.values_mut().next().unwrap().event += 1;
        }),
        ("the horizon", |state| state.horizon += 1),
        ("the history", |state| state.history.forget(0)),
        ("the service clock", |state| state.clock += 1),
        ("the position", |state| state.position += 1),
        ("the events", |state| state.events += 1),
        ("the users expected", |state| state.expected += 1),
        ("the idle rounds", |state| state.idle += 1),
        ("the rewards", |state| state.rewards += 1),
        ("their sum", |state| state.reward_sum += 1.0),
        ("a user's first reward", |state| {
            state.users.get_mut(0).unwrap().first += 1;
        }),
        ("a user's last reward", |state| {
            state.users.get_mut(0).unwrap().last += 1;
        }),
        ("a user's first round", |state| {
            state.users.get_mut(0).unwrap().since += 1;
        }),
        ("a user's rewards", |state| {
            state.users.get_mut(1).unwrap().rewards += 1;
        }),
        ("a user's sum", |state| {
            state.users.get_mut(1).unwrap().reward_sum += 0.5;
        }),
        ("a user's split", |state| {
            let users = &mut state.users;
            let number = (0..2).find(|&number| users.get(number).unwrap().split.is_some());
            users.get_mut(number.unwrap()).unwrap().split = None;
        }),
        ("the retired features", |state| {
            state.learned.as_mut().unwrap().catalogue.prune(100);
        }),
        ("the policy", |state| {
            let policy = &mut state.learned.as_mut().unwrap().policy;
            policy.learn_round(&[], &mut Vec::new()).unwrap();
        }),
    ];
    let state = grown();
    assert_eq!(state.hash().len(), 16);
    let mut seen = vec![state.hash()];
    for (what, change) in differences {
        let mut other = reloaded(&state);
        assert_eq!(other.hash(), seen[0], "before {what}");
        change(&mut other);
        let hash = other.hash();
        assert!(!seen.contains(&hash), "{what}");
        seen.push(hash);
    }
}
