"""A child process: what it prints comes back, and nothing of its group is left."""

import os
import signal
import sys
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from ollie_fuse.child import Child, ChildFailed, open_child, run_child

STUBBORN = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(os.getpid(), flush=True)
time.sleep(60)
"""
"""Tells its pid once it ignores SIGTERM."""
ARGV = [sys.executable, "-S", "-c", STUBBORN]


async def pid_told_by(child: Child) -> int:
    with trio.fail_after(5):
        return int(await child.stdout.receive_some())


async def wait_gone(pid: int) -> None:
    """Wait until a process that is not ours to reap has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        with trio.fail_after(5):
            await trio.lowlevel.wait_readable(descriptor)
    finally:
        os.close(descriptor)


async def test_output_and_status() -> None:
    """Both outputs come back in their order, with the exit status; bytes that are no text do not hurt."""
    done = await run_child(["sh", "-c", r"echo one; echo two >&2; printf '\377\n'; exit 3"], timeout_s=5)
    assert (done.status, done.text) == (3, "one\ntwo\n\ufffd\n")
    killed = await run_child(["sh", "-c", "kill -9 $$"], timeout_s=5)
    assert killed.status == -signal.SIGKILL


async def test_output_is_capped() -> None:
    """A child that prints without end of reason is heard to its end, and its first MiB is kept."""
    done = await run_child(["sh", "-c", "yes 2>/dev/null | head -c 3000000; echo end >&2; exit 4"], timeout_s=10)
    assert (done.status, len(done.text)) == (4, 1 << 20)


async def test_missing_program() -> None:
    """A program that is not there is a sentence that names it."""
    with pytest.raises(ChildFailed, match="/not/there cannot be started: No such file"):
        await run_child(["/not/there"], timeout_s=5)


async def test_child_is_alone(tmp_path: Path) -> None:
    """A child has a group and a session of its own, empty input, and only the three standard descriptors."""
    with (tmp_path / "held").open("w", encoding="utf-8") as held:
        os.set_inheritable(held.fileno(), True)
        code = (
            "import os, sys; print(os.getpgrp() == os.getsid(0) == os.getpid(), repr(sys.stdin.read()),"
            " [fd for fd in range(3, 256) if os.path.exists(f'/proc/self/fd/{fd}')], sorted(os.environ))"
        )
        done = await run_child([sys.executable, "-S", "-c", code], timeout_s=5, env={"A": "1", "LC_ALL": "C.UTF-8"})
    assert done.text == "True '' [] ['A', 'LC_ALL']\n"


async def test_timeout_ends_the_group(tmp_path: Path) -> None:
    """A child that does not end in time is an error that says so, and is gone with its own children."""
    pid = tmp_path / "pid"
    with pytest.raises(ChildFailed, match=r"sh did not end within 0\.2 s"):
        await run_child(["sh", "-c", f"sleep 60 & echo $! > {pid}; wait"], timeout_s=0.2)
    await wait_gone(int(await trio.Path(pid).read_text(encoding="utf-8")))


async def test_leaving_ends_a_grandchild_that_ignores_sigterm() -> None:
    """When the context is left, what the child started is gone too, though it ignores SIGTERM."""
    async with open_child(["sh", "-c", '"$@" & wait', "sh", *ARGV], stdout="pipe") as child:
        grandchild = await pid_told_by(child)
        assert os.getpgid(grandchild) == child.pid != grandchild
    await wait_gone(grandchild)
    with pytest.raises(ProcessLookupError):
        os.kill(child.pid, 0)


async def test_cancellation_ends_the_group() -> None:
    """A cancelled owner leaves nothing behind, and is cancelled all the same."""
    with trio.CancelScope() as scope:
        async with open_child(["sh", "-c", '"$@" & wait', "sh", *ARGV], stdout="pipe") as child:
            grandchild = await pid_told_by(child)
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    await wait_gone(grandchild)


async def test_child_that_left_children_ends_them() -> None:
    """A child that ended by itself takes with it what it left in its group."""
    async with open_child(["sh", "-c", '"$@" & exit 5', "sh", *ARGV], stdout="pipe") as child:
        grandchild = await pid_told_by(child)
        assert await child.wait() == 5
    await wait_gone(grandchild)


def test_child_that_ignores_sigterm_is_killed() -> None:
    """A child that ignores SIGTERM has its grace and is then killed, and reaped."""

    async def main() -> int:
        async with open_child(ARGV, stdout="pipe") as child:
            assert await pid_told_by(child) == child.pid
        return child.pid

    # The grace runs ten times as fast here.
    pid = trio.run(main, clock=MockClock(rate=10))
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_streams() -> None:
    """What is written to a child's input comes back by its output, and closing the input ends it."""
    async with open_child(["cat"], stdin="pipe", stdout="pipe") as child:
        await child.stdin.send_all(b"hello")
        assert await child.stdout.receive_some() == b"hello"
        await child.stdin.aclose()
        assert await child.wait() == 0
