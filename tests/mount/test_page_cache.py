"""Programs that copy by sendfile(2), as busybox cat does, see what read(2) sees, or are sent to read(2)."""

import sys

import pytest

from tests.mount.world import World

SEND = (
    "import os, sys\n"
    "r, w = os.pipe()\n"
    "try: n = os.sendfile(w, int(sys.argv[1]), None, 65536)\n"
    "except OSError as exc: print(exc.errno)\n"
    "else: os.close(w); print(os.read(r, 65536).decode(), end='')\n"
)


@pytest.mark.parametrize(
    "spoil",
    [": > $f", "stat $f > /dev/null; : > $f", "cat $f > $HOME/copy; cat $HOME/copy > $f", "exec 3<>$f; exec 3>&-"],
)
@pytest.mark.parametrize("name", ["ctl", "../../title", "../../ctl", "../../env"])
def test_truncation_and_short_writes_hide_nothing(world: World, agent: str, name: str, spoil: str) -> None:
    """O_TRUNC and writes leave the kernel with a size of its own making; whoever copies by it gets the whole file."""
    world.out(f"echo title > {agent}/../../title; echo A=1 > {agent}/../../env")
    script = f"f={agent}/{name}; {spoil}; busybox cat $f > $HOME/by-cache; cat $f | cmp - $HOME/by-cache && wc -c < $f"
    assert int(world.out(script)) > 0


@pytest.mark.parametrize("command", ["resume", "stop", "topP 0.5"])
def test_command_hides_nothing_of_its_file(world: World, agent: str, command: str) -> None:
    """A short command leaves the longer text of its file whole for those who copy."""
    script = f"stat {agent}/ctl > /dev/null; echo {command} > {agent}/ctl; busybox cat {agent}/ctl | cmp - {agent}/ctl"
    assert world.out(script) == ""


def test_growing_file_is_copied_whole(world: World, agent: str) -> None:
    """A log that grew since it was looked at is copied to its end."""
    script = f"""
    for n in 1 2 3; do
        ls -l {agent} > /dev/null; echo "number $n" > {agent}/prompt; cat {agent}/reply > /dev/null
        busybox cat {agent}/chat | cmp - {agent}/chat && echo same
    done
    """
    assert world.out(script) == "same\n" * 3


@pytest.mark.parametrize(
    ("name", "written", "read"),
    [
        ("prompt", "hi", "You said: hi"),
        ("ctl", "stop", "no turn is running"),
        ("../new", "name=bycache", "bycache"),
        ("../../../../generate", "hi", "You said: hi"),
        ("statewait", "since 0", "idle"),
        ("statewait", "idle", "idle"),
    ],
)
def test_answer_is_copied_from_the_same_open_file(world: World, agent: str, name: str, written: str, read: str) -> None:
    """After a write, busybox cat on the same open file gives the whole answer and nothing else."""
    world.out(f"echo before > {agent}/prompt; cat {agent}/reply")
    said = world.out(f"exec 3<>{agent}/{name}; echo {written} >&3; busybox cat <&3")
    assert said.startswith(read) and said.count("\n") == 1  # noqa: PT018 - what is wrong shows in either


@pytest.mark.parametrize("name", ["statewait", "../../../../events"])
def test_stream_that_waits_is_never_filled(world: World, agent: str, name: str) -> None:
    """Whoever opened it, a copy from a file that waits waits in read(2): it can be killed, and others can open it."""
    script = f"""
    exec 3<{agent}/{name}
    busybox cat <&3 > /dev/null & reader=$!
    until_blocked 1
    kill -9 $reader; wait $reader 2> /dev/null; echo $?
    exec 3<&-
    timeout -s KILL 0.5 cat {agent}/{name}; echo $?
    """
    assert world.out(script) == "137\n137\n"


def test_sendfile_by_another_thread_or_child_is_refused(world: World, agent: str) -> None:
    """A child that copies from a stream its parent opened is sent to read(2), at once."""
    script = f'exec 3<{agent}/statewait; timeout 5 {sys.executable} -c "$0" 3'
    done = world.run("bash", "-c", script, SEND)
    assert done.stdout == b"5\n", done  # EIO
