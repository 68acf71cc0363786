"""Run every measurement and print its table."""

import trio

from bench import fs, idle, latency


def main() -> None:
    """Measure and print."""
    print("| operation | ours, µs | bare pyfuse3, µs | rate, ours to bare |\n|---|---|---|---|")
    for name, (ours, bare) in fs.measure().items():
        print(f"| {name} | {ours:.0f} | {bare:.0f} | {bare / ours:.2f} |")
    print("\n| latency, median | ours | straight off the socket | ratio |\n|---|---|---|---|")
    for name, (value, yardstick) in trio.run(latency.measure).items():
        told = ("-", "-") if yardstick is None else (f"{yardstick:.2f}", f"{value / yardstick:.1f}")
        print(f"| {name} | {value:.2f} | {told[0]} | {told[1]} |")
    print("\n| cost of doing nothing | |\n|---|---|")
    for name, cost in idle.measure().items():
        print(f"| {name} | {cost:.1f} |")


if __name__ == "__main__":
    main()
