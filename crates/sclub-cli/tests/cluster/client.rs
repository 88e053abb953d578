//! An HTTP client of one node, independent of the program's own.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// The answer to a request.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// The header Retry-After, in seconds.
    pub retry_after: Option<u64>,
    pub body: Value,
}

/// A connection to a node that is kept, and opened again when it breaks.
pub struct Client {
    address: SocketAddr,
    timeout: Duration,
    stream: Option<BufReader<TcpStream>>,
}

impl Client {
    pub fn new(port: u16, timeout: Duration) -> Self {
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            timeout,
            stream: None,
        }
    }

    /// Sends a request once. None without an answer: it may have been executed, or may be executed later.
    pub fn call(&mut self, method: &str, path: &str, body: &str) -> Option<Answer> {
        let answer = self.attempt(method, path, body);
        if answer.is_none() {
            self.stream = None;
        }
        answer
    }

    fn attempt(&mut self, method: &str, path: &str, body: &str) -> Option<Answer> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => {
                let stream = TcpStream::connect_timeout(&self.address, self.timeout).ok()?;
                stream.set_nodelay(true).ok()?;
                stream.set_read_timeout(Some(self.timeout)).ok()?;
                none.insert(BufReader::new(stream))
            }
        };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.get_mut().write_all(head.as_bytes()).ok()?;
        let mut line = String::new();
        stream.read_line(&mut line).ok()?;
        let status = line.split(' ').nth(1)?.parse().ok()?;
        let (mut length, mut retry_after, mut is_last) = (0, None, false);
        loop {
            line.clear();
            stream.read_line(&mut line).ok()?;
            let Some((name, value)) = line.trim_end().split_once(": ") else {
                break;
            };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse().ok()?,
                "retry-after" => retry_after = value.parse().ok(),
                "connection" => is_last = value == "close",
                _ => {}
            }
        }
        let mut bytes = vec![0; length];
        stream.read_exact(&mut bytes).ok()?;
        if is_last {
            self.stream = None;
        }
        let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
        Some(Answer {
            status,
            retry_after,
            body: serde_json::from_slice(&bytes).unwrap_or_else(|_| text()),
        })
    }
}
