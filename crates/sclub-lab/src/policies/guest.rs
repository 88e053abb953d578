//! Policies that the caller makes, for as long as it runs them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sclub::{Abilities, Error, Policy, Preset, Spec};

use super::Name;
use crate::world::World;

/// Makes a policy for some rounds of the world of a seed.
pub trait MakePolicy: Send + Sync {
    /// Makes one that has learned nothing.
    ///
    /// # Errors
    /// Any. [`crate::run::Observer::is_cancelled`] tells how to pass on a reason that [`Error`] does not have.
    fn make(&self, world: &dyn World, seed: u64, rounds: u64) -> Result<Box<dyn Policy>, Error>;
}

/// A name that lives as long as the program, and the maker of the policy as long as there is one.
pub(super) struct Place {
    spec: Spec,
    maker: Mutex<Option<Arc<dyn MakePolicy>>>,
}

/// All places. One whose guest is gone is taken by the next guest of the same name, title and colours.
static PLACES: Mutex<Vec<&'static Place>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is locked here is replaced as a whole, so a panic leaves nothing half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Place {
    pub(super) fn make(
        &self,
        world: &dyn World,
        seed: u64,
        rounds: u64,
    ) -> Result<Box<dyn Policy>, Error> {
        let maker = lock(&self.maker).clone();
        let maker = maker.ok_or(Error::Unsupported {
            reason: "the policy was made by a caller that has ended",
        })?;
        let rounds = world.length().map_or(rounds, |length| length.min(rounds));
        maker.make(world, seed, rounds)
    }
}

/// A policy of the caller that plays beside those of the registry until this is dropped. It has no constants.
pub struct Guest(&'static Place);

impl Guest {
    /// A guest. `name` must not be the name of another policy that plays with it. `colors` are as in [`Spec`].
    pub fn new(
        name: &str,
        summary: &str,
        citation: &str,
        colors: [&str; 2],
        maker: Arc<dyn MakePolicy>,
    ) -> Self {
        let mut places = lock(&PLACES);
        let texts = [name, summary, citation, colors[0], colors[1]];
        let free = places.iter().find(|place| {
            let Spec {
                name,
                summary,
                citation,
                colors: [light, dark],
                ..
            } = place.spec;
            texts == [name, summary, citation, light, dark] && lock(&place.maker).is_none()
        });
        if let Some(&place) = free {
            *lock(&place.maker) = Some(maker);
            return Self(place);
        }
        let [name, summary, citation, light, dark] =
            texts.map(|text| &*Box::leak(text.to_owned().into_boxed_str()));
        let place: &'static Place = Box::leak(Box::new(Place {
            spec: Spec {
                name,
                title: name,
                summary,
                citation,
                colors: [light, dark],
                revision: 0,
                presets: &[Preset::Default],
                constants: &[],
                can: Abilities::NONE,
                new: |_, _| {
                    Err(Error::Unsupported {
                        reason: "a guest is made by its caller",
                    })
                },
                load: None,
                gather: None,
            },
            maker: Mutex::new(Some(maker)),
        }));
        places.push(place);
        Self(place)
    }

    /// Its name. It stays valid, for tables and figures, when the guest is gone.
    pub fn name(&self) -> Name {
        Name {
            spec: &self.0.spec,
            guest: Some(self.0),
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // It is dropped when the lock is free again.
        let _gone = lock(&self.0.maker).take();
    }
}
