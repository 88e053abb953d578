//! Backups of a cluster: for each group its newest snapshot and the batches after it, as one file that
//! `sclub restore` reads too.

use std::io::{self, Read, Write};

use bytes::Bytes;
use tokio::sync::mpsc;

use super::bus::{Bucket, Bus, BusError};
use super::call::{GroupAnswer, GroupCall, HttpCall, NodeCall, Route, decode, encode};
use super::serve::subject_of;
use super::{Cluster, IDENTITY_KEY, random};
use crate::env::Env;
use crate::store::archive::{Kind, Writer};
use crate::store::{Epochs, StoreError};

/// The number of attempts, since a snapshot may be replaced meanwhile.
const MAX_ATTEMPTS: usize = 5;

/// The milliseconds for which a hash of a state may take.
const MAX_HASH_MS: u64 = 600_000;

/// A checksum of a part of a backup, as 16 hexadecimal digits.
pub fn checksum(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex()[..16].to_owned()
}

/// The state of a group as its owner has it: the number of events, and a hash. `None` if the owner does not answer in time.
pub async fn hash_of_group(bus: &dyn Bus, index: usize, group: &str) -> Option<(u64, String)> {
    let node = super::members::owner(bus, group)?;
    let call = GroupCall::Http(HttpCall {
        route: Route::Other("GET".to_owned(), "/v1/state?hash=true".to_owned()),
        body: Vec::new(),
        catalogue: 0,
    });
    let call = encode(&NodeCall::Groups(vec![(index as u32, call)]));
    let answer = bus.request(&subject_of(&node), call, MAX_HASH_MS).await;
    let answers: Vec<GroupAnswer> = decode(&answer.ok()?)?;
    let Some(GroupAnswer::Http(answer)) = answers.into_iter().next() else {
        return None;
    };
    let state: serde_json::Value = serde_json::from_slice(&answer.body).ok()?;
    Some((
        state["events"].as_u64()?,
        state["hash"].as_str()?.to_owned(),
    ))
}

/// Writes the backup of a group. Returns the last batch in it.
///
/// # Errors
/// If the stream or the snapshot cannot be read, or `out` cannot be written.
pub async fn backup_group(
    bus: &dyn Bus,
    group: &str,
    make: &mut dyn FnMut() -> io::Result<Box<dyn Write + Send>>,
) -> Result<u64, String> {
    let mut tries = 0;
    loop {
        let mut out = make().map_err(|error| error.to_string())?;
        match write(bus, group, &mut *out).await {
            Ok(last) => return Ok(last),
            // The snapshot was replaced, or the stream purged.
            Err(_) if tries < MAX_ATTEMPTS => tries += 1,
            Err(error) => return Err(error),
        }
    }
}

async fn write(bus: &dyn Bus, group: &str, out: &mut (dyn Write + Send)) -> Result<u64, String> {
    let failed = |error: BusError| error.to_string();
    let broken = |error: StoreError| error.to_string();
    let identity = bus
        .get(Bucket::Config, IDENTITY_KEY)
        .await
        .map_err(failed)?;
    let identity = identity.ok_or("there is no such cluster")?;
    let epochs = epochs_of(bus, group).await?;
    let mut writer = Writer::new(out).map_err(broken)?;
    writer
        .frame(Kind::Identity, 0, &identity.value)
        .map_err(broken)?;
    writer.frame(Kind::Epochs, 0, &epochs).map_err(broken)?;
    let prefix = format!("{group}/");
    let objects = bus.objects(&prefix).await.map_err(failed)?;
    let newest = objects.iter().filter_map(|name| {
        let at: u64 = name.strip_prefix(&prefix)?.parse().ok()?;
        Some((at, name))
    });
    let mut after = 0;
    if let Some((at, name)) = newest.max_by_key(|(at, _)| *at) {
        let pieces = bus.download(name).await.map_err(failed)?;
        let mut reader = Pieces {
            bus,
            pieces,
            piece: Bytes::new(),
        };
        writer.snapshot(at, &mut reader).map_err(broken)?;
        after = at;
    }
    let (first, last) = bus.bounds(group).await.map_err(failed)?;
    if after + 1 < first {
        return Err(format!("{group} was purged up to batch {first} meanwhile"));
    }
    if after < last {
        let mut batches = bus.follow(group, after).await.map_err(failed)?;
        while after < last {
            let (number, bytes) = match batches.recv().await {
                Some(batch) => batch.map_err(failed)?,
                None => return Err(format!("{group} cannot be read after batch {after}")),
            };
            writer.frame(Kind::Batch, number, &bytes).map_err(broken)?;
            after = number;
        }
    }
    // An epoch that began meanwhile may have written some of the batches.
    if epochs_of(bus, group).await? != epochs {
        return Err(format!("{group} has a new owner; retry"));
    }
    writer.finish().map_err(broken)?;
    Ok(last.max(after))
}

/// The epochs of a group, encoded.
async fn epochs_of(bus: &dyn Bus, group: &str) -> Result<Vec<u8>, String> {
    let entry = bus.get(Bucket::Config, &format!("epochs.{group}")).await;
    Ok(match entry.map_err(|error| error.to_string())? {
        Some(entry) => entry.value.to_vec(),
        None => postcard::to_stdvec(&Epochs::default()).expect("plain data"),
    })
}

/// The bytes of an object. Reading blocks the thread.
struct Pieces<'a> {
    bus: &'a dyn Bus,
    pieces: mpsc::Receiver<Result<Bytes, BusError>>,
    piece: Bytes,
}

impl Read for Pieces<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            let pieces = &mut self.pieces;
            let next = super::wait::wait(self.bus, Box::pin(async { Ok(pieces.recv().await) }));
            match next.ok().flatten() {
                None => return Ok(0),
                Some(Ok(piece)) => self.piece = piece,
                Some(Err(error)) => return Err(io::Error::other(error)),
            }
        }
        let count = out.len().min(self.piece.len());
        out[..count].copy_from_slice(&self.piece.split_to(count));
        Ok(count)
    }
}

impl Cluster {
    /// Restores the groups of a cluster that was just made: for each its state, as a snapshot, and its epochs. The
    /// streams begin after the snapshots.
    ///
    /// # Errors
    /// If a group cannot be written.
    pub async fn restore_group(
        bus: &dyn Bus,
        group: &str,
        position: u64,
        epochs: &Epochs,
        snapshot: mpsc::Receiver<Result<Bytes, BusError>>,
    ) -> Result<(), String> {
        let failed = |error: BusError| error.to_string();
        if position > 0 {
            let name = format!("{group}/{position:020}");
            bus.upload(&name, snapshot).await.map_err(failed)?;
        }
        let epochs = postcard::to_stdvec(epochs).expect("plain data");
        let key = format!("epochs.{group}");
        bus.put(Bucket::Config, &key, epochs.into())
            .await
            .map_err(failed)?;
        Ok(())
    }

    /// Restores the facts of a cluster: this makes it whole.
    ///
    /// # Errors
    /// If it exists already.
    pub async fn restore(self, bus: &dyn Bus, env: &Env, identity: Bytes) -> Result<Self, String> {
        let cluster = Self {
            life: random(env)?,
            ..self
        };
        cluster.write(bus, identity).await?;
        Ok(cluster)
    }
}
