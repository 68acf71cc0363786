"""The files of an agent."""

from collections.abc import Awaitable, Callable, Sequence

from ollie_fuse.agent import (
    AGENT_VERBS,
    QUEUE_VERBS,
    UNKNOWN_WINDOW_TOKENS,
    Agent,
    Topic,
    names_of,
    render_ctl,
    render_queue,
    render_system_prompt,
    run_agent_lines,
    run_queue_lines,
)
from ollie_fuse.nodes import (
    ConversationFile,
    Directory,
    FixedDirectory,
    FixedSource,
    GrowingFile,
    Node,
    StreamFile,
    TextFile,
    command_file,
)
from ollie_fuse.tree.row import Row
from ollie_fuse.tree.talks import PromptTalk, StatewaitTalk, state_line


def _agent_text(render: Callable[[Agent], str], topic: Topic) -> Callable[[Agent], Node]:
    return lambda agent: TextFile(lambda: render(agent), agent.stamps[topic])


def _agent_command(
    render: Callable[[Agent], str], run: Callable[[Agent, str], Awaitable[str]], topic: Topic
) -> Callable[[Agent], Node]:
    return lambda agent: command_file(
        lambda: render(agent), lambda text: run(agent, text), agent.note_command, agent.stamps[topic]
    )


def _prompt(agent: Agent) -> Node:
    return ConversationFile(lambda _: PromptTalk(agent), lambda: 0, agent.created)


_NO_REPLY = FixedSource(b"")


def _reply(agent: Agent) -> Node:
    return StreamFile(
        lambda: agent.newest.reply if agent.newest else _NO_REPLY,
        agent.stamps[Topic.REPLY],
    )


def _answer(agent: Agent) -> Node:
    return StreamFile(
        lambda: agent.newest.answer if agent.newest else _NO_REPLY,
        agent.stamps[Topic.ANSWER],
    )


def _statewait(agent: Agent) -> Node:
    return ConversationFile(
        lambda _: StatewaitTalk(agent),
        lambda: len(state_line(agent)),
        agent.stamps[Topic.STATE],
        may_answer_later=False,
        look=lambda: state_line(agent),
    )


def _render_agent_usage(agent: Agent) -> str:
    window = agent.window_tokens
    context = "unreported" if agent.context_tokens is None else agent.context_tokens
    return (
        agent.turn_totals.render("turn_")
        + agent.totals.render("agent_")
        + f"context={context}\nwindow={window or UNKNOWN_WINDOW_TOKENS}{'' if window else ' assumed'}\n"
    )


AGENT_FILES: Sequence[Row[Agent]] = (
    Row("prompt", "rw…", "write a prompt; read after a write on the same open file: its own reply", _prompt),
    Row(
        "reply",
        "r…",
        "what the agent says to the latest prompt, as it streams, until the turn is over",
        _reply,
    ),
    Row("answer", "r…", "its last message alone, when the turn is over", _answer),
    Row(
        "chat",
        "r+",
        "the conversation, rendered for people",
        lambda agent: GrowingFile(agent.chat.text, agent.stamps[Topic.CHAT]),
    ),
    Row("state", "r", "idle, thinking or receiving", _agent_text(lambda a: f"{a.state}\n", Topic.STATE)),
    Row("statewait", "rw…", "returns when the state changes; write `idle` or `since SEQ` first", _statewait),
    Row(
        "error",
        "r",
        "why the last turn or command failed, empty when it did not",
        _agent_text(lambda a: f"{a.error}\n" if a.error else "", Topic.ERROR),
    ),
    Row(
        "ctl",
        "rw",
        f"every setting as the line that sets it; verbs: {', '.join(names_of(AGENT_VERBS))}",
        _agent_command(render_ctl, run_agent_lines, Topic.SETTINGS),
    ),
    Row(
        "queue",
        "rw",
        f"waiting prompts: number, first line; verbs: {', '.join(names_of(QUEUE_VERBS))}",
        _agent_command(render_queue, run_queue_lines, Topic.QUEUE),
    ),
    Row(
        "systemprompt",
        "r",
        "the system prompt last sent, and which part came from where",
        _agent_text(lambda a: render_system_prompt(a.system_prompt), Topic.SYSTEM_PROMPT),
    ),
    Row(
        "usage",
        "r",
        "tokens, requests, context and cost of turn and agent",
        _agent_text(_render_agent_usage, Topic.USAGE),
    ),
)


def agent_directory(agent: Agent) -> Directory:
    """Make the directory of one agent."""
    return FixedDirectory(lambda: {row.name: row.node(agent) for row in AGENT_FILES}, agent.created)
