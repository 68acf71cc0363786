"""The live sessions by name, and what creates, renames and kills them."""

import re
import secrets
import time

import trio

from ollie_fuse.agent.agent import Agent
from ollie_fuse.agent.backends import Backends
from ollie_fuse.agent.events import Events
from ollie_fuse.agent.exchange import Exchange
from ollie_fuse.agent.session import Places, Session, parse_env
from ollie_fuse.agent.settings import Settings
from ollie_fuse.agent.spec import Key, check_name, parse_spec
from ollie_fuse.agent.stage import Stage
from ollie_fuse.errors import Exists, Invalid, NotFound
from ollie_fuse.stamp import Stamp

FIRST_AGENT = "main"
REUSE = "1"

_AGENT_KEYS = (
    Key(name="backend", default="(the first)", help="a name from `backends`"),
    Key(name="model", default="(the backend's)", help="a name from `models`"),
)
_REUSE_KEY = Key(name="reuse", default="0", help="1: take an existing one of that name instead of failing")

SESSION_KEYS = {
    key.name: key
    for key in (
        Key(name="name", default="<time>-<random>", help="letters, digits, . - _"),
        Key(name="cwd", default="(yours)", help="the working directory"),
        Key(name="title", default="", help="one line for people"),
        Key(name="env", default="", help="KEY=VALUE for its tools; may be repeated", is_repeatable=True),
        *_AGENT_KEYS,
        _REUSE_KEY,
    )
}
AGENT_KEYS = {
    key.name: key
    for key in (
        Key(name="name", default="<time>-<random>", help="letters, digits, . - _"),
        *_AGENT_KEYS,
        _REUSE_KEY,
    )
}
GENERATE_KEYS = {key.name: key for key in _AGENT_KEYS}

Given = dict[str, list[str]]

_KEY_VALUE = re.compile(r"[a-z]+=")


class Sessions:
    """All live sessions. Their actors run in *nursery*, whose owner calls ``close`` before it ends."""

    def __init__(self, nursery: trio.Nursery, backends: Backends, events: Events, places: Places, stage: Stage) -> None:
        self._nursery = nursery
        self.stage = stage
        self.backends = backends
        self.events = events
        self.places = places
        self.by_name: dict[str, Session] = {}
        self.changed = Stamp()
        """Of anything about the sessions."""
        self.members_changed = Stamp(self.changed)
        """Of which sessions there are, and their names."""

    async def create(self, spec: str, cwd: str | None) -> str:
        """Create a session from *spec* for somebody who stands in *cwd*; return its name.

        Waits for the disk that holds its working directory. Raises Invalid, NotFound (the directory) or Exists.
        """
        given = parse_spec(spec, SESSION_KEYS)
        name = check_name(given.get("name", [unused_name()])[0])
        if name in self.by_name:
            return self._reused(name, given)
        place = await self.places.check_cwd(given.get("cwd", [cwd or self.places.home])[0], cwd)
        session, settings = await self._prepared(name, given, place)
        if name in self.by_name:  # it came while the disk was asked
            return self._reused(name, given)
        await self.stage.make(session.place, lambda: self._add(session, settings))
        return name

    async def create_named(self, name: str, cwd: str | None) -> None:
        """Create a session with every default but its name, for somebody in *cwd* (without links), as ``mkdir`` does.

        Asks no disk, since the kernel locks the directory of all sessions meanwhile. Raises Invalid or Exists.
        """
        place = self.places.outside(cwd)
        self._add(*await self._prepared(check_name(name), {}, place))

    async def _prepared(self, name: str, given: Given, place: str) -> tuple[Session, Settings]:
        """Make a session that works in *place* and is in no table yet, and the settings of its first agent."""
        settings = self._settings_of(given)
        env = parse_env(given.get("env", []))
        session = Session(
            name=name,
            cwd=place,
            places=self.places,
            backends=self.backends,
            events=self.events,
            stage=self.stage,
            start=self._start,
            sessions_changed=self.changed,
        )
        await session.set_title(given.get("title", [""])[0])
        session.env = env
        return session, settings

    def _add(self, session: Session, settings: Settings) -> None:
        if session.name in self.by_name:
            raise Exists(f"there is a session {session.name} already")
        self.by_name[session.name] = session
        self.members_changed.touch()
        self.events.add("session_created", session=session.name, cwd=session.cwd)
        session.create_agent(FIRST_AGENT, settings)

    def _reused(self, name: str, given: Given) -> str:
        if given.get("reuse") != [REUSE]:
            raise Exists(f"there is a session {name} already; reuse=1 takes it as it is")
        return name

    async def create_agent(self, session: Session, spec: str) -> str:
        """Create an agent from *spec*; return its name. Raises Invalid, Exists or NotFound."""
        given = parse_spec(spec, AGENT_KEYS)
        name = check_name(given.get("name", [unused_name()])[0])
        if name in session.agents and given.get("reuse") == [REUSE]:
            return name
        settings = self._settings_of(given)
        place = (*session.place, "agent", name)
        await self.stage.make(place, lambda: session.create_agent(name, settings))
        return name

    def create_named_agent(self, session: Session, name: str) -> None:
        """Create an agent with every default but its name, as ``mkdir`` does; raises Invalid or Exists."""
        session.create_agent(name, self._settings_of({}))

    def _settings_of(self, given: Given) -> Settings:
        backend = self.backends.get(given["backend"][0]) if "backend" in given else self.backends.default
        model = backend.check_model(given["model"][0]) if "model" in given else None
        return Settings(backend=backend.name, model=model)

    def _start(self, agent: Agent) -> None:
        self._nursery.start_soon(agent.run)

    def check_member(self, session: Session) -> None:
        """Refuse for a session that was killed: another may have its name now."""
        if self.by_name.get(session.name) is not session:
            raise NotFound(f"session {session.name} was killed")

    def kill(self, name: str) -> None:
        """End a session and its agents; its name is free at once."""
        session = self.by_name.pop(name, None)
        if session is None:
            raise NotFound(f"there is no session {name!r}")
        session.kill()
        self.members_changed.touch()
        self.events.add("session_killed", session=name)

    def rename(self, old: str, new: str) -> None:
        """Give a session another name; raises Invalid, Exists or NotFound."""
        check_name(new)
        if new == old:
            return
        if new in self.by_name:
            raise Exists(f"there is a session {new} already")
        if old not in self.by_name:
            raise NotFound(f"there is no session {old!r}")
        # Rebuilt, so that the order stays that of creation.
        self.by_name = {(new if name == old else name): session for name, session in self.by_name.items()}
        self.by_name[new].name = new
        self.by_name[new].touch()
        self.members_changed.touch()
        self.events.add("session_renamed", session=new, old=old)

    def generate(self, request: str, cwd: str | None) -> "Generation":
        """Answer one prompt in no session; nothing of it is kept. Raises Invalid for its keys."""
        given, text = split_request(request)
        settings = self._settings_of(given)
        session = Session(
            name="(generate)",
            cwd=self.places.outside(cwd),
            places=self.places,
            backends=self.backends,
            events=Events(),  # its own: a one-shot answer is no event of the tree
            stage=self.stage,
            start=self._start,
        )
        return Generation(session.create_agent("main", settings), text)

    def close(self) -> None:
        """End every session, as the daemon's end does."""
        for name in list(self.by_name):
            self.kill(name)


class Generation:
    """A one-shot answer in the making."""

    def __init__(self, agent: Agent, text: str) -> None:
        self._agent = agent
        self.exchange = Exchange(1, Stamp(), Stamp())
        self.exchange.text = text
        agent.submit(self.exchange)

    def close(self) -> None:
        """End it, answered or not."""
        self._agent.kill()


def split_request(request: str) -> tuple[Given, str]:
    """Split what is written to ``generate`` into the keys before its first empty line, if any, and the prompt."""
    head, has_blank, rest = request.partition("\n\n")
    words = head.split()
    is_spec = bool(has_blank and words) and all(_KEY_VALUE.match(word) for word in words)
    text = (rest if is_spec else request).removesuffix("\n")
    if not text.strip():
        raise Invalid("an empty prompt was not sent")
    return (parse_spec(head, GENERATE_KEYS) if is_spec else {}), text


def unused_name() -> str:
    """Return a name that nobody has: the time in ns and 6 hex digits, so that names sort by creation."""
    return f"{time.time_ns()}-{secrets.token_hex(3)}"
