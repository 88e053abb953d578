//! The HTTP client of the exporter.

use std::pin::Pin;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use opentelemetry_http::{HttpClient, HttpError, Request, Response};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::client::{ClientError, Connection, Roots, Url};
use crate::locks::lock;

/// The variables of OpenTelemetry for a file with the certificates to trust, PEM.
const CERTIFICATES: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_CERTIFICATE",
];

/// The maximum time to send a batch of spans.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Sends batches of spans from the thread of the exporter, over one connection.
#[derive(Debug)]
pub(super) struct Client {
    url: Url,
    /// The certificates to trust; `None` for those of the machine.
    roots: Option<Roots>,
    /// The exporter's thread has no runtime.
    runtime: Runtime,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    connection: Option<Connection>,
    /// True after a failure, so that it is logged once and not for each batch.
    is_failing: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("State")
    }
}

impl Client {
    /// A client for a URL, to which the path `/v1/traces` is added.
    pub(super) fn new(url: &str) -> Result<Self, String> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let failed = |error: ClientError| error.to_string();
        let set = |name| std::env::var_os(name).filter(|file| !file.is_empty());
        let file = CERTIFICATES.iter().find_map(set);
        // Of no use without TLS.
        let file = file.filter(|_| url.starts_with("https:"));
        let roots = file.map(|file| Roots::from_file(file.as_ref()));
        Ok(Self {
            url: url.parse().map_err(failed)?,
            roots: roots.transpose().map_err(failed)?,
            runtime: runtime.map_err(|error| error.to_string())?,
            state: Mutex::default(),
        })
    }

    fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let mut state = lock(&self.state);
        let mut kept = state.connection.take();
        let (head, body) = request.into_parts();
        let send = async {
            let mut connection = match kept.take() {
                Some(connection) => connection,
                None => Connection::open(&self.url, self.roots.as_ref()).await?,
            };
            connection.set_headers(&head.headers);
            let answer = connection.request("POST", super::TRACES_PATH, &body);
            let answer = answer.await?;
            Ok::<_, ClientError>((connection, answer))
        };
        // A timeout can only be made inside the runtime.
        let sent = self
            .runtime
            .block_on(async { timeout(TIMEOUT, send).await });
        let sent = sent.unwrap_or(Err(ClientError::Timeout(TIMEOUT)));
        let failure = match &sent {
            Ok((_, answer)) if answer.is_success() => None,
            Ok((_, answer)) => Some(format!("the answer has status {}", answer.status)),
            Err(error) => Some(error.to_string()),
        };
        match &failure {
            Some(why) if !state.is_failing => {
                tracing::warn!(why, "traces cannot be exported; some will be missing");
            }
            None if state.is_failing => tracing::info!("traces are exported again"),
            _ => {}
        }
        state.is_failing = failure.is_some();
        let (connection, answer) = sent?;
        state.connection = Some(connection);
        Ok(Response::builder()
            .status(answer.status)
            .body(answer.body)?)
    }
}

impl HttpClient for Client {
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        // The exporter waits on a thread of its own.
        Box::pin(async move { self.send(request) })
    }
}
