//! Regret of a policy whose users are split over 16 partitions, with fits over all partitions that take effect some
//! rounds after they were computed, against one policy for all users.
//!
//! `cargo run -p sclub --example partitions -- sclub-soft 4 17` runs 2^17 rounds with each of 4 seeds.

use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use rand_xoshiro::Xoshiro256PlusPlus;
use sclub::{Gathering, ItemSet, Policy, Preset, Sequential, Setup, Spec, Values, find_policy};

const USERS: u64 = 1000;
const CLUSTERS: usize = 10;
const DIM: usize = 20;
const CANDIDATES: usize = 20;
/// Partitions, and the rounds between the computation of a fit and its use.
const RUNS: [(usize, u64); 6] = [
    (1, 0),
    (1, 1000),
    (16, 0),
    (16, 100),
    (16, 1000),
    (16, 10_000),
];

type Random = Xoshiro256PlusPlus;

/// A vector of the paper's section 5.1: a direction and a constant, both of length 1/√2.
fn vector(random: &mut Random) -> Vec<f64> {
    let mut vector: Vec<f64> = (1..DIM).map(|_| random.sample(StandardNormal)).collect();
    let length: f64 = vector.iter().map(|x| x * x).sum::<f64>().sqrt();
    vector.iter_mut().for_each(|x| *x /= length);
    vector.push(1.0);
    vector.iter_mut().for_each(|x| *x *= 0.5f64.sqrt());
    vector
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// All partitions, and the fit that is on its way to them.
struct Cluster {
    spec: &'static Spec,
    values: Values,
    partitions: Vec<Box<dyn Policy>>,
    delay: u64,
    pending: Option<(u64, Box<dyn Gathering>)>,
    fits: u64,
}

const SETUP: fn() -> Setup<'static> = || Setup {
    fits_inline: false,
    ..Setup::new(DIM)
};

impl Cluster {
    fn new(spec: &'static Spec, partitions: usize, delay: u64) -> Self {
        let values = spec
            .values(Preset::Default, &[], &SETUP())
            .expect("defaults are valid");
        let new = |_| (spec.new)(&SETUP(), &values).expect("defaults are valid");
        Self {
            spec,
            partitions: (0..partitions).map(new).collect(),
            values,
            delay,
            pending: None,
            fits: 0,
        }
    }

    /// Begins a fit that is due, and lets the partitions take it after the delay.
    fn fit(&mut self, round: u64) {
        if self.pending.is_none()
            && let Some(gather) = self.spec.gather
        {
            let all = self.partitions.iter();
            let progress: Vec<_> = all
                .map(|policy| Some(policy.as_partitioned_fit()?.progress()))
                .collect();
            if let Some(mut gathering) = gather(&SETUP(), &self.values, &progress).unwrap() {
                while let Some(question) = gathering.question() {
                    let all = self.partitions.iter();
                    let answers: Vec<_> = all
                        .map(|policy| {
                            let policy = policy.as_partitioned_fit()?;
                            policy.answer(&question, &Sequential).ok()
                        })
                        .collect();
                    gathering.take(&answers, &Sequential).unwrap();
                }
                self.pending = Some((round + self.delay, gathering));
            }
        }
        if let Some((_, gathering)) = self.pending.take_if(|(at, _)| *at <= round) {
            self.fits += 1;
            for (place, policy) in self.partitions.iter_mut().enumerate() {
                let policy = policy.as_fit_mut().expect("it takes fits");
                policy.take_fit(&gathering.fit(place)).unwrap();
            }
        }
    }
}

/// Regret after each power of two from 2^10 on.
fn run(
    spec: &'static Spec,
    seed: u64,
    log_rounds: u32,
    (partitions, delay): (usize, u64),
) -> Vec<f64> {
    let mut random = Random::seed_from_u64(seed);
    let tastes: Vec<Vec<f64>> = (0..CLUSTERS).map(|_| vector(&mut random)).collect();
    let mut cluster = Cluster::new(spec, partitions, delay);
    let mut items = ItemSet::new(DIM).unwrap();
    let (mut regret, mut curve) = (0.0, Vec::new());
    for round in 1..=1u64 << log_rounds {
        let user = random.random_range(0..USERS);
        let taste = &tastes[user as usize % CLUSTERS];
        let rows: Vec<Vec<f64>> = (0..CANDIDATES).map(|_| vector(&mut random)).collect();
        let means: Vec<f64> = rows.iter().map(|row| dot(row, taste)).collect();
        let (draw, luck): (u64, f64) = (random.random(), random.random());
        items.refill(&rows.concat()).unwrap();
        // Neighbouring users have different tastes, so each partition has users of all tastes.
        let policy = &mut cluster.partitions[(user / CLUSTERS as u64) as usize % partitions];
        let shown = policy.recommend_drawn(draw, user, &items).unwrap().index;
        let reward = if luck < means[shown] { 1.0 } else { 0.0 };
        policy.learn(user, &rows[shown], reward).unwrap();
        cluster.fit(round);
        regret += means.iter().fold(0.0f64, |best, &mean| best.max(mean)) - means[shown];
        if round.is_power_of_two() && round >= 1 << 10 {
            curve.push(regret);
        }
    }
    curve
}

fn main() {
    let mut given = std::env::args().skip(1);
    let name = given.next().unwrap_or_else(|| "sclub-soft".into());
    let mut number = |default: u32| {
        given
            .next()
            .map_or(default, |n| n.parse().expect("a number"))
    };
    let (seeds, log_rounds) = (u64::from(number(1)), number(15));
    let spec = find_policy(&name).expect("the name of a policy");
    let shown = |n: &u32| *n == 10 || *n >= 13;
    print!("| {name}: partitions, delay |");
    (10..=log_rounds)
        .filter(shown)
        .for_each(|n| print!(" 2^{n} |"));
    println!();
    println!(
        "|---|{}",
        "---:|".repeat((10..=log_rounds).filter(shown).count())
    );
    let all = RUNS.map(|setting| -> Vec<Vec<f64>> {
        (1..=seeds)
            .map(|seed| run(spec, seed, log_rounds, setting))
            .collect()
    });
    for ((partitions, delay), curves) in RUNS.iter().zip(&all) {
        print!("| {partitions}, {delay} |");
        for n in (10..=log_rounds).filter(shown) {
            let at = n as usize - 10;
            let mean = curves.iter().map(|curve| curve[at]).sum::<f64>() / seeds as f64;
            // Differences to one policy in the same worlds.
            let ratios: Vec<f64> = curves
                .iter()
                .zip(&all[0])
                .map(|(c, one)| c[at] / one[at] - 1.0)
                .collect();
            let ratio = ratios.iter().sum::<f64>() / seeds as f64;
            let variance = ratios
                .iter()
                .map(|r| (r - ratio) * (r - ratio))
                .sum::<f64>();
            let error = (variance / seeds as f64 / (seeds as f64 - 1.0).max(1.0)).sqrt();
            print!(
                " {mean:.0} ({:+.1}% ± {:.1}) |",
                100.0 * ratio,
                100.0 * error
            );
        }
        println!();
    }
}
