//! FCLUB: CLUB on several servers that share sums, not observations.
//!
//! Each user is at home on one server. A server runs CLUB on its own users; a global server joins clusters of
//! different servers whose estimates agree. Servers talk rarely:
//!
//! 1. Rounds form phases of 2, 4, 8, … rounds. At the end of a phase every server cuts the edges between own users
//!    i, j with ‖θ̂_i − θ̂_j‖ > α (F(T_i) + F(T_j)). The components left are its *local clusters*.
//! 2. All local clusters are uploaded. The global server connects two of different servers if
//!    ‖θ̂ − θ̂'‖ < α₂ (F(T) + F(T')). Components of that graph are the *global clusters*; each local cluster gets the
//!    sums of its global cluster.
//! 3. Inside a phase a local cluster serves its users from S + S_up: the sums S that it shares with the global
//!    server, and its own observations S_up since its last upload. It uploads when |S + S_up| ≥ U |S|. The global server
//!    sends the sums to a local cluster when |S_global| ≥ D |S|.
//!
//! Citation: Liu, Zhao, Yu, Li, Lui: "Federated Online Clustering of Bandits", UAI 2022; the form with delayed
//! communication, from the authors' public code.
//!
//! # Decisions
//! * The home server of the k-th user to appear is a hash of k, mod `servers`. The numbers of users are not used: in a world
//!   that numbers users round robin over its clusters, u mod `servers` would tell the cluster. Of a server only matters which
//!   users are at home there.
//! * A user enters the graph of the home server at the first observation, connected to all. Until the end of the phase they
//!   belong to the local cluster of the server with the most observations, and a server's first user to the global cluster
//!   with the most. A user without observations is served likewise.
//! * The code cuts edges and joins clusters at the start of a phase; here it is the end of the phase before.
//! * Two local clusters of one server are never connected directly: their server has just told them apart.
//! * The code leaves clusters apart if no two local clusters differ. Here they are joined; `--joins unless-all` is the code's way.
//! * Determinants are those of I + S; the code's, of S alone, are 0 until S has full rank, so nothing is uploaded.
//! * The global server tests after each upload who is to be sent the sums: it knows what each local cluster has.
//! * A message has d(d+1)/2 + d + 1 numbers. The end of a phase costs two messages for each local cluster.
//! * The index is this library's (`beta`, `beta_scale`, `index`). The code's factor, ½√(2 ln(2/α) + d ln(3 + tL²/d)) with L the number
//!   of servers, is about half of it: preset `released` has `beta_scale` 0.5.
//! * Privacy (`privacy`, `privacy_delta`): uploads of a local cluster in a phase pass a tree mechanism (`privacy.rs`). The
//!   guarantee is for one phase; phases compose. Counts are not noised.
//!
//! # Cost
//! Memory: d(d+5)/2 numbers for each user, about three times as many for each local cluster, and a bit for each pair
//! of users that has been cut. A round takes O(L d² + d²), an upload O(d³), a download O(d³); the end of a phase takes O(n²d)
//! over users of the same server, and O(n d³).

use std::io;

use super::pairs::{Pairs, components};
use super::privacy::{self, Tree};
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
use crate::radius::{distance, radius};
use crate::spec::{Abilities, Constant, Preset, Range, Setup, Spec, Value, Values};
use crate::statistics::{Aggregate, Scratch, Shape, View};
use crate::ucb::Ranking;

/// Clustering of bandits on several servers.
struct Fclub {
    constants: Constants,
    shape: Shape,
    ranking: Ranking,
    seed: u64,
    clock: Clock,
    /// The phase in progress, from 1, and the round that ends it.
    phase: u32,
    phase_end: u64,
    ledger: Ledger,
    /// Pairs of users of one server whose edge has been cut.
    cut: Pairs,
    /// The local cluster of each user, by slot.
    local_of: Vec<u32>,
    locals: Vec<Local>,
    globals: Vec<Global>,
    /// The local cluster that newcomers to a server join, by server.
    welcome: Vec<Option<u32>>,
    messages: Messages,
    scratch: Scratch,
}

#[derive(Debug, Clone, Copy)]
struct Constants {
    servers: u64,
    /// α and α₂
    alpha_cut: f64,
    alpha_join: f64,
    /// True to join clusters also if no two of them differ.
    joins_all: bool,
    /// ln U and ln D
    upload: f64,
    download: f64,
    /// Standard deviation of the noise of an upload; 0 without privacy.
    noise: f64,
}

/// A cluster of users of one server.
struct Local {
    server: u64,
    global: u32,
    /// S + S_up
    served: Aggregate,
    /// S_up
    pending: Vec<f64>,
    pending_count: u64,
    /// ln |I + S|
    log_determinant: f64,
    /// Version of the global sums that is part of S.
    version: u64,
    /// The noise of its uploads in this phase.
    noise: Tree,
    /// Slot of the first user: names the cluster for its random draws.
    first: u32,
}

/// Local clusters that are one on the global server.
struct Global {
    sums: Aggregate,
    log_determinant: f64,
    /// Increases with each upload.
    version: u64,
    locals: Vec<u32>,
}

impl Global {
    fn new(sums: Aggregate) -> Self {
        Self {
            log_determinant: sums.view().log_determinant(),
            sums,
            version: 0,
            locals: Vec::new(),
        }
    }
}

impl Fclub {
    fn new(dim: usize, params: &Params, constants: Constants, seed: u64) -> Result<Self, Error> {
        params.check()?;
        let shape = Shape {
            dim: check_dim(dim)?,
        };
        Ok(Self {
            constants,
            shape,
            ranking: Ranking::new(dim, params),
            seed,
            clock: Clock::new(),
            phase: 1,
            phase_end: 2,
            ledger: Ledger::new(shape),
            cut: Pairs::default(),
            local_of: Vec::new(),
            locals: Vec::new(),
            globals: vec![Global::new(Aggregate::new(shape))],
            welcome: vec![None; constants.servers as usize],
            messages: Messages::default(),
            scratch: Scratch::new(shape),
        })
    }

    fn server(&self, user: UserId) -> u64 {
        let slot = self.ledger.slot(user).unwrap_or(self.ledger.len());
        mix(slot as u64) % self.constants.servers
    }

    /// The local cluster that serves a user.
    fn local(&self, user: UserId) -> Option<u32> {
        match self.ledger.slot(user) {
            Some(slot) => Some(self.local_of[slot]),
            None => self.welcome[self.server(user) as usize],
        }
    }

    /// The global cluster with the most observations.
    fn largest_global(&self) -> u32 {
        first_largest(self.globals.iter().map(|global| global.sums.count()))
    }

    fn sums(&self, user: UserId) -> &Aggregate {
        match self.local(user) {
            Some(local) => &self.locals[local as usize].served,
            None => &self.globals[self.largest_global() as usize].sums,
        }
    }

    fn basis(&self, user: UserId) -> (View<'_>, f64) {
        let sums = self.sums(user);
        let beta = self.ranking.beta(sums.count(), self.clock.log_rounds());
        (sums.view(), beta)
    }

    /// Counts messages that each hold (S, b, T).
    fn count_messages(&mut self, messages: usize) {
        self.messages.count(messages, row::len(self.shape) + 1);
    }

    /// The local cluster of a new user.
    fn admit(&mut self, user: UserId) {
        let server = self.server(user);
        let local = self.welcome[server as usize].unwrap_or_else(|| {
            let global = self.largest_global();
            let local = self.locals.len() as u32;
            let first = self.local_of.len() as u32;
            let joined = self.new_local(server, global, first);
            self.locals.push(joined);
            self.globals[global as usize].locals.push(local);
            self.welcome[server as usize] = Some(local);
            self.count_messages(1);
            local
        });
        self.local_of.push(local);
    }

    /// A local cluster with the sums of its global cluster and nothing to upload.
    fn new_local(&self, server: u64, global: u32, first: u32) -> Local {
        let sums = &self.globals[global as usize];
        Local {
            server,
            global,
            served: sums.sums.clone(),
            pending: vec![0.0; row::len(self.shape)],
            pending_count: 0,
            log_determinant: sums.log_determinant,
            version: sums.version,
            noise: Tree::new(self.shape),
            first,
        }
    }

    fn observe(&mut self, observation: &Observation<'_>) {
        let Observation {
            user, item, reward, ..
        } = *observation;
        if self.ledger.slot(user).is_none() {
            self.admit(user);
        }
        self.ledger.observe(observation);
        let at = self.local(user).expect("the user has been admitted");
        let local = &mut self.locals[at as usize];
        local.served.observe(&mut self.scratch, item, reward);
        row::observe(self.shape, &mut local.pending, item, reward);
        local.pending_count += 1;
        let growth = local.served.view().log_determinant() - local.log_determinant;
        if growth.max(0.0) >= self.constants.upload {
            self.upload(at);
        }
    }

    /// Sends S_up to the global server, which sends its sums to those who lack much.
    fn upload(&mut self, at: u32) {
        let (phase, gram) = (self.phase, self.shape.gram());
        let local = &mut self.locals[at as usize];
        let global = &mut self.globals[local.global as usize];
        if self.constants.noise > 0.0 {
            let noise = local.next_noise(self.seed, phase, self.constants.noise);
            let (matrix, vector) = noise.split_at(gram);
            global.sums.add_sums(matrix, vector, 0);
            local.served.add_sums(matrix, vector, 0);
        }
        local.served.factorise(&mut self.scratch);
        let (matrix, vector) = local.pending.split_at(gram);
        global.sums.add_sums(matrix, vector, local.pending_count);
        global.sums.factorise(&mut self.scratch);
        global.log_determinant = global.sums.view().log_determinant();
        local.log_determinant = local.served.view().log_determinant();
        local.version += u64::from(local.version == global.version);
        global.version += 1;
        local.pending.fill(0.0);
        local.pending_count = 0;
        let mut downloads = 0;
        for &at in &global.locals {
            let local = &mut self.locals[at as usize];
            let growth = global.log_determinant - local.log_determinant;
            if local.version < global.version && growth.max(0.0) >= self.constants.download {
                local.download(global, &mut self.scratch, gram);
                downloads += 1;
            }
        }
        self.count_messages(1 + downloads);
    }

    /// The end of a phase: local clusters and global clusters are made anew.
    fn repartition(&mut self) {
        let shape = self.shape;
        let parts = self.local_parts();
        if parts.is_empty() {
            return;
        }
        self.count_messages(2 * parts.len());
        let sums = |part: &Vec<u32>, scratch: &mut Scratch| {
            let mut sums = Aggregate::new(shape);
            for &slot in part {
                let slot = slot as usize;
                sums.add_block(scratch, self.ledger.block(slot), self.ledger.count(slot));
            }
            sums
        };
        let mut own: Vec<Aggregate> = Vec::with_capacity(parts.len());
        // Their global clusters are not known yet.
        self.globals = vec![Global::new(Aggregate::new(shape))];
        self.locals.clear();
        for part in &parts {
            let server = self.server(self.ledger.users()[part[0] as usize]);
            let mut local = self.new_local(server, 0, part[0]);
            let mut sums = sums(part, &mut self.scratch);
            if self.constants.noise > 0.0 {
                let noise = local.next_noise(self.seed, self.phase + 1, self.constants.noise);
                let (matrix, vector) = noise.split_at(shape.gram());
                sums.add_sums(matrix, vector, 0);
            }
            sums.factorise(&mut self.scratch);
            own.push(sums);
            self.locals.push(local);
        }

        self.globals.clear();
        let radii: Vec<f64> = own.iter().map(|sums| radius(sums.count())).collect();
        let is_near = |a: usize, b: usize| {
            let reach = self.constants.alpha_join * (radii[a] + radii[b]);
            distance(own[a].view().estimate, own[b].view().estimate) < reach
        };
        let all_near = || (0..own.len()).all(|a| (0..a).all(|b| is_near(a, b)));
        let may_join = self.constants.joins_all || !all_near();
        let agree = |a: usize, b: usize| {
            may_join && self.locals[a].server != self.locals[b].server && is_near(a, b)
        };
        let everything: Vec<u32> = (0..own.len() as u32).collect();
        for members in components(own.len(), |_| &everything, agree) {
            let mut sums = own[members[0] as usize].clone();
            for &other in &members[1..] {
                sums.add_aggregate(&own[other as usize]);
            }
            if members.len() > 1 {
                sums.factorise(&mut self.scratch);
            }
            let mut global = Global::new(sums);
            for &local in &members {
                let local = &mut self.locals[local as usize];
                local.global = self.globals.len() as u32;
                local.served = global.sums.clone();
                local.log_determinant = global.log_determinant;
            }
            global.locals = members;
            self.globals.push(global);
        }

        self.welcome.fill(None);
        for (local, part) in parts.iter().enumerate() {
            for &slot in part {
                self.local_of[slot as usize] = local as u32;
            }
            let welcome = &mut self.welcome[self.locals[local].server as usize];
            if welcome.is_none_or(|other| own[other as usize].count() < own[local].count()) {
                *welcome = Some(local as u32);
            }
        }
    }

    /// Cuts edges; the slots of each component, the component with the first user first.
    fn local_parts(&mut self) -> Vec<Vec<u32>> {
        let (dim, users) = (self.shape.dim, self.ledger.len());
        let mut estimates = Vec::with_capacity(users * dim);
        let mut radii = Vec::with_capacity(users);
        let mut at_server = vec![Vec::new(); self.constants.servers as usize];
        for (slot, &user) in self.ledger.users().iter().enumerate() {
            estimates.extend_from_slice(self.ledger.view(slot).estimate);
            radii.push(radius(self.ledger.count(slot)));
            at_server[self.server(user) as usize].push(slot as u32);
        }
        let estimate = |slot: usize| &estimates[slot * dim..(slot + 1) * dim];
        for slots in &at_server {
            for (place, &a) in slots.iter().enumerate() {
                let a = a as usize;
                for &b in &slots[..place] {
                    let b = b as usize;
                    let reach = self.constants.alpha_cut * (radii[a] + radii[b]);
                    if !self.cut.contains(a, b) && distance(estimate(a), estimate(b)) > reach {
                        self.cut.insert(a, b);
                    }
                }
            }
        }
        let users = self.ledger.users();
        let neighbours = |slot: u32| &at_server[self.server(users[slot as usize]) as usize];
        components(
            users.len(),
            |slot| neighbours(slot),
            |a, b| !self.cut.contains(a, b),
        )
    }
}

impl Local {
    /// Replaces S by the global sums.
    fn download(&mut self, global: &Global, scratch: &mut Scratch, gram: usize) {
        self.served = global.sums.clone();
        if self.pending_count > 0 {
            let (matrix, vector) = self.pending.split_at(gram);
            self.served.add_sums(matrix, vector, self.pending_count);
            self.served.factorise(scratch);
        }
        self.log_determinant = global.log_determinant;
        self.version = global.version;
    }

    /// The noise that the next upload adds to that of the uploads before.
    fn next_noise(&mut self, seed: u64, phase: u32, scale: f64) -> Vec<f64> {
        let place = mix(u64::from(self.first) << 32 | u64::from(phase));
        self.noise.next(mix(mix(seed) ^ place), scale)
    }
}

/// The index of the largest number, the first of them on a tie.
fn first_largest(numbers: impl Iterator<Item = u64>) -> u32 {
    let best = numbers
        .enumerate()
        .min_by_key(|&(_, number)| std::cmp::Reverse(number));
    best.map_or(0, |(index, _)| index as u32)
}

impl Policy for Fclub {
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
        let rounds = self.clock.tick();
        for observation in round {
            self.observe(observation);
        }
        if rounds == self.phase_end {
            self.repartition();
            self.phase += 1;
            self.phase_end += 1 << self.phase;
        }
        Ok(())
    }

    /// The global cluster.
    fn cluster_of(&self, user: UserId) -> Option<ClusterId> {
        let local = &self.locals[self.local(user)? as usize];
        Some(ClusterId::from(local.global) + 1)
    }

    fn clusters(&self) -> usize {
        self.globals.len()
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

impl Save for Fclub {
    const MAGIC: u64 = u64::from_le_bytes(*b"sclub fc");

    fn save_words(&self, writer: &mut Writer<'_>) -> io::Result<()> {
        let c = &self.constants;
        writer.word(self.seed)?;
        writer.word(c.servers)?;
        writer.numbers(&[c.alpha_cut, c.alpha_join, c.upload, c.download, c.noise])?;
        writer.word(c.joins_all.into())?;
        writer.word(self.clock.rounds())?;
        writer.word(self.phase_end)?;
        self.ledger.save(writer)?;
        self.cut.save(writer)?;
        writer.words(self.local_of.iter().map(|&local| local.into()))?;
        for local in &self.locals {
            let (pending, uploads) = (local.pending_count, local.noise.uploads());
            let words = [local.global.into(), pending, local.version, uploads];
            writer.words(words.into_iter())?;
            local.served.save(writer)?;
            writer.number(local.log_determinant)?;
            writer.numbers(&local.pending)?;
            writer.numbers(local.noise.total())?;
        }
        for global in &self.globals {
            writer.word(global.version)?;
            global.sums.save(writer)?;
        }
        writer.word(self.messages.sent)?;
        writer.word(self.messages.numbers)
    }
}

/// Values of preset `tuned`, then those of the public code.
struct Chosen {
    alpha_theta: [f64; 2],
    alpha_merge: [f64; 2],
    growth: [f64; 2],
}

const CHOSEN: Chosen = Chosen {
    alpha_theta: [2.5, 1.5],
    alpha_merge: [2.0, 2.0],
    growth: [1.1, 1.01],
};

fn of_preset(preset: Preset, [tuned, released]: [f64; 2]) -> Result<Value, Error> {
    let is_released = preset == Preset::Released;
    Ok(Value::Number(if is_released { released } else { tuned }))
}

const ALPHA_CUT: Constant = Constant {
    default: |preset, _| of_preset(preset, CHOSEN.alpha_theta),
    ..params::ALPHA_THETA
};

const ALPHA_MERGE: Constant = Constant::new(
    "alpha_merge",
    "Clusters of different servers are joined if their estimates differ by less than X times the sum of their radii F(T)",
    Range::NOT_NEGATIVE,
    |preset, _| of_preset(preset, CHOSEN.alpha_merge),
);

const BETA_SCALE: Constant = Constant {
    default: |preset, setup| match preset {
        Preset::Released => Ok(Value::Number(0.5)),
        _ => (params::BETA_SCALE.default)(preset, setup),
    },
    ..params::BETA_SCALE
};

const JOINS: Constant = Constant {
    advanced: true,
    ..Constant::new(
        "joins",
        "Whether clusters are joined if no two of them differ (all), or are left apart then, as in the public code (unless-all)",
        Range::OneOf(&["all", "unless-all"]),
        |_, _| Ok(Value::Choice("all")),
    )
};

const SERVERS: Constant = Constant::new(
    "servers",
    "The number of servers; each user is at home on one, by a hash of the order of appearance",
    Range::whole(1.0, 1000.0, "a whole number from 1 to 1000"),
    |_, _| Ok(Value::Number(5.0)),
);

const GROWTH: Range = Range::between(1.0, f64::MAX, "at least 1, and finite");

const UPLOAD: Constant = Constant::new(
    "upload_growth",
    "A cluster of a server uploads new observations if they make the determinant of its matrix X times as large",
    GROWTH,
    |preset, _| of_preset(preset, CHOSEN.growth),
);

const DOWNLOAD: Constant = Constant::new(
    "download_growth",
    "A cluster of a server is sent the global sums if the determinant of their matrix is X times as large",
    GROWTH,
    |preset, _| of_preset(preset, CHOSEN.growth),
);

fn new(setup: &Setup<'_>, values: &Values) -> Result<Box<dyn Policy>, Error> {
    setup.users.declared()?;
    let number = |name| values.number(name).unwrap_or(0.0);
    let constants = Constants {
        servers: number("servers") as u64,
        alpha_cut: number("alpha_theta"),
        alpha_join: number("alpha_merge"),
        joins_all: values.choice(JOINS.name) == "all",
        upload: libm::log(number("upload_growth")),
        download: libm::log(number("download_growth")),
        noise: privacy::scale(values),
    };
    let params = Params::from_values(values);
    Ok(Box::new(Fclub::new(
        setup.dim, &params, constants, setup.seed,
    )?))
}

/// `fclub`
pub static SPEC: Spec = Spec {
    name: "fclub",
    title: "FCLUB",
    summary: "CLUB on several servers that rarely share sums, with privacy on demand",
    citation: "Liu, Zhao, Yu, Li and Lui, UAI 2022",
    colors: ["#5E4FA2", "#A99BE0"],
    revision: 3,
    presets: &[Preset::Tuned, Preset::Released],
    constants: &[
        ALPHA_CUT,
        ALPHA_MERGE,
        JOINS,
        params::BETA,
        BETA_SCALE,
        params::INDEX,
        SERVERS,
        UPLOAD,
        DOWNLOAD,
        privacy::EPSILON,
        privacy::DELTA,
    ],
    can: Abilities::NONE,
    new,
    load: None,
    gather: None,
};
