"""What a person types: every mistake is a line and an exit status, never a traceback."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from ollie_fuse import __version__
from ollie_fuse.cli import VERBS

REPOSITORY = Path(__file__).parents[1]


def run(
    home: Path, *words: str, env: Mapping[str, str] | None = None, stdout: int | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run the command in a home of its own."""
    clean = {"HOME": str(home), "PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "LC_ALL": "C.UTF-8"}
    return subprocess.run(
        [sys.executable, "-m", "ollie_fuse", *words],
        env=clean | dict(env or {}),
        stdin=subprocess.DEVNULL,
        stdout=stdout if stdout is not None else subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="surrogateescape",
        cwd=home,
        timeout=20,
        check=False,
    )


def assert_one_line(done: "subprocess.CompletedProcess[str]", status: int = 1) -> None:
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == status, done
    assert done.stderr.startswith("ollie-fuse: ")
    assert done.stderr.count("\n") == 1


def test_help_and_version(tmp_path: Path) -> None:
    """Help names every verb with its sentence, and the version is told."""
    told = run(tmp_path, "--help")
    assert told.returncode == 0
    words = " ".join(told.stdout.split())
    for verb in VERBS:
        assert f"{verb.name} {verb.help}" in words
    assert run(tmp_path, "--version").stdout == f"{__version__}\n"


@pytest.mark.parametrize("words", [[], ["nosuch"], ["up", "more"]])
def test_wrong_words(tmp_path: Path, words: list[str]) -> None:
    """A wrong command line is exit status 2 with the usage and one line that says what is wrong."""
    done = run(tmp_path, *words)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: ollie-fuse")
    assert "Traceback" not in done.stderr
    assert "error: " in done.stderr.splitlines()[-1]


def test_no_daemon(tmp_path: Path) -> None:
    """Without a daemon `status` is 1 and says so, `down` has nothing to do, and neither makes a file."""
    status = run(tmp_path, "status")
    assert (status.returncode, status.stdout, status.stderr) == (1, "down\n", "")
    down = run(tmp_path, "down")
    assert (down.returncode, down.stdout) == (0, "no daemon is running\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", ["up", "status", "down"])
def test_state_directory_that_cannot_be(tmp_path: Path, verb: str) -> None:
    """A state directory that is a file is one line."""
    (tmp_path / "state").write_text("", encoding="utf-8")
    assert_one_line(run(tmp_path, verb, env={"XDG_STATE_HOME": str(tmp_path / "state")}))


def test_doctor_says_how_to_mend(tmp_path: Path) -> None:
    """Everything that `doctor` finds wrong has a remedy under it, and it is exit status 1 then."""
    config = tmp_path / ".config" / "ollie"
    config.mkdir(parents=True)
    (config / "backends.conf").write_text("[a]\nurl = nonsense\n[b]\nkey-env = NO_SUCH_KEY\n", encoding="utf-8")
    (tmp_path / "ollie").mkdir()
    (tmp_path / "ollie" / "mine").write_text("", encoding="utf-8")
    done = run(tmp_path, "doctor")
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (1, "")
    failed = [number for number, line in enumerate(lines) if line.startswith("FAIL")]
    for number in failed:
        assert lines[number + 1].startswith("     ")
        assert lines[number + 1].strip()
    told = "\n".join(lines[number] for number in failed)
    for trouble in ("not empty", "backends.conf:2", "NO_SUCH_KEY is not set"):
        assert trouble in told


def test_mount_point_whose_name_is_no_text(tmp_path: Path) -> None:
    """A mount point whose name is not UTF-8 is looked at, or refused in a line."""
    place = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    done = run(tmp_path, "doctor", env={"OLLIE": place})
    assert "Traceback" not in done.stderr, done.stderr


def test_output_that_cannot_be_written(tmp_path: Path) -> None:
    """A full disk behind standard output is a line and an exit status."""
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = run(tmp_path, "status", stdout=full.fileno())
    assert_one_line(done)


def test_reader_that_leaves(tmp_path: Path) -> None:
    """A reader of the output that went away, as `| head` does, leaves no traceback."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = run(tmp_path, "doctor", stdout=writing)
    finally:
        os.close(writing)
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
