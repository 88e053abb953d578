//! The steps of a round: Algorithms 2 to 4, each with the published code's deviations.

use super::PublishedSclub;
use super::group::{Basis, Group};
use crate::kernels;
use crate::policy::{Change, Observation, UserId, Why};
use crate::radius::{distance, radius};
use crate::sclub::Pivot;

impl PublishedSclub {
    /// Algorithm 2.
    pub(super) fn update(&mut self, observation: &Observation<'_>) -> u32 {
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
    pub(super) fn disagreement(&self, slot: u32) -> Option<Why> {
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

    /// Moves the user to a new group of one.
    pub(super) fn split_out(&mut self, slot: u32, user_id: UserId, why: Why) -> Change {
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
            user: user_id,
            why,
        }
    }

    pub(super) fn mark(&mut self, slot: u32) {
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
    pub(super) fn refresh(&mut self, index: u32) {
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
        match group.sketch_index {
            Some(sketch_index) => self.nearby.update(sketch_index, estimate, reach),
            None => group.sketch_index = Some(self.nearby.insert(index, estimate, reach)),
        }
    }

    fn leave_nearby(&mut self, index: u32) {
        let Some(sketch_index) = self.group_mut(index).sketch_index.take() else {
            return;
        };
        if let Some(moved) = self.nearby.remove(sketch_index) {
            self.group_mut(moved).sketch_index = Some(sketch_index);
        }
    }

    /// Algorithm 4 for the group of a user, until no other agrees with it.
    pub(super) fn merge_around(&mut self, slot: u32, user: UserId, changes: &mut Vec<Change>) {
        loop {
            let index = self.users[slot as usize].group;
            if !self.is_checked(self.group(index)) {
                return;
            }
            let Some((other, why)) = self.first_to_merge_with(index) else {
                return;
            };
            changes.push(self.merge(index, other, user, why));
        }
    }

    fn first_to_merge_with(&mut self, index: u32) -> Option<(u32, Why)> {
        let mut near = std::mem::take(&mut self.near);
        let group = self.group(index);
        let estimate = self.view(group).estimate;
        let reach = self.thresholds.alpha_theta / 2.0 * group.radius;
        self.nearby.candidates(estimate, reach, &mut near);
        let first = near
            .iter()
            .filter(|&&other| other != index)
            .map(|&other| self.group(other))
            .filter_map(|other| Some((other, self.agreement(group, other)?)))
            .min_by_key(|(other, _)| other.label)
            .map(|(other, why)| (other.index, why));
        self.near = near;
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
    fn merge(&mut self, a: u32, b: u32, user: UserId, why: Why) -> Change {
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
            user,
            why,
        }
    }
}
