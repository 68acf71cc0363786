"""Files that grow: logs end where they end now, streams wait, and the page cache is sent away."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from ollie_fuse.agent import Growing
from ollie_fuse.errors import RemoteFailed, Stopped
from ollie_fuse.nodes import FixedSource, GrowingFile, StreamFile
from ollie_fuse.nodes.stream import UNFINISHED_BYTES
from ollie_fuse.stamp import Stamp
from tests.nodes.door import READ, Waiting, never_wait, opened, read_whole, stamp_at

PAGE = 4096


def grown(text: str = "") -> Growing:
    source = Growing(Stamp())
    source.append(text)
    return source


async def test_log_ends_where_it_ends_now() -> None:
    """A log never waits: a read at its end is empty, and later gives what came since, as `tail -f` needs."""
    source = grown("one\n")
    file = GrowingFile(source, stamp_at(7))
    async with opened(file, READ) as handle:
        assert await handle.read(0, 100, never_wait) == b"one\n"
        assert await handle.read(4, 100, never_wait) == b""
        source.append("two\n")
        assert await handle.read(4, 100, never_wait) == b"two\n"
        assert await handle.read(100, 10, never_wait) == b""
    assert (await file.attributes()).size == 8


async def test_stream_waits_for_more_and_for_the_end() -> None:
    """A reader gets what is there at once, waits where more may come, and gets the end of file with the stream's."""
    source, wait, got = grown("a"), Waiting(), []
    file = StreamFile(lambda: source, stamp_at(7))

    async def read_all() -> None:
        async with opened(file, READ) as handle:
            offset = 0
            while piece := await handle.read(offset, 4000, wait):
                got.append(piece)
                offset += len(piece)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read_all)
        await wait_all_tasks_blocked()
        assert (got, wait.count) == ([b"a"], 1)
        source.append("é")
        await wait_all_tasks_blocked()
        source.append("")
        await wait_all_tasks_blocked()
        assert got[1:] == ["é".encode()]
        source.end()
    assert got[2:] == [b"\n"]


async def test_stream_that_failed_gives_its_text_first() -> None:
    """What was said before a failure is read whole; only the read at its end raises, a new error each time."""
    source = grown("half")
    source.end(RemoteFailed("it broke"))
    raised = []
    async with opened(StreamFile(lambda: source, stamp_at(7)), READ) as handle:
        assert await handle.read(0, 100, never_wait) == b"half\n"
        for _ in range(2):
            with pytest.raises(RemoteFailed, match="it broke") as caught:
                await handle.read(5, 100, never_wait)
            raised.append(caught.value)
        assert await handle.read(2, 100, never_wait) == b"lf\n"
    assert raised[0] is not raised[1]


async def test_open_file_stays_with_its_source() -> None:
    """An open file reads on in the source it was opened on, whatever is current later."""
    sources = [grown("old\n"), grown("new\n")]
    for source in sources:
        source.end()
    file = StreamFile(lambda: sources[0], stamp_at(7))
    async with opened(file, READ) as handle:
        del sources[0]
        assert await handle.read(0, 100, never_wait) == b"old\n"
    assert await read_whole(file) == b"new\n"


async def test_cancelled_reader_takes_nothing() -> None:
    """A reader that is cancelled in its wait leaves the open file as it was, for the next read to resume."""
    source = grown("a")
    async with opened(StreamFile(lambda: source, stamp_at(7)), READ) as handle:
        with trio.move_on_after(0):
            await handle.read(1, 10, Waiting())
        source.append("b")
        assert await handle.read(1, 10, never_wait) == b"b"


async def test_all_readers_of_a_stream_wake() -> None:
    """Any number of readers at different offsets wait on one stream and each gets its own rest."""
    source, got = grown("abc"), {}
    file = StreamFile(lambda: source, stamp_at(7))

    async def read_from(offset: int) -> None:
        async with opened(file, READ) as handle:
            got[offset] = await handle.read(offset, 10, Waiting())

    async with trio.open_nursery() as nursery:
        for offset in range(3, 6):
            nursery.start_soon(read_from, offset)
        await wait_all_tasks_blocked()
        source.append("de")
        await wait_all_tasks_blocked()
        source.end(Stopped("no more"))
    assert got == {3: b"de", 4: b"e", 5: b"\n"}


async def test_unfinished_stream_tells_the_known_size() -> None:
    """Until it ended well a stream tells a size of its own, on which no cache may rely."""
    source = grown("x" * 9000)
    file = StreamFile(lambda: source, stamp_at(7))
    assert (await file.attributes()).size == UNFINISHED_BYTES
    async with opened(file, READ) as handle:
        assert not handle.is_sized
        source.end()
        assert not handle.is_sized
    async with opened(file, READ) as handle:
        assert handle.is_sized


async def test_finished_stream_is_a_plain_file() -> None:
    """After a good end the size is true and every read is answered; after a bad one the cache would hide the error."""
    good, bad = grown("x" * UNFINISHED_BYTES), grown("x")
    good.end()
    bad.end(Stopped("held"))
    file = StreamFile(lambda: good, stamp_at(7))
    assert (await file.attributes()).size == UNFINISHED_BYTES + 1
    async with opened(file, READ) as handle:
        assert len(await handle.read(0, UNFINISHED_BYTES, never_wait)) == UNFINISHED_BYTES
    assert (await StreamFile(lambda: bad, stamp_at(7)).attributes()).size == UNFINISHED_BYTES
    empty = StreamFile(lambda: FixedSource(b""), stamp_at(7))
    assert ((await empty.attributes()).size, await read_whole(empty)) == (0, b"")
