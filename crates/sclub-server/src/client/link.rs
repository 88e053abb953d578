//! An open HTTP/1.1 connection.

use std::error::Error;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;

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
    /// Reads and writes the socket. It is polled by the call that waits for an answer rather than by a task
    /// of its own, which would cost two more wake-ups a call.
    driver: Driver,
}

/// `None` once the connection is closed.
type Driver = Option<Pin<Box<dyn Future<Output = Result<(), hyper::Error>> + Send>>>;

impl Link {
    /// Starts HTTP on a stream.
    pub(super) async fn start(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<Self, ClientError> {
        let (sender, driver) = handshake(TokioIo::new(stream)).await.map_err(failed)?;
        let driver: Driver = Some(Box::pin(driver));
        Ok(Self { sender, driver })
    }

    /// Sends a request and waits for the head of its answer.
    pub(super) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<hyper::Response<Incoming>, ClientError> {
        let sender = &mut self.sender;
        let answer = async {
            sender.ready().await?;
            sender.send_request(request).await
        };
        drive(&mut self.driver, answer).await
    }

    /// Waits for work that needs the connection, such as reading a body.
    pub(super) async fn drive<T>(
        &mut self,
        work: impl Future<Output = Result<T, hyper::Error>>,
    ) -> Result<T, ClientError> {
        drive(&mut self.driver, work).await
    }
}

async fn drive<T>(
    driver: &mut Driver,
    work: impl Future<Output = Result<T, hyper::Error>>,
) -> Result<T, ClientError> {
    let mut work = pin!(work);
    let done = poll_fn(|cx| {
        loop {
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(Some(done));
            }
            let Some(running) = driver else {
                // The connection is closed: nothing will wake the work any more.
                return Poll::Ready(None);
            };
            if running.as_mut().poll(cx).is_ready() {
                *driver = None;
            } else {
                // The driver may have passed data to the work just now.
                return work.as_mut().poll(cx).map(Some);
            }
        }
    });
    match done.await {
        Some(done) => done.map_err(failed),
        None => Err(ClientError::Broken("the server closed it".to_owned())),
    }
}

fn failed(error: hyper::Error) -> ClientError {
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
