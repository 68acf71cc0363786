"""Recorded and made-up streams for the tests of the codecs, and how to decode one."""

import json
from collections.abc import Iterable

from ollie_fuse.providers.messages import (
    Delta,
    Finished,
    ReasoningDelta,
    StopReason,
    TextDelta,
    Usage,
    UsageDelta,
)
from ollie_fuse.providers.openai import StreamDecoder
from ollie_fuse.providers.sse import Event, EventDecoder

# llama.cpp, recorded, shortened.
LLAMA = (
    b'data: {"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}],'
    b'"created":1,"id":"chatcmpl-y","model":"m","system_fingerprint":"b0-unknown","object":"chat.completion.chunk"}\n\n'
    b'data: {"choices":[{"finish_reason":null,"index":0,"delta":{"content":"hi"}}],"id":"chatcmpl-y"}\n\n'
    b'data: {"choices":[{"finish_reason":null,"index":0,"delta":{"content":" there"}}],"id":"chatcmpl-y"}\n\n'
    b'data: {"choices":[{"finish_reason":"length","index":0,"delta":{}}],"id":"chatcmpl-y"}\n\n'
    b'data: {"choices":[],"id":"chatcmpl-y","usage":{"completion_tokens":5,"prompt_tokens":31,'
    b'"total_tokens":36,"prompt_tokens_details":{"cached_tokens":30}},"timings":{"cache_n":30,"prompt_n":1}}\n\n'
    b"data: [DONE]\n\n"
)
LLAMA_DELTAS: tuple[Delta, ...] = (
    TextDelta(text="hi"),
    TextDelta(text=" there"),
    UsageDelta(usage=Usage(input_tokens=31, output_tokens=5, cached_tokens=30)),
    Finished(reason=StopReason.LENGTH),
)

# OpenRouter's comments while it waits, and its reasoning.
ROUTER = (
    ": OPENROUTER PROCESSING\n\n: OPENROUTER PROCESSING\n\n"
    'data: {"id":"gen-1","choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning":"思"}'
    ',"finish_reason":null}]}\n\n'
    'data: {"id":"gen-1","choices":[{"index":0,"delta":{"content":"日本語 – né 🦙"},"finish_reason":null}]}\n\n'
    'data: {"id":"gen-1","choices":[{"index":0,"delta":{"content":""},"finish_reason":"stop"}]}\n\n'
    'data: {"id":"gen-1","choices":[{"index":0,"delta":{"content":""},"finish_reason":null}],'
    '"usage":{"prompt_tokens":7,"completion_tokens":9}}\n\n'
    "data: [DONE]\n\n"
).encode()
ROUTER_DELTAS: tuple[Delta, ...] = (
    ReasoningDelta(text="思"),
    TextDelta(text="日本語 – né 🦙"),
    UsageDelta(usage=Usage(input_tokens=7, output_tokens=9)),
    Finished(reason=StopReason.STOP),
)

STREAMS = {"llama": (LLAMA, LLAMA_DELTAS), "router": (ROUTER, ROUTER_DELTAS)}


def events_of(pieces: Iterable[bytes]) -> list[Event]:
    """Return the events of a stream that comes in *pieces*."""
    decoder = EventDecoder()
    return [event for piece in pieces for event in decoder.feed(piece)]


def deltas_of(pieces: Iterable[bytes]) -> list[Delta]:
    """Return the deltas of an answer that comes in *pieces*, its end included."""
    decoder = StreamDecoder(title="fake")
    deltas = [delta for event in events_of(pieces) for delta in decoder.decode(event)]
    return [*deltas, decoder.finish()]


def chunk(**choice: object) -> Event:
    """Return the event of one chunk whose choice has *choice*."""
    return Event(data=json.dumps({"choices": [{"index": 0, **choice}]}))
