//! Tests of connections, against small servers of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Notify;

/// A server that answers each request of each connection with its bytes, in parts, and closes a connection
/// when they are used up. Returns its URL and the requests.
async fn server(
    connections: Vec<Vec<Vec<&'static [u8]>>>,
) -> (Url, tokio::task::JoinHandle<Vec<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/base", listener.local_addr().unwrap());
    let task = tokio::spawn(async move {
        let mut asked = Vec::new();
        for answers in connections {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut requests = Vec::new();
            for parts in answers {
                let mut bytes = Vec::new();
                while !is_whole(&bytes) {
                    assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0);
                }
                requests.push(String::from_utf8(bytes).unwrap());
                for part in parts {
                    stream.write_all(part).await.unwrap();
                    stream.flush().await.unwrap();
                    tokio::task::yield_now().await;
                }
            }
            asked.push(requests);
        }
        asked
    });
    (url.parse().unwrap(), task)
}

fn is_whole(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    length.is_none_or(|length| body.len() == length.parse::<usize>().unwrap())
}

#[tokio::test]
async fn bodies_come_with_a_length_in_chunks_and_until_the_end() {
    let (url, server) = server(vec![vec![
        vec![b"HTTP/1.1 200 OK\r\nContent-Le", b"ngth: 5\r\n\r\nhe", b"llo"],
        vec![
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 No\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n01234",
            b"56789\r\n0\r\ntrail: er\r\n\r",
            b"\n",
        ],
        vec![b"HTTP/1.1 204 None\r\n\r\n"],
        vec![b"HTTP/1.1 200 OK\r\n\r\nto the", b" end"],
    ]])
    .await;
    let mut client = Connection::open(&url, None).await.unwrap();
    client.set_key("secret").unwrap();
    let answer = client.request("POST", "/v1/x", b"{}").await.unwrap();
    assert_eq!((answer.status, &answer.body[..]), (200, &b"hello"[..]));
    let answer = client.request("GET", "/v1/y?z=1", b"").await.unwrap();
    assert_eq!(
        (answer.status, &answer.body[..]),
        (404, &b"abc0123456789"[..])
    );
    let answer = client.request("POST", "/v1/w", b"").await.unwrap();
    assert_eq!((answer.status, &answer.body[..]), (204, &b""[..]));
    let answer = client.request("GET", "/", b"").await.unwrap();
    assert_eq!((answer.status, &answer.body[..]), (200, &b"to the end"[..]));

    let authority = url.authority();
    let asked = server.await.unwrap().remove(0);
    assert_eq!(
        asked[0],
        format!(
            "POST /base/v1/x HTTP/1.1\r\nhost: {authority}\r\nauthorization: Bearer secret\r\n\
             content-type: application/json\r\ncontent-length: 2\r\n\r\n{{}}"
        )
    );
    assert!(asked[1].starts_with("GET /base/v1/y?z=1 HTTP/1.1\r\n"));
    assert!(asked[1].ends_with("Bearer secret\r\n\r\n"));
    assert!(asked[2].ends_with("content-length: 0\r\n\r\n"));
}

#[tokio::test]
async fn a_closed_connection_is_opened_again() {
    const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n1";
    let (url, server) = server(vec![vec![vec![OK]], vec![vec![OK], vec![]]]).await;
    let mut client = Connection::open(&url, None).await.unwrap();
    assert_eq!(
        client.request("GET", "/a", b"").await.unwrap().body,
        b"1"[..]
    );
    assert_eq!(
        client.request("GET", "/b", b"").await.unwrap().body,
        b"1"[..]
    );
    let asked = {
        // The second connection ends after it was asked, and there is no third.
        let error = client.request("GET", "/c", b"").await.unwrap_err();
        assert!(
            matches!(error, ClientError::Connect { .. } | ClientError::Broken(_)),
            "{error}"
        );
        server.await.unwrap()
    };
    assert_eq!(asked[0].len(), 1);
    assert!(asked[1][0].starts_with("GET /base/b "));
    assert!(asked[1][1].starts_with("GET /base/c "));
}

/// A server that answers every request with its own path. The answer to `/slow` lacks its last bytes until
/// `go_on`.
async fn echo(begun: Arc<Notify>, go_on: Arc<Notify>, held_back: usize) -> Url {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (begun, go_on) = (Arc::clone(&begun), Arc::clone(&go_on));
            tokio::spawn(async move {
                let mut bytes = Vec::new();
                while stream
                    .read_buf(&mut bytes)
                    .await
                    .is_ok_and(|count| count > 0)
                {
                    if !is_whole(&bytes) {
                        continue;
                    }
                    let asked = String::from_utf8(std::mem::take(&mut bytes)).unwrap();
                    let path = asked.split(' ').nth(1).unwrap();
                    let length = path.len();
                    let answer =
                        format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{path}");
                    let mut rest = answer.as_bytes();
                    if path == "/slow" {
                        let (first, last) = rest.split_at(rest.len() - held_back);
                        stream.write_all(first).await.unwrap();
                        begun.notify_one();
                        go_on.notified().await;
                        rest = last;
                    }
                    // The client may be gone.
                    let _ = stream.write_all(rest).await;
                }
            });
        }
    });
    url.parse().unwrap()
}

#[tokio::test]
async fn a_dropped_request_leaves_no_answer_for_the_next() {
    // Dropped before the answer, within its head and within its body.
    for held_back in [43, 20, 3] {
        for is_download in [false, true] {
            let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
            let url = echo(Arc::clone(&begun), Arc::clone(&go_on), held_back).await;
            let mut client = Connection::open(&url, None).await.unwrap();
            let answer = client.request("GET", "/first", b"").await.unwrap();
            assert_eq!(&answer.body[..], b"/first");
            let asking = async {
                if is_download {
                    client.download("/slow", |_| Ok(())).await.map(drop)
                } else {
                    client.request("GET", "/slow", b"").await.map(drop)
                }
            };
            tokio::select! {
                biased;
                _ = asking => panic!("there is no whole answer yet"),
                () = begun.notified() => {}
            }
            go_on.notify_one();
            let answer = client.request("GET", "/next", b"").await.unwrap();
            assert_eq!(&answer.body[..], b"/next", "{held_back} {is_download}");
        }
    }
}

#[tokio::test]
async fn a_request_that_timed_out_leaves_no_answer_for_the_next() {
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let url = echo(begun, Arc::clone(&go_on), 3).await;
    let mut client = Connection::open(&url, None).await.unwrap();
    client.set_timeout(Duration::from_millis(50));
    for is_download in [false, true] {
        let error = if is_download {
            client.download("/slow", |_| Ok(())).await.unwrap_err()
        } else {
            client.request("GET", "/slow", b"").await.unwrap_err()
        };
        assert!(matches!(error, ClientError::Timeout(_)), "{error}");
        go_on.notify_one();
        client.set_timeout(DEFAULT_TIMEOUT);
        let answer = client.request("GET", "/next", b"").await.unwrap();
        assert_eq!(&answer.body[..], b"/next");
        client.set_timeout(Duration::from_millis(50));
    }
}

#[tokio::test]
async fn the_answer_to_a_request_that_is_too_long_is_read() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.read_buf(&mut Vec::new()).await.unwrap();
            let answer = b"HTTP/1.1 413 No\r\nconnection: close\r\ncontent-length: 2\r\n\r\nno";
            stream.write_all(answer).await.unwrap();
        }
    });
    let url: Url = url.parse().unwrap();
    for _ in 0..20 {
        let mut client = Connection::open(&url, None).await.unwrap();
        let body = vec![b' '; 16 << 20];
        let answer = client.request("PUT", "/", &body).await.unwrap();
        assert_eq!((answer.status, &answer.body[..]), (413, &b"no"[..]));
    }
}

#[tokio::test]
async fn a_download_is_passed_on_in_parts() {
    let (url, _server) = server(vec![vec![
        vec![
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
            b"2\r\nde\r\n0\r\n\r\n",
        ],
        vec![b"HTTP/1.1 403 No\r\ncontent-length: 2\r\n\r\nno"],
        vec![b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\ncut"],
    ]])
    .await;
    let mut client = Connection::open(&url, None).await.unwrap();
    let mut got = Vec::new();
    let mut sink = |part: &[u8]| {
        got.extend_from_slice(part);
        Ok(())
    };
    let answer = client.download("/a", &mut sink).await.unwrap();
    assert_eq!((answer.status, &answer.body[..]), (200, &b""[..]));
    let answer = client.download("/b", &mut sink).await.unwrap();
    assert_eq!((answer.status, &answer.body[..]), (403, &b"no"[..]));
    let error = client.download("/c", &mut sink).await.unwrap_err();
    assert!(matches!(error, ClientError::EndedEarly), "{error}");
    assert_eq!(got, b"abcdecut");
}

#[tokio::test]
async fn silence_and_nonsense_are_errors() {
    let (url, _server) = server(vec![vec![vec![b"nonsense\r\n\r\n"]]]).await;
    let mut client = Connection::open(&url, None).await.unwrap();
    let error = client.request("GET", "/", b"").await.unwrap_err();
    assert!(matches!(error, ClientError::NotHttp(_)), "{error}");

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url: Url = format!("http://{}", listener.local_addr().unwrap())
        .parse()
        .unwrap();
    let mut client = Connection::open(&url, None).await.unwrap();
    client.set_timeout(Duration::from_millis(20));
    let error = client.request("GET", "/", b"").await.unwrap_err();
    assert_eq!(error.to_string(), "no answer within 0.02 s");
    assert!(client.set_key("a b").is_err());
    drop(listener);
    let error = Connection::open(&url, None).await.err().unwrap();
    let start = format!("no server answers at {url}: ");
    assert!(error.to_string().starts_with(&start), "{error}");
}

#[tokio::test]
async fn only_given_certificates_are_trusted() {
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::ServerConfig;
    use tokio_rustls::rustls::crypto::ring;
    use tokio_rustls::rustls::pki_types::PrivateKeyDer;

    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let acceptor = TlsAcceptor::from(Arc::new(config));
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = acceptor.accept(stream).await else {
                continue;
            };
            let mut bytes = Vec::new();
            while !is_whole(&bytes) {
                stream.read_buf(&mut bytes).await.unwrap();
            }
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecure";
            stream.write_all(answer).await.unwrap();
            stream.flush().await.unwrap();
        }
    });
    let url: Url = format!("https://localhost:{port}").parse().unwrap();
    let error = Connection::open(&url, None).await.err().unwrap();
    assert!(error.to_string().contains("--ca FILE"), "{error}");
    // A command that prints the sources of an error too has the reason once.
    assert!(std::error::Error::source(&error).is_none());
    let wrong = Roots::new(vec![other.cert.der().clone()]).unwrap();
    let error = Connection::open(&url, Some(&wrong)).await.err().unwrap();
    assert!(matches!(error, ClientError::Tls { .. }), "{error}");
    let roots = Roots::new(vec![made.cert.der().clone()]).unwrap();
    let mut client = Connection::open(&url, Some(&roots)).await.unwrap();
    let answer = client.request("GET", "/", b"").await.unwrap();
    assert_eq!((answer.status, &answer.body[..]), (200, &b"secure"[..]));
    assert!(Roots::new(Vec::new()).is_err());
}

/// A server that accepts, reads and never answers.
async fn silent() -> Url {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            open.push(stream);
        }
    });
    url.parse().unwrap()
}

#[tokio::test]
async fn a_download_that_never_begins_times_out() {
    let mut connection = Connection::open(&silent().await, None).await.unwrap();
    connection.set_timeout(Duration::from_millis(50));
    let outcome = connection.download("/v1/admin/export", |_| Ok(())).await;
    assert!(
        matches!(outcome, Err(ClientError::Timeout(_))),
        "{outcome:?}"
    );
}

/// A server that answers the first request of each connection, and closes it when the second has come.
#[tokio::test]
async fn a_request_that_must_not_arrive_twice_is_not_repeated() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url: Url = format!("http://{}", listener.local_addr().unwrap())
        .parse()
        .unwrap();
    let requests = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&requests);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut bytes = [0; 4096];
            for turn in 0..2 {
                if stream.read(&mut bytes).await.unwrap_or(0) == 0 {
                    break;
                }
                counter.fetch_add(1, Ordering::SeqCst);
                if turn == 0 {
                    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
                    stream.write_all(answer).await.unwrap();
                }
            }
        }
    });
    let mut connection = Connection::open(&url, None).await.unwrap();
    for may_repeat in [false, true] {
        requests.store(0, Ordering::SeqCst);
        connection.request("GET", "/healthz", b"").await.unwrap();
        let path = "/v1/feedback/batch";
        let outcome = match may_repeat {
            true => connection.request("POST", path, b"{}").await,
            false => connection.request_once("POST", path, b"{}").await,
        };
        assert_eq!(outcome.is_ok(), may_repeat, "{outcome:?}");
        let expected = if may_repeat { 3 } else { 2 };
        assert_eq!(requests.load(Ordering::SeqCst), expected);
    }
}
