//! Checks that no data of forgotten users is left.

use std::collections::BTreeSet;

use super::{Site, USER_LENGTH, USER_PREFIX, World};
use crate::disk::View;

impl World {
    /// Checks that nothing is left of users of whom nothing may be.
    pub fn check_gone(&self, site: &Site) {
        let model = site.model.borrow();
        let gone: BTreeSet<&str> = model.gone().map(String::as_str).collect();
        if gone.is_empty() {
            return;
        }
        for view in [View::Visible, View::Durable] {
            self.disk.look(&site.folder, view, &mut |path, bytes| {
                let name = path.to_string_lossy();
                for text in [bytes, name.as_bytes()] {
                    if let Some(user) = ids(text).find(|user| gone.contains(user)) {
                        self.violation(format!(
                            "user {user} was forgotten, and is in {} ({view:?})",
                            path.display()
                        ));
                    }
                }
            });
        }
    }
}

/// The ids of users among bytes.
fn ids(bytes: &[u8]) -> impl Iterator<Item = &str> {
    let prefix = USER_PREFIX.as_bytes();
    let starts = memchr::memmem::find_iter(bytes, prefix);
    starts.filter_map(|start| {
        let id = bytes.get(start..start + USER_LENGTH)?;
        std::str::from_utf8(id).ok()
    })
}
