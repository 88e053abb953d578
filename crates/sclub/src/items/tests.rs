use super::*;
use proptest::prelude::*;

/// One step in the life of a catalogue; numbers are taken modulo the length.
#[derive(Debug, Clone)]
enum Step {
    Push(Vec<f64>),
    Replace(usize, Vec<f64>),
    Remove(usize),
    Select(Vec<usize>),
}

fn steps(dim: usize) -> impl Strategy<Value = Vec<Step>> {
    let features = move || prop::collection::vec(-3.0..3.0, dim);
    let step = prop_oneof![
        6 => features().prop_map(Step::Push),
        1 => (any::<usize>(), features()).prop_map(|(at, f)| Step::Replace(at, f)),
        3 => any::<usize>().prop_map(Step::Remove),
    ];
    let selection = prop::collection::vec(any::<usize>(), 0..80).prop_map(Step::Select);
    (prop::collection::vec(step, 0..250), selection, 0usize..300).prop_map(
        |(mut steps, selection, at)| {
            steps.insert(at.min(steps.len()), selection);
            steps
        },
    )
}

proptest! {
    #[test]
    fn a_catalogue_that_lived_is_one_filled_at_once(
        (dim, steps) in (1usize..6).prop_flat_map(|dim| (Just(dim), steps(dim))),
    ) {
        let mut set = ItemSet::new(dim).unwrap();
        let mut rows: Vec<Vec<f64>> = Vec::new();
        for step in steps {
            match step {
                Step::Push(features) => {
                    set.push(&features).unwrap();
                    rows.push(features);
                }
                Step::Replace(at, features) if !rows.is_empty() => {
                    let at = at % rows.len();
                    set.replace(at, &features).unwrap();
                    rows[at] = features;
                }
                Step::Remove(at) if !rows.is_empty() => {
                    let at = at % rows.len();
                    set.swap_remove(at);
                    rows.swap_remove(at);
                }
                Step::Select(indexes) if !rows.is_empty() => {
                    let from = set.clone();
                    let indexes: Vec<usize> =
                        indexes.iter().map(|at| at % rows.len()).collect();
                    set.select(&from, &indexes).unwrap();
                    rows = indexes.iter().map(|&at| rows[at].clone()).collect();
                }
                _ => {}
            }
            prop_assert_eq!(&set, &ItemSet::from_rows(dim, &rows.concat()).unwrap());
        }
    }
}

#[test]
fn a_refused_item_leaves_the_catalogue_as_it_was() {
    let mut set = ItemSet::from_rows(2, &[1.0, 2.0]).unwrap();
    let before = set.clone();
    assert_eq!(
        set.push(&[1.0]),
        Err(Error::DimensionMismatch {
            expected: 2,
            got: 1
        })
    );
    let refused = set.push(&[0.0, f64::NAN]);
    assert!(matches!(
        refused,
        Err(Error::BadFeature {
            item: 1,
            feature: 1,
            ..
        })
    ));
    assert!(set.replace(0, &[f64::INFINITY, 0.0]).is_err());
    let other = ItemSet::from_rows(3, &[1.0, 2.0, 3.0]).unwrap();
    assert!(set.select(&other, &[0]).is_err());
    assert_eq!(set, before);
}

#[test]
fn every_item_comes_back_as_it_went_in() {
    for len in [0, 1, 7, 8, 9, 20, 31, 32, 33, 70, 129] {
        let rows: Vec<f64> = (0..len * 3).map(|v| v as f64).collect();
        let set = ItemSet::from_rows(3, &rows).unwrap();
        assert_eq!(set.len(), len);
        let mut copy = [0.0; 3];
        for (index, row) in rows.chunks(3).enumerate() {
            assert_eq!(set.item(index).collect::<Vec<_>>(), row);
            set.copy_item(index, &mut copy);
            assert_eq!(copy, row);
        }
        let by_feature: Vec<f64> = (0..3)
            .flat_map(|k| rows.iter().skip(k).step_by(3).copied())
            .collect();
        let mut again = ItemSet::from_rows(3, &[7.0; 30]).unwrap();
        again.refill_by_feature(len, &by_feature).unwrap();
        assert_eq!(again, set);
        for other in [0, len, 30] {
            let mut again = ItemSet::from_rows(3, &vec![7.0; other * 3]).unwrap();
            for _ in 0..3 {
                again.refill_with(len, |i, k| rows[i * 3 + k]).unwrap();
                assert_eq!(again, set);
            }
        }
        let covered: usize = set.groups().map(|group| group.len).sum();
        assert_eq!(covered, len);
    }
}

#[test]
fn a_refused_refill_leaves_the_set_as_it_was() {
    let mut set = ItemSet::from_rows(2, &[1.0, 2.0]).unwrap();
    let before = set.clone();
    assert_eq!(
        set.refill(&[0.0, 1.0, 2.0]),
        Err(Error::DimensionMismatch {
            expected: 2,
            got: 1
        })
    );
    let refused = set.refill(&[0.0, 1.0, f64::INFINITY, 0.0]);
    assert_eq!(
        refused,
        Err(Error::BadFeature {
            item: 1,
            feature: 0,
            value: f64::INFINITY
        })
    );
    let refused = set.refill_by_feature(2, &[0.0, 1.0, f64::NAN, 0.0]);
    assert!(matches!(
        refused,
        Err(Error::BadFeature {
            item: 0,
            feature: 1,
            ..
        })
    ));
    let refused = set.refill_by_feature(2, &[0.0, 1.0, 5.0]);
    assert_eq!(
        refused,
        Err(Error::DimensionMismatch {
            expected: 2,
            got: 1
        })
    );
    assert_eq!(set, before);
}

proptest! {
    #[test]
    fn filled_with_is_filled_from_rows(
        dim in 1usize..6,
        lens in prop::collection::vec(0usize..150, 1..4),
        bad in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(vec![f64::NAN, f64::INFINITY, -1.1e12])), 0..3),
    ) {
        let (mut set, mut expected) = (ItemSet::new(dim).unwrap(), ItemSet::new(dim).unwrap());
        for (turn, &len) in lens.iter().enumerate() {
            let mut rows: Vec<f64> = (0..len * dim).map(|at| (at + turn) as f64).collect();
            if turn > 0 && len > 0 {
                bad.iter().for_each(|(at, value)| rows[at.index(len * dim)] = *value);
            }
            let filled = set.refill_with(len, |item, k| rows[item * dim + k]);
            // Compared as text: NaN is not equal to itself.
            prop_assert_eq!(format!("{filled:?}"), format!("{:?}", expected.refill(&rows)));
            prop_assert_eq!(&set, &expected);
        }
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            set.refill_with(40, |item, _| [1.0; 35][item])
        }));
        prop_assert!(panicked.is_err());
        prop_assert_eq!(&set, &expected);
        prop_assert!(set.refill_with(MAX_ITEMS + 1, |_, _| 0.0).is_err());
        prop_assert_eq!(&set, &expected);
    }
}
