//! Kernels over several users or items at once, against faer and plain loops.

use super::*;
use crate::items::GROUP;
use crate::kernels::batch::{AddFour, AddMoments, Moments, Posteriors, Prior, Products};
use crate::kernels::{Batch, LANES, Overlaps};

const DIMS: [usize; 9] = [1, 2, 3, 7, 8, 9, 20, 33, 64];
const NOISE: f64 = 0.3;

fn packed(dim: usize, matrix: &Mat<f64>) -> Vec<f64> {
    (0..dim)
        .flat_map(|i| (0..=i).map(move |j| matrix[(i, j)]))
        .collect()
}

fn column(numbers: &[f64]) -> Mat<f64> {
    Mat::from_fn(numbers.len(), 1, |i, _| numbers[i])
}

fn log_determinant(matrix: &Mat<f64>) -> f64 {
    let llt = matrix.llt(faer::Side::Lower).expect("positive definite");
    let lower = llt.L();
    (0..matrix.nrows()).map(|i| 2.0 * lower[(i, i)].ln()).sum()
}

fn close(a: f64, b: f64, tolerance: f64) -> bool {
    (a - b).abs() <= tolerance * (1.0 + b.abs())
}

/// A prior and the observations of some users, as they are and summed up.
struct Users {
    dim: usize,
    precision: Mat<f64>,
    centre: Vec<f64>,
    items: Vec<Vec<Vec<f64>>>,
    rewards: Vec<Vec<f64>>,
    rows: Vec<Vec<f64>>,
}

impl Users {
    fn new(dim: usize, users: usize, seed: u64) -> Self {
        let precision = gram_matrix(dim, &draws(seed, 2 * dim, dim, 0.7));
        let centre = draws(seed ^ 1, 1, dim, 1.0).remove(0);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 2);
        let mut all = Self {
            dim,
            precision,
            centre,
            items: Vec::new(),
            rewards: Vec::new(),
            rows: Vec::new(),
        };
        for user in 0..users {
            // Some have said nothing, some much.
            let count = [0, 1, 5, 3 * dim][user % 4];
            let items = draws(seed ^ (10 + user as u64), count, dim, 1.0);
            let rewards: Vec<f64> = (0..count).map(|_| rng.random_range(-1.0..2.0)).collect();
            let gram = gram_matrix(dim, &items) - Mat::<f64>::identity(dim, dim);
            let mut row = packed(dim, &gram);
            row.extend((0..dim).map(|i| {
                let terms = items.iter().zip(&rewards).map(|(x, y)| x[i] * y);
                terms.sum::<f64>()
            }));
            row.extend([count as f64, rewards.iter().map(|y| y * y).sum()]);
            all.items.push(items);
            all.rewards.push(rewards);
            all.rows.push(row);
        }
        all
    }

    fn pull(&self) -> Vec<f64> {
        let pull = &self.precision * column(&self.centre);
        (0..self.dim).map(|i| pull[(i, 0)]).collect()
    }

    /// P and m of a user, and r.
    fn posterior(&self, user: usize) -> (Mat<f64>, Mat<f64>, Mat<f64>) {
        let dim = self.dim;
        let mut whole = self.precision.clone();
        let mut pull = &self.precision * column(&self.centre);
        for (x, y) in self.items[user].iter().zip(&self.rewards[user]) {
            for i in 0..dim {
                pull[(i, 0)] += x[i] * y / NOISE;
                for j in 0..dim {
                    whole[(i, j)] += x[i] * x[j] / NOISE;
                }
            }
        }
        let covariance = inverse(&whole);
        let mean = &covariance * &pull;
        (covariance, mean, pull)
    }

    fn with<T>(&self, users: &[usize], work: impl FnOnce(Prior<'_>, &[&[f64]]) -> T) -> T {
        let (precision, pull) = (packed(self.dim, &self.precision), self.pull());
        let prior = Prior {
            precision: &precision,
            pull: &pull,
            inverse_noise: 1.0 / NOISE,
        };
        let rows: Vec<&[f64]> = users.iter().map(|&u| self.rows[u].as_slice()).collect();
        work(prior, &rows)
    }

    fn batch(&self, users: &[usize]) -> Batch {
        let mut batch = Batch::new(self.dim);
        self.with(users, |prior, rows| {
            kernels::posteriors(Posteriors {
                dim: self.dim,
                prior,
                rows,
                batch: &mut batch,
            });
        });
        batch
    }

    /// ΣP, Σ(m − μ)(m − μ)ᵀ and Σ(m − μ), and what is left in the batch.
    fn moments(&self, users: &[usize]) -> ([Vec<f64>; 3], Batch) {
        let dim = self.dim;
        let mut batch = self.batch(users);
        let mut sums = Moments::new(dim);
        self.with(users, |prior, _| {
            kernels::add_moments(AddMoments {
                dim,
                prior,
                centre: &self.centre,
                batch: &mut batch,
                users: users.len(),
                sums: &mut sums,
            });
        });
        let gram = dim * (dim + 1) / 2;
        let mut out = [vec![0.0; gram], vec![0.0; gram], vec![0.0; dim]];
        let [covariance, spread, shift] = &mut out;
        sums.add_to(covariance, spread, shift);
        (out, batch)
    }
}

/// All numbers in one lane of a batch.
fn lane_of(batch: &Batch, lane: usize) -> Vec<u64> {
    let parts = [&batch.factor, &batch.scale, &batch.pull, &batch.mean];
    let numbers = parts.into_iter().flatten().map(|lanes| lanes[lane]);
    let rest = [
        batch.fit[lane],
        batch.residual[lane],
        batch.log_determinant(lane),
    ];
    numbers.chain(rest).map(f64::to_bits).collect()
}

/// The result of a function, which must have the same bits without vector registers.
fn on_every_set<T: PartialEq + std::fmt::Debug>(work: impl Fn() -> T) -> T {
    let with = work();
    WITHOUT_SIMD.set(true);
    let without = work();
    WITHOUT_SIMD.set(false);
    assert_eq!(with, without);
    with
}

#[test]
fn posteriors_are_those_of_a_full_solve() {
    for dim in DIMS {
        let users = Users::new(dim, LANES, dim as u64);
        let all: Vec<usize> = (0..LANES).collect();
        let batch = users.batch(&all);
        for lane in 0..LANES {
            let (covariance, mean, pull) = users.posterior(lane);
            let m = Mat::from_fn(dim, dim, |i, k| match i.cmp(&k) {
                std::cmp::Ordering::Less => 0.0,
                std::cmp::Ordering::Equal => 1.0,
                std::cmp::Ordering::Greater => batch.factor[i * (i - 1) / 2 + k][lane],
            });
            let g = Mat::from_fn(dim, dim, |i, k| {
                f64::from(u8::from(i == k)) * batch.scale[i][lane]
            });
            let found = m.transpose() * g * &m;
            assert!(largest_difference(&found, &covariance) < 1e-10, "d = {dim}");
            for i in 0..dim {
                assert!(close(batch.mean[i][lane], mean[(i, 0)], 1e-9), "d = {dim}");
                assert!(close(batch.pull[i][lane], pull[(i, 0)], 1e-10), "d = {dim}");
            }
            let fit = (pull.transpose() * &mean)[(0, 0)];
            assert!(close(batch.fit[lane], fit, 1e-9), "d = {dim}");
            let volume = -log_determinant(&covariance);
            assert!(
                close(batch.log_determinant(lane), volume, 1e-9),
                "d = {dim}"
            );
        }
    }
}

#[test]
fn moments_are_summed_over_the_users_that_there_are() {
    for dim in DIMS {
        let users = Users::new(dim, LANES, 7 * dim as u64);
        for count in [1, 3, LANES] {
            let some: Vec<usize> = (0..count).collect();
            let ([covariance, spread, shift], batch) = users.moments(&some);
            let mut sums = [Mat::<f64>::zeros(dim, dim), Mat::zeros(dim, dim)];
            let mut about = Mat::<f64>::zeros(dim, 1);
            for user in 0..count {
                let (p, m, _) = users.posterior(user);
                let off = &m - column(&users.centre);
                sums[0] += &p;
                sums[1] += &off * off.transpose();
                about += &off;
                // E‖y − Xθ‖², item by item.
                let pairs = users.items[user].iter().zip(&users.rewards[user]);
                let expected: f64 = pairs
                    .map(|(x, y)| {
                        let x = column(x);
                        let error = y - (x.transpose() * &m)[(0, 0)];
                        error * error + (x.transpose() * &p * &x)[(0, 0)]
                    })
                    .sum();
                let squares: f64 = users.rewards[user].iter().map(|y| y * y).sum();
                let found = squares + NOISE * batch.residual[user];
                assert!(
                    close(found, expected, 1e-9),
                    "d = {dim}: {found} {expected}"
                );
            }
            for i in 0..dim {
                assert!(close(shift[i], about[(i, 0)], 1e-9));
                for j in 0..=i {
                    let t = i * (i + 1) / 2 + j;
                    assert!(close(covariance[t], sums[0][(i, j)], 1e-10), "d = {dim}");
                    assert!(close(spread[t], sums[1][(i, j)], 1e-9), "d = {dim}");
                }
            }
        }
    }
}

#[test]
fn a_lane_has_the_same_bits_in_any_company_and_on_any_registers() {
    for dim in DIMS {
        let users = Users::new(dim, 2 * LANES, 3 * dim as u64);
        let all: Vec<usize> = (0..LANES).collect();
        let (_, batch) = users.moments(&all);
        for user in 0..LANES {
            let own = on_every_set(|| lane_of(&users.moments(&[user]).1, 0));
            assert_eq!(own, lane_of(&batch, user), "alone");
            let mut others: Vec<usize> = (LANES..2 * LANES).collect();
            let place = (user + 3) % LANES;
            others[place] = user;
            let elsewhere = on_every_set(|| lane_of(&users.moments(&others).1, place));
            assert_eq!(own, elsewhere, "with others");
        }
        on_every_set(|| users.moments(&all[..5]).0);
    }
}

#[test]
fn products_and_sums_of_rows_are_those_of_plain_loops() {
    for dim in DIMS {
        let size = (dim * (dim + 3) / 2 + 2).next_multiple_of(LANES);
        let rows = draws(dim as u64, 4, size, 1.0);
        let four: [&[f64]; 4] = std::array::from_fn(|u| rows[u].as_slice());
        for count in [1, 8, 9, 16, 17, 40] {
            let width = usize::next_multiple_of(count, LANES);
            // Coefficients for some of a row's numbers only: the last ones have none.
            let length = size - 2;
            let vectors = draws(77 + dim as u64, count, length, 1.0);
            let mut coefficients = vec![0.0; width * length];
            for (k, vector) in vectors.iter().enumerate() {
                for t in 0..length {
                    coefficients[t * width + k] = vector[t];
                }
            }
            let out = on_every_set(|| {
                let mut out = vec![f64::NAN; 4 * width];
                kernels::products(Products {
                    rows: four,
                    coefficients: &coefficients,
                    width,
                    out: &mut out,
                });
                out
            });
            for u in 0..4 {
                for (k, vector) in vectors.iter().enumerate() {
                    let sum: f64 = vector.iter().zip(four[u]).map(|(a, b)| a * b).sum();
                    assert!(close(out[u * width + k], sum, 1e-12));
                }
            }
        }
        let weights = [0.3, -2.0, 0.0, 1e-3];
        let target = draws(5, 1, size, 1.0).remove(0);
        let sum = on_every_set(|| {
            let mut sum = target.clone();
            kernels::add_four(AddFour {
                target: &mut sum,
                weights,
                rows: four,
            });
            sum
        });
        for t in 0..size {
            let added: f64 = (0..4).map(|u| weights[u] * rows[u][t]).sum();
            assert!(close(sum[t], target[t] + added, 1e-14));
        }
    }
}

#[test]
fn means_and_quadratic_forms_are_those_of_plain_loops() {
    for dim in DIMS {
        for lanes in [LANES, 2 * LANES, GROUP] {
            let items = draws(dim as u64, lanes, dim, 1.0);
            let side: Vec<f64> = (0..dim * lanes)
                .map(|at| items[at % lanes][at / lanes])
                .collect();
            let weights = draws(9, 1, dim, 1.0).remove(0);
            let triangle = draws(11, 1, dim * (dim + 1) / 2, 1.0).remove(0);
            let (mean, form) = on_every_set(|| {
                let mut mean = vec![f64::NAN; lanes];
                kernels::means(&weights, &side, &mut mean);
                let mut form = vec![0.25; lanes];
                kernels::quadratic(dim, &triangle, &side, &mut form);
                (mean, form)
            });
            for (lane, x) in items.iter().enumerate() {
                let dot: f64 = x.iter().zip(&weights).map(|(a, b)| a * b).sum();
                assert!(close(mean[lane], dot, 1e-13));
                let mut sum = 0.25;
                for i in 0..dim {
                    for j in 0..dim {
                        let (row, column) = (i.max(j), i.min(j));
                        sum += x[i] * triangle[row * (row + 1) / 2 + column] * x[j];
                    }
                }
                assert!(close(form[lane], sum, 1e-12), "d = {dim}");
            }
        }
    }
}

#[test]
fn exponentials_are_within_two_units_in_the_last_place() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut at: Vec<f64> = (0..100_000)
        .map(|_| rng.random_range(-700.0..0.0))
        .collect();
    at.extend((0..20_000).map(|_| -rng.random_range(0.0f64..1.0).powi(9)));
    // Where the whole part changes, and the ends.
    at.extend((0..1009).flat_map(|n| {
        let edge = -(f64::from(n) + 0.5) * std::f64::consts::LN_2;
        [edge.next_up(), edge, edge.next_down()]
    }));
    at.extend([0.0, -0.0, -f64::MIN_POSITIVE, -700.0]);
    let found = on_every_set(|| {
        let mut numbers = at.clone();
        kernels::exponentials(&mut numbers);
        numbers.iter().map(|n| n.to_bits()).collect::<Vec<u64>>()
    });
    for (x, bits) in at.iter().zip(&found) {
        let off = bits.abs_diff(libm::exp(*x).to_bits());
        assert!(off <= 2, "e^{x} is {off} units off");
    }
    assert_eq!(f64::from_bits(*found.last().unwrap()), libm::exp(-700.0));
    let mut far = [-700.5, -1e300, f64::NEG_INFINITY, 0.0];
    kernels::exponentials(&mut far);
    assert!(
        far[..3]
            .iter()
            .all(|&e| e == far[0] && e > 0.0 && e < 1e-300)
    );
    assert_eq!(far[3], 1.0);
}

/// The bits of plain loops over the items, one by one.
#[test]
fn overlaps_are_those_of_plain_loops() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(8);
    for (dim, items, lanes) in [(1, 0, 8), (3, 1, 8), (20, 7, 16), (5, 8, 24), (20, 21, 32)] {
        let mut draw = |n| -> Vec<f64> { (0..n).map(|_| rng.random_range(-1.0..1.0)).collect() };
        let (features, images, mut out) = (draw(items * dim), draw(dim * lanes), draw(lanes));
        let counts: Vec<u64> = (0..items as u64).map(|item| item % 4).collect();
        let mut expected = out.clone();
        for (item, &count) in counts.iter().enumerate() {
            for (lane, total) in expected.iter_mut().enumerate() {
                let product = (0..dim).fold(0.0, |sum, k| {
                    features[item * dim + k].mul_add(images[k * lanes + lane], sum)
                });
                *total = (count as f64).mul_add(f64::abs(product), *total);
            }
        }
        kernels::add_overlaps(Overlaps {
            items: &features,
            counts: &counts,
            images: &images,
            out: &mut out,
        });
        assert_eq!(out, expected, "{items} items, {lanes} lanes");
    }
}
