"""Write random bytes and words to every writable file, over and over.

``random_bytes.py ROOT AGENT ROUNDS SEED`` prints how many writes were taken and how many were refused, and any
error that is not one of ours to give.
"""

import errno
import os
import random
import sys
from collections import Counter

WORDS = (
    b"stop resume backend model fake fake-1 temperature 0.5 topP maxTokens cwd /tmp /nope clear drop 1 since idle "
    b"name= title=x env=A=1 reuse=1 log debug info reload /model /stop ! ' \" \\ \n \0 \xff \xc3 # % $( ` ; & | .. ~ - "
    b"default"
).split(b" ")
REFUSALS = {errno.EINVAL, errno.ENOENT, errno.EEXIST, errno.EBUSY, errno.EFBIG, errno.EACCES, errno.EPERM}
FLAGS = (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC, os.O_WRONLY | os.O_APPEND)


def random_text(rng: random.Random) -> bytes:
    """Return random bytes, or random words of the command languages, short or long."""
    size = rng.choice((0, 1, 7, 40, 300, 4095, 4096, 9000))
    if rng.random() < 0.5:
        return rng.randbytes(size)
    return b" ".join(rng.choice(WORDS) for _ in range(size // 8 + 1))


def hit(path: str, rng: random.Random) -> int:
    """Open *path* somehow, write something somewhere; return the errno, 0 for none."""
    try:
        descriptor = os.open(path, rng.choice(FLAGS))
        try:
            for _ in range(rng.randint(1, 3)):
                os.pwrite(descriptor, random_text(rng), rng.choice((0, 0, 5, 5000)))
        finally:
            os.close(descriptor)
    except OSError as exc:
        return exc.errno or errno.EIO
    return 0


def main(root: str, agent: str, rounds: int, seed: int) -> None:
    """Hit the files in random order."""
    rng = random.Random(seed)
    session = agent.removesuffix("/agent/main")
    files = [
        *(f"{root}/{name}" for name in ("ctl", "events", "generate", "session/new")),
        *(f"{session}/{name}" for name in ("ctl", "cwd", "title", "env", "agent/new")),
        *(f"{agent}/{name}" for name in ("prompt", "statewait", "ctl", "queue")),
    ]
    told = Counter(hit(rng.choice(files), rng) for _ in range(rounds))
    for number in set(told) - REFUSALS - {0}:
        sys.stdout.write(f"unexpected {errno.errorcode.get(number, number)}: {told[number]}\n")
    sys.stdout.write(f"taken {told[0]}\nrefused {sum(told.values()) - told[0]}\n")


main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
