"""Files that grow: logs that end where they end now, and streams whose reader waits for the rest.

An unfinished stream cannot tell its size, and 0 would make some programs print nothing, so it tells
UNFINISHED_BYTES. One that ended with an error goes on telling it: a program that trusts a true size would stop
before the error.
"""

from collections.abc import Callable

from ollie_fuse.nodes.node import Attributes, Caller, File, Handle, Opening, Source, Wait
from ollie_fuse.stamp import Stamp

UNFINISHED_BYTES = 20480


class FixedSource:
    """A source that has everything from the start."""

    __slots__ = ("_data",)
    is_whole = True

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def peek(self, offset: int, size: int) -> bytes:
        """Return the bytes there."""
        return self._data[offset : offset + size]

    def read_nowait(self, offset: int, size: int) -> bytes | None:
        """Return the bytes there, empty at the end."""
        return self._data[offset : offset + size]

    async def wait(self) -> None:
        """Return at once: nothing will change."""


async def read_source(source: Source, offset: int, size: int, wait: Wait) -> bytes:
    """Read from *source*, waiting through *wait* until there is something or the end."""
    while (data := source.read_nowait(offset, size)) is None:
        await wait(source.wait)
    return data


class GrowingFile(File):
    """An append-only log: a read ends at what is there now, so that offsets and ``tail -f`` work."""

    __slots__ = ("_source",)

    def __init__(self, source: Source, stamp: Stamp) -> None:
        super().__init__(stamp)
        self._source = source

    async def attributes(self) -> Attributes:
        return Attributes(0o400, len(self._source), self.mtime_ns)

    async def open(self, opening: Opening, caller: Caller) -> Handle:
        return _GrowingHandle(self._source)


class _GrowingHandle(Handle):
    __slots__ = ("_source",)

    def __init__(self, source: Source) -> None:
        self._source = source

    async def read(self, offset: int, size: int, wait: Wait) -> bytes:
        return self._source.peek(offset, size)


class StreamFile(File):
    """A stream whose reader waits for more; *current* gives the source that a file opened now belongs to."""

    __slots__ = ("_current",)

    def __init__(self, current: Callable[[], Source], stamp: Stamp) -> None:
        super().__init__(stamp)
        self._current = current

    async def attributes(self) -> Attributes:
        source = self._current()
        size = len(source) if source.is_whole else UNFINISHED_BYTES
        return Attributes(0o400, size, self.mtime_ns)

    async def open(self, opening: Opening, caller: Caller) -> Handle:
        return _StreamHandle(self._current())


class _StreamHandle(Handle):
    __slots__ = ("_is_sized", "_position", "_source")

    def __init__(self, source: Source) -> None:
        self._source = source
        self._is_sized = source.is_whole
        self._position = 0

    @property
    def is_sized(self) -> bool:
        return self._is_sized

    async def awaited(self) -> tuple[Source, int] | None:
        return self._source, self._position

    async def read(self, offset: int, size: int, wait: Wait) -> bytes:
        data = await read_source(self._source, offset, size, wait)
        self._position = offset + len(data)
        return data
