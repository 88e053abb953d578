//! A real server in a process of its own, and a client that knows nothing of ours.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// For anything that must happen soon.
pub const SOON: Duration = Duration::from_secs(60);

/// The command.
pub fn sclub() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sclub"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SCLUB_")) {
        command.env_remove(name);
    }
    command
}

/// A server in a process of its own; killed when it goes out of scope.
pub struct Server {
    child: Child,
    pub url: String,
    pub address: String,
}

impl Server {
    /// On a folder, at a port that is free, ready to answer.
    pub fn start(data: &Path, more: &[&str]) -> Self {
        let mut command = sclub();
        command.args(["serve", "--addr", "127.0.0.1:0", "--log", "warn", "--data"]);
        command.arg(data).args(more);
        Self::from(command)
    }

    /// From a command that serves at a port of its own choice.
    pub fn from(mut command: Command) -> Self {
        command.stderr(Stdio::inherit());
        Self::from_logged(command)
    }

    /// The same, where the command has a place for the log.
    pub fn from_logged(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        let url = line
            .split_whitespace()
            .find(|word| word.starts_with("http"))
            .unwrap_or_else(|| panic!("no address in '{line}'"))
            .to_owned();
        let address = url
            .split("://")
            .nth(1)
            .unwrap()
            .trim_end_matches('/')
            .to_owned();
        let server = Self {
            child,
            url,
            address,
        };
        if server.url.starts_with("http://") {
            let begun = Instant::now();
            while server
                .try_call("GET", "/readyz", "")
                .is_none_or(|(status, _)| status != 200)
            {
                assert!(begun.elapsed() < SOON, "the server did not get ready");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        server
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Status and JSON body of the answer; panics if there is none.
    pub fn call(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        self.try_call(method, path, body)
            .unwrap_or_else(|| panic!("no answer to {method} {path}"))
    }

    /// Status and body of an answer that has to be a success.
    pub fn ok(&self, method: &str, path: &str, body: &str) -> Value {
        let (status, answer) = self.call(method, path, body);
        assert_eq!(status, 200, "{method} {path} {body}: {answer}");
        answer
    }

    pub fn state(&self) -> Value {
        self.ok("GET", "/v1/state", "")
    }

    pub fn hash(&self) -> String {
        self.hashed()["hash"].as_str().unwrap().to_owned()
    }

    /// The state with its hash.
    pub fn hashed(&self) -> Value {
        self.ok("GET", "/v1/state?hash=true", "")
    }

    /// Waits until nothing happens any more: no fit is being computed, or about to be.
    pub fn settle(&self) {
        let begun = Instant::now();
        let mut before = None;
        loop {
            let state = self.ok("GET", "/v1/state", "");
            let is_fitting = state["clustering"]["fitting"] == true;
            let events = state["events"].clone();
            if !is_fitting && before.as_ref() == Some(&events) {
                return;
            }
            assert!(begun.elapsed() < SOON, "it is never quiet");
            before = (!is_fitting).then_some(events);
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    pub fn try_call(&self, method: &str, path: &str, body: &str) -> Option<(u16, Value)> {
        Client::connect(&self.address)?.call(method, path, body)
    }

    /// Ends it without warning.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to end, and waits.
    pub fn stop(mut self) -> ExitStatus {
        signal(self.id(), "TERM");
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(begun.elapsed() < SOON, "the server did not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn signal(process: u32, name: &str) {
    let sent = Command::new("kill")
        .arg(format!("-{name}"))
        .arg(process.to_string())
        .status()
        .unwrap();
    assert!(sent.success());
}

/// A connection that is kept.
pub struct Client {
    stream: BufReader<TcpStream>,
    /// The `Host` header of its requests.
    pub host: String,
    /// Sent with each request, each line with its end.
    pub headers: String,
}

impl Client {
    pub fn connect(address: &str) -> Option<Self> {
        let stream = TcpStream::connect(address).ok()?;
        stream.set_nodelay(true).ok()?;
        stream.set_read_timeout(Some(SOON)).ok()?;
        Some(Self {
            stream: BufReader::new(stream),
            host: "localhost".to_owned(),
            headers: String::new(),
        })
    }

    pub fn call(&mut self, method: &str, path: &str, body: &str) -> Option<(u16, Value)> {
        let (status, body) = self.bytes(method, path, body.as_bytes())?;
        let value = serde_json::from_slice(&body)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&body).into_owned()));
        Some((status, value))
    }

    pub fn bytes(&mut self, method: &str, path: &str, body: &[u8]) -> Option<(u16, Vec<u8>)> {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\ncontent-length: {}\r\n{}\r\n",
            self.host,
            body.len(),
            self.headers
        );
        let mut request = head.into_bytes();
        request.extend_from_slice(body);
        self.stream.get_mut().write_all(&request).ok()?;
        let mut line = String::new();
        self.stream.read_line(&mut line).ok()?;
        let status = line.split(' ').nth(1)?.parse().ok()?;
        let (mut length, mut chunked) = (0, false);
        loop {
            line.clear();
            self.stream.read_line(&mut line).ok()?;
            let (name, value) = match line.trim_end().split_once(": ") {
                Some((name, value)) => (name.to_ascii_lowercase(), value),
                None => break,
            };
            match name.as_str() {
                "content-length" => length = value.parse().ok()?,
                "transfer-encoding" => chunked = value == "chunked",
                _ => {}
            }
        }
        let mut all = Vec::new();
        if !chunked {
            all.resize(length, 0);
            self.stream.read_exact(&mut all).ok()?;
            return Some((status, all));
        }
        loop {
            line.clear();
            self.stream.read_line(&mut line).ok()?;
            let size = usize::from_str_radix(line.trim_end(), 16).ok()?;
            let start = all.len();
            all.resize(start + size, 0);
            self.stream.read_exact(&mut all[start..]).ok()?;
            self.stream.read_exact(&mut [0; 2]).ok()?;
            if size == 0 {
                return Some((status, all));
            }
        }
    }
}

/// Numbers that look random and are always the same.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, most: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % most
    }

    pub fn unit(&mut self) -> f64 {
        self.below(1 << 20) as f64 / f64::from(1 << 20)
    }
}

/// Items `i0` to `i{n-1}` of a dimension, one JSON object a line.
pub fn items(n: u64, dim: usize) -> String {
    let mut dice = Dice(7);
    (0..n)
        .map(|item| {
            let features: Vec<f64> = (0..dim).map(|_| dice.unit() - 0.5).collect();
            format!(
                "{}\n",
                serde_json::json!({"id": format!("i{item}"), "features": features})
            )
        })
        .collect()
}
