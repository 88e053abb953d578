//! The policies by name, with their constants, and how they are made for a world.
//!
//! They are those of [`sclub::registry`] and the lab's own [`yardsticks`]. Each has a [`Spec`].

mod choice;
mod guest;

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::str::FromStr;

use sclub::{Error, Policy, Setup, Spec, Users, ValueError, Values, specs};
use serde::{Serialize, Serializer};

use crate::named::unknown;
use crate::streams::{Purpose, mix};
use crate::world::World;
use crate::yardsticks::{self, Known};

pub use choice::{ChoiceError, check_can_play, choose, entries};
pub use guest::{Guest, MakePolicy};
pub use sclub::Preset;

/// A policy by name: its [`Spec`]. Two are equal if their names are.
#[derive(Clone, Copy)]
pub struct Name {
    spec: &'static Spec,
    /// The place of a policy that the caller makes.
    guest: Option<&'static guest::Place>,
}

impl Name {
    /// [`sclub::Sclub`]
    pub const SCLUB: Name = Name::of(&specs::SCLUB);
    /// [`sclub::SclubSoft`]
    pub const SCLUB_SOFT: Name = Name::of(&specs::SCLUB_SOFT);
    /// [`sclub::Club`]
    pub const CLUB: Name = Name::of(&specs::CLUB);
    /// [`sclub::SclubSoft`] without clusters
    pub const GAUSSIAN: Name = Name::of(&specs::GAUSSIAN);
    /// [`sclub::LinUcbInd`]
    pub const LINUCB_IND: Name = Name::of(&specs::LINUCB_IND);
    /// [`sclub::LinUcbShared`] for all users together
    pub const LINUCB_ONE: Name = Name::of(&specs::LINUCB_ONE);
    /// [`yardsticks::Oracle`]
    pub const ORACLE: Name = Name::of(&yardsticks::specs::ORACLE);
    /// [`yardsticks::Informed`]
    pub const INFORMED: Name = Name::of(&yardsticks::specs::INFORMED);
    /// [`yardsticks::BestItem`]
    pub const BEST_ITEM: Name = Name::of(&yardsticks::specs::BEST_ITEM);
    /// [`yardsticks::Random`]
    pub const RANDOM: Name = Name::of(&yardsticks::specs::RANDOM);

    const fn of(spec: &'static Spec) -> Self {
        Name { spec, guest: None }
    }

    /// Every policy, in the order in which they are shown, without guests.
    pub fn all() -> Vec<Name> {
        let learners = sclub::registry().into_iter().map(Name::of);
        let yardsticks = [Name::ORACLE, Name::INFORMED, Name::BEST_ITEM, Name::RANDOM];
        learners.chain(yardsticks).collect()
    }

    /// The name that tools rely on.
    pub fn as_str(self) -> &'static str {
        self.spec.name
    }

    /// True for a policy that the caller makes ([`Guest`]). Nothing tells whether it is the same as in an earlier run,
    /// so its results are not stored.
    pub fn is_guest(self) -> bool {
        self.guest.is_some()
    }

    /// True if the policy needs the ground truth about the world.
    pub fn needs_truth(self) -> bool {
        self.can.needs_truth
    }

    /// True if the policy can play a world of which this is known.
    pub fn can_play(self, knowledge: Knowledge) -> bool {
        match knowledge {
            Knowledge::Nothing => !self.needs_truth(),
            Knowledge::Clusters => self != Name::BEST_ITEM,
            Knowledge::Catalogue => true,
        }
    }

    /// True for a policy with constants that no preset changes.
    pub fn has_own_constants(self) -> bool {
        !self.constants.is_empty() && self.presets.len() == 1
    }

    /// The policy's spec, for as long as the program runs.
    pub fn spec(self) -> &'static Spec {
        self.spec
    }
}

impl From<&'static Spec> for Name {
    fn from(spec: &'static Spec) -> Self {
        Name::of(spec)
    }
}

impl Deref for Name {
    type Target = Spec;

    fn deref(&self) -> &Spec {
        self.spec
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.spec == other.spec
    }
}

impl Eq for Name {}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.spec.hash(state);
    }
}

/// The order is that of [`Name::all`].
impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        let all = Name::all();
        let place = |name: &Name| all.iter().position(|one| one == name);
        place(self).cmp(&place(other))
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = Name::all();
        let found = all.iter().copied().find(|name| name.as_str() == text);
        // The registry knows second names too.
        found
            .or_else(|| sclub::find_policy(text).map(Name::of))
            .ok_or_else(|| unknown("policy", text, all.iter().map(|name| name.as_str())))
    }
}

/// The part of a world's ground truth that yardsticks can be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Knowledge {
    /// There is no ground truth.
    Nothing,
    /// The true clusters and their weight vectors.
    Clusters,
    /// The same, and the items, which are the same in all rounds.
    Catalogue,
}

impl Knowledge {
    /// The knowledge about a world.
    pub fn of(world: &dyn World) -> Self {
        match world.truth() {
            None => Knowledge::Nothing,
            Some(truth) if truth.stock.is_some() => Knowledge::Catalogue,
            Some(_) => Knowledge::Clusters,
        }
    }
}

/// A policy with its constants.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The policy.
    pub name: Name,
    /// Its constants.
    pub values: Values,
}

impl Entry {
    /// A policy with the constants of a preset, with given ones in place of some.
    ///
    /// # Errors
    /// As [`Spec::values`].
    pub fn new(
        name: Name,
        preset: Preset,
        given: &[(&str, sclub::Value)],
        setup: &Setup<'_>,
    ) -> Result<Self, ValueError> {
        let values = name.spec().values(preset, given, setup)?;
        Ok(Self { name, values })
    }
}

/// A setup in the lab, where users need not be forgotten.
pub fn setup(dim: usize, users: u64) -> Setup<'static> {
    Setup {
        users: Users::Declared(users),
        can_forget: false,
        ..Setup::new(dim)
    }
}

/// Makes a policy for some rounds of a world. It is given the number of users and features, and the ground truth if
/// it needs it. `None` if it needs more of the ground truth than the world has.
///
/// # Errors
/// [`Error::BadParameter`], and other errors of the policy.
pub fn make(
    entry: &Entry,
    world: &dyn World,
    seed: u64,
    rounds: u64,
) -> Result<Option<Box<dyn Policy>>, Error> {
    if let Some(guest) = entry.name.guest {
        return guest.make(world, seed, rounds).map(Some);
    }
    let knowledge = Knowledge::of(world);
    if !entry.name.can_play(knowledge) {
        return Ok(None);
    }
    let known = Known {
        seed,
        truth: world.truth().filter(|_| entry.name.needs_truth()).cloned(),
        is_catalogue: knowledge == Knowledge::Catalogue,
    };
    let setup = Setup {
        seed: mix(&[seed, Purpose::Graph as u64]),
        truth: Some(&known),
        ..setup(world.dim(), world.users())
    };
    entry.values.make(&setup).map(Some)
}
