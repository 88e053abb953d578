//! Random numbers that are fixed by a key, and draws from a posterior.

use crate::digest::mix;
use crate::items::Group;
use crate::statistics::View;
use crate::ucb;

/// `recommend`, `explain` and their siblings of a policy that ranks items by a weight vector drawn from a posterior:
/// it has `default_draw(user)`, the random number of a decision without one of its own, and `draw(number, user)`, an
/// estimate and a draw.
macro_rules! rank_by_draw {
    () => {
        fn recommend(&self, user: UserId, items: &ItemSet) -> Result<Decision, Error> {
            self.recommend_drawn(self.default_draw(user), user, items)
        }

        fn explain(
            &self,
            user: UserId,
            items: &ItemSet,
            scores: &mut Vec<Score>,
        ) -> Result<(), Error> {
            self.explain_drawn(self.default_draw(user), user, items, scores)
        }

        fn recommend_drawn(
            &self,
            draw: u64,
            user: UserId,
            items: &ItemSet,
        ) -> Result<Decision, Error> {
            crate::policy::check_items(items, self.dim())?;
            let (estimate, draw) = self.draw(draw, user);
            Ok(crate::ucb::choose(items, |group, scores| {
                crate::draws::score(&estimate, &draw, &group, scores);
            }))
        }

        fn explain_drawn(
            &self,
            draw: u64,
            user: UserId,
            items: &ItemSet,
            scores: &mut Vec<Score>,
        ) -> Result<(), Error> {
            crate::policy::check_items(items, self.dim())?;
            let (estimate, draw) = self.draw(draw, user);
            crate::ucb::explain(items, scores, |group, scores| {
                crate::draws::score(&estimate, &draw, &group, scores);
            });
            Ok(())
        }

        fn recommend_list_drawn(
            &self,
            draw: u64,
            user: UserId,
            items: &ItemSet,
            k: usize,
            exclude: &dyn Fn(usize) -> bool,
            list: &mut Vec<Decision>,
        ) -> Result<(), Error> {
            let mut scores = Vec::new();
            self.explain_drawn(draw, user, items, &mut scores)?;
            crate::policy::largest(&scores, k, exclude, list);
            Ok(())
        }
    };
}
pub(crate) use rank_by_draw;

/// Scores a group of items: the mean by the estimate, the score by the draw.
pub(crate) fn score(estimate: &[f64], draw: &[f64], group: &Group<'_>, scores: &mut ucb::Scores) {
    ucb::products(estimate, group, &mut scores.mean);
    ucb::products(draw, group, &mut scores.score);
    for lane in 0..group.width {
        scores.width[lane] = scores.score[lane] - scores.mean[lane];
    }
}

/// Independent standard normal numbers (Marsaglia's polar method). A key gives the same ones again.
pub(crate) struct Normals {
    state: u64,
    spare: Option<f64>,
}

impl Normals {
    pub fn new(key: u64) -> Self {
        Self {
            state: mix(key),
            spare: None,
        }
    }

    /// A number of (−1, 1).
    fn uniform(&mut self) -> f64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        (mix(self.state) >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    pub fn next(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        loop {
            let (u, v) = (self.uniform(), self.uniform());
            let square = u * u + v * v;
            if square > 0.0 && square < 1.0 {
                let length = (-2.0 * libm::log(square) / square).sqrt();
                self.spare = Some(v * length);
                return u * length;
            }
        }
    }
}

/// A draw from N(θ̂, scale² S⁻¹).
pub(crate) fn from_posterior(key: u64, view: View<'_>, scale: f64) -> Vec<f64> {
    let mut draw = deviation(key, view, scale);
    for (value, mean) in draw.iter_mut().zip(view.estimate) {
        *value += mean;
    }
    draw
}

/// A draw from N(0, scale² S⁻¹), S⁻¹ = Mᵀ diag(g) M.
pub(crate) fn deviation(key: u64, view: View<'_>, scale: f64) -> Vec<f64> {
    let mut normals = Normals::new(key);
    let mut draw = vec![0.0; view.scale.len()];
    // Mᵀ w, row by row: M is unit lower triangular, packed by rows without its diagonal.
    let mut start = 0;
    for row in 0..draw.len() {
        let w = scale * view.scale[row].sqrt() * normals.next();
        draw[row] += w;
        let factors = &view.factor[start..start + row];
        for (value, factor) in draw.iter_mut().zip(factors) {
            *value += factor * w;
        }
        start += row;
    }
    draw
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first four moments of many numbers of one key, and of the first number of many keys.
    #[test]
    fn numbers_are_standard_normal() {
        const COUNT: u32 = 200_000;
        let mut one = Normals::new(7);
        let of_one: Vec<f64> = (0..COUNT).map(|_| one.next()).collect();
        let of_many: Vec<f64> = (0..COUNT)
            .map(|key| Normals::new(key.into()).next())
            .collect();
        for numbers in [of_one, of_many] {
            let moment =
                |power: i32| numbers.iter().map(|n| n.powi(power)).sum::<f64>() / f64::from(COUNT);
            // Five standard errors of each: the variances of the powers are 1, 2, 15 and 96.
            for (power, expected, variance) in
                [(1, 0.0, 1.0), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0)]
            {
                let error = 5.0 * (variance / f64::from(COUNT)).sqrt();
                assert!(
                    (moment(power) - expected).abs() < error,
                    "{power}: {}",
                    moment(power)
                );
            }
        }
    }
}
