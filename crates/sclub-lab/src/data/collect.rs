//! Rows become interactions.

use std::borrow::Cow;

use super::interactions::Interactions;
use super::names::{MAX_NAME_LENGTH, Name, Numbering};

/// The reason why a row is not an interaction.
pub type Reason = Cow<'static, str>;

/// The meaning of ratings.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum RatingUse {
    /// Ratings do not matter: every row is an interaction.
    #[default]
    Ignored,
    /// A row is an interaction if its rating is this or more. Other rows are left out.
    LikeFrom(f64),
    /// Every row is an interaction with a value: its rating divided by the largest of all.
    Values,
}

/// The columns beside users and items that are used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wanted {
    pub rating: bool,
    pub time: bool,
}

/// Takes the rows of a file.
pub trait Sink {
    /// Adds a row.
    ///
    /// # Errors
    /// The reason why the row is not an interaction.
    fn add(&mut self, number: u64, row: &Row<'_>) -> Result<(), Reason>;
}

/// A user, an item, and the rating and the time if there are any.
#[derive(Debug, Clone, PartialEq)]
pub struct Row<'a> {
    pub user: Name<'a>,
    pub item: Name<'a>,
    pub rating: Option<f64>,
    /// Milliseconds since 1970.
    pub time: Option<i64>,
}

/// Interactions so far.
#[derive(Debug, Default)]
pub struct Collector {
    ratings: RatingUse,
    users: Numbering,
    items: Numbering,
    pairs: Vec<u64>,
    /// The rating of each pair; empty unless ratings are values.
    values: Vec<f64>,
    below: u64,
}

impl Collector {
    pub fn new(ratings: RatingUse) -> Self {
        Self {
            ratings,
            ..Self::default()
        }
    }

    /// Adds a row, unless its rating is below the threshold.
    #[inline]
    fn add_row(&mut self, row: &Row<'_>) -> Result<(), Reason> {
        match (self.ratings, row.rating) {
            (RatingUse::Ignored, _) => {}
            (_, None) => return Err("there is no rating".into()),
            (RatingUse::LikeFrom(least), Some(rating)) => {
                if rating < least {
                    self.below += 1;
                    return Ok(());
                }
            }
            (RatingUse::Values, Some(rating)) => {
                if !(rating.is_finite() && rating >= 0.0) {
                    return Err(format!(
                        "the rating is {rating}; ratings that are used as values must be 0 or more"
                    )
                    .into());
                }
            }
        }
        let user = self
            .users
            .number(&row.user)
            .ok_or_else(|| refused_name("user", &row.user))?;
        let item = self
            .items
            .number(&row.item)
            .ok_or_else(|| refused_name("item", &row.item))?;
        self.pairs.push(u64::from(user) << 32 | u64::from(item));
        if self.ratings == RatingUse::Values {
            self.values.push(row.rating.unwrap_or_default());
        }
        Ok(())
    }

    /// Rows added.
    pub fn rows(&self) -> u64 {
        self.pairs.len() as u64
    }

    /// Rows left out because their ratings are below the threshold.
    pub fn below(&self) -> u64 {
        self.below
    }

    /// All interactions.
    pub fn finish(self) -> Interactions {
        let (users, items) = (self.users.into_names(), self.items.into_names());
        match self.ratings {
            RatingUse::Values => {
                let pairs = self.pairs.into_iter().zip(self.values).collect();
                Interactions::with_values(users, items, pairs)
            }
            _ => Interactions::new(users, items, self.pairs),
        }
    }
}

impl Sink for Collector {
    fn add(&mut self, _: u64, row: &Row<'_>) -> Result<(), Reason> {
        self.add_row(row)
    }
}

/// The reason why [`Numbering::number`] returned `None`.
#[cold]
pub fn refused_name(kind: &str, name: &Name<'_>) -> Reason {
    match name {
        Name::Text(text) if text.len() > MAX_NAME_LENGTH => format!(
            "the {kind}'s name has {} bytes; it must have at most {MAX_NAME_LENGTH}",
            text.len()
        )
        .into(),
        _ => format!("there are more than {} {kind}s", u32::MAX).into(),
    }
}
