//! The lease of a group: whether this node follows the group, and when it acquires, renews and hands over the lease.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Group, Node, RENEW, TICK};
use crate::cluster::TTL;
use crate::cluster::bus::{Bucket, BusError};
use crate::cluster::members::{Member, Members};
use crate::engine::{Engine, Role};

/// The milliseconds before the end of a lease at which an owner that has not tried to renew it stops writing.
const MARGIN: u64 = 300;
/// The milliseconds for which a node that is not the first choice lets the others go first.
const DEFER: u64 = 500;
/// The milliseconds for which a node keeps following a group that it no longer needs.
const LINGER: u64 = 10_000;
/// The number of batches that a node may be behind to take over a group, by what it said up to a second ago.
const MAX_LAG: u64 = 2_000;
/// The milliseconds before a group whose engine cannot go on is opened again.
const REOPEN: u64 = 1_000;
/// The milliseconds for which an owner waits for its successor to catch up.
const MAX_HANDOVER: u64 = 5_000;

/// A lease that this node has.
#[derive(Debug, Clone, Copy)]
struct Held {
    revision: u64,
    /// The time when the last renewal that succeeded was sent.
    renewed: u64,
    /// The time when the last renewal was sent that succeeded, or got no answer.
    tried: u64,
}

/// The state of [`tend`].
#[derive(Debug, Default)]
struct Tending {
    held: Option<Held>,
    /// The time since which no other node has the lease.
    vacant_since: Option<u64>,
    /// The time since which this node does not need to follow the group.
    unneeded_since: Option<u64>,
    /// The time since which another node is to own the group.
    handover_since: Option<u64>,
}

/// Tends a group for as long as the node runs.
pub(super) async fn tend(node: Arc<Node>, group: Arc<Group>) {
    let mut tending = Tending::default();
    while !node.is_closed() {
        if let Err(error) = tending.step(&node, &group).await {
            tracing::debug!(group = group.name, %error, "retrying");
        }
        let app = group.app();
        let mut roles = app.as_ref().and_then(|app| app.engine()).map(Engine::roles);
        let role_changed = async {
            match &mut roles {
                Some(roles) => drop(roles.changed().await),
                None => std::future::pending().await,
            }
        };
        // In order, so that a simulation can be repeated.
        tokio::select! {
            biased;
            () = node.env.clock.sleep(TICK) => {}
            () = node.bus.changed(Bucket::Leases) => {}
            () = role_changed => {}
        }
    }
}

impl Tending {
    /// Looks at the group once, and does what is due.
    async fn step(&mut self, node: &Arc<Node>, group: &Arc<Group>) -> Result<(), String> {
        let now = node.env.clock.monotonic();
        let members = Members::read(&*node.bus);
        let ranking = members.ranking(&group.name);
        let rank = ranking.iter().position(|member| member.name == node.name);
        // A node that does not see itself does not see NATS, and knows nothing about what is needed.
        let is_member = members.get(&node.name).is_some();
        let is_catalogue = group.index == node.cluster.partitions;
        let is_needed =
            is_catalogue || self.held.is_some() || rank.is_some_and(|rank| rank <= node.standby);
        if is_needed || is_member {
            self.keep_open(node, group, is_needed, now).await?;
        }
        if is_catalogue && let Some(engine) = group.app().as_ref().and_then(|app| app.engine()) {
            node.has_read_catalogue(engine).await?;
        }
        let Some(app) = group.app() else {
            return Ok(());
        };
        let Some(engine) = app.engine() else {
            return Ok(());
        };
        if let Role::Broken(reason) = engine.role() {
            tracing::error!(group = group.name, reason, "opening the group again");
            // Partitions have the catalogue of the engine that is closed: they are opened again too.
            let closed = match is_catalogue {
                true => node.groups(),
                false => std::slice::from_ref(group),
            };
            if is_catalogue {
                node.has_catalogue.store(false, Ordering::SeqCst);
            }
            for group in closed {
                node.close_group(group).await;
            }
            node.env.clock.sleep(REOPEN).await;
            return Ok(());
        }
        match self.held {
            Some(held) => self.keep(node, group, engine, held, &ranking).await,
            None => self.acquire(node, group, engine, &ranking, rank, now).await,
        }
    }

    /// Opens or closes the engine.
    async fn keep_open(
        &mut self,
        node: &Arc<Node>,
        group: &Arc<Group>,
        is_needed: bool,
        now: u64,
    ) -> Result<(), String> {
        match (group.app(), is_needed) {
            (None, true) => {
                self.unneeded_since = None;
                let opened = node.open(group).await;
                if let Err(error) = &opened {
                    tracing::warn!(group = group.name, error, "the group cannot be opened");
                }
                opened
            }
            (Some(_), false) => {
                let since = *self.unneeded_since.get_or_insert(now);
                if now - since >= LINGER {
                    node.close_group(group).await;
                }
                Ok(())
            }
            _ => {
                self.unneeded_since = None;
                Ok(())
            }
        }
    }

    /// Takes the lease of a group that has no owner.
    async fn acquire(
        &mut self,
        node: &Arc<Node>,
        group: &Arc<Group>,
        engine: &Engine,
        ranking: &[&Member],
        rank: Option<usize>,
        now: u64,
    ) -> Result<(), String> {
        if engine.is_leading() {
            // The lease ended while this node was paused.
            let _ = engine.resign().await;
        }
        let leases = node.bus.entries(Bucket::Leases);
        let lease = leases.iter().find(|(key, _)| *key == group.name);
        if lease.is_some() {
            self.vacant_since = None;
            return Ok(());
        }
        let since = *self.vacant_since.get_or_insert(now);
        // The first choice that follows the group goes first.
        let Some(rank) = rank else { return Ok(()) };
        let before = ranking[..rank].iter();
        let before = before.filter(|member| member.groups.contains_key(&group.name));
        if now - since < DEFER * before.count() as u64 {
            return Ok(());
        }
        let sent = node.env.clock.monotonic();
        let revision = node
            .bus
            .create(Bucket::Leases, &group.name, node.lease())
            .await;
        let revision = revision.map_err(|error| error.to_string())?;
        self.hold(group, revision, sent);
        self.vacant_since = None;
        self.handover_since = None;
        node.takeovers.fetch_add(1, Ordering::Relaxed);
        self.lead(node, group, engine).await
    }

    /// Takes note of the lease, which was acquired or renewed by a request that was sent at a time.
    fn hold(&mut self, group: &Group, revision: u64, renewed: u64) {
        self.held = Some(Held {
            revision,
            renewed,
            tried: renewed,
        });
        group.lease_end.store(renewed + TTL, Ordering::Relaxed);
    }

    /// Writes the log from now on.
    async fn lead(
        &mut self,
        node: &Arc<Node>,
        group: &Arc<Group>,
        engine: &Engine,
    ) -> Result<(), String> {
        let failed = |error: BusError| error.to_string();
        let (_, last) = node.bus.bounds(&group.name).await.map_err(failed)?;
        let epochs = node.begin_epoch(group).await.map_err(failed)?;
        let led = tokio::select! {
            biased;
            led = engine.lead(last, epochs) => led,
            () = node.env.clock.sleep(RENEW) => {
                // Still catching up: the lease must be renewed first.
                let _ = engine.resign().await;
                return Ok(());
            }
        };
        led.map_err(|refusal| refusal.to_string())?;
        tracing::info!(group = group.name, batch = last, "leading");
        Ok(())
    }

    /// Renews the lease, or gives it up.
    async fn keep(
        &mut self,
        node: &Arc<Node>,
        group: &Arc<Group>,
        engine: &Engine,
        held: Held,
        ranking: &[&Member],
    ) -> Result<(), String> {
        let sent = node.env.clock.monotonic();
        if sent - held.tried >= TTL - MARGIN {
            tracing::warn!(group = group.name, "the lease was not renewed in time");
            return self.give_up(engine).await;
        }
        if self.is_handed_over(node, group, engine, ranking, sent) {
            tracing::info!(group = group.name, "handing over");
            self.give_up(engine).await?;
            let deleted = node
                .bus
                .delete(Bucket::Leases, &group.name, Some(held.revision));
            return deleted.await.map_err(|error| error.to_string());
        }
        if sent - held.renewed >= RENEW {
            let renewed = node
                .bus
                .update(Bucket::Leases, &group.name, node.lease(), held.revision);
            match renewed.await {
                Ok(revision) => self.hold(group, revision, sent),
                Err(BusError::Conflict) => {
                    // Another node has it; or the answer to the last renewal was lost.
                    let entry = node.bus.get(Bucket::Leases, &group.name).await;
                    match entry {
                        Ok(Some(entry)) if entry.value == node.lease() => {
                            self.held = Some(Held {
                                revision: entry.revision,
                                ..held
                            });
                        }
                        Ok(_) => return self.give_up(engine).await,
                        Err(error) => return Err(error.to_string()),
                    }
                }
                // As long as the bucket has no leader, no other node takes the lease. If one did, the stream would
                // refuse what this node appends.
                Err(error) if engine.is_leading() && !self.is_taken(node, group) => {
                    tracing::debug!(group = group.name, %error, "the lease is not renewed");
                    self.held = Some(Held {
                        tried: sent,
                        ..held
                    });
                    group.lease_end.store(sent + TTL, Ordering::Relaxed);
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        match engine.is_leading() {
            true => Ok(()),
            // Another node has written, or an append is in doubt.
            false => self.lead(node, group, engine).await,
        }
    }

    /// Returns true if another node has the lease, as far as this one knows.
    fn is_taken(&self, node: &Node, group: &Group) -> bool {
        let leases = node.bus.entries(Bucket::Leases);
        let lease = leases.iter().find(|(key, _)| *key == group.name);
        lease.is_some_and(|(_, entry)| entry.value != node.lease())
    }

    /// Returns true if another node is to own the group, and is ready for it.
    fn is_handed_over(
        &mut self,
        node: &Node,
        group: &Group,
        engine: &Engine,
        ranking: &[&Member],
        now: u64,
    ) -> bool {
        let Some(first) = ranking.first().filter(|first| first.name != node.name) else {
            self.handover_since = None;
            return false;
        };
        let since = *self.handover_since.get_or_insert(now);
        let position = engine.state().position();
        let part = first.groups.get(&group.name);
        let is_ready = part.is_some_and(|part| part.position + MAX_LAG >= position);
        let must_go = node.is_draining.load(Ordering::SeqCst) && now - since >= MAX_HANDOVER;
        is_ready || must_go
    }

    /// Stops writing, and no longer has the lease. Until another node has it, this one still answers requests that
    /// only read.
    async fn give_up(&mut self, engine: &Engine) -> Result<(), String> {
        self.held = None;
        self.handover_since = None;
        let resigned = engine.resign().await;
        resigned.map_err(|refusal| refusal.to_string())
    }
}
