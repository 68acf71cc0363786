"""A real daemon in a process of its own, its mount, a scripted model server, and shells to drive it."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
START_S = 20.0
BACKENDS = """\
[fake]
url = {url}
model = fake-1
window = 32768

[down]
url = http://127.0.0.1:9
model = some
"""


@dataclass
class World:
    """One daemon with a home of its own. Nothing here touches the mount but child processes with a time limit."""

    home: Path
    backends_conf: str
    env: dict[str, str] = field(default_factory=dict)
    daemon: "subprocess.Popen[bytes] | None" = None
    log_seen: int = 0

    def __post_init__(self) -> None:
        self.env = {
            "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": str(self.home),
            "LC_ALL": "C.UTF-8",
            "PYTHONPATH": str(REPOSITORY),
        }
        config = self.home / ".config" / "ollie"
        config.mkdir(parents=True)
        if self.backends_conf:
            (config / "backends.conf").write_text(self.backends_conf, encoding="utf-8")

    @property
    def mount(self) -> Path:
        return self.home / "ollie"

    @property
    def log(self) -> Path:
        return self.home / "daemon.log"

    def start(self, extra_env: Mapping[str, str] | None = None) -> None:
        """Start the daemon and wait until it says that it is mounted."""
        before = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self.daemon = subprocess.Popen(
                [sys.executable, "-m", "ollie_fuse", "up"],
                env=self.env | dict(extra_env or {}),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        limit = time.monotonic() + START_S
        while b"mounted at" not in self.log.read_bytes()[before:]:
            assert self.daemon.poll() is None, self.log.read_text(encoding="utf-8")
            assert time.monotonic() < limit, self.log.read_text(encoding="utf-8")
            time.sleep(0.01)

    def stop(self, number: int = signal.SIGTERM, timeout_s: float = 10.0) -> int:
        """End the daemon by a signal; return its exit status."""
        assert self.daemon is not None
        daemon, self.daemon = self.daemon, None
        daemon.send_signal(number)
        return daemon.wait(timeout_s)

    def run(
        self, *argv: str, timeout_s: float = 20.0, stdin: bytes = b"", cwd: Path | None = None
    ) -> "subprocess.CompletedProcess[bytes]":
        """Run a program in this world."""
        return subprocess.run(
            argv, env=self.env, capture_output=True, timeout=timeout_s, input=stdin, cwd=cwd or self.home, check=False
        )

    def sh(self, script: str, *, shell: str = "bash", timeout_s: float = 20.0) -> "subprocess.CompletedProcess[bytes]":
        """Run a shell script whose ``$m`` is the mount."""
        shells = {"busybox": ["busybox", "sh"]}
        argv = [*shells.get(shell, [shell]), "-c", f"m={self.mount}\n{script}"]
        return self.run(*argv, timeout_s=timeout_s)

    def out(self, script: str, *, shell: str = "bash", timeout_s: float = 20.0) -> str:
        """Run a shell script that must succeed; return what it printed."""
        done = self.sh(script, shell=shell, timeout_s=timeout_s)
        assert done.returncode == 0, (script, done)
        return done.stdout.decode()

    def new_troubles(self) -> list[str]:
        """Return the warnings and tracebacks that the daemon logged since the last call."""
        text = self.log.read_text(encoding="utf-8") if self.log.exists() else ""
        fresh, self.log_seen = text[self.log_seen :], len(text)
        return [line for line in fresh.splitlines() if not line.startswith(("INFO", "DEBUG"))]


@pytest.fixture(scope="session")
def model_server() -> Iterator[str]:
    """The URL of a scripted model server in a process of its own."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.fakes.model_server"],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        first = server.stdout.readline().decode().split()
        assert first[0] == "ready"
        yield first[1]
        server.stdin.close()


@pytest.fixture(scope="session")
def make_world(model_server: str) -> Iterator[Callable[..., World]]:
    """Makes worlds; whatever they leave mounted or running is ended."""
    made: list[World] = []

    def make(backends_conf: str = BACKENDS) -> World:
        home = Path(tempfile.mkdtemp(prefix="ollie-test-"))
        world = World(home, backends_conf.format(url=model_server))
        made.append(world)
        return world

    yield make
    for world in made:
        if world.daemon is not None:
            world.daemon.kill()
            world.daemon.wait(10)
        subprocess.run(["fusermount3", "-uzq", str(world.mount)], timeout=10, check=False)
        shutil.rmtree(world.home, ignore_errors=True)


@pytest.fixture(scope="session")
def _shared_world(make_world: Callable[..., World]) -> World:
    world = make_world()
    world.start()
    return world


@pytest.fixture
def world(_shared_world: World, request: pytest.FixtureRequest) -> Iterator[World]:
    """A daemon that tests share, each with sessions of its own; a warning in its log fails the test."""
    assert _shared_world.daemon is not None
    assert _shared_world.daemon.poll() is None, _shared_world.log.read_text(encoding="utf-8")
    yield _shared_world
    troubles = _shared_world.new_troubles()
    assert request.node.get_closest_marker("logs_warnings") or not troubles, troubles


@pytest.fixture
def own_world(make_world: Callable[..., World]) -> World:
    """A world whose daemon the test starts and ends itself."""
    return make_world()


@pytest.fixture
def agent(world: World, request: pytest.FixtureRequest) -> Iterator[str]:
    """The path of the first agent of a session of the test's own."""
    name = f"s{abs(hash(request.node.nodeid)) % 10**10}-{time.monotonic_ns() % 10**6}"
    world.out(f"mkdir $m/session/{name}")
    yield str(world.mount / "session" / name / "agent" / "main")
    world.sh(f"rmdir $m/session/{name}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder drives a mount; without /dev/fuse it is skipped, with the reason."""
    here = Path(__file__).parent
    reason = None if os.access("/dev/fuse", os.R_OK | os.W_OK) else "/dev/fuse is missing or not permitted"
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.mount)
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))
