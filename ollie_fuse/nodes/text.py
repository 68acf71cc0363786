"""Files that hold text: rendered from values, or a small value that can be set."""

import time
from collections.abc import Awaitable, Callable

from ollie_fuse.errors import Invalid, OllieError, TooLarge
from ollie_fuse.nodes.node import Attributes, Caller, File, Handle, Opening, Wait
from ollie_fuse.stamp import Stamp

VALUE_LIMIT_BYTES = 1 << 20
COMPLETE_BELOW_BYTES = 4096
"""A write shorter than this is a whole command or value; a longer one may be a piece of what ``cat`` copies."""


def encode_text(text: str) -> bytes:
    """Encode what a file shows; a path that is not UTF-8 becomes the bytes that it has on the disk."""
    return text.encode(errors="surrogateescape")


class TextFile(File):
    """Text rendered from other values, read-only; one rendering an open file."""

    __slots__ = ("_last", "_mode", "_render")

    def __init__(self, render: Callable[[], str], stamp: Stamp | None, *, is_executable: bool = False) -> None:
        super().__init__(stamp)
        self._render = render
        self._mode = 0o500 if is_executable else 0o400
        self._last = ("", 0)

    async def attributes(self) -> Attributes:
        text = self._render()
        return Attributes(
            self._mode, len(encode_text(text)), self.mtime_ns if self.is_watchable else self._seen_ns(text)
        )

    def _seen_ns(self, text: str) -> int:
        """Return when what nobody tells of was first seen to be *text*."""
        if text != self._last[0]:
            self._last = (text, time.time_ns())
        return self._last[1]

    async def open(self, opening: Opening, caller: Caller) -> Handle:
        return _SnapshotHandle(self._render)


class _SnapshotHandle(Handle):
    __slots__ = ("_render", "_snapshot")

    def __init__(self, render: Callable[[], str]) -> None:
        self._render = render
        self._snapshot: bytes | None = None

    async def read(self, offset: int, size: int, wait: Wait) -> bytes:
        if self._snapshot is None:
            self._snapshot = encode_text(self._render())
        return self._snapshot[offset : offset + size]


class ValueFile(File):
    """A value that a user reads and writes as text.

    *get* gives it without a final newline; *put* takes it likewise, refuses by raising, and is called inside the write
    that completes it. After a refusal the same open file gives the sentence that explains it.
    """

    __slots__ = ("_get", "_put")

    def __init__(
        self,
        get: Callable[[], str],
        put: Callable[[str], Awaitable[None]],
        stamp: Stamp,
    ) -> None:
        super().__init__(stamp)
        self._get = get
        self._put = put

    def content(self) -> bytes:
        """Render the value as the file shows it: an empty one as nothing, any other with a final newline."""
        value = self._get()
        return encode_text(f"{value}\n") if value else b""

    async def put_content(self, content: bytes) -> None:
        """Set the value from what the file should show."""
        try:
            text = content.decode()
        except UnicodeDecodeError as exc:
            raise Invalid(f"the text is not UTF-8 at byte {exc.start}") from exc
        await self._put(text.removesuffix("\n"))

    async def attributes(self) -> Attributes:
        return Attributes(0o600, len(self.content()), self.mtime_ns)

    async def open(self, opening: Opening, caller: Caller) -> Handle:
        return _ValueHandle(self, opening)

    async def set_size(self, size: int) -> None:
        await self.put_content(_resized(self.content(), size))


class _ValueHandle(Handle):
    """An open value: a buffer that starts as the value (or empty, opened with O_TRUNC) and is put at each write.

    A longer write may be a piece of something larger, so it is put by a later, shorter one or at the flush.
    """

    __slots__ = ("_buffer", "_file", "_is_append", "_is_dirty", "_is_truncated", "_refusal", "_seen")

    def __init__(self, file: ValueFile, opening: Opening) -> None:
        self._file = file
        self._is_truncated = opening.truncate
        self._is_append = opening.append
        self._buffer: bytes | None = None
        self._seen: bytes | None = None
        """What the file showed when this open file last read or put it."""
        self._is_dirty = False
        self._refusal: bytes | None = None

    def _content(self, *, for_write: bool) -> bytes:
        """Return what this open file holds; appenders to one file see each other's lines."""
        if for_write and self._is_truncated:
            self._is_truncated = False
            self._buffer = b""
        elif self._buffer is None or (for_write and self._is_append and self._is_outdated()):
            self._buffer = self._seen = self._file.content()
        return self._buffer

    def _is_outdated(self) -> bool:
        """Whether somebody else has put another value since."""
        return not self._is_dirty and self._file.content() != self._seen

    async def _put(self, content: bytes) -> None:
        try:
            await self._file.put_content(content)
        except OllieError as exc:
            self._refusal = encode_text(f"{exc}\n")
            raise
        self._refusal = None
        if self._is_append:
            self._seen = self._file.content()

    async def read(self, offset: int, size: int, wait: Wait) -> bytes:
        if self._refusal is not None:
            return self._refusal[offset : offset + size]
        return self._content(for_write=False)[offset : offset + size]

    async def write(self, offset: int, data: bytes) -> None:
        content = self._content(for_write=True)
        start = len(content) if self._is_append else offset
        if start + len(data) > VALUE_LIMIT_BYTES:
            raise TooLarge(f"a value has at most {VALUE_LIMIT_BYTES} bytes")
        changed = content[:start].ljust(start, b"\0") + data + content[start + len(data) :]
        if len(data) < COMPLETE_BELOW_BYTES:
            await self._put(changed)
        self._buffer = changed
        self._is_dirty = len(data) >= COMPLETE_BELOW_BYTES

    async def flush(self) -> None:
        if self._is_dirty:
            content = self._content(for_write=True)
            self._is_dirty = False
            await self._put(content)

    async def set_size(self, size: int) -> None:
        changed = _resized(self._content(for_write=True), size)
        await self._put(changed)
        self._buffer = changed


def _resized(content: bytes, size: int) -> bytes:
    if size > VALUE_LIMIT_BYTES:
        raise TooLarge(f"a value has at most {VALUE_LIMIT_BYTES} bytes")
    return content[:size].ljust(size, b"\0")
