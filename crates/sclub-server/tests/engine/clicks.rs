//! Clicks only: rewards of other items of a list, assumed rewards, and the warning that all rewards are equal.

use std::collections::BTreeMap;

use sclub_server::engine::{Engine, Feedback, Recommended, Refusal};
use sclub_server::env::Env;
use sclub_server::event::Item;
use sclub_server::settings::{Settings, Span};

use crate::bench::{Bench, of};

/// The rewards of the export, by item, and whether they are assumed.
fn rewards(bench: &Bench) -> BTreeMap<String, (Option<f64>, bool)> {
    let lines = bench.export();
    let lines = lines.iter().map(|line| {
        let reward = (line["reward"].as_f64(), line["assumed"] == true);
        (line["item"].as_str().unwrap().to_owned(), reward)
    });
    let lines: Vec<_> = lines.collect();
    let count = lines.len();
    let all: BTreeMap<_, _> = lines.into_iter().collect();
    assert_eq!(all.len(), count, "an item is there twice");
    all
}

fn send(bench: &Bench, feedback: Feedback<'_>) -> Result<bool, Refusal> {
    bench.runtime.block_on(bench.engine.feedback(&feedback))
}

fn estimate(engine: &Engine, user: &str) -> Vec<f64> {
    let state = engine.state();
    let number = state.users().number(user).unwrap();
    state.policy().unwrap().estimate(number.into()).unwrap()
}

/// The value of a counter without labels.
fn counted(bench: &Bench, name: &str) -> u64 {
    let text = bench.engine.render_metrics();
    let mut values = text
        .lines()
        .filter_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    values.next().unwrap()
}

fn names(shown: &Recommended) -> Vec<&str> {
    shown.items.iter().map(|(item, _)| item.as_str()).collect()
}

#[test]
fn others_get_the_reward_that_is_given_for_them() {
    let bench = Bench::with_items(Env::real(), &of("linucb-ind"));
    let shown = bench.recommend("u", 3).unwrap();
    let items = names(&shown);
    let click = Feedback::of_item(&shown.decision, Some(items[1]), 1.0).with_others(0.0);
    assert_eq!(send(&bench, click), Ok(true));
    assert_eq!(send(&bench, click), Ok(false), "it counts once");
    let sent = |reward| (Some(reward), false);
    let assumed = (Some(0.0), true);
    let all = rewards(&bench);
    assert_eq!(
        (all[items[0]], all[items[1]], all[items[2]]),
        (assumed, sent(1.0), assumed)
    );
    assert_eq!(bench.engine.state().rewards(), (3, 1.0));
    assert_eq!(bench.engine.state().rounds(), 1, "the list is one round");
    let alone = counted(&bench, "sclub_rewards_assumed_total");
    assert_eq!(alone, 0, "rewards for others are feedback");

    // A second click replaces what was assumed, in the same way or alone.
    let second = Feedback::of_item(&shown.decision, Some(items[2]), 0.5).with_others(0.0);
    assert_eq!(send(&bench, second), Ok(true));
    assert_eq!(send(&bench, second), Ok(false));
    let first = Feedback::of_item(&shown.decision, Some(items[1]), 0.0);
    assert_eq!(send(&bench, first), Ok(false), "that was sent");
    let all = rewards(&bench);
    assert_eq!(
        (all[items[0]], all[items[1]], all[items[2]]),
        (assumed, sent(1.0), sent(0.5))
    );
    assert_eq!(bench.engine.state().rewards(), (3, 1.5));

    // As if all had been sent at once.
    let other = Bench::with_items(Env::real(), &of("linucb-ind"));
    let again = other.recommend("u", 3).unwrap();
    for (item, reward) in [(0, 0.0), (1, 1.0), (2, 0.5)] {
        let one = Feedback::of_item(&again.decision, Some(items[item]), reward);
        assert_eq!(send(&other, one), Ok(true));
    }
    let pairs = estimate(&bench.engine, "u").into_iter();
    for (a, b) in pairs.zip(estimate(&other.engine, "u")) {
        assert!((a - b).abs() < 1e-12, "{a} and {b}");
    }
}

#[test]
fn nothing_was_clicked_and_rewards_of_the_first_items() {
    let bench = Bench::with_items(Env::real(), &of("linucb-ind"));
    let shown = bench.recommend("u", 3).unwrap();
    let none = Feedback::of_list(&shown.decision, &[]).with_others(0.0);
    assert_eq!(send(&bench, none), Ok(true));
    assert!(
        rewards(&bench)
            .values()
            .all(|reward| *reward == (Some(0.0), true))
    );
    let bad = Feedback::of_list(&shown.decision, &[]).with_others(2.0);
    assert!(matches!(send(&bench, bad), Err(Refusal::Invalid { field, .. }) if field == "others"));
    let empty = Feedback::of_list(&shown.decision, &[]);
    assert!(send(&bench, empty).is_err());
    let first = Feedback::of_list(&shown.decision, &[0.25, 1.0]).with_others(0.0);
    assert_eq!(send(&bench, first), Ok(true));
    assert_eq!(bench.engine.state().rewards(), (3, 1.25));
    // In a batch, a reward that is sent counts in place of one that is assumed, in either order.
    for is_first in [true, false] {
        let shown = bench.recommend("v", 2).unwrap();
        let items = names(&shown);
        let mut batch = [
            Feedback::of_item(&shown.decision, Some(items[0]), 1.0).with_others(0.0),
            Feedback::of_item(&shown.decision, Some(items[1]), 1.0),
        ];
        if is_first {
            batch.reverse();
        }
        let before = bench.engine.state().rewards();
        let done = bench.runtime.block_on(bench.engine.feedback_batch(&batch));
        assert_eq!(done, Ok(vec![true, true]));
        let after = bench.engine.state().rewards();
        assert_eq!((after.0 - before.0, after.1 - before.1), (2, 2.0));
    }
}

#[test]
fn a_policy_that_cannot_correct_takes_others_as_they_are() {
    let mut settings = of("sclub-soft");
    let half_life = sclub_server::settings::Literal::Number(50.0);
    settings.constants.insert("half-life".to_owned(), half_life);
    let bench = Bench::with_items(Env::real(), &settings);
    let shown = bench.recommend("u", 2).unwrap();
    let items = names(&shown);
    let click = Feedback::of_item(&shown.decision, Some(items[0]), 1.0).with_others(0.0);
    assert_eq!(send(&bench, click), Ok(true));
    assert_eq!(rewards(&bench)[items[1]], (Some(0.0), false));
    let second = Feedback::of_item(&shown.decision, Some(items[1]), 1.0);
    assert_eq!(send(&bench, second), Ok(false));
    a_click_beats_others_in_a_batch(&bench);
}

#[test]
fn in_a_batch_of_lists_a_reward_that_is_sent_beats_one_for_others() {
    crate::by_id::register();
    a_click_beats_others_in_a_batch(&Bench::with_items(Env::real(), &of(crate::by_id::NAME)));
}

/// In one request, rewards that are sent count in place of those for others, in any order.
fn a_click_beats_others_in_a_batch(bench: &Bench) {
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [1, 2, 0]] {
        let shown = bench.recommend("v", 3).unwrap();
        let items = names(&shown);
        let all = [
            Feedback::of_list(&shown.decision, &[]).with_others(0.0),
            Feedback::of_item(&shown.decision, Some(items[0]), 1.0),
            Feedback::of_item(&shown.decision, Some(items[2]), 0.5).with_others(0.25),
        ];
        let batch = order.map(|place| all[place]);
        let before = bench.engine.state().rewards();
        let done = bench.runtime.block_on(bench.engine.feedback_batch(&batch));
        let done = done.unwrap();
        // Of rewards for others the first counts.
        let of_others = if order == [2, 1, 0] || order == [1, 2, 0] {
            0.25
        } else {
            0.0
        };
        let after = bench.engine.state().rewards();
        let counted = (after.0 - before.0, after.1 - before.1);
        assert_eq!(counted, (3, 1.5 + of_others), "{order:?}");
        let is_new = |place: usize| done[order.iter().position(|at| *at == place).unwrap()];
        assert!(is_new(1) && is_new(2), "{order:?}: {done:?}");
        assert_eq!(is_new(0), of_others == 0.0, "{order:?}: {done:?}");
    }
}

fn unanswered() -> Settings {
    Settings {
        unanswered: Some(0.0),
        after: Span::seconds(1),
        ..of("linucb-ind")
    }
}

/// Waits until so many rewards are learned.
fn wait_for(bench: &Bench, rewards: u64) {
    for _ in 0..1200 {
        if bench.engine.state().rewards().0 >= rewards {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("{} of {rewards} rewards", bench.engine.state().rewards().0);
}

#[test]
fn unanswered_items_get_their_reward_and_a_late_click_replaces_it() {
    // Long enough for the first half of the test.
    let patient = Settings {
        after: Span::minutes(30),
        ..unanswered()
    };
    let mut bench = Bench::with_items(Env::real(), &patient);
    let (shown, other) = (
        bench.recommend("u", 2).unwrap(),
        bench.recommend("v", 3).unwrap(),
    );
    let items = names(&shown);
    let early = Feedback::of_item(&shown.decision, Some(items[0]), 1.0);
    assert_eq!(send(&bench, early), Ok(true));
    // The server is started again while the others wait.
    bench = Bench::at(bench.close(), Env::real(), &patient);
    assert_eq!(bench.engine.unanswered(), 2);
    bench = Bench::at(bench.close(), Env::real(), &unanswered());
    wait_for(&bench, 5);
    assert_eq!(bench.engine.unanswered(), 0);
    assert_eq!(bench.engine.state().rewards(), (5, 1.0));
    let late = Feedback::of_item(&other.decision, Some(&other.items[2].0), 1.0);
    assert_eq!(send(&bench, late), Ok(true));
    assert_eq!(send(&bench, late), Ok(false));
    assert_eq!(bench.engine.state().rewards(), (5, 2.0));
    let since_start = ["sclub_rewards_total", "sclub_rewards_assumed_total"];
    assert_eq!(since_start.map(|name| counted(&bench, name)), [4, 4]);
    // Nothing more comes after another start.
    bench = Bench::at(bench.close(), Env::real(), &unanswered());
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert_eq!(bench.engine.state().rewards(), (5, 2.0));
    let lines = bench.export();
    let assumed = lines.iter().filter(|line| line["assumed"] == true).count();
    assert_eq!((lines.len(), assumed), (5, 3));
}

/// The decisions have 4 MB of features each: with these in memory, there would be room for 62 of them.
#[test]
fn all_decisions_without_a_reward_wait_again_after_a_crash() {
    const DIM: usize = 512;
    const ITEMS: usize = 1000;
    const DECISIONS: usize = 80;
    let settings = Settings {
        after: Span::minutes(30),
        ..unanswered()
    };
    let bench = Bench::with(Env::real(), &settings);
    let items = (0..ITEMS).map(|number| Item {
        id: format!("i{number}"),
        features: (0..DIM)
            .map(|place| (number * DIM + place) as f64 / 1e6)
            .collect(),
    });
    let put = bench.engine.upsert(items.collect::<Vec<_>>());
    assert_eq!(bench.runtime.block_on(put), Ok(ITEMS));
    for number in 0..DECISIONS {
        bench.recommend(&format!("u{number}"), ITEMS).unwrap();
    }
    let answered = [1, ITEMS].map(|k| bench.recommend("v", k).unwrap());
    let all = Feedback::of_list(&answered[0].decision, &[1.0]);
    assert_eq!(send(&bench, all), Ok(true));
    let one = Feedback::of_item(&answered[1].decision, None, 1.0);
    assert_eq!(send(&bench, one), Ok(true));
    // The decisions are in the journal then.
    bench.runtime.block_on(bench.engine.compact()).unwrap();
    let again = bench.crash();
    assert_eq!(again.engine.unanswered(), DECISIONS + 1);
    drop(bench);

    // In a short lifetime, they have expired.
    let brief = Settings {
        after: Span::seconds(1),
        lifetime: 2,
        ..settings
    };
    std::thread::sleep(std::time::Duration::from_secs(3));
    let last = Item {
        id: "last".to_owned(),
        features: vec![0.5; DIM],
    };
    // The service clock goes on with the log.
    again
        .runtime
        .block_on(again.engine.upsert(vec![last]))
        .unwrap();
    let folder = again.close();
    let expired = Bench::at(folder, Env::real(), &brief);
    assert_eq!(expired.engine.unanswered(), 0);
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let refused = |settings: Settings| {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("data");
        let opened = Engine::open(Env::real(), &folder, &settings);
        let why = opened.map(drop).unwrap_err().to_string();
        assert!(!folder.exists(), "a refused start leaves nothing behind");
        // Nor does it fix the policy of an empty folder.
        let folder = parent.path();
        assert!(Engine::open(Env::real(), folder, &settings).is_err());
        drop(Engine::open(Env::real(), folder, &of("lints")).unwrap());
        why
    };
    let cases = [
        (
            Settings {
                unanswered: Some(2.0),
                ..unanswered()
            },
            "unanswered is 2; a reward must be from 0 to 1",
        ),
        (
            Settings {
                journal_days: 0,
                ..unanswered()
            },
            "unanswered needs the journal",
        ),
        (
            Settings {
                lifetime: 1,
                ..unanswered()
            },
            "after is 1s; it must be less than the lifetime",
        ),
        (
            Settings {
                cluster: Some("nats://a".to_owned()),
                ..unanswered()
            },
            "not supported in a cluster",
        ),
        (
            Settings {
                constants: [(
                    "half-life".to_owned(),
                    sclub_server::settings::Literal::Number(5.0),
                )]
                .into(),
                policy: Some("sclub-soft".to_owned()),
                ..unanswered()
            },
            "sclub-soft with a half-life cannot",
        ),
        (
            Settings {
                explore_share: 1.5,
                ..of("sclub")
            },
            "explore-share is 1.5; it must be from 0 to 1",
        ),
    ];
    for (settings, message) in cases {
        let why = refused(settings);
        assert!(why.contains(message), "{why}");
    }
}

#[test]
fn equal_rewards_are_a_warning() {
    let mut bench = Bench::with_items(Env::real(), &of("linucb-ind"));
    let click = |bench: &Bench, reward: f64| {
        let shown = bench.recommend("u", 1).unwrap();
        assert_eq!(bench.feedback(&shown.decision, reward), Ok(true));
    };
    for _ in 0..99 {
        click(&bench, 1.0);
    }
    assert_eq!(bench.engine.reward_warning(), None);
    bench = Bench::at(bench.close(), Env::real(), &of("linucb-ind"));
    click(&bench, 1.0);
    let warning = bench.engine.reward_warning().unwrap();
    assert!(
        warning.starts_with("all 100 rewards so far are 1:"),
        "{warning}"
    );
    // At once after a start.
    bench = Bench::at(bench.close(), Env::real(), &of("linucb-ind"));
    assert_eq!(bench.engine.reward_warning(), Some(warning));
    for _ in 0..100 {
        click(&bench, 0.0);
        assert_eq!(bench.engine.reward_warning(), None);
    }
    // Rewards that differ, with the mean 0.5.
    bench = Bench::at(bench.close(), Env::real(), &of("linucb-ind"));
    click(&bench, 0.5);
    assert_eq!(bench.engine.reward_warning(), None);
}

#[test]
fn no_warning_before_the_first_assumed_rewards() {
    let settings = Settings {
        after: Span::minutes(30),
        ..unanswered()
    };
    let bench = Bench::with_items(Env::real(), &settings);
    for _ in 0..150 {
        let shown = bench.recommend("u", 1).unwrap();
        assert_eq!(bench.feedback(&shown.decision, 1.0), Ok(true));
    }
    assert_eq!(bench.engine.reward_warning(), None);
    // Assumed ones that are the same as those that are sent say nothing either.
    let shown = bench.recommend("u", 2).unwrap();
    let click = Feedback::of_item(&shown.decision, None, 1.0).with_others(1.0);
    assert_eq!(send(&bench, click), Ok(true));
    let warning = bench.engine.reward_warning().unwrap();
    assert!(
        warning.starts_with("all 152 rewards so far are 1, assumed ones included:"),
        "{warning}"
    );
    assert!(!warning.contains("--unanswered"), "{warning}");
}
