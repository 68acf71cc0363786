"""What is done through the mount is done exactly once, whatever the mount does."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

from ollie_fuse.errors import Exists, TimedOut
from ollie_fuse.ops import OwnMount
from ollie_fuse.ops.mount_thread import MountThread


class BlindDoor:
    """A door that knows no file."""

    def __init__(self) -> None:
        self.dropped: list[Sequence[str]] = []

    def names_of(self, inode: int) -> list[str] | None:
        return None

    def is_busy(self, inode: int) -> bool:
        return False

    def drop_name(self, names: Sequence[str]) -> None:
        self.dropped.append(names)


@asynccontextmanager
async def running(place: Path, door: BlindDoor | None = None) -> AsyncIterator[OwnMount]:
    """A plain folder in the mount's place: calls work there, but nothing of them ever arrives at a door."""
    own = OwnMount(place)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(own.run_touches, door or BlindDoor())
        await trio.testing.wait_all_tasks_blocked()
        yield own
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("is_there", [False, True])
async def test_act_is_done_though_nothing_arrives(tmp_path: Path, is_there: bool) -> None:
    """Whether the system call goes well or not, what was wanted is done, once, and no name outlives what it named."""
    done: list[str] = []
    door = BlindDoor()
    if is_there:
        (tmp_path / "a").mkdir()
    async with running(tmp_path, door) as own:
        await own.make(["a"], lambda: done.append("make"))
        await own.move(["a"], "b", lambda: done.append("move"))
        await own.remove(["b"], lambda: done.append("remove"))
    assert done == ["make", "move", "remove"]
    assert door.dropped == [["a"], ["b"]]


async def test_act_that_arrives_is_not_done_again(tmp_path: Path) -> None:
    """What the door did when the request arrived is not repeated by who sent it."""
    done: list[str] = []
    async with running(tmp_path) as own:

        def act() -> None:
            done.append("act")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(own.make, ["a"], act)
            while not done:  # stand in for the door, in whichever step the request is under way
                own.arrived()
                await trio.lowlevel.checkpoint()
    assert done == ["act"]


async def test_refusal_reaches_who_asked(tmp_path: Path) -> None:
    """An act that refuses is refused to its caller, with or without a mount."""

    def refuse() -> None:
        raise Exists("no")

    with pytest.raises(Exists):
        await OwnMount(tmp_path).make(["a"], refuse)
    async with running(tmp_path) as own:
        with pytest.raises(Exists):
            await own.make(["a"], refuse)


async def test_hung_call_is_left_behind() -> None:
    """A call that hangs is an error after its time and leaves its thread behind; others are made by another."""
    thread, gate = MountThread(), trio.Event()
    token = trio.lowlevel.current_trio_token()
    made: list[str] = []

    def hang() -> None:
        trio.from_thread.run(gate.wait, trio_token=token)

    with pytest.raises(TimedOut):
        await thread.call(hang, limit_s=0.05)
    await thread.call(lambda: made.append("next"), limit_s=5)
    assert made == ["next"]
    assert len(thread.tids) == 2
    for _ in range(7):
        with pytest.raises(TimedOut):
            await thread.call(hang, limit_s=0.01)
    assert thread.is_hung
    gate.set()
    with trio.fail_after(5):
        while thread.is_hung:
            await trio.testing.wait_all_tasks_blocked(0.01)
    await thread.call(lambda: made.append("last"), limit_s=5)
    assert made == ["next", "last"]
