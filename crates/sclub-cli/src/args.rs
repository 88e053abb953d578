//! The command line, parsed into plain values.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use sclub::Preset;
use sclub_lab::catalogue::{LinkKind, Visits};
use sclub_lab::held_out::Others;
use sclub_lab::named::Named;
use sclub_lab::policies::Name;
use sclub_lab::setting::Kind;
use sclub_lab::synthetic::{Frequencies, Sizes};
use sclub_lab::world::Rewards;

use crate::choices::{ConstantArgs, one_of, policies, policies_help, preset_of};

/// Recommends items to people it knows little about, and learns who is alike on the way.
#[derive(Debug, Parser)]
#[command(name = "sclub", version, max_term_width = 100)]
pub struct Args {
    /// The command.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run policies in a simulated world and compare their regret
    ///
    /// Users in clusters of equal tastes appear one a round. Each time a policy is given some random
    /// items, shows one, and gets a reward. Its regret is the reward that the best item would have
    /// brought more, on average. All policies face the same users, items and noise.
    ///
    /// With no flags at all: setting (1a) of the paper, the policies of the paper and of this project, 2^17-2 rounds, 3 seeds.
    Run(Box<RunArgs>),
    /// Make the paper's figures and tables, and an honest audit of them, on one page
    ///
    /// Runs the seven panels of Figure 1 with CLUB, LinUCB-Ind, LinUCB-One and SCLUB as they were
    /// published, and shows every cell of Tables 1 and 2 beside the published one. The page also has the
    /// differences between the published code and the paper with the effect of each, the theorems'
    /// bounds, and a harder test on the choices of real users.
    Paper(crate::paper::PaperArgs),

    /// Compare policies in many settings, in the paper's and others, in one table
    ///
    /// The paper's three synthetic settings; few and many clusters, users and features; clusters of very
    /// unequal size; users who differ inside their clusters; Gaussian noise; rare rewards; users who come one
    /// after the other; catalogues whose users are seen a few times each; and the choices of real users. One row for each setting, with the difference from
    /// LinUCB-Ind.
    Robust(crate::robust::RobustArgs),

    /// Compare all policies in all worlds, in one table with ranks and tests
    ///
    /// Plays every policy in the worlds of the papers on online clustering of bandits, with constants that were chosen for all of
    /// them by the same procedure. Writes one page with regrets, paired tests, ranks and costs.
    Field(Box<crate::field::FieldArgs>),

    /// Choose the constants of policies, all by the same procedure and budget
    ///
    /// Successive halving over the numbers among a policy's constants, on seeds that no table uses. Results are kept: the same
    /// command again goes on.
    Tune(crate::field::TuneArgs),

    /// Show what each part of sclub-soft is worth: the policy with one part off or changed at a time, in one table
    ///
    /// One row for the policy as it is and one for each change, one column for each world: users in clusters, users who
    /// are all different, a catalogue, and a catalogue whose rewards are late. All rows have the same seeds.
    Ablate(crate::ablate::AblateArgs),

    /// Make vectors of items from a catalogue, of users and items from ratings, or of both
    ///
    /// From a catalogue (--items): titles, tags, categories and prices become vectors, and the fitted transform is a file
    /// that new items go through. From ratings (--ratings): which user took which item, and the leading directions in
    /// which they differ (a singular value decomposition) are the features.
    Features(crate::features::FeaturesArgs),

    /// Recommend over HTTP: two calls, delayed rewards, nothing lost
    ///
    /// Starts the service on this machine, with a page that shows the clusters of users. No
    /// setting is required: users and items are added as they come, and all data are in one folder.
    Serve(Box<crate::serve::ServeArgs>),

    /// Play the simulated world of `sclub run` against a running server, or measure its speed
    ///
    /// Use a server of its own: the users u0, u1, … and their rewards stay in its data.
    ///
    /// Users in clusters of equal tastes ask the server for items and reward the ones it shows. Its regret
    /// is shown while it plays. A new server has exactly the regret of `sclub run` with the same flags,
    /// policy and seed, unless the policy makes fits, which a server makes in the background, or draws at random.
    ///
    /// With --world catalogue the server recommends the items of a shop. They are put into its catalogue first, which
    /// must be empty, and all of them are candidates in every round. Clicks by stage and by the user's age are shown
    /// beside those of informed, best-item and random, which are played here.
    Simulate(Box<crate::simulate::SimulateArgs>),

    /// Run several servers as one, over NATS JetStream
    ///
    /// Users are spread over partitions. Each partition has a log that NATS replicates, one node that writes it, and
    /// another that follows and takes over at once. Any node answers any request. `sclub cluster up` starts one on this
    /// machine; docs/cluster.md has the rest.
    Cluster {
        #[command(subcommand)]
        command: Box<crate::cluster::ClusterCommand>,
    },

    /// Estimate from a log what other policies would have earned
    ///
    /// Reads an export of a service that logs the probability of each choice, and estimates the mean reward of other policies,
    /// with 95% intervals. Says so if the log cannot tell.
    Evaluate(crate::evaluate::EvaluateArgs),

    /// Compare policies on a running server: start an experiment, show its results, end it
    ///
    /// Users are split over arms by a hash of their id. Each arm has its own policy, and every arm learns from every reward.
    /// Results have intervals that hold at any time one looks.
    Experiment {
        #[command(subcommand)]
        command: crate::experiment::ExperimentCommand,
    },

    /// Show the clusters of a running server, or one user's place in them
    ///
    /// Shows the number of clusters over time, the share of users without a cluster, and the gain in prediction
    /// from the clusters. With a user: the probability of each cluster, and the evidence for it in the user's
    /// rewards.
    Explain(crate::explain::ExplainArgs),

    /// Check the data folder of a server
    ///
    /// Reads every event in the folder, learns from all of them again, and prints their number and the
    /// hash that the server must have. The folder of another space than `default` is checked by itself: it is DIR/spaces/NAME.
    Verify(crate::keeping::VerifyArgs),

    /// Write all data of a space of a server into one file, also while it runs
    ///
    /// That is the space `default`, unless --data or --url is that of another one: --data DIR/spaces/NAME, or
    /// --url URL/v1/spaces/NAME. Each space needs a backup of its own; those that this one has not are named.
    Backup(crate::keeping::BackupArgs),

    /// Make a server's folder from a backup
    Restore(crate::keeping::RestoreArgs),

    /// Teach a new folder interactions of the past: user, item, reward, time
    ///
    /// Reads a file of interactions and learns from each of them, in the order of time, as from rewards that came through
    /// the API. The folder is complete or not there at all.
    Import(Box<crate::teach::ImportArgs>),

    /// Teach a new folder the history of another one, under another policy, preset or constants
    Reteach(Box<crate::teach::ReteachArgs>),

    /// Write decisions and rewards as JSON lines: user, item, position, propensity, features, score, reward, times
    Export(crate::keeping::ExportArgs),

    /// Print the completions of a shell
    Completions(crate::manual::CompletionsArgs),

    /// Print the manual page, or write the pages of all commands
    Man(crate::manual::ManArgs),
}

/// The flags of `sclub run`.
#[derive(Debug, Parser)]
#[command(after_long_help = EXAMPLES, args_override_self = true)]
pub struct RunArgs {
    /// Kind of world
    #[arg(long, value_parser = one_of::<Kind>(), default_value = "synthetic", help_heading = "World")]
    pub world: Kind,

    /// With --world vectors, ratings or ratings-leaky: file of users and the items that they took or rated, in any
    /// format that `sclub features` reads
    #[arg(long, value_name = "FILE", help_heading = "World")]
    pub ratings: Option<PathBuf>,

    #[command(flatten)]
    pub data: crate::reading::DataArgs,

    /// With --world ratings or ratings-leaky: how the candidates that the user did not take are drawn
    #[arg(long, value_parser = one_of::<Others>(), default_value = "uniform", help_heading = "World")]
    pub others: Others,

    /// With --world ratings or ratings-leaky: multiply the features by X. Estimates change as with a ridge penalty of 1/X^2 instead of 1
    #[arg(
        long,
        value_name = "X",
        default_value = "1",
        allow_negative_numbers = true,
        help_heading = "World"
    )]
    pub feature_scale: f64,

    /// With --world ratings or ratings-leaky: file of vectors of items, such as the items.csv of `sclub features --items`, as
    /// features in place of those made from the feature users
    #[arg(long, value_name = "FILE", help_heading = "World")]
    pub item_features: Option<PathBuf>,

    /// With --item-features: make features from the feature users as well. Items that they took have these, and for other
    /// items they are predicted from the vectors of the file
    #[arg(long, requires = "item_features", help_heading = "World")]
    pub with_interactions: bool,

    /// With --world ratings or ratings-leaky: share of items that are cold. Features are made as if no feature user took them,
    /// and all candidates are such items
    #[arg(
        long,
        value_name = "SHARE",
        default_value = "0",
        allow_negative_numbers = true,
        help_heading = "World"
    )]
    pub cold_items: f64,

    /// With --world ratings or ratings-leaky: give the policies the user of some other round, so that knowledge about a
    /// user is worthless
    #[arg(long, help_heading = "World")]
    pub placebo: bool,

    #[command(flatten)]
    pub recipe: RecipeArgs,

    #[command(flatten)]
    pub shop: ShopArgs,

    /// Rounds to play; 2^20-2 is understood [default: 2^17-2; with --world ratings: all; with --world
    /// catalogue: 12000]
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true, help_heading = "Run")]
    pub rounds: Option<u64>,

    /// Number of worlds to repeat everything in
    #[arg(long, value_name = "N", default_value = "3", value_parser = whole, allow_negative_numbers = true, help_heading = "Run")]
    pub seeds: u64,

    /// Seed of the first world; the others count up from it
    #[arg(long, value_name = "N", default_value = "1", value_parser = whole, allow_negative_numbers = true, help_heading = "Run")]
    pub first_seed: u64,

    /// Threads to use; the results are the same with any number [default: all cores]
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true, help_heading = "Run")]
    pub threads: Option<u64>,

    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        help = POLICIES,
        long_help = policies_help(POLICIES),
        help_heading = "Policies"
    )]
    pub policies: Option<Vec<Name>>,

    /// Set of constants, for policies that have several
    #[arg(long, value_parser = preset_of(&policies()), default_value = "tuned", help_heading = "Policies")]
    pub preset: Preset,

    /// File for the results; a figure goes beside it as .svg and .png, and missing folders are made
    #[arg(
        long,
        value_name = "FILE",
        default_value = "results/run.json",
        help_heading = "Output"
    )]
    pub json: PathBuf,

    /// Do not draw the figure
    #[arg(long, help_heading = "Output")]
    pub no_figure: bool,

    /// Show no progress
    #[arg(long, short, help_heading = "Output")]
    pub quiet: bool,

    /// Each goes to every policy that has it.
    #[command(flatten)]
    pub constants: ConstantArgs,

    /// The arguments that were typed, by name.
    #[arg(skip)]
    pub given: Vec<String>,
}

const POLICIES: &str = "Policies to run, separated by commas [default: the policies of the paper and of this project that the world allows; others play when they are named]";

/// The flags that a synthetic world is made from.
#[derive(Debug, Clone, clap::Args)]
pub struct RecipeArgs {
    /// Frequencies of users: how often each appears
    #[arg(long, value_parser = one_of::<Frequencies>(), default_value = "uniform", help_heading = "World")]
    pub frequencies: Frequencies,

    /// Number of users [with --world catalogue: 2000 by default]
    #[arg(long, value_name = "N", default_value = "1000", value_parser = whole, allow_negative_numbers = true, help_heading = "World")]
    pub users: u64,

    /// Number of clusters of equal tastes among them
    #[arg(long, value_name = "N", default_value = "10", value_parser = whole, allow_negative_numbers = true, help_heading = "World")]
    pub clusters: u64,

    /// Features of an item, a constant one included (1 to 512)
    #[arg(long, value_name = "N", default_value = "20", value_parser = whole, allow_negative_numbers = true, help_heading = "World")]
    pub dim: u64,

    /// Items to choose from in each round [with --world catalogue: 3000 by default, the same in every round]
    #[arg(long, value_name = "N", default_value = "20", value_parser = whole, allow_negative_numbers = true, help_heading = "World")]
    pub items: u64,

    /// Average number of users in a round, independent of each other; all are served before any is
    /// learned from
    /// [default: exactly one]
    #[arg(
        long,
        value_name = "X",
        allow_negative_numbers = true,
        help_heading = "World"
    )]
    pub users_a_round: Option<f64>,

    /// Kind of reward
    #[arg(long, value_parser = one_of::<Rewards>(), default_value = "bernoulli", help_heading = "World")]
    pub rewards: Rewards,

    /// Standard deviation of the noise, with --rewards gaussian [default: 0.5]
    #[arg(
        long,
        value_name = "R",
        allow_negative_numbers = true,
        help_heading = "World"
    )]
    pub noise: Option<f64>,

    /// Sizes of the clusters
    #[arg(long, value_parser = one_of::<Sizes>(), default_value = "equal", help_heading = "World")]
    pub sizes: Sizes,

    /// Difference between users of a cluster: each user's direction is that of the cluster plus a random vector
    /// of about this length, brought back to length 1
    #[arg(
        long,
        value_name = "S",
        default_value = "0",
        allow_negative_numbers = true,
        help_heading = "World"
    )]
    pub spread: f64,

    /// Multiply every mean reward by X, at most 1; 0.04 makes them rare, a mean of about 0.02 [default: 1; with
    /// --cascade: 0.2]
    #[arg(
        long,
        value_name = "X",
        allow_negative_numbers = true,
        help_heading = "World"
    )]
    pub reward_scale: Option<f64>,

    /// Users come one after the other, a new one every X rounds [default: all are there from the start]
    #[arg(
        long,
        value_name = "X",
        allow_negative_numbers = true,
        help_heading = "World"
    )]
    pub newcomers_every: Option<f64>,

    /// After N rounds every user changes to another cluster [default: never]
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true, help_heading = "World")]
    pub change_at: Option<u64>,

    /// Misspecified users: mean rewards differ from linear ones by up to E, a fixed number for each user and item
    #[arg(
        long,
        value_name = "E",
        default_value = "0",
        allow_negative_numbers = true,
        help_heading = VARIATIONS
    )]
    pub misspecified: f64,

    /// Corrupted users: a share S of the users gives rewards with the opposite taste. Regret counts true means
    #[arg(
        long,
        value_name = "S",
        default_value = "0",
        allow_negative_numbers = true,
        help_heading = VARIATIONS
    )]
    pub corrupted: f64,

    /// With --corrupted: number of rounds, from the first, in which they do
    #[arg(long, value_name = "N", default_value = "20000", value_parser = whole, allow_negative_numbers = true, help_heading = VARIATIONS)]
    pub corrupted_rounds: u64,

    /// Fixed set of N items with ids; the candidates of a round are a random part of them [default: new items in each
    /// round]
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true, help_heading = VARIATIONS)]
    pub items_fixed: Option<u64>,

    /// With --items-fixed: the items form C clusters, and users are grouped anew for each of them [default: none]
    #[arg(long, value_name = "C", value_parser = whole, allow_negative_numbers = true, help_heading = VARIATIONS)]
    pub item_clusters: Option<u64>,

    /// Lists of K items, of which the user clicks the first attractive one. Regret counts lists by the probability of
    /// a click [default: one item a round]
    #[arg(long, value_name = "K", value_parser = whole, allow_negative_numbers = true, help_heading = VARIATIONS)]
    pub cascade: Option<u64>,

    /// Overlapping clusters: each user lies between two clusters, and users of one cluster are less than G apart
    #[arg(
        long,
        value_name = "G",
        default_value = "0",
        allow_negative_numbers = true,
        help_heading = VARIATIONS
    )]
    pub overlap: f64,

    /// Smoothed items: all near one plane, plus noise of this standard deviation [default: items in all directions]
    #[arg(
        long,
        value_name = "SIGMA",
        allow_negative_numbers = true,
        help_heading = VARIATIONS
    )]
    pub smoothed: Option<f64>,

    /// Number of servers, told to policies that have several; each user is at home on one of them [default: none are
    /// told]
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true, help_heading = VARIATIONS)]
    pub servers: Option<u64>,
}

const VARIATIONS: &str = "Settings of other papers (docs/worlds.md)";

impl RecipeArgs {
    /// The flags by id, with their values as text.
    pub fn to_text(&self) -> [(&'static str, String); 22] {
        let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
        let whole = |value: Option<u64>| value.map_or_else(String::new, |value| value.to_string());
        [
            ("frequencies", self.frequencies.name().to_owned()),
            ("users", self.users.to_string()),
            ("clusters", self.clusters.to_string()),
            ("dim", self.dim.to_string()),
            ("items", self.items.to_string()),
            ("users_a_round", number(self.users_a_round)),
            ("rewards", self.rewards.name().to_owned()),
            ("noise", number(self.noise)),
            ("sizes", self.sizes.name().to_owned()),
            ("spread", self.spread.to_string()),
            ("reward_scale", number(self.reward_scale)),
            ("newcomers_every", number(self.newcomers_every)),
            ("change_at", whole(self.change_at)),
            ("misspecified", self.misspecified.to_string()),
            ("corrupted", self.corrupted.to_string()),
            ("corrupted_rounds", self.corrupted_rounds.to_string()),
            ("items_fixed", whole(self.items_fixed)),
            ("item_clusters", whole(self.item_clusters)),
            ("cascade", whole(self.cascade)),
            ("overlap", self.overlap.to_string()),
            ("smoothed", number(self.smoothed)),
            ("servers", whole(self.servers)),
        ]
    }
}

/// The flags that the shop of `--world catalogue` is made from, besides users, items and newcomers.
#[derive(Debug, Clone, clap::Args)]
pub struct ShopArgs {
    /// Categories of items; each is a feature, 0 or 1
    #[arg(long, value_name = "N", default_value = "6", value_parser = whole, allow_negative_numbers = true, help_heading = CATALOGUE)]
    pub categories: u64,

    /// Price bands of items; each is a feature, 0 or 1
    #[arg(long, value_name = "N", default_value = "3", value_parser = whole, allow_negative_numbers = true, help_heading = CATALOGUE)]
    pub price_bands: u64,

    /// Features of items that are normal numbers
    #[arg(long, value_name = "N", default_value = "7", value_parser = whole, allow_negative_numbers = true, help_heading = CATALOGUE)]
    pub numbers: u64,

    /// Standard deviation of these numbers
    #[arg(
        long,
        value_name = "S",
        default_value = "0.4",
        allow_negative_numbers = true,
        help_heading = CATALOGUE
    )]
    pub number_scale: f64,

    /// Number of tastes; as many users have one as another
    #[arg(long, value_name = "N", default_value = "6", value_parser = whole, allow_negative_numbers = true, help_heading = CATALOGUE)]
    pub tastes: u64,

    /// Standard deviation of a taste's weights
    #[arg(
        long,
        value_name = "S",
        default_value = "0.9",
        allow_negative_numbers = true,
        help_heading = CATALOGUE
    )]
    pub taste_scale: f64,

    /// Standard deviation of the difference between a user's weights and those of the taste
    #[arg(
        long,
        value_name = "S",
        default_value = "0.2",
        allow_negative_numbers = true,
        help_heading = CATALOGUE
    )]
    pub deviation: f64,

    /// Probability of a click from theta.x, the product of a user's weights and an item's features
    #[arg(long, value_parser = one_of::<LinkKind>(), default_value = "logistic", help_heading = CATALOGUE)]
    pub link: LinkKind,

    /// Factor of theta.x in the link [default: 1; with --link linear: 0.08]
    #[arg(
        long,
        value_name = "X",
        allow_negative_numbers = true,
        help_heading = CATALOGUE
    )]
    pub link_scale: Option<f64>,

    /// Number added to it [default: -3.2; with --link linear: 0.3]
    #[arg(
        long,
        value_name = "X",
        allow_negative_numbers = true,
        help_heading = CATALOGUE
    )]
    pub bias: Option<f64>,

    /// Frequencies of users
    #[arg(long, value_parser = one_of::<Visits>(), default_value = "uniform", help_heading = CATALOGUE)]
    pub visits: Visits,

    /// With --visits zipf: the exponent of the power law
    #[arg(
        long,
        value_name = "X",
        default_value = "1",
        allow_negative_numbers = true,
        help_heading = CATALOGUE
    )]
    pub zipf_exponent: f64,

    /// Rounds by which rewards are late
    #[arg(long, value_name = "N", default_value = "0", value_parser = whole, allow_negative_numbers = true, help_heading = CATALOGUE)]
    pub delay: u64,

    /// Items shown in a round, each with a click or none
    #[arg(long, value_name = "K", default_value = "1", value_parser = whole, allow_negative_numbers = true, help_heading = CATALOGUE)]
    pub slots: u64,
}

impl ShopArgs {
    /// The flags by id, with their values as text.
    pub fn to_text(&self) -> [(&'static str, String); 14] {
        let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
        [
            ("categories", self.categories.to_string()),
            ("price_bands", self.price_bands.to_string()),
            ("numbers", self.numbers.to_string()),
            ("number_scale", self.number_scale.to_string()),
            ("tastes", self.tastes.to_string()),
            ("taste_scale", self.taste_scale.to_string()),
            ("deviation", self.deviation.to_string()),
            ("link", self.link.name().to_owned()),
            ("link_scale", number(self.link_scale)),
            ("bias", number(self.bias)),
            ("visits", self.visits.name().to_owned()),
            ("zipf_exponent", self.zipf_exponent.to_string()),
            ("delay", self.delay.to_string()),
            ("slots", self.slots.to_string()),
        ]
    }
}

const CATALOGUE: &str = "World catalogue";

const EXAMPLES: &str = "\
Examples:
  sclub run
      the policies of the paper and of this project in setting (1a), half a minute at most
  sclub run --frequencies users --policies sclub,club,linucb-ind
      setting (1c): users appear at unequal rates
  sclub run --preset released --rounds 2^20-2 --seeds 10 --policies club,linucb-ind,linucb-one
      the first panel of the paper's Figure 1 without sclub; with it, and with all panels: sclub paper
  sclub run --world ratings --ratings ml-1m/ratings.dat --beta-scale 0.02
      choices of real users: share of the rounds in which the item that they took was shown
  sclub run --world catalogue --policies sclub-soft,linucb-one,linucb-ind --seeds 4
      a shop of 3000 items, all of them candidates, and users who are seen six times each: clicks by stage
  sclub run --users 5000 --clusters 30 --dim 10 --items 50
      a world of your own
  sclub run --rewards gaussian --noise 0.1 --alpha-theta 1.5
      other rewards, another constant
  sclub run --sizes unequal --spread 0.4 --reward-scale 0.04
      a few large clusters and many small ones, users who differ inside them, rare rewards
  sclub run --rounds 2^17 --change-at 2^16
      all users change to other clusters half way
  sclub run --items-fixed 1000 --misspecified 0.2 --rewards gaussian --noise 0.1
      a fixed set of items, and mean rewards that are not quite linear
  sclub run --users 900 --items 1000 --items-fixed 1000 --cascade 4
      lists of four items, of which the user clicks the first attractive one
";

/// Reads a whole number, also as `2^20-2`, `2^17`, `10^6` or `1_000_000`.
pub fn whole(text: &str) -> Result<u64, String> {
    let plain = text.replace(['_', ','], "");
    let bad = || format!("'{text}' is not a whole number; write 1000, 1_000 or 2^20-2");
    let (power, less) = match plain.split_once('-') {
        Some((power, less)) => (power, less.parse().map_err(|_| bad())?),
        None => (plain.as_str(), 0),
    };
    let value = match power.split_once('^') {
        Some((base, exponent)) => {
            let base: u64 = base.parse().map_err(|_| bad())?;
            let exponent: u32 = exponent.parse().map_err(|_| bad())?;
            base.checked_pow(exponent)
                .ok_or_else(|| format!("'{text}' is too large; it must be at most {}", u64::MAX))?
        }
        None if less == 0 && !power.is_empty() && power.bytes().all(|c| c.is_ascii_digit()) => {
            power
                .parse()
                .map_err(|_| format!("'{text}' is too large; it must be at most {}", u64::MAX))?
        }
        None => return Err(bad()),
    };
    value
        .checked_sub(less)
        .ok_or_else(|| format!("'{text}' is below zero"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_arguments_are_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn whole_numbers_can_be_powers() {
        assert_eq!(whole("2^20-2"), Ok(1_048_574));
        assert_eq!(whole("1_000"), Ok(1000));
        assert_eq!(whole("10^6"), Ok(1_000_000));
        assert!(whole("2^64").unwrap_err().contains("too large"));
        assert!(
            whole("99999999999999999999")
                .unwrap_err()
                .contains("too large")
        );
        for bad in ["", "x", "-1", "5-2", "2^", "1.5", "2^3-9"] {
            assert!(whole(bad).is_err(), "{bad}");
        }
    }
}
