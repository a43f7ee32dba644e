"""`python -m routing.engine`: start a router from flags or a configuration file."""

from __future__ import annotations

import argparse
import asyncio
import functools
import gc
import sys
from pathlib import Path

import orjson

from console.processkit import descriptors
from routing.engine.config import Config, ConfigError, show_config
from routing.engine.config.source import ConfigSource
from routing.engine.flags import check_file_conflicts, config_from_flags, make_parser
from routing.engine.observe.logs import Log
from routing.engine.server import RouterServer, StartError


def _source(flags: argparse.Namespace) -> ConfigSource:
    if flags.config is None:
        return ConfigSource(None, functools.partial(config_from_flags, flags))
    check_file_conflicts(flags)
    return ConfigSource(Path(flags.config))


def _check(config: Config) -> None:
    sys.stdout.buffer.write(
        orjson.dumps(show_config(config), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    )


async def _serve(source: ConfigSource, log: Log) -> None:
    server = RouterServer(source.config, source, log)
    server.install_signals()  # before readiness is visible
    await server.start()
    await server.run()


def _run(source: ConfigSource, log: Log) -> None:
    descriptors.raise_limit()  # each stream needs two
    # Startup objects live forever: exclude them from garbage collection.
    gc.collect()
    gc.freeze()
    # Requests make no cycles. A full collection walks all that is remembered (about 30 ms without
    # any request served); the middle one as little as possible.
    gc.set_threshold(700, 1, 250)
    # Shorten thread switches, so that background threads return the GIL sooner.
    sys.setswitchinterval(0.001)
    try:
        import uvloop
    except ImportError:
        log.event("warning", "no_uvloop", effect="slower")
        asyncio.run(_serve(source, log))
    else:
        uvloop.run(_serve(source, log))


def main(arguments: list[str] | None = None) -> int:
    flags = make_parser().parse_args(arguments)
    log = Log(flags.log_level)
    try:
        source = _source(flags)
        if flags.check:
            _check(source.config)
        else:
            _run(source, log)
    except (ConfigError, StartError) as error:
        sys.stderr.write(f"routing.engine: {error}\n")
        return 2
    finally:
        log.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
