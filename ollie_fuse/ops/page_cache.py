"""Keeps the kernel's page cache from cutting an unfinished stream short.

``sendfile`` and ``splice`` (busybox and uutils ``cat``) read through the page cache, which asks for no more than
the size that ``stat`` told; of a stream that is not finished nobody knows it. Such a stream tells UNFINISHED_BYTES,
and the reads by which the page cache would fill itself are refused with EIO: both programs then fall back to
``read(2)``, which goes past the cache and waits as it should. Measured on Linux 6.18: offset 0 for the whole size,
then offset 0 for one page.

A ``read(2)`` may ask for the same, so where the thread that opened the file is seen in a system call, that decides.
"""

import platform

from ollie_fuse.errors import OllieError
from ollie_fuse.nodes import UNFINISHED_BYTES

_PAGE_BYTES = 4096

_READS = {"x86_64": {0, 17, 19, 295, 327}, "aarch64": {63, 65, 67, 69, 286}}
"""The numbers of read, pread64, readv, preadv and preadv2 (syscalls(2))."""
_COPIES = {"x86_64": {40, 275, 326}, "aarch64": {71, 76, 285}}
"""The numbers of sendfile, splice and copy_file_range."""


class PageCacheRefused(OllieError):
    """The page cache asked for an unfinished stream; the client falls back to read(2)."""


class PageCacheRefusal:
    """Recognises, on one open file, the reads by which the page cache would fill itself."""

    __slots__ = ("_is_direct", "_opener", "_was_refused")

    def __init__(self, opener: int) -> None:
        self._opener = opener
        self._was_refused = False
        self._is_direct = False

    def check(self, offset: int, size: int, *, may_guess: bool) -> None:
        """Raise PageCacheRefused for such a read; *may_guess* from the request alone where nothing else tells."""
        if self._is_direct or offset % _PAGE_BYTES or size % _PAGE_BYTES:
            return
        number = _syscall_of(self._opener)
        self._is_direct = number in _READS.get(platform.machine(), ())
        is_copy = number in _COPIES.get(platform.machine(), ())
        is_fill = is_copy or (may_guess and not self._is_direct and self._looks_like_fill(offset, size))
        self._was_refused = is_fill and size == UNFINISHED_BYTES
        if is_fill:
            raise PageCacheRefused("an unfinished stream cannot be read through the page cache; use read(2)")

    def _looks_like_fill(self, offset: int, size: int) -> bool:
        """Judge by the request alone; a page at offset 0 is a fill only right after the whole size was."""
        return offset == 0 and (size == UNFINISHED_BYTES or (self._was_refused and size == _PAGE_BYTES))


def _syscall_of(tid: int) -> int | None:
    """Return the number of the system call a thread waits in, proc(5) ``syscall``; None where it cannot be seen."""
    try:
        with open(f"/proc/{tid}/syscall", encoding="ascii") as file:
            return int(file.read().split()[0])
    except (OSError, ValueError, IndexError):  # gone, not ours, "running", or from outside our pid namespace
        return None
