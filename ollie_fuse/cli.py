"""``ollie-fuse VERB``: what a person types. Mistakes are one line and an exit status, never a traceback."""

import argparse
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import trio

from ollie_fuse import __version__
from ollie_fuse.child import ChildFailed, run_child
from ollie_fuse.config import BackendsFile, read_backends
from ollie_fuse.errors import OllieError, TimedOut, sentence_of
from ollie_fuse.paths import Paths, read_paths
from ollie_fuse.preflight import (
    FSTYPE,
    Check,
    check_host,
    check_mountpoint,
    check_state,
    mounted_type,
    running_daemon,
)

LOOK_S = 5.0
DOWN_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verb:
    """One command: what it does, and the function, which returns the exit status."""

    name: str
    help: str
    run: Callable[[Paths, Mapping[str, str]], int]


def _up(paths: Paths, environ: Mapping[str, str]) -> int:
    from ollie_fuse.daemon import run_daemon  # heavy, and only this verb needs it

    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    logging.getLogger("ollie_fuse").setLevel(logging.INFO)
    trio.run(run_daemon, paths, environ)
    return 0


def _down(paths: Paths, _: Mapping[str, str]) -> int:
    running = running_daemon(paths)
    if running is None:
        print("no daemon is running")
        return 0
    told = 0
    limit = time.monotonic() + DOWN_S
    while (now := running_daemon(paths)) is not None:
        if now.pid and now.pid != told:
            told = now.pid
            os.kill(told, signal.SIGTERM)
        if time.monotonic() > limit:
            raise TimedOut(f"the daemon (pid {running.pid}) did not end within {DOWN_S:g} s")
        time.sleep(0.02)
    print(f"{running.mountpoint} is unmounted")
    return 0


def _status(paths: Paths, _: Mapping[str, str]) -> int:
    running = running_daemon(paths)
    if running is None:
        print("down")
        return 1
    if mounted_type(running.mountpoint) != FSTYPE:
        print(f"starting or stopping (pid {running.pid})")
        return 1
    looked = trio.run(_look, f"{running.mountpoint}/status")
    print(f"up at {running.mountpoint}\n{looked}", end="")
    return 0


async def _look(path: str) -> str:
    """Read a file of the mount in a child, which may hang in our place."""
    try:
        looked = await run_child(["cat", path], timeout_s=LOOK_S)
    except ChildFailed as exc:
        raise TimedOut(f"the mount does not answer: {exc}") from exc
    if looked.status:
        raise OllieError(looked.text.strip())
    return looked.text


def _doctor(paths: Paths, environ: Mapping[str, str]) -> int:
    file = read_backends(paths.backends_conf, environ)
    checks = [
        *trio.run(check_host),
        check_mountpoint(paths),
        check_state(paths),
        *_check_config(paths, file),
        *_check_local(paths, file),
    ]
    for check in checks:
        print(
            f"{'ok  ' if not check.trouble else 'FAIL'} {check.name}" + (f": {check.trouble}" if check.trouble else "")
        )
        if check.trouble:
            print(f"     {check.remedy}")
    return int(any(check.trouble for check in checks))


def _check_config(paths: Paths, file: BackendsFile) -> Iterator[Check]:
    for mistake in file.mistakes:
        yield Check(name="configuration", trouble=str(mistake), remedy=f"edit {paths.backends_conf}")
    for backend in file.backends:
        missing = f"the variable {backend.key_env} is not set" if backend.is_key_missing else ""
        yield Check(
            name=f"backend {backend.section} ({backend.kind})",
            trouble=missing,
            remedy=f"set {backend.key_env} where `ollie-fuse up` runs, or write key= in {paths.backends_conf}",
        )


def _check_local(paths: Paths, file: BackendsFile) -> Iterator[Check]:
    from importlib.util import find_spec

    from ollie_fuse.providers import default_model_path

    models = [
        Path(backend.model or default_model_path(paths.data)) for backend in file.backends if backend.kind == "local"
    ]
    if not models:
        return
    yield Check(
        name="local model: xllamacpp",
        trouble="" if find_spec("xllamacpp") else "not installed",
        remedy="pip install 'ollie-fuse[local]'",
    )
    for model in models:
        yield Check(
            name=f"local model {model}",
            trouble="" if model.exists() else "not here",
            remedy="`ollie-fuse fetch-model` downloads the default one (93 MB)",
        )


def _fetch_model(paths: Paths, _: Mapping[str, str]) -> int:
    from ollie_fuse.providers import fetch_default_model

    trio.run(fetch_default_model, paths.data)
    return 0


VERBS: Sequence[_Verb] = (
    _Verb(name="up", help="mount and serve, in the foreground, until SIGTERM or `down`", run=_up),
    _Verb(name="down", help="end the running daemon and wait until it is unmounted", run=_down),
    _Verb(
        name="status",
        help="tell whether it is up, and how it goes; exit status 1 when it is down",
        run=_status,
    ),
    _Verb(name="doctor", help="check everything a mount needs, and say how to mend it", run=_doctor),
    _Verb(name="fetch-model", help="download the small local model, unless it is here", run=_fetch_model),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; return the exit status."""
    parser = argparse.ArgumentParser(prog="ollie-fuse", description="LLM agents as a filesystem.")
    parser.add_argument("--version", action="version", version=__version__)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb in VERBS:
        verbs.add_parser(verb.name, help=verb.help, description=verb.help)
    chosen = parser.parse_args(arguments).verb
    run = next(verb.run for verb in VERBS if verb.name == chosen)
    try:
        status = run(read_paths(), os.environ)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # whoever read has seen enough
        _drop_output()
        return 1
    except (OllieError, OSError) as exc:
        _drop_output()
        print(f"ollie-fuse: {sentence_of(exc)}", file=sys.stderr)
        return 1
    except BaseExceptionGroup as group:
        expected, rest = group.split((OllieError, OSError))
        if rest is not None or expected is None:
            raise
        print(f"ollie-fuse: {sentence_of(_first_of(expected))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _drop_output() -> None:
    """Let nothing that could not be written be tried again at the exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _first_of(group: BaseException) -> BaseException:
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group
