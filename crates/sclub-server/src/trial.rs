//! A policy for tests: LinUCB for each user, with a fit every ten rounds that nothing comes of but the
//! label of everybody's cluster.

use std::io::{Read, Write};

use sclub::{
    Change, ClusterId, ClusterView, Decision, Error, ItemSet, Keep, LinUcbInd, LoadError,
    Observation, Params, Policy, Refit, Score, UserId, Workers,
};

/// Rounds between two fits.
pub const EVERY: u64 = 10;

pub struct Trial {
    inner: Box<dyn Keep>,
    /// Fits taken, rounds when the last was made, what it found, and whether somebody was forgotten
    /// since.
    words: [u64; 4],
}

struct TrialRefit {
    rounds: u64,
    digest: u64,
}

impl Refit for TrialRefit {
    fn rounds(&self) -> u64 {
        self.rounds
    }

    fn compute(self: Box<Self>, workers: &dyn Workers) -> Vec<u8> {
        workers.each(4, &|_| {});
        [self.rounds.to_le_bytes(), self.digest.to_le_bytes()].concat()
    }
}

impl Trial {
    pub fn new(dim: usize, params: &Params) -> Result<Self, Error> {
        let inner = Box::new(LinUcbInd::new(dim, params)?);
        let words = [0; 4];
        Ok(Self { inner, words })
    }

    pub fn load(from: &mut dyn Read) -> Result<Box<dyn Keep>, LoadError> {
        let inner = sclub::load_policy(from)?;
        let mut words = [0; 4];
        for word in &mut words {
            let mut bytes = [0; 8];
            from.read_exact(&mut bytes)?;
            *word = u64::from_le_bytes(bytes);
        }
        Ok(Box::new(Self { inner, words }))
    }
}

impl Policy for Trial {
    fn dim(&self) -> usize {
        self.inner.dim()
    }

    fn rounds(&self) -> u64 {
        self.inner.rounds()
    }

    fn recommend(&self, user: UserId, items: &ItemSet) -> Result<Decision, Error> {
        self.inner.recommend(user, items)
    }

    fn explain(&self, user: UserId, items: &ItemSet, scores: &mut Vec<Score>) -> Result<(), Error> {
        self.inner.explain(user, items, scores)
    }

    fn learn_round(
        &mut self,
        round: &[Observation<'_>],
        changes: &mut Vec<Change>,
    ) -> Result<(), Error> {
        self.inner.learn_round(round, changes)
    }

    fn cluster_of(&self, _: UserId) -> ClusterId {
        self.words[0]
    }

    fn clusters(&self) -> usize {
        self.inner.clusters()
    }

    fn estimate(&self, user: UserId) -> Vec<f64> {
        self.inner.estimate(user)
    }

    fn digest(&self) -> u64 {
        self.words
            .iter()
            .fold(self.inner.digest(), |digest, &word| {
                (digest ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            })
    }
}

impl Keep for Trial {
    fn forget(&mut self, user: UserId) -> bool {
        self.words[3] = 1;
        self.inner.forget(user)
    }

    fn users(&self) -> u64 {
        self.inner.users()
    }

    fn singletons(&self) -> u64 {
        self.inner.singletons()
    }

    fn count(&self, user: UserId) -> Option<u64> {
        self.inner.count(user)
    }

    fn own_estimate(&self, user: UserId) -> Option<Vec<f64>> {
        self.inner.own_estimate(user)
    }

    fn cluster_users(&self, user: UserId) -> u64 {
        self.inner.cluster_users(user)
    }

    fn each_cluster(&self, visit: &mut dyn FnMut(ClusterView<'_>)) {
        self.inner.each_cluster(visit);
    }

    fn cluster(&self, id: ClusterId) -> Option<ClusterView<'_>> {
        self.inner.cluster(id)
    }

    fn members(&self, id: ClusterId, limit: usize) -> Option<Vec<UserId>> {
        self.inner.members(id, limit)
    }

    fn refit(&self) -> Option<Box<dyn Refit>> {
        let [_, fitted_at, _, forgot] = self.words;
        let rounds = self.rounds();
        let is_due = rounds >= fitted_at + EVERY || forgot == 1;
        is_due.then(|| {
            let digest = self.digest();
            Box::new(TrialRefit { rounds, digest }) as Box<dyn Refit>
        })
    }

    fn take_fit(&mut self, fit: &[u8]) -> Result<(), Error> {
        let Ok(fit) = <[u8; 16]>::try_from(fit) else {
            return self.inner.take_fit(fit);
        };
        let word = |at: usize| {
            fit[at..at + 8]
                .iter()
                .rev()
                .fold(0, |w, &b| w << 8 | u64::from(b))
        };
        self.words = [self.words[0] + 1, word(0), word(8), 0];
        Ok(())
    }

    fn save_to(&self, out: &mut dyn Write) -> std::io::Result<()> {
        self.inner.save_to(out)?;
        self.words
            .iter()
            .try_for_each(|word| out.write_all(&word.to_le_bytes()))
    }
}
