"""The mounts that a process sees, by proc(5) ``mountinfo``, which touches none of them: a dead one would hang."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_ESCAPE = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class MountRow:
    """One mount."""

    number: int
    device: bytes
    """``major:minor``."""
    place: bytes
    kind: str


def parse_mountinfo(text: bytes) -> Iterator[MountRow]:
    """Parse a mount table; of two at one place the later covers the earlier."""
    for line in text.splitlines():
        fields, _, rest = line.partition(b" - ")
        number, _, device, _, place = fields.split(b" ")[:5]
        plain = _ESCAPE.sub(lambda match: bytes([int(match[1], 8)]), place)
        yield MountRow(int(number), device, plain, rest.split(b" ")[0].decode())


def mount_at(place: Path) -> MountRow | None:
    """Return what is mounted exactly at *place*, a path without links; None for nothing."""
    wanted = os.fsencode(place)
    rows = [row for row in parse_mountinfo(Path("/proc/self/mountinfo").read_bytes()) if row.place == wanted]
    return rows[-1] if rows else None
