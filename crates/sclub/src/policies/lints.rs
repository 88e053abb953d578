//! LinTS: Thompson sampling on a linear model.
//!
//! The posterior of a weight vector is N(θ̂, v² S⁻¹) with S = I + Σ x xᵀ. Each round draws one weight
//! vector for the user from it and ranks all items by it:
//!
//! θ̃ = θ̂ + v Mᵀ diag(√g) z, where S⁻¹ = Mᵀ diag(g) M and z is standard normal.
//!
//! The draw is a function of the seed, the number of rounds and the user's slot. Asking twice within a
//! round gives the same answer, and replaying a history gives the same decisions.
//!
//! A recommendation costs O(d²) for the draw and O(d) for each item; a reward costs O(d²).

use std::io::{self, Write};

use crate::abilities::{ClusterView, Correct, Forget, Inspect, Persist};
use crate::bytes::{self, Reader, Save, Writer};
use crate::digest::mix;
use crate::draws::{self, rank_by_draw};
use crate::error::{Error, LoadError, check_dim};
use crate::items::ItemSet;
use crate::ledger::Ledger;
use crate::policy::{
    Change, ClusterId, Decision, MAX_ROUNDS, Observation, Policy, Score, UserId, check_correction,
    check_round, offers,
};
use crate::spec::{
    Abilities, Constant, Load, Partitions, Preset, Range, Setup, Spec, Value, Values,
};
use crate::statistics::{Aggregate, Scratch, Shape, View};

/// The slot of a user who has not appeared.
const NEWCOMER: u64 = u64::MAX;

/// Thompson sampling with one posterior for each user, or one for all.
#[derive(Debug, Clone)]
pub struct LinTs {
    shape: Shape,
    /// v, the scale of the draws.
    draw_scale: f64,
    seed: u64,
    rounds: u64,
    ledger: Ledger,
    /// The sums over all users, if they share one posterior.
    shared: Option<Aggregate>,
    scratch: Scratch,
}

impl LinTs {
    /// Thompson sampling that has learned nothing.
    ///
    /// # Errors
    /// [`Error::Dimension`], [`Error::BadParameter`].
    pub fn new(dim: usize, draw_scale: f64, is_shared: bool, seed: u64) -> Result<Self, Error> {
        DRAW_SCALE.check(draw_scale)?;
        let shape = Shape {
            dim: check_dim(dim)?,
        };
        Ok(Self {
            shape,
            draw_scale,
            seed,
            rounds: 0,
            ledger: Ledger::new(shape),
            shared: is_shared.then(|| Aggregate::new(shape)),
            scratch: Scratch::new(shape),
        })
    }

    fn view(&self, user: UserId) -> View<'_> {
        match &self.shared {
            Some(sums) => sums.view(),
            None => self.ledger.basis(user).0,
        }
    }

    /// The random number of a decision that has none of its own.
    fn default_draw(&self, user: UserId) -> u64 {
        let slot = self.ledger.slot(user).map_or(NEWCOMER, |slot| slot as u64);
        mix(self.rounds) ^ slot
    }

    /// The estimate of a user's weight vector, and a draw from its posterior.
    fn draw(&self, draw: u64, user: UserId) -> (&[f64], Vec<f64>) {
        let view = self.view(user);
        let key = mix(self.seed) ^ draw;
        (
            view.estimate,
            draws::from_posterior(key, view, self.draw_scale),
        )
    }

    fn load_words(mut reader: Reader<'_>) -> Result<Self, LoadError> {
        let dim = reader.u32()? as usize;
        let draw_scale = reader.number()?;
        let is_shared = reader.at_most(1)? == 1;
        let mut state = Self::new(dim, draw_scale, is_shared, reader.word()?)?;
        state.rounds = reader.at_most(MAX_ROUNDS)?;
        state.ledger = Ledger::load(state.shape, &mut reader)?;
        if is_shared {
            state.shared = Some(Aggregate::load(state.shape, &mut reader)?);
        }
        reader.end()?;
        Ok(state)
    }

    fn cluster_view(&self, slot: usize) -> ClusterView<'_> {
        let (users, count, view) = match &self.shared {
            Some(sums) => (self.ledger.len() as u64, sums.count(), sums.view()),
            None => (1, self.ledger.count(slot), self.ledger.view(slot)),
        };
        ClusterView {
            label: slot as ClusterId + 1,
            users,
            count,
            estimate: view.estimate,
        }
    }
}

impl Policy for LinTs {
    fn dim(&self) -> usize {
        self.shape.dim
    }

    fn rounds(&self) -> u64 {
        self.rounds
    }

    rank_by_draw!();

    fn learn_round(
        &mut self,
        round: &[Observation<'_>],
        _changes: &mut Vec<Change>,
    ) -> Result<(), Error> {
        check_round(round, self.shape.dim)?;
        self.ledger.check_room(round)?;
        self.rounds += 1;
        for observation in round {
            self.ledger.observe(observation);
            if let Some(sums) = &mut self.shared {
                sums.observe(&mut self.scratch, observation.item, observation.reward);
            }
        }
        Ok(())
    }

    /// As for LinUCB: each user is a cluster of their own, or all users are one cluster.
    fn cluster_of(&self, user: UserId) -> Option<ClusterId> {
        match &self.shared {
            Some(_) => Some(1),
            None => Some(self.ledger.slot(user)? as ClusterId + 1),
        }
    }

    fn clusters(&self) -> usize {
        match &self.shared {
            Some(_) => 1,
            None => self.ledger.len(),
        }
    }

    fn estimate(&self, user: UserId) -> Option<Vec<f64>> {
        Some(self.view(user).estimate.to_vec())
    }

    fn digest(&self) -> u64 {
        bytes::digest(self)
    }

    fn state_bytes(&self) -> Option<u64> {
        Some(bytes::length(self))
    }

    offers!(inspect, persist, forget, correct);
}

impl Inspect for LinTs {
    fn users(&self) -> u64 {
        self.ledger.len() as u64
    }

    fn singletons(&self) -> u64 {
        let mut singletons = 0;
        self.each_cluster(&mut |view| singletons += u64::from(view.users == 1));
        singletons
    }

    fn count(&self, user: UserId) -> Option<u64> {
        Some(self.ledger.count(self.ledger.slot(user)?))
    }

    fn own_estimate(&self, user: UserId) -> Option<Vec<f64>> {
        let slot = self.ledger.slot(user)?;
        Some(self.ledger.view(slot).estimate.to_vec())
    }

    fn cluster_users(&self, user: UserId) -> u64 {
        match &self.shared {
            Some(_) => self.users(),
            None => u64::from(self.ledger.slot(user).is_some()),
        }
    }

    fn each_cluster(&self, visit: &mut dyn FnMut(ClusterView<'_>)) {
        (0..self.clusters()).for_each(|slot| visit(self.cluster_view(slot)));
    }

    fn cluster(&self, id: ClusterId) -> Option<ClusterView<'_>> {
        let slot = usize::try_from(id.checked_sub(1)?).ok()?;
        (slot < self.clusters()).then(|| self.cluster_view(slot))
    }

    fn members(&self, id: ClusterId, limit: usize) -> Option<Vec<UserId>> {
        self.cluster(id)?;
        let users = self.ledger.users();
        let users = match &self.shared {
            Some(_) => users,
            None => std::slice::from_ref(&users[id as usize - 1]),
        };
        Some(users.iter().take(limit).copied().collect())
    }
}

impl Forget for LinTs {
    /// With one posterior for all users, the time grows with the number of users.
    fn forget(&mut self, user: UserId) -> bool {
        let is_known = self.ledger.forget(user);
        if is_known && self.shared.is_some() {
            let mut sums = Aggregate::new(self.shape);
            for slot in 0..self.ledger.len() {
                let (block, count) = (self.ledger.block(slot), self.ledger.count(slot));
                sums.add_block(&mut self.scratch, block, count);
            }
            sums.factorise(&mut self.scratch);
            self.shared = Some(sums);
        }
        is_known
    }
}

impl Correct for LinTs {
    fn correct(&mut self, user: UserId, item: &[f64], from: f64, to: f64) -> Result<bool, Error> {
        check_correction(item, from, to, self.shape.dim)?;
        let is_known = self.ledger.correct(user, item, to - from);
        if let Some(sums) = &mut self.shared
            && is_known
        {
            sums.correct(item, to - from);
        }
        Ok(is_known)
    }
}

impl Save for LinTs {
    const MAGIC: u64 = u64::from_le_bytes(*b"sclub ts");

    fn save_words(&self, writer: &mut Writer<'_>) -> io::Result<()> {
        writer.word(self.shape.dim as u64)?;
        writer.number(self.draw_scale)?;
        writer.word(u64::from(self.shared.is_some()))?;
        writer.word(self.seed)?;
        writer.word(self.rounds)?;
        self.ledger.save(writer)?;
        match &self.shared {
            Some(sums) => sums.save(writer),
            None => Ok(()),
        }
    }
}

impl Persist for LinTs {
    fn save_to(&self, out: &mut dyn Write) -> io::Result<()> {
        bytes::save(self, out)
    }
}

pub(crate) const DRAW_SCALE: Constant = Constant {
    name: "draw_scale",
    meaning: "Scale v of the draws from the posterior N(theta, v^2 S^-1)",
    range: Range::NOT_NEGATIVE,
    // Chosen from 0.05 to 0.5 on seeds 1 to 3 of setting (1a), 2^16 rounds.
    default: |_, _| Ok(Value::Number(0.1)),
    instead_of: None,
    advanced: false,
};

/// `lints`, also `ts:linucb-ind`
pub static SPEC: Spec = Spec {
    name: "lints",
    title: "LinTS",
    summary: "Linear Thompson sampling with a posterior for each user",
    colors: ["#8C564B", "#C99A8F"],
    can: Abilities {
        correct: true,
        draws: true,
        partitions: Partitions::Any,
        ..Abilities::SERVED
    },
    new: |setup, values| new(setup, values, false),
    ..COMMON
};

/// `ts:linucb-one`
pub static ONE: Spec = Spec {
    name: "ts:linucb-one",
    title: "TS of LinUCB-One",
    summary: "Linear Thompson sampling with one posterior for all users",
    colors: ["#5E3A32", "#B08A80"],
    can: Abilities {
        correct: true,
        draws: true,
        ..Abilities::SERVED
    },
    new: |setup, values| new(setup, values, true),
    ..COMMON
};

/// The parts that both have in common.
const COMMON: Spec = Spec {
    name: "",
    title: "",
    summary: "",
    citation: "Agrawal and Goyal, ICML 2013",
    colors: ["", ""],
    revision: 2,
    presets: &[Preset::Default],
    constants: &[DRAW_SCALE],
    can: Abilities::SERVED,
    new: |setup, values| new(setup, values, false),
    load: Some(Load {
        magic: LinTs::MAGIC,
        load: |reader| Ok(Box::new(LinTs::load_words(reader)?)),
    }),
    gather: None,
};

fn new(setup: &Setup<'_>, values: &Values, is_shared: bool) -> Result<Box<dyn Policy>, Error> {
    let draw_scale = values.number("draw_scale").unwrap_or(0.0);
    let policy = LinTs::new(setup.dim, draw_scale, is_shared, setup.seed)?;
    Ok(Box::new(policy))
}
