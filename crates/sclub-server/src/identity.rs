//! What a data folder is for: fixed when it is made, and checked each time it is opened.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use sclub::{Preset, Setup, Spec, Users, Value, Values};
use serde::{Deserialize, Serialize};

use crate::env::Random;
use crate::settings::{Literal, Settings, constant_name, setting_name};
use crate::state::Served;

/// The latest version of the events and snapshots in a folder. Earlier ones are read as well.
///
/// 2: there are fits among the events. Folders for policies that make none stay with 1.
pub const FORMAT: u32 = 2;

/// The policy of a new folder for which none is named.
pub const DEFAULT: &str = "sclub-soft";

/// The policies that can be served: those that can be inspected and saved and can forget a user.
pub fn servable() -> Vec<&'static Spec> {
    let mut all = sclub::registry();
    all.retain(|spec| spec.can.can_be_served());
    all
}

/// A policy that can be served, by name.
fn find(name: &str) -> Result<&'static Spec, Misfit> {
    let all = servable();
    let found = all.iter().copied().find(|spec| spec.name == name);
    found.ok_or_else(|| {
        Misfit(format!(
            "policy '{name}' cannot be served; these can: {}",
            names(&all)
        ))
    })
}

fn names(specs: &[&Spec]) -> String {
    let names: Vec<&str> = specs.iter().map(|spec| spec.name).collect();
    names.join(", ")
}

/// Version of the events and snapshots in a folder for a policy: what only later versions write makes a
/// folder that earlier ones refuse.
fn format(policy: &Spec) -> u32 {
    if policy.can.fit { 2 } else { 1 }
}

/// What a data folder is for.
#[derive(Debug, Clone, PartialEq)]
pub struct Identity {
    /// Version of its events and snapshots.
    pub format: u32,
    /// The policy.
    pub policy: &'static Spec,
    /// The policy's constants: they stay as they were when the folder was made, whatever later versions
    /// would take.
    pub constants: Values,
    /// Features per item, where that was said when the folder was made.
    pub dim: Option<usize>,
    /// Seals decisions.
    key: [u8; 32],
}

/// An [`Identity`] as it is written.
#[derive(Serialize, Deserialize)]
struct Written {
    format: u32,
    policy: String,
    preset: String,
    constants: BTreeMap<String, Option<Literal>>,
    dim: Option<usize>,
    /// Hexadecimal.
    key: String,
}

/// Settings that do not fit, or do not fit the folder.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Misfit(pub String);

impl From<sclub::ValueError> for Misfit {
    fn from(error: sclub::ValueError) -> Self {
        Misfit(format!("{}: {}", setting_name(&error.name), error.why))
    }
}

impl Identity {
    /// For a new folder.
    ///
    /// # Errors
    /// Where a setting cannot be.
    pub fn new(settings: &Settings, random: &dyn Random) -> Result<Self, Misfit> {
        let policy = find(settings.policy.as_deref().unwrap_or(DEFAULT))?;
        check_names(policy, settings)?;
        let preset = match settings.preset.as_deref() {
            Some(name) => find_preset(policy, name)?,
            None => policy.presets[0],
        };
        let constants = values(policy, preset, &asked(policy, settings)?)?;
        if let Some(dim) = settings.dim {
            sclub::ItemSet::new(dim).map_err(|error| Misfit(format!("dim: {error}")))?;
        }
        let mut key = [0; 32];
        random
            .fill(&mut key)
            .map_err(|error| Misfit(format!("the system gives no random numbers: {error}")))?;
        Ok(Self {
            format: format(policy),
            policy,
            constants,
            dim: settings.dim,
            key,
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
        let mut written: Written = serde_json::from_slice(bytes).map_err(unreadable)?;
        let policy = find(&written.policy)?;
        let preset = find_preset(policy, &written.preset)?;
        renew(policy, &mut written.constants);
        let mut given = Vec::with_capacity(written.constants.len());
        for (name, literal) in &written.constants {
            let constant = policy
                .constant(name)
                .ok_or_else(|| Misfit(format!("its constants are not those of {}", policy.name)))?;
            let value = match literal {
                Some(literal) => literal.value(constant)?,
                None => Value::Unset,
            };
            given.push((constant.name, value));
        }
        let key = blake3::Hash::from_hex(&written.key)
            .map_err(|_| Misfit("its identity holds no key".to_owned()))?;
        Ok(Self {
            format,
            policy,
            constants: values(policy, preset, &given)?,
            dim: written.dim,
            key: *key.as_bytes(),
        })
    }

    /// As bytes for a folder.
    pub fn encode(&self) -> Vec<u8> {
        let constants = self.constants.iter();
        let constants = constants
            .map(|(constant, value)| (constant.name.to_owned(), Literal::new(constant, value)));
        let written = Written {
            format: self.format,
            policy: self.policy.name.to_owned(),
            preset: self.preset().to_string(),
            constants: constants.collect(),
            dim: self.dim,
            key: blake3::Hash::from_bytes(self.key).to_hex().to_string(),
        };
        serde_json::to_vec(&written).expect("plain data")
    }

    /// Checks that what is asked for is what the folder is for. What is not asked for is as the
    /// folder has it.
    ///
    /// # Errors
    /// Names the first setting that differs.
    pub fn check(&self, settings: &Settings) -> Result<(), Misfit> {
        if let Some(asked) = settings.policy.as_deref()
            && find(asked)? != self.policy
        {
            return Err(differs("policy", asked, self.policy.name));
        }
        if let (Some(asked), Some(has)) = (settings.dim, self.dim)
            && asked != has
        {
            return Err(differs("dim", &asked.to_string(), &has.to_string()));
        }
        check_names(self.policy, settings)?;
        if let Some(asked) = settings.preset.as_deref()
            && asked != self.preset().as_str()
        {
            return Err(differs("preset", asked, self.preset().as_str()));
        }
        let asked = asked(self.policy, settings)?;
        values(self.policy, self.preset(), &asked)?;
        for (constant, has) in self.constants.iter() {
            let asked = asked.iter().find(|(name, _)| *name == constant.name);
            if let Some(&(name, asked)) = asked
                && asked != has
            {
                let has = match has {
                    Value::Unset => "none".to_owned(),
                    has => constant.format(has),
                };
                return Err(differs(&setting_name(name), &constant.format(asked), &has));
            }
        }
        Ok(())
    }

    /// The policy before the first round.
    ///
    /// # Errors
    /// Where the dimension cannot be, or a constant.
    pub fn make(&self, dim: usize, expected: u64) -> Result<Served, sclub::Error> {
        let users = match expected {
            0 => Users::Appear,
            n => Users::Declared(n),
        };
        Served::new(self.constants.make(&Setup {
            users,
            seed: self.seed(),
            ..setup(dim)
        })?)
    }

    /// Where the constants come from.
    pub fn preset(&self) -> Preset {
        self.constants.preset()
    }

    /// The constants that are not the preset's, by the names of their settings.
    pub fn overrides(&self) -> BTreeMap<String, Literal> {
        let Ok(preset) = values(self.policy, self.preset(), &[]) else {
            return BTreeMap::new();
        };
        let own = self.constants.iter();
        let own = own.filter(|&(constant, value)| value != preset.get(constant.name));
        own.filter_map(|(constant, value)| {
            Some((setting_name(constant.name), Literal::new(constant, value)?))
        })
        .collect()
    }

    /// Seals decisions.
    pub fn key(&self) -> [u8; 32] {
        self.key
    }

    /// Fixes everything that the policy draws at random: other folders, other draws.
    fn seed(&self) -> u64 {
        first_word(&blake3::keyed_hash(&self.key, b"seed"))
    }
}

/// The first 8 bytes of a hash.
pub(crate) fn first_word(hash: &blake3::Hash) -> u64 {
    let first = hash.as_bytes().first_chunk();
    u64::from_le_bytes(*first.expect("a hash is longer"))
}

/// A policy in a service: fits are made beside serving, and users can be forgotten.
fn setup(dim: usize) -> Setup<'static> {
    Setup {
        fits_inline: false,
        ..Setup::new(dim)
    }
}

/// The constants of a preset, with given values in place of some. Constants are fixed before the number of
/// features is known: no preset that can be served has any that depend on it.
fn values(
    policy: &'static Spec,
    preset: Preset,
    given: &[(&str, Value)],
) -> Result<Values, Misfit> {
    Ok(policy.values(preset, given, &setup(1))?)
}

/// The presets of a policy that can be served: [`Preset::Theory`] needs to know the truth.
fn presets(policy: &Spec) -> Vec<Preset> {
    let all = policy.presets.iter().copied();
    all.filter(|&preset| preset != Preset::Theory).collect()
}

fn find_preset(policy: &Spec, name: &str) -> Result<Preset, Misfit> {
    let known = presets(policy);
    let found = known.iter().find(|preset| preset.as_str() == name);
    found.copied().ok_or_else(|| {
        let known: Vec<&str> = known.iter().map(|preset| preset.as_str()).collect();
        Misfit(format!(
            "preset '{name}' cannot be served; {} can",
            known.join(" and ")
        ))
    })
}

/// Checks that a policy has what settings name.
fn check_names(policy: &Spec, settings: &Settings) -> Result<(), Misfit> {
    let check = |name: &str, has: &dyn Fn(&Spec) -> bool| {
        if has(policy) {
            return Ok(());
        }
        let mut those = servable();
        those.retain(|spec| has(spec));
        if those.is_empty() {
            return Err(Misfit(format!("no policy that can be served has {name}")));
        }
        Err(Misfit(format!(
            "the policy is {policy}, and {name} is for {}; leave {name} out, or use another policy",
            names(&those)
        )))
    };
    if settings.preset.is_some() {
        check("preset", &|spec| presets(spec).len() > 1)?;
    }
    for name in settings.constants.keys() {
        let constant = constant_name(name);
        check(name, &|spec| spec.constant(&constant).is_some())?;
    }
    Ok(())
}

/// The constants that settings name.
fn asked(policy: &Spec, settings: &Settings) -> Result<Vec<(&'static str, Value)>, Misfit> {
    let mut asked = Vec::new();
    for (name, literal) in &settings.constants {
        if let Some(constant) = policy.constant(&constant_name(name)) {
            asked.push((constant.name, literal.value(constant)?));
        }
    }
    Ok(asked)
}

/// Folders made before policies said which constants they have held two more for LinUCB, which it never
/// looked at, and the index as a boolean.
fn renew(policy: &Spec, constants: &mut BTreeMap<String, Option<Literal>>) {
    if let Some(squared) = constants.remove("squared_norm") {
        let is_squared = squared == Some(Literal::Flag(true));
        let index = if is_squared { "squared" } else { "norm" };
        constants.insert("index".to_owned(), Some(Literal::Text(index.to_owned())));
        for unused in ["alpha_theta", "alpha_p"] {
            if policy.constant(unused).is_none() {
                constants.remove(unused);
            }
        }
    }
}

/// What is asked for is not what the folder was made with.
fn differs(what: &str, asked: &str, has: &str) -> Misfit {
    Misfit(format!(
        "{what} {asked} was asked for, and the folder was made with {has}; use another folder, or \
         leave {what} out"
    ))
}
