"""The readers that wait at this door, and how each wait ends."""

from collections.abc import Awaitable, Callable

import trio

from ollie_fuse.errors import Stopped


class Waits:
    """The readers that are blocked at this door."""

    def __init__(self) -> None:
        self._scopes: set[trio.CancelScope] = set()
        self._is_closed = False
        self._changed = trio.lowlevel.ParkingLot()

    @property
    def blocked(self) -> int:
        """How many readers wait now."""
        return len(self._scopes)

    async def wait(self, park: Callable[[], Awaitable[None]]) -> None:
        """Wait in *park*; raises Stopped once the door closes."""
        if not self._is_closed:
            with trio.CancelScope() as scope:
                self._scopes.add(scope)
                try:
                    await park()
                finally:
                    self._scopes.remove(scope)
                    self._changed.unpark_all()
        if self._is_closed:
            raise Stopped("the daemon is shutting down")

    async def close(self) -> None:
        """End every wait, now and later; returns when all have ended.

        A reader goes from its wait to its reply without a checkpoint, so by then the kernel has every answer.
        """
        self._is_closed = True
        for scope in self._scopes:
            scope.cancel()
        while self._scopes:
            await self._changed.park()
