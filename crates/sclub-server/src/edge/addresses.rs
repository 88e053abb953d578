//! The number of connections of each address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use crate::locks::lock;

use super::guard::client;

/// Counts the connections of each address, those of an IPv6 network of 64 bits together. It holds no more
/// addresses than there are connections.
#[derive(Debug)]
pub(super) struct Addresses {
    /// The maximum number of connections of an address; 0 is no limit.
    max: usize,
    counts: Mutex<HashMap<IpAddr, usize>>,
}

/// A connection that is counted until this is dropped.
#[derive(Debug)]
pub(super) struct Counted {
    /// `None` if there is no limit.
    of: Option<(Arc<Addresses>, IpAddr)>,
}

impl Addresses {
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            max,
            counts: Mutex::default(),
        })
    }

    /// Counts a connection, unless its address has too many.
    pub(super) fn take(self: &Arc<Self>, address: IpAddr) -> Option<Counted> {
        if self.max == 0 {
            return Some(Counted { of: None });
        }
        let client = client(address);
        let mut counts = lock(&self.counts);
        let count = counts.entry(client).or_default();
        // The entry has at least one connection then, so it is removed with the last of them.
        if *count >= self.max {
            return None;
        }
        *count += 1;
        Some(Counted {
            of: Some((Arc::clone(self), client)),
        })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let Some((addresses, client)) = &self.of else {
            return;
        };
        let mut counts = lock(&addresses.counts);
        if let Some(count) = counts.get_mut(client) {
            *count -= 1;
            if *count == 0 {
                counts.remove(client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_has_its_count_and_ipv6_networks_are_one() {
        let addresses = Addresses::new(2);
        let take = |text: &str| addresses.take(text.parse().unwrap());
        let first = take("10.0.0.1").unwrap();
        let _second = take("::ffff:10.0.0.1").unwrap();
        assert!(take("10.0.0.1").is_none());
        let _other = take("10.0.0.2").unwrap();
        drop(first);
        assert!(take("10.0.0.1").is_some());
        let six = (take("2001:db8::1"), take("2001:db8::2"));
        assert!(six.0.is_some() && six.1.is_some());
        assert!(take("2001:db8::3").is_none());
        assert!(take("2001:db8:0:1::3").is_some());
        drop((six, _second, _other));
        assert!(addresses.counts.lock().unwrap().is_empty());
    }

    #[test]
    fn zero_is_no_limit() {
        let addresses = Addresses::new(0);
        let many: Vec<_> = (0..5000)
            .map(|_| addresses.take(IpAddr::from([1, 2, 3, 4])))
            .collect();
        assert!(many.iter().all(Option::is_some));
        assert!(addresses.counts.lock().unwrap().is_empty());
    }
}
