//! Decisions that wait to be written, and pages of the journal against literal bytes.

mod bench;
mod counted;
mod recalled;

use super::pending::PendingDecision;
use super::*;

#[test]
fn pending_decisions_are_read_as_they_were_pushed() {
    let mut pending = Pending::default();
    assert!(pending.is_empty() && pending.decisions().next().is_none());
    let all = [&b"one"[..], b"", b"three"];
    let propensities = [&[][..], &[0.5], &[0.25, 1.0]];
    let details = [&b""[..], b"", b"detail"];
    let all: Vec<PendingDecision<'_>> = all
        .into_iter()
        .zip(propensities)
        .zip(details)
        .map(|((decision, propensities), detail)| PendingDecision {
            decision,
            propensities,
            detail,
        })
        .collect();
    for one in &all {
        assert!(pending.push(one.decision, one.propensities, one.detail));
    }
    assert_eq!(pending.decisions().collect::<Vec<_>>(), all);
    pending.clear();
    assert!(pending.is_empty());
    assert!(!pending.push(&vec![0; 65 << 20], &[], &[]));
    assert!(!pending.push(&[], &vec![0.5; 9 << 20], &[]));
}

/// A page with a decision on two items.
fn page(context: Vec<f64>, propensities: Vec<f64>) -> Page {
    Page {
        position: 1,
        events: 2,
        clock: 3,
        shown: vec![ShownRow {
            number: 4,
            event: 5,
            at: 6,
            user: "u".to_owned(),
            cluster: 7,
            items: vec![(8, 1.0), (9, 0.5)],
            context,
            propensities,
            detail: None,
        }],
        ..Page::default()
    }
}

/// Folders without propensities can be read by earlier versions.
#[test]
fn a_page_without_propensities_keeps_its_bytes() {
    let body = [
        &[1, 2, 3, 0, 0, 1, 4, 5, 6, 1, b'u', 7, 2, 8][..],
        &1f64.to_le_bytes(),
        &[9],
        &0.5f64.to_le_bytes(),
        &[0, 0],
    ]
    .concat();
    let plain = [&[2][..], &body].concat();
    assert_eq!(page(Vec::new(), Vec::new()).encode(), plain);
    let context = [&[1, 1][..], &0.25f64.to_le_bytes(), &[0]].concat();
    let in_context = [&[3][..], &body, &context].concat();
    assert_eq!(page(vec![0.25], Vec::new()).encode(), in_context);
    let propensities = [
        &[0, 0, 1, 2][..],
        &0.75f64.to_le_bytes(),
        &1f64.to_le_bytes(),
    ];
    let with = [&[4][..], &body, &propensities.concat()].concat();
    assert_eq!(page(Vec::new(), vec![0.75, 1.0]).encode(), with);
}

#[test]
fn a_page_comes_back_as_it_was() {
    for context in [vec![], vec![0.25]] {
        for propensities in [vec![], vec![0.75, 1.0]] {
            let page = page(context.clone(), propensities);
            let bytes = page.encode();
            assert_eq!(Page::decode(&bytes).unwrap(), page);
            for end in 0..bytes.len() {
                assert!(Page::decode(&bytes[..end]).is_err());
            }
        }
    }
}
