//! Host names, and requests from other web sites.

use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use sclub_server::edge::error::with_fallbacks;
use sclub_server::edge::{EdgeOptions, Site};

use crate::harness::{Running, plain};

#[tokio::test(flavor = "multi_thread")]
async fn without_keys_unknown_hosts_are_refused() {
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
    // No host is allowed: browsers always send one. Two hosts, or a URL with another one, are refused.
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
