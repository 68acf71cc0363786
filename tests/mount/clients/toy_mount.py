"""Mounts a toy tree: ``calm`` has a text, a write or a read of ``hang`` never ends, ``slow`` takes a write in 80 ms.

``toy_mount.py MOUNTPOINT`` prints ``ready`` and serves until SIGTERM.
"""

import logging
import signal
import sys
from pathlib import Path

import trio

from ollie_fuse.nodes import Attributes, Caller, File, FixedDirectory, Handle, Opening, TextFile, Wait
from ollie_fuse.ops import OwnMount, open_mount
from ollie_fuse.stamp import Stamp


class LateFile(File):
    """Everything that is done to an open one takes *late_s*."""

    def __init__(self, late_s: float) -> None:
        super().__init__(Stamp())
        self.late_s = late_s

    async def attributes(self) -> Attributes:
        return Attributes(0o600, 4, self.mtime_ns)

    async def open(self, opening: Opening, caller: Caller) -> Handle:
        return LateHandle(self.late_s)


class LateHandle(Handle):
    """An open late file."""

    def __init__(self, late_s: float) -> None:
        self.late_s = late_s

    async def read(self, offset: int, size: int, wait: Wait) -> bytes:
        await trio.sleep(self.late_s)
        return b"late"[offset : offset + size]

    async def write(self, offset: int, data: bytes) -> None:
        await trio.sleep(self.late_s)


async def main(mountpoint: Path) -> None:
    """Serve."""
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.INFO)
    calm, slow, hang = TextFile(lambda: "calm\n", Stamp()), LateFile(0.08), LateFile(1e6)
    tree = FixedDirectory(lambda: {"calm": calm, "hang": hang, "slow": slow}, Stamp())
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async with open_mount(tree, mountpoint, OwnMount(mountpoint)):
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            await anext(aiter(signals))


trio.run(main, Path(sys.argv[1]))
