//! Policies to test, and a simulated life for them.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sclub::{
    Assumptions, ItemSet, Observation, Policy, Preset, Range, Setup, Spec, Value, Values, registry,
};
pub const ASSUMPTIONS: Assumptions = Assumptions {
    dim: 4,
    noise: 0.5,
    smallest_eigenvalue: 0.1,
    horizon: 10_000,
    clusters: 3,
    users: 20,
};

pub fn setup(dim: usize) -> Setup<'static> {
    Setup {
        assumptions: Some(&ASSUMPTIONS),
        seed: 5,
        ..Setup::new(dim)
    }
}

pub fn values(spec: &'static Spec, preset: Preset, given: &[(&str, Value)]) -> Values {
    spec.values(preset, given, &setup(4)).unwrap()
}

/// With a fit after few rounds, where the policy makes any.
pub fn quick(spec: &'static Spec) -> Values {
    let first = [("first", Value::Number(40.0))];
    let given = if spec.constant("first").is_some() {
        &first[..]
    } else {
        &[]
    };
    values(spec, spec.presets[0], given)
}

/// The default constants, and each with one flag or choice changed.
pub fn variants(spec: &'static Spec) -> Vec<Values> {
    let mut all = vec![quick(spec)];
    let (values, setup) = (quick(spec), setup(2));
    for (constant, value) in values.iter() {
        let others: Vec<Value> = match (constant.range, value) {
            (Range::Flag, Value::Flag(flag)) => vec![Value::Flag(!flag)],
            (Range::OneOf(names), value) => {
                let names = names.iter().map(|&name| Value::Choice(name));
                names.filter(|&other| other != value).collect()
            }
            _ => Vec::new(),
        };
        for other in others {
            let changed = spec.values(spec.presets[0], &[(constant.name, other)], &setup);
            let changed = changed.expect("a value of its range");
            let made = changed.make(&setup);
            // Some can be run and not saved.
            if made.is_ok_and(|policy| policy.as_persist().is_some()) {
                all.push(changed);
            }
        }
    }
    all
}

pub fn savable_variants() -> Vec<(&'static Spec, Values)> {
    let all = savable().into_iter();
    all.flat_map(|spec| variants(spec).into_iter().map(move |values| (spec, values)))
        .collect()
}

pub fn made(spec: &'static Spec, dim: usize) -> Box<dyn Policy> {
    quick(spec).make(&setup(dim)).unwrap()
}

/// Users of three tastes, and what they see.
#[derive(Clone)]
pub struct Life {
    pub rng: Xoshiro256PlusPlus,
    pub dim: usize,
    pub users: u64,
    pub rename: fn(u64) -> u64,
}

pub type Round = Vec<(u64, Vec<f64>, f64)>;

impl Life {
    pub fn new(seed: u64, dim: usize, users: u64) -> Self {
        Self {
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            dim,
            users,
            rename: |user| user,
        }
    }

    pub fn item(&mut self) -> Vec<f64> {
        let draws = (0..self.dim).map(|_| self.rng.random_range(-1.0..1.0));
        draws.collect()
    }

    pub fn round(&mut self) -> Round {
        (0..self.rng.random_range(0..4))
            .map(|_| {
                let user = self.rng.random_range(0..self.users);
                let item = self.item();
                let taste = item[user as usize % 3 % self.dim];
                let reward = taste + self.rng.random_range(-0.2..0.2);
                ((self.rename)(user), item, reward)
            })
            .collect()
    }

    pub fn items(&mut self, count: usize) -> ItemSet {
        let rows: Vec<f64> = (0..count).flat_map(|_| self.item()).collect();
        ItemSet::from_rows(self.dim, &rows).unwrap()
    }

    pub fn live(&mut self, policy: &mut dyn Policy, rounds: usize) {
        for _ in 0..rounds {
            learn(policy, &self.round());
        }
    }
}

pub fn learn(policy: &mut dyn Policy, round: &Round) {
    let round: Vec<Observation<'_>> = round
        .iter()
        .map(|(user, item, reward)| Observation::new(*user, item, *reward))
        .collect();
    policy.learn_round(&round, &mut Vec::new()).unwrap();
}

pub fn saved(policy: &dyn Policy) -> Vec<u8> {
    let mut bytes = Vec::new();
    let persist = policy.as_persist().expect("it can be saved");
    persist.save_to(&mut bytes).unwrap();
    bytes
}

pub fn words(bytes: &[u8]) -> Vec<u64> {
    let words = bytes.as_chunks::<8>().0.iter();
    words.map(|word| u64::from_le_bytes(*word)).collect()
}

pub fn savable() -> Vec<&'static Spec> {
    let all = registry().into_iter();
    all.filter(|spec| spec.can.save).collect()
}
