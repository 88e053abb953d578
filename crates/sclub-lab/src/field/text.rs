//! The table as plain text, world by world.

use super::table::{Cell, Field, WorldRow};
use crate::summary::percent;

/// All results: for each world its policies, the best first, then the policies that play for comparison. A star marks the
/// best and those that do not differ from it significantly.
pub fn text(field: &Field) -> String {
    let worlds: Vec<String> = field.worlds.iter().map(world).collect();
    worlds.join("\n")
}

fn world(row: &WorldRow) -> String {
    let mut cells: Vec<&Cell> = row.cells.iter().collect();
    let place = |cell: &Cell| cell.rank.unwrap_or(f64::INFINITY);
    cells.sort_by(|a, b| place(a).total_cmp(&place(b)));
    let best = cells.first().map_or(1.0, |cell| cell.mean.mean.abs());
    let head = ["", "policy", row.measure.name(), "±", "behind", "p", "µs"].map(str::to_owned);
    let lines = cells.iter().map(|cell| {
        let behind = cell.behind.map(|mean| percent(mean.mean / best));
        [
            if cell.is_among_best() { "*" } else { "" }.to_owned(),
            cell.policy.to_string(),
            row.measure.text(cell.mean.mean),
            row.measure.text(cell.mean.error),
            behind.unwrap_or_default(),
            cell.p.map_or_else(String::new, |p| format!("{p:.1e}")),
            format!("{:.1}", cell.microseconds),
        ]
    });
    let lines: Vec<[String; 7]> = std::iter::once(head).chain(lines).collect();
    let widths: [usize; 7] = std::array::from_fn(|column| {
        let widths = lines.iter().map(|line| line[column].chars().count());
        widths.max().unwrap_or(0)
    });
    let mut text = format!("{}: {}\n{}\n", row.world, row.title, row.command);
    for line in &lines {
        let mut written = String::new();
        for (column, (cell, width)) in line.iter().zip(widths).enumerate() {
            let pad = " ".repeat(width - cell.chars().count());
            written += &match column < 2 {
                true => format!("{cell}{pad}  "),
                false => format!("{pad}{cell}  "),
            };
        }
        text.push_str(written.trim_end());
        text.push('\n');
    }
    text
}
