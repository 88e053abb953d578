//! Request bodies, with limits on their length.
//!
//! The connection watches the time that a body takes. Its timeout becomes the answer 408 here.

use axum::body::{Body, HttpBody};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ORIGIN};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;

use super::error::ApiError;
use super::stall::Stalled;

/// Checks that a body is not compressed, and that a browser sends it as JSON. Otherwise any web page could post here
/// without a CORS preflight. Clients that are not browsers need no content type.
///
/// # Errors
/// 415, if the body is compressed or the content type is another one.
pub fn check_json(headers: &HeaderMap) -> Result<(), ApiError> {
    check_type(headers, &["application/json"])
}

/// Like [`check_json`], but also accepts the content types of JSON lines.
///
/// # Errors
/// 415, if the body is compressed or the content type is another one.
pub fn check_json_lines(headers: &HeaderMap) -> Result<(), ApiError> {
    check_type(
        headers,
        &[
            "application/json",
            "application/x-ndjson",
            "application/jsonl",
            "application/json-lines",
        ],
    )
}

fn check_type(headers: &HeaderMap, taken: &[&str]) -> Result<(), ApiError> {
    let encoding = headers.get(CONTENT_ENCODING);
    if encoding.is_some_and(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        let message = "the body has a Content-Encoding; send it uncompressed";
        return Err(ApiError::wrong_type(message).field("Content-Encoding"));
    }
    if !headers.contains_key(ORIGIN) && !headers.contains_key("sec-fetch-site") {
        return Ok(());
    }
    let given = headers
        .get(CONTENT_TYPE)
        .map_or(&[][..], |given| given.as_bytes());
    let name = given
        .split(|&byte| byte == b';')
        .next()
        .unwrap_or_default()
        .trim_ascii();
    let is_taken = |taken: &&str| name.eq_ignore_ascii_case(taken.as_bytes());
    if taken.iter().any(is_taken) {
        return Ok(());
    }
    Err(ApiError::wrong_type(
        "the Content-Type must be application/json in requests of a browser",
    ))
}

/// Reads a whole body of up to `max` bytes. One whose `Content-Length` is larger is refused before it is
/// read.
///
/// # Errors
/// 413 if it is too long, 408 if it is too slow, 400 if it is incomplete.
pub async fn whole(headers: &HeaderMap, mut body: Body, max: usize) -> Result<Bytes, ApiError> {
    let too_large = || ApiError::too_large(format!("the body is longer than {max} bytes"));
    let declared = headers
        .get(CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse().ok());
    if declared.is_some_and(|declared: u64| declared > max as u64) {
        return Err(too_large());
    }
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    while let Some(part) = next_part(&mut body).await? {
        if first.len().max(all.len()) + part.len() > max {
            return Err(too_large());
        }
        if first.is_empty() && all.is_empty() {
            // A small body comes in one part, and needs no copy.
            first = part;
        } else {
            if all.is_empty() {
                all.reserve(
                    declared.map_or(first.len() + part.len(), |declared| declared as usize),
                );
                all.extend_from_slice(&first);
            }
            all.extend_from_slice(&part);
        }
        if body.is_end_stream() {
            break;
        }
    }
    Ok(if all.is_empty() { first } else { all.freeze() })
}

/// The next bytes of a body; `None` at its end.
async fn next_part(body: &mut Body) -> Result<Option<Bytes>, ApiError> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            if error.into_inner().is::<Stalled>() {
                ApiError::timeout("the body did not arrive in time")
            } else {
                ApiError::bad_body("the body is incomplete or malformed")
            }
        })?;
        match frame.into_data() {
            Ok(data) if !data.is_empty() => return Ok(Some(data)),
            _ => {}
        }
    }
    Ok(None)
}

/// A line of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The line number, from 1; empty lines count.
    pub number: u64,
    /// The text, without the line end.
    pub bytes: Bytes,
}

/// The lines of a body of any length. One line at a time is in memory.
#[derive(Debug)]
pub struct Lines {
    body: Body,
    max: usize,
    read: BytesMut,
    searched: usize,
    lines: u64,
    ended: bool,
}

/// The lines of a body, each of up to `max` bytes.
pub fn lines(body: Body, max: usize) -> Lines {
    Lines {
        body,
        max,
        read: BytesMut::new(),
        searched: 0,
        lines: 0,
        ended: false,
    }
}

impl Lines {
    /// The next line that is not empty; `None` at the end.
    ///
    /// # Errors
    /// 413 if a line is too long (the message has its number), 408 if the body is too slow, 400 if it is
    /// incomplete. After an error there are no more lines.
    pub async fn next(&mut self) -> Result<Option<Line>, ApiError> {
        let outcome = self.advance().await;
        if outcome.is_err() {
            self.ended = true;
            self.read.clear();
            self.searched = 0;
        }
        outcome
    }

    async fn advance(&mut self) -> Result<Option<Line>, ApiError> {
        loop {
            let rest = &self.read[self.searched..];
            let end = rest.iter().position(|&byte| byte == b'\n');
            let bytes = match end {
                Some(end) => {
                    let mut line = self.read.split_to(self.searched + end + 1);
                    line.truncate(line.len() - 1);
                    line
                }
                None if self.ended && self.read.is_empty() => return Ok(None),
                None if self.ended => self.read.split(),
                None => {
                    self.searched = self.read.len();
                    self.check_length(self.searched)?;
                    match next_part(&mut self.body).await? {
                        Some(part) => self.read.extend_from_slice(&part),
                        None => self.ended = true,
                    }
                    continue;
                }
            };
            self.searched = 0;
            self.check_length(bytes.len())?;
            self.lines += 1;
            if !bytes.trim_ascii().is_empty() {
                let mut bytes = bytes.freeze();
                if bytes.ends_with(b"\r") {
                    bytes.truncate(bytes.len() - 1);
                }
                return Ok(Some(Line {
                    number: self.lines,
                    bytes,
                }));
            }
        }
    }

    fn check_length(&self, length: usize) -> Result<(), ApiError> {
        if length <= self.max {
            return Ok(());
        }
        let (line, max) = (self.lines + 1, self.max);
        Err(ApiError::too_large(format!(
            "line {line} is longer than {max} bytes"
        )))
    }
}
