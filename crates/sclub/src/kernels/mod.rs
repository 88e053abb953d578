//! The arithmetic of the hot path, chosen for the machine at run time.
//!
//! [`lanes`], [`score`], [`length`], [`near`] and [`poll`] hold the one source. `pulp` compiles it for each instruction set (AVX-512,
//! AVX2 with FMA, NEON, none) and picks one when it runs. All give the same bits: the operations of
//! a lane and their order are fixed, and a multiply-add is fused in each, in software where the
//! processor has none.

#![allow(
    clippy::needless_range_loop,
    reason = "lanes of several arrays go together, and plain loops over them become vector code"
)]

pub(crate) mod batch;
pub(crate) mod lanes;
pub(crate) mod length;
pub(crate) mod near;
pub(crate) mod pairs;
pub(crate) mod poll;
pub(crate) mod score;

use pulp::{Arch, Simd, WithSimd};

pub(crate) use batch::Batch;
pub(crate) use lanes::{LANES, Surprise};
pub(crate) use length::Lengths;
pub(crate) use near::Near;
pub(crate) use pairs::{Energies, Overlaps};
pub(crate) use poll::{Bounds, Guess, Guesses, Poll, Questions, SureNeighbours, Voters};
pub(crate) use score::Scoring;

/// Largest dimension the library accepts.
pub const MAX_DIM: usize = 512;

/// Scratch on the stack for a dimension of up to 24, up to 120, and up to [`MAX_DIM`].
const SMALL: usize = 24 + LANES;
const MEDIUM: usize = 120 + LANES;
const LARGE: usize = MAX_DIM + LANES;

/// The widest instruction set of the processor.
#[inline(always)]
fn arch() -> Arch {
    #[cfg(test)]
    if WITHOUT_SIMD.get() {
        return Arch::Scalar;
    }
    Arch::new()
}

#[cfg(test)]
thread_local! {
    /// Makes this thread do without vector registers, for tests that compare.
    pub(crate) static WITHOUT_SIMD: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Defines a function that runs another one compiled for the widest registers the processor has.
///
/// A struct carries the arguments across: unlike a closure's body, its method is sure to be inlined
/// where the instruction set is switched on.
macro_rules! dispatched {
    ($(
        fn $name:ident<$life:lifetime>
            ($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? = $body:path;
    )*) => {
        $(
            #[inline]
            pub(crate) fn $name<$life>($($arg: $ty),*) $(-> $ret)? {
                struct Op<$life> {
                    $($arg: $ty,)*
                    borrows: std::marker::PhantomData<&$life ()>,
                }
                impl<$life> WithSimd for Op<$life> {
                    type Output = dispatched!(@output $($ret)?);
                    #[inline(always)]
                    fn with_simd<S: Simd>(self, _: S) -> Self::Output {
                        $body($(self.$arg),*)
                    }
                }
                arch().dispatch(Op { $($arg,)* borrows: std::marker::PhantomData })
            }
        )*
    };
    (@output) => { () };
    (@output $ret:ty) => { $ret };
}

dispatched! {
    fn observe<'a>(dim: usize, block: &'a mut [f64], item: &'a [f64], reward: f64) -> Surprise
        = observe_sized;
    fn add_outer<'a>(dim: usize, gram: &'a mut [f64], item: &'a [f64]) = lanes::add_outer;
    fn factorise<'a>(
        dim: usize,
        gram: &'a [f64],
        ridge: f64,
        lower: &'a mut [f64],
        factor: &'a mut [f64],
        scale: &'a mut [f64],
    ) -> bool = lanes::factorise;
    fn gram<'a>(
        dim: usize,
        factor: &'a [f64],
        scale: &'a [f64],
        lower: &'a mut [f64],
        gram: &'a mut [f64],
    ) = lanes::gram;
    fn solve<'a>(
        dim: usize,
        factor: &'a [f64],
        scale: &'a [f64],
        moment: &'a [f64],
        estimate: &'a mut [f64],
    ) = lanes::solve;
    fn inverse<'a>(dim: usize, factor: &'a [f64], scale: &'a [f64], target: &'a mut [f64])
        = lanes::inverse;
    fn exponentials<'a>(numbers: &'a mut [f64]) = batch::exponentials;
    fn norm<'a>(dim: usize, factor: &'a [f64], scale: &'a [f64], item: &'a [f64]) -> f64
        = lanes::norm;
    fn dot<'a>(a: &'a [f64], b: &'a [f64]) -> f64 = lanes::dot;
    fn add_scaled<'a>(target: &'a mut [f64], weight: f64, source: &'a [f64]) = lanes::add_scaled;
    fn means<'a>(weights: &'a [f64], items: &'a [f64], out: &'a mut [f64]) = batch::means;
    fn square<'a>(dim: usize, source: &'a [f64], target: &'a mut [f64]) = lanes::square;
    fn strangers<'a>(
        means: &'a [f64],
        widths: &'a [f64],
        mean: f64,
        width: f64,
        weight: f64,
    ) -> u64 = poll::strangers;
    fn distances<'a>(centre: &'a [f64], points: &'a [f64], out: &'a mut [f64]) = pairs::distances;
    fn energies<'a>(dim: usize, own: &'a [f64], rows: &'a [&'a [f64]], out: &'a mut Energies)
        = pairs::energies;
    fn images<'a>(
        dim: usize,
        matrix: &'a [f64],
        items: &'a [f64],
        lanes: usize,
        out: &'a mut [f64],
    ) = pairs::images;
}

/// See [`Overlaps`].
#[inline]
pub(crate) fn add_overlaps(overlaps: Overlaps<'_>) {
    arch().dispatch(overlaps);
}

/// See [`batch::Quadratic`].
#[inline]
pub(crate) fn quadratic(dim: usize, matrix: &[f64], items: &[f64], out: &mut [f64]) {
    arch().dispatch(batch::Quadratic {
        dim,
        matrix,
        items,
        out,
    });
}

/// See [`Near`].
#[inline]
pub(crate) fn near(near: Near<'_>) {
    arch().dispatch(near);
}

/// See [`Lengths`].
#[inline]
pub(crate) fn lengths(lengths: Lengths<'_>) {
    arch().dispatch(lengths);
}

/// See [`Poll`].
#[inline]
pub(crate) fn poll<const C: usize>(poll: Poll<'_, C>) -> [[f64; 3]; C] {
    arch().dispatch(poll)
}

/// See [`SureNeighbours`].
#[inline]
pub(crate) fn sure_neighbours(sure: SureNeighbours<'_>) -> Vec<usize> {
    arch().dispatch(sure)
}

/// See [`Guess`].
#[inline]
pub(crate) fn guess<const C: usize>(guess: Guess<'_, C>) -> [Guesses; C] {
    arch().dispatch(guess)
}

/// See [`Scoring`].
#[inline]
pub(crate) fn score(scoring: Scoring<'_>) {
    arch().dispatch(scoring);
}

/// The posteriors of a batch of users.
#[inline]
pub(crate) fn posteriors(posteriors: batch::Posteriors<'_>) {
    arch().dispatch(posteriors);
}

/// Adds the moments of a batch of posteriors, from which the prior is estimated.
#[inline]
pub(crate) fn add_moments(moments: batch::AddMoments<'_>) {
    arch().dispatch(moments);
}

/// Products of rows and coefficients.
#[inline]
pub(crate) fn products(products: batch::Products<'_>) {
    arch().dispatch(products);
}

/// Adds four weighted rows.
#[inline]
pub(crate) fn add_four(four: batch::AddFour<'_>) {
    arch().dispatch(four);
}

#[inline(always)]
fn observe_sized(dim: usize, block: &mut [f64], item: &[f64], reward: f64) -> Surprise {
    if dim + LANES <= SMALL {
        lanes::observe::<SMALL>(dim, block, item, reward)
    } else if dim + LANES <= MEDIUM {
        lanes::observe::<MEDIUM>(dim, block, item, reward)
    } else {
        lanes::observe::<LARGE>(dim, block, item, reward)
    }
}

#[cfg(test)]
mod tests;
