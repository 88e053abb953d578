//! The cascade click model: a user reads a list from the top and clicks the first attractive item.
//!
//! Item x is attractive with probability w(x), independently of the others. The user looks at the items up to the
//! click, or at all of them. The value of a list is the probability of a click, f = 1 − Π(1 − w).

/// f, the probability that a list with these attractions is clicked.
pub fn click_probability(attractions: impl IntoIterator<Item = f64>) -> f64 {
    1.0 - attractions
        .into_iter()
        .fold(1.0, |product, attraction| product * (1.0 - attraction))
}

/// f of the best list of `k` items.
pub fn best_list(attractions: &[f64], k: usize) -> f64 {
    let mut all = attractions.to_vec();
    all.sort_unstable_by(|a, b| b.total_cmp(a));
    click_probability(all.into_iter().take(k))
}

/// The mean of f over all lists of `k` different items.
///
/// The mean of a product of k different factors out of i is a(i, k), with
/// a(i, k) = (1 − k/i) a(i − 1, k) + (k/i) q_i a(i − 1, k − 1): item i is among them with probability k/i.
pub fn average_list(attractions: &[f64], k: usize) -> f64 {
    let mut products = vec![0.0; k + 1];
    products[0] = 1.0;
    for (before, attraction) in attractions.iter().enumerate() {
        for size in (1..=k.min(before + 1)).rev() {
            let share = size as f64 / (before + 1) as f64;
            let with = (1.0 - attraction) * products[size - 1];
            products[size] = (1.0 - share) * products[size] + share * with;
        }
    }
    1.0 - products[k]
}

#[cfg(test)]
mod tests {
    use super::*;

    const ATTRACTIONS: [f64; 6] = [0.1, 0.9, 0.0, 0.35, 0.5, 0.02];

    /// f of every list of `k` different items, by going through all sets.
    fn all_lists(k: usize) -> Vec<f64> {
        let sets = (0..1u32 << ATTRACTIONS.len()).filter(|set| set.count_ones() as usize == k);
        let values = sets.map(|set| {
            let inside = (0..ATTRACTIONS.len()).filter(|item| set >> item & 1 == 1);
            // The user clicks item i if all before it are unattractive.
            let mut clicked = 0.0;
            let mut reaches = 1.0;
            for item in inside {
                clicked += reaches * ATTRACTIONS[item];
                reaches *= 1.0 - ATTRACTIONS[item];
            }
            clicked
        });
        values.collect()
    }

    #[test]
    fn the_best_and_the_average_list_are_those_among_all_lists() {
        for k in 1..=ATTRACTIONS.len() {
            let all = all_lists(k);
            let best = all.iter().copied().fold(0.0, f64::max);
            let average = all.iter().sum::<f64>() / all.len() as f64;
            assert!((best_list(&ATTRACTIONS, k) - best).abs() < 1e-12, "{k}");
            assert!(
                (average_list(&ATTRACTIONS, k) - average).abs() < 1e-12,
                "{k}"
            );
        }
    }
}
