//! Small data of which the outcome is known.

use super::*;
use crate::data::names::Names;

/// Interactions of users who took these items.
fn interactions(items: usize, rows: &[&[u64]]) -> Interactions {
    let pairs = rows
        .iter()
        .enumerate()
        .flat_map(|(user, row)| row.iter().map(move |item| (user as u64) << 32 | item));
    Interactions::new(
        Names::counted(rows.len()),
        Names::counted(items),
        pairs.collect(),
    )
}

#[test]
fn the_choice_is_the_papers() {
    // Users 1 to 3 have most; among them item 3 is taken thrice, 0 and 4 twice.
    let all = interactions(6, &[&[5, 1], &[0, 3, 4], &[0, 3, 1], &[3, 4, 2], &[5]]);
    let chosen = Selection { users: 1, items: 2 }.choose(&all);
    assert_eq!(chosen.items, [3, 0]);
    assert_eq!(chosen.users, [1]);
    assert_eq!(chosen.matrix.row(0), [0, 1]);
    assert!(chosen.shortages.is_empty());
    let chosen = Selection { users: 2, items: 3 }.choose(&all);
    // All five users count now: items 0, 1 and 4 come after 3 by their numbers, 5 is as often.
    assert_eq!(chosen.items, [3, 0, 1]);
    assert_eq!(chosen.users, [2, 1]);
    assert_eq!(
        (chosen.matrix.row(0), chosen.matrix.row(1)),
        (&[0, 1, 2][..], &[0, 1][..])
    );
}

#[test]
fn too_few_users_and_items_are_told_and_all_taken() {
    let all = interactions(3, &[&[0], &[1, 2]]);
    let chosen = Selection { users: 5, items: 4 }.choose(&all);
    assert_eq!(chosen.users, [1, 0]);
    let told: Vec<String> = chosen.shortages.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        ["there are 2 users, not 5", "there are 3 items, not 4"]
    );
    let all_of_it = everything(&all);
    assert_eq!(
        (all_of_it.users, all_of_it.items),
        (vec![0, 1], vec![0, 1, 2])
    );
    assert_eq!(all_of_it.matrix.row(1), [1, 2]);
}

#[test]
fn too_few_for_the_features_is_an_error_and_too_low_a_rank_is_not() {
    let rows: [&[u32]; 4] = [&[0, 1], &[0, 1], &[2, 3], &[2, 3]];
    let matrix = Sparse::pattern(4, rows);
    let error = factorise(&matrix, 5).unwrap_err();
    assert_eq!(
        error.to_string(),
        "5 features need at least 5 users; there are 4"
    );
    assert!(matches!(
        factorise(&matrix, 1),
        Err(FeatureError::Dim { dim: 1 })
    ));
    let (svd, shortage) = factorise(&matrix, 4).unwrap();
    let expected = Shortage {
        what: Resource::Directions,
        asked: 3,
        found: 2,
    };
    assert_eq!(shortage, Some(expected));
    assert!(
        user_weights(&svd)
            .values()
            .iter()
            .all(|value| value.is_finite())
    );
    assert_eq!(factorise(&matrix, 3).unwrap().1, None);
}

#[test]
fn a_user_who_took_nothing_has_no_direction_made_of_rounding_errors() {
    // More items than users, and too many of both for the direct way.
    let rows: Vec<Vec<u32>> = (0..120_u32)
        .map(|user| {
            let taken = |item: &u32| user != 60 && (user * 31 + item * item * 7) % 97 % 4 < 1;
            (0..150).filter(taken).collect()
        })
        .collect();
    let matrix = Sparse::pattern(150, rows.iter().map(Vec::as_slice));
    let weights = user_weights(&factorise(&matrix, 4).unwrap().0);
    assert_eq!(weights.row(60), [0.0, 0.0, 0.0, FRAC_1_SQRT_2]);
    assert!((length(weights.row(61)) - 1.0).abs() < 1e-14);
}

fn length(row: &[f64]) -> f64 {
    row.iter().map(|value| value * value).sum::<f64>().sqrt()
}

#[test]
fn weights_have_length_one_and_items_at_most() {
    let rows: Vec<Vec<u32>> = (0..30_u32)
        .map(|user| {
            (0..20)
                .filter(|item| (user * 3 + item * item) % 7 < 3)
                .collect()
        })
        .chain([vec![]])
        .collect();
    let matrix = Sparse::pattern(20, rows.iter().map(Vec::as_slice));
    let (svd, _) = factorise(&matrix, 4).unwrap();
    let weights = user_weights(&svd);
    assert_eq!((weights.rows(), weights.columns()), (31, 4));
    for row in 0..30 {
        assert!((length(weights.row(row)) - 1.0).abs() < 1e-14);
        assert!((weights.get(row, 3) - FRAC_1_SQRT_2).abs() < 1e-15);
    }
    assert_eq!(weights.row(30), [0.0, 0.0, 0.0, FRAC_1_SQRT_2]);

    let items = item_vectors(&svd);
    let lengths: Vec<f64> = (0..20).map(|row| length(items.row(row))).collect();
    let longest = lengths.iter().copied().fold(0.0, f64::max);
    assert!((longest - 1.0).abs() < 1e-14);

    // Singular values are included: the products of item vectors are those of AᵀA, scaled.
    let (svd, _) = factorise(&matrix, 20).unwrap();
    let items = item_vectors(&svd);
    let product = |i: usize, j: usize| -> f64 {
        let entries = items.row(i)[..19].iter().zip(&items.row(j)[..19]);
        entries.map(|(a, b)| a * b).sum()
    };
    let both = |i: u32, j: u32| {
        rows.iter()
            .filter(|row| row.contains(&i) && row.contains(&j))
            .count() as f64
    };
    let scale = product(0, 0) / both(0, 0);
    for (i, j) in [(0, 1), (3, 3), (5, 18), (19, 2)] {
        let left_out = svd.values[18].powi(2) * 1e-9;
        let miss = product(i, j) - scale * both(i as u32, j as u32);
        assert!(miss.abs() < 1e-9 + left_out, "{i} and {j}: {miss}");
    }
}
