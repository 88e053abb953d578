//! Bodies of requests that were answered before they were read to their end.
//!
//! If the rest has arrived by then, it is read and dropped, and the connection can be used again. Otherwise the connection
//! ends with the answer, and the answer says so: `connection: close`. A client that has not been told would send its next
//! request into a connection that closes.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::Poll;

use axum::body::HttpBody;
use bytes::Bytes;
use hyper::body::Incoming;

use crate::locks::lock;

/// The maximum number of bytes that are dropped to use a connection again.
const MAX_DROPPED: usize = 256 << 10;

/// A body that was not read to its end.
#[derive(Debug)]
pub(super) enum Unread {
    /// The rest may still come.
    Rest(Incoming),
    /// It failed, so that nobody knows where the next request begins.
    Failed,
}

/// The unread body of a connection, and whether the connection waits for more bytes.
#[derive(Debug, Default)]
pub(super) struct UnreadSlot {
    body: Mutex<Option<Unread>>,
    waits: AtomicBool,
}

impl UnreadSlot {
    /// Keeps the body of the request that is being answered.
    pub(super) fn put(&self, body: Unread) {
        *lock(&self.body) = Some(body);
    }

    /// Takes the body.
    pub(super) fn take(&self) -> Option<Unread> {
        lock(&self.body).take()
    }

    /// Records that the connection has read, and whether it has to wait for bytes.
    pub(super) fn read(&self, waits: bool) {
        self.waits.store(waits, Relaxed);
    }

    /// Reads and drops the rest of a body as far as it has arrived. Returns true if that was all, and the connection can be
    /// used again.
    pub(super) async fn drop_rest(&self, mut rest: Incoming) -> bool {
        let mut dropped = 0;
        // The connection and this future are one task. It reads whenever there is room for a part of the body, so that nothing
        // more comes by itself once it waits.
        poll_fn(|cx| {
            loop {
                match Pin::new(&mut rest).poll_frame(cx) {
                    Poll::Ready(None) => return Poll::Ready(true),
                    Poll::Ready(Some(Err(_))) => return Poll::Ready(false),
                    Poll::Ready(Some(Ok(frame))) => {
                        dropped += frame.data_ref().map_or(0, Bytes::len);
                        if rest.is_end_stream() || dropped > MAX_DROPPED {
                            return Poll::Ready(rest.is_end_stream());
                        }
                    }
                    Poll::Pending if self.waits.load(Relaxed) => return Poll::Ready(false),
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await
    }
}
