//! Vectors in groups of [`GROUP`], for kernels that handle many users at once.

use crate::items::GROUP;

/// Vectors of one length. Entry k of a group's vectors is contiguous. Lanes without a vector hold zeros.
#[derive(Debug, Clone)]
pub(crate) struct SideBySide {
    length: usize,
    lanes: Vec<f64>,
}

impl SideBySide {
    pub fn new(length: usize) -> Self {
        Self {
            length,
            lanes: Vec::new(),
        }
    }

    /// Makes room for so many vectors.
    pub fn grow(&mut self, vectors: usize) {
        let groups = vectors.div_ceil(GROUP);
        self.lanes.resize(groups * GROUP * self.length, 0.0);
    }

    pub fn set(&mut self, at: usize, vector: &[f64]) {
        let start = at / GROUP * GROUP * self.length + at % GROUP;
        let places = self.lanes[start..].iter_mut().step_by(GROUP);
        for (place, value) in places.zip(&vector[..self.length]) {
            *place = *value;
        }
    }

    pub fn groups(&self) -> std::slice::ChunksExact<'_, f64> {
        self.lanes.chunks_exact(GROUP * self.length)
    }
}
