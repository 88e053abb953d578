//! Experiments in the state: their events, and the policy that serves each user.

use sclub::{Change, Error, Observation};

use super::admit::reject;
use super::{Ahead, Answered, History, Rejected, Served, State};
use crate::event::Reward;
use crate::experiment::running::{Arm, Counts, Running};
use crate::experiment::{ArmPlan, Experiments, Past, Plan, UserSums};
use crate::identity::{Identity, Misfit};
use crate::refusal::Refusal;

/// A policy that serves a user.
#[derive(Debug, Clone, Copy)]
pub struct Serving<'a> {
    /// The policy; `None` before the number of features is known.
    pub policy: Option<&'a Served>,
    /// The identity with this policy.
    pub identity: &'a Identity,
    /// True if the policy draws at random.
    pub draws: bool,
}

impl State {
    /// The experiments.
    pub fn experiments(&self) -> &Experiments {
        &self.experiments
    }

    /// The policy that serves a user: that of the user's arm while an experiment is under way.
    pub fn serving(&self, user: &str) -> Serving<'_> {
        let in_force = Serving {
            policy: self.policy(),
            identity: &self.identity,
            draws: self.draws,
        };
        let Some(running) = &self.experiments.running else {
            return in_force;
        };
        let arm = &running.arms[running.plan.arm_of(user)];
        match &arm.policy {
            None => in_force,
            Some(policy) => Serving {
                policy: Some(policy),
                identity: &arm.identity,
                draws: arm.draws,
            },
        }
    }

    /// Returns true if a policy that serves users draws at random.
    pub fn draws(&self) -> bool {
        self.each_draws().any(|draws| draws)
    }

    /// Returns true if all policies that serve users draw at random.
    pub fn all_draw(&self) -> bool {
        self.each_draws().all(|draws| draws)
    }

    /// Returns one value for each policy that serves users: true if it draws at random.
    fn each_draws(&self) -> impl Iterator<Item = bool> {
        let running = self.experiments.running.as_ref();
        let arms = running.into_iter().flat_map(|running| {
            let shown = running.arms.iter().take(running.plan.shown());
            shown.map(|arm| match arm.policy {
                Some(_) => arm.draws,
                None => self.draws,
            })
        });
        let in_force = running.is_none().then_some(self.draws);
        in_force.into_iter().chain(arms)
    }

    /// The policies that have fits: the one in force (`None`) and those of the arms, by index.
    pub fn policies(&self) -> impl Iterator<Item = (Option<u32>, &Served)> {
        let running = self.experiments.running.as_ref();
        let arms = running.map_or(&[][..], |running| &running.arms);
        let own = (0..).zip(arms);
        let own = own.filter_map(|(index, arm)| Some((Some(index), arm.policy.as_ref()?)));
        self.policy()
            .map(|policy| (None, policy))
            .into_iter()
            .chain(own)
    }

    pub(super) fn admit_start(
        &self,
        name: &str,
        arms: &[ArmPlan],
        ahead: &mut Ahead,
    ) -> Result<(), Rejected> {
        if !self.identity.has_descriptions() {
            let message = "this data folder was made by an earlier version, which has no experiments; teach a new folder";
            return reject(0, Refusal::Unsupported(message.to_owned()));
        }
        if let Some(plan) = self.experiments.plan() {
            return reject(0, Refusal::ExperimentRuns(plan.name.clone()));
        }
        if self.experiments.has(name) {
            let message = format!("there was an experiment '{name}' before; use another name");
            return reject(0, Refusal::invalid("name", message));
        }
        let at = |reason: Refusal| Rejected { entry: 0, reason };
        Plan::check(name, arms).map_err(at)?;
        let Some(dim) = self.dim() else {
            let message =
                "the number of features is not known yet; put items into the catalogue first";
            return reject(0, Refusal::invalid("arms", message));
        };
        for arm in arms {
            let checked = self.arm_identity(arm).and_then(|identity| {
                let made = identity.make(dim, self.expected);
                made.map_err(|error| Misfit(error.to_string()))
            });
            if let Err(Misfit(message)) = checked {
                let message = format!("arm '{}': {message}", arm.name);
                return reject(0, Refusal::invalid("arms", message));
            }
        }
        self.admit_change(ahead)
    }

    pub(super) fn admit_end(
        &self,
        name: &str,
        winner: &str,
        ahead: &mut Ahead,
    ) -> Result<(), Rejected> {
        let plan = self.experiments.plan().filter(|plan| plan.name == name);
        let Some(plan) = plan else {
            return reject(0, Refusal::UnknownExperiment(name.to_owned()));
        };
        if plan.index(winner).is_none() {
            let names: Vec<&str> = plan.arms.iter().map(|arm| &*arm.name).collect();
            let message = format!(
                "experiment '{name}' has no arm '{winner}'; use one of {}",
                names.join(", ")
            );
            return reject(0, Refusal::invalid("winner", message));
        }
        self.admit_change(ahead)
    }

    /// An experiment begins or ends at most once in a batch, as the last event that depends on the policies.
    fn admit_change(&self, ahead: &mut Ahead) -> Result<(), Rejected> {
        match ahead.changes_policies {
            true => reject(
                0,
                Refusal::invalid("name", "an experiment changes in the same batch"),
            ),
            false => {
                ahead.changes_policies = true;
                Ok(())
            }
        }
    }

    /// The folder with the policy of an arm.
    pub(crate) fn arm_identity(&self, arm: &ArmPlan) -> Result<Identity, Misfit> {
        let other = self.identity.with_written_policy(&arm.policy)?;
        check_arm(&self.identity, &other)?;
        Ok(other)
    }

    pub(super) fn start_experiment(&mut self, at: u64, name: &str, salt: u64, arms: &[ArmPlan]) {
        let plan = Plan {
            name: name.to_owned(),
            salt,
            started: self.events + 1,
            started_at: at,
            arms: arms.to_vec(),
        };
        let arms = plan.arms.iter().map(|arm| {
            let identity = self.arm_identity(arm).expect("admit() checks the arms");
            self.new_arm(identity).expect("admit() checks the arms")
        });
        let arms: Vec<Arm> = arms.collect();
        let mut assumed_before = Answered::default();
        self.assumed
            .each(|number, clock| assumed_before.insert(number, clock));
        let counts = Counts {
            sums: vec![Default::default(); arms.len()],
            users: Vec::new(),
            assumed_before,
        };
        self.experiments.running = Some(Running { plan, arms, counts });
    }

    /// An arm before its first round. If its policy is the one in force, it is that.
    fn new_arm(&self, identity: Identity) -> Result<Arm, Error> {
        let policy = match identity == self.identity {
            true => None,
            false => {
                let dim = self.dim().ok_or(Error::NoCandidates)?;
                Some(identity.make(dim, self.expected)?)
            }
        };
        Ok(Arm {
            draws: identity.draws(),
            identity,
            policy,
        })
    }

    /// Makes the policies of the arms again: the number of expected users has changed.
    pub(super) fn remake_arms(&mut self) {
        let (Some(dim), Some(running)) = (self.dim(), &mut self.experiments.running) else {
            return;
        };
        for arm in &mut running.arms {
            if let Some(policy) = &mut arm.policy {
                let made = arm.identity.make(dim, self.expected);
                *policy = made.expect("admit() checks the number of users");
            }
        }
    }

    pub(super) fn end_experiment(&mut self, at: u64, winner: &str) {
        let running = self.experiments.running.take();
        let Running {
            plan,
            mut arms,
            counts,
        } = running.expect("admit() checks that it runs");
        let index = plan.index(winner).expect("admit() checks the winner");
        let arm = arms.swap_remove(index);
        if let Some(policy) = arm.policy {
            self.put_in_force(arm.identity, policy, counts.assumed_before);
        }
        self.experiments.add_past(Past {
            plan,
            ended: self.events + 1,
            ended_at: at,
            winner: winner.to_owned(),
            sums: counts.sums,
        });
    }

    /// Puts another policy in force. It has not learned the rewards that were assumed before it began.
    fn put_in_force(&mut self, identity: Identity, policy: Served, unlearned: Answered) {
        self.is_winner = true;
        self.can_correct = identity.can_correct();
        self.draws = identity.draws();
        self.identity = identity;
        let learned = self.learned.as_mut().expect("it has a dimension");
        learned.policy = policy;
        self.unlearned = unlearned;
        // Labels of clusters are those of a policy.
        self.history = History::after(&self.history);
        self.users.clear_splits();
    }

    /// Counts a reward for the arm that showed the item.
    pub(super) fn count_for_arm(&mut self, user: u32, id: &str, event: u64, reward: f64) {
        if let Some(running) = &mut self.experiments.running
            && let Some(arm) = running.arm_at(event, id)
        {
            running.counts.change(user, arm, |sums| sums.add(reward));
        }
    }

    /// Puts a reward in place of an assumed one, in the arms.
    pub(super) fn correct_arms(
        &mut self,
        user: u32,
        reward: &Reward,
        observation: &Observation<'_>,
        from: f64,
    ) {
        let Some(running) = &mut self.experiments.running else {
            return;
        };
        let is_new = running.counts.assumed_before.contains(reward.number);
        let arms = running.arms.iter_mut();
        for policy in arms.filter_map(|arm| arm.policy.as_mut()) {
            replace(
                policy,
                observation,
                (!is_new).then_some(from),
                &mut Vec::new(),
            );
        }
        if let Some(arm) = running.arm_at(reward.event, &reward.user) {
            let change = |sums: &mut UserSums| sums.replace(from, reward.reward);
            running.counts.change(user, arm, change);
        }
    }

    /// The policies of arms that are not the one in force.
    pub(super) fn own_policies(&mut self) -> impl Iterator<Item = &mut Served> {
        own_policies(&mut self.experiments)
    }
}

/// The policies of arms that are not the one in force.
pub(super) fn own_policies(experiments: &mut Experiments) -> impl Iterator<Item = &mut Served> {
    let running = experiments.running.as_mut();
    let arms = running.map_or(&mut [][..], |running| &mut running.arms);
    arms.iter_mut().filter_map(|arm| arm.policy.as_mut())
}

/// Has a policy learn a reward in place of the assumed one that it has learned. A policy that has not learned the assumed
/// one, or cannot correct it, learns the reward like any other.
pub(super) fn replace(
    policy: &mut Served,
    observation: &Observation<'_>,
    assumed: Option<f64>,
    changes: &mut Vec<Change>,
) {
    let Observation {
        user, item, reward, ..
    } = *observation;
    let done = match assumed.zip(policy.as_correct()) {
        Some((from, policy)) => policy.correct(user, item, from, reward).map(drop),
        None => policy.learn_round(&[*observation], changes),
    };
    done.expect("admit() checks all that a policy does");
}

/// Checks that a policy can learn from the events of a folder.
fn check_arm(folder: &Identity, arm: &Identity) -> Result<(), Misfit> {
    let name = arm.policy.name;
    if arm.policy.can.item_ids && !folder.policy.can.item_ids {
        return Err(Misfit(format!(
            "policy {name} uses the ids of items, which the folder of {} does not keep; teach a new folder",
            folder.policy.name
        )));
    }
    if arm.has_lists() != folder.has_lists() {
        return Err(Misfit(format!(
            "policies {name} and {} cannot learn from the same events: one learns from lists, the other from items",
            folder.policy.name
        )));
    }
    Ok(())
}
