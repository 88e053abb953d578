//! A server with an edge, and a client that writes and reads bytes itself.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::routing::{get, post, put};
use bytes::Bytes;
use sclub_server::edge::error::with_fallbacks;
use sclub_server::edge::{ApiError, Drained, EdgeOptions, Keys, Peer, body, serve};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Much longer than any step of a test takes.
pub const LONG: Duration = Duration::from_secs(30);
/// Short enough to wait for, and long enough for a client on a busy machine.
pub const SHORT: Duration = Duration::from_secs(1);

/// A server.
pub struct Running {
    pub addr: SocketAddr,
    pub stop: oneshot::Sender<()>,
    pub end: JoinHandle<Drained>,
}

impl Running {
    pub fn new(router: Router, options: EdgeOptions) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        Self::on(listener, router, options)
    }

    pub fn on(listener: std::net::TcpListener, router: Router, options: EdgeOptions) -> Self {
        let addr = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let end = tokio::spawn(async move {
            let stopped = async { drop(stopped.await) };
            serve(listener, router, options, stopped).await.unwrap()
        });
        Self { addr, stop, end }
    }

    pub async fn client(&self) -> Client<TcpStream> {
        Client::new(TcpStream::connect(self.addr).await.unwrap())
    }

    /// One request on a connection of its own.
    pub async fn ask(&self, request: &str) -> Answer {
        let mut client = self.client().await;
        client.send(request).await;
        client.answer().await
    }

    pub async fn stop(self) -> Drained {
        self.stop.send(()).unwrap();
        timeout(LONG, self.end)
            .await
            .expect("the server ends")
            .unwrap()
    }
}

pub fn quick() -> EdgeOptions {
    EdgeOptions {
        timeout: SHORT,
        ..EdgeOptions::default()
    }
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HashMap<String, String>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// The code of an error; also checks the form of the error.
    pub fn code(&self) -> String {
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

pub struct Client<S> {
    pub stream: S,
    pub read: Vec<u8>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    pub fn new(stream: S) -> Self {
        let read = Vec::new();
        Self { stream, read }
    }

    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let sent = timeout(LONG, self.stream.write_all(bytes.as_ref())).await;
        sent.expect("the server reads").unwrap();
    }

    /// Reads more; false at the end or if the connection was closed.
    pub async fn more(&mut self) -> bool {
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

    pub async fn take(&mut self, bytes: usize) -> Vec<u8> {
        while self.read.len() < bytes {
            assert!(self.more().await, "the answer is incomplete");
        }
        self.read.drain(..bytes).collect()
    }

    pub async fn line(&mut self) -> String {
        loop {
            if let Some(end) = self.read.windows(2).position(|two| two == b"\r\n") {
                let line = self.take(end + 2).await;
                return String::from_utf8(line[..end].to_vec()).unwrap();
            }
            assert!(
                self.more().await,
                "the answer is incomplete: {:?}",
                self.read
            );
        }
    }

    pub async fn head(&mut self) -> Answer {
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

    pub async fn chunk(&mut self) -> Vec<u8> {
        let length = usize::from_str_radix(&self.line().await, 16).unwrap();
        let chunk = self.take(length).await;
        assert_eq!(self.line().await, "");
        chunk
    }

    pub async fn answer(&mut self) -> Answer {
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
    pub async fn ended(&mut self) {
        let end = async { while self.more().await {} };
        timeout(LONG, end)
            .await
            .expect("the server ends the connection");
    }
}

pub async fn echo(request: Request) -> Result<Bytes, ApiError> {
    let (parts, body) = request.into_parts();
    body::check_json(&parts.headers)?;
    body::whole(&parts.headers, body, 100_000).await
}

/// Returns each line with its number.
pub async fn numbered(request: Request) -> Result<String, ApiError> {
    let (parts, body) = request.into_parts();
    body::check_json_lines(&parts.headers)?;
    let mut lines = body::lines(body, 10);
    let mut all = String::new();
    while let Some(line) = lines.next().await? {
        all += &format!("{}={};", line.number, String::from_utf8_lossy(&line.bytes));
    }
    Ok(all)
}

pub fn plain() -> Router {
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

pub fn panicking() -> &'static str {
    panic!("the password is swordfish")
}

/// A key for each role.
pub fn three_keys() -> Keys {
    let list =
        "read:eye:eye-0123456789abc,write:hand:hand-0123456789ab,admin:head:head-0123456789ab";
    Keys::from_list(list).unwrap()
}
