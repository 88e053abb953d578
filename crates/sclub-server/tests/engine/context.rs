//! Context features of requests: they are learned with the item, survive restarts, and are exported.

use std::collections::BTreeMap;

use sclub::{ContextMode, ItemSet, LinUcbInd, Params, Policy};
use sclub_server::context::ContextValue;
use sclub_server::engine::{
    CandidateSet, Feedback, OpenError, RecommendQuery, Recommended, Refusal, Rules,
};
use sclub_server::env::Env;
use sclub_server::settings::Settings;
use sclub_server::state::Scratch;
use serde_json::json;

use crate::bench::{Bench, DIM, of, verified};

const ITEMS: [f64; 3 * DIM] = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.6, 0.8];

fn settings(mode: ContextMode) -> Settings {
    Settings {
        context: vec!["hour".to_owned(), "device=phone|tv".to_owned()],
        context_mode: Some(mode.to_string()),
        ..of("linucb-ind")
    }
}

fn context(json: serde_json::Value) -> BTreeMap<String, ContextValue> {
    serde_json::from_value(json).unwrap()
}

fn recommend(
    bench: &Bench,
    among: CandidateSet<'_>,
    context: Option<&BTreeMap<String, ContextValue>>,
) -> Result<Recommended, Refusal> {
    let asked = RecommendQuery {
        user: "u",
        among,
        rules: Rules::default(),
        k: 2,
        context,
    };
    bench.engine.recommend(&asked, &mut Scratch::default())
}

/// The service decides as the library does on joined features.
#[test]
fn a_context_is_joined_with_the_features_of_the_items() {
    let names = ["a", "b", "c"];
    let items = ItemSet::from_rows(DIM, &ITEMS).unwrap();
    let contexts = [
        (None, [0.0, 0.0, 0.0]),
        (Some(json!({"hour": 0.5})), [0.5, 0.0, 0.0]),
        (Some(json!({"device": "tv", "hour": -1})), [-1.0, 0.0, 1.0]),
        (Some(json!({"device": "phone"})), [0.0, 1.0, 0.0]),
    ];
    for mode in ContextMode::ALL {
        let mut bench = Bench::with_items(Env::real(), &settings(mode));
        let mut policy = LinUcbInd::new(mode.dim(DIM, 3), &Params::tuned()).unwrap();
        for round in 0..60 {
            let (given, encoded) = &contexts[round * 7 % contexts.len()];
            let given = given.clone().map(context);
            let among = match round % 3 {
                0 => CandidateSet::All,
                1 => CandidateSet::Candidates(names.to_vec()),
                _ => CandidateSet::Inline(names.to_vec(), &items),
            };
            let shown = recommend(&bench, among, given.as_ref()).unwrap();
            let joined = items.with_context(encoded, mode).unwrap();
            let mut best = Vec::new();
            policy.best(0, &joined, 2, &|_| false, &mut best).unwrap();
            // Ties are broken by a draw, so items of equal score may be others.
            let mut scores = Vec::new();
            policy.explain(0, &joined, &mut scores).unwrap();
            let index = |item: &str| names.iter().position(|name| *name == item).unwrap();
            for ((item, score), best) in shown.items.iter().zip(&best) {
                assert_eq!(*score, scores[index(item)], "round {round}");
                let difference = (score.score - best.score.score).abs();
                assert!(difference < 1e-12, "round {round}: {score:?} and {best:?}");
            }
            assert_eq!(shown.items.len(), best.len());

            let second = index(&shown.items[1].0);
            let reward = f64::from(u8::from(encoded[2] == 1.0) ^ u8::from(second == 0));
            let item = Some(names[second]);
            bench.feedback_on(&shown.decision, item, reward).unwrap();
            let features: Vec<f64> = joined.item(second).collect();
            policy.learn(0, &features, reward).unwrap();
            if round == 30 {
                bench = bench.crash();
            }
        }
        assert_eq!(verified(bench.killed().path()), bench.hash());
    }
}

#[test]
fn contexts_are_exported_by_name() {
    let bench = Bench::with_items(Env::real(), &settings(ContextMode::Cross));
    let evening = context(json!({"hour": 0.75, "device": "phone"}));
    let all = || CandidateSet::All;
    let rewarded = recommend(&bench, all(), Some(&evening)).unwrap();
    bench.feedback(&rewarded.decision, 1.0).unwrap();
    recommend(&bench, all(), None).unwrap();
    let lines = bench.export();
    assert_eq!(lines.len(), 4);
    for (line, is_evening) in lines.iter().zip([true, true, false, false]) {
        let expected = is_evening.then(|| json!({"hour": 0.75, "device": "phone"}));
        assert_eq!(line.get("context"), expected.as_ref(), "{line}");
        assert_eq!(line["features"].as_array().map(Vec::len), Some(DIM));
    }
    bench.forget("u").unwrap();
    bench.compact();
    assert!(bench.export().is_empty());
}

#[test]
fn a_folder_keeps_its_context_features() {
    let cross = settings(ContextMode::Cross);
    let bench = Bench::with_items(Env::real(), &cross);
    let unknown = context(json!({"moon": 1}));
    let refused = recommend(&bench, CandidateSet::All, Some(&unknown)).unwrap_err();
    assert!(refused.to_string().contains("hour, device"), "{refused}");
    let folder = bench.close();
    let open = |change: &dyn Fn(&mut Settings)| {
        let mut other = cross.clone();
        change(&mut other);
        sclub_server::engine::Engine::open(Env::real(), folder.path(), &other)
            .map(drop)
            .map_err(|error: OpenError| error.to_string())
    };
    let error = open(&|s| s.context.truncate(1)).unwrap_err();
    assert!(error.contains("hour,device=phone|tv"), "{error}");
    let error = open(&|s| s.context_mode = Some("append".to_owned())).unwrap_err();
    assert!(error.contains("context-mode"), "{error}");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _guard = runtime.enter();
    open(&|s| (s.context, s.context_mode) = (Vec::new(), None)).unwrap();
}

#[test]
fn the_rewards_of_a_list_are_one_round() {
    let bench = Bench::with_items(Env::real(), &of("linucb-ind"));
    let shown = bench.recommend("u", 3).unwrap();
    let give = |rewards: &[f64]| {
        let given = Feedback::of_list(&shown.decision, rewards);
        bench.runtime.block_on(bench.engine.feedback(&given))
    };
    let refused = give(&[0.0, 1.0, 2.0]).unwrap_err().to_string();
    assert!(refused.contains("the reward is 2"), "{refused}");
    let refused = give(&[0.0; 4]).unwrap_err().to_string();
    assert!(refused.contains("4 rewards for 3 items"), "{refused}");
    let refused = give(&[]).unwrap_err().to_string();
    assert!(refused.contains("there are no rewards"), "{refused}");
    assert_eq!(bench.rounds(), 0);
    assert_eq!(give(&[0.0, 1.0]), Ok(true));
    assert_eq!(
        (bench.rounds(), bench.engine.state().rewards()),
        (1, (2, 1.0))
    );
    assert_eq!(give(&[0.0, 1.0]), Ok(false));
    // The user looked further.
    assert_eq!(give(&[0.0, 1.0, 1.0]), Ok(true));
    assert_eq!(
        (bench.rounds(), bench.engine.state().rewards()),
        (2, (3, 2.0))
    );
    let last = bench.recommend("v", 3).unwrap();
    let item = last.items[1].0.clone();
    bench
        .feedback_on(&last.decision, Some(&item), 0.25)
        .unwrap();
    let lines = bench.export();
    let lines = lines.iter().map(|line| {
        let item = line["item"].as_str().unwrap().to_owned();
        let position = line["position"].as_u64().unwrap() as usize;
        (item, position, line["reward"].as_f64())
    });
    let of = |shown: &Recommended, position: usize, reward| {
        (shown.items[position].0.clone(), position, reward)
    };
    let expected = [
        of(&shown, 0, Some(0.0)),
        of(&shown, 1, Some(1.0)),
        of(&shown, 2, Some(1.0)),
        of(&last, 1, Some(0.25)),
        of(&last, 0, None),
        of(&last, 2, None),
    ];
    assert_eq!(lines.collect::<Vec<_>>(), expected);
}
