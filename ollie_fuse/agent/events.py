"""The stream of what happens to sessions and agents, as numbered JSON lines that readers can resume."""

import json
import time
from collections import deque
from dataclasses import dataclass

import trio

from ollie_fuse.stamp import Stamp

KEPT = 10_000
"""Records kept for readers that are behind; each is about 120 bytes."""


@dataclass(frozen=True, slots=True)
class Record:
    """One event: its number and its JSON line."""

    seq: int
    line: bytes


class Events:
    """The last KEPT events of the daemon, and who waits for the next."""

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
        self._records.append(Record(self.seq, line))
        self.kept_bytes += len(line)
        if len(self._records) > KEPT:
            self.kept_bytes -= len(self._records.popleft().line)
        self.stamp.touch()
        self._readers.unpark_all()

    def kept(self) -> bytes:
        """Return the lines of all records that are kept, ``kept_bytes`` long."""
        return b"".join(record.line for record in self._records)

    def after(self, seq: int) -> bytes:
        """Return the lines of all events after *seq*; a gap is told by a first line ``{"lost": N}``."""
        kept = [record for record in self._records if record.seq > seq]
        first = kept[0].seq if kept else self.seq + 1
        lost = first - seq - 1
        note = json.dumps({"lost": lost}).encode() + b"\n" if lost > 0 else b""
        return note + b"".join(record.line for record in kept)

    async def wait(self) -> None:
        """Wait for the next event."""
        await self._readers.park()
