"""What the daemon does through its own mount, so that inotify watchers and the kernel's cache of names hear of it.

inotify(7) events are raised only for what goes through the mount. So when the daemon changes a file it touches it,
and when it makes, removes or renames a directory it does so by a system call on its own mount, in a thread. The
request comes back to the door like anybody's, is known by its thread, and there does what the daemon wanted.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import trio

from ollie_fuse.errors import OllieError, TimedOut
from ollie_fuse.ops.mount_thread import MountThread, touch

_ACT_S = 0.2
"""How long a directory waits to be made, removed or renamed through the mount; then it is done without an event."""
_TOUCH_S = 1.0
_FILE_REST_S = 1 / 20
"""A file is touched at most so often..."""
_REST_S = 1 / 200
"""...and all files together."""

Act = Callable[[], object]


class Door(Protocol):
    """What the mount's own side tells its client."""

    def names_of(self, inode: int) -> list[str] | None:
        """Return the names from the root down to *inode*; None when the kernel no longer knows them."""

    def is_busy(self, inode: int) -> bool:
        """Whether a write to *inode* is under way; the kernel holds its lock until it is answered."""

    def drop_name(self, names: Sequence[str]) -> None:
        """Let the kernel forget the last of *names*, some time soon."""


class _Once:
    """An act that is done once, by whoever comes first."""

    def __init__(self, act: Act) -> None:
        self._act = act
        self.is_done = False
        self.refusal: OllieError | None = None

    def do(self) -> None:
        if self.is_done:
            return
        self.is_done = True
        try:
            self._act()
        except OllieError as exc:
            self.refusal = exc
            raise


class OwnMount:
    """The daemon as a client of its own mount at *mountpoint*."""

    def __init__(self, mountpoint: Path) -> None:
        self._mountpoint = mountpoint
        self._acts = MountThread()
        self._touches = MountThread()
        """Another thread: a touch may have to wait for a lock, and no act should stand behind it."""
        self._turn = trio.Lock()
        self._act: _Once | None = None
        self._dirty: dict[int, None] = {}
        """Inodes to touch, in the order in which they changed."""
        self._takes_oldest = False
        self._wake = trio.lowlevel.ParkingLot()
        self._door: Door | None = None
        """The door while the mount may be used."""

    def is_own(self, tid: int) -> bool:
        """Whether a request comes from here."""
        return tid in self._acts.tids or tid in self._touches.tids

    def arrived(self) -> None:
        """Do what the request of ours that just arrived is about; raises what it refuses with."""
        if self._act is not None:
            self._act.do()

    async def make(self, place: Sequence[str], act: Act) -> None:
        """Do *act*, which makes the directory at *place*, by a mkdir that watchers see; raises what *act* raises."""
        await self._do(act, os.mkdir, self._path(place))

    async def remove(self, place: Sequence[str], act: Act) -> None:
        """Do *act*, which removes the directory at *place*, by an rmdir."""
        await self._do(act, os.rmdir, self._path(place), gone=place)

    async def move(self, place: Sequence[str], name: str, act: Act) -> None:
        """Do *act*, which gives the directory at *place* another name, by a rename."""
        await self._do(act, os.rename, self._path(place), self._path([*place[:-1], name]), gone=place)

    async def _do(
        self, act: Act, function: Callable[..., None], *paths: str, gone: Sequence[str] | None = None
    ) -> None:
        """Do *act* by a system call, or without one; the name of what is *gone* does not outlive it in the kernel."""
        once = _Once(act)
        if self._door is not None and not self._acts.is_hung:
            async with self._turn:
                self._act = once
                try:
                    await self._acts.call(function, *paths, limit_s=_ACT_S)
                except (OSError, TimedOut):
                    pass  # the kernel would not, or not in time: what is wanted is done all the same
                finally:
                    self._act = None
        if not once.is_done:
            once.do()
            if gone is not None and self._door is not None:
                self._door.drop_name(gone)
        if once.refusal is not None:
            raise once.refusal

    def _path(self, place: Sequence[str]) -> str:
        return str(self._mountpoint.joinpath(*place))

    def mark(self, inode: int) -> None:
        """Touch *inode* soon: it has changed."""
        if inode not in self._dirty:
            self._dirty[inode] = None
            self._wake.unpark_all()

    async def run_touches(self, door: Door) -> None:
        """Touch what was marked, within the budget, until cancelled; only meanwhile is the mount used.

        A busy file has to wait: the write that is under way may itself wait for this thread.
        """
        self._door = door
        touched: dict[int, float] = {}
        try:
            while True:
                while not self._dirty:
                    await self._wake.park()
                inode = await self._next_due(touched)
                touched[inode] = trio.current_time()
                if door.is_busy(inode):
                    self._dirty[inode] = None
                elif (names := door.names_of(inode)) is not None:
                    await self._touch(self._path(names))
                await trio.sleep(_REST_S)
        finally:
            self._door = None

    async def _next_due(self, touched: dict[int, float]) -> int:
        """Wait for an inode that may be touched: in turns the one that waits longest and the one that changed last.

        So a change is heard of soon although thousands of others wait, and none waits for ever.
        """
        rested_since = trio.current_time() - _FILE_REST_S
        while (oldest := next(iter(touched), None)) is not None and touched[oldest] < rested_since:
            del touched[oldest]
        self._takes_oldest = not self._takes_oldest
        order = self._dirty if self._takes_oldest else reversed(self._dirty)
        inode = next((inode for inode in order if inode not in touched), None)
        if inode is None:  # all that waits rests
            inode = min(self._dirty, key=touched.__getitem__)
            await trio.sleep_until(touched[inode] + _FILE_REST_S)
        del self._dirty[inode]
        touched.pop(inode, None)  # so that the table stays in the order of its times
        return inode

    async def _touch(self, path: str) -> None:
        """Touch one file; one that is gone, or a mount that does not answer, is left alone."""
        try:
            await self._touches.call(touch, path, limit_s=_TOUCH_S)
        except (OSError, TimedOut):
            return
