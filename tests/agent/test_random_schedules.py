"""An agent under everything at once: people write, stop, resume, drop and kill, a model answers when it likes."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from ollie_fuse.agent import Agent, Exchange, Growing, Topic, render_queue, run_agent_lines, run_queue_lines
from ollie_fuse.errors import OllieError
from ollie_fuse.providers import StopReason, Transient
from ollie_fuse.tree.talks import PromptTalk
from tests.agent.scripted_provider import Engine, is_over, open_engine

_SLOT = st.integers(0, 2)
_OPS = st.one_of(
    st.tuples(st.just("echo"), st.just(0)),
    st.tuples(st.sampled_from(["write", "flush", "release", "read"]), _SLOT),
    st.tuples(st.just("empty"), _SLOT),
    st.tuples(st.just("garbage"), _SLOT),
    st.tuples(st.just("command"), st.integers(0, 5)),
    st.tuples(st.just("drop"), st.integers(1, 6)),
    st.tuples(st.sampled_from(["say", "space", "think", "count", "finish", "cut", "fail", "crash"]), st.just(0)),
    st.tuples(st.just("steps"), st.integers(0, 3)),
    st.tuples(st.just("settle"), st.just(0)),
)
_SCHEDULES = st.tuples(st.lists(_OPS, max_size=30), st.sampled_from(["drain", "kill", "kill", "drain", "drain"]))
_COMMANDS = ["stop", "resume", "clear", "temperature 1", "bogus", "stop\nresume"]


class Checker(trio.abc.Instrument):
    """Looks at the agent after every step of every task, where anybody else could look too."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.exchanges: dict[int, Exchange] = {}
        self.ended: dict[Growing, tuple[bytes, str]] = {}
        self.told: dict[Topic, tuple[str, int]] = {}
        self.broken: list[str] = []

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        try:
            self.look()
        except AssertionError as exc:
            self.broken.append(str(exc))

    def look(self) -> None:
        agent = self.agent
        if agent.newest is not None:
            self.exchanges[agent.newest.number] = agent.newest
        self._look_at_streams()
        self._look_at_state(agent)
        self._look_at_history(agent)
        if agent.is_alive:
            self._look_at_times(agent)

    def _look_at_streams(self) -> None:
        """What has ended never changes, and reply and answer end together."""
        for exchange in self.exchanges.values():
            is_over(exchange)
            for stream in (exchange.reply, exchange.answer):
                if stream.is_ended:
                    text = stream.peek(0, 1 << 16)
                    end = (text, _ending(stream))
                    assert self.ended.setdefault(stream, end) == end, "an ended stream changed"
                    assert not text or text.endswith(b"\n"), "a stream ended inside a line"

    def _look_at_state(self, agent: Agent) -> None:
        open_ones = [number for number, exchange in self.exchanges.items() if not is_over(exchange)]
        if agent.state == "idle":
            assert not open_ones, f"idle, though {open_ones} are not over"
            assert not agent.is_running, "idle, though a turn runs"
            assert not agent.chat.text.is_line_open, "idle, though chat is inside a line"
            assert not agent.queue or agent.is_held, "idle, though the queue could go on"
        elif agent.is_alive:
            assert open_ones, f"{agent.state}, though everything is over"
            assert agent.is_running == (agent.state == "thinking"), f"{agent.state} with is_running {agent.is_running}"

    def _look_at_history(self, agent: Agent) -> None:
        roles = [message.role for message in agent.history]
        assert all(message.text.strip() for message in agent.history), "an empty message"
        assert roles[:1] != ["assistant"], "an answer to nothing"
        assert ("assistant", "assistant") not in pairwise(roles), "two answers in a row"

    def _look_at_times(self, agent: Agent) -> None:
        shown = {
            Topic.STATE: agent.state,
            Topic.ERROR: agent.error,
            Topic.QUEUE: render_queue(agent),
            Topic.SETTINGS: str(agent.settings),
        }
        for topic, text in shown.items():
            before = self.told.get(topic)
            now = (text, agent.stamps[topic].ns)
            assert before is None or before[0] == text or before[1] != now[1], f"{topic} changed without its time"
            self.told[topic] = now


def _ending(stream: Growing) -> str:
    try:
        stream.read_nowait(len(stream), 1)
    except OllieError as exc:
        return f"{type(exc).__name__}: {exc}"
    return ""


@dataclass
class World:
    """The engine, and three hands that hold open prompts."""

    engine: Engine
    talks: dict[int, PromptTalk] = field(default_factory=dict)
    said: int = 0

    def talk(self, slot: int) -> PromptTalk:
        return self.talks.setdefault(slot, PromptTalk(self.engine.agent))

    async def do(self, verb: str, number: int) -> None:
        with contextlib.suppress(OllieError):
            if verb in ("say", "space", "think", "count", "finish", "cut", "fail", "crash"):
                self._answer(verb)
            elif verb == "steps":
                for _ in range(number):
                    await trio.lowlevel.checkpoint()
            elif verb == "settle":
                await wait_all_tasks_blocked()
            elif verb == "command":
                await run_agent_lines(self.engine.agent, _COMMANDS[number])
            elif verb == "drop":
                await run_queue_lines(self.engine.agent, f"drop {number}")
            elif verb == "echo":
                await self.engine.prompt(self._label())
            else:
                await self._write(verb, number)

    def _label(self) -> bytes:
        self.said += 1
        return f"p{self.said}\n".encode()

    def _answer(self, verb: str) -> None:
        if not self.engine.calls or self.engine.calls[-1].is_over:
            return
        call = self.engine.calls[-1]
        match verb:
            case "say":
                call.say("word")
            case "space":
                call.say(" ")
            case "think":
                call.think("hm")
            case "count":
                call.count(1, 1)
            case "finish":
                call.finish()
            case "cut":
                call.finish(StopReason.LENGTH)
            case "fail":
                call.fail(Transient("no"))
            case _:
                call.fail(ZeroDivisionError())

    async def _write(self, verb: str, slot: int) -> None:
        talk = self.talk(slot)
        match verb:
            case "write":
                await talk.write(self._label())
            case "empty":
                await talk.write(b"\n")
            case "garbage":
                await talk.write(b"\xff")
            case "flush":
                await talk.flush()
            case "read":
                await talk.answer()
            case _:
                await talk.flush()
                del self.talks[slot]
                await talk.release()

    async def close_all(self, look: Callable[[], None]) -> None:
        """Close every open prompt."""
        for slot in list(self.talks):
            await self.do("release", slot)
            look()

    async def drain(self) -> None:
        """Answer every call until nothing is left to do."""
        self.engine.agent.resume()
        for _ in range(200):
            await wait_all_tasks_blocked()
            if self.engine.agent.state == "idle":
                return
            self._answer("say")
            self._answer("finish")
        raise AssertionError(f"still {self.engine.agent.state}")


@pytest.mark.logs_warnings
@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(schedule=_SCHEDULES)
async def test_any_schedule_keeps_what_an_agent_promises(schedule: tuple[list[tuple[str, int]], str]) -> None:
    """Whatever happens in any order, every prompt ends once, states and times are true, history is in order."""
    steps, ending = schedule
    async with open_engine() as engine:
        world, checker = World(engine), Checker(engine.agent)
        trio.lowlevel.add_instrument(checker)
        try:
            for verb, number in steps:
                await world.do(verb, number)
                checker.look()
            if ending == "kill":
                engine.session.kill_agent("main")
                await world.close_all(checker.look)
                await wait_all_tasks_blocked()
            else:
                await world.close_all(checker.look)
                await world.drain()
            checker.look()
        finally:
            trio.lowlevel.remove_instrument(checker)
        assert checker.broken == []
        assert all(is_over(exchange) for exchange in checker.exchanges.values())
        assert (engine.agent.state, len(engine.agent.queue)) == ("idle", 0)
        assert all(call.is_over for call in engine.calls)
        asked = [call.said[-1] for call in engine.calls]
        assert len(asked) == len(set(asked)), "a prompt was sent twice"
