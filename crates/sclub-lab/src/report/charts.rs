//! The figures of a report.

use super::model::{HeldOut, HeldOutTable, Line, Panel, Report};
use super::numbers::{rate, whole};
use super::sections::panel_dash;
use super::words::{and, slug};
use crate::figure::chart::{Axis, Chart, Dash, Series, Ticks};
use crate::policies::Name;
use crate::summary::Mean;

/// A figure of a report.
#[derive(Debug, Clone, PartialEq)]
pub struct Drawn {
    /// Such as `figure-1a`.
    pub name: String,
    /// The description for screen readers.
    pub description: String,
    /// The figure.
    pub chart: Chart,
}

/// About how many error bars a curve has.
const BARS: usize = 6;

/// Every figure, in the order of the page.
pub fn all(report: &Report) -> Vec<Drawn> {
    let mut all: Vec<Drawn> = report
        .panels
        .iter()
        .filter_map(|one| panel(report, one))
        .collect();
    if let Some(theorem) = &report.theorem
        && !theorem.lines.is_empty()
    {
        all.push(Drawn {
            name: "theorem-1".into(),
            description: describe(
                "Theorem 1: regret against rounds, both logarithmic",
                &theorem.lines,
            ),
            chart: lines(
                "Theorem 1: bound and regret",
                &theorem.lines,
                ("round", Ticks::Decades),
                ("cumulative regret", Ticks::Decades),
            ),
        });
    }
    if let Some(many) = &report.many_users
        && !many.lines.is_empty()
    {
        all.push(Drawn {
            name: "many-users".into(),
            description: describe(
                "Regret against recommendations, by users a round",
                &many.lines,
            ),
            chart: lines(
                "Many users a round",
                &many.lines,
                ("recommendations", Ticks::Compact),
                ("cumulative regret", Ticks::Compact),
            ),
        });
    }
    for set in &report.held_out {
        for (place, table) in set.tables.iter().enumerate() {
            if table.ages.is_empty() || table.rows.is_empty() {
                continue;
            }
            all.push(Drawn {
                name: held_out_name(&set.name, place),
                description: format!("{}, {}: {}", set.name, table.title, describe_ages(table)),
                chart: by_age(set, table),
            });
        }
    }
    all
}

/// The name of a panel's figure.
pub fn panel_name(id: &str) -> String {
    format!("figure-{}", slug(id))
}

/// The name of the figure of a data set's table, counted from 0.
pub fn held_out_name(data_set: &str, place: usize) -> String {
    format!("held-out-{}-{}", slug(data_set), place + 1)
}

/// The width on the right of a file that the longest label needs.
fn legend_room(series: &[Series]) -> f64 {
    let longest = series
        .iter()
        .map(|series| series.label.chars().count())
        .max();
    48.0 + 7.0 * longest.unwrap_or(0) as f64
}

fn bars_every(points: usize) -> usize {
    points.div_ceil(BARS).max(1)
}

/// The name of a data set, marked if it is not the paper's.
fn marked(name: &str, note: Option<&str>) -> String {
    match note {
        Some(_) => format!("{name}, not the paper’s data"),
        None => name.into(),
    }
}

/// The data set of a panel.
fn data_set(panel: &Panel) -> String {
    let name = panel.title.split(',').next().unwrap_or_default();
    marked(name, panel.note.as_deref())
}

fn panel(report: &Report, panel: &Panel) -> Option<Drawn> {
    if panel.cells.is_empty() {
        return None;
    }
    let series: Vec<Series> = panel
        .cells
        .iter()
        .map(|cell| Series {
            label: cell.policy.title.into(),
            policy: Some(cell.policy),
            strength: 1.0,
            dash: panel_dash(report, cell.policy),
            points: cell
                .curve
                .iter()
                .map(|&(round, mean)| (round as f64, mean))
                .collect(),
            bars_every: (cell.seeds > 1).then(|| bars_every(cell.curve.len())),
        })
        .collect();
    let last = series
        .iter()
        .filter_map(|series| series.points.last())
        .map(|point| point.0);
    let highest = panel
        .cells
        .iter()
        .flat_map(|cell| &cell.curve)
        .map(|(_, mean)| mean.mean + mean.error)
        .fold(1.0, f64::max);
    let top = 1.03 * highest;
    let ends: Vec<String> = panel
        .cells
        .iter()
        .map(|cell| format!("{} {}", cell.policy.title, whole(cell.regret.mean)))
        .collect();
    Some(Drawn {
        name: panel_name(&panel.id),
        description: format!(
            "Panel ({}), {}: cumulative regret against rounds. At the end: {}.",
            panel.id,
            panel.title,
            and(&ends)
        ),
        chart: Chart {
            title: format!("({}) {}", panel.id, data_set(panel)),
            subtitle: None,
            x: Axis {
                label: "round".into(),
                ticks: Ticks::Compact,
                min: Some(0.0),
                max: Some(1.02 * last.fold(1.0, f64::max)),
            },
            y: Axis {
                label: "cumulative regret".into(),
                ticks: Ticks::Compact,
                min: Some(0.0),
                max: Some(top),
            },
            legend_room: legend_room(&series),
            series,
            title_size: 15,
            width: 360.0,
            height: 290.0,
        },
    })
}

fn describe(what: &str, lines: &[Line]) -> String {
    let labels: Vec<String> = lines.iter().map(|line| line.label.clone()).collect();
    format!("{what}. Lines: {}.", and(&labels))
}

fn lines(title: &str, lines: &[Line], x: (&str, Ticks), y: (&str, Ticks)) -> Chart {
    let series: Vec<Series> = lines
        .iter()
        .map(|line| Series {
            label: line.label.clone(),
            policy: line.policy,
            strength: line.strength,
            dash: line_dash(line),
            points: line.points.clone(),
            bars_every: line
                .points
                .iter()
                .any(|(_, y)| y.error > 0.0)
                .then(|| bars_every(line.points.len())),
        })
        .collect();
    let axis = |(label, ticks): (&str, Ticks), max: Option<f64>| Axis {
        label: label.into(),
        min: (ticks != Ticks::Decades).then_some(0.0),
        max: max.filter(|_| ticks != Ticks::Decades),
        ticks,
    };
    let last = series
        .iter()
        .flat_map(|series| series.points.iter().map(|point| point.0));
    let last = last.fold(0.0, f64::max);
    Chart {
        title: title.into(),
        subtitle: None,
        x: axis(x, Some(1.02 * last).filter(|last| *last > 0.0)),
        y: axis(y, None),
        legend_room: legend_room(&series),
        series,
        title_size: 15,
        width: 430.0,
        height: 330.0,
    }
}

/// The stroke of a line of a figure.
pub fn line_dash(line: &Line) -> Dash {
    if line.dashed {
        Dash::Dashed
    } else {
        Dash::Solid
    }
}

/// The strokes of the rows of a table: they tell rows of the same policy apart.
pub fn row_dashes(table: &HeldOutTable) -> Vec<Dash> {
    let mut seen: Vec<Name> = Vec::new();
    let dashes = table.rows.iter().map(|row| {
        let before = seen.iter().filter(|policy| **policy == row.policy).count();
        seen.push(row.policy);
        match before {
            0 => Dash::Solid,
            1 => Dash::Dashed,
            _ => Dash::Dotted,
        }
    });
    dashes.collect()
}

/// Distance of the rows' points from one another, so that their bars do not lie on one another.
const APART: f64 = 0.05;

fn by_age(set: &HeldOut, table: &HeldOutTable) -> Chart {
    let middle = (table.rows.len() as f64 - 1.0) / 2.0;
    let series: Vec<Series> = table
        .rows
        .iter()
        .zip(row_dashes(table))
        .enumerate()
        .map(|(place, (row, dash))| {
            let aside = APART * (place as f64 - middle);
            let points: Vec<(f64, Mean)> = (1..)
                .zip(&row.by_age)
                .filter_map(|(age, mean)| Some((f64::from(age) + aside, (*mean)?)))
                .collect();
            Series {
                label: row.label.clone(),
                policy: Some(row.policy),
                strength: 1.0,
                dash,
                bars_every: points.iter().any(|(_, y)| y.error > 0.0).then_some(1),
                points,
            }
        })
        .collect();
    Chart {
        title: marked(&set.name, set.note.as_deref()),
        subtitle: Some(table.title.clone()),
        x: Axis {
            label: "round of the user".into(),
            ticks: Ticks::Named(table.ages.clone()),
            min: None,
            max: None,
        },
        y: Axis {
            label: "rate".into(),
            ticks: Ticks::Percentage,
            min: None,
            max: None,
        },
        legend_room: legend_room(&series),
        series,
        title_size: 15,
        width: 430.0,
        height: 320.0,
    }
}

fn describe_ages(table: &HeldOutTable) -> String {
    let rates: Vec<String> = table
        .rows
        .iter()
        .map(|row| format!("{} {}", row.label, rate(row.rate).0))
        .collect();
    format!("rate by age of the user. Over all ages: {}.", and(&rates))
}
