//! The constants of a policy: presets, ranges, values, and their validation.

use std::fmt;
use std::str::FromStr;

use super::{Setup, Spec};
use crate::error::Error;
use crate::policy::Policy;

/// A set of values of the constants.
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
            ValueError::new(
                "preset",
                format!("unknown preset '{text}'; use one of {known}"),
            )
        })
    }
}

/// A constant of a policy.
#[derive(Debug, Clone, Copy)]
pub struct Constant {
    /// Its name, as in Python; flags have `-` for `_`.
    pub name: &'static str,
    /// A description of one line.
    pub meaning: &'static str,
    /// The values that it can have.
    pub range: Range,
    /// Default value in a preset. [`Value::Unset`] if the constant is off by default (`half_life`: no decay) or
    /// its `instead_of` partner is set (`beta`/`beta_scale`).
    pub default: fn(Preset, &Setup<'_>) -> Result<Value, Error>,
    /// An alternative constant with the same purpose. Setting one unsets the other.
    pub instead_of: Option<&'static str>,
    /// True if only experts need it. Then it is not in the short help.
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
    /// Names the accepted values.
    pub fn parse(&self, text: &str) -> Result<Value, ValueError> {
        let unknown = |known: &[&str]| {
            let known = known.join(", ");
            ValueError::new(
                self.name,
                format!("unknown value '{text}'; use one of {known}"),
            )
        };
        match self.range {
            Range::Number { requirement, .. } => {
                let number = text.parse().map_err(|_| {
                    ValueError::new(
                        self.name,
                        format!("'{text}' is not a number; it must be {requirement}"),
                    )
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
                                        "unknown value '{part}'; use one of all, none, {known}"
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
    /// Names the accepted values.
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
        /// True if the smallest is excluded.
        open: bool,
        /// True if it must be a whole number.
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
    /// No value: the constant is off, or its [`Constant::instead_of`] partner is set.
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

/// An invalid value, or an unknown name.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueError {
    /// The constant, or `preset`.
    pub name: String,
    /// The reason, and the accepted values.
    pub why: String,
}

impl ValueError {
    pub(super) fn new(name: &str, why: impl Into<String>) -> Self {
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
    pub(super) spec: &'static Spec,
    pub(super) preset: Preset,
    pub(super) values: Vec<Value>,
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

    /// The value of a constant; [`Value::Unset`] if the policy has none of that name.
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

    /// True if a flag is set and true.
    pub fn flag(&self, name: &str) -> bool {
        self.get(name) == Value::Flag(true)
    }

    /// A choice; empty if it is not set.
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
    /// [`Error::Dimension`], [`Error::BadParameter`], and other errors of the policy's constructor.
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
