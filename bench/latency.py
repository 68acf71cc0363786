"""How long a prompt takes to the wire, and a model's chunk to its reader.

The clock is CLOCK_MONOTONIC, one for all processes. The yardstick of a chunk is a client that reads the same
server's stream straight off its socket.
"""

import statistics
import sys
import time
from dataclasses import dataclass, field

import trio

from bench.worlds import open_world
from tests.fakes.model_server import ModelServer, Reply, open_model_server
from tests.mount.world import World

PROMPTS = 100
CHUNKS = 200
CHUNK_EVERY_S = 0.01

_PROMPTER = """
import os, sys, time
agent = sys.argv[1]
for n in range(int(sys.argv[2])):
    fd = os.open(agent + "/prompt", os.O_WRONLY); os.write(fd, b"hi\\n"); os.close(fd)
    print(time.monotonic_ns())
    fd = os.open(agent + "/reply", os.O_RDONLY)
    while os.read(fd, 65536): pass
    os.close(fd)
"""
_READER = """
import os, sys, time
fd = os.open(sys.argv[1] + "/prompt", os.O_WRONLY); os.write(fd, b"hi\\n"); os.close(fd)
fd = os.open(sys.argv[1] + "/reply", os.O_RDONLY)
while piece := os.read(fd, 65536):
    now = time.monotonic_ns()
    for line in piece.split(): print(line.decode(), now)
"""
_SOCKET_READER = """
import json, re, socket, sys, time
host, port = sys.argv[1].removeprefix("http://").split(":")
body = json.dumps({"model": "fake-1", "messages": [{"role": "user", "content": "hi"}]}).encode()
s = socket.create_connection((host, int(port)))
s.sendall(b"POST /v1/chat/completions HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body) + body)
while (piece := s.recv(65536)) and b"[DONE]" not in piece:
    now = time.monotonic_ns()
    for number in re.findall(rb'"content": "(\\d+)', piece): print(number.decode(), now)
"""


@dataclass
class _Clocked:
    """What the server saw: when each request came, and when each chunk was sent."""

    came_ns: list[int] = field(default_factory=list)
    sent_ns: dict[str, int] = field(default_factory=dict)

    def at_once(self, _body: dict[str, object]) -> Reply:
        self.came_ns.append(time.monotonic_ns())
        return Reply(chunks=("ok",))

    def in_chunks(self, _body: dict[str, object]) -> Reply:
        return Reply(chunks=tuple(f"{n}\n" for n in range(CHUNKS)), delay_s=CHUNK_EVERY_S, sent=self._note)

    def _note(self, chunk: str) -> None:
        self.sent_ns[chunk.strip()] = time.monotonic_ns()

    def delays_ms(self, printed: bytes) -> list[float]:
        rows = (line.split() for line in printed.decode().splitlines())
        return [(int(ns) - self.sent_ns[chunk]) / 1e6 for chunk, ns in rows]


async def _run(*argv: str) -> bytes:
    done = await trio.run_process([sys.executable, "-c", *argv], capture_stdout=True)
    return bytes(done.stdout)


async def _measure(server: ModelServer, world: World) -> dict[str, tuple[float, float | None]]:
    clock = _Clocked()
    agent = f"{world.mount}/session/bench/agent/main"
    await trio.to_thread.run_sync(lambda: world.out("mkdir $m/session/bench"))
    server.script = clock.at_once
    closed = [int(ns) for ns in (await _run(_PROMPTER, agent, str(PROMPTS))).split()]
    to_wire = statistics.median((came - close) / 1e6 for came, close in zip(clock.came_ns, closed, strict=True))
    server.script = clock.in_chunks
    ours = statistics.median(clock.delays_ms(await _run(_READER, agent)))
    bare = statistics.median(clock.delays_ms(await _run(_SOCKET_READER, server.url)))
    return {
        "close of prompt to request on the wire, ms": (to_wire, None),
        "model's chunk to bytes out of reply, ms": (ours, bare),
    }


async def measure() -> dict[str, tuple[float, float | None]]:
    """Return medians in ms, each with its yardstick's where there is one."""
    async with open_model_server() as server:
        conf = f"[fake]\nurl = {server.url}\nmodel = fake-1\n"
        manager = open_world(conf)
        world = await trio.to_thread.run_sync(manager.__enter__)
        try:
            return await _measure(server, world)
        finally:
            await trio.to_thread.run_sync(manager.__exit__, None, None, None)
