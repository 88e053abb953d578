//! The export of all journals.
//!
//! The journal of a partition is on the nodes that follow it: each has the rewards, and the decisions that it made
//! itself. So a decision can be in the exports of several nodes, of which one line is kept.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use tokio::sync::mpsc;

use super::bus::BusError;
use super::call::{GroupAnswer, NodeCall, decode, encode};
use super::members::Members;
use super::node::{Group, Node};
use super::serve::{NodeResult, execute_on_node, subject_of};
use crate::engine::export_journal;
use crate::state::Answered;

/// The milliseconds for which a node may take to export a group.
const MAX_EXPORT: u64 = 600_000;
/// The prefix of the objects of all exports.
const EXPORTS: &str = "export/";
/// The length of a piece of an object that is sent.
const PIECE: usize = 128 << 10;

/// Sends what is written to it in pieces.
struct Pieces {
    sender: mpsc::Sender<Result<Bytes, BusError>>,
    piece: Vec<u8>,
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let piece = std::mem::take(&mut self.piece);
        let sent = self.sender.blocking_send(Ok(piece.into()));
        sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// Stores the export of this node's journal of a group as an object. Returns the number of lines. It blocks.
pub(super) fn export(node: &Arc<Node>, group: &Group, object: &str) -> Result<u64, String> {
    let path = node.settings.data.join(&group.name);
    let app = group.app();
    let engine = app.as_ref().and_then(|app| app.engine());
    if engine.is_none() && node.env.disk.names(&path).is_err() {
        return Ok(0);
    }
    let (sender, pieces) = mpsc::channel(8);
    let (bus, name) = (Arc::clone(&node.bus), object.to_owned());
    let (done, uploaded) = std::sync::mpsc::channel();
    node.tasks.spawn(Box::pin(async move {
        let _ = done.send(bus.upload(&name, pieces).await);
    }));
    let mut out = Pieces {
        sender: sender.clone(),
        piece: Vec::new(),
    };
    let context = &node.identity.context;
    let written = match engine {
        Some(engine) => {
            let mut lines = Err("it ended".to_owned());
            super::wait::block_on(async {
                lines = engine
                    .export(&mut out)
                    .await
                    .map_err(|error| error.to_string());
            });
            lines
        }
        None => export_journal(&node.env, &path, context, &mut out).map_err(|e| e.to_string()),
    };
    let written = written.and_then(|lines| match out.flush() {
        Ok(()) => Ok(lines),
        Err(error) => Err(error.to_string()),
    });
    if let Err(reason) = &written {
        let _ = sender.blocking_send(Err(BusError::Failed(reason.clone())));
    }
    drop((out, sender));
    let uploaded = uploaded.recv().map_err(|_| "the upload ended".to_owned())?;
    uploaded.map_err(|error| error.to_string())?;
    written
}

/// A line of an export, as far as it is needed here.
#[derive(Deserialize)]
struct Line {
    decision: u64,
    position: Option<u64>,
    reward: Option<f64>,
}

/// The result of an export.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Export {
    /// The number of lines.
    pub lines: u64,
    /// The nodes that did not answer. What only they have is missing.
    pub missing: Vec<String>,
}

/// Writes the export of all partitions: for each, every item shown with its reward, once.
///
/// # Errors
/// If a journal cannot be read, or `out` cannot be written.
pub async fn export_all(node: &Arc<Node>, out: &mut (dyn Write + Send)) -> Result<Export, String> {
    let mut random = [0; 8];
    node.env
        .random
        .fill(&mut random)
        .map_err(|error| error.to_string())?;
    let id = u64::from_le_bytes(random);
    let members = Members::read(&*node.bus);
    let mut done = Export {
        missing: node.missing(),
        ..Export::default()
    };
    for group in node.partitions() {
        let mut files = Vec::new();
        for member in &members.members {
            let object = format!(
                "{}{id:016x}/{}/{}",
                prefix_of(node.life),
                group.name,
                member.name
            );
            let call = NodeCall::Export {
                group: group.name.clone(),
                object: object.clone(),
            };
            let exported = match member.name == node.name {
                true => execute_on_node(node, call).await,
                false => ask_node(node, &member.name, &call).await,
            };
            let file = match exported {
                Ok((lines, _)) if lines > 0 => download(node, &object).await.map(Some),
                _ => Ok(None),
            };
            let _ = node.bus.remove(&object).await;
            files.extend(file?);
            match exported {
                Ok(_) => {}
                Err(reason) => {
                    tracing::warn!(node = member.name, group = group.name, reason, "no export");
                    if !done.missing.contains(&member.name) {
                        done.missing.push(member.name.clone());
                    }
                }
            }
        }
        done.lines += merge(&mut files, out).map_err(|error| error.to_string())?;
    }
    Ok(done)
}

/// The prefix of the objects that a process makes for its exports.
fn prefix_of(life: u64) -> String {
    format!("{EXPORTS}{life:016x}.")
}

/// Removes the objects of exports whose process has ended.
pub(crate) async fn sweep_exports(node: &Node) -> Result<(), BusError> {
    let running: Vec<String> = Members::read(&*node.bus)
        .members
        .iter()
        .map(|member| prefix_of(member.life))
        .collect();
    for object in node.bus.objects(EXPORTS).await? {
        if !running.iter().any(|prefix| object.starts_with(prefix)) {
            node.bus.remove(&object).await?;
        }
    }
    Ok(())
}

/// Asks another node for something that may take long.
pub(crate) async fn ask_node(
    node: &Node,
    name: &str,
    call: &NodeCall,
) -> Result<NodeResult, String> {
    ask_node_within(node, name, call, MAX_EXPORT).await
}

/// Asks another node, and waits so many milliseconds for its answer.
pub(crate) async fn ask_node_within<T: serde::de::DeserializeOwned>(
    node: &Node,
    name: &str,
    call: &NodeCall,
    limit: u64,
) -> Result<T, String> {
    let answer = node
        .bus
        .request(&subject_of(name), encode(call), limit)
        .await;
    match answer.as_deref().map(decode::<GroupAnswer>) {
        Ok(Some(GroupAnswer::Result(result, _))) => {
            decode(&result).ok_or_else(|| "the answer cannot be decoded".to_owned())
        }
        Ok(Some(GroupAnswer::Failed(reason))) => Err(reason),
        Ok(_) => Err("the answer cannot be decoded".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// A file with the bytes of an object. It is removed when it is closed.
async fn download(node: &Node, object: &str) -> Result<File, String> {
    let failed = |error: io::Error| error.to_string();
    let path = node.settings.data.join("export.tmp");
    let mut options = File::options();
    let file = options
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path);
    let file = file.map_err(failed)?;
    std::fs::remove_file(&path).map_err(failed)?;
    let pieces = node.bus.download(object).await;
    let mut pieces = pieces.map_err(|error| error.to_string())?;
    let mut writer = BufWriter::new(&file);
    while let Some(piece) = pieces.recv().await {
        let piece = piece.map_err(|error| error.to_string())?;
        writer.write_all(&piece).map_err(failed)?;
    }
    writer.flush().map_err(failed)?;
    drop(writer);
    Ok(file)
}

/// Visits the lines of a file.
fn each_line(
    file: &mut File,
    visit: &mut dyn FnMut(&[u8], &Line) -> io::Result<()>,
) -> io::Result<()> {
    io::Seek::rewind(file)?;
    let mut reader = BufReader::new(file);
    let mut text = Vec::new();
    while reader.read_until(b'\n', &mut text)? > 0 {
        let line: Line = serde_json::from_slice(&text).map_err(io::Error::other)?;
        visit(&text, &line)?;
        text.clear();
    }
    Ok(())
}

/// Writes one line for each item shown. A line with a reward is preferred to one without, and one of the node that
/// made the decision, which knows the position, to others.
fn merge(files: &mut [File], out: &mut (dyn Write + Send)) -> io::Result<u64> {
    let (mut rewarded, mut complete) = (Answered::default(), Answered::default());
    for file in &mut *files {
        each_line(file, &mut |_, line| {
            if line.reward.is_some() {
                rewarded.insert(line.decision, 0);
                if line.position.is_some() {
                    complete.insert(line.decision, 0);
                }
            }
            Ok(())
        })?;
    }
    let mut written = Answered::default();
    let mut lines = 0;
    for file in files {
        each_line(file, &mut |text, line| {
            let number = line.decision;
            let is_worse = match (line.reward, line.position) {
                (None, _) => rewarded.contains(number),
                (Some(_), None) => complete.contains(number),
                (Some(_), Some(_)) => false,
            };
            if is_worse || written.contains(number) {
                return Ok(());
            }
            written.insert(number, 0);
            lines += 1;
            out.write_all(text)
        })?;
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(lines: &[&str]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        for line in lines {
            writeln!(file, "{line}").unwrap();
        }
        file
    }

    #[test]
    fn of_several_lines_of_a_decision_the_best_one_is_kept() {
        let owner = file(&[
            r#"{"decision":1,"position":null,"reward":1.0}"#,
            r#"{"decision":2,"position":0,"reward":0.5}"#,
            r#"{"decision":4,"position":0,"reward":null}"#,
        ]);
        let standby = file(&[
            r#"{"decision":1,"position":0,"reward":1.0}"#,
            r#"{"decision":2,"position":null,"reward":0.5}"#,
            r#"{"decision":3,"position":null,"reward":0.0}"#,
            r#"{"decision":3,"position":1,"reward":null}"#,
        ]);
        let mut out = Vec::new();
        assert_eq!(merge(&mut [owner, standby], &mut out).unwrap(), 4);
        let mut text: Vec<&str> = std::str::from_utf8(&out).unwrap().lines().collect();
        text.sort_unstable();
        assert_eq!(
            text,
            [
                r#"{"decision":1,"position":0,"reward":1.0}"#,
                r#"{"decision":2,"position":0,"reward":0.5}"#,
                r#"{"decision":3,"position":null,"reward":0.0}"#,
                r#"{"decision":4,"position":0,"reward":null}"#,
            ]
        );
    }
}
