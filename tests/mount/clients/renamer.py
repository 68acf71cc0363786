"""Make events, one each time: ``renamer.py AGENT COUNT`` renames an agent to and fro."""

import os
import sys


def main(agent: str, count: int) -> None:
    """Rename it as often; an even number leaves its name."""
    names = (agent, f"{agent}-renamed")
    for number in range(count):
        os.rename(names[number % 2], names[1 - number % 2])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
