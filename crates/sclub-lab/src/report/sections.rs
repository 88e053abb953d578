//! The tables of the page.

use std::mem;

use super::charts::{line_dash, row_dashes};
use super::model::{Audit, Cell, HeldOutTable, Line, ManyUsers, Panel, Report, Theorem, Variant};
use super::numbers::{NONE, change, count, difference, lift, mean, rate, seconds, speed_up, whole};
use super::table::{Body, Key, Place, Row, Table};
use super::words::prose;
use super::{PAPER_ROUNDS, words};
use crate::figure::chart::Dash;
use crate::figure::inks::page_colour;
use crate::paper::published::ADDITIONAL;
use crate::policies::Name;
use crate::summary::Mean;

/// The two rows of Figure 1: the first character of their panels' ids, and the title.
pub const GROUPS: [(char, &str); 2] = [('1', "Synthetic"), ('2', "MovieLens and Yelp")];

/// True if regrets and times can be compared with the paper's.
pub fn is_comparable(report: &Report) -> bool {
    !report.origin.quick && report.origin.rounds == PAPER_ROUNDS
}

/// The panels of one row of Figure 1.
pub fn panels_of(report: &Report, group: char) -> Vec<&Panel> {
    let of = |panel: &&Panel| panel.id.starts_with(group);
    report.panels.iter().filter(of).collect()
}

fn run(panels: Vec<&Panel>) -> Vec<&Panel> {
    let has_cells = |panel: &&Panel| !panel.cells.is_empty();
    panels.into_iter().filter(has_cells).collect()
}

/// The policies of some panels, in the order in which they come.
pub fn policies<'a>(panels: impl IntoIterator<Item = &'a Panel>) -> Vec<Name> {
    let mut names = Vec::new();
    for cell in panels.into_iter().flat_map(|panel| &panel.cells) {
        if !names.contains(&cell.policy) {
            names.push(cell.policy);
        }
    }
    names
}

/// Every policy of a report.
pub fn all_policies(report: &Report) -> Vec<Name> {
    let in_panels = report.panels.iter().flat_map(|panel| &panel.cells);
    let theorem = report.theorem.iter().flat_map(|theorem| &theorem.lines);
    let many_users = report.many_users.iter();
    let in_rows = many_users.clone().flat_map(|many| &many.rows);
    let lines = theorem.chain(many_users.flat_map(|many| &many.lines));
    let tables = report.held_out.iter().flat_map(|set| &set.tables);
    let all = in_panels
        .map(|cell| cell.policy)
        .chain(in_rows.map(|row| row.policy))
        .chain(lines.filter_map(|line| line.policy))
        .chain(tables.flat_map(|table| &table.rows).map(|row| row.policy));
    let mut names = Vec::new();
    for name in all {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The policies of some panels that the paper has not.
pub fn beside<'a>(panels: impl IntoIterator<Item = &'a Panel>) -> Vec<Name> {
    let mut names = Vec::new();
    for cell in panels.into_iter().flat_map(|panel| &panel.cells) {
        if !cell.is_published() && !names.contains(&cell.policy) {
            names.push(cell.policy);
        }
    }
    names
}

/// The stroke of a policy in the panels. Policies that were added to the paper's and SCLUB-soft are dashed or dotted:
/// there are more policies than colours that can be told apart.
pub fn panel_dash(report: &Report, policy: Name) -> Dash {
    let added = beside(&report.panels).into_iter();
    let mut added = added.filter(|name| !ADDITIONAL.contains(name));
    match added.position(|name| name == policy) {
        None => Dash::Solid,
        Some(place) if place % 2 == 0 => Dash::Dashed,
        Some(_) => Dash::Dotted,
    }
}

/// The key of a policy in the panels and their tables.
pub fn panel_key(report: &Report, policy: Name) -> Key {
    Key {
        dash: panel_dash(report, policy).as_str(),
        ..Key::of(policy)
    }
}

/// The cell of a policy in a panel.
pub fn cell(panel: &Panel, policy: Name) -> Option<&Cell> {
    panel.cells.iter().find(|cell| cell.policy == policy)
}

/// A table with `heads` for each panel and a row for each policy; one for each row of Figure 1 that
/// has results.
fn by_panel(
    report: &Report,
    caption: &str,
    heads: &[&str],
    places: impl Fn(&Cell) -> Vec<Place>,
) -> Vec<Table> {
    let mut tables = Vec::new();
    for (group, name) in GROUPS {
        let panels = run(panels_of(report, group));
        if panels.is_empty() {
            continue;
        }
        let mut table = Table::new(&format!("{caption}: {name}"), "algorithm");
        for panel in &panels {
            table = table.group(&format!("({})", panel.id), heads);
        }
        let row = |policy: Name| {
            let places = panels.iter().flat_map(|panel| match cell(panel, policy) {
                Some(cell) => places(cell),
                None => vec![Place::from(NONE.to_owned()); heads.len()],
            });
            Row {
                key: Some(panel_key(report, policy)),
                head: policy.title.into(),
                hint: None,
                places: places.collect(),
            }
        };
        let names = policies(panels.iter().copied());
        tables.push(table.rows(names.into_iter().map(row).collect()));
    }
    tables
}

/// Table 1. Where nothing can be set against the paper's, the differences are left out.
pub fn regrets(report: &Report) -> Vec<Table> {
    let comparable = is_comparable(report);
    let all = ["published", "measured", "diff."];
    let heads = if comparable { &all[..] } else { &all[..2] };
    let mut tables = by_panel(report, "Table 1. Regret at the end", heads, |cell| {
        let mut places = vec![
            Place::from(whole(cell.published_regret.unwrap_or(f64::NAN))),
            Place::from(mean(cell.regret, cell.regret.mean)),
        ];
        if comparable {
            places.push(change(cell.off_published()).into());
        }
        places
    });
    if !comparable {
        return tables;
    }
    let groups = GROUPS.map(|(group, _)| run(panels_of(report, group)));
    let groups = groups.iter().filter(|panels| !panels.is_empty());
    for (table, panels) in tables.iter_mut().zip(groups) {
        let margins: Option<Vec<_>> = panels.iter().map(|panel| margin(panel)).collect();
        let Some(margins) = margins else { continue };
        let places = margins.into_iter().flat_map(|(published, measured)| {
            [change(published), change(measured), String::new()].map(Place::from)
        });
        *table = mem::take(table).rows(vec![Row {
            key: None,
            head: "SCLUB vs CLUB".into(),
            hint: None,
            places: places.collect(),
        }]);
    }
    tables
}

/// SCLUB's regret over CLUB's, less 1: published and measured.
fn margin(panel: &Panel) -> Option<(f64, f64)> {
    let (sclub, club) = (cell(panel, Name::SCLUB)?, cell(panel, Name::CLUB)?);
    Some((
        sclub.published_regret? / club.published_regret? - 1.0,
        sclub.regret.mean / club.regret.mean - 1.0,
    ))
}

/// Table 2.
pub fn times(report: &Report) -> Vec<Table> {
    let comparable = is_comparable(report);
    let all = ["published", "measured", "speed-up"];
    let heads = if comparable { &all[..] } else { &all[..2] };
    by_panel(report, "Table 2. Seconds a run", heads, |cell| {
        let published = cell.published_seconds.unwrap_or(f64::NAN);
        let mut places = vec![
            Place::from(whole(published)),
            Place::from((
                seconds(cell.seconds.mean),
                (cell.seconds.error > 0.0).then(|| format!("± {}", seconds(cell.seconds.error))),
            )),
        ];
        if comparable {
            places.push(speed_up(published, cell.seconds.mean).into());
        }
        places
    })
}

/// Clusters at the end, of all panels that have been run.
pub fn clusters(report: &Report) -> Option<Table> {
    let panels = run(report.panels.iter().collect());
    if panels.is_empty() {
        return None;
    }
    let mut table = Table::new("Clusters at the end of a run, on average", "algorithm");
    for panel in &panels {
        table = table.numbers(&format!("({})", panel.id));
    }
    let row = |policy: Name| Row {
        key: Some(panel_key(report, policy)),
        head: policy.title.into(),
        hint: None,
        places: panels
            .iter()
            .map(|panel| match cell(panel, policy) {
                Some(cell) => count(cell.clusters).into(),
                None => Place::from(NONE.to_owned()),
            })
            .collect(),
    };
    let names = policies(panels.iter().copied());
    Some(table.rows(names.into_iter().map(row).collect()))
}

/// The title of a group of variants.
fn group_title(group: &str) -> String {
    match group {
        "base" => "As the paper’s pseudo-code has it".into(),
        "alone" => "One deviation more; difference from the pseudo-code".into(),
        "without" => "All deviations but one; difference from all".into(),
        "all" => "All deviations, as the published code has it".into(),
        other => other.into(),
    }
}

/// The audit.
pub fn audit(audit: &Audit) -> Table {
    let mut table = Table::new("SCLUB’s regret at the end, by what deviates", "variant");
    for (setting, _) in &audit.settings {
        table = table.group(&format!("({setting})"), &["regret", "difference"]);
    }
    let published = audit
        .settings
        .iter()
        .flat_map(|(_, regret)| [Place::from(whole(*regret)), Place::from(String::new())]);
    let mut table = table.rows(vec![Row {
        key: None,
        head: "published".into(),
        hint: None,
        places: published.collect(),
    }]);
    for group in audit.variants.chunk_by(|one, next| one.group == next.group) {
        table = table.body(Body {
            title: Some(group_title(&group[0].group)),
            rows: group.iter().map(variant_row).collect(),
        });
    }
    table
}

fn variant_row(variant: &Variant) -> Row {
    let places = variant.regrets.iter().flat_map(|(regret, less)| {
        let size = regret.mean;
        let less = less.map(|less| Place::from(difference(less, size)));
        [
            Place::from(mean(*regret, size)),
            less.unwrap_or_else(|| Place::from(String::new())),
        ]
    });
    Row {
        key: None,
        head: variant.name.clone(),
        hint: Some(prose(&variant.meaning)),
        places: places.collect(),
    }
}

/// The constants and terms of Theorem 1's bound.
pub fn terms(theorem: &Theorem) -> Option<Table> {
    let rows = theorem.terms.iter().map(|(what, value, how)| Row {
        key: None,
        head: what.clone(),
        hint: None,
        places: vec![Place::words(value), Place::words(how)],
    });
    let table = Table::new("Constants and terms of the bound", "term");
    let table = table.numbers("value").words("how it comes about");
    (!theorem.terms.is_empty()).then(|| table.rows(rows.collect()))
}

/// Many users a round.
pub fn many_users(many: &ManyUsers) -> Option<Table> {
    let mut table = Table::new("Regret by users a round", "algorithm");
    let heads = [
        "users a round",
        "rounds",
        "recommendations",
        "regret",
        "clusters",
        "leading term of the bound",
    ];
    for head in heads {
        table = table.numbers(head);
    }
    // Where there is a line for each row, the row has the line's shade.
    let rows = many.rows.iter().enumerate().map(|(place, row)| Row {
        key: Some(match many.lines.get(place) {
            Some(line) if many.lines.len() == many.rows.len() => line_key(line),
            _ => Key::of(row.policy),
        }),
        head: format!("{}, {}", row.policy.title, row.preset),
        hint: None,
        places: vec![
            count(row.users_a_round).into(),
            whole(row.rounds as f64).into(),
            whole(row.served).into(),
            mean(row.regret, row.regret.mean).into(),
            count(row.clusters).into(),
            whole(row.bound).into(),
        ],
    });
    (!many.rows.is_empty()).then(|| table.rows(rows.collect()))
}

/// The key of a line.
pub fn line_key(line: &Line) -> Key {
    Key {
        label: line.label.clone(),
        colour: page_colour(line.policy, line.strength),
        dash: line_dash(line).as_str(),
    }
}

fn held_out_key(label: &str, policy: Name, dash: Dash) -> Key {
    Key {
        label: label.into(),
        dash: dash.as_str(),
        ..Key::of(policy)
    }
}

/// The keys of a data set's figure.
pub fn held_out_keys(table: &HeldOutTable) -> Vec<Key> {
    let rows = table.rows.iter().zip(row_dashes(table));
    rows.map(|(row, dash)| held_out_key(&row.label, row.policy, dash))
        .collect()
}

/// Rates and lifts on held-out choices.
pub fn rates(table: &HeldOutTable) -> Table {
    let keys = held_out_keys(table);
    let rows = table.rows.iter().zip(keys).map(|(row, key)| {
        let over = |other: Option<Mean>| match other {
            Some(other) => Place::from(lift(other)),
            None => Place::from(NONE.to_owned()),
        };
        Row {
            key: Some(key),
            head: row.label.clone(),
            hint: Some(prose(&row.constants)),
            places: vec![
                Place::from(rate(row.rate)),
                over(row.over_one),
                over(row.over_tuned_ind),
            ],
        }
    });
    Table::new(
        &format!("Held-out choices shown: {}", table.title),
        "policy",
    )
    .numbers("rate")
    .numbers("over LinUCB\u{2011}One")
    .numbers("over tuned LinUCB\u{2011}Ind")
    .rows(rows.collect())
}

/// The rate at each age of the user.
pub fn ages(table: &HeldOutTable) -> Option<Table> {
    if table.ages.is_empty() {
        return None;
    }
    let mut ages = Table::new(
        &format!("Rate by round of the user: {}", table.title),
        "policy",
    );
    for age in &table.ages {
        ages = ages.numbers(age);
    }
    let keys = held_out_keys(table);
    let rows = table.rows.iter().zip(keys).map(|(row, key)| Row {
        key: Some(key),
        head: row.label.clone(),
        hint: None,
        places: row
            .by_age
            .iter()
            .map(|mean| match mean {
                Some(mean) => Place::from(rate(*mean)),
                None => Place::from(NONE.to_owned()),
            })
            .collect(),
    });
    Some(ages.rows(rows.collect()))
}

/// The panels without results, if there are any.
pub fn missing(report: &Report) -> Option<String> {
    let missing = report.panels.iter().filter(|panel| panel.cells.is_empty());
    let ids: Vec<String> = missing.map(|panel| format!("({})", panel.id)).collect();
    match ids.as_slice() {
        [] => None,
        [one] => Some(format!("{one} has no results here and is left out.")),
        more => Some(format!(
            "{} have no results here and are left out.",
            words::and(more)
        )),
    }
}
