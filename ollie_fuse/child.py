"""One child process in a group of its own, ended with the scope that opened it.

No PDEATHSIG: it fires when the *thread* that forked ends, and trio's worker threads end after ten idle seconds. A child
that must not outlive a killed daemon watches its standard input, a pipe whose other end dies with the daemon.
"""

import os
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Literal

import trio

from ollie_fuse.errors import OllieError

GRACE_S = 2.0
"""How long a group has between SIGTERM and SIGKILL."""


class ChildFailed(OllieError):
    """A child process could not be started or did not do what it was asked."""


class Child:
    """A running child process; its group has the child's pid."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        """The process's id, and its group's."""
        return self._process.pid

    @property
    def stdin(self) -> trio.abc.SendStream:
        """The writing end of the child's standard input; only with ``stdin="pipe"``."""
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def stdout(self) -> trio.abc.ReceiveStream:
        """The reading end of the child's standard output; only with ``stdout="pipe"``."""
        assert self._process.stdout is not None
        return self._process.stdout

    async def wait(self) -> int:
        """Wait for the end; return the exit status, negative for a signal as in ``subprocess``."""
        return await self._process.wait()


@asynccontextmanager
async def open_child(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    stdin: Literal["pipe", "null"] = "null",
    stdout: Literal["pipe", "null", "inherit"] = "null",
    stderr: Literal["null", "inherit", "stdout"] = "inherit",
) -> AsyncIterator[Child]:
    """Start *argv*; on leaving, also by cancellation, end its whole group and wait for it.

    Only the three standard descriptors are inherited, so a child never holds /dev/fuse open. Raises ChildFailed when it
    cannot be started.
    """
    streams = {
        "pipe": subprocess.PIPE,
        "null": subprocess.DEVNULL,
        "inherit": None,
        "stdout": subprocess.STDOUT,
    }
    try:
        process = await trio.lowlevel.open_process(
            list(argv),
            stdin=streams[stdin],
            stdout=streams[stdout],
            stderr=streams[stderr],
            env=env,
            cwd=cwd,
            start_new_session=True,
        )
    except OSError as exc:
        raise ChildFailed(f"{argv[0]} cannot be started: {exc.strerror}") from exc
    async with AsyncExitStack() as stack:
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                await stack.enter_async_context(stream)
        stack.push_async_callback(_end_group, process)
        yield Child(process)


async def _end_group(process: trio.Process) -> None:
    """SIGTERM, then SIGKILL what is left of the group; shielded, but for GRACE_S and the kernel's own time only."""
    with trio.CancelScope(shield=True):
        _signal_group(process.pid, signal.SIGTERM)
        with trio.move_on_after(GRACE_S):
            await process.wait()
        _signal_group(process.pid, signal.SIGKILL)  # also what the leader left behind
        with trio.move_on_after(GRACE_S):
            await process.wait()


def _signal_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except (
        ProcessLookupError,
        PermissionError,
    ):  # PermissionError: only zombies are left (macOS, some sandboxes)
        return


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What a child that was run to its end left."""

    status: int
    text: str
    """Standard output and standard error together, in the order written; undecodable bytes replaced."""


async def run_child(argv: Sequence[str], *, timeout_s: float, env: Mapping[str, str] | None = None) -> Output:
    """Run *argv* to its end and return what it printed, at most 1 MiB of it.

    Raises ChildFailed when it cannot be started or has not ended after *timeout_s*; then its group is killed.
    """
    printed = bytearray()
    with trio.move_on_after(timeout_s) as scope:
        async with open_child(argv, env=env, stdout="pipe", stderr="stdout") as child:
            async for piece in child.stdout:
                printed += piece[: (1 << 20) - len(printed)]
            status = await child.wait()
    if scope.cancelled_caught:
        raise ChildFailed(f"{argv[0]} did not end within {timeout_s:g} s")
    return Output(status=status, text=printed.decode(errors="replace"))
