//! The users of CAB and COFIBA: declared ones from the start, others from their first reward, each with their own sums.

use super::side_by_side::SideBySide;
use crate::bytes::Writer;
use crate::error::Error;
use crate::items::GROUP;
use crate::kernels;
use crate::params::Index;
use crate::policy::{Observation, UserId, Users};
use crate::roster::Roster;
use crate::statistics::{Blocks, Shape, View};

/// Memory is taken for each declared user.
const MAX_DECLARED: u64 = 1_000_000;

pub(crate) struct Crowd {
    shape: Shape,
    declared: u64,
    /// Users beyond the declared ones; their blocks follow.
    newcomers: Roster,
    blocks: Blocks,
    /// θ̂ of each user.
    estimates: SideBySide,
}

impl Crowd {
    pub fn new(shape: Shape, users: Users) -> Result<Self, Error> {
        let declared = users.declared()?;
        if declared > MAX_DECLARED {
            return Err(Error::TooMany {
                what: "the number of declared users",
                limit: MAX_DECLARED,
            });
        }
        let mut blocks = Blocks::new(shape);
        (0..declared).for_each(|_| blocks.push());
        let mut estimates = SideBySide::new(shape.dim);
        estimates.grow(blocks.len());
        Ok(Self {
            shape,
            declared,
            newcomers: Roster::default(),
            blocks,
            estimates,
        })
    }

    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    pub fn slot(&self, user: UserId) -> Option<usize> {
        match user < self.declared {
            true => Some(user as usize),
            false => Some(self.declared as usize + self.newcomers.slot(user)?),
        }
    }

    /// Adds a user who does not exist yet.
    pub fn admit(&mut self, user: UserId) -> usize {
        self.newcomers.admit(user);
        self.blocks.push();
        self.estimates.grow(self.len());
        self.len() - 1
    }

    /// The sums of a user, who need not exist.
    pub fn view(&self, slot: Option<usize>) -> View<'_> {
        let block = slot.map_or(self.blocks.empty(), |slot| self.blocks.get(slot));
        self.shape.view(block)
    }

    /// The block of a user who exists.
    pub fn block(&self, slot: usize) -> &[f64] {
        self.blocks.get(slot)
    }

    pub fn check_room(&self, round: &[Observation<'_>]) -> Result<(), Error> {
        match (self.len() + round.len()) as u64 <= Users::LIMIT {
            true => Ok(()),
            false => Err(Error::TooMany {
                what: "the number of users",
                limit: Users::LIMIT,
            }),
        }
    }

    pub fn observe(&mut self, slot: usize, item: &[f64], reward: f64) {
        kernels::observe(self.shape.dim, self.blocks.get_mut(slot), item, reward);
        self.estimates.set(slot, self.blocks.view(slot).estimate);
    }

    /// The estimates of all users, side by side.
    fn estimate_groups(&self) -> std::slice::ChunksExact<'_, f64> {
        self.estimates.groups()
    }

    /// The expected rewards of an item, for all users in order.
    pub fn means(&self, item: &[f64]) -> impl Iterator<Item = f64> {
        let groups = self.estimate_groups();
        groups
            .flat_map(|estimates| means(estimates, item))
            .take(self.len())
    }

    /// The expected reward of an item, with the bits of [`Crowd::means`].
    pub fn mean(&self, slot: usize, item: &[f64]) -> f64 {
        let group = self.estimate_groups().nth(slot / GROUP);
        means(group.expect("the user is in a group"), item)[slot % GROUP]
    }

    /// The width of an item.
    pub fn width(&self, slot: usize, item: &[f64], index: Index, weight: f64) -> f64 {
        let View { factor, scale, .. } = self.blocks.view(slot);
        let norm = kernels::norm(self.shape.dim, factor, scale, item);
        match index {
            Index::Norm => weight * norm.sqrt(),
            Index::SquaredNorm => weight * norm,
        }
    }

    pub fn save(&self, writer: &mut Writer<'_>) -> std::io::Result<()> {
        writer.words(self.newcomers.users().iter().copied())?;
        (0..self.len()).try_for_each(|slot| writer.numbers(self.blocks.get(slot)))
    }
}

fn means(estimates: &[f64], item: &[f64]) -> [f64; GROUP] {
    let mut means = [0.0; GROUP];
    kernels::means(item, estimates, &mut means);
    means
}
