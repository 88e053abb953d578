//! The share of simulated logs whose 95% interval has the truth in it.

use sclub::Observation;

use super::*;

/// The mean of the true mean rewards of the choices of a policy that learns the log, or only the rounds that replay accepts.
fn truth(known: &Known, name: Name, is_replay: bool) -> f64 {
    let log = &known.log;
    let mut policy = make(log, name, 1).unwrap();
    let (mut total, mut count) = (0.0, 0.0);
    let smallest = log.shown.iter().map(|shown| shown.propensity);
    let smallest = smallest.fold(1.0, f64::min);
    let mut list = Vec::new();
    for (number, round) in (0..).zip(&log.rounds) {
        let draw = mix(&[1, Purpose::Decisions as u64, number]);
        let user = UserId::from(round.user);
        let slots = round.slots as usize;
        policy
            .recommend_list_drawn(draw, user, &log.items, slots, &|_| false, &mut list)
            .unwrap();
        let shown = &log.shown[round.shown.clone()];
        let kept = mix(&[1, Purpose::Choices as u64, number]) as f64 / 2f64.powi(64);
        let is_accepted =
            shown[0].item as usize == list[0].index && kept < smallest / shown[0].propensity;
        if is_replay && !is_accepted {
            continue;
        }
        for (position, decision) in list.iter().enumerate() {
            total += known.mean(round.user, decision.index, position);
            count += 1.0;
        }
        let items: Vec<Vec<f64>> = shown
            .iter()
            .map(|shown| log.items.item(shown.item as usize).collect())
            .collect();
        let observations: Vec<Observation<'_>> = shown
            .iter()
            .zip(&items)
            .map(|(shown, item)| Observation::new(user, item, shown.reward))
            .collect();
        policy.learn_round(&observations, &mut Vec::new()).unwrap();
    }
    total / count
}

/// The coverage of a policy: IPS, SNIPS, DR and replay, over the logs that can tell, and the number of these.
#[derive(Default)]
struct Coverage {
    shares: [Option<f64>; 4],
    logs: usize,
}

fn coverage(logs: u64, shape: Shape, policies: &[Name]) -> Vec<Coverage> {
    let hits: Vec<Vec<Option<[Option<bool>; 4]>>> = (0..logs)
        .into_par_iter()
        .map(|seed| {
            let known = known(seed, shape);
            let all = evaluate(&known.log, policies, 1, 1, &()).unwrap().unwrap();
            let of_policy = |one: &Evaluation| {
                let by_weights = truth(&known, one.policy, false);
                let Weighted { ips, snips, dr, .. } = one.weighted;
                let replayed = one.replay.map_or(0.0, |_| truth(&known, one.policy, true));
                let all = [
                    (ips, by_weights),
                    (snips, by_weights),
                    (dr, by_weights),
                    (one.replay, replayed),
                ];
                let holds = |(estimate, truth): (Option<Estimate>, f64)| {
                    estimate.map(|one| (one.low..=one.high).contains(&truth))
                };
                one.warnings.is_empty().then(|| all.map(holds))
            };
            all.iter().map(of_policy).collect()
        })
        .collect();
    let of_policy = |policy: usize| {
        let own: Vec<_> = hits.iter().filter_map(|log| log[policy]).collect();
        let share = |estimator: usize| {
            let known: Vec<bool> = own.iter().filter_map(|log| log[estimator]).collect();
            let held = known.iter().filter(|held| **held).count();
            (!known.is_empty()).then_some(held as f64 / known.len() as f64)
        };
        Coverage {
            shares: std::array::from_fn(share),
            logs: own.len(),
        }
    };
    (0..policies.len()).map(of_policy).collect()
}

const EVALUATED: [Name; 4] = [
    Name::LINUCB_ONE,
    Name::LINUCB_IND,
    Name::SCLUB_SOFT,
    Name::RANDOM,
];

const LISTS: Shape = Shape { slots: 3, ..PLAIN };

#[test]
fn intervals_hold_the_truth() {
    for shape in [PLAIN, LISTS] {
        for one in coverage(100, shape, &EVALUATED) {
            // 0.95 within four standard errors.
            let error = (0.95 * 0.05 / one.logs as f64).sqrt();
            for share in one.shares.into_iter().flatten() {
                assert!(
                    (share - 0.95).abs() < 4.0 * error,
                    "{share} of {}",
                    one.logs
                );
            }
            assert!(one.logs > 60, "{}", one.logs);
        }
    }
}

/// Prints the coverage over 1,000 logs, and checks it.
fn print_coverage(shapes: &[(&str, Shape)]) {
    let mut outside = Vec::new();
    for (title, shape) in shapes {
        for (name, one) in EVALUATED.iter().zip(coverage(1000, *shape, &EVALUATED)) {
            let text = |share: Option<f64>| share.map_or("–".to_owned(), |s| format!("{s:.3}"));
            let [ips, snips, dr, replay] = one.shares.map(text);
            println!(
                "| {title} | `{name}` | {ips} | {snips} | {dr} | {replay} | {} |",
                one.logs
            );
            let known = one.shares.into_iter().flatten();
            outside.extend(known.filter(|share| !(0.93..=0.97).contains(share)));
        }
    }
    assert!(outside.is_empty(), "{outside:?}");
}

/// `cargo test -p sclub-lab --lib thousand_logs -- --ignored --nocapture` prints the table of `docs/evaluate.md`.
#[test]
#[ignore = "some minutes"]
fn intervals_of_a_thousand_logs() {
    let by_position = Shape {
        rounds: 6000,
        later: Some(0.5),
        ..LISTS
    };
    print_coverage(&[
        ("half random", PLAIN),
        ("lists of 3", LISTS),
        ("by position", by_position),
    ]);
}

#[test]
#[ignore = "some minutes"]
fn intervals_of_a_thousand_logs_with_few_clicks() {
    let rare = Shape {
        rounds: 14_000,
        uniform: 0.25,
        rewards: 0.3,
        ..PLAIN
    };
    print_coverage(&[("few clicks", rare)]);
}
