//! Opens files: plain, compressed, and Parquet.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::read::ReadError;
use super::unpack::{Counted, Packing};
use super::{npy, parquet};

/// An open file.
pub struct Source {
    /// The name without the ending of its compression.
    pub inner: PathBuf,
    pub content: Content,
    /// Bytes of the file; 0 if that is not known.
    pub total: u64,
    /// Bytes of the file that were read.
    pub done: Rc<Cell<u64>>,
}

/// The content of a file.
pub enum Content {
    /// A Parquet file, which is read in any order.
    Parquet(File),
    /// Unpacked bytes, at least one.
    Stream(Box<dyn BufRead>),
}

impl Source {
    /// Opens a file. `is_parquet` says whether it is one; `None` to look at its first bytes.
    ///
    /// # Errors
    /// If it is missing, a folder, or empty.
    pub fn open(path: &Path, is_parquet: Option<bool>) -> Result<Self, ReadError> {
        let failed = |source| ReadError::Io {
            path: path.into(),
            source,
        };
        let metadata = fs::metadata(path).map_err(failed)?;
        if metadata.is_dir() {
            return Err(ReadError::Folder { path: path.into() });
        }
        let total = match metadata.is_file() {
            true => metadata.len(),
            false => 0,
        };
        let done = Rc::new(Cell::new(0));
        let file = Counted {
            stream: File::open(path).map_err(failed)?,
            count: Rc::clone(&done),
        };
        let mut stream = BufReader::with_capacity(1 << 16, file);
        let start = stream.fill_buf().map_err(failed)?;
        let empty = || Err(ReadError::Empty { path: path.into() });
        if start.is_empty() {
            return empty();
        }
        if is_parquet.unwrap_or_else(|| start.starts_with(parquet::MAGIC)) {
            return Ok(Self {
                inner: path.into(),
                content: Content::Parquet(File::open(path).map_err(failed)?),
                total,
                done,
            });
        }
        let packing = Packing::of(start);
        let mut stream: Box<dyn BufRead> = match packing {
            Some(packing) => packing.unpack(stream).map_err(failed)?,
            None => Box::new(stream),
        };
        if stream.fill_buf().map_err(failed)?.is_empty() {
            return empty();
        }
        let inner = match packing {
            Some(_) => path.with_extension(""),
            None => path.into(),
        };
        Ok(Self {
            inner,
            content: Content::Stream(stream),
            total,
            done,
        })
    }
}

/// The kind of a file that does not begin as a text does.
pub fn binary_kind(start: &[u8]) -> Option<&'static str> {
    match start {
        [b'P', b'K', 3, 4, ..] => Some("compressed; unpack it with unzip first"),
        [b'B', b'Z', b'h', ..] => Some("compressed; unpack it with bunzip2 first"),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some("compressed; unpack it with unxz first"),
        [0x1f, 0x8b, ..] | [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            Some("compressed twice; unpack it once first")
        }
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => Some("a text in UTF-16; save it in UTF-8 first"),
        _ if start.starts_with(npy::MAGIC) => {
            Some("a matrix of NumPy and not of the format asked for")
        }
        _ if start.starts_with(parquet::MAGIC) => Some(
            "a Parquet file that is compressed as a whole or not of the format asked for; unpack it first",
        ),
        _ if memchr::memchr(0, start).is_some() => {
            Some("no text, no matrix of NumPy and no Parquet")
        }
        _ => None,
    }
}
