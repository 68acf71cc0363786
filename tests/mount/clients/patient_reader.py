"""Read a file once, with a SIGINT handler: ``patient_reader.py FILE`` prints the handler's line, then what it read."""

import os
import signal
import sys


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


signal.signal(signal.SIGINT, lambda *_: say("interrupted"))
say(os.read(os.open(sys.argv[1], os.O_RDONLY), 4096).decode().strip())
