"""Bytes that only grow, that readers can wait on, and that end well or with an error."""

import trio

from ollie_fuse.errors import OllieError
from ollie_fuse.stamp import Stamp


class Growing:
    """An append-only text. Whoever appends owns it; readers come and go. *stamp* is touched at each change.

    An unfinished one has neither end nor error; ``end`` gives it one of both, once.
    """

    __slots__ = ("_data", "_error", "_is_ended", "_readers", "_stamp")

    def __init__(self, stamp: Stamp) -> None:
        self._data = bytearray()
        self._error: OllieError | None = None
        self._is_ended = False
        self._readers = trio.lowlevel.ParkingLot()
        self._stamp = stamp

    def __len__(self) -> int:
        return len(self._data)

    @property
    def is_ended(self) -> bool:
        """Whether nothing more will come."""
        return self._is_ended

    @property
    def is_whole(self) -> bool:
        """Whether it ended without an error."""
        return self._is_ended and self._error is None

    @property
    def is_line_open(self) -> bool:
        """Whether the last line still lacks its newline."""
        return not self._data.endswith(b"\n") and len(self._data) > 0

    def append(self, text: str) -> None:
        """Add *text* and wake who waits."""
        try:
            self._data += text.encode(errors="surrogateescape")  # paths, as the disk has them
        except UnicodeEncodeError:  # a half of a surrogate pair, which is no text at all
            self._data += text.encode(errors="replace")
        self._notify()

    def end(self, error: OllieError | None = None) -> None:
        """End the text, with *error* for readers who come to its end; later calls change nothing."""
        if self._is_ended:
            return
        if self.is_line_open:
            self._data += b"\n"
        self._is_ended = True
        self._error = error
        self._notify()

    def _notify(self) -> None:
        self._stamp.touch()
        self._readers.unpark_all()

    def peek(self, offset: int, size: int) -> bytes:
        """Return what is there from *offset*, up to *size* bytes."""
        return bytes(self._data[offset : offset + size])

    def read_nowait(self, offset: int, size: int) -> bytes | None:
        """Return what is there from *offset*; None when more may come. At the end: empty, or the error is raised."""
        if offset < len(self._data):
            return self.peek(offset, size)
        if not self._is_ended:
            return None
        if self._error is not None:
            raise type(self._error)(str(self._error))
        return b""

    async def wait(self) -> None:
        """Wait for the next change; there is no checkpoint between a ``read_nowait`` and this, so none is missed."""
        await self._readers.park()
