//! The choice of items for a user: a read of the state.

use sclub::{ClusterId, Decision, Error, ItemSet, Propensity, UserId};

use super::catalogue::SlotSet;
use super::explore::Candidates;
use super::ties::Ties;
use super::{Catalogue, State, UNSEEN_USER};

/// The candidates to choose from.
#[derive(Debug)]
pub enum Choice<'a> {
    /// Items of the catalogue, by slot.
    Slots(&'a [usize]),
    /// Items that came with the request, except some positions.
    Inline {
        /// The items.
        items: &'a ItemSet,
        /// The positions to exclude, in rising order.
        exclude: &'a [usize],
    },
    /// The whole catalogue, or a part of it.
    All {
        /// The slots to choose from; all if it is `None`.
        among: Option<&'a SlotSet>,
        /// The slots to exclude, in rising order.
        exclude: &'a [usize],
    },
}

impl Choice<'_> {
    /// Returns true if the item at an index is no candidate.
    fn is_out(&self, index: usize) -> bool {
        match self {
            Choice::Slots(_) => false,
            Choice::Inline { exclude, .. } => exclude.binary_search(&index).is_ok(),
            Choice::All { among, exclude } => {
                among.is_some_and(|among| !among.contains(index))
                    || exclude.binary_search(&index).is_ok()
            }
        }
    }
}

/// The items chosen for a user.
#[derive(Debug, Default)]
pub struct Chosen {
    /// The chosen candidates, best first. The index is the position among the candidates, or the slot in
    /// the catalogue.
    pub decisions: Vec<Decision>,
    /// The cluster that the user is served from; 0 if there is none.
    pub cluster: ClusterId,
    /// The number of users in that cluster.
    pub cluster_users: u64,
    /// The probabilities of each chosen candidate; empty if they were not asked for.
    pub propensities: Vec<Propensity>,
}

/// The random part of a choice.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Draws {
    /// The random number of the decision ([`sclub::Policy::recommend_drawn`]).
    pub number: u64,
    /// The number of further draws to estimate propensities from; `None` computes no propensities. It is 0 if the policy
    /// does not draw.
    pub further: Option<u32>,
    /// The probability of a list that is drawn uniformly from the candidates in place of the policy's.
    pub explore_share: f64,
    /// The order of items of equal score.
    pub ties: Ties,
}

impl State {
    /// Chooses the best `k` items for a user. `context` is encoded; it is empty if the folder has no context
    /// features.
    ///
    /// # Errors
    /// If there is no candidate, or the candidates have another number of features.
    #[expect(clippy::too_many_arguments, reason = "the parts of one request")]
    pub fn choose(
        &self,
        draws: Draws,
        user: &str,
        choice: &Choice<'_>,
        catalogue: Option<&Catalogue>,
        context: &[f64],
        k: usize,
        scratch: &mut Scratch,
    ) -> Result<Chosen, Error> {
        let fresh;
        let serving = self.serving(user);
        let policy = match (serving.policy, choice, catalogue) {
            (Some(policy), ..) => policy,
            (None, Choice::Inline { items, .. }, _) => {
                fresh = self.make(items.dim())?;
                &fresh
            }
            (None, _, Some(catalogue)) => {
                fresh = self.make(catalogue.items().dim())?;
                &fresh
            }
            (None, _, None) => return Err(Error::NoCandidates),
        };
        let user = self.users.number(user).map_or(UNSEEN_USER, UserId::from);
        let mut items: &ItemSet = match (choice, catalogue) {
            (Choice::Inline { items, .. }, _) => items,
            (Choice::Slots(slots), Some(catalogue)) => {
                let all = catalogue.items();
                let some = buffer(&mut scratch.items, all.dim())?;
                some.select(all, slots)?;
                some
            }
            (Choice::All { .. }, Some(catalogue)) => catalogue.items(),
            (_, None) => return Err(Error::NoCandidates),
        };
        if !context.is_empty() {
            let joined = buffer(&mut scratch.joined, policy.dim())?;
            let is_whole = matches!(choice, Choice::All { .. });
            if !is_whole || scratch.whole_in.as_deref() != Some(context) {
                scratch.whole_in = None;
                joined.refill_in_context(items, context, self.identity.context.mode())?;
                scratch.whole_in = is_whole.then(|| context.to_vec());
            }
            items = joined;
        }
        let mut chosen = Chosen {
            decisions: Vec::new(),
            cluster: policy.cluster_of(user).unwrap_or(0),
            cluster_users: policy.inspect().cluster_users(user),
            propensities: Vec::new(),
        };
        let candidates = Candidates {
            policy,
            user,
            items,
            k,
            is_out: &|index| choice.is_out(index),
            breaks_ties: draws.ties == Ties::Draw && !serving.identity.policy.can.lists,
        };
        candidates.choose(draws, &mut chosen)?;
        Ok(chosen)
    }
}

/// Buffers that are reused from one choice to the next.
#[derive(Debug, Default)]
pub struct Scratch {
    items: Option<ItemSet>,
    /// Items in context.
    joined: Option<ItemSet>,
    /// The context of `joined`, if it holds the whole catalogue that is being read. One guard must keep the catalogue
    /// unchanged from [`Scratch::begin`] on.
    whole_in: Option<Vec<f64>>,
}

impl Scratch {
    /// The state may have changed since the last choice.
    pub fn begin(&mut self) {
        self.whole_in = None;
    }

    /// Frees large buffers.
    pub fn end(&mut self) {
        const MAX_NUMBERS: usize = 1 << 20;
        let is_large = |items: &ItemSet| items.len() * items.dim() > MAX_NUMBERS;
        if self.joined.as_ref().is_some_and(is_large) {
            self.joined = None;
        }
    }
}

/// A buffer for items of `dim` features.
fn buffer(items: &mut Option<ItemSet>, dim: usize) -> Result<&mut ItemSet, Error> {
    if items.as_ref().is_none_or(|items| items.dim() != dim) {
        *items = Some(ItemSet::new(dim)?);
    }
    Ok(items.as_mut().expect("made above"))
}
