//! Why something that was asked for is not done.

use crate::store::StoreError;

/// Why something that was asked for is not done. Nothing was changed, but where it is
/// [`Refusal::Unknown`] whether something was.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// The decision was not handed out here.
    #[error("there is no such decision")]
    UnknownDecision,
    /// Its lifetime is over.
    #[error("the decision's lifetime is over")]
    Expired,
    /// The reward of the item shown was learned before.
    #[error("the reward was learned before")]
    Answered,
    /// It was made by another copy of the data folder.
    #[error("the decision was made by another copy of this data folder, after the two parted")]
    OtherCopy,
    /// The user it was made for was forgotten.
    #[error("the user of the decision was forgotten")]
    Forgotten,
    /// There is no such item.
    #[error("there is no item '{id}' {place}")]
    UnknownItem {
        /// Its id.
        id: String,
        /// Where it should be.
        place: &'static str,
        /// Which part of the request names it.
        field: &'static str,
    },
    /// Nothing is known of the user.
    #[error("nothing is known of user '{0}'")]
    UnknownUser(String),
    /// There is no such cluster.
    #[error("there is no cluster {0}")]
    UnknownCluster(u64),
    /// Part of the request cannot be.
    #[error("{message}")]
    Invalid {
        /// Which part.
        field: String,
        /// What is wrong with it.
        message: String,
    },
    /// Something about one entry of a batch.
    #[error("{1}")]
    At(String, Box<Refusal>),
    /// It could be done only before the first round.
    #[error("{0} rounds have been learned, and this is possible before the first only")]
    Begun(u64),
    /// Nothing can be written; what is known can still be read.
    #[error("nothing can be written at the moment: {0}")]
    ReadOnly(String),
    /// Writing failed in a way that leaves open whether it was written.
    #[error("whether it was written is not known; send it again: {0}")]
    Unknown(String),
    /// Too many writes wait.
    #[error("too many writes wait; try again soon")]
    Overloaded,
    /// The server is about to end.
    #[error("the server is closing")]
    Closing,
}

impl Refusal {
    /// A part of the request cannot be.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Refusal::Invalid {
            field: field.into(),
            message: message.into(),
        }
    }

    /// The same about one entry of a batch.
    pub fn within(self, list: &str, index: usize) -> Self {
        Refusal::At(format!("{list}[{index}]"), Box::new(self))
    }
}

impl From<&StoreError> for Refusal {
    fn from(error: &StoreError) -> Self {
        Refusal::ReadOnly(match error {
            // The folder is the operator's business, not the caller's.
            StoreError::Write { reason, .. } | StoreError::Read { reason, .. } => reason.clone(),
            StoreError::Damaged { .. } | StoreError::Format { .. } => "a file is damaged".into(),
            StoreError::InUse(_) => "the folder is in use".into(),
            StoreError::Refused(reason) => reason.clone(),
        })
    }
}
