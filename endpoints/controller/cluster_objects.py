"""Cluster calls of the controller: definition, objects, status and events.

Calls have deadlines and raise ProvisionError only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from console.provisioners.base import TemporaryError
from console.provisioners.kubernetes.api.client import Json, KubernetesClient
from console.provisioners.kubernetes.api.kinds import EVENT, ObjectKind
from endpoints.manifests import schemas
from endpoints.manifests.objects import FINALIZER

OBJECT: Final = ObjectKind(f"{schemas.GROUP}/v1", schemas.KIND, schemas.PLURAL)
DEFINITION: Final = ObjectKind(
    "apiextensions.k8s.io/v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    namespaced=False,
)
_HASH: Final = "emberline.dev/definition-hash"


class Objects:
    def __init__(self, client: KubernetesClient) -> None:
        self.client = client

    def definition(self) -> Json | None:
        return self.client.get(DEFINITION, schemas.NAME)

    def install(self, present: Json | None) -> None:
        body = schemas.definition()
        mark = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]
        body["metadata"]["annotations"] = {_HASH: mark}
        if present is None or _annotations(present).get(_HASH) != mark:
            self.client.apply(body, kind=DEFINITION)

    def listed(self) -> list[Json]:
        return self.client.listed(OBJECT)

    def set_finalizer(self, item: Json, wanted: bool) -> None:
        """Add or remove only the finalizer; the server rejects the write if the object has changed
        since.
        """
        metadata = item["metadata"]
        present = list(metadata.get("finalizers") or [])
        if (FINALIZER in present) is wanted:
            return
        others = [finalizer for finalizer in present if finalizer != FINALIZER]
        patch = {
            "metadata": {
                "resourceVersion": metadata["resourceVersion"],
                "finalizers": [*others, FINALIZER] if wanted else others or None,
            }
        }
        self.client.merge(OBJECT, metadata["name"], patch)

    def write_status(self, item: Json, status: Mapping[str, Any]) -> bool:
        """Write the status. Return False if the server has the same one already."""
        before = item.get("status") or {}
        if before == status:
            return False
        gone = {name: None for name in before if name not in status}
        patch = {"status": {**status, **gone}}
        self.client.merge(OBJECT, item["metadata"]["name"], patch, part="status")
        return True

    def event(self, item: Json, reason: str, message: str, warning: bool, now: str) -> None:
        metadata = item["metadata"]
        mark = hashlib.sha256(f"{metadata['uid']} {reason} {message}".encode()).hexdigest()[:10]
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{metadata['name'][:200]}.{mark}"},
            "involvedObject": {
                "apiVersion": OBJECT.api_version,
                "kind": OBJECT.kind,
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
            },
            "reason": reason,
            "message": message[:1000],
            "type": "Warning" if warning else "Normal",
            "source": {"component": "emberline"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        self.client.apply(body, kind=EVENT)


def is_ours(definition: Json) -> bool:
    labels = definition["metadata"].get("labels") or {}
    return all(labels.get(name) == value for name, value in schemas.OWN_LABEL.items())


def is_established(definition: Json) -> bool:
    conditions = (definition.get("status") or {}).get("conditions") or []
    return any(
        condition["type"] == "Established" and condition["status"] == "True"
        for condition in conditions
    )


def waiting() -> TemporaryError:
    return TemporaryError(
        "DefinitionPending", "The cluster is installing or removing the definition.", 1.0
    )


def _annotations(item: Json) -> Mapping[str, str]:
    return item["metadata"].get("annotations") or {}
