"""Readers that wait are let go when they are interrupted, whoever opened the file.

What a process is at is looked at from outside, in /proc.
"""

import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import trio

from ollie_fuse.errors import Interrupted
from ollie_fuse.ops.interrupts import request_timeout_s, run_interrupt_watch
from ollie_fuse.ops.waits import OpenFile, Waits
from tests.mount.world import World

LET_GO_S = 0.5
SETTLED_S = 0.6
"""After so long the daemon knows who reads."""
CLIENTS = Path(__file__).with_name("clients")

Process = subprocess.Popen[bytes]


def state(tid: int) -> str:
    """Return the letter of the thread's state, and where in the kernel it is; nothing once it has ended."""
    task = Path(f"/proc/{tid}/task/{tid}")
    try:
        letter = (task / "stat").read_bytes().rpartition(b")")[2].split()[0].decode()
        return "" if letter in "ZX" else f"{letter} {(task / 'wchan').read_text(encoding='ascii')}"
    except OSError:
        return ""


def wait_for(is_so: Callable[[], bool], timeout_s: float = 10.0) -> float:
    """Wait until it is so; return how long that took."""
    began = time.monotonic()
    while not is_so():
        assert time.monotonic() - began < timeout_s
        time.sleep(0.002)
    return time.monotonic() - began


def wait_blocked(*tids: int) -> None:
    """Wait until each of these threads waits for an answer."""
    for tid in tids:
        wait_for(lambda tid=tid: state(tid) == "S request_wait_answer")  # type: ignore[misc]  # mypy: lambda defaults


@contextmanager
def never_long_in_d(*tids: int) -> Iterator[None]:
    """Watch these threads meanwhile: none may be in state D for longer than half a second."""
    is_over = threading.Event()
    longest = dict.fromkeys(tids, 0.0)

    def watch() -> None:
        since: dict[int, float] = {}
        while not is_over.wait(0.005):
            for tid in tids:
                now = time.monotonic()
                if state(tid).startswith("D"):
                    longest[tid] = max(longest[tid], now - since.setdefault(tid, now))
                else:
                    since.pop(tid, None)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()
    assert max(longest.values()) < LET_GO_S, longest


@pytest.fixture
def start(world: World) -> Iterator[Callable[..., Process]]:
    """Starts programs, each in a process group of its own; they are killed at the end."""
    started: list[Process] = []

    def start(*argv: str) -> Process:
        process = subprocess.Popen(
            argv,
            env=world.env,
            cwd=world.home,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=10)


@pytest.fixture(params=["at once", "settled"])
def settle(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Waits until readers are blocked, and in one of two runs until the daemon knows them too."""

    def settle(*tids: int) -> None:
        wait_blocked(*tids)
        if request.param == "settled":
            time.sleep(SETTLED_S)

    return settle


def change_state(world: World, agent: str) -> None:
    """Let the agent have one turn."""
    world.out(f"echo hi > {agent}/prompt; cat {agent}/reply")


def child_of(pid: int) -> int:
    """Return the one child of a process, once there is one."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    wait_for(lambda: bool(children.read_text(encoding="ascii")))
    return int(children.read_text(encoding="ascii"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
@pytest.mark.parametrize("name", ["statewait", "../../../../events"])
def test_signalled_cat_ends(
    agent: str, name: str, number: signal.Signals, start: Callable[..., Process], settle: Callable[..., None]
) -> None:
    """Ctrl-C, kill and kill -9 end a `cat` that waits, within half a second."""
    cat = start("cat", f"{agent}/{name}")
    settle(cat.pid)
    os.killpg(cat.pid, number)
    assert cat.wait(LET_GO_S) == -number


@pytest.mark.parametrize("name", ["reply", "answer"])
def test_signalled_reader_of_a_running_turn_ends(
    world: World, agent: str, name: str, start: Callable[..., Process]
) -> None:
    """Ctrl-C ends a `cat` of a reply of which nothing came for a while."""
    world.out(f"echo '@fake hold' > {agent}/prompt")
    cat = start("cat", f"{agent}/{name}")
    wait_blocked(cat.pid)
    time.sleep(SETTLED_S)
    os.killpg(cat.pid, signal.SIGINT)
    assert cat.wait(LET_GO_S) == -signal.SIGINT
    world.out(f"echo stop > {agent}/ctl")


def test_handled_signal_and_the_read_goes_on(
    world: World, agent: str, start: Callable[..., Process], settle: Callable[..., None]
) -> None:
    """A Python reader's handler runs within half a second, and its read still gets the next change."""
    reader = start(sys.executable, str(CLIENTS / "patient_reader.py"), f"{agent}/statewait")
    settle(reader.pid)
    for _ in range(3):
        with never_long_in_d(reader.pid):
            reader.send_signal(signal.SIGINT)
            assert reader.stdout is not None
            assert reader.stdout.readline() == b"interrupted\n"
        wait_blocked(reader.pid)
    change_state(world, agent)
    assert reader.communicate(timeout=5)[0].split()[0] in (b"receiving", b"thinking")


@pytest.mark.parametrize("reader", ["cat", "unshare -m cat"])
def test_reader_of_what_a_shell_opened(
    agent: str, reader: str, start: Callable[..., Process], settle: Callable[..., None]
) -> None:
    """`exec 3<>statewait; cat <&3` in a shell: the cat is no opener, and is let go all the same, in any namespace."""
    if subprocess.run([*reader.split()[:-1], "true"], capture_output=True, timeout=5, check=False).returncode:
        pytest.skip("no mount namespace may be made here")
    shell = start("bash", "-c", f"exec 3<>{agent}/statewait; ({reader}; :) <&3; echo $?")
    cat = child_of(child_of(shell.pid))
    settle(cat)
    os.kill(cat, signal.SIGKILL)
    assert wait_for(lambda: not state(cat)) < LET_GO_S
    assert shell.communicate(timeout=5)[0] == b"0\n"


def test_reader_whose_opener_is_gone(agent: str, start: Callable[..., Process], settle: Callable[..., None]) -> None:
    """A reader that inherited its open file from a process that ended is found among all tasks."""
    shell = start("bash", "-c", f"exec 3<>{agent}/statewait; cat <&3 3<&- & echo $!")
    assert shell.stdout is not None
    cat = int(shell.stdout.readline())
    settle(cat)
    with never_long_in_d(cat):
        os.kill(cat, signal.SIGKILL)
        assert wait_for(lambda: not state(cat)) < LET_GO_S


@pytest.mark.parametrize("count", [1, 2, 20])
def test_thread_that_did_not_open_the_file(
    world: World, agent: str, count: int, start: Callable[..., Process], settle: Callable[..., None]
) -> None:
    """A signal to a thread that reads what another one opened ends that read, not the thread's work."""
    program = start(sys.executable, str(CLIENTS / "threaded_readers.py"), f"{agent}/statewait", str(count))
    assert program.stdout is not None
    tids = [int(word) for word in program.stdout.readline().split()]
    settle(*tids)
    assert program.stdin is not None
    for number in range(min(count, 3)):
        with never_long_in_d(*tids):
            program.stdin.write(f"{number}\n".encode())
            program.stdin.flush()
            wait_for(lambda: state(tids[number])[0] == "D")  # noqa: B023  # called here
            wait_for(lambda: state(tids[number])[0] != "D")  # noqa: B023  # called here
        wait_blocked(*tids)
    change_state(world, agent)
    program.communicate(timeout=5)
    assert program.returncode == 0


def test_killed_program_with_threads_ends(agent: str, start: Callable[..., Process]) -> None:
    """A program with twenty readers ends within half a second of kill -9."""
    program = start(sys.executable, str(CLIENTS / "threaded_readers.py"), f"{agent}/statewait", "20")
    assert program.stdout is not None
    wait_blocked(*(int(word) for word in program.stdout.readline().split()))
    time.sleep(SETTLED_S)
    program.kill()
    assert program.wait(LET_GO_S) == -signal.SIGKILL


def test_stopped_and_continued(
    world: World, agent: str, start: Callable[..., Process], settle: Callable[..., None]
) -> None:
    """SIGSTOP stops a reader within half a second, and after SIGCONT it waits on for the same thing."""
    cat = start("cat", f"{agent}/statewait")
    settle(cat.pid)
    with never_long_in_d(cat.pid):
        for _ in range(2):
            cat.send_signal(signal.SIGSTOP)
            assert wait_for(lambda: state(cat.pid).startswith("T")) < LET_GO_S
            cat.send_signal(signal.SIGCONT)
            wait_blocked(cat.pid)
        change_state(world, agent)
        said, complaint = cat.communicate(timeout=5)
    assert said.split()[0] in (b"receiving", b"thinking")
    assert complaint == b""


def test_traced(world: World, agent: str, start: Callable[..., Process], settle: Callable[..., None]) -> None:
    """`strace -p` attaches to a reader within half a second, and leaves it as it was."""
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    cat = start("cat", f"{agent}/statewait")
    settle(cat.pid)
    with never_long_in_d(cat.pid):
        strace = start("strace", "-p", str(cat.pid))
        assert strace.stderr is not None
        status = Path(f"/proc/{cat.pid}/status")
        wait_for(lambda: f"TracerPid:\t{strace.pid}\n" in status.read_text(encoding="ascii"))
        began = time.monotonic()
        assert b"attached" in strace.stderr.readline()  # the tracer waits for the stop before it says so
        assert time.monotonic() - began < LET_GO_S
        strace.send_signal(signal.SIGINT)
        strace.communicate(timeout=5)
        wait_blocked(cat.pid)
        change_state(world, agent)
        said, complaint = cat.communicate(timeout=5)
    assert said.split()[0] in (b"receiving", b"thinking")
    assert complaint == b""


class Freezer:
    """A cgroup that can be frozen, of version 1 or 2."""

    def __init__(self, kind: str) -> None:
        self.is_v2 = kind == "cgroup2"
        mounts = (line.split() for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines())
        roots = [
            where for _, where, found, options, *_ in mounts if found == kind and (self.is_v2 or "freezer" in options)
        ]
        if not roots:
            pytest.skip(f"no {kind} with a freezer is mounted")
        self.folder = Path(roots[0]) / f"ollie-test-{os.getpid()}"
        try:
            self.folder.mkdir()
        except OSError as exc:
            pytest.skip(f"no cgroup can be made: {exc}")

    def add(self, pid: int) -> None:
        (self.folder / "cgroup.procs").write_text(str(pid), encoding="ascii")

    def freeze(self) -> None:
        if self.is_v2:
            (self.folder / "cgroup.freeze").write_text("1", encoding="ascii")
        else:
            (self.folder / "freezer.state").write_text("FROZEN", encoding="ascii")

    def thaw(self) -> None:
        if self.is_v2:
            (self.folder / "cgroup.freeze").write_text("0", encoding="ascii")
        else:
            (self.folder / "freezer.state").write_text("THAWED", encoding="ascii")

    def is_frozen(self) -> bool:
        if self.is_v2:
            return "frozen 1" in (self.folder / "cgroup.events").read_text(encoding="ascii")
        return (self.folder / "freezer.state").read_text(encoding="ascii") == "FROZEN\n"


@pytest.fixture(params=["cgroup", "cgroup2"])
def freezer(request: pytest.FixtureRequest) -> Iterator[Freezer]:
    made = Freezer(str(request.param))
    yield made
    made.thaw()
    wait_for(lambda: not (made.folder / "cgroup.procs").read_text(encoding="ascii"))
    made.folder.rmdir()


def test_frozen(
    world: World, agent: str, freezer: Freezer, start: Callable[..., Process], settle: Callable[..., None]
) -> None:
    """The cgroup freezer freezes a reader within half a second, and thawed it waits on for the same thing."""
    cat = start("cat", f"{agent}/statewait")
    freezer.add(cat.pid)
    settle(cat.pid)
    freezer.freeze()
    assert wait_for(freezer.is_frozen) < LET_GO_S
    freezer.thaw()
    wait_blocked(cat.pid)
    change_state(world, agent)
    said, complaint = cat.communicate(timeout=5)
    assert said.split()[0] in (b"receiving", b"thinking")
    assert complaint == b""


@contextmanager
def two_hundred_cats(world: World) -> Iterator[list[Process]]:
    """Let two hundred processes read the same statewait; those left in the list are killed in the end."""
    path = f"{world.mount}/session/s/agent/main/statewait"
    cats = [subprocess.Popen(["cat", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(200)]
    try:
        wait_blocked(*(cat.pid for cat in cats))
        yield cats
    finally:
        for cat in cats:
            cat.kill()
        for cat in cats:
            cat.communicate(timeout=5)


@pytest.fixture
def quiet_world(own_world: World) -> Iterator[World]:
    """A daemon of the test's own with a session ``s``; it must end without a warning."""
    own_world.start()
    own_world.out("mkdir $m/session/s")
    yield own_world
    assert own_world.stop() == 0
    assert own_world.new_troubles() == []


def descriptors_of(world: World) -> int:
    assert world.daemon is not None
    return len(list(Path(f"/proc/{world.daemon.pid}/fd").iterdir()))


def test_one_killed_of_two_hundred(quiet_world: World) -> None:
    """Of two hundred readers of one file one is killed: it ends, the others go on, and no descriptor is left over."""
    before = descriptors_of(quiet_world)
    with two_hundred_cats(quiet_world) as cats:
        wait_for(lambda: descriptors_of(quiet_world) == before + 200)  # one for each that is watched
        victim = cats.pop()
        with never_long_in_d(*(cat.pid for cat in cats)):
            victim.kill()
            assert victim.wait(LET_GO_S) == -signal.SIGKILL
            change_state(quiet_world, f"{quiet_world.mount}/session/s/agent/main")
            told = [cat.communicate(timeout=5) for cat in cats]
        victim.communicate()
        assert len(set(told)) == 1
        assert told[0][1] == b""
        wait_for(lambda: descriptors_of(quiet_world) == before)


@pytest.mark.parametrize("hard", [300, 2000])
def test_few_descriptors(quiet_world: World, hard: int) -> None:
    """Where descriptors are few the daemon takes as many as it may, keeps some back, and still lets readers go."""
    assert quiet_world.daemon is not None
    resource.prlimit(quiet_world.daemon.pid, resource.RLIMIT_NOFILE, (300, hard))
    before = descriptors_of(quiet_world)
    with two_hundred_cats(quiet_world) as cats:
        time.sleep(SETTLED_S)
        assert descriptors_of(quiet_world) == (before + 200 if hard == 2000 else 300 - 256)
        for _ in range(5):
            victim = cats.pop()
            victim.kill()
            assert victim.wait(LET_GO_S) == -signal.SIGKILL
            victim.communicate()


def test_kernel_request_timeout(tmp_path: Path) -> None:
    """The shorter of the administrator's limits counts, never less than the kernel's timer, and 0 is none."""
    for default, most, expected in [
        ("0", "0", None),
        ("60", "0", 60),
        ("60", "30", 30),
        ("0", "20", 20),
        ("1", "9", 15),
    ]:
        (tmp_path / "default_request_timeout").write_text(f"{default}\n", encoding="ascii")
        (tmp_path / "max_request_timeout").write_text(f"{most}\n", encoding="ascii")
        assert request_timeout_s(tmp_path) == expected
    assert request_timeout_s(tmp_path / "none") is None


async def test_long_waits_end_before_the_kernel_ends_the_mount(tmp_path: Path) -> None:
    """A read that waits for half of the kernel's limit is let go, and one that did not stays."""
    waits = Waits()
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: run_interrupt_watch(waits, tmp_path, timeout_s=2.0))
            began = trio.current_time()
            for fh in range(3):
                with pytest.raises(Interrupted):
                    await waits.wait(OpenFile(fh=fh, inode=9, opener=0, is_nonblocking=False), trio.sleep_forever)
            assert 3 * 1.0 < trio.current_time() - began < 3 * 1.5
            nursery.cancel_scope.cancel()
