"""What was used: sums, money, and what is said of counts and prices that nobody told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from ollie_fuse.agent import Topic, Totals, run_agent_lines
from ollie_fuse.agent.usage import cost_of
from ollie_fuse.config import BackendConfig, Price
from ollie_fuse.errors import RemoteFailed
from ollie_fuse.providers import Usage
from tests.agent.scripted_provider import FREE, PRICED, UNPRICED, Engine, open_engine

PRICE = Price(input=2, output=10, cache=0.5)


@pytest.mark.parametrize(
    ("usage", "price", "cost"),
    [
        (Usage(input_tokens=10**6, output_tokens=10**5), PRICE, 3.0),
        (Usage(input_tokens=10**6, output_tokens=0, cached_tokens=10**6), PRICE, 0.5),
        (Usage(input_tokens=10**6, output_tokens=0, cached_tokens=10**6), Price(input=2, output=10), 2.0),
        (Usage(input_tokens=10, output_tokens=10), None, None),
        (Usage(output_tokens=10), PRICE, 1e-4),
        (Usage(input_tokens=10), PRICE, 2e-5),
        (Usage(), Price(input=0, output=0), 0.0),
    ],
)
def test_cost(usage: Usage, price: Price | None, cost: float | None) -> None:
    """Money is counts times prices; a missing count adds nothing, and without prices the cost is unknown, never 0."""
    assert cost_of(usage, price) == (cost if cost is None else pytest.approx(cost))


_COUNTS = st.one_of(st.none(), st.integers(0, 10**6))
_CALLS = st.lists(
    st.tuples(
        st.builds(Usage, input_tokens=_COUNTS, output_tokens=_COUNTS, cached_tokens=st.none()),
        st.sampled_from([None, PRICE, Price(input=0, output=0)]),
    ),
    max_size=8,
)


@given(calls=_CALLS, cut=st.integers(0, 8))
def test_sums_do_not_depend_on_how_they_are_summed(calls: list[tuple[Usage, Price | None]], cut: int) -> None:
    """The sum over calls is the sum over their parts; one gap makes it incomplete, one unknown price unknown."""
    parts = [Totals(), Totals()]
    whole = Totals()
    for number, (usage, price) in enumerate(calls):
        whole = whole.plus(usage, price)
        parts[number >= cut] = parts[number >= cut].plus(usage, price)
    joined = parts[0].plus_totals(parts[1])
    assert (joined.requests, joined.input_tokens, joined.output_tokens, joined.is_incomplete) == (
        len(calls),
        sum(usage.input_tokens or 0 for usage, _ in calls),
        sum(usage.output_tokens or 0 for usage, _ in calls),
        any(usage.input_tokens is None or usage.output_tokens is None for usage, _ in calls),
    )
    costs = [cost_of(usage, price) for usage, price in calls]
    known = [cost for cost in costs if cost is not None]
    expected = sum(known) if len(known) == len(costs) else None
    for total in (whole, joined):
        assert total.cost_usd == (expected if expected is None else pytest.approx(expected))


def test_rendering() -> None:
    """The sum is key=value lines with their prefix; an unknown cost says so."""
    told = Totals().plus(Usage(input_tokens=3, output_tokens=4, cached_tokens=1), None).render("x_")
    assert told == (
        "x_requests=1\nx_input_tokens=3\nx_output_tokens=4\nx_cached_tokens=1\nx_cost_usd=unavailable\nx_incomplete=no\n"
    )
    assert "x_cost_usd=0.000000\nx_incomplete=no\n" in Totals().render("x_")


async def use(engine: Engine, counts: tuple[int | None, int | None], *, ending: Exception | None = None) -> None:
    await engine.prompt("hi")
    call = await engine.next_call()
    call.say("x")
    call.count(1, 1)
    call.count(*counts)
    if ending:
        call.fail(ending)
    else:
        call.finish()
    await wait_all_tasks_blocked()


async def test_turn_agent_session_and_backend_agree() -> None:
    """A call's last counts enter the turn's sum, the agent's, the session's and the backend's, once each."""
    async with open_engine(PRICED) as engine:
        await use(engine, (10, 5))
        await use(engine, (20, 7))
        agent = engine.agent
        assert (agent.turn_totals.input_tokens, agent.turn_totals.requests) == (20, 1)
        assert (agent.totals.input_tokens, agent.totals.output_tokens, agent.totals.requests) == (30, 12, 2)
        assert agent.totals.cost_usd == pytest.approx((30 * 2 + 12 * 10) / 1e6)
        assert engine.session.totals == agent.totals == engine.sessions.backends.totals["priced", "m"]
        assert agent.context_tokens == 27
        assert not agent.totals.is_incomplete


@pytest.mark.parametrize(("config", "cost"), [(FREE, 0.0), (UNPRICED, None)])
async def test_free_and_unknown(config: BackendConfig, cost: float | None) -> None:
    """A free backend costs 0, one without a price an unknown sum."""
    async with open_engine(config) as engine:
        await use(engine, (10, 5))
        assert engine.agent.totals.cost_usd == cost


async def test_backends_keep_their_prices_apart() -> None:
    """A call is priced by the backend that made it, and one unknown price makes the agent's sum unknown, not theirs."""
    async with open_engine(PRICED, FREE, UNPRICED) as engine:
        for name in ("priced", "free"):
            await run_agent_lines(engine.agent, f"backend {name}")
            await use(engine, (10, 0))
        assert engine.agent.totals.cost_usd == pytest.approx(20 / 1e6)
        await run_agent_lines(engine.agent, "backend unpriced")
        await use(engine, (10, 0))
        assert engine.agent.totals.cost_usd is None
        assert [total.cost_usd for total in engine.sessions.backends.totals.values()] == [
            pytest.approx(20 / 1e6),
            0.0,
            None,
        ]


async def test_broken_off_call_makes_the_sum_incomplete() -> None:
    """A call that said something and broke off without its counts is counted, and the sum says that it has a gap."""
    async with open_engine(PRICED) as engine:
        await engine.prompt("hi")
        call = await engine.next_call()
        call.say("half")
        call.fail(RemoteFailed("cut"))
        await wait_all_tasks_blocked()
        assert (engine.agent.totals.requests, engine.agent.totals.is_incomplete) == (1, True)
        await use(engine, (10, 5), ending=RemoteFailed("cut after the counts"))
        assert (engine.agent.totals.requests, engine.agent.totals.input_tokens) == (2, 10)


async def test_call_that_only_thought_is_counted_too() -> None:
    """A call that was stopped while the model still thought has been answered, and so leaves a gap in the sum."""
    async with open_engine(PRICED) as engine:
        await engine.prompt("hi")
        (await engine.next_call()).think("a long and dear thought")
        await wait_all_tasks_blocked()
        engine.agent.stop()
        await wait_all_tasks_blocked()
        assert (engine.agent.totals.requests, engine.agent.totals.is_incomplete) == (1, True)


async def test_refused_call_costs_nothing(engine: Engine) -> None:
    """A call that was refused unanswered is no request in any sum, and empties that of the turn."""
    await use(engine, (10, 5))
    await engine.prompt("hi")
    (await engine.next_call()).fail(RemoteFailed("no"))
    await wait_all_tasks_blocked()
    assert engine.agent.turn_totals == Totals()
    assert engine.agent.totals.requests == 1


async def test_usage_time_is_true(engine: Engine) -> None:
    """The time of `usage` changes with what it shows, also when a new turn begins from nothing."""
    await use(engine, (10, 5))
    before = (engine.agent.turn_totals, engine.agent.stamps[Topic.USAGE].ns)
    await engine.prompt("hi")
    await engine.next_call()
    assert engine.agent.turn_totals != before[0]
    assert engine.agent.stamps[Topic.USAGE].ns != before[1]
