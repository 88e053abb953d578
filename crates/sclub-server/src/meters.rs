//! Metrics: for Prometheus, and by the second for the page.

mod process;
mod text;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, describe_counter, describe_gauge};
use metrics::{describe_histogram, gauge, histogram, with_local_recorder};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use sclub::Outlook;

use self::text::arm_gauges;
pub(crate) use self::text::metric;
pub use self::text::{joined, labelled, ready_metric};
use crate::engine::RewardValues;
use crate::experiment::Experiments;
use crate::latency::{Latencies, Window};
use crate::locks::lock;
use crate::state::{Effect, Record, State, What};
use crate::store::STORE_PARTS;

pub use self::process::{open_process_files, process_metrics};

/// The upper bounds of the latency buckets, in seconds.
const BUCKETS: [f64; 14] = [
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0,
    5.0,
];

/// The upper bounds of the buckets of [`Meters::commit`], in events.
const EVENT_BUCKETS: [f64; 11] = [
    1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0,
];

/// The kinds of requests whose latency is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// `/v1/recommend`
    Recommend,
    /// `/v1/recommend/batch`
    RecommendBatch,
    /// `/v1/feedback`
    Feedback,
    /// `/v1/feedback/batch`
    FeedbackBatch,
    /// Anything else under `/v1`.
    Other,
}

impl Call {
    const ALL: [Call; 5] = [
        Call::Recommend,
        Call::RecommendBatch,
        Call::Feedback,
        Call::FeedbackBatch,
        Call::Other,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Call::Recommend => "recommend",
            Call::RecommendBatch => "recommend_batch",
            Call::Feedback => "feedback",
            Call::FeedbackBatch => "feedback_batch",
            Call::Other => "other",
        }
    }
}

/// The metrics of a server.
pub struct Meters {
    handle: PrometheusHandle,
    calls: [CallMeters; 5],
    /// Decisions not recorded in the journal: the buffer was full, or the page was refused.
    pub not_journaled: Counter,
    /// Decisions that will get no assumed reward, because too many wait.
    pub unanswered_dropped: Counter,
    /// Rewards assumed because none came in time.
    pub rewards_assumed: Counter,
    rewards_equal: Gauge,
    unanswered: Gauge,
    decisions: Counter,
    rewards: Counter,
    accumulated_reward: Gauge,
    splits: Counter,
    merges: Counter,
    commits: Histogram,
    commit_events: Histogram,
    users: Gauge,
    clusters: Gauge,
    singletons: Gauge,
    items: Gauge,
    rounds: Gauge,
    events: Gauge,
    queue: Gauge,
    store: [Gauge; STORE_PARTS.len()],
    writable: Gauge,
    journal_writable: Gauge,
    snapshots: Counter,
    /// Snapshots that could not be taken.
    pub snapshot_failures: Counter,
    /// Backups and exports that broke off.
    pub download_failures: Counter,
    snapshot_seconds: Gauge,
    log_since_snapshot: Gauge,
    fits: Counter,
    /// Fits that failed or were refused.
    pub fit_failures: Counter,
    fit_seconds: Gauge,
    fit_running: Gauge,
    unplaced: Gauge,
    effective: Gauge,
    gain: Gauge,
    used: Gauge,
    owned: Gauge,
    lag: Gauge,
    nodes: Gauge,
    missing_nodes: Gauge,
    takeovers: Counter,
    left_out: Counter,
    fit_age: Gauge,
    forwards: Histogram,
    second: Second,
    total_decisions: AtomicU64,
    /// The metrics of the arms of an experiment, in Prometheus' text format.
    arms: Mutex<String>,
}

/// The metrics of one kind of request.
struct CallMeters {
    ok: Counter,
    refused: Counter,
    failed: Counter,
    seconds: Histogram,
}

/// Counts since the last summary.
#[derive(Debug, Default)]
struct Second {
    recommend: Window,
    feedback: Window,
    recommends: AtomicU64,
    feedbacks: AtomicU64,
    rewards: AtomicU64,
    /// The sum of the rewards, in millionths.
    reward_sum: AtomicU64,
}

/// The counts of a second, or since the last summary. Those of batches are included, each by itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Summary {
    /// The number of recommendations.
    pub recommends: u64,
    /// The number of feedbacks.
    pub feedbacks: u64,
    /// The number of rewards learned.
    pub rewards: u64,
    /// The sum of the rewards learned.
    pub reward_sum: f64,
    /// The latencies of calls that recommend.
    pub recommend: Latencies,
    /// The latencies of calls with feedback.
    pub feedback: Latencies,
}

impl Summary {
    /// The mean of the rewards learned.
    pub fn reward_rate(&self) -> Option<f64> {
        (self.rewards > 0).then(|| self.reward_sum / self.rewards as f64)
    }
}

impl std::fmt::Debug for Meters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Meters")
    }
}

impl Default for Meters {
    fn default() -> Self {
        let recorder = PrometheusBuilder::new()
            .set_buckets(&BUCKETS)
            .and_then(|builder| {
                let name = Matcher::Full("sclub_commit_events".to_owned());
                builder.set_buckets_for_metric(name, &EVENT_BUCKETS)
            })
            .expect("there are buckets")
            .build_recorder();
        let handle = recorder.handle();
        with_local_recorder(&recorder, || Self::new(handle))
    }
}

/// The number of users of a state, and the figures of its policy, if it has fits.
fn outlook(state: &State) -> Option<(f64, Outlook)> {
    let outlook = state.policy()?.inspect().outlook()?;
    Some((state.users().len() as f64, outlook))
}

fn counter(name: &'static str, help: &'static str) -> Counter {
    describe_counter!(name, help);
    counter!(name)
}

fn gauge(name: &'static str, help: &'static str) -> Gauge {
    describe_gauge!(name, help);
    gauge!(name)
}

fn histogram(name: &'static str, help: &'static str) -> Histogram {
    describe_histogram!(name, help);
    histogram!(name)
}

#[rustfmt::skip] // one metric a line, as far as it fits
impl Meters {
    fn new(handle: PrometheusHandle) -> Self {
        describe_counter!("sclub_requests_total", "Requests by call and outcome");
        describe_histogram!("sclub_request_seconds", "Time to answer a request");
        describe_gauge!("sclub_store_bytes", "Size of the data folder: log, snapshots, journal");
        let call = |call: Call| {
            let call = call.as_str();
            let counted = |outcome: &'static str| counter!("sclub_requests_total", "call" => call, "outcome" => outcome);
            CallMeters {
                ok: counted("ok"),
                refused: counted("refused"),
                failed: counted("failed"),
                seconds: histogram!("sclub_request_seconds", "call" => call),
            }
        };
        let meters = Self {
            handle,
            calls: Call::ALL.map(call),
            not_journaled: counter("sclub_decisions_not_journaled_total",
                "Decisions not recorded in the journal: the buffer was full, or the page was refused. They still accept a reward"),
            unanswered_dropped: counter("sclub_unanswered_dropped_total",
                "Decisions whose items will get no assumed reward, because too many decisions wait"),
            rewards_assumed: counter("sclub_rewards_assumed_total", "Rewards assumed because none came in time; they are rewards learned, too"),
            rewards_equal: gauge("sclub_rewards_equal",
                "1 if all rewards are equal and there are at least 100: nothing can be learned from them; else 0"),
            unanswered: gauge("sclub_unanswered", "Decisions that wait for their rewards, to be given assumed ones"),
            decisions: counter("sclub_decisions_total", "Decisions made"),
            rewards: counter("sclub_rewards_total", "Rewards learned"),
            accumulated_reward: gauge("sclub_accumulated_reward", "Sum of the rewards of all users, without forgotten ones"),
            splits: counter("sclub_splits_total", "Splits"),
            merges: counter("sclub_merges_total", "Merges"),
            commits: histogram("sclub_commit_seconds", "Time to make a batch durable"),
            commit_events: histogram("sclub_commit_events", "Events in a batch"),
            users: gauge("sclub_users", "Users who have given a reward"),
            clusters: gauge("sclub_clusters", "Clusters"),
            singletons: gauge("sclub_singletons_ratio", "Share of the clusters that have one user"),
            items: gauge("sclub_items", "Items in the catalogue"),
            rounds: gauge("sclub_rounds", "Rounds learned"),
            events: gauge("sclub_events", "Events in the log"),
            queue: gauge("sclub_queue", "Writes in the queue"),
            store: STORE_PARTS.map(|part| gauge!("sclub_store_bytes", "part" => part)),
            writable: gauge("sclub_writable", "0 if the server is read-only, else 1"),
            journal_writable: gauge("sclub_journal_writable", "0 if the journal could not be written, else 1"),
            snapshots: counter("sclub_snapshots_total", "Snapshots taken"),
            download_failures: counter("sclub_download_failures_total", "Backups and exports that broke off; the log has the reason"),
            snapshot_failures: counter("sclub_snapshot_failures_total", "Snapshots that could not be taken. No data is lost: the log is kept"),
            snapshot_seconds: gauge("sclub_snapshot_seconds", "Time to take the last snapshot; NaN before the first"),
            log_since_snapshot: gauge("sclub_log_since_snapshot_bytes", "Bytes appended to the log since the last snapshot was begun"),
            fits: counter("sclub_fits_total", "Fits that took effect"),
            fit_failures: counter("sclub_fit_failures_total", "Fits that failed or were refused"),
            fit_seconds: gauge("sclub_fit_seconds", "Time to compute the last fit; NaN before the first"),
            fit_running: gauge("sclub_fit_running", "1 if a fit is being computed, else 0"),
            unplaced: gauge("sclub_unplaced_ratio", "Share of the users for whom no cluster has a probability of one half or more"),
            effective: gauge("sclub_effective_parameters", "Effective number of parameters that the rewards have determined"),
            gain: gauge("sclub_clustering_gain", "Gain in log-likelihood of rewards with clusters over without, in nats"),
            used: gauge("sclub_clustering_used", "1 if clusters have at least half of the weight in recommendations, else 0"),
            owned: gauge("sclub_owned_partitions", "Partitions that this node owns; 0 on a single server"),
            lag: gauge("sclub_follow_lag_batches", "Batches that this node is behind the owners of the groups it follows"),
            nodes: gauge("sclub_nodes", "Nodes of the cluster that are running; 0 on a single server"),
            missing_nodes: gauge("sclub_missing_nodes", "Nodes that have been part of the cluster and are not running; NaN while NATS does not answer"),
            takeovers: counter("sclub_takeovers_total", "Groups that this node has taken over"),
            left_out: counter("sclub_fit_partitions_left_out_total", "Partitions that did not answer in fits that this node has computed"),
            fit_age: gauge("sclub_fit_age_seconds", "Time since this node computed a fit over all partitions; NaN if it has not"),
            forwards: histogram("sclub_forward_seconds", "Time to have a request answered by another node; its count is the number of forwarded requests"),
            second: Second::default(),
            total_decisions: AtomicU64::new(0),
            arms: Mutex::default(),
        };
        meters.journal_writable.set(1.0);
        for unknown in [&meters.snapshot_seconds, &meters.fit_seconds, &meters.fit_age] {
            unknown.set(f64::NAN);
        }
        meters
    }
}

impl Meters {
    /// Counts an answered request.
    pub fn answered(&self, call: Call, took: Duration, status: u16) {
        let timed = &self.calls[call as usize];
        match status {
            0..=399 => timed.ok.increment(1),
            400..=499 => timed.refused.increment(1),
            _ => timed.failed.increment(1),
        }
        timed.seconds.record(took.as_secs_f64());
        match call {
            Call::Recommend | Call::RecommendBatch => {
                if call == Call::Recommend && status < 400 {
                    self.decided(1);
                }
                self.second.recommend.record(took);
            }
            Call::Feedback | Call::FeedbackBatch => {
                if call == Call::Feedback && status < 400 {
                    self.fed_back(1);
                }
                self.second.feedback.record(took);
            }
            Call::Other => {}
        }
    }

    /// Counts a request that was refused before its handler, which would have timed it. It has no time: one of a flood would
    /// make the others look fast.
    pub fn refused(&self, call: Call) {
        self.calls[call as usize].refused.increment(1);
    }

    /// Counts feedbacks that were taken in a batch.
    pub fn fed_back(&self, feedbacks: u64) {
        let counted = &self.second.feedbacks;
        counted.fetch_add(feedbacks, Ordering::Relaxed);
    }

    /// Counts a request that another node answered.
    pub fn forwarded(&self, took: Duration) {
        self.forwards.record(took.as_secs_f64());
    }

    /// Sets the gauges of a node to the sums over the partitions that it owns.
    pub fn node(
        &self,
        owned: &[&crate::engine::Engine],
        items: usize,
        count: u64,
        lag: u64,
        nodes: usize,
    ) {
        let sum = |of: &dyn Fn(&State) -> f64| -> f64 {
            owned.iter().map(|engine| of(&engine.state())).sum()
        };
        self.users.set(sum(&|state| state.users().len() as f64));
        self.rounds.set(sum(&|state| state.rounds() as f64));
        self.events.set(sum(&|state| state.events() as f64));
        self.accumulated_reward.set(sum(&|state| state.rewards().1));
        let clusters = owned.iter().map(|engine| engine.state().clusters()).max();
        self.clusters.set(clusters.unwrap_or(0) as f64);
        let outlooks = owned.iter().filter_map(|engine| outlook(&engine.state()));
        self.outlooks(&outlooks.collect::<Vec<_>>());
        let rewards = owned.iter().map(|engine| engine.equal_rewards());
        self.rewards(
            rewards
                .fold(RewardValues::default(), RewardValues::and)
                .warns(),
            0,
        );
        self.items.set(items as f64);
        self.queue.set(
            owned
                .iter()
                .map(|engine| engine.waiting() as f64)
                .sum::<f64>(),
        );
        self.owned.set(count as f64);
        self.lag.set(lag as f64);
        self.nodes.set(nodes as f64);
    }

    /// Sets the gauges of a cluster. The number of missing nodes may be unknown.
    pub fn cluster(
        &self,
        takeovers: u64,
        left_out: u64,
        missing: Option<usize>,
        fit_age_ms: Option<u64>,
    ) {
        self.takeovers.absolute(takeovers);
        self.left_out.absolute(left_out);
        let missing = missing.map_or(f64::NAN, |missing| missing as f64);
        self.missing_nodes.set(missing);
        self.fit_age
            .set(fit_age_ms.map_or(f64::NAN, |age| age as f64 / 1e3));
    }

    /// Counts decisions that were made in a batch.
    pub fn decided(&self, decisions: u64) {
        self.decisions.increment(decisions);
        let counted = &self.second.recommends;
        counted.fetch_add(decisions, Ordering::Relaxed);
        self.total_decisions.fetch_add(decisions, Ordering::Relaxed);
    }

    /// The number of decisions since the server started.
    pub fn decisions(&self) -> u64 {
        self.total_decisions.load(Ordering::Relaxed)
    }

    /// Counts a batch that became durable.
    pub fn commit(&self, took: Duration, events: usize) {
        self.commits.record(took.as_secs_f64());
        self.commit_events.record(events as f64);
    }

    /// Counts the rewards of a batch that was applied.
    pub fn learned(&self, effect: &Effect) {
        let (count, sum) = (effect.rewards, effect.reward_sum);
        self.rewards.increment(count);
        self.second.rewards.fetch_add(count, Ordering::Relaxed);
        // Rewards may be negative: the sum wraps around, and back.
        let millionths = (sum * 1e6).round() as i64;
        self.second
            .reward_sum
            .fetch_add(millionths as u64, Ordering::Relaxed);
    }

    /// Counts splits and merges.
    pub fn changes(&self, changes: &[Record]) {
        for record in changes {
            match record.what {
                What::Split { .. } => self.splits.increment(1),
                What::Merge { .. } => self.merges.increment(1),
            }
        }
    }

    /// Sets the gauges of the state.
    pub fn state(&self, state: &State) {
        let clusters = state.clusters();
        let singletons = state
            .policy()
            .map_or(0, |policy| policy.inspect().singletons());
        self.users.set(state.users().len() as f64);
        self.accumulated_reward.set(state.rewards().1);
        self.clusters.set(clusters as f64);
        self.singletons
            .set(singletons as f64 / clusters.max(1) as f64);
        let items = state.catalogue().map_or(0, |catalogue| catalogue.len());
        self.items.set(items as f64);
        self.rounds.set(state.rounds() as f64);
        self.events.set(state.events() as f64);
        self.outlooks(outlook(state).as_slice());
    }

    /// Sets the gauges of the clustering to figures over states, each with its number of users. A policy without fits has none.
    fn outlooks(&self, all: &[(f64, Outlook)]) {
        let sum = |of: fn(&Outlook) -> f64| match all.is_empty() {
            true => f64::NAN,
            false => all.iter().map(|(_, outlook)| of(outlook)).sum(),
        };
        self.effective
            .set(sum(|outlook| outlook.effective_parameters));
        self.gain.set(sum(|outlook| outlook.gain));
        let count = all.len() as f64;
        let used = sum(|outlook| f64::from(u8::from(outlook.used)));
        self.used.set((used / count).floor());
        let users: f64 = all.iter().map(|(users, _)| users.max(1.0)).sum();
        let unplaced = all
            .iter()
            .map(|(of, outlook)| outlook.unplaced * of.max(1.0));
        self.unplaced.set(unplaced.sum::<f64>() / users);
    }

    /// Sets the gauges of rewards: whether all are equal, and the number of decisions that wait for theirs.
    pub fn rewards(&self, are_equal: bool, unanswered: usize) {
        self.rewards_equal.set(f64::from(u8::from(are_equal)));
        self.unanswered.set(unanswered as f64);
    }

    /// Counts a fit that took effect.
    pub fn fitted(&self) {
        self.fits.increment(1);
    }

    /// Sets the gauges of the fits.
    pub fn fitting(&self, is_running: bool, took: Option<Duration>) {
        self.fit_running.set(f64::from(u8::from(is_running)));
        self.fit_seconds
            .set(took.map_or(f64::NAN, |took| took.as_secs_f64()));
    }

    /// Sets the gauges of the store: the sizes of its parts in bytes, in the order of [`STORE_PARTS`], the bytes in the log since
    /// the last snapshot, and whether it is writable.
    pub fn store(&self, bytes: [u64; STORE_PARTS.len()], since_snapshot: u64, is_writable: bool) {
        for (gauge, bytes) in self.store.iter().zip(bytes) {
            gauge.set(bytes as f64);
        }
        self.log_since_snapshot.set(since_snapshot as f64);
        self.writable.set(f64::from(u8::from(is_writable)));
    }

    /// Sets the number of writes in the queue.
    pub fn queue(&self, waiting: usize) {
        self.queue.set(waiting as f64);
    }

    /// Sets whether the journal can be written.
    pub fn journal(&self, is_writable: bool) {
        self.journal_writable.set(f64::from(u8::from(is_writable)));
    }

    /// Counts a snapshot.
    pub fn snapshot(&self, took: Duration) {
        self.snapshots.increment(1);
        self.snapshot_seconds.set(took.as_secs_f64());
    }

    /// Moves samples into their buckets, which frees memory.
    pub fn upkeep(&self) {
        self.handle.run_upkeep();
    }

    /// Sets the gauges of the arms of the experiment under way.
    pub fn experiment(&self, experiments: &Experiments) {
        let report = experiments.report();
        *lock(&self.arms) = report.map_or_else(String::new, |report| arm_gauges(&report));
    }

    /// The metrics in Prometheus' text format.
    pub fn render(&self) -> String {
        self.handle.render() + &*lock(&self.arms)
    }

    /// The summary since the last call. There must be one caller only.
    pub fn second(&self) -> Summary {
        let second = &self.second;
        let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        let millionths = take(&second.reward_sum) as i64;
        Summary {
            recommends: take(&second.recommends),
            feedbacks: take(&second.feedbacks),
            rewards: take(&second.rewards),
            reward_sum: millionths as f64 * 1e-6,
            recommend: second.recommend.take(),
            feedback: second.feedback.take(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_rendered() {
        let meters = Meters::default();
        meters.answered(Call::Recommend, Duration::from_millis(2), 200);
        meters.answered(Call::Recommend, Duration::from_millis(2), 422);
        let text = meters.render();
        assert!(text.contains(r#"sclub_requests_total{call="recommend",outcome="ok"} 1"#));
        assert!(text.contains(r#"sclub_requests_total{call="recommend",outcome="refused"} 1"#));
        assert!(text.contains(r#"sclub_request_seconds_bucket{call="recommend",le="0.0025"} 2"#));
    }

    #[test]
    fn a_second_counts_each_part_of_a_batch_and_nothing_that_was_refused() {
        let meters = Meters::default();
        let took = Duration::from_millis(2);
        meters.answered(Call::Recommend, took, 200);
        meters.answered(Call::Recommend, took, 422);
        meters.decided(30);
        meters.answered(Call::RecommendBatch, took, 200);
        meters.answered(Call::Feedback, took, 200);
        meters.fed_back(20);
        meters.answered(Call::FeedbackBatch, took, 200);
        let second = meters.second();
        assert_eq!((second.recommends, second.feedbacks), (31, 21));
        assert!(second.feedback.quantile(0.5) >= Some(2e-3));
        assert_eq!(meters.second(), Summary::default());
    }

    #[test]
    fn metrics_of_spaces_are_one_text() {
        let meters = [Meters::default(), Meters::default()];
        for (count, meters) in meters.iter().enumerate() {
            meters.decided(count as u64 + 1);
            meters.answered(Call::Feedback, Duration::from_millis(2), 200);
        }
        let [first, second] = meters.map(|meters| meters.render());
        let text = joined([first, labelled(&second, "shop")].into_iter());
        let lines: Vec<&str> = text.lines().collect();
        let at = |line: &str| lines.iter().position(|other| *other == line).unwrap();
        let (one, two) = (
            at("sclub_decisions_total 1"),
            at("sclub_decisions_total{space=\"shop\"} 2"),
        );
        assert_eq!(two, one + 1);
        assert_eq!(lines[one - 1], "# TYPE sclub_decisions_total counter");
        at("sclub_requests_total{space=\"shop\",call=\"feedback\",outcome=\"ok\"} 1");
        let heads = |start: &str| lines.iter().filter(|line| line.starts_with(start)).count();
        let mut types: Vec<&&str> = lines
            .iter()
            .filter(|line| line.starts_with("# TYPE"))
            .collect();
        types.dedup();
        assert_eq!(types.len(), heads("# TYPE"));
        assert_eq!(heads("# TYPE sclub_request_seconds "), 1);
    }
}
