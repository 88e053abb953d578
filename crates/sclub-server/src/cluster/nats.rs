//! The bus on NATS JetStream.
//!
//! | | |
//! |---|---|
//! | `link` | the connection: requests to JetStream, writes to streams |
//! | `setup` | makes the streams and buckets of a cluster |
//! | `tail` | reads a stream from a sequence on, and what is appended later |
//! | `follow` | a stream as a channel without gaps |
//! | `keys` | buckets of keys, and a copy of them in memory |
//! | `objects` | objects in chunks |
//!
//! JetStream is used through its JSON API over a plain connection. So every timeout, retry and error is decided
//! here, and reads go to the leader of a stream.

mod follow;
mod keys;
mod link;
mod objects;
mod setup;
mod tail;

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_nats::Subject;
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use super::bus::{Bucket, Bus, BusError, Call, Entry, Incoming, Message, Reply};
use keys::Keys;
use link::Link;
use objects::Objects;

/// The number of messages and requests that wait in a channel for the receiver.
const CHANNEL: usize = 1024;

/// The address of the NATS servers, and the cluster's name.
#[derive(Clone, PartialEq, Eq)]
pub struct NatsOptions {
    /// `nats://host:port`, or `tls://`. Several are separated by commas. The first that has `user:password@` is the
    /// one whose user and password are used.
    pub url: String,
    /// The name of the cluster: letters, digits, `-` and `_`.
    pub cluster: String,
    /// A file of credentials.
    pub creds: Option<PathBuf>,
    /// The certificate authorities to trust, a PEM file. It requires TLS.
    pub ca: Option<PathBuf>,
}

impl fmt::Debug for NatsOptions {
    /// Leaves out the URL, which may have a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsOptions")
            .field("cluster", &self.cluster)
            .finish_non_exhaustive()
    }
}

/// The names of the streams, buckets and subjects of a cluster.
#[derive(Debug, Clone)]
struct Names(Arc<str>);

impl Names {
    fn stream(&self, stream: &str) -> String {
        format!("SCLUB_{}_{stream}", self.0)
    }

    fn stream_subject(&self, stream: &str) -> String {
        format!("sclub.{}.s.{stream}", self.0)
    }

    /// The subject that stored messages of a stream are sent to.
    fn stream_live(&self, stream: &str) -> String {
        format!("sclub.{}.f.{stream}", self.0)
    }

    fn request_subject(&self, subject: &str) -> String {
        format!("sclub.{}.r.{subject}", self.0)
    }

    fn bucket(&self, bucket: Bucket) -> String {
        format!("sclub_{}_{}", self.0, bucket_name(bucket))
    }

    /// The subjects that stored entries of a bucket are sent to.
    fn bucket_live(&self, bucket: Bucket) -> String {
        format!("sclub.{}.k.{}.>", self.0, bucket_name(bucket))
    }

    fn objects(&self) -> String {
        format!("sclub_{}_objects", self.0)
    }
}

fn bucket_name(bucket: Bucket) -> &'static str {
    match bucket {
        Bucket::Members => "members",
        Bucket::Leases => "leases",
        Bucket::Config => "config",
    }
}

/// The streams, keys, requests and objects of a cluster, in NATS JetStream.
///
/// It can be used from every thread: its tasks run on the runtime where it was made.
pub struct NatsBus {
    runtime: Handle,
    names: Names,
    link: Link,
    members: Keys,
    leases: Keys,
    config: Keys,
    objects: Objects,
    /// Tasks that end with this.
    tasks: Vec<AbortHandle>,
}

impl fmt::Debug for NatsBus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsBus")
            .field("cluster", &self.names.0)
            .field("connected", &self.is_connected())
            .finish_non_exhaustive()
    }
}

impl Drop for NatsBus {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl NatsBus {
    /// Connects, and reads the keys of the cluster if it exists. From then on it reconnects by itself, without limit.
    ///
    /// # Errors
    /// [`BusError::Failed`] if the name of the cluster or a URL is not valid, or no server can be reached.
    pub async fn connect(options: NatsOptions) -> Result<Arc<NatsBus>, BusError> {
        if !is_name(&options.cluster) {
            return Err(BusError::Failed(format!(
                "the name of a cluster has only letters, digits, - and _; this is '{}'",
                options.cluster
            )));
        }
        let link = Link::connect(&options).await?;
        let names = Names(options.cluster.into());
        let ttl = Some(Duration::from_millis(super::TTL));
        let keys = |bucket, ttl| {
            let live = names.bucket_live(bucket);
            Keys::new(link.clone(), names.bucket(bucket), live, ttl)
        };
        let members = keys(Bucket::Members, ttl);
        let leases = keys(Bucket::Leases, ttl);
        let config = keys(Bucket::Config, None);
        let all = [&members, &leases, &config];
        let tasks = all.iter().flat_map(|keys| keys.start()).collect();
        for keys in all {
            keys.loaded().await;
        }
        Ok(Arc::new(NatsBus {
            runtime: Handle::current(),
            objects: Objects::new(link.clone(), names.objects()),
            names,
            link,
            members,
            leases,
            config,
            tasks,
        }))
    }

    /// Makes the streams, buckets and the object store, with this number of replicas. Does nothing if all exist.
    ///
    /// # Errors
    /// [`BusError::Failed`] if the servers cannot have them, with what to change in their configuration, or if one
    /// exists with other properties.
    pub async fn init(&self, streams: &[String], replicas: usize) -> Result<(), BusError> {
        let streams: Vec<(String, u64)> = streams.iter().map(|s| (s.clone(), 1)).collect();
        self.init_from(&streams, replicas).await
    }

    /// As [`NatsBus::init`], with the sequence of the first message of each stream.
    ///
    /// # Errors
    /// As [`NatsBus::init`].
    pub async fn init_from(
        &self,
        streams: &[(String, u64)],
        replicas: usize,
    ) -> Result<(), BusError> {
        for (stream, _) in streams {
            check_name(stream)?;
        }
        let (link, names, streams) = (self.link.clone(), self.names.clone(), streams.to_vec());
        self.run(async move { setup::init(&link, &names, &streams, replicas).await })
            .await
    }

    /// Returns true if the cluster has been made by [`NatsBus::init`].
    ///
    /// # Errors
    /// [`BusError`] if no answer comes, or JetStream is off.
    pub async fn exists(&self) -> Result<bool, BusError> {
        let (link, names) = (self.link.clone(), self.names.clone());
        self.run(async move { setup::exists(&link, &names).await })
            .await
    }

    /// Checks that the server of the connection is new enough and takes messages that are large enough.
    ///
    /// # Errors
    /// [`BusError::Failed`] with what to change in its configuration.
    pub fn check_server(&self) -> Result<(), BusError> {
        setup::check_server(&self.link)
    }

    /// Runs the work on the runtime of the connection, because the caller's may have no timers and sockets.
    fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, BusError>> + Send + 'static,
    ) -> Call<'_, T> {
        Box::pin(async move {
            match self.runtime.spawn(work).await {
                Ok(result) => result,
                Err(error) => Err(BusError::Failed(error.to_string())),
            }
        })
    }

    fn keys(&self, bucket: Bucket) -> &Keys {
        match bucket {
            Bucket::Members => &self.members,
            Bucket::Leases => &self.leases,
            Bucket::Config => &self.config,
        }
    }
}

impl Bus for NatsBus {
    fn append<'a>(
        &'a self,
        stream: &'a str,
        id: &'a str,
        expected_last: u64,
        message: Bytes,
    ) -> Call<'a, u64> {
        let link = self.link.clone();
        let (stream, id) = (stream.to_owned(), id.to_owned());
        let subject = self.names.stream_subject(&stream);
        self.run(async move {
            check_name(&stream)?;
            let expected = ("Nats-Expected-Last-Sequence", expected_last.to_string());
            link.publish(subject, &id, &[expected], message).await
        })
    }

    fn bounds<'a>(&'a self, stream: &'a str) -> Call<'a, (u64, u64)> {
        let (link, stream) = (self.link.clone(), self.names.stream(stream));
        self.run(async move { link.bounds(&stream).await })
    }

    fn follow<'a>(
        &'a self,
        stream: &'a str,
        after: u64,
    ) -> Call<'a, mpsc::Receiver<Result<Message, BusError>>> {
        let link = self.link.clone();
        let (live, stream) = (self.names.stream_live(stream), self.names.stream(stream));
        self.run(async move { follow::follow(link, stream, live, after).await })
    }

    fn purge<'a>(&'a self, stream: &'a str, before: u64) -> Call<'a, ()> {
        let (link, stream) = (self.link.clone(), self.names.stream(stream));
        self.run(async move { link.purge_before(&stream, before).await })
    }

    fn entries(&self, bucket: Bucket) -> Vec<(String, Entry)> {
        self.keys(bucket).entries()
    }

    fn changed(&self, bucket: Bucket) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.keys(bucket).changed()
    }

    fn get<'a>(&'a self, bucket: Bucket, key: &'a str) -> Call<'a, Option<Entry>> {
        let (keys, key) = (self.keys(bucket).clone(), key.to_owned());
        self.run(async move { keys.get(&key).await })
    }

    fn create<'a>(&'a self, bucket: Bucket, key: &'a str, value: Bytes) -> Call<'a, u64> {
        let (keys, key) = (self.keys(bucket).clone(), key.to_owned());
        self.run(async move { keys.create(&key, value).await })
    }

    fn update<'a>(
        &'a self,
        bucket: Bucket,
        key: &'a str,
        value: Bytes,
        revision: u64,
    ) -> Call<'a, u64> {
        let (keys, key) = (self.keys(bucket).clone(), key.to_owned());
        self.run(async move { keys.write(&key, value, Some(revision)).await })
    }

    fn put<'a>(&'a self, bucket: Bucket, key: &'a str, value: Bytes) -> Call<'a, u64> {
        let (keys, key) = (self.keys(bucket).clone(), key.to_owned());
        self.run(async move { keys.write(&key, value, None).await })
    }

    fn delete<'a>(&'a self, bucket: Bucket, key: &'a str, revision: Option<u64>) -> Call<'a, ()> {
        let (keys, key) = (self.keys(bucket).clone(), key.to_owned());
        self.run(async move { keys.delete(&key, revision).await })
    }

    fn request<'a>(&'a self, subject: &'a str, request: Bytes, timeout_ms: u64) -> Call<'a, Bytes> {
        let (link, subject) = (self.link.clone(), self.names.request_subject(subject));
        let timeout = Duration::from_millis(timeout_ms);
        self.run(async move { link.request(subject, request, timeout).await })
    }

    fn listen<'a>(&'a self, subject: &'a str) -> Call<'a, mpsc::Receiver<Incoming>> {
        let (link, subject) = (self.link.clone(), self.names.request_subject(subject));
        self.run(async move { listen(link, subject).await })
    }

    fn upload<'a>(
        &'a self,
        name: &'a str,
        bytes: mpsc::Receiver<Result<Bytes, BusError>>,
    ) -> Call<'a, ()> {
        let (objects, name) = (self.objects.clone(), name.to_owned());
        self.run(async move { objects.upload(&name, bytes).await })
    }

    fn download<'a>(&'a self, name: &'a str) -> Call<'a, mpsc::Receiver<Result<Bytes, BusError>>> {
        let (objects, name) = (self.objects.clone(), name.to_owned());
        self.run(async move { objects.download(&name).await })
    }

    fn objects<'a>(&'a self, prefix: &'a str) -> Call<'a, Vec<String>> {
        let (objects, prefix) = (self.objects.clone(), prefix.to_owned());
        self.run(async move { objects.list(&prefix).await })
    }

    fn remove<'a>(&'a self, name: &'a str) -> Call<'a, ()> {
        let (objects, name) = (self.objects.clone(), name.to_owned());
        self.run(async move { objects.remove(&name).await })
    }

    fn max_message(&self) -> usize {
        self.link.client().max_payload()
    }

    fn sweep(&self) -> Call<'_, ()> {
        let objects = self.objects.clone();
        self.run(async move { objects.sweep().await })
    }

    fn is_connected(&self) -> bool {
        self.link.is_connected()
    }
}

/// Subscribes to a subject, and hands the requests on until the receiver is dropped. Requests that were on the way then
/// get an empty answer, so that the caller does not wait for the timeout.
async fn listen(link: Link, subject: String) -> Result<mpsc::Receiver<Incoming>, BusError> {
    let mut requests = link.subscribe(subject).await?;
    link.round_trip().await?;
    let (sender, receiver) = mpsc::channel(CHANNEL);
    tokio::spawn(async move {
        loop {
            let request = tokio::select! {
                request = requests.next() => request,
                () = sender.closed() => break,
            };
            let Some(request) = request else { return };
            if let Err(mpsc::error::SendError(refused)) =
                sender.send(incoming(&link, request)).await
            {
                refused.reply.send(Bytes::new());
                break;
            }
        }
        let end = Instant::now() + link::TIMEOUT;
        if requests.drain().await.is_ok() {
            while let Ok(Some(request)) = timeout_at(end, requests.next()).await {
                incoming(&link, request).reply.send(Bytes::new());
            }
        }
    });
    Ok(receiver)
}

fn incoming(link: &Link, request: async_nats::Message) -> Incoming {
    let reply = NatsReply {
        runtime: Handle::current(),
        link: link.clone(),
        to: request.reply,
    };
    Incoming {
        bytes: request.payload,
        reply: Box::new(reply),
    }
}

/// The subject that an answer goes to.
struct NatsReply {
    runtime: Handle,
    link: Link,
    to: Option<Subject>,
}

impl fmt::Debug for NatsReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsReply").field("to", &self.to).finish()
    }
}

impl Reply for NatsReply {
    fn send(self: Box<Self>, answer: Bytes) {
        let NatsReply { runtime, link, to } = *self;
        if let Some(to) = to {
            runtime.spawn(async move {
                if let Err(error) = link.send(to, answer).await {
                    tracing::warn!(%error, "an answer to another node could not be sent");
                }
            });
        }
    }
}

/// Returns true for a name that can be part of a subject, a stream and a bucket.
fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    !name.is_empty() && name.bytes().all(allowed)
}

fn check_name(name: &str) -> Result<(), BusError> {
    match is_name(name) {
        true => Ok(()),
        false => Err(BusError::Failed(format!(
            "the name of a stream has only letters, digits, - and _; this is '{name}'"
        ))),
    }
}
