//! The page is right after the last change, and for figures that rarely occur.

use serde_json::{Value, json};

use crate::browser::Browser;
use crate::hard_pages::{browser_url, serve};
use crate::server::{Server, items};

/// The times in seconds at which the page has asked for a path.
fn asked(browser: &Browser, path: &str) -> Vec<f64> {
    let sent = browser.said.iter();
    let sent = sent.filter(|said| said["method"] == "Network.requestWillBeSent");
    let sent = sent.filter(|said| {
        let url = said["params"]["request"]["url"].as_str();
        url.is_some_and(|url| url.ends_with(path))
    });
    sent.filter_map(|said| said["params"]["timestamp"].as_f64())
        .collect()
}

#[test]
fn the_page_is_right_after_the_last_change_without_further_traffic() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut browser) = Browser::start(folder.path()) else {
        return;
    };
    let server = Server::start(&folder.path().join("data"), &["--policy", "sclub"]);
    server.ok("PUT", "/v1/items", &items(4, 3));
    for _ in 0..34 {
        let answer = server.ok("POST", "/v1/recommend", "{\"user\": \"u\", \"k\": 3}");
        let given = json!({"decision": answer["decision"], "rewards": [1, 1, 1]}).to_string();
        server.ok("POST", "/v1/feedback", &given);
    }
    browser.resize(1280, 1600);
    browser.open(&browser_url(&server, "u"));
    browser.wait_for("document.querySelector('#banner').checkVisibility()");
    assert!(browser.text("#banner").contains("All 102 rewards"));
    // A reward that is not equal to the others, and an experiment.
    serve(&server, "u", 1);
    let arms = ["sclub", "linucb-one"]
        .map(|policy| json!({"name": policy, "policy": policy, "share": 50}));
    let start = json!({"name": "x", "arms": arms}).to_string();
    server.ok("POST", "/v1/experiments", &start);
    browser.wait_for("!document.querySelector('#banner').checkVisibility()");
    browser.wait_for("document.querySelector('#experiment-note').innerText === 'x, running'");
    assert_eq!(browser.text("#under-rounds"), "with 105 rewards");
    // Only its end.
    server.ok(
        "POST",
        "/v1/experiments/x/end",
        "{\"winner\": \"linucb-one\"}",
    );
    browser.wait_for("document.querySelector('#experiment-note').innerText.startsWith('x, ended')");
    browser.wait_for("document.querySelector('#about').innerText.includes('linucb-one')");
    // Only a recommendation, which is no event of the log.
    server.ok("POST", "/v1/recommend", "{\"user\": \"u\", \"k\": 4}");
    browser.wait_for(
        "document.querySelector('#recent-items > li').innerText.includes('no reward yet')",
    );
    let shown = "[...document.querySelectorAll('#items-card tbody tr')].map(row => Number(row.cells[1].innerText))
        .reduce((sum, shown) => sum + shown, 0)";
    browser.wait_for(&format!("{shown} === {}", 3 * 35 + 4));
    // All of that by a few requests.
    let times = asked(&browser, "/v1/state");
    assert!(times.len() > 2, "{times:?}");
    // A connection that was lost and made again reads it at once.
    let connected = asked(&browser, "/v1/stream").len();
    let soon = times.windows(2).filter(|pair| pair[1] - pair[0] <= 9.0);
    assert!(soon.count() < connected, "{connected} times, {times:?}");
    assert_eq!(browser.errors(), Vec::<String>::new());
}

#[test]
fn a_server_with_context_says_so_where_a_recommendation_has_none() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut browser) = Browser::start(folder.path()) else {
        return;
    };
    let flags = ["--context", "device=a phone|tablet", "--context", "hour"];
    let server = Server::start(&folder.path().join("data"), &flags);
    server.ok("PUT", "/v1/items", &items(4, 3));
    browser.resize(1280, 1600);
    browser.open(&browser_url(&server, "u"));
    browser.wait_for("document.querySelectorAll('#next-items > li').length === 4");
    let card = browser.text("#user-card");
    assert!(
        card.contains("Without context: device and hour are 0."),
        "{card}"
    );
    let steps = browser.text("#start");
    let command = steps
        .lines()
        .find(|line| line.contains("/recommend"))
        .unwrap();
    let (_, body) = command.split_once(" -d '").unwrap();
    let body = body.rsplit_once('\'').unwrap().0;
    let sent: Value = serde_json::from_str(body).unwrap();
    assert_eq!(sent["context"]["device"], "a phone");
    assert!(sent["context"]["hour"].is_number());
    server.ok("POST", "/v1/recommend", body);
}

#[test]
fn the_weight_of_clusters_is_told_at_every_gain_and_no_label_of_a_chart_is_cut() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut browser) = Browser::start(folder.path()) else {
        return;
    };
    let server = Server::start(&folder.path().join("data"), &[]);
    server.ok("PUT", "/v1/items", &items(4, 3));
    serve(&server, "u", 2);
    for width in [1280, 400] {
        browser.resize(width, 1600);
        browser.open(&server.url);
        let told = browser.value(
            "(async () => {
                const [{ take }, { world }] = await Promise.all([import('/page/clustering.js'), import('/page/world.js')]);
                const [cut, weights] = [[], []];
                const { fillText } = CanvasRenderingContext2D.prototype;
                CanvasRenderingContext2D.prototype.fillText = function (text, x, ...more) {
                    const right = x + this.measureText(text).actualBoundingBoxRight;
                    if (right > this.canvas.width) cut.push(text);
                    fillText.call(this, text, x, ...more);
                };
                for (const [last, gain, used, clusters] of [[2001, -1, false, 2], [300, 0, false, 2], [1000000, 29, false, 1],
                    [200000000, 300, true, 2], [16, 0, false, 0]]) {
                    take({ fits: 2, fitted_at: last, fitting: false, fit_seconds: 0.1, clusters, unplaced: 0, noise: 0.1, gain, used,
                        effective_parameters: 1, warning: null, history: [{ rounds: Math.ceil(last / 40), clusters: 1 }, { rounds: last, clusters }] });
                    weights.push(document.querySelector('#worth dd').innerText);
                    await new Promise(requestAnimationFrame);
                }
                CanvasRenderingContext2D.prototype.fillText = fillText;
                return { cut, weights };
            })()",
        );
        assert_eq!(told["cut"], json!([]), "{width}");
        let weights = json!([
            "below 27\u{202f}%",
            "27 to 50\u{202f}%",
            "27 to 50\u{202f}%",
            "50\u{202f}% or more",
            "none"
        ]);
        assert_eq!(told["weights"], weights);
    }
    assert_eq!(browser.errors(), Vec::<String>::new());
}
