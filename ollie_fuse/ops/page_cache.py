"""Keeps the kernel's page cache from showing less, or other, than a file holds.

``sendfile`` and ``splice`` (busybox and uutils ``cat``) read through the page cache. It asks for no more than the
size that the kernel goes by, and that may be old: nobody asks for attributes at an open, O_TRUNC sets it to 0 and a
write to where it ended. So where it may be wrong it is made larger than anything (``loosen``), after which the
cache reads until a read is short, as it should.

And it must not read what waits: a reader in a page fill cannot be interrupted, and whoever opens the file then
waits behind it. So for streams such reads are refused with EIO, upon which both programs fall back to ``read(2)``.
Which reads those are the system calls tell, of the thread that opened the file or of its family; and where they
cannot be seen, the size asked for: measured on Linux 6.18, offset 0 for the whole size that was told, then offset 0
for one page.
"""

import platform
from collections.abc import Callable
from typing import Literal

from ollie_fuse.errors import OllieError
from ollie_fuse.nodes import UNFINISHED_BYTES
from ollie_fuse.ops.tasks import family_of, inode_behind, read

_PAGE_BYTES = 4096
_FAR = 1 << 40
"""Beyond the end of every file: a byte stored there leaves all other pages alone."""

_READS = {"x86_64": {0, 17, 19, 295, 327}, "aarch64": {63, 65, 67, 69, 286}}
"""The numbers of read, pread64, readv, preadv and preadv2, whose first argument is the file (syscalls(2))."""
_COPIES = {"x86_64": {40: 1, 275: 0, 326: 0}, "aarch64": {71: 1, 76: 0, 285: 0}}
"""The numbers of sendfile, splice and copy_file_range, with the argument that is the file they read."""


class PageCacheRefused(OllieError):
    """The page cache asked for a stream; the client falls back to read(2)."""


def loosen(store: Callable[[int, int, bytes], None], inode: int) -> None:
    """Make the size that the kernel goes by larger than anything; *store* is pyfuse3's ``notify_store``."""
    store(inode, _FAR, b"\0")


class PageCacheRefusal:
    """Recognises, on one open stream, the reads by which the page cache would fill itself."""

    __slots__ = ("_inode", "_opener", "_was_refused")

    def __init__(self, opener: int, inode: int) -> None:
        self._opener = opener
        self._inode = inode
        self._was_refused = False

    def check(self, offset: int, size: int) -> None:
        """Raise PageCacheRefused for such a read."""
        if offset % _PAGE_BYTES or size % _PAGE_BYTES:
            return
        calls = {_call_on(self._inode, tid) for tid in (self._opener, *family_of(self._opener, set()))}
        is_fill = "copy" in calls or ("read" not in calls and self._looks_like_fill(offset, size))
        self._was_refused = is_fill and size == UNFINISHED_BYTES
        if is_fill:
            raise PageCacheRefused("a stream cannot be read through the page cache; use read(2)")

    def _looks_like_fill(self, offset: int, size: int) -> bool:
        """Judge by the request alone; a page at offset 0 is a fill only right after the whole size was."""
        return offset == 0 and (size == UNFINISHED_BYTES or (self._was_refused and size == _PAGE_BYTES))


def _call_on(inode: int, tid: int) -> Literal["read", "copy"] | None:
    """Tell whether a thread is in a system call that reads *inode*, and of which kind; by proc(5) ``syscall``."""
    try:
        number, *arguments = (int(word, 0) for word in read(f"/proc/{tid}/syscall").split()[:3])
    except ValueError:  # gone, not ours to see, "running"
        return None
    machine = platform.machine()
    if number in _READS.get(machine, ()):
        return "read" if inode_behind(tid, arguments[0]) == inode else None
    argument = _COPIES.get(machine, {}).get(number)
    return "copy" if argument is not None and inode_behind(tid, arguments[argument]) == inode else None
