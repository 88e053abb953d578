//! COFIBA: clusters of items, and for each of them clusters of users.
//!
//! Items are the nodes of a graph whose connected components are the clusters of items. Each cluster of items has a
//! graph of users. A user is scored on an item from the sums of their connected component in the graph of the item's
//! cluster. Two users agree about an item if their means lie within the sum of their widths. After a reward:
//! 1. in the graph of the item's cluster, the edges from the user to users who do not agree about the item are cut;
//! 2. the edges from the item to items about which a different set of users agrees with the user are cut;
//! 3. clusters of items that this parts get graphs of users of their own, in which all users are connected.
//!
//! After Li, Karatzoglou and Gentile: "Collaborative Filtering Bandits", SIGIR 2016. The steps were recalled, not read;
//! the public drafts differ from them and from each other.
//!
//! # Decisions
//! - All graphs are complete at first.
//! - The index and the widths grow with √ln(t + 1) (`log_index.rs`): α in the index, α₂ = `alpha_edges` in the tests.
//! - Step 2 compares the sets of all users who agree, not of neighbours in a graph.
//! - Items are known by their ids, with the features of their last reward. The policy learns of an item with its first
//!   reward. Until then the item belongs to the first cluster; then it gets edges to all known items of that cluster.
//! - Where a cluster of items is parted, the part with the lowest known item, other than that of the item shown, keeps
//!   the number and the graph of users. So items that are not yet known stay in the first cluster.
//! - Items without an id belong to the first cluster, and are never parted from it.
//! - Declared users exist from the start, others from their first reward. A newcomer is connected with all users in every
//!   graph, so that its components become one until an edge is cut again. A user who does not exist yet is served from
//!   the sums of all users.
//! - `cluster_of`, `clusters` and `estimate` report the users of the first cluster of items.
//! - `--test norm` compares estimates by F(T) as CLUB does, and as the authors' draft does. Items then never part.
//!
//! # Cost
//! Memory d² + 4d numbers a user, and 2 for each user and known item up to 256 MB; for each cluster of items 4 bytes a
//! user, n bits for each user with an edge cut, and d² + 3d numbers for each component of several users. Graphs without a
//! parted user share one set of sums. A recommendation takes O(L d²) for L items. A reward takes O(I d²) for I known
//! items, and for each item still connected with the one shown O(n), up to the first user who tells them apart. For items
//! without an id, and beyond 256 MB, it takes O(n d) an item, and O(d²) for each user whose width decides.

use std::collections::BTreeMap;
use std::io;

use super::crowd::Crowd;
use super::log_index::{self, Factor};
use crate::bytes::{self, Save, Writer};
use crate::error::{Error, check_dim};
use crate::items::{Group, ItemSet};
use crate::kernels::{self, LANES};
use crate::params::Index;
use crate::policy::{
    Change, ClusterId, Decision, ItemId, Observation, Policy, Score, UserId, check_items,
    check_round,
};
use crate::radius::{distance, radius};
use crate::roster::Roster;
use crate::spec::{Abilities, Constant, Preset, Range, Setup, Spec, Value, Values};
use crate::statistics::{Aggregate, Scratch, Shape, View};
use crate::ucb::Scores;

struct Cofiba {
    shape: Shape,
    index: Index,
    factor: Factor,
    /// The factor of the tests.
    edges: Factor,
    alpha_edges: f64,
    by_norm: bool,
    rounds: u64,
    crowd: Crowd,
    counts: Vec<u64>,
    /// G of each user, one after another.
    grams: Vec<f64>,
    /// The sums of all users.
    whole: Aggregate,
    items: Items,
    opinions: Opinions,
    /// The graph of users of each cluster of items.
    graphs: Vec<UserGraph>,
    scratch: Scratch,
}

/// The graph of items.
struct Items {
    known: Roster,
    features: ItemSet,
    /// The cluster of each item.
    labels: Vec<u32>,
    neighbours: Vec<Vec<u32>>,
}

/// The maximum number of opinions that are kept: 256 MB.
const MAX_OPINIONS: usize = 1 << 24;

/// The opinions of all users about each known item, made from their sums. A reward changes those of one user only.
struct Opinions {
    index: Index,
    /// `None` if there are more than [`MAX_OPINIONS`], or none is needed.
    rows: Option<Vec<Row>>,
}

/// The opinions of all users about one item.
#[derive(Clone)]
struct Row {
    means: Vec<f64>,
    /// Without the factor of the round.
    widths: Vec<f64>,
}

impl Opinions {
    fn row(&self, item: usize) -> Option<&Row> {
        Some(&self.rows.as_ref()?[item])
    }

    /// Makes the opinions about an item, which may be the next one.
    fn set_item(&mut self, item: usize, features: &[f64], crowd: &Crowd) {
        let Some(rows) = &mut self.rows else { return };
        let width = |slot| crowd.width(slot, features, self.index, 1.0);
        let row = Row {
            means: crowd.means(features).collect(),
            widths: (0..crowd.len()).map(width).collect(),
        };
        match rows.get_mut(item) {
            Some(old) => *old = row,
            None => rows.push(row),
        }
        self.check_room(crowd.len());
    }

    /// Makes the opinions of a user, who may be the next one.
    fn set_user(&mut self, slot: usize, view: View<'_>, items: &ItemSet) {
        let Some(rows) = &mut self.rows else { return };
        let mut scores = Scores::new();
        for group in items.groups() {
            scores.fill(self.index, view, 1.0, group);
            for (lane, row) in rows[group.first..][..group.len].iter_mut().enumerate() {
                if slot == row.means.len() {
                    row.means.push(0.0);
                    row.widths.push(0.0);
                }
                row.means[slot] = scores.mean[lane];
                row.widths[slot] = scores.width[lane];
            }
        }
        self.check_room(slot + 1);
    }

    fn check_room(&mut self, users: usize) {
        self.rows.take_if(|rows| rows.len() * users > MAX_OPINIONS);
    }
}

impl Row {
    /// The users who disagree with a user, 64 at a time.
    fn words(&self, slot: usize, weight: f64) -> impl Iterator<Item = u64> {
        let (mean, width) = (self.means[slot], self.widths[slot]);
        let all = self.means.chunks(64).zip(self.widths.chunks(64));
        all.map(move |(means, widths)| kernels::strangers(means, widths, mean, width, weight))
    }

    fn strangers(&self, slot: usize, weight: f64) -> Bits {
        Bits(self.words(slot, weight).collect())
    }

    /// Returns true if exactly these users disagree with a user.
    fn has_strangers(&self, slot: usize, weight: f64, strangers: &Bits) -> bool {
        let mut all = self.words(slot, weight).zip(&strangers.0);
        all.all(|(word, expected)| word == *expected)
    }
}

/// A graph of users, by the edges that it lacks.
#[derive(Default)]
struct UserGraph {
    cut: BTreeMap<u32, Bits>,
    /// The component of each user; empty if all users are connected.
    labels: Vec<u32>,
    /// The users of each component, and its sums if there are several.
    parts: Vec<(u32, Option<Aggregate>)>,
}

/// A set of small numbers.
#[derive(Default, Clone)]
struct Bits(Vec<u64>);

impl Bits {
    /// The empty set, with room for numbers below `limit`.
    fn of(limit: usize) -> Self {
        Self(vec![0; limit.div_ceil(64)])
    }

    fn insert(&mut self, number: usize) {
        if self.0.len() <= number / 64 {
            self.0.resize(number / 64 + 1, 0);
        }
        self.0[number / 64] |= 1 << (number % 64);
    }

    fn has(&self, number: usize) -> bool {
        let word = self.0.get(number / 64).copied().unwrap_or(0);
        word >> (number % 64) & 1 == 1
    }

    /// Takes out the numbers that are not in `keep`, or all of them, and appends them to `out`.
    fn drain_except(&mut self, keep: Option<&Bits>, out: &mut Vec<u32>) {
        for (place, word) in self.0.iter_mut().enumerate() {
            let kept = keep
                .and_then(|keep| keep.0.get(place))
                .copied()
                .unwrap_or(0);
            let mut taken = *word & !kept;
            *word &= kept;
            while taken != 0 {
                out.push(place as u32 * 64 + taken.trailing_zeros());
                taken &= taken - 1;
            }
        }
    }
}

impl UserGraph {
    /// Splits the component of a user, whose edges have been cut, into the components that are left: all of them, the
    /// largest first.
    fn split(&self, user: usize, users: usize) -> Vec<Vec<u32>> {
        let mut left = Bits::default();
        let label = self.labels.get(user);
        for other in (0..users).filter(|&other| self.labels.get(other) == label) {
            left.insert(other);
        }
        let mut components = Vec::new();
        while let Some(place) = left.0.iter().position(|&word| word != 0) {
            let first = place * 64 + left.0[place].trailing_zeros() as usize;
            left.0[place] &= left.0[place] - 1;
            let mut component = vec![first as u32];
            let mut next = 0;
            while next < component.len() {
                let cut = self.cut.get(&component[next]);
                left.drain_except(cut, &mut component);
                next += 1;
            }
            components.push(component);
        }
        components.sort_by_key(|component| std::cmp::Reverse(component.len()));
        components
    }
}

impl Cofiba {
    fn new(setup: &Setup<'_>, values: &Values) -> Result<Self, Error> {
        let shape = Shape {
            dim: check_dim(setup.dim)?,
        };
        let crowd = Crowd::new(shape, setup.users)?;
        let alpha_edges = values.number(ALPHA_EDGES.name).unwrap_or(0.0);
        let (index, by_norm) = (log_index::index(values), values.choice(TEST.name) == "norm");
        Ok(Self {
            shape,
            index,
            factor: Factor::from_values(values),
            edges: Factor::Log(alpha_edges),
            alpha_edges,
            by_norm,
            rounds: 0,
            counts: vec![0; crowd.len()],
            grams: vec![0.0; crowd.len() * shape.gram()],
            crowd,
            whole: Aggregate::new(shape),
            items: Items {
                known: Roster::default(),
                features: ItemSet::new(shape.dim)?,
                labels: Vec::new(),
                neighbours: Vec::new(),
            },
            opinions: Opinions {
                index,
                rows: (!by_norm).then(Vec::new),
            },
            graphs: vec![UserGraph::default()],
            scratch: Scratch::new(shape),
        })
    }

    /// The cluster of an item.
    fn label(&self, id: Option<ItemId>) -> usize {
        let item = id.and_then(|id| self.items.known.slot(id));
        item.map_or(0, |item| self.items.labels[item] as usize)
    }

    /// The sums that a user is served from in a cluster of items.
    fn view(&self, slot: Option<usize>, label: usize) -> View<'_> {
        let graph = &self.graphs[label];
        match slot.and_then(|slot| graph.labels.get(slot)) {
            Some(&part) => match &graph.parts[part as usize].1 {
                Some(sums) => sums.view(),
                None => self.crowd.view(slot),
            },
            None => self.whole.view(),
        }
    }

    /// Scores every item from the sums of its own cluster.
    fn score(&self, user: UserId, items: &ItemSet, mut visit: impl FnMut(usize, Score)) {
        let (slot, weight) = (self.crowd.slot(user), self.factor.after(self.rounds));
        let mut scores = Scores::new();
        for group in items.groups() {
            let label_of = |lane: usize| self.label(items.id(group.first + lane));
            let first = label_of(0);
            if (1..group.len).all(|lane| label_of(lane) == first) {
                scores.fill(self.index, self.view(slot, first), weight, group);
                (0..group.len).for_each(|lane| visit(group.first + lane, scores.of(lane)));
                continue;
            }
            let mut lone = vec![0.0; self.shape.dim * LANES];
            for lane in 0..group.len {
                let features = group.features.iter().skip(lane).step_by(group.width);
                for (target, x) in lone.iter_mut().step_by(LANES).zip(features) {
                    *target = *x;
                }
                let alone = Group {
                    first: 0,
                    len: 1,
                    width: LANES,
                    features: &lone,
                };
                scores.fill(self.index, self.view(slot, label_of(lane)), weight, alone);
                visit(group.first + lane, scores.of(0));
            }
        }
    }

    fn admit(&mut self, user: UserId) -> usize {
        self.counts.push(0);
        self.grams
            .extend(std::iter::repeat_n(0.0, self.shape.gram()));
        for graph in &mut self.graphs {
            graph.labels.clear();
            graph.parts.clear();
        }
        let slot = self.crowd.admit(user);
        let view = self.crowd.view(Some(slot));
        self.opinions.set_user(slot, view, &self.items.features);
        slot
    }

    fn update(&mut self, observation: &Observation<'_>) {
        let Observation { item, reward, .. } = *observation;
        let slot = match self.crowd.slot(observation.user) {
            Some(slot) => slot,
            None => self.admit(observation.user),
        };
        self.crowd.observe(slot, item, reward);
        self.counts[slot] += 1;
        let gram = &mut self.grams[slot * self.shape.gram()..][..self.shape.gram()];
        kernels::add_outer(self.shape.dim, gram, item);
        self.whole.observe(&mut self.scratch, item, reward);
        for graph in &mut self.graphs {
            if let Some(&part) = graph.labels.get(slot)
                && let Some(sums) = &mut graph.parts[part as usize].1
            {
                sums.observe(&mut self.scratch, item, reward);
            }
        }
        let view = self.crowd.view(Some(slot));
        self.opinions.set_user(slot, view, &self.items.features);
        if let Some(id) = observation.id
            && let Some(changed) = self.items.observe(id, item)
        {
            self.opinions.set_item(changed, item, &self.crowd);
        }
    }

    /// For each user in order, whether they disagree with a user about an item.
    fn disagreements<'a>(
        &'a self,
        slot: usize,
        item: &'a [f64],
        weight: f64,
    ) -> impl Iterator<Item = bool> {
        let own = self.crowd.view(Some(slot)).estimate;
        let mean = self.crowd.mean(slot, item);
        let width = self.crowd.width(slot, item, self.index, weight);
        let square = kernels::dot(item, item);
        // No width is larger: S is at least I.
        let largest = weight
            * match self.index {
                Index::Norm => square.sqrt(),
                Index::SquaredNorm => square,
            };
        let own_radius = radius(self.counts[slot]);
        let means = self.crowd.means(item).enumerate();
        means.map(move |(other, their_mean)| {
            if other == slot {
                return false;
            }
            if self.by_norm {
                let apart = distance(own, self.crowd.view(Some(other)).estimate);
                return apart > self.alpha_edges * (own_radius + radius(self.counts[other]));
            }
            let gap = (mean - their_mean).abs();
            gap > width + largest
                || gap > width && gap > width + self.crowd.width(other, item, self.index, weight)
        })
    }

    /// Steps 1 to 3 after a reward.
    fn cut(&mut self, slot: usize, id: Option<ItemId>, item: &[f64], weight: f64) {
        let label = self.label(id);
        let shown = id.and_then(|id| self.items.known.slot(id));
        let strangers = match shown.and_then(|shown| self.opinions.row(shown)) {
            Some(row) => row.strangers(slot, weight),
            None => {
                let mut strangers = Bits::of(self.crowd.len());
                let all = self.disagreements(slot, item, weight).enumerate();
                all.filter(|&(_, is_stranger)| is_stranger)
                    .for_each(|(other, _)| strangers.insert(other));
                strangers
            }
        };
        self.cut_users(slot, label, &strangers);
        if let Some(shown) = shown
            && !self.by_norm
        {
            self.cut_items(slot, shown, &strangers, weight);
        }
    }

    fn cut_users(&mut self, slot: usize, label: usize, strangers: &Bits) {
        let users = self.crowd.len();
        let graph = &mut self.graphs[label];
        let mut is_cut = false;
        for other in (0..users).filter(|&other| strangers.has(other)) {
            let row = graph.cut.entry(slot as u32).or_default();
            if !row.has(other) {
                is_cut = true;
                row.insert(other);
                graph.cut.entry(other as u32).or_default().insert(slot);
            }
        }
        if !is_cut {
            return;
        }
        let components = graph.split(slot, users);
        if components.len() == 1 {
            return;
        }
        if graph.labels.is_empty() {
            graph.labels = vec![0; users];
            graph.parts = vec![(users as u32, Some(self.whole.clone()))];
        }
        // The largest keeps the sums, less those of the others.
        let part = graph.labels[slot] as usize;
        let mut rest = graph.parts[part].1.take();
        for component in &components[1..] {
            let mut sums = Aggregate::new(self.shape);
            for &user in component {
                let gram = &self.grams[user as usize * self.shape.gram()..][..self.shape.gram()];
                let moment = self.crowd.view(Some(user as usize)).moment;
                sums.add_sums(gram, moment, self.counts[user as usize]);
                graph.labels[user as usize] = graph.parts.len() as u32;
            }
            if let Some(rest) = &mut rest {
                rest.remove_aggregate(&sums);
            }
            // A user alone is served from their own sums.
            let has_sums = component.len() > 1;
            if has_sums {
                sums.factorise(&mut self.scratch);
            }
            graph
                .parts
                .push((component.len() as u32, has_sums.then_some(sums)));
        }
        let left = components[0].len();
        let mut rest = rest.filter(|_| left > 1);
        if let Some(rest) = &mut rest {
            rest.factorise(&mut self.scratch);
        }
        graph.parts[part] = (left as u32, rest);
    }

    fn cut_items(&mut self, slot: usize, shown: usize, strangers: &Bits, weight: f64) {
        let before = self.items.neighbours[shown].len();
        let mut kept = std::mem::take(&mut self.items.neighbours[shown]);
        kept.retain(|&other| match self.opinions.row(other as usize) {
            Some(row) => row.has_strangers(slot, weight, strangers),
            None => {
                let features: Vec<f64> = self.items.features.item(other as usize).collect();
                let mut all = self.disagreements(slot, &features, weight).enumerate();
                all.all(|(user, is_stranger)| is_stranger == strangers.has(user))
            }
        });
        let is_cut = kept.len() < before;
        self.items.neighbours[shown] = kept;
        if is_cut {
            let clusters = self.items.part(shown, self.graphs.len());
            self.graphs.resize_with(clusters, UserGraph::default);
        }
    }
}

impl Items {
    /// The features of an item; it may be new. Returns the item if they have changed.
    fn observe(&mut self, id: ItemId, features: &[f64]) -> Option<usize> {
        if let Some(item) = self.known.slot(id) {
            let is_changed = self.features.item(item).zip(features).any(|(a, b)| a != *b);
            self.features
                .replace(item, features)
                .expect("the features have been checked");
            return is_changed.then_some(item);
        }
        let item = self.known.admit(id) as u32;
        let first: Vec<u32> = (0..item)
            .filter(|&other| self.labels[other as usize] == 0)
            .collect();
        for &other in &first {
            self.neighbours[other as usize].push(item);
        }
        self.neighbours.push(first);
        self.labels.push(0);
        self.features
            .push(features)
            .expect("the features have been checked, and there are not too many");
        Some(item as usize)
    }

    /// Parts the cluster of an item that has lost edges; `clusters` is the number of clusters. Returns that after it.
    fn part(&mut self, shown: usize, mut clusters: usize) -> usize {
        let label = self.labels[shown];
        let members: Vec<u32> = (0..self.labels.len() as u32)
            .filter(|&item| self.labels[item as usize] == label)
            .collect();
        let kept = self.neighbours[shown].clone();
        for &other in &members {
            if other as usize != shown && !kept.contains(&other) {
                self.neighbours[other as usize].retain(|&item| item as usize != shown);
            }
        }
        // Components by their lowest item, that of the item shown last.
        let mut is_reached = vec![false; self.labels.len()];
        let mut components: Vec<Vec<u32>> = Vec::new();
        for &start in std::iter::once(&(shown as u32)).chain(&members) {
            if std::mem::replace(&mut is_reached[start as usize], true) {
                continue;
            }
            let mut component = vec![start];
            let mut next = 0;
            while next < component.len() {
                for &item in &self.neighbours[component[next] as usize] {
                    if !std::mem::replace(&mut is_reached[item as usize], true) {
                        component.push(item);
                    }
                }
                next += 1;
            }
            components.push(component);
        }
        components.rotate_left(1);
        for component in &components[1..] {
            for &item in component {
                self.labels[item as usize] = clusters as u32;
            }
            clusters += 1;
        }
        clusters
    }
}

impl Policy for Cofiba {
    fn dim(&self) -> usize {
        self.shape.dim
    }

    fn rounds(&self) -> u64 {
        self.rounds
    }

    fn recommend(&self, user: UserId, items: &ItemSet) -> Result<Decision, Error> {
        check_items(items, self.shape.dim)?;
        let mut best: Option<Decision> = None;
        self.score(user, items, |index, score| {
            if best.is_none_or(|best| score.score > best.score.score) {
                best = Some(Decision { index, score });
            }
        });
        best.ok_or(Error::NoCandidates)
    }

    fn explain(&self, user: UserId, items: &ItemSet, scores: &mut Vec<Score>) -> Result<(), Error> {
        check_items(items, self.shape.dim)?;
        scores.clear();
        self.score(user, items, |_, score| scores.push(score));
        Ok(())
    }

    fn learn_round(
        &mut self,
        round: &[Observation<'_>],
        _changes: &mut Vec<Change>,
    ) -> Result<(), Error> {
        check_round(round, self.shape.dim)?;
        self.crowd.check_room(round)?;
        self.items.known.check_room(round)?;
        let weight = self.edges.after(self.rounds);
        self.rounds += 1;
        for observation in round {
            self.update(observation);
        }
        for observation in round {
            if let Some(slot) = self.crowd.slot(observation.user) {
                self.cut(slot, observation.id, observation.item, weight);
            }
        }
        Ok(())
    }

    fn cluster_of(&self, user: UserId) -> Option<ClusterId> {
        let slot = self.crowd.slot(user)?;
        let part = self.graphs[0].labels.get(slot).copied().unwrap_or(0);
        Some(ClusterId::from(part) + 1)
    }

    fn clusters(&self) -> usize {
        self.graphs[0].parts.len().max(1)
    }

    fn estimate(&self, user: UserId) -> Option<Vec<f64>> {
        Some(self.view(self.crowd.slot(user), 0).estimate.to_vec())
    }

    fn digest(&self) -> u64 {
        bytes::digest(self)
    }

    fn state_bytes(&self) -> Option<u64> {
        Some(bytes::length(self))
    }
}

impl Save for Cofiba {
    const MAGIC: u64 = u64::from_le_bytes(*b"sclub co");

    fn save_words(&self, writer: &mut Writer<'_>) -> io::Result<()> {
        writer.word(self.rounds)?;
        self.crowd.save(writer)?;
        writer.words(self.counts.iter().copied())?;
        writer.numbers(&self.grams)?;
        self.whole.save(writer)?;
        let small = |numbers: &[u32], writer: &mut Writer<'_>| {
            writer.words(numbers.iter().map(|&number| u64::from(number)))
        };
        writer.words(self.items.known.users().iter().copied())?;
        for item in 0..self.items.features.len() {
            let features: Vec<f64> = self.items.features.item(item).collect();
            writer.numbers(&features)?;
        }
        small(&self.items.labels, writer)?;
        for neighbours in &self.items.neighbours {
            small(neighbours, writer)?;
        }
        for graph in &self.graphs {
            small(&graph.labels, writer)?;
            for (&user, row) in &graph.cut {
                writer.word(u64::from(user))?;
                writer.words(row.0.iter().copied())?;
            }
            for (users, sums) in &graph.parts {
                writer.word(u64::from(*users))?;
                if let Some(sums) = sums {
                    sums.save(writer)?;
                }
            }
        }
        Ok(())
    }
}

/// α and α₂.
const TUNED: [f64; 2] = [0.2, 0.5];
const RELEASED: [f64; 2] = [1.0, 1.0];

const fn of(preset: Preset) -> [f64; 2] {
    match preset {
        Preset::Released => RELEASED,
        _ => TUNED,
    }
}

const ALPHA: Constant = Constant {
    default: |preset, _| Ok(Value::Number(of(preset)[0])),
    ..log_index::ALPHA
};

const ALPHA_EDGES: Constant = Constant::new(
    "alpha_edges",
    "Two users agree about an item if their means differ by at most the sum of their widths; in round t a width is X \
     times the root of ln(t + 1) times the uncertainty",
    Range::NOT_NEGATIVE,
    |preset, _| Ok(Value::Number(of(preset)[1])),
);

const TEST: Constant = Constant {
    advanced: true,
    ..Constant::new(
        "test",
        "The test by which users agree: by the means of an item, or by the norm of the difference of their estimates, \
         as club does",
        Range::OneOf(&["item", "norm"]),
        |_, _| Ok(Value::Choice("item")),
    )
};

/// `cofiba`
pub static SPEC: Spec = Spec {
    name: "cofiba",
    title: "COFIBA",
    summary: "Clusters of items, and for each of them clusters of users who agree about its items",
    citation: "after Li, Karatzoglou and Gentile, SIGIR 2016",
    colors: ["#C2185B", "#F48FB1"],
    revision: 2,
    presets: &[Preset::Tuned, Preset::Released],
    constants: &[ALPHA, log_index::BETA, log_index::INDEX, ALPHA_EDGES, TEST],
    can: Abilities {
        item_ids: true,
        ..Abilities::NONE
    },
    new: |setup, values| Ok(Box::new(Cofiba::new(setup, values)?)),
    load: None,
    gather: None,
};
