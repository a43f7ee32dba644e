"""`python -m endpoints.simulated_worker`: a simulated vLLM server.

On TERM or INT it drains for at most --shutdown-timeout seconds, with /health at 503 and new
requests rejected, and exits with 0.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import TYPE_CHECKING

from endpoints.simulated_worker import options as cli
from endpoints.simulated_worker.api import Api
from endpoints.simulated_worker.engine import Engine
from endpoints.simulated_worker.http import HttpServer
from endpoints.simulated_worker.kv_events import KvLog
from endpoints.simulated_worker.l2 import L2
from endpoints.simulated_worker.options import Options
from endpoints.simulated_worker.telemetry import Telemetry

if TYPE_CHECKING:
    from endpoints.simulated_worker.kv_publisher import Publisher


def _log_line(text: str) -> None:
    sys.stderr.write(f"simulated worker: {text}\n")
    sys.stderr.flush()


async def serve(options: Options) -> None:
    telemetry = Telemetry(options)
    l2 = _make_l2(options)
    publisher = _make_publisher(options)
    kv = KvLog(options.block_size, publisher.publish) if publisher is not None else None
    config = publisher.config if publisher is not None else None
    api = Api(options, Engine(options, telemetry, l2, kv), telemetry, l2, config)
    server = HttpServer(api.handle)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    port = await server.listen(options.host, options.port)
    if options.ignored:
        _log_line(f"ignored (real vLLM only): {' '.join(options.ignored)}")
    _log_line(f"serves {', '.join(options.models)} at {options.host}:{port}; no model runs here")
    await stop.wait()
    _log_line("finishes its requests and exits")
    api.draining = True
    if not await server.drain(options.shutdown_s):
        _log_line(f"canceled requests that were not complete after {options.shutdown_s:g} s")
    if l2 is not None:
        l2.close()
    if publisher is not None:
        publisher.close()


def _make_l2(options: Options) -> L2 | None:
    if options.l2 is None:
        return None
    identity: dict[str, object] = {"model": options.models[-1], "block": options.block_size}
    return L2(
        options.l2, options.l2_password, options.l2_ttl_s, options.l2_timeout_s, identity, _log_line
    )


def _make_publisher(options: Options) -> Publisher | None:
    """Return the publisher. Raise SystemExit with the reason if it cannot publish."""
    if not options.kv_events:
        return None
    from endpoints.simulated_worker.kv_publisher import EndpointError, Publisher  # needs pyzmq

    try:
        publisher = Publisher(options.kv_events, options.kv_replay, options.kv_topic)
    except EndpointError as error:
        _log_line(f"cannot publish KV events: {error}")
        raise SystemExit(2) from None
    publisher.start()
    return publisher


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
