//! DCCB: peers that gossip about their rewards and find out who is like them.
//!
//! Every user is an agent. An agent keeps its own statistics, a set V of agents that it takes to be like itself (all, at
//! first), and sums that it shares with them. When user i acts:
//!
//! 1. agent i contacts a random peer p of V_i. If ‖θ̂_i − θ̂_p‖ > α c(T), T the smaller of T_i and T_p, the two leave each other's
//!    sets, and both begin their shared sums anew from their own observations;
//! 2. else, if V_i = V_p, both replace their buffers by the average of the two;
//! 3. (x xᵀ, y x) of the reward enters the buffer of i. Entries leave a buffer of more than 4 log₂ T_i entries for the shared
//!    sums, the oldest first. The user is served from the shared sums.
//!
//! c(T) = (√(2d ln T + 2 ln(2/δ)) + 1)/√(1 + T/4), δ = 0.1.
//!
//! After Korda, Szörényi, Li: "Distributed Clustering of Linear Bandits in Peer to Peer Networks", ICML 2016. No public code was
//! found.
//!
//! # Decisions
//! * In the paper every agent acts in every round. Here one user acts a round: the agent of that user draws one peer, and
//!   the time of an agent is the number of its own observations T_i, not the round.
//! * Buffers of different length are averaged from the oldest entry on; a missing entry counts as 0. Averaging conserves mass:
//!   the weights of an observation over all agents add up to 1 as long as no two have parted.
//! * An average over m agents has 1/m of the sums. The shared sums are multiplied by min(|V_i|, 2^k), k the averages that
//!   the agent took part in since it began anew: an observation cannot have spread to more agents. Without averages an agent is LinUCB on
//!   its own observations.
//! * A new agent is in the sets of all others, and all are in its set.
//! * Messages: an agent and its peer send each other θ̂, T and a digest of V, d + 2 numbers; if they average, also their buffers, each entry
//!   d(d+3)/2 + 1 numbers.
//! * Clusters are agents with equal V.
//! * V_i = V_p is rare once agents have parted from many: each must have met the same ones. The rule is the paper's.
//!
//! # Cost
//! Memory: 4 log₂ T_i + 3 times d(d+3)/2 numbers for each user, and a bit for each pair. A round takes O(n + d² log T) and O(d³).

use std::collections::VecDeque;
use std::io;

use super::pairs::Pairs;
use super::row;
use crate::bytes::{self, Save, Writer};
use crate::digest::mix;
use crate::error::{Error, check_dim};
use crate::items::ItemSet;
use crate::ledger::Ledger;
use crate::params::{self, Params};
use crate::policy::{
    Change, Clock, ClusterId, Decision, Messages, Observation, Policy, Score, UserId, check_items,
    check_round, rank_by_basis,
};
use crate::radius::distance;
use crate::spec::{Abilities, Constant, Preset, Spec, Value};
use crate::statistics::{Aggregate, Scratch, Shape, View};
use crate::ucb::Ranking;

/// δ of c(T).
const DELTA: f64 = 0.1;

/// Gossip about rewards among users.
struct Dccb {
    shape: Shape,
    ranking: Ranking,
    alpha: f64,
    seed: u64,
    clock: Clock,
    ledger: Ledger,
    /// Agents that are not in each other's sets V.
    apart: Pairs,
    agents: Vec<Agent>,
    /// The sums of a user without observations.
    nothing: Aggregate,
    messages: Messages,
    scratch: Scratch,
}

/// The part of an agent that it shares. Entries are rows with the mass of their observations behind.
struct Agent {
    buffer: VecDeque<Box<[f64]>>,
    shared: Box<[f64]>,
    /// Averages since the agent began anew.
    averages: u32,
    /// Agents outside V.
    parted: usize,
    /// The multiple of `shared` that the user is served from.
    served: Aggregate,
}

impl Dccb {
    fn new(dim: usize, params: &Params, alpha: f64, seed: u64) -> Result<Self, Error> {
        params.check()?;
        let shape = Shape {
            dim: check_dim(dim)?,
        };
        Ok(Self {
            shape,
            ranking: Ranking::new(dim, params),
            alpha,
            seed,
            clock: Clock::new(),
            ledger: Ledger::new(shape),
            apart: Pairs::default(),
            agents: Vec::new(),
            nothing: Aggregate::new(shape),
            messages: Messages::default(),
            scratch: Scratch::new(shape),
        })
    }

    fn entry(&self) -> usize {
        row::len(self.shape) + 1
    }

    fn basis(&self, user: UserId) -> (View<'_>, f64) {
        let agent = self.ledger.slot(user).map(|slot| &self.agents[slot]);
        let sums = agent.map_or(&self.nothing, |agent| &agent.served);
        let beta = self.ranking.beta(sums.count(), self.clock.log_rounds());
        (sums.view(), beta)
    }

    fn observe(&mut self, observation: &Observation<'_>) {
        let slot = match self.ledger.slot(observation.user) {
            Some(slot) => slot,
            None => {
                self.agents.push(Agent {
                    buffer: VecDeque::new(),
                    shared: vec![0.0; self.entry()].into(),
                    averages: 0,
                    parted: 0,
                    served: Aggregate::new(self.shape),
                });
                self.agents.len() - 1
            }
        };
        let peer = self.peer(slot);
        if let Some(peer) = peer {
            self.meet(slot, peer);
        }
        self.ledger.observe(observation);
        let mut entry = vec![0.0; self.entry()].into_boxed_slice();
        let (sums, mass) = entry.split_at_mut(row::len(self.shape));
        row::observe(self.shape, sums, observation.item, observation.reward);
        mass[0] = 1.0;
        self.agents[slot].buffer.push_back(entry);
        for slot in [Some(slot), peer].into_iter().flatten() {
            self.agents[slot].release(limit(self.ledger.count(slot)));
            self.refresh(slot);
        }
    }

    /// A random other agent of V.
    fn peer(&self, slot: usize) -> Option<usize> {
        // A new agent has no slot in the ledger yet.
        let known = self.ledger.len();
        let own = usize::from(slot < known);
        let others = known - own - self.agents[slot].parted;
        let count = if own == 1 { self.ledger.count(slot) } else { 0 };
        let key = mix(mix(self.seed) ^ mix((slot as u64).rotate_right(24) ^ count));
        let chosen = ((u128::from(key) * others as u128) >> 64) as usize;
        let apart = self.apart.of(slot);
        let is_peer = |&other: &usize| {
            let is_apart = apart
                .get(other / 64)
                .is_some_and(|word| word >> (other % 64) & 1 == 1);
            other != slot && !is_apart
        };
        (0..known).filter(is_peer).nth(chosen)
    }

    /// Steps 1 and 2.
    fn meet(&mut self, slot: usize, peer: usize) {
        let zero = vec![0.0; self.shape.dim];
        let is_new = slot >= self.ledger.len();
        let (estimate, count) = match is_new {
            true => (zero.as_slice(), 0),
            false => (self.ledger.view(slot).estimate, self.ledger.count(slot)),
        };
        self.messages.count(2, self.shape.dim + 2);
        let smaller = count.min(self.ledger.count(peer));
        let gap = distance(estimate, self.ledger.view(peer).estimate);
        if gap > self.alpha * confidence(self.shape.dim, smaller) {
            self.apart.insert(slot, peer);
            self.restart(slot, is_new);
            self.restart(peer, false);
        } else if self.apart.of(slot) == self.apart.of(peer) {
            let entry = self.entry();
            let Ok([a, b]) = self.agents.get_disjoint_mut([slot, peer]) else {
                return;
            };
            self.messages.count(1, a.buffer.len() * entry);
            self.messages.count(1, b.buffer.len() * entry);
            average(&mut a.buffer, &mut b.buffer, entry);
            a.averages += 1;
            b.averages += 1;
        }
    }

    /// The shared sums become the agent's own; the buffer is emptied.
    fn restart(&mut self, slot: usize, is_new: bool) {
        let agent = &mut self.agents[slot];
        agent.parted += 1;
        agent.averages = 0;
        agent.buffer.clear();
        agent.shared.fill(0.0);
        if !is_new {
            let (gram, rest) = agent.shared.split_at_mut(self.shape.gram());
            let (moment, mass) = rest.split_at_mut(self.shape.dim);
            gram.copy_from_slice(self.scratch.gram_of(self.ledger.block(slot)));
            moment.copy_from_slice(self.ledger.view(slot).moment);
            mass[0] = self.ledger.count(slot) as f64;
        }
    }

    /// Remakes the sums that a user is served from.
    fn refresh(&mut self, slot: usize) {
        let alike = self.ledger.len() - self.agents[slot].parted;
        let agent = &mut self.agents[slot];
        let spread = 1u64.checked_shl(agent.averages).unwrap_or(u64::MAX);
        let factor = spread.min(alike as u64) as f64;
        let scaled: Vec<f64> = agent.shared.iter().map(|x| factor * x).collect();
        let (gram, rest) = scaled.split_at(self.shape.gram());
        let (moment, mass) = rest.split_at(self.shape.dim);
        agent.served = Aggregate::new(self.shape);
        agent.served.add_sums(gram, moment, mass[0].ceil() as u64);
        agent.served.factorise(&mut self.scratch);
    }

    /// The first agent with the same V.
    fn first_alike(&self, slot: usize) -> usize {
        let own = self.apart.of(slot);
        let mut before = 0..slot;
        before
            .find(|&other| self.apart.of(other) == own)
            .unwrap_or(slot)
    }
}

impl Agent {
    /// Moves the oldest entries of a buffer that is too long to the shared sums.
    fn release(&mut self, limit: usize) {
        while self.buffer.len() > limit {
            let oldest = self.buffer.pop_front().unwrap_or_default();
            for (sum, x) in self.shared.iter_mut().zip(&oldest) {
                *sum += x;
            }
        }
    }
}

/// Both buffers become the average of the two.
fn average(a: &mut VecDeque<Box<[f64]>>, b: &mut VecDeque<Box<[f64]>>, entry: usize) {
    let longer = a.len().max(b.len());
    for buffer in [&mut *a, &mut *b] {
        buffer.resize_with(longer, || vec![0.0; entry].into());
    }
    for (a, b) in a.iter_mut().zip(b) {
        for (x, y) in a.iter_mut().zip(b) {
            *x = 0.5 * (*x + *y);
            *y = *x;
        }
    }
}

/// ⌈4 log₂ T⌉, the bits of T⁴ − 1.
fn limit(count: u64) -> usize {
    let power = u128::from(count).saturating_pow(4);
    (u128::BITS - power.saturating_sub(1).leading_zeros()) as usize
}

/// c(T)
fn confidence(dim: usize, count: u64) -> f64 {
    let growth = 2.0 * dim as f64 * libm::log(count.max(1) as f64) + 2.0 * libm::log(2.0 / DELTA);
    (growth.sqrt() + 1.0) / (1.0 + count as f64 / 4.0).sqrt()
}

impl Policy for Dccb {
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
        round
            .iter()
            .for_each(|observation| self.observe(observation));
        Ok(())
    }

    fn cluster_of(&self, user: UserId) -> Option<ClusterId> {
        Some(self.first_alike(self.ledger.slot(user)?) as ClusterId + 1)
    }

    fn clusters(&self) -> usize {
        (0..self.ledger.len())
            .filter(|&slot| self.first_alike(slot) == slot)
            .count()
    }

    fn messages(&self) -> Option<Messages> {
        Some(self.messages)
    }

    fn digest(&self) -> u64 {
        bytes::digest(self)
    }

    fn state_bytes(&self) -> Option<u64> {
        Some(bytes::length(self))
    }
}

impl Save for Dccb {
    const MAGIC: u64 = u64::from_le_bytes(*b"sclub dc");

    fn save_words(&self, writer: &mut Writer<'_>) -> io::Result<()> {
        writer.word(self.seed)?;
        writer.number(self.alpha)?;
        writer.word(self.clock.rounds())?;
        self.ledger.save(writer)?;
        self.apart.save(writer)?;
        for agent in &self.agents {
            writer.word(agent.buffer.len() as u64)?;
            agent
                .buffer
                .iter()
                .try_for_each(|entry| writer.numbers(entry))?;
            writer.numbers(&agent.shared)?;
            writer.word(agent.averages.into())?;
            agent.served.save(writer)?;
        }
        writer.word(self.messages.sent)?;
        writer.word(self.messages.numbers)
    }
}

const ALPHA: Constant = Constant {
    default: |preset, _| {
        let is_released = preset == Preset::Released;
        Ok(Value::Number(if is_released { 1.0 } else { 0.4 }))
    },
    ..params::ALPHA_THETA
};

/// `dccb`
pub static SPEC: Spec = Spec {
    name: "dccb",
    title: "DCCB",
    summary: "Peers that share rewards by gossip with those who seem alike",
    citation: "after Korda, Szorenyi and Li, ICML 2016",
    colors: ["#2F7F7F", "#74C7C2"],
    revision: 1,
    presets: &[Preset::Tuned, Preset::Released],
    constants: &[ALPHA, params::BETA, params::BETA_SCALE, params::INDEX],
    can: Abilities::NONE,
    new: |setup, values| {
        setup.users.declared()?;
        let params = Params::from_values(values);
        let alpha = params.alpha_theta;
        Ok(Box::new(Dccb::new(setup.dim, &params, alpha, setup.seed)?))
    },
    load: None,
    gather: None,
};

#[cfg(test)]
mod tests {
    use super::*;

    /// As long as no two agents have parted, each observation has weight 1 over all agents, in each sum.
    #[test]
    fn gossip_conserves_mass() {
        let mut policy = Dccb::new(2, &Params::tuned(), 1e9, 3).unwrap();
        let mut gram = 0.0;
        for round in 0..500u64 {
            let x = (round % 7) as f64 / 7.0;
            policy.learn(mix(round) % 9, &[x, 1.0 - x], x).unwrap();
            gram += x * (1.0 - x);
            let rows = policy
                .agents
                .iter()
                .flat_map(|a| a.buffer.iter().chain([&a.shared]));
            let (mut total, mut mass) = (0.0, 0.0);
            for entry in rows {
                total += entry[1];
                mass += entry[5];
            }
            assert!((mass - (round + 1) as f64).abs() < 1e-9, "{mass}");
            assert!((total - gram).abs() < 1e-9, "{total} {gram}");
        }
    }
}
