//! Time and memory for reading a file as large as MovieLens 20M. Prints the figures
//! of `docs/data.md`:
//!
//! `cargo bench -p sclub-lab --bench read`, or with a number of rows: `... --bench read -- 1000000`
//!
//! The file, some 530 MB, is made in the folder for temporary files and removed afterwards.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Instant;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sclub_lab::data::{Options, read};

const ROWS: u64 = 20_000_000;
const USERS: u64 = 138_493;
const LARGEST_MOVIE: u64 = 131_262;

/// Writes a file of the format of MovieLens 20M: users one after the other, movies at random.
fn generate(path: &Path, rows: u64) -> io::Result<()> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    writeln!(file, "userId,movieId,rating,timestamp")?;
    for row in 0..rows {
        let user = row * USERS / rows + 1;
        // Low numbers are more popular.
        let movie = (rng.random::<f64>().powi(3) * LARGEST_MOVIE as f64) as u64 + 1;
        let halves = rng.random_range(1..=10_u32);
        let time = rng.random_range(1_000_000_000..1_427_784_002_u32);
        let (whole, half) = (halves / 2, halves % 2 * 5);
        writeln!(file, "{user},{movie},{whole}.{half},{time}")?;
    }
    file.flush()
}

/// The most memory this process has had, in MB, or 0 where the system does not tell.
fn peak() -> f64 {
    let Ok(text) = std::fs::read_to_string("/proc/self/status") else {
        return 0.0;
    };
    let line = text.lines().find(|line| line.starts_with("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
    kilobytes.unwrap_or(0.0) / 1e3 * 1.024
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // `cargo test` runs benches with this argument; there is nothing to test here.
    if std::env::args().any(|argument| argument == "--test") {
        return Ok(());
    }
    let given = std::env::args().find_map(|argument| argument.parse().ok());
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("ratings.csv");
    generate(&path, given.unwrap_or(ROWS))?;
    let megabytes = path.metadata()?.len() as f64 / 1e6;
    let before = peak();

    let start = Instant::now();
    let read = read(&path, &Options::default(), &|_, _| {})?;
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{} rows, {megabytes:.0} MB: {seconds:.2} s, {:.0} MB/s, {:.1} million rows/s",
        read.rows,
        megabytes / seconds,
        read.rows as f64 / seconds / 1e6
    );
    println!(
        "peak memory {:.0} MB ({before:.0} MB before reading)",
        peak()
    );
    println!(
        "{} different interactions of {} users and {} items",
        read.interactions.len(),
        read.interactions.users(),
        read.interactions.items()
    );
    let start = Instant::now();
    let digest = read.interactions.digest();
    println!(
        "digest {digest:016x} in {:.2} s",
        start.elapsed().as_secs_f64()
    );
    Ok(())
}
