//! A bucket of keys: reads and writes at its leader, and a copy in memory that is kept up to date.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

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
use super::tail::{Delivered, Next, Start, Tail};

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
    pub fn new(link: Link, bucket: String, ttl: Option<Duration>) -> Keys {
        Keys {
            link,
            stream: format!("KV_{bucket}").into(),
            prefix: format!("$KV.{bucket}.").into(),
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

    /// Reads the bucket, then its changes, again and again.
    async fn keep_copy(&self) {
        loop {
            let result = self.read_until_broken().await;
            self.copy.tried.send_replace(true);
            if let Err(error) = result {
                tracing::debug!(%error, bucket = &*self.stream, "the bucket is read again");
                sleep(READ_AGAIN).await;
            }
        }
    }

    async fn read_until_broken(&self) -> Result<(), BusError> {
        let filter = format!("{}>", self.prefix);
        let start = Start::LastPerSubject;
        let (mut tail, pending) =
            Tail::open(&self.link, &self.stream, Some(&filter), start).await?;
        let mut all = BTreeMap::new();
        let mut complete = pending == 0;
        loop {
            if complete {
                break;
            }
            match tail.next().await {
                Next::Message(message) => {
                    complete = message.pending == 0;
                    let (key, slot) = self.slot(message);
                    all.insert(key, slot);
                }
                // Messages that expired meanwhile do not come.
                Next::Idle => complete = true,
                Next::Broken => return Ok(()),
            }
        }
        self.copy.replace(all);
        self.copy.tried.send_replace(true);
        loop {
            match tail.next().await {
                Next::Message(message) => {
                    let (key, slot) = self.slot(message);
                    self.copy.apply(key, slot);
                }
                Next::Idle => {}
                Next::Broken => return Ok(()),
            }
        }
    }

    fn slot(&self, message: Delivered) -> (String, Slot) {
        let subject = message.subject.as_str();
        let key = subject.strip_prefix(&*self.prefix).unwrap_or(subject);
        let deleted = message
            .headers
            .is_some_and(|headers| headers.get(OPERATION).is_some());
        let slot = Slot {
            revision: message.sequence,
            value: (!deleted).then_some(message.bytes),
            seen: Instant::now(),
        };
        (key.to_owned(), slot)
    }
}

/// The last message of a key, as this node knows it.
#[derive(Debug)]
struct Slot {
    revision: u64,
    /// None if the key was deleted or has expired. Then an older message does not bring it back.
    value: Option<Bytes>,
    seen: Instant,
}

/// A copy of a bucket.
struct Copy {
    ttl: Option<Duration>,
    slots: Mutex<BTreeMap<String, Slot>>,
    /// Rises with each change.
    version: watch::Sender<u64>,
    /// True when the bucket has been read once, or could not be.
    tried: watch::Sender<bool>,
}

impl Copy {
    fn new(ttl: Option<Duration>) -> Copy {
        Copy {
            ttl,
            slots: Mutex::default(),
            version: watch::channel(0).0,
            tried: watch::channel(false).0,
        }
    }

    fn slots(&self) -> MutexGuard<'_, BTreeMap<String, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self) {
        self.version.send_modify(|version| *version += 1);
    }

    fn is_expired(&self, slot: &Slot, now: Instant) -> bool {
        self.ttl
            .is_some_and(|ttl| now.duration_since(slot.seen) >= ttl)
    }

    fn entries(&self, now: Instant) -> Vec<(String, Entry)> {
        let slots = self.slots();
        let live = slots.iter().filter(|(_, slot)| !self.is_expired(slot, now));
        live.filter_map(|(key, slot)| {
            let entry = Entry {
                revision: slot.revision,
                value: slot.value.clone()?,
            };
            Some((key.clone(), entry))
        })
        .collect()
    }

    /// Takes over a message, unless a later one of its key is known.
    fn apply(&self, key: String, slot: Slot) {
        let mut slots = self.slots();
        if slots
            .get(&key)
            .is_some_and(|old| old.revision >= slot.revision)
        {
            return;
        }
        slots.insert(key, slot);
        drop(slots);
        self.notify();
    }

    /// Takes over the whole bucket. Keys that are not in it vanish, except those that are newer than all of it: the
    /// replica that was read may be behind.
    fn replace(&self, all: BTreeMap<String, Slot>) {
        let mut slots = self.slots();
        let last = all.values().map(|slot| slot.revision).max().unwrap_or(0);
        slots.retain(|key, slot| slot.revision > last || all.contains_key(key));
        for (key, slot) in all {
            match slots.get(&key) {
                Some(old) if old.revision >= slot.revision => {}
                _ => drop(slots.insert(key, slot)),
            }
        }
        drop(slots);
        self.notify();
    }

    /// Deletes the values of expired entries.
    fn expire(&self, now: Instant) {
        let Some(ttl) = self.ttl else { return };
        let mut slots = self.slots();
        let mut changed = false;
        for slot in slots.values_mut() {
            if slot.value.is_some() && self.is_expired(slot, now) {
                slot.value = None;
                changed = true;
            }
        }
        // Messages that are this old are no more in the bucket.
        slots.retain(|_, slot| now.duration_since(slot.seen) < 10 * ttl);
        drop(slots);
        if changed {
            self.notify();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(3);

    fn slot(revision: u64, seen: Instant) -> Slot {
        Slot {
            revision,
            value: Some(Bytes::from(revision.to_string())),
            seen,
        }
    }

    fn seen(copy: &Copy, now: Instant) -> Vec<(String, u64)> {
        let entries = copy.entries(now).into_iter();
        entries.map(|(key, entry)| (key, entry.revision)).collect()
    }

    #[test]
    fn keys_that_are_gone_vanish_when_the_bucket_is_read_again() {
        let now = Instant::now();
        let copy = Copy::new(None);
        copy.apply("a".into(), slot(1, now));
        copy.apply("b".into(), slot(2, now));
        copy.apply("c".into(), slot(9, now));
        // The replica has got as far as 5.
        copy.replace(BTreeMap::from([("b".into(), slot(5, now))]));
        assert_eq!(seen(&copy, now), [("b".into(), 5), ("c".into(), 9)]);
    }

    #[test]
    fn a_replica_that_is_behind_does_not_bring_back_a_deleted_key() {
        let now = Instant::now();
        let copy = Copy::new(None);
        copy.apply("a".into(), slot(1, now));
        let deleted = Slot {
            value: None,
            ..slot(4, now)
        };
        copy.apply("a".into(), deleted);
        copy.replace(BTreeMap::from([("a".into(), slot(1, now))]));
        copy.apply("a".into(), slot(1, now));
        assert_eq!(seen(&copy, now), []);
        copy.apply("a".into(), slot(6, now));
        assert_eq!(seen(&copy, now), [("a".into(), 6)]);
    }

    #[test]
    fn to_read_an_entry_again_does_not_prolong_its_life() {
        let now = Instant::now();
        let copy = Copy::new(Some(TTL));
        copy.apply("a".into(), slot(1, now));
        let later = now + TTL / 2;
        copy.replace(BTreeMap::from([("a".into(), slot(1, later))]));
        let end = now + TTL;
        assert_eq!(seen(&copy, end - EXPIRY_CHECK), [("a".into(), 1)]);
        assert_eq!(seen(&copy, end), []);
        let version = copy.version.subscribe();
        copy.expire(end);
        assert!(version.has_changed().unwrap());
        copy.replace(BTreeMap::from([("a".into(), slot(1, end))]));
        assert_eq!(seen(&copy, end), []);
    }
}
