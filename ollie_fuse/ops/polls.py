"""Who polls an open file, and is told when a read would no longer wait."""

import math
from collections.abc import Callable

import trio

from ollie_fuse.errors import OllieError
from ollie_fuse.nodes import Source


def is_ready(source: Source, position: int) -> bool:
    """Whether a read from *position* would return or fail at once."""
    try:
        return source.read_nowait(position, 1) is not None
    except OllieError:
        return True


class Polls:
    """One watch for each polled open file, however often it is polled."""

    def __init__(self) -> None:
        self._nursery: trio.Nursery | None = None
        self._watches: dict[int, tuple[trio.CancelScope, list[Callable[[], None]]]] = {}

    async def run(self) -> None:
        """Keep watches until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            await trio.sleep(math.inf)

    def add(self, fh: int, notify: Callable[[], None], source: Source, position: int) -> None:
        """Call *notify* once when a read of *fh* would no longer wait."""
        if self._nursery is None:
            return
        watch = self._watches.get(fh)
        if watch is None:
            watch = self._watches[fh] = (trio.CancelScope(), [])
            self._nursery.start_soon(self._watch, fh, watch[0], source, position)
        watch[1].append(notify)

    def remove(self, fh: int) -> None:
        """End the watch of an open file that is gone."""
        watch = self._watches.pop(fh, None)
        if watch is not None:
            watch[0].cancel()

    async def _watch(self, fh: int, scope: trio.CancelScope, source: Source, position: int) -> None:
        with scope:
            while not is_ready(source, position):
                await source.wait()
        watch = self._watches.get(fh)
        if watch is not None and watch[0] is scope:  # else the file was released in the step that woke this
            del self._watches[fh]
            for notify in watch[1]:
                notify()
