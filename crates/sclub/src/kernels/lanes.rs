//! The arithmetic of the hot path, written once and compiled for each instruction set by the parent.
//!
//! Every function works element by element in a fixed order with fused multiply-adds, so a result has
//! the same bits whatever the vector width: wider registers only do more independent lanes at once.
//!
//! | symbol | name | meaning |
//! |---|---|---|
//! | S | | regularised Gram matrix, I + Σ x xᵀ |
//! | M | `factor` | unit lower triangular with M S Mᵀ = diag(1/g); rows packed, the unit diagonal left out |
//! | g | `scale` | so that S⁻¹ = Mᵀ diag(g) M |
//! | b | `moment` | Σ y x |
//! | θ̂ | `estimate` | S⁻¹ b |

/// Doubles handled together: one 512-bit register, two 256-bit ones, four 128-bit ones.
pub(crate) const LANES: usize = 8;

pub(super) type Lanes = [f64; LANES];

/// The error of the prediction made before an observation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Surprise {
    /// The reward less its expectation.
    pub error: f64,
    /// 1 + xᵀS⁻¹x, the variance of that error where the noise has variance 1.
    pub variance: f64,
}

#[inline(always)]
fn load(source: &[f64], at: usize) -> Lanes {
    let mut lanes = [0.0; LANES];
    lanes.copy_from_slice(&source[at..at + LANES]);
    lanes
}

#[inline(always)]
fn store(target: &mut [f64], at: usize, lanes: &Lanes) {
    target[at..at + LANES].copy_from_slice(lanes);
}

/// Sum of eight lanes in one fixed order.
#[inline(always)]
pub(super) fn sum(lanes: &Lanes) -> f64 {
    let a = [
        lanes[0] + lanes[4],
        lanes[1] + lanes[5],
        lanes[2] + lanes[6],
        lanes[3] + lanes[7],
    ];
    (a[0] + a[2]) + (a[1] + a[3])
}

#[inline(always)]
pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    let n = a.len().min(b.len());
    let (a, b) = (&a[..n], &b[..n]);
    let mut lanes = [0.0; LANES];
    let whole = n / LANES * LANES;
    for at in (0..whole).step_by(LANES) {
        let (u, v) = (load(a, at), load(b, at));
        for l in 0..LANES {
            lanes[l] = u[l].mul_add(v[l], lanes[l]);
        }
    }
    for l in 0..n - whole {
        lanes[l] = a[whole + l].mul_add(b[whole + l], lanes[l]);
    }
    sum(&lanes)
}

/// target += weight · source
#[inline(always)]
pub(super) fn add_scaled(target: &mut [f64], weight: f64, source: &[f64]) {
    for (t, s) in target.iter_mut().zip(source) {
        *t = weight.mul_add(*s, *t);
    }
}

/// One observation into a block (`factor`, `scale`, `moment`, `estimate` one after another, see
/// [`super::super::statistics`]). `CAPACITY` is at least `dim + LANES`.
///
/// Bierman's update of the factors of S⁻¹ for S + x xᵀ. With p = M x and t₀ = 1:
/// t_{i+1} = t_i + g_i p_i², β_i = g_i p_i / t_{i+1}, g_i ← g_i t_i / t_{i+1}, and row by row
/// M_i ← M_i − p_i s, s ← s + β_i M_i. What is left in s is the gain (S + x xᵀ)⁻¹ x.
///
/// Rows are handled in whole groups of lanes. A group may reach past its row into what is stored
/// behind it; those lanes are written back as they were read.
#[inline(always)]
pub(super) fn observe<const CAPACITY: usize>(
    dim: usize,
    block: &mut [f64],
    item: &[f64],
    reward: f64,
) -> Surprise {
    let triangle = dim * (dim - 1) / 2;
    let item = &item[..dim];
    let mut x = [0.0; CAPACITY];
    x[..dim].copy_from_slice(item);
    let mut p = [0.0; CAPACITY];
    let mut start = 0;
    for i in 0..dim {
        let mut lanes = [0.0; LANES];
        for at in (0..i).step_by(LANES) {
            let (m, v) = (load(block, start + at), load(&x, at));
            for l in 0..LANES {
                let v = if at + l < i { v[l] } else { 0.0 };
                lanes[l] = m[l].mul_add(v, lanes[l]);
            }
        }
        p[i] = sum(&lanes) + x[i];
        start += i;
    }

    let mut beta = [0.0; CAPACITY];
    let variance;
    {
        let scale = &mut block[triangle..triangle + dim];
        let mut t = [0.0; CAPACITY];
        t[0] = 1.0;
        for i in 0..dim {
            t[i + 1] = (scale[i] * p[i]).mul_add(p[i], t[i]);
        }
        variance = t[dim];
        for i in 0..dim {
            let inverse = 1.0 / t[i + 1];
            beta[i] = scale[i] * p[i] * inverse;
            scale[i] *= t[i] * inverse;
        }
    }

    let mut gain = [0.0; CAPACITY];
    start = 0;
    for i in 0..dim {
        let (minus_p, beta) = (-p[i], beta[i]);
        for at in (0..i + 1).step_by(LANES) {
            let (mut m, mut s) = (load(block, start + at), load(&gain, at));
            for l in 0..LANES {
                m[l] = minus_p.mul_add(s[l], m[l]);
                let grown = beta.mul_add(m[l], s[l]);
                let k = at + l;
                s[l] = if k < i {
                    grown
                } else if k == i {
                    beta
                } else {
                    0.0
                };
            }
            store(block, start + at, &m);
            store(&mut gain, at, &s);
        }
        start += i;
    }

    let (moment, estimate) = block[triangle + dim..].split_at_mut(dim);
    let estimate = &mut estimate[..dim];
    let error = reward - dot(item, estimate);
    add_scaled(estimate, error, &gain[..dim]);
    add_scaled(moment, reward, item);
    Surprise { error, variance }
}

/// gram += x xᵀ, lower triangle with its diagonal, rows packed.
#[inline(always)]
pub(super) fn add_outer(dim: usize, gram: &mut [f64], item: &[f64]) {
    let item = &item[..dim];
    let mut start = 0;
    for i in 0..dim {
        add_scaled(&mut gram[start..start + i + 1], item[i], &item[..i + 1]);
        start += i + 1;
    }
}

/// Inverse of a unit lower triangular matrix, both packed by rows without the diagonal.
#[inline(always)]
pub(super) fn invert_unit_lower(dim: usize, source: &[f64], target: &mut [f64]) {
    let mut start = 0;
    for i in 0..dim {
        let (done, rest) = target.split_at_mut(start);
        let row = &mut rest[..i];
        row.fill(0.0);
        let mut above = 0;
        for k in 0..i {
            let weight = -source[start + k];
            add_scaled(&mut row[..k], weight, &done[above..above + k]);
            row[k] += weight;
            above += k;
        }
        start += i;
    }
}

/// Factors of (I + gram)⁻¹: `factor` and `scale`, by way of I + gram = L D Lᵀ. `lower` is scratch
/// for L, `dim * (dim - 1) / 2` long. Returns false, with the outputs unspecified, if the matrix
/// is not positive definite to working precision.
#[inline(always)]
pub(super) fn factorise(
    dim: usize,
    gram: &[f64],
    ridge: f64,
    lower: &mut [f64],
    factor: &mut [f64],
    scale: &mut [f64],
) -> bool {
    let mut start = 0;
    let mut gram_start = 0;
    for i in 0..dim {
        let (done, rest) = lower.split_at_mut(start);
        let row = &mut rest[..i];
        // First row[k] holds L_ik D_k, found by forward substitution; then it is scaled to L_ik.
        let mut above = 0;
        for k in 0..i {
            row[k] = gram[gram_start + k] - dot(&done[above..above + k], &row[..k]);
            above += k;
        }
        let mut pivot = gram[gram_start + i] + ridge;
        for k in 0..i {
            let l = row[k] * scale[k];
            pivot -= l * row[k];
            row[k] = l;
        }
        if !(pivot > 0.0 && pivot.is_finite()) {
            return false;
        }
        scale[i] = 1.0 / pivot;
        start += i;
        gram_start += i + 1;
    }
    invert_unit_lower(dim, lower, factor);
    true
}

/// Σ x xᵀ back from the factors of S⁻¹: gram = L D Lᵀ − I with L = M⁻¹, D = 1/g.
#[inline(always)]
pub(super) fn gram(dim: usize, factor: &[f64], scale: &[f64], lower: &mut [f64], gram: &mut [f64]) {
    invert_unit_lower(dim, factor, lower);
    let mut start = 0;
    let mut gram_start = 0;
    let mut weighted = [0.0; super::MAX_DIM];
    for i in 0..dim {
        let row = &lower[start..start + i];
        for k in 0..i {
            weighted[k] = row[k] / scale[k];
        }
        let mut above = 0;
        for j in 0..i {
            gram[gram_start + j] = dot(&lower[above..above + j], &weighted[..j]) + weighted[j];
            above += j;
        }
        gram[gram_start + i] = dot(row, &weighted[..i]) + 1.0 / scale[i] - 1.0;
        start += i;
        gram_start += i + 1;
    }
}

/// S⁻¹ b = Mᵀ diag(g) M b.
#[inline(always)]
pub(super) fn solve(
    dim: usize,
    factor: &[f64],
    scale: &[f64],
    moment: &[f64],
    estimate: &mut [f64],
) {
    let (moment, estimate) = (&moment[..dim], &mut estimate[..dim]);
    estimate.fill(0.0);
    let mut start = 0;
    for i in 0..dim {
        let row = &factor[start..start + i];
        let z = scale[i] * (dot(row, &moment[..i]) + moment[i]);
        add_scaled(&mut estimate[..i], z, row);
        estimate[i] += z;
        start += i;
    }
}

/// xᵀS⁻¹x = Σ g (M x)², of one item.
#[inline(always)]
pub(super) fn norm(dim: usize, factor: &[f64], scale: &[f64], item: &[f64]) -> f64 {
    let (mut sum, mut start) = (0.0, 0);
    for i in 0..dim {
        let z = dot(&factor[start..start + i], &item[..i]) + item[i];
        sum = (scale[i] * z).mul_add(z, sum);
        start += i;
    }
    sum
}

/// S⁻¹ = Mᵀ diag(g) M, row by row.
#[inline(always)]
pub(super) fn inverse(dim: usize, factor: &[f64], scale: &[f64], target: &mut [f64]) {
    target.fill(0.0);
    let mut row = [0.0; super::MAX_DIM];
    let mut start = 0;
    for i in 0..dim {
        row[..i].copy_from_slice(&factor[start..start + i]);
        row[i] = 1.0;
        for k in 0..=i {
            let weight = scale[i] * row[k];
            add_scaled(&mut target[k * dim..k * dim + i + 1], weight, &row[..i + 1]);
        }
        start += i;
    }
}

/// The square of a matrix, row by row.
#[inline(always)]
pub(super) fn square(dim: usize, source: &[f64], target: &mut [f64]) {
    target.fill(0.0);
    for (row, weights) in target.chunks_exact_mut(dim).zip(source.chunks_exact(dim)) {
        for (&weight, other) in weights.iter().zip(source.chunks_exact(dim)) {
            add_scaled(row, weight, other);
        }
    }
}
