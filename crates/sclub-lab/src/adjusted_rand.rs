//! The adjusted Rand index: the similarity of two partitions.

use std::collections::BTreeMap;

/// The adjusted Rand index of two labellings of the same users: 1 for the same partition, about 0
/// for partitions that have nothing to do with each other.
///
/// Two labellings that both put all in one part, or both each in its own, are the same: 1.
///
/// # Panics
/// If the labellings differ in length.
pub fn adjusted_rand(a: &[u64], b: &[u64]) -> f64 {
    assert_eq!(a.len(), b.len(), "both label the same users");
    let pairs = |count: u64| (count * count.saturating_sub(1)) as f64 / 2.0;
    let mut cells: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    let (mut rows, mut columns): (BTreeMap<u64, u64>, BTreeMap<u64, u64>) = Default::default();
    for (&a, &b) in a.iter().zip(b) {
        *cells.entry((a, b)).or_default() += 1;
        *rows.entry(a).or_default() += 1;
        *columns.entry(b).or_default() += 1;
    }
    let together: f64 = cells.values().map(|&n| pairs(n)).sum();
    let in_rows: f64 = rows.values().map(|&n| pairs(n)).sum();
    let in_columns: f64 = columns.values().map(|&n| pairs(n)).sum();
    let all = pairs(a.len() as u64);
    let expected = if all > 0.0 {
        in_rows * in_columns / all
    } else {
        0.0
    };
    let most = (in_rows + in_columns) / 2.0;
    if most == expected {
        1.0
    } else {
        (together - expected) / (most - expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_a_count_by_hand() {
        // Pairs together in both: (0,1); in the first: (0,1) (2,3); in the second: (0,1) (0,2) (1,2).
        let value = adjusted_rand(&[1, 1, 2, 2], &[5, 5, 5, 6]);
        let expected = 2.0 * 3.0 / 6.0;
        assert!((value - (1.0 - expected) / (2.5 - expected)).abs() < 1e-12);
    }

    #[test]
    fn names_do_not_matter() {
        assert_eq!(adjusted_rand(&[1, 1, 2, 3], &[9, 9, 4, 7]), 1.0);
        assert_eq!(adjusted_rand(&[1, 1, 1], &[2, 2, 2]), 1.0);
        assert_eq!(adjusted_rand(&[1, 2, 3], &[3, 1, 2]), 1.0);
        assert_eq!(adjusted_rand(&[1, 1, 2, 2], &[1, 2, 3, 4]), 0.0);
    }
}
