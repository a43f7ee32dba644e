"""`python -m endpoints.simulated_worker`: a stand-in for a vLLM server where none can run.

Promises to end with status 0 on TERM or INT, after the requests it has (for at most
--shutdown-timeout seconds), while /health answers 503 and new requests are refused.
"""

from __future__ import annotations

import asyncio
import signal
import sys

from endpoints.simulated_worker import options as cli
from endpoints.simulated_worker.api import Api
from endpoints.simulated_worker.engine import Engine
from endpoints.simulated_worker.http import Server
from endpoints.simulated_worker.l2 import L2
from endpoints.simulated_worker.options import Options
from endpoints.simulated_worker.telemetry import Telemetry


def _say(text: str) -> None:
    sys.stderr.write(f"simulated worker: {text}\n")
    sys.stderr.flush()


async def serve(options: Options) -> None:
    telemetry = Telemetry(options)
    l2 = _make_l2(options)
    api = Api(options, Engine(options, telemetry, l2), telemetry, l2)
    server = Server(api.handle)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    port = await server.listen(options.host, options.port)
    if options.ignored:
        _say(f"ignores what is for a real vLLM: {' '.join(options.ignored)}")
    _say(f"serves {', '.join(options.models)} at {options.host}:{port}; no model runs here")
    await stop.wait()
    _say("finishes its requests and ends")
    api.draining = True
    if not await server.drain(options.shutdown_s):
        _say(f"cut requests that were not done after {options.shutdown_s:g} s")
    if l2 is not None:
        l2.close()


def _make_l2(options: Options) -> L2 | None:
    if options.l2 is None:
        return None
    facts: dict[str, object] = {"model": options.models[-1], "block": options.block_size}
    return L2(options.l2, options.l2_password, options.l2_ttl_s, options.l2_timeout_s, facts, _say)


def main() -> int:
    options = cli.parse(sys.argv[1:])
    try:
        import uvloop
    except ImportError:
        asyncio.run(serve(options))
    else:
        uvloop.run(serve(options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
