"""ServiceAccount, Role and RoleBinding of a workload.

Only a process that watches Services gets an account, limited to reading EndpointSlices in its own
namespace. (EndpointSlices have generated names and are found by label, which a Role cannot
restrict, so the namespace is the smallest scope.)
"""

from __future__ import annotations

from typing import Any

from console.provisioners.base import PermanentError, WorkloadSpec
from console.provisioners.kubernetes.rendering.names import around_of, make_object, pod_of
from console.provisioners.kubernetes.rendering.target import RenderingTarget

_RBAC = "rbac.authorization.k8s.io"


def account_name(spec: WorkloadSpec) -> str:
    """Return the account, "" for the namespace's default one, whose token is not mounted."""
    own = spec.name if around_of(spec).watches_services else ""
    return pod_of(spec).service_account or own


def rights(spec: WorkloadSpec, target: RenderingTarget) -> list[dict[str, Any]]:
    watched = around_of(spec).watches_services
    if not watched:
        return []
    for service in watched:
        _check(spec, target, service)
    rule = {
        "apiGroups": ["discovery.k8s.io"],
        "resources": ["endpointslices"],
        "verbs": ["get", "list", "watch"],
    }
    subject = {"kind": "ServiceAccount", "name": account_name(spec), "namespace": target.namespace}
    bound = {
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": spec.name},
        "subjects": [subject],
    }
    version = f"{_RBAC}/v1"
    out = [
        make_object(spec, target.namespace, version, "Role", spec.name, {"rules": [rule]}),
        make_object(spec, target.namespace, version, "RoleBinding", spec.name, bound),
    ]
    if not pod_of(spec).service_account:
        body = {"automountServiceAccountToken": False}
        out.insert(0, make_object(spec, target.namespace, "v1", "ServiceAccount", spec.name, body))
    return out


def _check(spec: WorkloadSpec, target: RenderingTarget, service: str) -> None:
    namespace, _, _ = service.rpartition("/")
    if namespace not in ("", target.namespace):
        raise PermanentError(
            "BadSpec",
            f"{spec.name!r} follows Service {service!r}, but can get rights only in its own "
            f"namespace {target.namespace!r}.",
        )
