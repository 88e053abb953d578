//! What a world of an experiment is made from, whatever its seed.

use std::sync::Arc;

use sclub::Assumptions;

use crate::data::Interactions;
use crate::held_out::{HeldOut, HeldOutError, Others, Protocol, Split};
use crate::synthetic::{Recipe, RecipeError, Synthetic};
use crate::world::World;

/// A family of worlds, one for each seed.
#[derive(Debug, Clone, PartialEq)]
pub enum Setting {
    /// Tastes in clusters, drawn with everything else.
    Synthetic(Recipe),
    /// Given tastes, a vector for each user; everything else is drawn.
    Vectors(Recipe, Arc<Vec<Vec<f64>>>),
    /// What real users took, [`crate::held_out`].
    Ratings(Ratings),
}

/// World `ratings` of some data.
#[derive(Debug, Clone, PartialEq)]
pub struct Ratings {
    /// Who took what.
    pub interactions: Arc<Interactions>,
    /// [`Interactions::digest`] of that, by which results are found again.
    pub digest: u64,
    /// How splits are made.
    pub protocol: Protocol,
    /// How the other candidates are drawn.
    pub others: Others,
    /// What features are multiplied by.
    pub scale: f64,
    /// Whether policies are told wrong users.
    pub placebo: bool,
}

/// Why a world cannot be made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SettingError {
    /// A number is out of range.
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    /// The data are too few.
    #[error(transparent)]
    HeldOut(#[from] HeldOutError),
}

impl Setting {
    /// Checks every number that can be checked without making a world.
    ///
    /// # Errors
    /// Names the first that is out of range.
    pub fn check(&self) -> Result<(), SettingError> {
        match self {
            Setting::Synthetic(recipe) => Ok(recipe.check()?),
            Setting::Vectors(..) => self.world(0).map(|_| ()),
            Setting::Ratings(ratings) if ratings.protocol.candidates < 2 => {
                Err(HeldOutError::Candidates(ratings.protocol.candidates).into())
            }
            Setting::Ratings(_) => Ok(()),
        }
    }

    /// The world of a seed.
    ///
    /// # Errors
    /// As [`Setting::check`], and where the data are too few.
    pub fn world(&self, seed: u64) -> Result<Arc<dyn World>, SettingError> {
        Ok(match self {
            Setting::Synthetic(recipe) => Arc::new(Synthetic::new(*recipe, seed)?),
            Setting::Vectors(recipe, weights) => {
                Arc::new(Synthetic::with_weights(*recipe, weights.to_vec(), seed)?)
            }
            Setting::Ratings(ratings) => {
                let split = Split::new(&ratings.interactions, seed, ratings.protocol)?;
                Arc::new(ratings.world_of(Arc::new(split)))
            }
        })
    }

    /// What Theorem 1 supposes known about these worlds. Of real users little is: all that can be
    /// said of their items is that features are at most 1, and each user counts as a cluster.
    pub fn assumptions(&self, rounds: u64) -> Assumptions {
        let (recipe, users, clusters) = match self {
            Setting::Synthetic(recipe) => (Some(recipe), recipe.users, recipe.clusters),
            Setting::Vectors(recipe, weights) => (Some(recipe), weights.len(), weights.len()),
            Setting::Ratings(ratings) => {
                let users = ratings.interactions.users();
                (None, users, users)
            }
        };
        let dim = match self {
            Setting::Synthetic(recipe) | Setting::Vectors(recipe, _) => recipe.dim,
            Setting::Ratings(ratings) => ratings.protocol.dim,
        };
        Assumptions {
            dim,
            noise: recipe.map_or(0.5, Recipe::noise_scale),
            smallest_eigenvalue: recipe
                .map_or(0.5 / (dim.max(2) - 1) as f64, Recipe::smallest_eigenvalue),
            horizon: rounds,
            clusters: clusters as u64,
            users: users as u64,
        }
    }
}

impl Ratings {
    /// The world of a split that was made before.
    pub fn world_of(&self, split: Arc<Split>) -> HeldOut {
        let world = HeldOut::new(split, self.others, self.scale);
        if self.placebo {
            world.with_users_shuffled()
        } else {
            world
        }
    }
}
