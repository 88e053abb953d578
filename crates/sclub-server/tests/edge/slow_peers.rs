//! Slow heads, bodies and readers.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::routing::{get, post};
use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::stream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use sclub_server::edge::{ApiError, EdgeOptions, body};

use crate::harness::{Client, LONG, Running, SHORT, plain, quick};

/// A timeout for clients that are slow and in time: one that a busy machine stops for seconds still is.
const AMPLE: Duration = Duration::from_secs(3);

fn ample() -> EdgeOptions {
    EdgeOptions {
        timeout: AMPLE,
        ..EdgeOptions::default()
    }
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
    // So is one that sends no further request.
    let running = Running::new(plain(), ample());
    let mut idle = running.client().await;
    idle.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!(idle.answer().await.text(), "hello");
    idle.ended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_body_is_ended() {
    let running = Running::new(plain(), ample());
    let heads = [
        "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 50000\r\n\r\nabc",
        "POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
        "PUT /lines HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\na\nb\r\n",
    ];
    let running = &running;
    let stuck = heads.map(|head| async move {
        let mut stuck = running.client().await;
        stuck.send(head).await;
        let answer = stuck.answer().await;
        assert_eq!((answer.status, &*answer.code()), (408, "timeout"), "{head}");
        stuck.ended().await;
    });
    join_all(stuck).await;
    let mut drip = running.client().await;
    drip.send("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 50000\r\n\r\n")
        .await;
    ended_with_408(drip, b"x", usize::MAX).await;
}

async fn echo_much(request: Request) -> Result<Bytes, ApiError> {
    let (parts, body) = request.into_parts();
    body::whole(&parts.headers, body, 1_000_000).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_body_may_take_many_timeouts() {
    let running = Running::new(Router::new().route("/", post(echo_much)), ample());
    let mut client = running.client().await;
    client
        .send("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 480000\r\n\r\n")
        .await;
    for _ in 0..24 {
        client.send([b'x'; 20_000]).await;
        sleep(AMPLE / 6).await;
    }
    let answer = client.answer().await;
    assert_eq!(answer.status, 200);
    assert!(answer.body == vec![b'x'; 480_000]);
}

/// Sends bytes again and again, slowly, up to a limit. Checks that the server answers 408 and closes, and
/// returns the number of bytes sent.
async fn ended_with_408(drip: Client<TcpStream>, bytes: &'static [u8], limit: usize) -> usize {
    let (mut reads, mut writes) = drip.stream.into_split();
    let dripping = tokio::spawn(async move {
        let mut sent = 0;
        while sent < limit && writes.write_all(bytes).await.is_ok() {
            sent += bytes.len();
            sleep(SHORT / 6).await;
        }
        sent
    });
    let mut answer = Vec::new();
    let _ = timeout(LONG, reads.read_to_end(&mut answer))
        .await
        .expect("it is ended");
    let text = String::from_utf8_lossy(&answer);
    assert!(text.starts_with("HTTP/1.1 408 "), "{text}");
    timeout(LONG, dripping).await.expect("it is ended").unwrap()
}

/// Some kilobytes in each timeout: no single wait is too long, but the total is.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_trickles_is_ended() {
    let running = Running::new(plain(), ample());
    let heads = [
        "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n",
        "PUT /lines HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n",
    ];
    let running = &running;
    let drips = heads.map(|head| async move {
        let mut drip = running.client().await;
        drip.send(head).await;
        let sent = ended_with_408(drip, &[b'\n'; 800], 100_000).await;
        assert!((5_000..50_000).contains(&sent), "{sent}");
    });
    join_all(drips).await;
}

/// Notifies when it is dropped.
struct NotifyOnDrop(Arc<Notify>);

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_is_ended() {
    let gone = Arc::new(Notify::new());
    let tell = Arc::clone(&gone);
    let endless = move || {
        let tell = NotifyOnDrop(Arc::clone(&tell));
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

/// A server and a client whose sockets have small buffers, so that the reader's speed matters.
async fn narrow(router: Router) -> (Running, TcpStream) {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_send_buffer_size(4096).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(16).unwrap().into_std().unwrap();
    let running = Running::on(listener, router, ample());
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let stream = socket.connect(running.addr).await.unwrap();
    (running, stream)
}

/// Reads up to `bytes` at a time, with pauses. Returns the number of bytes until the end, or until `max`.
async fn read_slowly(stream: &mut TcpStream, bytes: usize, pause: Duration, max: usize) -> usize {
    let mut room = vec![0; bytes];
    let mut taken = 0;
    while taken < max {
        match timeout(LONG, stream.read(&mut room)).await.unwrap() {
            Ok(0) | Err(_) => break,
            Ok(read) => taken += read,
        }
        sleep(pause).await;
    }
    taken
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_is_too_slow_on_average_is_ended() {
    let endless = || async {
        let chunks = stream::repeat_with(|| Ok::<_, Infallible>(Bytes::from_static(&[0; 1024])));
        Body::from_stream(chunks)
    };
    let router = Router::new().route("/", get(endless));
    let request = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";
    let in_time = async {
        let (_running, mut client) = narrow(router.clone()).await;
        client.write_all(request).await.unwrap();
        // Some 40 kB a second, for five timeouts.
        let taken = read_slowly(&mut client, 4000, SHORT / 10, 600_000).await;
        assert!(taken >= 600_000, "{taken}");
    };
    let too_slow = async {
        let (_running, mut client) = narrow(router.clone()).await;
        client.write_all(request).await.unwrap();
        // Some 7 kB a second: with these buffers there is some progress in each timeout.
        let taken = read_slowly(&mut client, 1400, SHORT / 5, 80_000).await;
        assert!((15_000..80_000).contains(&taken), "{taken}");
    };
    tokio::join!(in_time, too_slow);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_events_may_last() {
    let events = || async {
        let events = stream::unfold(0, |count| async move {
            sleep(AMPLE / 4).await;
            Some((Ok::<_, Infallible>(format!("data: {count}\n\n")), count + 1))
        });
        Body::from_stream(events)
    };
    let running = Running::new(Router::new().route("/", get(events)), ample());
    let mut client = running.client().await;
    client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!(client.head().await.status, 200);
    for count in 0..12 {
        let event = client.chunk().await;
        assert_eq!(event, format!("data: {count}\n\n").into_bytes());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_handler_does_not_time_out() {
    let slow = || async {
        sleep(AMPLE * 2).await;
        "late"
    };
    let running = Running::new(Router::new().route("/", get(slow)), ample());
    assert_eq!(
        running
            .ask("GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            .await
            .text(),
        "late"
    );
}
