//! Experiments: beginning and ending one, and its results.

use super::owner::Command;
use super::{Engine, Refusal, Shared};
use crate::event::Event;
use crate::experiment::{ArmPlan, ExperimentReport};
use crate::settings::Settings;

/// An arm that is asked for.
#[derive(Debug, Clone)]
pub struct ArmRequest {
    /// Its name.
    pub name: String,
    /// The settings `policy`, `preset` and `constants`; the others are not used.
    pub settings: Settings,
    /// Its share of the users, in hundredths of a percent; 0 for a shadow arm.
    pub share: u32,
}

impl Engine {
    /// Begins an experiment. The arms that are shown come first, and the first is the control.
    ///
    /// # Errors
    /// If one is under way, an arm is invalid, or the server is a node of a cluster.
    pub async fn start_experiment(&self, name: &str, arms: Vec<ArmRequest>) -> Result<(), Refusal> {
        let shared = &self.shared;
        if shared.is_replicated {
            return Err(in_cluster());
        }
        let folder = shared.read().identity().clone();
        let mut plans = Vec::with_capacity(arms.len());
        for arm in arms {
            let identity = folder.with_policy(&arm.settings).and_then(|identity| {
                // A shadow arm is checked when it wins.
                if arm.share > 0 {
                    identity.check_run(&shared.settings)?;
                }
                Ok(identity)
            });
            let identity = identity.map_err(|misfit| {
                Refusal::invalid("arms", format!("arm '{}': {misfit}", arm.name))
            })?;
            plans.push(ArmPlan {
                name: arm.name,
                policy: identity.written_policy(),
                share: arm.share,
            });
        }
        let mut salt = [0; 8];
        let filled = shared.env().random.fill(&mut salt);
        filled.map_err(|error| {
            Refusal::Unsupported(format!("the system gives no random numbers: {error}"))
        })?;
        let event = Event::StartExperiment {
            name: name.to_owned(),
            salt: u64::from_le_bytes(salt),
            arms: plans,
        };
        self.change(Command::Experiment(event)).await.map(drop)
    }

    /// Ends the experiment under way. The policy of the winner is in force from then on.
    ///
    /// # Errors
    /// If no experiment of this name is under way, it has no such arm, or the settings of the server do not allow its policy.
    pub async fn end_experiment(&self, name: &str, winner: &str) -> Result<(), Refusal> {
        let shared = &self.shared;
        if shared.is_replicated {
            return Err(in_cluster());
        }
        {
            let state = shared.read();
            let plan = state.experiments().plan();
            let arm = plan.and_then(|plan| plan.arms.get(plan.index(winner)?));
            let checked = arm.map_or(Ok(()), |arm| {
                state.arm_identity(arm)?.check_run(&shared.settings)
            });
            checked.map_err(|misfit| Refusal::invalid("winner", misfit.to_string()))?;
        }
        let event = Event::EndExperiment {
            name: name.to_owned(),
            winner: winner.to_owned(),
        };
        self.change(Command::Experiment(event)).await.map(drop)
    }

    /// The results of the experiment under way, and of those that have ended, the latest first.
    pub fn experiments(&self) -> (Option<ExperimentReport>, Vec<ExperimentReport>) {
        let state = self.state();
        let experiments = state.experiments();
        (experiments.report(), experiments.past_reports())
    }
}

impl Shared {
    /// Logs which policies are in force after an experiment began or ended.
    pub(super) fn announce_policies(&self) {
        let state = self.read();
        let policy = state.identity().policy.name;
        match state.experiments().plan() {
            Some(plan) => {
                tracing::info!(
                    experiment = plan.name,
                    arms = plan.arms.len(),
                    "experiment started"
                );
            }
            None => tracing::info!(policy, "experiment ended; this policy is in force"),
        }
    }
}

fn in_cluster() -> Refusal {
    Refusal::Unsupported(
        "experiments are not supported in a cluster; use a single server".to_owned(),
    )
}
