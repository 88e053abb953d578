//! The policy behind a Python object.

use std::io::{Read, Write};

use sclub::{Error, LoadError, Policy};
use serde_json::{Map, Value};

use crate::ids::first_word;

/// The first byte of a state. Older versions wrote [`CLUB`] for [`sclub::Club`], and states without constants.
const POLICY: u8 = 0;
const CLUB: u8 = 1;
const WITH_CONSTANTS: u8 = 2;

/// Constants longer than this are damaged.
const MAX_CONSTANTS: u64 = 1 << 20;

/// The constants that a policy was made with, for its user to look at.
#[derive(Debug, Clone)]
pub struct Constants {
    /// All of them by name, as in the configuration of a run, and the preset.
    pub all: Map<String, Value>,
    /// The names of those that are not the preset's, and `preset` if it is not the default.
    pub changed: Vec<String>,
}

impl Constants {
    fn encode(&self) -> Vec<u8> {
        serde_json::json!([self.all, self.changed])
            .to_string()
            .into_bytes()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (all, changed) = serde_json::from_slice(bytes).ok()?;
        Some(Self { all, changed })
    }
}

/// A policy of the library.
pub struct Engine {
    policy: Box<dyn Policy>,
    /// None if they are not known: those of states that older versions saved.
    constants: Option<Constants>,
}

impl Engine {
    /// A policy that was made with some constants.
    pub fn new(policy: Box<dyn Policy>, constants: Option<Constants>) -> Self {
        Self { policy, constants }
    }

    /// The policy.
    pub fn policy(&self) -> &(dyn Policy + 'static) {
        &*self.policy
    }

    /// The policy, to change it.
    pub fn policy_mut(&mut self) -> &mut dyn Policy {
        &mut *self.policy
    }

    /// The constants, if they are known.
    pub fn constants(&self) -> Option<&Constants> {
        self.constants.as_ref()
    }

    /// The number of observations of a user, if there are any and the policy can be inspected.
    pub fn count(&self, user: u64) -> Option<u64> {
        self.policy.as_inspect()?.count(user)
    }

    /// The estimate from a user's own observations.
    pub fn own_estimate(&self, user: u64) -> Option<Vec<f64>> {
        self.policy.as_inspect()?.own_estimate(user)
    }

    /// Writes the state.
    pub fn save_to(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let unsupported =
            || std::io::Error::other("this policy cannot be saved: it does not support it");
        let persist = self.policy.as_persist().ok_or_else(unsupported)?;
        match &self.constants {
            None => out.write_all(&[POLICY])?,
            Some(constants) => {
                let constants = constants.encode();
                out.write_all(&[WITH_CONSTANTS])?;
                for word in [constants.len() as u64, first_word(&constants)] {
                    out.write_all(&word.to_le_bytes())?;
                }
                out.write_all(&constants)?;
            }
        }
        persist.save_to(out)
    }

    /// Loads a state.
    pub fn load_from(input: &mut dyn Read) -> Result<Self, LoadError> {
        let mut kind = [0];
        input.read_exact(&mut kind)?;
        let constants = match kind[0] {
            POLICY | CLUB => None,
            WITH_CONSTANTS => Some(read_constants(input)?),
            _ => return Err(bad("its first byte is unknown")),
        };
        Ok(Self::new(sclub::load_policy(input)?, constants))
    }
}

fn read_constants(input: &mut dyn Read) -> Result<Constants, LoadError> {
    let mut word = || -> std::io::Result<u64> {
        let mut bytes = [0; 8];
        input.read_exact(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    };
    let (len, check) = (word()?, word()?);
    let damaged = || bad("its constants are damaged");
    if len > MAX_CONSTANTS {
        return Err(damaged());
    }
    let mut bytes = vec![0; len as usize];
    input.read_exact(&mut bytes)?;
    if first_word(&bytes) != check {
        return Err(damaged());
    }
    Constants::decode(&bytes).ok_or_else(damaged)
}

fn bad(reason: &'static str) -> LoadError {
    Error::BadSnapshot { reason }.into()
}
