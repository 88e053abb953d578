//! Small files, each with a checksum and replaced atomically.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::StoreError;
use crate::env::{Access, Disk, DiskFile, Env};

const SUM: usize = 32;

/// Converts a system error into one that names the file.
pub(super) trait At<T> {
    fn reading(self, file: &Path) -> Result<T, StoreError>;
    fn writing(self, file: &Path) -> Result<T, StoreError>;
}

impl<T> At<T> for io::Result<T> {
    fn reading(self, file: &Path) -> Result<T, StoreError> {
        self.map_err(|error| StoreError::Read {
            file: file.into(),
            reason: error.to_string(),
        })
    }

    fn writing(self, file: &Path) -> Result<T, StoreError> {
        self.map_err(|error| StoreError::Write {
            file: file.into(),
            reason: error.to_string(),
        })
    }
}

pub(super) fn damaged(file: &Path, reason: impl Into<String>) -> StoreError {
    StoreError::Damaged {
        file: file.into(),
        reason: reason.into(),
    }
}

/// Writes a file and its checksum atomically: the new contents are durable, or the old ones stay.
pub(super) fn put(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    let sum = blake3::hash(bytes);
    let whole = [bytes, sum.as_bytes()].concat();
    let new = path.with_extension("tmp");
    let done = (|| {
        let file = disk.open(&new, Access::Create)?;
        file.write_all_at(&whole, 0)?;
        file.sync()?;
        disk.rename(&new, path)?;
        disk.sync_dir(parent(path))
    })();
    if done.is_err() {
        let _ = disk.remove(&new);
    }
    done.writing(path)
}

/// Reads a file that [`put`] wrote; `None` if it does not exist.
pub(super) fn get(disk: &dyn Disk, path: &Path) -> Result<Option<Vec<u8>>, StoreError> {
    let file = match disk.open(path, Access::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.reading(path)?,
    };
    let length = file.len().reading(path)? as usize;
    let mut bytes = vec![0; length];
    let read = file.read_full_at(&mut bytes, 0).reading(path)?;
    let end = read
        .checked_sub(SUM)
        .ok_or_else(|| damaged(path, "it ends too early"))?;
    if blake3::hash(&bytes[..end]).as_bytes() != &bytes[end..read] {
        return Err(damaged(path, "its checksum does not match"));
    }
    bytes.truncate(end);
    Ok(Some(bytes))
}

/// A small file whose loss is no harm.
#[derive(Debug)]
pub struct SmallFile {
    disk: Arc<dyn Disk>,
    path: PathBuf,
}

impl SmallFile {
    /// The file of a path.
    pub fn new(env: &Env, path: &Path) -> Self {
        Self {
            disk: Arc::clone(&env.disk),
            path: path.into(),
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its contents; `None` if it does not exist.
    ///
    /// # Errors
    /// If it cannot be read, or its checksum does not match.
    pub fn read(&self) -> Result<Option<Vec<u8>>, StoreError> {
        get(&*self.disk, &self.path)
    }

    /// Replaces it atomically.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, bytes: &[u8]) -> Result<(), StoreError> {
        put(&*self.disk, &self.path, bytes)
    }
}

/// Makes a folder and those above it that do not exist, with durable names.
pub(super) fn make_dir(disk: &dyn Disk, path: &Path) -> Result<(), StoreError> {
    let is_new = |path: &&Path| {
        let names = disk.names(path);
        !path.as_os_str().is_empty()
            && names.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    };
    let made: Vec<&Path> = path.ancestors().skip(1).take_while(is_new).collect();
    disk.make_dir(path).writing(path)?;
    // The name of an existing folder may not be durable yet.
    for path in std::iter::once(path).chain(made) {
        disk.sync_dir(parent(path)).writing(path)?;
    }
    Ok(())
}

/// The folder that a file is in.
pub(super) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Reads or writes a file sequentially from its start.
#[derive(Debug)]
pub(super) struct Sequential {
    file: Arc<dyn DiskFile>,
    offset: u64,
}

impl Sequential {
    pub fn open(disk: &dyn Disk, path: &Path, access: Access) -> io::Result<Self> {
        let file = disk.open(path, access)?;
        Ok(Self { file, offset: 0 })
    }

    pub fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
}

impl Read for Sequential {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(out, self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }
}

impl Write for Sequential {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write_at(bytes, self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
