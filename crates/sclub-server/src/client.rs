//! A client for this service: HTTP/1.1 over one kept connection, by hyper.
//!
//! Over https it trusts the certificates it is given, else the authorities that this machine trusts.

use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::str::FromStr;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST};
use hyper::header::{HeaderMap, HeaderValue};
use hyper::{Method, Request, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

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
    Broken(String),
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
        let is_https = text.starts_with("https://");
        if !is_https && !text.starts_with("http://") {
            return Err(bad("it must begin with http:// or https://"));
        }
        if text.contains(['?', '#']) {
            return Err(bad("it must have no query"));
        }
        let uri: Uri = text
            .parse()
            .map_err(|_| bad("it is no valid URL, such as http://localhost:8080"))?;
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        if authority.contains('@') {
            return Err(bad("it must have no user in it"));
        }
        let host = uri.host().unwrap_or_default();
        if host.is_empty() {
            return Err(bad("it names no machine"));
        }
        // What `Uri::port` cannot read it leaves out.
        let port = match &authority[host.len()..] {
            "" if is_https => 443,
            "" => 80,
            port => port
                .strip_prefix(':')
                .and_then(|port| port.parse().ok())
                .filter(|&port| port != 0)
                .ok_or_else(|| bad("its port is no number from 1 to 65535"))?,
        };
        Ok(Self {
            is_https,
            host: host.trim_matches(['[', ']']).to_owned(),
            port,
            base: uri.path().trim_end_matches('/').to_owned(),
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

    /// The authorities that this machine trusts, read once.
    fn of_machine() -> Result<&'static Self, String> {
        static READ: OnceLock<Result<Roots, String>> = OnceLock::new();
        let read = || {
            let found = rustls_native_certs::load_native_certs();
            let mut roots = RootCertStore::empty();
            // Some of those on a machine may be too odd to read, which says nothing about the others.
            roots.add_parsable_certificates(found.certs);
            if roots.is_empty() {
                let why = found.errors.first().map(|error| format!(": {error}"));
                return Err(format!(
                    "this machine has no certificate authorities to trust{} (--ca FILE gives one)",
                    why.unwrap_or_default()
                ));
            }
            Self::trusting(roots)
        };
        READ.get_or_init(read).as_ref().map_err(Clone::clone)
    }

    fn new(certificates: Vec<CertificateDer<'static>>) -> Result<Self, String> {
        if certificates.is_empty() {
            return Err("there is none in it".into());
        }
        let mut roots = RootCertStore::empty();
        for certificate in certificates {
            roots.add(certificate).map_err(|error| error.to_string())?;
        }
        Self::trusting(roots)
    }

    fn trusting(roots: RootCertStore) -> Result<Self, String> {
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self(Arc::new(config)))
    }
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The status, as 200.
    pub status: u16,
    /// The body.
    pub body: Bytes,
}

impl Response {
    /// Whether it went well.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// A connection to a server that is kept between calls and opened again where it was closed.
pub struct Connection {
    url: Url,
    roots: Option<Roots>,
    /// Those of every request.
    headers: HeaderMap,
    timeout: Duration,
    /// A call takes it and gives it back when the answer has been read to its end: the answer to a call
    /// that was dropped goes with its connection, and nobody else reads it.
    kept: Option<Link>,
    /// The last path and its URI: most callers repeat one path.
    uri: (String, Uri),
}

/// An open HTTP/1.1 connection.
struct Link {
    sender: SendRequest<Full<Bytes>>,
    /// Reads and writes the socket. It is polled by the call that waits for an answer rather than by a task
    /// of its own, which would cost two more wake-ups a call.
    driver: Driver,
}

/// `None` once the connection is closed.
type Driver = Option<Pin<Box<dyn Future<Output = Result<(), hyper::Error>> + Send>>>;

impl Connection {
    /// Connects. Without roots, the authorities that this machine trusts are trusted over https.
    ///
    /// # Errors
    /// [`ClientError::Connect`] where nobody answers, [`ClientError::Tls`] where there is no trust.
    pub async fn open(url: &Url, roots: Option<&Roots>) -> Result<Self, ClientError> {
        let mut connection = Self {
            headers: HeaderMap::from_iter([(HOST, header(&url.authority())?)]),
            url: url.clone(),
            roots: roots.cloned(),
            timeout: DEFAULT_TIMEOUT,
            kept: None,
            uri: (String::new(), Uri::default()),
        };
        connection.kept = Some(connection.connect().await?);
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
        let mut value = header(&format!("Bearer {key}"))?;
        value.set_sensitive(true);
        self.headers.insert(AUTHORIZATION, value);
        Ok(())
    }

    /// Gives up on a call after this long; on a download, after this long without a byte once it has
    /// begun.
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
    ) -> Result<Response, ClientError> {
        let limit = self.timeout;
        let call = async {
            let (mut link, answer) = self.ask(method, path, body).await?;
            let (head, body) = answer.into_parts();
            let body = drive(&mut link.driver, body.collect()).await?.to_bytes();
            self.kept = Some(link);
            Ok(Response {
                status: head.status.as_u16(),
                body,
            })
        };
        within(limit, call).await?
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
    ) -> Result<Response, ClientError> {
        let (mut link, answer) = self.ask("GET", path, b"").await?;
        let (head, mut body) = answer.into_parts();
        let mut kept = Vec::new();
        loop {
            let frame = async { body.frame().await.transpose() };
            let Some(frame) = within(self.timeout, drive(&mut link.driver, frame)).await?? else {
                break;
            };
            let Ok(part) = frame.into_data() else {
                continue;
            };
            if head.status.is_success() {
                sink(&part).map_err(ClientError::Sink)?;
            } else {
                kept.extend_from_slice(&part);
            }
        }
        self.kept = Some(link);
        Ok(Response {
            status: head.status.as_u16(),
            body: kept.into(),
        })
    }

    async fn connect(&self) -> Result<Link, ClientError> {
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
        if self.url.is_https {
            start(self.secure(stream).await?).await
        } else {
            start(stream).await
        }
    }

    async fn secure(&self, stream: TcpStream) -> Result<TlsStream<TcpStream>, ClientError> {
        let bad = |source| ClientError::Tls {
            url: self.url.to_string(),
            source,
        };
        let Roots(config) = match &self.roots {
            Some(roots) => roots,
            None => Roots::of_machine().map_err(|why| bad(io::Error::other(why)))?,
        };
        let name = ServerName::try_from(self.url.host.clone())
            .map_err(|_| bad(io::Error::other("its name cannot be in a certificate")))?;
        let handshake = TlsConnector::from(Arc::clone(config)).connect(name, stream);
        timeout(self.timeout, handshake)
            .await
            .map_err(|_| bad(io::ErrorKind::TimedOut.into()))?
            .map_err(|error| {
                let is_distrust = error
                    .get_ref()
                    .and_then(|inner| inner.downcast_ref())
                    .is_some_and(|inner| matches!(inner, rustls::Error::InvalidCertificate(_)));
                bad(match self.roots {
                    None if is_distrust => io::Error::other(format!(
                        "{error} (--ca FILE trusts a certificate that no public authority has signed)"
                    )),
                    _ => error,
                })
            })
    }

    /// Sends a request and waits for the head of its answer; once more where the connection had been
    /// kept and turns out to be closed.
    async fn ask(
        &mut self,
        method: &str,
        path: &str,
        body: &[u8],
    ) -> Result<(Link, hyper::Response<Incoming>), ClientError> {
        let body = Bytes::copy_from_slice(body);
        if let Some(mut link) = self.kept.take() {
            let request = self.write(method, path, body.clone())?;
            match link.send(request).await {
                Ok(answer) => return Ok((link, answer)),
                Err(ClientError::Broken(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let mut link = self.connect().await?;
        let answer = link.send(self.write(method, path, body)?).await?;
        Ok((link, answer))
    }

    fn write(
        &mut self,
        method: &str,
        path: &str,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, ClientError> {
        let mut headers = self.headers.clone();
        if !body.is_empty() || method == "POST" || method == "PUT" {
            let json = HeaderValue::from_static("application/json");
            headers.insert(CONTENT_TYPE, json);
            headers.insert(CONTENT_LENGTH, body.len().into());
        }
        let bad =
            |error: hyper::http::Error| ClientError::NotHttp(format!("{method} {path}: {error}"));
        if self.uri.0 != path {
            let uri = Uri::try_from(format!("{}{path}", self.url.base));
            self.uri = (path.to_owned(), uri.map_err(|error| bad(error.into()))?);
        }
        let mut request = Request::new(Full::new(body));
        *request.method_mut() =
            Method::from_bytes(method.as_bytes()).map_err(|error| bad(error.into()))?;
        *request.uri_mut() = self.uri.1.clone();
        *request.headers_mut() = headers;
        Ok(request)
    }
}

fn header(text: &str) -> Result<HeaderValue, ClientError> {
    HeaderValue::from_str(text).map_err(|error| ClientError::NotHttp(error.to_string()))
}

/// Begins to speak HTTP.
async fn start(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<Link, ClientError> {
    let (sender, driver) = handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let driver: Driver = Some(Box::pin(driver));
    Ok(Link { sender, driver })
}

impl Link {
    async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<hyper::Response<Incoming>, ClientError> {
        let sender = &mut self.sender;
        let answer = async {
            sender.ready().await?;
            sender.send_request(request).await
        };
        drive(&mut self.driver, answer).await
    }
}

/// Waits for something that a connection brings.
async fn drive<T>(
    driver: &mut Driver,
    work: impl Future<Output = Result<T, hyper::Error>>,
) -> Result<T, ClientError> {
    let mut work = pin!(work);
    let done = poll_fn(|cx| {
        loop {
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(Some(done));
            }
            let Some(running) = driver else {
                // Nothing will wake the work any more.
                return Poll::Ready(None);
            };
            if running.as_mut().poll(cx).is_ready() {
                *driver = None;
            } else {
                // The driver may have handed something over just now.
                return work.as_mut().poll(cx).map(Some);
            }
        }
    });
    match done.await {
        Some(done) => done.map_err(failed),
        None => Err(ClientError::Broken("the server closed it".to_owned())),
    }
}

async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Result<T, ClientError> {
    timeout(limit, work)
        .await
        .map_err(|_| ClientError::Timeout(limit))
}

fn failed(error: hyper::Error) -> ClientError {
    if error.is_parse() {
        return ClientError::NotHttp(error.to_string());
    }
    // The innermost cause says most.
    let mut cause: &dyn Error = &error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    ClientError::Broken(cause.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::sync::Notify;

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
            "http://a#b",
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
        assert_eq!((answer.status, &answer.body[..]), (200, &b"hello"[..]));
        let answer = client.request("GET", "/v1/y?z=1", b"").await.unwrap();
        assert_eq!(
            (answer.status, &answer.body[..]),
            (404, &b"abc0123456789"[..])
        );
        let answer = client.request("POST", "/v1/w", b"").await.unwrap();
        assert_eq!((answer.status, &answer.body[..]), (204, &b""[..]));
        let answer = client.request("GET", "/", b"").await.unwrap();
        assert_eq!((answer.status, &answer.body[..]), (200, &b"to the end"[..]));

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
        assert_eq!(
            client.request("GET", "/a", b"").await.unwrap().body,
            b"1"[..]
        );
        assert_eq!(
            client.request("GET", "/b", b"").await.unwrap().body,
            b"1"[..]
        );
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

    /// Answers every request with its own path; with all but the last bytes of it where that is slow, until
    /// it is told to go on.
    async fn echo(begun: Arc<Notify>, go_on: Arc<Notify>, held_back: usize) -> Url {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let (begun, go_on) = (Arc::clone(&begun), Arc::clone(&go_on));
                tokio::spawn(async move {
                    let mut bytes = Vec::new();
                    while stream
                        .read_buf(&mut bytes)
                        .await
                        .is_ok_and(|count| count > 0)
                    {
                        if !is_whole(&bytes) {
                            continue;
                        }
                        let asked = String::from_utf8(std::mem::take(&mut bytes)).unwrap();
                        let path = asked.split(' ').nth(1).unwrap();
                        let length = path.len();
                        let answer =
                            format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{path}");
                        let mut rest = answer.as_bytes();
                        if path == "/slow" {
                            let (first, last) = rest.split_at(rest.len() - held_back);
                            stream.write_all(first).await.unwrap();
                            begun.notify_one();
                            go_on.notified().await;
                            rest = last;
                        }
                        // Whoever asked may have gone.
                        let _ = stream.write_all(rest).await;
                    }
                });
            }
        });
        url.parse().unwrap()
    }

    #[tokio::test]
    async fn a_dropped_request_leaves_no_answer_for_the_next() {
        // Dropped before the answer, within its head and within its body.
        for held_back in [43, 20, 3] {
            for is_download in [false, true] {
                let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
                let url = echo(Arc::clone(&begun), Arc::clone(&go_on), held_back).await;
                let mut client = Connection::open(&url, None).await.unwrap();
                let answer = client.request("GET", "/first", b"").await.unwrap();
                assert_eq!(&answer.body[..], b"/first");
                let asking = async {
                    if is_download {
                        client.download("/slow", |_| Ok(())).await.map(drop)
                    } else {
                        client.request("GET", "/slow", b"").await.map(drop)
                    }
                };
                tokio::select! {
                    biased;
                    _ = asking => panic!("there is no whole answer yet"),
                    () = begun.notified() => {}
                }
                go_on.notify_one();
                let answer = client.request("GET", "/next", b"").await.unwrap();
                assert_eq!(&answer.body[..], b"/next", "{held_back} {is_download}");
            }
        }
    }

    #[tokio::test]
    async fn what_ran_into_a_timeout_leaves_no_answer_for_the_next() {
        let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let url = echo(begun, Arc::clone(&go_on), 3).await;
        let mut client = Connection::open(&url, None).await.unwrap();
        client.set_timeout(Duration::from_millis(50));
        for is_download in [false, true] {
            let error = if is_download {
                client.download("/slow", |_| Ok(())).await.unwrap_err()
            } else {
                client.request("GET", "/slow", b"").await.unwrap_err()
            };
            assert!(matches!(error, ClientError::Timeout(_)), "{error}");
            go_on.notify_one();
            client.set_timeout(DEFAULT_TIMEOUT);
            let answer = client.request("GET", "/next", b"").await.unwrap();
            assert_eq!(&answer.body[..], b"/next");
            client.set_timeout(Duration::from_millis(50));
        }
    }

    #[tokio::test]
    async fn what_is_said_to_a_request_that_is_too_long_is_read() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.read_buf(&mut Vec::new()).await.unwrap();
                let answer = b"HTTP/1.1 413 No\r\nconnection: close\r\ncontent-length: 2\r\n\r\nno";
                stream.write_all(answer).await.unwrap();
            }
        });
        let url: Url = url.parse().unwrap();
        for _ in 0..20 {
            let mut client = Connection::open(&url, None).await.unwrap();
            let body = vec![b' '; 16 << 20];
            let answer = client.request("PUT", "/", &body).await.unwrap();
            assert_eq!((answer.status, &answer.body[..]), (413, &b"no"[..]));
        }
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
        assert_eq!((answer.status, &answer.body[..]), (200, &b""[..]));
        let answer = client.download("/b", &mut sink).await.unwrap();
        assert_eq!((answer.status, &answer.body[..]), (403, &b"no"[..]));
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
        assert!(error.to_string().contains("--ca FILE"), "{error}");
        let wrong = Roots::new(vec![other.cert.der().clone()]).unwrap();
        let error = Connection::open(&url, Some(&wrong)).await.err().unwrap();
        assert!(matches!(error, ClientError::Tls { .. }), "{error}");
        let roots = Roots::new(vec![made.cert.der().clone()]).unwrap();
        let mut client = Connection::open(&url, Some(&roots)).await.unwrap();
        let answer = client.request("GET", "/", b"").await.unwrap();
        assert_eq!((answer.status, &answer.body[..]), (200, &b"secure"[..]));
        assert!(Roots::new(Vec::new()).is_err());
    }
}
