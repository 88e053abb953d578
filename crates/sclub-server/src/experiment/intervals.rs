//! Confidence sequences: intervals that hold at every time one looks.
//!
//! The estimates are the reward per item of an arm, R, and the difference of two arms. Users are the randomised
//! units, and the rewards of one user are correlated. So the variance V of an estimate is clustered by user
//! ([`Sums::rate_variance`]).
//!
//! The sequence is the normal-mixture one of Robbins in its asymptotic form: Waudby-Smith, Arbour, Sinha, Kennedy and
//! Ramdas, "Time-uniform central limit theory and asymptotic confidence sequences", arXiv 2103.06476, theorem 2.2. With
//! intrinsic time t and error α the radius is
//!
//! ```text
//! √( V · (tρ² + 1)/(tρ²) · ln((tρ² + 1)/α²) )
//! ```
//!
//! In the paper t counts independent observations and V = σ²/t. Here it is t = σ²/V / (κ + 3), with σ² the variance
//! and κ the kurtosis of the reward of one item. σ²/V is the number of independent items that would tell as much. So time passes as
//! information arrives, not as rewards do: a user who comes back a hundred times brings less than a hundred items. For
//! clicks κ + 3 = 1/p(1 − p), so t is the effective number of clicks (or of items without one, if those are fewer). The central limit theorem needs many
//! clicks, not many items: in this time a rare click is as far from a normal number as a frequent one, and before there
//! are some clicks the sequence is wide.
//!
//! A small arm may have no click at all, and then its own variance is 0. So in a difference the variance of each arm is
//! at least that of as many items of both arms ([`Sums::rate_variance`] of their sum). If the arms do not differ,
//! that is the true one.
//!
//! The sequence is valid with correlated rewards because of one property of means: for two looks, the covariance of the earlier
//! and the later estimate is the variance of the later one. It holds for the mean of users who each have a level of their own and
//! noise around it. Then estimate / V is a Brownian motion in time 1/V, as the number of users grows, and the
//! mixture bounds its whole path, for any constant ρ. Where few users have most of the items, the property holds only
//! approximately. `tests/false_alarms.rs` counts false alarms there too.

use super::sums::Sums;

/// The confidence of an interval.
pub const CONFIDENCE: f64 = 0.95;

/// The minimum number of users in an arm before it has intervals: they rest on the central limit theorem.
pub const MIN_USERS: u64 = 50;

/// The effective number of clicks at which the sequence is tightest.
const TIGHTEST_AT: f64 = 100.0;

/// The minimum effective number of clicks before there is an interval.
pub const MIN_CLICKS: f64 = 10.0;

/// An estimate with its confidence sequence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The estimate.
    pub value: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Interval {
    /// Returns true if a value is inside.
    pub fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

/// The reward per item of an arm. `all` has the sums of all arms. `None` while the arm has fewer than [`MIN_USERS`] users or
/// [`MIN_CLICKS`] effective clicks.
pub fn rate(arm: &Sums, all: &Sums) -> Option<Interval> {
    if arm.users < MIN_USERS {
        return None;
    }
    around(arm.rate()?, variance(arm, all)?, all, 1.0 - CONFIDENCE)
}

/// The reward per item of an arm less that of the control. `comparisons` is the number of arms that are compared with
/// the control: all of their intervals hold together with [`CONFIDENCE`] (Bonferroni). `None` while one of both
/// has fewer than [`MIN_USERS`] users, or there are fewer than [`MIN_CLICKS`] effective clicks.
pub fn difference(arm: &Sums, control: &Sums, comparisons: usize) -> Option<Interval> {
    if arm.users.min(control.users) < MIN_USERS {
        return None;
    }
    let error = (1.0 - CONFIDENCE) / comparisons.max(1) as f64;
    let both = arm.join(control);
    let variance = variance(arm, &both)? + variance(control, &both)?;
    around(arm.rate()? - control.rate()?, variance, &both, error)
}

/// The variance of the rate of an arm: its own, and at least that of as many items of all arms.
fn variance(arm: &Sums, all: &Sums) -> Option<f64> {
    let of_item = all.rate_variance()? * all.items as f64;
    Some(arm.rate_variance()?.max(of_item / arm.items as f64))
}

/// The interval around an estimate with a variance. `all` has the rewards that it is computed from.
fn around(value: f64, variance: f64, all: &Sums, error: f64) -> Option<Interval> {
    let time = all.item_variance()? / variance / (all.kurtosis()? + 3.0);
    if time.is_nan() || time < MIN_CLICKS {
        return None;
    }
    let radius = radius(variance, time, error);
    Some(Interval {
        value,
        low: value - radius,
        high: value + radius,
    })
}

/// The radius for an estimate with a variance, at an intrinsic time.
fn radius(variance: f64, time: f64, error: f64) -> f64 {
    let scaled = time * rho_squared(error);
    let factor = (scaled + 1.0) / scaled * ((scaled + 1.0) / (error * error)).ln();
    (variance * factor).sqrt()
}

/// ρ² that makes the sequence tightest at [`TIGHTEST_AT`]: equation 10 of the paper.
fn rho_squared(error: f64) -> f64 {
    let twice = -2.0 * error.ln();
    (twice + (twice + 1.0).ln()) / TIGHTEST_AT
}

#[cfg(test)]
mod tests {
    use super::super::sums::UserSums;
    use super::*;

    /// A few users with given (n, s).
    fn arm(users: &[(u64, f64)]) -> Sums {
        let mut sums = Sums::default();
        for &(items, clicks) in users {
            let mut user = UserSums::default();
            for item in 0..items {
                let before = user;
                user.add(f64::from(u8::from((item as f64) < clicks)));
                sums.update(&before, &user);
            }
        }
        sums
    }

    #[test]
    fn the_variance_is_that_of_the_definition() {
        let users = [(3, 1.0), (10, 4.0), (1, 0.0), (7, 7.0), (2, 1.0)];
        let sums = arm(&users);
        let items: f64 = users.iter().map(|(n, _)| *n as f64).sum();
        let rate = users.iter().map(|(_, s)| s).sum::<f64>() / items;
        let residuals = users.iter().map(|(n, s)| (s - rate * *n as f64).powi(2));
        let expected = residuals.sum::<f64>() / (items * items) * 5.0 / 4.0;
        assert!((sums.rate_variance().unwrap() - expected).abs() < 1e-14);
        let of_item = rate * (1.0 - rate);
        assert!((sums.item_variance().unwrap() - of_item).abs() < 1e-14);
        assert!((sums.kurtosis().unwrap() - (1.0 / of_item - 3.0)).abs() < 1e-12);
    }

    #[test]
    fn the_kurtosis_is_that_of_the_definition() {
        let rewards = [0.5, -2.0, 0.0, 3.5, 0.25, 0.25];
        let mut sums = Sums::default();
        for reward in rewards {
            let mut user = UserSums::default();
            // A reward in place of an assumed one.
            user.add(0.75);
            user.replace(0.75, reward);
            sums.update(&UserSums::default(), &user);
        }
        let mean = rewards.iter().sum::<f64>() / 6.0;
        let moment = |power| rewards.iter().map(|r| (r - mean).powi(power)).sum::<f64>() / 6.0;
        let expected = moment(4) / moment(2).powi(2);
        assert!((sums.kurtosis().unwrap() - expected).abs() < 1e-12);
        assert_eq!(arm(&[(5, 5.0); 9]).kurtosis(), None);
    }

    #[test]
    fn an_arm_without_clicks_has_the_variance_of_the_items_of_both() {
        let (small, large) = (
            arm(&[(1, 0.0); 400]),
            arm(&[[(1, 0.0); 19].as_slice(), &[(1, 1.0)]]
                .concat()
                .repeat(500)),
        );
        assert_eq!(small.rate_variance(), Some(0.0));
        let both = small.join(&large);
        let p: f64 = 500.0 / 10_400.0;
        let expected = p * (1.0 - p) / 400.0;
        let floored = variance(&small, &both).unwrap();
        assert!((floored / expected - 1.0).abs() < 1e-3, "{floored}");
        // 0 of 400 where 20 are expected is a difference; 0 of 100 is none.
        assert!(difference(&small, &large, 1).unwrap().high < 0.0);
        let smaller = arm(&[(1, 0.0); 100]);
        let none = difference(&smaller, &large, 1);
        assert!(none.is_none_or(|interval| interval.contains(0.0)));
    }

    #[test]
    fn a_user_who_leaves_takes_the_sums_along() {
        let with = arm(&[(3, 1.0), (10, 4.0), (7, 7.0)]);
        let without = arm(&[(3, 1.0), (7, 7.0)]);
        let mut left = with;
        let user = UserSums {
            items: 10,
            rewards: 4.0,
            powers: [4.0; 3],
        };
        left.update(&user, &UserSums::default());
        assert_eq!(left, without);
        let mut corrected = user;
        corrected.replace(0.0, 1.0);
        let mut other = with;
        other.update(&user, &corrected);
        assert_eq!(other, arm(&[(3, 1.0), (10, 5.0), (7, 7.0)]));
    }

    #[test]
    fn the_radius_is_that_of_the_paper_for_independent_items() {
        // σ √( 2(tρ² + 1)/(t²ρ²) · ln(√(tρ² + 1)/α) ), written with σ² = 0.09 and t = 500.
        let (sigma, t, alpha) = (0.3f64, 500.0f64, 0.05f64);
        let rho = rho_squared(alpha);
        let paper = sigma
            * (2.0 * (t * rho + 1.0) / (t * t * rho) * ((t * rho + 1.0).sqrt() / alpha).ln())
                .sqrt();
        assert!((radius(sigma * sigma / t, t, alpha) - paper).abs() < 1e-14);
    }

    #[test]
    fn the_sequence_is_tightest_where_it_is_tuned() {
        let per_deviation = |t: f64| radius(1.0, t, 0.05);
        let at = per_deviation(TIGHTEST_AT);
        assert!(at < per_deviation(TIGHTEST_AT * 1.2));
        assert!(at < per_deviation(TIGHTEST_AT / 1.2));
        assert!((3.0..3.1).contains(&at), "{at}");
    }

    #[test]
    fn few_users_and_equal_rewards_have_no_interval() {
        let few = arm(&[(5, 1.0); 49]);
        let some = arm(&[(5, 1.0); 50]);
        let many = arm(&[(5, 2.0); 400]);
        assert_eq!(rate(&few, &few), None);
        assert!(rate(&some, &some).is_some_and(|interval| interval.contains(0.2)));
        assert_eq!(difference(&few, &many, 1), None);
        let equal = arm(&[(5, 5.0); 100]);
        assert_eq!(rate(&equal, &equal), None);
        // 9 clicks are too few, 11 are enough.
        let rare = |clicks: usize| arm(&[vec![(1, 1.0); clicks], vec![(1, 0.0); 5000]].concat());
        assert_eq!(rate(&rare(9), &rare(9)), None);
        assert!(rate(&rare(11), &rare(11)).is_some());
        let one = difference(&many, &some, 1).unwrap();
        let of_three = difference(&many, &some, 3).unwrap();
        assert!((one.value - 0.2).abs() < 1e-12);
        assert!(of_three.low < one.low && one.high < of_three.high);
    }
}
