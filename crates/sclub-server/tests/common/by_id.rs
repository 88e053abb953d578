//! A policy from outside the library that learns from lists and sees the ids of items. Its state has
//! everything that it was taught, so that its digest can be compared with that of one taught by hand.

use std::cell::RefCell;
use std::io::{self, Write};

use sclub::bytes::{self, Reader, Save, Writer};
use sclub::{
    Abilities, Change, ClusterId, ClusterView, Error, Forget, Inspect, ItemId, ItemSet, List, Load,
    Observation, Persist, Policy, Preset, Score, Spec, UserId,
};

/// The name of the policy.
pub const NAME: &str = "test-by-id";

thread_local! {
    /// The ids of the candidates of the last recommendation on this thread.
    pub static OFFERED: RefCell<Vec<ItemId>> = RefCell::default();
}

/// Prefers the item with the largest id.
pub struct ById {
    dim: usize,
    rounds: u64,
    users: Vec<UserId>,
    /// Everything it was taught, as words.
    taught: Vec<u64>,
}

impl ById {
    pub fn new(dim: usize) -> Self {
        Self {
            dim,
            rounds: 0,
            users: Vec::new(),
            taught: Vec::new(),
        }
    }

    fn add(&mut self, user: UserId, item: &[f64], id: Option<ItemId>, reward: Option<f64>) {
        let reward = reward.map_or([0, 0], |reward| [1, reward.to_bits()]);
        let id = id.map_or([0, 0], |id| [1, id]);
        self.taught.extend(reward.into_iter().chain(id));
        self.taught.extend(item.iter().map(|value| value.to_bits()));
        if reward[0] == 1 && !self.users.contains(&user) {
            self.users.push(user);
        }
    }
}

/// Registers the policy, unless another test has done so.
pub fn register() {
    if let Err(error) = sclub::register(&SPEC) {
        assert!(error.contains("is taken"), "{error}");
    }
}

static SPEC: Spec = Spec {
    name: NAME,
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
    new: |setup, _| Ok(Box::new(ById::new(setup.dim))),
    load: Some(Load {
        magic: ById::MAGIC,
        load: |mut reader: Reader<'_>| {
            let policy = ById {
                dim: reader.u32()? as usize,
                rounds: reader.word()?,
                users: reader.words()?,
                taught: reader.words()?,
            };
            reader.end()?;
            Ok(Box::new(policy))
        },
    }),
    gather: None,
};

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
        scores.extend(items.ids().iter().map(|&id| Score::certain(id as f64)));
        Ok(())
    }

    fn learn_round(&mut self, round: &[Observation<'_>], _: &mut Vec<Change>) -> Result<(), Error> {
        self.rounds += 1;
        self.taught.push(round.len() as u64);
        for given in round {
            self.taught.push(given.user);
            self.add(given.user, given.item, given.id, Some(given.reward));
        }
        Ok(())
    }

    fn learn_lists(&mut self, round: &[List<'_>], _: &mut Vec<Change>) -> Result<(), Error> {
        self.rounds += 1;
        self.taught.extend([u64::MAX, round.len() as u64]);
        for list in round {
            let looked_at = list
                .looked_at
                .map_or(u64::MAX, |looked_at| looked_at as u64);
            let shown = list.items.len() as u64;
            self.taught.extend([list.user, looked_at, shown]);
            for shown in list.items {
                self.add(list.user, shown.item, shown.id, shown.reward);
            }
        }
        Ok(())
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
        writer.words(self.users.iter().copied())?;
        writer.words(self.taught.iter().copied())
    }
}

impl Persist for ById {
    fn save_to(&self, out: &mut dyn Write) -> io::Result<()> {
        bytes::save(self, out)
    }
}
