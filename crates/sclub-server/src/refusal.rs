//! Reasons why a request is refused.

use crate::store::StoreError;

/// The reason why a request is refused. Nothing was changed, except that with [`Refusal::Unknown`] the
/// outcome is not known.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// The decision was not made by this server.
    #[error("unknown decision: it was not made by this server, or was changed")]
    UnknownDecision,
    /// The decision has expired.
    #[error("the decision has expired: rewards must come within the lifetime that the server sets")]
    Expired,
    /// The item shown has its reward already.
    #[error("the item has its reward already")]
    Answered,
    /// The decision was made by another copy of the data folder.
    #[error("the decision was made by another copy of this data folder, after it was copied")]
    OtherCopy,
    /// The user of the decision was forgotten after it was made.
    #[error("the user of the decision was forgotten after it was made")]
    Forgotten,
    /// There is no such item.
    #[error("there is no item '{id}' {place}")]
    UnknownItem {
        /// Its id.
        id: String,
        /// The place where it should be.
        place: &'static str,
        /// The field of the request that names it.
        field: &'static str,
    },
    /// The user has given no reward, or was forgotten.
    #[error("unknown user '{0}': no reward of this user has been learned")]
    UnknownUser(String),
    /// There is no such cluster.
    #[error("there is no cluster {0}")]
    UnknownCluster(u64),
    /// An experiment is under way.
    #[error("experiment '{0}' is running; end it first")]
    ExperimentRuns(String),
    /// There is no such experiment under way.
    #[error("no experiment '{0}' is running; GET /v1/experiments has the one under way")]
    UnknownExperiment(String),
    /// The server cannot do it.
    #[error("{0}")]
    Unsupported(String),
    /// A field of the request is invalid.
    #[error("{message}")]
    Invalid {
        /// The field.
        field: String,
        /// The reason.
        message: String,
    },
    /// The request leaves no item to choose from.
    #[error("{message}")]
    NoCandidates {
        /// The field that has excluded most of them.
        field: &'static str,
        /// The reason.
        message: String,
        /// The candidates that are not in the catalogue.
        missing: Vec<String>,
    },
    /// A refusal of one entry of a batch.
    #[error("{1}")]
    At(String, Box<Refusal>),
    /// The request is allowed before the first round only.
    #[error("{0} rounds have been learned; this is allowed before the first round only")]
    Begun(u64),
    /// The server is read-only.
    #[error("the server is read-only at the moment: {0}")]
    ReadOnly(String),
    /// Writing failed, and the request may be written or not.
    #[error("it is not known whether the request was written; send it again: {0}")]
    Unknown(String),
    /// The request makes a larger event than the log allows.
    #[error("the request is too large for one write; send it in several requests")]
    TooLarge,
    /// The queue of writes is full.
    #[error("too many writes are waiting; retry soon")]
    Overloaded,
    /// Another node of the cluster must answer.
    #[error("the partition of this user is moving to another node; retry soon")]
    Moved,
    /// The server is shutting down.
    #[error("the server is shutting down")]
    Closing,
}

impl Refusal {
    /// A field of the request is invalid.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Refusal::Invalid {
            field: field.into(),
            message: message.into(),
        }
    }

    /// The item is not in the catalogue.
    pub fn unknown_item(id: &str) -> Self {
        Refusal::UnknownItem {
            id: id.to_owned(),
            place: "in the catalogue",
            field: "id",
        }
    }

    /// The same refusal, as one of an entry of a batch.
    pub fn within(self, list: &str, index: usize) -> Self {
        Refusal::At(format!("{list}[{index}]"), Box::new(self))
    }

    /// The same refusal, as one of a request of one entry.
    pub fn alone(self) -> Self {
        match self {
            Refusal::At(_, refusal) => *refusal,
            refusal => refusal,
        }
    }
}

impl From<&StoreError> for Refusal {
    fn from(error: &StoreError) -> Self {
        Refusal::ReadOnly(match error {
            // The path of the folder is not for callers.
            StoreError::Write { reason, .. } | StoreError::Read { reason, .. } => reason.clone(),
            StoreError::Damaged { .. } | StoreError::Format { .. } => "a file is damaged".into(),
            StoreError::InUse(_) => "the folder is in use".into(),
            StoreError::Refused(reason) => reason.clone(),
        })
    }
}
