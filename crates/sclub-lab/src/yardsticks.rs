//! Yardsticks: policies for comparison, which know the ground truth or learn nothing.

use sclub::Setup;

use crate::world::Truth;

mod best_item;
mod informed;
mod oracle;
mod random;

pub use best_item::BestItem;
pub use informed::Informed;
pub use oracle::Oracle;
pub use random::Random;

/// Their specs, as [`sclub::specs`].
pub mod specs {
    pub use super::best_item::SPEC as BEST_ITEM;
    pub use super::informed::SPEC as INFORMED;
    pub use super::oracle::SPEC as ORACLE;
    pub use super::random::SPEC as RANDOM;
}

/// The truth about a simulated world, as [`Setup::truth`] has it.
#[derive(Debug, Clone, PartialEq)]
pub struct Known {
    /// The world's seed.
    pub seed: u64,
    /// The clusters, for policies that need them, if the world has any.
    pub truth: Option<Truth>,
    /// True if all rounds have the same items.
    pub is_catalogue: bool,
}

impl Known {
    /// The truth in a setup, if there is any.
    fn of<'a>(setup: &Setup<'a>) -> Option<&'a Known> {
        setup.truth.and_then(|truth| truth.downcast_ref())
    }

    /// The clusters in a setup.
    fn clusters<'a>(setup: &Setup<'a>) -> Result<&'a Truth, sclub::Error> {
        let truth = Known::of(setup).and_then(|known| known.truth.as_ref());
        truth.ok_or(sclub::Error::Unsupported {
            reason: "the policy needs the true clusters",
        })
    }
}
