"""The agent daemon: one exit stack that opens its parts in reading order and closes them in reverse."""

import contextlib
import logging
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import trio

from ollie_fuse.agent import Backends, Events, Places, Sessions, Verb, table_of
from ollie_fuse.config import BackendConfig, read_backends
from ollie_fuse.errors import Invalid
from ollie_fuse.ops import Mount, OwnMount, open_mount
from ollie_fuse.paths import Paths
from ollie_fuse.preflight import held_lock, prepare_mountpoint
from ollie_fuse.providers import Provider, open_provider
from ollie_fuse.stamp import Stamp
from ollie_fuse.tree import Root, build_tree

log = logging.getLogger(__name__)

REFRESH_S = 6 * 3600
"""How often the lists of models are asked for again."""
LEVELS = ("debug", "info", "warning", "error")


class Daemon:
    """What the root's own files show and do."""

    def __init__(self, paths: Paths, environ: Mapping[str, str], backends: Backends, shutdown: trio.Event) -> None:
        self._paths = paths
        self._environ = environ
        self.backends = backends
        self.mount: Mount | None = None
        self.started = Stamp()
        self.settings_changed = Stamp()
        self.shutdown = shutdown
        self.refresh = trio.Event()

    async def reload(self) -> None:
        """Read the configuration again; waits for the disk, in a thread."""
        file = await trio.to_thread.run_sync(read_backends, self._paths.backends_conf, self._environ)
        self.backends.load(file)
        self.refresh.set()

    def render_status(self, sessions: Sessions) -> str:
        """Tell how it goes, as ``key=value`` lines."""
        agents = [agent for session in sessions.by_name.values() for agent in session.agents.values()]
        states = Counter(agent.state for agent in agents)
        rows = {
            "started": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(self.started.ns / 1e9)),
            "pid": os.getpid(),
            "sessions": len(sessions.by_name),
            "agents": len(agents),
            **{f"agents_{state.split(':')[0]}": count for state, count in sorted(states.items())},
            "blocked_readers": self.mount.blocked_readers if self.mount else 0,
            "memory_mib": resident_kib() // 1024,
            "config_mistakes": len(self.backends.mistakes),
        }
        return "".join(f"{key}={value}\n" for key, value in rows.items())

    def verbs(self) -> dict[str, Verb[Root]]:
        """The commands of the root's ``ctl``."""
        return table_of(
            Verb(name="reload", help="read backends.conf again", run=self._reload),
            Verb(name="shutdown", help="unmount and end the daemon", run=self._shutdown),
            Verb(name="log", arguments="LEVEL", help=f"what is logged: {', '.join(LEVELS)}", run=self._log),
        )

    async def _reload(self, _root: Root, _: Sequence[str]) -> str:
        await self.reload()
        return "".join(f"{mistake}\n" for mistake in self.backends.mistakes)

    async def _shutdown(self, _root: Root, _: Sequence[str]) -> str:
        self.shutdown.set()
        return "shutting down\n"

    async def _log(self, _root: Root, arguments: Sequence[str]) -> str:
        level = arguments[0].lower()
        if level not in LEVELS:
            raise Invalid(f"log takes one of {', '.join(LEVELS)}")
        logging.getLogger("ollie_fuse").setLevel(level.upper())
        self.settings_changed.touch()
        return ""

    @staticmethod
    def render_settings() -> str:
        """Write the settings as the lines that would set them."""
        level = logging.getLogger("ollie_fuse").getEffectiveLevel()
        return f"log {logging.getLevelName(level).lower()}\n"


def resident_kib() -> int:
    """Return the daemon's resident memory, proc(5) ``statm``."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


@asynccontextmanager
async def open_daemon(paths: Paths, environ: Mapping[str, str], shutdown: trio.Event) -> AsyncIterator[Daemon]:
    """Mount and serve until the context is left. Raises a sentence when something stands in the way."""
    async with AsyncExitStack() as stack:
        stack.enter_context(held_lock(paths))
        await prepare_mountpoint(paths.mountpoint)
        nursery = await stack.enter_async_context(trio.open_nursery())
        stack.callback(nursery.cancel_scope.cancel)

        def opened(config: BackendConfig) -> Provider:
            return open_provider(config, nursery, paths.data)

        backends = Backends(read_backends(paths.backends_conf, environ), opened)
        stack.push_async_callback(backends.aclose)
        places = Places(home=str(paths.home), mounts=(str(paths.mountpoint),))
        own_mount = OwnMount(paths.mountpoint)
        sessions = Sessions(nursery, backends, Events(), places, own_mount)
        daemon = Daemon(paths, environ, backends, shutdown)
        root = Root(
            sessions=sessions,
            config=paths.config,
            status=lambda: daemon.render_status(sessions),
            verbs=daemon.verbs(),
            settings=daemon.render_settings,
            settings_changed=daemon.settings_changed,
            started=daemon.started,
        )
        daemon.mount = await stack.enter_async_context(open_mount(build_tree(root), paths.mountpoint, own_mount))
        stack.callback(sessions.close)
        nursery.start_soon(_refresh_models, daemon)
        yield daemon


async def _refresh_models(daemon: Daemon) -> None:
    """Keep the lists of models fresh: at the start, at a reload, and every few hours."""
    while True:
        await daemon.backends.refresh()
        with trio.move_on_after(REFRESH_S):
            await daemon.refresh.wait()
        daemon.refresh = trio.Event()


async def run_daemon(paths: Paths, environ: Mapping[str, str]) -> None:
    """Serve until SIGTERM, SIGINT, ``shutdown`` or an unmount from outside; SIGHUP reads the configuration again.

    Signals are received from before the mount until after it, so that a second one does not cut the end short.
    """
    shutdown = trio.Event()
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        async with trio.open_nursery() as nursery:
            hangups, hung_up = trio.open_memory_channel[None](1)  # several that came together are one
            nursery.start_soon(_receive_signals, signals, shutdown, hangups)
            await _serve(paths, environ, shutdown, hung_up)
            nursery.cancel_scope.cancel()


async def _receive_signals(
    signals: AsyncIterator[int], shutdown: trio.Event, hangups: trio.MemorySendChannel[None]
) -> None:
    async for number in signals:
        if number != signal.SIGHUP:
            shutdown.set()
        else:
            with contextlib.suppress(trio.WouldBlock):
                hangups.send_nowait(None)


async def _serve(
    paths: Paths, environ: Mapping[str, str], shutdown: trio.Event, hung_up: trio.MemoryReceiveChannel[None]
) -> None:
    async with open_daemon(paths, environ, shutdown) as daemon, trio.open_nursery() as nursery:
        assert daemon.mount is not None
        log.info("mounted at %s", paths.mountpoint)
        nursery.start_soon(_reload_on_hangup, daemon, hung_up)
        nursery.start_soon(_end_on_unmount, shutdown, daemon.mount)
        await shutdown.wait()
        nursery.cancel_scope.cancel()
    log.info("unmounted")


async def _reload_on_hangup(daemon: Daemon, hung_up: trio.MemoryReceiveChannel[None]) -> None:
    async for _ in hung_up:
        await daemon.reload()


async def _end_on_unmount(shutdown: trio.Event, mount: Mount) -> None:
    await mount.wait_unmounted()
    shutdown.set()
