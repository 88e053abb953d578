//! Empty folders for tests that write and sync a lot.

use std::path::Path;

use sclub_server::meters::process_metrics;
use tempfile::TempDir;

/// Folders are in memory.
const MEMORY: &str = "/dev/shm";

/// The free bytes that tests need there. Containers have 64 MB by default: servers with full disks would time out.
const ENOUGH: f64 = 1e9;

/// An empty folder: in memory if there is enough of it, else where temporary files are.
pub fn new_folder() -> TempDir {
    let in_memory = match free(Path::new(MEMORY)) >= ENOUGH {
        true => tempfile::tempdir_in(MEMORY).ok(),
        false => None,
    };
    in_memory.unwrap_or_else(|| tempfile::tempdir().unwrap())
}

/// The free bytes on the disk of a folder, as the server measures them. Zero if the system does not tell.
fn free(folder: &Path) -> f64 {
    let text = process_metrics(folder);
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix("sclub_disk_free_bytes "));
    value.map_or(0.0, |value| value.parse().unwrap())
}
