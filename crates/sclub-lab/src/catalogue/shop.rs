//! The recipe of a shop.

use serde::Serialize;

use crate::named::named;
use crate::synthetic::{MAX_USERS, RecipeError, Twists};

/// The maximum number of items of a shop.
const MAX_ITEMS: usize = 1_000_000;

/// The maximum number of tastes, items shown at once, and kinds of a feature.
const MAX_COUNT: usize = 10_000;

/// A family of shops, one for each seed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shop {
    /// Items, all of which are candidates in every round.
    pub items: usize,
    /// Categories; each is a feature, 1 for the items in it, else 0.
    pub categories: usize,
    /// Price bands; each is a feature, 1 for the items in it, else 0.
    pub price_bands: usize,
    /// Features that are normal numbers.
    pub numbers: usize,
    /// The standard deviation of these numbers.
    pub number_scale: f64,
    /// Users.
    pub users: usize,
    /// Tastes; as many users have one as another.
    pub tastes: usize,
    /// The standard deviation of a taste's weights.
    pub taste_scale: f64,
    /// The standard deviation of the difference between a user's weights and the taste's.
    pub deviation: f64,
    /// From θᵀx to the probability of a click.
    pub link: Link,
    /// The frequencies of users.
    pub visits: Visits,
    /// With [`Visits::Zipf`]: the r-th most frequent user appears in proportion to r to the power of minus this.
    pub zipf_exponent: f64,
    /// The number of rounds by which rewards are late.
    pub delay: u64,
    /// Items shown in a round, each with a click or none.
    pub slots: usize,
    /// Rounds from one newcomer to the next; all users are there from the start if it is absent.
    pub newcomers_every: Option<f64>,
}

impl Default for Shop {
    fn default() -> Self {
        Self {
            items: 3000,
            categories: 6,
            price_bands: 3,
            numbers: 7,
            number_scale: 0.4,
            users: 2000,
            tastes: 6,
            taste_scale: 0.9,
            deviation: 0.2,
            link: Link::default_of(LinkKind::Logistic),
            visits: Visits::Uniform,
            zipf_exponent: 1.0,
            delay: 0,
            slots: 1,
            newcomers_every: None,
        }
    }
}

/// From θᵀx to the probability of a click: f(scale · θᵀx + bias).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// f
    pub kind: LinkKind,
    /// The factor of θᵀx.
    pub scale: f64,
    /// The number that is added to it.
    pub bias: f64,
}

impl Link {
    /// The link of a kind with its default numbers. A linear one keeps nearly all probabilities of the
    /// default shop inside [0, 1]: θᵀx has a standard deviation of about 1.6, and the best item's is about 5.
    pub fn default_of(kind: LinkKind) -> Self {
        let (scale, bias) = match kind {
            LinkKind::Logistic => (1.0, -3.2),
            LinkKind::Linear => (0.08, 0.3),
        };
        Self { kind, scale, bias }
    }

    /// The probability of a click from θᵀx.
    #[inline]
    pub fn mean(self, product: f64) -> f64 {
        let z = self.scale * product + self.bias;
        match self.kind {
            LinkKind::Logistic => 1.0 / (1.0 + libm::exp(-z)),
            LinkKind::Linear => z.clamp(0.0, 1.0),
        }
    }
}

/// A kind of [`Link`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkKind {
    /// f(z) = 1 / (1 + exp(−z))
    Logistic,
    /// f(z) = z, at least 0 and at most 1
    Linear,
}

named!(
    LinkKind,
    "kind of link",
    [
        (
            "logistic",
            "1 / (1 + exp(-z)) of z = scale * theta.x + bias",
            LinkKind::Logistic
        ),
        (
            "linear",
            "scale * theta.x + bias, at least 0 and at most 1",
            LinkKind::Linear
        ),
    ]
);

/// Frequencies of a shop's users.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Visits {
    /// All users equally often.
    Uniform,
    /// By a power law: a few users often, most of them rarely.
    Zipf,
}

named!(
    Visits,
    "kind of visits",
    [
        ("uniform", "All users equally often", Visits::Uniform),
        (
            "zipf",
            "The r-th most frequent user in proportion to r^-exponent",
            Visits::Zipf
        ),
    ]
);

impl Shop {
    /// d
    pub fn dim(&self) -> usize {
        self.categories + self.price_bands + self.numbers
    }

    /// The constants that the shop sets for policies ([`crate::setting::Setting::told`]).
    pub fn told(&self) -> Vec<(&'static str, f64)> {
        vec![("components", self.tastes.min(64) as f64)]
    }

    /// The number of users that have come by a round, which counts from 0.
    pub(super) fn present(&self, round: u64) -> usize {
        let twists = Twists {
            newcomers_every: self.newcomers_every,
            ..Twists::default()
        };
        twists.present(round, self.users)
    }

    /// Checks every number.
    ///
    /// # Errors
    /// Names the first that is out of range.
    pub fn check(&self) -> Result<(), RecipeError> {
        let counts = [
            ("items", self.items, 1, MAX_ITEMS),
            ("categories", self.categories, 0, MAX_COUNT),
            ("price-bands", self.price_bands, 0, MAX_COUNT),
            ("numbers", self.numbers, 0, MAX_COUNT),
            ("users", self.users, 1, MAX_USERS),
            ("tastes", self.tastes, 1, self.users.min(MAX_COUNT)),
            ("slots", self.slots, 1, self.items.min(MAX_COUNT)),
        ];
        let bad = counts
            .into_iter()
            .find(|&(_, value, low, high)| !(low..=high).contains(&value));
        if let Some((name, value, low, high)) = bad {
            let high = match name {
                "tastes" if high == self.users => format!("the number of users, {high}"),
                "slots" if high == self.items => format!("the number of items, {high}"),
                _ => high.to_string(),
            };
            return Err(RecipeError::OutOfRange {
                name,
                value: value as f64,
                requirement: format!("between {low} and {high}"),
            });
        }
        if !(1..=sclub::MAX_DIM).contains(&self.dim()) {
            return Err(RecipeError::OutOfRange {
                name: "categories + price-bands + numbers",
                value: self.dim() as f64,
                requirement: format!("between 1 and {}", sclub::MAX_DIM),
            });
        }
        let gap = self.newcomers_every.unwrap_or(1.0);
        let range = |name, value: f64, low: f64, high: f64| (name, value, low, high);
        let numbers = [
            range("number-scale", self.number_scale, 0.0, 1e3),
            range("taste-scale", self.taste_scale, 0.0, 1e3),
            range("deviation", self.deviation, 0.0, 1e3),
            range("link-scale", self.link.scale, 1e-9, 1e3),
            range("bias", self.link.bias, -1e3, 1e3),
            range("zipf-exponent", self.zipf_exponent, 0.0, 10.0),
            range("newcomers-every", gap, 1e-9, 1e15),
        ];
        let bad = numbers
            .into_iter()
            .find(|&(_, value, low, high)| !(low..=high).contains(&value));
        match bad {
            None => Ok(()),
            Some((name, value, low, high)) => Err(RecipeError::OutOfRange {
                name,
                value,
                requirement: format!("between {low} and {high}"),
            }),
        }
    }
}
