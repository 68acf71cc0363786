"""No file's content changes without its stamp: the kernel keeps attributes until it is told."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from trio.testing import wait_all_tasks_blocked

from ollie_fuse.agent import Verb, run_agent_lines, run_queue_lines, run_session_lines
from ollie_fuse.nodes import Directory, File, Opening
from ollie_fuse.stamp import Stamp
from ollie_fuse.tree import Root, build_tree
from tests.agent.scripted_provider import Engine, open_engine
from tests.nodes.door import Person, never_wait

Step = Callable[[Engine], Awaitable[object]]


async def _chatter(engine: Engine) -> None:
    await engine.prompt("two")
    call = await engine.next_call()
    call.say("part")
    await wait_all_tasks_blocked()


async def _finish(engine: Engine) -> None:
    call = engine.calls[-1]
    call.count(10, 3)
    call.finish()
    await wait_all_tasks_blocked()


async def _fail(engine: Engine) -> None:
    await engine.prompt("/nothere")
    await engine.prompt("three")
    await engine.prompt("four")
    (await engine.next_call()).fail(ValueError("bug"))
    await wait_all_tasks_blocked()


async def _stop(engine: Engine) -> None:
    await engine.prompt("five")
    engine.agent.stop()
    await wait_all_tasks_blocked()


async def _reload(engine: Engine) -> None:
    engine.sessions.backends.default.note_trouble("down")


STEPS: list[Step] = [
    _chatter,
    lambda engine: run_agent_lines(engine.agent, "model other"),
    _finish,
    _fail,
    _stop,
    lambda engine: run_agent_lines(engine.agent, "resume"),
    _finish,
    _stop,
    lambda engine: run_queue_lines(engine.agent, "clear"),
    lambda engine: engine.session.set_title("a title"),
    lambda engine: engine.session.set_env("A=1"),
    lambda engine: run_session_lines(engine.sessions, engine.session, "cwd /usr"),
    lambda engine: engine.sessions.create("name=other title=x", "/tmp"),
    lambda engine: engine.sessions.create_agent(engine.session, "name=second"),
    lambda engine: run_agent_lines(engine.agent, "rename first"),
    lambda engine: run_session_lines(engine.sessions, engine.session, "rename renamed"),
    _reload,
    lambda engine: run_agent_lines(engine.agent, "clear"),
    lambda engine: run_agent_lines(engine.session.agents["second"], "kill"),
]


async def _content(file: File) -> bytes:
    if file.may_wait_for_ever:
        handle = await file.open_to_look()
    else:
        handle = await file.open(Opening(read=True, write=False), Person())
    told, data = (await file.attributes()).size, b""
    try:
        while len(data) < told and (piece := await handle.read(len(data), 1 << 20, never_wait)):
            data += piece
    except BaseException as exc:  # noqa: BLE001  # an unfinished or failed stream: what it gives is all that counts
        data += repr(type(exc)).encode()
    await handle.release()
    return b"%d %b" % (told, data)


async def _walk(directory: Directory, path: str = "") -> dict[str, File]:
    files: dict[str, File] = {}
    for name, node in await directory.entries():
        if isinstance(node, Directory):
            files |= await _walk(node, f"{path}/{name}")
        else:
            assert isinstance(node, File)
            files[f"{path}/{name}"] = node
    return files


@pytest.mark.logs_warnings
async def test_every_change_is_told(tmp_path: Path) -> None:
    """After each step of a busy life, every file that gives something else has told its watchers so."""
    async with open_engine() as engine:
        no_verbs: dict[str, Verb[Root]] = {}
        root = Root(
            sessions=engine.sessions,
            config=tmp_path,
            status=lambda: "",
            verbs=no_verbs,
            settings=lambda: "",
            settings_changed=Stamp(),
            started=Stamp(),
        )
        tree = build_tree(root)
        told: set[str] = set()
        watched: dict[File, str] = {}
        for number, step in enumerate(STEPS):
            before = {path: (file, await _content(file)) for path, file in (await _walk(tree)).items()}
            for path, (file, _) in before.items():
                if file.is_watchable and file not in watched:
                    watched[file] = path
                    file.watch(lambda file=file: told.add(watched[file]))  # type: ignore[misc]
                watched[file] = path
            told.clear()
            await step(engine)
            for path, file in (await _walk(tree)).items():
                if path in before and before[path][0] is file and file.is_watchable:
                    is_changed = await _content(file) != before[path][1]
                    assert not is_changed or path in told, f"step {number}: {path} changed unheard"
