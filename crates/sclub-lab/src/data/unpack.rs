//! Compressed files, recognised by their first bytes.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;

/// Bytes held of a stream, packed or unpacked.
const PIECE: usize = 1 << 16;

/// A kind of compression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    Gzip,
    Zstd,
}

impl Packing {
    /// The compression of a stream that starts so.
    pub fn of(start: &[u8]) -> Option<Self> {
        match start {
            [0x1f, 0x8b, ..] => Some(Packing::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Packing::Zstd),
            _ => None,
        }
    }

    /// The content of a stream.
    pub fn unpack<'a>(self, stream: impl BufRead + 'a) -> io::Result<Box<dyn BufRead + 'a>> {
        let content: Box<dyn Read + 'a> = match self {
            Packing::Gzip => Box::new(MultiGzDecoder::new(stream)),
            Packing::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(stream)?),
        };
        let content = Content {
            content,
            packing: self,
        };
        Ok(Box::new(BufReader::with_capacity(PIECE, content)))
    }
}

/// A stream, unpacked if it is compressed.
pub fn unpacked<'a>(mut stream: impl BufRead + 'a) -> io::Result<Box<dyn BufRead + 'a>> {
    match Packing::of(stream.fill_buf()?) {
        Some(packing) => packing.unpack(stream),
        None => Ok(Box::new(stream)),
    }
}

/// Unpacked bytes. Its errors say what is wrong with the compressed data.
struct Content<'a> {
    content: Box<dyn Read + 'a>,
    packing: Packing,
}

impl Read for Content<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.content.read(buffer).map_err(|error| {
            let name = match self.packing {
                Packing::Gzip => "gzip",
                Packing::Zstd => "zstd",
            };
            // An error of the system has a number.
            if error.raw_os_error().is_some() || error.kind() == io::ErrorKind::Interrupted {
                return error;
            }
            let reason = match error.kind() {
                io::ErrorKind::UnexpectedEof => {
                    format!("the {name} data end early: the file is truncated")
                }
                _ => format!("the {name} data are damaged: {error}"),
            };
            io::Error::new(io::ErrorKind::InvalidData, reason)
        })
    }
}

/// Counts the bytes that are read.
pub struct Counted<R> {
    pub stream: R,
    pub count: std::rc::Rc<std::cell::Cell<u64>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.stream.read(buffer)?;
        self.count.set(self.count.get() + count as u64);
        Ok(count)
    }
}
