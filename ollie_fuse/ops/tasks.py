"""Threads of other processes, as proc(5) shows them: which read our files, and which are kept from their signals.

Every one may vanish at any moment, and some show nothing: what cannot be read is empty, never an error.
"""

import os
import re
import resource
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from ollie_fuse.mountinfo import mount_at, parse_mountinfo

_FAMILY_PROCESSES = 64
_SPARE_DESCRIPTORS = 256
_BLOCKED_IN = b"request_wait_answer"

_FDINFO = re.compile(rb"^mnt_id:\s*(\d+)\s+ino:\s*(\d+)", re.MULTILINE)


def read(path: str) -> bytes:
    """Return the first page at most, in three system calls."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.read(descriptor, 4096)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _read_all(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def _numbers_in(path: str) -> Iterator[int]:
    """Yield the names in a folder of /proc that are numbers."""
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.name.isdecimal():
                    yield int(entry.name)
    except OSError:
        return


def is_in_request(tid: int) -> bool:
    """Return whether the thread waits for an answer of some FUSE filesystem."""
    # Not /proc/TID: that adds up all threads of the process, whichever thread it is.
    return read(f"/proc/{tid}/task/{tid}/wchan") == _BLOCKED_IN


def inode_behind(tid: int, descriptor: int) -> int | None:
    """Return the inode that a thread's descriptor is open on, of whatever filesystem; None where it cannot be seen."""
    match = _FDINFO.search(read(f"/proc/{tid}/fdinfo/{descriptor}"))
    return int(match[2]) if match else None


def is_held(stat: bytes, tid: int) -> bool:
    """Return whether the thread of which *stat* tells was interrupted, and waits for an answer."""
    return stat.rpartition(b")")[2].startswith(b" D") and is_in_request(tid)


def device_of(mountpoint: Path) -> bytes | None:
    """Return the device of what is mounted there. A stat would ask ourselves, and wait for ever."""
    row = mount_at(Path(os.path.realpath(mountpoint.parent), mountpoint.name))
    return row.device if row else None


def family_of(opener: int, seen: set[int]) -> Iterator[int]:
    """Yield the threads of the opener's process and of its descendants: mostly a shell and what it started."""
    processes = [opener]
    for number, process in enumerate(processes):
        for tid in _numbers_in(f"/proc/{process}/task"):
            if number < _FAMILY_PROCESSES:
                processes += map(int, _read_all(f"/proc/{process}/task/{tid}/children").split())
            if tid not in seen:
                seen.add(tid)
                yield tid


def all_tasks(seen: set[int]) -> Iterator[int]:
    """Yield every thread of this pid namespace but those *seen*, which grow by it."""
    for process in _numbers_in("/proc"):
        for tid in _numbers_in(f"/proc/{process}/task"):
            if tid not in seen:
                seen.add(tid)
                yield tid


class Readings:
    """Which of our inodes a blocked thread may be reading."""

    def __init__(self, device: bytes | None) -> None:
        self._device = device
        self._is_ours: dict[int, bool] = {}

    def of(self, tid: int, wanted: Collection[int]) -> set[int]:
        """Return one of the *wanted* where the kernel tells the call's arguments, else all that the thread has open."""
        if not is_in_request(tid):
            return set()
        task = f"/proc/{tid}/task/{tid}"
        # Number, six arguments, stack and program counter; "-1 …" in a page fault; the counter is 0 for io_uring's
        # workers; nothing where Yama forbids it.
        words = read(f"{task}/syscall").split()
        if len(words) == 9 and words[8] != b"0x0":
            # The first argument of read, pread, readv, splice, the second of sendfile, on every architecture.
            descriptors: Iterable[int] = (int(word, 16) & 0xFFFFFFFF for word in words[1:3])
            return set(self._inodes(task, descriptors, wanted)[:1])
        return set(self._inodes(task, _numbers_in(f"{task}/fdinfo"), wanted))

    def _inodes(self, task: str, descriptors: Iterable[int], wanted: Collection[int]) -> list[int]:
        told = (_FDINFO.search(read(f"{task}/fdinfo/{descriptor}")) for descriptor in descriptors)
        return [
            inode for found in told if found and (inode := int(found[2])) in wanted and self._is_mount(task, found[1])
        ]

    def _is_mount(self, task: str, told: bytes) -> bool:
        """Return whether this mount is ours, be it in another namespace: another daemon's has the same inodes."""
        if self._device is None:
            return True
        mount = int(told)
        # An inherited file keeps the mount of the namespace it was opened in. What neither lists may be ours.
        for who in ("self", task.removeprefix("/proc/")):
            if mount not in self._is_ours:
                self._add_mounts(_read_all(f"/proc/{who}/mountinfo"))
        return self._is_ours.setdefault(mount, True)

    def _add_mounts(self, told: bytes) -> None:
        for row in parse_mountinfo(told):
            self._is_ours[row.number] = row.device == self._device

    def forget(self) -> None:
        """Forget the mounts: their numbers are used again."""
        self._is_ours.clear()


class Thread:
    """A thread seen in a read, its ``stat`` kept open: 4 µs a look instead of 22."""

    __slots__ = ("_path", "_started", "_stat", "looks", "tid")

    def __init__(self, tid: int) -> None:
        self.tid = tid
        self.looks = tid
        self._path = f"/proc/{tid}/task/{tid}/stat"
        self._stat = _open_sparingly(self._path)
        self._started = self._start(read(self._path)) if self._stat is None else b""

    @staticmethod
    def _start(said: bytes) -> bytes:
        return b" ".join(said.rpartition(b")")[2].split()[19:20])

    def look(self) -> bytes:
        """Return its ``stat``; nothing once it is gone, whoever has its number now."""
        self.looks += 1
        if self._stat is None:
            said = read(self._path)
            return said if self._start(said) == self._started else b""
        try:
            return os.pread(self._stat, 64, 0)  # as far as the state
        except OSError:
            return b""

    def close(self) -> None:
        if self._stat is not None:
            os.close(self._stat)
            self._stat = None


def _open_sparingly(path: str) -> int | None:
    """Open *path* unless few descriptors are left; the soft limit is raised step by step, as far as it may be."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or descriptor < soft - _SPARE_DESCRIPTORS:
        return descriptor
    raised = 4 * soft if hard == resource.RLIM_INFINITY else min(4 * soft, hard)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
        if descriptor < raised - _SPARE_DESCRIPTORS:
            return descriptor
    os.close(descriptor)
    return None
