//! The critical-difference picture: mean ranks on a line, with a bar over policies that do not differ.

use std::fmt::Write;

use super::table::{Field, Standing};

/// Height of a label's line, and the width of the picture.
const LINE: f64 = 19.0;
const WIDTH: f64 = 940.0;
/// The space left and right of the axis, for the labels.
const SIDE: f64 = 190.0;

/// The ranks of the policies that played all worlds, as SVG. `None` without a critical difference.
pub fn ranks_picture(field: &Field) -> Option<String> {
    let difference = field.critical_difference?;
    let all: Vec<&Standing> = field
        .standings
        .iter()
        .filter(|standing| standing.worlds == field.worlds.len())
        .collect();
    let count = all.len();
    // The length of the critical difference has its place too.
    let most = (count as f64).max(1.0 + difference);
    let x = |rank: f64| SIDE + (rank - 1.0) / (most - 1.0) * (WIDTH - 2.0 * SIDE);
    let bars = groups(&all, difference);
    let axis = 52.0;
    let first = axis + 22.0 + 9.0 * bars.len() as f64;
    let rows = count.div_ceil(2) as f64;
    let height = first + LINE * rows + 12.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         font-family=\"system-ui, sans-serif\" font-size=\"13\" style=\"color: var(--text, #1b1d20)\">\
         <title>Mean rank of each policy over {} worlds; bars join policies that do not differ significantly</title>",
        field.worlds.len()
    );
    let mut line = |x1: f64, y1: f64, x2: f64, y2: f64, width: f64| {
        let _ = write!(
            svg,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"currentColor\" \
             stroke-width=\"{width}\"/>"
        );
    };
    line(x(1.0), axis, x(most), axis, 1.0);
    for rank in 1..=count {
        let long = rank == 1 || rank == count || rank.is_multiple_of(5);
        let rank = x(rank as f64);
        line(rank, axis, rank, axis - if long { 8.0 } else { 4.0 }, 1.0);
    }
    // The critical difference, as a length.
    line(x(1.0), 18.0, x(1.0 + difference), 18.0, 1.5);
    line(x(1.0), 14.0, x(1.0), 22.0, 1.5);
    line(x(1.0 + difference), 14.0, x(1.0 + difference), 22.0, 1.5);
    for (place, (from, to)) in bars.iter().enumerate() {
        let y = axis + 12.0 + 9.0 * place as f64;
        line(x(all[*from].rank) - 3.0, y, x(all[*to].rank) + 3.0, y, 4.0);
    }
    let half = count.div_ceil(2);
    for (place, standing) in all.iter().enumerate() {
        let is_left = place < half;
        let row = if is_left { place } else { count - 1 - place };
        let y = first + LINE * row as f64 + 8.0;
        let at = x(standing.rank);
        let end = if is_left {
            SIDE - 12.0
        } else {
            WIDTH - SIDE + 12.0
        };
        line(at, axis, at, y, 0.7);
        line(at, y, end, y, 0.7);
    }
    let mut text = |x: f64, y: f64, anchor: &str, words: &str| {
        let words = words.replace('&', "&amp;").replace('<', "&lt;");
        let _ = write!(
            svg,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"currentColor\">{words}</text>"
        );
    };
    // Right of its length or, where there is no room, above the end of it.
    let end = x(1.0 + difference);
    let (at, y, anchor) = match end + SIDE < WIDTH {
        true => (end + 8.0, 22.5, "start"),
        false => (end, 10.0, "end"),
    };
    text(
        at,
        y,
        anchor,
        &format!("critical difference {difference:.2}"),
    );
    for rank in (1..=count).filter(|&rank| rank == 1 || rank == count || rank.is_multiple_of(5)) {
        text(x(rank as f64), axis - 12.0, "middle", &rank.to_string());
    }
    for (place, standing) in all.iter().enumerate() {
        let is_left = place < half;
        let row = if is_left { place } else { count - 1 - place };
        let y = first + LINE * row as f64 + 12.5;
        let (at, anchor) = match is_left {
            true => (SIDE - 16.0, "end"),
            false => (WIDTH - SIDE + 16.0, "start"),
        };
        let words = format!("{} {:.1}", standing.policy.title, standing.rank);
        text(at, y, anchor, &words);
    }
    svg.push_str("</svg>");
    Some(svg)
}

/// The largest runs of policies whose ranks differ by less than the critical difference: first and last.
fn groups(all: &[&Standing], difference: f64) -> Vec<(usize, usize)> {
    let mut groups: Vec<(usize, usize)> = Vec::new();
    for from in 0..all.len() {
        let near = |to: &usize| all[*to].rank - all[from].rank < difference;
        let to = (from..all.len()).take_while(near).last().unwrap_or(from);
        if to > from && groups.last().is_none_or(|&(_, end)| to > end) {
            groups.push((from, to));
        }
    }
    groups
}
