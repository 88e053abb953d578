//! The calls of operators: forgetting users, snapshots, compaction, backup and export.

use std::io::{self, Write};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::Response;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, HeaderValue};
use sclub::Users;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::blocking::start;
use super::calls::WARNING;
use super::model::{CompactResponse, ExpectRequest, ExpectResponse, Forgotten, SnapshotResponse};
use super::{Answer, Id, Shared, Work, body, fold_failed, json, parse};
use crate::cluster::{Node, export_all};
use crate::edge::ApiError;
use crate::edge::error::ErrorBody;
use crate::engine::{Engine, FoldError};
use crate::meters::Meters;
use crate::store::StoreError;

/// The header of an export that names nodes which are not running.
pub const MISSING_NODES: &str = "sclub-missing-nodes";

/// The number of parts of a download that are buffered.
const PARTS: usize = 8;

/// The length of a part in bytes.
const PART: usize = 256 << 10;

/// Forgets a user: the user's statistics are removed from the cluster's sums, and earlier decisions for the
/// user no longer accept a reward. After a compaction no data of the user is in the data folder.
#[utoipa::path(delete, path = "/v1/users/{id}", tag = "admin", params(("id" = String, Path, description = "The user's id")), responses(
    (status = 200, body = Forgotten, description = "The user is forgotten")))]
pub(super) async fn forget(State(app): State<Shared>, Id(id): Id) -> Result<Answer, ApiError> {
    let engine = app.ready()?;
    super::calls::check_id(&app.settings, &id, || "user".to_owned())?;
    let known = engine.forget(&id).await?;
    Ok(json(&Forgotten {
        forgotten: true,
        known,
    }))
}

/// Declares the number of users who exist before the first round, as in the paper. Optional: without it,
/// users exist once they appear.
#[utoipa::path(post, path = "/v1/admin/expect", tag = "admin", request_body(content = ExpectRequest, example = json!({"users": 1000})), responses(
    (status = 200, body = ExpectResponse, description = "The number of users that are expected now"),
    (status = 409, body = ErrorBody, description = "`begun`: the first round has been learned")))]
pub(super) async fn expect(
    State(app): State<Shared>,
    request: Request,
) -> Result<Answer, ApiError> {
    let engine = app.ready()?;
    let bytes = body(&app, request).await?;
    let ExpectRequest { users } = parse(&bytes)?;
    let users = users.within("users", 0, Users::LIMIT)?;
    engine.expect(users).await?;
    Ok(json(&ExpectResponse {
        expected_users: users,
    }))
}

/// Takes a snapshot and removes the data of forgotten users from the data folder.
#[utoipa::path(post, path = "/v1/admin/compact", tag = "admin", responses(
    (status = 200, body = CompactResponse, description = "The compaction is done")))]
pub(super) async fn compact(State(app): State<Shared>) -> Result<Answer, ApiError> {
    let engine = app.ready()?;
    let done = engine.compact().await;
    let done = done.map_err(|error| not_written(engine, "compacted data", &error))?;
    // The counts of items were made anew, without the forgotten users.
    let own = Arc::clone(&app);
    let _ = tokio::task::spawn_blocking(move || own.save_figures()).await;
    Ok(json(&CompactResponse {
        events: done.events,
        dropped: done.dropped,
        bytes_before: done.bytes_before,
        bytes_after: done.bytes_after,
        unconfirmed: Vec::new(),
    }))
}

/// Takes a snapshot.
#[utoipa::path(post, path = "/v1/admin/snapshot", tag = "admin", responses(
    (status = 200, body = SnapshotResponse, description = "The snapshot is taken")))]
pub(super) async fn snapshot(State(app): State<Shared>) -> Result<Answer, ApiError> {
    let engine = app.ready()?;
    let at = engine.snapshot().await;
    let at = at.map_err(|error| not_written(engine, "snapshot", &error))?;
    Ok(json(&SnapshotResponse { at }))
}

/// The answer for files that cannot be written. The server is not read-only by that: its log has files of its own.
fn not_written(engine: &Engine, what: &str, error: &FoldError) -> ApiError {
    let answer = fold_failed(error);
    match error {
        FoldError::Store(StoreError::Write { reason, .. }) if engine.read_only().is_none() => {
            let message = format!(
                "the {what} could not be written: {reason}; the server's log has the details"
            );
            ApiError {
                message,
                ..ApiError::internal()
            }
        }
        _ => answer,
    }
}

/// Returns the contents of the data folder, as a file for `sclub restore`. Recommending and learning go on.
#[utoipa::path(get, path = "/v1/admin/backup", tag = "admin", responses(
    (status = 200, body = [u8], content_type = "application/octet-stream", headers(("x-sclub-warning" = String, description = "A warning that the journal cannot be written: the backup has all rewards, and lacks the last decisions. Absent otherwise")), description = "The file"),
    (status = 501, body = ErrorBody, description = "`unsupported`: the server is a node of a cluster; use `sclub cluster backup`")))]
pub(super) async fn backup(State(app): State<Shared>) -> Result<Answer, ApiError> {
    // Before the answer begins, for its header.
    let can_journal = match app.ready()?.flush_journal().await {
        Err(FoldError::Store(StoreError::Write { .. })) => false,
        flushed => {
            flushed.map_err(|error| fold_failed(&error))?;
            true
        }
    };
    let mut answer = download(
        app,
        "application/octet-stream",
        "attachment; filename=\"sclub.backup\"",
        |engine, out| {
            let written = Handle::current().block_on(engine.backup(out));
            written.map(drop).map_err(io::Error::other)
        },
    )
    .await?;
    if !can_journal {
        let warning = "the journal cannot be written: the backup has all rewards, and lacks the last decisions";
        let headers = answer.headers_mut();
        headers.insert(WARNING, HeaderValue::from_static(warning));
    }
    Ok(answer)
}

/// Returns every item shown with its reward, one JSON object a line; then the items without a reward.
#[utoipa::path(get, path = "/v1/admin/export", tag = "admin", responses(
    (status = 200, body = String, content_type = "application/x-ndjson", description = "One item shown a line. The schema is that of all lines as a list", headers(("sclub-missing-nodes" = String, description = "The nodes of a cluster that are not running: what only they have is missing")))))]
pub(super) async fn export(State(app): State<Shared>) -> Result<Answer, ApiError> {
    // Before the answer begins: an export without the latest rewards would be wrong.
    let flushed = app.ready()?.flush_journal().await;
    flushed.map_err(|error| fold_failed(&error))?;
    download(
        app,
        "application/x-ndjson",
        "attachment; filename=\"sclub.jsonl\"",
        |engine, out| {
            let written = Handle::current().block_on(engine.export(out));
            written.map(drop).map_err(io::Error::other)
        },
    )
    .await
}

/// The export of a cluster. A header names the nodes that are not running: what only they have is missing.
pub(super) fn export_cluster(node: Arc<Node>) -> Answer {
    let missing = node.missing();
    let announced = HeaderValue::from_str(&missing.join(", ")).ok();
    let (sender, parts) = mpsc::channel::<io::Result<Bytes>>(PARTS);
    tokio::task::spawn_blocking(move || {
        let mut out = Parts {
            sender: sender.clone(),
            part: Vec::with_capacity(PART),
        };
        let run = || {
            let done = Handle::current().block_on(export_all(&node, &mut out));
            let done = done.map_err(io::Error::other)?;
            let names = done.missing.join(", ");
            // Nodes that fail now are not in the header: the download ends without being complete.
            if done.missing.iter().any(|name| !missing.contains(name)) {
                return Err(io::Error::other(format!("no answer from {names}")));
            }
            if !missing.is_empty() {
                tracing::warn!(
                    missing = names,
                    "the export lacks what only these nodes have"
                );
            }
            out.flush()
        };
        send_end(
            &sender,
            std::panic::catch_unwind(AssertUnwindSafe(run)),
            &node.meters,
        );
    });
    let mut answer = attachment(
        parts,
        "application/x-ndjson",
        "attachment; filename=\"sclub.jsonl\"",
    );
    if let Some(names) = announced.filter(|names| !names.is_empty()) {
        answer.headers_mut().insert(MISSING_NODES, names);
    }
    answer
}

/// Sends an error if the work failed. A panic would look like the end of the file to the client.
fn send_end(
    sender: &mpsc::Sender<io::Result<Bytes>>,
    done: std::thread::Result<io::Result<()>>,
    meters: &Meters,
) {
    let done = done.unwrap_or_else(|_| Err(io::Error::other("it panicked")));
    if let Err(error) = done {
        match sender.is_closed() {
            true => tracing::debug!("a client ended a download early"),
            false => {
                tracing::error!(%error, "a download failed");
                meters.download_failures.increment(1);
            }
        }
        let _ = sender.blocking_send(Err(io::Error::other("not finished")));
    }
}

/// An answer with the parts that come from a channel.
fn attachment(
    mut parts: mpsc::Receiver<io::Result<Bytes>>,
    kind: &'static str,
    name: &'static str,
) -> Answer {
    let stream = futures_util::stream::poll_fn(move |context| parts.poll_recv(context));
    let mut answer = Response::new(Body::from_stream(stream));
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CONTENT_DISPOSITION, HeaderValue::from_static(name));
    answer
}

/// An answer that is written while it is sent. If writing fails, the connection is closed, so that the client
/// cannot take the part for the whole.
async fn download(
    app: Shared,
    kind: &'static str,
    name: &'static str,
    work: impl FnOnce(&Engine, &mut dyn Write) -> io::Result<()> + Send + 'static,
) -> Result<Answer, ApiError> {
    let (sender, parts) = mpsc::channel::<io::Result<Bytes>>(PARTS);
    start(&app, Work::Download, move |_, engine| {
        let mut out = Parts {
            sender: sender.clone(),
            part: Vec::with_capacity(PART),
        };
        let run = || work(engine, &mut out).and_then(|()| out.flush());
        send_end(
            &sender,
            std::panic::catch_unwind(AssertUnwindSafe(run)),
            engine.meters(),
        );
    })
    .await?;
    Ok(attachment(parts, kind, name))
}

/// A writer that sends its data in parts.
struct Parts {
    sender: mpsc::Sender<io::Result<Bytes>>,
    part: Vec<u8>,
}

impl Write for Parts {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(PART - self.part.len());
        self.part.extend_from_slice(&bytes[..taken]);
        if self.part.len() == PART {
            self.flush()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.part.is_empty() {
            return Ok(());
        }
        let part = std::mem::replace(&mut self.part, Vec::with_capacity(PART));
        // The writer may be called inside a future, where blocking on another one is not allowed.
        tokio::task::block_in_place(|| self.sender.blocking_send(Ok(part.into())))
            .map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::api::App;
    use crate::env::Env;
    use crate::settings::Settings;

    /// The body of a download, or the error that ended it.
    async fn arrived(
        app: &Shared,
        work: impl FnOnce(&Engine, &mut dyn Write) -> io::Result<()> + Send + 'static,
    ) -> Result<Bytes, axum::Error> {
        let answer = download(Arc::clone(app), "text/plain", "attachment", work).await;
        axum::body::to_bytes(answer.unwrap().into_body(), usize::MAX).await
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_snapshot_that_cannot_be_written_makes_no_server_read_only() {
        let settings = Settings::default();
        let folder = tempfile::tempdir().unwrap();
        let engine = Engine::open(Env::real(), folder.path(), &settings).unwrap();
        let app = App::new(settings);
        app.begin(engine);
        app.engine().unwrap().expect(7).await.unwrap();
        let snapshots = folder.path().join("snapshots");
        std::fs::remove_dir(&snapshots).unwrap();
        std::fs::write(&snapshots, "in the way").unwrap();
        let failures = [
            ("snapshot", snapshot(State(Arc::clone(&app))).await),
            ("compacted data", compact(State(Arc::clone(&app))).await),
        ];
        for (what, answer) in failures {
            let error = answer.unwrap_err();
            assert_eq!((error.status.as_u16(), error.code), (500, "internal"));
            let told = format!("the {what} could not be written: ");
            assert!(error.message.starts_with(&told), "{error}");
            assert!(error.message.contains("log has the details"), "{error}");
            let path = folder.path().to_str().unwrap();
            assert!(!error.message.contains(path), "{error}");
        }
        assert_eq!(app.engine().unwrap().read_only(), None);
        app.engine().unwrap().expect(8).await.unwrap();
        std::fs::remove_file(&snapshots).unwrap();
        std::fs::create_dir(&snapshots).unwrap();
        assert!(snapshot(State(Arc::clone(&app))).await.is_ok());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_download_that_fails_breaks_off() {
        let settings = Settings::default();
        let folder = tempfile::tempdir().unwrap();
        let engine = Engine::open(Env::real(), folder.path(), &settings).unwrap();
        let app = App::new(settings);
        app.begin(engine);
        // More downloads than permits: each permit must be returned.
        for _ in 0..10 {
            let whole = arrived(&app, |_, out| out.write_all(b"all of it")).await;
            assert_eq!(whole.unwrap(), "all of it");
            let failed = arrived(&app, |_, out| {
                out.write_all(b"half")?;
                Err(io::Error::other("the disk is gone"))
            });
            assert!(failed.await.is_err());
            let panicked = arrived(&app, |_, out| {
                let _ = out.write_all(b"half");
                panic!("no more")
            });
            assert!(panicked.await.is_err());
        }
        let metrics = app.engine().unwrap().render_metrics();
        assert!(
            metrics.contains("\nsclub_download_failures_total 20\n"),
            "{metrics}"
        );
    }
}
