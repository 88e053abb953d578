//! `sclub serve`: flags, environment and a file to settings, and the settings to a server.

mod effective;
mod flags;
mod otel;
pub mod systemd;
pub mod variables;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use sclub_features::Transform;
use sclub_server::settings::Settings;
use tokio::sync::mpsc::Sender;

pub use self::effective::EffectiveSettings;
use self::flags::SettingArgs;
pub use self::flags::{ClusterSettingArgs, TeachSettingArgs};
use crate::files::print_line;

/// The environment variable that contains keys, in place of a file.
pub const KEYS: &str = "SCLUB_API_KEYS";

/// The flags of `sclub serve`.
#[derive(Debug, clap::Parser)]
#[command(after_long_help = EXAMPLES)]
pub struct ServeArgs {
    #[command(flatten)]
    settings: SettingArgs,

    /// TOML file with settings, a line each, such as `max-k = 100`
    #[arg(
        long,
        value_name = "FILE",
        env = "SCLUB_CONFIG",
        help_heading = "Configuration"
    )]
    config: Option<PathBuf>,

    /// Print the settings in force and the source of each, as a file for --config; start no server
    #[arg(long, help_heading = "Configuration")]
    print_config: bool,

    /// The arguments that were typed, by name.
    #[arg(skip)]
    pub given: Vec<String>,
}

const EXAMPLES: &str = "\
Each flag is also an environment variable (--max-k is SCLUB_MAX_K) and a line of the file (max-k).
A flag overrides the environment, the environment the file, and the file the default.
Another variable SCLUB_… is an error: it may be mistyped.

Keys are in a file (--keys) or in SCLUB_API_KEYS itself. Without keys the server listens on this
machine only.

Examples:
  sclub serve
      on 127.0.0.1:8080, with all data in the folder sclub-data
  sclub simulate
      in another terminal: simulated users for it; see http://127.0.0.1:8080
  sclub serve --addr 0.0.0.0:8443 --keys keys.txt --tls-cert chain.pem --tls-key key.pem
      for other machines
  sclub serve --reward-min -1 --lifetime 86400 --print-config > sclub.toml
      saves the settings; use them with --config sclub.toml
";

impl ServeArgs {
    /// The flags that `sclub import` and `sclub reteach` have in common with `sclub serve`.
    pub fn of_teaching(settings: &TeachSettingArgs) -> Self {
        let given = settings.0.given.keys().cloned();
        Self {
            settings: settings.0.clone(),
            config: None,
            print_config: false,
            given: given.collect(),
        }
    }

    /// The flags that `sclub cluster init` has in common with `sclub serve`.
    pub fn of_cluster(
        settings: ClusterSettingArgs,
        config: Option<PathBuf>,
        given: Vec<String>,
    ) -> Self {
        Self {
            settings: settings.0,
            config,
            print_config: false,
            given,
        }
    }
}

/// Serves, or prints the settings.
pub fn serve(args: &ServeArgs) -> Result<ExitCode> {
    let effective = EffectiveSettings::of_server(args)?;
    let mut settings = effective.settings()?;
    let keys = std::env::var(KEYS).ok().filter(|keys| !keys.is_empty());
    if args.print_config {
        print_line(&effective.to_toml(keys.is_some()));
        return Ok(ExitCode::SUCCESS);
    }
    load_transform(&mut settings)?;
    start(&settings)
}

/// Reads the file of the transform, if the settings name one.
pub fn load_transform(settings: &mut Settings) -> Result<()> {
    let Some(path) = &settings.features else {
        return Ok(());
    };
    if settings.cluster.is_some() {
        bail!("features: a transform is not supported in a cluster; send vectors of items");
    }
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let transform = Transform::decode(&bytes).with_context(|| format!("{}", path.display()))?;
    settings.transform = Some(Arc::new(transform));
    Ok(())
}

/// Serves until Ctrl-C or SIGTERM. SIGHUP reloads its files.
fn start(settings: &Settings) -> Result<ExitCode> {
    start_log(settings)?;
    let scheme = if settings.tls_cert.is_some() {
        "https"
    } else {
        "http"
    };
    let listening = move |addr: std::net::SocketAddr| {
        print_line(&format!("sclub listens on {scheme}://{addr}"));
        systemd::tell_ready();
    };
    let (reload, reloads) = tokio::sync::mpsc::channel(1);
    let stopped = async {
        stop_requested(Some(reload)).await;
        // A second request stops at once.
        tokio::spawn(async {
            stop_requested(None).await;
            std::process::exit(130);
        });
    };
    sclub_server::serve(settings, listening, stopped, reloads)?;
    Ok(ExitCode::SUCCESS)
}

/// Waits for Ctrl-C or SIGTERM, and passes each SIGHUP on.
#[cfg(unix)]
pub async fn stop_requested(reload: Option<Sender<()>>) {
    use tokio::signal::unix::{SignalKind, signal};
    let signals = [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
    ]
    .map(signal);
    let [Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)] = signals else {
        // A signal then ends the process at once, without waiting for requests in flight.
        eprintln!("sclub: cannot listen for signals");
        return std::future::pending().await;
    };
    loop {
        tokio::select! {
            _ = interrupt.recv() => return,
            _ = terminate.recv() => return,
            _ = hangup.recv() => if let Some(reload) = &reload {
                // If the channel is full, a reload is pending already.
                let _ = reload.try_send(());
            },
        }
    }
}

/// Waits for Ctrl-C.
#[cfg(not(unix))]
pub async fn stop_requested(_: Option<Sender<()>>) {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending().await
    }
}

/// Starts the log on the standard error stream.
fn start_log(settings: &Settings) -> Result<()> {
    // An unknown word would be read as the name of a module, and would silence all others.
    let levels = ["off", "error", "warn", "info", "debug", "trace"];
    let is_known = |part: &str| part.contains('=') || levels.contains(&part.trim());
    if !settings.log.split(',').all(is_known) {
        bail!(
            "log is '{}'; it must be one of {}, or a filter such as sclub_server=debug",
            settings.log,
            levels.join(", ")
        );
    }
    let filter = tracing_subscriber::EnvFilter::try_new(&settings.log)
        .with_context(|| format!("log is '{}', which is not a valid filter", settings.log))?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(systemd::LogWriter::new())
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()));
    if settings.log_format == "json" {
        log.json().flatten_event(true).init();
    } else {
        log.with_target(false).init();
    }
    Ok(())
}
