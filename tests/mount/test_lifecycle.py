"""From mount to unmount, however it ends."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.mount.world import World


def is_mounted(world: World) -> bool:
    return f" {world.mount} " in Path("/proc/self/mountinfo").read_text(encoding="utf-8")


def test_sigterm_with_blocked_readers_and_open_files(own_world: World) -> None:
    """SIGTERM unmounts in under 2 s with exit 0, and every blocked reader gets its end."""
    own_world.start()
    agent = f"{own_world.mount}/session/s/agent/main"
    own_world.out(f"mkdir $m/session/s; echo '@fake hold' > {agent}/prompt")
    files = ["reply", "answer", "statewait", "../../../../events"]
    readers = [
        subprocess.Popen(["cat", f"{agent}/{files[n % 4]}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for n in range(40)
    ]
    holder = subprocess.Popen(
        ["bash", "-c", f"exec 3<{agent}/chat 4>{agent}/ctl; echo open; read"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd="/",
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"open\n"
    own_world.out('until [ "$(sed -n s/blocked_readers=//p $m/status)" = 40 ]; do :; done')
    began = time.monotonic()
    assert own_world.stop() == 0
    assert time.monotonic() - began < 2
    assert not is_mounted(own_world)
    for reader in readers:
        _, err = reader.communicate(timeout=5)
        assert reader.returncode == 1
        assert b"canceled" in err, err
    holder.communicate(b"\n", timeout=5)
    assert own_world.new_troubles() == []


def test_killed_daemon_leaves_no_stale_mount(own_world: World) -> None:
    """After kill -9 the mount goes away by itself or at the next start, and its readers do not hang."""
    own_world.start()
    own_world.out("mkdir $m/session/s")
    reader = subprocess.Popen(
        ["cat", f"{own_world.mount}/session/s/agent/main/statewait"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    own_world.out('until [ "$(sed -n s/blocked_readers=//p $m/status)" = 1 ]; do :; done')
    assert own_world.stop(signal.SIGKILL) == -signal.SIGKILL
    reader.communicate(timeout=5)
    assert reader.returncode == 1
    own_world.start()
    assert own_world.out("ls $m/session") == "idx\nnew\n"
    assert own_world.stop() == 0


def test_stale_mount_is_cleaned(own_world: World, tmp_path: Path) -> None:
    """A dead mount that nothing unmounted (no fusermount3 on PATH at its start) is cleaned by the next start."""
    (tmp_path / "bin").mkdir()
    own_world.start({"PATH": str(tmp_path / "bin")})
    own_world.stop(signal.SIGKILL)
    assert is_mounted(own_world)
    assert b"not connected" in own_world.run("ls", str(own_world.mount)).stderr
    assert b"a mount whose daemon is gone" in own_world.run("ollie-fuse", "doctor").stdout
    own_world.start()
    assert own_world.stop() == 0
    assert not is_mounted(own_world)


def test_one_daemon_a_state_directory(own_world: World) -> None:
    """A second `up` is refused in a line, and the first goes on."""
    own_world.start()
    second = own_world.run("ollie-fuse", "up")
    assert second.returncode == 1
    assert second.stderr == b"ollie-fuse: a daemon runs already; `ollie-fuse status` shows it\n"
    assert own_world.out("cat $m/version")
    own_world.stop()


def test_mount_over_other_things_is_refused(own_world: World) -> None:
    """A mount point that holds files, or is a file, is refused in a line."""
    own_world.mount.mkdir()
    (own_world.mount / "mine").write_text("precious", encoding="utf-8")
    refused = own_world.run("ollie-fuse", "up")
    assert refused.returncode == 1
    assert b"is not empty" in refused.stderr
    assert b"not empty" in own_world.run("ollie-fuse", "doctor").stdout
    (own_world.mount / "mine").unlink()
    own_world.mount.rmdir()
    own_world.mount.write_text("a file", encoding="utf-8")
    assert b"cannot be a mount point" in own_world.run("ollie-fuse", "up").stderr
    own_world.mount.unlink()


def test_up_status_down(own_world: World) -> None:
    """`status` tells up from down by its exit status, and `down` waits until it is unmounted."""
    assert own_world.run("ollie-fuse", "status").returncode == 1
    own_world.start()
    up = own_world.run("ollie-fuse", "status")
    assert up.returncode == 0
    assert f"up at {own_world.mount}\n".encode() in up.stdout
    assert b"sessions=0" in up.stdout
    down = own_world.run("ollie-fuse", "down")
    assert down.stdout == f"{own_world.mount} is unmounted\n".encode()
    assert not is_mounted(own_world)
    assert own_world.run("ollie-fuse", "down").stdout == b"no daemon is running\n"
    assert own_world.daemon is not None
    assert own_world.daemon.wait(5) == 0
    own_world.daemon = None


def test_shutdown_and_unmount_from_outside(own_world: World) -> None:
    """`shutdown` in ctl and a plain unmount both end the daemon cleanly."""
    own_world.start()
    own_world.out("echo shutdown > $m/ctl")
    assert own_world.daemon is not None
    assert own_world.daemon.wait(5) == 0
    own_world.start()
    own_world.run("fusermount3", "-u", str(own_world.mount))
    assert own_world.daemon.wait(5) == 0
    own_world.daemon = None
    assert own_world.new_troubles() == []


@pytest.mark.parametrize("how", ["ctl", "hangup"])
def test_config_mistakes_are_told_and_mended(own_world: World, how: str) -> None:
    """A wrong backends.conf stops no daemon: doctor and `backends` name file, line and key, and reload mends it."""
    conf = own_world.home / ".config" / "ollie" / "backends.conf"
    good = conf.read_text(encoding="utf-8")
    conf.write_text(f"{good}\n[wrong]\nurl = http://127.0.0.1:1\nmodle = x\n", encoding="utf-8")
    line = conf.read_text(encoding="utf-8").splitlines().index("modle = x") + 1
    own_world.start()
    for told in (own_world.out("cat $m/backends"), own_world.run("ollie-fuse", "doctor").stdout.decode()):
        assert f"backends.conf:{line}:" in told
        assert "'modle'" in told
    own_world.out("mkdir $m/session/s")
    agent = f"{own_world.mount}/session/s/agent/main"
    assert own_world.out(f"echo hi > {agent}/prompt; cat {agent}/reply") == "You said: hi\n"
    own_world.sh(f"echo backend wrong > {agent}/ctl")
    assert f"backends.conf:{line}:" in own_world.out(f"cat {agent}/error")
    conf.write_text(f"{good}\n[wrong]\nurl = http://127.0.0.1:1\nmodel = x\n", encoding="utf-8")
    if how == "ctl":
        own_world.out("echo reload > $m/ctl")
    else:
        assert own_world.daemon is not None
        os.kill(own_world.daemon.pid, signal.SIGHUP)
    own_world.out("until grep -q ^wrong $m/backends; do :; done; ! grep '#' $m/backends")
    own_world.stop()


def test_secrets_are_shown_nowhere(own_world: World) -> None:
    """A key appears in no file of the tree, no log and no message."""
    conf = own_world.home / ".config" / "ollie" / "backends.conf"
    secret = "sk-very-secret-0123456789"
    text = conf.read_text(encoding="utf-8").replace("[down]", f"key = {secret}\n[down]\nheader X-Key = {secret}")
    conf.write_text(text, encoding="utf-8")
    own_world.start()
    agent = f"{own_world.mount}/session/s/agent/main"
    own_world.out(f"mkdir $m/session/s; echo hi > {agent}/prompt; cat {agent}/reply; echo backend down > {agent}/ctl")
    own_world.sh(f"echo hi > {agent}/prompt; cat {agent}/reply")
    files = own_world.out("find $m -type f ! -name statewait ! -name events -exec cat {} + 2>/dev/null || true")
    assert "key=set" in files
    told = files + own_world.run("ollie-fuse", "doctor").stdout.decode() + own_world.log.read_text(encoding="utf-8")
    assert secret not in told
    own_world.stop()


def test_end_of_a_busy_tree_that_was_looked_at(own_world: World) -> None:
    """With turns running, prompts queued and every attribute in the kernel's cache the daemon still ends with 0."""
    own_world.start()
    script = """
    for n in 1 2 3; do
        mkdir $m/session/s$n; a=$m/session/s$n/agent/main
        echo '@fake hold' > $a/prompt; echo next > $a/prompt
    done
    ls -lR $m > /dev/null
    """
    own_world.out(script)
    assert own_world.stop() == 0
    assert own_world.new_troubles() == []
