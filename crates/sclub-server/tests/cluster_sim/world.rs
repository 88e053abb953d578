//! Machines with a disk each, and the processes of nodes on them.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::Request;
use http_body_util::BodyExt;
use sclub_server::api::{App, router};
use sclub_server::cluster::bus::Bus;
use sclub_server::cluster::{Cluster, Node, NodeParts, Tasks};
use sclub_server::edge::{Guard, Keys};
use sclub_server::env::{Clock, Env, Spawner, Task};
use tokio::sync::oneshot;
use tower::ServiceExt;

use crate::bus::SimBus;
use crate::clock::{SimClock, SimRandom};
use crate::disk::SimDisk;
use crate::executor::{Executor, Group};
use crate::model::Model;
use crate::nats::Nats;
use crate::plan::Plan;
use crate::seeds::Counts;

/// Tasks that no crash ends: clients, network, operators.
pub const OUTSIDE: Group = 1;

/// The data folder of a node on its machine.
pub const DATA: &str = "/data";

/// Operations shown when a run fails.
const SHOWN: usize = 40;

/// The milliseconds for which a node that shuts down waits for its successors.
const MAX_DRAIN: u64 = 15_000;

pub struct World {
    pub plan: Plan,
    pub clock: SimClock,
    pub executor: Rc<Executor>,
    pub nats: Arc<Nats>,
    random: Arc<SimRandom>,
    pub machines: Vec<Rc<Machine>>,
    pub model: RefCell<Model>,
    last_group: Cell<Group>,
    ops: Cell<u64>,
    log: RefCell<VecDeque<String>>,
    is_loud: bool,
    counts: RefCell<Counts>,
}

/// A machine.
pub struct Machine {
    pub index: usize,
    pub disk: SimDisk,
    pub name: RefCell<String>,
    pub process: RefCell<Option<Process>>,
    /// Not to be started before.
    pub start_at: Cell<u64>,
    renamed: Cell<u64>,
}

/// A node and its routes, once it has joined.
type Joined = Rc<RefCell<Option<(Arc<Node>, Router)>>>;

/// The process of a node.
#[derive(Clone)]
pub struct Process {
    pub group: Group,
    disk: SimDisk,
    pub bus: Arc<SimBus>,
    /// The node and its routes, once it has joined.
    joined: Joined,
    pub is_closing: Rc<Cell<bool>>,
    pub is_paused: Rc<Cell<bool>>,
}

impl Process {
    pub fn node(&self) -> Option<Arc<Node>> {
        let joined = self.joined.borrow();
        joined.as_ref().map(|(node, _)| Arc::clone(node))
    }
}

/// The tasks of a node.
#[derive(Debug)]
struct SimTasks {
    spawner: Arc<dyn Spawner>,
    clock: SimClock,
}

impl Tasks for SimTasks {
    fn spawn(&self, task: Task) {
        // It fails if the process is gone.
        let _ = self.spawner.spawn("node", task);
    }

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) -> Task {
        let before = self.clock.yield_now();
        Box::pin(async move {
            before.await;
            work();
        })
    }
}

/// An answer to a client.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub body: serde_json::Value,
}

impl Answer {
    /// The code of an error.
    pub fn code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or("")
    }
}

impl World {
    pub fn new(plan: Plan, is_loud: bool) -> Rc<Self> {
        let seed = plan.seed;
        let clock = SimClock::default();
        let executor = Rc::new(Executor::new(seed, clock.clone()));
        executor.set_ordered();
        let nats = Nats::new(seed, clock.clone(), executor.spawner(OUTSIDE));
        nats.core().broken = plan.broken;
        let machines = (0..plan.nodes).map(|index| {
            Rc::new(Machine {
                index,
                disk: SimDisk::new(seed.wrapping_mul(31) + index as u64, clock.clone()),
                name: RefCell::new(format!("node-{index}")),
                process: RefCell::default(),
                start_at: Cell::new(0),
                renamed: Cell::new(0),
            })
        });
        Rc::new(World {
            machines: machines.collect(),
            random: Arc::new(SimRandom::new(seed)),
            model: RefCell::new(Model::new(&plan)),
            last_group: Cell::new(OUTSIDE),
            ops: Cell::new(0),
            log: RefCell::default(),
            is_loud,
            counts: RefCell::default(),
            executor,
            nats,
            clock,
            plan,
        })
    }

    /// Begins an operation. None once there were as many as planned.
    pub fn next_op(&self) -> Option<u64> {
        if self.ops.get() >= self.plan.ops {
            return None;
        }
        self.ops.set(self.ops.get() + 1);
        Some(self.ops.get())
    }

    pub fn ops(&self) -> u64 {
        self.ops.get()
    }

    pub fn count(&self, what: &'static str) {
        *self.counts.borrow_mut().entry(what).or_default() += 1;
    }

    pub fn counts(&self) -> Counts {
        let mut counts = self.counts.borrow().clone();
        counts.extend(self.nats.core().counts.clone());
        counts
    }

    /// Records an operation, to be shown if the run fails.
    pub fn note(&self, what: impl FnOnce() -> String) {
        let line = format!(
            "{:>8} ms  #{:<4} {}",
            self.clock.now(),
            self.ops.get(),
            what()
        );
        if self.is_loud {
            eprintln!("{line}");
        }
        let mut log = self.log.borrow_mut();
        log.push_back(line);
        if log.len() > SHOWN {
            log.pop_front();
        }
    }

    pub fn last_notes(&self) -> Vec<String> {
        self.log.borrow().iter().cloned().collect()
    }

    /// A promise is broken.
    pub fn violation(&self, what: impl AsRef<str>) {
        let what = what.as_ref();
        self.note(|| format!("BROKEN: {what}"));
        self.executor.halt(what.to_owned());
    }

    /// As [`World::violation`] where something is wrong.
    pub fn expect(&self, outcome: Result<(), String>) {
        if let Err(what) = outcome {
            self.violation(what);
        }
    }

    pub fn sleep(&self, milliseconds: u64) -> Task {
        self.clock.sleep(milliseconds)
    }

    pub fn spawn(&self, name: &str, task: impl Future<Output = ()> + 'static) {
        self.executor.spawn(OUTSIDE, name, task);
    }

    /// An environment for a process that starts now.
    fn environment(&self, disk: &SimDisk) -> (Env, SimDisk, Group) {
        self.last_group.set(self.last_group.get() + 1);
        let group = self.last_group.get();
        let disk = disk.process();
        let env = Env {
            disk: Arc::new(disk.clone()),
            clock: Arc::new(self.clock.process()),
            random: Arc::clone(&self.random) as _,
            spawner: self.executor.spawner(group),
        };
        (env, disk, group)
    }

    /// Makes the cluster.
    pub async fn init(&self) {
        for machine in &self.machines {
            let (env, disk, _) = self.environment(&machine.disk);
            let made = env.disk.make_dir(DATA.as_ref());
            made.and_then(|()| env.disk.sync_dir("/".as_ref()))
                .expect("nothing fails yet");
            disk.kill();
        }
        let (env, disk, _) = self.environment(&self.machines[0].disk);
        let bus = SimBus::connect(&self.nats, self.executor.spawner(OUTSIDE));
        let made = Cluster::init(&*bus, &env, &self.plan.settings, self.plan.partitions, 3);
        made.await.expect("nothing fails yet");
        self.nats.core().disconnect(bus.link);
        disk.kill();
    }

    /// Starts the process of a machine.
    pub fn start(self: &Rc<Self>, machine: &Rc<Machine>) {
        let (env, disk, group) = self.environment(&machine.disk);
        let spawner = self.executor.spawner(group);
        let bus = SimBus::connect(&self.nats, Arc::clone(&spawner));
        let joined = Joined::default();
        *machine.process.borrow_mut() = Some(Process {
            group,
            disk,
            bus: Arc::clone(&bus),
            joined: Rc::clone(&joined),
            is_closing: Rc::default(),
            is_paused: Rc::default(),
        });
        let name = machine.name.borrow().clone();
        self.note(|| format!("{name} starts"));
        self.count("starts");
        let settings = sclub_server::settings::Settings {
            data: PathBuf::from(DATA).join("node"),
            ..self.plan.settings.clone()
        };
        let parts = NodeParts {
            bus: bus as Arc<dyn Bus>,
            tasks: Arc::new(SimTasks {
                spawner,
                clock: self.clock.clone(),
            }),
            env,
            settings: settings.clone(),
            name: name.clone(),
            standby: self.plan.standby,
        };
        let (world, machine) = (Rc::clone(self), Rc::clone(machine));
        self.executor.spawn(group, "process", async move {
            let reason = match Node::join(parts).await {
                Ok(node) => {
                    node.start();
                    let app = App::new(settings);
                    app.join(Arc::clone(&node));
                    let routes = router(app, &Guard::new(Keys::none(), 0));
                    *joined.borrow_mut() = Some((Arc::clone(&node), routes));
                    node.failed().await
                }
                Err(reason) => reason,
            };
            world.note(|| format!("{name} fails: {reason}"));
            world.count("failed nodes");
            world.exit(&machine);
        });
    }

    /// Ends a process from within one of its tasks.
    fn exit(self: &Rc<Self>, machine: &Rc<Machine>) {
        let (world, machine) = (Rc::clone(self), Rc::clone(machine));
        self.spawn("exit", async move {
            world.kill(&machine);
            machine.start_at.set(world.clock.now() + 300);
        });
    }

    /// Ends the process of a machine at once. Returns false if there was none.
    pub fn kill(&self, machine: &Machine) -> bool {
        let Some(process) = machine.process.borrow_mut().take() else {
            return false;
        };
        // First the disk: nothing that is dropped can write any more.
        process.disk.kill();
        self.nats.core().disconnect(process.bus.link);
        self.executor.resume(process.group);
        self.executor.kill(process.group);
        true
    }

    /// A machine loses its power, and what was not synced.
    pub fn lose_power(&self, machine: &Machine) {
        self.kill(machine);
        machine.disk.crash();
    }

    pub fn pause(&self, process: &Process, is_paused: bool) {
        process.is_paused.set(is_paused);
        match is_paused {
            true => self.executor.pause(process.group),
            false => self.executor.resume(process.group),
        }
    }

    /// Shuts a node down: it hands its groups to others, then ends.
    pub fn close(self: &Rc<Self>, machine: &Rc<Machine>) {
        let Some(process) = machine.process.borrow().clone() else {
            return;
        };
        let Some(node) = process.node() else { return };
        process.is_closing.set(true);
        let (world, machine) = (Rc::clone(self), Rc::clone(machine));
        self.executor.spawn(process.group, "close", async move {
            node.close(MAX_DRAIN).await;
            world.note(|| format!("{} has closed", node.name));
            world.exit(&machine);
        });
    }

    /// Another name for the next process of a machine. Its folder stays.
    pub fn rename(&self, machine: &Machine) {
        machine.renamed.set(machine.renamed.get() + 1);
        let name = format!("node-{}-{}", machine.index, machine.renamed.get());
        *machine.name.borrow_mut() = name;
    }

    /// The processes that have joined.
    pub fn running(&self) -> Vec<(Rc<Machine>, Process)> {
        let all = self.machines.iter().filter_map(|machine| {
            let process = machine.process.borrow().clone()?;
            process.node()?;
            Some((Rc::clone(machine), process))
        });
        all.collect()
    }

    /// Sends a request to a node. `None` if it is not running, or ends before it answers.
    pub async fn send(
        &self,
        machine: &Machine,
        method: &str,
        path: &str,
        kind: &str,
        body: String,
    ) -> Option<Answer> {
        let process = machine.process.borrow().clone()?;
        let (_, routes) = process.joined.borrow().clone()?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", kind)
            .body(Body::from(body))
            .expect("a valid request");
        let (reply, answer) = oneshot::channel();
        self.executor.spawn(process.group, "request", async move {
            let response = match routes.oneshot(request).await {
                Ok(response) => response,
                Err(error) => match error {},
            };
            let status = response.status().as_u16();
            let collected = response.into_body().collect().await;
            let bytes: Bytes = collected.map(|body| body.to_bytes()).unwrap_or_default();
            let body = serde_json::from_slice(&bytes).unwrap_or_default();
            let _ = reply.send(Answer { status, body });
        });
        answer.await.ok()
    }

    /// Sends JSON, and gives up after some milliseconds.
    pub async fn post(
        &self,
        machine: &Machine,
        path: &str,
        body: &serde_json::Value,
        timeout: u64,
    ) -> Option<Answer> {
        let sent = self.send(machine, "POST", path, "application/json", body.to_string());
        tokio::select! {
            biased;
            answer = sent => answer,
            () = self.sleep(timeout) => None,
        }
    }

    /// All files of a machine.
    pub fn files(&self, machine: &Machine) -> Vec<(PathBuf, Vec<u8>)> {
        machine
            .disk
            .files(Path::new(DATA), crate::disk::View::Visible)
    }
}
