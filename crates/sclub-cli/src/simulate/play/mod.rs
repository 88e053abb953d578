//! Plays the lab's world against a running server.

mod game;
mod outcome;

use std::cell::RefCell;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use futures_util::future::try_join_all;
use sclub_lab::summary::thousands;
use sclub_lab::synthetic::{Recipe, Synthetic};
use sclub_lab::world::{Rewards, World};
use sclub_server::client::Connection;
use serde_json::json;

use self::game::{Game, Player};
use self::outcome::{Outcome, document, same_run, table};
use super::wire::{State, state};
use super::{SimulateArgs, connections};
use crate::files::{print_line, save};
use crate::progress::BarOrLines;
use crate::remote::{Refusal, Remote, block_on, call};
use crate::run::{INTERRUPTED, recipe, stop_on_ctrl_c};

/// Time between two redraws of the bar.
const REDRAW: Duration = Duration::from_millis(100);

/// Number of redraws between two requests for the number of clusters.
const STATE_EVERY: u32 = 10;

/// Plays, prints the result and writes it.
pub fn play(args: &SimulateArgs) -> Result<ExitCode> {
    let recipe = recipe(&args.recipe)?;
    let connections = connections(args, 1)?;
    if args.rounds == 0 {
        bail!("rounds is 0; there must be at least one");
    }
    let world = Synthetic::new(recipe, args.first_seed)?;
    let remote = Remote::new(&args.url, &args.trust)?;
    let cancelled = Arc::new(AtomicBool::new(false));
    stop_on_ctrl_c(&cancelled)?;
    let outcome = block_on(game(
        args,
        &recipe,
        &world,
        &remote,
        connections,
        &cancelled,
    ))?;
    let interrupted = cancelled.load(Ordering::Relaxed);
    if outcome.rounds > 0 {
        print_line(&table(&outcome));
        if let Some(command) = same_run(args, &outcome, connections) {
            print_line(&format!("The same regret comes from: {command}"));
        }
    }
    if let Some(path) = &args.json {
        let document = document(args, &recipe, &outcome, connections);
        let text = serde_json::to_string_pretty(&document).context("cannot write JSON")?;
        save(path, text.as_bytes())?;
        print_line(&format!("Written: {}", path.display()));
    }
    match outcome.error {
        Some(error) => Err(error.context(format!("stopped after {} rounds", outcome.rounds))),
        None if interrupted => {
            eprintln!(
                "sclub: stopped after {} of {} rounds",
                outcome.rounds, args.rounds
            );
            Ok(ExitCode::from(INTERRUPTED))
        }
        None => Ok(ExitCode::SUCCESS),
    }
}

async fn game(
    args: &SimulateArgs,
    recipe: &Recipe,
    world: &Synthetic,
    remote: &Remote,
    connections: usize,
    cancelled: &AtomicBool,
) -> Result<Outcome> {
    let mut watch = remote.open().await?;
    let before = state(&mut watch).await?;
    if let Some(dim) = before.dim.filter(|&dim| dim != recipe.dim) {
        bail!("the server's items have {dim} features: simulate with --dim {dim}");
    }
    let is_fresh = announce(&mut watch, &before, world.users()).await?;
    if connections > 1 {
        eprintln!(
            "sclub: {connections} connections play in no fixed order; the regret is close to that of \
             `sclub run`, not the same"
        );
    }
    let game = RefCell::new(Game::new(world, args.rounds));
    let mut players = Vec::new();
    for _ in 0..connections {
        let player = Player {
            game: &game,
            connection: remote.open().await?,
            prefix: &args.prefix,
            cancelled,
            body: Vec::new(),
        };
        players.push(player.play());
    }
    let start = Instant::now();
    let outcome = tokio::select! {
        outcome = try_join_all(players) => outcome,
        never = follow(&game, &mut watch, args) => never,
    };
    let seconds = start.elapsed().as_secs_f64();
    let after = state(&mut watch).await.unwrap_or(before);
    let game = game.into_inner();
    Ok(Outcome {
        tally: game.tally,
        rounds: game.rounds,
        seconds,
        recommend: game.recommend,
        feedback: game.feedback,
        state: after,
        is_fresh,
        error: outcome.err().map(|error| explain(error, recipe)),
    })
}

/// Adds a hint to a refusal.
fn explain(error: anyhow::Error, recipe: &Recipe) -> anyhow::Error {
    let refusal = error.downcast_ref::<Refusal>();
    let is_invalid = refusal.is_some_and(|refusal| refusal.code == "invalid");
    if is_invalid && matches!(recipe.rewards, Rewards::Gaussian(_)) {
        anyhow!(
            "{error}; with --rewards gaussian a server needs a wide --reward-min and --reward-max"
        )
    } else {
        error
    }
}

/// Gives a new server the number of users, which the lab's policies have too. Returns true if the server
/// has learned nothing and took the number.
async fn announce(connection: &mut Connection, state: &State, users: u64) -> Result<bool> {
    if state.rounds > 0 {
        eprintln!(
            "sclub: the server has learned from {} rounds before, so the regret cannot be compared \
             with `sclub run`",
            thousands(state.rounds as f64)
        );
        return Ok(false);
    }
    let body = json!({ "users": users }).to_string();
    match call(connection, "POST", "/v1/admin/expect", body.as_bytes()).await {
        Ok(_) => Ok(true),
        Err(error) => match error.downcast_ref::<Refusal>() {
            Some(refusal) if matches!(refusal.status, 403 | 404 | 409) => {
                eprintln!(
                    "sclub: the server does not take the number of users, so the regret cannot \
                     be compared with `sclub run`: {refusal}"
                );
                Ok(false)
            }
            _ => Err(error),
        },
    }
}

/// Shows the progress of the game; never returns.
async fn follow<T>(
    game: &RefCell<Game<'_>>,
    watch: &mut Connection,
    args: &SimulateArgs,
) -> Result<T> {
    let template = "{bar:20} {percent:>3}%  {human_pos} rounds, {msg}";
    let shown = BarOrLines::new(args.quiet, Some(args.rounds), template);
    let start = Instant::now();
    let mut last = (start, 0);
    let mut rate = 0.0;
    for turn in 0u32.. {
        tokio::time::sleep(REDRAW).await;
        if turn.is_multiple_of(STATE_EVERY) {
            // The number of clusters is only shown: an error here does not end the game.
            let clusters = state(watch).await.ok().map(|state| state.clusters);
            let mut game = game.borrow_mut();
            game.clusters = clusters.or(game.clusters);
            let now = Instant::now();
            let seconds = now.duration_since(last.0).as_secs_f64();
            rate = (game.rounds - last.1) as f64 / seconds;
            last = (now, game.rounds);
        }
        let game = game.borrow();
        let status = format!("{}/s, {}", thousands(rate), game.status());
        let rounds = game.rounds;
        shown.line(|seconds| format!("{rounds} rounds after {seconds:.0} s, {status}"));
        shown.bar.set_position(rounds);
        shown.bar.set_message(status);
    }
    unreachable!("the game ends before the turns do")
}
