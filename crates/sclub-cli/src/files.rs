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

/// A number of things, as in "1 node" and "2 nodes".
pub fn count_of(number: usize, thing: &str) -> String {
    match number {
        1 => format!("1 {thing}"),
        _ if thing.ends_with('y') => format!("{number} {}ies", &thing[..thing.len() - 1]),
        _ => format!("{number} {thing}s"),
    }
}

/// Makes a file that only its owner can read.
pub fn create_private(path: &Path) -> std::io::Result<fs::File> {
    let mut options = fs::File::options();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Makes a folder that only its owner can read, and those above it, if it does not exist.
pub fn create_private_folder(path: &Path) -> std::io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
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
