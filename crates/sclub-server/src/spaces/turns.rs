//! Turns of spaces at the threads that answer requests.
//!
//! The runtime serves its tasks in the order in which they are ready. So a space with a thousand requests would have
//! another one wait for all of them, and its threads would fill all cores. Here a space has fewer turns than there are
//! threads, so that some are left for other spaces. A connection that asks a space has a turn while it reads, computes and
//! writes, never while it waits for a peer, a disk or a lock. Further connections of the space wait for a turn outside the
//! runtime's queue, and the queue stays short for everyone. A space that is alone uses all threads.

use std::num::NonZero;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::extract::Request;
use tokio::sync::Semaphore;
use tower::{Layer, Service};

use crate::edge::TurnSlot;

/// The time for which threads are left for a space after its last request.
const RESERVED: Duration = Duration::from_secs(60);

/// The turns of a space. A layer for its calls.
#[derive(Debug, Clone)]
pub struct Turns {
    free: Arc<Semaphore>,
    threads: usize,
    space: u64,
    traffic: Arc<Traffic>,
}

impl Turns {
    /// The turns of the first space of a server with some threads; 0 is one for each core.
    pub(super) fn new(threads: usize) -> Self {
        let threads = match threads {
            0 => std::thread::available_parallelism().map_or(1, NonZero::get),
            some => some,
        };
        Self::of(threads, Arc::default())
    }

    /// As many turns for another space.
    pub(super) fn another(&self) -> Self {
        Self::of(self.threads, Arc::clone(&self.traffic))
    }

    fn of(threads: usize, traffic: Arc<Traffic>) -> Self {
        Self {
            // A quarter of the threads is left, at least one of two.
            free: Arc::new(Semaphore::new((threads * 3 / 4).max(1))),
            threads,
            space: traffic.spaces.fetch_add(1, Relaxed) + 1,
            traffic,
        }
    }

    /// Has a connection need a turn if several spaces have requests, for a request and until its next one.
    fn apply(&self, slot: &TurnSlot) {
        let is_shared = self.traffic.is_shared(self.space);
        slot.take_from(is_shared.then(|| Arc::clone(&self.free)));
    }
}

/// The latest requests of all spaces of a server.
#[derive(Debug)]
struct Traffic {
    origin: Instant,
    /// The number of spaces so far.
    spaces: AtomicU64,
    /// The space of the last request; 0 before the first.
    last: AtomicU64,
    /// The time of the last request of another space than the one before it, in milliseconds since `origin`; 0 is never.
    changed: AtomicU64,
}

impl Default for Traffic {
    fn default() -> Self {
        Self {
            origin: Instant::now(),
            spaces: AtomicU64::new(0),
            last: AtomicU64::new(0),
            changed: AtomicU64::new(0),
        }
    }
}

impl Traffic {
    /// Counts a request. Returns true if several spaces have requests at present.
    fn is_shared(&self, space: u64) -> bool {
        let now = || 1 + self.origin.elapsed().as_millis() as u64;
        if self.last.load(Relaxed) != space && self.last.swap(space, Relaxed) != 0 {
            self.changed.store(now(), Relaxed);
            return true;
        }
        match self.changed.load(Relaxed) {
            0 => false,
            changed => now().saturating_sub(changed) < RESERVED.as_millis() as u64,
        }
    }
}

impl<S> Layer<S> for Turns {
    type Service = InTurn<S>;

    fn layer(&self, inner: S) -> InTurn<S> {
        InTurn {
            inner,
            turns: self.clone(),
        }
    }
}

/// A service that computes only when its space has a turn.
#[derive(Debug, Clone)]
pub struct InTurn<S> {
    inner: S,
    turns: Turns,
}

impl<S> Service<Request> for InTurn<S>
where
    S: Service<Request>,
    S::Future: Unpin,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Fair<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let slot = TurnSlot::of(request.extensions());
        self.turns.apply(&slot);
        Fair {
            inner: self.inner.call(request),
            slot,
        }
    }
}

/// An answer that is computed only with a turn. A connection has one already, unless this is its first request.
pub struct Fair<F> {
    inner: F,
    slot: TurnSlot,
}

impl<F: Future + Unpin> Future for Fair<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        ready!(self.slot.poll_turn(cx));
        Pin::new(&mut self.inner).poll(cx)
    }
}

impl<F> std::fmt::Debug for Fair<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fair")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use futures_util::FutureExt;

    fn shared(threads: usize) -> (Turns, Turns) {
        let first = Turns::new(threads);
        let second = first.another();
        assert!(!first.traffic.is_shared(first.space));
        assert!(second.traffic.is_shared(second.space));
        (first, second)
    }

    fn connection(turns: &Turns) -> TurnSlot {
        let slot = TurnSlot::default();
        turns.apply(&slot);
        slot
    }

    fn has_turn(slot: &TurnSlot) -> bool {
        std::future::poll_fn(|cx| slot.poll_turn(cx))
            .now_or_never()
            .is_some()
    }

    #[test]
    fn a_space_leaves_threads_to_others() {
        for (threads, turns) in [(1, 1), (2, 1), (3, 2), (4, 3), (8, 6)] {
            let (one, two) = shared(threads);
            let flood: Vec<TurnSlot> = (0..16).map(|_| connection(&one)).collect();
            let count = |of: &[TurnSlot]| of.iter().filter(|slot| has_turn(slot)).count();
            assert_eq!(count(&flood), turns);
            // A connection with a turn has it until its end.
            assert_eq!(count(&flood), turns);
            assert!(has_turn(&connection(&two)));
            flood[0].end();
            assert_eq!(count(&flood[turns..]), 1);
            assert!(!has_turn(&flood[0]));
        }
    }

    /// A connection that goes on to another space takes its turns from there.
    #[test]
    fn a_connection_can_ask_several_spaces() {
        let (one, two) = shared(2);
        let (first, second) = (connection(&one), connection(&one));
        assert!(has_turn(&first));
        assert!(!has_turn(&second));
        two.apply(&first);
        assert!(has_turn(&first));
        assert!(has_turn(&second));
    }

    #[test]
    fn a_connection_that_closes_leaves_its_turn() {
        let (one, _) = shared(2);
        let (first, second, third) = (connection(&one), connection(&one), connection(&one));
        assert!(has_turn(&first));
        assert!(!has_turn(&second));
        assert!(!has_turn(&third));
        drop((first, second));
        assert!(has_turn(&third));
    }

    #[test]
    fn a_space_that_is_alone_has_all_threads() {
        let turns = Turns::new(2);
        let _other = turns.another();
        let flood: Vec<TurnSlot> = (0..16).map(|_| connection(&turns)).collect();
        assert!(flood.iter().all(has_turn));
    }
}
