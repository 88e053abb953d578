//! A scheduler on one thread whose every choice is drawn from a seed.

#[cfg(test)]
mod tests;

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use rand::RngExt;
use sclub_server::env::{Spawner, Task};

use crate::clock::SimClock;
use crate::seed::{Rng, stream};

/// Polls after which a run is taken to go round in circles.
const MAX_POLLS: u64 = 20_000_000;

/// The task whose end is the end of the run.
const ROOT: u64 = 0;

/// Tasks that die together: those of a simulated process.
pub type Group = u64;

/// Runs tasks in an order drawn from a seed. When none is ready, virtual time advances to the next
/// timer.
pub struct Executor {
    clock: SimClock,
    rng: RefCell<Rng>,
    tasks: RefCell<BTreeMap<u64, Entry>>,
    shared: Arc<Shared>,
    /// Called after each poll, before anything else runs.
    after_poll: RefCell<Option<Box<dyn Fn()>>>,
    halted: RefCell<Option<String>>,
    /// The digest of all choices so far.
    digest: Cell<u64>,
    /// True if choices do not depend on the order in which tasks were woken. That of a `watch` channel is random.
    is_ordered: Cell<bool>,
    /// Every choice, if tracing is on.
    trace: RefCell<Option<Vec<String>>>,
}

struct Entry {
    group: Group,
    name: String,
    /// `None` while it is being polled.
    future: Option<Pin<Box<dyn Future<Output = ()>>>>,
    waker: Arc<TaskWaker>,
}

/// The data that wakers and spawners share.
#[derive(Default)]
struct Shared {
    queues: Mutex<Queues>,
}

#[derive(Default)]
struct Queues {
    ready: Vec<u64>,
    spawned: Vec<(Group, String, Task)>,
    dead: BTreeSet<Group>,
    last_task: u64,
    paused: BTreeSet<Group>,
    /// Tasks of paused groups that were woken.
    held: Vec<(Group, u64)>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct TaskWaker {
    task: u64,
    is_queued: AtomicBool,
    shared: Arc<Shared>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::SeqCst) {
            self.shared.lock().ready.push(self.task);
        }
    }
}

/// The reason why a run stopped before its end.
#[derive(Debug, Clone, PartialEq)]
pub enum Stopped {
    /// No task is ready, and no timer runs.
    Deadlock {
        /// The tasks that wait.
        waiting: Vec<String>,
    },
    /// A task panicked.
    Panicked {
        /// Its name.
        task: String,
        /// Its message.
        message: String,
    },
    /// Too many polls.
    Endless,
    /// [`Executor::halt`] was called.
    Halted(String),
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stopped::Deadlock { waiting } => {
                write!(f, "deadlock: {} wait for ever", waiting.join(", "))
            }
            Stopped::Panicked { task, message } => write!(f, "task {task} panicked: {message}"),
            Stopped::Endless => write!(f, "not done after {MAX_POLLS} polls"),
            Stopped::Halted(reason) => f.write_str(reason),
        }
    }
}

impl Executor {
    pub fn new(seed: u64, clock: SimClock) -> Self {
        Self {
            clock,
            rng: RefCell::new(stream(seed, "scheduler")),
            tasks: RefCell::default(),
            shared: Arc::default(),
            after_poll: RefCell::default(),
            halted: RefCell::default(),
            digest: Cell::new(0),
            is_ordered: Cell::new(false),
            trace: RefCell::default(),
        }
    }

    /// Starts a task of a group. Unlike one that a [`Spawner`] starts it need not be `Send`.
    pub fn spawn(&self, group: Group, name: &str, future: impl Future<Output = ()> + 'static) {
        self.start(group, name.to_owned(), Box::pin(future));
    }

    fn start(&self, group: Group, name: String, future: Pin<Box<dyn Future<Output = ()>>>) {
        let task = {
            let mut queues = self.shared.lock();
            queues.last_task += 1;
            queues.last_task
        };
        let waker = self.waker(task);
        let entry = Entry {
            group,
            name,
            future: Some(future),
            waker: Arc::clone(&waker),
        };
        self.tasks.borrow_mut().insert(task, entry);
        waker.wake();
    }

    fn waker(&self, task: u64) -> Arc<TaskWaker> {
        Arc::new(TaskWaker {
            task,
            is_queued: AtomicBool::new(false),
            shared: Arc::clone(&self.shared),
        })
    }

    /// Starts tasks of a group.
    pub fn spawner(&self, group: Group) -> Arc<dyn Spawner> {
        Arc::new(SimSpawner {
            group,
            shared: Arc::clone(&self.shared),
        })
    }

    /// Drops all tasks of a group; no more of it can be started by its [`Spawner`].
    pub fn kill(&self, group: Group) {
        let unborn = {
            let mut queues = self.shared.lock();
            queues.dead.insert(group);
            let all = std::mem::take(&mut queues.spawned);
            let (unborn, rest): (Vec<_>, Vec<_>) =
                all.into_iter().partition(|(of, ..)| *of == group);
            queues.spawned = rest;
            unborn
        };
        let mut killed = Vec::new();
        self.tasks.borrow_mut().retain(|_, entry| {
            if entry.group == group {
                killed.push(entry.future.take());
            }
            entry.group != group
        });
        // Dropped last: what they own may look at the executor.
        drop((unborn, killed));
    }

    /// Stops the tasks of a group, as SIGSTOP stops a process. Time goes on.
    #[allow(dead_code, reason = "the simulation of a cluster uses it")]
    pub fn pause(&self, group: Group) {
        self.shared.lock().paused.insert(group);
    }

    /// Lets the tasks of a paused group go on.
    #[allow(dead_code, reason = "the simulation of a cluster uses it")]
    pub fn resume(&self, group: Group) {
        let mut queues = self.shared.lock();
        queues.paused.remove(&group);
        let held = std::mem::take(&mut queues.held);
        let (woken, rest): (Vec<_>, Vec<_>) = held.into_iter().partition(|(of, _)| *of == group);
        queues.held = rest;
        queues.ready.extend(woken.into_iter().map(|(_, task)| task));
    }

    /// Returns true if a group has tasks.
    pub fn has_tasks(&self, group: Group) -> bool {
        self.adopt();
        let tasks = self.tasks.borrow();
        tasks.values().any(|entry| entry.group == group)
    }

    /// Ends the run after the current poll.
    pub fn halt(&self, reason: String) {
        self.halted.borrow_mut().get_or_insert(reason);
    }

    /// Calls a function after each poll.
    pub fn set_after_poll(&self, look: impl Fn() + 'static) {
        *self.after_poll.borrow_mut() = Some(Box::new(look));
    }

    /// Drops all tasks, so that references to the executor do not keep it alive.
    pub fn clear(&self) {
        let look = self.after_poll.borrow_mut().take();
        let tasks = std::mem::take(&mut *self.tasks.borrow_mut());
        let unborn = std::mem::take(&mut self.shared.lock().spawned);
        drop((look, tasks, unborn));
    }

    /// A number that two runs share if they made the same choices at the same times.
    pub fn digest(&self) -> u64 {
        self.digest.get()
    }

    /// Makes choices independent of the order in which tasks are woken.
    #[allow(dead_code, reason = "the simulation of a cluster uses it")]
    pub fn set_ordered(&self) {
        self.is_ordered.set(true);
    }

    /// Keeps every choice from now on.
    pub fn start_trace(&self) {
        *self.trace.borrow_mut() = Some(Vec::new());
    }

    /// The choices kept.
    pub fn trace(&self) -> Vec<String> {
        self.trace.borrow().clone().unwrap_or_default()
    }

    /// Runs until the root task ends.
    ///
    /// # Errors
    /// The reason why it cannot end.
    pub fn run<T>(&self, root: impl Future<Output = T>) -> Result<T, Stopped> {
        let mut root = Box::pin(root);
        let root_waker = self.waker(ROOT);
        Arc::clone(&root_waker).wake();
        for _ in 0..MAX_POLLS {
            self.adopt();
            self.clock.wake_due();
            let Some(task) = self.next_ready() else {
                if self.clock.skip_to_next_timer() {
                    continue;
                }
                let tasks = self.tasks.borrow();
                let waiting = tasks.values().map(|entry| entry.name.clone()).collect();
                return Err(Stopped::Deadlock { waiting });
            };
            if task == ROOT {
                self.note(task, "root");
                root_waker.is_queued.store(false, Ordering::SeqCst);
                let waker = Waker::from(Arc::clone(&root_waker));
                let polled = poll(root.as_mut(), &waker).map_err(|message| {
                    let task = "root".to_owned();
                    Stopped::Panicked { task, message }
                })?;
                if let Poll::Ready(value) = polled {
                    return match self.halted.borrow_mut().take() {
                        Some(reason) => Err(Stopped::Halted(reason)),
                        None => Ok(value),
                    };
                }
            } else {
                self.poll_task(task)?;
            }
            if let Some(look) = &*self.after_poll.borrow() {
                look();
            }
            if let Some(reason) = self.halted.borrow_mut().take() {
                return Err(Stopped::Halted(reason));
            }
        }
        Err(Stopped::Endless)
    }

    /// Lets others run while a task blocks its thread: they have threads of their own.
    pub fn run_others(&self, polls: usize) {
        let mut blocked = Vec::new();
        for _ in 0..polls {
            self.adopt();
            self.clock.wake_due();
            let Some(task) = self.next_ready() else {
                break;
            };
            let is_blocked = |entry: &Entry| entry.future.is_none();
            if task == ROOT || self.tasks.borrow().get(&task).is_some_and(is_blocked) {
                blocked.push(task);
                continue;
            }
            if let Err(stopped) = self.poll_task(task) {
                self.halt(stopped.to_string());
            }
            if let Some(look) = &*self.after_poll.borrow() {
                look();
            }
        }
        self.shared.lock().ready.extend(blocked);
    }

    fn poll_task(&self, task: u64) -> Result<(), Stopped> {
        let (name, mut future, waker) = {
            let mut tasks = self.tasks.borrow_mut();
            // The task may have been killed since it was woken.
            let Some(entry) = tasks.get_mut(&task) else {
                return Ok(());
            };
            let Some(future) = entry.future.take() else {
                return Ok(());
            };
            (entry.name.clone(), future, Arc::clone(&entry.waker))
        };
        self.note(task, &name);
        waker.is_queued.store(false, Ordering::SeqCst);
        let polled = poll(future.as_mut(), &Waker::from(waker));
        let mut done = None;
        {
            let mut tasks = self.tasks.borrow_mut();
            match &polled {
                // Its group may have been killed meanwhile.
                Ok(Poll::Pending) => match tasks.get_mut(&task) {
                    Some(entry) => entry.future = Some(future),
                    None => done = Some(future),
                },
                _ => {
                    tasks.remove(&task);
                    done = Some(future);
                }
            }
        }
        drop(done);
        match polled {
            Ok(_) => Ok(()),
            Err(message) => Err(Stopped::Panicked {
                task: name,
                message,
            }),
        }
    }

    /// Takes over what spawners were given.
    fn adopt(&self) {
        let spawned = std::mem::take(&mut self.shared.lock().spawned);
        for (group, name, task) in spawned {
            self.start(group, name, task);
        }
    }

    fn next_ready(&self) -> Option<u64> {
        let mut queues = self.shared.lock();
        if self.is_ordered.get() {
            queues.ready.sort_unstable();
        }
        while !queues.ready.is_empty() {
            let index = self.rng.borrow_mut().random_range(0..queues.ready.len());
            let task = match self.is_ordered.get() {
                true => queues.ready.remove(index),
                false => queues.ready.swap_remove(index),
            };
            let group = match queues.paused.is_empty() {
                true => None,
                false => self.tasks.borrow().get(&task).map(|entry| entry.group),
            };
            match group.filter(|group| queues.paused.contains(group)) {
                Some(group) => queues.held.push((group, task)),
                None => return Some(task),
            }
        }
        None
    }

    fn note(&self, task: u64, name: &str) {
        let now = self.clock.now();
        let mixed = (self.digest.get() ^ task).wrapping_mul(0x0100_0000_01b3) ^ now;
        self.digest.set(mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        if let Some(trace) = &mut *self.trace.borrow_mut() {
            trace.push(format!("{now} {name}"));
        }
    }
}

/// Polls once. A panic comes back as its message.
fn poll<T>(future: Pin<&mut dyn Future<Output = T>>, waker: &Waker) -> Result<Poll<T>, String> {
    let mut context = Context::from_waker(waker);
    catch_unwind(AssertUnwindSafe(|| future.poll(&mut context))).map_err(panic_message)
}

fn panic_message(panic: Box<dyn Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(panic) => panic
            .downcast_ref::<&str>()
            .map_or_else(|| "no message".to_owned(), |&message| message.to_owned()),
    }
}

struct SimSpawner {
    group: Group,
    shared: Arc<Shared>,
}

impl fmt::Debug for SimSpawner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimSpawner({})", self.group)
    }
}

impl Spawner for SimSpawner {
    fn spawn(&self, name: &str, task: Task) -> io::Result<()> {
        let mut queues = self.shared.lock();
        if queues.dead.contains(&self.group) {
            return Err(io::Error::other("the process is gone"));
        }
        queues.spawned.push((self.group, name.to_owned(), task));
        Ok(())
    }
}
