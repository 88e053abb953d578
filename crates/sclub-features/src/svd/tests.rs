//! Against a full decomposition by another library.

use faer::Mat;

use super::*;

fn random_pattern(rows: usize, columns: usize, density: f64, seed: u64) -> Sparse {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let rows: Vec<Vec<u32>> = (0..rows)
        .map(|_| {
            (0..columns as u32)
                .filter(|_| rng.random::<f64>() < density)
                .collect()
        })
        .collect();
    Sparse::pattern(columns, rows.iter().map(Vec::as_slice))
}

fn dense(matrix: &Sparse) -> Mat<f64> {
    let product = matrix.times(&Matrix::identity(matrix.columns()));
    Mat::from_fn(matrix.rows(), matrix.columns(), |i, j| product.get(i, j))
}

/// A dense matrix with chosen singular values.
fn with_values(rows: usize, columns: usize, values: &[f64], seed: u64) -> Sparse {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut sides = [rows, columns].map(|size| {
        let mut block = Matrix::zeros(size, values.len());
        for row in 0..size {
            let entries = block.row_mut(row).iter_mut();
            entries.for_each(|entry| *entry = rng.random::<f64>() - 0.5);
        }
        orthonormal(&block, 0.0).0
    });
    for row in 0..rows {
        let entries = sides[0].row_mut(row).iter_mut();
        entries
            .zip(values)
            .for_each(|(entry, value)| *entry *= value);
    }
    let rows: Vec<Vec<(u32, f64)>> = (0..rows)
        .map(|i| {
            let entry = |j| (j as u32, dot(sides[0].row(i), sides[1].row(j)));
            (0..columns).map(entry).collect()
        })
        .collect();
    Sparse::with_values(columns, &rows)
}

/// Checks values, vectors and, where a gap separates them from what follows, the spaces they span.
fn check(matrix: &Sparse, rank: usize, blocks: usize) -> Svd {
    let svd = solve(matrix, rank, blocks, &mut |_| ());
    let full = dense(matrix).svd().unwrap();
    let count = matrix.rows().min(matrix.columns());
    let value = |at: usize| if at < count { full.S()[at] } else { 0.0 };
    let largest = value(0).max(1e-300);
    assert!(svd.residual < 1e-10, "residual {}", svd.residual);
    assert_eq!(svd.values.len(), rank);
    for at in 0..rank {
        let (found, true_value) = (svd.values[at], value(at));
        assert!(
            (found - true_value).abs() < 1e-10 * largest,
            "{at}: {found}, not {true_value}"
        );
    }
    let exist = svd.values.iter().filter(|&&value| value > 0.0).count();
    let sides = [(&svd.left, full.U()), (&svd.right, full.V())];
    for (side, truth) in sides {
        let products = side.transposed_times(side);
        for i in 0..rank {
            for j in 0..rank {
                let expected = f64::from(u8::from(i == j && i < exist));
                assert!((products.get(i, j) - expected).abs() < 1e-12, "{i} and {j}");
            }
        }
        // Groups between gaps: whatever the basis inside a group, its projector is the same.
        let mut start = 0;
        for end in 1..=exist {
            if value(end - 1) - value(end) < 1e-3 * largest {
                continue;
            }
            for i in 0..side.rows() {
                for j in (0..side.rows()).step_by(7) {
                    let ours: f64 = (start..end).map(|k| side.get(i, k) * side.get(j, k)).sum();
                    let theirs: f64 = (start..end).map(|k| truth[(i, k)] * truth[(j, k)]).sum();
                    assert!(
                        (ours - theirs).abs() < 1e-8,
                        "{start} to {end}: {ours}, {theirs}"
                    );
                }
            }
            start = end;
        }
    }
    for at in 0..exist {
        let column: Vec<f64> = (0..svd.left.rows())
            .map(|row| svd.left.get(row, at))
            .collect();
        let most = column
            .iter()
            .fold(0.0_f64, |most, value| most.max(value.abs()));
        assert!(column.iter().any(|&value| value >= most * (1.0 - 1e-6)));
    }
    svd
}

#[test]
fn random_patterns_of_any_shape_agree_with_the_full_decomposition() {
    for (rows, columns, density) in [
        (1, 1, 1.0),
        (5, 3, 0.5),
        (3, 90, 0.5),
        (60, 60, 0.3),
        (150, 120, 0.1),
        (90, 200, 0.05),
    ] {
        let matrix = random_pattern(rows, columns, density, 3);
        for blocks in [3, BLOCKS] {
            check(&matrix, 5, blocks);
        }
    }
    check(&random_pattern(400, 400, 0.1, 4), 19, BLOCKS);
    check(&random_pattern(350, 260, 0.02, 5), 19, 3);
}

#[test]
fn a_thousand_by_a_thousand_agrees_with_the_full_decomposition() {
    check(&random_pattern(1000, 1000, 0.1, 6), 19, BLOCKS);
}

#[test]
fn values_close_together_are_told_apart() {
    let mut values: Vec<f64> = (0..20).map(|n| 1.0 - 1e-5 * f64::from(n)).collect();
    values.extend((0..80).map(|n| 0.5 * 0.99_f64.powi(n)));
    check(&with_values(130, 110, &values, 1), 5, 3);
    let steep: Vec<f64> = (0..60).map(|n| 0.6_f64.powi(n)).collect();
    let svd = check(&with_values(120, 140, &steep, 2), 12, 3);
    for (found, value) in svd.values.iter().zip(&steep) {
        assert!((found / value - 1.0).abs() < 1e-9, "{found}, not {value}");
    }
}

#[test]
fn no_copy_of_an_equal_value_is_overlooked() {
    let one = random_pattern(25, 20, 0.4, 8);
    for copies in [2, 6, 9] {
        let rows: Vec<Vec<u32>> = (0..copies * 25)
            .map(|row| {
                one.row(row % 25)
                    .iter()
                    .map(|at| at + 20 * (row / 25) as u32)
                    .collect()
            })
            .collect();
        let matrix = Sparse::pattern(20 * copies, rows.iter().map(Vec::as_slice));
        let svd = check(&matrix, 8, 2);
        let equal = svd
            .values
            .iter()
            .filter(|&value| value / svd.values[0] > 1.0 - 1e-12)
            .count();
        assert_eq!(equal, copies.min(8));
    }
}

#[test]
fn what_a_matrix_lacks_in_rank_comes_as_zeros() {
    let rows: Vec<Vec<u32>> = (0..120)
        .map(|row| (0..100).filter(|column| column % 4 == row % 4).collect())
        .collect();
    let four = Sparse::pattern(100, rows.iter().map(Vec::as_slice));
    for blocks in [2, BLOCKS] {
        let svd = check(&four, 7, blocks);
        assert_eq!(svd.values[4..], [0.0; 3]);
        assert!((0..120).all(|row| svd.left.row(row)[4..] == [0.0; 3]));
        assert!((0..100).all(|row| svd.right.row(row)[4..] == [0.0; 3]));
    }
    let svd = check(&random_pattern(3, 50, 0.5, 9), 10, BLOCKS);
    assert!(svd.values[2] > 0.0 && svd.values[3] == 0.0);
    let nothing = Sparse::pattern(300, (0..300).map(|_| &[][..]));
    assert_eq!(solve(&nothing, 4, 2, &mut |_| ()).values, [0.0; 4]);
    assert_eq!(truncated_svd(&Sparse::pattern(0, []), 2).values, [0.0; 2]);
}

#[test]
fn the_same_matrix_gives_the_same_bits() {
    let matrix = random_pattern(150, 130, 0.1, 10);
    let mut passes = Vec::new();
    let watched = solve(&matrix, 6, 3, &mut |search| passes.push(search));
    assert_eq!(watched, solve(&matrix, 6, 3, &mut |_| ()));
    // The missing part shrinks, and each pass is reported.
    assert!(
        passes
            .iter()
            .enumerate()
            .all(|(at, search)| search.passes == at + 1)
    );
    let seen: Vec<f64> = passes
        .iter()
        .map(|search| search.missing)
        .filter(|m| m.is_finite())
        .collect();
    assert!(seen.len() > 1 && seen.first() > seen.last(), "{seen:?}");
}
