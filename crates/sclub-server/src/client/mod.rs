//! A client for this service: HTTP/1.1 over one connection that is kept open, by hyper.
//!
//! Over https it trusts the certificates it is given, or else the certificate authorities of this machine.

mod connection;
mod link;
mod roots;
#[cfg(test)]
mod tests;
mod url;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

pub use connection::{Connection, DEFAULT_TIMEOUT, Response};
pub use roots::Roots;
pub use url::Url;

/// The reason why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The URL is invalid.
    #[error("'{url}' is not the URL of a server: {why}")]
    Url {
        /// The URL.
        url: String,
        /// The reason.
        why: &'static str,
    },
    /// The trusted certificates cannot be read.
    #[error("cannot read certificates from {}: {why}", path.display())]
    Roots {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// No server answers.
    #[error("no server answers at {url}: {reason}")]
    Connect {
        /// The server's URL.
        url: String,
        /// The system's error.
        reason: io::Error,
    },
    /// The TLS handshake failed.
    #[error("no secure connection to {url}: {reason}")]
    Tls {
        /// The server's URL.
        url: String,
        /// The system's error.
        reason: io::Error,
    },
    /// The connection was lost.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// A download ended before all of it had come.
    #[error("the download ended early; the server's log has the reason")]
    EndedEarly,
    /// No answer came within the timeout.
    #[error("no answer within {} s", .0.as_secs_f64())]
    Timeout(Duration),
    /// The answer is not HTTP.
    #[error("the answer is not HTTP: {0}")]
    NotHttp(String),
    /// The sink of a download failed.
    #[error("{0}")]
    Sink(io::Error),
}
