"""The engine's small parts: growing text, chat, events, specs and names."""

import json
import time

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from ollie_fuse.agent import AGENT_KEYS, SESSION_KEYS, Events, Growing, Key, render_env, render_template
from ollie_fuse.agent.chat import Chat
from ollie_fuse.agent.events import KEPT
from ollie_fuse.agent.session import parse_env
from ollie_fuse.agent.sessions import unused_name
from ollie_fuse.agent.spec import check_name, parse_spec
from ollie_fuse.errors import Invalid, NotFound, RemoteFailed
from ollie_fuse.providers import TextDelta
from ollie_fuse.providers.openai import StreamDecoder
from ollie_fuse.providers.sse import Event
from ollie_fuse.stamp import Stamp
from tests.agent.scripted_provider import Engine, open_engine

# Growing text


@given(pieces=st.lists(st.text(max_size=5), max_size=8), cuts=st.lists(st.integers(1, 7), min_size=1, max_size=40))
def test_growing_text_is_its_pieces(pieces: list[str], cuts: list[int]) -> None:
    """However it was appended and however it is read, the text is its pieces and at most one newline more."""
    text = Growing(Stamp())
    for piece in pieces:
        text.append(piece)
    said = "".join(pieces).encode()
    assert text.read_nowait(len(said), 10) is None
    text.end()
    text.end(RemoteFailed("too late"))
    expected = said + b"\n" if said and not said.endswith(b"\n") else said
    got = b""
    for size in cuts * 40:
        piece_read = text.read_nowait(len(got), size)
        assert piece_read is not None
        got += piece_read
    assert got == expected[: len(got)]
    assert text.read_nowait(len(expected), 5) == b""
    assert text.is_whole


async def test_growing_text_wakes_every_reader_once_a_change() -> None:
    """Who waits is woken by any change, and nobody who looked before waiting misses one."""
    text = Growing(Stamp())
    seen: list[bytes] = []

    async def read() -> None:
        while (piece := text.read_nowait(len(b"".join(seen)), 10)) != b"":
            if piece is None:
                await text.wait()
            else:
                seen.append(piece)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        for number in range(3):
            await wait_all_tasks_blocked()
            text.append(str(number))
        text.end()
    assert b"".join(seen) == b"012\n"


# Chat


_CHAT_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["user", "info", "error", "assistant", "reasoning", "end_block"]), st.text("ab\n", max_size=4)
    ),
    max_size=12,
)


@given(steps=_CHAT_STEPS)
def test_chat_records_stand_on_lines_of_their_own(steps: list[tuple[str, str]]) -> None:
    """Whatever is said in whatever order, each record begins a line, thoughts are closed, and nothing is lost."""
    chat = Chat(Stamp())
    said = ""
    for verb, text in steps:
        before = chat.text.peek(0, 9999).decode()
        if verb == "end_block":
            chat.end_block()
        else:
            getattr(chat, verb)(text)
            said += text
        after = chat.text.peek(0, 9999).decode()
        assert after.startswith(before)
        if verb in ("user", "error"):
            assert after.endswith("\n")
    chat.end_block()
    shown = chat.text.peek(0, 9999).decode()
    assert shown.endswith("\n") or not shown
    assert shown.count("<think>\n") == shown.count("</think>\n")
    letters = shown
    for mark in ("user: ", "error: ", ":: ", "assistant: ", "<think>\n", "</think>\n"):
        letters = letters.replace(mark, "")
    assert sorted(letters.replace("\n", "")) == sorted(said.replace("\n", ""))  # infos come after a message


def test_streamed_pieces_of_one_kind_are_one_block() -> None:
    """Pieces of an answer follow each other without a break; a thought between them is closed first."""
    chat = Chat(Stamp())
    chat.user("hi")
    for piece in ("a", "b"):
        chat.assistant(piece)
    chat.reasoning("t")
    chat.reasoning("u")
    chat.error("no")
    assert chat.text.peek(0, 999) == b"user: hi\nassistant: ab\n<think>\ntu\n</think>\nerror: no\n"


@pytest.mark.parametrize("pieces", [["\ud83d"], ["\ud83d", "\ude00"], ["a\ud800b", "\udfff"]])
def test_whatever_a_model_says_can_be_shown(pieces: list[str]) -> None:
    """Half a surrogate pair, which JSON can spell and servers that cut by UTF-16 send, does not break the chat."""
    decoder, chat, reply = StreamDecoder(title="fake"), Chat(Stamp()), Growing(Stamp())
    for piece in pieces:
        data = json.dumps({"choices": [{"delta": {"content": piece}}]})
        for delta in decoder.decode(Event(name="message", data=data)):
            assert isinstance(delta, TextDelta)
            reply.append(delta.text)
            chat.assistant(delta.text)
    reply.end()
    assert "\ud800" not in reply.peek(0, 99).decode()  # it can be decoded


# Events


def lines_of(told: bytes) -> list[dict[str, object]]:
    return [json.loads(line) for line in told.splitlines()]


def test_events_are_numbered_without_gaps() -> None:
    """Every event has the next number, its time and its kind; what is None is left out."""
    events = Events()
    for number in range(5):
        events.add("state", agent=f"né{number}", error=None)
    told = lines_of(events.after(2))
    assert [record["seq"] for record in told] == [3, 4, 5]
    assert set(told[0]) == {"seq", "ts", "type", "agent"}
    assert told[0]["agent"] == "né2"
    assert "né2".encode() in events.after(2)
    assert (events.after(5), events.after(99), events.seq) == (b"", b"", 5)


def test_late_reader_is_told_what_it_lost() -> None:
    """A reader that is further behind than is kept gets the count of what is gone and then all that is there."""
    events = Events()
    for _ in range(KEPT + 5):
        events.add("x")
    told = lines_of(events.after(2))
    assert told[0] == {"lost": 3}
    assert [record["seq"] for record in told[1:]] == list(range(6, KEPT + 6))
    assert lines_of(events.after(5))[0]["seq"] == 6
    assert lines_of(events.after(0))[0] == {"lost": 5}


async def test_events_tell_a_sessions_life(engine: Engine) -> None:
    """What happens to sessions and agents is told in order, each state change with the number that statewait uses."""
    await engine.converse("hi", "there")
    await engine.sessions.create_named("t", None)
    engine.sessions.rename("t", "u")
    engine.sessions.kill("u")
    told = lines_of(engine.sessions.events.after(0))
    kinds = [record["type"] for record in told]
    assert kinds == [
        *("session_created", "agent_created", "state", "state", "turn_finished", "state"),
        *("session_created", "agent_created", "session_renamed", "agent_killed", "session_killed"),
    ]
    states = [(record["state"], record["state_seq"]) for record in told if record["type"] == "state"]
    assert states == [("receiving", 1), ("thinking", 2), ("idle", 3)]
    assert engine.agent.seq == 3
    finished = next(record for record in told if record["type"] == "turn_finished")
    assert (finished["turn"], "error" in finished) == (1, False)


# Specs and names


@settings(deadline=None)
@given(text=st.text(max_size=60))
def test_any_spec_parses_or_is_refused(text: str) -> None:
    """No text makes the spec parser fail in another way than with a sentence, and it gives known keys alone."""
    try:
        given_keys = parse_spec(text, SESSION_KEYS)
    except Invalid:
        return
    assert set(given_keys) <= set(SESSION_KEYS)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", {}),
        ("# only a comment\n", {}),
        ("name=a cwd=/", {"name": ["a"], "cwd": ["/"]}),
        ("name=a\ncwd=/\n", {"name": ["a"], "cwd": ["/"]}),
        ("name=a \\\n cwd=/", {"name": ["a"], "cwd": ["/"]}),
        ("title='two words' env=A=1 env='B=x y'", {"title": ["two words"], "env": ["A=1", "B=x y"]}),
        ("title=a=b # rest", {"title": ["a=b"]}),
        ("title=''", {"title": [""]}),
    ],
)
def test_spec_words(text: str, values: dict[str, list[str]]) -> None:
    """A spec is key=value words quoted as in a shell, over any number of lines."""
    assert parse_spec(text, SESSION_KEYS) == values


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nam=a", "did you mean 'name'"),
        ("a", "not key=value"),
        ("name=a name=b", "twice"),
        ("=x", "no key ''"),
        ("'", "quot"),
    ],
)
def test_spec_refuses(text: str, says: str) -> None:
    """A mistake in a spec is named, with what was probably meant."""
    with pytest.raises(Invalid, match=says):
        parse_spec(text, SESSION_KEYS)


@pytest.mark.parametrize("keys", [SESSION_KEYS, AGENT_KEYS])
def test_template_names_every_key_and_is_an_empty_spec(keys: dict[str, Key]) -> None:
    """The template shows each key with its help, and written back as it is it sets nothing."""
    template = render_template(keys)
    for key in keys.values():
        assert f"# {key.name}=" in template
        assert key.help in template
    assert parse_spec(template, keys) == {}


@given(name=st.text(max_size=70))
def test_names_are_safe(name: str) -> None:
    """What passes as a name is 1 to 64 plain ASCII characters that neither shell nor path reads as anything else."""
    try:
        assert check_name(name) == name
    except Invalid:
        return
    assert 1 <= len(name) <= 64
    assert name.isascii()
    assert name[0].isalnum()
    assert not set(name) - set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


@pytest.mark.parametrize("name", ["a", "9", "A.b-c_d", "x" * 64])
def test_good_names(name: str) -> None:
    """Plain names pass."""
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", "-x", "_x", "a/b", "a b", "a\n", "x" * 65, "né", "a\0", "٣"])
def test_bad_names(name: str) -> None:
    """Names that mean something else to a path or a shell do not."""
    with pytest.raises(Invalid):
        check_name(name)


def test_made_up_names_are_names_and_sort_by_time() -> None:
    """A name left out is one that check_name takes, unlike any other, and later ones sort behind."""
    names = []
    for _ in range(50):
        names.append(check_name(unused_name()))
        before = time.time_ns()
        while time.time_ns() == before:
            pass
    assert len(set(names)) == 50
    assert names == sorted(names)


# Variables


_VALUES = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=12)


@settings(deadline=None)
@given(env=st.dictionaries(st.sampled_from(["A", "B", "_C1"]), _VALUES))
async def test_variables_that_are_accepted_are_shown_as_they_were_set(env: dict[str, str]) -> None:
    """Whatever variables are accepted, the text that `env` shows sets the very same ones."""
    try:
        accepted = parse_env([f"{key}={value}" for key, value in env.items()])
    except Invalid:
        return
    assert accepted == env
    assert await set_again(render_env(accepted)) == env


async def set_again(text: str) -> dict[str, str]:
    async with open_engine() as engine:
        await engine.session.set_env(text)
        return engine.session.env


@pytest.mark.parametrize("line", ["=1", "1=2", "A B=1", "A", "é=1", "A=\0"])
def test_bad_variables(line: str) -> None:
    """What is no KEY=VALUE is refused."""
    with pytest.raises(Invalid):
        parse_env([line])


async def test_what_is_not_there(engine: Engine) -> None:
    """What is asked of a session or an agent that is not there is NotFound."""
    with pytest.raises(NotFound):
        engine.sessions.kill("nothere")
    with pytest.raises(NotFound):
        engine.sessions.rename("nothere", "x")
    with pytest.raises(NotFound):
        engine.session.rename_agent("nothere", "x")
    with pytest.raises(NotFound):
        engine.session.kill_agent("nothere")
