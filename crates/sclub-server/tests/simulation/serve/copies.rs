//! Backups and exports: who reads them may be slow or give up, and what they contain is checked.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::rc::Rc;

use tokio::sync::oneshot;

use super::{Pace, Reply, Request};
use crate::executor::Group;
use crate::model::{DecisionId, Life};
use crate::subject::Engine;
use crate::world::{GRACE, Owner, Site, World};

impl World {
    pub(super) async fn backup(
        self: &Rc<Self>,
        site: &Rc<Site>,
        engine: &Engine,
        pace: Pace,
    ) -> Reply {
        let begun = site.model.borrow().clone();
        let begin = self.tick();
        let before = site.noted.borrow().clone();
        let (mut noted, _) = self.shown(site);
        let group = self.group(site);
        let mut out = Reader {
            bytes: Vec::new(),
            pace,
            world: Rc::clone(self),
            site: Rc::clone(site),
            group,
        };
        let done = engine.backup(&mut out).await;
        if self.group(site) != group {
            // The process died while it was written: the reply is lost.
            std::future::pending::<()>().await;
        }
        if matches!(done, Ok(false)) {
            // The journal could not be written: it has what it had before.
            self.count("backups without a journal");
            noted = before;
        }
        if done.is_ok() && !self.disk.is_down() {
            self.keep_backup(site, out.bytes, begun, begin, noted);
        }
        match pace {
            Pace::GivesUp(_) => Reply::Done,
            _ => self.upkeep(site, "backup", done.map(drop)),
        }
    }

    /// Decisions that the journal of a folder has once it was written, and those it must not have:
    /// their users were forgotten.
    fn shown(&self, site: &Site) -> (BTreeSet<DecisionId>, BTreeSet<DecisionId>) {
        let model = site.model.borrow();
        let decisions = self.decisions.borrow();
        let life = |id: &DecisionId| {
            let decision = &decisions[*id];
            model.life(*id, &decision.user, decision.made)
        };
        let mut shown = site.noted.borrow().clone();
        shown.extend(&*site.fresh.borrow());
        let dead = (0..decisions.len()).filter(|id| life(id) == Life::Dead);
        let dead = dead.filter(|&id| self.owner(site, &decisions[id]) == Owner::Ours);
        (shown, dead.collect())
    }

    pub(super) async fn export(&self, site: &Site, engine: &Engine) -> Reply {
        let before = site.model.borrow().export_counts();
        let (shown, dead) = self.shown(site);
        let mut bytes = Vec::new();
        let done = engine.export(&mut bytes).await;
        if let Ok(count) = done
            && !self.disk.is_down()
        {
            self.count("exports");
            let after = site.model.borrow().export_counts();
            self.expect(match self.plan.settings.journal_days {
                0 if bytes.is_empty() => Ok(()),
                0 => Err("there is something in an export without a journal".to_owned()),
                _ => crate::export::check(&bytes, count, &before, &after).and_then(|lines| {
                    self.check_lines(site, &lines, &shown, &dead)?;
                    site.noted.borrow_mut().extend(&shown);
                    Ok(())
                }),
            });
        }
        self.upkeep(site, "export", done.map(drop))
    }

    /// Checks which decisions are in an export: `shown`, unless their users were forgotten, and none
    /// of `dead`.
    fn check_lines(
        &self,
        site: &Site,
        lines: &BTreeMap<u64, (String, String)>,
        shown: &BTreeSet<DecisionId>,
        dead: &BTreeSet<DecisionId>,
    ) -> Result<(), String> {
        let model = site.model.borrow();
        let decisions = self.decisions.borrow();
        for id in shown.union(dead) {
            let decision = &decisions[*id];
            let life = model.life(*id, &decision.user, decision.made);
            let is_due = shown.contains(id) && life == Life::Alive;
            for (number, item) in (decision.number..).zip(&decision.items) {
                let line = (decision.user.clone(), item.clone());
                let is_there = lines.get(&number) == Some(&line);
                if is_there && dead.contains(id) {
                    return Err(format!("the export has {decision:?} of who was forgotten"));
                }
                if !is_there && is_due {
                    return Err(format!("the export lacks {item} of {decision:?}"));
                }
            }
        }
        Ok(())
    }
}

/// Takes a backup.
struct Reader {
    bytes: Vec<u8>,
    pace: Pace,
    world: Rc<World>,
    site: Rc<Site>,
    /// The process that writes.
    group: Option<Group>,
}

/// The number of polls of other tasks while a reader keeps the server waiting.
const MEANWHILE: usize = 20;

impl Reader {
    /// Time passes, and all but the one who writes go on.
    fn pause(&self, milliseconds: u64) -> io::Result<()> {
        self.world.clock.advance(milliseconds);
        self.world.executor.run_others(MEANWHILE);
        match self.world.group(&self.site) == self.group {
            true => Ok(()),
            false => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Reads no further until something else was done: that must not wait for the reader.
    fn wait_for(&self, request: Request) -> io::Result<()> {
        let begun = self.world.clock.now();
        let what = format!("{request:?}");
        let Some(mut answer) = self.world.deliver(&self.site, request, None) else {
            return Ok(());
        };
        while answer.try_recv() == Err(oneshot::error::TryRecvError::Empty) {
            self.pause(100)?;
            let waited = self.world.clock.now() - begun;
            if waited > GRACE && self.world.calm_for() > Some(GRACE) {
                self.world
                    .violation(format!("{what} waits for who reads a backup"));
                break;
            }
            if self.site.is_closing.get() {
                break;
            }
        }
        Ok(())
    }
}

impl Write for Reader {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.pace {
            Pace::GivesUp(after) if self.bytes.len() + bytes.len() > after => {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            Pace::Slow(milliseconds) => {
                if self.bytes.is_empty() {
                    self.wait_for(match milliseconds % 3 {
                        0 => Request::Snapshot,
                        1 => Request::Compact,
                        _ => Request::Export,
                    })?;
                }
                self.pause(milliseconds)?;
            }
            _ => {}
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
