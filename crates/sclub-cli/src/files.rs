//! Output: lines on the standard output, and files that are either complete or not there.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Prints a line. Errors are ignored: the reader (such as `head`) may have exited.
pub fn print_line(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Makes a folder if it does not exist. Returns true if it did not.
pub fn prepare_folder(folder: &Path) -> Result<bool> {
    if folder.exists() && !folder.is_dir() {
        bail!("{} is not a folder", folder.display());
    }
    let is_new = !folder.exists();
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    Ok(is_new)
}

/// Finds out before the work, not after it, whether a file can be written.
pub fn prepare_file(path: &Path) -> Result<()> {
    if path.exists() && !path.is_file() {
        bail!(
            "{} is not a plain file and is not overwritten",
            path.display()
        );
    }
    let part = part_of(path);
    fs::write(&part, []).with_context(|| format!("cannot write {}", part.display()))?;
    fs::remove_file(&part).with_context(|| format!("cannot remove {}", part.display()))
}

/// Writes a file so that it is there whole or not at all.
pub fn save(path: &Path, bytes: &[u8]) -> Result<()> {
    let part = part_of(path);
    fs::write(&part, bytes).with_context(|| format!("cannot write {}", part.display()))?;
    fs::rename(&part, path).with_context(|| format!("cannot write {}", path.display()))
}

/// The name under which a file is written before it takes its own.
pub fn part_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    PathBuf::from(name)
}
