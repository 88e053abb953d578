//! The opinions of many users about some items, in single precision: users stand side by side, [`GROUP`] of them.
//!
//! A user's mean of an item is θ̂ᵀx, their width `weight` √(xᵀS⁻¹x), or `weight` xᵀS⁻¹x if `is_squared`. They are a
//! neighbour of the user who is served if |mean − own mean| ≤ width + own width.
//!
//! Sums over at most [`GROUPS`] groups are in single precision, those over all users in double.

use pulp::{Simd, WithSimd};

use super::lanes::LANES;
use crate::items::GROUP;

/// Registers of users that are handled together: all of a group if a register has 16 lanes.
const STRIP: usize = 2;

/// Groups whose sums are in single precision.
const GROUPS: usize = 32;

/// A number for each user of a group.
type Each = [f32; GROUP];

/// The sum over a group in double precision, in one fixed order.
#[inline(always)]
fn total(each: &Each) -> f64 {
    let mut lanes = [0.0; LANES];
    for some in each.as_chunks::<LANES>().0 {
        for l in 0..LANES {
            lanes[l] += f64::from(some[l]);
        }
    }
    super::lanes::sum(&lanes)
}

/// All users in groups. Entry k of the users of a group is contiguous.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Voters<'a> {
    /// θ̂
    pub estimates: &'a [f32],
    /// R, lower triangular with S⁻¹ = RᵀR, rows packed.
    pub roots: &'a [f32],
    /// 1 for each user who is asked, 0 in the other lanes.
    pub asked: &'a [f32],
}

/// Some items, and the opinions of the user who is served.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Questions<'a, const C: usize> {
    /// Feature k of all items is contiguous.
    pub items: &'a [[f32; C]],
    pub means: [f32; C],
    pub widths: [f32; C],
    pub weight: f32,
    pub is_squared: bool,
}

/// One strip of users: mean − own mean and width for each item.
struct Opinions<S: Simd, const C: usize> {
    gaps: [[S::f32s; STRIP]; C],
    widths: [[S::f32s; STRIP]; C],
}

impl<const C: usize> Questions<'_, C> {
    /// mean − own mean of the strip of a group that begins with register `at`.
    #[inline(always)]
    fn gaps<S: Simd>(&self, simd: S, estimates: &[f32], at: usize) -> [[S::f32s; STRIP]; C] {
        let (rows, _) = S::as_simd_f32s(estimates);
        let mut gaps = products::<S, C>(simd, rows, self.items, at);
        for c in 0..C {
            let own = simd.splat_f32s(self.means[c]);
            for r in 0..STRIP {
                gaps[c][r] = simd.sub_f32s(gaps[c][r], own);
            }
        }
        gaps
    }

    /// The opinions of the strip of a group that begins with register `at`; xᵀS⁻¹x = Σ (R x)².
    #[inline(always)]
    fn opinions<S: Simd>(&self, simd: S, group: Voters<'_>, at: usize) -> Opinions<S, C> {
        let gaps = self.gaps(simd, group.estimates, at);
        let (mut roots, _) = S::as_simd_f32s(group.roots);
        let mut widths = [[simd.splat_f32s(0.0); STRIP]; C];
        for i in 0..self.items.len() {
            let (row, rest) = roots.split_at((i + 1) * GROUP / S::F32_LANES);
            roots = rest;
            let z = products::<S, C>(simd, row, self.items, at);
            for c in 0..C {
                for r in 0..STRIP {
                    widths[c][r] = simd.mul_add_f32s(z[c][r], z[c][r], widths[c][r]);
                }
            }
        }
        let weight = simd.splat_f32s(self.weight);
        for width in widths.as_flattened_mut() {
            let form = match self.is_squared {
                true => *width,
                false => simd.sqrt_f32s(*width),
            };
            *width = simd.mul_f32s(weight, form);
        }
        Opinions { gaps, widths }
    }

    /// Whether users are neighbours as to item `c`.
    #[inline(always)]
    fn agrees<S: Simd>(&self, simd: S, c: usize, gap: S::f32s, width: S::f32s) -> S::m32s {
        let limit = simd.add_f32s(width, simd.splat_f32s(self.widths[c]));
        simd.less_than_or_equal_f32s(size(simd, gap), limit)
    }
}

impl<'a> Voters<'a> {
    /// The groups one by one.
    #[inline(always)]
    fn groups(self, dim: usize) -> impl Iterator<Item = Voters<'a>> {
        let estimates = self.estimates.chunks_exact(GROUP * dim);
        let roots = self.roots.chunks_exact(GROUP * (dim * (dim + 1) / 2));
        let all = estimates.zip(roots).zip(self.asked.chunks_exact(GROUP));
        all.map(|((estimates, roots), asked)| Voters {
            estimates,
            roots,
            asked,
        })
    }
}

/// For each item, the number of neighbours and the sums of their gaps, mean − own mean, and widths.
pub(crate) struct Poll<'a, const C: usize> {
    pub voters: Voters<'a>,
    pub questions: Questions<'a, C>,
}

impl<const C: usize> WithSimd for Poll<'_, C> {
    type Output = [[f64; 3]; C];

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Self::Output {
        let (zero, one) = (simd.splat_f32s(0.0), simd.splat_f32s(1.0));
        let mut totals = [[0.0; 3]; C];
        let mut groups = self.voters.groups(self.questions.items.len()).peekable();
        while groups.peek().is_some() {
            let mut sums = [[[0.0; GROUP]; 3]; C];
            for group in groups.by_ref().take(GROUPS) {
                let (asked, _) = S::as_simd_f32s(group.asked);
                for at in (0..asked.len()).step_by(STRIP) {
                    let opinions = self.questions.opinions(simd, group, at);
                    for c in 0..C {
                        let [users, gaps, widths] =
                            sums[c].each_mut().map(|each| strip::<S>(each, at));
                        for r in 0..STRIP {
                            let (gap, width) = (opinions.gaps[c][r], opinions.widths[c][r]);
                            let agrees = self.questions.agrees(simd, c, gap, width);
                            // Lanes that are not asked are 0.
                            let is_asked = simd.select_f32s(agrees, asked[at + r], zero);
                            let counts = simd.less_than_f32s(zero, is_asked);
                            add_if(simd, counts, &mut users[r], one);
                            add_if(simd, counts, &mut gaps[r], gap);
                            add_if(simd, counts, &mut widths[r], width);
                        }
                    }
                }
            }
            for c in 0..C {
                for (total_of, each) in totals[c].iter_mut().zip(&sums[c]) {
                    *total_of += total(each);
                }
            }
        }
        totals
    }
}

/// The users who are neighbours and whose width is below `sure`, in order.
pub(crate) struct SureNeighbours<'a> {
    pub voters: Voters<'a>,
    pub question: Questions<'a, 1>,
    pub sure: f32,
}

impl WithSimd for SureNeighbours<'_> {
    type Output = Vec<usize>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Vec<usize> {
        let (zero, sure) = (simd.splat_f32s(0.0), simd.splat_f32s(self.sure));
        let mut found = Vec::new();
        let groups = self.voters.groups(self.question.items.len());
        for (number, group) in groups.enumerate() {
            let (asked, _) = S::as_simd_f32s(group.asked);
            let mut hits = [0.0; GROUP];
            for at in (0..asked.len()).step_by(STRIP) {
                let opinions = self.question.opinions(simd, group, at);
                let hits = strip::<S>(&mut hits, at);
                for r in 0..STRIP {
                    let (gap, width) = (opinions.gaps[0][r], opinions.widths[0][r]);
                    let agrees = self.question.agrees(simd, 0, gap, width);
                    let hit = simd.select_f32s(agrees, asked[at + r], zero);
                    let is_sure = simd.less_than_f32s(width, sure);
                    hits[r] = simd.select_f32s(is_sure, hit, zero);
                }
            }
            let lanes = (0..GROUP).filter(|&lane| hits[lane] > 0.0);
            found.extend(lanes.map(|lane| number * GROUP + lane));
        }
        found
    }
}

/// Sums from which the average over the neighbours is bounded.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Guesses {
    /// The number of users who are neighbours for certain, and of those who may be, the certain ones included.
    pub certain: f64,
    pub possible: f64,
    /// Σ (mean − own mean) over the certain ones, and over the others who may be if above 0.
    pub gaps: f64,
    /// A lower bound of Σ xᵀS⁻¹x/xᵀx over those who are not neighbours.
    pub ruled_out: f64,
}

/// Bounds for each user. In lanes that are not asked widths are −∞ and eigenvalues 0.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds<'a> {
    /// Bounds on the width, a share of that of a user without observations.
    pub least: &'a [f32],
    pub largest: &'a [f32],
    /// A lower bound of the eigenvalues of S⁻¹.
    pub eigenvalue: &'a [f32],
}

/// Guesses the neighbours by bounds on the widths of all users, for each item.
pub(crate) struct Guess<'a, const C: usize> {
    pub estimates: &'a [f32],
    pub bounds: Bounds<'a>,
    pub questions: Questions<'a, C>,
    /// The width of each item for a user without observations.
    pub full: [f32; C],
}

impl<const C: usize> WithSimd for Guess<'_, C> {
    type Output = [Guesses; C];

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Self::Output {
        let (zero, one) = (simd.splat_f32s(0.0), simd.splat_f32s(1.0));
        let Bounds {
            least,
            largest,
            eigenvalue,
        } = self.bounds;
        let bounds = least.chunks_exact(GROUP).zip(largest.chunks_exact(GROUP));
        let bounds = bounds.zip(eigenvalue.chunks_exact(GROUP));
        let estimates = self
            .estimates
            .chunks_exact(GROUP * self.questions.items.len());
        let mut groups = estimates.zip(bounds).peekable();
        let mut totals = [Guesses::default(); C];
        while groups.peek().is_some() {
            let mut sums = [[[0.0; GROUP]; 4]; C];
            for (estimates, ((least, largest), eigenvalue)) in groups.by_ref().take(GROUPS) {
                let (least, _) = S::as_simd_f32s(least);
                let (largest, _) = S::as_simd_f32s(largest);
                let (eigenvalue, _) = S::as_simd_f32s(eigenvalue);
                for at in (0..least.len()).step_by(STRIP) {
                    let gaps_of = self.questions.gaps(simd, estimates, at);
                    for c in 0..C {
                        let [certain, possible, gaps, ruled_out] =
                            sums[c].each_mut().map(|each| strip::<S>(each, at));
                        let own_width = simd.splat_f32s(self.questions.widths[c]);
                        let full = simd.splat_f32s(self.full[c]);
                        for r in 0..STRIP {
                            let gap = gaps_of[c][r];
                            let size = size(simd, gap);
                            let low = simd.mul_add_f32s(full, least[at + r], own_width);
                            let high = simd.mul_add_f32s(full, largest[at + r], own_width);
                            let is_certain = simd.less_than_or_equal_f32s(size, low);
                            let is_possible = simd.less_than_or_equal_f32s(size, high);
                            add_if(simd, is_certain, &mut certain[r], one);
                            add_if(simd, is_possible, &mut possible[r], one);
                            let above = simd.max_f32s(gap, zero);
                            let above = simd.select_f32s(is_certain, gap, above);
                            add_if(simd, is_possible, &mut gaps[r], above);
                            let out = simd.add_f32s(ruled_out[r], eigenvalue[at + r]);
                            ruled_out[r] = simd.select_f32s(is_possible, ruled_out[r], out);
                        }
                    }
                }
            }
            for (guesses, sums) in totals.iter_mut().zip(&sums) {
                let [certain, possible, gaps, ruled_out] = sums.each_ref().map(total);
                guesses.certain += certain;
                guesses.possible += possible;
                guesses.gaps += gaps;
                guesses.ruled_out += ruled_out;
            }
        }
        totals
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

/// Adds to a sum in the lanes of a mask.
#[inline(always)]
fn add_if<S: Simd>(simd: S, mask: S::m32s, sum: &mut S::f32s, term: S::f32s) {
    *sum = simd.select_f32s(mask, simd.add_f32s(*sum, term), *sum);
}

/// |a|; pulp's is not always inlined.
#[inline(always)]
fn size<S: Simd>(simd: S, a: S::f32s) -> S::f32s {
    simd.max_f32s(a, simd.sub_f32s(simd.splat_f32s(0.0), a))
}

/// A strip of numbers that begins with register `at`.
#[inline(always)]
fn strip<S: Simd>(each: &mut Each, at: usize) -> &mut [S::f32s; STRIP] {
    let strip = &mut S::as_mut_simd_f32s(each).0[at..at + STRIP];
    strip.try_into().expect("STRIP registers")
}

/// The products of rows of users, [`GROUP`] lanes each, with items, for the strip that begins with register `at`. Nothing
/// in the loop can fail, so that sums stay in registers.
#[inline(always)]
fn products<S: Simd, const C: usize>(
    simd: S,
    rows: &[S::f32s],
    items: &[[f32; C]],
    at: usize,
) -> [[S::f32s; STRIP]; C] {
    let mut sums = [[simd.splat_f32s(0.0); STRIP]; C];
    for (row, item) in rows.chunks_exact(GROUP / S::F32_LANES).zip(items) {
        for c in 0..C {
            let x = simd.splat_f32s(item[c]);
            for r in 0..STRIP {
                sums[c][r] = simd.mul_add_f32s(row[at + r], x, sums[c][r]);
            }
        }
    }
    sums
}
