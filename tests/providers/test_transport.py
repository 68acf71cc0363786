"""The wrapper of httpx, without a network."""

import inspect

import httpx
import pytest

from ollie_fuse.errors import RemoteFailed
from ollie_fuse.providers.base import Rejected, Transient
from ollie_fuse.providers.transport import (
    ERRORS,
    Transport,
    is_loopback,
    parse_retry_after,
    redacted,
    translated,
)

EXCEPTIONS = [cls for _, cls in inspect.getmembers(httpx, inspect.isclass) if issubclass(cls, Exception)]


@pytest.mark.parametrize("cls", EXCEPTIONS, ids=lambda cls: cls.__name__)
def test_every_exception_of_the_library_is_mapped(cls: type[Exception]) -> None:
    """Each exception that httpx exports has a row of its own and is raised as it says, with its cause."""
    exc = cls.__new__(cls)
    Exception.__init__(exc, "Illegal header value b'sk-secret'")
    with pytest.raises(RemoteFailed) as caught, translated("fake"):
        raise exc
    assert type(caught.value) is ERRORS[cls].error
    assert caught.value.__cause__ is exc
    assert str(caught.value).startswith("fake ")


def test_misuse_is_not_quoted() -> None:
    """The library's text stands in a sentence only where it cannot hold a header."""
    with pytest.raises(RemoteFailed) as caught, translated("fake"):
        raise httpx.LocalProtocolError("Illegal header value b'sk-secret'")
    assert "sk-secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("17", 17.0),
        (" 0 ", 0.0),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 60.0),
        ("Thu, 01 Jan 1970 00:00:10 GMT", 0.0),
        ("Thu, 01 Jan 1970 00:01:40 -0000", 60.0),
        ("soon", None),
        ("-5", None),
        ("", None),
    ],
)
def test_retry_after(value: str | None, seconds: float | None) -> None:
    """Seconds and dates are understood, a date gone by means now, and nonsense means nothing."""
    assert parse_retry_after(value, now_s=40.0) == seconds


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("a.localhost", True),
        ("10.0.0.1", False),
        ("localhost.example.com", False),
    ],
)
def test_loopback(host: str, expected: bool) -> None:
    """What is this machine is known by its address or its name."""
    assert is_loopback(host) is expected


def test_redaction() -> None:
    """A key disappears with its scheme and alone; a short header value, which may be a word, stays."""
    said = redacted("Bearer sk-12345678 and sk-12345678 of v1", ["Bearer sk-12345678", "v1"])
    assert said == "… and … of v1"


async def test_unusable_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy of a kind that cannot be used is a refusal that names the variables, not their values."""
    monkeypatch.setenv("all_proxy", "socks5://user:secret@10.0.0.1:1")
    transport = Transport(title="fake", base_url="http://10.0.0.2/v1", headers={}, timeout_s=5)
    with pytest.raises(Rejected, match="proxy") as caught:
        async with transport.open_response("GET", "/models"):
            raise AssertionError
    assert "secret" not in str(caught.value)


async def test_nobody_listens(unused_tcp_url: str) -> None:
    """A refused connection is transient and says so in a sentence."""
    transport = Transport(title="fake", base_url=unused_tcp_url, headers={}, timeout_s=5)
    with pytest.raises(Transient, match=r"^fake cannot be reached"):
        async with transport.open_response("GET", "/models"):
            raise AssertionError
    await transport.aclose()
