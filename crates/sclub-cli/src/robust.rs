//! `sclub robust`: many settings in one table.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Parser;
use sclub_lab::paper::{Data, Progress as Done};
use sclub_lab::robust::{Measure, Pass, Plan, Table};
use sclub_lab::run::threads;
use serde_json::json;

use crate::args::whole;
use crate::files::{prepare_file, prepare_folder, print_line, save};
use crate::paper::command_line;
use crate::progress::Progress;
use crate::reading::{DataArgs, read_file};
use crate::run::{self, INTERRUPTED, stop_on_ctrl_c};
use crate::stored::{StoredArgs, open_cells};
use crate::table::numbers;

/// Default rounds and seeds, and those of `--quick`.
const ROUNDS: u64 = 1 << 18;
const SEEDS: u64 = 3;
const QUICK_ROUNDS: u64 = 1 << 13;
const QUICK_SEEDS: u64 = 2;

/// The flags of `sclub robust`.
#[derive(Debug, Parser)]
#[command(after_long_help = EXAMPLES, args_override_self = true)]
pub struct RobustArgs {
    /// The folder to write to; it is made if it is missing; results in it are not run again
    #[arg(
        long,
        value_name = "FOLDER",
        default_value = "robust",
        help_heading = "Output"
    )]
    pub out: PathBuf,

    /// A minute's version: 2^13 rounds, 2 seeds, at most 2^14 held-out choices a split and fewer
    /// constants to tune
    #[arg(long, help_heading = "Run")]
    pub quick: bool,

    /// Ratings in any format that `sclub features` reads; each file adds a row of held-out choices.
    /// Can be given several times
    #[arg(long, value_name = "FILE", help_heading = "Data")]
    pub data: Vec<PathBuf>,

    #[command(flatten)]
    pub files: DataArgs,

    /// Only settings whose names contain this, such as 'm = ' or 'spread'
    #[arg(long, value_name = "TEXT", help_heading = "Run")]
    pub only: Option<String>,

    /// Rounds of every setting but held-out choices and catalogues, which have at most 12000; 2^20-2 is understood
    /// [default: 2^18]
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true, help_heading = "Run")]
    pub rounds: Option<u64>,

    /// Number of worlds to repeat everything in [default: 3]
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true, help_heading = "Run")]
    pub seeds: Option<u64>,

    #[command(flatten)]
    pub stored: StoredArgs,
}

const EXAMPLES: &str = "\
Examples:
  sclub robust --quick
      all settings but held-out choices, in about a minute
  sclub robust --data ml-1m/ratings.dat --data yelp.txt
      all of them; about twenty minutes on two cores
  sclub robust --only 'spread' --seeds 10 --first-seed 101
      some of them, with other seeds

Ctrl-C stops in order. The same command again goes on: a result that is in FOLDER/cells.jsonl is not
run again. The table is in FOLDER/robust.md, with all its digits in FOLDER/robust.json.
";

/// Runs the missing settings, prints the table and writes it.
pub fn robust(args: &RobustArgs) -> Result<ExitCode> {
    let start = Instant::now();
    check(args)?;
    let plan = plan(args)?;
    if plan.settings().is_empty() {
        bail!(
            "no setting has '{}' in its name",
            args.only.as_deref().unwrap_or_default()
        );
    }
    prepare_folder(&args.out)?;
    for name in ["robust.md", "robust.json", "cells.jsonl"] {
        prepare_file(&args.out.join(name))?;
    }
    let cells = open_cells(&args.out, args.stored.fresh)?;
    let cancelled = Arc::new(AtomicBool::new(false));
    stop_on_ctrl_c(&cancelled)?;
    let mut done = Done::default();
    for pass in Pass::ALL {
        let rounds = plan.rounds_to_play(pass, &cells)?;
        let progress = Progress::new(rounds, args.stored.quiet, Arc::clone(&cancelled));
        let passed = plan.run(pass, &cells, &progress);
        progress.finish();
        let passed = passed?;
        done.new += passed.new;
        done.reused += passed.reused;
        done.missing += passed.missing;
        if done.missing > 0 {
            break;
        }
    }
    let table = plan.table(&cells)?;
    if table.rows.is_empty() {
        eprintln!("sclub: stopped before the first setting was complete");
        return Ok(ExitCode::from(INTERRUPTED));
    }
    print_line(&shown(&table));
    write(args, &table, done.missing == 0)?;
    print_line(&format!(
        "{:.0} s; {} results run, {} reused from earlier runs. Written: {}, {}",
        start.elapsed().as_secs_f64(),
        done.new,
        done.reused,
        args.out.join("robust.md").display(),
        args.out.join("robust.json").display(),
    ));
    if done.missing == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!(
        "sclub: stopped; {} results are missing. Run the same command again to continue",
        done.missing
    );
    Ok(ExitCode::from(INTERRUPTED))
}

/// Validates the arguments before a file is read, which may take long.
fn check(args: &RobustArgs) -> Result<()> {
    if args.rounds == Some(0) {
        bail!("rounds is 0; there must be at least one");
    }
    if args.seeds == Some(0) {
        bail!("seeds is 0; there must be at least one");
    }
    for path in &args.data {
        fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
    }
    Ok(())
}

fn plan(args: &RobustArgs) -> Result<Plan> {
    let (rounds, seeds) = if args.quick {
        (QUICK_ROUNDS, QUICK_SEEDS)
    } else {
        (ROUNDS, SEEDS)
    };
    let seeds = run::seeds(
        args.stored.first_seed.unwrap_or(1),
        args.seeds.unwrap_or(seeds),
    )?;
    let threads = threads(args.stored.threads)?;
    let options = args.files.options(None)?;
    let mut data: Vec<(String, Data)> = Vec::new();
    for path in &args.data {
        let file = path.file_name().unwrap_or(path.as_os_str());
        let name = file.to_string_lossy().into_owned();
        if data.iter().any(|(other, _)| *other == name) {
            bail!("two files of data are called {name}");
        }
        let read = read_file(path, &options, args.stored.quiet)?;
        data.push((name, Data::new(read.interactions)));
    }
    Ok(Plan {
        rounds: args.rounds.unwrap_or(rounds),
        seeds,
        threads,
        quick: args.quick,
        only: args.only.clone(),
        data,
    })
}

/// The tables for a terminal.
fn shown(table: &Table) -> String {
    let mut text = String::new();
    for measure in Measure::ALL {
        let Some((head, lines)) = table.text(measure) else {
            continue;
        };
        text.push_str(&format!("{}\n", numbers(head, lines)));
    }
    text.push_str(&table.reading().replace('`', ""));
    text
}

fn write(args: &RobustArgs, table: &Table, complete: bool) -> Result<()> {
    let command = command_line();
    let document = json!({
        "command": command,
        "version": env!("CARGO_PKG_VERSION"),
        "complete": complete,
        "table": table,
    });
    let text = serde_json::to_string_pretty(&document).context("cannot write JSON")?;
    save(&args.out.join("robust.json"), text.as_bytes())?;
    let text = format!("`{command}`\n\n{}", table.markdown());
    save(&args.out.join("robust.md"), text.as_bytes())
}
