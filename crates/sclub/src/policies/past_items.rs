//! The bonus of RCLUMB and RSCLUMB for users whose tastes are linear up to an error ε* for each item.
//!
//! It is ε* Σ_s |xᵀS⁻¹x_s| over past items x_s. Its upper bound by Cauchy and Schwarz needs no history: ε* √N [`spread`], with N
//! observations.

use crate::items::{GROUP, Group};
use crate::spec::{Constant, Range, Value};
use crate::statistics::View;
use crate::ucb::Scores;

/// How past items make the bonus.
pub(crate) const HISTORY: Constant = Constant::new(
    "history",
    "The bonus for the error: exact by the past items if all had ids, by an upper bound, or none. The public code comes near \
     none, because it loses the past items when users are parted",
    Range::OneOf(&["items", "bound", "none"]),
    |_, _| Ok(Value::Choice("items")),
);

/// Adds `scale` times a number for each item to the widths and the scores.
pub(crate) fn add_bonus(scores: &mut Scores, scale: f64, bonus: &[f64]) {
    for (lane, bonus) in bonus.iter().enumerate() {
        scores.width[lane] += scale * bonus;
        scores.score[lane] = scores.mean[lane] + scores.width[lane];
    }
}

/// √(xᵀS⁻¹(S − I)S⁻¹x) of each item: xᵀS⁻¹x − ‖S⁻¹x‖² with S⁻¹ = Mᵀ diag(g) M. `solved` is scratch memory.
pub(crate) fn spread(view: View<'_>, group: &Group<'_>, solved: &mut [f64]) -> [f64; GROUP] {
    let (dim, width) = (view.scale.len(), group.width);
    let solved = &mut solved[..dim * width];
    solved.fill(0.0);
    let mut spread = [0.0; GROUP];
    let (mut products, mut scaled) = ([0.0; GROUP], [0.0; GROUP]);
    let mut start = 0;
    for row in 0..dim {
        let (before, own) = group.features.split_at(row * width);
        let (products, scaled) = (&mut products[..width], &mut scaled[..width]);
        let factors = &view.factor[start..start + row];
        start += row;
        products.copy_from_slice(&own[..width]);
        for (factor, x) in factors.iter().zip(before.chunks_exact(width)) {
            for (product, x) in products.iter_mut().zip(x) {
                *product += factor * x;
            }
        }
        for lane in 0..width {
            scaled[lane] = view.scale[row] * products[lane];
            spread[lane] += scaled[lane] * products[lane];
        }
        let (before, own) = solved.split_at_mut(row * width);
        for (factor, sums) in factors.iter().zip(before.chunks_exact_mut(width)) {
            for (sum, scaled) in sums.iter_mut().zip(scaled.iter()) {
                *sum += factor * scaled;
            }
        }
        own[..width].copy_from_slice(scaled);
    }
    for sums in solved.chunks_exact(width) {
        for (spread, sum) in spread.iter_mut().zip(sums) {
            *spread -= sum * sum;
        }
    }
    // Below 0 by rounding only.
    spread.map(|square| square.max(0.0).sqrt())
}
