"""Files that hold text: what is read stands still, and what is written is bytes as on a disk."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ollie_fuse.errors import Denied, Invalid, TooLarge
from ollie_fuse.nodes import Opening, TextFile, ValueFile
from ollie_fuse.nodes.text import COMPLETE_BELOW_BYTES, VALUE_LIMIT_BYTES
from tests.nodes.door import APPEND, BOTH, READ, REWRITE, WRITE, Person, never_wait, opened, read_whole, stamp_at

LONG = b"x" * COMPLETE_BELOW_BYTES


@dataclass
class Value:
    """A value that takes anything but what *refused* holds."""

    text: str = ""
    puts: list[str] = field(default_factory=list)
    refused: str = "\x07"

    async def put(self, text: str) -> None:
        if self.refused in text:
            raise Invalid("no bells")
        self.puts.append(text)
        self.text = text

    def file(self) -> ValueFile:
        return ValueFile(lambda: self.text, self.put, stamp_at(42))


async def test_text_is_rendered_once_an_open_file() -> None:
    """A reader sees one rendering from its first read on, and the next open file a new one."""
    renders = iter(range(100))
    file = TextFile(lambda: f"render {next(renders)}\n", stamp_at(7))
    async with opened(file, READ) as first, opened(file, READ) as second:
        assert await first.read(0, 4, never_wait) == b"rend"
        assert await second.read(0, 100, never_wait) == b"render 1\n"
        assert await first.read(4, 100, never_wait) == b"er 0\n"
        assert await first.read(9, 100, never_wait) == b""


async def test_text_tells_its_size_in_bytes() -> None:
    """``stat`` tells the bytes, the time and the mode of what a reader would get."""
    attributes = await TextFile(lambda: "né\n", stamp_at(7)).attributes()
    assert (attributes.size, attributes.mtime_ns, attributes.mode) == (4, 7, 0o400)
    assert (await TextFile(lambda: "", stamp_at(7), is_executable=True).attributes()).mode == 0o500


async def test_text_is_read_only() -> None:
    """Opening a rendered text for writing is refused, whoever asks, and a write that came would be too."""
    file = TextFile(lambda: "text\n", stamp_at(7))
    for opening in (WRITE, BOTH, APPEND):
        with pytest.raises(Denied):
            await file.check_mode(opening)
    async with opened(file, READ) as handle:
        with pytest.raises(Denied):
            await handle.write(0, b"x")
    assert await read_whole(file) == b"text\n"


@pytest.mark.parametrize(
    ("written", "value", "shown"),
    [(b"one\n", "one", b"one\n"), (b"one", "one", b"one\n"), (b"\n", "", b""), (b"\n\n", "\n", b"\n\n")],
)
async def test_final_newline(written: bytes, value: str, shown: bytes) -> None:
    """One final newline is taken off and shown again; an empty value shows nothing."""
    held = Value("before and longer")
    async with opened(held.file(), REWRITE) as handle:
        await handle.write(0, written)
        assert held.text == value
    assert await read_whole(held.file()) == shown
    assert (await held.file().attributes()).size == len(shown)


async def test_truncation_at_open_alone_changes_nothing() -> None:
    """`: > file` puts nothing; only the write after it replaces the value."""
    held = Value("kept")
    async with opened(held.file(), REWRITE):
        pass
    assert (held.text, held.puts) == ("kept", [])
    async with opened(held.file(), REWRITE) as handle:
        await handle.write(0, b"n")
    assert held.text == "n"


async def test_truncation_at_open_holds_after_a_read() -> None:
    """A file opened with O_TRUNC holds nothing of the old value once something is written, read before or not."""
    held = Value("a long old value")
    async with opened(held.file(), REWRITE) as handle:
        await handle.read(0, 100, never_wait)
        await handle.write(0, b"new\n")
    assert held.text == "new"


async def test_write_without_truncation_overwrites_in_place() -> None:
    """Partial writes change only their bytes, and one past the end leaves zeros between."""
    held = Value("abcdef")
    async with opened(held.file(), BOTH) as handle:
        await handle.write(2, b"XY")
        assert held.text == "abXYef"
        await handle.write(9, b"end\n")
        assert held.text == "abXYef\n\0\0end"
        assert await handle.read(0, 100, never_wait) == b"abXYef\n\0\0end\n"


async def test_append_goes_to_the_end() -> None:
    """Appending ignores offsets."""
    held = Value("A=1")
    async with opened(held.file(), APPEND) as handle:
        await handle.write(0, b"B=2\n")
        await handle.write(0, b"C=3\n")
    assert held.text == "A=1\nB=2\nC=3"


async def test_two_appenders_lose_nothing() -> None:
    """Lines appended through two open files are all kept, as on a disk."""
    held = Value()
    async with opened(held.file(), APPEND) as one, opened(held.file(), APPEND) as two:
        await one.write(0, b"A=1\n")
        await two.write(0, b"B=2\n")
        await one.write(0, b"C=3\n")
    assert held.text == "A=1\nB=2\nC=3"


async def test_refused_write_changes_nothing() -> None:
    """A refused value leaves the value as it was; the open file then gives the reason, and takes the next write."""
    held = Value("good")
    async with opened(held.file(), BOTH) as handle:
        for bad in (b"\x07", b"\xff", b"caf\xc3"):
            with pytest.raises(Invalid):
                await handle.write(0, bad)
            assert await handle.read(0, 100, never_wait) != b"good\n"
            assert held.text == "good"
        await handle.write(0, b"G")
    assert held.text == "Good"


async def test_long_value_is_put_once_and_whole() -> None:
    """What ``cat`` copies in long pieces is put at the short one that ends it, or at the close."""
    held = Value()
    async with opened(held.file(), REWRITE) as handle:
        await handle.write(0, LONG)
        assert held.puts == []
        await handle.write(len(LONG), b"end\n")
        assert held.puts == [LONG.decode() + "end"]
    async with opened(held.file(), REWRITE) as handle:
        await handle.write(0, LONG)
        assert await handle.read(0, 2, never_wait) == b"xx"
    assert held.puts[1:] == [LONG.decode()]


async def test_refusal_of_a_long_value_is_seen_at_the_close() -> None:
    """A long value that is refused fails its flush, once, and leaves the old one."""
    held = Value("old")
    handle = await held.file().open(REWRITE, Person())
    await handle.write(0, LONG[:-1] + b"\xff")
    with pytest.raises(Invalid, match="byte 4095"):
        await handle.flush()
    await handle.flush()
    await handle.release()
    assert held.text == "old"


async def test_character_cut_by_long_writes_is_whole() -> None:
    """A character that two long writes share is no mistake."""
    held = Value()
    text = "é" * COMPLETE_BELOW_BYTES
    data = text.encode()
    async with opened(held.file(), REWRITE) as handle:
        await handle.write(0, data[: COMPLETE_BELOW_BYTES + 1])
        await handle.write(COMPLETE_BELOW_BYTES + 1, data[COMPLETE_BELOW_BYTES + 1 :])
    assert held.text == text


async def test_limit() -> None:
    """A value has a limit, by writes, appends and truncation alike; what is refused changes nothing."""
    held = Value("v")
    async with opened(held.file(), BOTH) as handle, opened(held.file(), APPEND) as appender:
        for attempt in (
            handle.write(VALUE_LIMIT_BYTES, b"x"),
            handle.set_size(VALUE_LIMIT_BYTES + 1),
            held.file().set_size(1 << 40),
            appender.write(0, b"x" * VALUE_LIMIT_BYTES),
        ):
            with pytest.raises(TooLarge, match=str(VALUE_LIMIT_BYTES)):
                await attempt
        await handle.write(0, b"x" * VALUE_LIMIT_BYTES)
    assert len(held.text) == VALUE_LIMIT_BYTES


async def test_truncate_by_path_and_by_handle() -> None:
    """truncate(1) and ftruncate(2) cut and extend what the file shows."""
    held = Value("abcdef")
    await held.file().set_size(3)
    assert held.text == "abc"
    async with opened(held.file(), BOTH) as handle:
        await handle.set_size(1)
        await handle.set_size(2)
        assert await handle.read(0, 100, never_wait) == b"a\0"
    assert held.text == "a\0"
    await held.file().set_size(0)
    assert held.text == ""


_OFFSETS = st.integers(0, 40)
_BYTES = st.text(alphabet="ab\n\x07", max_size=12).map(str.encode)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), _OFFSETS, _BYTES),
        st.tuples(st.just("long"), _OFFSETS, st.just(LONG)),
        st.tuples(st.just("size"), _OFFSETS, st.just(b"")),
        st.tuples(st.just("read"), _OFFSETS, st.just(b"")),
        st.tuples(st.just("flush"), st.just(0), st.just(b"")),
    ),
    max_size=15,
)


@settings(deadline=None, max_examples=80)
@given(steps=_STEPS, before=st.text(alphabet="ab\n", max_size=10), opening=st.sampled_from([BOTH, APPEND, REWRITE]))
async def test_open_value_is_like_plain_bytes(
    steps: list[tuple[str, int, bytes]], before: str, opening: Opening
) -> None:
    """Whatever is written and truncated through an open file, it and the value are what a plain file would be."""
    held = Value(before)
    handle = await held.file().open(opening, Person())
    plain = f"{before}\n".encode() if before else b""
    is_touched = is_refused = False
    for verb, offset, data in steps:
        if verb in ("write", "long", "size"):
            base = b"" if opening.truncate and not is_touched else plain
            if verb == "size":
                changed = base[:offset].ljust(offset, b"\0")
            else:
                start = len(base) if opening.append else offset
                changed = base[:start].ljust(start, b"\0") + data + base[start + len(data) :]
            try:
                await (handle.set_size(offset) if verb == "size" else handle.write(offset, data))
            except Invalid:
                assert b"\x07" in changed
                is_refused = True
            else:
                is_refused = is_refused and verb == "long"
                plain, is_touched = changed, True
                assert verb == "long" or held.text == plain.decode().removesuffix("\n")
        elif verb == "flush":
            await handle.flush()
            assert not is_touched or held.text == plain.decode().removesuffix("\n")
        elif not is_refused:
            assert await handle.read(offset, 100_000, never_wait) == plain[offset:]
    await handle.flush()
    await handle.release()
    assert held.text == (plain.decode().removesuffix("\n") if is_touched else before)
