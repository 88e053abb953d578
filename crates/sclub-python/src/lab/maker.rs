//! A Python function that makes a policy for a world.

use std::sync::Arc;

use pyo3::prelude::*;
use sclub::Error;
use sclub_lab::policies::MakePolicy;
use sclub_lab::streams::{Purpose, mix};
use sclub_lab::world::World;

use super::guest_policy::{FAILED, GuestPolicy, Place};
use super::halt::Halt;
use crate::ids::first_word;

/// A function of features, users, items, rounds, the policy's seed, the world's, items shown at once, and what the world
/// tells, by name. It returns a policy, or None if the policy does not play such a world.
pub struct Maker {
    label: String,
    make: Py<PyAny>,
    halt: Arc<Halt>,
}

impl Maker {
    pub fn new(label: String, make: Py<PyAny>, halt: Arc<Halt>) -> Self {
        Self { label, make, halt }
    }

    /// The seed of the policy's own draws in the world of a seed: neither the world nor a policy of another name draws
    /// the same. It is below 2^32, which scikit-learn and NumPy's older generators require.
    fn own_seed(&self, seed: u64) -> u64 {
        let name = first_word(self.label.as_bytes());
        mix(&[seed, Purpose::Guests as u64, name]) >> 32
    }

    /// The Python object for some rounds of a world.
    fn object<'py>(
        &self,
        py: Python<'py>,
        world: &dyn World,
        seed: u64,
        rounds: u64,
    ) -> PyResult<(Bound<'py, PyAny>, Place)> {
        let block = world.new_block();
        let place = Place {
            dim: world.dim(),
            users: world.users(),
            is_for_several: false,
            slots: block.slots,
        };
        let about = (
            place.dim,
            place.users,
            block.candidates,
            rounds,
            self.own_seed(seed),
            seed,
            place.slots,
            world.told(),
        );
        Ok((self.make.bind(py).call1(about)?, place))
    }

    /// A policy for some rounds of a world.
    pub fn policy(
        &self,
        world: &dyn World,
        seed: u64,
        rounds: u64,
        is_for_several: bool,
    ) -> PyResult<GuestPolicy> {
        Python::attach(|py| {
            let (object, place) = self.object(py, world, seed, rounds)?;
            let place = Place {
                is_for_several,
                ..place
            };
            GuestPolicy::new(self.label.clone(), &object, place, Arc::clone(&self.halt))
        })
    }

    /// True if the policy plays a world: the function makes one, and it can choose lists if lists are shown. Other
    /// faults of the policy are raised.
    pub fn plays(&self, world: &dyn World, seed: u64, rounds: u64) -> PyResult<bool> {
        Python::attach(|py| {
            let (object, place) = self.object(py, world, seed, rounds)?;
            if object.is_none() || (place.slots > 1 && !object.hasattr("recommend_list")?) {
                return Ok(false);
            }
            GuestPolicy::new(self.label.clone(), &object, place, Arc::clone(&self.halt))?;
            Ok(true)
        })
    }
}

impl MakePolicy for Maker {
    fn make(
        &self,
        world: &dyn World,
        seed: u64,
        rounds: u64,
    ) -> Result<Box<dyn sclub::Policy>, Error> {
        match self.policy(world, seed, rounds, false) {
            Ok(policy) => Ok(Box::new(policy)),
            Err(error) => {
                self.halt.fail(error);
                Err(FAILED)
            }
        }
    }
}
