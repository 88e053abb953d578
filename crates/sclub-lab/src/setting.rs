//! What a world of an experiment is made from, whatever its seed.

use std::sync::Arc;

use sclub::{Assumptions, Setup};

use crate::data::Interactions;
use crate::data::features::{FeatureError, Selection, Shortage, factorise, user_weights};
use crate::held_out::{HeldOut, HeldOutError, Others, Protocol, Split};
use crate::named::named;
use crate::policies;
use crate::synthetic::{Recipe, RecipeError, Synthetic};
use crate::world::World;

/// T unless it is said.
pub const USUAL_ROUNDS: u64 = (1 << 17) - 2;

/// Items that tastes are made from, those taken most.
const ITEMS_FOR_TASTES: usize = 1000;

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

/// A kind of [`Setting`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// [`Setting::Synthetic`]
    Synthetic,
    /// [`Setting::Vectors`]
    Vectors,
    /// [`Setting::Ratings`]
    Ratings,
}

named!(
    Kind,
    "world",
    [
        (
            "synthetic",
            "Random tastes and items, as in section 5.1 of the paper",
            Kind::Synthetic
        ),
        (
            "vectors",
            "Tastes from a file of ratings, random items, as in section 5.2 of the paper",
            Kind::Vectors
        ),
        (
            "ratings",
            "Real users, real items, and what the users really took: features from half of the users, rounds \
         from the other half",
            Kind::Ratings
        ),
    ]
);

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
    /// Tastes made from what real users took (section 5.2 of the paper), those of the recipe's number
    /// of users who took most; and what there is less of than that.
    ///
    /// # Errors
    /// As [`factorise`].
    pub fn vectors(
        recipe: Recipe,
        interactions: &Interactions,
    ) -> Result<(Self, Vec<Shortage>), FeatureError> {
        let selection = Selection {
            users: recipe.users,
            items: ITEMS_FOR_TASTES,
        };
        let chosen = selection.choose(interactions);
        let (svd, _) = factorise(&chosen.matrix, recipe.dim)?;
        let weights = user_weights(&svd);
        let weights = (0..weights.rows()).map(|row| weights.row(row).to_vec());
        let setting = Setting::Vectors(recipe, Arc::new(weights.collect()));
        Ok((setting, chosen.shortages))
    }

    /// What real users took, with the usual limits.
    pub fn ratings(
        interactions: Interactions,
        (dim, candidates): (usize, usize),
        others: Others,
        scale: f64,
        placebo: bool,
    ) -> Self {
        Setting::Ratings(Ratings {
            digest: interactions.digest(),
            interactions: Arc::new(interactions),
            protocol: Protocol {
                dim,
                candidates,
                ..Protocol::default()
            },
            others,
            scale,
            placebo,
        })
    }

    /// Rounds to play unless it is said; of real users, all there are.
    pub fn usual_rounds(&self) -> u64 {
        match self {
            Setting::Ratings(ratings) => ratings.protocol.most_rounds as u64,
            Setting::Synthetic(_) | Setting::Vectors(..) => USUAL_ROUNDS,
        }
    }

    /// How many of so many rounds a policy will play in one world, about.
    pub fn expected_rounds(&self, rounds: u64) -> u64 {
        match self {
            Setting::Ratings(ratings) => rounds.min(ratings.interactions.len() as u64 / 2),
            Setting::Synthetic(_) | Setting::Vectors(..) => rounds,
        }
    }

    /// Number of users, of whom a world may have fewer.
    pub fn users(&self) -> usize {
        match self {
            Setting::Synthetic(recipe) => recipe.users,
            Setting::Vectors(_, weights) => weights.len(),
            Setting::Ratings(ratings) => ratings.interactions.users(),
        }
    }

    /// Whether there are true clusters to tell.
    pub fn has_truth(&self) -> bool {
        matches!(self, Setting::Synthetic(_))
    }

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

    /// Features per item.
    pub fn dim(&self) -> usize {
        match self {
            Setting::Synthetic(recipe) | Setting::Vectors(recipe, _) => recipe.dim,
            Setting::Ratings(ratings) => ratings.protocol.dim,
        }
    }

    /// The setup that constants are chosen for, with what [`Setting::assumptions`] says.
    pub fn setup<'a>(&self, assumptions: &'a Assumptions) -> Setup<'a> {
        Setup {
            assumptions: Some(assumptions),
            ..policies::setup(self.dim(), self.users() as u64)
        }
    }

    /// What Theorem 1 supposes known about these worlds. Of real users little is: all that can be
    /// said of their items is that features are at most 1, and each user counts as a cluster.
    pub fn assumptions(&self, rounds: u64) -> Assumptions {
        let users = self.users();
        let (recipe, clusters) = match self {
            Setting::Synthetic(recipe) => (Some(recipe), recipe.clusters),
            Setting::Vectors(recipe, _) => (Some(recipe), users),
            Setting::Ratings(_) => (None, users),
        };
        let dim = self.dim();
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
