//! What a world of an experiment is made from, whatever its seed.

use std::sync::Arc;

use sclub::Assumptions;

use crate::synthetic::{Recipe, RecipeError, Synthetic};
use crate::world::World;

/// A family of worlds, one for each seed.
#[derive(Debug, Clone, PartialEq)]
pub enum Setting {
    /// Tastes in clusters, drawn with everything else.
    Synthetic(Recipe),
    /// Given tastes, a vector for each user; everything else is drawn.
    Vectors(Recipe, Arc<Vec<Vec<f64>>>),
}

impl Setting {
    /// Checks every number.
    ///
    /// # Errors
    /// Names the first that is out of range.
    pub fn check(&self) -> Result<(), RecipeError> {
        match self {
            Setting::Synthetic(recipe) => recipe.check(),
            Setting::Vectors(..) => self.world(0).map(|_| ()),
        }
    }

    /// The world of a seed.
    ///
    /// # Errors
    /// As [`Setting::check`].
    pub fn world(&self, seed: u64) -> Result<Box<dyn World>, RecipeError> {
        Ok(match self {
            Setting::Synthetic(recipe) => Box::new(Synthetic::new(*recipe, seed)?),
            Setting::Vectors(recipe, weights) => {
                Box::new(Synthetic::with_weights(*recipe, weights.to_vec(), seed)?)
            }
        })
    }

    /// What Theorem 1 supposes known about these worlds.
    pub fn assumptions(&self, rounds: u64) -> Assumptions {
        let (recipe, users) = match self {
            Setting::Synthetic(recipe) => (recipe, recipe.users),
            Setting::Vectors(recipe, weights) => (recipe, weights.len()),
        };
        let clusters = match self {
            Setting::Synthetic(recipe) => recipe.clusters,
            Setting::Vectors(..) => users,
        };
        Assumptions {
            dim: recipe.dim,
            noise: recipe.noise_scale(),
            smallest_eigenvalue: recipe.smallest_eigenvalue(),
            horizon: rounds,
            clusters: clusters as u64,
            users: users as u64,
        }
    }
}
