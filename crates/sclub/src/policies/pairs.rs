//! A symmetric relation between users, a bit for each pair, and the components of such a relation.
//!
//! A row of bits is as long as the last bit set in it needs: n² bits for n users at the most.

use crate::bytes::Writer;

/// The pairs of slots in the relation.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pairs {
    rows: Vec<Vec<u64>>,
}

impl Pairs {
    /// True if the pair is in the relation.
    pub fn contains(&self, a: usize, b: usize) -> bool {
        let row = self.rows.get(a);
        let word = row.and_then(|row| row.get(b / 64));
        word.is_some_and(|word| word >> (b % 64) & 1 == 1)
    }

    /// Adds a pair.
    pub fn insert(&mut self, a: usize, b: usize) {
        for (a, b) in [(a, b), (b, a)] {
            if self.rows.len() <= a {
                self.rows.resize(a + 1, Vec::new());
            }
            let row = &mut self.rows[a];
            if row.len() <= b / 64 {
                row.resize(b / 64 + 1, 0);
            }
            row[b / 64] |= 1 << (b % 64);
        }
    }

    /// The slots related to `a`, as words of bits. The last word is not 0.
    pub fn of(&self, a: usize) -> &[u64] {
        self.rows.get(a).map_or(&[], Vec::as_slice)
    }

    pub fn save(&self, writer: &mut Writer<'_>) -> std::io::Result<()> {
        writer.word(self.rows.len() as u64)?;
        let mut rows = self.rows.iter();
        rows.try_for_each(|row| writer.words(row.iter().copied()))
    }
}

/// The connected components of a graph with `len` nodes, the one with the first node first, nodes in order. The
/// edges of a node are those of its `candidates` that are `connected` to it.
pub(crate) fn components<'a>(
    len: usize,
    candidates: impl Fn(u32) -> &'a Vec<u32>,
    connected: impl Fn(usize, usize) -> bool,
) -> Vec<Vec<u32>> {
    let mut is_found = vec![false; len];
    let mut all = Vec::new();
    for start in 0..len as u32 {
        if std::mem::replace(&mut is_found[start as usize], true) {
            continue;
        }
        let mut part = vec![start];
        let mut next = 0;
        while let Some(&node) = part.get(next) {
            next += 1;
            for &other in candidates(node) {
                if !is_found[other as usize] && connected(node as usize, other as usize) {
                    is_found[other as usize] = true;
                    part.push(other);
                }
            }
        }
        part.sort_unstable();
        all.push(part);
    }
    all
}
