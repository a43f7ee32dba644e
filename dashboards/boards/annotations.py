"""Annotations of a board's time range: changes, failures and fired alerts.

The number of queries is independent of the number of endpoints.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from django.db.models import Case, F, OuterRef, QuerySet, Subquery, TextField, Value, When
from django.db.models.fields.json import KT
from django.urls import reverse

from console.accounts.permissions import Somebody
from console.audit import selectors as trail
from dashboards.boards.queries import Scope
from dashboards.boards.results.targets import plan_alerts
from dashboards.prometheus.http.client import Asker, Series, Window
from endpoints import selectors
from endpoints.choices import AUTO_ROLLBACK, EventKind
from endpoints.models import EndpointEvent, Revision

Kind = Literal["deploy", "rollback", "strategy", "scale", "pause", "worker", "node", "alert"]
MAX_NOTES = 60

_EVENTS = {
    str(EventKind.ROLLED_BACK): "rollback",
    str(EventKind.WORKER_LOST): "worker",
    str(EventKind.WORKER_RESTARTED): "worker",
    str(EventKind.L2_LOST): "node",
    str(EventKind.L2_READY): "node",
}
# See `RoutingSpec.effective_strategy`.
_STRATEGY = Case(
    When(spec__routing__enabled=False, then=Value("roundrobin")),
    default=KT("spec__routing__strategy"),
    output_field=TextField(),
)
_NODES = ("cache-tier/", "cache-node/")
_LABELS = ("alertname", "endpoint", "endpoint_name", "namespace", "worker", "pod")


@dataclass(frozen=True, slots=True)
class Note:
    """Annotation on a chart. `at` and `end` in epoch seconds; `end` None: a moment, or not ended
    yet.
    """

    at: int
    kind: Kind
    text: str
    endpoint: str = ""
    who: str = ""
    url: str = ""
    end: int | None = None


def list_notes(asker: Asker, viewer: Somebody, scope: Scope, window: Window) -> dict[str, Any]:
    start = datetime.fromtimestamp(window.start, UTC)
    end = datetime.fromtimestamp(window.end + window.step, UTC)  # up to the next point
    notes: list[Note] = []
    for rows in (
        _list_revisions(viewer, scope, start, end),
        _list_events(viewer, scope, start, end),
        () if scope.endpoint else _list_node_changes(viewer, start, end),
        _list_alerts(asker, scope, window),
    ):
        notes += rows
    notes.sort(key=lambda note: (-note.at, note.kind, note.endpoint))
    kept_notes = notes[:MAX_NOTES]
    return {
        "notes": [asdict(note) for note in kept_notes],
        "notes_left_out": len(notes) - len(kept_notes),
    }


def _list_revisions(
    viewer: Somebody, scope: Scope, start: datetime, end: datetime
) -> Iterator[Note]:
    older = Revision.objects.filter(
        endpoint=OuterRef("endpoint"), number__lt=OuterRef("number")
    ).order_by("-number")
    rows = _filter_visible(Revision.objects.filter(created_at__range=(start, end)), viewer, scope)
    annotated = rows.annotate(
        name=F("endpoint__name"),
        strategy=_STRATEGY,
        replicas=KT("spec__replicas"),
        old_strategy=Subquery(older.annotate(s=_STRATEGY).values("s")[:1]),
        old_replicas=Subquery(older.annotate(r=KT("spec__replicas")).values("r")[:1]),
    ).values(
        *("created_at", "name", "number", "verb", "note", "author"),
        *("strategy", "replicas", "old_strategy", "old_replicas"),
    )
    for row in annotated.order_by("-created_at")[: MAX_NOTES + 1]:
        kind, text = _describe_revision(row)
        url = reverse("endpoints:revision", args=[row["name"], row["number"]])
        description = f"{text}: {row['note']}" if row["note"] else text
        yield Note(_to_epoch(row["created_at"]), kind, description, row["name"], row["author"], url)


def _describe_revision(row: dict[str, Any]) -> tuple[Kind, str]:
    verb, number = row["verb"], row["number"]
    if verb in ("rollback", AUTO_ROLLBACK):
        how = "Automatic rollback" if verb == AUTO_ROLLBACK else "Rollback"
        return "rollback", f"{how}: revision {number}"
    if verb in ("pause", "resume"):
        return "pause", "Paused" if verb == "pause" else "Resumed"
    if row["old_strategy"] and row["old_strategy"] != row["strategy"]:
        return "strategy", f"Strategy {row['old_strategy']} → {row['strategy']}"
    if verb == "scale":
        return "scale", f"Scaled {row['old_replicas']} → {row['replicas']}"
    return "deploy", "Created" if verb == "create" else f"Updated: revision {number}"


def _list_events(viewer: Somebody, scope: Scope, start: datetime, end: datetime) -> Iterator[Note]:
    events = EndpointEvent.objects.filter(kind__in=_EVENTS, first_at__range=(start, end))
    rows = _filter_visible(events, viewer, scope).values(
        "first_at", "endpoint__name", "kind", "message"
    )
    for row in rows.order_by("-first_at")[: MAX_NOTES + 1]:
        name = row["endpoint__name"]
        kind: Any = _EVENTS[row["kind"]]
        url = reverse("endpoints:events", args=[name])
        yield Note(_to_epoch(row["first_at"]), kind, row["message"], name, "", url)


def _filter_visible(rows: QuerySet[Any], viewer: Somebody, scope: Scope) -> QuerySet[Any]:
    if scope.endpoint:
        return rows.filter(endpoint__name=scope.endpoint)
    visible = selectors.endpoints(viewer).select_related(None).order_by()
    return rows.filter(endpoint__in=visible.values("pk"))


def _list_node_changes(viewer: Somebody, start: datetime, end: datetime) -> Iterator[Note]:
    for prefix in _NODES:
        rows = trail.list_events(target=prefix, viewer=viewer).filter(at__range=(start, end))
        for row in rows[: MAX_NOTES + 1]:
            what = f"{row.target.replace('/', ' ', 1).capitalize()}: {row.verb.rpartition('.')[2]}"
            yield Note(_to_epoch(row.at), "node", what, "", row.actor_name)


def _list_alerts(asker: Asker, scope: Scope, window: Window) -> Iterator[Note]:
    """An alert at the first point began earlier; one at the last point still fires."""
    question = plan_alerts(scope, window)
    alert_keys: set[tuple[str, ...]] = set()
    for series in asker.ask({"alerts": question})["alerts"].series:
        key = tuple(series.label(label) for label in _LABELS)
        if key in alert_keys:
            continue
        alert_keys.add(key)
        for first, last in series.runs:
            start = window.start + first * window.step
            over = last < len(series.values) - 1
            end = window.start + (last + 1) * window.step if over else None
            yield _alert(series, start, end, begun_before=first == 0)


def _alert(series: Series, at: int, end: int | None, *, begun_before: bool) -> Note:
    name = series.label("alertname")
    endpoint = series.label("endpoint") or series.label("endpoint_name")
    worker = series.label("worker") or series.label("pod")
    words = [f"{name} already firing" if begun_before else f"{name} fired"]
    words += [f"({worker})"] if worker else []
    return Note(at, "alert", " ".join(words), endpoint, end=end)


def _to_epoch(moment: datetime) -> int:
    return int(moment.timestamp())
