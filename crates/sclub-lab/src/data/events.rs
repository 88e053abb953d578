//! Interactions one by one, in the order in which they happened.

use std::path::Path;

use super::collect::{Reason, Row, Sink, refused_name};
use super::names::{Name, Names, Numbering};
use super::read::{Options, Outcome, ReadError, Rows, read_rows};

/// An interaction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interaction {
    /// The number of the user.
    pub user: u32,
    /// The number of the item.
    pub item: u32,
    /// The reward; 1 if the file has none.
    pub reward: f64,
    /// The time in milliseconds since 1970, if the file has times.
    pub time: Option<i64>,
    /// The line of the file, or the row of a Parquet file.
    pub line: u64,
}

/// The interactions of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct ReadEvents {
    users: Names,
    items: Names,
    /// The interactions in the order of time or, without times, of the file. Those of the same time stay in the order
    /// of the file.
    pub rows: Vec<Interaction>,
    /// True if the file has rewards.
    pub has_rewards: bool,
    /// True if the file has times.
    pub has_times: bool,
    /// The number of lines skipped.
    pub bad_lines: u64,
    /// The number of the first of them, and the reason.
    pub first_bad: Option<(u64, String)>,
}

impl ReadEvents {
    /// The number of users.
    pub fn users(&self) -> usize {
        self.users.len()
    }

    /// The number of items.
    pub fn items(&self) -> usize {
        self.items.len()
    }

    /// The name of a user.
    ///
    /// # Panics
    /// If there is no such user.
    pub fn user_name(&self, user: u32) -> Name<'_> {
        self.users.get(user as usize)
    }

    /// The name of an item.
    ///
    /// # Panics
    /// If there is no such item.
    pub fn item_name(&self, item: u32) -> Name<'_> {
        self.items.get(item as usize)
    }
}

/// Reads a file of interactions, each of which counts. Ratings are rewards. Calls `progress` as
/// [`read()`](super::read()) does.
///
/// # Errors
/// Names the file and, if it is a line that is wrong, its number.
pub fn read_events(
    path: &Path,
    options: &Options,
    progress: &dyn Fn(u64, u64),
) -> Result<ReadEvents, ReadError> {
    let mut events = Events::default();
    let mut rows = Rows::new(options, &mut events);
    rows.wanted.rating = true;
    rows.wanted.time = true;
    rows.optional = true;
    if let Outcome::Matrix(_) = read_rows(path, &mut rows, progress)? {
        return Err(ReadError::Columns {
            path: path.into(),
            reason: "a matrix has no order of interactions; use a table".into(),
        });
    }
    let (bad_lines, first_bad) = rows.bad();
    let mut all = events.rows;
    if all.is_empty() {
        let path = path.into();
        return Err(ReadError::NoInteractions { path, bad_lines });
    }
    if events.times > 0 {
        if let Some(row) = all.iter().find(|row| row.time.is_none()) {
            return Err(ReadError::Line {
                path: path.into(),
                line: row.line,
                reason: "there is no time, and other lines have one".into(),
            });
        }
        all.sort_by_key(|row| row.time);
    }
    Ok(ReadEvents {
        users: events.users.into_names(),
        items: events.items.into_names(),
        rows: all,
        has_rewards: events.rewards > 0,
        has_times: events.times > 0,
        bad_lines,
        first_bad,
    })
}

#[derive(Default)]
struct Events {
    users: Numbering,
    items: Numbering,
    rows: Vec<Interaction>,
    rewards: u64,
    times: u64,
}

impl Sink for Events {
    fn add(&mut self, line: u64, row: &Row<'_>) -> Result<(), Reason> {
        // A file has rewards everywhere or nowhere.
        match row.rating {
            Some(reward) if !reward.is_finite() => {
                return Err(format!("the reward is {reward}; it must be finite").into());
            }
            Some(_) if self.rewards == 0 && !self.rows.is_empty() => {
                return Err("there is a reward, and the lines before have none".into());
            }
            None if self.rewards > 0 => return Err("there is no reward".into()),
            _ => {}
        }
        if row.time.is_none() && self.times > 0 {
            return Err("there is no time".into());
        }
        let user = self.users.number(&row.user);
        let user = user.ok_or_else(|| refused_name("user", &row.user))?;
        let item = self.items.number(&row.item);
        let item = item.ok_or_else(|| refused_name("item", &row.item))?;
        self.rewards += u64::from(row.rating.is_some());
        self.times += u64::from(row.time.is_some());
        self.rows.push(Interaction {
            user,
            item,
            reward: row.rating.unwrap_or(1.0),
            time: row.time,
            line,
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::ColumnNames;

    fn read(name: &str, text: &str, options: &Options) -> Result<ReadEvents, ReadError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        read_events(&path, options, &|_, _| ())
    }

    fn rows(read: &ReadEvents) -> Vec<(String, String, f64, Option<i64>, u64)> {
        let one = |row: &Interaction| {
            let (user, item) = (read.user_name(row.user), read.item_name(row.item));
            (
                user.to_string(),
                item.to_string(),
                row.reward,
                row.time,
                row.line,
            )
        };
        read.rows.iter().map(one).collect()
    }

    fn row(
        user: &str,
        item: &str,
        reward: f64,
        time: Option<i64>,
        line: u64,
    ) -> (String, String, f64, Option<i64>, u64) {
        (user.to_owned(), item.to_owned(), reward, time, line)
    }

    #[test]
    fn interactions_come_in_the_order_of_time_and_each_counts() {
        let text = "user,item,reward,time\na,x,1,30\nb,x,0,10\na,x,1,30\na,y,0.5,2\n";
        let read = read("a.csv", text, &Options::default()).unwrap();
        let expected = [
            row("a", "y", 0.5, Some(2000), 5),
            row("b", "x", 0.0, Some(10_000), 3),
            row("a", "x", 1.0, Some(30_000), 2),
            row("a", "x", 1.0, Some(30_000), 4),
        ];
        assert_eq!(rows(&read), expected);
        assert!(read.has_rewards && read.has_times);
    }

    #[test]
    fn columns_have_any_names_in_any_format() {
        let options = Options {
            columns: ColumnNames {
                user: Some("who".into()),
                item: Some("what".into()),
                rating: Some("clicked".into()),
                time: Some("at".into()),
            },
            ..Options::default()
        };
        let expected = [
            row("a", "x", 1.0, Some(0), 2),
            row("b", "y", 0.0, Some(86_400_000), 1),
        ];
        let json = "{\"who\": \"b\", \"what\": \"y\", \"clicked\": 0, \"at\": \"1970-01-02\"}\n\
                    {\"who\": \"a\", \"what\": \"x\", \"clicked\": 1, \"at\": 0}\n";
        assert_eq!(rows(&read("a.jsonl", json, &options).unwrap()), expected);
        let csv = "at;clicked;what;who\n1970-01-02;0;y;b\n1970-01-01;1;x;a\n";
        let shifted =
            expected.map(|(user, item, reward, time, line)| (user, item, reward, time, line + 1));
        assert_eq!(rows(&read("a.csv", csv, &options).unwrap()), shifted);
        let plain = read(
            "ratings.dat",
            "1::2::5::978300760\n1::3::4::978300700\n",
            &Options::default(),
        );
        let expected = [
            row("1", "3", 4.0, Some(978_300_700_000), 2),
            row("1", "2", 5.0, Some(978_300_760_000), 1),
        ];
        assert_eq!(rows(&plain.unwrap()), expected);
        let bare = read("a.tsv", "1\t2\n1\t1\n", &Options::default()).unwrap();
        assert_eq!(
            rows(&bare),
            [row("1", "2", 1.0, None, 1), row("1", "1", 1.0, None, 2)]
        );
        assert!(!bare.has_rewards && !bare.has_times);
    }

    #[test]
    fn a_file_with_a_column_of_rewards_has_one_in_every_row() {
        for (name, text, line) in [
            ("a.csv", "user,item,reward\nu,n1\n", 2),
            ("a.csv", "user,item,reward\nu,n1,\nu,n2,1\n", 2),
            (
                "a.jsonl",
                "{\"user\": \"u\", \"item\": \"x\", \"reward\": null}\n",
                1,
            ),
        ] {
            let error = read(name, text, &Options::default()).unwrap_err();
            let error = error.to_string();
            let expected = format!("{name}:{line}: there is no reward");
            assert!(error.ends_with(&expected), "{text}: {error}");
        }
        let none = read("a.csv", "user,item\nu,n1\n", &Options::default()).unwrap();
        assert!(!none.has_rewards);
    }

    #[test]
    fn times_that_are_none_are_refused_with_their_line() {
        for time in [
            "2024-02-30",
            "-5",
            "99999999999999999999",
            "1969-12-31",
            "soon",
        ] {
            let csv = format!("user,item,reward,time\na,x,1,7\na,x,1,{time}\n");
            let quoted = match time.parse::<f64>() {
                Ok(_) => time.to_owned(),
                Err(_) => format!("\"{time}\""),
            };
            let json = |time: &str| {
                format!("{{\"user\": 1, \"item\": 2, \"reward\": 1, \"time\": {time}}}\n")
            };
            let json = json("7") + &json(&quoted);
            for (name, text, line) in [("a.csv", csv, 3), ("a.jsonl", json, 2)] {
                let error = read(name, &text, &Options::default()).unwrap_err();
                let error = error.to_string();
                let place = format!("{name}:{line}: the time '");
                assert!(error.contains(&place), "{time}: {error}");
                // A number of JSON is shown as it was understood.
                let shown = error.contains(time) || error.contains("100000000000000000000");
                assert!(shown, "{time}: {error}");
            }
        }
    }

    #[test]
    fn a_bad_row_has_its_line_or_is_counted() {
        let text = "user,item,reward,time\na,x,1,30\nb,x,,10\nc,x,1,soon\n,x,1,3\nd,x,0,1\n";
        let error = read("a.csv", text, &Options::default())
            .unwrap_err()
            .to_string();
        assert!(error.ends_with("a.csv:3: there is no reward"), "{error}");
        let skipping = Options {
            skip_bad_lines: true,
            ..Options::default()
        };
        let read = read("a.csv", text, &skipping).unwrap();
        assert_eq!((read.rows.len(), read.bad_lines), (2, 3));
    }
}
