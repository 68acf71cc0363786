"""Keeps a request that vanished from stopping the whole daemon.

pyfuse3 reads /dev/fuse when it is readable, and blocking. A request whose sender is killed before it was read is
taken out of the queue again, so between the two there may be nothing left, and the event loop then stands in
read(2) until the next request comes; seen with sixty readers that are killed together. A signal ends that read:
pyfuse3 goes on after EINTR. So while there is something to do SIGALRM comes ten times a second, and not while the
daemon is idle.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_TICK_S = 0.1


class StallGuard:
    """Ticks from the first ``note`` on until a tick finds that there was none since the last."""

    def __init__(self) -> None:
        self._is_noted = False
        self._is_ticking = False
        self._is_open = False

    def note(self) -> None:
        """Something happened, so that the loop must not stand still."""
        self._is_noted = True
        if not self._is_ticking and self._is_open:
            self._is_ticking = True
            signal.setitimer(signal.ITIMER_REAL, _TICK_S, _TICK_S)

    def _tick(self, _number: int, _frame: FrameType | None) -> None:
        if not self._is_noted:
            self._is_ticking = False
            signal.setitimer(signal.ITIMER_REAL, 0)
        self._is_noted = False

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Own the process's SIGALRM and its timer meanwhile; only the main thread can, elsewhere this does nothing."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGALRM, self._tick)
        self._is_open = True
        try:
            yield
        finally:
            self._is_open = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
