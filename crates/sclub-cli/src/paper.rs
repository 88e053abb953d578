//! `sclub paper`: the paper's evaluation, from runs to a page.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::{Context, Error, Result, bail};
use clap::Parser;
use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{CellAlignment, Table};
use sclub_lab::data::features::FeatureError;
use sclub_lab::data::{Options, Read};
use sclub_lab::paper::{self, Part, Plan, QUICK_ROUNDS, QUICK_SEEDS, ROUNDS, SEEDS, Source};
use sclub_lab::policies::Name;
use sclub_lab::report::model::{Origin, Panel, Report};
use sclub_lab::report::{machine, render};
use sclub_lab::run::threads;
use sclub_lab::summary::{percent, thousands};

use crate::args::whole;
use crate::choices::one_of;
use crate::files::{prepare_file, prepare_folder, print_line, save};
use crate::progress::Progress;
use crate::reading::read_file;
use crate::run::{self, INTERRUPTED, stop_on_ctrl_c};
use crate::stored::{StoredArgs, open_cells};

/// The flags of `sclub paper`.
#[derive(Debug, Parser)]
#[command(after_long_help = EXAMPLES, args_override_self = true)]
pub struct PaperArgs {
    /// The folder to write to; it is made if it is missing; results in it are not run again
    #[arg(
        long,
        value_name = "FOLDER",
        default_value = "report",
        help_heading = "Output"
    )]
    pub out: PathBuf,

    /// A minute's version: 2^18-2 rounds, 2 seeds, at most 2^14 held-out choices a split and fewer
    /// constants to tune. Its figures are not the paper's
    #[arg(long, help_heading = "Run")]
    pub quick: bool,

    /// MovieLens ratings: ratings.csv (20M, 25M, latest) or ratings.dat (1M, 10M)
    #[arg(long, value_name = "FILE", help_heading = "Data")]
    pub movielens: Option<PathBuf>,

    /// Yelp reviews: review.json, one object a line
    #[arg(long, value_name = "FILE", help_heading = "Data")]
    pub yelp: Option<PathBuf>,

    /// Count and skip lines that cannot be parsed instead of stopping at the first
    #[arg(long, help_heading = "Data")]
    pub skip_bad_lines: bool,

    /// Parts of the report, separated by commas
    #[arg(
        long,
        value_parser = one_of::<Part>(),
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "panels,audit,theorems,choices",
        help_heading = "Run"
    )]
    pub parts: Vec<Part>,

    /// More policies for the panels and the held-out choices, separated by commas, each with its default constants
    /// [always there: club, linucb-ind, linucb-one, sclub, sclub-soft]
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        help_heading = "Run"
    )]
    pub policies: Vec<Name>,

    /// Rounds of the panels, the audit and the theorems; 2^20-2 is understood [default: 2^20-2, as in the paper]
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true, help_heading = "Run")]
    pub rounds: Option<u64>,

    /// Number of worlds to repeat everything in [default: 10, as in the paper]
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true, help_heading = "Run")]
    pub seeds: Option<u64>,

    #[command(flatten)]
    pub stored: StoredArgs,
}

const EXAMPLES: &str = "\
Examples:
  sclub paper --quick
      everything but the real data, in about a minute; then open report/index.html
  sclub paper --movielens ml-20m/ratings.csv --yelp yelp_academic_dataset_review.json
      all seven panels and the rest
  sclub paper --parts panels
      Figure 1 with Tables 1 and 2 alone
  sclub paper --parts panels --policies dyclu,rclumb
      the same with the curves of two more policies

Ctrl-C stops in order. The same command again goes on: a result that is in FOLDER/cells.jsonl is not
run again. With --movielens or --yelp any file that `sclub features` reads will do.
";

/// Runs the missing parts, prints the tables and writes the report.
pub fn paper(args: &PaperArgs) -> Result<ExitCode> {
    let start = Instant::now();
    check(args)?;
    let made = prepare(&args.out)?;
    let plan = match plan(args) {
        Ok(plan) => plan,
        Err(error) => {
            // Folders that were made for nothing; one with something in it stays.
            if made {
                let _ = fs::remove_dir(args.out.join("figures"));
                let _ = fs::remove_dir(&args.out);
            }
            return Err(error);
        }
    };
    let cells = open_cells(&args.out, args.stored.fresh)?;
    let cancelled = Arc::new(AtomicBool::new(false));
    stop_on_ctrl_c(&cancelled)?;

    let progress = Progress::new(
        plan.rounds_to_play(&cells)?,
        args.stored.quiet,
        Arc::clone(&cancelled),
    );
    let mut done = plan.run(&cells, &progress);
    progress.finish();
    if let Ok(first) = &mut done
        && first.missing == 0
    {
        let rounds = plan.later_rounds_to_play(&cells)?;
        let progress = Progress::new(rounds, args.stored.quiet, Arc::clone(&cancelled));
        let second = plan.run_later(&cells, &progress);
        progress.finish();
        let second = second?;
        first.new += second.new;
        first.reused += second.reused;
        first.missing += second.missing;
    }
    let done = done?;
    let complete = done.missing == 0;
    let origin = Origin {
        command: command_line(),
        quick: args.quick,
        rounds: plan.rounds,
        seeds: plan.seeds.clone(),
        machine: machine::facts(plan.threads),
        versions: vec![
            ("sclub".into(), env!("CARGO_PKG_VERSION").into()),
            ("compiler".into(), env!("SCLUB_COMPILER").into()),
        ],
        seconds: start.elapsed().as_secs_f64(),
        cells: (done.new, done.reused),
        complete,
        to_come: Vec::new(),
    };
    let report = plan.report(&cells, origin)?;

    if done.new + done.reused == 0 {
        eprintln!("sclub: stopped before the first result");
        return Ok(ExitCode::from(INTERRUPTED));
    }
    write(&args.out, &report)?;
    let summary = summary(&report);
    if !summary.is_empty() {
        print_line(&summary);
    }
    print_line(&format!(
        "{:.0} s; {} results run, {} reused from earlier runs. Open {}",
        start.elapsed().as_secs_f64(),
        done.new,
        done.reused,
        args.out.join("index.html").display(),
    ));
    if complete {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!(
        "sclub: stopped; {} results are missing. Run the same command again to continue",
        done.missing
    );
    Ok(ExitCode::from(INTERRUPTED))
}

/// The rounds and the number of seeds.
fn sizes(args: &PaperArgs) -> (u64, u64) {
    let (rounds, seeds) = if args.quick {
        (QUICK_ROUNDS, QUICK_SEEDS)
    } else {
        (ROUNDS, SEEDS)
    };
    (args.rounds.unwrap_or(rounds), args.seeds.unwrap_or(seeds))
}

/// Validates the arguments before a file is read, which may take long.
fn check(args: &PaperArgs) -> Result<()> {
    let (rounds, seeds) = sizes(args);
    let files = [&args.movielens, &args.yelp];
    let has_data = files.iter().any(|path| path.is_some());
    paper::check(rounds, seeds, &args.parts, &args.policies, has_data).map_err(Error::msg)?;
    for path in files.into_iter().flatten() {
        fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
    }
    threads(args.stored.threads)?;
    Ok(())
}

fn plan(args: &PaperArgs) -> Result<Plan> {
    let (rounds, seeds) = sizes(args);
    let source = |path: &Option<PathBuf>, name, make| {
        let source = path.as_ref().map(|path| source(args, path, name, make));
        source.transpose()
    };
    Ok(Plan {
        rounds,
        seeds: run::seeds(args.stored.first_seed.unwrap_or(1), seeds)?,
        threads: threads(args.stored.threads)?,
        quick: args.quick,
        parts: args.parts.clone(),
        policies: args.policies.clone(),
        movielens: source(&args.movielens, "MovieLens", Source::movielens)?,
        yelp: source(&args.yelp, "Yelp", Source::yelp)?,
    })
}

fn source(
    args: &PaperArgs,
    path: &Path,
    name: &str,
    make: fn(Read, &str) -> Result<Source, FeatureError>,
) -> Result<Source> {
    let options = Options {
        format: None,
        skip_bad_lines: args.skip_bad_lines,
        ..Options::default()
    };
    let read = read_file(path, &options, args.stored.quiet)?;
    let file = path.file_name().unwrap_or(path.as_os_str());
    make(read, &file.to_string_lossy())
        .with_context(|| format!("{} cannot be used as {name}", path.display()))
}

/// Makes the folder and finds out, before the run and not after it, whether it can be written to.
/// Returns whether the folder was not there.
fn prepare(out: &Path) -> Result<bool> {
    if out.join("index.html").exists() && !out.join("cells.jsonl").exists() {
        bail!(
            "{} has an index.html that sclub paper did not write; choose another folder",
            out.display()
        );
    }
    let is_new = prepare_folder(out)?;
    prepare_folder(&out.join("figures"))?;
    for name in ["index.html", "results.json", "cells.jsonl"] {
        prepare_file(&out.join(name))?;
    }
    Ok(is_new)
}

fn write(out: &Path, report: &Report) -> Result<()> {
    for (name, content) in render(report)?.files() {
        save(&out.join(name), &content)?;
    }
    Ok(())
}

/// The command as it was typed, so that it can be typed again.
pub fn command_line() -> String {
    let mut words = vec!["sclub".to_string()];
    words.extend(std::env::args().skip(1).map(|word| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:^+".contains(c);
        if !word.is_empty() && word.chars().all(plain) {
            word
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    }));
    words.join(" ")
}

/// Table 1 for a terminal: measured, and how far from published if that can be compared.
fn summary(report: &Report) -> String {
    let shown: Vec<&Panel> = report
        .panels
        .iter()
        .filter(|panel| !panel.cells.is_empty())
        .collect();
    let Some(first) = shown.first() else {
        return readings(report).join("\n");
    };
    let comparable = report.origin.rounds == ROUNDS;
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY);
    let mut header = vec!["regret".to_string()];
    header.extend(shown.iter().map(|panel| format!("({})", panel.id)));
    table.set_header(header);
    for cell in &first.cells {
        let mut row = vec![cell.policy.to_string()];
        for panel in &shown {
            let found = panel.cells.iter().find(|other| other.policy == cell.policy);
            row.push(found.map_or_else(String::new, |cell| {
                let mean = thousands(cell.regret.mean);
                if comparable && cell.is_published() {
                    format!("{mean} {}", percent(cell.off_published()))
                } else {
                    mean
                }
            }));
        }
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let asked = report.origin.seeds.len();
    let counts = || {
        shown
            .iter()
            .flat_map(|panel| &panel.cells)
            .map(|cell| cell.seeds)
    };
    let (fewest, most) = (counts().min().unwrap_or(0), counts().max().unwrap_or(0));
    let seeds = match (fewest, most) {
        _ if fewest == asked && asked == 1 => "1 seed".to_string(),
        _ if fewest == asked => format!("{asked} seeds"),
        _ if fewest == most => format!("only {most} of {asked} seeds"),
        _ => format!("only {fewest} to {most} of {asked} seeds"),
    };
    let rounds = thousands(report.origin.rounds as f64);
    let mut text = format!("{rounds} rounds, {seeds}\n{table}");
    text.push_str(if comparable {
        "\nPercent: from the paper's Table 1."
    } else {
        "\nNot to be compared with the paper, whose figures are of 1,048,574 rounds."
    });
    for panel in &shown {
        if let (Some(note), true) = (&panel.note, panel.id.ends_with(['a', 'c'])) {
            text.push_str(&format!("\n({}) {note}", panel.id));
        }
    }
    for reading in readings(report) {
        text.push('\n');
        text.push_str(&reading);
    }
    text
}

/// The other parts' results in a few words; the page has the numbers.
fn readings(report: &Report) -> Vec<String> {
    let mut all = Vec::new();
    if let Some(audit) = &report.audit {
        all.extend(audit.reading.iter().map(|text| format!("Audit: {text}")));
    }
    if let Some(theorem) = &report.theorem {
        all.extend(
            theorem
                .reading
                .first()
                .map(|text| format!("Theorem 1: {text}")),
        );
    }
    for data in &report.held_out {
        for table in &data.tables {
            let rates: Vec<String> = table
                .rows
                .iter()
                .map(|row| format!("{} {:.3}", row.label, row.rate.mean))
                .collect();
            all.push(format!(
                "{}, {}: {}",
                data.name,
                table.title,
                rates.join(", ")
            ));
        }
    }
    all
}
