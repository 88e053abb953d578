//! Small files that are whole or not there, and what the system says when they are not.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::store::StoreError;

const SUM: usize = 32;

/// Makes errors of the system and of the database ours.
pub(super) trait At<T> {
    fn writing(self, file: &Path) -> Result<T, StoreError>;
    fn reading(self, file: &Path) -> Result<T, StoreError>;
}

pub(super) fn write_error(file: &Path, e: io::Error) -> StoreError {
    match e.kind() {
        io::ErrorKind::UnexpectedEof => damaged(file, "it ends too early"),
        io::ErrorKind::InvalidData => damaged(file, e.to_string()),
        _ => StoreError::Write {
            file: file.into(),
            reason: e.to_string(),
        },
    }
}

pub(super) fn read_error(file: &Path, e: io::Error) -> StoreError {
    match e.kind() {
        io::ErrorKind::NotFound => damaged(file, "it is missing"),
        io::ErrorKind::UnexpectedEof => damaged(file, "it ends too early"),
        io::ErrorKind::InvalidData => damaged(file, e.to_string()),
        _ => StoreError::Read {
            file: file.into(),
            reason: e.to_string(),
        },
    }
}

pub(super) fn damaged(file: &Path, reason: impl Into<String>) -> StoreError {
    StoreError::Damaged {
        file: file.into(),
        reason: reason.into(),
    }
}

/// The name a file has while it is written.
pub(super) fn temporary(file: &Path) -> PathBuf {
    file.with_extension("tmp")
}

/// Writes a small file with a checksum. Afterwards it is durable; before, the old one is.
pub(super) fn put(file: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    let new = temporary(file);
    let mut out = File::create(&new).writing(&new)?;
    out.write_all(&with_sum(bytes))
        .and_then(|()| out.sync_all())
        .writing(&new)?;
    fs::rename(&new, file).writing(file)?;
    sync_folder(parent(file))
}

/// Reads what [`put`] wrote. None where there is no such file.
pub(super) fn get(file: &Path) -> Result<Option<Vec<u8>>, StoreError> {
    let mut bytes = Vec::new();
    match File::open(file).and_then(|mut f| f.read_to_end(&mut bytes)) {
        Ok(_) => without_sum(file, bytes).map(Some),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e).reading(file),
    }
}

/// `bytes` and their checksum.
pub(super) fn with_sum(bytes: &[u8]) -> Vec<u8> {
    [bytes, blake3::hash(bytes).as_bytes()].concat()
}

fn without_sum(file: &Path, mut bytes: Vec<u8>) -> Result<Vec<u8>, StoreError> {
    let length = bytes
        .len()
        .checked_sub(SUM)
        .ok_or_else(|| damaged(file, "it ends too early"))?;
    if blake3::hash(&bytes[..length]).as_bytes() != &bytes[length..] {
        return Err(damaged(file, "its checksum does not match"));
    }
    bytes.truncate(length);
    Ok(bytes)
}

/// Makes the names in a folder durable.
pub(super) fn sync_folder(folder: &Path) -> Result<(), StoreError> {
    // Not every system can open a folder as a file.
    #[cfg(unix)]
    File::open(folder)
        .and_then(|f| f.sync_all())
        .writing(folder)?;
    #[cfg(not(unix))]
    let _ = folder;
    Ok(())
}

/// Makes what is in a file durable.
pub(super) fn sync_file(file: &Path) -> Result<(), StoreError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(file)
        .and_then(|f| f.sync_all())
        .writing(file)
}

/// Makes a folder and its name durable, if it is not there.
pub(super) fn make_folder(folder: &Path) -> Result<(), StoreError> {
    if !folder.is_dir() {
        fs::create_dir_all(folder).writing(folder)?;
        sync_folder(parent(folder))?;
    }
    Ok(())
}

/// Removes a file, if it is there.
pub(super) fn remove(file: &Path) -> Result<(), StoreError> {
    match fs::remove_file(file) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e).writing(file),
        _ => Ok(()),
    }
}

/// The names in a folder.
pub(super) fn names(folder: &Path) -> Result<Vec<String>, StoreError> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).reading(folder)? {
        let name = entry.reading(folder)?.file_name();
        names.push(name.to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// The folder a file is in.
pub(super) fn parent(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Length and digest of a whole file.
pub(super) fn digest(file: &Path) -> Result<(u64, [u8; SUM]), StoreError> {
    let mut from = File::open(file).reading(file)?;
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 1 << 18];
    let mut length = 0;
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok((length, *hasher.finalize().as_bytes())),
            Ok(count) => {
                hasher.update(&buffer[..count]);
                length += count as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e).reading(file),
        }
    }
}

/// Writes every byte of a file again, and makes it durable.
///
/// After the system has failed to write a file, what it shows of it may not be on the disk, and it
/// does not try again on its own.
pub(super) fn write_again(file: &Path) -> Result<(), StoreError> {
    use std::io::{Seek, SeekFrom};
    let mut both = OpenOptions::new()
        .read(true)
        .write(true)
        .open(file)
        .writing(file)?;
    let mut buffer = Vec::with_capacity(1 << 18);
    let mut at = 0;
    loop {
        buffer.clear();
        both.seek(SeekFrom::Start(at)).reading(file)?;
        (&both)
            .take(1 << 18)
            .read_to_end(&mut buffer)
            .reading(file)?;
        if buffer.is_empty() {
            return both.sync_all().writing(file);
        }
        both.seek(SeekFrom::Start(at))
            .and_then(|_| both.write_all(&buffer))
            .writing(file)?;
        at += buffer.len() as u64;
    }
}
