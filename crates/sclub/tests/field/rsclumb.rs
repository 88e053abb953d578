//! RSCLUMB against SCLUB, and its second bonus against the sum over all past items.

use proptest::prelude::*;
use sclub::{ItemSet, Users};

use crate::common::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..Default::default() })]

    #[test]
    fn without_error_it_is_sclub_without_frequencies(seed: u64, clusters in 1u64..4, is_declared: bool) {
        let users = if is_declared { Users::Declared(USERS) } else { Users::Appear };
        let given = [("alpha_theta", number(1.0))];
        let mut one = make_for("rsclumb", DIM, users, &[given[0], ("error", number(0.0))]);
        let mut sclub = make_for("sclub", DIM, users, &[given[0], ("alpha_p", number(f64::MAX))]);
        assert_same(&mut *one, &mut *sclub, &rounds(seed, clusters, 400), 0.0);
        for user in 0..=USERS {
            prop_assert_eq!(one.estimate(user), sclub.estimate(user));
            prop_assert_eq!(one.cluster_of(user), sclub.cluster_of(user));
        }
    }

    /// With one cluster all history is the cluster's. The bonus is at least ε* Σ |xᵀS⁻¹x_s| and at most ε* √N ‖x‖.
    #[test]
    fn the_bonus_bounds_the_sum_over_past_items(seed: u64, count in 0usize..40, error in 0.01f64..1.0) {
        let given = [("error", number(error)), ("beta", number(0.0)), ("alpha_theta", number(1e9))];
        let mut policy = make("rsclumb", &given);
        let mut history: Vec<Vec<f64>> = Vec::new();
        let all = rounds(seed, 2, count + 1);
        for round in &all[..count] {
            history.push(round.features(0));
            policy.learn(round.user, &history[history.len() - 1], round.reward(0)).unwrap();
        }
        let mut scores = Vec::new();
        let round = &all[count];
        policy.explain(round.user, &round.items, &mut scores).unwrap();
        for (index, score) in scores.iter().enumerate() {
            let x = round.features(index);
            let solved = solve(1.0, &history, &x);
            let sum: f64 = history.iter().map(|past| dot(&solved, past).abs()).sum();
            let most = (count as f64 * dot(&x, &solved)).sqrt();
            // xᵀS⁻¹(S − I)S⁻¹x is the sum of squares of which the sum above has the absolute values.
            let squares: f64 = history.iter().map(|past| dot(&solved, past).powi(2)).sum();
            let expected = error * (count as f64 * squares).sqrt();
            prop_assert!((score.width - expected).abs() < 1e-9, "{} {}", score.width, expected);
            prop_assert!(score.width >= error * sum - 1e-9);
            prop_assert!(score.width <= error * most + 1e-9);
        }
    }

    /// Two users part exactly when their estimates differ by more than α₁ (F + F) + α₂ ε*.
    #[test]
    fn the_error_widens_the_radius(visits in 5usize..60, alpha_error in 0.0f64..3.0, error in 0.0f64..0.5) {
        let given = [("alpha_theta", number(0.4)), ("alpha_error", number(alpha_error)), ("error", number(error))];
        let mut policy = make_for("rsclumb", 1, Users::Declared(2), &given);
        let mut narrow = make_for("rsclumb", 1, Users::Declared(2), &[given[0], ("error", number(0.0))]);
        let items = ItemSet::from_rows(1, &[1.0]).unwrap();
        for visit in 0..visits {
            let (user, reward) = (visit as u64 % 2, (visit % 2) as f64);
            for policy in [&mut policy, &mut narrow] {
                policy.recommend(user, &items).unwrap();
                let changes = policy.learn(user, &[1.0], reward).unwrap();
                for change in changes {
                    if let sclub::Change::Split { why: sclub::Why::Estimates(why), .. } = change {
                        prop_assert!(why.distance > why.threshold);
                    }
                }
            }
            // What the wider radius parts, the narrow one has parted before.
            prop_assert!(policy.clusters() <= narrow.clusters());
        }
        // The estimates of two users differ by less than 1.
        if alpha_error * error >= 1.0 {
            prop_assert_eq!(policy.clusters(), 1);
        }
        prop_assert_eq!(narrow.clusters(), if visits >= 40 { 2 } else { narrow.clusters() });
    }
}

/// Clusters merge below half of the radius for a split, the part for the error included.
#[test]
fn the_error_widens_the_radius_of_merges() {
    let merged = |error: f64| {
        let given = [
            ("alpha_theta", number(0.5)),
            ("alpha_error", number(1.0)),
            ("error", number(error)),
        ];
        let mut policy = make_for("rsclumb", 1, Users::Declared(3), &given);
        let mut merges = Vec::new();
        // User 0 likes at first nothing, later everything, as user 1 does.
        for visit in 0..600u64 {
            let user = visit % 3;
            let reward = f64::from(user == 1 || (user == 0 && visit > 60));
            for change in policy.learn(user, &[1.0], reward).unwrap() {
                if let sclub::Change::Merge {
                    why: sclub::Why::Both { estimates, .. },
                    ..
                } = change
                {
                    assert!(estimates.distance < estimates.threshold);
                    merges.push((visit, estimates.threshold));
                }
            }
        }
        merges
    };
    let (narrow, wide) = (merged(0.0), merged(0.3));
    let first = |merges: &[(u64, f64)]| merges.iter().map(|m| m.0).find(|&visit| visit > 60);
    assert!(first(&wide).is_some(), "{wide:?}");
    assert!(
        first(&wide) < first(&narrow).or(Some(u64::MAX)),
        "{wide:?} {narrow:?}"
    );
    assert!(
        wide.iter().all(|m| m.1 > 0.15),
        "half of the part for the error"
    );
}

#[test]
fn it_is_sound() {
    assert_sound("rsclumb", &[]);
    assert_sound("rsclumb", &[("error", number(0.1))]);
}
