//! A remote server and its answers.

use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use sclub_server::client::{ClientError, Connection, Response, Roots, Url};
use serde_json::Value;

/// Flags for the API key to send and the certificates to trust.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct TrustArgs {
    /// API key to send, if the server requires one
    #[arg(
        long,
        value_name = "KEY",
        env = "SCLUB_KEY",
        hide_env_values = true,
        help_heading = "Server"
    )]
    pub key: Option<String>,

    /// File with the certificates to trust over https, PEM [default: the authorities this machine trusts]
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    pub ca: Option<PathBuf>,
}

/// A server that connections can be opened to.
#[derive(Debug, Clone)]
pub struct Remote {
    url: Url,
    roots: Option<Roots>,
    key: Option<String>,
}

impl Remote {
    /// The server at an address.
    pub fn new(url: &str, trust: &TrustArgs) -> Result<Self> {
        Ok(Self {
            url: url.parse()?,
            roots: trust.ca.as_deref().map(Roots::from_file).transpose()?,
            key: trust.key.clone().filter(|key| !key.is_empty()),
        })
    }

    /// The address of the server.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Connects.
    pub async fn open(&self) -> Result<Connection> {
        let opened = Connection::open(&self.url, self.roots.as_ref()).await;
        let mut connection = opened.map_err(|error| match error {
            ClientError::Connect { url, .. } => {
                anyhow!("no server answers at {url}: start one with `sclub serve`")
            }
            other => other.into(),
        })?;
        if let Some(key) = &self.key {
            connection.set_key(key)?;
        }
        Ok(connection)
    }
}

/// The error with which a server refused a request.
#[derive(Debug)]
pub struct Refusal {
    /// The status, as 422.
    pub status: u16,
    /// The error code, as `invalid`; empty if the answer has none.
    pub code: String,
    message: String,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the server answered {}: {}", self.status, self.message)?;
        match self.status {
            401 => f.write_str("; give this command a key with --key or SCLUB_KEY"),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for Refusal {}

impl Refusal {
    /// Reads the error from an answer that is not a success.
    pub fn of(response: &Response) -> Self {
        Self::answered(response.status, &response.body)
    }

    /// The error in the body of an answer.
    pub fn answered(status: u16, answer: &[u8]) -> Self {
        let body: Value = serde_json::from_slice(answer).unwrap_or_default();
        let error = &body["error"];
        let message = match error["message"].as_str() {
            Some(message) => message.to_owned(),
            None => excerpt(answer),
        };
        Self {
            status,
            code: error["code"].as_str().unwrap_or_default().to_owned(),
            message,
        }
    }
}

/// The beginning of an unexpected answer.
fn excerpt(body: &[u8]) -> String {
    const MOST: usize = 200;
    let text = String::from_utf8_lossy(body);
    let text: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(MOST) {
        _ if text.is_empty() => "nothing".into(),
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// The body of a successful answer.
pub fn body_of(response: &Response) -> Result<&[u8]> {
    if response.is_success() {
        Ok(&response.body)
    } else {
        Err(Refusal::of(response).into())
    }
}

/// Sends a request and parses the answer as JSON.
pub async fn call(
    connection: &mut Connection,
    method: &str,
    path: &str,
    body: &[u8],
) -> Result<Value> {
    let response = connection.request(method, path, body).await?;
    let body = body_of(&response)?;
    match serde_json::from_slice(body) {
        Ok(value) => Ok(value),
        Err(_) => {
            let said = excerpt(body);
            let url = connection.url();
            bail!("{url} is not an sclub server: the answer is not JSON ({said}); check --url")
        }
    }
}

/// Runs something to its end on this thread.
pub fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(work)
}
