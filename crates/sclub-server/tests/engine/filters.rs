//! Rules that narrow the candidates, ties, and lists that are drawn uniformly.

use std::collections::{BTreeMap, BTreeSet};

use sclub_server::description::Description;
use sclub_server::engine::{CandidateSet, RecommendQuery, Recommended, Refusal, Rules};
use sclub_server::env::Env;
use sclub_server::event::DescribedItem;
use sclub_server::filter::Filter;
use sclub_server::settings::Settings;
use sclub_server::state::{Scratch, Ties};
use serde_json::{Value, json};

use crate::bench::{Bench, of};

fn filter(filter: Value) -> Filter {
    Filter::parse(filter.as_object().unwrap()).unwrap()
}

/// Items on a circle, so that no two are alike. Every third is red, prices go up, and every seventh is sold out.
fn shop(settings: &Settings, count: usize) -> Bench {
    let bench = Bench::with(Env::real(), settings);
    let items = (0..count).map(|number| {
        let angle = number as f64;
        DescribedItem {
            id: format!("i{number}"),
            features: vec![angle.cos(), angle.sin(), 0.1],
            description: Description {
                title: Some(format!("Item {number}")),
                tags: vec![["red", "green", "blue"][number % 3].to_owned()],
                is_unavailable: number % 7 == 6,
                data: json!({"price": number}).to_string(),
            },
        }
    });
    let put = bench.engine.upsert(items.collect());
    assert_eq!(bench.runtime.block_on(put), Ok(count));
    bench
}

fn ask<'a>(
    bench: &Bench,
    among: CandidateSet<'a>,
    rules: Rules<'a>,
    k: usize,
) -> Result<Recommended, Refusal> {
    let asked = RecommendQuery {
        user: "u",
        among,
        rules,
        k,
        context: None,
    };
    bench.engine.recommend(&asked, &mut Scratch::default())
}

fn names(shown: &Recommended) -> Vec<&str> {
    shown.items.iter().map(|(item, _)| item.as_str()).collect()
}

/// Teaches the user's taste, so that scores differ.
fn teach(bench: &Bench) {
    for number in 0..20 {
        let id = format!("i{}", number * 3 + 1);
        let shown = ask(
            bench,
            CandidateSet::Candidates(vec![&id]),
            Rules::default(),
            1,
        );
        let Ok(shown) = shown else { continue };
        let reward = f64::from(number) / 20.0;
        assert_eq!(bench.feedback(&shown.decision, reward), Ok(true));
    }
}

#[test]
fn the_best_that_pass_are_shown_from_few_and_from_many() {
    let bench = shop(&of("linucb-ind"), 3000);
    teach(&bench);
    // The ranking of all that are available.
    let all = ask(&bench, CandidateSet::All, Rules::default(), 3000).unwrap();
    let all = names(&all);
    assert_eq!(all.len(), 3000 - 428);
    let number = |id: &str| id[1..].parse::<usize>().unwrap();
    assert!(all.iter().all(|id| number(id) % 7 != 6));
    type Passes = fn(usize) -> bool;
    let cases: [(Value, Passes); 4] = [
        (json!({"tags": "red"}), |n| n % 3 == 0),
        (
            json!({"tags": ["red", "green"], "price": {"min": 100}}),
            |n| n % 3 != 2 && n >= 100,
        ),
        (json!({"price": {"min": 990, "max": 1020}}), |n| {
            (990..=1020).contains(&n)
        }),
        (
            json!({"tags": {"none": ["blue"]}, "id": {"none": ["i1"]}}),
            |n| n % 3 != 2 && n != 1,
        ),
    ];
    for (text, passes) in cases {
        let filter = filter(text.clone());
        let rules = Rules {
            filter: Some(&filter),
            exclude: vec!["i0", "i999"],
            ..Rules::default()
        };
        let shown = ask(&bench, CandidateSet::All, rules.clone(), 5).unwrap();
        let is_candidate = |id: &&&str| passes(number(id)) && ![0, 999].contains(&number(id));
        let best: Vec<&str> = all.iter().filter(is_candidate).take(5).copied().collect();
        assert_eq!(names(&shown), best, "{text}");
        // The same among candidates that are named.
        let some: Vec<&str> = all.iter().step_by(2).copied().collect();
        let shown = ask(&bench, CandidateSet::Candidates(some.clone()), rules, 5).unwrap();
        let best = all
            .iter()
            .filter(|id| some.contains(id))
            .filter(is_candidate);
        assert_eq!(
            names(&shown),
            best.take(5).copied().collect::<Vec<_>>(),
            "{text}"
        );
    }
    let nothing = filter(json!({"tags": "purple"}));
    let rules = Rules {
        filter: Some(&nothing),
        ..Rules::default()
    };
    let refused = ask(&bench, CandidateSet::All, rules, 5).unwrap_err();
    assert!(
        refused.to_string().contains("do not pass the filter"),
        "{refused}"
    );
}

#[test]
fn missing_candidates_are_skipped_and_named() {
    let bench = shop(&of("linucb-ind"), 10);
    let some = || CandidateSet::Candidates(vec!["i1", "gone", "i2", "i6", "lost"]);
    let shown = ask(&bench, some(), Rules::default(), 5).unwrap();
    assert_eq!(shown.missing, ["gone", "lost"]);
    assert_eq!(
        names(&shown).into_iter().collect::<BTreeSet<_>>(),
        BTreeSet::from(["i1", "i2"])
    );
    let strict = Rules {
        strict: true,
        ..Rules::default()
    };
    let refused = ask(&bench, some(), strict, 5).unwrap_err();
    assert!(matches!(refused, Refusal::UnknownItem { id, .. } if id == "gone"));
    let rules = Rules {
        exclude: vec!["i1"],
        ..Rules::default()
    };
    assert_eq!(names(&ask(&bench, some(), rules, 5).unwrap()), ["i2"]);
    let nothing = ask(
        &bench,
        CandidateSet::Candidates(vec!["gone"]),
        Rules::default(),
        1,
    );
    assert!(matches!(nothing, Err(Refusal::NoCandidates(_))));
}

#[test]
fn what_the_user_has_seen_is_not_shown_again_even_after_a_start() {
    let settings = of("linucb-ind");
    let mut bench = shop(&settings, 12);
    let rules = |seen| Rules {
        seen,
        ..Rules::default()
    };
    let mut shown = BTreeSet::new();
    // 11 items are available.
    for round in 0..5 {
        let list = ask(&bench, CandidateSet::All, rules(10), 2).unwrap();
        shown.extend(names(&list).into_iter().map(str::to_owned));
        assert_eq!(shown.len(), 2 * (round + 1));
        if round == 2 {
            bench = Bench::at(bench.close(), Env::real(), &settings);
        }
    }
    let last = ask(&bench, CandidateSet::All, rules(10), 2).unwrap();
    assert_eq!(last.items.len(), 1, "one is left");
    let again = ask(&bench, CandidateSet::All, rules(1), 12).unwrap();
    assert_eq!(again.items.len(), 10);
    assert!(!names(&again).contains(&names(&last)[0]));
    bench.runtime.block_on(bench.engine.forget("u")).unwrap();
    assert_eq!(
        ask(&bench, CandidateSet::All, rules(10), 12)
            .unwrap()
            .items
            .len(),
        11
    );
}

#[test]
fn ties_are_broken_by_the_draw_and_never_by_position() {
    let settings = Settings {
        propensities: 1,
        ..of("linucb-ind")
    };
    let bench = shop(&settings, 30);
    // All items have the same length: a policy that has learned nothing cannot tell them apart.
    const DECISIONS: usize = 6000;
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut firsts: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..DECISIONS {
        let shown = ask(&bench, CandidateSet::All, Rules::default(), 5).unwrap();
        assert_eq!(shown.propensities, [5.0 / 26.0; 5]);
        assert_eq!(shown.slot_propensities, [1.0 / 26.0; 5]);
        *firsts.entry(names(&shown)[0].to_owned()).or_default() += 1;
        for item in names(&shown) {
            *counts.entry(item.to_owned()).or_default() += 1;
        }
    }
    for (counts, p) in [(&counts, 5.0 / 26.0), (&firsts, 1.0 / 26.0)] {
        assert_eq!(counts.len(), 26);
        let expected = p * DECISIONS as f64;
        let error = 5.0 * (expected * (1.0 - p)).sqrt();
        for (item, &count) in counts {
            assert!(
                (count as f64 - expected).abs() < error,
                "{item}: {count} of {expected}"
            );
        }
    }
    // Two items of the same features stay equal whatever is learned.
    teach(&bench);
    for id in ["twin-a", "twin-b"] {
        bench.put(id, [2.0, 0.3, 0.1]).unwrap();
    }
    let twins = || CandidateSet::Candidates(vec!["twin-a", "twin-b", "i1"]);
    let mut first = BTreeSet::new();
    for _ in 0..40 {
        let shown = ask(&bench, twins(), Rules::default(), 1).unwrap();
        assert_eq!(shown.propensities, [0.5]);
        first.insert(names(&shown)[0].to_owned());
        let both = ask(&bench, twins(), Rules::default(), 2).unwrap();
        assert_eq!(
            (both.propensities, both.slot_propensities),
            (vec![1.0; 2], vec![0.5; 2])
        );
    }
    assert_eq!(first.len(), 2);
    // Unless the request asks for the order of its candidates.
    let in_order = Rules {
        ties: Ties::Order,
        ..Rules::default()
    };
    for [one, other] in [["twin-a", "twin-b"], ["twin-b", "twin-a"]] {
        let both = CandidateSet::Candidates(vec!["i1", one, other]);
        let shown = ask(&bench, both, in_order.clone(), 2).unwrap();
        assert_eq!(names(&shown), [one, other]);
        assert_eq!(shown.slot_propensities, [1.0; 2]);
    }
}

#[test]
fn a_share_of_the_lists_is_uniform_and_probabilities_are_exact() {
    let settings = Settings {
        explore_share: 0.3,
        ..of("linucb-ind")
    };
    let bench = shop(&settings, 10);
    teach(&bench);
    const DECISIONS: usize = 8000;
    // The number of decisions that showed an item in a slot, and the sum of 1/p over them.
    let mut slots: BTreeMap<(String, usize), (usize, f64)> = BTreeMap::new();
    let mut lists: BTreeMap<String, (usize, f64)> = BTreeMap::new();
    for _ in 0..DECISIONS {
        let shown = ask(&bench, CandidateSet::All, Rules::default(), 2).unwrap();
        for (slot, item) in names(&shown).into_iter().enumerate() {
            let (count, weight) = slots.entry((item.to_owned(), slot)).or_default();
            *count += 1;
            *weight = shown.slot_propensities[slot];
            let (count, weight) = lists.entry(item.to_owned()).or_default();
            *count += 1;
            *weight = shown.propensities[slot];
        }
    }
    assert_eq!((slots.len(), lists.len()), (18, 9));
    let all = slots.values().chain(lists.values());
    for (count, p) in all {
        let expected = p * DECISIONS as f64;
        let error = 5.0 * (expected * (1.0 - p)).sqrt();
        assert!(
            (*count as f64 - expected).abs() < error,
            "{count} of {expected}"
        );
    }
    let sum = |all: Vec<f64>| all.into_iter().sum::<f64>();
    assert!((sum(lists.values().map(|v| v.1).collect()) - 2.0).abs() < 1e-9);
    assert!((sum(slots.values().map(|v| v.1).collect()) - 2.0).abs() < 1e-9);
    // The export has the draw, the candidates, and both probabilities.
    let some = CandidateSet::Candidates(vec!["i1", "i2", "i6", "nothing"]);
    ask(&bench, some, Rules::default(), 1).unwrap();
    let red = filter(json!({"tags": ["red"]}));
    let rules = Rules {
        filter: Some(&red),
        exclude: vec!["i0"],
        seen: 1,
        ..Rules::default()
    };
    ask(&bench, CandidateSet::All, rules, 1).unwrap();
    let lines = bench.export();
    let last = &lines[lines.len() - 2..];
    assert_eq!(last[0]["candidates"], json!(["i1", "i2"]));
    let catalogue =
        json!({"revision": 10, "filter": {"tags": ["red"]}, "exclude": ["i0"], "seen": 1});
    assert_eq!(last[1]["catalogue"], catalogue);
    for line in last {
        assert_eq!(line["draw"].as_str().unwrap().len(), 16);
        assert!(line["slot_propensity"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn uniform_lists_with_a_policy_that_draws_have_estimated_probabilities() {
    let settings = Settings {
        explore_share: 0.4,
        propensities: 300,
        ..of("lints")
    };
    let bench = shop(&settings, 5);
    teach(&bench);
    const DECISIONS: usize = 2000;
    let mut weights: BTreeMap<String, f64> = BTreeMap::new();
    for _ in 0..DECISIONS {
        let shown = ask(&bench, CandidateSet::All, Rules::default(), 1).unwrap();
        let p = shown.slot_propensities[0];
        assert_eq!(shown.propensities[0], p);
        assert!((0.4 / 5.0..=1.0).contains(&p), "{p}");
        *weights.entry(names(&shown)[0].to_owned()).or_default() += 1.0 / p;
    }
    // Each weight has the mean 1, and a second moment of 1/p, at most 12.5.
    for (item, weight) in weights {
        let error = weight / DECISIONS as f64 - 1.0;
        assert!(
            error.abs() < 5.0 * (12.5f64 / DECISIONS as f64).sqrt(),
            "{item}: {error}"
        );
    }
}
