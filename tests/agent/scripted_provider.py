"""A provider whose every answer is dictated by the test, and an engine that has nothing else below it."""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import trio
from trio.testing import wait_all_tasks_blocked

from ollie_fuse.agent import Agent, Backends, BareStage, Events, Exchange, Places, Session, Sessions
from ollie_fuse.config import BackendConfig, BackendsFile
from ollie_fuse.providers import (
    Delta,
    Finished,
    ModelInfo,
    ReasoningDelta,
    Request,
    StopReason,
    TextDelta,
    Usage,
    UsageDelta,
)
from ollie_fuse.tree.talks import PromptTalk


class Call:
    """One model call: what the engine sent, and the hands that answer it."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.is_over = False
        """Whether the engine has left the stream, whoever ended it."""
        # Unbounded: the test is never slowed down by who reads.
        self._send, self._receive = trio.open_memory_channel[Delta | Exception](math.inf)
        self._head = trio.Event()

    @property
    def said(self) -> list[tuple[str, str]]:
        """The roles and texts that the model was sent, the system prompt apart."""
        assert self.request.messages[0].role == "system"
        return [(message.role, message.text) for message in self.request.messages[1:]]

    def open(self) -> None:
        """Let the response's head arrive."""
        self._head.set()

    def give(self, item: Delta | Exception) -> None:
        self._head.set()
        self._send.send_nowait(item)

    def say(self, text: str) -> None:
        self.give(TextDelta(text=text))

    def think(self, text: str) -> None:
        self.give(ReasoningDelta(text=text))

    def count(self, read: int | None, written: int | None, cached: int | None = None) -> None:
        self.give(UsageDelta(usage=Usage(input_tokens=read, output_tokens=written, cached_tokens=cached)))

    def finish(self, reason: StopReason = StopReason.STOP) -> None:
        self.give(Finished(reason=reason))

    def fail(self, error: Exception) -> None:
        self.give(error)

    async def head(self) -> None:
        await self._head.wait()

    async def deltas(self) -> AsyncIterator[Delta]:
        async for item in self._receive:
            if isinstance(item, Exception):
                raise item
            yield item
            if isinstance(item, Finished):
                return


class ScriptedProvider:
    """Keeps every call for the test to answer; ``models`` is what ``list_models`` tells."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.models: tuple[ModelInfo, ...] = ()

    @asynccontextmanager
    async def open_stream(self, request: Request) -> AsyncIterator[AsyncIterator[Delta]]:
        call = Call(request)
        self.calls.append(call)
        try:
            await call.head()
            yield call.deltas()
        finally:
            call.is_over = True

    async def list_models(self) -> tuple[ModelInfo, ...]:
        await trio.lowlevel.checkpoint()
        return self.models

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


FREE = BackendConfig.model_validate({"section": "free", "model": "m", "price": "0/0"})
PRICED = BackendConfig.model_validate({"section": "priced", "model": "m", "models": "m m2", "price": "2/10/0.5"})
UNPRICED = BackendConfig.model_validate({"section": "unpriced", "model": "m"})


@dataclass
class Engine:
    """Sessions over one scripted provider, and the first agent of a session ``s``."""

    provider: ScriptedProvider
    sessions: Sessions
    session: Session
    agent: Agent

    @property
    def calls(self) -> list[Call]:
        return self.provider.calls

    async def next_call(self) -> Call:
        """Let everything run until it waits; return the call that waits to be answered."""
        await wait_all_tasks_blocked()
        assert self.calls, "the model was not asked"
        assert not self.calls[-1].is_over, "the model was not asked again"
        return self.calls[-1]

    async def prompt(self, text: str | bytes, agent: Agent | None = None) -> Exchange:
        """Write a prompt as `echo` does: open, write, close; return what came of it."""
        chosen = agent or self.agent
        talk = PromptTalk(chosen)
        await talk.write(text.encode() if isinstance(text, str) else text)
        await talk.flush()
        await talk.release()
        assert chosen.newest is not None
        return chosen.newest

    async def converse(self, text: str, answer: str) -> Exchange:
        """Have one whole turn."""
        exchange = await self.prompt(text)
        call = await self.next_call()
        call.say(answer)
        call.finish()
        await wait_all_tasks_blocked()
        return exchange


@asynccontextmanager
async def open_engine(
    *configs: BackendConfig, home: str = "/tmp", mounts: tuple[str, ...] = ()
) -> AsyncIterator[Engine]:
    """Run sessions over a scripted provider; on leaving everything is killed, and everything must end by that."""
    provider = ScriptedProvider()
    file = BackendsFile(backends=configs or (UNPRICED,))
    async with trio.open_nursery() as nursery:
        backends = Backends(file, lambda _config: provider)
        sessions = Sessions(nursery, backends, Events(), Places(home=home, mounts=mounts), BareStage())
        await sessions.create_named("s", None)
        session = sessions.by_name["s"]
        yield Engine(provider, sessions, session, session.agents["main"])
        sessions.close()
        with trio.fail_after(5):
            await wait_all_tasks_blocked()
            assert not nursery.child_tasks, "an actor outlived its kill"


def text_of(exchange: Exchange) -> str:
    """What stands in the reply so far."""
    return exchange.reply.peek(0, 1 << 20).decode()


def error_of(exchange: Exchange) -> Exception | None:
    """Why the reply ended badly; None when it ended well, or not yet."""
    try:
        exchange.reply.read_nowait(len(exchange.reply), 1)
    except Exception as exc:  # noqa: BLE001  # it is the answer
        return exc
    return None


def is_over(exchange: Exchange) -> bool:
    """Whether both streams have ended, as they must together."""
    assert exchange.reply.is_ended == exchange.answer.is_ended
    return exchange.reply.is_ended
