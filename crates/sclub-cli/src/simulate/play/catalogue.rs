//! World `catalogue` over HTTP: the shop's items on the server, and the yardsticks beside its clicks.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Result, bail};
use sclub::Preset;
use sclub_lab::catalogue::Shop;
use sclub_lab::policies;
use sclub_lab::run::{Player, Run, play_all};
use sclub_lab::summary::thousands;
use sclub_lab::world::World;
use sclub_server::client::Connection;

use super::Plan;
use super::outcome::Outcome;
use crate::progress::Progress;
use crate::run::{CLICK_YARDSTICKS, CLICKS};
use crate::simulate::wire::{State, put_item_set};
use crate::table;

/// Refuses a server that could not serve the shop, before anything changes: one with items, which would be
/// candidates too, and one that allows too few items or other rewards.
pub fn check(state: &State, shop: &Shop) -> Result<()> {
    if let Some(max) = state.max_k.filter(|&max| max < shop.slots) {
        bail!(
            "the server shows at most {max} items at once, and the shop has {} slots: start it with a larger \
             --max-k, or simulate with fewer --slots",
            shop.slots
        );
    }
    let (min, max) = (state.reward_min, state.reward_max);
    if min.is_some_and(|min| min > 0.0) || max.is_some_and(|max| max < 1.0) {
        bail!(
            "clicks are rewards of 0 and 1, and the server accepts others: start it with --reward-min 0 --reward-max 1"
        );
    }
    if state.items > 0 {
        let items = thousands(state.items as f64);
        bail!(
            "the server's catalogue has items already ({items}), which would be candidates too: start a server on \
             another folder, as with `sclub serve --data shop`"
        );
    }
    Ok(())
}

/// Puts the items of the world into the server's catalogue, if they are the same in all rounds.
pub async fn put_stock(connection: &mut Connection, world: &dyn World) -> Result<()> {
    match &world.new_block().stock {
        Some(stock) => put_item_set(connection, stock.items()).await,
        None => Ok(()),
    }
}

/// Plays the yardsticks here, in as many rounds as the server has played. Returns none of them if this is cancelled.
pub fn yardsticks(
    plan: &Plan,
    outcome: &Outcome,
    quiet: bool,
    cancelled: &Arc<AtomicBool>,
) -> Result<Vec<Run<String>>> {
    let stages = outcome.counts.stages();
    let rounds = stages.last().map_or(0, |stage| stage.to);
    let assumptions = plan.setting.assumptions(rounds);
    let setup = plan.setting.setup(&assumptions);
    let mut players = Vec::new();
    for entry in policies::entries(&CLICK_YARDSTICKS, Preset::Tuned, &[], &setup)? {
        if let Some(policy) = policies::make(&entry, &*plan.world, plan.seed, rounds)? {
            let preset = entry.values.preset();
            players.push(Player::new(entry.name.to_string(), preset, policy));
        }
    }
    let total = rounds.saturating_mul(players.len() as u64);
    let progress = Progress::new(total, quiet, Arc::clone(cancelled));
    let runs = play_all(&*plan.world, plan.seed, players, rounds, &progress)?;
    progress.finish();
    Ok(runs.unwrap_or_default())
}

/// The clicks by stage and by the users' ages, of the server and the yardsticks.
pub fn clicks(plan: &Plan, outcome: &Outcome, yardsticks: &[Run<String>]) -> String {
    let mut runs = vec![run_of(plan, outcome)];
    runs.extend_from_slice(yardsticks);
    let policy = &outcome.state.policy;
    format!(
        "{}\n{CLICKS} seconds: inside the policy; of {policy}, all of the time over HTTP.",
        table::clicks(&runs, &[])
    )
}

/// The server's results as those of a run in the lab.
fn run_of(plan: &Plan, outcome: &Outcome) -> Run<String> {
    let (counts, state) = (&outcome.counts, &outcome.state);
    Run {
        policy: state.policy.clone(),
        preset: state.preset.parse().unwrap_or(Preset::Default),
        seed: plan.seed,
        rounds: outcome.rounds,
        served: counts.tally.served,
        regret: counts.tally.regret,
        reward: counts.tally.reward,
        random_regret: counts.tally.random_regret,
        clusters: state.clusters as usize,
        adjusted_rand: None,
        clustering: None,
        policy_seconds: outcome.seconds,
        curve: Vec::new(),
        even_curve: Vec::new(),
        by_age: counts.by_age(),
        distinct_items: counts.distinct_items(),
        stages: counts.stages().to_vec(),
        messages: None,
        state_bytes: None,
        digest: 0,
    }
}
