//! Estimates against sums by hand, and intervals against worlds whose truth is known.

use std::fs;

use rand::RngExt;

use super::*;
use crate::streams::stream;

const DIM: usize = 4;
const ITEMS: usize = 10;

/// A world with fixed items and users of two tastes, and a policy that logs: mostly one item, else a random one.
struct Known {
    means: Vec<[f64; ITEMS]>,
    log: Log,
}

fn known(seed: u64, rounds: usize, slots: usize) -> Known {
    let mut rng = stream(seed, Purpose::Tastes, 0);
    let rows: Vec<f64> = (0..ITEMS * DIM)
        .map(|_| rng.random_range(0.0..0.5))
        .collect();
    let tastes: Vec<[f64; DIM]> = (0..2)
        .map(|_| std::array::from_fn(|_| rng.random_range(0.0..0.5)))
        .collect();
    let means: Vec<[f64; ITEMS]> = tastes
        .iter()
        .map(|taste| std::array::from_fn(|item| dot(taste, &rows[item * DIM..][..DIM])))
        .collect();
    let (users, favourite) = (20u32, rng.random_range(0..ITEMS));
    let epsilon = 0.5;
    let mut log = Log {
        items: ItemSet::from_rows(DIM, &rows).unwrap(),
        rounds: Vec::new(),
        shown: Vec::new(),
        candidates: Vec::new(),
        users: u64::from(users),
        notes: Vec::new(),
    };
    for _ in 0..rounds {
        let user = rng.random_range(0..users);
        let first = log.shown.len();
        // A slot is filled with the favourite or a random item; slots of a list have disjoint parts of the items.
        for slot in 0..slots {
            let part = ITEMS / slots;
            let own = slot * part..(slot + 1) * part;
            let best = own.start + favourite % part;
            let item = match rng.random_bool(epsilon) {
                true => rng.random_range(own.clone()),
                false => best,
            };
            let spread = epsilon / part as f64;
            let mean = means[user as usize % 2][item];
            log.shown.push(ShownItem {
                item: item as u32,
                propensity: if item == best {
                    1.0 - epsilon + spread
                } else {
                    spread
                },
                reward: f64::from(rng.random_bool(mean)),
            });
        }
        log.rounds.push(Round {
            user,
            slots: slots as u32,
            shown: first..log.shown.len(),
            candidates: 0..0,
        });
    }
    Known { means, log }
}

/// The mean of the true mean rewards of the choices of a policy that learns the log.
fn truth(known: &Known, name: Name) -> f64 {
    let log = &known.log;
    let mut policy = make(log, name, 1).unwrap();
    let (mut total, mut count) = (0.0, 0.0);
    for (number, round) in log.rounds.iter().enumerate() {
        let draw = mix(&[1, Purpose::Decisions as u64, number as u64]);
        let mut list = Vec::new();
        let user = UserId::from(round.user);
        let slots = round.slots as usize;
        policy
            .recommend_list_drawn(draw, user, &log.items, slots, &|_| false, &mut list)
            .unwrap();
        for decision in list {
            total += known.means[round.user as usize % 2][decision.index];
            count += 1.0;
        }
        let shown = &log.shown[round.shown.clone()];
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

/// The share of logs whose 95% interval has the truth in it: IPS, SNIPS, DR, for each policy.
fn coverage(logs: u64, rounds: usize, slots: usize, policies: &[Name]) -> Vec<[f64; 3]> {
    let hits: Vec<Vec<[bool; 3]>> = (0..logs)
        .into_par_iter()
        .map(|seed| {
            let known = known(seed, rounds, slots);
            let all = evaluate(&known.log, policies, 1, 1, &()).unwrap().unwrap();
            all.iter()
                .map(|one| {
                    let truth = truth(&known, one.policy);
                    [one.weighted.ips, one.weighted.snips, one.weighted.dr]
                        .map(|estimate| estimate.is_some_and(|e| (e.low..=e.high).contains(&truth)))
                })
                .collect()
        })
        .collect();
    let share = |policy: usize, estimator: usize| {
        let hits = hits.iter().filter(|log| log[policy][estimator]).count();
        hits as f64 / logs as f64
    };
    (0..policies.len())
        .map(|policy| std::array::from_fn(|estimator| share(policy, estimator)))
        .collect()
}

const EVALUATED: [Name; 4] = [
    Name::LINUCB_ONE,
    Name::LINUCB_IND,
    Name::SCLUB,
    Name::RANDOM,
];

#[test]
fn intervals_hold_the_truth() {
    for (slots, rounds) in [(1, 800), (2, 800)] {
        for shares in coverage(150, rounds, slots, &EVALUATED) {
            // 0.95 within four standard errors of 150 logs.
            assert!(
                shares.iter().all(|share| *share > 0.88),
                "{slots}: {shares:?}"
            );
        }
    }
}

/// `cargo test -p sclub-lab --lib evaluate -- --ignored --nocapture` prints the coverage over 1,000 logs.
#[test]
#[ignore = "a minute or more"]
fn intervals_of_a_thousand_logs() {
    for slots in [1, 2] {
        let all = coverage(1000, 2000, slots, &EVALUATED);
        for (name, [ips, snips, dr]) in EVALUATED.iter().zip(&all) {
            println!("k = {slots}, {name}: IPS {ips:.3}, SNIPS {snips:.3}, DR {dr:.3}");
        }
        assert!(
            all.iter()
                .flatten()
                .all(|share| (0.93..=0.97).contains(share))
        );
    }
}

/// Replay is unbiased for a policy that learns from its own choices.
#[test]
fn replay_earns_what_the_policy_earns_online() {
    let (mut off, mut squares) = (0.0, 0.0);
    let logs = 60;
    for seed in 0..logs {
        let known = known(1000 + seed, 4000, 1);
        let all = evaluate(&known.log, &[Name::LINUCB_ONE], 1, 1, &())
            .unwrap()
            .unwrap();
        let replay = all[0].replay.unwrap();
        let accepted = all[0].accepted as usize;
        // As many rounds of the same policy in the same world, with its own choices.
        let mut rng = stream(seed, Purpose::Noise, 7);
        let mut policy = make(&known.log, Name::LINUCB_ONE, 1).unwrap();
        let mut total = 0.0;
        for _ in 0..accepted {
            let user = rng.random_range(0..20u64);
            let index = policy.recommend(user, &known.log.items).unwrap().index;
            let reward = f64::from(rng.random_bool(known.means[user as usize % 2][index]));
            let item: Vec<f64> = known.log.items.item(index).collect();
            policy.learn(user, &item, reward).unwrap();
            total += reward;
        }
        let difference = replay.value - total / accepted as f64;
        off += difference;
        squares += difference * difference;
    }
    let logs = logs as f64;
    let mean = off / logs;
    let error = ((squares / logs - mean * mean) / logs).sqrt();
    assert!(mean.abs() < 4.0 * error, "{mean} ± {error}");
}

#[test]
fn estimates_are_the_formulas() {
    let weights = [0.0, 2.0, 4.0, 0.0, 1.0];
    let rewards = [1.0, 0.5, 1.0, 0.0, 0.25];
    let robust = [0.5, 0.25, 2.0, 0.5, 0.1];
    let terms: Vec<Term> = (0..5)
        .map(|t| Term {
            rewards: weights[t] * rewards[t],
            weights: weights[t],
            doubly_robust: robust[t],
        })
        .collect();
    let Weighted {
        ips,
        snips,
        dr,
        effective,
        mean_weight,
    } = Weighted::new(&terms);
    assert!((ips.unwrap().value - 5.25 / 5.0).abs() < 1e-15);
    assert!((snips.unwrap().value - 5.25 / 7.0).abs() < 1e-15);
    assert!((dr.unwrap().value - 3.35 / 5.0).abs() < 1e-15);
    assert!((effective - 49.0 / 21.0).abs() < 1e-15);
    assert_eq!(mean_weight, 1.4);
    // The standard error of a mean: 0, 1, 4, 0, 0.25 have the variance 2.8875 (n − 1).
    let expected = (2.8875f64 / 5.0).sqrt();
    assert!(
        (ips.unwrap().error - expected).abs() < 1e-12,
        "{}",
        ips.unwrap().error
    );
}

#[test]
fn a_log_is_read_in_the_order_of_its_decisions() {
    let folder = tempfile::tempdir().unwrap();
    let (path, items) = (
        folder.path().join("log.jsonl"),
        folder.path().join("items.jsonl"),
    );
    let lines = [
        r#"{"decision":11,"user":"b","item":"y","position":1,"propensity":0.5,"features":[0,1],"reward":1,"decided":2,"rewarded":9}"#,
        r#"{"decision":5,"user":"a","item":"x","position":0,"propensity":0.25,"features":[1,0],"score":3,"reward":0.5,"candidates":["x","y"]}"#,
        "",
        r#"{"decision":10,"user":"b","item":"x","position":0,"propensity":0.5,"features":[1,0],"reward":null}"#,
        r#"{"decision":20,"user":"c","item":"x","position":null,"propensity":null,"features":[1,0],"reward":1}"#,
    ];
    fs::write(&path, lines.join("\n")).unwrap();
    // Candidates must be known before they are named.
    fs::write(
        &items,
        "{\"id\":\"y\",\"features\":[0,1]}\n{\"id\":\"x\",\"features\":[1,0]}\n",
    )
    .unwrap();
    let log = Log::read(&path, Some(&items), LogOptions::default()).unwrap();
    assert_eq!(log.rounds.len(), 2);
    assert_eq!(log.candidates, [1, 0]);
    let shown = |round: usize| &log.shown[log.rounds[round].shown.clone()];
    let item = |item, propensity, reward| ShownItem {
        item,
        propensity,
        reward,
    };
    assert_eq!(shown(0), [item(1, 0.25, 0.5)]);
    assert_eq!(shown(1), [item(0, 0.5, 1.0)]);
    assert_eq!((log.rounds[0].slots, log.rounds[1].slots), (1, 2));
    assert_eq!(log.notes.len(), 2, "{:?}", log.notes);
    let options = LogOptions {
        unanswered: Some(0.0),
    };
    let log = Log::read(&path, Some(&items), options).unwrap();
    assert_eq!(log.rounds[1].shown.len(), 2);
    let bad = [
        (r#"{"decision":1}"#, "line 1"),
        (&lines[0].replace("0.5", "1.5"), "at most 1"),
        (
            &lines[0].replace("\"reward\"", "\"context\":{},\"reward\""),
            "context",
        ),
    ];
    for (line, expected) in bad {
        fs::write(&path, line).unwrap();
        let error = Log::read(&path, None, LogOptions::default())
            .unwrap_err()
            .to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_log_without_draws_cannot_tell() {
    let mut known = known(1, 300, 1);
    known
        .log
        .shown
        .iter_mut()
        .for_each(|shown| shown.propensity = 1.0);
    let all = evaluate(&known.log, &[Name::LINUCB_ONE], 1, 1, &())
        .unwrap()
        .unwrap();
    assert!(
        all[0]
            .warning
            .as_ref()
            .unwrap()
            .contains("without random draws")
    );
    // A few rounds tell nothing either.
    let few = super::tests::known(1, 20, 1);
    let all = evaluate(&few.log, &[Name::LINUCB_ONE], 1, 1, &())
        .unwrap()
        .unwrap();
    assert!(
        all[0]
            .warning
            .as_ref()
            .unwrap()
            .contains("effective rounds")
    );
}
