"""OpenAI's wire format, without a wire."""

import json
from contextlib import suppress
from dataclasses import fields
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollie_fuse.errors import RemoteFailed
from ollie_fuse.providers.base import ModelInfo, Overflow, RateLimited, Rejected, Transient
from ollie_fuse.providers.messages import (
    Delta,
    Finished,
    Message,
    ReasoningDelta,
    Request,
    Sampling,
    StopReason,
    TextDelta,
    Usage,
    UsageDelta,
)
from ollie_fuse.providers.openai import StreamDecoder, decode_models, encode_request
from ollie_fuse.providers.sse import Event
from tests.providers.streams import STREAMS, chunk, deltas_of


def message(role: Literal["system", "user", "assistant"], text: str) -> Message:
    return Message(role=role, text=text)


def test_request_is_minimal() -> None:
    """Only what was chosen is sent, so that the provider's own defaults stand."""
    body = encode_request(Request(model="m", messages=(message("user", "hi"),)))
    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_sampling_is_sent() -> None:
    """Every parameter that is set arrives under its own name, zero included."""
    sampling = Sampling(temperature=0.0, top_p=0.5, max_tokens=7, frequency_penalty=0.0, presence_penalty=1.0)
    body = encode_request(Request(model="m", messages=(), sampling=sampling))
    assert {field.name: body[field.name] for field in fields(Sampling)} == {
        "temperature": 0.0, "top_p": 0.5, "max_tokens": 7, "frequency_penalty": 0.0, "presence_penalty": 1.0,
    }  # fmt: skip


def test_max_tokens_by_its_newer_name() -> None:
    """A host that has renamed the parameter gets the new name alone."""
    request = Request(model="m", messages=(), sampling=Sampling(max_tokens=7))
    body = encode_request(request, max_tokens_name="max_completion_tokens")
    assert body["max_completion_tokens"] == 7
    assert "max_tokens" not in body


def test_roles_alternate_and_nothing_is_empty() -> None:
    """Neighbours of one role become one message, also across an empty one, which is dropped."""
    said = (
        message("system", "be brief"),
        message("user", "a"),
        message("assistant", " \n"),
        message("user", "b\n"),
        message("assistant", "c"),
    )
    assert encode_request(Request(model="m", messages=said))["messages"] == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "a\n\nb\n"},
        {"role": "assistant", "content": "c"},
    ]


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("is_noisy", [False, True])
def test_recorded_streams(name: str, newline: bytes, is_noisy: bool) -> None:
    """A recorded stream decodes alike whole, byte by byte, and with other line ends, comments and a BOM."""
    stream, expected = STREAMS[name]
    if is_noisy:
        stream = b"\xef\xbb\xbf:\n\n" + stream.replace(b"\n\n", b"\n\n: keepalive\n\n:\n\n")
    stream = stream.replace(b"\n", newline)
    assert deltas_of([stream]) == list(expected)
    assert deltas_of(stream[i : i + 1] for i in range(len(stream))) == list(expected)


def decode(*events: Event) -> list[Delta]:
    decoder = StreamDecoder(title="fake")
    return [*(delta for event in events for delta in decoder.decode(event)), decoder.finish()]


@pytest.mark.parametrize(
    ("name", "reason"),
    [("stop", StopReason.STOP), ("length", StopReason.LENGTH), ("content_filter", StopReason.REFUSED)],
)
def test_finish_reasons(name: str, reason: StopReason) -> None:
    """Each known finish reason has its meaning."""
    assert decode(chunk(delta={}, finish_reason=name)) == [Finished(reason=reason)]


def test_unknown_finish_reason() -> None:
    """A finish reason nobody knows is a failure that names it: it may mean that the answer is not one."""
    with pytest.raises(RemoteFailed, match="insufficient_system_resource"):
        decode(chunk(delta={}, finish_reason="insufficient_system_resource"))


def test_cut_stream_is_transient() -> None:
    """A stream without a finish reason was cut off, with [DONE] or without."""
    with pytest.raises(Transient, match="cut off"):
        decode(chunk(delta={"content": "half"}))
    with pytest.raises(Transient, match="cut off"):
        decode(chunk(delta={"content": "half"}), Event(data="[DONE]"))


def test_done_ends() -> None:
    """What comes after [DONE] says nothing."""
    done = Event(data="[DONE]")
    assert decode(chunk(delta={}, finish_reason="stop"), done, chunk(delta={"content": "x"})) == [
        Finished(reason=StopReason.STOP)
    ]


def test_reasoning_under_both_names_comes_once() -> None:
    """A server that sends a thought under both of its names has thought it once."""
    event = chunk(delta={"reasoning": "hm", "reasoning_content": "hm", "content": "ah"}, finish_reason="stop")
    assert decode(event)[:2] == [ReasoningDelta(text="hm"), TextDelta(text="ah")]


def test_refusal_is_said() -> None:
    """A refusal is the answer's text, so that an answer is not empty."""
    assert decode(chunk(delta={"refusal": "no"}, finish_reason="stop"))[0] == TextDelta(text="no")


def test_usage_that_is_partly_told() -> None:
    """What a provider does not report stays unknown, and DeepSeek's own name for cached tokens counts."""
    event = Event(data='{"choices": [], "usage": {"prompt_tokens": 5, "prompt_cache_hit_tokens": 2}}')
    assert next(StreamDecoder(title="f").decode(event)) == UsageDelta(
        usage=Usage(input_tokens=5, output_tokens=None, cached_tokens=2)
    )


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (
            Event(name="error", data='{"error":{"type":"overloaded_error","message":"busy"}}'),
            Transient,
        ),
        (Event(data='{"error":{"message":"busy","code":502}}'), Transient),
        (Event(data='{"error":{"message":"busy","code":"429"}}'), RateLimited),
        (Event(data='{"error":{"message":"busy","type":"rate_limit_error"}}'), RateLimited),
        (Event(data='{"error":{"message":"busy: exceeds the available context size"}}'), Overflow),
        (Event(data='{"error":{"message":"busy","type":"invalid_request_error"}}'), Rejected),
        (Event(data='{"error":"busy"}'), Transient),
        (Event(name="error", data="busy"), Transient),
        (Event(name="error", data='{"detail":"busy"}'), Transient),
        (Event(name="error", data='["busy"]'), Transient),
    ],
)
def test_error_frames(event: Event, error: type[Exception]) -> None:
    """An error after a good status is raised as what it is, in the provider's words."""
    with pytest.raises(error, match="busy") as caught:
        decode(chunk(delta={"content": "half"}), event)
    assert type(caught.value) is error


BAD: list[object] = [None, 7, True, "x", [], [[]], {}, {"a": 1}, {"delta": 7}, -1]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize(
    "shape",
    [
        "{}",
        '{{"choices": {}}}',
        '{{"choices": [{}]}}',
        '{{"choices": [{{"delta": {}}}]}}',
        '{{"choices": [{{"delta": {{"content": {}}}}}]}}',
        '{{"choices": [{{"delta": {{"reasoning": {}}}}}]}}',
        '{{"choices": [{{"finish_reason": {}}}]}}',
        '{{"usage": {}}}',
        '{{"usage": {{"prompt_tokens": {}}}}}',
        '{{"usage": {{"prompt_tokens_details": {}}}}}',
        '{{"error": {}}}',
        '{{"error": {{"message": {}, "code": {}, "type": {}}}}}',
    ],
)
def test_malformed_chunks(shape: str, bad: object) -> None:
    """A value of a wrong kind anywhere is harmless or one of our errors, never a KeyError or TypeError."""
    decoder = StreamDecoder(title="fake")
    data = shape.replace("{}", json.dumps(bad)).replace("{{", "{").replace("}}", "}")
    with suppress(RemoteFailed):
        list(decoder.decode(Event(data=data)))


@given(st.text(max_size=60))
def test_any_data(text: str) -> None:
    """Data that is no JSON is one of our errors."""
    with suppress(RemoteFailed):
        list(StreamDecoder(title="fake").decode(Event(data=text)))


def test_models() -> None:
    """Every server's name for a window is understood, and a model without one is listed too."""
    rows = [
        {"id": "router", "context_length": 10},
        {"id": "vllm", "max_model_len": 20},
        {"id": "groq", "context_window": 30},
        {"id": "llama", "meta": {"n_ctx_train": 50, "n_ctx": 40}},
        {"id": "openai", "object": "model"},
        {"no": "id"},
        7,
    ]
    assert decode_models(json.dumps({"data": rows}).encode(), title="f") == (
        ModelInfo(name="router", window=10),
        ModelInfo(name="vllm", window=20),
        ModelInfo(name="groq", window=30),
        ModelInfo(name="llama", window=40),
        ModelInfo(name="openai", window=None),
    )


@pytest.mark.parametrize("body", [b"", b"\xff", b"7", b'"x"', b"{}", b'{"data": {}}'])
def test_malformed_models(body: bytes) -> None:
    """A list of models that is none is RemoteFailed."""
    with pytest.raises(RemoteFailed, match="malformed"):
        decode_models(body, title="f")
