//! The page, in a real browser, on a real server that learns.

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

/// A number as the page writes it, without its separators.
fn number(browser: &mut Browser, selector: &str) -> String {
    let text = browser.value(&format!("document.querySelector('{selector}').textContent"));
    let text = text.as_str().unwrap();
    text.chars().filter(char::is_ascii_digit).collect()
}

fn overflow(browser: &mut Browser) -> Value {
    browser.value("document.documentElement.scrollWidth - document.documentElement.clientWidth")
}

#[test]
fn the_page_shows_who_belongs_together_as_it_happens() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut browser) = Browser::start(folder.path()) else {
        return;
    };
    let server = Server::start(&folder.path().join("data"), &["--alpha-theta", "0.6"]);

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
    assert!(clusters.as_u64().unwrap() > 1, "nobody was split out");
    browser.wait_for(&format!(
        "document.querySelector('#map').dataset.clusters == {clusters}"
    ));
    assert_eq!(number(&mut browser, "#figure-users"), users.to_string());
    assert_eq!(
        number(&mut browser, "#figure-clusters"),
        clusters.to_string()
    );
    browser.wait_for("document.querySelectorAll('#events li').length > 0");

    // Points grow and move into their places.
    browser.wait_for(
        "[...document.querySelectorAll('#map [id^=point-]')]
            .every(point => point.getBoundingClientRect().width > 4)",
    );

    // A point for each cluster, each where it can be seen, and not all in one place.
    let points = browser.value(
        "JSON.stringify([...document.querySelectorAll('#map [id^=point-]')].map(point => {
            const box = point.getBoundingClientRect();
            return [Math.round(box.x), Math.round(box.y), box.width > 0];
        }))",
    );
    let points: Vec<(i64, i64, bool)> = serde_json::from_str(points.as_str().unwrap()).unwrap();
    assert_eq!(points.len() as u64, clusters.as_u64().unwrap());
    assert!(points.iter().all(|point| point.2));
    assert!(points.iter().any(|point| *point != points[0]));

    // A user's card says why she is where she is.
    let history = server.ok("GET", "/v1/history?limit=1000", "");
    let change = &history["changes"][0];
    let user = change["user"].as_str().unwrap();
    browser.value(&format!(
        "(() => {{
            const field = document.querySelector('#user-search');
            const input = field.matches('input') ? field : field.querySelector('input');
            input.value = '{user}';
            input.form.requestSubmit();
        }})()"
    ));
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

    // Light and dark differ, and nothing sticks out, wide or narrow.
    assert_eq!(overflow(&mut browser), 0);
    let ground = "getComputedStyle(document.body).backgroundColor
        + getComputedStyle(document.documentElement).backgroundColor";
    let light = browser.value(ground);
    let dark = json!({"features": [{"name": "prefers-color-scheme", "value": "dark"}]});
    browser.call("Emulation.setEmulatedMedia", dark);
    assert_ne!(browser.value(ground), light);
    browser.resize(360, 800);
    assert_eq!(overflow(&mut browser), 0, "on a phone");

    // The other page describes every call.
    browser.resize(1280, 1600);
    browser.open(&format!("{}/docs", server.url));
    let text = browser.value("document.body.innerText");
    let text = text.as_str().unwrap();
    let api = server.ok("GET", "/v1/openapi.json", "");
    for path in api["paths"].as_object().unwrap().keys() {
        assert!(text.contains(path.as_str()), "{path} is not described");
    }

    assert_eq!(browser.errors(), Vec::<String>::new());
    let strange: Vec<String> = browser.requests();
    let strange = strange.iter().filter(|url| !url.starts_with(&server.url));
    assert_eq!(
        strange.collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "nothing from elsewhere"
    );
}
