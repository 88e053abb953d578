//! Switches for departures of public code from its paper.

use sclub::Value;

use crate::common::{USERS, assert_same, make, number, rounds};

/// With ellipsoids of one size, r in place of r² is another size.
#[test]
fn plain_ellipsoids_have_the_root_of_the_size() {
    let given = |scale, form| {
        [
            ("noise", number(0.0)),
            ("radius_scale", number(scale)),
            ("ellipsoids", Value::Choice(form)),
            ("retest", number(0.0)),
        ]
    };
    let rounds = rounds(3, 3, 600);
    let mut plain = make("bass", &given(0.25, "plain"));
    let mut squared = make("bass", &given(0.5, "squared"));
    assert_same(&mut *plain, &mut *squared, &rounds, 0.0);
    let mut other = make("bass", &given(0.25, "squared"));
    rounds.iter().for_each(|round| {
        round.play(&mut *other);
    });
    assert_ne!(other.digest(), squared.digest());
}

#[test]
fn clusters_that_all_agree_stay_apart_unless_all_may_join() {
    let clusters = |joins| {
        let given = [
            ("servers", number(3.0)),
            ("alpha_theta", number(1e9)),
            ("alpha_merge", number(1e9)),
            ("joins", Value::Choice(joins)),
        ];
        let mut policy = make("fclub", &given);
        for round in rounds(1, 2, 600) {
            round.play(&mut *policy);
        }
        let of_users: std::collections::HashSet<_> =
            (0..USERS).map(|user| policy.cluster_of(user)).collect();
        assert_eq!(of_users.len(), policy.clusters());
        policy.clusters()
    };
    assert_eq!(clusters("all"), 1);
    assert_eq!(clusters("unless-all"), 3);
}

/// Without a history the error has no bonus; the radius of the tests keeps it.
#[test]
fn without_a_history_the_error_widens_the_tests_only() {
    for name in ["rclumb", "rsclumb"] {
        let given = |error, alpha_error, history| {
            [
                ("error", number(error)),
                ("alpha_error", number(alpha_error)),
                ("history", Value::Choice(history)),
            ]
        };
        let rounds = rounds(5, 3, 600);
        let mut lost = make(name, &given(0.3, 0.0, "none"));
        let mut none = make(name, &given(0.0, 0.0, "bound"));
        assert_same(&mut *lost, &mut *none, &rounds, 0.0);
        // The same slack from other numbers.
        let mut wide = make(name, &given(0.25, 4.0, "none"));
        let mut same = make(name, &given(0.5, 2.0, "none"));
        assert_same(&mut *wide, &mut *same, &rounds, 0.0);
    }
}
