//! Vectors in groups of [`GROUP`], for kernels that handle many users at once.

use crate::items::GROUP;

/// Vectors of one length. Entry k of a group's vectors is contiguous. Lanes without a vector hold zeros.
#[derive(Debug, Clone)]
pub(crate) struct SideBySide<T = f64> {
    length: usize,
    lanes: Vec<T>,
}

impl<T: Copy + Default> SideBySide<T> {
    pub fn new(length: usize) -> Self {
        Self {
            length,
            lanes: Vec::new(),
        }
    }

    /// Makes room for so many vectors.
    pub fn grow(&mut self, vectors: usize) {
        let groups = vectors.div_ceil(GROUP);
        self.lanes
            .resize(groups * GROUP * self.length, T::default());
    }

    pub fn set(&mut self, at: usize, vector: &[T]) {
        let start = at / GROUP * GROUP * self.length + at % GROUP;
        let places = self.lanes[start..].iter_mut().step_by(GROUP);
        for (place, value) in places.zip(&vector[..self.length]) {
            *place = *value;
        }
    }

    /// All groups, one after another.
    pub fn lanes(&self) -> &[T] {
        &self.lanes
    }

    pub fn groups(&self) -> std::slice::ChunksExact<'_, T> {
        self.lanes.chunks_exact(GROUP * self.length)
    }
}
