//! The rules of `admit`, one by one, and the limits of what is kept.

use super::*;

/// The field of a refusal that has one.
fn field(refusal: &Refusal) -> &str {
    match refusal {
        Refusal::Invalid { field, .. } => field,
        other => panic!("{other:?}"),
    }
}

#[test]
fn events_that_the_library_would_refuse_are_refused() {
    for policy in servable() {
        let mut state = state(policy.name);
        let bad = |change: &dyn Fn(&mut Reward)| {
            let mut second = reward(2, "v");
            change(&mut second);
            learn(vec![reward(1, "u"), second])
        };
        for value in [5e12, -5e12, f64::NAN, f64::INFINITY] {
            let event = bad(&|reward| reward.reward = value);
            let rejected = state.admit(&event, &mut Ahead::default()).unwrap_err();
            assert_eq!((rejected.entry, field(&rejected.reason)), (1, "reward"));
            let event = bad(&|reward| reward.features[1] = value);
            assert_eq!(field(&refusal(&state, &event)), "decision");
            let event = upsert("a", vec![value, 1.0]);
            assert_eq!(field(&refusal(&state, &event)), "features");
        }
        for dim in [0, 513] {
            let event = upsert("a", vec![0.0; dim]);
            assert_eq!(field(&refusal(&state, &event)), "features");
        }
        let event = bad(&|reward| reward.features.push(1.0));
        assert_eq!(field(&refusal(&state, &event)), "decision");
        for users in [sclub::Users::LIMIT + 1, u64::MAX] {
            assert_eq!(field(&refusal(&state, &Event::Expect { users })), "users");
        }
        let users = sclub::Users::LIMIT;
        follow(&mut state, 0, vec![Event::Expect { users }]).unwrap();
        follow(&mut state, 0, vec![learn(vec![reward(1, "u")])]).unwrap();
        assert_eq!(
            refusal(&state, &Event::Expect { users: 1 }),
            Refusal::Begun(1)
        );
    }
}

#[test]
fn more_users_than_were_declared_can_appear_and_be_forgotten() {
    for policy in servable() {
        let mut state = state(policy.name);
        follow(&mut state, 0, vec![Event::Expect { users: 2 }]).unwrap();
        for number in 0..40 {
            let user = format!("u{}", number % 5);
            follow(&mut state, 0, vec![learn(vec![reward(number, &user)])]).unwrap();
        }
        for user in ["u0", "u4", "u1"] {
            follow(&mut state, 0, vec![forget(user)]).unwrap();
        }
        let late = Reward {
            event: state.events(),
            ..reward(100, "new")
        };
        follow(&mut state, 0, vec![learn(vec![late])]).unwrap();
        assert_eq!(state.users().len(), 3);
        assert_eq!(reloaded(&state).hash(), state.hash());
    }
}

#[test]
fn the_largest_values_can_be_learned_fitted_and_saved() {
    let ends = [1e12, -1e12, 1e-12, f64::MIN_POSITIVE / 4.0, 0.0];
    for policy in servable() {
        let mut state = state(policy.name);
        for number in 0..600 {
            let end = |step: u64| ends[(number / step) as usize % ends.len()];
            let user = format!("u{}", number % 7);
            let reward = Reward {
                features: vec![end(1), end(3), end(11)],
                reward: end(2),
                ..reward(number, &user)
            };
            follow(&mut state, 0, vec![learn(vec![reward])]).unwrap();
            if let Some(refit) = state.policy().and_then(|policy| policy.refit()) {
                let fit = refit.compute(&sclub::Sequential);
                follow(&mut state, 0, vec![Event::Fit { fit }]).unwrap();
            }
            if number % 50 == 49 {
                let again = reloaded(&state);
                assert_eq!(again.hash(), state.hash());
                state = again;
            }
        }
        for user in ["u0", "u3"] {
            follow(&mut state, 0, vec![forget(user)]).unwrap();
        }
        assert_eq!(reloaded(&state).hash(), state.hash());
    }
}

#[test]
fn a_reward_is_learned_once() {
    let mut state = state("sclub");
    let twice = learn(vec![reward(1, "u"), reward(1, "u")]);
    let rejected = state.admit(&twice, &mut Ahead::default()).unwrap_err();
    assert_eq!((rejected.entry, rejected.reason), (1, Refusal::Answered));

    let mut ahead = Ahead::default();
    let once = learn(vec![reward(1, "u")]);
    state.admit(&once, &mut ahead).unwrap();
    assert!(ahead.contains(1) && !ahead.contains(2));
    let rejected = state.admit(&once, &mut ahead).unwrap_err();
    assert_eq!(rejected.reason, Refusal::Answered);

    follow(&mut state, 0, vec![once.clone()]).unwrap();
    assert_eq!(refusal(&state, &once), Refusal::Answered);
}

#[test]
fn an_invalid_batch_changes_nothing() {
    let mut state = state("linucb-ind");
    let hash = state.hash();
    let events = vec![
        learn(vec![reward(1, "u")]),
        forget("u"),
        learn(vec![reward(1, "v")]),
    ];
    assert!(follow(&mut state, 5, events.clone()).is_err());
    let batch = Batch {
        stamp: Stamp::default(),
        events: events[..1].to_vec(),
    };
    for number in [0, 2] {
        let replayed = state.replay(number, &batch, &mut Effect::default());
        assert_eq!(field(&replayed.unwrap_err().reason), "batch");
    }
    assert_eq!(state.hash(), hash);
    assert_eq!((state.position(), state.clock()), (0, 0));
}

#[test]
fn admitted_events_count_before_they_are_applied() {
    let state = state("sclub");
    let mut ahead = Ahead::default();
    let mut next = |event: Event| state.admit(&event, &mut ahead).map_err(|no| no.reason);
    assert_eq!(next(Event::Expect { users: 3 }), Ok(()));
    assert_eq!(next(upsert("a", vec![1.0, 2.0])), Ok(()));
    assert_eq!(
        field(&next(upsert("b", vec![1.0])).unwrap_err()),
        "features"
    );
    assert_eq!(next(learn(Vec::new())), Ok(()));
    assert_eq!(next(Event::Expect { users: 3 }), Err(Refusal::Begun(1)));
    assert_eq!(next(Event::Expire { before: 11 }), Ok(()));
    assert_eq!(next(learn(vec![reward(1, "u")])), Err(Refusal::Expired));
    assert_eq!(next(forget("u")), Ok(()));
    let at = |event| Reward {
        clock: 11,
        event,
        ..reward(1, "u")
    };
    // Four were admitted before the one that forgets, which is the fifth.
    assert_eq!(next(learn(vec![at(4)])), Err(Refusal::Forgotten));
    assert_eq!(next(learn(vec![at(5)])), Ok(()));
}

#[test]
fn forgotten_users_are_decided_by_event_numbers_and_not_by_clocks() {
    let mut state = state("sclub-soft");
    let walls = [u64::MAX, 0, 1_700_000_000_000, 3];
    for (number, at) in walls.into_iter().enumerate() {
        let events = match number {
            2 => vec![forget("u")],
            _ => vec![learn(vec![reward(number as u64, "u")])],
        };
        // The last one was decided after the user was forgotten.
        let events = events.into_iter().map(|event| match event {
            Event::Learn { mut round } if number == 3 => {
                round[0].event = 3;
                learn(round)
            }
            event => event,
        });
        let events = events.collect();
        let stamp = Stamp { at, clock: 20 };
        let batch = Batch { stamp, events };
        let next = state.position() + 1;
        let replayed = state.replay(next, &batch, &mut Effect::default());
        assert_eq!(replayed, Ok(()));
    }
    assert!(state.is_forgotten("u", 2) && !state.is_forgotten("u", 3));
    assert!(!state.is_forgotten("v", 0));
    for decided in [0, 1_699_999_999_999, 1_700_000_000_001, u64::MAX] {
        for clock in [10, 20, 30] {
            let late = |event| {
                learn(vec![Reward {
                    decided,
                    clock,
                    event,
                    ..reward(9, "u")
                }])
            };
            assert_eq!(refusal(&state, &late(2)), Refusal::Forgotten);
            let mut ahead = Ahead::default();
            assert_eq!(state.admit(&late(3), &mut ahead), Ok(()));
        }
    }
}

#[test]
fn expired_data_is_dropped_and_stays_expired() {
    let mut state = state("sclub");
    follow(&mut state, 10, vec![upsert("a", vec![1.0, 0.0])]).unwrap();
    let round = vec![reward(1, "u"), reward(2, "v")];
    let forgotten = vec![upsert("a", vec![0.0, 1.0]), learn(round), forget("v")];
    follow(&mut state, 20, forgotten).unwrap();
    // A stamp that goes back has no effect: the largest one counts.
    follow(&mut state, 1, vec![Event::Expire { before: 20 }]).unwrap();
    assert_eq!((state.clock(), state.horizon()), (20, 20));
    assert!(state.is_forgotten("v", 0));
    assert_eq!(state.catalogue().unwrap().retired(), 1);
    assert_eq!(
        refusal(&state, &learn(vec![reward(1, "u")])),
        Refusal::Expired
    );
    let before = state.hash();
    follow(&mut state, 21, vec![Event::Expire { before: 21 }]).unwrap();
    // Kept for a minute more: a decision may have been made while the request was being written.
    assert!(state.is_forgotten("v", 0));
    let mut later = reloaded(&state);
    let minute = vec![Event::Expire { before: 60_021 }];
    follow(&mut later, 22, minute).unwrap();
    assert!(!later.is_forgotten("v", 0));
    assert_eq!(state.catalogue().unwrap().retired(), 0);
    follow(&mut state, 21, vec![Event::Expire { before: 5 }]).unwrap();
    assert_eq!(state.horizon(), 21);
    assert_ne!(state.hash(), before);
    let late = Reward {
        clock: 20,
        ..reward(2, "v")
    };
    assert_eq!(refusal(&state, &learn(vec![late])), Refusal::Expired);
}

#[test]
fn retired_features_are_bounded() {
    const DIM: usize = 512;
    let most = (32 << 20) / (DIM * 8 + 64);
    let mut catalogue = Catalogue::new(DIM, false).unwrap();
    let fill = |catalogue: &mut Catalogue, items: usize, value: f64| {
        for item in 0..items {
            let features = [value; DIM];
            catalogue
                .upsert(&item.to_string(), &features, None)
                .unwrap();
        }
    };
    for time in 0..30 {
        fill(&mut catalogue, 1_000, f64::from(time));
        assert!(catalogue.retired() <= most);
    }
    assert_eq!(catalogue.retired(), most);
    // Each item has the next revision: the latest retired ones are kept, the first are not.
    assert_eq!(catalogue.features_of("0", 1), None);
    assert_eq!(catalogue.features_of("0", 28_001), Some(vec![28.0; DIM]));
    assert_eq!(catalogue.features_of("0", 29_001), Some(vec![29.0; DIM]));

    // Twice as many as there are items, if that is more.
    for time in 30..33 {
        fill(&mut catalogue, 5_000, f64::from(time));
    }
    assert_eq!(catalogue.retired(), 10_000);
    let again = Catalogue::load(DIM, false, catalogue.save()).unwrap();
    assert_eq!(again.retired(), 10_000);
    for item in 0..2_000 {
        assert!(catalogue.remove(&item.to_string(), true));
    }
    assert_eq!(catalogue.retired(), most);
}

/// Until a batch is applied, decisions show the features that it retires, however long ago it was stamped.
#[test]
fn features_are_retired_at_the_stamp_of_the_next_batch() {
    let mut catalogue = Catalogue::new(1, false).unwrap();
    catalogue.upsert("a", &[1.0], None).unwrap();
    catalogue.upsert("a", &[2.0], None).unwrap();
    catalogue.prune(1_000);
    assert_eq!(catalogue.features_of("a", 1), Some(vec![1.0]));
    catalogue.date_retirements(60);
    catalogue.upsert("a", &[3.0], None).unwrap();
    catalogue.date_retirements(70);
    catalogue.prune(60);
    assert_eq!(catalogue.features_of("a", 1), Some(vec![1.0]));
    catalogue.prune(61);
    assert_eq!(catalogue.features_of("a", 1), None);
    assert_eq!(catalogue.features_of("a", 2), Some(vec![2.0]));
    catalogue.prune(71);
    assert_eq!(catalogue.retired(), 0);
}

#[test]
fn the_revision_of_the_order_grows_with_removals_alone_also_over_a_start() {
    let mut catalogue = Catalogue::new(1, false).unwrap();
    for id in ["a", "b", "c"] {
        catalogue.upsert(id, &[1.0], None).unwrap();
    }
    let first = catalogue.order_revision();
    catalogue.upsert("b", &[2.0], None).unwrap();
    assert_eq!(catalogue.order_revision(), first);
    assert!(catalogue.remove("a", true) && !catalogue.remove("a", true));
    let second = catalogue.order_revision();
    assert!(second > first);
    let mut again = Catalogue::load(1, false, catalogue.save()).unwrap();
    assert!(again.order_revision() >= second);
    assert!(again.remove("b", true) && again.order_revision() > second);
}

#[test]
fn a_change_of_the_clusters_is_recorded_with_the_user_who_was_served() {
    let mut state = restless();
    let users = ["u", "v"];
    follow(&mut state, 1, vec![upsert("a", vec![1.0, 0.0])]).unwrap();
    for round in 0..60 {
        // A list of three.
        let list = (0..3).map(|place| Reward {
            reward: (round % 2) as f64,
            ..reward(3 * round + place, users[round as usize % 2])
        });
        follow(&mut state, 3, vec![learn(list.collect())]).unwrap();
    }
    let mut splits = 0;
    for record in state.history.before(u64::MAX, 1000) {
        let id = state.users.id(UserId::from(record.user));
        assert_eq!(id, Some(users[(record.round - 1) as usize % 2]));
        splits += u64::from(matches!(record.what, What::Split { .. }));
    }
    assert!(splits > 0);
}
