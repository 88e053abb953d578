//! Snapshot files: a sequence of pieces, each with a checksum over its index, its length and its bytes.

use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::StoreError;
use super::files::{At, Sequential};
use crate::env::{Access, Env};
use crate::locks::lock;

const MARK: &[u8; 16] = b"sclub snapshot2\n";
const PIECE: usize = 1 << 20;
const SUM: usize = 32;

/// Snapshots by the number of the last batch in them. Each is complete and durable, or does not exist.
pub trait SnapshotStore: std::fmt::Debug + Send + Sync {
    /// The last batches of the snapshots, in rising order.
    fn list(&self) -> Vec<u64>;

    /// The name of a snapshot, for messages.
    fn name(&self, at: u64) -> String;

    /// Writes a snapshot.
    ///
    /// # Errors
    /// If it cannot be written, or `write` fails.
    fn write(&self, at: u64, write: &mut WriteSnapshot<'_>) -> Result<(), StoreError>;

    /// Opens a snapshot. The reader checks every byte before it returns it.
    ///
    /// # Errors
    /// If it cannot be opened.
    fn read(&self, at: u64) -> Result<Box<dyn Read + Send>, StoreError>;

    /// Removes a snapshot that cannot be read from the list, so that no other data is dropped because of it.
    fn disregard(&self, at: u64);

    /// Removes every snapshot except some.
    ///
    /// # Errors
    /// If one cannot be removed. It can be retried.
    fn keep_only(&self, keep: &[u64]) -> Result<(), StoreError>;

    /// Removes copies that only make reading faster.
    ///
    /// # Errors
    /// If one cannot be removed. It can be retried.
    fn drop_copies(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Writes the contents of a snapshot.
pub type WriteSnapshot<'a> = dyn FnMut(&mut dyn Write) -> io::Result<()> + 'a;

impl SnapshotStore for Snapshots {
    fn list(&self) -> Vec<u64> {
        Snapshots::list(self)
    }

    fn name(&self, at: u64) -> String {
        self.path(at).display().to_string()
    }

    fn write(&self, at: u64, write: &mut WriteSnapshot<'_>) -> Result<(), StoreError> {
        Snapshots::write(self, at, write)
    }

    fn read(&self, at: u64) -> Result<Box<dyn Read + Send>, StoreError> {
        Snapshots::read(self, at)
    }

    fn disregard(&self, at: u64) {
        Snapshots::disregard(self, at);
    }

    fn keep_only(&self, keep: &[u64]) -> Result<(), StoreError> {
        Snapshots::keep_only(self, keep)
    }
}

/// The snapshots of a data folder, by the number of the last batch in them.
#[derive(Debug)]
pub struct Snapshots {
    env: Env,
    dir: PathBuf,
    /// The durable snapshots, in rising order.
    known: Mutex<Vec<u64>>,
}

impl Snapshots {
    /// Opens the folder of snapshots, which is made if it does not exist, and removes unfinished ones.
    ///
    /// # Errors
    /// If it cannot be read or written.
    pub fn open(env: &Env, dir: &Path) -> Result<Self, StoreError> {
        let disk = &env.disk;
        disk.make_dir(dir).writing(dir)?;
        let mut known = Vec::new();
        for name in disk.names(dir).reading(dir)? {
            if name.ends_with(".tmp") {
                disk.remove(&dir.join(&name)).writing(dir)?;
            } else if let Some(at) = name.strip_suffix(".snap").and_then(|n| n.parse().ok()) {
                known.push(at);
            }
        }
        known.sort_unstable();
        // A name that is visible may not be durable yet.
        disk.sync_dir(dir).writing(dir)?;
        Ok(Self {
            env: env.clone(),
            dir: dir.into(),
            known: Mutex::new(known),
        })
    }

    /// The last batches of the snapshots, in rising order.
    pub fn list(&self) -> Vec<u64> {
        self.known().clone()
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Vec<u64>> {
        lock(&self.known)
    }

    /// The file of a snapshot.
    pub fn path(&self, at: u64) -> PathBuf {
        self.dir.join(format!("{at:020}.snap"))
    }

    /// Writes a snapshot atomically: it is complete and durable, or does not exist.
    ///
    /// # Errors
    /// If it cannot be written, or `write` fails.
    pub fn write(
        &self,
        at: u64,
        write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), StoreError> {
        let disk = &*self.env.disk;
        let path = self.path(at);
        let new = path.with_extension("tmp");
        let done = (|| {
            let file = Sequential::open(disk, &new, Access::Create)?;
            let mut pieces = Writer::new(file, at)?;
            write(&mut pieces)?;
            pieces.finish()?.sync()?;
            disk.rename(&new, &path)?;
            disk.sync_dir(&self.dir)
        })();
        if let Err(error) = done {
            // If it cannot be removed now, it is removed when the folder is opened or the next snapshot is
            // written.
            let _ = disk.remove(&new);
            return Err(error).writing(&path);
        }
        let mut known = self.known();
        if let Err(place) = known.binary_search(&at) {
            known.insert(place, at);
        }
        Ok(())
    }

    /// Opens a snapshot. The reader checks every byte before it returns it, and stays usable if the file is
    /// removed.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn read(&self, at: u64) -> Result<Box<dyn Read + Send>, StoreError> {
        let path = self.path(at);
        let file = Sequential::open(&*self.env.disk, &path, Access::Read).reading(&path)?;
        Ok(Box::new(Reader::new(BufReader::new(file), path, at)))
    }

    /// Removes a snapshot that cannot be read from the list, so that no other file is dropped because of it.
    /// Its file stays until the next snapshot is written.
    pub fn disregard(&self, at: u64) {
        self.known().retain(|known| *known != at);
    }

    /// Removes every snapshot except some, and the remains of failed writes.
    ///
    /// # Errors
    /// If a file cannot be removed. It can be retried.
    pub fn keep_only(&self, keep: &[u64]) -> Result<(), StoreError> {
        let disk = &self.env.disk;
        let kept: Vec<PathBuf> = keep.iter().map(|&at| self.path(at)).collect();
        self.known().retain(|at| keep.contains(at));
        for name in disk.names(&self.dir).reading(&self.dir)? {
            let path = self.dir.join(name);
            if !kept.contains(&path) {
                disk.remove(&path).writing(&path)?;
            }
        }
        disk.sync_dir(&self.dir).writing(&self.dir)
    }

    /// Reads every byte of every snapshot. Returns the number of files and their bytes.
    ///
    /// # Errors
    /// The file that is damaged.
    pub fn check(&self) -> Result<(u64, u64), StoreError> {
        let (mut files, mut bytes) = (0, 0);
        for at in self.list() {
            let path = self.path(at);
            io::copy(&mut self.read(at)?, &mut io::sink()).map_err(|error| {
                StoreError::Damaged {
                    file: path.clone(),
                    reason: error.to_string(),
                }
            })?;
            files += 1;
            bytes += self.env.disk.len(&path).reading(&path)?;
        }
        Ok((files, bytes))
    }
}

struct Writer<W> {
    out: W,
    at: u64,
    index: u64,
    piece: Vec<u8>,
}

impl<W: Write> Writer<W> {
    fn new(mut out: W, at: u64) -> io::Result<Self> {
        out.write_all(MARK)?;
        Ok(Self {
            out,
            at,
            index: 0,
            piece: Vec::with_capacity(PIECE),
        })
    }

    /// Writes the current piece. An empty one is the end mark.
    fn put(&mut self) -> io::Result<()> {
        let length = self.piece.len() as u32;
        self.out.write_all(&length.to_le_bytes())?;
        self.out.write_all(&self.piece)?;
        self.out.write_all(&sum(self.at, self.index, &self.piece))?;
        self.index += 1;
        self.piece.clear();
        Ok(())
    }

    fn finish(mut self) -> io::Result<W> {
        if !self.piece.is_empty() {
            self.put()?;
        }
        self.put()?;
        self.out.flush()?;
        Ok(self.out)
    }
}

impl<W: Write> Write for Writer<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(PIECE - self.piece.len());
        self.piece.extend_from_slice(&bytes[..count]);
        if self.piece.len() == PIECE {
            self.put()?;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads a snapshot, and checks every byte before it returns it.
#[derive(Debug)]
struct Reader<R> {
    from: R,
    path: PathBuf,
    at: u64,
    index: u64,
    piece: Vec<u8>,
    used: usize,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Start,
    Middle,
    End,
    Damaged,
}

impl<R: Read> Reader<R> {
    fn new(from: R, path: PathBuf, at: u64) -> Self {
        Self {
            from,
            path,
            at,
            index: 0,
            piece: Vec::with_capacity(PIECE),
            used: 0,
            state: State::Start,
        }
    }

    fn next(&mut self) -> io::Result<State> {
        if self.state == State::Start {
            let mut mark = [0; MARK.len()];
            self.from.read_exact(&mut mark)?;
            if mark != *MARK {
                return Err(wrong("it does not begin with the mark of a snapshot"));
            }
        }
        let mut length = [0; 4];
        self.from.read_exact(&mut length)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > PIECE {
            return Err(wrong("a length is invalid"));
        }
        self.piece.resize(length, 0);
        self.used = 0;
        self.from.read_exact(&mut self.piece)?;
        let mut written = [0; SUM];
        self.from.read_exact(&mut written)?;
        if written != sum(self.at, self.index, &self.piece) {
            return Err(wrong("a checksum does not match"));
        }
        self.index += 1;
        if length > 0 {
            return Ok(State::Middle);
        }
        match self.from.read(&mut [0])? {
            0 => Ok(State::End),
            _ => Err(wrong("there are bytes after its end")),
        }
    }

    fn named(&self, e: io::Error) -> io::Error {
        let kind = match e.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData => io::ErrorKind::InvalidData,
            kind => kind,
        };
        let reason = match e.kind() {
            io::ErrorKind::UnexpectedEof => "it ends too early".to_string(),
            _ => e.to_string(),
        };
        io::Error::new(kind, format!("{}: {reason}", self.path.display()))
    }
}

impl<R: Read> Read for Reader<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        if self.used == self.piece.len() && matches!(self.state, State::Start | State::Middle) {
            match self.next() {
                Ok(state) => self.state = state,
                Err(e) => {
                    self.state = State::Damaged;
                    return Err(self.named(e));
                }
            }
        }
        if self.state == State::Damaged {
            return Err(self.named(wrong("it is damaged")));
        }
        let count = (self.piece.len() - self.used).min(out.len());
        out[..count].copy_from_slice(&self.piece[self.used..self.used + count]);
        self.used += count;
        Ok(count)
    }
}

fn wrong(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

fn sum(at: u64, index: u64, piece: &[u8]) -> [u8; SUM] {
    let mut hasher = blake3::Hasher::new();
    for number in [at, index, piece.len() as u64] {
        hasher.update(&number.to_le_bytes());
    }
    *hasher.update(piece).finalize().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(bytes: &[u8]) -> Vec<u8> {
        let mut pieces = Writer::new(Vec::new(), 7).unwrap();
        pieces.write_all(bytes).unwrap();
        pieces.finish().unwrap()
    }

    fn read(file: &[u8], at: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        Reader::new(file, "name".into(), at).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    #[test]
    fn snapshots_are_read_as_written() {
        for length in [0, 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE + 5] {
            let bytes: Vec<u8> = (0..length).map(|i| ((i * i) >> 3) as u8).collect();
            assert!(read(&written(&bytes), 7).unwrap() == bytes, "{length}");
        }
    }

    #[test]
    fn cut_swapped_and_renamed_snapshots_are_refused() {
        let whole = written(&vec![9; 2 * PIECE + 5]);
        let refused = |file: &[u8], at| {
            let error = read(file, at).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            assert!(error.to_string().starts_with("name: "), "{error}");
        };
        let frame = 4 + PIECE + SUM;
        for cut in [0, 3, 16, 18, 16 + frame, 16 + 2 * frame, whole.len() - 1] {
            refused(&whole[..cut], 7);
        }
        refused(&whole, 8);
        let swapped = [
            &whole[..16],
            &whole[16 + frame..16 + 2 * frame],
            &whole[16..16 + frame],
            &whole[16 + 2 * frame..],
        ];
        refused(&swapped.concat(), 7);
        refused(&[&whole[..], &[0]].concat(), 7);
    }
}
