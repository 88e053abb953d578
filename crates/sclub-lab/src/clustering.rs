//! The clusters of a policy that fits a model to all users, as it reports them at the end of a run.

use sclub::Outlook;
use serde::Serialize;

use crate::policies::Name;
use crate::run::Run;
use crate::summary::{Mean, thousands};

/// [`Outlook`], for the JSON file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Clustering {
    /// Fits taken.
    pub fits: u64,
    /// Clusters found by the last one.
    pub clusters: usize,
    /// (rounds, clusters) of fits, the oldest thinned out.
    pub history: Vec<(u64, usize)>,
    /// The share of users without a cluster of probability ½ or more.
    pub unplaced: f64,
    /// The number of parameters of all users that the data determine: between 0 and users × dim.
    pub effective_parameters: f64,
    /// The variance of a reward around its mean, as estimated.
    pub noise: f64,
    /// The log-likelihood of recent rewards with clusters less that without, in nats, older ones discounted.
    pub gain: f64,
    /// True if the clusters have at least half of the weight in recommendations.
    pub used: bool,
    /// A warning about the fit.
    pub warning: Option<String>,
}

impl From<Outlook> for Clustering {
    fn from(outlook: Outlook) -> Self {
        Self {
            fits: outlook.fits,
            clusters: outlook.clusters,
            history: outlook.history,
            unplaced: outlook.unplaced,
            effective_parameters: outlook.effective_parameters,
            noise: outlook.noise,
            gain: outlook.gain,
            used: outlook.used,
            warning: outlook.warning,
        }
    }
}

/// A line for each policy that reports its clusters: means over the runs, and a
/// warning if there is one.
pub fn lines(runs: &[Run]) -> Vec<String> {
    let mut names: Vec<Name> = Vec::new();
    for run in runs {
        if run.clustering.is_some() && !names.contains(&run.policy) {
            names.push(run.policy);
        }
    }
    let of = |name| -> Vec<&Clustering> {
        let own = runs.iter().filter(move |run| run.policy == name);
        own.filter_map(|run| run.clustering.as_ref()).collect()
    };
    names
        .into_iter()
        .map(|name| line(name, &of(name)))
        .collect()
}

fn line(name: Name, all: &[&Clustering]) -> String {
    let mean = |value: fn(&Clustering) -> f64| Mean::of(all.iter().map(|one| value(one))).mean;
    let fits = thousands(mean(|one| one.fits as f64));
    let effective = thousands(mean(|one| one.effective_parameters));
    let mut line = if name == Name::GAUSSIAN {
        format!("{name}: one prior after {fits} fits, {effective} effective parameters")
    } else {
        format!(
            "{name}: {} clusters after {fits} fits, {:.1}% of users not placed, {effective} effective parameters",
            thousands(mean(|one| one.clusters as f64)),
            100.0 * mean(|one| one.unplaced),
        )
    };
    let warnings: Vec<&String> = all.iter().filter_map(|one| one.warning.as_ref()).collect();
    match (warnings.first(), all.len()) {
        (None, _) => {}
        (Some(warning), 1) => line.push_str(&format!(". Warning: {warning}")),
        (Some(first), many) => line.push_str(&format!(
            ". Warning in {} of {many} worlds, the first: {first}",
            warnings.len()
        )),
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clustering(clusters: usize, warning: Option<&str>) -> Clustering {
        Clustering {
            fits: 41,
            clusters,
            history: vec![(500, 1), (600, clusters)],
            unplaced: 0.004,
            effective_parameters: 1203.4,
            noise: 0.2,
            gain: 12.0,
            used: warning.is_none(),
            warning: warning.map(String::from),
        }
    }

    #[test]
    fn a_line_says_what_was_found_and_what_is_the_matter() {
        let (some, more) = (clustering(8, None), clustering(12, None));
        assert_eq!(
            line(Name::SCLUB_SOFT, &[&some, &more]),
            "sclub-soft: 10 clusters after 41 fits, 0.4% of users not placed, 1,203 effective parameters"
        );
        assert_eq!(
            line(Name::GAUSSIAN, &[&some]),
            "gaussian: one prior after 41 fits, 1,203 effective parameters"
        );
        let none = clustering(0, Some("no clusters found"));
        let text = line(Name::SCLUB_SOFT, &[&some, &none]);
        assert!(
            text.ends_with(". Warning in 1 of 2 worlds, the first: no clusters found"),
            "{text}"
        );
        let text = line(Name::SCLUB_SOFT, &[&none]);
        assert!(text.ends_with(". Warning: no clusters found"), "{text}");
    }
}
