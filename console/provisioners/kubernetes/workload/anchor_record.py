"""State stored in a workload's anchor in addition to what `render` writes.

Every write names the resource version it was made from, so concurrent writers do not lose each
other's decisions. Contains no secret.

    digest   of all objects as last applied in full, "" while in progress or rejected
    objects  these objects, for comparison (values of Secrets removed)
    facts    ports, channels and times of the spec, needed for observation
    left     fields released to other managers
    force    "1" if the next apply takes back every field not released
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from console.provisioners.base import PartCondition, PermanentError, WorkloadSpec
from console.provisioners.kubernetes.rendering.anchor import OwnedItem, inventory
from console.provisioners.kubernetes.rendering.names import MANAGER, WORKLOAD, pod_of
from console.provisioners.kubernetes.workload.drift import storable

Json = dict[str, Any]
_SLACK_S = 60
"""Time added to the allowed start time before a rollout counts as failed (s)."""


@dataclass(frozen=True, slots=True)
class AnchorRecord:
    uid: str = ""
    version: str = ""
    ending: bool = False
    owner: str = ""
    role: str = ""
    wanted_hash: str = ""
    items: frozenset[OwnedItem] = frozenset()
    digest: str = ""
    objects: tuple[Json, ...] = ()
    ports: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    startup_s: int = 0
    secure: bool = False
    declined: tuple[PartCondition, ...] = ()
    left: frozenset[str] = frozenset()
    force: bool = False
    found: Json = field(default_factory=dict, repr=False)


def read_record(found: Json) -> AnchorRecord:
    """Read the record; corrupt entries count as empty and the next apply rewrites them."""
    data, metadata = found.get("data") or {}, found["metadata"]
    fields = _loaded(data.get("facts"), {})
    return AnchorRecord(
        uid=str(metadata.get("uid", "")),
        version=str(metadata.get("resourceVersion", "")),
        ending="deletionTimestamp" in metadata,
        owner=str(data.get("owner", "")),
        role=str(data.get("role", "")),
        wanted_hash=str(data.get("hash", "")),
        items=inventory(found),
        digest=str(data.get("digest", "")),
        objects=tuple(_loaded(data.get("objects"), [])),
        ports=tuple(fields.get("ports", ())),
        channels=tuple(fields.get("channels", ())),
        startup_s=int(fields.get("startup_s", 0)),
        secure=bool(fields.get("secure", False)),
        declined=tuple(
            PartCondition(str(part), None, str(reason), str(text))
            for part, reason, text in fields.get("declined", ())
        ),
        left=frozenset(_loaded(data.get("left"), [])),
        force=data.get("force") == "1",
        found=found,
    )


def check_ours(found: Json, workload: str, owner: str = "") -> None:
    """Raise if the object belongs to another workload or owner."""
    metadata = found["metadata"]
    labels = metadata.get("labels") or {}
    name = f"{found.get('kind', 'Object')}/{metadata['name']}"
    mine = labels.get("app.kubernetes.io/managed-by") == MANAGER
    if not mine or labels.get(WORKLOAD) != workload:
        raise PermanentError(
            "NameTaken",
            f"{name} already exists and does not belong to {workload}. Remove it, "
            "or choose another name or namespace.",
        )
    theirs = str((found.get("data") or {}).get("owner", owner))
    if owner and theirs != owner:
        raise PermanentError(
            "NameTaken", f"{name} already exists, for {theirs}. Choose another name or namespace."
        )


def begin_apply(anchor: Json, kept: AnchorRecord | None, items: Iterable[OwnedItem]) -> Json:
    body = _with(anchor, {"inventory": _items(items), "digest": ""})
    if kept is None:
        return body
    before = kept.found.get("data") or {}
    last = {key: before[key] for key in ("objects", "facts") if key in before}
    return _carry_over(_with(body, last), kept, force=kept.force)


def finish_apply(
    anchor: Json, kept: AnchorRecord, digest: str, objects: Iterable[Json], facts: Json
) -> Json:
    """Return the anchor after a complete apply."""
    return _carry_over(
        _with(anchor, {"digest": digest, **_last(objects, facts)}), kept, force=False
    )


def conflicted_apply(
    anchor: Json,
    kept: AnchorRecord,
    items: Iterable[OwnedItem],
    objects: Iterable[Json],
    facts: Json,
) -> Json:
    """Return the anchor after field conflicts, with the desired state to report drift."""
    more = {"inventory": _items(items), "digest": "", **_last(objects, facts)}
    return _carry_over(_with(anchor, more), kept, force=kept.force)


def observation_facts(spec: WorkloadSpec, declined: Iterable[PartCondition]) -> Json:
    """Return what observation needs. `declined`: features the cluster goes without."""
    exposure = spec.around.exposure if spec.around else None
    return {
        "ports": spec.ports,
        "channels": spec.channels,
        "startup_s": pod_of(spec).startup_s + _SLACK_S,
        "secure": bool(exposure and (exposure.tls_secret or exposure.issuer)),
        "declined": [[part.part, part.reason, part.message] for part in declined],
    }


def with_items(anchor: Json, items: Iterable[OwnedItem]) -> Json:
    return _with(anchor, {"inventory": _items(items)})


def unchanged_anchor(kept: AnchorRecord) -> Json:
    anchor = kept.found
    body = {key: anchor[key] for key in ("apiVersion", "kind", "data")}
    names = ("name", "namespace", "labels", "annotations", "ownerReferences")
    body["metadata"] = {key: anchor["metadata"][key] for key in names if key in anchor["metadata"]}
    body["metadata"]["resourceVersion"] = kept.version
    return body


def with_decision(
    kept: AnchorRecord, *, left: frozenset[str] | None = None, force: bool = False
) -> Json:
    """Return the anchor with a new decision and no digest, so that the next apply acts on it."""
    body = _with(unchanged_anchor(kept), {"digest": ""})
    if left is not None:
        body["data"]["left"] = _dumped(sorted(left))
    if force:
        body["data"]["force"] = "1"
    return body


def _last(objects: Iterable[Json], facts: Json) -> dict[str, str]:
    return {"objects": _dumped([storable(body) for body in objects]), "facts": _dumped(facts)}


def _carry_over(body: Json, kept: AnchorRecord, *, force: bool) -> Json:
    data = {"left": _dumped(sorted(kept.left))} if kept.left else {}
    if force:
        data["force"] = "1"
    out = _with(body, data)
    out["metadata"] = {**out["metadata"], "resourceVersion": kept.version}
    return out


def _with(body: Json, more: Mapping[str, str]) -> Json:
    return {**body, "data": {**body["data"], **more}}


def _items(items: Iterable[OwnedItem]) -> str:
    return _dumped([[i.api_version, i.kind, i.name] for i in sorted(items)])


def _dumped(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def _loaded(text: Any, default: Any) -> Any:
    try:
        value = json.loads(text) if isinstance(text, str) else default
    except ValueError:
        return default
    return value if isinstance(value, type(default)) else default
