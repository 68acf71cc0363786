"""Tokens and money: what a turn and an agent have used."""

from dataclasses import dataclass

from ollie_fuse.config import Price
from ollie_fuse.providers import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """A sum over model calls."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int | None = None
    """None as long as no provider reported any."""
    is_incomplete: bool = False
    """Whether some call did not report its counts, so that the sums are lower bounds."""
    cost_usd: float | None = 0.0
    """None once a call's price was unknown."""

    def plus(self, usage: Usage, price: Price | None) -> "Totals":
        """Add one call of known or unknown *price*."""
        cost = cost_of(usage, price)
        return Totals(
            requests=self.requests + 1,
            input_tokens=self.input_tokens + (usage.input_tokens or 0),
            output_tokens=self.output_tokens + (usage.output_tokens or 0),
            cached_tokens=_sum(self.cached_tokens, usage.cached_tokens),
            is_incomplete=self.is_incomplete or usage.input_tokens is None or usage.output_tokens is None,
            cost_usd=None if cost is None or self.cost_usd is None else self.cost_usd + cost,
        )

    def plus_totals(self, other: "Totals") -> "Totals":
        """Add another sum."""
        is_priced = self.cost_usd is not None and other.cost_usd is not None
        return Totals(
            requests=self.requests + other.requests,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=_sum(self.cached_tokens, other.cached_tokens),
            is_incomplete=self.is_incomplete or other.is_incomplete,
            cost_usd=(self.cost_usd or 0) + (other.cost_usd or 0) if is_priced else None,
        )

    def render(self, prefix: str) -> str:
        """Write the sum as ``key=value`` lines, each key with *prefix*."""
        cost = "unavailable" if self.cost_usd is None else f"{self.cost_usd:.6f}"
        rows = {
            "requests": self.requests,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cached_tokens": "unreported" if self.cached_tokens is None else self.cached_tokens,
            "cost_usd": cost,
            "incomplete": "yes" if self.is_incomplete else "no",
        }
        return "".join(f"{prefix}{key}={value}\n" for key, value in rows.items())


def _sum(one: int | None, other: int | None) -> int | None:
    return other if one is None else one + (other or 0)


def cost_of(usage: Usage, price: Price | None) -> float | None:
    """Return the price of one call in USD, None where prices are unknown; counts that are missing cost nothing here."""
    if price is None:
        return None
    cached = usage.cached_tokens or 0
    cache_price = price.input if price.cache is None else price.cache
    fresh = max((usage.input_tokens or 0) - cached, 0)
    return (fresh * price.input + cached * cache_price + (usage.output_tokens or 0) * price.output) / 1e6
