//! Fits over all partitions, computed by the node that has the fitter's lease.
//!
//! The node asks every partition for a summary. If a fit is due, it asks them the questions of the fit, computes it,
//! and sends each partition its own, which the partition's owner logs. Answers are sums of a state at a batch of the
//! log, never differences, so a repeated or late answer does no harm. A partition that does not answer is left out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use sclub::{Gathering, Progress, Setup, Users};

use super::TTL;
use super::bus::{Bucket, BusError};
use super::call::{GroupAnswer, GroupCall, decode};
use super::members::Members;
use super::node::{Group, Node};
use crate::engine::Threads;
use crate::traces;

/// The name of the fitter's lease.
const LEASE: &str = "fitter";
/// The milliseconds between two looks, if no fit is due.
const TICK: u64 = 100;
/// The milliseconds between two renewals of the lease.
const RENEW: u64 = TTL / 3;
/// The milliseconds for which a question waits for an answer.
const ANSWER_MS: u64 = 2_000;

/// The fits of a cluster, as the metrics show them.
#[derive(Debug, Default)]
pub struct FitCounts {
    /// The number of fits that this node computed.
    pub fits: AtomicU64,
    /// The number of partitions that were left out of fits.
    pub left_out: AtomicU64,
    /// The time of the last fit by the monotonic clock, in milliseconds; 0 before the first.
    pub at: AtomicU64,
    /// The time that the last one took, in microseconds.
    pub took: AtomicU64,
}

/// Computes fits whenever this node has the lease.
pub(super) async fn fit_forever(node: Arc<Node>) {
    if node.identity.policy.gather.is_none() {
        return;
    }
    let mut held: Option<(u64, u64)> = None;
    while !node.is_closed() {
        node.env.clock.sleep(TICK).await;
        held = renew(&node, held).await;
        if held.is_none() {
            continue;
        }
        match fit_if_due(&node, &mut held).await {
            Ok(_) => {}
            Err(error) => {
                node.meters.fit_failures.increment(1);
                tracing::error!(error, "a fit over all partitions failed");
            }
        }
    }
    if let Some((revision, _)) = held {
        let _ = node.bus.delete(Bucket::Leases, LEASE, Some(revision)).await;
    }
}

/// Acquires or renews the lease: its revision, and the time when it was sent.
async fn renew(node: &Node, held: Option<(u64, u64)>) -> Option<(u64, u64)> {
    let now = node.env.clock.monotonic();
    let Some((revision, sent)) = held else {
        let members = Members::read(&*node.bus);
        let ranking = members.ranking(LEASE);
        let is_first = ranking.first().is_some_and(|first| first.name == node.name);
        let leases = node.bus.entries(Bucket::Leases);
        if !is_first || leases.iter().any(|(key, _)| key == LEASE) {
            return None;
        }
        let created = node.bus.create(Bucket::Leases, LEASE, node.lease()).await;
        return created.ok().map(|revision| (revision, now));
    };
    if now - sent < RENEW {
        return held;
    }
    let renewed = node
        .bus
        .update(Bucket::Leases, LEASE, node.lease(), revision);
    match renewed.await {
        Ok(revision) => Some((revision, now)),
        Err(BusError::Conflict) => None,
        // Two fitters at once are harmless, so an expired lease need not end a fit.
        Err(_) => (now - sent < TTL).then_some((revision, sent)),
    }
}

/// Asks a partition. Returns its answer with the last batch that it is from.
async fn ask(node: &Arc<Node>, group: &Arc<Group>, call: GroupCall) -> Option<(Vec<u8>, u64)> {
    match node.ask_owner(group, call, ANSWER_MS).await? {
        GroupAnswer::Result(result, position) => Some((result, position)),
        GroupAnswer::Changed(..) => Some((Vec::new(), 0)),
        _ => None,
    }
}

/// Asks all partitions at the same time.
async fn ask_all(node: &Arc<Node>, call: &GroupCall) -> Vec<Option<(Vec<u8>, u64)>> {
    let asked = node
        .partitions()
        .iter()
        .map(|group| ask(node, group, call.clone()));
    futures_util::future::join_all(asked).await
}

/// The states of the partitions in short, and the number of features of an item if one of them knows it.
fn progress_of(answers: &[Option<(Vec<u8>, u64)>]) -> (Vec<Option<Progress>>, Option<usize>) {
    let mut dim = None;
    let progress = answers.iter().map(|answer| {
        let (bytes, _) = answer.as_ref()?;
        let (progress, of): (Vec<u8>, u64) = decode(bytes)?;
        dim = Some(of as usize);
        Progress::from_bytes(&progress).ok()
    });
    (progress.collect(), dim)
}

/// Computes a fit, if one is due. Returns true if there was one.
async fn fit_if_due(node: &Arc<Node>, held: &mut Option<(u64, u64)>) -> Result<bool, String> {
    let answers = ask_all(node, &GroupCall::Progress).await;
    let (before, dim) = progress_of(&answers);
    let Some(mut gathering) = begin(node, &before, dim)? else {
        return Ok(false);
    };
    let begun = Instant::now();
    let mut span = traces::span("fit");
    span.number("sclub.rounds", Progress::total(&before).rounds);
    let mut positions: Vec<Option<u64>> = Vec::new();
    let mut left_out = 0;
    while let Some(question) = gathering.question() {
        let answers = ask_all(node, &GroupCall::Question(question)).await;
        if positions.is_empty() {
            positions = answers
                .iter()
                .map(|a| a.as_ref().map(|(_, at)| *at))
                .collect();
            left_out = answers.iter().filter(|answer| answer.is_none()).count();
        }
        let answers: Vec<Option<Vec<u8>>> = answers
            .into_iter()
            .map(|answer| answer.map(|(bytes, _)| bytes))
            .collect();
        gathering = take(node, gathering, answers).await?;
        *held = renew(node, *held).await;
        if held.is_none() {
            tracing::warn!("a fit is dropped: the lease of the fitter is lost");
            return Ok(false);
        }
    }
    // A user who was forgotten meanwhile is in this fit. Another one is due at once.
    let (after, _) = progress_of(&ask_all(node, &GroupCall::Progress).await);
    let forgotten = |all: &[Option<Progress>]| Progress::total(all).forgotten;
    let is_known = before
        .iter()
        .map(Option::is_some)
        .eq(after.iter().map(Option::is_some));
    if is_known && forgotten(&before) != forgotten(&after) {
        tracing::info!("a fit is dropped: a user in it was forgotten meanwhile");
        return Ok(false);
    }
    let sent = node.partitions().iter().map(|group| {
        let call = GroupCall::Fit {
            fit: gathering.fit(group.index),
            // A partition that was left out is not in the fit.
            position: positions[group.index].unwrap_or(u64::MAX),
        };
        ask(node, group, call)
    });
    let taken = futures_util::future::join_all(sent).await;
    let missed = taken.iter().filter(|taken| taken.is_none()).count();
    let took = begun.elapsed();
    let counts = &node.fits;
    counts.fits.fetch_add(1, Ordering::Relaxed);
    counts
        .left_out
        .fetch_add(left_out as u64, Ordering::Relaxed);
    counts
        .at
        .store(node.env.clock.monotonic().max(1), Ordering::Relaxed);
    counts
        .took
        .store(took.as_micros() as u64, Ordering::Relaxed);
    if left_out > 0 || missed > 0 {
        tracing::warn!(left_out, missed, "some partitions have no part in a fit");
    }
    tracing::info!(?took, "computed a fit over all partitions");
    Ok(true)
}

/// Begins a fit, if one is due.
fn begin(
    node: &Node,
    progress: &[Option<Progress>],
    dim: Option<usize>,
) -> Result<Option<Box<dyn Gathering>>, String> {
    let (Some(gather), Some(dim)) = (node.identity.policy.gather, dim) else {
        return Ok(None);
    };
    let setup = Setup {
        users: Users::Appear,
        ..crate::identity::setup(node.identity.context.policy_dim(dim))
    };
    gather(&setup, &node.identity.constants, progress).map_err(|error| error.to_string())
}

/// Takes answers, on a thread of its own: this computes the fit.
async fn take(
    node: &Node,
    gathering: Box<dyn Gathering>,
    answers: Vec<Option<Vec<u8>>>,
) -> Result<Box<dyn Gathering>, String> {
    let workers = Threads::new(node.settings.fit_threads);
    let work = move || {
        let mut gathering = gathering;
        let taken = gathering.take(&answers, &workers);
        taken.map(|()| gathering).map_err(|error| error.to_string())
    };
    super::serve::run_blocking(node, work).await
}
