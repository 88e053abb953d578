//! Limits and content types of bodies.

use std::time::Duration;

use sclub_server::edge::EdgeOptions;
use tokio::io::AsyncWriteExt;
use tokio::time::sleep;

use crate::harness::{Running, plain};

#[tokio::test(flavor = "multi_thread")]
async fn a_body_has_a_limit() {
    let running = Running::new(plain(), EdgeOptions::default());
    // A content-length over the limit is refused before the body arrives.
    let answer = running
        .ask("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 100001\r\n\r\n")
        .await;
    assert_eq!((answer.status, &*answer.code()), (413, "too_large"));
    // The maximum length, in two parts.
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
async fn lines_are_read_one_by_one() {
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
    // The lines do not depend on where the parts of the body end.
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
async fn browsers_must_send_json() {
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
async fn an_answer_before_the_body_says_whether_the_connection_goes_on() {
    let running = Running::new(plain(), EdgeOptions::default());
    let closes = |answer: &crate::harness::Answer| {
        answer.headers.get("connection").map(String::as_str) == Some("close")
    };
    // A part of the body is missing, or malformed, so nobody knows where the next request begins.
    for (request, status) in [
        (
            "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 100001\r\n\r\n",
            413,
        ),
        (
            "POST /nowhere HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nab",
            404,
        ),
        (
            "POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n",
            405,
        ),
        (
            "POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nno\r\n",
            400,
        ),
        (
            "PUT /lines HTTP/1.1\r\nhost: x\r\ncontent-length: 99\r\n\r\n01234567890\n",
            413,
        ),
        // The client waits to be told to send the body, and is not told.
        (
            "POST /echo HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 100001\r\n\r\n",
            413,
        ),
        (
            "POST /nowhere HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n",
            404,
        ),
    ] {
        let mut client = running.client().await;
        client.send(request).await;
        let answer = client.answer().await;
        assert_eq!(answer.status, status, "{request}");
        assert!(closes(&answer), "{request}: {:?}", answer.headers);
        client.stream.shutdown().await.unwrap();
        client.ended().await;
        assert_eq!(client.read, b"", "{request}");
    }
    // All of it has arrived, though nobody has read it.
    let long = "a".repeat(20_000);
    for body in [
        "content-length: 3\r\n\r\nabc".to_owned(),
        "transfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n".to_owned(),
        format!("content-length: 20000\r\n\r\n{long}"),
    ] {
        let mut client = running.client().await;
        let request = format!("POST /nowhere HTTP/1.1\r\nhost: x\r\n{body}");
        let next = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";
        client.send(format!("{request}{request}{next}")).await;
        for status in [404, 404, 200] {
            let answer = client.answer().await;
            assert_eq!((answer.status, closes(&answer)), (status, false), "{body}");
        }
    }
}
