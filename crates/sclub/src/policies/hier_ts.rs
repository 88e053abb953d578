//! HierTS: Thompson sampling under a hierarchical Gaussian prior.
//!
//! The weights of all users scatter about one mean: θ_u ~ N(μ, s₀² I), μ ~ N(0, s_q² I), y = xᵀθ_u + N(0, σ²). A round draws μ from its
//! posterior given the rewards of all users, then the user's weights given μ and the user's own rewards.
//!
//! After Hong, Kveton, Zaheer, Ghavamzadeh: "Hierarchical Bayesian Bandits", AISTATS 2022. It is
//! [`mix-ts`](super::mix_ts) with one component, which documents the exact posterior.
//!
//! # Decisions
//! * The mean of μ is 0, and the covariances are multiples of I: `prior_sd` is s_q, `user_sd` is s₀, `noise` is σ. There is no public code
//!   whose constants could be taken; preset `tuned` is the only one.
//! * Limits: s₀ = 0 is `ts:linucb-one`, one posterior for all users; s_q = 0 is `lints`, one for each.
//!
//! # Cost
//! Memory: d(d+5)/2 numbers for each user. A round takes O(d² + L d).

use super::mix_ts::{self, NOISE_SD, PRIOR_SD, USER_SD};
use crate::spec::{Abilities, Constant, Preset, Spec, Value};

/// The values of preset `tuned`: `prior_sd`, `user_sd`, `noise`.
const TUNED: [f64; 3] = [0.1, 0.05, 0.1];

const CONSTANTS: &[Constant] = &[
    Constant {
        default: |_, _| Ok(Value::Number(TUNED[0])),
        ..PRIOR_SD
    },
    Constant {
        default: |_, _| Ok(Value::Number(TUNED[1])),
        ..USER_SD
    },
    Constant {
        default: |_, _| Ok(Value::Number(TUNED[2])),
        ..NOISE_SD
    },
];

/// `hier-ts`
pub static SPEC: Spec = Spec {
    name: "hier-ts",
    title: "HierTS",
    summary: "Thompson sampling under a Gaussian prior whose mean is learned from all users",
    citation: "after Hong, Kveton, Zaheer and Ghavamzadeh, AISTATS 2022",
    colors: ["#7A5230", "#CFA37A"],
    revision: 2,
    presets: &[Preset::Tuned],
    constants: CONSTANTS,
    can: Abilities {
        draws: true,
        ..Abilities::NONE
    },
    new: mix_ts::new,
    load: None,
    gather: None,
};
