//! Clusters: tight ones at centres μ_k, beside the background for those who are in none.

use std::io;
use std::sync::Mutex;

use super::background::Background;
use super::panel::Panel;
use super::sums::Layout;
use super::symmetric::{self, Factors, row_start};
use crate::bytes::{Reader, Writer, bad};
use crate::error::LoadError;
use crate::kernels::batch::{AddFour, Products};
use crate::kernels::{self, LANES};
use crate::policy::{ClusterId, MAX_ROUNDS};
use crate::refit::Workers;

/// Weights below this are set to 0: a user has few clusters.
const MIN_WEIGHT: f64 = 1e-5;

/// The label of a cluster that no fit has labelled yet.
pub(crate) const UNLABELLED: ClusterId = 0;

/// A cluster.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Centre {
    pub label: ClusterId,
    /// μ_k
    pub mean: Vec<f64>,
    /// π_k
    pub share: f64,
}

/// Clusters with their shares; the background has the rest.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Mixture {
    pub centres: Vec<Centre>,
    /// π_0
    pub none: f64,
}

/// The expectation step of EM: sums over users, weighted by the probability of each cluster.
pub(crate) struct Expectation {
    /// Σ_i ln Σ_k π_k e^{L_ik}
    pub total: f64,
    /// Σ_i w_ik · row_i of each cluster.
    rows: Vec<f64>,
    /// Σ_i w_ik² · row_i of each cluster.
    squared: Vec<f64>,
    /// Σ_i w_ik
    pub weights: Vec<f64>,
    /// −Σ_i ln(1 − w_ik): the log-likelihood lost without the cluster.
    pub explains: Vec<f64>,
    /// w_i0 of each user.
    pub none: Vec<f64>,
    /// Each user's most probable cluster, counted from 1; 0 if that is none.
    pub most: Vec<u32>,
    /// Users whose most probable cluster has ½ or more.
    pub placed: u64,
    /// The number of users.
    pub users: u64,
    /// Σ_i w_i0
    pub whole_none: f64,
}

/// For each cluster, the coefficients that a row is multiplied by to give L_k = (μᵀb − ½μᵀGμ)/v; clusters in the lanes
/// ([`Products`]).
pub(crate) fn coefficients<'a>(
    layout: Layout,
    means: impl ExactSizeIterator<Item = &'a [f64]>,
    noise: f64,
) -> Vec<f64> {
    let width = means.len().next_multiple_of(LANES);
    let mut all = vec![0.0; width * layout.count()];
    for (k, mean) in means.enumerate() {
        for i in 0..layout.dim {
            let start = row_start(i);
            for j in 0..i {
                all[(start + j) * width + k] = -mean[i] * mean[j] / noise;
            }
            all[(start + i) * width + k] = -0.5 * mean[i] * mean[i] / noise;
            all[(layout.gram() + i) * width + k] = mean[i] / noise;
        }
    }
    all
}

/// Turns logarithms into weights that sum to 1 and returns the logarithm of their sum.
#[inline]
pub(crate) fn normalise(logs: &mut [f64]) -> f64 {
    let top = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    logs.iter_mut().for_each(|log| *log -= top);
    kernels::exponentials(logs);
    let sum: f64 = logs.iter().sum();
    let inverse = 1.0 / sum;
    logs.iter_mut().for_each(|weight| *weight *= inverse);
    top + libm::log(sum)
}

impl Mixture {
    /// The background alone.
    pub fn none() -> Self {
        Self {
            centres: Vec::new(),
            none: 1.0,
        }
    }

    /// The E-step. `evidence` is L_0 of each user of the panel. With `detail`, also the sums that
    /// the price of a cluster, pruning and births need.
    pub fn expect(
        &self,
        panel: &Panel<'_>,
        evidence: &[f64],
        noise: f64,
        detail: bool,
        workers: &dyn Workers,
    ) -> Expectation {
        let layout = panel.layout();
        let (count, size) = (self.centres.len(), layout.row());
        let means = self.centres.iter().map(|centre| centre.mean.as_slice());
        let coefficients = coefficients(layout, means, noise);
        let mut shares = vec![libm::log(self.none)];
        shares.extend(self.centres.iter().map(|centre| libm::log(centre.share)));
        let parts: Vec<Mutex<Option<Expectation>>> =
            panel.pieces().map(|_| Mutex::new(None)).collect();
        workers.each(parts.len(), &|piece| {
            let users = panel.piece(piece);
            let evidence = &evidence[panel.start(piece)..];
            let mut part = Expectation::empty(count, size, detail);
            let width = count.next_multiple_of(LANES);
            let mut logs = vec![0.0; 4 * width];
            let mut weights = [(); 4].map(|()| vec![0.0; count + 1]);
            for (four, evidence) in users.chunks(4).zip(evidence.chunks(4)) {
                let rows: [&[f64]; 4] =
                    std::array::from_fn(|u| panel.row(four[u.min(four.len() - 1)]));
                kernels::products(Products {
                    rows,
                    coefficients: &coefficients,
                    width,
                    out: &mut logs,
                });
                for u in 0..four.len() {
                    let weights = &mut weights[u];
                    weights[0] = evidence[u] + shares[0];
                    for k in 0..count {
                        weights[k + 1] = logs[u * width + k] + shares[k + 1];
                    }
                    part.total += normalise(weights);
                    part.none.push(weights[0]);
                    let most =
                        (1..=count).fold(
                            0,
                            |best, k| {
                                if weights[k] > weights[best] { k } else { best }
                            },
                        );
                    part.most.push(most as u32);
                    part.placed += u64::from(most > 0 && weights[most] >= 0.5);
                }
                weights[four.len()..].iter_mut().for_each(|w| w.fill(0.0));
                part.add(rows, &weights, detail);
            }
            *parts[piece].lock().expect("no worker panics") = Some(part);
        });
        let mut all = Expectation::empty(count, size, detail);
        for part in parts {
            let part = part.into_inner().expect("no worker panics");
            all.merge(part.expect("every piece was done"));
        }
        all.users = all.none.len() as u64;
        all.whole_none = all.none.iter().sum();
        all
    }

    /// The M-step.
    pub fn maximise(
        &self,
        layout: Layout,
        background: &Background,
        noise: f64,
        expected: &Expectation,
    ) -> Self {
        let dim = layout.dim;
        let users = expected.users as f64;
        let rows = expected.rows.chunks_exact(layout.row());
        let mut centres = Vec::with_capacity(self.centres.len());
        let whole = users + 0.5 * (self.centres.len() + 1) as f64;
        for ((centre, row), &weight) in self.centres.iter().zip(rows).zip(&expected.weights) {
            let precision: Vec<f64> = row[..layout.gram()]
                .iter()
                .zip(&background.precision)
                .map(|(g, p)| g / noise + p)
                .collect();
            let pull: Vec<f64> = row[layout.gram()..layout.count()]
                .iter()
                .zip(&background.pull)
                .map(|(b, p)| b / noise + p)
                .collect();
            let mean = Factors::of(dim, &precision)
                .map_or_else(|| centre.mean.clone(), |factors| factors.solve(&pull));
            centres.push(Centre {
                label: centre.label,
                mean,
                share: (weight + 0.5) / whole,
            });
        }
        Self {
            centres,
            none: (expected.whole_none + 0.5) / whole,
        }
    }

    /// Occam_k of each cluster: ½(ln|C⁻¹+A_k| + ln|C|) + ½(μ_k−μ0)ᵀC⁻¹(μ_k−μ0), A_k = Σ w² G/v.
    pub fn prices(
        &self,
        layout: Layout,
        background: &Background,
        noise: f64,
        expected: &Expectation,
    ) -> Vec<f64> {
        let dim = layout.dim;
        let rows = expected.squared.chunks_exact(layout.row());
        self.centres
            .iter()
            .zip(rows)
            .map(|(centre, row)| {
                let precision: Vec<f64> = row[..layout.gram()]
                    .iter()
                    .zip(&background.precision)
                    .map(|(g, p)| g / noise + p)
                    .collect();
                let volume = Factors::of(dim, &precision).map_or(0.0, |f| f.log_determinant)
                    + background.log_determinant;
                let shift: Vec<f64> = centre
                    .mean
                    .iter()
                    .zip(&background.mean)
                    .map(|(m, c)| m - c)
                    .collect();
                let pulled = symmetric::apply(dim, &background.precision, &shift);
                0.5 * (volume + symmetric::dot(&pulled, &shift))
            })
            .collect()
    }

    /// Without one cluster: its share goes to the others.
    pub fn without(&self, gone: usize) -> Self {
        let mut rest = self.clone();
        let share = rest.centres.remove(gone).share;
        let grow = 1.0 / (1.0 - share);
        rest.none *= grow;
        rest.centres.iter_mut().for_each(|c| c.share *= grow);
        rest
    }

    /// The merges of two clusters that raise the score: the two, and the mean of both.
    pub fn merges(
        &self,
        layout: Layout,
        background: &Background,
        noise: f64,
        expected: &Expectation,
        prices: &[f64],
    ) -> Vec<(usize, usize, Vec<f64>)> {
        let dim = layout.dim;
        let count = self.centres.len();
        let pairs = self.pairs(dim, background, 2 * count);
        let information = |k: usize| -> Vec<f64> {
            let row = &expected.rows[k * layout.row()..][..layout.gram()];
            row.iter().map(|g| g / noise).collect()
        };
        let mut found: Vec<(f64, usize, usize, Vec<f64>)> = Vec::new();
        for (a, b) in pairs {
            let (of_a, of_b) = (information(a), information(b));
            let both: Vec<f64> = of_a
                .iter()
                .zip(&of_b)
                .zip(&background.precision)
                .map(|((x, y), p)| x + y + 1e-3 * p)
                .collect();
            let Some(factors) = Factors::of(dim, &both) else {
                continue;
            };
            // ½ δᵀ(A_a⁻¹ + A_b⁻¹)⁻¹ δ = ½ δᵀ A_a (A_a + A_b)⁻¹ A_b δ
            let shift = self.shift(a, b);
            let at_b = symmetric::apply(dim, &of_b, &shift);
            let at_a = symmetric::apply(dim, &of_a, &shift);
            let step = factors.solve(&at_b);
            let lost = 0.5 * symmetric::dot(&at_a, &step);
            if lost < prices[a].min(prices[b]) {
                // Where both together would be: μ_a − (A_a + A_b)⁻¹ A_b (μ_a − μ_b).
                let mean = self.centres[a].mean.iter().zip(&step);
                let mean = mean.map(|(m, s)| m - s).collect();
                found.push((lost, a, b, mean));
            }
        }
        found.sort_by(|x, y| x.0.total_cmp(&y.0));
        let mut taken = vec![false; count];
        found.retain(|&(_, a, b, _)| {
            let free = !taken[a] && !taken[b];
            if free {
                taken[a] = true;
                taken[b] = true;
            }
            free
        });
        found
            .into_iter()
            .map(|(_, a, b, mean)| (a, b, mean))
            .collect()
    }

    /// Pairs of clusters, the closest first, as far apart as the background's spread sees them; at most
    /// `most` of them.
    pub fn pairs(&self, dim: usize, background: &Background, most: usize) -> Vec<(usize, usize)> {
        let mut pairs = Vec::new();
        for a in 0..self.centres.len() {
            for b in 0..a {
                let shift = self.shift(a, b);
                let pulled = symmetric::apply(dim, &background.precision, &shift);
                pairs.push((symmetric::dot(&pulled, &shift), a, b));
            }
        }
        pairs.sort_by(|x, y| x.0.total_cmp(&y.0));
        pairs.truncate(most);
        pairs.into_iter().map(|(_, a, b)| (a, b)).collect()
    }

    fn shift(&self, a: usize, b: usize) -> Vec<f64> {
        let (a, b) = (&self.centres[a].mean, &self.centres[b].mean);
        a.iter().zip(b).map(|(x, y)| x - y).collect()
    }
}

impl Expectation {
    /// Users and observations of each cluster, by weight.
    pub fn sizes(&self, layout: Layout) -> Vec<(f64, f64)> {
        let rows = self.rows.chunks_exact(layout.row());
        let counts = rows.map(|row| row[layout.count()]);
        self.weights.iter().copied().zip(counts).collect()
    }

    /// (C⁻¹ + A_k)⁻¹ of each cluster, A_k = Σ w G/v.
    pub fn spreads(&self, layout: Layout, background: &Background, noise: f64) -> Vec<Vec<f64>> {
        let rows = self.rows.chunks_exact(layout.row());
        rows.map(|row| {
            let gram = row[..layout.gram()].iter().zip(&background.precision);
            let precision: Vec<f64> = gram.map(|(g, p)| g / noise + p).collect();
            Factors::of(layout.dim, &precision).map_or_else(
                || background.covariance.clone(),
                |factors| factors.inverse(),
            )
        })
        .collect()
    }

    fn empty(count: usize, size: usize, detail: bool) -> Self {
        Self {
            total: 0.0,
            rows: vec![0.0; count * size],
            squared: vec![0.0; if detail { count * size } else { 0 }],
            weights: vec![0.0; count],
            explains: vec![0.0; count],
            none: Vec::new(),
            most: Vec::new(),
            placed: 0,
            users: 0,
            whole_none: 0.0,
        }
    }

    /// Adds the sums over the users of another partition, without detail.
    pub fn add_partition(&mut self, other: &Self) {
        let add = |target: &mut [f64], source: &[f64]| {
            for (sum, term) in target.iter_mut().zip(source) {
                *sum += term;
            }
        };
        add(&mut self.rows, &other.rows);
        add(&mut self.weights, &other.weights);
        self.placed += other.placed;
        self.users += other.users;
        self.whole_none += other.whole_none;
    }

    /// Writes the sums that EM needs.
    pub fn save(&self, layout: Layout, writer: &mut Writer<'_>) -> io::Result<()> {
        writer.word(self.users)?;
        writer.word(self.placed)?;
        writer.number(self.whole_none)?;
        writer.numbers(&self.weights)?;
        let mut rows = self.rows.chunks_exact(layout.row());
        rows.try_for_each(|row| writer.numbers(&row[..layout.used()]))
    }

    /// Loads the words that [`Expectation::save`] wrote, for so many clusters.
    pub fn load(layout: Layout, count: usize, reader: &mut Reader<'_>) -> Result<Self, LoadError> {
        let users = reader.at_most(MAX_ROUNDS)?;
        let mut all = Self {
            placed: reader.at_most(users)?,
            whole_none: reader.number()?,
            users,
            ..Self::empty(count, layout.row(), false)
        };
        reader.fill(&mut all.weights)?;
        for row in all.rows.chunks_exact_mut(layout.row()) {
            reader.fill(&mut row[..layout.used()])?;
        }
        let is_share = |weight: f64| (0.0..=users as f64 * (1.0 + 1e-9)).contains(&weight);
        if !is_share(all.whole_none)
            || !all.weights.iter().all(|&weight| is_share(weight))
            || !all.rows.iter().all(|sum| sum.is_finite())
        {
            return Err(bad("the sums of a cluster are not valid").into());
        }
        Ok(all)
    }

    #[inline]
    fn add(&mut self, rows: [&[f64]; 4], weights: &[Vec<f64>; 4], detail: bool) {
        let size = rows[0].len();
        for k in 0..self.weights.len() {
            let of: [f64; 4] = std::array::from_fn(|u| weights[u][k + 1]);
            if of.iter().all(|&weight| weight < MIN_WEIGHT) {
                continue;
            }
            self.weights[k] += (of[0] + of[1]) + (of[2] + of[3]);
            kernels::add_four(AddFour {
                target: &mut self.rows[k * size..(k + 1) * size],
                weights: of,
                rows,
            });
            if detail {
                let squared = &mut self.squared[k * size..(k + 1) * size];
                kernels::add_four(AddFour {
                    target: squared,
                    weights: of.map(|weight| weight * weight),
                    rows,
                });
                for weight in of {
                    if weight >= MIN_WEIGHT {
                        self.explains[k] -= libm::log1p(-weight.min(1.0 - 1e-12));
                    }
                }
            }
        }
    }

    fn merge(&mut self, part: Expectation) {
        let add = |target: &mut [f64], source: &[f64]| {
            for (sum, term) in target.iter_mut().zip(source) {
                *sum += term;
            }
        };
        self.total += part.total;
        add(&mut self.rows, &part.rows);
        add(&mut self.squared, &part.squared);
        add(&mut self.weights, &part.weights);
        add(&mut self.explains, &part.explains);
        self.none.extend(part.none);
        self.most.extend(part.most);
        self.placed += part.placed;
    }
}
