//! LinUCB for each user alone.

use std::io::{self, Read, Write};

use super::index_of;
use crate::abilities::{ClusterView, Correct, Forget, Inspect, Persist};
use crate::bytes::{self, Reader, Save, Writer};
use crate::error::{Error, LoadError, check_dim};
use crate::items::ItemSet;
use crate::ledger::Ledger;
use crate::params::{self, Params};
use crate::policy::{
    Change, Clock, ClusterId, Decision, Observation, Policy, Score, UserId, check_correction,
    check_items, check_round, offers, rank_by_basis,
};
use crate::spec::{Abilities, Load, Partitions, Spec};
use crate::statistics::{Shape, View};
use crate::ucb::Ranking;

/// LinUCB with an estimate for each user alone (the paper's LinUCB-Ind).
#[derive(Debug, Clone)]
pub struct LinUcbInd {
    params: Params,
    shape: Shape,
    ranking: Ranking,
    clock: Clock,
    ledger: Ledger,
}

impl LinUcbInd {
    /// An estimate for each user who appears.
    ///
    /// # Errors
    /// [`Error::Dimension`], [`Error::BadParameter`].
    pub fn new(dim: usize, params: &Params) -> Result<Self, Error> {
        params.check()?;
        let shape = Shape {
            dim: check_dim(dim)?,
        };
        Ok(Self {
            params: *params,
            shape,
            ranking: Ranking::new(dim, params),
            clock: Clock::new(),
            ledger: Ledger::new(shape),
        })
    }

    #[inline]
    fn basis(&self, user: UserId) -> (View<'_>, f64) {
        let (view, count) = self.ledger.basis(user);
        (view, self.ranking.beta(count, self.clock.log_rounds()))
    }

    fn slot_view(&self, slot: usize) -> ClusterView<'_> {
        ClusterView {
            label: slot as ClusterId + 1,
            users: 1,
            count: self.ledger.count(slot),
            estimate: self.ledger.view(slot).estimate,
        }
    }

    /// Loads the state that [`Persist::save_to`] wrote, in small pieces, and reads not a byte more.
    ///
    /// # Errors
    /// [`LoadError::Io`] if the input fails; [`LoadError::State`] if it is not such a state.
    pub fn load_from(input: &mut dyn Read) -> Result<Self, LoadError> {
        let reader = Reader::new(input)?;
        reader.expect(Self::MAGIC)?;
        Self::load_words(reader)
    }

    /// Loads the words after the header.
    fn load_words(mut reader: Reader<'_>) -> Result<Self, LoadError> {
        let dim = reader.u32()? as usize;
        let params = Params::load(&mut reader)?;
        let mut state = Self::new(dim, &params)?;
        state.clock = Clock::at(reader.word()?)?;
        state.ledger = Ledger::load(state.shape, &mut reader)?;
        reader.end()?;
        Ok(state)
    }
}

impl Policy for LinUcbInd {
    fn dim(&self) -> usize {
        self.shape.dim
    }

    fn rounds(&self) -> u64 {
        self.clock.rounds()
    }

    rank_by_basis!();

    fn learn_round(
        &mut self,
        round: &[Observation<'_>],
        _changes: &mut Vec<Change>,
    ) -> Result<(), Error> {
        check_round(round, self.shape.dim)?;
        self.ledger.check_room(round)?;
        self.clock.tick();
        for observation in round {
            self.ledger.observe(observation);
        }
        Ok(())
    }

    /// Each user is a cluster, numbered by appearance. Where a user is forgotten, the user with the
    /// last number takes that number.
    fn cluster_of(&self, user: UserId) -> Option<ClusterId> {
        let slot = self.ledger.slot(user)?;
        Some(slot as ClusterId + 1)
    }

    fn clusters(&self) -> usize {
        self.ledger.len()
    }

    fn digest(&self) -> u64 {
        bytes::digest(self)
    }

    fn state_bytes(&self) -> Option<u64> {
        Some(bytes::length(self))
    }

    offers!(inspect, persist, forget, correct);
}

impl Save for LinUcbInd {
    const MAGIC: u64 = u64::from_le_bytes(*b"sclub in");

    fn save_words(&self, writer: &mut Writer<'_>) -> io::Result<()> {
        writer.word(self.shape.dim as u64)?;
        self.params.save(writer)?;
        writer.word(self.clock.rounds())?;
        self.ledger.save(writer)
    }
}

impl Persist for LinUcbInd {
    fn save_to(&self, out: &mut dyn Write) -> io::Result<()> {
        bytes::save(self, out)
    }
}

impl Forget for LinUcbInd {
    fn forget(&mut self, user: UserId) -> bool {
        self.ledger.forget(user)
    }
}

impl Correct for LinUcbInd {
    fn correct(&mut self, user: UserId, item: &[f64], from: f64, to: f64) -> Result<bool, Error> {
        check_correction(item, from, to, self.shape.dim)?;
        Ok(self.ledger.correct(user, item, to - from))
    }
}

impl Inspect for LinUcbInd {
    fn users(&self) -> u64 {
        self.ledger.len() as u64
    }

    fn singletons(&self) -> u64 {
        self.users()
    }

    fn count(&self, user: UserId) -> Option<u64> {
        Some(self.ledger.count(self.ledger.slot(user)?))
    }

    fn own_estimate(&self, user: UserId) -> Option<Vec<f64>> {
        let slot = self.ledger.slot(user)?;
        Some(self.ledger.view(slot).estimate.to_vec())
    }

    /// 0 if the user has not appeared.
    fn cluster_users(&self, user: UserId) -> u64 {
        u64::from(self.ledger.slot(user).is_some())
    }

    fn each_cluster(&self, visit: &mut dyn FnMut(ClusterView<'_>)) {
        (0..self.ledger.len()).for_each(|slot| visit(self.slot_view(slot)));
    }

    fn cluster(&self, id: ClusterId) -> Option<ClusterView<'_>> {
        let slot = index_of(id).filter(|&slot| slot < self.ledger.len())?;
        Some(self.slot_view(slot))
    }

    fn members(&self, id: ClusterId, limit: usize) -> Option<Vec<UserId>> {
        let user = *self.ledger.users().get(index_of(id)?)?;
        Some([user].into_iter().take(limit).collect())
    }
}

/// `linucb-ind`
pub static SPEC: Spec = Spec {
    name: "linucb-ind",
    title: "LinUCB-Ind",
    summary: "LinUCB with an estimate for each user alone",
    citation: "Li, Chu, Langford and Schapire, WWW 2010",
    colors: ["#0072B2", "#5BB4F0"],
    revision: 1,
    presets: params::PRESETS,
    constants: params::INDEX_CONSTANTS,
    can: Abilities {
        correct: true,
        partitions: Partitions::Any,
        ..Abilities::SERVED
    },
    new: |setup, values| {
        let policy = LinUcbInd::new(setup.dim, &Params::from_values(values))?;
        Ok(Box::new(policy))
    },
    load: Some(Load {
        magic: LinUcbInd::MAGIC,
        load: |reader| Ok(Box::new(LinUcbInd::load_words(reader)?)),
    }),
    gather: None,
};
