"""``python -m ollie_fuse.ops.trial``: mount an empty tree in a new folder and unmount it, to see whether that works."""

import sys
import tempfile
from pathlib import Path

import trio

from ollie_fuse.nodes import FixedDirectory
from ollie_fuse.ops.mount import MountFailed, open_mount
from ollie_fuse.ops.own_mount import OwnMount
from ollie_fuse.stamp import Stamp


async def _mount(place: Path) -> None:
    async with open_mount(FixedDirectory(dict, Stamp()), place, OwnMount(place)):
        pass


def main() -> int:
    """Try; what went wrong is on standard error, libfuse's own words included."""
    with tempfile.TemporaryDirectory(prefix="ollie-trial-") as place:
        try:
            trio.run(_mount, Path(place))
        except MountFailed:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
