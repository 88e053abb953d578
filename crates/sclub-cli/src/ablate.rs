//! `sclub ablate`: what each part of `sclub-soft` is worth, in one table.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Parser;
use sclub_lab::ablation::{Plan, Table};
use sclub_lab::run::threads;
use serde_json::json;

use crate::args::whole;
use crate::files::{prepare_file, prepare_folder, print_line, save};
use crate::paper::command_line;
use crate::progress::Progress;
use crate::run::{INTERRUPTED, seeds, stop_on_ctrl_c};
use crate::table::numbers;

/// The default number of seeds, and that of `--quick`.
const SEEDS: u64 = 3;
const QUICK_SEEDS: u64 = 1;

/// The divisor of the rounds with `--quick`.
const QUICK_DIVISOR: u64 = 10;

/// The flags of `sclub ablate`.
#[derive(Debug, Parser)]
#[command(after_long_help = EXAMPLES, args_override_self = true)]
pub struct AblateArgs {
    /// A short version: a tenth of the rounds, 1 seed
    #[arg(long, help_heading = "Run")]
    pub quick: bool,

    /// Only the variants, or only the worlds, whose names contain this, such as 'bonus' or 'catalogue'. The unchanged
    /// policy is always run
    #[arg(long, value_name = "TEXT", help_heading = "Run")]
    pub only: Option<String>,

    /// Number of worlds to repeat everything in [default: 3; with --quick 1]
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true, help_heading = "Run")]
    pub seeds: Option<u64>,

    /// Seed of the first world; the others count up from it
    #[arg(long, value_name = "N", default_value = "201", value_parser = whole, allow_negative_numbers = true, help_heading = "Run")]
    pub first_seed: u64,

    /// Threads to use; the results are the same with any number [default: all cores]
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true, help_heading = "Run")]
    pub threads: Option<u64>,

    /// File for the results with all their digits; the table goes beside it as .md, and missing folders are made
    #[arg(
        long,
        value_name = "FILE",
        default_value = "results/ablation.json",
        help_heading = "Output"
    )]
    pub json: PathBuf,

    /// Show no progress
    #[arg(long, short, help_heading = "Output")]
    pub quiet: bool,
}

const EXAMPLES: &str = "\
Examples:
  sclub ablate --quick
      all variants in all worlds, a short version
  sclub ablate
      the whole, seeds 201 to 203
  sclub ablate --only catalogue --seeds 8
      some worlds, more seeds
  sclub ablate --only 'no clusters'
      one variant beside the unchanged policy

--only selects by the names of the rows and columns that `sclub ablate --quick` prints. One seed at a tenth
of the rounds shows that all of it works, not what a part is worth.
The JSON file has the `sclub run` command of each world and the flags of each variant. Both together give
the same values.
";

/// Runs all variants, prints the table and writes it.
pub fn ablate(args: &AblateArgs) -> Result<ExitCode> {
    let start = Instant::now();
    let plan = plan(args)?;
    let markdown = prepare(args)?;
    let cancelled = Arc::new(AtomicBool::new(false));
    stop_on_ctrl_c(&cancelled)?;
    let progress = Progress::new(plan.rounds_to_play(), args.quiet, Arc::clone(&cancelled));
    let table = plan.run(&progress);
    progress.finish();
    let table = table?;
    let interrupted = cancelled.load(Ordering::Relaxed);
    if table.columns.is_empty() {
        eprintln!("sclub: stopped before the first world was complete; nothing written");
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let (head, lines) = table.text();
    print_line(&format!("{}\n{}", numbers(head, lines), table.reading()));
    write(args, &markdown, &table, !interrupted)?;
    print_line(&format!(
        "{:.0} s. Written: {}, {}",
        start.elapsed().as_secs_f64(),
        args.json.display(),
        markdown.display(),
    ));
    if interrupted {
        eprintln!("sclub: stopped; the seeds that were complete are written");
        return Ok(ExitCode::from(INTERRUPTED));
    }
    Ok(ExitCode::SUCCESS)
}

fn plan(args: &AblateArgs) -> Result<Plan> {
    let (count, divisor) = match args.quick {
        true => (QUICK_SEEDS, QUICK_DIVISOR),
        false => (SEEDS, 1),
    };
    let count = args.seeds.unwrap_or(count);
    if count == 0 {
        bail!("seeds is 0; there must be at least one");
    }
    let plan = Plan {
        seeds: seeds(args.first_seed, count)?,
        threads: threads(args.threads)?,
        divisor,
        only: args.only.clone(),
    };
    if !plan.has_match() {
        bail!(
            "no variant and no world has '{}' in its name",
            args.only.as_deref().unwrap_or_default()
        );
    }
    Ok(plan)
}

/// Finds out before the run whether its results can be written. Returns the path of the Markdown file.
fn prepare(args: &AblateArgs) -> Result<PathBuf> {
    let path = &args.json;
    let markdown = path.with_extension("md");
    if *path == markdown {
        bail!(
            "{} would be overwritten by the table; name it .json",
            path.display()
        );
    }
    if let Some(folder) = path.parent().filter(|at| !at.as_os_str().is_empty()) {
        prepare_folder(folder)?;
    }
    prepare_file(path)?;
    prepare_file(&markdown)?;
    Ok(markdown)
}

fn write(
    args: &AblateArgs,
    markdown: &std::path::Path,
    table: &Table,
    complete: bool,
) -> Result<()> {
    let command = command_line();
    let document = json!({
        "command": command,
        "version": env!("CARGO_PKG_VERSION"),
        "complete": complete,
        "table": table,
    });
    let text = serde_json::to_string_pretty(&document).context("cannot write JSON")?;
    save(&args.json, text.as_bytes())?;
    let text = format!("`{command}`\n\n{}", table.markdown());
    save(markdown, text.as_bytes())
}
