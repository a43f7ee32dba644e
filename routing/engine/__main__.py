"""`python -m routing.engine`: flags or a file in, a running router out."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import resource
import sys
from pathlib import Path
from typing import Any

from routing.engine.config import LOG_LEVELS, Config, ConfigError, parse, parse_strategy
from routing.engine.logs import Log
from routing.engine.server import Server, StartError
from routing.engine.source import Source

_KVAWARE_FLAGS = ("kv_events", "kv_replay", "tokenizer")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m routing.engine", description="Routes LLM requests to vLLM workers."
    )
    add = parser.add_argument
    add("--config", metavar="FILE", help="JSON or YAML; watched and reloaded. Instead of flags")
    add("--listen", metavar="HOST:PORT", help="where clients connect")
    add("--strategy", metavar="NAME", help="prefixaware (default), session or roundrobin")
    add("--worker", metavar="URL", action="append", help="a vLLM server; repeat for each")
    add("--model", metavar="NAME", help="the served model's name")
    add("--session-key", metavar="WHERE", help="header:NAME, cookie:NAME or body:KEY")
    add("--prefix-block-bytes", metavar="N", type=int, help="prompt bytes one hash covers")
    add("--api-keys", metavar="FILE", help="JSON with SHA-256 of keys; without it: open to all")
    add("--admin", metavar="HOST:PORT", help="health, metrics and decisions; keep it private")
    add("--kv-events", metavar="URL=ENDPOINT", action="append", help="for kvaware only")
    add("--kv-replay", metavar="URL=ENDPOINT", action="append", help="for kvaware only")
    add("--tokenizer", metavar="PATH", help="for kvaware only")
    add("--log-level", choices=LOG_LEVELS, default="info")
    return parser


def _from_flags(flags: argparse.Namespace) -> Config:
    if flags.strategy is not None:
        parse_strategy(flags.strategy)
    for name in _KVAWARE_FLAGS:
        value = getattr(flags, name)
        if value is not None:
            raise ConfigError(
                "--" + name.replace("_", "-"),
                value,
                "is for kvaware, which is not available",
                "Leave the flag out and use the strategy prefixaware.",
            )
    if flags.listen is None:
        raise ConfigError("--listen", None, "is missing", "For example 127.0.0.1:9000.")
    data: dict[str, Any] = {
        "listen": flags.listen,
        "workers": [{"url": url} for url in flags.worker or ()],
        "strategy": flags.strategy,
        "model": flags.model,
        "session_key": flags.session_key,
        "prefix_block_bytes": flags.prefix_block_bytes,
        "api_keys_file": flags.api_keys,
        "admin": flags.admin,
    }
    return parse({key: value for key, value in data.items() if value is not None}, Path.cwd())


def _configure(flags: argparse.Namespace) -> tuple[Config, Source | None]:
    if flags.config is None:
        return _from_flags(flags), None
    for name, value in vars(flags).items():
        if value is not None and name not in ("config", "log_level"):
            raise ConfigError(
                "--" + name.replace("_", "-"),
                value,
                "cannot be used beside --config",
                "Write it in the file.",
            )
    source = Source(Path(flags.config))
    return source.config, source


async def _serve(config: Config, source: Source | None, log: Log) -> None:
    server = Server(config, source, log)
    server.install_signals()  # before anybody can know that we run
    await server.start()
    await server.run()


def _allow_many_connections() -> None:
    """Two descriptors for each stream: the usual soft limit of 1024 is too few."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _run(config: Config, source: Source | None, log: Log) -> None:
    _allow_many_connections()
    # What exists now lives for good: the collector need not walk it again and again.
    gc.collect()
    gc.freeze()
    try:
        import uvloop
    except ImportError:
        log.event("warning", "no_uvloop", effect="slower")
        asyncio.run(_serve(config, source, log))
    else:
        uvloop.run(_serve(config, source, log))


def main(arguments: list[str] | None = None) -> int:
    flags = _parser().parse_args(arguments)
    log = Log(flags.log_level)
    try:
        config, source = _configure(flags)
        _run(config, source, log)
    except (ConfigError, StartError) as error:
        sys.stderr.write(f"routing.engine: {error}\n")
        return 2
    finally:
        log.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
