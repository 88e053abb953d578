//! Who is slow, and for how long.
//!
//! A connection waits for its peer in three places: for the head of a request, for its body, and for
//! the peer to take an answer. [`Pulse`] notes since when it waits for a head or for bytes to be taken,
//! which costs a request two stores and no timer; the connection's task looks at it once in a while.
//! [`Arriving`] watches the body, and is the only one to use a timer, if the body is not there yet.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::BoxError;
use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep};

/// A body has to bring this much in each timeout, or to end.
const LEAST_BYTES: usize = 1024;

/// How far the server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// It serves.
    Open,
    /// It takes nothing new and ends what it has.
    Draining,
    /// It ends.
    Over,
}

/// What is known of a connection. Times are milliseconds since `origin`, plus one; 0 is "does not wait".
#[derive(Debug)]
pub(super) struct Pulse {
    pub(super) peer: SocketAddr,
    pub(super) stage: watch::Receiver<Stage>,
    timeout: Duration,
    origin: Instant,
    head_since: AtomicU64,
    write_since: AtomicU64,
    half_read: AtomicBool,
}

impl Pulse {
    pub(super) fn new(peer: SocketAddr, stage: watch::Receiver<Stage>, timeout: Duration) -> Self {
        Self {
            peer,
            stage,
            timeout,
            origin: Instant::now(),
            head_since: AtomicU64::new(1),
            write_since: AtomicU64::new(0),
            half_read: AtomicBool::new(false),
        }
    }

    fn now(&self) -> u64 {
        self.origin.elapsed().as_millis() as u64 + 1
    }

    /// A request is there, so nothing more is waited for. `whole` if it has no body.
    pub(super) fn request(&self, whole: bool) {
        self.head_since.store(0, Relaxed);
        if whole {
            self.half_read.store(false, Relaxed);
        }
    }

    /// Whether a request is being answered.
    pub(super) fn answers(&self) -> bool {
        self.head_since.load(Relaxed) == 0
    }

    fn wait_for_head(&self) {
        self.head_since.store(self.now(), Relaxed);
    }

    fn wrote<T>(&self, outcome: Poll<T>) -> Poll<T> {
        let waits = self.write_since.load(Relaxed) != 0;
        if outcome.is_pending() != waits {
            self.write_since
                .store(if waits { 0 } else { self.now() }, Relaxed);
        }
        outcome
    }

    /// When to look again; `None` if the peer has kept us waiting for too long.
    ///
    /// Every wait lasts the same, so one that begins after this look ends after the next.
    pub(super) fn look(&self) -> Option<Instant> {
        let now = Instant::now();
        let end = |since: &AtomicU64| match since.load(Relaxed) {
            0 => now + self.timeout,
            since => self.origin + Duration::from_millis(since) + self.timeout,
        };
        let first = end(&self.head_since).min(end(&self.write_since));
        (first > now).then_some(first)
    }
}

/// A stream that tells a [`Pulse`] what it waits for.
pub(super) struct Watched<S> {
    stream: S,
    pulse: Arc<Pulse>,
    shut: bool,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, pulse: Arc<Pulse>) -> Self {
        Self {
            stream,
            pulse,
            shut: false,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let outcome = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before && !self.pulse.answers() {
            self.pulse.half_read.store(true, Relaxed);
        }
        outcome
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.pulse.wrote(outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.pulse.wrote(outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(cx);
        self.pulse.wrote(outcome)
    }

    /// Ends our side. If the peer still sends a request that was answered early (too large, say), what
    /// comes is thrown away until it stops: closing at once would reset the connection, and the peer
    /// might never see the answer.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.shut {
            let outcome = Pin::new(&mut self.stream).poll_shutdown(cx);
            ready!(self.pulse.wrote(outcome))?;
            self.shut = true;
            if self.pulse.half_read.load(Relaxed) {
                self.pulse.wait_for_head();
            }
        }
        while self.pulse.half_read.load(Relaxed) {
            let mut room = [0; 4096];
            let mut buffer = ReadBuf::new(&mut room);
            let outcome = ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer));
            if outcome.is_err() || buffer.filled().is_empty() {
                break;
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// The body of a request did not arrive in time.
#[derive(Debug)]
pub(super) struct Stalled;

impl fmt::Display for Stalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the body did not arrive in time")
    }
}

impl std::error::Error for Stalled {}

/// The body of a request, that fails if its sender is slower than [`LEAST_BYTES`] in a timeout. The
/// time that we take ourselves does not count.
pub(super) struct Arriving {
    body: Incoming,
    pulse: Arc<Pulse>,
    timer: Option<Pin<Box<Sleep>>>,
    waits_since: Option<Instant>,
    waited: Duration,
    bytes: usize,
}

impl Arriving {
    pub(super) fn new(body: Incoming, pulse: Arc<Pulse>) -> Self {
        Self {
            body,
            pulse,
            timer: None,
            waits_since: None,
            waited: Duration::ZERO,
            bytes: 0,
        }
    }

    /// Waits on, for as long as the sender still has.
    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let timer = match (self.waits_since, &mut self.timer) {
            (Some(_), Some(timer)) => timer,
            (_, timer) => {
                let now = Instant::now();
                self.waits_since = Some(now);
                let end = now + self.pulse.timeout.saturating_sub(self.waited);
                let timer = timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(end)));
                timer.as_mut().reset(end);
                timer
            }
        };
        timer.as_mut().poll(cx)
    }

    fn arrived(&mut self, bytes: usize) {
        if let Some(since) = self.waits_since.take() {
            self.waited += since.elapsed();
        }
        self.bytes += bytes;
        if self.bytes >= LEAST_BYTES {
            self.bytes = 0;
            self.waited = Duration::ZERO;
        }
    }
}

impl HttpBody for Arriving {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Pending => self.wait(cx).map(|()| Some(Err(Stalled.into()))),
            Poll::Ready(Some(Ok(frame))) => {
                self.arrived(frame.data_ref().map_or(0, Bytes::len));
                if self.body.is_end_stream() {
                    self.pulse.half_read.store(false, Relaxed);
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error.into()))),
            Poll::Ready(None) => {
                self.pulse.half_read.store(false, Relaxed);
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of an answer. When it is gone, the next request is waited for.
pub(super) struct Answer {
    body: Body,
    pulse: Arc<Pulse>,
}

impl Answer {
    pub(super) fn new(body: Body, pulse: Arc<Pulse>) -> Self {
        Self { body, pulse }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.pulse.wait_for_head();
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
