//! Makes the streams, the buckets and the object store of a cluster.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::super::TTL;
use super::super::bus::{Bucket, BusError, MIN_MAX_MESSAGE};
use super::Names;
use super::link::{ApiError, Link, RETRY, code};

/// The oldest version of the NATS servers: major and minor.
const MIN_VERSION: (u64, u64) = (2, 12);
/// An append that is repeated within this time is found to be a duplicate.
const DUPLICATE_WINDOW_MS: u64 = 120_000;

/// The time to make a stream: servers that were just started, slow ones and elections need some seconds.
const MAX_WAIT: Duration = Duration::from_secs(20);

const NOT_ENABLED: u64 = 10076;
const NOT_ENABLED_FOR_ACCOUNT: u64 = 10039;
const NO_SUITABLE_SERVERS: u64 = 10005;
const REPLICAS_NOT_SUPPORTED: u64 = 10074;
const NAME_IN_USE: u64 = 10058;

/// See [`super::NatsBus::init`].
pub(super) async fn init(
    link: &Link,
    names: &Names,
    streams: &[(String, u64)],
    replicas: usize,
) -> Result<(), BusError> {
    check_server(link)?;
    check_jetstream(link).await?;
    for (stream, first) in streams {
        let subject = names.stream_subject(stream);
        let mut config = json!({
            "name": names.stream(stream),
            "subjects": [subject],
            "duplicate_window": nanos(DUPLICATE_WINDOW_MS),
            "republish": { "src": subject, "dest": names.stream_live(stream) },
        });
        if *first > 1 {
            config["first_seq"] = (*first).into();
        }
        create(link, config, replicas).await?;
    }
    let objects = names.objects();
    let config = json!({
        "name": format!("OBJ_{objects}"),
        "subjects": [format!("$O.{objects}.C.>"), format!("$O.{objects}.M.>")],
        "allow_rollup_hdrs": true,
        "duplicate_window": nanos(DUPLICATE_WINDOW_MS),
    });
    create(link, config, replicas).await?;
    // The last one tells that everything is there.
    for bucket in [Bucket::Members, Bucket::Leases, Bucket::Config] {
        let expires = bucket != Bucket::Config;
        let max_age = if expires { TTL } else { 0 };
        let window = if expires { TTL } else { DUPLICATE_WINDOW_MS };
        let live = names.bucket_live(bucket);
        let bucket = names.bucket(bucket);
        let keys = format!("$KV.{bucket}.>");
        let config = json!({
            "name": format!("KV_{bucket}"),
            "subjects": [keys],
            "republish": { "src": keys, "dest": live },
            "max_msgs_per_subject": 1,
            "max_age": nanos(max_age),
            "allow_rollup_hdrs": true,
            "deny_delete": true,
            "duplicate_window": nanos(window),
        });
        create(link, config, replicas).await?;
    }
    Ok(())
}

/// See [`super::NatsBus::exists`].
pub(super) async fn exists(link: &Link, names: &Names) -> Result<bool, BusError> {
    let subject = format!("STREAM.INFO.KV_{}", names.bucket(Bucket::Config));
    match link.api::<Value>(&subject, &json!({})).await {
        Ok(Ok(_)) => Ok(true),
        Ok(Err(error)) if error.err_code == code::STREAM_NOT_FOUND => Ok(false),
        Ok(Err(error)) => Err(explain(error, &subject, 0)),
        Err(BusError::NoResponders) => Err(jetstream_is_off()),
        Err(error) => Err(error),
    }
}

/// Makes a stream in files without limits.
async fn create(link: &Link, mut config: Value, replicas: usize) -> Result<(), BusError> {
    let name = config["name"].as_str().unwrap_or_default().to_owned();
    let common = json!({
        "storage": "file",
        "retention": "limits",
        "discard": "new",
        "max_msgs": -1,
        "max_bytes": -1,
        "max_consumers": -1,
        "max_msg_size": -1,
        "allow_direct": true,
        "num_replicas": replicas,
    });
    if let (Value::Object(config), Value::Object(common)) = (&mut config, common) {
        config.extend(common);
    }
    let subject = format!("STREAM.CREATE.{name}");
    let written = config["subjects"][0].as_str().unwrap_or_default();
    // A subject without wildcards.
    let written = written.replace('>', "probe");
    let deadline = Instant::now() + MAX_WAIT;
    loop {
        match link.api::<Value>(&subject, &config).await {
            Ok(Ok(_)) => return link.wait_until_writable(&written, deadline).await,
            // A server has not yet found the others.
            Ok(Err(error)) if is_offline(&error) && Instant::now() < deadline => sleep(RETRY).await,
            Ok(Err(error)) => return Err(explain(error, &name, replicas)),
            // To make it again does nothing.
            Err(BusError::Timeout) if Instant::now() < deadline => {}
            Err(error) => return Err(error),
        }
    }
}

/// Returns true if a server that could have a replica is known but does not answer.
fn is_offline(error: &ApiError) -> bool {
    error.err_code == NO_SUITABLE_SERVERS && error.description.contains("offline")
}

/// Validates the server of the connection. The others of its cluster should have the same configuration.
pub(super) fn check_server(link: &Link) -> Result<(), BusError> {
    let info = link.client().server_info();
    if version(&info.version) < MIN_VERSION {
        let (major, minor) = MIN_VERSION;
        return Err(BusError::Failed(format!(
            "the NATS server has version {}; {major}.{minor} or later is needed",
            info.version
        )));
    }
    if info.max_payload < MIN_MAX_MESSAGE {
        return Err(BusError::Failed(format!(
            "messages of the NATS server are limited to {} bytes; {MIN_MAX_MESSAGE} are needed: add the line \
             `max_payload: 8MB` to the configuration of every server",
            info.max_payload
        )));
    }
    Ok(())
}

async fn check_jetstream(link: &Link) -> Result<(), BusError> {
    #[derive(Deserialize)]
    struct AccountInfo {}
    match link.api::<AccountInfo>("INFO", &json!({})).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(explain(error, "JetStream", 0)),
        Err(BusError::NoResponders) => Err(jetstream_is_off()),
        Err(error) => Err(error),
    }
}

fn explain(error: ApiError, stream: &str, replicas: usize) -> BusError {
    match error.err_code {
        NOT_ENABLED | NOT_ENABLED_FOR_ACCOUNT => jetstream_is_off(),
        NO_SUITABLE_SERVERS | REPLICAS_NOT_SUPPORTED => BusError::Failed(format!(
            "{replicas} replicas need {replicas} NATS servers with JetStream in one cluster ({})",
            error.description
        )),
        NAME_IN_USE => BusError::Failed(format!(
            "the stream {stream} exists with other properties, for example another number of replicas ({})",
            error.description
        )),
        _ => error.of(stream),
    }
}

fn jetstream_is_off() -> BusError {
    BusError::Failed(
        "JetStream is off: add the line `jetstream { store_dir: \"/var/lib/nats\", sync_interval: always }` to the \
         configuration of every NATS server, and allow it for this account"
            .to_owned(),
    )
}

fn nanos(ms: u64) -> u64 {
    ms * 1_000_000
}

/// The major and minor part of a version.
fn version(text: &str) -> (u64, u64) {
    let mut parts = text.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_has_not_yet_come_is_waited_for() {
        let error = |err_code, description: &str| ApiError {
            err_code,
            description: description.to_owned(),
        };
        let late = "no suitable peers for placement, peer offline";
        assert!(is_offline(&error(NO_SUITABLE_SERVERS, late)));
        let too_few = "no suitable peers for placement";
        assert!(!is_offline(&error(NO_SUITABLE_SERVERS, too_few)));
        assert!(!is_offline(&error(NAME_IN_USE, late)));
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(version("2.9.10") < MIN_VERSION);
        assert!(version("2.11.4") < MIN_VERSION);
        assert!(version("2.12.0-RC.1") >= MIN_VERSION);
        assert!(version("2.15.1") >= MIN_VERSION);
        assert!(version("3.0.0") >= MIN_VERSION);
        assert!(version("") < MIN_VERSION);
    }
}
