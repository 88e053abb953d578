//! The index that DynUCB, CAB and COFIBA share: mean + α √ln(t + 1) ‖x‖, ‖x‖² = xᵀS⁻¹x, in round t, counted from 1.
//!
//! The factor grows with the rounds only, not with the observations behind an estimate. `--beta` puts a factor in its
//! place that is the same in every round, and `--index squared` puts ‖x‖² in the place of ‖x‖.

use crate::params;
use crate::params::Index;
use crate::policy::MAX_ROUNDS;
use crate::spec::{Constant, Range, Value, Values};

/// The factor of the uncertainty.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Factor {
    /// The same in every round.
    Fixed(f64),
    /// α √ln(t + 1)
    Log(f64),
}

impl Factor {
    /// The factor that the constants stand for.
    pub fn from_values(values: &Values) -> Self {
        match (values.number("beta"), values.number("alpha")) {
            (Some(beta), _) => Self::Fixed(beta),
            (None, alpha) => Self::Log(alpha.unwrap_or(0.0)),
        }
    }

    /// The factor in the round after `rounds` rounds.
    pub fn after(self, rounds: u64) -> f64 {
        match self {
            Self::Fixed(beta) => beta,
            Self::Log(alpha) => alpha * libm::log(rounds.min(MAX_ROUNDS) as f64 + 2.0).sqrt(),
        }
    }
}

/// The form of the uncertainty that the constants stand for.
pub(crate) fn index(values: &Values) -> Index {
    match values.choice("index") {
        "squared" => Index::SquaredNorm,
        _ => Index::Norm,
    }
}

/// α. Each policy sets its own default.
pub(crate) const ALPHA: Constant = Constant {
    name: "alpha",
    meaning: "Exploration: the weight of the uncertainty in round t is X times the root of ln(t + 1)",
    range: Range::NOT_NEGATIVE,
    default: |_, _| Ok(Value::Unset),
    instead_of: Some("beta"),
    advanced: false,
};

/// The same factor in every round.
pub(crate) const BETA: Constant = Constant {
    default: |_, _| Ok(Value::Unset),
    instead_of: Some("alpha"),
    ..params::BETA
};

/// The papers of all three have the norm.
pub(crate) const INDEX: Constant = Constant {
    default: |_, _| Ok(Value::Choice("norm")),
    ..params::INDEX
};
