//! Copies of folders, and whose decisions they must take.

use std::path::PathBuf;
use std::rc::Rc;

use super::{DATA, Decision, Site, World};
use crate::model::{Model, Tick};
use crate::subject;

/// Where a copy left its original.
#[derive(Debug, Clone)]
pub(super) struct Ancestor {
    site: usize,
    /// When the backup was begun and when it ended.
    begin: Tick,
    end: Tick,
}

/// Whose decision it is, as a folder must see it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Owner {
    Ours,
    /// Made by another copy after they parted.
    Others,
    /// Made by another copy just when they parted.
    Unsure,
}

/// A copy that was taken.
pub struct Backup {
    pub bytes: Vec<u8>,
    model: Model,
    ancestors: Vec<Ancestor>,
    running: u64,
}

impl World {
    /// Whose decision it is, as a folder must see it.
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

    /// Notes a backup that was begun with an account and ends now.
    pub fn keep_backup(&self, site: &Site, bytes: Vec<u8>, begun: Model, begin: Tick) {
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
        }));
    }

    /// Restores a backup into a folder of its own.
    ///
    /// # Errors
    /// What the engine says.
    pub fn restore(&self, backup: &Backup) -> Result<Rc<Site>, String> {
        let folder = PathBuf::from(format!("{DATA}/{}", self.sites.borrow().len()));
        let restored = self.aside(|env| {
            let mut bytes = backup.bytes.as_slice();
            subject::restore(env, &mut bytes, &folder)
        });
        let model = backup.model.clone();
        let ancestors = backup.ancestors.clone();
        // Also if it failed: the folder's name is taken.
        let site = self.add_site(folder, model, ancestors, backup.running);
        self.count("copies");
        match restored {
            Ok(()) if !self.disk.is_down() => Ok(site),
            Ok(()) => Err("the machine stopped".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}
