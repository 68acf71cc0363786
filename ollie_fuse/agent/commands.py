"""The commands of an agent, by ``ctl`` and by a prompt that begins with a slash, and those of its queue."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ollie_fuse.agent.settings import DEFAULT, SAMPLING, parse_sampling, render_settings
from ollie_fuse.agent.spec import check_name
from ollie_fuse.agent.verbs import Command, Verb, parse_line, run_lines, table_of
from ollie_fuse.errors import Busy, Invalid, OllieError

_NUMBER = re.compile(r"[0-9]{1,18}")

if TYPE_CHECKING:
    from ollie_fuse.agent.agent import Agent
    from ollie_fuse.agent.exchange import Exchange


async def _stop(agent: "Agent", _: Sequence[str]) -> str:
    return "stopped\n" if agent.stop() else "no turn is running\n"


async def _resume(agent: "Agent", _: Sequence[str]) -> str:
    agent.resume()
    return ""


async def _backend(agent: "Agent", arguments: Sequence[str]) -> str:
    backend = agent.session.backends.get(arguments[0])
    agent.set_settings(replace(agent.settings, backend=backend.name, model=None))
    return ""


async def _model(agent: "Agent", arguments: Sequence[str]) -> str:
    model = None if arguments[0] == DEFAULT else agent.backend.check_model(arguments[0])
    agent.set_settings(replace(agent.settings, model=model))
    return ""


async def _cwd(agent: "Agent", arguments: Sequence[str]) -> str:
    await agent.session.set_cwd(arguments[0])
    return ""


async def _clear(agent: "Agent", _: Sequence[str]) -> str:
    agent.clear()
    return "the history is empty\n"


async def _kill(agent: "Agent", _: Sequence[str]) -> str:
    agent.session.check_member(agent)
    await agent.session.stage.remove(agent.place, lambda: agent.session.kill_agent(agent.name))
    return ""


async def _rename(agent: "Agent", arguments: Sequence[str]) -> str:
    agent.session.check_member(agent)
    old, new = agent.name, check_name(arguments[0])
    if old != new:
        await agent.session.stage.move(agent.place, new, lambda: agent.session.rename_agent(old, new))
    return ""


def _sampling_verb(name: str, help_text: str) -> "Verb[Agent]":
    async def run(agent: "Agent", arguments: Sequence[str]) -> str:
        sampling = parse_sampling(name, arguments[0], agent.settings.sampling)
        agent.set_settings(replace(agent.settings, sampling=sampling))
        return ""

    return Verb(name=name, arguments="VALUE", help=help_text, run=run, is_allowed_in_turn=False)


AGENT_VERBS: "dict[str, Verb[Agent]]" = table_of(
    Verb(name="stop", help="cancel the turn, keep what it did, hold the queue", run=_stop),
    Verb(name="resume", help="let a held queue go on", run=_resume),
    Verb(
        name="backend",
        arguments="NAME",
        help="use another backend, with its default model",
        run=_backend,
        is_allowed_in_turn=False,
    ),
    Verb(name="model", arguments="NAME", help="use another model of this backend, or its default", run=_model),
    *(_sampling_verb(name, f"{parameter.help}, or default") for name, parameter in SAMPLING.items()),
    Verb(
        name="cwd",
        arguments="PATH",
        help="the session's working directory",
        run=_cwd,
        is_allowed_in_prompt=False,
    ),
    Verb(
        name="clear",
        help="begin an empty history; chat keeps the old one",
        run=_clear,
        is_allowed_in_turn=False,
    ),
    Verb(name="kill", help="end this agent", run=_kill, is_allowed_in_prompt=False),
    Verb(name="rename", arguments="NAME", help="give this agent another name", run=_rename),
    aliases={"rn": "rename"},
)


def render_ctl(agent: "Agent") -> str:
    """Every setting as the line that sets it."""
    return render_settings(agent.settings) + f"cwd {agent.session.quoted_cwd}\n"


async def run_agent_lines(agent: "Agent", text: str) -> str:
    """Carry out the lines of a ``ctl`` in order and return their answers; when one fails no setting has changed."""
    before = agent.settings
    notes: list[str] = []

    async def run(command: "Command[Agent]") -> str:
        answer = await _carry_out(agent, command)
        notes.append(_note(command, answer))
        return answer

    def undo() -> None:
        notes.clear()
        if agent.settings != before:
            agent.set_settings(before)

    try:
        answer = await run_lines(text, AGENT_VERBS, run, undo=undo)
    finally:
        for note in notes:
            agent.chat.info(note)
    agent.note_command("")
    return answer


async def _carry_out(agent: "Agent", command: "Command[Agent]") -> str:
    if agent.is_running and not command.verb.is_allowed_in_turn:
        raise Busy(f"{command.verb.name} has to wait until the turn is over, or `stop` it")
    return await command.verb.run(agent, command.arguments)


def _note(command: "Command[Agent]", answer: str) -> str:
    """Return what chat says of a command."""
    line = " ".join((command.verb.name, *command.arguments))
    return line if not answer else f"{line}: {answer}"


def is_command(text: str) -> bool:
    """Whether a prompt is meant as a command: one line, a slash or bang first, and no path."""
    if "\n" in text or not text.startswith(("/", "!")):
        return False
    return text.startswith("!") or "/" not in text[1:].partition(" ")[0]


async def run_prompt_command(agent: "Agent", exchange: "Exchange") -> None:
    """Carry out a prompt that is a command, at once, and let its reply be the answer or the refusal."""
    try:
        command = parse_line(_allowed_in_prompt(exchange.text), AGENT_VERBS)
        if not command.verb.is_allowed_in_prompt:
            raise Invalid(f"{command.verb.name} works only through ctl, so that piped text cannot use it")
        answer = await _carry_out(agent, command)
    except OllieError as exc:
        hint = "; a leading space sends the line as it is" if isinstance(exc, Invalid) else ""
        agent.finish_exchange(exchange, error=type(exc)(f"{exc}{hint}"))
    else:
        agent.chat.info(_note(command, answer))
        agent.finish_exchange(exchange, answer)


def _allowed_in_prompt(text: str) -> str:
    if text.startswith("!"):
        raise Invalid("there is no tool server to run shell commands yet")
    return text


async def _drop(agent: "Agent", arguments: Sequence[str]) -> str:
    if not _NUMBER.fullmatch(arguments[0]):
        raise Invalid(f"{arguments[0][:64]!r} is not the number of a prompt")
    agent.drop(int(arguments[0]))
    return ""


async def _clear_queue(agent: "Agent", _: Sequence[str]) -> str:
    for exchange in list(agent.queue):
        agent.drop(exchange.number)
    return ""


QUEUE_VERBS: "dict[str, Verb[Agent]]" = table_of(
    Verb(name="drop", arguments="N", help="take prompt N out", run=_drop),
    Verb(name="clear", help="take all waiting prompts out", run=_clear_queue),
)


def render_queue(agent: "Agent") -> str:
    """The waiting prompts: number and first line."""
    return "".join(f"{exchange.number}\t{exchange.first_line}\n" for exchange in agent.queue)


async def run_queue_lines(agent: "Agent", text: str) -> str:
    """Carry out the lines written to ``queue``."""
    return await run_lines(text, QUEUE_VERBS, lambda command: command.verb.run(agent, command.arguments))
