//! The contents of a cluster's streams, read beside the nodes, and compared with what clients and nodes say.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use sclub_server::cluster::bus::{Bus, BusError};
use sclub_server::cluster::members::partition_of;
use sclub_server::cluster::nats::{NatsBus, NatsOptions};
use sclub_server::cluster::{Cluster, TTL};
use sclub_server::decision::{DecisionContents, Sealer};
use sclub_server::event::{Batch, Event};
use sclub_server::identity::Identity;
use sclub_server::state::{Effect, State};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::load::{Load, SentReward};
use crate::nodes::{SOON, TestCluster};

/// The messages of a stream in order, from the first.
type Messages = Arc<Mutex<Vec<Vec<u8>>>>;

/// Reads all streams from the first message on, while nodes write and purge them.
pub struct Recorder {
    runtime: Runtime,
    bus: Arc<NatsBus>,
    identity: Identity,
    streams: BTreeMap<String, Messages>,
}

/// The result of an audit.
#[derive(Debug)]
pub struct Audit {
    /// The number of rewards in the streams.
    pub rewards: usize,
    /// The number of batches, and of those that were purged.
    pub batches: u64,
    pub purged: u64,
    /// The number of fits.
    pub fits: usize,
}

impl Recorder {
    pub fn start(cluster: &TestCluster) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let options = NatsOptions {
            url: cluster.nats.url(),
            cluster: "sclub".to_owned(),
            creds: None,
            ca: None,
        };
        let bus = runtime.block_on(NatsBus::connect(options)).unwrap();
        let (_, identity) = runtime.block_on(Cluster::read(&*bus)).unwrap();
        let mut streams = BTreeMap::new();
        for stream in cluster.groups() {
            let messages = Messages::default();
            runtime.spawn(record(
                Arc::clone(&bus),
                stream.clone(),
                Arc::clone(&messages),
            ));
            streams.insert(stream, messages);
        }
        Self {
            runtime,
            bus,
            identity,
            streams,
        }
    }

    /// Waits until nothing is written any more, and every node has applied everything. Then checks that
    /// - every acknowledged reward is in the streams once, and none that was not sent,
    /// - the states of owners and standbys are those of a fold of the stream, from its first message and from the
    ///   oldest snapshot.
    pub fn check(&self, cluster: &TestCluster, load: &Load, standby: usize) -> Audit {
        load.check_failures();
        let lasts = self.wait_until_quiet(cluster);
        let mut audit = Audit {
            rewards: 0,
            batches: 0,
            purged: 0,
            fits: 0,
        };
        self.check_rewards(cluster, load, &mut audit);
        let views: Vec<Value> = (0..cluster.count()).map(|i| cluster.hashes(i)).collect();
        let answer = cluster.client(0).call("GET", "/v1/state?hash=true", "");
        let state = answer.unwrap().body;
        assert_eq!(state["rewards"], audit.rewards, "{state}");
        for (group, &last) in &lasts {
            let from_start = self.fold(group, State::new(self.identity.clone()).unwrap());
            assert_eq!(from_start.position(), last, "{group}");
            let hash = from_start.hash();
            let (first, _) = self.wait(self.bus.bounds(group));
            audit.batches += last;
            audit.purged += first - 1;
            let from_snapshot = self.fold_from_snapshot(group, first, last);
            assert_eq!(from_snapshot.hash(), hash, "{group} from its snapshot");
            if group != "catalogue" {
                assert_eq!(state["hashes"][group], hash, "{group}: {state}");
            }
            let mut owners = 0;
            let mut followers = 0;
            for (i, view) in views.iter().enumerate() {
                let Some(part) = view.get(group) else {
                    continue;
                };
                let name = cluster.name(i);
                assert_eq!(part["position"], last, "{group} on {name}: {part}");
                assert_eq!(part["hash"], hash, "{group} on {name}: {part}");
                match part["is_leading"] == true {
                    true => owners += 1,
                    false => followers += 1,
                }
            }
            assert_eq!(owners, 1, "owners of {group}");
            assert!(followers >= standby, "{followers} standbys of {group}");
        }
        audit
    }

    /// Waits until a stream was purged, and a fit is in one.
    pub fn wait_for_a_purge_and_a_fit(&self) {
        let begun = Instant::now();
        let is_purged = || {
            let mut groups = self.streams.keys();
            groups.any(|group| {
                let bounds = self.runtime.block_on(self.bus.bounds(group));
                bounds.is_ok_and(|(first, _)| first > 1)
            })
        };
        let has_fit = || {
            self.streams.values().any(|messages| {
                let messages = messages.lock().unwrap();
                let mut events = messages
                    .iter()
                    .flat_map(|bytes| Batch::decode(bytes).unwrap().events);
                events.any(|event| matches!(event, Event::Fit { .. }))
            })
        };
        while !is_purged() || !has_fit() {
            // A purge needs hundreds of batches of one partition.
            assert!(begun.elapsed() < 5 * SOON, "no purge, or no fit");
            thread::sleep(Duration::from_millis(200));
        }
    }

    fn wait<T>(&self, call: impl Future<Output = Result<T, BusError>>) -> T {
        self.runtime.block_on(call).unwrap()
    }

    /// Waits until every node that has a group has all of it, for longer than a lease. Returns the last batches.
    fn wait_until_quiet(&self, cluster: &TestCluster) -> BTreeMap<String, u64> {
        cluster.wait_until_ready();
        let begun = Instant::now();
        let mut since = Instant::now();
        let mut before = BTreeMap::new();
        loop {
            let lasts: BTreeMap<String, u64> = cluster
                .groups()
                .into_iter()
                .map(|group| {
                    let (_, last) = self.wait(self.bus.bounds(&group));
                    (group, last)
                })
                .collect();
            let recorded = |group: &String| self.streams[group].lock().unwrap().len() as u64;
            let has_all = lasts.iter().all(|(group, &last)| recorded(group) == last)
                && (0..cluster.count()).all(|i| {
                    let view = cluster.hashes(i);
                    let parts = view.as_object().unwrap().iter();
                    let mut parts = parts.filter(|(group, _)| lasts.contains_key(*group));
                    parts.all(|(group, part)| part["position"] == lasts[group])
                });
            if !has_all || lasts != before {
                since = Instant::now();
            }
            if since.elapsed() > Duration::from_millis(TTL / 2) {
                return lasts;
            }
            if begun.elapsed() > SOON {
                let recorded: Vec<u64> = lasts.keys().map(recorded).collect();
                let views: Vec<Value> = (0..cluster.count()).map(|i| cluster.hashes(i)).collect();
                panic!("it is never quiet: {lasts:?}, recorded {recorded:?}, nodes {views:#?}");
            }
            before = lasts;
            thread::sleep(Duration::from_millis(200));
        }
    }

    fn check_rewards(&self, cluster: &TestCluster, load: &Load, audit: &mut Audit) {
        let sealer = Sealer::new(self.identity.key());
        let number = |sent: &SentReward| {
            let bytes = sealer.open(&sent.decision).unwrap();
            DecisionContents::decode(&bytes).unwrap().number
        };
        let acknowledged = load.acknowledged.lock().unwrap();
        let unanswered = load.unanswered.lock().unwrap();
        let all = acknowledged.iter().chain(&*unanswered);
        let sent: HashMap<u64, f64> = all.map(|sent| (number(sent), sent.reward)).collect();
        assert_eq!(
            sent.len(),
            acknowledged.len() + unanswered.len(),
            "two decisions have the same number"
        );
        let mut learned = HashSet::new();
        for (group, messages) in &self.streams {
            for bytes in messages.lock().unwrap().iter() {
                for event in Batch::decode(bytes).unwrap().events {
                    audit.fits += usize::from(matches!(event, Event::Fit { .. }));
                    let Event::Learn { round } = event else {
                        continue;
                    };
                    for reward in round {
                        let partition = partition_of(&reward.user, cluster.partitions);
                        assert_eq!(*group, format!("p{partition}"), "{reward:?}");
                        assert!(learned.insert(reward.number), "learned twice: {reward:?}");
                        let sent = sent.get(&reward.number);
                        assert_eq!(sent, Some(&reward.reward), "was not sent: {reward:?}");
                    }
                }
            }
        }
        for sent in &*acknowledged {
            assert!(learned.contains(&number(sent)), "{sent:?} was lost");
        }
        audit.rewards = learned.len();
    }

    /// Applies the messages of a stream that come after a state.
    fn fold(&self, group: &str, mut state: State) -> State {
        let messages = self.streams[group].lock().unwrap();
        let mut effect = Effect::default();
        for bytes in &messages[state.position() as usize..] {
            let batch = Batch::decode(bytes).unwrap();
            let number = state.position() + 1;
            let replayed = state.replay(number, &batch, &mut effect);
            replayed.unwrap_or_else(|rejected| panic!("batch {number} of {group}: {rejected:?}"));
        }
        state
    }

    /// The oldest snapshot, with the messages that are in the stream now. They must be the recorded ones.
    fn fold_from_snapshot(&self, group: &str, first: u64, last: u64) -> State {
        let prefix = format!("{group}/");
        let names = self.wait(self.bus.objects(&prefix));
        let mut state = State::new(self.identity.clone()).unwrap();
        if let Some(name) = names.first() {
            let bytes = self.runtime.block_on(async {
                let mut pieces = self.bus.download(name).await.unwrap();
                let mut bytes = Vec::new();
                while let Some(piece) = pieces.recv().await {
                    bytes.extend_from_slice(&piece.unwrap());
                }
                bytes
            });
            let loaded = State::load(self.identity.clone(), &mut bytes.as_slice());
            state = loaded.unwrap_or_else(|error| panic!("{name}: {error:?}"));
        }
        let from = state.position();
        assert!(from + 1 >= first, "{group}: batch {} is gone", from + 1);
        if last >= first {
            let again = self.runtime.block_on(async {
                let mut messages = self.bus.follow(group, first - 1).await.unwrap();
                let mut all = Vec::new();
                while all.len() as u64 <= last - first {
                    all.push(messages.recv().await.unwrap().unwrap().1.to_vec());
                }
                all
            });
            let recorded = self.streams[group].lock().unwrap();
            assert!(
                recorded[first as usize - 1..] == again[..],
                "a message of {group} has changed"
            );
        }
        self.fold(group, state)
    }
}

/// Appends the messages of a stream as they come.
async fn record(bus: Arc<NatsBus>, stream: String, messages: Messages) {
    loop {
        let after = messages.lock().unwrap().len() as u64;
        let followed = bus.follow(&stream, after).await;
        match followed {
            Ok(mut followed) => {
                while let Some(message) = followed.recv().await {
                    match message {
                        Ok((sequence, bytes)) => {
                            let mut messages = messages.lock().unwrap();
                            assert_eq!(sequence, messages.len() as u64 + 1);
                            messages.push(bytes.to_vec());
                        }
                        Err(error) => eprintln!("{stream} is read again: {error}"),
                    }
                }
            }
            Err(error @ BusError::Missing(_)) => {
                eprintln!("the recorder is too late for {stream}: {error}");
                return;
            }
            Err(_) => {}
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
