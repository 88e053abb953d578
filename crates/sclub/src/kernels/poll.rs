//! The opinions of many users about one or two items: users stand side by side, [`GROUP`] of them.
//!
//! A user's mean of an item is θ̂ᵀx, their width `weight` √(xᵀS⁻¹x), or `weight` xᵀS⁻¹x if `is_squared`. They are a
//! neighbour of the user who is served if |mean − own mean| ≤ width + own width.

use pulp::{Simd, WithSimd};

use super::lanes::{Lanes, sum};
use crate::items::GROUP;

/// Registers of users that are handled together: all of a group if a register has 8 lanes.
const STRIP: usize = 4;

/// An item, and the opinion of the user who is served.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question<'a> {
    pub item: &'a [f64],
    pub mean: f64,
    pub width: f64,
}

/// Users side by side. Entry k of all of them is contiguous.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Voters<'a> {
    /// Users in the group; the other lanes are skipped.
    pub len: usize,
    /// θ̂
    pub estimates: &'a [f64],
}

/// Sums over the neighbours, by lanes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Votes {
    users: Lanes,
    means: Lanes,
    widths: Lanes,
}

impl Votes {
    /// The number of neighbours, and the sums of their means and widths.
    pub fn sums(&self) -> [f64; 3] {
        [sum(&self.users), sum(&self.means), sum(&self.widths)]
    }
}

/// Adds the neighbours of a group to the votes of each item.
///
/// `factors` has the users' M, then g ([`super::lanes`]). Means and widths have the bits of [`super::Scoring`].
pub(crate) struct Poll<'a, const C: usize> {
    pub voters: Voters<'a>,
    pub factors: &'a [f64],
    pub weight: f64,
    pub is_squared: bool,
    pub questions: [Question<'a>; C],
    pub votes: &'a mut [Votes; C],
}

impl<const C: usize> WithSimd for Poll<'_, C> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let items = self.questions.map(|question| question.item);
        let means = means::<S, C>(simd, self.voters.estimates, items);
        let norms = norms::<S, C>(simd, self.factors, items);
        for c in 0..C {
            let (own, votes) = (self.questions[c], &mut self.votes[c]);
            for lane in 0..GROUP {
                let (mean, norm) = (means[c][lane], norms[c][lane]);
                let root = norm.sqrt();
                let width = self.weight * if self.is_squared { norm } else { root };
                let agrees = (mean - own.mean).abs() <= width + own.width;
                let agrees = agrees & (lane < self.voters.len);
                let place = lane % super::LANES;
                votes.users[place] += if agrees { 1.0 } else { 0.0 };
                votes.means[place] += if agrees { mean } else { 0.0 };
                votes.widths[place] += if agrees { width } else { 0.0 };
            }
        }
    }
}

/// Sums from which the average over the neighbours is bounded, by lanes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Guesses {
    certain: Lanes,
    possible: Lanes,
    gaps: Lanes,
    excess: Lanes,
    ruled_out: Lanes,
}

impl Guesses {
    /// The users who are neighbours for certain, those who may be, Σ (mean − own mean) over the certain ones, Σ of those
    /// above 0 over the others who may be, and a lower bound of Σ xᵀS⁻¹x/xᵀx over those who are not.
    pub fn sums(&self) -> [f64; 5] {
        let all = [
            &self.certain,
            &self.possible,
            &self.gaps,
            &self.excess,
            &self.ruled_out,
        ];
        all.map(sum)
    }
}

/// Adds the users of a group to the guesses of each item, by bounds on their widths.
pub(crate) struct Guess<'a, const C: usize> {
    pub voters: Voters<'a>,
    /// Bounds on the eigenvalues of S⁻¹ of each user; their roots unless `is_squared`.
    pub least: &'a [f64],
    pub largest: &'a [f64],
    pub is_squared: bool,
    pub questions: [Question<'a>; C],
    /// The width of each item for a user without observations.
    pub full: [f64; C],
    pub guesses: &'a mut [Guesses; C],
}

impl<const C: usize> WithSimd for Guess<'_, C> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let items = self.questions.map(|question| question.item);
        let means = means::<S, C>(simd, self.voters.estimates, items);
        let (least, largest) = (&self.least[..GROUP], &self.largest[..GROUP]);
        for c in 0..C {
            let (own, full, guesses) = (self.questions[c], self.full[c], &mut self.guesses[c]);
            for lane in 0..GROUP {
                let is_there = lane < self.voters.len;
                let gap = means[c][lane] - own.mean;
                let (low, high) = (least[lane], largest[lane]);
                let is_certain = is_there & (gap.abs() <= own.width + full * low);
                let is_possible = is_there & (gap.abs() <= own.width + full * high);
                let eigenvalue = if self.is_squared { low } else { low * low };
                let place = lane % super::LANES;
                guesses.certain[place] += if is_certain { 1.0 } else { 0.0 };
                guesses.possible[place] += if is_possible { 1.0 } else { 0.0 };
                guesses.gaps[place] += if is_certain { gap } else { 0.0 };
                let is_above = is_possible & !is_certain & (gap > 0.0);
                guesses.excess[place] += if is_above { gap } else { 0.0 };
                let is_out = is_there & !is_possible;
                guesses.ruled_out[place] += if is_out { eigenvalue } else { 0.0 };
            }
        }
    }
}

/// The users, 64 at most, who disagree with one of them about an item, as bits. Widths are without `weight`.
#[inline(always)]
pub(super) fn strangers(
    means: &[f64],
    widths: &[f64],
    mean: f64,
    width: f64,
    weight: f64,
) -> u64 {
    let own = weight * width;
    let mut bits = 0;
    for (place, (their_mean, their_width)) in means.iter().zip(widths).enumerate() {
        let gap = (their_mean - mean).abs();
        bits |= u64::from(gap > weight.mul_add(*their_width, own)) << place;
    }
    bits
}

#[inline(always)]
fn register<S: Simd>(row: &[S::f64s], at: usize) -> &[S::f64s; STRIP] {
    row[at..at + STRIP].try_into().expect("STRIP registers")
}

/// θ̂ᵀx of each user of a group, for each item.
#[inline(always)]
fn means<S: Simd, const C: usize>(
    simd: S,
    estimates: &[f64],
    items: [&[f64]; C],
) -> [[f64; GROUP]; C] {
    let (estimates, _) = S::as_simd_f64s(estimates);
    let width = GROUP / S::F64_LANES;
    let items = items.map(|item| &item[..estimates.len() / width]);
    let mut out = [[0.0; GROUP]; C];
    for at in (0..width).step_by(STRIP) {
        let mut sums = [[simd.splat_f64s(0.0); STRIP]; C];
        for (k, row) in estimates.chunks_exact(width).enumerate() {
            let weights = register::<S>(row, at);
            for c in 0..C {
                let x = simd.splat_f64s(items[c][k]);
                for r in 0..STRIP {
                    sums[c][r] = simd.mul_add_f64s(weights[r], x, sums[c][r]);
                }
            }
        }
        for c in 0..C {
            S::as_mut_simd_f64s(&mut out[c]).0[at..at + STRIP].copy_from_slice(&sums[c]);
        }
    }
    out
}

/// xᵀS⁻¹x = Σ g (M x)² of each user of a group, for each item.
#[inline(always)]
fn norms<S: Simd, const C: usize>(
    simd: S,
    factors: &[f64],
    items: [&[f64]; C],
) -> [[f64; GROUP]; C] {
    let dim = items[0].len();
    let items = items.map(|item| &item[..dim]);
    let (factors, _) = S::as_simd_f64s(factors);
    let width = GROUP / S::F64_LANES;
    let (factors, scales) = factors.split_at(dim * (dim - 1) / 2 * width);
    let mut out = [[0.0; GROUP]; C];
    for at in (0..width).step_by(STRIP) {
        let mut sums = [[simd.splat_f64s(0.0); STRIP]; C];
        let mut rest = factors;
        for (i, scale) in scales.chunks_exact(width).enumerate() {
            let (rows, after) = rest.split_at(i * width);
            rest = after;
            let mut z = items.map(|item| [simd.splat_f64s(item[i]); STRIP]);
            for (k, row) in rows.chunks_exact(width).enumerate() {
                let m = register::<S>(row, at);
                for c in 0..C {
                    let x = simd.splat_f64s(items[c][k]);
                    for r in 0..STRIP {
                        z[c][r] = simd.mul_add_f64s(m[r], x, z[c][r]);
                    }
                }
            }
            let g = register::<S>(scale, at);
            for c in 0..C {
                for r in 0..STRIP {
                    let scaled = simd.mul_f64s(g[r], z[c][r]);
                    sums[c][r] = simd.mul_add_f64s(scaled, z[c][r], sums[c][r]);
                }
            }
        }
        for c in 0..C {
            S::as_mut_simd_f64s(&mut out[c]).0[at..at + STRIP].copy_from_slice(&sums[c]);
        }
    }
    out
}
