"""System calls on our own mount, made by a thread that nothing ever waits for without a limit.

The event loop serves the mount, so it must never touch it. The kernel raises inotify events only for what goes
through the mount, so some changes of our own have to. The thread is a daemon thread of its own: trio's would be
waited for at the end.
"""

import ctypes
import os
import queue
import threading
from collections.abc import Callable
from typing import Any

import trio

from ollie_fuse.errors import TimedOut

_UTIME_NOW = (1 << 30) - 1  # utimensat(2)
_UTIME_OMIT = (1 << 30) - 2
_AT_FDCWD = -100
_MOST_HUNG = 8
"""How many threads may hang before no more are started."""


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))  # type: ignore[mutable-override]  # ctypes'


def touch(path: str) -> None:
    """Set the modification time alone to now: with both times inotify(7) would say ATTRIB instead of MODIFY."""
    libc = ctypes.CDLL(None, use_errno=True)
    times = (_Timespec * 2)(_Timespec(0, _UTIME_OMIT), _Timespec(0, _UTIME_NOW))
    if libc.utimensat(_AT_FDCWD, os.fsencode(path), times, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)


class _Call:
    """One call in the queue; it is made only if its caller still waits."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.act = act
        self.is_wanted = True
        self.done = trio.Event()
        self.error: OSError | None = None
        self._token = trio.lowlevel.current_trio_token()

    def make(self) -> None:
        try:
            self.act()
        except OSError as exc:
            self.error = exc
        try:
            self._token.run_sync_soon(self.done.set)
        except trio.RunFinishedError:
            return  # the daemon ended meanwhile


class MountThread:
    """Makes calls one after the other, in a thread that is started with the first and replaced when one hangs."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[_Call] | None = None
        self._hung = 0
        self.tids: set[int] = set()
        """The threads that were ever started: what they asked of the mount may still arrive."""

    @property
    def is_hung(self) -> bool:
        """Whether so many calls hang that no more are made."""
        return self._hung >= _MOST_HUNG

    async def call(self, function: Callable[..., object], *arguments: Any, limit_s: float) -> None:
        """Call *function* in the thread.

        Raises what it raises, and TimedOut after *limit_s*: a call that has not begun by then is never made, and
        one that has is left behind with its thread.
        """
        if self.is_hung:
            raise TimedOut("the mount does not answer its own daemon")
        calls = self._calls or self._start()
        call = _Call(lambda: function(*arguments))
        calls.put(call)
        with trio.move_on_after(limit_s):
            try:
                await call.done.wait()
            finally:
                call.is_wanted = False
        if not call.done.is_set():
            if self._calls is calls:
                self._calls = None
                self._hung += 1
            raise TimedOut("the mount did not answer its own daemon in time")
        if call.error is not None:
            raise call.error

    def _start(self) -> "queue.SimpleQueue[_Call]":
        calls = self._calls = queue.SimpleQueue[_Call]()
        started = threading.Event()
        threading.Thread(target=self._run, args=(calls, started), name="own-mount", daemon=True).start()
        started.wait()  # for its id: the next request may be its
        return calls

    def _run(self, calls: "queue.SimpleQueue[_Call]", started: threading.Event) -> None:
        self.tids.add(threading.get_native_id())
        started.set()
        while True:
            call = calls.get()
            if call.is_wanted:
                call.make()
            if self._calls is not calls:  # replaced, while that call hung
                self._hung -= 1
                return
