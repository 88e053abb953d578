//! Load.
use std::process::ExitCode;

use anyhow::Result;

use super::{Load, SimulateArgs};

pub fn load(_args: &SimulateArgs, _what: Load) -> Result<ExitCode> {
    anyhow::bail!("not yet")
}
