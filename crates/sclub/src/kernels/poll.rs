//! The opinions of many users about one or two items: users stand side by side, [`GROUP`] of them.
//!
//! A user's mean of an item is θ̂ᵀx, their width `weight` √(xᵀS⁻¹x), or `weight` xᵀS⁻¹x if `is_squared`. They are a
//! neighbour of the user who is served if |mean − own mean| ≤ width + own width.

use pulp::{Simd, WithSimd};

use super::lanes::{LANES, sum};
use crate::items::GROUP;

/// Registers of users that are handled together: all of a group if a register has 8 lanes.
const STRIP: usize = 4;

/// A number for each user of a group.
type Each = [f64; GROUP];

fn total(each: &Each) -> f64 {
    let mut lanes = [0.0; LANES];
    for some in each.as_chunks::<LANES>().0 {
        for l in 0..LANES {
            lanes[l] += some[l];
        }
    }
    sum(&lanes)
}

/// Users side by side. Entry k of all of them is contiguous.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Voters<'a> {
    /// Users in the group; the other lanes are skipped.
    pub len: usize,
    /// θ̂
    pub estimates: &'a [f64],
}

impl Voters<'_> {
    /// 1 for each user.
    #[inline(always)]
    fn ones(&self) -> Each {
        std::array::from_fn(|lane| if lane < self.len { 1.0 } else { 0.0 })
    }
}

/// Some items, and the opinions of the user who is served.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Questions<'a, const C: usize> {
    /// Feature k of all items is contiguous.
    pub items: &'a [[f64; C]],
    pub means: [f64; C],
    pub widths: [f64; C],
}

/// Sums over the neighbours.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Votes {
    users: Each,
    means: Each,
    widths: Each,
}

impl Votes {
    pub fn none() -> Self {
        Self {
            users: [0.0; GROUP],
            means: [0.0; GROUP],
            widths: [0.0; GROUP],
        }
    }

    /// The number of neighbours, and the sums of their means and widths.
    pub fn sums(&self) -> [f64; 3] {
        [&self.users, &self.means, &self.widths].map(total)
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
    pub questions: Questions<'a, C>,
    pub votes: &'a mut [Votes; C],
}

impl<const C: usize> WithSimd for Poll<'_, C> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Questions {
            items,
            means: own_means,
            widths: own_widths,
        } = self.questions;
        let zero = simd.splat_f64s(0.0);
        let weight = simd.splat_f64s(self.weight);
        let ones = self.voters.ones();
        let (ones, _) = S::as_simd_f64s(&ones);
        for at in (0..ones.len()).step_by(STRIP) {
            let means = means::<S, C>(simd, self.voters.estimates, items, at);
            let norms = norms::<S, C>(simd, self.factors, items, at);
            for c in 0..C {
                let votes = &mut self.votes[c];
                let [users, sums, widths] = [&mut votes.users, &mut votes.means, &mut votes.widths]
                    .map(|each| strip::<S>(each, at));
                let own_mean = simd.splat_f64s(own_means[c]);
                let own_width = simd.splat_f64s(own_widths[c]);
                for r in 0..STRIP {
                    let (mean, norm, one) = (means[c][r], norms[c][r], ones[at + r]);
                    let norm = match self.is_squared {
                        true => norm,
                        false => simd.sqrt_f64s(norm),
                    };
                    let width = simd.mul_f64s(weight, norm);
                    let gap = size(simd, simd.sub_f64s(mean, own_mean));
                    let limit = simd.add_f64s(width, own_width);
                    let agrees = simd.less_than_or_equal_f64s(gap, limit);
                    let one = simd.select_f64s(agrees, one, zero);
                    let counts = simd.less_than_f64s(zero, one);
                    let mean = simd.select_f64s(counts, mean, zero);
                    let width = simd.select_f64s(counts, width, zero);
                    users[r] = simd.add_f64s(users[r], one);
                    sums[r] = simd.add_f64s(sums[r], mean);
                    widths[r] = simd.add_f64s(widths[r], width);
                }
            }
        }
    }
}

/// Sums from which the average over the neighbours is bounded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Guesses {
    certain: Each,
    possible: Each,
    gaps: Each,
    excess: Each,
    ruled_out: Each,
}

impl Guesses {
    pub fn none() -> Self {
        let none = [0.0; GROUP];
        Self {
            certain: none,
            possible: none,
            gaps: none,
            excess: none,
            ruled_out: none,
        }
    }

    /// The number of users who are neighbours for certain, that of users who may be, Σ (mean − own mean) over the certain
    /// ones, Σ of those above 0 over the others who may be, and a lower bound of Σ xᵀS⁻¹x/xᵀx over those who are not.
    pub fn sums(&self) -> [f64; 5] {
        let all = [&self.certain, &self.possible, &self.gaps];
        let [certain, possible, gaps] = all.map(total);
        [
            certain,
            possible,
            gaps,
            total(&self.excess),
            total(&self.ruled_out),
        ]
    }
}

/// Adds the users of a group to the guesses of each item, by bounds on their widths.
pub(crate) struct Guess<'a, const C: usize> {
    pub voters: Voters<'a>,
    /// Bounds on the eigenvalues of S⁻¹ of each user; their roots unless `is_squared`.
    pub least: &'a [f64],
    pub largest: &'a [f64],
    pub is_squared: bool,
    pub questions: Questions<'a, C>,
    /// The width of each item for a user without observations.
    pub full: [f64; C],
    pub guesses: &'a mut [Guesses; C],
}

impl<const C: usize> WithSimd for Guess<'_, C> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Questions {
            items,
            means: own_means,
            widths: own_widths,
        } = self.questions;
        let zero = simd.splat_f64s(0.0);
        let ones = self.voters.ones();
        let (ones, _) = S::as_simd_f64s(&ones);
        let (least, _) = S::as_simd_f64s(&self.least[..GROUP]);
        let (largest, _) = S::as_simd_f64s(&self.largest[..GROUP]);
        for at in (0..ones.len()).step_by(STRIP) {
            let means = means::<S, C>(simd, self.voters.estimates, items, at);
            for c in 0..C {
                let guesses = &mut self.guesses[c];
                let [certain, possible, gaps, excess, ruled_out] = [
                    &mut guesses.certain,
                    &mut guesses.possible,
                    &mut guesses.gaps,
                    &mut guesses.excess,
                    &mut guesses.ruled_out,
                ]
                .map(|each| strip::<S>(each, at));
                let own_mean = simd.splat_f64s(own_means[c]);
                let own_width = simd.splat_f64s(own_widths[c]);
                let full = simd.splat_f64s(self.full[c]);
                for r in 0..STRIP {
                    let (low, high, one) = (least[at + r], largest[at + r], ones[at + r]);
                    let gap = simd.sub_f64s(means[c][r], own_mean);
                    let size = size(simd, gap);
                    let low_limit = simd.mul_add_f64s(full, low, own_width);
                    let high_limit = simd.mul_add_f64s(full, high, own_width);
                    let is_certain = simd.less_than_or_equal_f64s(size, low_limit);
                    let is_possible = simd.less_than_or_equal_f64s(size, high_limit);
                    let sure = simd.select_f64s(is_certain, one, zero);
                    let maybe = simd.select_f64s(is_possible, one, zero);
                    certain[r] = simd.add_f64s(certain[r], sure);
                    possible[r] = simd.add_f64s(possible[r], maybe);
                    gaps[r] = simd.mul_add_f64s(sure, gap, gaps[r]);
                    let above = simd.max_f64s(gap, zero);
                    let unsure = simd.sub_f64s(maybe, sure);
                    excess[r] = simd.mul_add_f64s(unsure, above, excess[r]);
                    let eigenvalue = match self.is_squared {
                        true => low,
                        false => simd.mul_f64s(low, low),
                    };
                    let out = simd.sub_f64s(one, maybe);
                    ruled_out[r] = simd.mul_add_f64s(out, eigenvalue, ruled_out[r]);
                }
            }
        }
    }
}

/// The users, 64 at most, who disagree with one of them about an item, as bits. Widths are without `weight`.
#[inline(always)]
pub(super) fn strangers(means: &[f64], widths: &[f64], mean: f64, width: f64, weight: f64) -> u64 {
    let own = weight * width;
    let users = means.len().min(64);
    let (means, widths) = (&means[..users], &widths[..users]);
    // A word for each user: lanes of several arrays become vector code, bits of one word do not.
    let mut words = [0; 64];
    let some = &mut words[..users];
    for user in 0..users {
        let gap = (means[user] - mean).abs();
        let is_stranger = gap > weight.mul_add(widths[user], own);
        some[user] = u64::from(is_stranger) << user;
    }
    words.iter().fold(0, |bits, word| bits | word)
}

/// |a|; pulp's is not always inlined.
#[inline(always)]
fn size<S: Simd>(simd: S, a: S::f64s) -> S::f64s {
    simd.max_f64s(a, simd.sub_f64s(simd.splat_f64s(0.0), a))
}

/// A strip of numbers that begins with register `at`.
#[inline(always)]
fn strip<S: Simd>(each: &mut Each, at: usize) -> &mut [S::f64s; STRIP] {
    let strip = &mut S::as_mut_simd_f64s(each).0[at..at + STRIP];
    strip.try_into().expect("STRIP registers")
}

/// θ̂ᵀx of a strip of users that begins with register `at`, for each item.
#[inline(always)]
fn means<S: Simd, const C: usize>(
    simd: S,
    estimates: &[f64],
    items: &[[f64; C]],
    at: usize,
) -> [[S::f64s; STRIP]; C] {
    let (estimates, _) = S::as_simd_f64s(estimates);
    let rows = estimates.chunks_exact(GROUP / S::F64_LANES);
    add_products(simd, rows, items, [[simd.splat_f64s(0.0); STRIP]; C], at)
}

/// xᵀS⁻¹x = Σ g (M x)² of a strip of users that begins with register `at`, for each item.
#[inline(always)]
fn norms<S: Simd, const C: usize>(
    simd: S,
    factors: &[f64],
    items: &[[f64; C]],
    at: usize,
) -> [[S::f64s; STRIP]; C] {
    let dim = items.len();
    let (factors, _) = S::as_simd_f64s(factors);
    let width = GROUP / S::F64_LANES;
    let (mut factors, scales) = factors.split_at(dim * (dim - 1) / 2 * width);
    let mut sums = [[simd.splat_f64s(0.0); STRIP]; C];
    for (i, (scale, item)) in scales.chunks_exact(width).zip(items).enumerate() {
        let (rows, rest) = factors.split_at(i * width);
        factors = rest;
        let own = item.map(|x| [simd.splat_f64s(x); STRIP]);
        let z = add_products(simd, rows.chunks_exact(width), items, own, at);
        for c in 0..C {
            for r in 0..STRIP {
                let scaled = simd.mul_f64s(scale[at + r], z[c][r]);
                sums[c][r] = simd.mul_add_f64s(scaled, z[c][r], sums[c][r]);
            }
        }
    }
    sums
}

/// Adds the products of rows of users and features of items to sums. Nothing in the loop can fail, so that sums stay in
/// registers.
#[inline(always)]
fn add_products<'a, S: Simd, const C: usize>(
    simd: S,
    rows: impl Iterator<Item = &'a [S::f64s]>,
    items: &[[f64; C]],
    mut sums: [[S::f64s; STRIP]; C],
    at: usize,
) -> [[S::f64s; STRIP]; C]
where
    S::f64s: 'a,
{
    for (row, item) in rows.zip(items) {
        for c in 0..C {
            let x = simd.splat_f64s(item[c]);
            for r in 0..STRIP {
                sums[c][r] = simd.mul_add_f64s(row[at + r], x, sums[c][r]);
            }
        }
    }
    sums
}
