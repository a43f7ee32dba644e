"""Command-line flags: each maps to a configuration field and uses the file parser."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from routing.engine.config import LOG_LEVELS, Config, ConfigError, parse, parse_strategy
from routing.engine.observe.metrics import package_version


@dataclass(frozen=True, slots=True)
class Flag:
    """`field`: dotted path in the configuration; "": handled elsewhere."""

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
    Flag("--listen", "listen", "HOST:PORT", "where clients connect; repeat for each", many=True),
    Flag("--strategy", "strategy", "NAME", "prefixaware (default), kvaware, session or roundrobin"),
    Flag("--worker", "", "URL", "a vLLM server, http:// or https://; repeat for each", many=True),
    Flag(
        "--worker-dns",
        "discovery.dns",
        "NAME:PORT",
        "every address of this name is a worker; https://NAME:PORT for TLS; repeat for each",
        many=True,
    ),
    Flag(
        "--worker-endpointslices",
        "discovery.endpointslices",
        "NAMESPACE/SERVICE[:PORT-NAME]",
        "every ready pod of this Kubernetes Service is a worker; repeat for each",
        many=True,
    ),
    Flag("--kubernetes-server", "discovery.kubernetes.server", "URL", "else this pod's cluster"),
    Flag("--kubernetes-token", "discovery.kubernetes.token_file", "FILE", "else this pod's own"),
    Flag("--kubernetes-ca", "discovery.kubernetes.ca_file", "FILE", "else this pod's own"),
    Flag("--model", "model", "NAME", "the served model's name"),
    Flag("--session-key", "session_key", "WHERE", "header:NAME, cookie:NAME or body:KEY[.KEY]"),
    Flag("--prefix-block-bytes", "prefix_block_bytes", "N", "prompt bytes one hash covers", int),
    Flag("--api-keys", "api_keys_file", "FILE", "SHA-256 of keys; without it: open to all"),
    Flag("--cache-isolation", "cache_isolation", "WHOSE", "key (default), group or shared"),
    Flag("--open-path", "open_paths", "PATH", "open to every caller; repeat for each", many=True),
    Flag("--max-in-flight", "admission.max_in_flight", "N", "requests at a time", int),
    Flag("--worker-max-in-flight", "admission.worker_max_in_flight", "N", "of each worker", int),
    Flag("--requests-per-minute", "admission.requests_per_minute", "N", "of all callers", int),
    Flag("--tokens-per-minute", "admission.tokens_per_minute", "N", "of all callers", int),
    Flag("--queue-depth", "admission.queue.depth", "N", "requests which may wait", int),
    Flag("--queue-timeout", "admission.queue.timeout_s", "S", "how long they may", float),
    Flag("--access-log", "access_log", "WHAT", "off, errors, sample=0.01 (default) or all"),
    Flag("--decisions-file", "decisions.file", "FILE", "write decisions there as JSON lines"),
    Flag("--decisions-sample", "decisions.sample", "SHARE", "of them, 0 to 1", float),
    Flag("--tracing-endpoint", "tracing.endpoint", "URL", "send spans there (OTLP over HTTP)"),
    Flag("--tracing-sample", "tracing.sample", "SHARE", "of requests without a trace", float),
    Flag("--admin", "admin", "HOST:PORT", "health, metrics and decisions; keep it private"),
    Flag("--tls-cert", "tls.cert", "FILE", "serve TLS with this PEM chain; watched"),
    Flag("--tls-key", "tls.key", "FILE", "its key"),
    Flag("--tls-client-ca", "tls.client_ca", "FILE", "only clients with a certificate of this CA"),
    Flag("--worker-tls-ca", "worker_tls.ca", "FILE", "CA of https:// workers; else the system's"),
    Flag("--worker-tls-cert", "worker_tls.cert", "FILE", "who we are to workers"),
    Flag("--worker-tls-key", "worker_tls.key", "FILE", "its key"),
    Flag("--worker-tls-name", "worker_tls.server_name", "NAME", "in the workers' certificates"),
    Flag(
        "--worker-tls-insecure-skip-verify",
        "worker_tls.insecure_skip_verify",
        "",
        "do not check who the workers are: for trying things out only",
        bool,
    ),
    Flag("--max-clients", "limits.clients", "N", "connections at a time; default 20000", int),
    Flag("--shutdown-delay", "limits.shutdown_delay_s", "S", "serve on after SIGTERM", float),
    Flag("--shutdown-grace", "limits.shutdown_grace_s", "S", "then let answers finish", float),
    Flag("--kv-events", "", "URL=ENDPOINT", "a worker's KV events; else it is asked", many=True),
    Flag("--kv-replay", "", "URL=ENDPOINT", "where it sends them again", many=True),
    Flag("--tokenizer", "kv.tokenizer", "PATH", "the model's folder, for kvaware"),
    Flag("--chat-template", "kv.chat_template", "FILE", "instead of the model's, for kvaware"),
    Flag("--kv-wait", "kv.wait_s", "S", "longest wait for a prompt's tokens", float),
    Flag("--kv-probe", "kv.probe_interval_s", "S", "a prompt of ours so often; 0: never", float),
)


def make_parser() -> argparse.ArgumentParser:
    out = argparse.ArgumentParser(
        prog="python -m routing.engine", description="Routes LLM requests to vLLM workers."
    )
    out.add_argument(
        "--config", metavar="FILE", help="JSON or YAML; watched and reloaded. Instead of flags"
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
        "--check", action="store_true", help="check the configuration, print it and end"
    )
    out.add_argument("--version", action="version", version=f"emberline {package_version()}")
    return out


def check_file_conflicts(flags: argparse.Namespace) -> None:
    """Raise ConfigError for a flag that conflicts with a configuration file."""
    for flag in FLAGS:
        value = getattr(flags, flag.key)
        if value is not None:
            raise ConfigError(
                flag.name, value, "cannot be used beside --config", "Write it in the file."
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
        found = [worker for worker in workers if worker["url"].rstrip("/") == url.rstrip("/")]
        if not found or not endpoint:
            raise ConfigError(
                flag,
                pair,
                "names no worker",
                "Write URL=ENDPOINT, with the URL of a --worker, for example "
                "http://127.0.0.1:8001=tcp://127.0.0.1:5557.",
            )
        for worker in found:
            worker[name] = endpoint
