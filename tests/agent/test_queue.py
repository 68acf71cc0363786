"""Prompts on their way: drafts, the queue, hold and resume, and which reply is whose."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from ollie_fuse.agent import Draft, Exchange, render_queue, run_agent_lines, run_queue_lines
from ollie_fuse.agent.exchange import PROMPT_LIMIT_BYTES
from ollie_fuse.errors import Invalid, NotFound, OllieError, Stopped, TooLarge
from ollie_fuse.stamp import Stamp
from ollie_fuse.tree.talks import PromptTalk
from tests.agent.scripted_provider import Engine, error_of, is_over, text_of


async def answer_next(engine: Engine, text: str) -> None:
    call = await engine.next_call()
    call.say(text)
    call.finish()
    await wait_all_tasks_blocked()


# Drafts


@pytest.mark.parametrize("cut", range(len("né 😀\n".encode()) + 1))
async def test_characters_may_be_cut_between_writes(engine: Engine, cut: int) -> None:
    """A prompt is the bytes of all its writes, wherever they are cut."""
    data = "né 😀\n".encode()
    talk = PromptTalk(engine.agent)
    for piece in (data[:cut], data[cut:]):
        await talk.write(piece)
    await talk.release()
    assert (await engine.next_call()).said == [("user", "né 😀")]


@pytest.mark.parametrize("data", [b"\n", b" \t\n\n", b"\xc2\xa0\n"])
async def test_empty_prompt_is_refused(engine: Engine, data: bytes) -> None:
    """A prompt of nothing but spaces reaches no model; its reply ends with an error that `error` tells too."""
    exchange = await engine.prompt(data)
    assert isinstance(error_of(exchange), Invalid)
    assert "empty" in engine.agent.error
    assert (engine.agent.state, engine.calls) == ("idle", [])


async def test_nothing_written_is_no_prompt(engine: Engine) -> None:
    """Opening and closing, with empty writes and flushes between, leaves no trace."""
    talk = PromptTalk(engine.agent)
    await talk.write(b"")
    for _ in range(3):
        await talk.flush()
    assert engine.agent.state == "idle"
    await talk.release()
    assert (engine.agent.newest, engine.agent.seq, engine.agent.error) == (None, 0, "")


@pytest.mark.parametrize(
    ("pieces", "error"),
    [
        ([b"x" * PROMPT_LIMIT_BYTES, b"y"], TooLarge),
        ([b"fine ", b"caf\xe9 ", b"rest"], Invalid),
    ],
)
async def test_refused_draft_is_refused_whole(engine: Engine, pieces: list[bytes], error: type[OllieError]) -> None:
    """Once a piece was refused so is all that follows, and no half of the prompt is sent."""
    talk = PromptTalk(engine.agent)
    outcomes: list[type[OllieError] | None] = []
    for piece in [*pieces, b"more"]:
        try:
            await talk.write(piece)
            outcomes.append(None)
        except OllieError as exc:
            outcomes.append(type(exc))
    assert outcomes[0] is None
    assert outcomes[-2:] == [error, error]
    await talk.flush()
    assert engine.agent.state == "receiving"
    await talk.release()
    await wait_all_tasks_blocked()
    assert engine.agent.newest is not None
    assert isinstance(error_of(engine.agent.newest), error)
    assert (engine.agent.state, engine.calls) == ("idle", [])


def test_draft_at_its_limit_is_taken() -> None:
    """A prompt of exactly the limit is one."""
    draft = Draft()
    draft.write(b"x" * (PROMPT_LIMIT_BYTES - 1))
    draft.write(b"\n")
    assert len(draft.text()) == PROMPT_LIMIT_BYTES - 1


async def test_draft_that_ends_inside_a_character(engine: Engine) -> None:
    """A prompt that ends in half a character is refused when it is taken."""
    exchange = await engine.prompt(b"caf\xc3")
    assert isinstance(error_of(exchange), Invalid)
    assert "UTF-8" in engine.agent.error


async def test_one_open_file_makes_one_prompt_after_another(engine: Engine) -> None:
    """A read takes what was written; what is written after it is the next prompt, each with its own reply."""
    talk = PromptTalk(engine.agent)
    replies = []
    for text in ("one", "two"):
        await talk.write(text.encode())
        await talk.flush()
        replies.append(await talk.answer())
        await answer_next(engine, f"to {text}")
    await talk.release()
    assert [reply.peek(0, 99) for reply in replies] == [b"to one\n", b"to two\n"]
    assert len(engine.calls) == 2


# States


async def test_receiving_from_the_flush_to_the_turn(engine: Engine) -> None:
    """From a flush with text on the state is never idle until the turn is over, and `reply` waits for that prompt."""
    await engine.converse("before", "old")
    talk, agent = PromptTalk(engine.agent), engine.agent
    await talk.write(b"one")
    assert agent.state == "idle"
    await talk.flush()
    assert (agent.state, agent.newest is not None and is_over(agent.newest)) == ("receiving", False)
    newest = agent.newest
    await talk.write(b" and two")
    await talk.flush()
    await talk.release()
    assert (agent.state, agent.newest) == ("thinking", newest)
    assert (await engine.next_call()).said[-1] == ("user", "one and two")


async def test_two_receivers(engine: Engine) -> None:
    """The agent is receiving until the last prompt being written is taken; they run in the order of their closes."""
    one, two = PromptTalk(engine.agent), PromptTalk(engine.agent)
    for talk, text in ((one, b"one"), (two, b"two")):
        await talk.write(text)
        await talk.flush()
    await two.release()
    await answer_next(engine, "to two")
    assert engine.agent.state == "receiving"
    await one.release()
    assert (await engine.next_call()).said[-1] == ("user", "one")


async def test_refused_prompt_ends_receiving(engine: Engine) -> None:
    """An empty prompt that was flushed brings the state back to idle when it is refused."""
    talk = PromptTalk(engine.agent)
    await talk.write(b"\n")
    await talk.flush()
    assert engine.agent.state == "receiving"
    await talk.release()
    assert engine.agent.state == "idle"


# Queue


async def test_queue_keeps_the_order(engine: Engine) -> None:
    """Prompts are answered in the order they came, each by its own turn, and `queue` lists those that wait."""
    exchanges = [await engine.prompt(f"p{n}\nmore\n") for n in range(1, 6)]
    assert render_queue(engine.agent) == "2\tp2\n3\tp3\n4\tp4\n5\tp5\n"
    for number in range(1, 6):
        assert [is_over(e) for e in exchanges] == [n < number for n in range(1, 6)]
        await answer_next(engine, f"to p{number}")
    assert [text_of(e) for e in exchanges] == [f"to p{n}\n" for n in range(1, 6)]
    assert (engine.agent.turns, render_queue(engine.agent)) == (5, "")


async def test_drop_takes_one_out(engine: Engine) -> None:
    """A dropped prompt ends as cancelled at once and is never sent; the others keep their place."""
    _, two, three = [await engine.prompt(f"p{n}") for n in (1, 2, 3)]
    await run_queue_lines(engine.agent, "drop 2\n")
    assert isinstance(error_of(two), Stopped)
    assert not is_over(three)
    await answer_next(engine, "to p1")
    assert (await engine.next_call()).said[-1] == ("user", "p3")
    for line in ("drop 2", "drop 1", "drop 99", "drop x", "drop -1", "drop"):
        with pytest.raises(Invalid):
            await run_queue_lines(engine.agent, line)


async def test_drop_of_an_absurd_number(engine: Engine) -> None:
    """A number of any length is refused with a sentence."""
    with pytest.raises(Invalid):
        await run_queue_lines(engine.agent, f"drop {'9' * 5000}\n")


async def test_queue_clear(engine: Engine) -> None:
    """`clear` ends all that waits and leaves the running turn alone."""
    first, *waiting = [await engine.prompt(f"p{n}") for n in range(4)]
    await run_queue_lines(engine.agent, "clear")
    assert all(isinstance(error_of(e), Stopped) for e in waiting)
    await answer_next(engine, "fine")
    assert text_of(first) == "fine\n"
    assert engine.agent.state == "idle"


async def test_stop_holds_the_queue(engine: Engine) -> None:
    """What waits behind a stopped turn is told so at once and stays in the queue, and the agent is idle."""
    _, two, three = [await engine.prompt(f"p{n}") for n in (1, 2, 3)]
    await engine.next_call()
    engine.agent.stop()
    for exchange in (two, three):
        assert isinstance(error_of(exchange), Stopped)
    await wait_all_tasks_blocked()
    assert (engine.agent.state, render_queue(engine.agent)) == ("idle", "2\tp2\n3\tp3\n")
    assert len(engine.calls) == 1


async def test_resume_lets_a_held_queue_go_on(engine: Engine) -> None:
    """After `resume` the held prompts run in order and their replies, opened then, are whole."""
    _, two, three = [await engine.prompt(f"p{n}") for n in (1, 2, 3)]
    engine.agent.stop()
    await wait_all_tasks_blocked()
    await run_agent_lines(engine.agent, "resume")
    assert engine.agent.state == "thinking"
    assert not is_over(three)
    await answer_next(engine, "to p2")
    await answer_next(engine, "to p3")
    assert (text_of(two), text_of(three)) == ("to p2\n", "to p3\n")


async def test_next_prompt_lets_a_held_queue_go_on(engine: Engine) -> None:
    """The next prompt queues behind the held ones and sets all of them going."""
    _, two = [await engine.prompt(f"p{n}") for n in (1, 2)]
    engine.agent.stop()
    await wait_all_tasks_blocked()
    three = await engine.prompt("p3")
    await answer_next(engine, "to p2")
    await answer_next(engine, "to p3")
    assert (text_of(two), text_of(three)) == ("to p2\n", "to p3\n")


async def test_resume_before_the_stopped_turn_has_unwound(engine: Engine) -> None:
    """`stop` and `resume` in one breath end the running turn and go on with the next prompt."""
    one, two = [await engine.prompt(f"p{n}") for n in (1, 2)]
    await engine.next_call()
    await run_agent_lines(engine.agent, "stop\nresume\n")
    await answer_next(engine, "to p2")
    assert isinstance(error_of(one), Stopped)
    assert text_of(two) == "to p2\n"


async def test_second_stop_is_harmless(engine: Engine) -> None:
    """A second stop, before or after the turn has unwound, holds what is held and loses nothing."""
    _, two = [await engine.prompt(f"p{n}") for n in (1, 2)]
    engine.agent.stop()
    engine.agent.stop()
    await wait_all_tasks_blocked()
    assert not engine.agent.stop()
    await run_agent_lines(engine.agent, "resume")
    await answer_next(engine, "to p2")
    assert text_of(two) == "to p2\n"


async def test_held_prompts_can_be_dropped_and_killed(engine: Engine) -> None:
    """A held prompt that is dropped does not come back, and killing an agent with a held queue ends it."""
    await engine.prompt("p1")
    await engine.prompt("p2")
    three = await engine.prompt("p3")
    engine.agent.stop()
    await wait_all_tasks_blocked()
    await run_queue_lines(engine.agent, "drop 2")
    await run_agent_lines(engine.agent, "resume")
    assert (await engine.next_call()).said[-1] == ("user", "p3")
    engine.agent.stop()
    engine.session.kill_agent("main")
    await wait_all_tasks_blocked()
    assert isinstance(error_of(three), OllieError)


async def test_stop_while_receiving(engine: Engine) -> None:
    """A prompt that was closed but not taken when `stop` came does not run, and its reply ends as stopped."""
    talk = PromptTalk(engine.agent)
    await talk.write(b"one")
    await talk.flush()
    assert await run_agent_lines(engine.agent, "stop") == "stopped\n"
    await talk.release()
    await wait_all_tasks_blocked()
    newest = engine.agent.newest
    assert newest is not None
    assert isinstance(error_of(newest), Stopped)
    assert (engine.agent.state, engine.calls) == ("idle", [])


async def test_writing_on_after_a_stop_is_a_prompt_again(engine: Engine) -> None:
    """Who goes on writing after a stop means it: the prompt runs, whole."""
    talk = PromptTalk(engine.agent)
    await talk.write(b"one")
    await talk.flush()
    engine.agent.stop()
    await talk.write(b" two")
    await talk.release()
    assert (await engine.next_call()).said == [("user", "one two")]


# Whose reply


async def test_reply_belongs_to_the_newest_prompt(engine: Engine) -> None:
    """The newest prompt is the one accepted last, whatever runs; commands and refused prompts are prompts too."""
    one = await engine.prompt("one")
    assert engine.agent.newest is one
    for text in ("two", "/temprature 1", "\n", "/model m"):
        exchange = await engine.prompt(text)
        assert engine.agent.newest is exchange
        assert exchange.number == one.number + 1
        one = exchange


async def test_command_prompt_answers_at_once(engine: Engine) -> None:
    """A command in a prompt is carried out while a turn runs, ahead of the queue, and its answer is its reply."""
    running, waiting = await engine.prompt("one"), await engine.prompt("two")
    stopped = await engine.prompt("/stop\n")
    assert (text_of(stopped), error_of(stopped)) == ("stopped\n", None)
    assert isinstance(error_of(waiting), Stopped)
    await wait_all_tasks_blocked()
    assert isinstance(error_of(running), Stopped)
    busy_again = await engine.prompt("/resume")
    assert (text_of(busy_again), is_over(busy_again)) == ("", True)


@pytest.mark.parametrize("text", ["/nosuch", "/", "/temperature", "!ls", "/kill", "/cwd /", "/model nothere x"])
async def test_refused_command_prompt(engine: Engine, text: str) -> None:
    """A command prompt that is refused reaches no model, and says that a leading space sends it."""
    exchange = await engine.prompt(text)
    await wait_all_tasks_blocked()
    assert isinstance(error_of(exchange), Invalid)
    assert "a leading space" in engine.agent.error
    assert (engine.calls, engine.agent.state, engine.agent.is_alive) == ([], "idle", True)


@pytest.mark.parametrize("text", [" /model x", "/etc/passwd is what?", "// c", "/model x\nmore", "1/2", "/a/b"])
async def test_text_with_a_slash_is_a_prompt(engine: Engine, text: str) -> None:
    """A path, a second line or a leading space makes a prompt of what begins like a command."""
    await engine.prompt(text)
    assert (await engine.next_call()).said == [("user", text)]


async def test_kill_ends_what_is_received(engine: Engine) -> None:
    """A prompt half written when its agent is killed ends then; later writes are refused, its release is quiet."""
    agent, talk = engine.agent, PromptTalk(engine.agent)
    await talk.write(b"one")
    await talk.flush()
    newest = agent.newest
    assert newest is not None
    engine.session.kill_agent("main")
    assert isinstance(error_of(newest), NotFound)
    assert agent.state == "idle"
    with pytest.raises(NotFound):
        await talk.write(b"two")
    await talk.flush()
    await talk.release()
    await wait_all_tasks_blocked()
    assert (agent.state, engine.calls) == ("idle", [])


async def test_generate_is_one_turn_of_nobodys(engine: Engine) -> None:
    """A one-shot answer streams like a reply, is in no session and no event, and ends when its file is closed."""
    before = engine.sessions.events.seq
    generation = engine.sessions.generate("model=m2 backend=unpriced\n\nhi\n", None)
    call = await engine.next_call()
    assert (call.request.model, call.said) == ("m2", [("user", "hi")])
    call.say("there")
    await wait_all_tasks_blocked()
    generation.close()
    await wait_all_tasks_blocked()
    assert call.is_over
    assert text_of(generation.exchange) == "there\n"
    assert isinstance(error_of(generation.exchange), OllieError)
    assert (engine.sessions.events.seq, list(engine.sessions.by_name)) == (before, ["s"])


@pytest.mark.parametrize(
    ("request_text", "said"),
    [
        ("hi", "hi"),
        ("\n\nhi\n", "\n\nhi"),
        ("a b\n\nc", "a b\n\nc"),
        ("x=1 is what?\n\nsay", "x=1 is what?\n\nsay"),
        ("model=m2\nbackend=unpriced\n\none\n\ntwo\n", "one\n\ntwo"),
    ],
)
async def test_generate_tells_keys_from_text(engine: Engine, request_text: str, said: str) -> None:
    """Only lines of nothing but key=value words before the first empty line are keys; all else is the prompt."""
    generation = engine.sessions.generate(request_text, None)
    assert (await engine.next_call()).said == [("user", said)]
    generation.close()


@pytest.mark.parametrize("request_text", ["", "\n", "modle=x\n\nhi", "model=m\n\n \n", "backend=nothere\n\nhi"])
async def test_generate_refuses(engine: Engine, request_text: str) -> None:
    """A wrong key or an empty prompt asks no model."""
    with pytest.raises(Invalid):
        engine.sessions.generate(request_text, None)


def test_exchange_ends_once() -> None:
    """The first end of an exchange stands, whatever comes after."""
    exchange = Exchange(1, Stamp(), Stamp())
    exchange.reply.append("text")
    exchange.finish("text")
    exchange.finish(error=Stopped("late"))
    assert (text_of(exchange), error_of(exchange), is_over(exchange)) == ("text\n", None, True)


async def test_readers_wake_when_a_queue_is_held(engine: Engine) -> None:
    """A reader that waits for a queued prompt's reply is told when the queue is held, not left waiting."""
    await engine.prompt("one")
    two = await engine.prompt("two")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(two.reply.wait)
        await wait_all_tasks_blocked()
        engine.agent.stop()
        with trio.fail_after(1):
            await wait_all_tasks_blocked()
            assert not nursery.child_tasks
