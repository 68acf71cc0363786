"""Threads that read what others of them opened: ``threaded_readers.py FILE THREADS``.

Thread *n* opens the file, thread *n+1* reads that open file; with one thread, the main thread opens it. Prints the
readers' thread ids; for each number on stdin, that reader gets a signal; ends when all have read.
"""

import os
import signal
import sys
import threading


def main(path: str, count: int) -> None:
    """Start the threads."""
    opened: dict[int, int] = {}
    are_open = threading.Barrier(count + 1)

    def open_and_read(number: int) -> None:
        if count > 1:
            opened[number] = os.open(path, os.O_RDONLY)
        are_open.wait()
        os.read(opened[(number + 1) % count], 4096)

    if count == 1:
        opened[0] = os.open(path, os.O_RDONLY)
    signal.signal(signal.SIGUSR1, lambda *_: None)
    threads = [threading.Thread(target=open_and_read, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    are_open.wait()
    sys.stdout.write(" ".join(str(thread.native_id) for thread in threads) + "\n")
    sys.stdout.flush()

    for line in sys.stdin:
        ident = threads[int(line)].ident
        assert ident is not None
        signal.pthread_kill(ident, signal.SIGUSR1)
    for thread in threads:
        thread.join()


main(sys.argv[1], int(sys.argv[2]))
