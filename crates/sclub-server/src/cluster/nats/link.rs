//! The connection: requests to JetStream, and writes to streams.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_nats::connection::State;
use async_nats::{
    Client, ConnectError, ConnectErrorKind, ConnectOptions, Event, HeaderMap, PublishErrorKind,
    Request, RequestErrorKind, ServerAddr, Subject, Subscriber,
};
use bytes::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::super::bus::BusError;
use super::NatsOptions;

/// The time for an answer of JetStream, with all retries.
pub(super) const TIMEOUT: Duration = Duration::from_secs(2);
/// The time between two attempts.
pub(super) const RETRY: Duration = Duration::from_millis(50);

/// The time for servers to tell each other who takes the writes of a stream.
const GRACE: Duration = Duration::from_secs(1);

/// A server that does not answer is left after three of these. The sum with the time to connect to a second one that
/// does not answer is less than the lifetime of a lease.
const PING_INTERVAL: Duration = Duration::from_millis(500);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const MAX_RECONNECT_DELAY: Duration = Duration::from_millis(500);

/// The number of messages of a subscription that wait to be read; more are dropped. It is more than the messages of one
/// answer ([`super::tail`]). New messages of a stream that are dropped are asked for.
const SUBSCRIPTION: usize = 2048;

/// Errors of JetStream.
pub(super) mod code {
    /// No server can take the request at the moment.
    pub const NOT_AVAILABLE: u64 = 10008;
    pub const NO_MESSAGE: u64 = 10037;
    pub const STREAM_NOT_FOUND: u64 = 10059;
    pub const WRONG_LAST_SEQUENCE: u64 = 10071;
    /// The same message is being written.
    pub const DUPLICATE_IN_PROCESS: u64 = 10158;
    /// Another write to the key is in process.
    pub const KEY_NOT_READY: u64 = 10163;
    /// As [`WRONG_LAST_SEQUENCE`], but the last sequence is not known yet.
    pub const WRONG_LAST_SEQUENCE_UNKNOWN: u64 = 10164;
    pub const TOO_MANY_REQUESTS: u64 = 10167;
}

/// An error in an answer of JetStream.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct ApiError {
    #[serde(default)]
    pub err_code: u64,
    #[serde(default)]
    pub description: String,
}

impl ApiError {
    fn is_temporary(&self) -> bool {
        matches!(
            self.err_code,
            code::NOT_AVAILABLE
                | code::DUPLICATE_IN_PROCESS
                | code::KEY_NOT_READY
                | code::TOO_MANY_REQUESTS
        )
    }

    /// The error of a call. `what` names the stream that the call was about.
    pub fn of(self, what: &str) -> BusError {
        match self.err_code {
            code::WRONG_LAST_SEQUENCE | code::WRONG_LAST_SEQUENCE_UNKNOWN => BusError::Conflict,
            code::STREAM_NOT_FOUND => BusError::Missing(format!("the stream {what}")),
            code => BusError::Failed(format!("{} (NATS error {code})", self.description)),
        }
    }
}

/// The answer to a request of the JetStream API.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Answer<T> {
    Error { error: ApiError },
    Ok(T),
}

#[derive(Debug, Deserialize)]
struct Ack {
    seq: u64,
}

#[derive(Debug, Deserialize)]
struct StreamInfo {
    state: StreamState,
}

#[derive(Debug, Deserialize)]
struct StreamState {
    messages: u64,
    first_seq: u64,
    last_seq: u64,
}

/// A connection to the NATS servers, which is opened again when it breaks.
#[derive(Clone)]
pub(super) struct Link {
    client: Client,
    /// The number of connections so far.
    connections: watch::Receiver<u64>,
    /// Distinguishes the ids of this link from those of others.
    random: u64,
    ids: Arc<AtomicU64>,
}

impl Link {
    /// Connects. Must be called on the runtime that has the connection from then on.
    pub async fn connect(options: &NatsOptions) -> Result<Link, BusError> {
        let addresses = options
            .url
            .split(',')
            .map(|url| url.trim().parse::<ServerAddr>())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| {
                BusError::Failed(format!("the URL of the NATS servers is not valid: {error}"))
            })?;
        let (counter, mut connections) = watch::channel(0);
        let counter = Arc::new(counter);
        let mut connect = ConnectOptions::new()
            .name(format!("sclub {}", options.cluster))
            .max_reconnects(None)
            .ping_interval(PING_INTERVAL)
            .connection_timeout(CONNECT_TIMEOUT)
            .request_timeout(None)
            .subscription_capacity(SUBSCRIPTION)
            .reconnect_delay_callback(|attempts| {
                let doubled = Duration::from_millis(5 << attempts.min(10));
                doubled.min(MAX_RECONNECT_DELAY)
            })
            .event_callback(move |event| {
                if event == Event::Connected {
                    counter.send_modify(|count| *count += 1);
                }
                async {}
            });
        let account = addresses
            .iter()
            .find_map(|address| Some((decode(address.username()?), decode(address.password()?))));
        if let Some((user, password)) = account {
            connect = connect.user_and_password(user, password);
        }
        if let Some(path) = &options.creds {
            connect = connect.credentials_file(path).await.map_err(|error| {
                BusError::Failed(format!("the credentials {}: {error}", path.display()))
            })?;
        }
        if let Some(path) = &options.ca {
            connect = connect
                .add_root_certificates(path.clone())
                .require_tls(true);
        }
        let hosts: Vec<String> = addresses
            .iter()
            .map(|address| format!("{}:{}", address.host(), address.port()))
            .collect();
        let connected = connect.connect(addresses).await;
        let client = connected.map_err(|error| no_connection(&error, &hosts.join(", ")))?;
        // The count is complete before the first request: a request is sent again when it rises.
        let _ =
            tokio::time::timeout(CONNECT_TIMEOUT, connections.wait_for(|&count| count > 0)).await;
        let random = getrandom::u64()
            .map_err(|error| BusError::Failed(format!("no random numbers: {error}")))?;
        Ok(Link {
            client,
            connections,
            random,
            ids: Arc::default(),
        })
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    pub fn is_connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// Changes with each connection.
    pub fn connections(&self) -> watch::Receiver<u64> {
        let mut connections = self.connections.clone();
        connections.mark_unchanged();
        connections
    }

    /// A name that no other link has.
    pub fn unique(&self) -> String {
        let number = self.ids.fetch_add(1, Ordering::Relaxed);
        format!("{:016x}{number:x}", self.random)
    }

    /// Subscribes to a subject.
    pub async fn subscribe(&self, subject: String) -> Result<Subscriber, BusError> {
        let deadline = Instant::now() + TIMEOUT;
        match timeout_at(deadline, self.client.subscribe(subject)).await {
            Ok(subscribed) => subscribed.map_err(failed),
            Err(_) => Err(BusError::Timeout),
        }
    }

    /// Waits until the server has processed everything that was sent before.
    pub async fn round_trip(&self) -> Result<(), BusError> {
        // The server itself answers, because no node listens on a new inbox.
        let subject = self.client.new_inbox();
        match self.request(subject, Bytes::new(), TIMEOUT).await {
            Ok(_) | Err(BusError::NoResponders) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Sends a message without an answer.
    pub async fn send(&self, subject: Subject, message: Bytes) -> Result<(), BusError> {
        let sent = self.client.publish(subject, message).await;
        sent.map_err(|error| match error.kind() {
            PublishErrorKind::MaxPayloadExceeded => BusError::TooLarge,
            _ => failed(error),
        })
    }

    /// Sends a question whose answers go to a subject. Nothing is sent without a connection.
    pub async fn ask_for_many(
        &self,
        subject: String,
        reply: String,
        question: Bytes,
    ) -> Result<(), BusError> {
        if !self.is_connected() {
            return Err(BusError::Timeout);
        }
        let sent = self.client.publish_with_reply(subject, reply, question);
        sent.await.map_err(failed)
    }

    /// Sends a request once, and waits for the answer.
    pub async fn request(
        &self,
        subject: String,
        request: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, BusError> {
        let deadline = Instant::now() + timeout;
        self.wait_until_connected(deadline).await?;
        let request = Request::new().payload(request).timeout(None);
        match timeout_at(deadline, self.client.send_request(subject, request)).await {
            // The node has stopped to listen before it took the request.
            Ok(Ok(answer)) if answer.payload.is_empty() => Err(BusError::NoResponders),
            Ok(Ok(answer)) => Ok(answer.payload),
            Ok(Err(error)) => Err(request_error(error)),
            Err(_) => Err(BusError::Timeout),
        }
    }

    /// Calls the JetStream API. The request may be executed twice.
    pub async fn api<T: DeserializeOwned>(
        &self,
        subject: &str,
        body: &Value,
    ) -> Result<Result<T, ApiError>, BusError> {
        let deadline = Instant::now() + TIMEOUT;
        let body = Bytes::from(body.to_string());
        let subject = format!("$JS.API.{subject}");
        loop {
            let answer = self
                .ask(&subject, None, body.clone(), deadline, &mut false)
                .await?;
            match parse(&answer)? {
                Answer::Ok(value) => return Ok(Ok(value)),
                Answer::Error { error } if error.is_temporary() => {
                    wait_or_time_out(deadline).await?
                }
                Answer::Error { error } => return Ok(Err(error)),
            }
        }
    }

    /// Writes a message to the stream of a subject, once, and returns its sequence. If the connection breaks, the
    /// message is sent again: the stream knows it by its id.
    pub async fn publish(
        &self,
        subject: String,
        id: &str,
        headers: &[(&'static str, String)],
        message: Bytes,
    ) -> Result<u64, BusError> {
        let start = Instant::now();
        let deadline = start + TIMEOUT;
        let mut all = HeaderMap::new();
        all.insert("Nats-Msg-Id", id);
        for (name, value) in headers {
            all.insert(*name, value.as_str());
        }
        let mut unknown = false;
        loop {
            let asked = self.ask(
                &subject,
                Some(&all),
                message.clone(),
                deadline,
                &mut unknown,
            );
            let answer = match asked.await {
                Err(BusError::NoResponders) if start.elapsed() < GRACE => {
                    sleep(RETRY).await;
                    continue;
                }
                asked => asked?,
            };
            match parse::<Ack>(&answer)? {
                Answer::Ok(ack) => return Ok(ack.seq),
                Answer::Error { error } if error.is_temporary() => {
                    unknown |= error.err_code == code::DUPLICATE_IN_PROCESS;
                    wait_or_time_out(deadline).await?;
                }
                Answer::Error { error } => return Err(error.of(&subject)),
            }
        }
    }

    /// Waits until the stream of a subject takes writes. The servers need some time to tell each other who leads a stream
    /// that was just made. The probe expects a stream that does not exist, so it is refused and never stored.
    pub async fn wait_until_writable(
        &self,
        subject: &str,
        deadline: Instant,
    ) -> Result<(), BusError> {
        let mut probe = HeaderMap::new();
        probe.insert("Nats-Expected-Stream", "-");
        loop {
            let answer = self
                .ask(subject, Some(&probe), Bytes::new(), deadline, &mut false)
                .await;
            match answer {
                Ok(_) => return Ok(()),
                Err(BusError::NoResponders) => wait_or_time_out(deadline).await?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends a request until it is answered, again after each reconnection. `unknown` is true when an attempt may
    /// have been executed: then "no responders" is no answer.
    async fn ask(
        &self,
        subject: &str,
        headers: Option<&HeaderMap>,
        request: Bytes,
        deadline: Instant,
        unknown: &mut bool,
    ) -> Result<Bytes, BusError> {
        loop {
            self.wait_until_connected(deadline).await?;
            let mut connections = self.connections();
            let attempt = Request {
                payload: Some(request.clone()),
                headers: headers.cloned(),
                timeout: Some(None),
                inbox: None,
            };
            tokio::select! {
                answer = self.client.send_request(subject.to_owned(), attempt) => {
                    match answer.map_err(request_error) {
                        Ok(answer) => return Ok(answer.payload),
                        Err(BusError::NoResponders) if *unknown => wait_or_time_out(deadline).await?,
                        Err(error) => return Err(error),
                    }
                }
                _ = connections.changed() => *unknown = true,
                () = sleep_until(deadline) => return Err(BusError::Timeout),
            }
        }
    }

    /// Waits for a connection, so that no request is kept and sent long after it was made.
    async fn wait_until_connected(&self, deadline: Instant) -> Result<(), BusError> {
        while !self.is_connected() {
            if Instant::now() >= deadline {
                return Err(BusError::Timeout);
            }
            sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// The first and the last sequence of a stream; see [`super::Bus::bounds`].
    pub async fn bounds(&self, stream: &str) -> Result<(u64, u64), BusError> {
        let subject = format!("STREAM.INFO.{stream}");
        let info: StreamInfo = self
            .api(&subject, &json!({}))
            .await?
            .map_err(|error| error.of(stream))?;
        let StreamState {
            messages,
            first_seq,
            last_seq,
        } = info.state;
        match messages {
            0 => Ok((last_seq + 1, last_seq)),
            _ => Ok((first_seq, last_seq)),
        }
    }

    /// Removes the messages of a stream before a sequence.
    pub async fn purge_before(&self, stream: &str, before: u64) -> Result<(), BusError> {
        let (first, last) = self.bounds(stream).await?;
        // JetStream takes 0 for all messages, and moves the last sequence if it is less.
        let before = before.min(last + 1);
        match before <= first {
            true => Ok(()),
            false => self.purge(stream, &json!({ "seq": before })).await,
        }
    }

    /// Removes the messages of a stream that a filter of JetStream selects.
    pub async fn purge(&self, stream: &str, filter: &Value) -> Result<(), BusError> {
        let subject = format!("STREAM.PURGE.{stream}");
        let purged = self.api::<Value>(&subject, filter).await?;
        purged.map(drop).map_err(|error| error.of(stream))
    }
}

/// Waits for the next attempt.
async fn wait_or_time_out(deadline: Instant) -> Result<(), BusError> {
    if Instant::now() + RETRY >= deadline {
        return Err(BusError::Timeout);
    }
    sleep(RETRY).await;
    Ok(())
}

fn parse<T: DeserializeOwned>(answer: &[u8]) -> Result<Answer<T>, BusError> {
    serde_json::from_slice(answer)
        .map_err(|error| BusError::Failed(format!("an answer of NATS cannot be read: {error}")))
}

/// The error of a first connection. `hosts` has no password.
fn no_connection(error: &ConnectError, hosts: &str) -> BusError {
    let reason = match (error.kind(), std::error::Error::source(error)) {
        (ConnectErrorKind::TimedOut, _) => {
            "no NATS server answers in time. Is it the client port of a NATS server (4222 by default), and not the \
             HTTP port of a node?"
                .to_owned()
        }
        // The kind says no more than its source.
        (ConnectErrorKind::Io, Some(source)) => source.to_string(),
        (_, Some(source)) if !error.to_string().contains(&source.to_string()) => {
            format!("{error} ({source})")
        }
        _ => error.to_string(),
    };
    BusError::Failed(format!("no connection to NATS at {hosts}: {reason}"))
}

fn request_error(error: async_nats::RequestError) -> BusError {
    match error.kind() {
        RequestErrorKind::NoResponders => BusError::NoResponders,
        RequestErrorKind::TimedOut => BusError::Timeout,
        RequestErrorKind::MaxPayloadExceeded => BusError::TooLarge,
        _ => failed(error),
    }
}

fn failed(error: impl std::error::Error) -> BusError {
    match error.source() {
        Some(source) => BusError::Failed(format!("{error}: {source}")),
        None => BusError::Failed(error.to_string()),
    }
}

/// A part of a URL without its %-escapes.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let escaped = (first == b'%').then(|| after.get(..2)).flatten();
        let escaped = escaped.and_then(|hex| std::str::from_utf8(hex).ok());
        match escaped.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_in_urls_are_unescaped() {
        assert_eq!(decode("p%40ss%2Fw%c3%bcrd"), "p@ss/würd");
        assert_eq!(decode("100%"), "100%");
        assert_eq!(decode("%zz%4"), "%zz%4");
    }

    #[test]
    fn answers_of_jetstream_are_told_from_errors() {
        let ok = parse::<Ack>(br#"{"stream":"S","seq":7,"duplicate":true}"#).unwrap();
        assert!(matches!(ok, Answer::Ok(Ack { seq: 7 })));
        let error = br#"{"error":{"code":400,"err_code":10071,"description":"wrong"},"stream":"S","seq":0}"#;
        match parse::<Ack>(error).unwrap() {
            Answer::Error { error } => assert_eq!(error.of("S"), BusError::Conflict),
            Answer::Ok(_) => panic!("an error was read as an answer"),
        }
    }
}
