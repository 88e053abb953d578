//! Ties: items of equal score are ordered by the decision's random number, never by position.
//!
//! Scores that differ by rounding errors only count as equal. So items of the same length, which a policy that has learned
//! nothing cannot tell apart, have the same chance.

use sclub::{Decision, Error, ItemSet, Propensity, Score, UserId};

use super::Served;

/// The number of low bits of a score that may be rounding errors: about 4·10⁻¹³ of it.
const ROUNDED_BITS: u32 = 11;

/// Tells the random number for ties from others of the same decision.
const PURPOSE: u64 = 0x7469_6573_7469_6573;

/// The order of items of equal score.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Ties {
    /// By the decision's random number.
    #[default]
    Draw,
    /// By the policy: scores are compared to the last bit, and of equal ones the first candidate comes first.
    Order,
}

/// The ranking of a list by one draw.
#[derive(Debug, Default)]
pub struct Ranked {
    /// The items, best first.
    pub list: Vec<Decision>,
    /// For each item of the list, the number of candidates with its score, itself included.
    pub tied: Vec<usize>,
}

/// Chooses the best `k` items. Those of equal score come in random order, and if not all of them fit, each has the same
/// chance.
///
/// # Errors
/// As [`sclub::Policy::recommend`].
pub fn rank(
    policy: &Served,
    draw: u64,
    user: UserId,
    items: &ItemSet,
    k: usize,
    is_out: &dyn Fn(usize) -> bool,
    ranked: &mut Ranked,
) -> Result<(), Error> {
    let Ranked { list, tied } = ranked;
    tied.clear();
    policy.recommend_list_drawn(draw, user, items, k + 1, is_out, list)?;
    let order = |decision: &Decision| (priority(draw, decision.index), decision.index);
    if let Some(next) = list.get(k)
        && k > 0
        && key(&list[k - 1].score) == key(&next.score)
    {
        // Not all items of the last score fit.
        let last = key(&next.score);
        let above = list
            .iter()
            .take_while(|own| key(&own.score) != last)
            .count();
        let mut scores = Vec::new();
        policy.explain_drawn(draw, user, items, &mut scores)?;
        let all = scores.iter().enumerate();
        let all = all.filter(|&(index, score)| key(score) == last && !is_out(index));
        let mut equal: Vec<Decision> = all
            .map(|(index, &score)| Decision { index, score })
            .collect();
        let count = equal.len();
        let wanted = (k - above).min(count);
        if wanted < count && wanted > 0 {
            equal.select_nth_unstable_by_key(wanted - 1, order);
        }
        list.truncate(above);
        list.extend_from_slice(&equal[..wanted]);
        count_ties(list, tied);
        tied[above..].fill(count);
    } else {
        list.truncate(k);
        count_ties(list, tied);
    }
    // Within the list, items of equal score stand side by side.
    let mut start = 0;
    while start < list.len() {
        let first = key(&list[start].score);
        let rest = &list[start..];
        let end = start
            + rest
                .iter()
                .take_while(|own| key(&own.score) == first)
                .count();
        list[start..end].sort_unstable_by_key(order);
        start = end.max(start + 1);
    }
    Ok(())
}

/// For each item of a list, the number of items in it with the same score.
fn count_ties(list: &[Decision], tied: &mut Vec<usize>) {
    for run in list.chunk_by(|a, b| key(&a.score) == key(&b.score)) {
        tied.extend(std::iter::repeat_n(run.len(), run.len()));
    }
}

/// The probabilities of an item that is shown in a slot, over the order of ties in a policy's list.
pub fn tie_of(ranked: &Ranked, slot: usize, item: &Decision) -> Propensity {
    let own = key(&item.score);
    let mut slots = (0..)
        .zip(&ranked.list)
        .filter(|(_, other)| key(&other.score) == own);
    let Some((first, _)) = slots.next() else {
        return Propensity {
            list: 0.0,
            slot: 0.0,
        };
    };
    let count = 1 + slots.count();
    let tied = ranked.tied[first] as f64;
    Propensity {
        list: count as f64 / tied,
        slot: f64::from(u8::from((first..first + count).contains(&slot))) / tied,
    }
}

/// The place of an item among items of the same score.
fn priority(draw: u64, index: usize) -> u64 {
    mix(mix(draw ^ PURPOSE) ^ index as u64)
}

/// The score without the bits that may be rounding errors, rounded to the nearest.
fn key(score: &Score) -> u64 {
    // 0 and -0 are equal.
    let bits = (score.score + 0.0).to_bits();
    bits.wrapping_add(1 << (ROUNDED_BITS - 1)) >> ROUNDED_BITS
}

/// A hash of a word in which every bit depends on every bit (the finalizer of SplitMix64).
pub fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
