"""Server-sent events: bytes, cut anywhere, become events. No I/O.

Decoded by whole lines, so that a character whose bytes come in two pieces stays whole.
"""

import codecs
from collections.abc import Iterator
from dataclasses import dataclass

from ollie_fuse.errors import RemoteFailed

LINE_LIMIT_BYTES = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event; ``name`` is empty when the server gave none."""

    name: str = ""
    data: str


class EventDecoder:
    """Feed it bytes, take events; what is half there waits inside.

    An event that the stream's end cuts off is dropped, as the standard says.
    """

    def __init__(self) -> None:
        self._rest = bytearray()
        self._ended_in_cr = False  # then an LF at the head of the next piece belongs to the same line end
        self._is_first = True
        self._name = ""
        self._data: list[str] = []

    def feed(self, piece: bytes) -> Iterator[Event]:
        """Yield the events that *piece* completes; the caller takes them all before it feeds again.

        Raises RemoteFailed on a line over LINE_LIMIT_BYTES.
        """
        for line in self._lines(piece):
            if (event := self._take_line(line)) is not None:
                yield event

    def _lines(self, piece: bytes) -> Iterator[bytes]:
        if not piece:
            return
        ends_in_cr = piece.endswith(b"\r")
        if self._ended_in_cr:
            piece = piece.removeprefix(b"\n")
        self._ended_in_cr = ends_in_cr
        for line in piece.splitlines(keepends=True):
            self._rest += line
            if len(self._rest) > LINE_LIMIT_BYTES:
                raise RemoteFailed(f"the provider sent a line of more than {LINE_LIMIT_BYTES >> 20} MiB")
            if line.endswith((b"\n", b"\r")):
                whole = bytes(self._rest).rstrip(b"\r\n")
                self._rest.clear()
                yield whole

    def _take_line(self, line: bytes) -> Event | None:
        if self._is_first:
            self._is_first = False
            line = line.removeprefix(codecs.BOM_UTF8)
        if not line:
            return self._dispatch()
        field, _, value = line.decode(errors="replace").partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._name = value
        return None  # a comment has an empty field; id and retry serve reconnecting, which no model call does

    def _dispatch(self) -> Event | None:
        name, data = self._name, self._data
        self._name, self._data = "", []
        return Event(name=name, data="\n".join(data)) if data else None
