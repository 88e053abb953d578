//! Regret against rounds, drawn.

use std::sync::Arc;

use kuva::plot::legend::LegendPosition;
use kuva::plot::{LinePlot, LineStyle};
use kuva::render::layout::{Layout, TickFormat};
use kuva::render::plots::Plot;

use crate::policies::Name;
use crate::summary::{Row, thousands};

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

fn plots(rows: &[Row]) -> Vec<Plot> {
    let mut plots: Vec<Plot> = Vec::new();
    for row in rows {
        let points = row
            .curve
            .iter()
            .map(|&(round, mean)| (round as f64, mean.mean));
        let line = LinePlot::new()
            .with_data(points.collect::<Vec<_>>())
            .with_color(colour(row.policy))
            .with_stroke_width(2.0)
            .with_legend(row.policy.as_str());
        plots.push(
            if row.policy.is_told() {
                line.with_line_style(LineStyle::Custom("10 6".into()))
            } else {
                line
            }
            .into(),
        );
        if row.seeds > 1 {
            let marked: Vec<_> = row.curve.iter().skip(1).rev().step_by(BARS_EVERY).collect();
            let bars = LinePlot::new()
                .with_data(
                    marked
                        .iter()
                        .map(|(round, mean)| (*round as f64, mean.mean))
                        .collect::<Vec<_>>(),
                )
                .with_y_err(
                    marked
                        .iter()
                        .map(|(_, mean)| mean.error)
                        .collect::<Vec<_>>(),
                )
                .with_color(colour(row.policy))
                .with_stroke_width(0.0);
            plots.push(bars.into());
        }
    }
    plots
}

/// Draws the rows' curves with error bars of one standard error.
///
/// # Errors
/// Says why the pixels cannot be made.
pub fn draw(title: &str, subtitle: &str, rows: &[Row]) -> Result<Figure, String> {
    let last = rows
        .iter()
        .filter_map(|row| row.curve.last())
        .map(|&(round, _)| round)
        .max();
    let layout = || {
        Layout::auto_from_plots(&plots(rows))
            .with_title(title)
            .with_subtitle(subtitle)
            .with_x_axis_max(last.unwrap_or(1) as f64 * 1.02)
            .with_x_tick_format(TickFormat::Custom(Arc::new(thousands)))
            .with_y_tick_format(TickFormat::Custom(Arc::new(thousands)))
            .with_x_label("round")
            .with_y_label("cumulative regret")
            .with_width(820.0)
            .with_height(520.0)
            .with_legend_position(LegendPosition::OutsideRightTop)
    };
    let svg = kuva::render_to_svg(plots(rows), layout());
    let png = kuva::render_to_png(plots(rows), layout(), 2.0)?;
    Ok(Figure { svg, png })
}
