//! Experiments in the engine: arms that learn, counts, crashes, copies, and the end.

use sclub_server::engine::{
    ArmRequest, CandidateSet, Engine, Feedback, RecommendQuery, Recommended, Refusal, Rules,
};
use sclub_server::env::Env;
use sclub_server::experiment::ExperimentReport;
use sclub_server::settings::{Literal, Settings};
use sclub_server::state::Scratch;
use serde_json::Value;

use crate::bench::{Bench, of, verified};
use crate::common::new_folder;

pub fn arm(name: &str, policy: &str, share: u32) -> ArmRequest {
    ArmRequest {
        name: name.to_owned(),
        settings: of(policy),
        share,
    }
}

/// An arm whose policy cannot correct a reward.
fn forgetful(name: &str, share: u32) -> ArmRequest {
    let mut arm = arm(name, "sclub-soft", share);
    let half_life = ("half-life".to_owned(), Literal::Number(1000.0));
    arm.settings.constants.extend([half_life]);
    arm
}

/// A server for a policy with three items.
fn server(policy: &str) -> Bench {
    Bench::with_items(Env::real(), &of(policy))
}

fn start(bench: &Bench, name: &str, arms: Vec<ArmRequest>) -> Result<(), Refusal> {
    bench
        .runtime
        .block_on(bench.engine.start_experiment(name, arms))
}

fn end(bench: &Bench, name: &str, winner: &str) -> Result<(), Refusal> {
    bench
        .runtime
        .block_on(bench.engine.end_experiment(name, winner))
}

fn running(bench: &Bench) -> ExperimentReport {
    bench.engine.experiments().0.unwrap()
}

/// A round of each of some users: item "a" is liked, others are not.
fn visits(bench: &Bench, users: std::ops::Range<usize>) {
    for user in users {
        let shown = bench.recommend(&format!("u{user}"), 1).unwrap();
        let reward = f64::from(u8::from(shown.items[0].0 == "a"));
        assert_eq!(bench.feedback(&shown.decision, reward), Ok(true));
    }
}

/// The experiment of most tests: the policy in force, two others, and a shadow.
fn arms() -> Vec<ArmRequest> {
    vec![
        arm("control", "linucb-one", 4000),
        arm("test", "sclub-soft", 3000),
        arm("other", "sclub", 3000),
        arm("quiet", "linucb-ind", 0),
    ]
}

#[test]
fn rewards_are_counted_for_the_arm_that_showed_the_item() {
    let bench = server("linucb-one");
    let early = bench.recommend("u1", 1).unwrap().decision;
    start(&bench, "x", arms()).unwrap();
    // A decision from before the start counts for no arm.
    bench.feedback(&early, 1.0).unwrap();
    visits(&bench, 0..100);
    visits(&bench, 0..50);
    let report = running(&bench);
    // The independent count: the users of the export, by arm.
    let lines = bench.export();
    let of_arm = |name: &str| -> (usize, f64, usize) {
        let lines: Vec<&Value> = lines.iter().filter(|line| line["arm"] == name).collect();
        assert!(lines.iter().all(|line| line["experiment"] == "x"));
        let rewards = lines.iter().map(|line| line["reward"].as_f64().unwrap());
        let mut users: Vec<&str> = lines.iter().map(|l| l["user"].as_str().unwrap()).collect();
        users.sort_unstable();
        users.dedup();
        (lines.len(), rewards.sum(), users.len())
    };
    let mut items = 0;
    for (plan, arm) in report.plan.arms.iter().zip(&report.arms) {
        let counted = (
            arm.sums.items as usize,
            arm.sums.rewards,
            arm.sums.users as usize,
        );
        assert_eq!(counted, of_arm(&plan.name), "{}", plan.name);
        items += counted.0;
    }
    assert_eq!(items, 150);
    assert_eq!(lines.iter().filter(|line| line["arm"].is_null()).count(), 1);
    let shadow = report.arms.last().unwrap();
    assert_eq!(shadow.sums.items, 0, "a shadow arm is never shown");
    assert!(report.arms[..3].iter().all(|arm| arm.sums.users > 15));
}

#[test]
fn a_crash_a_snapshot_and_a_backup_keep_the_experiment() {
    let bench = server("linucb-one");
    start(&bench, "x", arms()).unwrap();
    visits(&bench, 0..40);
    bench.settle();
    let check = |other: &Bench, what: &str| {
        assert_eq!(other.hash(), bench.hash(), "{what}");
        assert_eq!(running(other), running(&bench), "{what}");
    };
    check(&bench.crash(), "only the log");
    bench.snapshot();
    visits(&bench, 20..60);
    bench.forget("u7").unwrap();
    visits(&bench, 0..10);
    bench.settle();
    check(&bench.crash(), "a snapshot and the log");
    check(&bench.restored(&bench.backup()), "a backup");
    assert_eq!(verified(bench.killed().path()), bench.hash());
    bench.compact();
    check(&bench.crash(), "compacted");
}

#[test]
fn every_arm_learns_from_every_reward_as_a_server_with_its_policy_would() {
    let bench = server("linucb-one");
    let arms = vec![
        arm("control", "linucb-one", 5000),
        arm("test", "sclub", 5000),
        arm("quiet", "linucb-ind", 0),
    ];
    start(&bench, "x", arms).unwrap();
    visits(&bench, 0..60);
    visits(&bench, 30..50);
    let lines = bench.export();
    assert_eq!(lines.len(), 80);
    let state = bench.engine.state();
    let digests = state.policies().map(|(_, policy)| policy.digest());
    for (policy, digest) in ["linucb-one", "sclub", "linucb-ind"]
        .into_iter()
        .zip(digests)
    {
        let alone = server(policy);
        for line in &lines {
            let asked = RecommendQuery {
                user: line["user"].as_str().unwrap(),
                among: CandidateSet::Candidates(vec![line["item"].as_str().unwrap()]),
                rules: Rules::default(),
                k: 1,
                context: None,
            };
            let shown = alone
                .engine
                .recommend(&asked, &mut Scratch::default())
                .unwrap();
            let reward = line["reward"].as_f64().unwrap();
            assert_eq!(alone.feedback(&shown.decision, reward), Ok(true));
        }
        let expected = alone.engine.state().policy().unwrap().digest();
        assert_eq!(digest, expected, "{policy}");
    }
}

#[test]
fn the_fits_of_an_arm_are_events() {
    let bench = server("linucb-one");
    start(&bench, "x", arms()).unwrap();
    let fits = |bench: &Bench| {
        let state = bench.engine.state();
        let (_, policy) = state.policies().nth(1).unwrap();
        policy.inspect().outlook().unwrap().fits
    };
    for _ in 0..20 {
        visits(&bench, 0..60);
        bench.settle();
        if fits(&bench) > 0 {
            break;
        }
    }
    assert!(fits(&bench) > 0, "the arm with sclub-soft was never fitted");
    let again = bench.crash();
    assert_eq!(fits(&again), fits(&bench));
    assert_eq!(again.hash(), bench.hash());
}

#[test]
fn the_winner_is_in_force_after_the_end_and_after_a_restart() {
    let bench = server("linucb-one");
    visits(&bench, 0..5);
    start(&bench, "x", arms()).unwrap();
    visits(&bench, 0..60);
    let before = running(&bench);
    let rounds = bench.rounds();
    let late = bench.recommend("u3", 1).unwrap().decision;
    end(&bench, "x", "other").unwrap();
    assert_eq!(bench.engine.state().identity().policy.name, "sclub");
    assert_eq!(bench.rounds(), rounds);
    let (now, past) = bench.engine.experiments();
    assert_eq!(now, None);
    assert_eq!(past[0].arms, before.arms);
    assert_eq!(past[0].end.as_ref().unwrap().1, "other");
    // Learned, and not counted any more.
    assert_eq!(bench.feedback(&late, 1.0), Ok(true));
    assert_eq!(bench.engine.experiments().1, past);
    visits(&bench, 0..20);
    let again = bench.crash();
    assert_eq!(again.hash(), bench.hash());
    assert_eq!(again.engine.state().identity().policy.name, "sclub");
    bench.snapshot();
    assert_eq!(bench.crash().hash(), bench.hash());
    let settings = bench.settings.clone();
    let folder = bench.close();
    // The settings may name the policy that the folder was made with, or the one in force.
    for policy in ["linucb-one", "sclub"] {
        let settings = Settings {
            policy: Some(policy.to_owned()),
            ..settings.clone()
        };
        let opened = Bench::at(
            crate::common::copy_of(folder.path()),
            Env::real(),
            &settings,
        );
        assert_eq!(opened.engine.state().identity().policy.name, "sclub");
    }
    let wrong = Engine::open(Env::real(), folder.path(), &of("lints")).unwrap_err();
    assert!(
        wrong.to_string().contains("made with linucb-one"),
        "{wrong}"
    );
    // The export still has the arms.
    let opened = Bench::at(folder, Env::real(), &settings);
    let arms = opened
        .export()
        .iter()
        .filter(|line| !line["arm"].is_null())
        .count();
    assert_eq!(arms, 61);
    start(
        &opened,
        "y",
        vec![arm("a", "sclub", 5000), arm("b", "linucb-one", 5000)],
    )
    .unwrap();
    visits(&opened, 0..30);
    end(&opened, "y", "a").unwrap();
    assert_eq!(opened.crash().hash(), opened.hash());
}

#[test]
fn a_forgotten_user_leaves_the_arms_and_the_counts() {
    let bench = server("linucb-one");
    let arms = vec![arm("a", "linucb-one", 5000), arm("b", "sclub", 5000)];
    start(&bench, "x", arms).unwrap();
    visits(&bench, 0..30);
    let before = running(&bench);
    bench.forget("u3").unwrap();
    let after = running(&bench);
    let users = |report: &ExperimentReport| report.arms.iter().map(|a| a.sums.users).sum::<u64>();
    let items = |report: &ExperimentReport| report.arms.iter().map(|a| a.sums.items).sum::<u64>();
    assert_eq!(users(&after), users(&before) - 1);
    assert_eq!(items(&after), items(&before) - 1);
    let state = bench.engine.state();
    for (_, policy) in state.policies() {
        assert_eq!(policy.inspect().users(), 29);
    }
}

#[test]
fn a_late_click_corrects_the_counts_of_its_arm() {
    let bench = server("linucb-one");
    let arms = vec![
        arm("a", "linucb-one", 5000),
        arm("b", "sclub", 5000),
        forgetful("quiet", 0),
    ];
    start(&bench, "x", arms).unwrap();
    let shown = bench.recommend("u1", 3).unwrap();
    let first = Feedback::of_item(&shown.decision, None, 1.0).with_others(0.0);
    bench
        .runtime
        .block_on(bench.engine.feedback(&first))
        .unwrap();
    let sums = |bench: &Bench| {
        let arms = running(bench).arms;
        let sum = arms.iter().map(|arm| (arm.sums.items, arm.sums.rewards));
        sum.fold((0, 0.0), |all, own| (all.0 + own.0, all.1 + own.1))
    };
    assert_eq!(sums(&bench), (3, 1.0));
    let last = &shown.items[2].0;
    assert_eq!(
        bench.feedback_on(&shown.decision, Some(last), 1.0),
        Ok(true)
    );
    assert_eq!(sums(&bench), (3, 2.0));
    bench.settle();
    let rounds: Vec<u64> = {
        let state = bench.engine.state();
        let policies = state.policies();
        policies.map(|(_, policy)| policy.rounds()).collect()
    };
    assert_eq!(
        rounds,
        [1, 1, 2],
        "the last one cannot correct: it learns a further reward"
    );
    assert_eq!(bench.crash().hash(), bench.hash());
}

/// A list whose first item is clicked; the others get an assumed reward.
fn click_on_first(bench: &Bench, user: &str) -> Recommended {
    let shown = bench.recommend(user, 3).unwrap();
    let first = Feedback::of_item(&shown.decision, None, 1.0).with_others(0.0);
    let applied = bench.runtime.block_on(bench.engine.feedback(&first));
    assert_eq!(applied, Ok(true));
    shown
}

/// A click on an item of a list whose rewards are there.
fn late_click(bench: &Bench, shown: &Recommended, place: usize) -> Result<bool, Refusal> {
    bench.feedback_on(&shown.decision, Some(&shown.items[place].0), 1.0)
}

#[test]
fn a_winner_that_learned_corrections_as_rewards_can_be_opened_after_a_compaction() {
    let bench = server("linucb-one");
    visits(&bench, 0..5);
    let arms = vec![arm("c", "linucb-one", 5000), forgetful("t", 5000)];
    start(&bench, "x", arms).unwrap();
    for _ in 0..12 {
        let shown = click_on_first(&bench, "u7");
        assert_eq!(late_click(&bench, &shown, 1), Ok(true));
    }
    assert_eq!(bench.rounds(), 17);
    end(&bench, "x", "t").unwrap();
    assert_eq!(bench.rounds(), 17, "the rounds do not jump");
    bench.settle();
    bench.snapshot();
    bench.compact();
    let again = bench.crash();
    assert_eq!((again.hash(), again.rounds()), (bench.hash(), 17));
    // A second experiment puts the first policy in force again, without what it knew.
    let arms = vec![forgetful("c", 5000), arm("t", "linucb-one", 5000)];
    start(&again, "y", arms).unwrap();
    visits(&again, 0..3);
    end(&again, "y", "t").unwrap();
    again.snapshot();
    again.compact();
    assert_eq!((again.crash().hash(), again.rounds()), (again.hash(), 20));
}

#[test]
fn a_late_click_is_learned_by_the_winner_whatever_it_has_learned_before() {
    // (the policy of the winner, when the list was answered, whether it is a correction for the winner)
    let cases = [
        (arm("t", "linucb-ind", 5000), false, false),
        (arm("t", "linucb-ind", 5000), true, true),
        (forgetful("t", 5000), false, false),
        (forgetful("t", 5000), true, false),
    ];
    for (place, (winner, is_inside, is_correction)) in cases.into_iter().enumerate() {
        let bench = server("linucb-one");
        let early = (!is_inside).then(|| click_on_first(&bench, "u"));
        start(&bench, "x", vec![arm("c", "linucb-one", 5000), winner]).unwrap();
        let shown = early.unwrap_or_else(|| click_on_first(&bench, "u"));
        // One click before the end, one after.
        assert_eq!(late_click(&bench, &shown, 1), Ok(true), "{place}");
        end(&bench, "x", "t").unwrap();
        let rounds = || bench.engine.state().policy().unwrap().rounds();
        let before = rounds();
        assert_eq!(late_click(&bench, &shown, 2), Ok(true), "{place}");
        assert_eq!(late_click(&bench, &shown, 2), Ok(false), "{place}");
        assert_eq!(bench.engine.state().rewards(), (3, 3.0), "{place}");
        assert_eq!(bench.rounds(), 1, "{place}");
        assert_eq!(rounds() - before, u64::from(!is_correction), "{place}");
        // Rewards for others do not replace assumed ones.
        let others = Feedback::of_list(&shown.decision, &[]).with_others(0.5);
        let applied = bench.runtime.block_on(bench.engine.feedback(&others));
        assert_eq!(applied, Ok(false), "{place}");
        bench.settle();
        assert_eq!(bench.crash().hash(), bench.hash(), "{place}");
        bench.compact();
        assert_eq!(bench.crash().hash(), bench.hash(), "{place}");
    }
}

#[test]
fn a_winner_that_has_not_learned_the_assumed_reward_learns_a_late_click_as_a_reward() {
    let arms = || vec![arm("c", "linucb-one", 5000), arm("t", "linucb-ind", 5000)];
    let (bench, other) = (server("linucb-one"), server("linucb-one"));
    let shown = click_on_first(&bench, "u");
    for bench in [&bench, &other] {
        start(bench, "x", arms()).unwrap();
        end(bench, "x", "t").unwrap();
    }
    assert_eq!(late_click(&bench, &shown, 2), Ok(true));
    // The other server has shown that item only.
    let asked = RecommendQuery {
        user: "u",
        among: CandidateSet::Candidates(vec![&shown.items[2].0]),
        rules: Rules::default(),
        k: 1,
        context: None,
    };
    let engine = &other.engine;
    let shown = engine.recommend(&asked, &mut Scratch::default()).unwrap();
    assert_eq!(other.feedback(&shown.decision, 1.0), Ok(true));
    let digest = |bench: &Bench| bench.engine.state().policy().unwrap().digest();
    assert_eq!(digest(&bench), digest(&other));
}

#[test]
fn wrong_experiments_are_refused_with_a_reason() {
    let empty = Bench::at(new_folder(), Env::real(), &of("linucb-one"));
    let two = || vec![arm("a", "linucb-one", 5000), arm("b", "sclub", 5000)];
    let error = |bench: &Bench, arms| start(bench, "x", arms).unwrap_err().to_string();
    assert!(error(&empty, two()).contains("put items"));
    let bench = server("linucb-one");
    assert!(
        error(
            &bench,
            vec![arm("a", "nonsense", 5000), arm("b", "sclub", 5000)]
        )
        .contains("'nonsense' cannot be served")
    );
    assert!(
        error(
            &bench,
            vec![arm("a", "gaussian", 5000), arm("b", "sclub", 4000)]
        )
        .contains("90%")
    );
    assert_eq!(
        end(&bench, "x", "a"),
        Err(Refusal::UnknownExperiment("x".to_owned()))
    );
    start(&bench, "x", two()).unwrap();
    assert_eq!(
        start(&bench, "y", two()),
        Err(Refusal::ExperimentRuns("x".to_owned()))
    );
    let wrong = end(&bench, "x", "c").unwrap_err().to_string();
    assert!(wrong.contains("use one of a, b"), "{wrong}");
    end(&bench, "x", "a").unwrap();
    assert!(error(&bench, two()).contains("another name"));
}

#[test]
fn settings_that_the_winner_could_not_have_are_refused_at_the_start() {
    let settings = Settings {
        unanswered: Some(0.0),
        ..of("linucb-one")
    };
    let bench = Bench::with_items(Env::real(), &settings);
    let arms = vec![arm("a", "linucb-one", 5000), forgetful("b", 5000)];
    let refused = start(&bench, "x", arms).unwrap_err().to_string();
    assert!(
        refused.contains("arm 'b': unanswered needs a policy"),
        "{refused}"
    );
    let arms = vec![
        arm("a", "linucb-one", 5000),
        arm("b", "sclub", 5000),
        forgetful("quiet", 0),
    ];
    start(&bench, "x", arms).unwrap();
    let refused = end(&bench, "x", "quiet").unwrap_err().to_string();
    assert!(refused.contains("unanswered needs a policy"), "{refused}");
    end(&bench, "x", "b").unwrap();
}
