"""What people read, write, search and copy files with works on ours as it does on a disk."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.mount.clients.ways_to_read import WAYS
from tests.mount.world import World

CLIENTS = Path(__file__).with_name("clients")
UUTILS = Path("/usr/lib/cargo/bin/coreutils")
FAMILIES = ("gnu", "busybox", "uutils")
SHELLS = ("bash", "dash", "zsh")
ENDS_S = 5.0
"""Within so long everything ends that looks at a tree whose agents are idle, or have just become so."""

Look = dict[str, tuple[int, int, int, str]]
"""By path: size, size of the open file, mtime_ns, text."""


def need(*programs: str) -> None:
    """Skip where one of these is missing."""
    for program in programs:
        if not shutil.which(program):
            pytest.skip(f"{program} is not installed")


def command_of(family: str, name: str) -> str:
    """Return the command line of one of the core utilities, of one family; skip where that is missing."""
    match family:
        case "busybox":
            need("busybox")
            return f"busybox {name}"
        case "uutils":
            if (UUTILS / name).exists():
                return str(UUTILS / name)
            need("coreutils")
            return f"coreutils {name}"
        case _:
            return f"gnu{name}" if shutil.which(f"gnu{name}") else name


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    need(request.param)
    return str(request.param)


@pytest.fixture
def session(agent: str) -> str:
    """The path of the test's own session."""
    return agent.removesuffix("/agent/main")


@pytest.fixture
def talked(world: World, agent: str) -> str:
    """The path of an agent that has answered twice."""
    world.out(f"for n in 1 2; do echo turn $n > {agent}/prompt; cat {agent}/reply; done")
    return agent


@pytest.fixture(scope="module")
def idle_tree(make_world: Callable[..., World]) -> Iterator[World]:
    """A daemon whose agents have talked and rest; it must end without a warning."""
    world = make_world()
    world.start()
    world.out(
        """
        mkdir -p ~/.config/ollie/agents ~/.config/ollie/prompts
        echo '{}' > $m/agents/a.json; printf 'no newline' > $m/prompts/p.md
        mkdir $m/session/one $m/session/two $m/session/two/agent/second $m/session/fresh
        echo 'a title' > $m/session/one/title; echo A=1 > $m/session/two/env
        echo topP 0.5 > $m/session/two/agent/main/ctl
        for agent in $m/session/one/agent/main $m/session/two/agent/*; do
            test -d $agent || continue
            for n in 1 2 3; do echo turn $n > $agent/prompt; cat $agent/reply; done
        done
        echo bogus > $m/session/two/agent/second/ctl 2> /dev/null || true
        """
    )
    yield world
    assert world.stop() == 0
    assert world.new_troubles() == []


@pytest.fixture(scope="module")
def kinds(idle_tree: World) -> dict[str, bytes]:
    """A file of each kind, with what read(2) gives: fixed text, a reply, what has grown, a command file, nothing."""
    agent = f"{idle_tree.mount}/session/one/agent/main"
    paths = [f"{idle_tree.mount}/help", *(f"{agent}/{name}" for name in ("reply", "chat", "ctl", "error"))]
    client = (
        "import os, sys; fd = os.open(sys.argv[1], os.O_RDONLY)\nwhile data := os.read(fd, 4096): os.write(1, data)"
    )
    found = {path: idle_tree.run(sys.executable, "-c", client, path).stdout for path in paths}
    assert [bool(data) for data in found.values()] == [True, True, True, True, False]
    return found


# The core utilities


def lines_of(data: bytes) -> list[bytes]:
    return data.splitlines(keepends=True)


READERS: dict[str, Callable[[bytes], bytes]] = {
    "cat {f}": lambda data: data,
    "cat < {f}": lambda data: data,
    "tail -n 3 {f}": lambda data: b"".join(lines_of(data)[-3:]),
    "tail -n +2 {f}": lambda data: b"".join(lines_of(data)[1:]),
    "tail -c 20 {f}": lambda data: data[-20:],
    "head -n 2 {f}": lambda data: b"".join(lines_of(data)[:2]),
    "head -c 10 {f}": lambda data: data[:10],
    "wc -c < {f}": lambda data: b"%d" % len(data),
    "wc -l < {f}": lambda data: b"%d" % data.count(b"\n"),
    "cp {f} copied && cat copied": lambda data: data,
    "sort {f}": lambda data: b"".join(sorted(lines_of(data))),
}


@pytest.mark.parametrize("line", READERS)
def test_core_utilities_read_what_is_there(idle_tree: World, kinds: dict[str, bytes], family: str, line: str) -> None:
    """Every cat, tail, head, wc, cp and sort gives the bytes that read(2) gives, of every kind of file."""
    name, _, rest = line.partition(" ")
    command = f"{command_of(family, name)} {rest}"
    for path, data in kinds.items():
        done = idle_tree.sh(f"rm -f copied; export LC_ALL=C; {command.format(f=path)}")
        said = done.stdout.strip() if name == "wc" else done.stdout
        assert (said, done.stderr, done.returncode) == (READERS[line](data), b"", 0), path


@pytest.mark.parametrize("line", ["od -c {f}", "md5sum < {f}", "cut -c 2- {f}", "nl {f}", "base64 {f}", "tac {f}"])
def test_filters_read_what_is_there(idle_tree: World, kinds: dict[str, bytes], line: str) -> None:
    """Other filters say of our files what they say of copies on a disk."""
    name, _, rest = line.partition(" ")
    copy = idle_tree.home / "copied"
    for path, data in kinds.items():
        copy.write_bytes(data)
        assert idle_tree.out(f"{name} {rest.format(f=path)}") == idle_tree.out(f"{name} {rest.format(f=copy)}")


def watches(pid: int) -> bool:
    """Whether a process has an inotify(7) watch."""
    try:
        return any("inotify wd" in info.read_text(encoding="ascii") for info in Path(f"/proc/{pid}/fdinfo").iterdir())
    except FileNotFoundError:  # closed meanwhile
        return False


def wait_for(is_so: Callable[[], bool]) -> bool:
    """Wait until it is so; tell whether it came to be in time."""
    limit = time.monotonic() + ENDS_S
    while not (so := is_so()) and time.monotonic() < limit:
        time.sleep(0.005)
    return so


def test_tail_follows_a_growing_chat(world: World, talked: str, family: str) -> None:
    """`tail -f chat` shows every turn as it is told, whoever's tail it is."""
    options = ["-s", "0.1"] if family == "gnu" else []
    argv = [*command_of(family, "tail").split(), *options, "-n", "2", "-f", f"{talked}/chat"]
    with subprocess.Popen(argv, env=world.env, stdout=subprocess.PIPE) as follower:
        try:
            assert follower.stdout is not None
            out = follower.stdout.fileno()
            assert os.read(out, 4096) == b"user: turn 2\nassistant: You said: turn 2\n"
            assert family != "uutils" or wait_for(lambda: watches(follower.pid))
            os.set_blocking(out, False)
            for number in range(3, 5):
                world.out(f"echo turn {number} > {talked}/prompt; cat {talked}/reply")
            got = bytearray()
            wanted = b"".join(b"user: turn %d\nassistant: You said: turn %d\n" % (n, n) for n in (3, 4))
            wait_for(lambda: got.extend(follower.stdout.read() or b"") or len(got) >= len(wanted))  # type: ignore[union-attr,func-returns-value]  # checked above; extend gives None
            assert got == wanted
        finally:
            follower.kill()


@pytest.mark.parametrize("size", ["1", "7", "512", "4k", "1M"])
def test_dd_reads_in_blocks_of_any_size(idle_tree: World, kinds: dict[str, bytes], size: str) -> None:
    """`dd` gives the same bytes whatever its block size, and skips as on a disk."""
    (text, whole), *others = kinds.items()
    for path, data in others:
        assert idle_tree.sh(f"dd if={path} bs={size} status=none").stdout == data
    assert idle_tree.sh(f"dd if={text} bs=100 skip=2 count=3 status=none").stdout == whole[200:500]


def test_less_pages_nothing_into_a_pipe(idle_tree: World, kinds: dict[str, bytes]) -> None:
    """`less` whose output is no terminal gives the whole file."""
    need("less")
    for path, data in kinds.items():
        for option in ("", "-f"):
            assert idle_tree.sh(f"export TERM=dumb; less {option} {path} | cat").stdout == data


@pytest.mark.parametrize("way", WAYS)
def test_python_reads_what_is_there(idle_tree: World, kinds: dict[str, bytes], way: str) -> None:
    """Python's ways to read a file, and the system calls below them, all give the bytes that read(2) gives."""
    done = idle_tree.run(sys.executable, str(CLIENTS / "ways_to_read.py"), way, str(idle_tree.home / "scratch"), *kinds)
    assert (done.stdout, done.stderr) == (b"".join(kinds.values()), b"")


def test_shared_map_does_no_harm(idle_tree: World, kinds: dict[str, bytes]) -> None:
    """A shared memory map works or is refused with ENODEV; the daemon goes on."""
    client = (
        "import errno, mmap, sys\n"
        "with open(sys.argv[1], 'rb') as file:\n"
        "    try: data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)[:]\n"
        "    except OSError as exc: assert exc.errno == errno.ENODEV, exc\n"
        "    else: assert data == file.read()\n"
    )
    for path in list(kinds)[:-1]:
        done = idle_tree.run(sys.executable, "-c", client, path)
        assert (done.returncode, done.stderr) == (0, b"")


def test_asyncio_reads_what_comes(world: World, agent: str) -> None:
    """`add_reader` on `statewait` and `events` wakes an asyncio program when there is something to read."""
    for name, lines, wanted in (("statewait", 1, " "), ("../../../../events", 4, "turn_finished")):
        argv = [sys.executable, str(CLIENTS / "asyncio_reader.py"), f"{agent}/{name}", str(lines)]
        with subprocess.Popen(argv, env=world.env, stdout=subprocess.PIPE) as reader:
            assert reader.stdout is not None
            assert reader.stdout.readline() == b"ready\n"
            world.out(f"echo hi > {agent}/prompt; cat {agent}/reply")
            assert wanted in reader.communicate(timeout=ENDS_S)[0].decode()
            assert reader.returncode == 0


# Shells and editors


def test_redirections(world: World, session: str, shell: str) -> None:
    """`>`, `>>`, `<>`, a read loop and a here-document do with a value what they do with a file on a disk."""
    script = """
    echo A=1 > FILE; echo B=2 >> FILE; cat FILE
    exec 3<>FILE; read first <&3; echo C=3 >&3; exec 3>&-; echo $first; cat FILE
    printf 'D=4\\nE=5\\n' > FILE; while read -r line; do echo "[$line]"; done < FILE
    cat > FILE <<END
F=6
G=7
END
    cat FILE; wc -c < FILE
    sort -r -o FILE FILE; cat FILE
    echo H=8 | tee -a FILE; cat FILE
    echo I=9 | tee FILE; cat FILE
    : > FILE; cat FILE
    """
    ours = world.out(script.replace("FILE", f"{session}/env"), shell=shell)
    world.out(f"rm -f {world.home}/disk")
    disk = world.out(script.replace("FILE", f"{world.home}/disk"), shell=shell)
    assert ours == f"{disk}I=9\n"  # a value is not taken away by O_TRUNC alone


def test_prompts_from_every_plumbing(world: World, agent: str, shell: str) -> None:
    """Here-documents, pipes through tee, dd, cp and cat each make one prompt."""
    ways = {
        "cat > PROMPT <<END\none\ntwo\nEND": "one\ntwo\n",
        "printf 'one\\ntwo\\n' | tee PROMPT > /dev/null": "one\ntwo\n",
        "printf 'one' | dd of=PROMPT status=none": "one\n",
        "printf 'one' | dd of=PROMPT bs=1 status=none": "one\n",
        "echo file > p; cp p PROMPT": "file\n",
        "echo file > p; cat p >> PROMPT": "file\n",
        "echo file > p; sed s/f/F/ p > PROMPT": "File\n",
        "echo both 1<>PROMPT": "both\n",
    }
    for way, asked in ways.items():
        script = f"{way.replace('PROMPT', f'{agent}/prompt')}\ncat {agent}/reply"
        assert world.out(script, shell=shell) == f"You said: {asked}", way


def test_globs_and_completion(world: World, agent: str, shell: str) -> None:
    """Globs find our names in every shell, and bash's completion does."""
    assert world.out(f"cd {agent}/..; echo ma*/st* */[pq]*", shell=shell) == (
        "main/state main/statewait main/prompt main/queue\n"
    )
    if shell == "bash":
        assert sorted(world.out(f"compgen -f {agent}/st").split()) == [f"{agent}/state", f"{agent}/statewait"]
        assert world.out("compgen -d $m/s") == f"{world.mount}/session\n"


@pytest.mark.parametrize("line", ["sed -i s/a/b/ {f}", "mv -f new {f}", "perl -pi -e s/a/b/ {f}", "rm -f {f}"])
def test_replacing_a_control_file_is_refused(world: World, agent: str, session: str, line: str) -> None:
    """What would put another file in place of ours fails with EPERM, and changes nothing."""
    need(line.split()[0])
    paths = [f"{agent}/ctl", f"{agent}/prompt", f"{session}/title", f"{agent}/chat", f"{session}/cwd"]
    before = world.out(f"echo banana > {session}/title; cat {' '.join(paths)}; ls -a {session} {agent}")
    for path in paths:
        done = world.sh(f"echo new > new; {line.format(f=path)}")
        assert b"not permitted" in done.stderr, (path, done.stderr)
        assert done.returncode != 0 or line.startswith("perl")  # which only warns
    assert world.out(f"cat {' '.join(paths)}; ls -a {session} {agent}") == before


@pytest.mark.parametrize(
    "line",
    [
        "sed -i s/one/two/ {f}",
        "perl -pi -e s/one/two/ {f}",
        "printf 'two\\n' > new; mv new {f}",
        "printf ',s/one/two/\\nw\\nq\\n' | ed -s {f}",
        "vim -es -N -u NONE -c '%s/one/two/' -c wq {f}",
        "vim -es -N -u NONE -c 'set backup' -c '%s/one/two/' -c wq {f}",
    ],
)
def test_editing_in_a_passed_through_folder(world: World, line: str) -> None:
    """Editors and in-place filters change files in `agents/`, which change on the host."""
    need("vim", "ed", "perl")
    (world.home / ".config/ollie/agents").mkdir(exist_ok=True)
    path = f"{world.mount}/agents/edited.txt"
    script = f"echo one > {path}; {line.format(f=path)}; cat {path} ~/.config/ollie/agents/edited.txt"
    assert world.out(script) == "two\ntwo\n"
    world.out("rm -f $m/agents/edited.txt*")


@pytest.mark.parametrize(
    "line", ["printf 's/one/two/\\nw\\nq\\n' | ed -s {f}", "vim -es -N -u NONE -c s/one/two/ -c wq {f}"]
)
def test_editing_a_value(world: World, session: str, line: str) -> None:
    """`ed` and `vim` change a title in place, and leave nothing beside it."""
    need("vim", "ed")
    before = world.out(f"ls -a {session}")
    assert world.out(
        f"echo number one > {session}/title; {line.format(f=f'{session}/title')}; cat {session}/title"
    ) == ("number two\n")
    assert world.out(f"ls -a {session}") == before


# Whole trees


def look_at(world: World) -> Look:
    """Look at every file of the tree."""
    done = world.run(sys.executable, str(CLIENTS / "whole_tree.py"), str(world.mount))
    assert done.returncode == 0, done
    found: Look = json.loads(done.stdout)
    return found


def still(look: Look) -> Look:
    """Leave out what changes with every look."""
    return {path: told for path, told in look.items() if path != "status"}


def test_sizes_are_true(idle_tree: World) -> None:
    """`stat` of every file of an idle tree, and of every open one, tells how many bytes there are to read."""
    looked = still(look_at(idle_tree))
    assert len(looked) > 60
    assert {path: told for path, told in looked.items() if not told[0] == told[1] == len(told[3].encode())} == {}


SEARCHES = [
    "grep -r turn $m",
    "grep -rc turn $m",
    "busybox grep -r turn $m",
    "rg turn $m",
    "rg -uuu turn $m",
    "rg --mmap -uuu turn $m",
    "find $m -type f -newer $m/version",
    "find $m -size +1k -o -empty",
    "find $m -name '*.json' -exec cat {} +",
    "find $m -type f ! -name statewait ! -name events -print0 | xargs -0 cat",
    "busybox find $m -type f",
    "ls -lR $m",
    "busybox ls -lR $m",
    "coreutils ls -lR $m",
    "du -a $m",
    "busybox du $m",
    "df $m",
    "busybox df $m",
    "file $m/* $m/session/*",
    "tar cf - --exclude=status -C $m . | cat",
    "busybox tar cf - -C $m . | cat",
]
COPIES = [
    "tar cf - --exclude=status -C $m . | tar xf - -C copy",
    "tar cf - --exclude=status -C $m . | busybox tar xf - -C copy",
    "busybox tar cf - -C $m . | tar xf - -C copy",
    "rsync -a $m/ copy/",
    "cp -a $m/. copy/",
    "busybox cp -a $m/. copy/",
    "coreutils cp -r $m copy/; mv copy/ollie/.[!.]* copy/ollie/* copy/",
    'python3 -c \'import shutil; shutil.copytree("MOUNT", "copy", dirs_exist_ok=True)\'',
]


def prepared(world: World, line: str) -> str:
    """Return a script that does *line* beside an empty folder ``copy``; skip where its program is missing."""
    need(line.split()[0])
    return f"chmod -R u+w copy 2> /dev/null; rm -rf copy; mkdir copy; {line.replace('MOUNT', str(world.mount))}"


@pytest.mark.parametrize("line", SEARCHES)
def test_searching_ends_and_changes_nothing(idle_tree: World, line: str) -> None:
    """Whoever searches the whole tree of idle agents ends soon, without complaint, and changes nothing."""
    before = still(look_at(idle_tree))
    done = idle_tree.sh(prepared(idle_tree, line), timeout_s=ENDS_S)
    assert (done.returncode, done.stderr) == (0, b"")
    assert still(look_at(idle_tree)) == before


@pytest.mark.parametrize("line", COPIES)
def test_copies_are_whole(idle_tree: World, line: str) -> None:
    """Whoever copies the whole tree of idle agents has every byte of every file, and changes nothing."""
    before = still(look_at(idle_tree))
    done = idle_tree.sh(prepared(idle_tree, line), timeout_s=ENDS_S)
    assert (done.returncode, done.stderr) == (0, b"")
    copy = idle_tree.home / "copy"
    copied = {path: (copy / path).read_text(encoding="utf-8") for path in before}
    assert copied == {path: told[3] for path, told in before.items()}
    assert still(look_at(idle_tree)) == before


def test_tar_takes_the_whole_tree(idle_tree: World) -> None:
    """`tar c` of the whole tree has nothing to complain of, `status` included, which shows how it goes now."""
    done = idle_tree.sh("tar cf - -C $m . | cat > /dev/null; exit ${PIPESTATUS[0]}", timeout_s=ENDS_S)
    assert (done.returncode, done.stderr) == (0, b"")


def test_second_rsync_copies_nothing(idle_tree: World) -> None:
    """`rsync -a` of an idle tree finds nothing to do the second time, and after a change what has changed."""
    again = "rsync -ai --exclude=status $m/ copy/"
    need("rsync")
    idle_tree.out(prepared(idle_tree, again), timeout_s=ENDS_S)
    assert idle_tree.out(again, timeout_s=ENDS_S) == ""
    idle_tree.out("echo another > $m/session/two/title")
    changed = {line.split()[1] for line in idle_tree.out(again, timeout_s=ENDS_S).splitlines()}
    assert changed == {"session/idx", *(f"session/two/{name}" for name in ("ctl", "title"))}


@pytest.mark.parametrize(
    "line",
    [
        "grep -r turn $m",
        "busybox grep -r turn $m",
        "rg -uuu turn $m",
        "find $m -type f ! -name statewait ! -name events -exec cat {} +",
        "tar cf - -C $m . | cat",
        "busybox tar cf - -C $m . | cat",
        "rsync -a $m/ copy/",
        "cp -a $m/. copy/",
    ],
)
def test_searching_in_a_turn_ends_with_it(idle_tree: World, line: str) -> None:
    """Whoever goes through the whole tree in a turn ends once the turn does."""
    gate, agent = idle_tree.home / "gate", "$m/session/one/agent/main"
    gate.unlink(missing_ok=True)
    idle_tree.out(f"printf '@fake until {gate}\\n@fake say over\\n' > {agent}/prompt")
    script = f"m={idle_tree.mount}\n{prepared(idle_tree, line)}"
    with subprocess.Popen(
        ["bash", "-c", script],
        env=idle_tree.env,
        cwd=idle_tree.home,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as walker:
        try:
            wait_for(lambda: walker.poll() is not None or "blocked_readers=0" not in idle_tree.out("cat $m/status"))
            gate.touch()
            walker.communicate(timeout=ENDS_S)
        finally:
            gate.touch()
            if walker.poll() is None:
                os.killpg(walker.pid, signal.SIGKILL)
    assert idle_tree.out(f"cat {agent}/reply") == "over\n"


def test_failed_turns_stop_nobody(world: World, agent: str) -> None:
    """Whoever goes through a tree with a failed turn in it ends, and has all the rest."""
    world.sh(f"printf '@fake say half\\n@fake cut\\n' > {agent}/prompt; cat {agent}/reply")
    for line in ("grep -r half", "tar cf -", "rg -uuu half", "busybox tar cf -"):
        done = world.sh(f"{line} {agent} | cat", timeout_s=ENDS_S)
        assert b"Remote I/O error" in done.stderr or b"os error 121" in done.stderr, (line, done)
    assert "chat:assistant: half" in world.sh(f"cd {agent}; grep -r half .").stdout.decode()


def test_disk_usage_answers_at_once(world: World, agent: str) -> None:
    """`df` answers while readers wait, and `du` counts what `stat` tells."""
    script = f"""
    cat {agent}/statewait & reader=$!
    until_blocked 1
    df -P $m | tail -n 1 | cut -d' ' -f1
    du -b --apparent-size {agent}/chat $m/help | cut -f1
    stat -c %s {agent}/chat $m/help
    kill $reader; wait $reader
    """
    name, *sizes = world.sh(script, timeout_s=ENDS_S).stdout.decode().split()
    assert name == "ollie"
    assert sizes[:2] == sizes[2:]
