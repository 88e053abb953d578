//! The edge over real sockets, with clients that write and read bytes themselves.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::pending;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use bytes::Bytes;
use futures_util::stream;
use sclub_server::edge::{
    ApiError, Audit, Caller, Closing, Drained, EdgeOptions, Guard, Keys, Peer, Role, Site, Tls,
    body, error::with_fallbacks, page, serve,
};
use sclub_server::settings::Settings;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Much longer than anything here takes.
const LONG: Duration = Duration::from_secs(30);
/// Short to wait for, and long enough for a client that a busy machine holds up.
const SHORT: Duration = Duration::from_secs(1);

struct Running {
    addr: SocketAddr,
    stop: oneshot::Sender<()>,
    end: JoinHandle<Drained>,
}

impl Running {
    fn new(router: Router, options: EdgeOptions) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        Self::on(listener, router, options)
    }

    fn on(listener: std::net::TcpListener, router: Router, options: EdgeOptions) -> Self {
        let addr = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let end = tokio::spawn(async move {
            let stopped = async { drop(stopped.await) };
            serve(listener, router, options, stopped).await.unwrap()
        });
        Self { addr, stop, end }
    }

    async fn client(&self) -> Client<TcpStream> {
        Client::new(TcpStream::connect(self.addr).await.unwrap())
    }

    /// One request on a connection of its own.
    async fn ask(&self, request: &str) -> Answer {
        let mut client = self.client().await;
        client.send(request).await;
        client.answer().await
    }

    async fn stop(self) -> Drained {
        self.stop.send(()).unwrap();
        timeout(LONG, self.end)
            .await
            .expect("the server ends")
            .unwrap()
    }
}

fn quick() -> EdgeOptions {
    EdgeOptions {
        timeout: SHORT,
        ..EdgeOptions::default()
    }
}

#[derive(Debug)]
struct Answer {
    status: u16,
    headers: HashMap<String, String>,
    body: Vec<u8>,
}

impl Answer {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// The code of an error, after a look at its form.
    fn code(&self) -> String {
        let body: Value = serde_json::from_slice(&self.body).expect("an error is JSON");
        assert_eq!(self.headers["content-type"], "application/json");
        let error = body["error"].as_object().unwrap();
        let mut fields: Vec<_> = error.keys().map(String::as_str).collect();
        fields.sort_unstable();
        assert_eq!(fields, ["code", "field", "message"]);
        assert!(!error["message"].as_str().unwrap().is_empty());
        error["code"].as_str().unwrap().to_owned()
    }
}

struct Client<S> {
    stream: S,
    read: Vec<u8>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    fn new(stream: S) -> Self {
        let read = Vec::new();
        Self { stream, read }
    }

    async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let sent = timeout(LONG, self.stream.write_all(bytes.as_ref())).await;
        sent.expect("bytes are taken").unwrap();
    }

    /// Reads on; false at the end or if the connection broke.
    async fn more(&mut self) -> bool {
        let mut room = [0; 16 << 10];
        let read = timeout(LONG, self.stream.read(&mut room)).await;
        match read.expect("the server does something") {
            Ok(read) => {
                self.read.extend_from_slice(&room[..read]);
                read > 0
            }
            Err(_) => false,
        }
    }

    async fn take(&mut self, bytes: usize) -> Vec<u8> {
        while self.read.len() < bytes {
            assert!(self.more().await, "the answer broke off");
        }
        self.read.drain(..bytes).collect()
    }

    async fn line(&mut self) -> String {
        loop {
            if let Some(end) = self.read.windows(2).position(|two| two == b"\r\n") {
                let line = self.take(end + 2).await;
                return String::from_utf8(line[..end].to_vec()).unwrap();
            }
            assert!(self.more().await, "the answer broke off at {:?}", self.read);
        }
    }

    async fn head(&mut self) -> Answer {
        let status = self.line().await;
        let status = status.strip_prefix("HTTP/1.1 ").expect("HTTP")[..3]
            .parse()
            .unwrap();
        let mut headers = HashMap::new();
        loop {
            let line = self.line().await;
            let Some((name, value)) = line.split_once(": ") else {
                assert_eq!(line, "");
                break;
            };
            headers.insert(name.to_ascii_lowercase(), value.to_owned());
        }
        let body = Vec::new();
        Answer {
            status,
            headers,
            body,
        }
    }

    async fn chunk(&mut self) -> Vec<u8> {
        let length = usize::from_str_radix(&self.line().await, 16).unwrap();
        let chunk = self.take(length).await;
        assert_eq!(self.line().await, "");
        chunk
    }

    async fn answer(&mut self) -> Answer {
        let mut answer = self.head().await;
        if let Some(length) = answer.headers.get("content-length") {
            answer.body = self.take(length.parse().unwrap()).await;
        } else if answer.headers.contains_key("transfer-encoding") {
            loop {
                let chunk = self.chunk().await;
                if chunk.is_empty() {
                    break;
                }
                answer.body.extend(chunk);
            }
        }
        answer
    }

    /// Waits for the server to end the connection.
    async fn ended(&mut self) {
        let end = async { while self.more().await {} };
        timeout(LONG, end)
            .await
            .expect("the server ends the connection");
    }
}

async fn echo(request: Request) -> Result<Bytes, ApiError> {
    let (parts, body) = request.into_parts();
    body::check_json(&parts.headers)?;
    body::whole(&parts.headers, body, 100_000).await
}

/// Each line with its number.
async fn numbered(request: Request) -> Result<String, ApiError> {
    let (parts, body) = request.into_parts();
    body::check_json_lines(&parts.headers)?;
    let mut lines = body::lines(body, 10);
    let mut all = String::new();
    while let Some(line) = lines.next().await? {
        all += &format!("{}={};", line.number, String::from_utf8_lossy(&line.bytes));
    }
    Ok(all)
}

fn plain() -> Router {
    let router = Router::new()
        .route("/", get(|| async { "hello" }))
        .route("/echo", post(echo))
        .route("/lines", put(numbered))
        .route(
            "/peer",
            get(|Peer(peer): Peer| async move { peer.to_string() }),
        )
        .route("/panic", get(|| async { panicking() }));
    with_fallbacks(router)
}

fn panicking() -> &'static str {
    panic!("the password is swordfish")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_serves_many_requests() {
    let running = Running::new(plain(), EdgeOptions::default());
    let mut client = running.client().await;
    let own = client.stream.local_addr().unwrap().to_string();
    for _ in 0..3 {
        client.send("GET /peer HTTP/1.1\r\nhost: x\r\n\r\n").await;
        let answer = client.answer().await;
        assert_eq!((answer.status, answer.text()), (200, &*own));
        client
            .send("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nfour")
            .await;
        assert_eq!(client.answer().await.text(), "four");
    }
    // Two at once are answered in order.
    client
        .send("GET /peer HTTP/1.1\r\nhost: x\r\n\r\nGET / HTTP/1.1\r\nhost: x\r\n\r\n")
        .await;
    assert_eq!(client.answer().await.text(), own);
    assert_eq!(client.answer().await.text(), "hello");
    assert_eq!(running.stop().await, Drained { cut: 0 });
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_paths_and_wrong_methods() {
    let running = Running::new(plain(), EdgeOptions::default());
    let answer = running
        .ask("GET /nothing HTTP/1.1\r\nhost: x\r\n\r\n")
        .await;
    assert_eq!((answer.status, &*answer.code()), (404, "unknown_path"));
    let answer = running.ask("GET /echo HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!((answer.status, &*answer.code()), (405, "wrong_method"));
    assert_eq!(answer.headers["allow"], "POST");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_stays_inside() {
    let running = Running::new(plain(), EdgeOptions::default());
    let mut client = running.client().await;
    for _ in 0..2 {
        client.send("GET /panic HTTP/1.1\r\nhost: x\r\n\r\n").await;
        let answer = client.answer().await;
        assert_eq!((answer.status, &*answer.code()), (500, "internal"));
        assert!(!answer.text().contains("swordfish"), "{}", answer.text());
        assert!(!answer.text().contains("panic"), "{}", answer.text());
    }
    client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!(client.answer().await.text(), "hello");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_http_gets_400() {
    let running = Running::new(plain(), EdgeOptions::default());
    let long = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(3 << 20));
    let cases: [(&[u8], u16); 8] = [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"hello\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost x\r\n\r\n", 400),
        (b"POST /echo HTTP/1.1\r\ncontent-length: many\r\n\r\n", 400),
        (
            b"POST /echo HTTP/1.1\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
            400,
        ),
        (
            b"POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
            400,
        ),
        (long.as_bytes(), 431),
    ];
    for (bytes, status) in cases {
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
        let mut client = running.client().await;
        client.send(bytes).await;
        assert_eq!(client.answer().await.status, status, "{shown:?}");
        client.ended().await;
    }
    assert_eq!(
        running
            .ask("GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            .await
            .status,
        200
    );
}

fn guarded(keys: Keys, rate: u32) -> Router {
    let name = |caller: Caller| async move {
        format!(
            "{} {}",
            caller.name.as_deref().unwrap_or("anybody"),
            caller.role
        )
    };
    let guard = Guard::new(keys, rate);
    let read = guard.protect(Role::Read, Router::new().route("/read", get(name)));
    let write = guard.protect(Role::Write, Router::new().route("/write", post(name)));
    let admin = guard.protect(Role::Admin, Router::new().route("/admin", get(name)));
    let open = Router::new().route("/open", get(|| async { "open" }));
    with_fallbacks(open.merge(read).merge(write).merge(admin))
}

fn three_keys() -> Keys {
    let list =
        "read:eye:eye-0123456789abc,write:hand:hand-0123456789ab,admin:head:head-0123456789ab";
    Keys::from_list(list).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_open_what_their_role_allows() {
    let running = Running::new(guarded(three_keys(), 0), EdgeOptions::default());
    let secrets = [
        (Role::Read, "eye-0123456789abc", "eye read"),
        (Role::Write, "hand-0123456789ab", "hand write"),
        (Role::Admin, "head-0123456789ab", "head admin"),
    ];
    let routes = [
        (Role::Read, "GET /read"),
        (Role::Write, "POST /write"),
        (Role::Admin, "GET /admin"),
    ];
    for (needed, route) in routes {
        for (role, secret, who) in secrets {
            for header in [
                format!("Authorization: Bearer {secret}"),
                format!("x-api-key: {secret}"),
            ] {
                let request = format!("{route} HTTP/1.1\r\nhost: x\r\n{header}\r\n\r\n");
                let answer = running.ask(&request).await;
                if role >= needed {
                    assert_eq!((answer.status, answer.text()), (200, who), "{request}");
                } else {
                    assert_eq!(
                        (answer.status, &*answer.code()),
                        (403, "forbidden"),
                        "{request}"
                    );
                }
            }
        }
        let wrong = [
            "",
            "authorization: Bearer \r\n",
            "authorization: Bearer hand-0123456789aX\r\n",
            "authorization: Bearer hand-0123456789a\r\n",
            "authorization: Basic head-0123456789ab\r\n",
            "authorization: head-0123456789ab\r\n",
            "x-api-key: \r\n",
        ];
        for header in wrong {
            let answer = running
                .ask(&format!("{route} HTTP/1.1\r\nhost: x\r\n{header}\r\n"))
                .await;
            assert_eq!(
                (answer.status, &*answer.code()),
                (401, "unauthorized"),
                "{header}"
            );
            assert_eq!(answer.headers["www-authenticate"], "Bearer");
            assert!(!answer.text().contains("0123"));
        }
    }
    assert_eq!(
        running
            .ask("GET /open HTTP/1.1\r\nhost: x\r\n\r\n")
            .await
            .text(),
        "open"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_keys_nothing_is_asked() {
    let running = Running::new(guarded(Keys::none(), 0), EdgeOptions::default());
    let answer = running.ask("GET /admin HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!((answer.status, answer.text()), (200, "anybody admin"));
}

/// Asks until one is too many; how many were answered before.
async fn until_limited(client: &mut Client<TcpStream>, header: &str) -> usize {
    for passed in 0..1000 {
        client
            .send(format!("GET /read HTTP/1.1\r\nhost: x\r\n{header}\r\n"))
            .await;
        let answer = client.answer().await;
        if answer.status != 200 && answer.status != 401 {
            assert_eq!((answer.status, &*answer.code()), (429, "rate_limited"));
            assert_eq!(answer.headers["retry-after"], "1");
            return passed;
        }
    }
    panic!("there is no limit");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_key_has_its_rate() {
    let running = Running::new(guarded(three_keys(), 5), EdgeOptions::default());
    let mut client = running.client().await;
    for secret in ["eye-0123456789abc", "hand-0123456789ab"] {
        let header = format!("x-api-key: {secret}\r\n");
        assert!(until_limited(&mut client, &header).await >= 5);
    }
    // Guessing has one too.
    assert!(until_limited(&mut client, "x-api-key: wrong-wrong-wrong\r\n").await >= 5);
    client.send("GET /open HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!(client.answer().await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_address_has_its_rate_without_keys() {
    let running = Running::new(guarded(Keys::none(), 5), EdgeOptions::default());
    assert!(until_limited(&mut running.client().await, "").await >= 5);
    // Another connection is no way around, another address is another caller.
    let mut same = running.client().await;
    until_limited(&mut same, "").await;
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut other = Client::new(socket.connect(running.addr).await.unwrap());
    assert!(until_limited(&mut other, "").await >= 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_head_is_ended() {
    let running = Running::new(plain(), quick());
    // One says nothing, one stops in the middle, one sends a byte now and then.
    let mut silent = running.client().await;
    silent.ended().await;
    let mut stuck = running.client().await;
    stuck.send("GET / HTTP/1.1\r\nhost").await;
    stuck.ended().await;
    let mut drip = running.client().await;
    let dripping = async {
        for byte in b"GET / HTTP/1.1\r\nx: "
            .iter()
            .chain(std::iter::repeat(&b'y'))
        {
            if drip.stream.write_all(&[*byte]).await.is_err() {
                return;
            }
            sleep(SHORT / 6).await;
        }
    };
    timeout(LONG, dripping)
        .await
        .expect("the server ends the connection");
    // So is one that has nothing more to ask.
    let mut idle = running.client().await;
    idle.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!(idle.answer().await.text(), "hello");
    idle.ended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_body_is_ended() {
    let running = Running::new(plain(), quick());
    for head in [
        "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 50000\r\n\r\nabc",
        "POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
        "PUT /lines HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\na\nb\r\n",
    ] {
        let mut stuck = running.client().await;
        stuck.send(head).await;
        let answer = stuck.answer().await;
        assert_eq!((answer.status, &*answer.code()), (408, "timeout"), "{head}");
        stuck.ended().await;
    }
    let mut drip = running.client().await;
    drip.send("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 50000\r\n\r\n")
        .await;
    let (mut reads, mut writes) = drip.stream.into_split();
    let dripping = tokio::spawn(async move {
        while writes.write_all(b"x").await.is_ok() {
            sleep(SHORT / 6).await;
        }
    });
    let mut answer = Vec::new();
    let _ = timeout(LONG, reads.read_to_end(&mut answer))
        .await
        .expect("it is ended");
    assert!(
        answer.starts_with(b"HTTP/1.1 408 "),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    timeout(LONG, dripping).await.expect("it is ended").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_body_may_take_many_timeouts() {
    let running = Running::new(plain(), quick());
    let mut client = running.client().await;
    client
        .send("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 96000\r\n\r\n")
        .await;
    for _ in 0..12 {
        client.send([b'x'; 8000]).await;
        sleep(SHORT / 4).await;
    }
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.body), (200, vec![b'x'; 96_000]));
}

/// Some kilobytes in each timeout, which no rule about single waits ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_trickles_is_ended() {
    let running = Running::new(plain(), quick());
    for head in [
        "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n",
        "PUT /lines HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n",
    ] {
        let mut drip = running.client().await;
        drip.send(head).await;
        let (mut reads, mut writes) = drip.stream.into_split();
        let dripping = tokio::spawn(async move {
            let mut sent = 0;
            while sent < 100_000 && writes.write_all(&[b'\n'; 1200]).await.is_ok() {
                sent += 1200;
                sleep(SHORT / 6).await;
            }
            sent
        });
        let mut answer = Vec::new();
        let _ = timeout(LONG, reads.read_to_end(&mut answer))
            .await
            .expect("it is ended");
        assert!(
            answer.starts_with(b"HTTP/1.1 408 "),
            "{}",
            String::from_utf8_lossy(&answer)
        );
        let sent = timeout(LONG, dripping).await.expect("it is ended").unwrap();
        assert!((5_000..50_000).contains(&sent), "{sent}");
    }
}

/// Tells when it is dropped.
struct Tell(Arc<Notify>);

impl Drop for Tell {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_is_ended() {
    let gone = Arc::new(Notify::new());
    let tell = Arc::clone(&gone);
    let endless = move || {
        let tell = Tell(Arc::clone(&tell));
        let chunks = stream::repeat_with(move || {
            let _kept = &tell;
            Ok::<_, Infallible>(Bytes::from_static(&[0; 64 << 10]))
        });
        async move { Body::from_stream(chunks) }
    };
    let running = Running::new(Router::new().route("/", get(endless)), quick());
    let mut client = running.client().await;
    client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    timeout(LONG, gone.notified())
        .await
        .expect("the server gives up");
    client.ended().await;
}

/// A server whose sockets have small buffers, so that a reader's speed shows, and a client of the same
/// kind.
async fn narrow(router: Router) -> (Running, TcpStream) {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_send_buffer_size(4096).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(16).unwrap().into_std().unwrap();
    let running = Running::on(listener, router, quick());
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let stream = socket.connect(running.addr).await.unwrap();
    (running, stream)
}

/// Reads up to `bytes` at a time, with pauses; how much until the end, or until `most`.
async fn sip(stream: &mut TcpStream, bytes: usize, pause: Duration, most: usize) -> usize {
    let mut room = vec![0; bytes];
    let mut taken = 0;
    while taken < most {
        match timeout(LONG, stream.read(&mut room)).await.unwrap() {
            Ok(0) | Err(_) => break,
            Ok(read) => taken += read,
        }
        sleep(pause).await;
    }
    taken
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_sips_is_ended_and_an_honest_one_is_not() {
    let endless = || async {
        let chunks = stream::repeat_with(|| Ok::<_, Infallible>(Bytes::from_static(&[0; 1024])));
        Body::from_stream(chunks)
    };
    let router = Router::new().route("/", get(endless));
    let (_running, mut client) = narrow(router.clone()).await;
    client
        .write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    // Some 40 kB a second, for five timeouts.
    assert!(sip(&mut client, 4000, SHORT / 10, 200_000).await >= 200_000);
    // Some 10 kB a second: with these buffers there is some progress in each timeout.
    let (_running, mut client) = narrow(router).await;
    client
        .write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    let taken = sip(&mut client, 2000, SHORT / 5, 80_000).await;
    assert!((15_000..80_000).contains(&taken), "{taken}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_events_may_last() {
    let events = || async {
        let events = stream::unfold(0, |count| async move {
            sleep(SHORT / 2).await;
            Some((Ok::<_, Infallible>(format!("data: {count}\n\n")), count + 1))
        });
        Body::from_stream(events)
    };
    let running = Running::new(Router::new().route("/", get(events)), quick());
    let mut client = running.client().await;
    client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!(client.head().await.status, 200);
    for count in 0..12 {
        let event = client.chunk().await;
        assert_eq!(event, format!("data: {count}\n\n").into_bytes());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_handler_is_not_the_peers_fault() {
    let slow = || async {
        sleep(SHORT * 4).await;
        "late"
    };
    let running = Running::new(Router::new().route("/", get(slow)), quick());
    assert_eq!(
        running
            .ask("GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            .await
            .text(),
        "late"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_has_a_limit() {
    let running = Running::new(plain(), EdgeOptions::default());
    // Said to be too long: refused before any of it is there.
    let answer = running
        .ask("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 100001\r\n\r\n")
        .await;
    assert_eq!((answer.status, &*answer.code()), (413, "too_large"));
    // As long as may be, in two parts.
    let mut client = running.client().await;
    client
        .send("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n")
        .await;
    client.send(vec![b'a'; 60_000]).await;
    client.send(vec![b'b'; 40_000]).await;
    let expected = [vec![b'a'; 60_000], vec![b'b'; 40_000]].concat();
    assert!(client.answer().await.body == expected);
    // Too long without having said so, and sent to its end before anything is read.
    let mut client = running.client().await;
    client
        .send("POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        .await;
    for _ in 0..200 {
        client.send("10000\r\n").await;
        client.send(vec![b'a'; 0x10000]).await;
        client.send("\r\n").await;
    }
    client.send("0\r\n\r\n").await;
    let answer = client.answer().await;
    assert_eq!((answer.status, &*answer.code()), (413, "too_large"));
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_come_one_by_one() {
    let running = Running::new(plain(), EdgeOptions::default());
    let put = |body: &str| {
        let length = body.len();
        format!("PUT /lines HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{body}")
    };
    for (body, lines) in [
        ("", ""),
        ("\n\n", ""),
        ("a", "1=a;"),
        ("a\nb\r\n \nc c\n", "1=a;2=b;4=c c;"),
        ("0123456789\n0123456789", "1=0123456789;2=0123456789;"),
    ] {
        assert_eq!(running.ask(&put(body)).await.text(), lines, "{body:?}");
    }
    // Wherever the parts of a body end, the lines are the same.
    let mut client = running.client().await;
    client
        .send("PUT /lines HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        .await;
    for part in ["a", "b\nc", "\n", "\nde", "f"] {
        client.send(format!("{:x}\r\n{part}\r\n", part.len())).await;
        sleep(Duration::from_millis(5)).await;
    }
    client.send("0\r\n\r\n").await;
    assert_eq!(client.answer().await.text(), "1=ab;2=c;4=def;");
    for body in ["a\n\n01234567890\nb\n", "a\n\n01234567890123456789"] {
        let answer = running.ask(&put(body)).await;
        assert_eq!((answer.status, &*answer.code()), (413, "too_large"));
        assert!(
            answer.text().contains("line 3 is longer than 10 bytes"),
            "{}",
            answer.text()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_are_json_by_their_own_account() {
    let running = Running::new(plain(), EdgeOptions::default());
    let cases = [
        ("POST /echo", "", 200),
        ("POST /echo", "content-type: application/json\r\n", 200),
        (
            "POST /echo",
            "content-type: Application/JSON; charset=utf-8\r\n",
            200,
        ),
        // Only a browser can be made to send something by a page from elsewhere.
        ("POST /echo", "content-type: text/plain\r\n", 200),
        (
            "POST /echo",
            "content-type: application/x-www-form-urlencoded\r\n",
            200,
        ),
        ("PUT /lines", "content-type: text/csv\r\n", 200),
        ("POST /echo", "origin: http://elsewhere\r\n", 415),
        ("POST /echo", "sec-fetch-site: cross-site\r\n", 415),
        (
            "POST /echo",
            "origin: http://x\r\ncontent-type: text/plain\r\n",
            415,
        ),
        (
            "POST /echo",
            "origin: http://x\r\ncontent-type: application/jsonp\r\n",
            415,
        ),
        (
            "POST /echo",
            "origin: http://x\r\ncontent-type: application/x-ndjson\r\n",
            415,
        ),
        (
            "POST /echo",
            "origin: http://x\r\ncontent-type: Application/JSON; charset=utf-8\r\n",
            200,
        ),
        (
            "PUT /lines",
            "origin: http://x\r\ncontent-type: application/x-ndjson\r\n",
            200,
        ),
        (
            "PUT /lines",
            "origin: http://x\r\ncontent-type: text/csv\r\n",
            415,
        ),
    ];
    for (route, header, status) in cases {
        let request =
            format!("{route} HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n{header}\r\n{{}}");
        let answer = running.ask(&request).await;
        assert_eq!(answer.status, status, "{request}");
        if status != 200 {
            assert_eq!(answer.code(), "wrong_type");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_over_the_limit_are_told() {
    let options = EdgeOptions {
        max_connections: 2,
        ..EdgeOptions::default()
    };
    let running = Running::new(plain(), options);
    let request = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";
    let mut first = running.client().await;
    let mut second = running.client().await;
    for client in [&mut first, &mut second] {
        client.send(request).await;
        assert_eq!(client.answer().await.status, 200);
    }
    let mut third = running.client().await;
    third.send(request).await;
    let answer = third.answer().await;
    assert_eq!((answer.status, &*answer.code()), (503, "overloaded"));
    third.ended().await;
    // The others go on, and one that leaves makes room.
    second.send(request).await;
    assert_eq!(second.answer().await.status, 200);
    drop(first);
    let again = async {
        while running.ask(request).await.status != 200 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(LONG, again).await.expect("there is room again");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_address_has_some_of_the_connections_only() {
    let options = EdgeOptions {
        max_connections_per_address: 2,
        ..EdgeOptions::default()
    };
    let running = Running::new(plain(), options);
    let request = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";
    let mut first = running.client().await;
    let mut second = running.client().await;
    for client in [&mut first, &mut second] {
        client.send(request).await;
        assert_eq!(client.answer().await.status, 200);
    }
    let mut third = running.client().await;
    third.send(request).await;
    let answer = third.answer().await;
    assert_eq!((answer.status, &*answer.code()), (503, "overloaded"));
    assert!(answer.text().contains("from this address"), "{answer:?}");
    assert!(!answer.headers["x-request-id"].is_empty());
    third.ended().await;
    // Another address has its own, and one that leaves makes room.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut other = Client::new(socket.connect(running.addr).await.unwrap());
    other.send(request).await;
    assert_eq!(other.answer().await.status, 200);
    drop(first);
    let again = async {
        while running.ask(request).await.status != 200 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(LONG, again).await.expect("there is room again");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_waits_for_requests_in_flight() {
    let (started, mut starts) = mpsc::unbounded_channel();
    let go = Arc::new(Notify::new());
    let wait = Arc::clone(&go);
    let slow = move || {
        let (started, wait) = (started.clone(), Arc::clone(&wait));
        async move {
            started.send(()).unwrap();
            wait.notified().await;
            "done"
        }
    };
    let router = Router::new()
        .route("/", get(slow))
        .merge(Router::new().route("/now", get(|| async {})));
    let running = Running::new(
        router,
        EdgeOptions {
            drain: LONG,
            ..EdgeOptions::default()
        },
    );
    let addr = running.addr;
    let mut busy = running.client().await;
    busy.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    starts.recv().await.unwrap();
    let mut idle = running.client().await;
    idle.send("GET /now HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!(idle.answer().await.status, 200);
    let mut unused = running.client().await;

    let end = tokio::spawn(running.stop());
    idle.ended().await;
    unused.ended().await;
    assert!(
        TcpStream::connect(addr).await.is_err(),
        "nothing new is taken"
    );
    assert!(!end.is_finished());
    go.notify_one();
    let answer = busy.answer().await;
    assert_eq!((answer.status, answer.text()), (200, "done"));
    assert_eq!(answer.headers["connection"], "close");
    busy.ended().await;
    assert_eq!(end.await.unwrap(), Drained { cut: 0 });
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_does_not_wait_forever() {
    let (started, mut starts) = mpsc::unbounded_channel();
    let hang = move || {
        started.send(()).unwrap();
        pending::<()>()
    };
    let router = Router::new().route("/", get(hang));
    let running = Running::new(
        router,
        EdgeOptions {
            drain: SHORT,
            ..EdgeOptions::default()
        },
    );
    let mut clients = Vec::new();
    for _ in 0..3 {
        let mut client = running.client().await;
        client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
        starts.recv().await.unwrap();
        clients.push(client);
    }
    // One that has not asked for anything yet is not counted.
    let mut half = running.client().await;
    half.send("GET / HTTP/1.1\r\nho").await;
    assert_eq!(running.stop().await, Drained { cut: 3 });
    for mut client in clients {
        client.ended().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_end_when_the_server_does() {
    let events = |closing: Closing| async {
        assert!(!closing.is_closing());
        let events = stream::unfold(Some(closing), |closing| async {
            let closing = closing?;
            let wait = closing.clone().wait();
            let event = match timeout(Duration::from_millis(20), wait).await {
                Err(_) => ("tick", Some(closing)),
                Ok(()) => ("bye", None),
            };
            Some((Ok::<_, Infallible>(event.0), event.1))
        });
        Body::from_stream(events)
    };
    let router = Router::new().route("/", get(events));
    let running = Running::new(
        router,
        EdgeOptions {
            drain: LONG,
            ..EdgeOptions::default()
        },
    );
    let mut client = running.client().await;
    client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    client.head().await;
    assert_eq!(client.chunk().await, b"tick");
    assert_eq!(running.stop().await, Drained { cut: 0 });
    let mut last = Vec::new();
    loop {
        let chunk = client.chunk().await;
        if chunk.is_empty() {
            break;
        }
        last = chunk;
    }
    assert_eq!(last, b"bye");
}

/// A certificate for `localhost` and its key, in files.
fn certificate(folder: &Path, name: &str) -> (std::path::PathBuf, std::path::PathBuf, Vec<u8>) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let cert = folder.join(format!("{name}.crt"));
    let key = folder.join(format!("{name}.key"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    (cert, key, made.cert.der().to_vec())
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_there_and_back() {
    use tokio_rustls::TlsConnector;
    use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types};

    let folder = tempfile::tempdir().unwrap();
    let (cert, key, der) = certificate(folder.path(), "one");
    let tls = Some(Tls::load(&cert, &key).unwrap());
    let running = Running::new(plain(), EdgeOptions { tls, ..quick() });

    let mut roots = RootCertStore::empty();
    roots.add(der.into()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(running.addr).await.unwrap();
    let name = pki_types::ServerName::try_from("localhost").unwrap();
    let connecting = TlsConnector::from(Arc::new(config)).connect(name, stream);
    let mut client = Client::new(timeout(LONG, connecting).await.unwrap().unwrap());
    client
        .send("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 50000\r\n\r\n")
        .await;
    client.send(vec![b'a'; 50_000]).await;
    let answer = client.answer().await;
    assert!(answer.status == 200 && answer.body == vec![b'a'; 50_000]);
    client
        .send("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 100001\r\n\r\n")
        .await;
    assert_eq!(client.answer().await.code(), "too_large");
    client.ended().await;

    // Who does not speak TLS, or not at all, is not kept.
    let mut wrong = running.client().await;
    wrong.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    wrong.ended().await;
    assert!(!wrong.read.starts_with(b"HTTP"));
    let mut silent = running.client().await;
    silent.ended().await;
    assert_eq!(running.stop().await, Drained { cut: 0 });
}

#[test]
fn files_for_tls_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    let (cert, key, _) = certificate(folder.path(), "one");
    let (_, other, _) = certificate(folder.path(), "two");
    let missing = folder.path().join("missing");
    let text = folder.path().join("text");
    std::fs::write(&text, "hello").unwrap();
    let torn = folder.path().join("torn");
    std::fs::write(&torn, "-----BEGIN CERTIFICATE-----\nMIIB").unwrap();
    let hollow = folder.path().join("hollow");
    let hollow_pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    std::fs::write(&hollow, hollow_pem).unwrap();

    let cases = [
        (&missing, &key, "the certificate", "missing: cannot be read"),
        (
            &cert,
            &missing,
            "the private key",
            "missing: cannot be read",
        ),
        (
            &text,
            &key,
            "the certificate",
            "text: there is none in the file",
        ),
        (
            &cert,
            &text,
            "the private key",
            "text: there is none in the file",
        ),
        (&torn, &key, "the certificate", "torn: the file is damaged"),
        (&hollow, &key, "the certificate", "hollow is not one"),
        (
            &cert,
            &cert,
            "the private key",
            "one.crt: there is none in the file",
        ),
        (
            &cert,
            &other,
            "the private key",
            "two.key is not that of the certificate",
        ),
    ];
    for (cert, key, start, part) in cases {
        let error = Tls::load(cert, key).unwrap_err();
        assert!(
            error.starts_with(start) && error.contains(part),
            "{part}: {error}"
        );
    }

    let settings = |tls_cert, tls_key| Settings {
        tls_cert,
        tls_key,
        ..Settings::default()
    };
    let options = |cert: Option<&Path>, key: Option<&Path>| {
        EdgeOptions::from_settings(&settings(cert.map(Path::to_owned), key.map(Path::to_owned)))
    };
    assert!(options(Some(&cert), Some(&key)).unwrap().tls.is_some());
    assert!(options(None, None).unwrap().tls.is_none());
    assert_eq!(
        options(Some(&cert), None).unwrap_err(),
        "tls-cert is given without tls-key"
    );
    assert_eq!(
        options(None, Some(&key)).unwrap_err(),
        "tls-key is given without tls-cert"
    );
}

/// What a client that trusts only this certificate is told, or why it is told nothing.
async fn over_tls(addr: SocketAddr, der: &[u8]) -> Result<Client<TlsClient>, std::io::Error> {
    use tokio_rustls::TlsConnector;
    use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types};

    let mut roots = RootCertStore::empty();
    roots.add(der.to_vec().into()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(addr).await?;
    let name = pki_types::ServerName::try_from("localhost").unwrap();
    let connecting = TlsConnector::from(Arc::new(config)).connect(name, stream);
    Ok(Client::new(timeout(LONG, connecting).await.unwrap()?))
}

type TlsClient = tokio_rustls::client::TlsStream<TcpStream>;

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_can_be_replaced_while_connections_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let (cert, key, old) = certificate(folder.path(), "one");
    let tls = Tls::load(&cert, &key).unwrap();
    let options = EdgeOptions {
        tls: Some(tls.clone()),
        ..EdgeOptions::default()
    };
    let running = Running::new(plain(), options);
    let request = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";
    let mut before = over_tls(running.addr, &old).await.unwrap();
    before.send(request).await;
    assert_eq!(before.answer().await.text(), "hello");

    // A key that is not the certificate's changes nothing.
    let (other_cert, other_key, new) = certificate(folder.path(), "two");
    assert!(tls.reload(&cert, &other_key).is_err());
    assert!(over_tls(running.addr, &old).await.is_ok());

    tls.reload(&other_cert, &other_key).unwrap();
    assert!(over_tls(running.addr, &old).await.is_err());
    let mut after = over_tls(running.addr, &new).await.unwrap();
    for client in [&mut before, &mut after] {
        client.send(request).await;
        assert_eq!(client.answer().await.text(), "hello");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_keys_the_host_must_be_known() {
    let names = vec!["sclub.example".to_owned()];
    let with = |site| EdgeOptions {
        site,
        ..EdgeOptions::default()
    };
    let bare = Running::new(plain(), with(Site::new(&[], false).unwrap()));
    let named = Running::new(plain(), with(Site::new(&names, false).unwrap()));
    let keyed = Running::new(plain(), with(Site::new(&[], true).unwrap()));
    let both = Running::new(plain(), with(Site::new(&names, true).unwrap()));
    // Host, and whether each of the four takes it.
    for (host, taken) in [
        ("127.0.0.1", [true, true, true, true]),
        ("[::1]:8080", [true, true, true, true]),
        ("localhost:8080", [true, true, true, true]),
        ("app.localhost", [true, true, true, true]),
        ("sclub.example:8080", [false, true, true, true]),
        ("rebound.evil.example:8080", [false, false, true, false]),
        ("127.0.0.1.evil.example", [false, false, true, false]),
    ] {
        for (running, taken) in [&bare, &named, &keyed, &both].into_iter().zip(taken) {
            for path in ["/", "/nothing"] {
                let answer = running
                    .ask(&format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n"))
                    .await;
                if !taken {
                    assert_eq!(
                        (answer.status, &*answer.code()),
                        (421, "wrong_host"),
                        "{host}"
                    );
                    assert!(answer.text().contains("--host"), "{}", answer.text());
                } else {
                    assert_ne!(answer.status, 421, "{host}");
                }
            }
        }
    }
    // No name at all is no browser's; two are nobody's, and neither is a URL with another.
    for (request, status) in [
        ("GET / HTTP/1.0\r\n\r\n", 200),
        (
            "GET / HTTP/1.1\r\nhost: localhost\r\nhost: evil.example\r\n\r\n",
            421,
        ),
        (
            "GET / HTTP/1.1\r\nhost: evil.example\r\nhost: localhost\r\n\r\n",
            421,
        ),
        (
            "GET http://evil.example/ HTTP/1.1\r\nhost: localhost\r\n\r\n",
            421,
        ),
        (
            "GET http://localhost/ HTTP/1.1\r\nhost: localhost\r\n\r\n",
            200,
        ),
    ] {
        let mut client = bare.client().await;
        client.send(request).await;
        client.more().await;
        let text = String::from_utf8_lossy(&client.read).into_owned();
        assert_eq!(text[9..12], status.to_string(), "{request}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_other_sites_are_refused() {
    let calls = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let called = move || {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        async { "called" }
    };
    let router = Router::new()
        .route("/", get(called.clone()))
        .route("/v10", get(called.clone()))
        .route("/v1/look", get(called.clone()).post(called.clone()))
        .route("/metrics", get(called));
    let options = EdgeOptions {
        site: Site::default().own(&["/v1", "/metrics"]),
        ..EdgeOptions::default()
    };
    let running = Running::new(with_fallbacks(router), options);
    let foreign = [
        "sec-fetch-site: cross-site\r\n",
        "sec-fetch-site: same-site\r\n",
        "sec-fetch-site: cross-site\r\norigin: http://here:80\r\n",
        "sec-fetch-site: cross-site\r\nsec-fetch-mode: navigate\r\n",
        "sec-fetch-site: \r\n",
        "origin: http://elsewhere\r\n",
        "origin: http://here:8080\r\n",
        "origin: null\r\n",
    ];
    let own = [
        "",
        "sec-fetch-site: same-origin\r\n",
        "sec-fetch-site: none\r\n",
        "sec-fetch-site: same-origin\r\norigin: https://proxied\r\n",
        "origin: http://here\r\n",
        "origin: https://HERE\r\n",
    ];
    let ask = async |line: &str, header: &str| {
        let request = format!("{line} HTTP/1.1\r\nhost: here\r\n{header}\r\n");
        running.ask(&request).await
    };
    for header in foreign {
        for line in [
            "GET /v1/look",
            "POST /v1/look",
            "OPTIONS /v1/look",
            "DELETE /v1/look",
            "GET /v1/nothing",
            "GET /metrics",
        ] {
            let answer = ask(line, header).await;
            assert_eq!(
                (answer.status, &*answer.code()),
                (403, "cross_site"),
                "{line} {header}"
            );
        }
        // Pages can be linked to.
        for line in ["GET /", "GET /v10"] {
            let before = calls.load(std::sync::atomic::Ordering::Relaxed);
            assert_eq!(ask(line, header).await.status, 200, "{line} {header}");
            let after = calls.load(std::sync::atomic::Ordering::Relaxed);
            assert_eq!(after, before + 1, "what was refused was done");
        }
    }
    for header in own {
        for line in ["GET /v1/look", "POST /v1/look", "GET /metrics", "GET /"] {
            assert_eq!(ask(line, header).await.status, 200, "{line} {header}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_has_an_id() {
    let options = EdgeOptions {
        site: Site::new(&[], false).unwrap(),
        ..quick()
    };
    let running = Running::new(plain(), options);
    let mut seen = std::collections::HashSet::new();
    for (request, status) in [
        ("GET / HTTP/1.1\r\nhost: localhost\r\n\r\n", 200),
        ("GET / HTTP/1.1\r\nhost: localhost\r\n\r\n", 200),
        ("GET /nothing HTTP/1.1\r\nhost: localhost\r\n\r\n", 404),
        ("PUT / HTTP/1.1\r\nhost: localhost\r\n\r\n", 405),
        ("GET /panic HTTP/1.1\r\nhost: localhost\r\n\r\n", 500),
        ("GET / HTTP/1.1\r\nhost: evil.example\r\n\r\n", 421),
        (
            "POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n",
            408,
        ),
        (
            "GET / HTTP/1.1\r\nhost: localhost\r\nx-request-id: a b\r\n\r\n",
            200,
        ),
        (
            "GET / HTTP/1.1\r\nhost: localhost\r\nx-request-id: \r\n\r\n",
            200,
        ),
    ] {
        let answer = running.ask(request).await;
        assert_eq!(answer.status, status, "{request}");
        let id = answer.headers["x-request-id"].clone();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        assert!(
            (1..=64).contains(&id.len()) && id.chars().all(is_plain),
            "{id}"
        );
        assert!(seen.insert(id), "{request}");
    }
    let own = "GET /nothing HTTP/1.1\r\nhost: localhost\r\nx-request-id: My.id_1-2\r\n\r\n";
    assert_eq!(running.ask(own).await.headers["x-request-id"], "My.id_1-2");
}

/// The lines of an audit log, without what differs from run to run.
fn audited(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap();
    let mut lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for line in &mut lines {
        let line = line.as_object_mut().unwrap();
        assert!(line.remove("at").unwrap().as_u64() > Some(1_700_000_000_000));
        assert!(line.remove("milliseconds").unwrap().is_u64());
        let address = line.remove("address").unwrap();
        assert!(address.as_str().unwrap().starts_with("127.0.0.1:"));
        assert_eq!(line.len(), 5, "{line:?}");
    }
    lines
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_administrators_are_audited() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit.jsonl");
    let audit = Audit::to_file(&file).unwrap();
    let guard = Guard::with_audit(three_keys(), 0, Some(audit.clone()));
    let (started, mut starts) = mpsc::unbounded_channel();
    let hang = move || {
        started.send(()).unwrap();
        pending::<()>()
    };
    let admin = Router::new()
        .route("/v1/users/{id}", axum::routing::delete(|| async { "gone" }))
        .route("/v1/panic", get(|| async { panicking() }))
        .route("/v1/hang", get(hang));
    let read = Router::new().route("/v1/users/{id}", get(|| async { "shown" }));
    let router = guard
        .protect(Role::Admin, admin)
        .merge(guard.protect(Role::Read, read));
    let options = EdgeOptions {
        site: Site::default()
            .own(&["/v1"])
            .audited(audit.clone(), |method, path| {
                (method == "DELETE" && path.starts_with("/v1/users/")).then_some("/v1/users/{id}")
            }),
        ..EdgeOptions::default()
    };
    let running = Running::new(with_fallbacks(router), options);
    let ask = async |line: &str, id: &str, header: &str| {
        let head = format!("{line} HTTP/1.1\r\nhost: x\r\nx-request-id: {id}\r\n");
        running.ask(&format!("{head}{header}\r\n")).await.status
    };
    let delete = "DELETE /v1/users/anna";
    let admin = "x-api-key: head-0123456789ab\r\n";
    assert_eq!(ask(delete, "a", admin).await, 200);
    assert_eq!(ask(delete, "b", "").await, 401);
    assert_eq!(
        ask(delete, "c", "x-api-key: wrong-wrong-wrong\r\n").await,
        401
    );
    assert_eq!(
        ask(delete, "d", "x-api-key: eye-0123456789abc\r\n").await,
        403
    );
    let foreign = format!("{admin}sec-fetch-site: cross-site\r\n");
    assert_eq!(ask(delete, "e", &foreign).await, 403);
    assert_eq!(ask("GET /v1/panic", "f", admin).await, 500);
    // Calls of others are not in it.
    assert_eq!(ask("GET /v1/users/anna", "x", admin).await, 200);
    assert_eq!(ask("GET /v1/nothing", "y", admin).await, 404);
    let line = |id: &str, key: &str, method: &str, route: &str, status: u16| json!({"key": key, "request_id": id, "method": method, "route": route, "status": status});
    let user = |id: &str, key: &str, status: u16| line(id, key, "DELETE", "/v1/users/{id}", status);
    let expected = [
        user("a", "head", 200),
        user("b", "-", 401),
        user("c", "-", 401),
        user("d", "eye", 403),
        user("e", "-", 403),
        line("f", "head", "GET", "/v1/panic", 500),
    ];
    assert_eq!(audited(&file), expected);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains("anna") && !text.contains("0123"), "{text}");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    // A file that was moved away is left alone after it is opened again.
    let moved = folder.path().join("audit.1");
    std::fs::rename(&file, &moved).unwrap();
    audit.reopen().unwrap();
    // Who leaves before the answer is in it too.
    let mut client = running.client().await;
    client
        .send(format!(
            "GET /v1/hang HTTP/1.1\r\nhost: x\r\nx-request-id: g\r\n{admin}\r\n"
        ))
        .await;
    starts.recv().await.unwrap();
    drop(client);
    let left = async {
        while audited(&file).is_empty() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(LONG, left).await.expect("it is noted");
    assert_eq!(audited(&file), [line("g", "head", "GET", "/v1/hang", 499)]);
    assert_eq!(audited(&moved), expected);
}

#[test]
fn errors_have_one_form() {
    let error = ApiError::invalid("reward", "the reward 2 is not between 0 and 1");
    let response: Response = error.into_response();
    assert_eq!(response.status(), 422);
    let body = axum::body::to_bytes(response.into_body(), 1000);
    let body = futures_util::FutureExt::now_or_never(body)
        .unwrap()
        .unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    let expected = json!({"error": {
        "code": "invalid", "message": "the reward 2 is not between 0 and 1", "field": "reward"
    }});
    assert_eq!(body, expected);
}

#[test]
fn the_page_is_shut_off() {
    let mut headers = axum::http::HeaderMap::new();
    page::secure(&mut headers);
    assert_eq!(
        headers["content-security-policy"],
        "default-src 'self'; img-src 'self' data:; style-src 'self'; script-src 'self'; \
         frame-ancestors 'none'"
    );
    assert_eq!(headers["x-content-type-options"], "nosniff");
    assert_eq!(headers["referrer-policy"], "no-referrer");
}
