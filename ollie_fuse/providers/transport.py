"""HTTP to a provider: one lasting client, time limits, and every failure as one of ``base``'s errors.

No key and no header ever stands in a message: sentences are ours, and what a server says is redacted.
"""

import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from ipaddress import ip_address

import httpx
import trio

from ollie_fuse.errors import RemoteFailed
from ollie_fuse.providers.base import Rejected, Transient
from ollie_fuse.providers.failures import Failure, error_of

CONNECT_TIMEOUT_S = 10.0
ERROR_BODY_LIMIT_BYTES = 64 << 10
_CONNECTED = "connection.connect_tcp.complete"
_SHORTEST_SECRET = 8  # a shorter header value is no secret and may be a common word


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    error: type[RemoteFailed]
    sentence: str
    tells_cause: bool = False
    """Whether the library's text adds something and cannot hold anything of the request."""


_UNREACHABLE = _Row(error=Transient, sentence="cannot be reached", tells_cause=True)
_LOST = _Row(error=Transient, sentence="closed the connection in the middle")
_SILENT = _Row(error=Transient, sentence="was silent for as long as call-timeout allows")
_MISUSED = _Row(error=RemoteFailed, sentence="was asked in a way that HTTP does not allow")
_GARBLED = _Row(error=RemoteFailed, sentence="answered something that is not proper HTTP")

ERRORS: dict[type[Exception], _Row] = {
    httpx.ConnectTimeout: _Row(
        error=Transient, sentence=f"cannot be reached: no connection within {CONNECT_TIMEOUT_S:g} s"
    ),
    httpx.ReadTimeout: _SILENT,
    httpx.WriteTimeout: _SILENT,
    httpx.PoolTimeout: _SILENT,
    httpx.TimeoutException: _SILENT,
    httpx.ConnectError: _UNREACHABLE,
    httpx.ProxyError: _Row(error=Transient, sentence="cannot be reached through the proxy"),
    httpx.ReadError: _LOST,
    httpx.WriteError: _LOST,
    httpx.CloseError: _LOST,
    httpx.NetworkError: _LOST,
    httpx.RemoteProtocolError: _Row(error=Transient, sentence="broke the connection off"),
    httpx.DecodingError: _GARBLED,
    httpx.CookieConflict: _GARBLED,
    httpx.ProtocolError: _GARBLED,
    httpx.TooManyRedirects: _GARBLED,
    httpx.HTTPStatusError: _GARBLED,
    httpx.LocalProtocolError: _MISUSED,
    httpx.StreamError: _MISUSED,
    httpx.StreamConsumed: _MISUSED,
    httpx.StreamClosed: _MISUSED,
    httpx.RequestNotRead: _MISUSED,
    httpx.ResponseNotRead: _MISUSED,
    httpx.UnsupportedProtocol: _Row(error=Rejected, sentence="has a url that is neither http nor https"),
    httpx.InvalidURL: _Row(error=Rejected, sentence="has a url that does not parse"),
    httpx.TransportError: _LOST,
    httpx.RequestError: _LOST,
    httpx.HTTPError: _LOST,
}
"""Every exception of httpx, by its own class; a test lists them."""


@contextmanager
def translated(title: str) -> Iterator[None]:
    """Raise httpx's exceptions as ``base``'s, in sentences about *title*."""
    try:
        yield
    except (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL, httpx.CookieConflict) as exc:
        row = next(ERRORS[cls] for cls in type(exc).__mro__ if cls in ERRORS)
        cause = f": {exc}" if row.tells_cause and str(exc) else ""
        raise row.error(f"{title} {row.sentence}{cause}") from exc
    except UnicodeError as exc:  # the IDNA codec, on a host name that it cannot encode
        raise Rejected(f"{title} has a url whose host is no host name") from exc


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """An answer whose head has come and whose status is good."""

    content_type: str
    pieces: AsyncIterator[bytes]
    """The body as it arrives. Raises as ``Transport.open_response``."""


class Transport:
    """HTTP to one base URL. The client is made at the first request: an idle backend costs no memory."""

    def __init__(self, *, title: str, base_url: str, headers: Mapping[str, str], timeout_s: float) -> None:
        self._title = title
        self._base_url = base_url
        self._headers = headers
        self._timeout = httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S)
        self._client: httpx.AsyncClient | None = None

    @asynccontextmanager
    async def open_response(self, method: str, path: str, *, body: bytes | None = None) -> AsyncIterator[Response]:
        """Send a request and wait for the answer's head; leaving closes the connection unless all was read.

        Raises what ``error_of`` makes of a status that is not 2xx, and what ERRORS says of all that breaks on
        the way.
        """
        with translated(self._title):
            response = await self._send(method, self._base_url + path, body)
            async with _open_body(response) as pieces:
                if not response.is_success:
                    raise error_of(await self._failure_of(response, pieces))
                async with aclosing(self._translated(pieces)) as ours:
                    yield Response(content_type=response.headers.get("content-type", ""), pieces=ours)

    async def aclose(self) -> None:
        """Close all connections."""
        if self._client is not None:
            await self._client.aclose()

    def redact(self, text: str) -> str:
        """Return *text* without the secrets that this transport sends: servers quote what they refuse."""
        return redacted(text, self._headers.values())

    async def _send(self, method: str, url: str, body: bytes | None) -> httpx.Response:
        """Send a request and wait for the head, once more for each kept connection that turns out to be closed.

        A server may close an idle connection in the very moment in which it is used again; llama.cpp often does. Each
        such failure takes a connection out of the pool, so this ends with a new one at the latest.
        """
        client = self._opened_client()
        while True:
            steps: list[str] = []

            async def trace(step: str, _: Mapping[str, object], *, seen: list[str] = steps) -> None:
                seen.append(step)

            if client.is_closed:  # by its owner, while a connection that had gone stale was tried
                raise Transient(f"{self._title} was closed before it answered")
            request = client.build_request(method, url, content=body, extensions={"trace": trace})
            try:
                return await client.send(request, stream=True)
            except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
                if _CONNECTED in steps:
                    raise

    async def _translated(self, pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        # Here too, so that who reads sees our errors; once a stream, so that a chunk costs nothing.
        with translated(self._title):
            async for piece in pieces:
                yield piece

    async def _failure_of(self, response: httpx.Response, pieces: AsyncIterator[bytes]) -> Failure:
        body = bytearray()
        with trio.move_on_after(CONNECT_TIMEOUT_S):  # the status is known; its explanation is worth no long wait
            async for piece in pieces:
                body += piece
                if len(body) >= ERROR_BODY_LIMIT_BYTES:
                    break
        return Failure(
            title=self._title,
            status=response.status_code,
            text=self.redact(body[:ERROR_BODY_LIMIT_BYTES].decode(errors="replace")),
            retry_after_s=parse_retry_after(response.headers.get("retry-after"), now_s=time.time()),
        )

    def _opened_client(self) -> httpx.AsyncClient:
        if self._client is None:
            url = httpx.URL(self._base_url)
            try:
                self._client = httpx.AsyncClient(
                    # Uncompressed: a server that compresses an event stream holds events back.
                    headers={"accept-encoding": "identity", "user-agent": "ollie-fuse", **self._headers},
                    timeout=self._timeout,
                    trust_env=not is_loopback(url.host),
                    verify=_verification(url.scheme),
                    limits=httpx.Limits(max_connections=None, max_keepalive_connections=8, keepalive_expiry=30),
                )
            except (ImportError, ValueError, OSError) as exc:  # a SOCKS proxy, a bad proxy, no certificates
                raise Rejected(
                    f"{self._title}: the proxy or certificate variables of the environment cannot be used"
                ) from exc
        return self._client


@asynccontextmanager
async def _open_body(response: httpx.Response) -> AsyncIterator[AsyncIterator[bytes]]:
    """Read *response* in pieces; on leaving, end the reading wherever it is.

    The generators that httpx nests do not close each other: left half read they wait for the garbage collector, and
    trio warns. With the connection closed under them they run into its end and are done.
    """
    pieces = response.aiter_bytes()
    try:
        yield pieces
    finally:
        await response.aclose()
        with suppress(httpx.HTTPError, httpx.StreamError):
            async for _ in pieces:  # what was received already
                pass


def _verification(scheme: str) -> ssl.SSLContext | bool:
    """Load certificates for https alone; http gets an empty context, which trusts nobody and is cheap."""
    return True if scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def is_loopback(host: str) -> bool:
    """Whether *host* is this machine, where no proxy may stand between."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def redacted(text: str, secrets: Iterable[str]) -> str:
    """Return *text* with an ellipsis for each of *secrets*, and for what follows ``Bearer`` in one."""
    for secret in secrets:
        for part in (secret, secret.rpartition(" ")[2]):
            if len(part) >= _SHORTEST_SECRET:
                text = text.replace(part, "…")
    return text


def parse_retry_after(value: str | None, *, now_s: float) -> float | None:
    """Return the seconds to wait that a Retry-After header tells, in seconds or as a date."""
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        date = parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, date.replace(tzinfo=date.tzinfo or UTC).timestamp() - now_s)
