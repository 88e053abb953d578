//! A policy that can be served.

use std::fmt;
use std::io::{self, Write};
use std::ops::{Deref, DerefMut};

use sclub::bytes::bad;
use sclub::{Error, Inspect, Policy, Refit, UserId};

/// A policy that can be inspected and saved and can forget users. That is checked once, when it is made or
/// loaded.
pub struct Served(Box<dyn Policy>);

impl Served {
    /// Checks a policy.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if it lacks an ability that the service needs.
    pub fn new(mut policy: Box<dyn Policy>) -> Result<Self, Error> {
        let reason = if policy.as_inspect().is_none() {
            "the policy cannot be inspected"
        } else if policy.as_persist().is_none() {
            "the policy cannot be saved"
        } else if policy.as_forget().is_none() {
            "the policy cannot forget users"
        } else {
            return Ok(Self(policy));
        };
        Err(Error::Unsupported { reason })
    }

    /// Its users and clusters.
    pub fn inspect(&self) -> &dyn Inspect {
        self.0.as_inspect().expect("checked when it was made")
    }

    /// Writes the whole state ([`sclub::Persist::save_to`]).
    ///
    /// # Errors
    /// The errors of `out`.
    pub fn save_to(&self, out: &mut dyn Write) -> io::Result<()> {
        let persist = self.0.as_persist().expect("checked when it was made");
        persist.save_to(out)
    }

    /// Forgets a user ([`sclub::Forget::forget`]).
    pub fn forget(&mut self, user: UserId) -> bool {
        let forget = self.0.as_forget().expect("checked when it was made");
        forget.forget(user)
    }

    /// A fit to compute, if one is due. A policy without fits has none.
    pub fn refit(&self) -> Option<Box<dyn Refit>> {
        self.0.as_fit()?.refit()
    }

    /// Takes a fit.
    ///
    /// # Errors
    /// If it is not a fit of such a policy. Nothing is changed then.
    pub fn take_fit(&mut self, fit: &[u8]) -> Result<(), Error> {
        match self.0.as_fit_mut() {
            Some(policy) => policy.take_fit(fit),
            None => Err(bad("this policy has no fits")),
        }
    }
}

impl Deref for Served {
    type Target = dyn Policy;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl DerefMut for Served {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut *self.0
    }
}

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Served")
    }
}
