//! What a data folder is for: fixed when it is made, and checked each time it is opened.

use sclub::{Exploration, Index, Keep, LinUcbInd, LinUcbShared, Params, Sclub, Users};
use serde::{Deserialize, Serialize};

use crate::settings::Settings;

/// The latest version of the events and snapshots in a folder. Earlier ones are read as well.
///
/// 2: there are fits among the events. Folders for policies that make none stay with 1.
pub const FORMAT: u32 = 2;

/// The policy of a new folder for which none is named.
pub const DEFAULT: Kind = Kind::Sclub;

/// The policies that can be served: those that can forget a user exactly and be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// [`Sclub`]
    Sclub,
    /// [`LinUcbShared::one_keeping_users`]
    LinucbOne,
    /// [`LinUcbInd`]
    LinucbInd,
    /// A policy for tests, which makes fits.
    #[cfg(test)]
    Trial,
}

impl Kind {
    /// The name that tools rely on.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Sclub => "sclub",
            Kind::LinucbOne => "linucb-one",
            Kind::LinucbInd => "linucb-ind",
            #[cfg(test)]
            Kind::Trial => "trial",
        }
    }

    /// All there are.
    pub const ALL: &[Kind] = &[
        Kind::Sclub,
        Kind::LinucbOne,
        Kind::LinucbInd,
        #[cfg(test)]
        Kind::Trial,
    ];

    fn parse(text: &str) -> Result<Self, Misfit> {
        let known = Kind::ALL.iter().copied();
        known
            .clone()
            .find(|kind| kind.as_str() == text)
            .ok_or_else(|| {
                let names: Vec<&str> = known.map(Kind::as_str).collect();
                Misfit(format!(
                    "policy '{text}' cannot be served; these can: {}",
                    names.join(", ")
                ))
            })
    }

    /// Version of the events and snapshots in a folder for it: what only later versions write makes
    /// a folder that earlier ones refuse.
    pub fn format(self) -> u32 {
        match self {
            Kind::Sclub | Kind::LinucbOne | Kind::LinucbInd => 1,
            #[cfg(test)]
            Kind::Trial => 2,
        }
    }

    /// The policy as it was saved.
    ///
    /// # Errors
    /// Where the bytes cannot be had, or are no policy.
    pub fn load(self, from: &mut dyn std::io::Read) -> Result<Box<dyn Keep>, sclub::LoadError> {
        match self {
            #[cfg(test)]
            Kind::Trial => crate::trial::Trial::load(from),
            _ => sclub::load_policy(from),
        }
    }

    /// The policy before the first round.
    ///
    /// # Errors
    /// Where the dimension or a parameter cannot be.
    pub fn make(
        self,
        dim: usize,
        expected: u64,
        params: &Params,
    ) -> Result<Box<dyn Keep>, sclub::Error> {
        let users = match expected {
            0 => Users::Appear,
            n => Users::Declared(n),
        };
        Ok(match self {
            Kind::Sclub => Box::new(Sclub::new(dim, users, params)?),
            Kind::LinucbOne => Box::new(LinUcbShared::one_keeping_users(dim, params)?),
            Kind::LinucbInd => Box::new(LinUcbInd::new(dim, params)?),
            #[cfg(test)]
            Kind::Trial => Box::new(crate::trial::Trial::new(dim, params)?),
        })
    }
}

/// What a data folder is for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Identity {
    /// [`Kind::format`] of its policy.
    pub format: u32,
    /// The policy.
    pub policy: Kind,
    /// Where its constants come from.
    pub preset: String,
    /// Its constants.
    pub constants: Constants,
    /// Features per item, where that was said when the folder was made.
    pub dim: Option<usize>,
    /// Seals decisions; hexadecimal.
    key: String,
}

/// [`Params`] as they are kept.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Constants {
    alpha_theta: f64,
    alpha_p: f64,
    squared_norm: bool,
    beta: Option<f64>,
    beta_scale: Option<f64>,
}

/// Settings that do not fit, or do not fit the folder.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Misfit(pub String);

impl From<&Params> for Constants {
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

impl Constants {
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

impl Identity {
    /// For a new folder.
    ///
    /// # Errors
    /// Where a setting cannot be.
    pub fn new(settings: &Settings) -> Result<Self, Misfit> {
        let policy = match settings.policy.as_deref() {
            Some(name) => Kind::parse(name)?,
            None => DEFAULT,
        };
        let preset = settings.preset.as_deref().unwrap_or("tuned");
        let constants = Constants::from(&params(settings, preset)?);
        if let Some(dim) = settings.dim {
            sclub::ItemSet::new(dim).map_err(|error| Misfit(format!("dim: {error}")))?;
        }
        let mut key = [0; 32];
        getrandom::fill(&mut key)
            .map_err(|error| Misfit(format!("the system gives no random numbers: {error}")))?;
        Ok(Self {
            format: policy.format(),
            policy,
            preset: preset.to_owned(),
            constants,
            dim: settings.dim,
            key: blake3::Hash::from_bytes(key).to_hex().to_string(),
        })
    }

    /// From the bytes in a folder, if it is of a known format.
    ///
    /// # Errors
    /// A sentence that says what is the matter.
    pub fn decode(bytes: &[u8]) -> Result<Self, Misfit> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let unreadable = |_| Misfit("its identity cannot be read".to_owned());
        let Format { format } = serde_json::from_slice(bytes).map_err(unreadable)?;
        if !(1..=FORMAT).contains(&format) {
            return Err(Misfit(format!(
                "it is of format {format} and this version reads 1 to {FORMAT}; use the version that \
                 wrote it to back it up and this one's release notes to move it"
            )));
        }
        let identity: Self = serde_json::from_slice(bytes).map_err(unreadable)?;
        identity.constants.params().check().map_err(misfit)?;
        if identity.key().is_none() {
            return Err(Misfit("its identity holds no key".to_owned()));
        }
        Ok(identity)
    }

    /// As bytes for a folder.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain data")
    }

    /// Checks that what is asked for is what the folder is for. What is not asked for is as the
    /// folder has it.
    ///
    /// # Errors
    /// Names the first setting that differs.
    pub fn check(&self, settings: &Settings) -> Result<(), Misfit> {
        let differs = |what: &str, asked: &str, has: &str| {
            Err(Misfit(format!(
                "{what} {asked} was asked for, and the folder was made with {has}; use another \
                 folder, or leave {what} out"
            )))
        };
        if let Some(asked) = settings.policy.as_deref()
            && Kind::parse(asked)? != self.policy
        {
            return differs("policy", asked, self.policy.as_str());
        }
        if let Some(asked) = settings.preset.as_deref()
            && asked != self.preset
        {
            return differs("preset", asked, &self.preset);
        }
        if let (Some(asked), Some(has)) = (settings.dim, self.dim)
            && asked != has
        {
            return differs("dim", &asked.to_string(), &has.to_string());
        }
        params(settings, &self.preset)?;
        let named = [
            (
                "alpha-theta",
                settings.alpha_theta,
                self.constants.alpha_theta,
            ),
            ("alpha-p", settings.alpha_p, self.constants.alpha_p),
            (
                "beta",
                settings.beta,
                self.constants.beta.unwrap_or(f64::NAN),
            ),
            (
                "beta-scale",
                settings.beta_scale,
                self.constants.beta_scale.unwrap_or(f64::NAN),
            ),
        ];
        for (name, asked, has) in named {
            if let Some(asked) = asked
                && asked != has
            {
                let has = if has.is_nan() {
                    "none".to_owned()
                } else {
                    has.to_string()
                };
                return differs(name, &asked.to_string(), &has);
            }
        }
        Ok(())
    }

    /// The constants that are not the preset's, by the names of their settings.
    pub fn overrides(&self) -> Vec<(&'static str, f64)> {
        let Ok(preset) = params(&Settings::default(), &self.preset) else {
            return Vec::new();
        };
        let (preset, own) = (Constants::from(&preset), &self.constants);
        [
            (
                "alpha-theta",
                Some(own.alpha_theta),
                Some(preset.alpha_theta),
            ),
            ("alpha-p", Some(own.alpha_p), Some(preset.alpha_p)),
            ("beta", own.beta, preset.beta),
            ("beta-scale", own.beta_scale, preset.beta_scale),
        ]
        .into_iter()
        .filter(|(_, own, preset)| own != preset)
        .filter_map(|(name, own, _)| Some((name, own?)))
        .collect()
    }

    /// Seals decisions.
    pub fn key(&self) -> Option<[u8; 32]> {
        blake3::Hash::from_hex(&self.key)
            .ok()
            .map(|key| *key.as_bytes())
    }
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

fn misfit(error: sclub::Error) -> Misfit {
    Misfit(error.to_string())
}
