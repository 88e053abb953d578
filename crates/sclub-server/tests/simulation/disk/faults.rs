//! What can go wrong with a file call.

use std::io;

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// Probabilities of what goes wrong, for each call. None by default.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Faults {
    /// The call fails, and did nothing; a write may have been done in part.
    pub eio: f64,
    /// A call that needs space says that there is none.
    pub enospc: f64,
    /// A read or a write is shorter than asked for, or interrupted.
    pub short: f64,
    /// A sync fails, and what it did not write is never written.
    pub failed_sync: f64,
    /// The call takes up to [`Faults::slow_most`].
    pub slow: f64,
    /// Milliseconds.
    pub slow_most: u64,
    /// A sync says that all is well and does nothing. No system that promises anything can stand
    /// this: it is for tests of the simulation itself.
    pub lying_sync: f64,
}

/// The call at which everything stops.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Stop {
    /// This call is made as any other.
    No,
    /// This is the last one; so much of it happens.
    Here { share: f64 },
}

pub fn eio() -> io::Error {
    io::Error::from_raw_os_error(EIO)
}

pub fn enospc() -> io::Error {
    io::Error::from_raw_os_error(ENOSPC)
}

/// What a process hears that no longer exists. Nobody should be there to hear it.
pub fn gone() -> io::Error {
    io::Error::other("the simulated process is gone")
}
