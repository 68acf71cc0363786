"""The files of the root, and those of the directory that holds the sessions."""

from collections.abc import Awaitable, Callable, Sequence

from ollie_fuse import __version__
from ollie_fuse.agent import (
    AGENT_VERBS,
    QUEUE_VERBS,
    SESSION_KEYS,
    SESSION_VERBS,
    UNKNOWN_WINDOW_TOKENS,
    render_template,
    run_lines,
)
from ollie_fuse.nodes import (
    ConversationFile,
    Directory,
    FixedDirectory,
    LiveDirectory,
    MirrorDirectory,
    Node,
    TextFile,
    command_file,
)
from ollie_fuse.stamp import Stamp
from ollie_fuse.tree.agent_files import AGENT_FILES
from ollie_fuse.tree.help import render_files, render_verbs
from ollie_fuse.tree.row import Root, Row, SessionPlace, new_file, render_cost, report_nowhere, tabbed
from ollie_fuse.tree.session_files import AGENTS_FILES, SESSION_FILES, session_directory
from ollie_fuse.tree.talks import EventsTalk, GenerateTalk


def _render_sessions(root: Root) -> str:
    rows = []
    for session in root.sessions.by_name.values():
        first = next(iter(session.agents.values()), None)
        chosen = (first.settings.backend, first.shown_model) if first else ("", "")
        rows.append((session.name, session.state, session.cwd, *chosen, len(session.agents), session.title))
    return tabbed(rows)


def _new_session(root: Root) -> Node:
    def creator(cwd: str | None) -> Callable[[str], Awaitable[str]]:
        async def create(spec: str) -> str:
            return f"{await root.sessions.create(spec, cwd)}\n"

        return create

    return new_file(creator, render_template(SESSION_KEYS), root.started)


SESSIONS_FILES: Sequence[Row[Root]] = (
    Row("new", "rw", "write a spec, read back the name of the session it made", _new_session),
    Row(
        "idx",
        "r",
        "tab-separated: name state cwd backend model agents title",
        lambda root: TextFile(lambda: _render_sessions(root), root.sessions.changed),
    ),
)


def _sessions_directory(root: Root) -> Directory:
    async def make(name: str, cwd: str | None) -> None:
        await root.sessions.create_named(name, cwd)

    async def remove(name: str) -> None:
        root.sessions.kill(name)

    return LiveDirectory(
        lambda: {row.name: row.node(root) for row in SESSIONS_FILES},
        root.sessions.members_changed,
        live=lambda: root.sessions.by_name,
        node_of=lambda session: session_directory(SessionPlace(session, root)),
        make=make,
        remove=remove,
        move=root.sessions.rename,
    )


def _render_backends(root: Root) -> str:
    rows = [
        (
            backend.name,
            backend.config.kind,
            backend.config.url if backend.config.kind != "local" else "-",
            backend.default_model or "-",
            _key_state(backend.config.key is not None, is_missing=backend.config.is_key_missing),
            f"failing: {backend.trouble}" if backend.trouble else "ready",
        )
        for backend in root.backends
    ]
    return tabbed(rows) + "".join(f"# {mistake}\n" for mistake in root.backends.mistakes)


def _key_state(has_key: bool, *, is_missing: bool) -> str:
    return "key=missing" if is_missing else "key=set" if has_key else "key=none"


def _render_models(root: Root) -> str:
    rows = []
    for backend in root.backends:
        price = backend.price
        told = "unavailable" if price is None else f"{price.input:g}/{price.output:g}"
        for info in backend.models or ():
            window = backend.window_of(info.name)
            rows.append((backend.name, info.name, window or f"{UNKNOWN_WINDOW_TOKENS} assumed", told))
    return tabbed(rows)


def _render_usage(root: Root) -> str:
    rows = [
        (name, model, total.requests, total.input_tokens, total.output_tokens, render_cost(total))
        for (name, model), total in root.backends.totals.items()
    ]
    return "# since the daemon started: backend model requests input_tokens output_tokens cost\n" + tabbed(rows)


def _root_text(render: Callable[[Root], str], stamp: Callable[[Root], Stamp | None]) -> Callable[[Root], Node]:
    return lambda root: TextFile(lambda: render(root), stamp(root))


def _fixed_text(text: str) -> Callable[[Root], Node]:
    return _root_text(lambda _: text, lambda root: root.started)


def _always(_: Root) -> None:
    """No stamp: what shows how it goes now changes with every look."""


_GENERATE_USAGE = (
    "write a prompt to this file and read the answer on the same open file; nothing is kept:\n"
    "  exec 3<>generate; echo 'Why is the sky blue?' >&3; cat <&3\n"
    "`backend=NAME model=NAME` and an empty line may stand before the prompt.\n"
)


def _generate(root: Root) -> Node:
    return ConversationFile(
        lambda caller: GenerateTalk(root.sessions, caller.cwd(), _GENERATE_USAGE),
        lambda: len(_GENERATE_USAGE),
        root.started,
    )


async def _run_root_lines(root: Root, text: str) -> str:
    return await run_lines(text, root.verbs, lambda command: command.verb.run(root, command.arguments))


def _root_ctl(root: Root) -> Node:
    return command_file(root.settings, lambda text: _run_root_lines(root, text), report_nowhere, root.settings_changed)


def _events(root: Root) -> Node:
    return ConversationFile(
        lambda _: EventsTalk(root.events),
        lambda: root.events.kept_bytes,
        root.events.stamp,
        may_answer_later=False,
        look=root.events.kept,
    )


_BLOCKING = ("statewait", "events", "reply", "answer")
_CACHEDIR_TAG = (
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# This directory is generated by ollie-fuse; there is nothing in it to back up.\n"
)

ROOT_FILES: Sequence[Row[Root]] = (
    Row("help", "r", "this list", lambda root: _fixed_text(_help(root))(root)),
    Row("version", "r", "the version", _fixed_text(f"{__version__}\n")),
    Row("ctl", "rw", "daemon settings as lines; verbs: reload, shutdown, log", _root_ctl),
    Row(
        "status",
        "r",
        "k=v: started, sessions, agents by state, blocked readers, memory",
        _root_text(lambda r: r.status(), _always),
    ),
    Row(
        "events",
        "rw…",
        "JSON lines of what happens; write `since SEQ` to resume, `type=… session=… agent=…` to choose",
        _events,
    ),
    Row(
        "backends",
        "r",
        "tab-separated: name kind url model key state; mistakes in backends.conf as comments",
        _root_text(_render_backends, lambda root: root.backends.changed),
    ),
    Row(
        "models",
        "r",
        "tab-separated: backend model window price",
        _root_text(_render_models, lambda root: root.backends.changed),
    ),
    Row("usage", "r", "totals by backend and model", _root_text(_render_usage, lambda root: root.backends.used)),
    Row("generate", "rw…", "write a prompt, read the answer on the same open file; nothing is kept", _generate),
    Row(
        "agents",
        "d",
        "your agent configurations, passed through",
        lambda root: MirrorDirectory(root.config / "agents"),
    ),
    Row("prompts", "d", "your prompts, passed through", lambda root: MirrorDirectory(root.config / "prompts")),
    Row("session", "d", "the sessions, one directory each; mkdir, mv, rmdir", _sessions_directory),
    Row(
        ".ignore",
        "r",
        "names the files that wait, for tools that search",
        _fixed_text("".join(f"{n}\n" for n in _BLOCKING)),
    ),
    Row("CACHEDIR.TAG", "r", "tells backup tools that there is nothing to keep", _fixed_text(_CACHEDIR_TAG)),
)


def build_tree(root: Root) -> Directory:
    """Return the root directory of the agent tree."""
    return FixedDirectory(lambda: {row.name: row.node(root) for row in ROOT_FILES}, root.started)


def render_tree() -> str:
    """List every file of the tree, a line each."""
    return (
        "r read, w write, d directory, … waits, + grows\n\n"
        + render_files("", ROOT_FILES)
        + render_files("session/", SESSIONS_FILES)
        + render_files("session/S/", SESSION_FILES)
        + render_files("session/S/agent/", AGENTS_FILES)
        + render_files("session/S/agent/A/", AGENT_FILES)
    )


def _help(root: Root) -> str:
    return (
        render_tree()
        + render_verbs("session/S/agent/A/ctl, or /command in a prompt", AGENT_VERBS)
        + render_verbs("session/S/agent/A/queue", QUEUE_VERBS)
        + render_verbs("session/S/ctl", SESSION_VERBS)
        + render_verbs("ctl", root.verbs)
    )
