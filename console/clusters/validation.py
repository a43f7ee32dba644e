"""Validation of cluster input; reports all problems at once, without secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from console.clusters.choices import REACHES, Reach
from console.clusters.models import Cluster
from console.core.errors import Gathered, Problem, Refused
from console.core.outbound import address_problem
from console.provisioners.kubernetes.api import kubeconfig
from console.provisioners.kubernetes.api.access import (
    CONTEXT,
    IN_CLUSTER,
    KINDS,
    KUBECONFIG,
    own_namespace,
)

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_NAME_MAX = 40
FIELDS = ("kind", "kubeconfig", "context", "namespace", "reach")
CHANGEABLE = FIELDS[1:]


def validate_new(name: Any, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a new cluster, without its name."""
    gathered = Gathered()
    gathered.take(_known, data, FIELDS)
    kind = gathered.take(_kind, data.get("kind"))
    gathered.take(_name, name, kind)
    login = gathered.take(_login, kind, data) if kind else None
    login = login or {}
    own = login.pop("namespace", "")
    namespace = gathered.take(_namespace, data.get("namespace") or own or "default")
    reach = gathered.take(_reach, data.get("reach") or Reach.PODS)
    gathered.end()
    return {"kind": kind, **login, "namespace": namespace, "reach": reach}


def validate_changes(cluster: Cluster, data: Mapping[str, Any]) -> dict[str, Any]:
    gathered = Gathered()
    gathered.take(_known, data, CHANGEABLE)
    changes: dict[str, Any] = {}
    if data.get("kubeconfig") or "context" in data:
        changes = gathered.take(_login, cluster.kind, data, cluster) or {}
        changes.pop("namespace", None)
    if "namespace" in data:
        changes["namespace"] = gathered.take(_namespace, data["namespace"])
    if "reach" in data:
        changes["reach"] = gathered.take(_reach, data["reach"])
    gathered.end()
    return changes


def _known(data: Mapping[str, Any], fields: tuple[str, ...]) -> None:
    unknown = [
        Problem(key, None, "Unknown field.", f"Fields: {', '.join(fields)}.", "unknown")
        for key in data
        if key not in fields
    ]
    if unknown:
        raise Refused(*unknown)


def _kind(value: Any) -> str:
    if value not in KINDS:
        raise Refused(_problem("kind", value, f"Write one of: {', '.join(KINDS)}."))
    return str(value)


def _name(value: Any, kind: str | None) -> str:
    if not isinstance(value, str) or len(value) > _NAME_MAX or not _LABEL.fullmatch(value):
        remedy = f"Write 1 to {_NAME_MAX} lower-case letters, digits and hyphens."
        raise Refused(_problem("name", value, remedy))
    if value == IN_CLUSTER and kind not in (None, IN_CLUSTER):
        remedy = "Use another name: this one is reserved for the console's own cluster."
        raise Refused(_problem("name", value, remedy))
    return value


def _namespace(value: Any) -> str:
    if not isinstance(value, str) or not _LABEL.fullmatch(value):
        remedy = "Use 1 to 63 lower-case letters, digits and hyphens."
        raise Refused(_problem("namespace", value, remedy))
    return value


def _reach(value: Any) -> str:
    if value not in REACHES:
        raise Refused(_problem("reach", value, f"Write one of: {', '.join(REACHES)}."))
    return str(value)


def _login(kind: str, data: Mapping[str, Any], cluster: Cluster | None = None) -> dict[str, Any]:
    """Return the login fields, with `namespace` if the kubeconfig sets one."""
    text, context = data.get("kubeconfig") or "", data.get("context") or ""
    for field, value in (("kubeconfig", text), ("context", context)):
        if not isinstance(value, str):
            raise Refused(Problem(field, None, "Not a string.", "Send a string.", "type"))
    if kind != KUBECONFIG and text:
        remedy = f"Omit it, or choose the kind {KUBECONFIG}."
        raise Refused(
            Problem("kubeconfig", None, f"{kind} has no such context.", remedy, "invalid")
        )
    if kind == IN_CLUSTER:
        if context:
            remedy = "Omit it: the console's service account is used."
            raise Refused(_problem("context", context, remedy))
        return {"namespace": own_namespace()}
    if kind == CONTEXT:
        return {"context": context}
    if not text and cluster is not None:
        remedy = "Send the kubeconfig as well: only its chosen context is stored."
        raise Refused(_problem("context", context, remedy))
    return _kept(text, context)


def _kept(text: str, context: str) -> dict[str, Any]:
    if not text.strip():
        remedy = "Paste it or choose the file: kubectl config view --minify --flatten prints one."
        raise Refused(Problem("kubeconfig", None, "Required.", remedy, "required"))
    try:
        parsed = kubeconfig.parse_kubeconfig(text)
        chosen = parsed.chosen(context)
        login = parsed.login(chosen)
    except kubeconfig.KubeconfigError as error:
        field = "context" if error.path == "current-context" else "kubeconfig"
        where = f"{error.path}: " if error.path and field == "kubeconfig" else ""
        value = context if field == "context" else None
        raise Refused(
            Problem(field, value, f"{where}{error.message}", error.remedy, "invalid")
        ) from None
    for key, url in (("server", login.server), ("proxy-url", login.proxy)):
        parts = urlsplit(url)
        refused = address_problem(parts.hostname, parts.port or 443) if parts.hostname else ""
        if refused:
            remedy = "Enter the API server address as seen from the console."
            raise Refused(Problem("kubeconfig", None, f"{key}: {refused}", remedy, "forbidden"))
    return {"kubeconfig": parsed.only(chosen), "context": chosen, "namespace": login.namespace}


def _problem(field: str, value: Any, remedy: str) -> Problem:
    return Problem(field, value, f"Invalid value: {value!r}.", remedy, "invalid")
