"""The engine: sessions, agents, turns. It knows no files, no FUSE, no 9P."""

from ollie_fuse.agent.agent import Agent
from ollie_fuse.agent.backends import UNKNOWN_WINDOW_TOKENS, Backend, Backends
from ollie_fuse.agent.commands import (
    AGENT_VERBS,
    QUEUE_VERBS,
    is_command,
    render_ctl,
    render_queue,
    run_agent_lines,
    run_prompt_command,
    run_queue_lines,
)
from ollie_fuse.agent.events import FILTERS as EVENT_FILTERS
from ollie_fuse.agent.events import Events
from ollie_fuse.agent.exchange import Draft, Exchange
from ollie_fuse.agent.growing import Growing
from ollie_fuse.agent.prompt import render as render_system_prompt
from ollie_fuse.agent.session import Places, Session, render_env
from ollie_fuse.agent.session_commands import SESSION_VERBS, render_session_ctl, run_session_lines
from ollie_fuse.agent.sessions import AGENT_KEYS, GENERATE_KEYS, SESSION_KEYS, Generation, Sessions
from ollie_fuse.agent.settings import Settings
from ollie_fuse.agent.spec import Key, render_template
from ollie_fuse.agent.stage import BareStage, Stage
from ollie_fuse.agent.topic import Topic
from ollie_fuse.agent.usage import Totals
from ollie_fuse.agent.verbs import Verb, names_of, run_lines, table_of

__all__ = [
    "AGENT_KEYS",
    "AGENT_VERBS",
    "EVENT_FILTERS",
    "GENERATE_KEYS",
    "QUEUE_VERBS",
    "SESSION_KEYS",
    "SESSION_VERBS",
    "UNKNOWN_WINDOW_TOKENS",
    "Agent",
    "Backend",
    "Backends",
    "BareStage",
    "Draft",
    "Events",
    "Exchange",
    "Generation",
    "Growing",
    "Key",
    "Places",
    "Session",
    "Sessions",
    "Settings",
    "Stage",
    "Topic",
    "Totals",
    "Verb",
    "is_command",
    "names_of",
    "render_ctl",
    "render_env",
    "render_queue",
    "render_session_ctl",
    "render_system_prompt",
    "render_template",
    "run_agent_lines",
    "run_lines",
    "run_prompt_command",
    "run_queue_lines",
    "run_session_lines",
    "table_of",
]
