//! Damage to folders that no server uses.

use std::fs;
use std::path::Path;

use sclub_server::engine::{Engine, Feedback, RecommendQuery, Verified, export_folder, verify};
use sclub_server::env::Env;
use sclub_server::event::Item;
use sclub_server::settings::Settings;
use sclub_server::state::Scratch;
use sclub_server::store::Folder;
use tempfile::TempDir;

use crate::common::{copy_of, files, flip, new_folder};

/// A folder with every kind of file, after a shutdown and after a crash.
pub fn served() -> (TempDir, TempDir) {
    let folder = new_folder();
    let settings = Settings {
        policy: Some("sclub".to_owned()),
        snapshot_every: u64::MAX,
        ..Settings::default()
    };
    let engine = Engine::open(Env::real(), folder.path(), &settings).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let items = [("a", [0.6, 0.8]), ("b", [0.8, -0.6])].map(|(id, features)| Item {
        id: id.to_owned(),
        features: features.to_vec(),
    });
    runtime.block_on(engine.upsert(items.into())).unwrap();
    let decide = |user: &str| {
        let asked = RecommendQuery::new(user, 1);
        let shown = engine.recommend(&asked, &mut Scratch::default());
        shown.unwrap().decision
    };
    let serve = |rounds: u32| {
        for round in 0..rounds {
            let decision = decide(&format!("user-{}", round % 3));
            let given = Feedback::of_item(&decision, None, 0.5);
            runtime.block_on(engine.feedback(&given)).unwrap();
        }
        runtime.block_on(engine.export(&mut Vec::new())).unwrap();
    };
    serve(5);
    runtime.block_on(engine.snapshot()).unwrap();
    serve(5);
    runtime.block_on(engine.snapshot()).unwrap();
    decide("user without a reward");
    serve(5);
    let killed = copy_of(folder.path());
    runtime.block_on(engine.close());
    drop(engine);
    while Folder::open(&Env::real(), folder.path()).is_err() {
        std::thread::yield_now();
    }
    (folder, killed)
}

/// The contents of a folder.
fn contents(folder: &Path) -> Result<(Verified, Vec<u8>), String> {
    let verified = verify(&Env::real(), folder, &mut |_| {}).map_err(|e| e.to_string())?;
    let mut lines = Vec::new();
    export_folder(&Env::real(), folder, &mut lines).map_err(|e| e.to_string())?;
    Ok((verified, lines))
}

/// Some offsets in a file: all of a short one, else the start, those around the end of the used part, and some
/// after it.
fn offsets(file: &[u8]) -> Vec<usize> {
    let used = file
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |at| at + 1);
    let mut all: Vec<usize> = (0..used.min(80)).collect();
    all.extend((0..60).map(|i| used * i / 60));
    all.extend(used.saturating_sub(60)..used + 12);
    all.extend((0..5).map(|i| used + (file.len() - used) * i / 5));
    all.retain(|at| *at < file.len());
    all.sort_unstable();
    all.dedup();
    all
}

/// After the frames of a log there is reserved space, and between them up to 7 bytes of padding. These bytes
/// are never used, and a flipped bit there is not noticed. Everywhere else it is found, and the error has the
/// file. The counts of items for the page are no part of the data.
#[test]
fn every_flipped_byte_of_a_closed_folder_is_found_or_is_in_unused_space() {
    let (folder, _) = served();
    let expected = contents(folder.path()).unwrap();
    assert_eq!(expected.0.rounds, 15);
    assert_eq!(expected.1.split(|byte| *byte == b'\n').count(), 17);
    let all = files(folder.path());
    let (mut found, mut harmless) = (0, 0);
    for file in all.iter().filter(|file| !file.ends_with("counts")) {
        let whole = fs::read(file).unwrap();
        let is_log = file.extension().is_some_and(|kind| kind == "log");
        for (bit, at) in offsets(&whole).into_iter().enumerate() {
            flip(file, at, bit);
            match contents(folder.path()) {
                Err(error) => {
                    let name = file.display().to_string();
                    assert!(error.contains(&name), "{name} at {at}: {error}");
                    found += 1;
                }
                Ok(contents) => {
                    assert!(contents == expected, "{} at {at}", file.display());
                    assert!(is_log && whole[at] == 0, "{} at {at}", file.display());
                    harmless += 1;
                }
            }
            fs::write(file, &whole).unwrap();
        }
    }
    assert!(
        found > 1000,
        "{found} were found, {harmless} are in unused space"
    );
    assert_eq!(files(folder.path()), all);
    assert_eq!(contents(folder.path()).unwrap(), expected);
}

/// After a crash no snapshot covers the end of the log, and nothing covers the end of the journal. A flipped
/// bit in the last frame of either looks like an unfinished write: the frame is dropped. Earlier frames are
/// intact, or the error has the file.
#[test]
fn a_flipped_byte_after_a_crash_is_found_or_cuts_off_the_last_batch() {
    let (_, killed) = served();
    let (expected, _) = contents(killed.path()).unwrap();
    let mut cut = 0;
    for file in files(killed.path()) {
        let name = file.strip_prefix(killed.path()).unwrap();
        let whole = fs::read(&file).unwrap();
        for (bit, at) in offsets(&whole).into_iter().enumerate().step_by(3) {
            let copy = copy_of(killed.path());
            let damaged = copy.path().join(name);
            flip(&damaged, at, bit);
            match contents(copy.path()) {
                Err(error) => {
                    let name = damaged.display().to_string();
                    assert!(error.contains(&name), "{name} at {at}: {error}");
                }
                Ok((verified, _)) if verified.events == expected.events => {
                    assert_eq!(verified.hash, expected.hash);
                }
                Ok((verified, _)) => {
                    assert_eq!(verified.events, expected.events - 1, "{name:?} at {at}");
                    assert!(name.starts_with("log"), "{name:?} at {at}");
                    cut += 1;
                }
            }
        }
    }
    assert!(cut > 5, "{cut}");
}

/// Missing files are noticed, except the end of the log or the journal after a crash.
#[test]
fn missing_files_are_noticed() {
    let (folder, killed) = served();
    let expected = contents(folder.path()).unwrap();
    for (is_closed, left) in [(true, folder.path()), (false, killed.path())] {
        let newest = |part: &str| files(&left.join(part)).pop().unwrap();
        let ends = ["log", "journal"].map(newest);
        for file in files(left) {
            let name = file.strip_prefix(left).unwrap();
            let copy = copy_of(left);
            fs::remove_file(copy.path().join(name)).unwrap();
            let (what, is_end) = (name.display().to_string(), ends.contains(&file));
            match contents(copy.path()) {
                Err(error) => {
                    let folder = copy.path().display().to_string();
                    assert!(error.contains(&folder), "{what}: {error}");
                }
                Ok((verified, lines)) => {
                    // One of the two snapshots is enough, and the log before the older one is not needed.
                    let is_oldest = Some(&file) == files(&left.join("log")).first();
                    let is_spare =
                        ["lock", "ends", "counts"].contains(&&*what) || what.starts_with("snap");
                    let is_spare = is_spare || (is_oldest && is_closed);
                    assert!(
                        is_spare || (is_end && !is_closed),
                        "{what}, closed: {is_closed}"
                    );
                    if is_spare && is_closed {
                        let found = (verified.hash, lines);
                        assert!(
                            found == (expected.0.hash.clone(), expected.1.clone()),
                            "{what}"
                        );
                    }
                }
            }
        }
    }
}
