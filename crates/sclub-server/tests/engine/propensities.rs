//! Propensities: the probability of each item shown, in the answer, the journal and the export.

use std::collections::{BTreeMap, BTreeSet};

use sclub_server::decision::{DecisionContents, Sealer};
use sclub_server::engine::{CandidateSet, RecommendQuery, Recommended, Rules};
use sclub_server::env::Env;
use sclub_server::identity::DEFAULT;
use sclub_server::settings::Settings;

use crate::bench::{Bench, of};

fn with(policy: &str, propensities: u32) -> Settings {
    Settings {
        propensities,
        snapshot_every: u64::MAX,
        ..of(policy)
    }
}

fn among<'a>(user: &'a str, candidates: &[&'a str], k: usize) -> RecommendQuery<'a> {
    RecommendQuery {
        user,
        among: CandidateSet::Candidates(candidates.to_vec()),
        rules: Rules::default(),
        k,
        context: None,
    }
}

/// The contents of a sealed decision, and its bytes.
fn opened(bench: &Bench, shown: &Recommended) -> (DecisionContents<'static>, Vec<u8>) {
    let sealer = Sealer::new(bench.engine.state().identity().key());
    let bytes = sealer.open(&shown.decision).unwrap();
    let contents = DecisionContents::decode(&bytes).unwrap().into_owned();
    (contents, bytes)
}

/// The propensity of each item shown, by its number.
fn told(bench: &Bench, shown: &Recommended) -> Vec<(u64, Option<f64>)> {
    let first = opened(bench, shown).0.number;
    let places = 0..shown.items.len();
    let told = places.map(|place| {
        let propensity = shown.propensities.get(place).copied();
        (first + place as u64, propensity)
    });
    told.collect()
}

/// The propensity of each line of an export, by the number of the item shown.
fn exported(bench: &Bench) -> BTreeMap<u64, Option<f64>> {
    let lines = bench.export();
    let line = lines.iter().map(|line| {
        assert!(line.as_object().unwrap().contains_key("propensity"));
        let number = line["decision"].as_u64().unwrap();
        (number, line["propensity"].as_f64())
    });
    line.collect()
}

#[test]
fn weights_of_the_decisions_that_showed_an_item_add_up_to_all_decisions() {
    weights_add_up("lints");
    weights_add_up(DEFAULT);
}

fn weights_add_up(policy: &str) {
    const DECISIONS: usize = 4_000;
    let bench = Bench::with(Env::real(), &with(policy, 60));
    bench.put("a", [1.0, 0.0, 0.0]).unwrap();
    bench.put("b", [0.9, 0.3, 0.0]).unwrap();
    // The user likes one of the two a little better.
    for reward in [1.0, 1.0, 0.5] {
        let shown = bench.engine.recommend_all(&[among("u", &["b"], 1)]);
        let decision = &shown.unwrap()[0].decision;
        assert_eq!(bench.feedback(decision, reward), Ok(true));
    }
    let mut weights: BTreeMap<String, (usize, f64)> = BTreeMap::new();
    for _ in 0..DECISIONS {
        let shown = bench.recommend("u", 1).unwrap();
        let (item, propensity) = (shown.items[0].0.clone(), shown.propensities[0]);
        assert!((1.0 / 61.0..=1.0).contains(&propensity), "{propensity}");
        let (count, weight) = weights.entry(item).or_default();
        *count += 1;
        *weight += 1.0 / propensity;
    }
    assert_eq!(weights.len(), 2, "{weights:?}");
    for (item, (count, weight)) in weights {
        // Not so close to certain that the test would be empty.
        assert!((400..3_600).contains(&count), "{policy}, {item}: {count}");
        let mean = weight / count as f64;
        let share = count as f64 / DECISIONS as f64;
        let error = mean * share - 1.0;
        // Five standard errors of the share.
        let allowed = 5.0 * ((1.0 - share) / share / DECISIONS as f64).sqrt();
        assert!(
            error.abs() < allowed,
            "{policy}, {item}: {mean} against 1/{share}, {error} > {allowed}"
        );
    }
}

#[test]
fn the_export_has_the_propensities_of_the_answers() {
    let settings = with("lints", 20);
    let mut bench = Bench::with_items(Env::real(), &settings);
    let mut all = BTreeMap::new();
    let mut waiting = Vec::new();
    for round in 0..30 {
        let user = format!("u{}", round % 4);
        let shown = bench.recommend(&user, 1 + round % 3).unwrap();
        assert_eq!(shown.propensities.len(), shown.items.len());
        all.extend(told(&bench, &shown));
        match round % 3 {
            0 => waiting.push(shown.decision),
            _ => {
                let last = shown.items.last().unwrap().0.as_str();
                let learned = bench.feedback_on(&shown.decision, Some(last), 1.0);
                assert_eq!(learned, Ok(true));
            }
        }
    }
    let batch = [
        among("u0", &["a", "b", "c"], 2),
        among("new", &["b", "c"], 1),
        among("new", &["c"], 1),
    ];
    let shown = bench.engine.recommend_all(&batch).unwrap();
    // The only candidate is certain.
    assert_eq!(shown[2].propensities, [1.0]);
    for shown in &shown {
        all.extend(told(&bench, shown));
    }
    assert!(all.values().any(|p| p.is_some_and(|p| p < 1.0)));
    assert_eq!(exported(&bench), all);

    // Off, in the same folder: earlier propensities stay, later decisions have none.
    bench = Bench::at(bench.close(), Env::real(), &with("lints", 0));
    let shown = bench.recommend("u1", 2).unwrap();
    assert!(shown.propensities.is_empty());
    all.extend(told(&bench, &shown));
    for decision in &waiting {
        assert_eq!(bench.feedback(decision, 0.0), Ok(true));
    }
    assert_eq!(exported(&bench), all);

    // On again, and with a user forgotten.
    bench = Bench::at(bench.close(), Env::real(), &settings);
    all.extend(told(&bench, &bench.recommend("u2", 2).unwrap()));
    let is_of = |line: &serde_json::Value| line["user"] == "u3";
    for line in bench.export().iter().filter(|line| is_of(line)) {
        all.remove(&line["decision"].as_u64().unwrap());
    }
    bench.forget("u3").unwrap();
    assert_eq!(exported(&bench), all);
    assert!(bench.compact() > 0);
    assert_eq!(exported(&bench), all);
}

#[test]
fn a_policy_that_does_not_draw_is_certain_of_every_item() {
    for policy in ["sclub", "linucb-one"] {
        let bench = Bench::with_items(Env::real(), &with(policy, 10_000));
        // Different rewards, so that there are no ties.
        let mut expected = BTreeMap::new();
        for (item, reward) in [("a", 1.0), ("b", 0.5), ("c", 0.25)] {
            let shown = bench
                .engine
                .recommend_all(&[among("u", &[item], 1)])
                .unwrap();
            assert_eq!(bench.feedback(&shown[0].decision, reward), Ok(true));
            expected.extend(told(&bench, &shown[0]));
        }
        let shown = bench.recommend("u", 2).unwrap();
        assert_eq!(shown.propensities, [1.0, 1.0], "{policy}");
        assert_eq!(shown.slot_propensities, [1.0, 1.0], "{policy}");
        expected.extend(told(&bench, &shown));
        assert_eq!(exported(&bench), expected, "{policy}");
    }
}

/// The versions of the batches in the journal.
fn versions(bench: &Bench) -> BTreeSet<u8> {
    let journal = &bench.engine.folder().journal;
    let batches = journal.read(journal.first().unwrap() - 1).unwrap();
    batches.map(|batch| batch.unwrap().1[0]).collect()
}

/// Earlier versions read the journal of a server without propensities, and the decisions of any server.
#[test]
fn propensities_are_not_sealed_and_without_them_the_journal_is_as_before() {
    for propensities in [0, 5] {
        let bench = Bench::with_items(Env::real(), &with("lints", propensities));
        let shown = bench.recommend("u", 3).unwrap();
        let (contents, bytes) = opened(&bench, &shown);
        assert_eq!(contents.encode(), bytes);
        assert_eq!((bytes[0], contents.shown.len()), (2, 3));
        assert_eq!(bench.export().len(), 3);
        let expected = match propensities {
            0 => 2,
            _ => 5,
        };
        assert!(versions(&bench).is_subset(&BTreeSet::from([2, expected])));
        assert!(versions(&bench).contains(&expected));
        // Rewards are as before in any case.
        assert_eq!(bench.feedback(&shown.decision, 1.0), Ok(true));
        let lines = bench.export();
        assert_eq!(lines[0]["reward"], 1.0);
        assert_eq!(lines[0]["propensity"].is_null(), propensities == 0);
    }
}

/// `sclub serve --explore-share 0.05`: the default policy draws at random.
#[test]
fn with_uniform_lists_any_policy_logs_probabilities_and_candidates() {
    for policy in [DEFAULT, "lints", "linucb-one"] {
        let settings = Settings {
            explore_share: 0.05,
            ..with(policy, 0)
        };
        let bench = Bench::with_items(Env::real(), &settings);
        let text = bench.engine.off_policy(&bench.engine.state());
        assert!(text.starts_with("the log has the probability"), "{text}");
        let shown = bench.recommend("u", 2).unwrap();
        assert_eq!(shown.propensities.len(), 2, "{policy}");
        assert_eq!(shown.slot_propensities.len(), 2, "{policy}");
        for line in bench.export() {
            assert!(line["propensity"].as_f64().is_some(), "{line}");
            assert!(line["slot_propensity"].as_f64().is_some(), "{line}");
            assert_eq!(line["catalogue"]["revision"], 3);
        }
    }
    let off = Bench::with_items(Env::real(), &with(DEFAULT, 0));
    assert!(off.recommend("u", 2).unwrap().propensities.is_empty());
    assert!(
        off.engine
            .off_policy(&off.engine.state())
            .contains("--propensities")
    );
    let none = Settings {
        journal_days: 0,
        ..with(DEFAULT, 100)
    };
    let none = Bench::with_items(Env::real(), &none);
    let text = none.engine.off_policy(&none.engine.state());
    assert!(text.contains("journal-days is 0"), "{text}");
}
