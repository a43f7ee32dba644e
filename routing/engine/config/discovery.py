"""Parse discovery sources: DNS names and Kubernetes Services."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from routing.engine.config.fields import ConfigError, Fields
from routing.engine.config.schema import DiscoveryConfig, DnsName, KubernetesConfig, Service

T = TypeVar("T")
_DNS = re.compile(r"(https://)?([A-Za-z0-9_]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?\.?):(\d{1,5})")
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_SERVICE = re.compile(rf"(https://)?({_LABEL})/({_LABEL})(?::({_LABEL}))?")


def parse_dns(name: str, value: str) -> DnsName:
    found = _DNS.fullmatch(value)
    if found is None or not 0 < int(found[4]) < 65536:
        raise ConfigError(
            name, value, "must be NAME:PORT", "For example workers.default.svc:8000, or https://..."
        )
    return DnsName(found[2], int(found[4]), tls=bool(found[1]))


def parse_service(name: str, value: str) -> Service:
    found = _SERVICE.fullmatch(value)
    if found is None:
        raise ConfigError(
            name,
            value,
            "must be NAMESPACE/SERVICE or NAMESPACE/SERVICE:PORT-NAME",
            "For example default/workers:http, or https://default/workers.",
        )
    return Service(found[2], found[3], found[4] or "", tls=bool(found[1]))


def _parse_list(fields: Fields, key: str, parse: Callable[[str, str], T]) -> tuple[T, ...]:
    items = fields.take(key, [])
    if not isinstance(items, list):
        raise ConfigError(fields.name(key), items, "must be a list", "Write [] for none.")
    out: list[T] = []
    for index, item in enumerate(items):
        name = f"{fields.name(key)}[{index}]"
        if not isinstance(item, str):
            raise ConfigError(name, item, "must be text", "Put it in quotes.")
        parsed = parse(name, item)
        if parsed in out:
            raise ConfigError(name, item, "is listed twice", "Remove one of them.")
        out.append(parsed)
    return tuple(out)


def parse_discovery(data: Any, base_dir: Path) -> DiscoveryConfig:
    fields = Fields(data, "discovery")
    base = DiscoveryConfig()
    api = Fields(fields.take("kubernetes", {}), "discovery.kubernetes")
    server = api.text("server", "", re.compile(r"https?://[^/?#@\s]+/?"))
    token_file, ca_file = api.text("token_file", ""), api.text("ca_file", "")
    api.done()
    config = DiscoveryConfig(
        dns=_parse_list(fields, "dns", parse_dns),
        dns_interval_s=fields.number("dns_interval_s", base.dns_interval_s, 0.1, 3600),
        services=_parse_list(fields, "endpointslices", parse_service),
        kubernetes=KubernetesConfig(
            server.rstrip("/"),
            base_dir / token_file if token_file else None,
            base_dir / ca_file if ca_file else None,
        ),
    )
    fields.done()
    return config
