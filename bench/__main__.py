"""Run every measurement and print its table: ``./do bench [NAME...]``, all of them without a name."""

import sys
from collections.abc import Callable

import trio

from bench import fs, idle, latency, waiting

Rows = dict[str, tuple[float, float | None]]


def print_table(title: str, yardstick: str, rows: Rows, *, is_rate: bool = False) -> None:
    """Print ours beside the yardstick and their ratio: of rates, where more is better, or of costs."""
    print(f"\n| {title} | ours | {yardstick} | {'rate, ours to it' if is_rate else 'ratio'} |\n|---|---|---|---|")
    for name, (ours, other) in rows.items():
        told = ("-", "-") if not other else (f"{other:.2f}", f"{other / ours if is_rate else ours / other:.2f}")
        print(f"| {name} | {ours:.2f} | {told[0]} | {told[1]} |")


SECTIONS: dict[str, Callable[[], None]] = {
    "fs": lambda: print_table("operation, µs", "bare pyfuse3", fs.measure(), is_rate=True),
    "latency": lambda: print_table("latency, median", "off the socket", trio.run(latency.measure)),
    "idle": lambda: print_table("cost of doing nothing", "-", idle.measure()),
    "waiting": lambda: print_table("readers that wait", "with pipes", waiting.measure()),
}


def main() -> None:
    """Measure and print."""
    for name in sys.argv[1:] or SECTIONS:
        SECTIONS[name]()


if __name__ == "__main__":
    main()
