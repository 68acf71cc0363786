"""One agent: an actor with a history, a queue of prompts and at most one running turn.

Its state is changed synchronously, between checkpoints, so nobody ever sees it half changed: a prompt that was
taken is in the queue before the write or close that gave it returns, and the last word of a reply stands in it
before the state says idle. Only ``run`` waits.
"""

import logging
from collections import deque
from typing import TYPE_CHECKING

import trio

from ollie_fuse.agent import prompt
from ollie_fuse.agent.chat import Chat
from ollie_fuse.agent.exchange import Draft, Exchange
from ollie_fuse.agent.topic import Topic
from ollie_fuse.agent.turn import Turn, run_turn
from ollie_fuse.agent.usage import Totals
from ollie_fuse.errors import Invalid, NotFound, OllieError, Stopped, is_unexpected, sentence_of
from ollie_fuse.stamp import Stamp

if TYPE_CHECKING:
    from ollie_fuse.agent.backends import Backend
    from ollie_fuse.agent.session import Session
    from ollie_fuse.agent.settings import Settings
    from ollie_fuse.providers import Message

log = logging.getLogger(__name__)


class Agent:
    """One conversation with one model."""

    def __init__(self, name: str, session: "Session", settings: "Settings") -> None:
        self.name = name
        self.session = session
        self.settings = settings
        self.created = Stamp()
        lists = {
            Topic.STATE: session.rows_changed,
            Topic.SETTINGS: session.rows_changed,
            Topic.USAGE: session.usage_changed,
        }
        self.stamps = {topic: Stamp(lists[topic]) if topic in lists else Stamp() for topic in Topic}
        self.chat = Chat(self.stamps[Topic.CHAT])
        self.history: list[Message] = []
        self.totals = Totals()
        self.turn_totals = Totals()
        self.context_tokens: int | None = None
        """Input and output tokens of the last call: what the next one will at least carry."""
        self.turns = 0
        self._command_error = ""
        self.seq = 0
        """Counts the changes of ``state``."""
        self.state = "idle"
        self.system_prompt = prompt.assemble(session.cwd)
        self.newest: Exchange | None = None
        """The prompt that ``reply`` belongs to."""
        self.queue: deque[Exchange] = deque()
        self.is_held = False
        self.is_alive = True
        self._exchanges = 0
        self._receiving: set[Draft] = set()
        self._turn: Turn | None = None
        self._finished: Exchange | None = None
        """The last turn's."""
        self._scope = trio.CancelScope()
        self._wake = trio.lowlevel.ParkingLot()
        self._watchers = trio.lowlevel.ParkingLot()
        self._shown = (self.shown_model, self.window_tokens)
        session.backends.changed.watch(self._note_backends)

    # What others see

    @property
    def place(self) -> tuple[str, ...]:
        """Where it is, for ``Stage``."""
        return (*self.session.place, "agent", self.name)

    @property
    def backend(self) -> "Backend":
        """The chosen backend; raises Invalid when the configuration no longer has it."""
        return self.session.backends.get(self.settings.backend)

    @property
    def model(self) -> str | None:
        """The model that the next turn asks; None when neither the user nor the backend names one."""
        return self.settings.model or self.backend.default_model

    @property
    def shown_model(self) -> str:
        """The same for lists, where an unusable setting is no error."""
        try:
            return self.model or "-"
        except Invalid:
            return self.settings.model or "-"

    @property
    def window_tokens(self) -> int | None:
        """The context window of the chosen model, None when nobody told it."""
        try:
            return self.backend.window_of(self.model or "")
        except Invalid:
            return None

    @property
    def is_running(self) -> bool:
        """Whether a turn runs."""
        return self._turn is not None

    async def wait_state(self) -> None:
        """Wait for the next change of ``state``."""
        await self._watchers.park()

    def touch(self, topic: Topic) -> None:
        """Note that what *topic* stands for has changed."""
        self.stamps[topic].touch()

    def _note_backends(self) -> None:
        """Hear of a change of any backend: ``usage`` shows the model's window, lists the model."""
        shown = (self.shown_model, self.window_tokens)
        if shown != self._shown:
            self._shown = shown
            self.touch(Topic.USAGE)

    @property
    def error(self) -> str:
        """Why the last command was refused, or the newest prompt or the last turn failed; empty when none did."""
        told = (exchange.error for exchange in (self.newest, self._finished) if exchange is not None)
        return self._command_error or next(filter(None, told), "")

    def note_command(self, refusal: str) -> None:
        """Let ``error`` tell why a command or a write was refused; empty once one was carried out."""
        self._command_error = refusal
        self.touch(Topic.ERROR)

    def _refresh_state(self) -> None:
        at_rest = "receiving" if self._receiving else "idle"
        state = at_rest if self._turn is None else "thinking"
        if state != self.state:
            self.state = state
            self.seq += 1
            self.touch(Topic.STATE)
            self.session.events.add(
                "state", session=self.session.name, agent=self.name, state=state, state_seq=self.seq
            )
            self._watchers.unpark_all()

    # Prompts

    def write_draft(self, draft: Draft, data: bytes) -> None:
        """Append to *draft*; raises NotFound once the agent is gone, TooLarge or Invalid for the text."""
        self._check_alive()
        try:
            draft.write(data)
        except OllieError as exc:
            self.note_command(str(exc))
            raise

    def receive_draft(self, draft: Draft) -> None:
        """Know that *draft* will be a prompt: ``reply`` and the state wait for it from now on."""
        if self.is_alive and draft.exchange is None and not draft.is_empty:
            draft.exchange = self._new_exchange()
            self._receiving.add(draft)
            self._refresh_state()

    def take_draft(self, draft: Draft) -> Exchange:
        """Make *draft* an exchange, which fails at once when it cannot be a prompt.

        A prompt that can is in no queue yet: ``submit`` it, or carry it out if it is a command.
        """
        exchange = draft.exchange or self._new_exchange()
        self._receiving.discard(draft)
        try:
            self._check_alive()
            exchange.text = draft.text()
        except OllieError as exc:
            self.finish_exchange(exchange, error=exc)
        return exchange

    def submit(self, exchange: Exchange) -> None:
        """Queue *exchange*; a queue that was held goes on."""
        if not self.is_alive:
            exchange.finish(error=self._gone())
            return
        self.queue.append(exchange)
        self.touch(Topic.QUEUE)
        self.resume()

    def hold(self, exchange: Exchange) -> None:
        """Queue *exchange* and hold the queue: its prompt was stopped while its release was on the way."""
        if not self.is_alive:
            exchange.finish(error=self._gone())
            return
        self.queue.append(exchange)
        self.is_held = True
        exchange.finish(error=_held())
        self.touch(Topic.QUEUE)
        self.touch(Topic.ERROR)
        self._refresh_state()

    def finish_exchange(self, exchange: Exchange, answer: str = "", error: OllieError | None = None) -> None:
        """End an exchange outside a turn, as a command or a refused prompt does."""
        exchange.finish(answer, error)
        self.touch(Topic.ERROR)
        self._refresh_state()

    def _new_exchange(self) -> Exchange:
        self._exchanges += 1
        self.newest = Exchange(self._exchanges, self.stamps[Topic.REPLY], self.stamps[Topic.ANSWER])
        self.note_command("")
        self._touch_replies()
        return self.newest

    def _touch_replies(self) -> None:
        self.touch(Topic.REPLY)
        self.touch(Topic.ANSWER)

    def drop(self, number: int) -> None:
        """Take a waiting prompt out of the queue; raises Invalid when there is none of that number."""
        for exchange in self.queue:
            if exchange.number == number:
                self.queue.remove(exchange)
                exchange.finish(error=Stopped("this prompt was dropped from the queue"))
                if self.newest is exchange:
                    self.newest = self._newest_but_dropped()
                self.touch(Topic.QUEUE)
                self._touch_replies()
                self.touch(Topic.ERROR)
                return
        raise Invalid(f"no prompt {number} waits in the queue")

    def _newest_but_dropped(self) -> Exchange | None:
        if self.queue:
            return self.queue[-1]
        return self._turn.exchange if self._turn else self._finished

    # Commands

    def stop(self) -> bool:
        """Cancel the running turn and hold what waits behind it; tell whether there was one.

        A prompt that is being received, if nothing more is written to it, is held too: it may be closed already.
        """
        for draft in self._receiving:
            draft.is_stopped = True
        if self._turn is None:
            return bool(self._receiving)
        self.is_held = bool(self.queue)
        for exchange in self.queue:
            exchange.finish(error=_held())
        self.touch(Topic.QUEUE)
        self.touch(Topic.ERROR)
        self._turn.stop()
        return True

    def resume(self) -> None:
        """Let a held queue go on."""
        if self.is_held:
            self.is_held = False
            for exchange in self.queue:
                exchange.reopen()
            self.touch(Topic.QUEUE)
            self._touch_replies()
            self.touch(Topic.ERROR)
        self._begin_turn()
        self._refresh_state()

    def clear(self) -> None:
        """Begin an empty history; what was said stays in chat."""
        self.history.clear()
        self.context_tokens = None
        self.touch(Topic.USAGE)

    def set_settings(self, settings: "Settings") -> None:
        """Change settings, from the next turn on."""
        self.settings = settings
        self.touch(Topic.SETTINGS)
        self._note_backends()

    def set_system_prompt(self, parts: "tuple[prompt.Part, ...]") -> None:
        """Show what was assembled for the next call."""
        if parts != self.system_prompt:
            self.system_prompt = parts
            self.touch(Topic.SYSTEM_PROMPT)

    def kill(self) -> None:
        """End the actor; every exchange that is not over ends as stopped."""
        if not self.is_alive:
            return
        self.is_alive = False
        self.session.backends.changed.unwatch(self._note_backends)
        waiting = [*self.queue, *(draft.exchange for draft in self._receiving)]
        self.queue.clear()
        self.touch(Topic.QUEUE)
        self._receiving.clear()
        for exchange in waiting:
            if exchange is not None:
                exchange.finish(error=self._gone())
        self._scope.cancel()
        self._refresh_state()
        self._watchers.unpark_all()

    def _check_alive(self) -> None:
        if not self.is_alive:
            raise self._gone()

    def _gone(self) -> NotFound:
        return NotFound(f"agent {self.name} was killed")

    # The actor

    async def run(self) -> None:
        """Run one turn after the other until killed. One crashed turn ends no other."""
        with self._scope:
            try:
                while True:
                    while self._turn is None:
                        await self._wake.park()
                    await self._run_turn(self._turn)
            finally:
                self.kill()
                if self._turn is not None:
                    self._end_turn(self._turn, Stopped("the agent was killed"))

    def _begin_turn(self) -> None:
        """Take the next prompt off the queue, unless a turn runs or the queue is held."""
        if self._turn is None and self.queue and not self.is_held:
            self._turn = Turn(self, self.queue.popleft())
            self.turns += 1
            self.session.rows_changed.touch()
            self.touch(Topic.QUEUE)
            self._wake.unpark_all()

    async def _run_turn(self, turn: Turn) -> None:
        """Run *turn* to its end; nothing but cancellation leaves this, so that no turn can end the daemon."""
        try:
            error = await self._outcome(turn)
            self._end_turn(turn, error)
        except Exception:
            log.exception("turn %d of %s/%s cannot be ended", self.turns, self.session.name, self.name)
            turn.exchange.finish(error=OllieError("internal error; the daemon's log has the details"))
            self._forget_turn(turn)

    async def _outcome(self, turn: Turn) -> OllieError | None:
        """Run *turn* and return why it failed, None when it did not."""
        try:
            with turn.scope:
                await run_turn(turn)
                return None
        except Exception as exc:
            if is_unexpected(exc):
                log.exception("turn %d of %s/%s failed", self.turns, self.session.name, self.name)
            return exc if isinstance(exc, OllieError) else OllieError(sentence_of(exc))
        return Stopped("the turn was stopped")

    def _end_turn(self, turn: Turn, error: OllieError | None) -> None:
        """Put all that a turn leaves into its files, and only then change the state."""
        turn.close(error)
        self.session.events.add(
            "turn_finished",
            session=self.session.name,
            agent=self.name,
            turn=self.turns,
            error=turn.exchange.error or None,
        )
        self._forget_turn(turn)

    def _forget_turn(self, turn: Turn) -> None:
        self._turn = None
        self._finished = turn.exchange
        self.touch(Topic.ERROR)
        self._begin_turn()
        self._refresh_state()


def _held() -> Stopped:
    return Stopped("the queue is held; `resume` or the next prompt lets it go on")
