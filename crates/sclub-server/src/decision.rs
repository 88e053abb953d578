//! Decisions as clients receive them. A decision contains everything that is needed to learn from its
//! reward, and is signed so that it cannot be forged.
//!
//! So recommending needs no disk, and a reward is accepted after any crash. A decision is
//! `base64url(version, postcard(DecisionContents), first 16 bytes of BLAKE3 keyed with the folder's key)`.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;

use crate::event::{from_bytes_with_context, write_with_context};
use crate::identity::first_word;

/// The length of the seal (a message authentication code) in bytes.
const SEAL_LENGTH: usize = 16;

/// The number of low bits of a decision number that count within an epoch.
const COUNTER_BITS: u32 = 40;

/// The contents of a decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DecisionContents<'a> {
    /// A random number that identifies one run of one copy of a data folder.
    pub life: u64,
    /// The number of the first item shown; the others have the numbers after it.
    pub number: u64,
    /// The number of the last event applied when the decision was made.
    pub event: u64,
    /// The wall-clock time of the decision, in milliseconds since 1970. Never compared.
    pub at: u64,
    /// The service-clock time of the decision.
    pub clock: u64,
    /// The id of the user.
    #[serde(borrow)]
    pub user: Cow<'a, str>,
    /// The cluster that the user was served from.
    pub cluster: u64,
    /// The items shown, best first.
    #[serde(borrow)]
    pub shown: Vec<Shown<'a>>,
    /// The encoded context of the request ([`crate::context::Context::encode`]); empty if the folder has
    /// no context features.
    #[serde(skip)]
    pub context: Vec<f64>,
}

/// An item that was shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Shown<'a> {
    /// Its id.
    #[serde(borrow)]
    pub item: Cow<'a, str>,
    /// The score it was ranked by.
    pub score: f64,
    /// Its features, or the catalogue revision that has them.
    pub features: Features,
}

/// The source of the features of an item shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Features {
    /// In the catalogue, as of this revision.
    Catalogue(u64),
    /// In the decision itself: they came with the request.
    Inline(Vec<f64>),
}

impl DecisionContents<'_> {
    /// A copy that borrows nothing.
    pub fn into_owned(self) -> DecisionContents<'static> {
        let shown = self.shown.into_iter().map(|shown| Shown {
            item: shown.item.into_owned().into(),
            score: shown.score,
            features: shown.features,
        });
        DecisionContents {
            life: self.life,
            number: self.number,
            event: self.event,
            at: self.at,
            clock: self.clock,
            user: self.user.into_owned().into(),
            cluster: self.cluster,
            shown: shown.collect(),
            context: self.context,
        }
    }

    /// Encodes the decision. These bytes are sealed, and written to the journal.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(256);
        self.encode_into(&mut bytes);
        bytes
    }

    /// Replaces the contents of `bytes` by the encoded decision.
    pub fn encode_into(&self, bytes: &mut Vec<u8>) {
        bytes.clear();
        let context = Some(&self.context);
        write_with_context(self, context.filter(|c| !c.is_empty()), bytes);
    }

    /// Decodes what [`DecisionContents::encode`] encoded; `None` if it is malformed.
    pub fn decode(bytes: &[u8]) -> Option<DecisionContents<'_>> {
        let (mut handed, context): (DecisionContents<'_>, _) =
            from_bytes_with_context(bytes).ok()?;
        handed.context = context;
        Some(handed)
    }
}

/// Seals decisions and verifies their seals.
#[derive(Clone)]
pub struct Sealer {
    key: [u8; 32],
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sealer")
    }
}

impl Sealer {
    /// A sealer with the folder's key.
    pub fn new(key: [u8; 32]) -> Self {
        Self { key }
    }

    /// Appends the seal to an encoded decision and returns both as text for the client.
    pub fn seal(&self, encoded: &mut Vec<u8>) -> String {
        let seal = self.seal_of(encoded);
        encoded.extend_from_slice(&seal);
        URL_SAFE_NO_PAD.encode(encoded)
    }

    /// The encoded decision, if its seal was made with this key.
    pub fn open(&self, text: &str) -> Option<Vec<u8>> {
        let mut bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (encoded, seal) = bytes.split_at_checked(bytes.len().checked_sub(SEAL_LENGTH)?)?;
        if !bool::from(self.seal_of(encoded).ct_eq(seal)) {
            return None;
        }
        bytes.truncate(bytes.len() - SEAL_LENGTH);
        Some(bytes)
    }

    /// The fingerprint of a user: a 32-bit keyed hash of the id. Each data folder has its own key.
    pub fn fingerprint(&self, user: &str) -> u32 {
        let hash = blake3::keyed_hash(&self.key, format!("user {user}").as_bytes());
        let [a, b, c, d, ..] = *hash.as_bytes();
        u32::from_le_bytes([a, b, c, d])
    }

    /// The random number of a decision ([`sclub::Policy::recommend_drawn`]). Each folder, run and decision has
    /// its own. Clients cannot predict it.
    pub fn draw(&self, life: u64, number: u64) -> u64 {
        let of = [&b"draw"[..], &life.to_le_bytes(), &number.to_le_bytes()].concat();
        first_word(&blake3::keyed_hash(&self.key, &of))
    }

    fn seal_of(&self, encoded: &[u8]) -> [u8; SEAL_LENGTH] {
        let hash = blake3::keyed_hash(&self.key, encoded);
        *hash
            .as_bytes()
            .first_chunk()
            .expect("a hash is longer than a seal")
    }
}

/// The first number of an epoch. Numbers of different epochs are never the same.
pub fn first_number(epoch: u64) -> u64 {
    epoch << COUNTER_BITS
}

/// The epoch that a number is of.
pub fn epoch_of(number: u64) -> u64 {
    number >> COUNTER_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handed() -> DecisionContents<'static> {
        DecisionContents {
            life: u64::MAX,
            number: first_number(3) + 7,
            event: 12,
            at: 1_700_000_000_000,
            clock: 86_400_000,
            user: "u1".into(),
            cluster: 1,
            shown: vec![
                Shown {
                    item: "a".into(),
                    score: 0.25,
                    features: Features::Catalogue(9),
                },
                Shown {
                    item: "b".into(),
                    score: 0.125,
                    features: Features::Inline(vec![0.1, -0.0]),
                },
            ],
            context: Vec::new(),
        }
    }

    #[test]
    fn a_number_knows_its_epoch() {
        for epoch in [0, 1, 3, (1 << 24) - 1] {
            let first = first_number(epoch);
            assert_eq!(epoch_of(first), epoch);
            assert_eq!(epoch_of(first + ((1 << COUNTER_BITS) - 1)), epoch);
        }
    }

    #[test]
    fn each_folder_run_and_decision_has_its_own_draw() {
        let sealer = Sealer::new([7; 32]);
        let draws = [
            sealer.draw(1, 2),
            sealer.draw(2, 1),
            sealer.draw(1, 3),
            Sealer::new([8; 32]).draw(1, 2),
        ];
        let different: std::collections::HashSet<_> = draws.iter().collect();
        assert_eq!(different.len(), draws.len());
        assert_eq!(sealer.clone().draw(1, 2), draws[0]);
    }

    #[test]
    fn only_sealed_decisions_are_opened() {
        let sealer = Sealer::new([7; 32]);
        let in_context = DecisionContents {
            context: vec![0.0, 0.5],
            ..handed()
        };
        let opened = sealer.open(&sealer.seal(&mut in_context.encode())).unwrap();
        assert_eq!(DecisionContents::decode(&opened), Some(in_context));
        let text = sealer.seal(&mut handed().encode());
        let opened = sealer.open(&text).unwrap();
        assert_eq!(DecisionContents::decode(&opened).unwrap(), handed());
        assert_eq!(Sealer::new([8; 32]).open(&text), None);
        for place in 0..text.len() {
            let mut other = text.clone().into_bytes();
            other[place] = if other[place] == b'A' { b'B' } else { b'A' };
            let other = String::from_utf8(other).unwrap();
            assert_eq!(sealer.open(&other), None, "byte {place}");
            assert_eq!(sealer.open(&text[..place]), None);
        }
    }
}
