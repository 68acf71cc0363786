"""The readers that wait at this door, and how each wait ends."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

import trio

from ollie_fuse.errors import Interrupted, Stopped, WouldBlock


@dataclass(frozen=True, slots=True)
class OpenFile:
    """What the kernel told of an open file."""

    fh: int
    inode: int
    opener: int
    """The thread that opened it, and mostly the one that reads; 0 from outside our pid namespace."""
    is_nonblocking: bool
    """Opened with O_NONBLOCK; set later, the kernel does not tell."""


class Blocked:
    """One read that waits."""

    __slots__ = ("file", "scope", "since")

    def __init__(self, file: OpenFile) -> None:
        self.file = file
        self.scope = trio.CancelScope()
        self.since = trio.current_time()

    def interrupt(self) -> None:
        """End the wait with EINTR; the next read of the same open file waits on for the same thing."""
        self.scope.cancel()


class Waits:
    """All blocked reads."""

    def __init__(self) -> None:
        self._blocked: set[Blocked] = set()
        self._is_closed = False
        self._changed = trio.lowlevel.ParkingLot()

    def __len__(self) -> int:
        return len(self._blocked)

    def __iter__(self) -> Iterator[Blocked]:
        """Iterate over a snapshot."""
        return iter(tuple(self._blocked))

    async def wait(self, file: OpenFile, park: Callable[[], Awaitable[None]]) -> None:
        """Wait in *park* for a read of *file*.

        Raises WouldBlock at once for a non-blocking file, Interrupted when the reader has to be let go, Stopped
        once the door closes.
        """
        if self._is_closed:
            raise Stopped("the daemon is shutting down")
        if file.is_nonblocking:
            raise WouldBlock("nothing to read yet")
        blocked = Blocked(file)
        self._blocked.add(blocked)
        self._changed.unpark_all()
        try:
            with blocked.scope:
                await park()
        finally:
            self._blocked.remove(blocked)
            self._changed.unpark_all()
        if self._is_closed:
            raise Stopped("the daemon is shutting down")
        if blocked.scope.cancelled_caught:
            raise Interrupted("the read was interrupted")

    async def wait_for_blocked(self) -> None:
        """Wait until somebody waits."""
        while not self._blocked:
            await self._changed.park()

    async def close(self) -> None:
        """End every wait, now and later; returns when all have ended.

        A reader goes from its wait to its reply without a checkpoint, so by then the kernel has every answer.
        """
        self._is_closed = True
        for blocked in self._blocked:
            blocked.scope.cancel()
        while self._blocked:
            await self._changed.park()
