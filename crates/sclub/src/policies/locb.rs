//! LOCB: overlapping sets of users, each grown around a seed user.
//!
//! Some users are seeds. The set of a seed holds the users whose estimates are close to the seed's. A user can be in
//! several sets, or in none. Each set offers the item with the largest upper confidence bound on its own sums, and the
//! user is shown the best offer. A user in no set is served from their own sums. At first every set holds every user. A
//! set whose seed is known well enough is frozen: users no longer enter or leave it.
//!
//! Ban and He: "Local Clustering in Contextual Multi-Armed Bandits", WWW 2021. Preset `released` has the constants of
//! the authors' code.
//!
//! # Decisions
//! - Seeds are drawn by order of appearance: of n declared users, those who appear as numbers k₁, k₂, …, fixed by the
//!   seed of the policy. Where users are not declared, the first users to appear are the seeds. So the names of users
//!   do not matter. A seed who has not appeared has the estimate 0 from 0 observations.
//! - Seeds are distinct. The authors' code draws with replacement: 60 draws of 100 users are some 45 seeds.
//! - R(T) = α F(T), α = 1 in the authors' code. A set is frozen when R(T) of its seed is at most γ/4. With α = 1 and
//!   γ = 0.2 that takes 3,684 observations of the seed.
//! - A user who appears enters every set that is not frozen. A user who has not appeared is served from those sets.
//! - The factors of a set follow each change of its members at once. In the authors' code they are stale until the
//!   set's next observation. There the number of observations of a set begins at 1, here at 0.
//! - In the authors' code every user is served from their own sums from round 40,000 on. Here that is the constant
//!   `alone_from`; `tuned` leaves it out.
//! - The code's detection mode, a wider radius for finding clusters rather than for small regret, is left out.
//! - `cluster_of` and `estimate` report the set with the nearest seed, of those that hold the user.
//!
//! # Cost
//! Memory d(d + 5)/2 numbers and a bit for each set a user, and d² + 3d numbers a set. With s sets, s_i of them holding
//! the user: a recommendation takes O(s_i L d²) for L items, a reward O(s_i d² + s d), a change of members O(d³).

use std::collections::BTreeSet;
use std::io;

use crate::bytes::{self, Save, Writer};
use crate::digest::mix;
use crate::error::{Error, check_dim};
use crate::items::Group;
use crate::ledger::Ledger;
use crate::params::{self, Index, Params, TUNED_ALPHA_THETA};
use crate::policy::{
    Change, Clock, ClusterId, Observation, Policy, UserId, Users, check_round, rank_by_scorer,
};
use crate::radius::{distance, radius};
use crate::spec::{Abilities, Constant, Preset, Range, Setup, Spec, Value, Values};
use crate::statistics::{Aggregate, Scratch, Shape, View};
use crate::ucb::{Ranking, Scores};

struct Locb {
    shape: Shape,
    ranking: Ranking,
    index: Index,
    alpha: f64,
    gamma: f64,
    alone_from: Option<f64>,
    clock: Clock,
    ledger: Ledger,
    sets: Vec<Set>,
    /// True where a set holds a user: `sets` entries for each slot.
    holds: Vec<bool>,
    scratch: Scratch,
}

/// A seed and its set.
struct Set {
    /// The slot of the seed, who need not have appeared.
    seed: usize,
    sums: Aggregate,
    is_frozen: bool,
}

impl Locb {
    fn new(setup: &Setup<'_>, values: &Values) -> Result<Self, Error> {
        let shape = Shape {
            dim: check_dim(setup.dim)?,
        };
        let params = Params::from_values(values);
        let seeds = values.number(SEEDS.name).unwrap_or(0.0) as u64;
        let set = |seed: u64| Set {
            seed: seed as usize,
            sums: Aggregate::new(shape),
            is_frozen: false,
        };
        let seeds = draw_seeds(setup.seed, seeds, setup.users)?;
        Ok(Self {
            shape,
            ranking: Ranking::new(setup.dim, &params),
            index: params.index,
            alpha: params.alpha_theta,
            gamma: values.number(GAMMA.name).unwrap_or(0.0),
            alone_from: values.number(ALONE_FROM.name),
            clock: Clock::new(),
            ledger: Ledger::new(shape),
            sets: seeds.into_iter().map(set).collect(),
            holds: Vec::new(),
            scratch: Scratch::new(shape),
        })
    }

    /// The sets that a user is served from.
    fn sets_of(&self, user: UserId) -> impl Iterator<Item = (usize, &Set)> {
        let is_alone =
            (self.alone_from).is_some_and(|from| self.clock.rounds() as f64 + 1.0 >= from);
        let slot = self.ledger.slot(user);
        let all = self.sets.iter().enumerate();
        all.filter(move |&(place, set)| {
            !is_alone
                && slot.map_or(!set.is_frozen, |slot| {
                    self.holds[slot * self.sets.len() + place]
                })
        })
    }

    /// The sums of the sets that a user is served from, or the user's own, each with its β.
    fn bases(&self, user: UserId) -> Vec<(View<'_>, f64)> {
        let with_beta = |view, count| (view, self.ranking.beta(count, self.clock.log_rounds()));
        let mut bases: Vec<(View<'_>, f64)> = self
            .sets_of(user)
            .map(|(_, set)| with_beta(set.sums.view(), set.sums.count()))
            .collect();
        if bases.is_empty() {
            let (view, count) = self.ledger.basis(user);
            bases.push(with_beta(view, count));
        }
        bases
    }

    /// The best offer of all bases for each item of a group.
    fn fill(&self, bases: &[(View<'_>, f64)], group: Group<'_>, best: &mut Scores) {
        let (&(view, beta), others) = bases.split_first().expect("at least the user's own");
        best.fill(self.index, view, beta, group);
        let mut offer = Scores::new();
        for &(view, beta) in others {
            offer.fill(self.index, view, beta, group);
            for lane in 0..group.len {
                if offer.score[lane] > best.score[lane] {
                    best.score[lane] = offer.score[lane];
                    best.mean[lane] = offer.mean[lane];
                    best.width[lane] = offer.width[lane];
                }
            }
        }
    }

    /// The estimate and F(T) of a seed.
    fn seed(&self, set: &Set) -> (&[f64], f64) {
        let (view, count) = self.ledger.at(set.seed);
        (view.estimate, radius(count))
    }

    /// The set with the nearest seed, of those that a user is served from.
    fn nearest(&self, user: UserId) -> Option<usize> {
        let own = self.ledger.basis(user).0.estimate;
        let mut nearest: Option<(f64, usize)> = None;
        for (place, set) in self.sets_of(user) {
            let apart = distance(own, self.seed(set).0);
            if nearest.is_none_or(|(least, _)| apart < least) {
                nearest = Some((apart, place));
            }
        }
        Some(nearest?.1)
    }

    fn update(&mut self, observation: &Observation<'_>) {
        let slot = self.ledger.slot(observation.user).unwrap_or_else(|| {
            self.holds
                .extend(self.sets.iter().map(|set| !set.is_frozen));
            self.ledger.len()
        });
        self.ledger.observe(observation);
        let start = slot * self.sets.len();
        for (set, _) in self
            .sets
            .iter_mut()
            .zip(&self.holds[start..])
            .filter(|(_, holds)| **holds)
        {
            let (item, reward) = (observation.item, observation.reward);
            set.sums.observe(&mut self.scratch, item, reward);
        }
    }

    /// Lets a user into sets and out of them; freezes the sets of the user whose estimate is known well enough.
    fn sort(&mut self, slot: usize) {
        let own_radius = radius(self.ledger.count(slot));
        for place in 0..self.sets.len() {
            if self.sets[place].is_frozen {
                continue;
            }
            let (block, count) = (self.ledger.block(slot), self.ledger.count(slot));
            let (estimate, seed_radius) = self.seed(&self.sets[place]);
            let apart = distance(self.ledger.view(slot).estimate, estimate);
            let threshold = self.alpha * (own_radius + seed_radius);
            let holds = &mut self.holds[slot * self.sets.len() + place];
            let set = &mut self.sets[place];
            if *holds && apart > threshold {
                *holds = false;
                set.sums.remove_block(&mut self.scratch, block, count);
                set.sums.factorise(&mut self.scratch);
            } else if !*holds && apart < threshold {
                *holds = true;
                set.sums.add_block(&mut self.scratch, block, count);
                set.sums.factorise(&mut self.scratch);
            }
            set.is_frozen = self.alpha * seed_radius <= self.gamma / 4.0;
        }
    }
}

/// Orders of appearance of the seeds, rising.
fn draw_seeds(seed: u64, seeds: u64, users: Users) -> Result<BTreeSet<u64>, Error> {
    let all = match users.declared()? {
        0 => seeds,
        declared => declared,
    };
    if seeds >= all {
        return Ok((0..all).collect());
    }
    // Floyd's sample: each subset of that size is as likely as any other.
    let mut drawn = BTreeSet::new();
    for last in all - seeds..all {
        let number = mix(mix(seed ^ 0x6c6f_6362) ^ last) % (last + 1);
        if !drawn.insert(number) {
            drawn.insert(last);
        }
    }
    Ok(drawn)
}

impl Locb {
    /// The scorer of groups of items for a user.
    fn scorer(&self, user: UserId) -> impl FnMut(Group<'_>, &mut Scores) {
        let bases = self.bases(user);
        move |group, scores| self.fill(&bases, group, scores)
    }
}

impl Policy for Locb {
    fn dim(&self) -> usize {
        self.shape.dim
    }

    fn rounds(&self) -> u64 {
        self.clock.rounds()
    }

    rank_by_scorer!();

    fn learn_round(
        &mut self,
        round: &[Observation<'_>],
        _changes: &mut Vec<Change>,
    ) -> Result<(), Error> {
        check_round(round, self.shape.dim)?;
        self.ledger.check_room(round)?;
        self.clock.tick();
        for observation in round {
            self.update(observation);
        }
        for observation in round {
            if let Some(slot) = self.ledger.slot(observation.user) {
                self.sort(slot);
            }
        }
        Ok(())
    }

    /// The set with the nearest seed; a number of their own for a user in no set.
    fn cluster_of(&self, user: UserId) -> Option<ClusterId> {
        let slot = self.ledger.slot(user)?;
        let place = self.nearest(user).unwrap_or(self.sets.len() + slot);
        Some(place as ClusterId + 1)
    }

    /// The number of sets.
    fn clusters(&self) -> usize {
        self.sets.len()
    }

    fn estimate(&self, user: UserId) -> Option<Vec<f64>> {
        let view = match self.nearest(user) {
            Some(place) => self.sets[place].sums.view(),
            None => self.ledger.basis(user).0,
        };
        Some(view.estimate.to_vec())
    }

    fn digest(&self) -> u64 {
        bytes::digest(self)
    }

    fn state_bytes(&self) -> Option<u64> {
        Some(bytes::length(self))
    }
}

impl Save for Locb {
    const MAGIC: u64 = u64::from_le_bytes(*b"sclub lo");

    fn save_words(&self, writer: &mut Writer<'_>) -> io::Result<()> {
        writer.word(self.clock.rounds())?;
        self.ledger.save(writer)?;
        writer.words(self.holds.iter().map(|&holds| u64::from(holds)))?;
        for set in &self.sets {
            writer.word(set.seed as u64)?;
            writer.word(u64::from(set.is_frozen))?;
            set.sums.save(writer)?;
        }
        Ok(())
    }
}

const TUNED: [f64; 3] = [TUNED_ALPHA_THETA, 0.2, 20.0];
const RELEASED: [f64; 3] = [1.0, 0.2, 20.0];

const fn of(preset: Preset) -> [f64; 3] {
    match preset {
        Preset::Released => RELEASED,
        _ => TUNED,
    }
}

const ALPHA_THETA: Constant = Constant {
    meaning: "A user leaves the set of a seed if their estimates differ by more than X times the sum of their \
              confidence radii F(T), and enters it below that",
    default: |preset, _| Ok(Value::Number(of(preset)[0])),
    ..params::ALPHA_THETA
};

const GAMMA: Constant = Constant::new(
    "gamma",
    "Largest distance between users of a set: it is frozen when the confidence radius of its seed is at most X/4",
    Range::NOT_NEGATIVE,
    |preset, _| Ok(Value::Number(of(preset)[1])),
);

const SEEDS: Constant = Constant::new(
    "seeds",
    "The number of seed users, each with a set of users around it",
    Range::whole(0.0, 1e4, "a whole number from 0 to 10000"),
    |preset, _| Ok(Value::Number(of(preset)[2])),
);

const ALONE_FROM: Constant = Constant {
    advanced: true,
    ..Constant::new(
        "alone_from",
        "From this round on each user is served from their own observations, as in the published code from round \
         40000 on",
        Range::whole(1.0, 1e15, "a whole number from 1 to 10^15"),
        |preset, _| {
            Ok(match preset {
                Preset::Released => Value::Number(40_000.0),
                _ => Value::Unset,
            })
        },
    )
};

/// `locb`
pub static SPEC: Spec = Spec {
    name: "locb",
    title: "LOCB",
    summary: "Overlapping sets of users around seed users; the best offer of all sets is shown",
    citation: "Ban and He, WWW 2021",
    colors: ["#B8860B", "#E6C35C"],
    revision: 1,
    presets: &[Preset::Tuned, Preset::Released],
    constants: &[
        ALPHA_THETA,
        GAMMA,
        SEEDS,
        params::BETA,
        params::BETA_SCALE,
        params::INDEX,
        ALONE_FROM,
    ],
    can: Abilities::NONE,
    new: |setup, values| Ok(Box::new(Locb::new(setup, values)?)),
    load: None,
    gather: None,
};
