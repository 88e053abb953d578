//! A machine with a disk that holds folders, and a process for each that is open.

mod copies;
mod gone;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use sclub_server::engine::OpenError;
use sclub_server::env::{Clock, Env, Task};
use sclub_server::store::Folder;

use crate::clock::{SimClock, SimRandom};
use crate::disk::{Faults, SimDisk};
use crate::executor::{Executor, Group};
use crate::model::{DecisionId, Life, Model, Tick};
use crate::plan::Plan;
use crate::seeds::Counts;
use crate::subject::{self, Engine};
use copies::Ancestor;
pub use copies::{Backup, Owner};

/// Tasks that no crash ends: clients, network, operators.
pub const OUTSIDE: Group = 1;

/// The folder that all data folders are in.
const DATA: &str = "/data";

/// The prefix and the length of every user id, so that ids are easily found among bytes.
pub const USER_PREFIX: &str = "user-";
pub const USER_LENGTH: usize = 17;

/// Operations shown when a run fails.
const SHOWN: usize = 30;

/// Milliseconds without faults after which everything must work again.
pub const GRACE: u64 = 60_000;

pub struct World {
    pub plan: Plan,
    pub clock: SimClock,
    pub disk: SimDisk,
    pub executor: Rc<Executor>,
    random: Arc<SimRandom>,
    sites: RefCell<Vec<Rc<Site>>>,
    /// The one that clients reach.
    current: Cell<usize>,
    pub decisions: RefCell<Vec<Decision>>,
    pub backups: RefCell<Vec<Rc<Backup>>>,
    /// Ids in use.
    pub users: RefCell<Vec<String>>,
    tick: Cell<Tick>,
    last_group: Cell<Group>,
    ops: Cell<u64>,
    log: RefCell<VecDeque<String>>,
    is_loud: bool,
    /// The kind of crash when the disk reaches the call to stop at.
    pub death: Cell<Death>,
    /// Since when nothing was made to fail; none while it is.
    calm_since: Cell<Option<u64>>,
    /// The number of tasks that need the current folder to stay closed.
    holds: Cell<u64>,
    /// Not to be opened before.
    pub reopen_at: Cell<u64>,
    /// Messages on their way.
    pub in_network: Cell<u64>,
    counts: RefCell<Counts>,
}

/// The kind of a crash.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Death {
    PowerLoss,
    Kill,
}

/// A folder, and the process that has it open.
pub struct Site {
    pub id: usize,
    pub folder: PathBuf,
    pub model: RefCell<Model>,
    pub process: RefCell<Option<Process>>,
    pub is_closing: Cell<bool>,
    /// The decisions of the current process.
    pub fresh: RefCell<Vec<DecisionId>>,
    /// The decisions that are durable in the journal.
    pub noted: RefCell<BTreeSet<DecisionId>>,
    /// Folders that this is a copy of, through any number of copies.
    ancestors: Vec<Ancestor>,
    /// Milliseconds that engines had it open, without the one that has it now.
    running: Cell<u64>,
}

pub struct Process {
    pub engine: Rc<Engine>,
    disk: SimDisk,
    group: Group,
    since: u64,
    /// The time at which it was open: its clocks run since then at the latest.
    opened: u64,
}

/// A decision of a server.
#[derive(Debug, Clone)]
pub struct Decision {
    pub text: String,
    pub user: String,
    pub items: Vec<String>,
    /// The number of the first item; the others have the numbers after it.
    pub number: u64,
    site: usize,
    pub made: Tick,
    /// The time for which its folder had been open by then.
    running: u64,
    /// The time of the decision, in milliseconds since the run began.
    at: u64,
}

impl World {
    pub fn new(plan: Plan, is_loud: bool) -> Rc<Self> {
        let seed = plan.seed;
        let clock = SimClock::default();
        let world = Rc::new(World {
            disk: SimDisk::new(seed, clock.clone()),
            executor: Rc::new(Executor::new(seed, clock.clone())),
            random: Arc::new(SimRandom::new(seed)),
            sites: RefCell::default(),
            current: Cell::new(0),
            decisions: RefCell::default(),
            backups: RefCell::default(),
            users: RefCell::default(),
            tick: Cell::new(0),
            last_group: Cell::new(OUTSIDE),
            ops: Cell::new(0),
            log: RefCell::default(),
            is_loud,
            death: Cell::new(Death::PowerLoss),
            calm_since: Cell::new(Some(0)),
            holds: Cell::new(0),
            reopen_at: Cell::new(0),
            in_network: Cell::new(0),
            counts: RefCell::default(),
            clock,
            plan,
        });
        // Servers make their folder in one that is there.
        world.aside(|env| {
            let made = env.disk.make_dir(DATA.as_ref());
            made.and_then(|()| env.disk.sync_dir("/".as_ref()))
                .expect("nothing fails yet");
        });
        world.add_site(format!("{DATA}/0").into(), Model::default(), Vec::new(), 0);
        world.set_weather(Faults::default(), u64::MAX);
        let watched = Rc::clone(&world);
        world.executor.set_after_poll(move || watched.bury());
        world
    }

    /// The next moment.
    pub fn tick(&self) -> Tick {
        self.tick.set(self.tick.get() + 1);
        self.tick.get()
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

    /// Counts something.
    pub fn count(&self, what: &'static str) {
        *self.counts.borrow_mut().entry(what).or_default() += 1;
    }

    pub fn counts(&self) -> Counts {
        self.counts.borrow().clone()
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

    /// Shows what need not be remembered.
    pub fn detail(&self, what: impl FnOnce() -> String) {
        if self.is_loud {
            eprintln!("{:>8} ms        {}", self.clock.now(), what());
        }
    }

    /// The last operations.
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

    /// Makes the disk fail, or not.
    pub fn set_weather(&self, faults: Faults, capacity: u64) {
        let lying_sync = f64::from(u8::from(self.plan.disk_lies));
        self.disk.set_faults(Faults {
            lying_sync,
            ..faults
        });
        self.disk.set_capacity(capacity);
        let is_calm = faults == Faults::default() && capacity == u64::MAX;
        match (is_calm, self.calm_since.get()) {
            (true, None) => self.calm_since.set(Some(self.clock.now())),
            (true, Some(_)) => {}
            (false, _) => self.calm_since.set(None),
        }
    }

    /// The time since the last fault.
    pub fn calm_for(&self) -> Option<u64> {
        let since = self.calm_since.get()?;
        Some(self.clock.now() - since)
    }

    /// Keeps the supervisor from opening the current folder until it is released as often.
    pub fn hold(&self) {
        self.holds.set(self.holds.get() + 1);
    }

    pub fn release(&self) {
        self.holds.set(self.holds.get() - 1);
    }

    pub fn is_held(&self) -> bool {
        self.holds.get() > 0
    }

    pub fn current(&self) -> Rc<Site> {
        self.site(self.current.get())
    }

    pub fn set_current(&self, site: &Site) {
        self.current.set(site.id);
    }

    fn site(&self, id: usize) -> Rc<Site> {
        Rc::clone(&self.sites.borrow()[id])
    }

    fn add_site(
        &self,
        folder: PathBuf,
        model: Model,
        ancestors: Vec<Ancestor>,
        running: u64,
    ) -> Rc<Site> {
        let mut sites = self.sites.borrow_mut();
        let site = Rc::new(Site {
            id: sites.len(),
            folder,
            model: RefCell::new(model),
            process: RefCell::default(),
            is_closing: Cell::new(false),
            fresh: RefCell::default(),
            noted: RefCell::default(),
            ancestors,
            running: Cell::new(running),
        });
        sites.push(Rc::clone(&site));
        site
    }

    /// An environment for a process that starts now.
    fn environment(&self) -> (Env, SimDisk, Group) {
        self.last_group.set(self.last_group.get() + 1);
        let group = self.last_group.get();
        let disk = self.disk.process();
        let env = Env {
            disk: Arc::new(disk.clone()),
            clock: Arc::new(self.clock.process()),
            random: Arc::clone(&self.random) as _,
            spawner: self.executor.spawner(group),
        };
        (env, disk, group)
    }

    /// Does something as a process of its own that ends with it.
    pub fn aside<T>(&self, work: impl FnOnce(&Env) -> T) -> T {
        let (env, disk, group) = self.environment();
        let done = work(&env);
        if !self.disk.is_down() {
            disk.kill();
        }
        self.executor.kill(group);
        done
    }

    /// Opens a folder, and checks what it holds.
    ///
    /// # Errors
    /// The error of the engine.
    pub fn open(&self, site: &Site) -> Result<(), String> {
        let (env, disk, group) = self.environment();
        let since = self.clock.now();
        site.is_closing.set(false);
        let opened = Folder::open_with(&env, &site.folder, self.plan.segment_bytes)
            .map_err(OpenError::from)
            .and_then(|folder| Engine::start(folder, &self.plan.settings));
        let opened = match opened {
            Ok(engine) if !self.disk.is_down() => Ok(engine),
            Ok(_) => Err("the machine stopped".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        match opened {
            Ok(engine) => {
                self.count("opens");
                let engine = Rc::new(engine);
                *site.process.borrow_mut() = Some(Process {
                    engine,
                    disk,
                    group,
                    since,
                    opened: self.clock.now(),
                });
                // Decisions that the previous process had not written to the journal are lost.
                site.fresh.borrow_mut().clear();
                site.model.borrow_mut().restarted(self.tick());
                self.note(|| format!("opened {}", site.folder.display()));
                self.check(site);
                Ok(())
            }
            Err(error) => {
                self.count("failed opens");
                if !self.disk.is_down() {
                    disk.kill();
                }
                self.executor.kill(group);
                let elapsed = self.clock.now() - since;
                site.running.set(site.running.get() + elapsed);
                self.note(|| format!("cannot open {}: {error}", site.folder.display()));
                Err(error)
            }
        }
    }

    /// Ends the process of a folder. Returns false if there was none.
    pub fn kill(&self, site: &Site) -> bool {
        let Some(process) = site.process.borrow_mut().take() else {
            return false;
        };
        // First the disk: nothing that is dropped can write any more.
        process.disk.kill();
        self.after_death(site, process);
        true
    }

    fn after_death(&self, site: &Site, process: Process) {
        let elapsed = self.clock.now() - process.since;
        site.running.set(site.running.get() + elapsed);
        self.executor.kill(process.group);
        drop(process);
        let now = self.tick();
        site.model.borrow_mut().settle_calls(now);
    }

    /// The power goes.
    pub fn lose_power(&self) {
        self.count("power losses");
        self.disk.crash();
        let sites = self.sites.borrow().clone();
        for site in sites {
            let process = site.process.borrow_mut().take();
            if let Some(process) = process {
                self.after_death(&site, process);
            }
        }
    }

    /// Crashes the process when the disk has reached the call to stop at.
    pub fn bury(&self) {
        if !self.disk.is_down() {
            return;
        }
        self.disk.stop_at(None);
        let death = self.death.get();
        self.note(|| format!("stopped at a file call: {death:?}"));
        match death {
            Death::PowerLoss => self.lose_power(),
            Death::Kill => {
                self.count("kills");
                // The machine is up again.
                self.disk.kill();
                let sites = self.sites.borrow().clone();
                for site in sites {
                    self.kill(&site);
                }
            }
        }
    }

    /// The engine of a folder, if it is open.
    pub fn engine(&self, site: &Site) -> Option<Rc<Engine>> {
        let process = site.process.borrow();
        process.as_ref().map(|process| Rc::clone(&process.engine))
    }

    /// The group of the process of a folder.
    pub fn group(&self, site: &Site) -> Option<Group> {
        site.process.borrow().as_ref().map(|process| process.group)
    }

    /// The total time for which a folder was open.
    pub fn running(&self, site: &Site) -> u64 {
        let now = self.clock.now();
        let process = site.process.borrow();
        let since = process.as_ref().map_or(now, |process| process.since);
        site.running.get() + now - since
    }

    /// Notes a decision.
    pub fn hand_out(&self, site: &Site, text: String, user: &str, items: Vec<String>) {
        let made = self.tick();
        site.model.borrow_mut().recommended(user, made);
        self.count("decisions");
        let decision = Decision {
            number: subject::number(&text),
            text,
            user: user.to_owned(),
            items,
            site: site.id,
            made,
            running: self.running(site),
            at: self.clock.now(),
        };
        self.check_number(site, &decision);
        let mut decisions = self.decisions.borrow_mut();
        site.fresh.borrow_mut().push(decisions.len());
        decisions.push(decision);
    }

    /// Checks that nothing else that was shown has the number of something in a decision.
    fn check_number(&self, site: &Site, decision: &Decision) {
        let decisions = self.decisions.borrow();
        let mut others = decisions.iter().filter(|other| {
            let end = |of: &Decision| of.number + of.items.len() as u64;
            other.number < end(decision) && decision.number < end(other)
        });
        if let Some(other) = others.find(|other| self.owner(site, other) == Owner::Ours) {
            self.violation(format!(
                "two decisions have the same number: {other:?} and {decision:?}"
            ));
        }
    }

    /// Milliseconds until a decision expires, if its process goes on.
    pub fn left(&self, decision: &Decision) -> u64 {
        let end = decision.at + self.plan.settings.lifetime * 1000;
        end.saturating_sub(self.clock.now())
    }

    /// Returns true if a decision has certainly expired: the process has run for longer than its lifetime.
    pub fn is_expired(&self, site: &Site, decision: &Decision) -> bool {
        let process = site.process.borrow();
        let Some(process) = &*process else {
            return false;
        };
        let age = self.clock.now() - decision.at.max(process.opened);
        age > self.plan.settings.lifetime * 1000
    }

    /// Returns true if a decision may have expired.
    pub fn may_be_expired(&self, site: &Site, decision: &Decision) -> bool {
        let age = self.running(site).saturating_sub(decision.running);
        age >= self.plan.settings.lifetime * 1000
    }

    /// Removes a folder for good.
    pub fn destroy(&self, site: &Site) {
        self.aside(|env| {
            let _ = env.disk.remove_dir_all(&site.folder);
        });
    }

    /// The number of items that each user was shown by a folder, without decisions of users who were forgotten.
    fn may_be_assumed(&self, site: &Site, model: &Model) -> BTreeMap<String, u64> {
        let mut shown = BTreeMap::new();
        for (id, decision) in self.decisions.borrow().iter().enumerate() {
            let is_ours = self.owner(site, decision) != Owner::Others;
            if is_ours && model.life(id, &decision.user, decision.made) != Life::Dead {
                *shown.entry(decision.user.clone()).or_default() += decision.items.len() as u64;
            }
        }
        shown
    }

    /// Compares what a folder holds with what it must hold.
    pub fn check(&self, site: &Site) {
        let Some(engine) = self.engine(site) else {
            return;
        };
        let model = site.model.borrow();
        let shown = self
            .plan
            .settings
            .unanswered
            .map(|_| self.may_be_assumed(site, &model));
        self.expect(model.check_users(&subject::users(&engine), shown.as_ref()));
        self.expect(model.check_catalogue(&subject::catalogue(&engine)));
        drop(model);
        self.check_gone(site);
    }
}
