//! The command `sclub`: arguments in, exit code out.

mod args;
mod features;
mod machine;
mod paper;
mod progress;
mod reading;
mod run;
mod table;

use std::process::ExitCode;

use clap::Parser;

/// What is said to somebody who types `sclub` and nothing else.
const WELCOME: &str = "\
sclub finds out who likes the same things while it recommends.

Type next:
  sclub run             compare SCLUB with CLUB and LinUCB on 1000 simulated users (some seconds)
  sclub paper --quick   the paper's figures and tables on one page, a short version (a minute)
  sclub features --help vectors of users and items from ratings of your own
  sclub --help          all commands
";

fn main() -> ExitCode {
    let args = args::Args::parse();
    let outcome = match args.command {
        None => {
            print!("{WELCOME}");
            return ExitCode::SUCCESS;
        }
        Some(args::Command::Run(args)) => run::run(&args),
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
