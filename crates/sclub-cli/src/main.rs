//! The command `sclub`.

use std::process::ExitCode;

fn main() -> ExitCode {
    sclub_cli::main()
}
