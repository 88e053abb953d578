//! What is taken unless it is said, and whether what is said can be.

use sclub::Deviations;

use super::{InitialGraph, Name, Preset};
use crate::paper::Switch;

/// Users up to which a complete graph is taken without being asked for: 10^8 ends of edges.
pub const MOST_COMPLETE: u64 = 10_000;

/// Why what was asked for cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChoiceError {
    /// The same policy again.
    #[error("policy '{0}' is named twice")]
    Twice(Name),
    /// A policy that would have to be told what there is not.
    #[error("policy '{0}' is told the true clusters, and this world has none")]
    Told(Name),
    /// All or none, and something beside it.
    #[error("deviation '{0}' stands alone")]
    Alone(String),
    /// No deviation of this name.
    #[error(
        "there is no deviation '{name}'; there are all, none, {}",
        known_deviations()
    )]
    Deviation {
        /// What was asked for.
        name: String,
    },
}

fn known_deviations() -> String {
    Switch::ALL.map(|switch| switch.name).join(", ")
}

/// Who plays: those asked for, or all that the world allows.
///
/// # Errors
/// [`ChoiceError::Twice`], [`ChoiceError::Told`].
pub fn choose(asked: Option<&[Name]>, has_truth: bool) -> Result<Vec<Name>, ChoiceError> {
    let Some(asked) = asked else {
        let all = Name::ALL.into_iter();
        return Ok(all.filter(|name| has_truth || !name.is_told()).collect());
    };
    let mut policies: Vec<Name> = Vec::new();
    for &name in asked {
        if policies.contains(&name) {
            return Err(ChoiceError::Twice(name));
        }
        if name.is_told() && !has_truth {
            return Err(ChoiceError::Told(name));
        }
        policies.push(name);
    }
    Ok(policies)
}

/// Deviations by name: all, none, or some of [`Switch::ALL`].
///
/// # Errors
/// [`ChoiceError::Alone`], [`ChoiceError::Deviation`].
pub fn deviations<S: AsRef<str>>(names: &[S]) -> Result<Deviations, ChoiceError> {
    let mut deviations = Deviations::NONE;
    for name in names {
        match name.as_ref() {
            name @ ("all" | "none") if names.len() > 1 => {
                return Err(ChoiceError::Alone(name.into()));
            }
            "all" => deviations = Deviations::ALL,
            "none" => deviations = Deviations::NONE,
            name => {
                let switch = Switch::ALL.into_iter().find(|switch| switch.name == name);
                let switch = switch.ok_or_else(|| ChoiceError::Deviation { name: name.into() })?;
                deviations = switch.with(deviations, true);
            }
        }
    }
    Ok(deviations)
}

/// What SCLUB does otherwise than the pseudo-code unless it is said: as the published code with its
/// constants, nothing else.
pub fn usual_deviations(preset: Preset) -> Deviations {
    match preset {
        Preset::Released => Deviations::ALL,
        Preset::Theory | Preset::Tuned => Deviations::NONE,
    }
}

/// The graph that CLUB starts from unless it is said: complete as in the paper's figures with the
/// constants of those, while it fits into memory.
pub fn usual_graph(preset: Preset, users: u64) -> InitialGraph {
    if preset == Preset::Released && users <= MOST_COMPLETE {
        InitialGraph::Complete
    } else {
        InitialGraph::Random
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_plays_twice_or_is_told_what_there_is_not() {
        assert_eq!(choose(None, true).unwrap(), Name::ALL);
        let untold = choose(None, false).unwrap();
        assert_eq!(untold.len(), Name::ALL.len() - 2);
        assert!(!untold.iter().any(|name| name.is_told()));
        let error = choose(Some(&[Name::Club, Name::Club]), true).unwrap_err();
        assert_eq!(error.to_string(), "policy 'club' is named twice");
        let error = choose(Some(&[Name::Oracle]), false).unwrap_err();
        assert_eq!(error, ChoiceError::Told(Name::Oracle));
    }

    #[test]
    fn deviations_have_names() {
        let names = Switch::ALL.map(|switch| switch.name);
        assert_eq!(deviations(&names), Ok(Deviations::ALL));
        assert_eq!(deviations(&["all"]), Ok(Deviations::ALL));
        assert_eq!(deviations(&["none"]), Ok(Deviations::NONE));
        assert_eq!(deviations::<&str>(&[]), Ok(Deviations::NONE));
        let error = deviations(&["all", "stale-marks"]).unwrap_err();
        assert_eq!(error.to_string(), "deviation 'all' stands alone");
        let error = deviations(&["stale"]).unwrap_err().to_string();
        assert!(error.starts_with("there is no deviation 'stale'; there are all, none, shared-"));
    }

    #[test]
    fn the_graph_is_complete_where_the_papers_was_and_it_fits() {
        assert_eq!(
            usual_graph(Preset::Released, MOST_COMPLETE),
            InitialGraph::Complete
        );
        assert_eq!(
            usual_graph(Preset::Released, MOST_COMPLETE + 1),
            InitialGraph::Random
        );
        assert_eq!(usual_graph(Preset::Tuned, 10), InitialGraph::Random);
    }

    #[test]
    fn what_there_is_not_is_answered_with_what_there_is() {
        assert_eq!("released".parse(), Ok(Preset::Released));
        assert_eq!("complete".parse(), Ok(InitialGraph::Complete));
        let error = "best".parse::<Preset>().unwrap_err();
        assert_eq!(
            error,
            "there is no preset 'best'; there are theory, released, tuned"
        );
    }
}
