"""A session: a named place of work that holds agents."""

import os
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import trio

from ollie_fuse.agent.agent import Agent
from ollie_fuse.agent.backends import Backends
from ollie_fuse.agent.events import Events
from ollie_fuse.agent.settings import Settings
from ollie_fuse.agent.spec import check_name
from ollie_fuse.agent.stage import Stage
from ollie_fuse.agent.topic import Topic
from ollie_fuse.agent.usage import Totals
from ollie_fuse.errors import Exists, Invalid, NotFound
from ollie_fuse.stamp import Stamp

_PATH_STEPS = 4096
"""More than path_resolution(7) allows links and names."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where sessions may work."""

    home: str
    mounts: tuple[str, ...] = ()
    """Our own mounts; a working directory inside one becomes *home*, since no daemon may touch its own mount."""

    async def check_cwd(self, path: str, base: str | None = None) -> str:
        """Return *path* as a directory to work in; relative ones start at *base*.

        Waits for the disk, in a thread. Raises NotFound when it is no directory, Invalid when it cannot be a path.
        """
        if "\0" in path or not path:
            raise Invalid("a working directory is a path")
        full = Path(self.home, path[2:]) if path == "~" or path.startswith("~/") else Path(base or "", path)
        if not full.is_absolute():
            raise Invalid(f"{path!r} is not an absolute path")
        return await trio.to_thread.run_sync(self._checked, full, abandon_on_cancel=True)

    def _checked(self, path: Path) -> str:
        if self.is_inside_mount(str(path)):
            return self.home
        if not path.is_dir():
            raise NotFound(f"there is no directory {str(path)!r}")
        return str(path)

    def outside(self, real: str | None) -> str:
        """Return the directory *real*, a path without links, or home for none and for one inside a mount."""
        if real is None or any(Path(real).is_relative_to(mount) for mount in self.mounts):
            return self.home
        return real

    def is_inside_mount(self, path: str) -> bool:
        """Follow an absolute *path* link by link, and tell whether it leads into a mount, without ever entering one.

        ``realpath`` would look below the mount: while a handler waits for us there, that is a deadlock.
        """
        rest = path.split("/")[::-1]
        real = "/"
        for _ in range(_PATH_STEPS):
            if not rest:
                return False
            name = rest.pop()
            if name in ("", "."):
                continue
            real = os.path.dirname(real) if name == ".." else os.path.join(real, name)
            if real in self.mounts:
                return True
            try:
                target = os.readlink(real)
            except OSError:  # no link
                continue
            rest += target.split("/")[::-1]
            real = "/" if target.startswith("/") else os.path.dirname(real)
        return False  # a loop of links, which is no directory either


@dataclass(slots=True, kw_only=True)
class Session:
    """One session. ``start`` runs a new agent's actor; whoever made the session owns the nursery behind it."""

    name: str
    cwd: str
    places: Places
    backends: Backends
    events: Events
    stage: Stage
    start: Callable[[Agent], None]
    title: str = ""
    env: dict[str, str] = field(default_factory=dict)
    agents: dict[str, Agent] = field(default_factory=dict)
    is_alive: bool = True
    sessions_changed: Stamp = field(default_factory=Stamp)
    """Touched with everything about the session."""
    created: Stamp = field(default_factory=Stamp)
    changed: Stamp = field(init=False)
    """Of cwd, title, env or name; each of the first three has its own too."""
    cwd_changed: Stamp = field(init=False)
    title_changed: Stamp = field(init=False)
    env_changed: Stamp = field(init=False)
    rows_changed: Stamp = field(init=False)
    """Of what lists show of its agents."""
    usage_changed: Stamp = field(init=False)
    """Of what its agents used."""
    members_changed: Stamp = field(init=False)
    """Of which agents there are, and their names."""

    def __post_init__(self) -> None:
        self.changed = Stamp(self.sessions_changed)
        self.cwd_changed, self.title_changed, self.env_changed = (Stamp(self.changed) for _ in range(3))
        self.rows_changed = Stamp(self.sessions_changed)
        self.usage_changed = Stamp(self.rows_changed)
        self.members_changed = Stamp(self.usage_changed)

    @property
    def place(self) -> tuple[str, ...]:
        """Where it is, for ``Stage``."""
        return ("session", self.name)

    @property
    def quoted_cwd(self) -> str:
        """The working directory as a ``ctl`` line spells it."""
        return shlex.quote(self.cwd)

    @property
    def state(self) -> str:
        """The state of the first agent that is not idle."""
        return next((agent.state for agent in self.agents.values() if agent.state != "idle"), "idle")

    @property
    def totals(self) -> Totals:
        """The usage of all its agents."""
        total = Totals()
        for agent in self.agents.values():
            total = total.plus_totals(agent.totals)
        return total

    def touch(self) -> None:
        """Note a change of what the session's own files show."""
        self.changed.touch()

    async def set_cwd(self, path: str) -> None:
        """Work elsewhere; waits for the disk, raises as ``Places.check_cwd`` does."""
        self.cwd = await self.places.check_cwd(path)
        self.cwd_changed.touch()
        for agent in self.agents.values():
            agent.touch(Topic.SETTINGS)

    async def set_title(self, title: str) -> None:
        """Give it a title, one line of text."""
        if "\n" in title or "\0" in title:
            raise Invalid("a title is one line of text")
        self.title = title
        self.title_changed.touch()

    async def set_env(self, text: str) -> None:
        """Replace the environment of its tools by ``KEY=VALUE`` lines."""
        self.env = parse_env(text.split("\n"))
        self.env_changed.touch()

    def create_agent(self, name: str, settings: Settings) -> Agent:
        """Make an agent and run it; raises Invalid for the name, Exists when it is taken, NotFound once killed."""
        if not self.is_alive:
            raise NotFound(f"session {self.name} was killed")
        check_name(name)
        if name in self.agents:
            raise Exists(f"session {self.name} has an agent {name} already")
        agent = self.agents[name] = Agent(name, self, settings)
        self.members_changed.touch()
        self.start(agent)
        self.events.add("agent_created", session=self.name, agent=name)
        return agent

    def check_member(self, agent: Agent) -> None:
        """Refuse for an agent that was killed: another may have its name now."""
        if self.agents.get(agent.name) is not agent:
            raise NotFound(f"agent {agent.name} was killed")

    def kill_agent(self, name: str) -> None:
        """End an agent; its name is free at once."""
        agent = self.agents.pop(name, None)
        if agent is None:
            raise NotFound(f"session {self.name} has no agent {name!r}")
        agent.kill()
        self.members_changed.touch()
        self.events.add("agent_killed", session=self.name, agent=name)

    def rename_agent(self, old: str, new: str) -> None:
        """Give an agent another name; raises Invalid, Exists or NotFound."""
        check_name(new)
        if new == old:
            return
        if new in self.agents:
            raise Exists(f"session {self.name} has an agent {new} already")
        if old not in self.agents:
            raise NotFound(f"session {self.name} has no agent {old!r}")
        # Rebuilt, so that the order stays that of creation.
        self.agents = {(new if name == old else name): agent for name, agent in self.agents.items()}
        self.agents[new].name = new
        self.members_changed.touch()
        self.events.add("agent_renamed", session=self.name, agent=new, old=old)

    def kill(self) -> None:
        """End every agent, and take no more."""
        self.is_alive = False
        for name in list(self.agents):
            self.kill_agent(name)


def parse_env(lines: list[str]) -> dict[str, str]:
    """Parse ``KEY=VALUE`` lines; raises Invalid for any other."""
    env = {}
    for line in lines:
        if not line:
            continue
        key, has_value, value = line.partition("=")
        if not has_value or not _VARIABLE.fullmatch(key) or "\0" in value or "\n" in value:
            raise Invalid(f"{line[:64]!r} is not KEY=VALUE on one line")
        env[key] = value
    return env


def render_env(env: dict[str, str]) -> str:
    """Write variables as the lines that set them."""
    return "\n".join(f"{key}={value}" for key, value in env.items())
