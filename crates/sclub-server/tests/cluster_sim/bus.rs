//! The bus of one process: its calls go over the simulated network.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use sclub_server::cluster::TTL;
use sclub_server::cluster::bus::{Bucket, Bus, BusError, Call, Entry, Incoming, Message, Reply};
use sclub_server::env::{Clock, Spawner};
use tokio::sync::{mpsc, oneshot, watch};

use crate::clock::SimClock;
use crate::nats::{Core, Fate, LinkId, Nats};

/// The milliseconds for which a call waits for its answer.
const TIMEOUT: u64 = 2_000;
/// The milliseconds between two attempts to reach the servers.
const RECONNECT: u64 = 50;
/// The number of messages that a channel holds.
const CHANNEL: usize = 256;
/// The length of a piece of an object.
const PIECE: usize = 1_000;

/// The bus of a process.
pub struct SimBus {
    nats: Arc<Nats>,
    pub link: LinkId,
    /// Starts tasks that stop with the process.
    spawner: Arc<dyn Spawner>,
    views: BTreeMap<Bucket, Arc<View>>,
    is_blocking: AtomicBool,
}

impl fmt::Debug for SimBus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimBus({})", self.link)
    }
}

/// A bucket as a process last saw it.
struct View {
    ttl: Option<u64>,
    slots: Mutex<BTreeMap<String, Seen>>,
    version: watch::Sender<u64>,
}

struct Seen {
    revision: u64,
    value: Option<Bytes>,
    at: u64,
}

impl View {
    fn slots(&self) -> MutexGuard<'_, BTreeMap<String, Seen>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_live(&self, seen: &Seen, now: u64) -> bool {
        self.ttl.is_none_or(|ttl| now - seen.at < ttl)
    }

    fn notify(&self) {
        self.version.send_modify(|version| *version += 1);
    }
}

impl SimBus {
    /// Connects a process.
    pub fn connect(nats: &Arc<Nats>, spawner: Arc<dyn Spawner>) -> Arc<Self> {
        let now = nats.clock.now();
        let link = nats.core().connect();
        let mut views = BTreeMap::new();
        for (bucket, ttl) in [
            (Bucket::Members, Some(TTL)),
            (Bucket::Leases, Some(TTL)),
            (Bucket::Config, None),
        ] {
            let live = nats.core().live(now, bucket).into_iter();
            let slots = live.map(|(key, entry)| (key, seen(entry, now)));
            let view = Arc::new(View {
                ttl,
                slots: Mutex::new(slots.collect()),
                version: watch::channel(0).0,
            });
            let (_, last) = nats.core().changes(bucket, 0);
            let task = keep_view(Arc::clone(nats), link, bucket, Arc::clone(&view), last);
            let _ = spawner.spawn("view", Box::pin(task));
            views.insert(bucket, view);
        }
        Arc::new(Self {
            nats: Arc::clone(nats),
            link,
            spawner,
            views,
            is_blocking: AtomicBool::new(false),
        })
    }

    /// Executes a call at the servers.
    fn call<'a, T: Send + 'static>(
        &'a self,
        run: impl Fn(&mut Core, u64) -> Result<T, BusError> + Send + Sync + 'static,
    ) -> Call<'a, T> {
        Box::pin(async move {
            if self.is_blocking.load(Ordering::SeqCst) {
                return self.call_at_once(run);
            }
            let clock = &self.nats.clock;
            let deadline = clock.now() + TIMEOUT;
            self.connected(deadline).await?;
            let fate = self.nats.core().fate();
            let (reply, answer) = oneshot::channel();
            let (nats, link) = (Arc::clone(&self.nats), self.link);
            self.nats.spawn(async move {
                let done = execute(&nats, fate, &run).await;
                if let Some(done) = done {
                    nats.clock.sleep(fate.back).await;
                    if fate.is_answered && nats.core().is_up(link) {
                        let _ = reply.send(done);
                    }
                }
                if let Some(again) = fate.again.filter(|_| !fate.is_lost) {
                    nats.clock.sleep(again).await;
                    let now = nats.clock.now();
                    let mut core = nats.core();
                    if core.has_majority {
                        let _ = run(&mut core, now);
                    }
                }
            });
            answered(clock, answer).await
        })
    }

    /// Executes a call of a thread that blocks. It takes no time.
    fn call_at_once<T>(
        &self,
        run: impl Fn(&mut Core, u64) -> Result<T, BusError>,
    ) -> Result<T, BusError> {
        let now = self.nats.clock.now();
        let mut core = self.nats.core();
        let Fate {
            is_lost,
            is_answered,
            ..
        } = core.fate();
        if is_lost || !core.is_up(self.link) || !core.has_majority {
            return Err(BusError::Timeout);
        }
        let done = run(&mut core, now);
        match is_answered {
            true => done,
            false => Err(BusError::Timeout),
        }
    }

    /// Waits until there is a connection.
    async fn connected(&self, deadline: u64) -> Result<(), BusError> {
        let clock = &self.nats.clock;
        while !self.is_connected() {
            if clock.now() >= deadline {
                return Err(BusError::Timeout);
            }
            clock.sleep(RECONNECT).await;
        }
        Ok(())
    }

    fn write<'a>(
        &'a self,
        bucket: Bucket,
        key: &str,
        value: Option<Bytes>,
        expected: Option<u64>,
    ) -> Call<'a, u64> {
        let key = key.to_owned();
        // Each write has an id, so it is executed once.
        let done: Mutex<Option<Result<u64, BusError>>> = Mutex::default();
        self.call(move |core, now| {
            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
            let done = match &*done {
                Some(Ok(revision)) => return Ok(*revision),
                _ => {
                    *done = Some(core.write(now, bucket, &key, value.clone(), expected));
                    done
                }
            };
            done.clone().expect("just written")
        })
    }

    /// Hands on the messages of a stream.
    async fn follow_on(
        nats: Arc<Nats>,
        link: LinkId,
        stream: String,
        mut next: u64,
        sender: mpsc::Sender<Result<Message, BusError>>,
    ) {
        let mut version = nats.core().stream(&stream).version.subscribe();
        loop {
            let is_there = {
                let mut core = nats.core();
                let (first, last) = core.bounds(&stream);
                next < first || next <= last
            };
            if !is_there {
                tokio::select! {
                    biased;
                    () = sender.closed() => return,
                    _ = version.changed() => continue,
                }
            }
            let delay = nats.core().delay();
            nats.clock.sleep(delay).await;
            let is_waiting = || {
                let core = nats.core();
                !core.is_up(link) || core.frozen.contains(&(link, stream.clone()))
            };
            while is_waiting() {
                if sender.is_closed() {
                    return;
                }
                nats.clock.sleep(RECONNECT).await;
            }
            let messages = {
                let mut core = nats.core();
                if core.breaks() {
                    core.count("broken channels");
                    Err(BusError::Timeout)
                } else {
                    let stream = core.stream(&stream);
                    match next < stream.first {
                        true => Err(BusError::Missing("the message".to_owned())),
                        false => Ok(stream.messages[next as usize - 1..].to_vec()),
                    }
                }
            };
            match messages {
                Err(error) => {
                    let _ = sender.send(Err(error)).await;
                    return;
                }
                Ok(messages) => {
                    for message in messages {
                        if sender.send(Ok((next, message))).await.is_err() {
                            return;
                        }
                        next += 1;
                    }
                }
            }
        }
    }
}

fn seen(entry: Entry, at: u64) -> Seen {
    Seen {
        revision: entry.revision,
        value: Some(entry.value),
        at,
    }
}

/// Executes a call at the servers; `None` if there will be no answer.
async fn execute<T>(
    nats: &Nats,
    fate: Fate,
    run: &(impl Fn(&mut Core, u64) -> Result<T, BusError> + Send + Sync),
) -> Option<Result<T, BusError>> {
    if fate.is_lost {
        return None;
    }
    nats.clock.sleep(fate.there).await;
    let now = nats.clock.now();
    let mut core = nats.core();
    if !core.has_majority {
        // Sometimes a server says so.
        return match core.is_one_of(3) {
            true => Some(Err(BusError::NoResponders)),
            false => None,
        };
    }
    Some(run(&mut core, now))
}

/// Waits for an answer.
async fn answered<T>(
    clock: &SimClock,
    answer: oneshot::Receiver<Result<T, BusError>>,
) -> Result<T, BusError> {
    let answer = async {
        match answer.await {
            Ok(answer) => answer,
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        answer = answer => answer,
        () = clock.sleep(TIMEOUT) => Err(BusError::Timeout),
    }
}

/// Keeps the view of a bucket up to date.
async fn keep_view(nats: Arc<Nats>, link: LinkId, bucket: Bucket, view: Arc<View>, mut last: u64) {
    let mut version = nats.core().key_versions(bucket);
    version.mark_changed();
    loop {
        let now = nats.clock.now();
        let ends = match view.ttl {
            None => None,
            Some(ttl) => {
                let slots = view.slots();
                let live = slots.values().filter(|seen| seen.value.is_some());
                live.map(|seen| seen.at + ttl).min()
            }
        };
        let expiry = async {
            match ends {
                Some(end) => nats.clock.sleep(end.saturating_sub(now)).await,
                None => std::future::pending().await,
            }
        };
        let is_changed = tokio::select! {
            biased;
            _ = version.changed() => true,
            () = expiry => false,
        };
        if !is_changed {
            let now = nats.clock.now();
            for seen in view.slots().values_mut() {
                if !view.is_live(seen, now) {
                    seen.value = None;
                }
            }
            view.notify();
            continue;
        }
        let delay = nats.core().delay();
        nats.clock.sleep(delay).await;
        while !nats.core().is_up(link) {
            nats.clock.sleep(RECONNECT).await;
        }
        let now = nats.clock.now();
        let mut core = nats.core();
        let (keys, revision) = core.changes(bucket, last);
        last = revision;
        let mut slots = view.slots();
        for key in keys {
            let entry = core.get(now, bucket, &key);
            let old = slots.get(&key).map_or(0, |old| old.revision);
            match entry {
                Some(entry) if entry.revision > old => drop(slots.insert(key, seen(entry, now))),
                Some(_) => {}
                // Deleted, or expired meanwhile.
                None => drop(slots.remove(&key)),
            }
        }
        drop((slots, core));
        view.notify();
    }
}

impl Bus for SimBus {
    fn append<'a>(
        &'a self,
        stream: &'a str,
        id: &'a str,
        expected_last: u64,
        message: Bytes,
    ) -> Call<'a, u64> {
        let (stream, id) = (stream.to_owned(), id.to_owned());
        if message.len() > self.nats.core().max_append {
            return Box::pin(async { Err(BusError::TooLarge) });
        }
        self.call(move |core, now| core.append(now, &stream, &id, expected_last, message.clone()))
    }

    fn bounds<'a>(&'a self, stream: &'a str) -> Call<'a, (u64, u64)> {
        let stream = stream.to_owned();
        self.call(move |core, _| Ok(core.bounds(&stream)))
    }

    fn follow<'a>(
        &'a self,
        stream: &'a str,
        after: u64,
    ) -> Call<'a, mpsc::Receiver<Result<Message, BusError>>> {
        let opened = self.bounds(stream);
        Box::pin(async move {
            let (first, last) = opened.await?;
            if after + 1 < first {
                return Err(BusError::Missing(format!("message {}", after + 1)));
            }
            let is_blocking = self.is_blocking.load(Ordering::SeqCst);
            if !is_blocking {
                let (sender, receiver) = mpsc::channel(CHANNEL);
                let nats = Arc::clone(&self.nats);
                let name = stream.to_owned();
                let task = Self::follow_on(nats, self.link, name, after + 1, sender);
                let _ = self.spawner.spawn("follow", Box::pin(task));
                return Ok(receiver);
            }
            // All that is there, or a part of it and an error.
            let (sender, receiver) = mpsc::channel((last - after) as usize + 1);
            let mut core = self.nats.core();
            for next in after + 1..=last {
                if core.breaks() {
                    core.count("broken channels");
                    let _ = sender.try_send(Err(BusError::Timeout));
                    break;
                }
                let message = core.stream(stream).messages[next as usize - 1].clone();
                let _ = sender.try_send(Ok((next, message)));
            }
            Ok(receiver)
        })
    }

    fn purge<'a>(&'a self, stream: &'a str, before: u64) -> Call<'a, ()> {
        let stream = stream.to_owned();
        self.call(move |core, _| {
            core.purge(&stream, before);
            Ok(())
        })
    }

    fn entries(&self, bucket: Bucket) -> Vec<(String, Entry)> {
        let view = &self.views[&bucket];
        let now = self.nats.clock.now();
        let slots = view.slots();
        let live = slots.iter().filter(|(_, seen)| view.is_live(seen, now));
        live.filter_map(|(key, seen)| {
            let entry = Entry {
                revision: seen.revision,
                value: seen.value.clone()?,
            };
            Some((key.clone(), entry))
        })
        .collect()
    }

    fn changed(&self, bucket: Bucket) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let mut version = self.views[&bucket].version.subscribe();
        Box::pin(async move {
            if version.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        })
    }

    fn get<'a>(&'a self, bucket: Bucket, key: &'a str) -> Call<'a, Option<Entry>> {
        let key = key.to_owned();
        self.call(move |core, now| Ok(core.get(now, bucket, &key)))
    }

    fn create<'a>(&'a self, bucket: Bucket, key: &'a str, value: Bytes) -> Call<'a, u64> {
        self.write(bucket, key, Some(value), Some(0))
    }

    fn update<'a>(
        &'a self,
        bucket: Bucket,
        key: &'a str,
        value: Bytes,
        revision: u64,
    ) -> Call<'a, u64> {
        self.write(bucket, key, Some(value), Some(revision))
    }

    fn put<'a>(&'a self, bucket: Bucket, key: &'a str, value: Bytes) -> Call<'a, u64> {
        self.write(bucket, key, Some(value), None)
    }

    fn delete<'a>(&'a self, bucket: Bucket, key: &'a str, revision: Option<u64>) -> Call<'a, ()> {
        let deleted = self.write(bucket, key, None, revision);
        Box::pin(async move { deleted.await.map(drop) })
    }

    fn request<'a>(&'a self, subject: &'a str, request: Bytes, timeout_ms: u64) -> Call<'a, Bytes> {
        Box::pin(async move {
            let clock = &self.nats.clock;
            if request.len() > self.max_message() {
                return Err(BusError::TooLarge);
            }
            self.connected(clock.now() + timeout_ms).await?;
            let fate = self.nats.core().fate();
            let (reply, mut answers) = mpsc::channel(4);
            let (nats, from) = (Arc::clone(&self.nats), self.link);
            let subject = subject.to_owned();
            self.nats.spawn(async move {
                if fate.is_lost {
                    return nats.clock.sleep(timeout_ms).await;
                }
                nats.clock.sleep(fate.there).await;
                let is_delivered = deliver(&nats, from, &subject, &request, &reply);
                if !is_delivered && nats.core().is_up(from) {
                    let _ = reply.try_send(Err(BusError::NoResponders));
                }
                if let Some(again) = fate.again {
                    nats.clock.sleep(again).await;
                    deliver(&nats, from, &subject, &request, &reply);
                }
            });
            tokio::select! {
                biased;
                answer = answers.recv() => match answer {
                    Some(answer) => answer,
                    None => {
                        clock.sleep(timeout_ms).await;
                        Err(BusError::Timeout)
                    }
                },
                () = clock.sleep(timeout_ms) => Err(BusError::Timeout),
            }
        })
    }

    fn listen<'a>(&'a self, subject: &'a str) -> Call<'a, mpsc::Receiver<Incoming>> {
        Box::pin(async move {
            self.connected(self.nats.clock.now() + TIMEOUT).await?;
            let delay = self.nats.core().delay();
            self.nats.clock.sleep(delay).await;
            let mut core = self.nats.core();
            if !core.is_up(self.link) || core.fate().is_lost {
                return Err(BusError::Timeout);
            }
            let (sender, receiver) = mpsc::channel(CHANNEL);
            core.listen(self.link, subject, sender);
            Ok(receiver)
        })
    }

    fn upload<'a>(
        &'a self,
        name: &'a str,
        mut bytes: mpsc::Receiver<Result<Bytes, BusError>>,
    ) -> Call<'a, ()> {
        Box::pin(async move {
            let mut object = Vec::new();
            while let Some(piece) = bytes.recv().await {
                object.extend_from_slice(&piece?);
            }
            let (name, object) = (name.to_owned(), Bytes::from(object));
            let stored = self.call(move |core, _| {
                core.objects.insert(name.clone(), object.clone());
                Ok(())
            });
            stored.await
        })
    }

    fn download<'a>(&'a self, name: &'a str) -> Call<'a, mpsc::Receiver<Result<Bytes, BusError>>> {
        let key = name.to_owned();
        let found = self.call(move |core, _| {
            let object = core.objects.get(&key).cloned();
            object.ok_or_else(|| BusError::Missing(key.clone()))
        });
        Box::pin(async move {
            let object = found.await?;
            let (sender, receiver) = mpsc::channel(object.len() / PIECE + 2);
            for piece in object.chunks(PIECE) {
                if self.nats.core().breaks() {
                    let _ = sender.try_send(Err(BusError::Timeout));
                    break;
                }
                let _ = sender.try_send(Ok(Bytes::copy_from_slice(piece)));
            }
            Ok(receiver)
        })
    }

    fn objects<'a>(&'a self, prefix: &'a str) -> Call<'a, Vec<String>> {
        let prefix = prefix.to_owned();
        self.call(move |core, _| {
            let names = core.objects.keys().filter(|name| name.starts_with(&prefix));
            Ok(names.cloned().collect())
        })
    }

    fn remove<'a>(&'a self, name: &'a str) -> Call<'a, ()> {
        let name = name.to_owned();
        self.call(move |core, _| {
            core.objects.remove(&name);
            Ok(())
        })
    }

    fn max_message(&self) -> usize {
        self.nats.core().max_message
    }

    fn sweep(&self) -> Call<'_, ()> {
        self.call(|_, _| Ok(()))
    }

    fn is_connected(&self) -> bool {
        self.nats.core().is_up(self.link)
    }

    fn block(&self, mut future: Pin<Box<dyn Future<Output = ()> + Send + '_>>) {
        /// Notes that the future is to be polled again.
        struct Again(AtomicBool);
        impl Wake for Again {
            fn wake(self: Arc<Self>) {
                self.0.store(true, Ordering::SeqCst);
            }
        }
        let again = Arc::new(Again(AtomicBool::new(true)));
        let waker = Waker::from(Arc::clone(&again));
        let mut context = Context::from_waker(&waker);
        self.is_blocking.store(true, Ordering::SeqCst);
        while again.0.swap(false, Ordering::SeqCst) {
            if let Poll::Ready(()) = future.as_mut().poll(&mut context) {
                break;
            }
        }
        drop(future);
        self.is_blocking.store(false, Ordering::SeqCst);
    }
}

/// Delivers a request to all listeners of a subject. Returns false if there are none.
fn deliver(
    nats: &Arc<Nats>,
    from: LinkId,
    subject: &str,
    request: &Bytes,
    reply: &mpsc::Sender<Result<Bytes, BusError>>,
) -> bool {
    let listeners = nats.core().listeners(subject);
    let mut is_delivered = false;
    for (link, requests) in listeners {
        let mut core = nats.core();
        // The servers may not have noticed yet that a node is cut off.
        let is_up = core.is_up(link);
        is_delivered |= is_up || core.is_one_of(2);
        drop(core);
        if is_up {
            let incoming = Incoming {
                bytes: request.clone(),
                reply: Box::new(SimReply {
                    nats: Arc::clone(nats),
                    from: link,
                    to: from,
                    reply: reply.clone(),
                }),
            };
            let _ = requests.try_send(incoming);
        }
    }
    is_delivered
}

/// Takes the answer to a request.
struct SimReply {
    nats: Arc<Nats>,
    from: LinkId,
    to: LinkId,
    reply: mpsc::Sender<Result<Bytes, BusError>>,
}

impl fmt::Debug for SimReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimReply({} to {})", self.from, self.to)
    }
}

impl Reply for SimReply {
    fn send(self: Box<Self>, answer: Bytes) {
        let nats = Arc::clone(&self.nats);
        let fate = nats.core().fate();
        if fate.is_lost || !fate.is_answered || !nats.core().is_up(self.from) {
            return;
        }
        let late = nats.core().reply_delay;
        assert!(answer.len() <= nats.core().max_message, "a large answer");
        let spawner = Arc::clone(&nats);
        spawner.spawn(async move {
            nats.clock.sleep(fate.back + late).await;
            if nats.core().is_up(self.to) {
                let _ = self.reply.try_send(Ok(answer));
            }
        });
    }
}
