//! Bad input is refused with a typed error, and the state is bit for bit what it was.

use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sclub::{
    Change, Club, Error, Exploration, Graph, Groups, ItemSet, LinUcbInd, LinUcbShared, Observation,
    Params, Policy, Sclub, Setup, Users, registry,
};

/// Every policy of the registry, with users declared and with users who appear, and known groups.
fn policies(dim: usize) -> Vec<Box<dyn Policy>> {
    let mut all: Vec<Box<dyn Policy>> = Vec::new();
    for spec in registry() {
        for users in [Users::Declared(5), Users::Appear] {
            let setup = Setup {
                users,
                seed: 3,
                ..Setup::new(dim)
            };
            let values = spec.values(spec.presets[0], &[], &setup).unwrap();
            all.push(values.make(&setup).unwrap());
        }
    }
    let params = Params::tuned();
    let groups = Groups::Known(vec![0, 1, 0, 1, 2]);
    all.push(Box::new(LinUcbShared::new(dim, groups, &params).unwrap()));
    let complete = Club::new(dim, Users::Declared(5), Graph::Complete, &params);
    all.push(Box::new(complete.unwrap()));
    all
}

fn train(policy: &mut dyn Policy, seed: u64, rounds: usize) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    for _ in 0..rounds {
        let item: Vec<f64> = (0..policy.dim())
            .map(|_| rng.random_range(-1.0..1.0))
            .collect();
        let user = rng.random_range(0..8);
        policy
            .learn(user, &item, item[user as usize % item.len()])
            .unwrap();
    }
}

/// A fault of one observation of a round.
#[derive(Debug, Clone)]
enum Fault {
    Feature(f64),
    Reward(f64),
    TooShort,
    TooLong,
    Empty,
}

fn faults() -> impl Strategy<Value = Fault> {
    let bad = prop::sample::select(vec![
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        1e13,
        -1e300,
    ]);
    prop_oneof![
        bad.clone().prop_map(Fault::Feature),
        bad.prop_map(Fault::Reward),
        Just(Fault::TooShort),
        Just(Fault::TooLong),
        Just(Fault::Empty),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_bad_round_is_refused_whole_and_changes_nothing(
        dim in 2usize..12, seed: u64, rounds in 0usize..60, length in 1usize..5,
        place in 0usize..100, feature in 0usize..100, fault in faults(),
    ) {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(!seed);
        let place = place % length;
        let mut items: Vec<Vec<f64>> = (0..length)
            .map(|_| (0..dim).map(|_| rng.random_range(-1.0..1.0)).collect())
            .collect();
        let mut rewards = vec![0.5; length];
        match fault {
            Fault::Feature(value) => items[place][feature % dim] = value,
            Fault::Reward(value) => rewards[place] = value,
            Fault::TooShort => { items[place].pop(); }
            Fault::TooLong => items[place].push(0.0),
            Fault::Empty => items[place].clear(),
        }
        // Users known and unknown: an unknown one must not be admitted either.
        let round: Vec<_> = items
            .iter()
            .zip(&rewards)
            .enumerate()
            .map(|(n, (item, &reward))| Observation::new(3 + 20 * n as u64, item, reward))
            .collect();
        let mut disturbed = Vec::new();
        for mut policy in policies(dim) {
            train(policy.as_mut(), seed, rounds);
            let before = policy.digest();
            let mut changes: Vec<Change> = Vec::new();
            let refused = policy.learn_round(&round, &mut changes).unwrap_err();
            match (&fault, refused) {
                (Fault::Feature(value), Error::BadFeature { item, feature: at, value: got }) => {
                    prop_assert_eq!((item, at), (place, feature % dim));
                    prop_assert_eq!(value.to_bits(), got.to_bits());
                }
                (Fault::Reward(value), Error::BadReward { observation, value: got }) => {
                    prop_assert_eq!(observation, place);
                    prop_assert_eq!(value.to_bits(), got.to_bits());
                }
                (_, Error::DimensionMismatch { expected, got }) => {
                    prop_assert_eq!((expected, got), (dim, items[place].len()));
                }
                (fault, error) => prop_assert!(false, "{:?} gave {:?}", fault, error),
            }
            prop_assert_eq!(policy.digest(), before);
            prop_assert!(changes.is_empty());

            // And the policy goes on as if nothing had been.
            train(policy.as_mut(), seed ^ 1, 5);
            disturbed.push(policy.digest());
        }
        for (mut policy, digest) in policies(dim).into_iter().zip(disturbed) {
            train(policy.as_mut(), seed, rounds);
            train(policy.as_mut(), seed ^ 1, 5);
            prop_assert_eq!(policy.digest(), digest);
        }
    }

    #[test]
    fn a_recommendation_that_cannot_be_made_is_refused(dim in 2usize..12, seed: u64) {
        for mut policy in policies(dim) {
            train(policy.as_mut(), seed, 40);
            let before = policy.digest();
            let other = ItemSet::from_rows(dim + 1, &vec![0.1; dim + 1]).unwrap();
            let none = ItemSet::new(dim).unwrap();
            let mismatch = Error::DimensionMismatch { expected: dim, got: dim + 1 };
            let mut scores = Vec::new();
            prop_assert_eq!(policy.recommend(3, &other), Err(mismatch.clone()));
            prop_assert_eq!(policy.explain(3, &other, &mut scores), Err(mismatch));
            prop_assert_eq!(policy.recommend(3, &none), Err(Error::NoCandidates));
            prop_assert_eq!(policy.explain(3, &none, &mut scores), Err(Error::NoCandidates));
            prop_assert_eq!(policy.digest(), before);
        }
    }

    #[test]
    fn recommending_and_explaining_change_nothing(dim in 1usize..12, seed: u64) {
        for mut policy in policies(dim) {
            train(policy.as_mut(), seed, 40);
            let before = policy.digest();
            let items = ItemSet::from_rows(dim, &vec![0.3; dim * 7]).unwrap();
            for user in [0, 3, 1_000_000] {
                policy.recommend(user, &items).unwrap();
                policy.explain(user, &items, &mut Vec::new()).unwrap();
            }
            prop_assert_eq!(policy.digest(), before);
        }
    }
}

#[test]
fn what_cannot_be_made_says_why() {
    let good = Params::tuned();
    let sclub = |dim, users, params: &Params| Sclub::new(dim, users, params).unwrap_err();
    assert_eq!(sclub(0, Users::Appear, &good), Error::Dimension { got: 0 });
    assert_eq!(
        sclub(513, Users::Appear, &good),
        Error::Dimension { got: 513 }
    );
    assert_eq!(sclub(3, Users::Declared(0), &good), Error::NoUsers);
    let too_many = Error::TooMany {
        what: "the number of users",
        limit: u64::from(u32::MAX),
    };
    assert_eq!(sclub(3, Users::Declared(1 << 40), &good), too_many);
    assert_eq!(
        LinUcbShared::new(3, Groups::Known(vec![]), &good).unwrap_err(),
        Error::NoUsers
    );
    // No memory is reserved for groups without users.
    assert_eq!(
        LinUcbShared::new(3, Groups::Known(vec![u32::MAX]), &good).unwrap_err(),
        Error::TooMany {
            what: "the number of groups",
            limit: 1
        }
    );
    assert_eq!(ItemSet::new(0).unwrap_err(), Error::Dimension { got: 0 });

    for (name, bad) in [
        (
            "alpha_theta",
            Params {
                alpha_theta: -1.0,
                ..good
            },
        ),
        (
            "alpha_p",
            Params {
                alpha_p: 0.0,
                ..good
            },
        ),
        (
            "beta",
            Params {
                exploration: Exploration::Fixed(f64::NAN),
                ..good
            },
        ),
    ] {
        let users = Users::Declared(4);
        let refused = [
            Sclub::new(3, users, &bad).unwrap_err(),
            Club::new(3, users, Graph::Complete, &bad).unwrap_err(),
            LinUcbInd::new(3, &bad).unwrap_err(),
            LinUcbShared::new(3, Groups::One, &bad).unwrap_err(),
        ];
        for error in refused {
            assert!(
                matches!(error, Error::BadParameter { name: n, .. } if n == name),
                "{error}"
            );
            assert!(error.to_string().starts_with(name), "{error}");
        }
    }
}

#[test]
fn a_complete_graph_has_a_limit_for_users_who_appear_too() {
    let users = Users::Appear;
    let mut policy = Club::new(1, users, Graph::Complete, &Params::tuned()).unwrap();
    let before = policy.digest();
    let crowd: Vec<Observation<'_>> = (0..=Club::MAX_COMPLETE_USERS)
        .map(|user| Observation::new(user, &[1.0], 1.0))
        .collect();
    let refused = policy.learn_round(&crowd, &mut Vec::new());
    assert!(matches!(refused, Err(Error::TooMany { limit: 30_000, .. })));
    assert_eq!(policy.digest(), before);
    // One user many times is one user.
    let one = vec![crowd[0]; crowd.len()];
    assert_eq!(policy.learn_round(&one, &mut Vec::new()), Ok(()));
}
