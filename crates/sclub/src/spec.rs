//! Everything that tools know about a policy: its name, its constants, what it can do, how it is made
//! and how it is loaded.
//!
//! A policy's file ends with its [`Spec`]. Command line, service, Python package, charts and
//! documentation are made from it.

use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use crate::bytes::Reader;
use crate::error::{Error, LoadError};
use crate::params::Assumptions;
use crate::policy::{Policy, Users};

/// A policy as tools see it. Two are equal if their names are.
#[derive(Debug)]
pub struct Spec {
    /// The name that tools use: lower case, words joined by `-`.
    pub name: &'static str,
    /// The name in prose and in legends.
    pub title: &'static str,
    /// One line: what the policy does.
    pub summary: &'static str,
    /// The publication that it follows.
    pub citation: &'static str,
    /// Its colour in charts, as `#RRGGBB`: on a light ground, on a dark ground.
    pub colors: [&'static str; 2],
    /// Must grow with every change after which the policy may decide otherwise on the same history.
    /// Kept results of other revisions are not used.
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
}

/// Makes a policy from its constants.
pub type NewPolicy = fn(&Setup<'_>, &Values) -> Result<Box<dyn Policy>, Error>;

/// Abilities of a policy beyond recommending and learning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abilities {
    /// [`crate::Forget`]
    pub forget: bool,
    /// [`crate::Inspect`]
    pub inspect: bool,
    /// [`crate::Persist`]
    pub save: bool,
    /// [`crate::BackgroundFit`]
    pub fit: bool,
    /// Learns from lists as a whole ([`Policy::learn_lists`]), not from each item by itself.
    pub lists: bool,
    /// Looks at [`crate::ItemSet::id`].
    pub item_ids: bool,
    /// Must be told the truth about the world ([`Setup::truth`]): for comparison only.
    pub needs_truth: bool,
}

impl Abilities {
    /// No ability.
    pub const NONE: Self = Self {
        forget: false,
        inspect: false,
        save: false,
        fit: false,
        lists: false,
        item_ids: false,
        needs_truth: false,
    };

    /// Can be inspected, saved, and made to forget users: everything a service needs.
    pub const SERVED: Self = Self {
        forget: true,
        inspect: true,
        save: true,
        ..Self::NONE
    };

    /// Whether a service can run the policy.
    pub fn can_be_served(&self) -> bool {
        self.forget && self.inspect && self.save && !self.needs_truth
    }
}

/// How a saved state is told from others and loaded.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// The first word of the state ([`crate::bytes::Save::MAGIC`]).
    pub magic: u64,
    /// Loads what follows the header.
    pub load: fn(Reader<'_>) -> Result<Box<dyn Policy>, LoadError>,
}

/// What a policy is made for.
#[derive(Clone, Copy)]
pub struct Setup<'a> {
    /// Features per item.
    pub dim: usize,
    /// The users known before the first round.
    pub users: Users,
    /// Fixes everything that the policy draws at random.
    pub seed: u64,
    /// Whether a policy that makes fits makes them in [`Policy::learn_round`]. If not, the caller
    /// makes them on another thread ([`crate::BackgroundFit`]).
    pub fits_inline: bool,
    /// Whether users may have to be forgotten. A policy that can forget only at a cost saves it
    /// where they need not be.
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

/// Where constants come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Preset {
    /// The only set of constants of a policy that has one.
    Default,
    /// Chosen to do well in all settings.
    Tuned,
    /// The authors' published code.
    Released,
    /// Theorem 1 of the paper: safe, and far too careful.
    Theory,
}

impl Preset {
    /// All presets.
    pub const ALL: [Preset; 4] = [
        Preset::Default,
        Preset::Tuned,
        Preset::Released,
        Preset::Theory,
    ];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Preset::Default => "default",
            Preset::Tuned => "tuned",
            Preset::Released => "released",
            Preset::Theory => "theory",
        }
    }

    /// One line of help.
    pub fn summary(self) -> &'static str {
        match self {
            Preset::Default => "The only set of constants of the policy",
            Preset::Tuned => "Chosen to do well in all settings",
            Preset::Released => {
                "The authors' published code, with which the paper's figures were made"
            }
            Preset::Theory => "Theorem 1 of the paper: safe, and far too careful",
        }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Preset {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let preset = Preset::ALL.into_iter().find(|p| p.as_str() == text);
        preset.ok_or_else(|| {
            let known = Preset::ALL.map(Preset::as_str).join(", ");
            ValueError::new("preset", format!("there is no '{text}'; there are {known}"))
        })
    }
}

/// A constant of a policy.
#[derive(Debug, Clone, Copy)]
pub struct Constant {
    /// Its name, as in Python; flags have `-` for `_`.
    pub name: &'static str,
    /// One line: what it does.
    pub meaning: &'static str,
    /// The values that it can have.
    pub range: Range,
    /// Its value where none is given. [`Value::Unset`] where that means something of its own.
    pub default: fn(Preset, &Setup<'_>) -> Result<Value, Error>,
    /// Another constant that says the same in another way. Giving one unsets the other.
    pub instead_of: Option<&'static str>,
    /// Whether only experts need it. Then it is not in the short help.
    pub advanced: bool,
}

impl Constant {
    /// A constant that is in the short help and that no other stands in for.
    pub const fn new(
        name: &'static str,
        meaning: &'static str,
        range: Range,
        default: fn(Preset, &Setup<'_>) -> Result<Value, Error>,
    ) -> Self {
        Self {
            name,
            meaning,
            range,
            default,
            instead_of: None,
            advanced: false,
        }
    }

    /// Checks a number.
    ///
    /// # Errors
    /// [`Error::BadParameter`].
    pub fn check(&self, value: f64) -> Result<(), Error> {
        match self.range {
            Range::Number {
                low,
                high,
                open,
                whole,
                requirement,
            } => {
                let is_above = if open { value > low } else { value >= low };
                if is_above && value <= high && (!whole || value.fract() == 0.0) {
                    return Ok(());
                }
                Err(Error::BadParameter {
                    name: self.name,
                    value,
                    requirement,
                })
            }
            _ => Ok(()),
        }
    }

    /// The value that a text stands for.
    ///
    /// # Errors
    /// Says what would be accepted.
    pub fn parse(&self, text: &str) -> Result<Value, ValueError> {
        let unknown = |known: &[&str]| {
            let known = known.join(", ");
            ValueError::new(
                self.name,
                format!("there is no '{text}'; there are {known}"),
            )
        };
        match self.range {
            Range::Number { requirement, .. } => {
                let number = text.parse().map_err(|_| {
                    ValueError::new(self.name, format!("'{text}' is no number {requirement}"))
                })?;
                self.check(number)?;
                Ok(Value::Number(number))
            }
            Range::Flag => match text {
                "true" => Ok(Value::Flag(true)),
                "false" => Ok(Value::Flag(false)),
                _ => Err(unknown(&["true", "false"])),
            },
            Range::OneOf(known) => {
                let choice = known.iter().find(|&&choice| choice == text);
                choice
                    .map(|&choice| Value::Choice(choice))
                    .ok_or_else(|| unknown(known))
            }
            Range::AnyOf(known) => {
                let mut set = 0;
                for part in text.split(',').map(str::trim) {
                    match part {
                        "all" | "none" if part != text.trim() => {
                            let why = format!("'{part}' must stand alone");
                            return Err(ValueError::new(self.name, why));
                        }
                        "all" => set = all_of(known),
                        "none" | "" => {}
                        part => {
                            let place = known.iter().position(|&choice| choice == part);
                            set |= 1
                                << place.ok_or_else(|| {
                                    let known = known.join(", ");
                                    let why = format!(
                                        "there is no '{part}'; there are all, none, {known}"
                                    );
                                    ValueError::new(self.name, why)
                                })?;
                        }
                    }
                }
                Ok(Value::Set(set))
            }
        }
    }

    /// Checks that a value is one that the constant can have.
    ///
    /// # Errors
    /// Says what would be accepted.
    pub fn check_value(&self, value: Value) -> Result<(), ValueError> {
        let fits = match (self.range, value) {
            (_, Value::Unset) => true,
            (Range::Number { .. }, Value::Number(number)) => {
                self.check(number)?;
                true
            }
            (Range::Flag, Value::Flag(_)) => true,
            (Range::OneOf(known), Value::Choice(choice)) => known.contains(&choice),
            (Range::AnyOf(known), Value::Set(set)) => set & !all_of(known) == 0,
            _ => false,
        };
        if fits {
            return Ok(());
        }
        let expected = match self.range {
            Range::Number { .. } => "a number".to_owned(),
            Range::Flag => "true or false".to_owned(),
            Range::OneOf(known) => format!("one of {}", known.join(", ")),
            Range::AnyOf(known) => format!("some of {}", known.join(", ")),
        };
        Err(ValueError::new(
            self.name,
            format!("{expected} is expected"),
        ))
    }

    /// A value as text that [`Constant::parse`] takes; empty for [`Value::Unset`].
    pub fn format(&self, value: Value) -> String {
        match (value, self.range) {
            (Value::Unset, _) => String::new(),
            (Value::Number(number), _) => number.to_string(),
            (Value::Flag(flag), _) => flag.to_string(),
            (Value::Choice(choice), _) => choice.to_owned(),
            (Value::Set(0), _) => "none".to_owned(),
            (Value::Set(set), Range::AnyOf(known)) if set == all_of(known) => "all".to_owned(),
            (Value::Set(set), Range::AnyOf(known)) => {
                let names = known.iter().enumerate();
                let names = names.filter(|(place, _)| set >> place & 1 == 1);
                let names: Vec<&str> = names.map(|(_, &name)| name).collect();
                names.join(",")
            }
            (Value::Set(set), _) => set.to_string(),
        }
    }
}

/// The set of all of some names.
fn all_of(known: &[&str]) -> u64 {
    (1 << known.len()) - 1
}

/// The values that a constant can have.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Range {
    /// A number.
    Number {
        /// The smallest.
        low: f64,
        /// The largest.
        high: f64,
        /// Whether the smallest is excluded.
        open: bool,
        /// Whether it must be a whole number.
        whole: bool,
        /// The range in words, after "it must be".
        requirement: &'static str,
    },
    /// True or false.
    Flag,
    /// One of some names.
    OneOf(&'static [&'static str]),
    /// Any of some names, 63 at the most; `all` and `none` are understood too.
    AnyOf(&'static [&'static str]),
}

impl Range {
    /// A number above 0.
    pub const POSITIVE: Self = Self::Number {
        low: 0.0,
        high: f64::MAX,
        open: true,
        whole: false,
        requirement: "positive and finite",
    };

    /// A number that is not below 0.
    pub const NOT_NEGATIVE: Self = Self::Number {
        low: 0.0,
        high: f64::MAX,
        open: false,
        whole: false,
        requirement: "zero or positive, and finite",
    };

    /// A number between two, both included.
    pub const fn between(low: f64, high: f64, requirement: &'static str) -> Self {
        Self::Number {
            low,
            high,
            open: false,
            whole: false,
            requirement,
        }
    }

    /// A whole number between two, both included.
    pub const fn whole(low: f64, high: f64, requirement: &'static str) -> Self {
        Self::Number {
            low,
            high,
            open: false,
            whole: true,
            requirement,
        }
    }
}

/// The value of a constant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// None.
    Unset,
    /// A number.
    Number(f64),
    /// True or false.
    Flag(bool),
    /// One of the names of [`Range::OneOf`].
    Choice(&'static str),
    /// Some of the names of [`Range::AnyOf`], a bit for each.
    Set(u64),
}

/// A value or a name that cannot be.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueError {
    /// The constant, or `preset`.
    pub name: String,
    /// Why it cannot be.
    pub why: String,
}

impl ValueError {
    fn new(name: &str, why: impl Into<String>) -> Self {
        Self {
            name: name.to_owned(),
            why: why.into(),
        }
    }
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.why)
    }
}

impl std::error::Error for ValueError {}

impl From<Error> for ValueError {
    fn from(error: Error) -> Self {
        match error {
            Error::BadParameter {
                name,
                value,
                requirement,
            } => Self::new(name, format!("it is {value}, and must be {requirement}")),
            other => Self::new("constants", other.to_string()),
        }
    }
}

/// The constants of a policy, all of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Values {
    spec: &'static Spec,
    preset: Preset,
    values: Vec<Value>,
}

impl Spec {
    /// The constants of a preset, with given values in place of some. A policy that has not this
    /// preset takes its default.
    ///
    /// # Errors
    /// Names the first value that cannot be.
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

    /// The preset that the policy takes where this one is asked for.
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

impl Values {
    /// The policy that they are for.
    pub fn spec(&self) -> &'static Spec {
        self.spec
    }

    /// The preset that they began from.
    pub fn preset(&self) -> Preset {
        self.preset
    }

    /// Every constant with its value.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Constant, Value)> + '_ {
        self.spec.constants.iter().zip(self.values.iter().copied())
    }

    /// The value of a constant; [`Value::Unset`] where the policy has none of that name.
    pub fn get(&self, name: &str) -> Value {
        let place = self.spec.place(name);
        place.map_or(Value::Unset, |place| self.values[place])
    }

    /// A number, if it is set.
    pub fn number(&self, name: &str) -> Option<f64> {
        match self.get(name) {
            Value::Number(number) => Some(number),
            _ => None,
        }
    }

    /// Whether a flag is set and true.
    pub fn flag(&self, name: &str) -> bool {
        self.get(name) == Value::Flag(true)
    }

    /// A choice; empty where it is not set.
    pub fn choice(&self, name: &str) -> &'static str {
        match self.get(name) {
            Value::Choice(choice) => choice,
            _ => "",
        }
    }

    /// A set of names as bits.
    pub fn set(&self, name: &str) -> u64 {
        match self.get(name) {
            Value::Set(set) => set,
            _ => 0,
        }
    }

    /// Makes the policy.
    ///
    /// # Errors
    /// [`Error::Dimension`], [`Error::BadParameter`], and what else the policy says.
    pub fn make(&self, setup: &Setup<'_>) -> Result<Box<dyn Policy>, Error> {
        (self.spec.new)(setup, self)
    }
}

/// Name, revision and every constant: equal texts mean equal decisions on equal histories.
impl fmt::Display for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} revision {}", self.spec.name, self.spec.revision)?;
        for (constant, value) in self.iter() {
            match value {
                // To the bit.
                Value::Number(number) => write!(f, " {}={number:?}", constant.name)?,
                other => write!(f, " {}={}", constant.name, constant.format(other))?,
            }
        }
        Ok(())
    }
}
