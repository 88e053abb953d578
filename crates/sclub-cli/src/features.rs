//! `sclub features`: vectors of users and items, from a file of ratings, a catalogue, or both.

pub mod items;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Parser;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use sclub_lab::data::features::{
    Chosen, Selection, Shortage, check_dim, everything, factorise_watched, item_vectors,
    user_weights,
};
use sclub_lab::data::svd::Svd;
use sclub_lab::data::{Format, Interactions, Read, write};
use sclub_lab::named::Named;
use sclub_lab::summary::thousands;

use crate::args::whole;
use crate::files::{prepare_file, prepare_folder, print_line, save};
use crate::reading::{DataArgs, Searching, read_file};

/// The files that are written, in this order.
const FILES: [&str; 4] = ["users.npy", "items.npy", "users.csv", "items.csv"];

/// Singular values that are printed.
const SHOWN: usize = 20;

/// The flags of `sclub features`.
#[derive(Debug, Parser)]
#[command(after_long_help = EXAMPLES, args_override_self = true)]
pub struct FeaturesArgs {
    /// File of users and the items that they took or rated; it may be compressed with gzip or zstd
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present = "items",
        help_heading = "Data"
    )]
    pub ratings: Option<PathBuf>,

    /// Format of the file
    #[arg(long, value_parser = format(), default_value = "auto", help_heading = "Data")]
    pub format: FormatArg,

    #[command(flatten)]
    pub data: DataArgs,

    /// Features of a user or an item, a constant one included (2 to 512)
    #[arg(long, value_name = "N", default_value = "20", value_parser = whole, allow_negative_numbers = true, help_heading = "Features")]
    pub dim: u64,

    /// Number of users to choose, those with the most interactions
    #[arg(long, value_name = "N", default_value = "1000", value_parser = whole, allow_negative_numbers = true, help_heading = "Features")]
    pub users: u64,

    /// File of a catalogue, with a row or a JSON object for each item: CSV and the like, JSON lines or Parquet. With a
    /// number and --ratings: the number of items to choose, those with the most interactions [default: 1000]
    #[arg(long, value_name = "FILE or N", value_parser = items_arg, allow_negative_numbers = true, help_heading = "Data")]
    pub items: Option<ItemsArg>,

    #[command(flatten)]
    pub catalogue: items::CatalogueArgs,

    /// Take every user and every item instead
    #[arg(long, conflicts_with = "users", help_heading = "Features")]
    pub all: bool,

    /// The folder to write to; it is made if it is missing
    #[arg(
        long,
        value_name = "FOLDER",
        default_value = "features",
        help_heading = "Output"
    )]
    pub out: PathBuf,

    /// Show no progress
    #[arg(long, short, help_heading = "Output")]
    pub quiet: bool,
}

/// A catalogue, or a number of items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ItemsArg {
    /// The file of a catalogue.
    Catalogue(PathBuf),
    /// The number of items to choose from the ratings.
    Count(u64),
}

/// A number counts items; any other text is a file.
fn items_arg(text: &str) -> Result<ItemsArg, String> {
    match whole(text) {
        Ok(count) => Ok(ItemsArg::Count(count)),
        Err(error) if text.parse::<f64>().is_ok() => Err(error),
        Err(_) => Ok(ItemsArg::Catalogue(text.into())),
    }
}

const EXAMPLES: &str = "\
Examples:
  sclub features --items catalogue.csv
      vectors of items from titles, tags, categories and prices, and a transform for new items
  sclub features --items movies.dat --columns id,title,genres --ratings ratings.csv
      the same with who took what: items that few users took get the vectors that their titles and genres predict
  sclub features --items tags.tsv --columns artist,tag --id-column artist --gather
      a file with a row for each tag of an item
  sclub features --ratings ml-20m/ratings.csv
      1000 users and 1000 movies with 20 features each, as in the paper
  sclub features --ratings review.json --out yelp/
      the same from Yelp's reviews
  sclub features --ratings clicks.tsv --all --dim 10
      all users and items in a file of your own: user, item and an optional rating a line
  sclub features --ratings matrix.npy --users 200 --items 500
      a matrix of NumPy with a row for each user and a column for each item
  sclub features --ratings ratings.csv.gz --like-from 4
      a compressed file, of which only ratings of 4 or more count
  sclub features --ratings Books.jsonl.zst --user-column reviewerID --item-column asin
      JSON lines with fields of other names; columns of CSV and Parquet files are named in the same way

An item counts once for a user, whatever the rating, unless --like-from or --rating-values is given. A user's vector, the tastes, is the user's row of
the leading left singular vectors at length 1, with a 1 appended, divided by the root of 2, as in the
paper. An item's is its row of the right ones times the singular values, divided by the length of the
longest row, with a 1 appended, divided by the root of 2. No vector is longer than 1.
";

/// A format of files, or `auto` to detect it.
#[derive(Debug, Clone, Copy)]
pub struct FormatArg(pub Option<Format>);

/// Parses a format; the help lists them.
pub fn format() -> impl TypedValueParser<Value = FormatArg> {
    let auto =
        PossibleValue::new("auto").help("Detect the format from the name and the first line");
    let all = Format::ALL.iter();
    let all = all.map(|&(name, help, _)| PossibleValue::new(name).help(help));
    PossibleValuesParser::new([auto].into_iter().chain(all))
        .map(|name| FormatArg(Format::named(&name).ok()))
}

/// Reads the ratings, decomposes their matrix, writes the features and prints a summary.
pub fn features(args: &FeaturesArgs) -> Result<ExitCode> {
    let small = |name: &str, value: u64| -> Result<usize> {
        usize::try_from(value)
            .with_context(|| format!("{name} is {value}; it must be at most {}", usize::MAX))
    };
    let dim = small("dim", args.dim)?;
    check_dim(dim)?;
    let count = match &args.items {
        Some(ItemsArg::Catalogue(path)) => return items::items(args, path, dim),
        Some(ItemsArg::Count(count)) => Some(*count),
        None => None,
    };
    let Some(ratings) = &args.ratings else {
        bail!(
            "--items is a number; name a file of ratings with --ratings, or a catalogue with --items"
        );
    };
    if !args.catalogue.is_empty() {
        bail!("columns of items need a catalogue; name its file with --items");
    }
    if args.all && count.is_some() {
        bail!("--all takes every item; leave out --items, or --all");
    }
    let selection = Selection {
        users: small("users", args.users)?,
        items: small("items", count.unwrap_or(1000))?,
    };
    check(args, &selection, dim)?;

    let start = Instant::now();
    let made = prepare(&args.out, &FILES)?;
    let done = make(args, ratings, selection, dim, start);
    if done.is_err() && made {
        // Nothing is in it; a folder that cannot be removed does no harm.
        let _ = fs::remove_dir(&args.out);
    }
    done
}

fn make(
    args: &FeaturesArgs,
    ratings: &Path,
    selection: Selection,
    dim: usize,
    start: Instant,
) -> Result<ExitCode> {
    let options = args.data.options(args.format.0)?;
    let read = read_file(ratings, &options, args.quiet)?;
    let reading = start.elapsed().as_secs_f64();
    print_line(&what_was_read(ratings, &read, reading));

    let chosen = if args.all {
        everything(&read.interactions)
    } else {
        selection.choose(&read.interactions)
    };
    chosen.shortages.iter().for_each(warn);
    let searching = Searching::new(args.quiet);
    let found = factorise_watched(&chosen.matrix, dim, &mut |search| searching.passed(search));
    drop(searching);
    let (svd, shortage) = found?;
    shortage.iter().for_each(warn);
    print_line(&what_was_found(&chosen, &svd));
    write_all(&args.out, &read.interactions, &chosen, &svd)?;
    print_line(&what_was_written(
        args,
        &chosen,
        dim,
        start.elapsed().as_secs_f64(),
    ));
    Ok(ExitCode::SUCCESS)
}

/// Validates the arguments before a file is read, which may take long.
fn check(args: &FeaturesArgs, selection: &Selection, dim: usize) -> Result<()> {
    if !args.all {
        for (name, value) in [("users", selection.users), ("items", selection.items)] {
            if value < dim {
                bail!("{name} is {value}; {dim} features need at least {dim}");
            }
        }
    }
    Ok(())
}

/// Makes the folder and finds out whether it can be written to. Returns whether it was not there.
fn prepare(out: &Path, files: &[&str]) -> Result<bool> {
    let is_new = prepare_folder(out)?;
    for name in files {
        prepare_file(&out.join(name))?;
    }
    Ok(is_new)
}

fn warn(shortage: &Shortage) {
    eprintln!("sclub: warning: {shortage}");
}

fn count(number: usize) -> String {
    thousands(number as f64)
}

fn what_was_read(path: &Path, read: &Read, seconds: f64) -> String {
    let Read {
        interactions,
        rows,
        format,
        ..
    } = read;
    let text = format!(
        "Read {} ({format}) in {seconds:.1} s: {} interactions, {} different, of {} users and {} items",
        path.display(),
        count(*rows as usize),
        count(interactions.len()),
        count(interactions.users()),
        count(interactions.items()),
    );
    text
}

fn what_was_found(chosen: &Chosen, svd: &Svd) -> String {
    let (users, items) = (chosen.users.len(), chosen.items.len());
    let entries = chosen.matrix.entries();
    let leading = svd.values.iter().take(SHOWN);
    let mut values: Vec<String> = leading.map(|value| format!("{value:.2}")).collect();
    if svd.values.len() > SHOWN {
        values.push(format!("and {} smaller ones", svd.values.len() - SHOWN));
    }
    let mass: f64 = svd.values.iter().map(|value| value * value).sum();
    format!(
        "Taken: {} users and {} items with {} interactions, {:.2}% of all that could be\n\
         Singular values: {}\n\
         They explain {:.1}% of the squared mass",
        count(users),
        count(items),
        count(entries),
        100.0 * entries as f64 / (users as f64 * items as f64),
        values.join(" "),
        100.0 * mass / chosen.matrix.squared_mass().max(1.0),
    )
}

fn what_was_written(args: &FeaturesArgs, chosen: &Chosen, dim: usize, seconds: f64) -> String {
    let paths = FILES.map(|name| args.out.join(name).display().to_string());
    let [users_npy, items_npy, users_csv, items_csv] = paths;
    let (users, items) = (chosen.users.len(), chosen.items.len());
    format!(
        "{seconds:.1} s in all. Written:\n  \
         {users_npy}  {users} x {dim} float64, a row for each user\n  \
         {items_npy}  {items} x {dim} float64, a row for each item\n  \
         {users_csv}  the same with the users' names in front\n  \
         {items_csv}  the same with the items' names in front"
    )
}

fn write_all(out: &Path, all: &Interactions, chosen: &Chosen, svd: &Svd) -> Result<()> {
    let (users, items) = (user_weights(svd), item_vectors(svd));
    let user_names = chosen
        .users
        .iter()
        .map(|&user| all.user_name(user as usize));
    let item_names = chosen
        .items
        .iter()
        .map(|&item| all.item_name(item as usize));
    let contents = [
        write::npy(&users)?,
        write::npy(&items)?,
        write::csv("user", user_names, &users)?,
        write::csv("item", item_names, &items)?,
    ];
    for (name, bytes) in FILES.iter().zip(contents) {
        save(&out.join(name), &bytes)?;
    }
    Ok(())
}
