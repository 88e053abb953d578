//! The files of a file system that is read-only.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::real::{self, SystemDisk};
use super::{Access, Disk, DiskFile, LockGuard};

/// Reads files. It skips what a start of a server would do first: folders are not made, unfinished files are not removed, and nothing is
/// synced.
#[derive(Debug)]
pub(super) struct Unwritable;

/// Returns true if a file that exists cannot be written because the file system is read-only.
pub(super) fn is_unwritable(file: &Path) -> bool {
    let opened = OpenOptions::new().write(true).open(file);
    opened.is_err_and(|error| error.kind() == io::ErrorKind::ReadOnlyFilesystem)
}

fn refused<T>() -> io::Result<T> {
    Err(io::ErrorKind::ReadOnlyFilesystem.into())
}

impl Disk for Unwritable {
    fn make_dir(&self, path: &Path) -> io::Result<()> {
        std::fs::read_dir(path).map(drop)
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        match access {
            Access::Create => refused(),
            Access::Read | Access::Write => {
                let file = SystemDisk.open(path, Access::Read)?;
                Ok(Arc::new(ReadFile(file)))
            }
        }
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        refused()
    }

    fn remove(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn remove_dir_all(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn names(&self, dir: &Path) -> io::Result<Vec<String>> {
        SystemDisk.names(dir)
    }

    fn len(&self, path: &Path) -> io::Result<u64> {
        SystemDisk.len(path)
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockGuard>> {
        real::locked(File::open(path)?)
    }
}

#[derive(Debug)]
struct ReadFile(Arc<dyn DiskFile>);

impl DiskFile for ReadFile {
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(out, offset)
    }

    /// Does nothing for bytes that are there already: opening a log writes its end again, to make it durable.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let mut there = vec![0; bytes.len()];
        let count = self.0.read_full_at(&mut there, offset)?;
        if there[..count] == *bytes {
            return Ok(count);
        }
        refused()
    }

    fn allocate(&self, _: u64) -> io::Result<()> {
        refused()
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::engine::{Engine, RecommendQuery, backup_folder, export_folder, verify};
    use crate::env::Env;
    use crate::event::Item;
    use crate::settings::Settings;
    use crate::state::Scratch;

    /// All files below a folder.
    fn files(folder: &Path) -> BTreeMap<std::path::PathBuf, Vec<u8>> {
        let mut all = BTreeMap::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => all.extend(files(&path)),
                false => drop(all.insert(path.clone(), std::fs::read(&path).unwrap())),
            }
        }
        all
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn reading_a_folder_changes_nothing_and_finds_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let engine = Engine::open(Env::real(), path, &Settings::default()).unwrap();
        let item = Item {
            id: "a".to_owned(),
            features: vec![1.0],
        };
        engine.upsert(vec![item]).await.unwrap();
        engine.snapshot().await.unwrap();
        let asked = RecommendQuery::new("u", 1);
        for _ in 0..3 {
            engine.recommend(&asked, &mut Scratch::default()).unwrap();
        }
        engine.expect(7).await.unwrap();
        engine.close().await;
        drop(engine);
        std::fs::write(path.join("log/9.tmp"), "left by a crash").unwrap();
        let before = files(path);
        let reading = Env {
            disk: Arc::new(Unwritable),
            ..Env::real()
        };
        let look = |env: &Env| {
            let (mut backup, mut export) = (Vec::new(), Vec::new());
            backup_folder(env, path, &mut backup).unwrap();
            export_folder(env, path, &mut export).unwrap();
            (verify(env, path, &mut |_| {}).unwrap().hash, backup, export)
        };
        let seen = look(&reading);
        assert_eq!(files(path), before);
        assert!(Engine::open(reading, path, &Settings::default()).is_err());
        assert_eq!(files(path), before);
        assert_eq!(look(&Env::real()), seen);
        // Of a file system that can be written, files are written.
        assert!(!is_unwritable(&path.join("lock")));
        assert!(!is_unwritable(&path.join("none")));
    }
}
