//! Connections: accepted, limited, watched and drained.
//!
//! Two settings of hyper stay off. `pipeline_flush` is experimental and helps only clients that send
//! requests before they have the answers. `header_read_timeout` makes a timer for each request; `stall`
//! needs none.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::ready;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::FromRequestParts;
use axum::http::header::{CONNECTION, EXPECT};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Request, Response, Uri};
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
use tokio::time::Instant;
use tower::Service;

use super::addresses::{Addresses, Counted};
use super::audit::Call;
use super::error::{self, ErrorCounts, OVERLOADED};
use super::limit::{Open, Refusals};
use super::request_id::{REQUEST_ID, RequestIds};
use super::site::Site;
use super::stall::{Answer, Arriving, Pulse, Stage, Watched};
use super::tls::Tls;
use super::turn::TurnSlot;
use super::unread::Unread;
use crate::settings::Settings;
use crate::traces::{RequestSpan, Routes};

/// The maximum length of the head of a request, in bytes.
const MAX_HEAD: usize = 32 << 10;
/// The maximum number of bytes that a connection reads or writes at once.
const BUFFER: usize = 64 << 10;
/// The maximum number of refused connections that are being answered. Further ones are closed without an
/// answer.
const MAX_REFUSALS: usize = 64;
/// The reasons to refuse a connection.
const ALL_TAKEN: &str = "the server has reached its maximum number of connections";
const TOO_MANY_OF_ADDRESS: &str = "too many connections from this address";
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);
/// The time between attempts to accept, while the system has no room for another connection.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// The maximum time that tasks have to end at a shutdown.
const TASK_END_TIMEOUT: Duration = Duration::from_secs(1);

/// The answer to a connection over the limit. Nothing is read from it before.
fn refusal(id: &HeaderValue, message: &str) -> Vec<u8> {
    let body = format!(
        "{{\"error\":{{\"code\":\"{OVERLOADED}\",\"message\":\"{message}\",\"field\":null}}}}"
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

/// The options of [`serve`].
#[derive(Debug, Clone)]
pub struct EdgeOptions {
    /// The certificate and key for TLS, if it is used.
    pub tls: Option<Tls>,
    /// The time that a peer has to finish the TLS handshake, to send the head of a request (so this is also
    /// the idle timeout of a connection), to send the next KiB of a body or its rest, and to receive some of
    /// an answer.
    pub timeout: Duration,
    /// The time that requests in flight have to be answered after the shutdown began.
    pub drain: Duration,
    /// The maximum number of connections. Further ones are answered 503 and closed (with TLS just closed), so
    /// that a load balancer knows at once instead of waiting in a queue.
    pub max_connections: usize,
    /// The maximum number of connections from one address, or one IPv6 network of 64 bits; 0 is no limit.
    /// Further ones are refused in the same way.
    pub max_connections_per_address: usize,
    /// The requests of browsers that are accepted.
    pub site: Site,
    /// The counts of error answers.
    pub errors: Arc<ErrorCounts>,
    /// The patterns of paths, for traces; without them there are no traces of requests.
    pub routes: Option<Routes>,
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
            errors: Arc::default(),
            routes: None,
        }
    }
}

impl EdgeOptions {
    /// The options of these settings; reads the TLS files. [`EdgeOptions::site`] is not set, since it depends
    /// on keys too.
    ///
    /// # Errors
    /// A message that names the setting or the file.
    pub fn from_settings(settings: &Settings) -> Result<Self, String> {
        if settings.timeout == 0 {
            return Err("timeout is 0 seconds; it must be at least 1".to_owned());
        }
        if settings.max_connections == 0 {
            return Err("max-connections is 0; it must be at least 1".to_owned());
        }
        let tls = match (&settings.tls_cert, &settings.tls_key) {
            (None, None) => None,
            (Some(cert), Some(key)) => Some(Tls::load(cert, key)?),
            (Some(_), None) => {
                return Err("tls-cert is set without tls-key; set both or none".to_owned());
            }
            (None, Some(_)) => {
                return Err("tls-key is set without tls-cert; set both or none".to_owned());
            }
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

/// The result of a shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// The number of requests without a complete answer when the time was up.
    pub cut: usize,
}

/// The connection of a request, and the id of the request.
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

/// A request for another router, with another path. Nothing that the first router has found is in it.
pub fn forwarded(request: axum::extract::Request, path: Uri) -> axum::extract::Request {
    let (mut parts, body) = request.into_parts();
    let connection = parts.extensions.remove::<Connection>();
    parts.extensions.clear();
    if let Some(connection) = connection {
        parts.extensions.insert(connection);
    }
    parts.uri = path;
    axum::extract::Request::from_parts(parts, body)
}

impl TurnSlot {
    /// The slot of a request with these extensions. In a router that is not run by [`serve`] it is a new one.
    pub fn of(extensions: &axum::http::Extensions) -> Self {
        let connection = extensions.get::<Connection>();
        connection.map_or_else(Self::default, |connection| connection.pulse.turn.clone())
    }
}

/// The address of the client. An extractor. In a router that is not run by [`serve`] it is `0.0.0.0:0`.
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

/// A signal for the beginning of a shutdown, for answers without an end. An extractor. In a router that is
/// not run by [`serve`] the signal never comes.
#[derive(Debug, Clone)]
pub struct Closing(Option<watch::Receiver<Stage>>);

impl Closing {
    /// Returns true if the shutdown has begun.
    pub fn is_closing(&self) -> bool {
        self.0
            .as_ref()
            .is_some_and(|stage| *stage.borrow() != Stage::Open)
    }

    /// Waits for the beginning of the shutdown.
    pub async fn wait(mut self) {
        match &mut self.0 {
            // An error means that the server is gone.
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

/// The data that all connections of a server share.
struct Server {
    http: http1::Builder,
    router: Router,
    options: EdgeOptions,
    addresses: Arc<Addresses>,
    ids: RequestIds,
    cut: AtomicUsize,
}

/// Serves a router on a listener until `shutdown`, then waits for requests in flight.
///
/// # Errors
/// If the listener cannot be used at all.
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
    edge.errors.connections.set_max(most);
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
        // Only a handler that blocks its thread takes longer.
        let _ = tokio::time::timeout(TASK_END_TIMEOUT, all()).await;
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
    let answering = Arc::new(Semaphore::new(MAX_REFUSALS));
    let mut refusals = [Refusals::default(), Refusals::default()];
    let mut failing = false;
    loop {
        let next = tokio::select! {
            next = listener.accept() => next,
            () = end_of(&mut refusals) => continue,
        };
        let (stream, peer) = match next {
            Ok(accepted) => accepted,
            Err(error) if is_connection_error(&error) => continue,
            Err(error) => {
                if !failing {
                    tracing::error!(%error, "cannot accept connections at the moment");
                }
                failing = true;
                tokio::time::sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        if failing {
            failing = false;
            tracing::info!("connections are accepted again");
        }
        let _ = stream.set_nodelay(true);
        let (refusals, refused) = match Arc::clone(free).try_acquire_owned() {
            Err(_) => (&mut refusals[0], ALL_TAKEN),
            Ok(permit) => match server.addresses.take(peer.ip()) {
                None => (&mut refusals[1], TOO_MANY_OF_ADDRESS),
                Some(counted) => {
                    let pulse = Pulse::new(peer, stage.clone(), server.options.timeout);
                    let open = Open::new(&server.options.errors);
                    tokio::spawn(connection(
                        Arc::clone(server),
                        stream,
                        Arc::new(pulse),
                        (permit, counted, open),
                    ));
                    continue;
                }
            },
        };
        server.options.errors.refused_connection();
        match refusals.add(Instant::now()) {
            true => tracing::warn!(%peer, "connections are refused: {refused}"),
            false => tracing::debug!(%peer, "refused: {refused}"),
        }
        if server.options.tls.is_none()
            && let Ok(permit) = Arc::clone(&answering).try_acquire_owned()
        {
            let answer = refusal(&server.ids.next(), refused);
            tokio::spawn(refuse(stream, answer, permit));
        }
    }
}

/// Waits until refusals have ended, and logs it.
async fn end_of(refusals: &mut [Refusals]) {
    let Some(end) = refusals.iter().filter_map(Refusals::end).min() else {
        return std::future::pending().await;
    };
    tokio::time::sleep_until(end).await;
    for refusals in refusals {
        if let Some(refused) = refusals.take_ended(end) {
            tracing::info!(refused, "connections are no longer refused");
        }
    }
}

/// Returns true if one connection failed, not the system.
fn is_connection_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted
    )
}

async fn refuse(mut stream: TcpStream, answer: Vec<u8>, _permit: OwnedSemaphorePermit) {
    let _ = tokio::time::timeout(REFUSAL_TIMEOUT, async {
        stream.write_all(&answer).await?;
        stream.shutdown().await?;
        // The peer's data must be read, or the refusal may not reach it.
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
    _counted: (OwnedSemaphorePermit, Counted, Open),
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

/// Answers the requests of a connection until it ends, the peer is too slow, or the shutdown times out.
async fn requests<S>(server: &Server, stream: S, pulse: Arc<Pulse>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(|request| answer(server, request, &pulse));
    let stream = TokioIo::new(Watched::new(stream, Arc::clone(&pulse)));
    let mut http = pin!(server.http.serve_connection(stream, service));
    // Polled only when the alarm wakes up, not each time that bytes arrive.
    let mut alarms = FuturesUnordered::new();
    alarms.push(alarm(&pulse, Stage::Open));
    let peer = pulse.peer;
    loop {
        tokio::select! {
            biased;
            outcome = poll_fn(|cx| {
                ready!(pulse.turn.poll_turn(cx));
                let outcome = http.as_mut().poll(cx);
                pulse.turn.end();
                outcome
            }) => {
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
                    if pulse.is_answering() {
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

/// An event that interrupts a connection's wait for bytes.
enum Alarm {
    Drain,
    Over,
    TooSlow,
}

/// Waits until the server leaves a stage, or the peer is too slow.
async fn alarm(pulse: &Pulse, past: Stage) -> Alarm {
    let mut stage = pulse.stage.clone();
    let mut later = pin!(async {
        let stage = stage.wait_for(|stage| *stage != past).await;
        stage.map_or(Stage::Over, |stage| *stage)
    });
    while let Some(next) = pulse.next_check() {
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
    let expects = request.headers().contains_key(EXPECT);
    let span = server.options.routes.and_then(|routes| {
        let (method, path) = (request.method(), request.uri().path());
        RequestSpan::begin(method, path, request.headers(), routes)
    });
    let mut response = match server.options.site.check(&request) {
        Ok(()) => {
            let handled = handle(server, request, whole, pulse, &id);
            match &span {
                None => handled.await,
                Some(span) => span.within(handled).await,
            }
        }
        Err(error) => {
            let (method, path) = (request.method(), request.uri().path());
            server.options.errors.unrouted(path);
            if let Some((audit, route, space)) = server.options.site.audit_of(method, path) {
                let id = Some(id.clone());
                Call::new(audit, pulse.peer, id, method, route, space).answered(error.status);
            }
            if !whole {
                pulse.unread.put(Unread::Rest(request.into_body()));
            }
            error.into_response()
        }
    };
    server.options.errors.count(&response);
    if let Some(span) = span {
        span.answered(&response, &id);
    }
    response.headers_mut().insert(REQUEST_ID, id);
    if !whole && !can_go_on(pulse, expects).await {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
    }
    Ok(response.map(|body| Answer::new(body, Arc::clone(pulse))))
}

/// Returns true if the body of a request was read to its end, or what is left of it could be dropped. A client that expects to
/// be told to send the body (`expects`) was told if the body was read; asking for the rest would tell it to send everything.
async fn can_go_on(pulse: &Pulse, expects: bool) -> bool {
    let rest = match pulse.unread.take() {
        None => return true,
        Some(Unread::Rest(rest)) if !expects => rest,
        Some(_) => return false,
    };
    let is_all = pulse.unread.drop_rest(rest).await;
    if is_all {
        pulse.body_ended();
    }
    is_all
}

/// Answers a request by the router.
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
