"""What to write into the configuration of one's own Prometheus. Pure text, no secret in it."""

from __future__ import annotations

from collections.abc import Mapping

from dashboards.prometheus.config.scrape_config import scrape_configs

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
