//! The table against results that are computed in another way.

use std::sync::Arc;

use super::*;
use crate::policies::{Guest, MakePolicy};

fn plan(policies: &[Name], only: &[&str]) -> Plan {
    Plan {
        policies: policies.to_vec(),
        rounds: 400,
        seeds: vec![1, 2, 3],
        threads: 2,
        only: only.iter().map(|&text| text.to_owned()).collect(),
        left_out: Vec::new(),
        constants: Tuned::default(),
        released: false,
    }
}

fn played(plan: &Plan) -> (tempfile::TempDir, Cells) {
    let folder = tempfile::tempdir().unwrap();
    let cells = Cells::open(&folder.path().join("cells.jsonl")).unwrap();
    let done = plan.run(&cells, &()).unwrap();
    assert_eq!(done.missing, 0);
    (folder, cells)
}

/// The values are those of `sclub run`, ranks and differences are recomputed.
#[test]
fn a_row_has_the_results_of_a_run() {
    let policies = [Name::SCLUB, Name::LINUCB_IND, Name::LINUCB_ONE];
    let plan = plan(&policies, &["servers", "overlap"]);
    let (_folder, cells) = played(&plan);
    let field = plan.field(&cells).unwrap();
    assert_eq!(field.worlds.len(), 2);
    for (row, world) in field.worlds.iter().zip(plan.worlds()) {
        assert_eq!(row.seeds, [1, 2, 3]);
        let mut means = Vec::new();
        for &name in &policies {
            let cell = row.cell(name).unwrap();
            let entry =
                crate::paper::entry(name, sclub::Preset::Tuned, &world.setting, 400).unwrap();
            for (&seed, &value) in row.seeds.iter().zip(&cell.values) {
                let made = world.setting.world(seed).unwrap();
                let entries = std::slice::from_ref(&entry);
                let runs = crate::run::play(&*made, seed, entries, 400, &()).unwrap();
                assert_eq!(runs.unwrap()[0].regret, value, "{name}");
            }
            means.push(cell.values.iter().sum::<f64>() / 3.0);
        }
        let best = means.iter().copied().fold(f64::INFINITY, f64::min);
        for (&name, &mean) in policies.iter().zip(&means) {
            let cell = row.cell(name).unwrap();
            // Equal policies share their mean rank.
            let smaller = means.iter().filter(|&&other| other < mean).count() as f64;
            let equal = means.iter().filter(|&&other| other == mean).count() as f64;
            assert_eq!(cell.rank, Some(smaller + (equal + 1.0) / 2.0));
            assert!((cell.behind.unwrap().mean - (mean - best)).abs() < 1e-9);
            assert!(cell.p.is_some() || mean == best);
            assert!(mean != best || cell.p.is_none_or(|p| p == 1.0));
        }
        // References play, and are not ranked.
        assert_eq!(row.cell(Name::RANDOM).unwrap().rank, None);
        assert!(
            row.cell(Name::ORACLE).unwrap().mean.mean < row.cell(Name::RANDOM).unwrap().mean.mean
        );
    }
    let ranks: f64 = field.standings.iter().map(|standing| standing.rank).sum();
    assert!((ranks - 6.0).abs() < 1e-9, "ranks 1, 2, 3 in each world");
    assert!(field.standings.is_sorted_by(|a, b| a.rank <= b.rank));
}

/// The page, the picture and the LaTeX table have every policy and world.
#[test]
fn all_outputs_have_all_results() {
    let policies = [Name::SCLUB, Name::CLUB, Name::LINUCB_ONE];
    let plan = plan(&policies, &["servers", "overlap"]);
    let (_folder, cells) = played(&plan);
    let field = plan.field(&cells).unwrap();
    let html = page(&field, "sclub field", "1 s", true).unwrap();
    let tex = latex(&field);
    let svg = ranks_picture(&field).unwrap();
    let plain = text(&field, true);
    for name in policies {
        assert!(html.contains(name.title) && tex.contains(name.title) && svg.contains(name.title));
    }
    for row in &field.worlds {
        assert!(html.contains(row.world) && tex.contains(row.world));
        let ranked = row.cells.iter().filter(|cell| cell.rank.is_some());
        let best = ranked
            .min_by(|a, b| a.rank.partial_cmp(&b.rank).unwrap())
            .unwrap();
        let bold = format!(
            "\\mathbf{{{}",
            row.measure.text(best.mean.mean).replace(',', "{,}")
        );
        assert!(tex.contains(&bold), "{bold} in {tex}");
        let mut lines = plain.lines().skip_while(|line| *line != row.command);
        let words: Vec<&str> = lines.nth(2).unwrap().split_whitespace().collect();
        let mean = row.measure.text(best.mean.mean);
        assert_eq!(words[..3], ["*", best.policy.as_str(), &mean]);
        assert!(plain.contains(&format!("{}: {}", row.world, row.title)));
    }
    for standing in &field.standings {
        let rank = format!("{:.2}", standing.rank);
        let is_row = |line: &str| {
            line.split_whitespace()
                .take(2)
                .eq([standing.policy.as_str(), &rank])
        };
        assert!(plain.lines().any(is_row), "{rank}");
    }
    for claim in &field.claims {
        let row = format!("  {}, constants", claim.policy);
        assert!(plain.contains(&claim.command) && plain.contains(&row));
    }
    assert!(!html.contains("{{") && html.ends_with("</html>"));
}

/// A policy in its own world plays with published constants, and with what its public code does otherwise, against
/// others with published constants.
#[test]
fn claims_are_regrets_over_those_of_others() {
    let plan = plan(&["dynucb".parse().unwrap(), Name::SCLUB], &["uniform"]);
    let (_folder, cells) = played(&plan);
    let field = plan.field(&cells).unwrap();
    let world = &plan.worlds()[0];
    let regret = |name: &str, given: &[(&str, sclub::Value)]| {
        let entry = published(name.parse().unwrap(), world, given).unwrap();
        let one = |&seed: &u64| {
            let made = world.setting.world(seed).unwrap();
            let entries = std::slice::from_ref(&entry);
            let runs = crate::run::play(&*made, seed, entries, 400, &()).unwrap();
            runs.unwrap()[0].regret
        };
        plan.seeds.iter().map(one).sum::<f64>() / 3.0
    };
    let stale = [("centroids", sclub::Value::Choice("stale"))];
    let own: Vec<&Claim> = field
        .claims
        .iter()
        .filter(|claim| claim.policy.as_str() == "dynucb" && claim.world == "uniform")
        .collect();
    let expected = [
        None,
        Some(regret("dynucb", &[])),
        Some(regret("dynucb", &stale)),
    ];
    assert_eq!(own.len(), expected.len());
    for (claim, expected) in own.iter().zip(expected) {
        let Some(expected) = expected else {
            assert_eq!(claim.constants, Constants::Table);
            assert_eq!(claim.against.len(), 3);
            continue;
        };
        assert!((claim.regret.mean - expected).abs() < 1e-9);
        for Against { other, off, p } in &claim.against {
            let off_expected = expected / regret(other.as_str(), &[]) - 1.0;
            assert!((off - off_expected).abs() < 1e-9, "{other}");
            assert!(p.is_some());
        }
        assert_eq!(claim.against.len(), 3);
    }
    // A table of published constants has them once.
    let released = Plan {
        released: true,
        ..plan
    };
    let kinds = released.field(&cells).unwrap().claims;
    assert!(
        kinds
            .iter()
            .all(|claim| claim.constants != Constants::Table)
    );
}

/// A stored result is not run again, and a stopped run goes on.
#[test]
fn results_are_reused() {
    let plan = plan(&[Name::LINUCB_ONE], &["servers"]);
    let (_folder, cells) = played(&plan);
    assert_eq!(plan.rounds_to_play(&cells).unwrap(), 0);
    let again = plan.run(&cells, &()).unwrap();
    assert_eq!((again.new, again.missing), (0, 0));
}

/// Makes LinUCB-One, as the registry does.
struct MakesOne;

impl MakePolicy for MakesOne {
    fn make(
        &self,
        world: &dyn crate::world::World,
        seed: u64,
        rounds: u64,
    ) -> Result<Box<dyn sclub::Policy>, sclub::Error> {
        let setup = crate::policies::setup(world.dim(), world.users());
        let entry = Entry::new(Name::LINUCB_ONE, sclub::Preset::Tuned, &[], &setup).unwrap();
        let made = crate::policies::make(&entry, world, seed, rounds)?;
        Ok(made.unwrap())
    }
}

fn guest(name: &str) -> Guest {
    let colors = ["#112233", "#aabbcc"];
    Guest::new(name, "A twin", "a test", colors, Arc::new(MakesOne))
}

/// A guest is a column like that of its twin, and its results are not written.
#[test]
fn a_guest_gets_the_column_of_its_twin() {
    let twin = guest("my twin");
    let mut plan = plan(
        &[twin.name(), Name::LINUCB_ONE, Name::LINUCB_IND],
        &["servers", "overlap", "cascade"],
    );
    plan.left_out.push((twin.name(), "overlap"));
    let (folder, cells) = played(&plan);
    let field = plan.field(&cells).unwrap();
    for row in &field.worlds {
        let own = row.cell(Name::LINUCB_ONE).unwrap();
        match row.cell(twin.name()) {
            None => assert_eq!(row.world, "overlap"),
            Some(cell) => {
                // It does not play all worlds, so it has no part in the ranks of others, and shares that of its twin.
                let shared = own.rank.map(|rank| rank + 0.5);
                assert_eq!((&cell.values, cell.rank), (&own.values, shared));
                assert_eq!(cell.behind, own.behind);
                // The best of a world has none, and one that is equal to it has 1.
                assert_eq!(cell.p.unwrap_or(1.0), own.p.unwrap_or(1.0));
            }
        }
    }
    let standing = |name| field.standings.iter().find(|one| one.policy == name);
    assert_eq!(standing(twin.name()).unwrap().worlds, 2);
    let html = page(&field, "sclub field", "1 s", true).unwrap();
    assert!(html.contains("my twin") && latex(&field).contains("my twin"));
    let stored = std::fs::read_to_string(folder.path().join("cells.jsonl")).unwrap();
    assert!(stored.contains("linucb-one seed") && !stored.contains("my twin"));
    drop(cells);
    let cells = Cells::open(&folder.path().join("cells.jsonl")).unwrap();
    assert_eq!(plan.run(&cells, &()).unwrap().new, 2 * 3);
    // In memory everything is kept, and nothing is written.
    let cells = Cells::in_memory();
    plan.run(&cells, &()).unwrap();
    assert_eq!(plan.rounds_to_play(&cells).unwrap(), 0);
}

#[test]
fn a_name_is_free_when_its_guest_is_gone() {
    let (one, two) = (guest("the same"), guest("the same"));
    let place = |guest: &Guest| std::ptr::from_ref(guest.name().spec());
    assert_ne!(place(&one), place(&two));
    let (first, name) = (place(&one), one.name());
    drop(one);
    let plan = plan(&[name], &["servers"]);
    let error = plan.run(&Cells::in_memory(), &()).unwrap_err();
    assert!(error.to_string().contains("a caller that has ended"));
    assert_eq!(place(&guest("the same")), first);
    assert_eq!(name.title, "the same");
}

/// Guests are told what policies of the registry are told.
#[test]
fn a_world_tells_what_its_setting_tells() {
    for world in worlds(100).into_iter().chain(own_settings(100)) {
        let made = world.setting.world(1).unwrap();
        assert_eq!(made.told(), world.setting.told(), "{}", world.name);
    }
}

/// Policies that need ids of items, or lists, play where these are.
#[test]
fn policies_play_where_they_can() {
    let all = plan(&Name::all(), &[]);
    let mut policies = all.policies.clone();
    policies.retain(|name| !name.needs_truth());
    let plan = Plan { policies, ..all };
    for world in plan.worlds() {
        let names: Vec<&str> = plan
            .entries(&world)
            .unwrap()
            .iter()
            .map(|entry| entry.name.as_str())
            .collect();
        let has = |name: &str| names.contains(&name);
        assert!(has("sclub") && has("random"), "{}", world.name);
        assert_eq!(has("club-cascade"), world.family == Family::Lists);
        assert_eq!(has("cab"), world.family != Family::Catalogue);
        // What a world tells is told.
        for entry in plan.entries(&world).unwrap() {
            if let ("servers", Some(servers)) = (world.name, entry.values.number("servers")) {
                assert_eq!(servers, 5.0);
            }
        }
    }
}

/// The constants of this release are valid for the policies that they are for.
#[test]
fn the_constants_of_this_release_are_valid() {
    for (family, policies) in &tuned().constants {
        assert!(
            family == ALL_FAMILIES || Family::ALL.iter().any(|known| known.as_str() == family),
            "{family}"
        );
        for (policy, chosen) in policies {
            let name: Name = policy.parse().unwrap();
            for (constant, text) in chosen {
                name.constant(constant).unwrap().parse(text).unwrap();
            }
        }
    }
}

/// Tuning keeps the best of its candidates, among them the default, on seeds of its own.
#[test]
fn tuning_keeps_the_best_candidate() {
    let plan = TunePlan {
        policies: vec![Name::LINUCB_IND],
        candidates: 4,
        rounds: 256,
        seeds: 1,
        per_family: true,
        threads: 2,
    };
    let folder = tempfile::tempdir().unwrap();
    let cells = Cells::open(&folder.path().join("cells.jsonl")).unwrap();
    let mut done = Progress::default();
    let tuned = plan.run(&cells, &(), &mut done).unwrap().unwrap();
    assert_eq!(tuned.seeds, [FIRST_TUNING_SEED + 1]);
    for family in Family::ALL {
        let (best, default) = tuned.scores[family.as_str()]["linucb-ind"];
        assert!(best <= default);
        let chosen = tuned.of(family, "linucb-ind").unwrap();
        // Recomputed with the constants that were chosen. A default that is the best of the first rung has won there.
        let score = |seed| {
            let all = worlds(256).into_iter();
            let scores = all.filter(|world| world.family == family).map(|world| {
                let entry = tune::entry(Name::LINUCB_IND, &world, Some(chosen)).unwrap();
                let made = world.setting.world(seed).unwrap();
                let runs = crate::run::play(&*made, seed, &[entry], world.rounds, &());
                let run = &runs.unwrap().unwrap()[0];
                run.regret / run.random_regret
            });
            let scores: Vec<f64> = scores.collect();
            scores.iter().sum::<f64>() / scores.len() as f64
        };
        let rungs = [FIRST_TUNING_SEED, FIRST_TUNING_SEED + 1].map(score);
        let is_best = |score: &f64| (score - best).abs() < 1e-12;
        assert!(is_best(&rungs[1]) || (chosen.is_empty() && is_best(&rungs[0])));
    }
    // The same again, from stored results.
    let mut again = Progress::default();
    assert_eq!(plan.run(&cells, &(), &mut again).unwrap(), Some(tuned));
    assert_eq!(again.new, 0);
}
