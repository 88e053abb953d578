//! The page and the API browser in a real browser: what they show, and that axe-core finds nothing to object to.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::axe::axe;
use crate::browser::Browser;
use crate::server::Server;

/// The rules of axe-core that the page breaks, with an element of each.
pub fn broken(browser: &mut Browser, axe: &str) -> Vec<String> {
    if browser.value("typeof axe") != json!("object") {
        browser.call("Runtime.evaluate", json!({"expression": axe}));
    }
    let found = browser.value(
        "axe.run(document, { resultTypes: ['violations'] }).then(found => JSON.stringify(found.violations
            .map(rule => `${rule.id}: ${rule.nodes.length} such as ${rule.nodes[0].html.slice(0, 200)}`)))",
    );
    serde_json::from_str(found.as_str().unwrap()).unwrap()
}

/// Opens a page in light and dark, wide and narrow, brings it into a state, and has axe-core look at it.
pub fn look(browser: &mut Browser, axe: Option<&str>, url: &str, ready: &str) {
    for (width, height) in [(1280, 1600), (390, 800)] {
        for theme in ["light", "dark"] {
            let media = json!({"features": [{"name": "prefers-color-scheme", "value": theme}]});
            browser.call("Emulation.setEmulatedMedia", media);
            browser.resize(width, height);
            browser.call("Page.navigate", json!({"url": "about:blank"}));
            browser.open(url);
            browser.wait_for(ready);
            let overflow = browser.value(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth",
            );
            assert_eq!(overflow, 0, "{url}, {width}, {theme}");
            if let Some(axe) = axe {
                let broken = broken(browser, axe);
                assert_eq!(broken, [""; 0], "{url}, {width}, {theme}");
            }
        }
    }
}

/// A catalogue of 25 drinks with titles, of which one is not available.
fn drinks() -> String {
    (0..25)
        .map(|n| {
            let features = [f64::from(n % 5) / 5.0, f64::from(n % 3) / 3.0, 0.5 + f64::from(n) / 100.0];
            let item = json!({"id": format!("d{n}"), "features": features, "title": format!("Drink {n}"),
                "tags": [if n % 2 == 0 { "hot" } else { "cold" }], "available": n != 3,
                "data": {"maker": format!("Mill {}", n % 4), "price": 4.5}});
            format!("{item}\n")
        })
        .collect()
}

/// A hundred decisions for ten users, with rewards for all or clicks only.
fn serve(server: &Server, only_clicks: bool) {
    for n in 0..40 {
        let asked = json!({"user": format!("u{}", n % 10), "k": 3}).to_string();
        let answer = server.ok("POST", "/v1/recommend", &asked);
        let taken = i32::from(n % 3 == 0);
        let given = match only_clicks {
            true => json!({"decision": answer["decision"], "rewards": [1, 1, 1]}),
            false => json!({"decision": answer["decision"], "rewards": [taken, 0, 1 - taken]}),
        };
        server.ok("POST", "/v1/feedback", &given.to_string());
    }
}

#[test]
fn an_empty_server_shows_the_first_steps_of_a_real_one() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut browser) = Browser::start(folder.path()) else {
        return;
    };
    let axe = axe();
    let keys = folder.path().join("keys");
    std::fs::write(&keys, "admin boss boss-0123456789abcdef\n").unwrap();
    let server = Server::start(
        &folder.path().join("data"),
        &["--keys", keys.to_str().unwrap()],
    );
    let call = |method: &str, path: &str, body: &str| {
        let mut client = crate::server::Client::connect(&server.address).unwrap();
        client.headers = "authorization: Bearer boss-0123456789abcdef\r\n".to_owned();
        let (status, answer) = client.call(method, path, body).unwrap();
        assert_eq!(status / 100, 2, "{path}: {answer}");
        answer
    };
    call("PUT", "/v1/spaces/shop", "{}");
    browser.resize(1280, 1600);
    browser.call("Page.navigate", json!({"url": server.url}));
    browser.wait_for("document.querySelector('#key-form')?.checkVisibility()");
    // A wrong key is not kept. Nothing is shown that is not known.
    browser.value(
        "(field => { field.value = 'no such key'; field.form.requestSubmit(); })(document.querySelector('#key'))",
    );
    browser.wait_for("document.querySelector('#key-why').innerText.includes('not kept')");
    let kept = browser.value("sessionStorage.getItem('sclub-key')");
    let seen = "[...document.querySelectorAll('main > *, #forget-key')].filter(part => part.checkVisibility()).length";
    assert_eq!((kept, browser.value(seen)), (json!(null), json!(0)));
    if let Some(axe) = &axe {
        assert_eq!(broken(&mut browser, axe), [""; 0]);
    }
    browser.value("sessionStorage.setItem('sclub-key', 'boss-0123456789abcdef')");
    let url = format!("{}/?space=shop", server.url.trim_end_matches('/'));
    let shown = "document.querySelector('#start').checkVisibility()";
    look(&mut browser, axe.as_deref(), &url, shown);
    let steps = browser.text("#start");
    let base = format!("{}/v1/spaces/shop", server.url.trim_end_matches('/'));
    for part in [
        "sclub features --items",
        &format!("curl -X PUT {base} -H"),
        &format!("{base}/items -H \"Authorization: Bearer $SCLUB_KEY\""),
        &format!("{base}/recommend"),
        "\"others\": 0",
    ] {
        assert!(steps.contains(part), "{part} is not in {steps}");
    }
    assert!(!steps.contains("boss-"), "no key is shown");
    // An import makes the data folder of a server.
    assert!(!steps.contains("sclub import"), "{steps}");
    browser.open(&server.url);
    browser.wait_for("document.querySelector('#start').innerText.includes('sclub import')");
    browser.open(&url);
    browser.wait_for(shown);
    // With items, the next step is to recommend. With a reward, the steps are gone.
    call("PUT", "/v1/spaces/shop/items", &drinks());
    browser.wait_for("!document.querySelector('#start').innerText.includes('sclub features')");
    let answer = call("POST", "/v1/spaces/shop/recommend", "{\"user\": \"anna\"}");
    let feedback = json!({"decision": answer["decision"], "reward": 1}).to_string();
    call("POST", "/v1/spaces/shop/feedback", &feedback);
    browser.wait_for("!document.querySelector('#start').checkVisibility()");
    assert!(
        !browser.errors().iter().any(|error| !error.contains("401")),
        "{:?}",
        browser.errors()
    );
}

#[test]
fn the_page_shows_items_users_and_experiments_so_that_all_can_read_them() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut browser) = Browser::start(folder.path()) else {
        return;
    };
    let axe = axe();
    let server = Server::start(&folder.path().join("data"), &[]);
    server.ok("PUT", "/v1/items", &drinks());
    serve(&server, false);
    let plan = json!({"name": "which", "arms": [
        {"name": "control", "share": 50, "policy": "sclub-soft"}, {"name": "one", "share": 50, "policy": "linucb-one"}]});
    server.ok("POST", "/v1/experiments", &plan.to_string());
    serve(&server, false);

    // A user of the arm with clusters.
    let is_soft = |user: &String| {
        let preview = server.ok("GET", &format!("/v1/users/{user}/preview"), "");
        preview["policy"] == "sclub-soft"
    };
    let user = (0..10).map(|n| format!("u{n}")).find(is_soft).unwrap();
    let url = format!("{}#user/{user}", server.url);
    let ready = "document.querySelectorAll('#next-items > li').length === 5
        && document.querySelectorAll('#recent-items > li').length > 0
        && document.querySelectorAll('#items-card tbody tr').length === 11
        && document.querySelector('#experiment table')
        || document.querySelector('#items-card tbody [aria-expanded=\"false\"]')?.click()";
    look(&mut browser, axe.as_deref(), &url, ready);
    browser.resize(1280, 1600);
    browser.value("document.querySelector('#items-card [aria-expanded=\"true\"]').click()");

    // What the user would get, and was shown, by titles. An item that is not available is not there.
    let next = browser.value(
        "JSON.stringify([...document.querySelectorAll('#next-items .title')].map(title => title.innerText))",
    );
    let next: HashSet<String> = serde_json::from_str(next.as_str().unwrap()).unwrap();
    assert!(
        next.len() == 5 && next.iter().all(|title| title.starts_with("Drink ")),
        "{next:?}"
    );
    assert!(!next.contains("Drink 3"), "{next:?}");
    let why = browser.text("#next-items");
    assert!(
        why.contains("expected reward") && why.contains("without clusters"),
        "{why}"
    );
    let ids = browser.value(
        "[...document.querySelectorAll('#next-items .label')].every(label =>
            `d${label.querySelector('.title').innerText.slice(6)}` === label.querySelector('.muted').innerText)",
    );
    assert_eq!(ids, true);
    // The arm of a user is named, also if its policy is the one in force.
    let card = browser.text("#user-card");
    assert!(
        card.contains("In the experiment which, this user is in the arm control"),
        "{card}"
    );
    let recent = server.ok("GET", "/v1/users/u1/recent", "");
    let shown = browser.text("#recent-items");
    let title = recent["decisions"][0]["items"][0]["title"]
        .as_str()
        .unwrap();
    assert!(
        shown.contains(title) && shown.contains("reward 1") && shown.contains("reward 0"),
        "{shown}"
    );

    // The catalogue: pages, counts, and a search.
    let rows = |browser: &mut Browser| -> Vec<Vec<String>> {
        let rows = browser.value(
            "JSON.stringify([...document.querySelectorAll('#items-card tbody tr')]
                .map(row => [...row.children].map(cell => cell.innerText.trim())))",
        );
        serde_json::from_str(rows.as_str().unwrap()).unwrap()
    };
    let first = rows(&mut browser);
    assert_eq!(first[3][0], "Drink 3 d3");
    assert_eq!(first[3][1..], ["0", "0", "–", "no", "cold"]);
    let counts = server.ok("GET", "/v1/items?counts=true", "");
    let count = |n: usize| counts["counts"][n]["shown"].to_string();
    assert_eq!(first[0][1], count(0));
    assert!(
        counts["counts"]
            .as_array()
            .unwrap()
            .iter()
            .any(|c| c["shown"].as_u64() > Some(9))
    );
    browser.value("document.querySelector('#items-next').click()");
    browser.wait_for("document.querySelector('#items-page').innerText === '11 to 20 of 25'");
    assert_eq!(rows(&mut browser)[0][0], "Drink 10 d10");
    browser.value(
        "(field => { field.value = 'd2 drink'; field.form.requestSubmit(); })(document.querySelector('#items-search'))",
    );
    browser.wait_for("document.querySelector('#items-count').innerText === '6 items found'");
    browser.value(
        "(field => { field.value = 'mill d3'; field.form.requestSubmit(); })(document.querySelector('#items-search'))",
    );
    browser.wait_for(
        "document.querySelector('#items-count').innerText === '1 item found'
        && document.querySelector('#items-card tbody th').innerText.includes('d3')",
    );
    browser.value(
        "(field => { field.value = ''; field.form.requestSubmit(); })(document.querySelector('#items-search'))",
    );
    browser.value("(size => { size.value = '25'; size.dispatchEvent(new Event('change')); })(document.querySelector('#items-size'))");
    browser.wait_for("document.querySelectorAll('#items-card tbody tr').length === 25");

    // Sorted by keys, largest first, then smallest first. The focus stays.
    let press = |browser: &mut Browser| {
        for kind in ["keyDown", "keyUp"] {
            let key = json!({"type": kind, "key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"});
            browser.call("Input.dispatchKeyEvent", key);
        }
    };
    let sorted = |order: &str| {
        format!(
            "document.activeElement.dataset.name === 'sort shown'
                && document.activeElement.closest('th').ariaSort === '{order}'
                && document.querySelectorAll('#items-card tbody tr').length === 25"
        )
    };
    browser.value("document.querySelector('#items-card [data-name=\"sort shown\"]').focus()");
    for (order, is_ascending) in [("descending", false), ("ascending", true)] {
        press(&mut browser);
        browser.wait_for(&sorted(order));
        let shown: Vec<u64> = rows(&mut browser)
            .iter()
            .map(|row| row[1].parse().unwrap())
            .collect();
        let is_sorted = |a: &u64, b: &u64| if is_ascending { a <= b } else { a >= b };
        assert!(shown.is_sorted_by(is_sorted), "{order}: {shown:?}");
    }
    press(&mut browser);
    browser.wait_for(&sorted("none"));
    // The other fields of an item.
    browser.value("document.querySelector('#items-card [data-name=\"item d3\"]').focus()");
    press(&mut browser);
    browser.wait_for("document.activeElement.ariaExpanded === 'true'");
    let detail = browser.text("#items-card .detail");
    for part in [
        "maker",
        "Mill 3",
        "price",
        "4.5",
        "3 features",
        "0.6, 0, 0.53",
    ] {
        assert!(detail.contains(part), "{part} is not in {detail}");
    }
    // On a phone a shadow shows where the table goes on.
    browser.resize(390, 800);
    let edges = "['before', 'after'].filter(edge => document.querySelector('#items-card .wide').classList.contains(edge)).join()";
    browser.wait_for(&format!("{edges} === 'after'"));
    browser.value("document.querySelector('#items-card .wide').scrollLeft = 9999");
    browser.wait_for(&format!("{edges} === 'before'"));
    browser.resize(1280, 1600);

    // The experiment, and figures over time that were there before the page.
    let experiment = browser.text("#experiment");
    assert!(
        experiment.contains("which, running") && experiment.contains("linucb-one"),
        "{experiment}"
    );
    let control = browser.text("#experiment tbody th");
    assert_eq!(control, "control", "it is not said twice");
    for range in ["24h", "60d", "10m"] {
        browser.value(&format!(
            "document.querySelector('#ranges [value=\"{range}\"]').click()"
        ));
        browser.wait_for(&format!(
            "document.querySelector('#chart-traffic').dataset.range === '{range}'
                && document.querySelector('#chart-traffic').dataset.points > 0"
        ));
        let pressed = browser.value("document.querySelector('#ranges [aria-pressed=true]').value");
        assert_eq!(pressed, range);
        // A young server's charts begin at its first data, but for the least length.
        let span =
            browser.value("Number(document.querySelector('#chart-traffic').dataset.span) / 60000");
        let longest = match range {
            "10m" => 10.0,
            "24h" => 15.0,
            _ => 360.0,
        };
        assert!(span.as_f64() <= Some(longest), "{range}: {span} minutes");
    }
    browser.value("document.querySelector('#ranges [value=\"24h\"]').click()");
    browser.open(&server.url);
    browser.wait_for("document.querySelector('#chart-traffic').dataset.range === '24h'");
    browser.wait_for("document.querySelector('#chart-traffic').dataset.points > 0");
    assert_eq!(browser.errors(), Vec::<String>::new());
    server.ok("POST", "/v1/experiments/which/end", "{\"winner\": \"one\"}");
    browser.open(&server.url);
    browser.wait_for("document.querySelector('#experiment-note').innerText.includes('ended')");
    let note = browser.text("#experiment-note");
    let (ended, time) = note.rsplit_once(" is in force since ").unwrap();
    assert_eq!(ended, "which, ended; one");
    assert!(time.contains(", ") && time.contains(':'), "{time}");

    // The words of counts: none has a fraction.
    let facts = browser.value(
        "JSON.stringify([...document.querySelectorAll('#cluster-card .facts > div, .figures > div')].map(e => e.innerText))",
    );
    assert!(!facts.as_str().unwrap().contains("Frequency"), "{facts}");
}

#[test]
fn warnings_say_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut browser) = Browser::start(folder.path()) else {
        return;
    };
    let axe = axe();
    let server = Server::start(&folder.path().join("data"), &["--policy", "sclub"]);
    server.ok("PUT", "/v1/items", &drinks());
    serve(&server, true);
    let ready = "document.querySelector('#banner').checkVisibility()";
    look(&mut browser, axe.as_deref(), &server.url, ready);
    let banner = browser.text("#banner");
    for part in [
        "All 120 rewards so far are 1: there is nothing to learn from them.",
        "\"others\": 0",
        "--unanswered 0 --after 30m",
    ] {
        assert!(banner.contains(part), "{part} is not in {banner}");
    }
    // Nothing is a favourite then.
    let card = browser.text("#cluster-card");
    assert!(card.contains("Not known: all rewards are equal."), "{card}");
    // The link leads to the call.
    browser.value("document.querySelector('#banner a').click()");
    browser.wait_for("document.querySelector('#operations-recommend-feedback.is-open') !== null");
    // And no cluster helps.
    let server = Server::start(&folder.path().join("soft"), &[]);
    server.ok("PUT", "/v1/items", &drinks());
    serve(&server, true);
    browser.open(&server.url);
    assert!(
        browser
            .text("#worth")
            .starts_with("Not known: all rewards are equal")
    );

    // Reasons why a log cannot be written, and what there is to do about each.
    let told = |browser: &mut Browser, change: Value| {
        let text = browser.value(&format!(
            "Promise.all([import('/page/figures.js'), import('/page/world.js')]).then(([{{ warn }}, {{ world }}]) => {{
                const before = {{ ...world }};
                const {{ state, ...others }} = {change};
                Object.assign(world, others, {{ state: {{ ...world.state, ...state }} }});
                warn();
                const text = `${{document.querySelector('#banner').innerText}} ${{document.querySelector('#writable').innerText}}`;
                Object.assign(world, before);
                warn();
                return text;
            }})"
        ));
        text.as_str().unwrap().to_owned()
    };
    for (reason, remedy) in [
        ("No space left on device", "Free some space on the disk"),
        ("the disk has not answered for 12 s", "and at the network"),
        ("Read-only file system", "mounted read-only"),
        ("Permission denied", "Let the server’s user write"),
        ("Too many open files", "Allow the server more open files"),
        ("a file is damaged", "The server’s log has the details."),
    ] {
        let state = json!({"state": {"writable": false, "read_only_reason": reason}});
        let text = told(&mut browser, state);
        for part in [
            "The server is read-only and learns nothing",
            &reason[1..],
            remedy,
            "goes on by itself.",
            "Recommendations go on. Feedback that is not accepted must be sent again; it counts once.",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }
    // A node whose partitions do not tell each other: only the stream says so.
    let node = |unwritable: Value| json!({"unwritable": unwritable, "state": {"node": "a", "partitions": 4}});
    let text = told(&mut browser, node(json!(1)));
    for part in [
        "Not all partitions can be written",
        "Is NATS running, with a majority of its servers",
        "must be sent again",
        "read-only",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let text = told(&mut browser, node(Value::Null));
    assert!(
        !text.contains("NATS") && text.contains("writable"),
        "{text}"
    );
}

#[test]
fn the_calls_are_described_in_the_order_of_use() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut browser) = Browser::start(folder.path()) else {
        return;
    };
    let axe = axe();
    let server = Server::start(&folder.path().join("data"), &[]);
    let url = format!("{}/docs", server.url.trim_end_matches('/'));
    let ready = "document.querySelectorAll('.opblock').length > 30";
    look(&mut browser, axe.as_deref(), &url, ready);
    let calls = browser.value(
        "JSON.stringify([...document.querySelectorAll('.opblock')].map(call =>
            `${call.querySelector('.opblock-summary-method').innerText} ${call.querySelector('.opblock-summary-path').dataset.path}`))",
    );
    let calls: Vec<String> = serde_json::from_str(calls.as_str().unwrap()).unwrap();
    let at = |call: &str| {
        calls
            .iter()
            .position(|other| other == call)
            .unwrap_or_else(|| panic!("{call}: {calls:?}"))
    };
    let order = [
        "PUT /v1/items",
        "GET /v1/items",
        "POST /v1/recommend",
        "POST /v1/feedback",
        "POST /v1/recommend/batch",
        "POST /v1/feedback/batch",
        "GET /v1/users/{id}",
        "GET /v1/users/{id}/preview",
        "GET /v1/clusters",
        "GET /v1/state",
        "GET /metrics",
        "GET /v1/experiments",
        "POST /v1/experiments",
        "POST /v1/experiments/{name}/end",
        "DELETE /v1/users/{id}",
        "GET /v1/admin/export",
        "GET /v1/spaces",
        "DELETE /v1/spaces/{space}",
    ];
    let places: Vec<usize> = order.iter().map(|call| at(call)).collect();
    assert!(places.is_sorted(), "{calls:?}");
    assert_eq!(
        (places[0], at("GET /v1/experiments") + 1),
        (0, at("POST /v1/experiments"))
    );
    // Every call has a place: one that the list does not know would come after this one.
    assert_eq!(
        calls.last().map(String::as_str),
        Some("DELETE /v1/spaces/{space}")
    );
    // Summaries are plain text, and the introduction has an example.
    let summaries = browser.value("[...document.querySelectorAll('.opblock-summary-description, .info')].map(part => part.innerText).join()");
    let summaries = summaries.as_str().unwrap();
    assert!(
        !summaries.contains('`') && summaries.contains("{\"user\": \"anna\", \"k\": 3}"),
        "{summaries}"
    );
    // With some calls open.
    browser.value("[...document.querySelectorAll('.opblock-summary-control')].slice(0, 7).forEach(call => call.click())");
    browser.wait_for("document.querySelectorAll('.opblock.is-open .responses-table').length === 7");
    if let Some(axe) = &axe {
        for theme in ["light", "dark"] {
            let media = json!({"features": [{"name": "prefers-color-scheme", "value": theme}]});
            browser.call("Emulation.setEmulatedMedia", media);
            browser.wait_for(&format!(
                "document.documentElement.classList.contains('dark-mode') === {}",
                theme == "dark"
            ));
            assert_eq!(broken(&mut browser, axe), [""; 0], "{theme}");
        }
    }
    assert_eq!(browser.errors(), Vec::<String>::new());
}
