//! Settings: the recipes of worlds, for any seed.

use std::sync::Arc;

use sclub::{Assumptions, Preset, Setup};

use crate::catalogue::{self, Catalogue, Shop};
use crate::data::Interactions;
use crate::data::features::{FeatureError, Selection, Shortage, factorise, user_weights};
use crate::held_out::{Content, ContentMode, HeldOut, HeldOutError, Others, Protocol, Split};
use crate::named::named;
use crate::policies::{self, ChoiceError, Entry, Knowledge, Name};
use crate::streams::mix;
use crate::synthetic::{Recipe, RecipeError, Synthetic};
use crate::world::World;

/// The default of T.
pub const DEFAULT_ROUNDS: u64 = (1 << 17) - 2;

/// Items that tastes are made from, those taken most.
const ITEMS_FOR_TASTES: usize = 1000;

/// A family of worlds, one for each seed.
#[derive(Debug, Clone, PartialEq)]
pub enum Setting {
    /// Tastes in clusters, drawn with everything else.
    Synthetic(Recipe),
    /// Given tastes, a vector for each user; everything else is drawn.
    Vectors(Recipe, Arc<Vec<Vec<f64>>>),
    /// Interactions of real users, [`crate::held_out`].
    Ratings(Ratings),
    /// A shop whose items are all candidates in every round.
    Catalogue(Shop),
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
    /// [`Setting::Ratings`] in which others are offered to a user again
    RatingsLeaky,
    /// [`Setting::Catalogue`]
    Catalogue,
}

impl Kind {
    /// The ground truth of worlds of this kind.
    pub fn knowledge(self) -> Knowledge {
        match self {
            Kind::Synthetic => Knowledge::Clusters,
            Kind::Vectors | Kind::Ratings | Kind::RatingsLeaky => Knowledge::Nothing,
            Kind::Catalogue => Knowledge::Catalogue,
        }
    }
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
        (
            "ratings-leaky",
            "As ratings, to reproduce older figures: an item that was offered to the same user before is never right, \
         which a policy that remembers items can use",
            Kind::RatingsLeaky
        ),
        (
            "catalogue",
            "A shop of random tastes and items: all items are candidates in every round, and users are seen a few \
         times each",
            Kind::Catalogue
        ),
    ]
);

/// World `ratings` of some data.
#[derive(Debug, Clone, PartialEq)]
pub struct Ratings {
    /// The interactions.
    pub interactions: Arc<Interactions>,
    /// [`Interactions::digest`] of that, by which stored results are found.
    pub digest: u64,
    /// The protocol by which they are split.
    pub protocol: Protocol,
    /// The way in which the other candidates are drawn.
    pub others: Others,
    /// The factor of all features.
    pub scale: f64,
    /// True for a placebo: policies are given wrong users.
    pub placebo: bool,
    /// Features of items that are not made from the interactions.
    pub content: Option<Arc<Content>>,
}

/// The reason why a world cannot be made.
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
    /// Tastes made from the choices of real users (section 5.2 of the paper), for the recipe's number of
    /// users, those who took most; and the shortages, if there are fewer.
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

    /// Interactions of real users, with the default limits.
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
            content: None,
        })
    }

    /// The same setting with features of items from elsewhere. Other settings than `ratings` stay as they are.
    #[must_use]
    pub fn with_content(mut self, content: Content) -> Self {
        if let Setting::Ratings(ratings) = &mut self {
            if content.mode == ContentMode::Alone {
                ratings.protocol.dim = content.vectors.columns();
            }
            ratings.digest = mix(&[ratings.digest, content.digest()]);
            ratings.content = Some(Arc::new(content));
        }
        self
    }

    /// The same setting with a share of cold items. Other settings than `ratings` stay as they are.
    #[must_use]
    pub fn with_cold_items(mut self, share: f64) -> Self {
        if let Setting::Ratings(ratings) = &mut self {
            ratings.protocol.cold_items = share;
        }
        self
    }

    /// The same setting, in which the items that users did not take are offered to them again: world
    /// `ratings-leaky`. Other settings than `ratings` stay as they are.
    #[must_use]
    pub fn leaky(mut self) -> Self {
        if let Setting::Ratings(ratings) = &mut self {
            ratings.protocol.others_once = false;
        }
        self
    }

    /// The default number of rounds; of real users, all rounds that there are.
    pub fn default_rounds(&self) -> u64 {
        match self {
            Setting::Ratings(ratings) => ratings.protocol.max_rounds as u64,
            Setting::Synthetic(_) | Setting::Vectors(..) => DEFAULT_ROUNDS,
            Setting::Catalogue(_) => catalogue::DEFAULT_ROUNDS,
        }
    }

    /// The number of rounds that a policy will play in one world, about, of those asked for.
    pub fn expected_rounds(&self, rounds: u64) -> u64 {
        match self {
            Setting::Ratings(ratings) => rounds.min(ratings.interactions.len() as u64 / 2),
            Setting::Synthetic(_) | Setting::Vectors(..) | Setting::Catalogue(_) => rounds,
        }
    }

    /// Number of users; a world may have fewer.
    pub fn users(&self) -> usize {
        match self {
            Setting::Synthetic(recipe) => recipe.users,
            Setting::Vectors(_, weights) => weights.len(),
            Setting::Ratings(ratings) => ratings.interactions.users(),
            Setting::Catalogue(shop) => shop.users,
        }
    }

    /// The kind of the setting.
    pub fn kind(&self) -> Kind {
        match self {
            Setting::Synthetic(_) => Kind::Synthetic,
            Setting::Vectors(..) => Kind::Vectors,
            Setting::Ratings(ratings) if ratings.protocol.others_once => Kind::Ratings,
            Setting::Ratings(_) => Kind::RatingsLeaky,
            Setting::Catalogue(_) => Kind::Catalogue,
        }
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
            Setting::Catalogue(shop) => Ok(shop.check()?),
        }
    }

    /// The world of a seed.
    ///
    /// # Errors
    /// As [`Setting::check`], and if the data are too few.
    pub fn world(&self, seed: u64) -> Result<Arc<dyn World>, SettingError> {
        Ok(match self {
            Setting::Synthetic(recipe) => Arc::new(Synthetic::new(*recipe, seed)?),
            Setting::Vectors(recipe, weights) => {
                Arc::new(Synthetic::with_weights(*recipe, weights.to_vec(), seed)?)
            }
            Setting::Ratings(ratings) => {
                let split = ratings.split(seed)?;
                Arc::new(ratings.world_of(Arc::new(split)))
            }
            Setting::Catalogue(shop) => Arc::new(Catalogue::new(*shop, seed)?),
        })
    }

    /// Features per item.
    pub fn dim(&self) -> usize {
        match self {
            Setting::Synthetic(recipe) | Setting::Vectors(recipe, _) => recipe.dim,
            Setting::Ratings(ratings) => ratings.protocol.dim,
            Setting::Catalogue(shop) => shop.dim(),
        }
    }

    /// The setup that constants are chosen for, with the result of [`Setting::assumptions`].
    pub fn setup<'a>(&self, assumptions: &'a Assumptions) -> Setup<'a> {
        Setup {
            assumptions: Some(assumptions),
            ..policies::setup(self.dim(), self.users() as u64)
        }
    }

    /// Policies with the constants of a preset, given ones in place of some ([`policies::entries`]), and those that the
    /// world tells.
    ///
    /// # Errors
    /// [`ChoiceError`].
    pub fn entries(
        &self,
        names: &[Name],
        preset: Preset,
        given: &[(String, String)],
        rounds: u64,
    ) -> Result<Vec<Entry>, ChoiceError> {
        let assumptions = self.assumptions(rounds);
        let mut given = given.to_vec();
        for (constant, value) in self.told() {
            let has = |policy: &Name| policy.constant(constant).is_some();
            // A constant that was given has priority.
            if names.iter().any(has) && given.iter().all(|(given, _)| given != constant) {
                given.push((constant.to_owned(), value.to_string()));
            }
        }
        policies::entries(names, preset, &given, &self.setup(&assumptions))
    }

    /// The constants that the world sets for policies which have them, by name: what their papers take as known. They are the
    /// number of servers, as `servers`, the error of linear rewards, as `error`, the noise of Gaussian rewards, as `noise`, and
    /// the number of clusters, or of a shop's tastes, as `components`.
    pub fn told(&self) -> Vec<(&'static str, f64)> {
        match self {
            Setting::Synthetic(recipe) => recipe.told(true),
            Setting::Vectors(recipe, _) => recipe.told(false),
            Setting::Catalogue(shop) => shop.told(),
            Setting::Ratings(_) => Vec::new(),
        }
    }

    /// The assumptions of Theorem 1 for these worlds. Little is known about real users: features are at
    /// most 1, and each user counts as a cluster. In a catalogue they do not hold: features are longer than 1,
    /// and tastes are not exactly equal inside clusters.
    pub fn assumptions(&self, rounds: u64) -> Assumptions {
        let users = self.users();
        let (recipe, clusters) = match self {
            Setting::Synthetic(recipe) => (Some(recipe), recipe.clusters),
            Setting::Vectors(recipe, _) => (Some(recipe), users),
            Setting::Ratings(_) => (None, users),
            Setting::Catalogue(shop) => (None, shop.tastes),
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
    /// The split of a seed.
    ///
    /// # Errors
    /// As [`Split::with_content`].
    pub fn split(&self, seed: u64) -> Result<Split, HeldOutError> {
        Split::with_content(
            &self.interactions,
            seed,
            self.protocol,
            self.content.as_deref(),
        )
    }

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
