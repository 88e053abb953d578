//! Spaces are made, kept over restarts, and deleted.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use sclub_server::edge::Keys;
use serde_json::{Value, json};
use tempfile::tempdir;

use crate::bench::{Server, settings};

#[test]
fn spaces_are_kept_over_a_restart() {
    let folder = tempdir().unwrap();
    let server = Server::new(folder.path(), Keys::none());
    let given = json!({"dim": 3, "policy": "linucb-one", "max-k": 2, "reward-max": 5});
    server.ok("", "PUT", "/v1/spaces/shop", &given);
    server.fill("", "shop", 3);
    server.fill("", "default", 2);
    let before = ["shop", "default"].map(|space| server.seen(space).0);
    assert_ne!(before[0], before[1]);
    drop(server);
    let server = Server::new(folder.path(), Keys::none());
    assert_eq!(
        ["shop", "default"].map(|space| server.seen(space).0),
        before
    );
    let card = server.ok("", "GET", "/v1/spaces/shop", &Value::Null);
    assert_eq!(card["policy"], "linucb-one");
    let state = server.ok("", "GET", "/v1/spaces/shop/state", &Value::Null);
    assert_eq!(
        (&state["max_k"], &state["reward_max"]),
        (&json!(2), &json!(5.0))
    );
    // The same settings again change nothing.
    let again = server.send("", "PUT", "/v1/spaces/shop", &given.to_string());
    assert_eq!(again.0, 200, "{}", again.1);
    let other = server.refused("", "PUT", "/v1/spaces/shop", &json!({"dim": 4}));
    assert_eq!(other, (409, "exists".to_owned()));
    assert_eq!(server.seen("shop").0, before[0]);
}

#[test]
fn a_space_does_not_need_the_file_of_its_transform_again() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("transform.json");
    let items = ["green tea", "black tea", "coffee"].map(|title| {
        let item = json!({"id": title, "title": title});
        serde_json::from_value::<sclub_features::RawItem>(item).unwrap()
    });
    let options = sclub_features::Options {
        dim: 2,
        ..sclub_features::Options::default()
    };
    let fitted = sclub_features::fit(&items, &options, None).unwrap();
    std::fs::write(&file, fitted.transform.encode()).unwrap();
    let data = folder.path().join("data");
    let server = Server::new(&data, Keys::none());
    let given = json!({"features": file});
    server.ok("", "PUT", "/v1/spaces/shop", &given);
    drop(server);
    std::fs::remove_file(&file).unwrap();
    let server = Server::new(&data, Keys::none());
    let card = server.ok("", "GET", "/v1/spaces/shop", &Value::Null);
    assert_eq!(card["status"], "ready", "{card}");
    let item = json!({"id": "mate", "title": "mate tea"});
    server.ok("", "PUT", "/v1/spaces/shop/items", &item);
}

#[test]
fn a_broken_space_stops_no_other() {
    let folder = tempdir().unwrap();
    let server = Server::new(folder.path(), Keys::none());
    for space in ["a", "b", "c"] {
        server.ok("", "PUT", &format!("/v1/spaces/{space}"), &json!({}));
        server.fill("", space, 2);
    }
    let before = server.seen("c");
    drop(server);
    let spaces = folder.path().join("spaces");
    std::fs::write(spaces.join("a/identity"), "x").unwrap();
    std::fs::write(spaces.join("b/settings.toml"), "strange = 1\n").unwrap();
    let server = Server::new(folder.path(), Keys::none());
    for (space, reason) in [("a", "identity"), ("b", "strange is not a setting")] {
        let path = format!("/v1/spaces/{space}");
        let card = server.ok("", "GET", &path, &Value::Null);
        assert_eq!(card["status"], "broken");
        let told = card["reason"].as_str().unwrap();
        assert!(told.contains(reason), "{told}");
        let (status, answer) = server.send("", "GET", &format!("{path}/state"), "");
        assert_eq!(status, 503);
        assert!(answer.contains("\"broken\""), "{answer}");
        assert_eq!(server.send("", "GET", &format!("{path}/readyz"), "").0, 503);
    }
    assert_eq!(server.seen("c").0, before.0);
    assert_eq!(server.send("", "GET", "/readyz", "").0, 200);
    // A broken space can be deleted.
    server.ok("", "DELETE", "/v1/spaces/a?confirm=a", &Value::Null);
    assert!(!spaces.join("a").exists());
}

#[test]
fn a_broken_space_is_opened_again_by_a_put() {
    let folder = tempdir().unwrap();
    let given = json!({"max-k": 4});
    let (path, spaces) = ("/v1/spaces/a", folder.path().join("spaces"));
    let (own, away) = (spaces.join("a"), folder.path().join("away"));
    let server = Server::new(folder.path(), Keys::none());
    server.ok("", "PUT", path, &given);
    server.fill("", "a", 2);
    let before = server.seen("a").0;
    drop(server);
    let identity = std::fs::read(own.join("identity")).unwrap();
    let damage = || std::fs::write(own.join("identity"), "x").unwrap();
    let status = |server: &Server, body: &Value| {
        let card = server.ok("", "PUT", path, body);
        assert_eq!(card, server.ok("", "GET", path, &Value::Null));
        let word = |name: &str| card[name].as_str().unwrap_or_default().to_owned();
        assert_eq!(card["settings"], given, "{card}");
        (word("status"), word("reason"))
    };
    damage();
    let server = Server::new(folder.path(), Keys::none());
    for body in [json!({}), given.clone()] {
        let (status, reason) = status(&server, &body);
        assert_eq!(status, "broken");
        assert!(reason.contains("identity"), "{reason}");
    }
    let other = server.refused("", "PUT", path, &json!({"max-k": 5}));
    assert_eq!(other, (409, "exists".to_owned()));
    // The reason is that of the last try, and nothing is made in place of a folder that was moved away.
    std::fs::rename(&own, &away).unwrap();
    let (broken, reason) = status(&server, &json!({}));
    assert_eq!(broken, "broken");
    assert!(reason.contains("there is no folder"), "{reason}");
    assert!(!own.exists());
    assert_eq!(server.send("", "GET", &format!("{path}/state"), "").0, 503);
    std::fs::rename(&away, &own).unwrap();
    std::fs::write(own.join("identity"), &identity).unwrap();
    assert_eq!(status(&server, &json!({})).0, "ready");
    assert_eq!(server.seen("a").0, before);
    server.fill("", "a", 2);
    let before = server.seen("a").0;
    // A space that is not broken is not opened again.
    assert_eq!(server.refused("", "PUT", path, &json!({})).0, 409);
    drop(server);
    // A backup has no settings: they are those that the space had, or those given.
    for body in [json!({}), given.clone()] {
        damage();
        let server = Server::new(folder.path(), Keys::none());
        std::fs::remove_file(own.join("settings.toml")).unwrap();
        std::fs::write(own.join("identity"), &identity).unwrap();
        assert_eq!(status(&server, &body).0, "ready");
        assert_eq!(server.seen("a").0, before);
        drop(server);
        let server = Server::new(folder.path(), Keys::none());
        assert_eq!(status(&server, &given).0, "ready");
    }
    // Settings that do not fit the folder are refused, and not in force after a restart.
    damage();
    let server = Server::new(folder.path(), Keys::none());
    std::fs::remove_file(own.join("settings.toml")).unwrap();
    std::fs::write(own.join("identity"), &identity).unwrap();
    let wrong = json!({"policy": "linucb-one"});
    let refused = server.refused("", "PUT", path, &wrong);
    assert_eq!(refused, (422, "invalid".to_owned()));
    drop(server);
    let server = Server::new(folder.path(), Keys::none());
    assert_eq!(server.seen("a").0, before);
    drop(server);
    damage();
    let server = Server::new(folder.path(), Keys::none());
    std::fs::write(own.join("identity"), &identity).unwrap();
    assert_eq!(server.refused("", "PUT", path, &wrong).0, 422);
    // A folder that is damaged is no wrong setting.
    let format = std::fs::read(own.join("format")).unwrap();
    std::fs::write(own.join("format"), "x").unwrap();
    let (broken, reason) = status(&server, &given);
    assert_eq!(broken, "broken");
    assert!(reason.contains("format"), "{reason}");
    std::fs::write(own.join("format"), format).unwrap();
    assert_eq!(status(&server, &given).0, "ready");
    // The settings of the space stay when it cannot be opened.
    drop(server);
    damage();
    let server = Server::new(folder.path(), Keys::none());
    std::fs::remove_file(own.join("settings.toml")).unwrap();
    assert_eq!(status(&server, &json!({})).0, "broken");
    drop(server);
    std::fs::write(own.join("identity"), &identity).unwrap();
    let server = Server::new(folder.path(), Keys::none());
    assert_eq!(status(&server, &given).0, "ready");
    drop(server);
    // One whose folder is gone can be deleted, and made again.
    damage();
    let server = Server::new(folder.path(), Keys::none());
    std::fs::rename(&own, &away).unwrap();
    server.ok("", "DELETE", "/v1/spaces/a?confirm=a", &Value::Null);
    assert_eq!(server.send("", "PUT", path, "{}").0, 201);
}

#[test]
fn spaces_are_known_before_they_are_open() {
    let folder = tempdir().unwrap();
    let (path, given) = ("/v1/spaces/a", json!({"max-k": 4}));
    let server = Server::new(folder.path(), Keys::none());
    server.ok("", "PUT", path, &given);
    server.fill("", "a", 2);
    let before = server.seen("a").0;
    drop(server);
    let server = Server::starting(settings(folder.path()), Keys::none(), None);
    let state = server.refused("", "GET", "/v1/spaces/a/state", &Value::Null);
    assert_eq!(state, (503, "starting".to_owned()));
    // A PUT at the start of an application makes nothing in its place.
    let card = server.ok("", "PUT", path, &given);
    assert_eq!(
        (&card["status"], &card["settings"]),
        (&json!("starting"), &given)
    );
    assert_eq!(server.refused("", "PUT", path, &json!({})).0, 409);
    let delete = "/v1/spaces/a?confirm=a";
    let deleted = server.refused("", "DELETE", delete, &Value::Null);
    assert_eq!(deleted, (503, "starting".to_owned()));
    server.open_all();
    assert_eq!(server.seen("a").0, before);
    let card = server.ok("", "PUT", path, &given);
    assert_eq!(card["status"], "ready");
    server.ok("", "DELETE", delete, &Value::Null);
}

#[test]
fn a_disk_that_fails_is_no_invalid_setting() {
    let folder = tempdir().unwrap();
    let server = Server::new(folder.path(), Keys::none());
    // No folder can be made in it.
    let spaces = folder.path().join("spaces");
    std::fs::write(&spaces, "").unwrap();
    let (status, answer) = server.send("", "PUT", "/v1/spaces/a", "{\"dim\": 2}");
    assert_eq!(status, 503, "{answer}");
    assert!(answer.contains("\"read_only\""), "{answer}");
    assert!(
        !answer.contains(folder.path().to_str().unwrap()),
        "{answer}"
    );
    std::fs::remove_file(&spaces).unwrap();
    assert_eq!(
        server.send("", "PUT", "/v1/spaces/a", "{\"dim\": 2}").0,
        201
    );
    assert_eq!(std::fs::read_dir(&spaces).unwrap().count(), 1);
}

#[test]
fn a_space_is_deleted_with_its_data_and_only_on_confirmation() {
    let folder = tempdir().unwrap();
    let server = Server::new(folder.path(), Keys::none());
    server.ok("", "PUT", "/v1/spaces/shop", &json!({"dim": 2}));
    server.fill("", "shop", 2);
    for query in ["", "?confirm=", "?confirm=other", "?force=true"] {
        let (status, _) = server.send("", "DELETE", &format!("/v1/spaces/shop{query}"), "");
        assert!(matches!(status, 400 | 422), "{query}: {status}");
    }
    assert_eq!(
        server
            .refused(
                "",
                "DELETE",
                "/v1/spaces/default?confirm=default",
                &Value::Null
            )
            .0,
        422
    );
    assert_eq!(
        server
            .refused("", "DELETE", "/v1/spaces/none?confirm=none", &Value::Null)
            .0,
        404
    );
    assert_eq!(server.seen("shop").1, 3);
    server.ok("", "DELETE", "/v1/spaces/shop?confirm=shop", &Value::Null);
    assert_eq!(
        server
            .refused("", "GET", "/v1/spaces/shop/state", &Value::Null)
            .0,
        404
    );
    assert_eq!(
        std::fs::read_dir(folder.path().join("spaces"))
            .unwrap()
            .count(),
        0
    );
    // Another space of the name begins with nothing.
    server.ok("", "PUT", "/v1/spaces/shop", &json!({"dim": 5}));
    assert_eq!(server.seen("shop").1, 0);
    server.fill("", "shop", 5);
}

#[test]
fn what_a_crash_has_left_is_removed() {
    let folder = tempdir().unwrap();
    drop(Server::new(folder.path(), Keys::none()));
    let spaces = folder.path().join("spaces");
    for name in ["shop.new", "old.deleted", "lost+found"] {
        std::fs::create_dir_all(spaces.join(name).join("log")).unwrap();
    }
    let server = Server::new(folder.path(), Keys::none());
    assert_eq!(server.spaces.list().len(), 1);
    let left: Vec<_> = std::fs::read_dir(&spaces)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["lost+found"]);
}

#[test]
fn a_folder_that_an_operator_puts_there_is_a_space() {
    let folder = tempdir().unwrap();
    let other = tempdir().unwrap();
    let server = Server::new(other.path(), Keys::none());
    server.fill("", "default", 3);
    let before = server.seen("default").0;
    drop(server);
    let server = Server::new(folder.path(), Keys::none());
    server.ok("", "PUT", "/v1/spaces/x", &json!({}));
    std::fs::rename(other.path(), folder.path().join("spaces/taken")).unwrap();
    // On a running server, with settings. Those that are refused are not kept.
    let wrong = server.refused("", "PUT", "/v1/spaces/taken", &json!({"policy": "lints"}));
    assert_eq!(wrong, (422, "invalid".to_owned()));
    let settings = folder.path().join("spaces/taken/settings.toml");
    assert!(!settings.exists());
    server.ok("", "PUT", "/v1/spaces/taken", &json!({"max-k": 4}));
    assert!(settings.exists());
    assert_eq!(server.seen("taken").0, before);
    drop(server);
    std::fs::rename(
        folder.path().join("spaces/taken"),
        folder.path().join("spaces/moved"),
    )
    .unwrap();
    // And at a start.
    let server = Server::new(folder.path(), Keys::none());
    assert_eq!(server.seen("moved").0, before);
    let card = server.ok("", "GET", "/v1/spaces/moved", &Value::Null);
    assert_eq!(card["settings"], json!({"max-k": 4}));
}

/// Waits until a call is answered with a status.
fn wait_for(server: &Server, method: &str, path: &str, body: &str, status: u16) {
    for _ in 0..6000 {
        if server.send("", method, path, body).0 == status {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{method} {path}: not {status}");
}

#[test]
fn a_client_that_goes_away_leaves_no_half_space() {
    let folder = tempdir().unwrap();
    let server = Server::new(folder.path(), Keys::none());
    server.abandon("PUT", "/v1/spaces/shop", r#"{"dim": 2}"#);
    wait_for(&server, "GET", "/v1/spaces/shop", "", 200);
    server.ok("", "PUT", "/v1/spaces/shop", &json!({"dim": 2}));
    server.fill("", "shop", 2);
    server.abandon("DELETE", "/v1/spaces/shop?confirm=shop", "");
    wait_for(&server, "GET", "/v1/spaces/shop", "", 404);
    server.ok("", "PUT", "/v1/spaces/shop", &json!({"dim": 2}));
    assert_eq!(server.seen("shop").1, 0);
}

/// A call that read the state twice would wait for a writer that waits for its first read.
#[test]
fn looks_do_not_wait_for_writes_that_wait_for_them() {
    let folder = tempdir().unwrap();
    let server = Server::new(folder.path(), Keys::none());
    server.ok("", "PUT", "/v1/spaces/shop", &json!({"dim": 2}));
    server.fill("", "shop", 2);
    let engine = server.spaces.get("shop").unwrap();
    let engine = engine.app.engine().unwrap();
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..400 {
                let item = json!({"id": "tea", "features": [1, number]});
                server.ok("", "PUT", "/v1/spaces/shop/items", &item);
            }
            is_done.store(true, Relaxed);
        });
        for path in [
            "state",
            "state?hash=true",
            "users/u",
            "items",
            "experiments",
            "clusters",
            "timeline",
        ] {
            let (server, is_done) = (&server, &is_done);
            scope.spawn(move || {
                while !is_done.load(Relaxed) {
                    server.send("", "GET", &format!("/v1/spaces/shop/{path}"), "");
                }
            });
        }
    });
    assert!(engine.state().events() >= 400);
}

#[test]
fn the_stream_of_a_deleted_space_ends() {
    let folder = tempdir().unwrap();
    let server = Server::new(folder.path(), Keys::none());
    server.ok("", "PUT", "/v1/spaces/shop", &json!({"dim": 2}));
    server.stream_during("/v1/spaces/shop/stream", || {
        server.ok("", "DELETE", "/v1/spaces/shop?confirm=shop", &Value::Null);
    });
}

#[test]
fn bad_names_and_settings_make_no_space() {
    let folder = tempdir().unwrap();
    let server = Server::new(folder.path(), Keys::none());
    for name in [
        "Shop",
        "-a",
        "a.new",
        "%2e%2e",
        "a%2fb",
        "é",
        &"a".repeat(64),
    ] {
        let (status, answer) = server.send("", "PUT", &format!("/v1/spaces/{name}"), "{}");
        assert_eq!(status, 422, "{name}: {answer}");
        assert!(answer.contains("the name of a space must have"), "{answer}");
    }
    let default = server.refused("", "PUT", "/v1/spaces/default", &json!({}));
    assert_eq!(default, (409, "exists".to_owned()));
    for bad in [
        json!({"policy": "club"}),
        json!({"policy": "none"}),
        json!({"dim": 100_000}),
        json!({"addr": "0.0.0.0:1"}),
        json!({"reward-min": 2}),
        json!({"strange": 1}),
        json!({"unanswered": 7}),
        json!({"after": 60}),
        json!({"explore-share": 2}),
    ] {
        let (status, answer) = server.send("", "PUT", "/v1/spaces/shop", &bad.to_string());
        assert_eq!(status, 422, "{bad}: {answer}");
        let name = bad.as_object().unwrap().keys().next().unwrap();
        assert!(
            answer.contains(&format!("\"field\":\"{name}\"")),
            "{answer}"
        );
    }
    for bad in ["[1]", "{", "\"x\""] {
        assert_eq!(
            server.send("", "PUT", "/v1/spaces/shop", bad).0,
            400,
            "{bad}"
        );
    }
    assert_eq!(server.spaces.list().len(), 1);
    assert!(!folder.path().join("spaces").exists());
}

#[cfg(unix)]
#[test]
fn a_link_to_a_disk_that_is_not_mounted_is_kept() {
    let folder = tempdir().unwrap();
    let (data, volume) = (folder.path().join("data"), folder.path().join("volume"));
    let server = Server::new(&data, Keys::none());
    server.ok("", "PUT", "/v1/spaces/shop", &json!({}));
    server.fill("", "shop", 2);
    let before = server.seen("shop").0;
    drop(server);
    let link = data.join("spaces/shop");
    std::fs::rename(&link, &volume).unwrap();
    std::os::unix::fs::symlink(&volume, &link).unwrap();
    let away = folder.path().join("away");
    std::fs::rename(&volume, &away).unwrap();
    let server = Server::new(&data, Keys::none());
    let (status, answer) = server.send("", "PUT", "/v1/spaces/shop", "{}");
    assert!(status >= 500, "{status} {answer}");
    std::fs::rename(&away, &volume).unwrap();
    server.ok("", "PUT", "/v1/spaces/shop", &json!({}));
    assert_eq!(server.seen("shop").0, before);
}
