//! Inspecting, saving, forgetting, and fits in the background.

use std::io::{self, Write};

use super::fit::Job;
use super::{SclubSoft, gather};
use crate::abilities::{BackgroundFit, ClusterView, Correct, Forget, Inspect, Persist};
use crate::bytes;
use crate::error::Error;
use crate::policy::{ClusterId, Policy, UserId, check_correction};
use crate::refit::{Outlook, Placement, Refit, Workers};

/// The maximum number of users that are searched for members of a cluster.
const MAX_MEMBER_SCAN: usize = 10_000;

impl Refit for Job {
    fn rounds(&self) -> u64 {
        self.rounds
    }

    fn compute(self: Box<Self>, workers: &dyn Workers) -> Vec<u8> {
        self.run(workers).to_bytes()
    }
}

impl SclubSoft {
    fn view_of(&self, place: usize) -> Option<ClusterView<'_>> {
        let fit = &self.served.as_ref()?.fit;
        let centre = fit.mixture.centres.get(place)?;
        let (users, count) = fit.sizes[place];
        Some(ClusterView {
            label: centre.label,
            users: users.round() as u64,
            count: count.round() as u64,
            estimate: &centre.mean,
        })
    }

    fn place_of(&self, id: ClusterId) -> Option<usize> {
        let centres = &self.served.as_ref()?.fit.mixture.centres;
        centres.iter().position(|centre| centre.label == id)
    }
}

impl Forget for SclubSoft {
    /// The user's observations are gone at once. Their share in the current fit goes with the next
    /// fit, which is due from now on.
    fn forget(&mut self, user: UserId) -> bool {
        let Some(slot) = self.roster.slot(user) else {
            return false;
        };
        self.roster.dismiss(slot);
        self.beliefs.swap_remove(slot, self.sums.len() - 1);
        self.sums.swap_remove(slot);
        self.counts.swap_remove(slot);
        self.forgotten += 1;
        if self.sums.len() == 0 {
            // Without users there is no fit.
            match self.elsewhere().users {
                0 => self.drop_fit(),
                _ => self.gain = 0.0,
            }
        }
        if self.served.is_none() {
            self.pool();
        }
        true
    }
}

impl Correct for SclubSoft {
    /// The sums of the user, and all that is computed from them, are exact at once: the user's belief, and before the first fit
    /// the population's mean. The live mean of the population and the centres have learned from the former reward.
    /// The mean moves as far as the new reward says now. Both are set anew by the next fit.
    fn correct(&mut self, user: UserId, item: &[f64], from: f64, to: f64) -> Result<bool, Error> {
        check_correction(item, from, to, self.layout.dim)?;
        let Some(slot) = self.roster.slot(user) else {
            return Ok(false);
        };
        let number = self.served.as_ref().map_or(0, |served| served.number);
        if self.beliefs.get(slot, number).is_none() {
            self.refresh(slot);
        }
        if let Some(served) = &self.served
            && let Some((block, _)) = self.beliefs.get(slot, number)
        {
            let view = served.model.shape.view(block);
            self.population
                .correct(&served.model, view, item, to - from);
        }
        self.sums.correct(slot, item, from, to);
        self.refresh(slot);
        if self.served.is_none() {
            self.pool();
        }
        Ok(true)
    }
}

/// Users and observations of a cluster are those of the last fit, each user counted with the
/// probability of being in it, rounded.
impl Inspect for SclubSoft {
    fn users(&self) -> u64 {
        self.roster.len() as u64
    }

    fn singletons(&self) -> u64 {
        let sizes = self.served.as_ref().map_or(&[][..], |s| &s.fit.sizes);
        let single = |&&(users, _): &&(f64, f64)| users.round() <= 1.0;
        sizes.iter().filter(single).count() as u64
    }

    fn count(&self, user: UserId) -> Option<u64> {
        Some(self.counts[self.roster.slot(user)?])
    }

    /// The posterior mean under the background: from the user's observations and the prior of all
    /// users, without clusters.
    fn own_estimate(&self, user: UserId) -> Option<Vec<f64>> {
        self.roster.slot(user)?;
        Some(self.expected(self.basis(user).as_ref()))
    }

    fn cluster_users(&self, user: UserId) -> u64 {
        let place = self.cluster_of(user).and_then(|id| self.place_of(id));
        let view = place.and_then(|place| self.view_of(place));
        view.map_or(0, |view| view.users)
    }

    fn each_cluster(&self, visit: &mut dyn FnMut(ClusterView<'_>)) {
        (0..self.clusters())
            .filter_map(|place| self.view_of(place))
            .for_each(visit);
    }

    fn cluster(&self, id: ClusterId) -> Option<ClusterView<'_>> {
        self.view_of(self.place_of(id)?)
    }

    /// Those whose most probable cluster it is, among the first ten thousand users.
    fn members(&self, id: ClusterId, limit: usize) -> Option<Vec<UserId>> {
        self.place_of(id)?;
        let users = self.roster.users().iter().take(MAX_MEMBER_SCAN).copied();
        let members = users.filter(|&user| self.cluster_of(user) == Some(id));
        Some(members.take(limit).collect())
    }

    fn placement(&self, user: UserId) -> Option<Placement> {
        self.place(user)
    }

    fn outlook(&self) -> Option<Outlook> {
        self.look()
    }
}

impl BackgroundFit for SclubSoft {
    fn refit(&self) -> Option<Box<dyn Refit>> {
        (!self.params.inline && self.is_due()).then(|| Box::new(self.job()) as Box<dyn Refit>)
    }

    fn take_fit(&mut self, fit: &[u8]) -> Result<(), Error> {
        match gather::load_fit(fit, self.layout.dim)? {
            Some(fit) => self.install(fit),
            None => {
                self.drop_fit();
                self.pool();
            }
        }
        Ok(())
    }
}

impl Persist for SclubSoft {
    fn save_to(&self, out: &mut dyn Write) -> io::Result<()> {
        bytes::save(self, out)
    }
}
