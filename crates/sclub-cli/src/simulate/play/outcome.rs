//! The result of a game: as a table, as JSON, and as the command of the lab with the same regret.

use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{CellAlignment, Table};
use sclub::{Preset, Setup, Spec};
use sclub_lab::document::world_json;
use sclub_lab::run::{Counts, Run};
use sclub_lab::setting::Setting;
use sclub_lab::summary::thousands;
use sclub_lab::world::Tally;
use sclub_server::settings::{Literal, constant_name};
use serde_json::{Value, json};

use super::Plan;
use crate::choices::run_flag;
use crate::simulate::SimulateArgs;
use crate::simulate::latency::{Latencies, shown};
use crate::simulate::wire::State;

/// The result of a game.
pub struct Outcome {
    pub counts: Counts,
    pub rounds: u64,
    pub seconds: f64,
    pub recommend: Latencies,
    pub feedback: Latencies,
    /// The server at the end.
    pub state: State,
    /// True if the server was new and got the number of users in advance.
    pub is_fresh: bool,
    pub error: Option<anyhow::Error>,
}

fn number(value: f64) -> String {
    match value {
        value if value < 100.0 => format!("{value:.2}"),
        value => thousands(value),
    }
}

/// The regret, and the calls.
pub fn table(outcome: &Outcome) -> String {
    let Tally {
        regret,
        random_regret,
        reward,
        served,
    } = outcome.counts.tally;
    let ratio = if random_regret > 0.0 {
        format!("{:.3}", regret / random_regret)
    } else {
        "–".into()
    };
    let State {
        policy,
        preset,
        clusters,
        ..
    } = &outcome.state;
    let standing = aligned_table(
        [
            "policy",
            "rounds",
            "regret",
            "of random choice",
            "ratio",
            "reward, mean",
            "clusters",
            "rounds/s",
        ],
        [[
            format!("{policy}, {preset}"),
            thousands(outcome.rounds as f64),
            number(regret),
            number(random_regret),
            ratio,
            format!("{:.4}", reward / served as f64),
            thousands(*clusters as f64),
            number(outcome.rounds as f64 / outcome.seconds),
        ]],
    );
    format!("{standing}\n{}", calls_table(outcome))
}

/// The time that calls took.
pub fn calls_table(outcome: &Outcome) -> String {
    let calls = [
        ("recommend", &outcome.recommend),
        ("feedback", &outcome.feedback),
    ];
    aligned_table(
        ["call", "p50", "p99", "max"],
        calls.map(|(call, took)| {
            let times = [took.quantile(0.5), took.quantile(0.99), took.longest()];
            let [p50, p99, max] = times.map(shown);
            [call.to_owned(), p50, p99, max]
        }),
    )
}

/// Rows under a header; the numbers to the right.
fn aligned_table<const N: usize>(
    header: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY);
    table.set_header(header);
    table.add_rows(rows);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

/// The command that gives the same figures, if there is one.
pub fn same_run(args: &SimulateArgs, plan: &Plan, outcome: &Outcome) -> Option<String> {
    let is_whole = outcome.error.is_none() && outcome.rounds == plan.rounds;
    let policy = sclub::find_policy(&outcome.state.policy)?;
    if !(is_whole && outcome.is_fresh && plan.connections == 1) {
        return None;
    }
    // A server makes fits in the background and draws from a seed of its own.
    if policy.can.fit || draws_at_random(policy) {
        return None;
    }
    // Context features are 0 in all requests, but the policy has them.
    if !outcome.state.context.is_empty() {
        return None;
    }
    // A server tells it how far the user looked; the lab does not.
    let has_lists = matches!(&plan.setting, Setting::Catalogue(shop) if shop.slots > 1);
    if policy.can.lists && has_lists {
        return None;
    }
    let State { policy, preset, .. } = &outcome.state;
    let mut command = String::from("sclub run");
    if plan.is_catalogue() {
        command.push_str(" --world catalogue");
    }
    command.push_str(&format!(" --policies {policy}"));
    if preset != Preset::Default.as_str() {
        command.push_str(&format!(" --preset {preset}"));
    }
    command.push_str(&format!(
        " --seeds 1 --first-seed {} --rounds {}",
        plan.seed, plan.rounds
    ));
    if preset == "released" && policy == "sclub" {
        command.push_str(" --deviations none");
    }
    for (name, value) in &outcome.state.constants {
        let value = match value {
            Literal::Flag(flag) => flag.to_string(),
            Literal::Number(number) => number.to_string(),
            Literal::Text(text) => text.clone(),
            Literal::Names(names) => names.join(","),
        };
        let flag = run_flag(&constant_name(name))?;
        command.push_str(&format!(" --{flag} {value}"));
    }
    let flags = args.recipe.to_text().into_iter();
    for (id, value) in flags.chain(args.shop.to_text()) {
        if args.given.iter().any(|given| given == id) {
            command.push_str(&format!(" --{} {value}", id.replace('_', "-")));
        }
    }
    Some(command)
}

/// True if a policy depends on the seed in its setup. A new one then contains the seed.
fn draws_at_random(spec: &'static Spec) -> bool {
    let digest = |seed| {
        let setup = Setup {
            seed,
            ..Setup::new(1)
        };
        let values = spec.values(spec.presets[0], &[], &setup).ok()?;
        Some(values.make(&setup).ok()?.digest())
    };
    digest(1) != digest(2)
}

pub fn document(plan: &Plan, outcome: &Outcome, yardsticks: &[Run<String>]) -> Value {
    let mut config = world_json(&plan.setting);
    config["version"] = json!(env!("CARGO_PKG_VERSION"));
    config["rounds"] = json!(plan.rounds);
    config["first_seed"] = json!(plan.seed);
    config["connections"] = json!(plan.connections);
    config["policy"] = json!(outcome.state.policy);
    config["preset"] = json!(outcome.state.preset);
    config["server_version"] = json!(outcome.state.version);
    let counts = &outcome.counts;
    let Tally {
        regret,
        random_regret,
        reward,
        served,
    } = counts.tally;
    let mut document = json!({
        "config": config,
        "complete": outcome.error.is_none() && outcome.rounds == plan.rounds,
        "fresh": outcome.is_fresh,
        "rounds": outcome.rounds,
        "served": served,
        "regret": regret,
        "random_regret": random_regret,
        "reward": reward,
        "clusters": outcome.state.clusters,
        "seconds": outcome.seconds,
        "rounds_per_second": outcome.rounds as f64 / outcome.seconds,
        "recommend": outcome.recommend.to_json(),
        "feedback": outcome.feedback.to_json(),
    });
    if plan.is_catalogue() {
        document["by_age"] = json!(counts.by_age());
        document["distinct_items"] = json!(counts.distinct_items());
        document["stages"] = json!(counts.stages());
        document["yardsticks"] = json!(yardsticks);
    }
    document
}
