"""Names, places and open files keep to the thing that they were for."""

import sys
from pathlib import Path

import pytest

from tests.mount.world import World


def test_names_of_the_tree_are_taken(world: World) -> None:
    """`new` and `idx` are no names for sessions and agents, whichever way they are asked for."""
    script = """
    mkdir $m/session/plain
    for name in new idx; do
        (echo "name=$name" > $m/session/new) 2>/dev/null && echo made $name
        (echo "name=$name" > $m/session/plain/agent/new) 2>/dev/null && echo made $name
        (echo "rename $name" > $m/session/plain/ctl) 2>/dev/null && echo renamed $name
        (echo "rename $name" > $m/session/plain/agent/main/ctl) 2>/dev/null && echo renamed $name
    done
    test -f $m/session/new -a -f $m/session/idx && echo files
    rmdir $m/session/plain
    """
    assert world.out(script) == "files\n"


def test_open_files_of_the_dead_touch_nobody(world: World) -> None:
    """What is written to open files of a killed session reaches neither a new one of its name nor a ghost."""
    script = """
    mkdir $m/session/twin; cd $m/session/twin
    exec 5<>ctl 6<>agent/main/ctl 7<>agent/new
    rmdir $m/session/twin; mkdir $m/session/twin
    for command in kill "rename other"; do
        echo "$command" >&5 || echo refused
        echo "$command" >&6 || echo refused
    done
    echo name=ghost >&7 || echo refused
    mkdir agent/ghost || echo refused
    ls $m/session/twin/agent; test ! -e $m/session/other && echo alone
    cd /; rmdir $m/session/twin
    """
    assert world.out(script) == "refused\n" * 6 + "idx\nmain\nnew\nalone\n"


def test_sizes_stay_true_beside_an_open_conversation(world: World, agent: str) -> None:
    """What one program asks `ctl` on its open file changes nothing for those who look at the file."""
    script = f"""
    exec 3<>{agent}/ctl; echo "topP 0.5" >&3
    [ "$(stat -c %s {agent}/ctl)" = "$(cat {agent}/ctl | wc -c)" ] && echo true
    tail -n 1 {agent}/ctl | cut -d' ' -f1
    """
    assert world.out(script) == "true\ncwd\n"


def test_resumed_prompt_gives_its_reply_on_its_own_file(world: World, agent: str) -> None:
    """A prompt that was held ends its reader; once it goes on, the same open file gives its reply."""
    gate = world.home / "held-gate"
    script = f"""
    rm -f {gate}; echo '@fake until {gate}' > {agent}/prompt
    exec 4<>{agent}/prompt; echo second >&4
    cat <&4 & reader=$!
    until_blocked 1
    echo stop > {agent}/ctl; wait $reader; echo "held $?"
    grep -c held {agent}/error
    touch {gate}; echo resume > {agent}/ctl; cat <&4 | tail -n 1
    """
    assert world.out(script) == "held 1\n1\nsecond\n"


def test_dropped_prompt_leaves_the_last_reply(world: World, agent: str) -> None:
    """After a drop `error` says so, and `reply` gives what was said last."""
    gate = world.home / "drop-gate"
    script = f"""
    rm -f {gate}; printf '@fake until {gate}\\n@fake say first\\n' > {agent}/prompt; echo second > {agent}/prompt
    cat {agent}/reply & reader=$!
    until_blocked 1
    echo drop 2 > {agent}/queue; wait $reader; echo $?
    touch {gate}; cat {agent}/reply
    """
    assert world.out(script) == "1\nfirst\n"


def test_working_directory_never_lies_in_the_mount(world: World, agent: str) -> None:
    """A path that leads into the mount by `..` or a link becomes home, also where the mount itself is in a handler."""
    session = agent.removesuffix("/agent/main")
    link = world.home / "into"
    if not link.is_symlink():
        link.symlink_to(world.mount)
    for path in (f"{world.home}/x/../ollie/session", f"{link}/session", f"/tmp/../{world.mount}"):
        assert world.out(f"echo '{path}' > {session}/cwd; cat {session}/cwd") == f"{world.home}\n"


def test_listing_survives_files_that_vanish(world: World) -> None:
    """A pass-through listing shows what stays while the host makes and removes other files."""
    folder = world.home / ".config" / "ollie" / "agents"
    folder.mkdir(exist_ok=True)
    for number in range(100):
        (folder / f"stable-{number}").touch()
    client = (
        "import os, sys, threading\n"
        "def churn():\n"
        "    while not done: open(sys.argv[1] + '/passing', 'w').close(); os.unlink(sys.argv[1] + '/passing')\n"
        "done = []; thread = threading.Thread(target=churn); thread.start()\n"
        "least = min(len([n for n in os.listdir(sys.argv[2]) if n.startswith('stable')]) for _ in range(60))\n"
        "done.append(1); thread.join(); print(least)\n"
    )
    listed = world.run(sys.executable, "-c", client, str(folder), f"{world.mount}/agents")
    assert listed.stdout == b"100\n", listed


@pytest.mark.parametrize("name", ["hé", "with space", "日本"])
def test_homes_with_any_name(own_world: World, name: str) -> None:
    """`up`, `status`, `doctor` and `down` work in a home of any name, also by way of a link."""
    home = own_world.home / name
    home.mkdir()
    link = own_world.home / "link"
    link.symlink_to(home)
    for place in (home, link):
        own_world.env["HOME"] = str(place)
        own_world.start()
        status = own_world.run("ollie-fuse", "status")
        assert status.returncode == 0, status
        assert b"FAIL mount point" not in own_world.run("ollie-fuse", "doctor").stdout
        assert own_world.run("cat", str(place / "ollie" / "version")).returncode == 0
        assert own_world.stop() == 0


def test_directory_whose_name_is_not_utf8(world: World) -> None:
    """A session made from a directory with a name of any bytes works there, and lists go on working."""
    script = """
    d=$(printf '%s/caf\\351' $HOME); mkdir -p "$d"; cd "$d" && mkdir $m/session/latin
    [ "$(cat $m/session/latin/cwd)" = "$d" ] && echo same
    ls $m/session | grep -x latin; grep -c latin $m/session/idx
    echo hi > $m/session/latin/agent/main/prompt; cat $m/session/latin/agent/main/reply
    rmdir $m/session/latin
    """
    assert world.out(script) == "same\nlatin\n1\nYou said: hi\n"


def test_listing_in_one_thread_allows_removing_in_another(world: World) -> None:
    """Who listed is the process: rm -r in a program with threads works."""
    world.out("mkdir $m/session/threaded")
    client = (
        "import os, shutil, sys, threading\n"
        "names = os.listdir(sys.argv[1])\n"
        "thread = threading.Thread(target=lambda: [os.unlink(f'{sys.argv[1]}/{n}') for n in names if n != 'agent'])\n"
        "thread.start(); thread.join(); shutil.rmtree(sys.argv[1])\n"
    )
    done = world.run(sys.executable, "-c", client, f"{world.mount}/session/threaded")
    assert (done.returncode, done.stderr) == (0, b"")


def test_pretended_removal_damages_nothing(world: World) -> None:
    """`rmdir` of a fixed directory after listing has no effect, not even for those who stand in it."""
    script = """
    mkdir $m/session/whole; cd $m/session/whole/agent
    python3 -c "import os; os.listdir('$m/session/whole'); os.rmdir('$m/session/whole/agent')"
    ls $m/session/whole/agent; cd /; rmdir $m/session/whole
    """
    assert world.out(script) == "idx\nmain\nnew\n"


def test_second_signal_does_not_cut_the_end_short(own_world: World) -> None:
    """A second SIGTERM during the shutdown changes nothing: it still unmounts and exits with 0."""
    own_world.start()
    own_world.out("mkdir $m/session/s; (cat $m/session/s/agent/main/statewait > /dev/null 2>&1 &) ; true")
    assert own_world.daemon is not None
    daemon = own_world.daemon
    for _ in range(3):
        daemon.terminate()
    assert own_world.stop() == 0
    assert f" {own_world.mount} " not in Path("/proc/self/mountinfo").read_text(encoding="utf-8")
