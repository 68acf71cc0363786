"""Sessions: where they may work, and what happens when several people make, rename and kill them at once."""

import json
import os
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from ollie_fuse.agent import Events, Places
from ollie_fuse.errors import Exists, Invalid, NotFound, OllieError
from tests.agent.scripted_provider import PRICED, UNPRICED, Engine, open_engine


async def create(engine: Engine, spec: str, outcomes: list[object], cwd: str | None = None) -> None:
    try:
        outcomes.append(await engine.sessions.create(spec, cwd))
    except OllieError as exc:
        outcomes.append(type(exc))


# Creating


async def test_spec_makes_what_it_says(tmp_path: Path) -> None:
    """A session has the directory, title, variables, backend and model of its spec, and one agent, `main`."""
    async with open_engine(UNPRICED, PRICED) as engine:
        spec = f"name=x cwd={tmp_path} title='a b' env=A=1 env=B=2 backend=priced model=m2"
        assert await engine.sessions.create(spec, None) == "x"
        session = engine.sessions.by_name["x"]
        assert (session.cwd, session.title, session.env) == (str(tmp_path), "a b", {"A": "1", "B": "2"})
        assert list(session.agents) == ["main"]
        assert (session.agents["main"].settings.backend, session.agents["main"].settings.model) == ("priced", "m2")


@pytest.mark.parametrize(
    "spec",
    [
        "name=..",
        "cwd=/not/there",
        "cwd=''",
        "backend=no",
        "model=no backend=priced",
        "env=1",
        "title='a\nb'",
        "x=1",
        "'",
    ],
)
async def test_refused_spec_makes_nothing(spec: str) -> None:
    """A spec with any mistake makes no session and tells no event."""
    async with open_engine(UNPRICED, PRICED) as engine:
        before = engine.sessions.events.seq
        with pytest.raises((Invalid, NotFound)):
            await engine.sessions.create(spec, None)
        assert (list(engine.sessions.by_name), engine.sessions.events.seq) == (["s"], before)


async def test_one_name_has_one_creator(engine: Engine) -> None:
    """Of two who create one name while the disk is asked, one gets it and the other is told that it is taken."""
    outcomes: list[object] = []
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(create, engine, "name=x", outcomes)
    assert sorted(outcomes, key=str) == [Exists, "x"]
    assert list(engine.sessions.by_name) == ["s", "x"]


async def test_reuse_takes_what_another_made_meanwhile(engine: Engine) -> None:
    """With reuse=1 nobody is refused, also when the session came while the disk was asked."""
    outcomes: list[object] = []
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(create, engine, "name=x reuse=1", outcomes)
    assert outcomes == ["x"] * 5
    assert list(engine.sessions.by_name) == ["s", "x"]


async def test_a_thousand_creators_get_a_thousand_names(engine: Engine) -> None:
    """Creators without a name never meet: each gets a session of its own."""
    outcomes: list[object] = []
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            for _ in range(1000):
                nursery.start_soon(create, engine, "", outcomes)
    assert len(set(outcomes)) == 1000
    assert set(engine.sessions.by_name) == {"s", *outcomes}


async def test_rename_onto_a_name_in_the_making(engine: Engine) -> None:
    """A name that is taken by a rename while its creator asks the disk stays with the renamed session."""
    outcomes: list[object] = []
    renamed = engine.session
    async with trio.open_nursery() as nursery:
        nursery.start_soon(create, engine, "name=x", outcomes)
        await trio.lowlevel.checkpoint()
        engine.sessions.rename("s", "x")
    assert outcomes == [Exists]
    assert engine.sessions.by_name == {"x": renamed}


async def test_kill_beside_a_creator(engine: Engine) -> None:
    """A killed session's name is free at once, also for who creates it at the same time."""
    old = engine.session
    outcomes: list[object] = []
    engine.sessions.kill("s")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(create, engine, "name=s", outcomes)
    assert outcomes == ["s"]
    assert engine.sessions.by_name["s"] is not old
    assert not engine.agent.is_alive


async def test_cancelled_creator_makes_nothing(engine: Engine) -> None:
    """A creator that is gone before the disk has answered leaves no session behind."""
    with trio.CancelScope() as scope:
        scope.cancel()
        await engine.sessions.create("name=x", None)
    await wait_all_tasks_blocked()
    assert list(engine.sessions.by_name) == ["s"]


async def test_killed_session_takes_no_agents(engine: Engine) -> None:
    """In a session that was killed no agent can be made any more, by an open `new` or by mkdir."""
    engine.sessions.kill("s")
    with pytest.raises(NotFound):
        await engine.sessions.create_agent(engine.session, "name=late")
    with pytest.raises(NotFound):
        engine.sessions.create_named_agent(engine.session, "late")
    assert engine.session.agents == {}


async def test_agents_of_one_session(engine: Engine) -> None:
    """Agents are made by spec or by name, a taken name is refused or, with reuse=1, taken as it is."""
    name = await engine.sessions.create_agent(engine.session, "")
    assert await engine.sessions.create_agent(engine.session, f"name={name} reuse=1") == name
    for spec in (f"name={name}", "name=main reuse=0"):
        with pytest.raises(Exists):
            await engine.sessions.create_agent(engine.session, spec)
    with pytest.raises(Exists):
        engine.sessions.create_named_agent(engine.session, "main")
    for spec in ("name=a/b", "cwd=/", "backend=no"):
        with pytest.raises(Invalid):
            await engine.sessions.create_agent(engine.session, spec)
    assert list(engine.session.agents) == ["main", name]


async def test_session_state_is_that_of_its_agents(engine: Engine) -> None:
    """A session is idle only when all its agents are."""
    engine.sessions.create_named_agent(engine.session, "second")
    assert engine.session.state == "idle"
    await engine.prompt("hi", engine.session.agents["second"])
    assert engine.session.state == "thinking"
    engine.session.kill_agent("second")
    assert engine.session.state == "idle"


async def test_killing_one_session_leaves_the_others(engine: Engine) -> None:
    """A turn in one session goes on when another is killed."""
    await engine.sessions.create_named("other", None)
    exchange = await engine.prompt("hi")
    call = await engine.next_call()
    engine.sessions.kill("other")
    call.say("fine")
    call.finish()
    await wait_all_tasks_blocked()
    assert exchange.reply.is_whole


# Where


async def test_working_directories(tmp_path: Path) -> None:
    """A directory is taken as it is, relative to the caller's, and from `~` on; anything else is refused."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "file").touch()
    places = Places(home=str(tmp_path))
    assert await places.check_cwd("/usr") == "/usr"
    assert await places.check_cwd("~") == str(tmp_path)
    assert await places.check_cwd("~/sub") == str(tmp_path / "sub")
    assert await places.check_cwd("sub", str(tmp_path)) == str(tmp_path / "sub")
    for path in ("", "sub", "a\0b", "~root"):
        with pytest.raises(Invalid):
            await places.check_cwd(path)
    for path in ("/not/there", str(tmp_path / "file"), "~/nothere"):
        with pytest.raises(NotFound):
            await places.check_cwd(path)


@pytest.mark.parametrize("path", ["/" + "x" * 300, "/x" * 3000])
async def test_impossible_path_is_refused(tmp_path: Path, path: str) -> None:
    """A path that is too long for the system is refused like any other that is not there, or with its errno."""
    with pytest.raises((OllieError, OSError)):
        await Places(home=str(tmp_path)).check_cwd(path)


@pytest.mark.parametrize(
    "path", ["ollie", "ollie/session", "./ollie", "sub/../ollie", "ollie/../ollie/x", "link/session"]
)
async def test_our_own_mount_becomes_home(tmp_path: Path, path: str) -> None:
    """A directory inside our own mount becomes home, however its path is spelled."""
    mount = tmp_path / "ollie"
    (mount / "session").mkdir(parents=True)
    (mount / "x").mkdir()
    (tmp_path / "sub").mkdir()
    (tmp_path / "link").symlink_to(mount)
    places = Places(home=str(tmp_path), mounts=(str(mount),))
    assert await places.check_cwd(f"{tmp_path}/{path}") == str(tmp_path)
    assert await places.check_cwd(path, str(tmp_path)) == str(tmp_path)


async def test_directory_whose_name_is_not_utf8(tmp_path: Path) -> None:
    """Who stands in a directory whose name is not UTF-8 gets a session that can be shown, or a refusal and none."""
    place = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    os.mkdir(place)
    async with open_engine() as engine:
        before = engine.sessions.events.seq
        try:
            await engine.sessions.create_named("x", place)
        except OllieError:
            assert list(engine.sessions.by_name) == ["s"]
            assert engine.sessions.events.seq == before
        else:
            assert os.fsencode(engine.sessions.by_name["x"].cwd) == os.fsencode(place)
            assert list(engine.sessions.by_name["x"].agents) == ["main"]


def test_event_is_told_whole_or_not_at_all() -> None:
    """An event that cannot be written uses up no number, so that no reader believes to have lost one."""
    events = Events()
    for text in ("fine", "\udcff", "fine"):
        try:
            events.add("x", text=text)
        except UnicodeEncodeError:
            continue
    told = [json.loads(line)["seq"] for line in events.after(0).splitlines()]
    assert told == list(range(1, events.seq + 1))
