"""What bad input gets: an errno in the very write, a sentence that helps, and no effect."""

import errno
import os
import sys

import pytest

from tests.mount.world import World

DEV_NULL = "> /dev/null"


def put(world: World, path: str, data: bytes) -> tuple[int, str]:
    """Write *data* once through a descriptor open for both; return the errno, 0 for none, and what is read back."""
    client = (
        "import os, sys\n"
        "fd = os.open(sys.argv[1], os.O_RDWR)\n"
        "try: os.write(fd, sys.stdin.buffer.read()); print(0)\n"
        "except OSError as exc: print(exc.errno)\n"
        "sys.stdout.flush()\n"
        "if sys.argv[2] == 'read': os.write(1, os.read(fd, 65536))\n"
    )
    wants = "read" if not path.endswith(("/prompt", "/statewait", "/events")) else "no"
    done = world.run(sys.executable, "-c", client, path, wants, stdin=data)
    assert done.returncode == 0, done
    number, _, rest = done.stdout.decode(errors="replace").partition("\n")
    return int(number), rest


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("bogus", "there is no command 'bogus'"),
        ("temprature 1", "did you mean 'temperature'"),
        ("temperature", "usage: temperature VALUE"),
        ("temperature 1 2", "usage: temperature VALUE"),
        ("temperature 3", "goes from 0 to 2"),
        ("temperature nan", "goes from 0 to 2"),
        ("temperature warm", "is a number"),
        ("maxTokens 1.5", "whole number"),
        ("model nothere", "has no model 'nothere'; it has fake-1"),
        ("backend nothere", "there is no backend 'nothere'; there are fake, down"),
        ("rename ..", "is not a name"),
        ("rename 'a b'", "is not a name"),
        ("model 'unclosed", "closing quotation"),
        ("temperature 1\nbogus", "line 2: there is no command"),
    ],
)
def test_ctl_refuses(world: World, agent: str, line: str, says: str) -> None:
    """A wrong line is EINVAL in its write, its sentence is read back and stands in `error`, and no setting changed."""
    before = world.out(f"cat {agent}/ctl")
    number, back = put(world, f"{agent}/ctl", line.encode())
    assert number == errno.EINVAL
    assert says in back
    assert says in world.out(f"cat {agent}/error")
    assert world.out(f"cat {agent}/ctl") == before


def test_echo_fails_visibly(world: World, agent: str) -> None:
    """A refused command makes echo fail in every shell."""
    for shell in ("bash", "dash", "zsh", "busybox"):
        done = world.sh(f"echo bogus > {agent}/ctl", shell=shell)
        assert done.returncode != 0
        assert done.stderr  # dash says "I/O error" to everything


def test_ctl_takes_its_own_text_back(world: World, agent: str) -> None:
    """What `ctl` shows can be written to it."""
    world.out(f"echo 'temperature 0.25' > {agent}/ctl")
    before = world.out(f"cat {agent}/ctl")
    world.out(f"cat {agent}/ctl > {world.home}/saved; echo 'temperature 1' > {agent}/ctl")
    world.out(f"cat {world.home}/saved > {agent}/ctl")
    assert world.out(f"cat {agent}/ctl") == before


@pytest.mark.parametrize(
    ("spec", "number", "says"),
    [
        ("nme=x", errno.EINVAL, "did you mean 'name'"),
        ("justaword", errno.EINVAL, "is not key=value"),
        ("name=..", errno.EINVAL, "is not a name"),
        ("name=", errno.EINVAL, "is not a name"),
        ("name='a\nb'", errno.EINVAL, "is not a name"),
        ("name=" + "x" * 300, errno.EINVAL, "is not a name"),
        ("name=a name=b", errno.EINVAL, "given twice"),
        ("cwd=/not/there", errno.ENOENT, "there is no directory '/not/there'"),
        ("backend=nothere", errno.EINVAL, "there is no backend"),
        ("model=nothere", errno.EINVAL, "has no model"),
        ("env=1=2", errno.EINVAL, "is not KEY=VALUE"),
        ("title='unclosed", errno.EINVAL, "quotation"),
    ],
)
def test_new_refuses(world: World, spec: str, number: int, says: str) -> None:
    """A wrong spec is an error of its write, says why, and makes nothing."""
    before = world.out("ls $m/session")
    got, back = put(world, f"{world.mount}/session/new", spec.encode())
    assert got == number
    assert says in back
    assert world.out("ls $m/session") == before


def test_names_that_mkdir_refuses(world: World) -> None:
    """A bad name makes nothing, whichever way it is given; a taken one is EEXIST."""
    before = world.out("ls $m/session")
    for name in ("-x", ".hidden", "a b", "x" * 65, "x" * 300, "né", "a\nb"):
        done = world.run("mkdir", "--", f"{world.mount}/session/{name}")
        assert done.returncode == 1, name
    assert b"File exists" in world.sh("mkdir $m/session/new").stderr
    assert world.out("ls $m/session") == before


def test_duplicates(world: World) -> None:
    """A taken name is EEXIST, unless reuse=1 takes the one that is there."""
    world.out("mkdir $m/session/twice")
    assert b"File exists" in world.sh("mkdir $m/session/twice").stderr
    assert put(world, f"{world.mount}/session/new", b"name=twice")[0] == errno.EEXIST
    assert put(world, f"{world.mount}/session/new", b"name=twice reuse=1") == (0, "twice\n")
    assert put(world, f"{world.mount}/session/twice/agent/new", b"name=main")[0] == errno.EEXIST
    world.out("mkdir $m/session/other")
    assert b"File exists" in world.sh("mv -T $m/session/other $m/session/twice").stderr
    world.out("rmdir $m/session/twice $m/session/other")


def test_prompts_that_are_refused(world: World, agent: str) -> None:
    """An empty prompt, 5 MiB, and bytes that are not UTF-8 reach no model, and `reply` and `error` say so."""
    assert put(world, f"{agent}/prompt", b"caf\xe9\n")[0] == errno.EINVAL
    assert "not UTF-8" in world.out(f"cat {agent}/error")
    big = world.sh(f"head -c 5242880 /dev/zero | tr '\\0' x > {agent}/prompt")
    assert b"File too large" in big.stderr
    assert "nothing of it was sent" in world.out(f"cat {agent}/error")
    for empty in ("echo", "printf '  \\n\\n'", "printf '\\303'"):
        done = world.sh(f"{empty} > {agent}/prompt; cat {agent}/reply")
        assert done.returncode == 1
    assert world.out(f": > {agent}/prompt; cat {agent}/state") == "idle\n"
    assert world.out(f"cat {agent}/chat") == ""
    assert "agent_requests=0" in world.out(f"cat {agent}/usage")


def test_cwd_is_checked(world: World, agent: str) -> None:
    """A directory that is not there is ENOENT, and one inside the mount becomes home."""
    session = agent.removesuffix("/agent/main")
    for path in (b"/not/there\n", b"/etc/passwd\n"):
        assert put(world, f"{session}/cwd", path)[0] == errno.ENOENT
    assert put(world, f"{session}/cwd", b"relative\n")[0] == errno.EINVAL
    assert put(world, f"{session}/cwd", b"\xff\n")[0] == errno.EINVAL
    world.out("cd /usr && mkdir $m/session/there && cat $m/session/there/cwd | grep -x /usr; rmdir $m/session/there")
    assert world.out(f"echo $m/session > {session}/cwd; cat {session}/cwd") == f"{world.home}\n"
    assert world.out("cd $m && mkdir session/inside && cat session/inside/cwd; rmdir session/inside") == (
        f"{world.home}\n"
    )
    assert world.out(f"echo 'cwd /tmp' > {agent}/ctl; cat {session}/cwd") == "/tmp\n"


def test_title_holds_text(world: World, agent: str) -> None:
    """A value is read, written, appended to and truncated as text on a disk is."""
    title = agent.removesuffix("/agent/main") + "/title"
    assert world.out(f"echo one > {title}; cat {title}") == "one\n"
    assert world.out(f": > {title}; cat {title}") == "one\n"
    assert world.out(f"printf ' and two' > {title}; cat {title}; stat -c %s {title}") == " and two\n9\n"
    assert world.out(f"truncate -s 4 {title}; cat {title}") == " and\n"
    assert put(world, title, b"a\nb\n")[0] == errno.EINVAL


def test_backend_that_is_down(world: World, agent: str) -> None:
    """A backend that does not answer fails the turn with EREMOTEIO and a sentence, and the agent goes on."""
    world.out(f"echo backend down > {agent}/ctl")
    done = world.sh(f"echo hi > {agent}/prompt; cat {agent}/reply")
    assert done.returncode == 1
    assert os.strerror(errno.EREMOTEIO).encode() in done.stderr
    assert world.out(f"cat {agent}/error").strip()
    assert "failing:" in world.out("grep ^down $m/backends")
    assert (
        world.out(f"echo backend fake > {agent}/ctl; echo hi > {agent}/prompt; cat {agent}/reply") == "You said: hi\n"
    )


def test_nothing_else_can_be_made_or_removed(world: World, agent: str) -> None:
    """What is part of the tree can be neither created, renamed, linked nor removed by hand."""
    for command in (
        f"touch {agent}/.prompt.swp",
        f"echo x > {agent}/4913",
        f"mv {agent}/chat {agent}/chat~",
        f"rm -f {agent}/chat",
        f"ln -s x {agent}/y",
        f"mkfifo {agent}/fifo",
        f"mkdir {agent}/d",
        f"chmod 777 {agent}/chat",
        "rm -f $m/version",
        "rmdir $m/session",
        "mv $m/session $m/s",
        "mkdir $m/x",
    ):
        done = world.sh(command)
        assert done.returncode != 0, command
        assert b"not permitted" in done.stderr, (command, done.stderr)
    assert b"denied" in world.sh("echo x > $m/version").stderr


def test_mv_and_rm(world: World) -> None:
    """`mv` renames sessions and agents, which keep what is open; rm -r ends them, and their names are free at once."""
    world.out("mkdir $m/session/before; mkdir $m/session/before/agent/second")
    script = """
    exec 3<>$m/session/before/agent/main/prompt
    mv $m/session/before $m/session/after
    mv $m/session/after/agent/main $m/session/after/agent/first
    echo hi >&3; cat <&3; exec 3>&-
    ls $m/session/after/agent
    rm -r $m/session/after
    ls $m/session | grep -c after
    mkdir $m/session/after && rm -rf $m/session/after && mkdir $m/session/after && rmdir $m/session/after
    """
    assert world.out(script) == "You said: hi\nfirst\nidx\nnew\nsecond\n0\n"


def test_kill_ends_readers(world: World) -> None:
    """Whoever waits for a killed agent is told; whoever still writes to it is refused."""
    world.out("mkdir $m/session/doomed")
    agent = f"{world.mount}/session/doomed/agent/main"
    script = f"""
    echo '@fake hold' > {agent}/prompt; echo queued > {agent}/prompt
    cat {agent}/reply & one=$!; cat {agent}/statewait & two=$!
    until_blocked 2
    exec 3>{agent}/prompt
    echo kill > {agent}/ctl
    wait $one; echo $?; wait $two; echo $?
    echo late >&3 || echo refused
    test -e {agent} || echo gone
    echo kill > $m/session/doomed/ctl
    test -e $m/session/doomed || echo gone
    """
    assert world.out(script) == "1\n1\nrefused\ngone\ngone\n"
