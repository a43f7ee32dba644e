"""Preflight checks of the installation.

Checks change nothing, have deadlines, return a fix for each failure, and contain no secrets.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from django.conf import settings
from django.core.checks import ERROR, run_checks
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor

from console.clusters import refresh
from console.clusters.choices import ClusterPhase
from console.clusters.selectors import default_cluster
from console.core import disk
from console.core.registry import Registry
from console.provisioners.kubernetes.api.access import own_namespace
from console.vault import key_rotation
from console.web import health

_SHARED_SETTINGS = {
    "DJANGO_SECRET_KEY": "people are logged out whenever another pod answers",
    "EMBERLINE_ENCRYPTION_KEY": "what one pod seals no other can open",
}


@dataclass(frozen=True, slots=True)
class PreflightResult:
    """Result of one check; `needed`: the console does not work without it."""

    subject: str
    ok: bool
    text: str
    remedy: str = ""
    needed: bool = True

    def __str__(self) -> str:
        mark = "ok   " if self.ok else ("FAIL " if self.needed else "note ")
        remedy = f" {self.remedy}" if self.remedy and not self.ok else ""
        return f"{mark} {self.subject}: {self.text}{remedy}"


_registered: Registry[Callable[[], Iterator[PreflightResult]]] = Registry()
register_check = _registered.register


def ask() -> list[PreflightResult]:
    return [verdict for part in (*_CHECKS, *_registered) for verdict in part()]


def _settings() -> Iterator[PreflightResult]:
    found = [message for message in run_checks() if not message.is_silenced()]
    for message in found:
        serious = message.level >= ERROR
        yield PreflightResult("settings", False, str(message.msg), message.hint or "", serious)
    if not found:
        yield PreflightResult("settings", True, "nothing contradicts")


def _services() -> Iterator[PreflightResult]:
    found = health.verdicts()
    ok = found["database"] == "ok"
    text = f"{connection.vendor} answers" if ok else found["database"]
    yield PreflightResult("database", ok, text, "Look at DATABASE_URL and at the server's log.")
    if ok:
        executor = MigrationExecutor(connection)
        plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
        said = f"{len(plan)} migrations are not applied." if plan else "at this version"
        yield PreflightResult("schema", not plan, said, "Run `python -m console.programs migrate`.")
    why = found["broker"]
    remedy = "Look at REDIS_URL. Until then changes wait; endpoints serve."
    yield PreflightResult("broker", why == "ok", "answers" if why == "ok" else why, remedy)
    yield _disk()


def _disk() -> PreflightResult:
    try:
        found = disk.read_disk(settings.EMBERLINE.var)
    except OSError as error:
        remedy = "Check the mount and the hardware."
        return PreflightResult("disk", False, f"{settings.EMBERLINE.var}: {error.strerror}", remedy)
    ok, full = found.state is disk.DiskState.OK, found.state is disk.DiskState.FULL
    return PreflightResult("disk", ok, f"{found.path}: {found.text}", found.remedy, needed=full)


def _shared() -> Iterator[PreflightResult]:
    """Check settings that all pods must share, since each would otherwise generate its own."""
    if settings.EMBERLINE.keys != "database":
        return
    for name, lost in _SHARED_SETTINGS.items():
        given = bool(os.environ.get(name) or os.environ.get(f"{name}_FILE"))
        text = "is given" if given else f"is made by each pod for itself: {lost}."
        yield PreflightResult(name, given, text, f"Give {name}_FILE from a Secret.")
    for name, path in (
        ("EMBERLINE_L2_PASSWORD_FILE", settings.EMBERLINE.l2_password_file),
        ("EMBERLINE_TARGETS_TOKEN_FILE", settings.EMBERLINE.targets_token_file),
    ):
        readable = os.access(path, os.R_OK)
        text = "can be read" if readable else f"{path} cannot be read."
        yield PreflightResult(name, readable, text, "Mount the Secret which has it.")


def _images() -> Iterator[PreflightResult]:
    if not default_cluster():
        return
    for name, image in (
        ("EMBERLINE_WORKER_IMAGE", settings.EMBERLINE.worker_image),
        ("EMBERLINE_ENGINE_IMAGE", settings.EMBERLINE.engine_image),
    ):
        text = image or "names no image: no endpoint can be made."
        yield PreflightResult(
            name, bool(image), text, "Build it from deploy/containers and name it."
        )


def _check_keys() -> Iterator[PreflightResult]:
    """Check whether previous encryption keys can be removed."""
    try:
        found = key_rotation.preview()
    except DatabaseError:
        return  # reported by another check
    text, remedy = "all sealed with the first key", ""
    if found.unreadable:
        text = f"no key here opens those of {_shorten(found.unreadable)}."
        remedy = "Put the earlier key behind the present one, or give those secrets anew."
    elif found.done:
        text = f"those of {_shorten(found.done)} still need an earlier key."
        remedy = "Run `emberline rekey`, then leave the earlier key out."
    yield PreflightResult("kept secrets", not remedy, text, remedy, needed=False)


def _shorten(titles: list[str], most: int = 5) -> str:
    more = f" and {len(titles) - most} more" if len(titles) > most else ""
    return f"{', '.join(titles[:most])}{more}"


def _static() -> Iterator[PreflightResult]:
    there = (settings.STATIC_ROOT / "staticfiles.json").is_file()
    text = "collected" if there else f"not collected in {settings.STATIC_ROOT}."
    yield PreflightResult(
        "static files", there, text, "Run `manage.py collectstatic`.", needed=False
    )


def _cluster() -> Iterator[PreflightResult]:
    """Query the cluster now, without cached values; stores nothing."""
    if not default_cluster():
        return
    namespace = own_namespace()
    seen = refresh.query_own_cluster(namespace)
    text = f"{seen.reason} (namespace {namespace}). {seen.message}".strip()
    remedy = "The chart's Role grants it; so does `emberline cluster role`."
    yield PreflightResult("cluster", seen.phase == ClusterPhase.READY, text, remedy)


_CHECKS: tuple[Callable[[], Iterator[PreflightResult]], ...] = (
    *(_settings, _services, _shared, _check_keys, _images, _static, _cluster),
)
