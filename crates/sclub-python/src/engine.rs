//! The policy behind a Python object.

use std::io::{Read, Write};

use sclub::{LoadError, Policy};

/// The first byte of a state. Older versions wrote [`CLUB`] for [`sclub::Club`].
const POLICY: u8 = 0;
const CLUB: u8 = 1;

/// A policy of the library.
pub struct Engine(pub Box<dyn Policy>);

impl Engine {
    /// The policy.
    pub fn policy(&self) -> &(dyn Policy + 'static) {
        &*self.0
    }

    /// The policy, to change it.
    pub fn policy_mut(&mut self) -> &mut dyn Policy {
        &mut *self.0
    }

    /// The number of observations of a user, if there are any and the policy can be inspected.
    pub fn count(&self, user: u64) -> Option<u64> {
        self.0.as_inspect()?.count(user)
    }

    /// The estimate from a user's own observations.
    pub fn own_estimate(&self, user: u64) -> Option<Vec<f64>> {
        self.0.as_inspect()?.own_estimate(user)
    }

    /// Writes the state.
    pub fn save_to(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let unsupported =
            || std::io::Error::other("this policy cannot be saved: it does not support it");
        let persist = self.0.as_persist().ok_or_else(unsupported)?;
        out.write_all(&[POLICY])?;
        persist.save_to(out)
    }

    /// Loads a state.
    pub fn load_from(input: &mut dyn Read) -> Result<Self, LoadError> {
        let mut kind = [0];
        input.read_exact(&mut kind)?;
        match kind[0] {
            POLICY | CLUB => Ok(Engine(sclub::load_policy(input)?)),
            _ => Err(sclub::Error::BadSnapshot {
                reason: "its first byte is unknown",
            }
            .into()),
        }
    }
}
