//! The policies by name, and how they are made for a world.

use std::fmt;
use std::str::FromStr;

use sclub::{
    Assumptions, Club, Deviations, Error, Exploration, Graph, Index, LinUcbInd, LinUcbShared,
    Params, Policy, PublishedSclub, Sclub, Users,
};
use serde::{Serialize, Serializer};

use crate::streams::{Purpose, mix};
use crate::world::World;
use crate::yardsticks::{Informed, Oracle, Random};

/// A policy by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Name {
    /// [`Sclub`]
    Sclub,
    /// [`Club`]
    Club,
    /// [`LinUcbShared::one`]
    LinUcbOne,
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
    pub const ALL: [Name; 7] = [
        Name::Sclub,
        Name::Club,
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
            Name::Club => "club",
            Name::LinUcbOne => "linucb-one",
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
            Name::Club => "CLUB",
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
        Name::ALL
            .into_iter()
            .find(|name| name.as_str() == text)
            .ok_or_else(|| {
                let known: Vec<&str> = Name::ALL.iter().map(|name| name.as_str()).collect();
                format!(
                    "there is no policy '{text}'; there are {}",
                    known.join(", ")
                )
            })
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
}

/// What SCLUB does otherwise than the pseudo-code unless it is said: as the published code with its
/// constants, nothing else.
pub fn usual_deviations(preset: Preset) -> Deviations {
    match preset {
        Preset::Released => Deviations::ALL,
        Preset::Theory | Preset::Tuned => Deviations::NONE,
    }
}

/// Makes a policy for a world. Of the world it is told the number of users and features; `oracle`
/// and `informed` are told the truth, and there is none of them in a world without clusters.
///
/// # Errors
/// [`Error::BadParameter`].
pub fn make(entry: &Entry, world: &dyn World, seed: u64) -> Result<Option<Box<dyn Policy>>, Error> {
    let dim = world.dim();
    let users = Users::Declared(world.users());
    let params = &entry.params;
    Ok(Some(match entry.name {
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
    }))
}
