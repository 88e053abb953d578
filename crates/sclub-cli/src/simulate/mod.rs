//! `sclub simulate`: plays a world of the lab against a running server, or measures its speed.

mod latency;
mod load;
mod play;
mod wire;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::ValueEnum;
use sclub_lab::setting::Kind;

use crate::args::{RecipeArgs, ShopArgs, whole};
use crate::choices::one_of_those;
use crate::files::{prepare_file, prepare_folder};
use crate::remote::TrustArgs;
use crate::run::{SHOP_FLAGS, SYNTHETIC_FLAGS, refuse_what_does_not_apply};

/// Maximum number of connections to one server.
const MAX_CONNECTIONS: u64 = 10_000;

/// The flags of `sclub simulate`.
#[derive(Debug, clap::Parser)]
#[command(after_long_help = EXAMPLES)]
pub struct SimulateArgs {
    /// Address of the server
    #[arg(
        long,
        value_name = "URL",
        env = "SCLUB_URL",
        default_value = "http://127.0.0.1:8080",
        help_heading = "Server"
    )]
    pub url: String,

    #[command(flatten)]
    pub trust: TrustArgs,

    /// Kind of world
    #[arg(long, value_parser = one_of_those(can_play), default_value = "synthetic", help_heading = "World")]
    pub world: Kind,

    #[command(flatten)]
    pub recipe: RecipeArgs,

    #[command(flatten)]
    pub shop: ShopArgs,

    /// Rounds to play; 2^20-2 is understood [default: 20000; with --world catalogue: 12000]
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true, help_heading = "Run")]
    pub rounds: Option<u64>,

    /// Seed of the world
    #[arg(long, value_name = "N", default_value = "1", value_parser = whole, allow_negative_numbers = true, help_heading = "Run")]
    pub first_seed: u64,

    /// Prefix of the users' ids; a number follows
    #[arg(long, value_name = "TEXT", default_value = "u", help_heading = "Run")]
    pub prefix: String,

    /// Rewards that are sent: of all items shown; only those of clicked items; or those of clicked items with
    /// `"others": 0` for the rest of the list
    #[arg(
        long,
        value_enum,
        value_name = "WHICH",
        default_value = "all",
        help_heading = "Run"
    )]
    pub feedback: Sent,

    /// Connections at once. Several play rounds in no fixed order, so the results are not exactly those of
    /// `sclub run` [default: 1; with --load 64]
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true, help_heading = "Run")]
    pub connections: Option<u64>,

    /// Measure the speed of the server instead. This adds items and users, so use a server that has no
    /// others
    #[arg(long, value_enum, value_name = "WHAT", num_args = 0..=1, default_missing_value = "all", help_heading = "Load")]
    pub load: Option<Load>,

    /// With --load: seconds for each measurement
    #[arg(
        long,
        value_name = "X",
        default_value = "5",
        allow_negative_numbers = true,
        help_heading = "Load"
    )]
    pub seconds: f64,

    /// With --load: number of measurements of each kind, in turns; medians are shown
    #[arg(long, value_name = "N", default_value = "3", value_parser = whole, allow_negative_numbers = true, help_heading = "Load")]
    pub repeat: u64,

    /// With --load: threads that send
    #[arg(long, value_name = "N", default_value = "1", value_parser = whole, allow_negative_numbers = true, help_heading = "Load")]
    pub threads: u64,

    /// With --load: also measure appending 512 bytes to a file in this folder and syncing it, for comparison
    /// with durable feedback
    #[arg(long, value_name = "DIR", help_heading = "Load")]
    pub disk: Option<std::path::PathBuf>,

    /// With --load catalogue: number of items
    #[arg(long, value_name = "N", default_value = "100000", value_parser = whole, allow_negative_numbers = true, help_heading = "Load")]
    pub catalogue: u64,

    /// With --load catalogue: items to ask for
    #[arg(long, value_name = "K", default_value = "10", value_parser = whole, allow_negative_numbers = true, help_heading = "Load")]
    pub k: u64,

    /// File for the result with all its digits
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub json: Option<PathBuf>,

    /// Show no progress
    #[arg(long, short, help_heading = "Output")]
    pub quiet: bool,

    /// The arguments that were typed, by name.
    #[arg(skip)]
    pub given: Vec<String>,
}

const EXAMPLES: &str = "\
Examples:
  sclub simulate
      1000 users in 10 clusters, 20000 rounds; open http://127.0.0.1:8080 to watch
  sclub simulate --frequencies users --users 200 --rounds 2^17-2
      users at unequal rates, for longer
  sclub simulate --world catalogue --delay 500
      a shop of 3000 items, and rewards that come 500 rounds late: clicks by stage, beside yardsticks
  sclub simulate --world catalogue --feedback others
      the same shop; feedback names what was clicked, with 0 for the others
  sclub simulate --load
      requests a second and their latencies: empty ones, recommendations, rewards
  sclub simulate --load catalogue --dim 32
      the best 10 of 100,000 items
";

/// The rewards that are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Sent {
    /// Rewards of all items shown
    All,
    /// Rewards that are not 0
    Clicks,
    /// Rewards that are not 0, and 0 for the others of the list
    Others,
}

/// A measurement of `--load`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Load {
    /// healthz, recommend and feedback in turns, then recommend at half of the rate that it reached
    All,
    /// A request that does nothing
    Healthz,
    /// Recommendations among items of the catalogue
    Recommend,
    /// healthz, and recommendations among items of the catalogue with a filter on tags and numbers, in turns
    Filter,
    /// Rewards that survive a crash
    Feedback,
    /// Recommendations over a whole catalogue, one connection
    Catalogue,
}

/// Plays, or measures the speed.
pub fn simulate(args: &SimulateArgs) -> Result<ExitCode> {
    check_flags_apply(args)?;
    if let Some(json) = &args.json {
        if let Some(folder) = json.parent().filter(|at| !at.as_os_str().is_empty()) {
            prepare_folder(folder)?;
        }
        prepare_file(json)?;
    }
    match args.load {
        Some(what) => load::load(args, what),
        None => play::play(args),
    }
}

/// Flags that the lab alone can play: a request has no ids that items keep, and no list that is looked at in part.
const LAB_FLAGS: [&str; 4] = ["items_fixed", "item_clusters", "cascade", "servers"];

/// True for worlds that can be played over HTTP.
fn can_play(world: &Kind) -> bool {
    matches!(world, Kind::Synthetic | Kind::Catalogue)
}

fn check_flags_apply(args: &SimulateArgs) -> Result<()> {
    let without: &[&[&str]] = match args.load {
        None => &[&["seconds", "repeat", "threads", "disk", "catalogue", "k"]],
        Some(_) => &[
            &[
                "world",
                "rounds",
                "first_seed",
                "prefix",
                "clusters",
                "feedback",
            ],
            &SYNTHETIC_FLAGS,
            &["newcomers_every"],
            &SHOP_FLAGS,
        ],
    };
    let typed = without
        .iter()
        .copied()
        .flatten()
        .find(|name| args.given.iter().any(|g| g == *name));
    if let Some(name) = typed {
        let flag = name.replace('_', "-");
        match args.load {
            None => bail!("--{flag} goes with --load"),
            Some(_) => bail!("--{flag} does not apply to --load"),
        }
    }
    if let Some(name) = LAB_FLAGS
        .into_iter()
        .find(|name| args.given.iter().any(|g| g == name))
    {
        let flag = name.replace('_', "-");
        bail!("--{flag} does not apply to a server; `sclub run` has it");
    }
    refuse_what_does_not_apply(args.world, &args.given)
}

/// The connections to open.
fn connections(args: &SimulateArgs, default: u64) -> Result<usize> {
    let connections = args.connections.unwrap_or(default);
    if !(1..=MAX_CONNECTIONS).contains(&connections) {
        bail!("connections is {connections}; it must be between 1 and {MAX_CONNECTIONS}");
    }
    Ok(connections as usize)
}
