//! Faults of file calls.

use std::io;

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// The probabilities of faults, for each call. 0 by default.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Faults {
    /// The call fails, and did nothing; a write may have been done in part.
    pub eio: f64,
    /// A call that needs space fails because the disk is full.
    pub enospc: f64,
    /// A read or a write is shorter than asked for, or interrupted.
    pub short: f64,
    /// A sync fails, and what it did not write is never written.
    pub failed_sync: f64,
    /// The call takes up to [`Faults::max_delay`].
    pub slow: f64,
    /// The maximum delay in milliseconds.
    pub max_delay: u64,
    /// A sync reports success and does nothing. No durable system can handle this: it is for tests of the
    /// simulation itself.
    pub lying_sync: f64,
}

/// The call at which everything stops.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Stop {
    /// This call is made as any other.
    No,
    /// This is the last one; a share of it is done.
    Here { share: f64 },
}

pub fn eio() -> io::Error {
    io::Error::from_raw_os_error(EIO)
}

pub fn enospc() -> io::Error {
    io::Error::from_raw_os_error(ENOSPC)
}

/// The error for a process that no longer exists. It should never be seen.
pub fn gone() -> io::Error {
    io::Error::other("the simulated process is gone")
}
