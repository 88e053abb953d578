//! The policy behind a Python object.

use std::io::{Read, Write};

use sclub::{Club, Keep, LoadError, Policy};

/// A policy of the library. All but [`Club`] can forget users and be looked into.
pub enum Engine {
    /// One that keeps its users.
    Keep(Box<dyn Keep>),
    /// The one that does not.
    Club(Box<Club>),
}

impl Engine {
    /// What every policy does.
    pub fn policy(&self) -> &dyn Policy {
        match self {
            Engine::Keep(policy) => &**policy,
            Engine::Club(policy) => &**policy,
        }
    }

    /// What every policy does, and may change it.
    pub fn policy_mut(&mut self) -> &mut dyn Policy {
        match self {
            Engine::Keep(policy) => &mut **policy,
            Engine::Club(policy) => &mut **policy,
        }
    }

    /// How often a user has appeared, if she has and the policy keeps users.
    pub fn count(&self, user: u64) -> Option<u64> {
        match self {
            Engine::Keep(policy) => policy.count(user),
            Engine::Club(policy) => policy.count(user),
        }
    }

    /// The estimate from a user's own observations.
    pub fn own_estimate(&self, user: u64) -> Option<Vec<f64>> {
        match self {
            Engine::Keep(policy) => policy.own_estimate(user),
            Engine::Club(policy) => policy.own_estimate(user),
        }
    }

    /// Writes which policy it is and all of its state.
    pub fn save_to(&self, out: &mut dyn Write) -> std::io::Result<()> {
        match self {
            Engine::Keep(policy) => {
                out.write_all(&[0])?;
                policy.save_to(out)
            }
            Engine::Club(policy) => {
                out.write_all(&[1])?;
                policy.save_to(out)
            }
        }
    }

    /// What was written.
    pub fn load_from(input: &mut dyn Read) -> Result<Self, LoadError> {
        let mut kind = [0];
        input.read_exact(&mut kind)?;
        match kind[0] {
            0 => Ok(Engine::Keep(sclub::load_policy(input)?)),
            1 => Ok(Engine::Club(Box::new(Club::load_from(input)?))),
            _ => Err(sclub::Error::BadSnapshot {
                reason: "it is of no known kind",
            }
            .into()),
        }
    }
}
