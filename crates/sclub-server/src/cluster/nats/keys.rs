//! A bucket of keys: reads and writes at its leader, and a copy in memory that is kept up to date.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::locks::lock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use super::super::bus::{BusError, Entry};
use super::link::{Link, TIMEOUT, code};
use super::tail::{Delivered, Next, Tail};

/// The time between two checks for expired entries.
const EXPIRY_CHECK: Duration = Duration::from_millis(100);
/// The time after which the bucket is read again if that failed.
const READ_AGAIN: Duration = Duration::from_millis(100);

/// The header of a message that deletes a key.
const OPERATION: &str = "KV-Operation";

/// A bucket.
#[derive(Clone)]
pub(super) struct Keys {
    link: Link,
    stream: Arc<str>,
    /// The subject of a key without the key.
    prefix: Arc<str>,
    /// The subjects of new entries.
    live: Arc<str>,
    copy: Arc<Copy>,
}

/// The last message of a key.
#[derive(Debug, Deserialize)]
struct Stored {
    message: StoredMessage,
}

#[derive(Debug, Deserialize)]
struct StoredMessage {
    seq: u64,
    #[serde(default)]
    data: String,
    #[serde(default)]
    hdrs: String,
}

/// The state of a key: an entry, or its deletion.
enum Last {
    Nothing,
    Deleted(u64),
    Entry(Entry),
}

impl Keys {
    pub fn new(link: Link, bucket: String, live: String, ttl: Option<Duration>) -> Keys {
        Keys {
            link,
            stream: format!("KV_{bucket}").into(),
            prefix: format!("$KV.{bucket}.").into(),
            live: live.into(),
            copy: Arc::new(Copy::new(ttl)),
        }
    }

    /// Starts to keep the copy up to date.
    pub fn start(&self) -> Vec<AbortHandle> {
        let keys = self.clone();
        let mut tasks = vec![tokio::spawn(async move { keys.keep_copy().await }).abort_handle()];
        if self.copy.ttl.is_some() {
            let copy = Arc::clone(&self.copy);
            let expire = async move {
                loop {
                    sleep(EXPIRY_CHECK).await;
                    copy.expire(Instant::now());
                }
            };
            tasks.push(tokio::spawn(expire).abort_handle());
        }
        tasks
    }

    /// Waits until the bucket has been read once, or could not be.
    pub async fn loaded(&self) {
        let mut tried = self.copy.tried.subscribe();
        let _ = tokio::time::timeout(TIMEOUT, tried.wait_for(|tried| *tried)).await;
    }

    pub fn entries(&self) -> Vec<(String, Entry)> {
        self.copy.entries(Instant::now())
    }

    /// The next change after this call, also if it happens before the future is polled.
    pub fn changed(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let mut version = self.copy.version.subscribe();
        Box::pin(async move {
            if version.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        })
    }

    pub async fn get(&self, key: &str) -> Result<Option<Entry>, BusError> {
        match self.last(key).await? {
            Last::Entry(entry) => Ok(Some(entry)),
            Last::Nothing | Last::Deleted(_) => Ok(None),
        }
    }

    /// The last message of a key, from the leader: replicas may be behind.
    async fn last(&self, key: &str) -> Result<Last, BusError> {
        let subject = format!("STREAM.MSG.GET.{}", self.stream);
        let body = json!({ "last_by_subj": self.subject(key)? });
        let message = match self.link.api::<Stored>(&subject, &body).await? {
            Ok(stored) => stored.message,
            Err(error) if error.err_code == code::NO_MESSAGE => return Ok(Last::Nothing),
            Err(error) => return Err(error.of(&self.stream)),
        };
        let decoded = |text: &str| {
            let bytes = STANDARD.decode(text);
            bytes
                .map_err(|error| BusError::Failed(format!("the key {key} cannot be read: {error}")))
        };
        let headers = decoded(&message.hdrs)?;
        if String::from_utf8_lossy(&headers).contains(OPERATION) {
            return Ok(Last::Deleted(message.seq));
        }
        Ok(Last::Entry(Entry {
            revision: message.seq,
            value: decoded(&message.data)?.into(),
        }))
    }

    pub async fn create(&self, key: &str, value: Bytes) -> Result<u64, BusError> {
        match self.write(key, value.clone(), Some(0)).await {
            Err(BusError::Conflict) => {}
            result => return result,
        }
        // The key may have been deleted: then its last message says so.
        match self.last(key).await? {
            Last::Deleted(revision) => self.write(key, value, Some(revision)).await,
            // It has expired just now.
            Last::Nothing => self.write(key, value, Some(0)).await,
            Last::Entry(_) => Err(BusError::Conflict),
        }
    }

    /// Writes a key, with a revision only if that is its last one.
    pub async fn write(
        &self,
        key: &str,
        value: Bytes,
        revision: Option<u64>,
    ) -> Result<u64, BusError> {
        self.publish(key, value, revision, None).await
    }

    pub async fn delete(&self, key: &str, revision: Option<u64>) -> Result<(), BusError> {
        let mark = Some((OPERATION, "DEL".to_owned()));
        self.publish(key, Bytes::new(), revision, mark).await?;
        Ok(())
    }

    async fn publish(
        &self,
        key: &str,
        value: Bytes,
        revision: Option<u64>,
        mark: Option<(&'static str, String)>,
    ) -> Result<u64, BusError> {
        let expected =
            revision.map(|revision| ("Nats-Expected-Last-Subject-Sequence", revision.to_string()));
        let headers: Vec<_> = expected.into_iter().chain(mark).collect();
        let subject = self.subject(key)?;
        let id = self.link.unique();
        self.link.publish(subject, &id, &headers, value).await
    }

    fn subject(&self, key: &str) -> Result<String, BusError> {
        let allowed = |part: &str| {
            let special = |byte: u8| matches!(byte, b'-' | b'_' | b'=' | b'/');
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || special(byte);
            !part.is_empty() && part.bytes().all(allowed)
        };
        if !key.split('.').all(allowed) {
            return Err(BusError::Failed(format!(
                "a key has only letters, digits, -, _, =, / and single dots between them; this is '{key}'"
            )));
        }
        Ok(format!("{}{key}", self.prefix))
    }

    /// Reads the bucket, then its changes. A deletion is a message, too.
    async fn keep_copy(&self) {
        let mut tail = loop {
            let live = Some(self.live.to_string());
            match Tail::open(&self.link, &self.stream, 0, live, None).await {
                Ok(tail) => break tail,
                Err(_) => sleep(READ_AGAIN).await,
            }
        };
        // All or nothing is seen of what was there before.
        let mut all = Some(Vec::new());
        loop {
            match tail.next().await {
                Next::Message(message) => {
                    let change = self.change(message);
                    match &mut all {
                        Some(all) => all.push(change),
                        None => self.copy.apply([change]),
                    }
                }
                Next::CaughtUp => {
                    self.copy.apply(all.take().unwrap_or_default());
                    self.copy.tried.send_replace(true);
                }
                Next::Unreachable => {
                    self.copy.tried.send_replace(true);
                    sleep(READ_AGAIN).await;
                }
            }
        }
    }

    fn change(&self, message: Delivered) -> Change {
        let subject = &message.subject;
        let key = subject.strip_prefix(&*self.prefix).unwrap_or(subject);
        let entry = Entry {
            revision: message.sequence,
            value: message.bytes,
        };
        let is_deleted = message.headers.get(OPERATION).is_some();
        Change {
            key: key.to_owned(),
            entry: (!is_deleted).then_some(entry),
            seen: Instant::now(),
        }
    }
}

/// A change of a key: its new entry, or its deletion.
#[derive(Debug)]
struct Change {
    key: String,
    entry: Option<Entry>,
    seen: Instant,
}

/// A copy of a bucket: the entries, and when this node saw them.
struct Copy {
    ttl: Option<Duration>,
    entries: Mutex<BTreeMap<String, (Entry, Instant)>>,
    /// Rises with each change.
    version: watch::Sender<u64>,
    /// True when the bucket has been read once, or could not be.
    tried: watch::Sender<bool>,
}

impl Copy {
    fn new(ttl: Option<Duration>) -> Copy {
        Copy {
            ttl,
            entries: Mutex::default(),
            version: watch::channel(0).0,
            tried: watch::channel(false).0,
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, (Entry, Instant)>> {
        lock(&self.entries)
    }

    fn notify(&self) {
        self.version.send_modify(|version| *version += 1);
    }

    fn is_live(&self, seen: Instant, now: Instant) -> bool {
        self.ttl.is_none_or(|ttl| now.duration_since(seen) < ttl)
    }

    fn entries(&self, now: Instant) -> Vec<(String, Entry)> {
        let entries = self.lock();
        let live = entries
            .iter()
            .filter(|(_, (_, seen))| self.is_live(*seen, now));
        live.map(|(key, (entry, _))| (key.clone(), entry.clone()))
            .collect()
    }

    /// Takes over changes, all at once.
    fn apply(&self, changes: impl IntoIterator<Item = Change>) {
        let mut changes = changes.into_iter().peekable();
        if changes.peek().is_none() {
            return;
        }
        let mut entries = self.lock();
        for Change { key, entry, seen } in changes {
            match entry {
                Some(entry) => drop(entries.insert(key, (entry, seen))),
                None => drop(entries.remove(&key)),
            }
        }
        drop(entries);
        self.notify();
    }

    /// Drops expired entries.
    fn expire(&self, now: Instant) {
        let mut entries = self.lock();
        let before = entries.len();
        entries.retain(|_, (_, seen)| self.is_live(*seen, now));
        let is_changed = entries.len() != before;
        drop(entries);
        if is_changed {
            self.notify();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(3);

    fn change(key: &str, revision: u64, seen: Instant) -> Change {
        let value = Bytes::from(revision.to_string());
        Change {
            key: key.to_owned(),
            entry: Some(Entry { revision, value }),
            seen,
        }
    }

    fn seen(copy: &Copy, now: Instant) -> Vec<(String, u64)> {
        let entries = copy.entries(now).into_iter();
        entries.map(|(key, entry)| (key, entry.revision)).collect()
    }

    #[test]
    fn an_entry_is_gone_when_it_is_deleted_or_expires() {
        let now = Instant::now();
        let copy = Copy::new(Some(TTL));
        copy.apply([
            change("b", 1, now),
            change("a", 2, now),
            change("c", 3, now),
        ]);
        let all = [("a".into(), 2), ("b".into(), 1), ("c".into(), 3)];
        assert_eq!(seen(&copy, now), all);
        let deletion = Change {
            key: "c".to_owned(),
            entry: None,
            seen: now,
        };
        copy.apply([change("b", 4, now + TTL / 2), deletion]);
        assert_eq!(seen(&copy, now), [("a".into(), 2), ("b".into(), 4)]);
        let end = now + TTL;
        let version = copy.version.subscribe();
        copy.expire(end - EXPIRY_CHECK);
        assert!(!version.has_changed().unwrap());
        assert_eq!(seen(&copy, end), [("b".into(), 4)]);
        copy.expire(end);
        assert!(version.has_changed().unwrap());
    }

    #[test]
    fn entries_of_a_bucket_without_expiry_stay() {
        let now = Instant::now();
        let copy = Copy::new(None);
        copy.apply([change("a", 1, now)]);
        let later = now + 100 * TTL;
        copy.expire(later);
        assert_eq!(seen(&copy, later), [("a".into(), 1)]);
    }
}
