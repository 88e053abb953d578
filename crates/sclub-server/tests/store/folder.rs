//! Data folders: locks, formats, permissions and atomic files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use sclub_server::env::Env;
use sclub_server::store::{Folder, Origin, StoreError};

use crate::common::disk::Faults;
use crate::common::{copy_of, files, new_folder};

pub fn open(path: &Path) -> Folder {
    Folder::open(&Env::real(), path).unwrap()
}

fn refused(path: &Path) -> StoreError {
    Folder::open(&Env::real(), path).unwrap_err()
}

#[test]
fn a_folder_is_used_by_one_server_at_a_time() {
    let folder = new_folder();
    let first = open(folder.path());
    let second = refused(folder.path());
    assert!(matches!(&second, StoreError::InUse(path) if path == folder.path()));
    assert!(second.to_string().ends_with("is in use by another server"));
    drop(first);
    open(folder.path());
}

#[test]
fn foreign_folders_are_refused_and_left_alone() {
    let folder = new_folder();
    fs::write(folder.path().join("holiday.jpg"), b"sun").unwrap();
    let error = refused(folder.path());
    assert!(matches!(error, StoreError::Format { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("it contains holiday.jpg"), "{text}");
    assert_eq!(files(folder.path()).len(), 1, "nothing was written");
    // A folder that file systems create by themselves is ignored.
    let folder = new_folder();
    fs::create_dir(folder.path().join("lost+found")).unwrap();
    open(folder.path());
}

/// Writes a `format` file.
fn write_format(folder: &Path, text: &str) {
    let whole = [text.as_bytes(), blake3::hash(text.as_bytes()).as_bytes()].concat();
    fs::write(folder.join("format"), whole).unwrap();
}

#[test]
fn folders_of_other_formats_are_refused_with_what_to_do() {
    let folder = new_folder();
    drop(open(folder.path()));
    let before = files(folder.path());
    write_format(folder.path(), "sclub store\nformat 3\n");
    let error = refused(folder.path()).to_string();
    let expected = "it was written by a newer version (format 3; this version supports 2)";
    assert!(error.contains(expected), "{error}");

    // As version 0.1 wrote it.
    write_format(folder.path(), "sclub store\nformat 1\n");
    let error = refused(folder.path()).to_string();
    let expected = format!(
        "it was written by version 0.1. Make a backup with that version (sclub backup --data {} \
         --out old.backup), then turn it into a new folder with this one (sclub restore --from \
         old.backup --data NEW). The old folder stays as it is",
        folder.path().display()
    );
    assert!(error.contains(&expected), "{error}");

    write_format(folder.path(), "sclub store\nformat two\n");
    let error = refused(folder.path());
    assert!(matches!(&error, StoreError::Damaged { file, .. } if file.ends_with("format")));
    assert_eq!(files(folder.path()), before, "nothing was written");
}

#[test]
fn folders_get_no_new_files_when_they_are_only_opened() {
    let folder = new_folder();
    let first = open(folder.path());
    first.begin_epoch(0, 0).unwrap();
    first.log.append(0, b"one").unwrap();
    drop(first);
    let all = |path: &Path| -> Vec<_> {
        let files = files(path).into_iter();
        files.map(|f| (f.clone(), fs::read(f).unwrap())).collect()
    };
    let before = all(folder.path());
    for _ in 0..3 {
        let again = open(folder.path());
        again.check().unwrap();
        assert_eq!(again.log.last(), 1);
    }
    assert!(all(folder.path()) == before);
}

#[test]
fn only_the_owner_may_read_a_folder() {
    let place = new_folder();
    let path = place.path().join("above/data");
    let folder = open(&path);
    folder.set_identity(b"identity").unwrap();
    folder.begin_epoch(0, 0).unwrap();
    folder.log.append(0, b"one").unwrap();
    folder.journal.append(0, b"one").unwrap();
    folder
        .log
        .rewrite(&mut |_| Ok(Some(b"two".to_vec())))
        .unwrap();
    folder
        .snapshots
        .write(1, &mut |out| out.write_all(b"one"))
        .unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let all = files(&path);
    assert_eq!(all.len(), 8, "{all:?}");
    for file in all {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
        assert_eq!(mode(file.parent().unwrap()), 0o700, "{}", file.display());
    }
}

/// Tests nothing if run as root, who may write everywhere.
#[test]
fn a_folder_that_cannot_be_written_says_so() {
    let folder = new_folder();
    drop(open(folder.path()));
    let mode = |mode| fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
    mode(0o555);
    if fs::write(folder.path().join("probe"), b"").is_err() {
        let error = refused(folder.path());
        assert!(matches!(error, StoreError::Write { .. }), "{error}");
    }
    mode(0o755);
}

#[test]
fn identity_and_epochs_are_replaced_atomically() {
    let folder = new_folder();
    let (faults, env) = Faults::new(Env::real());
    let path = folder.path().join("data");
    let store = Folder::open(&env, &path).unwrap();
    assert_eq!(store.identity().unwrap(), None);
    store.set_identity(b"first").unwrap();
    let (first, _) = store.begin_epoch(0, 0).unwrap();
    for fault in 0..3 {
        match fault {
            0 => faults.refuse_writes("data"),
            1 => faults.fail_syncs("data", 1),
            _ => faults.fail_creates("data", 1),
        }
        assert!(store.set_identity(b"second").is_err());
        faults.accept_writes();
        assert_eq!(store.identity().unwrap().unwrap(), b"first");
        faults.fail_syncs("data", 1);
        assert!(store.begin_epoch(5, 5).is_err());
        assert_eq!(store.epochs().unwrap().current(), Some(first));
        let left = copy_of(&path);
        let left = open(left.path());
        assert_eq!(left.identity().unwrap().unwrap(), b"first");
    }
    store.set_identity(b"second").unwrap();
    let (second, epochs) = store.begin_epoch(0, 7).unwrap();
    assert_eq!((second.number, second.from, second.clock), (2, 0, 7));
    assert_ne!(second.life, first.life);
    let left = copy_of(&path);
    let left = open(left.path());
    assert_eq!(left.identity().unwrap().unwrap(), b"second");
    assert_eq!(left.epochs().unwrap(), epochs);
}

/// A copy and its original begin epochs of the same number, which differ in their random ids.
#[test]
fn copies_of_a_folder_have_epochs_of_their_own() {
    let folder = new_folder();
    let original = open(folder.path());
    original.begin_epoch(0, 0).unwrap();
    let copy = copy_of(folder.path());
    let copy = open(copy.path());
    let (of_copy, epochs) = copy.begin_epoch(0, 0).unwrap();
    let (of_original, _) = original.begin_epoch(0, 0).unwrap();
    assert_eq!(of_copy.number, of_original.number);
    let handed = |life| sclub_server::decision::DecisionContents {
        life,
        number: sclub_server::decision::first_number(of_copy.number),
        event: 0,
        at: 0,
        clock: 0,
        user: "u".into(),
        cluster: 0,
        shown: Vec::new(),
        context: Vec::new(),
    };
    assert_eq!(
        epochs.origin(&handed(of_copy.life)),
        Origin::Own { clock: 0 }
    );
    assert_eq!(epochs.origin(&handed(of_original.life)), Origin::OtherCopy);
}

#[test]
fn a_log_that_ends_before_its_snapshot_is_damaged() {
    let folder = new_folder();
    let store = open(folder.path());
    store.log.append(0, b"one").unwrap();
    let early = copy_of(folder.path());
    store.log.append(1, b"two").unwrap();
    store.snapshots.write(2, &mut |_| Ok(())).unwrap();
    let name = "snapshots/00000000000000000002.snap";
    fs::create_dir_all(early.path().join("snapshots")).unwrap();
    fs::copy(folder.path().join(name), early.path().join(name)).unwrap();
    let error = refused(early.path());
    let text = error.to_string();
    let expected = "it ends at batch 1, before the snapshot at batch 2";
    assert!(text.contains(expected), "{text}");
    let file = early.path().join("log/000000000000.log");
    assert!(text.contains(&file.display().to_string()), "{text}");
}

#[test]
fn snapshots_are_written_atomically() {
    let (faults, env) = Faults::new(Env::real());
    let folder = new_folder();
    let store = Folder::open(&env, folder.path()).unwrap();
    for number in 0..9_u64 {
        store.log.append(number, b"batch").unwrap();
    }
    let write = |at, length: usize| {
        store.snapshots.write(at, &mut |out| {
            for _ in 0..length {
                out.write_all(&[at as u8; 1000])?;
            }
            Ok(())
        })
    };
    let read = |store: &Folder, at| {
        let mut bytes = Vec::new();
        let mut reader = store.snapshots.read(at).unwrap();
        std::io::Read::read_to_end(&mut reader, &mut bytes).unwrap();
        bytes
    };
    write(3, 5).unwrap();
    for fault in 0..3 {
        match fault {
            0 => faults.refuse_writes("snapshots"),
            1 => faults.fail_syncs("snapshots", 1),
            _ => faults.fail_creates("snapshots", 1),
        }
        assert!(write(5, 3000).is_err());
        faults.accept_writes();
        assert_eq!(store.snapshots.list(), [3]);
        assert_eq!(files(&folder.path().join("snapshots")).len(), 1);
    }
    write(5, 3000).unwrap();
    write(9, 0).unwrap();
    assert_eq!(store.snapshots.list(), [3, 5, 9]);
    let reading = store.snapshots.read(3).unwrap();
    store.snapshots.keep_only(&[5, 9]).unwrap();
    // A reader that has begun goes on.
    assert_eq!(std::io::read_to_string(reading).unwrap().len(), 5000);
    assert!(store.snapshots.read(3).is_err());
    // As if a crash had interrupted a snapshot.
    fs::write(folder.path().join("snapshots/7.tmp"), b"half").unwrap();
    let left = copy_of(folder.path());
    let left = open(left.path());
    assert_eq!(left.snapshots.list(), [5, 9]);
    assert_eq!(left.snapshots.check().unwrap().0, 2);
    assert!(read(&left, 5) == vec![5; 3_000_000] && read(&left, 9).is_empty());
}
