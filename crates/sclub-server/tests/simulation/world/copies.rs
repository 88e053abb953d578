//! Copies of folders, and whose decisions they must take.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::rc::Rc;

use super::{DATA, Decision, Site, World};
use crate::disk::View;
use crate::model::{DecisionId, Model, Tick};
use crate::subject;

/// Syncs of a restore, beside so many for each file.
const SYNCS: u64 = 12;
const SYNCS_OF_A_FILE: u64 = 3;

/// The time at which a copy was taken from its original.
#[derive(Debug, Clone)]
pub(super) struct Ancestor {
    site: usize,
    /// The begin and the end of the backup.
    begin: Tick,
    end: Tick,
}

/// The owner of a decision, as a folder must see it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Owner {
    Ours,
    /// Made by another copy after the copy was taken.
    Others,
    /// Made by another copy while the copy was taken.
    Unsure,
}

/// A copy that was taken.
pub struct Backup {
    pub bytes: Vec<u8>,
    model: Model,
    ancestors: Vec<Ancestor>,
    running: u64,
    noted: BTreeSet<DecisionId>,
}

impl World {
    /// The owner of a decision, as a folder must see it.
    pub fn owner(&self, site: &Site, decision: &Decision) -> Owner {
        if decision.site == site.id {
            return Owner::Ours;
        }
        let mut ancestors = site.ancestors.iter();
        let Some(parting) = ancestors.find(|ancestor| ancestor.site == decision.site) else {
            return Owner::Others;
        };
        if decision.made <= parting.begin {
            return Owner::Ours;
        }
        let original = self.site(parting.site);
        let model = original.model.borrow();
        match model.has_event_between(parting.end, decision.made) {
            true => Owner::Others,
            false => Owner::Unsure,
        }
    }

    /// Notes a backup that was begun with an account and ends now. Its journal has `noted`.
    pub fn keep_backup(
        &self,
        site: &Site,
        bytes: Vec<u8>,
        begun: Model,
        begin: Tick,
        noted: BTreeSet<DecisionId>,
    ) {
        let end = self.tick();
        let mut ancestors = site.ancestors.clone();
        let site_id = site.id;
        ancestors.push(Ancestor {
            site: site_id,
            begin,
            end,
        });
        self.count("backups");
        self.backups.borrow_mut().push(Rc::new(Backup {
            bytes,
            model: begun.into_copy(&site.model.borrow(), end),
            ancestors,
            running: self.running(site),
            noted,
        }));
    }

    /// Restores a backup into a folder of its own.
    ///
    /// # Errors
    /// The error of the engine.
    pub fn restore(&self, backup: &Backup) -> Result<Rc<Site>, String> {
        let folder = PathBuf::from(format!("{DATA}/{}", self.sites.borrow().len()));
        let syncs = self.disk.syncs();
        let restored = self.aside(|env| {
            let mut bytes = backup.bytes.as_slice();
            subject::restore(env, &mut bytes, &folder)
        });
        let syncs = self.disk.syncs() - syncs;
        let files = self.disk.files(&folder, View::Visible).len() as u64;
        if restored.is_ok() && syncs > SYNCS + SYNCS_OF_A_FILE * files {
            self.violation(format!("{syncs} syncs to restore {files} files"));
        }
        let model = backup.model.clone();
        let ancestors = backup.ancestors.clone();
        // Also if it failed: the folder's name is taken.
        let site = self.add_site(folder, model, ancestors, backup.running);
        site.noted.borrow_mut().clone_from(&backup.noted);
        self.count("copies");
        match restored {
            Ok(()) if !self.disk.is_down() => Ok(site),
            Ok(()) => Err("the machine stopped".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}
