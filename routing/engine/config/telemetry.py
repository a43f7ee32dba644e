"""Parse the access log, decision journal and tracing sections."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from routing.engine.config.fields import ConfigError, Fields
from routing.engine.config.schema import AccessLogConfig, JournalConfig, TracingConfig

_TRACES_PATH = "/v1/traces"


def parse_access_log(value: Any) -> AccessLogConfig:
    """Parse `off`, `errors`, `sample=SHARE`, `all`, or an object with `sample`."""
    if value is False:  # YAML parses a bare off as False
        value = "off"
    if isinstance(value, str):
        return _parse_access_log_text(value)
    fields = Fields(value, "access_log")
    base = AccessLogConfig()
    config = AccessLogConfig(
        sample=fields.number("sample", base.sample, 0, 1),
        errors=fields.flag("errors", base.errors),
    )
    fields.done()
    return config


def _parse_access_log_text(value: str) -> AccessLogConfig:
    word, _, number = value.partition("=")
    known = {
        "off": AccessLogConfig(0.0, errors=False),
        "errors": AccessLogConfig(0.0),
        "all": AccessLogConfig(1.0),
    }
    if word in known and not number:
        return known[word]
    try:
        share = float(number) if word == "sample" else -1.0
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ConfigError(
            "access_log",
            value,
            "is not a way to log",
            "Use off, errors, sample=0.01 (a share from 0 to 1) or all.",
        )
    return AccessLogConfig(share)


def parse_decisions(data: Any, base_dir: Path, keep: int) -> tuple[int, JournalConfig | None]:
    """Return the in-memory decision count and the journal configuration."""
    fields = Fields(data, "decisions")
    keep = fields.whole("keep", keep, 1, 1_000_000)
    name = fields.text("file", "")
    file = base_dir / name
    base = JournalConfig(file)
    journal = JournalConfig(
        file,
        fields.number("sample", base.sample, 0, 1),
        fields.whole("max_bytes", base.max_bytes, 65_536, 2**50),
    )
    fields.done()
    if name and not file.parent.is_dir():
        raise ConfigError(
            "decisions.file", name, "is in no folder", f"Make the folder {file.parent}."
        )
    return keep, journal if name else None


def parse_tracing(data: Any) -> TracingConfig | None:
    fields = Fields(data, "tracing")
    endpoint = fields.text("endpoint", "")
    base = TracingConfig(endpoint)
    sample = fields.number("sample", base.sample, 0, 1)
    timeout_s = fields.number("timeout_s", base.timeout_s, 0.1, 60)
    fields.done()
    if not endpoint:
        return None
    if "@" in endpoint:  # credentials must not appear in error messages
        raise ConfigError(
            "tracing.endpoint",
            "(hidden)",
            "holds a user or password",
            "Set OTEL_EXPORTER_OTLP_HEADERS in the router's environment.",
        )
    try:
        parts = urlsplit(endpoint)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(
            "tracing.endpoint", endpoint, "is not a URL", "For example http://127.0.0.1:4318."
        )
    if parts.path in ("", "/"):
        endpoint = endpoint.rstrip("/") + _TRACES_PATH
    return TracingConfig(endpoint, sample, timeout_s)
