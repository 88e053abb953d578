//! The page: the values for the template.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, UndefinedBehavior, Value};
use serde::Serialize;

use super::charts::{Drawn, held_out_name, panel_name};
use super::model::{HeldOut, Line, Report};
use super::numbers::{change, duration, list, whole};
use super::sections::{self, GROUPS, beside, cell, is_comparable, panel_key, panels_of, policies};
use super::table::{Key, Table};
use super::words::{about, prose};
use super::{PAPER_ROUNDS, RenderError};
use crate::figure::inks::{GREY, GREY_ON_DARK, page_variable};
use crate::policies::Name;

#[derive(Serialize)]
struct PanelView {
    id: String,
    title: String,
    note: Option<Value>,
    missing: Option<Value>,
    svg: Option<Value>,
}

#[derive(Serialize)]
struct PanelRow {
    title: &'static str,
    panels: Vec<PanelView>,
}

#[derive(Serialize)]
struct HeldOutView {
    id: String,
    name: String,
    note: Option<Value>,
    sizes: Vec<(String, String)>,
    tuning: Value,
    tables: Vec<HeldOutTableView>,
}

#[derive(Serialize)]
struct HeldOutTableView {
    rates: Table,
    ages: Option<Table>,
    svg: Option<Value>,
    keys: Vec<Key>,
}

#[derive(Serialize)]
struct Banner {
    title: &'static str,
    text: String,
}

#[derive(Serialize)]
struct AuditView {
    reading: Vec<String>,
    table: Table,
    rounds: String,
    comparable: bool,
}

/// A figure and a table with the conclusions from them.
#[derive(Serialize)]
struct ReadingView {
    svg: Option<Value>,
    keys: Vec<Key>,
    bars: bool,
    table: Option<Table>,
    reading: Vec<Value>,
}

/// The values of all names in the template.
#[derive(Serialize)]
struct View {
    variables: String,
    dark_variables: String,
    summary: String,
    banners: Vec<Banner>,
    contents: Vec<(&'static str, &'static str)>,
    panel_rows: Vec<PanelRow>,
    keys: Vec<Key>,
    beside: Vec<String>,
    bars: bool,
    not_compared: Option<String>,
    missing: Option<String>,
    regrets: Vec<Table>,
    times: Vec<Table>,
    clusters: Option<Table>,
    audit: Option<AuditView>,
    theorem: Option<ReadingView>,
    many_users: Option<ReadingView>,
    held_out: Vec<HeldOutView>,
    command: String,
    facts: Vec<(String, String)>,
}

/// Fills in the page.
pub fn html(report: &Report, drawn: &[Drawn]) -> Result<String, RenderError> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()?;
    environment.set_syntax(syntax);
    environment.add_template("page.css", include_str!("page.css"))?;
    environment.add_template("parts.html", include_str!("parts.html"))?;
    environment.add_template("page.html", include_str!("page.html"))?;
    let view = View {
        variables: variables(report, 0, GREY),
        dark_variables: variables(report, 1, GREY_ON_DARK),
        summary: summary(report),
        banners: banners(report),
        contents: contents(report),
        panel_rows: panel_rows(report, drawn),
        keys: policies(&report.panels)
            .into_iter()
            .map(|name| panel_key(report, name))
            .collect(),
        beside: beside(&report.panels).into_iter().map(about).collect(),
        bars: report
            .panels
            .iter()
            .flat_map(|panel| &panel.cells)
            .any(|cell| cell.seeds > 1),
        not_compared: not_compared(report),
        missing: sections::missing(report),
        regrets: sections::regrets(report),
        times: sections::times(report),
        clusters: sections::clusters(report),
        audit: report.audit.as_ref().map(|audit| AuditView {
            table: sections::audit(audit),
            reading: audit.reading.clone(),
            rounds: whole(audit.rounds as f64),
            comparable: audit.rounds == PAPER_ROUNDS,
        }),
        theorem: report.theorem.as_ref().map(|theorem| ReadingView {
            svg: svg(drawn, "theorem-1"),
            keys: line_keys(&theorem.lines),
            bars: have_bars(&theorem.lines),
            table: sections::terms(theorem),
            reading: paragraphs(&theorem.reading),
        }),
        many_users: report.many_users.as_ref().map(|many| ReadingView {
            svg: svg(drawn, "many-users"),
            keys: line_keys(&many.lines),
            bars: have_bars(&many.lines),
            table: sections::many_users(many),
            reading: paragraphs(&many.reading),
        }),
        held_out: report
            .held_out
            .iter()
            .map(|set| held_out(set, drawn))
            .collect(),
        command: report.origin.command.clone(),
        facts: facts(report),
    };
    Ok(environment
        .get_template("page.html")?
        .render(Serde(&view))?)
}

/// The colours of the report's policies on one of two grounds, as CSS variables.
fn variables(report: &Report, ground: usize, grey: &str) -> String {
    let mut css = format!("--bound:{grey};");
    for name in sections::all_policies(report) {
        let variable = page_variable(name);
        css.push_str(&format!("{variable}:{};", name.colors[ground]));
    }
    css
}

/// The figure of a name, drawn for the page.
fn svg(drawn: &[Drawn], name: &str) -> Option<Value> {
    let drawn = drawn.iter().find(|drawn| drawn.name == name)?;
    let svg = drawn.chart.page_svg(&drawn.name, &drawn.description);
    Some(Value::from_safe_string(svg))
}

fn paragraphs(reading: &[String]) -> Vec<Value> {
    reading.iter().map(|text| prose(text)).collect()
}

fn line_keys(lines: &[Line]) -> Vec<Key> {
    lines.iter().map(sections::line_key).collect()
}

fn have_bars(lines: &[Line]) -> bool {
    let mut points = lines.iter().flat_map(|line| &line.points);
    points.any(|(_, y)| y.error > 0.0)
}

fn panel_rows(report: &Report, drawn: &[Drawn]) -> Vec<PanelRow> {
    let rows = GROUPS.iter().map(|&(group, title)| PanelRow {
        title,
        panels: panels_of(report, group)
            .into_iter()
            .map(|panel| PanelView {
                id: panel.id.clone(),
                title: panel.title.clone(),
                note: panel.note.as_deref().map(prose),
                missing: panel.missing.as_deref().map(prose),
                svg: svg(drawn, &panel_name(&panel.id)),
            })
            .collect(),
    });
    rows.filter(|row| !row.panels.is_empty()).collect()
}

fn held_out(set: &HeldOut, drawn: &[Drawn]) -> HeldOutView {
    let tables = set
        .tables
        .iter()
        .enumerate()
        .map(|(place, table)| HeldOutTableView {
            rates: sections::rates(table),
            ages: sections::ages(table),
            svg: svg(drawn, &held_out_name(&set.name, place)),
            keys: sections::held_out_keys(table),
        });
    HeldOutView {
        id: super::words::slug(&set.name),
        name: set.name.clone(),
        note: set.note.as_deref().map(prose),
        sizes: set
            .sizes
            .iter()
            .map(|(what, many)| (what.clone(), whole(*many as f64)))
            .collect(),
        tuning: prose(&set.tuning),
        tables: tables.collect(),
    }
}

/// The sections that there are: (address, title).
fn contents(report: &Report) -> Vec<(&'static str, &'static str)> {
    let has_results = report.panels.iter().any(|panel| !panel.cells.is_empty());
    let all = [
        (!report.panels.is_empty(), "figure-1", "Figure 1: regret"),
        (has_results, "tables", "Tables 1 and 2"),
        (report.audit.is_some(), "audit", "Paper and code"),
        (report.theorem.is_some(), "theorem", "Theorem 1"),
        (report.many_users.is_some(), "many", "Many users a round"),
        (!report.held_out.is_empty(), "held-out", "Held-out choices"),
        (true, "origin", "How it was made"),
    ];
    let there = all.into_iter().filter(|(is_there, _, _)| *is_there);
    there.map(|(_, address, title)| (address, title)).collect()
}

fn banners(report: &Report) -> Vec<Banner> {
    let mut banners = Vec::new();
    if report.origin.quick {
        banners.push(Banner {
            title: "A short run.",
            text: format!(
                "It has {} rounds instead of {}. Its figures show that everything works; they are \
                 not to be compared with the paper’s.",
                whole(report.origin.rounds as f64),
                whole(PAPER_ROUNDS as f64),
            ),
        });
    }
    if !report.origin.complete {
        banners.push(Banner {
            title: "Not complete.",
            text: still_missing(report),
        });
    }
    banners
}

fn still_missing(report: &Report) -> String {
    let mut text = String::new();
    if let Some(fewest) = fewest_seeds(report) {
        text.push_str(&format!(
            "Not all of the {} seeds are in: some results below are of {fewest}. ",
            report.origin.seeds.len(),
        ));
    }
    if !report.origin.to_come.is_empty() {
        text.push_str(&format!(
            "Still to come: {}. ",
            super::words::and(&report.origin.to_come)
        ));
    }
    text.push_str("The same command goes on where it stopped.");
    text
}

/// The smallest number of seeds behind a cell, if that is not all of them.
fn fewest_seeds(report: &Report) -> Option<usize> {
    let cells = report.panels.iter().flat_map(|panel| &panel.cells);
    let fewest = cells.map(|cell| cell.seeds).min()?;
    (fewest < report.origin.seeds.len()).then_some(fewest)
}

/// The note that results are not compared with the paper's, and the reason; `None` if they are compared.
fn not_compared(report: &Report) -> Option<String> {
    if is_comparable(report) {
        return None;
    }
    Some(format!(
        "Differences are left out: the published values belong to {} rounds, and these runs have {}.",
        whole(PAPER_ROUNDS as f64),
        whole(report.origin.rounds as f64),
    ))
}

fn counted(many: usize, one: &str, more: &str) -> String {
    format!(
        "{} {}",
        whole(many as f64),
        if many == 1 { one } else { more }
    )
}

/// The runs and their results: two sentences.
fn summary(report: &Report) -> String {
    let run: Vec<_> = report
        .panels
        .iter()
        .filter(|panel| !panel.cells.is_empty())
        .collect();
    let not_the_papers = beside(run.iter().copied());
    let names: Vec<String> = policies(run.iter().copied())
        .into_iter()
        .filter(|name| *name != Name::SCLUB && !not_the_papers.contains(name))
        .map(|name| name.title.to_owned())
        .collect();
    let against = if names.is_empty() {
        "is run".to_owned()
    } else {
        format!("is compared with {}", super::words::and(&names))
    };
    let first = format!(
        "The published SCLUB {against} in {} of the {} of Figure 1, with {} rounds and {}.",
        run.len(),
        counted(report.panels.len(), "panel", "panels"),
        whole(report.origin.rounds as f64),
        match fewest_seeds(report) {
            Some(fewest) => format!("{fewest} of {} seeds so far", report.origin.seeds.len()),
            None => counted(report.origin.seeds.len(), "seed", "seeds"),
        },
    );
    let sclubs: Vec<_> = run
        .iter()
        .filter_map(|panel| cell(panel, Name::SCLUB))
        .collect();
    if sclubs.is_empty() {
        return format!("{first} There are no results of SCLUB yet.");
    }
    let is_lowest = |panel: &&&super::model::Panel| {
        let published = panel.cells.iter().filter(|cell| cell.is_published());
        let lowest = published.min_by(|a, b| a.regret.mean.total_cmp(&b.regret.mean));
        lowest.is_some_and(|cell| cell.policy == Name::SCLUB)
    };
    let lowest = run.iter().filter(is_lowest).count();
    let second = format!(
        "Its regret at the end is the lowest in {lowest} of these {}",
        run.len()
    );
    if !is_comparable(report) {
        return format!("{first} {second}.");
    }
    let off = sclubs.iter().map(|cell| cell.off_published());
    let (low, high) = off.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), off| {
        (low.min(off), high.max(off))
    });
    if change(low) == change(high) {
        return format!("{first} {second}, {} off the published one.", change(low));
    }
    format!(
        "{first} {second}, and lies from {} to {} off the published one.",
        change(low),
        change(high)
    )
}

/// The origin of the report: (name, value).
fn facts(report: &Report) -> Vec<(String, String)> {
    let origin = &report.origin;
    let (run, reused) = origin.cells;
    let mut facts = vec![
        ("Rounds".to_owned(), whole(origin.rounds as f64)),
        (
            "Seeds".to_owned(),
            format!("{} ({} in all)", list(&origin.seeds), origin.seeds.len()),
        ),
        (
            "Cells".to_owned(),
            format!(
                "{} run, {} reused from earlier",
                whole(run as f64),
                whole(reused as f64)
            ),
        ),
        (
            "Time of this invocation".to_owned(),
            duration(origin.seconds),
        ),
    ];
    facts.extend(origin.versions.iter().cloned());
    facts.extend(origin.machine.iter().cloned());
    facts
}
