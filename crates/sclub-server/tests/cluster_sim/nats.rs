//! A simulated NATS: streams, buckets, objects and listeners, and the network between it and the nodes.
//!
//! All faults are drawn here. [`crate::bus`] has the calls of a node.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use rand::RngExt;
use sclub_server::cluster::TTL;
use sclub_server::cluster::bus::{Bucket, BusError, Entry, Incoming, MIN_MAX_MESSAGE};
use sclub_server::env::Spawner;
use tokio::sync::{mpsc, watch};

use crate::clock::SimClock;
use crate::seed::{Rng, chance, stream};

/// The milliseconds for which the id of a message is remembered.
const DEDUP: u64 = 120_000;

/// The maximum number of milliseconds by which a request is late. The caller has given up by then.
pub const MAX_LATE: u64 = 9_000;

/// The connection of a process.
pub type LinkId = u64;

/// Probabilities for each message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Network {
    /// The request does not arrive.
    pub lost: f64,
    /// It is executed, and the answer does not arrive.
    pub unanswered: f64,
    /// It is executed after the caller has given up.
    pub late: f64,
    /// It is executed again later.
    pub doubled: f64,
    /// A channel of messages breaks.
    pub broken: f64,
    /// A message takes up to `delay` milliseconds, otherwise up to 3.
    pub slow: f64,
    pub delay: u64,
}

impl Network {
    pub const PERFECT: Network = Network {
        lost: 0.0,
        unanswered: 0.0,
        late: 0.0,
        doubled: 0.0,
        broken: 0.0,
        slow: 0.0,
        delay: 1,
    };
}

/// A rule of the bus that is broken on purpose, to see that the simulation finds out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    Nothing,
    /// Appends do not check the last sequence.
    ExpectedLast,
    /// Appends with an id that is known are appended again.
    Dedup,
}

/// The fate of a message.
#[derive(Debug, Clone, Copy)]
pub struct Fate {
    pub is_lost: bool,
    pub is_answered: bool,
    /// The milliseconds until it is executed, and from then until the answer arrives.
    pub there: u64,
    pub back: u64,
    /// It is executed again this much later.
    pub again: Option<u64>,
}

/// The servers, and the network around them.
pub struct Nats {
    core: Mutex<Core>,
    pub clock: SimClock,
    /// Starts tasks of the network, which no crash of a node ends.
    pub spawner: Arc<dyn Spawner>,
}

impl fmt::Debug for Nats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nats")
    }
}

pub struct Core {
    rng: Rng,
    pub network: Network,
    pub broken: Broken,
    pub has_majority: bool,
    /// The milliseconds by which the answers of nodes to each other are late.
    pub reply_delay: u64,
    /// The connections that get no messages of a stream at the moment.
    pub frozen: BTreeSet<(LinkId, String)>,
    /// The maximum length of a request and an answer, and that of a message of a stream.
    pub max_message: usize,
    pub max_append: usize,
    streams: BTreeMap<String, Stream>,
    buckets: BTreeMap<Bucket, Keys>,
    pub objects: BTreeMap<String, Bytes>,
    listeners: BTreeMap<String, Vec<Listener>>,
    links: BTreeMap<LinkId, LinkState>,
    last_link: LinkId,
    pub counts: BTreeMap<&'static str, u64>,
}

/// A stream. Nothing is really removed, so that the end of a run can look at all of it.
pub struct Stream {
    pub first: u64,
    pub messages: Vec<Bytes>,
    ids: VecDeque<(String, u64, u64)>,
    pub version: watch::Sender<u64>,
}

struct Keys {
    ttl: Option<u64>,
    revision: u64,
    slots: BTreeMap<String, Slot>,
    /// The key of each revision.
    changes: Vec<String>,
    version: watch::Sender<u64>,
}

struct Slot {
    revision: u64,
    value: Option<Bytes>,
    /// The time at which it expires.
    until: u64,
}

struct Listener {
    link: LinkId,
    requests: mpsc::Sender<Incoming>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LinkState {
    Up,
    Cut,
    Gone,
}

impl Nats {
    pub fn new(seed: u64, clock: SimClock, spawner: Arc<dyn Spawner>) -> Arc<Self> {
        let keys = |ttl| Keys {
            ttl,
            revision: 0,
            slots: BTreeMap::new(),
            changes: Vec::new(),
            version: watch::channel(0).0,
        };
        let buckets = [
            (Bucket::Members, keys(Some(TTL))),
            (Bucket::Leases, keys(Some(TTL))),
            (Bucket::Config, keys(None)),
        ];
        Arc::new(Self {
            core: Mutex::new(Core {
                rng: stream(seed, "network"),
                network: Network::PERFECT,
                broken: Broken::Nothing,
                has_majority: true,
                reply_delay: 0,
                frozen: BTreeSet::new(),
                max_message: MIN_MAX_MESSAGE,
                max_append: MIN_MAX_MESSAGE,
                streams: BTreeMap::new(),
                buckets: buckets.into(),
                objects: BTreeMap::new(),
                listeners: BTreeMap::new(),
                links: BTreeMap::new(),
                last_link: 0,
                counts: BTreeMap::new(),
            }),
            clock,
            spawner,
        })
    }

    pub fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a task of the network.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.spawner
            .spawn("network", Box::pin(task))
            .expect("the network does not end");
    }
}

impl Core {
    pub fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub fn connect(&mut self) -> LinkId {
        self.last_link += 1;
        self.links.insert(self.last_link, LinkState::Up);
        self.last_link
    }

    /// The process is gone.
    pub fn disconnect(&mut self, link: LinkId) {
        self.links.insert(link, LinkState::Gone);
    }

    pub fn cut(&mut self, link: LinkId, is_cut: bool) {
        let state = self.links.entry(link).or_insert(LinkState::Gone);
        match (*state, is_cut) {
            (LinkState::Gone, _) => {}
            (_, true) => *state = LinkState::Cut,
            (_, false) => *state = LinkState::Up,
        }
    }

    pub fn is_up(&self, link: LinkId) -> bool {
        self.links.get(&link) == Some(&LinkState::Up)
    }

    /// Draws the milliseconds that a message takes.
    pub fn delay(&mut self) -> u64 {
        let Network { slow, delay, .. } = self.network;
        match chance(&mut self.rng, slow) {
            true => self.rng.random_range(0..=delay),
            false => self.rng.random_range(0..=3),
        }
    }

    /// Draws whether a channel breaks.
    pub fn breaks(&mut self) -> bool {
        let broken = self.network.broken;
        chance(&mut self.rng, broken)
    }

    pub fn is_one_of(&mut self, number: u64) -> bool {
        self.rng.random_range(0..number) == 0
    }

    pub fn fate(&mut self) -> Fate {
        let Network {
            lost,
            unanswered,
            late,
            doubled,
            ..
        } = self.network;
        let rng = &mut self.rng;
        let is_lost = chance(rng, lost);
        let is_answered = !chance(rng, unanswered);
        let is_late = chance(rng, late);
        let is_doubled = chance(rng, doubled);
        let fate = Fate {
            is_lost,
            is_answered,
            there: match is_late {
                true => self.rng.random_range(1_500..MAX_LATE),
                false => self.delay(),
            },
            back: self.delay(),
            again: is_doubled.then(|| self.rng.random_range(0..4_000)),
        };
        for (is_so, what) in [
            (is_lost, "lost"),
            (!is_lost && !is_answered, "unanswered"),
            (!is_lost && is_late, "late"),
            (!is_lost && is_doubled, "doubled"),
        ] {
            if is_so {
                self.count(what);
            }
        }
        fate
    }

    pub fn stream(&mut self, name: &str) -> &mut Stream {
        let new = || Stream {
            first: 1,
            messages: Vec::new(),
            ids: VecDeque::new(),
            version: watch::channel(0).0,
        };
        self.streams.entry(name.to_owned()).or_insert_with(new)
    }

    pub fn append(
        &mut self,
        now: u64,
        stream: &str,
        id: &str,
        expected_last: u64,
        message: Bytes,
    ) -> Result<u64, BusError> {
        let broken = self.broken;
        let stream = self.stream(stream);
        stream
            .ids
            .retain(|&(_, _, appended)| now - appended < DEDUP);
        let last = stream.messages.len() as u64;
        let known = stream.ids.iter().find(|(known, ..)| known == id);
        if let Some(&(_, sequence, _)) = known {
            if broken == Broken::Dedup {
                stream.messages.push(message);
                stream.version.send_modify(|version| *version += 1);
                return Ok(last + 1);
            }
            self.count("deduplicated");
            return Ok(sequence);
        }
        if last != expected_last && broken != Broken::ExpectedLast {
            self.count("conflicts");
            return Err(BusError::Conflict);
        }
        stream.messages.push(message);
        stream.ids.push_back((id.to_owned(), last + 1, now));
        stream.version.send_modify(|version| *version += 1);
        Ok(last + 1)
    }

    pub fn bounds(&mut self, stream: &str) -> (u64, u64) {
        let stream = self.stream(stream);
        (stream.first, stream.messages.len() as u64)
    }

    pub fn purge(&mut self, stream: &str, before: u64) {
        let stream = self.stream(stream);
        let end = stream.messages.len() as u64 + 1;
        if before > stream.first {
            stream.first = before.min(end);
            stream.version.send_modify(|version| *version += 1);
            self.count("purges");
        }
    }

    fn keys(&mut self, bucket: Bucket) -> &mut Keys {
        self.buckets.get_mut(&bucket).expect("all are there")
    }

    /// The entry of a key, as the leader knows it.
    pub fn get(&mut self, now: u64, bucket: Bucket, key: &str) -> Option<Entry> {
        let slot = self.keys(bucket).slots.get(key)?;
        let value = slot.value.clone().filter(|_| now < slot.until)?;
        let revision = slot.revision;
        Some(Entry { revision, value })
    }

    /// Writes a key, or deletes it. `expected` is the revision that its entry must have, 0 for none.
    pub fn write(
        &mut self,
        now: u64,
        bucket: Bucket,
        key: &str,
        value: Option<Bytes>,
        expected: Option<u64>,
    ) -> Result<u64, BusError> {
        let revision = self.get(now, bucket, key).map_or(0, |entry| entry.revision);
        if expected.is_some_and(|expected| expected != revision) {
            self.count("refused keys");
            return Err(BusError::Conflict);
        }
        // Servers expire messages a little late.
        let late = self.rng.random_range(0..=100);
        let keys = self.keys(bucket);
        keys.revision += 1;
        let slot = Slot {
            revision: keys.revision,
            value,
            until: keys.ttl.map_or(u64::MAX, |ttl| now + ttl + late),
        };
        keys.slots.insert(key.to_owned(), slot);
        keys.changes.push(key.to_owned());
        keys.version.send_modify(|version| *version += 1);
        Ok(keys.revision)
    }

    /// The live entries of a bucket.
    pub fn live(&mut self, now: u64, bucket: Bucket) -> BTreeMap<String, Entry> {
        let keys: Vec<String> = self.keys(bucket).slots.keys().cloned().collect();
        let live = keys.into_iter().filter_map(|key| {
            let entry = self.get(now, bucket, &key)?;
            Some((key, entry))
        });
        live.collect()
    }

    /// The keys that have changed after a revision, and the last revision.
    pub fn changes(&mut self, bucket: Bucket, after: u64) -> (Vec<String>, u64) {
        let keys = self.keys(bucket);
        let changes = keys.changes[after as usize..].to_vec();
        (changes, keys.revision)
    }

    pub fn key_versions(&mut self, bucket: Bucket) -> watch::Receiver<u64> {
        self.keys(bucket).version.subscribe()
    }

    pub fn listen(&mut self, link: LinkId, subject: &str, requests: mpsc::Sender<Incoming>) {
        let listeners = self.listeners.entry(subject.to_owned()).or_default();
        listeners.push(Listener { link, requests });
    }

    /// The listeners of a subject. Those that are cut off may still be listed: then a request gets no answer.
    pub fn listeners(&mut self, subject: &str) -> Vec<(LinkId, mpsc::Sender<Incoming>)> {
        let links = self.links.clone();
        let Some(listeners) = self.listeners.get_mut(subject) else {
            return Vec::new();
        };
        listeners.retain(|listener| {
            !listener.requests.is_closed() && links.get(&listener.link) != Some(&LinkState::Gone)
        });
        let all = listeners.iter();
        all.map(|listener| (listener.link, listener.requests.clone()))
            .collect()
    }

    /// All streams, with everything that was ever appended.
    pub fn streams(&self) -> &BTreeMap<String, Stream> {
        &self.streams
    }
}
