//! A world and policies that the lab has not: played beside its own, and able to fail.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use sclub::{
    Change, ClusterId, Decision, Error, ItemId, ItemSet, Observation, Policy, Preset, Score, UserId,
};
use sclub_lab::policies::{Entry, Name, make, setup};
use sclub_lab::run::{Observer, Player, RunError, over_seeds, play, play_all};
use sclub_lab::world::{BLOCK, Block, Rewards, Truth, World};

/// Two items; the first is better, and brings what the world says.
struct Given {
    /// True where the world gives rewards and item ids, instead of drawing rewards from means.
    given: bool,
}

impl World for Given {
    fn dim(&self) -> usize {
        2
    }

    fn users(&self) -> u64 {
        3
    }

    fn truth(&self) -> Option<&Truth> {
        None
    }

    fn new_block(&self) -> Block {
        Block::new(2, 2, Rewards::Bernoulli).unwrap()
    }

    fn draw(&self, index: u64, rounds: usize, block: &mut Block) {
        block.clear(rounds);
        for at in 0..rounds {
            let round = index as usize * BLOCK + at;
            block.users.push((round % 3) as UserId);
            block.items[at].refill(&[1.0, 0.0, 0.0, 1.0]).unwrap();
            block.means[2 * at..2 * at + 2].copy_from_slice(&[0.75, 0.25]);
            block.best.push(0.75);
            block.average.push(0.5);
            block.noise.push(0.5);
            if self.given {
                block.given.extend([10.0 + round as f64, -1.0]);
                block.items[at].set_ids(&[70, 71]).unwrap();
            }
        }
    }
}

/// Always chooses the same, and can be told to fail.
struct Stubborn {
    choice: usize,
    fails_after: u64,
    failed: Arc<AtomicBool>,
    learned: Arc<AtomicU64>,
    ids: Arc<Mutex<Vec<Option<ItemId>>>>,
    rounds: u64,
}

impl Policy for Stubborn {
    fn dim(&self) -> usize {
        2
    }

    fn rounds(&self) -> u64 {
        self.rounds
    }

    fn recommend(&self, _user: UserId, _items: &ItemSet) -> Result<Decision, Error> {
        if self.rounds >= self.fails_after {
            self.failed.store(true, Ordering::Relaxed);
            return Err(Error::NoCandidates);
        }
        let score = Score {
            score: 0.0,
            mean: 0.0,
            width: 0.0,
        };
        let index = self.choice;
        Ok(Decision { index, score })
    }

    fn explain(&self, _: UserId, _: &ItemSet, _: &mut Vec<Score>) -> Result<(), Error> {
        unreachable!("it is not called")
    }

    fn learn_round(
        &mut self,
        round: &[Observation<'_>],
        _changes: &mut Vec<Change>,
    ) -> Result<(), Error> {
        self.rounds += 1;
        for observation in round {
            let reward = observation.reward as i64 as u64;
            self.learned.fetch_add(reward, Ordering::Relaxed);
            self.ids.lock().unwrap().push(observation.id);
        }
        Ok(())
    }

    fn cluster_of(&self, _user: UserId) -> Option<ClusterId> {
        Some(1)
    }

    fn clusters(&self) -> usize {
        1
    }

    fn digest(&self) -> u64 {
        self.rounds
    }
}

impl Stubborn {
    fn new(choice: usize, fails_after: u64) -> Self {
        Self {
            choice,
            fails_after,
            failed: Arc::default(),
            learned: Arc::default(),
            ids: Arc::default(),
            rounds: 0,
        }
    }

    fn player(self, name: &str) -> Player<String> {
        Player::new(name.into(), Preset::Tuned, Box::new(self))
    }
}

fn entry(name: Name) -> Entry {
    Entry::new(name, Preset::Tuned, &[], &setup(2, 3)).unwrap()
}

/// Stops where a policy has failed.
struct Watch(Arc<AtomicBool>);

impl Observer for Watch {
    fn played(&self, _rounds: u64) {}

    fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[test]
fn rewards_that_a_world_gives_are_the_ones_counted_and_learned() {
    let policy = Stubborn::new(0, u64::MAX);
    let learned = Arc::clone(&policy.learned);
    let players = vec![
        policy.player("first"),
        Stubborn::new(1, u64::MAX).player("second"),
    ];
    let rounds = 300;
    let runs = play_all(&Given { given: true }, 1, players, rounds, &())
        .unwrap()
        .unwrap();
    let sum: u64 = (0..rounds).map(|round| 10 + round).sum();
    assert_eq!(runs[0].policy, "first");
    assert_eq!((runs[0].reward, runs[0].regret), (sum as f64, 0.0));
    assert_eq!(learned.load(Ordering::Relaxed), sum);
    // Regret is still counted by means.
    assert_eq!((runs[1].reward, runs[1].regret), (-300.0, 150.0));
    assert_eq!(runs[1].random_regret, 75.0);
}

#[test]
fn a_policy_learns_the_ids_that_a_world_gives() {
    for (given, expected) in [(true, Some(71)), (false, None)] {
        let policy = Stubborn::new(1, u64::MAX);
        let ids = Arc::clone(&policy.ids);
        let players = vec![policy.player("mine")];
        play_all(&Given { given }, 1, players, 300, &()).unwrap();
        assert_eq!(*ids.lock().unwrap(), vec![expected; 300]);
    }
}

#[test]
fn a_policy_from_elsewhere_changes_nothing_for_the_labs_own() {
    let world = Given { given: false };
    let alone = play(&world, 1, &[entry(Name::LINUCB_IND)], 500, &())
        .unwrap()
        .unwrap();
    let made = make(&entry(Name::LINUCB_IND), &world, 1, 100)
        .unwrap()
        .unwrap();
    let players = vec![
        Stubborn::new(1, u64::MAX).player("mine"),
        Player::new("theirs".into(), Preset::Tuned, made),
    ];
    let beside = play_all(&world, 1, players, 500, &()).unwrap().unwrap();
    assert_eq!(beside[1].policy, "theirs");
    assert_eq!(beside[1].digest, alone[0].digest);
    assert_eq!(beside[1].curve, alone[0].curve);
    // Its noise is 0.5, below 0.75 and above 0.25.
    assert_eq!((beside[0].reward, beside[0].regret), (0.0, 250.0));
}

#[test]
fn a_policy_that_fails_on_purpose_stops_the_run_and_is_no_error() {
    let world = Given { given: true };
    let policy = Stubborn::new(0, 400);
    let watch = Watch(Arc::clone(&policy.failed));
    let players = vec![policy.player("fails")];
    let stopped = play_all(&world, 1, players, 1000, &watch);
    assert!(matches!(stopped, Ok(None)));
    // Without an observer that knows, an error is an error.
    let players = vec![Stubborn::new(0, 400).player("fails")];
    let failed = play_all(&world, 1, players, 1000, &());
    assert!(matches!(failed, Err(RunError::Policy(Error::NoCandidates))));
}

#[test]
fn seeds_come_back_in_their_order_and_none_is_begun_after_an_error() {
    let pool = |threads| {
        rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap()
    };
    let world = Given { given: false };
    let one = |seed| play(&world, seed, &[entry(Name::RANDOM)], 10 * seed, &());
    let runs = over_seeds(&pool(3), &[5, 3, 9, 1], one).unwrap();
    let seeds: Vec<u64> = runs.iter().map(|run| run.seed).collect();
    assert_eq!(seeds, [5, 3, 9, 1]);
    assert_eq!(runs[2].rounds, 90);

    // One thread waits in the first seed until the other has failed in the second.
    let (begun, failed) = (AtomicU64::new(0), AtomicBool::new(false));
    let seeds: Vec<u64> = (1..1000).collect();
    let error = over_seeds::<Name, &str>(&pool(2), &seeds, |seed| {
        begun.fetch_add(1, Ordering::Relaxed);
        if seed == 2 {
            failed.store(true, Ordering::Relaxed);
            return Err("two");
        }
        while !failed.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
        Ok(Some(Vec::new()))
    });
    assert_eq!(error.unwrap_err(), "two");
    assert!(begun.load(Ordering::Relaxed) < 900);

    let some = over_seeds(&pool(1), &[1, 2, 3], |seed| match seed {
        2 => Ok(None),
        _ => one(seed),
    });
    assert_eq!(some.unwrap().len(), 1);
}
