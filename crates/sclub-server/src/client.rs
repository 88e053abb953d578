//! A client for this service: HTTP/1.1 over one kept connection, with buffers that are used again.
//!
//! It asks no name of a certificate store of the machine: over https it trusts what it is given.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Most bytes in the head of an answer.
const MOST_HEAD: usize = 64 << 10;

/// Most headers in an answer.
const MOST_HEADERS: usize = 64;

/// Most bytes read at a time.
const READ: usize = 64 << 10;

/// How long a call may take unless it is said.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The address makes no sense.
    #[error("'{url}' is no address of a server: {why}")]
    Url {
        /// What was given.
        url: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The certificates to trust cannot be had.
    #[error("cannot read certificates from {}: {why}", path.display())]
    Roots {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Nobody answers there.
    #[error("no server answers at {url}: {source}")]
    Connect {
        /// Where.
        url: String,
        /// Why.
        source: io::Error,
    },
    /// The two sides do not trust each other.
    #[error("no secure connection to {url}: {source}")]
    Tls {
        /// Where.
        url: String,
        /// Why.
        source: io::Error,
    },
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broken(io::Error),
    /// No answer within the time.
    #[error("no answer within {} s", .0.as_secs_f64())]
    Timeout(Duration),
    /// What came back is not HTTP.
    #[error("the answer is not HTTP: {0}")]
    NotHttp(String),
    /// Whoever takes a download could not.
    #[error("{0}")]
    Sink(io::Error),
}

/// Where a server is: `http://host:port/base`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    is_https: bool,
    host: String,
    port: u16,
    base: String,
}

impl Url {
    /// Whether the connection is a secure one.
    pub fn is_https(&self) -> bool {
        self.is_https
    }

    /// The name or number of the machine, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What stands before every path, without a slash at its end.
    pub fn base(&self) -> &str {
        &self.base
    }

    fn authority(&self) -> String {
        let host = if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        match (self.is_https, self.port) {
            (false, 80) | (true, 443) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_https { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.base)
    }
}

impl FromStr for Url {
    type Err = ClientError;

    fn from_str(text: &str) -> Result<Self, ClientError> {
        let bad = |why| ClientError::Url {
            url: text.to_owned(),
            why,
        };
        let (is_https, rest) = if let Some(rest) = text.strip_prefix("http://") {
            (false, rest)
        } else if let Some(rest) = text.strip_prefix("https://") {
            (true, rest)
        } else {
            return Err(bad("it must begin with http:// or https://"));
        };
        if rest
            .bytes()
            .any(|byte| byte.is_ascii_whitespace() || byte.is_ascii_control())
        {
            return Err(bad("it has a space in it"));
        }
        if rest.contains(['?', '#']) {
            return Err(bad("it must have no query"));
        }
        let (authority, base) = match rest.find('/') {
            Some(slash) => rest.split_at(slash),
            None => (rest, ""),
        };
        if authority.contains('@') {
            return Err(bad("it must have no user in it"));
        }
        let (host, port) = if let Some(inside) = authority.strip_prefix('[') {
            let (host, after) = inside
                .split_once(']')
                .ok_or_else(|| bad("a bracket is open"))?;
            match after.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if after.is_empty() => (host, None),
                None => return Err(bad("only a port can come after the brackets")),
            }
        } else {
            match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            }
        };
        if host.is_empty() {
            return Err(bad("it names no machine"));
        }
        let port = match port {
            Some(port) => port
                .parse()
                .ok()
                .filter(|&port| port != 0)
                .ok_or_else(|| bad("its port is no number from 1 to 65535"))?,
            None if is_https => 443,
            None => 80,
        };
        Ok(Self {
            is_https,
            host: host.to_owned(),
            port,
            base: base.trim_end_matches('/').to_owned(),
        })
    }
}

/// The certificates that are trusted over https.
#[derive(Clone)]
pub struct Roots(Arc<ClientConfig>);

impl fmt::Debug for Roots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Roots")
    }
}

impl Roots {
    /// Reads certificates from a PEM file.
    ///
    /// # Errors
    /// [`ClientError::Roots`]
    pub fn from_file(path: &Path) -> Result<Self, ClientError> {
        let bad = |why: String| ClientError::Roots {
            path: path.to_owned(),
            why,
        };
        let certificates = CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| bad(error.to_string()))?;
        Self::new(certificates).map_err(bad)
    }

    /// Reads certificates from PEM text.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_pem(text: &[u8]) -> Result<Self, String> {
        let certificates = CertificateDer::pem_slice_iter(text)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| error.to_string())?;
        Self::new(certificates)
    }

    fn new(certificates: Vec<CertificateDer<'static>>) -> Result<Self, String> {
        if certificates.is_empty() {
            return Err("there is none in it".into());
        }
        let mut roots = RootCertStore::empty();
        for certificate in certificates {
            roots.add(certificate).map_err(|error| error.to_string())?;
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self(Arc::new(config)))
    }
}

/// An answer, until the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Response<'c> {
    /// The status, as 200.
    pub status: u16,
    /// The body.
    pub body: &'c [u8],
}

impl Response<'_> {
    /// Whether it went well.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

enum Stream {
    Plain(TcpStream),
    Secure(Box<TlsStream<TcpStream>>),
}

impl Stream {
    async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Stream::Plain(stream) => stream.write_all(bytes).await,
            Stream::Secure(stream) => {
                stream.write_all(bytes).await?;
                stream.flush().await
            }
        }
    }

    async fn read(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.read_buf(buffer).await,
            Stream::Secure(stream) => stream.read_buf(buffer).await,
        }
    }
}

/// How long a body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Length {
    Known(u64),
    Chunked,
    UntilClosed,
}

/// The head of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Head {
    status: u16,
    length: Length,
    is_kept: bool,
    /// Bytes that the head takes.
    size: usize,
}

/// What came in and has not been read yet.
#[derive(Default)]
struct Inbox {
    bytes: Vec<u8>,
    start: usize,
}

impl Inbox {
    fn unread(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    fn skip(&mut self, count: usize) {
        self.start += count;
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
        }
    }

    /// Reads more from the stream; an end of the stream is an error.
    async fn fill(&mut self, stream: &mut Stream) -> io::Result<()> {
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.reserve(READ);
        match stream.read(&mut self.bytes).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

/// A connection to a server that is kept between calls and opened again where it was closed.
pub struct Connection {
    url: Url,
    roots: Option<Roots>,
    stream: Option<Stream>,
    /// Whether an answer has come over this stream.
    is_used: bool,
    /// The lines `Host` and `Authorization`, which every request has.
    headers: Vec<u8>,
    timeout: Duration,
    outbox: Vec<u8>,
    inbox: Inbox,
    body: Vec<u8>,
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// [`ClientError::Connect`] where nobody answers, [`ClientError::Tls`] where there is no trust.
    pub async fn open(url: &Url, roots: Option<&Roots>) -> Result<Self, ClientError> {
        let mut connection = Self {
            headers: format!("host: {}\r\n", url.authority()).into_bytes(),
            url: url.clone(),
            roots: roots.cloned(),
            stream: None,
            is_used: false,
            timeout: DEFAULT_TIMEOUT,
            outbox: Vec::new(),
            inbox: Inbox::default(),
            body: Vec::new(),
        };
        connection.connect().await?;
        Ok(connection)
    }

    /// Shows this key with every request from now on.
    ///
    /// # Errors
    /// [`ClientError::NotHttp`] where the key cannot stand in a header.
    pub fn set_key(&mut self, key: &str) -> Result<(), ClientError> {
        if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(ClientError::NotHttp(
                "the key has a character that cannot be sent".into(),
            ));
        }
        let lines = format!(
            "host: {}\r\nauthorization: Bearer {key}\r\n",
            self.url.authority()
        );
        self.headers = lines.into_bytes();
        Ok(())
    }

    /// Gives up on a call after this long; on a download, after this long without a byte.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Where it goes.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Sends a request with a JSON body, or none where it is empty, and waits for the answer. The path
    /// begins with a slash.
    ///
    /// A request that found a kept connection closed is sent once more: every call of the service
    /// may arrive twice without harm.
    ///
    /// # Errors
    /// [`ClientError`]; an answer of any status is none.
    pub async fn request(
        &mut self,
        method: &str,
        path: &str,
        body: &[u8],
    ) -> Result<Response<'_>, ClientError> {
        let mut outbox = std::mem::take(&mut self.outbox);
        outbox.clear();
        self.write_request(&mut outbox, method, path, body);
        let outcome = self.exchange(&outbox).await;
        self.outbox = outbox;
        let status = outcome?;
        Ok(Response {
            status,
            body: &self.body,
        })
    }

    /// Writes the bytes of a request to the end of `out`, for [`Connection::send`].
    pub fn write_request(&self, out: &mut Vec<u8>, method: &str, path: &str, body: &[u8]) {
        for part in [method, " ", &self.url.base, path, " HTTP/1.1\r\n"] {
            out.extend_from_slice(part.as_bytes());
        }
        out.extend_from_slice(&self.headers);
        if !body.is_empty() || method == "POST" || method == "PUT" {
            out.extend_from_slice(b"content-type: application/json\r\ncontent-length: ");
            write_number(out, body.len());
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(body);
    }

    /// As [`Connection::request`], with bytes that [`Connection::write_request`] wrote.
    ///
    /// # Errors
    /// As [`Connection::request`].
    pub async fn send(&mut self, request: &[u8]) -> Result<Response<'_>, ClientError> {
        let status = self.exchange(request).await?;
        Ok(Response {
            status,
            body: &self.body,
        })
    }

    /// Gets a path and hands its body over as it comes. Where the status is not a good one nothing is
    /// handed over, and the answer has the body.
    ///
    /// # Errors
    /// [`ClientError`]; [`ClientError::Sink`] where `sink` failed.
    pub async fn download(
        &mut self,
        path: &str,
        mut sink: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<Response<'_>, ClientError> {
        let mut outbox = std::mem::take(&mut self.outbox);
        outbox.clear();
        self.write_request(&mut outbox, "GET", path, b"");
        let head = self.ask(&outbox).await;
        self.outbox = outbox;
        let head = head?;
        self.body.clear();
        let outcome = if (200..300).contains(&head.status) {
            self.read_body(head.length, Some(&mut sink)).await
        } else {
            self.read_body(head.length, None).await
        };
        self.settle(head, outcome)?;
        Ok(Response {
            status: head.status,
            body: &self.body,
        })
    }

    async fn connect(&mut self) -> Result<(), ClientError> {
        self.inbox.skip(self.inbox.unread().len());
        self.is_used = false;
        let refused = |source| ClientError::Connect {
            url: self.url.to_string(),
            source,
        };
        let address = (self.url.host.as_str(), self.url.port);
        let stream = timeout(self.timeout, TcpStream::connect(address))
            .await
            .map_err(|_| refused(io::ErrorKind::TimedOut.into()))?
            .map_err(refused)?;
        stream.set_nodelay(true).map_err(refused)?;
        self.stream = Some(if self.url.is_https {
            Stream::Secure(Box::new(self.secure(stream).await?))
        } else {
            Stream::Plain(stream)
        });
        Ok(())
    }

    async fn secure(&self, stream: TcpStream) -> Result<TlsStream<TcpStream>, ClientError> {
        let bad = |source| ClientError::Tls {
            url: self.url.to_string(),
            source,
        };
        let Some(Roots(config)) = &self.roots else {
            return Err(bad(io::Error::other(
                "no certificate to trust was given (--ca FILE)",
            )));
        };
        let name = ServerName::try_from(self.url.host.clone())
            .map_err(|_| bad(io::Error::other("its name cannot be in a certificate")))?;
        let handshake = TlsConnector::from(Arc::clone(config)).connect(name, stream);
        timeout(self.timeout, handshake)
            .await
            .map_err(|_| bad(io::ErrorKind::TimedOut.into()))?
            .map_err(bad)
    }

    /// Sends a request and reads its answer into `self.body`. Returns the status.
    async fn exchange(&mut self, request: &[u8]) -> Result<u16, ClientError> {
        let limit = self.timeout;
        let call = async {
            let head = self.ask(request).await?;
            self.body.clear();
            let outcome = self.read_body(head.length, None).await;
            self.settle(head, outcome)?;
            Ok(head.status)
        };
        match timeout(limit, call).await {
            Ok(outcome) => outcome,
            Err(_) => {
                self.stream = None;
                Err(ClientError::Timeout(limit))
            }
        }
    }

    /// Closes a connection that cannot be used again.
    fn settle(&mut self, head: Head, outcome: Result<(), ClientError>) -> Result<(), ClientError> {
        self.is_used = true;
        if outcome.is_err() || !head.is_kept {
            self.stream = None;
        }
        outcome
    }

    /// Sends a request and reads the head of its answer; once more where the connection had been kept
    /// and turns out to be closed.
    async fn ask(&mut self, request: &[u8]) -> Result<Head, ClientError> {
        if self.stream.is_none() {
            self.connect().await?;
        }
        let was_used = self.is_used;
        match self.ask_once(request).await {
            Err(ClientError::Broken(_)) if was_used && self.inbox.unread().is_empty() => {
                self.connect().await?;
                self.ask_once(request).await
            }
            outcome => outcome,
        }
        .inspect_err(|_| self.stream = None)
    }

    async fn ask_once(&mut self, request: &[u8]) -> Result<Head, ClientError> {
        let Some(stream) = &mut self.stream else {
            return Err(ClientError::Broken(io::ErrorKind::NotConnected.into()));
        };
        // What a server that refuses a long request says before it hangs up is still worth reading.
        let sent = stream.write_all(request).await;
        loop {
            if let Some(head) = parse_head(self.inbox.unread())? {
                self.inbox.skip(head.size);
                if head.status >= 200 {
                    return Ok(head);
                }
                continue;
            }
            if self.inbox.unread().len() > MOST_HEAD {
                return Err(ClientError::NotHttp("its head is too long".into()));
            }
            match (self.inbox.fill(stream).await, &sent) {
                (Ok(()), _) => {}
                (Err(_), Err(error)) => {
                    return Err(ClientError::Broken(io::Error::new(
                        error.kind(),
                        error.to_string(),
                    )));
                }
                (Err(error), Ok(())) => return Err(ClientError::Broken(error)),
            }
        }
    }

    /// Reads a body into `self.body`, or to the sink.
    async fn read_body(
        &mut self,
        length: Length,
        sink: Option<&mut Sink<'_>>,
    ) -> Result<(), ClientError> {
        let Some(stream) = &mut self.stream else {
            return Err(ClientError::Broken(io::ErrorKind::NotConnected.into()));
        };
        let mut target = match sink {
            Some(sink) => Target::Sink(sink),
            None => Target::Buffer(&mut self.body),
        };
        let inbox = &mut self.inbox;
        match length {
            Length::Known(length) => {
                pass_on(stream, inbox, length, &mut target, self.timeout).await
            }
            Length::Chunked => loop {
                let size = chunk_size(stream, inbox, self.timeout).await?;
                if size == 0 {
                    return skip_trailer(stream, inbox, self.timeout).await;
                }
                pass_on(stream, inbox, size, &mut target, self.timeout).await?;
                let end = line(stream, inbox, self.timeout).await?;
                if end != 0 {
                    return Err(ClientError::NotHttp(
                        "a chunk is longer than it says".into(),
                    ));
                }
                inbox.skip(2);
            },
            Length::UntilClosed => loop {
                target.take(inbox.unread())?;
                inbox.skip(inbox.unread().len());
                match within(self.timeout, inbox.fill(stream)).await {
                    Ok(()) => {}
                    Err(ClientError::Broken(error))
                        if error.kind() == io::ErrorKind::UnexpectedEof =>
                    {
                        return Ok(());
                    }
                    Err(error) => return Err(error),
                }
            },
        }
    }
}

/// Takes a body part by part.
type Sink<'s> = dyn FnMut(&[u8]) -> io::Result<()> + 's;

/// Where a body goes.
enum Target<'t> {
    Buffer(&'t mut Vec<u8>),
    Sink(&'t mut Sink<'t>),
}

impl Target<'_> {
    fn take(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        match self {
            Target::Buffer(buffer) => {
                buffer.extend_from_slice(bytes);
                Ok(())
            }
            Target::Sink(sink) => sink(bytes).map_err(ClientError::Sink),
        }
    }
}

async fn within(
    limit: Duration,
    work: impl Future<Output = io::Result<()>>,
) -> Result<(), ClientError> {
    match timeout(limit, work).await {
        Ok(outcome) => outcome.map_err(ClientError::Broken),
        Err(_) => Err(ClientError::Timeout(limit)),
    }
}

/// Hands `length` bytes over.
async fn pass_on(
    stream: &mut Stream,
    inbox: &mut Inbox,
    mut length: u64,
    target: &mut Target<'_>,
    limit: Duration,
) -> Result<(), ClientError> {
    loop {
        let unread = inbox.unread();
        let some = unread
            .len()
            .min(usize::try_from(length).unwrap_or(usize::MAX));
        target.take(&unread[..some])?;
        inbox.skip(some);
        length -= some as u64;
        if length == 0 {
            return Ok(());
        }
        within(limit, inbox.fill(stream)).await?;
    }
}

/// The length of the next line, which is then in the inbox with its end.
async fn line(
    stream: &mut Stream,
    inbox: &mut Inbox,
    limit: Duration,
) -> Result<usize, ClientError> {
    loop {
        if let Some(end) = inbox.unread().windows(2).position(|two| two == b"\r\n") {
            return Ok(end);
        }
        if inbox.unread().len() > MOST_HEAD {
            return Err(ClientError::NotHttp("a chunk has no size".into()));
        }
        within(limit, inbox.fill(stream)).await?;
    }
}

async fn chunk_size(
    stream: &mut Stream,
    inbox: &mut Inbox,
    limit: Duration,
) -> Result<u64, ClientError> {
    let end = line(stream, inbox, limit).await?;
    let text = &inbox.unread()[..end];
    let digits = text.split(|&byte| byte == b';').next().unwrap_or(text);
    let size = std::str::from_utf8(digits)
        .ok()
        .and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok())
        .ok_or_else(|| ClientError::NotHttp("a chunk has no size".into()))?;
    inbox.skip(end + 2);
    Ok(size)
}

async fn skip_trailer(
    stream: &mut Stream,
    inbox: &mut Inbox,
    limit: Duration,
) -> Result<(), ClientError> {
    loop {
        let end = line(stream, inbox, limit).await?;
        inbox.skip(end + 2);
        if end == 0 {
            return Ok(());
        }
    }
}

/// The head at the beginning of some bytes, if all of it is there.
fn parse_head(bytes: &[u8]) -> Result<Option<Head>, ClientError> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut answer = httparse::Response::new(&mut headers);
    let size = match answer.parse(bytes) {
        Ok(httparse::Status::Complete(size)) => size,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(ClientError::NotHttp(error.to_string())),
    };
    let status = answer.code.unwrap_or(0);
    let mut length = Length::UntilClosed;
    let mut is_kept = answer.version == Some(1);
    for header in answer.headers.iter() {
        let value = header.value.trim_ascii();
        if header.name.eq_ignore_ascii_case("content-length") {
            let known = std::str::from_utf8(value)
                .ok()
                .and_then(|text| text.parse().ok())
                .ok_or_else(|| ClientError::NotHttp("its content-length is no number".into()))?;
            if length != Length::Chunked {
                length = Length::Known(known);
            }
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            if !value.eq_ignore_ascii_case(b"chunked") {
                return Err(ClientError::NotHttp("its encoding is unknown".into()));
            }
            length = Length::Chunked;
        } else if header.name.eq_ignore_ascii_case("connection") {
            is_kept = value.eq_ignore_ascii_case(b"keep-alive")
                || (is_kept && !value.eq_ignore_ascii_case(b"close"));
        }
    }
    if status < 200 || status == 204 || status == 304 {
        length = Length::Known(0);
    }
    Ok(Some(Head {
        status,
        length,
        is_kept: is_kept && length != Length::UntilClosed,
        size,
    }))
}

fn write_number(out: &mut Vec<u8>, number: usize) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = number;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    #[test]
    fn addresses_are_taken_apart() {
        let parts = |text: &str| {
            let url: Url = text.parse().unwrap();
            let text = url.to_string();
            (url.is_https, url.host, url.port, url.base, text)
        };
        assert_eq!(
            parts("http://127.0.0.1:8080"),
            (
                false,
                "127.0.0.1".into(),
                8080,
                String::new(),
                "http://127.0.0.1:8080".into()
            )
        );
        assert_eq!(
            parts("https://[::1]/a/b/"),
            (
                true,
                "::1".into(),
                443,
                "/a/b".into(),
                "https://[::1]/a/b".into()
            )
        );
        assert_eq!(parts("http://a.example").2, 80);
        for bad in [
            "127.0.0.1:8080",
            "ftp://x",
            "http://",
            "http://:80",
            "http://a:b",
            "http://a:0",
            "http://a:70000",
            "http://u@a",
            "http://a?b",
            "http://a b",
            "http://[::1",
            "http://[::1]80",
        ] {
            let error = bad.parse::<Url>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("'{bad}'")), "{error}");
        }
    }

    /// Answers each connection with its bytes, in parts, one for each request; closes it when they are
    /// used up. Returns the address and what was asked.
    async fn server(
        connections: Vec<Vec<Vec<&'static [u8]>>>,
    ) -> (Url, tokio::task::JoinHandle<Vec<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/base", listener.local_addr().unwrap());
        let task = tokio::spawn(async move {
            let mut asked = Vec::new();
            for answers in connections {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut requests = Vec::new();
                for parts in answers {
                    let mut bytes = Vec::new();
                    while !is_whole(&bytes) {
                        assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0);
                    }
                    requests.push(String::from_utf8(bytes).unwrap());
                    for part in parts {
                        stream.write_all(part).await.unwrap();
                        stream.flush().await.unwrap();
                        tokio::task::yield_now().await;
                    }
                }
                asked.push(requests);
            }
            asked
        });
        (url.parse().unwrap(), task)
    }

    fn is_whole(bytes: &[u8]) -> bool {
        let text = String::from_utf8_lossy(bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            return false;
        };
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        length.is_none_or(|length| body.len() == length.parse::<usize>().unwrap())
    }

    #[tokio::test]
    async fn bodies_come_with_a_length_in_chunks_and_until_the_end() {
        let (url, server) = server(vec![vec![
            vec![b"HTTP/1.1 200 OK\r\nContent-Le", b"ngth: 5\r\n\r\nhe", b"llo"],
            vec![
                b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 No\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n01234",
                b"56789\r\n0\r\ntrail: er\r\n\r",
                b"\n",
            ],
            vec![b"HTTP/1.1 204 None\r\n\r\n"],
            vec![b"HTTP/1.1 200 OK\r\n\r\nto the", b" end"],
        ]])
        .await;
        let mut client = Connection::open(&url, None).await.unwrap();
        client.set_key("secret").unwrap();
        let answer = client.request("POST", "/v1/x", b"{}").await.unwrap();
        assert_eq!((answer.status, answer.body), (200, &b"hello"[..]));
        let answer = client.request("GET", "/v1/y?z=1", b"").await.unwrap();
        assert_eq!((answer.status, answer.body), (404, &b"abc0123456789"[..]));
        let answer = client.request("POST", "/v1/w", b"").await.unwrap();
        assert_eq!((answer.status, answer.body), (204, &b""[..]));
        let answer = client.request("GET", "/", b"").await.unwrap();
        assert_eq!((answer.status, answer.body), (200, &b"to the end"[..]));

        let authority = url.authority();
        let asked = server.await.unwrap().remove(0);
        assert_eq!(
            asked[0],
            format!(
                "POST /base/v1/x HTTP/1.1\r\nhost: {authority}\r\nauthorization: Bearer secret\r\n\
                 content-type: application/json\r\ncontent-length: 2\r\n\r\n{{}}"
            )
        );
        assert!(asked[1].starts_with("GET /base/v1/y?z=1 HTTP/1.1\r\n"));
        assert!(asked[1].ends_with("Bearer secret\r\n\r\n"));
        assert!(asked[2].ends_with("content-length: 0\r\n\r\n"));
    }

    #[tokio::test]
    async fn a_kept_connection_that_was_closed_is_opened_once_more() {
        const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n1";
        let (url, server) = server(vec![vec![vec![OK]], vec![vec![OK], vec![]]]).await;
        let mut client = Connection::open(&url, None).await.unwrap();
        assert_eq!(client.request("GET", "/a", b"").await.unwrap().body, b"1");
        assert_eq!(client.request("GET", "/b", b"").await.unwrap().body, b"1");
        let asked = {
            // The second connection ends after it was asked, and there is no third.
            let error = client.request("GET", "/c", b"").await.unwrap_err();
            assert!(
                matches!(error, ClientError::Connect { .. } | ClientError::Broken(_)),
                "{error}"
            );
            server.await.unwrap()
        };
        assert_eq!(asked[0].len(), 1);
        assert!(asked[1][0].starts_with("GET /base/b "));
        assert!(asked[1][1].starts_with("GET /base/c "));
    }

    #[tokio::test]
    async fn a_download_is_handed_over_in_parts() {
        let (url, _server) = server(vec![vec![
            vec![
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
                b"2\r\nde\r\n0\r\n\r\n",
            ],
            vec![b"HTTP/1.1 403 No\r\ncontent-length: 2\r\n\r\nno"],
            vec![b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\ncut"],
        ]])
        .await;
        let mut client = Connection::open(&url, None).await.unwrap();
        let mut got = Vec::new();
        let mut sink = |part: &[u8]| {
            got.extend_from_slice(part);
            Ok(())
        };
        let answer = client.download("/a", &mut sink).await.unwrap();
        assert_eq!((answer.status, answer.body), (200, &b""[..]));
        let answer = client.download("/b", &mut sink).await.unwrap();
        assert_eq!((answer.status, answer.body), (403, &b"no"[..]));
        let error = client.download("/c", &mut sink).await.unwrap_err();
        assert!(matches!(error, ClientError::Broken(_)), "{error}");
        assert_eq!(got, b"abcdecut");
    }

    #[tokio::test]
    async fn silence_and_nonsense_are_errors() {
        let (url, _server) = server(vec![vec![vec![b"nonsense\r\n\r\n"]]]).await;
        let mut client = Connection::open(&url, None).await.unwrap();
        let error = client.request("GET", "/", b"").await.unwrap_err();
        assert!(matches!(error, ClientError::NotHttp(_)), "{error}");

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url: Url = format!("http://{}", listener.local_addr().unwrap())
            .parse()
            .unwrap();
        let mut client = Connection::open(&url, None).await.unwrap();
        client.set_timeout(Duration::from_millis(20));
        let error = client.request("GET", "/", b"").await.unwrap_err();
        assert_eq!(error.to_string(), "no answer within 0.02 s");
        assert!(client.set_key("a b").is_err());
        drop(listener);
        let error = Connection::open(&url, None).await.err().unwrap();
        let start = format!("no server answers at {url}: ");
        assert!(error.to_string().starts_with(&start), "{error}");
    }

    #[tokio::test]
    async fn a_certificate_is_trusted_only_if_it_was_given() {
        use tokio_rustls::TlsAcceptor;
        use tokio_rustls::rustls::ServerConfig;
        use tokio_rustls::rustls::pki_types::PrivateKeyDer;

        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let acceptor = TlsAcceptor::from(Arc::new(config));
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    continue;
                };
                let mut bytes = Vec::new();
                while !is_whole(&bytes) {
                    stream.read_buf(&mut bytes).await.unwrap();
                }
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecure";
                stream.write_all(answer).await.unwrap();
                stream.flush().await.unwrap();
            }
        });
        let url: Url = format!("https://localhost:{port}").parse().unwrap();
        let error = Connection::open(&url, None).await.err().unwrap();
        assert!(error.to_string().contains("--ca"), "{error}");
        let wrong = Roots::from_pem(other.cert.pem().as_bytes()).unwrap();
        let error = Connection::open(&url, Some(&wrong)).await.err().unwrap();
        assert!(matches!(error, ClientError::Tls { .. }), "{error}");
        let roots = Roots::from_pem(made.cert.pem().as_bytes()).unwrap();
        let mut client = Connection::open(&url, Some(&roots)).await.unwrap();
        let answer = client.request("GET", "/", b"").await.unwrap();
        assert_eq!((answer.status, answer.body), (200, &b"secure"[..]));
        assert!(Roots::from_pem(b"nothing").is_err());
    }
}
