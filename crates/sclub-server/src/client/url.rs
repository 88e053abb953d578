//! The address of a server.

use std::fmt;
use std::str::FromStr;

use hyper::Uri;

use super::ClientError;

/// The URL of a server, `http://host:port/base`, or of a space, `http://host:port/base/v1/spaces/NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    pub(super) is_https: bool,
    pub(super) host: String,
    pub(super) port: u16,
    /// The path in front of the API's paths, without a slash at the end.
    pub(super) base: String,
}

impl Url {
    /// The path of a call of the API, such as `/v1/recommend`, on this server or in this space.
    pub(super) fn path_of(&self, call: &str) -> String {
        let space = self.base.rsplit_once("/v1/spaces/");
        let is_space = space.is_some_and(|(_, name)| !name.is_empty() && !name.contains('/'));
        let call = match is_space {
            true => call.strip_prefix("/v1").unwrap_or(call),
            false => call,
        };
        format!("{}{call}", self.base)
    }

    /// The host and, unless it is the default, the port.
    pub(super) fn authority(&self) -> String {
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
            return Err(bad("it must not have a query"));
        }
        let uri: Uri = text
            .parse()
            .map_err(|_| bad("it is not a valid URL, such as http://localhost:8080"))?;
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        if authority.contains('@') {
            return Err(bad("it must not have a user name"));
        }
        let host = uri.host().unwrap_or_default();
        if host.is_empty() {
            return Err(bad("it has no host"));
        }
        // Parsed here because `Uri::port` ignores an invalid port.
        let port = match &authority[host.len()..] {
            "" if is_https => 443,
            "" => 80,
            port => port
                .strip_prefix(':')
                .and_then(|port| port.parse().ok())
                .filter(|&port| port != 0)
                .ok_or_else(|| bad("its port must be a number from 1 to 65535"))?,
        };
        Ok(Self {
            is_https,
            host: host.trim_matches(['[', ']']).to_owned(),
            port,
            base: uri.path().trim_end_matches('/').to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_may_name_a_space() {
        let path = |url: &str, call: &str| url.parse::<Url>().unwrap().path_of(call);
        assert_eq!(path("http://h", "/v1/state"), "/v1/state");
        assert_eq!(path("http://h/x/", "/v1/state"), "/x/v1/state");
        let shop = "http://h/x/v1/spaces/shop/";
        assert_eq!(
            path(shop, "/v1/items/a?b=c"),
            "/x/v1/spaces/shop/items/a?b=c"
        );
        assert_eq!(path(shop, "/healthz"), "/x/v1/spaces/shop/healthz");
    }

    #[test]
    fn urls_are_parsed() {
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
}
