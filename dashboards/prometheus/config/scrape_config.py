"""The scrape configuration of the Prometheus that this machine runs for itself.

Promises that what to scrape is asked of the console (http_sd), so nobody edits a file when an
endpoint comes or goes, and that the token is named by its file, never written here. Pure text;
must not know Django.

Three traps are met here. The path is `/metrics` without a slash: with one, vLLM answers OpenMetrics
and its `vllm:` names become `vllm_`. And `instance` is the worker's name rather than its address,
so that a worker which comes back on another port continues its series. And LMCache's
names get their colons back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from urllib.parse import quote, urlsplit

TARGETS_PATH = "/prometheus/targets"
OWN_PATH = "/prometheus/console"
OWN_S = 30
LMCACHE_NAMES = (
    "lmcache_((?:active|forced|get|is|local|lookup|num|pinned|put|remote|request|retrieve|store|time)"
    "_.+)"
)


def render(
    console_url: str,
    token_file: str,
    interval_s: int = 5,
    rule_files: tuple[str, ...] = (),
    source: str = "",
) -> str:
    """prometheus.yml for a console at `console_url`, whose targets need the token in the file."""
    if interval_s < 1:
        raise ValueError(f"interval_s={interval_s}: a scrape interval is at least 1 second")
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
    return head + scrape_configs(console_url, token_file, interval_s, source)


def scrape_configs(console_url: str, token_file: str, interval_s: int, source: str = "") -> str:
    """The part of a prometheus.yml which follows this console; `source`: only what that metrics
    source is for."""
    base = console_url.rstrip("/")
    chosen = f"?source={quote(source)}" if source else ""
    # JSON's quoted texts are valid YAML, whatever a path holds.
    token = json.dumps(token_file)
    targets = json.dumps(f"{base}{TARGETS_PATH}{chosen}")
    parts = urlsplit(base)
    return f"""\
scrape_configs:
  - job_name: emberline
    scrape_interval: {interval_s}s
    # Without a slash at its end, where vLLM keeps the colons in its names.
    metrics_path: /metrics
    # Our exporters name their endpoint and namespace themselves; keep them, without exported_.
    honor_labels: true
    http_sd_configs:
      - url: {targets}
        refresh_interval: {interval_s}s
        authorization:
          type: Bearer
          credentials_file: {token}
    relabel_configs:
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
  # What the console itself tells, such as how much of a budget is spent.
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


# For one's own jobs; with the console's http_sd all three come by themselves.
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
    """A part of prometheus.yml: jobs which follow the console."""
    return scrape_configs(console_url, CREDENTIAL_PLACE, 15, source)
