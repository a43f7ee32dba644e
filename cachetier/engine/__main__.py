"""Entry point of the cache node; shuts down cleanly on SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable

from cachetier.engine.admin import AdminServer
from cachetier.engine.config import Config, MemoryFile, parse
from cachetier.engine.disk.folder import FolderInUseError
from cachetier.engine.errors import ConfigError
from cachetier.engine.memory.arena import ArenaError
from cachetier.engine.node import Node
from cachetier.engine.server import NodeServer

log = logging.getLogger("cachetier.engine")

# Enough for replies in progress; clients treat a closed connection as a miss.
_GRACE_S = 3.0


async def serve(config: Config) -> None:
    """Run until a signal; a second signal skips the grace period."""
    node = Node(config)
    server = NodeServer(node)
    stop = asyncio.Event()
    hurry = asyncio.Event()

    def request_stop() -> None:
        if stop.is_set():
            hurry.set()
        stop.set()

    def request_drain() -> None:
        node.draining = True

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(node.loop_failed)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, request_stop)
    admin = AdminServer(node, request_drain)
    await server.start()
    if config.admin is not None:
        await admin.start(config.admin)
    log.info(
        "Listening on %s:%d, %d bytes of memory, %s",
        config.listen.host,
        server.port,
        config.memory_bytes,
        _describe_protection(config),
    )
    following = None
    if config.memory_file:
        memory_file = MemoryFile(config.memory_file, config.memory_bytes, node.resize)
        following = loop.create_task(memory_file.follow())
    await stop.wait()
    if following is not None:
        following.cancel()
    log.info("Stopping; %d connections open", len(node.sessions))
    drained = loop.create_task(server.drain(_GRACE_S))
    hurried = loop.create_task(hurry.wait())
    await asyncio.wait((drained, hurried), return_when=asyncio.FIRST_COMPLETED)
    if not hurry.is_set():
        await node.hand_down()
    admin.close()
    node.close()
    log.info("Stopped")


def _describe_protection(config: Config) -> str:
    parts = []
    if config.guards.tls is not None:
        mutual = config.guards.asks_for_certificates
        parts.append("TLS with client certificates" if mutual else "TLS")
    if config.passwords:
        parts.append(f"password set for {' and '.join(config.guards.users)}")
    if not parts:
        where = (
            "local connections only"
            if config.listen.is_local
            else ("REACHABLE FROM OTHER MACHINES")
        )
        return f"no password ({where})"
    return ", ".join(parts)


def main(argv: list[str]) -> int:
    try:
        config = parse(argv)
    except ConfigError as exc:
        print(f"cachetier.engine: {exc}", file=sys.stderr)  # noqa: T201
        return 2
    logging.basicConfig(
        level=config.log_level.upper(), format="%(asctime)s %(levelname)s %(message)s"
    )
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(serve(config))
    except (FolderInUseError, ArenaError) as exc:
        log.error("%s", exc)
        return 2
    except OSError as exc:
        log.error("cannot listen: %s", exc)
        return 1
    return 0


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's factory if installed, which is faster."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
