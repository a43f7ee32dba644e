"""Plan and apply manifests as endpoints.

A text is applied as a whole or not at all. A dry run reports exactly the changes and errors of the
apply. Writes go through `actions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from django.conf import settings
from django.db import transaction

from cachetier.selectors import tier_clusters
from console.clusters.selectors import default_cluster
from console.core.errors import Problem
from endpoints import actions, teams
from endpoints.actions import Actor
from endpoints.manifests import advice, documents, exporter, foreign, importer, objects, rules
from endpoints.manifests.objects import Note
from endpoints.models import Endpoint
from endpoints.refusals import name_taken, no_endpoint
from endpoints.spec.endpoint_spec import EndpointSpec, FieldChange, SpecErrors, diff, flatten, nest
from endpoints.spec.fields import BY_PATH
from endpoints.spec.rules import check
from endpoints.spec.validators import redact

NOT_SHOWN = frozenset({"manifest"})
"""Omitted from the diff; its changes appear in other fields."""


class PlannedVerb(StrEnum):
    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    NOTHING = "unchanged"


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """Planned change of one object, with advisories. `data` is the input of `actions`; `generation`
    that of the endpoint it was compared with.
    """

    object: str
    name: str
    does: PlannedVerb
    data: Mapping[str, Any]
    generation: int | None = None
    changes: tuple[FieldChange, ...] = ()
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True, slots=True)
class ManifestTarget:
    """Where a manifest is applied. `cluster` "": this machine. A namespace in an object takes
    precedence.
    """

    cluster: str = ""
    namespace: str = ""


def plan(
    actor: Actor, given: str | list[dict[str, Any]], where: ManifestTarget = ManifestTarget()
) -> list[PlannedChange]:
    teams.require_any_team(actor)
    manifests = (
        documents.read_documents(given)
        if isinstance(given, str)
        else documents.check_documents(given)
    )
    where = where if where.cluster else replace(where, cluster=default_cluster())
    planned: list[PlannedChange] = []
    errors: list[Problem] = []
    for index, document in enumerate(manifests):
        try:
            planned.append(plan_one(document, where, actor=actor))
        except SpecErrors as error:
            errors += [_number_paths(item, index, len(manifests)) for item in error.errors]
    errors += _duplicate_errors(planned)
    if errors:
        raise SpecErrors(errors)
    return planned


def apply(
    actor: Actor, given: str | list[dict[str, Any]], where: ManifestTarget = ManifestTarget()
) -> list[PlannedChange]:
    planned = plan(actor, given, where)
    with transaction.atomic():
        for planned_item in planned:
            apply_change(actor, planned_item)
    return planned


def apply_change(actor: Actor, one: PlannedChange) -> None:
    if one.does is PlannedVerb.CREATE:
        actions.create(actor, one.data)
    elif one.does is PlannedVerb.UPDATE:
        actions.update(actor, one.name, one.data, expected_generation=one.generation, verb="apply")


def export_endpoint(name: str) -> dict[str, Any]:
    endpoint = Endpoint.objects.filter(name=name).first()
    if endpoint is None:
        raise no_endpoint(name)
    return _exported(endpoint.parsed)


def _exported(spec: EndpointSpec) -> dict[str, Any]:
    return exporter.manifest(spec, settings.EMBERLINE.worker_image)


def plan_one(
    document: Mapping[str, Any],
    where: ManifestTarget,
    name: str = "",
    actor: Actor = actions.SYSTEM,
) -> PlannedChange:
    """`name`: of the endpoint, if not derived from the object."""
    foreign_text = foreign.explain(document)
    if foreign_text is not None:
        raise SpecErrors([foreign_text])
    document = foreign.convert(document) or document
    if not objects.is_manifest(document):
        return _compare_with_stored(actor, str(document.get("name", "")), document, "endpoint", ())
    manifest = objects.read(document, settings.EMBERLINE.worker_image)
    errors = rules.errors(manifest)
    if errors:
        raise SpecErrors(errors)
    data = _choose_tier(_apply_target(importer.data(manifest), where, name))
    try:
        return _compare_with_stored(
            actor, data["name"], data, manifest.shown, tuple(advice.notes(manifest))
        )
    except SpecErrors as error:
        raise SpecErrors(_of_object(error, manifest, where)) from error


def _apply_target(data: dict[str, Any], where: ManifestTarget, name: str) -> dict[str, Any]:
    flat = flatten(data)
    if where.cluster:
        flat["placement.cluster"] = where.cluster
        flat.setdefault("placement.namespace", where.namespace)
    else:
        flat.pop("placement.namespace", None)
    if name:
        flat["name"] = name
    return nest(flat)


def _choose_tier(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data with the only cache tier of its place, unless it names one that exists."""
    flat = flatten(data)
    tiers = tier_clusters()
    tier = flat.get("cache.l2.tier", BY_PATH["cache.l2.tier"].default)
    cluster = flat.get("placement.cluster", "")
    here = [name for name, tier_cluster in tiers.items() if tier_cluster == cluster]
    wants = flat.get("cache.l2.enabled") and flat.get("cache.l2.backend") != "redis"
    if not wants or tier in tiers or "cache.l2.tier" in flat or len(here) != 1:
        return data
    return nest(flat | {"cache.l2.tier": here[0]})


def _compare_with_stored(
    actor: Actor, name: str, data: Mapping[str, Any], shown: str, notes: tuple[Note, ...]
) -> PlannedChange:
    stored = Endpoint.objects.select_related("team").filter(name=name).first()
    if stored is not None and not teams.is_visible(actor, stored):
        raise SpecErrors([name_taken(name)])  # no details of another team's endpoint
    before = stored.parsed if stored else None
    team = stored.team if stored else teams.team_of_new(actor, None)
    spec = check(data, teams.context(actor, team, name if stored else ""), before)
    if stored is None or before is None:
        blank = EndpointSpec(name="", model="")
        return PlannedChange(
            shown, spec.name, PlannedVerb.CREATE, data, None, diff(blank, spec), notes
        )
    changes = diff(before, spec)
    if spec.manifest and spec.manifest == _exported(before):
        changes = tuple(change for change in changes if change.path != "manifest")
    does = PlannedVerb.UPDATE if changes else PlannedVerb.NOTHING
    return PlannedChange(shown, name, does, data, stored.generation, changes, notes)


def _of_object(
    error: SpecErrors, manifest: objects.Manifest, where: ManifestTarget
) -> list[Problem]:
    """Map errors to paths in the object. A cluster object without a cluster gives one error."""
    if not where.cluster and any(item.code == "cluster_only" for item in error.errors):
        message = "The object requires a cluster, and none is given."
        remedy = (
            "Give --cluster NAME (emberline cluster list shows them), ?cluster=NAME in REST, or "
            "choose one on the page."
        )
        return [Problem("placement.cluster", "", message, remedy, "cluster_only")]
    return [importer.locate_in_object(item, manifest) for item in error.errors]


def _number_paths(error: Problem, index: int, count: int) -> Problem:
    return error if count == 1 else replace(error, field=f"[{index}].{error.field}".rstrip("."))


def _duplicate_errors(planned: list[PlannedChange]) -> list[Problem]:
    names = [change.name for change in planned]
    return [
        Problem(
            f"[{index}].metadata.name",
            name,
            f"Another object of the text is the endpoint {name}, too.",
            "Rename one of them.",
            "duplicate",
        )
        for index, name in enumerate(names)
        if name in names[:index]
    ]


def document(one: PlannedChange) -> dict[str, Any]:
    return {
        "object": one.object,
        "name": one.name,
        "action": str(one.does),
        "changes": [
            {
                "field": change.path,
                "label": change.label,
                "before": redact(change.path, change.before),
                "after": redact(change.path, change.after),
                "effect": str(change.effect),
            }
            for change in shown_changes(one)
        ],
        "notes": [
            {
                "field": note.path,
                "code": note.code,
                "kind": str(note.mark),
                "message": note.message,
                "remedy": note.remedy,
            }
            for note in one.notes
        ],
    }


def shown_changes(one: PlannedChange) -> list[FieldChange]:
    return [change for change in one.changes if change.path not in NOT_SHOWN]
