//! A server from start to shutdown.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use tokio::sync::mpsc;

use crate::api::{App, admin_route, no_spaces, route_of, router, with_spaces};
use crate::cluster::nats::{NatsBus, NatsOptions};
use crate::cluster::{Node, NodeParts, TokioTasks};
use crate::edge::keys::{DEFAULT_SPACE, check_bind};
use crate::edge::{self, Audit, EdgeOptions, Guard, Keys, Reload, Site};
use crate::engine::OpenError;
use crate::env::Env;
use crate::identity::Identity;
use crate::settings::{MAX_THREADS, Settings};
use crate::spaces::Spaces;
use crate::store::{Folder, StoreError};
use crate::traces::{Routes, Traces};

/// The reason why a server cannot start, or stopped early.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A setting is invalid.
    #[error("{0}")]
    Settings(String),
    /// The address cannot be listened on.
    #[error("cannot listen on {addr}: {reason}")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// The system's error.
        reason: io::Error,
    },
    /// The data folder cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The system has no threads or sockets left.
    #[error("cannot run: {0}")]
    Run(#[from] io::Error),
}

impl From<StoreError> for ServeError {
    fn from(error: StoreError) -> Self {
        ServeError::Open(error.into())
    }
}

/// The milliseconds for which a node that shuts down waits for others to take its partitions.
const MAX_DRAIN: u64 = 8_000;

/// The number of tasks that a thread runs before it looks for requests that have arrived. With the runtime's default, 61,
/// a request waits longer behind those of a space that is flooded.
const EVENT_INTERVAL: u32 = 6;

/// The path prefixes that pages of other web sites may not call.
const SAME_SITE_PATHS: &[&str] = &["/v1", "/metrics"];

/// Serves until `shutdown` ends, then finishes open requests and closes the folder.
///
/// `listening` is called with the address once the log is read and requests are answered. On each message
/// of `reload`, keys and certificates are read again, and the audit log is opened again.
///
/// # Errors
/// If it cannot start.
pub fn serve(
    settings: &Settings,
    listening: impl FnOnce(SocketAddr) + Send + 'static,
    shutdown: impl Future<Output = ()> + Send + 'static,
    reload: mpsc::Receiver<()>,
) -> Result<(), ServeError> {
    check(settings).map_err(ServeError::Settings)?;
    raise_file_limit();
    let keys = Keys::load(settings.keys.as_deref()).map_err(ServeError::Settings)?;
    check_bind(settings.addr, &keys, settings.insecure).map_err(ServeError::Settings)?;
    let mut options = EdgeOptions::from_settings(settings).map_err(ServeError::Settings)?;
    let audit = match &settings.audit {
        Some(file) => Audit::to_file(file).map_err(ServeError::Settings)?,
        None => Audit::to_log(),
    };
    options.site = Site::new(&settings.host, !keys.is_none())
        .map_err(ServeError::Settings)?
        .own(SAME_SITE_PATHS)
        .audited(audit.clone(), admin_route);
    options.routes = settings.otel_endpoint.as_ref().map(|_| route_of as Routes);
    let guard = Guard::with_audit(keys, settings.rate, Some(audit.clone()));
    let files = Reload::new(settings, &guard, options.tls.as_ref(), &audit);
    let unusable = |reason| ServeError::Listen {
        addr: settings.addr,
        reason,
    };
    let listener = TcpListener::bind(settings.addr).map_err(unusable)?;
    let addr = listener.local_addr().map_err(unusable)?;
    let env = Env::real();
    let folder = match &settings.cluster {
        Some(_) => None,
        None => {
            if !settings.data.exists() {
                // Settings that cannot be served make no folder.
                Identity::new(settings, &*env.random).map_err(OpenError::from)?;
            }
            // A folder that is in use, or is not a data folder, is an error before any request is answered.
            Some(Folder::open_to_serve(&env, &settings.data, settings)?)
        }
    };
    let traces = Traces::start(settings, addr).map_err(ServeError::Settings)?;
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if settings.threads > 0 {
        builder.worker_threads(settings.threads);
    }
    let runtime = builder
        .enable_all()
        .event_interval(EVENT_INTERVAL)
        .thread_name("sclub")
        .build()?;
    if settings.insecure {
        tracing::warn!(%addr, "insecure: any client that reaches this address has full access");
    }
    runtime.spawn(reload_files(files, reload));
    let ready = move || listening(addr);
    let outcome = match folder {
        Some(folder) => {
            let spaces = {
                let _inside = runtime.enter();
                Spaces::new(settings, guard)
            };
            let served = run(
                Arc::clone(&spaces),
                listener,
                options,
                folder,
                ready,
                shutdown,
            );
            let outcome = runtime.block_on(served);
            spaces.close_all(runtime.handle());
            outcome
        }
        None => runtime.block_on(run_node(
            App::new(settings.clone()),
            listener,
            guard.of_space(DEFAULT_SPACE, settings.rate),
            options,
            env,
            ready,
            shutdown,
        )),
    };
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    if let Some(traces) = traces {
        traces.close();
    }
    outcome
}

/// Reads files again on each message, for as long as the runtime lives.
async fn reload_files(files: Reload, mut requests: mpsc::Receiver<()>) {
    let files = Arc::new(files);
    while requests.recv().await.is_some() {
        let files = Arc::clone(&files);
        // A panic is logged; the next reload may succeed.
        let _ = tokio::task::spawn_blocking(move || files.run()).await;
    }
}

async fn run(
    spaces: Arc<Spaces>,
    listener: TcpListener,
    options: EdgeOptions,
    folder: Folder,
    ready: impl FnOnce() + Send + 'static,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), ServeError> {
    let default = spaces.default_space();
    default.app.know_errors(Arc::clone(&options.errors));
    let router = with_spaces(default.router.clone(), Arc::clone(&spaces));
    let (failed, mut failure) = tokio::sync::mpsc::channel::<OpenError>(1);
    let opening = tokio::task::spawn_blocking(move || match spaces.start(&default, folder) {
        Ok(()) => {
            spaces.open_all();
            ready();
        }
        Err(error) => drop(failed.blocking_send(error)),
    });
    let mut broken = None;
    let ended = edge::serve(listener, router, options, async {
        tokio::select! {
            () = shutdown => tracing::info!("shutting down: requests in flight are finished"),
            Some(error) = failure.recv() => broken = Some(error),
        }
    })
    .await?;
    // If the engine is still being opened, wait for it, so that it can be closed.
    let _ = opening.await;
    if ended.cut > 0 {
        tracing::warn!(cut = ended.cut, "connections were cut");
    }
    match broken {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}

/// Runs a node of a cluster.
async fn run_node(
    app: Arc<App>,
    listener: TcpListener,
    guard: Guard,
    options: EdgeOptions,
    env: Env,
    ready: impl FnOnce() + Send + 'static,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), ServeError> {
    let mut settings = app.settings().clone();
    let addr = listener.local_addr()?;
    settings.addr = addr;
    let name = settings.node.clone().unwrap_or_else(|| default_name(addr));
    let node = async {
        let options = NatsOptions {
            url: settings.cluster.clone().unwrap_or_default(),
            cluster: settings.cluster_name.clone(),
            creds: settings.nats_creds.clone(),
            ca: settings.nats_ca.clone(),
        };
        let bus = NatsBus::connect(options)
            .await
            .map_err(|error| error.to_string())?;
        bus.check_server().map_err(|error| error.to_string())?;
        let standby = settings.standby;
        Node::join(NodeParts {
            bus,
            env,
            tasks: Arc::new(TokioTasks(tokio::runtime::Handle::current())),
            settings,
            name,
            standby,
        })
        .await
    };
    let node = node.await.map_err(ServeError::Settings)?;
    node.start();
    app.join(Arc::clone(&node));
    app.know_errors(Arc::clone(&options.errors));
    let router = no_spaces(router(Arc::clone(&app), &guard));
    tokio::spawn(Arc::clone(&app).count_seconds());
    let starting = Arc::clone(&node);
    tokio::spawn(async move {
        while !starting.is_ready() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        tracing::info!(node = starting.name, "ready");
        ready();
    });
    let mut broken = None;
    let ended = edge::serve(listener, router, options, async {
        tokio::select! {
            () = shutdown => {
                tracing::info!("shutting down: partitions are handed to other nodes");
                node.close(MAX_DRAIN).await;
            }
            reason = node.failed() => broken = Some(reason),
        }
    })
    .await?;
    if ended.cut > 0 {
        tracing::warn!(cut = ended.cut, "connections were cut");
    }
    app.save_last_figures();
    match broken {
        Some(reason) => Err(ServeError::Settings(reason)),
        None => Ok(()),
    }
}

/// The default name of a node.
fn default_name(addr: SocketAddr) -> String {
    #[cfg(target_os = "linux")]
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    #[cfg(not(target_os = "linux"))]
    let host = "node".to_owned();
    let host = host.split('.').next().unwrap_or("node");
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    format!(
        "{}-{}",
        host.chars().map(plain).collect::<String>(),
        addr.port()
    )
}

/// Raises the limit of open files to the maximum: connections and files of the log share it.
fn raise_file_limit() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Resource, getrlimit, setrlimit};
        let mut limit = getrlimit(Resource::Nofile);
        limit.current = limit.maximum;
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::debug!(%error, "the limit of open files stays as it is");
        }
    }
}

/// Validates the settings that are not validated elsewhere.
///
/// # Errors
/// Names the setting, its value and what is allowed.
pub fn check(settings: &Settings) -> Result<(), String> {
    let Settings {
        reward_min,
        reward_max,
        ..
    } = *settings;
    let refused = Err::<(), String>;
    if !(reward_min.is_finite() && reward_max.is_finite() && reward_min < reward_max) {
        return refused(format!(
            "reward-min is {reward_min} and reward-max {reward_max}; both must be finite, and reward-min must be smaller"
        ));
    }
    // Policies refuse larger rewards.
    let max = sclub::MAX_MAGNITUDE;
    if reward_min < -max || reward_max > max {
        return refused(format!(
            "reward-min is {reward_min} and reward-max {reward_max}; both must be from -{max:e} to {max:e}"
        ));
    }
    let counts = [
        ("lifetime", settings.lifetime),
        ("snapshot-every", settings.snapshot_every),
        ("max-body", settings.max_body as u64),
        ("max-candidates", settings.max_candidates as u64),
        ("max-k", settings.max_k as u64),
        ("max-dim", settings.max_dim as u64),
        ("max-id", settings.max_id as u64),
        ("max-batch", settings.max_batch as u64),
    ];
    for (name, count) in counts {
        if count == 0 {
            return refused(format!("{name} is 0; it must be at least 1"));
        }
    }
    if settings.threads > MAX_THREADS {
        return refused(format!(
            "threads is {}; it must be at most {MAX_THREADS}",
            settings.threads
        ));
    }
    if settings.fit_threads > MAX_THREADS {
        return refused(format!(
            "fit-threads is {}; it must be at most {MAX_THREADS}",
            settings.fit_threads
        ));
    }
    let ratio = settings.otel_sample_ratio;
    if !(0.0..=1.0).contains(&ratio) {
        return refused(format!(
            "otel-sample-ratio is {ratio}; it must be from 0 to 1"
        ));
    }
    if settings.max_dim > sclub::MAX_DIM {
        return refused(format!(
            "max-dim is {}; it must be at most {}",
            settings.max_dim,
            sclub::MAX_DIM
        ));
    }
    Ok(())
}
