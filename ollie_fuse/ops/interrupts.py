"""The watch that lets interrupted readers go.

The kernel asks for it with FUSE_INTERRUPT, which pyfuse3 hides. What nobody hides: a reader of ours sleeps in state S
with wchan ``request_wait_answer``, and the moment it is signalled, killed, frozen, stopped or traced it is in D at the
same place until it has its answer. So the thread behind each wait is found, and looked at five times a second.

Who reads is not told, only who opened. A wait and its opener are a pair if that thread is what reads; all other waits
for one inode, and all other threads that read it, are one gang: when one of its threads is in D, all its waits end. An
EINTR too many is harmless, a reader left in D is not.
"""

import os
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from pathlib import Path

import trio

from ollie_fuse.ops.tasks import Readings, Thread, all_tasks, device_of, family_of, is_held, is_in_request, read
from ollie_fuse.ops.waits import Blocked, Waits

_SWEEP_S = 0.2
_YOUNG_S = 0.1
"""A younger wait is left alone: a reply that streams makes thousands that last milliseconds."""
_SLICE_S = 0.001
"""How long the watch holds up everybody else."""
_LOOKS_A_CHECK = 64
"""Every so many looks, is the thread still in a read at all?"""
_SCAN_REST = 4
"""After a scan of all tasks there is none for so many times its duration."""
_RETRY_S = (0.25, 4.0)
"""When a reader that a scan did not find is looked for again: first, and at most."""
_SHORTEST_TIMEOUT_S = 15
"""FUSE_TIMEOUT_TIMER_FREQ: the kernel takes no request timeout to be shorter."""


def request_timeout_s(sysctls: Path = Path("/proc/sys/fs/fuse")) -> float | None:
    """Return after how long without an answer the kernel ends a mount made now; None where no administrator said so."""
    told = [read(f"{sysctls}/{name}_request_timeout").strip() for name in ("default", "max")]
    limits = [int(limit) for limit in told if limit.isdigit() and int(limit)]
    return max(min(limits), _SHORTEST_TIMEOUT_S) if limits else None


async def run_interrupt_watch(waits: Waits, mountpoint: Path, *, timeout_s: float | None) -> None:
    """Let go each read of *waits* whose reader is interrupted, or that is half of *timeout_s* old, until cancelled.

    Costs nothing while nobody waits. Needs the filesystem to be mounted at *mountpoint*, and does not touch it.
    """
    watch = _Watch(waits, device_of(mountpoint), None if timeout_s is None else timeout_s / 2)
    took = 0.0
    try:
        while True:
            await waits.wait_for_blocked()
            await trio.sleep(max(_SWEEP_S - took, min(2 * took, _SWEEP_S)))
            took = await watch.sweep()
    finally:
        watch.close()


# What proc(5) says. Whatever vanishes, or is not for us to see, says nothing.


class _Party:
    """Waits for one inode, and the threads that read it: one of each, or as many as cannot be told apart."""

    __slots__ = ("inode", "is_over", "threads", "waits")

    def __init__(self, waits: Collection[Blocked], inode: int, tids: Iterable[int]) -> None:
        self.waits = waits
        self.inode = inode
        self.threads = [Thread(tid) for tid in tids]
        self.is_over = False


class _Slices:
    """Work cut into pieces, everybody else's between them."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._took = 0.0

    async def rest(self) -> None:
        """Let others run if this piece is long enough."""
        piece = time.perf_counter() - self._began
        if piece > _SLICE_S:
            self._took += piece
            await trio.lowlevel.checkpoint()
            self._began = time.perf_counter()

    def total(self) -> float:
        """Return the seconds of all pieces."""
        return self._took + time.perf_counter() - self._began


class _Watch:
    def __init__(self, waits: Waits, device: bytes | None, longest_s: float | None) -> None:
        self._waits = waits
        self._longest_s = longest_s
        self._readings = Readings(device)
        self._party_of: dict[Blocked, _Party] = {}
        self._party_with: dict[int, _Party] = {}
        self._gangs: dict[int, _Party] = {}
        self._let_go: dict[int, int] = {}
        """The threads that the last sweep found interrupted, and what they read."""
        self._tries: dict[int, tuple[int, float]] = {}
        """Gangs with fewer threads than waits: how many scans did not find them, and when the next one may."""
        self._scan_at = 0.0

    async def sweep(self) -> float:
        """Look at every known reader once and for every unknown one; return the seconds of work it was."""
        slices = _Slices()
        self._forget(set(self._waits))
        self._end_overdue()
        await self._look_again(slices)
        await self._look(tuple(dict.fromkeys(self._party_of.values())), slices)
        await self._resolve(slices)
        return slices.total()

    def close(self) -> None:
        """Close every descriptor."""
        for party in set(self._party_of.values()):
            self._drop(party)

    def _forget(self, current: set[Blocked]) -> None:
        for wait in self._party_of.keys() - current:
            if wait in self._party_of:
                self._drop(self._party_of[wait])
        if self._tries:
            for inode in self._tries.keys() - {wait.file.inode for wait in current}:
                del self._tries[inode]
        if not current:
            self._readings.forget()

    def _end_overdue(self) -> None:
        if self._longest_s is not None:
            overdue = trio.current_time() - self._longest_s
            for wait in self._waits:
                if wait.since < overdue:
                    wait.interrupt()

    # Parties

    def _join(self, waits: Collection[Blocked], inode: int, tids: Iterable[int]) -> _Party:
        party = _Party(waits, inode, tids)
        for wait in waits:
            self._party_of[wait] = party
        for thread in party.threads:
            if thread.tid in self._party_with:  # it was taken for the reader of another's open file
                self._drop(self._party_with[thread.tid])
            self._party_with[thread.tid] = party
        return party

    def _drop(self, party: _Party) -> None:
        """Forget who reads for these waits; what still waits is resolved again."""
        for wait in party.waits:
            if self._party_of.get(wait) is party:
                del self._party_of[wait]
        party.is_over = True
        if self._gangs.get(party.inode) is party:
            del self._gangs[party.inode]
        for thread in party.threads:
            thread.close()
            if self._party_with.get(thread.tid) is party:
                del self._party_with[thread.tid]

    async def _look(self, parties: Iterable[_Party], slices: _Slices) -> None:
        """Look at each thread; let its party go if it is interrupted."""
        for number, (party, thread) in enumerate([(each, thread) for each in parties for thread in each.threads]):
            if number % 16 == 0:
                await slices.rest()
            if party.is_over:
                continue
            said = thread.look()
            if b") D " in said or not said or thread.looks % _LOOKS_A_CHECK == 0:
                self._look_closer(party, thread, said)

    def _look_closer(self, party: _Party, thread: Thread, said: bytes) -> None:
        if is_held(said, thread.tid):
            self._interrupt(party.waits)
            self._let_go[thread.tid] = party.inode
            self._drop(party)
        elif not said or not is_in_request(thread.tid):
            self._drop(party)

    async def _look_again(self, slices: _Slices) -> None:
        """End all waits for what a thread reads that was let go and is in D still: its wait was another's."""
        stuck = set()
        for tid, inode in tuple(self._let_go.items()):
            await slices.rest()
            if is_held(read(f"/proc/{tid}/task/{tid}/stat"), tid):
                stuck.add(inode)
            else:
                del self._let_go[tid]
        if stuck:
            self._interrupt(wait for wait in self._waits if wait.file.inode in stuck)

    @staticmethod
    def _interrupt(waits: Iterable[Blocked]) -> None:
        for wait in waits:
            wait.interrupt()

    # Who reads

    def _unresolved(self) -> list[Blocked]:
        old = trio.current_time() - _YOUNG_S
        return [
            wait
            for wait in self._waits
            if wait not in self._party_of and wait.since <= old and not wait.scope.cancel_called
        ]

    async def _resolve(self, slices: _Slices) -> None:
        for inode in tuple(self._tries):
            if inode in self._gangs and self._is_due(inode):
                self._drop(self._gangs[inode])
        strays = await self._pair(self._unresolved(), slices)
        if not strays:
            return
        gangs: dict[int, list[Blocked]] = defaultdict(list)
        for wait in strays:
            gangs[wait.file.inode].append(wait)
        for inode, gang in gangs.items():
            if inode in self._gangs:  # some of its threads may read for these
                gang += self._gangs[inode].waits
                self._drop(self._gangs[inode])
        reading = await self._find_readers(gangs, slices)
        for inode, gang in gangs.items():
            self._gangs[inode] = party = self._join(gang, inode, reading[inode])
            await self._look([party], slices)

    async def _pair(self, unresolved: list[Blocked], slices: _Slices) -> list[Blocked]:
        """Make the pairs; return the waits whose opener reads something else, or opened the same inode twice."""
        if not unresolved:
            return []
        opened = Counter((wait.file.inode, wait.file.opener) for wait in self._waits)
        strays = []
        for wait in unresolved:
            await slices.rest()
            inode, opener = wait.file.inode, wait.file.opener
            if opener and opened[inode, opener] == 1 and self._readings.of(opener, (inode,)):
                await self._look([self._join((wait,), inode, (opener,))], slices)
            else:
                strays.append(wait)
        return strays

    def _is_due(self, inode: int) -> bool:
        return self._tries.get(inode, (0, 0.0))[1] <= trio.current_time()

    async def _find_readers(self, gangs: dict[int, list[Blocked]], slices: _Slices) -> dict[int, set[int]]:
        """Find the threads that read each gang's inode: near the openers first, then anywhere."""
        seen = {0, os.getpid()}
        openers = {wait.file.opener for gang in gangs.values() for wait in gang}
        family = (tid for opener in openers if opener not in seen for tid in family_of(opener, seen))
        reading = await self._readers_among(family, gangs, slices)
        lacking = [inode for inode, gang in gangs.items() if len(reading[inode]) < len(gang)]
        for inode in gangs.keys() - lacking:
            self._tries.pop(inode, None)
        lacking = [inode for inode in lacking if self._is_due(inode)]
        began = trio.current_time()
        if lacking and began >= self._scan_at:
            self._readings.forget()
            for inode, tids in (await self._readers_among(all_tasks(seen), gangs, slices)).items():
                reading[inode] |= tids
            self._scan_at = trio.current_time() + _SCAN_REST * (trio.current_time() - began)
        for inode in lacking:
            self._try_again(inode, is_complete=len(reading[inode]) >= len(gangs[inode]))
        return reading

    def _try_again(self, inode: int, *, is_complete: bool) -> None:
        tries, _ = self._tries.pop(inode, (0, 0.0))
        if not is_complete:
            later = trio.current_time() + min(_RETRY_S[0] * 2**tries, _RETRY_S[1])
            self._tries[inode] = (min(tries + 1, 10), max(self._scan_at, later))

    async def _readers_among(
        self, tids: Iterable[int], wanted: Collection[int], slices: _Slices
    ) -> defaultdict[int, set[int]]:
        reading: defaultdict[int, set[int]] = defaultdict(set)
        for tid in tids:
            await slices.rest()
            if tid not in self._party_with:
                for inode in self._readings.of(tid, wanted):
                    reading[inode].add(tid)
        return reading
