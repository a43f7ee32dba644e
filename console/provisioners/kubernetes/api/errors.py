"""API server errors as `ProvisionError`s: what to do, and whether to retry.

An error names the verb, the object and the fix; of an object's content only field names appear.

    ClusterRefused      invalid credentials, or a missing right: the Role to grant is named
    FieldConflict       another manager set a field that we set too: heal or adopt
    RefusedByCluster    invalid object, or denied by a cluster policy
    MissingCapability   the cluster does not serve the kind
    NamespaceMissing    create the namespace first
    QuotaExceeded       temporary: quota may be freed
    NamespaceEnding     temporary
    StillStopping       temporary: an object of that name is still being deleted
    ClusterBusy         temporary: throttled, internal error, or a concurrent write
    ClusterUnreachable  temporary: no response in time
    VersionExpired      temporary: the version to watch from is too old; list again
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from console.provisioners.base import PermanentError, ProvisionError, TemporaryError
from console.provisioners.kubernetes.api.capabilities import CAPABILITIES
from console.provisioners.kubernetes.api.kinds import ObjectKind

_MANAGER = re.compile(r'conflict with "((?:[^"\\]|\\.)*)"')
_UNTYPED = "failed to create typed patch object"
_MOST = 600
"""Maximum length of a server message: webhooks can be verbose."""


class FieldConflictError(PermanentError):
    """Fields of an object that another manager owns. `fields`: each contested field, as the server
    writes it, and its manager.
    """

    def __init__(self, reason: str, message: str, fields: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(reason, message)
        self.fields = fields


class VersionExpiredError(TemporaryError):
    """The server no longer has the changes since the version of a watch."""


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request, as described in error messages. `part` is a subresource (log)."""

    verb: str
    kind: ObjectKind
    namespace: str
    name: str = ""
    part: str = ""

    @property
    def object(self) -> str:
        return f"{self.kind.kind}/{self.name}" if self.name else self.kind.resource

    def __str__(self) -> str:
        return f"{self.verb} {self.object} in namespace {self.namespace}"


def unreachable_error(request: ApiRequest, why: str) -> ProvisionError:
    message = f"The cluster did not respond to the request to {request}: {_short(why)}."
    return TemporaryError("ClusterUnreachable", message)


def untrusted_error(request: ApiRequest, why: str) -> ProvisionError:
    return PermanentError(
        "ClusterUntrusted",
        f"The request to {request} was not sent: the cluster's certificate does not match the CA "
        f"configured for it: {_short(why)}. Configure the cluster's own CA.",
    )


def error_from_status(
    status: int, response: Mapping[str, Any], request: ApiRequest, retry_after_s: float = 0.0
) -> ProvisionError:
    """Return the error for a response; `response` is the server's Status, {} if it sent none."""
    message = _short(str(response.get("message") or f"HTTP {status}"))
    reason = str(response.get("reason") or "")
    if status == 401:
        return PermanentError(
            "ClusterRefused",
            f"The cluster rejected the credentials (request to {request}). They may "
            "have expired; configure new ones.",
        )
    if status == 403:
        return _forbidden(message, response, request)
    if status == 404:
        return _missing(response, request)
    if status == 409:
        return _conflict(message, reason, response, request)
    if status == 410:
        text = f"The cluster no longer has the changes for the request to {request}."
        return VersionExpiredError("VersionExpired", text, delay_s=1.0)
    if _UNTYPED in message:  # which the server reports as an internal error
        return PermanentError(
            "RefusedByCluster", f"The cluster rejected the request to {request}: {message}."
        )
    if status == 429 or status >= 500 or reason in ("ServerTimeout", "TooManyRequests"):
        return TemporaryError(
            "ClusterBusy",
            f"The cluster failed to {request}: {message}.",
            delay_s=min(max(retry_after_s, 2.0), 60.0),
        )
    return PermanentError(
        "RefusedByCluster", f"The cluster rejected the request to {request}: {message}."
    )


def _forbidden(message: str, response: Mapping[str, Any], request: ApiRequest) -> ProvisionError:
    causes = {cause.get("reason") for cause in _causes(response)}
    if "exceeded quota" in message:
        return TemporaryError(
            "QuotaExceeded",
            f"{request.object}: {message}. Raise the ResourceQuota of namespace "
            f"{request.namespace}, or free some of it.",
            delay_s=30.0,
        )
    if "NamespaceTerminating" in causes or "because it is being terminated" in message:
        return TemporaryError(
            "NamespaceEnding",
            f"Namespace {request.namespace} is being deleted, so no object can be created in it.",
            delay_s=15.0,
        )
    if "admission webhook" in message or "violates PodSecurity" in message:
        return PermanentError(
            "RefusedByCluster", f"The cluster rejected the request to {request}: {message}."
        )
    resource = request.kind.plural + (f"/{request.part}" if request.part else "")
    inside = request.kind.namespaced
    role = f"a Role in namespace {request.namespace}" if inside else "a ClusterRole"
    return PermanentError(
        "ClusterRefused",
        f"The cluster denies permission to {request}. Grant it with {role}: "
        f'apiGroups ["{request.kind.group}"], resources ["{resource}"], '
        f'verbs ["{request.verb}"]. Response: {message}.',
    )


def _missing(response: Mapping[str, Any], request: ApiRequest) -> ProvisionError:
    details = response.get("details")
    kind = details.get("kind") if isinstance(details, Mapping) else ""
    if kind == "namespaces":
        return PermanentError(
            "NamespaceMissing",
            f"The cluster has no namespace {request.namespace!r}. Create it (kubectl create "
            f"namespace {request.namespace}), or name another one.",
        )
    capability = CAPABILITIES.get(request.kind.capability)
    remedy = capability.remedy if capability else "Use a cluster that has it."
    return PermanentError(
        "MissingCapability",
        f"The cluster does not serve {request.kind.resource} of {request.kind.api_version} "
        f"(request to {request}). {remedy}",
    )


def _conflict(
    message: str, reason: str, response: Mapping[str, Any], request: ApiRequest
) -> ProvisionError:
    foreign = tuple(
        (str(cause.get("field", "")), _manager(str(cause.get("message", ""))))
        for cause in _causes(response)
        if cause.get("reason") == "FieldManagerConflict"
    )
    if foreign:
        fields = "; ".join(f"{field} (set by {manager})" for field, manager in foreign)
        return FieldConflictError(
            "FieldConflict",
            f"{request.object}: fields are also managed by another client: {fields}. "
            "Heal overwrites them; Adopt leaves them to that client.",
            foreign,
        )
    if "object is being deleted" in message:
        return TemporaryError(
            "StillStopping", f"{request.object} is still being deleted.", delay_s=1.0
        )
    what = "created it first" if reason == "AlreadyExists" else "changed it at the same time"
    return TemporaryError(
        "ClusterBusy", f"{request.object}: another client {what}: {message}.", delay_s=1.0
    )


def _causes(response: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    details = response.get("details")
    causes = details.get("causes") if isinstance(details, Mapping) else None
    return [cause for cause in causes or [] if isinstance(cause, Mapping)]


def _manager(message: str) -> str:
    match = _MANAGER.search(message)
    return match.group(1) if match else "somebody"


def _short(text: str) -> str:
    text = " ".join(text.split()).rstrip(".")
    return text if len(text) <= _MOST else text[: _MOST - 1] + "…"
