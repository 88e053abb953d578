//! `sclub simulate --load`: measures how fast a server is, with as little work as possible on this side
//! of the connection.

mod measure;
mod report;
mod traffic;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use sclub_lab::summary::thousands;
use serde_json::{Value, json};

use self::report::Report;
use self::traffic::{CATALOGUE, Draws, LISTS, lists, put_items, teach};
use super::wire::state;
use super::{Load, SimulateArgs, connections};
use crate::files::{print_line, save};
use crate::remote::{Remote, block_on};

/// Default number of features with `--load catalogue`.
const CATALOGUE_DIM: usize = 32;

/// The settings that all senders share.
struct Plan {
    remote: Remote,
    users: usize,
    dim: usize,
    candidates: usize,
    connections: usize,
    threads: usize,
    duration: Duration,
    repeat: usize,
    /// `"candidates":[…]}` for a user.
    lists: Vec<String>,
    /// `"k":…}` for a user whose candidates are all there are.
    whole: String,
    disk: Option<PathBuf>,
    quiet: bool,
}

/// Measures, prints the result and writes it.
pub fn load(args: &SimulateArgs, what: Load) -> Result<ExitCode> {
    let mut plan = plan(args, what)?;
    let mut report = Report::default();
    if what == Load::Catalogue {
        plan.connections = 1;
        plan.threads = 1;
        let items = usize::try_from(args.catalogue).with_context(|| {
            let given = args.catalogue;
            format!("catalogue is {given}; it must be at most {}", usize::MAX)
        })?;
        plan.report_progress(&format!("putting {} items", thousands(items as f64)));
        block_on(async {
            let mut connection = plan.remote.open().await?;
            let liked = put_items(&mut connection, items, plan.dim, false).await?;
            teach(&plan, &mut connection, &liked).await
        })?;
        plan.measure_in_turns(&["catalogue"], &mut report)?;
    } else {
        let names: &[&str] = match what {
            Load::All => &["healthz", "recommend", "feedback"],
            Load::Healthz => &["healthz"],
            Load::Recommend => &["recommend"],
            Load::Filter => &["healthz", "filter"],
            _ => &["feedback"],
        };
        if what != Load::Healthz {
            block_on(async {
                let mut connection = plan.remote.open().await?;
                put_items(&mut connection, CATALOGUE, plan.dim, what == Load::Filter).await
            })
            .map(drop)?;
        }
        plan.measure_in_turns(names, &mut report)?;
        if what == Load::All {
            plan.measure_half(&mut report)?;
        }
    }
    print_line(&report.table());
    if let Some(path) = &args.json {
        let document = json!({ "config": plan.config(), "results": report.to_json() });
        let text = serde_json::to_string_pretty(&document).context("cannot write JSON")?;
        save(path, text.as_bytes())?;
        print_line(&format!("Written: {}", path.display()));
    }
    match report.first_error {
        Some(error) => Err(error.context("some requests failed")),
        None => Ok(ExitCode::SUCCESS),
    }
}

fn plan(args: &SimulateArgs, what: Load) -> Result<Plan> {
    let within = |name: &str, value: u64, max: u64| -> Result<usize> {
        if (1..=max).contains(&value) {
            Ok(value as usize)
        } else {
            bail!("{name} is {value}; it must be between 1 and {max}")
        }
    };
    if !(args.seconds > 0.0 && args.seconds <= 86_400.0) {
        bail!(
            "seconds is {}; it must be above 0 and at most 86400",
            args.seconds
        );
    }
    let remote = Remote::new(&args.url, &args.trust)?;
    let is_given = args.given.iter().any(|given| given == "dim");
    let dim = within("dim", args.recipe.dim, 1_000_000)?;
    let known = block_on(async { Ok(state(&mut remote.open().await?).await?.dim) })?;
    let dim = match known {
        Some(known) if is_given && known != dim => {
            bail!("the server's items have {known} features: use --dim {known}")
        }
        Some(known) => known,
        None if what == Load::Catalogue && !is_given => CATALOGUE_DIM,
        None => dim,
    };
    let candidates = within("items", args.recipe.items, CATALOGUE as u64)?;
    let connections = connections(args, 64)?;
    Ok(Plan {
        remote,
        users: within("users", args.recipe.users, 1 << 40)?,
        dim,
        candidates,
        connections,
        threads: within("threads", args.threads, 256)?.min(connections),
        duration: Duration::from_secs_f64(args.seconds),
        repeat: within("repeat", args.repeat, 1000)?,
        lists: lists(candidates, what == Load::Filter),
        whole: format!("\"k\":{}}}", args.k),
        disk: args.disk.clone(),
        quiet: args.quiet,
    })
}

impl Plan {
    fn report_progress(&self, line: &str) {
        if !self.quiet {
            eprintln!("{line}");
        }
    }

    fn config(&self) -> Value {
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "url": self.remote.url().to_string(),
            "users": self.users,
            "dim": self.dim,
            "items": self.candidates,
            "connections": self.connections,
            "threads": self.threads,
            "seconds": self.duration.as_secs_f64(),
            "repeat": self.repeat,
        })
    }

    fn write_recommend(&self, body: &mut Vec<u8>, draws: &mut Draws, is_whole: bool) {
        let user = draws.below(self.users);
        let rest = if is_whole {
            &self.whole
        } else {
            &self.lists[user % LISTS]
        };
        body.extend_from_slice(b"{\"user\":\"load-u");
        // Writing to memory does not fail.
        let _ = write!(body, "{user}");
        body.extend_from_slice(b"\",");
        body.extend_from_slice(rest.as_bytes());
    }
}
