"""No input, from any writer, ends the daemon."""

import sys
from pathlib import Path

from tests.mount.world import World

CLIENT = Path(__file__).parent / "clients" / "random_bytes.py"


def test_random_bytes_end_nothing(own_world: World, is_long: bool) -> None:
    """Random bytes to every writable file end nothing, give only our own errors, and leave every file readable."""
    rounds = 20_000 if is_long else 1_500
    own_world.start()
    own_world.out("mkdir $m/session/s; exec 3<>$m/session/new; echo name=calm >&3")
    agent = f"{own_world.mount}/session/s/agent/main"
    argv = [sys.executable, str(CLIENT), str(own_world.mount), agent, str(rounds), "1"]
    done = own_world.run(*argv, timeout_s=30 + rounds * 0.05)
    assert done.returncode == 0, done
    told = done.stdout.decode()
    assert "unexpected" not in told, told
    assert "refused 0\n" not in told
    readable = own_world.out(
        "cd $m; find . -type f ! -name events ! -name statewait ! -name reply ! -name answer -exec cat {} + | wc -c",
        timeout_s=60,
    )
    assert int(readable) > 1000
    calm = f"{own_world.mount}/session/calm/agent/main"
    assert own_world.out(f"echo hi > {calm}/prompt; cat {calm}/reply") == "You said: hi\n"
    assert own_world.new_troubles() == []
    assert own_world.stop() == 0
