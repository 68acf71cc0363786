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


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))  # type: ignore[mutable-override]  # ctypes' own protocol


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
    """Makes the calls one after the other; started with the first."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[_Call] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self.is_hung = False
        """Whether a call did not end in time and has not ended since."""

    @property
    def tid(self) -> int | None:
        """The thread's id, by which its requests are known; None before the first call."""
        return self._thread.native_id if self._thread else None

    async def call(self, function: Callable[..., object], *arguments: Any, limit_s: float) -> None:
        """Call *function* in the thread.

        Raises what it raises, and TimedOut after *limit_s*: a call that has not begun by then is never made.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="own-mount", daemon=True)
            self._thread.start()
        call = _Call(lambda: function(*arguments))
        self._calls.put(call)
        with trio.move_on_after(limit_s):
            try:
                await call.done.wait()
            finally:
                call.is_wanted = False
        self.is_hung = not call.done.is_set()
        if self.is_hung:
            raise TimedOut("the mount did not answer its own daemon in time")
        if call.error is not None:
            raise call.error

    def _run(self) -> None:
        while True:
            call = self._calls.get()
            if call.is_wanted:
                call.make()
