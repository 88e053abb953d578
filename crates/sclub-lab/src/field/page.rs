//! The page: one file with the table, the ranks and the costs.

use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value, context};
use serde::Serialize;

use super::picture::ranks_picture;
use super::table::{Field, Measure, WorldRow};
use super::{Against, Cell, Claim, Constants, REFERENCES};
use crate::policies::Name;
use crate::summary::{percent, thousands};

/// A cell of the table.
#[derive(Serialize)]
struct CellView {
    text: String,
    error: String,
    is_best: bool,
    /// From 0, as good as the best, to 1, as bad as random choices or worse.
    shade: f64,
    hint: String,
}

#[derive(Serialize)]
struct RowView {
    world: &'static str,
    title: &'static str,
    measure: &'static str,
    command: String,
    seeds: usize,
    cells: Vec<Option<CellView>>,
}

#[derive(Serialize)]
struct CostView {
    policy: &'static str,
    citation: &'static str,
    microseconds: String,
    bytes: String,
    messages: String,
    numbers: String,
}

/// A policy in its own setting, against the policies that papers compare with.
#[derive(Serialize)]
struct OwnView {
    policy: &'static str,
    world: &'static str,
    constants: &'static str,
    regret: String,
    against: Vec<(&'static str, String)>,
    verdict: String,
}

/// Below this number of seeds the page says that tests find little.
const MIN_SEEDS: usize = 5;

/// The page, as HTML.
///
/// # Errors
/// If the template is invalid, which a test rules out.
pub fn page(
    field: &Field,
    command: &str,
    took: &str,
    is_complete: bool,
) -> Result<String, minijinja::Error> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.add_template("field.html", include_str!("page.html"))?;
    environment.add_template("page.css", include_str!("../report/page.css"))?;
    let columns: Vec<Name> = columns(field);
    let rows: Vec<RowView> = field
        .worlds
        .iter()
        .map(|row| row_view(row, &columns))
        .collect();
    let picture = ranks_picture(field).map(Value::from_safe_string);
    let heads: Vec<(&str, &str)> = columns.iter().map(|name| (name.title, name.name)).collect();
    let standings: Vec<Value> = field
        .standings
        .iter()
        .map(|standing| {
            let sclub = standing.against_sclub.as_ref();
            let soft = standing.against_sclub_soft.as_ref();
            context! {
                policy => standing.policy.title,
                name => standing.policy.name,
                rank => format!("{:.2}", standing.rank),
                worlds => standing.worlds,
                among_best => standing.among_best,
                better_than_sclub => list(sclub.map(|worlds| &worlds.0)),
                worse_than_sclub => list(sclub.map(|worlds| &worlds.1)),
                better_than_soft => list(soft.map(|worlds| &worlds.0)),
                worse_than_soft => list(soft.map(|worlds| &worlds.1)),
            }
        })
        .collect();
    let constants: Vec<(String, String, String)> = field
        .tuned
        .constants
        .iter()
        .flat_map(|(family, policies)| {
            policies.iter().map(move |(policy, chosen)| {
                let chosen: Vec<String> = chosen
                    .iter()
                    .map(|(name, value)| format!("{name} {value}"))
                    .collect();
                let chosen = match chosen.is_empty() {
                    true => "defaults".to_owned(),
                    false => chosen.join(", "),
                };
                (family.clone(), policy.clone(), chosen)
            })
        })
        .collect();
    environment.get_template("field.html")?.render(context! {
        variables => "",
        dark_variables => "",
        command,
        took,
        few_seeds => field.worlds.iter().any(|row| row.seeds.len() < MIN_SEEDS),
        picture,
        heads => Value::from(Serde(heads)),
        ranked => field.standings.len(),
        rows => Value::from(Serde(rows)),
        standings,
        costs => Value::from(Serde(costs(field))),
        own => Value::from(Serde(own(field))),
        settings => Value::from(Serde(settings(field))),
        constants => Value::from(Serde(constants)),
        tune_command => field.tuned.command.clone(),
        released => field.released,
        is_complete,
        difference => field.critical_difference.map(|difference| format!("{difference:.2}")),
    })
}

/// The names of worlds; a dash if there was nothing to compare.
pub(super) fn list(worlds: Option<&Vec<&str>>) -> String {
    match worlds {
        None => "–".to_owned(),
        Some(worlds) if worlds.is_empty() => "none".to_owned(),
        Some(worlds) => worlds.join(", "),
    }
}

/// The policies by mean rank, then the references.
fn columns(field: &Field) -> Vec<Name> {
    let ranked = field.standings.iter().map(|standing| standing.policy);
    ranked.chain(REFERENCES).collect()
}

fn row_view(row: &WorldRow, columns: &[Name]) -> RowView {
    let losses = |cell: &Cell| match row.measure {
        Measure::Regret => cell.mean.mean,
        Measure::Clicks => -cell.mean.mean,
    };
    let ranked = row.cells.iter().filter(|cell| cell.rank.is_some());
    let best = ranked.map(losses).fold(f64::INFINITY, f64::min);
    let random = row.cell(Name::RANDOM).map_or(best + 1.0, losses);
    let cells = columns.iter().map(|&name| {
        let cell = row.cell(name)?;
        let shade = (losses(cell) - best) / (random - best).max(f64::MIN_POSITIVE);
        let behind = cell.behind.map(|mean| match row.measure {
            Measure::Regret => percent(mean.mean / best.abs()),
            Measure::Clicks => percent(-mean.mean / best.abs()),
        });
        let p = cell.p.map(|p| format!("p = {p:.2e}, Holm"));
        let hint: Vec<String> = behind
            .into_iter()
            .chain(p)
            .chain([cell.constants.clone()])
            .collect();
        Some(CellView {
            text: row.measure.text(cell.mean.mean),
            error: match row.seeds.len() {
                1 => String::new(),
                _ => format!("± {}", row.measure.text(cell.mean.error)),
            },
            is_best: cell.is_among_best(),
            shade: shade.clamp(0.0, 1.0),
            hint: hint.join("; "),
        })
    });
    RowView {
        world: row.world,
        title: row.title,
        measure: row.measure.name(),
        command: row.command.clone(),
        seeds: row.seeds.len(),
        cells: cells.collect(),
    }
}

/// Costs in the first world, which has the paper's size.
fn costs(field: &Field) -> Vec<CostView> {
    let Some(row) = field.worlds.first() else {
        return Vec::new();
    };
    let cost = |name: Name| {
        let cell = row.cell(name)?;
        let (messages, numbers) = cell.messages.map_or_else(
            || ("none".to_owned(), String::new()),
            |(messages, numbers)| (thousands(messages), thousands(numbers)),
        );
        Some(CostView {
            policy: name.title,
            citation: name.citation,
            microseconds: format!("{:.1}", cell.microseconds),
            bytes: cell
                .bytes
                .map_or_else(String::new, |bytes| format!("{:.1}", bytes / 1e6)),
            messages,
            numbers,
        })
    };
    columns(field).into_iter().filter_map(cost).collect()
}

/// Policies in their own settings.
fn own(field: &Field) -> Vec<OwnView> {
    let view = |claim: &Claim| OwnView {
        policy: claim.policy.title,
        world: claim.world,
        constants: constants_text(claim.constants),
        regret: Measure::Regret.text(claim.regret.mean),
        against: claim
            .against
            .iter()
            .map(|against| (against.other.title, percent(against.off)))
            .collect(),
        verdict: verdict(claim),
    };
    field.claims.iter().map(view).collect()
}

/// The settings of the claims, with the commands that make them.
fn settings(field: &Field) -> Vec<(&str, &str)> {
    let mut all: Vec<(&str, &str)> = Vec::new();
    for claim in &field.claims {
        let setting = (claim.world, &*claim.command);
        if !all.contains(&setting) {
            all.push(setting);
        }
    }
    all
}

/// The origin of constants, in words.
pub(super) fn constants_text(constants: Constants) -> &'static str {
    match constants {
        Constants::Table => "of this table",
        Constants::Published => "published",
        Constants::PublicCode(what) => what,
    }
}

/// A sentence about a claim: the policies that it is better than, does not differ from, or is worse than.
pub(super) fn verdict(claim: &Claim) -> String {
    let names = |is_wanted: &dyn Fn(&Against) -> bool| {
        let wanted = claim.against.iter().filter(|against| is_wanted(against));
        let names: Vec<&str> = wanted.map(|against| against.other.title).collect();
        names.join(", ")
    };
    let parts = [
        ("better than", names(&|a| a.is_clear() && a.off < 0.0)),
        (
            "not significantly different from",
            names(&|a| !a.is_clear()),
        ),
        ("worse than", names(&|a| a.is_clear() && a.off > 0.0)),
    ];
    let parts = parts.into_iter().filter(|(_, names)| !names.is_empty());
    let parts: Vec<String> = parts.map(|(how, names)| format!("{how} {names}")).collect();
    parts.join("; ")
}
