//! The results of an experiment.

use super::intervals::{Interval, MIN_CLICKS, MIN_USERS, difference, rate};
use super::plan::Plan;
use super::running::{Experiments, Past};
use super::sums::Sums;

/// The results of an experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct ExperimentReport {
    /// The plan.
    pub plan: Plan,
    /// The wall-clock time when it ended, in milliseconds since 1970, and the winner.
    pub end: Option<(u64, String)>,
    /// The arms, in the order of the plan.
    pub arms: Vec<ArmReport>,
}

/// The results of an arm.
#[derive(Debug, Clone, PartialEq)]
pub struct ArmReport {
    /// The sums.
    pub sums: Sums,
    /// The reward per item with its confidence sequence.
    pub rate: Option<Interval>,
    /// The difference from the control with its confidence sequence; `None` for the control and for shadow arms.
    pub difference: Option<Interval>,
}

impl ExperimentReport {
    fn new(plan: &Plan, sums: &[Sums], end: Option<(u64, String)>) -> Self {
        let comparisons = plan.shown().saturating_sub(1);
        let all = sums.iter().fold(Sums::default(), |all, own| all.join(own));
        let arms = plan.arms.iter().zip(sums).enumerate();
        let arms = arms.map(|(index, (arm, own))| ArmReport {
            sums: *own,
            rate: rate(own, &all),
            difference: match index == 0 || arm.is_shadow() {
                true => None,
                false => difference(own, &sums[0], comparisons),
            },
        });
        Self {
            plan: plan.clone(),
            end,
            arms: arms.collect(),
        }
    }

    /// The results in plain sentences, one for each comparison with the control.
    pub fn sentences(&self) -> Vec<String> {
        let arms = self.plan.arms.iter().zip(&self.arms).enumerate();
        let shown = arms.filter(|(index, (arm, _))| *index > 0 && !arm.is_shadow());
        shown
            .map(|(_, (arm, own))| self.sentence(&arm.name, own))
            .collect()
    }

    fn sentence(&self, name: &str, own: &ArmReport) -> String {
        let control = &self.plan.arms[0].name;
        let yet = if self.end.is_none() { " yet" } else { "" };
        let Some(Interval { value, low, high }) = own.difference else {
            let of_control = &self.arms[0].sums;
            let fewest = own.sums.users.min(of_control.users);
            let reason = if fewest < MIN_USERS {
                format!(
                    "no result{yet}. An interval needs {MIN_USERS} users with a reward in each arm; the smaller arm has {fewest}."
                )
            } else if own.sums.join(of_control).kurtosis().is_none() {
                "no result, because all rewards are equal. Send rewards for the items that were not clicked too (\"others\": 0)."
                    .to_owned()
            } else {
                format!(
                    "no result{yet}. Clicks (or other rewards that differ from most) are too few; an interval needs about \
                     {MIN_CLICKS} in each arm, by different users."
                )
            };
            return format!("{name} against {control}: {reason}");
        };
        let between = format!("{value:+.4}, between {low:+.4} and {high:+.4}");
        let finding = if low > 0.0 {
            format!("{name} earns more than {control}: {between} reward per item")
        } else if high < 0.0 {
            format!("{name} earns less than {control}: {between} reward per item")
        } else {
            format!(
                "{name} against {control}: {between} reward per item. No difference is shown{yet}"
            )
        };
        format!("{finding}. This holds at any time you look.")
    }
}

impl Experiments {
    /// The results of the experiment under way.
    pub fn report(&self) -> Option<ExperimentReport> {
        let running = self.running.as_ref()?;
        Some(ExperimentReport::new(
            &running.plan,
            &running.counts.sums,
            None,
        ))
    }

    /// The results of the experiments that have ended, the latest first.
    pub fn past_reports(&self) -> Vec<ExperimentReport> {
        let past = self.past.iter().rev();
        past.map(|past: &Past| {
            let end = Some((past.ended_at, past.winner.clone()));
            ExperimentReport::new(&past.plan, &past.sums, end)
        })
        .collect()
    }
}
