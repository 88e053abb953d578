//! `sclub evaluate`: what other policies would have earned, from the log of a service.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Parser;
use sclub_lab::evaluate::{
    Estimate, Evaluation, Log, LogOptions, Report, check_names, evaluate, passes,
};
use sclub_lab::policies::Name;
use sclub_lab::run::threads;
use sclub_lab::summary::thousands;
use serde::Serialize;

use crate::args::whole;
use crate::files::{prepare_file, print_line, save};
use crate::paper::command_line;
use crate::progress::Progress;
use crate::run::{INTERRUPTED, stop_on_ctrl_c};
use crate::table::numbers;

/// The flags of `sclub evaluate`.
#[derive(Debug, Parser)]
#[command(after_long_help = EXAMPLES, args_override_self = true)]
pub struct EvaluateArgs {
    /// The log: JSON lines as `sclub export` writes them, plain, gzip or zstd
    #[arg(long, value_name = "FILE", help_heading = "Input")]
    pub log: PathBuf,

    /// The catalogue, as `sclub export --items` writes it: JSON lines with id and features. Without it the items of the log are all there are
    #[arg(long, value_name = "FILE", help_heading = "Input")]
    pub items: Option<PathBuf>,

    /// The reward of items shown that have none [default: they are left out]
    #[arg(
        long,
        value_name = "X",
        allow_negative_numbers = true,
        help_heading = "Input"
    )]
    pub unanswered: Option<f64>,

    /// Count an item only where the policy would have shown it at the same position: for rewards that depend on the position
    #[arg(long, help_heading = "Input")]
    pub by_position: bool,

    /// The policies to evaluate, separated by commas
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "sclub-soft,sclub,linucb-one,linucb-ind,random",
        help_heading = "Run"
    )]
    pub policies: Vec<Name>,

    /// The seed of random draws
    #[arg(long, value_name = "N", default_value = "1", value_parser = whole, help_heading = "Run")]
    pub seed: u64,

    /// Threads to use; the results are the same with any number [default: all cores]
    #[arg(long, value_name = "N", value_parser = whole, help_heading = "Run")]
    pub threads: Option<u64>,

    /// Write the results with all digits
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub json: Option<PathBuf>,

    /// Show no progress
    #[arg(long, short, help_heading = "Output")]
    pub quiet: bool,
}

const EXAMPLES: &str = "\
Examples:
  sclub serve --explore-share 0.05 ...
      serve with 5% of the decisions at random, and log how probable each choice was
  sclub export --url http://127.0.0.1:8080 --out log.jsonl --items items.jsonl
  sclub evaluate --log log.jsonl --items items.jsonl --policies sclub-soft,linucb-one
      what these policies would have earned, with 95% intervals

The value of a policy is the mean reward of an item shown. ips weights each logged reward by one over the
probability with which its item was shown; snips divides by the sum of the weights; dr adds a model of the
rewards, which makes the intervals shorter; replay learns only from rounds in which the policy chose what was
shown. A log of a policy that does not draw at random cannot tell anything about others. docs/evaluate.md has
more.
";

/// The file of `--json`.
#[derive(Serialize)]
struct Document<'a> {
    command: String,
    version: &'static str,
    #[serde(flatten)]
    report: &'a Report,
}

/// Evaluates policies, prints and writes the results.
pub fn run(args: &EvaluateArgs) -> Result<ExitCode> {
    let start = Instant::now();
    check_names(&args.policies)?;
    if args.unanswered.is_some_and(|reward| !reward.is_finite()) {
        bail!("--unanswered must be a finite number");
    }
    if let Some(path) = &args.json {
        prepare_file(path)?;
    }
    let threads = threads(args.threads)?;
    let options = LogOptions {
        unanswered: args.unanswered,
        by_position: args.by_position,
    };
    let log = Log::read(&args.log, args.items.as_deref(), options)?;
    let mut report = Report::of(&log);
    print_line(&format!(
        "{} decisions of {} users over {} items; the mean reward of an item shown is {:.4} ± {:.4}",
        thousands(report.decisions as f64),
        thousands(report.users as f64),
        thousands(report.items as f64),
        report.logged.value,
        report.logged.error,
    ));
    for note in &report.notes {
        print_line(&format!("note: {note}"));
    }
    let cancelled = Arc::new(AtomicBool::new(false));
    stop_on_ctrl_c(&cancelled)?;
    let progress = Progress::new(
        passes(&log) * report.decisions * args.policies.len() as u64,
        args.quiet,
        cancelled,
    );
    let done = evaluate(&log, &args.policies, args.seed, threads, &progress);
    progress.finish();
    let Some(evaluations) = done? else {
        return Ok(ExitCode::from(INTERRUPTED));
    };
    report.policies = evaluations;
    if passes(&log) > 0 {
        print_line(&table(&report.policies));
    }
    for one in &report.policies {
        for warning in &one.warnings {
            print_line(&format!("{}: {warning}", one.policy));
        }
    }
    if let Some(path) = &args.json {
        let document = Document {
            command: command_line(),
            version: env!("CARGO_PKG_VERSION"),
            report: &report,
        };
        let text = serde_json::to_string_pretty(&document).context("cannot write JSON")?;
        save(path, text.as_bytes())?;
    }
    print_line(&format!("{:.1} s", start.elapsed().as_secs_f64()));
    Ok(ExitCode::SUCCESS)
}

fn table(evaluations: &[Evaluation]) -> String {
    let head = ["policy", "dr", "snips", "ips", "replay", "effective rounds"];
    let text = |estimate: Option<Estimate>| {
        estimate.map_or("–".to_owned(), |one| {
            format!("{:.4} [{:.4}, {:.4}]", one.value, one.low, one.high)
        })
    };
    let lines = evaluations.iter().map(|one| {
        vec![
            one.policy.to_string(),
            text(one.weighted.dr),
            text(one.weighted.snips),
            text(one.weighted.ips),
            text(one.replay),
            thousands(one.weighted.effective),
        ]
    });
    numbers(head.map(str::to_owned).into(), lines.collect()).to_string()
}
