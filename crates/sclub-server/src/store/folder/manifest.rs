//! The list of the files of the log.

use std::path::{Path, PathBuf};

use super::files::{self, damaged};
use super::segment::Chain;
use crate::store::StoreError;

/// Which files make up the log, in order, and from which event on nothing was dropped.
///
/// It changes as one: a file of the log that is not in it does not count, and is removed when the
/// folder is opened.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Manifest {
    pub base: u64,
    /// The next file of the log gets this number.
    pub serial: u64,
    /// Only the last may be unsealed. Entries are added and replaced, but never taken out.
    pub entries: Vec<Entry>,
}

/// One file of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// The number of its first event, if it has one.
    pub first: u64,
    /// Tells it from every other file of the log there ever was.
    pub serial: u64,
    /// It was mended after a crash, or a failed write: it may hold leftovers of what was not kept.
    pub mended: bool,
    pub seal: Option<Seal>,
}

/// What a file of the log that does not change any more looks like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seal {
    pub end: Chain,
    pub length: u64,
    pub digest: [u8; 32],
}

impl Entry {
    pub fn file(&self, folder: &Path) -> PathBuf {
        let Self { first, serial, .. } = self;
        folder
            .join("log")
            .join(format!("{first:020}-{serial}.redb"))
    }

    /// Checks every byte of the file, if it is sealed.
    pub fn check(&self, folder: &Path) -> Result<u64, StoreError> {
        let file = self.file(folder);
        let (length, digest) = files::digest(&file)?;
        match &self.seal {
            Some(seal) if length != seal.length => Err(damaged(
                &file,
                format!("it has {length} bytes, not {}", seal.length),
            )),
            Some(seal) if digest != seal.digest => {
                Err(damaged(&file, "its checksum does not match"))
            }
            _ => Ok(length),
        }
    }
}

impl Manifest {
    pub fn file(folder: &Path) -> PathBuf {
        folder.join("manifest")
    }

    pub fn read(folder: &Path) -> Result<Option<Self>, StoreError> {
        let file = Self::file(folder);
        let Some(bytes) = files::get(&file)? else {
            return Ok(None);
        };
        let manifest =
            Self::decode(&mut bytes.as_slice()).ok_or_else(|| damaged(&file, "it is no list"))?;
        manifest.check(&file)?;
        Ok(Some(manifest))
    }

    pub fn write(&self, folder: &Path) -> Result<(), StoreError> {
        files::put(&Self::file(folder), &self.encode())
    }

    /// The numbers go on without a gap.
    fn check(&self, file: &Path) -> Result<(), StoreError> {
        let mut next = 1;
        for (at, entry) in self.entries.iter().enumerate() {
            if entry.first != next {
                return Err(damaged(
                    file,
                    format!(
                        "a part of the log begins at {} instead of {next}",
                        entry.first
                    ),
                ));
            }
            match &entry.seal {
                Some(seal) => next = seal.end.next,
                None if at + 1 < self.entries.len() => {
                    return Err(damaged(file, "an open part of the log is not the last"));
                }
                None => {}
            }
        }
        Ok(())
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for number in [self.base, self.serial, self.entries.len() as u64] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for entry in &self.entries {
            let flags = u64::from(entry.mended) | u64::from(entry.seal.is_some()) << 1;
            for number in [entry.first, entry.serial, flags] {
                out.extend_from_slice(&number.to_le_bytes());
            }
            if let Some(seal) = &entry.seal {
                for number in [seal.end.next, seal.end.notes, seal.length] {
                    out.extend_from_slice(&number.to_le_bytes());
                }
                out.extend_from_slice(&seal.end.event_sum);
                out.extend_from_slice(&seal.end.note_sum);
                out.extend_from_slice(&seal.digest);
            }
        }
        out
    }

    fn decode(from: &mut &[u8]) -> Option<Self> {
        let (base, serial, count) = (number(from)?, number(from)?, number(from)?);
        let mut entries = Vec::new();
        for _ in 0..count {
            let (first, serial, flags) = (number(from)?, number(from)?, number(from)?);
            let seal = if flags & 2 == 0 {
                None
            } else {
                let (next, notes, length) = (number(from)?, number(from)?, number(from)?);
                let end = Chain {
                    next,
                    notes,
                    event_sum: *chunk(from)?,
                    note_sum: *chunk(from)?,
                };
                let digest = *chunk(from)?;
                Some(Seal {
                    end,
                    length,
                    digest,
                })
            };
            entries.push(Entry {
                first,
                serial,
                mended: flags & 1 != 0,
                seal,
            });
        }
        from.is_empty().then_some(Self {
            base,
            serial,
            entries,
        })
    }
}

fn chunk<'a, const N: usize>(from: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (chunk, rest) = from.split_first_chunk::<N>()?;
    *from = rest;
    Some(chunk)
}

fn number(from: &mut &[u8]) -> Option<u64> {
    chunk(from).map(|bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_come_back() {
        let entry = |first, serial, seal| Entry {
            first,
            serial,
            mended: serial == 3,
            seal,
        };
        let seal = Seal {
            end: Chain {
                next: 8,
                notes: 2,
                event_sum: [1; 16],
                note_sum: [2; 16],
            },
            length: 77,
            digest: [3; 32],
        };
        let manifest = Manifest {
            base: 5,
            serial: 9,
            entries: vec![entry(1, 3, Some(seal)), entry(8, 4, None)],
        };
        let bytes = manifest.encode();
        assert_eq!(Manifest::decode(&mut bytes.as_slice()), Some(manifest));
        for cut in 0..bytes.len() {
            assert_eq!(Manifest::decode(&mut &bytes[..cut]), None, "cut at {cut}");
        }
    }
}
