//! Tests of the state: validation of events, saving and loading, replay.

mod any;
mod assumed;
#[path = "../../tests/common/by_id.rs"]
mod by_id;
mod hashes;
mod outside;
mod rules;

use super::*;
use crate::event::{Batch, Event, Item, Reward, Stamp};
use crate::identity::servable;
use crate::refusal::Refusal;
use crate::settings::Settings;

/// A folder for a policy.
fn identity(policy: &str, dim: Option<usize>) -> Identity {
    let settings = Settings {
        policy: Some(policy.to_owned()),
        dim,
        ..Settings::default()
    };
    Identity::new(&settings, &*crate::env::Env::real().random).unwrap()
}

fn state(policy: &str) -> State {
    State::new(identity(policy, None)).unwrap()
}

/// A state of SCLUB with constants with which splits come soon.
fn restless() -> State {
    let text = String::from_utf8(identity("sclub", None).encode()).unwrap();
    let text = text.replace("\"alpha_theta\":2.5", "\"alpha_theta\":0.5");
    State::new(Identity::decode(text.as_bytes()).unwrap()).unwrap()
}

fn reward(number: u64, user: &str) -> Reward {
    Reward {
        number,
        user: user.to_owned(),
        item: "i".to_owned(),
        features: vec![0.6, 0.8],
        score: 1.0,
        cluster: 1,
        decided: 0,
        clock: 10,
        event: 0,
        reward: 1.0,
    }
}

fn learn(round: Vec<Reward>) -> Event {
    Event::Learn { round }
}

fn upsert(id: &str, features: Vec<f64>) -> Event {
    let id = id.to_owned();
    Event::Upsert {
        items: vec![Item { id, features }],
    }
}

fn forget(user: &str) -> Event {
    let user = user.to_owned();
    Event::Forget { user }
}

/// Replays a batch of events at a service-clock time.
fn follow(state: &mut State, clock: u64, events: Vec<Event>) -> Result<(), Rejected> {
    let stamp = Stamp { at: 0, clock };
    let batch = Batch { stamp, events };
    state.replay(state.position() + 1, &batch, &mut Effect::default())
}

/// The reason why an event is refused.
fn refusal(state: &State, event: &Event) -> Refusal {
    state
        .admit(event, &mut Ahead::default())
        .unwrap_err()
        .reason
}

/// The state after saving and loading.
fn reloaded(state: &State) -> State {
    let mut bytes = Vec::new();
    state.save(&mut bytes).unwrap();
    State::load(state.folder_identity().clone(), &mut bytes.as_slice()).unwrap()
}
