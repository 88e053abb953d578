//! The measurement of one space's latency while another one is flooded and fits. It takes time, and is printed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use sclub_server::serve;
use sclub_server::settings::Settings;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot};

/// The number of connections that flood a space.
const FLOOD: usize = 64;
/// The time between two requests of the space that is measured.
const PACE: Duration = Duration::from_millis(2);
const PHASE: Duration = Duration::from_secs(6);
const PHASES: usize = 5;
const ITEMS: usize = 20;
const DIM: usize = 16;

struct Client(TcpStream);

impl Client {
    async fn open(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }

    async fn call(&mut self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = body.to_string();
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        self.0.write_all((head + &body).as_bytes()).await.unwrap();
        let mut answer = Vec::with_capacity(8 << 10);
        loop {
            self.0.read_buf(&mut answer).await.unwrap();
            let text = String::from_utf8_lossy(&answer);
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = head
                    .lines()
                    .find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
                if body.len() >= length.unwrap() {
                    return (
                        head[9..12].parse().unwrap(),
                        serde_json::from_str(body).unwrap(),
                    );
                }
            }
        }
    }
}

async fn flood(addr: SocketAddr, on: Arc<AtomicBool>, done: Arc<AtomicU64>, number: usize) {
    let mut client = Client::open(addr).await;
    for round in 0usize.. {
        if !on.load(Relaxed) {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        }
        let user = json!({"user": format!("u{}", (round * FLOOD + number) % 5000)});
        let (_, shown) = client.call("POST", "/v1/spaces/a/recommend", &user).await;
        if round % 4 == 0 {
            let reward = json!({"decision": shown["decision"], "reward": round % 3 % 2});
            client.call("POST", "/v1/spaces/a/feedback", &reward).await;
        }
        done.fetch_add(1, Relaxed);
    }
}

/// The median and the 99th percentile of the latencies of recommendations in a space, in milliseconds.
async fn measure(addr: SocketAddr) -> (f64, f64) {
    let mut client = Client::open(addr).await;
    let mut times = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < PHASE {
        let user = json!({"user": format!("u{}", times.len() % 500)});
        let asked = Instant::now();
        let (status, _) = client.call("POST", "/v1/spaces/b/recommend", &user).await;
        times.push(asked.elapsed().as_secs_f64() * 1e3);
        assert_eq!(status, 200);
        tokio::time::sleep(PACE).await;
    }
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[(times.len() as f64 * share) as usize];
    (at(0.5), at(0.99))
}

/// Makes this thread run only where no other one wants to: the clients of a flood would be on other machines.
fn give_way() {
    #[cfg(target_os = "linux")]
    {
        let thread = std::fs::read_link("/proc/thread-self").unwrap();
        let done = std::process::Command::new("chrt")
            .args(["--idle", "--pid", "0"])
            .arg(thread.file_name().unwrap())
            .status();
        assert!(done.unwrap().success());
    }
}

fn median(values: &[(f64, f64)], of: fn(&(f64, f64)) -> f64) -> f64 {
    let mut values: Vec<f64> = values.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
#[ignore = "a measurement, which takes a minute"]
fn latency_beside_a_flooded_space() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings {
        data: folder.path().to_owned(),
        addr: SocketAddr::from(([127, 0, 0, 1], 0)),
        ..Settings::default()
    };
    let (listening, started) = std::sync::mpsc::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let server = std::thread::spawn(move || {
        let ready = move |addr| listening.send(addr).unwrap();
        serve(
            &settings,
            ready,
            async { drop(stopped.await) },
            mpsc::channel(1).1,
        )
    });
    let addr = started.recv().unwrap();
    let clients = Builder::new_current_thread().enable_all().build().unwrap();
    clients.block_on(async {
        let mut client = Client::open(addr).await;
        for space in ["a", "b"] {
            let base = format!("/v1/spaces/{space}");
            client
                .call("PUT", &base, &json!({"policy": "sclub-soft", "dim": DIM}))
                .await;
            for item in 0..ITEMS {
                let features: Vec<f64> = (0..DIM)
                    .map(|at| (((item * 31 + at * 17) % 23) as f64 - 11.0) / 40.0)
                    .collect();
                let item = json!({"id": format!("i{item}"), "features": features});
                let (status, answer) = client.call("PUT", &format!("{base}/items"), &item).await;
                assert_eq!(status, 200, "{answer}");
            }
        }
    });
    let (on, done) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    {
        let (on, done) = (Arc::clone(&on), Arc::clone(&done));
        std::thread::spawn(move || {
            give_way();
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let floods = (0..FLOOD)
                    .map(|number| flood(addr, Arc::clone(&on), Arc::clone(&done), number));
                futures_util::future::join_all(floods).await
            });
        });
    }
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for phase in 0..PHASES {
        alone.push(clients.block_on(measure(addr)));
        on.store(true, Relaxed);
        let before = done.load(Relaxed);
        beside.push(clients.block_on(measure(addr)));
        let rate = (done.load(Relaxed) - before) as f64 / PHASE.as_secs_f64();
        on.store(false, Relaxed);
        println!(
            "{phase}: alone {:?}, beside {:?}, flood {rate:.0}/s",
            alone[phase], beside[phase]
        );
        std::thread::sleep(Duration::from_millis(500));
    }
    let (_, state) = clients.block_on(async {
        let mut client = Client::open(addr).await;
        client.call("GET", "/v1/spaces/a/state", &Value::Null).await
    });
    println!("fits of the flooded space: {}", state["clustering"]["fits"]);
    for (name, of) in [
        ("median", (|p| p.0) as fn(&(f64, f64)) -> f64),
        ("p99", |p| p.1),
    ] {
        let (alone, beside) = (median(&alone, of), median(&beside, of));
        println!(
            "{name}: alone {alone:.3} ms, beside {beside:.3} ms, ratio {:.2}",
            beside / alone
        );
    }
    drop(stop);
    server.join().unwrap().unwrap();
}
