use super::*;
use crate::run::{Experiment, Run};

fn plan(only: Option<&str>) -> Plan {
    Plan {
        seeds: vec![7, 8],
        threads: 2,
        divisor: 200,
        only: only.map(String::from),
    }
}

#[test]
fn every_variant_has_constants_that_exist_and_differ_from_the_defaults() {
    for world in worlds(1) {
        let unchanged = VARIANTS[0].entry(&world).unwrap();
        for variant in &VARIANTS[1..] {
            let entry = variant.entry(&world).unwrap();
            let given = variant.given();
            assert_eq!(given.len() * 2, variant.flags.split(' ').count());
            let pairs = entry.values.iter().zip(unchanged.values.iter());
            let changed = pairs.filter(|(own, default)| own.1 != default.1);
            let changed: Vec<&str> = changed.map(|((constant, _), _)| constant.name).collect();
            let mut named: Vec<&str> = given.iter().map(|(name, _)| name.as_str()).collect();
            named.sort_by_key(|name| changed.iter().position(|other| other == name));
            assert_eq!(changed, named, "{}", variant.name);
        }
    }
}

#[test]
fn every_cell_is_what_an_experiment_gives() {
    let plan = plan(None);
    let table = plan.run(&()).unwrap();
    assert_eq!(table.rows.len(), VARIANTS.len());
    assert_eq!(table.columns.len(), 4);
    for (at, world) in worlds(plan.divisor).into_iter().enumerate() {
        assert_eq!(table.columns[at].seeds, plan.seeds);
        let mut unchanged = Vec::new();
        for row in &table.rows {
            let experiment = Experiment {
                world: world.setting.clone(),
                policies: vec![Name::SCLUB_SOFT],
                rounds: world.rounds,
                seeds: plan.seeds.clone(),
                preset: Preset::Tuned,
                given: row.variant.given(),
                threads: 1,
            };
            let runs = experiment.run(&()).unwrap();
            let expected: Vec<f64> = match world.setting {
                Setting::Catalogue(_) => runs.iter().map(Run::click_probability).collect(),
                _ => runs.iter().map(|run| run.regret).collect(),
            };
            let cell = &row.cells[at];
            assert_eq!(cell.values, expected, "{} {}", row.variant.name, world.name);
            assert_eq!(cell.mean.mean, (expected[0] + expected[1]) / 2.0);
            if unchanged.is_empty() {
                unchanged.clone_from(&expected);
            }
            let off = (expected[0] / unchanged[0] + expected[1] / unchanged[1]) / 2.0 - 1.0;
            assert!((cell.to_unchanged.mean - off).abs() < 1e-12);
        }
    }
}

#[test]
fn a_text_selects_variants_or_worlds() {
    let names = |only| {
        let plan = plan(Some(only));
        let variants: Vec<&str> = plan.variants().iter().map(|v| v.name).collect();
        let worlds = plan.worlds().into_iter().map(|world| world.name);
        (plan.has_match(), variants, worlds.collect::<Vec<_>>())
    };
    let (has_match, variants, worlds) = names("mixture");
    let expected = ["as it is", "no mixtures from scratch", "one mixture"];
    assert_eq!((has_match, &variants[..]), (true, &expected[..]));
    assert_eq!(worlds.len(), 4);
    let (has_match, variants, worlds) = names("catalogue");
    assert_eq!((has_match, variants.len()), (true, VARIANTS.len()));
    let expected = ["catalogue", "catalogue, 500 late"];
    assert_eq!(worlds, expected);
    let (_, variants, worlds) = names("as it is");
    assert_eq!((variants.len(), worlds.len()), (1, 4));
    assert!(!names("zebra").0);
}

/// Stops after the first seed of the first two worlds.
struct Stop(std::sync::atomic::AtomicU64);

impl Observer for Stop {
    fn played(&self, rounds: u64) {
        self.0
            .fetch_add(rounds, std::sync::atomic::Ordering::Relaxed);
    }

    fn is_cancelled(&self) -> bool {
        let played = self.0.load(std::sync::atomic::Ordering::Relaxed);
        played >= 2 * (ROUNDS / 200) * VARIANTS.len() as u64
    }
}

#[test]
fn an_interrupted_run_keeps_complete_seeds() {
    let plan = Plan {
        threads: 1,
        ..plan(None)
    };
    let table = plan.run(&Stop(Default::default())).unwrap();
    let seeds: Vec<&[u64]> = table.columns.iter().map(|c| &c.seeds[..]).collect();
    assert_eq!(seeds, [[7], [7]]);
    let said = table.reading();
    assert!(said.contains("only 1 of them"), "{said}");
}
