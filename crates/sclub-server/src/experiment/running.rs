//! The experiments of a folder, as a part of its state.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::plan::Plan;
use super::sums::{Sums, UserSums};
use crate::identity::Identity;
use crate::state::{Answered, Served};

/// The maximum number of ended experiments that are kept.
const MAX_PAST: usize = 256;

/// The experiment under way, and those that have ended.
#[derive(Debug, Default)]
pub struct Experiments {
    pub(crate) running: Option<Running>,
    pub(crate) past: Vec<Past>,
}

/// An experiment that has ended. Its sums are no longer changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Past {
    /// The plan.
    pub plan: Plan,
    /// The number of the event with which it ended.
    pub ended: u64,
    /// The wall-clock time of that event, in milliseconds since 1970. Never compared.
    pub ended_at: u64,
    /// The arm whose policy is in force since.
    pub winner: String,
    /// The sums of each arm.
    pub sums: Vec<Sums>,
}

/// The experiment under way.
pub(crate) struct Running {
    pub plan: Plan,
    pub arms: Vec<Arm>,
    pub counts: Counts,
}

/// An arm of the experiment under way.
pub(crate) struct Arm {
    /// The folder with the policy of this arm.
    pub identity: Identity,
    /// The policy; `None` if it is the one in force.
    pub policy: Option<Served>,
    /// True if the policy draws at random.
    pub draws: bool,
}

/// The counts of the experiment under way.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Counts {
    /// The sums of each arm.
    pub sums: Vec<Sums>,
    /// The arm and the sums of each user, by number.
    pub users: Vec<(u32, UserSums)>,
    /// The items whose reward was assumed before the experiment began: the policies of new arms have not learned it.
    pub assumed_before: Answered,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running")
            .field("plan", &self.plan)
            .finish_non_exhaustive()
    }
}

impl Counts {
    /// Changes the sums of a user, who is served by an arm.
    pub fn change(&mut self, user: u32, arm: usize, change: impl FnOnce(&mut UserSums)) {
        let place = user as usize;
        if place >= self.users.len() {
            self.users.resize(place + 1, Default::default());
        }
        let (of_arm, own) = &mut self.users[place];
        let before = *own;
        change(own);
        *of_arm = u32::try_from(arm).expect("there are few arms");
        self.sums[arm].update(&before, own);
    }

    /// Removes a user. The sums are computed from the other users, so that no number of the user stays.
    pub fn forget(&mut self, user: u32) {
        let Some(own) = self.users.get_mut(user as usize) else {
            return;
        };
        *own = Default::default();
        self.sums.fill(Sums::default());
        for (arm, user) in &self.users {
            self.sums[*arm as usize].update(&UserSums::default(), user);
        }
    }

    /// Returns true if the contents are consistent.
    pub fn is_valid(&self, arms: usize) -> bool {
        self.sums.len() == arms
            && self.users.iter().all(|(arm, _)| (*arm as usize) < arms)
            && self.assumed_before.is_valid()
    }
}

impl Running {
    /// The arm that showed an item to a user, if the decision was made in this experiment.
    pub fn arm_at(&self, event: u64, user: &str) -> Option<usize> {
        (event >= self.plan.started).then(|| self.plan.arm_of(user))
    }
}

impl Experiments {
    /// The plan of the experiment under way.
    pub fn plan(&self) -> Option<&Plan> {
        self.running.as_ref().map(|running| &running.plan)
    }

    /// The experiments that have ended, oldest first.
    pub fn past(&self) -> &[Past] {
        &self.past
    }

    /// Returns true if an experiment has a name.
    pub fn has(&self, name: &str) -> bool {
        self.plan().is_some_and(|plan| plan.name == name)
            || self.past.iter().any(|past| past.plan.name == name)
    }

    pub(crate) fn add_past(&mut self, past: Past) {
        if self.past.len() == MAX_PAST {
            self.past.remove(0);
        }
        self.past.push(past);
    }

    /// The plans, each with the number of the event with which it ended, to find the arms of decisions.
    pub fn periods(&self) -> Periods {
        let past = self.past.iter().map(|past| (past.plan.clone(), past.ended));
        let running = self.plan().map(|plan| (plan.clone(), u64::MAX));
        Periods(past.chain(running).collect())
    }
}

/// The plans of all experiments, with the event with which each ended.
#[derive(Debug, Clone, Default)]
pub struct Periods(Vec<(Plan, u64)>);

impl Periods {
    /// The names of the experiment and of the arm that made a decision for a user after an event.
    pub fn find(&self, event: u64, user: &str) -> Option<(&str, &str)> {
        let is_in = |(plan, ended): &&(Plan, u64)| (plan.started..*ended).contains(&event);
        let (plan, _) = self.0.iter().find(is_in)?;
        Some((&plan.name, &plan.arms[plan.arm_of(user)].name))
    }
}
