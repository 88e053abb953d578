//! The audit log: every call that needs the admin role, including refused ones.
//!
//! It has the names of keys, addresses, and routes as patterns. It never has user ids.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::locks::lock;

use axum::http::{HeaderValue, Method, StatusCode};
use serde::Serialize;

/// The audit log: the ordinary log, or a file of JSON lines.
#[derive(Debug, Clone)]
pub struct Audit(Arc<Sink>);

#[derive(Debug)]
enum Sink {
    Log,
    File(PathBuf, Mutex<Out>),
}

#[derive(Debug)]
struct Out {
    file: File,
    /// True after a failed write, so that the failure is logged once and not for each line.
    failing: bool,
}

/// A line of the file.
#[derive(Debug, Serialize)]
struct Line<'a> {
    /// The time of the call, in milliseconds since 1970.
    at: u64,
    key: &'a str,
    address: SocketAddr,
    request_id: &'a str,
    method: &'a str,
    route: &'a str,
    /// The space, if the server has spaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    space: Option<&'a str>,
    status: u16,
    milliseconds: u64,
}

impl Audit {
    /// An audit log in the ordinary log, at level info with the target `audit`.
    pub fn to_log() -> Self {
        Self(Arc::new(Sink::Log))
    }

    /// An audit log that is appended to a file, which only its owner can read.
    ///
    /// # Errors
    /// If the file cannot be opened; the message names it.
    pub fn to_file(path: &Path) -> Result<Self, String> {
        let file = open(path)?;
        let out = Mutex::new(Out {
            file,
            failing: false,
        });
        Ok(Self(Arc::new(Sink::File(path.to_owned(), out))))
    }

    /// The path of the file, if there is one.
    pub fn file(&self) -> Option<&Path> {
        match &*self.0 {
            Sink::Log => None,
            Sink::File(path, _) => Some(path),
        }
    }

    /// Opens the file again: the old one may have been renamed.
    ///
    /// # Errors
    /// If the file cannot be opened; the message names it. The old one stays in use.
    pub fn reopen(&self) -> Result<(), String> {
        if let Sink::File(path, out) = &*self.0 {
            let file = open(path)?;
            lock(out).file = file;
        }
        Ok(())
    }

    fn record(&self, line: &Line<'_>) {
        match &*self.0 {
            Sink::Log => tracing::info!(
                target: "audit",
                key = line.key,
                address = %line.address,
                request_id = line.request_id,
                method = line.method,
                route = line.route,
                space = line.space,
                status = line.status,
                milliseconds = line.milliseconds,
                "audit"
            ),
            Sink::File(path, out) => {
                let mut text = serde_json::to_vec(line).expect("plain data");
                text.push(b'\n');
                let mut out = lock(out);
                let outcome = out.file.write_all(&text);
                if let Err(error) = &outcome
                    && !out.failing
                {
                    let file = path.display();
                    tracing::error!(%file, %error, "the audit log cannot be written");
                }
                out.failing = outcome.is_err();
            }
        }
    }
}

fn open(path: &Path) -> Result<File, String> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let failed =
        |error: io::Error| format!("cannot open the audit log {}: {error}", path.display());
    options.open(path).map_err(failed)
}

/// A call in flight. It is recorded when it is answered, or when the client disconnects.
#[derive(Debug)]
pub(crate) struct Call {
    audit: Audit,
    begun: Instant,
    key: Option<Arc<str>>,
    address: SocketAddr,
    id: Option<HeaderValue>,
    method: Method,
    route: Box<str>,
    space: Option<Box<str>>,
    status: Option<StatusCode>,
}

impl Call {
    pub(super) fn new(
        audit: &Audit,
        address: SocketAddr,
        id: Option<HeaderValue>,
        method: &Method,
        route: &str,
        space: Option<&str>,
    ) -> Self {
        Self {
            audit: audit.clone(),
            begun: Instant::now(),
            key: None,
            address,
            id,
            method: method.clone(),
            route: route.into(),
            space: space.map(Into::into),
            status: None,
        }
    }

    /// Sets the name of the key that it was made with.
    pub(crate) fn by(&mut self, key: Option<Arc<str>>) {
        self.key = key;
    }

    /// Records the call with the status of its answer.
    pub(crate) fn answered(mut self, status: StatusCode) {
        self.status = Some(status);
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // The client disconnected before the answer. Not an HTTP status, but commonly used for this.
        const CLIENT_CLOSED: u16 = 499;
        let status = match self.status {
            Some(status) => status.as_u16(),
            None if std::thread::panicking() => StatusCode::INTERNAL_SERVER_ERROR.as_u16(),
            None => CLIENT_CLOSED,
        };
        let at = SystemTime::now().duration_since(UNIX_EPOCH);
        let id = self.id.as_ref().and_then(|id| id.to_str().ok());
        self.audit.record(&Line {
            at: at.map_or(0, |at| at.as_millis() as u64),
            key: self.key.as_deref().unwrap_or("-"),
            address: self.address,
            request_id: id.unwrap_or("-"),
            method: self.method.as_str(),
            route: &self.route,
            space: self.space.as_deref(),
            status,
            milliseconds: self.begun.elapsed().as_millis() as u64,
        });
    }
}
