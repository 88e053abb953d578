//! SCLUB as the authors' published code runs it, deviation by deviation.
//!
//! [`crate::Sclub`] is the paper's pseudo-code. The code that the paper's tables were made with does
//! several things otherwise; each is a switch of [`Deviations`] here. With all of them off, this
//! policy is the pseudo-code again; with all of them on and [`Params::released`], the published code.
//! It exists to find out what each of them is worth (`docs/audit.md`), not to be used.

mod group;

use crate::digest::Digest;
use crate::error::{Error, check_dim};
use crate::items::ItemSet;
use crate::kernels;
use crate::params::Params;
use crate::policy::{
    Change, Clock, ClusterId, Decision, Observation, Policy, Score, UserId, Users, Why,
    check_items, check_round, rank_by_basis,
};
use crate::radius::{Thresholds, distance, radius};
use crate::roster::Roster;
use crate::sclub::{Nearby, Pivot, phase_of};
use crate::statistics::{Blocks, Scratch, Shape, View};
use crate::ucb::Ranking;
use group::{Basis, Group};

/// Where the published code departs from the pseudo-code. Two more departures, the squared norm and
/// the constants, are [`Params::index`] and the rest of [`Params`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Deviations {
    /// The cluster of a user who was split out shares the arrays S and b with her own, so each later
    /// observation of hers is added twice to both, until the cluster is merged. T is counted once.
    pub shared_arrays: bool,
    /// The marks "checked" are cleared in every round, not in every phase. With one user a round
    /// there are then never two checked clusters, and nothing is ever merged.
    pub marks_cleared: bool,
    /// After a split or a merge a cluster's inverse and estimate stay what they were until its next
    /// observation.
    pub stale_estimates: bool,
    /// Whether a cluster is checked is worked out only when one of its users is marked: not when a
    /// user leaves, and a user who is split out starts unmarked.
    pub stale_marks: bool,
    /// A user is compared with her cluster's estimate of now, not with the phase's pivot.
    pub running_estimate: bool,
    /// A user's frequency is compared with the average of her cluster, not with every member's.
    pub average_frequency: bool,
}

impl Deviations {
    /// The pseudo-code.
    pub const NONE: Self = Self {
        shared_arrays: false,
        marks_cleared: false,
        stale_estimates: false,
        stale_marks: false,
        running_estimate: false,
        average_frequency: false,
    };

    /// Their names, in the order of the fields.
    pub const NAMES: [&str; 6] = [
        "shared-arrays",
        "marks-cleared",
        "stale-estimates",
        "stale-marks",
        "running-estimate",
        "average-frequency",
    ];

    /// Those of [`Deviations::NAMES`] whose bits are set.
    pub fn from_set(set: u64) -> Self {
        let has = |place: u32| set >> place & 1 == 1;
        Self {
            shared_arrays: has(0),
            marks_cleared: has(1),
            stale_estimates: has(2),
            stale_marks: has(3),
            running_estimate: has(4),
            average_frequency: has(5),
        }
    }

    /// A bit for each of [`Deviations::NAMES`].
    pub fn to_set(self) -> u64 {
        let all = [
            self.shared_arrays,
            self.marks_cleared,
            self.stale_estimates,
            self.stale_marks,
            self.running_estimate,
            self.average_frequency,
        ];
        let bits = all.into_iter().enumerate();
        bits.map(|(place, is_on)| u64::from(is_on) << place).sum()
    }

    /// The published code.
    pub const ALL: Self = Self {
        shared_arrays: true,
        marks_cleared: true,
        stale_estimates: true,
        stale_marks: true,
        running_estimate: true,
        average_frequency: true,
    };
}

/// What is kept about a user beside her block.
#[derive(Debug, Clone, Copy)]
struct User {
    count: u64,
    group: u32,
    /// The last epoch in which she was marked; epochs count from 1.
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
    /// For how long marks last: a phase, or a round where they are cleared in every round.
    epoch: u64,
    declared: u64,
    roster: Roster,
    users: Vec<User>,
    blocks: Blocks,
    scratch: Scratch,
    /// The first is the one labelled 1, in which everybody starts; it is never dissolved.
    groups: Vec<Option<Group>>,
    last_label: ClusterId,
    live: usize,
    nearby: Nearby,
    served: Vec<u32>,
    found: Vec<u32>,
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
            found: Vec::new(),
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

    /// The slot of a user, who joins the first group if she appears for the first time.
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

    /// Algorithm 2.
    fn update(&mut self, observation: &Observation<'_>) -> u32 {
        let Observation {
            user, item, reward, ..
        } = *observation;
        let slot = self.slot_of(user);
        let phase = self.phase();
        let place = &mut self.users[slot as usize];
        let (index, count) = (place.group as usize, place.count);
        place.count += 1;
        let block = self.blocks.get_mut(slot as usize);
        kernels::observe(self.shape.dim, block, item, reward);

        let group = self.groups[index]
            .as_mut()
            .expect("a user's group is alive");
        group.renew_pivot(phase);
        group.frequencies.raise(count);
        let stale = std::mem::take(&mut group.is_stale);
        let count = match &mut group.basis {
            Basis::Shared { twice, .. } => {
                if *twice {
                    kernels::observe(self.shape.dim, block, item, reward);
                }
                count + 1
            }
            Basis::Sums(sums) => {
                if stale {
                    sums.observe_anew(&mut self.scratch, item, reward);
                } else {
                    sums.observe(&mut self.scratch, item, reward);
                }
                sums.count()
            }
        };
        group.radius = radius(count);
        slot
    }

    /// Algorithm 3's conditions. A user alone is never split.
    fn disagreement(&self, slot: u32) -> Option<Why> {
        let user = self.users[slot as usize];
        let group = self.group(user.group);
        if group.size == 1 {
            return None;
        }
        let own = self.blocks.view(slot as usize).estimate;
        let (other, other_radius) = if self.deviations.running_estimate {
            (self.view(group).estimate, group.radius)
        } else {
            (&*group.pivot.estimate, group.pivot.radius)
        };
        let apart = distance(own, other);
        if let Some(comparison) =
            self.thresholds
                .estimates_disagree(apart, radius(user.count), other_radius)
        {
            return Some(Why::Estimates(comparison));
        }
        let round = self.clock.rounds() as f64;
        let round_radius = radius(self.clock.rounds());
        let frequency = user.count as f64 / round;
        let disagrees = |other: f64| {
            self.thresholds
                .frequencies_disagree(frequency, other, round_radius)
        };
        if self.deviations.average_frequency {
            let average = self.count(group) as f64 / (group.size as f64 * round);
            return disagrees(average).map(Why::Frequencies);
        }
        [group.frequencies.lowest(), group.frequencies.highest()]
            .into_iter()
            .flatten()
            .find_map(|other| disagrees(other as f64 / round))
            .map(Why::Frequencies)
    }

    /// Makes the user a group of her own.
    fn split_out(&mut self, slot: u32, why: Why) -> Change {
        let user = self.users[slot as usize];
        let old = user.group;
        let is_marked = user.marked_in == self.epoch;
        let group = self.groups[old as usize]
            .as_mut()
            .expect("a user's group is alive");
        group.enter(self.epoch);
        group.marked -= u64::from(is_marked);
        group.size -= 1;
        group.frequencies.remove(user.count);
        group.slots.retain(|&other| other != slot);
        let block = self.blocks.get(slot as usize);
        let Basis::Sums(sums) = &mut group.basis else {
            unreachable!("a group of several has sums of its own");
        };
        sums.remove_block(&mut self.scratch, block, user.count);
        group.radius = radius(sums.count());
        if self.deviations.stale_estimates {
            group.is_stale = true;
        } else {
            sums.factorise(&mut self.scratch);
        }
        let from = group.label;
        self.refresh(old);

        self.last_label += 1;
        self.live += 1;
        let index = self.groups.iter().position(Option::is_none);
        let index = index.unwrap_or_else(|| {
            self.groups.push(None);
            self.groups.len() - 1
        });
        let mut alone = Group::alone(
            index as u32,
            self.last_label,
            slot,
            user.count,
            self.deviations.shared_arrays,
            self.shape,
        );
        alone.enter(self.epoch);
        if self.deviations.stale_marks {
            self.users[slot as usize].marked_in = 0;
        } else {
            alone.marked = u64::from(is_marked);
        }
        self.groups[index] = Some(alone);
        self.users[slot as usize].group = index as u32;
        Change::Split {
            from,
            into: self.last_label,
            users: 1,
            why,
        }
    }

    fn mark(&mut self, slot: u32) {
        let epoch = self.epoch;
        let user = &mut self.users[slot as usize];
        let fresh = user.marked_in != epoch;
        user.marked_in = epoch;
        let index = user.group;
        let group = self.group_mut(index);
        group.enter(epoch);
        group.marked += u64::from(fresh);
        group.was_checked = group.marked == group.size;
    }

    fn is_checked(&self, group: &Group) -> bool {
        group.epoch == self.epoch
            && if self.deviations.stale_marks {
                group.was_checked
            } else {
                group.marked == group.size
            }
    }

    /// Brings the sketch of a group up to date: there if it is checked.
    fn refresh(&mut self, index: u32) {
        let epoch = self.epoch;
        self.group_mut(index).enter(epoch);
        if !self.is_checked(self.group(index)) {
            self.leave_nearby(index);
            return;
        }
        let group = self.groups[index as usize]
            .as_mut()
            .expect("a user's group is alive");
        let reach = self.thresholds.alpha_theta / 2.0 * group.radius;
        let estimate = group.view(&self.blocks).estimate;
        match group.seat {
            Some(seat) => self.nearby.update(seat, estimate, reach),
            None => group.seat = Some(self.nearby.insert(index, estimate, reach)),
        }
    }

    fn leave_nearby(&mut self, index: u32) {
        let Some(seat) = self.group_mut(index).seat.take() else {
            return;
        };
        if let Some(moved) = self.nearby.remove(seat) {
            self.group_mut(moved).seat = Some(seat);
        }
    }

    /// Algorithm 4 for the group of a user, until no other agrees with it.
    fn merge_around(&mut self, slot: u32, changes: &mut Vec<Change>) {
        loop {
            let index = self.users[slot as usize].group;
            if !self.is_checked(self.group(index)) {
                return;
            }
            let Some((other, why)) = self.first_to_merge_with(index) else {
                return;
            };
            changes.push(self.merge(index, other, why));
        }
    }

    fn first_to_merge_with(&mut self, index: u32) -> Option<(u32, Why)> {
        let mut found = std::mem::take(&mut self.found);
        let group = self.group(index);
        let estimate = self.view(group).estimate;
        let reach = self.thresholds.alpha_theta / 2.0 * group.radius;
        self.nearby.candidates(estimate, reach, &mut found);
        let first = found
            .iter()
            .filter(|&&other| other != index)
            .map(|&other| self.group(other))
            .filter_map(|other| Some((other, self.agreement(group, other)?)))
            .min_by_key(|(other, _)| other.label)
            .map(|(other, why)| (other.index, why));
        self.found = found;
        first
    }

    fn agreement(&self, a: &Group, b: &Group) -> Option<Why> {
        let apart = distance(self.view(a).estimate, self.view(b).estimate);
        let estimates = self.thresholds.estimates_agree(apart, a.radius, b.radius)?;
        let round = self.clock.rounds();
        let frequency =
            |group: &Group| self.count(group) as f64 / (group.size as f64 * round as f64);
        let frequencies =
            self.thresholds
                .frequencies_agree(frequency(a), frequency(b), radius(round))?;
        Some(Why::Both {
            estimates,
            frequencies,
        })
    }

    /// Makes two checked groups one, under the lower of their labels.
    fn merge(&mut self, a: u32, b: u32, why: Why) -> Change {
        let (stay, go) = if self.group(a).label < self.group(b).label {
            (a, b)
        } else {
            (b, a)
        };
        self.leave_nearby(go);
        self.live -= 1;
        let leaving = self.groups[go as usize].take().expect("merged once");
        for &slot in &leaving.slots {
            self.users[slot as usize].group = stay;
        }
        let phase = self.phase();
        let group = self.groups[stay as usize]
            .as_mut()
            .expect("a user's group is alive");
        let users = &self.users;
        let sums = group.own_sums(&mut self.scratch, &self.blocks, |slot| {
            users[slot as usize].count
        });
        match &leaving.basis {
            Basis::Shared { slot, .. } => {
                let block = self.blocks.get(*slot as usize);
                sums.add_block(&mut self.scratch, block, users[*slot as usize].count);
            }
            Basis::Sums(others) => sums.add_aggregate(others),
        }
        if !self.deviations.stale_estimates {
            sums.factorise(&mut self.scratch);
        }
        let pivot = Pivot::take(phase, sums);
        group.radius = radius(sums.count());
        group.is_stale = self.deviations.stale_estimates;
        group.pivot = pivot;
        group.size += leaving.size;
        group.marked += leaving.marked;
        group.slots.extend(&leaving.slots);
        group.frequencies.absorb(&leaving.frequencies);
        let kept = group.label;
        self.refresh(stay);
        Change::Merge {
            kept,
            gone: leaving.label,
            why,
        }
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
        for &slot in &served {
            if self.deviations.stale_marks {
                self.mark(slot);
            }
            if let Some(why) = self.disagreement(slot) {
                changes.push(self.split_out(slot, why));
            }
            if !self.deviations.stale_marks {
                self.mark(slot);
            }
            self.refresh(self.users[slot as usize].group);
        }
        for &slot in &served {
            self.merge_around(slot, changes);
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
