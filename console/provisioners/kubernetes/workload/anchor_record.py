"""What is kept in a workload's anchor besides what `render` puts there.

Promises that whoever reads it knows what was last applied, by what somebody changed it, and which
fields are left to others; and that two who write at once do not lose a decision of the other: every
write names the version it was made from. Holds no secret.

    digest   of all objects as last applied in full, "" while that is under way or refused
    objects  those objects, to compare with what is there (values of Secrets left out)
    facts    of the spec: its ports, channels and times, which observing needs
    left     fields which are left to whoever set them
    force    "1" when the next apply takes back every field which is not left
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from console.provisioners.base import PartCondition, PermanentError, WorkloadSpec
from console.provisioners.kubernetes.rendering.anchor import OwnedItem, inventory
from console.provisioners.kubernetes.rendering.names import MANAGER, WORKLOAD, pod_of
from console.provisioners.kubernetes.workload.drift import keep

Json = dict[str, Any]
_SLACK_S = 60
"""Beside the time that a start may take, before a rollout is given up."""


@dataclass(frozen=True, slots=True)
class AnchorRecord:
    """Read from the anchor found."""

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


def read(found: Json) -> AnchorRecord:
    """An entry that somebody broke reads as empty: the next apply writes it again."""
    data, metadata = found.get("data") or {}, found["metadata"]
    facts = _loaded(data.get("facts"), {})
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
        ports=tuple(facts.get("ports", ())),
        channels=tuple(facts.get("channels", ())),
        startup_s=int(facts.get("startup_s", 0)),
        secure=bool(facts.get("secure", False)),
        declined=tuple(
            PartCondition(str(part), None, str(reason), str(text))
            for part, reason, text in facts.get("declined", ())
        ),
        left=frozenset(_loaded(data.get("left"), [])),
        force=data.get("force") == "1",
        found=found,
    )


def check_ours(found: Json, workload: str, owner: str = "") -> None:
    """What is not of this workload (or of another owner's) must not be written over."""
    metadata = found["metadata"]
    labels = metadata.get("labels") or {}
    name = f"{found.get('kind', 'Object')}/{metadata['name']}"
    mine = labels.get("app.kubernetes.io/managed-by") == MANAGER
    if not mine or labels.get(WORKLOAD) != workload:
        raise PermanentError(
            "NameTaken",
            f"{name} is there already, and is not {workload}'s. Remove it, or choose another name "
            "or namespace.",
        )
    theirs = str((found.get("data") or {}).get("owner", owner))
    if owner and theirs != owner:
        raise PermanentError(
            "NameTaken",
            f"{name} is there already, for {theirs}. Choose another name or namespace.",
        )


def begun(anchor: Json, kept: AnchorRecord | None, items: Iterable[OwnedItem]) -> Json:
    """The anchor before anything else is applied: it owns what was there and what will be."""
    body = _with(anchor, {"inventory": _items(items), "digest": ""})
    if kept is None:
        return body
    before = kept.found.get("data") or {}
    last = {key: before[key] for key in ("objects", "facts") if key in before}
    return _carried(_with(body, last), kept, force=kept.force)


def done(
    anchor: Json, kept: AnchorRecord, digest: str, objects: Iterable[Json], facts: Json
) -> Json:
    """The anchor when all is applied."""
    return _carried(_with(anchor, {"digest": digest, **_last(objects, facts)}), kept, force=False)


def stuck(
    anchor: Json,
    kept: AnchorRecord,
    items: Iterable[OwnedItem],
    objects: Iterable[Json],
    facts: Json,
) -> Json:
    """The anchor when some of it belongs to others: what we want is known, so that it can be told
    what of theirs is in its way."""
    more = {"inventory": _items(items), "digest": "", **_last(objects, facts)}
    return _carried(_with(anchor, more), kept, force=kept.force)


def facts_of(spec: WorkloadSpec, declined: Iterable[PartCondition]) -> Json:
    """What observing needs to know. `declined`: what the cluster cannot carry, and is done
    without."""
    exposure = spec.around.exposure if spec.around else None
    return {
        "ports": spec.ports,
        "channels": spec.channels,
        "startup_s": pod_of(spec).startup_s + _SLACK_S,
        "secure": bool(exposure and (exposure.tls_secret or exposure.issuer)),
        "declined": [[part.part, part.reason, part.message] for part in declined],
    }


def holding(anchor: Json, items: Iterable[OwnedItem]) -> Json:
    """The anchor, owning these."""
    return _with(anchor, {"inventory": _items(items)})


def same(kept: AnchorRecord) -> Json:
    """The anchor as it was found, to be written again."""
    found = kept.found
    body = {key: found[key] for key in ("apiVersion", "kind", "data")}
    names = ("name", "namespace", "labels", "annotations", "ownerReferences")
    body["metadata"] = {key: found["metadata"][key] for key in names if key in found["metadata"]}
    body["metadata"]["resourceVersion"] = kept.version
    return body


def changed(kept: AnchorRecord, *, left: frozenset[str] | None = None, force: bool = False) -> Json:
    """The anchor as it is, with another decision; its digest goes, so that apply acts on it."""
    body = _with(same(kept), {"digest": ""})
    if left is not None:
        body["data"]["left"] = _dumped(sorted(left))
    if force:
        body["data"]["force"] = "1"
    return body


def _last(objects: Iterable[Json], facts: Json) -> dict[str, str]:
    return {"objects": _dumped([keep(body) for body in objects]), "facts": _dumped(facts)}


def _carried(body: Json, kept: AnchorRecord, *, force: bool) -> Json:
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
