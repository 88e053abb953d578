//! The fuzz targets (`fuzz/`) as short tests without their tools: random bytes, and valid ones with changes.

#[path = "common/mod.rs"]
mod common;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use sclub_server::api::{App, probe};
use sclub_server::decision::{DecisionContents, Features, Sealer, Shown};
use sclub_server::engine::Engine;
use sclub_server::env::Env;
use sclub_server::event::{Batch, Event, Item, ListItem, Reward, RewardedList, Stamp};
use sclub_server::identity::Identity;
use sclub_server::settings::Settings;
use sclub_server::state::{Effect, State};
use sclub_server::store::{Segments, StoreError};

fn app() -> (Arc<App>, tempfile::TempDir) {
    let settings = Settings {
        dim: Some(2),
        journal_days: 0,
        ..Settings::default()
    };
    let folder = common::new_folder();
    let engine = Engine::open(Env::real(), folder.path(), &settings).unwrap();
    let app = App::new(settings);
    app.begin(engine);
    (app, folder)
}

fn identity() -> Identity {
    Identity::new(&Settings::default(), &*Env::real().random).unwrap()
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
    let reward = |number| Reward {
        number,
        user: "u".to_owned(),
        item: "i".to_owned(),
        features: vec![0.5, 0.25],
        score: 1.0,
        cluster: 1,
        decided: 5,
        clock: 3,
        event: 0,
        reward: 1.0,
    };
    let item = |reward| ListItem {
        item: "i".to_owned(),
        features: vec![0.5, 0.25],
        score: 1.0,
        reward,
    };
    let list = RewardedList {
        number: (1 << 40) + 2,
        user: "u".to_owned(),
        items: vec![item(None), item(Some(1.0))],
        context: Vec::new(),
        looked_at: Some(2),
        cluster: 1,
        decided: 5,
        clock: 3,
        event: 0,
    };
    vec![
        Event::Expect { users: 3 },
        Event::Learn {
            round: vec![reward(1 << 40), reward((1 << 40) + 1)],
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
        Event::Expire { before: 2 },
        Event::LearnLists { lists: vec![list] },
    ]
}

fn batch(events: Vec<Event>) -> Batch {
    let stamp = Stamp { at: 7, clock: 4 };
    Batch { stamp, events }
}

/// Valid bytes with some changed, removed or inserted.
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
fn no_request_panics() {
    let (app, _folder) = app();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(3000));
    runner
        .run(&bytes(requests()), |bytes| {
            probe(&app, &bytes);
            Ok(())
        })
        .unwrap();
}

#[test]
fn no_log_panics() {
    let identity = identity();
    let mut good: Vec<Vec<u8>> = events()
        .into_iter()
        .map(|event| batch(vec![event]).encode())
        .collect();
    good.push(batch(events()).encode());
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(3000));
    runner
        .run(&prop::collection::vec(bytes(good), 1..6), |log| {
            let mut state = State::new(identity.clone()).unwrap();
            let mut effect = Effect::default();
            for bytes in log {
                let Ok(batch) = Batch::decode(&bytes) else {
                    continue;
                };
                let before = (state.position(), state.events());
                let next = before.0 + 1;
                match state.replay(next, &batch, &mut effect) {
                    Ok(()) => prop_assert_eq!(state.position(), next),
                    // No event of it was applied.
                    Err(_) => prop_assert_eq!((state.position(), state.events()), before),
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
fn no_snapshot_and_no_decision_panics() {
    let identity = identity();
    let mut state = State::new(identity.clone()).unwrap();
    let first = batch(events().into_iter().take(3).collect());
    state.replay(1, &first, &mut Effect::default()).unwrap();
    let mut saved = Vec::new();
    state.save(&mut saved).unwrap();
    let shown = |features| Shown {
        item: "i".into(),
        score: 0.5,
        features,
    };
    let handed = DecisionContents {
        life: 9,
        number: 1,
        event: 1,
        at: 2,
        clock: 2,
        user: "u".into(),
        cluster: 1,
        shown: vec![
            shown(Features::Catalogue(3)),
            shown(Features::Inline(vec![0.5])),
        ],
        context: vec![0.5],
    };
    let sealer = Sealer::new([3; 32]);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(2000));
    runner
        .run(&bytes(vec![saved, handed.encode()]), |bytes| {
            let _ = State::load(identity.clone(), &mut bytes.as_slice());
            let _ = DecisionContents::decode(&bytes);
            let _ = sealer.open(&String::from_utf8_lossy(&bytes));
            Ok(())
        })
        .unwrap();
}

/// The batches of a log, if it can be opened.
fn read(dir: &Path) -> Result<Vec<Vec<u8>>, StoreError> {
    let log = Segments::open(&Env::real(), dir, 1 << 20)?;
    let batches = log.read(log.first()? - 1)?;
    let batches = batches.map(|batch| batch.map(|(_, bytes)| bytes));
    let batches = batches.collect::<Result<Vec<_>, _>>()?;
    log.check()?;
    assert_eq!(log.last() + 1 - log.first()?, batches.len() as u64);
    // Appends to it work.
    log.append(log.last(), b"more").expect("an append");
    Ok(batches)
}

/// With any change, a log gives its original batches up to some number, or an error.
#[test]
fn no_file_of_a_log_gives_other_batches() {
    let good = common::new_folder();
    let log = Segments::open(&Env::real(), good.path(), 200).unwrap();
    let written: Vec<Vec<u8>> = events()
        .into_iter()
        .map(|event| batch(vec![event]).encode())
        .collect();
    for (last, batch) in (0..).zip(&written) {
        log.append(last, batch).unwrap();
    }
    drop(log);
    let files = common::files(good.path());
    assert!(files.len() > 2);
    // Without most of the reserved space, or most changes would be there.
    let cut: Vec<Vec<u8>> = files
        .iter()
        .map(|file| {
            let mut bytes = fs::read(file).unwrap();
            let used = bytes.iter().rposition(|byte| *byte != 0).unwrap();
            bytes.truncate(used + 40);
            bytes
        })
        .collect();
    let changed =
        (0..files.len()).prop_flat_map(|index| (Just(index), bytes(vec![cut[index].clone()])));
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(400));
    let (found, prefixes) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    runner
        .run(&changed, |(index, bytes)| {
            let dir = common::new_folder();
            for (place, (file, cut)) in files.iter().zip(&cut).enumerate() {
                let bytes = if place == index { &bytes } else { cut };
                fs::write(dir.path().join(file.file_name().unwrap()), bytes).unwrap();
            }
            match read(dir.path()) {
                Ok(batches) => {
                    prop_assert!(written.starts_with(&batches), "{batches:?}");
                    prefixes.set(prefixes.get() + 1);
                }
                Err(_) => found.set(found.get() + 1),
            }
            Ok(())
        })
        .unwrap();
    assert!(
        found.get() > 50 && prefixes.get() > 20,
        "{found:?} {prefixes:?}"
    );
}
