//! Requests of clients in scripted situations, on a network without faults of its own.

use std::collections::BTreeSet;
use std::rc::Rc;

use serde_json::{Value, json};

use crate::operators::supervisor;
use crate::plan::{Kind, Plan};
use crate::world::{Answer, Machine, World};

/// Runs a script on a cluster of three nodes with four partitions, all of which have an owner.
fn script<F: Future<Output = ()> + 'static>(run: impl FnOnce(Script) -> F + 'static) {
    let mut plan = Plan::new(1, 0).leave_out(&Kind::ALL.into_iter().collect::<BTreeSet<_>>());
    plan.nodes = 3;
    plan.partitions = 4;
    plan.standby = 1;
    plan.settings.policy = Some("linucb-ind".to_owned());
    let world = World::new(plan, false);
    let own = Rc::clone(&world);
    let ended = world.executor.run(async move {
        own.init().await;
        own.spawn("supervisor", supervisor(Rc::clone(&own)));
        own.sleep(10_000).await;
        let owners = own
            .send(&own.machines[0], "GET", "/v1/nodes", "", String::new())
            .await;
        let owners = owners.expect("it is running").body["owners"].clone();
        run(Script { world: own, owners }).await;
    });
    for machine in &world.machines {
        world.kill(machine);
    }
    world.executor.clear();
    if let Err(stopped) = ended {
        panic!("{stopped}");
    }
}

struct Script {
    world: Rc<World>,
    owners: Value,
}

impl Script {
    fn owner(&self, group: &str) -> Rc<Machine> {
        let mut machines = self.world.machines.iter();
        let owner = machines.find(|machine| self.owners[group] == **machine.name.borrow());
        Rc::clone(owner.expect("every group has an owner"))
    }

    /// A node that is none of these.
    fn another(&self, than: &[&Rc<Machine>]) -> Rc<Machine> {
        let mut machines = self.world.machines.iter();
        let other = machines.find(|machine| than.iter().all(|than| than.index != machine.index));
        Rc::clone(other.expect("there are three"))
    }

    /// A user whose partition is not owned by the owner of the catalogue, and the owner.
    fn user(&self) -> (String, Rc<Machine>) {
        let catalogue = self.owner("catalogue");
        let users = (0..100).map(|number| format!("user-{number}"));
        let mut owned = users.map(|user| {
            let partition = sclub_server::cluster::members::partition_of(&user, 4);
            (user, self.owner(&format!("p{partition}")))
        });
        let found = owned.find(|(_, owner)| owner.index != catalogue.index);
        found.expect("the nodes share the partitions")
    }

    fn freeze(&self, machine: &Machine, stream: &str, is_frozen: bool) {
        let link = machine
            .process
            .borrow()
            .as_ref()
            .expect("it is running")
            .bus
            .link;
        let frozen = &mut self.world.nats.core().frozen;
        match is_frozen {
            true => frozen.insert((link, stream.to_owned())),
            false => frozen.remove(&(link, stream.to_owned())),
        };
    }

    async fn post(&self, machine: &Machine, path: &str, body: &Value) -> Answer {
        let answer = self.world.post(machine, path, body, 60_000).await;
        answer.expect("an answer")
    }

    async fn put_items(&self, machine: &Machine, ids: &[String]) {
        let lines = ids
            .iter()
            .map(|id| json!({"id": id, "features": [0.6, 0.8]}).to_string());
        let lines: Vec<String> = lines.collect();
        let kind = "application/x-ndjson";
        let put = self
            .world
            .send(machine, "PUT", "/v1/items", kind, lines.join("\n"));
        let put = put.await.expect("an answer");
        assert_eq!(put.status, 200, "{put:?}");
    }

    async fn rounds(&self, machine: &Machine) -> u64 {
        let state = self
            .world
            .send(machine, "GET", "/v1/state", "", String::new());
        let state = state.await.expect("an answer");
        state.body["rounds"].as_u64().expect("a number")
    }
}

#[test]
fn an_item_that_was_put_is_known_to_all_nodes() {
    script(|script| async move {
        let (user, owner) = script.user();
        let asked = script.another(&[&owner]);
        for (item, body) in [
            ("first", json!({"user": user})),
            ("second", json!({"user": user, "candidates": ["second"]})),
        ] {
            script.freeze(&owner, "catalogue", true);
            script.put_items(&asked, &[item.to_owned()]).await;
            for machine in [&asked, &owner] {
                script.freeze(&owner, "catalogue", true);
                let world = Rc::clone(&script.world);
                let thaw = Script {
                    world: Rc::clone(&world),
                    owners: Value::Null,
                };
                let late = Rc::clone(&owner);
                world.spawn("thaw", async move {
                    thaw.world.sleep(300).await;
                    thaw.freeze(&late, "catalogue", false);
                });
                let answer = script.post(machine, "/v1/recommend", &body).await;
                assert_eq!(answer.status, 200, "{answer:?}");
            }
        }
        let mut body = json!({"user": user, "candidates": ["third"], "strict": true});
        let answer = script.post(&asked, "/v1/recommend", &body).await;
        assert_eq!((answer.status, answer.code()), (404, "unknown_item"));
        body["strict"] = json!(false);
        body["candidates"] = json!(["third", "second"]);
        let answer = script.post(&asked, "/v1/recommend", &body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.body["missing"], json!(["third"]));
    });
}

#[test]
fn a_round_without_rewards_is_not_repeated_if_its_outcome_is_unknown() {
    script(|script| async move {
        let asked = script.another(&[&script.owner("p0")]);
        script.world.nats.core().reply_delay = 60_000;
        let idle = json!({"feedback": []});
        let answer = script.post(&asked, "/v1/feedback/batch", &idle).await;
        assert_eq!((answer.status, answer.code()), (504, "unknown_outcome"));
        script.world.nats.core().reply_delay = 0;
        assert_eq!(script.rounds(&asked).await, 1);
    });
}

#[test]
fn a_snapshot_may_take_longer_than_other_requests() {
    script(|script| async move {
        let asked = Rc::clone(&script.world.machines[0]);
        script.world.nats.core().reply_delay = 4_000;
        let answer = script
            .post(&asked, "/v1/admin/snapshot", &Value::Null)
            .await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let state = script
            .world
            .send(&asked, "GET", "/v1/state?hash=true", "", String::new());
        let state = state.await.expect("an answer");
        assert_eq!(state.status, 200, "{state:?}");
    });
}

#[test]
fn many_requests_to_a_node_that_is_paused_are_answered_by_its_successor() {
    script(|script| async move {
        let (user, owner) = script.user();
        let asked = script.another(&[&owner]);
        script.put_items(&asked, &["a".to_owned()]).await;
        let process = owner.process.borrow().clone().expect("it is running");
        script.world.pause(&process, true);
        // More than the messages that may wait for their answers can carry.
        let requests = (0..3_000).map(|_| async {
            let answer = script
                .post(&asked, "/v1/recommend", &json!({"user": user}))
                .await;
            assert_eq!(answer.status, 200, "{answer:?}");
        });
        futures_util::future::join_all(requests).await;
    });
}

#[test]
fn answers_that_are_too_large_together_are_sent_alone() {
    script(|script| async move {
        let (user, owner) = script.user();
        let asked = script.another(&[&owner]);
        let ids: Vec<String> = (0..8).map(|number| format!("item-{number}")).collect();
        script.put_items(&asked, &ids).await;
        script.world.nats.core().max_message = 6_000;
        let one = json!({"user": user, "k": 8});
        let requests = (0..40).map(|_| script.post(&asked, "/v1/recommend", &one));
        for answer in futures_util::future::join_all(requests).await {
            assert_eq!(answer.status, 200, "{answer:?}");
        }
        // The body is refused by every node, whether it has to forward it or not.
        let candidates: Vec<String> = (0..300).map(|number| format!("item-{number}")).collect();
        let body = json!({"user": user, "candidates": candidates});
        for machine in [&asked, &owner] {
            let answer = script.post(machine, "/v1/recommend", &body).await;
            assert_eq!((answer.status, answer.code()), (413, "too_large"));
        }
        // So is an answer that is too large on its own.
        let requests: Vec<Value> = (0..8).map(|_| json!({"user": user, "k": 8})).collect();
        let answer = script
            .post(
                &asked,
                "/v1/recommend/batch",
                &json!({"requests": requests}),
            )
            .await;
        assert_eq!((answer.status, answer.code()), (413, "too_large"));
    });
}

#[test]
fn a_write_that_is_too_large_is_refused_and_others_go_on() {
    script(|script| async move {
        let (user, owner) = script.user();
        let asked = script.another(&[&owner]);
        script.put_items(&asked, &["a".to_owned()]).await;
        let decision = script
            .post(&asked, "/v1/recommend", &json!({"user": user}))
            .await;
        let reward = json!({"decision": decision.body["decision"], "reward": 1});
        script.world.nats.core().max_append = 50;
        for machine in [&asked, &owner] {
            let begun = script.world.clock.now();
            let answer = script.post(machine, "/v1/feedback", &reward).await;
            assert_eq!((answer.status, answer.code()), (413, "too_large"));
            assert!(script.world.clock.now() - begun < 1_000);
        }
        script.world.nats.core().max_append = 8 << 20;
        let begun = script.world.clock.now();
        let answer = script.post(&asked, "/v1/feedback", &reward).await;
        assert_eq!(answer.body["applied"], true, "{answer:?}");
        assert!(script.world.clock.now() - begun < 1_000);
    });
}

#[test]
fn the_size_of_a_batch_is_limited_over_all_partitions() {
    script(|script| async move {
        let asked = Rc::clone(&script.world.machines[0]);
        script.put_items(&asked, &["a".to_owned()]).await;
        let requests: Vec<Value> = (0..1_001)
            .map(|number| json!({"user": format!("{number}")}))
            .collect();
        let mut batch = json!({"requests": requests});
        let answer = script.post(&asked, "/v1/recommend/batch", &batch).await;
        assert_eq!(
            (answer.status, answer.code()),
            (422, "invalid"),
            "{answer:?}"
        );
        batch["requests"].as_array_mut().expect("a list").pop();
        let answer = script.post(&asked, "/v1/recommend/batch", &batch).await;
        assert_eq!(answer.status, 200);
        let decisions = answer.body["decisions"].as_array().expect("a list");
        let feedback = |rewards: &[f64]| {
            let entries = decisions.iter();
            let entries =
                entries.map(|one| json!({"decision": one["decision"], "rewards": rewards}));
            json!({"feedback": entries.collect::<Vec<_>>()})
        };
        let answer = script
            .post(&asked, "/v1/feedback/batch", &feedback(&[1.0, 1.0]))
            .await;
        let error = &answer.body["error"];
        assert_eq!(
            error["message"],
            "feedback has 2000 entries; it must have from 1 to 1000"
        );
        let answer = script
            .post(&asked, "/v1/feedback/batch", &feedback(&[1.0]))
            .await;
        assert_eq!(answer.status, 200);
    });
}
