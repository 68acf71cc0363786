"""What a refusal means."""

import json

import pytest

from ollie_fuse.errors import RemoteFailed
from ollie_fuse.providers.base import Overflow, RateLimited, Rejected, Transient
from ollie_fuse.providers.failures import Failure, error_of


def openai_error(message: str, code: object = None) -> str:
    return json.dumps({"error": {"message": message, "type": "some_error", "code": code}})


@pytest.mark.parametrize(
    ("status", "text", "error"),
    [
        (429, openai_error("slow down"), RateLimited),
        (429, openai_error("pay first", "insufficient_quota"), Rejected),
        (500, openai_error("oh"), Transient),
        (502, "<html>bad gateway</html>", Transient),
        (529, openai_error("overloaded"), Transient),
        (408, "", Transient),
        (401, openai_error("Incorrect API key"), Rejected),
        (402, openai_error("pay"), Rejected),
        (404, openai_error("model x does not exist"), Rejected),
        (307, "", Rejected),
        (400, openai_error("max_tokens is too large"), Rejected),
        (400, openai_error("too much", "context_length_exceeded"), Overflow),
        (400, openai_error("prompt is too long: 210000 tokens > 200000 maximum"), Overflow),
        (400, openai_error("Please reduce the length of the messages"), Overflow),
        (400, openai_error("too many tokens"), Overflow),
        (413, openai_error("Request too large: reduce the length"), Overflow),
        (
            400,
            openai_error("request (9031 tokens) exceeds the available context size (2048 tokens)"),
            Overflow,
        ),
        (400, openai_error("the input exceeds context window of this model"), Overflow),
        (400, openai_error("would exceed context size"), Overflow),
        (500, openai_error("reduce the length"), Transient),
        (None, openai_error("oh", 503), Transient),
        (None, openai_error("oh", 401), Rejected),
    ],
)
def test_error_table(status: int | None, text: str, error: type[RemoteFailed]) -> None:
    """Status, code and wording decide together what may be done about a failure."""
    assert type(error_of(Failure(title="fake", status=status, text=text))) is error


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (openai_error("in its own words"), "in its own words"),
        ('{"error": "as a string"}', "as a string"),
        ('{"message": "at the top"}', "at the top"),
        ('{"detail": "as FastAPI says it"}', "as FastAPI says it"),
        ('{"error": {"odd": 1}}', '{"error": {"odd": 1}}'),
        ("plain text" * 100, ("plain text" * 100)[:300]),
        ("[" * 100_000, "[" * 300),
        ("", "without a word"),
    ],
)
def test_sentence(text: str, words: str) -> None:
    """A sentence names the backend and the status and carries the provider's own words, 300 characters at most."""
    sentence = str(error_of(Failure(title="fake", status=500, text=text)))
    assert sentence.startswith("fake")
    assert "HTTP 500" in sentence
    assert sentence.endswith(words)


def test_retry_after_is_kept() -> None:
    """How long a provider wants to be left alone reaches whoever retries."""
    error = error_of(Failure(title="fake", status=429, text="", retry_after_s=7.0))
    assert isinstance(error, RateLimited)
    assert error.retry_after_s == 7.0
