//! `sclub field` and `sclub tune`: all policies in all worlds, with constants that were chosen alike.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::{Context, Error, Result, bail};
use clap::Parser;
use sclub_lab::field::{
    FILES, FIRST_SEED, Field, Plan, QUICK_ROUNDS, QUICK_SEEDS, ROUNDS, SEEDS, TunePlan, Tuned,
    files, own_settings, ranked, tuned, worlds,
};
use sclub_lab::paper::Progress as Done;
use sclub_lab::policies::Name;
use sclub_lab::run::threads;

use crate::args::whole;
use crate::files::{prepare_file, prepare_folder, print_line, save};
use crate::paper::command_line;
use crate::progress::Progress;
use crate::run::{self, INTERRUPTED, stop_on_ctrl_c};
use crate::stored::{StoredArgs, open_cells};
use crate::table::numbers;

/// Defaults of `sclub tune`.
const TUNE_ROUNDS: u64 = 1 << 15;
const TUNE_SEEDS: u64 = 1;
const CANDIDATES: u64 = 16;

/// The flags of `sclub field`.
#[derive(Debug, Parser)]
#[command(after_long_help = EXAMPLES, args_override_self = true)]
pub struct FieldArgs {
    /// The folder to write to; it is made if it is missing; results in it are not run again
    #[arg(
        long,
        value_name = "FOLDER",
        default_value = "field",
        help_heading = "Output"
    )]
    pub out: PathBuf,

    /// A short version for a first look: 2^11 rounds, 2 seeds
    #[arg(long, help_heading = "Run")]
    pub quick: bool,

    /// The policies to rank, separated by commas [default: all that do not know the truth]
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        help_heading = "Run"
    )]
    pub policies: Vec<Name>,

    /// Only worlds whose names contain one of these, separated by commas, such as 'shop,cascade'
    #[arg(
        long,
        value_name = "TEXTS",
        value_delimiter = ',',
        help_heading = "Run"
    )]
    pub only: Vec<String>,

    /// Constants that `sclub tune` has chosen [default: those of this release]
    #[arg(long, value_name = "FILE", help_heading = "Run")]
    pub tuned: Option<PathBuf>,

    /// Give every policy its default constants
    #[arg(long, help_heading = "Run", conflicts_with = "tuned")]
    pub untuned: bool,

    /// Give every policy that has them the constants of its published code
    #[arg(long, help_heading = "Run", conflicts_with_all = ["tuned", "untuned"])]
    pub released: bool,

    /// Rounds of every world but the shops, which have at most 12000; 2^20-2 is understood [default: 2^15]
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true, help_heading = "Run")]
    pub rounds: Option<u64>,

    /// Number of worlds to repeat everything in [default: 10]
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true, help_heading = "Run")]
    pub seeds: Option<u64>,

    #[command(flatten)]
    pub stored: StoredArgs,
}

const EXAMPLES: &str = "\
Examples:
  sclub field --quick
      all policies in all worlds, in about two minutes
  sclub field
      the full table; less than an hour on two cores
  sclub field --policies sclub,sclub-soft,dyclu --only uniform,change --seeds 20
      some of it, with more seeds

Ctrl-C stops in order. The same command again goes on: a result that is in FOLDER/cells.jsonl is not run again.
FOLDER/index.html is the page, field.txt the results as text, field.json has all digits, field.tex is a table for a
paper, ranks.svg the picture.
";

/// The flags of `sclub tune`.
#[derive(Debug, Parser)]
#[command(after_long_help = TUNE_EXAMPLES, args_override_self = true)]
pub struct TuneArgs {
    /// The folder to write to; it is made if it is missing; results in it are not run again
    #[arg(
        long,
        value_name = "FOLDER",
        default_value = "tune",
        help_heading = "Output"
    )]
    pub out: PathBuf,

    /// The policies, separated by commas [default: all that have constants]
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        help_heading = "Run"
    )]
    pub policies: Vec<Name>,

    /// Number of sets of constants to try for each policy; the first is its default
    #[arg(long, value_name = "N", default_value_t = CANDIDATES, value_parser = whole, help_heading = "Run")]
    pub candidates: u64,

    /// Choose constants for each family of worlds (synthetic, lists, catalogue), not once for all
    #[arg(long, help_heading = "Run")]
    pub per_family: bool,

    /// Rounds of the last rung; each rung before it has half of the next
    #[arg(long, value_name = "N", default_value_t = TUNE_ROUNDS, value_parser = whole, help_heading = "Run")]
    pub rounds: u64,

    /// Number of worlds of the last rung; the others have one
    #[arg(long, value_name = "N", default_value_t = TUNE_SEEDS, value_parser = whole, help_heading = "Run")]
    pub seeds: u64,

    /// Threads to use; the results are the same with any number [default: all cores]
    #[arg(long, value_name = "N", value_parser = whole, help_heading = "Run")]
    pub threads: Option<u64>,

    /// Show no progress
    #[arg(long, short, help_heading = "Output")]
    pub quiet: bool,
}

const TUNE_EXAMPLES: &str = "\
Examples:
  sclub tune
      every policy, once for all worlds
  sclub tune --policies my-policy,sclub --per-family
      some policies, for each family of worlds
  sclub field --tuned tune/tuned.json
      the table with these constants

Every policy gets the same number of candidates, rounds and seeds. The first candidate has the default constants.
The others multiply each number among them by a factor between 1/8 and 8. Each rung plays the candidates that are
left on seeds of its own and keeps the best quarter. The default plays in every rung, and the last rung decides between
it and the best of the others. Seeds are 1000001 and up, which `sclub field` refuses.
";

/// Runs what is missing, prints the table and writes it.
pub fn field(args: &FieldArgs) -> Result<ExitCode> {
    let start = Instant::now();
    let plan = plan(args)?;
    prepare_folder(&args.out)?;
    for name in FILES {
        prepare_file(&args.out.join(name))?;
    }
    let cells = open_cells(&args.out, args.stored.fresh)?;
    let cancelled = Arc::new(AtomicBool::new(false));
    stop_on_ctrl_c(&cancelled)?;
    let progress = Progress::new(plan.rounds_to_play(&cells)?, args.stored.quiet, cancelled);
    let done = plan.run(&cells, &progress);
    progress.finish();
    let done = done?;
    let table = plan.field(&cells)?;
    if table.worlds.is_empty() {
        eprintln!("sclub: stopped before the first world was complete");
        return Ok(ExitCode::from(INTERRUPTED));
    }
    print_line(&shown(&table));
    let took = format!("{:.0} s", start.elapsed().as_secs_f64());
    let is_complete = done.missing == 0;
    let made =
        files(&table, &command_line(), &took, is_complete).context("cannot make the page")?;
    for (name, content) in made {
        save(&args.out.join(name), content.as_bytes())?;
    }
    print_line(&format!(
        "{took}; {} results run, {} reused from earlier runs. Open {}",
        done.new,
        done.reused,
        args.out.join("index.html").display(),
    ));
    Ok(ended(done))
}

fn ended(done: Done) -> ExitCode {
    if done.missing == 0 {
        return ExitCode::SUCCESS;
    }
    eprintln!(
        "sclub: stopped; {} results are missing. Run the same command again to continue",
        done.missing
    );
    ExitCode::from(INTERRUPTED)
}

fn plan(args: &FieldArgs) -> Result<Plan> {
    let (rounds, seeds) = match args.quick {
        true => (QUICK_ROUNDS, QUICK_SEEDS),
        false => (ROUNDS, SEEDS),
    };
    let rounds = args.rounds.unwrap_or(rounds);
    let seeds = run::seeds(
        args.stored.first_seed.unwrap_or(FIRST_SEED),
        args.seeds.unwrap_or(seeds),
    )?;
    let all = worlds(rounds).into_iter().chain(own_settings(rounds));
    let named = all.map(|world| world.name.to_owned());
    let has = |name: &String| args.only.iter().any(|part| name.contains(&**part));
    let constants = match &args.tuned {
        _ if args.untuned || args.released => Tuned::default(),
        None => tuned(),
        Some(path) => {
            let text = fs::read_to_string(path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            serde_json::from_str(&text)
                .with_context(|| format!("{} is not a result of `sclub tune`", path.display()))?
        }
    };
    let plan = Plan {
        policies: ranked(&args.policies).map_err(Error::msg)?,
        rounds,
        seeds,
        threads: threads(args.stored.threads)?,
        only: named.filter(has).collect(),
        left_out: Vec::new(),
        constants,
        released: args.released,
    };
    plan.check().map_err(Error::msg)?;
    let is_none = plan.only.is_empty() && !args.only.is_empty();
    if is_none || plan.worlds().is_empty() {
        bail!("no world has '{}' in its name", args.only.join(","));
    }
    Ok(plan)
}

/// The standings for a terminal.
fn shown(table: &Field) -> String {
    let head = [
        "policy",
        "mean rank",
        "worlds",
        "among the best",
        "µs a round",
    ];
    let first = table.worlds.first();
    let lines = table.standings.iter().map(|standing| {
        let cell = first.and_then(|row| row.cell(standing.policy));
        vec![
            standing.policy.to_string(),
            format!("{:.2}", standing.rank),
            standing.worlds.to_string(),
            standing.among_best.to_string(),
            cell.map_or("–".to_owned(), |cell| format!("{:.1}", cell.microseconds)),
        ]
    });
    let mut text = numbers(head.map(str::to_owned).into(), lines.collect()).to_string();
    if let Some(difference) = table.critical_difference {
        text.push_str(&format!(
            "\nmean ranks that are {difference:.2} or more apart differ significantly (Nemenyi, level 0.05)"
        ));
    }
    text
}

/// Chooses constants, prints and writes them.
pub fn tune(args: &TuneArgs) -> Result<ExitCode> {
    let start = Instant::now();
    for (name, value) in [
        ("candidates", args.candidates),
        ("rounds", args.rounds),
        ("seeds", args.seeds),
    ] {
        if value == 0 {
            bail!("{name} is 0; there must be at least one");
        }
    }
    let mut chosen = ranked(&args.policies).map_err(Error::msg)?;
    chosen.retain(|name| !name.constants.is_empty());
    let plan = TunePlan {
        policies: chosen,
        candidates: usize::try_from(args.candidates).context("too many candidates")?,
        rounds: args.rounds,
        seeds: args.seeds,
        per_family: args.per_family,
        threads: threads(args.threads)?,
    };
    prepare_folder(&args.out)?;
    prepare_file(&args.out.join("tuned.json"))?;
    let cells = open_cells(&args.out, false)?;
    let cancelled = Arc::new(AtomicBool::new(false));
    stop_on_ctrl_c(&cancelled)?;
    let progress = Progress::new(plan.rounds_to_play(), args.quiet, cancelled);
    let mut done = Done::default();
    let tuned = plan.run(&cells, &progress, &mut done);
    progress.finish();
    let Some(mut tuned) = tuned? else {
        return Ok(ended(done));
    };
    tuned.command = command_line();
    print_line(&tuned_table(&tuned));
    let text = serde_json::to_string_pretty(&tuned).context("cannot write JSON")?;
    let path = args.out.join("tuned.json");
    save(&path, format!("{text}\n").as_bytes())?;
    print_line(&format!(
        "{:.0} s; {} results run, {} reused. Written: {}",
        start.elapsed().as_secs_f64(),
        done.new,
        done.reused,
        path.display()
    ));
    Ok(ExitCode::SUCCESS)
}

/// The chosen constants for a terminal.
fn tuned_table(tuned: &Tuned) -> String {
    let head = ["worlds", "policy", "score", "default's", "constants"];
    let lines = tuned.constants.iter().flat_map(|(family, policies)| {
        policies.iter().map(move |(policy, chosen)| {
            let scores = tuned.scores.get(family).and_then(|all| all.get(policy));
            let score = |value: Option<f64>| value.map_or("–".into(), |v| format!("{v:.4}"));
            let chosen: Vec<String> = chosen.iter().map(|(n, v)| format!("{n} {v}")).collect();
            vec![
                family.clone(),
                policy.clone(),
                score(scores.map(|scores| scores.0)),
                score(scores.map(|scores| scores.1)),
                match chosen.is_empty() {
                    true => "defaults".to_owned(),
                    false => chosen.join(", "),
                },
            ]
        })
    });
    numbers(head.map(str::to_owned).into(), lines.collect()).to_string()
}
