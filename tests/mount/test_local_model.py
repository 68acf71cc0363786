"""A machine with no key, no network and no server still answers."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mount.world import World

pytestmark = pytest.mark.local_model


def children_of(pid: int) -> list[int]:
    """The direct children of a process, proc(5): each of its threads has its own."""
    lists = [path.read_text(encoding="ascii") for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return [int(child) for child in " ".join(lists).split()]


def test_real_conversation(make_world: Callable[..., World], model_data_dir: Path) -> None:
    """With nothing configured the local model answers, is stopped with its daemon, and its tokens are counted."""
    world = make_world("")
    share = world.home / ".local" / "share"
    share.mkdir(parents=True)
    (share / "ollie").symlink_to(model_data_dir)
    world.start()
    agent = f"{world.mount}/session/s/agent/main"
    asked = f"mkdir $m/session/s; echo What is the capital of France? > {agent}/prompt; cat {agent}/reply"
    assert "Paris" in world.out(asked, timeout_s=90)
    assert "turn_requests=1\n" in world.out(f"cat {agent}/usage")
    assert "assumed" not in world.out(f"cat {agent}/usage; cat $m/models")
    assert world.daemon is not None
    servers = [pid for pid in children_of(world.daemon.pid) if "local_server" in cmdline_of(pid)]
    assert len(servers) == 1
    assert world.stop(signal.SIGTERM) == 0
    with pytest.raises(ProcessLookupError):
        os.kill(servers[0], 0)


def cmdline_of(pid: int) -> str:
    """The command of a process, its words apart."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def test_missing_model_says_how_to_get_it(make_world: Callable[..., World]) -> None:
    """Without the model file the turn fails with the command that fetches it, and doctor says the same."""
    world = make_world("")
    world.start()
    agent = f"{world.mount}/session/s/agent/main"
    world.out("mkdir $m/session/s")
    assert world.sh(f"echo hi > {agent}/prompt; cat {agent}/reply").returncode == 1
    assert "ollie-fuse fetch-model" in world.out(f"cat {agent}/error")
    assert b"fetch-model" in world.run("ollie-fuse", "doctor").stdout
    assert world.stop() == 0
