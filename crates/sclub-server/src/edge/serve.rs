//! Connections: taken, limited, watched and drained.
//!
//! Of the settings of hyper: `pipeline_flush` stays off, as it helps only callers that send requests
//! before they have the answers, and is called experimental. `header_read_timeout` stays off too: it
//! makes a timer for each request, where `stall` needs none.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderValue, Request, Response};
use axum::response::IntoResponse;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tower::Service;

use super::addresses::{Addresses, Counted};
use super::audit::Call;
use super::error;
use super::request_id::{REQUEST_ID, RequestIds};
use super::site::Site;
use super::stall::{Answer, Arriving, Pulse, Stage, Watched};
use super::tls::Tls;
use crate::settings::Settings;

/// Most bytes in the head of a request.
const MAX_HEAD: usize = 32 << 10;
/// Most bytes that a connection reads or writes at once.
const BUFFER: usize = 64 << 10;
/// Connections over the limit that are told so at once; more are closed without a word.
const REFUSALS: usize = 64;
const REFUSAL_TIME: Duration = Duration::from_secs(1);
/// Between attempts to accept, while the system has no room for another connection.
const BACK_OFF: Duration = Duration::from_millis(100);
/// For tasks to end once they were told to.
const LAST_CALL: Duration = Duration::from_secs(1);

/// The answer to a connection that is one too many, before anything of it is read.
fn refusal(id: &HeaderValue, message: &str) -> Vec<u8> {
    let body = format!(
        "{{\"error\":{{\"code\":\"overloaded\",\"message\":\"{message}\",\"field\":null}}}}"
    );
    let head = format!(
        "HTTP/1.1 503 Service Unavailable\r\n\
         content-type: application/json\r\n\
         content-length: {}\r\n\
         retry-after: 1\r\n\
         {REQUEST_ID}: {}\r\n\
         connection: close\r\n\r\n",
        body.len(),
        id.to_str().unwrap_or_default(),
    );
    (head + &body).into_bytes()
}

/// How connections are served.
#[derive(Debug, Clone)]
pub struct EdgeOptions {
    /// Speaks TLS if given.
    pub tls: Option<Tls>,
    /// For a peer to finish TLS's handshake, to send the head of a request (which is also how long a
    /// connection may idle), to send the next KiB of a body or its rest, and to take some of an answer.
    pub timeout: Duration,
    /// For requests in flight to be answered once the server is to end.
    pub drain: Duration,
    /// Most connections at once. Further ones are answered 503 and closed (with TLS just closed), so
    /// that a balancer in front knows at once instead of waiting in a queue.
    pub max_connections: usize,
    /// Most connections at once from one address, or from one IPv6 network of 64 bits; 0 is no limit.
    /// Further ones are refused in the same way.
    pub max_connections_per_address: usize,
    /// What a browser may be made to send here.
    pub site: Site,
}

impl Default for EdgeOptions {
    fn default() -> Self {
        let settings = Settings::default();
        Self {
            tls: None,
            timeout: Duration::from_secs(settings.timeout),
            drain: Duration::from_secs(10),
            max_connections: settings.max_connections,
            max_connections_per_address: settings.max_connections_per_address,
            site: Site::default(),
        }
    }
}

impl EdgeOptions {
    /// As the settings have it; reads TLS's files. What browsers may send depends on keys too, so
    /// [`EdgeOptions::site`] is not set.
    ///
    /// # Errors
    /// A sentence that names the setting or the file.
    pub fn from_settings(settings: &Settings) -> Result<Self, String> {
        if settings.timeout == 0 {
            return Err("timeout is 0 seconds, it has to be at least 1".to_owned());
        }
        if settings.max_connections == 0 {
            return Err("max-connections is 0, it has to be at least 1".to_owned());
        }
        let tls = match (&settings.tls_cert, &settings.tls_key) {
            (None, None) => None,
            (Some(cert), Some(key)) => Some(Tls::load(cert, key)?),
            (Some(_), None) => return Err("tls-cert is given without tls-key".to_owned()),
            (None, Some(_)) => return Err("tls-key is given without tls-cert".to_owned()),
        };
        Ok(Self {
            tls,
            timeout: Duration::from_secs(settings.timeout),
            max_connections: settings.max_connections,
            max_connections_per_address: settings.max_connections_per_address,
            ..Self::default()
        })
    }
}

/// How a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Requests that had no whole answer when the time was up.
    pub cut: usize,
}

/// A connection, as its requests know it, with the id of the request.
#[derive(Debug, Clone)]
struct Connection {
    pulse: Arc<Pulse>,
    id: HeaderValue,
}

/// The id of a request with these extensions.
pub(super) fn request_id(extensions: &axum::http::Extensions) -> Option<HeaderValue> {
    let connection = extensions.get::<Connection>();
    connection.map(|connection| connection.id.clone())
}

/// The other end of the connection that a request came on. An extractor; fails to be there only in a
/// router that [`serve`] does not run, and is `0.0.0.0:0` then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

impl Peer {
    /// The peer of a request with these extensions.
    pub fn of(extensions: &axum::http::Extensions) -> Self {
        let peer = extensions
            .get::<Connection>()
            .map(|connection| connection.pulse.peer);
        Self(peer.unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0))))
    }
}

impl<S: Sync> FromRequestParts<S> for Peer {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::of(&parts.extensions))
    }
}

/// Tells when the server begins to end, for answers that have no end of their own. An extractor; in a
/// router that [`serve`] does not run it never tells.
#[derive(Debug, Clone)]
pub struct Closing(Option<watch::Receiver<Stage>>);

impl Closing {
    /// Whether the server has begun to end.
    pub fn is_closing(&self) -> bool {
        self.0
            .as_ref()
            .is_some_and(|stage| *stage.borrow() != Stage::Open)
    }

    /// Returns when the server begins to end.
    pub async fn wait(mut self) {
        match &mut self.0 {
            // An error says that the server is gone, which will do.
            Some(stage) => drop(stage.wait_for(|stage| *stage != Stage::Open).await),
            None => std::future::pending().await,
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Closing {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let connection = parts.extensions.get::<Connection>();
        Ok(Self(
            connection.map(|connection| connection.pulse.stage.clone()),
        ))
    }
}

/// What the connections of a server share.
struct Server {
    http: http1::Builder,
    router: Router,
    options: EdgeOptions,
    addresses: Arc<Addresses>,
    ids: RequestIds,
    cut: AtomicUsize,
}

/// Serves a router on a listener until `shutdown`, then lets requests in flight end.
///
/// # Errors
/// Only if the listener cannot be used at all.
pub async fn serve(
    listener: std::net::TcpListener,
    router: Router,
    edge: EdgeOptions,
    shutdown: impl Future<Output = ()>,
) -> io::Result<Drained> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let drain = edge.drain;
    let most = edge
        .max_connections
        .min(Semaphore::MAX_PERMITS.min(u32::MAX as usize));
    let free = Arc::new(Semaphore::new(most));
    let (stage, seen) = watch::channel(Stage::Open);
    let server = Arc::new(Server {
        http: http(),
        router: router.with_state(()),
        addresses: Addresses::new(edge.max_connections_per_address),
        ids: RequestIds::new(),
        options: edge,
        cut: AtomicUsize::new(0),
    });

    tokio::select! {
        () = accept(&listener, &server, &free, &seen) => {}
        () = shutdown => {}
    }
    drop(listener);

    stage.send_replace(Stage::Draining);
    let all = || free.acquire_many(most as u32);
    if tokio::time::timeout(drain, all()).await.is_err() {
        stage.send_replace(Stage::Over);
        // Only a handler that blocks its thread is longer.
        let _ = tokio::time::timeout(LAST_CALL, all()).await;
    }
    Ok(Drained {
        cut: server.cut.load(Relaxed),
    })
}

fn http() -> http1::Builder {
    let mut http = http1::Builder::new();
    http.max_buf_size(BUFFER)
        .max_header_size(MAX_HEAD)
        .header_read_timeout(None);
    http
}

async fn accept(
    listener: &TcpListener,
    server: &Arc<Server>,
    free: &Arc<Semaphore>,
    stage: &watch::Receiver<Stage>,
) {
    let refusals = Arc::new(Semaphore::new(REFUSALS));
    let mut failing = false;
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) if of_one_connection(&error) => continue,
            Err(error) => {
                if !failing {
                    tracing::error!(%error, "no connection can be accepted for now");
                }
                failing = true;
                tokio::time::sleep(BACK_OFF).await;
                continue;
            }
        };
        if failing {
            failing = false;
            tracing::info!("connections are accepted again");
        }
        let _ = stream.set_nodelay(true);
        let refused = match Arc::clone(free).try_acquire_owned() {
            Err(_) => "all connections of the server are in use",
            Ok(permit) => match server.addresses.take(peer.ip()) {
                None => "too many connections are open from this address",
                Some(counted) => {
                    let pulse = Pulse::new(peer, stage.clone(), server.options.timeout);
                    tokio::spawn(connection(
                        Arc::clone(server),
                        stream,
                        Arc::new(pulse),
                        (permit, counted),
                    ));
                    continue;
                }
            },
        };
        tracing::debug!(%peer, "refused: {refused}");
        if server.options.tls.is_none()
            && let Ok(permit) = Arc::clone(&refusals).try_acquire_owned()
        {
            let answer = refusal(&server.ids.next(), refused);
            tokio::spawn(refuse(stream, answer, permit));
        }
    }
}

/// Whether it was the connection that failed, and not the system.
fn of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted
    )
}

async fn refuse(mut stream: TcpStream, answer: Vec<u8>, _permit: OwnedSemaphorePermit) {
    let _ = tokio::time::timeout(REFUSAL_TIME, async {
        stream.write_all(&answer).await?;
        stream.shutdown().await?;
        // What the peer has sent must be read, or the refusal may not reach it.
        let mut room = [0; 1024];
        while stream.read(&mut room).await? > 0 {}
        io::Result::Ok(())
    })
    .await;
}

async fn connection(
    server: Arc<Server>,
    stream: TcpStream,
    pulse: Arc<Pulse>,
    _counted: (OwnedSemaphorePermit, Counted),
) {
    let Some(tls) = &server.options.tls else {
        return requests(&server, stream, pulse).await;
    };
    let acceptor = tls.acceptor();
    let mut stage = pulse.stage.clone();
    let handshake = tokio::time::timeout(server.options.timeout, acceptor.accept(stream));
    let peer = pulse.peer;
    let outcome = tokio::select! {
        outcome = handshake => outcome,
        _ = stage.changed() => return,
    };
    match outcome {
        Ok(Ok(stream)) => requests(&server, stream, pulse).await,
        Ok(Err(error)) => tracing::debug!(%peer, %error, "no TLS"),
        Err(_) => tracing::debug!(%peer, "TLS took too long"),
    }
}

/// Answers the requests of a connection until it ends, its peer is too slow, or the server is over.
async fn requests<S>(server: &Server, stream: S, pulse: Arc<Pulse>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(|request| answer(server, request, &pulse));
    let stream = TokioIo::new(Watched::new(stream, Arc::clone(&pulse)));
    let mut http = pin!(server.http.serve_connection(stream, service));
    // Looked at only when one of them has something to say, not each time that bytes come.
    let mut alarms = FuturesUnordered::new();
    alarms.push(alarm(&pulse, Stage::Open));
    let peer = pulse.peer;
    loop {
        tokio::select! {
            biased;
            outcome = http.as_mut() => {
                if let Err(error) = outcome {
                    tracing::debug!(%peer, %error, "connection failed");
                }
                return;
            }
            Some(alarm) = alarms.next() => match alarm {
                Alarm::Drain => {
                    http.as_mut().graceful_shutdown();
                    alarms.push(self::alarm(&pulse, Stage::Draining));
                }
                Alarm::Over => {
                    if pulse.answers() {
                        server.cut.fetch_add(1, Relaxed);
                    }
                    return;
                }
                Alarm::TooSlow => {
                    tracing::debug!(%peer, "ended: the peer is too slow");
                    return;
                }
            },
        }
    }
}

/// Why a connection has to do something other than to wait for bytes.
enum Alarm {
    Drain,
    Over,
    TooSlow,
}

/// Waits for the server to get past a stage, or for the peer to be too slow.
async fn alarm(pulse: &Pulse, past: Stage) -> Alarm {
    let mut stage = pulse.stage.clone();
    let mut later = pin!(async {
        let stage = stage.wait_for(|stage| *stage != past).await;
        stage.map_or(Stage::Over, |stage| *stage)
    });
    while let Some(next) = pulse.look() {
        tokio::select! {
            stage = later.as_mut() => return match stage {
                Stage::Over => Alarm::Over,
                Stage::Open | Stage::Draining => Alarm::Drain,
            },
            () = tokio::time::sleep_until(next) => {}
        }
    }
    Alarm::TooSlow
}

async fn answer(
    server: &Server,
    request: Request<Incoming>,
    pulse: &Arc<Pulse>,
) -> Result<Response<Answer>, Infallible> {
    let whole = request.body().is_end_stream();
    pulse.request(whole);
    let id = server.ids.of(request.headers());
    let mut response = match server.options.site.check(&request) {
        Ok(()) => handle(server, request, whole, pulse, &id).await,
        Err(error) => {
            let (method, path) = (request.method(), request.uri().path());
            if let Some((audit, route)) = server.options.site.audit_of(method, path) {
                let id = Some(id.clone());
                Call::new(audit, pulse.peer, id, method, route).answered(error.status);
            }
            error.into_response()
        }
    };
    response.headers_mut().insert(REQUEST_ID, id);
    Ok(response.map(|body| Answer::new(body, Arc::clone(pulse))))
}

/// Has the router answer a request.
async fn handle(
    server: &Server,
    request: Request<Incoming>,
    whole: bool,
    pulse: &Arc<Pulse>,
    id: &HeaderValue,
) -> Response<Body> {
    let mut request = request.map(|body| {
        if whole {
            Body::empty()
        } else {
            Body::new(Arriving::new(body, Arc::clone(pulse)))
        }
    });
    request.extensions_mut().insert(Connection {
        pulse: Arc::clone(pulse),
        id: id.clone(),
    });
    let mut router = server.router.clone();
    let handled = AssertUnwindSafe(async move { router.call(request).await });
    match handled.catch_unwind().await {
        Ok(Ok(response)) => response,
        Ok(Err(never)) => match never {},
        Err(payload) => error::panicked(&*payload, id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::error::ErrorBody;

    #[test]
    fn the_refusal_is_an_answer_like_others() {
        let id = HeaderValue::from_static("some-id");
        let text = String::from_utf8(refusal(&id, "some message")).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(
            head.contains(&format!("content-length: {}\r\n", body.len())),
            "{}",
            body.len()
        );
        assert!(head.contains("x-request-id: some-id\r\n"), "{head}");
        let body: ErrorBody = serde_json::from_str(body).unwrap();
        assert_eq!(body.error.code, "overloaded");
        assert_eq!(body.error.message, "some message");
    }
}
