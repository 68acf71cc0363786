"""The files of a session, and those of the directory that holds its agents."""

from collections.abc import Awaitable, Callable, Sequence

from ollie_fuse.agent import (
    AGENT_KEYS,
    SESSION_VERBS,
    Session,
    names_of,
    render_env,
    render_session_ctl,
    render_template,
    run_session_lines,
)
from ollie_fuse.nodes import (
    Directory,
    FixedDirectory,
    LiveDirectory,
    Node,
    TextFile,
    ValueFile,
    command_file,
)
from ollie_fuse.stamp import Stamp
from ollie_fuse.tree.agent_files import agent_directory
from ollie_fuse.tree.row import Row, SessionPlace, new_file, render_cost, report_nowhere, tabbed


def _render_agents(session: Session) -> str:
    rows = (
        (
            agent.name,
            agent.state,
            agent.settings.backend,
            agent.shown_model,
            agent.turns,
            render_cost(agent.totals),
        )
        for agent in session.agents.values()
    )
    return tabbed(rows)


def _new_agent(place: SessionPlace) -> Node:
    async def create(spec: str) -> str:
        return f"{await place.root.sessions.create_agent(place.session, spec)}\n"

    return new_file(lambda _cwd: create, render_template(AGENT_KEYS), place.session.created)


AGENTS_FILES: Sequence[Row[SessionPlace]] = (
    Row("new", "rw", "write a spec, read back the name of the agent it made", _new_agent),
    Row(
        "idx",
        "r",
        "tab-separated: name state backend model turns cost",
        lambda place: TextFile(lambda: _render_agents(place.session), place.session.rows_changed),
    ),
)


def _agents_directory(place: SessionPlace) -> Directory:
    session = place.session

    async def make(name: str, _cwd: str | None) -> None:
        place.root.sessions.create_named_agent(session, name)

    async def remove(name: str) -> None:
        session.kill_agent(name)

    return LiveDirectory(
        lambda: {row.name: row.node(place) for row in AGENTS_FILES},
        session.members_changed,
        live=lambda: session.agents,
        node_of=agent_directory,
        make=make,
        remove=remove,
        move=session.rename_agent,
    )


def _session_ctl(place: SessionPlace) -> Node:
    return command_file(
        lambda: render_session_ctl(place.session),
        lambda text: run_session_lines(place.root.sessions, place.session, text),
        report_nowhere,
        place.session.changed,
    )


def _session_value(
    get: Callable[[Session], str],
    put: Callable[[Session, str], Awaitable[None]],
    stamp: Callable[[Session], Stamp],
) -> Callable[[SessionPlace], Node]:
    return lambda place: ValueFile(
        lambda: get(place.session), lambda text: put(place.session, text), stamp(place.session)
    )


SESSION_FILES: Sequence[Row[SessionPlace]] = (
    Row("ctl", "rw", f"settings as lines; verbs: {', '.join(names_of(SESSION_VERBS))}", _session_ctl),
    Row(
        "cwd", "rw", "the working directory", _session_value(lambda s: s.cwd, Session.set_cwd, lambda s: s.cwd_changed)
    ),
    Row(
        "title",
        "rw",
        "one line for people",
        _session_value(lambda s: s.title, Session.set_title, lambda s: s.title_changed),
    ),
    Row(
        "env",
        "rw",
        "KEY=VALUE lines for its tools",
        _session_value(lambda s: render_env(s.env), Session.set_env, lambda s: s.env_changed),
    ),
    Row(
        "usage",
        "r",
        "the sum over its agents",
        lambda place: TextFile(lambda: place.session.totals.render(""), place.session.usage_changed),
    ),
    Row("agent", "d", "the agents, one directory each; mkdir, mv, rmdir", _agents_directory),
)


def session_directory(place: SessionPlace) -> Directory:
    """Make the directory of one session."""
    return FixedDirectory(lambda: {row.name: row.node(place) for row in SESSION_FILES}, place.session.created)
