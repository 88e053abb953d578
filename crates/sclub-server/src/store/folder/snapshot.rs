//! Snapshots as files: pieces, each with a checksum over its place, its length and its bytes.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::files::{self, At};
use crate::store::StoreError;

const MARK: &[u8; 16] = b"sclub snapshot1\n";
const PIECE: usize = 1 << 20;
const SUM: usize = 32;

pub(super) fn folder(store: &Path) -> PathBuf {
    store.join("snapshots")
}

pub(super) fn file(store: &Path, at: u64) -> PathBuf {
    folder(store).join(format!("{at:020}.snap"))
}

/// The events after which there is a snapshot, in rising order.
pub(super) fn list(store: &Path) -> Result<Vec<u64>, StoreError> {
    let names = files::names(&folder(store))?;
    let mut all: Vec<u64> = names.iter().filter_map(|n| number(n)).collect();
    all.sort_unstable();
    Ok(all)
}

fn number(name: &str) -> Option<u64> {
    name.strip_suffix(".snap")?.parse().ok()
}

/// Removes the snapshots that `keep` does not want, and what was left unfinished.
pub(super) fn tidy(store: &Path, keep: impl Fn(u64) -> bool) -> Result<(), StoreError> {
    let folder = folder(store);
    let mut gone = false;
    for name in files::names(&folder)? {
        let unwanted = number(&name).is_some_and(|at| !keep(at));
        if unwanted || name.ends_with(".tmp") {
            files::remove(&folder.join(&name))?;
            gone = true;
        }
    }
    if gone {
        files::sync_folder(&folder)?;
    }
    Ok(())
}

/// Writes a snapshot. It is there, whole and durable, or not at all.
pub(super) fn write(
    store: &Path,
    at: u64,
    write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
) -> Result<(), StoreError> {
    let path = file(store, at);
    let new = files::temporary(&path);
    let outcome = write_whole(&new, at, write);
    if outcome.is_err() {
        // What cannot be removed now is removed when the folder is opened.
        let _ = fs::remove_file(&new);
    }
    outcome.writing(&path)?;
    fs::rename(&new, &path).writing(&path)?;
    files::sync_folder(&folder(store))
}

fn write_whole(
    path: &Path,
    at: u64,
    write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut pieces = Writer::new(File::create(path)?, at)?;
    write(&mut pieces)?;
    pieces.finish()?.sync_all()
}

/// Opens a snapshot.
pub(super) fn open(store: &Path, at: u64) -> Result<Reader<File>, StoreError> {
    let path = file(store, at);
    match File::open(&path) {
        Ok(from) => Ok(Reader::new(from, path, at)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            Err(StoreError::Refused(format!("there is no snapshot at {at}")))
        }
        Err(e) => Err(e).reading(&path),
    }
}

/// Reads a snapshot to its end, and returns how many bytes its file has.
pub(super) fn check(store: &Path, at: u64) -> Result<u64, StoreError> {
    let path = file(store, at);
    let mut reader = open(store, at)?;
    io::copy(&mut reader, &mut io::sink()).reading(&path)?;
    Ok(fs::metadata(&path).reading(&path)?.len())
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

    /// Writes the piece that is full, or the empty one that is the end mark.
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

/// Reads a snapshot, and gives out no byte that is not as it was written.
#[derive(Debug)]
pub(super) struct Reader<R> {
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
                return Err(wrong("it does not begin as a snapshot does"));
            }
        }
        let mut length = [0; 4];
        self.from.read_exact(&mut length)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > PIECE {
            return Err(wrong("a length in it is impossible"));
        }
        self.piece.resize(length, 0);
        self.used = 0;
        self.from.read_exact(&mut self.piece)?;
        let mut written = [0; SUM];
        self.from.read_exact(&mut written)?;
        if written != sum(self.at, self.index, &self.piece) {
            return Err(wrong("a checksum in it does not match"));
        }
        self.index += 1;
        if length > 0 {
            return Ok(State::Middle);
        }
        match self.from.read(&mut [0])? {
            0 => Ok(State::End),
            _ => Err(wrong("there is something after its end")),
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
    fn snapshots_come_back() {
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
