//! Objects in chunks, in the format of the object store of NATS.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use bytes::{Bytes, BytesMut};
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::super::bus::BusError;
use super::link::{Link, RETRY, code};
use super::tail::{Next, Tail};

const CHUNK: usize = 128 * 1024;
/// The number of chunks that wait for the receiver of a download.
const CHUNKS_AHEAD: usize = 8;
/// A download without a chunk for this time fails.
const MAX_STALL: Duration = Duration::from_secs(10);

/// The object store of a cluster.
#[derive(Clone)]
pub(super) struct Objects {
    link: Link,
    bucket: Arc<str>,
    stream: Arc<str>,
}

/// The description of an object, as NATS has it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Description {
    name: String,
    bucket: String,
    /// The last part of the subject of its chunks.
    nuid: String,
    size: u64,
    chunks: u64,
    digest: String,
    #[serde(default)]
    deleted: bool,
    /// Not used, but other programs expect it.
    #[serde(default)]
    mtime: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Stored {
    message: StoredMessage,
}

#[derive(Debug, Deserialize)]
struct StoredMessage {
    #[serde(default)]
    data: String,
}

#[derive(Debug, Deserialize)]
struct Listed {
    #[serde(default)]
    total: usize,
    state: ListedState,
}

#[derive(Debug, Deserialize)]
struct ListedState {
    #[serde(default)]
    subjects: Option<BTreeMap<String, u64>>,
}

impl Objects {
    pub fn new(link: Link, bucket: String) -> Objects {
        Objects {
            link,
            stream: format!("OBJ_{bucket}").into(),
            bucket: bucket.into(),
        }
    }

    /// Writes the chunks, then the description: before that the object is not there.
    pub async fn upload(
        &self,
        name: &str,
        bytes: mpsc::Receiver<Result<Bytes, BusError>>,
    ) -> Result<(), BusError> {
        let old = self.describe(name).await?;
        let nuid = self.link.unique();
        let description = match self.write_chunks(name, &nuid, bytes).await {
            Ok(description) => description,
            Err(error) => {
                let _ = self.remove_chunks(&nuid).await;
                return Err(error);
            }
        };
        let body = serde_json::to_vec(&description)
            .map_err(|error| BusError::Failed(error.to_string()))?;
        let rollup = ("Nats-Rollup", "sub".to_owned());
        let subject = self.description_subject(name);
        // If it fails, it may have been written: the chunks stay.
        self.publish(subject, &[rollup], body.into()).await?;
        match old {
            Some(old) => self.remove_chunks(&old.nuid).await,
            None => Ok(()),
        }
    }

    async fn write_chunks(
        &self,
        name: &str,
        nuid: &str,
        mut bytes: mpsc::Receiver<Result<Bytes, BusError>>,
    ) -> Result<Description, BusError> {
        let subject = self.chunk_subject(nuid);
        let mut digest = Context::new(&SHA256);
        let (mut size, mut chunks) = (0, 0);
        let mut buffer = BytesMut::new();
        loop {
            let more = bytes.recv().await.transpose()?;
            let is_end = more.is_none();
            buffer.extend_from_slice(&more.unwrap_or_default());
            while buffer.len() >= CHUNK || (is_end && !buffer.is_empty()) {
                let chunk = buffer.split_to(buffer.len().min(CHUNK)).freeze();
                digest.update(&chunk);
                size += chunk.len() as u64;
                chunks += 1;
                self.publish(subject.clone(), &[], chunk).await?;
            }
            if is_end {
                break;
            }
        }
        Ok(Description {
            name: name.to_owned(),
            bucket: self.bucket.to_string(),
            nuid: nuid.to_owned(),
            size,
            chunks,
            digest: digest_text(digest),
            deleted: false,
            mtime: Some("0001-01-01T00:00:00Z".to_owned()),
        })
    }

    /// Writes a message. While a leader is elected it waits.
    async fn publish(
        &self,
        subject: String,
        headers: &[(&'static str, String)],
        bytes: Bytes,
    ) -> Result<(), BusError> {
        let id = self.link.unique();
        let end = Instant::now() + MAX_STALL;
        loop {
            let result = self
                .link
                .publish(subject.clone(), &id, headers, bytes.clone())
                .await;
            match result {
                Ok(_) => return Ok(()),
                Err(BusError::Timeout | BusError::NoResponders) if Instant::now() < end => {
                    sleep(RETRY).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    pub async fn download(
        &self,
        name: &str,
    ) -> Result<mpsc::Receiver<Result<Bytes, BusError>>, BusError> {
        let Some(description) = self.describe(name).await? else {
            return Err(BusError::Missing(format!("the object {name}")));
        };
        let (sender, receiver) = mpsc::channel(CHUNKS_AHEAD);
        let objects = self.clone();
        tokio::spawn(async move {
            if let Err(error) = objects.read_chunks(&description, &sender).await {
                let _ = sender.send(Err(error)).await;
            }
        });
        Ok(receiver)
    }

    /// Hands on the chunks until the receiver is gone. The digest is known to be right after the last one.
    async fn read_chunks(
        &self,
        description: &Description,
        sender: &mpsc::Sender<Result<Bytes, BusError>>,
    ) -> Result<(), BusError> {
        let subject = self.chunk_subject(&description.nuid);
        let mut digest = Context::new(&SHA256);
        let (mut size, mut chunks) = (0, 0);
        let mut tail = Tail::open(&self.link, &self.stream, 0, None, Some(subject)).await?;
        let mut progress = Instant::now();
        while chunks < description.chunks {
            match tail.next().await {
                Next::Message(message) => {
                    chunks += 1;
                    size += message.bytes.len() as u64;
                    digest.update(&message.bytes);
                    if sender.send(Ok(message.bytes)).await.is_err() {
                        return Ok(());
                    }
                    progress = Instant::now();
                }
                Next::CaughtUp | Next::Unreachable => {
                    self.check_stall(progress, description).await?;
                }
            }
        }
        match size == description.size && digest_text(digest) == description.digest {
            true => Ok(()),
            false => Err(BusError::Failed(format!(
                "the object {} is damaged: its digest is wrong",
                description.name
            ))),
        }
    }

    /// Fails if the chunks do not come, because they were removed or no server has them.
    async fn check_stall(
        &self,
        progress: Instant,
        description: &Description,
    ) -> Result<(), BusError> {
        if let Ok(now) = self.describe(&description.name).await
            && now.is_none_or(|now| now.nuid != description.nuid)
        {
            let name = &description.name;
            return Err(BusError::Missing(format!(
                "this version of the object {name}"
            )));
        }
        match progress.elapsed() < MAX_STALL {
            true => Ok(()),
            false => Err(BusError::Timeout),
        }
    }

    pub async fn list(&self, prefix: &str) -> Result<Vec<String>, BusError> {
        let root = self.description_subject("");
        let subjects = self.subjects(&root).await?;
        let names = subjects.keys().filter_map(|subject| {
            let name = URL_SAFE.decode(subject.strip_prefix(&root)?).ok()?;
            String::from_utf8(name).ok()
        });
        let mut names: Vec<String> = names.filter(|name| name.starts_with(prefix)).collect();
        names.sort();
        Ok(names)
    }

    /// The subjects of the stream that begin with some tokens, each with its number of messages.
    async fn subjects(&self, root: &str) -> Result<BTreeMap<String, u64>, BusError> {
        let info = format!("STREAM.INFO.{}", self.stream);
        let mut all = BTreeMap::new();
        loop {
            let body = json!({ "subjects_filter": format!("{root}>"), "offset": all.len() });
            let page: Listed = self
                .link
                .api(&info, &body)
                .await?
                .map_err(|error| error.of(&self.stream))?;
            let subjects = page.state.subjects.unwrap_or_default();
            let is_last = subjects.is_empty();
            all.extend(subjects);
            if is_last || all.len() >= page.total {
                return Ok(all);
            }
        }
    }

    pub async fn remove(&self, name: &str) -> Result<(), BusError> {
        let Some(description) = self.describe(name).await? else {
            return Ok(());
        };
        let filter = json!({ "filter": self.description_subject(name) });
        self.link.purge(&self.stream, &filter).await?;
        self.remove_chunks(&description.nuid).await
    }

    /// Removes chunks that no description names. If it fails, [`Objects::sweep`] removes them.
    async fn remove_chunks(&self, nuid: &str) -> Result<(), BusError> {
        let filter = json!({ "filter": self.chunk_subject(nuid) });
        self.link.purge(&self.stream, &filter).await
    }

    /// Removes all chunks that no description names, except those of uploads that go on.
    pub async fn sweep(&self) -> Result<(), BusError> {
        let before = self.nameless_chunks().await?;
        if before.is_empty() {
            return Ok(());
        }
        // An upload writes a chunk within this time, or fails.
        sleep(2 * MAX_STALL).await;
        let after = self.nameless_chunks().await?;
        for (nuid, count) in &before {
            if after.get(nuid) == Some(count) {
                tracing::info!(nuid, "removing what an upload has left behind");
                self.remove_chunks(nuid).await?;
            }
        }
        Ok(())
    }

    /// The chunks that no description names: the number for each upload.
    async fn nameless_chunks(&self) -> Result<BTreeMap<String, u64>, BusError> {
        let root = self.chunk_subject("");
        let chunks = self.subjects(&root).await?.into_iter();
        let chunks = chunks
            .filter_map(|(subject, count)| Some((subject.strip_prefix(&root)?.into(), count)));
        let mut chunks: BTreeMap<String, u64> = chunks.collect();
        // Listed after the chunks: one that was named meanwhile counts as named.
        for name in self.list("").await? {
            if let Some(description) = self.describe(&name).await? {
                chunks.remove(&description.nuid);
            }
        }
        Ok(chunks)
    }

    /// The description of an object, from the leader: replicas may be behind.
    async fn describe(&self, name: &str) -> Result<Option<Description>, BusError> {
        let subject = format!("STREAM.MSG.GET.{}", self.stream);
        let body = json!({ "last_by_subj": self.description_subject(name) });
        let message = match self.link.api::<Stored>(&subject, &body).await? {
            Ok(stored) => stored.message,
            Err(error) if error.err_code == code::NO_MESSAGE => return Ok(None),
            Err(error) => return Err(error.of(&self.stream)),
        };
        let unreadable = |error: &dyn std::fmt::Display| {
            BusError::Failed(format!("the object {name} cannot be read: {error}"))
        };
        let data = STANDARD
            .decode(message.data)
            .map_err(|error| unreadable(&error))?;
        let description: Description =
            serde_json::from_slice(&data).map_err(|error| unreadable(&error))?;
        Ok((!description.deleted).then_some(description))
    }

    fn chunk_subject(&self, nuid: &str) -> String {
        format!("$O.{}.C.{nuid}", self.bucket)
    }

    fn description_subject(&self, name: &str) -> String {
        format!("$O.{}.M.{}", self.bucket, URL_SAFE.encode(name))
    }
}

fn digest_text(digest: Context) -> String {
    format!("SHA-256={}", URL_SAFE.encode(digest.finish()))
}
