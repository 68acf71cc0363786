"""Who makes a request, as far as the kernel tells: a thread id, and what proc(5) says of it."""

import os
import time

from ollie_fuse.nodes import Directory

_LISTED_S = 10.0
"""How long a process that listed a directory may unlink what it saw, and is taken to look around."""


class Listings:
    """Which process listed which directory of late, and which of its files it has looked into since."""

    def __init__(self) -> None:
        self._until: dict[tuple[int, int], float] = {}
        """The end of each memory, in the order of their ends."""

    def add(self, pid: int, directory: Directory) -> None:
        """Remember that a thread's process lists *directory* now."""
        self._remember(process_of(pid), directory.inode)

    def has(self, pid: int, directory: Directory) -> bool:
        """Whether a thread's process listed *directory* of late."""
        return self._is_remembered(process_of(pid), directory.inode)

    def is_first_look(self, pid: int, directory: Directory, inode: int) -> bool:
        """Whether a process that listed *directory* of late has read nothing of the file *inode* in it since."""
        process = process_of(pid)
        return self._is_remembered(process, directory.inode) and not self._is_remembered(process, inode)

    def note_look(self, pid: int, inode: int) -> None:
        """Remember that a thread's process has read the file *inode*."""
        self._remember(process_of(pid), inode)

    def _remember(self, process: int, inode: int) -> None:
        now = time.monotonic()
        self._until.pop((process, inode), None)
        self._until[process, inode] = now + _LISTED_S
        while (oldest := next(iter(self._until))) and self._until[oldest] <= now:
            del self._until[oldest]

    def _is_remembered(self, process: int, inode: int) -> bool:
        return self._until.get((process, inode), 0.0) > time.monotonic()


def process_of(tid: int) -> int:
    """Return the process of a thread, proc(5) ``status``; the thread itself where that cannot be read."""
    try:
        with open(f"/proc/{tid}/status", "rb") as status:
            text = status.read()
    except OSError:
        return tid
    return int(text.partition(b"\nTgid:")[2].split(maxsplit=1)[0])


class ProcessCaller:
    """Who made a FUSE request. The pid is the calling thread's, and 0 from outside our pid namespace."""

    __slots__ = ("_listings", "_pid")

    def __init__(self, pid: int, listings: Listings) -> None:
        self._pid = pid
        self._listings = listings

    def cwd(self) -> str | None:
        try:
            return os.readlink(f"/proc/{self._pid}/cwd")
        except OSError:
            return None

    def has_listed(self, directory: Directory) -> bool:
        return self._listings.has(self._pid, directory)
