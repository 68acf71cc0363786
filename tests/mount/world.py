"""A real daemon in a process of its own, its mount, and shells to drive it."""

import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
START_S = 20.0
UNTIL_BLOCKED = """\
blocked() { sed -n s/blocked_readers=//p $m/status; }
base=$(blocked)
until_blocked() { until [ "$(blocked)" -ge $((base + $1)) ]; do :; done; }
"""
SLOW_HANDLER = "; the kernel holds locks meanwhile"
BACKENDS = """\
[fake]
url = {url}
model = fake-1
window = 32768

[down]
url = http://127.0.0.1:9
model = some
"""


@dataclass
class World:
    """One daemon with a home of its own. Nothing here touches the mount but child processes with a time limit."""

    home: Path
    backends_conf: str
    env: dict[str, str] = field(default_factory=dict)
    daemon: "subprocess.Popen[bytes] | None" = None
    log_seen: int = 0

    def __post_init__(self) -> None:
        self.env = {
            "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": str(self.home),
            "LC_ALL": "C.UTF-8",
            "PYTHONPATH": str(REPOSITORY),
        }
        config = self.home / ".config" / "ollie"
        config.mkdir(parents=True)
        if self.backends_conf:
            (config / "backends.conf").write_text(self.backends_conf, encoding="utf-8")

    @property
    def mount(self) -> Path:
        return self.home / "ollie"

    @property
    def log(self) -> Path:
        return self.home / "daemon.log"

    def start(self, extra_env: Mapping[str, str] | None = None) -> None:
        """Start the daemon and wait until it says that it is mounted."""
        before = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self.daemon = subprocess.Popen(
                [sys.executable, "-m", "ollie_fuse", "up"],
                env=self.env | dict(extra_env or {}),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        limit = time.monotonic() + START_S
        while b"mounted at" not in self.log.read_bytes()[before:]:
            assert self.daemon.poll() is None, self.log.read_text(encoding="utf-8")
            assert time.monotonic() < limit, self.log.read_text(encoding="utf-8")
            time.sleep(0.01)

    def stop(self, number: int = signal.SIGTERM, timeout_s: float = 10.0) -> int:
        """End the daemon by a signal; return its exit status."""
        assert self.daemon is not None
        daemon, self.daemon = self.daemon, None
        daemon.send_signal(number)
        return daemon.wait(timeout_s)

    def run(
        self, *argv: str, timeout_s: float = 20.0, stdin: bytes = b"", cwd: Path | None = None
    ) -> "subprocess.CompletedProcess[bytes]":
        """Run a program in this world."""
        return subprocess.run(
            argv, env=self.env, capture_output=True, timeout=timeout_s, input=stdin, cwd=cwd or self.home, check=False
        )

    def sh(self, script: str, *, shell: str = "bash", timeout_s: float = 20.0) -> "subprocess.CompletedProcess[bytes]":
        """Run a shell script whose ``$m`` is the mount; ``until_blocked N`` waits for N more readers that wait."""
        shells = {"busybox": ["busybox", "sh"]}
        counted = UNTIL_BLOCKED if "until_blocked" in script else ""
        argv = [*shells.get(shell, [shell]), "-c", f"m={self.mount}\n{counted}{script}"]
        return self.run(*argv, timeout_s=timeout_s)

    def out(self, script: str, *, shell: str = "bash", timeout_s: float = 20.0) -> str:
        """Run a shell script that must succeed; return what it printed."""
        done = self.sh(script, shell=shell, timeout_s=timeout_s)
        assert done.returncode == 0, (script, done)
        return done.stdout.decode()

    def new_troubles(self) -> list[str]:
        """Return the warnings and tracebacks that the daemon logged since the last call.

        Slow handlers apart, of which a loaded machine has some: test_hanging.py is about them.
        """
        text = self.log.read_text(encoding="utf-8") if self.log.exists() else ""
        fresh, self.log_seen = text[self.log_seen :], len(text)
        lines = (line for line in fresh.splitlines() if not line.startswith(("INFO", "DEBUG")))
        return [line for line in lines if not line.endswith(SLOW_HANDLER)]
