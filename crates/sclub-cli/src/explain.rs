//! `sclub explain`: the clusters of a running server, and the cluster probabilities of a user.

use std::process::ExitCode;

use anyhow::{Context, Result};
use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{CellAlignment, Table};
use sclub::find_policy;
use sclub_lab::summary::thousands;
use serde::Deserialize;
use serde_json::Value;

use crate::files::print_line;
use crate::remote::{Remote, TrustArgs, block_on, call};

/// Lines of the table of fits.
const FITS: usize = 16;

/// The flags of `sclub explain`.
#[derive(Debug, clap::Parser)]
pub struct ExplainArgs {
    /// Id of a user; without one, the clusters of all users are shown
    user: Option<String>,

    /// Address of the server
    #[arg(
        long,
        value_name = "URL",
        env = "SCLUB_URL",
        default_value = "http://127.0.0.1:8080",
        help_heading = "Server"
    )]
    url: String,

    #[command(flatten)]
    trust: TrustArgs,

    /// Print JSON
    #[arg(long, help_heading = "Output")]
    json: bool,
}

#[derive(Debug, Deserialize)]
struct State {
    policy: String,
    rounds: u64,
    users: u64,
    clusters: u64,
    dim: Option<u64>,
    clustering: Option<Clustering>,
}

#[derive(Debug, Deserialize)]
struct Clustering {
    fits: u64,
    fitted_at: u64,
    fitting: bool,
    fit_seconds: Option<f64>,
    clusters: u64,
    history: Vec<Fit>,
    unplaced: f64,
    effective_parameters: f64,
    noise: f64,
    gain: f64,
    used: bool,
    warning: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Fit {
    rounds: u64,
    clusters: u64,
}

#[derive(Debug, Deserialize)]
struct User {
    user: String,
    count: u64,
    cluster: u64,
    cluster_users: u64,
    placement: Option<Placement>,
    /// The policy that serves the user: that of an arm while an experiment runs.
    policy: String,
    in_force: bool,
    fits: bool,
    has_clusters: bool,
}

/// The part of a preview that names the arm of a user.
#[derive(Debug, Default, Deserialize)]
struct Arm {
    experiment: Option<String>,
    arm: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Placement {
    clusters: Vec<Place>,
    none: f64,
    used: bool,
}

#[derive(Debug, Deserialize)]
struct Place {
    cluster: u64,
    share: f64,
    evidence: f64,
    probability: f64,
}

/// Fetches the explanation from the server and prints it.
pub fn explain(args: &ExplainArgs) -> Result<ExitCode> {
    let remote = Remote::new(&args.url, &args.trust)?;
    let path = match &args.user {
        Some(user) => format!("/v1/users/{}", escaped(user)),
        None => "/v1/state".to_owned(),
    };
    let (answer, arm) = block_on(async {
        let mut connection = remote.open().await?;
        let answer = call(&mut connection, "GET", &path, b"").await?;
        if args.user.is_none() || args.json {
            return Ok((answer, Value::Null));
        }
        // There is none without items, and the arm is left out then.
        let preview = call(&mut connection, "GET", &format!("{path}/preview?k=1"), b"").await;
        Ok((answer, preview.unwrap_or_default()))
    })?;
    let other = || format!("what answers at {} is no sclub server", remote.url());
    print_line(&match (&args.user, args.json) {
        (Some(_), true) => answer["placement"].to_string(),
        (None, true) => answer["clustering"].to_string(),
        (Some(_), false) => user(
            &read(answer).with_context(other)?,
            &read(arm).unwrap_or_default(),
        ),
        (None, false) => whole(&read(answer).with_context(other)?),
    });
    Ok(ExitCode::SUCCESS)
}

fn read<T: for<'a> Deserialize<'a>>(answer: Value) -> Result<T> {
    Ok(serde_json::from_value(answer)?)
}

/// An id as part of a path.
pub fn escaped(id: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
            char::from(byte).to_string()
        }
        other => format!("%{other:02X}"),
    };
    id.bytes().map(escape).collect()
}

fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    match percent {
        p if p > 0.0 && p < 0.1 => "<0.1%".into(),
        p if p < 100.0 && p > 99.9 => ">99.9%".into(),
        p if !(10.0..=90.0).contains(&p) => format!("{p:.1}%"),
        p => format!("{p:.0}%"),
    }
}

fn count(n: u64, what: &str) -> String {
    let s = if n == 1 { "" } else { "s" };
    format!("{} {what}{s}", thousands(n as f64))
}

fn whole(state: &State) -> String {
    let head = format!(
        "{}: {}, {}",
        state.policy,
        count(state.rounds, "round"),
        count(state.users, "user")
    );
    let Some(found) = &state.clustering else {
        if find_policy(&state.policy).is_some_and(|policy| policy.can.fit) {
            return format!("{head}\nThe first fit is still to come.");
        }
        return format!(
            "{head}, {}\nThis policy fits nothing and knows no probabilities.",
            count(state.clusters, "cluster")
        );
    };
    let numbers = state.users * state.dim.unwrap_or(0);
    let running = match (found.fitting, found.fit_seconds) {
        (true, _) => "one is being computed",
        (false, Some(_)) => "none is being computed",
        (false, None) => "none since the start",
    };
    let took = found.fit_seconds.map_or_else(String::new, |seconds| {
        format!(", the last in {seconds:.2} s")
    });
    let mut lines = vec![
        head,
        format!(
            "clusters              {} (fit of round {}), {} of the weight in recommendations",
            found.clusters,
            thousands(found.fitted_at as f64),
            match found.used {
                true => "at least half",
                false => "less than half",
            }
        ),
        format!("users not placed      {}", percent(found.unplaced)),
        format!(
            "effective parameters  {:.1} of {}",
            found.effective_parameters,
            thousands(numbers as f64)
        ),
        format!("noise                 {:.3}", found.noise),
        format!("gain from clusters    {:.1} nats", found.gain),
        format!("fits                  {}{took}; {running}", found.fits),
    ];
    if let Some(warning) = &found.warning {
        lines.push(format!("Warning: {warning}"));
    }
    if !found.history.is_empty() {
        lines.push(over_time(&found.history));
    }
    lines.join("\n")
}

/// Clusters over time: the first fit, the last, and some between.
fn over_time(history: &[Fit]) -> String {
    let mut table = table(["at round", "clusters"]);
    let last = history.len() - 1;
    let lines = last.clamp(1, FITS - 1);
    let mut before = None;
    for line in 0..=lines {
        let at = line * last / lines;
        if before.replace(at) == Some(at) {
            continue;
        }
        let fit = &history[at];
        table.add_row([thousands(fit.rounds as f64), fit.clusters.to_string()]);
    }
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

fn user(user: &User, arm: &Arm) -> String {
    let User { policy, .. } = user;
    // A policy that began with an experiment has not learned the rewards before it.
    let learned = match user.count {
        0 => format!("no reward learned by {policy} yet, served like a newcomer"),
        n => count(n, "reward"),
    };
    let served = match user.fits || user.count == 0 {
        true => String::new(),
        false => format!(
            ", served from cluster {} of {}",
            user.cluster,
            count(user.cluster_users, "user")
        ),
    };
    let mut head = format!("{}: {learned}{served}", user.user);
    if let Some(sentence) = in_experiment(user, arm) {
        head = format!("{head}\n{sentence}");
    }
    let Some(placement) = &user.placement else {
        let why = match (user.fits, user.has_clusters) {
            (true, true) => "The first fit is still to come.".to_owned(),
            (true, false) => format!("The policy {policy} makes no clusters."),
            (false, _) => format!("The policy {policy} knows no probabilities."),
        };
        return format!("{head}\n{why}");
    };
    let mut table = table(["cluster", "before", "evidence", "probability"]);
    for place in &placement.clusters {
        table.add_row([
            place.cluster.to_string(),
            percent(place.share),
            likelier(place.evidence),
            percent(place.probability),
        ]);
    }
    let placed: f64 = placement.clusters.iter().map(|place| place.share).sum();
    table.add_row([
        "none of them".to_owned(),
        percent((1.0 - placed).max(0.0)),
        String::new(),
        percent(placement.none),
    ]);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let used = match placement.used {
        true => "The clusters have at least half of the weight in recommendations.",
        false => "The clusters have less than half of the weight in recommendations.",
    };
    format!("{head}\n{table}\n{used}")
}

/// The arm of a user, and whose clusters these are; `None` if the policy in force serves the user outside any experiment.
fn in_experiment(user: &User, arm: &Arm) -> Option<String> {
    let served = match (&arm.experiment, &arm.arm) {
        (Some(experiment), Some(arm)) => {
            format!("In the experiment {experiment}: in the arm {arm}")
        }
        _ if user.in_force => return None,
        _ => "In an experiment".to_owned(),
    };
    let others = match !user.in_force && user.has_clusters {
        true => "; its clusters are not those of the policy in force",
        false => "",
    };
    Some(format!("{served}, served with {}{others}.", user.policy))
}

/// The evidence for a cluster as a factor: the likelihood in this cluster over the likelihood in none.
fn likelier(evidence: f64) -> String {
    let times = match evidence.abs() {
        small if small < 0.005 => return "nothing".into(),
        large if large > 10.0 => format!("10^{:.0}", large / std::f64::consts::LN_10),
        some => format!("{:.2}", some.exp()),
    };
    match evidence < 0.0 {
        true => format!("{times} times less likely"),
        false => format!("{times} times likelier"),
    }
}

fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY);
    table.set_header(header);
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_survive_the_path() {
        assert_eq!(escaped("u-1_x.~"), "u-1_x.~");
        assert_eq!(escaped("a/ü?"), "a%2F%C3%BC%3F");
    }

    #[test]
    fn a_user_is_told_in_words() {
        let place = |cluster, share, evidence, probability| Place {
            cluster,
            share,
            evidence,
            probability,
        };
        let mut card = User {
            user: "u1".into(),
            count: 30,
            cluster: 2,
            cluster_users: 40,
            placement: Some(Placement {
                clusters: vec![place(2, 0.3, 2.5, 0.93), place(1, 0.6, -50.0, 1e-9)],
                none: 0.07,
                used: true,
            }),
            policy: "sclub-soft".into(),
            in_force: true,
            fits: true,
            has_clusters: true,
        };
        let text = user(&card, &Arm::default());
        assert!(!text.contains("experiment"), "{text}");
        for part in [
            "u1: 30 rewards",
            "12.18 times likelier",
            "93.0%",
            "<0.1%",
            "none of them",
            "7.0%",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        // In the arm of an experiment whose policy has not learned a reward of the user.
        card.placement = None;
        (card.count, card.cluster_users) = (0, 0);
        (card.in_force, card.fits) = (false, false);
        card.policy = "linucb-one".into();
        let arm = Arm {
            experiment: Some("which".into()),
            arm: Some("control".into()),
        };
        let said = "u1: no reward learned by linucb-one yet, served like a newcomer\n\
             In the experiment which: in the arm control, served with linucb-one; \
             its clusters are not those of the policy in force.\n\
             The policy linucb-one knows no probabilities.";
        assert_eq!(user(&card, &arm), said);
        let unnamed = user(&card, &Arm::default());
        assert!(unnamed.contains("In an experiment, served with linucb-one;"));
    }

    #[test]
    fn a_long_history_is_told_briefly_with_both_ends() {
        let history: Vec<Fit> = (1..=100)
            .map(|n| Fit {
                rounds: n * 10,
                clusters: n,
            })
            .collect();
        let text = over_time(&history);
        assert!(
            text.contains(" 10 ") && text.contains(" 100 ") && text.contains("1,000"),
            "{text}"
        );
        // A rule below each line, and three around the head.
        assert!(text.lines().count() <= 2 * FITS + 3);
        assert_eq!(over_time(&history[..1]).matches(" 10 ").count(), 1);
    }
}
