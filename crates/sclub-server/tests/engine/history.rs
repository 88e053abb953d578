//! Random histories.

use proptest::prelude::*;
use sclub_server::engine::{Feedback, verify};
use sclub_server::env::Env;
use sclub_server::settings::{Literal, Settings};

use crate::bench::{Bench, DIM, of, settings};

#[derive(Debug, Clone)]
enum Step {
    Serve { user: u8, k: u8, reward: bool },
    Batch(Vec<u8>),
    Put { item: u8, features: [i8; DIM] },
    Remove(u8),
    Forget(u8),
    Compact,
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0u8..6, 1u8..4, any::<bool>())
            .prop_map(|(user, k, reward)| Step::Serve { user, k, reward }),
        2 => prop::collection::vec(0u8..6, 1..4).prop_map(Step::Batch),
        3 => (0u8..5, any::<[i8; DIM]>()).prop_map(|(item, features)| Step::Put { item, features }),
        1 => (0u8..5).prop_map(Step::Remove),
        1 => (0u8..6).prop_map(Step::Forget),
        1 => Just(Step::Compact),
        1 => Just(Step::Crash),
    ]
}

/// Plays a history, with snapshots, compactions and crashes in between. A server that goes on, one that
/// restarts, and an offline replay must have the same state. Returns the number of fits.
fn play(settings: &Settings, steps: Vec<Step>) -> Result<u64, TestCaseError> {
    let mut bench = Bench::with(Env::real(), settings);
    bench.put("i0", [0.5, 0.5, 0.0]).unwrap();
    for step in steps {
        match step {
            Step::Serve { user, k, reward } => {
                let shown = bench.recommend(&format!("u{user}"), k.into());
                let Ok(shown) = shown else { continue };
                for (item, _) in &shown.items {
                    let reward = f64::from(u8::from(reward));
                    let applied = bench.feedback_on(&shown.decision, Some(item), reward);
                    prop_assert_eq!(applied, Ok(true));
                }
            }
            Step::Batch(users) => {
                let shown: Vec<_> = users
                    .iter()
                    .filter_map(|user| bench.recommend(&format!("u{user}"), 1).ok())
                    .collect();
                let round: Vec<Feedback<'_>> = shown
                    .iter()
                    .map(|shown| Feedback::of_item(&shown.decision, None, 1.0))
                    .collect();
                if !round.is_empty() {
                    let applied = bench.runtime.block_on(bench.engine.feedback_batch(&round));
                    prop_assert_eq!(applied, Ok(vec![true; round.len()]));
                }
            }
            Step::Put { item, features } => {
                let features = features.map(|f| f64::from(f) / 128.0);
                bench.put(&format!("i{item}"), features).unwrap();
            }
            Step::Remove(item) => {
                let item = format!("i{item}");
                bench.runtime.block_on(bench.engine.remove(&item)).unwrap();
            }
            Step::Forget(user) => {
                bench.forget(&format!("u{user}")).unwrap();
            }
            Step::Compact => drop(bench.compact()),
            Step::Crash => {
                bench.settle();
                let before = bench.hash();
                bench = bench.crash();
                prop_assert_eq!(bench.hash(), before);
            }
        }
    }
    bench.settle();
    let verified = verify(&Env::real(), bench.killed().path(), &mut |_| {}).unwrap();
    prop_assert_eq!(verified.hash, bench.hash());
    let state = bench.engine.state();
    prop_assert_eq!(verified.events, state.events());
    let outlook = state.policy().and_then(|policy| policy.inspect().outlook());
    Ok(outlook.map_or(0, |outlook| outlook.fits))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn state_is_the_fold_of_the_log(steps in prop::collection::vec(step(), 1..60)) {
        play(&settings(), steps)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Also with fits, which come at times of their own.
    #[test]
    fn state_with_fits_is_the_fold_of_the_log(
        steps in prop::collection::vec(step(), 1..200),
        half_life in prop::option::of(1.0..50.0),
    ) {
        let rounds: usize = steps
            .iter()
            .map(|step| usize::from(matches!(step, Step::Serve { .. } | Step::Batch(_))))
            .sum();
        let is_calm = !steps.iter().any(|step| matches!(step, Step::Remove(_) | Step::Forget(_)));
        let half_life = half_life.map(|half| ("half-life".to_owned(), Literal::Number(half)));
        let constants = half_life.into_iter().collect();
        let fits = play(&Settings { constants, ..of("sclub-soft") }, steps)?;
        prop_assert!(fits > 0 || rounds < 32 || !is_calm, "{rounds} rounds without a fit");
    }
}
