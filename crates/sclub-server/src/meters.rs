//! Metrics: for Prometheus, and by the second for the page.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, describe_counter, describe_gauge};
use metrics::{describe_histogram, gauge, histogram, with_local_recorder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use sclub::Outlook;

use crate::experiment::{ArmReport, ExperimentReport, Experiments};
use crate::latency::{Latencies, Window};
use crate::locks::lock;
use crate::state::{Effect, Record, State, What};

/// The upper bounds of the latency buckets, in seconds.
const BUCKETS: [f64; 14] = [
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0,
    5.0,
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
    rewards_equal: Gauge,
    unanswered: Gauge,
    decisions: Counter,
    rewards: Counter,
    reward_sum: Gauge,
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
    store: Gauge,
    writable: Gauge,
    fits: Counter,
    fit_seconds: Gauge,
    fit_running: Gauge,
    unplaced: Gauge,
    effective: Gauge,
    gain: Gauge,
    used: Gauge,
    owned: Gauge,
    lag: Gauge,
    nodes: Gauge,
    takeovers: Gauge,
    left_out: Gauge,
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
            .expect("there are buckets")
            .build_recorder();
        let handle = recorder.handle();
        with_local_recorder(&recorder, || {
            describe();
            Self {
                handle,
                calls: Call::ALL.map(|call| {
                    let call = call.as_str();
                    let counted = |outcome: &'static str| counter!("sclub_requests_total", "call" => call, "outcome" => outcome);
                    CallMeters {
                        ok: counted("ok"),
                        refused: counted("refused"),
                        failed: counted("failed"),
                        seconds: histogram!("sclub_request_seconds", "call" => call),
                    }
                }),
                not_journaled: counter!("sclub_decisions_unnoted_total"),
                unanswered_dropped: counter!("sclub_unanswered_dropped_total"),
                rewards_equal: gauge!("sclub_rewards_equal"),
                unanswered: gauge!("sclub_unanswered"),
                decisions: counter!("sclub_decisions_total"),
                rewards: counter!("sclub_rewards_total"),
                reward_sum: gauge!("sclub_reward_sum"),
                splits: counter!("sclub_splits_total"),
                merges: counter!("sclub_merges_total"),
                commits: histogram!("sclub_commit_seconds"),
                commit_events: histogram!("sclub_commit_events"),
                users: gauge!("sclub_users"),
                clusters: gauge!("sclub_clusters"),
                singletons: gauge!("sclub_singletons_share"),
                items: gauge!("sclub_items"),
                rounds: gauge!("sclub_rounds"),
                events: gauge!("sclub_events"),
                queue: gauge!("sclub_queue"),
                store: gauge!("sclub_store_bytes"),
                writable: gauge!("sclub_writable"),
                fits: counter!("sclub_fits_total"),
                fit_seconds: gauge!("sclub_fit_seconds"),
                fit_running: gauge!("sclub_fit_running"),
                unplaced: gauge!("sclub_unplaced_share"),
                effective: gauge!("sclub_effective_parameters"),
                gain: gauge!("sclub_clustering_gain"),
                used: gauge!("sclub_clustering_used"),
                owned: gauge!("sclub_owned_partitions"),
                lag: gauge!("sclub_follow_lag_batches"),
                nodes: gauge!("sclub_nodes"),
                takeovers: gauge!("sclub_takeovers"),
                left_out: gauge!("sclub_fit_partitions_left_out"),
                fit_age: gauge!("sclub_fit_age_seconds"),
                forwards: histogram!("sclub_forward_seconds"),
                second: Second::default(),
                total_decisions: AtomicU64::new(0),
                arms: Mutex::default(),
            }
        })
    }
}

fn describe() {
    describe_gauge!(
        "sclub_owned_partitions",
        "Partitions that this node owns; 0 on a single server"
    );
    describe_gauge!(
        "sclub_follow_lag_batches",
        "Batches that this node is behind the owners of the groups it follows"
    );
    describe_gauge!("sclub_nodes", "Nodes of the cluster that are running");
    describe_gauge!(
        "sclub_fit_partitions_left_out",
        "Partitions that did not answer in fits that this node has computed, since it started"
    );
    describe_gauge!(
        "sclub_takeovers",
        "Groups that this node has taken over since its start"
    );
    describe_gauge!(
        "sclub_fit_age_seconds",
        "Time since this node computed a fit over all partitions; -1 if it has not"
    );
    describe_histogram!(
        "sclub_forward_seconds",
        "Time to have a request answered by another node; its count is the number of forwarded requests"
    );
    describe_counter!("sclub_requests_total", "Requests by call and outcome");
    describe_histogram!("sclub_request_seconds", "Time to answer a request");
    describe_counter!("sclub_decisions_total", "Decisions made");
    describe_counter!(
        "sclub_decisions_unnoted_total",
        "Decisions not recorded in the journal: the buffer was full, or the page was refused. They still accept a reward"
    );
    describe_counter!(
        "sclub_unanswered_dropped_total",
        "Decisions whose items will get no assumed reward, because too many decisions wait"
    );
    describe_gauge!(
        "sclub_rewards_equal",
        "1 if all rewards are equal and there are at least 100: nothing can be learned from them; else 0"
    );
    describe_gauge!(
        "sclub_unanswered",
        "Decisions that wait for their rewards, to be given assumed ones"
    );
    describe_counter!("sclub_rewards_total", "Rewards learned");
    describe_gauge!(
        "sclub_reward_sum",
        "Sum of the rewards of all users, without forgotten ones"
    );
    describe_counter!("sclub_splits_total", "Splits");
    describe_counter!("sclub_merges_total", "Merges");
    describe_histogram!("sclub_commit_seconds", "Time to make a batch durable");
    describe_histogram!("sclub_commit_events", "Events in a batch");
    describe_gauge!("sclub_users", "Users who have given a reward");
    describe_gauge!("sclub_clusters", "Clusters");
    describe_gauge!(
        "sclub_singletons_share",
        "Share of the clusters that have one user"
    );
    describe_gauge!("sclub_items", "Items in the catalogue");
    describe_gauge!("sclub_rounds", "Rounds learned");
    describe_gauge!("sclub_events", "Events in the log");
    describe_gauge!("sclub_queue", "Writes in the queue");
    describe_gauge!("sclub_store_bytes", "Size of the data folder");
    describe_gauge!("sclub_writable", "0 if the server is read-only, else 1");
    describe_counter!("sclub_fits_total", "Fits that took effect");
    describe_gauge!("sclub_fit_seconds", "Time to compute the last fit");
    describe_gauge!("sclub_fit_running", "1 if a fit is being computed, else 0");
    describe_gauge!(
        "sclub_unplaced_share",
        "Share of the users for whom no cluster has a probability of one half or more"
    );
    describe_gauge!(
        "sclub_effective_parameters",
        "Effective number of parameters that the rewards have determined"
    );
    describe_gauge!(
        "sclub_clustering_gain",
        "Gain in log-likelihood of rewards with clusters over without, in nats"
    );
    describe_gauge!(
        "sclub_clustering_used",
        "1 if clusters have at least half of the weight in recommendations, else 0"
    );
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
        self.reward_sum.set(sum(&|state| state.rewards().1));
        let clusters = owned.iter().map(|engine| engine.state().clusters()).max();
        self.clusters.set(clusters.unwrap_or(0) as f64);
        self.items.set(items as f64);
        self.queue.set(
            owned
                .iter()
                .map(|engine| engine.waiting() as f64)
                .sum::<f64>(),
        );
        let is_writable = owned.iter().all(|engine| engine.read_only().is_none());
        self.writable.set(f64::from(u8::from(is_writable)));
        self.owned.set(count as f64);
        self.lag.set(lag as f64);
        self.nodes.set(nodes as f64);
    }

    /// Sets the gauges of a cluster.
    pub fn cluster(&self, takeovers: u64, left_out: u64, fit_age_ms: Option<u64>) {
        self.takeovers.set(takeovers as f64);
        self.left_out.set(left_out as f64);
        self.fit_age
            .set(fit_age_ms.map_or(-1.0, |age| age as f64 / 1e3));
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
        self.reward_sum.set(state.rewards().1);
        self.clusters.set(clusters as f64);
        self.singletons
            .set(singletons as f64 / clusters.max(1) as f64);
        let items = state.catalogue().map_or(0, |catalogue| catalogue.len());
        self.items.set(items as f64);
        self.rounds.set(state.rounds() as f64);
        self.events.set(state.events() as f64);
        // A policy without fits has no such values.
        let outlook = state.policy().and_then(|policy| policy.inspect().outlook());
        let figure = |of: fn(&Outlook) -> f64| outlook.as_ref().map_or(f64::NAN, of);
        self.unplaced.set(figure(|outlook| outlook.unplaced));
        self.effective
            .set(figure(|outlook| outlook.effective_parameters));
        self.gain.set(figure(|outlook| outlook.gain));
        self.used
            .set(figure(|outlook| f64::from(u8::from(outlook.used))));
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

    /// Sets the gauges of the store.
    pub fn store(&self, waiting: usize, bytes: u64, writable: bool) {
        self.queue.set(waiting as f64);
        self.store.set(bytes as f64);
        self.writable.set(f64::from(u8::from(writable)));
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

/// The gauges of the arms of an experiment. Names need no escapes ([`crate::experiment::Plan::check`]).
fn arm_gauges(report: &ExperimentReport) -> String {
    type Value = fn(&ArmReport) -> Option<f64>;
    let gauges: [(&str, &str, Value); 6] = [
        ("users", "Users of an arm with a reward", |arm| {
            Some(arm.sums.users as f64)
        }),
        ("items", "Items of an arm with a reward", |arm| {
            Some(arm.sums.items as f64)
        }),
        ("reward_sum", "Sum of the rewards of an arm", |arm| {
            Some(arm.sums.rewards)
        }),
        (
            "difference",
            "Reward per item of an arm less that of the control",
            |arm| Some(arm.difference?.value),
        ),
        (
            "difference_low",
            "Lower end of the difference, at any time with 95% confidence",
            |arm| Some(arm.difference?.low),
        ),
        (
            "difference_high",
            "Upper end of the difference, at any time with 95% confidence",
            |arm| Some(arm.difference?.high),
        ),
    ];
    let mut text = String::new();
    for (name, help, value) in gauges {
        let values: Vec<(&str, f64)> = report
            .plan
            .arms
            .iter()
            .zip(&report.arms)
            .filter(|(plan, _)| !plan.is_shadow())
            .filter_map(|(plan, arm)| Some((&*plan.name, value(arm)?)))
            .collect();
        if values.is_empty() {
            continue;
        }
        text += &format!("# HELP sclub_arm_{name} {help}\n# TYPE sclub_arm_{name} gauge\n");
        for (arm, value) in values {
            let experiment = &report.plan.name;
            text +=
                &format!("sclub_arm_{name}{{experiment=\"{experiment}\",arm=\"{arm}\"}} {value}\n");
        }
        text.push('\n');
    }
    text
}

/// Metrics in Prometheus' text format with the label `space` on each.
pub fn labelled(text: &str, space: &str) -> String {
    let mut out = String::with_capacity(text.len() * 3 / 2);
    for line in text.lines() {
        let at = line.find(['{', ' ']);
        match at.filter(|_| !line.starts_with('#')) {
            Some(at) if line[at..].starts_with('{') => {
                let (name, rest) = (&line[..at], &line[at + 1..]);
                out.extend([name, "{space=\"", space, "\",", rest]);
            }
            Some(at) => out.extend([&line[..at], "{space=\"", space, "\"}", &line[at..]]),
            None => out.push_str(line),
        }
        out.push('\n');
    }
    out
}

/// Several texts in Prometheus' format as one, in which the lines of a metric are together, as the format requires.
pub fn joined(texts: impl Iterator<Item = String>) -> String {
    let mut metrics: BTreeMap<String, (String, String)> = BTreeMap::new();
    for text in texts {
        for part in text.split("\n\n") {
            let is_head = |line: &&str| line.starts_with('#');
            let (heads, lines): (Vec<&str>, Vec<&str>) = part
                .lines()
                .filter(|line| !line.is_empty())
                .partition(is_head);
            let Some(name) = heads.first().and_then(|head| head.split(' ').nth(2)) else {
                continue;
            };
            let (head, all) = metrics.entry(name.to_owned()).or_default();
            *head = heads.join("\n");
            for line in lines {
                all.extend([line, "\n"]);
            }
        }
    }
    let texts = metrics.into_values();
    texts
        .map(|(head, lines)| format!("{head}\n{lines}\n"))
        .collect()
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
