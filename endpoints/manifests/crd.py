"""The CustomResourceDefinition which Emberline installs, made from the published schema.

Promises that every object which fits the published definition fits this one. Relaxed: the address
of a Prometheus may be any (published: one of AWS's own service only). Added: `status.url`, and the
columns of `kubectl get`. No conversion webhook is needed: v1alpha1 is a part of v1.
"""

from __future__ import annotations

import copy
from functools import cache
from typing import Any, Final

from endpoints.manifests import schemas

NAME: Final = f"{schemas.PLURAL}.{schemas.GROUP}"
OWN_LABEL: Final = {
    "app.kubernetes.io/name": "emberline",
    "app.kubernetes.io/managed-by": "emberline",
}
AMP_ADDRESS = "^https:\\/\\/aps-workspaces\\."
ANY_ADDRESS: Final = r"^(https?://[^\s]+)?$"
_SUBRESOURCES = {
    "status": {},
    "scale": {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    },
}
_COLUMNS = (
    {"name": "State", "type": "string", "jsonPath": ".status.state"},
    {"name": "Replicas", "type": "integer", "jsonPath": ".status.replicas"},
    {
        "name": "Ready",
        "type": "string",
        "jsonPath": '.status.conditions[?(@.type=="Ready")].status',
    },
    {
        "name": "Reason",
        "type": "string",
        "jsonPath": '.status.conditions[?(@.type=="Ready")].reason',
    },
    {"name": "URL", "type": "string", "jsonPath": ".status.url", "priority": 1},
    {"name": "Model", "type": "string", "jsonPath": ".spec.modelName", "priority": 1},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
)


def definition() -> dict[str, Any]:
    """The object to apply."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME, "labels": dict(OWN_LABEL)},
        "spec": {
            "group": schemas.GROUP,
            "names": {
                "kind": schemas.KIND,
                "listKind": f"{schemas.KIND}List",
                "plural": schemas.PLURAL,
                "singular": schemas.KIND.lower(),
            },
            "scope": "Namespaced",
            "versions": [_version(version) for version in schemas.VERSIONS],
        },
    }


@cache
def relaxed_spec(kind: str, version: str) -> dict[str, Any]:
    """The schema of `spec` which is asked for. Shared between callers: not to be changed."""
    schema = copy.deepcopy(schemas.spec_schema(kind, version))
    _relax(schema)
    return schema


def _version(version: str) -> dict[str, Any]:
    status = copy.deepcopy(schemas.status_schema(version))
    status["properties"]["url"] = {"type": "string"}
    return {
        "name": version,
        "served": True,
        "storage": version == schemas.VERSIONS[0],
        "schema": {
            "openAPIV3Schema": {
                "type": "object",
                "properties": {
                    "apiVersion": {"type": "string"},
                    "kind": {"type": "string"},
                    "metadata": {"type": "object"},
                    "spec": relaxed_spec(schemas.KIND, version),
                    "status": status,
                },
            }
        },
        "subresources": _SUBRESOURCES,
        "additionalPrinterColumns": list(_COLUMNS),
    }


def _relax(schema: Any) -> None:
    if isinstance(schema, dict):
        if str(schema.get("pattern", "")).startswith(AMP_ADDRESS):
            schema["pattern"] = ANY_ADDRESS
        for part in schema.values():
            _relax(part)
    elif isinstance(schema, list):
        for part in schema:
            _relax(part)
