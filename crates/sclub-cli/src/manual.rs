//! `sclub completions` and `sclub man`: the files that a package installs beside the command.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::CommandFactory;

use crate::args::Args;

/// The flags of `sclub completions`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  sclub completions bash > ~/.local/share/bash-completion/completions/sclub
  sclub completions zsh > ~/.zfunc/_sclub
  sclub completions fish > ~/.config/fish/completions/sclub.fish
")]
pub struct CompletionsArgs {
    /// Shell
    #[arg(value_name = "SHELL")]
    shell: clap_complete::Shell,
}

/// The flags of `sclub man`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  sclub man | man -l -
  sclub man --dir ~/.local/share/man/man1
      then: man sclub, man sclub-serve
")]
pub struct ManArgs {
    /// Folder for the pages of all commands, made if missing [default: print the page of sclub]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Prints the completions of a shell.
pub fn completions(args: &CompletionsArgs) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "sclub", &mut script);
    print(&script)
}

/// Prints the page of `sclub`, or writes the pages of all commands.
pub fn man(args: &ManArgs) -> Result<ExitCode> {
    let Some(dir) = &args.dir else {
        // As `generate_to` does.
        let mut command = Args::command().disable_help_subcommand(true);
        command.build();
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page)?;
        return print(&page);
    };
    std::fs::create_dir_all(dir)
        .and_then(|()| clap_mangen::generate_to(Args::command(), dir))
        .with_context(|| format!("cannot write the manual pages into {}", dir.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes to the standard output. A reader that stops early is no error.
fn print(bytes: &[u8]) -> Result<ExitCode> {
    match std::io::stdout().write_all(bytes) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}
