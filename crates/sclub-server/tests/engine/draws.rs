//! Policies that draw at random: each decision has a draw of its own, which its number determines.

use std::collections::HashSet;

use sclub_server::decision::{DecisionContents, Sealer};
use sclub_server::engine::{CandidateSet, RecommendQuery, Recommended, Rules};
use sclub_server::env::Env;
use sclub_server::event::Item;
use sclub_server::settings::Settings;
use sclub_server::state::{Choice, Draws, Scratch, Ties};

use crate::bench::{Bench, of, verified};

/// A server with three items. Nothing is learned, so that all scores are draws.
fn bench() -> Bench {
    let settings = Settings {
        snapshot_every: u64::MAX,
        ..of("lints")
    };
    Bench::with_items(Env::real(), &settings)
}

/// The items of a decision, chosen again from its numbers.
fn again(bench: &Bench, shown: &Recommended, user: &str, k: usize) -> Vec<(String, f64)> {
    let state = bench.engine.state();
    let sealer = Sealer::new(state.identity().key());
    let bytes = sealer.open(&shown.decision).unwrap();
    let contents = DecisionContents::decode(&bytes).unwrap();
    let draws = Draws {
        ties: Ties::Draw,
        explore_share: 0.0,
        number: sealer.draw(contents.life, contents.number),
        further: None,
    };
    let all = Choice::All {
        among: None,
        exclude: &[],
    };
    let chosen = state.choose(
        draws,
        user,
        &all,
        state.catalogue(),
        &[],
        k,
        &mut Scratch::default(),
    );
    let entry = |index: usize| state.catalogue().unwrap().entry(index).id.to_string();
    let chosen = chosen.unwrap().decisions.into_iter();
    chosen.map(|d| (entry(d.index), d.score.score)).collect()
}

fn ids_and_scores(shown: &Recommended) -> Vec<(String, f64)> {
    let items = shown.items.iter();
    items.map(|(id, score)| (id.clone(), score.score)).collect()
}

#[test]
fn newcomers_get_different_items_before_anything_is_learned() {
    let bench = bench();
    for k in [1, 3] {
        let shown = (0..50).map(|n| bench.recommend(&format!("new{n}"), k).unwrap());
        let first: HashSet<String> = shown.map(|shown| shown.items[0].0.clone()).collect();
        assert!(first.len() > 1, "{first:?}");
    }
    // The same user as well.
    let shown = (0..50).map(|_| bench.recommend("u", 1).unwrap().items[0].0.clone());
    assert!(shown.collect::<HashSet<_>>().len() > 1);
}

/// A server of the default policy with 3,000 items.
fn large() -> Bench {
    let settings = Settings {
        policy: None,
        ..of("")
    };
    let bench = Bench::with(Env::real(), &settings);
    let mut random = 1u64;
    let mut feature = || {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 11) as f64 / (1u64 << 53) as f64 - 0.5
    };
    let items = (0..3_000).map(|number| Item {
        id: format!("i{number}"),
        features: (0..20).map(|_| feature()).collect(),
    });
    let put = bench.engine.upsert(items.collect());
    assert_eq!(bench.runtime.block_on(put), Ok(3_000));
    bench
}

/// A thousand rewards. Each user likes every second item.
fn learn(bench: &Bench) {
    for round in 0..1_000u32 {
        let shown = bench.recommend(&format!("u{}", round % 100), 1).unwrap();
        let reward = (round / 100 + round) % 2;
        assert_eq!(bench.feedback(&shown.decision, f64::from(reward)), Ok(true));
    }
    bench.settle();
}

/// Without a reward between them, as when rewards come late.
#[test]
fn newcomers_see_many_items_of_a_large_catalogue() {
    let bench = large();
    let distinct = |stage: &str| {
        let shown = (0..200).map(|n| bench.recommend(&format!("{stage}{n}"), 10).unwrap());
        let ids = shown.flat_map(|shown| shown.items).map(|(id, _)| id);
        ids.collect::<HashSet<String>>().len()
    };
    let first = distinct("first");
    assert!(first >= 100, "{first} items before the first reward");
    learn(&bench);
    let later = distinct("later");
    // About 145, by the folder's key.
    assert!(later >= 80, "{later} items after a thousand rewards");
}

/// The best items of one draw are those that scoring every item by itself gives.
#[test]
fn a_large_catalogue_is_searched_exactly_with_a_draw() {
    let bench = large();
    learn(&bench);
    let state = bench.engine.state();
    let slots: Vec<usize> = (0..3_000).filter(|&slot| slot != 7).collect();
    for (number, user) in [(1, "u3"), (2, "u3"), (3, "new")] {
        let draws = Draws {
            ties: Ties::Draw,
            explore_share: 0.0,
            number,
            further: None,
        };
        let choose = |choice: &Choice<'_>, k: usize| {
            let chosen = state.choose(
                draws,
                user,
                choice,
                state.catalogue(),
                &[],
                k,
                &mut Scratch::default(),
            );
            let chosen = chosen.unwrap().decisions.into_iter();
            chosen.map(|d| (d.index, d.score.score)).collect::<Vec<_>>()
        };
        let best = choose(
            &Choice::All {
                among: None,
                exclude: &[7],
            },
            10,
        );
        let mut scored = Vec::new();
        for some in slots.chunks(500) {
            let part = choose(&Choice::Slots(some), 500);
            assert_eq!(part.len(), some.len());
            scored.extend(part.into_iter().map(|(place, score)| (some[place], score)));
        }
        scored.sort_by(|a, b| b.1.total_cmp(&a.1));
        assert_eq!(best, scored[..10], "draw {number} for {user}");
    }
}

#[test]
fn a_number_gives_the_same_choice_on_the_same_state() {
    let mut bench = bench();
    bench.serve("u", 5);
    let mut last = None;
    for (user, k) in [("u", 1), ("u", 3), ("new", 1), ("new", 2)] {
        let shown = bench.recommend(user, k).unwrap();
        assert_eq!(again(&bench, &shown, user, k), ids_and_scores(&shown));
        last = Some((shown, user, k));
    }
    // Also after a restart, which has another epoch.
    bench = bench.crash();
    let (shown, user, k) = last.unwrap();
    assert_eq!(again(&bench, &shown, user, k), ids_and_scores(&shown));
    assert_eq!(bench.feedback(&shown.decision, 1.0), Ok(true));
    assert_eq!(verified(bench.killed().path()), bench.hash());
}

#[test]
fn requests_of_a_batch_have_numbers_of_their_own() {
    let bench = bench();
    let asked = |candidates: Vec<&'static str>| RecommendQuery {
        user: "u",
        among: CandidateSet::Candidates(candidates),
        rules: Rules::default(),
        k: 3,
        context: None,
    };
    let all: Vec<_> = (0..20).map(|_| asked(vec!["a", "b", "c"])).collect();
    let shown = bench.engine.recommend_all(&all).unwrap();
    let first: HashSet<String> = shown.iter().map(|shown| shown.items[0].0.clone()).collect();
    assert!(first.len() > 1, "{first:?}");
    // A refused request does not affect the others.
    let strict = Rules {
        strict: true,
        ..Rules::default()
    };
    let strange = RecommendQuery {
        rules: strict,
        ..asked(vec!["strange"])
    };
    let refused = [asked(vec!["a"]), strange];
    assert!(bench.engine.recommend_all(&refused).is_err());
    let later = bench.recommend("u", 2).unwrap();
    for shown in shown.iter().chain([&later]) {
        for (item, _) in &shown.items {
            assert_eq!(
                bench.feedback_on(&shown.decision, Some(item), 1.0),
                Ok(true)
            );
        }
    }
    assert_eq!(bench.engine.state().rewards().0, 62);
    assert_eq!(bench.export().len(), 62);
}
