//! `sclub import` and `sclub reteach`: a new folder learns what is already known.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;
use sclub_features::{AVAILABLE, RawItem, Transform, id_text};
use sclub_lab::data::{ColumnNames, Format, Options, ReadEvents, read_events, read_vectors};
use sclub_lab::summary::thousands;
use sclub_server::engine::{Import, ImportRow, ImportSummary, export_folder, folder_contents};
use sclub_server::env::Env;
use sclub_server::event::DescribedItem;
use sclub_server::raw;
use sclub_server::settings::Settings;
use serde::Deserialize;
use serde_json::Value;

use crate::features::items::{CatalogueArgs, read_catalogue};
use crate::features::{FormatArg, format};
use crate::files::print_line;
use crate::progress::BarOrLines;
use crate::reading::{Reading, with_flags};
use crate::remote::block_on;
use crate::serve::{EffectiveSettings, ServeArgs, TeachSettingArgs, load_transform};

/// The flags of `sclub import`.
#[derive(Debug, clap::Parser)]
#[command(after_long_help = IMPORT_EXAMPLES)]
pub struct ImportArgs {
    /// File of interactions: a user, an item, and if there are such columns a reward and a time. CSV and the like, JSON
    /// lines or Parquet, also compressed with gzip or zstd
    #[arg(long, value_name = "FILE", help_heading = "Interactions")]
    interactions: PathBuf,

    #[command(flatten)]
    columns: EventColumnArgs,

    /// File of the items: their vectors as `sclub features` writes them, or with --features a catalogue with raw columns.
    /// Not needed if the folder has a catalogue already
    #[arg(long, value_name = "FILE", help_heading = "Items")]
    items: Option<PathBuf>,

    #[command(flatten)]
    catalogue: CatalogueArgs,

    #[command(flatten)]
    settings: TeachSettingArgs,

    /// Show no progress
    #[arg(long, short, help_heading = "Output")]
    quiet: bool,
}

/// The columns of interactions.
#[derive(Debug, Args)]
pub struct EventColumnArgs {
    /// Column of the users [default: the one called user or the like; without a header the first]
    #[arg(long, value_name = "NAME", help_heading = "Interactions")]
    user_column: Option<String>,

    /// Column of the items [default: the one called item or the like; without a header the second]
    #[arg(long, value_name = "NAME", help_heading = "Interactions")]
    item_column: Option<String>,

    /// Column of the rewards [default: the one called reward, rating or the like; without a header the third; a file
    /// without one has rewards of 1]
    #[arg(long, value_name = "NAME", help_heading = "Interactions")]
    reward_column: Option<String>,

    /// Column of the times, as dates or numbers since 1970: rows are learned in their order [default: the one called time,
    /// timestamp or the like; without a header the fourth; a file without one is learned in its own order]
    #[arg(long, value_name = "NAME", help_heading = "Interactions")]
    time_column: Option<String>,

    /// Format of the file
    #[arg(long, value_parser = format(), default_value = "auto", help_heading = "Interactions")]
    format: FormatArg,

    /// Count and skip lines that are not interactions, or whose item or reward is refused, instead of stopping at the first
    #[arg(long, help_heading = "Interactions")]
    skip_bad_lines: bool,
}

impl EventColumnArgs {
    fn options(&self) -> Options {
        let format: Option<Format> = self.format.0;
        Options {
            format,
            skip_bad_lines: self.skip_bad_lines,
            columns: ColumnNames {
                user: self.user_column.clone(),
                item: self.item_column.clone(),
                rating: self.reward_column.clone(),
                time: self.time_column.clone(),
            },
            ..Options::default()
        }
    }
}

const IMPORT_EXAMPLES: &str = "\
Examples:
  sclub import --interactions clicks.csv --items features/items.csv --data shop
      clicks.csv has the columns user, item, reward and time; then: sclub serve --data shop
  sclub import --interactions clicks.parquet --items catalogue.csv --features features/transform.json --data shop
      the items have titles, tags and prices, and the transform makes their features; title, tags and available are kept,
      and all other columns as data
  sclub import --interactions ratings.csv --reward-column stars --reward-max 5 --items items.csv --data films

Each row is a round of its own. It is an event in the log like any other, and is exported with `imported: true`.
";

/// The flags of `sclub reteach`.
#[derive(Debug, clap::Parser)]
#[command(after_long_help = RETEACH_EXAMPLES)]
pub struct ReteachArgs {
    /// Folder of a server that is not running, whose history is taught
    #[arg(long, value_name = "DIR", help_heading = "Service")]
    from: PathBuf,

    #[command(flatten)]
    settings: TeachSettingArgs,

    /// Show no progress
    #[arg(long, short, help_heading = "Output")]
    quiet: bool,
}

const RETEACH_EXAMPLES: &str = "\
Examples:
  sclub reteach --from shop --policy linucb-one --data shop-one
      the same catalogue and the same rewards in the same order, learned by another policy

With --features and another transform, the features of all items are made anew from their titles, tags and data, and every
reward is taught with the features that its item has now.
The history is that of the journal, which keeps --journal-days days of service. The number of rewards that it no longer
has is printed.
";

/// The settings of the folder.
fn settings(args: &TeachSettingArgs) -> Result<Settings> {
    let mut settings = EffectiveSettings::new(&ServeArgs::of_teaching(args))?.settings()?;
    load_transform(&mut settings)?;
    Ok(settings)
}

/// Teaches a new folder the interactions of a file.
pub fn import(args: &ImportArgs) -> Result<ExitCode> {
    let settings = settings(&args.settings)?;
    let start = Instant::now();
    // Before the file is read, which may take long.
    let mut import = Import::begin(&Env::real(), &settings.data, &settings)?;
    let done = learn_file(args, &settings, &mut import);
    match done {
        Ok(read) => {
            let skipped = read.bad_lines;
            let summary = finish(import, args.quiet)?;
            report(&summary, &settings.data, start, skipped);
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            import.abandon();
            Err(error)
        }
    }
}

fn learn_file(args: &ImportArgs, settings: &Settings, import: &mut Import) -> Result<ReadEvents> {
    if let Some(path) = &args.items {
        let items = items(path, args, import)?;
        import.upsert(items)?;
    }
    if import
        .state()
        .catalogue()
        .is_none_or(|catalogue| catalogue.is_empty())
    {
        bail!(
            "{} has no catalogue; name the file of the items with --items",
            settings.data.display()
        );
    }
    let progress = Reading::new(args.quiet);
    let read = read_events(
        &args.interactions,
        &args.columns.options(),
        &|done, total| {
            progress.read(done, total);
        },
    );
    drop(progress);
    let mut read = read.map_err(|error| with_flags(error, "--reward-column"))?;
    warn_about_rewards(&read);
    let progress = Learning::new(args.quiet, read.rows.len() as u64);
    let users: Vec<String> = (0..read.users() as u32)
        .map(|user| read.user_name(user).to_string())
        .collect();
    let items: Vec<String> = (0..read.items() as u32)
        .map(|item| read.item_name(item).to_string())
        .collect();
    let file = args.interactions.display();
    for (at, row) in std::mem::take(&mut read.rows).into_iter().enumerate() {
        let learned = import.add(&ImportRow {
            user: &users[row.user as usize],
            item: &items[row.item as usize],
            features: None,
            reward: row.reward,
            at: row.time.map(|time| u64::try_from(time).unwrap_or(0)),
        })?;
        if let Err(reason) = learned {
            if !args.columns.skip_bad_lines {
                bail!("{file}:{}: {reason}", row.line);
            }
            read.bad_lines += 1;
            read.first_bad.get_or_insert((row.line, reason));
        }
        if at % 1024 == 0 {
            progress.learned(at as u64);
        }
    }
    drop(progress);
    if let Some((line, reason)) = &read.first_bad {
        let many = thousands(read.bad_lines as f64);
        eprintln!("sclub: warning: bad lines skipped: {many}, first {file}:{line}: {reason}");
    }
    Ok(read)
}

/// The items of a file, with vectors of its own or by the transform.
fn items(path: &Path, args: &ImportArgs, import: &Import) -> Result<Vec<DescribedItem>> {
    let Some(transform) = &import.state().identity().features else {
        if !args.catalogue.is_empty() {
            bail!("columns of items need a transform; name its file with --features");
        }
        let progress = Reading::new(args.quiet);
        let read = read_vectors(path, &|done, total| progress.read(done, total));
        drop(progress);
        let read = read.context("without --features the items must have vectors")?;
        let rows = (0..read.ids.len()).map(|at| read.vectors.row(at).to_vec());
        let mut items = Vec::with_capacity(read.ids.len());
        for ((id, features), others) in read.ids.into_iter().zip(rows).zip(read.others) {
            let at = || format!("{}: item '{id}'", path.display());
            items.push(with_vector(id.clone(), features, others).with_context(at)?);
        }
        return Ok(items);
    };
    let reading = args.catalogue.reading(args.columns.skip_bad_lines);
    let read = read_catalogue(path, &reading, args.quiet)?;
    let column = args
        .catalogue
        .id_column
        .as_deref()
        .or(transform.id_column());
    let Some(column) = column else {
        bail!("the transform has no column of ids; name it with --id-column");
    };
    let mut items = Vec::with_capacity(read.items.len());
    for (mut raw, line) in read.items.into_iter().zip(&read.lines) {
        let at = || format!("{}:{line}", path.display());
        let has_vector = has_vector(transform, &raw);
        let id = raw.get(column).and_then(id_text);
        // The lines of an export have the field `id`, whatever the column of ids is called.
        let id = id.or_else(|| raw.get("id").filter(|_| has_vector).and_then(id_text));
        let id = id.with_context(|| format!("{}: there is no id (column '{column}')", at()))?;
        let item = match has_vector {
            true => vector(&mut raw, transform.dim()).and_then(|vector| {
                // A column of ids with another name is data.
                raw.remove("id");
                with_vector(id, vector, raw)
            }),
            false => plain_fields(raw, id).and_then(|raw| Ok(raw::described(transform, raw)?.0)),
        };
        let item = item.with_context(at)?;
        if let Err((_, reason)) = item.description.check() {
            bail!("{}: {reason}", at());
        }
        items.push(item);
    }
    Ok(items)
}

/// Returns true if an item has a vector. A column of tags may be called `features` too.
fn has_vector(transform: &Transform, raw: &RawItem) -> bool {
    let Some(Value::Array(list)) = raw.get("features") else {
        return false;
    };
    let is_column = transform.columns().any(|(name, _)| name == "features");
    !is_column || (!list.is_empty() && list.iter().all(Value::is_number))
}

/// Takes the vector out of the fields of an item.
fn vector(raw: &mut RawItem, dim: usize) -> Result<Vec<f64>> {
    let Some(Value::Array(list)) = raw.remove("features") else {
        bail!("there is no list of features");
    };
    if list.len() != dim {
        bail!(
            "there are {} features; the transform makes {dim}",
            list.len()
        );
    }
    let number = |value: &Value| {
        let number = value.as_f64();
        number.with_context(|| format!("a feature is {value}; it must be a number"))
    };
    list.iter().map(number).collect()
}

/// An item with a vector of its own: it is taken as it is, as `PUT /v1/items` does.
fn with_vector(id: String, features: Vec<f64>, mut others: RawItem) -> Result<DescribedItem> {
    read_availability(&mut others)?;
    let (description, _) = raw::description(None, others)?;
    if let Err((_, reason)) = description.check() {
        bail!("{reason}");
    }
    Ok(DescribedItem {
        id,
        features,
        description,
    })
}

/// The fields of a row as they would be sent to a server: without empty ones, and `available` is true or false.
fn plain_fields(raw: RawItem, id: String) -> Result<RawItem> {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.trim().is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    let mut raw: RawItem = raw
        .into_iter()
        .filter(|(_, value)| !is_empty(value))
        .collect();
    read_availability(&mut raw)?;
    raw.insert("id".to_owned(), Value::from(id));
    Ok(raw)
}

/// Makes true or false of `available`. Null is the default.
fn read_availability(raw: &mut RawItem) -> Result<()> {
    let Some(available) = raw.get_mut(AVAILABLE) else {
        return Ok(());
    };
    let word = match &*available {
        Value::Null => return Ok(()),
        Value::String(word) => word.trim().to_lowercase(),
        other => other.to_string(),
    };
    *available = match word.as_str() {
        "true" | "t" | "yes" | "y" | "1" => Value::Bool(true),
        "false" | "f" | "no" | "n" | "0" => Value::Bool(false),
        _ => bail!("available is '{word}'; write true or false, yes or no, 1 or 0"),
    };
    Ok(())
}

fn warn_about_rewards(read: &ReadEvents) {
    let first = read.rows.first().map_or(0.0, |row| row.reward);
    if !read.has_rewards {
        eprintln!(
            "sclub: warning: the file has no column of rewards; every row counts as a reward of 1. Policies learn from the \
             difference between items that were taken and items that were not: add rows with reward 0 for items that were \
             shown and not taken"
        );
    } else if read.rows.iter().all(|row| row.reward == first) {
        eprintln!(
            "sclub: warning: all rewards are {first}; nothing distinguishes good items from others"
        );
    }
    if !read.has_times {
        eprintln!("sclub: no column of times; rows are learned in the order of the file");
    }
}

/// Teaches a new folder the history of another one.
pub fn reteach(args: &ReteachArgs) -> Result<ExitCode> {
    let mut settings = settings(&args.settings)?;
    let start = Instant::now();
    let env = Env::real();
    let mut old = folder_contents(&env, &args.from)?;
    let of_old = old.identity.features.clone();
    let is_other = match &settings.transform {
        None => {
            settings.transform = of_old.clone();
            false
        }
        Some(new) => of_old.as_ref() != Some(new),
    };
    if !old.identity.context.is_empty() {
        bail!(
            "{} has context features, which cannot be taught to another folder yet",
            args.from.display()
        );
    }
    if let Some(new) = settings.transform.as_deref().filter(|_| is_other) {
        make_anew(&mut old.items, of_old.as_deref(), new)?;
    }
    let mut import = Import::begin(&env, &settings.data, &settings)?;
    let taught = import
        .upsert(old.items)
        .map_err(anyhow::Error::from)
        .and_then(|()| {
            let mut history = History {
                import: &mut import,
                line: Vec::new(),
                taught: 0,
                without_features: 0,
                uses_catalogue: is_other,
                progress: Learning::new(args.quiet, old.rewards),
            };
            export_folder(&env, &args.from, &mut history)?;
            Ok((history.taught, history.without_features))
        });
    let (taught, without_features) = match taught {
        Ok(taught) => taught,
        Err(error) => {
            import.abandon();
            return Err(error);
        }
    };
    let summary = finish(import, args.quiet)?;
    report(&summary, &settings.data, start, 0);
    let gone = old.rewards.saturating_sub(taught + without_features);
    if gone > 0 {
        eprintln!(
            "sclub: warning: {} of {} rewards are no longer in the journal of {} (journal-days), and were not taught",
            thousands(gone as f64),
            thousands(old.rewards as f64),
            args.from.display()
        );
    }
    if without_features > 0 {
        eprintln!(
            "sclub: warning: {} rewards are of items whose features are not known any more, and were not taught",
            thousands(without_features as f64)
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes the features of all items by another transform.
fn make_anew(items: &mut [DescribedItem], old: Option<&Transform>, new: &Transform) -> Result<()> {
    for item in items {
        if !old.is_some_and(|old| raw::is_made_by(old, item)) {
            bail!(
                "item '{}' has a vector that the folder's transform did not make of its fields, so --features cannot make \
                 another one; teach the history from files: sclub import --items catalogue.csv --features FILE --interactions \
                 FILE, or leave out --features",
                item.id
            );
        }
        let made = raw::features(new, &item.id, &item.description);
        item.features = made.with_context(|| format!("item '{}'", item.id))?;
    }
    Ok(())
}

/// Takes an export line by line, and teaches its rewards.
struct History<'a> {
    import: &'a mut Import,
    /// The line so far.
    line: Vec<u8>,
    taught: u64,
    without_features: u64,
    /// True if the features of the history are not those of the new folder, so that an item has those of the catalogue.
    uses_catalogue: bool,
    progress: Learning,
}

/// The parts of a line of an export that are taught.
#[derive(Deserialize)]
struct HistoryLine<'a> {
    #[serde(borrow)]
    user: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    item: std::borrow::Cow<'a, str>,
    features: Option<Vec<f64>>,
    reward: Option<f64>,
    decided: u64,
}

impl History<'_> {
    fn teach(&mut self) -> Result<()> {
        let line: HistoryLine<'_> = serde_json::from_slice(&self.line)?;
        let Some(reward) = line.reward else {
            return Ok(());
        };
        let features = line.features.as_deref();
        let features = features.filter(|_| !self.uses_catalogue);
        let learned = self.import.add(&ImportRow {
            user: &line.user,
            item: &line.item,
            features,
            reward,
            at: Some(line.decided),
        })?;
        match learned {
            Ok(()) => self.taught += 1,
            Err(_) if features.is_none() => self.without_features += 1,
            Err(reason) => bail!("a reward of user '{}': {reason}", line.user),
        }
        self.progress.learned(self.taught);
        Ok(())
    }
}

impl Write for History<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.teach()
                    .map_err(|error| io::Error::other(format!("{error:#}")))?;
                self.line.clear();
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Completes the folder.
fn finish(import: Import, quiet: bool) -> Result<ImportSummary> {
    if !quiet {
        eprintln!("sclub: writing the snapshot and the journal");
    }
    block_on(async { Ok(import.finish().await?) })
}

fn report(summary: &ImportSummary, data: &Path, start: Instant, skipped: u64) {
    let count = |number: u64| thousands(number as f64);
    let seconds = start.elapsed().as_secs_f64();
    let skipped = match skipped {
        0 => String::new(),
        many => format!(", {} bad lines skipped", count(many)),
    };
    print_line(&format!(
        "{}: {} rewards of {} users learned in {seconds:.1} s ({} a second), {} items, {} fits{skipped}\n\
         sclub serve --data {}",
        data.display(),
        count(summary.rows),
        count(summary.users),
        count((summary.rows as f64 / seconds.max(1e-3)) as u64),
        count(summary.items),
        count(summary.fits),
        data.display(),
    ));
}

/// Shows how many rows have been learned.
struct Learning(BarOrLines, u64);

impl Learning {
    fn new(quiet: bool, total: u64) -> Self {
        let template =
            "{bar:32} {percent:>3}%  {human_pos} of {human_len} rewards, {per_sec}, {eta} left";
        Self(BarOrLines::new(quiet, Some(total), template), total)
    }

    fn learned(&self, rows: u64) {
        self.0.bar.set_position(rows);
        let total = self.1;
        self.0.line(|seconds| {
            let rate = thousands(rows as f64 / seconds.max(1e-3));
            let (rows, total) = (thousands(rows as f64), thousands(total as f64));
            format!("{rows} of {total} rewards after {seconds:.0} s, {rate} a second")
        });
    }
}
