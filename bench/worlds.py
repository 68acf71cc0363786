"""What is measured: our daemon and the bare filesystem, each in a process of its own."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.mount.world import REPOSITORY, World


@contextmanager
def open_world(backends_conf: str) -> Iterator[World]:
    """Run a daemon with a home of its own."""
    home = Path(tempfile.mkdtemp(prefix="ollie-bench-"))
    world = World(home, backends_conf)
    try:
        world.start()
        yield world
        world.stop()
    finally:
        if world.daemon is not None:
            world.daemon.kill()
            world.daemon.wait(10)
        subprocess.run(["fusermount3", "-uzq", str(world.mount)], timeout=10, check=False)
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def open_bare() -> Iterator[Path]:
    """Run the bare filesystem."""
    mountpoint = Path(tempfile.mkdtemp(prefix="ollie-bench-"))
    with subprocess.Popen(
        [sys.executable, "-m", "bench.bare_fs", str(mountpoint)], cwd=REPOSITORY, stdout=subprocess.PIPE
    ) as bare:
        assert bare.stdout is not None
        try:
            assert bare.stdout.readline() == b"ready\n"
            yield mountpoint
        finally:
            subprocess.run(["fusermount3", "-uzq", str(mountpoint)], timeout=10, check=False)
            bare.wait(10)
            mountpoint.rmdir()
