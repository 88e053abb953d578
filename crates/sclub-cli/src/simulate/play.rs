//! The lab's world against a running server.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::io::Write;
use std::ops::Range;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{CellAlignment, Table};
use futures_util::future::try_join_all;
use sclub::Preset;
use sclub_lab::document::world_json;
use sclub_lab::named::Named;
use sclub_lab::setting::Setting;
use sclub_lab::summary::thousands;
use sclub_lab::synthetic::{Recipe, Synthetic};
use sclub_lab::world::{Block, Blocks, Rewards, Tally, World};
use sclub_server::client::Connection;
use sclub_server::settings::Literal;
use serde::Deserialize;
use serde_json::{Value, json};

use super::latency::{Latencies, shown};
use super::{SimulateArgs, connections};
use crate::files::{print_line, save};
use crate::progress::BarOrLines;
use crate::remote::{Refusal, Remote, block_on, body_of, call};
use crate::run::{INTERRUPTED, recipe, stop_on_ctrl_c};

/// Rewards that the rate of rewards is taken over.
const RECENT: usize = 1000;

/// Between two looks at the bar.
const REDRAW: Duration = Duration::from_millis(100);

/// Redraws between two questions for the number of clusters.
const ASK_EVERY: u32 = 10;

/// The answer of `/v1/state`, as far as it matters here.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct State {
    /// Rounds so far.
    pub rounds: u64,
    /// Clusters now.
    pub clusters: u64,
    /// The policy that learns.
    #[serde(default)]
    pub policy: String,
    /// With which constants.
    #[serde(default)]
    pub preset: String,
    /// The constants that differ from the preset's.
    #[serde(default)]
    pub constants: BTreeMap<String, Literal>,
    /// Features, once they are known.
    pub dim: Option<usize>,
    /// Of the server.
    #[serde(default)]
    pub version: String,
}

/// Asks a server how it is.
pub async fn state(connection: &mut Connection) -> Result<State> {
    let state = call(connection, "GET", "/v1/state", b"").await?;
    serde_json::from_value(state)
        .with_context(|| format!("what answers at {} is no sclub server", connection.url()))
}

/// A recommendation, as far as it matters here.
#[derive(Debug, Deserialize)]
pub struct Decision<'r> {
    /// The id of the decision, which the reward names.
    #[serde(borrow)]
    pub decision: Cow<'r, str>,
    /// The items to show, the best first.
    #[serde(borrow)]
    pub items: Vec<Shown<'r>>,
}

/// An item to show.
#[derive(Debug, Deserialize)]
pub struct Shown<'r> {
    /// Its id.
    #[serde(borrow)]
    pub id: Cow<'r, str>,
}

/// The answer to a batch of requests.
#[derive(Debug, Deserialize)]
pub struct Decisions<'r> {
    /// One for each request, in their order.
    #[serde(borrow)]
    pub decisions: Vec<Decision<'r>>,
}

impl Decision<'_> {
    /// The candidate to be shown.
    fn choice(&self, candidates: usize) -> Result<usize> {
        let id = self.items.first().map(|item| &*item.id).unwrap_or_default();
        id.parse()
            .ok()
            .filter(|&choice| choice < candidates)
            .ok_or_else(|| anyhow!("the server shows item '{id}', which it was not offered"))
    }
}

/// The rounds that nobody has taken yet.
struct Feed<'w> {
    world: &'w dyn World,
    blocks: Blocks<'w>,
    block: Rc<Block>,
    round: usize,
}

impl<'w> Feed<'w> {
    fn new(world: &'w dyn World, rounds: u64) -> Self {
        Self {
            world,
            blocks: Blocks::new(world, rounds),
            block: Rc::new(world.new_block()),
            round: 0,
        }
    }

    /// The users of the next round, in their block.
    fn next(&mut self) -> Option<(Rc<Block>, Range<usize>)> {
        if self.round == self.block.rounds() {
            // Others may still be playing the last one.
            if Rc::get_mut(&mut self.block).is_none() {
                self.block = Rc::new(self.world.new_block());
            }
            let block = Rc::get_mut(&mut self.block)?;
            if self.blocks.draw(block).is_none() {
                block.clear(0);
                self.round = 0;
                return None;
            }
            self.round = 0;
        }
        let users = self.block.users_of(self.round);
        self.round += 1;
        Some((Rc::clone(&self.block), users))
    }
}

/// A game under way.
struct Game<'w> {
    feed: Feed<'w>,
    tally: Tally,
    rounds: u64,
    recent: VecDeque<f64>,
    recommend: Latencies,
    feedback: Latencies,
    clusters: Option<u64>,
}

impl Game<'_> {
    fn count(&mut self, block: &Block, at: usize, choice: usize) -> f64 {
        let reward = self.tally.count(block, at, choice);
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(reward);
        reward
    }

    /// The current results, in a few words.
    fn standing(&self) -> String {
        let mut text = format!(
            "regret {} (random {})",
            thousands(self.tally.regret),
            thousands(self.tally.random_regret)
        );
        if !self.recent.is_empty() {
            let rate = self.recent.iter().sum::<f64>() / self.recent.len() as f64;
            text.push_str(&format!(", reward {rate:.3}"));
        }
        if let Some(clusters) = self.clusters {
            let many = if clusters == 1 { "" } else { "s" };
            text.push_str(&format!(", {} cluster{many}", thousands(clusters as f64)));
        }
        text
    }
}

/// Plays rounds over a connection of its own.
struct Player<'g, 'w> {
    game: &'g RefCell<Game<'w>>,
    connection: Connection,
    prefix: &'g str,
    cancelled: &'g AtomicBool,
    body: Vec<u8>,
}

impl Player<'_, '_> {
    async fn play(mut self) -> Result<()> {
        while !self.cancelled.load(Ordering::Relaxed) {
            let next = self.game.borrow_mut().feed.next();
            let Some((block, users)) = next else {
                break;
            };
            if block.ends.is_empty() {
                self.play_one(&block, users.start).await?;
            } else {
                self.play_together(&block, users).await?;
            }
            self.game.borrow_mut().rounds += 1;
        }
        Ok(())
    }

    async fn play_one(&mut self, block: &Block, at: usize) -> Result<()> {
        self.body.clear();
        write_request(&mut self.body, self.prefix, block, at)?;
        let start = Instant::now();
        let response = self
            .connection
            .request("POST", "/v1/recommend", &self.body)
            .await?;
        let took = start.elapsed();
        let decision: Decision<'_> = read(body_of(&response)?)?;
        let choice = decision.choice(block.candidates)?;
        let reward = {
            let mut game = self.game.borrow_mut();
            game.recommend.add(took);
            game.count(block, at, choice)
        };
        self.body.clear();
        write_feedback(&mut self.body, &decision.decision, reward)?;
        let start = Instant::now();
        let response = self
            .connection
            .request("POST", "/v1/feedback", &self.body)
            .await?;
        body_of(&response)?;
        self.game.borrow_mut().feedback.add(start.elapsed());
        Ok(())
    }

    /// One time slot: all are served on the same history. One in which nobody appears passes too.
    async fn play_together(&mut self, block: &Block, users: Range<usize>) -> Result<()> {
        let mut rewarded = Vec::new();
        if !users.is_empty() {
            self.body.clear();
            self.body.extend_from_slice(b"{\"requests\":[");
            for at in users.clone() {
                separate(&mut self.body);
                write_request(&mut self.body, self.prefix, block, at)?;
            }
            self.body.extend_from_slice(b"]}");
            let start = Instant::now();
            let response = self
                .connection
                .request("POST", "/v1/recommend/batch", &self.body)
                .await?;
            let took = start.elapsed();
            let Decisions { decisions } = read(body_of(&response)?)?;
            if decisions.len() != users.len() {
                let (got, asked) = (decisions.len(), users.len());
                bail!("the server answered {got} of {asked} requests");
            }
            let mut game = self.game.borrow_mut();
            game.recommend.add(took);
            for (at, decision) in users.zip(&decisions) {
                let choice = decision.choice(block.candidates)?;
                let reward = game.count(block, at, choice);
                rewarded.push((decision.decision.clone().into_owned(), reward));
            }
        }
        self.body.clear();
        self.body.extend_from_slice(b"{\"feedback\":[");
        for (decision, reward) in &rewarded {
            separate(&mut self.body);
            write_feedback(&mut self.body, decision, *reward)?;
        }
        self.body.extend_from_slice(b"]}");
        let start = Instant::now();
        let response = self
            .connection
            .request("POST", "/v1/feedback/batch", &self.body)
            .await?;
        body_of(&response)?;
        self.game.borrow_mut().feedback.add(start.elapsed());
        Ok(())
    }
}

/// Reads what a server said.
pub fn read<'r, T: Deserialize<'r>>(body: &'r [u8]) -> Result<T> {
    serde_json::from_slice(body).context("the server's answer is not understood")
}

/// A comma, unless it is the first.
fn separate(body: &mut Vec<u8>) {
    if body.last() != Some(&b'[') {
        body.push(b',');
    }
}

/// A user with her candidates, whose ids are their numbers.
fn write_request(body: &mut Vec<u8>, prefix: &str, block: &Block, at: usize) -> Result<()> {
    let user = format_args!("{prefix}{}", block.users[at]).to_string();
    body.extend_from_slice(b"{\"user\":");
    serde_json::to_writer(&mut *body, &user)?;
    body.extend_from_slice(b",\"items\":[");
    let items = &block.items[at];
    for index in 0..items.len() {
        separate(body);
        write!(body, "{{\"id\":\"{index}\",\"features\":[")?;
        for feature in items.item(index) {
            separate(body);
            serde_json::to_writer(&mut *body, &feature)?;
        }
        body.extend_from_slice(b"]}");
    }
    body.extend_from_slice(b"]}");
    Ok(())
}

/// A reward for what was decided.
pub fn write_feedback(body: &mut Vec<u8>, decision: &str, reward: f64) -> Result<()> {
    body.extend_from_slice(b"{\"decision\":");
    serde_json::to_writer(&mut *body, decision)?;
    body.extend_from_slice(b",\"reward\":");
    serde_json::to_writer(&mut *body, &reward)?;
    body.push(b'}');
    Ok(())
}

/// The result of a game.
struct Outcome {
    tally: Tally,
    rounds: u64,
    seconds: f64,
    recommend: Latencies,
    feedback: Latencies,
    /// The server at the end.
    state: State,
    /// True if the server was new and was told the number of users.
    is_fresh: bool,
    error: Option<anyhow::Error>,
}

/// Plays, shows and writes.
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
    let game = RefCell::new(Game {
        feed: Feed::new(world, args.rounds),
        tally: Tally::default(),
        rounds: 0,
        recent: VecDeque::with_capacity(RECENT),
        recommend: Latencies::default(),
        feedback: Latencies::default(),
        clusters: None,
    });
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

/// Adds what can be done about a refusal.
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

/// Tells a new server how many users there are, as the lab's policies are told. Returns whether it is
/// as new as they are.
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
                    "sclub: the server cannot be told how many users there are, so the regret cannot \
                     be compared with `sclub run`: {refusal}"
                );
                Ok(false)
            }
            _ => Err(error),
        },
    }
}

/// Shows how the game goes, for ever.
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
        if turn.is_multiple_of(ASK_EVERY) {
            // How many clusters there are is only shown; the game ends on its own troubles.
            let clusters = state(watch).await.ok().map(|state| state.clusters);
            let mut game = game.borrow_mut();
            game.clusters = clusters.or(game.clusters);
            let now = Instant::now();
            let seconds = now.duration_since(last.0).as_secs_f64();
            rate = (game.rounds - last.1) as f64 / seconds;
            last = (now, game.rounds);
        }
        let game = game.borrow();
        let standing = format!("{}/s, {}", thousands(rate), game.standing());
        let rounds = game.rounds;
        shown.line(|seconds| format!("{rounds} rounds after {seconds:.0} s, {standing}"));
        shown.bar.set_position(rounds);
        shown.bar.set_message(standing);
    }
    unreachable!("the game ends before the turns do")
}

fn table(outcome: &Outcome) -> String {
    let Tally {
        regret,
        random_regret,
        reward,
        served,
    } = outcome.tally;
    let number = |value: f64| match value {
        value if value < 100.0 => format!("{value:.2}"),
        value => thousands(value),
    };
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
    let standing = lined_up(
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
    let calls = [
        ("recommend", &outcome.recommend),
        ("feedback", &outcome.feedback),
    ];
    let calls = lined_up(
        ["call", "p50", "p99", "max"],
        calls.map(|(call, took)| {
            let times = [took.quantile(0.5), took.quantile(0.99), took.longest()];
            let [p50, p99, max] = times.map(shown);
            [call.to_owned(), p50, p99, max]
        }),
    );
    format!("{standing}\n{calls}")
}

/// Rows under a header; the numbers to the right.
fn lined_up<const N: usize>(
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

/// The command that gives the same regret, if there is one.
fn same_run(args: &SimulateArgs, outcome: &Outcome, connections: usize) -> Option<String> {
    let is_whole = outcome.error.is_none() && outcome.rounds == args.rounds;
    // Each at a moment of its own.
    let policy = sclub::find_policy(&outcome.state.policy)?;
    if !(is_whole && outcome.is_fresh && connections == 1) || policy.can.fit {
        return None;
    }
    let State { policy, preset, .. } = &outcome.state;
    let mut command = format!("sclub run --policies {policy}");
    if preset != Preset::Default.as_str() {
        command.push_str(&format!(" --preset {preset}"));
    }
    command.push_str(&format!(
        " --seeds 1 --first-seed {} --rounds {}",
        args.first_seed, args.rounds
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
        command.push_str(&format!(" --{name} {value}"));
    }
    let recipe = &args.recipe;
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    for (id, value) in [
        ("frequencies", recipe.frequencies.name().to_owned()),
        ("users", recipe.users.to_string()),
        ("clusters", recipe.clusters.to_string()),
        ("dim", recipe.dim.to_string()),
        ("items", recipe.items.to_string()),
        ("users_a_round", number(recipe.users_a_round)),
        ("rewards", recipe.rewards.name().to_owned()),
        ("noise", number(recipe.noise)),
        ("sizes", recipe.sizes.name().to_owned()),
        ("spread", recipe.spread.to_string()),
        ("reward_scale", recipe.reward_scale.to_string()),
        ("newcomers_every", number(recipe.newcomers_every)),
        (
            "change_at",
            recipe.change_at.map_or_else(String::new, |n| n.to_string()),
        ),
    ] {
        if args.given.iter().any(|given| given == id) {
            command.push_str(&format!(" --{} {value}", id.replace('_', "-")));
        }
    }
    Some(command)
}

fn document(args: &SimulateArgs, recipe: &Recipe, outcome: &Outcome, connections: usize) -> Value {
    let mut config = world_json(&Setting::Synthetic(*recipe));
    config["version"] = json!(env!("CARGO_PKG_VERSION"));
    config["rounds"] = json!(args.rounds);
    config["first_seed"] = json!(args.first_seed);
    config["connections"] = json!(connections);
    config["policy"] = json!(outcome.state.policy);
    config["preset"] = json!(outcome.state.preset);
    config["server_version"] = json!(outcome.state.version);
    let Tally {
        regret,
        random_regret,
        reward,
        served,
    } = outcome.tally;
    json!({
        "config": config,
        "complete": outcome.error.is_none() && outcome.rounds == args.rounds,
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
    })
}
