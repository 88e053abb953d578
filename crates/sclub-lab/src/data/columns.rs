//! The columns of a file by name: given ones, and ones whose names tell their meaning.

use std::borrow::Cow;

/// Names of columns. A column without one is found by the words for users, items and ratings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ColumnNames {
    /// The column of users.
    pub user: Option<String>,
    /// The column of items.
    pub item: Option<String>,
    /// The column of ratings.
    pub rating: Option<String>,
    /// The column of times. Only [`read_events`](super::read_events) uses it.
    pub time: Option<String>,
}

/// The positions of columns, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Columns {
    pub user: usize,
    pub item: usize,
    pub rating: Option<usize>,
    pub time: Option<usize>,
    /// True if the header calls the items movies.
    pub movies: bool,
}

impl ColumnNames {
    /// True if no name is given.
    pub fn is_empty(&self) -> bool {
        self.given().next().is_none()
    }

    /// The names that are given.
    pub fn given(&self) -> impl Iterator<Item = &str> {
        [&self.user, &self.item, &self.rating, &self.time]
            .into_iter()
            .filter_map(|name| name.as_deref())
    }

    /// The positions of user, item and rating among these columns.
    ///
    /// # Errors
    /// The column that is missing, and the columns there are.
    pub fn positions(
        &self,
        header: &[Cow<'_, str>],
    ) -> Result<(usize, usize, Option<usize>), String> {
        let Columns {
            user, item, rating, ..
        } = self.find(header)?;
        Ok((user, item, rating))
    }

    /// As [`ColumnNames::positions`].
    pub(super) fn find(&self, header: &[Cow<'_, str>]) -> Result<Columns, String> {
        let given = |name: &Option<String>| -> Result<Option<usize>, String> {
            let Some(name) = name else { return Ok(None) };
            match header.iter().position(|column| column == name) {
                Some(at) => Ok(Some(at)),
                None => Err(format!("there is no column '{name}'; {}", listed(header))),
            }
        };
        let known = [
            given(&self.user)?,
            given(&self.item)?,
            given(&self.rating)?,
            given(&self.time)?,
        ];
        let called = |words: &[&str]| {
            (0..header.len()).find(|at| {
                !known.contains(&Some(*at)) && is_called(&plain(header[*at].as_bytes()), words)
            })
        };
        let missing = |what: &str| {
            format!(
                "no column is called {what} or the like; {}; name the column of {what}s",
                listed(header)
            )
        };
        let user = match known[0].or_else(|| called(USERS)) {
            Some(at) => at,
            None => return Err(missing("user")),
        };
        let item = match known[1].or_else(|| called(ITEMS)) {
            Some(at) => at,
            None => return Err(missing("item")),
        };
        let rating = known[2].or_else(|| called(RATINGS));
        let time = known[3].or_else(|| called(TIMES));
        for (one, other, what) in [
            (Some(user), Some(item), "users and items"),
            (Some(user), rating, "users and ratings"),
            (Some(item), rating, "items and ratings"),
            (Some(user), time, "users and times"),
            (Some(item), time, "items and times"),
            (rating, time, "ratings and times"),
        ] {
            if one.is_some() && one == other {
                let name = one.map_or("", |at| &header[at]);
                return Err(format!("column '{name}' is given for both {what}"));
            }
        }
        Ok(Columns {
            user,
            item,
            rating,
            time,
            movies: plain(header[item].as_bytes()).starts_with(b"movie"),
        })
    }
}

/// The most columns that an error lists.
const MAX_LISTED: usize = 40;

/// The columns there are, for an error.
pub fn listed(header: &[Cow<'_, str>]) -> String {
    let names: Vec<&str> = header.iter().take(MAX_LISTED).map(AsRef::as_ref).collect();
    let more = match header.len().saturating_sub(MAX_LISTED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("the columns are {}{more}", names.join(", "))
}

pub const USERS: &[&str] = &["user", "uid", "reviewer", "customer", "member", "visitor"];
pub const ITEMS: &[&str] = &[
    "item", "iid", "movie", "film", "business", "product", "asin", "isbn", "book", "song", "track",
    "artist", "article", "place", "venue", "poi", "game", "anime", "recipe", "joke", "page",
    "show",
];
pub const RATINGS: &[&str] = &["rating", "star", "score", "grade", "vote", "reward"];
pub const TIMES: &[&str] = &["time", "timestamp", "date", "datetime", "ts", "unixtime"];
/// Words that may follow in the name of a column; `user1` is the name of a user, not of a column.
const SUFFIXES: &[&str] = &[
    "", "s", "id", "ids", "name", "idx", "index", "no", "number", "key", "code",
];

/// A name without case and punctuation.
pub fn plain(name: &[u8]) -> Vec<u8> {
    name.iter()
        .filter(|byte| !b"_- .".contains(byte))
        .map(u8::to_ascii_lowercase)
        .collect()
}

/// True if a plain name is one of the words, with or without a suffix.
pub fn is_called(name: &[u8], words: &[&str]) -> bool {
    words.iter().any(|word| {
        name.strip_prefix(word.as_bytes())
            .is_some_and(|suffix| SUFFIXES.iter().any(|known| known.as_bytes() == suffix))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header<'a>(names: &[&'a str]) -> Vec<Cow<'a, str>> {
        names.iter().map(|&name| Cow::Borrowed(name)).collect()
    }

    fn names(user: &str, item: &str, rating: &str) -> ColumnNames {
        let some = |name: &str| (!name.is_empty()).then(|| name.to_owned());
        ColumnNames {
            user: some(user),
            item: some(item),
            rating: some(rating),
            time: None,
        }
    }

    #[test]
    fn given_names_go_before_words() {
        let header = header(&["user", "item", "who", "score", "what"]);
        let found = names("who", "what", "").find(&header).unwrap();
        assert_eq!((found.user, found.item, found.rating), (2, 4, Some(3)));
        let found = names("", "what", "").find(&header).unwrap();
        assert_eq!((found.user, found.item), (0, 4));
    }

    #[test]
    fn a_missing_column_lists_those_there_are() {
        let header = header(&["who", "what", "when"]);
        assert_eq!(
            names("whom", "what", "").find(&header).unwrap_err(),
            "there is no column 'whom'; the columns are who, what, when"
        );
        assert_eq!(
            names("who", "", "").find(&header).unwrap_err(),
            "no column is called item or the like; the columns are who, what, when; name the column of items"
        );
        assert_eq!(
            names("who", "who", "").find(&header).unwrap_err(),
            "column 'who' is given for both users and items"
        );
    }
}
