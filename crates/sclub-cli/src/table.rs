//! The table at the end of a run.

use std::fmt::Display;

use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{CellAlignment, Table};
use sclub_lab::policies::Name;
use sclub_lab::run::Run;
use sclub_lab::summary::{Mean, Row, thousands};
use sclub_lab::world::AGES;

fn percent_off(ratio: Option<f64>) -> String {
    match ratio {
        Some(ratio) if ratio.is_finite() => {
            let percent = 100.0 * (ratio - 1.0);
            let text = format!("{:.1}%", percent.abs());
            match text.as_str() {
                "0.0%" => text,
                _ if percent < 0.0 => format!("−{text}"),
                _ => format!("+{text}"),
            }
        }
        _ => "–".into(),
    }
}

fn times(ratio: Option<f64>) -> String {
    match ratio {
        Some(ratio) if ratio.is_finite() => format!("×{ratio:.2}"),
        _ => "–".into(),
    }
}

/// The mean with its standard error, which takes more than one seed.
fn regret(row: &Row) -> String {
    let number = |value: f64| {
        if row.regret.mean < 100.0 {
            format!("{value:.2}")
        } else {
            thousands(value)
        }
    };
    let mean = number(row.regret.mean);
    if row.seeds > 1 {
        format!("{mean} ± {}", number(row.regret.error))
    } else {
        mean
    }
}

/// One line for each policy. Empty columns are left out.
pub fn render(rows: &[Row]) -> String {
    type Column = (&'static str, fn(&Row) -> Option<String>);
    let columns: [Column; 8] = [
        ("policy", |row| Some(row.policy.to_string())),
        ("regret", |row| Some(regret(row))),
        ("to LinUCB-Ind", |row| {
            row.to_linucb_ind.map(|ratio| percent_off(Some(ratio)))
        }),
        ("to oracle", |row| {
            row.to_oracle.map(|ratio| times(Some(ratio)))
        }),
        ("to informed", |row| {
            row.to_informed.map(|ratio| times(Some(ratio)))
        }),
        ("clusters", |row| Some(format!("{:.0}", row.clusters))),
        ("Rand", |row| row.adjusted_rand.map(rand)),
        ("seconds", |row| Some(format!("{:.2}", row.policy_seconds))),
    ];
    let shown: Vec<Column> = columns
        .into_iter()
        .filter(|(_, value)| rows.iter().any(|row| value(row).is_some()))
        .collect();
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY);
    table.set_header(shown.iter().map(|(head, _)| *head));
    for row in rows {
        let values = shown
            .iter()
            .map(|(_, value)| value(row).unwrap_or_else(|| "–".into()));
        table.add_row(values);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

/// Three digits; a value that is shown as 0 has no sign.
fn rand(value: f64) -> String {
    let text = format!("{:.3}", value.abs());
    if value < 0.0 && text != "0.000" {
        format!("−{text}")
    } else {
        text
    }
}

/// One line a policy, for worlds in which a reward is a hit or a miss.
pub fn rates(runs: &[Run]) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY);
    let mut header: Vec<String> = ["policy", "rate", "to LinUCB-One", "to LinUCB-Ind"]
        .map(String::from)
        .into();
    header.extend(AGES.iter().map(|&(first, last)| match last {
        u32::MAX => format!("age {first}+"),
        _ => format!("{first}–{last}"),
    }));
    header.push("clusters".into());
    header.push("seconds".into());
    table.set_header(header);
    let of = |policy: Name| runs.iter().filter(move |run| run.policy == policy);
    let rate = |policy: Name| Mean::of(of(policy).map(|run| run.reward / run.served as f64));
    let mut policies: Vec<Name> = Vec::new();
    for run in runs {
        if !policies.contains(&run.policy) {
            policies.push(run.policy);
        }
    }
    let other = |name: Name| policies.contains(&name).then(|| rate(name).mean);
    for &policy in &policies {
        let own = rate(policy);
        let mut row = vec![
            policy.to_string(),
            if of(policy).count() > 1 {
                format!("{:.4} ± {:.4}", own.mean, own.error)
            } else {
                format!("{:.4}", own.mean)
            },
            percent_off(other(Name::LINUCB_ONE).map(|one| own.mean / one)),
            percent_off(other(Name::LINUCB_IND).map(|ind| own.mean / ind)),
        ];
        for age in 0..AGES.len() {
            let sums = of(policy).filter_map(|run| run.by_age.get(age));
            let (rounds, rewards) = sums.fold((0, 0.0), |(n, sum), &(rounds, reward)| {
                (n + rounds, sum + reward)
            });
            row.push(if rounds > 0 {
                format!("{:.3}", rewards / rounds as f64)
            } else {
                "–".into()
            });
        }
        let mean = |value: fn(&Run) -> f64| Mean::of(of(policy).map(value)).mean;
        row.push(thousands(mean(|run| run.clusters as f64)));
        row.push(format!("{:.2}", mean(|run| run.policy_seconds)));
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

/// A round for people: 2k for 2,000.
fn round_text(round: u64) -> String {
    if round > 0 && round.is_multiple_of(1000) {
        format!("{}k", round / 1000)
    } else {
        round.to_string()
    }
}

/// A table whose first column is text and the others numbers.
pub fn numbers(head: Vec<String>, lines: Vec<Vec<String>>) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY);
    table.set_header(head);
    table.add_rows(lines);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Two tables for worlds in which items of a catalogue are clicked: by stage and by the user's age. The first has
/// a column for each of `others`, a heading and a policy to compare with.
pub fn clicks<N: PartialEq + Display>(runs: &[Run<N>], others: &[(&str, N)]) -> String {
    let mut policies: Vec<&N> = Vec::new();
    for run in runs {
        if !policies.contains(&&run.policy) {
            policies.push(&run.policy);
        }
    }
    let of = |policy: &N| {
        let own = runs.iter().filter(|run| run.policy == *policy);
        own.collect::<Vec<&Run<N>>>().into_iter()
    };
    let rate = |policy: &N| Mean::of(of(policy).map(Run::click_probability));
    let other = |name: &N| policies.contains(&name).then(|| rate(name).mean);
    let mean = |policy: &N, value: fn(&Run<N>) -> f64| Mean::of(of(policy).map(value)).mean;

    let stages = runs.first().map(|run| &run.stages[..]).unwrap_or_default();
    let mut header: Vec<String> = ["policy", "clicks"].map(String::from).into();
    header.extend(others.iter().map(|(heading, _)| heading.to_string()));
    header.extend(stages.iter().map(|stage| {
        let (from, to) = (round_text(stage.from), round_text(stage.to));
        match from.strip_suffix('k') {
            Some(from) if to.ends_with('k') => format!("{from}–{to}"),
            _ => format!("{from}–{to}"),
        }
    }));
    header.extend(["items", "clusters", "seconds"].map(String::from));
    let mut by_stage = Table::new();
    by_stage.load_style(UTF8_HORIZONTAL_ONLY);
    by_stage.set_header(header);
    let ages = 0..AGES.len();
    let seen: Vec<usize> = ages
        .filter(|&age| runs.iter().any(|run| run.by_age[age].0 > 0))
        .collect();
    let mut header = vec!["clicks by the user's rounds".to_string()];
    header.extend(seen.iter().map(|&age| match AGES[age] {
        (first, u32::MAX) => format!("{first}+"),
        (first, last) => format!("{first}–{last}"),
    }));
    let mut by_age = Table::new();
    by_age.load_style(UTF8_HORIZONTAL_ONLY);
    by_age.set_header(header);
    for policy in policies.iter().copied() {
        let own = rate(policy);
        let mut row = vec![
            policy.to_string(),
            if of(policy).count() > 1 {
                format!("{:.4} ± {:.4}", own.mean, own.error)
            } else {
                format!("{:.4}", own.mean)
            },
        ];
        let ratios = others
            .iter()
            .map(|(_, name)| other(name).map(|other| own.mean / other));
        row.extend(ratios.map(percent_off));
        for stage in 0..stages.len() {
            let rates = of(policy).map(|run| run.stages[stage].click_probability());
            row.push(format!("{:.3}", Mean::of(rates).mean));
        }
        row.push(thousands(mean(policy, |run| {
            run.distinct_items.unwrap_or(0) as f64
        })));
        row.push(thousands(mean(policy, |run| run.clusters as f64)));
        row.push(format!("{:.2}", mean(policy, |run| run.policy_seconds)));
        by_stage.add_row(row);
        let mut row = vec![policy.to_string()];
        for &age in &seen {
            let sums = of(policy).map(|run| run.by_age[age]);
            let (shown, clicks) = sums.fold((0, 0.0), |(n, sum), (shown, clicks)| {
                (n + shown, sum + clicks)
            });
            row.push(format!("{:.3}", clicks / shown as f64));
        }
        by_age.add_row(row);
    }
    for table in [&mut by_stage, &mut by_age] {
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    format!("{by_stage}\n{by_age}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(thousands(0.4), "0");
        assert_eq!(thousands(999.0), "999");
        assert_eq!(thousands(1_048_574.0), "1,048,574");
        assert_eq!(thousands(-12_345.0), "−12,345");
        assert_eq!(percent_off(Some(0.9)), "−10.0%");
        assert_eq!(percent_off(Some(1.0)), "0.0%");
        assert_eq!(percent_off(Some(1.5)), "+50.0%");
        assert_eq!(percent_off(None), "–");
        assert_eq!(percent_off(Some(f64::NAN)), "–");
        assert_eq!(times(Some(f64::INFINITY)), "–");
        assert_eq!(times(Some(2.5)), "×2.50");
    }
}
