"""Changes (admin role) and tests (operator role) of metrics sources, audited without secrets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from console.accounts.credentials import stored_actor
from console.accounts.models import User
from console.accounts.permissions import require
from console.audit.record import HIDDEN, diff, record
from console.core.errors import Gathered, Problem, Refused, expect_generation
from console.resources.fields import ModelFields
from console.vault import encryption
from console.vault.key_rotation import EncryptedColumns
from dashboards.prometheus.http.login import Auth, Login, LoginError
from dashboards.prometheus.sources import diagnosis, selectors
from dashboards.prometheus.sources.models import MetricsSource

FIELDS = ModelFields(
    MetricsSource,
    (
        *("url", "cluster", "alertmanager_url", "enabled", "auth", "username", "secret_file"),
        *("ca", "certificate", "key_file", "region", "service", "tenant", "tenant_header"),
    ),
    key="name",
)
SECRETS = ("secret", "key")
"""Fields that are no columns: stored sealed, never shown."""
_MOST_BYTES = 64 * 1024
_NEEDED: Mapping[str, tuple[str, ...]] = {
    Auth.BEARER: ("secret",),
    Auth.BASIC: ("username", "secret"),
    Auth.MTLS: ("certificate", "key"),
    Auth.SIGV4: ("region",),
}

SEALED = EncryptedColumns(
    MetricsSource,
    ("sealed",),
    purpose=lambda source, name: source.purpose(name),
    title=lambda source: f"metrics-source/{source.name}",
)


def add(actor: User, name: Any, data: Mapping[str, Any]) -> MetricsSource:
    require(actor, "admin")
    source = MetricsSource(name=name, created_by=stored_actor(actor))
    secrets = _fill(source, data)
    _expect_free(source)
    try:
        with transaction.atomic():
            _seal(source, secrets)
            source.save(force_insert=True)
            values = diff({}, FIELDS.values(source)) | _hide(secrets)
            record(actor, "create", f"metrics-source/{name}", values)
    except IntegrityError:  # added concurrently
        raise _make_taken(source.cluster) from None
    return source


def change(
    actor: User, name: str, data: Mapping[str, Any], *, expected_generation: int | None = None
) -> MetricsSource:
    """Set the fields in `data`; omitted fields and secrets keep their values."""
    require(actor, "admin")
    try:
        with transaction.atomic():
            source = _lock_source(name)
            expect_generation(f"Source {name}", source.generation, expected_generation)
            before = FIELDS.values(source)
            secrets = _fill(source, data)
            changes = diff(before, FIELDS.values(source)) | _hide(secrets)
            if not changes:
                return source
            _expect_free(source)
            _seal(source, secrets)
            source.generation += 1
            source.changed_at = timezone.now()
            source.verified_at, source.found = None, {}
            source.save()
            record(actor, "update", f"metrics-source/{name}", changes)
    except IntegrityError:
        raise _make_taken(source.cluster) from None
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


def _fill(source: MetricsSource, data: Mapping[str, Any]) -> dict[str, str]:
    """Set the fields in `data` and return the secrets in it. Raise `Refused` with every problem."""
    gathered = Gathered()
    secrets = gathered.take(_parse_secrets, data)
    addresses = {name: getattr(source, name) for name in ("url", "alertmanager_url")}
    gathered.take(FIELDS.fill, source, data, ignored=SECRETS)
    if secrets is not None:
        gathered.take(_check_login, source, secrets)
        if not source._state.adding:
            gathered.take(_check_address_change, source, secrets, addresses)
    gathered.end()
    return secrets or {}


def _parse_secrets(data: Mapping[str, Any]) -> dict[str, str]:
    secrets = {}
    for name in SECRETS:
        text = data.get(name) or ""
        plain = isinstance(text, str) and (name == "key" or text.strip().isprintable())
        if not plain or len(text) > _MOST_BYTES or "\0" in text:
            remedy = f"Enter text of at most {_MOST_BYTES} characters, without control characters."
            raise Refused(Problem(name, None, "Not a valid secret.", remedy, "invalid"))
        if text:
            secrets[name] = text.strip()
    return secrets


def _check_login(source: MetricsSource, secrets: Mapping[str, str]) -> None:
    """Raise unless all that the authentication needs is there, and the key fits its certificate.

    A certificate whose key is in a file or stored is tested on use only.
    """
    problems = [
        Problem(
            name,
            None,
            f"{source.auth} requires this field.",
            "Enter it, or choose another authentication.",
            "required",
        )
        for name in _NEEDED.get(source.auth, ())
        if not (secrets.get(name) or source.sealed.get(name))
        and not (getattr(source, name, "") or getattr(source, f"{name}_file", ""))
    ]
    if source.certificate and "key" in secrets:
        try:
            Login(certificate=source.certificate, key=secrets["key"]).tls()
        except LoginError as error:
            remedy = "Paste both completely; the key must be unencrypted."
            problems.append(Problem("certificate", None, str(error), remedy, "invalid"))
    if problems:
        raise Refused(*problems)


def _check_address_change(
    source: MetricsSource, secrets: Mapping[str, str], addresses: Mapping[str, str]
) -> None:
    """Require secrets again for a new address: else a user who may change it could capture them."""
    moved = [name for name, before in addresses.items() if getattr(source, name) != before]
    kept = [key for key in source.sealed if not (secrets.get(key) or _file_of(source, key))]
    if moved and kept and getattr(source, moved[0]):
        text = f"The {moved[0]} was changed; the stored {kept[0]} is not sent to another address."
        raise Refused(Problem(kept[0], None, text, "Enter it again.", "required"))


def _file_of(source: MetricsSource, secret: str) -> str:
    return str(getattr(source, f"{secret}_file"))


def _expect_free(source: MetricsSource) -> None:
    others = MetricsSource.objects.filter(enabled=True, cluster=source.cluster)
    if source.cluster is None:
        others = MetricsSource.objects.filter(enabled=True, cluster__isnull=True)
    if source.enabled and others.exclude(pk=source.pk).exists():
        raise _make_taken(source.cluster)


def _make_taken(cluster: str | None) -> Refused:
    what = f"cluster {cluster}" if cluster else "endpoints whose cluster has no own source"
    text = f"A source for {what} already exists."
    remedy = "Edit that source, or disable it first."
    return Refused(Problem("cluster", cluster, text, remedy, "taken"), status_code=409)


def _seal(source: MetricsSource, secrets: Mapping[str, str]) -> None:
    sealed = {key: encryption.seal(text, source.purpose(key)) for key, text in secrets.items()}
    source.sealed = {**source.sealed, **sealed}


def _hide(secrets: Mapping[str, str]) -> dict[str, list[str]]:
    return {key: [HIDDEN, HIDDEN] for key in secrets}


def _lock_source(name: str) -> MetricsSource:
    source = MetricsSource.objects.select_for_update(no_key=True).filter(name=name).first()
    if source is None:
        raise _make_not_found(name)
    return source


def _make_not_found(name: str) -> Refused:
    text = f"Metrics source {name} does not exist."
    return Refused(
        Problem("name", name, text, "Choose one from the list of metrics sources.", "not_found"),
        status_code=404,
    )
