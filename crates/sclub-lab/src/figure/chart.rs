//! Curves with error bars, drawn for a file or for a page.
//!
//! A file stands alone: white ground, literal colours, its own legend. A page has one legend for
//! several charts and may be light or dark, so there the colours are CSS variables, named like the
//! policies, and the ground is left out.

use std::sync::Arc;

use kuva::plot::legend::LegendPosition;
use kuva::plot::{LinePlot, LineStyle};
use kuva::render::layout::{Layout, TickFormat};
use kuva::render::plots::Plot;
use minijinja::HtmlEscape;

use super::Figure;
use super::inks::{file_colour, page_colour, page_theme};
use super::ticks::{compact, percentage, power_of_ten};

use crate::policies::Name;
use crate::summary::{Mean, thousands};

/// The stroke of a curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dash {
    /// Without gaps.
    Solid,
    /// In strokes.
    Dashed,
    /// In dots.
    Dotted,
}

impl Dash {
    /// Policies that need the ground truth are dashed.
    pub fn of(policy: Name) -> Self {
        if policy.needs_truth() {
            Dash::Dashed
        } else {
            Dash::Solid
        }
    }

    /// The name that a style sheet has for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Dash::Solid => "solid",
            Dash::Dashed => "dashed",
            Dash::Dotted => "dotted",
        }
    }

    fn line_style(self) -> LineStyle {
        match self {
            Dash::Solid => LineStyle::Solid,
            Dash::Dashed => LineStyle::Custom("10 6".into()),
            Dash::Dotted => LineStyle::Custom("2 4".into()),
        }
    }
}

/// A curve.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// The label in the legend.
    pub label: String,
    /// The policy that gives the colour; grey without.
    pub policy: Option<Name>,
    /// Strength of the colour, from 0 to 1.
    pub strength: f64,
    /// The stroke.
    pub dash: Dash,
    /// (x, y)
    pub points: Vec<(f64, Mean)>,
    /// The number of points per error bar, counted from the last point; `None` for no error bars.
    pub bars_every: Option<usize>,
}

/// The ticks of an axis.
#[derive(Debug, Clone, PartialEq)]
pub enum Ticks {
    /// Whole numbers.
    Whole,
    /// Numbers in few characters.
    Compact,
    /// Shares as percentages.
    Percentage,
    /// Powers of ten: the axis is logarithmic.
    Decades,
    /// Names, at 1, 2 and so on.
    Named(Vec<String>),
}

/// One axis of a chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// The title of the axis.
    pub label: String,
    /// The ticks.
    pub ticks: Ticks,
    /// The start of the axis, if the data do not give it.
    pub min: Option<f64>,
    /// The end of the axis, if the data do not give it.
    pub max: Option<f64>,
}

impl Axis {
    fn is_log(&self) -> bool {
        self.ticks == Ticks::Decades
    }

    /// `decades`: how many powers of ten the axis spans, if it is logarithmic.
    fn format(&self, decades: f64) -> TickFormat {
        TickFormat::Custom(match self.ticks {
            Ticks::Whole | Ticks::Named(_) => Arc::new(thousands),
            Ticks::Compact => Arc::new(compact),
            Ticks::Percentage => Arc::new(percentage),
            // A short logarithmic axis also has ticks at 2 and 5 times a power.
            Ticks::Decades if decades <= 3.0 => Arc::new(compact),
            Ticks::Decades => Arc::new(power_of_ten),
        })
    }
}

/// Curves between two axes.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// Above it.
    pub title: String,
    /// Below the title.
    pub subtitle: Option<String>,
    /// From left to right.
    pub x: Axis,
    /// From bottom to top.
    pub y: Axis,
    /// The curves.
    pub series: Vec<Series>,
    /// Size of the title's letters.
    pub title_size: u32,
    /// Width in pixels.
    pub width: f64,
    /// Height in pixels.
    pub height: f64,
    /// Extra width of a file, for its legend.
    pub legend_room: f64,
}

/// The background that a chart is drawn for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ground {
    File,
    Page,
}

impl Chart {
    /// Draws it for files.
    ///
    /// # Errors
    /// The reason why the PNG cannot be made.
    pub fn draw(&self) -> Result<Figure, String> {
        let (plots, layout) = (self.plots(Ground::File), || self.layout(Ground::File));
        let svg = with_own_ids(&kuva::render_to_svg(plots, layout()), "chart");
        let png = kuva::render_to_png(self.plots(Ground::File), layout(), 2.0)?;
        Ok(Figure { svg, png })
    }

    /// Draws it for a page, as an `svg` element that fills the width it is given.
    ///
    /// `name` must be another for each chart of the page; `description` is for screen readers.
    pub fn page_svg(&self, name: &str, description: &str) -> String {
        let svg = kuva::render_to_svg(self.plots(Ground::Page), self.layout(Ground::Page));
        let svg = with_own_ids(&svg, name);
        let inside = svg.split_once('>').map_or("", |(_, inside)| inside);
        let ground = r#"<rect width="100%" height="100%" fill="none" />"#;
        let inside = inside.replacen(ground, "", 1);
        let (width, height) = (self.width, self.height);
        format!(
            "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-labelledby=\"{name}-title\" \
             fill=\"currentColor\"><title id=\"{name}-title\">{}</title>{inside}",
            HtmlEscape(description),
        )
    }

    /// The points that can be shown: on a logarithmic axis, those above 0.
    fn shown<'a>(&self, series: &'a Series) -> impl Iterator<Item = (f64, Mean)> + 'a {
        let (x_is_log, y_is_log) = (self.x.is_log(), self.y.is_log());
        series.points.iter().copied().filter(move |(x, y)| {
            x.is_finite()
                && y.mean.is_finite()
                && (!x_is_log || *x > 0.0)
                && (!y_is_log || y.mean > 0.0)
        })
    }

    fn plots(&self, ground: Ground) -> Vec<Plot> {
        let mut plots: Vec<Plot> = Vec::new();
        for series in &self.series {
            let points: Vec<(f64, Mean)> = self.shown(series).collect();
            let ink = match ground {
                Ground::File => file_colour(series.policy, series.strength),
                Ground::Page => page_colour(series.policy, series.strength),
            };
            let mut line = LinePlot::new()
                .with_data(points.iter().map(|(x, y)| (*x, y.mean)).collect::<Vec<_>>())
                .with_color(ink.clone())
                .with_stroke_width(2.0)
                .with_line_style(series.dash.line_style());
            if ground == Ground::File {
                line = line.with_legend(series.label.as_str());
            }
            plots.push(line.into());
            let Some(every) = series.bars_every else {
                continue;
            };
            // A curve that begins at 0 has no error there.
            let skip = usize::from(points.first().is_some_and(|(_, y)| y.error == 0.0));
            let marked: Vec<_> = points
                .iter()
                .skip(skip)
                .rev()
                .step_by(every.max(1))
                .collect();
            // On a logarithmic axis a bar must not reach 0.
            let below = |y: &Mean| {
                if self.y.is_log() {
                    y.error.min(0.9 * y.mean)
                } else {
                    y.error
                }
            };
            // One plot a bar: a curve through them would leave a hair in pixels even at width 0.
            for (x, y) in marked {
                let bar = LinePlot::new()
                    .with_data(vec![(*x, y.mean)])
                    .with_y_err_asymmetric(vec![(below(y), y.error)])
                    .with_color(ink.clone())
                    .with_stroke_width(0.0);
                plots.push(bar.into());
            }
        }
        plots
    }

    /// From the lowest to the highest value shown on an axis.
    fn extent(&self, value: impl Fn(&(f64, Mean)) -> f64) -> Option<(f64, f64)> {
        let values = self.series.iter().flat_map(|series| self.shown(series));
        values
            .map(|point| value(&point))
            .fold(None, |extent, value| {
                let (low, high) = extent.unwrap_or((value, value));
                Some((low.min(value), high.max(value)))
            })
    }

    fn layout(&self, ground: Ground) -> Layout {
        let mut layout = Layout::auto_from_plots(&self.plots(ground))
            .with_title(self.title.as_str())
            .with_title_size(self.title_size)
            .with_x_label(self.x.label.as_str())
            .with_y_label(self.y.label.as_str())
            .with_height(self.height);
        if let Some(subtitle) = &self.subtitle {
            layout = layout.with_subtitle(subtitle.as_str());
        }
        layout = match ground {
            Ground::File => layout
                .with_width(self.width + self.legend_room)
                .with_legend_position(LegendPosition::OutsideRightTop),
            Ground::Page => layout.with_width(self.width).with_theme(page_theme()),
        };
        let (mut x_range, mut y_range) = ((self.x.min, self.x.max), (self.y.min, self.y.max));
        let (mut x_decades, mut y_decades) = (0.0, 0.0);
        if self.x.is_log() {
            let (low, high) = self.extent(|(x, _)| *x).unwrap_or((1.0, 10.0));
            x_decades = high.log10().ceil() - low.log10().floor();
            x_range = (Some(low), Some(high.max(low * 10.0) * 1.1));
            layout = layout.with_log_x();
        }
        if self.y.is_log() {
            let (low, high) = self.extent(|(_, y)| y.mean).unwrap_or((1.0, 10.0));
            let (low, high) = (low.log10().floor(), high.log10().ceil());
            let high = high.max(low + 1.0);
            y_decades = high - low;
            y_range = (Some(10f64.powf(low)), Some(10f64.powf(high)));
            layout = layout.with_log_y();
        }
        if let Ticks::Named(names) = &self.x.ticks {
            x_range = (Some(0.5), Some(names.len() as f64 + 0.5));
            layout = layout.with_x_categories(names.clone());
        }
        layout = layout
            .with_x_tick_format(self.x.format(x_decades))
            .with_y_tick_format(self.y.format(y_decades));
        if let Some(min) = x_range.0 {
            layout = layout.with_x_axis_min(min);
        }
        if let Some(max) = x_range.1 {
            layout = layout.with_x_axis_max(max);
        }
        if let Some(min) = y_range.0 {
            layout = layout.with_y_axis_min(min);
        }
        if let Some(max) = y_range.1 {
            layout = layout.with_y_axis_max(max);
        }
        layout
    }
}

/// kuva numbers its clip paths through the whole process: the same figure would be other bytes when
/// drawn again. Here they are named after the figure.
fn with_own_ids(svg: &str, name: &str) -> String {
    let mark = "kuva-clip-";
    let mut pieces = svg.split(mark);
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        text.push_str(name);
        text.push_str("-clip");
        text.push_str(piece.trim_start_matches(|character: char| character.is_ascii_digit()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(ticks: Ticks) -> Chart {
        let axis = || Axis {
            label: "how much".into(),
            ticks: ticks.clone(),
            min: None,
            max: None,
        };
        let points = (0..40).map(|step| {
            let mean = 10f64.powf(0.2 * f64::from(step));
            (
                mean,
                Mean {
                    mean,
                    error: 2.0 * mean,
                },
            )
        });
        Chart {
            title: "(1a)".into(),
            subtitle: None,
            x: axis(),
            y: axis(),
            series: vec![Series {
                label: "club".into(),
                policy: Some(Name::CLUB),
                strength: 1.0,
                dash: Dash::Solid,
                points: points.collect(),
                bars_every: Some(8),
            }],
            title_size: 15,
            width: 400.0,
            height: 300.0,
            legend_room: 100.0,
        }
    }

    #[test]
    fn the_same_chart_is_the_same_bytes() {
        let chart = chart(Ticks::Compact);
        assert_eq!(chart.draw(), chart.draw());
    }

    #[test]
    fn a_page_has_no_literal_colours_and_a_file_has_no_variables() {
        let chart = chart(Ticks::Compact);
        let page = chart.page_svg("one", "a < b");
        assert!(
            page.contains("var(--policy-club)") && page.contains("currentColor"),
            "{page}"
        );
        assert!(
            !page.contains("=\"#") && !page.contains("width=\"400\""),
            "{page}"
        );
        assert!(page.contains("<title id=\"one-title\">a &lt; b</title>"));
        assert!(page.contains("url(#one-clip)") && page.contains("id=\"one-clip\""));
        let file = chart.draw().unwrap().svg;
        assert!(file.contains("#222222") && !file.contains("var("), "{file}");
    }

    #[test]
    fn logarithmic_axes_are_labelled_with_powers_of_ten_and_no_bar_falls_out() {
        let page = chart(Ticks::Decades).page_svg("one", "");
        for label in ["10⁰", "10⁴", "10⁷"] {
            assert!(
                page.contains(&format!(">{label}</text>")),
                "{label}: {page}"
            );
        }
        assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
    }
}
