//! Runs the command, as a user does.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// Runs `sclub` in a folder.
pub fn sclub(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sclub"))
        .current_dir(folder)
        .args(args)
        .output()
        .unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs `sclub`, which must succeed. Returns its output.
pub fn run(folder: &Path, args: &[&str]) -> String {
    let output = sclub(folder, args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Reads a JSON file.
pub fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}
