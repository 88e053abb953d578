//! The runs of a plan, without those that have been run before.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

use super::cells::{Cells, Record};
use super::{PaperError, Progress};
use crate::held_out::Protocol;
use crate::policies::Entry;
use crate::run::{Observer, Run, play};
use crate::setting::{Setting, SettingError};
use crate::streams::mix;
use crate::synthetic::{Recipe, Twists};
use crate::world::World;

/// Makes the world of a job, when its turn comes.
pub(crate) type MakeWorld = Box<dyn Fn() -> Result<Arc<dyn World>, SettingError> + Send + Sync>;

/// Some policies in one world, which is drawn once for all of them.
pub(crate) struct Job {
    pub make: MakeWorld,
    pub seed: u64,
    pub rounds: u64,
    /// Rounds that it will come to, about.
    pub expected: u64,
    /// The key of each result, and its policy.
    pub wants: Vec<(String, Entry)>,
}

impl Job {
    /// Some policies in the world of a setting and a seed.
    pub fn new(setting: &Setting, seed: u64, rounds: u64, entries: &[Entry]) -> Self {
        let wants = entries
            .iter()
            .map(|entry| (key(setting, seed, rounds, entry), entry.clone()))
            .collect();
        let setting = setting.clone();
        Self {
            make: Box::new(move || setting.world(seed)),
            seed,
            rounds,
            expected: rounds,
            wants,
        }
    }
}

/// Increase when a change makes the same recipe, data and seed give a different world; old results are then
/// not reused.
const WORLDS_REVISION: u32 = 1;

/// The numbers of a protocol in a key. The words are those of the first release: stored results are
/// found by them.
fn protocol_text(protocol: &Protocol) -> String {
    let Protocol {
        dim,
        candidates,
        max_rounds,
        max_feature_users,
        others_once,
        cold_items,
    } = protocol;
    let cold = match *cold_items > 0.0 {
        true => format!(", cold items {cold_items}"),
        false => String::new(),
    };
    let once = if *others_once { ", others once" } else { "" };
    format!(
        "Protocol {{ dim: {dim}, candidates: {candidates}, most_rounds: {max_rounds}, \
         most_feature_users: {max_feature_users} }}{once}{cold}"
    )
}

/// The numbers of a recipe in a key. The words are those of the first release, and settings that were added later
/// are named only if they change something: stored results are found by them.
fn recipe_text(recipe: &Recipe) -> String {
    let Recipe {
        users,
        clusters,
        dim,
        candidates,
        frequencies,
        rewards,
        users_a_round,
        twists,
    } = recipe;
    let Twists {
        sizes,
        spread,
        reward_scale,
        newcomers_every,
        change_at,
        ..
    } = twists;
    let mut text = format!(
        "Recipe {{ users: {users}, clusters: {clusters}, dim: {dim}, candidates: {candidates}, \
         frequencies: {frequencies:?}, rewards: {rewards:?}, users_a_round: {users_a_round:?}, \
         twists: Twists {{ sizes: {sizes:?}, spread: {spread:?}, reward_scale: {reward_scale:?}, \
         newcomers_every: {newcomers_every:?}, change_at: {change_at:?} }} }}"
    );
    for (name, value) in twists.later_settings() {
        text.push_str(&format!(", {name} {value}"));
    }
    text
}

/// The key of a result: everything that it depends on. Of the policy that is its name, every constant
/// and its revision, which grows when a policy may decide otherwise with the same constants. So results
/// outlive releases that change neither policies nor worlds.
pub(crate) fn key(setting: &Setting, seed: u64, rounds: u64, entry: &Entry) -> String {
    let (world, data) = match setting {
        Setting::Synthetic(recipe) => (recipe_text(recipe), 0),
        Setting::Vectors(recipe, weights) => {
            let words: Vec<u64> = weights.iter().flatten().map(|v| v.to_bits()).collect();
            (recipe_text(recipe), mix(&words))
        }
        Setting::Ratings(ratings) => (
            format!(
                "{} {:?} {} {}",
                protocol_text(&ratings.protocol),
                ratings.others,
                ratings.scale,
                ratings.placebo
            ),
            ratings.digest,
        ),
        Setting::Catalogue(shop) => (format!("{shop:?}"), 0),
    };
    // Policies that draw at random decided otherwise before decisions had numbers of their own.
    let world = match entry.name.can.draws {
        true => format!("{world} drawn"),
        false => world,
    };
    // A guest may have the name of a policy that another program has registered.
    let world = match entry.name.is_guest() {
        true => format!("{world} guest"),
        false => world,
    };
    let all = format!("{WORLDS_REVISION} {world} {data:x} {}", entry.values);
    let words: Vec<u64> = all.bytes().map(u64::from).collect();
    format!(
        "{} seed {seed} rounds {rounds} {:016x}",
        entry.name,
        mix(&words)
    )
}

/// Results wanted by some jobs: how many are missing, and how many there are.
fn tally(jobs: &[Job], cells: &Cells) -> (usize, usize) {
    let mut keys: Vec<&str> = jobs
        .iter()
        .flat_map(|job| job.wants.iter().map(|(key, _)| key.as_str()))
        .collect();
    keys.sort_unstable();
    keys.dedup();
    let there = keys.iter().filter(|key| cells.has(key)).count();
    (keys.len() - there, there)
}

/// Leaves out runs that have a stored result, and runs that another job has too.
fn missing(mut jobs: Vec<Job>, cells: &Cells) -> Vec<Job> {
    let mut seen = std::collections::HashSet::new();
    for job in &mut jobs {
        job.wants
            .retain(|(key, _)| !cells.has(key) && seen.insert(key.clone()));
    }
    jobs.retain(|job| !job.wants.is_empty());
    jobs
}

/// Rounds that are still to be played.
pub(crate) fn rounds_to_play(jobs: &[Job], cells: &Cells) -> u64 {
    let mut seen = std::collections::HashSet::new();
    let wants = jobs
        .iter()
        .flat_map(|job| job.wants.iter().map(move |(key, _)| (key, job.expected)));
    wants
        .filter(|(key, _)| !cells.has(key) && seen.insert((*key).clone()))
        .map(|(_, rounds)| rounds)
        .sum()
}

/// Runs the missing jobs and stores each result as soon as its world has been played through; results of guests
/// in memory only. Returns how many results are new.
fn run(
    jobs: Vec<Job>,
    cells: &Cells,
    pool: &rayon::ThreadPool,
    observer: &dyn Observer,
) -> Result<usize, PaperError> {
    let jobs = missing(jobs, cells);
    let next = AtomicUsize::new(0);
    let work = || -> Result<usize, PaperError> {
        let mut done = 0;
        while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            if observer.is_cancelled() {
                break;
            }
            let world = (job.make)()?;
            let entries: Vec<Entry> = job.wants.iter().map(|(_, entry)| entry.clone()).collect();
            let Some(runs) = play(&*world, job.seed, &entries, job.rounds, observer)? else {
                break;
            };
            done += runs.len();
            let (guests, others): (Vec<_>, Vec<_>) = job
                .wants
                .iter()
                .zip(runs)
                .partition(|((_, entry), _)| entry.name.is_guest());
            let records = |played: Vec<(&(String, Entry), Run)>| {
                let record =
                    |((key, _), run): (&(String, Entry), Run)| Record::new(key.clone(), run);
                played.into_iter().map(record).collect::<Vec<Record>>()
            };
            cells.put(records(others))?;
            cells.put_in_memory(records(guests));
        }
        Ok(done)
    };
    let workers = pool.current_num_threads().min(jobs.len());
    let done: Vec<usize> = pool.install(|| {
        (0..workers)
            .into_par_iter()
            .map(|_| work())
            .collect::<Result<_, _>>()
    })?;
    Ok(done.iter().sum())
}

/// Runs the missing jobs and returns the progress.
pub(crate) fn work(
    jobs: Vec<Job>,
    cells: &Cells,
    threads: usize,
    observer: &dyn Observer,
) -> Result<Progress, PaperError> {
    let (missing, reused) = tally(&jobs, cells);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
    let new = pool
        .build_scoped(
            |thread| observer.on_thread(thread),
            |pool| run(jobs, cells, pool, observer),
        )
        .map_err(PaperError::Threads)??;
    Ok(Progress {
        new,
        reused,
        missing: missing - new,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use sclub::{Constant, Preset, Range, Value};

    use super::*;
    use crate::paper::{entry, synthetic};
    use crate::policies::Name;
    use crate::synthetic::Frequencies;

    /// The text of the release before settings were added to recipes.
    #[test]
    fn results_of_recipes_without_later_settings_are_found_again() {
        let text = "Recipe { users: 1000, clusters: 10, dim: 20, candidates: 20, frequencies: Uniform, \
                    rewards: Bernoulli, users_a_round: None, twists: Twists { sizes: Equal, spread: 0.0, \
                    reward_scale: 1.0, newcomers_every: None, change_at: None } }";
        assert_eq!(recipe_text(&synthetic(Frequencies::Uniform)), text);
    }

    #[test]
    fn another_value_of_any_setting_of_other_papers_makes_another_key() {
        let none = Twists::default();
        let fixed = Twists {
            items_fixed: Some(100),
            ..none
        };
        let corrupted = Twists {
            corrupted: 0.1,
            ..none
        };
        let all = [
            none,
            Twists {
                misspecified: 0.1,
                ..none
            },
            corrupted,
            Twists {
                corrupted_rounds: 7,
                ..corrupted
            },
            fixed,
            Twists {
                item_clusters: Some(3),
                ..fixed
            },
            Twists {
                cascade: Some(3),
                ..none
            },
            Twists {
                overlap: 0.1,
                ..none
            },
            Twists {
                smoothed: Some(0.0),
                ..none
            },
            Twists {
                servers: Some(3),
                ..none
            },
        ];
        let mut keys = HashSet::new();
        for twists in all {
            let setting = Setting::Synthetic(Recipe {
                twists,
                ..synthetic(Frequencies::Uniform)
            });
            let entry = entry(Name::SCLUB, Preset::Tuned, &setting, 100).unwrap();
            assert!(keys.insert(key(&setting, 1, 100, &entry)), "{twists:?}");
        }
    }

    /// A value of a constant that is not this one.
    fn another(constant: &Constant, value: Value) -> Value {
        match (constant.range, value) {
            (Range::Number { high, whole, .. }, Value::Number(number)) => {
                // As little more as can be.
                let next = match whole {
                    true => number + 1.0,
                    false => number * (1.0 + f64::EPSILON) + f64::MIN_POSITIVE,
                };
                assert!(next <= high, "{}", constant.name);
                Value::Number(next)
            }
            (Range::Number { low, high, .. }, _) => Value::Number((low + 1.0).min(high)),
            (Range::Flag, value) => Value::Flag(value != Value::Flag(true)),
            (Range::OneOf(known), value) => {
                let mut choices = known.iter().map(|&choice| Value::Choice(choice));
                choices.find(|&choice| choice != value).unwrap()
            }
            (Range::AnyOf(_), Value::Set(set)) => Value::Set(set ^ 1),
            (Range::AnyOf(_), _) => Value::Set(1),
        }
    }

    #[test]
    fn another_value_of_any_constant_of_any_policy_makes_another_key() {
        let setting = Setting::Synthetic(synthetic(Frequencies::Uniform));
        let assumptions = setting.assumptions(100);
        let setup = setting.setup(&assumptions);
        let mut keys = HashSet::new();
        for name in Name::all() {
            let default = entry(name, Preset::Tuned, &setting, 100).unwrap();
            assert!(keys.insert(key(&setting, 1, 100, &default)), "{name}");
            assert!(keys.insert(key(&setting, 2, 100, &default)), "{name}");
            assert!(keys.insert(key(&setting, 1, 101, &default)), "{name}");
            for (constant, value) in default.values.iter() {
                let given = [(constant.name, another(constant, value))];
                let other = Entry::new(name, Preset::Tuned, &given, &setup).unwrap();
                let key = key(&setting, 1, 100, &other);
                assert!(keys.insert(key), "{} of {name}", constant.name);
            }
        }
    }
}
