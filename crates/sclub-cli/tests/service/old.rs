//! Data of version 0.1. The files in `version-0.1` were written by its binary. Two servers had 6 items and
//! 40 rounds of anna, bert, carla and dora. The one with `sclub` then forgot bert and the item i5, was
//! compacted, and served 9 more rounds of anna, carla and emil.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::crash::verify;
use crate::keeping::{fails_with, files, holding, run, serve_rounds, text};
use crate::server::Server;

/// A decision for anna that the server with `sclub` handed out and that has no answer yet.
const OPEN: &str = "AbGAgICAIO7u8oieNARhbm5hAQECaTGe-zL4YZfgPwAC6XenwHVEXY22V2H8ChKr6w";

fn kept(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/service/version-0.1")
        .join(name)
}

fn figures(state: &Value) -> [u64; 4] {
    ["rounds", "users", "items", "rewards"].map(|name| state[name].as_u64().unwrap())
}

/// Makes a folder of a backup and sees to it that it serves, learns and starts again. Returns what its
/// server said at first.
fn import(backup: &str, users: &[&str]) -> (Value, Vec<u64>) {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let from = kept(backup);
    let restored = run(&["restore", "--from", text(&from), "--data", text(&data)]);
    assert!(restored.status.success(), "{restored:?}");
    let offline = verify(&data);
    let server = Server::start(&data, &[]);
    let (state, imported) = (server.state(), server.hash());
    let count = |user: &&str| {
        let card = server.ok("GET", &format!("/v1/users/{user}"), "");
        card["count"].as_u64().unwrap()
    };
    let counts = users.iter().map(count).collect();
    assert_eq!(imported, offline["hash"]);
    let (status, answer) = server.call(
        "POST",
        "/v1/feedback",
        &json!({"decision": OPEN, "reward": 1.0}).to_string(),
    );
    assert!(
        status >= 400,
        "decisions of version 0.1 are not answered: {answer}"
    );
    assert_eq!(server.hash(), imported);

    serve_rounds(&server, 80, &["anna", "carla", "zoe"]);
    let hash = server.hash();
    assert_eq!(
        server.state()["rounds"],
        state["rounds"].as_u64().unwrap() + 80
    );
    assert!(server.stop().success());
    assert_eq!(verify(&data)["hash"], hash.as_str());
    let server = Server::start(&data, &[]);
    assert_eq!(server.hash(), hash);
    server.ok("DELETE", "/v1/users/carla", "");
    server.ok("POST", "/v1/admin/compact", "");
    assert_eq!(holding(&data, "carla"), Vec::<PathBuf>::new());
    (state, counts)
}

#[test]
fn a_backup_of_version_0_1_with_fits_becomes_a_folder() {
    let users = ["anna", "bert", "carla", "dora"];
    let (state, counts) = import("sclub-soft.backup", &users);
    assert_eq!(state["policy"], "sclub-soft");
    assert_eq!(figures(&state), [40, 4, 6, 40]);
    assert_eq!(counts, [10; 4]);
    assert_eq!(state["clustering"]["fits"], 1);
    assert_eq!(state["clustering"]["fitted_at"], 32);
}

#[test]
fn a_backup_of_version_0_1_that_was_compacted_becomes_a_folder() {
    let (state, counts) = import("sclub.backup", &["anna", "carla", "dora", "emil"]);
    assert_eq!(state["policy"], "sclub");
    assert_eq!(figures(&state), [49, 4, 5, 39]);
    assert_eq!(counts, [13, 13, 10, 3]);
    assert_eq!(state["clusters"], 1);
}

#[test]
fn a_damaged_backup_of_version_0_1_restores_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (bad, data) = (folder.path().join("bad"), folder.path().join("data"));
    let good = fs::read(kept("sclub.backup")).unwrap();
    for part in 0..20 {
        let at = good.len() * part / 20;
        let mut flipped = good.clone();
        flipped[at] ^= 1;
        for bytes in [&flipped[..], &good[..at]] {
            fs::write(&bad, bytes).unwrap();
            let refused = run(&["restore", "--from", text(&bad), "--data", text(&data)]);
            assert!(!refused.status.success(), "{at}");
            assert_eq!(files(folder.path()), std::slice::from_ref(&bad), "{at}");
        }
    }
}

/// The folder itself is refused with what to do, and is afterwards as it was.
#[test]
fn a_folder_of_version_0_1_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let old = kept("folder");
    for file in files(&old) {
        let to = data.join(file.strip_prefix(&old).unwrap());
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(file, to).unwrap();
    }
    let all = || -> Vec<(PathBuf, Vec<u8>)> {
        let files = files(&data).into_iter();
        files.map(|f| (f.clone(), fs::read(f).unwrap())).collect()
    };
    let before = all();
    let sentence = format!(
        "it was written by version 0.1. Make a backup with that version (sclub backup --data {} \
         --out old.backup), then turn it into a new folder with this one (sclub restore --from \
         old.backup --data NEW). The old folder stays as it is",
        text(&data)
    );
    let out = folder.path().join("out");
    for arguments in [
        &["serve", "--addr", "127.0.0.1:0", "--data", text(&data)][..],
        &["verify", "--data", text(&data)],
        &["backup", "--data", text(&data), "--out", text(&out)],
        &["export", "--data", text(&data)],
    ] {
        fails_with(&run(arguments), &sentence);
        assert!(all() == before, "{arguments:?}");
        assert!(!out.exists());
    }
}
