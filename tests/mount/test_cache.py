"""What the kernel keeps of names and attributes is right after every change."""

import errno
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.mount.world import World

CLIENT = Path(__file__).parent / "clients" / "stat_server.py"
WITHIN_S = 2.0


class Looker:
    """A process that has looked at files before and looks again, as a file manager does; paths are below the mount."""

    def __init__(self, world: World) -> None:
        self._mount = world.mount
        self._process = subprocess.Popen(
            [sys.executable, str(CLIENT)], env=world.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, path: str, verb: str = "") -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{verb} {self._mount}/{path}\n")
        self._process.stdin.flush()
        told: dict[str, Any] = json.loads(self._process.stdout.readline())
        return told

    def errno_of(self, path: str) -> int:
        return int(self.ask(path).get("errno", 0))

    def names(self, path: str) -> set[str]:
        """List a directory without what is part of the tree."""
        return set(self.ask(path, "listing")["names"]) - {"idx", "new"}

    def close(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=5)


@pytest.fixture
def looker(world: World) -> Iterator[Looker]:
    looker = Looker(world)
    yield looker
    looker.close()


@pytest.fixture
def s(agent: str) -> str:
    """The path of the test's own session, below the mount."""
    return "/".join(Path(agent).parts[-4:-2])


# Sizes and times

TURN = "echo hi > $a/prompt; cat $a/reply > /dev/null"
CHANGES: list[tuple[str, str, str]] = [
    # first, then the change, then what shows it
    ("", "echo a longer title > $s/title", "$s/title $s/ctl session/idx"),
    ("echo a long title > $s/title", "echo short > $s/title", "$s/title $s/ctl session/idx"),
    ("", "echo title by command > $s/ctl", "$s/title $s/ctl session/idx"),
    ("", "echo A=1 > $s/env", "$s/env $s/ctl"),
    ("", "echo env A=1 > $s/ctl", "$s/env $s/ctl"),
    ("", "echo /usr/lib > $s/cwd", "$s/cwd $s/ctl $a/ctl session/idx"),
    ("", "echo cwd /usr/lib > $a/ctl", "$s/cwd $s/ctl $a/ctl session/idx"),
    ("", "echo topP 0.12345 > $a/ctl", "$a/ctl"),
    ("", "echo model fake-2 > $a/ctl", "$a/ctl $a/usage $s/agent/idx session/idx"),
    ("", "echo backend down > $a/ctl", "$a/ctl $a/usage $s/agent/idx session/idx"),
    ("", "echo bogus > $a/ctl; :", "$a/error"),
    ("echo bogus > $a/ctl; :", "echo topP 0.5 > $a/ctl", "$a/error $a/ctl"),
    ("", TURN, "$a/chat $a/reply $a/answer $a/usage $a/statewait $s/agent/idx $s/usage usage events"),
    (TURN, TURN, "$a/chat $a/usage $a/statewait $s/agent/idx $s/usage usage events"),
    (TURN, "printf '@fake size 50000\\n' > $a/prompt; cat $a/reply > /dev/null", "$a/chat $a/reply $a/answer"),
    (TURN, "printf '@fake status 500\\n' > $a/prompt; cat $a/reply; :", "$a/chat $a/error"),
    ("printf '@fake status 500\\n' > $a/prompt; cat $a/reply; :", TURN, "$a/chat $a/error $a/reply $a/answer"),
    ("", "echo @fake hold > $a/prompt", "$a/state $a/statewait $s/agent/idx session/idx $a/chat events"),
    ("echo @fake hold > $a/prompt", "echo stop > $a/ctl; until grep -q idle $a/state; do :; done", "$a/state $a/chat"),
    ("echo @fake hold > $a/prompt", "echo waiting > $a/prompt", "$a/queue"),
    ("echo @fake hold > $a/prompt; echo one > $a/prompt", "echo clear > $a/queue", "$a/queue"),
    ("", "echo /temprature 1 > $a/prompt; cat $a/reply; :", "$a/error"),
    ("", "mkdir $s/agent/other", "$s/agent $s/agent/idx session/idx"),
    ("", "echo name=other > $s/agent/new", "$s/agent $s/agent/idx session/idx"),
    ("mkdir $s/agent/other", "mv $s/agent/other $s/agent/longer-name", "$s/agent $s/agent/idx"),
    ("mkdir $s/agent/other", "echo rename longer-name > $s/agent/other/ctl", "$s/agent $s/agent/idx"),
    ("mkdir $s/agent/other", "rmdir $s/agent/other", "$s/agent $s/agent/idx session/idx"),
    ("mkdir $s/agent/other", "echo kill > $s/agent/other/ctl", "$s/agent $s/agent/idx session/idx"),
    (f"a=$s/agent/other; mkdir $a; {TURN}", "rmdir $s/agent/other", "$s/agent/idx $s/usage"),
    ("", "mkdir session/made && rmdir session/made", "session events"),
    ("", "echo name=made > session/new && echo kill > session/made/ctl", "session events"),
    ("mkdir session/made", "mv session/made session/moved", "session session/idx"),
    ("mkdir session/made", "echo rename moved > session/made/ctl", "session session/idx"),
    ("mkdir session/made", "rmdir session/made", "session session/idx"),
]


def shown_rightly(told: dict[str, Any]) -> bool:
    """Whether the size told is that of what was read; a directory has none."""
    return told.get("errno") == errno.EISDIR or told["size"] == told["bytes"]


@pytest.mark.parametrize(("first", "change", "shown"), CHANGES)
def test_change_is_shown_at_once(world: World, looker: Looker, s: str, first: str, change: str, shown: str) -> None:
    """Whoever has looked before sees a change in the next `stat`: the size that there is to read, and a later time."""
    names = f"cd $m; s={s}; a=$s/agent/main\n"
    world.out(names + first)
    paths = [path.replace("$a", f"{s}/agent/main").replace("$s", s) for path in shown.split()]
    before = [(looker.ask(path), looker.ask(path)) for path in paths]
    assert all(one == two for one, two in before)
    world.out(names + change)
    for path, (told, _) in zip(paths, before, strict=True):
        now = looker.ask(path)
        assert now["mtime_ns"] > told["mtime_ns"], path
        if path not in ("events", f"{s}/agent/main/statewait") and "size" in now and not is_directory(path):
            assert shown_rightly(looker.ask(path, "read")), path
            assert looker.ask(path)["size"] == now["size"]
    world.sh("cd $m; echo stop > " + f"{s}/agent/main/ctl; rmdir session/made session/moved 2> /dev/null")


def is_directory(path: str) -> bool:
    return path.rpartition("/")[2] in ("session", "agent")


@pytest.mark.parametrize("level", ["error", "warning", "debug", "info"])
def test_log_level_is_shown_at_once(world: World, looker: Looker, level: str) -> None:
    """The root's `ctl` has its true size and time after the log level was changed."""
    before = looker.ask("ctl")
    world.out(f"echo log {level} > $m/ctl")
    told = looker.ask("ctl", "read")
    world.out("echo log info > $m/ctl")
    assert told["text"] == f"log {level}\n"
    assert shown_rightly(told)
    assert told["mtime_ns"] > before["mtime_ns"]


def test_failing_backend_is_shown_at_once(world: World, looker: Looker, s: str) -> None:
    """`backends` has its true size after a backend began to fail, and after it answered again."""
    looker.ask("backends")
    world.sh(f"a=$m/{s}/agent/main; printf '@fake status 500\\n' > $a/prompt; cat $a/reply")
    assert shown_rightly(looker.ask("backends", "read"))
    world.out(f"a=$m/{s}/agent/main; {TURN}")
    told = looker.ask("backends", "read")
    assert shown_rightly(told)
    assert "told to answer 500" not in told["text"]


def test_reload_is_shown_at_once(own_world: World) -> None:
    """`backends`, `models`, agents' `usage` and lists have their true sizes after the configuration was read again."""
    own_world.start()
    own_world.out("mkdir $m/session/s; until grep -q fake $m/models; do :; done")
    looker = Looker(own_world)
    try:
        paths = ("backends", "models", "session/idx", "session/s/agent/idx", "session/s/agent/main/usage")
        before = {path: looker.ask(path, "read") for path in paths}
        own_world.out(
            "conf=~/.config/ollie/backends.conf; sed -i 's/^model = fake-1/model = fake-2/; s/^window = .*//' $conf;"
            " printf '[one-more]\\nurl = http://127.0.0.1:9\\nmodel = x\\n' >> $conf; echo reload > $m/ctl;"
            " until grep -q '^one-more.*failing' $m/backends; do :; done"
        )
        for path in paths:
            told = looker.ask(path, "read")
            assert shown_rightly(told), path
            assert path == "models" or told["text"] != before[path]["text"], path
        assert own_world.stop() == 0
        assert own_world.new_troubles() == []
    finally:
        looker.close()


def test_growing_files_are_never_ahead_of_their_size(world: World, looker: Looker, s: str) -> None:
    """While an agent speaks, `stat` of its chat never tells less than what was read a moment before."""
    chat = f"{s}/agent/main/chat"
    world.out(f"printf '@fake chunks 100 delay 0.005\\n' > $m/{s}/agent/main/prompt")
    last = 0
    while looker.ask(f"{s}/agent/main/state", "read")["text"] != "idle\n":
        told = looker.ask(chat, "read")
        assert last <= told["size"] <= told["bytes"]
        last = told["bytes"]
    assert shown_rightly(looker.ask(chat, "read"))


def test_page_cache_never_shows_what_was(world: World, looker: Looker, s: str) -> None:
    """Every `cat`, also busybox' and uutils', which go by the size that the kernel knows, gives what is there now."""
    cats = [cat for cat in ("busybox cat", "/usr/lib/cargo/bin/coreutils/cat", "cat") if shutil.which(cat.split()[0])]
    for title in ("short", "a much longer title", "short", "equal", "later", "x" * 9000, "end"):
        looker.ask(f"{s}/title")
        world.out(f"echo {title} > $m/{s}/title")
        for cat in cats:
            assert world.out(f"{cat} $m/{s}/title") == f"{title}\n"
            assert world.out(f"{cat} $m/{s}/ctl | sed -n 2p") == f"title {title}\n"
    for number in range(3):
        for name in ("chat", "reply", "usage", "state"):
            looker.ask(f"{s}/agent/main/{name}")
        world.out(f"a=$m/{s}/agent/main; echo {number}{'y' * 3000 * number} > $a/prompt; cat $a/reply")
        for name in ("chat", "reply", "usage", "state"):
            told = looker.ask(f"{s}/agent/main/{name}", "read")
            for cat in cats:
                assert world.out(f"{cat} $m/{s}/agent/main/{name}") == told["text"]


# Names


@pytest.mark.parametrize("kill", ["rmdir $p", "echo kill > $p/CTL", "rm -r $p"])
@pytest.mark.parametrize("make", ["mkdir $p", "echo name=other > $p/../new"])
@pytest.mark.parametrize("kind", ["session", "agent"])
def test_names_come_and_go_at_once(world: World, looker: Looker, s: str, kind: str, make: str, kill: str) -> None:
    """A name that was missed is there once it is made, and gone, and free, once it is killed, as often as you like."""
    place, inside = ("session", "agent/main/ctl") if kind == "session" else (f"{s}/agent", "ctl")
    path = f"{place}/other"
    inodes = set()
    for _ in range(3):
        assert looker.errno_of(path) == looker.errno_of(f"{path}/{inside}") == errno.ENOENT
        world.out(f"p=$m/{path}; {make.replace('$p/..', f'$m/{place}')}")
        inodes |= {looker.ask(path)["ino"], looker.ask(f"{path}/{inside}")["ino"]}
        assert "other" in looker.names(place)
        world.out(f"p=$m/{path}; {kill.replace('CTL', 'ctl')}")
        assert looker.errno_of(path) == looker.errno_of(f"{path}/{inside}") == errno.ENOENT
        assert "other" not in looker.names(place)
    assert len(inodes) == 6  # nobody takes the new one for the old one


@pytest.mark.parametrize("rename", ["mv {old} {new}", "echo rename new > {old}/ctl"])
@pytest.mark.parametrize("kind", ["session", "agent"])
def test_renames_leave_no_stale_path(world: World, looker: Looker, s: str, kind: str, rename: str) -> None:
    """What was renamed is found under the new name and only there, with all that is in it, and the old one is free."""
    place, inside = ("session", ["ctl", "agent", "agent/main/chat"]) if kind == "session" else (f"{s}/agent", ["chat"])
    old, new = f"{place}/old", f"{place}/new-name"
    world.out(f"mkdir $m/{old}")
    before = {name: looker.ask(f"{old}/{name}")["ino"] for name in inside}
    assert looker.errno_of(new) == errno.ENOENT
    world.out(rename.replace("rename new", "rename new-name").format(old=f"$m/{old}", new=f"$m/{new}"))
    assert {name: looker.ask(f"{new}/{name}")["ino"] for name in inside} == before
    assert [looker.errno_of(f"{old}{rest}") for rest in ("", *(f"/{name}" for name in inside))] == [errno.ENOENT] * (
        len(inside) + 1
    )
    assert looker.names(place) & {"old", "new-name"} == {"new-name"}
    world.out(f"mkdir $m/{old}")
    assert all(looker.ask(f"{old}/{name}")["ino"] != ino for name, ino in before.items())
    world.out(
        f"mv $m/{new} $m/{place}/third; mv $m/{old} $m/{new}; test ! -e $m/{old}; rmdir $m/{new} $m/{place}/third"
    )
    assert looker.errno_of(new) == looker.errno_of(f"{place}/third") == errno.ENOENT


def test_changes_under_a_new_name_are_shown(world: World, looker: Looker, s: str) -> None:
    """What changes after a rename is shown under the new name, also to those who stand in the directory."""
    script = f"""
    cd $m/{s}/agent/main; stat -c %s chat; mv $m/{s} $m/session/elsewhere
    echo hi > prompt; cat reply > /dev/null; stat -c %s chat; wc -c < chat; pwd -P
    mv $m/session/elsewhere $m/{s}
    """
    before, told, read, where = world.out(script).split()
    assert (before, told) == ("0", read)
    assert where == f"{world.mount}/session/elsewhere/agent/main"
    assert shown_rightly(looker.ask(f"{s}/agent/main/chat", "read"))


def test_killed_with_its_session(world: World, looker: Looker) -> None:
    """A session's kill takes every name below it at once, whatever was looked up there."""
    for kill in ("rmdir $m/session/whole", "echo kill > $m/session/whole/ctl", "echo kill > $m/session/whole/ctl"):
        world.out("mkdir $m/session/whole $m/session/whole/agent/second")
        found = world.out("cd $m; find session/whole").split()
        assert all(looker.errno_of(path) == 0 for path in found)
        world.out(kill)
        assert {looker.errno_of(path) for path in found} == {errno.ENOENT}


# What others change


def test_mirror_shows_what_the_host_does(world: World, looker: Looker) -> None:
    """Files in `agents/` that the host makes, changes, replaces and removes are shown at once."""
    host = world.home / ".config/ollie/agents"
    host.mkdir(exist_ok=True)
    path = "agents/hosts-own.json"
    file = host / "hosts-own.json"
    for text in ("{}", '{"model": "x"}', "", "x" * 10_000):
        assert looker.errno_of(path) == errno.ENOENT
        file.write_text(text, encoding="utf-8")
        assert looker.ask(path, "read")["text"] == text
        file.write_text(f"{text} and more", encoding="utf-8")
        told = looker.ask(path, "read")
        assert shown_rightly(told)
        assert told["mtime_ns"] == file.stat().st_mtime_ns
        (host / "next").write_text("replaced", encoding="utf-8")
        os.replace(host / "next", file)
        assert looker.ask(path, "read")["text"] == "replaced"
        assert world.out(f"busybox cat $m/{path}" if shutil.which("busybox") else f"cat $m/{path}") == "replaced"
        file.unlink()
        assert "hosts-own.json" not in looker.ask("agents", "listing")["names"]


# The end


def test_daemon_ends_amid_turns_that_were_looked_at(own_world: World) -> None:
    """A daemon whose agents speak while somebody has looked at all their files ends without a complaint."""
    own_world.start()
    for _ in range(3):
        own_world.out(
            "mkdir $m/session/s; mkdir $m/session/s/agent/a{1..20}; for p in $m/session/s/agent/*/prompt; do"
            " echo '@fake chunks 1000 delay 0.02' > $p; done; ls -lR $m > /dev/null"
        )
        assert own_world.stop() == 0
        assert own_world.new_troubles() == []
        own_world.start()
    assert own_world.stop() == 0


def test_mtime_is_no_time_to_come(world: World, looker: Looker, s: str) -> None:
    """Every time told lies between the daemon's start and now."""
    world.out(f"a=$m/{s}/agent/main; {TURN}")
    paths = world.out("cd $m; find . -type f").split()
    told = [looker.ask(path)["mtime_ns"] for path in paths]
    assert max(told) <= time.time_ns()
    assert min(told) > time.time_ns() - 3600 * 10**9
