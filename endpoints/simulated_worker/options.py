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
    namespace, unknown = parser.parse_known_args(argv)
    options = vars(namespace)
    listen, model, l2_url = options.pop("listen"), options.pop("model"), options.pop("l2_url")
    if options.get("kv_replay") and not options.get("kv_events"):
        parser.error("--kv-replay needs --kv-events, whose batches it replays")
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit():
        parser.error(f"--listen must be HOST:PORT, not {listen!r}")
    models = tuple(name.strip() for name in model.split(",") if name.strip())
    if not models:
        parser.error("--model needs a name")
    l2 = None
    if l2_url:
        try:
            l2 = Nodes.parse(l2_url)
        except AddressError as error:
            parser.error(f"--l2-url: {error}")
    return Options(
        host=host.strip("[]"),
        port=int(port),
        models=models,
        l2=l2,
        l2_password=os.environ.get(PASSWORD_ENV, ""),
        ignored=tuple(unknown),
        **options,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m endpoints.simulated_worker",
        description="Simulated vLLM server with generated text and modelled latency.",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,  # the defaults are those of Options
    )
    add = parser.add_argument
    add("--listen", required=True, metavar="HOST:PORT")
    add(
        "--model",
        required=True,
        help="served model names, comma-separated; the first is the primary",
    )
    add("--block-size", type=_positive, help="tokens in a KV block")
    add("--device-blocks", type=_positive)
    add("--l1-bytes", type=_size, help="such as 512MiB; 0: no L1")
    add("--l1-policy", choices=("lru", "arc"))
    add("--l2-url", default="", help="redis://HOST:PORT; password in " + PASSWORD_ENV)
    add("--l2-ttl", type=_positive, dest="l2_ttl_s", metavar="L2_TTL", help="seconds")
    add("--l2-timeout", type=_seconds, dest="l2_timeout_s", metavar="L2_TIMEOUT", help="seconds")
    add("--speed", type=_seconds, help="1: as slow as a CPU core")
    add("--seed", type=int)
    add("--max-model-len", type=_size, help="tokens")
    add("--max-num-seqs", type=_positive)
    add("--kv-bytes-per-token", type=_positive)
    add(
        "--shutdown-timeout",
        type=float,
        dest="shutdown_s",
        metavar="SHUTDOWN_TIMEOUT",
        help="seconds",
    )
    add("--kv-events", metavar="ENDPOINT", help="such as tcp://*:5557: KV events")
    add("--kv-replay", metavar="ENDPOINT", help="endpoint for replaying missed KV events")
    add("--kv-topic", help="first frame of each message")
    return parser


def _positive(text: str) -> int:
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return value


def _seconds(text: str) -> float:
    if not 0 < (value := float(text)) < 1e9:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 4096, 512MiB or 4GiB")
    return int(float(match[1]) * _UNITS[match[2][:1].lower().replace("b", "")])
