//! A policy that learns from lists gets each list as it was shown.

use std::sync::Arc;

use sclub::{ContextMode, List, Observation, Policy, Shown};
use sclub_server::engine::{
    CandidateSet, Engine, Feedback, RecommendQuery, Recommended, Refusal, Rules,
};
use sclub_server::env::{Clock, Env, Task};
use sclub_server::event::Item;
use sclub_server::identity::Identity;
use sclub_server::settings::Settings;
use sclub_server::state::{Scratch, item_id};
use sclub_server::store::Folder;

use crate::bench::{Bench, DIM, of, verified};
use crate::by_id::{self, ById};
use crate::common::{files_containing, new_folder};

/// A clock that stands still.
#[derive(Debug)]
struct Stopped(Arc<dyn Clock>);

impl Clock for Stopped {
    fn wall(&self) -> u64 {
        1_700_000_000_000
    }

    fn monotonic(&self) -> u64 {
        0
    }

    fn sleep(&self, milliseconds: u64) -> Task {
        self.0.sleep(milliseconds)
    }
}

/// A server on which all decisions are made in the same millisecond.
fn bench(settings: &Settings) -> Bench {
    by_id::register();
    let env = Env::real();
    let clock: Arc<dyn Clock> = Arc::new(Stopped(Arc::clone(&env.clock)));
    Bench::with_items(Env { clock, ..env }, settings)
}

fn give(bench: &Bench, round: &[Feedback<'_>]) -> Result<Vec<bool>, Refusal> {
    bench.runtime.block_on(bench.engine.feedback_batch(round))
}

/// The features of the items, as [`Bench::with_items`] puts them.
fn features(id: &str) -> &'static [f64; DIM] {
    match id {
        "a" => &[1.0, 0.0, 0.0],
        "b" => &[0.0, 1.0, 0.0],
        _ => &[0.0, 0.6, 0.8],
    }
}

/// The items of a recommendation with these rewards.
fn items(shown: &Recommended, rewards: [Option<f64>; 3]) -> Vec<Shown<'static>> {
    let items = shown.items.iter().zip(rewards);
    let items = items.map(|((id, _), reward)| Shown {
        item: features(id),
        id: Some(item_id(id)),
        reward,
    });
    items.collect()
}

/// A policy that is taught by hand.
struct Expected(ById);

impl Expected {
    fn learn(&mut self, lists: &[(u64, &[Shown<'_>], Option<usize>)]) {
        let lists = lists.iter().map(|&(user, items, looked_at)| List {
            user,
            items,
            looked_at,
        });
        let lists: Vec<List<'_>> = lists.collect();
        self.0.learn_lists(&lists, &mut Vec::new()).unwrap();
    }

    fn is_like(&self, bench: &Bench) -> bool {
        bench.engine.state().policy().unwrap().digest() == self.0.digest()
    }
}

#[test]
fn lists_are_learned_as_they_were_shown() {
    const USER: &str = "user-zero-5f1c";
    let mut bench = bench(&of(by_id::NAME));
    let mut expected = Expected(ById::new(DIM));
    let shown = bench.recommend(USER, 3).unwrap();
    let decision = &shown.decision;

    assert_eq!(
        give(&bench, &[Feedback::of_list(decision, &[0.0, 1.0])]),
        Ok(vec![true])
    );
    expected.learn(&[(0, &items(&shown, [Some(0.0), Some(1.0), None]), Some(2))]);
    assert!(expected.is_like(&bench), "an item without a reward");

    assert_eq!(
        give(&bench, &[Feedback::of_list(decision, &[1.0])]),
        Ok(vec![false])
    );
    let further = [0.0, 1.0, 0.5];
    assert_eq!(
        give(&bench, &[Feedback::of_list(decision, &further)]),
        Ok(vec![true])
    );
    expected.learn(&[(0, &items(&shown, [None, None, Some(0.5)]), Some(3))]);
    assert!(expected.is_like(&bench), "rewards that were learned before");

    let other = bench.recommend("v", 3).unwrap();
    let last = other.items[2].0.as_str();
    assert_eq!(
        bench.feedback_on(&other.decision, Some(last), 1.0),
        Ok(true)
    );
    expected.learn(&[(1, &items(&other, [None, None, Some(1.0)]), None)]);
    assert!(expected.is_like(&bench), "a single reward");

    // A round without rewards.
    assert_eq!(give(&bench, &[]), Ok(vec![]));
    expected.0.learn_round(&[], &mut Vec::new()).unwrap();

    bench = bench.crash();
    assert!(expected.is_like(&bench), "a restart");
    assert_eq!(verified(bench.killed().path()), bench.hash());
    assert_eq!(bench.engine.state().rewards(), (4, 2.5));
    let exported: Vec<Option<f64>> = bench
        .export()
        .iter()
        .map(|line| line["reward"].as_f64())
        .collect();
    assert_eq!(exported[..4], [0.0, 1.0, 0.5, 1.0].map(Some));

    bench.forget(USER).unwrap();
    bench.compact();
    assert_eq!(files_containing(bench.folder.path(), USER.as_bytes()), 0);
}

#[test]
fn decisions_of_one_user_in_one_batch_and_millisecond_are_lists_of_their_own() {
    let bench = bench(&of(by_id::NAME));
    let one = bench.recommend("u", 3).unwrap();
    let two = bench.recommend("u", 3).unwrap();
    let given = [
        Feedback::of_list(&one.decision, &[0.0, 0.5, 1.0]),
        Feedback::of_list(&two.decision, &[1.0, 0.0]),
    ];
    assert_eq!(give(&bench, &given), Ok(vec![true, true]));
    let mut expected = Expected(ById::new(DIM));
    expected.learn(&[
        (0, &items(&one, [Some(0.0), Some(0.5), Some(1.0)]), Some(3)),
        (0, &items(&two, [Some(1.0), Some(0.0), None]), Some(2)),
    ]);
    assert!(expected.is_like(&bench));
    assert_eq!(give(&bench, &given), Ok(vec![false, false]));
}

#[test]
fn rewards_of_one_decision_in_one_batch_are_one_list() {
    let bench = bench(&of(by_id::NAME));
    let one = bench.recommend("u", 3).unwrap();
    let two = bench.recommend("v", 3).unwrap();
    let [first, _, last] = [0, 1, 2].map(|place| one.items[place].0.as_str());
    let given = [
        Feedback::of_item(&one.decision, Some(last), 1.0),
        Feedback::of_list(&two.decision, &[0.5]),
        Feedback::of_item(&one.decision, Some(first), 0.0),
        Feedback::of_item(&one.decision, Some(last), 0.25),
        // The user looked further than the list of rewards says.
        Feedback::of_item(&two.decision, Some(&two.items[1].0), 1.0),
    ];
    assert_eq!(
        give(&bench, &given),
        Ok(vec![true, true, true, false, true])
    );
    let mut expected = Expected(ById::new(DIM));
    expected.learn(&[
        (0, &items(&one, [Some(0.0), None, Some(1.0)]), None),
        (1, &items(&two, [Some(0.5), Some(1.0), None]), Some(2)),
    ]);
    assert!(expected.is_like(&bench));
}

#[test]
fn a_refused_entry_of_a_batch_is_named() {
    let bench = bench(&of(by_id::NAME));
    let one = bench.recommend("u", 3).unwrap();
    let two = bench.recommend("v", 3).unwrap();
    let given = [
        Feedback::of_list(&one.decision, &[1.0]),
        Feedback::of_list(&two.decision, &[0.0, 7.0]),
    ];
    let message = "the reward is 7; it must be from 0 to 1";
    let refused = Refusal::invalid("rewards[1]", message).within("feedback", 1);
    assert_eq!(give(&bench, &given), Err(refused));
    bench.forget("v").unwrap();
    let given = [given[0], Feedback::of_list(&two.decision, &[0.0])];
    let refused = Refusal::Forgotten.within("feedback", 1);
    assert_eq!(give(&bench, &given), Err(refused));
    assert_eq!(bench.rounds(), 0);
    assert_eq!(give(&bench, &given[..1]), Ok(vec![true]));
}

/// The second of two entries for one decision: the service allows it, and the policy does not.
#[test]
fn a_reward_that_the_policy_refuses_is_named_by_its_entry() {
    let bench = bench(&Settings {
        reward_max: 1e13,
        ..of(by_id::NAME)
    });
    let one = bench.recommend("u", 3).unwrap();
    let two = bench.recommend("v", 3).unwrap();
    let given = [
        Feedback::of_list(&two.decision, &[1.0, 1.0]),
        Feedback::of_item(&one.decision, Some(&one.items[0].0), 1.0),
        Feedback::of_list(&two.decision, &[1.0, 1.0, 1.0]),
        Feedback::of_item(&one.decision, Some(&one.items[2].0), 5e12),
    ];
    let Err(Refusal::At(place, refused)) = give(&bench, &given) else {
        panic!("a reward of 5e12");
    };
    assert_eq!(place, "feedback[3]", "{refused}");
    assert_eq!(give(&bench, &given[..3]), Ok(vec![true; 3]));
}

/// Lists are logged with the features of all items, so a small batch could be a large event.
#[test]
fn a_batch_of_very_long_lists_is_refused() {
    by_id::register();
    let bench = Bench::with(Env::real(), &of(by_id::NAME));
    let items = (0..1000).map(|number| Item {
        id: format!("i{number}"),
        features: vec![0.5; 512],
    });
    let put = bench.engine.upsert(items.collect());
    assert_eq!(bench.runtime.block_on(put), Ok(1000));
    let shown = [(); 3].map(|()| bench.recommend("u", 1000).unwrap().decision);
    let given = shown.each_ref().map(|d| Feedback::of_list(d, &[1.0]));
    let refused = give(&bench, &given).unwrap_err().to_string();
    assert!(refused.contains("3000 items of 512 features"), "{refused}");
    assert_eq!(give(&bench, &given[..2]), Ok(vec![true, true]));
    assert_eq!(give(&bench, &given[2..]), Ok(vec![true]));
}

#[test]
fn lists_have_the_context_of_their_request() {
    let settings = Settings {
        context: vec!["hour".to_owned()],
        context_mode: Some(ContextMode::Append.to_string()),
        ..of(by_id::NAME)
    };
    let bench = bench(&settings);
    let context = serde_json::from_str(r#"{"hour": 0.75}"#).unwrap();
    let asked = RecommendQuery {
        user: "u",
        among: CandidateSet::All,
        rules: Rules::default(),
        k: 2,
        context: Some(&context),
    };
    let shown = bench.engine.recommend(&asked, &mut Scratch::default());
    let shown = shown.unwrap();
    assert_eq!(
        give(&bench, &[Feedback::of_list(&shown.decision, &[1.0])]),
        Ok(vec![true])
    );
    let joined: Vec<Vec<f64>> = shown
        .items
        .iter()
        .map(|(id, _)| [&features(id)[..], &[0.75]].concat())
        .collect();
    let items: Vec<Shown<'_>> = items(&shown, [Some(1.0), None, None])
        .into_iter()
        .zip(&joined)
        .map(|(shown, item)| Shown { item, ..shown })
        .collect();
    let mut expected = Expected(ById::new(DIM + 1));
    expected.learn(&[(0, &items, Some(1))]);
    assert!(expected.is_like(&bench));
    assert!(expected.is_like(&bench.crash()));
    assert_eq!(bench.export()[0]["context"]["hour"], 0.75);
}

/// Such a folder may be opened by an earlier version again, so its log has no lists.
#[test]
fn a_folder_of_an_earlier_format_learns_each_item_by_itself() {
    by_id::register();
    let settings = of(by_id::NAME);
    let folder = new_folder();
    let opened = Folder::open(&Env::real(), folder.path()).unwrap();
    let mut identity = Identity::new(&settings, &*Env::real().random).unwrap();
    identity.format = 1;
    opened.set_identity(&identity.encode()).unwrap();
    drop(opened);
    let bench = Bench {
        engine: Engine::open(Env::real(), folder.path(), &settings).unwrap(),
        runtime: tokio::runtime::Runtime::new().unwrap(),
        folder,
        settings,
    };
    for id in ["a", "b", "c"] {
        bench.put(id, *features(id)).unwrap();
    }
    let shown = bench.recommend("u", 3).unwrap();
    assert_eq!(
        give(&bench, &[Feedback::of_list(&shown.decision, &[0.0, 1.0])]),
        Ok(vec![true])
    );
    let round: Vec<Observation<'_>> = items(&shown, [Some(0.0), Some(1.0), None])
        .iter()
        .filter_map(|shown| {
            Some(Observation {
                user: 0,
                item: shown.item,
                id: shown.id,
                reward: shown.reward?,
            })
        })
        .collect();
    let mut expected = Expected(ById::new(DIM));
    expected.0.learn_round(&round, &mut Vec::new()).unwrap();
    assert!(expected.is_like(&bench));
    assert!(expected.is_like(&bench.crash()));
}
