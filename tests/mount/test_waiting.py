"""Who waits for a state or an event misses none, is woken at once, and is told what was lost."""

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.mount.world import World

CLIENTS = Path(__file__).with_name("clients")
WAKES_S = 0.1
KEPT = 10_000
"""Events kept for readers that are behind."""

UNTIL_BLOCKED = 'until [ "$(sed -n s/blocked_readers=//p $m/status)" = 1 ]; do :; done'


def client(name: str, *arguments: object) -> list[str]:
    return [sys.executable, str(CLIENTS / f"{name}.py"), *map(str, arguments)]


def seq_of_events(world: World) -> int:
    """Return the number of the last event, as one who only looks around finds it."""
    text = world.out("cd $m; python3 -c 'import os; os.listdir(); print(open(\"events\").read())'")
    return int(json.loads(text.splitlines()[-2])["seq"])


# statewait


def test_idle_returns_at_once_when_it_is(world: World, agent: str) -> None:
    """`idle` written to `statewait` of an idle agent gives the state without any wait, again and again."""
    script = f"exec 3<>{agent}/statewait; for n in 1 2 3; do echo idle >&3; cat <&3; done"
    assert world.out(script, timeout_s=2) == "idle 0\n" * 3


def test_idle_waits_for_the_last_queued_prompt(world: World, agent: str) -> None:
    """`idle` waits through all prompts that were queued by then, and does not return between two."""
    gate = world.home / "idle-gate"
    script = f"""
    rm -f {gate}; for n in 1 2 3; do printf '@fake until {gate}\\n@fake say %s\\n' $n > {agent}/prompt; done
    exec 3<>{agent}/statewait; echo idle >&3; cat <&3 > idle-line & waiter=$!
    {UNTIL_BLOCKED}
    touch {gate}; wait $waiter; cut -d' ' -f1 idle-line; grep -c ^assistant {agent}/chat
    """
    assert world.out(script) == "idle\n3\n"


def test_since_returns_at_once_for_what_is_past(world: World, agent: str) -> None:
    """`since SEQ` returns at once if anything came after SEQ, with the newest, and waits if nothing did."""
    world.out(f"echo hi > {agent}/prompt; cat {agent}/reply")
    script = f"exec 3<>{agent}/statewait; echo since 0 >&3; cat <&3; echo since 1 >&3; cat <&3"
    first, second = world.out(script, timeout_s=2).splitlines()
    assert first == second
    seq = int(first.split()[1])
    waiting = world.sh(f"exec 3<>{agent}/statewait; echo since {seq} >&3; timeout 0.2 cat <&3")
    assert (waiting.returncode, waiting.stdout) == (124, b"")


def test_baseline_is_the_state_at_the_open(world: World, agent: str) -> None:
    """What happens between the open and the first read is not missed, though nothing was written."""
    script = f"exec 3<{agent}/statewait; echo hi > {agent}/prompt; cat {agent}/reply > /dev/null; cat <&3"
    assert world.out(script, timeout_s=2).split()[0] == "idle"


def test_line_then_end_of_file(world: World, agent: str) -> None:
    """An open `statewait` gives one line and then its end, however small the pieces in which it is read."""
    script = (
        f"exec 3<{agent}/statewait; echo hi > {agent}/prompt; cat {agent}/reply > /dev/null; dd bs=1 status=none <&3"
    )
    assert world.out(script, timeout_s=2).startswith("idle ")


@pytest.mark.parametrize("words", ["idel", "since", "since x", "since -1", "idle now", "''", "since 9999"])
def test_other_words_are_refused(world: World, agent: str, words: str) -> None:
    """Anything but `idle` and `since SEQ` is refused in the write."""
    assert world.sh(f"echo {words} 1<>{agent}/statewait").returncode != 0


@pytest.mark.parametrize("seed", range(3))
def test_no_wake_up_is_lost(world: World, agent: str, seed: int, is_long: bool) -> None:
    """Whatever two writers do, each of many readers that loop over `since` sees SEQ grow and learns the last one."""
    steps = 2000 if is_long else 60
    done = world.run(*client("state_watchers", agent, 60, steps, seed, "gently"), timeout_s=10 + steps * 0.1)
    assert done.returncode == 0, done
    *wrong, told = done.stdout.decode().splitlines()
    assert wrong == []
    last, lines = map(int, told.split())
    assert last > steps
    assert lines > 60 * 3  # they were woken on the way, not only in the end


def test_exit_of_many_readers_never_stalls_the_daemon(own_world: World) -> None:
    """A process that exits while its threads read, wait and write is gone at once, and the daemon's loop goes on."""
    own_world.start()
    for number in range(8):
        agent = f"{own_world.mount}/session/s{number}/agent/main"
        own_world.out(f"mkdir $m/session/s{number}")
        process = subprocess.Popen(client("state_watchers", agent, 60, 20, number, "abruptly"), stdout=subprocess.PIPE)
        try:
            assert process.wait(4) == 0
        except subprocess.TimeoutExpired:
            assert own_world.daemon is not None
            where = Path(f"/proc/{own_world.daemon.pid}/wchan").read_text(encoding="ascii")
            own_world.out("cat $m/version")  # any request lets a loop go on that waits in read(2)
            pytest.fail(f"60 readers do not end; the daemon is in {where}")
        finally:
            process.kill()
            process.communicate(timeout=5)
    assert own_world.stop() == 0


def test_state_is_told_of_alone(world: World, agent: str) -> None:
    """Settings and lists that change wake nobody who waits for the state."""
    session = agent.removesuffix("/agent/main")
    script = f"""
    timeout 0.5 cat {agent}/statewait & waiter=$!
    {UNTIL_BLOCKED}
    echo topP 0.5 > {agent}/ctl; echo a title > {session}/title; mkdir {session}/agent/other; echo bogus > {agent}/ctl
    wait $waiter; echo $?
    """
    assert world.out(script) == "124\n"


# Not waiting, and being woken


@pytest.mark.parametrize("name", ["statewait", "../../../../events", "reply", "answer"])
def test_nonblocking_open_never_waits(world: World, agent: str, name: str) -> None:
    """A file opened with O_NONBLOCK gives EAGAIN while there is nothing, and what there is once there is."""
    gate = world.home / f"nonblocking-{name.replace('/', '_')}"
    world.out(f"printf '@fake until {gate}\\n@fake say over\\n' > {agent}/prompt")
    code = (
        "import os, select, sys, pathlib\n"
        "fd = os.open(sys.argv[1], os.O_RDONLY | os.O_NONBLOCK)\n"
        "for _ in range(3):\n"
        "    try: os.read(fd, 100); print('something')\n"
        "    except BlockingIOError: print('nothing')\n"
        "pathlib.Path(sys.argv[2]).touch(); print(bool(select.select([fd], [], [], 5)[0]), bool(os.read(fd, 100)))\n"
    )
    done = world.run(sys.executable, "-c", code, f"{agent}/{name}", str(gate))
    assert (done.stdout, done.stderr) == (b"nothing\n" * 3 + b"True True\n", b"")


def woken_after_s(world: World, agent: str, way: str, path: str, words: str = "") -> float:
    """Return how long after a change of state one was woken who waits for it."""
    with subprocess.Popen(client("woken", way, path, words), env=world.env, stdout=subprocess.PIPE) as waiter:
        assert waiter.stdout is not None
        assert waiter.stdout.readline() == b"ready\n"
        time.sleep(0.02)  # it says so just before
        before = seq_of_events(world)
        world.out(f"echo hi > {agent}/prompt; cat {agent}/reply")
        woken, read = waiter.communicate(timeout=10)[0].decode().split("\n", 1)
    assert read
    event = world.out(f"exec 3<>$m/events; echo since {before} >&3; head -n 1 <&3")
    return float(woken) - float(json.loads(event)["ts"])


@pytest.mark.parametrize("name", ["statewait", "../../../../events"])
@pytest.mark.parametrize("way", ["select", "poll", "epoll"])
def test_pollers_are_woken_at_once(world: World, agent: str, way: str, name: str) -> None:
    """select, poll and epoll return within 100 ms of what they wait for, and the file then has something to read."""
    assert statistics.median(woken_after_s(world, agent, way, f"{agent}/{name}") for _ in range(3)) < WAKES_S


def test_poller_may_say_what_it_waits_for(world: World, agent: str) -> None:
    """A poll heeds what was written to the open file before."""
    seq = world.out(f"echo hi > {agent}/prompt; cat {agent}/reply > /dev/null; grep -h '' {agent}/state")
    assert seq == "idle\n"
    line = world.out(f"exec 3<>{agent}/statewait; echo since 0 >&3; cat <&3")
    assert woken_after_s(world, agent, "poll", f"{agent}/statewait", f"since {line.split()[1]}") < 5 * WAKES_S


def test_a_thousand_are_woken(world: World, agent: str) -> None:
    """A change of state wakes every one of a thousand readers, within half a second."""
    code = (
        "import os, sys, threading, time\n"
        "opened = [os.open(sys.argv[1], os.O_RDONLY) for _ in range(1000)]\n"
        "woken = []\n"
        "def read(fd): os.read(fd, 100); woken.append(time.time())\n"
        "threading.stack_size(1 << 16)\n"
        "threads = [threading.Thread(target=read, args=(fd,)) for fd in opened]\n"
        "[thread.start() for thread in threads]\n"
        "print('ready', flush=True)\n"
        "[thread.join() for thread in threads]; print(max(woken))\n"
    )
    argv = [sys.executable, "-c", code, f"{agent}/statewait"]
    with subprocess.Popen(argv, env=world.env, stdout=subprocess.PIPE) as readers:
        assert readers.stdout is not None
        assert readers.stdout.readline() == b"ready\n"
        world.out('until [ "$(sed -n s/blocked_readers=//p $m/status)" = 1000 ]; do sleep 0.01; done')
        before = seq_of_events(world)
        world.out(f"echo hi > {agent}/prompt")
        last = float(readers.communicate(timeout=10)[0])
    event = world.out(f"exec 3<>$m/events; echo since {before} >&3; head -n 1 <&3")
    assert last - float(json.loads(event)["ts"]) < 0.5


# events


def test_interrupted_readers_of_events_see_each_once(world: World, agent: str) -> None:
    """Readers that break off and take up with `since` have every event once and in order, beside two writers."""
    before = seq_of_events(world)
    last = before + 2 * 300
    world.out(f"mkdir {agent}/../other")
    writers = [subprocess.Popen(client("renamer", name, 300)) for name in (agent, agent.replace("main", "other"))]
    readers = [
        subprocess.Popen(client("events_reader", f"{world.mount}/events", before, last, seed), stdout=subprocess.PIPE)
        for seed in range(4)
    ]
    try:
        assert [writer.wait(20) for writer in writers] == [0, 0]
        for reader in readers:
            had = list(map(int, reader.communicate(timeout=20)[0].split()))
            assert had == list(range(before + 1, had[-1] + 1))
            assert had[-1] >= last
    finally:
        for process in (*writers, *readers):
            process.kill()
            process.communicate(timeout=5)


def test_events_can_be_piped(world: World, agent: str) -> None:
    """`events` read by lines in a shell gives each event as one JSON object."""
    script = f"""
    exec 3<>$m/events; echo since 0 >&3
    echo hi > {agent}/prompt; cat {agent}/reply > /dev/null; mkdir {agent}/../last
    while read -r line <&3; do echo "$line"; case $line in *agent_created*last*) break; esac; done
    """
    events = [json.loads(line) for line in world.out(script).splitlines()]
    lost = events.pop(0)["lost"] if "lost" in events[0] else 0
    assert [event["seq"] for event in events] == list(range(lost + 1, lost + len(events) + 1))
    assert all(event["ts"] <= time.time() for event in events)


def test_since_the_newest_waits_for_the_next(world: World, agent: str) -> None:
    """`since` the newest event is no mistake: there is nothing to read until the next one, which then comes."""
    code = (
        "import os, sys\n"
        "fd = os.open(sys.argv[1], os.O_RDWR | os.O_NONBLOCK); os.write(fd, b'since ' + sys.argv[2].encode())\n"
        "try: os.read(fd, 100)\n"
        "except BlockingIOError: os.rename(sys.argv[3], sys.argv[3] + '-2'); print(os.read(fd, 1000).decode())\n"
    )
    newest = seq_of_events(world)
    done = world.run(sys.executable, "-c", code, f"{world.mount}/events", str(newest), agent)
    assert done.stderr == b""
    assert json.loads(done.stdout)["seq"] == newest + 1


@pytest.mark.parametrize(
    ("wanted", "kinds"),
    [
        ("type=turn_finished", ["turn_finished"]),
        ("session=S agent=main", ["state", "state", "turn_finished", "state"]),
        ("session=S agent=other", ["agent_created"]),
        ("agent=main type=state", ["state", "state", "state"]),
    ],
)
def test_events_can_be_filtered(world: World, agent: str, wanted: str, kinds: list[str]) -> None:
    """Words after `since SEQ` choose the events that a reader gets."""
    name = Path(agent).parts[-3]
    before = seq_of_events(world)
    script = f"""
    mkdir {agent}/../other; echo hi > {agent}/prompt; cat {agent}/reply > /dev/null
    exec 3<>$m/events; echo 'since {before} {wanted.replace("S", name)}' >&3; timeout 2 head -n {len(kinds)} <&3
    """
    events = [json.loads(line) for line in world.out(script).splitlines()]
    assert [event["type"] for event in events] == kinds
    assert {event["session"] for event in events} == {name}


@pytest.mark.parametrize("words", ["since", "since x", "sinse 1", "since 1 2", "kind=state", "since 99999999"])
def test_events_refuse_other_words(world: World, words: str) -> None:
    """Anything that `events` does not take is refused in the write."""
    assert world.sh(f"echo {words} 1<>$m/events").returncode != 0


def test_slow_readers_learn_what_they_lost(own_world: World) -> None:
    """Who falls more than ten thousand events behind is told how many are gone, and has all the rest."""
    own_world.start()
    own_world.out("mkdir $m/session/s; mkdir $m/session/s/agent/other")
    before, over = seq_of_events(own_world), 40
    code = (
        "import json, os, sys\n"
        "fd = os.open(sys.argv[1], os.O_RDWR); os.write(fd, b'since ' + sys.argv[2].encode())\n"
        "print('open', flush=True)\n"
        "sys.stdin.readline(); data = b''\n"
        "while b'agent_killed' not in data: data += os.read(fd, 1 << 20)\n"
        "first, *rest = map(json.loads, data.splitlines())\n"
        "print(json.dumps([first, [each['seq'] for each in rest]]))\n"
    )
    argv = [sys.executable, "-c", code, f"{own_world.mount}/events", str(before)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"open\n"
        renamers = [
            subprocess.Popen(client("renamer", f"{own_world.mount}/session/s/agent/{name}", (KEPT + over) // 2))
            for name in ("main", "other")
        ]
        assert [renamer.wait(60) for renamer in renamers] == [0, 0]
        own_world.out("rmdir $m/session/s/agent/other")
        first, seqs = json.loads(reader.communicate(b"\n", timeout=10)[0])
    assert first == {"lost": over + 1}
    assert seqs == list(range(before + over + 2, before + KEPT + over + 2))
    assert own_world.stop() == 0
    assert own_world.new_troubles() == []
