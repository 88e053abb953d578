//! The command `sclub`: arguments in, exit code out.
//!
//! It is a library so that a program with policies of its own can have every command of `sclub`: it
//! registers them with `sclub::register` and calls [`main`]. See `examples/own_policy.rs`.

mod ablate;
mod args;
mod choices;
mod cluster;
mod drill;
mod evaluate;
mod experiment;
mod explain;
mod export_items;
mod features;
mod field;
mod files;
mod keeping;
mod left_out;
mod manual;
mod paper;
mod progress;
mod reading;
mod remote;
mod robust;
mod run;
mod serve;
mod simulate;
mod stored;
mod table;
mod teach;
mod title;

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches};

/// The greeting of `sclub` without a command.
const WELCOME: &str = "\
sclub finds out who likes the same things while it recommends.

Type next:
  sclub run             compare SCLUB with CLUB and LinUCB on 1000 simulated users (some seconds)
  sclub paper --quick   the paper's figures and tables on one page, a short version (a minute)
  sclub robust --quick  one table of many other settings, a short version (a minute)
  sclub ablate --quick  what each part of sclub-soft is worth, a short version
  sclub serve           recommend over HTTP on http://127.0.0.1:8080, with a page to watch it
  sclub simulate        simulated users for that server, from another terminal
  sclub features --help vectors of items from titles, tags and prices, and of users and items from ratings
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

/// The environment variable that a refused value came from, if it came from one.
fn refused_variable(error: &clap::Error) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let flag = text(ContextKind::InvalidArg)?.strip_prefix("--")?;
    let flag = flag.split([' ', '[']).next()?;
    let variable = format!("SCLUB_{}", flag.replace('-', "_").to_uppercase());
    let is_typed = std::env::args().any(|arg| {
        let arg = arg.strip_prefix("--");
        arg.is_some_and(|arg| arg.split('=').next() == Some(flag))
    });
    let is_same = std::env::var(&variable).ok().as_deref() == text(ContextKind::InvalidValue);
    (is_same && !is_typed).then_some(variable)
}

/// Runs the command line.
pub fn main() -> ExitCode {
    let served = sclub_server::identity::servable();
    if let Err(clash) = sclub_server::settings::check_constant_names(&served) {
        eprintln!("sclub: {clash}");
        return ExitCode::from(2);
    }
    let matches = args::Args::command()
        .try_get_matches()
        .unwrap_or_else(|error| {
            if let Some(variable) = refused_variable(&error) {
                eprintln!("sclub: from the environment variable {variable}:");
            }
            error.exit()
        });
    let args = match args::Args::from_arg_matches(&matches) {
        Ok(args) => args,
        Err(error) => error.exit(),
    };
    if let Err(error) = serve::variables::check() {
        return failed(&error);
    }
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
        Some(args::Command::Robust(args)) => robust::robust(&args),
        Some(args::Command::Field(args)) => field::field(&args),
        Some(args::Command::Tune(args)) => field::tune(&args),
        Some(args::Command::Ablate(args)) => ablate::ablate(&args),
        Some(args::Command::Features(args)) => features::features(&args),
        Some(args::Command::Import(args)) => teach::import(&args),
        Some(args::Command::Reteach(args)) => teach::reteach(&args),
        Some(args::Command::Serve(mut args)) => {
            args.given = matches.subcommand().map(given).unwrap_or_default();
            serve::serve(&args)
        }
        Some(args::Command::Simulate(mut args)) => {
            args.given = matches.subcommand().map(given).unwrap_or_default();
            simulate::simulate(&args)
        }
        Some(args::Command::Cluster { mut command }) => {
            let matches = matches.subcommand().and_then(|(_, of)| of.subcommand());
            command.set_given(matches.map(given).unwrap_or_default());
            cluster::cluster(*command)
        }
        Some(args::Command::Explain(args)) => explain::explain(&args),
        Some(args::Command::Experiment { command }) => experiment::experiment(&command),
        Some(args::Command::Evaluate(args)) => evaluate::run(&args),
        Some(args::Command::Verify(args)) => keeping::verify(&args),
        Some(args::Command::Backup(args)) => keeping::backup(&args),
        Some(args::Command::Restore(args)) => keeping::restore(&args),
        Some(args::Command::Export(args)) => keeping::export(&args),
        Some(args::Command::Completions(args)) => manual::completions(&args),
        Some(args::Command::Man(args)) => manual::man(&args),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => failed(&error),
    }
}

/// Prints an error. Returns the exit code.
fn failed(error: &anyhow::Error) -> ExitCode {
    serve::systemd::print_error(&format!("{error:#}"));
    ExitCode::from(2)
}
