//! Everything that a cluster needs from its messaging system: streams, keys, requests and objects.
//!
//! A real cluster uses NATS JetStream ([`super::nats::NatsBus`]). Tests use a simulated one, with messages that are
//! lost, doubled, reordered and delayed.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use tokio::sync::mpsc;

/// The smallest [`Bus::max_message`] that a cluster needs. A batch of events is one message.
pub const MIN_MAX_MESSAGE: usize = 8 << 20;

/// The future result of a call.
pub type Call<'a, T> = Pin<Box<dyn Future<Output = Result<T, BusError>> + Send + 'a>>;

/// The reason why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BusError {
    /// The last sequence of a stream, or the revision of a key, is not the expected one. Nothing was written.
    #[error("another node has written meanwhile")]
    Conflict,
    /// No node listens on the subject. Nothing was sent.
    #[error("no node answers")]
    NoResponders,
    /// No answer came in time. The call may have been executed, or may be executed later.
    #[error("no answer in time")]
    Timeout,
    /// The message is larger than [`Bus::max_message`]. Nothing was sent.
    #[error("the message is larger than the servers allow")]
    TooLarge,
    /// There is no such stream, bucket or object, or the messages were purged.
    #[error("{0} does not exist")]
    Missing(String),
    /// Another error. The call may have been executed.
    #[error("{0}")]
    Failed(String),
}

/// A message of a stream: its sequence, and its bytes.
pub type Message = (u64, Bytes);

/// An entry of a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The revision: it rises with each write to the bucket.
    pub revision: u64,
    /// The value.
    pub value: Bytes,
}

/// A request of another node.
#[derive(Debug)]
pub struct Incoming {
    /// The request.
    pub bytes: Bytes,
    /// Takes the answer. The node that asked may be gone.
    pub reply: Box<dyn Reply>,
}

/// Takes the answer to a request.
pub trait Reply: fmt::Debug + Send {
    /// Sends the answer, which must not be empty. It may be lost.
    fn send(self: Box<Self>, answer: Bytes);
}

/// A bucket of keys. Keys of the first two expire [`super::TTL`] after they were last written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Bucket {
    /// The nodes that are running, by name.
    Members,
    /// The owners, by group.
    Leases,
    /// Everything else. It does not expire.
    Config,
}

/// Streams, keys, requests and objects.
///
/// Names of streams and objects, and subjects, are relative to the cluster.
pub trait Bus: fmt::Debug + Send + Sync {
    /// Appends a message to a stream if its last sequence is `expected_last`. Returns the new sequence.
    ///
    /// `id` identifies the append: if a message with this id was appended within the last two minutes, nothing is
    /// appended, and its sequence is returned. So an append whose outcome is not known can be repeated.
    fn append<'a>(
        &'a self,
        stream: &'a str,
        id: &'a str,
        expected_last: u64,
        message: Bytes,
    ) -> Call<'a, u64>;

    /// The sequences of the first and the last message of a stream, as its leader knows them. In an empty stream the
    /// first is one more than the last.
    fn bounds<'a>(&'a self, stream: &'a str) -> Call<'a, (u64, u64)>;

    /// The messages of a stream after a sequence, in order and without gaps, also those that are appended later.
    /// The receiver gets an error and no more messages if it cannot go on; then the caller follows again. To drop
    /// the receiver ends it.
    fn follow<'a>(
        &'a self,
        stream: &'a str,
        after: u64,
    ) -> Call<'a, mpsc::Receiver<Result<Message, BusError>>>;

    /// Removes the messages of a stream before a sequence.
    fn purge<'a>(&'a self, stream: &'a str, before: u64) -> Call<'a, ()>;

    /// The entries of a bucket as this node last saw them, in the order of their keys. Expired entries are left out,
    /// soon after they expire. It does not wait.
    fn entries(&self, bucket: Bucket) -> Vec<(String, Entry)>;

    /// Waits until [`Bus::entries`] of the bucket may have changed.
    fn changed(&self, bucket: Bucket) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// The entry of a key, as the leader of the bucket knows it.
    fn get<'a>(&'a self, bucket: Bucket, key: &'a str) -> Call<'a, Option<Entry>>;

    /// Writes a key that has no entry. Returns its revision.
    fn create<'a>(&'a self, bucket: Bucket, key: &'a str, value: Bytes) -> Call<'a, u64>;

    /// Writes a key whose entry has this revision. Returns the new revision.
    fn update<'a>(
        &'a self,
        bucket: Bucket,
        key: &'a str,
        value: Bytes,
        revision: u64,
    ) -> Call<'a, u64>;

    /// Writes a key. Returns its revision.
    fn put<'a>(&'a self, bucket: Bucket, key: &'a str, value: Bytes) -> Call<'a, u64>;

    /// Deletes a key; with a revision, only if its entry has that one.
    fn delete<'a>(&'a self, bucket: Bucket, key: &'a str, revision: Option<u64>) -> Call<'a, ()>;

    /// Sends a request to the node that listens on a subject, and waits for its answer.
    fn request<'a>(&'a self, subject: &'a str, request: Bytes, timeout_ms: u64) -> Call<'a, Bytes>;

    /// Listens on a subject until the receiver is dropped.
    fn listen<'a>(&'a self, subject: &'a str) -> Call<'a, mpsc::Receiver<Incoming>>;

    /// Stores an object, in place of the one with the same name. It is complete, or not there. If `bytes` ends with an
    /// error, nothing is stored.
    fn upload<'a>(
        &'a self,
        name: &'a str,
        bytes: mpsc::Receiver<Result<Bytes, BusError>>,
    ) -> Call<'a, ()>;

    /// The bytes of an object.
    fn download<'a>(&'a self, name: &'a str) -> Call<'a, mpsc::Receiver<Result<Bytes, BusError>>>;

    /// The names of the objects that begin with a prefix, sorted.
    fn objects<'a>(&'a self, prefix: &'a str) -> Call<'a, Vec<String>>;

    /// Removes an object. Does nothing if there is none.
    fn remove<'a>(&'a self, name: &'a str) -> Call<'a, ()>;

    /// The maximum length of a message of a stream, a request and an answer, with their headers.
    fn max_message(&self) -> usize {
        MIN_MAX_MESSAGE
    }

    /// Removes the parts of objects whose upload did not end. If there are any, it takes some seconds.
    fn sweep(&self) -> Call<'_, ()>;

    /// Returns true if there is a connection at the moment.
    fn is_connected(&self) -> bool;

    /// Blocks this thread until a future of calls of this bus ends. A simulated bus ends it at once.
    fn block(&self, future: Pin<Box<dyn Future<Output = ()> + Send + '_>>) {
        super::wait::block_on(future);
    }
}
