//! Bytes that version 0.1 wrote, and some built by its structures.

use serde::Serialize;

use super::*;
use crate::event::Stamp;
use crate::state::{Ahead, Effect};

/// The identity of the folder in which [`events`] were learned.
const IDENTITY: &str = r#"{"format":1,"policy":"sclub","preset":"tuned","constants":{"alpha_theta":0.5,"alpha_p":0.5,"squared_norm":false,"beta":null,"beta_scale":0.1},"dim":null,"key":"0707070707070707070707070707070707070707070707070707070707070707"}"#;

/// A snapshot of version 0.1 after [`events`].
const SNAPSHOT: &str = include_str!("snapshot-0.1.hex");

/// Digest of its policy, loaded or learned again.
const DIGEST: u64 = 7_014_342_101_357_403_188;

/// The log entries of version 0.1 for the first of [`events`].
const LOGGED: [&str; 8] = [
    "01e4d095ffbc310003",
    "01e5d095ffbc310203016102000000000000f03f00000000000000000162020000000000000000000000000000f03f\
     016302333333333333e33f9a9999999999e93f",
    "01e6d095ffbc3101028080808080200175016102000000000000f03f0000000000000000000000000000e03f0180d0\
     95ffbc31000000000000f03f81808080802001760161020000000000000000000000000000f03f000000000000e03f\
     0181d095ffbc310000000000000000",
    "01e7d095ffbc3102010161029a9999999999e93f333333333333e33f",
    "01e8d095ffbc31030162",
    "01e9d095ffbc31040176",
    "01ead095ffbc310100",
    "01ebd095ffbc3105020102",
];

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn identity() -> Identity {
    Identity::decode(IDENTITY.as_bytes()).unwrap()
}

fn item(id: &str, features: [f64; 2]) -> OldItem {
    OldItem {
        id: id.to_owned(),
        features: features.to_vec(),
    }
}

fn reward(number: u64, user: &str, features: [f64; 2], reward: f64) -> OldReward {
    OldReward {
        number: (1 << 40) + number,
        user: user.to_owned(),
        item: "a".to_owned(),
        features: features.to_vec(),
        score: 0.5,
        cluster: 1,
        decided: 1_700_000_000_000 + number,
        reward,
    }
}

fn events() -> Vec<OldEvent> {
    let first = vec![
        reward(0, "u", [1.0, 0.0], 1.0),
        reward(1, "v", [0.0, 1.0], 0.0),
    ];
    let items = vec![
        item("a", [1.0, 0.0]),
        item("b", [0.0, 1.0]),
        item("c", [0.6, 0.8]),
    ];
    let mut events = vec![
        OldEvent::Expect { users: 3 },
        OldEvent::Upsert { items },
        OldEvent::Learn { round: first },
        OldEvent::Upsert {
            items: vec![item("a", [0.8, 0.6])],
        },
        OldEvent::Remove { item: "b".into() },
        OldEvent::Forget { user: "v".into() },
        OldEvent::Learn { round: Vec::new() },
        OldEvent::Fit { fit: vec![1, 2] },
    ];
    events.extend((2..60).map(|n| {
        let user = if n % 2 == 0 { "u" } else { "w" };
        let round = vec![reward(n, user, [1.0, 0.0], (n % 2) as f64 * 2.0 - 1.0)];
        OldEvent::Learn { round }
    }));
    events.extend((60..64).map(|n| OldEvent::Learn {
        round: vec![reward(n, "v", [0.6, 0.8], 0.25)],
    }));
    events
}

fn encoded() -> Vec<Vec<u8>> {
    let stamped = events().into_iter().zip(1_700_000_000_100..);
    let stamped = stamped.map(|(event, at)| OldStamped { at, event });
    stamped
        .map(|stamped| [vec![VERSION], postcard::to_stdvec(&stamped).unwrap()].concat())
        .collect()
}

#[test]
fn the_structures_are_those_of_version_0_1() {
    for (bytes, logged) in encoded().iter().zip(LOGGED) {
        assert_eq!(*bytes, unhex(logged));
    }
}

#[test]
fn events_are_read_and_can_be_learned_again() {
    let mut state = State::new(identity()).unwrap();
    for bytes in encoded() {
        let (at, event) = event(&bytes).unwrap();
        let mut ahead = Ahead::default();
        assert_eq!(state.admit(&event, &mut ahead), Ok(()));
        let stamp = Stamp { at, clock: 0 };
        state.apply(&stamp, &event, &mut Effect::default());
    }
    let loaded = load(identity(), &mut unhex(SNAPSHOT).as_slice()).unwrap();
    assert_eq!(state.policy().unwrap().digest(), DIGEST);
    assert_eq!(state.users().parts(), loaded.users().parts());
    assert_eq!(state.history(), loaded.history());
    assert_eq!(state.answered(), loaded.answered());
}

#[test]
fn a_snapshot_is_read() {
    let bytes = unhex(SNAPSHOT);
    let mut state = load(identity(), &mut bytes.as_slice()).unwrap();
    assert_eq!(state.policy().unwrap().digest(), DIGEST);
    let counters = (state.events(), state.position(), state.clock());
    assert_eq!(counters, (70, 1, 0));
    assert_eq!((state.horizon(), state.expected()), (0, 3));
    assert_eq!((state.rounds(), state.rewards().0), (64, 63));
    assert_eq!(state.history().total(), 3);
    assert!(state.answered().contains((1 << 40) + 63));
    assert!(!state.answered().contains((1 << 40) + 64));
    assert!(state.is_forgotten("v", 69) && !state.is_forgotten("v", 70));
    assert!(!state.is_forgotten("u", 0));
    let catalogue = state.catalogue().unwrap();
    assert_eq!((catalogue.len(), catalogue.retired()), (2, 2));
    assert_eq!(catalogue.features_of("a", 1), Some(vec![1.0, 0.0]));
    assert_eq!(catalogue.features_of("b", 2), Some(vec![0.0, 1.0]));

    // From here on it is saved as everything else.
    let mut saved = Vec::new();
    state.save(&mut saved).unwrap();
    let again = State::load(identity(), &mut saved.as_slice()).unwrap();
    assert_eq!(again.hash(), state.hash());
    assert!(load(identity(), &mut saved.as_slice()).is_err());

    // All of it is from the beginning of the service clock, and expires first.
    let stamp = Stamp { at: 0, clock: 9 };
    let expire = Event::Expire { before: 1 };
    state.apply(&stamp, &expire, &mut Effect::default());
    assert_eq!(state.catalogue().unwrap().retired(), 0);
    assert_eq!(*state.answered(), Answered::default());
    // A forgotten user is remembered for a minute more.
    let later = Event::Expire { before: 60_001 };
    state.apply(&stamp, &later, &mut Effect::default());
    assert!(!state.is_forgotten("v", 0));
}

#[test]
fn an_empty_snapshot_and_other_formats() {
    fn put(out: &mut Vec<u8>, part: &impl Serialize) {
        let bytes = postcard::to_stdvec(part).unwrap();
        out.extend((bytes.len() as u64).to_le_bytes());
        out.extend(bytes);
    }
    for format in [1, 2, 3] {
        let header = OldHeader {
            format,
            events: 4,
            expected: 9,
            idle: 2,
            horizon: 1_700_000_000_000,
            dim: None,
            users: 0,
            rewards: 0,
            reward_sum: 0.0,
        };
        let rest = OldRest {
            free: Vec::new(),
            answered: Answered::default(),
            history: History::default(),
            forgotten: vec![OldForgotten { print: 5, at: 3 }],
        };
        let mut bytes = Vec::new();
        put(&mut bytes, &header);
        put(&mut bytes, &rest);
        match load(identity(), &mut bytes.as_slice()) {
            Ok(state) => {
                assert!(format < 3);
                let told = (state.events(), state.expected(), state.rounds());
                assert_eq!((told, state.horizon()), ((4, 9, 2), 0));
            }
            Err(error) => assert!(format == 3, "{error}"),
        }
    }
}

#[test]
fn bytes_that_version_0_1_did_not_write_are_refused() {
    let good = unhex(LOGGED[2]);
    assert!(event(&good).is_ok());
    for end in 0..good.len() {
        assert!(event(&good[..end]).is_err());
    }
    let longer = [&good[..], &[0]].concat();
    assert_eq!(event(&longer), Err(Malformed::Bytes));
    let newer = [&[2], &good[1..]].concat();
    assert_eq!(event(&newer), Err(Malformed::Version(2)));
    let snapshot = unhex(SNAPSHOT);
    for end in (0..snapshot.len()).step_by(7) {
        assert!(load(identity(), &mut &snapshot[..end]).is_err());
    }
    let longer = [&snapshot[..], &[0]].concat();
    assert!(load(identity(), &mut longer.as_slice()).is_err());
}
