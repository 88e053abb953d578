//! The policies by name, and how they are made for a world.

mod choice;

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::str::FromStr;

use sclub::{
    Assumptions, Club, Deviations, Error, Exploration, Graph, Index, Keep, LinUcbInd, LinUcbShared,
    Outlook, Params, Policy, PublishedSclub, Sclub, SclubSoft, SoftParams, Users,
};
use serde::{Serialize, Serializer};

use crate::named::named;
use crate::streams::{Purpose, mix};
use crate::world::World;
use crate::yardsticks::{Informed, Oracle, Random};

pub use choice::{ChoiceError, MOST_COMPLETE, choose, deviations, usual_deviations, usual_graph};

/// A policy by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Name {
    /// [`Sclub`]
    Sclub,
    /// [`SclubSoft`]
    SclubSoft,
    /// [`Club`]
    Club,
    /// [`LinUcbShared::one`]
    LinUcbOne,
    /// [`SclubSoft`] without clusters: [`SoftParams::gaussian`].
    Gaussian,
    /// [`LinUcbInd`]
    LinUcbInd,
    /// LinUCB that is told the true clusters.
    Oracle,
    /// [`Informed`]
    Informed,
    /// [`Random`]
    Random,
}

impl Name {
    /// Every policy, in the order in which they are shown.
    pub const ALL: [Name; 9] = [
        Name::Sclub,
        Name::SclubSoft,
        Name::Club,
        Name::Gaussian,
        Name::LinUcbInd,
        Name::LinUcbOne,
        Name::Oracle,
        Name::Informed,
        Name::Random,
    ];

    /// The name that tools rely on.
    pub fn as_str(self) -> &'static str {
        match self {
            Name::Sclub => "sclub",
            Name::SclubSoft => "sclub-soft",
            Name::Club => "club",
            Name::LinUcbOne => "linucb-one",
            Name::Gaussian => "gaussian",
            Name::LinUcbInd => "linucb-ind",
            Name::Oracle => "oracle",
            Name::Informed => "informed",
            Name::Random => "random",
        }
    }

    /// The name in a sentence.
    pub fn title(self) -> &'static str {
        match self {
            Name::Sclub => "SCLUB",
            Name::SclubSoft => "SCLUB-soft",
            Name::Club => "CLUB",
            Name::Gaussian => "One Gaussian prior",
            Name::LinUcbInd => "LinUCB-Ind",
            Name::LinUcbOne => "LinUCB-One",
            Name::Oracle => "Oracle",
            Name::Informed => "Informed",
            Name::Random => "Random",
        }
    }

    /// Whether the policy is told what a learner is not.
    pub fn is_told(self) -> bool {
        matches!(self, Name::Oracle | Name::Informed)
    }

    /// Whether it is the soft policy, with or without clusters. It has one set of constants, which no
    /// preset changes.
    pub fn is_soft(self) -> bool {
        matches!(self, Name::SclubSoft | Name::Gaussian)
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
        named("policy", text, &Name::ALL.map(|name| (name.as_str(), name)))
    }
}

/// Where a policy's constants come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Preset {
    /// Theorem 1's.
    Theory,
    /// The authors' published code's.
    Released,
    /// Chosen to do well.
    Tuned,
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Preset::Theory => "theory",
            Preset::Released => "released",
            Preset::Tuned => "tuned",
        })
    }
}

impl FromStr for Preset {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [
            ("theory", Preset::Theory),
            ("released", Preset::Released),
            ("tuned", Preset::Tuned),
        ];
        named("preset", text, &all)
    }
}

/// The graph that CLUB starts from; a random one is drawn from the world's seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum InitialGraph {
    /// Each edge with probability 3 ln n / n.
    #[default]
    Random,
    /// Every edge.
    Complete,
}

impl FromStr for InitialGraph {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [
            ("random", InitialGraph::Random),
            ("complete", InitialGraph::Complete),
        ];
        named("graph", text, &all)
    }
}

/// Constants to use in place of the preset's.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Overrides {
    /// α_θ
    pub alpha_theta: Option<f64>,
    /// α_p
    pub alpha_p: Option<f64>,
    /// A fixed β.
    pub beta: Option<f64>,
    /// The share of the released code's growing β.
    pub beta_scale: Option<f64>,
    /// Whether the index takes the squared norm.
    pub squared_norm: Option<bool>,
    /// Observations of a user after which one of hers counts half, for the soft policy.
    pub half_life: Option<f64>,
}

/// The constants of a preset, with overrides.
///
/// # Errors
/// [`Error::BadParameter`] names what is out of range.
pub fn params(
    preset: Preset,
    overrides: &Overrides,
    assumptions: &Assumptions,
) -> Result<Params, Error> {
    let mut params = match preset {
        Preset::Theory => Params::theory(assumptions)?,
        Preset::Released => Params::released(),
        Preset::Tuned => Params::tuned(),
    };
    if let Some(alpha_theta) = overrides.alpha_theta {
        params.alpha_theta = alpha_theta;
    }
    if let Some(alpha_p) = overrides.alpha_p {
        params.alpha_p = alpha_p;
    }
    if let Some(scale) = overrides.beta_scale {
        params.exploration = Exploration::Growing { scale };
    }
    if let Some(beta) = overrides.beta {
        params.exploration = Exploration::Fixed(beta);
    }
    if let Some(squared) = overrides.squared_norm {
        params.index = if squared {
            Index::SquaredNorm
        } else {
            Index::Norm
        };
    }
    params.check()?;
    Ok(params)
}

/// A policy with all that it takes to make it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Entry {
    /// Which.
    pub name: Name,
    /// What its constants are called.
    pub preset: Preset,
    /// Its constants.
    pub params: Params,
    /// The graph that CLUB starts from.
    pub graph: InitialGraph,
    /// What SCLUB does otherwise than the pseudo-code.
    pub deviations: Deviations,
    /// Observations of a user after which one of hers counts half, for the soft policy.
    pub half_life: Option<f64>,
}

impl Entry {
    /// The constants of the soft policy, if that is what it is. No preset changes them.
    pub fn soft_params(&self) -> SoftParams {
        let params = match self.name {
            Name::Gaussian => SoftParams::gaussian(),
            _ => SoftParams::default(),
        };
        SoftParams {
            half_life: self.half_life,
            ..params
        }
    }
}

/// A policy that was made.
pub enum Made {
    /// One that says nothing about itself.
    Plain(Box<dyn Policy>),
    /// One that knows how its clustering does.
    Outspoken(Box<dyn Keep>),
}

impl Made {
    /// The state of the clustering as a whole; nothing where a policy fits nothing.
    pub fn outlook(&self) -> Option<Outlook> {
        match self {
            Made::Plain(_) => None,
            Made::Outspoken(policy) => policy.outlook(),
        }
    }
}

impl Deref for Made {
    type Target = dyn Policy;

    fn deref(&self) -> &Self::Target {
        match self {
            Made::Plain(policy) => &**policy,
            Made::Outspoken(policy) => &**policy,
        }
    }
}

impl DerefMut for Made {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Made::Plain(policy) => &mut **policy,
            Made::Outspoken(policy) => &mut **policy,
        }
    }
}

/// Makes a policy for a world. Of the world it is told the number of users and features; `oracle`
/// and `informed` are told the truth, and there is none of them in a world without clusters.
///
/// # Errors
/// [`Error::BadParameter`].
pub fn make(entry: &Entry, world: &dyn World, seed: u64) -> Result<Option<Made>, Error> {
    let dim = world.dim();
    let users = Users::Declared(world.users());
    let params = &entry.params;
    Ok(Some(Made::Plain(match entry.name {
        Name::SclubSoft | Name::Gaussian => {
            let policy = SclubSoft::new(dim, &entry.soft_params())?;
            return Ok(Some(Made::Outspoken(Box::new(policy))));
        }
        Name::Sclub if entry.deviations == Deviations::NONE => {
            Box::new(Sclub::new(dim, users, params)?)
        }
        Name::Sclub => Box::new(PublishedSclub::new(dim, users, params, entry.deviations)?),
        Name::Club => {
            let graph = match entry.graph {
                InitialGraph::Random => Graph::Random {
                    seed: mix(&[seed, Purpose::Graph as u64]),
                },
                InitialGraph::Complete => Graph::Complete,
            };
            Box::new(Club::new(dim, users, graph, params)?)
        }
        Name::LinUcbOne => Box::new(LinUcbShared::one(dim, params)?),
        Name::LinUcbInd => Box::new(LinUcbInd::new(dim, params)?),
        Name::Oracle => {
            let Some(truth) = world.truth() else {
                return Ok(None);
            };
            Box::new(Oracle::new(dim, truth, params)?)
        }
        Name::Informed => {
            let Some(truth) = world.truth() else {
                return Ok(None);
            };
            Box::new(Informed::new(truth))
        }
        Name::Random => Box::new(Random::new(dim, seed)),
    })))
}
