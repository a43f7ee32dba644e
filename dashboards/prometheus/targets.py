"""Scrape targets for Prometheus (http_sd, bearer token), and the console's own endpoint metrics."""

from __future__ import annotations

import hmac
import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, JsonResponse
from django.utils import timezone

from cachetier import selectors as cache_selectors
from console.processkit.files import write_private
from console.processkit.metrics import CONTENT_TYPE, Registry
from console.system.collector import MetricsCollector
from console.telemetry import meters
from dashboards.alerts.settings.rule_file import rule_file_location
from dashboards.boards.queries.metric_names import (
    ENDPOINT_PHASE,
    ENDPOINT_TRANSITION,
    WORKER_STARTING,
)
from dashboards.prometheus.config.scrape_config import TARGETS_FILE
from dashboards.prometheus.sources import selectors as metrics
from endpoints import selectors as endpoint_selectors
from endpoints.reconcile import transitions
from endpoints.router import selectors as routing_selectors

log = logging.getLogger(__name__)
_TIMEOUT_S = 10  # Prometheus' default


@dataclass(frozen=True, slots=True)
class ScrapeTarget:
    """Target that Prometheus scrapes. `address` is HOST:PORT, `path` "" /metrics, `interval_s` 0
    the configured one. Empty labels are omitted.
    """

    address: str
    job: str
    pod: str
    namespace: str = ""
    endpoint_name: str = ""
    pool: str = ""
    path: str = ""
    interval_s: int = 0
    cluster: str = ""  # for targets of no endpoint; not exported as a label

    def group(self) -> dict[str, object]:
        labels = {
            "job": self.job,
            "namespace": self.namespace,
            "endpoint_name": self.endpoint_name,
            "pool": self.pool,
            "pod": self.pod,
            "__metrics_path__": self.path,
        }
        if self.interval_s:  # a timeout may not exceed it
            labels["__scrape_interval__"] = f"{self.interval_s}s"
            labels["__scrape_timeout__"] = f"{min(self.interval_s, _TIMEOUT_S)}s"
        return {
            "targets": [self.address],
            "labels": {name: value for name, value in labels.items() if value},
        }


class Transitions(MetricsCollector[transitions.ExpectedAbsence]):
    """Endpoints and workers whose absence is currently expected; alert rules exclude them."""

    unknown = "transitions_unknown"
    kept_s: ClassVar[float] = 5.0

    def read(self) -> Sequence[transitions.ExpectedAbsence]:
        return transitions.expected_absences(timezone.now())

    def add_series(self, registry: Registry, row: transitions.ExpectedAbsence) -> None:
        name = row.endpoint
        if row.transition is not None:
            text = "1 while the endpoint starts, updates or stops and its start is not overdue."
            kind = str(row.transition)
            registry.gauge(ENDPOINT_TRANSITION, text, endpoint_name=name, kind=kind).set(1)
        for worker in row.workers:
            text = "1 while the worker starts for the first time and is not overdue."
            registry.gauge(WORKER_STARTING, text, endpoint_name=name, worker=worker).set(1)


class Phases(MetricsCollector[tuple[str, str, str]]):
    """Phase and reason of each endpoint."""

    unknown = "phases_unknown"
    kept_s: ClassVar[float] = 5.0

    def read(self) -> Sequence[tuple[str, str, str]]:
        return endpoint_selectors.phases()

    def add_series(self, registry: Registry, row: tuple[str, str, str]) -> None:
        name, phase, reason = row
        text = "1 for the endpoint's current phase and reason."
        labels = {"namespace": endpoint_selectors.NAMESPACE, "endpoint": name}
        registry.gauge(ENDPOINT_PHASE, text, **labels, phase=phase, reason=reason).set(1)


def list_targets() -> Iterator[ScrapeTarget]:
    """Yield every target with an address, ready or not, so that down targets appear as down."""
    for worker in endpoint_selectors.prometheus_targets_workers():
        yield ScrapeTarget(
            worker.address,
            "vllm",
            worker.worker,
            worker.namespace,
            worker.endpoint,
            path=worker.path,
            interval_s=worker.interval_s,
        )
    for router in routing_selectors.targets():
        # Router metrics carry `endpoint`; `endpoint_name` makes `up` uniform across jobs.
        pod = f"{router.endpoint}-router-{router.index}"
        yield ScrapeTarget(router.address, "router", pod, router.namespace, router.endpoint)
    for node in cache_selectors.targets():
        yield ScrapeTarget(node.address, "l2", node.name, pool=node.tier, cluster=node.cluster)


def make_document(targets: Iterable[ScrapeTarget]) -> list[dict[str, object]]:
    return [
        target.group() for target in sorted(targets, key=lambda t: (t.job, t.pod)) if target.address
    ]


def select_source_targets(
    targets: Iterable[ScrapeTarget], source: str, in_use: Sequence[metrics.MetricsSourceRef]
) -> Iterator[ScrapeTarget]:
    """Yield the source's own targets: a Prometheus cannot reach pods of other clusters."""
    if len(in_use) == 1:
        yield from targets if in_use[0].name == source else ()
        return
    owners = metrics.map_endpoints(in_use)
    for target in targets:
        owner = owners.get(target.endpoint_name, "") if target.endpoint_name else ""
        if (owner or metrics.get_source_of_cluster(target.cluster, in_use).name) == source:
            yield target


class TargetsFile:
    """Targets for the Prometheus that this installation runs, which reads each change of the file.
    Compared every few seconds by the scheduler: a request costs four times as much.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of_installation(cls) -> TargetsFile | None:
        """Return None without a Prometheus of its own."""
        rules = rule_file_location()
        return cls(rules.file.with_name(TARGETS_FILE)) if rules is not None else None

    def is_current(self) -> bool:
        return self.path.is_file() and self.path.read_text() == self._render()

    def update(self) -> None:
        write_private(self.path, self._render())

    def _render(self) -> str:
        chosen = select_source_targets(list_targets(), metrics.OWN, metrics.list_in_use())
        return json.dumps(make_document(chosen), indent=1)


@login_not_required
def own_metrics(request: HttpRequest) -> HttpResponse:
    if not _is_authorized(request.headers.get("Authorization", "")):
        return _make_refusal()
    if request.method not in ("GET", "HEAD"):
        return HttpResponseNotAllowed(("GET", "HEAD"))
    return HttpResponse(meters.render("web", {}), content_type=CONTENT_TYPE)


@login_not_required
def targets(request: HttpRequest) -> HttpResponse:
    if not _is_authorized(request.headers.get("Authorization", "")):
        return _make_refusal()
    if request.method not in ("GET", "HEAD"):
        return HttpResponseNotAllowed(("GET", "HEAD"))
    source = request.GET.get("source", "")
    if not source:
        return JsonResponse(make_document(list_targets()), safe=False)
    in_use = metrics.list_in_use()
    if source not in {metrics.OWN, *(source.name for source in in_use)}:
        text = f"Metrics source {source} does not exist or is disabled.\n"
        return HttpResponse(text, status=404, content_type="text/plain")
    return JsonResponse(
        make_document(select_source_targets(list_targets(), source, in_use)), safe=False
    )


def _make_refusal() -> HttpResponse:
    text = "Send the token of var/secrets/targets_token as a bearer token.\n"
    refused = HttpResponse(text, status=401, content_type="text/plain")
    refused["WWW-Authenticate"] = 'Bearer realm="emberline targets"'
    return refused


def _is_authorized(header: str) -> bool:
    """Return whether the header has our token; False while the console has none."""
    scheme, _, offered = header.partition(" ")
    try:
        # Read each time: a replaced token takes effect at once.
        expected = settings.EMBERLINE.targets_token_file.read_bytes().strip()
    except OSError as error:
        log.warning("Cannot read the scrape token; rejecting the request: %s", error.strerror)
        return False
    same = hmac.compare_digest(offered.strip().encode("utf-8", "surrogateescape"), expected)
    return bool(expected) and scheme.lower() == "bearer" and same
