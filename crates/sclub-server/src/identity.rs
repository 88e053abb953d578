//! The identity of a data folder: its policy, constants and key. They are fixed when the folder is made
//! and checked each time it is opened.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use sclub::{ContextMode, MAX_DIM, Preset, Setup, Spec, Users, Value, Values};
use sclub_features::Transform;
use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::env::Random;
use crate::settings::{Literal, Settings, constant_name, setting_name};
use crate::state::Served;

/// The latest version of the events and snapshots in a folder. Earlier ones are read as well.
///
/// Version 2 added fits to the events, version 3 context features, version 4 lists, version 5 descriptions of items,
/// assumed rewards and experiments. A folder keeps the version that it was made with.
pub const FORMAT: u32 = 5;

/// The first version with descriptions of items and assumed rewards.
pub(crate) const WITH_DESCRIPTIONS: u32 = 5;

/// The default policy of a new folder.
pub const DEFAULT: &str = "sclub-soft";

/// The policies that can be served: those that can be inspected and saved and can forget a user.
pub fn servable() -> Vec<&'static Spec> {
    let mut all = sclub::registry();
    all.retain(|spec| spec.can.can_be_served());
    all
}

/// The policy of this name, if it can be served.
fn find(name: &str) -> Result<&'static Spec, Misfit> {
    let all = servable();
    let spec = all.iter().copied().find(|spec| spec.name == name);
    spec.ok_or_else(|| {
        Misfit(format!(
            "policy '{name}' cannot be served; use one of {}",
            names(&all)
        ))
    })
}

fn names(specs: &[&Spec]) -> String {
    let names: Vec<&str> = specs.iter().map(|spec| spec.name).collect();
    names.join(", ")
}

/// The identity of a data folder.
#[derive(Debug, Clone, PartialEq)]
pub struct Identity {
    /// The format version of its events and snapshots.
    pub format: u32,
    /// The policy.
    pub policy: &'static Spec,
    /// The policy's constants. They stay as they were when the folder was made, even if a later release
    /// has other defaults.
    pub constants: Values,
    /// The number of features per item, if it was set when the folder was made.
    pub dim: Option<usize>,
    /// The transform of items that are sent with their raw fields.
    pub features: Option<Arc<Transform>>,
    /// The context features of requests.
    pub context: Context,
    /// The key that decisions are sealed with.
    key: [u8; 32],
}

/// An [`Identity`] as it is encoded in the folder.
#[derive(Serialize, Deserialize)]
struct Written {
    format: u32,
    policy: String,
    preset: String,
    constants: BTreeMap<String, Option<Literal>>,
    dim: Option<usize>,
    /// The file of the transform; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    features: Option<String>,
    /// The declarations of context features; absent without any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    context: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    context_mode: Option<String>,
    /// The key in hexadecimal.
    key: String,
}

/// A policy and its constants as they are in the folder's identity, and in the log for the arms of an experiment.
#[derive(Serialize, Deserialize)]
struct WrittenPolicy {
    policy: String,
    preset: String,
    constants: BTreeMap<String, Option<Literal>>,
}

impl WrittenPolicy {
    fn new(identity: &Identity) -> Self {
        let constants = identity.constants.iter();
        let constants = constants
            .map(|(constant, value)| (constant.name.to_owned(), Literal::new(constant, value)));
        Self {
            policy: identity.policy.name.to_owned(),
            preset: identity.preset().to_string(),
            constants: constants.collect(),
        }
    }

    /// The policy and its constants.
    fn read(mut self) -> Result<(&'static Spec, Values), Misfit> {
        if sclub::find_policy(&self.policy).is_none() {
            let name = &self.policy;
            return Err(Misfit(format!(
                "the folder is for policy '{name}', which this program does not have"
            )));
        }
        let policy = find(&self.policy)?;
        let preset = find_preset(policy, &self.preset)?;
        convert_old_constants(policy, &mut self.constants);
        let mut given = Vec::with_capacity(self.constants.len());
        for (name, literal) in &self.constants {
            let constant = policy.constant(name).ok_or_else(|| {
                let policy = policy.name;
                Misfit(format!(
                    "policy {policy} has no constant '{name}', which the folder sets"
                ))
            })?;
            let value = match literal {
                Some(literal) => literal.value(constant)?,
                None => Value::Unset,
            };
            given.push((constant.name, value));
        }
        Ok((policy, values(policy, preset, &given)?))
    }
}

/// Hashes the ids of users, with a key.
#[derive(Debug, Clone, Copy)]
pub struct UserHash([u8; 32]);

impl UserHash {
    /// The hash of a user, in hexadecimal.
    pub fn of(&self, user: &str) -> String {
        let hash = blake3::keyed_hash(&self.0, user.as_bytes());
        hash.to_hex()[..32].to_owned()
    }
}

/// Settings that are invalid, or differ from what the folder was made with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Misfit(pub String);

impl From<sclub::ValueError> for Misfit {
    fn from(error: sclub::ValueError) -> Self {
        Misfit(format!("{}: {}", setting_name(&error.name), error.why))
    }
}

impl Identity {
    /// The identity of a new folder.
    ///
    /// # Errors
    /// If a setting is invalid.
    pub fn new(settings: &Settings, random: &dyn Random) -> Result<Self, Misfit> {
        let (policy, constants) = policy_of(settings)?;
        if let Some(dim) = settings.dim {
            sclub::ItemSet::new(dim).map_err(|error| Misfit(format!("dim: {error}")))?;
        }
        let context = Context::new(&settings.context, context_mode(settings)?)?;
        let of_transform = settings.transform.as_ref().map(|transform| transform.dim());
        if let (Some(dim), Some(made)) = (settings.dim, of_transform)
            && dim != made
        {
            return Err(Misfit(format!(
                "dim is {dim}, and the transform makes {made} features; omit dim"
            )));
        }
        let given_dim = settings.dim.or(of_transform);
        let dim = given_dim.unwrap_or(1);
        let joined = context.policy_dim(dim);
        if joined > MAX_DIM {
            return Err(Misfit(format!(
                "items of {dim} features with the context have {joined}; the maximum is {MAX_DIM}"
            )));
        }
        let mut key = [0; 32];
        random
            .fill(&mut key)
            .map_err(|error| Misfit(format!("the system gives no random numbers: {error}")))?;
        let identity = Self {
            format: FORMAT,
            policy,
            constants,
            dim: given_dim,
            features: settings.transform.clone(),
            context,
            key,
        };
        // Before the folder becomes one for constants that cannot be served.
        let policy = identity.make(dim, 0);
        policy.map_err(|error| Misfit(error.to_string()))?;
        identity.check_run(settings)?;
        Ok(identity)
    }

    /// The same folder with another policy: that of the settings, with their preset and constants.
    ///
    /// # Errors
    /// If the policy cannot be served, or a constant is invalid.
    pub fn with_policy(&self, settings: &Settings) -> Result<Self, Misfit> {
        let (policy, constants) = policy_of(settings)?;
        self.with(policy, constants)
    }

    /// The policy and its constants as a text, for the log.
    pub fn written_policy(&self) -> String {
        serde_json::to_string(&WrittenPolicy::new(self)).expect("plain data")
    }

    /// The same folder with the policy of [`Identity::written_policy`].
    ///
    /// # Errors
    /// If the text is malformed, or the program does not have the policy.
    pub fn with_written_policy(&self, text: &str) -> Result<Self, Misfit> {
        let written: WrittenPolicy = serde_json::from_str(text)
            .map_err(|_| Misfit("the policy of an arm cannot be decoded".to_owned()))?;
        let (policy, constants) = written.read()?;
        self.with(policy, constants)
    }

    fn with(&self, policy: &'static Spec, constants: Values) -> Result<Self, Misfit> {
        let other = Self {
            policy,
            constants,
            ..self.clone()
        };
        let made = other.make(other.dim.unwrap_or(1), 0);
        made.map_err(|error| Misfit(error.to_string()))?;
        Ok(other)
    }

    /// Decodes the identity of an existing folder.
    ///
    /// # Errors
    /// If it is malformed, or its format, policy or constants are unsupported.
    pub fn decode(bytes: &[u8]) -> Result<Self, Misfit> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let unreadable = |_| Misfit("the folder's identity cannot be decoded".to_owned());
        let Format { format } = serde_json::from_slice(bytes).map_err(unreadable)?;
        if !(1..=FORMAT).contains(&format) {
            return Err(Misfit(format!(
                "the folder has format {format}, and this version supports 1 to {FORMAT}; use the version \
                 that wrote it"
            )));
        }
        let mut written: Written = serde_json::from_slice(bytes).map_err(unreadable)?;
        let policy = std::mem::take(&mut written.policy);
        let (policy, constants) = WrittenPolicy {
            policy,
            preset: written.preset,
            constants: written.constants,
        }
        .read()?;
        let key = blake3::Hash::from_hex(&written.key)
            .map_err(|_| Misfit("the folder's identity has no valid key".to_owned()))?;
        Ok(Self {
            format,
            policy,
            constants,
            dim: written.dim,
            features: match &written.features {
                Some(file) => {
                    let transform = Transform::decode(file.as_bytes()).map_err(|error| {
                        Misfit(format!("the transform in the folder's identity: {error}"))
                    })?;
                    Some(Arc::new(transform))
                }
                None => None,
            },
            context: Context::new(
                &written.context,
                parse_mode(written.context_mode.as_deref())?,
            )?,
            key: *key.as_bytes(),
        })
    }

    /// Encodes the identity for the folder.
    pub fn encode(&self) -> Vec<u8> {
        let WrittenPolicy {
            policy,
            preset,
            constants,
        } = WrittenPolicy::new(self);
        let written = Written {
            format: self.format,
            policy,
            preset,
            constants,
            dim: self.dim,
            features: self.features.as_ref().map(|transform| {
                String::from_utf8(transform.encode()).expect("the file is a text")
            }),
            context: self.context.declarations(),
            context_mode: (!self.context.is_empty()).then(|| self.context.mode().to_string()),
            key: blake3::Hash::from_bytes(self.key).to_hex().to_string(),
        };
        serde_json::to_vec(&written).expect("plain data")
    }

    /// Checks that the settings agree with the folder. Settings that are not given are taken from the
    /// folder.
    ///
    /// # Errors
    /// The first setting that differs.
    pub fn check(&self, settings: &Settings) -> Result<(), Misfit> {
        self.check_for(settings, "folder")
    }

    /// As [`Identity::check`], for the identity of a cluster.
    ///
    /// # Errors
    /// As [`Identity::check`].
    pub fn check_for_cluster(&self, settings: &Settings) -> Result<(), Misfit> {
        self.check_for(settings, "cluster")
    }

    /// `made` names the thing with this identity in errors.
    fn check_for(&self, settings: &Settings, made: &str) -> Result<(), Misfit> {
        let differs = |setting: &str, asked: &str, has: &str| {
            Misfit(format!(
                "{setting} is {asked}, and the {made} was made with {has}; use another {made}, or omit {setting}"
            ))
        };
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
        if let Some(asked) = &settings.transform
            && self.features.as_ref() != Some(asked)
        {
            let has = match &self.features {
                Some(has) => format!("another transform ({})", has.digest()),
                None => "no transform".to_owned(),
            };
            let file = settings
                .features
                .as_deref()
                .unwrap_or_else(|| Path::new(""))
                .display();
            let asked = format!("{file} ({})", asked.digest());
            return Err(differs("features", &asked, &has));
        }
        let declared = self.context.declarations();
        if !settings.context.is_empty() {
            let asked = Context::new(&settings.context, self.context.mode())?.declarations();
            if asked != declared {
                return Err(differs(
                    "context",
                    &asked.join(","),
                    &or_none(&declared.join(",")),
                ));
            }
        }
        if let Some(asked) = settings.context_mode.as_deref()
            && parse_mode(Some(asked))? != self.context.mode()
        {
            let has = self.context.mode().as_str();
            return Err(differs("context-mode", asked, has));
        }
        check_names(self.policy, settings)?;
        if let Some(asked) = settings.preset.as_deref()
            && asked != self.preset().as_str()
        {
            return Err(differs("preset", asked, self.preset().as_str()));
        }
        let requested = requested(self.policy, settings)?;
        values(self.policy, self.preset(), &requested)?;
        for (constant, has) in self.constants.iter() {
            let asked = requested.iter().find(|(name, _)| *name == constant.name);
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

    /// Checks the settings that may differ from one start to the next: rewards for unanswered items, and the share of
    /// uniform lists.
    ///
    /// # Errors
    /// If a value is out of range, or the policy lacks an ability.
    pub fn check_run(&self, settings: &Settings) -> Result<(), Misfit> {
        let share = settings.explore_share;
        if !(0.0..=1.0).contains(&share) {
            return Err(Misfit(format!(
                "explore-share is {share}; it must be from 0 to 1"
            )));
        }
        let Some(reward) = settings.unanswered else {
            return Ok(());
        };
        let (min, max) = (settings.reward_min, settings.reward_max);
        let problem = if !(min..=max).contains(&reward) {
            format!("unanswered is {reward}; a reward must be from {min} to {max}")
        } else if settings.after.as_millis() >= settings.lifetime.saturating_mul(1000) {
            let after = String::from(settings.after);
            let lifetime = settings.lifetime;
            format!(
                "after is {after}; it must be less than the lifetime of decisions, {lifetime} seconds"
            )
        } else if settings.journal_days == 0 {
            "unanswered needs the journal, where decisions are kept; set journal-days".to_owned()
        } else if settings.cluster.is_some() {
            "unanswered is not supported in a cluster; send \"others\" with the feedback".to_owned()
        } else if !self.has_descriptions() {
            "unanswered needs a data folder of this version; teach a new folder".to_owned()
        } else if !self.can_correct() {
            let all = servable();
            let able: Vec<&Spec> = all.into_iter().filter(|spec| spec.can.correct).collect();
            let half_life = match self.policy.can.correct {
                true => " with a half-life",
                false => "",
            };
            format!(
                "unanswered needs a policy that can correct a reward, and {}{half_life} cannot; use one of {}",
                self.policy.name,
                names(&able)
            )
        } else {
            return Ok(());
        };
        Err(Misfit(problem))
    }

    /// Returns true if the policy draws at random.
    pub fn draws(&self) -> bool {
        let is_bonus = self.constants.get("explore") == Value::Choice("bonus");
        self.policy.can.draws && !is_bonus
    }

    /// Hashes the ids of users for this folder or cluster.
    pub fn user_hash(&self) -> UserHash {
        UserHash(blake3::derive_key(
            "sclub: hashes of forgotten users",
            &self.key,
        ))
    }

    /// Makes the policy, before its first round.
    ///
    /// # Errors
    /// If the dimension or a constant is invalid.
    pub fn make(&self, dim: usize, expected: u64) -> Result<Served, sclub::Error> {
        let users = match expected {
            0 => Users::Appear,
            n => Users::Declared(n),
        };
        Served::new(self.constants.make(&Setup {
            users,
            seed: self.seed(),
            ..setup(self.context.policy_dim(dim))
        })?)
    }

    /// Returns true if lists are logged and learned as a whole. A folder that was made before its policy did so
    /// learns each item by itself.
    pub fn has_lists(&self) -> bool {
        self.policy.can.lists && self.format >= 4
    }

    /// Returns true if items can have descriptions, rewards can be assumed, and experiments can be made.
    pub fn has_descriptions(&self) -> bool {
        self.format >= WITH_DESCRIPTIONS
    }

    /// Returns true if the policy can replace an assumed reward by another one.
    pub fn can_correct(&self) -> bool {
        let policy = self.make(self.dim.unwrap_or(1), 0);
        self.has_descriptions() && policy.is_ok_and(|mut policy| policy.as_correct().is_some())
    }

    /// The preset that the constants come from.
    pub fn preset(&self) -> Preset {
        self.constants.preset()
    }

    /// The constants that differ from the preset, by the names of their settings.
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

    /// The key that decisions are sealed with.
    pub fn key(&self) -> [u8; 32] {
        self.key
    }

    /// The seed of the policy's random numbers, different for each folder.
    fn seed(&self) -> u64 {
        first_word(&blake3::keyed_hash(&self.key, b"seed"))
    }
}

/// The first 8 bytes of a hash.
pub(crate) fn first_word(hash: &blake3::Hash) -> u64 {
    let first = hash.as_bytes().first_chunk();
    u64::from_le_bytes(*first.expect("a hash is longer"))
}

/// The setup of a served policy: fits are computed in the background.
pub(crate) fn setup(dim: usize) -> Setup<'static> {
    Setup {
        fits_inline: false,
        ..Setup::new(dim)
    }
}

/// The policy of the settings, with their preset and constants.
fn policy_of(settings: &Settings) -> Result<(&'static Spec, Values), Misfit> {
    let policy = find(settings.policy.as_deref().unwrap_or(DEFAULT))?;
    check_names(policy, settings)?;
    let preset = match settings.preset.as_deref() {
        Some(name) => find_preset(policy, name)?,
        None => policy.presets[0],
    };
    let constants = values(policy, preset, &requested(policy, settings)?)?;
    Ok((policy, constants))
}

/// The constants of a preset, some of them overridden. Constants are fixed before the number of features is
/// known: no preset that can be served depends on it.
fn values(
    policy: &'static Spec,
    preset: Preset,
    given: &[(&str, Value)],
) -> Result<Values, Misfit> {
    Ok(policy.values(preset, given, &setup(1))?)
}

/// The context mode that the settings ask for.
fn context_mode(settings: &Settings) -> Result<ContextMode, Misfit> {
    if settings.context.is_empty() && settings.context_mode.is_some() {
        return Err(Misfit(
            "context-mode needs context features; declare them with context".to_owned(),
        ));
    }
    parse_mode(settings.context_mode.as_deref())
}

fn parse_mode(name: Option<&str>) -> Result<ContextMode, Misfit> {
    Ok(match name {
        Some(name) => name.parse()?,
        None => ContextMode::Cross,
    })
}

fn or_none(text: &str) -> String {
    if text.is_empty() { "none" } else { text }.to_owned()
}

/// The presets of a policy that can be served. [`Preset::Theory`] needs the ground truth.
fn presets(policy: &Spec) -> Vec<Preset> {
    let all = policy.presets.iter().copied();
    all.filter(|&preset| preset != Preset::Theory).collect()
}

fn find_preset(policy: &Spec, name: &str) -> Result<Preset, Misfit> {
    let known = presets(policy);
    let preset = known.iter().find(|preset| preset.as_str() == name);
    preset.copied().ok_or_else(|| {
        let known: Vec<&str> = known.iter().map(|preset| preset.as_str()).collect();
        Misfit(format!(
            "preset '{name}' cannot be served with {policy}; use one of {}",
            known.join(", ")
        ))
    })
}

/// Checks that the policy has a choice of presets, if the settings name one, and every constant that they
/// name.
fn check_names(policy: &Spec, settings: &Settings) -> Result<(), Misfit> {
    let check = |name: &str, has: &dyn Fn(&Spec) -> bool| {
        if has(policy) {
            return Ok(());
        }
        let mut others = servable();
        others.retain(|spec| has(spec));
        if others.is_empty() {
            return Err(Misfit(format!(
                "{name} is not a setting of any policy that can be served"
            )));
        }
        Err(Misfit(format!(
            "{name} is not a setting of policy {policy}; omit {name}, or use one of the policies that have it: {}",
            names(&others)
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

/// The values of the constants that the settings name.
fn requested(policy: &Spec, settings: &Settings) -> Result<Vec<(&'static str, Value)>, Misfit> {
    let mut requested = Vec::new();
    for (name, literal) in &settings.constants {
        if let Some(constant) = policy.constant(&constant_name(name)) {
            requested.push((constant.name, literal.value(constant)?));
        }
    }
    Ok(requested)
}

/// Converts the constants of folders made before each policy declared its own: those had two more for
/// LinUCB, which it did not use, and the index as a boolean.
fn convert_old_constants(policy: &Spec, constants: &mut BTreeMap<String, Option<Literal>>) {
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
