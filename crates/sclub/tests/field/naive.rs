//! Sums of observations solved anew each time: an independent answer for estimates and widths.

/// S = I + Σ x xᵀ and b = Σ y x.
#[derive(Clone)]
pub struct Sums {
    matrix: Vec<Vec<f64>>,
    moment: Vec<f64>,
}

impl Sums {
    pub fn new(dim: usize) -> Self {
        let unit = |i: usize| (0..dim).map(|k| f64::from(u8::from(i == k))).collect();
        Self {
            matrix: (0..dim).map(unit).collect(),
            moment: vec![0.0; dim],
        }
    }

    pub fn observe(&mut self, item: &[f64], reward: f64) {
        for (i, row) in self.matrix.iter_mut().enumerate() {
            for (entry, x) in row.iter_mut().zip(item) {
                *entry += item[i] * x;
            }
            self.moment[i] += reward * item[i];
        }
    }

    /// The sums of some observations.
    pub fn of<'a>(dim: usize, observations: impl Iterator<Item = (&'a [f64], f64)>) -> Self {
        let mut sums = Self::new(dim);
        observations.for_each(|(item, reward)| sums.observe(item, reward));
        sums
    }

    pub fn estimate(&self) -> Vec<f64> {
        self.solve(&self.moment)
    }

    /// √(xᵀS⁻¹x)
    pub fn norm(&self, item: &[f64]) -> f64 {
        dot(item, &self.solve(item)).sqrt()
    }

    /// S⁻¹ v by elimination; S is positive definite, so no pivot is needed.
    fn solve(&self, vector: &[f64]) -> Vec<f64> {
        let dim = vector.len();
        let (mut matrix, mut vector) = (self.matrix.clone(), vector.to_vec());
        for k in 0..dim {
            for i in (0..dim).filter(|&i| i != k) {
                let factor = matrix[i][k] / matrix[k][k];
                let pivot = matrix[k].clone();
                for (entry, own) in matrix[i].iter_mut().zip(pivot) {
                    *entry -= factor * own;
                }
                vector[i] -= factor * vector[k];
            }
        }
        (0..dim).map(|k| vector[k] / matrix[k][k]).collect()
    }
}

pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

pub fn distance(a: &[f64], b: &[f64]) -> f64 {
    let gaps: Vec<f64> = a.iter().zip(b).map(|(x, y)| x - y).collect();
    dot(&gaps, &gaps).sqrt()
}

/// Checks that two vectors are equal up to rounding.
pub fn assert_close(a: &[f64], b: &[f64]) {
    assert!(distance(a, b) < 1e-9, "{a:?} and {b:?}");
}
