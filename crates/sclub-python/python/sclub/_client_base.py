"""The base of both clients: address, certificates to trust, and errors of the connection.

Slow imports are made where they are used, because most programs that import sclub use no client.
"""

from __future__ import annotations

import contextlib
import numbers
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote, urlencode, urlsplit

from ._client_attempts import Attempts, Failure, Request
from ._client_calls import Calls
from ._client_errors import ConnectionFailed, TimedOut

if TYPE_CHECKING:
    import ssl

Verify: TypeAlias = "bool | str | os.PathLike[str] | ssl.SSLContext"
"""Certificates to trust over https: those of the usual authorities (True), any (False), those of a PEM
file, or those of a context."""

CONNECTIONS = 100
"""The maximum number of connections of a client. Further calls wait for a free one."""


LONGEST = 1e6
"""The maximum timeout in seconds. The operating system cannot count much longer ones: there is none then."""


class Base:
    """The base of both clients: the address of the server, and the calls."""

    def __init__(
        self, url: str, timeout: float, retries: int, verify: Verify, space: str | None
    ) -> None:
        self._url = _checked_url(url)
        self._space = _checked_space(space)
        self._calls = Calls(Attempts(_checked_retries(retries)))
        self._timeout = _checked_timeout(timeout)
        self._trust = _trust(verify)
        self._is_closed = False

    @property
    def url(self) -> str:
        """The address of the server."""
        return self._url

    @property
    def space(self) -> str | None:
        """The space of all calls; None for the default one."""
        return self._space

    def __repr__(self) -> str:
        space = "" if self._space is None else f", space={self._space!r}"
        return f"{type(self).__name__}({self._url!r}{space})"

    def _path(self, request: Request) -> str:
        """The path and the query of a request, percent-encoded."""
        path = request.path
        if self._space is not None and not path.startswith("/v1/spaces"):
            path = f"/v1/spaces/{self._space}{path.removeprefix('/v1')}"
        query = f"?{urlencode(request.query, quote_via=quote)}" if request.query else ""
        return path + query

    def _seconds(self, request: Request) -> float | None:
        """The timeout of a request, as the libraries take it."""
        given = self._timeout if request.timeout is None else request.timeout
        seconds = _checked_timeout(given)
        return None if seconds > LONGEST else seconds

    def _closed(self) -> Failure:
        """The failure of a request after `close`."""
        message = "the client is closed"
        return Failure(ConnectionFailed(message, url=self._url, code="closed", may_be_done=False))

    def _failure(self, error: Exception, *, is_sent: bool, is_timeout: bool) -> Failure:
        """The failure for an error of the library that sends requests."""
        name = type(error).__name__
        said = f"{name}: {error}" if str(error) else name
        message = f"no answer from {self._url}: {said}"
        if self._is_closed:
            code, message = "closed", "the client was closed before the answer came"
        elif _has_ssl_error(error) and not is_sent:
            code = "tls"
        elif is_timeout:
            code = "timeout"
        else:
            code = "broken" if is_sent else "unreachable"
        kind = TimedOut if code == "timeout" else ConnectionFailed
        failed = kind(message, url=self._url, code=code, may_be_done=is_sent)
        failed.__cause__ = error
        return Failure(failed)


def _checked_space(space: str | None) -> str | None:
    if space is not None and not re.fullmatch("[a-z0-9][a-z0-9_-]{0,62}", space):
        raise ValueError(
            f"space is {space!r}; it must have 1 to 63 characters from a-z, 0-9, - and _, and "
            "begin with a letter or a digit"
        )
    return space


def _checked_url(url: str) -> str:
    """The address of the server, without a slash at the end."""
    import ipaddress

    if not isinstance(url, str):
        raise TypeError(f"url must be a string, not {type(url).__name__}")
    parts = urlsplit(url)
    if parts.username is not None or parts.password is not None:
        # Not shown: it may hold a secret.
        raise ValueError("url must not have a user or password; pass a key as key=")
    if parts.scheme not in ("http", "https"):
        raise ValueError(f"url must begin with http:// or https://: {url!r}")
    # An empty query or fragment would take in all paths.
    if not parts.hostname or "?" in url or "#" in url:
        raise ValueError(f"url must have a host, and no query or fragment: {url!r}")
    if not url.isprintable() or " " in url:
        raise ValueError(f"url must not have spaces or control characters: {url!r}")
    try:
        _ = parts.port
    except ValueError:
        raise ValueError(f"the port in url must be a number from 0 to 65535: {url!r}") from None
    try:
        parts.hostname.encode("idna")
        if re.fullmatch(r"\d+(\.\d+){3}", parts.hostname):
            ipaddress.IPv4Address(parts.hostname)
    except ValueError:
        raise ValueError(f"the host in url is not a valid name: {url!r}") from None
    return url.rstrip("/")


def proxy_of(url: str) -> str | None:
    """The proxy that the environment names for an address, alike in both clients.

    >>> from unittest.mock import patch
    >>> with patch.dict("os.environ", {"HTTP_PROXY": "proxy:3128", "NO_PROXY": "localhost, .example, 10.0.0.0/8"}, clear=True):
    ...     [proxy_of(f"http://{host}") for host in ("a.test", "localhost:8080", "a.example", "10.1.2.3", "11.1.2.3")]
    ['http://proxy:3128', None, None, None, 'http://proxy:3128']
    """
    from urllib.request import getproxies

    proxies, parts = getproxies(), urlsplit(url)
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    if not proxy or _is_direct(parts.hostname or "", port, proxies.get("no", "")):
        return None
    named = proxy if "://" in proxy else f"http://{proxy}"
    try:
        is_known = urlsplit(named).scheme in ("http", "https") and urlsplit(named).hostname
    except ValueError:
        is_known = False
    if not is_known:
        # Not shown: it may hold a password.
        raise ValueError(
            "the proxy that the environment names must be an HTTP proxy, such as http://proxy:3128; NO_PROXY names hosts without one"
        )
    return named


def _is_direct(host: str, port: int | None, exceptions: str) -> bool:
    """True if ``NO_PROXY`` names a host: by itself or by a domain, a network, or ``*`` for all."""
    import ipaddress

    for named in (one.strip().lower() for one in exceptions.split(",")):
        if "/" in named:
            with contextlib.suppress(ValueError):
                if ipaddress.ip_address(host) in ipaddress.ip_network(named, strict=False):
                    return True
        name, _, its_port = named.partition(":")
        if named.startswith("["):
            name, _, its_port = named[1:].partition("]")
            its_port = its_port.removeprefix(":")
        elif named.count(":") > 1:
            name, its_port = named, ""
        domain = name.removeprefix("*").removeprefix(".")
        if its_port and its_port != str(port):
            continue
        if named == "*" or domain and (host == domain or host.endswith(f".{domain}")):
            return True
    return False


def _checked_timeout(timeout: float) -> float:
    if isinstance(timeout, bool) or not isinstance(timeout, numbers.Real):
        raise TypeError(f"timeout must be a number of seconds, not {type(timeout).__name__}")
    if not timeout > 0:
        raise ValueError(f"timeout is {timeout}; it must be positive")
    return float(timeout)


def _checked_retries(retries: int) -> int:
    if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
        raise ValueError(f"retries must be a whole number from 0 on, not {retries!r}")
    return retries


def headers_of(key: str | None) -> dict[str, str]:
    if key is None:
        return {}
    if not isinstance(key, str):
        raise TypeError(f"key must be a string, not {type(key).__name__}")
    if not key or not all("!" <= character <= "~" for character in key):
        # Not shown: it is a secret.
        raise ValueError("key must be printable ASCII without spaces")
    return {"Authorization": f"Bearer {key}"}


def _trust(verify: Verify) -> ssl.SSLContext:
    """The certificates to trust, alike in both clients."""
    import ssl

    if isinstance(verify, ssl.SSLContext):
        return verify
    if verify is True:
        named = {name: os.environ.get(f"SSL_CERT_{name}") or None for name in ("FILE", "DIR")}
        if any(named.values()):
            return _trusting(named["FILE"], named["DIR"])
        import certifi

        return ssl.create_default_context(cafile=certifi.where())
    if verify is False:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    return _trusting(os.fspath(verify))


def _trusting(file: str | None, folder: str | None = None) -> ssl.SSLContext:
    """A context that trusts the certificates in a file and a folder."""
    import ssl

    try:
        return ssl.create_default_context(cafile=file, capath=folder)
    except OSError as error:
        # Python leaves it out.
        error.filename = file
        raise


def _has_ssl_error(error: BaseException | None) -> bool:
    """True for an error of TLS itself, such as a certificate that is not trusted."""
    import ssl

    # A handshake that is cut off says nothing about it: a server with too many connections closes those that are new.
    cut_off = (ssl.SSLEOFError, ssl.SSLZeroReturnError)
    while error is not None:
        if isinstance(error, ssl.SSLError) and not isinstance(error, cut_off):
            return True
        error = error.__cause__ or error.__context__
    return False


@contextlib.contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Any]:
    """A file that gets its name when it is complete and on disk."""
    import tempfile

    target = os.path.abspath(path)
    folder, name = os.path.split(target)
    handle, part = tempfile.mkstemp(prefix=f".{name}.", suffix=".part", dir=folder)
    try:
        with open(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.remove(part)
        raise
