//! Decisions handed out that wait to be noted in the store.

/// Decisions one after another in one piece of memory: they are written by the threads that answer
/// and read by the one that writes, and memory that changes hands is slow to free.
#[derive(Debug, Default)]
pub(super) struct Journal {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Journal {
    /// Puts one more in, unless there are too many or they are too long together.
    pub fn push(&mut self, decision: &[u8]) -> bool {
        const MOST: usize = 1 << 17;
        const BYTES: usize = 64 << 20;
        if self.ends.len() == MOST || self.bytes.len() + decision.len() > BYTES {
            return false;
        }
        self.bytes.extend_from_slice(decision);
        self.ends.push(self.bytes.len());
        true
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Every decision in it.
    pub fn decisions(&self) -> Vec<&[u8]> {
        let mut start = 0;
        let cut = self.ends.iter().map(|&end| {
            let decision = &self.bytes[start..end];
            start = end;
            decision
        });
        cut.collect()
    }

    /// Empties it; what it has of memory is kept, within reason.
    pub fn clear(&mut self) {
        const KEPT: usize = 4 << 20;
        self.bytes.clear();
        self.ends.clear();
        self.bytes.shrink_to(KEPT);
        self.ends.shrink_to(KEPT / 64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_comes_out() {
        let mut journal = Journal::default();
        assert!(journal.is_empty() && journal.decisions().is_empty());
        for decision in [&b"one"[..], b"", b"three"] {
            assert!(journal.push(decision));
        }
        assert_eq!(journal.decisions(), [&b"one"[..], b"", b"three"]);
        journal.clear();
        assert!(journal.is_empty());
        assert!(!journal.push(&vec![0; 65 << 20]));
    }
}
