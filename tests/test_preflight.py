"""What must be true before a mount: one daemon at a time, and a place that is free, whatever it is called."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from ollie_fuse.errors import Busy, OllieError
from ollie_fuse.paths import Paths
from ollie_fuse.preflight import (
    Running,
    Unmountable,
    held_lock,
    mounted_type,
    prepare_mountpoint,
    running_daemon,
)

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(
        home=tmp_path,
        mountpoint=tmp_path / "ollie",
        config=tmp_path / "config",
        data=tmp_path / "data",
        state=tmp_path / "state",
    )


@contextmanager
def mounted_tmpfs(place: Path) -> Iterator[None]:
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "test", place], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"mount: {mounted.stderr.decode()}")
    try:
        yield
    finally:
        subprocess.run(["umount", place], check=True)


@contextmanager
def holder(paths: Paths) -> Iterator["subprocess.Popen[bytes]"]:
    """Another process that holds the lock."""
    code = (
        "import sys; from pathlib import Path; from ollie_fuse.paths import Paths;"
        "from ollie_fuse.preflight import held_lock\n"
        "home, mount, state = map(Path, sys.argv[1:])\n"
        "with held_lock(Paths(home=home, mountpoint=mount, config=home, data=home, state=state)):\n"
        "    print('held', flush=True); sys.stdin.read()\n"
    )
    argv = [sys.executable, "-c", code, str(paths.home), str(paths.mountpoint), str(paths.state)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"held\n"
            yield process
        finally:
            process.kill()


# The lock


def test_second_holder_is_refused(paths: Paths) -> None:
    """While one daemon holds the lock another is refused, and anybody can tell which one it is and where."""
    assert running_daemon(paths) is None
    with holder(paths) as process:
        assert running_daemon(paths) == Running(pid=process.pid, mountpoint=paths.mountpoint)
        with pytest.raises(Busy, match="runs already"), held_lock(paths):
            raise AssertionError("two hold one lock")
        assert running_daemon(paths) == Running(pid=process.pid, mountpoint=paths.mountpoint)


def test_killed_holders_lock_is_free(paths: Paths) -> None:
    """The lock of a daemon that was killed is free at once, and the next holder's name replaces its own."""
    with holder(paths) as process:
        process.kill()
        process.wait()
        assert running_daemon(paths) is None
        with held_lock(paths):
            assert running_daemon(paths) == Running(pid=os.getpid(), mountpoint=paths.mountpoint)
    assert running_daemon(paths) is None


def test_shorter_name_replaces_a_longer_one(paths: Paths) -> None:
    """What the lock says is its present holder's alone, whatever stood there before."""
    for mountpoint in (Path("/a/long/way/to/the/mount"), Path("/m")):
        with held_lock(replace(paths, mountpoint=mountpoint)):
            assert running_daemon(paths) == Running(pid=os.getpid(), mountpoint=Path(mountpoint))


def test_lock_is_private(paths: Paths) -> None:
    """The state directory and the lock are for their owner alone, and a child does not hold the lock on."""
    with held_lock(paths):
        assert paths.state.stat().st_mode & 0o777 == 0o700
        assert paths.lock.stat().st_mode & 0o777 == 0o600
        sleeper = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        assert running_daemon(paths) is None
    finally:
        sleeper.kill()
        sleeper.wait()


def test_lock_whose_holder_has_not_signed_yet(paths: Paths) -> None:
    """In the moment between a daemon's lock and its name in it who looks gets an answer or a sentence, no crash."""
    paths.state.mkdir()
    with paths.lock.open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            running = running_daemon(paths)
        except OllieError as exc:
            assert str(exc)  # noqa: PT017  # either is an answer
        else:
            assert running is None or isinstance(running, Running)


def test_looking_never_stops_a_start(paths: Paths) -> None:
    """A daemon gets its lock although others look all the time whether one runs."""
    code = (
        "import sys; from pathlib import Path; from ollie_fuse.paths import Paths;"
        "from ollie_fuse.preflight import running_daemon\n"
        "home, state = map(Path, sys.argv[1:])\n"
        "paths = Paths(home=home, mountpoint=home / 'ollie', config=home, data=home, state=state)\n"
        "print('looking', flush=True)\n"
        "while True:\n"
        "    try: running_daemon(paths)\n"
        "    except ValueError: pass\n"
    )
    with held_lock(paths):
        pass
    argv = [sys.executable, "-c", code, str(paths.home), str(paths.state)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as looker:
        try:
            assert looker.stdout is not None
            looker.stdout.readline()
            for _ in range(500):
                with held_lock(paths):
                    pass
        finally:
            looker.kill()


# The mount point


@needs_root
@pytest.mark.parametrize(
    "name", ["plain", "a space", "café", "two words é", "tab\there", "back\\slash", "a\\040b", "日本", "#x"]
)
def test_mounted_type_finds_any_name(tmp_path: Path, name: str) -> None:
    """What is mounted at a place is found whatever characters its path has, and only there."""
    place = tmp_path / name
    with mounted_tmpfs(place):
        assert mounted_type(place) == "tmpfs"
        assert mounted_type(tmp_path) is None
        assert mounted_type(place / "below") is None
    assert mounted_type(place) is None


@needs_root
def test_mounted_type_of_a_name_that_is_no_text(tmp_path: Path) -> None:
    """A mount point whose name is not UTF-8 is found too, and hides no other."""
    odd, plain = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")), tmp_path / "plain"
    with mounted_tmpfs(odd), mounted_tmpfs(plain):
        assert (mounted_type(odd), mounted_type(plain)) == ("tmpfs", "tmpfs")


@needs_root
async def test_mounted_place_is_refused(tmp_path: Path) -> None:
    """Where something else is mounted no daemon mounts, and the sentence names both."""
    place = tmp_path / "two words é"
    with mounted_tmpfs(place):
        with pytest.raises(Unmountable, match=r"\(tmpfs\) is mounted at .*two words é"):
            await prepare_mountpoint(place)
        assert mounted_type(place) == "tmpfs"


async def test_free_place_is_made(tmp_path: Path) -> None:
    """A place that is not there, or empty, is fit; one that holds something, or is something, is refused untouched."""
    for place in (tmp_path / "a" / "new one", tmp_path / "a"):
        if place != tmp_path / "a":
            await prepare_mountpoint(place)
            await prepare_mountpoint(place)
            assert list(place.iterdir()) == []
        else:
            with pytest.raises(Unmountable, match="is not empty"):
                await prepare_mountpoint(place)
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("file", "file/below", "loop"):
        with pytest.raises(Unmountable, match="cannot be a mount point"):
            await prepare_mountpoint(tmp_path / name)
    assert (tmp_path / "file").read_text(encoding="utf-8") == "mine"
