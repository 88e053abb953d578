//! The engine under test. Only this file knows its types.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sclub_server::decision::DecisionContents;
pub use sclub_server::engine::{Engine, Refusal, restore, verify};

/// The length of the seal of a decision in bytes.
const SEAL: usize = 16;

/// The reason of a refusal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Why {
    UnknownDecision,
    Expired,
    Forgotten,
    OtherCopy,
    UnknownItem,
    Invalid,
    /// The disk cannot be written. The request has no effect.
    ReadOnly,
    /// The request may have had an effect or not.
    Unknown,
    Overloaded,
    Closing,
    Other,
}

impl Why {
    /// Returns true if the request may be sent again.
    pub fn may_repeat(self) -> bool {
        use Why::*;
        matches!(self, ReadOnly | Unknown | Overloaded | Closing)
    }
}

/// The reason of a refusal, and the index of the refused entry of a batch.
pub fn why(refusal: &Refusal) -> (Why, Option<usize>) {
    let why = match refusal {
        Refusal::At(place, inner) => {
            let index = place.split(['[', ']']).nth(1);
            return (why(inner).0, index.and_then(|index| index.parse().ok()));
        }
        Refusal::UnknownDecision => Why::UnknownDecision,
        Refusal::Expired => Why::Expired,
        Refusal::Forgotten => Why::Forgotten,
        Refusal::OtherCopy => Why::OtherCopy,
        Refusal::UnknownItem { .. } => Why::UnknownItem,
        Refusal::Invalid { .. } | Refusal::NoCandidates { .. } => Why::Invalid,
        Refusal::ReadOnly(_) => Why::ReadOnly,
        Refusal::Unknown(_) => Why::Unknown,
        Refusal::Overloaded => Why::Overloaded,
        Refusal::Closing => Why::Closing,
        #[allow(unreachable_patterns)]
        _ => Why::Other,
    };
    (why, None)
}

/// The number of the first item that a decision shows; the others count on.
pub fn number(decision: &str) -> u64 {
    let bytes = URL_SAFE_NO_PAD
        .decode(decision)
        .expect("a decision of the server");
    DecisionContents::decode(&bytes[..bytes.len() - SEAL])
        .expect("a decision of the server")
        .number
}

/// Number and sum of the rewards of each user.
pub fn users(engine: &Engine) -> BTreeMap<String, (u64, f64)> {
    let state = engine.state();
    let known = state.users().parts().0.iter().flatten();
    known
        .map(|user| (user.id.to_string(), (user.rewards, user.reward_sum)))
        .collect()
}

/// The features of each item.
pub fn catalogue(engine: &Engine) -> BTreeMap<String, Vec<f64>> {
    let state = engine.state();
    let Some(catalogue) = state.catalogue() else {
        return BTreeMap::new();
    };
    (0..catalogue.len())
        .map(|slot| {
            (
                catalogue.entry(slot).id.to_string(),
                catalogue.features(slot),
            )
        })
        .collect()
}
