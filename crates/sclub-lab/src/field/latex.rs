//! The table for a paper.

use super::table::{Cell, Field, Measure};

/// The table as LaTeX, for the package `booktabs`: means with standard errors, in bold those that are the best of a world or do
/// not differ from it significantly.
pub fn latex(field: &Field) -> String {
    let columns = "r".repeat(field.standings.len());
    let heads: Vec<String> = field
        .standings
        .iter()
        .map(|standing| format!("\\rotatebox{{90}}{{{}}}", escaped(standing.policy.title)))
        .collect();
    let mut text = format!(
        "% Needs \\usepackage{{booktabs,graphicx}}.\n\\begin{{tabular}}{{l{columns}}}\n\\toprule\nworld & {} \\\\\n\\midrule\n",
        heads.join(" & ")
    );
    for row in &field.worlds {
        let cells = field.standings.iter().map(|standing| {
            let cell = row.cell(standing.policy);
            cell.map_or("--".to_owned(), |cell| cell_text(row.measure, cell))
        });
        let cells: Vec<String> = cells.collect();
        text.push_str(&format!(
            "{} & {} \\\\\n",
            escaped(row.world),
            cells.join(" & ")
        ));
    }
    let ranks: Vec<String> = field
        .standings
        .iter()
        .map(|standing| {
            // A star: the policy did not play all worlds.
            let star = match standing.worlds == field.worlds.len() {
                true => "",
                false => "$^*$",
            };
            format!("{:.1}{star}", standing.rank)
        })
        .collect();
    text.push_str(&format!(
        "\\midrule\nmean rank & {} \\\\\n\\bottomrule\n\\end{{tabular}}\n",
        ranks.join(" & ")
    ));
    text
}

fn cell_text(measure: Measure, cell: &Cell) -> String {
    let number = |value: f64| measure.text(value).replace('−', "-").replace(',', "{,}");
    let text = match cell.values.len() {
        1 => number(cell.mean.mean),
        _ => format!(
            "{} \\pm {}",
            number(cell.mean.mean),
            number(cell.mean.error)
        ),
    };
    match cell.is_among_best() {
        true => format!("$\\mathbf{{{text}}}$"),
        false => format!("${text}$"),
    }
}

fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        if "&%$#_{}".contains(letter) {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
    escaped
}
