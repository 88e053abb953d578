//! The contents of the log: every event that changes the state, in batches.
//!
//! A batch is a byte for the version of its form, then the batch in `postcard`'s encoding.

use serde::{Deserialize, Serialize};

use crate::description::Description;
use crate::experiment::ArmPlan;

/// The version of the encoding of a batch.
pub(crate) const VERSION: u8 = 2;

/// Version of values with a second part behind them, for the context of a request. Folders without context
/// features do not have them.
const VERSION_WITH_CONTEXT: u8 = 3;

/// The version of a batch of the journal with a third part, for propensities.
pub(crate) const VERSION_WITH_PROPENSITIES: u8 = 4;

/// The version of a batch of the journal with further parts, for details of decisions and the sources of rewards.
pub(crate) const VERSION_WITH_DETAILS: u8 = 5;

/// The time at which a batch was accepted, by two clocks.
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
    /// The time at which the batch was accepted.
    pub stamp: Stamp,
    /// The events, in the order in which they are applied.
    pub events: Vec<Event>,
}

/// A change of the state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// The number of users who exist before the first round.
    Expect {
        /// The number of users.
        users: u64,
    },
    /// A round: rewards of users who were served on the same history.
    Learn {
        /// The rewards, in the order in which they are learned.
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
        /// The result of [`sclub::Refit::compute`]. It was computed from the state after an earlier
        /// event and takes effect here.
        fit: Vec<u8>,
    },
    /// Decisions made before this service-clock time no longer accept a reward. Data that only they
    /// need is dropped.
    Expire {
        /// The first service-clock time whose decisions still accept a reward.
        before: u64,
    },
    /// A round of a policy that learns from lists: lists of users who were served on the same history.
    LearnLists {
        /// The lists, in the order in which they are learned, each decision once.
        lists: Vec<RewardedList>,
    },
    /// A round some of whose rewards are assumed, and rewards in place of assumed ones.
    LearnAssumed {
        /// The rewards, in the order in which they are learned. If there are none, no round is learned.
        round: Vec<Reward>,
        /// For each reward of the round, true if it is assumed: nobody has sent it, and one that is sent later replaces
        /// it.
        assumed: Vec<bool>,
        /// Rewards in place of assumed ones.
        corrected: Vec<Reward>,
    },
    /// Items with descriptions are in the catalogue, in place of those with the same ids.
    Describe {
        /// The items.
        items: Vec<DescribedItem>,
    },
    /// An experiment begins.
    StartExperiment {
        /// Its name.
        name: String,
        /// The number that users are hashed with.
        salt: u64,
        /// The arms: those that are shown, then the shadow arms. The first is the control.
        arms: Vec<ArmPlan>,
    },
    /// The experiment under way ends, and the policy of its winner is in force from here on.
    EndExperiment {
        /// The name of the experiment.
        name: String,
        /// The name of the arm.
        winner: String,
    },
    /// From here on an arm of the experiment under way recommends from another fit.
    FitArm {
        /// The index of the arm.
        arm: u32,
        /// As in [`Event::Fit`].
        fit: Vec<u8>,
    },
}

impl Event {
    /// The event that puts items into the catalogue. Without descriptions it is one that all versions know.
    pub(crate) fn of_items(items: Vec<DescribedItem>) -> Self {
        match items.iter().all(|item| item.description.is_empty()) {
            true => {
                let items = items.into_iter();
                let items = items.map(|DescribedItem { id, features, .. }| Item { id, features });
                Event::Upsert {
                    items: items.collect(),
                }
            }
            false => Event::Describe { items },
        }
    }

    /// The number of the first item shown whose reward is in a round with assumed rewards.
    pub(crate) fn first_number(&self) -> Option<u64> {
        match self {
            Event::Learn { round } | Event::LearnAssumed { round, .. } => {
                round.first().map(|reward| reward.number)
            }
            _ => None,
        }
    }
}

/// An item with its features.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Item {
    /// Its id.
    pub id: String,
    /// Its features.
    pub features: Vec<f64>,
}

/// An item with its features and its description.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DescribedItem {
    /// Its id.
    pub id: String,
    /// Its features.
    pub features: Vec<f64>,
    /// Its description.
    pub description: Description,
}

impl From<Item> for DescribedItem {
    fn from(Item { id, features }: Item) -> Self {
        Self {
            id,
            features,
            description: Description::default(),
        }
    }
}

/// The reward for an item that was shown to a user, with everything about the decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reward {
    /// Number of the item shown: that of the decision plus its place among the items shown.
    pub number: u64,
    /// The id of the user it was shown to.
    pub user: String,
    /// The id of the item.
    pub item: String,
    /// The features of the item when it was shown, then those of the request's context if there are any.
    pub features: Vec<f64>,
    /// The score it was ranked by.
    pub score: f64,
    /// The cluster that the user was served from.
    pub cluster: u64,
    /// The wall-clock time when it was shown, in milliseconds since 1970. Never compared.
    pub decided: u64,
    /// The service-clock time when it was shown.
    pub clock: u64,
    /// Number of the last event applied when the decision was made.
    pub event: u64,
    /// The reward.
    pub reward: f64,
}

/// A list that was shown to a user, with the rewards of some of its items and everything about the decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RewardedList {
    /// The number of the decision, which is that of the first item. The others have the numbers after it.
    pub number: u64,
    /// The id of the user it was shown to.
    pub user: String,
    /// All items in the order in which they were shown.
    pub items: Vec<ListItem>,
    /// The encoded context of the request; empty if the folder has no context features.
    pub context: Vec<f64>,
    /// The number of items, from the first, that the user looked at; `None` if that is not known.
    pub looked_at: Option<usize>,
    /// The cluster that the user was served from.
    pub cluster: u64,
    /// The wall-clock time when it was shown, in milliseconds since 1970. Never compared.
    pub decided: u64,
    /// The service-clock time when it was shown.
    pub clock: u64,
    /// Number of the last event applied when the decision was made.
    pub event: u64,
}

/// An item of a [`RewardedList`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ListItem {
    /// Its id.
    pub item: String,
    /// Its features when it was shown.
    pub features: Vec<f64>,
    /// The score it was ranked by.
    pub score: f64,
    /// Its reward; `None` if it has none, or an earlier event has it.
    pub reward: Option<f64>,
}

impl RewardedList {
    /// The number of items up to the last one with a reward; 0 if none has one.
    pub fn reached(&self) -> usize {
        let last = self.items.iter().rposition(|item| item.reward.is_some());
        last.map_or(0, |last| last + 1)
    }

    /// The items with a reward: their numbers, the items, and the rewards.
    pub fn rewards(&self) -> impl Iterator<Item = (u64, &ListItem, f64)> {
        let items = (self.number..).zip(&self.items);
        items.filter_map(|(number, item)| Some((number, item, item.reward?)))
    }
}

/// An error of decoding a batch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The version is unsupported.
    #[error("version {0} is unsupported")]
    Version(u8),
    /// The bytes cannot be decoded.
    #[error("it cannot be decoded")]
    Bytes,
}

impl Batch {
    /// Encodes the batch for the log.
    pub fn encode(&self) -> Vec<u8> {
        to_bytes(self)
    }

    /// Decodes a batch from the log.
    ///
    /// # Errors
    /// If the bytes are not a batch of a supported version.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        from_bytes(bytes)
    }
}

/// Encodes a value: a byte for the version, then the value.
pub(crate) fn to_bytes<T: Serialize>(value: &T) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(256);
    write_bytes(value, &mut bytes);
    bytes
}

/// Appends a byte for the version, then the value.
pub(crate) fn write_bytes<T: Serialize>(value: &T, bytes: &mut Vec<u8>) {
    write_version(VERSION, value, bytes);
}

/// Appends a byte for another version, then the value.
pub(crate) fn write_version<T: Serialize>(version: u8, value: &T, bytes: &mut Vec<u8>) {
    bytes.push(version);
    let before = std::mem::take(bytes);
    *bytes = postcard::to_extend(value, before).expect("a vector takes all bytes");
}

/// Decodes what [`to_bytes`] encoded. No bytes may follow the value.
pub(crate) fn from_bytes<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Malformed> {
    match bytes {
        [VERSION, rest @ ..] => whole(rest),
        [version, ..] => Err(Malformed::Version(*version)),
        [] => Err(Malformed::Bytes),
    }
}

/// As [`write_bytes`], with a second part for the context if there is one.
pub(crate) fn write_with_context<T: Serialize, C: Serialize>(
    value: &T,
    context: Option<&C>,
    bytes: &mut Vec<u8>,
) {
    match context {
        Some(context) => write_version(VERSION_WITH_CONTEXT, &(value, context), bytes),
        None => write_bytes(value, bytes),
    }
}

/// Decodes what [`write_with_context`] encoded. The second part is the default one if there is none.
pub(crate) fn from_bytes_with_context<'a, T, C>(bytes: &'a [u8]) -> Result<(T, C), Malformed>
where
    T: Deserialize<'a>,
    C: Deserialize<'a> + Default,
{
    match bytes {
        [VERSION_WITH_CONTEXT, rest @ ..] => whole(rest),
        _ => Ok((from_bytes(bytes)?, C::default())),
    }
}

/// Decodes a value without a version byte. No bytes may follow it.
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

    /// The bytes of each kind: every event that was ever logged must stay readable.
    #[test]
    fn the_numbers_of_the_kinds_stay() {
        let (user, item) = ("u".to_owned(), "i".to_owned());
        let list = RewardedList {
            number: 300,
            user: user.clone(),
            items: vec![ListItem {
                item: item.clone(),
                features: vec![1.0],
                score: 0.0,
                reward: Some(-0.0),
            }],
            context: Vec::new(),
            looked_at: Some(1),
            cluster: 2,
            decided: 3,
            clock: 4,
            event: 5,
        };
        let list_bytes = [
            &[7, 1, 0xac, 2, 1, b'u', 1, 1, b'i', 1][..],
            &1f64.to_le_bytes(),
            &0f64.to_le_bytes(),
            &[1],
            &(-0f64).to_le_bytes(),
            &[0, 1, 1, 2, 3, 4, 5],
        ]
        .concat();
        let described = vec![DescribedItem {
            id: "d".to_owned(),
            features: Vec::new(),
            description: Description {
                title: Some("t".to_owned()),
                tags: vec!["g".to_owned()],
                is_unavailable: true,
                data: "{}".to_owned(),
            },
        }];
        let kinds = [
            (Event::Expect { users: 3 }, &[0, 3][..]),
            (Event::Learn { round: Vec::new() }, &[1, 0]),
            (Event::Upsert { items: Vec::new() }, &[2, 0]),
            (Event::Remove { item }, &[3, 1, b'i']),
            (Event::Forget { user }, &[4, 1, b'u']),
            (Event::Fit { fit: vec![9, 8] }, &[5, 2, 9, 8]),
            (Event::Expire { before: 300 }, &[6, 0xac, 2]),
            (Event::LearnLists { lists: vec![list] }, &list_bytes),
            (
                Event::LearnAssumed {
                    round: Vec::new(),
                    assumed: vec![true],
                    corrected: Vec::new(),
                },
                &[8, 0, 1, 1, 0],
            ),
            (
                Event::Describe { items: described },
                &[9, 1, 1, b'd', 0, 1, 1, b't', 1, 1, b'g', 1, 2, b'{', b'}'],
            ),
            (
                Event::StartExperiment {
                    name: "x".to_owned(),
                    salt: 300,
                    arms: vec![ArmPlan {
                        name: "a".to_owned(),
                        policy: "{}".to_owned(),
                        share: 128,
                    }],
                },
                &[10, 1, b'x', 0xac, 2, 1, 1, b'a', 2, b'{', b'}', 0x80, 1],
            ),
            (
                Event::EndExperiment {
                    name: "x".to_owned(),
                    winner: "a".to_owned(),
                },
                &[11, 1, b'x', 1, b'a'],
            ),
            (
                Event::FitArm {
                    arm: 2,
                    fit: vec![9],
                },
                &[12, 2, 1, 9],
            ),
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
