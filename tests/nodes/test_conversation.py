"""Files where one writes a request and reads its answer: offsets, when a request is whole, and refusals."""

from collections.abc import Awaitable, Callable

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from ollie_fuse.agent import Growing
from ollie_fuse.errors import Busy, Invalid, TooLarge
from ollie_fuse.nodes import CommandTalk, ConversationFile, Source, command_file, complete_lines, complete_spec
from ollie_fuse.nodes.conversation import REQUEST_LIMIT_BYTES
from ollie_fuse.nodes.stream import UNFINISHED_BYTES
from ollie_fuse.nodes.text import COMPLETE_BELOW_BYTES
from ollie_fuse.stamp import Stamp
from tests.nodes.door import APPEND, BOTH, READ, WRITE, Person, Waiting, never_wait, opened, read_whole, stamp_at

LONG_LINE = b"y" * COMPLETE_BELOW_BYTES


class Desk:
    """Carries out commands by writing them down; answers each with its number. ``no`` is refused."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.told: list[str] = []

    async def run(self, text: str) -> str:
        if "no" in text.split():
            raise Busy("not that one")
        if text == "disk\n":
            raise FileNotFoundError(2, "No such file or directory", "/x")
        self.done.append(text)
        return f"answer {len(self.done)}\n"

    def commands(self) -> ConversationFile:
        return command_file(lambda: "own text\n", self.run, self.told.append, stamp_at(42))

    def specs(self) -> ConversationFile:
        return ConversationFile(
            lambda _caller: CommandTalk(lambda: "template\n", self.run, self.told.append, complete_spec),
            lambda: 9,
            stamp_at(42),
        )


async def test_shell_reads_at_the_offset_of_its_write() -> None:
    """After a write the answer starts at whatever offset the first read has, and goes on from there to its end."""
    desk = Desk()
    async with opened(desk.commands(), BOTH) as handle:
        await handle.write(0, b"one\n")
        assert await handle.read(4, 3, never_wait) == b"ans"
        assert await handle.read(7, 100, never_wait) == b"wer 1\n"
        assert await handle.read(13, 100, never_wait) == b""
        await handle.write(13, b"two\n")
        assert await handle.read(17, 100, never_wait) == b"answer 2\n"


async def test_9p_rdwr_reads_first_and_then_talks() -> None:
    """A client that reads the text to its end, writes at that offset and reads on, or again from 0, gets the answer."""
    desk = Desk()
    async with opened(desk.commands(), BOTH) as handle:
        assert await handle.read(0, 8192, never_wait) == b"own text\n"
        assert await handle.read(9, 8192, never_wait) == b""
        await handle.write(9, b"one\n")
        assert await handle.read(13, 8192, never_wait) == b"answer 1\n"
        assert await handle.read(22, 8192, never_wait) == b""
        await handle.write(22, b"two\n")
        assert await handle.read(0, 8192, never_wait) == b"answer 2\n"
        assert await handle.read(9, 8192, never_wait) == b""


async def test_reader_that_seeks_back_gets_the_start() -> None:
    """A read before the place where the first one was gives the answer's start, as after `seek(0)`."""
    desk = Desk()
    async with opened(desk.commands(), BOTH) as handle:
        await handle.write(0, b"one\n")
        assert await handle.read(4, 2, never_wait) == b"an"
        assert await handle.read(0, 100, never_wait) == b"answer 1\n"


async def test_unasked_file_is_a_plain_text() -> None:
    """Before any write offsets are those of the file's own text, and its size is true."""
    file = Desk().commands()
    assert await read_whole(file) == b"own text\n"
    async with opened(file, READ) as handle:
        assert await handle.read(4, 100, never_wait) == b"text\n"
    attributes = await file.attributes()
    assert (attributes.size, attributes.mtime_ns, attributes.mode) == (9, 42, 0o600)


async def test_asked_command_file_keeps_its_true_size() -> None:
    """What is asked on one open command file changes nothing for those who look at the file: its answers never wait."""
    file = Desk().commands()
    async with opened(file, BOTH) as handle:
        await handle.write(0, b"one\n")
        assert (await file.attributes()).size == 9
        assert not handle.is_sized  # by this open file: its answer is something else


async def test_asked_conversation_tells_no_size_while_it_is_open() -> None:
    """Where an answer may come later the file tells no true size as long as an open file was asked something."""
    file = ConversationFile(lambda _caller: StreamTalk(), lambda: 9, stamp_at(42))
    async with opened(file, BOTH) as handle:
        assert ((await file.attributes()).size, handle.is_sized) == (9, True)
        await handle.write(0, b"one\n")
        assert ((await file.attributes()).size, handle.is_sized) == (UNFINISHED_BYTES, False)
    assert (await file.attributes()).size == 9


@pytest.mark.parametrize("data", [b"one", b"one\n", b"one\ntwo", b"x" * (COMPLETE_BELOW_BYTES - 1)])
async def test_short_write_is_complete(data: bytes) -> None:
    """A write shorter than 4096 bytes is carried out in the write itself, newline or not."""
    desk = Desk()
    async with opened(desk.commands(), BOTH) as handle:
        await handle.write(0, data)
        assert desk.done == [data.decode()]


async def test_long_write_is_complete_up_to_its_last_newline() -> None:
    """A long write may be a piece of what `cat` copies: its unfinished line waits for the next write, or the flush."""
    desk = Desk()
    first = LONG_LINE + b"\nhalf"
    async with opened(desk.commands(), APPEND) as handle:
        await handle.write(0, first)
        assert desk.done == [LONG_LINE.decode() + "\n"]
        await handle.write(len(first), b" a line")
        assert desk.done[1:] == ["half a line"]
        await handle.write(0, LONG_LINE)
        assert desk.done[2:] == []
        await handle.flush()
        assert desk.done[2:] == [LONG_LINE.decode()]
    assert len(desk.done) == 3


async def test_read_completes_what_waits() -> None:
    """Who reads has said all: an unfinished long line is carried out then."""
    desk = Desk()
    async with opened(desk.commands(), BOTH) as handle:
        await handle.write(0, LONG_LINE)
        assert await handle.read(0, 100, never_wait) == b"answer 1\n"


async def test_character_cut_by_a_long_write_is_whole() -> None:
    """A character in the unfinished end of a long write is decoded once the rest is there."""
    desk = Desk()
    data = "é".encode() * COMPLETE_BELOW_BYTES
    async with opened(desk.commands(), BOTH) as handle:
        await handle.write(0, data[: COMPLETE_BELOW_BYTES + 1])
        await handle.write(0, data[COMPLETE_BELOW_BYTES + 1 :])
    assert "".join(desk.done) == data.decode()


@pytest.mark.parametrize(
    ("data", "error", "sentence"),
    [
        (b"no", Busy, "not that one"),
        (b"caf\xe9", Invalid, "the text is not UTF-8 at byte 3"),
        (b"disk\n", FileNotFoundError, "/x: No such file or directory"),
    ],
)
async def test_refusal_is_read_back(data: bytes, error: type[Exception], sentence: str) -> None:
    """A refused command fails its write; its sentence is reported and is the first thing read on the same open file."""
    desk = Desk()
    file = desk.commands()
    async with opened(file, BOTH) as handle:
        await handle.write(0, b"fine\n")
        with pytest.raises(error):
            await handle.write(5, data)
        assert await handle.read(5, 1000, never_wait) == f"{sentence}\n".encode()
        assert desk.told == [sentence]
        await handle.write(5, b"fine\n")
        assert await handle.read(10, 100, never_wait) == b"answer 2\n"
    assert await read_whole(file) == b"own text\n"


async def test_request_limit() -> None:
    """A command that never ends is refused at the limit, forgotten, and the open file takes the next one."""
    desk = Desk()
    async with opened(desk.commands(), BOTH) as handle:
        await handle.write(0, b"z" * REQUEST_LIMIT_BYTES)
        with pytest.raises(TooLarge, match=str(REQUEST_LIMIT_BYTES)):
            await handle.write(0, LONG_LINE)
        assert desk.told == [f"a command has at most {REQUEST_LIMIT_BYTES} bytes"]
        await handle.write(0, b"short\n")
    assert desk.done == ["short\n"]


async def test_failed_write_leaves_nothing_behind() -> None:
    """Of a write that was refused nothing is carried out later, not even the unfinished line at its end."""
    desk = Desk()
    async with opened(desk.commands(), BOTH) as handle:
        with pytest.raises(Busy):
            await handle.write(0, b"no " + LONG_LINE + b"\nrest")
    assert desk.done == []


async def test_spec_goes_on_after_a_backslash() -> None:
    """A spec whose write ends in a backslash, newline or not, is one with what the next write brings."""
    desk = Desk()
    async with opened(desk.specs(), BOTH) as handle:
        await handle.write(0, b"name=a \\\n")
        await handle.write(0, b"title=b \\")
        assert desk.done == []
        await handle.write(0, b"\ncwd=/\n")
        assert desk.done == ["name=a \\\ntitle=b \\\ncwd=/\n"]
        assert await handle.read(30, 100, never_wait) == b"answer 1\n"


async def test_spec_goes_on_over_a_shells_flushes() -> None:
    """A spec that goes on after a backslash does so although the shell closes a copy of the file after each `echo`."""
    desk = Desk()
    async with opened(desk.specs(), BOTH) as handle:
        await handle.write(0, b"name=a \\\n")
        await handle.flush()
        await handle.write(9, b"title=b\n")
        await handle.flush()
        assert desk.done == ["name=a \\\ntitle=b\n"]


async def test_long_spec_is_complete_at_the_end() -> None:
    """A long write is never taken for a whole spec, wherever its lines end; the flush that follows completes it."""
    desk = Desk()
    spec = b"title=" + LONG_LINE + b"\nname=a\n"
    async with opened(desk.specs(), WRITE) as handle:
        await handle.write(0, spec)
        assert desk.done == []
        await handle.flush()
        assert desk.done == [spec.decode()]


@settings(deadline=None, max_examples=60)
@given(data=st.binary(max_size=400), last=st.integers(0, 2 * COMPLETE_BELOW_BYTES))
def test_completions_take_a_prefix(data: bytes, last: int) -> None:
    """How much is complete is a prefix, of whole lines when the write was long, and all or nothing of a spec."""
    size = complete_lines(data, last)
    assert data[:size].endswith(b"\n") or size in (0, len(data))
    assert b"\n" not in data[size:]
    assert complete_spec(data, last) in (0, len(data))


class StreamTalk:
    """Answers every request with a stream that the test feeds; nothing before the first."""

    is_taking = False

    def __init__(self) -> None:
        self.streams: list[Growing] = []
        self.calls: list[str] = []

    async def write(self, data: bytes) -> None:
        self.calls.append(f"write {data.decode()}")

    async def answer(self) -> Source:
        self.calls.append("answer")
        self.streams.append(Growing(Stamp()))
        return self.streams[-1]

    async def flush(self) -> None:
        self.calls.append("flush")

    async def release(self) -> None:
        self.calls.append("release")


async def test_answer_streams_and_is_asked_for_once() -> None:
    """The talk gives one source an answer: reads wait on it, a cancelled one resumes, and a write begins the next."""
    talk = StreamTalk()
    file = ConversationFile(lambda _caller: talk, lambda: 0, stamp_at(42))
    async with opened(file, BOTH) as handle:
        await handle.write(0, b"q")
        with trio.move_on_after(0):
            await handle.read(1, 10, Waiting())
        talk.streams[0].append("one")
        assert await handle.read(1, 10, never_wait) == b"one"
        talk.streams[0].end()
        assert await handle.read(4, 10, never_wait) == b"\n"
        assert await handle.read(5, 10, never_wait) == b""
        await handle.write(5, b"r")
        await read_in_background(lambda: handle.read(6, 10, Waiting()), talk)
    assert talk.calls == ["write q", "answer", "write r", "answer", "flush", "release"]


async def read_in_background(read: Callable[[], Awaitable[bytes]], talk: StreamTalk) -> None:
    async def check() -> None:
        assert await read() == b"two"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(check)
        await wait_all_tasks_blocked()
        talk.streams[1].append("two")


async def test_file_that_may_wait_for_ever_can_be_looked_at() -> None:
    """Where even an unwritten read waits no cache may rely on the size, and who only looks gets what is there now."""
    talk = StreamTalk()
    file = ConversationFile(lambda _caller: talk, lambda: 3, stamp_at(42), look=lambda: b"now")
    assert ((await file.attributes()).size, file.may_wait_for_ever) == (3, True)
    async with opened(file, READ) as handle:
        assert not handle.is_sized
    assert talk.calls == ["flush", "release"]
    look = await file.open_to_look()
    assert [await look.read(offset, 9, never_wait) for offset in (0, 1, 3)] == [b"now", b"ow", b""]
    assert talk.calls == ["flush", "release"]


async def test_talk_knows_its_opener() -> None:
    """Each open file has a talk of its own, made for whoever opened it."""
    places = []

    def open_talk(caller: object) -> StreamTalk:
        assert isinstance(caller, Person)
        places.append(caller.cwd())
        return StreamTalk()

    file = ConversationFile(open_talk, lambda: 0, stamp_at(42))
    for place in ("/a", "/b"):
        async with opened(file, READ, Person(place)):
            pass
    assert places == ["/a", "/b"]
