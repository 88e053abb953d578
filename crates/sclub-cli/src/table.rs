//! The table at the end of a run.

use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{CellAlignment, Table};
use sclub_lab::summary::{Row, thousands};

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

/// One line a policy.
pub fn render(rows: &[Row]) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY);
    table.set_header([
        "policy",
        "regret",
        "to LinUCB-Ind",
        "to oracle",
        "to informed",
        "clusters",
        "Rand",
        "seconds",
    ]);
    for row in rows {
        table.add_row([
            row.policy.to_string(),
            regret(row),
            percent_off(row.to_linucb_ind),
            times(row.to_oracle),
            times(row.to_informed),
            format!("{:.0}", row.clusters),
            row.adjusted_rand
                .map_or("–".into(), |rand| format!("{:.3}", rand + 0.0)),
            format!("{:.2}", row.policy_seconds),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
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
