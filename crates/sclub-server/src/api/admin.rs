//! What an operator asks for.

use std::io::{self, Write};
use std::panic::AssertUnwindSafe;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::Response;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, HeaderValue};
use sclub::Users;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::aside::start;
use super::model::{CompactResponse, ExpectRequest, ExpectResponse, Forgotten, SnapshotResponse};
use super::{Answer, Id, Shared, Work, body, fold_failed, json, parse};
use crate::edge::ApiError;
use crate::edge::error::ErrorBody;
use crate::engine::{Engine, Refusal};

/// Parts of a download that may wait to be taken.
const PARTS: usize = 8;

/// Bytes of a part.
const PART: usize = 256 << 10;

/// Forgets a user: her statistics are taken out of her cluster's sums, and decisions made for her can
/// no longer be answered. After a compaction nothing of hers is in the data folder.
#[utoipa::path(delete, path = "/v1/users/{id}", tag = "admin", params(("id" = String, Path, description = "Her id")), responses(
    (status = 200, body = Forgotten, description = "It is done"),
    (status = 503, body = ErrorBody, description = "Nothing can be written at the moment")))]
pub(super) async fn forget(State(app): State<Shared>, Id(id): Id) -> Result<Answer, ApiError> {
    let engine = app.ready()?;
    super::calls::check_id(&app.settings, &id, || "user".to_owned())?;
    let known = engine.forget(&id).await?;
    Ok(json(&Forgotten {
        forgotten: true,
        known,
    }))
}

/// Says how many users exist before the first round, as the paper has it. Not needed: without it,
/// users exist once they appear.
#[utoipa::path(post, path = "/v1/admin/expect", tag = "admin", request_body = ExpectRequest, responses(
    (status = 200, body = ExpectResponse, description = "How many are expected now"),
    (status = 409, body = ErrorBody, description = "The first round is over")))]
pub(super) async fn expect(
    State(app): State<Shared>,
    request: Request,
) -> Result<Answer, ApiError> {
    let engine = app.ready()?;
    let bytes = body(&app, request).await?;
    let ExpectRequest { users } = parse(&bytes)?;
    if users > Users::LIMIT {
        let message = format!("{users} is more than {}", Users::LIMIT);
        return Err(Refusal::invalid("users", message).into());
    }
    engine.expect(users).await?;
    Ok(json(&ExpectResponse {
        expected_users: users,
    }))
}

/// Takes a snapshot and removes what was forgotten from the data folder.
#[utoipa::path(post, path = "/v1/admin/compact", tag = "admin", responses(
    (status = 200, body = CompactResponse, description = "What it did"),
    (status = 503, body = ErrorBody, description = "Nothing can be written at the moment")))]
pub(super) async fn compact(State(app): State<Shared>) -> Result<Answer, ApiError> {
    let engine = app.ready()?;
    let done = engine.compact().await;
    let done = done.map_err(|error| fold_failed(&error))?;
    Ok(json(&CompactResponse {
        events: done.events,
        dropped: done.dropped,
        bytes_before: done.bytes_before,
        bytes_after: done.bytes_after,
    }))
}

/// Takes a snapshot.
#[utoipa::path(post, path = "/v1/admin/snapshot", tag = "admin", responses(
    (status = 200, body = SnapshotResponse, description = "The last event in it"),
    (status = 503, body = ErrorBody, description = "Nothing can be written at the moment")))]
pub(super) async fn snapshot(State(app): State<Shared>) -> Result<Answer, ApiError> {
    let engine = app.ready()?;
    let at = engine.snapshot().await;
    let at = at.map_err(|error| fold_failed(&error))?;
    Ok(json(&SnapshotResponse { at }))
}

/// Everything that is kept, as a file for `sclub restore`. Recommending and learning go on.
#[utoipa::path(get, path = "/v1/admin/backup", tag = "admin", responses(
    (status = 200, body = [u8], content_type = "application/octet-stream", description = "The file")))]
pub(super) async fn backup(State(app): State<Shared>) -> Result<Answer, ApiError> {
    download(
        app,
        "application/octet-stream",
        "attachment; filename=\"sclub.backup\"",
        |engine, out| {
            let written = Handle::current().block_on(engine.backup(out));
            written.map_err(io::Error::other)
        },
    )
    .await
}

/// Every item shown with its reward, one JSON object a line; then those that have none.
#[utoipa::path(get, path = "/v1/admin/export", tag = "admin", responses(
    (status = 200, body = String, content_type = "application/x-ndjson", description = "The lines")))]
pub(super) async fn export(State(app): State<Shared>) -> Result<Answer, ApiError> {
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

/// An answer that is written while it is read. If it cannot be finished the connection breaks off, so
/// that nobody takes half of it for the whole.
async fn download(
    app: Shared,
    kind: &'static str,
    name: &'static str,
    work: impl FnOnce(&Engine, &mut dyn Write) -> io::Result<()> + Send + 'static,
) -> Result<Answer, ApiError> {
    let (sender, mut parts) = mpsc::channel::<io::Result<Bytes>>(PARTS);
    start(&app, Work::Download, move |_, engine| {
        let mut out = Parts {
            sender: sender.clone(),
            part: Vec::with_capacity(PART),
        };
        let run = || work(engine, &mut out).and_then(|()| out.flush());
        // A panic would look like the end of the file to whoever reads it.
        let done = std::panic::catch_unwind(AssertUnwindSafe(run))
            .unwrap_or_else(|_| Err(io::Error::other("it panicked")));
        if let Err(error) = done {
            tracing::warn!(%error, "a download was not finished");
            let _ = sender.blocking_send(Err(io::Error::other("not finished")));
        }
    })
    .await?;
    let stream = futures_util::stream::poll_fn(move |context| parts.poll_recv(context));
    let mut answer = Response::new(Body::from_stream(stream));
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CONTENT_DISPOSITION, HeaderValue::from_static(name));
    Ok(answer)
}

/// Sends what is written in parts.
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
        // Whoever writes may be in the middle of a future, where nothing else may wait.
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

    /// The body of a download, or the error that broke it off.
    async fn arrived(
        app: &Shared,
        work: impl FnOnce(&Engine, &mut dyn Write) -> io::Result<()> + Send + 'static,
    ) -> Result<Bytes, axum::Error> {
        let answer = download(Arc::clone(app), "text/plain", "attachment", work).await;
        axum::body::to_bytes(answer.unwrap().into_body(), usize::MAX).await
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_download_that_fails_breaks_off() {
        let settings = Settings::default();
        let folder = tempfile::tempdir().unwrap();
        let engine = Engine::open(Env::real(), folder.path(), &settings).unwrap();
        let app = App::new(settings);
        app.begin(engine);
        // More than there are turns: whatever happens, they come back.
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
    }
}
