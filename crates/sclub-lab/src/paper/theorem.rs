//! Theorem 1: its bound beside the regret of the constants that it is about.

use sclub::{Preset, ValueError};

use super::cells::{Cells, Record};
use super::jobs::Job;
use super::panels::records;
use super::{PaperError, Plan, entry, synthetic};
use crate::policies::{Entry, Name};
use crate::report::model::{Line, Theorem};
use crate::setting::Setting;
use crate::summary::{Mean, thousands};
use crate::synthetic::{Frequencies, Recipe, Synthetic};
use crate::world::World;

/// Rounds from which curves are drawn: before, ln(t/d) means little.
const FIRST: u64 = 64;

fn setting() -> (Recipe, Setting) {
    let recipe = synthetic(Frequencies::Uniform);
    (recipe, Setting::Synthetic(recipe))
}

fn entries(setting: &Setting, rounds: u64) -> Result<[Entry; 2], ValueError> {
    Ok([
        entry(Name::SCLUB, Preset::Theory, setting, rounds)?,
        entry(Name::SCLUB, Preset::Tuned, setting, rounds)?,
    ])
}

pub(super) fn jobs(plan: &Plan) -> Result<Vec<Job>, PaperError> {
    let (_, setting) = setting();
    let entries = entries(&setting, plan.rounds)?;
    Ok(plan
        .seeds
        .iter()
        .map(|&seed| Job::new(&setting, seed, plan.rounds, &entries))
        .collect())
}

/// The numbers of the theorem in one world.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Constants {
    /// d
    pub dim: f64,
    /// m
    pub clusters: f64,
    /// n_u
    pub users: f64,
    /// R
    pub noise: f64,
    /// λ_x
    pub eigenvalue: f64,
    /// γ
    pub gap: f64,
    /// T
    pub horizon: f64,
}

impl Constants {
    pub fn new(recipe: &Recipe, gap: f64, horizon: u64) -> Self {
        Self {
            dim: recipe.dim as f64,
            clusters: recipe.clusters as f64,
            users: recipe.users as f64,
            noise: recipe.noise_scale(),
            eigenvalue: recipe.smallest_eigenvalue(),
            gap,
            horizon: horizon as f64,
        }
    }

    /// β
    pub fn beta(&self) -> f64 {
        let growth = self.dim * (self.horizon / self.dim).ln_1p();
        let union = 2.0 * (4.0 * self.clusters * self.users).ln();
        self.noise * (growth + union).sqrt()
    }

    /// Σ_j 4β√(d p^j t ln(t/d)), for `each` users of a cluster a round on average.
    pub fn leading(&self, round: f64, each: f64) -> f64 {
        let inside = self.dim * each * round * (round / self.dim).ln();
        self.clusters * 4.0 * self.beta() * inside.sqrt()
    }

    /// B(δ) of the proof: observations after which a user's estimate is within γ/4.
    fn observations_needed(&self, delta: f64) -> f64 {
        let Self {
            dim,
            eigenvalue,
            gap,
            ..
        } = *self;
        8192.0 / (gap.powi(2) * eigenvalue.powi(3))
            * (1024.0 * dim / (eigenvalue.powi(2) * delta)).ln()
    }

    /// Rounds of users spent before the clusters are right, by the proof's own constants, with
    /// δ = 1/√T in ten parts. Each costs at most 1. Where all users appear equally often nothing has
    /// to be told apart by frequency, and that term falls away; the proof's last step doubles the
    /// rest.
    pub fn exploration(&self) -> f64 {
        let delta = 1.0 / self.horizon.sqrt() / 10.0;
        let appear = |delta: f64| 16.0 * (self.users * self.horizon / delta).ln();
        let by_frequency = appear(delta) + 4.0;
        let by_estimate = appear(delta) + 4.0 * self.observations_needed(delta / self.users);
        let seen_again = appear(delta / self.clusters) + 4.0;
        2.0 * self.users * (2.0 * by_frequency.max(by_estimate) + seen_again)
    }
}

/// γ, the smallest distance between the tastes of two clusters.
fn gap(world: &Synthetic) -> f64 {
    let weights = &world.truth().expect("a world with clusters").weights;
    let mut smallest = f64::INFINITY;
    for (at, one) in weights.iter().enumerate() {
        for other in &weights[..at] {
            let squared: f64 = one.iter().zip(other).map(|(a, b)| (a - b).powi(2)).sum();
            smallest = smallest.min(squared.sqrt());
        }
    }
    smallest
}

/// Regret at powers of two, over some results.
fn doubling_curve(records: &[Record]) -> Vec<(f64, Mean)> {
    let Some(first) = records.first() else {
        return Vec::new();
    };
    (0..first.doubling.len())
        .filter(|&at| first.doubling[at].0 >= FIRST)
        .map(|at| {
            let regret = records.iter().map(|record| record.doubling[at].1);
            (first.doubling[at].0 as f64, Mean::of(regret))
        })
        .collect()
}

fn exact(y: f64) -> Mean {
    Mean {
        mean: y,
        error: 0.0,
    }
}

pub(super) fn theorem(plan: &Plan, cells: &Cells) -> Result<Option<Theorem>, PaperError> {
    let (recipe, setting) = setting();
    let [theory, tuned] = entries(&setting, plan.rounds)?;
    let measured = records(plan, cells, &setting, plan.rounds, &theory);
    let beside = records(plan, cells, &setting, plan.rounds, &tuned);
    // Before that there is nothing to draw, and ln(t/d) means nothing.
    if measured.is_empty() || beside.is_empty() || plan.rounds < FIRST {
        return Ok(None);
    }
    let mut gaps = Vec::new();
    for &seed in &plan.seeds {
        gaps.push(gap(
            &Synthetic::new(recipe, seed).map_err(crate::setting::SettingError::from)?
        ));
    }
    let gap = gaps.iter().copied().fold(f64::INFINITY, f64::min);
    let constants = Constants::new(&recipe, gap, plan.rounds);
    let alpha_theta = theory.values.number("alpha_theta").unwrap_or(f64::NAN);
    let each = 1.0 / constants.clusters;
    let rounds: Vec<f64> = doubling_curve(&measured).iter().map(|&(x, _)| x).collect();
    let curve = |f: &dyn Fn(f64) -> f64| -> Vec<(f64, Mean)> {
        rounds.iter().map(|&x| (x, exact(f(x)))).collect()
    };
    let bound = |label: &str, dashed, points| Line {
        label: label.into(),
        policy: None,
        dashed,
        strength: 1.0,
        points,
    };
    let lines = vec![
        bound(
            "bound, exploration term",
            true,
            curve(&|_| constants.exploration()),
        ),
        bound(
            "bound, leading term",
            false,
            curve(&|t| constants.leading(t, each)),
        ),
        Line {
            label: "SCLUB, theory".into(),
            policy: Some(Name::SCLUB),
            dashed: false,
            strength: 1.0,
            points: doubling_curve(&measured),
        },
        Line {
            label: "SCLUB, tuned".into(),
            policy: Some(Name::SCLUB),
            dashed: true,
            strength: 0.6,
            points: doubling_curve(&beside),
        },
    ];
    let end = plan.rounds as f64;
    let leading = constants.leading(end, each);
    let regret = Mean::of(measured.iter().map(|record| record.regret));
    let clusters = Mean::of(measured.iter().map(|record| record.clusters as f64));
    let text = |what: &str, how_much: String, why: &str| (what.into(), how_much, why.into());
    let terms = vec![
        text("R", format!("{}", constants.noise), "rewards are 0 or 1"),
        text(
            "λ_x",
            format!("1/{:.0}", 1.0 / constants.eigenvalue),
            "1/(2(d−1)) for these items",
        ),
        text(
            "γ",
            format!("{gap:.2}"),
            "the smallest distance between two clusters' tastes, over all seeds",
        ),
        text("α_θ", format!("{:.1}", alpha_theta), "4R√(d/λ_x)"),
        text(
            "β",
            format!("{:.2}", constants.beta()),
            "R√(d ln(1+T/d) + 2 ln(4 m n_u))",
        ),
        text(
            "leading term at T",
            thousands(leading),
            "Σ_j 4β√(d p^j T ln(T/d))",
        ),
        text(
            "exploration term",
            power(constants.exploration()),
            "the rounds that the proof asks for, with its own constants 1024, 8192, 16 and 4 and \
             δ = 1/√T; the term in 1/γ_p² falls away because all users appear equally often",
        ),
        text(
            "measured at T",
            format!("{} ± {}", thousands(regret.mean), thousands(regret.error)),
            "SCLUB with the theorem's constants",
        ),
    ];
    let reading = vec![
        format!(
            "The measured regret is below the bound everywhere, as it must be. The bound says little \
             here: no item is worth more than 1, so no policy can miss more than T = {}, and the \
             leading term alone is {:.1} times that. The exploration term is {} times T.",
            thousands(end),
            leading / end,
            power(constants.exploration() / end),
        ),
        format!(
            "With the theorem's α_θ of {:.0} two estimates may be {:.0} apart, and tastes have length \
             1: no user is split by the estimate within T rounds. {:.0} cluster is left at the end, \
             and SCLUB plays what LinUCB-One plays. The theorem is about horizons far beyond this one.",
            alpha_theta,
            2.0 * alpha_theta * sclub::radius(plan.rounds / recipe.users as u64),
            clusters.mean,
        ),
    ];
    Ok(Some(Theorem {
        lines,
        terms,
        reading,
    }))
}

/// A number in powers of ten, such as `5.5·10¹⁴`.
fn power(value: f64) -> String {
    let exponent = value.log10().floor();
    let digits = format!("{exponent:.0}");
    let raised: String = digits
        .chars()
        .map(|digit| match digit {
            '-' => '⁻',
            digit => "⁰¹²³⁴⁵⁶⁷⁸⁹"
                .chars()
                .nth(digit.to_digit(10).unwrap_or(0) as usize)
                .unwrap_or(digit),
        })
        .collect();
    format!("{:.1}·10{raised}", value / 10f64.powf(exponent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_numbers_are_written_in_powers_of_ten() {
        assert_eq!(power(5.52e14), "5.5·10¹⁴");
        assert_eq!(power(0.003), "3.0·10⁻³");
    }

    #[test]
    fn the_terms_are_those_of_the_paper() {
        let constants = Constants {
            dim: 20.0,
            clusters: 10.0,
            users: 1000.0,
            noise: 0.5,
            eigenvalue: 1.0 / 38.0,
            gap: 0.5,
            horizon: 1_048_574.0,
        };
        // By hand: ½·√(20·ln(52429.7) + 2·ln 40000) = ½·√(217.346 + 21.193).
        assert!(
            (constants.beta() - 7.7223).abs() < 1e-3,
            "{}",
            constants.beta()
        );
        // 10·4·7.7223·√(20·0.1·1048574·10.86725) = 308.89·√(22 790 274).
        let leading = constants.leading(1_048_574.0, 0.1);
        assert!((leading / 1_474_634.0 - 1.0).abs() < 1e-3, "{leading}");
        // B(δ) = 8192·4·54872·ln(1024·20·1444/δ) at δ = 1e-3.
        let needed = constants.observations_needed(1e-3);
        assert!((needed / 4.334e10 - 1.0).abs() < 1e-2, "{needed:e}");
        assert!(constants.exploration() > 8.0 * 1000.0 * 2.0 * needed);
    }
}
