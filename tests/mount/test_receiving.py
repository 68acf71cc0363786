"""No script sees a false idle between its prompt and its look."""

import sys
from pathlib import Path

from tests.mount.world import World

CLIENT = Path(__file__).parent / "clients" / "false_idle.py"


def test_no_false_idle_beside_bursts_of_closes(world: World, agent: str, is_long: bool) -> None:
    """Once the close of `prompt` returned, `state` is not idle until the turn is over, though RELEASE may be late."""
    rounds = 20_000 if is_long else 1_000
    done = world.run(sys.executable, str(CLIENT), agent, str(rounds), timeout_s=rounds * 0.05)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"0\n", b"")


def test_reply_opened_while_receiving_waits(world: World, agent: str) -> None:
    """A prompt that was closed once but is still open elsewhere makes the agent `receiving`; `reply` waits for it."""
    script = f"""
    exec 3>{agent}/prompt
    echo part one >&3                      # bash closes its copy: a flush with data
    cat {agent}/state
    cat {agent}/reply > {world.home}/early 3>&- & reader=$!
    until_blocked 1
    echo part two >&3
    exec 3>&-
    wait $reader; cat {world.home}/early
    """
    assert world.out(script) == "receiving\nYou said: part one\npart two\n"
