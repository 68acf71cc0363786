"""The tables of commands and what their lines do: what is shown can be written back, what is refused does nothing."""

import contextlib
import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from ollie_fuse.agent import (
    AGENT_VERBS,
    QUEUE_VERBS,
    SESSION_VERBS,
    Settings,
    Verb,
    is_command,
    names_of,
    render_ctl,
    render_session_ctl,
    run_agent_lines,
    run_session_lines,
)
from ollie_fuse.agent.settings import SAMPLING, parse_sampling, render_settings
from ollie_fuse.agent.verbs import parse_lines
from ollie_fuse.config import BackendConfig
from ollie_fuse.errors import Busy, Exists, Invalid, NotFound
from ollie_fuse.providers import Sampling
from tests.agent.scripted_provider import PRICED, UNPRICED, Engine, open_engine

TABLES: dict[str, dict[str, Verb]] = {  # type: ignore[type-arg]  # verbs of any subject
    "agent": AGENT_VERBS,
    "queue": QUEUE_VERBS,
    "session": SESSION_VERBS,
}
ROWS = [(key, verb) for table in TABLES.values() for key, verb in table.items()]


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_help_lists_every_verb_once(table: dict[str, Verb]) -> None:  # type: ignore[type-arg]
    """Help names each verb once, aliases apart, each with a sentence of its own on one line."""
    verbs = list({verb.name: verb for verb in table.values()}.values())
    assert names_of(table) == [verb.name for verb in verbs]
    assert len({verb.help for verb in verbs}) == len(verbs)
    for verb in verbs:
        assert verb.help.strip() == verb.help != ""
        assert "\n" not in verb.help + verb.usage


@pytest.mark.parametrize(("key", "verb"), ROWS, ids=[key for key, _ in ROWS])
def test_arity(key: str, verb: Verb) -> None:  # type: ignore[type-arg]
    """Every verb, in any case and with a slash, takes its least to its most words, and refuses any other number."""
    table = next(table for table in TABLES.values() if table.get(key) is verb)
    least, most = verb.arity
    assert 0 <= least <= most
    for count in range(most + 2):
        for name in (key, f"/{key}", key.upper(), f"  {verb.name}"):
            line = " ".join([name, *["word"] * count])
            if least <= count <= most or (verb.takes_text and count):
                [(number, command)] = parse_lines(line, table)
                assert (number, command.verb) == (1, verb)
                assert len(command.arguments) == (min(count, 1) if verb.takes_text else count)
            else:
                with pytest.raises(Invalid, match=f"usage: {verb.name}"):
                    parse_lines(line, table)


def test_words_are_a_shells() -> None:
    """Arguments are split and quoted as in a shell, by spaces and by tabs."""
    for line in ("rename a", "rename 'a'", 'rename "a"', "rename  a ", "rename\ta", "\trename \t a\r"):
        [(_, command)] = parse_lines(line, AGENT_VERBS)
        assert command.arguments == ("a",), line


def test_text_is_taken_raw() -> None:
    """What a verb takes as text is not split, unquoted or cut at any mark."""
    for text in ("it's", "a  b", 'say "x', "a # b", "a\\b", "a\x0cb", "a\u2028b", "a\x85b"):
        [(_, command)] = parse_lines(f"title {text}\n", SESSION_VERBS)
        assert command.arguments == (text,)


def test_blank_lines_and_comments_do_nothing() -> None:
    """Blank lines and comments are counted and passed over."""
    parsed = parse_lines("\n# temperature 9\n  \nstop\n   # x\nresume", AGENT_VERBS)
    assert [(number, command.verb.name) for number, command in parsed] == [(4, "stop"), (6, "resume")]
    assert parse_lines("", AGENT_VERBS) == []


@settings(deadline=None)
@given(text=st.text(max_size=60))
def test_any_text_parses_or_is_refused(text: str) -> None:
    """No text makes the parser fail in another way than with a sentence."""
    for table in TABLES.values():
        with contextlib.suppress(Invalid):
            parse_lines(text, table)


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("/model x", True),
        ("/stop", True),
        ("/nosuch a/b", True),
        ("!ls /", True),
        ("/", True),
        ("/etc/passwd", False),
        ("//x", False),
        (" /stop", False),
        ("/stop\nx", False),
        ("stop", False),
        ("", False),
    ],
)
def test_what_is_a_command(text: str, is_one: bool) -> None:
    """A prompt is a command by its first character alone, unless it is a path or has a second line."""
    assert is_command(text) is is_one


# Settings


def test_each_sampling_parameter_has_its_verb() -> None:
    """What can be sent can be set: verbs, table and request agree."""
    fields = {field.name for field in dataclasses.fields(Sampling)}
    assert {parameter.field for parameter in SAMPLING.values()} == fields
    assert set(SAMPLING) <= set(names_of(AGENT_VERBS))


_ROW = st.sampled_from(sorted(SAMPLING))


@settings(deadline=None)
@given(name=_ROW, number=st.one_of(st.floats(allow_nan=True), st.integers(-(10**20), 10**20), st.integers(0, 1 << 24)))
def test_what_is_accepted_is_shown_as_it_was_set(name: str, number: float) -> None:
    """A number that is accepted is shown by a line that sets the very same one; any other is refused."""
    try:
        sampling = parse_sampling(name, str(number), Sampling())
    except Invalid:
        return
    shown = dict(
        line.split(" ", 1) for line in render_settings(Settings(backend="b", model="m", sampling=sampling)).splitlines()
    )
    assert parse_sampling(name, shown[name], Sampling()) == sampling


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "", "x", "1e999", "9" * 400, "9" * 5000, "0x1", "1;2"])
@pytest.mark.parametrize("name", SAMPLING)
def test_no_number_is_refused(name: str, value: str) -> None:
    """What is no number, or no number that a computer likes, is refused with a sentence."""
    with pytest.raises(Invalid, match=name):
        parse_sampling(name, value, Sampling())


@pytest.mark.parametrize("name", SAMPLING)
def test_default_leaves_a_parameter_to_the_provider(name: str) -> None:
    """`default` takes a setting back, and the limits themselves are in range."""
    row = SAMPLING[name]
    for limit in (row.low, row.high):
        sampling = parse_sampling(name, f"{limit:.0f}", Sampling())
        assert getattr(sampling, row.field) == limit
        assert parse_sampling(name, "default", sampling) == Sampling()


async def test_ctl_text_written_back_changes_nothing() -> None:
    """What ctl shows sets what there is, whatever the names: with spaces, quotes, or none at all."""
    odd = BackendConfig.model_validate({"section": "my backend's", "model": "a model 'x'"})
    silent = BackendConfig.model_validate({"section": "silent"})
    async with open_engine(odd, silent) as engine:
        for backend in engine.sessions.backends:
            engine.agent.set_settings(Settings(backend=backend.name, model=backend.default_model))
            before = engine.agent.settings
            await run_agent_lines(engine.agent, render_ctl(engine.agent))
            assert engine.agent.settings == before


@settings(deadline=None, max_examples=50)
@given(
    title=st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\0"), max_size=20),
    value=st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\0"), max_size=20),
)
async def test_session_ctl_text_written_back_changes_nothing(title: str, value: str) -> None:
    """What a session's ctl shows sets what there is, whatever characters its title and variables hold."""
    async with open_engine() as engine:
        session = engine.session
        await session.set_title(title)
        session.env = {"KEY": value}
        await run_session_lines(engine.sessions, session, render_session_ctl(session))
        assert (session.title, session.env, session.cwd) == (title, {"KEY": value}, "/tmp")


async def test_refused_line_leaves_the_settings(engine: Engine) -> None:
    """A text with a line that does not parse does nothing; one that fails takes the settings back, and says where."""
    before = engine.agent.settings
    for text in ("temperature 1\nbogus\n", "temperature 1\ntemperature", "temperature 1\nmodel 'x"):
        with pytest.raises(Invalid, match=r"line 2: .*nothing was done"):
            await run_agent_lines(engine.agent, text)
    for text in ("temperature 3", "model a b", "backend nothere", "maxTokens 0"):
        with pytest.raises(Invalid):
            await run_agent_lines(engine.agent, text)
    assert engine.agent.settings == before
    assert len(engine.agent.chat.text) == 0
    with pytest.raises(Invalid, match="line 2: temperature goes from"):
        await run_agent_lines(engine.agent, "topP 0.5\ntemperature 3\nmaxTokens 5\n")
    assert engine.agent.settings == before


async def test_settings_reach_the_next_call() -> None:
    """What was set is what the next call carries, and a change in a turn waits for the next."""
    async with open_engine(UNPRICED, PRICED) as engine:
        await run_agent_lines(engine.agent, "backend priced\nmodel m2\ntemperature 0.5\nmaxTokens 7\n")
        await engine.prompt("hi")
        call = await engine.next_call()
        assert (call.request.model, call.request.sampling) == ("m2", Sampling(temperature=0.5, max_tokens=7))
        await run_agent_lines(engine.agent, "model m")
        call.say("x")
        call.finish()
        await engine.prompt("on")
        assert (await engine.next_call()).request.model == "m"
        with pytest.raises(Invalid, match="it has m, m2"):
            await run_agent_lines(engine.agent, "model m3")


@pytest.mark.parametrize("verb", dict.fromkeys(AGENT_VERBS.values()), ids=names_of(AGENT_VERBS))
async def test_busy_in_a_turn(engine: Engine, verb: Verb) -> None:  # type: ignore[type-arg]
    """In a turn a verb either works or is EBUSY with a sentence, by its row; afterwards it works."""
    words = {"backend": "unpriced", "model": "m", "cwd": "/", "rename": "other"}
    line = f"{verb.name} {words.get(verb.name, '1')}" if verb.arguments else verb.name
    await engine.prompt("hi")
    call = await engine.next_call()
    before = engine.agent.settings
    if not verb.is_allowed_in_turn:
        with pytest.raises(Busy, match=verb.name):
            await run_agent_lines(engine.agent, line)
        assert engine.agent.settings == before
        call.say("x")
        call.finish()
        await wait_all_tasks_blocked()
    await run_agent_lines(engine.agent, line)


def test_what_changes_the_running_turns_ground_is_busy() -> None:
    """The verbs that wait for the end of a turn are backend, clear and the sampling parameters."""
    waiting = {verb.name for verb in AGENT_VERBS.values() if not verb.is_allowed_in_turn}
    assert waiting == {"backend", "clear", *SAMPLING}


async def test_clear_empties_the_history_and_keeps_chat(engine: Engine) -> None:
    """After `clear` the next call carries nothing of before, while chat still shows it."""
    await engine.converse("one", "first")
    assert await run_agent_lines(engine.agent, "clear") == "the history is empty\n"
    await engine.prompt("two")
    assert (await engine.next_call()).said == [("user", "two")]
    assert engine.agent.chat.text.peek(0, 999).startswith(b"user: one\nassistant: first\n:: clear: the history")


# What a ctl belongs to


async def test_ctl_of_the_dead_does_not_touch_a_namesake(engine: Engine) -> None:
    """`kill` and `rename` act on the agent that the ctl belongs to: killed, they fail, and its namesake lives."""
    old = engine.agent
    engine.session.kill_agent("main")
    engine.sessions.create_named_agent(engine.session, "main")
    for line in ("rename other", "kill"):
        with pytest.raises(NotFound):
            await run_agent_lines(old, line)
        assert list(engine.session.agents) == ["main"]
        assert engine.session.agents["main"].is_alive


async def test_session_ctl_of_the_dead_does_not_touch_a_namesake(engine: Engine) -> None:
    """`kill` and `rename` of a killed session fail, and a new session of its name lives."""
    old = engine.session
    engine.sessions.kill("s")
    await engine.sessions.create_named("s", None)
    for line in ("rename other", "kill"):
        with pytest.raises(NotFound):
            await run_session_lines(engine.sessions, old, line)
        assert list(engine.sessions.by_name) == ["s"]


async def test_rename_of_an_agent(engine: Engine) -> None:
    """A renamed agent keeps its place and its work; a taken or impossible name is refused."""
    engine.sessions.create_named_agent(engine.session, "second")
    exchange = await engine.prompt("hi")
    await run_agent_lines(engine.agent, "rn first\nrename first")
    assert list(engine.session.agents) == ["first", "second"]
    with pytest.raises(Exists):
        await run_agent_lines(engine.agent, "rename second")
    for name in ("..", "''", "a/b", "'a b'", "x" * 65):
        with pytest.raises(Invalid):
            await run_agent_lines(engine.agent, f"rename {name}")
    call = await engine.next_call()
    call.say("x")
    call.finish()
    await wait_all_tasks_blocked()
    assert exchange.reply.is_whole
