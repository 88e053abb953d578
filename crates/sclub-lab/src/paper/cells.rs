//! Stored results: one line of JSON for each run, written as soon as the run ends.
//!
//! A line is found again by a key made from everything that the result depends on. A file that was
//! cut off in the middle of a line is as good as one without that line.

use std::collections::HashMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use crate::run::Run;

/// The stored result of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The key: everything that the result depends on.
    pub key: String,
    /// Rounds played.
    pub rounds: u64,
    /// Recommendations made.
    pub served: u64,
    /// Regret at the end.
    pub regret: f64,
    /// Sum of the rewards.
    pub reward: f64,
    /// The regret of a random choice, in expectation.
    pub random_regret: f64,
    /// Clusters at the end.
    pub clusters: usize,
    /// Seconds inside the policy.
    pub seconds: f64,
    /// (round, regret so far) at powers of two and at the end.
    pub doubling: Vec<(u64, f64)>,
    /// (round, regret so far) at equal distances.
    pub even: Vec<(u64, f64)>,
    /// (recommendations, sum of rewards) by the user's age.
    pub by_age: Vec<(u64, f64)>,
    /// Messages sent, and the numbers in them. Results of earlier releases do not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<(u64, u64)>,
    /// The size of the policy's final state in bytes. Results of earlier releases do not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

impl Record {
    /// The record of a run.
    pub fn new(key: String, run: Run) -> Self {
        Self {
            key,
            rounds: run.rounds,
            served: run.served,
            regret: run.regret,
            reward: run.reward,
            random_regret: run.random_regret,
            clusters: run.clusters,
            seconds: run.policy_seconds,
            doubling: run.curve,
            even: run.even_curve,
            by_age: run.by_age,
            messages: run.messages,
            bytes: run.state_bytes,
        }
    }
}

/// The reason why results cannot be stored.
#[derive(Debug, thiserror::Error)]
pub enum CellsError {
    /// The file cannot be read or written.
    #[error("cannot store results in {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Another process is writing to the file.
    #[error("another run is writing to {}; wait for it or choose another folder", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
}

/// The results there are, and the file that more are added to.
#[derive(Debug, Default)]
pub struct Cells {
    path: PathBuf,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    records: HashMap<String, Record>,
    /// `None` if results are kept in memory only.
    file: Option<File>,
}

impl Cells {
    /// No results, and no file: they are kept in memory.
    pub fn in_memory() -> Self {
        Self::default()
    }

    /// Opens the file of earlier results, or starts one.
    ///
    /// # Errors
    /// [`CellsError`].
    pub fn open(path: &Path) -> Result<Self, CellsError> {
        let fail = |source| CellsError::Io {
            path: path.to_owned(),
            source,
        };
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(path)
            .map_err(fail)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let path = path.to_owned();
                return Err(CellsError::InUse { path });
            }
            Err(TryLockError::Error(source)) => return Err(fail(source)),
        }
        let mut records = HashMap::new();
        let mut reader = BufReader::new(&file);
        let mut line = Vec::new();
        let mut is_whole = true;
        loop {
            line.clear();
            if reader.read_until(b'\n', &mut line).map_err(fail)? == 0 {
                break;
            }
            is_whole = line.ends_with(b"\n");
            if let Ok(record) = serde_json::from_slice::<Record>(&line) {
                records.insert(record.key.clone(), record);
            }
        }
        file.seek(SeekFrom::End(0)).map_err(fail)?;
        if !is_whole {
            file.write_all(b"\n").map_err(fail)?;
        }
        Ok(Self {
            path: path.to_owned(),
            inner: Mutex::new(Inner {
                records,
                file: Some(file),
            }),
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        // A poisoned lock is safe to use: records are only added whole, so a panic leaves none half written.
        self.inner
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The result of a key, if it is there.
    pub fn get(&self, key: &str) -> Option<Record> {
        self.lock().records.get(key).cloned()
    }

    /// True if there is a result for a key.
    pub fn has(&self, key: &str) -> bool {
        self.lock().records.contains_key(key)
    }

    /// Keeps some results, in the file too.
    ///
    /// # Errors
    /// [`CellsError`].
    pub fn put(&self, records: Vec<Record>) -> Result<(), CellsError> {
        let mut text = Vec::new();
        for record in &records {
            serde_json::to_writer(&mut text, record).expect("numbers and names can be written");
            text.push(b'\n');
        }
        if let Some(file) = &mut self.lock().file {
            let written = file.write_all(&text).and_then(|()| file.sync_data());
            written.map_err(|source| CellsError::Io {
                path: self.path.clone(),
                source,
            })?;
        }
        self.put_in_memory(records);
        Ok(())
    }

    /// Keeps some results, and writes nothing.
    pub fn put_in_memory(&self, records: Vec<Record>) {
        let keyed = records
            .into_iter()
            .map(|record| (record.key.clone(), record));
        self.lock().records.extend(keyed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(key: &str, regret: f64) -> Record {
        Record {
            key: key.into(),
            rounds: 10,
            served: 10,
            regret,
            reward: 1.0,
            random_regret: 2.0,
            clusters: 3,
            seconds: 0.1,
            doubling: vec![(1, 0.1), (10, regret)],
            even: vec![(0, 0.0), (10, regret)],
            by_age: vec![(3, 1.0)],
            messages: Some((4, 80)),
            bytes: None,
        }
    }

    #[test]
    fn results_are_found_again_to_the_last_bit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cells.jsonl");
        // Numbers whose shortest writing a careless reader gets wrong in the last place are common.
        let numbers = (0..2000u32).map(|n| f64::from(n).sqrt() * 1e4 / 7.0);
        let exact: Vec<Record> = numbers
            .enumerate()
            .map(|(n, number)| record(&format!("a{n}"), number))
            .collect();
        Cells::open(&path).unwrap().put(exact.clone()).unwrap();
        let cells = Cells::open(&path).unwrap();
        for record in exact {
            assert_eq!(cells.get(&record.key), Some(record));
        }
        assert!(!cells.has("b"));
    }

    #[test]
    fn two_at_once_are_one_too_many() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cells.jsonl");
        let first = Cells::open(&path).unwrap();
        let second = Cells::open(&path).unwrap_err().to_string();
        assert!(second.contains("another run"), "{second}");
        drop(first);
        Cells::open(&path).unwrap();
    }

    #[test]
    fn a_line_cut_off_is_lost_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cells.jsonl");
        let cells = Cells::open(&path).unwrap();
        cells.put(vec![record("a", 1.0), record("b", 2.0)]).unwrap();
        drop(cells);
        let whole = std::fs::read(&path).unwrap();
        for cut in 1..whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let cells = Cells::open(&path).unwrap();
            cells.put(vec![record("c", 3.0)]).unwrap();
            drop(cells);
            let again = Cells::open(&path).unwrap();
            assert_eq!(again.get("c"), Some(record("c", 3.0)), "cut at {cut}");
            if again.has("b") {
                assert_eq!(again.get("b"), Some(record("b", 2.0)));
            }
        }
    }
}
