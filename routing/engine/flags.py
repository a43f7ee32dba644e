"""Command-line flags: each maps to a configuration field and uses the file parser."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from routing.engine.config import LOG_LEVELS, Config, ConfigError, parse, parse_strategy
from routing.engine.observe.metrics import package_version
from routing.engine.strategies import STRATEGIES


@dataclass(frozen=True, slots=True)
class Flag:
    """Command-line flag of the router. `field`: dotted path in the configuration; "": handled
    elsewhere.
    """

    name: str
    field: str
    metavar: str
    help: str
    type: type = str
    many: bool = False

    @property
    def key(self) -> str:
        return self.name[2:].replace("-", "_")


FLAGS = (
    Flag("--listen", "listen", "HOST:PORT", "address to listen on; repeatable", many=True),
    Flag(
        "--reuse-port",
        "reuse_port",
        "",
        "share the addresses with other routers of the endpoint on this machine (SO_REUSEPORT)",
        bool,
    ),
    Flag("--strategy", "strategy", "NAME", f"{', '.join(STRATEGIES)}; prefixaware by default"),
    Flag("--worker", "", "URL", "URL of a vLLM server, http:// or https://; repeatable", many=True),
    Flag(
        "--worker-dns",
        "discovery.dns",
        "NAME:PORT",
        "DNS name whose addresses are all workers; https://NAME:PORT for TLS; repeatable",
        many=True,
    ),
    Flag(
        "--worker-endpointslices",
        "discovery.endpointslices",
        "NAMESPACE/SERVICE[:PORT-NAME]",
        "Kubernetes Service whose ready pods are workers; repeatable",
        many=True,
    ),
    Flag(
        "--kubernetes-server", "discovery.kubernetes.server", "URL", "default: this pod's cluster"
    ),
    Flag(
        "--kubernetes-token",
        "discovery.kubernetes.token_file",
        "FILE",
        "default: this pod's namespace",
    ),
    Flag(
        "--kubernetes-ca", "discovery.kubernetes.ca_file", "FILE", "default: this pod's namespace"
    ),
    Flag("--model", "model", "NAME", "the served model's name"),
    Flag("--session-key", "session_key", "WHERE", "header:NAME, cookie:NAME or body:KEY[.KEY]"),
    Flag("--prefix-block-bytes", "prefix_block_bytes", "N", "prompt bytes per hash", int),
    Flag(
        "--api-keys",
        "api_keys_file",
        "FILE",
        "file of SHA-256 hashes of keys; without it, no key is required",
    ),
    Flag("--cache-isolation", "cache_isolation", "WHOSE", "key (default), group or shared"),
    Flag("--open-path", "open_paths", "PATH", "path open to every caller; repeatable", many=True),
    Flag(
        "--allowed-origin",
        "allowed_origins",
        "ORIGIN",
        "origin whose scripts may call, * (default) for all; repeatable",
        many=True,
    ),
    Flag("--max-in-flight", "admission.max_in_flight", "N", "maximum concurrent requests", int),
    Flag(
        "--worker-max-in-flight",
        "admission.worker_max_in_flight",
        "N",
        "maximum concurrent requests per worker",
        int,
    ),
    Flag(
        "--requests-per-minute",
        "admission.requests_per_minute",
        "N",
        "maximum requests per minute, all callers",
        int,
    ),
    Flag(
        "--tokens-per-minute",
        "admission.tokens_per_minute",
        "N",
        "maximum requests per minute, all callers",
        int,
    ),
    Flag("--queue-depth", "admission.queue.depth", "N", "maximum queued requests", int),
    Flag("--queue-timeout", "admission.queue.timeout_s", "S", "maximum time in the queue", float),
    Flag("--access-log", "access_log", "WHAT", "off, errors, sample=0.01 (default) or all"),
    Flag("--decisions-file", "decisions.file", "FILE", "file for decisions as JSON lines"),
    Flag(
        "--decisions-sample",
        "decisions.sample",
        "SHARE",
        "share of decisions written, 0 to 1",
        float,
    ),
    Flag("--tracing-endpoint", "tracing.endpoint", "URL", "OTLP/HTTP address for spans"),
    Flag(
        "--tracing-sample",
        "tracing.sample",
        "SHARE",
        "sampling share of requests without a trace",
        float,
    ),
    Flag("--admin", "admin", "HOST:PORT", "health, metrics and decisions; keep it private"),
    Flag("--tls-cert", "tls.cert", "FILE", "PEM chain for TLS; reloaded when changed"),
    Flag("--tls-key", "tls.key", "FILE", "its key"),
    Flag(
        "--tls-client-ca",
        "tls.client_ca",
        "FILE",
        "accept only clients with a certificate of this CA",
    ),
    Flag(
        "--worker-tls-ca", "worker_tls.ca", "FILE", "CA for https:// workers; default: the system's"
    ),
    Flag("--worker-tls-cert", "worker_tls.cert", "FILE", "client certificate presented to workers"),
    Flag("--worker-tls-key", "worker_tls.key", "FILE", "its key"),
    Flag(
        "--worker-tls-name",
        "worker_tls.server_name",
        "NAME",
        "host name expected in workers' certificates",
    ),
    Flag(
        "--worker-tls-insecure-skip-verify",
        "worker_tls.insecure_skip_verify",
        "",
        "skip verification of workers' certificates; for tests only",
        bool,
    ),
    Flag("--max-clients", "limits.clients", "N", "maximum connections; default 20000", int),
    Flag(
        "--shutdown-delay",
        "limits.shutdown_delay_s",
        "S",
        "time to keep accepting requests after SIGTERM",
        float,
    ),
    Flag(
        "--shutdown-grace",
        "limits.shutdown_grace_s",
        "S",
        "time for running requests to finish after that",
        float,
    ),
    Flag(
        "--kv-events",
        "",
        "URL=ENDPOINT",
        "KV event address of a worker; default: reported by the worker",
        many=True,
    ),
    Flag("--kv-replay", "", "URL=ENDPOINT", "KV event replay address of a worker", many=True),
    Flag("--tokenizer", "kv.tokenizer", "PATH", "the model's folder, for kvaware"),
    Flag(
        "--chat-template",
        "kv.chat_template",
        "FILE",
        "chat template for kvaware, instead of the model's",
    ),
    Flag("--kv-wait", "kv.wait_s", "S", "maximum wait for tokenization", float),
    Flag("--kv-probe", "kv.probe_interval_s", "S", "interval of probe prompts; 0: never", float),
)


def make_parser() -> argparse.ArgumentParser:
    out = argparse.ArgumentParser(
        prog="python -m routing.engine", description="Routes LLM requests to vLLM workers."
    )
    out.add_argument(
        "--config",
        metavar="FILE",
        help="configuration file, JSON or YAML, reloaded when changed; replaces the other flags",
    )
    for flag in FLAGS:
        if flag.type is bool:
            out.add_argument(flag.name, action="store_true", default=None, help=flag.help)
        else:
            action = "append" if flag.many else "store"
            out.add_argument(
                flag.name, metavar=flag.metavar, action=action, type=flag.type, help=flag.help
            )
    out.add_argument("--log-level", choices=LOG_LEVELS, default="info")
    out.add_argument(
        "--check", action="store_true", help="check and print the configuration, then exit"
    )
    out.add_argument("--version", action="version", version=f"emberline {package_version()}")
    return out


def check_file_conflicts(flags: argparse.Namespace) -> None:
    """Raise ConfigError for a flag that conflicts with a configuration file."""
    for flag in FLAGS:
        value = getattr(flags, flag.key)
        if value is not None:
            raise ConfigError(
                flag.name, value, "cannot be combined with --config", "Write it in the file."
            )


def config_from_flags(flags: argparse.Namespace) -> Config:
    if flags.strategy is not None:
        parse_strategy(flags.strategy)
    if flags.listen is None:
        raise ConfigError("--listen", None, "is missing", "For example 127.0.0.1:9000.")
    data: dict[str, Any] = {"workers": [{"url": url} for url in flags.worker or ()]}
    for name in ("kv_events", "kv_replay"):
        _assign_to_workers(data["workers"], name, getattr(flags, name) or ())
    for flag in FLAGS:
        value = getattr(flags, flag.key)
        if value is not None and flag.field:
            *folders, last = flag.field.split(".")
            place = data
            for folder in folders:
                place = place.setdefault(folder, {})
            place[last] = value
    return parse(data, Path.cwd())


def _assign_to_workers(workers: list[dict[str, Any]], name: str, pairs: Sequence[str]) -> None:
    flag = "--" + name.replace("_", "-")
    for pair in pairs:
        url, _, endpoint = pair.rpartition("=")
        matching = [worker for worker in workers if worker["url"].rstrip("/") == url.rstrip("/")]
        if not matching or not endpoint:
            raise ConfigError(
                flag,
                pair,
                "does not name a worker",
                "Write URL=ENDPOINT, with the URL of a --worker, for example "
                "http://127.0.0.1:8001=tcp://127.0.0.1:5557.",
            )
        for worker in matching:
            worker[name] = endpoint
