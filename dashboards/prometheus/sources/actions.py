"""Changes (admin role) and tests (operator role) of metrics sources, audited without secrets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from console.accounts.credentials import stored_actor
from console.accounts.models import User
from console.accounts.permissions import require
from console.audit.record import HIDDEN, record
from console.core.errors import Problem, Refused, expect_generation
from console.vault import encryption
from console.vault.key_rotation import EncryptedColumns
from dashboards.prometheus.sources import diagnosis, selectors, validation
from dashboards.prometheus.sources.models import MetricsSource

SEALED = EncryptedColumns(
    MetricsSource,
    ("sealed",),
    purpose=lambda source, name: source.purpose(name),
    title=lambda source: f"metrics-source/{source.name}",
)


def add(actor: User, name: Any, data: Mapping[str, Any]) -> MetricsSource:
    require(actor, "admin")
    fields = validation.validate_source(name, data)
    try:
        with transaction.atomic():
            _expect_free(fields, None)
            source = MetricsSource(name=name, created_by=stored_actor(actor))
            _set(source, fields)
            source.save(force_insert=True)
            record(actor, "create", f"metrics-source/{name}", _hide_secrets(fields))
    except IntegrityError:
        text = f"A source {name}, or one for that cluster, already exists."
        problem = Problem(
            "name", name, text, "Use another name, or edit the existing source.", "taken"
        )
        raise Refused(problem, status_code=409) from None
    return source


def change(
    actor: User, name: str, data: Mapping[str, Any], *, expected_generation: int | None = None
) -> MetricsSource:
    require(actor, "admin")
    try:
        with transaction.atomic():
            source = _lock_source(name)
            expect_generation(f"Source {name}", source.generation, expected_generation)
            fields = validation.validate_source(name, data, source)
            changed = {
                key: value
                for key, value in fields.items()
                if key in validation.SECRETS or getattr(source, key) != value
            }
            if not changed:
                return source
            _expect_free(fields, source)
            before = {key: getattr(source, key, "") for key in changed}
            _set(source, changed)
            source.generation += 1
            source.changed_at = timezone.now()
            source.verified_at, source.found = None, {}
            source.save()
            old, new = _hide_secrets(before), _hide_secrets(changed)
            trail = {key: [old[key], new[key]] for key in changed}
            record(actor, "update", f"metrics-source/{name}", trail)
    except IntegrityError:
        raise _make_taken(fields["cluster"]) from None
    return source


def remove(actor: User, name: str, *, expected_generation: int | None = None) -> None:
    require(actor, "admin")
    with transaction.atomic():
        source = _lock_source(name)
        expect_generation(f"Source {name}", source.generation, expected_generation)
        source.delete()
        record(actor, "delete", f"metrics-source/{name}")


def test(actor: User, name: str) -> MetricsSource:
    """Examine the source now and store the result. No transaction is open during the requests."""
    require(actor, "operator")
    source = selectors.get(name)
    if source is None:
        raise _make_not_found(name)
    report = diagnosis.examine(selectors.make_source_ref(source))
    source.found, source.verified_at = report, timezone.now()
    # Only if the source was not changed during the test.
    MetricsSource.objects.filter(pk=source.pk, generation=source.generation).update(
        found=source.found, verified_at=source.verified_at
    )
    return source


def _expect_free(facts: Mapping[str, Any], source: MetricsSource | None) -> None:
    others = MetricsSource.objects.filter(enabled=True, cluster=facts["cluster"])
    if facts["cluster"] is None:
        others = MetricsSource.objects.filter(enabled=True, cluster__isnull=True)
    if source is not None:
        others = others.exclude(pk=source.pk)
    if facts["enabled"] and others.exists():
        raise _make_taken(facts["cluster"])


def _make_taken(cluster: str | None) -> Refused:
    what = f"cluster {cluster}" if cluster else "endpoints whose cluster has no own source"
    text = f"A source for {what} already exists."
    remedy = "Edit that source, or disable it first."
    return Refused(Problem("cluster", cluster, text, remedy, "taken"), status_code=409)


def _set(source: MetricsSource, facts: Mapping[str, Any]) -> None:
    for key, value in facts.items():
        if key in validation.SECRETS:
            source.sealed = {**source.sealed, key: encryption.seal(value, source.purpose(key))}
        else:
            setattr(source, key, value)


def _hide_secrets(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {key: HIDDEN if key in validation.SECRETS else value for key, value in facts.items()}


def _lock_source(name: str) -> MetricsSource:
    source = MetricsSource.objects.select_for_update().filter(name=name).first()
    if source is None:
        raise _make_not_found(name)
    return source


def _make_not_found(name: str) -> Refused:
    text = f"Metrics source {name} does not exist."
    return Refused(
        Problem("name", name, text, "Choose one from the list of metrics sources.", "not_found"),
        status_code=404,
    )
