//! The plan of an experiment: its arms, and which users each arm serves.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::identity::first_word;
use crate::refusal::Refusal;

/// The sum of all shares, in hundredths of a percent.
pub const WHOLE: u32 = 10_000;

/// The maximum number of arms, shadow arms included. Each has a policy of its own in memory.
pub const MAX_ARMS: usize = 8;

/// The maximum length of a name in bytes.
pub const MAX_NAME: usize = 64;

/// An arm as it is in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArmPlan {
    /// Its name.
    pub name: String,
    /// The policy, its preset and all of its constants ([`crate::identity::Identity::written_policy`]).
    pub policy: String,
    /// Its share of the users, in hundredths of a percent; 0 for a shadow arm, which learns and is never shown.
    pub share: u32,
}

impl ArmPlan {
    /// Returns true if the arm learns and is never shown.
    pub fn is_shadow(&self) -> bool {
        self.share == 0
    }
}

/// The plan of an experiment. The first arm is the control.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The name of the experiment.
    pub name: String,
    /// The number that users are hashed with.
    pub salt: u64,
    /// The number of the event with which it began.
    pub started: u64,
    /// The wall-clock time of that event, in milliseconds since 1970. Never compared.
    pub started_at: u64,
    /// The arms: those that are shown, then the shadow arms.
    pub arms: Vec<ArmPlan>,
}

impl Plan {
    /// Checks the names and the shares.
    ///
    /// # Errors
    /// What is wrong, and what is allowed.
    pub fn check(name: &str, arms: &[ArmPlan]) -> Result<(), Refusal> {
        check_name("name", "the experiment", name)?;
        if arms.len() > MAX_ARMS {
            let message = format!(
                "there are {} arms; at most {MAX_ARMS} are allowed",
                arms.len()
            );
            return Err(Refusal::invalid("arms", message));
        }
        let mut names = HashSet::new();
        for arm in arms {
            check_name("arms", "an arm", &arm.name)?;
            if !names.insert(&*arm.name) {
                let message = format!("two arms have the name '{}'", arm.name);
                return Err(Refusal::invalid("arms", message));
            }
        }
        let shown = arms.iter().take_while(|arm| !arm.is_shadow()).count();
        if shown < 2 {
            let message = format!(
                "there are {shown} arms with a share of the users; at least 2 are needed, the first is the control"
            );
            return Err(Refusal::invalid("arms", message));
        }
        let sum: u64 = arms.iter().map(|arm| u64::from(arm.share)).sum();
        if sum != u64::from(WHOLE) {
            let message = format!("the shares sum to {}%; they must sum to 100%", percent(sum));
            return Err(Refusal::invalid("arms", message));
        }
        if arms[shown..].iter().any(|arm| !arm.is_shadow()) {
            let message = "shadow arms must come after the others";
            return Err(Refusal::invalid("arms", message));
        }
        Ok(())
    }

    /// The index of the arm that serves a user: by the first 8 bytes of BLAKE3 of the salt and the user's id, as a
    /// part of 2^64.
    pub fn arm_of(&self, user: &str) -> usize {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.salt.to_le_bytes());
        hasher.update(user.as_bytes());
        let word = u128::from(first_word(&hasher.finalize()));
        let place = (word * u128::from(WHOLE)) >> 64;
        let mut end = 0;
        let mut arms = self.arms.iter();
        let found = arms.position(|arm| {
            end += u128::from(arm.share);
            place < end
        });
        found.unwrap_or(0)
    }

    /// The number of arms that are shown.
    pub fn shown(&self) -> usize {
        self.arms.iter().filter(|arm| !arm.is_shadow()).count()
    }

    /// The index of the arm with a name.
    pub fn index(&self, arm: &str) -> Option<usize> {
        self.arms.iter().position(|plan| plan.name == arm)
    }
}

/// Hundredths of a percent as a percentage.
pub fn percent(share: u64) -> f64 {
    share as f64 / 100.0
}

fn check_name(field: &str, what: &str, name: &str) -> Result<(), Refusal> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if (1..=MAX_NAME).contains(&name.len()) && name.chars().all(is_allowed) {
        return Ok(());
    }
    let message = format!(
        "the name of {what} is '{name}'; it must have 1 to {MAX_NAME} letters, digits, '-', '_' or '.'"
    );
    Err(Refusal::invalid(field, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arm(name: &str, share: u32) -> ArmPlan {
        ArmPlan {
            name: name.to_owned(),
            policy: String::new(),
            share,
        }
    }

    fn plan(salt: u64, shares: &[u32]) -> Plan {
        let names = ["a", "b", "c", "d"].into_iter().zip(shares);
        Plan {
            name: "x".to_owned(),
            salt,
            started: 1,
            started_at: 0,
            arms: names.map(|(name, &share)| arm(name, share)).collect(),
        }
    }

    #[test]
    fn users_are_split_by_the_shares_and_stay_in_their_arm() {
        let plan = plan(7, &[2000, 5000, 3000, 0]);
        let users: Vec<String> = (0..20_000).map(|user| format!("u{user}")).collect();
        let mut counts = [0; 4];
        for user in &users {
            counts[plan.arm_of(user)] += 1;
            assert_eq!(plan.arm_of(user), plan.arm_of(user));
        }
        for (count, expected) in counts.into_iter().zip([4000i32, 10_000, 6000, 0]) {
            assert!((i32::abs(count - expected)) < 250, "{counts:?}");
        }
        assert_eq!(counts[3], 0, "a shadow arm is never shown");
    }

    #[test]
    fn another_salt_makes_an_independent_split() {
        let (one, other) = (plan(1, &[5000, 5000]), plan(2, &[5000, 5000]));
        let users = (0..10_000).map(|user| format!("u{user}"));
        let same = users.filter(|user| one.arm_of(user) == other.arm_of(user));
        let same = same.count();
        assert!((4700..5300).contains(&same), "{same}");
    }

    #[test]
    fn wrong_plans_are_refused_with_a_reason() {
        let check = |arms: &[ArmPlan]| Plan::check("x", arms).unwrap_err().to_string();
        let whole = [arm("a", 5000), arm("b", 5000)];
        assert!(Plan::check("x", &whole).is_ok());
        assert!(Plan::check("", &whole).is_err());
        assert!(Plan::check("a b", &whole).is_err());
        assert!(check(&[arm("a", 5000), arm("b", 4000)]).contains("sum to 90%"));
        assert!(check(&[arm("a", 10_000)]).contains("at least 2"));
        assert!(check(&[arm("a", 5000), arm("a", 5000)]).contains("two arms"));
        assert!(check(&[arm("a", 0), arm("b", 5000), arm("c", 5000)]).contains("at least 2"));
        let late = [arm("a", 5000), arm("b", 2500), arm("s", 0), arm("c", 2500)];
        assert!(check(&late).contains("shadow"));
        let many: Vec<ArmPlan> = (0..9).map(|n| arm(&format!("a{n}"), 1)).collect();
        assert!(check(&many).contains("at most 8"));
    }
}
