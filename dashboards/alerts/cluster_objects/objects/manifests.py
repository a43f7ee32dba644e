"""Manifests of the alert objects that a cluster's Prometheus and Alertmanager load.

Each object carries an ownership label. Rules on the console's own metrics (budgets) are included
only in the console's cluster; elsewhere they could never fire.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from dashboards.alerts.alertmanager.config import document as alertmanager_config
from dashboards.alerts.rules.rule_file import Settings, cluster_groups

RULES_NAME: Final = "emberline-alert-rules"
INSTALL: Final = "emberline.dev/install"
DIGEST: Final = "emberline.dev/digest"
OWN_LABELS: Final[Mapping[str, str]] = {
    "app.kubernetes.io/name": "emberline",
    "app.kubernetes.io/managed-by": "emberline",
    "app.kubernetes.io/component": "alerts",
}
Body = dict[str, Any]


class Placement(NamedTuple):
    """Where alert objects are written. `labels` are set on each object of the installation
    `install`.
    """

    install: str
    namespace: str
    labels: Mapping[str, str]


def build_rules(
    settings: Settings, place: Placement, *, routed: bool, with_console: bool = False
) -> Body:
    """Return the PrometheusRule.

    `with_console`: the console runs, and is scraped, in that cluster. `routed`: each alert gets the
    label `namespace`, which the operator's AlertmanagerConfig of that namespace matches.
    """
    more = {"namespace": place.namespace} if routed else {}
    spec = {"groups": cluster_groups(settings, more, with_console=with_console)}
    head = ("monitoring.coreos.com/v1", "PrometheusRule", RULES_NAME)
    return _whole(head, place, {"spec": spec})


def build_receivers(spec: Mapping[str, Any], place: Placement) -> Body:
    head = (alertmanager_config.VERSION, alertmanager_config.KIND, alertmanager_config.NAME)
    return _whole(head, place, {"spec": dict(spec)})


def build_address_secret(texts: Mapping[str, str], place: Placement) -> Body:
    """Return the Secret referenced by `receivers`. It has no digest, which would help guessing."""
    data = {key: base64.b64encode(text.encode()).decode() for key, text in sorted(texts.items())}
    body = {"type": "Opaque", "data": data}
    return _whole(("v1", "Secret", alertmanager_config.NAME), place, body, marked=False)


def objects_digest(bodies: Sequence[Mapping[str, Any]], *more: Any) -> str:
    """Return the digest of the desired objects without Secrets; `more` covers changes of those."""
    rendered = [body for body in bodies if body["kind"] != "Secret"]
    text = json.dumps([rendered, *more], sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def is_ours(found: Mapping[str, Any], install: str) -> bool:
    metadata = found["metadata"]
    labels, notes = metadata.get("labels") or {}, metadata.get("annotations") or {}
    mine = all(labels.get(key) == value for key, value in OWN_LABELS.items())
    return mine and notes.get(INSTALL) == install


def _whole(
    head: tuple[str, str, str], place: Placement, body: Body, *, marked: bool = True
) -> Body:
    """Return the object; `head`: API version, kind and name."""
    version, kind, name = head
    whole = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **body}
    notes = {INSTALL: place.install}
    if marked:
        notes[DIGEST] = objects_digest([whole], place.labels)
    metadata = {
        "name": name,
        "namespace": place.namespace,
        "labels": {**place.labels, **OWN_LABELS},
        "annotations": notes,
    }
    return {**whole, "metadata": metadata}
