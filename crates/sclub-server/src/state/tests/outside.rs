//! Policies from outside the library: they are served like the others, see the ids of items if they want them,
//! and learn from lists if they can.

use sclub::{List, Observation, Persist, Policy, Shown};

use super::by_id::{self, ById, OFFERED};
use super::*;
use crate::event::{ListItem, RewardedList};

#[test]
fn a_policy_from_outside_is_served_and_sees_the_ids_of_items() {
    by_id::register();
    let mut state = state(by_id::NAME);
    for id in ["a", "b", "c", "d"] {
        follow(&mut state, 0, vec![upsert(id, vec![1.0, 0.0])]).unwrap();
    }
    let remove = Event::Remove {
        item: "a".to_owned(),
    };
    follow(&mut state, 0, vec![remove]).unwrap();
    let all = Choice::All {
        among: None,
        exclude: &[],
    };
    for state in [&state, &reloaded(&state)] {
        let chosen = state.choose(
            Draws::default(),
            "u",
            &all,
            state.catalogue(),
            &[],
            3,
            &mut Scratch::default(),
        );
        // The last item took the place of the first.
        let ids = ["d", "b", "c"].map(item_id);
        assert_eq!(OFFERED.take(), ids);
        let best = chosen.unwrap().decisions[0].index;
        assert_eq!(ids[best], *ids.iter().max().unwrap());
        let some = Choice::Slots(&[2, 0]);
        let chosen = state.choose(
            Draws::default(),
            "u",
            &some,
            state.catalogue(),
            &[],
            1,
            &mut Scratch::default(),
        );
        assert_eq!(chosen.unwrap().cluster, 0);
        assert_eq!(OFFERED.take(), [ids[2], ids[0]]);
    }
    follow(&mut state, 0, vec![learn(vec![reward(1, "u")])]).unwrap();
    let mut expected = ById::new(2);
    let observation = Observation {
        id: Some(item_id("i")),
        ..Observation::new(0, &[0.6, 0.8], 1.0)
    };
    expected
        .learn_round(&[observation], &mut Vec::new())
        .unwrap();
    assert_eq!(state.policy().unwrap().digest(), expected.digest());
    follow(&mut state, 0, vec![forget("u")]).unwrap();
    assert_eq!(reloaded(&state).hash(), state.hash());
}

#[test]
fn lists_are_learned_with_all_items_shown() {
    by_id::register();
    let mut state = state(by_id::NAME);
    let first = list(10, "u", &[Some(0.0), Some(1.0), None], Some(2));
    // The rest of the first list, and a list of another user.
    let rest = list(10, "u", &[None, None, Some(0.5)], None);
    let other = list(13, "v", &[Some(1.0)], Some(1));
    let learn = |lists: &[&RewardedList]| Event::LearnLists {
        lists: lists.iter().map(|&list| list.clone()).collect(),
    };
    follow(&mut state, 0, vec![learn(&[&first])]).unwrap();
    assert_eq!(refusal(&state, &learn(&[&first])), Refusal::Answered);
    follow(&mut state, 0, vec![learn(&[&rest, &other])]).unwrap();
    assert_eq!((state.rewards(), state.rounds()), ((4, 2.5), 2));
    let counts = [0, 1].map(|number| state.users().get(number).unwrap().rewards);
    assert_eq!(counts, [3, 1]);
    assert!((10..14).all(|number| state.answered().contains(number)));

    let mut expected = ById::new(2);
    let features: Vec<[f64; 2]> = (0..3).map(|place| [f64::from(place), 0.5]).collect();
    let shown = |rewards: &[Option<f64>]| -> Vec<Shown<'_>> {
        let items = features.iter().zip(rewards).enumerate();
        let items = items.map(|(place, (item, &reward))| Shown {
            item,
            id: Some(item_id(&format!("i{place}"))),
            reward,
        });
        items.collect()
    };
    let (one, two, three) = (
        shown(&[Some(0.0), Some(1.0), None]),
        shown(&[None, None, Some(0.5)]),
        shown(&[Some(1.0)]),
    );
    let of = |user, items, looked_at| List {
        user,
        items,
        looked_at,
    };
    for round in [
        &[of(0, &one, Some(2))][..],
        &[of(0, &two, None), of(1, &three, Some(1))],
    ] {
        expected.learn_lists(round, &mut Vec::new()).unwrap();
    }
    assert_eq!(state.policy().unwrap().digest(), expected.digest());
    assert_eq!(reloaded(&state).hash(), state.hash());
}

/// A list of some items, each with a reward or none.
fn list(
    number: u64,
    user: &str,
    rewards: &[Option<f64>],
    looked_at: Option<usize>,
) -> RewardedList {
    let items = rewards.iter().enumerate().map(|(place, &reward)| ListItem {
        item: format!("i{place}"),
        features: vec![place as f64, 0.5],
        score: 0.0,
        reward,
    });
    RewardedList {
        number,
        user: user.to_owned(),
        items: items.collect(),
        context: Vec::new(),
        looked_at,
        cluster: 0,
        decided: 0,
        clock: 10,
        event: 0,
    }
}

#[test]
fn inconsistent_lists_are_refused() {
    by_id::register();
    let state = state(by_id::NAME);
    let valid = list(10, "u", &[None, Some(1.0), None], Some(2));
    let lists = |list: RewardedList| Event::LearnLists { lists: vec![list] };
    let mut ahead = Ahead::default();
    assert_eq!(state.admit(&lists(valid.clone()), &mut ahead), Ok(()));
    let change: [fn(&mut RewardedList); 6] = [
        |list| list.number = u64::MAX - 1,
        |list| list.looked_at = Some(1),
        |list| list.looked_at = Some(4),
        |list| list.items[1].reward = None,
        |list| list.context = vec![1.0],
        |list| list.items[2].features = vec![1.0],
    ];
    for change in change {
        let mut list = valid.clone();
        change(&mut list);
        let refused = refusal(&state, &lists(list.clone()));
        let Refusal::Invalid { field, .. } = &refused else {
            panic!("{list:?}: {refused}");
        };
        assert_eq!(field, "decision", "{list:?}");
    }
}

#[test]
fn only_new_folders_of_policies_that_learn_from_lists_have_them() {
    by_id::register();
    for spec in servable() {
        let identity = identity(spec.name, None);
        assert_eq!(identity.has_lists(), spec.can.lists, "{spec}");
        assert_eq!(identity.format, crate::identity::FORMAT, "{spec}");
    }
    let mut older = identity(by_id::NAME, None);
    older.format = 3;
    let older = Identity::decode(&older.encode()).unwrap();
    assert!(!older.has_lists());
}

#[test]
fn the_id_of_an_item_stays() {
    let hash = blake3::hash(b"i1");
    let first = hash.as_bytes()[..8].try_into().unwrap();
    assert_eq!(item_id("i1"), u64::from_le_bytes(first));
}

#[test]
fn policies_that_do_not_want_ids_get_none() {
    let mut state = state("sclub");
    follow(&mut state, 0, vec![upsert("a", vec![1.0, 0.0])]).unwrap();
    assert!(state.catalogue().unwrap().items().ids().is_empty());
}

#[test]
fn a_snapshot_of_a_policy_that_cannot_be_served_is_refused() {
    // The same policy without the users: it cannot forget any.
    let mut state = state("linucb-one");
    follow(&mut state, 0, vec![upsert("a", vec![1.0, 0.0])]).unwrap();
    let (mut whole, mut own, mut other) = (Vec::new(), Vec::new(), Vec::new());
    state.save(&mut whole).unwrap();
    state.policy().unwrap().save_to(&mut own).unwrap();
    let params = sclub::Params::tuned();
    let bare = sclub::LinUcbShared::new(2, sclub::Groups::One, &params).unwrap();
    bare.save_to(&mut other).unwrap();
    whole.truncate(whole.len() - own.len());
    whole.extend_from_slice(&other);
    let loaded = State::load(state.identity().clone(), &mut whole.as_slice());
    let error = loaded.unwrap_err().to_string();
    assert!(error.contains("cannot be inspected"), "{error}");
}
