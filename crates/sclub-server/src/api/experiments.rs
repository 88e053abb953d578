//! The calls of experiments.

use std::collections::BTreeMap;

use axum::extract::{Request, State};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Answer, Id, Shared, body, json, parse};
use crate::edge::ApiError;
use crate::edge::error::ErrorBody;
use crate::engine::{ArmRequest, Engine, Refusal};
use crate::experiment::plan::percent;
use crate::experiment::{ArmPlan, CONFIDENCE, ExperimentReport, Interval, MIN_USERS, WHOLE};
use crate::settings::{Literal, Settings};

/// An experiment to start.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct ExperimentRequest {
    /// Its name: letters, digits, `-`, `_` and `.`. A name is used once.
    #[schema(example = "soft-against-one")]
    pub name: String,
    /// The arms that are shown. The first is the control. Their shares sum to 100, and no two arms have the same name.
    #[schema(min_items = 2)]
    pub arms: Vec<ArmBody>,
    /// Arms that learn and are never shown.
    #[serde(default)]
    pub shadows: Vec<ShadowBody>,
}

/// An arm of an experiment.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct ArmBody {
    /// Its name.
    #[schema(example = "control")]
    pub name: String,
    /// Its policy, as for `sclub serve --policy`.
    #[schema(example = "linucb-one")]
    pub policy: String,
    /// The preset of the policy's constants.
    pub preset: Option<String>,
    /// Constants that differ from the preset.
    #[serde(default)]
    pub constants: BTreeMap<String, Literal>,
    /// Its share of the users, in percent with up to two decimals.
    #[schema(example = 20.0, minimum = 0.01, maximum = 100)]
    pub share: f64,
}

/// An arm that learns and is never shown.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct ShadowBody {
    /// Its name.
    pub name: String,
    /// Its policy, as for `sclub serve --policy`.
    pub policy: String,
    /// The preset of the policy's constants.
    pub preset: Option<String>,
    /// Constants that differ from the preset.
    #[serde(default)]
    pub constants: BTreeMap<String, Literal>,
}

/// The end of an experiment.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct EndRequest {
    /// The arm whose policy is in force from now on.
    #[schema(example = "test")]
    pub winner: String,
}

/// The experiments of the server.
#[derive(Debug, Serialize, ToSchema)]
pub struct ExperimentsResponse {
    /// The experiment under way, if there is one.
    pub running: Option<ExperimentCard>,
    /// Those that have ended, the latest first.
    pub past: Vec<ExperimentCard>,
}

/// The results of an experiment.
#[derive(Debug, Serialize, ToSchema)]
pub struct ExperimentCard {
    /// Its name.
    pub name: String,
    /// The time when it started, in milliseconds since 1970.
    pub started_at: u64,
    /// The time when it ended, in milliseconds since 1970.
    pub ended_at: Option<u64>,
    /// The arm whose policy is in force since.
    pub winner: Option<String>,
    /// The number that users are hashed with, in hexadecimal.
    pub salt: String,
    /// The confidence of the intervals. It holds for all times at which one looks together, and for all differences
    /// together.
    pub confidence: f64,
    /// The number of users with a reward that an arm needs before it has intervals.
    pub min_users: u64,
    /// The arms that are shown, the control first, then the shadow arms.
    pub arms: Vec<ArmCard>,
    /// The results in plain sentences, one for each comparison with the control.
    pub summary: Vec<String>,
}

/// The results of an arm.
#[derive(Debug, Serialize, ToSchema)]
pub struct ArmCard {
    /// Its name.
    pub name: String,
    /// Its policy.
    pub policy: String,
    /// The preset of the policy's constants.
    pub preset: String,
    /// The constants that differ from the preset.
    pub constants: BTreeMap<String, Literal>,
    /// Its share of the users, in percent.
    pub share: f64,
    /// True if it learns and is never shown.
    pub shadow: bool,
    /// The number of its users with a reward.
    pub users: u64,
    /// The number of items that it has shown and that have a reward, sent or assumed.
    pub items: u64,
    /// The sum of their rewards.
    pub reward_sum: f64,
    /// The reward per item.
    pub rate: Option<f64>,
    /// The confidence sequence of the reward per item.
    pub rate_interval: Option<IntervalCard>,
    /// The reward per item less that of the control, with its confidence sequence.
    pub difference: Option<IntervalCard>,
}

/// An estimate with its confidence sequence.
#[derive(Debug, Serialize, ToSchema)]
pub struct IntervalCard {
    /// The estimate.
    pub value: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl From<Interval> for IntervalCard {
    fn from(Interval { value, low, high }: Interval) -> Self {
        Self { value, low, high }
    }
}

/// Starts an experiment: each arm serves its share of the users, by a hash of the user's id. Every arm learns from every
/// reward. An arm whose policy and constants are those in force is the running policy; other arms begin without knowledge.
#[utoipa::path(post, path = "/v1/experiments", operation_id = "start_experiment", tag = "admin", request_body(content = ExperimentRequest, example = json!({"name": "first", "arms": [{"name": "control", "policy": "linucb-one", "share": 50}, {"name": "test", "policy": "sclub-soft", "share": 50}]})), responses(
    (status = 200, body = ExperimentCard, description = "The experiment is under way"),
    (status = 409, body = ErrorBody, description = "`experiment_runs`: another one is under way"),
    (status = 422, body = ErrorBody, description = "`invalid`: an arm is invalid, the shares do not sum to 100, or the name was used before"),
    (status = 501, body = ErrorBody, description = "`unsupported`: the server is a node of a cluster, or its folder was made by an earlier version")))]
pub(super) async fn start(State(app): State<Shared>, request: Request) -> Result<Answer, ApiError> {
    let engine = app.ready()?;
    let bytes = body(&app, request).await?;
    let ExperimentRequest {
        name,
        arms,
        shadows,
    } = parse(&bytes)?;
    let mut all = Vec::with_capacity(arms.len() + shadows.len());
    for (index, arm) in arms.into_iter().enumerate() {
        let share = share(arm.share)
            .ok_or_else(|| {
                let message = format!(
                    "the share is {}; it must be a percentage from 0.01 to 100 with at most two decimals",
                    arm.share
                );
                Refusal::invalid("share", message).within("arms", index)
            })
            .map_err(ApiError::from)?;
        all.push(arm_request(
            arm.name,
            arm.policy,
            arm.preset,
            arm.constants,
            share,
        ));
    }
    let shadows = shadows.into_iter();
    all.extend(shadows.map(|arm| arm_request(arm.name, arm.policy, arm.preset, arm.constants, 0)));
    engine.start_experiment(&name, all).await?;
    Ok(json(&card_named(engine, &name)))
}

/// Returns the experiment under way and those that have ended, with their results.
#[utoipa::path(get, path = "/v1/experiments", operation_id = "experiments", tag = "look", responses(
    (status = 200, body = ExperimentsResponse, description = "The experiments"),
    (status = 501, body = ErrorBody, description = "`unsupported`: the server is a node of a cluster")))]
pub(super) async fn list(State(app): State<Shared>) -> Result<Answer, ApiError> {
    let engine = app.ready()?;
    let (running, past) = engine.experiments();
    Ok(json(&ExperimentsResponse {
        running: running.map(|report| card(engine, &report)),
        past: past.iter().map(|report| card(engine, report)).collect(),
    }))
}

/// Ends the experiment under way. The policy of the winner is in force from now on, and the policies of the other arms are
/// dropped. Rewards that come later for items that the experiment has shown are learned, and not counted in its results.
#[utoipa::path(post, path = "/v1/experiments/{name}/end", operation_id = "end_experiment", tag = "admin", params(("name" = String, Path, description = "The name of the experiment")), request_body(content = EndRequest, example = json!({"winner": "test"})), responses(
    (status = 200, body = ExperimentCard, description = "The experiment has ended"),
    (status = 404, body = ErrorBody, description = "`unknown_experiment`: no experiment of this name is under way"),
    (status = 422, body = ErrorBody, description = "`invalid`: the experiment has no such arm"),
    (status = 501, body = ErrorBody, description = "`unsupported`: the server is a node of a cluster")))]
pub(super) async fn end(
    State(app): State<Shared>,
    Id(name): Id,
    request: Request,
) -> Result<Answer, ApiError> {
    let engine = app.ready()?;
    let bytes = body(&app, request).await?;
    let EndRequest { winner } = parse(&bytes)?;
    engine.end_experiment(&name, &winner).await?;
    Ok(json(&card_named(engine, &name)))
}

/// A percentage in hundredths of a percent.
fn share(given: f64) -> Option<u32> {
    let hundredths = (given * 100.0).round();
    let is_exact = (given * 100.0 - hundredths).abs() < 1e-6;
    let is_in = (1.0..=f64::from(WHOLE)).contains(&hundredths);
    (is_exact && is_in).then_some(hundredths as u32)
}

fn arm_request(
    name: String,
    policy: String,
    preset: Option<String>,
    constants: BTreeMap<String, Literal>,
    share: u32,
) -> ArmRequest {
    ArmRequest {
        name,
        settings: Settings {
            policy: Some(policy),
            preset,
            constants,
            ..Settings::default()
        },
        share,
    }
}

fn card_named(engine: &Engine, name: &str) -> Option<ExperimentCard> {
    let (running, past) = engine.experiments();
    let mut all = running.into_iter().chain(past);
    let found = all.find(|report| report.plan.name == name)?;
    Some(card(engine, &found))
}

fn card(engine: &Engine, report: &ExperimentReport) -> ExperimentCard {
    let plan = &report.plan;
    let arms = plan.arms.iter().zip(&report.arms);
    let arms = arms.map(|(plan, arm)| {
        let (policy, preset, constants) = policy_of(engine, plan);
        ArmCard {
            name: plan.name.clone(),
            policy,
            preset,
            constants,
            share: percent(u64::from(plan.share)),
            shadow: plan.is_shadow(),
            users: arm.sums.users,
            items: arm.sums.items,
            reward_sum: arm.sums.rewards,
            rate: arm.sums.rate(),
            rate_interval: arm.rate.map(Into::into),
            difference: arm.difference.map(Into::into),
        }
    });
    ExperimentCard {
        name: plan.name.clone(),
        started_at: plan.started_at,
        ended_at: report.end.as_ref().map(|(at, _)| *at),
        winner: report.end.as_ref().map(|(_, winner)| winner.clone()),
        salt: format!("{:016x}", plan.salt),
        confidence: CONFIDENCE,
        min_users: MIN_USERS,
        arms: arms.collect(),
        summary: report.sentences(),
    }
}

/// The name, preset and constants of the policy of an arm.
fn policy_of(engine: &Engine, arm: &ArmPlan) -> (String, String, BTreeMap<String, Literal>) {
    let identity = engine.state().identity().with_written_policy(&arm.policy);
    match identity {
        Ok(arm) => (
            arm.policy.name.to_owned(),
            arm.preset().to_string(),
            arm.overrides(),
        ),
        // An ended experiment may have had a policy that this program no longer has.
        Err(_) => ("unknown".to_owned(), String::new(), BTreeMap::new()),
    }
}
