//! LOCB.

use proptest::prelude::*;
use sclub::{Users, Value, radius};

use crate::common::*;
use crate::naive::{Sums, assert_close, distance};

const BETA: (&str, Value) = ("beta", Value::Number(0.4));
const NORM: (&str, Value) = ("index", Value::Choice("norm"));

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..Default::default() })]

    #[test]
    fn no_seeds_is_linucb_ind(seed: u64) {
        let mut policy = make("locb", &[("seeds", number(0.0))]);
        let mut ind = make("linucb-ind", &[]);
        assert_same(&mut *policy, &mut *ind, &rounds(seed, 3, 300), 0.0);
    }

    #[test]
    fn a_radius_without_end_is_linucb_one(seed: u64, seeds in 1u64..15) {
        let mut policy = make("locb", &[("alpha_theta", number(1e9)), ("seeds", number(seeds as f64))]);
        let mut one = make("linucb-one", &[]);
        assert_same(&mut *policy, &mut *one, &rounds(seed, 3, 300), 0.0);
    }

    #[test]
    fn alone_from_a_round_on_is_linucb_ind_on_the_same_history(seed: u64) {
        let given = [BETA, NORM, ("alone_from", number(51.0))];
        let (mut policy, mut ind) = (make("locb", &given), make("linucb-ind", &[BETA, NORM]));
        for (number, round) in rounds(seed, 3, 150).iter().enumerate() {
            let own = ind.recommend(round.user, &round.items).unwrap();
            let shown = round.play(&mut *policy);
            if number >= 50 {
                prop_assert_eq!(shown, own);
            }
            let (item, reward) = (round.features(shown.index), round.reward(shown.index));
            ind.learn(round.user, &item, reward).unwrap();
        }
    }

    /// A transcription that keeps the history and who is in which set; the sums are made anew in every round.
    #[test]
    fn sets_are_those_of_a_naive_transcription(
        seed: u64, seeds in 1usize..5, alpha in prop::sample::select(vec![0.3, 0.6, 1.0]), gamma in prop::sample::select(vec![0.2, 1.5, 3.0]),
    ) {
        let given = [BETA, NORM, ("seeds", number(seeds as f64)), ("alpha_theta", number(alpha)), ("gamma", number(gamma))];
        // Without declared users the first to appear are the seeds.
        let mut policy = make_for("locb", DIM, Users::Appear, &given);
        let mut history: Vec<(u64, Vec<f64>, f64)> = Vec::new();
        let mut appeared: Vec<u64> = Vec::new();
        // The users of each set.
        let mut sets: Vec<Vec<u64>> = vec![Vec::new(); seeds];
        let mut frozen = vec![false; seeds];
        let mut changes = 0;
        for round in rounds(seed, 3, 200) {
            let of = |chosen: &dyn Fn(u64) -> bool| {
                let some = history.iter().filter(|(user, ..)| chosen(*user));
                Sums::of(DIM, some.map(|(_, item, reward)| (item.as_slice(), *reward)))
            };
            // Each item's best offer.
            let is_new = !appeared.contains(&round.user);
            let serving: Vec<usize> = (0..seeds)
                .filter(|&s| if is_new { !frozen[s] } else { sets[s].contains(&round.user) })
                .collect();
            let mut bases: Vec<Sums> = serving.iter().map(|&s| of(&|user| sets[s].contains(&user))).collect();
            if bases.is_empty() {
                bases.push(of(&|user| user == round.user));
            }
            let offers: Vec<f64> = (0..CANDIDATES)
                .map(|index| {
                    let item = round.features(index);
                    let offer = |sums: &Sums| crate::naive::dot(&sums.estimate(), &item) + 0.4 * sums.norm(&item);
                    bases.iter().map(offer).fold(f64::MIN, f64::max)
                })
                .collect();
            let mut scores = Vec::new();
            policy.explain(round.user, &round.items, &mut scores).unwrap();
            let scores: Vec<f64> = scores.iter().map(|score| score.score).collect();
            assert_close(&scores, &offers);

            let decision = round.play(&mut *policy);
            history.push((round.user, round.features(decision.index), round.reward(decision.index)));
            if is_new {
                appeared.push(round.user);
                (0..seeds).filter(|&s| !frozen[s]).for_each(|s| sets[s].push(round.user));
            }
            let own = |user: u64| {
                let some = history.iter().filter(|(other, ..)| *other == user);
                let sums = Sums::of(DIM, some.clone().map(|(_, item, reward)| (item.as_slice(), *reward)));
                (sums.estimate(), alpha * radius(some.count() as u64))
            };
            let (estimate, own_radius) = own(round.user);
            for s in (0..seeds).filter(|&s| !frozen[s]) {
                let (of_seed, seed_radius) = appeared.get(s).map_or((vec![0.0; DIM], alpha), |&user| own(user));
                let apart = distance(&estimate, &of_seed);
                let held = sets[s].contains(&round.user);
                let holds = if held { apart <= own_radius + seed_radius } else { apart < own_radius + seed_radius };
                changes += usize::from(held != holds);
                sets[s].retain(|&user| user != round.user);
                if holds {
                    sets[s].push(round.user);
                }
            }
            // A set is frozen once a round has been learned with its seed's radius small enough.
            for (s, frozen) in frozen.iter_mut().enumerate() {
                let seed_radius = appeared.get(s).map_or(alpha, |&user| own(user).1);
                *frozen |= seed_radius <= gamma / 4.0;
            }
        }
        prop_assert!(changes > 0 || alpha > 0.5 || gamma > 0.2);
    }

    #[test]
    fn the_same_history_gives_the_same_state(seed: u64) {
        let rounds = rounds(seed, 3, 150);
        let (mut one, mut other) = (make("locb", &[]), make("locb", &[]));
        for (number, round) in rounds.iter().enumerate() {
            let (a, b) = (one.digest(), round.play(&mut *one));
            prop_assert_eq!((a, b), (other.digest(), round.play(&mut *other)), "round {}", number);
            prop_assert_ne!(one.digest(), a);
        }
    }
}

#[test]
fn it_learns() {
    let (regret, random) = regrets(&mut *make("locb", &[]), &rounds(1, 3, 2000));
    assert!(
        (0.0..random / 4.0).contains(&regret),
        "{regret} of {random}"
    );
}
