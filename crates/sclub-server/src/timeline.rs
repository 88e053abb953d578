//! Figures over time, for the page: by the second for ten minutes, by the minute for a day, by the hour for sixty days.
//!
//! They are sums over all users, and no part of the state. A server writes them to the file `figures` of its data folder about
//! once a minute. If that file is missing or damaged, they begin anew.
//!
//! Steps are stored in the order in which they came, up to a number of each length, and are sorted when they are read. So
//! steps of a time when the clock was wrong are not shown, and hide none of the others.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::latency::Latencies;
use crate::meters::Summary;
use crate::store::SmallFile;

/// A time span that can be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Range {
    /// Ten minutes, by the second.
    #[default]
    #[serde(rename = "10m")]
    Minutes,
    /// A day, by the minute.
    #[serde(rename = "24h")]
    Day,
    /// Sixty days, by the hour.
    #[serde(rename = "60d")]
    Days,
}

impl Range {
    const ALL: [Range; 3] = [Range::Minutes, Range::Day, Range::Days];

    /// The milliseconds of a step.
    pub fn step(self) -> u64 {
        match self {
            Range::Minutes => 1000,
            Range::Day => 60 * 1000,
            Range::Days => 3600 * 1000,
        }
    }

    /// The number of steps.
    pub fn steps(self) -> usize {
        match self {
            Range::Minutes => 600,
            Range::Day => 24 * 60,
            Range::Days => 60 * 24,
        }
    }
}

/// The figures of a step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Its start, in milliseconds since 1970.
    pub at: u64,
    /// The number of its seconds that were counted: fewer than it has if the server did not run, or if it is not over.
    pub seconds: u32,
    /// The number of recommendations.
    pub recommends: u64,
    /// The number of feedbacks.
    pub feedbacks: u64,
    /// The number of rewards learned.
    pub rewards: u64,
    /// Their sum.
    pub reward_sum: f64,
    /// The median latency of a call that recommends, in seconds.
    pub recommend_p50: Option<f32>,
    /// Its 99th percentile.
    pub recommend_p99: Option<f32>,
    /// The 99th percentile of the latency of a call with feedback.
    pub feedback_p99: Option<f32>,
    /// The number of users at its end.
    pub users: u64,
    /// The number of clusters at its end.
    pub clusters: u64,
}

impl Point {
    /// Joins the later part of a step that the clock went back into.
    fn join(&mut self, later: &Self) {
        self.seconds += later.seconds;
        self.recommends += later.recommends;
        self.feedbacks += later.feedbacks;
        self.rewards += later.rewards;
        self.reward_sum += later.reward_sum;
        let larger = |a: Option<f32>, b: Option<f32>| a.into_iter().chain(b).reduce(f32::max);
        self.recommend_p50 = larger(self.recommend_p50, later.recommend_p50);
        self.recommend_p99 = larger(self.recommend_p99, later.recommend_p99);
        self.feedback_p99 = larger(self.feedback_p99, later.feedback_p99);
        (self.users, self.clusters) = (later.users, later.clusters);
    }
}

/// A step that is not over.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct OpenStep {
    point: Point,
    recommend: Latencies,
    feedback: Latencies,
}

impl OpenStep {
    fn add(&mut self, summary: &Summary, users: u64, clusters: u64) {
        self.recommend.add(&summary.recommend);
        self.feedback.add(&summary.feedback);
        let quantile = |of: &Latencies, share| of.quantile(share).map(|seconds| seconds as f32);
        let before = self.point;
        self.point = Point {
            at: before.at,
            seconds: before.seconds + 1,
            recommends: before.recommends + summary.recommends,
            feedbacks: before.feedbacks + summary.feedbacks,
            rewards: before.rewards + summary.rewards,
            reward_sum: before.reward_sum + summary.reward_sum,
            recommend_p50: quantile(&self.recommend, 0.5),
            recommend_p99: quantile(&self.recommend, 0.99),
            feedback_p99: quantile(&self.feedback, 0.99),
            users,
            clusters,
        };
    }
}

/// The steps of one length.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Steps {
    closed: VecDeque<Point>,
    open: OpenStep,
}

impl Steps {
    fn add(&mut self, range: Range, now: u64, summary: &Summary, users: u64, clusters: u64) {
        let at = now - now % range.step();
        if self.open.point.at != at {
            let closed = std::mem::take(&mut self.open);
            if closed.point.at > 0 {
                self.closed.push_back(closed.point);
            }
            self.open.point.at = at;
        }
        self.open.add(summary, users, clusters);
        let excess = (self.closed.len() + 1).saturating_sub(range.steps());
        self.closed.drain(..excess);
    }

    fn points(&self, range: Range, now: u64) -> Vec<Point> {
        let first = (now - now % range.step()) + range.step();
        let first = first.saturating_sub(range.step() * range.steps() as u64);
        let all = self.closed.iter().chain(std::iter::once(&self.open.point));
        let mut points: Vec<Point> = all
            .filter(|point| point.at > 0 && (first..=now).contains(&point.at))
            .copied()
            .collect();
        points.sort_by_key(|point| point.at);
        points.dedup_by(|later, earlier| {
            let is_same = later.at == earlier.at;
            if is_same {
                earlier.join(later);
            }
            is_same
        });
        points
    }
}

/// The figures over time of a space.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline([Steps; 3]);

impl Timeline {
    /// Adds the counts since the last call, at a time of day in milliseconds since 1970.
    pub fn add(&mut self, now: u64, summary: &Summary, users: u64, clusters: u64) {
        for (range, steps) in Range::ALL.into_iter().zip(&mut self.0) {
            steps.add(range, now, summary, users, clusters);
        }
    }

    /// The steps of a time span that ends now, oldest first.
    pub fn points(&self, range: Range, now: u64) -> Vec<Point> {
        self.0[range as usize].points(range, now)
    }
}

/// The contents of a file with figures.
pub trait Figures: Serialize + for<'a> Deserialize<'a> {
    /// The number of the format.
    const FORMAT: u8;

    /// The bytes of the file.
    fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![Self::FORMAT];
        bytes.extend(postcard::to_stdvec(self).expect("plain data"));
        bytes
    }

    /// Decodes the bytes of the file; `None` if they are of another format or damaged.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(&[Self::FORMAT])?;
        postcard::from_bytes(rest).ok()
    }

    /// Writes a file. Returns true if it is written; else there is a warning.
    fn write(&self, file: &SmallFile) -> bool {
        let written = file.write(&self.encode());
        if let Err(error) = &written {
            tracing::warn!(%error, "the figures of the page cannot be written");
        }
        written.is_ok()
    }

    /// Reads a file; `None` if there is none. If it cannot be read, there is a warning.
    fn read(file: &SmallFile) -> Option<Self> {
        let error = match file.read() {
            Ok(None) => return None,
            Ok(Some(bytes)) => match Self::decode(&bytes) {
                Some(figures) => return Some(figures),
                None => "it cannot be decoded".to_owned(),
            },
            Err(error) => error.to_string(),
        };
        let path = file.path().display();
        tracing::warn!(%path, error, "the figures of the page cannot be read; they begin anew");
        None
    }
}

impl Figures for Timeline {
    const FORMAT: u8 = 2;
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 24 * 3600 * 1000;
    const NOW: u64 = 20_000 * DAY;

    fn second(recommends: u64, rewards: u64, reward_sum: f64) -> Summary {
        Summary {
            recommends,
            rewards,
            reward_sum,
            ..Summary::default()
        }
    }

    #[test]
    fn each_step_has_the_sums_of_its_seconds() {
        let mut timeline = Timeline::default();
        for n in 0..150 {
            timeline.add(NOW + 1000 * n + 7, &second(2, 1, 0.5), n, 3);
        }
        let end = NOW + 150_000;
        let minutes = timeline.points(Range::Day, end);
        let of = |points: &[Point]| -> Vec<(u64, u64, u64)> {
            let each = points.iter().map(|p| (p.at - NOW, p.recommends, p.users));
            each.collect()
        };
        assert_eq!(
            of(&minutes),
            [(0, 120, 59), (60_000, 120, 119), (120_000, 60, 149)]
        );
        assert_eq!(of(&timeline.points(Range::Days, end)), [(0, 300, 149)]);
        let seconds = timeline.points(Range::Minutes, end);
        assert_eq!(seconds.len(), 150);
        assert!(seconds.iter().all(|p| p.recommends == 2 && p.rewards == 1));
        // Each has the seconds that were counted, so a rate is right while a step is not over.
        let counted = |points: &[Point]| -> Vec<u32> { points.iter().map(|p| p.seconds).collect() };
        assert_eq!(counted(&minutes), [60, 60, 30]);
        assert_eq!(counted(&timeline.points(Range::Days, end)), [150]);
        assert!(seconds.iter().all(|p| p.seconds == 1));
        assert!((minutes[0].reward_sum - 30.0).abs() < 1e-9);
    }

    #[test]
    fn it_is_bounded() {
        let mut timeline = Timeline::default();
        // More than a day by the second, then 70 days by the minute.
        for n in 0..100_000 {
            timeline.add(NOW + 1000 * n, &second(1, 0, 0.0), 0, 0);
        }
        for n in 0..70 * 24 * 60 {
            timeline.add(NOW + 2 * DAY + 60_000 * n, &second(1, 0, 0.0), 0, 0);
        }
        let end = NOW + 72 * DAY - 1;
        for range in Range::ALL {
            assert!(timeline.0[range as usize].closed.len() < range.steps());
        }
        assert_eq!(timeline.points(Range::Day, end).len(), 1440);
        assert_eq!(timeline.points(Range::Days, end).len(), 1440);
        let bytes = timeline.encode();
        assert!(bytes.len() < 200_000, "{}", bytes.len());
    }

    #[test]
    fn a_clock_that_jumps_hides_nothing_that_was_recorded_at_the_right_time() {
        let mut timeline = Timeline::default();
        let add = |timeline: &mut Timeline, at| timeline.add(at, &second(1, 0, 0.0), 0, 0);
        for n in 0..60 {
            add(&mut timeline, NOW + 60_000 * n);
        }
        // Set to 1970 at a boot, then to a far future, then back by ten minutes, and on.
        add(&mut timeline, 5_000);
        add(&mut timeline, NOW + 400 * DAY);
        for n in 50..70 {
            add(&mut timeline, NOW + 60_000 * n);
        }
        let points = timeline.points(Range::Day, NOW + 70 * 60_000);
        let times: Vec<u64> = points.iter().map(|p| (p.at - NOW) / 60_000).collect();
        assert_eq!(times, (0..70).collect::<Vec<_>>());
        let total: u64 = points.iter().map(|p| p.recommends).sum();
        assert_eq!(total, 80);
    }

    #[test]
    fn a_file_of_figures_is_read_back_and_a_damaged_one_is_not() {
        let mut timeline = Timeline::default();
        for n in 0..5_000 {
            timeline.add(NOW + 1000 * n, &second(3, 2, 1.5), n, 1);
        }
        let bytes = timeline.encode();
        assert_eq!(Timeline::decode(&bytes), Some(timeline));
        assert_eq!(Timeline::decode(&bytes[..bytes.len() / 2]), None);
        assert_eq!(Timeline::decode(&bytes[1..]), None);
        assert_eq!(Timeline::decode(&[]), None);
    }
}
