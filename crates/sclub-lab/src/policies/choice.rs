//! Selection of policies and their constants: defaults and validation.

use sclub::{Preset, Setup, Value, ValueError};

use super::{Entry, Knowledge, Name};

/// An invalid selection of policies or constants.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ChoiceError {
    /// The same policy again.
    #[error("policy '{0}' is named twice")]
    Twice(Name),
    /// The policy needs ground truth that this world does not have.
    #[error("policy '{0}' needs the true clusters, which this world does not have; leave it out")]
    NeedsTruth(Name),
    /// The policy needs items that are the same in all rounds.
    #[error(
        "policy '{0}' plays only in a catalogue, whose items are the same in every round; leave it out"
    )]
    NeedsCatalogue(Name),
    /// A constant that no policy has.
    #[error("no policy has a constant '{0}'")]
    Unknown(String),
    /// A constant of policies that are not selected.
    #[error(
        "{constant} is a constant of {}, and none of them is selected",
        or(owners)
    )]
    NotChosen {
        /// The constant.
        constant: String,
        /// The policies that have it.
        owners: Vec<Name>,
    },
    /// A value that a constant cannot have.
    #[error(transparent)]
    Value(#[from] ValueError),
}

/// `a`, `a or b`, `a, b or c`.
fn or(names: &[Name]) -> String {
    let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
    match names.as_slice() {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        names => names.concat(),
    }
}

/// The selected policies: those asked for. By default all that the world allows, without those that are there for
/// comparison ([`sclub::is_for_comparison`]).
///
/// # Errors
/// [`ChoiceError::Twice`], [`ChoiceError::NeedsTruth`], [`ChoiceError::NeedsCatalogue`].
pub fn choose(asked: Option<&[Name]>, knowledge: Knowledge) -> Result<Vec<Name>, ChoiceError> {
    let Some(asked) = asked else {
        let all = Name::all().into_iter();
        let by_default = |name: &Name| !sclub::is_for_comparison(name.spec());
        return Ok(all
            .filter(|name| by_default(name) && name.can_play(knowledge))
            .collect());
    };
    let mut policies: Vec<Name> = Vec::new();
    for &name in asked {
        if policies.contains(&name) {
            return Err(ChoiceError::Twice(name));
        }
        check_can_play(name, knowledge)?;
        policies.push(name);
    }
    Ok(policies)
}

/// Checks that a policy can play a world of which this is known.
///
/// # Errors
/// [`ChoiceError::NeedsTruth`], [`ChoiceError::NeedsCatalogue`].
pub fn check_can_play(name: Name, knowledge: Knowledge) -> Result<(), ChoiceError> {
    match name.can_play(knowledge) {
        true => Ok(()),
        false if name == Name::BEST_ITEM => Err(ChoiceError::NeedsCatalogue(name)),
        false => Err(ChoiceError::NeedsTruth(name)),
    }
}

/// Policies with the constants of a preset. A given constant, a name and a text that
/// [`sclub::Constant::parse`] takes, goes to every policy that has it.
///
/// # Errors
/// [`ChoiceError::Unknown`], [`ChoiceError::NotChosen`], [`ChoiceError::Value`].
pub fn entries(
    names: &[Name],
    preset: Preset,
    given: &[(String, String)],
    setup: &Setup<'_>,
) -> Result<Vec<Entry>, ChoiceError> {
    for (constant, _) in given {
        let has = |name: &Name| name.constant(constant).is_some();
        if names.iter().any(has) {
            continue;
        }
        let owners: Vec<Name> = Name::all().into_iter().filter(has).collect();
        let constant = constant.clone();
        return Err(match owners.is_empty() {
            true => ChoiceError::Unknown(constant),
            false => ChoiceError::NotChosen { constant, owners },
        });
    }
    let entry = |&name: &Name| {
        let mut own: Vec<(&str, Value)> = Vec::new();
        for (constant, text) in given {
            if let Some(constant) = name.constant(constant) {
                own.push((constant.name, constant.parse(text)?));
            }
        }
        Ok(Entry::new(name, preset, &own, setup)?)
    };
    names.iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::setup;
    use crate::yardsticks::specs;

    #[test]
    fn a_policy_is_selected_once_and_only_with_the_truth_it_needs() {
        let mut all = Name::all();
        all.retain(|name| !sclub::is_for_comparison(name.spec()));
        assert_eq!(choose(None, Knowledge::Catalogue).unwrap(), all);
        let clusters = choose(None, Knowledge::Clusters).unwrap();
        assert_eq!(clusters.len(), all.len() - 1);
        assert!(!clusters.contains(&Name::BEST_ITEM));
        let learners = choose(None, Knowledge::Nothing).unwrap();
        assert_eq!(learners.len(), all.len() - 3);
        assert!(!learners.iter().any(|name| name.needs_truth()));
        let error = choose(Some(&[Name::CLUB, Name::CLUB]), Knowledge::Clusters).unwrap_err();
        assert_eq!(error.to_string(), "policy 'club' is named twice");
        let error = choose(Some(&[Name::ORACLE]), Knowledge::Nothing).unwrap_err();
        assert_eq!(error, ChoiceError::NeedsTruth(Name::ORACLE));
        let error = choose(Some(&[Name::BEST_ITEM]), Knowledge::Clusters).unwrap_err();
        assert_eq!(error, ChoiceError::NeedsCatalogue(Name::BEST_ITEM));
    }

    fn given(constant: &str, text: &str) -> Result<Vec<Entry>, ChoiceError> {
        let names = [Name::SCLUB, Name::CLUB, Name::RANDOM];
        let given = [(constant.to_owned(), text.to_owned())];
        entries(&names, Preset::Tuned, &given, &setup(5, 10))
    }

    #[test]
    fn a_constant_goes_to_every_policy_that_has_it() {
        let [sclub, club, random] = &given("alpha_theta", "1.5").unwrap()[..] else {
            panic!("there are three");
        };
        assert_eq!(sclub.values.number("alpha_theta"), Some(1.5));
        assert_eq!(club.values.number("alpha_theta"), Some(1.5));
        assert_eq!(random.values.iter().count(), 0);
        let error = given("alpha_theta", "-1").unwrap_err().to_string();
        assert!(error.starts_with("alpha_theta: it is -1"), "{error}");
    }

    #[test]
    fn a_constant_of_no_selected_policy_is_an_error() {
        let error = given("half_life", "50").unwrap_err().to_string();
        let expected =
            "half_life is a constant of sclub-soft or gaussian, and none of them is selected";
        assert_eq!(error, expected);
        let error = given("nothing", "50").unwrap_err();
        assert_eq!(error, ChoiceError::Unknown("nothing".into()));
    }

    #[test]
    fn the_published_constants_bring_the_published_code_where_it_fits() {
        let entry = |name, preset, users| Entry::new(name, preset, &[], &setup(5, users)).unwrap();
        let graph = |preset, users| entry(Name::CLUB, preset, users).values.choice("graph");
        assert_eq!(graph(Preset::Released, 10_000), "complete");
        assert_eq!(graph(Preset::Released, 10_001), "random");
        assert_eq!(graph(Preset::Tuned, 10), "random");
        let deviations = |preset| entry(Name::SCLUB, preset, 10).values.set("deviations");
        assert_eq!(
            deviations(Preset::Released),
            sclub::Deviations::ALL.to_set()
        );
        assert_eq!(deviations(Preset::Tuned), 0);
    }

    #[test]
    fn names_are_found_and_ordered_as_they_are_shown() {
        let all = Name::all();
        let learners = sclub::registry();
        assert!(
            all.iter()
                .map(|name| name.spec())
                .eq(learners.into_iter().chain([
                    &specs::ORACLE,
                    &specs::INFORMED,
                    &specs::BEST_ITEM,
                    &specs::RANDOM
                ]))
        );
        assert!(all.is_sorted());
        for name in all {
            assert_eq!(name.as_str().parse(), Ok(name));
        }
        let error = "linucb".parse::<Name>().unwrap_err();
        assert!(error.starts_with("unknown policy 'linucb'; use one of sclub, sclub-soft,"));
    }
}
