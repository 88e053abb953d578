//! Opening a broken space again while the server runs, for example after its folder was restored.

use std::path::Path;
use std::sync::Arc;

use super::config::{read_given, refused, space_settings, try_given, write_given};
use super::{Given, Space, Spaces, not_made};
use crate::edge::ApiError;
use crate::engine::OpenError;
use crate::env::Env;
use crate::settings::Settings;
use crate::store::{Folder, StoreError};

impl Spaces {
    /// The settings of a space from its folder, with those given there.
    pub(super) fn settings_of(&self, path: &Path, given: &Given) -> Result<Settings, String> {
        // The transform is in the folder's identity. Its file may be gone.
        let mut kept = given.clone();
        kept.remove("features");
        space_settings(&self.server, path, &kept)
    }

    /// Opens a broken space again, with the settings in its folder. If the folder has none, they are those given, or those
    /// that the space had. A space that cannot be opened stays broken, with the present reason. Blocks; call it in a runtime.
    ///
    /// # Errors
    /// If the folder has other settings than those given, or those given are invalid.
    pub(super) fn reopen(&self, broken: &Space, given: Given) -> Result<Arc<Space>, ApiError> {
        let path = self.folder.join(&*broken.name);
        let kept = read_given(&path);
        let has_settings = !matches!(kept, Ok(None));
        let are_new = !has_settings && !given.is_empty();
        if matches!(&kept, Ok(Some(kept)) if !given.is_empty() && *kept != given) {
            return Err(ApiError::conflict(
                "exists",
                format!(
                    "space '{}' exists, with other settings; {{}} opens it with those in its folder",
                    broken.name
                ),
            ));
        }
        let (given, settings) = match kept {
            Ok(None) if are_new => {
                let settings = space_settings(&self.server, &path, &given);
                let settings = settings.map_err(|reason| refused(&given, reason))?;
                (given, Ok(settings))
            }
            Ok(kept) => {
                let given = kept.unwrap_or_else(|| broken.given.clone());
                let settings = self.settings_of(&path, &given);
                (given, settings)
            }
            Err(problem) => (broken.given.clone(), Err(problem)),
        };
        let (settings, problem) = match settings {
            Ok(settings) => (settings, None),
            Err(problem) => (self.server.clone(), Some(problem)),
        };
        let space = self.space(&broken.name, settings, given);
        let reason = match problem {
            Some(problem) => Some(problem),
            None => match self.open_folder(&space, &path, has_settings, are_new) {
                Err(error @ OpenError::Settings(_)) if are_new => {
                    // The space is as it was.
                    space.seconds.abort();
                    return Err(not_made(&broken.name, &space.given, &error));
                }
                opened => opened.err().map(|error| error.to_string()),
            },
        };
        if let Some(reason) = reason {
            space.break_off(reason);
        }
        self.insert(Arc::clone(&space));
        broken.seconds.abort();
        broken.app.end_streams();
        Ok(space)
    }

    /// Opens the folder of a space. `has_settings` says whether it has the space's settings, and `are_new` whether these have never
    /// been in force.
    fn open_folder(
        &self,
        space: &Space,
        path: &Path,
        has_settings: bool,
        are_new: bool,
    ) -> Result<(), OpenError> {
        let env = Env::real();
        if !path.is_dir() {
            // A new one would be in the way of the one that is missed.
            let reason = format!(
                "there is no folder {}; restore it, or delete the space",
                path.display()
            );
            return Err(StoreError::Refused(reason).into());
        }
        let folder = Folder::open_to_serve(&env, path, space.app.settings())?;
        let disk = &*env.disk;
        if are_new {
            return try_given(disk, path, &space.given, || self.start(space, folder));
        }
        if !has_settings {
            write_given(disk, path, &space.given)?;
        }
        self.start(space, folder)
    }
}
