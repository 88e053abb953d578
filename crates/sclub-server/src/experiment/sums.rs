//! The running sums of an arm. A reward changes them in a time that does not depend on the number of users.

use serde::{Deserialize, Serialize};

/// The items of a user that have a reward, and their rewards.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct UserSums {
    /// The number of items n.
    pub items: u64,
    /// The sum s of their rewards.
    pub rewards: f64,
    /// The sums of the squares, the third and the fourth powers of their rewards.
    pub powers: [f64; 3],
}

impl UserSums {
    /// Adds the reward of an item.
    pub fn add(&mut self, reward: f64) {
        self.items += 1;
        self.rewards += reward;
        for (sum, power) in self.powers.iter_mut().zip(powers(reward)) {
            *sum += power;
        }
    }

    /// Puts a reward in place of an earlier one.
    pub fn replace(&mut self, from: f64, to: f64) {
        self.rewards += to - from;
        let changes = powers(to).into_iter().zip(powers(from));
        for (sum, (to, from)) in self.powers.iter_mut().zip(changes) {
            *sum += to - from;
        }
    }
}

/// The second, third and fourth power.
fn powers(reward: f64) -> [f64; 3] {
    let square = reward * reward;
    [square, square * reward, square * square]
}

/// Sums over the users of an arm.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Sums {
    /// The number of users.
    pub users: u64,
    /// Σn: the number of items that have a reward.
    pub items: u64,
    /// Σs: the sum of the rewards.
    pub rewards: f64,
    /// The sums of the squares, the third and the fourth powers of the rewards.
    pub powers: [f64; 3],
    /// Σn².
    pub items_squared: f64,
    /// Σs².
    pub rewards_squared: f64,
    /// Σns.
    pub products: f64,
}

impl Sums {
    /// Takes note that the sums of a user have changed. A user without items has none.
    pub fn update(&mut self, from: &UserSums, to: &UserSums) {
        let (before, after) = (from.items as f64, to.items as f64);
        self.users = self.users + u64::from(to.items > 0) - u64::from(from.items > 0);
        self.items = self.items + to.items - from.items;
        self.rewards += to.rewards - from.rewards;
        for (sum, (to, from)) in self
            .powers
            .iter_mut()
            .zip(to.powers.iter().zip(from.powers))
        {
            *sum += to - from;
        }
        self.items_squared += after * after - before * before;
        self.rewards_squared += to.rewards * to.rewards - from.rewards * from.rewards;
        self.products += after * to.rewards - before * from.rewards;
    }

    /// The reward per item R = Σs/Σn; `None` without items.
    pub fn rate(&self) -> Option<f64> {
        (self.items > 0).then(|| self.rewards / self.items as f64)
    }

    /// The variance of [`Sums::rate`] by the delta method, clustered by user: Σ(s − Rn)²/(Σn)², with the factor
    /// N/(N − 1) for N users. It is at least the variance of as many independent items. `None` with fewer than two users.
    pub fn rate_variance(&self) -> Option<f64> {
        let rate = self.rate().filter(|_| self.users > 1)?;
        let (users, items) = (self.users as f64, self.items as f64);
        let residuals =
            self.rewards_squared - 2.0 * rate * self.products + rate * rate * self.items_squared;
        let clustered = residuals.max(0.0) / (items * items) * users / (users - 1.0);
        Some(clustered.max(self.item_variance()? / items))
    }

    /// The variance of the reward of one item; `None` without items.
    pub fn item_variance(&self) -> Option<f64> {
        let rate = self.rate()?;
        Some((self.powers[0] / self.items as f64 - rate * rate).max(0.0))
    }

    /// The kurtosis of the rewards, E(r − μ)⁴/σ⁴; `None` if all are equal. For rewards 0 and 1 it is 1/p(1 − p) − 3.
    pub fn kurtosis(&self) -> Option<f64> {
        let variance = self.item_variance().filter(|variance| *variance > 0.0)?;
        let mean = self.rate()?;
        let [second, third, fourth] = self.powers.map(|sum| sum / self.items as f64);
        let central =
            fourth - 4.0 * mean * third + 6.0 * mean.powi(2) * second - 3.0 * mean.powi(4);
        // No distribution has less.
        Some((central / (variance * variance)).max(1.0))
    }

    /// The sums of the users of both arms.
    pub fn join(&self, other: &Self) -> Self {
        Self {
            users: self.users + other.users,
            items: self.items + other.items,
            rewards: self.rewards + other.rewards,
            powers: std::array::from_fn(|power| self.powers[power] + other.powers[power]),
            items_squared: self.items_squared + other.items_squared,
            rewards_squared: self.rewards_squared + other.rewards_squared,
            products: self.products + other.products,
        }
    }
}
