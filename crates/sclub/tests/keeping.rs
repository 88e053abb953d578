//! State that is saved comes back to the bit, and who is forgotten leaves nothing behind.

use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sclub::{Error, Exploration, Index, Observation, Params, Policy, Sclub, Users};

/// Rounds of users with one of three tastes.
struct Life {
    rng: Xoshiro256PlusPlus,
    dim: usize,
    users: u64,
    many_a_round: bool,
}

impl Life {
    fn round(&mut self, policy: &mut Sclub) {
        let count = if self.many_a_round {
            self.rng.random_range(0..5)
        } else {
            1
        };
        let observed: Vec<(u64, Vec<f64>, f64)> = (0..count)
            .map(|_| {
                let draw: f64 = self.rng.random();
                let user = (draw * draw * self.users as f64) as u64;
                let item: Vec<f64> = (0..self.dim)
                    .map(|_| self.rng.random_range(-1.0..1.0))
                    .collect();
                let reward = item[user as usize % 3 % self.dim] + self.rng.random_range(-0.2..0.2);
                (user, item, reward)
            })
            .collect();
        let round: Vec<Observation<'_>> = observed
            .iter()
            .map(|(user, item, reward)| Observation {
                user: *user,
                item,
                reward: *reward,
            })
            .collect();
        policy.learn_round(&round, &mut Vec::new()).unwrap();
    }
}

prop_compose! {
    fn life()(
        dim in 1usize..12, users in 1u64..40, declared: bool, many_a_round: bool, seed: u64,
        alpha in -2.0f64..1.0, alpha_p in -3.0f64..1.0, squared: bool, fixed: bool,
    ) -> (Life, Sclub) {
        let params = Params {
            alpha_theta: alpha.exp(),
            alpha_p: alpha_p.exp(),
            index: if squared { Index::SquaredNorm } else { Index::Norm },
            exploration: if fixed { Exploration::Fixed(0.3) } else { Exploration::Growing { scale: 0.2 } },
        };
        let who = if declared { Users::Declared(users) } else { Users::Appear };
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        (Life { rng, dim, users, many_a_round }, Sclub::new(dim, who, &params).unwrap())
    }
}

impl std::fmt::Debug for Life {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Life of {} users in {} dimensions", self.users, self.dim)
    }
}

/// S^j = I + Σ(S_i − I), b^j = Σ b_i, T^j = Σ T_i, and everybody is somewhere once.
fn assert_sums(policy: &Sclub) -> Result<(), TestCaseError> {
    let d = policy.dim();
    let mut seen = 0;
    for (label, members) in policy.partition() {
        seen += members.len();
        let Some(&someone) = members.first() else {
            continue;
        };
        let mut gram = vec![0.0; d * d];
        let mut moment = vec![0.0; d];
        let mut count = 0;
        (0..d).for_each(|i| gram[i * d + i] = 1.0);
        for &user in &members {
            prop_assert_eq!(policy.cluster_of(user), label);
            let own = policy.user_statistics(user).unwrap();
            for (at, value) in own.gram.iter().enumerate() {
                gram[at] += value - f64::from(u8::from(at % (d + 1) == 0));
            }
            moment
                .iter_mut()
                .zip(&own.moment)
                .for_each(|(a, b)| *a += b);
            count += own.count;
        }
        let cluster = policy.cluster_statistics(someone);
        prop_assert_eq!(cluster.count, count);
        for (a, b) in cluster
            .gram
            .iter()
            .chain(&cluster.moment)
            .zip(gram.iter().chain(&moment))
        {
            prop_assert!((a - b).abs() < 1e-8 * (1.0 + b.abs()), "{} {}", a, b);
        }
    }
    prop_assert_eq!(seen, policy.users().len());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..Default::default() })]

    #[test]
    fn what_is_saved_lives_on_to_the_bit((mut life, mut policy) in life(), before in 0usize..400, after in 1usize..200) {
        for _ in 0..before {
            life.round(&mut policy);
        }
        let mut twin = Sclub::load(&policy.save()).unwrap();
        prop_assert_eq!(twin.digest(), policy.digest());
        prop_assert_eq!(twin.partition(), policy.partition());
        let mut other = Life { rng: life.rng.clone(), ..life };
        for _ in 0..after {
            life.round(&mut policy);
            other.round(&mut twin);
            prop_assert_eq!(twin.digest(), policy.digest());
        }
        prop_assert_eq!(twin.save(), policy.save());
    }

    #[test]
    fn who_is_forgotten_is_gone_and_the_rest_goes_on((mut life, mut policy) in life(), steps in prop::collection::vec((1usize..40, any::<prop::sample::Index>()), 1..12)) {
        for (rounds, who) in steps {
            for _ in 0..rounds {
                life.round(&mut policy);
            }
            if policy.users().is_empty() {
                continue;
            }
            let gone = policy.users()[who.index(policy.users().len())];
            let before: Vec<_> = policy.users().iter().filter(|&&user| user != gone)
                .map(|&user| (user, policy.user_statistics(user))).collect();
            let theirs = policy.user_statistics(gone).unwrap();
            prop_assert!(policy.forget(gone));
            prop_assert!(!policy.forget(gone), "twice");
            prop_assert_eq!(policy.user_statistics(gone), None);
            for (user, statistics) in before {
                prop_assert_eq!(policy.user_statistics(user), statistics, "user {}", user);
            }
            assert_sums(&policy)?;
            // No number that was hers alone is in the state any more.
            if theirs.count > 0 {
                let bytes = policy.save();
                for number in &theirs.moment {
                    let word = number.to_le_bytes();
                    prop_assert!(*number == 0.0 || !bytes.chunks(8).any(|chunk| chunk == word));
                }
            }
            prop_assert_eq!(Sclub::load(&policy.save()).unwrap().digest(), policy.digest());
        }
        for _ in 0..30 {
            life.round(&mut policy);
            assert_sums(&policy)?;
        }
    }

    #[test]
    fn when_all_are_forgotten_only_time_has_passed((mut life, mut policy) in life(), rounds in 1usize..100) {
        for _ in 0..rounds {
            life.round(&mut policy);
        }
        for user in policy.users().to_vec() {
            prop_assert!(policy.forget(user));
        }
        prop_assert!(policy.users().is_empty());
        prop_assert_eq!(policy.clusters(), 1);
        prop_assert_eq!(policy.rounds(), rounds as u64);
        prop_assert!(policy.estimate(0).iter().all(|&value| value == 0.0));
        life.round(&mut policy);
        assert_sums(&policy)?;
    }
}

#[test]
fn a_damaged_snapshot_is_refused() {
    let mut policy = Sclub::new(2, Users::Appear, &Params::tuned()).unwrap();
    for round in 0..40u64 {
        policy
            .learn(round % 5, &[0.3, 0.1 * round as f64], 0.5)
            .unwrap();
    }
    let bytes = policy.save();
    for at in 0..bytes.len() {
        for bit in [0, 3, 7] {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            let refused = Sclub::load(&damaged);
            assert!(
                matches!(refused, Err(Error::BadSnapshot { .. })),
                "byte {at}, bit {bit}"
            );
        }
        assert!(Sclub::load(&bytes[..at]).is_err(), "cut at {at}");
    }
    assert!(Sclub::load(&[bytes.as_slice(), &[0; 8]].concat()).is_err());
}
