"""The provider against a server on loopback."""

from dataclasses import replace

import pytest
import trio

from ollie_fuse.config import BackendConfig
from ollie_fuse.errors import RemoteFailed
from ollie_fuse.providers.base import ModelInfo, Overflow, RateLimited, Rejected, Transient
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
from ollie_fuse.providers.openai import OpenAIProvider
from tests.fakes.model_server import ModelServer, Reply
from tests.providers.conftest import HEADER, KEY
from tests.providers.streams import ROUTER, ROUTER_DELTAS

REQUEST = Request(model="fake-1", messages=(Message(role="user", text="hello"),))


async def ask(provider: OpenAIProvider, request: Request = REQUEST) -> list[Delta]:
    with trio.fail_after(10):
        async with provider.open_stream(request) as deltas:
            return [delta async for delta in deltas]


def text_of(deltas: list[Delta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


async def test_answer(provider: OpenAIProvider, server: ModelServer) -> None:
    """A request arrives with key, headers and messages, and its answer comes back whole, Finished last."""
    deltas = await ask(provider)
    assert text_of(deltas) == "You said: hello"
    assert deltas[-2:] == [
        UsageDelta(usage=Usage(input_tokens=10, output_tokens=3)),
        Finished(reason=StopReason.STOP),
    ]
    (request,) = server.requests
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["x-secret"] == HEADER
    assert request.body["messages"] == [{"role": "user", "content": "hello"}]


async def test_answer_streams(provider: OpenAIProvider, server: ModelServer) -> None:
    """A piece is there as soon as it was sent, before the next one exists."""
    gate = trio.Event()
    server.replies.append(Reply(reasoning=("hm",), chunks=("a", "b"), gates={1: gate}))
    with trio.fail_after(10):
        async with provider.open_stream(REQUEST) as deltas:
            assert await anext(deltas) == ReasoningDelta(text="hm")
            assert await anext(deltas) == TextDelta(text="a")
            gate.set()
            assert await anext(deltas) == TextDelta(text="b")


async def test_connection_is_used_again(provider: OpenAIProvider, server: ModelServer) -> None:
    """A stream that was read to its end leaves its connection to the next one."""
    await ask(provider)
    await ask(provider)
    assert [request.connection for request in server.requests] == [0, 0]


async def test_kept_connection_that_was_closed(provider: OpenAIProvider, server: ModelServer) -> None:
    """A kept connection that the server closed meanwhile is replaced unseen; a new one that it closes is a failure."""
    await ask(provider)
    server.replies.append(Reply(drop=True))
    assert text_of(await ask(provider)) == "You said: hello"
    assert [request.connection for request in server.requests] == [0, 0, 1]
    server.replies += [Reply(drop=True), Reply(drop=True)]
    with pytest.raises(Transient, match="broke the connection off"):
        await ask(provider)


async def test_cancel_closes_the_connection(provider: OpenAIProvider, server: ModelServer) -> None:
    """Cancelling in the middle of a stream ends it at the server too, and the provider stays usable."""
    server.replies.append(Reply(chunks=("a", "b"), gates={1: trio.Event()}))
    with trio.fail_after(10):
        with trio.CancelScope() as scope:
            async with provider.open_stream(REQUEST) as deltas:
                async for _ in deltas:
                    scope.cancel()
        assert scope.cancelled_caught
        await server.requests[0].gone.wait()
    assert text_of(await ask(provider)) == "You said: hello"


async def test_cancel_before_the_head(provider: OpenAIProvider, server: ModelServer) -> None:
    """Cancelling while nothing has been answered makes the server see its client go."""
    server.replies.append(Reply(hold=True))
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, provider)
            await server.wait_for_requests(1)
            nursery.cancel_scope.cancel()
        await server.requests[0].gone.wait()


async def test_leaving_early_closes_the_connection(provider: OpenAIProvider, server: ModelServer) -> None:
    """Who leaves a stream before its end has ended the request."""
    server.replies.append(Reply(chunks=("a", "b"), gates={1: trio.Event()}))
    with trio.fail_after(10):
        async with provider.open_stream(REQUEST) as deltas:
            await anext(deltas)
        await server.requests[0].gone.wait()


@pytest.mark.parametrize(
    ("reply", "error", "words"),
    [
        (Reply(status=429, error="slow", headers={"retry-after": "7"}), RateLimited, "slow"),
        (Reply(status=503, error="busy"), Transient, "busy"),
        (Reply(status=400, error="exceeds the available context size"), Overflow, "context size"),
        (Reply(status=401, error=f"wrong key {KEY}, header {HEADER}"), Rejected, "wrong key …, header …"),
        (Reply(status=302, error=""), Rejected, "302"),
        (Reply(chunks=("half",), cut=True), Transient, "connection"),
        (Reply(chunks=("half",), finish=None), Transient, "cut off"),
        (Reply(chunks=("half",), error=f"overloaded {KEY}"), Transient, "overloaded …"),
        (Reply(raw=b""), Transient, "cut off"),
        (Reply(raw=b"data: {]\n\n"), RemoteFailed, "malformed"),
        (Reply(raw=b"<html>", content_type="text/html; charset=utf-8"), Rejected, "url"),
        (Reply(raw=b'{"error": "odd"}', content_type="application/json"), Transient, "odd"),
        (Reply(raw=b'{"choices": []}', content_type="application/json"), RemoteFailed, "in one piece"),
    ],
)
async def test_failures(
    provider: OpenAIProvider, server: ModelServer, reply: Reply, error: type[RemoteFailed], words: str
) -> None:
    """Each way to fail, before the stream and in it, is the error it should be and tells no secret."""
    server.replies.append(reply)
    with pytest.raises(error, match=words) as caught:
        await ask(provider)
    assert type(caught.value) is error
    shown = repr(caught.value) + str(caught.value)
    assert KEY not in shown
    assert HEADER not in shown
    if isinstance(caught.value, RateLimited):
        assert caught.value.retry_after_s == 7
    assert text_of(await ask(provider)) == "You said: hello"


async def test_unknown_model(provider: OpenAIProvider) -> None:
    """A model that the provider does not have is a refusal that names it."""
    with pytest.raises(Rejected, match="nope does not exist"):
        await ask(provider, replace(REQUEST, model="nope"))


async def test_server_that_breaks_off_after_the_answer(provider: OpenAIProvider, server: ModelServer) -> None:
    """An answer that is whole stays so when the server then breaks off instead of ending properly."""
    stream = b'data: {"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}\n\n'
    server.replies.append(Reply(raw=stream, cut=True))
    assert await ask(provider) == [TextDelta(text="x"), Finished(reason=StopReason.STOP)]


async def test_recorded_stream(provider: OpenAIProvider, server: ModelServer) -> None:
    """A recorded stream comes through HTTP as it comes through the decoder."""
    server.replies.append(Reply(raw=ROUTER))
    assert await ask(provider) == list(ROUTER_DELTAS)


async def test_silence_is_transient(server: ModelServer, config: BackendConfig) -> None:
    """A server that is silent for as long as call-timeout allows has failed, before its head and after."""
    provider = OpenAIProvider(config.model_copy(update={"call_timeout_s": 0.1}))
    server.replies += [Reply(hold=True), Reply(chunks=("a", "b"), gates={1: trio.Event()})]
    for _ in range(2):
        with pytest.raises(Transient, match=r"silent|still"):
            await ask(provider)
    await provider.aclose()


async def test_comments_are_no_answer(server: ModelServer, config: BackendConfig) -> None:
    """A stream that goes on with nothing but comments after its first event stands still."""
    provider = OpenAIProvider(config.model_copy(update={"call_timeout_s": 0.3}))
    server.replies.append(Reply(chunks=("a",), heartbeat_s=0.02, gates={1: trio.Event()}))
    with pytest.raises(Transient, match="stood still"):
        await ask(provider)
    await provider.aclose()


async def test_models(provider: OpenAIProvider) -> None:
    """The server's models come with their windows."""
    assert await provider.list_models() == (
        ModelInfo(name="fake-1", window=32768),
        ModelInfo(name="fake-2", window=None),
    )


async def test_missing_key_is_told_before_asking(server: ModelServer) -> None:
    """A key that was to come from the environment and did not is refused here, with the variable's name."""
    provider = OpenAIProvider(BackendConfig.model_validate({"section": "x", "url": server.url, "key-env": "SOME_KEY"}))
    with pytest.raises(Rejected, match="SOME_KEY"):
        await ask(provider)
    assert not server.requests


async def test_proxies_do_not_reach_loopback(
    monkeypatch: pytest.MonkeyPatch, provider: OpenAIProvider, unused_tcp_url: str
) -> None:
    """A proxy of the environment is not asked for a server on this machine."""
    monkeypatch.setenv("http_proxy", unused_tcp_url)
    assert text_of(await ask(provider)) == "You said: hello"


async def test_many_at_once(provider: OpenAIProvider, server: ModelServer) -> None:
    """Fifty answers stream side by side, none waiting for another's end."""
    gate = trio.Event()
    server.script = lambda _: Reply(chunks=("a", "b"), gates={1: gate})
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(ask, provider)
            await server.wait_for_requests(50)
            gate.set()
