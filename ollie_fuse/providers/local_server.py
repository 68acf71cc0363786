"""The child process of a ``local`` backend: llama.cpp serves one model on loopback while stdin stays open.

Run as a script, by its path, with nothing of ours imported. The first line on stdin is JSON: ``model`` (a
path), ``alias``, ``key``, ``window``. It answers one line on stdout, ``ready URL`` or ``failed REASON``.
Standard input ends when the daemon does, however it ends; then so does this.
"""

import json
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import xllamacpp

PARALLEL = 4
PROMPT_CACHE_MIB = 256  # llama.cpp's own default is 8 GiB of host memory


def main() -> None:
    """Serve until stdin ends."""
    order = json.loads(sys.stdin.buffer.readline())
    answer = _silence_library()
    try:
        server = _open_server(order)
    except (ImportError, RuntimeError, ValueError, OSError) as exc:
        os.write(answer, f"failed {exc}".replace("\n", " ").encode() + b"\n")
        os._exit(1)
    os.write(answer, f"ready {server.listening_address}\n".encode())
    os.close(answer)
    while os.read(0, 4096):
        pass
    os._exit(0)  # at once: the library's threads may be in the middle of an answer that nobody reads any more


def _silence_library() -> int:
    """Point stdout and stderr at /dev/null, since the library prints to both; return the real stdout."""
    answer = os.dup(1)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    return answer


def _open_server(order: "dict[str, str | int]") -> "xllamacpp.Server":
    import xllamacpp  # after the silence: it prints

    params = xllamacpp.CommonParams()
    params.model.path = order["model"]
    params.model_alias = {order["alias"]}
    params.api_keys = [order["key"]]
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = order["window"]
    params.n_parallel = PARALLEL
    params.sampling.temp = 0.0  # a model this small is at its best when it takes the likeliest word
    params.kv_unified = True  # each of the parallel answers may use the whole window, which is kept only once
    params.cache_ram_mib = PROMPT_CACHE_MIB
    params.warmup = False
    params.ui = False
    params.offline = True
    params.use_jinja = True
    params.verbosity = 0
    return xllamacpp.Server(params)


if __name__ == "__main__":
    main()
