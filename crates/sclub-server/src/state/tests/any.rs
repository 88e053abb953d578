//! Random events: every admitted event can be applied, replay gives the same state, and the totals are exact.

use std::collections::HashMap;

use proptest::prelude::*;
use sclub::{ContextMode, Sequential};

use super::*;
use crate::context::Context;
use crate::description::Description;
use crate::event::{DescribedItem, ListItem, RewardedList};
use crate::experiment::ArmPlan;
use crate::settings::Literal;

/// An event to try.
#[derive(Debug, Clone)]
enum Try {
    Event(Event),
    /// The fit that one of the policies would make, if one is due.
    Fit(usize),
    /// An experiment with these policies, the last one as a shadow arm.
    Start(Vec<Settings>),
    /// The end of the experiment under way, and the winner.
    End(usize),
}

/// Mostly a valid number, sometimes an invalid one.
fn number() -> impl Strategy<Value = f64> {
    prop_oneof![
        30 => -1.0..1.0f64,
        1 => Just(1e12),
        1 => Just(-1e12),
        1 => Just(1e-300),
        1 => Just(f64::MIN_POSITIVE / 4.0),
        1 => prop::sample::select(vec![
            1.000_001e12, 5e12, f64::MAX, f64::NAN, f64::INFINITY, f64::NEG_INFINITY,
        ]),
    ]
}

fn features() -> impl Strategy<Value = Vec<f64>> {
    prop_oneof![
        20 => prop::collection::vec(number(), 2),
        // With a context.
        10 => prop::collection::vec(number(), 4),
        1 => prop::collection::vec(number(), 0..5),
        1 => prop::sample::select(vec![512, 513]).prop_map(|dim| vec![0.5; dim]),
    ]
}

fn user() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["u", "v", "w", "x", ""]).prop_map(str::to_owned)
}

fn some_reward() -> impl Strategy<Value = Reward> {
    let number_shown = prop_oneof![30 => 0..50_000u64, 2 => 0..8u64, 1 => Just(u64::MAX)];
    let clock = prop_oneof![5 => 60..200u64, 1 => 0..60u64];
    let event = prop_oneof![5 => 40..200u64, 1 => 0..40u64];
    let when = (any::<u64>(), clock, event);
    (number_shown, user(), features(), number(), when).prop_map(
        |(number, user, features, reward, (decided, clock, event))| Reward {
            number,
            user,
            item: "i".to_owned(),
            features,
            score: f64::NAN,
            cluster: 0,
            decided,
            clock,
            event,
            reward,
        },
    )
}

fn some_list() -> impl Strategy<Value = RewardedList> {
    let reward = prop::option::of(number());
    let item = (features(), reward).prop_map(|(features, reward)| ListItem {
        item: "i".to_owned(),
        features,
        score: f64::NAN,
        reward,
    });
    let items = prop::collection::vec(item, 0..3);
    let context = prop::sample::select(vec![Vec::new(), vec![0.5, -1.0]]);
    let looked_at = prop::option::of(0..4usize);
    (some_reward(), items, context, looked_at).prop_map(|(like, items, context, looked_at)| {
        RewardedList {
            number: like.number,
            user: like.user,
            items,
            context,
            looked_at,
            cluster: like.cluster,
            decided: like.decided,
            clock: like.clock,
            event: like.event,
        }
    })
}

/// A round with assumed rewards, and corrections. Few numbers, so that some of those are assumed.
fn some_assumed() -> impl Strategy<Value = Event> {
    let few = || (some_reward(), 0..12u64).prop_map(|(reward, number)| Reward { number, ..reward });
    let round = prop::collection::vec((few(), any::<bool>()), 0..4);
    let corrected = prop::collection::vec(few(), 0..3);
    let is_consistent = prop::bool::weighted(0.95);
    (round, corrected, is_consistent).prop_map(|(round, corrected, is_consistent)| {
        let (round, mut assumed): (Vec<Reward>, Vec<bool>) = round.into_iter().unzip();
        if !is_consistent {
            assumed.push(true);
        }
        Event::LearnAssumed {
            round,
            assumed,
            corrected,
        }
    })
}

fn some_description() -> impl Strategy<Value = Description> {
    let title = prop::option::of(Just("A title".to_owned()));
    let tag = prop::sample::select(vec!["red", "blue", ""]).prop_map(str::to_owned);
    let tags = prop::collection::vec(tag, 0..3);
    let data = vec!["", "{}", "{\"price\":3}", "[]", "{\"tags\":1}", "{", "null"];
    let data = prop::sample::select(data).prop_map(str::to_owned);
    (title, tags, any::<bool>(), data).prop_map(|(title, tags, is_unavailable, data)| Description {
        title,
        tags,
        is_unavailable,
        data,
    })
}

fn some_event() -> impl Strategy<Value = Try> {
    let id = prop::sample::select(vec!["a", "b", "c"]).prop_map(str::to_owned);
    let item = (id.clone(), features()).prop_map(|(id, features)| Item { id, features });
    let described = (id.clone(), features(), some_description());
    let described = described.prop_map(|(id, features, description)| DescribedItem {
        id,
        features,
        description,
    });
    let limit = sclub::Users::LIMIT;
    let users = prop::sample::select(vec![0, 1, 2, 3, limit, limit + 1, u64::MAX]);
    prop_oneof![
        10 => prop::collection::vec(some_reward(), 0..4)
            .prop_map(|round| Try::Event(Event::Learn { round })),
        10 => some_reward().prop_map(|reward| Try::Event(Event::Learn { round: vec![reward] })),
        10 => prop::collection::vec(some_list(), 0..4)
            .prop_map(|lists| Try::Event(Event::LearnLists { lists })),
        10 => some_assumed().prop_map(Try::Event),
        2 => prop::collection::vec(item, 0..4)
            .prop_map(|items| Try::Event(Event::Upsert { items })),
        2 => prop::collection::vec(described, 0..4)
            .prop_map(|items| Try::Event(Event::Describe { items })),
        1 => id.prop_map(|item| Try::Event(Event::Remove { item })),
        2 => user().prop_map(|user| Try::Event(Event::Forget { user })),
        2 => users.prop_map(|users| Try::Event(Event::Expect { users })),
        1 => (0..60u64).prop_map(|before| Try::Event(Event::Expire { before })),
        1 => prop::collection::vec(any::<u8>(), 0..9).prop_map(|fit| Try::Event(Event::Fit { fit })),
        2 => (0..4usize).prop_map(Try::Fit),
        1 => (0..4u32, prop::collection::vec(any::<u8>(), 0..9))
            .prop_map(|(arm, fit)| Try::Event(Event::FitArm { arm, fit })),
        3 => prop::collection::vec(prop::sample::select(all_servable()), 3..5).prop_map(Try::Start),
        2 => (0..4usize).prop_map(Try::End),
    ]
}

/// The policies that can be served, with one that learns from lists and one that cannot correct a reward.
fn all_servable() -> Vec<Settings> {
    by_id::register();
    let named = |name: &str| Settings {
        policy: Some(name.to_owned()),
        ..Settings::default()
    };
    let mut forgetful = named("sclub-soft");
    let half_life = ("half-life".to_owned(), Literal::Number(50.0));
    forgetful.constants.extend([half_life]);
    let all = servable().into_iter().map(|spec| named(spec.name));
    all.chain([forgetful]).collect()
}

fn some_batches() -> impl Strategy<Value = Vec<(Stamp, Vec<Try>)>> {
    let stamp = (any::<u64>(), 0..100u64).prop_map(|(at, clock)| Stamp { at, clock });
    let batch = (stamp, prop::collection::vec(some_event(), 1..6));
    prop::collection::vec(batch, 1..50)
}

fn due_fit(state: &State, which: usize) -> Option<Event> {
    let (arm, policy) = state.policies().nth(which)?;
    let fit = policy.refit()?.compute(&Sequential);
    Some(match arm {
        None => Event::Fit { fit },
        Some(arm) => Event::FitArm { arm, fit },
    })
}

fn start(state: &State, policies: &[Settings]) -> Event {
    let arms = policies.iter().enumerate().map(|(place, settings)| {
        let arm = state.identity().with_policy(settings).unwrap();
        let shares = [5000, if policies.len() == 3 { 5000 } else { 2500 }, 2500];
        let is_last = place + 1 == policies.len();
        ArmPlan {
            name: format!("arm-{place}"),
            policy: arm.written_policy(),
            share: if is_last { 0 } else { shares[place] },
        }
    });
    Event::StartExperiment {
        name: format!("x{}", state.events()),
        salt: state.events(),
        arms: arms.collect(),
    }
}

fn end(state: &State, winner: usize) -> Event {
    let name = state.experiments().plan().map(|plan| plan.name.clone());
    Event::EndExperiment {
        name: name.unwrap_or_default(),
        winner: format!("arm-{winner}"),
    }
}

/// The totals, counted from the events alone.
#[derive(Default)]
struct Totals {
    rounds: u64,
    /// The number of rewards of each user, and their sum.
    users: HashMap<String, (u64, f64)>,
    assumed: HashMap<u64, f64>,
    /// The sum of the magnitudes of all rewards.
    magnitude: f64,
}

impl Totals {
    fn follow(&mut self, event: &Event) {
        match event {
            Event::Learn { round } => {
                self.rounds += 1;
                for reward in round {
                    self.add(&reward.user, reward.number, reward.reward);
                }
            }
            Event::LearnLists { lists } => {
                self.rounds += 1;
                for list in lists {
                    for (number, _, reward) in list.rewards() {
                        self.add(&list.user, number, reward);
                    }
                }
            }
            Event::LearnAssumed {
                round,
                assumed,
                corrected,
            } => {
                for reward in corrected {
                    let from = self.assumed.remove(&reward.number).unwrap();
                    self.users.get_mut(&reward.user).unwrap().1 += reward.reward - from;
                    self.magnitude += reward.reward.abs() + from.abs();
                }
                self.rounds += u64::from(!round.is_empty());
                for (reward, is_assumed) in round.iter().zip(assumed) {
                    self.add(&reward.user, reward.number, reward.reward);
                    if *is_assumed {
                        self.assumed.insert(reward.number, reward.reward);
                    }
                }
            }
            Event::Forget { user } => drop(self.users.remove(user)),
            _ => {}
        }
    }

    fn add(&mut self, user: &str, number: u64, reward: f64) {
        let (count, sum) = self.users.entry(user.to_owned()).or_default();
        *count += 1;
        *sum += reward;
        self.magnitude += reward.abs();
        // Its decision expired before.
        self.assumed.remove(&number);
    }

    fn check(&self, state: &State) {
        assert_eq!(state.rounds(), self.rounds, "rounds");
        let mut users = self.users.values();
        let (count, sum) = state.rewards();
        assert_eq!(count, users.clone().map(|(count, _)| count).sum::<u64>());
        let expected: f64 = users.by_ref().map(|(_, sum)| sum).sum();
        let tolerance = 1e-9 * (1.0 + self.magnitude);
        assert!((sum - expected).abs() <= tolerance, "{sum}, {expected}");
    }
}

/// Admits the valid events, one [`Ahead`] for a batch, and applies them. Returns the log.
fn live(state: &mut State, batches: Vec<(Stamp, Vec<Try>)>) -> Vec<(Vec<u8>, String)> {
    let mut log = Vec::new();
    for (stamp, tries) in batches {
        let mut ahead = Ahead::default();
        let mut events = Vec::new();
        for each in tries {
            let event = match each {
                Try::Event(event) => event,
                Try::Fit(which) => match due_fit(state, which) {
                    Some(event) => event,
                    None => continue,
                },
                Try::Start(policies) => start(state, &policies),
                Try::End(winner) => end(state, winner),
            };
            let before = ahead.clone();
            match state.admit(&event, &mut ahead) {
                Ok(()) => events.push(event),
                Err(_) => assert_eq!(ahead, before, "a rejected event leaves `ahead` unchanged"),
            }
        }
        let batch = Batch { stamp, events };
        state.apply_batch(state.position() + 1, &batch, &mut Effect::default());
        log.push((batch.encode(), state.hash()));
    }
    log
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn admitted_events_are_applied_and_replay_gives_the_same_state(
        policy in prop::sample::select(all_servable()),
        dim in prop::sample::select(vec![None, Some(2)]),
        context in prop::sample::select(vec![None, Some(ContextMode::Append), Some(ContextMode::Cross)]),
        batches in some_batches(),
        saved_after in 0..50usize,
    ) {
        let settings = Settings { dim, ..policy };
        let mut identity = Identity::new(&settings, &*crate::env::Env::real().random).unwrap();
        if let Some(mode) = context {
            let features = ["hour", "device"].map(str::to_owned);
            identity.context = Context::new(&features, mode).unwrap();
        }
        let mut state = State::new(identity.clone()).unwrap();
        let log = live(&mut state, batches);

        let mut again = State::new(identity).unwrap();
        let mut totals = Totals::default();
        for (place, (bytes, hash)) in log.iter().enumerate() {
            let batch = Batch::decode(bytes).unwrap();
            let number = place as u64 + 1;
            prop_assert_eq!(again.replay(number, &batch, &mut Effect::default()), Ok(()));
            prop_assert_eq!(&again.hash(), hash);
            batch.events.iter().for_each(|event| totals.follow(event));
            totals.check(&again);
            let is_end = |event: &Event| matches!(event, Event::EndExperiment { .. });
            if place == saved_after || batch.events.iter().any(is_end) {
                again = reloaded(&again);
                prop_assert_eq!(&again.hash(), hash);
            }
            let known = again.users().len() as u64;
            // The winner of an experiment may not know the users from before.
            let is_changed = !again.experiments().past().is_empty();
            let is_known = |users: u64| users == known || is_changed && users < known;
            prop_assert!(again.policy().is_none_or(|policy| is_known(policy.inspect().users())));
        }
        prop_assert_eq!(reloaded(&state).hash(), state.hash());
        prop_assert_eq!(again.position(), log.len() as u64);
    }
}
