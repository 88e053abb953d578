//! Reports made of formulas, for tests. None of their numbers was measured.

use super::PAPER_ROUNDS;
use super::model::{
    Audit, Cell, HeldOut, HeldOutRow, HeldOutTable, Line, ManyUsers, ManyUsersRow, Origin, Panel,
    Report, Theorem, Variant,
};
use crate::policies::{Name, Preset};
use crate::summary::Mean;

/// A note that must not come through as a tag.
pub const HOSTILE: &str = "<script>alert('x')</script> & \"more\"";

const POLICIES: [Name; 4] = [Name::CLUB, Name::LINUCB_IND, Name::LINUCB_ONE, Name::SCLUB];

fn of(mean: f64, error: f64) -> Mean {
    Mean { mean, error }
}

/// `place`: which panel, from 0; `rank`: which policy, from 0.
fn cell(place: usize, rank: usize, rounds: u64, seeds: usize) -> Cell {
    let published_regret = 60_000.0 + 1_000.0 * place as f64 + 30_000.0 * ((rank + 1) % 4) as f64;
    let end = published_regret * (0.98 + 0.01 * rank as f64);
    let error = if seeds > 1 { 0.02 * end } else { 0.0 };
    let curve = (0..=64).map(|step| {
        let share = (f64::from(step) / 64.0).powf(0.6 + 0.1 * rank as f64);
        let round = rounds * u64::from(step as u32) / 64;
        (round, of(end * share, error * share))
    });
    Cell {
        policy: POLICIES[rank],
        seeds,
        regret: of(end, error),
        published_regret: Some(published_regret),
        seconds: of(1.5 + 2.0 * rank as f64 + 10.0 * place as f64, 0.25),
        published_seconds: Some(700.0 + 100.0 * (place + rank) as f64),
        clusters: [12.5, 1000.0, 1.0, 10.0][rank],
        curve: curve.collect(),
    }
}

fn panels(rounds: u64, seeds: usize) -> Vec<Panel> {
    let titles = [
        ("1a", "Synthetic, every user equally often"),
        ("1b", "Synthetic, every cluster at its own rate"),
        ("1c", "Synthetic, every user at their own rate"),
        ("2a", "MovieLens, every user equally often"),
        ("2b", "MovieLens, every user at their own rate"),
        ("2c", "Yelp, every user equally often"),
        ("2d", "Yelp, every user at their own rate"),
    ];
    let panel = |(place, (id, title)): (usize, (&str, &str))| Panel {
        id: id.into(),
        title: title.into(),
        note: None,
        missing: None,
        cells: (0..4)
            .map(|rank| cell(place, rank, rounds, seeds))
            .collect(),
    };
    titles.into_iter().enumerate().map(panel).collect()
}

fn audit() -> Audit {
    let variant = |group: &str, name: &str, meaning: &str, step: f64| Variant {
        group: group.into(),
        name: name.into(),
        meaning: meaning.into(),
        regrets: (0..3)
            .map(|setting| {
                let regret = 50_000.0 + 3_000.0 * f64::from(setting) + 777.0 * step;
                let less = of(777.0 * step - 2_000.0, 55.0);
                let is_reference = group == "base" || group == "all";
                (of(regret, 111.0), (!is_reference).then_some(less))
            })
            .collect(),
    };
    Audit {
        reading: vec!["What the numbers say.".into()],
        rounds: PAPER_ROUNDS,
        settings: vec![
            ("1a".into(), 68_238.0),
            ("1b".into(), 54_672.0),
            ("1c".into(), 57_255.0),
        ],
        variants: vec![
            variant("base", "pseudo-code", "Algorithm 1, line by line.", 1.0),
            variant(
                "alone",
                "shared arrays",
                "Clusters keep the `numpy` arrays of their users.",
                2.0,
            ),
            variant(
                "alone",
                "marks cleared",
                "Marks are cleared after every round.",
                3.0,
            ),
            variant(
                "without",
                "shared arrays",
                "All but the shared arrays.",
                4.0,
            ),
            variant(
                "without",
                "marks cleared",
                "All but the cleared marks.",
                5.0,
            ),
            variant(
                "all",
                "published code",
                "Everything that the code does.",
                6.0,
            ),
        ],
    }
}

/// Powers of two up to the paper's rounds.
fn rounds() -> impl Iterator<Item = f64> {
    (6..=20).map(|power| f64::from(1 << power))
}

fn theorem() -> Theorem {
    let line = |label: &str, policy, dashed, value: &dyn Fn(f64) -> Mean| Line {
        label: label.into(),
        policy,
        dashed,
        strength: 1.0,
        points: rounds().map(|round| (round, value(round))).collect(),
    };
    let term = |what: &str, value: &str, how: &str| (what.into(), value.into(), how.into());
    Theorem {
        lines: vec![
            line("bound of Theorem 1", None, false, &|t| {
                of(4e7 * t.ln(), 0.0)
            }),
            line("trivial bound: T", None, true, &|t| of(t, 0.0)),
            line("SCLUB, measured", Some(Name::SCLUB), false, &|t| {
                of(60.0 * t.sqrt(), 10.0 * t.sqrt())
            }),
        ],
        terms: vec![
            term(
                "λₓ",
                "0.0263",
                "smallest eigenvalue of E[xxᵀ]; items are uniform on a sphere",
            ),
            term(
                "γ",
                "0.71",
                "smallest distance of two clusters' vectors in `1a`",
            ),
            term("exploration", "1.2 · 10⁹", "n (R/p² + 1/γ²λₓ³) ln T"),
        ],
        reading: vec![
            "The bound is above the trivial one for every number of rounds shown.".into(),
            "So it says nothing yet at `T = 2^20`; the regret measured is far below both.".into(),
        ],
    }
}

fn many_users() -> ManyUsers {
    let sizes = [1.0, 10.0, 100.0];
    let line = |(place, users): (usize, f64)| Line {
        label: format!("SCLUB, {users:.0} users a round"),
        policy: Some(Name::SCLUB),
        dashed: false,
        strength: 1.0 - 0.3 * place as f64,
        points: (0..=40)
            .map(|step| {
                let served = 25_000.0 * f64::from(step);
                let regret = (60.0 + 8.0 * place as f64) * served.sqrt();
                (served, of(regret, 0.03 * regret))
            })
            .collect(),
    };
    let row = |(place, users): (usize, f64)| ManyUsersRow {
        users_a_round: users,
        preset: Preset::Tuned,
        policy: Name::SCLUB,
        rounds: 1_000_000 / users as u64,
        served: 1_000_000.0,
        regret: of((60.0 + 8.0 * place as f64) * 1_000.0, 432.0),
        clusters: 10.0 + place as f64 / 2.0,
        bound: 123_456.0 + place as f64,
    };
    ManyUsers {
        lines: sizes.into_iter().enumerate().map(line).collect(),
        rows: sizes.into_iter().enumerate().map(row).collect(),
        reading: vec![
            "More users a round cost little: they learn from one another a round later.".into(),
        ],
    }
}

fn held_out_table(title: &str, base: f64) -> HeldOutTable {
    let policies = [
        ("LinUCB-One", Name::LINUCB_ONE),
        ("LinUCB-Ind", Name::LINUCB_IND),
        ("LinUCB-Ind, tuned", Name::LINUCB_IND),
        ("CLUB, tuned", Name::CLUB),
        ("SCLUB, tuned", Name::SCLUB),
        ("Random", Name::RANDOM),
    ];
    let row = |(rank, (label, policy)): (usize, (&str, Name))| {
        let rate = base + 0.0123 * rank as f64;
        HeldOutRow {
            label: label.into(),
            policy,
            constants: format!("β 0.{rank}, λ {}", rank + 1),
            rate: of(rate, 0.0011),
            over_one: (rank != 0).then(|| of(rate / base - 1.0, 0.0055)),
            over_tuned_ind: (rank != 2).then(|| of(rate / (base + 0.0246) - 1.0, 0.0066)),
            by_age: (0..5)
                .map(|age| {
                    (rank != 3 || age < 4)
                        .then(|| of(rate + 0.004 * f64::from(age) * rank as f64, 0.002))
                })
                .collect(),
        }
    };
    HeldOutTable {
        title: title.into(),
        ages: ["1–5", "6–20", "21–50", "51–200", "201+"]
            .map(str::to_owned)
            .to_vec(),
        rows: policies.into_iter().enumerate().map(row).collect(),
    }
}

fn held_out(name: &str, base: f64) -> HeldOut {
    HeldOut {
        name: name.into(),
        note: Some("These data are not the paper's, but `made up`.".into()),
        sizes: vec![
            ("feature users".into(), 20_000),
            ("bandit users".into(), 1_000),
            ("items".into(), 1_682),
            ("rounds".into(), 98_765),
        ],
        tuning: "Tuned constants are the best of 12 on the first split, which is not counted."
            .into(),
        tables: vec![
            held_out_table("19 others drawn uniformly", base),
            held_out_table("19 others drawn by popularity", base / 2.0),
        ],
    }
}

/// Every section filled in.
pub fn full() -> Report {
    let mut panels = panels(PAPER_ROUNDS, 10);
    for panel in &mut panels[5..] {
        panel.note = Some("Data made up by a formula, not the paper's.".into());
    }
    Report {
        origin: Origin {
            command: "sclub reproduce --movielens ml-20m.zip --yelp yelp.tar --out report".into(),
            quick: false,
            rounds: PAPER_ROUNDS,
            seeds: (1..=10).collect(),
            machine: vec![
                ("Operating system".into(), "Linux".into()),
                ("Processor".into(), "Model of a processor".into()),
                ("Cores".into(), "8".into()),
                ("Memory".into(), "16 GiB".into()),
            ],
            versions: vec![
                ("sclub".into(), "0.1.0".into()),
                ("Compiler".into(), "rustc 1.88.0".into()),
            ],
            seconds: 7_260.0,
            cells: (280, 12),
            complete: true,
            to_come: Vec::new(),
        },
        panels,
        audit: Some(audit()),
        theorem: Some(theorem()),
        many_users: Some(many_users()),
        held_out: vec![held_out("MovieLens", 0.1), held_out("Yelp", 0.08)],
    }
}

/// A short run without data sets, not complete.
pub fn quick() -> Report {
    let mut panels = panels(20_000, 1);
    for panel in &mut panels[3..] {
        panel.cells.clear();
        panel.missing =
            Some("Needs the data: `sclub fetch movielens <dir>`, then run again.".into());
    }
    panels[0].note = Some(HOSTILE.into());
    Report {
        origin: Origin {
            quick: true,
            rounds: 20_000,
            seeds: vec![1],
            complete: false,
            to_come: vec!["the audit".into()],
            seconds: 4.25,
            cells: (12, 0),
            command: "sclub reproduce --quick && echo '<b>'".into(),
            ..full().origin
        },
        panels,
        audit: None,
        theorem: None,
        many_users: None,
        held_out: Vec::new(),
    }
}
