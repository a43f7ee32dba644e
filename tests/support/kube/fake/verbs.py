"""Operations on objects: create, replace, patch, apply, delete, scale.

In the order of a real server: validate, default, admit, set owners, version, notify; `dryRun` skips
the last two. A write without a change has no effect.
"""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tests.support.kube.behaviours import stamp
from tests.support.kube.client import KINDS
from tests.support.kube.fake import defaults, owners, patches, schemas
from tests.support.kube.fake.admission import admit
from tests.support.kube.fake.refusals import ApiError
from tests.support.kube.fake.store import Object, Resource, Store, copied

NO_STATUS = {
    "ConfigMap", "Secret", "ServiceAccount", "Event", "Endpoints", "EndpointSlice", "Role",
    "RoleBinding", "ClusterRole", "ClusterRoleBinding", "StorageClass", "Lease", "CSIDriver",
    "IngressClass", "PriorityClass", "NetworkPolicy",
}  # fmt: skip
FIRST_STATUS = {
    "Pod": {"phase": "Pending"},
    "Namespace": {"phase": "Active"},
    "PersistentVolumeClaim": {"phase": "Pending"},
}
SCALED = ("Deployment", "ReplicaSet", "StatefulSet")
KEPT = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds")
# All changes except these increment the generation.
QUIET = ("metadata", "status", "apiVersion", "kind")


@dataclass(frozen=True)
class Options:
    manager: str = "unknown"
    sub: str = ""
    force: bool = False
    dry_run: bool = False
    strict: bool = False
    grace_s: int | None = None
    propagation: str = ""
    preconditions: Any = None


class Verbs:
    def __init__(self, store: Store, schema_check: bool = True) -> None:
        self.store = store
        self._check = schema_check
        self.resources: dict[tuple[str, str], Resource] = {}
        self.kinds: dict[str, Resource] = {}
        for kind, (prefix, plural, namespaced) in KINDS.items():
            if schemas.model_of(kind) is not None:
                scale = kind in SCALED
                self._serve(
                    Resource(prefix, plural, kind, namespaced, kind not in NO_STATUS, scale)
                )

    def _serve(self, resource: Resource) -> None:
        self.resources[resource.prefix, resource.plural] = resource
        self.kinds[resource.kind] = resource

    # --- reading

    def get(self, resource: Resource, namespace: str, name: str) -> Object:
        found = self.store.find(resource.kind, namespace, name)
        if found is None:
            raise missing(resource, name)
        return found

    # --- writing

    def create(self, resource: Resource, namespace: str, data: Object, options: Options) -> Object:
        data = _placed(resource, namespace, data)
        metadata = data["metadata"]
        if "name" not in metadata and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"] + secrets.token_hex(3)[:5]
        if not metadata.get("name"):
            raise ApiError(422, "name or generateName is required")
        with self.store.lock:
            if self.store.find(resource.kind, namespace, metadata["name"]) is not None:
                named = f'{_full(resource)} "{metadata["name"]}" already exists'
                raise ApiError(409, named, "AlreadyExists", kind=resource.plural)
            if metadata.get("resourceVersion"):
                raise ApiError(400, "resourceVersion should not be set on objects to be created")
            return self._write(resource, None, data, options)

    def replace(
        self, resource: Resource, namespace: str, name: str, data: Object, options: Options
    ) -> Object:
        with self.store.lock:
            before = self.get(resource, namespace, name)
            data = _placed(resource, namespace, data)
            return self._write(resource, before, data, options)

    def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        media: str,
        patch: Any,
        options: Options,
    ) -> Object:
        ways: dict[str, Callable[[Any, Any], Any]] = {
            "application/json-patch+json": patches.json_patch,
            "application/merge-patch+json": patches.merge_patch,
            "application/strategic-merge-patch+json": patches.strategic,
        }
        with self.store.lock:
            if media.startswith("application/apply-patch"):
                return self._apply(resource, namespace, name, patch, options)
            if media not in ways:
                text = f"the body of the request was in an unknown format - accepted: {list(ways)}"
                raise ApiError(415, text, "UnsupportedMediaType")
            if resource.schema is not None and "strategic" in media:
                raise ApiError(
                    415, "custom resources have no strategic merge", "UnsupportedMediaType"
                )
            before = self.get(resource, namespace, name)
            data = ways[media](copied(before), patch)
            return self._write(resource, before, data, options)

    def _apply(
        self, resource: Resource, namespace: str, name: str, wanted: Object, options: Options
    ) -> Object:
        wanted = _placed(resource, namespace, wanted)
        wanted["metadata"].setdefault("name", name)
        if wanted["metadata"].get("managedFields"):
            raise ApiError(400, "metadata.managedFields must be nil")
        if (wanted.get("apiVersion"), wanted.get("kind")) != (resource.version, resource.kind):
            raise ApiError(400, "apiVersion and kind must be set, and fit the address")
        if self._check:
            schemas.check(resource.kind, wanted, resource.schema, False, apply=True)
        before = self.store.find(resource.kind, namespace, name)
        if before is None and options.sub:
            raise missing(resource, name)
        if resource.kind == "Secret":
            defaults.fill("Secret", wanted)
        reported = {key: value for key, value in wanted.items() if key != "status" or options.sub}
        reported["metadata"] = dict(reported["metadata"])
        version = reported["metadata"].pop("resourceVersion", None)
        after = owners.apply(
            before, reported, options.manager, options.force, time.time(), options.sub
        )
        if version is not None:
            after["metadata"]["resourceVersion"] = version
        return self._write(resource, before, after, options, applied=True)

    def _write(
        self,
        resource: Resource,
        before: Object | None,
        data: Object,
        options: Options,
        applied: bool = False,
    ) -> Object:
        """The caller holds the lock and passes ownership of `data`."""
        data = copied(data)
        data["apiVersion"], data["kind"] = resource.version, resource.kind
        self._same(resource, before, data)
        if self._check:
            found = schemas.check(resource.kind, data, resource.schema, options.strict, False)
            schemas.prune(data, found)
        _split(resource, before, data, options.sub)
        defaults.fill(resource.kind, data)
        _stamp(before, data)
        if not options.sub:
            admit(self.store, resource, data, before)
        if before is None or any(
            data.get(key) != before.get(key) for key in {*data, *before} if key not in QUIET
        ):
            data["metadata"]["generation"] = data["metadata"].get("generation", 0) + 1
        # Defaults filled in by the server after an apply have no owner.
        if not applied:
            owners.update(before, data, options.manager, time.time(), options.sub)
        if before is not None and _same_but_times(before, data):
            return before
        if options.dry_run:
            version = before["metadata"]["resourceVersion"] if before is not None else ""
            data["metadata"]["resourceVersion"] = version
            return data
        return self._keep(resource, data)

    def _keep(self, resource: Resource, data: Object) -> Object:
        metadata = data["metadata"]
        held = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds", 0)
        if metadata.get("deletionTimestamp") and not held:
            key = metadata.get("namespace", ""), metadata["name"]
            self.store.drop(resource.kind, key)
            return data
        if resource.kind == "CustomResourceDefinition":
            self._define(data)
        return self.store.put(resource.kind, data)

    def _same(self, resource: Resource, before: Object | None, data: Object) -> None:
        if before is None:
            return
        for field in ("resourceVersion", "uid"):
            value = data["metadata"].get(field)
            if value and value != before["metadata"][field]:
                text = (
                    "the object has been modified; please apply your changes to the latest version"
                )
                named = f'{_full(resource)} "{before["metadata"]["name"]}"'
                raise ApiError(
                    409, f"Operation cannot be fulfilled on {named}: {text} and try again"
                )

    def _define(self, data: Object) -> None:
        """Serve the kind of a CustomResourceDefinition."""
        spec, names = data["spec"], data["spec"]["names"]
        for version in spec["versions"]:
            if version["served"]:
                prefix = f"/apis/{spec['group']}/{version['name']}"
                subs = version.get("subresources", {})
                resource = Resource(
                    prefix, names["plural"], names["kind"], spec["scope"] == "Namespaced",
                    "status" in subs, "scale" in subs, version["schema"]["openAPIV3Schema"],
                )  # fmt: skip
                self._serve(resource)
        text = [
            {"type": kind, "status": "True", "reason": kind, "message": "",
             "lastTransitionTime": data["metadata"]["creationTimestamp"]}
            for kind in ("NamesAccepted", "Established")
        ]  # fmt: skip
        data["status"] = {"conditions": text, "acceptedNames": names,
                          "storedVersions": [spec["versions"][0]["name"]]}  # fmt: skip

    def delete(self, resource: Resource, namespace: str, name: str, options: Options) -> Object:
        with self.store.lock:
            before = self.get(resource, namespace, name)
            _precondition(resource, before, options.preconditions)
            if options.dry_run:
                return before
            data = copied(before)
            metadata = data["metadata"]
            finalizers = set(metadata.get("finalizers", ()))
            # Cluster-scoped objects own nothing here: no wait.
            if options.propagation == "Foreground" and resource.namespaced:
                finalizers.add("foregroundDeletion")
            elif options.propagation == "Orphan":
                finalizers.add("orphan")
            if finalizers:
                metadata["finalizers"] = sorted(finalizers)
            grace = _grace(resource, data, options)
            earlier = metadata.get("deletionGracePeriodSeconds")
            metadata.setdefault("deletionTimestamp", stamp(time.time() + grace))
            metadata["deletionGracePeriodSeconds"] = (
                grace if earlier is None else min(grace, earlier)
            )
            if resource.kind == "Namespace":
                data["status"] = {"phase": "Terminating"}
                metadata["finalizers"] = sorted({*finalizers, "kubernetes"})
            if data["metadata"] == before["metadata"]:
                return before
            return self._keep(resource, data)

    def scale(self, resource: Resource, namespace: str, name: str) -> Object:
        data = self.get(resource, namespace, name)
        metadata = {
            key: data["metadata"].get(key)
            for key in ("name", "namespace", "uid", "resourceVersion")
        }
        return {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": metadata,
            "spec": {"replicas": data["spec"].get("replicas", 0)},
            "status": {"replicas": data.get("status", {}).get("replicas", 0)},
        }

    def rescale(
        self, resource: Resource, namespace: str, name: str, replicas: int, options: Options
    ) -> Object:
        with self.store.lock:
            before = self.get(resource, namespace, name)
            data = copied(before)
            data["spec"]["replicas"] = replicas
            self._write(resource, before, data, replace(options, sub="scale"))
            return self.scale(resource, namespace, name)


def missing(resource: Resource, name: str) -> ApiError:
    return ApiError(404, f'{_full(resource)} "{name}" not found', kind=resource.plural, name=name)


def _full(resource: Resource) -> str:
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def _placed(resource: Resource, namespace: str, data: Any) -> Object:
    if not isinstance(data, dict) or not isinstance(data.get("metadata", {}), dict):
        raise ApiError(400, "the body is not an object of the API")
    data = copied(data)
    metadata = data.setdefault("metadata", {})
    value = metadata.get("namespace", namespace)
    if resource.namespaced and value != namespace:
        raise ApiError(
            400, "the namespace of the object does not match the namespace of the request"
        )
    if resource.namespaced:
        metadata["namespace"] = namespace
    else:
        metadata.pop("namespace", None)
    return data


def _split(resource: Resource, before: Object | None, data: Object, sub: str) -> None:
    """Writes to the object keep its status, writes to the status keep all else."""
    if sub == "status" and before is not None:
        status, fields = data.get("status", {}), data["metadata"].get("managedFields")
        data.clear()
        data.update(copied(before))
        data["status"] = status
        if fields is not None:
            data["metadata"]["managedFields"] = fields
    elif resource.status:
        data.pop("status", None)
        if before is not None and "status" in before:
            data["status"] = copied(before["status"])
        elif before is None and resource.schema is None:
            data["status"] = dict(FIRST_STATUS.get(resource.kind, {}))


def _stamp(before: Object | None, data: Object) -> None:
    metadata = data["metadata"]
    for field in (*KEPT, "resourceVersion"):
        metadata.pop(field, None)
    if before is None:
        metadata["uid"] = str(uuid.uuid4())
        metadata["creationTimestamp"] = stamp(time.time())
    else:
        for field in KEPT:
            if field in before["metadata"]:
                metadata[field] = before["metadata"][field]
    for field in ("labels", "annotations", "finalizers", "ownerReferences"):
        if field in metadata and not metadata[field]:
            del metadata[field]


def _same_but_times(before: Object, data: Object) -> bool:
    def plain(item: Object) -> Object:
        metadata = {k: v for k, v in item["metadata"].items() if k not in ("resourceVersion",)}
        fields = [
            {k: v for k, v in entry.items() if k != "time"}
            for entry in metadata.pop("managedFields", ())
        ]
        return {**item, "metadata": {**metadata, "managedFields": fields}}

    return plain(before) == plain(data)


def _grace(resource: Resource, data: Object, options: Options) -> int:
    if resource.kind != "Pod" or not data["spec"].get("nodeName"):
        return 0
    if options.grace_s is not None:
        return options.grace_s
    return int(data["spec"].get("terminationGracePeriodSeconds", 30))


def _precondition(resource: Resource, before: Object, wanted: Any) -> None:
    for field, value in (wanted or {}).items():
        found = before["metadata"].get(field)
        if value is not None and value != found:
            named = f'{_full(resource)} "{before["metadata"]["name"]}"'
            text = f"Precondition failed: {field} in precondition: {value}, in object meta: {found}"
            raise ApiError(409, f"Operation cannot be fulfilled on {named}: {text}")
