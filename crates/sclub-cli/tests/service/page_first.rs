//! The page as a first-time user meets it: empty servers, spaces, experiments, policies without clusters, a phone.

use serde_json::{Value, json};

use crate::accessible::look;
use crate::axe::axe;
use crate::browser::Browser;
use crate::hard_pages::{browser_url, serve};
use crate::page::explain;
use crate::server::{Client, Server, items};

/// The address of a page.
fn address(server: &Server, path: &str) -> String {
    format!("{}{path}", server.url.trim_end_matches('/'))
}

/// Opens a page that may never be ready.
fn go(browser: &mut Browser, url: &str) {
    browser.call("Page.navigate", json!({"url": "about:blank"}));
    browser.call("Page.navigate", json!({"url": url}));
}

fn is_seen(browser: &mut Browser, what: &str) -> Value {
    browser.value(&format!(
        "document.querySelector('{what}')?.checkVisibility() ?? false"
    ))
}

/// Clicks on a part as soon as it is there.
fn click(browser: &mut Browser, what: &str) {
    browser.wait_for(&format!("document.querySelector('{what}')"));
    browser.value(&format!("document.querySelector('{what}').click()"));
}

#[test]
fn a_user_card_describes_the_policy_that_serves_the_user() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut browser) = Browser::start(folder.path()) else {
        return;
    };
    let server = Server::start(&folder.path().join("data"), &[]);
    server.ok("PUT", "/v1/items", &items(6, 3));
    let users: Vec<String> = (0..12).map(|n| format!("u{n}")).collect();
    let early: Vec<String> = (0..12).map(|n| format!("e{n}")).collect();
    for user in &early {
        serve(&server, user, 1);
    }
    let plan = json!({"name": "which", "arms": [
        {"name": "control", "share": 50, "policy": "linucb-one"}, {"name": "test", "share": 50, "policy": "sclub-soft"}]});
    server.ok("POST", "/v1/experiments", &plan.to_string());
    for user in &users {
        serve(&server, user, 2);
    }
    server.settle();
    let in_arm = |users: &[String], arm: &str| {
        let is_there = |user: &&String| {
            let preview = server.ok("GET", &format!("/v1/users/{user}/preview"), "");
            preview["arm"] == arm
        };
        users.iter().find(is_there).unwrap().clone()
    };
    let card = |users: &[String], arm: &str, browser: &mut Browser| {
        let user = in_arm(users, arm);
        go(browser, &browser_url(&server, &user));
        browser.wait_for(&format!(
            "document.querySelector('#user-card h3')?.innerText === '{user}'"
        ));
        browser.text("#user-card")
    };
    browser.resize(1280, 1600);
    let one = card(&users, "control", &mut browser);
    for part in [
        "by the user’s own rewards",
        "The user’s estimate and the cluster’s",
        "Its clusters are not those on the map",
        "The policy linucb-one never splits or merges clusters.",
    ] {
        assert!(one.contains(part), "{part} is not in {one}");
    }
    for part in ["first fit", "without clusters", "Share of all rewards"] {
        assert!(!one.contains(part), "{part} is in {one}");
    }
    let since = "linucb-one began anew with an experiment, and has learned 6 rewards of this user since then";
    assert!(one.contains(since), "{one}");
    let new = card(&early, "control", &mut browser);
    for part in [
        "Rewards learned\n0\n",
        "has learned 0 rewards of this user since then",
        "Cluster\nnone",
    ] {
        assert!(new.contains(part), "{part} is not in {new}");
    }
    let said = explain(&server, &[&in_arm(&users, "control")]);
    for part in [
        ": 6 rewards, served from cluster 1 of 12 users\n",
        "In the experiment which: in the arm control, served with linucb-one; its clusters are not those of the policy in force.",
    ] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    let said = explain(&server, &[&in_arm(&users, "test")]);
    assert!(
        said.contains("in the arm test, served with sclub-soft.\n"),
        "{said}"
    );
    let links = "document.querySelectorAll('#user-card a[href^=\"#cluster\"]').length";
    assert_eq!(browser.value(links), 0, "the map has other clusters");
    let soft = card(&users, "test", &mut browser);
    assert!(
        soft.contains("Estimate without clusters and with them")
            && !soft.contains("not those on the map"),
        "{soft}"
    );
    // Its winner is in force, so its clusters are on the map.
    let winner = "{\"winner\": \"control\"}";
    server.ok("POST", "/v1/experiments/which/end", winner);
    go(&mut browser, &browser_url(&server, &users[0]));
    browser.wait_for(&format!("{links} > 0"));
    // The clusters are those of the users that it knows, and no user of it has a share of the rewards of another policy.
    let says = |of: &str, text: &str| {
        format!("document.querySelector('#{of}').innerText.includes('{text}')")
    };
    browser.wait_for(&says("map-empty", "12 users so far, in one cluster"));
    browser.wait_for(&says("under-clusters", "with 12 of 24 users"));
    let shown = browser.text("#user-card") + &browser.text("#cluster-card");
    assert_eq!(shown.matches("linucb-one began anew with").count(), 2);
    assert!(!shown.contains("Share of all rewards"), "{shown}");
    // It is read on a phone without scrolling in the map.
    let fits_on_a_phone = |browser: &mut Browser| {
        browser.resize(390, 800);
        let more =
            "(box => box.scrollHeight - box.clientHeight)(document.querySelector('#map-empty'))";
        assert_eq!(browser.value(more), 0);
        browser.resize(1280, 1600);
    };
    fits_on_a_phone(&mut browser);
    // Another one that has learned nothing yet is put in force while the page is open.
    let plan = json!({"name": "again", "arms": [
        {"name": "control", "share": 50, "policy": "linucb-one"}, {"name": "test", "share": 50, "policy": "sclub"}]});
    server.ok("POST", "/v1/experiments", &plan.to_string());
    let winner = "{\"winner\": \"test\"}";
    server.ok("POST", "/v1/experiments/again/end", winner);
    browser.wait_for(&says("map-empty", "No user is known to this policy yet"));
    browser.wait_for(&says("under-clusters", "with 0 of 24 users"));
    fits_on_a_phone(&mut browser);
    browser.wait_for(&says(
        "user-card",
        "sclub began anew with an experiment, and has learned 0 rewards",
    ));
    let nobody =
        "The policy sclub has not learned a reward of a user since it began with an experiment.";
    browser.wait_for(&says("cluster-card", nobody));
    let text = browser.text("body");
    for part in ["All 0 users", "of 0 users", "has given a reward yet"] {
        assert!(!text.contains(part), "{part} is in {text}");
    }
    assert_eq!(browser.text("#figure-singletons"), "–");
    serve(&server, &users[0], 1);
    browser.wait_for(&says("user-card", "and has learned 3 rewards of this user"));
    browser.wait_for(&says("map-empty", "1 user so far"));
    assert_eq!(browser.errors(), Vec::<String>::new());
}

/// The item that the first steps print.
fn printed(browser: &mut Browser) -> String {
    browser.wait_for("document.querySelector('#start')?.innerText.includes('curl -X PUT')");
    let steps = browser.text("#start");
    let command = steps.lines().find(|line| line.starts_with("curl -X PUT"));
    let (_, item) = command.unwrap().split_once(" '").unwrap();
    item.rsplit_once('\'').unwrap().0.to_owned()
}

#[test]
fn the_first_steps_print_an_item_that_the_server_takes() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut browser) = Browser::start(folder.path()) else {
        return;
    };
    let server = Server::start(&folder.path().join("data"), &["--dim", "6"]);
    for (name, dim) in [("four", 4), ("many", 400)] {
        let settings = json!({"dim": dim}).to_string();
        let made = server.call("PUT", &format!("/v1/spaces/{name}"), &settings);
        assert_eq!(made.0, 201, "{}", made.1);
    }
    browser.resize(1280, 1600);
    browser.open(&server.url);
    let steps = browser.text("#start");
    for part in [
        "6 of them on this server",
        "--out features --dim 6",
        // With fewer rounds than these, clusters are of no use.
        "--users 500 --clusters 8 --dim 5 --rounds 100000",
    ] {
        assert!(steps.contains(part), "{part} is not in {steps}");
    }
    let item = printed(&mut browser);
    server.ok("PUT", "/v1/items", &item);
    browser.open(&address(&server, "/?space=four"));
    let item = printed(&mut browser);
    server.ok("PUT", "/v1/spaces/four/items", &item);
    browser.open(&address(&server, "/?space=many"));
    let item = printed(&mut browser);
    assert!(item.contains("[… 400 numbers …]"), "{item}");
    assert_eq!(browser.errors(), Vec::<String>::new());
}

#[test]
fn the_calls_of_a_space_are_described_and_tried_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut browser) = Browser::start(folder.path()) else {
        return;
    };
    let server = Server::start(&folder.path().join("data"), &[]);
    assert_eq!(server.call("PUT", "/v1/spaces/shop", "{}").0, 201);
    browser.resize(1280, 1600);
    browser.open(&address(&server, "/?space=shop"));
    let links = browser.value(
        "JSON.stringify([...document.querySelectorAll('a[href^=\"/docs\"]')].map(link => link.getAttribute('href')))",
    );
    assert_eq!(links, "[\"/docs?space=shop\",\"/docs?space=shop\"]");
    browser.value("document.querySelector('.tools a').click()");
    browser.wait_for(
        "location.pathname === '/docs' && document.documentElement?.dataset.ready === '1'",
    );
    let back = browser.value("document.querySelector('.tools a').getAttribute('href')");
    assert_eq!(back, "/?space=shop");
    let paths = browser.value(
        "JSON.stringify([...document.querySelectorAll('.opblock-summary-path')].map(path => path.dataset.path))",
    );
    let paths: Vec<String> = serde_json::from_str(paths.as_str().unwrap()).unwrap();
    assert_eq!(paths[0], "/v1/spaces/shop/items", "in the order of use");
    assert!(
        paths
            .iter()
            .all(|path| path.starts_with("/v1/spaces/shop/")),
        "{paths:?}"
    );
    let call = "#operations-items-put_items";
    for part in [".opblock-summary-control", ".try-out__btn", ".execute"] {
        click(&mut browser, &format!("{call} {part}"));
    }
    browser.wait_for(&format!(
        "document.querySelector('{call} .live-responses-table tbody .response-col_status')?.innerText.startsWith('200')"
    ));
    let of_space = server.ok("GET", "/v1/spaces/shop/state", "");
    assert!(of_space["items"].as_u64() > Some(0), "{of_space}");
    assert_eq!(server.state()["items"], 0);
    assert_eq!(browser.errors(), Vec::<String>::new());
}

#[test]
fn a_space_that_does_not_exist_is_not_a_lost_connection() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut browser) = Browser::start(folder.path()) else {
        return;
    };
    let axe = axe();
    let server = Server::start(&folder.path().join("data"), &[]);
    assert_eq!(server.call("PUT", "/v1/spaces/shop", "{}").0, 201);
    browser.resize(1280, 1600);
    go(&mut browser, &address(&server, "/?space=nope"));
    browser.wait_for("document.querySelector('#banner')?.checkVisibility()");
    let banner = browser.text("#banner");
    assert!(banner.starts_with("There is no space ‘nope’."), "{banner}");
    let links = browser.value(
        "[...document.querySelectorAll('#banner a')].map(link => `${link.innerText} ${link.getAttribute('href')}`).join()",
    );
    assert_eq!(links, "default /,shop /?space=shop");
    assert_eq!(browser.text("#live"), "no such space");
    if let Some(axe) = &axe {
        let broken = crate::accessible::broken(&mut browser, axe);
        assert_eq!(broken, [""; 0]);
    }
    browser.open(&address(&server, "/docs?space=nope"));
    let banner = browser.text("#banner");
    assert!(banner.contains("of the space ‘nope’"), "{banner}");
    // It is made later.
    go(&mut browser, &address(&server, "/?space=nope"));
    browser.wait_for("document.querySelector('#banner')?.checkVisibility()");
    assert_eq!(server.call("PUT", "/v1/spaces/nope", "{}").0, 201);
    browser.wait_for(
        "!document.querySelector('#banner').checkVisibility() && document.querySelector('#live').innerText === 'live'",
    );
}

#[test]
fn a_key_of_another_space_is_named_as_that() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut browser) = Browser::start(folder.path()) else {
        return;
    };
    let keys = folder.path().join("keys");
    let both = "admin boss boss-0123456789abcdef\nread@shop eye eye-0123456789abcdef\n";
    std::fs::write(&keys, both).unwrap();
    let keys = keys.to_str().unwrap();
    let server = Server::start(&folder.path().join("data"), &["--keys", keys]);
    let mut boss = Client::connect(&server.address).unwrap();
    boss.headers = "authorization: Bearer boss-0123456789abcdef\r\n".to_owned();
    assert_eq!(boss.call("PUT", "/v1/spaces/shop", "{}").unwrap().0, 201);
    browser.resize(1280, 1600);
    go(&mut browser, &address(&server, "/?space=nope"));
    browser.wait_for("document.querySelector('#key-form')?.checkVisibility()");
    browser.value(
        "(field => { field.value = 'eye-0123456789abcdef'; field.form.requestSubmit(); })(document.querySelector('#key'))",
    );
    browser.wait_for("document.querySelector('#key-why').innerText !== ''");
    assert_eq!(
        browser.text("#key-why"),
        "This key is not a key of the space ‘nope’, or there is no such space."
    );
    // Its own space has the same key.
    go(&mut browser, &address(&server, "/docs?space=shop"));
    browser.wait_for("document.querySelectorAll('.opblock').length > 20");
}

#[test]
fn a_policy_without_clusters_is_not_shown_as_one_that_found_none() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut browser) = Browser::start(folder.path()) else {
        return;
    };
    let axe = axe();
    for flags in [["--policy", "gaussian"], ["--clusters", "false"]] {
        let server = Server::start(&folder.path().join(flags[0]), &flags);
        server.ok("PUT", "/v1/items", &items(6, 3));
        for n in 0..9 {
            // The first fit is made after 33 rounds.
            serve(&server, &format!("u{n}"), 5);
        }
        server.settle();
        let ready = "document.querySelectorAll('#next-items > li').length === 5
            && document.querySelector('#worth dt')";
        let url = browser_url(&server, "u1");
        look(&mut browser, axe.as_deref(), &url, ready);
        browser.resize(1280, 1600);
        let text = browser.text("#unclustered");
        let policy = &server.state()["policy"];
        let said = format!("The policy {} makes no clusters:", policy.as_str().unwrap());
        assert!(text.contains(&said), "{text}");
        for part in [
            "#map",
            "#cluster-card",
            "#chart-clusters",
            "#figure-clusters",
            "#events",
            "#placement",
        ] {
            assert_eq!(is_seen(&mut browser, part), false, "{part}, {flags:?}");
        }
        let text = browser.text("body");
        for part in [
            "Not placed",
            "none were found",
            "Benefit",
            "none of them",
            "without clusters",
        ] {
            assert!(!text.contains(part), "{part} is in {text}");
        }
        let card = browser.text("#user-card");
        assert!(
            card.contains(&said) && card.contains("The user’s estimate"),
            "{card}"
        );
        assert!(browser.text("#worth").contains("Noise"));
        assert_eq!(browser.errors(), Vec::<String>::new());
        // Before the server ends.
        browser.call("Page.navigate", json!({"url": "about:blank"}));
    }
}

#[test]
fn parts_that_scroll_say_so_and_buttons_are_no_walls() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut browser) = Browser::start(folder.path()) else {
        return;
    };
    let server = Server::start(&folder.path().join("data"), &["--policy", "sclub"]);
    browser.resize(390, 800);
    browser.open(&server.url);
    // Height and width: there is room beside the word, which is about 30 pixels wide.
    let sizes = browser.value(
        "JSON.stringify([...document.querySelectorAll('#start .command')].map(command => (button =>
            [command.querySelector('code').offsetHeight, button.offsetHeight, button.offsetWidth])(command.querySelector('button'))))",
    );
    let sizes: Vec<[u64; 3]> = serde_json::from_str(sizes.as_str().unwrap()).unwrap();
    assert!(sizes.iter().any(|[code, ..]| *code > 60), "{sizes:?}");
    assert!(
        sizes.iter().all(|[_, high, wide]| *high < 50 && *wide > 50),
        "{sizes:?}"
    );

    server.ok("PUT", "/v1/items", &items(6, 3));
    serve(&server, "u", 15);
    // Names of the greatest length, without a place to break them, make nothing wider than a phone.
    let space = "s".repeat(63);
    let made = server.call("PUT", &format!("/v1/spaces/{space}"), "{}");
    assert_eq!(made.0, 201, "{}", made.1);
    let plan = json!({"name": "n".repeat(64), "arms": [
        {"name": "control", "share": 50, "policy": "sclub"}, {"name": "one", "share": 50, "policy": "linucb-one"}]});
    server.ok("POST", "/v1/experiments", &plan.to_string());
    let wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth";
    go(&mut browser, &address(&server, &format!("/?space={space}")));
    browser.wait_for("document.querySelector('#space')?.checkVisibility() && document.querySelector('#about').innerText.includes('sss')");
    assert_eq!(browser.value(wide), 0);
    go(&mut browser, &browser_url(&server, "u"));
    let marks = |of: &str, edges: &str| {
        format!(
            "['before', 'after', 'above', 'below'].filter(edge => document.querySelector('{of}')?.classList.contains(edge)).join() === '{edges}'"
        )
    };
    browser.wait_for(&marks("#experiment .wide", "after"));
    browser.wait_for("document.querySelector('#space').checkVisibility()");
    assert_eq!(browser.value(wide), 0);
    browser.wait_for(&marks("#recent-items", "below"));
    browser.value("document.querySelector('#recent-items').scrollTop = 60");
    browser.wait_for(&marks("#recent-items", "above,below"));
    browser.value("document.querySelector('#recent-items').scrollTop = 99999");
    browser.wait_for(&marks("#recent-items", "above"));
    browser.wait_for(&marks("#events", ""));
    let change = json!({"kind": "merge", "kept": 1, "gone": 2, "at": 0, "round": 1, "user": "u",
        "why": {"reason": "estimates", "estimates": {"distance": 1, "threshold": 2}}});
    browser.value(&format!(
        "import('/page/events.js').then(({{ add }}) => add(Array.from({{ length: 40 }}, (_, change) => ({{ ...{change}, change }}))))"
    ));
    browser.wait_for(&marks("#events", "below"));
    // A time is on one line in the narrowest column.
    browser.resize(1280, 1600);
    let lines = browser.value(
        "(time => { time.textContent = '18 min ago'; time.parentElement.style.width = '6rem'; return time.getClientRects().length; })(document.querySelector('#user-card .facts time'))",
    );
    assert_eq!(lines, 1);
    assert_eq!(browser.errors(), Vec::<String>::new());
}
