//! The constants of a folder's policy: they stay as they were when it was made, whatever later versions
//! would take.

use sclub::{Exploration, Index, Params, SoftParams};
use serde::{Deserialize, Serialize};

use crate::identity::{Kind, Misfit};
use crate::settings::Settings;

/// The preset of a policy that has one set of constants for everything.
const ONLY: &str = "default";

/// The preset of a new folder for which none is named, where there are several.
const USUAL: &str = "tuned";

/// The constants of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Constants {
    /// Of the paper's policies.
    Ucb(Ucb),
    /// Of [`Kind::SclubSoft`].
    Soft(Soft),
}

/// [`Params`] as they are kept.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ucb {
    alpha_theta: f64,
    alpha_p: f64,
    squared_norm: bool,
    beta: Option<f64>,
    beta_scale: Option<f64>,
}

/// [`SoftParams`] as they are kept.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Soft {
    clusters: bool,
    half_life: Option<f64>,
    between: f64,
    within: f64,
    alone: f64,
    first: u64,
    growth: f64,
    patience: f64,
    steps: usize,
    seeds: usize,
    members: usize,
    colds: usize,
    cold_from: f64,
    cold_to: f64,
    temper: f64,
    caution: f64,
}

impl From<&Params> for Ucb {
    fn from(params: &Params) -> Self {
        let (beta, beta_scale) = match params.exploration {
            Exploration::Fixed(beta) => (Some(beta), None),
            Exploration::Growing { scale } => (None, Some(scale)),
        };
        Self {
            alpha_theta: params.alpha_theta,
            alpha_p: params.alpha_p,
            squared_norm: params.index == Index::SquaredNorm,
            beta,
            beta_scale,
        }
    }
}

impl Ucb {
    /// For a policy.
    pub fn params(&self) -> Params {
        Params {
            alpha_theta: self.alpha_theta,
            alpha_p: self.alpha_p,
            index: if self.squared_norm {
                Index::SquaredNorm
            } else {
                Index::Norm
            },
            exploration: match self.beta {
                Some(beta) => Exploration::Fixed(beta),
                None => Exploration::Growing {
                    scale: self.beta_scale.unwrap_or(0.0),
                },
            },
        }
    }
}

impl From<&SoftParams> for Soft {
    fn from(params: &SoftParams) -> Self {
        let SoftParams {
            clusters,
            inline: _,
            half_life,
            between,
            within,
            alone,
            first,
            growth,
            patience,
            steps,
            seeds,
            members,
            colds,
            cold_from,
            cold_to,
            temper,
            caution,
        } = *params;
        Self {
            clusters,
            half_life,
            between,
            within,
            alone,
            first,
            growth,
            patience,
            steps,
            seeds,
            members,
            colds,
            cold_from,
            cold_to,
            temper,
            caution,
        }
    }
}

impl Soft {
    /// For a policy whose fits are made beside serving.
    pub fn params(&self) -> SoftParams {
        SoftParams {
            clusters: self.clusters,
            inline: false,
            half_life: self.half_life,
            between: self.between,
            within: self.within,
            alone: self.alone,
            first: self.first,
            growth: self.growth,
            patience: self.patience,
            steps: self.steps,
            seeds: self.seeds,
            members: self.members,
            colds: self.colds,
            cold_from: self.cold_from,
            cold_to: self.cold_to,
            temper: self.temper,
            caution: self.caution,
        }
    }
}

impl Constants {
    /// Those that settings ask for, with the name of the preset that they are based on.
    ///
    /// # Errors
    /// Where one cannot be, or the policy has none of that name.
    pub fn new(policy: Kind, settings: &Settings) -> Result<(String, Self), Misfit> {
        check_names(policy, settings)?;
        let (preset, constants) = match policy {
            Kind::SclubSoft => (ONLY, Constants::Soft(Soft::from(&soft(settings)?))),
            Kind::Sclub | Kind::LinucbOne | Kind::LinucbInd => {
                let preset = settings.preset.as_deref().unwrap_or(USUAL);
                (
                    preset,
                    Constants::Ucb(Ucb::from(&params(settings, preset)?)),
                )
            }
        };
        Ok((preset.to_owned(), constants))
    }

    /// Checks that they can be, and are this policy's.
    ///
    /// # Errors
    /// Says what is the matter.
    pub fn check(&self, policy: Kind) -> Result<(), Misfit> {
        let is_soft = policy == Kind::SclubSoft;
        match self {
            Constants::Ucb(ucb) if !is_soft => ucb.params().check().map_err(misfit),
            Constants::Soft(soft) if is_soft => soft.params().check().map_err(misfit),
            _ => Err(Misfit(format!(
                "its constants are not those of {}",
                policy.as_str()
            ))),
        }
    }

    /// Checks that what is asked for of a policy's constants is so. `preset` is that of the folder.
    ///
    /// # Errors
    /// Names the first that differs.
    pub fn agree(&self, policy: Kind, preset: &str, settings: &Settings) -> Result<(), Misfit> {
        check_names(policy, settings)?;
        if let Some(asked) = settings.preset.as_deref()
            && asked != preset
        {
            return Err(differs("preset", asked, preset));
        }
        match self {
            Constants::Ucb(_) => drop(params(settings, preset)?),
            Constants::Soft(_) => drop(soft(settings)?),
        }
        for ((name, asked), (_, has)) in asked(settings).into_iter().zip(self.named()) {
            if let Some(asked) = asked
                && Some(asked) != has
            {
                let has = has.map_or_else(|| "none".to_owned(), |has| has.to_string());
                return Err(differs(name, &asked.to_string(), &has));
            }
        }
        Ok(())
    }

    /// Those that are not the preset's, by the names of their settings.
    pub fn overrides(&self, preset: &str) -> Vec<(&'static str, f64)> {
        let usual = match self {
            Constants::Soft(_) => Constants::Soft(Soft::from(&SoftParams::default())),
            Constants::Ucb(_) => match params(&Settings::default(), preset) {
                Ok(params) => Constants::Ucb(Ucb::from(&params)),
                Err(_) => return Vec::new(),
            },
        };
        self.named()
            .into_iter()
            .zip(usual.named())
            .filter(|((_, own), (_, usual))| own != usual)
            .filter_map(|((name, own), _)| Some((name, own?)))
            .collect()
    }

    /// Those that have a setting, in the order of [`asked`].
    fn named(&self) -> [(&'static str, Option<f64>); 5] {
        let [alpha_theta, alpha_p, beta, beta_scale, half_life] = match self {
            Constants::Ucb(own) => [
                Some(own.alpha_theta),
                Some(own.alpha_p),
                own.beta,
                own.beta_scale,
                None,
            ],
            Constants::Soft(own) => [None, None, None, None, own.half_life],
        };
        [
            ("alpha-theta", alpha_theta),
            ("alpha-p", alpha_p),
            ("beta", beta),
            ("beta-scale", beta_scale),
            ("half-life", half_life),
        ]
    }
}

/// The constants that settings name.
fn asked(settings: &Settings) -> [(&'static str, Option<f64>); 5] {
    [
        ("alpha-theta", settings.alpha_theta),
        ("alpha-p", settings.alpha_p),
        ("beta", settings.beta),
        ("beta-scale", settings.beta_scale),
        ("half-life", settings.half_life),
    ]
}

/// Checks that a policy has what settings name.
fn check_names(policy: Kind, settings: &Settings) -> Result<(), Misfit> {
    let is_soft = |kind: Kind| kind == Kind::SclubSoft;
    let named = asked(settings)
        .into_iter()
        .map(|(name, value)| (name, value.is_some()))
        .chain([("preset", settings.preset.is_some())]);
    for (name, is_given) in named {
        let is_softs = name == "half-life";
        if is_given && is_softs != is_soft(policy) {
            let those = Kind::ALL.iter().filter(|&&kind| is_soft(kind) == is_softs);
            let those: Vec<&str> = those.map(|kind| kind.as_str()).collect();
            return Err(Misfit(format!(
                "the policy is {}, and {name} is for {}; leave {name} out, or use another policy",
                policy.as_str(),
                those.join(", ")
            )));
        }
    }
    Ok(())
}

fn soft(settings: &Settings) -> Result<SoftParams, Misfit> {
    let params = SoftParams {
        inline: false,
        half_life: settings.half_life,
        ..SoftParams::default()
    };
    params.check().map_err(misfit)?;
    Ok(params)
}

fn params(settings: &Settings, preset: &str) -> Result<Params, Misfit> {
    let mut params = match preset {
        "tuned" => Params::tuned(),
        "released" => Params::released(),
        other => {
            return Err(Misfit(format!(
                "preset '{other}' cannot be served; tuned and released can"
            )));
        }
    };
    if let Some(alpha) = settings.alpha_theta {
        params.alpha_theta = alpha;
    }
    if let Some(alpha) = settings.alpha_p {
        params.alpha_p = alpha;
    }
    match (settings.beta, settings.beta_scale) {
        (Some(_), Some(_)) => {
            return Err(Misfit(
                "beta and beta-scale cannot both be given".to_owned(),
            ));
        }
        (Some(beta), None) => params.exploration = Exploration::Fixed(beta),
        (None, Some(scale)) => params.exploration = Exploration::Growing { scale },
        (None, None) => {}
    }
    params.check().map_err(misfit)?;
    Ok(params)
}

/// What is asked for is not what the folder was made with.
pub(crate) fn differs(what: &str, asked: &str, has: &str) -> Misfit {
    Misfit(format!(
        "{what} {asked} was asked for, and the folder was made with {has}; use another folder, or \
         leave {what} out"
    ))
}

fn misfit(error: sclub::Error) -> Misfit {
    Misfit(error.to_string())
}
