"""What must be true before a mount (one daemon, an empty place, a kernel that lets us) and how to mend each."""

import fcntl
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ollie_fuse.child import ChildFailed, run_child
from ollie_fuse.errors import Busy, OllieError
from ollie_fuse.mountinfo import mount_at
from ollie_fuse.paths import Paths

FSTYPE = "fuse.ollie"
DEV_FUSE = Path("/dev/fuse")
_LOCK_S = 0.5
"""How long a start waits for the lock."""
_TRIAL_S = 20.0
_LOOK_S = 5.0
"""How long a mount may take to show that it is alive."""


class Unmountable(OllieError):
    """Something stands where the mount should go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A daemon that holds the lock."""

    pid: int
    """0 in the first moments of a start."""
    mountpoint: Path


@contextmanager
def held_lock(paths: Paths) -> Iterator[None]:
    """Hold the daemon's lock; raises Busy when another daemon has it."""
    paths.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(paths.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not _is_locked(descriptor):
            raise Busy("a daemon runs already; `ollie-fuse status` shows it")
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, b"%d\n%b" % (os.getpid(), os.fsencode(paths.mountpoint)), 0)
        yield
    finally:
        os.close(descriptor)


def _is_locked(descriptor: int) -> bool:
    """Take the lock; somebody who only looks holds it for microseconds, so try for a while."""
    limit = time.monotonic() + _LOCK_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > limit:
                return False
            time.sleep(_LOCK_S / 20)
        else:
            return True


def running_daemon(paths: Paths) -> Running | None:
    """Return the daemon that holds the lock, None when there is none."""
    try:
        descriptor = os.open(paths.lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        pid, _, mountpoint = os.pread(descriptor, 1 << 16, 0).partition(b"\n")
        return Running(pid=int(pid or 0), mountpoint=Path(os.fsdecode(mountpoint)))
    else:
        return None
    finally:
        os.close(descriptor)


def mounted_type(mountpoint: Path) -> str | None:
    """Return the type of the filesystem mounted exactly at *mountpoint*, a path without links; None for none."""
    row = mount_at(mountpoint)
    return row.kind if row else None


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


def check_mountpoint(paths: Paths) -> Check:
    """Look at what stands where the mount should go."""
    kind = mounted_type(paths.mountpoint)
    trouble = remedy = ""
    if kind == FSTYPE and running_daemon(paths) is None:
        trouble, remedy = "a mount whose daemon is gone", f"fusermount3 -uz {paths.mountpoint} (`up` does it too)"
    elif kind is not None and kind != FSTYPE:
        trouble, remedy = f"a filesystem ({kind}) is mounted there", "unmount it, or set $OLLIE to another directory"
    elif kind is None:
        try:
            _make_empty(paths.mountpoint)
        except Unmountable as exc:
            trouble, remedy = str(exc), "set $OLLIE to a directory that can be made or is empty"
    return Check(name=f"mount point {paths.mountpoint}", trouble=trouble, remedy=remedy)


def check_state(paths: Paths) -> Check:
    """Look at whether the daemon can keep its lock and state."""
    try:
        paths.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(paths.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as exc:
        trouble = exc.strerror or str(exc)
        return Check(name=f"state in {paths.state}", trouble=trouble, remedy="make it a directory that you can write")
    return Check(name=f"state in {paths.state}")


async def check_host() -> list[Check]:
    """Look at everything that a mount needs of the machine, and at last make one, in a child."""
    has_helper = shutil.which("fusermount3") is not None
    helper = Check(name="fusermount3", trouble="" if has_helper else "not found", remedy="install the package fuse3")
    checks = [_check_dev_fuse(), helper]
    if not any(check.trouble for check in checks):
        tried = await run_child([sys.executable, "-m", "ollie_fuse.ops.trial"], timeout_s=_TRIAL_S)
        trouble = tried.text.strip() if tried.status else ""
        remedy = "see the message; fusermount3 has to be setuid root, and in a container --cap-add SYS_ADMIN is needed"
        checks.append(Check(name="a trial mount", trouble=trouble, remedy=remedy))
    return checks


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
