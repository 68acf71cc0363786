"""A turn: from a prompt to its final answer. It knows nothing of queues; stopping it is cancelling its scope."""

from typing import TYPE_CHECKING, assert_never

import trio

from ollie_fuse.agent import prompt
from ollie_fuse.agent.topic import Topic
from ollie_fuse.agent.usage import Totals
from ollie_fuse.errors import Invalid, OllieError, RemoteFailed, Stopped
from ollie_fuse.providers import (
    Delta,
    Finished,
    Message,
    ReasoningDelta,
    Request,
    StopReason,
    TextDelta,
    Usage,
    UsageDelta,
)

if TYPE_CHECKING:
    from ollie_fuse.agent.agent import Agent
    from ollie_fuse.agent.backends import Backend
    from ollie_fuse.agent.exchange import Exchange


class Turn:
    """A running turn; ``scope`` is what ``stop`` cancels."""

    def __init__(self, agent: "Agent", exchange: "Exchange") -> None:
        self.agent = agent
        self.exchange = exchange
        self.scope = trio.CancelScope()
        self.text = ""
        """The answer so far."""
        self.is_answered = False
        """Whether the model said anything, so that the call is one that is paid for."""
        self.usage = Usage()
        self.stop_reason: StopReason | None = None

    def stop(self) -> None:
        """Cancel the turn; what was said so far stays."""
        self.scope.cancel()

    def take(self, delta: Delta) -> None:
        """Show and keep a piece of the answer."""
        chat = self.agent.chat
        self.is_answered = True
        match delta:
            case TextDelta(text=text):
                self.text += text
                self.exchange.reply.append(text)
                chat.assistant(text)
            case ReasoningDelta(text=text):
                chat.reasoning(text)
            case UsageDelta(usage=usage):
                self.usage = usage
            case Finished(reason=reason):
                self.stop_reason = reason
            case _:
                assert_never(delta)

    def close(self, error: OllieError | None) -> None:
        """Keep what was said and end the reply.

        A prompt that failed before the model said anything leaves the history, so that one the model cannot take
        (too long, refused) does not spoil every later one.
        """
        history = self.agent.history
        if self.text.strip():
            history.append(Message(role="assistant", text=self.text))
        elif error is not None and not isinstance(error, Stopped) and history and history[-1].role == "user":
            history.pop()
        self.agent.chat.end_block()
        if error is not None:
            self.agent.chat.error(str(error))
        self.exchange.finish(self.text, error)


async def run_turn(turn: Turn) -> None:
    """Ask the model and stream its answer; raises the provider's errors, Invalid for a setting that cannot be used."""
    agent = turn.agent
    agent.chat.user(turn.exchange.text)
    agent.history.append(Message(role="user", text=turn.exchange.text))
    agent.turn_totals = Totals()
    agent.touch(Topic.USAGE)
    backend = agent.backend
    request = await _request_of(turn, backend)
    backend.users += 1
    try:
        async with backend.provider.open_stream(request) as deltas:
            async for delta in deltas:
                turn.take(delta)
    except RemoteFailed as exc:
        backend.note_trouble(str(exc))
        raise
    finally:
        backend.users -= 1
        _account(turn, backend, request.model)
    backend.note_trouble("")
    if not turn.text.strip():
        raise RemoteFailed("the model gave an empty answer")
    if turn.stop_reason is StopReason.REFUSED:
        raise RemoteFailed("the provider's filter cut the answer")
    if turn.stop_reason is StopReason.LENGTH:
        agent.chat.end_block()
        agent.chat.info("the answer was cut at its longest length (maxTokens)")


async def _request_of(turn: Turn, backend: "Backend") -> Request:
    agent = turn.agent
    if agent.model is None:
        await backend.refresh()  # the server was not up when the lists were asked for
    model = agent.model
    if model is None:
        raise Invalid(f"backend {backend.name} names no model; set one with `model NAME` in ctl")
    agent.set_system_prompt(prompt.assemble(agent.session.cwd))
    system = Message(role="system", text=prompt.text_of(agent.system_prompt))
    return Request(model=model, messages=(system, *agent.history), sampling=agent.settings.sampling)


def _account(turn: Turn, backend: "Backend", model: str) -> None:
    """Count a call that was answered, also one that broke off: what it did not report makes the sums incomplete."""
    agent, usage = turn.agent, turn.usage
    if not turn.is_answered:
        return
    agent.totals = agent.totals.plus(usage, backend.price)
    agent.turn_totals = agent.turn_totals.plus(usage, backend.price)
    if usage.input_tokens is not None:
        agent.context_tokens = usage.input_tokens + (usage.output_tokens or 0)
    agent.session.backends.account(backend.name, model, usage, backend.price)
    agent.touch(Topic.USAGE)
