//! Epochs: they distinguish a folder's own decisions from those of its copies.
//!
//! Each time a server opens a folder it begins an *epoch* with a random id, and writes it to the folder
//! before its first decision. A decision has the id of its epoch and the number of events that the server
//! had applied. A copy of the folder begins epochs of its own. So decisions that another copy made after the
//! copy was taken differ from those made before.

use serde::{Deserialize, Serialize};

use crate::decision::{DecisionContents, epoch_of};

/// The maximum number of epochs that are kept. Decisions of older ones count as expired.
const MAX_EPOCHS: usize = 1 << 14;

/// An epoch: one opening of a folder by a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Epoch {
    /// The number of the epoch, from 1.
    pub number: u64,
    /// The random id.
    pub life: u64,
    /// The number of events in the log when it began.
    pub from: u64,
    /// The service-clock time when it began.
    pub clock: u64,
}

/// The origin of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// It was made here, or in the folder that this is a copy of, before the copy was taken.
    Own {
        /// The latest service-clock time at which it can have been made. It can be less than the decision's
        /// own time: a crash sets the clock back to the last stamp in the log.
        clock: u64,
    },
    /// It was made by another copy.
    OtherCopy,
    /// Its epoch is no longer kept.
    Forgotten,
}

/// The epochs of a folder, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Epochs(Vec<Epoch>);

impl Epochs {
    /// Epochs whose numbers continue after one that version 0.1 has used.
    pub fn after(number: u64) -> Self {
        Self(vec![Epoch {
            number,
            life: 0,
            from: 0,
            clock: 0,
        }])
    }

    /// Begins an epoch.
    pub fn begin(&mut self, life: u64, events: u64, clock: u64) -> Epoch {
        let epoch = Epoch {
            number: self.0.last().map_or(0, |last| last.number) + 1,
            life,
            from: events,
            clock,
        };
        if self.0.len() == MAX_EPOCHS {
            self.0.remove(0);
        }
        self.0.push(epoch);
        epoch
    }

    /// Begins an epoch of one of several groups, whose numbers never coincide: they are `index` modulo `step`. Nodes of
    /// a group may overlap for a moment, so decisions of an epoch do not end where the next one begins.
    pub fn begin_in(&mut self, step: u64, index: u64, life: u64) -> Epoch {
        let epoch = self.begin(life, u64::MAX, u64::MAX);
        let number = (epoch.number / step + 1) * step + index;
        let last = self.0.last_mut().expect("it has begun");
        last.number = number;
        *last
    }

    /// The newest epoch.
    pub fn current(&self) -> Option<Epoch> {
        self.0.last().copied()
    }

    /// Returns true if there is one, the first.
    pub fn is_first(&self) -> bool {
        self.0.len() == 1
    }

    /// The origin of a decision.
    pub fn origin(&self, handed: &DecisionContents<'_>) -> Origin {
        let number = epoch_of(handed.number);
        let place = self.0.partition_point(|epoch| epoch.number < number);
        match self.0.get(place) {
            Some(epoch) if epoch.number != number => Origin::Forgotten,
            Some(epoch) if epoch.life == handed.life => {
                // An epoch ends where the next one begins.
                let next = self.0.get(place + 1);
                if next.is_some_and(|next| handed.event > next.from) {
                    return Origin::OtherCopy;
                }
                let clock = next.map_or(handed.clock, |next| handed.clock.min(next.clock));
                Origin::Own { clock }
            }
            _ => Origin::OtherCopy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::first_number;

    const OWN: Origin = Origin::Own { clock: 0 };

    fn decision(epoch: Epoch, event: u64) -> DecisionContents<'static> {
        DecisionContents {
            life: epoch.life,
            number: first_number(epoch.number) + 7,
            event,
            at: 0,
            clock: 0,
            user: "u".into(),
            cluster: 0,
            shown: Vec::new(),
            context: Vec::new(),
        }
    }

    #[test]
    fn decisions_of_another_copy_are_recognised() {
        let mut original = Epochs::default();
        let first = original.begin(11, 0, 0);
        // The copy is taken after 5 events.
        let mut copy = original.clone();
        let own = copy.begin(22, 5, 100);
        let later = original.begin(33, 9, 100);
        assert_eq!(copy.origin(&decision(first, 3)), OWN);
        assert_eq!(copy.origin(&decision(first, 5)), OWN);
        assert_eq!(copy.origin(&decision(first, 6)), Origin::OtherCopy);
        assert_eq!(copy.origin(&decision(later, 9)), Origin::OtherCopy);
        assert_eq!(copy.origin(&decision(own, 9)), OWN);
        assert_eq!(original.origin(&decision(own, 9)), Origin::OtherCopy);
        assert_eq!(original.origin(&decision(first, 9)), OWN);
    }

    #[test]
    fn a_decision_is_older_than_the_next_epoch() {
        let mut epochs = Epochs::default();
        let first = epochs.begin(1, 0, 0);
        // The clock was at 90 when the server crashed, and the last stamp in the log is of 60.
        let handed = DecisionContents {
            clock: 90,
            ..decision(first, 0)
        };
        assert_eq!(epochs.origin(&handed), Origin::Own { clock: 90 });
        epochs.begin(2, 0, 60);
        assert_eq!(epochs.origin(&handed), Origin::Own { clock: 60 });
    }

    #[test]
    fn very_old_epochs_are_dropped() {
        let mut epochs = Epochs::default();
        let first = epochs.begin(1, 0, 0);
        for life in 0..MAX_EPOCHS as u64 {
            epochs.begin(life, 0, 0);
        }
        assert_eq!(epochs.origin(&decision(first, 0)), Origin::Forgotten);
    }
}
