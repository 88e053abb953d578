//! A run: its worlds and policies of both kinds, made for each seed when it is played.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use pyo3::prelude::*;
use pyo3::types::PyString;
use sclub::{Preset, Setup};
use sclub_lab::document::{Config, world_json};
use sclub_lab::policies::{self, ChoiceError, Entry, Knowledge, Name, make};
use sclub_lab::run::{Observer, Player, Run, RunError, over_seeds, play_all, threads};
use sclub_lab::setting::{DEFAULT_ROUNDS, Setting};
use sclub_lab::world::World;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::guest_world::GuestWorld;
use super::halt::Halt;
use super::maker::Maker;
use super::settings::{LabSetting, in_full, policy_named, refused};
use super::watched::Watched;
use crate::classes::value_of;

/// The options of a run.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Options {
    seeds: Vec<u64>,
    rounds: Option<u64>,
    threads: Option<u64>,
    preset: String,
    /// Constants of built-in policies, by name.
    constants: Vec<(String, Py<PyAny>)>,
}

impl Options {
    /// The constants as texts that [`sclub::Constant::parse`] takes, without those that are `None`.
    fn given(&self, py: Python<'_>) -> PyResult<Vec<(String, String)>> {
        let mut given = Vec::new();
        for (name, value) in &self.constants {
            let value = value.bind(py);
            if value.is_none() {
                continue;
            }
            let all = Name::all();
            let Some(constant) = all.iter().find_map(|policy| policy.constant(name)) else {
                return Err(refused(ChoiceError::Unknown(name.clone())));
            };
            let value = value_of(constant, value)?;
            given.push((name.clone(), constant.format(value)));
        }
        Ok(given)
    }
}

/// The world of a run.
enum Where {
    /// In a world of the lab.
    Own(Box<Setting>),
    /// In one that a Python function makes from a seed.
    Guest(Py<PyAny>),
}

/// A policy of a run.
struct Spec {
    label: String,
    kind: Kind,
}

enum Kind {
    /// A policy of the lab.
    Own(Name),
    /// One that a Python function makes.
    Guest(Maker),
}

/// The policy of a result.
pub struct Who {
    label: String,
    /// True if it is written in Python.
    pub is_guest: bool,
    /// True if it has clusters.
    pub has_clusters: bool,
}

impl Serialize for Who {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.label)
    }
}

/// The first world, for the JSON file.
struct First {
    world: Value,
    entries: Vec<Entry>,
}

/// A world of a seed, with its policies and description.
struct Stage {
    world: Arc<dyn World>,
    /// The built-in policies with their constants.
    entries: Vec<Entry>,
    json: Value,
    is_for_several: bool,
}

/// A run, shared by its threads.
pub struct Job {
    place: Where,
    specs: Vec<Spec>,
    seeds: Vec<u64>,
    rounds: u64,
    threads: usize,
    preset: Preset,
    /// Constants in place of the preset's.
    given: Vec<(String, String)>,
    first: OnceLock<First>,
    /// The progress of the run, and the exception that stops it.
    pub watched: Watched,
}

impl Job {
    /// Checks all that can be checked before anything runs.
    pub fn new(
        world: &Bound<'_, PyAny>,
        policies: Option<Vec<(String, Bound<'_, PyAny>)>>,
        options: Options,
    ) -> PyResult<Self> {
        let preset: Preset = options.preset.parse().map_err(refused)?;
        let given = options.given(world.py())?;
        let place = match world.cast::<LabSetting>() {
            Ok(own) => Where::Own(Box::new(own.get().setting.clone())),
            Err(_) => Where::Guest(world.clone().unbind()),
        };
        let halt = Arc::default();
        let specs = specs(policies, &place, &halt)?;
        let rounds = match (&place, options.rounds) {
            (_, Some(rounds)) => rounds,
            (Where::Own(setting), None) => setting.default_rounds(),
            (Where::Guest(_), None) => DEFAULT_ROUNDS,
        };
        if rounds == 0 {
            return Err(refused("rounds is 0; it must be at least 1"));
        }
        if options.seeds.is_empty() {
            return Err(refused("seeds is empty; there must be at least one"));
        }
        if specs.is_empty() {
            return Err(refused("policies is empty; there must be at least one"));
        }
        let expected = match &place {
            Where::Own(setting) => setting.expected_rounds(rounds),
            Where::Guest(_) => rounds,
        };
        let plays = (options.seeds.len() * specs.len()) as u64;
        let is_guest = |spec: &Spec| matches!(spec.kind, Kind::Guest(_));
        let has_guests = matches!(place, Where::Guest(_)) || specs.iter().any(is_guest);
        Ok(Self {
            place,
            // More threads than policies to play would have nothing to do.
            threads: threads(options.threads).map_err(refused)?,
            seeds: options.seeds,
            specs,
            rounds,
            preset,
            given,
            first: OnceLock::new(),
            watched: Watched {
                halt,
                has_guests,
                total: expected.saturating_mul(plays).into(),
                ..Watched::default()
            },
        })
    }

    /// Runs every policy in the world of every seed. All threads have ended when it returns.
    pub fn run(&self) -> Result<Vec<Run<Who>>, RunError> {
        let threads = self.threads.min(self.seeds.len() * self.specs.len());
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        pool.build_scoped(
            |thread| self.watched.on_thread(thread),
            |pool| over_seeds(pool, &self.seeds, |seed| self.one(seed)),
        )?
    }

    /// Runs all policies in the world of a seed; `None` if an exception has stopped them.
    fn one(&self, seed: u64) -> Result<Option<Vec<Run<Who>>>, RunError> {
        if self.watched.is_cancelled() {
            return Ok(None);
        }
        let made = self.stage(seed).and_then(|stage| {
            let players: PyResult<Vec<Player<Who>>> = self
                .specs
                .iter()
                .map(|spec| self.player(spec, &stage, seed))
                .collect();
            Ok((stage, players?))
        });
        match made {
            Ok((stage, players)) => {
                play_all(&*stage.world, seed, players, self.rounds, &self.watched)
            }
            Err(error) => {
                self.watched.halt.fail(error);
                Ok(None)
            }
        }
    }

    /// Makes the world of a seed.
    fn stage(&self, seed: u64) -> PyResult<Stage> {
        let own = |spec: &Spec| match spec.kind {
            Kind::Own(name) => Some(name),
            Kind::Guest(_) => None,
        };
        let halt = &self.watched.halt;
        let mut names: Vec<Name> = self.specs.iter().filter_map(own).collect();
        names.sort_unstable();
        names.dedup();
        let (stage, expected) = match &self.place {
            Where::Own(setting) => {
                let stage = Stage {
                    entries: setting
                        .entries(&names, self.preset, &self.given, self.rounds)
                        .map_err(refused)?,
                    json: world_json(setting),
                    is_for_several: is_for_several(setting),
                    world: setting.world(seed).map_err(in_full)?,
                };
                (stage, setting.expected_rounds(self.rounds))
            }
            Where::Guest(make) => {
                let (world, name) = Python::attach(|py| -> PyResult<(GuestWorld, String)> {
                    let (name, attributes) = make.bind(py).call1((seed,))?.extract()?;
                    let world = GuestWorld::new(py, attributes, seed, Arc::clone(halt))?;
                    Ok((world, name))
                })?;
                let setup = Setup {
                    assumptions: Some(&world.assumptions(self.rounds)),
                    ..policies::setup(world.dim(), world.users())
                };
                let stage = Stage {
                    entries: policies::entries(&names, self.preset, &self.given, &setup)
                        .map_err(refused)?,
                    json: guest_json(&world, &name),
                    is_for_several: false,
                    world: Arc::new(world),
                };
                (stage, self.rounds)
            }
        };
        if self.seeds.first() == Some(&seed) {
            let first = First {
                world: stage.json.clone(),
                entries: stage.entries.clone(),
            };
            // It is made once: another one would be the same.
            let _ = self.first.set(first);
        }
        let rounds = self.rounds_in(&*stage.world);
        let plays = self.specs.len() as u64;
        let total = &self.watched.total;
        total.fetch_add(rounds * plays, Ordering::Relaxed);
        total.fetch_sub(expected * plays, Ordering::Relaxed);
        Ok(stage)
    }

    /// Rounds that will be played in a world.
    fn rounds_in(&self, world: &dyn World) -> u64 {
        world
            .length()
            .map_or(self.rounds, |length| length.min(self.rounds))
    }

    /// Makes a policy for a world.
    fn player(&self, spec: &Spec, stage: &Stage, seed: u64) -> PyResult<Player<Who>> {
        let who = |is_guest, has_clusters| Who {
            label: spec.label.clone(),
            is_guest,
            has_clusters,
        };
        let world = &*stage.world;
        match &spec.kind {
            Kind::Own(name) => {
                let entry = stage.entries.iter().find(|entry| entry.name == *name);
                let entry = entry.ok_or_else(|| refused(ChoiceError::NeedsTruth(*name)))?;
                let tells = world.truth().is_none_or(|truth| !truth.weights.is_empty());
                if *name == Name::INFORMED && !tells {
                    return Err(refused(
                        "policy 'informed' needs the weights of the clusters, and this world does not have them",
                    ));
                }
                let policy = make(entry, world, seed, self.rounds).map_err(refused)?;
                let policy = policy.ok_or_else(|| refused(ChoiceError::NeedsTruth(*name)))?;
                Ok(Player::new(who(false, true), entry.values.preset(), policy))
            }
            Kind::Guest(maker) => {
                let rounds = self.rounds_in(world);
                let policy = maker.policy(world, seed, rounds, stage.is_for_several)?;
                let who = who(true, policy.has_clusters());
                Ok(Player::new(who, self.preset, Box::new(policy)))
            }
        }
    }

    /// The configuration, for the JSON file.
    pub fn config(&self) -> Option<Value> {
        let first = self.first.get()?;
        let labels: Vec<&str> = self.specs.iter().map(|spec| &*spec.label).collect();
        let config = Config {
            world: first.world.clone(),
            policies: &labels,
            rounds: self.rounds,
            seeds: &self.seeds,
            preset: self.preset,
            given: &self.given,
            entries: &first.entries,
            threads: self.threads,
        };
        Some(config.json())
    }
}

/// True if several users may appear in a round.
fn is_for_several(setting: &Setting) -> bool {
    match setting {
        Setting::Synthetic(recipe) | Setting::Vectors(recipe, _) => recipe.users_a_round.is_some(),
        Setting::Ratings(_) | Setting::Catalogue(_) => false,
    }
}

fn guest_json(world: &GuestWorld, name: &str) -> Value {
    let rewards = match world.noise() {
        _ if world.gives_rewards() => "given",
        Some(_) => "gaussian",
        None => "bernoulli",
    };
    json!({
        "world": name,
        "users": world.users(),
        "dim": world.dim(),
        "items": world.candidates(),
        "rewards": rewards,
        "noise": world.noise(),
    })
}

/// The policies: those given, or all of the lab that the world allows.
fn specs(
    policies: Option<Vec<(String, Bound<'_, PyAny>)>>,
    place: &Where,
    halt: &Arc<Halt>,
) -> PyResult<Vec<Spec>> {
    let knowledge = match place {
        Where::Own(setting) => setting.kind().knowledge(),
        Where::Guest(_) => Knowledge::Nothing,
    };
    let Some(policies) = policies else {
        let all = policies::choose(None, knowledge).map_err(refused)?;
        let own = |name: Name| Spec {
            label: name.to_string(),
            kind: Kind::Own(name),
        };
        return Ok(all.into_iter().map(own).collect());
    };
    let spec = |(label, object): (String, Bound<'_, PyAny>)| {
        let kind = match object.cast::<PyString>() {
            Ok(name) => {
                let is_own = matches!(place, Where::Own(_));
                let is_accepted = |name: Name| !is_own || name.can_play(knowledge);
                let name = policy_named(name.to_str()?, is_accepted)?;
                if is_own {
                    policies::check_can_play(name, knowledge).map_err(refused)?;
                }
                Kind::Own(name)
            }
            Err(_) => {
                let halt = Arc::clone(halt);
                Kind::Guest(Maker::new(label.clone(), object.unbind(), halt))
            }
        };
        Ok(Spec { label, kind })
    };
    policies.into_iter().map(spec).collect()
}
