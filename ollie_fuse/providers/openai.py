"""OpenAI's chat completions, as very many servers speak them: a pure codec and a thin provider.

JSON is checked where it is parsed: a malformed answer is ``RemoteFailed`` with a sentence, whatever it holds.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict
from itertools import groupby
from math import inf
from typing import NoReturn
from urllib.parse import urlsplit

import trio

from ollie_fuse.config import BackendConfig
from ollie_fuse.errors import RemoteFailed
from ollie_fuse.providers.base import ModelInfo, Rejected, Transient
from ollie_fuse.providers.failures import Failure, error_of
from ollie_fuse.providers.messages import (
    Delta,
    Finished,
    Message,
    ReasoningDelta,
    Request,
    StopReason,
    TextDelta,
    Usage,
    UsageDelta,
)
from ollie_fuse.providers.sse import Event, EventDecoder
from ollie_fuse.providers.transport import Response, Transport
from ollie_fuse.providers.unicode import split_half, whole

AFTERWORD_S = 10.0
"""How long usage and the end may come after the finish reason; the answer itself is whole by then."""

DRAIN_S = 0.5
"""How long a finished response may take to end, so that its connection can be used again."""

BODY_LIMIT_BYTES = 16 << 20

_MAX_TOKENS_NAMES = {"api.openai.com": "max_completion_tokens"}
"""Hosts that no longer take ``max_tokens``."""


def encode_request(request: Request, *, max_tokens_name: str = "max_tokens") -> dict[str, object]:
    """Return the JSON body that asks for a stream."""
    sampling = {name: value for name, value in asdict(request.sampling).items() if value is not None}
    if "max_tokens" in sampling:
        sampling[max_tokens_name] = sampling.pop("max_tokens")
    return {
        "model": request.model,
        "messages": _encode_messages(request.messages),
        "stream": True,
        "stream_options": {"include_usage": True},
        **sampling,
    }


def _encode_messages(messages: tuple[Message, ...]) -> list[dict[str, str]]:
    """Drop empty texts, which providers refuse; join neighbours of one role, since several want no two."""
    said = [message for message in messages if message.text.strip()]
    return [
        {"role": role, "content": whole("\n\n".join(message.text for message in run))}
        for role, run in groupby(said, key=lambda message: message.role)
    ]


class StreamDecoder:
    """The events of one answer become deltas.

    ``Finished`` is held back until ``finish``, since usage comes after the finish reason.
    """

    def __init__(self, *, title: str, redact: Callable[[str], str] = str) -> None:
        self._title = title
        self._redact = redact
        self._reason: StopReason | None = None
        self._halves: dict[str, str] = {}
        self.is_done = False
        """Whether ``[DONE]`` has come."""

    @property
    def has_reason(self) -> bool:
        """Whether the model is done, so that what the stream may still hold is not its answer."""
        return self._reason is not None

    def decode(self, event: Event) -> Iterator[Delta]:
        """Yield what *event* says; after ``[DONE]`` nothing.

        Raises one of ``base``'s errors on an error frame, RemoteFailed on nonsense.
        """
        self.is_done = self.is_done or event.data.strip() == "[DONE]"
        if self.is_done:
            return
        chunk = self._parsed(event)
        if usage := chunk.get("usage"):
            yield UsageDelta(usage=self._usage_of(self._object(usage, "usage")))
        for choice in self._list(chunk.get("choices"), "choices"):
            yield from self._decode_choice(self._object(choice, "a choice"))

    def finish(self) -> Finished:
        """Return the end of the answer; raises Transient when the model had not said that it was done."""
        if self._reason is None:
            raise Transient(f"{self._title}: the stream was cut off before the answer was whole")
        return Finished(reason=self._reason)

    def _parsed(self, event: Event) -> dict[str, object]:
        is_error = event.name == "error"
        try:
            value: object = json.loads(event.data)
        except (ValueError, RecursionError):
            value = None
        if is_error or (isinstance(value, dict) and value.get("error")):
            raise error_of(Failure(title=self._title, text=self._redact(event.data)))
        return self._object(value, "a chunk")

    def _decode_choice(self, choice: dict[str, object]) -> Iterator[Delta]:
        delta = self._object(choice.get("delta") or {}, "a delta")
        # Some servers send both names of one piece of reasoning.
        thought = self._text(delta, "reasoning_content") or self._text(delta, "reasoning")
        if thought := self._joined("reasoning", thought):
            yield ReasoningDelta(text=thought)
        if text := self._joined("text", self._text(delta, "content") or self._text(delta, "refusal")):
            yield TextDelta(text=text)
        if reason := self._text(choice, "finish_reason"):
            self._reason = self._reason_of(reason)

    def _joined(self, kind: str, text: str) -> str:
        """Join a character that some servers cut in two halves over two chunks."""
        text, self._halves[kind] = split_half(self._halves.get(kind, "") + text)
        return whole(text)

    def _reason_of(self, name: str) -> StopReason:
        if name not in _REASONS:
            raise RemoteFailed(f"{self._title}: the answer ended for an unknown reason, {name[:40]!r}")
        return _REASONS[name]

    def _usage_of(self, usage: dict[str, object]) -> Usage:
        details = self._object(usage.get("prompt_tokens_details") or {}, "prompt_tokens_details")
        cached = details.get("cached_tokens", usage.get("prompt_cache_hit_tokens"))  # the latter is DeepSeek's
        return Usage(
            input_tokens=self._count(usage.get("prompt_tokens"), "prompt_tokens"),
            output_tokens=self._count(usage.get("completion_tokens"), "completion_tokens"),
            cached_tokens=self._count(cached, "cached_tokens"),
        )

    def _object(self, value: object, what: str) -> dict[str, object]:
        return value if isinstance(value, dict) else self._refuse(what)

    def _list(self, value: object, what: str) -> list[object]:
        return [] if value is None else value if isinstance(value, list) else self._refuse(what)

    def _text(self, holder: dict[str, object], name: str) -> str:
        value = holder.get(name)
        return "" if value is None else value if isinstance(value, str) else self._refuse(name)

    def _count(self, value: object, what: str) -> int | None:
        if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
            return value
        return self._refuse(what)

    def _refuse(self, what: str) -> NoReturn:
        raise RemoteFailed(f"{self._title}: the answer is malformed: {what} is not what it should be")


_REASONS = {
    "stop": StopReason.STOP,
    "eos": StopReason.STOP,
    "eos_token": StopReason.STOP,  # Hugging Face's TGI
    "end_turn": StopReason.STOP,
    "stop_sequence": StopReason.STOP,
    "max_tokens": StopReason.LENGTH,
    "length": StopReason.LENGTH,
    "content_filter": StopReason.REFUSED,
}


def decode_models(body: bytes, *, title: str) -> tuple[ModelInfo, ...]:
    """Decode what ``GET /v1/models`` answers; entries without a name are skipped."""
    try:
        value: object = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    data = value.get("data") if isinstance(value, dict) else value  # some servers send the bare list
    if not isinstance(data, list):
        raise RemoteFailed(f"{title}: the list of models is malformed")
    rows = (row for row in data if isinstance(row, dict) and isinstance(row.get("id"), str))
    return tuple(ModelInfo(name=whole(str(row["id"])), window=_window_of(row)) for row in rows)


_WINDOW_NAMES = (
    "context_length",
    "max_model_len",
    "context_window",
    "max_context_length",
    "n_ctx",
    "n_ctx_train",
)
"""OpenRouter, vLLM, Groq, Mistral; then llama.cpp under ``meta``: what is served before what was trained."""


def _window_of(row: dict[str, object]) -> int | None:
    meta = row.get("meta")
    places = [row, meta] if isinstance(meta, dict) else [row]
    found = (place.get(name) for name in _WINDOW_NAMES for place in places)
    return next((n for n in found if isinstance(n, int) and n > 0), None)


class OpenAIProvider:
    """A server that speaks OpenAI's chat completions; see ``base.Provider``."""

    def __init__(self, config: BackendConfig) -> None:
        self._config = config
        self._title = config.title
        self._max_tokens_name = _MAX_TOKENS_NAMES.get(urlsplit(config.url).hostname or "", "max_tokens")
        self._transport = Transport(
            title=self._title,
            base_url=config.url,
            headers=_headers_of(config),
            timeout_s=config.call_timeout_s,
        )

    @asynccontextmanager
    async def open_stream(self, request: Request) -> AsyncIterator[AsyncIterator[Delta]]:
        """See ``base.Provider``."""
        self._check_key()
        body = json.dumps(encode_request(request, max_tokens_name=self._max_tokens_name)).encode()
        async with self._transport.open_response("POST", "/chat/completions", body=body) as response:
            await self._check_stream(response)
            async with aclosing(self._deltas(response)) as deltas:
                yield deltas

    async def list_models(self) -> tuple[ModelInfo, ...]:
        """See ``base.Provider``."""
        self._check_key()
        async with self._transport.open_response("GET", "/models") as response:
            return decode_models(await self._read(response), title=self._title)

    async def aclose(self) -> None:
        """See ``base.Provider``."""
        await self._transport.aclose()

    def _check_key(self) -> None:
        if self._config.is_key_missing:
            raise Rejected(f"{self._title}: its key is missing: set the environment variable {self._config.key_env}")

    async def _check_stream(self, response: Response) -> None:
        """Refuse a good status that carries no stream: an error object, some proxy's web page."""
        kind = response.content_type.partition(";")[0].strip().lower()
        if kind == "text/html":
            raise Rejected(f"{self._title}: a web page answered; is its url right?")
        if kind == "application/json":
            body = self._transport.redact((await self._read(response)).decode(errors="replace"))
            if '"error"' in body:
                raise error_of(Failure(title=self._title, text=body))
            raise RemoteFailed(f"{self._title} answered in one piece although it was asked to stream")

    async def _deltas(self, response: Response) -> AsyncGenerator[Delta, None]:
        decoder = StreamDecoder(title=self._title, redact=self._transport.redact)
        async with aclosing(self._events(response, decoder)) as events:
            async for event in events:
                for delta in decoder.decode(event):
                    yield delta
        yield decoder.finish()

    async def _events(self, response: Response, decoder: StreamDecoder) -> AsyncGenerator[Event, None]:
        """Yield events until the body's end, or soon after the answer's.

        The clock runs between events, not bytes: a server may send comments for ever. Before the first event
        it may, since reading a long prompt takes time.
        """
        frames = EventDecoder()
        deadline = inf
        while True:
            if decoder.has_reason:
                rest_s = DRAIN_S if decoder.is_done else AFTERWORD_S
                deadline = min(deadline, trio.current_time() + rest_s)
            piece = await self._next_piece(response, decoder, deadline)
            if not piece:
                return
            for event in frames.feed(piece):
                deadline = trio.current_time() + self._config.call_timeout_s
                yield event

    async def _next_piece(self, response: Response, decoder: StreamDecoder, deadline: float) -> bytes:
        """Wait for more of the body; empty at its end, and when an answer that is whole breaks off."""
        try:
            with trio.CancelScope(deadline=deadline) as scope:
                return await anext(response.pieces, b"")
        except Transient:
            if not decoder.has_reason:
                raise
        if scope.cancelled_caught and not decoder.has_reason:
            raise Transient(f"{self._title}: the stream stood still for {self._config.call_timeout_s:g} s")
        return b""

    async def _read(self, response: Response) -> bytes:
        body = bytearray()
        async for piece in response.pieces:
            body += piece
            if len(body) > BODY_LIMIT_BYTES:
                raise RemoteFailed(f"{self._title} answered more than {BODY_LIMIT_BYTES >> 20} MiB at once")
        return bytes(body)


def _headers_of(config: BackendConfig) -> dict[str, str]:
    key = {"authorization": f"Bearer {config.key.get_secret_value()}"} if config.key else {}
    given = {name.lower(): value.get_secret_value() for name, value in config.headers.items()}
    return {"content-type": "application/json", **key, **given}
