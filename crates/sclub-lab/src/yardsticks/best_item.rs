//! A policy that shows everyone the same item, the best of them.

use std::sync::Arc;

use sclub::{
    Abilities, Change, Decision, Error, ItemSet, Observation, Policy, Preset, Score, Spec, UserId,
    check_items,
};

use super::Known;
use crate::catalogue::Stock;
use crate::streams::mix;

/// Knows the mean reward of every item of a catalogue over all visits, and shows the item for which it is
/// largest; in a list, the items in this order. Learns nothing.
#[derive(Debug, Clone)]
pub struct BestItem {
    stock: Arc<Stock>,
    /// The items, the best first.
    order: Vec<u32>,
    rounds: u64,
}

impl BestItem {
    /// Knows the mean rewards of `stock`.
    pub fn new(stock: &Arc<Stock>) -> Self {
        let means = stock.average_user();
        let mut order: Vec<u32> = (0..means.len() as u32).collect();
        order.sort_by(|&a, &b| means[b as usize].total_cmp(&means[a as usize]));
        Self {
            stock: Arc::clone(stock),
            order,
            rounds: 0,
        }
    }

    /// The mean reward of the item with an id; 0 if it is not in the catalogue.
    fn score(&self, id: Option<sclub::ItemId>) -> Score {
        let mean = id.and_then(|id| self.stock.average_user().get(id as usize));
        Score::certain(mean.copied().unwrap_or(0.0))
    }
}

impl Policy for BestItem {
    fn dim(&self) -> usize {
        self.stock.items().dim()
    }

    fn rounds(&self) -> u64 {
        self.rounds
    }

    fn explain(&self, _: UserId, items: &ItemSet, scores: &mut Vec<Score>) -> Result<(), Error> {
        check_items(items, self.dim())?;
        scores.clear();
        scores.extend((0..items.len()).map(|item| self.score(items.id(item))));
        Ok(())
    }

    fn best(
        &self,
        user: UserId,
        items: &ItemSet,
        k: usize,
        exclude: &dyn Fn(usize) -> bool,
        best: &mut Vec<Decision>,
    ) -> Result<(), Error> {
        if std::ptr::eq(items, self.stock.items()) {
            let order = self.order.iter().map(|&item| item as usize);
            let shown = order.filter(|&item| !exclude(item)).take(k);
            best.clear();
            best.extend(shown.map(|index| Decision {
                index,
                score: self.score(Some(index as u64)),
            }));
            return Ok(());
        }
        let mut scores = Vec::new();
        self.explain(user, items, &mut scores)?;
        let all = scores.into_iter().enumerate();
        best.clear();
        best.extend(
            all.filter(|&(index, _)| !exclude(index))
                .map(|(index, score)| Decision { index, score }),
        );
        best.sort_by(|a, b| b.score.score.total_cmp(&a.score.score));
        best.truncate(k);
        Ok(())
    }

    fn learn_round(
        &mut self,
        _round: &[Observation<'_>],
        _changes: &mut Vec<Change>,
    ) -> Result<(), Error> {
        self.rounds += 1;
        Ok(())
    }

    fn digest(&self) -> u64 {
        mix(&[u64::from(self.order[0]), self.rounds])
    }
}

/// `best-item`
pub static SPEC: Spec = Spec {
    name: "best-item",
    title: "Best item",
    summary: "Shows everyone the item of a catalogue that is best on average; for comparison only",
    citation: "none",
    colors: ["#8C6D31", "#BD9E39"],
    revision: 1,
    presets: &[Preset::Default],
    constants: &[],
    can: Abilities {
        needs_truth: true,
        ..Abilities::NONE
    },
    new: |setup, _| {
        let truth = Known::of(setup).and_then(|known| known.truth.as_ref());
        let stock = truth.and_then(|truth| truth.stock.as_ref());
        let stock = stock.ok_or(Error::Unsupported {
            reason: "the policy needs a world whose rounds all have the same items",
        })?;
        Ok(Box::new(BestItem::new(stock)))
    },
    load: None,
    gather: None,
};
