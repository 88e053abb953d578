//! Logs of decisions: the export of the service, or lines of the same form.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader};
use std::ops::Range;
use std::path::{Path, PathBuf};

use sclub::ItemSet;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::data::{Lines, unpacked};

/// An error of reading a log or a file of items.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The operating system reports an error.
    #[error("cannot read {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A line is malformed.
    #[error("{}, line {line}: {reason}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The number of the line, from 1.
        line: u64,
        /// The reason.
        reason: String,
    },
    /// Nothing can be evaluated.
    #[error("{0}")]
    Nothing(String),
}

/// Options for reading a log.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LogOptions {
    /// The reward of items shown without one. By default they are left out.
    pub unanswered: Option<f64>,
}

/// An item shown, with its probability and its reward.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ShownItem {
    /// The item's place in [`Log::items`].
    pub item: u32,
    /// The probability with which it was shown.
    pub propensity: f64,
    /// The reward.
    pub reward: f64,
}

/// A decision.
#[derive(Debug, Clone, PartialEq)]
pub struct Round {
    /// The number of the user, in the order of appearance.
    pub user: u32,
    /// The number of items shown, with and without a reward.
    pub slots: u32,
    /// The items shown that have a reward, in [`Log::shown`].
    pub shown: Range<usize>,
    /// The candidates, in [`Log::candidates`]; empty if they are all items.
    pub candidates: Range<usize>,
}

/// A log of decisions, in the order in which they were made.
#[derive(Debug, Clone, PartialEq)]
pub struct Log {
    /// All items.
    pub items: ItemSet,
    /// The decisions.
    pub rounds: Vec<Round>,
    /// The items shown, decision by decision.
    pub shown: Vec<ShownItem>,
    /// The candidates, decision by decision.
    pub candidates: Vec<u32>,
    /// The number of users.
    pub users: u64,
    /// What was left out and why, in words.
    pub notes: Vec<String>,
}

/// A line: an item shown.
#[derive(Debug, Deserialize)]
struct Line<'a> {
    decision: u64,
    #[serde(borrow)]
    user: Cow<'a, str>,
    #[serde(borrow)]
    item: Cow<'a, str>,
    position: Option<u64>,
    propensity: Option<f64>,
    features: Option<Vec<f64>>,
    context: Option<IgnoredAny>,
    reward: Option<f64>,
    candidates: Option<Vec<String>>,
}

/// A line of a file of items, as `PUT /v1/items` takes it.
#[derive(Debug, Deserialize)]
struct ItemLine {
    id: String,
    features: Vec<f64>,
}

/// A line, with numbers in place of names.
struct Row {
    /// The number of the decision, which all items of its list share.
    list: u64,
    position: u64,
    user: u32,
    shown: ShownItem,
    has_reward: bool,
    candidates: Option<Range<usize>>,
}

/// Items by name.
#[derive(Default)]
struct Items {
    dim: usize,
    places: HashMap<String, u32>,
    rows: Vec<f64>,
    /// The items whose features changed.
    changed: u64,
    is_fixed: bool,
}

impl Items {
    fn insert(&mut self, id: &str, features: &[f64]) -> Result<u32, String> {
        if self.dim == 0 {
            self.dim = features.len();
        }
        if features.len() != self.dim || self.dim == 0 {
            return Err(format!(
                "item '{id}' has {} features; others have {}",
                features.len(),
                self.dim
            ));
        }
        if let Some(&place) = self.places.get(id) {
            let row = &mut self.rows[place as usize * self.dim..][..self.dim];
            if row != features {
                row.copy_from_slice(features);
                self.changed += 1;
            }
            return Ok(place);
        }
        let place = self.places.len() as u32;
        self.places.insert(id.to_owned(), place);
        self.rows.extend_from_slice(features);
        Ok(place)
    }

    /// The place of an item of the log.
    fn find(&mut self, id: &str, features: Option<&[f64]>) -> Result<u32, String> {
        match (self.places.get(id), features) {
            (Some(&place), _) if self.is_fixed => Ok(place),
            (_, Some(features)) => self.insert(id, features),
            (Some(&place), None) => Ok(place),
            (None, None) => Err(format!("the features of item '{id}' are unknown")),
        }
    }
}

fn each_line(
    path: &Path,
    mut take: impl FnMut(&[u8]) -> Result<(), String>,
) -> Result<(), LogError> {
    let failed = |source| LogError::Io {
        path: path.to_owned(),
        source,
    };
    let file = BufReader::new(File::open(path).map_err(failed)?);
    let mut lines = Lines::new(unpacked(file).map_err(failed)?);
    loop {
        let number = lines.number() + 1;
        let Some(line) = lines.next_line().map_err(failed)? else {
            return Ok(());
        };
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        take(line).map_err(|reason| LogError::Line {
            path: path.to_owned(),
            line: number,
            reason,
        })?;
    }
}

impl Log {
    /// Reads a log: JSON lines as the service exports them, plain, gzip or zstd. `items` is a file of items as
    /// `PUT /v1/items` takes it; without it the items of the log are all there are.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn read(path: &Path, items: Option<&Path>, options: LogOptions) -> Result<Self, LogError> {
        let mut known = Items::default();
        if let Some(path) = items {
            each_line(path, |line| {
                let item: ItemLine = serde_json::from_slice(line).map_err(|e| e.to_string())?;
                known.insert(&item.id, &item.features).map(drop)
            })?;
            known.is_fixed = true;
        }
        let mut users: HashMap<String, u32> = HashMap::new();
        let mut rows: Vec<Row> = Vec::new();
        // Numbers of names: an item may be a candidate before it is first shown.
        let mut candidates: Vec<u32> = Vec::new();
        let mut names: HashMap<String, u32> = HashMap::new();
        let mut without_propensity = 0u64;
        each_line(path, |line| {
            let line: Line<'_> = serde_json::from_slice(line).map_err(|e| e.to_string())?;
            if line.context.is_some() {
                return Err("logs with context features are unsupported".to_owned());
            }
            let item = known.find(&line.item, line.features.as_deref())?;
            let (Some(propensity), Some(position)) = (line.propensity, line.position) else {
                without_propensity += 1;
                return Ok(());
            };
            if !(propensity > 0.0 && propensity <= 1.0) {
                return Err(format!(
                    "the propensity is {propensity}; it must be above 0 and at most 1"
                ));
            }
            if line.reward.is_some_and(|reward| !reward.is_finite()) {
                return Err("the reward is not finite".to_owned());
            }
            let next = users.len() as u32;
            let user = *users.entry(line.user.into_owned()).or_insert(next);
            let list = line.decision.checked_sub(position);
            let list = list.ok_or("the position is larger than the number of the decision")?;
            let first = candidates.len();
            for id in line.candidates.into_iter().flatten() {
                let next = names.len() as u32;
                candidates.push(*names.entry(id).or_insert(next));
            }
            let reward = line.reward.or(options.unanswered);
            rows.push(Row {
                list,
                position,
                user,
                shown: ShownItem {
                    item,
                    propensity,
                    reward: reward.unwrap_or(0.0),
                },
                has_reward: reward.is_some(),
                candidates: (candidates.len() > first).then_some(first..candidates.len()),
            });
            Ok(())
        })?;
        rows.sort_by_key(|row| (row.list, row.position));
        let mut log = Self {
            items: ItemSet::from_rows(known.dim.max(1), &known.rows)
                .map_err(|error| LogError::Nothing(error.to_string()))?,
            rounds: Vec::new(),
            shown: Vec::new(),
            candidates: Vec::new(),
            users: users.len() as u64,
            notes: Vec::new(),
        };
        let mut places: Vec<Option<u32>> = vec![None; names.len()];
        for (id, number) in &names {
            places[*number as usize] = known.places.get(id).copied();
        }
        let without_features = places.iter().filter(|place| place.is_none()).count();
        let mut without_reward = 0u64;
        for list in rows.chunk_by(|a, b| a.list == b.list) {
            let first = log.shown.len();
            let answered = list.iter().filter(|row| row.has_reward);
            log.shown.extend(answered.map(|row| row.shown));
            without_reward += (list.len() - (log.shown.len() - first)) as u64;
            if log.shown.len() > first {
                let named = list.iter().find_map(|row| row.candidates.clone());
                let named = candidates[named.unwrap_or(0..0)].iter();
                let begin = log.candidates.len();
                let known = named.filter_map(|&number| places[number as usize]);
                log.candidates.extend(known);
                log.rounds.push(Round {
                    user: list[0].user,
                    slots: list.len() as u32,
                    shown: first..log.shown.len(),
                    candidates: begin..log.candidates.len(),
                });
            }
        }
        if without_features > 0 {
            log.notes.push(format!(
                "{without_features} candidates have no features in the log, because they were never shown, and are left out; \
                 --items FILE adds them"
            ));
        }
        log.note(without_propensity, without_reward, known.changed);
        match log.rounds.is_empty() {
            true => Err(LogError::Nothing(format!(
                "no decision of the log has a reward and a propensity. {}",
                log.notes.join(". ")
            ))),
            false => Ok(log),
        }
    }

    fn note(&mut self, without_propensity: u64, without_reward: u64, changed: u64) {
        if without_propensity > 0 {
            self.notes.push(format!(
                "{without_propensity} items shown have no propensity and are left out; serve with --propensities to log them"
            ));
        }
        if without_reward > 0 {
            self.notes.push(format!(
                "{without_reward} items shown have no reward and are left out; --unanswered 0 counts them as 0"
            ));
        }
        if changed > 0 {
            self.notes.push(format!(
                "the features of items changed {changed} times; the last ones are used for all decisions"
            ));
        }
        if self.is_deterministic() {
            self.notes.push(
                "every propensity is 1: the policy that made this log does not draw at random, so that the log says nothing \
                 about items that it did not show"
                    .to_owned(),
            );
        }
    }

    /// True if the log was made by a policy that does not draw at random.
    pub fn is_deterministic(&self) -> bool {
        self.shown.iter().all(|shown| shown.propensity == 1.0)
    }
}
