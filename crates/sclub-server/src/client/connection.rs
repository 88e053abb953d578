//! A connection and its requests.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST};
use hyper::header::{HeaderMap, HeaderValue};
use hyper::{Method, Request, Uri};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::ServerName;

use super::link::{Link, Unanswered, failed};
use super::{ClientError, Roots, Url};

/// The default timeout of a call.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: Bytes,
    headers: HeaderMap,
}

impl Response {
    /// Returns true if the status is 2xx.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The value of a header, if the answer has it and it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// A connection to a server. It is kept between calls and opened again if it was closed.
pub struct Connection {
    url: Url,
    roots: Option<Roots>,
    /// The headers of every request.
    headers: HeaderMap,
    timeout: Duration,
    /// The open connection. A call takes it and puts it back when the answer has been read to its end. So the
    /// answer to a dropped call is dropped with its connection, and no other call reads it.
    idle: Option<Link>,
    /// The last path and its URI: most callers repeat one path.
    uri: (String, Uri),
}

impl Connection {
    /// Connects. Without roots, the certificate authorities of this machine are trusted over https.
    ///
    /// # Errors
    /// [`ClientError::Connect`] if no server answers, [`ClientError::Tls`] if the handshake fails.
    pub async fn open(url: &Url, roots: Option<&Roots>) -> Result<Self, ClientError> {
        let mut connection = Self {
            headers: HeaderMap::from_iter([(HOST, header(&url.authority())?)]),
            url: url.clone(),
            roots: roots.cloned(),
            timeout: DEFAULT_TIMEOUT,
            idle: None,
            uri: (String::new(), Uri::default()),
        };
        connection.idle = Some(connection.connect().await?);
        Ok(connection)
    }

    /// Sends this API key with every request from now on.
    ///
    /// # Errors
    /// [`ClientError::NotHttp`] if the key is not valid in a header.
    pub fn set_key(&mut self, key: &str) -> Result<(), ClientError> {
        if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(ClientError::NotHttp(
                "the key has a character that is not allowed in a header".into(),
            ));
        }
        let mut value = header(&format!("Bearer {key}"))?;
        value.set_sensitive(true);
        self.headers.insert(AUTHORIZATION, value);
        Ok(())
    }

    /// Sends these headers with every request from now on.
    pub fn set_headers(&mut self, headers: &HeaderMap) {
        for (name, value) in headers {
            self.headers.insert(name, value.clone());
        }
    }

    /// Sets the timeout of a call. For a download it is the longest time without a byte.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// The URL of the server.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Sends a request with a JSON body, or without one if it is empty, and waits for the answer. The path
    /// begins with a slash.
    ///
    /// If the kept connection turns out to be closed, the request is sent once more. So it may arrive twice:
    /// use [`Connection::request_once`] where that matters.
    ///
    /// # Errors
    /// [`ClientError`] if there is no answer. An answer of any status is not an error.
    pub async fn request(
        &mut self,
        method: &str,
        path: &str,
        body: &[u8],
    ) -> Result<Response, ClientError> {
        self.call(method, path, body, true).await
    }

    /// As [`Connection::request`], for calls that must not arrive twice: a round without rewards, and a
    /// compaction. The request is sent again only if no byte of it was sent.
    ///
    /// # Errors
    /// As [`Connection::request`].
    pub async fn request_once(
        &mut self,
        method: &str,
        path: &str,
        body: &[u8],
    ) -> Result<Response, ClientError> {
        self.call(method, path, body, false).await
    }

    async fn call(
        &mut self,
        method: &str,
        path: &str,
        body: &[u8],
        may_repeat: bool,
    ) -> Result<Response, ClientError> {
        let limit = self.timeout;
        let call = async {
            let (link, answer) = self.send(method, path, body, may_repeat).await?;
            let (head, body) = answer.into_parts();
            let body = body.collect().await.map_err(failed)?.to_bytes();
            self.idle = Some(link);
            Ok(Response {
                status: head.status.as_u16(),
                body,
                headers: head.headers,
            })
        };
        within(limit, call).await?
    }

    /// Gets a path and passes its body to `sink` as it arrives. If the status is not 2xx, `sink` is not
    /// called, and the answer has the body.
    ///
    /// # Errors
    /// [`ClientError`]; [`ClientError::EndedEarly`] if the server broke off, [`ClientError::Sink`] if `sink` failed.
    pub async fn download(
        &mut self,
        path: &str,
        mut sink: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<Response, ClientError> {
        let limit = self.timeout;
        let (link, answer) = within(limit, self.send("GET", path, b"", true)).await??;
        let (head, mut body) = answer.into_parts();
        let mut error_body = Vec::new();
        while let Some(frame) = within(self.timeout, body.frame()).await? {
            let frame = frame.map_err(|error| match failed(error) {
                // The cause is that the connection was closed, which says nothing.
                ClientError::Broken(_) => ClientError::EndedEarly,
                other => other,
            });
            let Ok(part) = frame?.into_data() else {
                continue;
            };
            if head.status.is_success() {
                sink(&part).map_err(ClientError::Sink)?;
            } else {
                error_body.extend_from_slice(&part);
            }
        }
        self.idle = Some(link);
        Ok(Response {
            status: head.status.as_u16(),
            body: error_body.into(),
            headers: head.headers,
        })
    }

    async fn connect(&self) -> Result<Link, ClientError> {
        let refused = |reason| ClientError::Connect {
            url: self.url.to_string(),
            reason,
        };
        let address = (self.url.host.as_str(), self.url.port);
        let stream = timeout(self.timeout, TcpStream::connect(address))
            .await
            .map_err(|_| refused(io::ErrorKind::TimedOut.into()))?
            .map_err(refused)?;
        stream.set_nodelay(true).map_err(refused)?;
        if self.url.is_https {
            Link::start(self.secure(stream).await?).await
        } else {
            Link::start(stream).await
        }
    }

    async fn secure(&self, stream: TcpStream) -> Result<TlsStream<TcpStream>, ClientError> {
        let bad = |reason| ClientError::Tls {
            url: self.url.to_string(),
            reason,
        };
        let Roots(config) = match &self.roots {
            Some(roots) => roots,
            None => Roots::of_machine().map_err(|why| bad(io::Error::other(why)))?,
        };
        let name = ServerName::try_from(self.url.host.clone()).map_err(|_| {
            bad(io::Error::other(
                "the host name is not valid in a certificate",
            ))
        })?;
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
                        "{error}; use --ca FILE for a certificate that no public authority has signed"
                    )),
                    _ => error,
                })
            })
    }

    /// Sends a request and waits for the head of its answer. Sends it once more if the kept connection turns
    /// out to be closed, unless it was sent and must not be repeated.
    async fn send(
        &mut self,
        method: &str,
        path: &str,
        body: &[u8],
        may_repeat: bool,
    ) -> Result<(Link, hyper::Response<Incoming>), ClientError> {
        let body = Bytes::copy_from_slice(body);
        if let Some(mut link) = self.idle.take() {
            let request = self.build(method, path, body.clone())?;
            match link.send(request).await {
                Ok(answer) => return Ok((link, answer)),
                Err(Unanswered {
                    was_sent: false, ..
                }) => {}
                Err(Unanswered { error, .. }) if !may_repeat => return Err(error),
                Err(Unanswered {
                    error: ClientError::Broken(_),
                    ..
                }) => {}
                Err(Unanswered { error, .. }) => return Err(error),
            }
        }
        let mut link = self.connect().await?;
        let request = self.build(method, path, body)?;
        let answer = link.send(request).await.map_err(|failure| failure.error)?;
        Ok((link, answer))
    }

    fn build(
        &mut self,
        method: &str,
        path: &str,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, ClientError> {
        let mut headers = self.headers.clone();
        if !body.is_empty() || method == "POST" || method == "PUT" {
            let json = HeaderValue::from_static("application/json");
            headers.entry(CONTENT_TYPE).or_insert(json);
            headers.insert(CONTENT_LENGTH, body.len().into());
        }
        let bad =
            |error: hyper::http::Error| ClientError::NotHttp(format!("{method} {path}: {error}"));
        if self.uri.0 != path {
            let uri = Uri::try_from(self.url.path_of(path));
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

async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Result<T, ClientError> {
    timeout(limit, work)
        .await
        .map_err(|_| ClientError::Timeout(limit))
}
