"""Required and optional RBAC rights, the granted ones, and the Role to grant.

No right is listed that no feature uses, and a displayed Role contains every right needed at its
level, so that applying it removes nothing. Checking changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import yaml

from console.provisioners.kubernetes.api import capabilities as known
from console.provisioners.kubernetes.api import kinds
from console.provisioners.kubernetes.api.reader import QueryFailed, Reader
from console.provisioners.kubernetes.discovery.inventory import Inventory, parse_dataclass

_LOOK = ("get", "list", "watch")
VERBS_OF_OWN = ("get", "list", "create", "patch", "delete")
NAME = "emberline-workloads"
FOLLOW_GROUP = "follow"
"""Rights needed only for watching objects in a namespace."""
RECEIVERS_GROUP = "receivers"
"""Rights for storing alert receivers in a cluster."""


@dataclass(frozen=True, slots=True)
class ResourceVerbs:
    """Verbs on one resource. `lost` is the feature lost without them. `cluster`: in all
    namespaces. `optional`: not required.
    """

    group: str
    resource: str
    verbs: tuple[str, ...]
    lost: str
    cluster: bool = False
    optional: bool = False

    @property
    def title(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource


@dataclass(frozen=True, slots=True)
class Right(ResourceVerbs):
    """Permission that the console needs in a cluster. `capability`: only if the cluster has it
    (`shares`: if it has drivers for existing storage). `names`: only these objects. `part`: only
    while that feature group is used.
    """

    capability: str = ""
    shares: bool = False
    names: tuple[str, ...] = ()
    part: str = ""


_LOST = {
    "serviceaccounts": "routers cannot be created",
    "roles": "routers cannot discover workers",
    "rolebindings": "routers cannot discover workers",
    "statefulsets": "cache tiers cannot be created",
    "persistentvolumeclaims": "volumes of cache nodes are not created or not removed",
    "persistentvolumes": "models on S3, FSx and EFS cannot be mounted",
    "gateways": "no exposure by a dedicated Gateway",
    "poddisruptionbudgets": "node drains are not delayed",
    "networkpolicies": "pod ports stay open",
    "ingresses": "no exposure by Ingress",
    "httproutes": "no exposure by a Gateway",
    "horizontalpodautoscalers": "no autoscaling",
    "scaledobjects": "no autoscaling by KEDA",
    "certificates": "no certificates by cert-manager",
    "podmonitors": "no monitors for the Prometheus Operator",
    "prometheusrules": "no alert rules for the Prometheus Operator",
}

_POLLED = "endpoints are polled every few seconds"


def _discovery_right(group: str, resource: str, lost: str, capability: str = "") -> Right:
    """Cluster-wide read access for discovery."""
    return Right(group, resource, ("list",), lost, True, True, capability)


_CONFIGS = ("inference.sagemaker.aws.amazon.com", "inferenceendpointconfigs")
_DEFINITIONS = Right(
    "apiextensions.k8s.io",
    "customresourcedefinitions",
    ("create",),  # not restrictable by name: the object does not exist yet
    "InferenceEndpointConfig is not installed: no object can be followed",
    cluster=True,
    optional=True,
    part=FOLLOW_GROUP,
)


def _follow_right(group: str, resource: str, verbs: tuple[str, ...], lost: str) -> Right:
    """Rights in watched namespaces. Finalizers are part of the object, hence patch."""
    return Right(group, resource, verbs, lost, optional=True, part=FOLLOW_GROUP)


RIGHTS = (
    *(
        Right(
            kind.group,
            kind.plural,
            VERBS_OF_OWN,
            _LOST.get(kind.plural, "workloads cannot be created"),
            capability=kind.capability,
        )
        for kind in kinds.APPLIED_KINDS
        if kind.namespaced
    ),
    Right("", "pods", ("get", "list", "patch"), "replicas are not visible"),
    Right("", "pods", ("watch",), _POLLED, optional=True),
    Right("apps", "deployments", ("watch",), _POLLED, optional=True),
    Right("", "pods/log", ("get",), "logs are not available"),
    Right("apps", "replicasets", ("get", "list"), "rollout revisions are not visible"),
    # Granting a right requires holding it; routers get this one.
    Right("discovery.k8s.io", "endpointslices", _LOOK, "routers cannot discover workers"),
    Right("", "events", ("list",), "cluster events are not available", optional=True),
    *(
        Right(kind.group, kind.plural, VERBS_OF_OWN, _LOST[kind.plural], True, True, shares=True)
        for kind in kinds.APPLIED_KINDS
        if not kind.namespaced
    ),
    _discovery_right("", "nodes", "instance types and GPUs are unknown"),
    _discovery_right("", "pods", "free GPUs are unknown"),
    _discovery_right("", "namespaces", "namespaces are not listed"),
    _discovery_right("storage.k8s.io", "storageclasses", "classes are not listed"),
    _discovery_right("storage.k8s.io", "csidrivers", "models on S3, FSx and EFS are not available"),
    _discovery_right("networking.k8s.io", "ingressclasses", "classes are not listed"),
    _discovery_right("scheduling.k8s.io", "priorityclasses", "classes are not listed"),
    _discovery_right(
        "cert-manager.io", "clusterissuers", "issuers are not listed", known.CERT_MANAGER
    ),
    _discovery_right("cert-manager.io", "issuers", "issuers are not listed", known.CERT_MANAGER),
    _discovery_right(
        "gateway.networking.k8s.io", "gateways", "Gateways are not listed", known.GATEWAY_API
    ),
    _DEFINITIONS,
    replace(
        _DEFINITIONS,
        verbs=("get", "patch"),
        names=(".".join(reversed(_CONFIGS)),),
        lost="objects are not followed",
    ),
    _follow_right(*_CONFIGS, ("list", "patch"), "objects are neither followed nor released"),
    _follow_right(_CONFIGS[0], f"{_CONFIGS[1]}/status", ("patch",), "object status is not updated"),
    _follow_right("", "events", ("create", "patch"), "no event when an object is rejected"),
    Right(
        "monitoring.coreos.com",
        "alertmanagerconfigs",
        VERBS_OF_OWN,
        "receivers are not stored for the cluster's Alertmanager",
        optional=True,
        capability=known.PROMETHEUS_OPERATOR,
        part=RECEIVERS_GROUP,
    ),
)


@dataclass(frozen=True, slots=True)
class MissingRight(ResourceVerbs):
    """Verbs that are not granted. `namespace` is set if it differs from the cluster's own."""

    namespace: str = ""


@dataclass(frozen=True, slots=True)
class GrantedRights:
    """Permissions of the console in a cluster. `who` is our user name in the cluster; `manifest`
    grants all that is missing.
    """

    who: str = ""
    namespace: str = ""
    missing: tuple[MissingRight, ...] = ()
    manifest: str = ""

    @property
    def enough(self) -> bool:
        return all(right.optional for right in self.missing)

    @property
    def needed(self) -> tuple[MissingRight, ...]:
        return tuple(right for right in self.missing if not right.optional)

    @property
    def wished(self) -> tuple[MissingRight, ...]:
        return tuple(right for right in self.missing if right.optional)

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> GrantedRights:
        missing = tuple(parse_dataclass(MissingRight, item) for item in data.get("missing", ()))
        rights: GrantedRights = parse_dataclass(cls, {**data, "missing": missing})
        return rights


def required_rights(found: Inventory, parts: Collection[str] = ()) -> tuple[Right, ...]:
    """Return all rights for a cluster with this inventory and these feature groups."""
    there = {"", *found.capabilities}
    return tuple(
        right
        for right in RIGHTS
        if right.capability in there
        and (found.shares or not right.shares)
        and (not right.part or right.part in parts)
    )


def check_rights(
    reader: Reader,
    namespace: str,
    found: Inventory,
    followed: Collection[str] = (),
    parts: Collection[str] = (),
) -> GrantedRights:
    """Return the missing rights: in the namespace (including those of `parts`), in `followed`
    namespaces (only those needed for following), and cluster-wide.
    """
    who = _user_name(reader)
    rights = required_rights(found, (*parts, *((FOLLOW_GROUP,) if followed else ())))
    wide = [right for right in rights if right.cluster]
    missing: list[MissingRight] = []
    documents: list[dict[str, Any]] = []
    for space in dict.fromkeys((namespace, *sorted(followed))):
        own = space == namespace
        used = {"", *(parts if own else ()), *((FOLLOW_GROUP,) if space in followed else ())}
        here = [right for right in rights if not right.cluster and right.part in used]
        required = [*here, *wide] if own else [right for right in here if right.part]
        lacking = _missing_verbs(reader, required, space)
        missing += lacking if own else [replace(right, namespace=space) for right in lacking]
        if any(not right.cluster for right in lacking):
            documents += _level(here, who, space)
    if any(right.cluster for right in missing):
        documents += _level(wide, who, "")
    return GrantedRights(who, namespace, tuple(missing), _yaml(documents))


def _missing_verbs(reader: Reader, required: Iterable[Right], namespace: str) -> list[MissingRight]:
    rules, whole = _rules(reader, namespace)
    missing_verbs = []
    for right in required:
        verbs = tuple(
            verb
            for verb in right.verbs
            if not _is_allowed_by_rules(reader, right, verb, namespace, rules, ask_again=not whole)
        )
        if verbs:
            marks = (right.lost, right.cluster, right.optional)
            missing_verbs.append(MissingRight(right.group, right.resource, verbs, *marks))
    return missing_verbs


def _user_name(reader: Reader) -> str:
    """Return our user name, "" on clusters before 1.28."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        review = reader.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", body)
    except QueryFailed:
        return ""
    return str(((review.get("status") or {}).get("userInfo") or {}).get("username", ""))


def _rules(reader: Reader, namespace: str) -> tuple[list[Mapping[str, Any]], bool]:
    """Return the rules of the namespace from one review, and whether they are complete."""
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    try:
        review = reader.post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", body)
    except QueryFailed:
        return [], False
    status = review.get("status") or {}
    return list(status.get("resourceRules") or ()), not status.get("incomplete", False)


def _is_allowed_by_rules(
    reader: Reader,
    right: Right,
    verb: str,
    namespace: str,
    rules: Iterable[Mapping[str, Any]],
    *,
    ask_again: bool,
) -> bool:
    """Decide by the namespace's rules if they are conclusive, else by an access review."""
    if not right.cluster:
        if any(_grants(rule, right, verb) for rule in rules):
            return True
        if not ask_again:
            return False
    where = "" if right.cluster else namespace
    return all(
        is_allowed(reader, verb, right.group, right.resource, where, name)
        for name in right.names or ("",)
    )


def is_allowed(
    reader: Reader, verb: str, group: str, resource: str, namespace: str, object_name: str = ""
) -> bool:
    """Review one access. `namespace` "": all namespaces; `object_name` "": every object."""
    name, _, part = resource.partition("/")
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {
            "resourceAttributes": {
                "verb": verb,
                "group": group,
                "resource": name,
                "subresource": part,
                "namespace": namespace,
                "name": object_name,
            }
        },
    }
    review = reader.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
    return (review.get("status") or {}).get("allowed") is True


def _grants(rule: Mapping[str, Any], right: Right, verb: str) -> bool:
    def has(key: str, value: str) -> bool:
        return bool({"*", value} & set(rule.get(key) or ()))

    return (
        not rule.get("resourceNames")  # restricted to named objects, which we do not choose
        and has("verbs", verb)
        and has("apiGroups", right.group)
        and has("resources", right.resource)
    )


def manifest(rights: Iterable[Right], who: str, namespace: str) -> str:
    """Return YAML for `kubectl apply -f -` by an administrator; "" if nothing is missing."""
    all_rights = list(rights)
    here = _level([right for right in all_rights if not right.cluster], who, namespace)
    return _yaml([*here, *_level([right for right in all_rights if right.cluster], who, "")])


def _yaml(documents: list[dict[str, Any]]) -> str:
    return yaml.safe_dump_all(documents, sort_keys=False) if documents else ""


def _level(rights: Iterable[Right], who: str, namespace: str) -> list[dict[str, Any]]:
    together: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for right in rights:
        together.setdefault((right.group, right.verbs, right.names), []).append(right.resource)
    rules = [
        {
            "apiGroups": [group],
            "resources": resources,
            **({"resourceNames": list(names)} if names else {}),
            "verbs": list(verbs),
        }
        for (group, verbs, names), resources in together.items()
    ]
    return _role(rules, who, namespace) if rules else []


def _role(rules: list[dict[str, Any]], who: str, namespace: str) -> list[dict[str, Any]]:
    """Return a Role and its binding; cluster-wide ones without a namespace."""
    kind = "Role" if namespace else "ClusterRole"
    api = "rbac.authorization.k8s.io"
    metadata: dict[str, Any] = {"name": NAME, **({"namespace": namespace} if namespace else {})}
    return [
        {"apiVersion": f"{api}/v1", "kind": kind, "metadata": dict(metadata), "rules": rules},
        {
            "apiVersion": f"{api}/v1",
            "kind": f"{kind}Binding",
            "metadata": dict(metadata),
            "roleRef": {"apiGroup": api, "kind": kind, "name": NAME},
            "subjects": [_subject(who)],
        },
    ]


def _subject(who: str) -> dict[str, str]:
    parts = who.split(":")
    if len(parts) == 4 and parts[:2] == ["system", "serviceaccount"]:
        return {"kind": "ServiceAccount", "namespace": parts[2], "name": parts[3]}
    return {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": who or "emberline"}
