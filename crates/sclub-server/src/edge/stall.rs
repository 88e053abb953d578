//! Detection of slow peers.
//!
//! A connection waits for its peer in three places: for the head of a request, for its body, and for the
//! peer to receive an answer. [`Pulse`] records since when it waits for a head or for bytes to be received,
//! which costs a request two stores and no timer; the connection's task checks it now and then. [`Arriving`]
//! watches the body, and uses a timer if the body has not arrived yet.
//!
//! Two rules hold for a body and for an answer. A single wait may not be longer than the timeout. All waits
//! together may not be longer than the timeout plus a second for each 16 KiB transferred. So a long body or
//! download may take the time it needs at a reasonable speed, but no peer can hold a connection for hours
//! with a byte now and then.

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

use super::turn::TurnSlot;
use super::unread::{Unread, UnreadSlot};

/// The minimum number of bytes of a body in each timeout, unless it ends.
const MIN_BYTES: usize = 1024;

/// The number of transferred bytes for which a peer gets another second.
const BYTES_PER_SECOND: u64 = 16 << 10;

/// The total time that a peer may keep the server waiting while it transfers a number of bytes.
fn allowance(timeout: Duration, bytes: u64) -> Duration {
    let micros = bytes.saturating_mul(1_000_000) / BYTES_PER_SECOND;
    timeout.saturating_add(Duration::from_micros(micros))
}

/// The stage of a server's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// It accepts connections and requests.
    Open,
    /// It accepts no more requests and finishes those in flight.
    Draining,
    /// The time to finish is up: connections are closed.
    Over,
}

/// The waits of a connection. Times are milliseconds since `origin`, plus one; 0 is "does not wait".
#[derive(Debug)]
pub(super) struct Pulse {
    pub(super) peer: SocketAddr,
    pub(super) stage: watch::Receiver<Stage>,
    timeout: Duration,
    origin: Instant,
    head_since: AtomicU64,
    write_since: AtomicU64,
    /// The milliseconds of all finished waits for the peer to receive this answer.
    write_waited: AtomicU64,
    /// The number of bytes of this answer that were received since the first wait. The bytes before it only
    /// filled the system's buffers.
    write_bytes: AtomicU64,
    half_read: AtomicBool,
    pub(super) unread: UnreadSlot,
    pub(super) turn: TurnSlot,
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
            unread: UnreadSlot::default(),
            turn: TurnSlot::default(),
        }
    }

    fn now(&self) -> u64 {
        self.origin.elapsed().as_millis() as u64 + 1
    }

    /// A request has arrived, so the wait is over. `whole` is true if it has no body.
    pub(super) fn request(&self, whole: bool) {
        self.head_since.store(0, Relaxed);
        self.write_waited.store(0, Relaxed);
        self.write_bytes.store(0, Relaxed);
        if whole {
            self.body_ended();
        }
    }

    /// The body of the request was read to its end.
    pub(super) fn body_ended(&self) {
        self.half_read.store(false, Relaxed);
    }

    /// Returns true if a request is being answered.
    pub(super) fn is_answering(&self) -> bool {
        self.head_since.load(Relaxed) == 0
    }

    fn wait_for_head(&self) {
        self.head_since.store(self.now(), Relaxed);
    }

    /// Records whether a write has to wait for the peer. Only the connection's task calls it, so plain loads
    /// and stores suffice.
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

    /// The time of the next check; `None` if the peer has kept the server waiting for too long.
    ///
    /// The next check is at most one timeout away, so no single wait that begins after this check can exceed
    /// the timeout before it. A wait with less time left, because of earlier waits, is ended at the next
    /// check.
    pub(super) fn next_check(&self) -> Option<Instant> {
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

/// A stream that records its waits in a [`Pulse`].
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
        if buffer.filled().len() > before && !self.pulse.is_answering() {
            self.pulse.half_read.store(true, Relaxed);
        }
        self.pulse.unread.read(outcome.is_pending());
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

    /// Closes the sending side. If the peer still sends a request that was answered early (because it is too
    /// large, for example), its data is read and dropped until it stops: closing at once would reset the
    /// connection, and the peer might never see the answer.
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

/// The body of a request. It fails if its sender is slower than [`MIN_BYTES`] in a timeout, or exceeds the
/// total of [`allowance`]. The time that the server takes itself does not count.
pub(super) struct Arriving {
    /// The rest of the body; `None` once it has ended or failed.
    body: Option<Incoming>,
    pulse: Arc<Pulse>,
    timer: Option<Pin<Box<Sleep>>>,
    waits_since: Option<Instant>,
    /// The total time waited.
    waited: Duration,
    bytes: u64,
    /// The time waited since the last [`MIN_BYTES`] arrived.
    waited_lately: Duration,
    bytes_lately: usize,
}

impl Arriving {
    pub(super) fn new(body: Incoming, pulse: Arc<Pulse>) -> Self {
        Self {
            body: Some(body),
            pulse,
            timer: None,
            waits_since: None,
            waited: Duration::ZERO,
            bytes: 0,
            waited_lately: Duration::ZERO,
            bytes_lately: 0,
        }
    }

    /// Waits until the time of the sender is up.
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

    fn end(&mut self) {
        self.body = None;
        self.pulse.body_ended();
    }

    fn arrived(&mut self, bytes: usize) {
        if let Some(since) = self.waits_since.take() {
            let waited = since.elapsed();
            self.waited += waited;
            self.waited_lately += waited;
        }
        self.bytes += bytes as u64;
        self.bytes_lately += bytes;
        if self.bytes_lately >= MIN_BYTES {
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
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        let frame = match Pin::new(body).poll_frame(cx) {
            Poll::Pending => ready!(self.wait(cx).map(|()| Some(Err(Stalled.into())))),
            Poll::Ready(frame) => frame.map(|frame| frame.map_err(BoxError::from)),
        };
        match &frame {
            Some(Ok(frame)) => {
                self.arrived(frame.data_ref().map_or(0, Bytes::len));
                if self.is_end_stream() {
                    self.end();
                }
            }
            Some(Err(_)) => {
                self.body = None;
                self.pulse.unread.put(Unread::Failed);
            }
            None => self.end(),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let body = self.body.as_ref();
        body.map_or_else(|| SizeHint::with_exact(0), Incoming::size_hint)
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        if let Some(rest) = self.body.take() {
            self.pulse.unread.put(Unread::Rest(rest));
        }
    }
}

/// The body of an answer. When it is dropped, the connection waits for the next request.
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
