//! What the fuzz targets do (`fuzz/`), for a moment and without their tools: bytes that nobody would
//! send, and good ones that were tampered with.

use std::sync::Arc;

use proptest::prelude::*;
use sclub_server::api::{App, probe};
use sclub_server::decision::{Features, Handed, Sealer, Shown};
use sclub_server::engine::Engine;
use sclub_server::event::{Event, Item, Reward, Stamped};
use sclub_server::identity::Identity;
use sclub_server::settings::Settings;
use sclub_server::state::{Effect, State};
use sclub_server::store::memory::Memory;

fn app() -> Arc<App> {
    let settings = Settings {
        dim: Some(2),
        journal: false,
        ..Settings::default()
    };
    let engine = Engine::open(Arc::new(Memory::new()), &settings).unwrap();
    let app = App::new(settings);
    app.begin(engine);
    app
}

fn requests() -> Vec<Vec<u8>> {
    [
        r#"{"user":"u1","candidates":["i1","i2"],"k":2}"#,
        r#"{"user":"u1","items":[{"id":"a","features":[0.5,-1e-3]},{"id":"b","features":[1,2]}]}"#,
        r#"{"user":"\u00fc","exclude":["x"],"k":18446744073709551615}"#,
        r#"{"decision":"AQID","reward":0.5,"item":"a"}"#,
        r#"{"requests":[{"user":"u"},{"user":"v","k":0}]}"#,
        r#"{"feedback":[{"decision":"","reward":-0.0}]}"#,
        r#"{"id":"i1","features":[0.25,1e999]}"#,
        r#"{"users":1000}"#,
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

fn events() -> Vec<Event> {
    let reward = Reward {
        number: 1 << 40,
        user: "u".to_owned(),
        item: "i".to_owned(),
        features: vec![0.5, 0.25],
        score: 1.0,
        cluster: 1,
        decided: 5,
        reward: 1.0,
    };
    vec![
        Event::Expect { users: 3 },
        Event::Learn {
            round: vec![reward.clone(), reward],
        },
        Event::Upsert {
            items: vec![Item {
                id: "i".to_owned(),
                features: vec![1.0, 0.0],
            }],
        },
        Event::Remove {
            item: "i".to_owned(),
        },
        Event::Forget {
            user: "u".to_owned(),
        },
        Event::Fit { fit: vec![1, 2, 3] },
    ]
}

/// Good bytes with some changed, left out or put in.
fn tampered(good: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let change = (any::<prop::sample::Index>(), any::<u8>(), 0..3u8);
    (
        prop::sample::select(good),
        prop::collection::vec(change, 0..6),
    )
        .prop_map(|(mut bytes, changes)| {
            for (index, byte, kind) in changes {
                if bytes.is_empty() {
                    break;
                }
                let place = index.index(bytes.len());
                match kind {
                    0 => bytes[place] = byte,
                    1 => drop(bytes.remove(place)),
                    _ => bytes.insert(place, byte),
                }
            }
            bytes
        })
}

fn bytes(good: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => tampered(good),
        1 => prop::collection::vec(any::<u8>(), 0..200),
    ]
}

#[test]
fn no_request_breaks_anything() {
    let app = app();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(3000));
    runner
        .run(&bytes(requests()), |bytes| {
            probe(&app, &bytes);
            Ok(())
        })
        .unwrap();
}

#[test]
fn no_log_breaks_anything() {
    let identity = Identity::new(&Settings::default()).unwrap();
    let stamped = |event| Stamped { at: 7, event };
    let good: Vec<Vec<u8>> = events()
        .into_iter()
        .map(|event| stamped(event).encode())
        .collect();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(3000));
    runner
        .run(&prop::collection::vec(bytes(good), 1..6), |log| {
            let mut state = State::new(identity.clone()).unwrap();
            let mut effect = Effect::default();
            for bytes in log {
                let Ok(event) = Stamped::decode(&bytes) else {
                    continue;
                };
                if state.apply(&event, &mut effect).is_err() {
                    break;
                }
            }
            let hash = state.hash();
            let mut saved = Vec::new();
            state.save(&mut saved).unwrap();
            let again = State::load(identity.clone(), &mut saved.as_slice()).unwrap();
            prop_assert_eq!(again.hash(), hash);
            Ok(())
        })
        .unwrap();
}

#[test]
fn no_snapshot_and_no_decision_breaks_anything() {
    let identity = Identity::new(&Settings::default()).unwrap();
    let mut state = State::new(identity.clone()).unwrap();
    for event in events().into_iter().take(3) {
        let stamped = Stamped { at: 7, event };
        state.apply(&stamped, &mut Effect::default()).unwrap();
    }
    let mut saved = Vec::new();
    state.save(&mut saved).unwrap();
    let shown = |features| Shown {
        item: "i".into(),
        score: 0.5,
        features,
    };
    let handed = Handed {
        number: 1,
        at: 2,
        user: "u".into(),
        cluster: 1,
        shown: vec![
            shown(Features::Catalogue(3)),
            shown(Features::Inline(vec![0.5])),
        ],
    };
    let sealer = Sealer::new([3; 32]);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(2000));
    runner
        .run(&bytes(vec![saved, handed.encode()]), |bytes| {
            let _ = State::load(identity.clone(), &mut bytes.as_slice());
            let _ = Handed::decode(&bytes);
            let _ = sealer.open(&String::from_utf8_lossy(&bytes));
            Ok(())
        })
        .unwrap();
}
