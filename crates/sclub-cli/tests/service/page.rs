//! The page, in a real browser, on a real server that learns.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::browser::Browser;
use crate::server::{Server, sclub};

/// Plays some rounds of a world of two tastes.
fn play(server: &Server, rounds: &str) {
    let played = sclub()
        .args(["simulate", "--url", &server.url, "--quiet"])
        .args([
            "--users",
            "12",
            "--clusters",
            "2",
            "--dim",
            "4",
            "--items",
            "6",
            "--rounds",
            rounds,
        ])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&played.stderr).into_owned();
    assert!(played.status.success(), "{errors}");
}

fn overflow(browser: &mut Browser) -> Value {
    browser.value("document.documentElement.scrollWidth - document.documentElement.clientWidth")
}

fn search(browser: &mut Browser, user: &str) {
    browser.value(&format!(
        "(() => {{
            const field = document.querySelector('#user-search');
            const input = field.matches('input') ? field : field.querySelector('input');
            input.value = '{user}';
            input.form.requestSubmit();
        }})()"
    ));
}

/// Light and dark differ, and nothing sticks out, wide or narrow.
fn look_around(browser: &mut Browser) {
    assert_eq!(overflow(browser), 0);
    let ground = "getComputedStyle(document.body).backgroundColor
        + getComputedStyle(document.documentElement).backgroundColor";
    let light = browser.value(ground);
    let dark = json!({"features": [{"name": "prefers-color-scheme", "value": "dark"}]});
    browser.call("Emulation.setEmulatedMedia", dark);
    assert_ne!(browser.value(ground), light);
    browser.resize(360, 800);
    assert_eq!(overflow(browser), 0, "on a phone");
    browser.resize(1280, 1600);
}

#[test]
fn the_page_shows_who_belongs_together_as_it_happens() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut browser) = Browser::start(folder.path()) else {
        return;
    };
    let server = Server::start(
        &folder.path().join("data"),
        &["--policy", "sclub", "--alpha-theta", "0.6"],
    );

    // Before anything has happened it says how to begin.
    browser.resize(1280, 1600);
    browser.open(&server.url);
    let text = browser.value("document.body.innerText");
    assert!(text.as_str().unwrap().contains("sclub simulate"), "{text}");

    // It comes alive without being loaded again.
    play(&server, "400");
    let state = server.state();
    let (users, clusters) = (&state["users"], &state["clusters"]);
    assert_eq!(users, 12);
    assert!(clusters.as_u64().unwrap() > 1, "no user was split out");
    browser.wait_for(&format!(
        "document.querySelector('#map').dataset.clusters == {clusters}"
    ));
    // The figures are those of the last second.
    for (name, figure) in [("users", users), ("clusters", clusters)] {
        browser.wait_for(&format!(
            "document.querySelector('#figure-{name}').textContent.replace(/[^0-9]/g, '') == '{figure}'"
        ));
    }
    browser.wait_for("document.querySelectorAll('#events li').length > 0");

    // Points grow and move into their places, and what has joined another is gone.
    browser.wait_for(&format!(
        "(points => points.length == {clusters}
            && points.every(point => point.getBoundingClientRect().width > 4))
            ([...document.querySelectorAll('#map [id^=point-]')])"
    ));

    // A point for each cluster, each where it can be seen, and not all in one place.
    let read = |browser: &mut Browser| -> Vec<(i64, i64, bool)> {
        let points = browser.value(
            "JSON.stringify([...document.querySelectorAll('#map [id^=point-]')].map(point => {
                const box = point.getBoundingClientRect();
                return [Math.round(box.x), Math.round(box.y), box.width > 0];
            }))",
        );
        serde_json::from_str(points.as_str().unwrap()).unwrap()
    };
    // A late change may bring a point back for a moment.
    let mut points = read(&mut browser);
    for _ in 0..600 {
        if points.len() as u64 == clusters.as_u64().unwrap() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
        points = read(&mut browser);
    }
    assert_eq!(points.len() as u64, clusters.as_u64().unwrap());
    assert!(points.iter().all(|point| point.2));
    assert!(points.iter().any(|point| *point != points[0]));

    // A user's card gives the reason for the user's cluster.
    let history = server.ok("GET", "/v1/history?limit=1000", "");
    let change = &history["changes"][0];
    let user = change["user"].as_str().unwrap();
    search(&mut browser, user);
    let card = server.ok("GET", &format!("/v1/users/{user}"), "");
    let shown = "document.querySelector('#user-card').innerText";
    browser.wait_for(&format!("{shown}.includes('{user}')"));
    let why = &card["last_change"]["why"];
    let sides = if why["estimates"].is_null() {
        &why["frequencies"]
    } else {
        &why["estimates"]
    };
    let threshold = sides["threshold"].as_f64().unwrap();
    // With as many digits as tell the two sides apart.
    let (short, long) = (format!("{threshold:.2}"), format!("{threshold:.3}"));
    let cluster = &card["cluster"];
    browser.wait_for(&format!(
        "(text => text.includes('{cluster}') && (text.includes('{short}') || text.includes('{long}')))({shown})"
    ));

    // More rounds, and the figures follow.
    play(&server, "100");
    let rounds = server.state()["rounds"].to_string();
    browser.wait_for(&format!(
        "document.body.innerText.replace(/[^0-9]/g, '').includes('{rounds}')"
    ));

    look_around(&mut browser);

    // The other page describes every call.
    browser.open(&format!("{}/docs", server.url));
    // Lines may break where there are characters without width.
    let text = browser.value("document.body.innerText.replaceAll('\\u200b', '')");
    let text = text.as_str().unwrap();
    let api = server.ok("GET", "/v1/openapi.json", "");
    for path in api["paths"].as_object().unwrap().keys() {
        assert!(text.contains(path.as_str()), "{path} is not described");
    }
    // The example of JSON lines is what must be sent.
    browser.value(
        "document.querySelector('#operations-items-put_items .opblock-summary-control').click()",
    );
    browser.wait_for(
        "document.querySelector('#operations-items-put_items').innerText.includes('{\"available\":false,')",
    );

    assert_eq!(browser.errors(), Vec::<String>::new());
    let strange: Vec<String> = browser.requests();
    // Pictures that a style sheet holds come from nowhere.
    let is_own = |url: &&String| url.starts_with(&server.url) || url.starts_with("data:");
    let strange = strange.iter().filter(|url| !is_own(url));
    assert_eq!(
        strange.collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "nothing from elsewhere"
    );
}

#[test]
fn the_api_is_tried_with_the_key_that_the_page_has() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut browser) = Browser::start(folder.path()) else {
        return;
    };
    let keys = folder.path().join("keys");
    std::fs::write(&keys, "read eye eye-0123456789abcdef\n").unwrap();
    let keys = keys.to_str().unwrap();
    let server = Server::start(&folder.path().join("data"), &["--keys", keys]);

    browser.resize(1280, 1600);
    let click = |browser: &mut Browser, what: &str| {
        browser.wait_for(&format!("document.querySelector('{what}')"));
        browser.value(&format!("document.querySelector('{what}').click()"));
    };
    let ask = |browser: &mut Browser, status: u16| {
        browser.open(&format!("{}/docs", server.url));
        click(browser, "#operations-look-state .opblock-summary-control");
        click(browser, "#operations-look-state .try-out__btn");
        click(browser, "#operations-look-state .execute");
        browser.wait_for(&format!(
            "document.querySelector('#operations-look-state .live-responses-table tbody .response-col_status')
                ?.innerText.startsWith('{status}')"
        ));
    };
    // The key that the dashboard was given, which it keeps for the tab.
    browser.open(&format!("{}/docs", server.url));
    browser.value("sessionStorage.setItem('sclub-key', 'eye-0123456789abcdef')");
    ask(&mut browser, 200);
    look_around(&mut browser);
    assert_eq!(
        browser.errors(),
        Vec::<String>::new(),
        "nothing that the policy of contents forbids"
    );
    // Without it the server refuses, and a key given there is the dashboard's too.
    browser.value("sessionStorage.removeItem('sclub-key')");
    ask(&mut browser, 401);
    click(&mut browser, ".auth-wrapper .authorize");
    browser.wait_for("document.querySelector('#auth-bearer-value')");
    browser.value(
        "(field => {
            Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value')
                .set.call(field, 'eye-0123456789abcdef');
            field.dispatchEvent(new Event('input', { bubbles: true }));
        })(document.querySelector('#auth-bearer-value'))",
    );
    click(&mut browser, ".auth-btn-wrapper .authorize");
    browser.wait_for("sessionStorage.getItem('sclub-key') === 'eye-0123456789abcdef'");
    ask(&mut browser, 200);
}

#[test]
fn the_files_of_the_page_are_sent_as_what_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &[]);
    let headers = |path: &str| -> String {
        let mut stream = std::net::TcpStream::connect(&server.address).unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer).to_lowercase();
        answer.split("\r\n\r\n").next().unwrap().to_owned()
    };
    for (path, kind, cache) in [
        ("/", "text/html", "no-cache"),
        ("/page/main.js", "text/javascript", "no-cache"),
        ("/page/base.css", "text/css", "no-cache"),
        (
            "/vendor/uplot-1.6.32/uPlot.iife.min.js",
            "text/javascript",
            "immutable",
        ),
        (
            "/vendor/swagger-ui-5.34.1/swagger-ui.css",
            "text/css",
            "immutable",
        ),
    ] {
        let headers = headers(path);
        assert!(headers.starts_with("http/1.1 200"), "{path}: {headers}");
        for part in [kind, cache, "script-src 'self';", "nosniff"] {
            assert!(headers.contains(part), "{path}: {part} is not in {headers}");
        }
        let is_gzip = headers.contains("content-encoding: gzip");
        assert_eq!(is_gzip, path.contains("swagger"), "{path}: {headers}");
    }
}

/// The output of `sclub explain`.
pub fn explain(server: &Server, more: &[&str]) -> String {
    let said = sclub()
        .args(["explain", "--url", &server.url])
        .args(more)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.status.success(), "{errors}");
    String::from_utf8(said.stdout).unwrap()
}

#[test]
fn where_a_user_seems_to_belong_is_on_the_page_and_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &[]);
    let before = explain(&server, &[]);
    assert!(before.contains("first fit is still to come"), "{before}");
    let mut browser = Browser::start(folder.path());
    if let Some(browser) = &mut browser {
        browser.resize(1280, 1600);
        browser.open(&server.url);
    }
    play(&server, "3000");
    let begun = Instant::now();
    let state = loop {
        let state = server.state();
        if state["clustering"]["fitting"] == false {
            break state;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{state}");
        std::thread::sleep(Duration::from_millis(20));
    };
    let found = &state["clustering"];
    let clusters = found["clusters"].as_u64().unwrap();
    assert_eq!(
        (&state["policy"], clusters),
        (&json!("sclub-soft"), 2),
        "{found}"
    );
    assert_eq!(state["clusters"], clusters);
    assert!(found["fits"].as_u64() > Some(3), "{found}");

    let all = server.ok("GET", "/v1/clusters", "");
    let cluster = &all["clusters"][0]["cluster"];
    let whole = server.ok("GET", &format!("/v1/clusters/{cluster}?members=3"), "");
    let user = whole["members"][0].as_str().unwrap();
    let card = server.ok("GET", &format!("/v1/users/{user}"), "");
    let places = card["placement"]["clusters"].as_array().unwrap();
    let first = &places[0];
    assert_eq!((&first["cluster"], &card["cluster"]), (cluster, cluster));
    let probability = first["probability"].as_f64().unwrap();
    let sum: f64 = places
        .iter()
        .map(|place| place["probability"].as_f64().unwrap())
        .sum();
    let none = card["placement"]["none"].as_f64().unwrap();
    assert!(
        probability > 0.9 && (sum + none - 1.0).abs() < 1e-9,
        "{card}"
    );

    let words = explain(&server, &[]);
    assert!(
        words.contains("sclub-soft: 3,000 rounds, 12 users"),
        "{words}"
    );
    assert!(
        words.contains("clusters              2 (fit of round"),
        "{words}"
    );
    let words = explain(&server, &[user]);
    assert!(
        words.contains("times likelier") && words.contains("none of them"),
        "{words}"
    );
    let used = card["placement"]["used"].as_bool().unwrap();
    let said = if used {
        "at least half of the weight"
    } else {
        "less than half of the weight"
    };
    assert!(words.contains(said), "{words}");

    let Some(mut browser) = browser else {
        return;
    };
    browser.wait_for(&format!(
        "document.querySelector('#map').dataset.clusters == {clusters}"
    ));
    // Those that earlier fits had found are gone.
    browser.wait_for(&format!(
        "document.querySelectorAll('#map .point').length == {clusters}"
    ));
    browser.wait_for("document.querySelector('#chart-clusters').dataset.points > 3");
    let inked = browser.value(
        "(canvas => canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height)
            .data.some(byte => byte > 0))(document.querySelector('#chart-clusters canvas'))",
    );
    assert_eq!(inked, true, "the chart is drawn");
    let worth = browser.value("document.querySelector('#worth').innerText");
    let worth = worth.as_str().unwrap();
    assert!(
        worth.contains("of the weight in recommendations"),
        "{worth}"
    );
    let seen = browser.value("document.querySelector('#events').checkVisibility()");
    assert_eq!(seen, false, "it splits and merges nothing");
    // Its rewards are those at the last fit, so they are no share of all rewards of now.
    let facts = browser.text("#cluster-card dl");
    assert!(facts.contains("at the last fit"), "{facts}");
    assert!(!facts.contains("Share of all rewards"), "{facts}");
    search(&mut browser, user);
    browser.wait_for("document.querySelector('#placement') !== null");
    let rows = browser.value(
        "JSON.stringify([...document.querySelectorAll('#placement .value')].map(v => v.textContent))",
    );
    let rows: Vec<String> = serde_json::from_str(rows.as_str().unwrap()).unwrap();
    let shown: String = rows[0]
        .chars()
        .filter(|c| c.is_ascii_digit() || *c == '.')
        .collect();
    let shown: f64 = shown.parse().unwrap();
    assert!(
        (shown - 100.0 * probability).abs() < 0.06,
        "{rows:?}, {probability}"
    );
    look_around(&mut browser);
    // A cluster of an earlier fit is not found, which browsers report too.
    let mut errors = browser.errors();
    errors.retain(|error| !(error.contains("404") && error.contains("/v1/clusters/")));
    assert_eq!(errors, Vec::<String>::new());
}
