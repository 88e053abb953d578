//! What the log holds: every event that changes what is known.
//!
//! An event is a byte for the version of its form, then the event in `postcard`'s encoding.

use serde::{Deserialize, Serialize};

/// Version of the form of an event.
const VERSION: u8 = 1;

/// An event and when it was accepted, in milliseconds since 1970.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stamped {
    /// When.
    pub at: u64,
    /// What.
    pub event: Event,
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
        /// Her id.
        user: String,
    },
    /// From here on recommendations are made from another fit.
    Fit {
        /// What [`sclub::Refit::compute`] found. It was computed from the state after an earlier
        /// event; here is where it takes effect.
        fit: Vec<u8>,
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
    /// The cluster that she was served from.
    pub cluster: u64,
    /// When it was shown, in milliseconds since 1970.
    pub decided: u64,
    /// What it brought.
    pub reward: f64,
}

/// What is wrong with bytes that should be an event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The form is not known.
    #[error("it is of version {0}, and {VERSION} is known")]
    Version(u8),
    /// They cannot be read.
    #[error("it cannot be decoded")]
    Bytes,
}

impl Stamped {
    /// As bytes for the log.
    pub fn encode(&self) -> Vec<u8> {
        to_bytes(self)
    }

    /// From the bytes of the log.
    ///
    /// # Errors
    /// Where they are not an event, or not one of a known version.
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
        [VERSION, rest @ ..] => match postcard::take_from_bytes(rest) {
            Ok((value, [])) => Ok(value),
            _ => Err(Malformed::Bytes),
        },
        [version, ..] => Err(Malformed::Version(*version)),
        [] => Err(Malformed::Bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_comes_back_as_it_was() {
        let event = Stamped {
            at: 17,
            event: Event::Learn {
                round: vec![Reward {
                    number: 1 << 40,
                    user: "ü".to_owned(),
                    item: String::new(),
                    features: vec![-0.0, f64::MIN_POSITIVE, 0.1],
                    score: 0.5,
                    cluster: 3,
                    decided: 16,
                    reward: 1.0,
                }],
            },
        };
        let bytes = event.encode();
        assert_eq!(Stamped::decode(&bytes), Ok(event));
        let mut longer = bytes.clone();
        longer.push(0);
        assert_eq!(Stamped::decode(&longer), Err(Malformed::Bytes));
        for end in 0..bytes.len() {
            assert!(Stamped::decode(&bytes[..end]).is_err());
        }
        let mut newer = bytes;
        newer[0] = 2;
        assert_eq!(Stamped::decode(&newer), Err(Malformed::Version(2)));
    }

    /// The bytes that earlier versions wrote, one of each kind.
    #[test]
    fn the_numbers_of_the_kinds_stay() {
        let (user, item) = ("u".to_owned(), "i".to_owned());
        let kinds = [
            (Event::Expect { users: 3 }, &[1, 7, 0, 3][..]),
            (Event::Learn { round: Vec::new() }, &[1, 7, 1, 0]),
            (Event::Upsert { items: Vec::new() }, &[1, 7, 2, 0]),
            (Event::Remove { item }, &[1, 7, 3, 1, b'i']),
            (Event::Forget { user }, &[1, 7, 4, 1, b'u']),
            (Event::Fit { fit: vec![9, 8] }, &[1, 7, 5, 2, 9, 8]),
        ];
        for (event, bytes) in kinds {
            let stamped = Stamped { at: 7, event };
            assert_eq!(stamped.encode(), bytes);
            assert_eq!(Stamped::decode(bytes), Ok(stamped));
        }
    }
}
