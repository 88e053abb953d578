//! The page when things are not as they should be: strange texts, a server that is gone, a clock that was set back.

use sclub_server::ports::free_ports;
use serde_json::{Value, json};

use crate::accessible::broken;
use crate::axe::axe;
use crate::browser::Browser;
use crate::server::{Server, items, sclub};

/// Decisions of three items for a user, with a reward for the first.
pub fn serve(server: &Server, user: &str, decisions: usize) {
    for _ in 0..decisions {
        let asked = json!({"user": user, "k": 3}).to_string();
        let answer = server.ok("POST", "/v1/recommend", &asked);
        let given = json!({"decision": answer["decision"], "rewards": [1, 0, 0]}).to_string();
        server.ok("POST", "/v1/feedback", &given);
    }
}

#[test]
fn strange_texts_are_shown_as_they_are_and_break_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut browser) = Browser::start(folder.path()) else {
        return;
    };
    let server = Server::start(&folder.path().join("data"), &[]);
    let long = "x".repeat(1000);
    let tags: Vec<String> = (0..9).map(|n| format!("{n}{}", "t".repeat(90))).collect();
    let described = [
        json!({"id": "<b>i</b>", "title": "<img src=x onerror=window.broken=1>", "tags": ["<i>t</i>"]}),
        json!({"id": "turned", "title": "\u{202e}backwards", "tags": ["\u{202e}tag"]}),
        json!({"id": "long".repeat(50), "title": long, "tags": tags}),
        json!({"id": "a/b 50%?#", "title": "plain"}),
    ];
    for mut item in described {
        item["features"] = json!([1, 0.5]);
        server.ok("PUT", "/v1/items", &item.to_string());
    }
    let user = "<script>window.broken=2</script>/%2e?#\u{202e}";
    serve(&server, user, 3);
    let one = json!({"user": user, "k": 1, "candidates": ["long".repeat(50)]}).to_string();
    server.ok("POST", "/v1/recommend", &one);
    // A name that a row cuts is whole below it, as all tags are.
    let opened =
        "(detail => detail.innerText)([...document.querySelectorAll('#items-card tbody tr')]
        .find(row => row.innerText.includes('xxx')).nextSibling)";
    for (width, height) in [(1280, 1600), (390, 800)] {
        browser.resize(width, height);
        browser.open(&server.url);
        browser.wait_for("document.querySelectorAll('#items-card tbody tr').length === 4");
        browser.value(&format!(
            "(field => {{ field.value = {}; field.form.requestSubmit(); }})(document.querySelector('#user-search'))",
            json!(user)
        ));
        browser.wait_for("document.querySelectorAll('#recent-items > li').length === 4");
        let name = browser.value("document.querySelector('#user-card h3').textContent");
        assert_eq!(name, user);
        // The card stays after a reload: the id is in the address.
        browser.open(&browser_url(&server, user));
        browser.wait_for("document.querySelectorAll('#next-items > li').length === 4");
        browser.wait_for("document.querySelectorAll('#items-card tbody tr').length === 4");
        browser.value("[...document.querySelectorAll('#items-card tbody button')].find(button => button.innerText.includes('xxx')).click()");
        let detail = browser.value(opened);
        let detail = detail.as_str().unwrap();
        let whole = tags.iter().chain([&long]);
        let missing: Vec<_> = whole.filter(|text| !detail.contains(*text)).collect();
        assert_eq!(missing, Vec::<&String>::new(), "{width}");
        let made = browser.value(
            "document.querySelectorAll('main img, main script, #items-card i, #items-card b').length + (window.broken ?? 0)",
        );
        assert_eq!(made, 0, "no text became markup");
        let wide = browser
            .value("document.documentElement.scrollWidth - document.documentElement.clientWidth");
        assert_eq!(wide, 0, "{width}");
        // Beside the longest name there is the reward.
        let cut = browser.value(
            "(list => [...list.querySelectorAll('ul li')].filter(item =>
                item.lastChild.getBoundingClientRect().right > list.getBoundingClientRect().right).length)
                (document.querySelector('#recent-items'))",
        );
        assert_eq!(cut, 0, "{width}");
        // A title that turns the direction turns only itself: its id comes after it.
        let turned = browser.value(
            "(row => row.querySelector('.title').getBoundingClientRect().right
                <= row.querySelector('.muted').getBoundingClientRect().left)
                ([...document.querySelectorAll('#items-card tbody th')].find(row => row.textContent.includes('turned')))",
        );
        assert_eq!(turned, true);
    }
    browser.resize(1280, 1600);
    // All columns are in sight beside a title of a thousand letters, which is a tooltip as a whole.
    browser.wait_for(
        "(wide => wide.scrollWidth <= wide.clientWidth)(document.querySelector('#items-card .wide'))",
    );
    let whole = browser.value("document.querySelector('#items-card .title[title]').title.length");
    assert_eq!(whole, 1000);

    // Blanks belong to an id, if there is such a user. They are seen.
    for user in ["  ", " user3", "user3"] {
        serve(&server, user, 1);
    }
    let mut search = |typed: &str, name: &str| {
        browser.value(&format!(
            "(field => {{ field.value = '{typed}'; field.form.requestSubmit(); }})(document.querySelector('#user-search'))"
        ));
        browser.wait_for(&format!(
            "document.querySelector('#user-card h3')?.textContent === '{name}'"
        ));
    };
    search("  ", "“  ”");
    search("user3", "user3");
    search(" user3", "“ user3”");
    search("..", "..");
    let card = browser.text("#user-card");
    assert!(
        card.contains("A browser cannot look up the ids “.” and “..”"),
        "{card}"
    );
    let asked = browser.requests();
    let asked = asked.iter().filter(|url| url.contains("/v1/recent"));
    assert_eq!(asked.count(), 0);
    assert_eq!(browser.errors(), Vec::<String>::new());
    // There is no such user: it is looked for without the blank.
    browser.value(
        "(field => { field.value = 'user3 '; field.form.requestSubmit(); })(document.querySelector('#user-search'))",
    );
    browser.wait_for("document.querySelector('#user-card h3')?.textContent === 'user3'");
    browser.open(&browser_url(&server, "  "));
    browser.wait_for("document.querySelector('#user-card h3')");
    if let Some(axe) = axe() {
        assert_eq!(broken(&mut browser, &axe), [""; 0]);
    }
}

/// The address of a user's card.
pub fn browser_url(server: &Server, user: &str) -> String {
    let encoded: String = user.bytes().map(|byte| format!("%{byte:02x}")).collect();
    format!("{}#user/{encoded}", server.url)
}

#[test]
fn a_server_that_is_gone_is_not_shown_as_one_without_traffic() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut browser) = Browser::start(folder.path()) else {
        return;
    };
    let data = folder.path().join("data");
    // The port of a server that is started again must not be taken meanwhile.
    let address = format!("127.0.0.1:{}", free_ports(1).unwrap()[0]);
    let start = || {
        let mut command = sclub();
        command.args(["serve", "--log", "warn", "--addr", &address, "--data"]);
        command.arg(&data);
        Server::from(command)
    };
    let server = start();
    server.ok("PUT", "/v1/items", &items(4, 3));
    serve(&server, "u", 5);
    browser.resize(1280, 1600);
    browser.open(&server.url);
    browser
        .wait_for("document.querySelector('#read-traffic').innerText.startsWith('Last second: ')");
    browser.wait_for("document.querySelector('#figure-recommends').innerText === '0'");
    // The stream tells of these rewards before the state is read again.
    serve(&server, "u", 5);
    browser.wait_for("document.querySelector('#figure-rounds').innerText === '10'");
    server.kill();
    browser.wait_for("document.querySelector('#banner').checkVisibility()");
    let banner = browser.text("#banner");
    assert!(banner.contains("The server does not answer"), "{banner}");
    assert_eq!(browser.text("#figure-recommends"), "–");
    assert_eq!(browser.text("#figure-rounds"), "10");
    let read = browser.text("#read-traffic");
    assert!(read.starts_with("Before the connection was lost"), "{read}");
    browser.value(
        "(field => { field.value = 'u'; field.form.requestSubmit(); })(document.querySelector('#user-search'))",
    );
    browser.wait_for("document.querySelector('#user-card').innerText.includes('does not answer')");
    browser.value("document.querySelector('#ranges [value=\"24h\"]').click()");
    let traffic = "document.querySelector('#chart-traffic').innerText";
    browser.wait_for(&format!(
        "{traffic}.includes('not loaded: the server does not answer')"
    ));
    assert_eq!(
        browser.text("#read-traffic"),
        "Not loaded: the server does not answer."
    );
    let server = start();
    browser.wait_for("!document.querySelector('#banner').checkVisibility()");
    browser.wait_for("document.querySelectorAll('#recent-items > li').length > 0");
    browser.wait_for("document.querySelector('#read-traffic').innerText.startsWith('This minute')");
    browser.value("document.querySelector('#ranges [value=\"10m\"]').click()");
    serve(&server, "u", 5);
    browser
        .wait_for("document.querySelector('#read-traffic').innerText.startsWith('Last second: ')");
}

#[test]
fn splits_and_merges_are_shown_if_the_policy_makes_them() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut browser) = Browser::start(folder.path()) else {
        return;
    };
    for (policy, text) in [
        ("linucb-one", "never splits or merges"),
        ("sclub", "do not differ enough yet"),
    ] {
        let data = folder.path().join(policy);
        let server = Server::start(&data, &["--policy", policy]);
        server.ok("PUT", "/v1/items", &items(4, 3));
        for user in ["anna", "bob"] {
            serve(&server, user, 1);
        }
        browser.open(&server.url);
        browser.wait_for(&format!(
            "document.querySelector('#map-empty').innerText.includes('{text}')"
        ));
        let events = browser.value("document.querySelector('#events-title').checkVisibility()");
        assert_eq!(events, policy == "sclub");
    }
}

#[test]
fn charts_go_on_when_the_clock_is_set_back_and_rates_are_those_of_the_time_that_was_counted() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut browser) = Browser::start(folder.path()) else {
        return;
    };
    let server = Server::start(&folder.path().join("data"), &[]);
    server.ok("PUT", "/v1/items", &items(4, 3));
    browser.resize(1280, 1600);
    browser.open(&server.url);
    let points = |browser: &mut Browser| -> u64 {
        let points =
            browser.value("Number(document.querySelector('#chart-traffic').dataset.points)");
        points.as_u64().unwrap()
    };
    browser.wait_for("document.querySelector('#chart-traffic').dataset.points > 2");
    // A second from when the clock was an hour ahead. The next one of the server is an hour earlier.
    browser.value(
        "import('/page/live_charts.js').then(charts => charts.remember({ at: Date.now() + 3600000,
            recommends_per_second: 0, rewards_per_second: 0, reward_rate: null }))",
    );
    let before = points(&mut browser);
    browser.wait_for(&format!(
        "document.querySelector('#chart-traffic').dataset.points > {}",
        before + 2
    ));
    // The hour is not over, and the rate is not that of a whole hour. An hour may begin just now.
    loop {
        serve(&server, "u", 40);
        std::thread::sleep(std::time::Duration::from_millis(1100));
        let steps = server.ok("GET", "/v1/timeline?range=60d", "");
        let last = steps["steps"].as_array().unwrap().last().unwrap().clone();
        if last["recommends"].as_u64() >= Some(40) {
            break;
        }
    }
    browser.value("document.querySelector('#ranges [value=\"60d\"]').click()");
    browser.wait_for(
        "document.querySelector('#read-traffic').innerText.startsWith('This hour so far: ')",
    );
    let read = browser.text("#read-traffic");
    let rate: f64 = read
        .rsplit(": ")
        .next()
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!(rate > 0.1, "{read}");
    assert_eq!(browser.errors(), Vec::<String>::new());
}

#[test]
fn a_reader_keeps_the_place_while_a_card_changes() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut browser) = Browser::start(folder.path()) else {
        return;
    };
    let server = Server::start(&folder.path().join("data"), &[]);
    server.ok("PUT", "/v1/items", &items(9, 3));
    serve(&server, "u", 15);
    browser.resize(1280, 1600);
    browser.open(&browser_url(&server, "u"));
    browser.wait_for("document.querySelectorAll('#recent-items > li').length === 15");
    browser.value("(list => { list.focus(); list.scrollTop = 200; })(document.querySelector('#recent-items'))");
    serve(&server, "u", 2);
    browser.wait_for("document.querySelectorAll('#recent-items > li').length === 17");
    let kept: Value = browser.value(
        "(list => list.scrollTop > 100 && document.activeElement === list)(document.querySelector('#recent-items'))",
    );
    assert_eq!(kept, true);
    // A button at the last page keeps the focus.
    server.ok("PUT", "/v1/items", &items(12, 3));
    browser.wait_for("document.querySelector('#items-pages').checkVisibility()");
    browser
        .value("(next => { next.focus(); next.click(); })(document.querySelector('#items-next'))");
    browser.wait_for("document.querySelector('#items-page').innerText === '11 to 12 of 12'");
    let focused = browser.value("document.activeElement.id");
    assert_eq!(focused, "items-next");
}

/// A page of the catalogue, by what is written below it, and the id of its first item.
fn shows(label: &str, first: &str) -> String {
    format!(
        "document.querySelector('#items-page').innerText === '{label}'
            && document.querySelector('#items-card tbody th').innerText === '{first}'"
    )
}

/// Clicks on elements one after the other, before anything can be answered.
fn click(browser: &mut Browser, which: &[&str]) {
    let clicks: String = which
        .iter()
        .map(|of| format!("document.querySelector('{of}').click();"))
        .collect();
    browser.value(&clicks);
}

#[test]
fn when_the_items_of_a_later_page_are_removed_the_first_page_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut browser) = Browser::start(folder.path()) else {
        return;
    };
    let server = Server::start(&folder.path().join("data"), &[]);
    server.ok("PUT", "/v1/items", &items(11, 3));
    browser.resize(1280, 1600);
    browser.open(&server.url);
    browser.wait_for(&shows("1 to 10 of 11", "i0"));
    click(&mut browser, &["#items-next"]);
    browser.wait_for(&shows("11 to 11 of 11", "i10"));
    server.ok("DELETE", "/v1/items/i10", "");
    browser.wait_for(&shows("1 to 10 of 10", "i0"));
    browser.wait_for("document.querySelector('#items-pages').hidden");
    server.ok("PUT", "/v1/items", &items(12, 3));
    browser.wait_for("document.querySelector('#items-pages').checkVisibility()");
    click(&mut browser, &["#items-next"]);
    browser.wait_for(&shows("11 to 12 of 12", "i10"));
    assert_eq!(browser.errors(), Vec::<String>::new());
}

#[test]
fn clicks_while_a_page_of_the_catalogue_is_fetched_mix_nothing_up() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut browser) = Browser::start(folder.path()) else {
        return;
    };
    let server = Server::start(&folder.path().join("data"), &[]);
    server.ok("PUT", "/v1/items", &items(35, 3));
    browser.resize(1280, 1600);
    browser.open(&server.url);
    browser.wait_for(&shows("1 to 10 of 35", "i0"));
    click(&mut browser, &["#items-next"]);
    browser.wait_for(&shows("11 to 20 of 35", "i10"));
    let slow =
        json!({"offline": false, "latency": 600, "downloadThroughput": -1, "uploadThroughput": -1});
    browser.call("Network.emulateNetworkConditions", slow);

    let (before, next) = ("#items-before", "#items-next");
    click(&mut browser, &[before, next]);
    let disabled = "['before', 'next'].map(name => document.querySelector(`#items-${name}`).ariaDisabled).join()";
    assert_eq!(browser.value(disabled), "true,true");
    browser.wait_for(&shows("1 to 10 of 35", "i0"));
    assert_eq!(browser.value(disabled), "true,false");
    click(&mut browser, &[next, next]);
    browser.wait_for(&shows("11 to 20 of 35", "i10"));

    // Next, before there is an answer to another search, order or size.
    let search = |browser: &mut Browser, text: &str, then: &str| {
        browser.value(&format!(
            "(field => {{ field.value = '{text}'; field.form.requestSubmit(); }})(document.querySelector('#items-search'));
            document.querySelector('{then}').click()"
        ));
    };
    search(&mut browser, "i1", next);
    browser.wait_for(&shows("1 to 10 of 11", "i1"));
    click(&mut browser, &[next]);
    browser.wait_for(&shows("11 to 11 of 11", "i19"));
    search(&mut browser, "", before);
    browser.wait_for(&shows("1 to 10 of 35", "i0"));
    let sort = "[data-name=\"sort shown\"]";
    let sorted = format!("document.querySelector('{sort}').closest('th').ariaSort");
    click(&mut browser, &[sort, next]);
    browser.wait_for(&format!(
        "{sorted} === 'descending' && {}",
        shows("1 to 10 of 35", "i0")
    ));
    click(&mut browser, &[sort, sort]);
    browser.wait_for(&format!("{sorted} === 'none'"));
    browser.value(
        "(size => { size.value = '25'; size.dispatchEvent(new Event('change')); })(document.querySelector('#items-size'));
        document.querySelector('#items-next').click()",
    );
    browser.wait_for(&shows("1 to 25 of 35", "i0"));
    // An item that is opened meanwhile is one of the page that is shown.
    click(&mut browser, &[next, "#items-card tbody button"]);
    assert_eq!(browser.value(&shows("1 to 25 of 35", "i0")), true);
    browser.wait_for(&shows("26 to 35 of 35", "i25"));
    assert_eq!(browser.errors(), Vec::<String>::new());
}
