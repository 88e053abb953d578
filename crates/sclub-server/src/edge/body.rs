//! Bodies of requests, in limits.
//!
//! The time a body may take is watched by the connection; here its end becomes the answer 408.

use axum::body::{Body, HttpBody};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, ORIGIN};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;

use super::error::ApiError;
use super::stall::Stalled;

/// Whether a body that a browser sends is JSON by its own account. Without that, any page could post
/// here without being asked for leave. Whoever else sends something is taken to mean JSON.
///
/// # Errors
/// 415.
pub fn check_json(headers: &HeaderMap) -> Result<(), ApiError> {
    check_type(headers, &["application/json"])
}

/// As [`check_json`], and also takes what JSON lines are called.
///
/// # Errors
/// 415.
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
        "a browser has to send the Content-Type application/json",
    ))
}

/// A whole body of up to `most` bytes. One that says to be longer is refused before it is read.
///
/// # Errors
/// 413, 408, or 400 if it broke off.
pub async fn whole(headers: &HeaderMap, mut body: Body, most: usize) -> Result<Bytes, ApiError> {
    let too_large = || ApiError::too_large(format!("the body is longer than {most} bytes"));
    let said = headers
        .get(CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse().ok());
    if said.is_some_and(|said: u64| said > most as u64) {
        return Err(too_large());
    }
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    while let Some(part) = next_part(&mut body).await? {
        if first.len().max(all.len()) + part.len() > most {
            return Err(too_large());
        }
        if first.is_empty() && all.is_empty() {
            // A small body comes in one part, and needs no copy.
            first = part;
        } else {
            if all.is_empty() {
                all.reserve(said.map_or(first.len() + part.len(), |said| said as usize));
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
                ApiError::bad_body("the body broke off or was badly sent")
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
    /// Which one it is, from 1; empty ones count.
    pub number: u64,
    /// What it says, without its end.
    pub bytes: Bytes,
}

/// The lines of a body of any length, of which only one has to fit in memory.
#[derive(Debug)]
pub struct Lines {
    body: Body,
    most: usize,
    read: BytesMut,
    searched: usize,
    lines: u64,
    ended: bool,
}

/// The lines of a body, each of up to `most` bytes.
pub fn lines(body: Body, most: usize) -> Lines {
    Lines {
        body,
        most,
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
    /// 413 that names the line, 408, or 400 if the body broke off. After an error there is no more.
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
        if length <= self.most {
            return Ok(());
        }
        let (line, most) = (self.lines + 1, self.most);
        Err(ApiError::too_large(format!(
            "line {line} is longer than {most} bytes"
        )))
    }
}
