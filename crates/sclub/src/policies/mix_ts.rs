//! MixTS: Thompson sampling under a mixture prior whose components are learned.
//!
//! A user u has a component k, and weights θ_u ~ N(μ_k, s₀² I). The means of the components are unknown:
//! μ_k ~ N(0, s_q² I). A reward is y = xᵀθ_u + N(0, σ²). A round for user u draws μ_k from its posterior given the rewards of
//! all users of the component, then θ_u given μ_k and the user's own rewards, and ranks the items by the draw.
//!
//! After Hong, Kveton, Zaheer, Ghavamzadeh, Boutilier: "Thompson Sampling with a Mixture Prior", AISTATS 2022. With one
//! component it is [`hier-ts`](super::hier_ts).
//!
//! # The posterior
//! With x' = x/σ, y' = y/σ and A_u = I + s₀² Σ x' x'ᵀ, the rewards of a user say about μ what the Gaussian with information
//! J_u = Σ z zᵀ and moment j_u = Σ r z says. Each observation adds one term:
//!
//! z = A_u⁻¹x'/√v, r = (y' − x'ᵀm_u)/√v, v = 1 + s₀² x'ᵀA_u⁻¹x', with A_u and the user's estimate m_u = s₀² A_u⁻¹ Σ y'x' before it.
//!
//! So a component is a linear model that observes (z, r), exactly and in O(d²). It works for s₀ = 0 (all users of a component
//! have its weights: z = x') and for s_q = 0 (μ = 0: users share nothing). Given μ, θ_u ~ N(A_u⁻¹μ + m_u, s₀² A_u⁻¹).
//!
//! # Decisions
//! * The paper knows the components and has one task. Here they are learned by collapsed Gibbs sampling over the users: after each
//!   observation the component of its user is drawn again, given the components of all others, with probability proportional to
//!   (1 + other users of k) × the evidence of the user's rewards under the posterior of component k without the user.
//!   The user's J_u, j_u then belong to that component until the user is seen again.
//! * A user without rewards is drawn a component in proportion to (1 + users of k) in each decision.
//! * The number of components is given. There is no public code; preset `tuned` is the only one.
//!
//! # Cost
//! Memory: d(d+5)/2 numbers for each user, and d(d+3)/2 more with two components or more. A decision takes O(d² + L d), learning O(d²) with
//! one component, else O(K d³): the evidence of eight components is computed at a time.

use std::io;

use super::row;
use crate::bytes::{self, Save, Writer};
use crate::digest::mix;
use crate::draws::{self, rank_by_draw};
use crate::error::{Error, check_dim};
use crate::items::ItemSet;
use crate::kernels::{self, Batch, LANES};
use crate::ledger::Ledger;
use crate::policy::{Change, ClusterId, Decision, Observation, Policy, Score, UserId, check_round};
use crate::spec::{Abilities, Constant, Preset, Range, Setup, Spec, Value, Values};
use crate::statistics::{Aggregate, Scratch, Shape};

/// The purposes of draws: each has random numbers of its own.
const FOR_CENTRE: u64 = 1;
const FOR_COMPONENT: u64 = 2;
const FOR_LEARNING: u64 = 3;

/// The standard deviations of the prior and of the rewards.
#[derive(Debug, Clone, Copy)]
struct Model {
    /// s_q
    centre: f64,
    /// s₀
    user: f64,
    /// σ
    noise: f64,
}

/// Thompson sampling under a mixture of Gaussians.
struct MixTs {
    shape: Shape,
    model: Model,
    seed: u64,
    rounds: u64,
    /// A_u and Σ s₀ y'x' of each user.
    ledger: Ledger,
    /// The component of each user, by slot.
    component_of: Vec<u32>,
    /// s_q² J_u and s_q j_u of each user, if there are several components.
    rows: Vec<f64>,
    components: Vec<Component>,
    scratch: Scratch,
    batch: Batch,
}

/// The posterior of μ_k/s_q, and the number of users.
#[derive(Clone)]
struct Component {
    sums: Aggregate,
    users: u64,
}

impl MixTs {
    fn new(dim: usize, components: usize, model: Model, seed: u64) -> Result<Self, Error> {
        let shape = Shape {
            dim: check_dim(dim)?,
        };
        let component = Component {
            sums: Aggregate::new(shape),
            users: 0,
        };
        Ok(Self {
            shape,
            model,
            seed,
            rounds: 0,
            ledger: Ledger::new(shape),
            component_of: Vec::new(),
            rows: Vec::new(),
            components: vec![component; components],
            scratch: Scratch::new(shape),
            batch: Batch::new(dim),
        })
    }

    fn default_draw(&self, user: UserId) -> u64 {
        let slot = self.ledger.slot(user).map_or(u64::MAX, |slot| slot as u64);
        mix(self.rounds) ^ slot
    }

    /// The component of a user; drawn for one without rewards.
    fn component(&self, draw: u64, user: UserId) -> &Component {
        let component = match self.ledger.slot(user) {
            Some(slot) => self.component_of[slot] as usize,
            None => {
                let weights: Vec<f64> = self
                    .components
                    .iter()
                    .map(|c| 1.0 + c.users as f64)
                    .collect();
                pick(&weights, mix(self.seed) ^ mix(draw ^ FOR_COMPONENT))
            }
        };
        &self.components[component]
    }

    /// A⁻¹μ + m_u, from μ/s_q.
    fn mean(&self, user: UserId, centre: &[f64]) -> Vec<f64> {
        let (view, _) = self.ledger.basis(user);
        let mut mean = vec![0.0; self.shape.dim];
        let centre: Vec<f64> = centre.iter().map(|x| self.model.centre * x).collect();
        kernels::solve(self.shape.dim, view.factor, view.scale, &centre, &mut mean);
        kernels::add_scaled(&mut mean, self.model.user, view.estimate);
        mean
    }

    /// The expectation of a user's weights in a component, and a draw of them.
    fn draw(&self, draw: u64, user: UserId) -> (Vec<f64>, Vec<f64>) {
        let posterior = self.component(draw, user).sums.view();
        let key = mix(self.seed);
        let centre = draws::from_posterior(key ^ mix(draw ^ FOR_CENTRE), posterior, 1.0);
        let mut weights = self.mean(user, &centre);
        let own = draws::deviation(key ^ draw, self.ledger.basis(user).0, self.model.user);
        kernels::add_scaled(&mut weights, 1.0, &own);
        (self.mean(user, posterior.estimate), weights)
    }

    fn observe(&mut self, observation: &Observation<'_>) {
        let Model {
            centre,
            user: spread,
            noise,
        } = self.model;
        let (dim, user) = (self.shape.dim, observation.user);
        // The term (z, r) of this observation.
        let item: Vec<f64> = observation.item.iter().map(|x| x / noise).collect();
        let reward = observation.reward / noise;
        let (view, count) = self.ledger.basis(user);
        let mut term = vec![0.0; dim];
        kernels::solve(dim, view.factor, view.scale, &item, &mut term);
        let deviation = (1.0 + spread * spread * dot(&item, &term)).sqrt();
        let error = (reward - spread * dot(&item, view.estimate)) / deviation;
        term.iter_mut().for_each(|z| *z *= centre / deviation);

        let scaled: Vec<f64> = item.iter().map(|x| spread * x).collect();
        self.ledger
            .observe(&Observation::new(user, &scaled, reward));
        if count == 0 {
            self.component_of.push(0);
            self.components[0].users += 1;
        }
        if self.components.len() == 1 {
            self.components[0]
                .sums
                .observe(&mut self.scratch, &term, error);
        } else if let Some(slot) = self.ledger.slot(user) {
            self.move_user(slot, count, &term, error);
        }
    }

    /// Adds a term to a user's row, and the row to a component drawn for it.
    fn move_user(&mut self, slot: usize, count: u64, term: &[f64], error: f64) {
        let len = row::len(self.shape);
        self.rows.resize(self.ledger.len() * len, 0.0);
        let row = &mut self.rows[slot * len..(slot + 1) * len];
        let own = &mut self.components[self.component_of[slot] as usize];
        own.users -= 1;
        if count > 0 {
            let (gram, moment) = row.split_at(self.shape.gram());
            own.sums.remove_sums(gram, moment, count);
            own.sums.factorise(&mut self.scratch);
        }
        row::observe(self.shape, row, term, error);

        let key = mix(slot as u64) ^ mix(count ^ FOR_LEARNING.rotate_right(8));
        let weights = evidence(self.shape, &self.components, row, &mut self.batch);
        let chosen = pick(&weights, mix(self.seed) ^ mix(key));
        self.component_of[slot] = chosen as u32;
        let chosen = &mut self.components[chosen];
        let (gram, moment) = row.split_at(self.shape.gram());
        chosen.users += 1;
        chosen.sums.add_sums(gram, moment, count + 1);
        chosen.sums.factorise(&mut self.scratch);
    }
}

/// (1 + users of k) × evidence of a user's row under component k, up to a common factor.
fn evidence(shape: Shape, components: &[Component], row: &[f64], batch: &mut Batch) -> Vec<f64> {
    let (gram, moment) = row.split_at(shape.gram());
    let mut precision = gram.to_vec();
    for i in 0..shape.dim {
        precision[i * (i + 3) / 2] += 1.0;
    }
    let mut weights = Vec::with_capacity(components.len());
    for some in components.chunks(LANES) {
        let rows: Vec<Vec<f64>> = some
            .iter()
            .map(|c| [c.sums.gram(), c.sums.view().moment].concat())
            .collect();
        let rows: Vec<&[f64]> = rows.iter().map(Vec::as_slice).collect();
        kernels::posteriors(kernels::batch::Posteriors {
            dim: shape.dim,
            prior: kernels::batch::Prior {
                precision: &precision,
                pull: moment,
                inverse_noise: 1.0,
            },
            rows: &rows,
            batch,
        });
        for (lane, component) in some.iter().enumerate() {
            let view = component.sums.view();
            let before = dot(view.moment, view.estimate) - view.log_determinant();
            let after = batch.fit[lane] - batch.log_determinant(lane);
            weights.push(libm::log(1.0 + component.users as f64) + 0.5 * (after - before));
        }
    }
    let largest = weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    weights
        .iter_mut()
        .for_each(|w| *w = libm::exp(*w - largest));
    weights
}

/// An index drawn in proportion to weights.
fn pick(weights: &[f64], key: u64) -> usize {
    let uniform = (mix(key) >> 11) as f64 / (1u64 << 53) as f64;
    let mut left = uniform * weights.iter().sum::<f64>();
    let drawn = weights.iter().position(|weight| {
        left -= weight;
        left < 0.0
    });
    drawn.unwrap_or(0)
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

impl Policy for MixTs {
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
        round
            .iter()
            .for_each(|observation| self.observe(observation));
        Ok(())
    }

    /// The component that was last drawn for the user.
    fn cluster_of(&self, user: UserId) -> Option<ClusterId> {
        let slot = self.ledger.slot(user)?;
        Some(ClusterId::from(self.component_of[slot]) + 1)
    }

    /// Components with users.
    fn clusters(&self) -> usize {
        self.components.iter().filter(|c| c.users > 0).count()
    }

    /// The expectation of the user's weights; in the component with the most users for a user without rewards.
    fn estimate(&self, user: UserId) -> Option<Vec<f64>> {
        let component = match self.ledger.slot(user) {
            Some(slot) => &self.components[self.component_of[slot] as usize],
            None => self.components.iter().rev().max_by_key(|c| c.users)?,
        };
        Some(self.mean(user, component.sums.view().estimate))
    }

    fn digest(&self) -> u64 {
        bytes::digest(self)
    }

    fn state_bytes(&self) -> Option<u64> {
        Some(bytes::length(self))
    }
}

impl Save for MixTs {
    const MAGIC: u64 = u64::from_le_bytes(*b"sclub mx");

    fn save_words(&self, writer: &mut Writer<'_>) -> io::Result<()> {
        let Model {
            centre,
            user,
            noise,
        } = self.model;
        writer.word(self.seed)?;
        writer.word(self.rounds)?;
        writer.numbers(&[centre, user, noise])?;
        self.ledger.save(writer)?;
        writer.words(self.component_of.iter().map(|&k| k.into()))?;
        writer.numbers(&self.rows)?;
        for component in &self.components {
            writer.word(component.users)?;
            component.sums.save(writer)?;
        }
        Ok(())
    }
}

/// The values of preset `tuned`: `prior_sd`, `user_sd`, `noise`.
const TUNED: [f64; 3] = [0.2, 0.02, 0.3];

pub(super) const PRIOR_SD: Constant = Constant::new(
    "prior_sd",
    "Standard deviation of the prior of the mean of the users' weights",
    Range::NOT_NEGATIVE,
    |_, _| Ok(Value::Number(TUNED[0])),
);

pub(super) const USER_SD: Constant = Constant::new(
    "user_sd",
    "Standard deviation of a user's weights from the mean",
    Range::NOT_NEGATIVE,
    |_, _| Ok(Value::Number(TUNED[1])),
);

pub(super) const NOISE_SD: Constant = Constant::new(
    "noise",
    "Standard deviation of a reward from its mean, as the prior has it",
    Range::POSITIVE,
    |_, _| Ok(Value::Number(TUNED[2])),
);

const COMPONENTS: Constant = Constant::new(
    "components",
    "The number of components of the mixture",
    Range::whole(1.0, 64.0, "a whole number from 1 to 64"),
    |_, _| Ok(Value::Number(10.0)),
);

/// A policy with the constants given; one component if their number is not among them.
pub(super) fn new(setup: &Setup<'_>, values: &Values) -> Result<Box<dyn Policy>, Error> {
    setup.users.declared()?;
    let number = |name| values.number(name).unwrap_or(1.0);
    let model = Model {
        centre: number("prior_sd"),
        user: number("user_sd"),
        noise: number("noise"),
    };
    let components = match values.spec().constant("components") {
        Some(_) => number("components") as usize,
        None => 1,
    };
    Ok(Box::new(MixTs::new(
        setup.dim, components, model, setup.seed,
    )?))
}

/// `mix-ts`
pub static SPEC: Spec = Spec {
    name: "mix-ts",
    title: "MixTS",
    summary: "Thompson sampling under a mixture of Gaussians whose means are learned",
    citation: "after Hong, Kveton, Zaheer, Ghavamzadeh and Boutilier, AISTATS 2022",
    colors: ["#A0A000", "#D6D65C"],
    revision: 2,
    presets: &[Preset::Tuned],
    constants: &[COMPONENTS, PRIOR_SD, USER_SD, NOISE_SD],
    can: Abilities {
        draws: true,
        ..Abilities::NONE
    },
    new,
    load: None,
    gather: None,
};
