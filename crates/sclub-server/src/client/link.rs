//! An open HTTP/1.1 connection.

use std::error::Error;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::ClientError;

/// An open HTTP/1.1 connection.
pub(super) struct Link {
    sender: SendRequest<Full<Bytes>>,
}

impl Link {
    /// Starts HTTP on a stream. A task reads and writes it, and ends when the link is dropped.
    pub(super) async fn start(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<Self, ClientError> {
        let (sender, driver) = handshake(TokioIo::new(stream)).await.map_err(failed)?;
        // Its errors reach the call that waits for an answer.
        tokio::spawn(driver);
        Ok(Self { sender })
    }

    /// Sends a request and waits for the head of its answer.
    pub(super) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<hyper::Response<Incoming>, Unanswered> {
        let closed = |error| Unanswered {
            was_sent: false,
            error: failed(error),
        };
        self.sender.ready().await.map_err(closed)?;
        let sent = self.sender.try_send_request(request).await;
        sent.map_err(|mut failure| Unanswered {
            was_sent: failure.take_message().is_none(),
            error: failed(failure.into_error()),
        })
    }
}

/// A request without an answer.
pub(super) struct Unanswered {
    /// False if no byte of the request was sent.
    pub was_sent: bool,
    pub error: ClientError,
}

/// The error of a call that hyper could not complete.
pub(super) fn failed(error: hyper::Error) -> ClientError {
    if error.is_parse() {
        return ClientError::NotHttp(error.to_string());
    }
    // The innermost cause is the most specific.
    let mut cause: &dyn Error = &error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    ClientError::Broken(cause.to_string())
}
