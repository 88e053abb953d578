//! Protection against pages of other web sites: checks of the host name and of the origin.
//!
//! A page of another web site can make a browser send requests here. Two checks stop it. The request's
//! `Host` must be a host name of this server: otherwise a page could point a name of its own at this
//! address and read everything (DNS rebinding). And a request whose headers name another site is refused.
//! Clients that are not browsers send neither `Origin` nor `Sec-Fetch-Site` and are not affected.
//!
//! Nothing here allocates unless a request is refused.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName, Method, Request, StatusCode};

use super::audit::Audit;
use super::error::ApiError;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The maximum length of a name in DNS.
const MAX_NAME: usize = 253;

/// Returns the pattern of the route for a method and a path, if the route is audited, and the space that the path
/// names.
pub type AuditedRoute = for<'a> fn(&Method, &'a str) -> Option<(&'static str, Option<&'a str>)>;

/// The requests of browsers that are accepted. By default: any host, any site.
#[derive(Clone, Default)]
pub struct Site {
    /// The allowed host names beside addresses and `localhost`; any if `None`.
    names: Option<Arc<[String]>>,
    /// The path prefixes that pages of other sites may not call.
    own: &'static [&'static str],
    audit: Option<(Audit, AuditedRoute)>,
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Site")
            .field("names", &self.names)
            .field("own", &self.own)
            .finish_non_exhaustive()
    }
}

impl Site {
    /// Limits the host names to these, IP addresses, `localhost` and names that end in `.localhost`.
    ///
    /// With keys and without names, any host is allowed: another site has no key.
    ///
    /// # Errors
    /// If a name is not a host name; the message has the first such name.
    pub fn new(names: &[String], has_keys: bool) -> Result<Self, String> {
        names.iter().try_for_each(|name| check_name(name))?;
        let is_limited = !has_keys || !names.is_empty();
        Ok(Self {
            names: is_limited.then(|| {
                names
                    .iter()
                    .map(|name| without_dot(name).to_owned())
                    .collect()
            }),
            ..Self::default()
        })
    }

    /// Refuses requests from other sites to these paths and all paths below them.
    #[must_use]
    pub fn own(mut self, paths: &'static [&'static str]) -> Self {
        self.own = paths;
        self
    }

    /// Records refused calls of the routes for which `route` returns a pattern in the audit log.
    #[must_use]
    pub fn audited(mut self, audit: Audit, route: AuditedRoute) -> Self {
        self.audit = Some((audit, route));
        self
    }

    /// The audit log for a refused request, the pattern of its route, and its space.
    pub(super) fn audit_of<'a>(
        &self,
        method: &Method,
        path: &'a str,
    ) -> Option<(&Audit, &'static str, Option<&'a str>)> {
        let (audit, route) = self.audit.as_ref()?;
        let (route, space) = route(method, path)?;
        Some((audit, route, space))
    }

    /// Checks a request. Called before anything else.
    ///
    /// # Errors
    /// 421 `wrong_host` or 403 `cross_site`.
    pub fn check<B>(&self, request: &Request<B>) -> Result<(), ApiError> {
        // A full URL in the request line takes precedence over the header, but both must be allowed.
        let url = request.uri().authority();
        let url = url.map(|authority| authority.as_str().as_bytes());
        let headers = request.headers().get_all(HOST);
        let mut headers = headers.iter().map(|value| value.as_bytes());
        let header = headers.next();
        if let Some(names) = &self.names {
            // Every browser sends the host. HTTP/1.0 does not, as in health checks of some load balancers.
            let mut hosts = url.into_iter().chain(header).chain(headers);
            if let Some(wrong) = hosts.find(|host| !is_known(names, host)) {
                return Err(wrong_host(wrong));
            }
        }
        let host = url.or(header);
        if self.is_own(request.uri().path()) && is_cross_site(request.headers(), host) {
            return Err(ApiError::new(
                StatusCode::FORBIDDEN,
                "cross_site",
                "the request comes from a page of another web site; only pages of this server, and \
                 clients that are no browsers, may call it",
            ));
        }
        Ok(())
    }

    fn is_own(&self, path: &str) -> bool {
        self.own.iter().any(|own| {
            path.strip_prefix(own)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }
}

/// Checks that a name is a valid host name.
fn check_name(name: &str) -> Result<(), String> {
    let is_label = |label: &str| {
        let known = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        !label.is_empty() && label.bytes().all(known)
    };
    if name.len() <= MAX_NAME && without_dot(name).split('.').all(is_label) {
        return Ok(());
    }
    Err(format!(
        "host '{}' is not a host name; give a name such as sclub.example.org, without http:// and port",
        name.escape_debug()
    ))
}

/// A name without the trailing dot.
fn without_dot(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

fn is_known(names: &[String], host: &[u8]) -> bool {
    let Some(name) = std::str::from_utf8(host).ok().and_then(without_port) else {
        return false;
    };
    if let Some(inner) = name.strip_prefix('[') {
        let inner = inner.strip_suffix(']').unwrap_or(inner);
        return inner.parse::<Ipv6Addr>().is_ok();
    }
    let name = without_dot(name);
    let ends_in_localhost = || {
        let end = name.len().checked_sub(".localhost".len());
        end.and_then(|end| name.get(end..))
            .is_some_and(|end| end.eq_ignore_ascii_case(".localhost"))
    };
    name.parse::<Ipv4Addr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || ends_in_localhost()
        || names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// The host of `host:port`; `None` if it is malformed.
fn without_port(authority: &str) -> Option<&str> {
    let end = if authority.starts_with('[') {
        authority.find(']')? + 1
    } else {
        authority.find(':').unwrap_or(authority.len())
    };
    let (host, port) = authority.split_at(end);
    let is_port = match port.strip_prefix(':') {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_digit()),
        None => port.is_empty(),
    };
    (is_port && !host.is_empty()).then_some(host)
}

fn is_cross_site(headers: &HeaderMap, host: Option<&[u8]>) -> bool {
    if let Some(site) = headers.get(SEC_FETCH_SITE) {
        return !matches!(site.as_bytes(), b"same-origin" | b"none");
    }
    let Some(origin) = headers.get(ORIGIN) else {
        return false;
    };
    !host.is_some_and(|host| has_host(origin.as_bytes(), host))
}

/// Returns true if an origin, `scheme://host:port`, has this host and port. A missing port is the default of
/// the origin's scheme, since TLS may end at a proxy in front of this server.
fn has_host(origin: &[u8], host: &[u8]) -> bool {
    let starts = |scheme: &[u8]| {
        let (start, rest) = origin.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then_some(rest)
    };
    let (own, port): (&[u8], &[u8]) = match (starts(b"http://"), starts(b"https://")) {
        (Some(rest), _) => (rest, b":80"),
        (_, Some(rest)) => (rest, b":443"),
        _ => return false,
    };
    let without = |authority| <[u8]>::strip_suffix(authority, port).unwrap_or(authority);
    without(own).eq_ignore_ascii_case(without(host))
}

fn wrong_host(host: &[u8]) -> ApiError {
    const MAX_SHOWN: usize = 100;
    let name: String = String::from_utf8_lossy(host)
        .chars()
        .take(MAX_SHOWN)
        .collect();
    let message = format!(
        "'{name}' is not a host name of this server; use its IP address or localhost, or start the \
         server with --host and that name"
    );
    ApiError::new(StatusCode::MISDIRECTED_REQUEST, "wrong_host", message).field("Host")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(names: &[&str], host: &str) -> bool {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        is_known(&names, host.as_bytes())
    }

    #[test]
    fn addresses_and_localhost_are_known_and_names_only_if_listed() {
        for host in [
            "127.0.0.1",
            "127.0.0.1:8080",
            "10.1.2.3:80",
            "[::1]",
            "[::1]:8080",
            "[2001:db8::1]",
            "localhost",
            "LocalHost:8080",
            "localhost.",
            "app.localhost:3000",
            "localhost:",
        ] {
            assert!(known(&[], host), "{host}");
        }
        for host in [
            "",
            ":80",
            "evil.example",
            "evil.example:8080",
            "localhost.evil.example",
            "notlocalhost",
            "127.0.0.1.evil.example",
            "127.0.0.1@evil.example",
            "127.0.0.1:80:80",
            "127.0.0.1:evil",
            "127.0.0.1/evil",
            "[::1",
            "[::1]evil",
            "[evil]:80",
            "::1",
            "lo\u{301}calhost",
            "é.localhos",
        ] {
            assert!(!known(&["sclub.example"], host), "{host}");
        }
        for host in ["sclub.example", "SCLUB.example:8443", "sclub.example."] {
            assert!(known(&["other.example", "sclub.example"], host), "{host}");
            assert!(!known(&[], host), "{host}");
        }
        assert!(!is_known(&[], b"\xff\xfe"));
    }

    #[test]
    fn names_are_checked() {
        let site = |names: &[&str], has_keys| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            Site::new(&names, has_keys)
        };
        assert!(site(&[], false).unwrap().names.is_some());
        assert!(site(&[], true).unwrap().names.is_none());
        assert!(
            site(&["a-b.example", "x_y", "z."], true)
                .unwrap()
                .names
                .is_some()
        );
        let long = "a.".repeat(127);
        for wrong in [
            "", ".", "a..b", "http://a", "a:80", "a b", "*", "*.a", "a/b", "[::1]", "é", &long,
        ] {
            let error = site(&[wrong], false).unwrap_err();
            assert!(error.contains("is not a host name"), "{wrong}: {error}");
        }
    }

    #[test]
    fn an_origin_is_compared_with_its_port() {
        for (origin, host, same) in [
            ("http://a.example", "a.example", true),
            ("http://a.example", "a.example:80", true),
            ("http://a.example:80", "A.example", true),
            ("https://a.example", "a.example", true),
            ("https://a.example", "a.example:443", true),
            ("http://a.example:8080", "a.example:8080", true),
            ("HTTP://[::1]:8080", "[::1]:8080", true),
            ("http://a.example:8080", "a.example:8081", false),
            ("http://a.example:8080", "a.example", false),
            ("https://a.example", "a.example:80", false),
            ("http://b.example", "a.example", false),
            ("http://a.example.evil", "a.example", false),
            ("null", "a.example", false),
            ("", "a.example", false),
            ("file://", "", false),
            ("ftp://a.example", "a.example", false),
        ] {
            assert_eq!(
                has_host(origin.as_bytes(), host.as_bytes()),
                same,
                "{origin} {host}"
            );
        }
    }
}
