"""Worlds for the tests that drive a mount, and the scripted model server behind them."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.mount.world import BACKENDS, REPOSITORY, World


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
