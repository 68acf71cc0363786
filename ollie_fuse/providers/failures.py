"""What a provider says when it fails, and which of ``base``'s errors that is; pure."""

import json
import re
from dataclasses import dataclass

from ollie_fuse.errors import RemoteFailed
from ollie_fuse.providers.base import Overflow, RateLimited, Rejected, Transient
from ollie_fuse.providers.unicode import whole

_QUOTE_LIMIT = 300
_STATUS = re.compile("[1-5][0-9][0-9]")

_OVERFLOW_WORDS = (
    "context_length_exceeded",
    "prompt is too long",
    "reduce the length",
    "too many tokens",
    "maximum context length",
    "exceed context",
    "exceeds context",
    "exceed the context",
    "exceeds the context",
    "exceed the available context",
    "exceeds the available context",  # llama.cpp
    "exceed_context_size",
)

_CODES: dict[str, type[RemoteFailed]] = {
    "insufficient_quota": Rejected,  # comes with 429, but waiting does not pay a bill
    "billing_error": Rejected,
    "invalid_api_key": Rejected,
    "invalid_request_error": Rejected,
    "authentication_error": Rejected,
    "permission_error": Rejected,
    "not_found_error": Rejected,
    "model_not_found": Rejected,
    "rate_limit_exceeded": RateLimited,
    "rate_limit_error": RateLimited,
}
"""What ``type`` or ``code`` of an error object says where there is no status. Any other may succeed later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A refusal as it came in: a response's status and body, or an error frame in the middle of a stream."""

    title: str
    """Whom the sentence is about."""
    text: str
    """Body or data, secrets already taken out."""
    status: int | None = None
    retry_after_s: float | None = None


def error_of(failure: Failure) -> RemoteFailed:
    """Return the error to raise; its sentence carries the provider's own words and the status."""
    words, codes = _explained(failure.text)
    words = whole(words)
    status = failure.status or next((int(code) for code in codes if _STATUS.fullmatch(code)), None)
    cls = _class_of(status, codes, failure.text.lower())
    place = f" (HTTP {status})" if status else ""
    sentence = f"{failure.title}{place}: {words}" if words else f"{failure.title} failed{place} without a word"
    if cls is RateLimited:
        return RateLimited(sentence, retry_after_s=failure.retry_after_s)
    return cls(sentence)


def _class_of(status: int | None, codes: list[str], text: str) -> type[RemoteFailed]:
    named = next((_CODES[code] for code in codes if code in _CODES), None)
    if status in {None, 400, 413, 422} and any(word in text for word in _OVERFLOW_WORDS):
        return Overflow
    if status is None:
        return named or Transient
    if status == 429:
        return Rejected if named is Rejected else RateLimited
    return Transient if status >= 500 or status == 408 else Rejected


def _explained(text: str) -> tuple[str, list[str]]:
    """Find the message and the codes, by OpenAI's custom and those near it; else quote the beginning."""
    try:
        body: object = json.loads(text)
    except (ValueError, RecursionError):
        body = None
    error = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(error, str):
        return error[:_QUOTE_LIMIT], []
    if not isinstance(error, dict):
        return text.strip()[:_QUOTE_LIMIT], []
    message = error.get("message") or error.get("detail")
    words = message if isinstance(message, str) else text.strip()
    codes = [str(error[name]) for name in ("code", "type") if isinstance(error.get(name), str | int)]
    return words[:_QUOTE_LIMIT], codes
