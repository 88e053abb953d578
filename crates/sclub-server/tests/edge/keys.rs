//! API keys and rate limits.

use axum::Router;
use axum::routing::{get, post};
use sclub_server::edge::error::with_fallbacks;
use sclub_server::edge::{Caller, EdgeOptions, Guard, Keys, Role};
use tokio::net::TcpStream;

use crate::harness::{Client, Running, three_keys};

fn guarded(keys: Keys, rate: u32) -> Router {
    let name = |caller: Caller| async move {
        format!(
            "{} {}",
            caller.name.as_deref().unwrap_or("no key"),
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
async fn without_keys_every_call_is_allowed() {
    let running = Running::new(guarded(Keys::none(), 0), EdgeOptions::default());
    let answer = running.ask("GET /admin HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!((answer.status, answer.text()), (200, "no key admin"));
}

/// Sends requests until one is refused. Returns the number of answers before.
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
