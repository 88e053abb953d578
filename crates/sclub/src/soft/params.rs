//! The constants of the soft policy: one set for everything. docs/sclub-soft.md says how they were
//! chosen.

use crate::bytes::{Reader, Writer, bad};
use crate::error::{Error, LoadError};

/// Constants of [`crate::SclubSoft`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SoftParams {
    /// Whether clusters are looked for. Without them there is one Gaussian prior for all users.
    pub clusters: bool,
    /// Whether fits are made by [`crate::Policy::learn_round`] itself as soon as they are due. Else
    /// whoever runs the policy makes them beside it ([`crate::Keep::refit`]).
    pub inline: bool,
    /// A user's observation counts half after so many later ones of hers; all count alike where it is
    /// absent.
    pub half_life: Option<f64>,
    /// c_b, weight of the disagreement among hypotheses about a user.
    pub between: f64,
    /// c, weight of what is uncertain under each, where clusters are trusted.
    pub within: f64,
    /// c where they are not.
    pub alone: f64,
    /// Rounds before the first full fit.
    pub first: u64,
    /// Factor between the rounds of one fit and those of the next.
    pub growth: f64,
    /// Factor between the rounds of a search for new clusters in vain and those of the next.
    pub patience: f64,
    /// Steps of the background's EM in a fit, at the most.
    pub steps: usize,
    /// Clusters that a search starts from.
    pub seeds: usize,
    /// Mixtures kept and played beside one another, at the most.
    pub members: usize,
    /// Mixtures looked for from scratch in each fit.
    pub colds: usize,
    /// Rounds per user from which on there are any.
    pub cold_from: f64,
    /// Rounds per user from which on there are none.
    pub cold_to: f64,
    /// A mixture is played in proportion to e to the power of this times its score.
    pub temper: f64,
    /// Nats by which clusters must have predicted better than none to be trusted with ½.
    pub caution: f64,
}

impl Default for SoftParams {
    fn default() -> Self {
        Self {
            clusters: true,
            inline: true,
            half_life: None,
            between: 1.1,
            within: 0.3,
            alone: 1.0,
            first: 500,
            growth: 1.2,
            patience: 1.5,
            steps: 20,
            seeds: 15,
            members: 4,
            colds: 1,
            cold_from: 10.0,
            cold_to: 100.0,
            temper: 0.1,
            caution: 10.0,
        }
    }
}

/// What a number must be.
struct Range {
    name: &'static str,
    low: f64,
    high: f64,
    requirement: &'static str,
}

const fn range(name: &'static str, low: f64, high: f64, requirement: &'static str) -> Range {
    Range {
        name,
        low,
        high,
        requirement,
    }
}

const HALF_LIFE: Range = range("half_life", 1.0, 1e12, "between 1 and 1e12 observations");

impl SoftParams {
    /// One Gaussian prior for all users, no clusters.
    pub fn gaussian() -> Self {
        Self {
            clusters: false,
            ..Self::default()
        }
    }

    /// Every constant but the switches and the half-life, in the order in which they are kept.
    fn numbers(&self) -> [(Range, f64); 14] {
        let weight = |name| range(name, 0.0, 1e3, "between 0 and 1000");
        let count = |name, low, high| range(name, low, high, "a sensible number");
        [
            (weight("between"), self.between),
            (weight("within"), self.within),
            (weight("alone"), self.alone),
            (
                range("first", 1.0, 1e12, "between 1 and 1e12"),
                self.first as f64,
            ),
            (
                range("growth", 1.01, 10.0, "between 1.01 and 10"),
                self.growth,
            ),
            (
                range("patience", 1.0, 10.0, "between 1 and 10"),
                self.patience,
            ),
            (count("steps", 1.0, 1e3), self.steps as f64),
            (count("seeds", 1.0, 1e3), self.seeds as f64),
            (count("members", 1.0, 64.0), self.members as f64),
            (count("colds", 0.0, 64.0), self.colds as f64),
            (
                range("cold_from", 0.0, 1e9, "between 0 and 1e9"),
                self.cold_from,
            ),
            (
                range("cold_to", 0.0, 1e9, "between 0 and 1e9"),
                self.cold_to,
            ),
            (range("temper", 0.0, 10.0, "between 0 and 10"), self.temper),
            (
                range("caution", 1e-3, 1e6, "between 0.001 and 1e6"),
                self.caution,
            ),
        ]
    }

    /// Checks every constant.
    ///
    /// # Errors
    /// [`Error::BadParameter`] names the first that is out of range.
    pub fn check(&self) -> Result<(), Error> {
        let half_life = self.half_life.map(|half| (HALF_LIFE, half));
        for (range, value) in self.numbers().into_iter().chain(half_life) {
            if !(value >= range.low && value <= range.high) {
                return Err(Error::BadParameter {
                    name: range.name,
                    value,
                    requirement: range.requirement,
                });
            }
        }
        Ok(())
    }

    /// What an observation keeps of its weight when the next of its user comes.
    pub(crate) fn keep(&self) -> f64 {
        self.half_life
            .map_or(1.0, |half| libm::exp(-std::f64::consts::LN_2 / half))
    }

    pub(crate) fn save(&self, writer: &mut Writer<'_>) -> std::io::Result<()> {
        writer.word(u64::from(self.clusters))?;
        writer.word(u64::from(self.inline))?;
        writer.number(self.half_life.unwrap_or(0.0))?;
        for (_, number) in self.numbers() {
            writer.number(number)?;
        }
        Ok(())
    }

    pub(crate) fn load(reader: &mut Reader<'_>) -> Result<Self, LoadError> {
        let clusters = reader.at_most(1)? == 1;
        let inline = reader.at_most(1)? == 1;
        let half_life = reader.number()?;
        let mut numbers = [0.0; 14];
        reader.fill(&mut numbers)?;
        let [between, within, alone, first, growth, patience, rest @ ..] = numbers;
        let [
            steps,
            seeds,
            members,
            colds,
            cold_from,
            cold_to,
            temper,
            caution,
        ] = rest;
        let params = Self {
            clusters,
            inline,
            half_life: (half_life != 0.0).then_some(half_life),
            between,
            within,
            alone,
            first: first as u64,
            growth,
            patience,
            steps: steps as usize,
            seeds: seeds as usize,
            members: members as usize,
            colds: colds as usize,
            cold_from,
            cold_to,
            temper,
            caution,
        };
        params
            .check()
            .map_err(|_| bad("a constant in it is none"))?;
        Ok(params)
    }
}
