//! The warning about a clustering that is not used.

use super::super::{SclubSoft, SoftParams};
use super::*;
use crate::abilities::Inspect;

/// A policy whose fit has one cluster, at a gain.
fn at_gain(gain: f64) -> SclubSoft {
    let params = SoftParams {
        caution: 10.0,
        ..SoftParams::default()
    };
    let mut policy = SclubSoft::new(2, &params).unwrap();
    let background = random_background(1, 2, 1.0);
    let mixture = mixture(&[vec![1.0, 0.0]], &[0.5]);
    policy.install(fit_of(&background, 0.2, &mixture));
    policy.gain = gain;
    policy
}

#[test]
fn a_warning_names_the_direction_and_the_size_of_the_gain() {
    let warning = |gain| at_gain(gain).outlook().unwrap().warning;
    let worse = warning(-5.0).unwrap();
    assert!(worse.contains(" 5.0 nats less likely "), "{worse}");
    // Better than without clusters, but not by enough.
    let better = warning(5.0).unwrap();
    assert!(better.contains(" 5.0 nats more likely "), "{better}");
    assert!(better.contains(" at 10.0 nats"), "{better}");
    assert!(
        !better.contains('-') && !better.contains("less"),
        "{better}"
    );
    assert_eq!(warning(10.0), None);
    for gain in [-5.0, 5.0, 10.0] {
        let outlook = at_gain(gain).outlook().unwrap();
        assert_eq!(outlook.used, outlook.warning.is_none());
    }
}
