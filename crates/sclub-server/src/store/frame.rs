//! The format of one file of a log.
//!
//! A file is a header, then frames, each at an offset that is a multiple of 8.
//!
//! | header | bytes |
//! |---|---|
//! | mark `sclub segment 2\n` | 16 |
//! | serial number of the file | 8 |
//! | number of its first batch | 8 |
//! | salt, random | 16 |
//! | checksum of the above | 16 |
//!
//! | frame | bytes |
//! |---|---|
//! | length of the batch | 4 |
//! | checksum of length and number | 4 |
//! | number of the batch | 8 |
//! | checksum of all of it and the checksum before | 16 |
//! | the batch, then zeros up to a multiple of 8 | |
//!
//! Numbers are little-endian. Checksums are the first bytes of BLAKE3. After the last frame there are zeros,
//! or the remains of an unfinished frame.

use std::io;
use std::sync::Arc;

use crate::env::DiskFile;

/// The length of a header in bytes.
pub(super) const HEADER: usize = 64;
/// The length of a frame before its batch, in bytes.
const HEAD: usize = 32;
/// The maximum length of a batch in bytes.
pub(super) const MAX_BATCH: usize = 1 << 28;
/// The number of bytes that are read at once.
const CHUNK: usize = 128 << 10;

const MARK: &[u8; 16] = b"sclub segment 2\n";

type Sum = [u8; 16];

/// The header of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub serial: u64,
    pub first: u64,
    pub salt: [u8; 16],
}

impl Header {
    pub fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..16].copy_from_slice(MARK);
        bytes[16..24].copy_from_slice(&self.serial.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.first.to_le_bytes());
        bytes[32..48].copy_from_slice(&self.salt);
        let sum = hash(&[&bytes[..48]]);
        bytes[48..].copy_from_slice(&sum);
        bytes
    }

    /// Decodes a header; `None` if it is invalid.
    pub fn decode(bytes: &[u8; HEADER]) -> Option<Self> {
        let is_whole = bytes[..16] == *MARK && bytes[48..] == hash(&[&bytes[..48]]);
        is_whole.then(|| Self {
            serial: u64_at(bytes, 16),
            first: u64_at(bytes, 24),
            salt: bytes[32..48].try_into().expect("sixteen bytes"),
        })
    }

    /// The checksum before the first frame.
    pub fn sum(&self) -> Sum {
        hash(&[&self.encode()])
    }

    /// The checksum of a frame's length and number. It includes the salt, so that no batch can contain bytes
    /// that look like a frame.
    fn check(&self, length: u32, number: u64) -> [u8; 4] {
        let sum = hash(&[&self.salt, &length.to_le_bytes(), &number.to_le_bytes()]);
        [sum[0], sum[1], sum[2], sum[3]]
    }
}

/// Appends a frame to `out` and returns its checksum.
pub(super) fn put(
    out: &mut Vec<u8>,
    header: &Header,
    before: &Sum,
    number: u64,
    batch: &[u8],
) -> Sum {
    let length = u32::try_from(batch.len()).expect("checked against MAX_BATCH");
    let start = out.len();
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&header.check(length, number));
    out.extend_from_slice(&number.to_le_bytes());
    let sum = hash(&[before, &out[start..], batch]);
    out.extend_from_slice(&sum);
    out.extend_from_slice(batch);
    out.resize(start + frame_length(batch.len()), 0);
    sum
}

/// The length of the frame of a batch, in bytes.
pub(super) fn frame_length(batch: usize) -> usize {
    (HEAD + batch).next_multiple_of(8)
}

/// The kind of the end of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Zeros, or an unfinished frame.
    Torn,
    /// A damaged frame: there are others after it.
    Damaged,
}

/// The position of a reader in a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    header: Header,
    /// The number of the next frame, its offset, and the checksum before it.
    next: u64,
    offset: u64,
    sum: Sum,
}

/// Reads the frames of a file in order.
#[derive(Debug)]
pub(super) struct Frames {
    file: Arc<dyn DiskFile>,
    header: Header,
    sum: Sum,
    next: u64,
    /// The offset of the next frame.
    offset: u64,
    /// The bytes of the file from `start` on.
    buffer: Vec<u8>,
    start: u64,
}

impl Frames {
    /// Opens a file; `None` if it has no valid header.
    pub fn open(file: Arc<dyn DiskFile>) -> io::Result<Option<Self>> {
        let mut bytes = [0; HEADER];
        if file.read_full_at(&mut bytes, 0)? < HEADER {
            return Ok(None);
        }
        Ok(Header::decode(&bytes).map(|header| Self {
            sum: header.sum(),
            next: header.first,
            offset: HEADER as u64,
            header,
            file,
            buffer: Vec::new(),
            start: 0,
        }))
    }

    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The position of this reader.
    pub fn place(&self) -> Place {
        Place {
            header: self.header,
            next: self.next,
            offset: self.offset,
            sum: self.sum,
        }
    }

    /// Moves to the position of another reader, if that is in the same file and not after a number.
    pub fn skip_to(&mut self, place: &Place, number: u64) {
        if place.header == self.header && place.next <= number {
            (self.next, self.offset, self.sum) = (place.next, place.offset, place.sum);
        }
    }

    /// The number that the next frame must have.
    pub fn next_number(&self) -> u64 {
        self.next
    }

    /// The next batch; `None` after the last valid one.
    pub fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let head: [u8; HEAD] = match self.bytes(self.offset, HEAD)? {
            Some(head) => head.try_into().expect("as many as asked for"),
            None => return Ok(None),
        };
        let length = u32::from_le_bytes(head[..4].try_into().expect("four bytes"));
        let number = u64_at(&head, 8);
        let is_head = head[4..8] == self.header.check(length, number);
        if number != self.next || length as usize > MAX_BATCH || !is_head {
            return Ok(None);
        }
        let before = self.sum;
        let Some(batch) = self.bytes(self.offset + HEAD as u64, length as usize)? else {
            return Ok(None);
        };
        let sum = hash(&[&before, &head[..16], batch]);
        if sum != head[16..] {
            return Ok(None);
        }
        let batch = batch.to_vec();
        self.sum = sum;
        self.next += 1;
        self.offset += frame_length(batch.len()) as u64;
        Ok(Some(batch))
    }

    /// The kind of end, after [`Frames::next`] has returned `None`. Only one frame is written at a time, so a
    /// crash can leave only the last one unfinished. The head of a later frame after it means damage.
    pub fn end(&mut self) -> io::Result<End> {
        let length = self.file.len()?;
        let (header, next) = (self.header, self.next);
        let mut at = self.offset + 8;
        while at + HEAD as u64 <= length {
            let Some(head) = self.bytes(at, HEAD)? else {
                break;
            };
            let number = u64_at(head, 8);
            if number > next && number - next < 1 << 32 {
                let batch = u32::from_le_bytes(head[..4].try_into().expect("four bytes"));
                if head[4..8] == header.check(batch, number) {
                    return Ok(End::Damaged);
                }
            }
            at += 8;
        }
        Ok(End::Torn)
    }

    /// Bytes of the file; `None` if it ends before.
    fn bytes(&mut self, at: u64, count: usize) -> io::Result<Option<&[u8]>> {
        let is_read =
            at >= self.start && at + count as u64 <= self.start + self.buffer.len() as u64;
        if !is_read {
            let rest = self.file.len()?.saturating_sub(at);
            let wanted = (count.max(CHUNK) as u64).min(rest) as usize;
            if self.buffer.is_empty() {
                // The allocator has zeros; `resize` would write each byte.
                self.buffer = vec![0; wanted];
            }
            self.buffer.resize(wanted, 0);
            let read = self.file.read_full_at(&mut self.buffer, at)?;
            self.buffer.truncate(read);
            self.start = at;
        }
        let from = (at - self.start) as usize;
        Ok(self.buffer.get(from..from + count))
    }

    /// The offset of the end of the frames that were read.
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

fn hash(parts: &[&[u8]]) -> Sum {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(part);
    }
    *hasher
        .finalize()
        .as_bytes()
        .first_chunk()
        .expect("a hash is longer")
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
