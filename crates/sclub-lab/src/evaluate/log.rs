//! Logs of decisions: the export of the service, or lines of the same form.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufReader};
use std::ops::Range;
use std::path::{Path, PathBuf};

use sclub::{ItemId, ItemSet};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::candidates::{CatalogueLine, Finder, Source, Sources, Text, number_of};
use super::items::Items;
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
    /// An item counts only if the policy would have shown it at the same position of the list. For rewards that depend on
    /// the position.
    pub by_position: bool,
}

/// An item shown, with its probability and its reward.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ShownItem {
    /// The item's place in [`Log::items`].
    pub item: u32,
    /// The position in the list, from 0.
    pub position: u32,
    /// The probability with which it was shown: in the list or, with [`LogOptions::by_position`], at this position.
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
    /// Those of them that were not to be shown, in [`Log::excluded`].
    pub excluded: Range<usize>,
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
    /// Sets of candidates, which several decisions may share.
    pub candidates: Vec<u32>,
    /// Candidates that were not to be shown, decision by decision.
    pub excluded: Vec<u32>,
    /// The weights are for positions: [`LogOptions::by_position`].
    pub by_position: bool,
    /// The number of users of the decisions.
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
    position: Option<u32>,
    propensity: Option<f64>,
    slot_propensity: Option<f64>,
    #[serde(borrow)]
    features: Option<&'a RawValue>,
    context: Option<IgnoredAny>,
    reward: Option<f64>,
    #[serde(borrow)]
    candidates: Option<Vec<Text<'a>>>,
    #[serde(borrow)]
    catalogue: Option<CatalogueLine<'a>>,
}

impl Line<'_> {
    /// Checks what the types do not.
    fn check(&self) -> Result<(), String> {
        if self.context.is_some() {
            return Err(
                "the decision has context features; such logs cannot be evaluated".to_owned(),
            );
        }
        for propensity in [self.propensity, self.slot_propensity].iter().flatten() {
            if !(*propensity > 0.0 && *propensity <= 1.0) {
                return Err(format!(
                    "the propensity is {propensity}; it must be above 0 and at most 1"
                ));
            }
        }
        match self.reward.is_some_and(|reward| !reward.is_finite()) {
            true => Err("the reward is not finite".to_owned()),
            false => Ok(()),
        }
    }
}

/// A line, with numbers in place of names.
struct Row {
    /// The number of the line, from 1.
    number: u64,
    /// The number of the decision, which all items of its list share.
    list: u64,
    user: u32,
    shown: ShownItem,
    has_reward: bool,
    has_propensity: bool,
    source: Source,
}

/// How many lines and decisions are left out, and why.
#[derive(Default)]
struct LeftOut {
    propensity: u64,
    imported: u64,
    reward: u64,
}

pub(super) fn each_line(
    path: &Path,
    mut take: impl FnMut(u64, &[u8]) -> Result<(), String>,
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
        take(number, line).map_err(|reason| LogError::Line {
            path: path.to_owned(),
            line: number,
            reason,
        })?;
    }
}

/// Checks that the log has each item shown once, and lists of one user each.
fn check_unique(path: &Path, rows: &[Row]) -> Result<(), LogError> {
    let same = |a: &Row, b: &Row| {
        a.list == b.list && (a.shown.position == b.shown.position || a.user != b.user)
    };
    let Some(pair) = rows.windows(2).find(|pair| same(&pair[0], &pair[1])) else {
        return Ok(());
    };
    Err(LogError::Line {
        path: path.to_owned(),
        line: pair[0].number.max(pair[1].number),
        reason: format!(
            "the decision is in line {} too; a log is one export of one server: logs of several servers cannot be one file, nor exports \
             with lines in common",
            pair[0].number.min(pair[1].number)
        ),
    })
}

impl Log {
    /// Reads a log: JSON lines as the service exports them, plain, gzip or zstd. `items` is a file of items as
    /// `PUT /v1/items` takes it; without it the items of the log are all there are.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn read(path: &Path, items: Option<&Path>, options: LogOptions) -> Result<Self, LogError> {
        let mut known = items.map(Items::read).transpose()?.unwrap_or_default();
        let mut users: HashMap<String, u32> = HashMap::new();
        let mut sources = Sources::default();
        let mut rows: Vec<Row> = Vec::new();
        let mut left_out = LeftOut::default();
        each_line(path, |number, line| {
            let line: Line<'_> = serde_json::from_slice(line).map_err(|e| e.to_string())?;
            line.check()?;
            let item = known.find(&line.item, line.features)?;
            let Some(position) = line.position else {
                left_out.imported += 1;
                return Ok(());
            };
            let list = line.decision.checked_sub(u64::from(position));
            let list = list.ok_or("the position is larger than the number of the decision")?;
            let propensity = match options.by_position {
                true => line.slot_propensity,
                false => line.propensity,
            };
            left_out.propensity += u64::from(propensity.is_none());
            let reward = line.reward.or(options.unanswered);
            // The items of a list have the same candidates, and are often side by side.
            let source = match rows.last() {
                Some(last) if last.list == list => last.source.clone(),
                _ => sources.add(line.candidates, line.catalogue),
            };
            rows.push(Row {
                number,
                list,
                user: number_of(&mut users, &line.user),
                shown: ShownItem {
                    item,
                    position,
                    propensity: propensity.unwrap_or(1.0),
                    reward: reward.unwrap_or(0.0),
                },
                has_reward: reward.is_some(),
                has_propensity: propensity.is_some(),
                source,
            });
            Ok(())
        })?;
        rows.sort_by_key(|row| (row.list, row.shown.position));
        check_unique(path, &rows)?;
        let mut finder = Finder::new(&known, &sources);
        let mut log = Self {
            items: ItemSet::from_rows(known.dim.max(1), &known.rows)
                .map_err(|error| LogError::Nothing(error.to_string()))?,
            rounds: Vec::new(),
            shown: Vec::new(),
            candidates: Vec::new(),
            excluded: Vec::new(),
            by_position: options.by_position,
            users: 0,
            notes: Vec::new(),
        };
        let mut items = Vec::new();
        for list in rows.chunk_by(|a, b| a.list == b.list) {
            let (first, user) = (log.shown.len(), list[0].user);
            items.clear();
            items.extend(list.iter().map(|row| row.shown.item));
            let with_propensity = list.iter().filter(|row| row.has_propensity);
            let answered = with_propensity.clone().filter(|row| row.has_reward);
            log.shown.extend(answered.map(|row| row.shown));
            left_out.reward += (with_propensity.count() - (log.shown.len() - first)) as u64;
            if log.shown.len() > first {
                match finder.find(&list[0].source, &items) {
                    Some((candidates, excluded)) => log.rounds.push(Round {
                        user,
                        slots: list.len() as u32,
                        shown: first..log.shown.len(),
                        candidates,
                        excluded,
                    }),
                    None => log.shown.truncate(first),
                }
            }
        }
        let ids: Vec<ItemId> = (0..).take(log.items.len()).collect();
        let ids = log.items.set_ids(&ids);
        ids.map_err(|error| LogError::Nothing(error.to_string()))?;
        log.note(&left_out, &known, &sources, &finder);
        let served: HashSet<u32> = log.rounds.iter().map(|round| round.user).collect();
        log.users = served.len() as u64;
        (log.candidates, log.excluded) = (finder.candidates, finder.excluded);
        match log.rounds.is_empty() {
            true => Err(LogError::Nothing(format!(
                "no decision of the log can be evaluated: each needs a reward and a propensity.{}",
                log.notes
                    .iter()
                    .fold(String::new(), |all, note| all + "\nnote: " + note)
            ))),
            false => Ok(log),
        }
    }

    fn note(&mut self, left_out: &LeftOut, known: &Items, sources: &Sources, finder: &Finder<'_>) {
        let mut note = |count: u64, text: &str| {
            if count > 0 {
                self.notes.push(format!("{count} {text}"));
            }
        };
        note(
            left_out.propensity,
            "items shown have no propensity and are left out; serve with --explore-share 0.05 or --propensities 200 to log them",
        );
        note(
            left_out.imported,
            "rewards have no decision in the log, because they were imported or the decision is lost; they are left out",
        );
        note(
            left_out.reward,
            "items shown have no reward and are left out; --unanswered 0 counts them as 0",
        );
        note(
            known.changed,
            "times an item has other features than before; the last ones are used for all decisions",
        );
        note(
            finder.without_features() as u64,
            "candidates have no features in the log, because they were never shown, and are left out; --items FILE adds them",
        );
        match known.in_file {
            0 => note(
                finder.unknown,
                "decisions have a filter and are left out: --items FILE is needed, with the tags and data of the items",
            ),
            in_file => {
                note(
                    finder.unknown,
                    "decisions are left out: an item shown does not pass the decision's filter, so the file of items is not the \
                     catalogue of that time",
                );
                note(
                    (known.len() - in_file) as u64,
                    "items of the log are not in the file of items; they are candidates wherever there is no filter",
                );
            }
        }
        if let Some((first, last)) = sources.revisions.filter(|(first, last)| first < last) {
            self.notes.push(format!(
                "the catalogue changed {} times while the log was made; one catalogue is used for all decisions",
                last - first
            ));
        }
        if !self.rounds.is_empty() && self.is_deterministic() {
            self.notes.push(
                "every propensity is 1: the policy that made this log does not draw at random, so that no off-policy estimate can be \
                 had from it; serve with --explore-share 0.05"
                    .to_owned(),
            );
        }
    }

    /// True if a decision showed several items.
    pub fn has_lists(&self) -> bool {
        self.rounds.iter().any(|round| round.slots > 1)
    }

    /// True if the log was made by a policy that does not draw at random.
    pub fn is_deterministic(&self) -> bool {
        self.shown.iter().all(|shown| shown.propensity == 1.0)
    }
}
