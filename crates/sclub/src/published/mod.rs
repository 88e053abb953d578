//! SCLUB as the authors' published code runs it, deviation by deviation.
//!
//! [`crate::Sclub`] is the paper's pseudo-code. The code that the paper's tables were made with does
//! several things otherwise; each is a switch of [`Deviations`] here. With all of them off, this
//! policy is the pseudo-code again; with all of them on and [`Params::released`], the published code.
//! It exists to measure the effect of each of them (`docs/audit.md`), not for use in production.

mod deviations;
mod group;
mod steps;

pub use deviations::Deviations;

use crate::digest::Digest;
use crate::error::{Error, check_dim};
use crate::items::ItemSet;
use crate::params::Params;
use crate::policy::{
    Change, Clock, ClusterId, Decision, Observation, Policy, Score, UserId, Users, check_items,
    check_round, rank_by_basis,
};
use crate::radius::Thresholds;
use crate::roster::Roster;
use crate::sclub::{Nearby, phase_of};
use crate::statistics::{Blocks, Scratch, Shape, View};
use crate::ucb::Ranking;
use group::{Basis, Group};

/// A user's count, cluster and mark; S and b are in a block.
#[derive(Debug, Clone, Copy)]
struct User {
    count: u64,
    group: u32,
    /// The last epoch in which the user was marked; epochs count from 1.
    marked_in: u64,
}

/// SCLUB with any of the published code's deviations.
#[derive(Debug, Clone)]
pub struct PublishedSclub {
    shape: Shape,
    ranking: Ranking,
    thresholds: Thresholds,
    deviations: Deviations,
    clock: Clock,
    /// The number of the period for which marks last: a phase, or a round where they are cleared in
    /// every round.
    epoch: u64,
    declared: u64,
    roster: Roster,
    users: Vec<User>,
    blocks: Blocks,
    scratch: Scratch,
    /// The first is the one labelled 1, in which users start; it is never dissolved.
    groups: Vec<Option<Group>>,
    last_label: ClusterId,
    live: usize,
    nearby: Nearby,
    served: Vec<u32>,
    near: Vec<u32>,
}

impl PublishedSclub {
    /// One cluster of all users, before the first round.
    ///
    /// # Errors
    /// As [`crate::Sclub::new`].
    pub fn new(
        dim: usize,
        users: Users,
        params: &Params,
        deviations: Deviations,
    ) -> Result<Self, Error> {
        params.check()?;
        let shape = Shape {
            dim: check_dim(dim)?,
        };
        let declared = users.declared()?;
        Ok(Self {
            shape,
            ranking: Ranking::new(dim, params),
            thresholds: Thresholds::new(params),
            deviations,
            clock: Clock::new(),
            epoch: 0,
            declared,
            roster: Roster::default(),
            users: Vec::new(),
            blocks: Blocks::new(shape),
            scratch: Scratch::new(shape),
            groups: vec![Some(Group::first(shape, declared))],
            last_label: 1,
            live: 1,
            nearby: Nearby::default(),
            served: Vec::new(),
            near: Vec::new(),
        })
    }

    fn phase(&self) -> u32 {
        phase_of(self.clock.rounds())
    }

    fn begin_round(&mut self) {
        let round = self.clock.tick();
        let epoch = if self.deviations.marks_cleared {
            round
        } else {
            u64::from(self.phase())
        };
        if epoch != self.epoch {
            self.epoch = epoch;
            self.nearby.clear();
        }
    }

    fn group(&self, index: u32) -> &Group {
        self.groups[index as usize]
            .as_ref()
            .expect("a user's group is alive")
    }

    fn group_mut(&mut self, index: u32) -> &mut Group {
        self.groups[index as usize]
            .as_mut()
            .expect("a user's group is alive")
    }

    fn view<'a>(&'a self, group: &'a Group) -> View<'a> {
        group.view(&self.blocks)
    }

    fn count(&self, group: &Group) -> u64 {
        match &group.basis {
            Basis::Shared { slot, .. } => self.users[*slot as usize].count,
            Basis::Sums(sums) => sums.count(),
        }
    }

    fn group_of(&self, user: UserId) -> &Group {
        let index = self
            .roster
            .slot(user)
            .map_or(0, |slot| self.users[slot].group);
        self.group(index)
    }

    fn basis(&self, user: UserId) -> (View<'_>, f64) {
        let group = self.group_of(user);
        let beta = self
            .ranking
            .beta(self.count(group), self.clock.log_rounds());
        (self.view(group), beta)
    }

    /// The slot of a user, who joins the first group at the first appearance.
    fn slot_of(&mut self, user: UserId) -> u32 {
        if let Some(slot) = self.roster.slot(user) {
            return slot as u32;
        }
        let slot = self.roster.admit(user) as u32;
        self.blocks.push();
        self.users.push(User {
            count: 0,
            group: 0,
            marked_in: 0,
        });
        let (declared, phase) = (user < self.declared, self.phase());
        let first = self.group_mut(0);
        if !declared {
            if first.size <= 1 {
                first.retake_pivot(phase);
            }
            first.renew_pivot(phase);
            first.frequencies.add(0, 1);
            first.size += 1;
        }
        first.slots.push(slot);
        self.refresh(0);
        slot
    }
}

impl Policy for PublishedSclub {
    fn dim(&self) -> usize {
        self.shape.dim
    }

    fn rounds(&self) -> u64 {
        self.clock.rounds()
    }

    rank_by_basis!();

    fn learn_round(
        &mut self,
        round: &[Observation<'_>],
        changes: &mut Vec<Change>,
    ) -> Result<(), Error> {
        check_round(round, self.shape.dim)?;
        self.roster.check_room(round)?;

        self.begin_round();
        let mut served = std::mem::take(&mut self.served);
        served.clear();
        served.extend(round.iter().map(|observation| self.update(observation)));
        for (&slot, observation) in served.iter().zip(round) {
            if self.deviations.stale_marks {
                self.mark(slot);
            }
            if let Some(why) = self.disagreement(slot) {
                changes.push(self.split_out(slot, observation.user, why));
            }
            if !self.deviations.stale_marks {
                self.mark(slot);
            }
            self.refresh(self.users[slot as usize].group);
        }
        for (&slot, observation) in served.iter().zip(round) {
            self.merge_around(slot, observation.user, changes);
        }
        self.served = served;
        Ok(())
    }

    fn cluster_of(&self, user: UserId) -> Option<ClusterId> {
        Some(self.group_of(user).label)
    }

    fn clusters(&self) -> usize {
        self.live
    }

    fn digest(&self) -> u64 {
        let mut digest = Digest::new().word(self.clock.rounds()).word(self.epoch);
        for (slot, user) in self.users.iter().enumerate() {
            digest = digest
                .word(self.roster.users()[slot])
                .word(user.count)
                .word(u64::from(user.group))
                .word(user.marked_in)
                .numbers(self.blocks.get(slot));
        }
        self.groups
            .iter()
            .flatten()
            .fold(digest, |digest, group| group.digest(digest))
            .finish()
    }
}
