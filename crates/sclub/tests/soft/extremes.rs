//! Units, sizes and counts at the ends of their ranges.

use super::*;

/// The choices in a small world where features and rewards come in other units.
fn choices(features: f64, rewards: f64) -> (Vec<usize>, usize) {
    let mut life = Life::new(4, 4, 20);
    let mut policy = SclubSoft::new(4, &quick()).unwrap();
    let mut chosen = Vec::new();
    for _ in 0..700 {
        let user = life.rng.random_range(0..20);
        let rows: Vec<Vec<f64>> = (0..6).map(|_| life.vector()).collect();
        let scaled: Vec<f64> = rows.iter().flatten().map(|x| features * x).collect();
        let items = ItemSet::from_rows(4, &scaled).unwrap();
        let index = policy.recommend(user, &items).unwrap().index;
        let reward = life.reward(user, &rows[index]);
        let item: Vec<f64> = items.item(index).collect();
        policy.learn(user, &item, rewards * reward).unwrap();
        chosen.push(index);
    }
    (chosen, policy.clusters())
}

#[test]
fn units_do_not_matter() {
    let (plain, clusters) = choices(1.0, 1.0);
    assert_eq!(clusters, 3);
    for features in [1e-3, 1e3] {
        for rewards in [1.0, 1e-3, 1e3] {
            let (scaled, found) = choices(features, rewards);
            assert_eq!(found, clusters, "× {features}, × {rewards}");
            assert_eq!(scaled, plain, "× {features}, × {rewards}");
        }
    }
}

#[test]
fn nothing_that_may_be_observed_upsets_it() {
    type Reward = fn(u64, &[f64]) -> f64;
    let rewards: [(&str, Reward); 5] = [
        ("all 0", |_, _| 0.0),
        ("all 1", |_, _| 1.0),
        ("exact", |_, x| x[0]),
        ("huge", |n, _| if n % 2 == 0 { 1e12 } else { -1e12 }),
        ("tiny", |n, _| 1e-12 * (n % 3) as f64),
    ];
    for (name, reward) in rewards {
        for dim in [1, 3] {
            for users in [1, 5] {
                for size in [0.0, 1e-12, 1.0, 1e12] {
                    let mut life = Life::new(6, dim, users);
                    let mut policy = SclubSoft::new(dim, &quick()).unwrap();
                    for n in 0..150 {
                        let item: Vec<f64> = life.vector().iter().map(|x| size * x).collect();
                        policy
                            .learn(n % users, &item, reward(n, &item).clamp(-1e12, 1e12))
                            .unwrap();
                    }
                    assert!(policy.outlook().is_some());
                    let rows: Vec<f64> = (0..5)
                        .flat_map(|_| life.vector())
                        .map(|x| size * x)
                        .collect();
                    let items = ItemSet::from_rows(dim, &rows).unwrap();
                    for user in [0, users, 1000] {
                        let mut scores = Vec::new();
                        policy.explain(user, &items, &mut scores).unwrap();
                        let sound = scores
                            .iter()
                            .all(|s| s.score.is_finite() && s.mean.is_finite());
                        assert!(sound, "{name}, d = {dim}, features of {size}: {scores:?}");
                        assert!(policy.estimate(user).unwrap().iter().all(|m| m.is_finite()));
                    }
                    let again = load_policy(&mut saved(&policy).as_slice());
                    assert_eq!(again.unwrap().digest(), policy.digest(), "{name}");
                }
            }
        }
    }
}

#[test]
fn features_too_small_to_be_squared_do_no_harm() {
    for size in [1e-150, 1e-158, 1e-162, 1e-200, f64::MIN_POSITIVE] {
        let mut policy = SclubSoft::new(2, &quick()).unwrap();
        let mut life = Life::new(6, 2, 5);
        for n in 0..100 {
            let item: Vec<f64> = life.vector().iter().map(|x| size * x).collect();
            policy.learn(n % 5, &item, (n % 2) as f64).unwrap();
        }
        let items = ItemSet::from_rows(2, &[size, 0.0, 0.0, size]).unwrap();
        let decision = policy.recommend(1, &items).unwrap();
        assert!(decision.score.score.is_finite(), "{size}: {decision:?}");
    }
}

#[test]
fn a_user_who_comes_ten_thousand_times_is_known() {
    let mut policy = SclubSoft::new(3, &SoftParams::default()).unwrap();
    let mut life = Life::new(8, 3, 1);
    let taste = [0.3, -0.7, 0.2];
    for _ in 0..10_000 {
        let item = life.vector();
        let mean: f64 = item.iter().zip(&taste).map(|(x, m)| x * m).sum();
        let reward = mean + life.rng.random_range(-0.5..0.5);
        policy.learn(42, &item, reward).unwrap();
    }
    assert_eq!(policy.count(42), Some(10_000));
    for (found, truth) in policy.estimate(42).unwrap().iter().zip(taste) {
        assert!((found - truth).abs() < 0.02, "{found} {truth}");
    }
    let noise = policy.outlook().unwrap().noise;
    assert!((noise - 1.0 / 12.0).abs() < 0.01, "{noise}");
}

#[test]
fn more_users_than_a_search_looks_at_are_fitted_alike_on_any_threads() {
    let mut life = Life::new(9, 3, 9000);
    let params = SoftParams {
        seeds: 10,
        ..beside()
    };
    let mut policy = SclubSoft::new(3, &params).unwrap();
    for turn in 0..3 {
        for user in 0..9000 {
            let item = life.vector();
            let reward = life.reward(user, &item);
            policy.learn(user, &item, reward).unwrap();
        }
        let [one, other] = [policy.refit().unwrap(), policy.refit().unwrap()];
        let fit = one.compute(&Sequential);
        assert_eq!(other.compute(&Crowd), fit, "turn {turn}");
        policy.take_fit(&fit).unwrap();
    }
    assert_eq!(policy.clusters(), 3);
    let mut users = 0;
    policy.each_cluster(&mut |view| users += view.users);
    assert!((8500..=9001).contains(&users), "{users}");
}
