//! All policies. To add one, write its file, end it with its [`Spec`], and add a line here.

use std::io::Read;
use std::sync::{PoisonError, RwLock};

use crate::bytes::{Reader, bad};
use crate::error::LoadError;
use crate::policy::Policy;
use crate::spec::Spec;

use crate::policies::*;

/// The policies of this library, in the order in which they are shown.
static BUILT_IN: &[&Spec] = &[
    &crate::sclub::SPEC,
    &crate::soft::SPEC,
    &crate::club::SPEC,
    &crate::soft::GAUSSIAN,
    &crate::linucb::IND,
    &crate::linucb::ONE,
    &lints::SPEC,
];

/// The policies of other papers, for comparison with them.
static FIELD: &[&Spec] = &[
    &lints::ONE,
    &ts::CLUB,
    &ts::SCLUB,
    &ts::DYNUCB,
    &hier_ts::SPEC,
    &mix_ts::SPEC,
    &uniclub::UNICLUB,
    &uniclub::UNISCLUB,
    &rclumb::SPEC,
    &rsclumb::SPEC,
    &dyclu::SPEC,
    &bass::SPEC,
    &locb::SPEC,
    &dynucb::SPEC,
    &cab::SPEC,
    &cofiba::SPEC,
    &club_cascade::SPEC,
    &fclub::SPEC,
    &dccb::SPEC,
];

/// Second names of policies.
static SECOND_NAMES: &[(&str, &Spec)] = &[("ts:linucb-ind", &lints::SPEC)];

/// Names of the lab's reference policies.
const RESERVED: [&str; 3] = ["random", "oracle", "informed"];

/// Policies from outside.
static ADDED: RwLock<Vec<&'static Spec>> = RwLock::new(Vec::new());

/// All policies: those of this library, then those that were registered.
pub fn registry() -> Vec<&'static Spec> {
    let added = ADDED.read().unwrap_or_else(PoisonError::into_inner);
    let built_in = BUILT_IN.iter().chain(FIELD);
    built_in.chain(added.iter()).copied().collect()
}

/// Returns true for a policy that is there to compare others with, and that no one needs to run by default.
pub fn is_for_comparison(spec: &Spec) -> bool {
    FIELD.contains(&spec)
}

/// A policy by name. `ts:linucb-ind` is a second name of `lints`.
pub fn find_policy(name: &str) -> Option<&'static Spec> {
    let second = SECOND_NAMES.iter().find(|(second, _)| *second == name);
    let all = registry().into_iter();
    second
        .map(|&(_, spec)| spec)
        .or_else(|| all.into_iter().find(|spec| spec.name == name))
}

/// Adds a policy from outside the library. From now on everything that looks policies up knows it:
/// command line, lab, service.
///
/// # Errors
/// If the name is taken, or the spec is not well formed ([`Spec::check`]).
pub fn register(spec: &'static Spec) -> Result<(), String> {
    if find_policy(spec.name).is_some() || RESERVED.contains(&spec.name) {
        return Err(format!(
            "the policy name '{}' is taken; choose another name",
            spec.name
        ));
    }
    spec.check()?;
    let mut added = ADDED.write().unwrap_or_else(PoisonError::into_inner);
    added.push(spec);
    Ok(())
}

/// Loads a state that [`crate::Persist::save_to`] wrote, of any policy. Reads the state and
/// not a byte more. Nothing is trusted that has not been read: a damaged state costs no more memory
/// than a whole one of its length.
///
/// # Errors
/// [`LoadError::Io`] if the input fails; [`LoadError::State`] if it is not a state of a known
/// policy.
pub fn load_policy(input: &mut dyn Read) -> Result<Box<dyn Policy>, LoadError> {
    let reader = Reader::new(input)?;
    let mut loads = registry().into_iter().filter_map(|spec| spec.load);
    match loads.find(|load| load.magic == reader.magic()) {
        Some(load) => (load.load)(reader),
        None => Err(bad("it was saved by another policy, or is not a saved state").into()),
    }
}
