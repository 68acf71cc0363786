"""An agent's turns: what is shown while they run, how each way of ending ends, and what the model is sent next."""

import errno
import logging

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from ollie_fuse.agent import Agent, run_agent_lines
from ollie_fuse.config import BackendConfig
from ollie_fuse.errors import Invalid, NotFound, OllieError, RemoteFailed, Stopped, errno_of
from ollie_fuse.providers import ModelInfo, Overflow, StopReason, Transient
from tests.agent.scripted_provider import Engine, error_of, is_over, open_engine, text_of


def chat_of(agent: Agent) -> str:
    return agent.chat.text.peek(0, 1 << 20).decode()


# A turn that goes well


async def test_answer_streams_and_ends(engine: Engine) -> None:
    """The reply holds each piece as it comes, ends with a newline, and then `answer` gets the whole of it."""
    exchange = await engine.prompt("hi\n")
    call = await engine.next_call()
    assert call.said == [("user", "hi")]
    call.say("Hel")
    await wait_all_tasks_blocked()
    assert (text_of(exchange), len(exchange.answer), engine.agent.state) == ("Hel", 0, "thinking")
    call.say("lo")
    call.finish()
    await wait_all_tasks_blocked()
    assert (text_of(exchange), exchange.answer.peek(0, 99), engine.agent.state) == ("Hello\n", b"Hello\n", "idle")
    assert is_over(exchange)
    assert error_of(exchange) is None
    assert engine.agent.error == ""


async def test_history_grows_by_turns(engine: Engine) -> None:
    """Each call carries every prompt and answer before it, in order, byte for byte."""
    await engine.converse("one\n\n", " first \n")
    await engine.converse("two", "second")
    await engine.prompt("three")
    call = await engine.next_call()
    assert call.said == [
        ("user", "one\n"),
        ("assistant", " first \n"),
        ("user", "two"),
        ("assistant", "second"),
        ("user", "three"),
    ]


async def test_reasoning_is_shown_and_not_kept(engine: Engine) -> None:
    """What the model thought stands in chat between its marks, and neither in the reply nor in the next call."""
    exchange = await engine.prompt("hi")
    call = await engine.next_call()
    for piece in ("Let me", " see."):
        call.think(piece)
    call.say("Yes")
    call.say(".")
    call.think("hm\n")
    call.say("No.\n")
    call.finish()
    await wait_all_tasks_blocked()
    assert chat_of(engine.agent) == (
        "user: hi\n<think>\nLet me see.\n</think>\nassistant: Yes.\n<think>\nhm\n</think>\nassistant: No.\n"
    )
    assert text_of(exchange) == "Yes.No.\n"
    await engine.prompt("again")
    assert (await engine.next_call()).said[1] == ("assistant", "Yes.No.\n")


async def test_command_in_a_turn_stands_between_pieces(engine: Engine) -> None:
    """What a command says while the model speaks follows the message in chat, and cuts neither it nor the reply."""
    exchange = await engine.prompt("hi")
    call = await engine.next_call()
    call.say("before")
    await wait_all_tasks_blocked()
    await run_agent_lines(engine.agent, "model m2\n")
    call.say("after")
    call.finish()
    await wait_all_tasks_blocked()
    assert chat_of(engine.agent) == "user: hi\nassistant: beforeafter\n:: model m2\n"
    assert text_of(exchange) == "beforeafter\n"


async def test_longest_answer_is_said_to_be_cut(engine: Engine) -> None:
    """An answer that reached its longest length is a good one, and chat says that it was cut."""
    exchange = await engine.prompt("hi")
    call = await engine.next_call()
    call.say("long")
    call.finish(StopReason.LENGTH)
    await wait_all_tasks_blocked()
    assert error_of(exchange) is None
    assert "maxTokens" in chat_of(engine.agent).splitlines()[-1]


# Turns that fail


@pytest.mark.parametrize("error", [Overflow("too long"), Transient("gone"), RemoteFailed("no")])
async def test_failure_before_the_first_word_leaves_no_trace(engine: Engine, error: RemoteFailed) -> None:
    """A prompt that failed unanswered is not sent again with the next, so that it cannot spoil it."""
    await engine.converse("one", "first")
    exchange = await engine.prompt("bad")
    (await engine.next_call()).fail(error)
    await wait_all_tasks_blocked()
    assert engine.agent.state == "idle"
    assert engine.agent.error == str(error)
    told = error_of(exchange)
    assert told is not None
    assert (errno_of(told), str(told)) == (errno.EREMOTEIO, str(error))
    await engine.prompt("good")
    assert (await engine.next_call()).said == [("user", "one"), ("assistant", "first"), ("user", "good")]


async def test_answer_that_broke_off_is_kept(engine: Engine) -> None:
    """What was said before a failure stays in reply and history; `answer` has no last message to give."""
    exchange = await engine.prompt("hi")
    call = await engine.next_call()
    call.say("half")
    call.fail(Transient("cut"))
    await wait_all_tasks_blocked()
    assert text_of(exchange) == "half\n"
    assert isinstance(error_of(exchange), RemoteFailed)
    assert len(exchange.answer) == 0
    assert chat_of(engine.agent) == "user: hi\nassistant: half\nerror: cut\n"
    await engine.prompt("go on")
    assert (await engine.next_call()).said == [("user", "hi"), ("assistant", "half"), ("user", "go on")]


@pytest.mark.parametrize("said", [[], [" \n"], ["", "\t"]])
async def test_empty_answer_is_a_failure(engine: Engine, said: list[str]) -> None:
    """An answer of nothing but spaces fails the turn and never becomes a message."""
    exchange = await engine.prompt("hi")
    call = await engine.next_call()
    for text in said:
        call.say(text)
    call.think("hm")
    call.finish()
    await wait_all_tasks_blocked()
    assert isinstance(error_of(exchange), RemoteFailed)
    assert chat_of(engine.agent).endswith("error: the model gave an empty answer\n")
    await engine.prompt("again")
    assert (await engine.next_call()).said == [("user", "again")]


async def test_agent_without_a_model_says_so_until_there_is_one() -> None:
    """Where nobody names a model the turn fails with a sentence, leaves no trace, and asks the server each time."""
    nameless = BackendConfig.model_validate({"section": "nameless"})
    async with open_engine(nameless) as engine:
        exchange = await engine.prompt("hi")
        await wait_all_tasks_blocked()
        assert isinstance(error_of(exchange), Invalid)
        assert engine.calls == []
        engine.provider.models = (ModelInfo(name="m"),)
        await engine.prompt("again")
        call = await engine.next_call()
        assert (call.request.model, call.said) == ("m", [("user", "again")])


@pytest.mark.logs_warnings
async def test_crash_ends_only_its_turn(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """An exception that nobody foresaw is logged with its traceback and ends its turn alone, with EIO."""
    exchange = await engine.prompt("hi")
    queued = await engine.prompt("next")
    (await engine.next_call()).fail(ZeroDivisionError("secret detail"))
    call = await engine.next_call()
    told = error_of(exchange)
    assert told is not None
    assert errno_of(told) == errno.EIO
    assert "internal error (ZeroDivisionError)" in engine.agent.error
    assert "secret detail" not in chat_of(engine.agent)
    records = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(records) == 1
    assert records[0].exc_info
    call.say("fine")
    call.finish()
    await wait_all_tasks_blocked()
    assert text_of(queued) == "fine\n"


@pytest.mark.logs_warnings
async def test_crashed_prompt_leaves_no_trace(engine: Engine) -> None:
    """A prompt whose turn crashed unanswered is not sent again, as with any other failure."""
    await engine.prompt("poison")
    (await engine.next_call()).fail(ValueError("cannot take this"))
    await wait_all_tasks_blocked()
    await engine.prompt("good")
    assert (await engine.next_call()).said == [("user", "good")]


async def test_failed_turn_lets_the_queue_go_on(engine: Engine) -> None:
    """A finished turn takes the next prompt, a failed one too, and the state never says idle between."""
    states: list[str] = []
    first, second = await engine.prompt("one"), await engine.prompt("two")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_watch, engine.agent, states)
        (await engine.next_call()).fail(Transient("no"))
        call = await engine.next_call()
        assert call.said == [("user", "two")]
        call.say("fine")
        call.finish()
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert states == ["idle"]
    assert is_over(first)
    assert text_of(second) == "fine\n"


async def _watch(agent: Agent, states: list[str]) -> None:
    while True:
        await agent.wait_state()
        states.append(agent.state)


# Stop


async def test_stop_before_the_first_checkpoint(engine: Engine) -> None:
    """A turn that is stopped in the moment it began ends as stopped, and no answer is waited for."""
    exchange = await engine.prompt("hi")
    assert await run_agent_lines(engine.agent, "stop") == "stopped\n"
    await wait_all_tasks_blocked()
    assert isinstance(error_of(exchange), Stopped)
    assert engine.agent.state == "idle"
    assert all(call.is_over for call in engine.calls)


async def test_stop_in_mid_stream_keeps_what_was_said(engine: Engine) -> None:
    """A stopped answer stands in reply, chat and history as far as it came, and the provider's stream is left."""
    exchange = await engine.prompt("hi")
    call = await engine.next_call()
    call.say("half")
    await wait_all_tasks_blocked()
    engine.agent.stop()
    call.say("never")
    await wait_all_tasks_blocked()
    assert call.is_over
    assert text_of(exchange) == "half\n"
    assert isinstance(error_of(exchange), Stopped)
    assert errno_of(Stopped("")) == errno.ECANCELED
    assert chat_of(engine.agent) == "user: hi\nassistant: half\nerror: the turn was stopped\n"
    await engine.prompt("on")
    assert (await engine.next_call()).said == [("user", "hi"), ("assistant", "half"), ("user", "on")]


async def test_stop_before_the_first_word_makes_no_empty_message(engine: Engine) -> None:
    """A prompt that was stopped unanswered stays, and no empty answer comes between it and the next."""
    await engine.prompt("hi")
    (await engine.next_call()).think("hm")
    await wait_all_tasks_blocked()
    engine.agent.stop()
    await wait_all_tasks_blocked()
    await engine.prompt("on")
    assert (await engine.next_call()).said == [("user", "hi"), ("user", "on")]


async def test_stop_when_idle_does_nothing(engine: Engine) -> None:
    """Stopping an idle agent says so and changes nothing."""
    await engine.converse("hi", "there")
    assert await run_agent_lines(engine.agent, "stop") == "no turn is running\n"
    assert text_of(await engine.converse("again", "fine")) == "fine\n"


async def test_stop_after_the_last_word(engine: Engine) -> None:
    """A stop that comes when the answer is whole ends in one of the two ways, with the text, and nothing hangs."""
    exchange = await engine.prompt("hi")
    call = await engine.next_call()
    call.say("all")
    call.finish()
    engine.agent.stop()
    await wait_all_tasks_blocked()
    assert is_over(exchange)
    assert text_of(exchange) in ("", "all\n")
    assert engine.agent.state == "idle"


# Kill


async def test_kill_when_idle(engine: Engine) -> None:
    """A killed agent refuses what comes, wakes who waits for its state, and its ended replies stay readable."""
    done = await engine.converse("hi", "there")
    agent = engine.agent
    states: list[str] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_watch, agent, states)
        await wait_all_tasks_blocked()
        engine.session.kill_agent("main")
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert states == ["idle"]
    assert text_of(done) == "there\n"
    with pytest.raises(NotFound, match="was killed"):
        await engine.prompt("late", agent)
    with pytest.raises(NotFound):
        engine.session.kill_agent("main")


async def test_kill_in_a_turn_ends_every_exchange(engine: Engine) -> None:
    """Running and queued prompts all end, each with an error that says why, and the provider's stream is left."""
    running, queued = await engine.prompt("one"), await engine.prompt("two")
    call = await engine.next_call()
    call.say("half")
    await wait_all_tasks_blocked()
    agent = engine.agent
    engine.session.kill_agent("main")
    assert isinstance(error_of(queued), NotFound)
    await wait_all_tasks_blocked()
    assert call.is_over
    assert text_of(running) == "half\n"
    assert isinstance(error_of(running), OllieError)
    assert is_over(running)
    assert agent.state == "idle"
    assert len(engine.calls) == 1


async def test_kill_before_the_actor_ever_ran() -> None:
    """An agent that is killed in the moment of its making ends, with the prompt it was given."""
    async with open_engine() as engine:
        exchange = await engine.prompt("hi")
        engine.session.kill_agent("main")
        await wait_all_tasks_blocked()
        assert is_over(exchange)
        assert isinstance(error_of(exchange), OllieError)


async def test_cancelled_daemon_ends_every_exchange() -> None:
    """When the nursery behind the actors is cancelled every reader gets an error, not silence."""
    exchanges = []
    with trio.CancelScope() as scope:
        async with open_engine() as engine:
            exchanges = [await engine.prompt("one"), await engine.prompt("two")]
            await engine.next_call()
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    for exchange in exchanges:
        assert is_over(exchange)
        assert isinstance(error_of(exchange), OllieError)
