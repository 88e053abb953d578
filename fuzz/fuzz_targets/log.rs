//! Batches of the log, each after a byte with its length: they are refused or applied, and the state
//! that comes of it is the same after being saved and loaded.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use sclub_server::decision::DecisionContents;
use sclub_server::env::Env;
use sclub_server::event::Batch;
use sclub_server::identity::Identity;
use sclub_server::settings::Settings;
use sclub_server::state::{Effect, State};

static IDENTITY: LazyLock<Identity> = LazyLock::new(|| {
    Identity::new(&Settings::default(), &*Env::real().random).expect("an identity")
});

fuzz_target!(|bytes: &[u8]| {
    let _ = DecisionContents::decode(bytes);
    let _ = State::load(IDENTITY.clone(), &mut { bytes });
    let mut state = State::new(IDENTITY.clone()).expect("a state");
    let mut left = bytes;
    while let Some((&length, rest)) = left.split_first() {
        let (batch, rest) = rest.split_at(rest.len().min(length.into()));
        left = rest;
        if let Ok(batch) = Batch::decode(batch) {
            let before = (state.position(), state.events());
            let next = before.0 + 1;
            if state.replay(next, &batch, &mut Effect::default()).is_err() {
                assert_eq!((state.position(), state.events()), before);
            }
        }
    }
    let mut saved = Vec::new();
    state.save(&mut saved).expect("memory");
    let again = State::load(IDENTITY.clone(), &mut saved.as_slice()).expect("what was saved");
    assert_eq!(again.hash(), state.hash());
});
