//! The list of a decision: the policy's, or one that is drawn uniformly; and the probability of each of its items.

use sclub::{Decision, Error, ItemSet, Propensity, UserId, estimate_propensities};

use super::Served;
use super::choose::{Chosen, Draws};
use super::ties::{Ranked, mix, rank, tie_of};

/// Tell the random numbers of one decision from each other.
const WHETHER: u64 = 0x6578_706c_6f72_6531;
const WHICH: u64 = 0x6578_706c_6f72_6532;

/// The candidates of a request.
pub(super) struct Candidates<'a> {
    pub policy: &'a Served,
    pub user: UserId,
    pub items: &'a ItemSet,
    pub k: usize,
    /// Returns true if the item at an index is no candidate.
    pub is_out: &'a dyn Fn(usize) -> bool,
    /// True if ties are broken by the draw. A policy that learns from lists as a whole may choose them in its own way.
    pub breaks_ties: bool,
}

impl Candidates<'_> {
    /// Chooses a list.
    pub fn choose(&self, draws: Draws, chosen: &mut Chosen) -> Result<(), Error> {
        let mut ranked = Ranked::default();
        self.rank(draws.number, &mut ranked)?;
        let share = draws.explore_share;
        if share == 0.0 {
            if let Some(further) = draws.further {
                let list = &ranked.list;
                chosen.propensities =
                    self.propensities(draws.number, further, &ranked, list, true)?;
            }
            chosen.decisions = ranked.list;
            return Ok(());
        }
        let all: Vec<usize> = (0..self.items.len())
            .filter(|&index| !(self.is_out)(index))
            .collect();
        let count = all.len() as f64;
        let is_uniform = fraction(mix(draws.number ^ WHETHER)) < share;
        let shown = match is_uniform {
            true => self.draw_uniformly(draws.number, all)?,
            false => ranked.list.clone(),
        };
        if let Some(further) = draws.further {
            let own = self.propensities(draws.number, further, &ranked, &shown, !is_uniform)?;
            let length = shown.len() as f64;
            let mixed = own.into_iter().map(|own| Propensity {
                list: (1.0 - share) * own.list + share * length / count,
                slot: (1.0 - share) * own.slot + share / count,
            });
            chosen.propensities = mixed.collect();
        }
        chosen.decisions = shown;
        Ok(())
    }

    /// The policy's list for a random number.
    fn rank(&self, draw: u64, ranked: &mut Ranked) -> Result<(), Error> {
        let Self {
            policy,
            user,
            items,
            k,
            is_out,
            breaks_ties,
        } = self;
        if *breaks_ties {
            return rank(policy, draw, *user, items, *k, is_out, ranked);
        }
        policy.recommend_list_drawn(draw, *user, items, *k, is_out, &mut ranked.list)?;
        ranked.tied = vec![1; ranked.list.len()];
        Ok(())
    }

    /// A list that is drawn uniformly, in random order.
    fn draw_uniformly(&self, draw: u64, mut all: Vec<usize>) -> Result<Vec<Decision>, Error> {
        let length = self.k.min(all.len());
        let key = mix(draw ^ WHICH);
        for place in 0..length {
            let rest = all.len() - place;
            let step = (fraction(mix(key ^ place as u64)) * rest as f64) as usize;
            all.swap(place, place + step.min(rest - 1));
        }
        all.truncate(length);
        let mut some = ItemSet::new(self.items.dim())?;
        some.select(self.items, &all)?;
        let mut scores = Vec::new();
        self.policy
            .explain_drawn(draw, self.user, &some, &mut scores)?;
        let scored = all.into_iter().zip(scores);
        Ok(scored
            .map(|(index, score)| Decision { index, score })
            .collect())
    }

    /// The probabilities of items in the policy's list, for a list that is shown. They are exact if the policy does not
    /// draw, else estimated by further draws.
    fn propensities(
        &self,
        draw: u64,
        further: u32,
        ranked: &Ranked,
        shown: &[Decision],
        is_own: bool,
    ) -> Result<Vec<Propensity>, Error> {
        if further == 0 {
            let all = shown.iter().enumerate();
            let all = all.map(|(slot, item)| match self.breaks_ties {
                true => tie_of(ranked, slot, item),
                false => {
                    let is_item = |other: &Decision| other.index == item.index;
                    let certain = |is_there: bool| f64::from(u8::from(is_there));
                    Propensity {
                        list: certain(ranked.list.iter().any(is_item)),
                        slot: certain(ranked.list.get(slot).is_some_and(is_item)),
                    }
                }
            });
            return Ok(all.collect());
        }
        let indices: Vec<usize> = shown.iter().map(|decision| decision.index).collect();
        let mut out = Vec::new();
        if self.breaks_ties && ranked.tied.iter().any(|&tied| tied > 1) {
            let mut other = Ranked::default();
            estimate_propensities(draw, &indices, further, &mut out, |draw, list| {
                self.rank(draw, &mut other)?;
                std::mem::swap(list, &mut other.list);
                Ok(())
            })?;
        } else {
            let (policy, user, items) = (self.policy, self.user, self.items);
            let (k, is_out) = (self.k, self.is_out);
            policy.propensities(draw, user, items, k, is_out, &indices, further, &mut out)?;
        }
        if !is_own {
            // The list shown is not the policy's: in place of a hit for it counts whether the policy's has the item.
            let one = 1.0 / (f64::from(further) + 1.0);
            for (slot, (own, index)) in out.iter_mut().zip(&indices).enumerate() {
                let is_item = |decision: &Decision| decision.index == *index;
                let list = &ranked.list;
                own.list -= one * f64::from(u8::from(!list.iter().any(is_item)));
                own.slot -= one * f64::from(u8::from(!list.get(slot).is_some_and(is_item)));
            }
        }
        Ok(out)
    }
}

/// A number of [0, 1).
fn fraction(word: u64) -> f64 {
    (word >> 11) as f64 / (1u64 << 53) as f64
}
