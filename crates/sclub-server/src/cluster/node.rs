//! A node of a cluster: it follows groups, owns some of them, and answers for them.
//!
//! A *group* is a stream with an engine: one for each partition of the users, and one for the catalogue. Each has a
//! task (`tend`) that decides whether this node follows it, and acquires, renews and hands over its lease.

mod status;
mod tend;

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use bytes::Bytes;
use tokio::sync::watch;

use super::bus::{Bucket, Bus, BusError};
use super::fitter::FitCounts;
use super::forward::Forwarder;
use super::members::{Lease, Members, Move, node_key, partition_of};
use super::{Cluster, ObjectSnapshots, StreamLog, TTL, random};
use crate::api::App;
use crate::engine::{CatalogueSource, Engine, ItemCounts, Replica, Threads};
use crate::env::{Env, Task};
use crate::identity::Identity;
use crate::locks::{lock, read, write};
use crate::meters::Meters;
use crate::settings::Settings;
use crate::store::{COPIES, Epochs, Folder, Snapshots};

/// The milliseconds between two looks at a group, if nothing happens.
const TICK: u64 = 200;
/// The milliseconds between two renewals of a lease.
const RENEW: u64 = TTL / 3;
/// The milliseconds for which a node that starts waits for the bus.
const MAX_START: u64 = 30_000;
/// The milliseconds between two lines of the log about that.
const REPORT: u64 = 4_000;

/// Runs the tasks of a node.
pub trait Tasks: fmt::Debug + Send + Sync {
    /// Starts a task that does not block.
    fn spawn(&self, task: Task);

    /// Runs work that blocks. The result ends with it.
    fn blocking(&self, work: Box<dyn FnOnce() + Send>) -> Task;
}

/// The tasks of a tokio runtime.
#[derive(Debug)]
pub struct TokioTasks(pub tokio::runtime::Handle);

impl Tasks for TokioTasks {
    fn spawn(&self, task: Task) {
        self.0.spawn(task);
    }

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) -> Task {
        let done = self.0.spawn_blocking(work);
        Box::pin(async move { drop(done.await) })
    }
}

/// A group: a partition, or the catalogue.
#[derive(Debug)]
pub struct Group {
    /// Its name, which is also that of its stream, its lease and its subject.
    pub name: String,
    /// Its number; that of the catalogue is the number of partitions.
    pub index: usize,
    /// The engine, while this node follows the group.
    app: RwLock<Option<Arc<App>>>,
    /// The node that owned the group last, as far as this one knows.
    owner: RwLock<Option<Arc<str>>>,
    /// The time at which this node's lease ends if it is not renewed; 0 without one.
    lease_end: AtomicU64,
}

impl Group {
    /// The group's application, if this node follows it.
    pub fn app(&self) -> Option<Arc<App>> {
        let app = read(&self.app);
        app.clone()
    }

    /// Takes note of the owner. Without one, the last one still answers requests that only read.
    fn set_owner(&self, owner: Option<&String>) {
        let Some(owner) = owner else { return };
        let mut known = write(&self.owner);
        if known.as_deref() != Some(&**owner) {
            *known = Some(owner.as_str().into());
        }
    }

    fn set_app(&self, app: Option<Arc<App>>) {
        *write(&self.app) = app;
    }
}

/// A node.
pub struct Node {
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) env: Env,
    pub(crate) tasks: Arc<dyn Tasks>,
    pub(crate) settings: Settings,
    pub(crate) cluster: Cluster,
    pub(crate) identity: Identity,
    pub(crate) meters: Arc<Meters>,
    /// The counts of the items that this node showed, and of the rewards that it logged.
    pub(crate) item_counts: Arc<ItemCounts>,
    /// The name of the node.
    pub name: String,
    pub(super) life: u64,
    standby: usize,
    groups: Vec<Arc<Group>>,
    is_draining: AtomicBool,
    has_catalogue: AtomicBool,
    /// True once the node is among the members.
    is_member: AtomicBool,
    is_closed: watch::Sender<bool>,
    fatal: watch::Sender<Option<String>>,
    /// The last changes of owners, the newest first.
    moves: Mutex<Vec<Move>>,
    /// The number of groups taken over since the start.
    pub(crate) takeovers: AtomicU64,
    pub(crate) fits: FitCounts,
    pub(super) forwarder: Forwarder,
    /// The data folder, until the node is closed.
    folder: Mutex<Option<Folder>>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node({})", self.name)
    }
}

/// The parts that a node is made of.
#[derive(Debug, Clone)]
pub struct NodeParts {
    /// The bus.
    pub bus: Arc<dyn Bus>,
    /// Disk, clock, random numbers and threads.
    pub env: Env,
    /// The runner of tasks.
    pub tasks: Arc<dyn Tasks>,
    /// The settings. `data` is the folder for the journal and for copies of snapshots.
    pub settings: Settings,
    /// The name of the node.
    pub name: String,
    /// The number of other nodes that follow each partition.
    pub standby: usize,
}

impl Node {
    /// A node of the cluster that the bus has. It does nothing before [`Node::start`].
    ///
    /// # Errors
    /// If there is no cluster, the settings differ from the cluster's, or the data folder is of another one.
    pub async fn join(parts: NodeParts) -> Result<Arc<Self>, String> {
        let NodeParts {
            bus,
            env,
            tasks,
            mut settings,
            name,
            standby,
        } = parts;
        if !is_node_name(&name) {
            return Err(format!(
                "the name of a node has only letters, digits, '.', '-' and '_', and does not begin or end with '.'; \
                 this is '{name}'"
            ));
        }
        wait_for_answer(&*bus, &env).await;
        let (cluster, identity) = Cluster::read(&*bus).await?;
        identity
            .check_for_cluster(&settings)
            .and_then(|()| identity.check_run(&settings))
            .map_err(|misfit| misfit.to_string())?;
        cluster.rules.apply(&mut settings)?;
        let groups = Cluster::streams(cluster.partitions)
            .into_iter()
            .enumerate()
            .map(|(index, name)| {
                Arc::new(Group {
                    name,
                    index,
                    app: RwLock::default(),
                    owner: RwLock::default(),
                    lease_end: AtomicU64::new(0),
                })
            });
        let folder = open_folder(&env, &settings.data, &identity, cluster.life)?;
        let life = random(&env)?;
        Ok(Arc::new(Self {
            groups: groups.collect(),

            bus,
            env,
            tasks,
            settings,
            cluster,
            identity,
            meters: Arc::default(),
            item_counts: Arc::default(),
            name,
            life,
            standby,
            is_draining: AtomicBool::new(false),
            has_catalogue: AtomicBool::new(false),
            is_member: AtomicBool::new(false),
            is_closed: watch::channel(false).0,
            fatal: watch::channel(None).0,
            moves: Mutex::default(),
            takeovers: AtomicU64::new(0),
            fits: FitCounts::default(),
            forwarder: Forwarder::default(),
            folder: Mutex::new(Some(folder)),
        }))
    }

    /// Starts the tasks of the node.
    pub fn start(self: &Arc<Self>) {
        self.tasks.spawn(Box::pin(Arc::clone(self).beat()));
        for group in &self.groups {
            let task = tend::tend(Arc::clone(self), Arc::clone(group));
            self.tasks.spawn(Box::pin(task));
        }
        let fitter = super::fitter::fit_forever(Arc::clone(self));
        self.tasks.spawn(Box::pin(fitter));
        self.tasks.spawn(Box::pin(Arc::clone(self).watch_moves()));
        let service = super::serve::answer_as_node(Arc::clone(self));
        self.tasks.spawn(Box::pin(service));
    }

    /// The groups: the partitions, then the catalogue.
    pub fn groups(&self) -> &[Arc<Group>] {
        &self.groups
    }

    /// The partitions.
    pub fn partitions(&self) -> &[Arc<Group>] {
        &self.groups[..self.cluster.partitions]
    }

    /// The catalogue's group.
    pub fn catalogue(&self) -> &Arc<Group> {
        &self.groups[self.cluster.partitions]
    }

    /// The group of a name.
    pub fn group(&self, name: &str) -> Option<&Arc<Group>> {
        self.groups.iter().find(|group| group.name == name)
    }

    /// The partition of a user.
    pub fn group_of(&self, user: &str) -> &Arc<Group> {
        &self.groups[partition_of(user, self.cluster.partitions)]
    }

    /// Returns true if this node writes the log of a group, and its lease has not ended. A process that was paused may
    /// not have noticed that another node owns the group by now.
    pub fn owns(&self, group: &Group) -> bool {
        is_leading(group) && self.env.clock.monotonic() < group.lease_end.load(Ordering::Relaxed)
    }

    /// The reason why the node cannot go on, when there is one.
    pub async fn failed(&self) -> String {
        let mut fatal = self.fatal.subscribe();
        loop {
            if let Some(reason) = fatal.borrow_and_update().clone() {
                return reason;
            }
            if fatal.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// Returns true if this node leads every group that it is the first choice for, has the catalogue, and does not
    /// shut down. While NATS does not answer, a node that was ready stays ready: it answers requests that only read.
    pub fn is_ready(&self) -> bool {
        let members = Members::read(&*self.bus);
        self.has_catalogue.load(Ordering::SeqCst)
            && self.is_member.load(Ordering::SeqCst)
            && !self.is_draining.load(Ordering::SeqCst)
            && self.groups.iter().all(|group| {
                let first = members.ranking(&group.name).first().map(|m| m.name.clone());
                first.as_deref() != Some(&*self.name) || is_leading(group)
            })
    }

    /// Returns true if NATS answers, so that the node can write. Its own entry expires soon after NATS is lost.
    pub fn is_writable(&self) -> bool {
        Members::read(&*self.bus).get(&self.name).is_some()
    }

    /// Hands all groups to other nodes, then stops. Waits for `patience` milliseconds at most.
    pub async fn close(&self, patience: u64) {
        self.is_draining.store(true, Ordering::SeqCst);
        let _ = self.write_member().await;
        let begun = self.env.clock.monotonic();
        // Nodes that shut down at the same time take nothing over.
        let others = || {
            let members = Members::read(&*self.bus);
            let takers = members.ranking("");
            takers.iter().any(|member| member.name != self.name)
        };
        while others()
            && self.groups.iter().any(|group| is_leading(group))
            && self.env.clock.monotonic() - begun < patience
        {
            self.env.clock.sleep(20).await;
        }
        self.is_closed.send_replace(true);
        for group in &self.groups {
            if let Some(app) = group.app()
                && let Some(engine) = app.engine()
            {
                if engine.is_leading() {
                    let _ = engine.resign().await;
                    // Not the lease of another node.
                    if let Ok(Some(entry)) = self.bus.get(Bucket::Leases, &group.name).await
                        && entry.value == self.lease()
                    {
                        let deleted =
                            self.bus
                                .delete(Bucket::Leases, &group.name, Some(entry.revision));
                        let _ = deleted.await;
                    }
                }
                engine.close().await;
            }
        }
        let _ = self.bus.delete(Bucket::Members, &self.name, None).await;
        // Another process may use it.
        lock(&self.folder).take();
    }

    pub(super) fn is_closed(&self) -> bool {
        *self.is_closed.borrow()
    }

    /// The node that owns a group, or owned it last, as far as this one knows.
    pub(super) fn owner_of(&self, group: &Group) -> Option<Arc<str>> {
        let owner = read(&group.owner);
        owner.clone()
    }

    async fn write_member(&self) -> Result<u64, BusError> {
        let member = serde_json::to_vec(&self.member()).expect("plain data");
        self.bus
            .put(Bucket::Members, &self.name, member.into())
            .await
    }

    /// Writes the member entry for as long as the node runs.
    async fn beat(self: Arc<Self>) {
        let mut is_registered = false;
        while !self.is_closed() {
            let namesake = Members::read(&*self.bus).get(&self.name).map(|m| m.life);
            if namesake.is_some_and(|life| life != self.life) {
                // The entry of this node's last run ends soon. That of another process is renewed.
                self.env.clock.sleep(TTL + 2 * TICK).await;
                let namesake = Members::read(&*self.bus).get(&self.name).map(|m| m.life);
                if namesake.is_some_and(|life| life != self.life) {
                    let reason = format!("another node is called '{}'; use --node", self.name);
                    self.fatal.send_replace(Some(reason));
                    return;
                }
            }
            if self.write_member().await.is_ok() {
                self.is_member.store(true, Ordering::SeqCst);
            }
            if !is_registered {
                let key = node_key(&self.name);
                is_registered = self
                    .bus
                    .put(Bucket::Config, &key, Bytes::new())
                    .await
                    .is_ok();
            }
            self.env.clock.sleep(RENEW).await;
        }
    }

    /// Opens the engine of a group.
    async fn open(self: &Arc<Self>, group: &Arc<Group>) -> Result<(), String> {
        let catalogue = match group.index == self.cluster.partitions {
            true => None,
            false => match self.catalogue().app().as_ref().and_then(|app| app.engine()) {
                Some(engine) if self.has_read_catalogue(engine).await? => {
                    Some(engine.catalogue_source())
                }
                // It is read first: without it there is nothing to recommend.
                _ => return Ok(()),
            },
        };
        let (node, of) = (Arc::clone(self), Arc::clone(group));
        let open = move || node.open_engine(&of, catalogue);
        let engine = super::serve::run_blocking(self, open).await?;
        let app = App::new(self.settings.clone());
        app.begin(engine);
        group.set_app(Some(app));
        Ok(())
    }

    /// Closes the engine of a group.
    async fn close_group(&self, group: &Group) {
        let app = group.app();
        group.set_app(None);
        if let Some(engine) = app.as_ref().and_then(|app| app.engine()) {
            engine.close().await;
        }
    }

    /// Returns true if this node has once had the whole catalogue.
    async fn has_read_catalogue(&self, catalogue: &Engine) -> Result<bool, String> {
        if !self.has_catalogue.load(Ordering::SeqCst) {
            let bounds = self.bus.bounds(&self.catalogue().name).await;
            let (_, last) = bounds.map_err(|error| error.to_string())?;
            let is_read = catalogue.state().position() >= last;
            if let (Some(asked), Some(has)) = (self.settings.dim, catalogue.state().dim())
                && asked != has
            {
                let reason = format!("dim is {asked}, and the cluster has {has}; omit dim");
                self.fatal.send_replace(Some(reason));
            }
            self.has_catalogue.store(is_read, Ordering::SeqCst);
        }
        Ok(self.has_catalogue.load(Ordering::SeqCst))
    }

    fn open_engine(
        &self,
        group: &Group,
        catalogue: Option<CatalogueSource>,
    ) -> Result<Engine, String> {
        let path = self.settings.data.join(&group.name);
        let folder = Folder::open(&self.env, &path).map_err(|error| error.to_string())?;
        // Not among the folder's own snapshots, which its own log must reach.
        let copies = Snapshots::open(&self.env, &path.join(COPIES));
        let copies = Arc::new(copies.map_err(|error| error.to_string())?);
        let snapshots = ObjectSnapshots::new(Arc::clone(&self.bus), &group.name, copies);
        let log = self.log(group).map_err(|error| error.to_string())?;
        let replica = Replica {
            folder,
            log: Arc::new(log),
            snapshots: Arc::new(snapshots),
            catalogue,
            meters: Arc::clone(&self.meters),
            item_counts: Arc::clone(&self.item_counts),
            engines: self.cluster.partitions,
        };
        let workers = Box::new(Threads::new(self.settings.fit_threads));
        Engine::follow(replica, &self.identity, &self.settings, workers)
            .map_err(|error| error.to_string())
    }

    fn log(&self, group: &Group) -> std::io::Result<StreamLog> {
        StreamLog::new(Arc::clone(&self.bus), self.env.clone(), group.name.clone())
    }

    /// Begins an epoch of a group. It is durable when this returns.
    async fn begin_epoch(&self, group: &Group) -> Result<Epochs, BusError> {
        let key = format!("epochs.{}", group.name);
        let mut life = [0; 8];
        self.env
            .random
            .fill(&mut life)
            .map_err(|error| BusError::Failed(error.to_string()))?;
        loop {
            let entry = self.bus.get(Bucket::Config, &key).await?;
            let mut epochs = match &entry {
                None => Epochs::default(),
                Some(entry) => postcard::from_bytes(&entry.value)
                    .map_err(|_| BusError::Failed(format!("the key {key} is damaged")))?,
            };
            // Numbers of decisions are unique in the cluster.
            let (step, index) = (self.groups.len() as u64, group.index as u64);
            epochs.begin_in(step, index, u64::from_le_bytes(life));
            let value: Bytes = postcard::to_stdvec(&epochs).expect("plain data").into();
            let written = match entry {
                None => self.bus.create(Bucket::Config, &key, value).await,
                Some(entry) => {
                    let revision = entry.revision;
                    self.bus.update(Bucket::Config, &key, value, revision).await
                }
            };
            match written {
                Ok(_) => return Ok(epochs),
                Err(BusError::Conflict) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The time of day, in milliseconds since 1970.
    pub fn now(&self) -> u64 {
        self.env.clock.wall()
    }

    pub(super) fn lease(&self) -> Bytes {
        let lease = Lease {
            node: self.name.clone(),
            life: self.life,
        };
        serde_json::to_vec(&lease).expect("plain data").into()
    }
}

/// Returns true for a name that can be a part of subjects and keys.
fn is_node_name(name: &str) -> bool {
    let is_part = |part: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        !part.is_empty() && part.bytes().all(allowed)
    };
    name.split('.').all(is_part)
}

/// Waits until the bus answers, for a while: after the failure of a NATS server it needs seconds to elect leaders.
async fn wait_for_answer(bus: &dyn Bus, env: &Env) {
    let begun = env.clock.monotonic();
    let mut next_report = begun + REPORT / 2;
    while let Err(error @ (BusError::Timeout | BusError::NoResponders)) =
        bus.get(Bucket::Config, super::CLUSTER_KEY).await
    {
        let now = env.clock.monotonic();
        if now - begun >= MAX_START {
            return;
        }
        if now >= next_report {
            tracing::warn!("waiting for NATS: {}", super::unreadable(error));
            next_report = now + REPORT;
        }
        env.clock.sleep(TICK).await;
    }
}

fn is_leading(group: &Group) -> bool {
    let app = group.app();
    let engine = app.as_ref().and_then(|app| app.engine());
    engine.is_some_and(Engine::is_leading)
}

/// Opens the data folder, and checks that it is of this cluster.
fn open_folder(env: &Env, data: &Path, identity: &Identity, life: u64) -> Result<Folder, String> {
    let folder = Folder::open(env, data).map_err(|error| error.to_string())?;
    let mut own = identity.encode();
    own.extend(life.to_le_bytes());
    match folder.identity().map_err(|error| error.to_string())? {
        Some(other) if other != own => Err(format!(
            "{} is a data folder of another cluster, of this one before it was restored, or of a single server; \
             use another one",
            data.display()
        )),
        Some(_) => Ok(folder),
        None => {
            let written = folder.set_identity(&own);
            written.map_err(|error| error.to_string())?;
            Ok(folder)
        }
    }
}
