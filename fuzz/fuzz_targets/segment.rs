//! A file of a log: whatever is in it, the log gives an error, or batches up to some number, and can be
//! gone on with.
//!
//! The first byte says how the rest is used. With 0 it is the file. With anything else it is changes to a
//! good one, each two bytes for the place and one for what to turn over there.
#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use sclub_server::env::Env;
use sclub_server::store::{Log, Segments, StoreError};

const LIMIT: u64 = 1 << 30;

/// What is in the good file.
static BATCHES: LazyLock<Vec<Vec<u8>>> =
    LazyLock::new(|| (1..=9_u8).map(|n| vec![n; usize::from(n) * 11]).collect());

/// A folder of this process, and the good file without the room that is reserved behind it.
static GOOD: LazyLock<(PathBuf, Vec<u8>)> = LazyLock::new(|| {
    let dir = std::env::temp_dir().join(format!("sclub-fuzz-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    let log = Segments::open(&Env::real(), &dir, LIMIT).expect("a log");
    for (last, batch) in (0..).zip(&*BATCHES) {
        log.append(last, batch).expect("an append");
    }
    let mut bytes = fs::read(dir.join("000000000000.log")).expect("a file");
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0);
    bytes.truncate(used + 64);
    (dir, bytes)
});

fuzz_target!(|bytes: &[u8]| {
    let Some((&kind, rest)) = bytes.split_first() else {
        return;
    };
    let (dir, good) = &*GOOD;
    let file = match kind {
        0 => rest.to_vec(),
        _ => {
            let mut file = good.clone();
            for change in rest.chunks_exact(3) {
                let place = usize::from(u16::from_le_bytes([change[0], change[1]]));
                let length = file.len();
                file[place % length] ^= change[2];
            }
            file
        }
    };
    let _ = fs::remove_dir_all(dir);
    fs::create_dir_all(dir).expect("a folder");
    fs::write(dir.join("000000000000.log"), file).expect("a file");
    let opened = || -> Result<Vec<Vec<u8>>, StoreError> {
        let log = Segments::open(&Env::real(), dir, LIMIT)?;
        let batches = log.read(log.first()? - 1)?;
        let batches = batches.map(|batch| batch.map(|(_, bytes)| bytes));
        let batches = batches.collect::<Result<Vec<_>, _>>()?;
        log.check()?;
        log.append(log.last(), b"more").expect("an append");
        Ok(batches)
    };
    if let Ok(batches) = opened()
        && kind != 0
    {
        assert!(BATCHES.starts_with(&batches));
    }
});
