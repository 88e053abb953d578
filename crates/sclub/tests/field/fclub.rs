//! `fclub`: compared with a plain transcription that keeps every observation.

use std::collections::HashSet;

use proptest::prelude::*;
use sclub::{UserId, Users, Value, radius};

use crate::common::*;

/// The constants of a test: servers, α, α₂, U and D.
fn constants(servers: f64, cut: f64, join: f64, growth: f64) -> Vec<(&'static str, Value)> {
    vec![
        ("servers", number(servers)),
        ("alpha_theta", number(cut)),
        ("alpha_merge", number(join)),
        ("upload_growth", number(growth)),
        ("download_growth", number(growth)),
    ]
}

/// The home server of the user with a place in the order of appearance: the hash that the library uses for its tables, mod
/// the number of servers.
fn home(place: u64, servers: u64) -> u64 {
    const FACTOR: u64 = 0xd6e8_feb8_6659_fd93;
    let once = |word: u64| (word ^ (word >> 32)).wrapping_mul(FACTOR);
    let word = once(once(place));
    (word ^ (word >> 32)) % servers
}

/// Each user's observations, and clusters made at the end of each phase by the rules in the policy's documentation.
struct Plain {
    servers: u64,
    cut_at: f64,
    join_at: f64,
    users: Vec<UserId>,
    seen: Vec<Vec<(Vec<f64>, f64)>>,
    cut: Vec<(usize, usize)>,
    /// The local cluster of each user, and the server, the observations at the end of the phase and the global
    /// cluster of each local cluster.
    local: Vec<usize>,
    locals: Vec<(u64, usize, usize)>,
}

impl Plain {
    fn new(servers: u64, cut_at: f64, join_at: f64) -> Self {
        let (users, seen, cut, local) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let locals = Vec::new();
        Self {
            servers,
            cut_at,
            join_at,
            users,
            seen,
            cut,
            local,
            locals,
        }
    }

    fn observe(&mut self, user: UserId, item: Vec<f64>, reward: f64) {
        let slot = self
            .users
            .iter()
            .position(|&u| u == user)
            .unwrap_or_else(|| {
                let server = home(self.users.len() as u64, self.servers);
                let of_server: Vec<usize> = (0..self.locals.len())
                    .filter(|&l| self.locals[l].0 == server)
                    .collect();
                let most = of_server.iter().map(|&l| self.locals[l].1).max();
                let home = of_server.iter().find(|&&l| Some(self.locals[l].1) == most);
                let home = home.copied().unwrap_or_else(|| {
                    self.locals.push((server, 0, self.largest_global()));
                    self.locals.len() - 1
                });
                self.users.push(user);
                self.seen.push(Vec::new());
                self.local.push(home);
                self.users.len() - 1
            });
        self.seen[slot].push((item, reward));
    }

    fn global(&self, slot: usize) -> usize {
        self.locals[self.local[slot]].2
    }

    fn members(&self, global: usize) -> Vec<usize> {
        (0..self.users.len())
            .filter(|&slot| self.global(slot) == global)
            .collect()
    }

    fn largest_global(&self) -> usize {
        let globals = self.locals.iter().map(|l| l.2 + 1).max().unwrap_or(1);
        let count = |g: usize| {
            self.members(g)
                .iter()
                .map(|&s| self.seen[s].len())
                .sum::<usize>()
        };
        (0..globals).rev().max_by_key(|&g| count(g)).unwrap_or(0)
    }

    fn estimate(&self, slots: &[usize]) -> Vec<f64> {
        let seen = slots.iter().flat_map(|&slot| &self.seen[slot]);
        ridge(DIM, seen.map(|(item, reward)| (item.as_slice(), *reward)))
    }

    fn count(&self, slots: &[usize]) -> u64 {
        slots.iter().map(|&slot| self.seen[slot].len() as u64).sum()
    }

    /// ‖θ̂ − θ̂'‖ / (F(T) + F(T'))
    fn gap(&self, a: &[usize], b: &[usize]) -> f64 {
        let (x, y) = (self.estimate(a), self.estimate(b));
        let square: f64 = x.iter().zip(&y).map(|(x, y)| (x - y) * (x - y)).sum();
        square.sqrt() / (radius(self.count(a)) + radius(self.count(b)))
    }

    fn end_phase(&mut self) {
        let n = self.users.len();
        let server = |slot: usize| home(slot as u64, self.servers);
        for a in 0..n {
            for b in 0..a {
                if server(a) == server(b) && self.gap(&[a], &[b]) > self.cut_at {
                    self.cut.push((a, b));
                }
            }
        }
        let parts = closure(n, |a, b| {
            server(a) == server(b) && !self.cut.contains(&(a.max(b), a.min(b)))
        });
        let globals = closure(parts.len(), |a, b| {
            server(parts[a][0]) != server(parts[b][0])
                && self.gap(&parts[a], &parts[b]) < self.join_at
        });
        let locals = parts.iter().enumerate().map(|(l, part)| {
            let global = globals.iter().position(|g| g.contains(&l)).unwrap();
            (server(part[0]), self.count(part) as usize, global)
        });
        self.locals = locals.collect();
        for (l, part) in parts.iter().enumerate() {
            part.iter().for_each(|&slot| self.local[slot] = l);
        }
    }
}

/// Components by joining labels until nothing changes.
fn closure(n: usize, connected: impl Fn(usize, usize) -> bool) -> Vec<Vec<usize>> {
    let mut label: Vec<usize> = (0..n).collect();
    loop {
        let before = label.clone();
        for a in 0..n {
            for b in 0..n {
                if connected(a, b) {
                    label[a] = label[a].min(label[b]);
                }
            }
        }
        if label == before {
            let parts = (0..n).map(|l| (0..n).filter(|&i| label[i] == l).collect::<Vec<_>>());
            return parts.filter(|part| !part.is_empty()).collect();
        }
    }
}

/// Plays rounds and compares clusters and estimates: in each round, or where sums are shared late at the ends of phases.
fn compare(seed: u64, servers: u64, cut: f64, join: f64, growth: f64) {
    let mut policy = make("fclub", &constants(servers as f64, cut, join, growth));
    let mut plain = Plain::new(servers, cut, join);
    let mut phase_end = 2;
    for (number, round) in rounds(seed, 3, 130).iter().enumerate() {
        let index = round.play(&mut *policy).index;
        plain.observe(round.user, round.features(index), round.reward(index));
        if number + 1 == phase_end {
            phase_end = 2 * phase_end + 2;
            plain.end_phase();
        } else if growth > 1.0 {
            continue;
        }
        for (slot, &user) in plain.users.iter().enumerate() {
            let expected = plain.estimate(&plain.members(plain.global(slot)));
            let got = policy.estimate(user).unwrap();
            for (a, b) in got.iter().zip(&expected) {
                assert!(
                    (a - b).abs() < 1e-9,
                    "round {number} user {user}: {got:?} {expected:?}"
                );
            }
            assert_eq!(policy.cluster_of(user), Some(plain.global(slot) as u64 + 1));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..Default::default() })]

    /// With one server and immediate uploads it is CLUB whose clusters change at the ends of phases.
    #[test]
    fn one_server_is_club_in_phases(seed: u64, cut in 0.2f64..1.2) {
        compare(seed, 1, cut, 2.0, 1.0);
    }

    #[test]
    fn several_servers_that_share_at_once_have_all_observations(seed: u64, servers in 2u64..6, cut in 0.2f64..1.2, join in 0.0f64..1.0) {
        compare(seed, servers, cut, join, 1.0);
    }

    /// Whatever was late, after a phase the sums of a global cluster are those of its users.
    #[test]
    fn nothing_is_lost_by_delay(seed: u64, servers in 1u64..6, growth in 1.01f64..4.0) {
        compare(seed, servers, 0.5, 0.5, growth);
    }

    /// A determinant that grows by the factor U at each upload bounds their number.
    #[test]
    fn uploads_are_few(seed: u64, growth in 1.05f64..2.0) {
        let mut policy = make_for("fclub", DIM, Users::Appear, &constants(1.0, 1e9, 1.0, growth));
        let rounds = rounds_of(seed, 1, DIM, 1, 500);
        rounds.iter().for_each(|round| { round.play(&mut *policy); });
        // The server's first message, and two at the end of each of the 7 phases up to round 254.
        let uploads = policy.messages().unwrap().sent - 1 - 2 * 7;
        let dim = DIM as f64;
        let bound = dim * (1.0 + 500.0 / dim).ln() / growth.ln();
        prop_assert!(uploads >= 1 && uploads as f64 <= bound, "{} of {}", uploads, bound);
    }

    #[test]
    fn privacy_without_noise_changes_no_bit(seed: u64) {
        let rounds = rounds(seed, 3, 200);
        let mut given = constants(3.0, 1.0, 1.0, 1.1);
        let mut open = make("fclub", &given);
        given.push(("privacy", number(1e300)));
        let mut private = make("fclub", &given);
        assert_same(&mut *open, &mut *private, &rounds, 0.0);
        *given.last_mut().unwrap() = ("privacy", number(100.0));
        let mut noisy = make("fclub", &given);
        rounds.iter().for_each(|round| { round.play(&mut *noisy); });
        prop_assert_ne!(noisy.estimate(1), open.estimate(1));
        prop_assert!(noisy.estimate(1).unwrap().iter().all(|x| x.abs() < 10.0));
    }
}

/// Where no users are told apart and everything is shared at once, it is one model for all.
#[test]
fn without_cuts_it_is_linucb_one() {
    let rounds = rounds(4, 3, 600);
    for servers in [1.0, 5.0] {
        let mut policy = make("fclub", &constants(servers, 1e9, 1e9, 1.0));
        assert_same(&mut *policy, &mut *make("linucb-one", &[]), &rounds, 1e-9);
    }
}

/// Servers that never share inside a phase send two messages for each local cluster at its end.
#[test]
fn messages_are_counted() {
    let mut policy = make("fclub", &constants(4.0, 1e9, 1e9, 1e300));
    for user in 0..USERS {
        policy.learn(user, &[0.5; DIM], 1.0).unwrap();
    }
    // A first message to each server; one local cluster of each server that has users at rounds 2 and 6.
    let servers = |users: u64| {
        let homes: HashSet<u64> = (0..users).map(|user| home(user, 4)).collect();
        homes.len() as u64
    };
    let sent = servers(USERS) + 2 * (servers(2) + servers(6));
    let messages = policy.messages().unwrap();
    let numbers = DIM * (DIM + 1) / 2 + DIM + 1;
    assert_eq!(
        (messages.sent, messages.numbers),
        (sent, sent * numbers as u64)
    );
    assert_eq!(make("lints", &[]).messages(), None);
}

#[test]
fn it_learns_and_replays() {
    let rounds = rounds(2, 3, 2000);
    let (mut policy, mut again) = (make("fclub", &[]), make("fclub", &[]));
    let (regret, random) = regrets(&mut *policy, &rounds);
    assert!(
        regret > 0.0 && regret < random / 3.0,
        "{regret} of {random}"
    );
    regrets(&mut *again, &rounds);
    assert_eq!(policy.digest(), again.digest());
}

/// Where users appear in the order of their numbers, which go round robin over the clusters, a server must not be a hint at
/// the cluster.
#[test]
fn servers_do_not_tell_the_place_of_a_user_modulo_anything() {
    for modulus in [2, 4, 5, 10] {
        let mut seen = vec![[0u32; 5]; modulus];
        for place in 0..10_000u64 {
            seen[place as usize % modulus][home(place, 5) as usize] += 1;
        }
        let expected = 10_000.0 / (5.0 * modulus as f64);
        for counts in seen {
            let off = counts.map(|n| f64::from(n) / expected - 1.0);
            assert!(off.iter().all(|off| off.abs() < 0.25), "{counts:?}");
        }
    }
}
