//! The background: the prior of all users, one Gaussian that each user's tastes are drawn
//! from, learned by EM (empirical Bayes).

use std::sync::Mutex;

use super::panel::Panel;
use super::sums::Layout;
use super::symmetric::{self, Factors, row_start};
use crate::kernels::batch::{AddMoments, Moments, Posteriors, Prior};
use crate::kernels::{self, Batch, LANES};
use crate::refit::Workers;

/// The weight, in users, of the prior of the covariance, a small multiple of I.
const PSEUDO_USERS: f64 = 10.0;
/// The variance that a first fit starts from, in units of noise per squared feature.
const FIRST_VARIANCE: f64 = 0.15;
/// The addition to the diagonal of C that keeps it from being singular, as a share of its mean.
const JITTER: f64 = 1e-5;
/// The precision of the prior of μ0 around 0, in units of squared feature per noise.
const RIDGE: f64 = 1.0;

/// The variances in units of noise per squared feature that can be computed with.
const SCALES: std::ops::Range<f64> = 1e-280..1e280;

/// The maximum factor of a step that is extrapolated.
const MAX_EXTRAPOLATION: f64 = 100.0;
/// The gain in nats below which a step is the last.
pub(super) const MIN_GAIN: f64 = 0.3;

/// N(μ0, C)
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Background {
    /// μ0
    pub mean: Vec<f64>,
    /// C
    pub covariance: Vec<f64>,
    /// C⁻¹
    pub precision: Vec<f64>,
    /// C⁻¹μ0
    pub pull: Vec<f64>,
    /// ln |C|
    pub log_determinant: f64,
    /// −½(μ0ᵀC⁻¹μ0 + ln |C|)
    base: f64,
}

impl Background {
    /// The background; `None` if C is not positive definite, or so small or large that C⁻¹ has no finite numbers.
    pub fn new(mean: Vec<f64>, covariance: Vec<f64>) -> Option<Self> {
        let factors = Factors::of(mean.len(), &covariance)?;
        let pull = factors.solve(&mean);
        let log_determinant = factors.log_determinant;
        let base = -0.5 * (symmetric::dot(&mean, &pull) + log_determinant);
        let precision = factors.inverse();
        let is_finite = [&precision[..], &pull, &[base]]
            .iter()
            .all(|part| part.iter().all(|n| n.is_finite()));
        is_finite.then_some(Self {
            base,
            precision,
            pull,
            log_determinant,
            mean,
            covariance,
        })
    }

    /// μ0 = 0, C diagonal; `None` if C is not positive definite.
    pub fn diagonal(variances: &[f64]) -> Option<Self> {
        let dim = variances.len();
        let mut covariance = vec![0.0; row_start(dim)];
        for (i, &variance) in variances.iter().enumerate() {
            covariance[row_start(i) + i] = variance;
        }
        Self::new(vec![0.0; dim], covariance)
    }

    /// μ0 = 0, C a multiple of I.
    pub fn wide(dim: usize, variance: f64) -> Self {
        Self::diagonal(&vec![variance; dim]).expect("a variance with a finite inverse")
    }

    /// True if C⁻¹ can be factorised, as beliefs about users need it. It cannot if C is nearly singular.
    pub fn is_usable(&self) -> bool {
        let dim = self.mean.len();
        let triangle = dim * (dim - 1) / 2;
        let (mut lower, mut factor) = (vec![0.0; triangle], vec![0.0; triangle]);
        let mut scale = vec![0.0; dim];
        kernels::factorise(
            dim,
            &self.precision,
            0.0,
            &mut lower,
            &mut factor,
            &mut scale,
        )
    }

    pub fn prior(&self, noise: f64) -> Prior<'_> {
        Prior {
            precision: &self.precision,
            pull: &self.pull,
            inverse_noise: 1.0 / noise,
        }
    }

    /// L_0 of the user in a lane: ½[rᵀm − μ0ᵀC⁻¹μ0 − ln|C| − ln|C⁻¹+G/v|], the log-likelihood of the
    /// user's rewards less that of N(0, v) noise alone.
    pub fn evidence(&self, batch: &Batch, lane: usize) -> f64 {
        self.base + 0.5 * (batch.fit[lane] - batch.log_determinant(lane))
    }

    /// L_0 from rᵀm and the diagonal factors g of Λ⁻¹.
    pub fn evidence_of(&self, fit: f64, scale: &[f64]) -> f64 {
        let log_determinant = -scale.iter().map(|&g| libm::log(g)).sum::<f64>();
        self.base + 0.5 * (fit - log_determinant)
    }
}

/// The result of one pass over users with a background.
pub(crate) struct Pass {
    /// L_0 of each user of the panel.
    pub evidence: Vec<f64>,
    /// E‖y − Xθ‖² of each user under the user's posterior, with moments.
    pub residual: Vec<f64>,
    /// Σ L_0
    pub total: f64,
    covariance: Vec<f64>,
    spread: Vec<f64>,
    shift: Vec<f64>,
}

impl Pass {
    /// Σ over users of d − tr(C⁻¹P): the number of parameters that the data determine.
    pub fn effective(&self, background: &Background) -> f64 {
        let dim = background.mean.len();
        self.evidence.len() as f64 * dim as f64
            - symmetric::inner(dim, &background.precision, &self.covariance)
    }
}

struct Part {
    evidence: Vec<f64>,
    residual: Vec<f64>,
    covariance: Vec<f64>,
    spread: Vec<f64>,
    shift: Vec<f64>,
}

/// The posteriors of all users of a panel. Without `moments`, their evidence only.
pub(crate) fn pass(
    panel: &Panel<'_>,
    background: &Background,
    noise: f64,
    moments: bool,
    workers: &dyn Workers,
) -> Pass {
    let dim = panel.layout().dim;
    let parts: Vec<Mutex<Option<Part>>> = panel.pieces().map(|_| Mutex::new(None)).collect();
    workers.each(parts.len(), &|piece| {
        let users = panel.piece(piece);
        let mut part = Part {
            evidence: Vec::with_capacity(users.len()),
            residual: Vec::new(),
            covariance: vec![0.0; row_start(dim)],
            spread: vec![0.0; row_start(dim)],
            shift: vec![0.0; dim],
        };
        let mut batch = Batch::new(dim);
        let mut sums = Moments::new(dim);
        for eight in users.chunks(LANES) {
            let rows: Vec<&[f64]> = eight.iter().map(|&slot| panel.row(slot)).collect();
            kernels::posteriors(Posteriors {
                dim,
                prior: background.prior(noise),
                rows: &rows,
                batch: &mut batch,
            });
            let lanes = 0..eight.len();
            let evidence = lanes.map(|lane| background.evidence(&batch, lane));
            part.evidence.extend(evidence);
            if moments {
                kernels::add_moments(AddMoments {
                    dim,
                    prior: background.prior(noise),
                    centre: &background.mean,
                    batch: &mut batch,
                    users: eight.len(),
                    sums: &mut sums,
                });
                let squares = panel.layout().squares();
                let residual = |(row, left): (&&[f64], &f64)| row[squares] + noise * left;
                part.residual
                    .extend(rows.iter().zip(&batch.residual).map(residual));
            }
        }
        if moments {
            sums.add_to(&mut part.covariance, &mut part.spread, &mut part.shift);
        }
        *parts[piece].lock().expect("no worker panics") = Some(part);
    });
    let mut all = Pass {
        evidence: Vec::with_capacity(panel.len()),
        residual: Vec::new(),
        total: 0.0,
        covariance: vec![0.0; row_start(dim)],
        spread: vec![0.0; row_start(dim)],
        shift: vec![0.0; dim],
    };
    for part in parts {
        let part = part.into_inner().expect("no worker panics");
        let part = part.expect("every piece was done");
        add(&mut all.covariance, &part.covariance);
        add(&mut all.spread, &part.spread);
        add(&mut all.shift, &part.shift);
        all.evidence.extend(part.evidence);
        all.residual.extend(part.residual);
    }
    all.total = all.evidence.iter().sum();
    all
}

fn add(target: &mut [f64], source: &[f64]) {
    for (sum, term) in target.iter_mut().zip(source) {
        *sum += term;
    }
}

/// The scale of the data: noise v and mean squared length of an item's features.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale {
    pub noise: f64,
    pub square: f64,
    /// Variance of the pseudo-users.
    pub pseudo: f64,
}

impl Scale {
    fn variance(self) -> f64 {
        self.noise / self.square
    }

    /// The precision of the prior of μ0 around 0.
    pub fn ridge(self) -> f64 {
        RIDGE / self.variance()
    }

    /// V⁻¹, the information about μ0: ΣH + ridge, ΣH = N C⁻¹ − C⁻¹(ΣP)C⁻¹, over the users of the pass, which μ0 is
    /// learned from.
    pub fn information(self, background: &Background, pass: &Pass) -> Vec<f64> {
        let dim = background.mean.len();
        let users = pass.evidence.len() as f64;
        let inside = sandwich(dim, &background.precision, &pass.covariance);
        let terms = background.precision.iter().zip(&inside);
        let mut information: Vec<f64> = terms.map(|(p, s)| users * p - s).collect();
        (0..dim).for_each(|i| information[row_start(i) + i] += self.ridge());
        information
    }

    /// The start of a first fit.
    pub fn start(self, dim: usize) -> Background {
        Background::wide(dim, FIRST_VARIANCE * self.variance())
    }

    /// ln of the prior density of a background, up to a constant.
    fn log_prior(self, background: &Background) -> f64 {
        let dim = background.mean.len();
        let pseudo = self.pseudo;
        let pulled = pseudo * symmetric::trace(dim, &background.precision);
        let length = symmetric::dot(&background.mean, &background.mean);
        -0.5 * PSEUDO_USERS * (background.log_determinant + pulled) - 0.5 * self.ridge() * length
    }

    /// One step of EM.
    fn step(self, old: &Background, pass: &Pass) -> Option<Background> {
        let dim = old.mean.len();
        let users = pass.evidence.len() as f64;
        // μ0 by its marginal likelihood: (ΣH + ridge) μ0 = C⁻¹ Σ P b/v, ΣH = N C⁻¹ − C⁻¹(ΣP)C⁻¹,
        // Σ P b/v = Σ m − (ΣP) C⁻¹μ0.
        let information = self.information(old, pass);
        let mut moved = symmetric::apply(dim, &pass.covariance, &old.pull);
        for ((moved, shift), mean) in moved.iter_mut().zip(&pass.shift).zip(&old.mean) {
            *moved = shift + users * mean - *moved;
        }
        let target = symmetric::apply(dim, &old.precision, &moved);
        let mean = match Factors::of(dim, &information) {
            Some(factors) => factors.solve(&target),
            None => (0..dim)
                .map(|i| old.mean[i] + pass.shift[i] / users)
                .collect(),
        };
        let pseudo = PSEUDO_USERS * self.pseudo;
        let mut covariance = vec![0.0; row_start(dim)];
        for i in 0..dim {
            for j in 0..=i {
                let t = row_start(i) + j;
                let (di, dj) = (mean[i] - old.mean[i], mean[j] - old.mean[j]);
                let spread =
                    pass.spread[t] - di * pass.shift[j] - dj * pass.shift[i] + users * di * dj;
                covariance[t] = (pass.covariance[t] + spread) / (users + PSEUDO_USERS);
            }
            covariance[row_start(i) + i] += pseudo / (users + PSEUDO_USERS);
        }
        let jitter = JITTER * symmetric::trace(dim, &covariance) / dim as f64;
        (0..dim).for_each(|i| covariance[row_start(i) + i] += jitter);
        Background::new(mean, covariance)
    }
}

/// A B A
fn sandwich(dim: usize, outer: &[f64], inner: &[f64]) -> Vec<f64> {
    let columns: Vec<Vec<f64>> = (0..dim)
        .map(|j| {
            let column: Vec<f64> = (0..dim).map(|i| outer[packed(i, j)]).collect();
            symmetric::apply(dim, inner, &column)
        })
        .collect();
    let mut out = vec![0.0; row_start(dim)];
    for i in 0..dim {
        for j in 0..=i {
            out[row_start(i) + j] = (0..dim).map(|k| outer[packed(i, k)] * columns[j][k]).sum();
        }
    }
    out
}

fn packed(i: usize, j: usize) -> usize {
    let (i, j) = if i < j { (j, i) } else { (i, j) };
    row_start(i) + j
}

/// The background that explains a panel best, from a start. Each step raises the penalised
/// likelihood or ends the search.
pub(crate) fn fit(
    panel: &Panel<'_>,
    start: &Background,
    scale: Scale,
    steps: usize,
    wide: bool,
    workers: &dyn Workers,
) -> (Background, Pass) {
    let dim = start.mean.len();
    let mut scale = scale;
    // The prior of the covariance has the mean variance of the users seen: directions without
    // observations keep it.
    let width = |c: &Background| symmetric::trace(dim, &c.covariance) / dim as f64;
    scale.pseudo = width(start);
    let value = |scale: &Scale, background: &Background, pass: &Pass| {
        pass.total + scale.log_prior(background)
    };
    let run = |background: &Background| pass(panel, background, scale.noise, true, workers);
    let mut best = start.clone();
    let mut best_pass = run(&best);
    let mut best_value = value(&scale, &best, &best_pass);
    for factor in if wide {
        &[0.25, 0.5, 2.0, 4.0][..]
    } else {
        &[]
    } {
        let covariance = start.covariance.iter().map(|c| c * factor).collect();
        let Some(tried) = Background::new(start.mean.clone(), covariance) else {
            continue;
        };
        let tried_pass = run(&tried);
        let tried_value = value(&scale, &tried, &tried_pass);
        if tried_value > best_value {
            (best, best_pass, best_value) = (tried, tried_pass, tried_value);
        }
    }
    scale.pseudo = width(&best);
    best_value = value(&scale, &best, &best_pass);
    let mut trail = vec![best.clone()];
    for _ in 0..steps {
        let Some(tried) = scale.step(&best, &best_pass) else {
            break;
        };
        let tried_pass = run(&tried);
        let tried_value = value(&scale, &tried, &tried_pass);
        if tried_value <= best_value || tried_value.is_nan() {
            break;
        }
        let gain = tried_value - best_value;
        (best, best_pass, best_value) = (tried, tried_pass, tried_value);
        if gain < MIN_GAIN {
            break;
        }
        trail.push(best.clone());
        if let [first, second, third] = &trail[..] {
            if let Some(tried) = extrapolate(first, second, third) {
                let tried_pass = run(&tried);
                let tried_value = value(&scale, &tried, &tried_pass);
                if tried_value > best_value {
                    (best, best_pass, best_value) = (tried, tried_pass, tried_value);
                }
            }
            trail = vec![best.clone()];
        }
    }
    (best, best_pass)
}

/// Where EM seems to be heading after two steps (SQUAREM, Varadhan and Roland 2008): with r the first step
/// and v the change from the first to the second, the start + 2a r + a² v, a = ‖r‖/‖v‖. `None` if that is not
/// farther than EM has come, or C would not be positive definite. Lengths are measured in units of the mean
/// variance tr C/d and its root, so that the units of features and rewards do not matter.
fn extrapolate(start: &Background, first: &Background, second: &Background) -> Option<Background> {
    let all = |b: &Background| -> Vec<f64> { [&b.mean[..], &b.covariance[..]].concat() };
    let dim = start.mean.len();
    let variance = symmetric::trace(dim, &start.covariance) / dim as f64;
    let (start, first, second) = (all(start), all(first), all(second));
    let steps: Vec<(f64, f64)> = start
        .iter()
        .zip(&first)
        .zip(&second)
        .map(|((x, y), z)| (y - x, (z - y) - (y - x)))
        .collect();
    let length = |part: fn(&(f64, f64)) -> f64| {
        let square = |step: &(f64, f64)| part(step) * part(step);
        let means: f64 = steps[..dim].iter().map(square).sum();
        let covariances: f64 = steps[dim..].iter().map(square).sum();
        (means / variance + covariances / (variance * variance)).sqrt()
    };
    let factor = length(|step| step.0) / length(|step| step.1);
    if !(factor > 1.0 && factor < MAX_EXTRAPOLATION) {
        return None;
    }
    let moved = start.iter().zip(&steps);
    let moved: Vec<f64> = moved
        .map(|(x, (r, v))| x + factor * (2.0 * r + factor * v))
        .collect();
    let (mean, covariance) = moved.split_at(dim);
    Background::new(mean.to_vec(), covariance.to_vec())
}

/// v of least squares over all users together, and the mean squared length of items; for a first fit.
pub(crate) fn pooled(panel: &Panel<'_>, layout: Layout) -> Scale {
    let mut sums = vec![0.0; layout.row()];
    for slot in panel.slots() {
        add(&mut sums, panel.row(*slot));
    }
    pooled_of(layout, &sums)
}

/// As [`pooled`], from the sums over all users.
pub(crate) fn pooled_of(layout: Layout, sums: &[f64]) -> Scale {
    let dim = layout.dim;
    let (gram, moment) = (&sums[..layout.gram()], &sums[layout.gram()..layout.count()]);
    let (count, squares) = (sums[layout.count()], sums[layout.squares()]);
    let square = symmetric::trace(dim, gram) / count;
    let mut ridged = gram.to_vec();
    (0..dim).for_each(|i| ridged[row_start(i) + i] += 1e-3 * square);
    let explained = Factors::of(dim, &ridged).map_or(0.0, |factors| {
        symmetric::dot(&factors.solve(moment), moment)
    });
    let free = (count - dim as f64).max(0.5 * count);
    // Equal rewards leave no noise: a small share of their size is taken. Where squares underflow or nearly do,
    // any scale will do.
    let noise = ((squares - explained) / free).max(1e-6 * squares / count);
    let (noise, square) = (known(noise), known(square));
    let fine = SCALES.contains(&(noise / square));
    Scale {
        noise: if fine { noise } else { 1.0 },
        square: if fine { square } else { 1.0 },
        pseudo: 0.0,
    }
}

/// A positive number that can be divided by, or 1.
fn known(number: f64) -> f64 {
    if number.is_normal() && number > 0.0 {
        number
    } else {
        1.0
    }
}
