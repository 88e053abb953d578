//! `sclub experiment`: start an experiment on a running server, show its results, end it.

use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{CellAlignment, Table};
use sclub_lab::summary::thousands;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::files::print_line;
use crate::remote::{Remote, TrustArgs, block_on, call};

/// The path of the experiments.
const PATH: &str = "/v1/experiments";

/// The commands of `sclub experiment`.
#[derive(Debug, clap::Subcommand)]
pub enum ExperimentCommand {
    /// Start an experiment: each arm serves its share of the users, and every arm learns from every reward
    ///
    /// The first arm is the control. An arm with the policy and the constants in force is the running policy; others begin
    /// without knowledge. One experiment can be under way at a time.
    #[command(
        after_help = "Example:\n  sclub experiment start --name x --arm control=linucb-one:20% --arm test=sclub-soft:80% --shadow y=sclub"
    )]
    Start(StartArgs),
    /// Show the experiment under way and those that have ended, with intervals that hold at any time
    Show(ShowArgs),
    /// End the experiment under way: the policy of the winner is in force from then on
    End(EndArgs),
}

/// The server that is asked.
#[derive(Debug, clap::Args)]
struct ServerArgs {
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

/// The flags of `sclub experiment start`.
#[derive(Debug, clap::Args)]
pub struct StartArgs {
    /// Name of the experiment: letters, digits, '-', '_' and '.'
    #[arg(long)]
    name: String,

    /// An arm and its share of the users, the control first. Constants follow the policy:
    /// test=sclub-soft,explore=bonus:80%
    #[arg(
        long,
        value_name = "NAME=POLICY:SHARE%",
        required = true,
        value_parser = Arm::shown
    )]
    arm: Vec<Arm>,

    /// An arm that learns and is never shown
    #[arg(long, value_name = "NAME=POLICY", value_parser = Arm::shadow)]
    shadow: Vec<Arm>,

    #[command(flatten)]
    server: ServerArgs,
}

/// The flags of `sclub experiment show`.
#[derive(Debug, clap::Args)]
pub struct ShowArgs {
    #[command(flatten)]
    server: ServerArgs,
}

/// The flags of `sclub experiment end`.
#[derive(Debug, clap::Args)]
pub struct EndArgs {
    /// Arm whose policy is in force from then on
    #[arg(long, value_name = "ARM")]
    winner: String,

    /// Name of the experiment [default: the one under way]
    #[arg(long)]
    name: Option<String>,

    #[command(flatten)]
    server: ServerArgs,
}

/// An arm as it is written in a flag.
#[derive(Debug, Clone, PartialEq)]
struct Arm {
    name: String,
    policy: String,
    preset: Option<String>,
    constants: Vec<(String, String)>,
    share: Option<f64>,
}

impl Arm {
    /// Parses `NAME=POLICY[,CONSTANT=VALUE]:SHARE%`.
    fn shown(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "'{text}' does not end with a share in percent; write NAME=POLICY:SHARE%, such as test=sclub-soft:80%"
            )
        };
        // The name of a policy may have a colon.
        let (arm, share) = text.rsplit_once(':').ok_or_else(wrong)?;
        let share = share.strip_suffix('%').ok_or_else(wrong)?;
        let number = f64::from_str(share).ok();
        let number = number.filter(|number| (0.01..=100.0).contains(number));
        let number = number.ok_or_else(|| {
            format!("the share of '{arm}' is '{share}%'; it must be a number from 0.01 to 100")
        })?;
        Ok(Self {
            share: Some(number),
            ..Self::shadow(arm)?
        })
    }

    /// Parses `NAME=POLICY[,CONSTANT=VALUE]`.
    fn shadow(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is not an arm; write NAME=POLICY, such as y=sclub");
        let (name, rest) = text.split_once('=').ok_or_else(wrong)?;
        let mut parts = rest.split(',');
        let policy = parts.next().filter(|policy| !policy.is_empty());
        let mut arm = Self {
            name: name.to_owned(),
            policy: policy.ok_or_else(wrong)?.to_owned(),
            preset: None,
            constants: Vec::new(),
            share: None,
        };
        for part in parts {
            let pair = part.split_once('=');
            let (constant, value) = pair
                .ok_or_else(|| format!("'{part}' is not CONSTANT=VALUE, such as explore=bonus"))?;
            match constant {
                "preset" => arm.preset = Some(value.to_owned()),
                _ => arm.constants.push((constant.to_owned(), value.to_owned())),
            }
        }
        Ok(arm)
    }

    fn body(&self) -> Value {
        let constants = self.constants.iter().cloned();
        let constants: Map<String, Value> = constants
            .map(|(name, value)| (name, value.into()))
            .collect();
        let mut body = json!({"name": self.name, "policy": self.policy, "constants": constants});
        if let Some(preset) = &self.preset {
            body["preset"] = json!(preset);
        }
        if let Some(share) = self.share {
            body["share"] = json!(share);
        }
        body
    }
}

#[derive(Debug, Deserialize)]
struct Experiments {
    running: Option<Experiment>,
    past: Vec<Experiment>,
}

#[derive(Debug, Deserialize)]
struct Experiment {
    name: String,
    winner: Option<String>,
    arms: Vec<ArmResult>,
    summary: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct ArmResult {
    name: String,
    policy: String,
    share: f64,
    shadow: bool,
    users: u64,
    items: u64,
    rate: Option<f64>,
    rate_interval: Option<Interval>,
    difference: Option<Interval>,
}

#[derive(Debug, Deserialize)]
struct Interval {
    value: f64,
    low: f64,
    high: f64,
}

/// Runs a command.
pub fn experiment(command: &ExperimentCommand) -> Result<ExitCode> {
    match command {
        ExperimentCommand::Start(args) => start(args),
        ExperimentCommand::Show(args) => show(args),
        ExperimentCommand::End(args) => end(args),
    }
}

fn start(args: &StartArgs) -> Result<ExitCode> {
    let bodies = |arms: &[Arm]| arms.iter().map(Arm::body).collect::<Vec<_>>();
    let body = json!({
        "name": args.name,
        "arms": bodies(&args.arm),
        "shadows": bodies(&args.shadow),
    });
    let answer = ask(&args.server, "POST", PATH, &body)?;
    print_line(&match args.server.json {
        true => answer.to_string(),
        false => format!(
            "experiment {} is running; see its results with `sclub experiment show`",
            args.name
        ),
    });
    Ok(ExitCode::SUCCESS)
}

fn show(args: &ShowArgs) -> Result<ExitCode> {
    let answer = ask(&args.server, "GET", PATH, &Value::Null)?;
    if args.server.json {
        print_line(&answer.to_string());
        return Ok(ExitCode::SUCCESS);
    }
    let Experiments { running, past } = read(answer)?;
    let mut parts: Vec<String> = running.iter().map(described).collect();
    if parts.is_empty() {
        parts.push("No experiment is running.".to_owned());
    }
    parts.extend(past.iter().map(described));
    print_line(&parts.join("\n\n"));
    Ok(ExitCode::SUCCESS)
}

fn end(args: &EndArgs) -> Result<ExitCode> {
    let name = match &args.name {
        Some(name) => name.clone(),
        None => {
            let answer = ask(&args.server, "GET", PATH, &Value::Null)?;
            match read::<Experiments>(answer)?.running {
                Some(running) => running.name,
                None => bail!(
                    "no experiment is running on {}; `sclub experiment show` has those that have ended",
                    args.server.url
                ),
            }
        }
    };
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || !name.chars().all(is_allowed) {
        bail!(
            "no experiment has the name '{name}': names have letters, digits, '-', '_' and '.'; without --name \
             the one under way is ended"
        );
    }
    let body = json!({"winner": args.winner});
    let answer = ask(&args.server, "POST", &format!("{PATH}/{name}/end"), &body)?;
    if args.server.json {
        print_line(&answer.to_string());
        return Ok(ExitCode::SUCCESS);
    }
    print_line(&described(&read(answer)?));
    Ok(ExitCode::SUCCESS)
}

fn ask(server: &ServerArgs, method: &str, path: &str, body: &Value) -> Result<Value> {
    let remote = Remote::new(&server.url, &server.trust)?;
    let body = match body {
        Value::Null => Vec::new(),
        body => body.to_string().into_bytes(),
    };
    block_on(async { call(&mut remote.open().await?, method, path, &body).await })
}

fn read<T: for<'a> Deserialize<'a>>(answer: Value) -> Result<T> {
    serde_json::from_value(answer)
        .context("the answer is not that of an sclub server of this version")
}

fn described(experiment: &Experiment) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY).set_header([
        "arm",
        "policy",
        "share",
        "users",
        "items",
        "reward/item",
        "95% interval",
        "against control",
    ]);
    for column in 2..6 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for arm in &experiment.arms {
        table.add_row([
            arm.name.clone(),
            arm.policy.clone(),
            match arm.shadow {
                true => "shadow".to_owned(),
                false => format!("{}%", arm.share),
            },
            thousands(arm.users as f64),
            thousands(arm.items as f64),
            arm.rate
                .map_or_else(|| "–".to_owned(), |rate| format!("{rate:.4}")),
            arm.rate_interval.as_ref().map_or_else(
                || "–".to_owned(),
                |of| format!("{:.4} to {:.4}", of.low, of.high),
            ),
            arm.difference.as_ref().map_or_else(
                || "–".to_owned(),
                |of| format!("{:+.4}, {:+.4} to {:+.4}", of.value, of.low, of.high),
            ),
        ]);
    }
    let head = match &experiment.winner {
        Some(winner) => format!(
            "experiment {}, ended; {winner} is the winner",
            experiment.name
        ),
        None => format!("experiment {}, running", experiment.name),
    };
    format!("{head}\n{table}\n{}", experiment.summary.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arm_is_a_name_a_policy_constants_and_a_share() {
        let arm = Arm::shown("test=ts:club,preset=released,explore=bonus:12.5%").unwrap();
        assert_eq!(
            arm.body(),
            json!({"name": "test", "policy": "ts:club", "preset": "released",
                   "constants": {"explore": "bonus"}, "share": 12.5})
        );
        let shadow = Arm::shadow("y=ts:club").unwrap();
        assert_eq!(
            shadow.body(),
            json!({"name": "y", "policy": "ts:club", "constants": {}})
        );
        for wrong in [
            "club",
            "a=club",
            "a=club:20",
            "a=:20%",
            "a=club:x%",
            "a=club:nan%",
            "a=club:-5%",
            "a=club:101%",
            "a=club,b:20%",
        ] {
            assert!(Arm::shown(wrong).is_err(), "{wrong}");
        }
    }
}
