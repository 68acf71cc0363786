"""A model server of our own on loopback, scripted: by a callable in a test, by the prompt as a process.

As a process (``python -m tests.fakes.model_server``) it prints ``ready URL`` and lives until its stdin ends.
A line of the last user message that starts with ``@fake`` says what to do::

    @fake hold                  never answer until the client goes
    @fake until PATH            answer when the file PATH exists
    @fake chunks 20 delay 0.05  twenty chunks, fifty milliseconds apart
    @fake status 500            an error of this status
    @fake cut                   break off in the middle of the answer
    @fake say TEXT              answer TEXT
    @fake size BYTES            answer as many bytes

Without one it echoes. Several lines add up (``hold`` and ``until`` hold what the others say).
"""

import json
import math
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import trio

MODELS: dict[str, int | None] = {"fake-1": 32768, "fake-2": None}
"""Names and windows."""

_POLL_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What to answer to one request."""

    chunks: tuple[str, ...] = ()
    reasoning: tuple[str, ...] = ()
    """Sent before the chunks."""
    gates: Mapping[int, trio.Event] = field(default_factory=dict)
    """What chunk n (from 0; ``len(chunks)`` is the end) waits for."""
    delay_s: float = 0.0
    """Before each chunk."""
    sent: Callable[[str], None] | None = None
    """Told of each chunk just before it is sent."""
    heartbeat_s: float | None = None
    """Send a comment as often while a gate holds."""
    hold: bool = False
    """Never answer."""
    until: Path | None = None
    """Answer when this file exists."""
    status: int = 200
    error: str | None = None
    """The message of an error object; with status 200 it comes as a frame after the chunks."""
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False
    """Close the connection after the chunks."""
    drop: bool = False
    """Close the connection instead of answering, as a server does that had just closed an idle one."""
    finish: str | None = "stop"
    """The finish reason; None leaves it out."""
    usage: Mapping[str, object] | None = field(default_factory=lambda: {"prompt_tokens": 10, "completion_tokens": 3})
    raw: bytes | None = None
    """The whole event stream as it is, instead of all above."""
    content_type: str = "text/event-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A request as it came in."""

    method: str
    path: str
    headers: Mapping[str, str]
    """Names in small letters."""
    body: dict[str, object]
    connection: int
    """Counts connections from 0; equal numbers mean that one was used again."""
    gone: trio.Event = field(default_factory=trio.Event)
    """Set when the client went before the answer was over."""
    answered: trio.Event = field(default_factory=trio.Event)
    """Set when the answer was sent whole."""


Script = Callable[[dict[str, object]], Reply]


def text_of_last_user(body: dict[str, object]) -> str:
    """Return the last user message of a request."""
    messages = body.get("messages")
    assert isinstance(messages, list)
    return next((str(m["content"]) for m in reversed(messages) if m["role"] == "user"), "")


def echo(body: dict[str, object]) -> Reply:
    """Answer ``You said: TEXT`` in three chunks."""
    text = text_of_last_user(body)
    middle = len(text) // 2
    return Reply(chunks=("You said: ", text[:middle], text[middle:]))


def obey(body: dict[str, object]) -> Reply:
    """Do what the ``@fake`` lines of the prompt say; without one, echo."""
    reply = echo(body)
    for line in text_of_last_user(body).splitlines():
        if line.startswith("@fake "):
            reply = _obey_line(reply, line.removeprefix("@fake "))
    return reply


def _obey_line(reply: Reply, line: str) -> Reply:
    verb, _, rest = line.partition(" ")
    return _VERBS[verb](reply, rest)


def _chunks(reply: Reply, rest: str) -> Reply:
    count, _, delay = rest.partition(" delay ")
    chunks = tuple(f"chunk {number}\n" for number in range(int(count)))
    return replace(reply, chunks=chunks, delay_s=float(delay or 0))


def _size(reply: Reply, rest: str) -> Reply:
    size, piece = int(rest), 4096
    return replace(reply, chunks=tuple("x" * min(piece, size - start) for start in range(0, size, piece)))


_VERBS: dict[str, Callable[[Reply, str], Reply]] = {
    "hold": lambda reply, _: replace(reply, hold=True),
    "until": lambda reply, rest: replace(reply, until=Path(rest)),
    "chunks": _chunks,
    "status": lambda reply, rest: replace(reply, status=int(rest), error=f"told to answer {rest}"),
    "cut": lambda reply, _: replace(reply, cut=True),
    "say": lambda reply, rest: replace(reply, chunks=(rest,)),
    "size": _size,
}


class ModelServer:
    """One listening server; ``open_model_server`` makes it."""

    def __init__(self, script: Script = echo) -> None:
        self.url = ""
        self.requests: list[Recorded] = []
        """The model calls, in the order of their coming."""
        self.script = script
        """What answers when ``replies`` is empty."""
        self.replies: deque[Reply] = deque()
        """What to answer to the next requests, before ``script`` is asked."""
        self._connections = 0
        self._came = trio.Event()

    async def wait_for_requests(self, count: int) -> None:
        """Wait until *count* model calls have come in."""
        while len(self.requests) < count:
            await self._came.wait()

    async def serve(self, stream: trio.SocketStream) -> None:
        """Answer one connection until it ends."""
        number = self._connections
        self._connections += 1
        connection = _Connection(stream, number)
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while (request := await connection.read_request()) is not None:
                if not await self._answer(connection, request):
                    return

    async def _answer(self, connection: "_Connection", request: Recorded) -> bool:
        """Answer one request; tell whether the connection is good for another."""
        if request.method == "GET" and request.path == "/v1/models":
            await connection.send_json(200, _models())
            return True
        if request.path != "/v1/chat/completions":
            await connection.send_json(404, _error(f"no such path {request.path}"))
            return True
        self.requests.append(request)
        self._came.set()
        self._came = trio.Event()
        if (model := request.body.get("model")) not in MODELS:
            await connection.send_json(404, _error(f"model {model} does not exist"))
            return True
        reply = self.replies.popleft() if self.replies else self.script(request.body)
        return await self._play(connection, request, reply)

    async def _play(self, connection: "_Connection", request: Recorded, reply: Reply) -> bool:
        """Send *reply* unless the client goes first."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.watch, nursery.cancel_scope)
            try:
                await _wait_for_start(reply)
                await connection.send_reply(reply)
                request.answered.set()
            except trio.BrokenResourceError:
                pass
            finally:
                if not request.answered.is_set():
                    request.gone.set()
            nursery.cancel_scope.cancel()
        return request.answered.is_set() and not (reply.cut or reply.drop)


async def _wait_for_start(reply: Reply) -> None:
    if reply.hold:
        await trio.sleep_forever()
    while reply.until is not None and not reply.until.exists():  # noqa: ASYNC110 - a file has no event
        await trio.sleep(_POLL_S)


class _Connection:
    """One connection: whole requests in, answers out."""

    def __init__(self, stream: trio.SocketStream, number: int) -> None:
        self._stream = stream
        self._number = number
        self._buffer = bytearray()

    async def read_request(self) -> Recorded | None:
        """Read the next request; None when the client has closed."""
        while b"\r\n\r\n" not in self._buffer:
            if not await self._receive():
                return None
        head, _, rest = bytes(self._buffer).partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", "0"))
        self._buffer = bytearray(rest)
        while len(self._buffer) < length:
            if not await self._receive():
                return None
        body = bytes(self._buffer[:length])
        del self._buffer[:length]
        return Recorded(
            method=method, path=path, headers=headers, body=json.loads(body or b"{}"), connection=self._number
        )

    async def watch(self, scope: trio.CancelScope) -> None:
        """Cancel *scope* when the client closes; what it sends meanwhile is kept."""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while await self._receive():
                pass
        scope.cancel()

    async def _receive(self) -> bool:
        piece = await self._stream.receive_some()
        self._buffer += piece
        return bool(piece)

    async def send_json(self, status: int, value: object, headers: Mapping[str, str] | None = None) -> None:
        body = json.dumps(value).encode()
        fields = {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}
        await self._stream.send_all(_head(status, fields) + body)

    async def send_reply(self, reply: Reply) -> None:
        if reply.drop:
            await self._stream.aclose()
            return
        if reply.status != 200:
            await self.send_json(reply.status, _error(reply.error or "no reason"), reply.headers)
            return
        fields = {"content-type": reply.content_type, "transfer-encoding": "chunked", **reply.headers}
        await self._stream.send_all(_head(200, fields))
        await self._send_stream(reply)
        if reply.cut:
            await self._stream.aclose()
        else:
            await self._stream.send_all(b"0\r\n\r\n")

    async def _send_stream(self, reply: Reply) -> None:
        if reply.raw is not None:
            await self._send_chunk(reply.raw)
            return
        for text in reply.reasoning:
            await self._send_chunk(_frame(_chunk({"reasoning_content": text})))
        for number, text in enumerate(reply.chunks):
            await self._pass_gate(reply, number)
            if reply.sent is not None:
                reply.sent(text)
            await self._send_chunk(_frame(_chunk({"content": text})))
        await self._pass_gate(reply, len(reply.chunks))
        if not reply.cut:
            for frame in _last_frames(reply):
                await self._send_chunk(frame)

    async def _pass_gate(self, reply: Reply, number: int) -> None:
        gate = reply.gates.get(number)
        while gate is not None and not gate.is_set():
            with trio.move_on_after(reply.heartbeat_s or math.inf):
                await gate.wait()
            if not gate.is_set():
                await self._send_chunk(b": still here\n\n")
        if reply.delay_s:
            await trio.sleep(reply.delay_s)

    async def _send_chunk(self, piece: bytes) -> None:
        if piece:  # an empty one would end the body
            await self._stream.send_all(b"%x\r\n%b\r\n" % (len(piece), piece))


def _head(status: int, fields: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} Scripted", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _last_frames(reply: Reply) -> Iterator[bytes]:
    if reply.error is not None:
        yield _frame(_error(reply.error))
        return
    if reply.finish is not None:
        yield _frame(_chunk({}, finish=reply.finish))
    if reply.usage is not None:
        yield _frame({"object": "chat.completion.chunk", "choices": [], "usage": reply.usage})
    yield b"data: [DONE]\n\n"


def _frame(value: object) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


def _chunk(delta: object, finish: str | None = None) -> object:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "fake", "object": "chat.completion.chunk", "model": "fake-1", "choices": [choice]}


def _error(message: str) -> object:
    return {"error": {"message": message, "type": "fake_error", "code": None}}


def _models() -> object:
    rows = [{"id": name} | ({"context_length": window} if window else {}) for name, window in MODELS.items()]
    return {"object": "list", "data": rows}


@asynccontextmanager
async def open_model_server(script: Script = echo) -> AsyncIterator[ModelServer]:
    """Serve on a free loopback port while the context is open."""
    server = ModelServer(script)
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        server.url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        nursery.start_soon(trio.serve_listeners, server.serve, listeners)
        yield server
        nursery.cancel_scope.cancel()


async def _run_as_process() -> None:
    async with open_model_server(obey) as server:
        sys.stdout.write(f"ready {server.url}\n")
        sys.stdout.flush()
        async with trio.lowlevel.FdStream(sys.stdin.fileno()) as stdin:
            async for _ in stdin:
                pass


if __name__ == "__main__":
    trio.run(_run_as_process)
