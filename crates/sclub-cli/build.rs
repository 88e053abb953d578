//! Tells the program which compiler made it.

use std::process::Command;

fn main() {
    let compiler = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let version = Command::new(compiler)
        .arg("--version")
        .output()
        .ok()
        .filter(|output| output.status.success())
        .and_then(|output| String::from_utf8(output.stdout).ok());
    let version = version.as_deref().map_or("unknown", str::trim);
    println!("cargo::rustc-env=SCLUB_COMPILER={version}");
    println!("cargo::rerun-if-env-changed=RUSTC");
}
