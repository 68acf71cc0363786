"""Kind ``local``: a small model in a child process, so that a machine with no key or network still answers.

Owns the child, which is started by the first request, in a task of the owner's nursery, and dies with the
daemon. llama.cpp is loaded in the child alone, so the daemon does not grow with it. Answers come as any
server's do.
"""

import importlib.util
import json
import secrets
import sys
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import trio
from pydantic import SecretStr

from ollie_fuse.child import Child, open_child
from ollie_fuse.config import BackendConfig
from ollie_fuse.errors import RemoteFailed
from ollie_fuse.providers.base import ModelInfo, Rejected, Transient
from ollie_fuse.providers.messages import Delta, Request
from ollie_fuse.providers.model_file import default_model_path, read_trained_window
from ollie_fuse.providers.openai import OpenAIProvider

START_TIMEOUT_S = 60.0
WINDOW_LIMIT = 8192
"""Tokens, where the configuration does not say: each costs memory whether it is used or not."""
CALM_S = 60.0
"""Two ends of the child within this time, and it is not started a third time until it has passed."""
REAP_S = 1.0
"""How long after a broken connection the end of the child may take to be seen."""

_SCRIPT = Path(__file__).with_name("local_server.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Model:
    path: Path
    window: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Server:
    """One running child that has said that it is ready."""

    provider: OpenAIProvider
    url: str
    pid: int
    scope: trio.CancelScope
    ended: trio.Event

    async def has_ended(self) -> bool:
        """Whether it is gone, given REAP_S to be seen to be."""
        with trio.move_on_after(REAP_S):
            await self.ended.wait()
        return self.ended.is_set()


class LocalProvider:
    """The local model; see ``base.Provider``. The child lives in a task of *nursery* and ends with it."""

    def __init__(self, config: BackendConfig, nursery: trio.Nursery, data_dir: Path) -> None:
        self._config = config
        self._nursery = nursery
        self._path = Path(config.model).expanduser() if config.model else default_model_path(data_dir)
        self._is_ours = config.model is None
        self._starting = trio.Lock()
        self._server: _Server | None = None
        self._ends: deque[float] = deque(maxlen=2)

    @property
    def pid(self) -> int | None:
        """The running child's process id."""
        return self._server.pid if self._server and not self._server.ended.is_set() else None

    @property
    def url(self) -> str | None:
        """Where the running child serves; only with its key."""
        return self._server.url if self._server and not self._server.ended.is_set() else None

    @asynccontextmanager
    async def open_stream(self, request: Request) -> AsyncIterator[AsyncIterator[Delta]]:
        """See ``base.Provider``. The first call waits for the child's start, up to START_TIMEOUT_S."""
        server = await self._running_server()
        async with AsyncExitStack() as stack:
            try:
                deltas = await stack.enter_async_context(server.provider.open_stream(request))
            except Transient:
                if not await server.has_ended():
                    raise
                # It died before it answered, so nothing of the answer was shown: ask its successor.
                server = await self._running_server()
                deltas = await stack.enter_async_context(server.provider.open_stream(request))
            yield deltas

    async def list_models(self) -> tuple[ModelInfo, ...]:
        """See ``base.Provider``. Waits for the disk only: who lists models starts none."""
        model = await trio.to_thread.run_sync(self._find_model)
        return (ModelInfo(name=self._path.stem, window=model.window),)

    async def aclose(self) -> None:
        """End the child and wait until it is gone."""
        async with self._starting:
            if self._server is not None:
                self._server.scope.cancel()
                await self._server.ended.wait()

    async def _running_server(self) -> _Server:
        async with self._starting:  # the first one starts it, the others wait for that start
            if self._server is None or self._server.ended.is_set():
                self._check_calm()
                model = await trio.to_thread.run_sync(self._find_model)
                self._server = await self._nursery.start(self._run_server, model)
            return self._server

    def _check_calm(self) -> None:
        """Refuse another start when the last two children ended soon after each other."""
        if len(self._ends) == 2 and trio.current_time() - self._ends[0] < CALM_S:
            raise RemoteFailed(
                f"{self._config.title}: the local model's process ended twice within {CALM_S:g} s and is "
                "left alone for that long; is there too little memory, or is its file damaged?"
            )

    def _find_model(self) -> _Model:
        """Say what will be served, or raise Rejected with what to do first. Touches the disk."""
        if importlib.util.find_spec("xllamacpp") is None:
            raise Rejected("the local model needs llama.cpp: pip install 'ollie-fuse[local]'")
        if not self._path.is_file():
            raise Rejected(self._missing())
        trained = read_trained_window(self._path) or WINDOW_LIMIT
        return _Model(path=self._path, window=self._config.window or min(trained, WINDOW_LIMIT))

    def _missing(self) -> str:
        if self._is_ours:
            return "the local model is not here yet; `ollie-fuse fetch-model` downloads it (93 MB)"
        return f"{self._config.title}: there is no model file {self._path}"

    async def _run_server(self, model: _Model, task_status: trio.TaskStatus[_Server]) -> None:
        """Run one child until it ends or is told to."""
        key = secrets.token_urlsafe(32)
        order: dict[str, str | int] = {
            "model": str(model.path),
            "alias": self._path.stem,
            "key": key,
            "window": model.window,
        }
        ended = trio.Event()
        async with AsyncExitStack() as stack:
            scope = stack.enter_context(trio.CancelScope())
            stack.callback(ended.set)
            # stderr: llama.cpp's words on what it does are no words of the daemon's.
            child = await stack.enter_async_context(
                open_child([sys.executable, "-P", str(_SCRIPT)], stdin="pipe", stdout="pipe", stderr="null")
            )
            stack.push_async_callback(child.stdin.aclose)  # it obeys its stdin sooner than SIGTERM
            url = await _ready_url(child, order)
            provider = self._provider_at(url, key)
            stack.push_async_callback(provider.aclose)
            task_status.started(_Server(provider=provider, url=url, pid=child.pid, scope=scope, ended=ended))
            await child.wait()
            self._ends.append(trio.current_time())

    def _provider_at(self, url: str, key: str) -> OpenAIProvider:
        return OpenAIProvider(self._config.model_copy(update={"url": f"{url}/v1", "key": SecretStr(key)}))


async def _ready_url(child: Child, order: dict[str, str | int]) -> str:
    """Tell the child what to serve and wait until it does; raises RemoteFailed when it does not."""
    with trio.move_on_after(START_TIMEOUT_S):
        answer = await _ask(child, json.dumps(order).encode() + b"\n")
        word, _, rest = answer.decode(errors="replace").strip().partition(" ")
        if word == "ready":
            return rest
        raise RemoteFailed(f"the local model did not start: {rest or 'its process ended at once'}")
    raise RemoteFailed(f"the local model did not start within {START_TIMEOUT_S:g} s")


async def _ask(child: Child, line: bytes) -> bytes:
    """Send *line*; return the line that comes back, or less when the child ends."""
    answer = bytearray()
    try:
        await child.stdin.send_all(line)
        async for piece in child.stdout:
            answer += piece
            if answer.endswith(b"\n"):
                break
    except trio.BrokenResourceError:  # it ended before it had read all
        pass
    return bytes(answer)
