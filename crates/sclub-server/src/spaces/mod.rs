//! Spaces: several catalogues and models in one server.
//!
//! A space is an engine with a data folder, settings, keys and limits of its own. The space `default` is the server's
//! data folder; the others are the folders in its subfolder `spaces`, each with its settings in `settings.toml`.
//! Folders appear and disappear by a rename: one that a crash left half-made or half-removed has an ending that no
//! name of a space has, and is removed at the next start.

mod config;
mod fit_pool;
mod reopen;
mod turns;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, RwLock};

use axum::Router;
use axum::http::StatusCode;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

#[cfg(test)]
pub(crate) use config::names_of_settings;
pub use config::{Given, drop_unset, refused};
pub use turns::Turns;

use crate::api::{App, router};
use crate::edge::keys::{DEFAULT_SPACE, check_space};
use crate::edge::{ApiError, Guard};
use crate::engine::{Engine, FoldError, OpenError};
use crate::env::Env;
use crate::identity::Identity;
use crate::locks::{lock, read, write};
use crate::settings::Settings;
use crate::store::{Folder, StoreError};
use config::{read_given, space_settings, try_given, write_given};
use fit_pool::FitPool;

/// The ending of a folder that is being made.
const NEW: &str = ".new";
/// The ending of a folder that is being removed.
const DELETED: &str = ".deleted";
/// The largest number of spaces that a server makes. Each has memory, files and threads of its own.
pub const MAX_SPACES: usize = 100;

/// The spaces of a server.
#[derive(Debug)]
pub struct Spaces {
    /// The folder with the data folders of all spaces but the default one.
    folder: PathBuf,
    server: Settings,
    /// The guard with the keys of all spaces.
    guard: Guard,
    turns: Turns,
    fits: Arc<FitPool>,
    all: RwLock<BTreeMap<Arc<str>, Arc<Space>>>,
    /// The spaces that were found at the start and are not open yet.
    found: Mutex<Vec<Found>>,
    /// Held while a space is made or deleted.
    changing: tokio::sync::Mutex<()>,
}

/// A space whose folder was found.
#[derive(Debug)]
struct Found {
    space: Arc<Space>,
    path: PathBuf,
    /// The reason why it cannot be opened, if there is one already.
    problem: Option<String>,
}

/// A space.
#[derive(Debug)]
pub struct Space {
    /// Its name.
    pub name: Arc<str>,
    /// Its application, which has the engine once that is open.
    pub app: Arc<App>,
    /// Its calls, with the paths of the default space.
    pub router: Router,
    /// The settings that it was made with.
    pub given: Given,
    seconds: AbortHandle,
}

impl Spaces {
    /// The spaces of a server, none of which is open yet. Removes what a crash has left of others. Call it in a runtime, once the
    /// data folder is locked.
    pub fn new(server: &Settings, guard: Guard) -> Arc<Self> {
        let spaces = Arc::new(Self {
            folder: server.data.join("spaces"),
            turns: Turns::new(server.threads),
            fits: Arc::new(FitPool::new(server.fit_threads)),
            server: server.clone(),
            guard,
            all: RwLock::default(),
            found: Mutex::default(),
            changing: tokio::sync::Mutex::default(),
        });
        let given = Given::default();
        let default = spaces.space(DEFAULT_SPACE, server.clone(), given);
        default.app.know_spaces(&spaces);
        spaces.insert(default);
        spaces.find();
        spaces
    }

    /// The guard with the keys of all spaces.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// The default space.
    pub fn default_space(&self) -> Arc<Space> {
        self.get(DEFAULT_SPACE).expect("it is never removed")
    }

    /// A space by its name.
    pub fn get(&self, name: &str) -> Option<Arc<Space>> {
        read(&self.all).get(name).cloned()
    }

    /// All spaces, by name.
    pub fn list(&self) -> Vec<Arc<Space>> {
        read(&self.all).values().cloned().collect()
    }

    /// A space whose engine is not open yet.
    fn space(&self, name: &str, settings: Settings, given: Given) -> Arc<Space> {
        let guard = self.guard.of_space(name, settings.rate);
        let app = App::of_space(settings, name, self.turns.another());
        Arc::new(Space {
            name: name.into(),
            router: router(Arc::clone(&app), &guard),
            seconds: tokio::spawn(Arc::clone(&app).count_seconds()).abort_handle(),
            app,
            given,
        })
    }

    fn insert(&self, space: Arc<Space>) {
        write(&self.all).insert(Arc::clone(&space.name), space);
    }

    /// Starts the engine of a space. Blocks.
    ///
    /// # Errors
    /// If the folder cannot be used.
    pub fn start(&self, space: &Space, folder: Folder) -> Result<(), OpenError> {
        let begun = std::time::Instant::now();
        let workers = Box::new(FitPool::share(&self.fits));
        let engine = Engine::start_with(folder, space.app.settings(), workers)?;
        {
            let state = engine.state();
            let milliseconds = begun.elapsed().as_millis() as u64;
            tracing::info!(
                space = &*space.name,
                policy = state.identity().policy.name,
                events = state.events(),
                users = state.users().len(),
                clusters = state.clusters(),
                milliseconds,
                "ready"
            );
        }
        space.app.begin(engine);
        Ok(())
    }

    /// Finds all spaces but the default one. They are known before the first request, which would make them anew.
    fn find(&self) {
        let env = Env::real();
        let names = env.disk.names(&self.folder).unwrap_or_default();
        for name in names {
            let path = self.folder.join(&name);
            if name.ends_with(NEW) || name.ends_with(DELETED) {
                let removed = env.disk.remove_dir_all(&path);
                tracing::info!(path = %path.display(), ?removed, "removed what a crash has left");
            } else if !path.is_dir() || check_space(&name).is_err() || name == DEFAULT_SPACE {
                tracing::warn!(path = %path.display(), "ignored: it is not the folder of a space");
            } else {
                let read = read_given(&path).and_then(|given| {
                    let given = given.unwrap_or_default();
                    Ok((self.settings_of(&path, &given)?, given))
                });
                let (settings, given, problem) = match read {
                    Ok((settings, given)) => (settings, given, None),
                    Err(problem) => (self.server.clone(), Given::default(), Some(problem)),
                };
                let space = self.space(&name, settings, given);
                self.insert(Arc::clone(&space));
                lock(&self.found).push(Found {
                    space,
                    path,
                    problem,
                });
            }
        }
    }

    /// Opens all spaces but the default one. One that cannot be opened answers with the reason. Blocks; call it in a
    /// runtime.
    pub fn open_all(&self) {
        let env = Env::real();
        let all = std::mem::take(&mut *lock(&self.found));
        for found in all {
            let Found {
                space,
                path,
                problem,
            } = found;
            let opened = match problem {
                Some(problem) => Err(problem),
                None => Folder::open_to_serve(&env, &path, space.app.settings())
                    .map_err(OpenError::from)
                    .and_then(|folder| self.start(&space, folder))
                    .map_err(|error| error.to_string()),
            };
            if let Err(reason) = opened {
                space.break_off(reason);
            }
        }
    }

    /// Makes a space, or opens a data folder that was put in its place. Returns it, and true if it is new. A broken space is
    /// opened again, and needs no settings.
    ///
    /// # Errors
    /// If its name or settings are invalid, a space with other settings has the name, or the disk fails.
    pub async fn create(
        self: &Arc<Self>,
        name: &str,
        given: Given,
    ) -> Result<(Arc<Space>, bool), ApiError> {
        let (spaces, name) = (Arc::clone(self), name.to_owned());
        to_the_end(async move { spaces.create_now(&name, given).await }).await
    }

    async fn create_now(
        self: &Arc<Self>,
        name: &str,
        given: Given,
    ) -> Result<(Arc<Space>, bool), ApiError> {
        check_space(name).map_err(|reason| ApiError::invalid("space", reason))?;
        let _changing = self.changing.lock().await;
        if let Some(space) = self.get(name) {
            if space.app.failure().is_some() {
                let spaces = Arc::clone(self);
                let opened = tokio::task::spawn_blocking(move || spaces.reopen(&space, given));
                let opened = opened.await.unwrap_or_else(|_| Err(ApiError::internal()));
                return opened.map(|space| (space, false));
            }
            return match space.given == given && name != DEFAULT_SPACE {
                true => Ok((space, false)),
                false => Err(ApiError::conflict(
                    "exists",
                    format!("space '{name}' exists, with other settings"),
                )),
            };
        }
        if read(&self.all).len() >= MAX_SPACES {
            let message = format!("the server has {MAX_SPACES} spaces, the most it can have");
            return Err(ApiError::invalid("space", message));
        }
        let path = self.folder.join(name);
        let settings = space_settings(&self.server, &path, &given)
            .map_err(|reason| refused(&given, reason))?;
        let spaces = Arc::clone(self);
        let space = self.space(name, settings, given.clone());
        let made = {
            let space = Arc::clone(&space);
            tokio::task::spawn_blocking(move || spaces.make(&space, &path)).await
        };
        match made {
            Ok(Ok(())) => {
                self.insert(Arc::clone(&space));
                Ok((space, true))
            }
            failed => {
                space.seconds.abort();
                Err(match failed {
                    Ok(Err(error)) => not_made(name, &given, &error),
                    _ => ApiError::internal(),
                })
            }
        }
    }

    /// Makes the folder of a space, if there is none, and opens it. Blocks.
    fn make(&self, space: &Space, path: &Path) -> Result<(), OpenError> {
        let env = Env::real();
        let disk = &*env.disk;
        // A link to a disk that is not mounted is there too.
        let is_new = match std::fs::symlink_metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => true,
            Err(error) => return Err(unwritten(path, &error).into()),
            Ok(_) => false,
        };
        if is_new {
            Identity::new(space.app.settings(), &*env.random)?;
            let new = with_ending(path, NEW);
            if new.exists() {
                disk.remove_dir_all(&new)
                    .map_err(|error| unwritten(&new, &error))?;
            }
            let made = Folder::open(&env, &new)
                .map_err(OpenError::from)
                .and_then(|folder| {
                    drop(folder);
                    write_given(disk, &new, &space.given)?;
                    let renamed = disk.rename(&new, path);
                    Ok(renamed.map_err(|error| unwritten(path, &error))?)
                });
            if made.is_err() {
                // On a full disk it has its part. A folder that came to `path` meanwhile is an operator's.
                let _ = disk.remove_dir_all(&new);
            }
            made?;
            if let Err(error) = disk.sync_dir(&self.folder) {
                let _ = disk.remove_dir_all(path);
                return Err(unwritten(path, &error).into());
            }
        }
        let opened = Folder::open_to_serve(&env, path, space.app.settings())
            .map_err(OpenError::from)
            .and_then(|folder| match is_new {
                true => self.start(space, folder),
                // An operator has put the folder there.
                false => try_given(disk, path, &space.given, || self.start(space, folder)),
            });
        if opened.is_err() && is_new {
            let _ = disk.remove_dir_all(path);
        }
        opened
    }

    /// Deletes a space with all of its data.
    ///
    /// # Errors
    /// If there is none, it is the default one, or its files cannot be removed.
    pub async fn delete(self: &Arc<Self>, name: &str) -> Result<(), ApiError> {
        let (spaces, name) = (Arc::clone(self), name.to_owned());
        to_the_end(async move { spaces.delete_now(&name).await }).await
    }

    async fn delete_now(&self, name: &str) -> Result<(), ApiError> {
        if name == DEFAULT_SPACE {
            let message = "the default space cannot be deleted; it is the server's data folder";
            return Err(ApiError::invalid("space", message));
        }
        let _changing = self.changing.lock().await;
        let space = self.get(name).ok_or_else(|| unknown_space(name))?;
        if space.app.engine().is_none() && space.app.failure().is_none() {
            // Its files are being read.
            let message = format!("space '{name}' is being opened; retry later");
            let starting = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "starting", message);
            return Err(starting.retry_after(1));
        }
        write(&self.all).remove(name);
        space.close().await;
        let (path, gone) = (
            self.folder.join(name),
            with_ending(&self.folder.join(name), DELETED),
        );
        let folder = self.folder.clone();
        let removed = tokio::task::spawn_blocking(move || {
            let disk = Env::real().disk;
            if !path.exists() {
                // An operator has moved it away.
                return Ok(());
            }
            disk.rename(&path, &gone)?;
            disk.sync_dir(&folder)?;
            disk.remove_dir_all(&gone)
        });
        match removed.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                tracing::error!(space = name, %error, "cannot remove the folder of a space");
                Err(ApiError::internal())
            }
            Err(_) => Err(ApiError::internal()),
        }
    }

    /// Closes the engines of all spaces.
    pub fn close_all(&self, runtime: &Handle) {
        for space in self.list() {
            if runtime.block_on(space.close()) {
                tracing::info!(space = &*space.name, "closed");
            }
        }
    }
}

impl Space {
    /// Sets the reason why the engine cannot be opened.
    fn break_off(&self, reason: String) {
        tracing::error!(space = &*self.name, reason, "the space cannot be opened");
        self.app.fail(reason);
    }

    /// Ends the engine. Returns true if there was one.
    async fn close(&self) -> bool {
        self.seconds.abort();
        self.app.end_streams();
        match self.app.engine() {
            Some(engine) => {
                engine.close().await;
                let app = Arc::clone(&self.app);
                // The next start begins anew without them.
                let _ = tokio::task::spawn_blocking(move || app.save_last_figures()).await;
                true
            }
            None => false,
        }
    }
}

/// Does work to its end. A client that goes away ends the task of its request, which must not leave a space half made or half
/// deleted.
async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, ApiError>> + Send + 'static,
) -> Result<T, ApiError> {
    let done = tokio::spawn(work).await;
    done.unwrap_or_else(|_| Err(ApiError::internal()))
}

/// 404: there is no such space.
pub fn unknown_space(name: &str) -> ApiError {
    ApiError::new(
        StatusCode::NOT_FOUND,
        "unknown_space",
        format!("there is no space '{name}'"),
    )
    .field("space")
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

fn unwritten(file: &Path, error: &std::io::Error) -> StoreError {
    StoreError::Write {
        file: file.to_owned(),
        reason: error.to_string(),
    }
}

/// The answer for a space that cannot be made.
fn not_made(name: &str, given: &Given, error: &OpenError) -> ApiError {
    match error {
        OpenError::Fold(FoldError::Store(
            StoreError::Write { reason, .. } | StoreError::Read { reason, .. },
        )) => {
            // It has the path, which is not for callers.
            tracing::error!(space = name, %error, "the space cannot be made");
            let message = format!("space '{name}' cannot be made at the moment: {reason}");
            ApiError::read_only(message).retry_after(5)
        }
        OpenError::Thread(_) => {
            tracing::error!(space = name, %error, "the space cannot be made");
            ApiError::internal()
        }
        other => refused(given, other.to_string()),
    }
}
