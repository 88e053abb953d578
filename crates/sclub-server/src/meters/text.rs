//! Metrics in Prometheus' text format.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::experiment::{ArmReport, ExperimentReport};

/// The text of one metric. Each value has its labels, in braces, or none.
pub(crate) fn metric(
    name: &str,
    kind: &str,
    help: &str,
    values: impl IntoIterator<Item = (String, f64)>,
) -> String {
    let mut text = format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
    for (labels, value) in values {
        let _ = writeln!(text, "{name}{labels} {value}");
    }
    text.push('\n');
    text
}

/// The gauge that tells whether a space, or a node, answers requests.
pub fn ready_metric(is_ready: bool) -> String {
    let help = "1 if requests are answered; 0 while the space is opened, or if it cannot be";
    let value = (String::new(), f64::from(u8::from(is_ready)));
    metric("sclub_ready", "gauge", help, [value])
}

/// The gauges of the arms of an experiment. Names need no escapes ([`crate::experiment::Plan::check`]).
pub(super) fn arm_gauges(report: &ExperimentReport) -> String {
    type Value = fn(&ArmReport) -> Option<f64>;
    let gauges: [(&str, &str, Value); 6] = [
        ("users", "Users of an arm with a reward", |arm| {
            Some(arm.sums.users as f64)
        }),
        ("items", "Items of an arm with a reward", |arm| {
            Some(arm.sums.items as f64)
        }),
        (
            "accumulated_reward",
            "Sum of the rewards of an arm",
            |arm| Some(arm.sums.rewards),
        ),
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
        let experiment = &report.plan.name;
        let labels = |arm| format!("{{experiment=\"{experiment}\",arm=\"{arm}\"}}");
        let values = values.into_iter().map(|(arm, value)| (labels(arm), value));
        text += &metric(&format!("sclub_arm_{name}"), "gauge", help, values);
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
