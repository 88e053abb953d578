//! `sclub features --items`: a catalogue to vectors of its items, and a transform for new ones.

use std::collections::HashMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, bail};
use clap::Args;
use sclub_features::{
    AVAILABLE, FitError, Fitted, LeftOut, MIN_TAKERS, Options, Part, RawItem, Sparse, bad_items,
    fit_watched,
};
use sclub_lab::data::{Interactions, ItemOptions, ReadItems, read_items, write};
use sclub_lab::summary::thousands;
use serde_json::Value;

use super::{FeaturesArgs, prepare};
use crate::files::{print_line, save};
use crate::reading::{Reading, Searching, read_file};

/// The files that are written, in this order.
const FILES: [&str; 3] = ["transform.json", "items.npy", "items.csv"];

/// Flags for catalogues.
#[derive(Debug, Args)]
pub struct CatalogueArgs {
    /// With a catalogue: column of the ids [default: the one called id, item_id or the like]
    #[arg(long, value_name = "NAME", help_heading = "Catalogue")]
    pub id_column: Option<String>,

    /// Column of words, such as a title; may be given several times [default: guessed, as for all columns not named]
    #[arg(long, value_name = "NAME", help_heading = "Catalogue")]
    pub text: Vec<String>,

    /// Column of several tags, in a list or between separators; may be given several times
    #[arg(long, value_name = "NAME", help_heading = "Catalogue")]
    pub tags: Vec<String>,

    /// Column of one category, whose whole value is a tag; may be given several times
    #[arg(long, value_name = "NAME", help_heading = "Catalogue")]
    pub category: Vec<String>,

    /// Column of numbers; may be given several times
    #[arg(long, value_name = "NAME", help_heading = "Catalogue")]
    pub number: Vec<String>,

    /// Column to leave out; may be given several times
    #[arg(long, value_name = "NAME", help_heading = "Catalogue")]
    pub ignore: Vec<String>,

    /// Text between two tags [default: |, ; or a comma, guessed]
    #[arg(long, value_name = "TEXT", help_heading = "Catalogue")]
    pub separator: Option<String>,

    /// Names of the columns of a catalogue without a header, such as id,title,genres
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        help_heading = "Catalogue"
    )]
    pub columns: Vec<String>,

    /// Rows with the same id are one item, and their other values are lists: for files with a row for each tag. In a column
    /// of numbers the first one counts. Needs --id-column
    #[arg(long, requires = "id_column", help_heading = "Catalogue")]
    pub gather: bool,
}

impl CatalogueArgs {
    /// True if no flag is given.
    pub fn is_empty(&self) -> bool {
        let lists = [
            &self.text,
            &self.tags,
            &self.category,
            &self.number,
            &self.ignore,
            &self.columns,
        ];
        self.id_column.is_none()
            && self.separator.is_none()
            && lists.iter().all(|list| list.is_empty())
    }

    /// The options for reading the file.
    pub fn reading(&self, skip_bad_lines: bool) -> ItemOptions {
        ItemOptions {
            columns: self.columns.clone(),
            gather: self.id_column.clone().filter(|_| self.gather),
            skip_bad_lines,
        }
    }

    fn options(&self, dim: usize) -> Options {
        Options {
            dim,
            id: self.id_column.clone(),
            text: self.text.clone(),
            tags: self.tags.clone(),
            category: self.category.clone(),
            number: self.number.clone(),
            ignore: self.ignore.clone(),
            separator: self.separator.clone(),
            gathered: self.gather,
        }
    }
}

/// Reads the items of a file, and shows how far that has come.
///
/// # Errors
/// As [`read_items`].
pub fn read_catalogue(path: &Path, options: &ItemOptions, quiet: bool) -> Result<ReadItems> {
    let read = read_watched(path, options, quiet)?;
    warn_about(&read, path);
    Ok(read)
}

fn read_watched(path: &Path, options: &ItemOptions, quiet: bool) -> Result<ReadItems> {
    let progress = Reading::new(quiet);
    let read = read_items(path, options, &|done, total| progress.read(done, total));
    drop(progress);
    Ok(read?)
}

fn warn_about(read: &ReadItems, path: &Path) {
    let file = path.display();
    if let Some((line, reason)) = &read.first_bad {
        let many = thousands(read.bad_lines as f64);
        eprintln!("sclub: warning: bad lines skipped: {many}, first {file}:{line}: {reason}");
    }
    if read.has_latin1 {
        eprintln!("sclub: warning: {file} is not in UTF-8; other bytes were read as Latin-1");
    }
    if let Some(names) = &read.odd_header {
        eprintln!(
            "sclub: warning: the first line of {file} ({}) was read as the names of the columns, though it looks like an item; \
             if there is no header, name the columns with --columns",
            names.join(", ")
        );
    }
}

/// Leaves out the items without which a transform can be fitted, and counts their lines as bad.
fn skip_bad_items(read: &mut ReadItems, options: &Options) -> Result<()> {
    // Without an item, the guess of a column can be another one.
    while read.items.len() > 1 {
        let bad = bad_items(&read.items, options)?;
        let places: HashMap<usize, String> = bad.iter().filter_map(of_item).collect();
        if places.is_empty() {
            break;
        }
        let (items, lines) = (
            std::mem::take(&mut read.items),
            std::mem::take(&mut read.lines),
        );
        for ((item, line), place) in items.into_iter().zip(lines).zip(1..) {
            let Some(reason) = places.get(&place) else {
                read.items.push(item);
                read.lines.push(line);
                continue;
            };
            read.bad_lines += 1;
            if read
                .first_bad
                .as_ref()
                .is_none_or(|(first, _)| line < *first)
            {
                read.first_bad = Some((line, reason.clone()));
            }
        }
    }
    Ok(())
}

/// The place of an item that is wrong, from 1, and the reason.
fn of_item(error: &FitError) -> Option<(usize, String)> {
    match error {
        FitError::Item { item, error } => Some((*item, error.to_string())),
        FitError::Id { item, reason } => Some((*item, reason.clone())),
        _ => None,
    }
}

/// Reads a catalogue, and ratings if there are any, fits a transform, and writes it with the vectors.
pub fn items(args: &FeaturesArgs, path: &Path, dim: usize) -> Result<ExitCode> {
    let start = Instant::now();
    if args.catalogue.separator.as_deref() == Some("") {
        bail!("the separator is empty; give the text between two tags");
    }
    let made = prepare(&args.out, &FILES)?;
    let done = make(args, path, dim, start);
    if done.is_err() && made {
        // Nothing is in it; a folder that cannot be removed does no harm.
        let _ = std::fs::remove_dir(&args.out);
    }
    done
}

fn make(args: &FeaturesArgs, path: &Path, dim: usize, start: Instant) -> Result<ExitCode> {
    let reading = args.catalogue.reading(args.data.skip_bad_lines);
    let mut read = read_watched(path, &reading, args.quiet)?;
    let had_vectors = take_data(&mut read.items);
    let options = args.catalogue.options(dim);
    if args.data.skip_bad_lines {
        skip_bad_items(&mut read, &options)?;
    }
    warn_about(&read, path);
    let count = |number: usize| thousands(number as f64);
    print_line(&format!(
        "Read {}: {} items",
        path.display(),
        count(read.items.len())
    ));
    let taken = match &args.ratings {
        None => None,
        Some(ratings) => {
            let read_ratings = args.data.options(args.format.0)?;
            let all = read_file(ratings, &read_ratings, args.quiet)?.interactions;
            let id = sclub_features::id_column(&read.items, &options)?;
            Some(matched(&all, &read.items, id.as_deref(), ratings)?)
        }
    };
    let searching = Searching::new(args.quiet);
    let fitted = fit_watched(&read.items, &options, taken.as_ref(), &mut |search| {
        searching.passed(search);
    });
    drop(searching);
    let fitted = fitted.map_err(|error| located(error, path, &read))?;
    for hint in &fitted.report.hints {
        let place = |at: usize| format!("{}:{}", path.display(), read.lines[at]);
        eprintln!("sclub: warning: {}", hint.tell(&place));
    }
    print_line(&report(&fitted));
    let is_available = |left: &LeftOut| left.column == AVAILABLE;
    if fitted.report.ignored.iter().any(is_available)
        && !args.catalogue.ignore.iter().any(|name| name == AVAILABLE)
    {
        print_line(
            "available is left out: it says whether an item can be shown, and is never a feature",
        );
    }
    if had_vectors {
        print_line("features is left out: these are the vectors that the items have");
    }
    let bytes = fitted.transform.encode();
    let id = fitted.transform.id_column();
    let names = read.items.iter().zip(1..).map(|(item, place)| {
        let id = id
            .and_then(|id| item.get(id))
            .and_then(sclub_features::id_text);
        id.unwrap_or_else(|| place.to_string())
    });
    let contents = [
        bytes.clone(),
        write::npy(&fitted.vectors)?,
        write::csv("item", names, &fitted.vectors)?,
    ];
    for (name, bytes) in FILES.iter().zip(contents) {
        save(&args.out.join(name), &bytes)?;
    }
    let [transform, npy, csv] = FILES.map(|name| args.out.join(name).display().to_string());
    print_line(&format!(
        "{:.1} s in all. Written:\n  \
         {transform}  the fitted transform, {:.0} kB: sclub serve --features {transform}\n  \
         {npy}  {} x {dim} float64, a row for each item\n  \
         {csv}  the same with the items' ids in front",
        start.elapsed().as_secs_f64(),
        (bytes.len() as f64 / 1000.0).ceil(),
        read.items.len(),
    ));
    Ok(ExitCode::SUCCESS)
}

/// Makes a catalogue of items as a server lists them: the fields in `data` become columns, and vectors are left out. Returns true if
/// there were vectors.
fn take_data(items: &mut [RawItem]) -> bool {
    let mut had_vectors = false;
    for item in items {
        if let Some(Value::Array(list)) = item.get("features")
            && !list.is_empty()
            && list.iter().all(Value::is_number)
        {
            item.remove("features");
            had_vectors = true;
        }
        if !item.get("data").is_some_and(Value::is_object) {
            continue;
        }
        if let Some(Value::Object(data)) = item.remove("data") {
            for (name, value) in data {
                // The fields of the item itself come first, as in the service.
                let own = item.entry(name).or_insert(Value::Null);
                if own.is_null() {
                    *own = value;
                }
            }
        }
    }
    had_vectors
}

/// An error of an item with its line in the file, and what can be done about it.
fn located(error: FitError, path: &Path, read: &ReadItems) -> anyhow::Error {
    let Some((item, reason)) = of_item(&error) else {
        return error.into();
    };
    let is_same_id = matches!(error, FitError::Id { .. }) && reason.contains("is that of item");
    let then = match is_same_id {
        true => {
            "; --skip-bad-lines skips such lines, and --gather with --id-column makes one item of them"
        }
        false => "; --skip-bad-lines skips such lines",
    };
    match item.checked_sub(1).and_then(|at| read.lines.get(at)) {
        Some(line) => anyhow::anyhow!("{}:{line}: {reason}{then}", path.display()),
        None => error.into(),
    }
}

/// The interactions of users with items of the catalogue.
fn matched(
    all: &Interactions,
    items: &[RawItem],
    id: Option<&str>,
    ratings: &Path,
) -> Result<Sparse> {
    let Some(id) = id else {
        bail!("--ratings needs the ids of the items; name their column with --id-column");
    };
    let ids = items
        .iter()
        .map(|item| item.get(id).and_then(sclub_features::id_text));
    let places: HashMap<String, u32> = ids
        .zip(0..)
        .filter_map(|(id, place)| Some((id?, place)))
        .collect();
    let places: Vec<Option<u32>> = (0..all.items())
        .map(|item| places.get(&all.item_name(item).to_string()).copied())
        .collect();
    let unknown = places.iter().filter(|place| place.is_none()).count();
    if unknown == all.items() {
        bail!(
            "none of the {} items in {} is in the catalogue; the first one is '{}'",
            all.items(),
            ratings.display(),
            all.item_name(0)
        );
    }
    if unknown > 0 {
        eprintln!(
            "sclub: warning: {} of {} items in {} are not in the catalogue, and were left out",
            thousands(unknown as f64),
            thousands(all.items() as f64),
            ratings.display()
        );
    }
    let rows: Vec<Vec<(u32, f64)>> = (0..all.users())
        .map(|user| {
            let taken = all.of_user(user).iter();
            let values = all.values_of_user(user);
            let of = |at: usize| values.map_or(1.0, |values| values[at]);
            let mut row: Vec<(u32, f64)> = taken
                .enumerate()
                .filter_map(|(at, &item)| Some((places[item as usize]?, of(at))))
                .collect();
            row.sort_unstable_by_key(|entry| entry.0);
            row
        })
        .collect();
    Ok(Sparse::with_values(items.len(), &rows))
}

/// The report of a fit: the kind of each column, and the share that it explains.
fn report(fitted: &Fitted) -> String {
    let report = &fitted.report;
    let percent = |share: Option<f64>| match share {
        Some(share) => format!("{:.1}%", 100.0 * share),
        None => "-".to_owned(),
    };
    let name = |part: &Part| part.column.chars().count();
    let width = report.parts.iter().map(name).max().unwrap_or(0).max(6);
    let explains = match report.taken {
        Some(_) => "predicts alone",
        None => "explained",
    };
    let mut lines = vec![format!(
        "{:width$}  kind    entries  filled  {explains}",
        "column"
    )];
    for part in &report.parts {
        lines.push(format!(
            "{:width$}  {:6}  {:>7}  {:>6}  {:>9}",
            part.column,
            part.kind,
            part.width,
            percent(Some(part.filled)),
            percent(part.explained),
        ));
    }
    if !report.ignored.is_empty() {
        let one = |left: &LeftOut| match left.column == AVAILABLE {
            // Its reason has a line of its own.
            true => left.column.clone(),
            false => format!("{} ({})", left.column, left.reason),
        };
        let all: Vec<String> = report.ignored.iter().map(one).collect();
        lines.push(format!("Left out: {}", all.join(", ")));
    }
    if let Some(explained) = report.explained {
        let share = percent(Some(explained));
        lines.push(format!(
            "The vectors explain {share} of the squared mass of all columns"
        ));
    }
    if let Some(taken) = &report.taken {
        lines.push(format!(
            "Who took what: {} users and {} interactions; {} items were taken by {MIN_TAKERS} users or more. Their vectors \
             explain {} of the squared mass",
            thousands(taken.users as f64),
            thousands(taken.interactions as f64),
            thousands(taken.known as f64),
            percent(Some(taken.explained)),
        ));
        lines.push(format!(
            "Vectors of other items are predicted from their columns: {} of the variance of held-out items",
            percent(taken.predicted)
        ));
    }
    let size = fitted.transform.dim() - 1;
    if report.directions < size {
        eprintln!(
            "sclub: warning: the data have {} independent directions, not {size}; the other features are 0",
            report.directions
        );
    }
    lines.join("\n")
}
