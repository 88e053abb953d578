//! The state of a node for operators: its member entry, changes of owners, metrics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Node, TTL};
use crate::api::App;
use crate::cluster::bus::Bucket;
use crate::cluster::members::{Member, Members, Move, Part, owners};
use crate::engine::Engine;
use crate::locks::lock;
use crate::store::STORE_PARTS;

/// The number of changes of owners that are kept.
const MAX_MOVES: usize = 200;

impl Node {
    /// The last changes of owners that this node has seen, the newest first.
    pub fn moves(&self) -> Vec<Move> {
        lock(&self.moves).clone()
    }

    /// The nodes that have been part of the cluster and are not running.
    pub fn missing(&self) -> Vec<String> {
        Members::read(&*self.bus).missing()
    }

    /// The reason why the node cannot write; `None` if it can.
    fn read_only(&self, members: &Members) -> Option<String> {
        if members.get(&self.name).is_none() {
            return Some("NATS does not answer".to_owned());
        }
        let apps = self.groups.iter().filter_map(|group| group.app());
        apps.filter_map(|app| {
            let engine = app.engine()?;
            engine.is_leading().then(|| engine.read_only())?
        })
        .next()
    }

    /// Logs when the node becomes read-only, and when that is over. `was_writable` says whether it could write at the last look.
    fn log_read_only(&self, was_writable: &mut Option<bool>) {
        // Before the node has joined, there may be an entry of its earlier run.
        if self.is_draining.load(Ordering::SeqCst) || !self.is_member.load(Ordering::SeqCst) {
            return;
        }
        let reason = self.read_only(&Members::read(&*self.bus));
        match (*was_writable, &reason) {
            (Some(true), Some(reason)) => {
                tracing::error!(reason, "the log cannot be written; the server is read-only");
            }
            (Some(false), None) => tracing::info!("the log is writable again"),
            // A node that has just been started is not yet known to the others.
            (None, Some(_)) => return,
            _ => {}
        }
        *was_writable = Some(reason.is_none());
    }

    /// Records changes of owners for as long as the node runs.
    pub(super) async fn watch_moves(self: Arc<Self>) {
        let mut before = BTreeMap::new();
        let mut is_first = true;
        let mut was_writable = None;
        while !self.is_closed() {
            self.log_read_only(&mut was_writable);
            if !is_first {
                tokio::select! {
                    biased;
                    () = self.bus.changed(Bucket::Leases) => {}
                    () = self.env.clock.sleep(TTL) => {}
                }
            }
            let after = owners(&*self.bus);
            let mut moves = lock(&self.moves);
            for group in &self.groups {
                let (from, to) = (before.get(&group.name), after.get(&group.name));
                group.set_owner(to);
                if from == to || is_first {
                    continue;
                }
                let mut change = Move {
                    at: self.env.clock.wall(),
                    group: group.name.clone(),
                    from: from.cloned(),
                    to: to.cloned(),
                };
                // Between two owners there is a moment without one.
                let last = moves.iter().position(|known| known.group == group.name);
                if let Some(place) = last.filter(|&place| moves[place].to.is_none()) {
                    change.from = moves.remove(place).from;
                }
                moves.insert(0, change);
            }
            moves.truncate(MAX_MOVES);
            drop(moves);
            is_first = false;
            before = after;
        }
    }

    /// The entry of this node among the members.
    pub fn member(&self) -> Member {
        let mut groups = BTreeMap::new();
        for group in &self.groups {
            if let Some(app) = group.app()
                && let Some(engine) = app.engine()
            {
                let state = engine.state();
                let part = Part {
                    is_leading: engine.is_leading(),
                    position: state.position(),
                    users: state.users().len() as u64,
                    events: state.events(),
                    rounds: state.rounds(),
                };
                groups.insert(group.name.clone(), part);
            }
        }
        Member {
            name: self.name.clone(),
            life: self.life,
            addr: self.settings.addr.to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            is_draining: self.is_draining.load(Ordering::SeqCst),
            groups,
        }
    }

    /// The partitions as their owners describe them.
    pub fn owned_parts(&self) -> Vec<Part> {
        let mut members = Members::read(&*self.bus).members;
        members.retain(|member| member.name != self.name);
        members.push(self.member());
        let owned = self.partitions().iter().filter_map(|group| {
            let parts = members
                .iter()
                .filter_map(|member| member.groups.get(&group.name));
            parts
                .filter(|part| part.is_leading)
                .max_by_key(|part| part.position)
                .cloned()
        });
        owned.collect()
    }

    /// Updates the metrics of the node.
    pub fn count(&self) {
        let mut owned = 0;
        let mut lag = 0;
        let members = Members::read(&*self.bus);
        let apps: Vec<Arc<App>> = self.partitions().iter().filter_map(|g| g.app()).collect();
        for (group, app) in self.groups.iter().filter_map(|g| Some((g, g.app()?))) {
            let Some(engine) = app.engine() else { continue };
            if engine.is_leading() {
                owned += u64::from(group.index < self.cluster.partitions);
            } else {
                let leaders = members.members.iter();
                let leaders = leaders.filter_map(|member| member.groups.get(&group.name));
                let last = leaders
                    .filter(|part| part.is_leading)
                    .map(|part| part.position);
                lag += last
                    .max()
                    .unwrap_or(0)
                    .saturating_sub(engine.state().position());
            }
        }
        let catalogue = self.catalogue().app();
        let engines = apps
            .iter()
            .filter_map(|app| app.engine())
            .filter(|e| e.is_leading());
        let engines: Vec<&Engine> = engines.collect();
        let items = catalogue.as_ref().and_then(|app| app.engine());
        let items = items.map_or(0, |e| e.state().catalogue().map_or(0, |c| c.len()));
        self.meters
            .node(&engines, items, owned, lag, members.members.len());
        let mut sizes = [0; STORE_PARTS.len()];
        let (mut since_snapshot, mut can_journal) = (0, true);
        for app in self.groups.iter().filter_map(|group| group.app()) {
            let Some(engine) = app.engine() else { continue };
            for (sum, size) in sizes.iter_mut().zip(engine.folder().sizes()) {
                *sum += size;
            }
            since_snapshot += engine.log_bytes();
            can_journal &= engine.can_journal();
        }
        self.meters.journal(can_journal);
        let is_writable = self.read_only(&members).is_none();
        self.meters.store(sizes, since_snapshot, is_writable);
        let missing = members.missing().len();
        // A node that does not see itself sees no other one either: NATS does not answer.
        let missing = members.get(&self.name).map(|_| missing);
        let fits = &self.fits;
        let at = fits.at.load(Ordering::Relaxed);
        let took = (at > 0).then(|| Duration::from_micros(fits.took.load(Ordering::Relaxed)));
        self.meters.fitting(false, took);
        let age = (at > 0).then(|| self.env.clock.monotonic().saturating_sub(at));
        self.meters.cluster(
            self.takeovers.load(Ordering::Relaxed),
            fits.left_out.load(Ordering::Relaxed),
            missing,
            age,
        );
    }
}
