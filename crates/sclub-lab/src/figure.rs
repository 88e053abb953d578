//! Regret against rounds, drawn.

use crate::policies::Name;
use crate::summary::{Mean, Row};

pub mod chart;
pub mod inks;
pub mod ticks;

use chart::{Axis, Chart, Dash, Series, Ticks};

/// The colour of a policy, the same everywhere. Told apart with any kind of colour vision (Okabe and
/// Ito's palette).
pub fn colour(policy: Name) -> &'static str {
    match policy {
        Name::Sclub => "#D55E00",
        Name::Club => "#222222",
        Name::LinUcbInd => "#0072B2",
        Name::LinUcbOne => "#009E73",
        Name::Oracle => "#CC79A7",
        Name::Informed => "#E69F00",
        Name::Random => "#999999",
    }
}

/// The colour of a policy on a dark ground: the same hue, light enough to be seen there.
pub fn colour_on_dark(policy: Name) -> &'static str {
    match policy {
        Name::Sclub => "#FF8A3D",
        Name::Club => "#F0F0F0",
        Name::LinUcbInd => "#5BB4F0",
        Name::LinUcbOne => "#2FCB9B",
        Name::Oracle => "#E79CC6",
        Name::Informed => "#F2B632",
        Name::Random => "#9A9A9A",
    }
}

/// A figure in two formats.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Scalable.
    pub svg: String,
    /// Pixels.
    pub png: Vec<u8>,
}

/// Error bars are drawn at every so many points of a curve.
const BARS_EVERY: usize = 8;

/// Draws the rows' curves with error bars of one standard error.
///
/// # Errors
/// Says why the pixels cannot be made.
pub fn draw(title: &str, subtitle: &str, rows: &[Row]) -> Result<Figure, String> {
    let y = Axis {
        label: "cumulative regret".into(),
        ticks: Ticks::Whole,
        min: None,
        max: None,
    };
    draw_curves(title, subtitle, rows, y, |row| {
        let points = row.curve.iter();
        points.map(|&(round, mean)| (round as f64, mean)).collect()
    })
}

/// Draws the share of rounds that were a hit so far, for worlds in which a round is a hit or a miss
/// and regret counts the misses.
///
/// # Errors
/// As [`draw`].
pub fn draw_rates(title: &str, subtitle: &str, rows: &[Row]) -> Result<Figure, String> {
    let y = Axis {
        label: "rate so far".into(),
        ticks: Ticks::Percentage,
        min: Some(0.0),
        max: None,
    };
    draw_curves(title, subtitle, rows, y, |row| {
        let played = row.curve.iter().filter(|(round, _)| *round > 0);
        let rate = |(round, misses): &(u64, Mean)| {
            let rounds = *round as f64;
            let rate = Mean {
                mean: 1.0 - misses.mean / rounds,
                error: misses.error / rounds,
            };
            (rounds, rate)
        };
        played.map(rate).collect()
    })
}

fn draw_curves(
    title: &str,
    subtitle: &str,
    rows: &[Row],
    y: Axis,
    points: impl Fn(&Row) -> Vec<(f64, Mean)>,
) -> Result<Figure, String> {
    let last = rows
        .iter()
        .filter_map(|row| row.curve.last())
        .map(|&(round, _)| round)
        .max();
    let series = rows.iter().map(|row| Series {
        label: row.policy.to_string(),
        policy: Some(row.policy),
        strength: 1.0,
        dash: Dash::of(row.policy),
        points: points(row),
        bars_every: (row.seeds > 1).then_some(BARS_EVERY),
    });
    Chart {
        title: title.into(),
        subtitle: Some(subtitle.into()),
        x: Axis {
            label: "round".into(),
            ticks: Ticks::Whole,
            min: None,
            max: Some(last.unwrap_or(1) as f64 * 1.02),
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
