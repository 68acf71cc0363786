"""The stream of what happens to sessions and agents, as numbered JSON lines that readers can resume."""

import itertools
import json
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import trio

from ollie_fuse.stamp import Stamp

KEPT = 10_000
"""Records kept for readers that are behind; each is about 120 bytes."""


@dataclass(frozen=True, slots=True)
class Record:
    """One event: its number, what a filter may ask of it, and its JSON line."""

    seq: int
    tags: Mapping[str, str]
    line: bytes


FILTERS = ("type", "session", "agent")
"""What a reader may ask for."""


class Events:
    """The last KEPT events of the daemon, numbered without gaps, and who waits for the next."""

    def __init__(self) -> None:
        self._records: deque[Record] = deque()
        self._readers = trio.lowlevel.ParkingLot()
        self.seq = 0
        self.kept_bytes = 0
        self.stamp = Stamp()

    def add(self, kind: str, **fields: str | int | None) -> None:
        """Number an event and wake who waits; fields that are None are left out."""
        self.seq += 1
        told = {"seq": self.seq, "ts": round(time.time(), 6), "type": kind}
        told |= {name: value for name, value in fields.items() if value is not None}
        line = json.dumps(told, ensure_ascii=False).encode(errors="backslashreplace") + b"\n"
        self._records.append(Record(self.seq, {name: str(told[name]) for name in FILTERS if name in told}, line))
        self.kept_bytes += len(line)
        if len(self._records) > KEPT:
            self.kept_bytes -= len(self._records.popleft().line)
        self.stamp.touch()
        self._readers.unpark_all()

    def kept(self) -> bytes:
        """Return the lines of all records that are kept, ``kept_bytes`` long."""
        return b"".join(record.line for record in self._records)

    def after(self, seq: int, wanted: Mapping[str, str] | None = None) -> bytes:
        """Return the lines after *seq* that have all *wanted* tags; a gap is told by a first line ``{"lost": N}``."""
        new = list(itertools.takewhile(lambda record: record.seq > seq, reversed(self._records)))[::-1]
        lost = self.seq - seq - len(new)
        note = json.dumps({"lost": lost}).encode() + b"\n" if lost > 0 else b""
        asked = (wanted or {}).items()
        return note + b"".join(record.line for record in new if asked <= record.tags.items())

    async def wait(self) -> None:
        """Wait for the next event."""
        await self._readers.park()
