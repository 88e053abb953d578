//! Limits that hold however many requests come at once.

use std::rc::Rc;

use crate::clients::features;
use crate::operators::supervisor;
use crate::plan::Plan;
use crate::run::{run_root, spawn};
use crate::seed::stream;
use crate::serve::{Choice, RecommendRequest, Reply, Request, Reward};
use crate::world::World;

/// The features of an item, items of a decision, and decisions of a request: some 120 kB in the log.
const DIM: usize = 64;
const SHOWN: usize = 10;
const DECISIONS: usize = 20;
const REQUESTS: usize = 120;

/// The maximum number of bytes of an append, plus one request.
const MAX_APPEND_BYTES: usize = (4 << 20) + (256 << 10);

#[test]
fn the_length_of_an_append_is_limited() {
    let plan = Plan {
        dim: DIM,
        ..Plan::plain(1, "linucb-one")
    };
    let world = World::new(plan, false);
    let root = async {
        spawn(&world, "supervisor", supervisor(Rc::clone(&world)));
        world.sleep(1).await;
        let site = world.current();
        let rng = &mut stream(1, "bounds");
        for _ in 0..REQUESTS * DECISIONS {
            let items = (0..SHOWN).map(|item| (format!("inline-{item}"), features(rng, DIM)));
            let request = RecommendRequest {
                user: "user-aaaaaaaaaaaa".to_owned(),
                among: Choice::Inline(items.collect()),
                k: SHOWN,
            };
            let shown = world.ask(&site, Request::Recommend(vec![request])).await;
            assert_eq!(shown, Some(Reply::Done));
        }
        // All at once.
        let answers: Vec<_> = (0..REQUESTS)
            .filter_map(|request| {
                let rewards = (0..DECISIONS * SHOWN).map(|place| {
                    let decision = request * DECISIONS + place / SHOWN;
                    Reward {
                        decision,
                        item: Some(world.decisions.borrow()[decision].items[place % SHOWN].clone()),
                        reward: 0.5,
                    }
                });
                world.deliver(&site, Request::Feedback(rewards.collect()), None)
            })
            .collect();
        assert_eq!(answers.len(), REQUESTS);
        for answer in answers {
            assert_eq!(answer.await, Ok(Reply::Done));
        }
        let engine = world.engine(&site).expect("it is open");
        let batches = engine.folder().log.read(0).expect("it can be read");
        let lengths: Vec<usize> = batches
            .map(|batch| batch.expect("it can be read").1.len())
            .collect();
        let largest = lengths.iter().copied().max().unwrap_or(0);
        // Many requests did share an append.
        assert!(largest > MAX_APPEND_BYTES / 2, "{lengths:?}");
        if largest > MAX_APPEND_BYTES {
            world.violation(format!("a batch of {largest} bytes"));
        }
    };
    if let Err(failure) = run_root(&world, root) {
        panic!("{failure}");
    }
}
