"""inotify(7) watchers see what happens in the tree, within a budget, and hold up nobody."""

import shutil
import statistics
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.mount.world import World

WITHIN_S = 2.0
"""What happens is seen within so long."""
TOUCHES_A_S = 200
TOUCHES_A_FILE_A_S = 20
CHANGES = "create,delete,modify,move,attrib"


class Event(NamedTuple):
    """What inotifywait told, and when."""

    at: float
    names: str
    path: str


class Watcher:
    """A running inotifywait, and what it has told of the tree below the mount."""

    def __init__(self, world: World, process: "subprocess.Popen[str]") -> None:
        self.events: list[Event] = []
        self._world = world
        self._process = process
        self._thread = threading.Thread(target=self._collect, daemon=True)
        self._thread.start()

    def _collect(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            names, _, path = line.rstrip("\n").partition(" ")
            self.events.append(Event(time.monotonic(), names, path.removeprefix(f"{self._world.mount}/")))

    def join(self) -> None:
        """Wait until all that was told is here; inotifywait must have ended."""
        self._thread.join(WITHIN_S)

    def saw(self, names: str, path: str) -> bool:
        return any((event.names, event.path) == (names, path) for event in self.events)

    def wait(self, names: str, path: str) -> None:
        """Wait until that was seen."""
        limit = time.monotonic() + WITHIN_S
        while not self.saw(names, path):
            assert time.monotonic() < limit, (names, path, [event[1:] for event in self.events])
            time.sleep(0.005)


@contextmanager
def watching(world: World, events: str = CHANGES, *, path: str = "/session") -> Iterator[Watcher]:
    """Watch what is below *path* as long as the context is open."""
    if not shutil.which("inotifywait"):
        pytest.skip("inotifywait is not installed")
    argv = ["inotifywait", "-m", "-r", "-e", events, "--format", "%e %w%f", f"{world.mount}{path}"]
    with subprocess.Popen(
        argv, env=world.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        watcher = Watcher(world, process)
        try:
            assert process.stderr is not None
            while "Watches established" not in process.stderr.readline():
                assert process.poll() is None
            yield watcher
        finally:
            process.kill()
            watcher.join()


@pytest.fixture
def quiet(own_world: World) -> Iterator[World]:
    """A daemon of the test's own with a session ``s``; it must end in time and without a warning."""
    own_world.start()
    own_world.out("mkdir $m/session/s")
    yield own_world
    if own_world.daemon is not None:
        own_world.sh("for ctl in $m/session/*/agent/*/ctl; do echo stop > $ctl; done")
        assert own_world.stop(timeout_s=5) == 0
    assert own_world.new_troubles() == []


def test_whole_life_of_a_session(quiet: World) -> None:
    """A watcher sees a session and its agents made through `new`, renamed and killed through `ctl`."""
    with watching(quiet) as watcher:
        quiet.out("echo name=fresh > $m/session/new")
        watcher.wait("CREATE,ISDIR", "session/fresh")
        time.sleep(0.1)  # inotifywait has to watch what it learned of
        quiet.out("exec 3<>$m/session/fresh/agent/new; echo name=later >&3; cat <&3")
        watcher.wait("CREATE,ISDIR", "session/fresh/agent/later")
        quiet.out("echo rename last > $m/session/fresh/agent/later/ctl")
        watcher.wait("MOVED_FROM,ISDIR", "session/fresh/agent/later")
        watcher.wait("MOVED_TO,ISDIR", "session/fresh/agent/last")
        quiet.out("echo kill > $m/session/fresh/agent/last/ctl")
        watcher.wait("DELETE,ISDIR", "session/fresh/agent/last")
        quiet.out("echo rename old > $m/session/fresh/ctl")
        watcher.wait("MOVED_FROM,ISDIR", "session/fresh")
        watcher.wait("MOVED_TO,ISDIR", "session/old")
        quiet.out("echo kill > $m/session/old/ctl")
        watcher.wait("DELETE,ISDIR", "session/old")
        life = [event.names for event in watcher.events if event.path == "session/fresh"]
        assert life == ["CREATE,ISDIR", "MOVED_FROM,ISDIR"]  # once each


def test_life_by_hand_is_seen_once(quiet: World) -> None:
    """What mkdir, mv and rmdir do is seen as on a disk, and once."""
    with watching(quiet) as watcher:
        quiet.out("mkdir $m/session/x; mv $m/session/x $m/session/y; rmdir $m/session/y; mkdir $m/session/end")
        watcher.wait("CREATE,ISDIR", "session/end")
        seen = [event[1:] for event in watcher.events if event.path in ("session/x", "session/y")]
        assert seen == [
            ("CREATE,ISDIR", "session/x"),
            ("MOVED_FROM,ISDIR", "session/x"),
            ("MOVED_TO,ISDIR", "session/y"),
            ("DELETE,ISDIR", "session/y"),
        ]


def test_conversation_is_seen(quiet: World) -> None:
    """A turn is seen as MODIFY of chat, reply, answer, state, usage and the lists; a rename does not end that."""
    with watching(quiet) as watcher:
        quiet.out("echo rename t > $m/session/s/ctl; echo hi > $m/session/t/agent/main/prompt")
        for name in ("chat", "reply", "answer", "state", "statewait", "usage"):
            watcher.wait("MODIFY", f"session/t/agent/main/{name}")
        for path in ("session/t/usage", "session/t/agent/idx", "session/idx"):
            watcher.wait("MODIFY", path)
        assert {event.names for event in watcher.events} <= {"MODIFY", "MOVED_FROM,ISDIR", "MOVED_TO,ISDIR"}


@pytest.mark.parametrize(
    ("script", "paths"),
    [
        ("echo 'topP 0.5' > $s/agent/main/ctl", ["agent/main/ctl"]),
        ("echo hello > $s/title", ["title", "ctl"]),
        ("echo title hello > $s/ctl", ["title", "ctl"]),
        ("echo bogus > $s/agent/main/ctl; :", ["agent/main/error"]),
        ("echo @fake hold > $s/agent/main/prompt; echo 2 > $s/agent/main/prompt", ["agent/main/queue"]),
        ("mkdir $s/agent/other", ["agent/idx"]),
        ("rmdir $s/agent/main", ["agent/idx", "usage"]),
    ],
)
def test_settings_are_seen(quiet: World, script: str, paths: list[str]) -> None:
    """What a command changes beside the file that was written is seen as MODIFY there."""
    with watching(quiet) as watcher:
        quiet.out(f"s=$m/session/s; {script}")
        for path in paths:
            watcher.wait("MODIFY", f"session/s/{path}")


def test_reload_is_seen(quiet: World) -> None:
    """`backends` and `models` are seen to change when the configuration is read again."""
    with watching(quiet, path="") as watcher:
        quiet.out(
            "printf '[more]\\nurl = http://127.0.0.1:9\\n' >> ~/.config/ollie/backends.conf; echo reload > $m/ctl"
        )
        watcher.wait("MODIFY", "backends")
        quiet.out("cat $m/events & reader=$!; mkdir $m/session/other; kill $reader")
        watcher.wait("MODIFY", "events")


def test_idle_tree_is_silent(quiet: World) -> None:
    """Nothing is seen of agents that rest, not even of those who look at them."""
    quiet.out(
        "mkdir $m/session/s/agent/other; echo hi > $m/session/s/agent/main/prompt; cat $m/session/s/agent/*/reply"
    )
    with watching(quiet, path="") as watcher:
        time.sleep(0.5)  # what the turn left to be told
        watcher.events.clear()
        quiet.out("ls -lR $m > /dev/null; grep -r x $m > /dev/null")
        time.sleep(2)
        assert watcher.events == []


def test_entr_runs_its_command(quiet: World) -> None:
    """`entr` runs its command each time a file is written; it does not listen for MODIFY, which is all a log raises."""
    if not shutil.which("entr"):
        pytest.skip("entr is not installed")
    told = quiet.home / "told"
    argv = ["entr", "-n", "-p", "touch", str(told)]
    with subprocess.Popen(argv, env=quiet.env, stdin=subprocess.PIPE, text=True) as entr:
        try:
            assert entr.stdin is not None
            entr.stdin.write(f"{quiet.mount}/session/s/title\n")
            entr.stdin.close()
            wait_for(lambda: is_watching(entr.pid))
            for _ in range(3):
                time.sleep(0.2)  # entr takes what comes right after its start and its command for its own doing
                told.unlink(missing_ok=True)
                quiet.out("echo hi > $m/session/s/title")
                wait_for(told.exists)
        finally:
            entr.kill()


def is_watching(pid: int) -> bool:
    """Whether a process has an inotify(7) watch."""
    try:
        return any("inotify wd" in info.read_text(encoding="ascii") for info in Path(f"/proc/{pid}/fdinfo").iterdir())
    except FileNotFoundError:  # closed meanwhile
        return False


def wait_for(is_so: Callable[[], bool]) -> None:
    """Wait until it is so."""
    limit = time.monotonic() + WITHIN_S
    while not is_so():
        assert time.monotonic() < limit
        time.sleep(0.01)


# Many at once


@pytest.fixture
def crowd(quiet: World) -> World:
    """A hundred agents, each in a turn that speaks ten times a second for a long time."""
    quiet.out(
        "mkdir $m/session/s{1,2,3,4,5}; mkdir $m/session/s{1,2,3,4,5}/agent/a{1..19}\n"
        "for p in $m/session/s[1-5]/agent/*/prompt; do echo '@fake chunks 1000 delay 0.1' > $p; done"
    )
    assert quiet.out("grep -lx thinking $m/session/s[1-5]/agent/*/state | wc -l") == "100\n"
    return quiet


def test_crowd_stays_within_the_budget(crowd: World) -> None:
    """A hundred agents that speak make at most 200 events a second, 20 a file; each is heard, and `ls` is quick."""
    with watching(crowd, "modify") as watcher:
        began, before = time.monotonic(), len(watcher.events)
        listings_s = []
        while time.monotonic() < began + 3:
            before_ls = time.monotonic()
            crowd.out("ls $m/session/s3/agent/a7")
            listings_s.append(time.monotonic() - before_ls)
            time.sleep(0.1)
        seen = [event for event in watcher.events[before:] if event.at < began + 3]
        lasted_s = time.monotonic() - began
    assert statistics.median(listings_s) < 0.1
    assert 300 < len(seen) <= TOUCHES_A_S * lasted_s * 1.05
    assert max(Counter(event.path for event in seen).values()) <= TOUCHES_A_FILE_A_S * lasted_s * 1.05
    heard = {event.path for event in seen if event.path.endswith("/chat")}
    assert len(heard) >= 80, len(heard)  # the others a little later


def test_one_file_stays_within_its_budget(quiet: World) -> None:
    """An agent that speaks two hundred times a second makes at most 20 events a second of a file, and not many less."""
    quiet.out("echo '@fake chunks 2000 delay 0.005' > $m/session/s/agent/main/prompt")
    with watching(quiet, "modify") as watcher:
        time.sleep(0.5)  # what the turn's beginning left to be told
        watcher.events.clear()
        time.sleep(2)
        counts = Counter(event.path for event in watcher.events)
    assert counts.keys() == {f"session/s/agent/main/{name}" for name in ("chat", "reply")}
    assert all(30 < count <= TOUCHES_A_FILE_A_S * 2.2 for count in counts.values()), counts


def test_daemon_ends_amid_the_crowd(crowd: World) -> None:
    """The daemon ends within two seconds in the middle of touching, making and removing for its watchers."""
    with watching(crowd) as watcher:
        script = f"while echo name=n$n > {crowd.mount}/session/new; do n=$((n+1)); done"
        with subprocess.Popen(["bash", "-c", script], env=crowd.env, stderr=subprocess.DEVNULL) as maker:
            try:
                watcher.wait("CREATE,ISDIR", "session/n5")
                began = time.monotonic()
                assert crowd.stop() == 0
                assert time.monotonic() - began < 2
            finally:
                maker.kill()
