"""A handler that hangs, or is slow, is nobody else's trouble, and is known."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mount.world import REPOSITORY

TOY = Path(__file__).parent / "clients" / "toy_mount.py"


class Toy:
    """A mounted toy tree in a process of its own."""

    def __init__(self, mountpoint: Path, process: "subprocess.Popen[str]") -> None:
        self.mountpoint = mountpoint
        self.process = process

    def run(self, *argv: str, timeout_s: float = 5) -> str:
        return subprocess.run(argv, cwd="/", capture_output=True, text=True, timeout=timeout_s, check=True).stdout

    def end(self) -> str:
        """End it; return what it logged."""
        self.process.terminate()
        assert self.process.stderr is not None
        logged = self.process.stderr.read()
        assert self.process.wait(5) == 0
        return logged


@pytest.fixture
def toy(tmp_path: Path) -> Iterator[Toy]:
    mountpoint = tmp_path / "toy"
    mountpoint.mkdir()
    process = subprocess.Popen(
        [sys.executable, str(TOY), str(mountpoint)],
        cwd=REPOSITORY,
        env={"PYTHONPATH": str(REPOSITORY), "PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield Toy(mountpoint, process)
    finally:
        process.kill()
        process.wait(5)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        subprocess.run(["fusermount3", "-uzq", str(mountpoint)], timeout=10, check=False)


def test_hung_handler_holds_up_only_its_own_file(toy: Toy) -> None:
    """While a read and a write of one file never end, every other file answers, and the mount can be ended in time."""
    path = toy.mountpoint
    hung = [
        subprocess.Popen(["cat", f"{path}/hang"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL),
        subprocess.Popen(["sh", "-c", f"echo x > {path}/hang"], stderr=subprocess.DEVNULL),
    ]
    began = time.monotonic()
    for _ in range(20):
        assert toy.run("cat", f"{path}/calm") == "calm\n"
        assert toy.run("ls", str(path)) == "calm\nhang\nslow\n"
        toy.run("stat", f"{path}/calm")
    assert time.monotonic() - began < 5
    assert all(process.poll() is None for process in hung)
    toy.end()
    for process in hung:
        assert process.wait(5) != 0


def test_slow_handler_is_warned_of(toy: Toy) -> None:
    """A write that takes more than 50 ms logs a warning that names it; a read, which may wait, does not."""
    toy.run("sh", "-c", f"echo x > {toy.mountpoint}/slow; cat {toy.mountpoint}/slow {toy.mountpoint}/calm")
    warnings = [line for line in toy.end().splitlines() if line.startswith("WARNING")]
    assert len(warnings) == 1, warnings
    assert warnings[0].startswith("WARNING write took ")
