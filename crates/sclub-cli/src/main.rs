//! The command `sclub`: arguments in, exit code out.

mod args;
mod config;
mod features;
mod files;
mod machine;
mod paper;
mod progress;
mod reading;
mod run;
mod table;

use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches};

/// What is said to somebody who types `sclub` and nothing else.
const WELCOME: &str = "\
sclub finds out who likes the same things while it recommends.

Type next:
  sclub run             compare SCLUB with CLUB and LinUCB on 1000 simulated users (some seconds)
  sclub paper --quick   the paper's figures and tables on one page, a short version (a minute)
  sclub features --help vectors of users and items from ratings of your own
  sclub --help          all commands
";

/// The arguments of a command that were typed, by name.
fn given((_, matches): (&str, &ArgMatches)) -> Vec<String> {
    matches
        .ids()
        .map(|id| id.as_str())
        .filter(|id| matches.value_source(id) == Some(ValueSource::CommandLine))
        .map(String::from)
        .collect()
}

fn main() -> ExitCode {
    let matches = args::Args::command().get_matches();
    let args = match args::Args::from_arg_matches(&matches) {
        Ok(args) => args,
        Err(error) => error.exit(),
    };
    let outcome = match args.command {
        None => {
            print!("{WELCOME}");
            return ExitCode::SUCCESS;
        }
        Some(args::Command::Run(mut args)) => {
            args.given = matches.subcommand().map(given).unwrap_or_default();
            run::run(&args)
        }
        Some(args::Command::Paper(args)) => paper::paper(&args),
        Some(args::Command::Features(args)) => features::features(&args),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("sclub: {error:#}");
            ExitCode::from(2)
        }
    }
}
