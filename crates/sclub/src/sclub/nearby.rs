//! An index of the checked clusters, to find those that may be close enough to merge with.
//!
//! Almost no pair of clusters is ever close enough, and with a thousand clusters a scan of all their
//! estimates would cost more than everything else in a round. So each checked cluster has a short
//! single-precision sketch here, side by side with the others': the first [`AXES`] coordinates of
//! its estimate and its reach, α_θ/2 · F(T). A distance over some of the coordinates is at most the
//! distance over all, so a cluster that its sketch rules out is too far; the rest is tested exactly.
//!
//! Rounding an estimate to single precision moves each coordinate by at most 2⁻²⁴ of itself, and the
//! distance is summed with relative error below 2⁻²⁰. A reach is therefore stored enlarged, by 2⁻²⁰
//! of itself and 2⁻²⁰ of the largest coordinate: more than all of the errors together.

use crate::kernels::near::{AXES, HALF, POINTS as GROUP};
use crate::kernels::{self, Near};

/// Enlarges a reach beyond every rounding error.
const MARGIN: f64 = 1.0 / (1 << 20) as f64;

/// Sketches of the clusters checked in the current phase.
#[derive(Debug, Clone, Default)]
pub(crate) struct Nearby {
    clusters: Vec<u32>,
    /// The first half of the axes, in groups of [`GROUP`] clusters, axis by axis.
    near_axes: Vec<f32>,
    /// The second half, laid out likewise.
    far_axes: Vec<f32>,
    /// Places without a cluster are infinitely far away.
    reaches: Vec<f32>,
}

/// The index of a cluster's sketch in [`Nearby`].
pub(crate) type SketchIndex = u32;

/// A ball that covers a cluster's estimate and reach, on some of the axes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sketch {
    axes: [f32; AXES],
    reach: f32,
}

impl Sketch {
    /// A sketch out of reach of every other.
    const NONE: Sketch = Sketch {
        axes: [f32::INFINITY; AXES],
        reach: 0.0,
    };

    pub fn new(estimate: &[f64], reach: f64) -> Self {
        let mut axes = [0.0; AXES];
        let mut largest = 0.0f64;
        for (axis, &value) in axes.iter_mut().zip(estimate) {
            *axis = value as f32;
            largest = largest.max(value.abs());
        }
        Self {
            axes,
            reach: (reach + MARGIN * (reach + largest)) as f32,
        }
    }
}

impl Nearby {
    /// Removes all sketches: no cluster is checked at the start of a phase.
    pub fn clear(&mut self) {
        self.clusters.clear();
        self.near_axes.clear();
        self.far_axes.clear();
        self.reaches.clear();
    }

    pub fn insert(&mut self, cluster: u32, estimate: &[f64], reach: f64) -> SketchIndex {
        let index = self.clusters.len();
        self.clusters.push(cluster);
        if self.clusters.len() > self.reaches.len() {
            self.reaches.resize(self.reaches.len() + GROUP, 0.0);
            self.near_axes
                .resize(self.near_axes.len() + GROUP * HALF, f32::INFINITY);
            self.far_axes
                .resize(self.far_axes.len() + GROUP * HALF, f32::INFINITY);
        }
        self.put(index, &Sketch::new(estimate, reach));
        index as SketchIndex
    }

    pub fn update(&mut self, index: SketchIndex, estimate: &[f64], reach: f64) {
        self.put(index as usize, &Sketch::new(estimate, reach));
    }

    /// Removes a sketch. The last one moves to its index. Returns the cluster whose sketch moved, if any.
    pub fn remove(&mut self, index: SketchIndex) -> Option<u32> {
        let (index, last) = (index as usize, self.clusters.len() - 1);
        let moved = self.get(last);
        self.put(index, &moved);
        self.put(last, &Sketch::NONE);
        self.clusters.swap_remove(index);
        (index != last).then(|| self.clusters[index])
    }

    /// The clusters that may lie within `reach` plus their own reach of `estimate`: all that do, and
    /// few that do not. The one asked for is among them if it has a sketch.
    pub fn candidates(&self, estimate: &[f64], reach: f64, found: &mut Vec<u32>) {
        let query = Sketch::new(estimate, reach);
        kernels::near(Near {
            query: &query.axes,
            reach: query.reach,
            near_axes: &self.near_axes,
            far_axes: &self.far_axes,
            reaches: &self.reaches,
            found,
        });
        for index in found {
            *index = self.clusters[*index as usize];
        }
    }

    /// The offset of an axis of a cluster in its half.
    fn place(index: usize, axis: usize) -> usize {
        (index / GROUP * HALF + axis % HALF) * GROUP + index % GROUP
    }

    fn put(&mut self, index: usize, sketch: &Sketch) {
        for (axis, &value) in sketch.axes.iter().enumerate() {
            let half = if axis < HALF {
                &mut self.near_axes
            } else {
                &mut self.far_axes
            };
            half[Self::place(index, axis)] = value;
        }
        self.reaches[index] = sketch.reach;
    }

    fn get(&self, index: usize) -> Sketch {
        let axes = std::array::from_fn(|axis| {
            let half = if axis < HALF {
                &self.near_axes
            } else {
                &self.far_axes
            };
            half[Self::place(index, axis)]
        });
        Sketch {
            axes,
            reach: self.reaches[index],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::radius::distance;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn never_misses_a_cluster_within_reach(
            dim in 1usize..30,
            scale in prop::sample::select(vec![1e-6, 1.0, 1e6]),
            points in prop::collection::vec((prop::collection::vec(-1.0f64..1.0, 30), 0.0f64..2.0, any::<bool>()), 1..70),
        ) {
            let mut nearby = Nearby::default();
            let at = |i: usize| points[i].0[..dim].iter().map(|v| v * scale).collect::<Vec<_>>();
            let mut indices: Vec<Option<SketchIndex>> = (0..points.len() as u32)
                .map(|i| Some(nearby.insert(i, &[0.0; 30][..dim], 0.0)))
                .collect();
            for i in 0..points.len() {
                if points[i].2 {
                    nearby.update(indices[i].unwrap(), &at(i), points[i].1 * scale);
                } else if let Some(moved) = nearby.remove(indices[i].take().unwrap()) {
                    // The last one took the index that was freed.
                    let index = nearby.clusters.iter().position(|&c| c == moved).unwrap();
                    indices[moved as usize] = Some(index as SketchIndex);
                }
            }
            let mut found = Vec::new();
            for i in 0..points.len() {
                nearby.candidates(&at(i), points[i].1 * scale, &mut found);
                for j in (0..points.len()).filter(|&j| indices[j].is_some()) {
                    // Just within reach, to the last bit.
                    let apart = distance(&at(i), &at(j));
                    if apart <= (points[i].1 + points[j].1) * scale {
                        prop_assert!(found.contains(&(j as u32)));
                    }
                    nearby.update(indices[j].unwrap(), &at(j), apart);
                    let mut touching = Vec::new();
                    nearby.candidates(&at(i), 0.0, &mut touching);
                    prop_assert!(touching.contains(&(j as u32)));
                    nearby.update(indices[j].unwrap(), &at(j), points[j].1 * scale);
                }
                prop_assert!(found.iter().all(|&j| indices[j as usize].is_some()));
            }
        }
    }
}
