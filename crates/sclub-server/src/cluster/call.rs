//! Requests between nodes.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::event::DescribedItem;
use crate::traces::SentCaller;

/// A request to the owner of a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum GroupCall {
    /// A request of a client, with its body.
    Http(HttpCall),
    /// Items for the catalogue.
    Upsert(Vec<DescribedItem>),
    /// The group's part in deciding whether a fit is due.
    Progress,
    /// A question of a fit.
    Question(Vec<u8>),
    /// A fit, computed from the group's state after the batch `position`.
    Fit {
        /// The fit.
        fit: Vec<u8>,
        /// The batch.
        position: u64,
    },
    /// Removes the data of forgotten users, except the requests to forget. Returns those.
    Compact,
}

/// A request to a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum NodeCall {
    /// Requests to the owner of groups, by the number of the group. The answer is a list of answers.
    Groups(Vec<(u32, GroupCall)>),
    /// Removes users from the journal of a group. All nodes know that they are forgotten.
    Forget {
        /// The name of the group.
        group: String,
        /// The hashes of the users, each with the number of the event.
        users: Vec<(String, u64)>,
        /// The batch up to which the node must have applied the log before.
        position: u64,
    },
    /// Stores the export of a group's journal as an object.
    Export {
        /// The name of the group.
        group: String,
        /// The name of the object.
        object: String,
    },
    /// The last decisions of a user that the node made.
    Recent {
        /// The user.
        user: String,
    },
    /// The counts of items of the node.
    Counts {
        /// The ids of the items.
        items: Vec<String>,
    },
}

impl NodeCall {
    /// Returns true if all requests only read.
    pub fn is_read(&self) -> bool {
        match self {
            NodeCall::Groups(calls) => calls.iter().all(|(_, call)| call.is_read()),
            NodeCall::Recent { .. } | NodeCall::Counts { .. } => true,
            NodeCall::Forget { .. } | NodeCall::Export { .. } => false,
        }
    }
}

/// A request of a client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HttpCall {
    /// The kind of request.
    pub route: Route,
    /// The body.
    pub body: Vec<u8>,
    /// The batch of the catalogue that the owner must have read before it answers; 0 if it need not wait.
    pub catalogue: u64,
}

/// The kinds of requests of clients that are handed to the owner of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Route {
    /// `POST /v1/recommend`
    Recommend,
    /// `POST /v1/recommend/batch`
    RecommendBatch,
    /// `POST /v1/feedback`
    Feedback,
    /// `POST /v1/feedback/batch`
    FeedbackBatch,
    /// Another one: the method, and the path with its query.
    Other(String, String),
}

impl GroupCall {
    /// Returns true for requests that only read ([`Route::is_read`]).
    pub fn is_read(&self) -> bool {
        matches!(self, GroupCall::Http(call) if call.route.is_read())
    }
}

impl Route {
    /// Returns true for recommendations, which change nothing.
    pub fn is_read(&self) -> bool {
        matches!(self, Route::Recommend | Route::RecommendBatch)
    }
}

/// The answer of a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum GroupAnswer {
    /// This node does not own the group. Nothing was done.
    Moved,
    /// The answer to a client.
    Http(HttpAnswer),
    /// The number of things changed, and the last batch.
    Changed(u64, u64),
    /// The result, and the last batch that it is from.
    Result(Vec<u8>, u64),
    /// The call failed.
    Failed(String),
    /// The answer is too large for a message with other answers. To be sent again, in a message of its own.
    Alone,
}

/// An answer to a client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HttpAnswer {
    /// The status.
    pub status: u16,
    /// The content type.
    pub content_type: String,
    /// The number of seconds after which to retry.
    pub retry_after: Option<u64>,
    /// A warning about the rewards.
    pub warning: Option<String>,
    /// The body.
    pub body: Vec<u8>,
}

/// Encodes a request or an answer.
pub fn encode<T: Serialize>(value: &T) -> Bytes {
    postcard::to_stdvec(value).expect("plain data").into()
}

/// Decodes a request or an answer; `None` if it is malformed.
pub fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    postcard::from_bytes(bytes).ok()
}

/// Encodes a request, and after it the sampled spans that its calls are parts of, by the places of the calls. Nodes of earlier
/// versions read the request only.
pub fn encode_traced(call: &NodeCall, callers: &[(u32, SentCaller)]) -> Bytes {
    if callers.is_empty() {
        return encode(call);
    }
    let bytes = postcard::to_stdvec(call).expect("plain data");
    postcard::to_extend(callers, bytes)
        .expect("plain data")
        .into()
}

/// Decodes what [`encode_traced`] or [`encode`] encoded; `None` if the request is malformed.
pub fn decode_traced(bytes: &[u8]) -> Option<(NodeCall, Vec<(u32, SentCaller)>)> {
    let (call, rest) = postcard::take_from_bytes(bytes).ok()?;
    Some((call, decode(rest).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::SpanContext;

    use super::*;

    #[test]
    fn spans_follow_a_request_and_are_ignored_by_nodes_that_do_not_know_them() {
        let call = NodeCall::Groups(vec![(3, GroupCall::Progress), (4, GroupCall::Compact)]);
        let callers = vec![(1, SentCaller::new(&SpanContext::empty_context()))];
        let traced = encode_traced(&call, &callers);
        assert_eq!(decode_traced(&traced), Some((call.clone(), callers)));
        assert_eq!(decode(&traced), Some(call.clone()));
        let plain = encode_traced(&call, &[]);
        assert_eq!(plain, encode(&call));
        assert_eq!(decode_traced(&plain), Some((call, Vec::new())));
        assert_eq!(decode_traced(&plain[..2]), None);
    }
}
