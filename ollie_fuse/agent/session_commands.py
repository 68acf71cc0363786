"""The commands of a session's ``ctl``."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ollie_fuse.agent.session import parse_env, render_env
from ollie_fuse.agent.spec import check_name
from ollie_fuse.agent.verbs import Verb, run_lines, table_of

if TYPE_CHECKING:
    from ollie_fuse.agent.session import Session
    from ollie_fuse.agent.sessions import Sessions


@dataclass(frozen=True, slots=True)
class Subject:
    """A session and what holds it."""

    session: "Session"
    sessions: "Sessions"


async def _cwd(subject: Subject, arguments: Sequence[str]) -> str:
    await subject.session.set_cwd(arguments[0])
    return ""


async def _title(subject: Subject, arguments: Sequence[str]) -> str:
    await subject.session.set_title(arguments[0] if arguments else "")
    return ""


async def _env(subject: Subject, arguments: Sequence[str]) -> str:
    subject.session.env |= parse_env([arguments[0]])
    subject.session.env_changed.touch()
    return ""


async def _kill(subject: Subject, _: Sequence[str]) -> str:
    sessions, session = subject.sessions, subject.session
    sessions.check_member(session)
    await sessions.stage.remove(session.place, lambda: sessions.kill(session.name))
    return ""


async def _rename(subject: Subject, arguments: Sequence[str]) -> str:
    sessions, session = subject.sessions, subject.session
    sessions.check_member(session)
    old, new = session.name, check_name(arguments[0])
    if old != new:
        await sessions.stage.move(session.place, new, lambda: sessions.rename(old, new))
    return ""


SESSION_VERBS: dict[str, Verb[Subject]] = table_of(
    Verb(name="cwd", arguments="PATH", help="the working directory", run=_cwd),
    Verb(name="title", arguments="[TEXT]…", help="one line for people", run=_title),
    Verb(name="env", arguments="KEY=VALUE", help="set a variable for its tools", run=_env),
    Verb(name="kill", help="end the session and its agents", run=_kill),
    Verb(name="rename", arguments="NAME", help="give it another name", run=_rename),
    aliases={"rn": "rename"},
)


def render_session_ctl(session: "Session") -> str:
    """Every setting as the line that sets it."""
    title = f"title {session.title}" if session.title else "title"
    env = [f"env {shlex.quote(line)}" for line in render_env(session.env).split("\n") if line]
    return "\n".join([f"cwd {session.quoted_cwd}", title, *env]) + "\n"


async def run_session_lines(sessions: "Sessions", session: "Session", text: str) -> str:
    """Carry out the lines written to a session's ``ctl``, in order; the first that fails ends it."""
    subject = Subject(session, sessions)
    return await run_lines(text, SESSION_VERBS, lambda command: command.verb.run(subject, command.arguments))
