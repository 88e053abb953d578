//! Tests of the twists, against counts and means computed in another way.

use std::f64::consts::FRAC_1_SQRT_2;

use super::*;
use crate::world::Rewards;

fn recipe(twists: Twists) -> Recipe {
    Recipe {
        users: 60,
        clusters: 5,
        dim: 8,
        candidates: 10,
        frequencies: Frequencies::Uniform,
        rewards: Rewards::Bernoulli,
        users_a_round: None,
        twists,
    }
}

fn world(twists: Twists) -> Synthetic {
    Synthetic::new(recipe(twists), 7).unwrap()
}

/// The weight vector of each user whose rewards determine it, by least squares on the mean
/// rewards of the rounds from `first` to before `last`.
fn solved(world: &Synthetic, first: u64, last: u64) -> Vec<Option<Vec<f64>>> {
    let dim = world.dim();
    let mut sums = vec![(vec![vec![0.0; dim + 1]; dim], 0); world.users() as usize];
    let mut block = world.new_block();
    for index in 0..last.div_ceil(BLOCK as u64) {
        world.draw(index, BLOCK, &mut block);
        for at in 0..block.len() {
            let round = index * BLOCK as u64 + at as u64;
            if !(first..last).contains(&round) {
                continue;
            }
            let (rows, count) = &mut sums[block.users[at] as usize];
            for candidate in 0..block.candidates {
                let item: Vec<f64> = block.items[at].item(candidate).collect();
                for (row, x) in rows.iter_mut().zip(&item) {
                    for (sum, y) in row.iter_mut().zip(&item) {
                        *sum += x * y;
                    }
                    row[dim] += x * block.mean(at, candidate);
                }
                *count += 1;
            }
        }
    }
    let solve = |(rows, count): (Vec<Vec<f64>>, usize)| (count >= 2 * dim).then(|| gauss(rows));
    sums.into_iter().map(solve).collect()
}

/// Solves a system whose last column is the right side.
fn gauss(mut rows: Vec<Vec<f64>>) -> Vec<f64> {
    let n = rows.len();
    for pivot in 0..n {
        let top = rows[pivot].clone();
        for (at, row) in rows.iter_mut().enumerate() {
            let factor = row[pivot] / top[pivot];
            if at != pivot {
                row.iter_mut().zip(&top).for_each(|(v, t)| *v -= factor * t);
            }
        }
    }
    (0..n).map(|at| rows[at][n] / rows[at][at]).collect()
}

fn cosine(a: &[f64], b: &[f64]) -> f64 {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

fn are_close(a: &[f64], b: &[f64]) -> bool {
    a.iter().zip(b).all(|(x, y)| (x - y).abs() < 1e-9)
}

fn sizes(cluster_of: &[u32], clusters: usize) -> Vec<usize> {
    let mut sizes = vec![0; clusters];
    cluster_of.iter().for_each(|&c| sizes[c as usize] += 1);
    sizes
}

#[test]
fn unequal_clusters_have_the_sizes_of_the_law() {
    for (users, clusters) in [(1000, 10), (1000, 100), (30, 30), (7, 1)] {
        let recipe = Recipe {
            users,
            clusters,
            ..recipe(Twists {
                sizes: Sizes::Unequal,
                ..Twists::default()
            })
        };
        let world = Synthetic::new(recipe, 3).unwrap();
        let sizes = sizes(&world.truth.cluster_of, clusters);
        let whole: f64 = (1..=clusters).map(|k| (k as f64).powf(-1.5)).sum();
        for (at, &size) in sizes.iter().enumerate() {
            let share = ((at + 1) as f64).powf(-1.5) / whole;
            let expected = 1.0 + share * (users - clusters) as f64;
            assert!(
                (size as f64 - expected).abs() <= 1.0,
                "{at}: {size} {expected}"
            );
        }
        assert_eq!(sizes.iter().sum::<usize>(), users);
        // The first users are from all clusters.
        let first = &world.truth.cluster_of[..users / 2];
        if clusters == 10 {
            let of_largest = first.iter().filter(|&&c| c == 0).count();
            assert!((200..300).contains(&of_largest), "{of_largest}");
        }
    }
    let shown = |users: usize| sizes(&world_of_default_size(users).truth.cluster_of, 10);
    assert_eq!(shown(1000)[..3], [497, 177, 96], "as the help says");
    assert_eq!(shown(1000)[9], 17, "as the help says");
}

fn world_of_default_size(users: usize) -> Synthetic {
    let twists = Twists {
        sizes: Sizes::Unequal,
        ..Twists::default()
    };
    let recipe = Recipe {
        users,
        clusters: 10,
        ..recipe(twists)
    };
    Synthetic::new(recipe, 1).unwrap()
}

#[test]
fn spread_users_differ_from_their_clusters_by_as_much_as_it_says() {
    for spread in [0.2, 0.4] {
        let twists = Twists {
            spread,
            ..Twists::default()
        };
        let recipe = Recipe {
            users: 300,
            dim: 20,
            ..recipe(twists)
        };
        let world = Synthetic::new(recipe, 7).unwrap();
        let plain = Synthetic::new(
            Recipe {
                twists: Twists::default(),
                ..recipe
            },
            7,
        )
        .unwrap();
        assert_eq!(world.truth, plain.truth, "the clusters are as they were");
        let mut cosines = 0.0;
        let found = solved(&world, 0, 80 * BLOCK as u64);
        for (user, weights) in found.iter().enumerate() {
            let weights = weights.as_ref().unwrap();
            assert!((weights[19] - FRAC_1_SQRT_2).abs() < 1e-9);
            let length: f64 = weights.iter().map(|v| v * v).sum();
            assert!((length - 1.0).abs() < 1e-9, "rewards stay in [0, 1]");
            let centre = &world.truth.weights[world.truth.cluster_of[user] as usize];
            cosines += cosine(&weights[..19], &centre[..19]) / 300.0;
        }
        // To the first order |v + s z| = √(1 + s²), and v·z has mean 0.
        let expected = 1.0 / (1.0f64 + spread * spread).sqrt();
        assert!((cosines - expected).abs() < 0.01, "{cosines} {expected}");
        assert!(!are_close(
            found[0].as_ref().unwrap(),
            found[5].as_ref().unwrap()
        ));
    }
}

#[test]
fn rare_rewards_are_as_rare_as_they_should_be() {
    let world = world(Twists {
        reward_scale: 0.04,
        ..Twists::default()
    });
    let plain = self::world(Twists::default());
    let (mut block, mut plain_block) = (world.new_block(), plain.new_block());
    let (mut rewards, mut count) = (0.0, 0.0);
    for index in 0..400 {
        world.draw(index, BLOCK, &mut block);
        plain.draw(index, BLOCK, &mut plain_block);
        assert_eq!(block.users, plain_block.users);
        for at in 0..BLOCK {
            assert!((block.mean(at, 2) - 0.04 * plain_block.mean(at, 2)).abs() < 1e-15);
            rewards += block.reward(at, 2);
            count += 1.0;
        }
    }
    let rate: f64 = rewards / count;
    assert!(
        (rate - 0.02).abs() < 5.0 * (0.02f64 / count).sqrt(),
        "{rate}"
    );
    // The ground truth is right.
    let truth = world.truth().unwrap();
    for (user, weights) in solved(&world, 0, 20 * BLOCK as u64).iter().enumerate() {
        let true_weights = &truth.weights[truth.cluster_of[user] as usize];
        assert!(are_close(weights.as_ref().unwrap(), true_weights));
    }
}

#[test]
fn nobody_appears_before_she_has_come() {
    for users_a_round in [None, Some(3.0)] {
        let recipe = Recipe {
            users_a_round,
            frequencies: Frequencies::Users,
            ..recipe(Twists {
                newcomers_every: Some(20.5),
                ..Twists::default()
            })
        };
        let world = Synthetic::new(recipe, 7).unwrap();
        let shares = world.frequencies();
        let mut block = world.new_block();
        let mut round = 0;
        let mut late = vec![0.0; 60];
        let mut rounds_late = 0.0;
        let mut seen = vec![None; 60];
        for index in 0..400 {
            world.draw(index, world.block_rounds(), &mut block);
            for at in 0..block.rounds() {
                for user in block.users[block.users_of(at)].iter().map(|&u| u as usize) {
                    assert!(user as f64 * 20.5 <= round as f64, "{user} in {round}");
                    seen[user].get_or_insert(round);
                    late[user] += f64::from(u8::from(round >= 60 * 21));
                }
                rounds_late += f64::from(u8::from(round >= 60 * 21));
                round += 1;
            }
        }
        let first: Vec<i32> = seen.into_iter().flatten().collect();
        assert_eq!(first.len(), 60, "all have come");
        assert!(first[40..].iter().all(|&round| round >= 820));
        // Once all are there, they appear as often as they should.
        for (late, share) in late.iter().zip(&shares) {
            let often = users_a_round.map_or(*share, |many| (many * share).min(1.0));
            let deviation = (often * (1.0 - often) * rounds_late).sqrt();
            assert!((late - often * rounds_late).abs() < 5.0 * deviation.max(1.0));
        }
    }
}

#[test]
fn half_way_every_user_takes_another_clusters_vector() {
    for spread in [0.0, 0.3] {
        // In the middle of a block.
        let change = 40 * BLOCK as u64 + 100;
        let changing = world(Twists {
            change_at: Some(change),
            spread,
            ..Twists::default()
        });
        let plain = world(Twists {
            spread,
            ..Twists::default()
        });
        let (before, after) = (
            solved(&changing, 0, change),
            solved(&changing, change, 2 * change),
        );
        let never = solved(&plain, 0, change);
        let truth = changing.truth().unwrap();
        let mut changes = vec![0; 5];
        for user in 0..60 {
            let [before, after, never] =
                [&before, &after, &never].map(|found| found[user].as_ref().unwrap());
            assert!(are_close(before, never), "until then all is as it was");
            let [old, new] = [0, change].map(|round| truth.clusters_in(round)[user] as usize);
            assert_eq!(old, user % 5);
            assert_ne!(old, new);
            changes[(new + 5 - old) % 5] += 1;
            if spread == 0.0 {
                assert!(are_close(before, &truth.weights[old]));
                assert!(are_close(after, &truth.weights[new]));
            } else {
                let nearest = (0..5).max_by(|&a, &b| {
                    cosine(after, &truth.weights[a]).total_cmp(&cosine(after, &truth.weights[b]))
                });
                assert_eq!(nearest, Some(new));
            }
        }
        assert!(changes[1..].iter().all(|&many| many > 3), "{changes:?}");
    }
}

#[test]
fn impossible_twists_are_named() {
    let good = Twists::default();
    let bad = |twists, name: &str| {
        let error = Synthetic::new(recipe(twists), 1).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
    };
    for spread in [-0.1, f64::NAN, f64::INFINITY] {
        bad(Twists { spread, ..good }, "spread");
    }
    for reward_scale in [0.0, 1.1, f64::NAN] {
        bad(
            Twists {
                reward_scale,
                ..good
            },
            "reward-scale",
        );
    }
    for gap in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let newcomers_every = Some(gap);
        bad(
            Twists {
                newcomers_every,
                ..good
            },
            "newcomers-every",
        );
    }
    let alone = Recipe {
        clusters: 1,
        ..recipe(Twists {
            change_at: Some(5),
            ..good
        })
    };
    let error = Synthetic::new(alone, 1).unwrap_err().to_string();
    assert!(error.contains("clusters is 1"), "{error}");
    let spread = recipe(Twists {
        spread: 0.1,
        ..good
    });
    let error = Synthetic::with_weights(spread, vec![vec![0.1; 8]; 3], 1).unwrap_err();
    assert!(error.to_string().contains("spread"), "{error}");
}
