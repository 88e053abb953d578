//! Stores keep what they are given: the contract on each of them, and damage to a folder.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use sclub_server::store::contract::{self, Subject};
use sclub_server::store::faulty::Faulty;
use sclub_server::store::folder::{Folder, restore};
use sclub_server::store::memory::Memory;
use sclub_server::store::{Fate, Row, Store, StoreError};
use tempfile::TempDir;

/// Small enough for several files of the log in every test.
const LIMIT: u64 = 20_000;

struct InMemory(Memory);

impl Subject for InMemory {
    fn store(&self) -> &dyn Store {
        &self.0
    }

    fn crash(self: Box<Self>) -> Box<dyn Subject> {
        Box::new(Self(self.0.crash()))
    }

    fn restored(&self, mut backup: &[u8]) -> Box<dyn Subject> {
        Box::new(Self(Memory::restore(&mut backup).unwrap()))
    }
}

struct InFaultyMemory(Faulty<Memory>);

impl Subject for InFaultyMemory {
    fn store(&self) -> &dyn Store {
        &self.0
    }

    fn crash(self: Box<Self>) -> Box<dyn Subject> {
        Box::new(Self(Faulty::new(self.0.inner().crash())))
    }

    fn restored(&self, mut backup: &[u8]) -> Box<dyn Subject> {
        Box::new(Self(Faulty::new(Memory::restore(&mut backup).unwrap())))
    }
}

/// A folder, opened by `open`.
struct OnDisk<S> {
    store: S,
    open: fn(&Path) -> S,
    _folder: TempDir,
}

impl<S: Store + 'static> OnDisk<S> {
    fn subject(folder: TempDir, open: fn(&Path) -> S) -> Box<dyn Subject> {
        Box::new(Self {
            store: open(folder.path()),
            open,
            _folder: folder,
        })
    }
}

impl<S: Store + 'static> Subject for OnDisk<S> {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    /// What a process leaves that is killed: the files as they are while they are in use.
    fn crash(self: Box<Self>) -> Box<dyn Subject> {
        let left = copy_of(self.store.folder().unwrap());
        Self::subject(left, self.open)
    }

    fn restored(&self, mut backup: &[u8]) -> Box<dyn Subject> {
        let folder = new_folder();
        restore(&mut backup, folder.path()).unwrap();
        Self::subject(folder, self.open)
    }
}

/// An empty folder, in memory where the system offers that: tests write and wait a lot.
fn new_folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

fn copy_of(folder: &Path) -> TempDir {
    let copy = new_folder();
    for file in files(folder) {
        let to = copy.path().join(file.strip_prefix(folder).unwrap());
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(&file, to).unwrap();
    }
    copy
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => all.extend(files(&path)),
            false => all.push(path),
        }
    }
    all.sort();
    all
}

fn open(path: &Path) -> Folder {
    Folder::open_with_limit(path, LIMIT).unwrap()
}

fn file_of(error: &StoreError) -> PathBuf {
    match error {
        StoreError::Write { file, .. }
        | StoreError::Read { file, .. }
        | StoreError::Damaged { file, .. }
        | StoreError::Format { file, .. }
        | StoreError::InUse(file) => file.clone(),
        StoreError::Refused(_) => PathBuf::new(),
    }
}

#[test]
fn memory_keeps_the_contract() {
    contract::run(&|| Box::new(InMemory(Memory::new())));
}

#[test]
fn a_faulty_memory_without_faults_keeps_the_contract() {
    contract::run(&|| Box::new(InFaultyMemory(Faulty::new(Memory::new()))));
}

#[test]
fn a_folder_keeps_the_contract() {
    contract::run(&|| OnDisk::subject(new_folder(), open));
}

#[test]
fn a_folder_with_one_large_file_keeps_the_contract() {
    let open = |path: &Path| Folder::open(path).unwrap();
    contract::run(&|| OnDisk::subject(tempfile::tempdir().unwrap(), open));
}

#[test]
fn a_faulty_folder_without_faults_keeps_the_contract() {
    let open = |path: &Path| Faulty::new(open(path));
    contract::run(&|| OnDisk::subject(new_folder(), open));
}

fn events(store: &dyn Store) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    store
        .events(0, &mut |_, event| {
            all.push(event.to_vec());
            Ok(())
        })
        .unwrap();
    all
}

fn notes(store: &dyn Store) -> Vec<(u64, Vec<u8>)> {
    let mut all = Vec::new();
    store
        .notes(&mut |after, note| {
            all.push((after, note.to_vec()));
            Ok(())
        })
        .unwrap();
    all
}

fn faults_are_as_asked_for<S: Store>(store: &Faulty<S>) {
    let faults = store.faults();
    store.append(&[b"1"], &[]).unwrap();
    faults.fail_before(2);
    store.append(&[b"2"], &[]).unwrap();
    assert!(store.append(&[b"no"], &[]).is_err());
    assert!(store.append(&[b"no"], &[]).is_err(), "not before recover");
    assert_eq!(store.recover().unwrap(), 2);
    faults.fail_after(1);
    assert!(store.append(&[b"3", b"4"], &[]).is_err());
    assert_eq!(store.recover().unwrap(), 4);
    faults.set_full(true);
    assert!(store.append(&[b"no"], &[]).is_err());
    assert!(store.recover().is_err());
    assert!(store.put_snapshot(4, &mut |_| Ok(())).is_err());
    faults.set_full(false);
    assert_eq!(store.recover().unwrap(), 4);
    store.append(&[b"5"], &[]).unwrap();
    assert_eq!(events(store).concat(), b"12345");
    for room in [0, 5, 1_500_000, 9_000_000] {
        faults.fail_snapshot_after(room);
        let mut given = 0;
        let outcome = store.put_snapshot(5, &mut |out| {
            for _ in 0..20 {
                out.write_all(&[7; 100_000])?;
                given += 100_000;
            }
            Ok(())
        });
        assert!(outcome.is_err(), "{room}");
        assert!(given <= room, "{room}");
        assert!(store.snapshots().unwrap().is_empty());
    }
    store
        .put_snapshot(5, &mut |out| out.write_all(b"five"))
        .unwrap();
    assert_eq!(store.snapshots().unwrap(), [5]);
}

#[test]
fn faults_in_memory() {
    faults_are_as_asked_for(&Faulty::new(Memory::new()));
}

#[test]
fn faults_in_a_folder() {
    let folder = new_folder();
    faults_are_as_asked_for(&Faulty::new(open(folder.path())));
}

/// A folder with some of everything.
fn furnished(path: &Path) -> Folder {
    let store = open(path);
    store.set_identity(b"identity").unwrap();
    for round in 0..40_u8 {
        let event = [round; 700];
        store
            .append(&[&event, &event[1..]], &[&event[..9]])
            .unwrap();
    }
    store
        .put_snapshot(10, &mut |out| out.write_all(&[5; 40_000]))
        .unwrap();
    store
        .rewrite(10, &mut |row| match row {
            Row::Event(3, _) => Ok(Fate::Drop),
            _ => Ok(Fate::Keep),
        })
        .unwrap();
    store
        .put_snapshot(70, &mut |out| out.write_all(&[6; 1_100_000]))
        .unwrap();
    for _ in 0..3 {
        store.append(&[b"last"], &[b"note"]).unwrap();
    }
    store
}

/// First and last bytes, and some in between.
fn offsets(length: usize) -> Vec<usize> {
    let mut all: Vec<usize> = (0..length.min(64)).collect();
    all.extend((0..200).map(|i| length * i / 200 + i % 7));
    all.extend(length.saturating_sub(64)..length);
    all.retain(|at| *at < length);
    all.sort_unstable();
    all.dedup();
    all
}

fn flip(file: &Path, at: usize, bit: usize) {
    let mut both = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(file)
        .unwrap();
    let mut byte = [0];
    both.seek(SeekFrom::Start(at as u64)).unwrap();
    both.read_exact(&mut byte).unwrap();
    both.seek(SeekFrom::Start(at as u64)).unwrap();
    both.write_all(&[byte[0] ^ 1 << (bit % 8)]).unwrap();
}

#[test]
fn every_flipped_byte_of_a_closed_folder_is_found_in_its_file() {
    let folder = new_folder();
    let store = furnished(folder.path());
    let expected = events(&store);
    store.close().unwrap();
    drop(store);
    let epoch = folder.path().join("epoch");
    let before = fs::read(&epoch).unwrap();
    let mut flips = 0;
    for file in files(folder.path()) {
        let length = fs::metadata(&file).unwrap().len() as usize;
        for (bit, at) in offsets(length).into_iter().enumerate() {
            flip(&file, at, bit);
            let found = Folder::open_with_limit(folder.path(), LIMIT).and_then(|s| s.check());
            let error = found.expect_err(&format!("{} at {at}", file.display()));
            assert_eq!(file_of(&error), file, "{at}: {error}");
            flip(&file, at, bit);
            fs::write(&epoch, &before).unwrap();
            flips += 1;
        }
    }
    assert!(flips > 1500, "{flips}");
    assert!(events(&open(folder.path())) == expected);
}

#[test]
fn a_flipped_byte_after_a_crash_is_found_or_does_no_harm() {
    let folder = new_folder();
    let store = furnished(folder.path());
    let expected = (events(&store), notes(&store));
    let left = copy_of(folder.path());
    drop(store);
    let active = last_file(left.path());
    let mut found = 0;
    for file in files(left.path()) {
        // The others are as in a closed folder.
        let stride = if file == active { 2 } else { 41 };
        let length = fs::metadata(&file).unwrap().len() as usize;
        for (bit, at) in offsets(length).into_iter().enumerate().step_by(stride) {
            // Opening mends the last file of the log: each flip gets files of its own.
            let copy = copy_of(left.path());
            let damaged = copy.path().join(file.strip_prefix(left.path()).unwrap());
            flip(&damaged, at, bit);
            let opened = Folder::open_with_limit(copy.path(), LIMIT);
            match opened.and_then(|s| s.check().map(|_| s)) {
                Ok(store) => {
                    assert!(events(&store) == expected.0, "{file:?} at {at}");
                    assert!(notes(&store) == expected.1, "{file:?} at {at}");
                    assert_eq!(file, active, "{at}");
                }
                Err(error) => {
                    assert_eq!(file_of(&error), damaged, "{at}: {error}");
                    found += 1;
                }
            }
        }
    }
    assert!(found > 40, "{found}");
}

/// The file of the log that is written to.
fn last_file(folder: &Path) -> PathBuf {
    files(&folder.join("log")).pop().unwrap()
}

#[test]
fn a_folder_has_one_user() {
    let folder = new_folder();
    let store = open(folder.path());
    let second = Folder::open(folder.path()).unwrap_err();
    assert!(matches!(&second, StoreError::InUse(path) if path == folder.path()));
    assert!(second.to_string().ends_with("is in use by another server"));
    assert_eq!(store.epoch(), 1);
    drop(store);
    assert_eq!(open(folder.path()).epoch(), 2);
}

#[test]
fn foreign_and_newer_folders_are_refused() {
    let folder = new_folder();
    fs::write(folder.path().join("holiday.jpg"), b"sun").unwrap();
    let error = Folder::open(folder.path()).unwrap_err();
    assert!(matches!(error, StoreError::Format { .. }), "{error}");
    assert!(
        error.to_string().contains("it holds holiday.jpg"),
        "{error}"
    );
    assert_eq!(files(folder.path()).len(), 1, "nothing was written");

    let folder = new_folder();
    drop(open(folder.path()));
    let text = b"sclub store\nformat 2\n";
    let newer = [&text[..], blake3::hash(text).as_bytes()].concat();
    fs::write(folder.path().join("format"), newer).unwrap();
    let error = Folder::open(folder.path()).unwrap_err().to_string();
    let expected = "it was written by a newer version (format 2; this one reads 1)";
    assert!(error.contains(expected), "{error}");
}

/// Missing files are missed, each by its name.
#[test]
fn missing_files_are_missed() {
    let folder = new_folder();
    let store = furnished(folder.path());
    let crashed = copy_of(folder.path());
    store.close().unwrap();
    drop(store);
    for left in [folder.path(), crashed.path()] {
        for file in files(left) {
            let name = file.strip_prefix(left).unwrap();
            let copy = copy_of(left);
            fs::remove_file(copy.path().join(name)).unwrap();
            let outcome = Folder::open(copy.path());
            let blamed = match name.to_str().unwrap() {
                "identity" => {
                    assert_eq!(outcome.unwrap().identity().unwrap(), None);
                    continue;
                }
                "lock" | "snapshots/00000000000000000070.snap" => {
                    assert_eq!(outcome.unwrap().last(), 83);
                    continue;
                }
                // Without it the folder is not known to be a store.
                "format" => copy.path().to_path_buf(),
                _ => copy.path().join(name),
            };
            let error = outcome.expect_err(&format!("{name:?}"));
            assert_eq!(file_of(&error), blamed, "{error}");
        }
    }
}

#[test]
fn a_log_that_ends_before_its_snapshot_is_damaged() {
    let folder = new_folder();
    let store = open(folder.path());
    store.append(&[b"one"], &[]).unwrap();
    fs::create_dir_all(folder.path().join("snapshots")).unwrap();
    let early = copy_of(folder.path());
    store.append(&[b"two"], &[]).unwrap();
    store.put_snapshot(2, &mut |_| Ok(())).unwrap();
    let name = "snapshots/00000000000000000002.snap";
    fs::create_dir_all(early.path().join("snapshots")).unwrap();
    fs::copy(folder.path().join(name), early.path().join(name)).unwrap();
    let error = Folder::open(early.path()).unwrap_err().to_string();
    let expected = "it ends at event 1, but there is a snapshot at 2";
    assert!(error.contains(expected), "{error}");
}

/// The last file of the log goes back to what it was: the database itself cannot notice.
#[test]
fn acknowledged_events_and_notes_that_are_gone_are_missed() {
    let folder = new_folder();
    let store = open(folder.path());
    store.append(&[b"one"], &[b"a"]).unwrap();
    let log = last_file(folder.path());
    let name = log.strip_prefix(folder.path()).unwrap();
    for (event, reason) in [
        (false, "notes are missing"),
        (true, "events from 2 to 2 are missing"),
    ] {
        let early = fs::read(&log).unwrap();
        match event {
            true => store.append(&[b"two"], &[]).unwrap(),
            false => store.append(&[], &[b"b"]).unwrap(),
        }
        let left = copy_of(folder.path());
        fs::write(left.path().join(name), early).unwrap();
        let error = Folder::open(left.path()).unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
        assert_eq!(file_of(&error), left.path().join(name));
    }
}

#[test]
fn nothing_of_what_was_dropped_is_in_any_file() {
    let folder = new_folder();
    let store = open(folder.path());
    let (marker, kept) = (b"the-secret-of-someone", b"the-fact-that-stays");
    let holding = |what: &[u8]| {
        let holds = |f: &PathBuf| fs::read(f).unwrap().windows(what.len()).any(|w| w == what);
        files(folder.path()).into_iter().filter(holds).count()
    };
    for round in 0..50_u8 {
        let secret = [&marker[..], &[round; 900]].concat();
        let public = [&kept[..], &[round; 100]].concat();
        store.append(&[&secret, &public], &[&secret]).unwrap();
    }
    store
        .put_snapshot(90, &mut |out| out.write_all(marker))
        .unwrap();
    assert!(holding(marker) > 2);
    // As if a crash had come before it could be removed.
    let old = folder.path().join("snapshots/00000000000000000090.snap");
    let bytes = fs::read(&old).unwrap();
    store
        .put_snapshot(100, &mut |out| out.write_all(b"clean"))
        .unwrap();
    fs::write(&old, bytes).unwrap();
    store
        .rewrite(100, &mut |row| match row {
            Row::Event(_, bytes) | Row::Note(bytes) if bytes.starts_with(marker) => {
                Ok(match bytes[bytes.len() - 1] % 2 {
                    0 => Fate::Drop,
                    _ => Fate::Replace(b"gone".to_vec()),
                })
            }
            _ => Ok(Fate::Keep),
        })
        .unwrap();
    assert_eq!(holding(marker), 0);
    assert!(holding(kept) > 2);
    assert_eq!(store.check().unwrap().events, 100);
}

/// As if the machine had stopped in the middle of a rewrite.
#[test]
fn a_rewrite_that_was_cut_short_can_be_done_again() {
    let folder = new_folder();
    let store = furnished(folder.path());
    let whole = events(&store);
    let drop_even = |number: u64| match number % 2 {
        0 => Fate::Drop,
        _ => Fate::Keep,
    };
    let mut left = Vec::new();
    store
        .rewrite(70, &mut |row| match row {
            Row::Event(number, _) => {
                if number % 8 == 0 {
                    left.push(copy_of(folder.path()));
                }
                Ok(drop_even(number))
            }
            Row::Note(_) => Ok(Fate::Keep),
        })
        .unwrap();
    let expected = events(&store);
    let mut bases = Vec::new();
    for copy in left {
        let store = open(copy.path());
        bases.push(store.base());
        for ((now, before), after) in events(&store).iter().zip(&whole).zip(&expected) {
            assert!(now == before || now == after);
        }
        store.check().unwrap();
        store
            .rewrite(70, &mut |row| match row {
                Row::Event(number, _) => Ok(drop_even(number)),
                Row::Note(_) => Ok(Fate::Keep),
            })
            .unwrap();
        assert!(events(&store) == expected);
    }
    bases.dedup();
    assert_eq!(bases, [10, 70]);
}

#[test]
fn a_damaged_backup_leaves_nothing() {
    let source = new_folder();
    let store = furnished(source.path());
    let mut backup = Vec::new();
    store.backup(&mut backup).unwrap();
    let place = new_folder();
    let target = place.path().join("restored");
    for at in offsets(backup.len()).into_iter().step_by(18) {
        let mut bad = backup.clone();
        bad[at] ^= 4;
        restore(&mut bad.as_slice(), &target).expect_err(&format!("{at}"));
        restore(&mut &backup[..at], &target).expect_err("it is cut");
        assert_eq!(files(place.path()), Vec::<PathBuf>::new(), "{at}");
    }
    restore(&mut [&backup[..], b"x"].concat().as_slice(), &target).unwrap_err();
    assert!(!target.exists());
    restore(&mut backup.as_slice(), &target).unwrap();
    assert!(events(&open(&target)) == events(&store));
    let error = restore(&mut backup.as_slice(), &target).unwrap_err();
    assert!(error.to_string().ends_with("is not empty"), "{error}");
}

#[test]
fn folders_get_no_new_files_when_they_are_only_opened() {
    let folder = new_folder();
    let store = Folder::open(folder.path()).unwrap();
    store.append(&[b"one"], &[]).unwrap();
    store.close().unwrap();
    drop(store);
    let before = files(folder.path());
    for round in 0..4 {
        let store = Folder::open(folder.path()).unwrap();
        store.check().unwrap();
        if round == 3 {
            store.append(&[b"two"], &[]).unwrap();
        }
        store.close().unwrap();
    }
    assert_eq!(files(folder.path()), before);
}

/// Who may write everywhere cannot be kept from it: nothing is tested then.
#[cfg(unix)]
#[test]
fn a_folder_that_cannot_be_written_says_so() {
    use std::os::unix::fs::PermissionsExt;
    let folder = new_folder();
    drop(open(folder.path()));
    let mode = |mode| fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
    mode(0o555);
    if fs::write(folder.path().join("probe"), b"").is_err() {
        let error = Folder::open(folder.path()).unwrap_err();
        assert!(matches!(error, StoreError::Write { .. }), "{error}");
    }
    mode(0o755);
}

/// A folder in the place of a file makes writing fail, also for those who may write everywhere.
#[test]
fn a_folder_recovers_from_a_failed_write() {
    let folder = new_folder();
    let store = open(folder.path());
    let mut expected = Vec::new();
    for blocked in ["log/00000000000000000001-0.redb", "manifest.tmp"] {
        let path = folder.path().join(blocked);
        fs::create_dir(&path).unwrap();
        let failed = loop {
            let event = vec![expected.len() as u8 + 1; 3_000];
            match store.append(&[&event], &[]) {
                Ok(()) => expected.push(event),
                Err(error) => break error,
            }
            assert!(expected.len() < 50, "{blocked} is in nobody's way");
        };
        assert!(matches!(failed, StoreError::Write { .. }), "{failed}");
        assert!(store.append(&[b"no"], &[]).is_err(), "not before recover");
        fs::remove_dir(&path).unwrap();
        assert_eq!(store.recover().unwrap(), expected.len() as u64);
        expected.push(b"again".to_vec());
        store.append(&[b"again"], &[]).unwrap();
        assert!(events(&store) == expected);
        store.check().unwrap();
    }
    store.close().unwrap();
    drop(store);
    assert!(events(&open(folder.path())) == expected);
}
