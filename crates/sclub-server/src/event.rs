//! What the log holds: every event that changes what is known, in batches.
//!
//! A batch is a byte for the version of its form, then the batch in `postcard`'s encoding.

use serde::{Deserialize, Serialize};

/// Version of the form of a batch.
pub(crate) const VERSION: u8 = 2;

/// When a batch was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Stamp {
    /// Wall clock, in milliseconds since 1970. Shown to people, never compared: it can jump.
    pub at: u64,
    /// Service clock: milliseconds for which the service has run. It never goes back.
    pub clock: u64,
}

/// The unit of the log: events that became durable together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    /// When it was accepted.
    pub stamp: Stamp,
    /// What happened, in this order.
    pub events: Vec<Event>,
}

/// Something that changes what is known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// So many users exist before the first round.
    Expect {
        /// How many.
        users: u64,
    },
    /// A round: what came back from users who were served on the same history.
    Learn {
        /// In the order in which it is learned.
        round: Vec<Reward>,
    },
    /// Items are in the catalogue, in place of those with the same ids.
    Upsert {
        /// The items.
        items: Vec<Item>,
    },
    /// An item is no longer in the catalogue.
    Remove {
        /// Its id.
        item: String,
    },
    /// A user is forgotten.
    Forget {
        /// The user's id.
        user: String,
    },
    /// From here on recommendations are made from another fit.
    Fit {
        /// What [`sclub::Refit::compute`] found. It was computed from the state after an earlier
        /// event; here is where it takes effect.
        fit: Vec<u8>,
    },
    /// Decisions made before this service-clock time cannot be answered any more; what only they
    /// need is let go of.
    Expire {
        /// The first service-clock time whose decisions can still be answered.
        before: u64,
    },
}

/// An item with its features.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Item {
    /// Its id.
    pub id: String,
    /// Its features.
    pub features: Vec<f64>,
}

/// What an item that was shown to a user has brought, with all that is known of the decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reward {
    /// Number of the item shown: that of the decision plus its place among the items shown.
    pub number: u64,
    /// To whom.
    pub user: String,
    /// The item.
    pub item: String,
    /// Its features when it was shown.
    pub features: Vec<f64>,
    /// What it was ranked by.
    pub score: f64,
    /// The cluster that the user was served from.
    pub cluster: u64,
    /// When it was shown: wall clock, in milliseconds since 1970. Never compared.
    pub decided: u64,
    /// When it was shown: service clock.
    pub clock: u64,
    /// Number of the last event applied when the decision was made.
    pub event: u64,
    /// What it brought.
    pub reward: f64,
}

/// What is wrong with bytes that should be a batch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The version is unsupported.
    #[error("version {0} is unsupported")]
    Version(u8),
    /// They cannot be decoded.
    #[error("it cannot be decoded")]
    Bytes,
}

impl Batch {
    /// As bytes for the log.
    pub fn encode(&self) -> Vec<u8> {
        to_bytes(self)
    }

    /// From the bytes of the log.
    ///
    /// # Errors
    /// Where they are not a batch, or not one of a supported version.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        from_bytes(bytes)
    }
}

/// A byte for the version, then the value.
pub(crate) fn to_bytes<T: Serialize>(value: &T) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(256);
    write_bytes(value, &mut bytes);
    bytes
}

/// Appends a byte for the version, then the value.
pub(crate) fn write_bytes<T: Serialize>(value: &T, bytes: &mut Vec<u8>) {
    bytes.push(VERSION);
    let before = std::mem::take(bytes);
    *bytes = postcard::to_extend(value, before).expect("a vector takes all bytes");
}

/// The value after the byte for the version; nothing may follow it.
pub(crate) fn from_bytes<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Malformed> {
    match bytes {
        [VERSION, rest @ ..] => whole(rest),
        [version, ..] => Err(Malformed::Version(*version)),
        [] => Err(Malformed::Bytes),
    }
}

/// A value that takes all the bytes.
pub(crate) fn whole<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Malformed> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        _ => Err(Malformed::Bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(events: Vec<Event>) -> Batch {
        let stamp = Stamp { at: 17, clock: 7 };
        Batch { stamp, events }
    }

    #[test]
    fn a_batch_comes_back_as_it_was() {
        let batch = batch(vec![
            Event::Learn {
                round: vec![Reward {
                    number: 1 << 40,
                    user: "ü".to_owned(),
                    item: String::new(),
                    features: vec![-0.0, f64::MIN_POSITIVE, 0.1],
                    score: 0.5,
                    cluster: 3,
                    decided: 16,
                    clock: 6,
                    event: 2,
                    reward: 1.0,
                }],
            },
            Event::Expire { before: 5 },
        ]);
        let bytes = batch.encode();
        assert_eq!(Batch::decode(&bytes), Ok(batch));
        let mut longer = bytes.clone();
        longer.push(0);
        assert_eq!(Batch::decode(&longer), Err(Malformed::Bytes));
        for end in 0..bytes.len() {
            assert!(Batch::decode(&bytes[..end]).is_err());
        }
        let mut newer = bytes;
        newer[0] = 3;
        assert_eq!(Batch::decode(&newer), Err(Malformed::Version(3)));
    }

    /// The bytes of each kind: what was logged once must be read for ever.
    #[test]
    fn the_numbers_of_the_kinds_stay() {
        let (user, item) = ("u".to_owned(), "i".to_owned());
        let kinds = [
            (Event::Expect { users: 3 }, &[0, 3][..]),
            (Event::Learn { round: Vec::new() }, &[1, 0]),
            (Event::Upsert { items: Vec::new() }, &[2, 0]),
            (Event::Remove { item }, &[3, 1, b'i']),
            (Event::Forget { user }, &[4, 1, b'u']),
            (Event::Fit { fit: vec![9, 8] }, &[5, 2, 9, 8]),
            (Event::Expire { before: 300 }, &[6, 0xac, 2]),
        ];
        for (event, bytes) in kinds {
            let batch = batch(vec![event]);
            let bytes = [&[2, 17, 7, 1][..], bytes].concat();
            assert_eq!(batch.encode(), bytes);
            assert_eq!(Batch::decode(&bytes), Ok(batch));
        }
    }

    #[test]
    fn a_reward_takes_few_bytes() {
        let reward = Reward {
            number: (300 << 40) + 123_456_789,
            user: "user-123456".to_owned(),
            item: "item-1234".to_owned(),
            features: vec![0.1; 20],
            score: 0.5,
            cluster: 1234,
            decided: 1_700_000_000_000,
            clock: 365 * 86_400_000,
            event: 1 << 32,
            reward: 1.0,
        };
        let stamp = Stamp {
            at: 1_700_000_100_000,
            clock: 366 * 86_400_000,
        };
        let round = vec![reward];
        let events = vec![Event::Learn { round }];
        let length = Batch { stamp, events }.encode().len();
        assert!(length < 245, "{length}");
    }
}
