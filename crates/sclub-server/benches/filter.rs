//! Filters over 100,000 items: the time to evaluate a filter, and to recommend the best 10 of the items that pass. Then the
//! time to recommend with `--explore-share`, which estimates probabilities by further draws.
//!
//! `cargo bench -p sclub-server --bench filter`
//!
//! Items have 20 features, three of fifty tags, a price and one of 200 brands. The user of `linucb-ind` has given 200
//! rewards, and so has that of `sclub-soft` in the second table. Times are medians, and the shortest in brackets.

use std::time::{Duration, Instant};

use sclub_server::description::Description;
use sclub_server::engine::{CandidateSet, Engine, Feedback, RecommendQuery, Rules};
use sclub_server::env::Env;
use sclub_server::event::DescribedItem;
use sclub_server::filter::Filter;
use sclub_server::settings::Settings;
use sclub_server::state::Scratch;
use serde_json::{Value, json};

const ITEMS: usize = 100_000;
const DIM: usize = 20;
const TIMES: usize = 100;

fn main() {
    // `cargo test` runs benchmarks to see that they start.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    filters();
    println!();
    draws();
}

/// An engine with items, whose user has given rewards.
fn engine(settings: &Settings, items: usize) -> (Engine, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = Engine::open(Env::real(), folder.path(), settings).expect("an engine");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut draws = Draws(1);
    for first in (0..items).step_by(1000) {
        let some = first..(first + 1000).min(items);
        let some: Vec<DescribedItem> = some.map(|n| item(n, &mut draws)).collect();
        runtime.block_on(engine.upsert(some)).expect("items");
    }
    let mut scratch = Scratch::default();
    for round in 0..200 {
        let shown = ask(&engine, None, 1, &mut scratch);
        let reward = f64::from(u8::from(round % 3 == 0));
        let given = Feedback::of_item(&shown, None, reward);
        runtime.block_on(engine.feedback(&given)).expect("learned");
    }
    (engine, folder)
}

/// The cost of further draws.
fn draws() {
    println!(
        "{:32} {:>16} {:>16}",
        "sclub-soft, candidates", "best 5 ms", "with share"
    );
    for items in [20, 500, 10_000, ITEMS] {
        let times = [0.0, 0.05].map(|explore_share| {
            let settings = Settings {
                explore_share,
                ..Settings::default()
            };
            let (engine, _folder) = engine(&settings, items);
            let mut scratch = Scratch::default();
            median(|| drop(ask(&engine, None, 5, &mut scratch)))
        });
        println!("{items:<32} {:>16} {:>16}", times[0], times[1]);
    }
}

fn filters() {
    let settings = Settings {
        policy: Some("linucb-ind".to_owned()),
        ..Settings::default()
    };
    let (engine, _folder) = engine(&settings, ITEMS);
    let mut scratch = Scratch::default();
    let cases = [
        ("no filter", None),
        ("a tag: 6% pass", Some(json!({"tags": "tag-7"}))),
        (
            "five tags, not two others",
            Some(
                json!({"tags": {"any": ["tag-1", "tag-2", "tag-3", "tag-4", "tag-5"], "none": ["tag-8", "tag-9"]}}),
            ),
        ),
        ("a price: half pass", Some(json!({"price": {"max": 50}}))),
        (
            "a tag, a price and a brand",
            Some(
                json!({"tags": {"none": ["tag-7"]}, "price": {"min": 10}, "brand": ["b1", "b2", "b3"]}),
            ),
        ),
        (
            "3 tags, not 1, price, 100 brands",
            Some(json!({
                "tags": {"any": ["tag-1", "tag-2", "tag-3"], "none": ["tag-8"]},
                "price": {"min": 10, "max": 90},
                "brand": (0..100).map(|n| format!("b{n}")).collect::<Vec<_>>(),
            })),
        ),
        (
            "1,000 ids",
            Some(json!({"id": (0..1000).map(|n| format!("item-{}", n * 97)).collect::<Vec<_>>()})),
        ),
    ];
    println!(
        "{:32} {:>8} {:>16} {:>16}",
        "filter", "pass", "filter ms", "best 10 ms"
    );
    for (name, filter) in cases {
        let filter = filter.map(|filter| parse(&filter));
        let state = engine.state();
        let catalogue = state.catalogue().expect("items");
        let matching = || catalogue.matching(filter.as_ref());
        let passed = matching().map_or(ITEMS, |set| set.len());
        let alone = median(|| drop(std::hint::black_box(matching())));
        drop(state);
        let whole = median(|| drop(ask(&engine, filter.as_ref(), 10, &mut scratch)));
        println!("{name:32} {passed:8} {alone:>16} {whole:>16}");
    }
}

fn item(number: usize, draws: &mut Draws) -> DescribedItem {
    let row: Vec<f64> = (0..DIM).map(|_| draws.unit() - 0.5).collect();
    let length = row.iter().map(|x| x * x).sum::<f64>().sqrt();
    let tags = (0..3).map(|_| format!("tag-{}", (draws.unit() * 50.0) as usize));
    let description = Description {
        title: Some(format!("Item {number}")),
        tags: tags.collect(),
        is_unavailable: false,
        data: json!({"price": number / 200 % 100, "brand": format!("b{}", number % 200)})
            .to_string(),
    };
    DescribedItem {
        id: format!("item-{number}"),
        features: row.iter().map(|x| x / length).collect(),
        description,
    }
}

fn parse(filter: &Value) -> Filter {
    Filter::parse(filter.as_object().expect("an object")).expect("a filter")
}

/// Recommends, and returns the decision.
fn ask(engine: &Engine, filter: Option<&Filter>, k: usize, scratch: &mut Scratch) -> String {
    let asked = RecommendQuery {
        user: "u",
        among: CandidateSet::All,
        rules: Rules {
            filter,
            ..Rules::default()
        },
        k,
        context: None,
    };
    engine
        .recommend(&asked, scratch)
        .expect("a decision")
        .decision
}

/// The median and the shortest of some times, in milliseconds.
fn median(mut run: impl FnMut()) -> String {
    let mut times: Vec<Duration> = (0..TIMES)
        .map(|_| {
            let begun = Instant::now();
            run();
            begun.elapsed()
        })
        .collect();
    times.sort_unstable();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    format!("{:.3} ({:.3})", ms(times[TIMES / 2]), ms(times[0]))
}

/// Pseudo-random numbers, the same each time.
struct Draws(u64);

impl Draws {
    /// From 0 to 1.
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed >> 11) as f64 / (1u64 << 53) as f64
    }
}
