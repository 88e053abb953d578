//! Fits a transform to a catalogue.
//!
//! Without interactions, the vector of an item is its row in the basis of the leading right singular vectors of all
//! rows: what most items have in common comes first. If all entries of a row fit into the features, they are taken as
//! they are.
//!
//! With interactions, items that enough users took get the vectors of a truncated SVD of who took what. A ridge
//! regression from rows to these vectors gives the vectors of all other items. So a new item stands where items with
//! similar titles and tags stand, in a space in which items are near each other if the same users took them. The
//! penalty is the one that predicts held-out items best.
//!
//! All vectors are divided by the length of the longest.

use crate::encode::{Column, Encoder, Entries, filled, positions, rows};
use crate::hints::Hint;
use crate::kinds::{Columns, Kind, Options, columns};
use crate::matrix::{Matrix, Sparse};
use crate::ridge::ridge;
use crate::svd::{Search, truncated_svd_watched};
use crate::transform::{ItemError, Transform, finish, id_text};
use crate::{DIMS, RawItem};

/// Users who must have taken an item, so that its vector is made from that.
pub const MIN_TAKERS: u32 = 5;
/// The penalties of the regression that are tried.
const PENALTIES: [f64; 7] = [0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0];
/// One of so many known items is held out to choose the penalty.
const FOLDS: usize = 5;
/// Known items without which no penalty can be chosen.
const MIN_KNOWN: usize = 20;

/// The reason why a transform cannot be fitted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FitError {
    /// A number of features that is not possible.
    #[error("dim is {dim}; it must be between {} and {}", DIMS.start(), DIMS.end())]
    Dim {
        /// The number asked for.
        dim: usize,
    },
    /// A column that is missing or given twice.
    #[error("{0}")]
    Column(String),
    /// Too few items.
    #[error("there are {0} items; a transform needs at least 2")]
    Items(usize),
    /// Nothing to make features from.
    #[error(
        "no column distinguishes the items: {0}; name columns with text, tags, category or number"
    )]
    NoColumns(String),
    /// A value that is not of the kind of its column.
    #[error("item {item}: {error}")]
    Item {
        /// The place of the item in the catalogue, from 1.
        item: usize,
        /// The field, and what is expected.
        error: ItemError,
    },
    /// An item without an id, or with that of another one.
    #[error("item {item}: {reason}")]
    Id {
        /// The place of the item in the catalogue, from 1.
        item: usize,
        /// The reason.
        reason: String,
    },
    /// The interactions are of other items.
    #[error("the interactions have {got} items, and the catalogue has {expected}")]
    Interactions {
        /// Items of the catalogue.
        expected: usize,
        /// Columns of the matrix.
        got: usize,
    },
    /// No item was taken by enough users.
    #[error("no item of the catalogue was taken by {MIN_TAKERS} users or more; do the ids agree?")]
    NoTakers,
}

/// A fitted transform, the vectors of the catalogue, and a report.
#[derive(Debug, Clone, PartialEq)]
pub struct Fitted {
    /// The transform.
    pub transform: Transform,
    /// The vectors of the catalogue's items.
    pub vectors: Matrix,
    /// The report: the kind of each column, and the share that it explains.
    pub report: Report,
}

/// The report of a fit.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The columns that features are made from.
    pub parts: Vec<Part>,
    /// The columns that are not used.
    pub ignored: Vec<LeftOut>,
    /// Hints about the columns.
    pub hints: Vec<Hint>,
    /// The number of features that are not zero everywhere, without the constant.
    pub directions: usize,
    /// The share of the squared mass of all rows that the vectors explain; `None` with interactions.
    pub explained: Option<f64>,
    /// The part of who took what.
    pub taken: Option<TakenReport>,
}

/// A column that is not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// The name of the column.
    pub column: String,
    /// The reason.
    pub reason: &'static str,
}

/// A column in the report.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// The name of the column.
    pub column: String,
    /// `text`, `tags` or `number`.
    pub kind: &'static str,
    /// The number of different entries.
    pub width: usize,
    /// The share of items with a value.
    pub filled: f64,
    /// Without interactions: the share of the squared mass of the column's entries that the vectors explain. With
    /// interactions: the share of the variance of the vectors of held-out items that this column alone predicts;
    /// `None` if there are too few items to tell.
    pub explained: Option<f64>,
}

/// Who took what, in the report.
#[derive(Debug, Clone, PartialEq)]
pub struct TakenReport {
    /// Users.
    pub users: usize,
    /// Interactions with items of the catalogue.
    pub interactions: usize,
    /// Items that enough users took.
    pub known: usize,
    /// The share of the squared mass of the matrix that the vectors explain.
    pub explained: f64,
    /// The share of the variance of the vectors of held-out items that all columns together predict; `None` if there
    /// are too few items to tell.
    pub predicted: Option<f64>,
}

/// Fits a transform to a catalogue. `taken` is who took what: a row for each user, and a column for each item of the
/// catalogue in its order.
///
/// # Errors
/// If the catalogue has no columns to make features from, or a bad value.
pub fn fit(
    items: &[RawItem],
    options: &Options,
    taken: Option<&Sparse>,
) -> Result<Fitted, FitError> {
    fit_watched(items, options, taken, &mut |_| ())
}

/// As [`fit`]; calls `watch` with the progress of the decomposition.
///
/// # Errors
/// As [`fit`].
pub fn fit_watched(
    items: &[RawItem],
    options: &Options,
    taken: Option<&Sparse>,
    watch: &mut dyn FnMut(Search),
) -> Result<Fitted, FitError> {
    if !DIMS.contains(&options.dim) {
        return Err(FitError::Dim { dim: options.dim });
    }
    if items.len() < 2 {
        return Err(FitError::Items(items.len()));
    }
    let Columns { id, kinds, hints } = columns(items, options)?;
    let ids = match (&id, taken) {
        (Some(id), _) => ids(items, id)?,
        (None, None) => Vec::new(),
        (None, Some(_)) => {
            let reason = "interactions need a column of ids, and none is called id or item_id";
            return Err(FitError::Column(reason.to_owned()));
        }
    };
    let (columns, ignored) = encoders(items, kinds)?;
    if columns.is_empty() && taken.is_none() {
        let one = |left: &LeftOut| format!("{} ({})", left.column, left.reason);
        let listed: Vec<String> = ignored.iter().map(one).collect();
        let listed = match listed.is_empty() {
            true => "there is none beside the ids".to_owned(),
            false => format!("left out: {}", listed.join(", ")),
        };
        return Err(FitError::NoColumns(listed));
    }
    let rows = rows(&columns, items).map_err(|error| first_bad(items, &columns, error))?;
    let mut fit = Fit {
        size: options.dim - 1,
        width: columns.iter().map(|column| column.encoder.width()).sum(),
        rows,
        parts: parts(&columns, items),
    };
    let made = match taken {
        None => fit.of_rows(watch),
        Some(taken) => fit.of_taken(taken, watch)?,
    };
    let round = |values: Vec<f64>| values.into_iter().map(|value| value as f32).collect();
    let known_ids: Vec<String> = made
        .known
        .iter()
        .map(|&at| ids[at as usize].clone())
        .collect();
    let transform = Transform {
        dim: options.dim,
        id,
        columns,
        offset: round(made.offset),
        projection: round(made.projection),
        known: positions(&known_ids),
        known_ids,
        known_vectors: round(made.known_vectors),
    };
    // The vectors are those that a loaded transform gives.
    let mut vectors = Matrix::zeros(items.len(), options.dim);
    for (at, item) in items.iter().enumerate() {
        let vector = transform.apply(item).expect("every item was encoded");
        vectors.row_mut(at).copy_from_slice(&vector);
    }
    let report = Report {
        parts: fit.parts,
        ignored,
        hints,
        directions: made.directions,
        explained: made.explained,
        taken: made.taken,
    };
    Ok(Fitted {
        transform,
        vectors,
        report,
    })
}

/// The ids of items so far, and their places from 1.
#[derive(Default)]
struct Ids(std::collections::HashMap<String, usize>);

impl Ids {
    /// The id of the next item, at a place from 1.
    fn next(&mut self, item: &RawItem, column: &str, place: usize) -> Result<String, FitError> {
        let bad = |reason: String| FitError::Id {
            item: place,
            reason,
        };
        let id = item.get(column).and_then(id_text);
        let id = id.ok_or_else(|| {
            bad(format!(
                "its id (column '{column}') is missing, or neither a text nor a whole number"
            ))
        })?;
        match self.0.get(&id) {
            Some(before) => Err(bad(format!("its id '{id}' is that of item {before}"))),
            None => {
                self.0.insert(id.clone(), place);
                Ok(id)
            }
        }
    }
}

/// The ids of all items.
fn ids(items: &[RawItem], column: &str) -> Result<Vec<String>, FitError> {
    let mut ids = Ids::default();
    let all = items.iter().zip(1..);
    all.map(|(item, place)| ids.next(item, column, place))
        .collect()
}

/// The items without which a catalogue can be fitted, in order: those without an id, with that of an item before, or with a value
/// that is not of the kind of its column. Each is an error that names the item.
///
/// # Errors
/// As [`fit`], if the columns are wrong.
pub fn bad_items(items: &[RawItem], options: &Options) -> Result<Vec<FitError>, FitError> {
    let Columns { id, kinds, .. } = columns(items, options)?;
    let mut ids = Ids::default();
    let mut all = Vec::new();
    for (item, place) in items.iter().zip(1..) {
        let wrong = kinds.iter().find_map(|(name, kind)| {
            let value = item.get(name)?;
            Encoder::check(name, kind, value).err()
        });
        let error = match (wrong, &id) {
            (Some(error), _) => Some(FitError::Item { item: place, error }),
            (None, Some(id)) => ids.next(item, id, place).err(),
            (None, None) => None,
        };
        all.extend(error);
    }
    Ok(all)
}

/// The columns that distinguish items, and the others.
fn encoders(
    items: &[RawItem],
    kinds: Vec<(String, Kind)>,
) -> Result<(Vec<Column>, Vec<LeftOut>), FitError> {
    let (mut columns, mut ignored) = (Vec::new(), Vec::new());
    for (name, kind) in kinds {
        let encoder = Encoder::fit(&name, &kind, items).map_err(|error| {
            let is_bad = |item: &RawItem| {
                let value = item.get(&name);
                value.is_some_and(|value| Encoder::check(&name, &kind, value).is_err())
            };
            let place = items.iter().position(is_bad);
            let item = place.map_or(0, |at| at + 1);
            FitError::Item { item, error }
        })?;
        match encoder {
            Ok(encoder) => columns.push(Column { name, encoder }),
            Err(reason) => ignored.push(LeftOut {
                column: name,
                reason,
            }),
        }
    }
    Ok((columns, ignored))
}

fn first_bad(items: &[RawItem], columns: &[Column], error: ItemError) -> FitError {
    let is_bad = |item: &RawItem| crate::encode::row(columns, item).is_err();
    let item = items.iter().position(is_bad).map_or(0, |at| at + 1);
    FitError::Item { item, error }
}

fn parts(columns: &[Column], items: &[RawItem]) -> Vec<Part> {
    let part = |column: &Column| Part {
        column: column.name.clone(),
        kind: column.encoder.kind(),
        width: column.encoder.width(),
        filled: filled(column, items),
        explained: None,
    };
    columns.iter().map(part).collect()
}

/// The encoded catalogue.
struct Fit {
    /// Features without the constant one.
    size: usize,
    /// Entries of a row.
    width: usize,
    rows: Vec<Entries>,
    parts: Vec<Part>,
}

/// The numbers of a transform.
struct Made {
    offset: Vec<f64>,
    projection: Vec<f64>,
    known: Vec<u32>,
    known_vectors: Vec<f64>,
    directions: usize,
    explained: Option<f64>,
    taken: Option<TakenReport>,
}

impl Fit {
    /// Vectors from the rows alone.
    fn of_rows(&mut self, watch: &mut dyn FnMut(Search)) -> Made {
        let rows = Sparse::with_values(self.width, &self.rows);
        let basis = match self.width <= self.size {
            true => {
                let mut basis = Matrix::zeros(self.width, self.size);
                (0..self.width).for_each(|at| basis.row_mut(at)[at] = 1.0);
                basis
            }
            false => truncated_svd_watched(&rows, self.size, watch).right,
        };
        let vectors = rows.times(&basis);
        let directions = (0..self.size)
            .filter(|&at| (0..basis.rows()).any(|row| basis.get(row, at) != 0.0))
            .count();
        let explained = self.explain(&rows, &basis, &vectors);
        let scale = 1.0 / longest(&vectors).max(f64::MIN_POSITIVE);
        Made {
            offset: vec![0.0; self.size],
            projection: basis.values().iter().map(|value| value * scale).collect(),
            known: Vec::new(),
            known_vectors: Vec::new(),
            directions,
            explained: Some(explained),
            taken: None,
        }
    }

    /// The share of the squared mass of all rows that the vectors explain; and that of each part.
    ///
    /// With Y = XV and the entries p of a part, ‖X_p − YV_pᵀ‖² = ‖X_p‖² − 2 tr(Yᵀ X_p V_p) + tr(YᵀY V_pᵀV_p).
    fn explain(&mut self, rows: &Sparse, basis: &Matrix, vectors: &Matrix) -> f64 {
        let gram = vectors.transposed_times(vectors);
        let mut from = 0;
        let mut explained = 0.0;
        for part in &mut self.parts {
            let own = from..from + part.width;
            from = own.end;
            let is_own = |&&(column, _): &&(u32, f64)| own.contains(&(column as usize));
            let mut mass = 0.0;
            let mut cross = 0.0;
            for (at, row) in self.rows.iter().enumerate() {
                for &(column, value) in row.iter().filter(is_own) {
                    mass += value * value;
                    let factors = basis.row(column as usize).iter();
                    let product: f64 = factors.zip(vectors.row(at)).map(|(a, b)| a * b).sum();
                    cross += value * product;
                }
            }
            let mut inside = 0.0;
            for column in own {
                let factors = basis.row(column);
                for (at, a) in factors.iter().enumerate() {
                    let product: f64 = factors.iter().zip(gram.row(at)).map(|(b, g)| b * g).sum();
                    inside += a * product;
                }
            }
            let gain = 2.0 * cross - inside;
            part.explained = (mass > 0.0).then(|| gain / mass);
            explained += gain;
        }
        explained / rows.squared_mass().max(f64::MIN_POSITIVE)
    }

    /// Vectors from who took what, and a regression to them for all other items.
    fn of_taken(
        &mut self,
        taken: &Sparse,
        watch: &mut dyn FnMut(Search),
    ) -> Result<Made, FitError> {
        if taken.columns() != self.rows.len() {
            return Err(FitError::Interactions {
                expected: self.rows.len(),
                got: taken.columns(),
            });
        }
        let mut takers = vec![0; taken.columns()];
        for user in 0..taken.rows() {
            for &item in taken.row(user) {
                takers[item as usize] += 1;
            }
        }
        let known: Vec<u32> = (0..taken.columns() as u32)
            .filter(|&item| takers[item as usize] >= MIN_TAKERS)
            .collect();
        if known.is_empty() {
            return Err(FitError::NoTakers);
        }
        let svd = truncated_svd_watched(taken, self.size, watch);
        let mut vectors = Matrix::zeros(known.len(), self.size);
        for (at, &item) in known.iter().enumerate() {
            let both = svd.right.row(item as usize).iter().zip(&svd.values);
            for (to, (entry, value)) in vectors.row_mut(at).iter_mut().zip(both) {
                *to = entry * value;
            }
        }
        let scale = 1.0 / longest(&vectors).max(f64::MIN_POSITIVE);
        for at in 0..known.len() {
            vectors
                .row_mut(at)
                .iter_mut()
                .for_each(|value| *value *= scale);
        }
        let all = 0..self.width as u32;
        let (penalty, predicted) = self.choose_penalty(&known, &vectors);
        let mut from = 0;
        for at in 0..self.parts.len() {
            let own = from..from + self.parts[at].width as u32;
            from = own.end;
            self.parts[at].explained =
                predicted.map(|_| self.held_out(&known, &vectors, own, penalty));
        }
        let weights = ridge(&self.regressors(&known, &all), &vectors, penalty);
        let split = self.width * self.size;
        let masses: f64 = svd.values.iter().map(|value| value * value).sum();
        Ok(Made {
            offset: weights.values()[split..].to_vec(),
            projection: weights.values()[..split].to_vec(),
            directions: svd.values.iter().filter(|&&value| value > 0.0).count(),
            explained: None,
            taken: Some(TakenReport {
                users: taken.rows(),
                interactions: taken.entries(),
                known: known.len(),
                explained: masses / taken.squared_mass().max(f64::MIN_POSITIVE),
                predicted,
            }),
            known_vectors: vectors.values().to_vec(),
            known,
        })
    }

    /// The rows of some items with the entries of some columns, and a 1 behind all.
    fn regressors(&self, items: &[u32], columns: &std::ops::Range<u32>) -> Sparse {
        let rows: Vec<Entries> = items
            .iter()
            .map(|&item| {
                let row = self.rows[item as usize].iter();
                let own = row.filter(|(column, _)| columns.contains(column)).copied();
                own.chain([(self.width as u32, 1.0)]).collect()
            })
            .collect();
        Sparse::with_values(self.width + 1, &rows)
    }

    /// The penalty that predicts held-out items best, and the share of the variance that it predicts.
    fn choose_penalty(&self, known: &[u32], vectors: &Matrix) -> (f64, Option<f64>) {
        let mut best = (1.0, None);
        if known.len() < MIN_KNOWN {
            return best;
        }
        for penalty in PENALTIES {
            let share = self.held_out(known, vectors, 0..self.width as u32, penalty);
            if best.1.is_none_or(|most| share > most) {
                best = (penalty, Some(share));
            }
        }
        best
    }

    /// The share of the variance of the vectors of held-out items that the others predict.
    fn held_out(
        &self,
        known: &[u32],
        vectors: &Matrix,
        columns: std::ops::Range<u32>,
        penalty: f64,
    ) -> f64 {
        let of = |is_held: bool| -> Vec<usize> {
            let places = 0..known.len();
            places.filter(|at| (at % FOLDS == 0) == is_held).collect()
        };
        let items = |places: &[usize]| -> Vec<u32> { places.iter().map(|&at| known[at]).collect() };
        let (fitted, held) = (of(false), of(true));
        let mut targets = Matrix::zeros(fitted.len(), self.size);
        let mut mean = vec![0.0; self.size];
        for (to, &from) in fitted.iter().enumerate() {
            targets.row_mut(to).copy_from_slice(vectors.row(from));
            for (mean, value) in mean.iter_mut().zip(vectors.row(from)) {
                *mean += value / fitted.len() as f64;
            }
        }
        let weights = ridge(
            &self.regressors(&items(&fitted), &columns),
            &targets,
            penalty,
        );
        let predicted = self.regressors(&items(&held), &columns).times(&weights);
        let (mut missed, mut all) = (0.0, 0.0);
        for (at, &place) in held.iter().enumerate() {
            for ((value, guess), mean) in
                vectors.row(place).iter().zip(predicted.row(at)).zip(&mean)
            {
                missed += (value - guess) * (value - guess);
                all += (value - mean) * (value - mean);
            }
        }
        if all > 0.0 { 1.0 - missed / all } else { 0.0 }
    }
}

/// Vectors of items from who took what and, for items that few users took, from vectors of their content: the second
/// half of a fit with interactions, for content of any origin.
///
/// # Errors
/// If no item was taken by enough users, or the numbers of items differ.
pub fn blend(content: &Matrix, taken: &Sparse, dim: usize) -> Result<Matrix, FitError> {
    if !DIMS.contains(&dim) {
        return Err(FitError::Dim { dim });
    }
    let row = |at: usize| -> Entries {
        let entries = (0..).zip(content.row(at).iter().copied());
        entries.filter(|entry| entry.1 != 0.0).collect()
    };
    let mut fit = Fit {
        size: dim - 1,
        width: content.columns(),
        rows: (0..content.rows()).map(row).collect(),
        parts: Vec::new(),
    };
    let made = fit.of_taken(taken, &mut |_| ())?;
    let mut vectors = Matrix::zeros(content.rows(), dim);
    let mut known = made
        .known
        .iter()
        .zip(made.known_vectors.chunks(fit.size))
        .peekable();
    for (at, row) in fit.rows.iter().enumerate() {
        let vector = match known.next_if(|(item, _)| **item as usize == at) {
            Some((_, vector)) => vector.to_vec(),
            None => {
                let mut sum = made.offset.clone();
                for &(column, value) in row {
                    let factors = &made.projection[column as usize * fit.size..][..fit.size];
                    for (sum, factor) in sum.iter_mut().zip(factors) {
                        *sum += value * factor;
                    }
                }
                sum
            }
        };
        vectors.row_mut(at).copy_from_slice(&finish(vector));
    }
    Ok(vectors)
}

fn longest(vectors: &Matrix) -> f64 {
    let squares = |row: usize| {
        vectors
            .row(row)
            .iter()
            .map(|value| value * value)
            .sum::<f64>()
    };
    (0..vectors.rows()).map(squares).fold(0.0, f64::max).sqrt()
}
