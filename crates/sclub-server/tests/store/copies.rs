//! Backups and restores.

use std::path::PathBuf;

use sclub_server::engine::{backup_folder, restore, verify};
use sclub_server::env::Env;
use sclub_server::store::StoreError;

use crate::common::disk::Faults;
use crate::common::{files, new_folder};
use crate::damage::served;

/// Some offsets in a stream.
fn offsets(length: usize) -> Vec<usize> {
    let mut all: Vec<usize> = (0..length.min(40)).collect();
    all.extend((0..150).map(|i| length * i / 150));
    all.extend(length.saturating_sub(40)..length);
    all.dedup();
    all
}

#[test]
fn a_damaged_backup_restores_nothing() {
    let (folder, _) = served();
    let mut backup = Vec::new();
    backup_folder(&Env::real(), folder.path(), &mut backup).unwrap();
    let place = new_folder();
    let target = place.path().join("restored");
    let restore = |mut bytes: &[u8]| restore(&Env::real(), &mut bytes, &target);
    for at in offsets(backup.len()) {
        let mut bad = backup.clone();
        bad[at] ^= 4;
        restore(&bad).expect_err(&format!("{at}"));
        restore(&backup[..at]).expect_err("it is cut");
        assert_eq!(files(place.path()), Vec::<PathBuf>::new(), "{at}");
        assert!(!target.exists());
    }
    restore(&[&backup[..], b"x"].concat()).unwrap_err();
    assert!(!target.exists());
    restore(&backup).unwrap();
    let [one, other] = [folder.path(), &target].map(|folder| {
        let verified = verify(&Env::real(), folder, &mut |_| {}).unwrap();
        (verified.hash, verified.events)
    });
    assert_eq!(one, other);
    let error = restore(&backup).unwrap_err();
    assert!(error.to_string().ends_with("is not empty"), "{error}");
}

#[test]
fn a_backup_of_something_else_or_a_newer_version_is_refused() {
    let place = new_folder();
    let target = place.path().join("restored");
    let refused = |bytes: &[u8]| {
        let error = restore(&Env::real(), &mut { bytes }, &target).unwrap_err();
        assert!(!target.exists());
        error
    };
    let error = refused(b"PK\x03\x04 is the beginning of something else");
    assert!(
        error.to_string().contains("this is not a backup of sclub"),
        "{error}"
    );
    let error = refused(b"sclub backup  3\n and so on");
    let expected = "it was written by a newer version (format 3; this version supports 1 to 2)";
    assert!(error.to_string().contains(expected), "{error}");
    assert!(matches!(refused(b""), StoreError::Damaged { .. }));
}

/// An unfinished folder is removed, and does not prevent the next restore.
#[test]
fn a_restore_on_a_full_disk_leaves_nothing_and_can_be_repeated() {
    let (folder, _) = served();
    let mut backup = Vec::new();
    backup_folder(&Env::real(), folder.path(), &mut backup).unwrap();
    let (faults, env) = Faults::new(Env::real());
    let place = new_folder();
    let target = place.path().join("restored");
    for part in ["log", "journal", "snapshots", "restored.restoring"] {
        faults.refuse_writes(part);
        let error = restore(&env, &mut &*backup, &target).unwrap_err();
        assert!(matches!(error, StoreError::Write { .. }), "{part}: {error}");
        assert_eq!(files(place.path()), Vec::<PathBuf>::new(), "{part}");
        assert!(!target.exists());
    }
    faults.accept_writes();
    // As if the machine had stopped during a restore.
    std::fs::create_dir(place.path().join("restored.restoring")).unwrap();
    std::fs::write(place.path().join("restored.restoring/log"), b"half").unwrap();
    restore(&env, &mut &*backup, &target).unwrap();
    verify(&env, &target, &mut |_| {}).unwrap();
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
}
