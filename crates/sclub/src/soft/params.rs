//! The constants of `sclub-soft`: one set for all settings, chosen as docs/sclub-soft.md describes.

use crate::bytes::{Reader, Writer, bad};
use crate::error::{Error, LoadError};
use crate::spec::{Constant, Preset, Range, Setup, Value, Values};

/// The way in which uncertainty about the population's mean is explored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Explore {
    /// The mean is drawn from its posterior for each decision (Thompson sampling).
    Draw,
    /// A bonus in proportion to its standard deviation.
    Bonus,
}

/// Constants of [`crate::SclubSoft`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SoftParams {
    /// True if clusters are searched for. Else there is one Gaussian prior for all users.
    pub clusters: bool,
    /// True if [`crate::Policy::learn_round`] makes fits itself as soon as they are due. Else the
    /// caller makes them in the background ([`crate::BackgroundFit`]).
    pub inline: bool,
    /// The number of later observations of the same user after which an observation counts half;
    /// `None` if all count alike.
    pub half_life: Option<f64>,
    /// The way in which uncertainty about the population's mean is explored.
    pub explore: Explore,
    /// c_μ, weight of the uncertainty about the population's mean.
    pub population: f64,
    /// c_b, weight of the disagreement among hypotheses about a user, if clusters are trusted.
    pub between: f64,
    /// c_b if clusters are not trusted.
    pub between_alone: f64,
    /// c, weight of the uncertainty under each hypothesis, if clusters are trusted.
    pub within: f64,
    /// c if clusters are not trusted.
    pub alone: f64,
    /// Rounds before the first full fit.
    pub first: u64,
    /// Factor between the rounds of one fit and those of the next.
    pub growth: f64,
    /// After a search without a result, the next one waits until the rounds have grown by this factor.
    pub patience: f64,
    /// The maximum number of EM steps of the background in a fit.
    pub steps: usize,
    /// The number of clusters that a search starts from.
    pub seeds: usize,
    /// The maximum number of mixtures that are kept and averaged to recommend.
    pub members: usize,
    /// The number of mixtures searched for from scratch in a fit, between `cold_from` and `cold_to`.
    pub colds: usize,
    /// Searches from scratch run while rounds per user are at least `cold_from` and below `cold_to`.
    pub cold_from: f64,
    /// The rounds per user at which searches from scratch end.
    pub cold_to: f64,
    /// A mixture is weighted by e to the power of this times its score.
    pub temper: f64,
    /// The gain of the clusters, in nats, at which they get half of the weight. It is multiplied by 1 + 4 ·
    /// users/observations.
    pub caution: f64,
    /// The worth of the learned prior, in nats a round, at which the plain prior has half of its weight; 0 if it is
    /// not used.
    pub plain: f64,
}

impl Default for SoftParams {
    fn default() -> Self {
        Self {
            clusters: true,
            inline: true,
            half_life: None,
            explore: Explore::Draw,
            population: 1.0,
            between: 1.1,
            between_alone: 0.5,
            within: 0.1,
            alone: 0.3,
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
            caution: 30.0,
            plain: 0.15,
        }
    }
}

/// A constant that experts may set.
const fn expert(
    name: &'static str,
    meaning: &'static str,
    range: Range,
    default: fn(Preset, &Setup<'_>) -> Result<Value, Error>,
) -> Constant {
    Constant {
        name,
        meaning,
        range,
        default,
        instead_of: None,
        advanced: true,
    }
}

/// The default of a constant that no preset changes.
macro_rules! default {
    ($field:ident) => {
        |_, _| Ok(Value::Number(SoftParams::default().$field as f64))
    };
}

const WEIGHT: Range = Range::between(0.0, 1e3, "between 0 and 1000");
const RATIO: Range = Range::between(0.0, 1e9, "between 0 and 1e9");

/// The constants of `sclub-soft`: the switch, the half-life, the kind of exploration, then
/// [`SoftParams::numbers`].
pub(super) const CONSTANTS: [Constant; 20] = [
    expert(
        "clusters",
        "Search for clusters. Without them there is one Gaussian prior for all users",
        Range::Flag,
        |_, _| Ok(Value::Flag(true)),
    ),
    Constant {
        name: "half_life",
        meaning: "An observation counts half after this many later ones of the same user, for users who \
                  change. By default all count alike",
        range: Range::between(1.0, 1e12, "between 1 and 1e12 observations"),
        default: |_, _| Ok(Value::Unset),
        instead_of: None,
        advanced: false,
    },
    Constant::new(
        "explore",
        "How to explore what is not known about the population: draw its mean at random for each decision, or \
         add a bonus for uncertainty",
        Range::OneOf(&["draw", "bonus"]),
        |_, _| Ok(Value::Choice("draw")),
    ),
    Constant::new(
        "population",
        "Weight of the uncertainty about the population's mean",
        WEIGHT,
        default!(population),
    ),
    Constant::new(
        "between",
        "Weight of the disagreement among hypotheses about a user where clusters are trusted",
        WEIGHT,
        default!(between),
    ),
    Constant::new(
        "between_alone",
        "Weight of the disagreement among hypotheses about a user where clusters are not trusted",
        WEIGHT,
        default!(between_alone),
    ),
    Constant::new(
        "within",
        "Weight of the uncertainty under each hypothesis where clusters are trusted",
        WEIGHT,
        default!(within),
    ),
    Constant::new(
        "alone",
        "Weight of the uncertainty under each hypothesis where clusters are not trusted",
        WEIGHT,
        default!(alone),
    ),
    expert(
        "first",
        "Rounds from which on fits follow --growth. Before, a rough fit is made whenever the rounds have doubled",
        Range::whole(1.0, 1e12, "a whole number between 1 and 1e12"),
        default!(first),
    ),
    expert(
        "growth",
        "The next fit is due when the rounds have grown by this factor",
        Range::between(1.01, 10.0, "between 1.01 and 10"),
        default!(growth),
    ),
    expert(
        "patience",
        "After a search without a result, the next one waits until the rounds have grown by this factor",
        Range::between(1.0, 10.0, "between 1 and 10"),
        default!(patience),
    ),
    expert(
        "steps",
        "Maximum number of EM steps of the background in a fit",
        Range::whole(1.0, 1e3, "a whole number between 1 and 1000"),
        default!(steps),
    ),
    expert(
        "seeds",
        "Number of clusters that a search starts from",
        Range::whole(1.0, 1e3, "a whole number between 1 and 1000"),
        default!(seeds),
    ),
    expert(
        "members",
        "Maximum number of mixtures that are kept and averaged to recommend",
        Range::whole(1.0, 64.0, "a whole number between 1 and 64"),
        default!(members),
    ),
    expert(
        "colds",
        "Number of mixtures searched for from scratch in a fit, between cold_from and cold_to",
        Range::whole(0.0, 64.0, "a whole number between 0 and 64"),
        default!(colds),
    ),
    expert(
        "cold_from",
        "Rounds per user at which searches for mixtures from scratch begin",
        RATIO,
        default!(cold_from),
    ),
    expert(
        "cold_to",
        "Rounds per user at which searches for mixtures from scratch end",
        RATIO,
        default!(cold_to),
    ),
    expert(
        "temper",
        "A mixture is weighted by e to the power of this times its score",
        Range::between(0.0, 10.0, "between 0 and 10"),
        default!(temper),
    ),
    expert(
        "caution",
        "Gain of the clusters, in nats, at which they get half of the weight; times 1 + 4 * users / observations",
        Range::between(1e-3, 1e6, "between 0.001 and 1e6"),
        default!(caution),
    ),
    expert(
        "plain",
        "Worth of the learned prior, in nats a round, at which a plain prior gets half of its weight; 0: never",
        Range::between(0.0, 1e3, "between 0 and 1000"),
        default!(plain),
    ),
];

impl SoftParams {
    /// One Gaussian prior for all users, no clusters.
    pub fn gaussian() -> Self {
        Self {
            clusters: false,
            ..Self::default()
        }
    }

    /// The constants that values stand for.
    pub fn from_values(values: &Values, inline: bool) -> Self {
        let default = Self::default();
        let number = |name: &str, default: f64| values.number(name).unwrap_or(default);
        Self {
            clusters: values.flag("clusters"),
            inline,
            half_life: values.number("half_life"),
            explore: match values.choice("explore") {
                "bonus" => Explore::Bonus,
                _ => Explore::Draw,
            },
            population: number("population", default.population),
            between: number("between", default.between),
            between_alone: number("between_alone", default.between_alone),
            within: number("within", default.within),
            alone: number("alone", default.alone),
            first: number("first", default.first as f64) as u64,
            growth: number("growth", default.growth),
            patience: number("patience", default.patience),
            steps: number("steps", default.steps as f64) as usize,
            seeds: number("seeds", default.seeds as f64) as usize,
            members: number("members", default.members as f64) as usize,
            colds: number("colds", default.colds as f64) as usize,
            cold_from: number("cold_from", default.cold_from),
            cold_to: number("cold_to", default.cold_to),
            temper: number("temper", default.temper),
            caution: number("caution", default.caution),
            plain: number("plain", default.plain),
        }
    }

    /// Every number but the half-life, in the order of [`CONSTANTS`].
    fn numbers(&self) -> [f64; 17] {
        [
            self.population,
            self.between,
            self.between_alone,
            self.within,
            self.alone,
            self.first as f64,
            self.growth,
            self.patience,
            self.steps as f64,
            self.seeds as f64,
            self.members as f64,
            self.colds as f64,
            self.cold_from,
            self.cold_to,
            self.temper,
            self.caution,
            self.plain,
        ]
    }

    /// Checks every constant.
    ///
    /// # Errors
    /// [`Error::BadParameter`] names the first that is out of range.
    pub fn check(&self) -> Result<(), Error> {
        let [_, half_life, _, numbers @ ..] = &CONSTANTS;
        for (constant, value) in numbers.iter().zip(self.numbers()) {
            constant.check(value)?;
        }
        self.half_life
            .map_or(Ok(()), |value| half_life.check(value))
    }

    /// The number of rounds at which the fit after one of so many rounds is due.
    pub(crate) fn due_after(&self, rounds: u64) -> u64 {
        // A rough first fit is soon replaced: rounds double until the first full one.
        let early = rounds.saturating_mul(2).min(self.first);
        let later = (rounds as f64 * self.growth).ceil() as u64;
        early.max(later)
    }

    /// The factor on the weight of a user's observations when the next one comes.
    pub(crate) fn keep(&self) -> f64 {
        self.half_life
            .map_or(1.0, |half| libm::exp(-std::f64::consts::LN_2 / half))
    }

    pub(crate) fn save(&self, writer: &mut Writer<'_>) -> std::io::Result<()> {
        writer.word(u64::from(self.clusters))?;
        writer.word(u64::from(self.inline))?;
        writer.number(self.half_life.unwrap_or(0.0))?;
        writer.word(u64::from(self.explore == Explore::Bonus))?;
        writer.numbers(&self.numbers())
    }

    pub(crate) fn load(reader: &mut Reader<'_>) -> Result<Self, LoadError> {
        let clusters = reader.at_most(1)? == 1;
        let inline = reader.at_most(1)? == 1;
        let half_life = reader.number()?;
        let explore = match reader.at_most(1)? {
            0 => Explore::Draw,
            _ => Explore::Bonus,
        };
        let mut numbers = [0.0; 17];
        reader.fill(&mut numbers)?;
        let [_, _, _, constants @ ..] = &CONSTANTS;
        if constants
            .iter()
            .zip(numbers)
            .any(|(c, value)| c.check(value).is_err())
        {
            return Err(bad("a constant is out of range").into());
        }
        let [
            population,
            between,
            between_alone,
            within,
            alone,
            first,
            growth,
            patience,
            rest @ ..,
        ] = numbers;
        let [
            steps,
            seeds,
            members,
            colds,
            cold_from,
            cold_to,
            temper,
            caution,
            plain,
        ] = rest;
        let params = Self {
            clusters,
            inline,
            half_life: (half_life != 0.0).then_some(half_life),
            explore,
            population,
            between,
            between_alone,
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
            plain,
        };
        params
            .check()
            .map_err(|_| bad("a constant is out of range"))?;
        Ok(params)
    }
}
