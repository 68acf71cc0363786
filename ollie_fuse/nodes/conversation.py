"""Files that one writes a request to and reads its answer from, on the same open file.

Offsets of writes mean nothing here, and an answer is read from its start wherever the file's offset stands: a shell
that wrote 3 bytes through ``exec 3<>file`` reads at offset 3, ``9p rdwr`` at 0.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

from ollie_fuse.errors import Invalid, OllieError, TooLarge, sentence_of
from ollie_fuse.nodes.node import Attributes, Caller, File, Handle, Opening, Wait
from ollie_fuse.nodes.stream import UNFINISHED_BYTES, FixedSource, PageCacheRefusal, Source, read_source
from ollie_fuse.nodes.text import COMPLETE_BELOW_BYTES
from ollie_fuse.stamp import Stamp

REQUEST_LIMIT_BYTES = 1 << 20


class Talk(Protocol):
    """What one open conversation file does; made at its open, ended by ``release``."""

    async def write(self, data: bytes) -> None:
        """Take a piece of a request or refuse it by raising."""

    async def answer(self) -> Source:
        """Give what is to be read now: called at the first read after the open and after each write."""

    async def flush(self) -> None:
        """A descriptor of the open file was closed."""

    async def release(self) -> None:
        """The open file is gone."""


class ConversationFile(File):
    """*open_talk* makes the talk of a new open file.

    *size* is that of what an open file gives before any write; None where that is a stream too, whose reader waits.
    """

    __slots__ = ("_asked", "_open_talk", "_size", "_watchers")

    def __init__(
        self,
        open_talk: Callable[[Caller], Talk],
        size: Callable[[], int] | None,
        stamp: Stamp,
    ) -> None:
        super().__init__(stamp)
        self._open_talk = open_talk
        self._size = size
        self._asked = 0
        self._watchers: list[Callable[[], None]] = []

    async def attributes(self) -> Attributes:
        size = UNFINISHED_BYTES if self._asked or self._size is None else self._size()
        return Attributes(0o600, size, self.mtime_ns)

    def watch(self, watcher: Callable[[], None]) -> None:
        super().watch(watcher)
        self._watchers.append(watcher)

    def unwatch(self, watcher: Callable[[], None]) -> None:
        super().unwatch(watcher)
        self._watchers.remove(watcher)

    def count_asked(self, change: int) -> None:
        """Count the open files, readable ones, that have had a request written to them: the size told depends on it."""
        was_asked, self._asked = self._asked, self._asked + change
        if bool(was_asked) != bool(self._asked):
            for watcher in tuple(self._watchers):
                watcher()

    async def open(self, opening: Opening, caller: Caller) -> Handle:
        refusal = PageCacheRefusal() if self._size is None else None
        return _ConversationHandle(self, self._open_talk(caller), refusal, is_readable=opening.read)


class _ConversationHandle(Handle):
    __slots__ = ("_base", "_file", "_is_asked", "_is_readable", "_refusal", "_source", "_talk")

    def __init__(
        self, file: ConversationFile, talk: Talk, refusal: PageCacheRefusal | None, *, is_readable: bool
    ) -> None:
        self._file = file
        self._talk = talk
        self._refusal = refusal
        self._is_readable = is_readable
        self._is_asked = False
        self._source: Source | None = None
        self._base = 0

    async def write(self, offset: int, data: bytes) -> None:
        self._source = None
        if self._is_readable and not self._is_asked:
            self._is_asked = True
            self._file.count_asked(1)
            self._refusal = self._refusal or PageCacheRefusal()
        await self._talk.write(data)

    async def read(self, offset: int, size: int, wait: Wait) -> bytes:
        if self._refusal is not None:
            self._refusal.check(offset, size)
        if self._source is None:
            self._source = await self._talk.answer()
            self._base = offset if self._is_asked else 0
        self._base = min(self._base, offset)
        return await read_source(self._source, offset - self._base, size, wait)

    async def flush(self) -> None:
        await self._talk.flush()

    async def release(self) -> None:
        if self._is_asked:
            self._file.count_asked(-1)
        await self._talk.release()


Completion = Callable[[bytes, int], int]
"""Given all that waits to be acted on and the length of the write that came last: how many bytes of it are complete."""


def complete_lines(pending: bytes, last_bytes: int) -> int:
    """Whole lines; a short write's last line is whole without its newline."""
    return len(pending) if last_bytes < COMPLETE_BELOW_BYTES else pending.rfind(b"\n") + 1


def complete_spec(pending: bytes, last_bytes: int) -> int:
    """A spec is everything up to a short write that does not end in a backslash."""
    is_continued = pending.removesuffix(b"\n").endswith(b"\\")
    return 0 if last_bytes >= COMPLETE_BELOW_BYTES or is_continued else len(pending)


class CommandTalk:
    """Requests that are carried out inside the write that completes them, so that the write itself can fail.

    *render* gives what is read before any write; *run* takes the text of complete requests and returns their answer, or
    raises; *report* is told the sentence of each refusal, which is also what is read next.
    """

    __slots__ = ("_answer", "_complete", "_pending", "_render", "_report", "_run")

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
        return FixedSource(text.encode())

    async def flush(self) -> None:
        """Act on what a long write left incomplete."""
        await self._act(len(self._pending))

    async def release(self) -> None:
        """Nothing is left to do: the flush came before."""

    async def _act(self, complete_bytes: int) -> None:
        request, self._pending = self._pending[:complete_bytes], self._pending[complete_bytes:]
        if not request:
            return
        try:
            self._answer = await self._run(_decoded(request))
        except (OllieError, OSError) as exc:
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
    return ConversationFile(lambda _caller: CommandTalk(render, run, report), lambda: len(render().encode()), stamp)
