//! Who is slow, and for how long.
//!
//! A connection waits for its peer in three places: for the head of a request, for its body, and for
//! the peer to take an answer. [`Pulse`] notes since when it waits for a head or for bytes to be taken,
//! which costs a request two stores and no timer; the connection's task looks at it once in a while.
//! [`Arriving`] watches the body, and is the only one to use a timer, if the body is not there yet.
//!
//! Two rules hold for a body and for an answer. One wait may not be longer than the timeout. And all waits
//! together may not be longer than the timeout and a second for each 16 KiB that have come, or gone: so
//! a long body or download may take as long as it needs at an honest speed, and nobody holds a connection
//! for hours with a byte now and then.

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

/// Bytes that earn a peer another second.
const BYTES_A_SECOND: u64 = 16 << 10;

/// How long a peer may keep us waiting in all that has sent, or taken, so many bytes.
fn allowance(timeout: Duration, bytes: u64) -> Duration {
    let micros = bytes.saturating_mul(1_000_000) / BYTES_A_SECOND;
    timeout.saturating_add(Duration::from_micros(micros))
}

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
    /// Milliseconds that were waited for the peer to take this answer, waits that are over.
    write_waited: AtomicU64,
    /// Bytes of this answer that were taken since the first wait. Those before it only filled the buffers
    /// of the system.
    write_bytes: AtomicU64,
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
            write_waited: AtomicU64::new(0),
            write_bytes: AtomicU64::new(0),
            half_read: AtomicBool::new(false),
        }
    }

    fn now(&self) -> u64 {
        self.origin.elapsed().as_millis() as u64 + 1
    }

    /// A request is there, so nothing more is waited for. `whole` if it has no body.
    pub(super) fn request(&self, whole: bool) {
        self.head_since.store(0, Relaxed);
        self.write_waited.store(0, Relaxed);
        self.write_bytes.store(0, Relaxed);
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

    /// Notes whether the peer makes us wait. Only the connection's task calls it, so loads and stores will
    /// do.
    fn wrote<T>(&self, outcome: Poll<T>) -> Poll<T> {
        let since = self.write_since.load(Relaxed);
        match (outcome.is_pending(), since) {
            (true, 0) => self.write_since.store(self.now(), Relaxed),
            (false, 1..) => {
                let waited = self.now().saturating_sub(since).max(1);
                let before = self.write_waited.load(Relaxed);
                self.write_waited.store(before + waited, Relaxed);
                self.write_since.store(0, Relaxed);
            }
            _ => {}
        }
        outcome
    }

    fn wrote_bytes(&self, outcome: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let outcome = self.wrote(outcome);
        if let Poll::Ready(Ok(bytes)) = outcome
            && self.write_waited.load(Relaxed) > 0
        {
            let before = self.write_bytes.load(Relaxed);
            self.write_bytes.store(before + bytes as u64, Relaxed);
        }
        outcome
    }

    /// When to look again; `None` if the peer has kept us waiting for too long.
    ///
    /// No wait may last longer than the timeout, so one that begins after this look is still going on at
    /// the next, or is over. One that has less time than that is ended at the next look.
    pub(super) fn look(&self) -> Option<Instant> {
        let now = Instant::now();
        let begun = |since: u64| self.origin + Duration::from_millis(since);
        let head_end = match self.head_since.load(Relaxed) {
            0 => now + self.timeout,
            since => begun(since) + self.timeout,
        };
        let write_end = match self.write_since.load(Relaxed) {
            0 => now + self.timeout,
            since => {
                let waited = Duration::from_millis(self.write_waited.load(Relaxed));
                let allowed = allowance(self.timeout, self.write_bytes.load(Relaxed));
                begun(since) + allowed.saturating_sub(waited).min(self.timeout)
            }
        };
        let first = head_end.min(write_end);
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
        self.pulse.wrote_bytes(outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.pulse.wrote_bytes(outcome)
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

/// The body of a request, that fails if its sender is slower than [`LEAST_BYTES`] in a timeout, or slower
/// on average than [`allowance`] has it. The time that we take ourselves does not count.
pub(super) struct Arriving {
    body: Incoming,
    pulse: Arc<Pulse>,
    timer: Option<Pin<Box<Sleep>>>,
    waits_since: Option<Instant>,
    /// In all.
    waited: Duration,
    bytes: u64,
    /// Since the last [`LEAST_BYTES`] were there.
    waited_lately: Duration,
    bytes_lately: usize,
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
            waited_lately: Duration::ZERO,
            bytes_lately: 0,
        }
    }

    /// Waits on, for as long as the sender still has.
    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let timer = match (self.waits_since, &mut self.timer) {
            (Some(_), Some(timer)) => timer,
            (_, timer) => {
                let now = Instant::now();
                self.waits_since = Some(now);
                let timeout = self.pulse.timeout;
                let lately = timeout.saturating_sub(self.waited_lately);
                let in_all = allowance(timeout, self.bytes).saturating_sub(self.waited);
                let end = now + lately.min(in_all);
                let timer = timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(end)));
                timer.as_mut().reset(end);
                timer
            }
        };
        timer.as_mut().poll(cx)
    }

    fn arrived(&mut self, bytes: usize) {
        if let Some(since) = self.waits_since.take() {
            let waited = since.elapsed();
            self.waited += waited;
            self.waited_lately += waited;
        }
        self.bytes += bytes as u64;
        self.bytes_lately += bytes;
        if self.bytes_lately >= LEAST_BYTES {
            self.bytes_lately = 0;
            self.waited_lately = Duration::ZERO;
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
