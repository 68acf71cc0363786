"""Server-sent events from bytes in any cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollie_fuse.errors import RemoteFailed
from ollie_fuse.providers.sse import LINE_LIMIT_BYTES, Event, EventDecoder
from tests.providers.streams import ROUTER, events_of

SAMPLE = (
    "\ufeff: hello\n:\n\nevent: error\ndata: {\ndata:  two\ndata\n\n"
    "id: 7\nretry: 9\nunknown: x\n\ndata:é日🦙\n\nevent: alone\n\ndata: last\n\ndata: cut off"
).encode()
EVENTS = [Event(name="error", data="{\n two\n"), Event(data="é日🦙"), Event(data="last")]


def test_fields_and_comments() -> None:
    """Data lines join; comments, blank lines without data and an event that the end cuts off are none."""
    assert events_of([SAMPLE]) == EVENTS


@pytest.mark.parametrize("newline", [b"\n", b"\r", b"\r\n"])
def test_cut_at_every_byte(newline: bytes) -> None:
    """Two pieces say what one does, wherever the cut is and however lines end."""
    sample = SAMPLE.replace(b"\n", newline)
    assert all(events_of([sample[:cut], sample[cut:]]) == EVENTS for cut in range(len(sample) + 1))


@pytest.mark.parametrize("newline", [b"\n", b"\r", b"\r\n"])
def test_single_bytes(newline: bytes) -> None:
    """A stream that comes byte by byte says what it says at once."""
    sample = SAMPLE.replace(b"\n", newline)
    assert events_of(sample[i : i + 1] for i in range(len(sample))) == EVENTS


@given(st.lists(st.integers(0, len(ROUTER)), max_size=8))
def test_any_cuts(cuts: list[int]) -> None:
    """No set of cuts changes a recorded stream."""
    places = sorted({0, len(ROUTER), *cuts})
    pieces = [ROUTER[a:b] for a, b in pairwise(places)]
    assert events_of(pieces) == events_of([ROUTER])


@given(st.binary(max_size=200))
def test_any_bytes(noise: bytes) -> None:
    """Nothing that a server can send raises anything but our own error."""
    events_of([noise, b"\n\n"])


def test_line_limit() -> None:
    """A line that never ends is refused before it fills the memory."""
    decoder = EventDecoder()
    piece = b"x" * (1 << 20)
    for _ in range(LINE_LIMIT_BYTES // len(piece)):
        assert not list(decoder.feed(piece))
    with pytest.raises(RemoteFailed, match="4 MiB"):
        list(decoder.feed(piece))
