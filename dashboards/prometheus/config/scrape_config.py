"""Scrape configuration for a Prometheus that follows this console: by requests (http_sd), or by a
file that the console writes (file_sd).

- The path is `/metrics` without a trailing slash: with one, vLLM answers OpenMetrics and its
  `vllm:` names become `vllm_`.
- `instance` is the worker's name, not its address, so series continue after a port change.
- LMCache's names get their colons back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote, urlsplit

TARGETS_PATH = "/prometheus/targets"
TARGETS_FILE = "targets.json"
OWN_PATH = "/prometheus/console"
OWN_S = 30
LMCACHE_NAMES = (
    "lmcache_((?:active|forced|get|is|local|lookup|num|pinned|put|remote|request|retrieve|store|time)"
    "_.+)"
)


class AlertmanagerTarget(NamedTuple):
    """Alertmanager at `address` (HOST:PORT) that Prometheus sends its alerts to."""

    address: str
    username: str
    password_file: str


def render(
    console_url: str,
    token_file: str,
    interval_s: int = 5,
    rule_files: tuple[str, ...] = (),
    targets_file: str = "",
    alertmanagers: tuple[AlertmanagerTarget, ...] = (),
) -> str:
    """Render prometheus.yml for a console at `console_url`; `token_file` holds the bearer token.
    `targets_file`: where the console writes the targets for a Prometheus of its own machine, which
    then requests none.
    """
    if interval_s < 1:
        raise ValueError(f"interval_s={interval_s} is below the minimum of 1 s")
    timeout_s = min(interval_s, 10)
    rules = json.dumps(list(rule_files))
    head = f"""\
# Written by Emberline at every start; changes here are lost.
global:
  scrape_interval: {interval_s}s
  scrape_timeout: {timeout_s}s
  evaluation_interval: {interval_s}s
rule_files: {rules}
"""
    head += "".join(map(_alerting, alertmanagers))
    jobs = scrape_configs(console_url, token_file, interval_s, targets_file=targets_file)
    return head + jobs + "".join(map(_alertmanager_job, alertmanagers))


def _alerting(target: AlertmanagerTarget) -> str:
    return f"""\
alerting:
  alertmanagers:
    - static_configs:
        - targets: [{json.dumps(target.address)}]
      basic_auth:
        username: {json.dumps(target.username)}
        password_file: {json.dumps(target.password_file)}
"""


def _alertmanager_job(target: AlertmanagerTarget) -> str:
    return f"""\
  # Notifications that failed.
  - job_name: alertmanager
    scrape_interval: {OWN_S}s
    basic_auth:
      username: {json.dumps(target.username)}
      password_file: {json.dumps(target.password_file)}
    static_configs:
      - targets: [{json.dumps(target.address)}]
        labels: {{instance: alertmanager}}
    metric_relabel_configs:
      - source_labels: [__name__]
        regex: alertmanager_(?:notification|alerts|silences|config|build).*
        action: keep
"""


def scrape_configs(
    console_url: str, token_file: str, interval_s: int, source: str = "", targets_file: str = ""
) -> str:
    """Render the scrape jobs that follow this console, limited to one metrics source if given."""
    base = console_url.rstrip("/")
    chosen = f"?source={quote(source)}" if source else ""
    # JSON strings are valid YAML for any path.
    token = json.dumps(token_file)
    targets = json.dumps(f"{base}{TARGETS_PATH}{chosen}")
    parts = urlsplit(base)
    discovery = f"""\
    http_sd_configs:
      - url: {targets}
        refresh_interval: {interval_s}s
        authorization:
          type: Bearer
          credentials_file: {token}
"""
    if targets_file:
        discovery = f"    file_sd_configs:\n      - files: [{json.dumps(targets_file)}]\n"
    return f"""\
scrape_configs:
  - job_name: emberline
    scrape_interval: {interval_s}s
    # Without a slash at its end, where vLLM keeps the colons in its names.
    metrics_path: /metrics
    # Our exporters name their endpoint and namespace themselves; keep them, without exported_.
    honor_labels: true
{discovery}    relabel_configs:
      - source_labels: [pod]
        regex: (.+)
        target_label: instance
    metric_relabel_configs:
      # Where OpenMetrics is spoken, LMCache inside a worker loses its colons. The names of its
      # server (lmcache_mp_) and of blending (lmcache_blend_) never had any, so all are listed.
      - source_labels: [__name__]
        regex: {LMCACHE_NAMES}
        target_label: __name__
        replacement: lmcache:$1
  # The console's own metrics, such as the spent share of a budget.
  - job_name: console
    metrics_path: {OWN_PATH}
    scheme: {parts.scheme}
    scrape_interval: {max(interval_s, OWN_S)}s
    authorization:
      type: Bearer
      credentials_file: {token}
    static_configs:
      - targets: [{json.dumps(parts.netloc)}]
        labels: {{instance: console}}
"""


# For static jobs only; the console's http_sd sets all three.
RELABELLING: Mapping[str, str] = {
    "namespace": """\
- source_labels: [__meta_kubernetes_namespace]
  target_label: namespace""",
    "endpoint_name": """\
- source_labels: [__meta_kubernetes_pod_label_app_kubernetes_io_instance]
  target_label: endpoint_name""",
    "pod": """\
- source_labels: [__meta_kubernetes_pod_name]
  target_label: pod""",
}
CREDENTIAL_PLACE = "/etc/prometheus/emberline-targets-token"


def scrape_config(console_url: str, source: str = "") -> str:
    """Render the `scrape_configs` section of prometheus.yml."""
    return scrape_configs(console_url, CREDENTIAL_PLACE, 15, source)
