//! (S, b, T) of a user or of a cluster: observe, add, remove, estimate.
//!
//! | symbol | name | meaning |
//! |---|---|---|
//! | S | | I + Σ x xᵀ over the observations |
//! | b | `moment` | Σ y x |
//! | T | `count` | number of observations |
//! | θ̂ | `estimate` | S⁻¹ b |
//! | G | `gram` | S − I = Σ x xᵀ, lower triangle packed by rows |
//! | M, g | `factor`, `scale` | S⁻¹ = Mᵀ diag(g) M, M unit lower triangular |
//!
//! **A user** keeps one *block*: M, g, b and θ̂, d(d+5)/2 numbers. S itself is not stored. The update
//! (Bierman's, [`crate::kernels`]) works on the triangular factors of S⁻¹, so S⁻¹ stays positive
//! definite whatever happens, errors grow with √cond(S) where Sherman–Morrison's grow with cond(S),
//! and S comes back from the factors when users are put together or taken apart ([`Scratch::gram_of`]).
//!
//! **A set of users** keeps an [`Aggregate`]: a block and beside it the sums G, b and T themselves.
//! The block is remade from the sums after every change of the membership, and after every
//! [`REFACTORISE_EVERY`] observations: that is the safeguard against drift in long runs.

use crate::bytes::{Reader, Writer, bad};
use crate::error::LoadError;
use crate::kernels;
use crate::policy::MAX_ROUNDS;

/// Observations after which an aggregate's factors are remade from its sums.
pub const REFACTORISE_EVERY: u32 = 4096;

/// Sizes of the parts of a block for one dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub dim: usize,
}

impl Shape {
    /// Numbers in M.
    pub fn triangle(self) -> usize {
        self.dim * (self.dim - 1) / 2
    }

    /// Numbers in G.
    pub fn gram(self) -> usize {
        self.dim * (self.dim + 1) / 2
    }

    /// Numbers in a block. Whole groups of lanes are read at the end of M, so at least one follows.
    pub fn block(self) -> usize {
        self.triangle() + (3 * self.dim).max(kernels::LANES)
    }

    /// The block before any observation: S = I, b = 0.
    pub fn empty_block(self) -> Box<[f64]> {
        let mut block = vec![0.0; self.block()].into_boxed_slice();
        self.reset(&mut block);
        block
    }

    /// Resets a block to the state without observations.
    pub fn reset(self, block: &mut [f64]) {
        block.fill(0.0);
        block[self.triangle()..self.triangle() + self.dim].fill(1.0);
    }

    /// Checks a block that was loaded.
    ///
    /// # Errors
    /// If a number is not finite, or an entry of g is not positive.
    pub fn check(self, block: &[f64]) -> Result<(), LoadError> {
        let is_positive = self.view(block).scale.iter().all(|&scale| scale > 0.0);
        match is_positive && block.iter().all(|number| number.is_finite()) {
            true => Ok(()),
            false => Err(bad("a block is not valid").into()),
        }
    }

    /// Adds `change` to the reward of an observation of an item that is in a block.
    pub fn correct(self, block: &mut [f64], item: &[f64], change: f64) {
        let (factor, rest) = block.split_at_mut(self.triangle());
        let (scale, rest) = rest.split_at_mut(self.dim);
        let (moment, estimate) = rest.split_at_mut(self.dim);
        kernels::add_scaled(moment, change, item);
        kernels::solve(self.dim, factor, scale, moment, &mut estimate[..self.dim]);
    }

    #[inline]
    pub fn view(self, block: &[f64]) -> View<'_> {
        let (factor, rest) = block.split_at(self.triangle());
        let (scale, rest) = rest.split_at(self.dim);
        let (moment, rest) = rest.split_at(self.dim);
        View {
            factor,
            scale,
            moment,
            estimate: &rest[..self.dim],
        }
    }
}

/// The named parts of a block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a> {
    pub factor: &'a [f64],
    pub scale: &'a [f64],
    pub moment: &'a [f64],
    pub estimate: &'a [f64],
}

impl View<'_> {
    /// ln |S|
    pub fn log_determinant(self) -> f64 {
        -self.scale.iter().map(|&g| libm::log(g)).sum::<f64>()
    }
}

/// Memory for the cubic operations, kept between them.
#[derive(Debug, Clone)]
pub(crate) struct Scratch {
    shape: Shape,
    lower: Box<[f64]>,
    gram: Box<[f64]>,
}

impl Scratch {
    pub fn new(shape: Shape) -> Self {
        Self {
            shape,
            lower: vec![0.0; shape.triangle()].into_boxed_slice(),
            gram: vec![0.0; shape.gram()].into_boxed_slice(),
        }
    }

    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// G of a block.
    pub fn gram_of(&mut self, block: &[f64]) -> &[f64] {
        let view = self.shape.view(block);
        kernels::gram(
            self.shape.dim,
            view.factor,
            view.scale,
            &mut self.lower,
            &mut self.gram,
        );
        &self.gram
    }

    /// The factors and the estimate of a block from G and the moment that the block holds.
    fn factorise(&mut self, gram: &[f64], block: &mut [f64]) {
        let dim = self.shape.dim;
        let (factor, rest) = block.split_at_mut(self.shape.triangle());
        let (scale, rest) = rest.split_at_mut(dim);
        let (moment, estimate) = rest.split_at_mut(dim);
        if !kernels::factorise(dim, gram, 1.0, &mut self.lower, factor, scale) {
            // Only where G = Σ x xᵀ has been rounded below −I, which takes observations some 10^16
            // times larger than those that are left: the difference then has no accuracy.
            factor.fill(0.0);
            scale.fill(1.0);
        }
        kernels::solve(dim, factor, scale, moment, estimate);
    }
}

/// The sums over a set of users, with the factors and the estimate that scoring needs.
#[derive(Debug, Clone)]
pub(crate) struct Aggregate {
    shape: Shape,
    gram: Box<[f64]>,
    block: Box<[f64]>,
    count: u64,
    since_factorised: u32,
}

impl Aggregate {
    /// The sums over no observation.
    pub fn new(shape: Shape) -> Self {
        Self {
            shape,
            gram: vec![0.0; shape.gram()].into_boxed_slice(),
            block: shape.empty_block(),
            count: 0,
            since_factorised: 0,
        }
    }

    /// The sums of one user's block.
    pub fn of_block(scratch: &mut Scratch, block: &[f64], count: u64) -> Self {
        let shape = scratch.shape;
        Self {
            shape,
            gram: scratch.gram_of(block).into(),
            block: block.into(),
            count,
            since_factorised: 0,
        }
    }

    /// Writes everything down.
    pub fn save(&self, writer: &mut Writer<'_>) -> std::io::Result<()> {
        writer.word(self.count)?;
        writer.word(u64::from(self.since_factorised))?;
        writer.numbers(&self.gram)?;
        writer.numbers(&self.block)
    }

    /// Loads the words that [`Aggregate::save`] wrote.
    pub fn load(shape: Shape, reader: &mut Reader<'_>) -> Result<Self, LoadError> {
        let mut sums = Self::new(shape);
        sums.count = reader.at_most(MAX_ROUNDS)?;
        sums.since_factorised = reader.at_most(u64::from(REFACTORISE_EVERY))? as u32;
        reader.fill(&mut sums.gram)?;
        reader.fill(&mut sums.block)?;
        Ok(sums)
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    #[inline]
    pub fn block(&self) -> &[f64] {
        &self.block
    }

    pub fn gram(&self) -> &[f64] {
        &self.gram
    }

    #[inline]
    pub fn view(&self) -> View<'_> {
        self.shape.view(&self.block)
    }

    /// One observation. G and b are summed; the factors follow incrementally.
    #[inline]
    pub fn observe(&mut self, scratch: &mut Scratch, item: &[f64], reward: f64) {
        kernels::add_outer(self.shape.dim, &mut self.gram, item);
        kernels::observe(self.shape.dim, &mut self.block, item, reward);
        self.count += 1;
        self.since_factorised += 1;
        if self.since_factorised >= REFACTORISE_EVERY {
            self.factorise(scratch);
        }
    }

    /// Adds `change` to the reward of an observation of an item.
    pub fn correct(&mut self, item: &[f64], change: f64) {
        self.shape.correct(&mut self.block, item, change);
    }

    /// One observation where the factors are older than the sums: they are remade.
    pub fn observe_anew(&mut self, scratch: &mut Scratch, item: &[f64], reward: f64) {
        kernels::add_outer(self.shape.dim, &mut self.gram, item);
        let start = self.shape.triangle() + self.shape.dim;
        for (sum, feature) in self.block[start..].iter_mut().zip(item) {
            *sum = reward.mul_add(*feature, *sum);
        }
        self.count += 1;
        self.factorise(scratch);
    }

    /// Adds a user's sums. The factors are remade by the caller's [`Aggregate::factorise`].
    pub fn add_block(&mut self, scratch: &mut Scratch, block: &[f64], count: u64) {
        self.add(
            scratch.gram_of(block),
            self.shape.view(block).moment,
            count,
            1.0,
        );
    }

    /// Takes a user's sums out. The factors are remade by the caller's [`Aggregate::factorise`].
    pub fn remove_block(&mut self, scratch: &mut Scratch, block: &[f64], count: u64) {
        self.add(
            scratch.gram_of(block),
            self.shape.view(block).moment,
            count,
            -1.0,
        );
    }

    /// Adds G, b and T. The factors are remade by the caller's [`Aggregate::factorise`].
    pub fn add_sums(&mut self, gram: &[f64], moment: &[f64], count: u64) {
        self.add(gram, moment, count, 1.0);
    }

    /// Takes G, b and T out. The factors are remade by the caller's [`Aggregate::factorise`].
    pub fn remove_sums(&mut self, gram: &[f64], moment: &[f64], count: u64) {
        self.add(gram, moment, count, -1.0);
    }

    /// Adds another set's sums. The factors are remade by the caller's [`Aggregate::factorise`].
    pub fn add_aggregate(&mut self, other: &Aggregate) {
        self.add(&other.gram, other.view().moment, other.count, 1.0);
    }

    /// Takes another set's sums out. The factors are remade by the caller's
    /// [`Aggregate::factorise`].
    pub fn remove_aggregate(&mut self, other: &Aggregate) {
        self.add(&other.gram, other.view().moment, other.count, -1.0);
    }

    fn add(&mut self, gram: &[f64], moment: &[f64], count: u64, sign: f64) {
        for (sum, term) in self.gram.iter_mut().zip(gram) {
            *sum += sign * term;
        }
        let start = self.shape.triangle() + self.shape.dim;
        for (sum, term) in self.block[start..].iter_mut().zip(moment) {
            *sum += sign * term;
        }
        self.count = if sign > 0.0 {
            self.count + count
        } else {
            self.count - count
        };
    }

    /// Remakes the factors and the estimate from the sums.
    pub fn factorise(&mut self, scratch: &mut Scratch) {
        if self.count == 0 {
            // No observation is left: the sums hold rounding errors only.
            self.gram.fill(0.0);
            self.shape.reset(&mut self.block);
        } else {
            scratch.factorise(&self.gram, &mut self.block);
        }
        self.since_factorised = 0;
    }
}

/// Blocks of many users in memory that grows by small chunks and never moves.
#[derive(Debug, Clone)]
pub(crate) struct Blocks {
    shape: Shape,
    /// A chunk holds 2 to this power blocks.
    chunk_bits: u32,
    chunks: Vec<Box<[f64]>>,
    len: usize,
    empty: Box<[f64]>,
}

impl Blocks {
    /// Numbers a chunk holds at the most, as long as one block fits.
    const CHUNK: usize = 1 << 15;

    pub fn new(shape: Shape) -> Self {
        Self {
            shape,
            chunk_bits: (Self::CHUNK / shape.block()).max(1).ilog2(),
            chunks: Vec::new(),
            len: 0,
            empty: shape.empty_block(),
        }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Adds an empty block.
    pub fn push(&mut self) {
        if self.len == self.chunks.len() << self.chunk_bits {
            let chunk = vec![0.0; self.shape.block() << self.chunk_bits];
            self.chunks.push(chunk.into_boxed_slice());
        }
        let slot = self.len;
        self.len += 1;
        let (chunk, start) = self.place(slot);
        let size = self.shape.block();
        self.chunks[chunk][start..start + size].copy_from_slice(&self.empty);
    }

    /// Takes a block out; the last one moves to its slot, and nothing of it stays behind.
    pub fn swap_remove(&mut self, slot: usize) {
        let last = self.len - 1;
        if slot != last {
            let moved = self.get(last).to_vec();
            self.get_mut(slot).copy_from_slice(&moved);
        }
        self.get_mut(last).fill(0.0);
        self.len = last;
        // A chunk without users is freed.
        self.chunks
            .truncate(self.len.div_ceil(1 << self.chunk_bits));
    }

    /// The block of a user without observations.
    pub fn empty(&self) -> &[f64] {
        &self.empty
    }

    #[inline]
    fn place(&self, slot: usize) -> (usize, usize) {
        let inside = slot & ((1 << self.chunk_bits) - 1);
        (slot >> self.chunk_bits, inside * self.shape.block())
    }

    #[inline]
    pub fn get(&self, slot: usize) -> &[f64] {
        let (chunk, start) = self.place(slot);
        &self.chunks[chunk][start..start + self.shape.block()]
    }

    #[inline]
    pub fn get_mut(&mut self, slot: usize) -> &mut [f64] {
        let (chunk, start) = self.place(slot);
        &mut self.chunks[chunk][start..start + self.shape.block()]
    }

    #[inline]
    pub fn view(&self, slot: usize) -> View<'_> {
        self.shape.view(self.get(slot))
    }
}
