"""The watch that lets interrupted readers go.

The kernel asks for it with FUSE_INTERRUPT, which pyfuse3 hides. What nobody hides: a reader of ours sleeps in state S
with wchan ``request_wait_answer``, and the moment it is signalled, killed, frozen, stopped or traced it is in D at the
same place until it has its answer. So the thread behind each wait is found, and looked at five times a second.

Who reads is not told, only who opened. A wait and its opener are a pair if that thread is what reads; all other waits
for one inode, and all other threads that read it, are one gang: when one of its threads is in D, all its waits end. An
EINTR too many is harmless, a reader left in D is not.
"""

import os
import re
import resource
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import trio

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
_FAMILY_PROCESSES = 64
_SPARE_DESCRIPTORS = 256
_BLOCKED_IN = b"request_wait_answer"
_SHORTEST_TIMEOUT_S = 15
"""FUSE_TIMEOUT_TIMER_FREQ: the kernel takes no request timeout to be shorter."""

_FDINFO = re.compile(rb"^mnt_id:\s*(\d+)\s+ino:\s*(\d+)", re.MULTILINE)


def request_timeout_s(sysctls: Path = Path("/proc/sys/fs/fuse")) -> float | None:
    """Return after how long without an answer the kernel ends a mount made now; None where no administrator said so."""
    told = [_read(f"{sysctls}/{name}_request_timeout").strip() for name in ("default", "max")]
    limits = [int(limit) for limit in told if limit.isdigit() and int(limit)]
    return max(min(limits), _SHORTEST_TIMEOUT_S) if limits else None


async def run_interrupt_watch(waits: Waits, mountpoint: Path, *, timeout_s: float | None) -> None:
    """Let go each read of *waits* whose reader is interrupted, or that is half of *timeout_s* old, until cancelled.

    Costs nothing while nobody waits. Needs the filesystem to be mounted at *mountpoint*, and does not touch it.
    """
    watch = _Watch(waits, _device_of(mountpoint), None if timeout_s is None else timeout_s / 2)
    took = 0.0
    try:
        while True:
            await waits.wait_for_blocked()
            await trio.sleep(max(_SWEEP_S - took, min(2 * took, _SWEEP_S)))
            took = await watch.sweep()
    finally:
        watch.close()


# What proc(5) says. Whatever vanishes, or is not for us to see, says nothing.


def _read(path: str) -> bytes:
    """Return the first page at most, in three system calls."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.read(descriptor, 4096)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _read_all(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def _numbers_in(path: str) -> Iterator[int]:
    """Yield the names in a folder of /proc that are numbers."""
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.name.isdecimal():
                    yield int(entry.name)
    except OSError:
        return


def _is_in_request(tid: int) -> bool:
    # Not /proc/TID: that adds up all threads of the process, whichever thread it is.
    return _read(f"/proc/{tid}/task/{tid}/wchan") == _BLOCKED_IN


def _is_held(stat: bytes, tid: int) -> bool:
    """Return whether the thread of which *stat* tells was interrupted, and waits for an answer."""
    return stat.rpartition(b")")[2].startswith(b" D") and _is_in_request(tid)


def _device_of(mountpoint: Path) -> bytes | None:
    """Return the device of what is mounted there. A stat would ask ourselves, and wait for ever."""
    path = os.fsencode(os.path.realpath(mountpoint.parent) + f"/{mountpoint.name}")
    found = None
    for line in _read_all("/proc/self/mountinfo").splitlines():
        _, _, device, _, where, *_ = line.split(b" ")
        if re.sub(rb"\\(\d{3})", lambda octal: bytes([int(octal[1], 8)]), where) == path:
            found = device
    return found


def _family_of(opener: int, seen: set[int]) -> Iterator[int]:
    """Yield the threads of the opener's process and of its descendants: mostly a shell and what it started."""
    processes = [opener]
    for number, process in enumerate(processes):
        for tid in _numbers_in(f"/proc/{process}/task"):
            if number < _FAMILY_PROCESSES:
                processes += map(int, _read_all(f"/proc/{process}/task/{tid}/children").split())
            if tid not in seen:
                seen.add(tid)
                yield tid


def _all_tasks(seen: set[int]) -> Iterator[int]:
    for process in _numbers_in("/proc"):
        for tid in _numbers_in(f"/proc/{process}/task"):
            if tid not in seen:
                seen.add(tid)
                yield tid


class _Readings:
    """Which of our inodes a blocked thread may be reading."""

    def __init__(self, device: bytes | None) -> None:
        self._device = device
        self._is_ours: dict[int, bool] = {}

    def of(self, tid: int, wanted: Collection[int]) -> set[int]:
        """Return one of the *wanted* where the kernel tells the call's arguments, else all that the thread has open."""
        if not _is_in_request(tid):
            return set()
        task = f"/proc/{tid}/task/{tid}"
        # Number, six arguments, stack and program counter; "-1 …" in a page fault; the counter is 0 for io_uring's
        # workers; nothing where Yama forbids it.
        words = _read(f"{task}/syscall").split()
        if len(words) == 9 and words[8] != b"0x0":
            # The first argument of read, pread, readv, splice, the second of sendfile, on every architecture.
            descriptors: Iterable[int] = (int(word, 16) & 0xFFFFFFFF for word in words[1:3])
            return set(self._inodes(task, descriptors, wanted)[:1])
        return set(self._inodes(task, _numbers_in(f"{task}/fdinfo"), wanted))

    def _inodes(self, task: str, descriptors: Iterable[int], wanted: Collection[int]) -> list[int]:
        told = (_FDINFO.search(_read(f"{task}/fdinfo/{descriptor}")) for descriptor in descriptors)
        return [
            inode for found in told if found and (inode := int(found[2])) in wanted and self._is_mount(task, found[1])
        ]

    def _is_mount(self, task: str, told: bytes) -> bool:
        """Return whether this mount is ours, be it in another namespace: another daemon's has the same inodes."""
        if self._device is None:
            return True
        mount = int(told)
        # An inherited file keeps the mount of the namespace it was opened in. What neither lists may be ours.
        for who in ("self", task.removeprefix("/proc/")):
            if mount not in self._is_ours:
                self._add_mounts(_read_all(f"/proc/{who}/mountinfo"))
        return self._is_ours.setdefault(mount, True)

    def _add_mounts(self, told: bytes) -> None:
        for line in told.splitlines():
            number, _, device = line.split(b" ")[:3]
            self._is_ours[int(number)] = device == self._device

    def forget(self) -> None:
        """Forget the mounts: their numbers are used again."""
        self._is_ours.clear()


class _Thread:
    """A thread seen in a read, its ``stat`` kept open: 4 µs a look instead of 22."""

    __slots__ = ("_path", "_started", "_stat", "looks", "tid")

    def __init__(self, tid: int) -> None:
        self.tid = tid
        self.looks = tid
        self._path = f"/proc/{tid}/task/{tid}/stat"
        self._stat = _open_sparingly(self._path)
        self._started = self._start(_read(self._path)) if self._stat is None else b""

    @staticmethod
    def _start(said: bytes) -> bytes:
        return b" ".join(said.rpartition(b")")[2].split()[19:20])

    def look(self) -> bytes:
        """Return its ``stat``; nothing once it is gone, whoever has its number now."""
        self.looks += 1
        if self._stat is None:
            said = _read(self._path)
            return said if self._start(said) == self._started else b""
        try:
            return os.pread(self._stat, 64, 0)  # as far as the state
        except OSError:
            return b""

    def close(self) -> None:
        if self._stat is not None:
            os.close(self._stat)
            self._stat = None


def _open_sparingly(path: str) -> int | None:
    """Open *path* unless few descriptors are left; the soft limit is raised step by step, as far as it may be."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or descriptor < soft - _SPARE_DESCRIPTORS:
        return descriptor
    raised = 4 * soft if hard == resource.RLIM_INFINITY else min(4 * soft, hard)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
        if descriptor < raised - _SPARE_DESCRIPTORS:
            return descriptor
    os.close(descriptor)
    return None


class _Party:
    """Waits for one inode, and the threads that read it: one of each, or as many as cannot be told apart."""

    __slots__ = ("inode", "is_over", "threads", "waits")

    def __init__(self, waits: Collection[Blocked], inode: int, tids: Iterable[int]) -> None:
        self.waits = waits
        self.inode = inode
        self.threads = [_Thread(tid) for tid in tids]
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
        self._readings = _Readings(device)
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

    def _look_closer(self, party: _Party, thread: _Thread, said: bytes) -> None:
        if _is_held(said, thread.tid):
            self._interrupt(party.waits)
            self._let_go[thread.tid] = party.inode
            self._drop(party)
        elif not said or not _is_in_request(thread.tid):
            self._drop(party)

    async def _look_again(self, slices: _Slices) -> None:
        """End all waits for what a thread reads that was let go and is in D still: its wait was another's."""
        stuck = set()
        for tid, inode in tuple(self._let_go.items()):
            await slices.rest()
            if _is_held(_read(f"/proc/{tid}/task/{tid}/stat"), tid):
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
        family = (tid for opener in openers if opener not in seen for tid in _family_of(opener, seen))
        reading = await self._readers_among(family, gangs, slices)
        lacking = [inode for inode, gang in gangs.items() if len(reading[inode]) < len(gang)]
        for inode in gangs.keys() - lacking:
            self._tries.pop(inode, None)
        lacking = [inode for inode in lacking if self._is_due(inode)]
        began = trio.current_time()
        if lacking and began >= self._scan_at:
            self._readings.forget()
            for inode, tids in (await self._readers_among(_all_tasks(seen), gangs, slices)).items():
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
