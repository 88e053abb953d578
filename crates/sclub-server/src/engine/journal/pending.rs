//! Decisions that wait for the journal.

/// Decisions that wait for the journal, in one buffer: the threads that answer write it and the journal's task
/// reads it, and many small allocations are slow to free on another thread.
#[derive(Debug, Default)]
pub struct Pending {
    bytes: Vec<u8>,
    propensities: Vec<f64>,
    details: Vec<u8>,
    /// The ends of each decision in the three vectors.
    ends: Vec<(usize, usize, usize)>,
}

/// A decision that waits for the journal.
#[derive(Debug, PartialEq)]
pub struct PendingDecision<'a> {
    pub decision: &'a [u8],
    pub propensities: &'a [f64],
    pub detail: &'a [u8],
}

impl Pending {
    /// Adds an encoded decision with its propensities and its encoded [`Detail`], if there are any. Returns false if
    /// the buffer is full.
    pub fn push(&mut self, decision: &[u8], propensities: &[f64], detail: &[u8]) -> bool {
        const MAX_DECISIONS: usize = 1 << 17;
        const MAX_BYTES: usize = 64 << 20;
        let size = self.bytes.len() + decision.len();
        let numbers = self.propensities.len() + propensities.len();
        let details = self.details.len() + detail.len();
        let all = size + size_of::<f64>() * numbers + details;
        if self.ends.len() == MAX_DECISIONS || all > MAX_BYTES {
            return false;
        }
        self.details.extend_from_slice(detail);
        self.bytes.extend_from_slice(decision);
        self.propensities.extend_from_slice(propensities);
        self.ends.push((size, numbers, details));
        true
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub fn decisions(&self) -> impl Iterator<Item = PendingDecision<'_>> {
        let starts = std::iter::once((0, 0, 0)).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| PendingDecision {
            decision: &self.bytes[start.0..end.0],
            propensities: &self.propensities[start.1..end.1],
            detail: &self.details[start.2..end.2],
        })
    }

    /// Empties the buffer, and keeps some of its memory.
    pub fn clear(&mut self) {
        const MIN_CAPACITY: usize = 4 << 20;
        self.bytes.clear();
        self.propensities.clear();
        self.details.clear();
        self.ends.clear();
        self.bytes.shrink_to(MIN_CAPACITY);
        self.details.shrink_to(MIN_CAPACITY);
        self.propensities.shrink_to(MIN_CAPACITY / 64);
        self.ends.shrink_to(MIN_CAPACITY / 64);
    }
}
