//! The report: one page, its figures, and `results.json`.

use thiserror::Error;

use crate::figure::Figure;

mod charts;
pub mod machine;
pub mod model;
mod numbers;
mod page;
mod sections;
mod table;
mod words;

#[cfg(test)]
mod sample;
#[cfg(test)]
mod tests;

use model::Report;

/// T of the paper's runs.
pub const PAPER_ROUNDS: u64 = (1 << 20) - 2;

/// A report, ready to be written down.
#[derive(Debug, Clone, PartialEq)]
pub struct Rendered {
    /// `index.html`: needs no other file.
    pub html: String,
    /// `results.json`: the [`Report`].
    pub json: String,
    /// `figures/<name>.svg` and `figures/<name>.png`.
    pub figures: Vec<NamedFigure>,
}

impl Rendered {
    /// All files of a report, by their paths in its folder.
    pub fn files(self) -> Vec<(String, Vec<u8>)> {
        let mut files = Vec::new();
        for NamedFigure { name, svg, png } in self.figures {
            files.push((format!("figures/{name}.svg"), svg.into_bytes()));
            files.push((format!("figures/{name}.png"), png));
        }
        files.push(("results.json".into(), self.json.into_bytes()));
        files.push(("index.html".into(), self.html.into_bytes()));
        files
    }
}

/// A figure that stands alone.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedFigure {
    /// Such as `figure-1a`.
    pub name: String,
    /// Scalable.
    pub svg: String,
    /// Pixels.
    pub png: Vec<u8>,
}

/// The reason why a report cannot be rendered.
#[derive(Debug, Error)]
pub enum RenderError {
    /// A figure cannot be turned into pixels.
    #[error("figure {name} cannot be drawn: {reason}")]
    Figure {
        /// The chart.
        name: String,
        /// The error of the renderer.
        reason: String,
    },
    /// The template and the values do not fit.
    #[error("the page cannot be filled in")]
    Page {
        /// The error of the template engine.
        #[from]
        source: minijinja::Error,
    },
    /// The values cannot be written as JSON.
    #[error("the results cannot be written as JSON")]
    Json {
        /// The error of the writer.
        #[from]
        source: serde_json::Error,
    },
}

/// Turns a report into a page, its figures and `results.json`.
///
/// # Errors
/// [`RenderError`] names the part that failed.
pub fn render(report: &Report) -> Result<Rendered, RenderError> {
    let mut json = serde_json::to_string_pretty(report)?;
    json.push('\n');
    let drawn = charts::all(report);
    let figures = drawn.iter().map(|drawn| {
        let name = drawn.name.clone();
        match drawn.chart.draw() {
            Ok(Figure { svg, png }) => Ok(NamedFigure { name, svg, png }),
            Err(reason) => Err(RenderError::Figure { name, reason }),
        }
    });
    Ok(Rendered {
        html: page::html(report, &drawn)?,
        json,
        figures: figures.collect::<Result<_, _>>()?,
    })
}
