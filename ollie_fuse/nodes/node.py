"""The two kinds of node, an open file, and who asks.

A door (FUSE, 9P) walks directories, tells attributes and opens files; it never learns what a node stands for.
What a node does on its own account it does synchronously, between checkpoints; its methods are coroutines because
some nodes (a mirror of a host directory) must ask a disk in a thread.
"""

import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar, Protocol

from ollie_fuse.errors import Denied, NotFound, NotPermitted
from ollie_fuse.stamp import Stamp

Wait = Callable[[Callable[[], Awaitable[None]]], Awaitable[None]]
"""How a door lets a reader wait: awaits the coroutine function it is given, counts the reader as blocked, and raises
when the reader is interrupted or the door closes. A wake-up may be spurious: ask again after it."""

_inodes = itertools.count(2)  # 1 is the root's in FUSE


@dataclass(frozen=True, slots=True)
class Attributes:
    """What ``stat`` tells of a node beside its kind."""

    mode: int
    """Permission bits alone."""
    size: int
    mtime_ns: int


class Caller(Protocol):
    """Who asks, as far as a door can know."""

    def cwd(self) -> str | None:
        """Return the caller's working directory, None where it cannot be read."""

    def has_listed(self, directory: "Directory") -> bool:
        """Whether the caller's process listed *directory* in the last ten seconds."""


@dataclass(frozen=True, slots=True)
class Opening:
    """How a file is opened."""

    read: bool
    write: bool
    truncate: bool = False
    append: bool = False


class Source(Protocol):
    """Bytes that arrive over time; whoever produces them owns it."""

    @property
    def is_whole(self) -> bool:
        """Whether it ended well: its size is then known, and it has no error to give."""

    def __len__(self) -> int: ...

    def peek(self, offset: int, size: int) -> bytes:
        """Return what is there from *offset*, up to *size* bytes; empty when there is nothing (yet)."""

    def read_nowait(self, offset: int, size: int) -> bytes | None:
        """Return up to *size* bytes from *offset*; None when more may come, empty at the end.

        Raises the error that the source ended with once everything before it was read.
        """

    async def wait(self) -> None:
        """Wait until something may have changed."""


class Node(ABC):
    """A file or a directory; ``inode`` identifies it for as long as the object lives."""

    __slots__ = ("_stamp", "inode")

    def __init__(self, stamp: Stamp | None = None) -> None:
        self.inode = next(_inodes)
        self._stamp = stamp

    def renew_inode(self) -> None:
        """Become another inode to whoever looks from now on."""
        self.inode = next(_inodes)

    @property
    def is_watchable(self) -> bool:
        """Whether the node tells of every change of its attributes, so that a door may remember them."""
        return self._stamp is not None

    @property
    def mtime_ns(self) -> int:
        """When what the node shows last changed; now, where it shows how it goes now."""
        return time.time_ns() if self._stamp is None else self._stamp.ns

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call *watcher*, synchronously, whenever attributes or content may have changed; for watchable nodes only."""
        assert self._stamp is not None
        self._stamp.watch(watcher)

    def unwatch(self, watcher: Callable[[], None]) -> None:
        """Undo one ``watch``."""
        assert self._stamp is not None
        self._stamp.unwatch(watcher)

    @abstractmethod
    async def attributes(self) -> Attributes:
        """Tell size, mode and times; no side effect, and no wait but for a disk."""

    async def set_size(self, size: int) -> None:
        """Truncate or extend to *size* bytes, for files that hold text; elsewhere without effect."""

    async def set_mode(self, mode: int) -> None:
        """Change permission bits, where they are not the tree's own."""
        raise NotPermitted("the modes of this tree are fixed")

    async def set_times(self, atime_ns: int | None, mtime_ns: int | None) -> None:
        """Take times that a client wants to set; None leaves one alone. Without effect where times are ours."""


class Handle(ABC):
    """One open file. Calls on one handle may overlap; ``release`` comes once, last."""

    __slots__ = ()

    @property
    def is_sized(self) -> bool:
        """Whether what this open file gives is as long as ``attributes`` tells, so that a cache may rely on it."""
        return True

    async def awaited(self) -> tuple[Source, int] | None:
        """Tell what the next read would wait for, and from where it would read; None where a read has to come first.

        That is where nothing waits, and where a prompt was written that only a read (or the release) takes.
        """
        return None

    @abstractmethod
    async def read(self, offset: int, size: int, wait: Wait) -> bytes:
        """Return up to *size* bytes from *offset*, empty at the end of the file.

        Waits, through *wait* alone, where the file waits. A cancelled read leaves the handle as it was.
        """

    async def write(self, offset: int, data: bytes) -> None:
        """Take *data* whole or raise; the door has checked that the file is open for writing."""
        raise Denied("this file cannot be written")

    async def flush(self) -> None:
        """One descriptor of this open file was closed; there may be others. What it raises, close(2) shows."""

    async def release(self) -> None:
        """The last descriptor was closed."""

    async def fsync(self) -> None:
        """Put what was written on disk, where it does not already stand there."""

    async def set_size(self, size: int) -> None:
        """``ftruncate`` on this open file."""


class File(Node):
    """A node that can be opened."""

    __slots__ = ()

    @property
    def may_wait_for_ever(self) -> bool:
        """Whether a reader may wait for something that never happens; who only looks around is then spared."""
        return False

    async def open_to_look(self) -> Handle:
        """Open for one who only looks around: gives what is there now, and ends. Only where ``may_wait_for_ever``."""
        raise NotImplementedError

    async def open(self, opening: Opening, caller: Caller) -> Handle:
        """Open; never waits for anything but a disk and has no other effect. *caller* is valid during the call only.

        The door calls ``check_mode`` first.
        """
        raise NotImplementedError

    async def check_mode(self, opening: Opening) -> None:
        """Refuse what the permission bits do not allow.

        The kernel checks them too, but not for root, who would otherwise read write-only files.
        """
        mode = (await self.attributes()).mode
        if opening.write and not mode & 0o200:
            raise Denied("this file is read-only")
        if opening.read and not mode & 0o400:
            raise Denied("this file is write-only")


class Directory(Node):
    """A node that holds others. Names have been checked by nobody."""

    __slots__ = ()
    is_listing_tracked: ClassVar[bool] = False
    """Whether a door should remember who listed it, for ``Caller.has_listed``."""
    are_names_cached: ClassVar[bool] = False
    """Whether its names change only through the door or with the door's knowledge."""

    def fixed_files(self) -> Iterable[tuple[str, File]]:
        """List the files that are there as long as the directory is."""
        return ()

    @abstractmethod
    async def lookup(self, name: str) -> Node:
        """Return the child of that name or raise NotFound."""

    @abstractmethod
    async def entries(self) -> Iterable[tuple[str, Node]]:
        """List the children; the iterable is a snapshot."""

    async def create(self, name: str, mode: int, opening: Opening) -> tuple[File, Handle]:
        """Make a regular file and open it."""
        raise NotPermitted(f"no file {name!r} can be created here")

    async def mkdir(self, name: str, mode: int, caller: Caller) -> "Directory":
        """Make a directory."""
        raise NotPermitted(f"no directory {name!r} can be created here")

    async def unlink(self, name: str, caller: Caller) -> None:
        """Remove a file."""
        raise NotPermitted(f"{name!r} cannot be removed")

    async def rmdir(self, name: str, caller: Caller) -> None:
        """Remove a directory."""
        raise NotPermitted(f"{name!r} cannot be removed")

    async def rename(self, old: str, target: "Directory", new: str, *, may_replace: bool) -> None:
        """Move the child *old* to *target* under the name *new*."""
        raise NotPermitted(f"{old!r} cannot be renamed")


def missing(name: str) -> NotFound:
    """Return the error for a name that a directory does not have."""
    return NotFound(f"there is no {name!r} here")
