//! Plays a world of the lab against a running server.

mod catalogue;
mod game;
mod outcome;

use std::cell::RefCell;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use futures_util::future::try_join_all;
use sclub_lab::catalogue::DEFAULT_ROUNDS as CATALOGUE_ROUNDS;
use sclub_lab::setting::{Kind, Setting};
use sclub_lab::summary::thousands;
use sclub_lab::world::{Rewards, World};
use sclub_server::client::Connection;
use serde_json::json;

use self::game::{Game, Player};
use self::outcome::{Outcome, calls_table, document, same_run, table};
use super::wire::{State, state};
use super::{SimulateArgs, connections};
use crate::files::{print_line, save};
use crate::progress::BarOrLines;
use crate::remote::{Refusal, Remote, block_on, call};
use crate::run::{INTERRUPTED, recipe, shop, stop_on_ctrl_c};

/// The default number of rounds in world `synthetic`.
const SYNTHETIC_ROUNDS: u64 = 20_000;

/// Time between two redraws of the bar.
const REDRAW: Duration = Duration::from_millis(100);

/// Number of redraws between two requests for the number of clusters.
const STATE_EVERY: u32 = 10;

/// The world and the way in which it is played.
struct Plan {
    setting: Setting,
    seed: u64,
    world: Arc<dyn World>,
    rounds: u64,
    connections: usize,
}

impl Plan {
    fn new(args: &SimulateArgs) -> Result<Self> {
        let (setting, default_rounds) = match args.world {
            Kind::Catalogue => {
                let shop = shop(&args.shop, &args.recipe, &args.given)?;
                (Setting::Catalogue(shop), CATALOGUE_ROUNDS)
            }
            _ => (
                Setting::Synthetic(recipe(&args.recipe, &args.given)?),
                SYNTHETIC_ROUNDS,
            ),
        };
        let connections = connections(args, 1)?;
        let rounds = args.rounds.unwrap_or(default_rounds);
        if rounds == 0 {
            bail!("rounds is 0; there must be at least one");
        }
        Ok(Self {
            world: setting.world(args.first_seed)?,
            setting,
            seed: args.first_seed,
            rounds,
            connections,
        })
    }

    fn is_catalogue(&self) -> bool {
        matches!(self.setting, Setting::Catalogue(_))
    }

    /// The figure by which the server is compared with the lab.
    fn figure(&self) -> &'static str {
        match self.is_catalogue() {
            true => "number of clicks",
            false => "regret",
        }
    }
}

/// Plays, prints the result and writes it.
pub fn play(args: &SimulateArgs) -> Result<ExitCode> {
    let plan = Plan::new(args)?;
    let remote = Remote::new(&args.url, &args.trust)?;
    let cancelled = Arc::new(AtomicBool::new(false));
    stop_on_ctrl_c(&cancelled)?;
    let outcome = block_on(game(args, &plan, &remote, &cancelled))?;
    let was_stopped = outcome.error.is_some() || cancelled.load(Ordering::Relaxed);
    let yardsticks = match plan.is_catalogue() && !was_stopped {
        true => catalogue::yardsticks(&plan, &outcome, args.quiet, &cancelled)?,
        false => Vec::new(),
    };
    let interrupted = cancelled.load(Ordering::Relaxed);
    if outcome.rounds > 0 {
        print_line(&match plan.is_catalogue() {
            true => {
                let clicks = catalogue::clicks(&plan, &outcome, &yardsticks);
                format!("{clicks}\n{}", calls_table(&outcome))
            }
            false => table(&outcome),
        });
        if let Some(command) = same_run(args, &plan, &outcome) {
            print_line(&format!("The same {} comes from: {command}", plan.figure()));
        }
    }
    if let Some(path) = &args.json {
        let document = document(&plan, &outcome, &yardsticks);
        let text = serde_json::to_string_pretty(&document).context("cannot write JSON")?;
        save(path, text.as_bytes())?;
        print_line(&format!("Written: {}", path.display()));
    }
    match outcome.error {
        Some(error) => Err(error.context(format!("stopped after {} rounds", outcome.rounds))),
        None if interrupted => {
            eprintln!(
                "sclub: stopped after {} of {} rounds",
                outcome.rounds, plan.rounds
            );
            Ok(ExitCode::from(INTERRUPTED))
        }
        None => Ok(ExitCode::SUCCESS),
    }
}

async fn game(
    args: &SimulateArgs,
    plan: &Plan,
    remote: &Remote,
    cancelled: &AtomicBool,
) -> Result<Outcome> {
    let mut watch = remote.open().await?;
    let before = state(&mut watch).await?;
    check_dim(plan, &before)?;
    if let Setting::Catalogue(shop) = &plan.setting {
        catalogue::check(&before, shop)?;
    }
    let is_fresh = announce(&mut watch, &before, plan).await?;
    catalogue::put_stock(&mut watch, &*plan.world).await?;
    if plan.connections > 1 {
        eprintln!(
            "sclub: {} connections play in no fixed order; the {} is close to that of \
             `sclub run`, not the same",
            plan.connections,
            plan.figure()
        );
    }
    let game = RefCell::new(Game::new(&*plan.world, plan.rounds));
    let mut players = Vec::new();
    for _ in 0..plan.connections {
        let player = Player {
            game: &game,
            connection: remote.open().await?,
            prefix: &args.prefix,
            sent: args.feedback,
            cancelled,
            body: Vec::new(),
        };
        players.push(player.play());
    }
    let start = Instant::now();
    let outcome = tokio::select! {
        outcome = try_join_all(players) => outcome,
        never = follow(&game, &mut watch, plan.rounds, args.quiet) => never,
    };
    let seconds = start.elapsed().as_secs_f64();
    let after = state(&mut watch).await.unwrap_or(before);
    let game = game.into_inner();
    Ok(Outcome {
        counts: game.counts,
        rounds: game.rounds,
        seconds,
        recommend: game.recommend,
        feedback: game.feedback,
        state: after,
        is_fresh,
        error: outcome.err().map(|error| explain(error, &plan.setting)),
    })
}

/// Refuses a server whose items have another number of features.
fn check_dim(plan: &Plan, state: &State) -> Result<()> {
    let expected = plan.setting.dim();
    match state.dim {
        None => Ok(()),
        Some(dim) if dim == expected => Ok(()),
        Some(dim) if plan.is_catalogue() => bail!(
            "the server's items have {dim} features, and those of the shop {expected} (categories + price-bands + \
             numbers): start a server on another folder, as with `sclub serve --data shop`"
        ),
        Some(dim) => bail!("the server's items have {dim} features: simulate with --dim {dim}"),
    }
}

/// Adds a hint to a refusal.
fn explain(error: anyhow::Error, setting: &Setting) -> anyhow::Error {
    let refusal = error.downcast_ref::<Refusal>();
    let is_invalid = refusal.is_some_and(|refusal| refusal.code == "invalid");
    let is_gaussian = matches!(setting, Setting::Synthetic(recipe) if matches!(recipe.rewards, Rewards::Gaussian(_)));
    if is_invalid && is_gaussian {
        anyhow!(
            "{error}; with --rewards gaussian a server needs a wide --reward-min and --reward-max"
        )
    } else {
        error
    }
}

/// Gives a new server the number of users, which the lab's policies have too. Returns true if the server
/// has learned nothing and took the number.
async fn announce(connection: &mut Connection, state: &State, plan: &Plan) -> Result<bool> {
    let figure = plan.figure();
    if state.rounds > 0 {
        eprintln!(
            "sclub: the server has learned from {} rounds before, so the {figure} cannot be compared \
             with `sclub run`. The rewards of the simulated users u0, u1, … stay in its data",
            thousands(state.rounds as f64)
        );
        return Ok(false);
    }
    let body = json!({ "users": plan.world.users() }).to_string();
    match call(connection, "POST", "/v1/admin/expect", body.as_bytes()).await {
        Ok(_) => Ok(true),
        Err(error) => match error.downcast_ref::<Refusal>() {
            Some(refusal) if matches!(refusal.status, 403 | 404 | 409) => {
                eprintln!(
                    "sclub: the server does not take the number of users, so the {figure} cannot \
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
    rounds: u64,
    quiet: bool,
) -> Result<T> {
    let template = "{bar:20} {percent:>3}%  {human_pos} rounds, {msg}";
    let shown = BarOrLines::new(quiet, Some(rounds), template);
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
