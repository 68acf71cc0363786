"""Files that one writes a request to and reads its answer from, on the same open file.

Offsets of writes mean nothing here, and an answer is read from its start wherever the file's offset stands: a shell
that wrote 3 bytes through ``exec 3<>file`` reads at offset 3, ``9p rdwr`` at 0.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

from ollie_fuse.errors import Invalid, OllieError, TooLarge, sentence_of
from ollie_fuse.nodes.node import Attributes, Caller, File, Handle, Opening, Source, Wait
from ollie_fuse.nodes.stream import UNFINISHED_BYTES, FixedSource, read_source
from ollie_fuse.nodes.text import COMPLETE_BELOW_BYTES, encode_text
from ollie_fuse.stamp import Stamp

REQUEST_LIMIT_BYTES = 1 << 20


class Talk(Protocol):
    """What one open conversation file does; made at its open, ended by ``release``."""

    is_taking: bool
    """Whether ``answer`` takes what was written, so that only a read may ask for it."""

    async def write(self, data: bytes) -> None:
        """Take a piece of a request or refuse it by raising."""

    async def answer(self) -> Source:
        """Give what is to be read now: called at the first read after the open and after each write."""

    async def flush(self) -> None:
        """A descriptor of the open file was closed."""

    async def release(self) -> None:
        """The open file is gone."""


class ConversationFile(File):
    """*open_talk* makes the talk of a new open file; *size* is that of what one gives before any write.

    Where *may_answer_later*, an answer is a stream, and the file tells no true size while one is open. Where *look* is
    given, even what is read before any write is a stream that may never come, and *look* is what is there now.
    """

    __slots__ = ("_asked", "_look", "_may_answer_later", "_open_talk", "_size", "_watchers")

    def __init__(
        self,
        open_talk: Callable[[Caller], Talk],
        size: Callable[[], int],
        stamp: Stamp,
        *,
        may_answer_later: bool = True,
        look: Callable[[], bytes] | None = None,
    ) -> None:
        super().__init__(stamp)
        self._open_talk = open_talk
        self._size = size
        self._may_answer_later = may_answer_later
        self._look = look
        self._asked = 0
        self._watchers: list[Callable[[], None]] = []

    @property
    def may_wait_for_ever(self) -> bool:
        return self._look is not None

    async def attributes(self) -> Attributes:
        return Attributes(0o600, UNFINISHED_BYTES if self._asked else self._size(), self.mtime_ns)

    def watch(self, watcher: Callable[[], None]) -> None:
        super().watch(watcher)
        self._watchers.append(watcher)

    def unwatch(self, watcher: Callable[[], None]) -> None:
        super().unwatch(watcher)
        self._watchers.remove(watcher)

    def count_asked(self, change: int) -> None:
        """Count the open files that wait for an answer or may: the size told depends on it."""
        was_asked, self._asked = self._asked, self._asked + change
        if bool(was_asked) != bool(self._asked):
            for watcher in tuple(self._watchers):
                watcher()

    async def open(self, opening: Opening, caller: Caller) -> Handle:
        may_answer_later = opening.read and self._may_answer_later
        talk = self._open_talk(caller)
        return _ConversationHandle(self, talk, is_readable=opening.read, may_answer_later=may_answer_later)

    async def open_to_look(self) -> Handle:
        assert self._look is not None
        return _LookHandle(self._look())


class _LookHandle(Handle):
    __slots__ = ("_data",)

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def read(self, offset: int, size: int, wait: Wait) -> bytes:
        return self._data[offset : offset + size]


class _ConversationHandle(Handle):
    __slots__ = (
        "_base",
        "_file",
        "_is_asked",
        "_is_readable",
        "_may_answer_later",
        "_position",
        "_reread_to",
        "_source",
        "_talk",
    )

    def __init__(self, file: ConversationFile, talk: Talk, *, is_readable: bool, may_answer_later: bool) -> None:
        self._file = file
        self._talk = talk
        self._is_readable = is_readable
        self._may_answer_later = may_answer_later
        self._is_asked = False
        self._source: Source | None = None
        self._position = 0
        """Where in the answer the last read ended."""
        self._base = 0
        """The file's offset at which the answer begins."""
        self._reread_to: int | None = None
        """Where a read from before the base has come to; one that goes on there goes on in the answer too."""

    @property
    def is_sized(self) -> bool:
        return not self._is_readable or not (self._file.may_wait_for_ever or self._is_asked)

    async def write(self, offset: int, data: bytes) -> None:
        self._source = None
        if not self._is_asked:
            self._is_asked = True
            if self._may_answer_later:
                self._file.count_asked(1)
        await self._talk.write(data)

    async def awaited(self) -> tuple[Source, int] | None:
        if self._source is None:
            if self._is_asked and self._talk.is_taking:
                return None
            self._source = await self._answered()
            self._position = 0
            self._base = -1  # the next read says where it begins
        return self._source, self._position

    async def read(self, offset: int, size: int, wait: Wait) -> bytes:
        if self._source is None or self._base < 0:
            self._base = offset if self._is_asked else 0
            self._reread_to = None
        if self._source is None:
            self._source = await self._answered()
        is_reread = offset < self._base or offset == self._reread_to
        start = offset if is_reread else offset - self._base
        data = await read_source(self._source, start, size, wait)
        self._position = start + len(data)
        self._reread_to = offset + len(data) if is_reread else None
        return data

    async def _answered(self) -> Source:
        """Ask the talk; a refusal is an error of this read, and its sentence what the next one gives."""
        try:
            return await self._talk.answer()
        except OllieError as exc:
            self._source = FixedSource(encode_text(f"{exc}\n"))
            raise

    async def flush(self) -> None:
        await self._talk.flush()

    async def release(self) -> None:
        if self._is_asked and self._may_answer_later:
            self._file.count_asked(-1)
        await self._talk.release()


Completion = Callable[[bytes, int], int]
"""Given all that waits to be acted on and the length of the write that came last: how many bytes of it are complete."""


def complete_lines(pending: bytes, last_bytes: int) -> int:
    """Whole lines; a short write's last line is whole without its newline."""
    return len(pending) if last_bytes < COMPLETE_BELOW_BYTES else pending.rfind(b"\n") + 1


def complete_spec(pending: bytes, last_bytes: int) -> int:
    """A spec is everything up to a short write that does not end in a backslash."""
    line = pending.removesuffix(b"\n")
    is_continued = (len(line) - len(line.rstrip(b"\\"))) % 2 == 1
    return 0 if last_bytes >= COMPLETE_BELOW_BYTES or is_continued else len(pending)


class CommandTalk:
    """Requests that are carried out inside the write that completes them, so that the write itself can fail.

    *render* gives what is read before any write; *run* takes the text of complete requests and returns their answer, or
    raises; *report* is told the sentence of each refusal, which is also what is read next.
    """

    __slots__ = ("_answer", "_complete", "_pending", "_render", "_report", "_run")
    is_taking = False

    def __init__(
        self,
        render: Callable[[], str],
        run: Callable[[str], Awaitable[str]],
        report: Callable[[str], None],
        complete: Completion = complete_lines,
    ) -> None:
        self._render = render
        self._run = run
        self._report = report
        self._complete = complete
        self._pending = b""
        self._answer: str | None = None

    async def write(self, data: bytes) -> None:
        """Act on what *data* completes."""
        self._pending += data
        if len(self._pending) > REQUEST_LIMIT_BYTES:
            self._pending = b""
            self._refuse(exc := TooLarge(f"a command has at most {REQUEST_LIMIT_BYTES} bytes"))
            raise exc
        await self._act(self._complete(self._pending, len(data)))

    async def answer(self) -> Source:
        """Give the last answer, or the file's own text."""
        await self._act(len(self._pending))
        text = self._render() if self._answer is None else self._answer
        return FixedSource(encode_text(text))

    async def flush(self) -> None:
        """Act on what a long write left incomplete."""
        await self._act(self._complete(self._pending, 0))

    async def release(self) -> None:
        """Act on a spec that promised more and got none."""
        await self._act(len(self._pending))

    async def _act(self, complete_bytes: int) -> None:
        request, self._pending = self._pending[:complete_bytes], self._pending[complete_bytes:]
        if not request:
            return
        try:
            self._answer = await self._run(_decoded(request))
        except (OllieError, OSError) as exc:
            self._pending = b""  # what follows a refused line belongs to the same refused write
            self._refuse(exc)
            raise

    def _refuse(self, exc: Exception) -> None:
        self._answer = sentence_of(exc) + "\n"
        self._report(sentence_of(exc))


def _decoded(request: bytes) -> str:
    try:
        return request.decode()
    except UnicodeDecodeError as exc:
        raise Invalid(f"the text is not UTF-8 at byte {exc.start}") from exc


def command_file(
    render: Callable[[], str],
    run: Callable[[str], Awaitable[str]],
    report: Callable[[str], None],
    stamp: Stamp,
) -> ConversationFile:
    """Make a file that takes one command a line and shows *render* to whoever reads it first."""
    return ConversationFile(
        lambda _caller: CommandTalk(render, run, report),
        lambda: len(encode_text(render())),
        stamp,
        may_answer_later=False,
    )
