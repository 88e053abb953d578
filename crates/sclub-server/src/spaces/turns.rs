//! Turns of spaces at the threads that answer requests.
//!
//! The runtime serves its tasks in the order in which they are ready. So a space with a thousand requests would have
//! another one wait for all of them. Here each space has as many turns as there are threads. A request has one only
//! while it computes, never while it waits for a body, a disk or a lock. Further requests of the space wait for a turn
//! outside the runtime's queue, and the queue stays short for everyone. A space that is alone uses all threads, and a
//! server with one space has no turns at all.

use std::num::NonZero;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};

use futures_util::future::{BoxFuture, Either};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tower::{Layer, Service};

/// The turns of a space. A layer for its calls.
#[derive(Debug, Clone)]
pub struct Turns {
    free: Arc<Semaphore>,
    count: usize,
    /// True if there are several spaces.
    is_shared: Arc<AtomicBool>,
}

impl Turns {
    /// The turns of the first space of a server with some threads; 0 is one for each core.
    pub(super) fn new(threads: usize) -> Self {
        let count = match threads {
            0 => std::thread::available_parallelism().map_or(1, NonZero::get),
            some => some,
        };
        Self {
            free: Arc::new(Semaphore::new(count)),
            count,
            is_shared: Arc::default(),
        }
    }

    /// As many turns for another space.
    pub(super) fn another(&self) -> Self {
        Self {
            free: Arc::new(Semaphore::new(self.count)),
            ..self.clone()
        }
    }

    /// Turns the turns on or off, for all spaces.
    pub(super) fn share(&self, is_shared: bool) {
        self.is_shared.store(is_shared, Relaxed);
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

impl<S, R> Service<R> for InTurn<S>
where
    S: Service<R>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Either<S::Future, Fair<Result<S::Response, S::Error>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let answer = self.inner.call(request);
        match self.turns.is_shared.load(Relaxed) {
            false => Either::Left(answer),
            true => Either::Right(Fair {
                inner: Box::pin(answer),
                free: Arc::clone(&self.turns.free),
                waiting: None,
            }),
        }
    }
}

type Waiting = BoxFuture<'static, Result<OwnedSemaphorePermit, AcquireError>>;

/// A future that is polled only with a turn.
pub struct Fair<T> {
    inner: BoxFuture<'static, T>,
    free: Arc<Semaphore>,
    waiting: Option<Waiting>,
}

impl<T> Future for Fair<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let this = &mut *self;
        let next = match this.waiting.take() {
            Some(waiting) => Err(waiting),
            None => Arc::clone(&this.free)
                .try_acquire_owned()
                .map_err(|_| Box::pin(Arc::clone(&this.free).acquire_owned()) as Waiting),
        };
        let _turn = match next {
            Ok(turn) => Ok(turn),
            Err(mut waiting) => match waiting.as_mut().poll(cx) {
                Poll::Ready(turn) => turn,
                Poll::Pending => {
                    this.waiting = Some(waiting);
                    return Poll::Pending;
                }
            },
        };
        this.inner.as_mut().poll(cx)
    }
}

impl<T> std::fmt::Debug for Fair<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fair")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use tower::service_fn;

    /// A request that waits for something else leaves its turn to others.
    #[tokio::test]
    async fn a_turn_is_held_only_while_a_request_computes() {
        let turns = Turns::new(1);
        turns.share(true);
        let gate = Arc::new(Semaphore::new(0));
        let mut waits = turns.layer(service_fn({
            let gate = Arc::clone(&gate);
            move |(): ()| {
                let gate = Arc::clone(&gate);
                async move { gate.acquire().await.map(|_| ()) }
            }
        }));
        let mut quick = turns.layer(service_fn(|(): ()| async { Ok::<_, ()>(()) }));
        let mut first = waits.call(()).boxed();
        assert!((&mut first).now_or_never().is_none());
        assert_eq!(quick.call(()).now_or_never(), Some(Ok(())));
        gate.add_permits(1);
        assert!(first.now_or_never().is_some());
    }

    #[tokio::test]
    async fn spaces_have_turns_of_their_own() {
        let (one, two) = {
            let first = Turns::new(1);
            (first.another(), first.another())
        };
        let taken = Arc::clone(&one.free).try_acquire_owned().unwrap();
        let quick = service_fn(|(): ()| async { Ok::<_, ()>(()) });
        let (mut of_one, mut of_two) = (one.layer(quick), two.layer(quick));
        // With one space there are no turns.
        assert_eq!(of_one.call(()).now_or_never(), Some(Ok(())));
        two.share(true);
        let mut waiting = of_one.call(()).boxed();
        assert_eq!((&mut waiting).now_or_never(), None);
        assert_eq!(of_two.call(()).now_or_never(), Some(Ok(())));
        drop(taken);
        assert_eq!(waiting.now_or_never(), Some(Ok(())));
    }
}
