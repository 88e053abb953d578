//! `sclub run`: arguments to an experiment, the experiment to a table and files.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use sclub_lab::catalogue::{Link, Shop, Visits};
use sclub_lab::clustering;
use sclub_lab::data::{Interactions, features, read_vectors};
use sclub_lab::document::config;
use sclub_lab::figure;
use sclub_lab::held_out::{Content, ContentMode};
use sclub_lab::named::Named;
use sclub_lab::policies::{Name, choose};
use sclub_lab::run::{Experiment, Run, threads};
use sclub_lab::setting::{Kind, Setting};
use sclub_lab::summary::{Row, summarise, thousands};
use sclub_lab::synthetic::{CASCADE_SCALE, Frequencies, Recipe, Twists};
use sclub_lab::world::Rewards;
use serde_json::json;

use crate::args::{RecipeArgs, RunArgs, ShopArgs};
use crate::files::{prepare_file, prepare_folder, print_line, save};
use crate::progress::Progress;
use crate::reading::{Reading, read_file};
use crate::table;
use crate::title::title;

/// The exit code that a shell expects after Ctrl-C.
pub const INTERRUPTED: u8 = 130;

/// Runs, shows and writes.
pub fn run(args: &RunArgs) -> Result<ExitCode> {
    refuse_what_does_not_apply(args.world, &args.given)?;
    if args.world == Kind::Vectors && args.recipe.frequencies == Frequencies::Clusters {
        bail!("--frequencies clusters does not apply to --world vectors, which has none");
    }
    prepare(args)?;
    let experiment = experiment(args)?;
    experiment.check()?;
    if let Setting::Catalogue(shop) = &experiment.world
        && shop.delay >= experiment.rounds
    {
        eprintln!(
            "sclub: rewards come {} rounds late, so none arrives in {} rounds and nothing is learned",
            thousands(shop.delay as f64),
            thousands(experiment.rounds as f64)
        );
    }

    let cancelled = Arc::new(AtomicBool::new(false));
    stop_on_ctrl_c(&cancelled)?;
    let plays = (experiment.policies.len() * experiment.seeds.len()) as u64;
    let total = experiment
        .world
        .expected_rounds(experiment.rounds)
        .saturating_mul(plays);
    let progress = Progress::new(total, args.quiet, Arc::clone(&cancelled));
    let start = Instant::now();
    let runs = experiment.run(&progress)?;
    progress.finish();

    let interrupted = cancelled.load(Ordering::Relaxed);
    if runs.is_empty() {
        eprintln!("sclub: stopped before any seed was complete; nothing written");
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let rows = summarise(&runs);
    let (title, subtitle) = title(args, &experiment, &runs);
    let mut shown = match &experiment.world {
        Setting::Ratings(ratings) if ratings.interactions.has_values() => {
            format!("{}\n{VALUES}\n{RATES}", table::rates(&runs))
        }
        Setting::Ratings(_) => format!("{}\n{RATES}", table::rates(&runs)),
        Setting::Catalogue(_) => {
            let others = [
                ("to LinUCB-One", Name::LINUCB_ONE),
                ("to LinUCB-Ind", Name::LINUCB_IND),
            ];
            format!("{}\n{CLICKS}", table::clicks(&runs, &others))
        }
        Setting::Synthetic(_) | Setting::Vectors(..) => {
            let is_cascade = is_cascade(&experiment.world);
            format!("{}\n{}", table::render(&rows), legend(&rows, is_cascade))
        }
    };
    for line in clustering::lines(&runs) {
        shown.push('\n');
        shown.push_str(&line);
    }
    print_line(&format!("{title}: {subtitle}\n{shown}"));
    let written = write(args, &experiment, &runs, &rows, (&title, &subtitle))?;
    print_line(&format!(
        "{:.1} s in all. Written: {written}",
        start.elapsed().as_secs_f64()
    ));
    if interrupted {
        eprintln!(
            "sclub: stopped; {} of {} seeds were complete and are written",
            rows[0].seeds,
            experiment.seeds.len()
        );
        return Ok(ExitCode::from(INTERRUPTED));
    }
    Ok(ExitCode::SUCCESS)
}

/// The legend of the table of rates if ratings are values.
const VALUES: &str = "With --rating-values a rate is not a share of rounds but the mean value of the items shown: rating \
                      divided by the highest, 0 if the user did not rate the item.";

/// The legend of the table of rates.
const RATES: &str = "rate: share of the rounds in which the item that the user took was shown, ± standard \
                     error over splits of the same users. 1–5 and so on: the same in the first five \
                     rounds of a user, and so on.";

/// The legend of the tables of clicks.
pub const CLICKS: &str = "clicks: mean click probability of the items shown, ± standard error over shops. 0–2k and so on: \
                      the same in rounds 0 to 1,999, and so on. items: different items shown. 1–5 and so on: clicks \
                      that came, of the items shown in the first five rounds of a user, and so on. informed knows the \
                      tastes, best-item the item that is best on average.";

/// The yardsticks that are always shown with the clicks of a catalogue: a rate says little without them.
pub const CLICK_YARDSTICKS: [Name; 3] = [Name::INFORMED, Name::BEST_ITEM, Name::RANDOM];

/// Flags of worlds made from ratings.
const FILE_FLAGS: [&str; 13] = [
    "ratings",
    "user_column",
    "item_column",
    "rating_column",
    "like_from",
    "rating_values",
    "skip_bad_lines",
    "others",
    "feature_scale",
    "item_features",
    "with_interactions",
    "cold_items",
    "placebo",
];

/// Flags of worlds made from choices.
const CHOICE_FLAGS: [&str; 6] = [
    "others",
    "feature_scale",
    "item_features",
    "with_interactions",
    "cold_items",
    "placebo",
];

/// Flags of synthetic worlds that worlds of choices and of catalogues do not have.
pub const SYNTHETIC_FLAGS: [&str; 17] = [
    "frequencies",
    "rewards",
    "noise",
    "users_a_round",
    "sizes",
    "spread",
    "reward_scale",
    "change_at",
    "misspecified",
    "corrupted",
    "corrupted_rounds",
    "items_fixed",
    "item_clusters",
    "cascade",
    "overlap",
    "smoothed",
    "servers",
];

/// The flags of a shop that no other world has.
pub const SHOP_FLAGS: [&str; 14] = [
    "categories",
    "price_bands",
    "numbers",
    "number_scale",
    "tastes",
    "taste_scale",
    "deviation",
    "link",
    "link_scale",
    "bias",
    "visits",
    "zipf_exponent",
    "delay",
    "slots",
];

/// Refuses arguments that a world takes no notice of. `given` has the names of those that were typed.
pub fn refuse_what_does_not_apply(world: Kind, given: &[String]) -> Result<()> {
    let without: &[&[&str]] = match world {
        Kind::Synthetic => &[&FILE_FLAGS, &SHOP_FLAGS],
        Kind::Vectors => &[
            &["clusters", "sizes", "spread", "overlap", "item_clusters"],
            &CHOICE_FLAGS,
            &SHOP_FLAGS,
        ],
        Kind::Ratings | Kind::RatingsLeaky => &[
            &["users", "clusters", "newcomers_every"],
            &SYNTHETIC_FLAGS,
            &SHOP_FLAGS,
        ],
        Kind::Catalogue => &[&FILE_FLAGS, &["clusters", "dim"], &SYNTHETIC_FLAGS],
    };
    if let Some(name) = without
        .iter()
        .copied()
        .flatten()
        .find(|name| given.iter().any(|g| g == *name))
    {
        bail!(
            "--{} does not apply to --world {}",
            name.replace('_', "-"),
            world.name()
        );
    }
    Ok(())
}

/// The recipe of a synthetic world, from the flags and the names of those that were typed.
pub fn recipe(args: &RecipeArgs, given: &[String]) -> Result<Recipe> {
    if given.iter().any(|g| g == "corrupted_rounds") && args.corrupted == 0.0 {
        bail!("--corrupted-rounds goes with --corrupted");
    }
    let small = |name: &str, value: u64| -> Result<usize> {
        usize::try_from(value)
            .with_context(|| format!("{name} is {value}; it must be at most {}", usize::MAX))
    };
    let some = |name: &str, value: Option<u64>| value.map(|value| small(name, value)).transpose();
    let scale = args.cascade.map_or(1.0, |_| CASCADE_SCALE);
    let recipe = Recipe {
        users: small("users", args.users)?,
        clusters: small("clusters", args.clusters)?,
        dim: small("dim", args.dim)?,
        candidates: small("items", args.items)?,
        frequencies: args.frequencies,
        rewards: match (args.rewards, args.noise) {
            (Rewards::Gaussian(_), Some(noise)) => Rewards::Gaussian(noise),
            (rewards, _) => rewards,
        },
        users_a_round: args.users_a_round,
        twists: Twists {
            sizes: args.sizes,
            spread: args.spread,
            reward_scale: args.reward_scale.unwrap_or(scale),
            newcomers_every: args.newcomers_every,
            change_at: args.change_at,
            misspecified: args.misspecified,
            corrupted: args.corrupted,
            corrupted_rounds: args.corrupted_rounds,
            items_fixed: some("items-fixed", args.items_fixed)?,
            item_clusters: some("item-clusters", args.item_clusters)?,
            cascade: some("cascade", args.cascade)?,
            overlap: args.overlap,
            smoothed: args.smoothed,
            servers: some("servers", args.servers)?,
        },
    };
    if args.noise.is_some() && args.rewards == Rewards::Bernoulli {
        bail!("--noise goes with --rewards gaussian");
    }
    Ok(recipe)
}

/// The recipe of a shop, from the flags and the names of those that were typed.
pub fn shop(args: &ShopArgs, recipe: &RecipeArgs, given: &[String]) -> Result<Shop> {
    let default = Shop::default();
    let small = |name: &str, value: u64| -> Result<usize> {
        usize::try_from(value)
            .with_context(|| format!("{name} is {value}; it must be at most {}", usize::MAX))
    };
    // These flags are other worlds' too, which have other defaults.
    let shared = |name: &str, value: u64, default: usize| match given.iter().any(|g| g == name) {
        true => small(name, value),
        false => Ok(default),
    };
    let has_zipf_exponent = given.iter().any(|g| g == "zipf_exponent");
    if has_zipf_exponent && args.visits != Visits::Zipf {
        bail!("--zipf-exponent goes with --visits zipf");
    }
    let link = Link::default_of(args.link);
    Ok(Shop {
        items: shared("items", recipe.items, default.items)?,
        categories: small("categories", args.categories)?,
        price_bands: small("price-bands", args.price_bands)?,
        numbers: small("numbers", args.numbers)?,
        number_scale: args.number_scale,
        users: shared("users", recipe.users, default.users)?,
        tastes: small("tastes", args.tastes)?,
        taste_scale: args.taste_scale,
        deviation: args.deviation,
        link: Link {
            scale: args.link_scale.unwrap_or(link.scale),
            bias: args.bias.unwrap_or(link.bias),
            ..link
        },
        visits: args.visits,
        zipf_exponent: args.zipf_exponent,
        delay: args.delay,
        slots: small("slots", args.slots)?,
        newcomers_every: recipe.newcomers_every,
    })
}

/// The world, with its data read.
fn setting(args: &RunArgs) -> Result<Setting> {
    if args.world == Kind::Catalogue {
        let shop = shop(&args.shop, &args.recipe, &args.given)?;
        return Ok(Setting::Catalogue(shop));
    }
    let recipe = recipe(&args.recipe, &args.given)?;
    let path = match (args.world, &args.ratings) {
        (Kind::Synthetic, _) => return Ok(Setting::Synthetic(recipe)),
        (_, None) => bail!("this world is made from ratings: name a file with --ratings"),
        (_, Some(path)) => path,
    };
    if !(args.feature_scale > 0.0 && args.feature_scale <= 1e6) {
        bail!(
            "feature-scale is {}; it must be above 0 and at most 1000000",
            args.feature_scale
        );
    }
    let options = args.data.options(None)?;
    let read = read_file(path, &options, args.quiet)?;
    if args.world == Kind::Vectors {
        let (setting, shortages) = Setting::vectors(recipe, &read.interactions)?;
        for shortage in &shortages {
            eprintln!("sclub: warning: {shortage}");
        }
        return Ok(setting);
    }
    let content = match &args.item_features {
        Some(path) => Some(content(path, args, &read.interactions)?),
        None => None,
    };
    let mut setting = Setting::ratings(
        read.interactions,
        (recipe.dim, recipe.candidates),
        args.others,
        args.feature_scale,
        args.placebo,
    );
    if !(0.0..=1.0).contains(&args.cold_items) {
        bail!(
            "cold-items is {}; it must be at least 0 and at most 1",
            args.cold_items
        );
    }
    setting = setting.with_cold_items(args.cold_items);
    if let Some(content) = content {
        setting = setting.with_content(content);
    }
    Ok(match args.world {
        Kind::RatingsLeaky => setting.leaky(),
        _ => setting,
    })
}

/// The vectors of items in a file, for the items of the ratings.
fn content(path: &Path, args: &RunArgs, all: &Interactions) -> Result<Content> {
    let progress = Reading::new(args.quiet);
    let read = read_vectors(path, &|done, total| progress.read(done, total));
    drop(progress);
    let mode = match args.with_interactions {
        true => ContentMode::Both,
        false => ContentMode::Alone,
    };
    let content = Content::new(&read?, all, mode);
    if mode == ContentMode::Alone {
        let (has, dim) = (content.vectors.columns(), args.recipe.dim);
        if args.given.iter().any(|flag| flag == "dim") && dim != has as u64 {
            bail!(
                "dim is {dim}, and the vectors of {} have {has}; leave out --dim",
                path.display()
            );
        }
        features::check_dim(has)?;
    }
    if content.missing == all.items() {
        bail!(
            "none of the {} items of the ratings is in {}; the first one is '{}'",
            all.items(),
            path.display(),
            all.item_name(0)
        );
    }
    if content.missing > 0 {
        eprintln!(
            "sclub: warning: {} of {} items of the ratings are not in {}; they have no features but the constant",
            thousands(content.missing as f64),
            thousands(all.items() as f64),
            path.display()
        );
    }
    Ok(content)
}

fn experiment(args: &RunArgs) -> Result<Experiment> {
    let mut policies = choose(args.policies.as_deref(), args.world.knowledge())?;
    if args.world == Kind::Catalogue {
        for name in CLICK_YARDSTICKS {
            if !policies.contains(&name) {
                policies.push(name);
            }
        }
    }
    let seeds = seeds(args.first_seed, args.seeds)?;
    let threads = threads(args.threads)?;
    let world = setting(args)?;
    Ok(Experiment {
        policies,
        rounds: args.rounds.unwrap_or(world.default_rounds()),
        world,
        seeds,
        preset: args.preset,
        given: args.constants.given.clone(),
        threads,
    })
}

/// The seeds from the first on.
pub fn seeds(first: u64, count: u64) -> Result<Vec<u64>> {
    let Some(after_last) = first.checked_add(count) else {
        bail!(
            "the first seed is {first} and the number of seeds is {count}; their sum must be at most {}",
            u64::MAX
        );
    };
    Ok((first..after_last).collect())
}

/// The first Ctrl-C ends the run in order, a second one at once.
pub fn stop_on_ctrl_c(cancelled: &Arc<AtomicBool>) -> Result<()> {
    let cancelled = Arc::clone(cancelled);
    ctrlc::set_handler(move || {
        if cancelled.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(INTERRUPTED));
        }
    })
    .context("cannot watch for Ctrl-C")
}

/// Finds out before the run, not after it, whether its results can be written.
fn prepare(args: &RunArgs) -> Result<()> {
    let path = &args.json;
    if !args.no_figure
        && path
            .extension()
            .is_some_and(|ending| ending == "svg" || ending == "png")
    {
        bail!(
            "{} would be overwritten by the figure; name it .json",
            path.display()
        );
    }
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        prepare_folder(folder)?;
    }
    let outputs = [
        Some(path.clone()),
        figure_path(args, "svg"),
        figure_path(args, "png"),
    ];
    for path in outputs.into_iter().flatten() {
        prepare_file(&path)?;
    }
    Ok(())
}

/// The path of the figure, if one is written.
fn figure_path(args: &RunArgs, ending: &str) -> Option<PathBuf> {
    (!args.no_figure).then(|| args.json.with_extension(ending))
}

/// True if lists are shown of which the user clicks the first attractive item.
fn is_cascade(world: &Setting) -> bool {
    match world {
        Setting::Synthetic(recipe) | Setting::Vectors(recipe, _) => recipe.twists.cascade.is_some(),
        Setting::Ratings(_) | Setting::Catalogue(_) => false,
    }
}

fn legend(rows: &[Row], is_cascade: bool) -> String {
    let mut legend = String::from(match is_cascade {
        true => "regret: the clicks that the best lists would have brought more, ± standard error.",
        false => "regret: what the best items would have brought more, ± standard error.",
    });
    if rows.iter().any(|row| row.adjusted_rand.is_some()) {
        legend.push_str(" Rand: 1 where the clusters found are the true ones.");
    }
    if rows
        .iter()
        .any(|row| row.policy == Name::SCLUB && row.adjusted_rand.is_some_and(|rand| rand < 0.5))
    {
        legend.push_str(
            " A user's own data are too few to find the true clusters by these tests: \
             sclub gains by sharing observations, not by finding the clusters.",
        );
    }
    let of = |is_meant: fn(Name) -> bool| -> Vec<&str> {
        let some = rows.iter().filter(|row| is_meant(row.policy));
        some.map(|row| row.policy.as_str()).collect()
    };
    let own = of(Name::has_own_constants);
    if !own.is_empty() && own.len() < rows.len() {
        legend.push_str(&match own.as_slice() {
            [one] => format!(" {one} has constants of its own."),
            more => format!(" {} have constants of their own.", more.join(" and ")),
        });
    }
    let with_truth = of(Name::needs_truth);
    if !with_truth.is_empty() {
        let know = if with_truth.len() == 1 {
            "knows"
        } else {
            "know"
        };
        legend.push_str(&format!(
            " {} {know} the truth about the world, which no learner knows.",
            with_truth.join(" and ")
        ));
    }
    legend
}

fn write(
    args: &RunArgs,
    experiment: &Experiment,
    runs: &[Run],
    rows: &[Row],
    (title, subtitle): (&str, &str),
) -> Result<String> {
    let complete = rows.iter().all(|row| row.seeds == experiment.seeds.len());
    let mut config = config(experiment)?;
    if let Some(path) = &args.ratings {
        let file = path.file_name().unwrap_or(path.as_os_str());
        config["file"] = json!(file.to_string_lossy());
        if let Some(least) = args.data.like_from {
            config["like_from"] = json!(least);
        }
    }
    let document = json!({ "config": config, "complete": complete, "runs": runs });
    let text = serde_json::to_string_pretty(&document).context("cannot write JSON")?;
    let mut written = vec![args.json.clone()];
    save(&args.json, text.as_bytes())?;
    if !args.no_figure {
        let figure = match &experiment.world {
            // A rate is the share of rounds with a reward of 1. Values are not.
            Setting::Ratings(ratings) if !ratings.interactions.has_values() => {
                figure::draw_rates(title, subtitle, runs)
            }
            Setting::Synthetic(_)
            | Setting::Vectors(..)
            | Setting::Ratings(_)
            | Setting::Catalogue(_) => figure::draw(title, subtitle, rows),
        };
        let figure = figure.map_err(anyhow::Error::msg)?;
        for (ending, bytes) in [
            ("svg", figure.svg.as_bytes()),
            ("png", figure.png.as_slice()),
        ] {
            if let Some(path) = figure_path(args, ending) {
                save(&path, bytes)?;
                written.push(path);
            }
        }
    }
    let names: Vec<String> = written
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    Ok(names.join(", "))
}
