//! The table as plain text: ranks, then world by world, then policies in their own settings, then costs.

use super::page::{constants_text, list, verdict};
use super::table::{Cell, Field, Measure, WorldRow};
use crate::summary::{percent, thousands};

/// All results. For each world its policies, the best first, then the policies that play for comparison. A star marks the
/// best and those that do not differ from it significantly.
pub fn text(field: &Field, is_complete: bool) -> String {
    let mut parts = Vec::new();
    if !is_complete {
        parts.push(
            "this run was stopped before its end; the same command again goes on\n".to_owned(),
        );
    }
    parts.push(ranks(field));
    parts.extend(field.worlds.iter().map(world));
    if !field.claims.is_empty() {
        parts.push(own(field));
    }
    parts.push(costs(field));
    parts.join("\n")
}

fn ranks(field: &Field) -> String {
    let head = "policy;mean rank;worlds;among the best";
    let mut lines: Vec<Vec<String>> = vec![head.split(';').map(str::to_owned).collect()];
    for standing in &field.standings {
        lines.push(vec![
            standing.policy.to_string(),
            format!("{:.2}", standing.rank),
            standing.worlds.to_string(),
            standing.among_best.to_string(),
        ]);
    }
    let mut text = format!("ranks\n{}", aligned(&lines, 1));
    if let Some(difference) = field.critical_difference {
        text += &format!(
            "mean ranks that are {difference:.2} or more apart differ significantly (Nemenyi, level 0.05)\n"
        );
    }
    for (other, of) in [("sclub", false), ("sclub-soft", true)] {
        text += &format!("\nsignificantly better than {other}; worse (paired, Holm)\n");
        for standing in &field.standings {
            let compared = match of {
                false => &standing.against_sclub,
                true => &standing.against_sclub_soft,
            };
            if let Some((better, worse)) = compared {
                let (better, worse) = (list(Some(better)), list(Some(worse)));
                text += &format!("{}: {better}; {worse}\n", standing.policy);
            }
        }
    }
    text
}

fn world(row: &WorldRow) -> String {
    let mut cells: Vec<&Cell> = row.cells.iter().collect();
    let place = |cell: &Cell| cell.rank.unwrap_or(f64::INFINITY);
    cells.sort_by(|a, b| place(a).total_cmp(&place(b)));
    let best = cells.first().map_or(1.0, |cell| cell.mean.mean.abs());
    let head = ["", "policy", row.measure.name(), "±", "behind", "p", "µs"].map(str::to_owned);
    let lines = cells.iter().map(|cell| {
        let behind = cell.behind.map(|mean| percent(mean.mean / best));
        vec![
            if cell.is_among_best() { "*" } else { "" }.to_owned(),
            cell.policy.to_string(),
            row.measure.text(cell.mean.mean),
            match row.seeds.len() {
                1 => String::new(),
                _ => row.measure.text(cell.mean.error),
            },
            behind.unwrap_or_default(),
            cell.p.map_or_else(String::new, |p| format!("{p:.1e}")),
            format!("{:.1}", cell.microseconds),
        ]
    });
    let lines: Vec<Vec<String>> = std::iter::once(head.to_vec()).chain(lines).collect();
    format!(
        "{}: {}\n{}\n{}",
        row.world,
        row.title,
        row.command,
        aligned(&lines, 2)
    )
}

fn own(field: &Field) -> String {
    let mut text =
        "policies in their own settings, against those that papers compare with\n".to_owned();
    let mut setting = "";
    for claim in &field.claims {
        if claim.world != setting {
            setting = claim.world;
            text += &format!("{setting}: {}\n", claim.command);
        }
        let against = claim.against.iter();
        let against: Vec<String> = against
            .map(|against| format!("{} to {}", percent(against.off), against.other))
            .collect();
        text += &format!(
            "  {}, constants {}: regret {}; {}. It is {}\n",
            claim.policy,
            constants_text(claim.constants),
            Measure::Regret.text(claim.regret.mean),
            against.join(", "),
            verdict(claim),
        );
    }
    text
}

/// Costs in the first world, which has the paper's size.
fn costs(field: &Field) -> String {
    let Some(row) = field.worlds.first() else {
        return String::new();
    };
    let head = "policy;µs a round;MB;messages;numbers in them";
    let mut lines: Vec<Vec<String>> = vec![head.split(';').map(str::to_owned).collect()];
    for cell in &row.cells {
        let sent = |part: fn((f64, f64)) -> f64| {
            cell.messages
                .map_or_else(String::new, |sent| thousands(part(sent)))
        };
        let bytes = cell.bytes;
        lines.push(vec![
            cell.policy.to_string(),
            format!("{:.1}", cell.microseconds),
            bytes.map_or_else(String::new, |bytes| format!("{:.1}", bytes / 1e6)),
            sent(|sent| sent.0),
            sent(|sent| sent.1),
        ]);
    }
    format!("costs in world {}\n{}", row.world, aligned(&lines, 1))
}

/// Lines of cells under each other. The first columns are aligned to the left, the others to the right.
fn aligned(lines: &[Vec<String>], left: usize) -> String {
    let columns = lines.first().map_or(0, Vec::len);
    let width = |column: usize| {
        let widths = lines.iter().map(|line| line[column].chars().count());
        widths.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let mut written = String::new();
        for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
            let pad = " ".repeat(width - cell.chars().count());
            written += &match column < left {
                true => format!("{cell}{pad}  "),
                false => format!("{pad}{cell}  "),
            };
        }
        text.push_str(written.trim_end());
        text.push('\n');
    }
    text
}
