"""What must be true before a mount (one daemon, an empty place, a kernel that lets us) and how to mend each."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ollie_fuse.child import ChildFailed, run_child
from ollie_fuse.errors import Busy, OllieError
from ollie_fuse.paths import Paths

FSTYPE = "fuse.ollie"
DEV_FUSE = Path("/dev/fuse")
_LOOK_S = 5.0
"""How long a mount may take to show that it is alive."""


class Unmountable(OllieError):
    """Something stands where the mount should go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A daemon that holds the lock."""

    pid: int
    mountpoint: str


@contextmanager
def held_lock(paths: Paths) -> Iterator[None]:
    """Hold the daemon's lock; raises Busy when another daemon has it."""
    paths.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(paths.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy("a daemon runs already; `ollie-fuse status` shows it") from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n{paths.mountpoint}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def running_daemon(paths: Paths) -> Running | None:
    """Return the daemon that holds the lock, None when there is none."""
    try:
        descriptor = os.open(paths.lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        pid, mountpoint = os.pread(descriptor, 4096, 0).decode().splitlines()
        return Running(pid=int(pid), mountpoint=mountpoint)
    else:
        return None
    finally:
        os.close(descriptor)


def mounted_type(mountpoint: Path) -> str | None:
    """Return the type of the filesystem mounted exactly at *mountpoint*, None for none.

    Read from proc(5) ``mountinfo``, which never touches the mount: a dead one would hang or refuse.
    """
    found = None
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as table:
        for line in table:
            fields, _, rest = line.partition(" - ")
            place = fields.split()[4].encode(errors="surrogateescape").decode("unicode_escape")
            if place == str(mountpoint):
                found = rest.split()[0]  # a later line covers an earlier one
    return found


async def prepare_mountpoint(mountpoint: Path) -> None:
    """Make *mountpoint* an empty directory with nothing mounted; a mount that a killed daemon left is cleaned away.

    Raises Unmountable. Waits for a look at what is mounted there, made by a child that may hang in our place.
    """
    kind = mounted_type(mountpoint)
    if kind == FSTYPE and await _is_dead(mountpoint):
        await run_child(["fusermount3", "-uz", str(mountpoint)], timeout_s=_LOOK_S)
        kind = mounted_type(mountpoint)
    if kind is not None:
        raise Unmountable(f"a filesystem ({kind}) is mounted at {mountpoint} already")
    _make_empty(mountpoint)


def _make_empty(mountpoint: Path) -> None:
    try:
        mountpoint.mkdir(parents=True, exist_ok=True)
        is_empty = not any(mountpoint.iterdir())
    except OSError as exc:
        raise Unmountable(f"{mountpoint} cannot be a mount point: {exc.strerror}") from exc
    if not is_empty:
        raise Unmountable(f"{mountpoint} is not empty; move what is in it, or set $OLLIE to another directory")


async def _is_dead(mountpoint: Path) -> bool:
    """Whether the daemon behind the mount is gone: then every access fails at once with ENOTCONN."""
    try:
        looked = await run_child(["stat", "-f", str(mountpoint)], timeout_s=_LOOK_S, env={"LC_ALL": "C"})
    except ChildFailed:  # it hangs: whoever serves it still lives
        return False
    return looked.status != 0 and "not connected" in looked.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that ``doctor`` looked at."""

    name: str
    trouble: str = ""
    """Empty when it is as it should be."""
    remedy: str = ""


def check_host() -> Iterator[Check]:
    """Look at everything that a mount needs of the machine."""
    yield _check_dev_fuse()
    has_helper = shutil.which("fusermount3") is not None
    yield Check(
        name="fusermount3",
        trouble="" if has_helper else "not found",
        remedy="install the package fuse3",
    )


def _check_dev_fuse() -> Check:
    try:
        os.close(os.open(DEV_FUSE, os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        trouble, remedy = (
            "missing",
            "`modprobe fuse` as root; in a container, start it with --device /dev/fuse",
        )
    except PermissionError:
        trouble = "not permitted"
        remedy = "as root: chmod 666 /dev/fuse; in a container, --device /dev/fuse --cap-add SYS_ADMIN"
    except OSError as exc:
        trouble, remedy = exc.strerror or str(exc), "`modprobe fuse` as root"
    else:
        trouble = remedy = ""
    return Check(name="/dev/fuse", trouble=trouble, remedy=remedy)
