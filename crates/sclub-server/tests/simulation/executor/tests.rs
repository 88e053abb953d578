//! The scheduler has many interleavings, and the same one for the same seed.

use std::rc::Rc;

use sclub_server::env::Clock;
use tokio::sync::{mpsc, oneshot};

use super::*;

fn executor(seed: u64) -> (Executor, SimClock) {
    let clock = SimClock::default();
    (Executor::new(seed, clock.clone()), clock)
}

/// Five tasks that take turns, and what happened.
fn turns(seed: u64) -> (Vec<String>, u64) {
    let (executor, clock) = executor(seed);
    executor.start_trace();
    let spawner = executor.spawner(1);
    let (sender, mut receiver) = mpsc::channel(2);
    for task in 0..5_u64 {
        let (clock, sender) = (clock.clone(), sender.clone());
        let work = async move {
            for turn in 0..5 {
                clock.yield_now().await;
                clock.sleep((task * turn) % 3).await;
                sender.send(task).await.unwrap();
            }
        };
        spawner.spawn(&format!("t{task}"), Box::pin(work)).unwrap();
    }
    drop(sender);
    let root = async {
        let mut order = Vec::new();
        while let Some(task) = receiver.recv().await {
            order.push(task.to_string());
        }
        order
    };
    let order = executor.run(root).unwrap();
    assert_eq!(order.len(), 25);
    let mut trace = executor.trace();
    trace.extend(order);
    (trace, executor.digest())
}

#[test]
fn the_same_seed_gives_the_same_interleaving_and_another_seed_another() {
    assert_eq!(turns(1), turns(1));
    assert_ne!(turns(1).0, turns(2).0);
    assert_ne!(turns(1).1, turns(2).1);
}

#[test]
fn timers_fire_in_order_and_virtual_time_does_not_wait() {
    let (executor, clock) = executor(3);
    let fired = Rc::new(RefCell::new(Vec::new()));
    for after in [30_000_u64, 10, 20, 3_600_000, 20] {
        let (clock, fired) = (clock.clone(), Rc::clone(&fired));
        executor.spawn(1, "sleeper", async move {
            clock.sleep(after).await;
            fired.borrow_mut().push((clock.monotonic(), after));
        });
    }
    executor.run(clock.sleep(86_400_000)).unwrap();
    let expected = [10, 20, 20, 30_000, 3_600_000].map(|at| (at, at));
    assert_eq!(*fired.borrow(), expected);
    assert_eq!(clock.now(), 86_400_000);
}

#[test]
fn a_dropped_timer_does_not_delay_time() {
    let (executor, clock) = executor(4);
    let waits = async {
        let mut long = clock.sleep(1_000_000);
        let mut short = clock.sleep(5);
        std::future::poll_fn(|context| {
            let _ = long.as_mut().poll(context);
            short.as_mut().poll(context)
        })
        .await;
        drop(long);
        std::future::pending::<()>().await;
    };
    assert!(matches!(executor.run(waits), Err(Stopped::Deadlock { .. })));
    assert_eq!(clock.now(), 5);
}

#[test]
fn a_deadlock_names_the_waiting_tasks() {
    let (executor, _) = executor(5);
    let (_sender, receiver) = oneshot::channel::<()>();
    executor.spawn(1, "waits for ever", async {
        let _ = receiver.await;
    });
    let stopped = executor.run(std::future::pending::<()>()).unwrap_err();
    let waiting = vec!["waits for ever".to_owned()];
    assert_eq!(stopped, Stopped::Deadlock { waiting });
}

#[test]
fn a_panic_in_a_task_fails_the_run() {
    let (executor, clock) = executor(6);
    let spawner = executor.spawner(1);
    let task = Box::pin(async { panic!("on purpose: {}", 1) });
    spawner.spawn("breaks", task).unwrap();
    let stopped = executor.run(clock.sleep(1)).unwrap_err();
    assert_eq!(stopped.to_string(), "task breaks panicked: on purpose: 1");
}

#[test]
fn the_tasks_of_a_killed_group_are_dropped_and_others_go_on() {
    let (executor, clock) = executor(7);
    let executor = Rc::new(executor);
    let (sender, receiver) = oneshot::channel::<()>();
    let done = Rc::new(Cell::new(false));
    let spawner = executor.spawner(1);
    let holds = Box::pin(async move {
        std::future::pending::<()>().await;
        drop(sender);
    });
    spawner.spawn("holds", holds).unwrap();
    {
        let (done, clock) = (Rc::clone(&done), clock.clone());
        executor.spawn(2, "goes on", async move {
            clock.sleep(10).await;
            done.set(true);
        });
    }
    let inner = Rc::clone(&executor);
    let root = async move {
        clock.sleep(5).await;
        inner.kill(1);
        assert!(!inner.has_tasks(1));
        // The sender died with its task.
        assert!(receiver.await.is_err());
        clock.sleep(10).await;
    };
    executor.run(root).unwrap();
    assert!(done.get());
    assert!(spawner.spawn("late", Box::pin(async {})).is_err());
}

#[test]
fn a_halt_ends_the_run_with_its_reason() {
    let (executor, clock) = executor(8);
    let executor = Rc::new(executor);
    let inner = Rc::clone(&executor);
    executor.spawn(1, "halts", async move { inner.halt("enough".to_owned()) });
    let stopped = executor.run(clock.sleep(9)).unwrap_err();
    assert_eq!(stopped, Stopped::Halted("enough".to_owned()));
    executor.clear();
}

#[test]
fn the_wall_clock_jumps_and_the_monotonic_one_does_not() {
    let clock = SimClock::default();
    let before = clock.wall();
    clock.advance(1_000);
    clock.jump(-500_000);
    assert_eq!(clock.wall(), before + 1_000 - 500_000);
    assert_eq!(clock.monotonic(), 1_000);
    clock.jump(86_400_000);
    assert_eq!(clock.monotonic(), 1_000);
    assert_eq!(clock.process().monotonic(), 0);
}
