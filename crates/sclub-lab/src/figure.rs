//! Regret against rounds, drawn.

use crate::policies::Name;
use crate::run::Run;
use crate::summary::{Mean, Row, rate_curves};

pub mod chart;
pub mod inks;
pub mod ticks;

use chart::{Axis, Chart, Dash, Series, Ticks};

/// A figure in two formats.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Scalable.
    pub svg: String,
    /// Pixels.
    pub png: Vec<u8>,
}

/// The number of points of a curve per error bar.
const BARS_EVERY: usize = 8;

/// Characters of a subtitle that fit into a figure.
const MAX_CHARACTERS: usize = 104;

/// A curve of a policy: who, over how many seeds, (round, value).
type Curve = (Name, usize, Vec<(f64, Mean)>);

/// Draws the rows' curves with error bars of one standard error.
///
/// # Errors
/// The reason why the PNG cannot be made.
pub fn draw(title: &str, subtitle: &str, rows: &[Row]) -> Result<Figure, String> {
    let y = Axis {
        label: "cumulative regret".into(),
        ticks: Ticks::Whole,
        min: None,
        max: None,
    };
    let curves = rows.iter().map(|row| {
        let points = row.curve.iter();
        let points = points.map(|&(round, mean)| (round as f64, mean));
        (row.policy, row.seeds, points.collect())
    });
    draw_curves(title, subtitle, curves.collect(), y)
}

/// Draws the share of rounds that were a hit so far, for worlds in which a round is a hit or a miss.
///
/// # Errors
/// As [`draw`].
pub fn draw_rates(title: &str, subtitle: &str, runs: &[Run]) -> Result<Figure, String> {
    let y = Axis {
        label: "rate so far".into(),
        ticks: Ticks::Percentage,
        min: Some(0.0),
        max: None,
    };
    let curves = rate_curves(runs).into_iter().map(|(policy, points)| {
        let seeds = runs.iter().filter(|run| run.policy == policy).count();
        (policy, seeds, points)
    });
    draw_curves(title, subtitle, curves.collect(), y)
}

fn draw_curves(title: &str, subtitle: &str, curves: Vec<Curve>, y: Axis) -> Result<Figure, String> {
    let last = curves
        .iter()
        .filter_map(|(_, _, points)| points.last())
        .map(|&(round, _)| round)
        .fold(1.0, f64::max);
    let series = curves.into_iter().map(|(policy, seeds, points)| Series {
        label: policy.to_string(),
        policy: Some(policy),
        strength: 1.0,
        dash: Dash::of(policy),
        points,
        bars_every: (seeds > 1).then_some(BARS_EVERY),
    });
    Chart {
        title: title.into(),
        subtitle: Some(fitting(subtitle)),
        x: Axis {
            label: "round".into(),
            ticks: Ticks::Whole,
            min: None,
            max: Some(last * 1.02),
        },
        y,
        series: series.collect(),
        title_size: 18,
        width: 820.0,
        height: 520.0,
        legend_room: 0.0,
    }
    .draw()
}

/// As much of a line as a figure has room for.
fn fitting(line: &str) -> String {
    if line.chars().count() <= MAX_CHARACTERS {
        return line.into();
    }
    let start: String = line.chars().take(MAX_CHARACTERS - 1).collect();
    format!("{start}…")
}
