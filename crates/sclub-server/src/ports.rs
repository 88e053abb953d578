//! Ports for servers that are started as processes of their own.

use std::io::{Error, ErrorKind, Result};
use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// Systems give ports from 32,768 on to outgoing connections, Linux at random. A server that is started again could
/// find its port taken there.
const FIRST: u16 = 15_000;
const LAST: u16 = 31_999;

/// Ports of 127.0.0.1 that are free now. Calls of one process return different ones. They are below the ports of
/// outgoing connections, so they remain free unless another server takes them.
///
/// # Errors
/// [`ErrorKind::AddrInUse`] if there are not so many.
pub fn free_ports(count: usize) -> Result<Vec<u16>> {
    // Processes that run side by side begin at different ports.
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let range = LAST - FIRST + 1;
    let offset = (std::process::id().wrapping_mul(7919) % u32::from(range)) as u16;
    let mut ports = Vec::with_capacity(count);
    for _ in 0..range {
        if ports.len() == count {
            return Ok(ports);
        }
        let step = NEXT.fetch_add(1, Ordering::Relaxed) % range;
        let port = FIRST + (offset + step) % range;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            ports.push(port);
        }
    }
    Err(Error::new(
        ErrorKind::AddrInUse,
        format!("there are no {count} free ports from {FIRST} to {LAST}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_different_and_free() {
        let first = free_ports(20).unwrap();
        let next = first.last().map_or(FIRST, |port| (port + 1).min(LAST));
        let taken = TcpListener::bind(("127.0.0.1", next));
        let second = free_ports(20).unwrap();
        if taken.is_ok() {
            assert!(!second.contains(&next));
        }
        let mut all = [first, second].concat();
        assert!(all.iter().all(|port| (FIRST..=LAST).contains(port)));
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 40);
        let too_many = free_ports(20_000).unwrap_err();
        assert_eq!(too_many.kind(), ErrorKind::AddrInUse);
    }
}
