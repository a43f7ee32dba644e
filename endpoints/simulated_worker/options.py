"""Command-line options of a simulated worker.

Unsupported values are rejected; vLLM arguments without effect here are ignored and listed.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from cachetier.client.address import AddressError
from cachetier.client.node_list import Nodes
from cachetier.vllm_connector.settings import PASSWORD_ENV

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]i?B?|B?)", re.IGNORECASE)
_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}


@dataclass(frozen=True)
class Options:
    """Times are those of SmolLM2-135M on one CPU core divided by `speed` (see engine.Timing)."""

    host: str
    port: int
    models: tuple[str, ...]  # the first one labels the metrics
    block_size: int = 32
    device_blocks: int = 2048
    l1_bytes: int = 0
    l1_policy: str = "lru"
    l2: Nodes | None = None
    l2_password: str = ""
    l2_ttl_s: int = 3600
    l2_timeout_s: float = 0.25
    speed: float = 10.0
    seed: int = 0
    max_model_len: int = 8192
    max_num_seqs: int = 256
    kv_bytes_per_token: int = 46080  # SmolLM2-135M in float32: 30 layers x 3 heads x 64 x 2 x 4
    shutdown_s: float = 20.0
    kv_events: str = ""
    kv_replay: str = ""
    kv_topic: str = ""
    ignored: tuple[str, ...] = ()


def parse(argv: Sequence[str]) -> Options:
    parser = _parser()
    given, unknown = parser.parse_known_args(argv)
    if given.kv_replay and not given.kv_events:
        parser.error("--kv-replay needs --kv-events, whose batches it replays")
    host, _, port = given.listen.rpartition(":")
    if not host or not port.isdigit():
        parser.error(f"--listen wants HOST:PORT, not {given.listen!r}")
    models = tuple(name.strip() for name in given.model.split(",") if name.strip())
    if not models:
        parser.error("--model needs a name")
    l2 = None
    if given.l2_url:
        try:
            l2 = Nodes.parse(given.l2_url)
        except AddressError as error:
            parser.error(f"--l2-url: {error}")
    return Options(
        host=host.strip("[]"),
        port=int(port),
        models=models,
        block_size=given.block_size,
        device_blocks=given.device_blocks,
        l1_bytes=given.l1_bytes,
        l1_policy=given.l1_policy,
        l2=l2,
        l2_password=os.environ.get(PASSWORD_ENV, ""),
        l2_ttl_s=given.l2_ttl,
        l2_timeout_s=given.l2_timeout,
        speed=given.speed,
        seed=given.seed,
        max_model_len=given.max_model_len,
        max_num_seqs=given.max_num_seqs,
        kv_bytes_per_token=given.kv_bytes_per_token,
        shutdown_s=given.shutdown_timeout,
        kv_events=given.kv_events,
        kv_replay=given.kv_replay,
        kv_topic=given.kv_topic,
        ignored=tuple(unknown),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m endpoints.simulated_worker",
        description="Answers as a vLLM server does, with made-up text and modelled times.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--listen", required=True, metavar="HOST:PORT")
    add("--model", required=True, help="served names, comma separated; the first is shown")
    add("--block-size", type=_positive, default=Options.block_size, help="tokens in a KV block")
    add("--device-blocks", type=_positive, default=Options.device_blocks)
    add("--l1-bytes", type=_size, default=0, help="such as 512MiB; 0: no L1")
    add("--l1-policy", choices=("lru", "arc"), default="lru")
    add("--l2-url", default="", help="redis://HOST:PORT; password in " + PASSWORD_ENV)
    add("--l2-ttl", type=_positive, default=Options.l2_ttl_s, help="seconds")
    add("--l2-timeout", type=_seconds, default=Options.l2_timeout_s, help="seconds")
    add("--speed", type=_seconds, default=Options.speed, help="1: as slow as a CPU core")
    add("--seed", type=int, default=0)
    add("--max-model-len", type=_size, default=Options.max_model_len, help="tokens")
    add("--max-num-seqs", type=_positive, default=Options.max_num_seqs)
    add("--kv-bytes-per-token", type=_positive, default=Options.kv_bytes_per_token)
    add("--shutdown-timeout", type=float, default=Options.shutdown_s, help="seconds")
    add("--kv-events", default="", metavar="ENDPOINT", help="such as tcp://*:5557: KV events")
    add("--kv-replay", default="", metavar="ENDPOINT", help="where missed KV events are replayed")
    add("--kv-topic", default="", help="first frame of each message")
    return parser


def _positive(text: str) -> int:
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return value


def _seconds(text: str) -> float:
    if not 0 < (value := float(text)) < 1e9:
        raise argparse.ArgumentTypeError(f"{text} is not more than 0")
    return value


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size, such as 4096, 512MiB or 4GiB")
    return int(float(match[1]) * _UNITS[match[2][:1].lower().replace("b", "")])
