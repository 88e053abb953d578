//! The files of a log: which there are, which of their batches are valid, and reading these in order.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::lock;
use crate::env::{Access, Env};
use crate::store::StoreError;
use crate::store::files::{At, damaged};
use crate::store::frame::{End, Frames, HEADER, Header, Place};

/// A file of the log and the batches in it that are not void.
#[derive(Debug)]
pub(super) struct Segment {
    pub path: PathBuf,
    pub header: Header,
    /// Opened when it is read: there may be more files than the limit of open files.
    pub frames: Option<Frames>,
    /// The number of the first batch of the next file; `None` for the newest file.
    pub until: Option<u64>,
    /// The number of the last batch that is known to be in the newest file.
    pub last: u64,
}

impl Segment {
    pub fn first(&self) -> u64 {
        self.header.first
    }

    /// Opens the file, if it is not open.
    pub fn open(&mut self, env: &Env) -> Result<&mut Frames, StoreError> {
        if self.frames.is_none() {
            let file = env
                .disk
                .open(&self.path, Access::Read)
                .reading(&self.path)?;
            let frames = Frames::open(file).reading(&self.path)?;
            let frames = frames.filter(|frames| *frames.header() == self.header);
            self.frames = frames;
        }
        let damage = || damaged(&self.path, "its header is damaged");
        self.frames.as_mut().ok_or_else(damage)
    }

    pub fn path_length(&self, env: &Env) -> Result<u64, StoreError> {
        env.disk.len(&self.path).reading(&self.path)
    }
}

/// Reads the batches after a number.
pub(super) struct Reading {
    pub current: Option<Segment>,
    pub rest: std::vec::IntoIter<Segment>,
    pub after: u64,
    pub place: Arc<Mutex<Option<Place>>>,
}

impl Iterator for Reading {
    type Item = Result<(u64, Vec<u8>), StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match next_of(self.current.as_mut()?) {
                Ok(Some((number, batch))) if number > self.after => {
                    return Some(Ok((number, batch)));
                }
                Ok(Some(_)) => {}
                Ok(None) => {
                    let next = self.rest.next()?;
                    self.current = Some(next);
                }
                Err(error) => {
                    self.current = None;
                    return Some(Err(error));
                }
            }
        }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if let Some(current) = &self.current {
            *lock(&self.place) = current.frames.as_ref().map(Frames::place);
        }
    }
}

pub(super) fn path_of(dir: &Path, serial: u64) -> PathBuf {
    dir.join(format!("{serial:012}.log"))
}

/// The files of a log, oldest first.
pub(super) fn list(env: &Env, dir: &Path) -> Result<Vec<Segment>, StoreError> {
    let mut segments: Vec<Segment> = Vec::new();
    for name in env.disk.names(dir).reading(dir)? {
        let Some(serial) = name
            .strip_suffix(".log")
            .and_then(|s| s.parse::<u64>().ok())
        else {
            continue;
        };
        let path = dir.join(&name);
        let file = env.disk.open(&path, Access::Read).reading(&path)?;
        let frames = Frames::open(file).reading(&path)?;
        // A file gets its name only after its header is durable.
        let frames = frames
            .filter(|frames| frames.header().serial == serial)
            .ok_or_else(|| damaged(&path, "its header is damaged"))?;
        segments.push(Segment {
            path,
            header: *frames.header(),
            frames: None,
            until: None,
            last: 0,
        });
    }
    segments.sort_by_key(|segment| segment.header.serial);
    for index in (1..segments.len()).rev() {
        let next = segments[index].first();
        if next < segments[index - 1].first() {
            return Err(damaged(
                &segments[index].path,
                "it begins before an older file",
            ));
        }
        segments[index - 1].until = Some(next);
    }
    Ok(segments)
}

/// The next valid batch of a file that is not void; `None` at its end.
pub(super) fn next_of(segment: &mut Segment) -> Result<Option<(u64, Vec<u8>)>, StoreError> {
    let frames = segment.frames.as_mut().expect("opened before it is read");
    let number = frames.next_number();
    if segment.until == Some(number) {
        return Ok(None);
    }
    match (frames.next().reading(&segment.path)?, segment.until) {
        (Some(batch), _) => Ok(Some((number, batch))),
        (None, None) if number > segment.last => Ok(None),
        (None, _) => Err(damaged(
            &segment.path,
            format!("batch {number} is damaged or missing"),
        )),
    }
}

/// Finds the end of the newest file, and makes its batches durable. Returns the number of the last batch.
///
/// The last batches may have been written by a process that ended before they were durable, and the
/// system may have given up on writing them. So they are written once more.
pub(super) fn settle(env: &Env, newest: &mut Segment) -> Result<u64, StoreError> {
    let path = &newest.path.clone();
    let frames = newest.open(env)?;
    while frames.next().reading(path)?.is_some() {}
    if frames.end().reading(path)? == End::Damaged {
        let number = frames.next_number();
        return Err(damaged(path, format!("batch {number} is damaged")));
    }
    let end = frames.offset();
    if end > HEADER as u64 {
        let file = env.disk.open(path, Access::Write).writing(path)?;
        let mut buffer = vec![0; 1 << 20];
        let mut at = 0;
        while at < end {
            let count = buffer.len().min((end - at) as usize);
            file.read_full_at(&mut buffer[..count], at).reading(path)?;
            file.write_all_at(&buffer[..count], at).writing(path)?;
            at += count as u64;
        }
        file.sync().writing(path)?;
    }
    Ok(frames.next_number() - 1)
}
