//! Learning, refusals and forgetting.

use sclub::ItemSet;
use sclub_server::engine::{CandidateSet, Feedback, RecommendQuery, Refusal, Rules};
use sclub_server::env::Env;
use sclub_server::event::Item;
use sclub_server::settings::Settings;
use sclub_server::state::Scratch;

use crate::bench::{Bench, DIM, settings, verified};
use crate::common::clock::{DAY, Moved};

#[test]
fn a_repeat_changes_nothing() {
    let bench = Bench::with_items(Env::real(), &settings());
    let shown = bench.recommend("u", 2).unwrap();
    assert_eq!(bench.feedback(&shown.decision, 1.0), Ok(true));
    let hash = bench.hash();
    assert_eq!(bench.feedback(&shown.decision, 0.0), Ok(false));
    let first = shown.items[0].0.as_str();
    let again = bench.feedback_on(&shown.decision, Some(first), 0.0);
    assert_eq!(again, Ok(false));
    assert_eq!(bench.hash(), hash);
    // The second item shown has a reward of its own.
    let second = shown.items[1].0.as_str();
    let other = bench.feedback_on(&shown.decision, Some(second), 0.0);
    assert_eq!(other, Ok(true));
    assert_ne!(bench.hash(), hash);
}

#[test]
fn invalid_requests_are_refused_and_change_nothing() {
    let bench = Bench::with_items(Env::real(), &settings());
    let hash = bench.hash();
    let shown = bench.recommend("u", 1).unwrap().decision;
    assert_eq!(
        bench.feedback("nonsense", 1.0),
        Err(Refusal::UnknownDecision)
    );
    let mut forged = shown.clone().into_bytes();
    let last = forged.len() - 1;
    forged[last] = if forged[last] == b'A' { b'Q' } else { b'A' };
    let forged = String::from_utf8(forged).unwrap();
    assert_eq!(bench.feedback(&forged, 1.0), Err(Refusal::UnknownDecision));
    for reward in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
        let refused = bench.feedback(&shown, reward);
        assert!(
            matches!(&refused, Err(Refusal::Invalid { field, .. }) if field == "reward"),
            "{refused:?}"
        );
    }
    let other = bench.feedback_on(&shown, Some("zebra"), 1.0);
    assert!(matches!(other, Err(Refusal::UnknownItem { .. })));
    let unknown = RecommendQuery {
        user: "u",
        among: CandidateSet::Candidates(vec!["a", "zebra"]),
        rules: Rules {
            strict: true,
            ..Rules::default()
        },
        k: 1,
        context: None,
    };
    let refused = bench.engine.recommend(&unknown, &mut Scratch::default());
    assert!(matches!(refused, Err(Refusal::UnknownItem { id, .. }) if id == "zebra"));
    let item = Item {
        id: "d".to_owned(),
        features: vec![1.0, 2.0],
    };
    let refused = bench.runtime.block_on(bench.engine.upsert(vec![item]));
    assert!(matches!(refused, Err(Refusal::Invalid { .. })));
    assert_eq!(bench.hash(), hash);
    assert_eq!(bench.feedback(&shown, 1.0), Ok(true));
}

#[test]
fn decisions_of_another_folder_are_unknown() {
    let one = Bench::with_items(Env::real(), &settings());
    let other = Bench::with_items(Env::real(), &settings());
    let shown = one.recommend("u", 1).unwrap().decision;
    assert_eq!(other.feedback(&shown, 1.0), Err(Refusal::UnknownDecision));
}

#[test]
fn a_decision_expires() {
    let brief = Settings {
        lifetime: 60,
        ..settings()
    };
    let (clock, env) = Moved::new(Env::real());
    let bench = Bench::with_items(env, &brief);
    let [early, late] = [bench.decide("u"), bench.decide("u")];
    clock.pass(50_000);
    assert_eq!(bench.feedback(&early, 1.0), Ok(true));
    clock.pass(11_000);
    assert_eq!(bench.feedback(&late, 1.0), Err(Refusal::Expired));
    // The record of an answered decision is dropped after a while; it is still not learned twice.
    bench.serve("v", 1);
    clock.pass(120_000);
    bench.serve("v", 1);
    assert_eq!(bench.feedback(&early, 1.0), Err(Refusal::Expired));
    assert_eq!(verified(bench.killed().path()), bench.hash());
    // Nor after a crash: the service clock continues from the last stamp.
    let again = bench.crash();
    assert_eq!(again.feedback(&late, 1.0), Err(Refusal::Expired));
}

/// The features at the time of the decision are learned.
#[test]
fn an_item_that_changed_since_is_learned_as_it_was_shown() {
    let outcome = |change: &dyn Fn(&Bench)| {
        let bench = Bench::with_items(Env::real(), &settings());
        let asked = RecommendQuery {
            user: "u",
            among: CandidateSet::Candidates(vec!["b"]),
            rules: Rules::default(),
            k: 1,
            context: None,
        };
        let shown = bench
            .engine
            .recommend(&asked, &mut Scratch::default())
            .unwrap();
        change(&bench);
        assert_eq!(bench.feedback(&shown.decision, 1.0), Ok(true));
        let state = bench.engine.state();
        state.policy().unwrap().inspect().own_estimate(0).unwrap()
    };
    let unchanged = outcome(&|_| {});
    assert_eq!(unchanged, [0.0, 0.5, 0.0]);
    let replaced = outcome(&|bench| drop(bench.put("b", [0.5, 0.5, 0.5])));
    assert_eq!(replaced, unchanged);
    let removed = outcome(&|bench| {
        assert_eq!(bench.runtime.block_on(bench.engine.remove("b")), Ok(true));
    });
    assert_eq!(removed, unchanged);
}

#[test]
fn a_decision_accepts_a_reward_after_a_crash() {
    let bench = Bench::with_items(Env::real(), &settings());
    let shown = bench.recommend("u", 1).unwrap().decision;
    let inline = ItemSet::from_rows(DIM, &[0.5, 0.5, 0.0, 0.0, 0.5, 0.5]).unwrap();
    let asked = RecommendQuery {
        user: "v",
        among: CandidateSet::Inline(vec!["x", "y"], &inline),
        rules: Rules::default(),
        k: 2,
        context: None,
    };
    let sent_along = bench
        .engine
        .recommend(&asked, &mut Scratch::default())
        .unwrap();
    let again = bench.crash();
    assert_eq!(again.feedback(&shown, 1.0), Ok(true));
    assert_eq!(again.feedback(&sent_along.decision, 1.0), Ok(true));
    let later = again.crash();
    assert_eq!(later.feedback(&shown, 1.0), Ok(false));
    // New decisions never have the numbers of old ones.
    let new = later.recommend("u", 1).unwrap().decision;
    assert_eq!(later.feedback(&new, 1.0), Ok(true));
}

#[test]
fn late_rewards_do_not_bring_a_forgotten_user_back() {
    let bench = Bench::with_items(Env::real(), &settings());
    let early = bench.recommend("u", 1).unwrap().decision;
    let stranger = bench.recommend("never seen", 1).unwrap().decision;
    let first = bench.recommend("u", 1).unwrap().decision;
    assert_eq!(bench.feedback(&first, 1.0), Ok(true));
    assert_eq!(bench.forget("u"), Ok(true));
    assert_eq!(bench.forget("never seen"), Ok(false));
    assert_eq!(bench.engine.state().users().len(), 0);
    assert_eq!(bench.feedback(&early, 1.0), Err(Refusal::Forgotten));
    assert_eq!(bench.feedback(&stranger, 1.0), Err(Refusal::Forgotten));
    bench.compact();
    assert_eq!(bench.feedback(&early, 1.0), Err(Refusal::Forgotten));
    let again = bench.crash();
    assert_eq!(again.feedback(&early, 1.0), Err(Refusal::Forgotten));
    // New decisions for the user are accepted.
    let anew = again.recommend("u", 1).unwrap().decision;
    assert_eq!(again.feedback(&anew, 1.0), Ok(true));
}

/// Batches of decisions follow the same rule as single ones.
#[test]
fn of_a_batch_only_the_decision_of_the_forgotten_user_is_refused() {
    let bench = Bench::with_items(Env::real(), &settings());
    let together = |bench: &Bench| {
        let asked = ["u", "v"].map(|user| RecommendQuery::new(user, 1));
        bench.engine.recommend_all(&asked).unwrap()
    };
    let given = |shown: &[sclub_server::engine::Recommended]| {
        let round: Vec<Feedback<'_>> = shown
            .iter()
            .map(|shown| Feedback::of_item(&shown.decision, None, 1.0))
            .collect();
        bench.runtime.block_on(bench.engine.feedback_batch(&round))
    };
    let before = together(&bench);
    assert_eq!(bench.forget("u"), Ok(false));
    let refused = Refusal::Forgotten.within("feedback", 0);
    assert_eq!(given(&before), Err(refused));
    assert_eq!(bench.rounds(), 0);
    assert_eq!(given(&before[1..]), Ok(vec![true]));
    let after = together(&bench);
    assert_eq!(given(&after), Ok(vec![true; 2]));
}

/// In any interleaving, decisions made before the user was forgotten are refused and later ones are accepted.
/// No refused decision is left in the journal.
#[test]
fn batches_during_a_forget_leave_nothing_of_the_user() {
    let bench = Bench::with_items(Env::real(), &settings());
    for round in 0..20 {
        let (user, other) = (format!("u{round}"), format!("v{round}"));
        let serve = || {
            let asked = [&user, &other].map(|user| RecommendQuery::new(user, 1));
            let shown = bench.engine.recommend_all(&asked).unwrap();
            shown.into_iter().next().unwrap().decision
        };
        let before = serve();
        let beside: Vec<String> = std::thread::scope(|scope| {
            let beside = scope.spawn(|| (0..20).map(|_| serve()).collect());
            assert_eq!(bench.forget(&user), Ok(false));
            beside.join().unwrap()
        });
        let after = serve();
        assert_eq!(bench.feedback(&before, 1.0), Err(Refusal::Forgotten));
        // Up to one decision all are refused, and after it all are accepted.
        let outcomes: Vec<_> = beside.iter().map(|d| bench.feedback(d, 1.0)).collect();
        let first = outcomes.iter().position(|outcome| outcome == &Ok(true));
        let first = first.unwrap_or(outcomes.len());
        let mut refused = outcomes[..first].iter();
        assert!(refused.all(|outcome| outcome == &Err(Refusal::Forgotten)));
        assert!(outcomes[first..].iter().all(|outcome| outcome == &Ok(true)));
        assert_eq!(bench.feedback(&after, 1.0), Ok(true));
        bench.compact();
        let lines = bench.export();
        let of_user = lines.iter().filter(|line| line["user"] == user.as_str());
        assert_eq!(of_user.count(), outcomes.len() - first + 1);
    }
}

/// The wall clock has no effect on learning.
#[test]
fn a_clock_that_jumps_neither_expires_decisions_nor_brings_back_forgotten_users() {
    let brief = Settings {
        lifetime: 3600,
        ..settings()
    };
    let year = 365 * DAY as i64;
    for jump in [year, -year] {
        let (clock, env) = Moved::new(Env::real());
        let bench = Bench::with_items(env, &brief);
        bench.serve("u", 2);
        let [forgotten, open] = [bench.decide("u"), bench.decide("v")];
        clock.jump(jump);
        assert_eq!(bench.forget("u"), Ok(true));
        assert_eq!(bench.feedback(&forgotten, 1.0), Err(Refusal::Forgotten));
        assert_eq!(bench.feedback(&open, 1.0), Ok(true));
        // Enough rounds for all periodic work, with the clock wrong the other way.
        clock.jump(-jump);
        bench.serve("v", 10);
        bench.compact();
        assert_eq!(bench.feedback(&forgotten, 1.0), Err(Refusal::Forgotten));
        assert_eq!(bench.feedback(&open, 1.0), Ok(false));
        let anew = bench.decide("u");
        clock.jump(0);
        assert_eq!(bench.feedback(&anew, 1.0), Ok(true));
        let again = bench.crash();
        assert_eq!(again.feedback(&forgotten, 1.0), Err(Refusal::Forgotten));
        assert_eq!(again.feedback(&open, 1.0), Ok(false));
    }
}
