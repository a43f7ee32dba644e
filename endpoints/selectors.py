"""Reads of endpoints for pages, the API and other apps. The number of queries is constant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.db.models import Prefetch, Q, QuerySet
from django.db.models.fields.json import KT
from django.utils import timezone

from console.accounts.permissions import Somebody, filter_visible
from console.clusters import selectors as clusters
from endpoints.choices import Phase
from endpoints.keys import selectors, storage
from endpoints.lifecycle.components import EndpointFacts, WorkerFacts
from endpoints.models import NAMESPACE, DriftOrder, Endpoint, EndpointEvent, Replica, Revision
from endpoints.placement.capacity_check import stored_token_bytes
from endpoints.placement.installation import model_location
from endpoints.reconcile import roster
from endpoints.refusals import no_endpoint
from endpoints.spec.endpoint_spec import EndpointSpec


@dataclass(frozen=True, slots=True)
class WorkerTarget:
    address: str
    endpoint: str
    namespace: str
    worker: str
    simulated: bool
    path: str = ""
    interval_s: int = 0


def endpoints(viewer: Somebody = None) -> QuerySet[Endpoint]:
    """Return the visible endpoints with their status, including those being deleted. Without a
    viewer all are returned.
    """
    rows = Endpoint.objects.select_related("status", "created_by", "team").order_by("name")
    return rows if viewer is None else filter_visible(rows, viewer)


def listed(viewer: Somebody = None) -> QuerySet[Endpoint]:
    """Return the visible endpoints with name and phase only: a row has twenty texts to decode."""
    rows = endpoints(viewer).select_related(None).select_related("status")
    return rows.only("name", "deleted_at", "status__phase")


def existing(names: Iterable[str], viewer: Somebody = None) -> frozenset[str]:
    unique_names = {name for name in names if name}
    if not unique_names:
        return frozenset()
    return frozenset(endpoints(viewer).filter(name__in=unique_names).values_list("name", flat=True))


def phases() -> list[tuple[str, str, str]]:
    """Return name, phase and reason of each endpoint."""
    return list(endpoints().values_list("name", "status__phase", "status__reason"))


def get(name: str, viewer: Somebody = None) -> Endpoint:
    try:
        return endpoints(viewer).get(name=name)
    except Endpoint.DoesNotExist:
        raise no_endpoint(name) from None


def with_workers(viewer: Somebody = None) -> QuerySet[Endpoint]:
    """Return `endpoints` with their workers, in two queries."""
    ordered = Replica.objects.order_by("index", "name")
    return endpoints(viewer).prefetch_related(Prefetch("replicas", ordered))


def workers(endpoint: Endpoint) -> QuerySet[Replica]:
    return endpoint.replicas.order_by("index", "name")


def events(
    endpoint: Endpoint, *, severity: str = "", kind: str = "", text: str = ""
) -> QuerySet[EndpointEvent]:
    """Return events, latest first; `text` is searched in message and subject."""
    ordered = endpoint.events.order_by("-last_at", "-id")
    if severity:
        ordered = ordered.filter(severity=severity)
    if kind:
        ordered = ordered.filter(kind=kind)
    if text:
        ordered = ordered.filter(Q(message__icontains=text) | Q(subject__icontains=text))
    return ordered


def event_kinds(endpoint: Endpoint) -> list[str]:
    kinds = endpoint.events.order_by("kind").values_list("kind", flat=True)
    return list(kinds.distinct())


def revisions(endpoint: Endpoint) -> QuerySet[Revision]:
    return endpoint.revisions.order_by("-number")


def revision(endpoint: Endpoint, number: int) -> Revision | None:
    return endpoint.revisions.filter(number=number).first()


def specs_before(ids: Iterable[Any], moment: datetime) -> dict[Any, dict[str, Any]]:
    """Return the specs valid just before `moment` by endpoint id, in one query."""
    made = Revision.objects.filter(endpoint__in=list(ids), created_at__lt=moment)
    rows = made.order_by("number").values_list("endpoint_id", "spec")
    return dict(rows)


def first_created_at() -> datetime | None:
    return Endpoint.objects.order_by("created_at").values_list("created_at", flat=True).first()


def drift_orders(endpoint: Endpoint) -> QuerySet[DriftOrder]:
    return endpoint.drift_orders.order_by("created_at")


def facts(endpoint: Endpoint) -> EndpointFacts:
    placement, status = endpoint.parsed.placement, getattr(endpoint, "status", None)
    return EndpointFacts(
        id=str(endpoint.pk),
        name=endpoint.name,
        namespace=NAMESPACE,
        spec=endpoint.parsed,
        generation=endpoint.generation,
        model_folder=_model_folder(endpoint.parsed),
        l1_tokens=_l1_tokens(endpoint.parsed),
        cluster_namespace=clusters.namespace(placement.cluster, placement.namespace),
        keys=tuple(selectors.key_facts(selectors.keys_of_endpoint(endpoint), timezone.now())),
        url=status.url if status else "",
        wanted=status.wanted_replicas if status else None,
    )


def _model_folder(spec: EndpointSpec) -> str:
    location = "" if spec.on_cluster else model_location(spec.model)
    there = location.startswith("/") and Path(location).is_dir()
    return location if there and not spec.simulated else ""


def _l1_tokens(spec: EndpointSpec) -> int:
    l1 = spec.cache.l1
    each = stored_token_bytes(spec) if l1.enabled else None
    return int(l1.size_bytes / each) if each else 0


def worker_facts(endpoint: Endpoint) -> tuple[WorkerFacts, ...]:
    return roster.worker_facts(workers(endpoint))


def prometheus_targets_workers() -> list[WorkerTarget]:
    """Read without the endpoints' JSON: every scrape of the targets comes here. `path` "" and
    `interval_s` 0 are Prometheus' defaults. Without those of endpoints that disable metrics.
    """
    rows = Replica.objects.exclude(url="").filter(_is_scraped("endpoint__spec")).order_by("name")
    return [
        WorkerTarget(
            address=urlsplit(url).netloc,
            endpoint=endpoint,
            namespace=NAMESPACE,
            worker=name,
            simulated=simulated,
            path=path or "",
            interval_s=interval_s or 0,
        )
        for url, endpoint, name, simulated, path, interval_s in rows.values_list(
            *("url", "endpoint__name", "name", "simulated"),
            *("endpoint__spec__monitoring__path", "endpoint__spec__monitoring__interval_s"),
        )
    ]


def scraped() -> QuerySet[Endpoint]:
    """Return the endpoints that do not disable metrics."""
    return endpoints().filter(_is_scraped("spec"))


def _is_scraped(spec: str) -> Q:
    """Select without the endpoints that disable metrics; mostly specs lack the section."""
    enabled = f"{spec}__monitoring__enabled"
    return Q(**{enabled: True}) | Q(**{f"{enabled}__isnull": True})


def simulated_names(viewer: Somebody = None) -> list[str]:
    related = endpoints(viewer).select_related(None)
    simulated = related.filter(spec__engine="simulated")
    running = related.filter(replicas__simulated=True)
    return list((simulated | running).distinct().order_by("name").values_list("name", flat=True))


def uses_strategy(strategy: str) -> Q:
    """Select by the strategy in effect, see `RoutingSpec.effective_strategy`."""
    if strategy == "roundrobin":
        return Q(spec__routing__strategy=strategy) | Q(spec__routing__enabled=False)
    return Q(spec__routing__strategy=strategy, spec__routing__enabled=True)


def on_cache_tier() -> QuerySet[Endpoint]:
    """Return the endpoints with L2 on a cache tier of ours; `parsed` names the tier."""
    return endpoints().filter(
        spec__cache__l2__enabled=True, spec__cache__l2__backend="tieredstorage"
    )


@dataclass(frozen=True, slots=True)
class FleetFacts:
    """Facts of the visible endpoints; `reconciled_at` is the latest update of any status."""

    names: tuple[str, ...] = ()
    phases: Mapping[str, int] = field(default_factory=dict)
    served: bool = False
    reconciled_at: datetime | None = None


def read_fleet(viewer: Somebody = None) -> FleetFacts:
    """Read with one query."""
    status = ("phase", "served_once", "updated_at")
    fields = ("name", "deleted_at", *(f"status__{column}" for column in status))
    rows = list(endpoints(viewer).values_list(*fields))
    phases = Counter(str(Phase.DELETING if row[1] else row[2]) for row in rows)
    updates = [row[4] for row in rows if row[4] is not None]
    served = any(row[3] for row in rows)
    return FleetFacts(tuple(row[0] for row in rows), phases, served, max(updates, default=None))


def endpoint_clusters(only: str = "") -> Iterable[tuple[str, str]]:
    """Yield name and cluster ("" for none) of all endpoints or of `only`, without reading whole
    specs.
    """
    rows = Endpoint.objects.filter(name=only) if only else Endpoint.objects.order_by("name")
    clusters = rows.values_list("name", KT("spec__placement__cluster"))
    return ((name, cluster or "") for name, cluster in clusters)


def endpoint_namespaces() -> Iterable[tuple[str, str]]:
    """Yield each cluster and namespace ("" for none) with endpoints."""
    rows = Endpoint.objects.order_by().values_list(
        KT("spec__placement__cluster"), KT("spec__placement__namespace")
    )
    return ((cluster or "", namespace or "") for cluster, namespace in rows.distinct())


def has_keys(viewer: Somebody = None) -> bool:
    return selectors.visible_keys(viewer).exists()


def cluster_context(endpoint: Endpoint) -> dict[str, Any]:
    status = endpoint.status
    rolled = status.rolled_back
    back = bool(rolled) and endpoint.generation == rolled["failed"] + 1
    on_cluster = endpoint.parsed.on_cluster
    rolling = (
        on_cluster and status.served_once and 0 < status.served_generation < endpoint.generation
    )
    return {
        "on_cluster": on_cluster,
        "wanted_replicas": wanted_replicas(endpoint),
        "rolled_back": rolled if back else None,
        "serving_meanwhile": status.served_generation if rolling else 0,
        "conditions": _with_times(status.conditions),
        "drift": _with_times(status.drift),
        "drifted_workloads": sorted({row["workload"] for row in status.drift}),
        "pods": status.pods,
    }


def _with_times(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "since_at": roster.moment(row["since"])} for row in rows]


def wanted_replicas(endpoint: Endpoint) -> int:
    recorded = endpoint.status.wanted_replicas
    return int(endpoint.spec["replicas"] if recorded is None else recorded)


def ask_url(endpoint: Endpoint) -> str:
    """Return the console's URL of the router; callers on a cluster use another one."""
    parts = endpoint.status.parts.values()
    return next((part["ask_url"] for part in parts if part.get("ask_url")), endpoint.status.url)


def console_key(endpoint: Endpoint) -> str:
    """Return the secret of the console's own key, "" without one. Never display or log it."""
    return storage.read_console_key(endpoint.name)


def document(endpoint: Endpoint) -> dict[str, Any]:
    """Return the representation for API and command line. Prefetch with `with_workers`."""
    status = endpoint.status
    return {
        "id": str(endpoint.pk),
        "name": endpoint.name,
        "team": endpoint.team.slug if endpoint.team else None,
        "phase": str(endpoint.shown_phase),
        "reason": status.reason,
        "message": status.message,
        "remedy": status.remedy,
        "detail": status.detail,
        "generation": endpoint.generation,
        "observed_generation": status.observed_generation,
        "url": status.url,
        "replicas": endpoint.spec["replicas"],
        "ready_replicas": status.ready_replicas,
        "wanted_replicas": wanted_replicas(endpoint),
        "served_revision": status.served_generation,
        "public_url": status.public_url,
        "rolled_back": status.rolled_back or None,
        "conditions": status.conditions,
        "drift": status.drift,
        "simulated": endpoint.spec["engine"] == "simulated",
        "phase_since": status.phase_since,
        "seen_at": status.updated_at,
        "created_at": endpoint.created_at,
        "changed_at": endpoint.changed_at,
        "created_by": endpoint.created_by.get_username() if endpoint.created_by else "system",
        "spec": endpoint.spec,
        "steps": status.steps,
        "workers": [worker_document(replica) for replica in endpoint.replicas.all()],
    }


def get_with_workers(name: str, viewer: Somebody = None) -> Endpoint:
    endpoint = with_workers(viewer).filter(name=name).first()
    if endpoint is None:
        raise no_endpoint(name)
    return endpoint


def worker_document(replica: Replica) -> dict[str, Any]:
    return {
        "name": replica.name,
        "state": "draining" if replica.draining_since else replica.state,
        "url": replica.url,
        "pid": replica.pid,
        "started_at": replica.started_at,
        "restarts": replica.restarts,
        "simulated": replica.simulated,
        "message": replica.message,
        "reason": replica.reason,
        "stage": replica.stage,
        "node": replica.node,
        "containers": replica.containers,
    }
