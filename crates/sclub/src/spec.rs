//! The description of a policy for tools: name, constants, abilities, constructor and loader.
//!
//! A policy's file ends with its [`Spec`]. Command line, service, Python package, charts and
//! documentation are made from it.

mod constants;

pub use constants::{Constant, Preset, Range, Value, ValueError, Values};

use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};

use crate::bytes::Reader;
use crate::error::{Error, LoadError};
use crate::params::Assumptions;
use crate::policy::{Policy, Users};
use crate::refit::{Gathering, Progress};

/// A policy as tools see it. Two are equal if their names are.
#[derive(Debug)]
pub struct Spec {
    /// The name that tools use: lower case, words joined by `-`. A policy that is built on another can have both
    /// names, joined by `:`.
    pub name: &'static str,
    /// The name in prose and in legends.
    pub title: &'static str,
    /// A description of one line.
    pub summary: &'static str,
    /// The publication that it follows.
    pub citation: &'static str,
    /// Its colour in charts, as `#RRGGBB`: on a light ground, on a dark ground.
    pub colors: [&'static str; 2],
    /// Increase when a change makes the policy decide differently on the same history; stored results of other
    /// revisions are then not reused.
    pub revision: u32,
    /// The sets of constants that it has, the default first.
    pub presets: &'static [Preset],
    /// Its constants.
    pub constants: &'static [Constant],
    /// Its abilities beyond recommending and learning.
    pub can: Abilities,
    /// Makes one that has learned nothing.
    pub new: NewPolicy,
    /// Loads a saved state, if the policy can be saved.
    pub load: Option<Load>,
    /// Begins a fit over several partitions, if the policy makes such fits ([`Partitions::Gathered`]).
    pub gather: Option<NewGathering>,
}

/// Makes a policy from its constants.
pub type NewPolicy = fn(&Setup<'_>, &Values) -> Result<Box<dyn Policy>, Error>;

/// Begins a fit over several partitions of the users, from their states in short; `None` if no fit is due. The
/// partition at each index answers with the same index. A partition whose state is not known has `None`; it may
/// answer all the same.
pub type NewGathering =
    fn(&Setup<'_>, &Values, &[Option<Progress>]) -> Result<Option<Box<dyn Gathering>>, Error>;

/// The ways in which the users of a policy can be split into partitions, each with a policy of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Partitions {
    /// They can: users share nothing.
    Any,
    /// They can. What users share is learned by fits over all partitions ([`Spec::gather`]).
    Gathered,
    /// They cannot: all users must be in one partition.
    One,
}

/// Abilities of a policy beyond recommending and learning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abilities {
    /// [`crate::Forget`]
    pub forget: bool,
    /// [`crate::Inspect`]
    pub inspect: bool,
    /// [`crate::Persist`]
    pub save: bool,
    /// [`crate::Correct`]
    pub correct: bool,
    /// [`crate::BackgroundFit`]
    pub fit: bool,
    /// Splits and merges clusters of users while it learns, and reports each [`crate::Change`].
    pub regroups: bool,
    /// Learns from lists as a whole ([`Policy::learn_lists`]), not from each item by itself.
    pub lists: bool,
    /// Looks at [`crate::ItemSet::id`].
    pub item_ids: bool,
    /// Draws at random ([`Policy::recommend_drawn`]).
    pub draws: bool,
    /// Needs the ground truth of the world ([`Setup::truth`]): for comparison only.
    pub needs_truth: bool,
    /// Whether its users can be split into partitions.
    pub partitions: Partitions,
}

impl Abilities {
    /// No ability.
    pub const NONE: Self = Self {
        forget: false,
        inspect: false,
        save: false,
        correct: false,
        fit: false,
        regroups: false,
        lists: false,
        item_ids: false,
        draws: false,
        needs_truth: false,
        partitions: Partitions::One,
    };

    /// Can be inspected, saved, and made to forget users: everything a service needs.
    pub const SERVED: Self = Self {
        forget: true,
        inspect: true,
        save: true,
        ..Self::NONE
    };

    /// True if a service can run the policy.
    pub fn can_be_served(&self) -> bool {
        self.forget && self.inspect && self.save && !self.needs_truth
    }
}

/// The loader of a policy's saved states.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// The first word of the state ([`crate::bytes::Save::MAGIC`]).
    pub magic: u64,
    /// Loads the words after the header.
    pub load: fn(Reader<'_>) -> Result<Box<dyn Policy>, LoadError>,
}

/// The setting that a policy is made for.
#[derive(Clone, Copy)]
pub struct Setup<'a> {
    /// Features per item.
    pub dim: usize,
    /// The users known before the first round.
    pub users: Users,
    /// Fixes everything that the policy draws at random.
    pub seed: u64,
    /// True if a policy that makes fits makes them in [`Policy::learn_round`]. If not, the caller
    /// makes them on another thread ([`crate::BackgroundFit`]).
    pub fits_inline: bool,
    /// True if users may have to be forgotten. If not, a policy may save the cost of being able to.
    pub can_forget: bool,
    /// The assumptions of Theorem 1, for [`Preset::Theory`].
    pub assumptions: Option<&'a Assumptions>,
    /// The truth about a simulated world, for policies that need it. Its type is the simulator's.
    pub truth: Option<&'a dyn Any>,
}

impl Setup<'_> {
    /// Users appear, seed 0, fits inline, users can be forgotten.
    pub fn new(dim: usize) -> Self {
        Self {
            dim,
            users: Users::Appear,
            seed: 0,
            fits_inline: true,
            can_forget: true,
            assumptions: None,
            truth: None,
        }
    }
}

impl Spec {
    /// Checks that the spec is well formed: names, texts, colours, presets and constants.
    ///
    /// # Errors
    /// A sentence that names the first fault.
    pub fn check(&self) -> Result<(), String> {
        let name = self.name;
        let ensure = |holds: bool, fault: &str| match holds {
            true => Ok(()),
            false => Err(format!("policy '{name}': {fault}")),
        };
        let is_word = |text: &str, joint: char| {
            let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == joint;
            text.starts_with(|c: char| c.is_ascii_lowercase()) && text.chars().all(is_plain)
        };
        let is_line = |text: &str| !text.is_empty() && !text.contains('\n') && !text.ends_with('.');
        let is_color = |color: &str| {
            let digits = color.strip_prefix('#').unwrap_or_default();
            digits.len() == 6 && digits.chars().all(|c| c.is_ascii_hexdigit())
        };
        ensure(
            name.split(':').all(|part| is_word(part, '-')),
            "its name must be lower-case words joined by '-' or ':'",
        )?;
        ensure(
            !self.title.is_empty() && !self.citation.is_empty(),
            "it needs a title and a citation",
        )?;
        ensure(
            is_line(self.summary),
            "its summary must be one line without a full stop",
        )?;
        ensure(
            self.colors.iter().all(|color| is_color(color)),
            "its colours must be #RRGGBB",
        )?;
        ensure(!self.presets.is_empty(), "it needs a preset")?;
        ensure(
            self.load.is_some() == self.can.save,
            "it must have a loader exactly if it can be saved",
        )?;
        ensure(
            self.gather.is_some() == (self.can.partitions == Partitions::Gathered),
            "it must have 'gather' exactly if its partitions are gathered",
        )?;
        for (place, constant) in self.constants.iter().enumerate() {
            let is_twice = self.constants[..place]
                .iter()
                .any(|other| other.name == constant.name);
            ensure(
                !is_twice,
                &format!("its constant '{}' is declared twice", constant.name),
            )?;
            let is_good = is_word(constant.name, '_') && is_line(constant.meaning);
            let fault = "needs a name of lower-case words joined by '_', and a meaning of one line";
            ensure(
                is_good,
                &format!("its constant '{}' {fault}", constant.name),
            )?;
        }
        Ok(())
    }

    /// The constants of a preset, with given values in place of some. A policy that has not this
    /// preset takes its default.
    ///
    /// # Errors
    /// Names the first invalid value.
    pub fn values(
        &'static self,
        preset: Preset,
        given: &[(&str, Value)],
        setup: &Setup<'_>,
    ) -> Result<Values, ValueError> {
        let preset = self.preset(preset);
        let mut values = Vec::with_capacity(self.constants.len());
        for constant in self.constants {
            values.push((constant.default)(preset, setup)?);
        }
        let mut all = Values {
            spec: self,
            preset,
            values,
        };
        let is_given = |name: &str| given.iter().any(|&(n, v)| n == name && v != Value::Unset);
        for &(name, value) in given {
            let Some(place) = self.place(name) else {
                return Err(self.unknown(name));
            };
            let constant = &self.constants[place];
            constant.check_value(value)?;
            if value == Value::Unset {
                continue;
            }
            if let Some(other) = constant.instead_of {
                if is_given(other) {
                    let why = format!("it cannot be given together with {other}");
                    return Err(ValueError::new(name, why));
                }
                if let Some(other) = self.place(other) {
                    all.values[other] = Value::Unset;
                }
            }
            all.values[place] = value;
        }
        Ok(all)
    }

    /// The requested preset if the policy has it, else the policy's default.
    pub fn preset(&self, asked: Preset) -> Preset {
        if self.presets.contains(&asked) {
            asked
        } else {
            self.presets[0]
        }
    }

    /// A constant by name.
    pub fn constant(&self, name: &str) -> Option<&'static Constant> {
        self.constants.iter().find(|constant| constant.name == name)
    }

    /// The index of a constant.
    fn place(&self, name: &str) -> Option<usize> {
        self.constants
            .iter()
            .position(|constant| constant.name == name)
    }

    fn unknown(&self, name: &str) -> ValueError {
        let known: Vec<&str> = self.constants.iter().map(|c| c.name).collect();
        let why = match known.is_empty() {
            true => format!("policy '{}' has no constants", self.name),
            false => format!(
                "policy '{}' has no such constant; it has {}",
                self.name,
                known.join(", ")
            ),
        };
        ValueError::new(name, why)
    }
}

impl PartialEq for Spec {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Spec {}

impl Hash for Spec {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name)
    }
}
