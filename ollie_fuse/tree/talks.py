"""What the open conversation files of the agent tree do: where a write becomes a prompt, and a read its reply."""

import re
from collections.abc import Mapping, Sequence

from ollie_fuse.agent import (
    EVENT_FILTERS,
    Agent,
    Draft,
    Events,
    Exchange,
    Generation,
    Sessions,
    is_command,
    run_prompt_command,
)
from ollie_fuse.errors import Invalid, NotFound, TooLarge
from ollie_fuse.nodes import FixedSource, Source

REQUEST_LIMIT_BYTES = 1 << 20
_NUMBER = re.compile(r"[0-9]{1,18}")


class PromptTalk:
    """One open ``prompt``: everything written to it until its release, or its first read, is one prompt."""

    is_taking = True

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._draft = Draft()
        self._exchange: Exchange | None = None

    async def write(self, data: bytes) -> None:
        """Append to the draft."""
        self._agent.write_draft(self._draft, data)

    async def flush(self) -> None:
        """Announce the draft: shells close, and so flush, before the release arrives."""
        self._agent.receive_draft(self._draft)

    async def answer(self) -> Source:
        """Take the draft and give its own reply; with nothing written since, the last one's."""
        await self._take()
        return _OwnReply(self._exchange) if self._exchange else FixedSource(b"")

    async def release(self) -> None:
        """Take the draft."""
        await self._take()

    async def _take(self) -> None:
        draft, self._draft = self._draft, Draft()
        if draft.is_empty:
            return
        self._exchange = exchange = self._agent.take_draft(draft)
        if exchange.reply.is_ended:  # refused
            return
        if draft.is_stopped:
            self._agent.hold(exchange)
        elif is_command(exchange.text):
            await run_prompt_command(self._agent, exchange)
        else:
            self._agent.submit(exchange)


class _OwnReply:
    """The reply of one exchange, whichever stream it has now: a held one gets a new one when it goes on."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    @property
    def is_whole(self) -> bool:
        return self._exchange.reply.is_whole

    def __len__(self) -> int:
        return len(self._exchange.reply)

    def peek(self, offset: int, size: int) -> bytes:
        return self._exchange.reply.peek(offset, size)

    def read_nowait(self, offset: int, size: int) -> bytes | None:
        return self._exchange.reply.read_nowait(offset, size)

    async def wait(self) -> None:
        await self._exchange.reply.wait()


class _Request:
    """Text that is written in pieces before it is acted on."""

    def __init__(self) -> None:
        self._data = b""

    def add(self, data: bytes) -> None:
        if len(self._data) + len(data) > REQUEST_LIMIT_BYTES:
            raise TooLarge(f"a request has at most {REQUEST_LIMIT_BYTES} bytes")
        self._data += data

    def take(self) -> str:
        data, self._data = self._data, b""
        try:
            return data.decode()
        except UnicodeDecodeError as exc:
            raise Invalid(f"the text is not UTF-8 at byte {exc.start}") from exc


class GenerateTalk:
    """One open ``generate``: a prompt is written, its answer read, and nothing is kept."""

    is_taking = True

    def __init__(self, sessions: Sessions, cwd: str | None, usage: str) -> None:
        self._sessions = sessions
        self._cwd = cwd
        self._usage = usage
        self._request = _Request()
        self._is_asked = False
        self._generation: Generation | None = None

    async def write(self, data: bytes) -> None:
        """Append to the request."""
        self._is_asked = True
        self._request.add(data)

    async def answer(self) -> Source:
        """Ask, and give the answer as it streams; before any request, how to make one."""
        if not self._is_asked:
            return FixedSource(self._usage.encode())
        await self.release()
        self._generation = self._sessions.generate(self._request.take(), self._cwd)
        return self._generation.exchange.reply

    async def flush(self) -> None:
        """Nothing: only a read asks."""

    async def release(self) -> None:
        """End an answer that nobody will read."""
        if self._generation is not None:
            self._generation.close()
            self._generation = None


class StatewaitTalk:
    """One open ``statewait``: gives one line once the state differs from that at the open, or from what was written."""

    is_taking = False

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._since = agent.seq
        self._wanted: str | None = None

    async def write(self, data: bytes) -> None:
        """Take ``idle`` or ``since SEQ``."""
        match data.decode(errors="replace").split():
            case ["idle"]:
                self._wanted = "idle"
            case ["since", *numbers]:
                self._since, self._wanted = past_seq(numbers, self._agent.seq), None
            case _:
                raise Invalid("write `idle` or `since SEQ`")

    async def answer(self) -> Source:
        """Give the line, once there is one."""
        return _StateSource(self._agent, self._since, self._wanted)

    async def flush(self) -> None:
        """Nothing."""

    async def release(self) -> None:
        """Nothing."""


class _StateSource:
    """One line of ``statewait``, fixed once it is due."""

    is_whole = False

    def __init__(self, agent: Agent, since: int, wanted: str | None) -> None:
        self._agent = agent
        self._since = since
        self._wanted = wanted
        self._line: bytes | None = None

    def __len__(self) -> int:
        return len(self._line or b"")

    def _is_due(self) -> bool:
        if self._wanted is not None:
            return self._agent.state == self._wanted
        return self._agent.seq > self._since

    def peek(self, offset: int, size: int) -> bytes:
        return (self._line or b"")[offset : offset + size]

    def read_nowait(self, offset: int, size: int) -> bytes | None:
        if self._line is None:
            if not self._agent.is_alive:
                raise NotFound(f"agent {self._agent.name} was killed")
            if not self._is_due():
                return None
            self._line = state_line(self._agent)
        return self.peek(offset, size)

    async def wait(self) -> None:
        await self._agent.wait_state()


def state_line(agent: Agent) -> bytes:
    """Return what ``statewait`` says of the present state."""
    return f"{agent.state} {agent.seq}\n".encode()


class EventsTalk:
    """One open ``events``: the events from its open on, or from ``since SEQ`` on, or those of some kind."""

    is_taking = False

    def __init__(self, events: Events) -> None:
        self._events = events
        self._since = events.seq
        self._wanted: dict[str, str] = {}

    async def write(self, data: bytes) -> None:
        """Take ``since SEQ`` and ``NAME=VALUE`` words."""
        words = data.decode(errors="replace").split()
        has_since = words[:1] == ["since"]
        since = past_seq(words[1:2], self._events.seq) if has_since else self._since
        wanted = dict(word.partition("=")[::2] for word in words[2 * has_since :])
        if not words or not wanted.keys() <= set(EVENT_FILTERS):
            raise Invalid(f"write `since SEQ`, and words like {' '.join(f'{name}=…' for name in EVENT_FILTERS)}")
        self._since, self._wanted = since, wanted

    async def answer(self) -> Source:
        """Give the stream."""
        return _EventSource(self._events, self._since, self._wanted)

    async def flush(self) -> None:
        """Nothing."""

    async def release(self) -> None:
        """Nothing."""


def past_seq(words: Sequence[str], newest: int) -> int:
    """Parse the number after ``since``; raises Invalid for none, and for one that is still to come."""
    if not words or not _NUMBER.fullmatch(words[0]):
        raise Invalid("since takes the number that was read last")
    if int(words[0]) > newest:
        raise Invalid(f"{words[0]} has not happened yet, the newest is {newest}: the daemon may have been restarted")
    return int(words[0])


class _EventSource:
    """A reader's own view of the events: holds no more than what it has not read yet."""

    is_whole = False

    def __init__(self, events: Events, since: int, wanted: Mapping[str, str]) -> None:
        self._events = events
        self._since = since
        self._wanted = wanted
        self._start = 0
        self._pending = b""

    def __len__(self) -> int:
        return self._start + len(self._pending)

    def peek(self, offset: int, size: int) -> bytes:
        return self._pending[offset - self._start :][:size]

    def read_nowait(self, offset: int, size: int) -> bytes | None:
        if offset < self._start:
            raise Invalid("what was read of events is gone; `since SEQ` gives it again")
        if offset >= len(self):
            self._start, self._pending = offset, self._events.after(self._since, self._wanted)
            self._since = self._events.seq
        return self.peek(offset, size) or None

    async def wait(self) -> None:
        await self._events.wait()
