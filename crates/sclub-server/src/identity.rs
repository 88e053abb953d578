//! What a data folder is for: fixed when it is made, and checked each time it is opened.

use sclub::{Keep, LinUcbInd, LinUcbShared, Sclub, SclubSoft, Users};
use serde::{Deserialize, Serialize};

use crate::constants::{Constants, differs};
use crate::env::Random;
use crate::settings::Settings;

/// The latest version of the events and snapshots in a folder. Earlier ones are read as well.
///
/// 2: there are fits among the events. Folders for policies that make none stay with 1.
pub const FORMAT: u32 = 2;

/// The policy of a new folder for which none is named.
pub const DEFAULT: Kind = Kind::SclubSoft;

/// The policies that can be served: those that can forget a user exactly and be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// [`SclubSoft`], whose fits are made beside serving.
    SclubSoft,
    /// [`Sclub`]
    Sclub,
    /// [`LinUcbShared::one_keeping_users`]
    LinucbOne,
    /// [`LinUcbInd`]
    LinucbInd,
}

impl Kind {
    /// The name that tools rely on.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::SclubSoft => "sclub-soft",
            Kind::Sclub => "sclub",
            Kind::LinucbOne => "linucb-one",
            Kind::LinucbInd => "linucb-ind",
        }
    }

    /// All there are.
    pub const ALL: &[Kind] = &[
        Kind::SclubSoft,
        Kind::Sclub,
        Kind::LinucbOne,
        Kind::LinucbInd,
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
            Kind::SclubSoft => 2,
        }
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

/// Settings that do not fit, or do not fit the folder.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Misfit(pub String);

impl Identity {
    /// For a new folder.
    ///
    /// # Errors
    /// Where a setting cannot be.
    pub fn new(settings: &Settings, random: &dyn Random) -> Result<Self, Misfit> {
        let policy = match settings.policy.as_deref() {
            Some(name) => Kind::parse(name)?,
            None => DEFAULT,
        };
        let (preset, constants) = Constants::new(policy, settings)?;
        if let Some(dim) = settings.dim {
            sclub::ItemSet::new(dim).map_err(|error| Misfit(format!("dim: {error}")))?;
        }
        let mut key = [0; 32];
        random
            .fill(&mut key)
            .map_err(|error| Misfit(format!("the system gives no random numbers: {error}")))?;
        Ok(Self {
            format: policy.format(),
            policy,
            preset,
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
        identity.constants.check(identity.policy)?;
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
        if let Some(asked) = settings.policy.as_deref()
            && Kind::parse(asked)? != self.policy
        {
            return Err(differs("policy", asked, self.policy.as_str()));
        }
        if let (Some(asked), Some(has)) = (settings.dim, self.dim)
            && asked != has
        {
            return Err(differs("dim", &asked.to_string(), &has.to_string()));
        }
        self.constants.agree(self.policy, &self.preset, settings)
    }

    /// The policy before the first round.
    ///
    /// # Errors
    /// Where the dimension cannot be, or a constant.
    pub fn make(&self, dim: usize, expected: u64) -> Result<Box<dyn Keep>, sclub::Error> {
        let users = match expected {
            0 => Users::Appear,
            n => Users::Declared(n),
        };
        let params = match &self.constants {
            Constants::Soft(soft) => return Ok(Box::new(SclubSoft::new(dim, &soft.params())?)),
            Constants::Ucb(ucb) => ucb.params(),
        };
        Ok(match self.policy {
            Kind::Sclub => Box::new(Sclub::new(dim, users, &params)?),
            Kind::LinucbOne => Box::new(LinUcbShared::one_keeping_users(dim, &params)?),
            Kind::LinucbInd => Box::new(LinUcbInd::new(dim, &params)?),
            Kind::SclubSoft => unreachable!("its constants were checked when it was read"),
        })
    }

    /// The constants that are not the preset's, by the names of their settings.
    pub fn overrides(&self) -> Vec<(&'static str, f64)> {
        self.constants.overrides(&self.preset)
    }

    /// Seals decisions.
    pub fn key(&self) -> Option<[u8; 32]> {
        blake3::Hash::from_hex(&self.key)
            .ok()
            .map(|key| *key.as_bytes())
    }
}
