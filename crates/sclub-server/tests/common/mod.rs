//! Helpers of the tests of the folder and the engine: folders that can be copied while they are in use, a
//! disk with faults, and a clock that jumps.

#![allow(dead_code, reason = "each test uses some of it")]

pub mod clock;
pub mod disk;
mod folder;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

pub use folder::new_folder;

/// The files of a folder, with those below, sorted.
pub fn files(folder: &Path) -> Vec<PathBuf> {
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

/// A copy of the files as a process that is killed now would leave them.
///
/// The tasks of the engine go on meanwhile. So the copy is repeated if a snapshot was made or removed, and the
/// log is copied last: it may have more batches than the other files know of, never less.
pub fn copy_of(folder: &Path) -> TempDir {
    for _ in 0..100 {
        let before = snapshots(folder);
        let copy = new_folder();
        if copy_into(folder, copy.path()).is_ok() && snapshots(folder) == before {
            return copy;
        }
    }
    panic!("{} never stands still", folder.display());
}

fn snapshots(folder: &Path) -> Vec<PathBuf> {
    let dir = folder.join("snapshots");
    if dir.is_dir() {
        files(&dir)
    } else {
        Vec::new()
    }
}

fn copy_into(folder: &Path, copy: &Path) -> io::Result<()> {
    let mut all = files(folder);
    all.sort_by_key(|file| file.parent().is_some_and(|dir| dir.ends_with("log")));
    for file in all {
        let to = copy.join(file.strip_prefix(folder).unwrap());
        fs::create_dir_all(to.parent().unwrap())?;
        fs::copy(&file, to)?;
    }
    Ok(())
}

/// Flips a bit.
pub fn flip(file: &Path, at: usize, bit: usize) {
    use std::os::unix::fs::FileExt;
    let both = fs::OpenOptions::new().read(true).write(true).open(file);
    let both = both.unwrap();
    let mut byte = [0];
    both.read_exact_at(&mut byte, at as u64).unwrap();
    both.write_all_at(&[byte[0] ^ 1 << (bit % 8)], at as u64)
        .unwrap();
}

/// The number of files below a folder that contain some bytes.
pub fn files_containing(folder: &Path, what: &[u8]) -> usize {
    let holds = |file: &PathBuf| {
        let bytes = fs::read(file).unwrap();
        bytes.windows(what.len()).any(|part| part == what)
    };
    files(folder).into_iter().filter(holds).count()
}
