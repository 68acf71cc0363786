"""A mounted tree: from ``mount`` to ``unmount``, whatever its clients are doing."""

import functools
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pyfuse3
import trio

from ollie_fuse.errors import OllieError
from ollie_fuse.nodes import Directory
from ollie_fuse.ops.interrupts import request_timeout_s, run_interrupt_watch
from ollie_fuse.ops.operations import TreeOperations
from ollie_fuse.ops.own_mount import OwnMount
from ollie_fuse.ops.waits import Waits

FSNAME = "ollie"
_MAX_TASKS = 1 << 30
"""``main()`` counts blocked handlers against this: any number that could be reached would stop the tree."""
_DRAIN_S = 0.5
"""How long blocked readers have to take their last answer before the mount goes away under them."""


class MountFailed(OllieError):
    """The kernel or fusermount3 refused the mount."""


class Mount:
    """A mounted tree."""

    def __init__(self, waits: Waits) -> None:
        self._waits = waits
        self._ended = trio.Event()

    @property
    def blocked_readers(self) -> int:
        """How many reads wait for something to happen."""
        return len(self._waits)

    async def wait_unmounted(self) -> None:
        """Wait until somebody unmounts it from outside."""
        await self._ended.wait()

    async def run(self) -> None:
        """Serve until the filesystem is unmounted or this is cancelled."""
        try:
            await pyfuse3.main(1, _MAX_TASKS)
        finally:
            self._ended.set()


@asynccontextmanager
async def open_mount(root: Directory, mountpoint: Path, own_mount: OwnMount) -> AsyncIterator[Mount]:
    """Mount *root* and serve it; on leaving, blocked readers get their last answer and the mount goes away.

    Raises MountFailed. The process must touch no path below *mountpoint*.
    """
    operations = TreeOperations(root, own_mount)
    _init(operations, mountpoint)
    mount = Mount(operations.waits)
    with operations.without_stalls():
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(mount.run)
                watch = functools.partial(run_interrupt_watch, timeout_s=request_timeout_s())
                nursery.start_soon(watch, operations.waits, mountpoint)
                nursery.start_soon(operations.polls.run)
                nursery.start_soon(own_mount.run_touches, operations)
                try:
                    yield mount
                finally:
                    with trio.move_on_after(_DRAIN_S, shield=True):
                        await operations.waits.close()
                    nursery.cancel_scope.cancel()
        finally:
            operations.close()
            pyfuse3.close()
            with trio.move_on_after(_DRAIN_S, shield=True):
                await operations.release_all()


def _init(operations: TreeOperations, mountpoint: Path) -> None:
    """Mount, with ``auto_unmount`` where fusermount3 is there to do it: it cleans up after a daemon that was killed."""
    options = {"default_permissions", f"fsname={FSNAME}", f"subtype={FSNAME}"}
    attempts = [options]
    if shutil.which("fusermount3"):
        attempts = [options | {"auto_unmount"}, options]
    for attempt in attempts:
        try:
            pyfuse3.init(operations, str(mountpoint), attempt)
        except RuntimeError:
            continue
        return
    raise MountFailed(f"{mountpoint} cannot be mounted; `ollie-fuse doctor` says what is missing")
