//! Policies from outside the library: they are served like the others, and see the ids of items if they want
//! them.

use std::cell::RefCell;
use std::io::{self, Write};

use sclub::bytes::{self, Reader, Save, Writer};
use sclub::{
    Abilities, Change, ClusterId, ClusterView, Error, Forget, Inspect, ItemId, ItemSet, List, Load,
    Observation, Persist, Policy, Preset, Score, Spec, UserId,
};

use super::*;

thread_local! {
    /// The ids of the candidates of the last recommendation.
    static OFFERED: RefCell<Vec<ItemId>> = RefCell::default();
    /// The ids of the items learned.
    static LEARNED: RefCell<Vec<Option<ItemId>>> = RefCell::default();
    /// User and number of items of the lists learned.
    static LISTS: RefCell<Vec<(UserId, usize)>> = RefCell::default();
}

/// Counts users, and prefers the item with the largest id.
struct ById {
    dim: usize,
    rounds: u64,
    users: Vec<UserId>,
}

impl Policy for ById {
    fn dim(&self) -> usize {
        self.dim
    }

    fn rounds(&self) -> u64 {
        self.rounds
    }

    fn explain(&self, _: UserId, items: &ItemSet, scores: &mut Vec<Score>) -> Result<(), Error> {
        OFFERED.set(items.ids().to_vec());
        scores.clear();
        scores.extend(items.ids().iter().map(|&id| Score {
            score: id as f64,
            mean: id as f64,
            width: 0.0,
        }));
        Ok(())
    }

    fn learn_round(&mut self, round: &[Observation<'_>], _: &mut Vec<Change>) -> Result<(), Error> {
        self.rounds += 1;
        for observation in round {
            LEARNED.with_borrow_mut(|ids| ids.push(observation.id));
            if !self.users.contains(&observation.user) {
                self.users.push(observation.user);
            }
        }
        Ok(())
    }

    fn learn_lists(&mut self, round: &[List<'_>], changes: &mut Vec<Change>) -> Result<(), Error> {
        let lists = round.iter().map(|list| (list.user, list.items.len()));
        LISTS.with_borrow_mut(|all| all.extend(lists));
        let observations: Vec<_> = round.iter().flat_map(List::observations).collect();
        self.learn_round(&observations, changes)
    }

    fn digest(&self) -> u64 {
        bytes::digest(self)
    }

    fn as_inspect(&self) -> Option<&dyn Inspect> {
        Some(self)
    }

    fn as_persist(&self) -> Option<&dyn Persist> {
        Some(self)
    }

    fn as_forget(&mut self) -> Option<&mut dyn Forget> {
        Some(self)
    }
}

impl Inspect for ById {
    fn users(&self) -> u64 {
        self.users.len() as u64
    }

    fn singletons(&self) -> u64 {
        0
    }

    fn count(&self, _: UserId) -> Option<u64> {
        None
    }

    fn own_estimate(&self, _: UserId) -> Option<Vec<f64>> {
        None
    }

    fn cluster_users(&self, _: UserId) -> u64 {
        0
    }

    fn each_cluster(&self, _: &mut dyn FnMut(ClusterView<'_>)) {}

    fn cluster(&self, _: ClusterId) -> Option<ClusterView<'_>> {
        None
    }

    fn members(&self, _: ClusterId, _: usize) -> Option<Vec<UserId>> {
        None
    }
}

impl Forget for ById {
    fn forget(&mut self, user: UserId) -> bool {
        let before = self.users.len();
        self.users.retain(|&other| other != user);
        self.users.len() < before
    }
}

impl Save for ById {
    const MAGIC: u64 = u64::from_le_bytes(*b"by id   ");

    fn save_words(&self, writer: &mut Writer<'_>) -> io::Result<()> {
        writer.word(self.dim as u64)?;
        writer.word(self.rounds)?;
        writer.words(self.users.iter().copied())
    }
}

impl Persist for ById {
    fn save_to(&self, out: &mut dyn Write) -> io::Result<()> {
        bytes::save(self, out)
    }
}

static SPEC: Spec = Spec {
    name: "test-by-id",
    title: "By id",
    summary: "For tests",
    citation: "none",
    colors: ["#000000", "#FFFFFF"],
    revision: 1,
    presets: &[Preset::Default],
    constants: &[],
    can: Abilities {
        item_ids: true,
        lists: true,
        ..Abilities::SERVED
    },
    new: |setup, _| {
        Ok(Box::new(ById {
            dim: setup.dim,
            rounds: 0,
            users: Vec::new(),
        }))
    },
    load: Some(Load {
        magic: ById::MAGIC,
        load: |mut reader: Reader<'_>| {
            let policy = ById {
                dim: reader.u32()? as usize,
                rounds: reader.word()?,
                users: reader.words()?,
            };
            reader.end()?;
            Ok(Box::new(policy))
        },
    }),
};

#[test]
fn a_policy_from_outside_is_served_and_sees_the_ids_of_items() {
    sclub::register(&SPEC).unwrap();
    let mut state = state("test-by-id");
    for id in ["a", "b", "c", "d"] {
        follow(&mut state, 0, vec![upsert(id, vec![1.0, 0.0])]).unwrap();
    }
    let remove = Event::Remove {
        item: "a".to_owned(),
    };
    follow(&mut state, 0, vec![remove]).unwrap();
    let all = Choice::All { exclude: &[] };
    for state in [&state, &reloaded(&state)] {
        let chosen = state.choose(0, "u", &all, &[], 3, &mut Scratch::default());
        // The last item took the place of the first.
        let ids = ["d", "b", "c"].map(item_id);
        assert_eq!(OFFERED.take(), ids);
        let best = chosen.unwrap().decisions[0].index;
        assert_eq!(ids[best], *ids.iter().max().unwrap());
        let some = Choice::Slots(&[2, 0]);
        let chosen = state.choose(0, "u", &some, &[], 1, &mut Scratch::default());
        assert_eq!(chosen.unwrap().cluster, 0);
        assert_eq!(OFFERED.take(), [ids[2], ids[0]]);
    }
    follow(&mut state, 0, vec![learn(vec![reward(1, "u")])]).unwrap();
    assert_eq!(LEARNED.take(), [Some(item_id("i"))]);
    assert_eq!(LISTS.take(), [(0, 1)]);
    // Two items of one list, one of another, and one further down in it.
    let round = [(4, "u"), (5, "u"), (6, "v"), (8, "v")].map(|(number, user)| reward(number, user));
    follow(&mut state, 0, vec![learn(round.to_vec())]).unwrap();
    assert_eq!(LISTS.take(), [(0, 2), (1, 1), (1, 1)]);
    follow(&mut state, 0, vec![forget("u")]).unwrap();
    assert_eq!(reloaded(&state).hash(), state.hash());
}

#[test]
fn the_id_of_an_item_stays() {
    let hash = blake3::hash(b"i1");
    let first = hash.as_bytes()[..8].try_into().unwrap();
    assert_eq!(item_id("i1"), u64::from_le_bytes(first));
}

#[test]
fn policies_that_do_not_want_ids_get_none() {
    let mut state = state("sclub");
    follow(&mut state, 0, vec![upsert("a", vec![1.0, 0.0])]).unwrap();
    assert!(state.catalogue().unwrap().items().ids().is_empty());
}

#[test]
fn a_snapshot_of_a_policy_that_cannot_be_served_is_refused() {
    // The same policy without the users: it cannot forget any.
    let mut state = state("linucb-one");
    follow(&mut state, 0, vec![upsert("a", vec![1.0, 0.0])]).unwrap();
    let (mut whole, mut own, mut other) = (Vec::new(), Vec::new(), Vec::new());
    state.save(&mut whole).unwrap();
    state.policy().unwrap().save_to(&mut own).unwrap();
    let params = sclub::Params::tuned();
    let bare = sclub::LinUcbShared::new(2, sclub::Groups::One, &params).unwrap();
    bare.save_to(&mut other).unwrap();
    whole.truncate(whole.len() - own.len());
    whole.extend_from_slice(&other);
    let loaded = State::load(state.identity().clone(), &mut whole.as_slice());
    let error = loaded.unwrap_err().to_string();
    assert!(error.contains("cannot be inspected"), "{error}");
}
