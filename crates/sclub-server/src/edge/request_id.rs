//! A short id for each request, which its answer and the logs have.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use axum::http::{HeaderMap, HeaderName, HeaderValue};

/// The header with a request's id, in requests and in answers.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

const MAX_LENGTH: usize = 64;
const PREFIX: usize = 8;
const DIGITS: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";

/// Makes request ids: a prefix that is random for each server, and a counter. An id costs one small
/// allocation.
#[derive(Debug)]
pub(super) struct RequestIds {
    prefix: [u8; PREFIX],
    next: AtomicU64,
}

impl RequestIds {
    pub(super) fn new() -> Self {
        // Ids must differ between servers; they need not be unpredictable.
        let mut random = RandomState::new().build_hasher().finish();
        let prefix = std::array::from_fn(|_| {
            let digit = DIGITS[(random % 32) as usize];
            random /= 32;
            digit
        });
        Self {
            prefix,
            next: AtomicU64::new(1),
        }
    }

    /// A new id.
    pub(super) fn next(&self) -> HeaderValue {
        const MAX_DIGITS: usize = 13;
        let mut room = [0; PREFIX + 1 + MAX_DIGITS];
        let mut number = self.next.fetch_add(1, Relaxed);
        let mut start = room.len();
        loop {
            start -= 1;
            room[start] = DIGITS[(number % 32) as usize];
            number /= 32;
            if number == 0 {
                break;
            }
        }
        start -= PREFIX + 1;
        room[start..][..PREFIX].copy_from_slice(&self.prefix);
        room[start + PREFIX] = b'-';
        HeaderValue::from_bytes(&room[start..]).expect("letters and digits")
    }

    /// The id in the request's header if it is valid, else a new one.
    pub(super) fn of(&self, headers: &HeaderMap) -> HeaderValue {
        match headers.get(REQUEST_ID) {
            Some(own) if is_valid(own.as_bytes()) => own.clone(),
            _ => self.next(),
        }
    }
}

/// Returns true if an id is safe to write into logs.
fn is_valid(id: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    (1..=MAX_LENGTH).contains(&id.len()) && id.iter().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_and_are_valid() {
        let (ids, others) = (RequestIds::new(), RequestIds::new());
        let mut seen = std::collections::HashSet::new();
        for _ in 0..2000 {
            for id in [ids.next(), others.next()] {
                assert!(is_valid(id.as_bytes()), "{id:?}");
                assert!(seen.insert(id.as_bytes().to_vec()), "{id:?}");
            }
        }
        ids.next.store(u64::MAX, Relaxed);
        let last = ids.next();
        assert!(last.as_bytes().ends_with(b"-fvvvvvvvvvvvv"), "{last:?}");
        ids.next.store(0, Relaxed);
        assert!(ids.next().as_bytes().ends_with(b"-0"));
    }

    #[test]
    fn ids_of_requests_are_kept_if_valid() {
        let ids = RequestIds::new();
        let of = |own: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert(REQUEST_ID, HeaderValue::from_bytes(own).unwrap());
            ids.of(&headers).as_bytes() == own
        };
        assert!(of(b"a") && of(b"A-1._z") && of(&[b'x'; 64]));
        assert!(!of(b"") && !of(&[b'x'; 65]) && !of(b"a b") && !of(b"a\"b") && !of(b"\xff"));
    }
}
